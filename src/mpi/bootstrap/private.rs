//! Communicators of the library's own, one for each window that sends messages.
//!
//! Making one takes hosts a few rounds of messages: between nodes longer than all else that a
//! window needs. So the first few are kept when their windows end, for later windows of the same
//! processes. All processes of a communicator keep it, or none: each says beforehand whether it has
//! room, and the room is its own until the program ends. A kept communicator is used again only if
//! all processes of the new window offer it, under the name that they gave it together; nothing is
//! under way in it then, since each has offered it after the end of the window before.

use std::ffi::c_int;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::mpi::abi::sys::*;
use crate::mpi::abi::world;
use crate::mpi::bootstrap::Collectives;
use crate::mpi::progress::drive;

/// Communicators that a process keeps, those in use among them.
const KEPT: usize = 4;

/// A communicator that only this library sends on, and in which errors return.
#[derive(Debug)]
pub(crate) struct Private {
    comm: MPI_Comm,
    /// What its processes call it; 0 if it is not kept.
    name: u64,
}

/// What is kept, and for how many more there is room.
struct Pool {
    room: usize,
    /// Offered in this order.
    free: Vec<Private>,
}

// SAFETY: the host's handles may be used in any thread that may call MPI.
unsafe impl Send for Pool {}

static POOL: Mutex<Pool> = Mutex::new(Pool { room: KEPT, free: Vec::new() });

fn pool() -> MutexGuard<'static, Pool> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A name for a communicator that nobody else gives.
fn fresh_name() -> u64 {
    RandomState::new().build_hasher().finish() | 1
}

/// What a process says of its kept communicators before a window is made: 16 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Offer {
    /// Name of one of the same processes, or 0.
    kept: u64,
    /// How a new one can be called, or 0: there is no room.
    fresh: u64,
}

/// Bytes of an offer.
pub(crate) const OFFER: usize = 16;

impl Offer {
    pub(crate) fn encode(self, bytes: &mut [u8]) {
        bytes[..8].copy_from_slice(&self.kept.to_ne_bytes());
        bytes[8..OFFER].copy_from_slice(&self.fresh.to_ne_bytes());
    }

    pub(crate) fn decode(bytes: &[u8]) -> Self {
        let word =
            |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        Offer { kept: word(0), fresh: word(8) }
    }

    /// True if all offer the same one.
    fn meets(mut offers: impl Iterator<Item = Offer>) -> bool {
        let Some(first) = offers.next() else { return false };
        first.kept != 0 && offers.all(|offer| offer.kept == first.kept)
    }

    /// Name of a new communicator, which the first process gives if all have room; else 0.
    fn name(mut offers: impl Iterator<Item = Offer>) -> u64 {
        let Some(first) = offers.next() else { return 0 };
        if offers.all(|offer| offer.fresh != 0) { first.fresh } else { 0 }
    }
}

/// A kept communicator of the processes of `comm`, if there is one, taken out; and what to say of
/// that.
pub(crate) fn offer(comm: MPI_Comm) -> (Option<Private>, Offer) {
    let mut pool = pool();
    let at = match pool.free.is_empty() {
        true => None,
        false => find(&pool.free, comm),
    };
    let kept = at.map(|at| pool.free.remove(at));
    let fresh = if pool.room > 0 { fresh_name() } else { 0 };
    let offer = Offer { kept: kept.as_ref().map_or(0, |kept| kept.name), fresh };
    (kept, offer)
}

/// The first of them that has the processes of `comm`, in the same order.
fn find(kept: &[Private], comm: MPI_Comm) -> Option<usize> {
    let group_of = |comm| {
        let mut group = MPI_GROUP_NULL;
        // SAFETY: the communicator is live.
        (unsafe { PMPI_Comm_group(comm, &raw mut group) } == MPI_SUCCESS).then_some(group)
    };
    let mut wanted = group_of(comm)?;
    let found = kept.iter().position(|kept| {
        let Some(mut group) = group_of(kept.comm) else { return false };
        let mut result = MPI_UNEQUAL;
        // SAFETY: both groups were just made.
        unsafe {
            let code = PMPI_Group_compare(wanted, group, &raw mut result);
            PMPI_Group_free(&raw mut group);
            code == MPI_SUCCESS && result == MPI_IDENT
        }
    });
    // SAFETY: made above.
    unsafe { PMPI_Group_free(&raw mut wanted) };
    found
}

/// Puts back what was taken out and is not wanted; others are offered before it next time.
pub(crate) fn put_back(kept: Option<Private>) {
    pool().free.extend(kept);
}

/// A communicator for a window of the processes of `all`, which have made these `offers`; `kept` is
/// what this one has taken out. `keep`: it may be kept for later windows; all processes say the
/// same. Collective where no kept one can be used.
pub(crate) fn make<I: Iterator<Item = Offer>>(
    all: &Collectives,
    kept: Option<Private>,
    offers: impl Fn() -> I,
    keep: bool,
) -> Result<Private, c_int> {
    match kept {
        Some(kept) if keep && Offer::meets(offers()) => {
            log::debug!("the window's messages go over a communicator that was kept");
            return Ok(kept);
        }
        kept => put_back(kept),
    }
    let name = if keep && world::within_world(all.comm()) { Offer::name(offers()) } else { 0 };
    if !all.may_block() {
        // SAFETY: the communicator is live, and all of its processes come here.
        unsafe { drive::assemble(all.comm()) }?;
    }
    let comm = create(all.comm())?;
    let mut pool = pool();
    // Another thread may have taken the last room meanwhile; then there is one more than was meant.
    if name != 0 {
        pool.room = pool.room.saturating_sub(1);
    }
    Ok(Private { comm, name })
}

/// The communicator of this process alone, as a key; 0 while there is none.
static OWN: AtomicU64 = AtomicU64::new(0);

/// Makes a communicator of this process alone, for calls of the host in which errors must return:
/// no error handler of the application's may run while the guard is held. Called by `MPI_Init`.
pub(crate) fn open_own() -> MPI_Comm {
    match create(MPI_COMM_SELF) {
        Ok(comm) => {
            OWN.store(comm.key(), Ordering::Relaxed);
            comm
        }
        Err(code) => {
            log::warn!(
                "the host cannot make a communicator of one process (error {code}); MPI_COMM_SELF is used"
            );
            MPI_COMM_SELF
        }
    }
}

/// Frees what [`open_own`] made. Nothing may use it any more.
pub(crate) fn close_own() {
    let comm = OWN.swap(0, Ordering::Relaxed);
    if comm != 0 {
        let mut comm = MPI_Comm::of(comm);
        // SAFETY: made by `open_own`; the caller's promise.
        unsafe { PMPI_Comm_free(&raw mut comm) };
    }
}

/// Makes a communicator of the same processes, in which errors return. `MPI_Comm_dup` would copy
/// the attributes and so run the application's copy functions.
fn create(of: MPI_Comm) -> Result<MPI_Comm, c_int> {
    let (mut group, mut comm) = (MPI_GROUP_NULL, MPI_COMM_NULL);
    // SAFETY: the communicator is live, and all of its processes come here.
    unsafe {
        let mut code = PMPI_Comm_group(of, &raw mut group);
        if code == MPI_SUCCESS {
            code = PMPI_Comm_create(of, group, &raw mut comm);
            PMPI_Group_free(&raw mut group);
        }
        if code != MPI_SUCCESS {
            return Err(code);
        }
        PMPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    }
    Ok(comm)
}

impl Private {
    /// The communicator, for as long as this is not given back.
    pub(crate) fn comm(&self) -> MPI_Comm {
        self.comm
    }

    /// Gives it back: kept if nothing is under way in it (`clean`) and all have said so at its
    /// beginning.
    pub(crate) fn end(&self, clean: bool) {
        let Private { mut comm, name } = *self;
        if clean && name != 0 {
            pool().free.insert(0, Private { comm, name });
            return;
        }
        // SAFETY: a communicator that was made here, and that nobody uses any more.
        unsafe { PMPI_Comm_free(&raw mut comm) };
    }
}

/// Gives all that is kept back to the host, before it ends.
pub(crate) fn close() {
    let mut kept = std::mem::take(&mut pool().free);
    // In the same order everywhere, should a host wait for others in this call.
    kept.sort_unstable_by_key(|private| private.name);
    for mut private in kept {
        // SAFETY: a communicator that was made here, and that no window uses.
        unsafe { PMPI_Comm_free(&raw mut private.comm) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offers(all: &[(u64, u64)]) -> impl Iterator<Item = Offer> {
        all.iter().map(|(kept, fresh)| {
            let mut bytes = [0; OFFER];
            Offer { kept: *kept, fresh: *fresh }.encode(&mut bytes);
            Offer::decode(&bytes)
        })
    }

    #[test]
    fn a_kept_communicator_is_used_if_all_offer_it() {
        assert!(Offer::meets(offers(&[(5, 1), (5, 0), (5, 9)])));
        assert!(!Offer::meets(offers(&[(5, 1), (7, 1), (5, 1)])), "another one");
        assert!(!Offer::meets(offers(&[(0, 1), (0, 3)])), "none");
        assert!(!Offer::meets(offers(&[])));
    }

    #[test]
    fn a_new_one_is_kept_if_all_have_room() {
        assert_eq!(Offer::name(offers(&[(0, 3), (5, 9)])), 3);
        assert_eq!(Offer::name(offers(&[(0, 3), (5, 0)])), 0);
        assert_eq!(Offer::name(offers(&[(0, 0), (5, 9)])), 0);
    }

    #[test]
    fn names_differ() {
        let names: std::collections::HashSet<u64> = (0..1000).map(|_| fresh_name()).collect();
        assert!(names.len() == 1000 && !names.contains(&0));
    }
}
