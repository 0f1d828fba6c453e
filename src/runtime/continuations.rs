//! Continuations: functions of the application that run when requests have completed.
//!
//! A continuation belongs to a *continuation request*, which is complete when all of its
//! continuations have ended. Each waits for some operation requests. When the last of them
//! completes, it is *ready*, and a thread runs its callback, with neither the guard nor a lock
//! held. This is the bookkeeping alone: it calls nothing.
//!
//! A continuation becomes ready in the poll that completes its request, so nothing ever searches
//! for it. Those of an inactive continuation request wait for its start, and those of one that is
//! *poll-only* for a call that completes it [CO-3].

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

#[cfg(not(loom))]
use super::process::Own;
use crate::engine::slab::{Key, Slab};

/// A function of the application and its argument.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Callback {
    /// Called with an error code of MPI and `data`; returns an error code.
    pub(crate) function: unsafe extern "C" fn(c_int, *mut c_void) -> c_int,
    pub(crate) data: *mut c_void,
}

/// Names a continuation request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupId(Key);

/// Names a continuation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContinuationId(Key);

/// The properties of a continuation request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Properties {
    /// Only calls that complete the continuation request run its continuations.
    pub poll_only: bool,
    /// The library's own thread may run its continuations too.
    pub on_any_thread: bool,
    /// Most continuations that one test of the continuation request runs.
    pub most_per_test: Option<u32>,
}

/// Whose thread runs continuations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thread {
    Application,
    Library,
}

/// The state of a continuation request (MPI-4.1 3.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupState {
    Inactive,
    /// Started, and a continuation has not ended.
    Active,
    Complete,
    /// All have ended, and one has failed: the error code of the first.
    Failed(c_int),
}

/// A continuation whose callback is to be called.
#[derive(Clone, Copy, Debug)]
pub struct Ready<C> {
    group: Key,
    pub callback: C,
    /// The argument of the callback.
    pub error: c_int,
}

/// `MPI_SUCCESS` of every host.
const SUCCESS: c_int = 0;

#[derive(Debug)]
struct Group<C> {
    properties: Properties,
    active: bool,
    /// The application has freed it. It exists until its continuations have ended.
    freed: bool,
    /// Continuations that have not ended.
    pending: usize,
    /// Ready continuations that wait for the start, or for a call that completes this request.
    held: VecDeque<Ready<C>>,
    /// Those that have failed, and the error of the first.
    failed: VecDeque<C>,
    error: c_int,
}

#[derive(Clone, Copy, Debug)]
struct Continuation<C> {
    group: Key,
    callback: C,
    /// Requests that are not complete.
    awaited: usize,
    /// The error of the first request that failed.
    error: c_int,
    /// Its callback is called even if a request has failed.
    despite_errors: bool,
}

/// Takes the first item of a queue, which gives its memory back when it is empty, unless that is
/// for few items.
fn pop<T>(queue: &mut VecDeque<T>) -> Option<T> {
    const KEPT: usize = 1024;
    let item = queue.pop_front();
    if queue.is_empty() && queue.capacity() > KEPT {
        *queue = VecDeque::new();
    }
    item
}

/// All continuations of this process, with callbacks of type `C`.
#[derive(Debug)]
pub struct Continuations<C> {
    groups: Slab<Group<C>>,
    waiting: Slab<Continuation<C>>,
    /// Ready continuations that any call may run, oldest first.
    ready: VecDeque<Ready<C>>,
    /// Those that the library's thread may run too.
    ready_for_all: VecDeque<Ready<C>>,
    /// Continuations that have not ended.
    pending: usize,
    /// Continuations that have ended; wraps around.
    ended: usize,
}

impl<C: Copy> Continuations<C> {
    #[allow(clippy::new_without_default, reason = "a constant, for the static")]
    pub const fn new() -> Self {
        Self {
            groups: Slab::new(),
            waiting: Slab::new(),
            ready: VecDeque::new(),
            ready_for_all: VecDeque::new(),
            pending: 0,
            ended: 0,
        }
    }

    /// Makes a continuation request, which is inactive.
    pub fn make_group(&mut self, properties: Properties) -> GroupId {
        GroupId(self.groups.insert(Group {
            properties,
            active: false,
            freed: false,
            pending: 0,
            held: VecDeque::new(),
            failed: VecDeque::new(),
            error: SUCCESS,
        }))
    }

    pub fn properties(&self, group: GroupId) -> Properties {
        self.groups.get(group.0).map_or_else(Properties::default, |group| group.properties)
    }

    /// Number of continuations that have not ended.
    pub fn pending(&self, group: GroupId) -> usize {
        self.groups.get(group.0).map_or(0, |group| group.pending)
    }

    pub fn state(&self, group: GroupId) -> GroupState {
        match self.groups.get(group.0) {
            Some(group) if !group.active => GroupState::Inactive,
            Some(group) if group.pending > 0 => GroupState::Active,
            Some(group) if group.error != SUCCESS => GroupState::Failed(group.error),
            Some(_) => GroupState::Complete,
            None => GroupState::Inactive,
        }
    }

    /// Starts a continuation request. False if it is not inactive.
    pub fn start(&mut self, group: GroupId) -> bool {
        let Some(started) = self.groups.get_mut(group.0) else { return false };
        if started.active {
            return false;
        }
        started.active = true;
        if !started.held.is_empty() {
            self.release(group.0);
        }
        true
    }

    /// Makes a continuation request inactive after a call has completed it. Its continuations that
    /// failed remain to be asked for.
    pub fn deactivate(&mut self, group: GroupId) {
        if let Some(group) = self.groups.get_mut(group.0) {
            group.active = false;
        }
    }

    /// Frees a continuation request. Its continuations run nevertheless, also if it was inactive or
    /// poll-only, since nobody can start or complete it any more.
    pub fn free(&mut self, group: GroupId) {
        let Some(freed) = self.groups.get_mut(group.0) else { return };
        freed.freed = true;
        self.release(group.0);
        self.remove_if_done(group.0);
    }

    /// Lets any call run what a continuation request has held, if it may.
    fn release(&mut self, key: Key) {
        let Some(group) = self.groups.get_mut(key) else { return };
        let mut held = std::mem::take(&mut group.held);
        if let Some(queue) = self.queue_of(key) {
            queue.append(&mut held);
        }
    }

    /// Where a continuation waits to be run.
    fn queue_of(&mut self, key: Key) -> Option<&mut VecDeque<Ready<C>>> {
        let group = self.groups.get_mut(key)?;
        Some(if !group.runs_in_any_call() {
            &mut group.held
        } else if group.properties.on_any_thread {
            &mut self.ready_for_all
        } else {
            &mut self.ready
        })
    }

    /// Adds a continuation that waits for `requests` requests. `None`: there is no such
    /// continuation request.
    pub fn add(
        &mut self,
        group: GroupId,
        callback: C,
        requests: usize,
        despite_errors: bool,
    ) -> Option<ContinuationId> {
        let owner = self.groups.get_mut(group.0).filter(|group| !group.freed)?;
        owner.pending += 1;
        self.pending += 1;
        let continuation = Continuation {
            group: group.0,
            callback,
            awaited: requests,
            error: SUCCESS,
            despite_errors,
        };
        Some(ContinuationId(self.waiting.insert(continuation)))
    }

    /// Adds a continuation whose requests are complete, and takes it. `None`: it must be added and
    /// wait for its turn, or there is no such continuation request.
    pub fn begin(&mut self, group: GroupId, callback: C) -> Option<Ready<C>> {
        if self.runnable() > 0 {
            return None;
        }
        let owner = self.groups.get_mut(group.0)?;
        if owner.freed || !owner.runs_in_any_call() {
            return None;
        }
        owner.pending += 1;
        self.pending += 1;
        Some(Ready { group: group.0, callback, error: SUCCESS })
    }

    /// Whether there is just one continuation that has not ended.
    pub(crate) fn is_alone(&self) -> bool {
        self.pending == 1
    }

    /// One of the requests that a continuation waits for is complete, with this error code. True if
    /// that makes the continuation ready, or ends it.
    pub fn request_completed(&mut self, id: ContinuationId, error: c_int) -> bool {
        let Some(continuation) = self.waiting.get_mut(id.0) else { return false };
        if continuation.error == SUCCESS {
            continuation.error = error;
        }
        continuation.awaited -= 1;
        if continuation.awaited > 0 {
            return false;
        }
        let Continuation { group, callback, error, despite_errors, .. } = *continuation;
        self.waiting.remove(id.0);
        let ready = Ready { group, callback, error };
        if error != SUCCESS && !despite_errors {
            self.ended(ready, error);
            return true;
        }
        if let Some(queue) = self.queue_of(group) {
            queue.push_back(ready);
        }
        true
    }

    /// Takes the oldest continuation that is ready for any call, to be run by this thread.
    pub fn take(&mut self, by: Thread) -> Option<Ready<C>> {
        match by {
            Thread::Application => pop(&mut self.ready).or_else(|| pop(&mut self.ready_for_all)),
            Thread::Library => pop(&mut self.ready_for_all),
        }
    }

    /// Takes a ready continuation for a call that completes this continuation request: one of its
    /// own if it is poll-only, otherwise any.
    pub fn take_for(&mut self, group: GroupId) -> Option<Ready<C>> {
        let own = match self.groups.get_mut(group.0) {
            Some(group) if group.active => pop(&mut group.held),
            _ => None,
        };
        own.or_else(|| self.take(Thread::Application))
    }

    /// The callback of a continuation has returned this error code, or the continuation has failed
    /// without being called.
    pub fn ended(&mut self, ended: Ready<C>, error: c_int) {
        let Some(group) = self.groups.get_mut(ended.group) else { return };
        group.pending -= 1;
        self.pending -= 1;
        self.ended = self.ended.wrapping_add(1);
        if error != SUCCESS {
            group.failed.push_back(ended.callback);
            if group.error == SUCCESS {
                group.error = error;
            }
        }
        if group.freed {
            self.remove_if_done(ended.group);
        }
    }

    fn remove_if_done(&mut self, key: Key) {
        if self.groups.get(key).is_some_and(|group| group.freed && group.pending == 0) {
            self.groups.remove(key);
        }
    }

    /// Takes the oldest continuation that has failed. After the last one, the continuation request
    /// counts as successful again.
    pub fn take_failed(&mut self, group: GroupId) -> Option<C> {
        let group = self.groups.get_mut(group.0)?;
        let failed = pop(&mut group.failed);
        if group.failed.is_empty() {
            group.error = SUCCESS;
        }
        failed
    }

    /// Number of continuations that any call may run now.
    fn runnable(&self) -> usize {
        self.ready.len() + self.ready_for_all.len()
    }
}

impl<C> Group<C> {
    fn runs_in_any_call(&self) -> bool {
        self.freed || (self.active && !self.properties.poll_only)
    }
}

/// The continuations of this process.
// SAFETY: a callback and its argument are the application's, which lets any thread run it.
#[cfg(not(loom))]
static CONTINUATIONS: Own<Continuations<Callback>> = unsafe { Own::new(Continuations::new()) };
/// What [`Continuations::runnable`] has last returned.
static RUNNABLE: AtomicUsize = AtomicUsize::new(0);
/// Continuation requests that exist.
static GROUPS: AtomicUsize = AtomicUsize::new(0);
/// Continuations that have not ended.
static PENDING: AtomicUsize = AtomicUsize::new(0);
/// Continuations that have ended since the process began.
static ENDED: AtomicUsize = AtomicUsize::new(0);
/// Operation requests of the host that continuations wait for. Calls test them in turns.
static AT_HOST: AtomicUsize = AtomicUsize::new(0);

/// Runs `body`, which neither panics nor calls anything outside this module, on the continuations
/// of this process.
#[cfg(not(loom))]
pub(crate) fn with<R>(body: impl FnOnce(&mut Continuations<Callback>) -> R) -> R {
    CONTINUATIONS.with(|continuations| {
        let result = body(continuations);
        RUNNABLE.store(continuations.runnable(), Ordering::Relaxed);
        GROUPS.store(continuations.groups.len(), Ordering::Relaxed);
        PENDING.store(continuations.pending, Ordering::Relaxed);
        ENDED.store(continuations.ended, Ordering::Relaxed);
        result
    })
}

/// Loom tests make continuations of their own.
#[cfg(loom)]
pub(crate) fn with<R>(_: impl FnOnce(&mut Continuations<Callback>) -> R) -> R {
    unreachable!("no process is modelled")
}

/// Runs continuations that are ready for such a thread. Set before the first one exists.
static RUNNER: OnceLock<fn(Thread) -> bool> = OnceLock::new();

/// Sets what [`run`] calls.
pub(crate) fn set_runner(runner: fn(Thread) -> bool) {
    // It is the same one each time.
    let _ = RUNNER.set(runner);
}

/// Runs continuations, and tests requests of the host for them. The caller holds neither the guard
/// nor a lock, and the host lets it call MPI here. True if anything moved.
#[inline]
pub(crate) fn run(by: Thread) -> bool {
    any_to_run() && run_now(by)
}

/// Whether [`run`] has anything to do.
#[inline(always)]
pub(crate) fn any_to_run() -> bool {
    any_runnable() || any_at_host()
}

#[cold]
#[inline(never)]
fn run_now(by: Thread) -> bool {
    RUNNER.get().is_some_and(|runner| runner(by))
}

/// Sets how many requests of the host continuations wait for.
pub(crate) fn note_at_host(number: usize) {
    AT_HOST.store(number, Ordering::Relaxed);
}

/// Whether a continuation is ready to be run by any call.
#[inline(always)]
pub(crate) fn any_runnable() -> bool {
    RUNNABLE.load(Ordering::Relaxed) != 0
}

/// Whether there are continuation requests.
#[inline(always)]
pub(crate) fn any_groups() -> bool {
    GROUPS.load(Ordering::Relaxed) != 0
}

/// Number of continuations that have not ended.
#[inline(always)]
pub(crate) fn pending() -> usize {
    PENDING.load(Ordering::Relaxed)
}

/// A number that changes whenever a continuation ends.
#[inline(always)]
pub(crate) fn ended() -> usize {
    ENDED.load(Ordering::Relaxed)
}

/// Whether continuations wait for requests of the host.
#[inline(always)]
pub(crate) fn any_at_host() -> bool {
    AT_HOST.load(Ordering::Relaxed) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAILED: c_int = 17;

    fn started(properties: Properties) -> (Continuations<char>, GroupId) {
        let mut all = Continuations::new();
        let group = all.make_group(properties);
        all.start(group);
        (all, group)
    }

    /// Runs all that any call may run; the callback of `fails` fails.
    fn run(all: &mut Continuations<char>, by: Thread, fails: Option<char>) -> String {
        let mut ran = String::new();
        while let Some(ready) = all.take(by) {
            ran.push(ready.callback);
            all.ended(ready, if fails == Some(ready.callback) { FAILED } else { SUCCESS });
        }
        ran
    }

    #[test]
    fn a_continuation_is_ready_when_its_last_request_is_complete() {
        let (mut all, group) = started(Properties::default());
        assert_eq!(all.state(group), GroupState::Complete, "it has no continuation");
        let two = all.add(group, 'a', 2, false).expect("the request exists");
        assert_eq!(all.state(group), GroupState::Active);
        assert!(!all.request_completed(two, SUCCESS));
        assert_eq!(run(&mut all, Thread::Application, None), "");
        assert!(all.request_completed(two, SUCCESS));
        assert!(!all.request_completed(two, SUCCESS), "it waits for nothing any more");
        assert_eq!(all.state(group), GroupState::Active, "the callback has not run");
        assert_eq!(run(&mut all, Thread::Application, None), "a");
        assert_eq!(all.state(group), GroupState::Complete);
    }

    #[test]
    fn continuations_run_in_the_order_in_which_they_became_ready() {
        let (mut all, group) = started(Properties::default());
        let ids = ['a', 'b', 'c'].map(|name| all.add(group, name, 1, false).expect("exists"));
        for at in [2, 0, 1] {
            all.request_completed(ids[at], SUCCESS);
        }
        assert_eq!(run(&mut all, Thread::Application, None), "cab");
    }

    #[test]
    fn an_inactive_request_holds_its_continuations_until_it_is_started() {
        let mut all = Continuations::new();
        let group = all.make_group(Properties::default());
        let id = all.add(group, 'a', 1, false).expect("the request exists");
        all.request_completed(id, SUCCESS);
        assert_eq!(run(&mut all, Thread::Application, None), "");
        assert_eq!(all.state(group), GroupState::Inactive);
        all.start(group);
        assert_eq!(all.state(group), GroupState::Active);
        assert_eq!(run(&mut all, Thread::Application, None), "a");
        all.deactivate(group);
        assert_eq!(all.state(group), GroupState::Inactive);
    }

    #[test]
    fn poll_only_continuations_run_for_their_own_request_alone() {
        let (mut all, group) = started(Properties { poll_only: true, ..Properties::default() });
        let other = all.make_group(Properties::default());
        let id = all.add(group, 'a', 1, false).expect("the request exists");
        all.request_completed(id, SUCCESS);
        assert_eq!(run(&mut all, Thread::Application, None), "");
        assert!(all.take_for(other).is_none());
        let ready = all.take_for(group).expect("it is ready");
        all.ended(ready, SUCCESS);
        assert_eq!(all.state(group), GroupState::Complete);
    }

    #[test]
    fn the_librarys_thread_runs_only_what_it_may() {
        let (mut all, group) = started(Properties::default());
        let for_all = all.make_group(Properties { on_any_thread: true, ..Properties::default() });
        all.start(for_all);
        for (group, name) in [(group, 'a'), (for_all, 'b')] {
            let id = all.add(group, name, 1, false).expect("the request exists");
            all.request_completed(id, SUCCESS);
        }
        assert_eq!(run(&mut all, Thread::Library, None), "b");
        assert_eq!(run(&mut all, Thread::Application, None), "a");
    }

    #[test]
    fn a_failed_request_ends_the_continuation_without_a_call_unless_it_wants_one() {
        let (mut all, group) = started(Properties::default());
        let ids = [('a', false), ('b', true)]
            .map(|(name, despite_errors)| all.add(group, name, 2, despite_errors).expect("exists"));
        for id in ids {
            all.request_completed(id, FAILED);
            all.request_completed(id, FAILED + 1);
        }
        let called = all.take(Thread::Application).expect("b is ready");
        assert_eq!((called.callback, called.error), ('b', FAILED));
        all.ended(called, SUCCESS);
        assert_eq!(all.state(group), GroupState::Failed(FAILED));
        assert_eq!(all.take_failed(group), Some('a'));
        assert_eq!(all.take_failed(group), None);
        assert_eq!(all.state(group), GroupState::Complete);
    }

    #[test]
    fn a_callback_that_fails_is_kept_to_be_asked_for() {
        let (mut all, group) = started(Properties::default());
        for name in ['a', 'b', 'c'] {
            let id = all.add(group, name, 1, false).expect("the request exists");
            all.request_completed(id, SUCCESS);
        }
        assert_eq!(run(&mut all, Thread::Application, Some('b')), "abc");
        assert_eq!(all.state(group), GroupState::Failed(FAILED));
        assert_eq!(all.take_failed(group), Some('b'));
    }

    #[test]
    fn a_continuation_begins_at_once_unless_others_are_ready_or_it_may_not_run() {
        let (mut all, group) = started(Properties::default());
        let begun = all.begin(group, 'a').expect("nothing else is ready");
        assert_eq!(all.state(group), GroupState::Active, "its callback has not returned");
        let first = all.add(group, 'b', 1, false).expect("the request exists");
        all.request_completed(first, SUCCESS);
        assert!(all.begin(group, 'c').is_none(), "b goes first");
        all.ended(begun, SUCCESS);
        assert_eq!(run(&mut all, Thread::Application, None), "b");
        assert_eq!(all.state(group), GroupState::Complete);
        all.deactivate(group);
        assert!(all.begin(group, 'd').is_none(), "the request is inactive");
        all.free(group);
        assert!(all.begin(group, 'e').is_none(), "the request was freed");
        let (mut all, group) = started(Properties { poll_only: true, ..Properties::default() });
        assert!(all.begin(group, 'f').is_none(), "only its own calls run it");
        assert_eq!((all.pending, all.runnable()), (0, 0));
    }

    #[test]
    fn a_freed_request_exists_until_its_continuations_have_run() {
        for properties in
            [Properties::default(), Properties { poll_only: true, ..Properties::default() }]
        {
            let mut all = Continuations::new();
            let group = all.make_group(properties);
            let ids = ['a', 'b'].map(|name| all.add(group, name, 1, false).expect("exists"));
            all.request_completed(ids[0], SUCCESS);
            all.free(group);
            assert_eq!(all.add(group, 'c', 1, false), None);
            all.request_completed(ids[1], SUCCESS);
            assert_eq!(run(&mut all, Thread::Application, None), "ab");
            assert_eq!((all.groups.len(), all.waiting.len()), (0, 0));
        }
    }
}
