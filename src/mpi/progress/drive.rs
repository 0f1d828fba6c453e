//! Driven calls: blocking calls of the host during which this library makes progress [PR-1].
//!
//! A host with a progress hook needs none. On the others, the job agrees at `MPI_Init` to make
//! every blocking call in its nonblocking form, and this module waits for it. Collectives must
//! always follow that agreement, because the two forms do not match each other [PR-5]. The forms of
//! point-to-point calls and waits match, so those go to the host directly when this library has
//! nothing to drive. A driven call raises its error on the same handler as the host's blocking
//! form.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::mpi::abi::host_calls;
use crate::mpi::abi::status::Status;
use crate::mpi::abi::sys::*;
use crate::mpi::progress::hook;
use crate::runtime::continuations::{self, Thread, any_runnable};
use crate::runtime::pause;
use crate::runtime::progress::{
    Backoff, may_be_contacted, must_drive, oversubscribed, sweep_from_hook,
};

/// Blocking calls are driven. All processes agree on it at `MPI_Init`.
static DRIVEN: AtomicBool = AtomicBool::new(false);

/// Sets whether blocking calls are driven, as agreed.
pub(crate) fn set_driven(driven: bool) {
    DRIVEN.store(driven, Ordering::Release);
}

/// True if collectives are driven.
#[inline]
pub(crate) fn collectives() -> bool {
    DRIVEN.load(Ordering::Relaxed)
}

/// True if a point-to-point call or a wait must be driven: in a task, which it pauses, and on MPICH
/// if this library has something to drive, a peer may contact it, or the node is oversubscribed,
/// since MPICH's own waits do not yield the core [PR-4]. On every version of it while continuations
/// are pending, since most hooks cannot run them.
#[inline]
pub(crate) fn must_drive_now() -> bool {
    cfg!(mpi_host = "mpich")
        && (collectives() && (oversubscribed() || may_be_contacted() || must_drive())
            || continuations::pending() != 0)
        || pause::in_task()
}

/// True if no call of this process is driven: on Open MPI, unless tasks are paused. Calls ask this
/// before anything else.
#[inline(always)]
pub(crate) fn drives_nothing() -> bool {
    cfg!(mpi_host = "openmpi") && !collectives() && !pause::is_enabled()
}

/// Calls `poll` until it gives a result. In between, makes progress for this library and the host.
/// The caller must not hold the guard.
pub(crate) fn until<T>(mut poll: impl FnMut() -> Option<T>) -> T {
    // The host's test calls run the poll function of each of our requests; this loop sweeps once
    // for all of them.
    let looping = Looping(hook::set_looping(true));
    let mut backoff = Backoff::new();
    loop {
        if let Some(result) = poll() {
            drop(looping);
            return result;
        }
        let mut moved = sweep_from_hook();
        let round = backoff.round();
        if round {
            hook::progress_host();
        }
        if round || any_runnable() {
            moved |= continuations::run(Thread::Application);
        }
        if !moved {
            backoff.pause();
        }
    }
}

/// Restores the flag, even if the poll panics.
struct Looping(bool);

impl Drop for Looping {
    fn drop(&mut self) {
        hook::set_looping(self.0);
    }
}

/// Repeats a `test` of the host until it sets its flag or fails, and returns its code.
pub(crate) fn until_flag(mut test: impl FnMut(&mut c_int) -> c_int) -> c_int {
    until(|| {
        let mut flag = 0;
        let code = test(&mut flag);
        (code != MPI_SUCCESS || flag != 0).then_some(code)
    })
}

/// Waits for a request of the host by pausing the task. `None`: this thread runs none.
type Pauser = fn(&Cell<MPI_Request>, Status<'_>) -> Option<c_int>;

static PAUSER: OnceLock<Pauser> = OnceLock::new();

/// Sets how tasks are paused.
pub(crate) fn pause_with(pauser: Pauser) {
    // It is the same one each time.
    let _ = PAUSER.set(pauser);
}

/// Waits for one request of the host.
pub(crate) fn wait_for(request: &Cell<MPI_Request>, status: Status<'_>) -> c_int {
    if pause::in_task()
        && let Some(pauser) = PAUSER.get()
        && let Some(code) = pauser(request, status)
    {
        return code;
    }
    until_flag(|flag| host_calls::test(request, flag, status))
}

/// Makes a blocking call in its nonblocking form: `start` makes the request.
pub(crate) fn through(start: impl FnOnce(*mut MPI_Request) -> c_int, status: Status<'_>) -> c_int {
    let request = Cell::new(MPI_REQUEST_NULL);
    let code = start(request.as_ptr());
    if code != MPI_SUCCESS { code } else { wait_for(&request, status) }
}

/// A driven barrier before a collective call without a nonblocking form: when it returns, every
/// process has entered the call, so the host blocks only for its own work.
///
/// `comm` may be `MPI_COMM_NULL`, or an invalid handle, which the host reports.
///
/// # Errors
/// The host's error code; the host has raised the error, so the call that was to follow must not
/// raise it again.
pub(crate) fn assemble(comm: MPI_Comm) -> Result<(), c_int> {
    if !collectives() || comm == MPI_COMM_NULL {
        return Ok(());
    }
    let code = barrier(comm);
    if code == MPI_SUCCESS { Ok(()) } else { Err(code) }
}

/// A driven barrier.
pub(crate) fn barrier(comm: MPI_Comm) -> c_int {
    let request = Cell::new(MPI_REQUEST_NULL);
    let code = host_calls::ibarrier(comm, &request);
    if code != MPI_SUCCESS { code } else { wait_for(&request, Status::ignored()) }
}

/// As [`allgather`], by the host's blocking call, for processes that are known to enter it soon.
///
/// # Safety
/// As [`allgather`].
pub(crate) unsafe fn allgather_blocking(comm: MPI_Comm, mine: &[u8], all: &mut [u8]) -> c_int {
    let (from, to) = (mine.as_ptr().cast::<c_void>(), all.as_mut_ptr().cast::<c_void>());
    let count = mine.len() as c_int;
    // SAFETY: `all` has room for `mine` of every process, and the communicator is live (contract of
    // this function); both buffers outlive the call.
    unsafe { PMPI_Allgather(from, count, MPI_BYTE, to, count, MPI_BYTE, comm) }
}

/// Gathers `mine` of every process into `all`.
///
/// # Safety
/// `comm` is a live communicator, and `all` has room for `mine` of each of its processes.
pub(crate) unsafe fn allgather(comm: MPI_Comm, mine: &[u8], all: &mut [u8]) -> c_int {
    if !collectives() {
        // SAFETY: the contract of this function.
        return unsafe { allgather_blocking(comm, mine, all) };
    }
    let (from, to) = (mine.as_ptr().cast::<c_void>(), all.as_mut_ptr().cast::<c_void>());
    let count = mine.len() as c_int;
    // SAFETY: `all` has room for `mine` of every process, and the communicator is live (contract of
    // this function); `through` waits for the request, so both buffers outlive it.
    let start = |request| unsafe {
        PMPI_Iallgather(from, count, MPI_BYTE, to, count, MPI_BYTE, comm, request)
    };
    through(start, Status::ignored())
}
