//! The empty status (MPI-4.1 3.7.3).

use super::sys::*;

/// Fills the status of a request that has ended, unless it is ignored.
///
/// # Safety
/// `status` is a place for a status, or MPI_STATUS_IGNORE.
pub(crate) unsafe fn fill_empty(status: *mut MPI_Status) {
    if status != MPI_STATUS_IGNORE && status != MPI_STATUSES_IGNORE {
        // SAFETY: the caller's promise.
        unsafe { empty(status) };
    }
}

/// Makes a status MPI's empty one, but for its error.
///
/// # Safety
/// `status` is a place for a status.
pub(crate) unsafe fn empty(status: *mut MPI_Status) {
    // SAFETY: the caller's promise.
    unsafe {
        PMPI_Status_set_elements(status, MPI_BYTE, 0);
        PMPI_Status_set_cancelled(status, 0);
        (*status).MPI_SOURCE = MPI_ANY_SOURCE;
        (*status).MPI_TAG = MPI_ANY_TAG;
    }
}
