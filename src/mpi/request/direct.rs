//! Waits for generalized requests of ours that do without the host.
//!
//! What such a request stands for is known here, so a call for one alone, or for a list of nothing
//! else, waits as a blocking call would, and a look at counters costs what it costs there. The host
//! is told nothing: [`request`](crate::mpi::request) keeps what it takes for pending. A request that
//! fails is told to the host after all, which then says so in its own way, and all other calls go
//! to the host at once.

use std::cell::Cell;
use std::ffi::c_int;

use crate::engine::RequestId;
use crate::mpi::abi::argument::Out;
use crate::mpi::abi::status::{Status, Statuses};
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

/// Waits for a request. False if the host has to say what has become of it.
fn wait_at(request: &Cell<MPI_Request>) -> bool {
    let guard = enter();
    let Some(awaited) = Awaited::of(request.get()) else { return false };
    drop(wait_for_request(guard, awaited.window, |window| awaited.look(window, LOOKS)));
    take(awaited, request)
}

/// Takes a request that has ended from the application. False as in [`wait_at`].
fn take(awaited: Awaited, request: &Cell<MPI_Request>) -> bool {
    let taken = request::put_by(awaited.number);
    if taken {
        request.set(MPI_REQUEST_NULL);
    }
    taken
}

/// `MPI_Wait`. `None`: the host's call is to be made; as of all calls here.
pub(crate) fn wait(request: Option<&Cell<MPI_Request>>, status: Status<'_>) -> Option<c_int> {
    if !wait_at(request?) {
        return None;
    }
    status.fill_empty();
    Some(MPI_SUCCESS)
}

/// `MPI_Test`
pub(crate) fn test(
    request: Option<&Cell<MPI_Request>>,
    flag: Out<'_, c_int>,
    status: Status<'_>,
) -> Option<c_int> {
    let request = request.filter(|_| !flag.is_null())?;
    let mut guard = enter();
    let awaited = Awaited::of(request.get())?;
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
    if ended && !take(awaited, request) {
        return None;
    }
    flag.write(c_int::from(ended));
    if ended {
        status.fill_empty();
    }
    Some(MPI_SUCCESS)
}

/// `MPI_Waitall`, of a list in which nothing is the host's. A request that fails is left for the
/// host's call.
pub(crate) fn wait_all(
    requests: Option<&[Cell<MPI_Request>]>,
    statuses: Statuses<'_>,
) -> Option<c_int> {
    let list = requests.filter(|list| !list.is_empty())?;
    let is_null = |request: &Cell<MPI_Request>| request.get() == MPI_REQUEST_NULL;
    let guard = enter();
    if !list.iter().all(|request| is_null(request) || request::source(request.get()).is_some()) {
        return None;
    }
    drop(guard);
    for request in list.iter().filter(|request| !is_null(request)) {
        wait_at(request);
    }
    if !list.iter().all(is_null) {
        return None;
    }
    statuses.first(list.len()).for_each(Status::fill_empty);
    Some(MPI_SUCCESS)
}
