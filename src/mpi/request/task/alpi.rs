//! The task-aware runtime in this process, found at run time: one that implements ALPI, as nOS-V,
//! Nanos6, NODES and OpenMP-V do.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{NonNull, null, null_mut};
use std::sync::OnceLock;

use crate::mpi::abi::host::loaded;

/// `struct alpi_task`, which is opaque.
pub(crate) enum AlpiTask {}
/// A task.
pub(crate) type Task = NonNull<AlpiTask>;

type Body = unsafe extern "C" fn(*mut c_void);
type VersionGet = unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int;
type VersionCheck = unsafe extern "C" fn(c_int, c_int) -> c_int;
type TaskSelf = unsafe extern "C" fn(*mut *mut AlpiTask) -> c_int;
type Pause = unsafe extern "C" fn(*mut AlpiTask) -> c_int;
type Events = unsafe extern "C" fn(*mut AlpiTask, u64) -> c_int;
type WaitFor = unsafe extern "C" fn(u64, *mut u64) -> c_int;
type Spawn = unsafe extern "C" fn(
    Body,
    *mut c_void,
    Body,
    *mut c_void,
    *const c_char,
    *const c_void,
) -> c_int;

/// The version whose functions are used here. Later minor versions have them too.
const VERSION: (c_int, c_int) = (1, 0);

/// The functions of the runtime.
pub(crate) struct Alpi {
    task_self: TaskSelf,
    block: Pause,
    unblock: Pause,
    events_increase: Events,
    events_decrease: Events,
    wait_for: WaitFor,
    spawn: Spawn,
}

/// The runtime, if there is one of a version that this library knows.
pub(crate) fn runtime() -> Option<&'static Alpi> {
    static FOUND: OnceLock<Option<Alpi>> = OnceLock::new();
    // SAFETY: the types are those of alpi.h, and the version is checked before other calls.
    FOUND.get_or_init(|| unsafe { find() }).as_ref()
}

/// # Safety
/// Functions with ALPI's names have its types.
unsafe fn find() -> Option<Alpi> {
    // SAFETY: the contract of this function; the numbers are written before the calls return.
    unsafe {
        let get: VersionGet = loaded(c"alpi_version_get")?;
        let check: VersionCheck = loaded(c"alpi_version_check")?;
        let (mut major, mut minor) = (0, 0);
        get(&raw mut major, &raw mut minor);
        if check(VERSION.0, VERSION.1) != 0 {
            log::warn!(
                "the tasking runtime has ALPI {major}.{minor}, but this library needs {}.{} or a \
                 later {}: calls in tasks wait in place",
                VERSION.0,
                VERSION.1,
                VERSION.0
            );
            return None;
        }
        log::info!("tasks: the tasking runtime has ALPI {major}.{minor}");
        Some(Alpi {
            task_self: loaded(c"alpi_task_self")?,
            block: loaded(c"alpi_task_block")?,
            unblock: loaded(c"alpi_task_unblock")?,
            events_increase: loaded(c"alpi_task_events_increase")?,
            events_decrease: loaded(c"alpi_task_events_decrease")?,
            wait_for: loaded(c"alpi_task_waitfor_ns")?,
            spawn: loaded(c"alpi_task_spawn")?,
        })
    }
}

impl Alpi {
    /// The task that this thread runs.
    pub(crate) fn current(&self) -> Option<Task> {
        let mut task = null_mut();
        // SAFETY: the address is written before the call returns.
        unsafe { (self.task_self)(&raw mut task) };
        NonNull::new(task)
    }

    /// Pauses the current task, which is `task`, until [`unblock`](Self::unblock). True if it was.
    pub(super) fn block(&self, task: Task) -> bool {
        // SAFETY: a task of `current`.
        unsafe { (self.block)(task.as_ptr()) == 0 }
    }

    /// Lets a task go on that is paused or about to be, once for each [`block`](Self::block).
    ///
    /// # Safety
    /// The task has not ended.
    pub(super) unsafe fn unblock(&self, task: Task) {
        // SAFETY: the contract of this function.
        let error = unsafe { (self.unblock)(task.as_ptr()) };
        if error != 0 {
            log::error!("alpi_task_unblock failed with {error}");
        }
    }

    /// Keeps the current task, which is `task`, from completing until an event more. False if the
    /// runtime refuses.
    pub(crate) fn add_event(&self, task: Task) -> bool {
        // SAFETY: a task of `current`.
        unsafe { (self.events_increase)(task.as_ptr(), 1) == 0 }
    }

    /// The inverse of [`add_event`](Self::add_event). Some runtimes let only their tasks call it.
    ///
    /// # Safety
    /// The task has an event of `add_event`.
    pub(crate) unsafe fn remove_event(&self, task: Task) {
        // SAFETY: the contract of this function.
        let error = unsafe { (self.events_decrease)(task.as_ptr(), 1) };
        if error != 0 {
            log::error!("alpi_task_events_decrease failed with {error}");
        }
    }

    /// Lets other tasks run for so many nanoseconds.
    pub(super) fn sleep(&self, nanoseconds: u64) {
        let mut slept = 0;
        // SAFETY: the number is written before the call returns.
        unsafe { (self.wait_for)(nanoseconds, &raw mut slept) };
    }

    /// Runs `body` in a task of its own. False if the runtime refuses.
    pub(super) fn spawn(&self, body: unsafe extern "C" fn(*mut c_void), label: &CStr) -> bool {
        unsafe extern "C" fn ended(_: *mut c_void) {}
        // SAFETY: both functions ignore their argument, and the label is a C string that lives as
        // long as the process.
        unsafe { (self.spawn)(body, null_mut(), ended, null_mut(), label.as_ptr(), null()) == 0 }
    }
}
