//! The C interface of this library: `MPIX_*`, and `PMPIX_*` for tools that interpose the former.
//!
//! Every call takes the arguments of the blocking call, then `request`. Opening calls return a
//! request that is complete [EP-1]; closing calls and flushes return one that completes when the
//! blocking call would return. `mpix_rma.h` is the documentation for users.
// Exported by their symbols, not by their paths.
#![allow(non_snake_case, unreachable_pub)]

mod fortran;
mod notify;
mod tagged;

use std::ffi::c_int;

use crate::engine::Outcome;
use crate::mpi::abi::argument::Out;
use crate::mpi::abi::error::boundary;
use crate::mpi::abi::host::exports;
use crate::mpi::abi::sys::*;
use crate::mpi::rma::call::{
    Checked, Done, NO_REQUEST, admit, deliver, deliver_complete, require, window_calls,
};
use crate::mpi::rma::sync;
use crate::runtime::{Guard, Scope, Window};

/// A call that opens an epoch. Its request is complete.
#[inline(always)]
fn opening(
    mut guard: Guard,
    request: Out<'_, MPI_Request>,
    body: impl FnOnce(&mut Window) -> Done,
) -> Done {
    require(request, NO_REQUEST)?;
    body(guard.windows.called())?;
    drop(guard);
    deliver_complete(request)
}

/// A call that closes an epoch or flushes. With a `target`, it completes operations to it alone.
#[inline(always)]
fn closing(
    mut guard: Guard,
    request: Out<'_, MPI_Request>,
    target: Option<u32>,
    body: impl FnOnce(&mut Window) -> Checked<Outcome>,
) -> Done {
    admit(request)?;
    let window = guard.windows.called();
    let outcome = body(window)?;
    let outcome = window.poll_while_moving(outcome);
    deliver(guard, outcome, Scope::Target(target), request)
}

window_calls! { win;
    /// Opens an exposure epoch to the processes of `group`.
    MPIX_Win_ipost(group: MPI_Group, assert: c_int, win: MPI_Win; request: MPI_Request),
        |guard| opening(guard, request, |window| sync::post(window, members, assert)),
        given members = sync::members(group);
    /// Opens an access epoch to the processes of `group`.
    MPIX_Win_istart(group: MPI_Group, assert: c_int, win: MPI_Win; request: MPI_Request),
        |guard| opening(guard, request, |window| sync::start(window, members, assert)),
        given members = sync::members(group);
    /// Closes the access epoch; complete when its operations are.
    MPIX_Win_icomplete(win: MPI_Win; request: MPI_Request),
        |guard| closing(guard, request, None, sync::complete);
    /// Closes the exposure epoch; complete when every origin has completed its access.
    MPIX_Win_iwait(win: MPI_Win; request: MPI_Request),
        |guard| closing(guard, request, sync::NOWHERE, sync::wait);
    /// Closes a fence epoch and opens the next; complete when the operations before it are, and all
    /// processes have called.
    MPIX_Win_ifence(assert: c_int, win: MPI_Win; request: MPI_Request),
        |guard| closing(guard, request, None, |window| sync::fence(window, assert));
    /// Opens a lock epoch.
    MPIX_Win_ilock(
        lock_type: c_int, rank: c_int, assert: c_int, win: MPI_Win; request: MPI_Request
    ),
        |guard| opening(guard, request, |window| {
            sync::lock(window, "MPIX_Win_ilock", lock_type, rank, assert).map(|_| ())
        });
    /// Closes a lock epoch; complete when its operations are, at the target too.
    MPIX_Win_iunlock(rank: c_int, win: MPI_Win; request: MPI_Request),
        |guard| closing(guard, request, Some(rank as u32), |window| sync::unlock(window, rank));
    /// Opens a shared lock epoch to all processes.
    MPIX_Win_ilock_all(assert: c_int, win: MPI_Win; request: MPI_Request),
        |guard| opening(guard, request, |window| {
            sync::lock_all(window, "MPIX_Win_ilock_all", assert)
        });
    /// Closes the lock_all epoch; complete when its operations are, at their targets too.
    MPIX_Win_iunlock_all(win: MPI_Win; request: MPI_Request),
        |guard| closing(guard, request, None, sync::unlock_all);
    /// Complete when the operations to `rank` that were called before are, there too.
    MPIX_Win_iflush(rank: c_int, win: MPI_Win; request: MPI_Request),
        |guard| closing(guard, request, Some(rank as u32), |window| {
            sync::flush(window, rank, false)
        });
    /// Complete when the buffers of the operations to `rank` that were called before may be used
    /// again.
    MPIX_Win_iflush_local(rank: c_int, win: MPI_Win; request: MPI_Request),
        |guard| closing(guard, request, Some(rank as u32), |window| {
            sync::flush(window, rank, true)
        });
    /// Complete when all operations that were called before are, at their targets too.
    MPIX_Win_iflush_all(win: MPI_Win; request: MPI_Request),
        |guard| closing(guard, request, None, |window| sync::flush_all(window, false));
    /// Complete when the buffers of all operations that were called before may be used again.
    MPIX_Win_iflush_local_all(win: MPI_Win; request: MPI_Request),
        |guard| closing(guard, request, None, |window| sync::flush_all(window, true));
}

/// The library's version.
///
/// # Safety
/// Each argument is NULL (an error) or has room for an int.
#[inline(never)]
pub unsafe extern "C" fn MPIX_Get_version(
    major: *mut c_int,
    minor: *mut c_int,
    patch: *mut c_int,
) -> c_int {
    boundary("MPIX_Get_version", || {
        let numbers = [
            env!("CARGO_PKG_VERSION_MAJOR"),
            env!("CARGO_PKG_VERSION_MINOR"),
            env!("CARGO_PKG_VERSION_PATCH"),
        ];
        // SAFETY: the contract of this call says so of each argument.
        let [major, minor, patch] = [major, minor, patch].map(|place| unsafe { Out::new(place) });
        if major.is_null() || minor.is_null() || patch.is_null() {
            // Allowed before `MPI_Init`, so there may be no error handler to call.
            return MPI_ERR_ARG;
        }
        for (place, number) in [major, minor, patch].into_iter().zip(numbers) {
            place.write(number.parse().unwrap_or(0));
        }
        MPI_SUCCESS
    })
}

exports! {
    MPIX_Get_version(major: *mut c_int, minor: *mut c_int, patch: *mut c_int);
}
