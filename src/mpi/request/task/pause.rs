//! Blocking calls that pause their task, after `MPI_Init_thread` with `MPI_TASK_MULTIPLE`.
//!
//! A call that waits for requests pauses until a continuation resumes its task: nothing looks for
//! it. Other waits pause for a moment between two looks ([`crate::runtime::pause`]) [CO-4].

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use super::alpi::{self, Task};
use super::{attach, current, poller};
use crate::mpi::abi::host_calls;
use crate::mpi::abi::status::{Status, Statuses, blank};
use crate::mpi::abi::sys::*;
use crate::mpi::progress::drive;
use crate::mpi::request;
use crate::mpi::request::continuation::{self, Owner};
use crate::runtime::enter;
use crate::runtime::pause::{Tasks, enable};
pub(crate) use crate::runtime::pause::{in_task, is_enabled};

/// The level that `mpix_task.h` adds to MPI's thread levels.
pub(crate) fn task_multiple() -> c_int {
    MPI_THREAD_MULTIPLE + 1
}

thread_local! {
    /// This thread's calls pause no tasks.
    static UNAWARE: Cell<bool> = const { Cell::new(false) };
}

/// Sets whether blocking calls of this thread pause its tasks. Returns what it was.
pub(crate) fn set_aware(aware: bool) -> bool {
    !UNAWARE.replace(!aware)
}

/// From now on, waits pause tasks. False if there is no runtime that can.
pub(crate) fn turn_on() -> bool {
    if alpi::runtime().is_none() {
        return false;
    }
    drive::pause_with(wait_for_host);
    enable(Tasks { is_inside: || here().is_some(), rest });
    true
}

/// The runtime and the task that a wait of this thread may pause.
fn here() -> Option<(&'static alpi::Alpi, Task)> {
    if UNAWARE.get() { None } else { current() }
}

/// Time between two looks of a wait for something other than requests.
const REST_NS: u64 = 50_000;

fn rest() {
    if let Some(runtime) = alpi::runtime() {
        runtime.sleep(REST_NS);
    }
}

/// A task that is paused until a continuation resumes it.
struct Paused {
    task: Task,
    error: AtomicI32,
    resumed: AtomicBool,
}

/// Called by the poller.
unsafe extern "C" fn resume(error: c_int, paused: *mut c_void) -> c_int {
    let Some(runtime) = alpi::runtime() else { return MPI_SUCCESS };
    // SAFETY: `until_complete` keeps it until `resumed` is set, and the task until `unblock`.
    unsafe {
        let paused = &*paused.cast::<Paused>();
        let task = paused.task;
        paused.error.store(error, Ordering::Relaxed);
        paused.resumed.store(true, Ordering::Release);
        runtime.unblock(task);
    }
    MPI_SUCCESS
}

/// Pauses the current task until requests are complete; they are MPI_REQUEST_NULL then. Returns the
/// first error code. `None`: no task may be paused here, or not for these requests.
fn until_complete(requests: &[Cell<MPI_Request>], statuses: Statuses<'_>) -> Option<c_int> {
    // A callback may run in the poller, which resumes the others.
    if continuation::is_running() {
        return None;
    }
    let (runtime, task) = here()?;
    let error = AtomicI32::new(MPI_SUCCESS);
    let paused = Paused { task, error, resumed: AtomicBool::new(false) };
    let data = (&raw const paused).cast_mut().cast::<c_void>();
    attach(Owner::Tasks, Some(requests), statuses, resume, data).ok()?;
    if continuation::run_ready_tasks() {
        poller::ensure(runtime);
    }
    let blocked = runtime.block(task);
    debug_assert!(blocked, "the runtime refuses its own current task");
    while !paused.resumed.load(Ordering::Acquire) {
        runtime.sleep(REST_NS);
    }
    Some(paused.error.load(Ordering::Relaxed))
}

/// Waits for a request of this library that only this call knows, or for one of the host.
fn wait_for_host(request: &Cell<MPI_Request>, status: Status<'_>) -> Option<c_int> {
    let mut flag = 0;
    let code = host_calls::test(request, &mut flag, status);
    if code != MPI_SUCCESS || flag != 0 {
        return Some(code);
    }
    let mut own = [blank()];
    let code = until_complete(std::slice::from_ref(request), Statuses::to(&mut own))?;
    status.copy(own[0]);
    Some(code)
}

/// Pauses until a pending request of this library is complete. False: it may be pending still.
pub(crate) fn wait_for_ours(request: MPI_Request) -> bool {
    until_complete(&[Cell::new(request)], Statuses::ignored()).is_some()
}

/// `MPI_Wait`. `None`, here and below: the call must wait in place.
pub(crate) fn wait(request: Option<&Cell<MPI_Request>>, status: Status<'_>) -> Option<c_int> {
    let request = request.filter(|request| request.get() != MPI_REQUEST_NULL)?;
    let ours = request::source(request.get()).is_some();
    if !ours && enter().persistent.is_known(request.get().key()) {
        // At the host it is an inactive request, whatever it is here.
        return None;
    }
    if !ours {
        return wait_for_host(request, status);
    }
    let code = until_complete(std::slice::from_ref(request), Statuses::ignored())?;
    status.fill_empty();
    if code != MPI_SUCCESS {
        host_calls::comm_call_errhandler(MPI_COMM_WORLD, code);
    }
    Some(code)
}

/// `MPI_Waitall`
pub(crate) fn wait_all(
    requests: Option<&[Cell<MPI_Request>]>,
    statuses: Statuses<'_>,
) -> Option<c_int> {
    let list = requests.filter(|list| !list.is_empty())?;
    let ours: Vec<bool> =
        list.iter().map(|request| request::source(request.get()).is_some()).collect();
    let mut own = vec![blank(); list.len()];
    let code = until_complete(list, Statuses::to(&mut own))?;
    for (status, own) in statuses.first(list.len()).zip(&own) {
        status.copy(*own);
    }
    if code == MPI_SUCCESS {
        return Some(MPI_SUCCESS);
    }
    for (status, own) in statuses.first(list.len()).zip(&own) {
        status.set_error(own.MPI_ERROR);
    }
    // Tests of the host's requests have raised their errors.
    let failed = |ours: bool, own: &MPI_Status| ours && own.MPI_ERROR != MPI_SUCCESS;
    if ours.iter().zip(&own).any(|(ours, own)| failed(*ours, own)) {
        host_calls::comm_call_errhandler(MPI_COMM_WORLD, MPI_ERR_IN_STATUS);
    }
    Some(MPI_ERR_IN_STATUS)
}
