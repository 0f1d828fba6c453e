//! One window's endpoint: operations on its peers' memory and words, without their processors.
//!
//! - A put or get of one run of bytes on each side is an RDMA write or read, or several if long.
//! - A signal is a write behind them on the same connection. If it reports their completion it is
//!   an atomic, which cannot overtake them [FE-2].
//! - A lock word is accessed by an atomic or a read [LK-3]. Device atomics are not atomic with a
//!   processor's, so all processes use the device, also for words of their node and their own
//!   [LK-7]. Reading one's own word, or writing it while nobody else does, needs no device.
//! - A notification of a counter is the immediate of the write that it follows.
//!
//! Everything else is left to packets. They use the same connections, so they stay ordered behind
//! the operations.
//!
//! Call [`Context::poll`] once for all windows, [`poll`](Endpoint::poll) to make progress with this
//! one, then the `next_*` methods for what happened.
//! [`quiesce`](Endpoint::quiesce) or [`is_quiet`](Endpoint::is_quiet), then
//! [`end`](Endpoint::end) close the endpoint.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;

use super::context::{
    ConnectionError, ConnectionId, Context, Held, PostFlags, PostedRequest, Purpose, WindowEvents,
};
use super::device::{AtomicCapability, Opcode, RegistrationError};
use super::handshake::{Handshake, RemoteAddress, Step};
use super::registration_cache::RegistrationId;
use crate::engine::{Addr, LockTicket, Op, Rank, Stage, Ticket};
use crate::transport::am::members::RankTable;
use crate::transport::datatype::Shape;

mod atomics;
mod connect;
mod control_words;
mod operations;
mod strided;
mod words;

use connect::Handshakes;
use control_words::{Block, ControlWords, OWN_BLOCK};
use strided::Chunk;

/// Operations of at least so many bytes register the application's memory. Shorter ones are copied.
const REGISTER_FROM: u64 = 32 * 1024;
/// Polls after which the puts behind notifications get a remote fence, if nobody asks earlier. In a
/// dialogue, the peer's next notification comes sooner, and one fence serves many puts.
const FENCE_DELAY_POLLS: u32 = 128;
/// Polls that each further put takes off that delay. Otherwise, where polls are rare, thousands of
/// puts would complete at once.
const DELAY_PER_PUT: u32 = 4;
/// Peers that the log describes.
const MAX_DESCRIBED: usize = 16;

/// The RDMA context of this process, shared by its windows.
///
/// The lock is needed: windows are created and released, and their endpoints with them, outside the
/// runtime's guard, while other threads make progress under it.
pub type SharedContext = Arc<Mutex<Context>>;

pub(super) fn lock(context: &SharedContext) -> MutexGuard<'_, Context> {
    // A panic under the lock ends the process, so a poisoned lock is never seen in earnest.
    context.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bits of an immediate that name the window; the others are the counter.
const WINDOW_BITS: u32 = 12;

/// Window and counter of the immediate of a write.
pub(super) fn decode_imm(imm: u32) -> (u32, u32) {
    (imm >> (32 - WINDOW_BITS), imm << WINDOW_BITS >> WINDOW_BITS)
}

/// The immediate that notifies a counter of a window; `None` if the numbers are too large.
fn encode_imm(window: u32, counter: u32) -> Option<u32> {
    let bits = 32 - WINDOW_BITS;
    (window < 1 << WINDOW_BITS && counter < 1 << bits).then_some(window << bits | counter)
}

/// A peer's part of the window, from its handshake.
#[derive(Clone, Copy, Debug)]
struct RemoteWindow {
    window: u32,
    memory: RemoteAddress,
    /// Its own block of control words, and the one for the pair.
    words: RemoteAddress,
    pair_words: RemoteAddress,
}

impl RemoteWindow {
    /// Whether its memory is registered.
    fn has_memory(&self) -> bool {
        self.memory != RemoteAddress::default()
    }
}

/// A put or get that takes several requests.
#[derive(Debug)]
struct FragmentedOp {
    op: Op,
    ticket: Ticket,
    /// Bytes posted.
    at: u64,
    /// Registration and local key of the application's memory; otherwise data are copied.
    region: Option<(RegistrationId, u32)>,
    /// Layouts, unless the data are one run on each side.
    shape: Option<Box<Shape>>,
    /// The buffer that the next request goes on to use.
    chunk: Option<Chunk>,
    /// A put that is copied entirely in the call that posts it: locally complete at once.
    locally_complete: bool,
}

/// A peer that this process has met in the window.
#[derive(Debug, Default)]
struct Peer {
    rank: Rank,
    block: Block,
    conn: Option<ConnectionId>,
    remote: Option<RemoteWindow>,
    /// The generation for which a connection was requested.
    requested: Option<u32>,
    /// Handshake messages that it owes.
    replies_due: u32,
    fragmented: Option<FragmentedOp>,
    /// It is in `scheduled`.
    is_scheduled: bool,
    /// Polls until a remote fence is posted.
    fence_delay: u32,
    /// Values of the peer's signal words, as last written by this process.
    signals: [SentSignal; 3],
    lost: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct SentSignal {
    value: u64,
    request: PostedRequest,
}

/// A window's endpoint.
#[derive(Debug)]
pub struct Endpoint {
    context: SharedContext,
    /// The window's number in the context.
    window: u32,
    me: Rank,
    ranks: u32,
    /// Who is reached by RDMA.
    reachable: RankTable<bool>,
    /// Lock words are accessed by device atomics.
    nic_locks: bool,
    /// Accumulates are of single elements; those of 8 bytes are device atomics.
    nic_accumulates: bool,
    atomics: AtomicCapability,
    /// Largest request in bytes.
    max_message: u64,
    memory: RemoteAddress,
    registration: Option<RegistrationId>,
    words: ControlWords,
    peers: Vec<Peer>,
    index: HashMap<Rank, u32>,
    by_connection: HashMap<ConnectionId, u32>,
    /// Rank and index of the peer used last.
    last_peer: (Rank, u32),
    /// Peers with fragments to post, or puts to fence.
    scheduled: Vec<u32>,
    handshakes: Handshakes,
    events: WindowEvents,
    lost: Vec<(Rank, ConnectionError)>,
}

/// The window memory of this process.
#[derive(Clone, Copy, Debug)]
pub struct WindowMemory {
    /// Its first byte.
    pub base: Addr,
    /// Its bytes; 0 if it may change during the window's life.
    pub bytes: u64,
}

/// What device atomics are used for in a window: the same in all its processes [LK-7].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NicAtomics {
    /// Nothing.
    Unused,
    /// Lock words.
    LockWords,
    /// Lock words and 8-byte accumulates. The application asserts that all accumulates are of
    /// single elements.
    LockWordsAndAccumulates,
}

impl Endpoint {
    /// Creates the endpoint of process `me` in a new window of `ranks` processes. `reachable` says
    /// which of them have RDMA, `me` included; all, if `atomics` are used.
    ///
    /// # Safety
    /// The window's memory must stay mapped until [`end`](Self::end).
    ///
    /// # Errors
    /// The control words cannot be registered.
    pub unsafe fn new(
        context: &SharedContext,
        (me, ranks): (Rank, u32),
        reachable: RankTable<bool>,
        atomics: NicAtomics,
        own: WindowMemory,
    ) -> Result<Self, RegistrationError> {
        let mut held = lock(context);
        let mut words = ControlWords::default();
        words.add_block(&mut held)?;
        let (mut memory, mut registration) = (RemoteAddress::default(), None);
        if own.bytes > 0 {
            // SAFETY: the memory stays mapped until `end`, which releases the registration
            // (contract of this function).
            match unsafe { held.register(own.base.0, own.bytes as usize) } {
                Ok((id, rkey)) => {
                    memory = RemoteAddress { addr: own.base.0 as u64, rkey };
                    registration = Some(id);
                }
                Err(reason) => log::warn!(
                    "peers reach {} bytes of a window by messages only: {reason}",
                    own.bytes
                ),
            }
        }
        let (max_message, capability) = (held.limits().max_message, held.limits().atomics);
        let has_atomics = capability != AtomicCapability::None;
        let window = held.open_window();
        drop(held);
        Ok(Endpoint {
            context: Arc::clone(context),
            window,
            me,
            ranks,
            reachable,
            nic_locks: atomics >= NicAtomics::LockWords && has_atomics,
            nic_accumulates: atomics == NicAtomics::LockWordsAndAccumulates && has_atomics,
            atomics: capability,
            max_message,
            memory,
            registration,
            words,
            peers: Vec::new(),
            index: HashMap::new(),
            by_connection: HashMap::new(),
            last_peer: (Rank::MAX, 0),
            scheduled: Vec::new(),
            handshakes: Handshakes::default(),
            events: WindowEvents::default(),
            lost: Vec::new(),
        })
    }

    /// Whether a process is reached by RDMA.
    #[inline]
    #[must_use]
    pub fn reaches(&self, rank: Rank) -> bool {
        self.reachable.of(rank)
    }

    /// Whether lock words are accessed through the device, by all processes [LK-7].
    #[inline]
    #[must_use]
    pub fn serves_locks(&self) -> bool {
        self.nic_locks
    }

    /// The peer of a rank, added at the first use.
    #[inline]
    fn peer(&mut self, rank: Rank) -> u32 {
        if self.last_peer.0 == rank {
            return self.last_peer.1;
        }
        let index = match self.index.get(&rank) {
            Some(index) => *index,
            None => self.add_peer(rank),
        };
        self.last_peer = (rank, index);
        index
    }

    #[cold]
    fn add_peer(&mut self, rank: Rank) -> u32 {
        let block = self.words.add_block(&mut lock(&self.context));
        let index = self.peers.len() as u32;
        self.peers.push(Peer {
            rank,
            block: *block.as_ref().unwrap_or(&OWN_BLOCK),
            ..Peer::default()
        });
        self.index.insert(rank, index);
        if let Err(reason) = block {
            self.lose(index, ConnectionError::ControlWords(reason));
        }
        index
    }

    /// Has a peer looked at by the next poll.
    fn schedule(&mut self, index: u32) {
        let peer = &mut self.peers[index as usize];
        peer.fence_delay = 0;
        if !std::mem::replace(&mut peer.is_scheduled, true) {
            self.scheduled.push(index);
        }
    }

    /// Schedules a remote fence behind a put with a notification: nobody waits for its completion
    /// yet. `first`: there were no other puts to fence.
    fn schedule_fence(&mut self, index: u32, first: bool) {
        let peer = &self.peers[index as usize];
        let delay =
            if first { FENCE_DELAY_POLLS } else { peer.fence_delay.saturating_sub(DELAY_PER_PUT) };
        self.schedule(index);
        self.peers[index as usize].fence_delay = delay;
    }

    fn lose(&mut self, index: u32, error: ConnectionError) {
        let peer = &mut self.peers[index as usize];
        peer.replies_due = 0;
        if !std::mem::replace(&mut peer.lost, true) {
            self.lost.push((peer.rank, error));
        }
    }

    /// Whether something is due from the host: handshakes, or messages of peers without RDMA.
    pub(super) fn awaits_host(&self) -> bool {
        !self.reachable.is_uniform() || self.peers.iter().any(|peer| peer.replies_due > 0)
    }

    /// The peers that this process has met.
    pub fn peers(&self) -> impl Iterator<Item = Rank> {
        self.peers.iter().map(|peer| peer.rank)
    }

    pub(super) fn is_lost(&self, rank: Rank) -> bool {
        self.index.get(&rank).is_some_and(|index| self.peers[*index as usize].lost)
    }

    // Progress.

    /// Has the owner's `cookie` reported by [`Context::next_contacted`] when there are events.
    pub(super) fn set_cookie(&mut self, cookie: u64) {
        lock(&self.context).set_cookie(self.window, cookie);
    }

    /// Makes progress, after [`Context::poll`]. Returns whether anything happened.
    pub fn poll(&mut self) -> bool {
        let mut moved = lock(&self.context).take_events(self.window, &mut self.events);
        self.handle_losses();
        self.retry_handshakes();
        moved |= self.drive_peers(false);
        moved
    }

    /// Whether [`poll_completions`](Self::poll_completions) or
    /// [`next_finished`](Self::next_finished) would find something. Looks at the completion queue
    /// only.
    #[inline]
    pub fn has_completions(&self) -> bool {
        !self.events.finished.is_empty() || lock(&self.context).has_completions(self.window)
    }

    /// Takes in a batch of completions, and does nothing else. Returns whether there were any.
    pub fn poll_completions(&mut self) -> bool {
        let mut context = lock(&self.context);
        if !context.has_completions(self.window) {
            return false;
        }
        context.take_batch();
        context.take_events(self.window, &mut self.events);
        drop(context);
        self.handle_losses();
        true
    }

    /// Probes all peers from which no response is due. Call it after a long wait: the loss of a
    /// peer is reported only to those who have a request in flight there.
    #[cold]
    pub fn probe(&mut self) {
        let mut context = lock(&self.context);
        for conn in self.peers.iter().filter(|peer| !peer.lost).filter_map(|peer| peer.conn) {
            context.probe(conn, self.window);
        }
    }

    /// Whether a poll would do nothing unless something arrives.
    pub(super) fn is_idle(&self) -> bool {
        self.scheduled.is_empty()
            && self.handshakes.are_done()
            && self.lost.is_empty()
            && self.events.is_empty()
            && !lock(&self.context).has_events(self.window)
    }

    /// State of the connections, for the log.
    #[cold]
    #[must_use]
    pub fn describe_connections(&self) -> String {
        let context = lock(&self.context);
        let mut text = String::new();
        for peer in self.peers.iter().take(MAX_DESCRIBED) {
            let state = peer
                .conn
                .map_or_else(|| "not connected".into(), |conn| context.describe_connection(conn));
            let rest = if peer.fragmented.is_some() { ", fragments to post" } else { "" };
            text.push_str(&format!("; process {}: {state}{rest}", peer.rank));
        }
        text
    }

    /// Posts remote fences behind all puts: for calls that close an epoch or start a flush.
    pub fn fence_puts(&mut self) {
        self.drive_peers(true);
    }

    /// Goes on with scheduled peers. `now`: without a delay of fences.
    fn drive_peers(&mut self, now: bool) -> bool {
        let mut moved = false;
        let mut at = 0;
        while let Some(&index) = self.scheduled.get(at) {
            let posted = |peer: &Peer| peer.fragmented.as_ref().map(|fragmented| fragmented.at);
            let before = posted(&self.peers[index as usize]);
            let gone = self.post_fragments(index);
            let peer = &mut self.peers[index as usize];
            moved |= before != posted(peer);
            if gone && !now && peer.fence_delay > 0 && !peer.lost {
                peer.fence_delay -= 1;
                at += 1;
                continue;
            }
            let fenced = gone
                && peer.conn.is_none_or(|conn| lock(&self.context).fence_puts(conn, self.window));
            if fenced || peer.lost {
                peer.is_scheduled = false;
                self.scheduled.swap_remove(at);
            } else {
                at += 1;
            }
        }
        moved
    }

    fn handle_losses(&mut self) {
        while let Some((conn, error)) = self.events.lost.pop_front() {
            if let Some(index) = self.by_connection.get(&conn).copied() {
                self.abandon(index);
                self.lose(index, error);
                // The peer may wait for this process, unaware. The host may still reach it.
                self.send_handshake(index, Step::Reject);
            }
        }
    }

    /// The next event of a peer that has introduced itself. Others keep theirs until it has.
    fn next_from_peer<T>(
        queue: &mut std::collections::VecDeque<(ConnectionId, T)>,
        by_connection: &HashMap<ConnectionId, u32>,
        peers: &[Peer],
    ) -> Option<(Rank, T)> {
        let at = queue.iter().position(|(conn, _)| by_connection.contains_key(conn))?;
        let (conn, event) = queue.remove(at)?;
        Some((peers[by_connection[&conn] as usize].rank, event))
    }

    /// The next stage of completion of an operation.
    pub fn next_finished(&mut self) -> Option<(Ticket, Stage)> {
        self.events.finished.pop_front()
    }

    /// The next response to an access to a lock word: its old value.
    pub fn next_answer(&mut self) -> Option<(LockTicket, u64)> {
        self.events.answers.pop_front()
    }

    /// The next counter of this process that a peer has raised.
    pub fn next_notification(&mut self) -> Option<(Rank, u32)> {
        Self::next_from_peer(&mut self.events.notifications, &self.by_connection, &self.peers)
    }

    /// The next peer that was lost, and why.
    pub fn next_lost(&mut self) -> Option<(Rank, ConnectionError)> {
        if self.lost.is_empty() { None } else { Some(self.lost.remove(0)) }
    }

    pub(super) fn next_packet(&mut self) -> Option<(Rank, Vec<u8>)> {
        Self::next_from_peer(&mut self.events.packets, &self.by_connection, &self.peers)
    }

    pub(super) fn recycle_packet(&mut self, bytes: Vec<u8>) {
        lock(&self.context).recycle_packet(self.window, bytes);
    }

    /// Device and port, for the log.
    #[must_use]
    pub fn describe(&self) -> String {
        lock(&self.context).describe()
    }

    // The end.

    /// Whether nothing of this process is in flight, handshakes included. Makes sure that a later
    /// call will find out.
    #[must_use]
    pub fn is_quiet(&mut self) -> bool {
        self.drive_peers(true);
        let mut context = lock(&self.context);
        let mut quiet = context.is_quiet(self.window);
        for peer in self.peers.iter().filter(|peer| !peer.lost) {
            quiet &= peer.replies_due == 0 && peer.fragmented.is_none();
            if let (false, Some(conn)) = (quiet, peer.conn) {
                context.request_completion(conn, self.window);
            }
        }
        quiet && self.handshakes.are_done()
    }

    /// Abandons what has not been posted, in a broken window. Returns whether nothing is in flight.
    #[cold]
    pub fn quiesce(&mut self) -> bool {
        (0..self.peers.len() as u32).for_each(|index| self.abandon(index));
        let mut context = lock(&self.context);
        if context.is_quiet(self.window) {
            return true;
        }
        for conn in self.peers.iter().filter_map(|peer| peer.conn) {
            context.request_completion(conn, self.window);
        }
        false
    }

    /// Fails the connections on which a broken window still has requests.
    #[cold]
    pub fn abort(&mut self) {
        lock(&self.context).abort_window(self.window);
    }

    /// Closes the endpoint. No peer may access it any more.
    pub fn end(&mut self) {
        (0..self.peers.len() as u32).for_each(|index| self.abandon(index));
        let mut context = lock(&self.context);
        context.close_window(self.window);
        self.words.end(&mut context);
        if let Some(registration) = self.registration.take() {
            context.release(Held::Registration(registration));
        }
    }

    /// Sends a packet. False if there is no room now.
    pub(super) fn send_packet(&mut self, rank: Rank, bytes: &[u8]) -> bool {
        let index = self.peer(rank);
        // Earlier operations go first.
        if !self.post_fragments(index) {
            return false;
        }
        let Some((conn, remote)) = self.connected(index) else { return false };
        let mut context = lock(&self.context);
        // Fenced: the packet may report that reads are over. Signalled if it takes a buffer, of
        // which there are few.
        let flags = PostFlags { fence: true, signalled: true, ..PostFlags::default() };
        let to = (Opcode::SendImm(remote.window), RemoteAddress::default());
        context.post_bytes(conn, self.window, to, bytes, flags, Purpose::Fragment).is_ok()
    }
}
