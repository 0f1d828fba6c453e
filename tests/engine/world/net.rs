//! The in-memory transport: an event queue in virtual time, window memories, signal words and lock
//! words.
//!
//! It keeps the promises of [`Port`] and no others: signals overtake unfinished operations,
//! operations of one pair finish in any order unless they are accumulates, completions are seen
//! only after [`Port::poll`], changes are not reported, and "no resource" is a normal answer.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet, VecDeque};

use mpix_rma::engine::*;
use mpix_rma::transport::datatype::element::reduction;

use super::model::{Model, OpId};

/// Virtual time, without a unit.
pub type Time = u64;

/// How a link answers [`Port::post`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Like a store to shared memory: complete at once.
    Immediate,
    /// Buffered: the origin's buffer is free at once, and the target sees the data later. Gets
    /// behave as in `Pending`.
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
    /// Time until the origin's buffer is free, at most `op_latency`.
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
    pub fn immediate() -> Self {
        Link {
            mode: Mode::Immediate,
            op_latency: 0,
            local_latency: 0,
            signal_latency: 1,
            ..Self::default()
        }
    }
    pub fn with_mode(mode: Mode) -> Self {
        if mode == Mode::Immediate { Self::immediate() } else { Link { mode, ..Self::default() } }
    }
}

/// A buffer of some process. Its number is the upper half of an [`Addr`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Buf(pub usize);

impl Buf {
    pub fn addr(self) -> Addr {
        Addr((self.0 + 1) << 32)
    }
    pub fn of(addr: Addr) -> Buf {
        assert!(
            addr.0 >> 32 != 0 && addr.0 & 0xffff_ffff == 0,
            "not an address of this world: {addr:?}"
        );
        Buf((addr.0 >> 32) - 1)
    }
}

/// Port calls of one process, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    pub post: u64,
    pub signal: u64,
    pub observe: u64,
    pub poll: u64,
    pub load: u64,
    pub store: u64,
    pub swap: u64,
    pub fetch_add: u64,
    pub compare_swap: u64,
}

impl Calls {
    /// Number of atomic read-modify-writes.
    pub fn rmw(&self) -> u64 {
        self.swap + self.fetch_add + self.compare_swap
    }
    /// Number of accesses to lock words.
    pub fn lock_words(&self) -> u64 {
        self.rmw() + self.load + self.store
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Local {
        op: OpId,
        ticket: Ticket,
    },
    Remote {
        op: OpId,
        ticket: Ticket,
    },
    Signal {
        from: Rank,
        to: Rank,
        word: Word,
        value: u64,
    },
    /// An access to a lock word, by number.
    Lock(u64),
    /// The answer of an access to a lock word.
    Answer {
        by: Rank,
        ticket: LockTicket,
        old: u64,
    },
    /// A refused process may retry.
    Wake,
}

/// An access to a lock word in flight.
#[derive(Clone, Copy, Debug)]
struct LockAccess {
    by: Rank,
    home: Rank,
    word: LockWord,
    access: Atomic,
    ticket: LockTicket,
}

/// The network of all processes.
pub struct Net {
    pub now: Time,
    sequence: u64,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    /// Window memory of each process.
    pub mem: Vec<Vec<u8>>,
    bufs: Vec<Vec<u8>>,
    links: HashMap<(Rank, Rank), Link>,
    pub default_link: Link,
    /// Latencies of the next operations of a pair, in order of posting.
    scripted: HashMap<(Rank, Rank), VecDeque<Time>>,
    refuse_ops: HashMap<(Rank, Rank), u32>,
    refuse_signals: HashMap<(Rank, Rank, Word), u32>,
    in_flight: HashMap<(Rank, Rank), u32>,
    tickets: HashSet<(Rank, Ticket)>,
    /// Data of a pending operation between its local and its remote stage.
    carried: HashMap<OpId, Vec<u8>>,
    ops: HashMap<OpId, Op>,
    /// Effect time of a pair's last accumulate: accumulates take effect in order.
    last_accumulate: HashMap<(Rank, Rank), Time>,
    /// Latest effect time of a pair's operations so far.
    last_effect: HashMap<(Rank, Rank), Time>,
    counters: HashMap<(Rank, u32), u64>,
    tagged: Vec<VecDeque<Arrival>>,
    seen: HashMap<(Rank, Rank, Word), u64>,
    sent: HashMap<(Rank, Rank, Word), (u64, Time)>,
    lock_words: BTreeMap<(Rank, LockWord), u64>,
    /// Lock words are accessed with a delay, as over a network.
    pub slow_locks: bool,
    lock_accesses: HashMap<u64, LockAccess>,
    /// Lock operations with an access in flight. Each may have one.
    lock_tickets: HashSet<(Rank, LockTicket)>,
    answers: Vec<VecDeque<(LockTicket, u64)>>,
    arrived: Vec<VecDeque<(Ticket, Stage)>>,
    finished: Vec<VecDeque<(Ticket, Stage)>>,
    /// A wake-up is scheduled.
    waking: bool,
    pub calls: Vec<Calls>,
    pub lock_writes: Vec<LockWrite>,
    pub signals: Vec<Signal>,
    pub model: Model,
    /// Injected random latencies and refusals, for generated programs.
    pub faults: Option<FaultInjection>,
}

/// Seeded fault injection.
pub struct FaultInjection {
    pub rng: fastrand::Rng,
    pub latency_max: Time,
    /// One post or signal in this many is refused (0: none).
    pub refuse_one_in: u32,
}

impl Net {
    pub fn new(ranks: u32, flags: Vec<ReorderFlags>, mem: usize) -> Self {
        Net {
            now: 0,
            sequence: 0,
            events: BinaryHeap::new(),
            mem: vec![vec![0; mem]; ranks as usize],
            bufs: Vec::new(),
            links: HashMap::new(),
            default_link: Link::default(),
            scripted: HashMap::new(),
            refuse_ops: HashMap::new(),
            refuse_signals: HashMap::new(),
            in_flight: HashMap::new(),
            tickets: HashSet::new(),
            carried: HashMap::new(),
            ops: HashMap::new(),
            last_accumulate: HashMap::new(),
            last_effect: HashMap::new(),
            counters: HashMap::new(),
            tagged: vec![VecDeque::new(); ranks as usize],
            seen: HashMap::new(),
            sent: HashMap::new(),
            lock_words: BTreeMap::new(),
            slow_locks: false,
            lock_accesses: HashMap::new(),
            lock_tickets: HashSet::new(),
            answers: vec![VecDeque::new(); ranks as usize],
            arrived: vec![VecDeque::new(); ranks as usize],
            finished: vec![VecDeque::new(); ranks as usize],
            waking: false,
            calls: vec![Calls::default(); ranks as usize],
            lock_writes: Vec::new(),
            signals: Vec::new(),
            model: Model::new(ranks, flags),
            faults: None,
        }
    }

    pub fn link(&mut self, from: Rank, to: Rank, link: Link) {
        assert!(link.local_latency <= link.op_latency);
        self.links.insert((from, to), link);
    }

    fn link_of(&self, from: Rank, to: Rank) -> Link {
        self.links.get(&(from, to)).copied().unwrap_or(self.default_link)
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

    pub fn allocate(&mut self, bytes: Vec<u8>) -> Buf {
        self.bufs.push(bytes);
        Buf(self.bufs.len() - 1)
    }
    pub fn buf(&self, buf: Buf) -> &[u8] {
        &self.bufs[buf.0]
    }
    pub fn buf_mut(&mut self, buf: Buf) -> &mut Vec<u8> {
        &mut self.bufs[buf.0]
    }

    pub fn lock_word(&self, home: Rank, word: LockWord) -> u64 {
        self.lock_words.get(&(home, word)).copied().unwrap_or(0)
    }

    pub fn next_time(&self) -> Option<Time> {
        self.events.peek().map(|Reverse((time, ..))| *time)
    }

    pub fn is_idle(&self) -> bool {
        self.events.is_empty()
            && self.answers.iter().all(VecDeque::is_empty)
            && self.arrived.iter().chain(&self.finished).all(VecDeque::is_empty)
    }

    fn schedule(&mut self, at: Time, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((at, self.sequence, event)));
    }

    /// Schedules a wake-up at `at`.
    pub fn wake_at(&mut self, at: Time) {
        self.schedule(at, Event::Wake);
    }

    fn wake_soon(&mut self) {
        if !self.waking {
            self.waking = true;
            self.wake_at(self.now + 1);
        }
    }

    /// Jumps to the next event and delivers all events of that time.
    pub fn advance(&mut self) {
        let Some(time) = self.next_time() else { return };
        self.now = self.now.max(time);
        while self.next_time().is_some_and(|next| next <= self.now) {
            let Some(Reverse((_, _, event))) = self.events.pop() else { return };
            self.deliver(event);
        }
    }

    fn deliver(&mut self, event: Event) {
        match event {
            Event::Wake => self.waking = false,
            Event::Lock(number) => {
                let LockAccess { by, home, word, access, ticket } =
                    self.lock_accesses.remove(&number).expect("on its way");
                let old = self.access(by, home, word, access);
                let at = self.now + self.lock_latency();
                self.schedule(at, Event::Answer { by, ticket, old });
            }
            Event::Answer { by, ticket, old } => self.answers[by as usize].push_back((ticket, old)),
            Event::Signal { from, to, word, value } => {
                let seen = self.seen.entry((to, from, word)).or_insert(0);
                assert!(*seen <= value);
                *seen = value;
            }
            Event::Local { op, ticket } => {
                let record = self.ops[&op];
                match record.kind {
                    OpKind::Put | OpKind::Accumulate => {
                        let data = self.read_origin(&record);
                        self.carried.insert(op, data);
                    }
                    OpKind::Get | OpKind::GetAccumulate | OpKind::CompareAndSwap => {
                        self.apply_fetching(&record)
                    }
                }
                self.model.op_local(op, self.now);
                self.arrived[self.model.ops[op].rank as usize].push_back((ticket, Stage::Local));
            }
            Event::Remote { op, ticket } => {
                let record = self.ops.remove(&op).expect("in flight");
                if let Some(data) = self.carried.remove(&op) {
                    self.apply_storing(&record, &data);
                }
                self.model.op_remote(op, self.now);
                self.notify(op, &record);
                let rank = self.model.ops[op].rank;
                *self.in_flight.get_mut(&(rank, record.target)).expect("in flight") -= 1;
                self.arrived[rank as usize].push_back((ticket, Stage::Remote));
            }
        }
    }

    fn lock_latency(&mut self) -> Time {
        1 + self.faults.as_mut().map_or(self.default_link.signal_latency, |faults| {
            faults.rng.u64(0..=faults.latency_max)
        })
    }

    fn access(&mut self, by: Rank, home: Rank, word: LockWord, access: Atomic) -> u64 {
        assert!(home < self.mem.len() as u32, "lock word at rank {home}, which does not exist");
        if access == Atomic::Load {
            return self.lock_word(home, word);
        }
        if let (LockWord::Tail, Atomic::Swap(node)) = (word, access) {
            self.model.queued(by, home, node);
        }
        let cell = self.lock_words.entry((home, word)).or_insert(0);
        let old = *cell;
        *cell = access.applied_to(old);
        self.lock_writes.push(LockWrite { by, home, word, value: *cell });
        old
    }

    fn read_origin(&self, op: &Op) -> Vec<u8> {
        if op.len == 0 {
            return Vec::new();
        }
        self.bufs[Buf::of(op.origin).0][..op.len as usize].to_vec()
    }

    fn target_range(op: &Op) -> std::ops::Range<usize> {
        op.disp as usize..(op.disp + op.len) as usize
    }

    fn reduce(op: &Op, current: &mut [u8], input: &[u8]) {
        match op.reduction {
            reduction::REPLACE => current.copy_from_slice(input),
            reduction::NO_OP => {}
            reduction::SUM => {
                for (cell, operand) in current.chunks_exact_mut(8).zip(input.chunks_exact(8)) {
                    let sum = u64_of(cell).wrapping_add(u64_of(operand));
                    cell.copy_from_slice(&sum.to_le_bytes());
                }
            }
            other => panic!("this world does not reduce by {other:?}"),
        }
    }

    fn notify(&mut self, id: OpId, op: &Op) {
        let Some(notification) = op.notification else { return };
        match notification.kind() {
            NotificationKind::Counter(index) => {
                *self.counters.entry((op.target, index)).or_insert(0) += 1;
            }
            NotificationKind::Tag(tag) => self.tagged[op.target as usize]
                .push_back(Arrival { source: self.model.ops[id].rank, tag }),
        }
        self.model.op_notified(id, self.now);
    }

    fn apply_storing(&mut self, op: &Op, data: &[u8]) {
        let cells = &mut self.mem[op.target as usize][Self::target_range(op)];
        match op.kind {
            OpKind::Put => cells.copy_from_slice(data),
            OpKind::Accumulate => Self::reduce(op, cells, data),
            _ => unreachable!("fetching operations take effect with their result"),
        }
    }

    fn apply_fetching(&mut self, op: &Op) {
        let old = self.mem[op.target as usize][Self::target_range(op)].to_vec();
        match op.kind {
            OpKind::Get => {}
            OpKind::GetAccumulate => {
                let input = if op.reduction == reduction::NO_OP {
                    Vec::new()
                } else {
                    self.read_origin(op)
                };
                Self::reduce(op, &mut self.mem[op.target as usize][Self::target_range(op)], &input);
            }
            OpKind::CompareAndSwap => {
                if old == self.bufs[Buf::of(op.compare).0] {
                    let new = self.read_origin(op);
                    self.mem[op.target as usize][Self::target_range(op)].copy_from_slice(&new);
                }
            }
            _ => unreachable!("storing operations have no result"),
        }
        self.bufs[Buf::of(op.result).0][..op.len as usize].copy_from_slice(&old);
    }

    /// True if the call is refused, by a counted refusal or by an injected fault.
    fn refuses(counted: Option<&mut u32>, faults: &mut Option<FaultInjection>) -> bool {
        if let Some(left) = counted.filter(|left| **left > 0) {
            *left -= 1;
            return true;
        }
        faults.as_mut().is_some_and(|c| c.refuse_one_in > 0 && c.rng.u32(0..c.refuse_one_in) == 0)
    }

    /// The port of a process.
    pub fn port(&mut self, me: Rank) -> RankPort<'_> {
        RankPort { net: self, me }
    }
}

fn u64_of(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("8 bytes"))
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
            Atomic::Swap(_) => calls.swap += 1,
            Atomic::Add(_) => calls.fetch_add += 1,
            Atomic::CompareSwap { .. } => calls.compare_swap += 1,
        }
        let (by, net) = (self.me, &mut *self.net);
        if !net.slow_locks {
            return Answer::Now(net.access(by, home, word, access));
        }
        if Net::refuses(None, &mut net.faults) {
            net.wake_soon();
            return Answer::NoResource;
        }
        assert!(
            net.lock_tickets.insert((by, ticket)),
            "{ticket:?} of rank {by} has an access under way"
        );
        let at = net.now + net.lock_latency();
        net.lock_accesses.insert(net.sequence, LockAccess { by, home, word, access, ticket });
        net.schedule(at, Event::Lock(net.sequence));
        Answer::Later
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
        let id = net.model.check_post(me, op);
        let link = net.link_of(me, op.target);
        let in_flight = *net.in_flight.entry(pair).or_insert(0);
        if in_flight >= link.credits {
            return Posted::NoResource;
        }
        if Net::refuses(net.refuse_ops.get_mut(&pair), &mut net.faults) {
            net.wake_soon();
            return Posted::NoResource;
        }
        net.model.op_posted(id, op, net.now);

        let notifies = op.notification.is_some();
        let fetching = !matches!(op.kind, OpKind::Put | OpKind::Accumulate);
        let atomic = !matches!(op.kind, OpKind::Put | OpKind::Get);
        let after = |applies, effects: &HashMap<(Rank, Rank), Time>| {
            effects.get(&pair).copied().filter(|_| applies).unwrap_or(0)
        };
        let ordered_after = after(atomic, &net.last_accumulate);
        // A notification takes effect after all earlier operations.
        let notified_after = after(notifies, &net.last_effect);
        // Complete at once only if no earlier operation to be followed is in flight.
        if link.mode == Mode::Immediate && ordered_after.max(notified_after) <= net.now {
            if fetching {
                net.apply_fetching(op);
            } else {
                let data = net.read_origin(op);
                net.apply_storing(op, &data);
            }
            net.model.op_local(id, net.now);
            net.model.op_remote(id, net.now);
            net.notify(id, op);
            return Posted::Complete;
        }

        let mut remote = net.now + link.op_latency;
        let mut local = net.now + link.local_latency;
        if let Some(latency) = net.scripted.get_mut(&pair).and_then(VecDeque::pop_front) {
            remote = net.now + latency;
            local = local.min(remote);
        } else if let Some(faults) = &mut net.faults {
            remote += faults.rng.u64(0..=faults.latency_max);
            local = faults.rng.u64(net.now..=remote);
        }
        if atomic {
            // A fetching operation takes effect with its result, at its local stage.
            let effect = if fetching { &mut local } else { &mut remote };
            *effect = (*effect).max(ordered_after);
            net.last_accumulate.insert(pair, *effect);
            remote = remote.max(local);
        }
        remote = remote.max(notified_after);
        let latest = net.last_effect.entry(pair).or_insert(0);
        *latest = (*latest).max(remote);
        assert!(net.tickets.insert((me, ticket)), "ticket {ticket:?} of rank {me} is still in use");
        net.ops.insert(id, *op);
        *net.in_flight.entry(pair).or_insert(0) += 1;
        if link.mode == Mode::LocalThenRemote && !fetching {
            let data = net.read_origin(op);
            net.carried.insert(id, data);
            net.model.op_local(id, net.now);
            net.schedule(remote, Event::Remote { op: id, ticket });
            return Posted::Local;
        }
        net.schedule(local, Event::Local { op: id, ticket });
        net.schedule(remote, Event::Remote { op: id, ticket });
        Posted::Pending
    }

    fn counter(&mut self, index: u32) -> u64 {
        self.net.counters.get(&(self.me, index)).copied().unwrap_or(0)
    }

    fn next_arrival(&mut self) -> Option<Arrival> {
        self.net.tagged[self.me as usize].pop_front()
    }

    fn signal(&mut self, peer: Rank, word: Word, value: u64) -> Result<(), NoResource> {
        self.calls().signal += 1;
        let (me, net) = (self.me, &mut *self.net);
        net.model.check_signal(me, peer, word, value);
        if Net::refuses(net.refuse_signals.get_mut(&(me, peer, word)), &mut net.faults) {
            net.wake_soon();
            return Err(NoResource);
        }
        let mut at = net.now + net.link_of(me, peer).signal_latency;
        if let Some(faults) = &mut net.faults {
            at += faults.rng.u64(0..=faults.latency_max);
        }
        let (last, last_at) = net.sent.get(&(me, peer, word)).copied().unwrap_or((0, 0));
        assert!(
            value >= last,
            "{word:?} from {me} to {peer} falls: {last}, then {value} [MA-1, MA-2]"
        );
        at = at.max(last_at);
        net.sent.insert((me, peer, word), (value, at));
        net.signals.push(Signal { at: net.now, from: me, to: peer, word, value });
        net.schedule(at, Event::Signal { from: me, to: peer, word, value });
        net.model.signalled(me, peer, word, value);
        Ok(())
    }

    fn observe(&mut self, peer: Rank, word: Word) -> u64 {
        self.calls().observe += 1;
        self.net.seen.get(&(self.me, peer, word)).copied().unwrap_or(0)
    }

    fn poll(&mut self) -> bool {
        self.calls().poll += 1;
        let arrived = std::mem::take(&mut self.net.arrived[self.me as usize]);
        let moved = !arrived.is_empty();
        self.net.finished[self.me as usize].extend(arrived);
        moved
    }

    fn next_answer(&mut self) -> Option<(LockTicket, u64)> {
        let answer = self.net.answers[self.me as usize].pop_front()?;
        self.net.lock_tickets.remove(&(self.me, answer.0));
        Some(answer)
    }

    fn next_finished(&mut self) -> Option<(Ticket, Stage)> {
        let next = self.net.finished[self.me as usize].pop_front();
        if let Some((ticket, Stage::Remote)) = next {
            self.net.tickets.remove(&(self.me, ticket));
        }
        next
    }
}
