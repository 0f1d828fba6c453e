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
    comm: MPI_Comm,
    start: Start,
    /// The current start's request, at the host.
    request: Cell<MPI_Request>,
}

// SAFETY: handles, and arguments of the application, which any thread may pass to the host.
unsafe impl Send for AtHost {}

impl AtHost {
    fn failed(code: c_int) -> Advance {
        let mut class = code;
        host_calls::error_class(code, &mut class);
        Advance::Failed(CollectiveFailure {
            class,
            text: "the host's nonblocking collective has failed",
        })
    }
}

impl PersistentCollective for AtHost {
    fn start(&mut self) -> Advance {
        let code = (self.start)(self.comm, self.request.as_ptr());
        if code != MPI_SUCCESS {
            return Self::failed(code);
        }
        self.advance()
    }

    fn advance(&mut self) -> Advance {
        let mut flag = 0;
        let code = host_calls::test(&self.request, &mut flag, Status::ignored());
        match (code == MPI_SUCCESS, flag != 0) {
            (false, _) => Self::failed(code),
            (true, true) => Advance::Complete,
            (true, false) => Advance::Pending { moved: false },
        }
    }

    fn calls_host(&self) -> bool {
        true
    }
}

impl Drop for AtHost {
    fn drop(&mut self) {
        host_calls::comm_free(&mut self.comm);
    }
}

/// Sets up a collective of `comm` at the host. Collective.
pub(super) fn set_up(
    comm: MPI_Comm,
    start: Start,
) -> Result<Box<dyn PersistentCollective>, NotServed> {
    let refused = || {
        let text = "the host cannot make a communicator for a persistent collective";
        NotServed::Refused(Fault::new(MPI_ERR_INTERN, text))
    };
    let mut own = MPI_COMM_NULL;
    drive::assemble(comm).map_err(|_| refused())?;
    // SAFETY: the communicator is valid, since the host has just accepted it; the place is ours.
    // Without attributes: they are the application's, and it does not know of this one.
    let code = unsafe { PMPI_Comm_dup_with_info(comm, MPI_INFO_NULL, &raw mut own) };
    if code != MPI_SUCCESS {
        return Err(refused());
    }
    host_calls::comm_set_errhandler(own, MPI_ERRORS_RETURN);
    Ok(Box::new(AtHost { comm: own, start, request: Cell::new(MPI_REQUEST_NULL) }))
}
