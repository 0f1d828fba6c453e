//! Waits for generalized requests of ours that do without the host.
//!
//! What such a request stands for is known here, so a call for one alone, or for a list of nothing
//! else, waits as a blocking call would, and a look at counters costs what it costs there. The host
//! is told nothing: [`request`](crate::mpi::request) keeps what it takes for pending. A request that
//! fails is told to the host after all, which then says so in its own way, and all other calls go
//! to the host at once.

use std::ffi::c_int;

use crate::engine::RequestId;
use crate::mpi::abi::status;
use crate::mpi::abi::sys::*;
use crate::mpi::request;
use crate::runtime::progress::{step, wait_until};
use crate::runtime::{Guard, HostRequest, Window, WindowId, enter};

/// Looks at counters between two looks at everything, as blocking calls have.
const LOOKS: u32 = 64;

/// A request of ours that has not ended.
#[derive(Clone, Copy)]
struct Awaited {
    number: HostRequest,
    window: WindowId,
    id: RequestId,
}

impl Awaited {
    /// `None`: it is not one of ours, or has ended, as the host knows.
    fn of(request: MPI_Request) -> Option<Self> {
        let (number, window, id) = request::source(request)?;
        request::set_awaited(number, true);
        Some(Self { number, window, id })
    }

    /// Looks at what is waited for. True if that has ended.
    fn look(self, window: &mut Window, looks: u32) -> bool {
        if window.take_awaited(self.id, looks) {
            request::end(self.number);
            return true;
        }
        (window.port.is_broken() || !window.engine.is_pending(self.id))
            && request::has_ended(self.number)
    }
}

/// Waits for a request of `window`. `MPI_Win_free` may come meanwhile, since a request outlives its
/// window: it completes the request and lets this call leave before the window goes. So `done` must
/// look at nothing else that ends with the window.
pub(crate) fn wait_for_request(
    mut guard: Guard,
    id: WindowId,
    mut done: impl FnMut(&mut Window) -> bool,
) -> Guard {
    // Most often it has ended already, and the guard is not given up.
    if done(&mut guard[id]) {
        return guard;
    }
    guard[id].request_waits += 1;
    let mut guard = wait_until(guard, id, done);
    guard[id].request_waits -= 1;
    guard
}

/// Waits for a request at its place. False if the host has to say what has become of it.
///
/// # Safety
/// `request` is a place with a request.
unsafe fn wait_at(request: *mut MPI_Request) -> bool {
    let guard = enter();
    // SAFETY: the caller's promise.
    let Some(awaited) = Awaited::of(unsafe { *request }) else { return false };
    drop(wait_for_request(guard, awaited.window, |window| awaited.look(window, LOOKS)));
    // SAFETY: as above.
    unsafe { take(awaited, request) }
}

/// Takes a request that has ended from the application. False as in [`wait_at`].
///
/// # Safety
/// As [`wait_at`].
unsafe fn take(awaited: Awaited, request: *mut MPI_Request) -> bool {
    let taken = request::put_by(awaited.number);
    if taken {
        // SAFETY: the caller's promise.
        unsafe { request.write(MPI_REQUEST_NULL) };
    }
    taken
}

/// `MPI_Wait`. `None`: the host's call is to be made.
///
/// # Safety
/// As MPI says of the call, as of all others here.
pub(crate) unsafe fn wait(request: *mut MPI_Request, status: *mut MPI_Status) -> Option<c_int> {
    // SAFETY: the application's arguments.
    unsafe {
        if request.is_null() || !wait_at(request) {
            return None;
        }
        status::fill_empty(status);
    }
    Some(MPI_SUCCESS)
}

/// `MPI_Test`
///
/// # Safety
/// As [`wait`].
pub(crate) unsafe fn test(
    request: *mut MPI_Request,
    flag: *mut c_int,
    status: *mut MPI_Status,
) -> Option<c_int> {
    if request.is_null() || flag.is_null() {
        return None;
    }
    let mut guard = enter();
    // SAFETY: the application's arguments.
    let awaited = Awaited::of(unsafe { *request })?;
    let mut ended = awaited.look(&mut guard[awaited.window], 1);
    if ended {
        drop(guard);
    } else {
        step(guard);
        let _guard = enter();
        ended = request::has_ended(awaited.number);
        if !ended {
            request::set_awaited(awaited.number, false);
        }
    }
    // SAFETY: as above.
    unsafe {
        if ended && !take(awaited, request) {
            return None;
        }
        flag.write(c_int::from(ended));
        if ended {
            status::fill_empty(status);
        }
    }
    Some(MPI_SUCCESS)
}

/// `MPI_Waitall`, of a list in which nothing is the host's. What fails is left for the host's call.
///
/// # Safety
/// As [`wait`].
pub(crate) unsafe fn wait_all(
    count: c_int,
    requests: *mut MPI_Request,
    statuses: *mut MPI_Status,
) -> Option<c_int> {
    let len = usize::try_from(count).ok().filter(|len| *len > 0 && !requests.is_null())?;
    // SAFETY: the application's arguments.
    let list = unsafe { std::slice::from_raw_parts_mut(requests, len) };
    let guard = enter();
    let ours =
        |request: &MPI_Request| *request == MPI_REQUEST_NULL || request::source(*request).is_some();
    if !list.iter().all(ours) {
        return None;
    }
    drop(guard);
    for request in list.iter_mut().filter(|request| **request != MPI_REQUEST_NULL) {
        // SAFETY: a place of the list.
        unsafe { wait_at(request) };
    }
    if list.iter().any(|request| *request != MPI_REQUEST_NULL) {
        return None;
    }
    if statuses != MPI_STATUSES_IGNORE {
        // SAFETY: the application gives a status for each request.
        (0..len).for_each(|at| unsafe { status::fill_empty(statuses.add(at)) });
    }
    Some(MPI_SUCCESS)
}
