//! How the host and we drive each other's progress [PR-1].
//!
//! | host | what runs our progress in its calls | how a waiting call of ours runs its progress |
//! |---|---|---|
//! | Open MPI | `opal_progress_register` | `opal_progress` |
//! | MPICH from 4.3 | `MPIX_Async_start` | `MPIX_Stream_progress` |
//! | MPICH before | interposed calls (`blocking`), poll functions of `MPIX_Grequest_start` | `MPI_Request_get_status` of a receive of our own |
//!
//! A hook is registered while windows, continuation requests or persistent collectives of this
//! library exist. It runs inside calls of the host, so it never waits and never enters the runtime
//! twice. Under `MPI_THREAD_MULTIPLE` it does not run the host's progress either, because MPICH 5
//! aborts the job then. So it cannot receive messages, and a job that sends messages waits in loops
//! of its own (`drive`). All these functions are looked up at run time, so one build serves every
//! version of a host.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::panic::catch_unwind;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use crate::mpi::abi::host::resolve;
use crate::mpi::abi::host_calls;
use crate::mpi::abi::status::Status;
use crate::mpi::abi::sys::*;
use crate::runtime::collectives;
use crate::runtime::continuations::{self, Thread};
use crate::runtime::process::{is_outside, multiple};
use crate::runtime::progress;

// The host's functions that take no memory of the caller are safe to call at any time between
// MPI_Init and MPI_Finalize. So are our callbacks, which ignore their arguments.
type OpalCallback = extern "C" fn() -> c_int;
type OpalRegister = extern "C" fn(OpalCallback) -> c_int;
type AsyncPoll = extern "C" fn(*mut c_void) -> c_int;
type AsyncStart = extern "C" fn(AsyncPoll, *mut c_void, c_int) -> c_int;
type Query = unsafe extern "C" fn(*mut c_void, *mut MPI_Status) -> c_int;
type Free = unsafe extern "C" fn(*mut c_void) -> c_int;
type Cancel = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;
type GrequestPoll = unsafe extern "C" fn(*mut c_void, *mut MPI_Status) -> c_int;
type GrequestWait = unsafe extern "C" fn(c_int, *mut *mut c_void, f64, *mut MPI_Status) -> c_int;
/// `MPIX_Grequest_start` of MPICH.
pub(crate) type GrequestStart = unsafe extern "C" fn(
    Query,
    Free,
    Cancel,
    GrequestPoll,
    GrequestWait,
    *mut c_void,
    *mut MPI_Request,
) -> c_int;

/// Optional functions that this host has.
#[derive(Default)]
struct Optional {
    opal_register: Option<OpalRegister>,
    opal_unregister: Option<OpalRegister>,
    opal_progress: Option<extern "C" fn()>,
    async_start: Option<AsyncStart>,
    stream_progress: Option<extern "C" fn(c_int) -> c_int>,
    grequest_start: Option<GrequestStart>,
}

static OPTIONAL: OnceLock<Optional> = OnceLock::new();

/// `MPIX_STREAM_NULL` of every MPICH that has streams.
const STREAM_NULL: c_int = 0x3c00_0000;
/// What an async hook returns to be called again, or to be removed.
const ASYNC_AGAIN: c_int = 0;
const ASYNC_DONE: c_int = 1;

fn optional() -> &'static Optional {
    OPTIONAL.get_or_init(|| {
        // SAFETY: the types are those of the hosts' headers and sources, and safe where the comment
        // on `OpalCallback` says so.
        unsafe {
            Optional {
                opal_register: resolve(c"opal_progress_register"),
                opal_unregister: resolve(c"opal_progress_unregister"),
                opal_progress: resolve(c"opal_progress"),
                async_start: resolve(c"MPIX_Async_start"),
                stream_progress: resolve(c"MPIX_Stream_progress"),
                grequest_start: resolve(c"MPIX_Grequest_start"),
            }
        }
    })
}

/// `MPIX_Grequest_start` with our poll and wait functions, on a host where only they run our
/// progress for pending requests.
pub(crate) fn polled_requests() -> Option<(GrequestStart, GrequestPoll, GrequestWait)> {
    if exists() {
        return None;
    }
    optional()
        .grequest_start
        .map(|start| (start, poll_request as GrequestPoll, wait_requests as GrequestWait))
}

/// True if the host has a progress hook.
pub(crate) fn exists() -> bool {
    let optional = optional();
    optional.async_start.is_some()
        || (optional.opal_register.is_some() && optional.opal_unregister.is_some())
}

/// True if the hook may run the host's progress, so that all calls of the host receive our
/// messages.
pub(crate) fn takes_messages() -> bool {
    exists() && !(optional().async_start.is_some() && multiple())
}

/// What runs our progress, for the log.
pub(crate) fn describe() -> &'static str {
    let optional = optional();
    if optional.opal_register.is_some() {
        "opal_progress_register"
    } else if optional.async_start.is_some() {
        "MPIX_Async_start"
    } else if optional.grequest_start.is_some() {
        "interposed calls and MPIX_Grequest_start"
    } else {
        "interposed calls"
    }
}

const OFF: u8 = 0;
const ON: u8 = 1;
/// The async hook returns "done" at its next call.
const LEAVING: u8 = 2;
static HOOK: AtomicU8 = AtomicU8::new(OFF);

/// Registers the hook: the first window exists, a continuation request or a persistent collective.
pub(crate) fn turn_on() {
    let optional = optional();
    if let Some(register) = optional.opal_register {
        if HOOK.swap(ON, Ordering::AcqRel) == OFF {
            register(opal_hook);
        }
    } else if let Some(start) = optional.async_start {
        // A hook that was to leave but has not been called since stays registered.
        if HOOK.swap(ON, Ordering::AcqRel) == OFF {
            let status = start(async_hook, std::ptr::null_mut(), STREAM_NULL);
            if status != MPI_SUCCESS {
                HOOK.store(OFF, Ordering::Release);
                log::error!(
                    "MPIX_Async_start failed with {status}: requests complete only in calls of \
                     this library"
                );
            }
        }
    }
}

/// Removes the hook, unless there are continuation requests or persistent collectives: no window
/// exists. An async hook leaves at its next call.
pub(crate) fn turn_off() {
    if !continuations::any_groups() && !collectives::any_alive() {
        remove();
    }
}

fn remove() {
    let optional = optional();
    if let Some(unregister) = optional.opal_unregister {
        if HOOK.swap(OFF, Ordering::AcqRel) == ON {
            unregister(opal_hook);
        }
    } else if optional.async_start.is_some() {
        let _ = HOOK.compare_exchange(ON, LEAVING, Ordering::AcqRel, Ordering::Acquire);
    }
}

/// Removes the hook for good. `MPI_Finalize` would wait forever for an async hook.
pub(crate) fn remove_and_wait() {
    remove();
    while HOOK.load(Ordering::Acquire) == LEAVING {
        progress_host();
    }
}

extern "C" fn opal_hook() -> c_int {
    // The host calls this each time it polls, so what it costs delays all messages.
    let finds_nothing = progress::finds_nothing();
    if finds_nothing && !continuations::any_to_run() {
        return 0;
    }
    let moved = catch_unwind(|| {
        let moved = !finds_nothing && progress::sweep_found();
        // This host lets its progress callbacks call MPI. But if a call of this library is on the
        // stack, it holds the guard.
        moved | (is_outside() && continuations::run(Thread::Application))
    });
    c_int::from(moved.unwrap_or(false))
}

thread_local! {
    /// This thread is in a callback in which the host's progress must not run.
    static RESTRICTED: Cell<bool> = const { Cell::new(false) };
}

/// True inside hooks and poll functions, where the host's progress must not run.
pub(crate) fn is_restricted() -> bool {
    RESTRICTED.get()
}

/// A sweep that does not run the host's progress.
fn restricted_sweep() {
    let before = RESTRICTED.replace(true);
    let _ = catch_unwind(progress::sweep_from_hook);
    RESTRICTED.set(before);
}

extern "C" fn async_hook(_: *mut c_void) -> c_int {
    if HOOK.compare_exchange(LEAVING, OFF, Ordering::AcqRel, Ordering::Acquire).is_ok() {
        return ASYNC_DONE;
    }
    if multiple() {
        restricted_sweep();
    } else {
        let _ = catch_unwind(|| {
            progress::sweep_from_hook();
            if is_outside() {
                continuations::run(Thread::Application);
            }
        });
    }
    ASYNC_AGAIN
}

/// A loop of this library (`drive`) runs all progress, so the poll functions need not.
static LOOPING: AtomicBool = AtomicBool::new(false);

/// Sets whether such a loop runs; returns the previous value.
pub(crate) fn set_looping(looping: bool) -> bool {
    // Not an exchange, which would wait for stores to cache lines of other processes. If threads
    // race here, a poll function sweeps once more, or leaves it to the loop of another thread.
    let before = LOOPING.load(Ordering::Relaxed);
    LOOPING.store(looping, Ordering::Relaxed);
    before
}

/// Called by MPICH's Test calls, with its own locks held: one sweep, no call into the host.
unsafe extern "C" fn poll_request(_: *mut c_void, _: *mut MPI_Status) -> c_int {
    if !LOOPING.load(Ordering::Relaxed) {
        restricted_sweep();
    }
    MPI_SUCCESS
}

/// Called by MPICH's Wait calls, which make no progress of their own meanwhile: one sweep, or one
/// step of the host's progress.
unsafe extern "C" fn wait_requests(
    _: c_int,
    _: *mut *mut c_void,
    _: f64,
    _: *mut MPI_Status,
) -> c_int {
    let _ = catch_unwind(|| {
        if !progress::sweep_from_hook() {
            progress_host();
            std::thread::yield_now();
        }
    });
    MPI_SUCCESS
}

/// Runs the host's progress once. Never called from a hook.
pub(crate) fn progress_host() {
    let optional = optional();
    if let Some(progress) = optional.opal_progress {
        progress();
    } else if let Some(progress) = optional.stream_progress {
        // The null stream stands for all of the host's progress.
        progress(STREAM_NULL);
    } else {
        let receive = RECEIVE.load(Ordering::Relaxed);
        if receive == NO_RECEIVE {
            return;
        }
        // It never completes, so the host's whole progress runs. (MPI_Iprobe on a communicator of
        // this process alone does not progress messages that MPICH sends over UCX.)
        let mut flag = 0;
        host_calls::request_get_status(MPI_Request::of(receive), &mut flag);
    }
}

/// The receive that [`progress_host`] asks about if the host has no progress function.
static RECEIVE: AtomicU64 = AtomicU64::new(NO_RECEIVE);
/// No receive yet: a process without `MPI_Init`, before its first window.
const NO_RECEIVE: u64 = 0;

/// Sets the communicator of this process alone that [`progress_host`] uses, on which no message is
/// ever sent. It must live until another one, or `None`, is set.
pub(crate) fn use_comm(comm: Option<MPI_Comm>) {
    let before = RECEIVE.swap(NO_RECEIVE, Ordering::Relaxed);
    if before != NO_RECEIVE {
        let request = Cell::new(MPI_Request::of(before));
        host_calls::cancel(&request);
        host_calls::wait(&request, Status::ignored());
    }
    let optional = optional();
    let has_function = optional.opal_progress.is_some() || optional.stream_progress.is_some();
    // On MPI_COMM_SELF, the application may send messages.
    if let Some(comm) = comm.filter(|comm| *comm != MPI_COMM_SELF && !has_function) {
        let mut request = MPI_REQUEST_NULL;
        if host_calls::irecv_nothing(comm, &mut request) == MPI_SUCCESS {
            RECEIVE.store(request.key(), Ordering::Relaxed);
        }
    }
}
