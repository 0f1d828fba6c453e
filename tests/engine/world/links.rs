//! Scripted links over the simulated network, and the port that the engines see.
//!
//! It keeps the promises of [`Port`] and no others: signals overtake unfinished operations,
//! operations of one pair finish in any order unless they are accumulates, completions are seen
//! only after [`Port::poll`], changes are not reported, and "no resource" is a normal answer.

use std::collections::{HashMap, HashSet, VecDeque};

use mpix_rma::engine::*;
use mpix_rma::transport::sim::{
    Carry, EventKind, FaultInjection as NoFaults, LinkClass, Network, NextEvent, Parameters, Times,
};

use super::model::Model;

/// Virtual time, without a unit.
pub type Time = u64;

/// How a link answers [`Port::post`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Like a store to shared memory: complete at once.
    Immediate,
    /// Buffered: the origin's buffer is free at once, and the target sees the data later. Fetching
    /// operations behave as in `Pending`.
    LocalThenRemote,
    /// Both stages are reported later.
    Pending,
}

/// One direction between two processes.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    pub mode: Mode,
    /// Time until the effect at the target.
    pub op_latency: Time,
    /// Time until the origin's buffer is free, at most `op_latency`. Results are in place when the
    /// operation takes effect.
    pub local_latency: Time,
    pub signal_latency: Time,
    /// Operations in flight before the link answers "no resource".
    pub credits: u32,
}

impl Default for Link {
    /// Signals are faster than operations, so that a signal sent too early is also seen too early.
    fn default() -> Self {
        Link {
            mode: Mode::Pending,
            op_latency: 10,
            local_latency: 5,
            signal_latency: 2,
            credits: u32::MAX,
        }
    }
}

impl Link {
    pub fn with_mode(mode: Mode) -> Self {
        let signal_latency = if mode == Mode::Immediate { 1 } else { 2 };
        Link { mode, signal_latency, ..Self::default() }
    }
}

/// Port calls of one process, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    pub post: u64,
    pub order: u64,
    pub signal: u64,
    pub observe: u64,
    pub poll: u64,
    pub load: u64,
    pub store: u64,
    /// Atomic read-modify-writes.
    pub rmw: u64,
}

impl Calls {
    /// Number of accesses to lock words.
    pub fn lock_words(&self) -> u64 {
        self.rmw + self.load + self.store
    }
    pub fn total(&self) -> u64 {
        self.lock_words() + self.post + self.signal + self.observe + self.poll
    }
}

/// An access that may have changed a lock word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockWrite {
    pub by: Rank,
    pub home: Rank,
    pub word: LockWord,
    pub value: u64,
}

/// An accepted signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal {
    pub at: Time,
    pub from: Rank,
    pub to: Rank,
    pub word: Word,
    pub value: u64,
}

/// Seeded fault injection.
pub struct FaultInjection {
    pub rng: fastrand::Rng,
    pub latency_max: Time,
    /// One post or signal in this many is refused (0: none).
    pub refuse_one_in: u32,
}

/// The network of all processes, its links, and what happened on them.
pub struct Net {
    pub sim: Network,
    pub model: Model,
    links: HashMap<(Rank, Rank), Link>,
    pub default_link: Link,
    /// Latencies of the next operations of a pair, in order of posting.
    scripted: HashMap<(Rank, Rank), VecDeque<Time>>,
    refuse_ops: HashMap<(Rank, Rank), u32>,
    refuse_signals: HashMap<(Rank, Rank, Word), u32>,
    in_flight: HashMap<(Rank, Rank), u32>,
    tickets: HashSet<(Rank, Ticket)>,
    /// Effect time of a pair's last accumulate: accumulates take effect in order.
    last_accumulate: HashMap<(Rank, Rank), Time>,
    /// Latest effect time of a pair's operations so far.
    last_effect: HashMap<(Rank, Rank), Time>,
    /// Last value of a word, and when it is seen.
    sent: HashMap<(Rank, Rank, Word), (u64, Time)>,
    /// Lock words are accessed with a delay, as over a network.
    pub slow_locks: bool,
    /// Lock operations with an access in flight. Each may have one.
    lock_tickets: HashSet<(Rank, LockTicket)>,
    /// Stages that the last poll of a process has seen.
    polled: Vec<VecDeque<(Ticket, Stage)>>,
    /// A wake-up is scheduled.
    waking: bool,
    pub calls: Vec<Calls>,
    pub lock_writes: Vec<LockWrite>,
    pub signals: Vec<Signal>,
    /// Operations that a rank may have in flight to all targets together.
    pub most_in_flight: Option<u32>,
    /// Injected random latencies and refusals, for generated programs.
    pub faults: Option<FaultInjection>,
}

/// All ranks share a node, so that lock words are accessed at once. Operations and signals set
/// their own times.
fn parameters(ranks: u32) -> Parameters {
    let free = LinkClass { latency: 0, post: 0, handle: 0, gap: 0, byte_fs: 0 };
    Parameters {
        ranks_per_node: ranks,
        wire: free,
        local: free,
        bus_byte_fs: 0,
        loopback: 0,
        mtu: u64::MAX,
        inline_max: 0,
        local_stage: true,
        shared_lock_words: true,
        atomic_gap: 0,
        atomics_by_rank: false,
        accumulate_byte_fs: 0,
        credits_pair: u32::MAX,
        credits_nic: u32::MAX,
        bulk_window: u64::MAX,
        tree: None,
    }
}

impl Net {
    pub fn new(ranks: u32, flags: ReorderFlags, bytes: usize) -> Self {
        let mut sim = Network::new(ranks, parameters(ranks), Carry::Bytes, NoFaults::default());
        sim.add_window(bytes);
        sim.record();
        Net {
            sim,
            model: Model::new(ranks, vec![flags; ranks as usize]),
            links: HashMap::new(),
            default_link: Link::default(),
            scripted: HashMap::new(),
            refuse_ops: HashMap::new(),
            refuse_signals: HashMap::new(),
            in_flight: HashMap::new(),
            tickets: HashSet::new(),
            last_accumulate: HashMap::new(),
            last_effect: HashMap::new(),
            sent: HashMap::new(),
            slow_locks: false,
            lock_tickets: HashSet::new(),
            polled: vec![VecDeque::new(); ranks as usize],
            waking: false,
            calls: vec![Calls::default(); ranks as usize],
            lock_writes: Vec::new(),
            signals: Vec::new(),
            faults: None,
            most_in_flight: None,
        }
    }

    pub fn link(&mut self, from: Rank, to: Rank, link: Link) {
        assert!(link.local_latency <= link.op_latency);
        self.links.insert((from, to), link);
    }

    fn link_of(&self, pair: (Rank, Rank)) -> Link {
        self.links.get(&pair).copied().unwrap_or(self.default_link)
    }

    /// Sets the latencies of the next operations from `from` to `to`.
    pub fn script_latencies(&mut self, from: Rank, to: Rank, latencies: &[Time]) {
        self.scripted.entry((from, to)).or_default().extend(latencies);
    }

    pub fn refuse_ops(&mut self, from: Rank, to: Rank, times: u32) {
        self.refuse_ops.insert((from, to), times);
    }

    pub fn refuse_signals(&mut self, from: Rank, to: Rank, word: Word, times: u32) {
        self.refuse_signals.insert((from, to, word), times);
    }

    /// Number of refusals of operations still to come.
    pub fn refusals_left(&self, from: Rank, to: Rank) -> u32 {
        self.refuse_ops.get(&(from, to)).copied().unwrap_or(0)
    }

    pub fn lock_word(&self, home: Rank, word: LockWord) -> u64 {
        self.sim.lock_word(0, home, word)
    }

    pub fn next_time(&self) -> Option<Time> {
        self.sim.next_time()
    }

    pub fn is_idle(&self) -> bool {
        self.sim.is_idle() && self.polled.iter().all(VecDeque::is_empty)
    }

    /// Schedules a wake-up at `at`.
    pub fn wake_at(&mut self, at: Time) {
        self.sim.alarm(at, 0, 0);
    }

    /// Jumps to the next event and delivers all events of that time.
    pub fn advance(&mut self) {
        let time = self.next_time();
        while time.is_some() && self.next_time() == time {
            if let Some(NextEvent::Alarm { .. }) = self.sim.advance() {
                self.waking = false;
            }
            self.look();
        }
        while self.sim.next_woken().is_some() {}
    }

    /// Tells the rules what happened.
    fn look(&mut self) {
        while let Some(event) = self.sim.next_event() {
            let (at, by) = (event.at, event.by);
            match event.kind {
                EventKind::Posted(op) => *self.in_flight.entry((by, op.target)).or_insert(0) += 1,
                EventKind::Effect(op) => {
                    *self.in_flight.get_mut(&(by, op.target)).expect("posted") -= 1;
                }
                EventKind::Signalled { to, word, value } => {
                    self.signals.push(Signal { at, from: by, to, word, value });
                }
                EventKind::Accessed { home, word, access, old } if access != Atomic::Load => {
                    let value = access.applied_to(old);
                    self.lock_writes.push(LockWrite { by, home, word, value });
                }
                _ => {}
            }
            self.model.event(&event);
        }
    }

    /// A random part of the injected latency.
    fn delay(&mut self) -> Time {
        self.faults.as_mut().map_or(0, |faults| faults.rng.u64(0..=faults.latency_max))
    }

    fn lock_latency(&mut self) -> Time {
        let fixed = if self.faults.is_some() { 0 } else { self.default_link.signal_latency };
        1 + fixed + self.delay()
    }

    /// True if the call is refused, by a counted refusal or by an injected fault. Its process may
    /// soon retry.
    fn refuses(&mut self, counted: impl FnOnce(&mut Self) -> Option<&mut u32>) -> bool {
        let refuses = match counted(self).filter(|left| **left > 0) {
            Some(left) => {
                *left -= 1;
                true
            }
            None => self.faults.as_mut().is_some_and(|faults| {
                faults.refuse_one_in > 0 && faults.rng.u32(0..faults.refuse_one_in) == 0
            }),
        };
        if refuses && !std::mem::replace(&mut self.waking, true) {
            self.wake_at(self.sim.now() + 1);
        }
        refuses
    }

    /// When an operation that is posted now leaves and takes effect.
    fn times(&mut self, me: Rank, op: &Op) -> Times {
        let (pair, now) = ((me, op.target), self.sim.now());
        let link = self.link_of(pair);
        let atomic = !matches!(op.kind, OpKind::Put | OpKind::Get);
        let after = |applies, effects: &HashMap<(Rank, Rank), Time>| {
            effects.get(&pair).copied().filter(|_| applies).unwrap_or(0)
        };
        // A notification takes effect after all earlier operations.
        let earliest = after(atomic, &self.last_accumulate)
            .max(after(op.notification.is_some(), &self.last_effect));
        // Complete at once only if no earlier operation to be followed is in flight.
        if link.mode == Mode::Immediate && earliest <= now {
            return Times { left: now, lands: now, done: now };
        }
        let (mut left, mut lands) = match link.mode {
            Mode::Immediate => (now, now),
            _ => (now + link.local_latency, now + link.op_latency),
        };
        if let Some(latency) = self.scripted.get_mut(&pair).and_then(VecDeque::pop_front) {
            lands = now + latency;
            left = left.min(lands);
        } else if self.faults.is_some() {
            lands += self.delay();
            left = self.faults.as_mut().map_or(left, |faults| faults.rng.u64(now..=lands));
        }
        if link.mode == Mode::LocalThenRemote {
            left = now;
        }
        lands = lands.max(earliest);
        if atomic {
            self.last_accumulate.insert(pair, lands);
        }
        let latest = self.last_effect.entry(pair).or_insert(0);
        *latest = lands.max(*latest);
        Times { left, lands, done: lands }
    }

    /// The port of a process.
    pub fn port(&mut self, me: Rank) -> RankPort<'_> {
        self.sim.begin(me, self.sim.now());
        RankPort { net: self, me }
    }
}

/// The [`Port`] of one process.
pub struct RankPort<'a> {
    net: &'a mut Net,
    me: Rank,
}

impl RankPort<'_> {
    fn calls(&mut self) -> &mut Calls {
        &mut self.net.calls[self.me as usize]
    }
}

impl LockMemory for RankPort<'_> {
    fn atomic(&mut self, home: Rank, word: LockWord, access: Atomic, ticket: LockTicket) -> Answer {
        let calls = self.calls();
        match access {
            Atomic::Load => calls.load += 1,
            Atomic::Store(_) => calls.store += 1,
            _ => calls.rmw += 1,
        }
        let (me, net) = (self.me, &mut *self.net);
        assert!(home < net.sim.ranks(), "lock word at rank {home}, which does not exist");
        let mut times = None;
        if net.slow_locks {
            if net.refuses(|_| None) {
                return Answer::NoResource;
            }
            assert!(
                net.lock_tickets.insert((me, ticket)),
                "{ticket:?} of rank {me} has an access under way"
            );
            let lands = net.sim.now() + net.lock_latency();
            let done = lands + net.lock_latency();
            times = Some(Times { left: lands, lands, done });
        }
        let port = net.sim.port(0, me);
        let mut port = if let Some(times) = times { port.timed(times) } else { port };
        let answer = port.atomic(home, word, access, ticket);
        net.look();
        answer
    }
    fn look(&mut self, word: LockWord) -> u64 {
        self.calls().load += 1;
        self.net.lock_word(self.me, word)
    }
}

impl Port for RankPort<'_> {
    fn post(&mut self, op: &Op, ticket: Ticket) -> Posted {
        self.calls().post += 1;
        let (me, net) = (self.me, &mut *self.net);
        let pair = (me, op.target);
        // The rules apply to the attempt, whatever the answer.
        net.model.check_post(me, op);
        let in_flight = net.in_flight.get(&pair).copied().unwrap_or(0);
        let of_all = || net.in_flight.iter().filter(|((of, _), _)| *of == me).map(|(_, n)| n).sum();
        if net.most_in_flight.is_some_and(|most| most <= of_all())
            || in_flight >= net.link_of(pair).credits
            || net.refuses(|net| net.refuse_ops.get_mut(&pair))
        {
            return Posted::NoResource;
        }
        let times = net.times(me, op);
        let answer = net.sim.port(0, me).timed(times).post(op, ticket);
        if answer != Posted::Complete {
            let is_new = net.tickets.insert((me, ticket));
            assert!(is_new, "ticket {ticket:?} of rank {me} is still in use");
        }
        net.look();
        answer
    }

    fn order(&mut self, target: Rank) -> Result<(), NoResource> {
        self.calls().order += 1;
        match self.net.in_flight.get(&(self.me, target)) {
            Some(in_flight) if *in_flight > 0 => Err(NoResource),
            _ => Ok(()),
        }
    }

    fn signal(&mut self, peer: Rank, word: Word, value: u64) -> Result<(), NoResource> {
        self.calls().signal += 1;
        let (me, net) = (self.me, &mut *self.net);
        let key = (me, peer, word);
        net.model.check_signal(me, peer, word, value);
        if net.refuses(|net| net.refuse_signals.get_mut(&key)) {
            return Err(NoResource);
        }
        let (last, last_at) = net.sent.get(&key).copied().unwrap_or((0, 0));
        assert!(
            value >= last,
            "{word:?} from {me} to {peer} falls: {last}, then {value} [MA-1, MA-2]"
        );
        let at = net.sim.now() + net.link_of((me, peer)).signal_latency + net.delay();
        let at = at.max(last_at);
        net.sent.insert(key, (value, at));
        let times = Times { left: at, lands: at, done: at };
        let answer = net.sim.port(0, me).timed(times).signal(peer, word, value);
        net.look();
        answer
    }

    fn observe(&mut self, peer: Rank, word: Word) -> u64 {
        self.calls().observe += 1;
        self.net.sim.port(0, self.me).observe(peer, word)
    }

    fn counter(&mut self, index: u32) -> u64 {
        self.net.sim.port(0, self.me).counter(index)
    }

    fn next_arrival(&mut self) -> Option<Arrival> {
        self.net.sim.port(0, self.me).next_arrival()
    }

    fn poll(&mut self) -> bool {
        self.calls().poll += 1;
        let (mut port, polled) =
            (self.net.sim.port(0, self.me), &mut self.net.polled[self.me as usize]);
        let before = polled.len();
        while port.next_change().is_some() {}
        polled.extend(std::iter::from_fn(|| port.next_finished()));
        polled.len() > before
    }

    fn next_finished(&mut self) -> Option<(Ticket, Stage)> {
        let next = self.net.polled[self.me as usize].pop_front();
        if let Some((ticket, Stage::Remote)) = next {
            self.net.tickets.remove(&(self.me, ticket));
        }
        next
    }

    fn next_answer(&mut self) -> Option<(LockTicket, u64)> {
        let answer = self.net.sim.port(0, self.me).next_answer()?;
        self.net.lock_tickets.remove(&(self.me, answer.0));
        Some(answer)
    }
}
