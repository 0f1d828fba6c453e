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
//! one, the `next_*` methods for what happened, and [`drive`](Endpoint::drive) for each peer with
//! work.
//! [`quiesce`](Endpoint::quiesce) or [`is_quiet`](Endpoint::is_quiet), then
//! [`end`](Endpoint::end) close the endpoint.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashMap;

use super::context::{
    ConnectionError, ConnectionId, Context, Held, PostFlags, PostedRequest, Purpose, WindowEvents,
};
use super::device::{AtomicCapability, Opcode, RegistrationError};
use super::handshake::{Handshake, RemoteAddress, Step};
use super::registration_cache::RegistrationId;
use crate::engine::{Addr, LockTicket, Op, Rank, Stage, Ticket};
use crate::transport::datatype::Shape;
use crate::transport::guarded::Guarded;
use crate::transport::members::RankTable;
use crate::transport::peers::PeerId;

mod atomics;
mod connect;
mod control_words;
mod fragments;
mod operations;
mod words;

use connect::Handshakes;
use control_words::{Block, ControlWords, OWN_BLOCK};
use fragments::Chunk;

/// Polls after which the puts behind notifications get a remote fence, if nobody asks earlier. In a
/// dialogue, the peer's next notification comes sooner, and one fence serves many puts.
const FENCE_DELAY_POLLS: u32 = 128;
/// Polls that each further put takes off that delay. Otherwise, where polls are rare, thousands of
/// puts would complete at once.
const DELAY_PER_PUT: u32 = 4;
/// Peers that the log describes.
const MAX_DESCRIBED: usize = 16;

/// The RDMA context of this process, shared by its windows.
pub type SharedContext = Arc<Guarded<Context>>;

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

/// What the endpoint knows of a peer of the window.
#[derive(Debug, Default)]
struct Peer {
    id: PeerId,
    /// `None`: RDMA has had nothing to do with it.
    block: Option<Block>,
    conn: Option<ConnectionId>,
    remote: Option<RemoteWindow>,
    /// The generation for which a connection was requested.
    requested: Option<u32>,
    /// Handshake messages that it owes.
    replies_due: u32,
    fragmented: Option<FragmentedOp>,
    /// Packets that cannot be sent yet, oldest first.
    packets: VecDeque<Vec<u8>>,
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
    /// By number.
    peers: Vec<Peer>,
    by_connection: HashMap<ConnectionId, PeerId>,
    waiting_packets: usize,
    handshakes: Handshakes,
    events: WindowEvents,
    lost: VecDeque<(PeerId, ConnectionError)>,
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
    /// Creates the endpoint of process `me` in a new window. `reachable` says which processes have
    /// RDMA, `me` included; all, if `atomics` are used.
    ///
    /// # Safety
    /// The window's memory must stay mapped until [`end`](Self::end).
    pub unsafe fn new(
        context: &SharedContext,
        me: Rank,
        reachable: RankTable<bool>,
        atomics: NicAtomics,
        own: WindowMemory,
    ) -> Result<Self, RegistrationError> {
        let mut held = context.borrow();
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
            reachable,
            nic_locks: atomics >= NicAtomics::LockWords && has_atomics,
            nic_accumulates: atomics == NicAtomics::LockWordsAndAccumulates && has_atomics,
            atomics: capability,
            max_message,
            memory,
            registration,
            words,
            peers: Vec::new(),
            by_connection: HashMap::new(),
            waiting_packets: 0,
            handshakes: Handshakes::default(),
            events: WindowEvents::default(),
            lost: VecDeque::new(),
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

    /// What is known of a peer, from the first use on.
    #[inline]
    fn peer(&mut self, id: PeerId) -> &mut Peer {
        if self.peers.get(id.at()).is_none_or(|peer| peer.block.is_none()) {
            self.meet(id);
        }
        &mut self.peers[id.at()]
    }

    #[cold]
    fn meet(&mut self, id: PeerId) {
        if self.peers.len() <= id.at() {
            self.peers.resize_with(id.at() + 1, Peer::default);
        }
        let block = self.words.add_block(&mut self.context.borrow());
        let peer = &mut self.peers[id.at()];
        (peer.id, peer.block) = (id, Some(*block.as_ref().unwrap_or(&OWN_BLOCK)));
        if let Err(reason) = block {
            self.lose(id, ConnectionError::ControlWords(reason));
        }
    }

    /// This process's block of control words for its pair with a peer.
    fn block(&mut self, peer: PeerId) -> Block {
        self.peer(peer).block.unwrap_or(OWN_BLOCK)
    }

    fn met(&self) -> impl Iterator<Item = &Peer> {
        self.peers.iter().filter(|peer| peer.block.is_some())
    }

    fn lose(&mut self, id: PeerId, error: ConnectionError) {
        let peer = &mut self.peers[id.at()];
        peer.replies_due = 0;
        self.waiting_packets -= peer.packets.len();
        peer.packets.clear();
        if !std::mem::replace(&mut peer.lost, true) {
            self.lost.push_back((id, error));
        }
    }

    /// Whether something is due from the host: handshakes, or messages of peers without RDMA.
    #[must_use]
    pub fn awaits_host(&self) -> bool {
        !self.reachable.is_uniform() || self.peers.iter().any(|peer| peer.replies_due > 0)
    }

    // Progress.

    /// Has the owner's `cookie` reported by [`Context::next_contacted`] when there are events.
    pub fn set_cookie(&mut self, cookie: u64) {
        self.context.borrow().set_cookie(self.window, cookie);
    }

    /// Takes in what has happened, after [`Context::poll`]. Returns whether anything has.
    pub fn poll(&mut self) -> bool {
        let moved = self.context.borrow().take_events(self.window, &mut self.events);
        self.handle_losses();
        self.retry_handshakes();
        moved
    }

    /// Whether [`poll_completions`](Self::poll_completions) or
    /// [`next_finished`](Self::next_finished) would find something. Looks at the completion queue
    /// only.
    #[inline]
    pub fn has_completions(&self) -> bool {
        !self.events.finished.is_empty() || self.context.borrow().has_completions(self.window)
    }

    /// Whether [`next_finished`](Self::next_finished) has something.
    #[inline]
    #[must_use]
    pub fn has_finished(&self) -> bool {
        !self.events.finished.is_empty()
    }

    /// Takes in a batch of completions, and does nothing else. Returns whether there were any.
    pub fn poll_completions(&mut self) -> bool {
        let mut context = self.context.borrow();
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
        let mut context = self.context.borrow();
        for conn in self.met().filter(|peer| !peer.lost).filter_map(|peer| peer.conn) {
            context.probe(conn, self.window);
        }
    }

    /// Whether a poll would do nothing unless something arrives.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.handshakes.are_done()
            && self.lost.is_empty()
            && self.events.is_empty()
            && !self.context.borrow().has_events(self.window)
    }

    /// State of the connections, for the log.
    #[cold]
    #[must_use]
    pub fn describe_connections(&self) -> String {
        let context = self.context.borrow();
        let mut text = String::new();
        for peer in self.met().take(MAX_DESCRIBED) {
            let state = peer
                .conn
                .map_or_else(|| "not connected".into(), |conn| context.describe_connection(conn));
            let rest = if peer.fragmented.is_some() { ", fragments to post" } else { "" };
            text.push_str(&format!("; process {}: {state}{rest}", peer.id.rank));
        }
        text
    }

    /// Goes on with what waits for a peer: fragments, packets, and the remote fence behind puts
    /// (`now`: without delay). Returns whether fragments went on, and whether nothing is left.
    pub fn drive(&mut self, id: PeerId, now: bool) -> (bool, bool) {
        let posted = |peer: &Peer| peer.fragmented.as_ref().map(|fragmented| fragmented.at);
        let Some(before) = self.peers.get(id.at()).map(posted) else { return (false, true) };
        let gone = self.post_fragments(id);
        let moved = before != posted(&self.peers[id.at()]);
        let sent = gone && self.send_waiting_packets(id);
        let peer = &mut self.peers[id.at()];
        if peer.lost {
            return (moved, true);
        }
        if gone && !now && peer.fence_delay > 0 {
            peer.fence_delay -= 1;
            return (moved, false);
        }
        // Also while packets wait: the connection may have to be closed first, which waits for the
        // remote completion of its puts.
        let fenced = gone
            && peer.conn.is_none_or(|conn| self.context.borrow().fence_puts(conn, self.window));
        (moved, sent && fenced)
    }

    fn handle_losses(&mut self) {
        while let Some((conn, error)) = self.events.lost.pop_front() {
            if let Some(peer) = self.by_connection.get(&conn).copied() {
                self.abandon(peer.at());
                self.lose(peer, error);
                // The peer may wait for this process, unaware. The host may still reach it.
                self.send_handshake(peer, Step::Reject);
            }
        }
    }

    /// The next event of a peer that has introduced itself. Others keep theirs until it has.
    fn next_from_peer<T>(
        queue: &mut VecDeque<(ConnectionId, T)>,
        by_connection: &HashMap<ConnectionId, PeerId>,
    ) -> Option<(PeerId, T)> {
        let at = queue.iter().position(|(conn, _)| by_connection.contains_key(conn))?;
        let (conn, event) = queue.remove(at)?;
        Some((by_connection[&conn], event))
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
    pub fn next_notification(&mut self) -> Option<(PeerId, u32)> {
        Self::next_from_peer(&mut self.events.notifications, &self.by_connection)
    }

    /// The next peer that was lost, and why.
    pub fn next_lost(&mut self) -> Option<(PeerId, ConnectionError)> {
        self.lost.pop_front()
    }

    /// The next packet that has arrived. [Recycle](Self::recycle) its memory after use.
    pub fn next_packet(&mut self) -> Option<(PeerId, Vec<u8>)> {
        Self::next_from_peer(&mut self.events.packets, &self.by_connection)
    }

    /// Device and port, for the log.
    #[must_use]
    pub fn describe(&self) -> String {
        self.context.borrow().describe()
    }

    // The end.

    /// Whether nothing of this process is in flight, handshakes included. Makes sure that a later
    /// call will find out. [Drive](Self::drive) all peers with work first.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        let mut context = self.context.borrow();
        let mut quiet = context.is_quiet(self.window) && self.waiting_packets == 0;
        for peer in self.met().filter(|peer| !peer.lost) {
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
        (0..self.peers.len()).for_each(|at| self.abandon(at));
        let mut context = self.context.borrow();
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
        self.context.borrow().abort_window(self.window);
    }

    /// Closes the endpoint. No peer may access it any more.
    pub fn end(&mut self) {
        (0..self.peers.len()).for_each(|at| self.abandon(at));
        let mut context = self.context.borrow();
        context.close_window(self.window);
        self.words.end(&mut context);
        if let Some(registration) = self.registration.take() {
            context.release(Held::Registration(registration));
        }
    }

    /// Sends a packet, now or when there is room, in order for each peer.
    pub fn send_packet(&mut self, id: PeerId, bytes: Vec<u8>) {
        let peer = self.peer(id);
        if !peer.lost && (!peer.packets.is_empty() || !self.try_send(id, &bytes)) {
            self.waiting_packets += 1;
            self.peers[id.at()].packets.push_back(bytes);
        } else {
            self.recycle(bytes);
        }
    }

    /// Number of packets that wait to be sent.
    #[inline]
    #[must_use]
    pub fn waiting_packets(&self) -> usize {
        self.waiting_packets
    }

    /// Memory for a packet, of any content; `None`: allocate it.
    #[inline]
    pub fn spare_packet(&mut self) -> Option<Vec<u8>> {
        self.context.borrow().spare_packets.pop()
    }

    /// Takes the memory of a packet for another one.
    pub fn recycle(&mut self, bytes: Vec<u8>) {
        self.context.borrow().recycle(bytes);
    }

    /// Sends the packets that wait for a peer. False if some are left.
    fn send_waiting_packets(&mut self, id: PeerId) -> bool {
        while let Some(bytes) = self.peers[id.at()].packets.pop_front() {
            if !self.try_send(id, &bytes) {
                self.peers[id.at()].packets.push_front(bytes);
                return false;
            }
            self.waiting_packets -= 1;
            self.recycle(bytes);
        }
        true
    }

    /// Sends a packet. False if there is no room now.
    fn try_send(&mut self, id: PeerId, bytes: &[u8]) -> bool {
        // Earlier operations go first.
        if !self.post_fragments(id) {
            return false;
        }
        let Some((conn, remote)) = self.connected(id) else { return false };
        let mut context = self.context.borrow();
        // Fenced: the packet may report that reads are over. Signalled if it takes a buffer, of
        // which there are few.
        let flags = PostFlags { fence: true, signalled: true, ..PostFlags::default() };
        let to = (Opcode::SendImm(remote.window), RemoteAddress::default());
        context.post_bytes(conn, self.window, to, bytes, flags, Purpose::Fragment).is_ok()
    }
}
