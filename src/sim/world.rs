//! The world: ranks, their engines, and one network.

use super::process::{Held, Process, State, Unfinished, Wait};
use super::profile::Machine;
use super::script::{Group, How, Moment, Script, Slot, Step};
use super::{Memory, two_sided};
use crate::engine::{Outcome, Rank, ReorderFlags, RequestId, SyncError, Window};
use crate::transport::sim::{Carry, Counters, Disorder, Network, Occurrence, Time, meter};

/// One window of a world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowSpec {
    /// Bytes at each rank, where bytes are carried.
    pub bytes: usize,
    /// Reorder flags [AC-1].
    pub flags: ReorderFlags,
}

/// What a world is made of, beside its scripts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Network and CPUs.
    pub machine: Machine,
    /// Time alone, or bytes too.
    pub carry: Carry,
    /// What goes wrong.
    pub disorder: Disorder,
    /// Each rank has a second core that sweeps while the first computes [PR-2].
    pub progress_thread: bool,
    /// A world that is not over by then is called live-locked.
    pub time_limit: Time,
    /// The same for the number of events.
    pub event_limit: u64,
}

impl Settings {
    /// A machine in order, without bytes and without limits.
    #[must_use]
    pub fn new(machine: Machine) -> Self {
        Settings {
            machine,
            carry: Carry::Nothing,
            disorder: Disorder::default(),
            progress_thread: false,
            time_limit: Time::MAX,
            event_limit: u64::MAX,
        }
    }
}

/// Sees what happens in a world, for checkers. Nothing that it does changes the run.
pub trait Watch {
    /// A rank makes a call (or computes).
    fn called(&mut self, _at: Time, _rank: Rank, _step: &Step) {}
    /// The call before was a closing call, a flush, an R-form or a test that closes: how it left its epoch or request.
    fn outcome(&mut self, _rank: Rank, _window: u32, _outcome: Outcome, _net: &mut Network) {}
    /// The engine reports a request complete.
    fn completed(&mut self, _rank: Rank, _window: u32, _id: RequestId, _net: &mut Network) {}
    /// A call or sweep of a rank is over; its windows, in order, and the network as they are now.
    fn after(&mut self, _rank: Rank, _windows: &mut dyn Iterator<Item = &Window>, _net: &mut Network) {}
    /// An event has passed.
    fn event(&mut self, _net: &mut Network) {}
}

/// Nobody looks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unwatched;

impl Watch for Unwatched {}

/// How a run ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// When the last rank had ended and nothing was under way any more.
    pub end: Time,
    /// Calls of all ranks.
    pub calls: u64,
    /// Sweeps of all ranks.
    pub sweeps: u64,
    /// Of the network.
    pub counters: Counters,
    /// Hash of everything that happened.
    pub trace: u64,
}

/// Why a run did not end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StuckBecause {
    /// Nothing is under way, and ranks wait, or have ended and left something incomplete.
    DeadLock,
    /// It took longer than the settings allow.
    LiveLock,
    /// A script made a call that the engine refuses.
    Refused {
        /// Whose.
        rank: Rank,
        /// Why.
        error: SyncError,
    },
}

/// A run that did not end.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{because:?} at {at} ps: {text}")]
pub struct Stuck {
    /// Why.
    pub because: StuckBecause,
    /// When.
    pub at: Time,
    /// Who waits for what, in words.
    pub text: String,
}

/// How a step ended.
enum Flow {
    Next,
    Wait(Wait),
    Compute,
    End,
}

/// Communication calls between two sweeps, as in the library itself [PR-1].
const CALLS_PER_SWEEP: u32 = 64;
/// Ranks whose waits are told when a world is stuck.
const TOLD: usize = 16;
/// Lowest bit of an alarm's tag: it is the progress thread's.
const HELPER: u32 = 1;

/// See the [module](super).
pub struct World<S> {
    settings: Settings,
    net: Network,
    /// Per window, then rank.
    windows: Vec<Window>,
    processes: Vec<Process<S>>,
    ended: u32,
    in_barrier: Vec<Rank>,
    group: Vec<Rank>,
    calls: u64,
    sweeps: u64,
}

impl<S: Script> World<S> {
    /// A world of so many ranks; `script` makes each rank's.
    pub fn new(ranks: u32, settings: Settings, windows: &[WindowSpec], mut script: impl FnMut(Rank) -> S) -> Self {
        let mut net = Network::new(ranks, settings.machine.network, settings.carry, settings.disorder);
        let mut engines = Vec::with_capacity(windows.len() * ranks as usize);
        let mut processes: Vec<_> = (0..ranks).map(|me| Process::new(script(me), windows.len() as u32)).collect();
        for spec in windows {
            net.add_window(spec.bytes);
            for me in 0..ranks {
                let before = meter::bytes();
                engines.push(meter::engine(|| Window::new(me, ranks, spec.flags)));
                let memory = &mut processes[me as usize].memory;
                memory.bytes += meter::bytes() - before + size_of::<Window>() as i64;
                memory.peak = memory.bytes;
            }
        }
        World {
            settings,
            net,
            windows: engines,
            processes,
            ended: 0,
            in_barrier: Vec::new(),
            group: Vec::new(),
            calls: 0,
            sweeps: 0,
        }
    }

    /// Runs all scripts to their end.
    ///
    /// # Errors
    /// If that does not happen.
    pub fn run(&mut self) -> Result<Report, Stuck> {
        self.run_watched(&mut Unwatched)
    }

    /// The same, and somebody looks.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_watched(&mut self, watch: &mut impl Watch) -> Result<Report, Stuck> {
        for rank in 0..self.ranks() {
            self.set_alarm(rank, self.net.now());
        }
        while let Some(occurrence) = self.net.advance() {
            let Counters { events, .. } = self.net.counters();
            if self.net.now() > self.settings.time_limit || events > self.settings.event_limit {
                return Err(self.stuck(StuckBecause::LiveLock));
            }
            if let Occurrence::Alarm { rank, tag } = occurrence {
                self.rings(rank, tag, watch)?;
            }
            while let Some(rank) = self.net.next_woken() {
                self.woken(rank, watch)?;
            }
            watch.event(&mut self.net);
        }
        if self.ended < self.ranks() || !self.net.is_idle() || !self.windows.iter().all(Window::is_quiet) {
            return Err(self.stuck(StuckBecause::DeadLock));
        }
        Ok(Report {
            end: self.net.now(),
            calls: self.calls,
            sweeps: self.sweeps,
            counters: self.net.counters(),
            trace: self.net.trace(),
        })
    }

    /// Number of ranks.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        self.processes.len() as u32
    }

    /// The network, and with it the ranks' memory.
    #[must_use]
    pub fn net(&mut self) -> &mut Network {
        &mut self.net
    }

    /// A rank's script.
    #[must_use]
    pub fn script(&self, rank: Rank) -> &S {
        &self.processes[rank as usize].script
    }

    /// A rank's engine.
    #[must_use]
    pub fn window(&self, window: u32, rank: Rank) -> &Window {
        &self.windows[self.at(window, rank)]
    }

    /// A hash of everything that happened: equal for equal runs.
    #[must_use]
    pub fn trace(&self) -> u64 {
        self.net.trace()
    }

    /// Memory of a rank's engines; what counts it is [`meter`].
    #[must_use]
    pub fn memory(&self, rank: Rank) -> Memory {
        self.processes[rank as usize].memory
    }

    /// Time that a rank has spent in calls, waits included.
    #[must_use]
    pub fn time_in_calls(&self, rank: Rank) -> Time {
        self.processes[rank as usize].in_calls
    }

    fn at(&self, window: u32, rank: Rank) -> usize {
        window as usize * self.processes.len() + rank as usize
    }

    fn process(&mut self, rank: Rank) -> &mut Process<S> {
        &mut self.processes[rank as usize]
    }

    fn stuck(&self, because: StuckBecause) -> Stuck {
        use std::fmt::Write as _;
        let mut text = String::new();
        let waiting = |(rank, process): &&(u32, &Process<S>)| {
            process.state != State::Ended || (0..self.net.windows()).any(|window| !self.window(window, *rank).is_quiet())
        };
        let all: Vec<_> = (0..).zip(&self.processes).collect();
        let mut told = 0;
        for (rank, process) in all.iter().filter(waiting).take(TOLD) {
            let _ = write!(text, "\n  rank {rank}: {:?}", process.state);
            for window in 0..self.net.windows() {
                let _ = write!(text, "; window {window}: {}", self.window(window, *rank).waits());
            }
            told += 1;
        }
        let waiting = all.iter().filter(waiting).count();
        if waiting > told {
            let _ = write!(text, "\n  and {} more ranks", waiting - told);
        }
        let _ = write!(text, "\n  messages under way: {}", self.net.in_flight());
        Stuck { because, at: self.net.now(), text }
    }

    // ---- time ----

    /// The rank's CPU goes on at `at`; an alarm set before does not count any more.
    fn set_alarm(&mut self, rank: Rank, at: Time) {
        let process = self.process(rank);
        process.alarms = process.alarms.wrapping_add(2) & !HELPER;
        process.alarm = Some(process.alarms);
        let tag = process.alarms;
        self.net.alarm(at, rank, tag);
    }

    fn rings(&mut self, rank: Rank, tag: u32, watch: &mut impl Watch) -> Result<(), Stuck> {
        if tag == HELPER {
            self.process(rank).helping = false;
            if self.process(rank).state == State::Busy {
                self.help(rank, watch);
            }
            return Ok(());
        }
        if self.process(rank).alarm != Some(tag) {
            return Ok(());
        }
        self.process(rank).alarm = None;
        let at = self.net.now();
        self.net.begin(rank, at);
        self.go_on(rank, watch)
    }

    /// Something came for this rank.
    fn woken(&mut self, rank: Rank, watch: &mut impl Watch) -> Result<(), Stuck> {
        let now = self.net.now();
        let process = self.process(rank);
        process.called = true;
        if process.state == State::Busy {
            if self.settings.progress_thread {
                self.help(rank, watch);
            }
            return Ok(());
        }
        if process.alarm.is_some() {
            return Ok(());
        }
        if process.clock > now {
            let at = process.clock;
            self.set_alarm(rank, at);
            return Ok(());
        }
        self.net.begin(rank, now);
        self.go_on(rank, watch)
    }

    /// The progress thread sweeps, now or when it has time.
    fn help(&mut self, rank: Rank, watch: &mut impl Watch) {
        let now = self.net.now();
        let process = self.process(rank);
        if process.helper > now {
            if !process.helping {
                process.helping = true;
                let at = process.helper;
                self.net.alarm(at, rank, HELPER);
            }
            return;
        }
        self.net.begin(rank, now);
        self.sweep(rank, watch);
        self.process(rank).helper = self.net.clock();
    }

    /// The rank's CPU runs now: sweeps if it waits, and goes on with its script as far as that is allowed to.
    fn go_on(&mut self, rank: Rank, watch: &mut impl Watch) -> Result<(), Stuck> {
        if let State::Waiting(wait) = self.process(rank).state {
            let began = self.process(rank).clock;
            self.sweep(rank, watch);
            let over = self.is_over(rank, wait);
            let clock = self.net.clock();
            let process = self.process(rank);
            process.in_calls += clock - began;
            process.clock = clock;
            if !over {
                // What came during the sweep has its own event; what the sweep itself brought is looked at now.
                if self.has_news(rank) {
                    self.set_alarm(rank, clock);
                }
                return Ok(());
            }
            self.process(rank).state = State::Busy;
            if self.must_pause() {
                self.set_alarm(rank, clock);
                return Ok(());
            }
        }
        if self.process(rank).state == State::Ended {
            self.sweep(rank, watch);
            self.process(rank).clock = self.net.clock();
            return Ok(());
        }
        self.run_script(rank, watch)
    }

    /// The rank's clock has passed the next event: others come first.
    fn must_pause(&self) -> bool {
        self.net.next_time().is_some_and(|next| next <= self.net.clock())
    }

    fn run_script(&mut self, rank: Rank, watch: &mut impl Watch) -> Result<(), Stuck> {
        loop {
            let began = self.net.clock();
            self.net.begin(rank, began);
            let flow = self.step(rank, watch)?;
            let clock = self.net.clock();
            let process = self.process(rank);
            process.clock = clock;
            if !matches!(flow, Flow::Compute) {
                process.in_calls += clock - began;
            }
            match flow {
                Flow::Next => {}
                Flow::Compute => {
                    self.set_alarm(rank, clock);
                    return Ok(());
                }
                Flow::Wait(wait) => {
                    process.state = State::Waiting(wait);
                    // A wait begins with a look; without news it could find nothing.
                    if self.has_news(rank) {
                        self.set_alarm(rank, clock);
                    }
                    return Ok(());
                }
                Flow::End => {
                    process.state = State::Ended;
                    self.ended += 1;
                    self.set_alarm(rank, clock);
                    return Ok(());
                }
            }
            if self.must_pause() {
                self.set_alarm(rank, clock);
                return Ok(());
            }
        }
    }

    // ---- progress ----

    fn has_news(&self, rank: Rank) -> bool {
        self.processes[rank as usize].called || (0..self.net.windows()).any(|window| self.net.has_news(window, rank))
    }

    /// One sweep over everything of the rank, again while something moves.
    fn sweep(&mut self, rank: Rank, watch: &mut impl Watch) {
        self.sweeps += 1;
        self.process(rank).called = false;
        self.net.note(u64::from(rank) << 8 | 0xff);
        self.read_mail(rank);
        // Any one first, not in turn: it could take every credit that comes back, asking for a lock again and again in step with the turns.
        let windows = self.net.windows();
        let mixed = self.sweeps.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let first = (mixed % u64::from(windows.max(1))) as u32;
        for window in (first..windows).chain(0..first) {
            let at = self.at(window, rank);
            while self.metered(rank, at, window, |engine, port| engine.progress(port)) {}
            self.report(rank, window, watch);
        }
        self.tell_after(rank, watch);
    }

    fn tell_after(&mut self, rank: Rank, watch: &mut impl Watch) {
        let ranks = self.processes.len();
        let mut own = self.windows.iter().skip(rank as usize).step_by(ranks);
        watch.after(rank, &mut own, &mut self.net);
    }

    /// Requests that the engine has completed.
    fn report(&mut self, rank: Rank, window: u32, watch: &mut impl Watch) {
        let at = self.at(window, rank);
        while let Some(id) = meter::engine(|| self.windows[at].next_completed()) {
            self.process(rank).completed(window, id);
            watch.completed(rank, window, id, &mut self.net);
        }
    }

    /// Engine code, whose memory is counted.
    fn metered<R>(
        &mut self,
        rank: Rank,
        at: usize,
        window: u32,
        code: impl FnOnce(&mut Window, &mut crate::transport::sim::SimPort<'_>) -> R,
    ) -> R {
        let before = meter::bytes();
        let (engine, mut port) = (&mut self.windows[at], self.net.port(window, rank));
        let result = meter::engine(|| code(engine, &mut port));
        let memory = &mut self.processes[rank as usize].memory;
        memory.bytes += meter::bytes() - before;
        memory.peak = memory.peak.max(memory.bytes);
        result
    }

    /// Packets of two-sided communication.
    fn read_mail(&mut self, rank: Rank) {
        use two_sided::{Saying, packed, unpacked};
        while let Some(packet) = self.net.next_packet(rank) {
            self.net.spend(self.settings.machine.network.wire.handle);
            let (saying, bytes) = unpacked(packet.value);
            let mail = self.process(rank).mail.get_or_insert_default();
            match (saying, packet.acknowledged) {
                (Saying::Eager | Saying::Ready, false) => mail.arrived.push_back((packet.from, saying, bytes)),
                (Saying::Clear, false) => self.net.port(0, rank).send_packet(packet.from, packed(Saying::Data, bytes), bytes),
                (Saying::Data, false) => mail.received = true,
                (Saying::Data, true) => mail.sent = true,
                (_, true) => {}
            }
        }
        if let State::Waiting(Wait::Received(from)) = self.process(rank).state {
            self.receive(rank, from);
        }
    }

    /// Takes a message that is there, or tells its sender that its place is.
    fn receive(&mut self, rank: Rank, from: Rank) {
        use two_sided::{Saying, packed};
        let mail = self.process(rank).mail.get_or_insert_default();
        match mail.take(from) {
            Some((Saying::Ready, bytes)) => self.net.port(0, rank).send_packet(from, packed(Saying::Clear, bytes), 0),
            Some(_) => mail.received = true,
            None => {}
        }
    }

    fn is_over(&mut self, rank: Rank, wait: Wait) -> bool {
        let window_of = |window: u32| window as usize * self.processes.len() + rank as usize;
        match wait {
            Wait::Request(window, id) => !self.windows[window_of(window)].is_pending(id),
            Wait::Lock(window, target) => self.windows[window_of(window)].holds_lock(target),
            Wait::LockAll(window) => self.windows[window_of(window)].holds_lock_all(),
            Wait::OlderLocks => !self.awaits_lock(rank),
            Wait::Barrier => false,
            Wait::Slot(slot) => {
                let over = self.process(rank).held(slot) == Held::Complete;
                if over {
                    self.process(rank).set(slot, Held::Free);
                }
                over
            }
            Wait::AllSlots => {
                let process = self.process(rank);
                let over = process.slots_pending == 0;
                if over {
                    process.slots.clear();
                }
                over
            }
            Wait::Sent => self.process(rank).mail.as_mut().is_some_and(|mail| std::mem::take(&mut mail.sent)),
            Wait::Received(_) => self.process(rank).mail.as_mut().is_some_and(|mail| std::mem::take(&mut mail.received)),
        }
    }

    fn awaits_lock(&self, rank: Rank) -> bool {
        self.windows.iter().skip(rank as usize).step_by(self.processes.len()).any(Window::awaits_open_lock)
    }

    // ---- steps ----

    /// Asks for the next step, or takes the one that is not finished, and does it.
    fn step(&mut self, rank: Rank, watch: &mut impl Watch) -> Result<Flow, Stuck> {
        let step = match self.process(rank).unfinished.take() {
            Some(Unfinished::Step(step)) => step,
            Some(Unfinished::Others { window, mut op, distance }) => {
                op.target = (rank + distance) % self.ranks();
                if distance + 1 < self.ranks() {
                    self.process(rank).unfinished = Some(Unfinished::Others { window, op, distance: distance + 1 });
                }
                Step::Issue { window, op }
            }
            None => {
                let (now, process) = (self.net.clock(), &mut self.processes[rank as usize]);
                let mut moment = Moment { me: rank, now, flag: process.flag, net: &mut self.net };
                process.script.next(&mut moment)
            }
        };
        if matches!(step, Step::Lock { blocking: true, .. } | Step::LockAll { blocking: true, .. }) && self.awaits_lock(rank) {
            self.process(rank).unfinished = Some(Unfinished::Step(step));
            return Ok(Flow::Wait(Wait::OlderLocks));
        }
        watch.called(self.net.clock(), rank, &step);
        let flow = match self.call(rank, step, watch) {
            Ok(flow) => flow,
            Err(error) => return Err(self.stuck(StuckBecause::Refused { rank, error })),
        };
        self.net.note(u64::from(rank) << 32 ^ self.net.clock());
        self.tell_after(rank, watch);
        Ok(flow)
    }

    fn call(&mut self, rank: Rank, step: Step, watch: &mut impl Watch) -> Result<Flow, SyncError> {
        match step {
            Step::Compute(time) => {
                self.net.spend(time);
                return Ok(Flow::Compute);
            }
            Step::Flops { flops, bytes } => {
                self.net.spend(self.settings.machine.computes(flops, bytes));
                return Ok(Flow::Compute);
            }
            Step::End => return Ok(Flow::End),
            Step::Barrier => return Ok(self.barrier(rank)),
            Step::IssueOthers { window, op } => {
                if self.ranks() > 1 {
                    self.process(rank).unfinished = Some(Unfinished::Others { window, op, distance: 1 });
                }
                return Ok(Flow::Next);
            }
            _ => {}
        }
        self.calls += 1;
        self.net.spend(self.settings.machine.call);
        match step {
            Step::Post { window, group } => {
                self.opening(rank, window, &group, |engine, port, group| engine.post(port, group, Default::default()))
            }
            Step::Start { window, group } => {
                self.opening(rank, window, &group, |engine, port, group| engine.start(port, group, Default::default()))
            }
            Step::Complete { window, how } => self.closing(rank, window, how, watch, |engine, port| engine.complete(port)),
            Step::Wait { window, how } => self.closing(rank, window, how, watch, |engine, port| engine.wait(port)),
            Step::Fence { window, assert, how } => {
                self.closing(rank, window, how, watch, |engine, port| engine.fence(port, assert))
            }
            Step::Unlock { window, target, how } => {
                self.closing(rank, window, how, watch, |engine, port| engine.unlock(port, target))
            }
            Step::UnlockAll { window, how } => self.closing(rank, window, how, watch, |engine, port| engine.unlock_all(port)),
            Step::Flush { window, target, local, how } => self.closing(rank, window, how, watch, |engine, port| {
                if local { engine.flush_local(port, target) } else { engine.flush(port, target) }
            }),
            Step::IssueRequest { window, op, slot } => {
                self.closing(rank, window, How::Slot(slot), watch, |engine, port| engine.issue_request(port, &op))
            }
            Step::Issue { window, op } => {
                let at = self.at(window, rank);
                self.metered(rank, at, window, |engine, port| engine.issue(port, &op))?;
                let process = self.process(rank);
                process.communications = process.communications.wrapping_add(1);
                if process.communications.is_multiple_of(CALLS_PER_SWEEP) {
                    self.sweep(rank, watch);
                }
                Ok(Flow::Next)
            }
            Step::Test { window } => {
                let at = self.at(window, rank);
                let over = self.metered(rank, at, window, |engine, port| engine.test(port))?;
                self.process(rank).flag = over;
                if over {
                    watch.outcome(rank, window, Outcome::Complete, &mut self.net);
                    self.report(rank, window, watch);
                } else {
                    self.sweep(rank, watch);
                }
                Ok(Flow::Next)
            }
            Step::Lock { blocking, .. } | Step::LockAll { blocking, .. } => self.lock(rank, step, blocking),
            Step::Await(slot) => Ok(self.await_slot(rank, slot)),
            Step::AwaitAll => Ok(self.wait_unless_over(rank, Wait::AllSlots)),
            Step::TestSlot(slot) => {
                self.sweep(rank, watch);
                let over = self.is_over(rank, Wait::Slot(slot));
                self.process(rank).flag = over;
                Ok(Flow::Next)
            }
            Step::Free(slot) => {
                self.process(rank).free(slot);
                Ok(Flow::Next)
            }
            Step::Send { to, bytes } => Ok(self.send(rank, to, bytes)),
            Step::Receive { from } => {
                self.receive(rank, from);
                Ok(self.wait_unless_over(rank, Wait::Received(from)))
            }
            Step::Compute(_) | Step::Flops { .. } | Step::End | Step::Barrier | Step::IssueOthers { .. } => {
                unreachable!("no calls")
            }
        }
    }

    fn wait_unless_over(&mut self, rank: Rank, wait: Wait) -> Flow {
        if self.is_over(rank, wait) { Flow::Next } else { Flow::Wait(wait) }
    }

    fn await_slot(&mut self, rank: Rank, slot: Slot) -> Flow {
        assert_ne!(self.process(rank).held(slot), Held::Free, "rank {rank} waits for slot {slot}, which holds no request");
        self.wait_unless_over(rank, Wait::Slot(slot))
    }

    fn opening(
        &mut self,
        rank: Rank,
        window: u32,
        group: &Group,
        call: impl FnOnce(&mut Window, &mut crate::transport::sim::SimPort<'_>, &[Rank]) -> Result<(), SyncError>,
    ) -> Result<Flow, SyncError> {
        let mut scratch = std::mem::take(&mut self.group);
        scratch.clear();
        match group {
            Group::One(other) => scratch.push(*other),
            Group::Others => scratch.extend((0..self.ranks()).filter(|other| *other != rank)),
            Group::List(list) => scratch.extend_from_slice(list),
        }
        let at = self.at(window, rank);
        let result = self.metered(rank, at, window, |engine, port| call(engine, port, &scratch));
        self.group = scratch;
        result.map(|()| Flow::Next)
    }

    /// A call that gives an outcome: waits for it, or puts its request into a slot.
    fn closing(
        &mut self,
        rank: Rank,
        window: u32,
        how: How,
        watch: &mut impl Watch,
        call: impl FnOnce(&mut Window, &mut crate::transport::sim::SimPort<'_>) -> Result<Outcome, SyncError>,
    ) -> Result<Flow, SyncError> {
        if let How::Slot(slot) = how {
            assert_eq!(self.process(rank).held(slot), Held::Free, "slot {slot} of rank {rank} holds a request");
        }
        let at = self.at(window, rank);
        let outcome = self.metered(rank, at, window, call)?;
        watch.outcome(rank, window, outcome, &mut self.net);
        self.report(rank, window, watch);
        Ok(match (outcome, how) {
            (Outcome::Complete, How::Blocking) => Flow::Next,
            (Outcome::Complete, How::Slot(slot)) => {
                self.process(rank).set(slot, Held::Complete);
                Flow::Next
            }
            (Outcome::Pending(id), How::Blocking) => self.block(rank, window, id),
            (Outcome::Pending(id), How::Slot(slot)) => {
                self.process(rank).bind(window, id, slot);
                self.process(rank).set(slot, Held::Pending);
                // A call of ours drives everything [PR-1].
                self.sweep(rank, watch);
                Flow::Next
            }
        })
    }

    fn block(&mut self, rank: Rank, window: u32, id: RequestId) -> Flow {
        self.wait_unless_over(rank, Wait::Request(window, id))
    }

    fn lock(&mut self, rank: Rank, step: Step, blocking: bool) -> Result<Flow, SyncError> {
        let wait = match step {
            Step::Lock { window, mode, target, assert, .. } => {
                let at = self.at(window, rank);
                self.metered(rank, at, window, |engine, port| engine.lock(port, mode, target, assert))?;
                let parameters = self.net.parameters();
                // Memory of one's own node is reached by load and store [EP-1].
                let near = parameters.node(rank) == parameters.node(target);
                near.then_some(Wait::Lock(window, target))
            }
            Step::LockAll { window, assert, .. } => {
                let at = self.at(window, rank);
                self.metered(rank, at, window, |engine, port| engine.lock_all(port, assert))?;
                Some(Wait::LockAll(window))
            }
            _ => unreachable!("only locks come here"),
        };
        Ok(match wait {
            Some(wait) if blocking => self.wait_unless_over(rank, wait),
            _ => Flow::Next,
        })
    }

    fn send(&mut self, rank: Rank, to: Rank, bytes: u64) -> Flow {
        use two_sided::{Saying, packed};
        let mut port = self.net.port(0, rank);
        if bytes <= self.settings.machine.eager_max {
            port.send_packet(to, packed(Saying::Eager, bytes), bytes);
            // Its bytes are copied into a buffer of the library's.
            self.net.spend(self.settings.machine.network.local.serial(bytes));
            return Flow::Next;
        }
        port.send_packet(to, packed(Saying::Ready, bytes), 0);
        Flow::Wait(Wait::Sent)
    }

    /// Everybody waits for the last.
    fn barrier(&mut self, rank: Rank) -> Flow {
        self.in_barrier.push(rank);
        if self.in_barrier.len() < self.processes.len() {
            return Flow::Wait(Wait::Barrier);
        }
        let at = self.net.clock();
        for other in std::mem::take(&mut self.in_barrier) {
            if other != rank {
                let process = self.process(other);
                let on = process.clock.max(at);
                process.in_calls += on - process.clock;
                process.clock = on;
                process.state = State::Busy;
                self.set_alarm(other, on);
            }
        }
        Flow::Next
    }
}
