//! Communicators of this library, over processes of the application's.

use std::ffi::c_int;

use crate::mpi::abi::host_calls;
use crate::mpi::abi::sys::*;
use crate::mpi::progress::drive;

/// One such communicator, or `MPI_COMM_NULL`.
pub(super) struct OwnComm(pub(super) MPI_Comm);

impl OwnComm {
    /// Duplicates the application's. Collective.
    ///
    /// # Errors
    /// The host's code, which the host has reported, here and below.
    pub(super) fn duplicate(comm: MPI_Comm) -> Result<Self, c_int> {
        // SAFETY: the application's communicator, which the host checks; the place is ours. Without
        // attributes: they are the application's, and it does not know of this one.
        Self::make(comm, |own| unsafe { PMPI_Comm_dup_with_info(comm, MPI_INFO_NULL, own) })
    }

    /// Makes one of the processes of `comm` with the same color, in the order of its ranks.
    /// Collective. With `MPI_UNDEFINED`, this process gets none.
    pub(super) fn split(comm: MPI_Comm, color: c_int) -> Result<Self, c_int> {
        // SAFETY: as in `duplicate`.
        Self::make(comm, |own| unsafe { PMPI_Comm_split(comm, color, 0, own) })
    }

    fn make(comm: MPI_Comm, call: impl FnOnce(*mut MPI_Comm) -> c_int) -> Result<Self, c_int> {
        let mut own = MPI_COMM_NULL;
        drive::assemble(comm)?;
        let code = call(&raw mut own);
        if code != MPI_SUCCESS {
            return Err(code);
        }
        if own != MPI_COMM_NULL {
            host_calls::comm_set_errhandler(own, MPI_ERRORS_RETURN);
        }
        Ok(OwnComm(own))
    }
}

impl Drop for OwnComm {
    fn drop(&mut self) {
        if self.0 != MPI_COMM_NULL {
            host_calls::comm_free(&mut self.0);
        }
    }
}
