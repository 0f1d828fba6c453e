//! Synchronization in a window of one process, which has nothing to send and nobody to wait for.
//!
//! Each function returns the code of the call. `None` means that the call must go the long way,
//! which also reports any fault of its arguments.

use std::ffi::c_int;

use crate::mpi::abi::sys::*;
use crate::mpi::rma::args::lock_mode;
use crate::runtime::checked::note_change;
use crate::runtime::process::{enter_alone, forget_order};
use crate::runtime::registry::is_alone;
use crate::runtime::{HostHandle, Window};
use crate::transport::shm::protocol::order_completed;

/// A fence without assertions.
#[inline(always)]
pub(crate) fn fence(assert: c_int, window: MPI_Win) -> Option<c_int> {
    if assert != 0 {
        None
    } else {
        synchronize(window, false, |window| window.engine.fence_alone())
    }
}

/// A lock of the process itself, without assertions.
#[inline(always)]
pub(crate) fn lock(kind: c_int, rank: c_int, assert: c_int, window: MPI_Win) -> Option<c_int> {
    let mode = lock_mode(kind)?;
    if rank != 0 || assert != 0 {
        return None;
    }
    synchronize(window, true, |window| window.engine.lock_alone(mode))
}

/// A lock_all without assertions.
#[inline(always)]
pub(crate) fn lock_all(assert: c_int, window: MPI_Win) -> Option<c_int> {
    if assert != 0 {
        return None;
    }
    synchronize(window, true, |window| window.engine.lock_all_alone())
}

/// An unlock of the process itself.
#[inline(always)]
pub(crate) fn unlock(rank: c_int, window: MPI_Win) -> Option<c_int> {
    if rank != 0 {
        return None;
    }
    synchronize(window, false, |window| window.engine.unlock_alone(false))
}

/// An unlock_all.
#[inline(always)]
pub(crate) fn unlock_all(window: MPI_Win) -> Option<c_int> {
    synchronize(window, false, |window| window.engine.unlock_alone(true))
}

/// Opens or closes an epoch by `body`, which returns false if it has done nothing. `locks`: the
/// call waits for earlier locks.
#[inline(always)]
fn synchronize(
    window: MPI_Win,
    locks: bool,
    body: impl FnOnce(&mut Window) -> bool,
) -> Option<c_int> {
    let handle = HostHandle(window.key());
    if !is_alone(handle) {
        return None;
    }
    let mut guard = enter_alone()?;
    if locks && !guard.windows.attends_no_other() {
        return None;
    }
    let window = guard.windows.alone(handle)?;
    if locks && window.hints.no_locks || !body(window) {
        return None;
    }
    note_change();
    forget_order();
    order_completed();
    Some(MPI_SUCCESS)
}
