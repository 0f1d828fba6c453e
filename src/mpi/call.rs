//! What all calls on a window have in common: finding the window, errors, waiting, requests.

use std::ffi::c_int;
use std::ptr::NonNull;

use super::error::{Fault, Place, boundary, raise};
use super::request;
use super::sys::*;
use crate::engine::Outcome;
use crate::runtime::progress::{step, sweep, wait_until};
use crate::runtime::window::is_left_to_host;
use crate::runtime::{Entry, Guard, HostHandle, Scope, Window, enter};

/// What a call on a window of ours comes to.
pub(crate) type Done = Result<(), Fault>;

/// Runs `body` if the window is ours; passes on to the host's function otherwise.
///
/// `body` gets the guard and gives it up where it waits; the window is valid while the guard is
/// held, or while it waits.
#[inline(always)]
pub(crate) fn on_window(
    call: &'static str,
    window: MPI_Win,
    body: impl FnOnce(Guard, NonNull<Window>) -> Done,
    host: impl FnOnce() -> c_int,
) -> c_int {
    if is_left_to_host(HostHandle(window.key())) {
        return host();
    }
    boundary(call, || {
        let mut guard = enter();
        match guard.windows.ours(HostHandle(window.key())) {
            Some(ours) => match body(guard, ours) {
                Ok(()) => MPI_SUCCESS,
                Err(fault) => raise(call, Place::Window(window), fault),
            },
            None => {
                let entry = guard.windows.entry(HostHandle(window.key()));
                drop(guard);
                if entry == Some(Entry::Freed) { not_a_window(call) } else { host() }
            }
        }
    })
}

/// Runs `body` if the window is ours; a window that is left to the host has no such call.
#[inline(always)]
pub(crate) fn on_our_window(
    call: &'static str,
    window: MPI_Win,
    body: impl FnOnce(Guard, NonNull<Window>) -> Done,
) -> c_int {
    boundary(call, || {
        let mut guard = enter();
        match guard.windows.ours(HostHandle(window.key())) {
            Some(ours) => match body(guard, ours) {
                Ok(()) => MPI_SUCCESS,
                Err(fault) => raise(call, Place::Window(window), fault),
            },
            None => {
                let entry = guard.windows.entry(HostHandle(window.key()));
                drop(guard);
                left_to_host(call, window, entry)
            }
        }
    })
}

#[cold]
#[inline(never)]
fn left_to_host(call: &'static str, window: MPI_Win, entry: Option<Entry>) -> c_int {
    if entry != Some(Entry::Host) {
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

/// Calls on a window that did not wait between two sweeps over the rest of the process: a program
/// may do nothing else for long [PR-1].
pub(super) const CALLS_PER_SWEEP: u32 = 64;

/// Ends a call that did not wait: one that communicates, or one that closes an epoch and finds it
/// complete. A process that looks at its own memory under its own lock until a peer has changed it
/// makes no other calls.
#[inline(always)]
pub(crate) fn count_call(guard: &mut Guard, mut window: NonNull<Window>) {
    // SAFETY: found under this guard, and no other reference to it is alive.
    let ours = unsafe { window.as_mut() };
    ours.calls = ours.calls.wrapping_add(1);
    if ours.calls.is_multiple_of(CALLS_PER_SWEEP) {
        sweep(guard);
    }
}

/// Waits until the outcome is complete, and tells whether all that it stands for is done: at
/// `target`, or everywhere.
#[inline(always)]
pub(crate) fn block(
    mut guard: Guard,
    mut window: NonNull<Window>,
    outcome: Outcome,
    target: Option<u32>,
) -> Result<Guard, Fault> {
    let guard = match outcome {
        Outcome::Complete => {
            count_call(&mut guard, window);
            guard
        }
        Outcome::Pending(id) => {
            wait_unless_broken(guard, window, |window| !window.engine.is_pending(id))?
        }
    };
    // SAFETY: found under this guard or kept by waiting, and no other reference to it is alive.
    check_reach(unsafe { window.as_mut() }, target)?;
    Ok(guard)
}

/// Waits until `done`, or until the window is broken and that may never be.
#[inline(always)]
pub(crate) fn wait_unless_broken(
    guard: Guard,
    window: NonNull<Window>,
    mut done: impl FnMut(&mut Window) -> bool,
) -> Result<Guard, Fault> {
    let mut broken = None;
    let guard = wait_until(guard, window, |window| {
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
pub(crate) fn nothing_yet(guard: Guard, mut window: NonNull<Window>) -> Done {
    // SAFETY: found under this guard, and no other reference to it is alive.
    let ours = unsafe { window.as_mut() };
    if ours.port.is_broken() {
        return Err(broken_off(ours));
    }
    ours.tested_in_vain();
    step(guard);
    Ok(())
}

/// Operations on memory that was not attached are told by the first call that completes them
/// (MPI-4.1 12.2.4).
#[inline(always)]
fn check_reach(window: &mut Window, target: Option<u32>) -> Done {
    match window.port.take_fault(target) {
        None => Ok(()),
        Some(_) => Err(Fault::unattached()),
    }
}

/// The place for a request must be there before anything happens, and so must room for it [RQ-3].
#[inline(always)]
pub(crate) fn admit(request: *mut MPI_Request) -> Done {
    place_for(request)?;
    request::admit()
}

/// The place for a request must be there.
#[inline(always)]
pub(crate) fn place_for(request: *mut MPI_Request) -> Done {
    if request.is_null() {
        return Err(Fault::new(MPI_ERR_ARG, "request is NULL"));
    }
    Ok(())
}

/// Gives the caller a request for the outcome.
///
/// # Safety
/// `request` passed [`place_for`] and is the caller's to write; `window` was found under this
/// guard.
#[inline(always)]
pub(crate) unsafe fn deliver(
    mut guard: Guard,
    mut window: NonNull<Window>,
    outcome: Outcome,
    scope: Scope,
    request: *mut MPI_Request,
) -> Done {
    if let Outcome::Pending(_) = outcome {
        // SAFETY: as the caller says.
        return unsafe { deliver_pending(guard, window, outcome, scope, request) };
    }
    if let Scope::Target(target) = scope {
        // SAFETY: the window was found under this guard.
        check_reach(unsafe { window.as_mut() }, target)?;
    }
    count_call(&mut guard, window);
    drop(guard);
    // SAFETY: as the caller says.
    unsafe { deliver_complete(request) }
}

/// Gives the caller a request that is complete.
///
/// # Safety
/// As [`deliver`].
#[inline(always)]
pub(crate) unsafe fn deliver_complete(request: *mut MPI_Request) -> Done {
    // SAFETY: as the caller says.
    if unsafe { request::completed(request) } != MPI_SUCCESS {
        return Err(Fault::new(MPI_ERR_INTERN, "the host could not make a request"));
    }
    Ok(())
}

/// # Safety
/// As [`deliver`].
#[inline(never)]
unsafe fn deliver_pending(
    mut guard: Guard,
    mut window: NonNull<Window>,
    outcome: Outcome,
    scope: Scope,
    request: *mut MPI_Request,
) -> Done {
    let Outcome::Pending(id) = outcome else { return Ok(()) };
    // SAFETY: the window was found under this guard.
    let ours = unsafe { window.as_mut() };
    if ours.completes_soon(id, &guard.host) {
        match scope {
            Scope::Operation if ours.has_failed(id) => return Err(Fault::unattached()),
            Scope::Operation => {}
            Scope::Target(target) => check_reach(ours, target)?,
        }
        drop(guard);
        // SAFETY: as the caller says.
        return unsafe { deliver_complete(request) };
    }
    // SAFETY: as the caller says.
    match unsafe { request::pending(request) } {
        Ok(pending) => {
            // SAFETY: the window was found under this guard.
            unsafe { window.as_mut() }.bind(id, pending, scope);
            request::bind(pending, window, id);
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
            drop(block(guard, window, outcome, target)?);
            // SAFETY: as the caller says.
            unsafe { deliver_complete(request) }
        }
    }
}
