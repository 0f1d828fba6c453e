//! Blocking on the host while driving our own windows [PR-1].
//!
//! Hosts with a progress hook do that by themselves. For the others, a job agrees at `MPI_Init` that every blocking
//! call is made in its nonblocking form, and waited for here. Collectives must follow that agreement always, whatever
//! the local state, because the two forms do not match each other [PR-5]; point-to-point calls and waits may go to the
//! host directly when nothing of ours waits, since there both forms match.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use super::hook;
use super::sys::*;
use crate::runtime::progress::{Patience, sweep_from_hook};
#[cfg(mpi_host = "mpich")]
use crate::runtime::progress::{crowded, may_be_told, must_drive};

/// Blocking calls are made in their nonblocking form; agreed at `MPI_Init`.
static AGREED: AtomicBool = AtomicBool::new(false);

/// Sets the agreement.
pub(crate) fn agree(loops: bool) {
    AGREED.store(loops, Ordering::Release);
}

/// True if collectives are made in their nonblocking form.
#[inline]
pub(crate) fn collectives() -> bool {
    AGREED.load(Ordering::Relaxed)
}

/// True if a point-to-point call or a wait, in a job that has agreed on loops, is to be waited for here: it has something of
/// ours to drive, now or when a peer tells us something, or ranks share cores, which this host's own waits do not give away [PR-4].
#[cfg(mpi_host = "mpich")]
#[inline]
pub(crate) fn now() -> bool {
    collectives() && (crowded() || may_be_told() || must_drive())
}

/// Repeats `look` until it gives a result, driving everything in between. Not with the guard held.
pub(crate) fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    // Test calls of the host run the poll functions of all our requests; this loop does their work once.
    let looping = Looping(hook::set_looping(true));
    let mut patience = Patience::new();
    loop {
        if let Some(result) = look() {
            drop(looping);
            return result;
        }
        let moved = sweep_from_hook();
        if patience.round() {
            hook::poke();
        }
        if !moved {
            patience.pause();
        }
    }
}

/// Puts the mark back, even if `look` panics.
struct Looping(bool);

impl Drop for Looping {
    fn drop(&mut self) {
        hook::set_looping(self.0);
    }
}

/// Waits for one request of the host.
///
/// # Safety
/// As `MPI_Wait`.
pub(crate) unsafe fn wait(request: *mut MPI_Request, status: *mut MPI_Status) -> c_int {
    until(|| {
        let mut flag = 0;
        // SAFETY: as the caller says.
        let code = unsafe { PMPI_Test(request, &raw mut flag, status) };
        (code != MPI_SUCCESS || flag != 0).then_some(code)
    })
}

/// Makes a blocking call in its nonblocking form: `start` makes the request.
pub(crate) fn through(
    start: impl FnOnce(*mut MPI_Request) -> c_int,
    status: *mut MPI_Status,
) -> c_int {
    let mut request = MPI_REQUEST_NULL;
    let code = start(&raw mut request);
    if code != MPI_SUCCESS {
        return code;
    }
    // SAFETY: the request was just made; the status is the caller's.
    unsafe { wait(&raw mut request, status) }
}

/// Before a collective call that has no nonblocking form: waits, driving, until every process of the communicator has
/// come to it, so that the host blocks only for its own work.
///
/// # Safety
/// `comm` is a communicator of the application (or null, or wrong, which the call itself will tell).
pub(crate) unsafe fn assemble(comm: MPI_Comm) {
    if !collectives() || comm == MPI_COMM_NULL {
        return;
    }
    // SAFETY: as the caller says. A failure shows again in the call that follows.
    through(|request| unsafe { PMPI_Ibarrier(comm, request) }, MPI_STATUS_IGNORE);
}

/// Before `MPI_Finalize`: on every host, waits until all processes have come to it.
///
/// # Safety
/// `comm` is a live communicator.
pub(crate) unsafe fn assemble_for_good(comm: MPI_Comm) {
    // SAFETY: as the caller says.
    through(|request| unsafe { PMPI_Ibarrier(comm, request) }, MPI_STATUS_IGNORE);
}

/// The same as [`allgather`], where every process has come to it and drives nothing meanwhile.
///
/// # Safety
/// As [`allgather`].
pub(crate) unsafe fn allgather_blocking(comm: MPI_Comm, mine: &[u8], all: &mut [u8]) -> c_int {
    let (from, to) = (mine.as_ptr().cast::<c_void>(), all.as_mut_ptr().cast::<c_void>());
    let count = mine.len() as c_int;
    // SAFETY: as the caller says; the buffers outlive the call.
    unsafe { PMPI_Allgather(from, count, MPI_BYTE, to, count, MPI_BYTE, comm) }
}

/// Gathers `mine` of every process into `all`.
///
/// # Safety
/// `comm` is a live communicator, and `all` has room for `mine` of each of its processes.
pub(crate) unsafe fn allgather(comm: MPI_Comm, mine: &[u8], all: &mut [u8]) -> c_int {
    let (from, to) = (mine.as_ptr().cast::<c_void>(), all.as_mut_ptr().cast::<c_void>());
    let count = mine.len() as c_int;
    // SAFETY: as the caller says; the buffers outlive the call.
    unsafe {
        if collectives() {
            through(
                |request| {
                    PMPI_Iallgather(from, count, MPI_BYTE, to, count, MPI_BYTE, comm, request)
                },
                MPI_STATUS_IGNORE,
            )
        } else {
            allgather_blocking(comm, mine, all)
        }
    }
}
