//! `MPI_Win_set_info` and `MPI_Win_get_info`.
//!
//! The host's window behind the handle keeps the keys that this library does not know.

use std::ffi::c_int;

use super::duplicate;
use super::free::any_objection;
use crate::mpi::abi::argument::Out;
use crate::mpi::abi::error::Fault;
use crate::mpi::abi::host::exports;
use crate::mpi::abi::host_calls;
use crate::mpi::abi::sys::*;
use crate::mpi::info::{self, ForHost};
use crate::mpi::rma::call::{Checked, Done, broken, on_window, window_calls};
use crate::mpi::rma::record;
use crate::runtime::progress::wait_until;
use crate::runtime::{Guard, WindowId};

/// Changes the hints of a window. Collective; local on a duplicate.
///
/// # Safety
/// As MPI says of the call.
#[inline(never)]
pub unsafe extern "C" fn MPI_Win_set_info(win: MPI_Win, info: MPI_Info) -> c_int {
    // An error of the host, which has called the error handler itself.
    let mut refused = MPI_SUCCESS;
    let code = on_window(
        "MPI_Win_set_info",
        win,
        |guard| {
            let id = guard.windows.called_id();
            if guard[id].lane() != 0 {
                return duplicate::set_info(guard, info, |info| {
                    refused = host_calls::win_set_info(win, info.get());
                });
            }
            let keys = if info == MPI_INFO_NULL {
                Err(Fault::new(MPI_ERR_INFO, "info is MPI_INFO_NULL"))
            } else {
                info::keys(info)
            };
            // The host's call is collective and may block; this agreement drives our windows until
            // all processes have entered the call.
            let (guard, objected) = any_objection(guard, id, keys.is_err());
            let keys = keys?;
            if objected && guard[id].port.is_broken() {
                return Err(broken(&guard[id]));
            }
            if objected {
                return Err(Fault::new(
                    MPI_ERR_INFO_VALUE,
                    "another process of the window passed an invalid info object",
                ));
            }
            let mut guard = change_fences(guard, id, keys.pattern_fences)?;
            // Other threads may have called on duplicates meanwhile.
            keys.standard.change(&mut guard.windows.on_lane(id, 0).hints);
            drop(guard);
            refused = host_calls::win_set_info(win, ForHost::of(info).get());
            Ok(())
        },
        record::refused,
        // SAFETY: the application's arguments, passed on.
        || unsafe { PMPI_Win_set_info(win, info) },
    );
    if code == MPI_SUCCESS { refused } else { code }
}

/// Learns a pattern anew, or ends it, if the processes gave `mpix_rma_fence` [FE-4].
fn change_fences(guard: Guard, id: WindowId, wanted: Option<bool>) -> Checked<Guard> {
    let (mut guard, any) = any_objection(guard, id, wanted.is_some());
    if !any {
        return Ok(guard);
    }
    let mut different = 0;
    for value in [None, Some(false), Some(true)] {
        let given;
        (guard, given) = any_objection(guard, id, wanted == value);
        different += u32::from(given);
    }
    // Outstanding fences complete first: they wait for calls that all processes have made.
    guard =
        wait_until(guard, id, |window| !window.engine.awaits_fences() || window.port.is_broken());
    let open = !guard[id].engine.may_set_fence_pattern();
    // Afterwards every process has completed all fences, so the present epoch is everybody's.
    let (mut guard, refused) = any_objection(guard, id, open);
    if guard[id].port.is_broken() {
        return Err(broken(&guard[id]));
    }
    if different > 1 {
        return Err(Fault::new(
            MPI_ERR_INFO_VALUE,
            "info key mpix_rma_fence differs between the processes of the window",
        ));
    }
    let pattern = wanted == Some(true);
    if refused || guard[id].engine.set_fence_pattern(pattern).is_err() {
        return Err(Fault::new(
            MPI_ERR_RMA_SYNC,
            "info key mpix_rma_fence cannot be set while a process has accessed the window in an \
             open fence epoch",
        ));
    }
    guard.windows.on_lane(id, 0).hints.pattern_fences = pattern;
    guard[id].close_fast_path();
    Ok(guard)
}

/// `MPI_Win_get_info`.
fn info_of(guard: Guard, id: WindowId, info_used: Out<'_, MPI_Info>) -> Done {
    if info_used.is_null() {
        return Err(Fault::new(MPI_ERR_ARG, "info_used is NULL"));
    }
    let threads = guard.settings.is_some_and(|settings| settings.progress_thread());
    let window = &guard[id];
    let handle = MPI_Win::of(window.handle.0);
    let (hints, alignment, progress) =
        (window.hints, window.port.alignment(), window.port.progresses());
    let progress =
        if threads && progress == c"target_calls" { c"progress_thread" } else { progress };
    drop(guard);
    let mut info = MPI_INFO_NULL;
    if host_calls::win_get_info(handle, &mut info) != MPI_SUCCESS {
        return Err(Fault::new(MPI_ERR_INFO, "the host cannot return the window's info"));
    }
    info_used.write(info);
    if info::write(info, &hints, alignment, progress) != MPI_SUCCESS {
        return Err(Fault::new(MPI_ERR_INFO, "the host cannot store an info key"));
    }
    Ok(())
}

window_calls! { win;
    /// Returns the hints in use.
    MPI_Win_get_info(win: MPI_Win; info_used: MPI_Info) => PMPI_Win_get_info,
        |guard| {
            let id = guard.windows.called_id();
            info_of(guard, id, info_used)
        },
        recorded |guard, id| info_of(guard, id, info_used);
}

exports! { MPI_Win_set_info(win: MPI_Win, info: MPI_Info); }
