//! Tasks that are complete when requests are.
//!
//! Events of OpenMP tasks are fulfilled in any thread. Those of task-aware runtimes are removed by
//! a task of this library, the *poller*, because some runtimes let only their own tasks do that. It
//! runs while a task has an event.

mod alpi;
mod openmp;

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use self::alpi::{AlpiTask, Task};
use super::continuation::call;
use crate::mpi::abi::argument::{in_out, list_or_empty};
use crate::mpi::abi::error::Fault;
use crate::mpi::abi::host::exports;
use crate::mpi::abi::status::Statuses;
use crate::mpi::abi::sys::*;
use crate::mpi::request::completion;
use crate::mpi::request::continuation::{self, Arguments, Function, Owner};
use crate::runtime::process::multiple;
use crate::runtime::thread;

/// Has a function of this library called when requests are complete. They are complete already if
/// they are MPI_REQUEST_NULL.
fn attach(
    owner: Owner,
    requests: Option<&[Cell<MPI_Request>]>,
    statuses: Statuses<'_>,
    function: Function,
    data: *mut c_void,
) -> Result<(), Fault> {
    let flags = continuation::REQUESTS_FREE | continuation::INVOKE_FAILED;
    let function = Some(function);
    continuation::attach(&Arguments { requests, function, data, flags, statuses, owner })
}

fn log_failed(error: c_int) {
    if error != MPI_SUCCESS {
        log::error!("a request that a task waits for has failed (error code {error})");
    }
}

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

/// The callback of `MPIX_Task_iwaitall`, which the poller calls.
unsafe extern "C" fn remove_event(error: c_int, task: *mut c_void) -> c_int {
    log_failed(error);
    if let (Some(runtime), Some(task)) = (alpi::runtime(), NonNull::new(task)) {
        // SAFETY: `bind` has added an event to this task.
        unsafe { runtime.remove_event(task.cast::<AlpiTask>()) };
    }
    MPI_SUCCESS
}

/// A poller runs, or is about to.
static POLLED: AtomicBool = AtomicBool::new(false);
/// Time between two polls. In it, the processor runs other tasks.
const POLL_NS: u64 = 50_000;

/// The body of the poller.
unsafe extern "C" fn poll(_: *mut c_void) {
    let Some(runtime) = alpi::runtime() else { return };
    loop {
        if continuation::poll_tasks() {
            continue;
        }
        if continuation::tasks_wait() {
            runtime.sleep(POLL_NS);
            continue;
        }
        POLLED.store(false, Ordering::SeqCst);
        // A task may have come after the look and found a poller.
        if !continuation::tasks_wait() || POLLED.swap(true, Ordering::SeqCst) {
            return;
        }
    }
}

/// Keeps a task from completing before its requests.
fn bind(
    runtime: &alpi::Alpi,
    task: Task,
    requests: Option<&[Cell<MPI_Request>]>,
    statuses: Statuses<'_>,
) -> Result<(), Fault> {
    if !runtime.add_event(task) {
        let text = "the tasking runtime does not accept an event for this task";
        return Err(Fault::new(MPI_ERR_OTHER, text));
    }
    let attached =
        attach(Owner::Tasks, requests, statuses, remove_event, task.as_ptr().cast::<c_void>());
    if attached.is_err() {
        // SAFETY: the event was added above, and nobody else removes it.
        unsafe { runtime.remove_event(task) };
        return attached;
    }
    if !POLLED.swap(true, Ordering::SeqCst) && !runtime.spawn(poll, c"mpix-rma poller") {
        POLLED.store(false, Ordering::SeqCst);
        log::error!("alpi_task_spawn failed: tasks that wait for requests do not complete");
    }
    Ok(())
}

/// The runtime and the current task, if a task may have its requests bound to it.
fn current() -> Option<(&'static alpi::Alpi, Task)> {
    if !multiple() {
        return None;
    }
    let runtime = alpi::runtime()?;
    Some((runtime, runtime.current()?))
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
    let Some((runtime, task)) = current() else {
        // SAFETY: the application's arguments, passed on.
        return unsafe { completion::MPI_Wait(request, status) };
    };
    call("MPIX_Task_iwait", || {
        // SAFETY: the contract of this call says so of `request` and `status`.
        let (request, statuses) = unsafe { (in_out(request), Statuses::new(status, 1)) };
        let Some(request) = request else {
            return Err(Fault::new(MPI_ERR_REQUEST, "request is NULL"));
        };
        bind(runtime, task, Some(std::slice::from_ref(request)), statuses)
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
    let Some((runtime, task)) = current() else {
        // SAFETY: the application's arguments, passed on.
        return unsafe { completion::MPI_Waitall(n, reqs, statuses) };
    };
    call("MPIX_Task_iwaitall", || {
        // SAFETY: the contract of this call says so of `reqs` and `statuses`.
        let (all, statuses) = unsafe { (list_or_empty(reqs, n), Statuses::new(statuses, n)) };
        bind(runtime, task, all, statuses)
    })
}

exports! {
    MPIX_Task_detach(
        n: c_int, reqs: *mut MPI_Request, statuses: *mut MPI_Status, event: openmp::Event);
    MPIX_Task_iwait(request: *mut MPI_Request, status: *mut MPI_Status);
    MPIX_Task_iwaitall(n: c_int, reqs: *mut MPI_Request, statuses: *mut MPI_Status);
}
