//! One window of this process: its engine, its port, and the requests that are bound to it.

mod handles;
mod info;
mod known_targets;
mod last_counter;
mod lock_spin;
mod polls;

use std::num::NonZeroU32;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use hashbrown::HashMap;

use super::checked::note_change;
use super::fast_path::{self, Access, FastPath, MappedTarget};
use super::looks::{Lead, Spacing};
use super::process::{Host, multiple};
use super::recorded::Recorder;
use super::registry::Attendance;
use super::transport::{Transport, with_port};
use crate::engine::{self, Notified, Rank, RequestId, SyncError, Watch};
use crate::transport::shm::protocol::{AccumulateAddress, order_completed};

use handles::{Handles, only_copies};
use known_targets::KnownTargets;
use last_counter::LastCounter;
use lock_spin::LockSpin;

pub(crate) use info::{Attributes, Hints};
pub(super) use polls::POLLS_OF_A_RESTART;

/// A window handle of the host, as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct HostHandle(pub(crate) u64);

/// A pending request of the host, by the number that the host glue gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostRequest(pub(crate) NonZeroU32);

/// The result of a pending request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Completion {
    Success,
    /// An operation reached memory that its target has not attached. The log says where.
    NotAttached,
    /// The window is broken: a peer is unreachable, for this reason, or a malformed message was
    /// refused. The log names the peer.
    WindowBroken(Option<&'static str>),
}

/// Whose faults a request of the host reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// One operation.
    Operation,
    /// All operations to this target, or to all targets.
    Target(Option<Rank>),
}

/// The output arguments of a wait for counters: which counter, and its value, or the values of all.
/// Each may be NULL.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CounterOutput {
    index: *mut libc::c_int,
    value: *mut i64,
    values: *mut i64,
}

impl CounterOutput {
    /// # Safety
    /// Each is NULL, or points to memory for its type that nobody else accesses until the call
    /// returns and the request that it makes is complete.
    pub(crate) unsafe fn new(index: *mut libc::c_int, value: *mut i64) -> Self {
        Self { index, value, ..Self::none() }
    }

    /// For a wait for all of some counters.
    ///
    /// # Safety
    /// As [`new`](Self::new); `values` has a place for each counter.
    pub(crate) unsafe fn of_list(values: *mut i64) -> Self {
        Self { values, ..Self::none() }
    }

    /// For a call without output arguments.
    pub(crate) fn none() -> Self {
        Self { index: null_mut(), value: null_mut(), values: null_mut() }
    }

    fn is_none(self) -> bool {
        self.index.is_null() && self.value.is_null() && self.values.is_null()
    }

    pub(crate) fn write(self, found: Notified) {
        if !self.index.is_null() {
            // SAFETY: `new` was given memory for it; nobody writes after the request is complete.
            unsafe { self.index.write(found.index as libc::c_int) };
        }
        if !self.value.is_null() {
            // SAFETY: `new` was given memory for it; nobody writes after the request is complete.
            unsafe { self.value.write(found.value as i64) };
        }
    }

    pub(crate) fn write_all(self, values: &[u64]) {
        if !self.values.is_null() {
            for (at, value) in values.iter().enumerate() {
                // SAFETY: `of_list` was given a place for each; nobody writes after the request is
                // complete.
                unsafe { self.values.add(at).write(*value as i64) };
            }
        }
    }
}

/// Waits for counters that one sweep looks at: some 50 ns.
const WAITS_PER_SWEEP: usize = 32;

/// One window that we serve.
#[derive(Debug)]
pub(crate) struct Window {
    /// Decides when operations are posted and requests complete.
    pub(crate) engine: engine::Window,
    /// Moves the data.
    pub(crate) port: Transport,
    /// The host's window, by which the application names this one. While calls on a duplicate are
    /// made, this is its handle, and `hints`, `only_copies` and `fast_path` are its own.
    pub(crate) handle: HostHandle,
    /// The other handles, if the window has been duplicated.
    handles: Option<Box<Handles>>,
    /// Number of processes of the window.
    pub(crate) size: u32,
    /// Calls that close an epoch poll, since operations may still be in flight.
    pub(crate) polls: bool,
    /// Polls left before the idle window is armed, after a peer has contacted it.
    polls_before_arming: u32,
    /// The window's group at the host, freed with the window.
    pub(crate) group: HostHandle,
    pub(crate) attributes: Box<Attributes>,
    pub(crate) hints: Hints,
    /// An operation that is a copy may bypass the engine: it does nothing else.
    pub(super) only_copies: bool,
    /// Number of calls that wait in this window without holding the guard. It must not be freed
    /// meanwhile.
    pub(crate) waiting: u32,
    /// How many of the [`waiting`](Self::waiting) calls wait for a request. They return when it
    /// completes.
    pub(crate) request_waits: u32,
    /// The log has warned that the application locks a window with `no_locks=true`.
    pub(crate) warned_of_locks: bool,
    /// Only allocated windows have one, under `MPI_THREAD_MULTIPLE`.
    pub(super) fast_path: Option<&'static FastPath>,
    /// Targets that were accessed by load and store.
    known_targets: KnownTargets,
    /// Whether sweeps visit the window.
    pub(super) attendance: Attendance,
    /// The window is in the registry's list of windows that rest.
    pub(super) resting: bool,
    /// A flush of several windows waits for this one.
    pub(super) flush_awaited: bool,
    /// Operations still to be issued until one waits for the posts of its epoch's targets.
    operations_before_posts: u32,
    /// How far origins that notify are ahead of waits for their counters.
    pub(crate) lead: Lead,
    /// The same for waits for tagged notifications.
    pub(crate) tag_lead: Lead,
    /// How fences space their looks.
    pub(crate) fence_looks: Spacing,
    /// Looks for a free lock before a request enters its queue.
    pub(crate) lock_spin: LockSpin,
    /// A wait for counters has just ended, so the next notification probably answers it.
    pub(crate) answers: bool,
    pub(crate) last_counter: LastCounter,
    /// Polls since the clock was last read.
    polls_since_clock: u32,
    /// When this window began to wait, or when its peers were last probed.
    waits_since: Option<Instant>,
    /// A poll has made progress since [`waits_since`](Self::waits_since), for this process or for a
    /// peer.
    progressed: bool,
    /// A test since then found nothing complete. A loop of tests counts as a wait.
    test_incomplete: bool,
    /// What this window waits for, as last logged.
    last_report: String,
    /// The host's request of each pending request of the engine that has one, by its index.
    requests: Vec<Option<(HostRequest, Scope)>>,
    /// Output arguments of pending waits for counters, by the request's index.
    counter_outputs: HashMap<u32, CounterOutput>,
    /// The last request whose operation failed.
    failed_request: Option<RequestId>,
    /// Records the calls on this window for a persistent epoch [PE-1].
    pub(crate) recorder: Option<Box<Recorder>>,
    /// An operation is being checked that is issued in some later epoch.
    pub(crate) any_epoch: bool,
}

impl Window {
    pub(crate) fn new(
        mut engine: engine::Window,
        port: Transport,
        handle: HostHandle,
        (size, group): (u32, HostHandle),
        attributes: Attributes,
        hints: Hints,
    ) -> Self {
        engine.set_waits_per_sweep(WAITS_PER_SWEEP);
        let polls = port.needs_polling();
        let only_copies = only_copies(&hints);
        let fast_path =
            (multiple() && only_copies && port.is_mapped()).then(|| fast_path::make(handle.0));
        Self {
            engine,
            port,
            handle,
            handles: None,
            size,
            polls,
            polls_before_arming: 0,
            group,
            attributes: Box::new(attributes),
            hints,
            only_copies,
            waiting: 0,
            request_waits: 0,
            warned_of_locks: false,
            fast_path,
            known_targets: KnownTargets::default(),
            attendance: Attendance::No,
            resting: false,
            flush_awaited: false,
            operations_before_posts: 0,
            lead: Lead::default(),
            tag_lead: Lead::default(),
            fence_looks: Spacing::default(),
            lock_spin: LockSpin::new(),
            answers: false,
            last_counter: LastCounter::default(),
            polls_since_clock: 0,
            waits_since: None,
            progressed: false,
            test_incomplete: false,
            last_report: String::new(),
            requests: Vec::new(),
            counter_outputs: HashMap::new(),
            failed_request: None,
            recorder: None,
            any_epoch: false,
        }
    }

    /// Called after an operation to `target`. If it was a copy, lets other threads copy too,
    /// without entering the runtime; if it waits, makes them enter.
    #[inline]
    pub(crate) fn update_fast_path(&self, target: Rank) {
        if let Some(fast_path) = self.fast_path {
            fast_path.update(target, self.permitted_without_guard(target));
        }
    }

    fn permitted_without_guard(&self, target: Rank) -> Option<Access> {
        if !self.engine.has_direct_route(target) {
            return None;
        }
        Some(Access {
            memory: self.port.mapped_target(target)?,
            counters: self.port.counter_table(target),
            accumulates: AccumulateAddress::of(self.port.accumulate_lock(target)),
            flushes: self.engine.flushes_at_once(target),
        })
    }

    /// Called before and after the counters are replaced.
    pub(crate) fn forget_counters(&mut self) {
        self.close_fast_path();
        self.last_counter = LastCounter::default();
    }

    /// Called before a call opens or closes an access epoch.
    #[inline]
    pub(crate) fn close_fast_path(&self) {
        note_change();
        if let Some(fast_path) = self.fast_path {
            fast_path.close();
        }
        if self.handles.is_some() {
            self.close_other_fast_paths();
        }
    }

    /// The memory of `target` as mapped here, if put and get to it are copies by load and store. It
    /// does not move while the window exists.
    pub(super) fn mapped_target(&self, target: Rank) -> Option<MappedTarget> {
        let may_copy = target < self.size && self.only_copies;
        if may_copy { self.port.mapped_target(target) } else { None }
    }

    /// As [`mapped_target`](Self::mapped_target) in a window whose operations raise a counter, and
    /// the counter.
    pub(super) fn counted_target(&mut self, target: Rank) -> Option<(MappedTarget, u32)> {
        let number = self.hints.puts_counter?;
        if !self.hints.fast_path || !self.engine.finds_direct_route(target) {
            return None;
        }
        Some((self.port.mapped_target(target)?, number.get() - 1))
    }

    /// As [`mapped_target`](Self::mapped_target), for operations on targets in turn.
    #[inline]
    pub(super) fn known_target(&mut self, target: Rank) -> Option<MappedTarget> {
        if let Some(memory) = self.known_targets.find(target) {
            return Some(memory);
        }
        let memory = self.mapped_target(target)?;
        self.known_targets.insert(target, memory);
        Some(memory)
    }

    /// Binds a pending request of the engine to one of the host.
    pub(crate) fn bind(&mut self, id: RequestId, request: HostRequest, scope: Scope) {
        let at = id.index as usize;
        // Blocking calls make no request of the host: the entries of their requests stay empty.
        if at >= self.requests.len() {
            self.requests.resize(at + 1, None);
        }
        debug_assert!(
            self.requests[at].is_none(),
            "the engine reused a request before it was reported"
        );
        self.requests[at] = Some((request, scope));
    }

    /// Keeps the output arguments of a pending wait for counters until it ends.
    pub(crate) fn keep_counter_output(&mut self, id: RequestId, output: CounterOutput) {
        if !output.is_none() {
            self.counter_outputs.insert(id.index, output);
        }
    }

    /// Polls only the counters of a pending wait. True if they complete it: then
    /// [`poll_counters_of`](Self::poll_counters_of) ends its request.
    #[inline]
    pub(crate) fn poll_counters(&mut self, watch: Watch) -> bool {
        with_port!(&mut self.port, port => self.engine.is_reached(port, watch))
    }

    /// Polls only the counters that a pending request waits for. True if that completes the
    /// request: its output arguments are then written, and nothing reports it later.
    #[inline]
    pub(crate) fn poll_counters_of(&mut self, id: RequestId) -> bool {
        let found = with_port!(&mut self.port, port => self.engine.take_awaited(port, id));
        let Some(found) = found else { return false };
        self.answers = true;
        let values = self.engine.found_all(id);
        if let Some(output) = self.forget_wait(id) {
            output.write(found);
            output.write_all(&values.unwrap_or_default());
        }
        true
    }

    /// Forgets a wait for counters that has ended at the engine. Returns its output arguments.
    #[inline]
    fn forget_wait(&mut self, id: RequestId) -> Option<CounterOutput> {
        if let Some(bound) = self.requests.get_mut(id.index as usize) {
            *bound = None;
        }
        // Most waits have no output, and even a search in an empty table computes a hash.
        if self.counter_outputs.is_empty() { None } else { self.counter_outputs.remove(&id.index) }
    }

    /// Whether a counter of this process is high enough.
    #[inline]
    pub(crate) fn has_counted(&mut self, counter: u32, expected: u64) -> bool {
        with_port!(&mut self.port, port => self.engine.has_counted(port, counter, expected))
    }

    /// Ends a pending wait for one counter, which the caller goes on with; nothing reports its
    /// request later. Returns the counter, what it waits for, and its output arguments.
    pub(crate) fn take_over(&mut self, id: RequestId) -> Option<(u32, u64, CounterOutput)> {
        let (counter, expected) = self.engine.take_over(id)?;
        let output = self.forget_wait(id).unwrap_or_else(CounterOutput::none);
        Some((counter, expected, output))
    }

    /// Whether an open lock epoch does not hold its lock yet, and may still get it.
    #[inline]
    pub(crate) fn awaits_open_lock(&self) -> bool {
        self.engine.awaits_open_lock() && !self.port.is_broken()
    }

    /// Whether no epoch or operation of this process can make progress any more.
    pub(crate) fn is_settled(&self) -> bool {
        self.engine.is_quiet() || self.port.is_broken()
    }

    /// An error unless an epoch covers operations to `target`: one that is being recorded, if any.
    /// An operation that is made for later needs no epoch yet.
    pub(crate) fn covering(&self, target: Rank) -> Result<(), SyncError> {
        match self.recorder_here() {
            Some(recorder) if recorder.covers(target) => Ok(()),
            Some(_) => Err(SyncError::NoAccessEpoch),
            None if self.any_epoch => Ok(()),
            None => self.engine.covering(target),
        }
    }

    /// What records the calls on the present handle, if anything does [PE-1].
    pub(crate) fn recorder_here(&self) -> Option<&Recorder> {
        self.recorder.as_deref().filter(|recorder| recorder.lane == self.lane())
    }

    /// Rank of this process.
    pub(crate) fn rank(&self) -> Rank {
        self.engine.rank()
    }

    /// Completes the host's request of each request that the engine has completed. True if there
    /// was one.
    #[inline]
    pub(crate) fn report(&mut self, host: &Host) -> bool {
        let mut any = false;
        while let Some(id) = self.engine.next_completed() {
            any = true;
            order_completed();
            if let Some(found) = self.engine.found(id)
                && let Some(output) = self.counter_outputs.remove(&id.index)
            {
                output.write(found);
            }
            if let Some(values) = self.engine.found_all(id)
                && let Some(output) = self.counter_outputs.remove(&id.index)
            {
                output.write_all(&values);
            }
            let failed = self.engine.take_failed(id);
            if failed {
                self.failed_request = Some(id);
            }
            // Requests of blocking calls have no request of the host.
            if let Some((request, scope)) =
                self.requests.get_mut(id.index as usize).and_then(Option::take)
            {
                let completion = match scope {
                    Scope::Operation if failed => Completion::NotAttached,
                    Scope::Target(target) if self.port.take_fault(target).is_some() => {
                        Completion::NotAttached
                    }
                    _ => Completion::Success,
                };
                (host.complete)(request, completion);
            }
        }
        if self.port.is_broken() {
            any |= self.fail_requests(host);
        }
        if any && self.requests.len() > KEPT && self.engine.requests_alive() == 0 {
            self.requests = Vec::new();
        }
        any
    }

    /// Completes all pending requests of a broken window with an error.
    #[cold]
    fn fail_requests(&mut self, host: &Host) -> bool {
        let pending = std::mem::take(&mut self.requests);
        // The engine need not wait for their notifications any more.
        self.engine
            .withdraw_waits(|id| pending.get(id.index as usize).is_some_and(Option::is_some));
        self.counter_outputs.clear();
        let why = self.port.lost().map(|(_, why)| why);
        let mut any = false;
        for (request, _) in pending.into_iter().flatten() {
            (host.complete)(request, Completion::WindowBroken(why));
            any = true;
        }
        any
    }

    /// Called by the blocking start of an epoch. Its first operations are recorded while the
    /// targets' posts are on their way, which costs nothing if there are few. The last of these
    /// waits for the posts for a moment, because an operation that is recorded takes three times as
    /// long as one that goes straight to memory.
    pub(crate) fn expect_posts(&mut self) {
        const RECORDED: u32 = 2;
        self.operations_before_posts = RECORDED;
    }

    /// Counts an operation that was issued or recorded; see [`expect_posts`](Self::expect_posts).
    #[inline(always)]
    pub(crate) fn count_operation(&mut self) {
        if self.operations_before_posts > 0 {
            self.count_before_posts();
        }
    }

    #[inline(never)]
    fn count_before_posts(&mut self) {
        self.operations_before_posts -= 1;
        if self.operations_before_posts == 0 {
            self.poll_words_of_posts();
        }
    }

    /// Whether sweeps drive all of the window that may move.
    #[inline]
    pub(crate) fn is_attended(&self) -> bool {
        self.attendance == Attendance::Full
    }

    /// One bounded sweep over this window.
    #[inline]
    pub(crate) fn advance(&mut self, host: &Host) -> bool {
        let moved = with_port!(&mut self.port, port => self.engine.progress(port));
        let moved = self.report(host) | moved;
        if moved {
            self.note_progress();
        }
        self.count_poll();
        moved
    }

    fn note_progress(&mut self) {
        self.progressed = true;
        if !self.port.is_armed() {
            self.polls_before_arming = POLLS_BEFORE_ARMING;
        }
    }

    /// Counts a poll. Probes peers and reports a stalled wait when it is time.
    #[inline]
    pub(crate) fn count_poll(&mut self) {
        self.count_polls(1);
    }

    #[inline]
    pub(super) fn count_polls(&mut self, polls: u32) {
        self.polls_since_clock += polls;
        if self.polls_since_clock >= POLLS_PER_CLOCK {
            self.check_clock();
        }
    }

    /// Polls the RDMA completion queue between two polls of a wait, unless peers end that wait by
    /// writing a word. True if there was a completion; what it finished is accounted for.
    #[inline]
    pub(crate) fn spin_briefly(&mut self, host: &Host) -> bool {
        const POLLS: u32 = 8;
        if self.engine.watches_words() || !self.take_completions(POLLS) {
            return false;
        }
        self.report(host);
        true
    }

    /// Polls the RDMA completion queue, at most `polls` times, until it has an entry. Accounts for
    /// what that has finished. True if there was an entry.
    #[inline]
    pub(crate) fn take_completions(&mut self, polls: u32) -> bool {
        if !self.port.poll_completions(polls) {
            return false;
        }
        if with_port!(&mut self.port, port => self.engine.take_finished(port)) {
            self.progressed = true;
        }
        true
    }

    /// Counts a test that found nothing complete and is about to sweep. The sweep need not poll
    /// this window: a test of counters leaves no work in it.
    #[inline]
    pub(crate) fn count_incomplete_test(&mut self) {
        self.test_incomplete = true;
        self.count_polls(POLLS_OF_A_TEST);
    }

    /// Probes the peers periodically while this window waits, even under load. Logs once what a
    /// stalled wait is waiting for [EP-10].
    #[cold]
    #[allow(clippy::disallowed_methods, reason = "only to say how long a wait has lasted")]
    fn check_clock(&mut self) {
        self.polls_since_clock = 0;
        let quiet = self.engine.is_quiet();
        let waits = !quiet || self.waiting != 0 || self.engine.expectations_waiting() != 0;
        if !waits && !self.test_incomplete {
            // Only peers need these polls. The next wait of this process starts the clock again.
            self.waits_since = None;
            return;
        }
        let now = Instant::now();
        match self.waits_since {
            Some(since) if now.duration_since(since) < LONG_WAIT => return,
            Some(_) => {
                let connections = self.port.probe();
                if waits && !self.progressed {
                    self.report_wait(quiet, &connections);
                }
                self.test_incomplete = false;
            }
            None => {}
        }
        self.waits_since = Some(now);
        self.progressed = false;
    }

    #[cold]
    fn report_wait(&mut self, quiet: bool, connections: &str) {
        let waits =
            if quiet { "no epoch is pending".to_owned() } else { self.engine.waits().to_string() };
        if waits != self.last_report {
            log::info!(
                "window {:#x} has waited for {LONG_WAIT:?}: {waits}{connections}",
                self.handle.0
            );
            self.last_report = waits;
        }
    }

    /// Whether the request completed because its operation failed. Call it as soon as the request
    /// is complete.
    pub(crate) fn has_failed(&mut self, id: RequestId) -> bool {
        self.failed_request.take() == Some(id)
    }

    /// True if the window waits for nothing and is armed, so that sweeps may skip it. A window
    /// that was contacted recently is armed only after some more polls, unless `at_once`.
    #[inline]
    pub(crate) fn is_idle(&mut self, at_once: bool) -> bool {
        self.engine.is_quiet() && (self.port.is_armed() || self.try_arm(at_once))
    }

    /// Whether a peer has contacted this window since it was armed. If so, it is polled for a
    /// while, since the peer often does more.
    pub(super) fn was_contacted(&mut self) -> bool {
        let contacted = !self.port.is_armed();
        if contacted {
            self.polls_before_arming = POLLS_BEFORE_ARMING;
        }
        contacted
    }

    #[inline(never)]
    fn try_arm(&mut self, at_once: bool) -> bool {
        if self.polls_before_arming > 0 && !at_once {
            self.polls_before_arming -= 1;
            return false;
        }
        self.port.arm()
    }
}

/// Polls of an idle window before it is armed: some 10 us, several round trips of a peer.
const POLLS_BEFORE_ARMING: u32 = 256;

/// Most entries for requests that a window keeps allocated when none is pending.
const KEPT: usize = 1024;
/// Polls between two readings of the clock: few, since on an oversubscribed node a poll that yields
/// may take milliseconds.
pub(super) const POLLS_PER_CLOCK: u32 = 1 << 8;
/// Polls that a test counts as, since a program may compute for long between two tests.
const POLLS_OF_A_TEST: u32 = POLLS_PER_CLOCK / 4;
/// Time after which a wait is logged and its peers are probed.
const LONG_WAIT: Duration = Duration::from_secs(2);
