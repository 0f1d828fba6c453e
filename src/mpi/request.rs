//! Requests: always the host's own [RQ-1].
//!
//! A request that is complete at birth is a null send (to `MPI_PROC_NULL`), which costs some ten nanoseconds and takes
//! nothing of the host. A pending one is a generalized request, completed when the engine reports it
//! ([`complete`](complete)). The application may free it before: the engine's side then still completes it, once, which
//! is legal on every host [RQ-2]; the host's object goes away when both have happened.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use super::error::Fault;
use super::hook;
use super::sys::*;
use crate::runtime::HostRequest;

/// Generalized requests of ours that the host still holds [RQ-3].
static ALIVE: AtomicI64 = AtomicI64::new(0);
/// The cap; set at `MPI_Init`.
static MOST: AtomicI64 = AtomicI64::new(i64::MAX);

/// Sets the cap on requests alive.
pub(crate) fn set_most(most: i64) {
    MOST.store(most, Ordering::Relaxed);
}

/// Counts one request. Held by the host (until it runs the free function) and by us (until completion): hosts differ in
/// which of the two comes last when the application frees a pending request.
struct Counted;

impl Counted {
    fn new() -> Self {
        ALIVE.fetch_add(1, Ordering::Relaxed);
        Self
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        ALIVE.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A pending request, as the runtime carries it: the address of this is its number.
struct Pending {
    request: MPI_Request,
    _counted: Arc<Counted>,
}

/// Refuses a call that may need a request when the cap is reached, before anything happens [RQ-3].
#[inline]
pub(crate) fn admit() -> Result<(), Fault> {
    if ALIVE.load(Ordering::Relaxed) >= MOST.load(Ordering::Relaxed) {
        return Err(Fault::new(MPI_ERR_NO_MEM, "too many requests are alive (MPIX_RMA_MAX_REQUESTS); complete some first"));
    }
    Ok(())
}

/// Makes a request that is complete.
///
/// # Safety
/// `request` is a place for a request; MPI is initialised.
#[inline]
pub(crate) unsafe fn completed(request: *mut MPI_Request) -> c_int {
    // SAFETY: no byte is sent; the caller gives the place.
    unsafe { PMPI_Isend(std::ptr::null(), 0, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_SELF, request) }
}

/// Makes a pending request.
///
/// # Safety
/// As [`completed`].
pub(crate) unsafe fn pending(request: *mut MPI_Request) -> Result<HostRequest, c_int> {
    let counted = Arc::new(Counted::new());
    let held = Arc::into_raw(Arc::clone(&counted)).cast_mut().cast::<c_void>();
    // SAFETY: the callbacks and what they are given live until the host has run the free function.
    let status = unsafe {
        match hook::polled_requests() {
            Some((start, poll, wait)) => start(query, free, cancel, poll, wait, held, request),
            None => PMPI_Grequest_start(Some(query), Some(free), Some(cancel), held, request),
        }
    };
    if status != MPI_SUCCESS {
        // SAFETY: the host did not take it.
        drop(unsafe { Arc::from_raw(held.cast::<Counted>()) });
        return Err(status);
    }
    // SAFETY: the host has written the handle.
    let request = unsafe { *request };
    let pending = Box::new(Pending { request, _counted: counted });
    Ok(HostRequest(Box::into_raw(pending) as usize as u64))
}

/// Completes a pending request, once.
pub(crate) fn complete(request: HostRequest) {
    // SAFETY: the number was made by `pending`, and the runtime gives it back once.
    let pending = unsafe { Box::from_raw(request.0 as usize as *mut Pending) };
    // SAFETY: a generalized request lives until it is complete, even if the application has freed it.
    let status = unsafe { PMPI_Grequest_complete(pending.request) };
    if status != MPI_SUCCESS {
        log::error!("MPI_Grequest_complete failed with {status}");
    }
}

/// The status of a request of ours: MPI's empty status. Hosts may ask more than once.
unsafe extern "C" fn query(_: *mut c_void, status: *mut MPI_Status) -> c_int {
    // SAFETY: the host gives a status of its own, never MPI_STATUS_IGNORE.
    unsafe {
        PMPI_Status_set_elements(status, MPI_BYTE, 0);
        PMPI_Status_set_cancelled(status, 0);
        (*status).MPI_SOURCE = MPI_ANY_SOURCE;
        (*status).MPI_TAG = MPI_ANY_TAG;
    }
    MPI_SUCCESS
}

unsafe extern "C" fn free(held: *mut c_void) -> c_int {
    // SAFETY: given to the host by `pending`; the host runs this once.
    drop(unsafe { Arc::from_raw(held.cast::<Counted>()) });
    MPI_SUCCESS
}

/// `MPI_Cancel` has no effect [RQ-2].
unsafe extern "C" fn cancel(_: *mut c_void, _: c_int) -> c_int {
    MPI_SUCCESS
}
