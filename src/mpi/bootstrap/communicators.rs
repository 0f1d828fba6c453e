//! Private communicators of this library, on which errors return.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::mpi::abi::host_calls;
use crate::mpi::abi::sys::*;

/// The key of the communicator of this process alone; 0 while there is none.
static OWN: AtomicU64 = AtomicU64::new(0);

/// Makes a communicator of this process alone, for calls of the host that may fail: errors must
/// return, since no error handler of the application may run while the guard is held. Called by
/// `MPI_Init`.
pub(crate) fn open_own() -> MPI_Comm {
    match create(MPI_COMM_SELF) {
        Ok(comm) => {
            OWN.store(comm.key(), Ordering::Relaxed);
            comm
        }
        Err(code) => {
            log::warn!(
                "the host cannot make a communicator of one process (error {code}); using \
                 MPI_COMM_SELF"
            );
            MPI_COMM_SELF
        }
    }
}

/// Sets the communicator of this process alone, which [`own`] returns.
#[cfg(mpi_sessions)]
pub(crate) fn use_own(comm: Option<MPI_Comm>) {
    OWN.store(comm.map_or(0, MPI_Comm::key), Ordering::Relaxed);
}

/// The communicator of this process alone, if there is one.
pub(crate) fn own() -> Option<MPI_Comm> {
    match OWN.load(Ordering::Relaxed) {
        0 => None,
        key => Some(MPI_Comm::of(key)),
    }
}

/// Frees the communicator that [`open_own`] made. The caller must have stopped all use of it.
pub(crate) fn close_own() {
    if let Some(mut comm) = own() {
        OWN.store(0, Ordering::Relaxed);
        host_calls::comm_free(&mut comm);
    }
}

/// Makes a communicator of the same processes, on which errors return. Not by `MPI_Comm_dup`, which
/// would run the application's attribute copy callbacks. Collective.
///
/// # Errors
/// The host's error code.
pub(crate) fn create(of: MPI_Comm) -> Result<MPI_Comm, i32> {
    let (mut group, mut comm) = (MPI_GROUP_NULL, MPI_COMM_NULL);
    let mut code = host_calls::comm_group(of, &mut group);
    if code == MPI_SUCCESS {
        code = host_calls::comm_create(of, group, &mut comm);
        host_calls::group_free(&mut group);
    }
    if code != MPI_SUCCESS {
        return Err(code);
    }
    host_calls::comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    // Shown by debuggers.
    host_calls::comm_set_name(comm, c"mpix-rma");
    Ok(comm)
}
