//! What all calls on a window have in common: finding the window, errors, waiting, requests.

use std::ffi::c_int;

use crate::engine::{Outcome, RequestId};
use crate::mpi::abi::argument::Out;
use crate::mpi::abi::error::{Fault, Place, boundary, raise};
use crate::mpi::abi::sys::*;
use crate::mpi::request;
use crate::runtime::progress::{step, sweep, sweep_between_calls, wait_until};
use crate::runtime::registry::is_left_to_host;
use crate::runtime::{Guard, HandleState, HostHandle, Scope, Window, WindowId, enter};

/// What a call on a window of ours comes to.
pub(crate) type Done = Result<(), Fault>;

/// Runs `body` if the window is ours; calls the host's function otherwise.
///
/// `body` gets the guard, entered for this window: `guard.windows.called()` is the window. Where it
/// gives the guard up to wait, it goes on by the window's number.
#[inline(always)]
pub(crate) fn on_window(
    call: &'static str,
    window: MPI_Win,
    body: impl FnOnce(Guard) -> Done,
    host: impl FnOnce() -> c_int,
) -> c_int {
    if is_left_to_host(HostHandle(window.key())) {
        return host();
    }
    boundary(call, || {
        let mut guard = enter();
        if guard.windows.call(HostHandle(window.key())) {
            return end(call, window, body(guard));
        }
        let state = guard.windows.state(HostHandle(window.key()));
        drop(guard);
        if state == Some(HandleState::Freed) { not_a_window(call) } else { host() }
    })
}

/// Runs `body` if the window is ours; a window that is left to the host has no such call.
#[inline(always)]
pub(crate) fn on_our_window(
    call: &'static str,
    window: MPI_Win,
    body: impl FnOnce(Guard) -> Done,
) -> c_int {
    boundary(call, || {
        let mut guard = enter();
        if guard.windows.call(HostHandle(window.key())) {
            return end(call, window, body(guard));
        }
        let state = guard.windows.state(HostHandle(window.key()));
        drop(guard);
        left_to_host(call, window, state)
    })
}

#[inline(always)]
fn end(call: &'static str, window: MPI_Win, done: Done) -> c_int {
    match done {
        Ok(()) => MPI_SUCCESS,
        Err(fault) => raise(call, Place::Window(window), fault),
    }
}

#[cold]
#[inline(never)]
fn left_to_host(call: &'static str, window: MPI_Win, state: Option<HandleState>) -> c_int {
    if state != Some(HandleState::Host) {
        return not_a_window(call);
    }
    let text = "the window is left to the host MPI library (see MPIX_RMA_LOG=info for the reason)";
    raise(call, Place::Window(window), Fault::new(MPI_ERR_UNSUPPORTED_OPERATION, text))
}

#[cold]
#[inline(never)]
fn not_a_window(call: &'static str) -> c_int {
    raise(call, Place::World, Fault::new(MPI_ERR_WIN, "win is not a window, or has been freed"))
}

/// Runs `body`, which closes an epoch or flushes, and waits until its outcome is complete. Fails if
/// an operation to `target`, or to any process if there is none, was not done.
#[inline(always)]
pub(crate) fn block(
    mut guard: Guard,
    target: Option<u32>,
    body: impl FnOnce(&mut Window) -> Result<Outcome, Fault>,
) -> Done {
    let window = guard.windows.called();
    if let Outcome::Pending(request) = body(window)? {
        let id = guard.windows.called_id();
        return wait_for(guard, id, request, target);
    }
    check_reach(window, target)?;
    if window.count_call() {
        sweep_between_calls(&mut guard);
    }
    Ok(())
}

/// Waits until a request of the engine is complete, as [`block`].
#[inline(never)]
fn wait_for(guard: Guard, id: WindowId, request: RequestId, target: Option<u32>) -> Done {
    let mut guard = wait_unless_broken(guard, id, |window| !window.engine.is_pending(request))?;
    check_reach(&mut guard[id], target)
}

/// Waits until `done`, or until the window is broken and that may never be.
#[inline(always)]
pub(crate) fn wait_unless_broken(
    guard: Guard,
    id: WindowId,
    mut done: impl FnMut(&mut Window) -> bool,
) -> Result<Guard, Fault> {
    let mut broken = None;
    let guard = wait_until(guard, id, |window| {
        let done = done(window);
        if !done && window.port.is_broken() {
            broken = Some(broken_off(window));
        }
        done || broken.is_some()
    });
    if let Some(broken) = broken {
        drop(guard);
        return Err(broken);
    }
    Ok(guard)
}

/// What waits in a window that is broken ends with this.
#[cold]
fn broken_off(window: &Window) -> Fault {
    Fault::broken(window.port.lost().map(|(_, why)| why))
}

/// Ends a test that has found nothing: drives everything, since a program may do nothing else
/// [PR-1]. If the window is broken there may never be anything to find, and a loop of tests ends as
/// a wait would.
pub(crate) fn nothing_yet(mut guard: Guard) -> Done {
    let window = guard.windows.called();
    if window.port.is_broken() {
        return Err(broken_off(window));
    }
    window.tested_in_vain();
    step(guard);
    Ok(())
}

/// Fails if an operation reached memory that its target has not attached. The first call that
/// completes such an operation reports it (MPI-4.1 12.2.4).
#[inline(always)]
fn check_reach(window: &mut Window, target: Option<u32>) -> Done {
    match window.port.take_fault(target) {
        None => Ok(()),
        Some(_) => Err(Fault::unattached()),
    }
}

/// Refuses a call that may make a pending request if `request` is NULL or too many are alive
/// [RQ-3], before anything happens.
#[inline(always)]
pub(crate) fn admit(request: Out<'_, MPI_Request>) -> Done {
    require(request)?;
    request::admit()
}

/// Refuses a call whose argument `request` is NULL.
#[inline(always)]
pub(crate) fn require(request: Out<'_, MPI_Request>) -> Done {
    if request.is_null() {
        return Err(Fault::new(MPI_ERR_ARG, "request is NULL"));
    }
    Ok(())
}

/// Gives the application a request for the outcome.
#[inline(always)]
pub(crate) fn deliver(
    mut guard: Guard,
    outcome: Outcome,
    scope: Scope,
    request: Out<'_, MPI_Request>,
) -> Done {
    if let Outcome::Pending(pending) = outcome {
        return deliver_pending(guard, pending, scope, request);
    }
    let window = guard.windows.called();
    if let Scope::Target(target) = scope {
        check_reach(window, target)?;
    }
    if window.count_call() {
        sweep_between_calls(&mut guard);
    }
    drop(guard);
    deliver_complete(request)
}

/// Gives the application a request that is complete.
#[inline(always)]
pub(crate) fn deliver_complete(request: Out<'_, MPI_Request>) -> Done {
    if request::completed(request) != MPI_SUCCESS {
        return Err(Fault::new(MPI_ERR_INTERN, "the host could not make a request"));
    }
    Ok(())
}

#[inline(never)]
fn deliver_pending(
    mut guard: Guard,
    pending: RequestId,
    scope: Scope,
    request: Out<'_, MPI_Request>,
) -> Done {
    let (host, id) = (guard.host, guard.windows.called_id());
    let window = guard.windows.called();
    if window.completes_soon(pending, &host) {
        match scope {
            Scope::Operation if window.has_failed(pending) => return Err(Fault::unattached()),
            Scope::Operation => {}
            Scope::Target(target) => check_reach(window, target)?,
        }
        drop(guard);
        return deliver_complete(request);
    }
    match request::pending(request) {
        Ok(number) => {
            window.bind(pending, number, scope);
            request::bind(number, id, pending);
            // A call of ours drives everything [PR-1].
            sweep(&mut guard);
            Ok(())
        }
        Err(status) => {
            // The epoch is closed and cannot be opened again: the call becomes the blocking one.
            log::warn!(
                "the host could not make a generalized request (error {status}); waiting instead"
            );
            let target = if let Scope::Target(target) = scope { target } else { None };
            wait_for(guard, id, pending, target)?;
            deliver_complete(request)
        }
    }
}
