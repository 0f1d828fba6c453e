//! Requests of persistent epochs and operations [PE-2].

use std::ffi::c_int;

use super::{fill, finish_one};
use crate::engine::slab::Key;
use crate::mpi::abi::argument::Out;
use crate::mpi::abi::host_calls;
use crate::mpi::abi::status::Status;
use crate::mpi::abi::sys::*;
use crate::mpi::request;
use crate::mpi::request::direct::wait_for_request;
use crate::runtime::persistent::{NotStarted, State};
use crate::runtime::progress::{oversubscribed, sweep, sweep_between_calls};
use crate::runtime::recorded::Kept;
use crate::runtime::{Guard, WindowId};

/// Makes a request for a persistent epoch or operation. `None`: the host could not make its token.
pub(crate) fn make(
    guard: &mut Guard,
    window: WindowId,
    kept: Kept,
    request: Out<'_, MPI_Request>,
) -> Option<Key> {
    let mut made = MPI_REQUEST_NULL;
    if host_calls::null_recv_init(request::comm_in_use(), &mut made) != MPI_SUCCESS {
        return None;
    }
    let (handle, lane) = (guard[window].handle, guard[window].lane());
    let key = guard.persistent.insert_recorded(made.key(), (handle, window, lane), kept);
    request.write(made);
    Some(key)
}

/// Waits until a persistent epoch or operation is complete or has failed. The window is then
/// freed only after this call has left it, as of other requests.
pub(super) fn wait_for(mut guard: Guard, window: WindowId, key: Key) -> Guard {
    loop {
        let runtime = &mut *guard;
        let Some(recorded) = runtime.persistent.recorded(key) else { return guard };
        let found = &mut runtime.windows[window];
        if recorded.state(found) != State::Active {
            return guard;
        }
        let Some(pending) = recorded.first_pending() else { return guard };
        if !oversubscribed() {
            found.poll_words(pending);
        }
        guard = wait_for_request(guard, window, |window| {
            window.port.is_broken() || !window.engine.is_pending(pending)
        });
    }
}

/// `MPI_Wait` for a persistent epoch or operation.
pub(super) fn wait(
    mut guard: Guard,
    (window, key): (WindowId, Key),
    request: MPI_Request,
    status: Status<'_>,
) -> Option<c_int> {
    // Often complete since it was started.
    if !guard.persistent.recorded(key)?.take_complete() {
        guard = wait_for(guard, window, key);
        let Some(recorded) = guard.persistent.recorded(key) else {
            // Its window, or the request, was freed meanwhile.
            drop(guard);
            return Some(finish_one("MPI_Wait", request, status));
        };
        if recorded.is_inactive() {
            return None;
        }
        if !recorded.take_complete() {
            drop(guard);
            return Some(finish_one("MPI_Wait", request, status));
        }
    }
    drop(guard);
    fill(status, None);
    Some(MPI_SUCCESS)
}

/// Starts a persistent epoch or operation.
#[inline]
pub(super) fn start(mut guard: Guard, (window, key): (WindowId, Key)) -> Result<(), NotStarted> {
    let runtime = &mut *guard;
    let Some(recorded) = runtime.persistent.recorded(key) else { return Ok(()) };
    let found = runtime.windows.on_lane(window, recorded.lane);
    recorded.may_start(found)?;
    let waits = recorded.start(found)?;
    if !found.is_attended() {
        // So that calls of the host drive the window.
        runtime.windows.attend(window);
    }
    // A call of ours drives everything [PR-1].
    if waits {
        sweep(runtime);
    } else if runtime.windows.count_call() {
        sweep_between_calls(runtime);
    }
    Ok(())
}
