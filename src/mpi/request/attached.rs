//! A request that a continuation waits for, and where its status goes.

use std::ffi::c_int;

use crate::mpi::abi::status::Status;
use crate::mpi::abi::sys::*;
use crate::runtime::continuations::{self, ContinuationId};

/// One of the requests that a continuation waits for.
#[derive(Clone, Copy)]
pub(crate) struct Attached {
    pub(crate) continuation: ContinuationId,
    /// The application's handle, or NULL if it is no longer there.
    pub(crate) handle: *mut MPI_Request,
    /// Where the application wants the status, or NULL.
    pub(crate) status: *mut MPI_Status,
}

impl Attached {
    /// The request is complete with this error code and status (`None`: the empty one). `left` is
    /// what is left of it: MPI_REQUEST_NULL, unless it is persistent after all.
    pub(crate) fn complete(self, error: c_int, status: Option<MPI_Status>, left: MPI_Request) {
        // SAFETY: `MPIX_Continue` requires that the application keeps the handle, unless it passes
        // MPIX_CONT_REQUESTS_FREE, and the status, both to this library alone, until the callback
        // is called, which cannot happen before the call below.
        unsafe {
            if !self.handle.is_null() {
                self.handle.write(left);
            }
            let place = Status::new(self.status);
            match status {
                Some(status) => place.copy(status),
                None => place.fill_empty(),
            }
            place.set_error(error);
        }
        continuations::with(|all| all.request_completed(self.continuation, error));
    }
}
