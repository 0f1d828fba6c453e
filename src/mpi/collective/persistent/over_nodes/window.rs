//! The windows of collectives over nodes.
//!
//! A window is freed together by its processes, but a request by one of them. So what a request
//! leaves behind is freed when the communicator's processes next make such a collective or free the
//! communicator, or before MPI is finalized.

use std::ffi::c_int;
use std::sync::OnceLock;

use crate::mpi::abi::sys::*;
use crate::mpi::collective::communicators::Carrier;
use crate::mpi::collective::endings;
use crate::mpi::collective::own_comm::OwnComm;
use crate::mpi::collective::persistent::gather;
use crate::runtime::WindowId;
use crate::runtime::process::Own;

/// Calls on windows, which the part that makes windows serves.
pub(crate) struct WindowCalls {
    /// Makes a window of the processes of a communicator, with so many bytes and notification
    /// counters in this process, in an epoch that is open to all. Collective. `None`, in all
    /// processes: there is none.
    pub(crate) make: fn(MPI_Comm, usize, u32) -> Option<(MPI_Win, WindowId)>,
    /// Frees it. Collective. Returns an error code.
    pub(crate) free: fn(MPI_Win) -> c_int,
}

static CALLS: OnceLock<&'static WindowCalls> = OnceLock::new();

/// Has collectives make windows by these calls.
pub(in crate::mpi::collective) fn use_calls(calls: &'static WindowCalls) {
    CALLS.get_or_init(|| calls);
}

struct Kept {
    /// Key of the communicator's handle. `None`: it was freed.
    comm: Option<u64>,
    window: MPI_Win,
    id: WindowId,
    /// Its request has been freed in this process.
    idle: bool,
}

/// In the order in which they were made, which is the same in all processes of a communicator.
// SAFETY: handles and numbers.
static KEPT: Own<Vec<Kept>> = unsafe { Own::new(Vec::new()) };

/// A window that a request uses, in an epoch that is open to all processes.
pub(super) struct InUse(pub(super) WindowId);

impl Drop for InUse {
    fn drop(&mut self) {
        KEPT.with(|all| {
            all.iter_mut().filter(|kept| kept.id == self.0).for_each(|kept| kept.idle = true);
        });
    }
}

/// Makes a window with so many bytes and notification counters in this process. Collective. `None`,
/// in all processes: there is none.
pub(super) fn make(carrier: &mut Carrier, bytes: usize, counters: u32) -> Option<InUse> {
    free_idle(carrier);
    // Of our own, so that errors do not reach the handler of the application.
    let comm = OwnComm::duplicate(carrier.comm).ok()?;
    let (window, id) = (CALLS.get()?.make)(comm.0, bytes, counters)?;
    let comm = endings::watch(carrier.comm).then(|| carrier.comm.key());
    KEPT.with(|all| all.push(Kept { comm, window, id, idle: false }));
    Some(InUse(id))
}

/// Frees those of a communicator's windows that no process uses any more. Collective.
fn free_idle(carrier: &mut Carrier) {
    while free_some(carrier) {}
}

/// Most windows that processes look at together: the bits of a word.
const TOGETHER: usize = 64;

/// As [`free_idle`], of the first ones. True, in all processes: others may follow.
fn free_some(carrier: &mut Carrier) -> bool {
    let key = Some(carrier.comm.key());
    let of_comm = |kept: &&Kept| kept.comm == key;
    let add = |(at, mask), kept: &Kept| (at + 1, mask | u64::from(kept.idle) << at);
    let look = |all: &mut Vec<Kept>| all.iter().filter(of_comm).take(TOGETHER).fold((0, 0), add);
    let (number, mine) = KEPT.with(look);
    if number == 0 {
        return false;
    }
    let all = gather(carrier, [mine]);
    let everywhere = all.iter().fold(u64::MAX, |mask, [own]| mask & own);
    if carrier.failed || everywhere == 0 {
        return false;
    }
    let mut at = 0;
    let freed: Vec<Kept> = KEPT.with(|all| {
        all.extract_if(.., |kept| {
            let chosen = kept.comm == key && at < TOGETHER && everywhere >> at & 1 != 0;
            at += usize::from(kept.comm == key);
            chosen
        })
        .collect()
    });
    freed.into_iter().for_each(free);
    number == TOGETHER
}

/// The processes of a communicator are about to end it: frees those of its windows that no process
/// uses any more. Collective.
pub(in crate::mpi::collective) fn free_windows_of(comm: MPI_Comm) {
    let key = Some(comm.key());
    if KEPT.with(|all| all.iter().any(|kept| kept.comm == key)) {
        Carrier::of(comm).iter_mut().for_each(free_idle);
    }
}

/// Frees a window. Collective.
fn free(kept: Kept) {
    let Some(calls) = CALLS.get() else { return };
    let code = (calls.free)(kept.window);
    if code != MPI_SUCCESS {
        log::warn!("a window of a persistent collective was not freed: error {code}");
    }
}

/// Frees all windows of persistent collectives. Collective over the job. Call it before MPI is
/// finalized, while windows are served.
pub(crate) fn free_windows() {
    KEPT.with(std::mem::take).into_iter().for_each(free);
}

/// A communicator ends.
pub(in crate::mpi::collective) fn forget(comm: MPI_Comm) {
    let key = Some(comm.key());
    KEPT.with(|all| {
        all.iter_mut().filter(|kept| kept.comm == key).for_each(|kept| kept.comm = None);
    });
}
