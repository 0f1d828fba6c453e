//! The poller: a task of this library that makes progress, removes events and resumes paused tasks.
//! Some runtimes let only their own tasks do that. It runs while a task waits for a request.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

use super::alpi::{self, Alpi};
use crate::mpi::request::continuation;

/// A poller runs, or is about to.
static RUNS: AtomicBool = AtomicBool::new(false);

/// Polls without a pause that the runtime can use otherwise: as long as a hand-over takes.
const EAGER: u32 = 64;
/// The first and the longest pause between two polls after that. The processor runs other tasks.
const FIRST_NS: u64 = 1_000;
const LONGEST_NS: u64 = 50_000;

/// Starts the poller unless it runs.
pub(super) fn ensure(runtime: &Alpi) {
    if !RUNS.swap(true, Ordering::SeqCst) && !runtime.spawn(poll, c"mpix-rma poller") {
        RUNS.store(false, Ordering::SeqCst);
        log::error!("alpi_task_spawn failed: tasks that wait for requests do not go on");
    }
}

/// The body of the poller.
unsafe extern "C" fn poll(_: *mut c_void) {
    let Some(runtime) = alpi::runtime() else { return };
    let (mut idle, mut pause) = (0, FIRST_NS);
    loop {
        if continuation::poll_tasks() {
            (idle, pause) = (0, FIRST_NS);
            // What has just become ready shall run.
            runtime.sleep(0);
            continue;
        }
        if continuation::tasks_wait() {
            idle += 1;
            if idle < EAGER + continuation::turns() {
                runtime.sleep(0);
            } else {
                runtime.sleep(pause);
                pause = (2 * pause).min(LONGEST_NS);
            }
            continue;
        }
        RUNS.store(false, Ordering::SeqCst);
        // A task may have come after the look and found a poller.
        if !continuation::tasks_wait() || RUNS.swap(true, Ordering::SeqCst) {
            return;
        }
    }
}
