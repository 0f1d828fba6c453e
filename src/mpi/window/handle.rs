//! The host's window that stands for one of ours, and the group of ours.
//!
//! The host makes it over a communicator of this process alone: a window of all processes would
//! take several collective calls of the host, which spin on cores that the processes that they wait
//! for may need.

use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

use crate::mpi::abi::argument::Out;
use crate::mpi::abi::error::{Fault, boundary};
use crate::mpi::abi::host::exports;
use crate::mpi::abi::host_calls;
use crate::mpi::abi::sys::*;
use crate::mpi::info::ForHost;
use crate::runtime::{HostHandle, enter, progress};

/// A window of the host, which frees it unless the application gets it.
pub(super) struct HostWindow(MPI_Win);

/// Live windows from which on the host may have no room for another.
const MANY: usize = 512;

impl HostWindow {
    /// Makes a window without memory. MPICH's cheapest is a dynamic one. On one process Open MPI 4
    /// makes only those with memory of their own.
    ///
    /// # Errors
    /// The host has no room for another window, or does not accept the info.
    pub(super) fn make(own: MPI_Comm, info: MPI_Info) -> Result<Self, Fault> {
        // Collective calls on one communicator must come one after the other.
        static MAKING: Mutex<()> = Mutex::new(());
        let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
        let mut handle = MPI_WIN_NULL;
        let info = ForHost::of(info);
        let code = if cfg!(mpi_host = "mpich") && progress::live() < MANY {
            host_calls::win_create_dynamic(info.get(), own, &mut handle)
        } else if cfg!(mpi_host = "mpich") {
            // Each window takes one of the host's 2,048 context ids. Where there is none left,
            // MPICH 4.0 returns a broken dynamic window and reports no error; this constructor
            // reports it, and takes half as long again.
            host_calls::win_create_empty(info.get(), own, &mut handle)
        } else {
            host_calls::win_allocate_empty(info.get(), own, &mut handle)
        };
        if code == MPI_SUCCESS {
            return Ok(HostWindow(handle));
        }
        let mut class = MPI_ERR_OTHER;
        host_calls::error_class(code, &mut class);
        Err(Fault::new(class, "the host cannot make another window"))
    }

    /// The window, which is the application's now.
    pub(super) fn keep(self) -> MPI_Win {
        let handle = self.0;
        std::mem::forget(self);
        handle
    }
}

impl Drop for HostWindow {
    fn drop(&mut self) {
        host_calls::win_free(&mut self.0);
    }
}

/// The group of a live communicator, to be freed with its window.
pub(super) fn group_of(comm: MPI_Comm) -> HostHandle {
    let mut group = MPI_GROUP_NULL;
    host_calls::comm_group(comm, &mut group);
    HostHandle(group.key())
}

/// Gives the group of a window.
///
/// # Safety
/// As MPI says of the call.
#[inline(never)]
pub unsafe extern "C" fn MPI_Win_get_group(win: MPI_Win, group: *mut MPI_Group) -> c_int {
    // SAFETY: MPI requires of the application that it is NULL or memory for a group, which no other
    // thread uses during the call.
    let place = unsafe { Out::new(group) };
    boundary("MPI_Win_get_group", || {
        let mut guard = enter();
        let ours = guard.windows.ours(HostHandle(win.key())).filter(|_| !place.is_null());
        let Some(ours) = ours.map(|id| MPI_Group::of(guard[id].group.0)) else {
            drop(guard);
            // SAFETY: the application's arguments, passed on.
            return unsafe { PMPI_Win_get_group(win, group) };
        };
        let mut copy = MPI_GROUP_NULL;
        let code = host_calls::group_copy(ours, &mut copy);
        if code == MPI_SUCCESS {
            place.write(copy);
        }
        code
    })
}

exports! { MPI_Win_get_group(win: MPI_Win, group: *mut MPI_Group); }
