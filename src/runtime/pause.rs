//! Waits in tasks of a runtime that can pause them. The core runs other tasks meanwhile.
//!
//! Only the host glue knows what a task is, and gives this module two functions.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a wait needs to know of tasks.
#[derive(Clone, Copy)]
pub(crate) struct Tasks {
    /// Whether this thread runs a task that may be paused here.
    pub(crate) is_inside: fn() -> bool,
    /// Pauses the task for a moment.
    pub(crate) rest: fn(),
}

static TASKS: OnceLock<Tasks> = OnceLock::new();
/// Whether waits pause tasks.
static ENABLED: AtomicBool = AtomicBool::new(false);

/// From now on, waits pause tasks.
pub(crate) fn enable(tasks: Tasks) {
    // They are the same ones each time.
    let _ = TASKS.set(tasks);
    ENABLED.store(true, Ordering::Release);
}

/// Whether waits pause tasks.
#[inline(always)]
pub(crate) fn is_enabled() -> bool {
    ENABLED.load(Ordering::Relaxed)
}

/// Whether this thread runs a task that a wait may pause.
#[inline(always)]
pub(crate) fn in_task() -> bool {
    is_enabled() && is_inside()
}

#[cold]
#[inline(never)]
fn is_inside() -> bool {
    TASKS.get().is_some_and(|tasks| (tasks.is_inside)())
}

/// Pauses the current task for a moment.
#[cold]
pub(crate) fn rest() {
    if let Some(tasks) = TASKS.get() {
        (tasks.rest)();
    }
}
