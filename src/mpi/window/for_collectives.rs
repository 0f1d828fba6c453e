//! Windows that this library makes for itself.

use std::ffi::c_int;
use std::ptr::null_mut;

use super::free::MPI_Win_free;
use super::{Made, Wanted, create, set_number};
use crate::mpi::abi::sys::*;
use crate::mpi::collective::WindowCalls;
use crate::mpi::rma::sync::{MPI_Win_lock_all, MPI_Win_unlock_all};
use crate::runtime::{HostHandle, WindowId, enter};

/// The calls of collectives.
pub(crate) static FOR_COLLECTIVES: WindowCalls = WindowCalls { make, free };

fn make(comm: MPI_Comm, bytes: usize, counters: u32) -> Option<(MPI_Win, WindowId)> {
    let wanted = Wanted {
        call: "a persistent collective",
        base: null_mut(),
        size: bytes as i64,
        disp_unit: 1,
        info: MPI_INFO_NULL,
        comm,
        flavor: MPI_WIN_FLAVOR_ALLOCATE,
        is_own: true,
    };
    let Made::Ours(mut window, _) = create(&wanted) else { return None };
    let mut guard = enter();
    let id = guard.windows.ours(HostHandle(window.key())).expect("it was made just now");
    if set_number(guard, id, counters as c_int).is_err() {
        // SAFETY: a window of ours. All processes free it, since it failed in all.
        unsafe { MPI_Win_free(&raw mut window) };
        return None;
    }
    // SAFETY: likewise; nobody else locks it.
    unsafe {
        PMPI_Win_set_errhandler(window, MPI_ERRORS_RETURN);
        MPI_Win_lock_all(MPI_MODE_NOCHECK, window);
    }
    Some((window, id))
}

fn free(mut window: MPI_Win) -> c_int {
    // SAFETY: a window of `make`, which nobody uses any more.
    unsafe {
        MPI_Win_unlock_all(window);
        MPI_Win_free(&raw mut window)
    }
}
