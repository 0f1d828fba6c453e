//! Persistent collectives that the host serves, by its nonblocking collectives.
//!
//! Not by its persistent ones: those of MPICH 4.0.2 give wrong results from the second start on
//! (gather, allgather, alltoall) and fail in lists, and those of Open MPI 4.1.4 crash when the
//! communicator has been freed. Each has a communicator of its own, since processes may start
//! persistent collectives in different orders, and the application may free its communicator.

use std::cell::Cell;
use std::ffi::c_int;

use super::NotServed;
use crate::mpi::abi::error::Fault;
use crate::mpi::abi::host_calls;
use crate::mpi::abi::status::Status;
use crate::mpi::abi::sys::*;
use crate::mpi::progress::drive;
use crate::runtime::collectives::{Advance, CollectiveFailure, PersistentCollective};

/// Makes the host's nonblocking call on a communicator.
pub(super) type Start = Box<dyn FnMut(MPI_Comm, *mut MPI_Request) -> c_int>;

struct AtHost {
    comm: OwnComm,
    start: Start,
    /// The current start's request, at the host.
    request: Cell<MPI_Request>,
}

// SAFETY: handles, and arguments of the application, which any thread may pass to the host.
unsafe impl Send for AtHost {}

/// A call of the host has failed.
pub(super) fn failed(code: c_int, text: &'static str) -> Advance {
    Advance::Failed(CollectiveFailure { class: host_calls::class_of(code), text })
}

const FAILED: &str = "the host's nonblocking collective has failed";

impl PersistentCollective for AtHost {
    fn start(&mut self) -> Advance {
        let code = (self.start)(self.comm.0, self.request.as_ptr());
        if code != MPI_SUCCESS {
            return failed(code, FAILED);
        }
        self.finish()
    }

    fn advance(&mut self) -> Advance {
        Advance::AtHost
    }

    fn finish(&mut self) -> Advance {
        let mut flag = 0;
        let code = host_calls::test(&self.request, &mut flag, Status::ignored());
        match (code == MPI_SUCCESS, flag != 0) {
            (false, _) => failed(code, FAILED),
            (true, true) => Advance::Complete,
            (true, false) => Advance::AtHost,
        }
    }

    fn calls_host(&self) -> bool {
        true
    }
}

/// Sets up a collective of `comm` at the host. Collective.
pub(super) fn set_up(
    comm: MPI_Comm,
    start: Start,
) -> Result<Box<dyn PersistentCollective>, NotServed> {
    let comm = OwnComm::duplicate(comm).map_err(refused)?;
    Ok(Box::new(AtHost { comm, start, request: Cell::new(MPI_REQUEST_NULL) }))
}

/// The outcome if the host has refused to make a communicator, with this code.
pub(super) fn refused(_: c_int) -> NotServed {
    let text = "the host cannot make a communicator for a persistent collective";
    NotServed::Refused(Fault::new(MPI_ERR_INTERN, text))
}

/// A communicator of this library, over the application's processes.
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
    /// Collective.
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
        host_calls::comm_set_errhandler(own, MPI_ERRORS_RETURN);
        Ok(OwnComm(own))
    }
}

impl Drop for OwnComm {
    fn drop(&mut self) {
        host_calls::comm_free(&mut self.0);
    }
}
