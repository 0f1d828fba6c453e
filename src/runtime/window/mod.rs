//! One window of this process: its engine, its port, its requests.

mod info;
mod slab;

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use hashbrown::HashMap;

use super::fast_path::{self, FastPath, MappedTarget};
use super::process::{Host, multiple};
use super::transport::{Transport, with_port};
use crate::engine::{self, Notified, Outcome, Rank, RequestId};

pub(crate) use info::{Attributes, Hints};
pub(crate) use slab::{WindowId, WindowSlab};

/// A window handle of the host, as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct HostHandle(pub(crate) u64);

/// A pending request of the host, by the number that the host glue gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostRequest(pub(crate) NonZeroU32);

/// How a pending request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// What it stands for is done.
    Done,
    /// An operation was not done, since its target has not attached what it reaches. The log has
    /// said more.
    Unattached,
    /// What it stands for may never be done: a peer cannot be reached any more, and this is why, or
    /// a message was refused. The log has named the peer.
    Broken(Option<&'static str>),
}

/// What a request of the host stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// One operation.
    Operation,
    /// Whatever was to be done at this target, or at all.
    Target(Option<Rank>),
}

/// The output arguments of a wait for counters: which counter, and its value. Each may be NULL.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CounterOutput {
    index: *mut libc::c_int,
    value: *mut i64,
}

impl CounterOutput {
    /// # Safety
    /// Until the call ends, or the request that it makes is complete, each is NULL or memory for its
    /// type that nobody else accesses.
    pub(crate) unsafe fn new(index: *mut libc::c_int, value: *mut i64) -> Self {
        Self { index, value }
    }

    /// For a call without output arguments.
    pub(crate) fn none() -> Self {
        Self { index: std::ptr::null_mut(), value: std::ptr::null_mut() }
    }

    fn is_none(self) -> bool {
        self.index.is_null() && self.value.is_null()
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
}

/// One window that we serve.
#[derive(Debug)]
pub(crate) struct Window {
    /// Decides.
    pub(crate) engine: engine::Window,
    /// Moves bytes.
    pub(crate) port: Transport,
    /// The host's window under which the application knows it.
    pub(crate) handle: HostHandle,
    /// Processes of the window.
    pub(crate) size: u32,
    /// Operations of this process on others may stay in flight, so calls that close an epoch stay
    /// with them.
    pub(crate) polls: bool,
    /// Looks for which the window is still polled though it is idle: a peer has contacted it a
    /// short while ago.
    lingers: u32,
    /// The window's group at the host, made at the first post or start.
    pub(crate) group: Option<HostHandle>,
    /// See [`Attributes`].
    pub(crate) attributes: Box<Attributes>,
    /// See [`Hints`].
    pub(crate) hints: Hints,
    /// Calls that wait in this window without holding the guard: it may not be freed under them.
    pub(crate) waiting: u32,
    /// Those of [`waiting`](Self::waiting) that wait for a request: they leave by themselves when
    /// it has ended.
    pub(crate) request_waits: u32,
    /// The log has said that the application locks a window with `no_locks=true`.
    pub(crate) warned_of_locks: bool,
    /// Calls so far that did not wait, to sweep over the rest of the process now and then.
    pub(crate) calls: u32,
    /// Of allocated windows, under `MPI_THREAD_MULTIPLE`.
    pub(super) fast_path: Option<&'static FastPath>,
    /// The target that was last reached by load and store, and its memory, which stays where it is
    /// as long as the window lives.
    mapped: (Rank, MappedTarget),
    /// In the registry's list of windows that a sweep visits.
    pub(super) attended: bool,
    /// Looks since the last one at the clock, whatever they moved.
    looks: u32,
    /// Since when this window waits for something of its own, or when its peers were last asked
    /// whether they are still there.
    waits_since: Option<Instant>,
    /// Something has moved since then: of others, perhaps, so that it tells nothing of what is
    /// waited for.
    stirred: bool,
    /// A test has found nothing since then: a loop of tests is a wait.
    tested: bool,
    /// What was reported last.
    reported: String,
    /// The host's request of each pending request of the engine that has one, by its index.
    requests: Vec<Option<(HostRequest, Scope)>>,
    /// Output arguments of pending waits for counters, by the request's index.
    counter_outputs: HashMap<u32, CounterOutput>,
    /// The last request of an operation that was not done.
    failed: Option<RequestId>,
}

impl Window {
    pub(crate) fn new(
        engine: engine::Window,
        port: Transport,
        handle: HostHandle,
        size: u32,
        attributes: Attributes,
        hints: Hints,
    ) -> Self {
        let polls = port.needs_polling();
        let fast_path =
            (multiple() && hints.fast_path && port.is_mapped()).then(|| fast_path::make(handle.0));
        Self {
            engine,
            port,
            handle,
            size,
            polls,
            lingers: 0,
            group: None,
            attributes: Box::new(attributes),
            hints,
            waiting: 0,
            request_waits: 0,
            warned_of_locks: false,
            calls: 0,
            fast_path,
            mapped: (Rank::MAX, MappedTarget { base: 0, size: 0, unit: 1 }),
            attended: false,
            looks: 0,
            waits_since: None,
            stirred: false,
            tested: false,
            reported: String::new(),
            requests: Vec::new(),
            counter_outputs: HashMap::new(),
            failed: None,
        }
    }

    /// Lets other threads reach `target` as the operation did that this thread has just issued:
    /// by a copy, without entering the runtime.
    #[inline]
    pub(crate) fn open_fast_path(&self, target: Rank) {
        if let Some(fast_path) = self.fast_path
            && self.engine.has_direct_route(target)
        {
            fast_path.open(target, || self.port.mapped_target(target));
        }
    }

    /// Called before anything that opens or closes an access epoch.
    #[inline]
    pub(crate) fn close_fast_path(&self) {
        if let Some(fast_path) = self.fast_path {
            fast_path.close();
        }
    }

    /// Ties a pending request of the engine to one of the host.
    pub(crate) fn bind(&mut self, id: RequestId, request: HostRequest, scope: Scope) {
        let at = id.index as usize;
        // Requests on which blocking calls wait have places too, which stay empty.
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

    /// Polls the counters that a pending request waits for up to `looks` times, and nothing else.
    /// True if that completes it: its output arguments are written then, and nothing reports it.
    #[inline]
    pub(crate) fn take_awaited(&mut self, id: RequestId, looks: u32) -> bool {
        let found = with_port!(&mut self.port, port => self.engine.take_awaited(port, id, looks));
        let Some(found) = found else { return false };
        if let Some(bound) = self.requests.get_mut(id.index as usize) {
            *bound = None;
        }
        if let Some(output) = self.counter_outputs.remove(&id.index) {
            output.write(found);
        }
        true
    }

    /// The memory of `rank` in this process, if put and get to it are copies by load and store.
    #[inline(always)]
    pub(crate) fn mapped_target(&mut self, rank: Rank) -> Option<MappedTarget> {
        if self.mapped.0 == rank { Some(self.mapped.1) } else { self.find_mapped_target(rank) }
    }

    #[inline(never)]
    fn find_mapped_target(&mut self, rank: Rank) -> Option<MappedTarget> {
        if rank >= self.size || !self.hints.fast_path {
            return None;
        }
        let found = self.port.mapped_target(rank)?;
        self.mapped = (rank, found);
        Some(found)
    }

    /// Counts a call that did not wait: one that communicates, or that closes an epoch and finds it
    /// complete. True if it is time to sweep: a program may make no other calls [PR-1], for example
    /// one that locks its own memory again and again until a peer has changed it.
    #[inline(always)]
    pub(crate) fn count_call(&mut self) -> bool {
        self.calls = self.calls.wrapping_add(1);
        self.calls.is_multiple_of(CALLS_PER_SWEEP)
    }

    /// Whether the next call that does not wait is one that sweeps.
    #[inline(always)]
    pub(crate) fn sweep_is_due(&self) -> bool {
        self.calls % CALLS_PER_SWEEP == CALLS_PER_SWEEP - 1
    }

    /// True if a lock that is open is not held yet, and may still come.
    #[inline]
    pub(crate) fn awaits_open_lock(&self) -> bool {
        self.engine.awaits_open_lock() && !self.port.is_broken()
    }

    /// True if nothing more will happen by itself.
    pub(crate) fn is_settled(&self) -> bool {
        self.engine.is_quiet() || self.port.is_broken()
    }

    /// Rank of this process.
    pub(crate) fn rank(&self) -> Rank {
        self.engine.rank()
    }

    /// Tells the host about the requests that the engine has completed. True if there were any.
    #[inline]
    pub(crate) fn report(&mut self, host: &Host) -> bool {
        let mut any = false;
        while let Some(id) = self.engine.next_completed() {
            any = true;
            if let Some(found) = self.engine.found(id)
                && let Some(output) = self.counter_outputs.remove(&id.index)
            {
                output.write(found);
            }
            // Blocking calls wait on requests of the engine that the host knows nothing of.
            let failed = self.engine.take_failed(id);
            if failed {
                self.failed = Some(id);
            }
            if let Some((request, scope)) =
                self.requests.get_mut(id.index as usize).and_then(Option::take)
            {
                let ending = match scope {
                    Scope::Operation if failed => Ending::Unattached,
                    Scope::Target(target) if self.port.take_fault(target).is_some() => {
                        Ending::Unattached
                    }
                    _ => Ending::Done,
                };
                (host.complete)(request, ending);
            }
        }
        if self.port.is_broken() {
            any |= self.end_requests(host);
        }
        if any && self.requests.len() > KEPT && self.engine.requests_alive() == 0 {
            self.requests = Vec::new();
        }
        any
    }

    /// Nothing that is pending may ever be done.
    #[cold]
    fn end_requests(&mut self, host: &Host) -> bool {
        let pending = std::mem::take(&mut self.requests);
        // Nobody waits for what they stand for.
        self.engine
            .withdraw_waits(|id| pending.get(id.index as usize).is_some_and(Option::is_some));
        let any = pending.iter().any(Option::is_some);
        let why = self.port.lost().map(|(_, why)| why);
        pending
            .into_iter()
            .flatten()
            .for_each(|(request, _)| (host.complete)(request, Ending::Broken(why)));
        self.counter_outputs.clear();
        any
    }

    /// One bounded sweep over this window.
    #[inline]
    pub(crate) fn advance(&mut self, host: &Host) -> bool {
        let moved = with_port!(&mut self.port, port => self.engine.progress(port));
        let moved = self.report(host) | moved;
        if moved {
            self.stirred = true;
            if !self.port.is_armed() {
                self.lingers = LOOKS_BEFORE_ARMING;
            }
        }
        self.looks += 1;
        if self.looks >= LOOKS_PER_CLOCK {
            self.look_at_clock();
        }
        moved
    }

    /// Between two polls of a wait: polls the RDMA completion queue, unless the wait is for memory.
    #[inline]
    pub(crate) fn spin_briefly(&self) {
        if !self.engine.watches_words() {
            self.port.spin_briefly();
        }
    }

    /// A test has found nothing, and is about to drive everything.
    #[inline]
    pub(crate) fn tested_in_vain(&mut self) {
        self.tested = true;
        self.looks += LOOKS_OF_A_TEST;
    }

    /// While this window waits, probes its peers periodically, even under load. Logs once what a
    /// stalled wait is waiting for [EP-10].
    #[cold]
    #[allow(clippy::disallowed_methods, reason = "only to say how long a wait has lasted")]
    fn look_at_clock(&mut self) {
        self.looks = 0;
        let quiet = self.engine.is_quiet();
        let waits = !quiet || self.waiting != 0 || self.engine.expectations_waiting() != 0;
        if !waits && !self.tested {
            // A window that polls for others is looked at all the same: its own next wait begins
            // anew.
            self.waits_since = None;
            return;
        }
        let now = Instant::now();
        match self.waits_since {
            Some(since) if now.duration_since(since) < LONG_WAIT => return,
            Some(_) => {
                let standing = self.port.probe();
                if waits && !self.stirred {
                    self.report_wait(quiet, &standing);
                }
                self.tested = false;
            }
            None => {}
        }
        self.waits_since = Some(now);
        self.stirred = false;
    }

    #[cold]
    fn report_wait(&mut self, quiet: bool, standing: &str) {
        let waits =
            if quiet { "no epoch is pending".to_owned() } else { self.engine.waits().to_string() };
        if waits != self.reported {
            log::info!(
                "window {:#x} has waited for {LONG_WAIT:?}: {waits}{standing}",
                self.handle.0
            );
            self.reported = waits;
        }
    }

    /// After a call that closes an epoch or starts a flush, when the application may compute for
    /// long: stays with operations that are on their way as long as they move, so that the *done*
    /// need not wait for the next call [PR-3]. Gives what became of the outcome.
    #[inline]
    pub(crate) fn poll_while_moving(&mut self, outcome: Outcome) -> Outcome {
        let Outcome::Pending(id) = outcome else { return outcome };
        if self.polls {
            while self.engine.is_pending(id) && self.port.flush_and_poll() {
                with_port!(&mut self.port, port => self.engine.progress(port));
            }
        }
        if self.engine.is_pending(id) { outcome } else { Outcome::Complete }
    }

    /// Looks a few times before a pending request gets one of the host, which costs more than what
    /// it often waits for: the neighbour hands over a lock or posts at this moment. Not where the
    /// epoch stands behind others. True if the request is complete.
    #[inline]
    pub(crate) fn completes_soon(&mut self, id: RequestId, host: &Host) -> bool {
        if self.engine.defers() {
            return false;
        }
        if self.engine.awaits(id) {
            // Was looked at just now.
            return false;
        }
        (0..LOOKS_BEFORE_A_REQUEST).any(|_| {
            self.advance(host);
            !self.engine.is_pending(id)
        })
    }

    /// True if the request was that of an operation that was not done. Asked at once after it was
    /// complete.
    pub(crate) fn has_failed(&mut self, id: RequestId) -> bool {
        self.failed.take() == Some(id)
    }

    /// True if nobody need poll this window: it waits for nothing, and a peer will ring.
    /// One that was contacted a short while ago is polled a little longer, since more may follow;
    /// `briefly`: not even that.
    #[inline]
    pub(crate) fn is_idle(&mut self, briefly: bool) -> bool {
        self.engine.is_quiet() && (self.port.is_armed() || self.falls_idle(briefly))
    }

    /// Whether a peer has contacted this window since it was armed. It is polled for a while then,
    /// since more may follow.
    pub(super) fn was_contacted(&mut self) -> bool {
        let contacted = !self.port.is_armed();
        if contacted {
            self.lingers = LOOKS_BEFORE_ARMING;
        }
        contacted
    }

    #[inline(never)]
    fn falls_idle(&mut self, briefly: bool) -> bool {
        if self.lingers > 0 && !briefly {
            self.lingers -= 1;
            return false;
        }
        self.port.arm()
    }
}

/// Looks at a window that find nothing before it is armed: some 10 us, several round trips of a peer
/// that uses it.
const LOOKS_BEFORE_ARMING: u32 = 256;

/// Calls that did not wait, between two sweeps.
const CALLS_PER_SWEEP: u32 = 64;
/// More of them gain nothing.
const LOOKS_BEFORE_A_REQUEST: u32 = 4;
/// Places for requests that a window keeps when none is pending.
const KEPT: usize = 1024;
/// Looks between two looks at the clock: few, since on a busy machine each look that gives the CPU
/// away may take milliseconds.
const LOOKS_PER_CLOCK: u32 = 1 << 8;
/// Looks that a test counts for beside its own: a program may compute for long between two of them.
const LOOKS_OF_A_TEST: u32 = LOOKS_PER_CLOCK / 4;
/// A wait that is reported, and in which the peers are asked whether they are still there.
const LONG_WAIT: Duration = Duration::from_secs(2);
