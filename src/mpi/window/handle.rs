//! The host's window behind the handle of one of ours, and the group of ours.
//!
//! The host makes its window over a communicator of this process alone. A window of all processes
//! would take several collective calls of the host. Those spin, on cores that the processes that
//! they wait for may need.

use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

use crate::mpi::abi::argument::Out;
use crate::mpi::abi::error::{Fault, boundary};
use crate::mpi::abi::host::exports;
use crate::mpi::abi::host_calls;
use crate::mpi::abi::sys::*;
use crate::mpi::info::ForHost;
use crate::runtime::{HostHandle, enter, progress};

/// A window of the host. Freed on drop, unless the application has got it.
pub(super) struct HostWindow(MPI_Win);

/// Number of live windows from which on the host may have no room for another.
const MANY: usize = 512;

impl HostWindow {
    /// Makes a window without memory. MPICH makes dynamic windows fastest. For a single process,
    /// Open MPI 4 makes only windows that allocate memory.
    ///
    /// # Errors
    /// The host has no room for another window, or does not accept the info.
    pub(super) fn make(own: MPI_Comm, info: MPI_Info) -> Result<Self, Fault> {
        // Only one thread may make a collective call on `own` at a time.
        static MAKING: Mutex<()> = Mutex::new(());
        let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
        let mut handle = MPI_WIN_NULL;
        let info = ForHost::of(info);
        let code = if cfg!(mpi_host = "mpich") && progress::live() < MANY {
            host_calls::win_create_dynamic(info.get(), own, &mut handle)
        } else if cfg!(mpi_host = "mpich") {
            // Each window takes one of the host's 2,048 context ids. When they run out, MPICH 4.0
            // returns a broken dynamic window and no error. This constructor returns an error, but
            // takes half as long again.
            host_calls::win_create_empty(info.get(), own, &mut handle)
        } else {
            host_calls::win_allocate_empty(info.get(), own, &mut handle)
        };
        if code == MPI_SUCCESS {
            return Ok(HostWindow(handle));
        }
        Err(Fault::new(host_calls::class_of(code), "the host cannot make another window"))
    }

    /// The window, which this still owns.
    pub(super) fn get(&self) -> MPI_Win {
        self.0
    }

    /// Gives the window to the application.
    pub(super) fn keep(self) -> MPI_Win {
        std::mem::ManuallyDrop::new(self).0
    }
}

impl Drop for HostWindow {
    fn drop(&mut self) {
        host_calls::win_free(&mut self.0);
    }
}

/// The group of a live communicator. The window of that group frees it.
pub(super) fn group_of(comm: MPI_Comm) -> HostHandle {
    let mut group = MPI_GROUP_NULL;
    host_calls::comm_group(comm, &mut group);
    HostHandle(group.key())
}

/// Returns the group of a window.
///
/// # Safety
/// As MPI says of the call.
#[inline(never)]
pub unsafe extern "C" fn MPI_Win_get_group(win: MPI_Win, group: *mut MPI_Group) -> c_int {
    // SAFETY: MPI requires that `group` is NULL or memory for a group, which no other thread uses
    // during the call.
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
