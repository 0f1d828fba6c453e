//! Tasks that are complete when requests are.
//!
//! Events of OpenMP tasks are fulfilled in any thread, those of task-aware runtimes by the poller
//! ([`crate::mpi::request::task`]).

mod openmp;

use std::ffi::{c_int, c_void};

use super::continuation::call;
use crate::mpi::abi::argument::{Out, in_out, list_or_empty};
use crate::mpi::abi::error::Fault;
use crate::mpi::abi::host::exports;
use crate::mpi::abi::status::Statuses;
use crate::mpi::abi::sys::*;
use crate::mpi::request::completion;
use crate::mpi::request::continuation::Owner;
use crate::mpi::request::task::{attach, bind, current, log_failed, pause};
use crate::runtime::process::multiple;
use crate::runtime::thread;

/// The callback of `MPIX_Task_detach`.
unsafe extern "C" fn fulfill(error: c_int, event: *mut c_void) -> c_int {
    log_failed(error);
    // SAFETY: `MPIX_Task_detach` was given an event of a task, which is not fulfilled yet.
    unsafe { openmp::fulfill(event.addr()) };
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
    event: openmp::Event,
) -> c_int {
    call("MPIX_Task_detach", || {
        if !openmp::is_there() {
            let text = "no OpenMP runtime with omp_fulfill_event (OpenMP 5.0) is loaded";
            return Err(Fault::new(MPI_ERR_UNSUPPORTED_OPERATION, text));
        }
        // SAFETY: the contract of this call says so of `reqs` and `statuses`.
        let (all, statuses) = unsafe { (list_or_empty(reqs, n), Statuses::new(statuses, n)) };
        let event = std::ptr::without_provenance_mut(event);
        attach(Owner::Library, all, statuses, fulfill, event)?;
        if multiple()
            && let Err(error) = thread::ensure()
        {
            log::warn!("the progress thread cannot be started: {error}");
        }
        Ok(())
    })
}

/// Keeps the current task from completing before a request. Outside a task, waits for it.
///
/// # Safety
/// `request` is NULL (an error) or a request; `status` is NULL, MPI_STATUS_IGNORE or a status that
/// belongs to this library until the task is complete.
#[inline(never)]
pub unsafe extern "C" fn MPIX_Task_iwait(
    request: *mut MPI_Request,
    status: *mut MPI_Status,
) -> c_int {
    let Some(task) = current() else {
        // SAFETY: the application's arguments, passed on.
        return unsafe { completion::MPI_Wait(request, status) };
    };
    call("MPIX_Task_iwait", || {
        // SAFETY: the contract of this call says so of `request` and `status`.
        let (request, statuses) = unsafe { (in_out(request), Statuses::new(status, 1)) };
        let Some(request) = request else {
            return Err(Fault::new(MPI_ERR_REQUEST, "request is NULL"));
        };
        bind(task, Some(std::slice::from_ref(request)), statuses)
    })
}

/// Keeps the current task from completing before `n` requests. Outside a task, waits for them.
///
/// # Safety
/// As [`MPIX_Task_iwait`], for arrays of `n` requests and statuses.
#[inline(never)]
pub unsafe extern "C" fn MPIX_Task_iwaitall(
    n: c_int,
    reqs: *mut MPI_Request,
    statuses: *mut MPI_Status,
) -> c_int {
    let Some(task) = current() else {
        // SAFETY: the application's arguments, passed on.
        return unsafe { completion::MPI_Waitall(n, reqs, statuses) };
    };
    call("MPIX_Task_iwaitall", || {
        // SAFETY: the contract of this call says so of `reqs` and `statuses`.
        let (all, statuses) = unsafe { (list_or_empty(reqs, n), Statuses::new(statuses, n)) };
        bind(task, all, statuses)
    })
}

/// Sets whether blocking calls of this thread pause its tasks.
///
/// # Safety
/// `before` is NULL, or memory for an int.
#[inline(never)]
pub unsafe extern "C" fn MPIX_Task_set_blocking(pauses: c_int, before: *mut c_int) -> c_int {
    call("MPIX_Task_set_blocking", || {
        let aware = pause::set_aware(pauses != 0);
        // SAFETY: the contract of this call says so of `before`.
        unsafe { Out::new(before) }.write(c_int::from(aware));
        Ok(())
    })
}

exports! {
    MPIX_Task_set_blocking(pauses: c_int, before: *mut c_int);
    MPIX_Task_detach(
        n: c_int, reqs: *mut MPI_Request, statuses: *mut MPI_Status, event: openmp::Event);
    MPIX_Task_iwait(request: *mut MPI_Request, status: *mut MPI_Status);
    MPIX_Task_iwaitall(n: c_int, reqs: *mut MPI_Request, statuses: *mut MPI_Status);
}
