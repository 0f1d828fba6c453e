//! What all calls on a window have in common: finding the window, errors, waiting, requests.

use std::ffi::c_int;
use std::ptr::NonNull;

use super::error::{Fault, Place, boundary, raise};
use super::request;
use super::sys::*;
use crate::engine::Outcome;
use crate::runtime::progress::{sweep, wait_until};
use crate::runtime::window::is_left_to_host;
use crate::runtime::{Entry, Guard, HostHandle, Window, enter};

/// What a call on a window of ours comes to.
pub(crate) type Done = Result<(), Fault>;

/// Runs `body` if the window is ours; passes on to the host's function otherwise.
///
/// `body` gets the guard and gives it up where it waits; the window is valid while the guard is held, or while it waits.
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
pub(crate) fn on_our_window(call: &'static str, window: MPI_Win, body: impl FnOnce(Guard, NonNull<Window>) -> Done) -> c_int {
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

/// Waits until the outcome is complete.
#[inline(always)]
pub(crate) fn block(guard: Guard, window: NonNull<Window>, outcome: Outcome) -> Result<Guard, Fault> {
    let Outcome::Pending(id) = outcome else { return Ok(guard) };
    let mut broken = false;
    let guard = wait_until(guard, window, |window| {
        let pending = window.engine.is_pending(id);
        broken = pending && window.port.is_broken();
        !pending || broken
    });
    if broken {
        return Err(Fault::new(MPI_ERR_INTERN, "a malformed message was refused; standard error names the peer"));
    }
    Ok(guard)
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
/// `request` passed [`place_for`] and is the caller's to write; `window` was found under this guard.
#[inline(always)]
pub(crate) unsafe fn deliver(guard: Guard, window: NonNull<Window>, outcome: Outcome, request: *mut MPI_Request) -> Done {
    if outcome == Outcome::Complete {
        drop(guard);
        // SAFETY: as the caller says.
        return unsafe { deliver_complete(request) };
    }
    // SAFETY: as the caller says.
    unsafe { deliver_pending(guard, window, outcome, request) };
    Ok(())
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
unsafe fn deliver_pending(mut guard: Guard, mut window: NonNull<Window>, outcome: Outcome, request: *mut MPI_Request) {
    let Outcome::Pending(id) = outcome else { return };
    // SAFETY: the window was found under this guard.
    if unsafe { window.as_mut() }.completes_soon(id, &guard.host) {
        drop(guard);
        // SAFETY: as the caller says.
        let _ = unsafe { deliver_complete(request) };
        return;
    }
    // SAFETY: as the caller says.
    match unsafe { request::pending(request) } {
        Ok(pending) => {
            // SAFETY: the window was found under this guard.
            unsafe { window.as_mut() }.bind(id, pending);
            // A call of ours drives everything [PR-1].
            sweep(&mut guard);
        }
        Err(status) => {
            // The epoch is closed and cannot be opened again: the call becomes the blocking one.
            log::warn!("the host could not make a generalized request (error {status}); waiting instead");
            drop(block(guard, window, outcome).map_err(|fault| log::error!("{}", fault.text)));
            // SAFETY: as the caller says.
            let _ = unsafe { deliver_complete(request) };
        }
    }
}
