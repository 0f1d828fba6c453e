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
use crate::mpi::collective::own_comm::OwnComm;
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

    fn without_guard(&self) -> bool {
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
