//! Tasks and requests.
//!
//! | module | what it does |
//! |---|---|
//! | [`alpi`] | the task-aware runtime in this process |
//! | [`poller`] | a task of this library that acts when the requests of other tasks are complete |
//! | [`pause`] | blocking calls that pause their task |

pub(crate) mod alpi;
pub(crate) mod pause;
mod poller;

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use self::alpi::{Alpi, AlpiTask, Task};
use crate::mpi::abi::error::Fault;
use crate::mpi::abi::status::Statuses;
use crate::mpi::abi::sys::*;
use crate::mpi::request::continuation::{self, Arguments, Function, Owner};
use crate::runtime::process::multiple;

/// Has a function of this library called when requests are complete. They are complete already if
/// they are MPI_REQUEST_NULL.
pub(crate) fn attach(
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

pub(crate) fn log_failed(error: c_int) {
    if error != MPI_SUCCESS {
        log::error!("a request that a task waits for has failed (error code {error})");
    }
}

/// The runtime and the current task, if there is one.
pub(crate) fn current() -> Option<(&'static Alpi, Task)> {
    if !multiple() {
        return None;
    }
    let runtime = alpi::runtime()?;
    Some((runtime, runtime.current()?))
}

/// Called by the poller.
unsafe extern "C" fn remove_event(error: c_int, task: *mut c_void) -> c_int {
    log_failed(error);
    if let (Some(runtime), Some(task)) = (alpi::runtime(), NonNull::new(task)) {
        // SAFETY: `bind` has added an event to this task.
        unsafe { runtime.remove_event(task.cast::<AlpiTask>()) };
    }
    MPI_SUCCESS
}

/// Keeps a task from completing before its requests.
pub(crate) fn bind(
    (runtime, task): (&'static Alpi, Task),
    requests: Option<&[Cell<MPI_Request>]>,
    statuses: Statuses<'_>,
) -> Result<(), Fault> {
    if !runtime.add_event(task) {
        let text = "the tasking runtime does not accept an event for this task";
        return Err(Fault::new(MPI_ERR_OTHER, text));
    }
    let data = task.as_ptr().cast::<c_void>();
    let attached = attach(Owner::Tasks, requests, statuses, remove_event, data);
    if attached.is_err() {
        // SAFETY: the event was added above, and nobody else removes it.
        unsafe { runtime.remove_event(task) };
        return attached;
    }
    // Often all requests are complete already.
    if continuation::run_ready_tasks() {
        poller::ensure(runtime);
    }
    Ok(())
}
