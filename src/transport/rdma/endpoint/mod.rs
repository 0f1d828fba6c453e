//! One window's way to the memory of its peers without their processors.
//!
//! - A put or get of one run of bytes on each side is a write or read, or several where it is long.
//! - A signal is a write behind them on the same queue, or an atomic if it tells of them, so that
//!   it cannot overtake [FE-2].
//! - A lock word is reached by an atomic or a read [LK-3]; by *everybody*, the process that it
//!   belongs to and those of its node too, since the interface's atomics are not atomic with a
//!   processor's [LK-7]. Reading a word of one's own, and writing one while nobody else does, needs
//!   no interface.
//! - A notification of a counter goes with the data that it tells of, as the number of a write.
//!
//! All else is left to messages, which go through the same queues and so keep their place behind
//! what is written.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;

use self::control_words::{Block, ControlWords, OWN_BLOCK};
use self::strided::Chunk;
use super::context::{Context, Held, PostFlags, PostedRequest, Purpose, WindowEvent};
use super::device::{AtomicCapability, DeviceError, Opcode};
use super::handshake::{Handshake, RemoteAddress, Step};
use super::registration_cache::RegistrationId;
use crate::engine::{Addr, LockTicket, Op, Rank, Stage, Ticket};
use crate::transport::host_mpi::members::Table;
use crate::transport::shape::Shape;

mod atomics;
mod connect;
mod control_words;
mod operations;
mod strided;

/// Bytes from which the application's memory is registered for an operation, and not copied.
pub(super) const REGISTER_FROM: u64 = 32 * 1024;

/// Polls that a notified put is left alone, though its end is known only by a request behind it: in
/// a dialogue the answer comes before, and one such request does for many puts.
const FENCE_DELAY_POLLS: u32 = 128;
/// Polls that each further one counts for: where answers come at once there are few polls, and the
/// ends of thousands would have to be told at once.
const DELAY_PER_PUT: u32 = 4;

/// The interface of this process, as its windows share it.
pub type SharedContext = Arc<Mutex<Context>>;

pub(crate) fn lock(context: &SharedContext) -> MutexGuard<'_, Context> {
    // Nothing in there panics half-way that would not end the process.
    context.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Room for events that is kept.
const KEPT: usize = 1024;
/// Peers that a report names.
const REPORTED_PEERS: usize = 16;

/// Bits of a number that comes with a write which name the window; the others are the counter.
const WINDOW_BITS: u32 = 12;

/// Window and counter of a number that came with a write.
pub(super) fn told(number: u32) -> (u32, u32) {
    (number >> (32 - WINDOW_BITS), number << WINDOW_BITS >> WINDOW_BITS)
}

/// The number that tells a counter of a window; `None` if they are too large for it.
pub(super) fn encode_imm(window: u32, counter: u32) -> Option<u32> {
    let bits = 32 - WINDOW_BITS;
    (window < 1 << WINDOW_BITS && counter < 1 << bits).then_some(window << bits | counter)
}

/// What a peer has said of itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct RemoteWindow {
    pub(super) window: u32,
    pub(super) memory: RemoteAddress,
    pub(super) words: RemoteAddress,
    pub(super) pair: RemoteAddress,
}

impl RemoteWindow {
    /// True if its memory was registered.
    pub(super) fn has_memory(&self) -> bool {
        self.memory != RemoteAddress::default()
    }
}

/// A put or get that goes in pieces.
#[derive(Debug)]
pub(super) struct FragmentedOp {
    pub(super) op: Op,
    pub(super) ticket: Ticket,
    pub(super) at: u64,
    /// The application's memory, registered.
    pub(super) region: Option<(RegistrationId, u32)>,
    /// Where its data lie, if they are not one run on each side.
    pub(super) shape: Option<Box<Shape>>,
    /// Its buffer, which some requests have used and others will.
    chunk: Option<Chunk>,
    /// All goes in the call that posts it, through buffers: then its origin buffer is done with.
    pub(super) early: bool,
}

/// A put that waits for the notification which goes with it.
#[derive(Debug)]
pub(super) struct HeldPut {
    pub(super) op: Op,
    pub(super) ticket: Ticket,
}

/// A peer that was met.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) rank: Rank,
    pub(super) block: Block,
    pub(super) conn: Option<u32>,
    pub(super) remote: Option<RemoteWindow>,
    /// It was asked, and for which generation of the queue.
    requested: Option<u32>,
    /// Hellos that it is still to say.
    replies_due: u32,
    pub(super) fragments: Option<FragmentedOp>,
    pub(super) held: Option<HeldPut>,
    /// A notification is about to be posted behind the put that comes next.
    pub(super) announced: bool,
    /// Among those with something to feed or to cover.
    is_scheduled: bool,
    /// Polls until what is to be covered is, if nobody asks for it.
    fence_delay: u32,
    /// What its words of the pair were made, by way of the interface.
    pub(super) signals: [SignalState; 3],
    lost: bool,
}

/// A word of a peer's as this process has made it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SignalState {
    pub(super) value: u64,
    /// The request that did.
    pub(super) last: PostedRequest,
}

/// A window's part of the [`Fabric`].
#[derive(Debug)]
pub struct Endpoint {
    pub(super) context: SharedContext,
    pub(super) window: u32,
    pub(super) me: Rank,
    ranks: u32,
    /// Who has an interface.
    reachable: Table<bool>,
    /// All have, so that lock words are the interface's.
    pub(super) nic_locks: bool,
    /// Accumulates are of single elements, and those of eight bytes the interface's.
    pub(super) nic_accumulates: bool,
    pub(super) atomics: AtomicCapability,
    pub(super) message: u64,
    memory: RemoteAddress,
    region: Option<RegistrationId>,
    words: ControlWords,
    pub(super) peers: Vec<Peer>,
    pub(super) index: HashMap<Rank, u32>,
    by_connection: HashMap<u32, u32>,
    last_peer: (Rank, u32),
    /// Peers with something to feed or to cover.
    scheduled: Vec<u32>,
    /// Hellos to be sent.
    handshakes: VecDeque<(Rank, Handshake)>,
    /// Hellos that are answered when there is a queue.
    deferred: VecDeque<(u32, Handshake)>,
    /// Words of a process that concern a target which is neither it nor this process; `None`: it
    /// was asked.
    third_party: HashMap<(Rank, Rank), Option<RemoteAddress>>,
    packets: VecDeque<(Rank, Vec<u8>)>,
    /// What came of a process that knows this one by its asking, and whose own hello is still under
    /// way.
    early: Vec<(u32, WindowEvent)>,
    pub(super) finished: VecDeque<(Ticket, Stage)>,
    /// Room for what the fabric tells.
    events: VecDeque<WindowEvent>,
    answers: VecDeque<(LockTicket, u64)>,
    told: VecDeque<(Rank, u32)>,
    lost: VecDeque<(Rank, String)>,
}

/// A window's memory of one process.
#[derive(Clone, Copy, Debug)]
pub struct WindowMemory {
    /// Its first byte.
    pub base: Addr,
    /// Its bytes; 0 where there is none that stays while the window is there.
    pub bytes: u64,
}

/// What the interface's atomics are used for in a window: the same at all its processes [LK-7].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NicAtomics {
    /// Nothing.
    Unused,
    /// Lock words.
    LockWords,
    /// Those, and accumulates of eight bytes, since the application says that all accumulates are
    /// of single elements.
    LockWordsAndAccumulates,
}

impl Endpoint {
    /// The part of process `me` of a new window of so many `ranks`. `able` says which processes
    /// have an interface, `me` among them: all, if its atomics are used.
    ///
    /// # Safety
    /// The window's memory must stay mapped until [`end`](Self::end).
    ///
    /// # Errors
    /// The words cannot be registered: in words.
    pub unsafe fn new(
        context: &SharedContext,
        (me, ranks): (Rank, u32),
        reachable: Table<bool>,
        domain: NicAtomics,
        own: WindowMemory,
    ) -> Result<Self, DeviceError> {
        let mut held = lock(context);
        let mut words = ControlWords::default();
        words.add(&mut held)?;
        let (mut memory, mut region) = (RemoteAddress::default(), None);
        if own.bytes > 0 {
            // SAFETY: the caller's promise.
            match unsafe { held.keep(own.base.0, own.bytes as usize) } {
                Ok((id, rkey)) => {
                    (memory, region) = (RemoteAddress { at: own.base.0 as u64, rkey }, Some(id))
                }
                Err(reason) => log::warn!(
                    "peers reach {} bytes of a window by messages only: {reason}",
                    own.bytes
                ),
            }
        }
        let (message, atomics) = (held.message(), held.atomics());
        let window = held.open_window();
        drop(held);
        Ok(Endpoint {
            context: Arc::clone(context),
            window,
            me,
            ranks,
            reachable,
            nic_locks: domain >= NicAtomics::LockWords && atomics != AtomicCapability::None,
            nic_accumulates: domain == NicAtomics::LockWordsAndAccumulates
                && atomics != AtomicCapability::None,
            atomics,
            message,
            memory,
            region,
            words,
            peers: Vec::new(),
            index: HashMap::new(),
            by_connection: HashMap::new(),
            last_peer: (Rank::MAX, 0),
            scheduled: Vec::new(),
            handshakes: VecDeque::new(),
            deferred: VecDeque::new(),
            third_party: HashMap::new(),
            packets: VecDeque::new(),
            early: Vec::new(),
            finished: VecDeque::new(),
            events: VecDeque::new(),
            answers: VecDeque::new(),
            told: VecDeque::new(),
            lost: VecDeque::new(),
        })
    }

    /// True if a process has an interface.
    #[inline]
    #[must_use]
    pub fn reaches(&self, rank: Rank) -> bool {
        self.reachable.of(rank)
    }

    /// Lock words are reached through the interface, by everybody [LK-7].
    #[inline]
    #[must_use]
    pub fn serves_locks(&self) -> bool {
        self.nic_locks
    }

    #[inline]
    pub(super) fn peer(&mut self, rank: Rank) -> u32 {
        if self.last_peer.0 == rank {
            return self.last_peer.1;
        }
        let index = match self.index.get(&rank) {
            Some(index) => *index,
            None => self.meet(rank),
        };
        self.last_peer = (rank, index);
        index
    }

    #[cold]
    fn meet(&mut self, rank: Rank) -> u32 {
        let added = self.words.add(&mut lock(&self.context));
        let lost = added.as_ref().err().map(|reason| format!("no memory for words: {reason}"));
        let index = self.peers.len() as u32;
        self.peers.push(Peer {
            rank,
            block: added.unwrap_or(OWN_BLOCK),
            conn: None,
            remote: None,
            requested: None,
            replies_due: 0,
            fragments: None,
            held: None,
            announced: false,
            is_scheduled: false,
            fence_delay: 0,
            signals: [SignalState::default(); 3],
            lost: lost.is_some(),
        });
        self.index.insert(rank, index);
        if let Some(reason) = lost {
            self.lost.push_back((rank, reason));
        }
        index
    }

    pub(super) fn schedule(&mut self, index: u32) {
        let peer = &mut self.peers[index as usize];
        peer.fence_delay = 0;
        if !std::mem::replace(&mut peer.is_scheduled, true) {
            self.scheduled.push(index);
        }
    }

    /// As [`list`](Self::list), of something whose end nobody waits for as yet, since the target
    /// has been told of it. `alone`: nothing else was to be covered before.
    pub(super) fn defer_fence(&mut self, index: u32, alone: bool) {
        let peer = &mut self.peers[index as usize];
        peer.fence_delay =
            if alone { FENCE_DELAY_POLLS } else { peer.fence_delay.saturating_sub(DELAY_PER_PUT) };
        if !std::mem::replace(&mut peer.is_scheduled, true) {
            self.scheduled.push(index);
        }
    }

    fn lose(&mut self, index: u32, reason: String) {
        let peer = &mut self.peers[index as usize];
        peer.replies_due = 0;
        if !std::mem::replace(&mut peer.lost, true) {
            self.lost.push_back((peer.rank, reason));
        }
    }

    /// The next hello to be sent through the host.
    pub(super) fn next_handshake(&mut self) -> Option<(Rank, Handshake)> {
        self.handshakes.pop_front()
    }

    /// True if the host is to bring something: hellos, or messages of peers without an interface.
    pub(super) fn awaits_host(&self) -> bool {
        !self.reachable.is_one() || self.peers.iter().any(|peer| peer.replies_due > 0)
    }

    /// The peers that this process has met.
    pub fn met(&self) -> impl Iterator<Item = Rank> {
        self.peers.iter().map(|peer| peer.rank)
    }

    /// True if a peer cannot be reached any more.
    pub(super) fn is_lost(&self, rank: Rank) -> bool {
        self.index.get(&rank).is_some_and(|index| self.peers[*index as usize].lost)
    }

    /// Takes in what has come to an end, and goes on with what waits for room. True if anything
    /// moved.
    pub fn poll(&mut self) -> bool {
        let mut events = std::mem::take(&mut self.events);
        let polled = {
            let mut context = lock(&self.context);
            let polled = context.poll();
            context.take_events(self.window, &mut events);
            polled
        };
        let moved = polled || !events.is_empty();
        self.take_all(events);
        for _ in 0..self.deferred.len() {
            if let Some((index, handshake)) = self.deferred.pop_front() {
                self.handle_handshake(index, &handshake);
            }
        }
        self.drive_peers(false) | moved
    }

    /// True if there is something to take in. What waits for room, or for a poll to count, is not
    /// looked at.
    #[inline]
    pub fn stirs(&self) -> bool {
        !self.finished.is_empty() || lock(&self.context).stirs(self.window)
    }

    /// Takes in some of that. False if there was nothing.
    pub fn poll_completions(&mut self) -> bool {
        let mut context = lock(&self.context);
        if !context.stirs(self.window) {
            return false;
        }
        context.take_batch();
        let mut events = std::mem::take(&mut self.events);
        context.take_events(self.window, &mut events);
        drop(context);
        self.take_all(events);
        true
    }

    fn take_all(&mut self, mut events: VecDeque<WindowEvent>) {
        while let Some(event) = events.pop_front() {
            self.take(event);
        }
        events.shrink_to(KEPT);
        self.events = events;
    }

    /// This process has waited for long: whether all peers are still there is asked, of those of
    /// which no answer is under way. One that is gone tells nobody, and who waits for it without
    /// having asked for anything would wait for ever.
    #[cold]
    pub fn probe(&mut self) {
        let mut context = lock(&self.context);
        for conn in self.peers.iter().filter(|peer| !peer.lost).filter_map(|peer| peer.conn) {
            context.probe(conn, self.window);
        }
    }

    /// For the log: how far the queues to all peers are.
    #[cold]
    #[must_use]
    pub fn describe_connections(&self) -> String {
        let context = lock(&self.context);
        let mut text = String::new();
        for peer in self.peers.iter().take(REPORTED_PEERS) {
            let queue = peer
                .conn
                .map_or_else(|| "not met".into(), |conn| context.describe_connections(conn));
            let feeds = if peer.fragments.is_some() { ", an operation goes in pieces" } else { "" };
            text.push_str(&format!("; process {}: {queue}{feeds}", peer.rank));
        }
        text
    }

    /// For calls that close an epoch or start a flush: what waits for company goes, and the puts so
    /// far will be covered.
    pub fn fence_puts(&mut self) {
        self.drive_peers(true);
    }

    /// `now`: somebody waits for the end of what goes.
    fn drive_peers(&mut self, now: bool) -> bool {
        let mut moved = false;
        let mut at = 0;
        while let Some(&index) = self.scheduled.get(at) {
            let peer = &self.peers[index as usize];
            let fed = peer.fragments.as_ref().map(|fragments| fragments.at);
            let rests = peer.held.is_none() && peer.fragments.is_none();
            let gone = rests || self.post_held_put(index) && self.post_fragments(index);
            moved |=
                fed != self.peers[index as usize].fragments.as_ref().map(|fragments| fragments.at);
            let peer = &mut self.peers[index as usize];
            if gone && !now && peer.fence_delay > 0 && !peer.lost {
                peer.fence_delay -= 1;
                at += 1;
                continue;
            }
            let covered =
                gone && peer.conn.is_none_or(|conn| lock(&self.context).cover(conn, self.window));
            if covered || peer.lost {
                self.peers[index as usize].is_scheduled = false;
                self.scheduled.swap_remove(at);
            } else {
                at += 1;
            }
        }
        moved
    }

    fn take(&mut self, event: WindowEvent) {
        match event {
            WindowEvent::Finished(ticket, stage) => self.finished.push_back((ticket, stage)),
            WindowEvent::Answer(ticket, old) => self.answers.push_back((ticket, old)),
            WindowEvent::Notified(conn, counter) => match self.by_connection.get(&conn) {
                Some(index) => self.told.push_back((self.peers[*index as usize].rank, counter)),
                None => self.early.push((conn, event)),
            },
            WindowEvent::Packet(conn, bytes) => match self.by_connection.get(&conn) {
                Some(index) => self.packets.push_back((self.peers[*index as usize].rank, bytes)),
                None => self.early.push((conn, WindowEvent::Packet(conn, bytes))),
            },
            WindowEvent::Lost(conn, reason) => {
                if let Some(index) = self.by_connection.get(&conn).copied() {
                    self.abandon(index);
                    self.lose(index, reason);
                    // It may wait for this process, and hear of nothing; the host may still reach
                    // it.
                    self.send_handshake(index, Step::Reject);
                }
            }
        }
    }

    /// The next stage that an operation has reached.
    pub fn next_finished(&mut self) -> Option<(Ticket, Stage)> {
        self.finished.pop_front()
    }

    /// The next access to a lock word that was answered.
    pub fn next_answer(&mut self) -> Option<(LockTicket, u64)> {
        self.answers.pop_front()
    }

    /// The next counter of this process that a peer has raised.
    pub fn next_notification(&mut self) -> Option<(Rank, u32)> {
        self.told.pop_front()
    }

    /// The next peer that was lost, and why.
    pub fn next_lost(&mut self) -> Option<(Rank, String)> {
        self.lost.pop_front()
    }

    pub(super) fn next_packet(&mut self) -> Option<(Rank, Vec<u8>)> {
        self.packets.pop_front()
    }

    pub(super) fn recycle_packet(&mut self, bytes: Vec<u8>) {
        lock(&self.context).recycle_packet(self.window, bytes);
    }

    /// For the log.
    #[must_use]
    pub fn describe(&self) -> String {
        lock(&self.context).describe()
    }

    /// True if nothing of this process is under way, hellos included. Sees to it that this will be
    /// known.
    #[must_use]
    pub fn is_quiet(&mut self) -> bool {
        self.drive_peers(true);
        let mut context = lock(&self.context);
        let mut quiet = context.is_quiet(self.window);
        for peer in self.peers.iter().filter(|peer| !peer.lost) {
            quiet &= peer.replies_due == 0 && peer.fragments.is_none() && peer.held.is_none();
            if let (false, Some(conn)) = (quiet, peer.conn) {
                context.mark(conn, self.window);
            }
        }
        quiet && self.handshakes.is_empty() && self.deferred.is_empty()
    }

    /// Nothing more is to go in a window that is broken: what waits is given up. True if what is
    /// under way has ended.
    #[cold]
    pub fn quiesce(&mut self) -> bool {
        (0..self.peers.len() as u32).for_each(|index| self.abandon(index));
        let mut context = lock(&self.context);
        if context.is_quiet(self.window) {
            return true;
        }
        for conn in self.peers.iter().filter_map(|peer| peer.conn) {
            context.mark(conn, self.window);
        }
        false
    }

    /// What does not end in a window that is broken is given up, with its queues.
    #[cold]
    pub fn give_up(&mut self) {
        lock(&self.context).give_up(self.window);
    }

    /// Takes part in the window no more; nobody reaches for it.
    pub fn end(&mut self) {
        (0..self.peers.len() as u32).for_each(|index| self.abandon(index));
        let mut context = lock(&self.context);
        context.close_window(self.window);
        self.words.end(&mut context);
        if let Some(region) = self.region.take() {
            context.release(Held::Registration(region));
        }
    }

    /// Bytes of a packet for a peer go out. False if there is no room now.
    pub(super) fn send_packet(&mut self, rank: Rank, bytes: &[u8]) -> bool {
        let index = self.peer(rank);
        // What was posted before goes before.
        if !self.post_held_put(index) || !self.post_fragments(index) {
            return false;
        }
        let Some((conn, remote)) = self.reach(index) else { return false };
        let mut context = lock(&self.context);
        if context.has_cas_loops(conn) {
            return false;
        }
        // SAFETY: a packet, which stays until it is handed over.
        let Ok((local, hold)) = (unsafe { context.copied(bytes.as_ptr(), bytes.len()) }) else {
            return false;
        };
        // What a packet says may be that reads are over. Buffers are few: the end of one is told at
        // once.
        let inline = matches!(hold, Held::Nothing);
        let flags = PostFlags { inline, fence: true, signalled: !inline, ..PostFlags::default() };
        // SAFETY: the bytes are copied now, or lie in the buffer.
        unsafe {
            context.post(
                conn,
                self.window,
                Opcode::SendImm(remote.window),
                local,
                RemoteAddress::default(),
                flags,
                Purpose::Piece(hold),
            )
        }
        .is_ok()
    }
}
