//! Calls the callbacks of continuations [CO-2].
//!
//! They run at the ends of calls of the application, in waits, and in hooks of hosts that let them
//! call MPI there; never while this thread holds the guard or a lock. A callback may make any call.
//! But no continuation runs inside another one in the same thread, so a callback that waits for a
//! second one waits for another thread.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::at_host;
use crate::mpi::abi::host_calls;
use crate::mpi::abi::status::Status;
use crate::mpi::abi::sys::{MPI_Request, MPI_SUCCESS};
use crate::mpi::progress::drive;
use crate::runtime::continuations::{
    self, Callback, GroupId, GroupState, Ready, Thread, any_at_host, any_runnable,
};
use crate::runtime::enter;
use crate::runtime::progress::step;

/// Most continuations that one call runs, so that it ends even if each makes the next one ready.
const PER_CALL: u32 = 64;
/// Calls between two turns of requests of the host: a turn takes as long as ten puts.
const CALLS_PER_TURN: u32 = 32;
/// Time after which a wait is logged.
const LONG_WAIT: Duration = Duration::from_secs(2);

thread_local! {
    /// This thread runs a callback, or tests requests of the host.
    static RUNNING: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread runs a callback.
pub(crate) fn is_running() -> bool {
    RUNNING.get()
}

/// Runs `body`, unless this thread is in it already.
fn once<R>(body: impl FnOnce() -> R) -> Option<R> {
    if RUNNING.replace(true) {
        return None;
    }
    let result = body();
    RUNNING.set(false);
    Some(result)
}

/// Calls the callback of a continuation.
fn call(ready: Ready<Callback>) {
    let Callback { function, data } = ready.callback;
    // SAFETY: the application passed this function to be called, once, with this argument.
    let code = unsafe { function(ready.error, data) };
    continuations::with(|all| all.ended(ready, code));
}

/// Runs a continuation of a request that the host has made complete, at once. False: it must wait
/// for its turn.
pub(super) fn at_once(
    group: GroupId,
    callback: Callback,
    request: &Cell<MPI_Request>,
    status: Status<'_>,
) -> bool {
    let ran = once(|| {
        let Some(begun) = continuations::with(|all| all.begin(group, callback)) else {
            return false;
        };
        host_calls::wait(request, if status.is_ignored() { Status::ignored() } else { status });
        status.set_error(MPI_SUCCESS);
        call(begun);
        true
    });
    ran.unwrap_or(false)
}

/// Tests requests of the host, and runs continuations that are ready. True if there were any.
pub(super) fn run(by: Thread) -> bool {
    let ran = once(|| {
        let mut any = any_at_host() && at_host::take_turn();
        for _ in 0..PER_CALL {
            if !any_runnable() {
                break;
            }
            let Some(ready) = continuations::with(|all| all.take(by)) else { break };
            call(ready);
            any = true;
        }
        any
    });
    ran.unwrap_or(false)
}

/// Runs continuations at the end of a call, and now and then tests requests of the host.
#[inline]
pub(crate) fn after_call() {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    if any_runnable() {
        run(Thread::Application);
    } else if any_at_host() {
        let calls = CALLS.load(Ordering::Relaxed).wrapping_add(1);
        CALLS.store(calls, Ordering::Relaxed);
        if calls.is_multiple_of(CALLS_PER_TURN) {
            run(Thread::Application);
        }
    }
}

/// Runs continuations for a call that completes a continuation request, at most `most`.
fn run_for(group: GroupId, most: u32) {
    once(|| {
        if any_at_host() {
            at_host::take_turn();
        }
        run_some(group, most);
    });
}

/// As [`run_for`], without a look at requests of the host.
pub(super) fn run_ready(group: GroupId, most: u32) {
    once(|| run_some(group, most));
}

fn run_some(group: GroupId, most: u32) {
    for _ in 0..most {
        let Some(ready) = continuations::with(|all| all.take_for(group)) else { break };
        call(ready);
    }
}

/// Makes progress for a test of a continuation request, and runs as many continuations as it lets a
/// test run.
pub(crate) fn test(group: GroupId) {
    step(enter());
    let most = continuations::with(|all| all.properties(group)).most_per_test;
    run_for(group, most.unwrap_or(u32::MAX));
}

/// Waits for a continuation request, if it is active. Returns its state.
pub(crate) fn wait(group: GroupId) -> GroupState {
    let (state, poll_only) =
        continuations::with(|all| (all.state(group), all.properties(group).poll_only));
    if state != GroupState::Active {
        return state;
    }
    let mut long = LongWait::default();
    let mut ended = None;
    drive::until(|| {
        if poll_only || any_runnable() || any_at_host() {
            run_for(group, PER_CALL);
        }
        // The state changes only if a continuation ends.
        let before = ended.replace(continuations::ended());
        if before != ended {
            let state = continuations::with(|all| all.state(group));
            if state != GroupState::Active {
                return Some(state);
            }
        }
        long.note(group);
        None
    })
}

/// Logs a wait that lasts long, once.
#[derive(Default)]
struct LongWait {
    polls: u32,
    since: Option<Instant>,
    logged: bool,
}

impl LongWait {
    const POLLS_PER_CLOCK: u32 = 256;

    #[allow(clippy::disallowed_methods, reason = "only to say how long a wait has lasted")]
    fn note(&mut self, group: GroupId) {
        self.polls += 1;
        if self.logged || !self.polls.is_multiple_of(Self::POLLS_PER_CLOCK) {
            return;
        }
        let now = Instant::now();
        let since = *self.since.get_or_insert(now);
        if now.duration_since(since) < LONG_WAIT {
            return;
        }
        self.logged = true;
        let pending = continuations::with(|all| all.pending(group));
        let inside = if RUNNING.get() {
            "; the wait is inside a callback, in which this thread runs no other"
        } else {
            ""
        };
        log::info!(
            "a wait for a continuation request has lasted {LONG_WAIT:?}: {pending} continuations \
             have not ended{inside}"
        );
    }
}
