//! One window's endpoint: RDMA operations on the memory and words of its peers.
//!
//! - A put or get of one run of bytes on each side is an RDMA write or read, or several if long.
//! - A signal is a write behind them on the same connection. A signal that reports their completion
//!   is an atomic, which cannot overtake them [FE-2].
//! - A lock word is accessed by an atomic or a read [LK-3]. Device atomics are not atomic with a
//!   processor's. So all processes access lock words through the device, also those of their node
//!   and their own [LK-7]. Reading one's own word, or writing it while nobody else does, needs no
//!   device.
//! - A notification of a counter is the immediate of the write that it follows.
//!
//! Everything else travels in packets. They use the same connections, so they stay ordered behind
//! the operations.
//!
//! Call [`Context::poll`] once for all windows. Then call [`poll`](Endpoint::poll) to make progress
//! with this window, the `next_*` methods for its events, and [`drive`](Endpoint::drive) for each
//! peer with work. To close the endpoint, call [`is_quiet`](Endpoint::is_quiet), or
//! [`quiesce`](Endpoint::quiesce) in a broken window, until it returns true, and then
//! [`end`](Endpoint::end).

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashMap;

use super::context::{
    ConnectionError, ConnectionId, Context, Held, PostFlags, PostedRequest, Purpose, WindowEvents,
};
use super::device::{AtomicCapability, Opcode, RegistrationError};
use super::handshake::{RemoteAddress, RemoteWindow, Step};
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

/// Polls after which notified puts get a remote fence, if no call waits for their completion
/// earlier. In a dialogue the peer answers sooner, so one fence serves many puts.
const FENCE_DELAY_POLLS: u32 = 128;
/// Polls by which each further put shortens that delay. Otherwise, where polls are rare, thousands
/// of puts would complete at once.
const DELAY_PER_PUT: u32 = 4;
/// Most peers that the log describes.
const MAX_DESCRIBED: usize = 16;

/// The RDMA context of this process, shared by its windows.
pub type SharedContext = Arc<Guarded<Context>>;

/// Bits of an immediate that name the window. The other bits name the counter.
const WINDOW_BITS: u32 = 12;

/// Decodes the immediate of a write: window and counter.
pub(super) fn decode_imm(imm: u32) -> (u32, u32) {
    (imm >> (32 - WINDOW_BITS), imm << WINDOW_BITS >> WINDOW_BITS)
}

/// The immediate that notifies a counter of a window; `None` if the numbers are too large.
fn encode_imm(window: u32, counter: u32) -> Option<u32> {
    let bits = 32 - WINDOW_BITS;
    (window < 1 << WINDOW_BITS && counter < 1 << bits).then_some(window << bits | counter)
}

/// A put or get that takes several requests.
#[derive(Debug)]
struct FragmentedOp {
    op: Op,
    ticket: Ticket,
    /// Bytes posted.
    at: u64,
    /// Registration and local key of the application's memory. `None`: data are copied.
    region: Option<(RegistrationId, u32)>,
    /// Layouts, unless the data are one run on each side.
    shape: Option<Box<Shape>>,
    /// The buffer that the next request uses, too.
    chunk: Option<Chunk>,
    /// A put whose data are copied entirely in the call that posts it, so that it is locally
    /// complete when that call returns.
    locally_complete: bool,
}

/// The endpoint's state of a peer.
#[derive(Debug, Default)]
struct Peer {
    id: PeerId,
    /// This process's control words for the pair. `None` until RDMA first uses the peer.
    block: Option<Block>,
    conn: Option<ConnectionId>,
    remote: Option<RemoteWindow>,
    /// The generation in which a connection was requested last.
    requested: Option<u32>,
    /// Handshake messages that the peer owes.
    replies_due: u32,
    fragmented: Option<FragmentedOp>,
    /// No request was posted since an order that follows all before it [OR-1].
    ordered: bool,
    /// Packets that cannot be sent yet, oldest first.
    packets: VecDeque<Vec<u8>>,
    /// Polls until puts get a remote fence.
    fence_delay: u32,
    /// The last signals that this process wrote to the peer, by word.
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
    /// Which processes this one reaches by RDMA.
    reachable: RankTable<bool>,
    /// Lock words are accessed by device atomics.
    nic_locks: bool,
    /// Accumulates are of single elements, and those of 8 bytes are device atomics.
    nic_accumulates: bool,
    atomics: AtomicCapability,
    memory: RemoteAddress,
    registration: Option<RegistrationId>,
    words: ControlWords,
    /// By number of the peer.
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
    /// Its length in bytes; 0 if it may change while the window exists.
    pub bytes: u64,
}

/// What device atomics are used for in a window. All its processes must use them alike [LK-7].
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
    /// Creates the endpoint of process `me` in a new window. `reachable` says which processes are
    /// reached by RDMA, `me` included. If `atomics` are used, that must be all of them.
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
        let capability = held.limits.atomics;
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

    /// The state of a peer, which the first call creates.
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

    /// Whether messages of the host are due: handshakes, or those of peers without RDMA.
    #[must_use]
    pub fn awaits_host(&self) -> bool {
        !self.reachable.is_uniform() || self.peers.iter().any(|peer| peer.replies_due > 0)
    }

    // Progress.

    /// Has [`Context::next_contacted`] report `cookie` when there are events.
    pub fn set_cookie(&mut self, cookie: u64) {
        self.context.borrow().set_cookie(self.window, cookie);
    }

    /// Takes this window's events from the context, after [`Context::poll`], and handles losses and
    /// handshakes. Returns whether there were events.
    pub fn poll(&mut self) -> bool {
        let moved = self.context.borrow().take_events(self.window, &mut self.events);
        self.handle_losses();
        self.retry_handshakes();
        moved
    }

    /// Whether [`next_finished`](Self::next_finished) has something.
    #[inline]
    #[must_use]
    pub fn has_finished(&self) -> bool {
        !self.events.finished.is_empty()
    }

    /// Handles a batch of completions, and nothing else. Returns whether there were any.
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

    /// Probes all peers from which no response is due. Call it after a long wait, because only a
    /// process with a request in flight to a peer learns that the peer is lost.
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

    /// The state of the connections, for the log.
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

    /// Posts what waits for a peer: fragments, packets, and the remote fence behind puts (`now`:
    /// without delay). Returns whether fragments were posted, and whether nothing is left.
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
        // The fence is also posted while packets wait. The connection may have to be closed first,
        // and that waits for the remote completion of its puts.
        let fenced = gone
            && peer.conn.is_none_or(|conn| self.context.borrow().fence_puts(conn, self.window));
        (moved, sent && fenced)
    }

    fn handle_losses(&mut self) {
        while let Some((conn, error)) = self.events.lost.pop_front() {
            if let Some(peer) = self.by_connection.get(&conn).copied() {
                self.abandon(peer.at());
                self.lose(peer, error);
                // The peer may wait for this process without knowing of the loss. Messages of the
                // host may still reach it.
                self.send_handshake(peer, Step::Reject);
            }
        }
    }

    /// The next event of a peer whose handshake has arrived. Events of other peers stay queued.
    fn next_from_peer<T>(
        queue: &mut VecDeque<(ConnectionId, T)>,
        by_connection: &HashMap<ConnectionId, PeerId>,
    ) -> Option<(PeerId, T)> {
        let at = queue.iter().position(|(conn, _)| by_connection.contains_key(conn))?;
        let (conn, event) = queue.remove(at)?;
        Some((by_connection[&conn], event))
    }

    /// The next operation that has reached a stage of completion, and which stage.
    pub fn next_finished(&mut self) -> Option<(Ticket, Stage)> {
        self.events.finished.pop_front()
    }

    /// The next response to an access to a lock word: the old value.
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

    /// Whether nothing of this process is in flight, handshakes included. If something is, makes
    /// sure that its completion will be reported. [Drive](Self::drive) all peers with work first.
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

    /// Drops all fragments that are not posted, in a broken window. Returns whether nothing is in
    /// flight.
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

    /// Fails the connections on which a broken window still has requests in flight.
    #[cold]
    pub fn abort(&mut self) {
        self.context.borrow().abort_window(self.window);
    }

    /// Closes the endpoint. Peers must no longer access it.
    pub fn end(&mut self) {
        (0..self.peers.len()).for_each(|at| self.abandon(at));
        let mut context = self.context.borrow();
        context.close_window(self.window);
        self.words.end(&mut context);
        if let Some(registration) = self.registration.take() {
            context.release(Held::Registration(registration));
        }
    }

    /// Sends a packet, now or when there is room. Packets to a peer keep their order.
    pub fn send_packet(&mut self, id: PeerId, bytes: Vec<u8>) {
        let peer = self.peer(id);
        if !peer.lost && (!peer.packets.is_empty() || !self.try_send(id, &bytes)) {
            self.waiting_packets += 1;
            self.peers[id.at()].packets.push_back(bytes);
        } else {
            self.recycle(bytes);
        }
    }

    /// Number of packets that wait for room.
    #[inline]
    #[must_use]
    pub fn waiting_packets(&self) -> usize {
        self.waiting_packets
    }

    /// Memory for a packet, with arbitrary content. `None`: the caller has to allocate it.
    #[inline]
    pub fn spare_packet(&mut self) -> Option<Vec<u8>> {
        self.context.borrow().spare_packets.pop()
    }

    /// Keeps the memory of a packet for another one.
    pub fn recycle(&mut self, bytes: Vec<u8>) {
        self.context.borrow().recycle(bytes);
    }

    /// Sends the packets that wait for a peer. Returns false if some are left.
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

    /// Sends a packet. Returns false if there is no room now.
    fn try_send(&mut self, id: PeerId, bytes: &[u8]) -> bool {
        // Earlier operations go first.
        if !self.post_fragments(id) {
            return false;
        }
        let Some((conn, remote)) = self.connected(id) else { return false };
        let mut context = self.context.borrow();
        // Fenced, because the packet may report that gets are complete. Signalled if it takes a
        // buffer, because there are few.
        let flags = PostFlags { fence: true, signalled: true, ..PostFlags::default() };
        let to = (Opcode::SendImm(remote.window), RemoteAddress::default());
        context.post_bytes(conn, self.window, to, bytes, flags, Purpose::Fragment).is_ok()
    }
}
