//! `MPIX_Win_dup`: another handle of a window, with completion and order of its own [DU-1, DU-2].
//!
//! The call is local. The new handle is a real window of the host, as that of the original, and no
//! other process learns of it: the engine keeps its operations apart, on the same port.

use super::handle::HostWindow;
use super::own_comm;
use crate::mpi::abi::argument::Out;
use crate::mpi::abi::error::Fault;
use crate::mpi::abi::host_calls;
use crate::mpi::abi::sys::*;
use crate::mpi::info::{self, ForHost};
use crate::mpi::rma::call::{Done, require, window_calls};
use crate::runtime::{Guard, HostHandle, Window, WindowId, enter};

/// `MPIX_Win_dup`
fn duplicate(mut guard: Guard, info: MPI_Info, newwin: Out<'_, MPI_Win>) -> Done {
    require(newwin, "newwin is NULL")?;
    let keys = info::keys(info)?;
    let id = guard.windows.called_id();
    let window = guard.windows.called();
    let (original, mut hints) = (MPI_Win::of(window.handle.0), window.hints);
    keys.change_duplicate(&mut hints);
    drop(guard);
    let own = own_comm().ok_or_else(|| {
        Fault::new(MPI_ERR_INTERN, "the host cannot make a communicator of this process alone")
    })?;
    let made = HostWindow::make(own, info)?;
    let handle = made.get();
    inherit_errhandler(original, handle)?;
    if !enter().windows.insert_duplicate(id, HostHandle(handle.key()), hints) {
        return Err(Fault::new(MPI_ERR_WIN, "win was freed meanwhile, or has too many duplicates"));
    }
    newwin.write(made.keep());
    Ok(())
}

fn inherit_errhandler(original: MPI_Win, duplicate: MPI_Win) -> Done {
    let mut handler = MPI_ERRORS_ARE_FATAL;
    let mut code = host_calls::win_get_errhandler(original, &mut handler);
    if code == MPI_SUCCESS {
        code = host_calls::win_set_errhandler(duplicate, handler);
        host_calls::errhandler_free(&mut handler);
    }
    if code == MPI_SUCCESS {
        return Ok(());
    }
    Err(Fault::new(MPI_ERR_INTERN, "the host cannot set the duplicate's error handler"))
}

/// Checks that a duplicate may be freed, whose call this is. Its operations that are outstanding
/// end with the window's epochs, so the call waits for nothing.
pub(super) fn settle(window: &Window) -> Done {
    if window.engine.has_lock_all_on(window.lane()) {
        return Err(Fault::new(MPI_ERR_RMA_SYNC, "MPI_Win_lock_all is open on this duplicate"));
    }
    Ok(())
}

/// Forgets a duplicate whose handle is gone.
pub(super) fn discard(id: WindowId, handle: HostHandle, lane: u32) {
    let mut guard = enter();
    let runtime = &mut *guard;
    runtime.windows.remove_duplicate(id, handle, lane);
    let original = runtime.windows.on_lane(id, 0).handle;
    runtime.persistent.rename(handle, original);
}

/// `MPI_Win_set_info` on a duplicate. Local, unlike that on the original.
pub(super) fn set_info(mut guard: Guard, info: MPI_Info, to_host: impl FnOnce(&ForHost)) -> Done {
    if info == MPI_INFO_NULL {
        return Err(Fault::new(MPI_ERR_INFO, "info is MPI_INFO_NULL"));
    }
    let keys = info::keys(info)?;
    keys.standard.change(&mut guard.windows.called().hints);
    drop(guard);
    to_host(&ForHost::of(info));
    Ok(())
}

window_calls! { win;
    /// Makes another handle of a window, whose operations complete apart.
    MPIX_Win_dup(win: MPI_Win, info: MPI_Info; newwin: MPI_Win),
        |guard| duplicate(guard, info, newwin);
}
