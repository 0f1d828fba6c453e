//! The network's state, and what its owner does with it.

use std::collections::VecDeque;

use super::disorder::State as DisorderState;
use super::fault::Faulty;
use super::happening::Happening;
use super::lane::Lane;
use super::memory::Memory;
use super::message::{Messages, Pairs};
use super::port::SimPort;
use super::queue::{Kind, Queue};
use super::words::{Words, fold};
use super::{Carry, Disorder, Parameters, Time};
use crate::engine::{Addr, Arrival, Change, LockTicket, LockWord, Shaped, Stage, Ticket};
use crate::transport::datatype::Shape;

/// What a window of a rank has been told and has not looked at.
#[derive(Default)]
pub(super) struct Inbox {
    pub(super) finished: VecDeque<(Ticket, Stage)>,
    pub(super) answers: VecDeque<(LockTicket, u64)>,
    pub(super) changes: VecDeque<Change>,
    /// Tagged notifications.
    pub(super) arrivals: VecDeque<Arrival>,
    /// Something came since the last poll.
    pub(super) fresh: bool,
}

/// One node's network interface and memory bus.
#[derive(Default)]
pub(super) struct Node {
    pub(super) out: Lane,
    pub(super) into: Lane,
    pub(super) atomic_free: Time,
    pub(super) atomic_busy: Time,
    pub(super) bus_free: Time,
    pub(super) in_flight: u32,
    /// Ranks that were refused for want of this NIC's credits.
    pub(super) starved: Vec<u32>,
}

/// A message of the owner's (two-sided communication).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Who sent it.
    pub from: u32,
    /// What it says.
    pub value: u64,
    /// True: this rank's own packet `value` to `from` has been acknowledged.
    pub acknowledged: bool,
}

/// What an event was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occurrence {
    /// Something in the network; see [`Network::next_woken`].
    Inside,
    /// What [`Network::alarm`] asked for.
    Alarm {
        /// Whose.
        rank: u32,
        /// As given.
        tag: u32,
    },
}

/// What has happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Events taken from the queue.
    pub events: u64,
    /// Operations, signals, accesses and packets that set out.
    pub messages: u64,
    /// Bytes of these, and of answers.
    pub bytes: u64,
    /// Copies inside nodes.
    pub copies: u64,
    /// Answers "no resource".
    pub refusals: u64,
    /// Most events that were queued at one time.
    pub queued_max: usize,
    /// Most messages that were under way at one time.
    pub in_flight_max: usize,
}

/// A network, with the memory of its ranks. See the [module](super).
pub struct Network {
    pub(super) ranks: u32,
    pub(super) parameters: Parameters,
    pub(super) now: Time,
    /// Time of the CPU that calls, and whose it is.
    pub(super) clock: Time,
    pub(super) caller: u32,
    pub(super) queue: Queue,
    pub(super) messages: Messages,
    pub(super) pairs: Pairs,
    pub(super) nodes: Vec<Node>,
    /// Per leaf switch and uplink: up and down.
    pub(super) links: Vec<[Lane; 2]>,
    /// Per window, then rank.
    pub(super) inboxes: Vec<Inbox>,
    pub(super) packets: Vec<VecDeque<Packet>>,
    pub(super) words: Words,
    pub(super) memory: Option<Memory>,
    pub(super) disorder: Option<DisorderState>,
    /// Ranks that were refused for want of credits.
    pub(super) starving: Vec<bool>,
    /// Ranks that disorder has refused something and that are woken for it.
    pub(super) nudged: Vec<bool>,
    woken: VecDeque<u32>,
    pub(super) counters: Counters,
    pub(super) trace: u64,
    pub(super) happenings: Option<VecDeque<Happening>>,
    pub(super) faulty: Option<Faulty>,
    /// A message whose effect comes too late
    /// ([`Fault::DelayAccumulate`](super::Fault::DelayAccumulate)).
    pub(super) delayed: Option<u32>,
}

impl Network {
    /// A network of so many ranks, without a window yet.
    #[must_use]
    pub fn new(ranks: u32, parameters: Parameters, carry: Carry, disorder: Disorder) -> Self {
        assert!(ranks > 0 && parameters.ranks_per_node > 0, "a network has ranks, and a node has");
        assert!(
            parameters.credits_pair > 0 && parameters.credits_nic > 0,
            "without credits nothing ever moves"
        );
        let nodes = ranks.div_ceil(parameters.ranks_per_node);
        let links =
            parameters.tree.map_or(0, |tree| nodes.div_ceil(tree.nodes_per_leaf) * tree.uplinks);
        Network {
            ranks,
            parameters,
            now: 0,
            clock: 0,
            caller: 0,
            queue: Queue::default(),
            messages: Messages::default(),
            pairs: Pairs::default(),
            nodes: (0..nodes).map(|_| Node::default()).collect(),
            links: vec![Default::default(); links as usize],
            inboxes: Vec::new(),
            packets: (0..ranks).map(|_| VecDeque::new()).collect(),
            words: Words::default(),
            memory: (carry == Carry::Bytes).then(|| Memory::new(ranks)),
            disorder: (disorder != Disorder { seed: disorder.seed, ..Disorder::default() })
                .then(|| DisorderState::new(disorder, ranks, nodes)),
            starving: vec![false; ranks as usize],
            nudged: vec![false; ranks as usize],
            woken: VecDeque::new(),
            counters: Counters::default(),
            trace: 0,
            happenings: None,
            faulty: None,
            delayed: None,
        }
    }

    /// One more window over all ranks, of `bytes` at each; gives its number.
    pub fn add_window(&mut self, bytes: usize) -> u32 {
        let window = self.windows();
        self.inboxes.extend((0..self.ranks).map(|_| Inbox::default()));
        if let Some(memory) = &mut self.memory {
            memory.add_window(bytes);
        }
        window
    }

    /// Number of ranks.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// Number of windows.
    #[must_use]
    pub fn windows(&self) -> u32 {
        self.inboxes.len() as u32 / self.ranks
    }

    /// What the network is made of.
    #[must_use]
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Virtual time.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Time {
        self.now
    }

    /// Time of the next event.
    #[inline]
    #[must_use]
    pub fn next_time(&self) -> Option<Time> {
        self.queue.next_time()
    }

    // ---- CPUs ----

    /// The CPU of `rank` runs at `at`, which is not before [`now`](Self::now) and not after the
    /// next event: time is there now.
    #[inline]
    pub fn begin(&mut self, rank: u32, at: Time) {
        debug_assert!(
            at >= self.now && self.next_time().is_none_or(|next| at <= next),
            "time runs forwards"
        );
        self.now = at;
        self.clock = at;
        self.caller = rank;
    }

    /// How far the CPU named by [`begin`](Self::begin) has come.
    #[inline]
    #[must_use]
    pub fn clock(&self) -> Time {
        self.clock
    }

    /// That CPU computes for so long.
    #[inline]
    pub fn spend(&mut self, time: Time) {
        self.clock += match &self.disorder {
            None => time,
            Some(disorder) => disorder.cpu_time(self.caller, time),
        };
    }

    /// The port of a rank in a window, for one call.
    #[inline]
    pub fn port(&mut self, window: u32, rank: u32) -> SimPort<'_> {
        SimPort::new(self, window, rank)
    }

    // ---- events ----

    /// An event of the caller's at `at`.
    #[inline]
    pub fn alarm(&mut self, at: Time, rank: u32, tag: u32) {
        self.push(at, Kind::Alarm, rank, tag);
    }

    /// Jumps to the next event. `None`: there is none.
    #[inline]
    pub fn advance(&mut self) -> Option<Occurrence> {
        let event = self.queue.pop()?;
        debug_assert!(event.at >= self.now);
        self.now = event.at;
        self.counters.events += 1;
        fold(&mut self.trace, event.at);
        fold(
            &mut self.trace,
            u64::from(event.subject) << 32 | u64::from(event.tag) << 3 | event.kind as u64,
        );
        if event.kind == Kind::Alarm {
            return Some(Occurrence::Alarm { rank: event.subject, tag: event.tag });
        }
        self.deliver(event.kind, event.subject);
        Some(Occurrence::Inside)
    }

    /// A rank to which something came since the last call; each at least once.
    #[inline]
    pub fn next_woken(&mut self) -> Option<u32> {
        self.woken.pop_front()
    }

    /// The next packet that came to a rank.
    pub fn next_packet(&mut self, rank: u32) -> Option<Packet> {
        self.packets[rank as usize].pop_front()
    }

    /// True if a window of a rank has been told something that it has not looked at.
    #[inline]
    #[must_use]
    pub fn has_news(&self, window: u32, rank: u32) -> bool {
        self.inboxes[self.inbox_at(window, rank)].fresh
    }

    /// True if nothing is under way or untold.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.messages.alive() == 0
            && self
                .inboxes
                .iter()
                .all(|inbox| inbox.finished.is_empty() && inbox.answers.is_empty())
            && self.packets.iter().all(VecDeque::is_empty)
    }

    /// The caller mixes something into the [`trace`](Self::trace).
    #[inline]
    pub fn note(&mut self, value: u64) {
        fold(&mut self.trace, value);
    }

    /// A hash of everything that happened, in order.
    #[must_use]
    pub fn trace(&self) -> u64 {
        self.trace
    }

    /// Notifications that have come to a counter of a rank.
    #[must_use]
    pub fn notifications(&self, window: u32, rank: u32, index: u32) -> u64 {
        self.words.counter(window, rank, index)
    }

    /// What happened so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Words of ranks and locks that are not 0.
    #[must_use]
    pub fn words_alive(&self) -> usize {
        self.words.len()
    }

    /// How long each node's atomic unit has been at work.
    pub fn atomics_busy(&self) -> impl Iterator<Item = Time> {
        self.nodes.iter().map(|node| node.atomic_busy)
    }

    /// Messages under way.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.messages.alive()
    }

    /// Credits that are out: one of its NIC for each message under way.
    #[must_use]
    pub fn credits_out(&self) -> u64 {
        self.nodes.iter().map(|node| u64::from(node.in_flight)).sum()
    }

    /// A word of the lock service, for checks.
    #[must_use]
    pub fn lock_word(&self, window: u32, home: u32, word: LockWord) -> u64 {
        self.words.lock(window, home, word)
    }

    // ---- memory ----

    /// So many bytes of a rank's own memory, zeroed. Without bytes: an address that nothing stands
    /// behind.
    pub fn allocate(&mut self, rank: u32, bytes: usize) -> Addr {
        self.memory.as_mut().map_or(Addr(0), |memory| memory.allocate(rank, bytes))
    }

    /// Keeps the shape of an operation that is about to be issued, until the operation sets out.
    ///
    /// # Panics
    /// If no bytes are carried.
    pub fn add_shape(&mut self, shape: Shape) -> Shaped {
        self.memory.as_mut().expect("shapes are of bytes").add_shape(shape)
    }

    /// Shapes of operations that have not set out.
    #[must_use]
    pub fn shapes(&self) -> usize {
        self.memory.as_ref().map_or(0, Memory::shapes)
    }

    /// True if operations carry bytes.
    #[must_use]
    pub fn carries_bytes(&self) -> bool {
        self.memory.is_some()
    }

    fn bytes_there(&self) -> &Memory {
        self.memory.as_ref().expect("this network carries no bytes")
    }

    fn bytes_there_mut(&mut self) -> &mut Memory {
        self.memory.as_mut().expect("this network carries no bytes")
    }

    /// A rank's own memory.
    #[must_use]
    pub fn private(&self, rank: u32, at: Addr, len: usize) -> &[u8] {
        self.bytes_there().private(rank, at, len)
    }

    /// A rank's own memory, to write.
    pub fn private_mut(&mut self, rank: u32, at: Addr, len: usize) -> &mut [u8] {
        self.bytes_there_mut().private_mut(rank, at, len)
    }

    /// A rank's window memory.
    #[must_use]
    pub fn window(&self, window: u32, rank: u32) -> &[u8] {
        self.bytes_there().window(window, rank)
    }

    /// A rank's window memory, to write.
    pub fn window_mut(&mut self, window: u32, rank: u32) -> &mut [u8] {
        self.bytes_there_mut().window_mut(window, rank)
    }

    // ---- inside ----

    #[inline]
    pub(super) fn inbox_at(&self, window: u32, rank: u32) -> usize {
        window as usize * self.ranks as usize + rank as usize
    }

    /// A window of a rank has something new: its inbox.
    #[inline]
    pub(super) fn tell(&mut self, window: u32, rank: u32) -> &mut Inbox {
        self.wake(rank);
        let at = self.inbox_at(window, rank);
        let inbox = &mut self.inboxes[at];
        inbox.fresh = true;
        inbox
    }

    #[inline]
    pub(super) fn wake(&mut self, rank: u32) {
        if self.woken.back() != Some(&rank) {
            self.woken.push_back(rank);
        }
    }

    #[inline]
    pub(super) fn push(&mut self, at: Time, kind: Kind, subject: u32, tag: u32) {
        self.queue.push(at, kind, subject, tag);
        self.counters.queued_max = self.counters.queued_max.max(self.queue.len());
    }
}
