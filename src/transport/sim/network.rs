//! The state of the network, and its owner's interface.

use std::collections::VecDeque;

use super::event::Event;
use super::faults::FaultInjector;
use super::lane::Lane;
use super::memory::Memory;
use super::message::{Connections, Message, Slots};
use super::port::SimPort;
use super::queue::{EventType, Queue};
use super::violation::ViolationInjector;
use super::words::{WordStore, fold};
use super::{Carry, FaultInjection, Parameters, Time};
use crate::engine::{Arrival, Change, LockTicket, LockWord, Stage, Ticket};

/// Deliveries to a window of a rank that its engine has not polled yet.
#[derive(Default)]
pub(super) struct Inbox {
    pub(super) finished: VecDeque<(Ticket, Stage)>,
    pub(super) answers: VecDeque<(LockTicket, u64)>,
    pub(super) changes: VecDeque<Change>,
    /// Tagged notifications.
    pub(super) arrivals: VecDeque<Arrival>,
    /// Something was delivered since the last poll of the window.
    pub(super) fresh: bool,
}

/// What serves atomics one after the other: a node's NIC, or the CPU of a rank.
#[derive(Clone, Copy, Default)]
pub(super) struct AtomicUnit {
    pub(super) free: Time,
    pub(super) busy: Time,
}

/// One node's network interface and memory bus.
#[derive(Default)]
pub(super) struct Node {
    pub(super) out: Lane,
    pub(super) into: Lane,
    pub(super) bus_free: Time,
    pub(super) in_flight: u32,
    /// Ranks that were refused because this NIC had no credit.
    pub(super) starved: Vec<u32>,
}

/// A packet of the network's owner (two-sided communication).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Sender.
    pub from: u32,
    /// Content.
    pub value: u64,
    /// True if this is the acknowledgement of this rank's own packet `value` to `from`.
    pub acknowledged: bool,
}

/// Result of [`Network::advance`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextEvent {
    /// An event inside the network; see [`Network::next_woken`].
    Network,
    /// An alarm set by [`Network::alarm`].
    Alarm {
        /// Its rank.
        rank: u32,
        /// Its tag.
        tag: u32,
    },
}

/// Statistics of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Events taken from the queue.
    pub events: u64,
    /// Operations, signals, accesses and packets sent.
    pub messages: u64,
    /// Bytes of these messages, and of answers.
    pub bytes: u64,
    /// Copies inside nodes.
    pub copies: u64,
    /// Answers "no resource".
    pub refusals: u64,
    /// Maximum length of the event queue.
    pub queued_max: usize,
    /// Maximum number of messages in flight.
    pub in_flight_max: usize,
}

/// A network and the memory of its ranks. See the [module](super).
pub struct Network {
    pub(super) ranks: u32,
    pub(super) parameters: Parameters,
    pub(super) now: Time,
    /// Time that the calling CPU has reached, and its rank.
    pub(super) clock: Time,
    pub(super) caller: u32,
    pub(super) queue: Queue,
    pub(super) messages: Slots<Message>,
    pub(super) connections: Connections,
    pub(super) nodes: Vec<Node>,
    /// By node, or by rank if CPUs serve atomics.
    pub(super) units: Vec<AtomicUnit>,
    /// Per leaf switch and uplink: up and down.
    pub(super) links: Vec<[Lane; 2]>,
    /// By window, then rank.
    pub(super) inboxes: Vec<Inbox>,
    pub(super) packets: Vec<VecDeque<Packet>>,
    pub(super) words: WordStore,
    pub(super) memory: Option<Memory>,
    pub(super) faults: Option<FaultInjector>,
    /// Ranks that were refused because their connection had no credit, or their bulk window no
    /// room.
    pub(super) starving: Vec<bool>,
    /// By rank: bytes of its bulk operations that are not acknowledged.
    pub(super) bulk_out: Vec<u64>,
    /// Ranks that an injected fault refused and whose wake-up is scheduled.
    pub(super) nudged: Vec<bool>,
    woken: VecDeque<u32>,
    pub(super) stats: Stats,
    pub(super) trace: u64,
    pub(super) recorded: Option<VecDeque<Event>>,
    pub(super) violation: Option<ViolationInjector>,
    /// A message whose effect is delayed by
    /// [`Violation::DelayAccumulate`](super::Violation::DelayAccumulate).
    pub(super) delayed: Option<u32>,
}

impl Network {
    /// A network of `ranks` ranks, without windows.
    #[must_use]
    pub fn new(ranks: u32, parameters: Parameters, carry: Carry, faults: FaultInjection) -> Self {
        assert!(
            ranks > 0 && parameters.ranks_per_node > 0,
            "ranks and ranks_per_node must be positive"
        );
        assert!(
            parameters.credits_pair > 0 && parameters.credits_nic > 0,
            "credits must be positive"
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
            messages: Slots::default(),
            connections: Connections::default(),
            nodes: (0..nodes).map(|_| Node::default()).collect(),
            units: vec![
                AtomicUnit::default();
                if parameters.atomics_by_rank { ranks } else { nodes } as usize
            ],
            links: vec![Default::default(); links as usize],
            inboxes: Vec::new(),
            packets: (0..ranks).map(|_| VecDeque::new()).collect(),
            words: WordStore::default(),
            memory: (carry == Carry::Bytes).then(|| Memory::new(ranks)),
            faults: (faults != FaultInjection { seed: faults.seed, ..FaultInjection::default() })
                .then(|| FaultInjector::new(faults, ranks, nodes)),
            starving: vec![false; ranks as usize],
            bulk_out: vec![0; ranks as usize],
            nudged: vec![false; ranks as usize],
            woken: VecDeque::new(),
            stats: Stats::default(),
            trace: 0,
            recorded: None,
            violation: None,
            delayed: None,
        }
    }

    /// Adds a window over all ranks, with `bytes` bytes at each. Returns its number.
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

    /// Parameters of the network.
    #[must_use]
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Current virtual time.
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

    /// Lets the CPU of `rank` run at `at`, which must lie between [`now`](Self::now) and the next
    /// event. Advances time to `at`.
    #[inline]
    pub fn begin(&mut self, rank: u32, at: Time) {
        debug_assert!(
            at >= self.now && self.next_time().is_none_or(|next| at <= next),
            "begin() at {at}, now {}",
            self.now
        );
        self.now = at;
        self.clock = at;
        self.caller = rank;
    }

    /// Time that the CPU selected by [`begin`](Self::begin) has reached.
    #[inline]
    #[must_use]
    pub fn clock(&self) -> Time {
        self.clock
    }

    /// Lets that CPU compute for `time`.
    #[inline]
    pub fn spend(&mut self, time: Time) {
        self.clock += match &self.faults {
            None => time,
            Some(faults) => faults.cpu_time(self.caller, time),
        };
    }

    /// The port of a rank in a window, for one call.
    #[inline]
    pub fn port(&mut self, window: u32, rank: u32) -> SimPort<'_> {
        SimPort::new(self, window, rank)
    }

    // ---- events ----

    /// Schedules an alarm for the owner at `at`.
    #[inline]
    pub fn alarm(&mut self, at: Time, rank: u32, tag: u32) {
        self.push(at, EventType::Alarm, rank, tag);
    }

    /// Advances to the next event. `None` if there is none.
    #[inline]
    pub fn advance(&mut self) -> Option<NextEvent> {
        let event = self.queue.pop()?;
        debug_assert!(event.at >= self.now);
        self.now = event.at;
        self.stats.events += 1;
        fold(&mut self.trace, event.at);
        fold(
            &mut self.trace,
            u64::from(event.subject) << 32 | u64::from(event.tag) << 3 | event.kind as u64,
        );
        if event.kind == EventType::Alarm {
            return Some(NextEvent::Alarm { rank: event.subject, tag: event.tag });
        }
        self.handle(event.kind, event.subject);
        Some(NextEvent::Network)
    }

    /// The next rank that an event affected. A rank may be returned several times.
    #[inline]
    pub fn next_woken(&mut self) -> Option<u32> {
        self.woken.pop_front()
    }

    /// The next packet delivered to a rank.
    pub fn next_packet(&mut self, rank: u32) -> Option<Packet> {
        self.packets[rank as usize].pop_front()
    }

    /// True if something was delivered to a window of a rank since its last poll.
    #[inline]
    #[must_use]
    pub fn has_news(&self, window: u32, rank: u32) -> bool {
        self.inboxes[self.inbox_at(window, rank)].fresh
    }

    /// True if nothing is in flight or undelivered.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.messages.len() == 0
            && self
                .inboxes
                .iter()
                .all(|inbox| inbox.finished.is_empty() && inbox.answers.is_empty())
            && self.packets.iter().all(VecDeque::is_empty)
    }

    /// Mixes a value of the owner into the [`trace`](Self::trace).
    #[inline]
    pub fn note(&mut self, value: u64) {
        fold(&mut self.trace, value);
    }

    /// A hash of all events, in order.
    #[must_use]
    pub fn trace(&self) -> u64 {
        self.trace
    }

    /// Value of a notification counter of a rank.
    #[must_use]
    pub fn notifications(&self, window: u32, rank: u32, index: u32) -> u64 {
        self.words.counter(window, rank, index)
    }

    /// Statistics so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Busy time of each atomic unit.
    pub fn atomics_busy(&self) -> impl Iterator<Item = Time> {
        self.units.iter().map(|unit| unit.busy)
    }

    /// Number of messages in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.messages.len()
    }

    /// NIC credits in use, one per message in flight.
    #[must_use]
    pub fn credits_out(&self) -> u64 {
        self.nodes.iter().map(|node| u64::from(node.in_flight)).sum()
    }

    /// The value of a lock word.
    #[must_use]
    pub fn lock_word(&self, window: u32, home: u32, word: LockWord) -> u64 {
        self.words.lock(window, home, word)
    }

    // ---- internal ----

    #[inline]
    pub(super) fn inbox_at(&self, window: u32, rank: u32) -> usize {
        window as usize * self.ranks as usize + rank as usize
    }

    /// Wakes a rank and returns the inbox of its window, for a delivery.
    #[inline]
    pub(super) fn deliver_to(&mut self, window: u32, rank: u32) -> &mut Inbox {
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
    pub(super) fn push(&mut self, at: Time, kind: EventType, subject: u32, tag: u32) {
        self.queue.push(at, kind, subject, tag);
        self.stats.queued_max = self.stats.queued_max.max(self.queue.len());
    }
}
