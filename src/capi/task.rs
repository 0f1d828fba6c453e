//! Tasks that are complete when requests are.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use super::continuation::call;
use crate::mpi::abi::argument::list;
use crate::mpi::abi::error::Fault;
use crate::mpi::abi::host::{exports, loaded};
use crate::mpi::abi::status::Statuses;
use crate::mpi::abi::sys::*;
use crate::mpi::request::continuation::{self, Arguments, Owner};
use crate::runtime::process::multiple;
use crate::runtime::thread;

/// `omp_event_handle_t` of gcc's and clang's OpenMP: an enumeration with the values of a
/// `uintptr_t`.
type OmpEvent = usize;
type FulfillEvent = unsafe extern "C" fn(OmpEvent);

/// `omp_fulfill_event` of the OpenMP runtime in this process.
fn fulfill_event() -> Option<FulfillEvent> {
    static FOUND: OnceLock<Option<FulfillEvent>> = OnceLock::new();
    // SAFETY: OpenMP declares the function so.
    *FOUND.get_or_init(|| unsafe { loaded(c"omp_fulfill_event") })
}

/// The callback: all requests of a task are complete.
unsafe extern "C" fn complete(error: c_int, event: *mut c_void) -> c_int {
    if error != MPI_SUCCESS {
        log::error!("MPIX_Task_detach: a request has failed (error code {error})");
    }
    if let Some(fulfill_event) = fulfill_event() {
        // SAFETY: `MPIX_Task_detach` was given an event of a task, which is not fulfilled yet.
        unsafe { fulfill_event(event.addr()) };
    }
    MPI_SUCCESS
}

/// Has an event of an OpenMP task fulfilled when `n` requests are complete.
///
/// # Safety
/// `reqs` is NULL or has `n` requests; `statuses` is NULL, MPI_STATUSES_IGNORE or has room for `n`
/// statuses, which belong to this library until the event is fulfilled. `event` is an event that
/// nobody else fulfils.
#[inline(never)]
pub unsafe extern "C" fn MPIX_Task_detach(
    n: c_int,
    reqs: *mut MPI_Request,
    statuses: *mut MPI_Status,
    event: OmpEvent,
) -> c_int {
    call("MPIX_Task_detach", || {
        if fulfill_event().is_none() {
            let text = "no OpenMP runtime with omp_fulfill_event (OpenMP 5.0) is loaded";
            return Err(Fault::new(MPI_ERR_UNSUPPORTED_OPERATION, text));
        }
        // SAFETY: the contract of this call says so of `reqs` and `statuses`.
        let (all, statuses) = unsafe { (list(reqs, n), Statuses::new(statuses, n)) };
        let none: &[_] = &[];
        continuation::attach(&Arguments {
            requests: if n == 0 { Some(none) } else { all },
            function: Some(complete),
            data: std::ptr::without_provenance_mut(event),
            flags: continuation::REQUESTS_FREE | continuation::INVOKE_FAILED,
            statuses,
            owner: Owner::Library,
        })?;
        if multiple()
            && let Err(error) = thread::ensure()
        {
            log::warn!("the progress thread cannot be started: {error}");
        }
        Ok(())
    })
}

exports! {
    MPIX_Task_detach(
        n: c_int, reqs: *mut MPI_Request, statuses: *mut MPI_Status, event: OmpEvent);
}
