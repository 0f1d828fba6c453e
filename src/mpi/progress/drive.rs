//! Driven calls: blocking calls of the host during which this library makes progress [PR-1].
//!
//! A host with a progress hook needs none. On the others, the job agrees at `MPI_Init` to make
//! every blocking call in its nonblocking form, and this module waits for it. Collectives must
//! always follow that agreement, because the two forms do not match each other [PR-5].
//! Point-to-point calls and waits, whose forms match, may go to the host directly when this library
//! has nothing to drive. A driven call raises its error on the same handler as the host's blocking
//! form.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::mpi::abi::host_calls;
use crate::mpi::abi::status::Status;
use crate::mpi::abi::sys::*;
use crate::mpi::progress::hook;
#[cfg(mpi_host = "mpich")]
use crate::runtime::process::multiple;
use crate::runtime::progress::{Backoff, sweep_from_hook};
#[cfg(mpi_host = "mpich")]
use crate::runtime::progress::{may_be_contacted, must_drive, oversubscribed};

/// Blocking calls are driven; all processes agree on it at `MPI_Init`.
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

/// True if a point-to-point call or a wait must be driven: this library has something to drive now,
/// or a peer may contact it; or the node is oversubscribed, since this host's own waits do not
/// yield the core [PR-4].
#[cfg(mpi_host = "mpich")]
#[inline]
pub(crate) fn must_drive_now() -> bool {
    collectives() && (oversubscribed() || may_be_contacted() || must_drive())
}

/// Calls `poll` until it gives a result, and makes all progress in between. Not with the guard
/// held.
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
        let moved = sweep_from_hook();
        if backoff.round() {
            hook::progress_host();
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

/// Waits for one request of the host.
pub(crate) fn wait_for(request: &Cell<MPI_Request>, status: Status<'_>) -> c_int {
    until(|| {
        let mut flag = 0;
        let code = host_calls::test(request, &mut flag, status);
        (code != MPI_SUCCESS || flag != 0).then_some(code)
    })
}

/// As [`wait_for`].
///
/// # Safety
/// `request` points to a request, and `status` is one or ignored; no other thread accesses them.
#[cfg(mpi_host = "mpich")]
pub(crate) unsafe fn wait(request: *mut MPI_Request, status: *mut MPI_Status) -> c_int {
    // SAFETY: the contract of this function.
    unsafe { wait_for(&*request.cast(), Status::new(status)) }
}

/// Makes a blocking receive; see [`Receive`].
#[cfg(mpi_host = "mpich")]
pub(crate) fn receive(
    comm: MPI_Comm,
    init: impl FnOnce(*mut MPI_Request) -> c_int,
    receive: impl FnOnce(*mut MPI_Request) -> c_int,
    status: Status<'_>,
) -> c_int {
    match Receive::start(comm, init, receive) {
        Ok(receive) => receive.wait(status),
        Err(code) => code,
    }
}

/// A receive in flight whose errors MPICH raises as those of a blocking receive: on its
/// communicator. MPICH does so for persistent requests, and raises the error of any other receive
/// on `MPI_COMM_WORLD`. The latter cost less, so that communicator gets them.
#[cfg(mpi_host = "mpich")]
pub(crate) struct Receive {
    request: Cell<MPI_Request>,
    is_persistent: bool,
}

#[cfg(mpi_host = "mpich")]
impl Receive {
    /// Starts it: `init` makes a persistent request, `receive` one in flight.
    ///
    /// # Errors
    /// The host's error code; the host has raised the error.
    pub(crate) fn start(
        comm: MPI_Comm,
        init: impl FnOnce(*mut MPI_Request) -> c_int,
        receive: impl FnOnce(*mut MPI_Request) -> c_int,
    ) -> Result<Self, c_int> {
        let mut request = MPI_REQUEST_NULL;
        let is_persistent = comm != MPI_COMM_WORLD;
        let code = if is_persistent { init(&raw mut request) } else { receive(&raw mut request) };
        if code != MPI_SUCCESS {
            return Err(code);
        }
        let started = Receive { request: Cell::new(request), is_persistent };
        if is_persistent {
            let code = host_calls::start(&started.request);
            if code != MPI_SUCCESS {
                return Err(code);
            }
        }
        Ok(started)
    }

    /// Waits for it.
    pub(crate) fn wait(&self, status: Status<'_>) -> c_int {
        wait_for(&self.request, status)
    }

    /// Cancels it, and waits for the cancellation or for a message that has already arrived.
    pub(crate) fn cancel(&self) {
        host_calls::cancel(&self.request);
        self.wait(Status::ignored());
    }
}

#[cfg(mpi_host = "mpich")]
impl Drop for Receive {
    fn drop(&mut self) {
        // It is inactive, or the host has failed and keeps it until it is complete.
        if self.is_persistent {
            host_calls::request_free(&self.request);
        }
    }
}

/// A communicator whose error handler is replaced while the host reports an error class that has to
/// be corrected.
#[cfg(mpi_host = "mpich")]
struct SuspendedErrhandler {
    comm: MPI_Comm,
    /// The handler, if it is a function of the application.
    handler: Option<MPI_Errhandler>,
}

#[cfg(mpi_host = "mpich")]
impl SuspendedErrhandler {
    /// # Errors
    /// The communicator is invalid; the host has raised the error.
    fn new(comm: MPI_Comm) -> Result<Self, c_int> {
        // Another thread may need the handler for its own calls on this communicator.
        if multiple() {
            return Ok(SuspendedErrhandler { comm, handler: None });
        }
        let mut handler = MPI_ERRORS_RETURN;
        let code = host_calls::comm_get_errhandler(comm, &mut handler);
        if code != MPI_SUCCESS {
            return Err(code);
        }
        if [MPI_ERRORS_RETURN, MPI_ERRORS_ARE_FATAL, MPI_ERRORS_ABORT].contains(&handler) {
            host_calls::errhandler_free(&mut handler);
            return Ok(SuspendedErrhandler { comm, handler: None });
        }
        host_calls::comm_set_errhandler(comm, MPI_ERRORS_RETURN);
        Ok(SuspendedErrhandler { comm, handler: Some(handler) })
    }

    /// Restores the handler, and raises the error on it.
    fn restore(self, code: c_int) {
        let Some(mut handler) = self.handler else { return };
        host_calls::comm_set_errhandler(self.comm, handler);
        host_calls::errhandler_free(&mut handler);
        if code != MPI_SUCCESS {
            host_calls::comm_call_errhandler(self.comm, code);
        }
    }
}

/// Makes a blocking broadcast in its nonblocking form. If a message is longer than the buffer,
/// MPICH's blocking form returns `MPI_ERR_TRUNCATE` and its nonblocking form `MPI_ERR_OTHER`; this
/// returns the former. (For a message that is too short both return `MPI_ERR_OTHER`, but the
/// nonblocking form does not distinguish the two cases.)
#[cfg(mpi_host = "mpich")]
pub(crate) fn broadcast(comm: MPI_Comm, start: impl FnOnce(*mut MPI_Request) -> c_int) -> c_int {
    let suspended = match SuspendedErrhandler::new(comm) {
        Ok(suspended) => suspended,
        Err(code) => return code,
    };
    let mut code = through(start, Status::ignored());
    let mut class = code;
    if code != MPI_SUCCESS {
        host_calls::error_class(code, &mut class);
        if class == MPI_ERR_OTHER {
            code = MPI_ERR_TRUNCATE;
        }
    }
    suspended.restore(code);
    code
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

/// As [`allgather`], by the host's blocking call: for processes that are known to be in it soon.
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
    let (from, to) = (mine.as_ptr().cast::<c_void>(), all.as_mut_ptr().cast::<c_void>());
    let count = mine.len() as c_int;
    // SAFETY: `all` has room for `mine` of every process, and the communicator is live (contract of
    // this function); both buffers outlive the call.
    unsafe {
        if collectives() {
            through(
                |request| {
                    PMPI_Iallgather(from, count, MPI_BYTE, to, count, MPI_BYTE, comm, request)
                },
                Status::ignored(),
            )
        } else {
            allgather_blocking(comm, mine, all)
        }
    }
}
