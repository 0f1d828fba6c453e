//! Active messages, for peers that shared memory does not reach.
//!
//! A [`MessageWindow`] is a window with peers that are reached by messages. The processes of one
//! node share a segment, as in a window of one node ([`ShmWindow`]); a process that is alone on its
//! node has a segment of its own. Node-mates access a process's memory and words directly. For all
//! others the process itself does what their messages ask, *on the same words and under the same
//! accumulate lock*: each target has one atomicity domain, the CPU's [LK-7].
//!
//! | module | what it does |
//! |---|---|
//! | [`wire`] | the format of packets and records |
//! | [`channel`] | the interface to what moves a window's packets: messages, RDMA, memory in tests |
//! | [`window_channel`] | a window's channel over the process's context |
//! | [`context`] | what all windows of the process share: dispatches what arrives |
//! | [`carrier`] | the interface to what moves the context's packets: the host |
//! | [`collective`] | agreements and allgathers of a window's processes |
//! | [`members`] | the processes on this node; sizes of all processes' memory |
//! | `peer` | the state of one peer: credits, acknowledgements, order |
//! | `origin` | operations of this process: cut into records, completed by responses |
//! | `target` | records of peers: checked and applied |
//! | `rdma_path` | what bypasses messages, where the channel has an RDMA endpoint |
//! | `port` | the engine's port: chooses shared memory, RDMA or messages |
//! | `counters` | the number of notification counters per process |
//!
//! Small puts and accumulates are copied into packets, several per packet, so they are locally
//! complete at once. Long puts and gets whose sides are one run each use the rendezvous protocol: a
//! record announces a message from and into the application's memory. Other layouts are sent as
//! runs with a stride, never as datatypes.
//!
//! All queues are bounded. An operation is refused ([`Posted::NoResource`]) while [`CREDITS`]
//! packets are in flight to its target, or the channel is busy. Requests bound the replies.
//!
//! [`Posted::NoResource`]: crate::engine::Posted::NoResource

use std::collections::VecDeque;
use std::time::Instant;

use hashbrown::HashMap;

use crate::engine::slab::Slab;
use crate::engine::{Addr, Arrival, LockTicket, Op, Rank, Shaped, Stage, Ticket};
use crate::transport::Proposal;
use crate::transport::datatype::element::ForeignReduce;
use crate::transport::datatype::{Shape, Shapes};
use crate::transport::shm::tags::Claimed;
use crate::transport::shm::{AttachError, Counter, ShmWindow, SystemError};

use channel::Channel;
use counters::Counters;
use members::{Extents, Members};
use origin::{InFlight, PendingReply, Transfer};
use peer::Peer;
use wire::{ElementOp, Malformed, Packet};

pub mod carrier;
pub mod channel;
pub mod collective;
pub mod context;
mod counters;
pub mod members;
mod origin;
mod peer;
mod port;
mod rdma_path;
mod target;
pub mod window_channel;
pub mod wire;

pub use peer::CREDITS;

/// What the transport needs of the host glue.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Reduces elements of the host's datatypes.
    pub foreign_reduce: ForeignReduce,
    /// Extent and size in bytes of an element of a host datatype, if it has this reduction. Checks
    /// what messages say before anything is reduced.
    pub foreign: fn(ElementOp) -> Option<(u8, u8)>,
}

/// A message that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message of process {peer} of the window is refused: {reason}")]
pub struct Refused {
    /// Rank of the sender.
    pub peer: Rank,
    /// What is wrong with the message.
    pub reason: Malformed,
}

/// An operation of this process that was not done: its target has not attached the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "an operation reaches for {len} bytes at address {disp:#x} of process {target} of the window, \
     which are not attached there"
)]
pub struct OutOfReach {
    /// Rank of the target.
    pub target: Rank,
    /// Address of the first byte.
    pub disp: u64,
    /// Bytes from there to the end of the operation's memory.
    pub len: u64,
}

/// One window in one process, with peers that are reached by messages.
#[derive(Debug)]
pub struct MessageWindow<C: ?Sized> {
    members: Members,
    /// The window of the processes that share a segment with this one.
    shm: ShmWindow,
    extents: Extents,
    settings: Settings,
    /// Lock words are accessed by device atomics.
    nic_locks: bool,

    peers: Vec<Peer>,
    index: HashMap<Rank, u32>,
    /// Rank and index of the peer that was looked up last.
    last_peer: (Rank, u32),
    /// Indices of peers with work for the next poll.
    active: Vec<u32>,

    /// Shapes of recorded operations to peers that are reached by messages.
    shapes: Shapes,
    in_flight: Slab<InFlight>,
    pending_replies: Slab<PendingReply>,
    transfers: Slab<Transfer>,
    /// The ticket and the home of each lock word access without an answer.
    pending_atomics: HashMap<u32, Rank>,
    finished: VecDeque<(Ticket, Stage)>,
    /// Operations whose data and notification travel apart, with both in flight. The flag: the data
    /// are a result, and their end is the local stage.
    in_two_parts: HashMap<Ticket, bool>,
    /// Those of which the notification, an operation without data, was not posted yet.
    owed: VecDeque<(Op, Ticket)>,
    answers: VecDeque<(LockTicket, u64)>,
    counters: Counters,
    /// Tagged notifications for the engine.
    arrivals: VecDeque<Arrival>,
    /// A buffer with aligned elements for the host's reductions.
    scratch: Vec<u128>,
    refused: VecDeque<Refused>,
    /// Received packets. The next poll recycles them, after replies and completions are on their
    /// way.
    taken: Vec<Packet>,
    /// Operations that were not done. Reported before their completion.
    failed: VecDeque<Ticket>,
    /// The faults that the application has not seen yet, one per target.
    faults: Vec<OutOfReach>,
    /// The window has failed: a message was refused, or a peer was lost. Nothing is sent or handled
    /// any more.
    broken: bool,
    /// The window has failed, and nothing in flight accesses its users' memory any more.
    ended: bool,
    /// Since when a failed window waits for that.
    failed_since: Option<Instant>,
    /// The first peer that was lost, and the reason.
    lost: Option<(Rank, &'static str)>,
    channel: Box<C>,
}

impl<C: Channel + ?Sized> MessageWindow<C> {
    /// `shm` is the window of the processes of `members` that share a segment, in that order.
    /// `extents` are those of all processes.
    #[must_use]
    pub fn new(
        channel: Box<C>,
        members: Members,
        shm: ShmWindow,
        extents: Extents,
        settings: Settings,
    ) -> Self {
        MessageWindow {
            members,
            shm,
            extents,
            settings,
            nic_locks: channel.endpoint().is_some_and(|endpoint| endpoint.serves_locks()),
            peers: Vec::new(),
            index: HashMap::new(),
            last_peer: (Rank::MAX, 0),
            active: Vec::new(),
            shapes: Shapes::new(),
            in_flight: Slab::new(),
            pending_replies: Slab::new(),
            transfers: Slab::new(),
            pending_atomics: HashMap::new(),
            finished: VecDeque::new(),
            in_two_parts: HashMap::new(),
            owed: VecDeque::new(),
            answers: VecDeque::new(),
            counters: Counters::default(),
            arrivals: VecDeque::new(),
            scratch: Vec::new(),
            refused: VecDeque::new(),
            taken: Vec::new(),
            failed: VecDeque::new(),
            faults: Vec::new(),
            broken: false,
            ended: false,
            failed_since: None,
            lost: None,
            channel,
        }
    }

    /// The index of a peer, which is created at first contact.
    #[inline]
    fn peer_index(&mut self, rank: Rank) -> u32 {
        if self.last_peer.0 == rank {
            return self.last_peer.1;
        }
        let peers = &mut self.peers;
        let index = *self.index.entry(rank).or_insert_with(|| {
            peers.push(Peer::new(rank));
            (peers.len() - 1) as u32
        });
        self.last_peer = (rank, index);
        index
    }

    /// Has the next poll look at a peer.
    #[inline]
    fn activate(&mut self, index: u32) {
        let peer = &mut self.peers[index as usize];
        if !peer.active {
            peer.active = true;
            self.active.push(index);
        }
    }

    /// Handles received messages and completions, and sends what is waiting. True if anything
    /// moved.
    fn poll_messages(&mut self) -> bool {
        for packet in self.taken.drain(..) {
            self.channel.recycle(packet);
        }
        // Send first: polling the host takes a microsecond over a network.
        let mut moved = self.send_ready();
        self.channel.poll();
        moved |= self.take_rdma_events();
        moved |= self.take_packets();
        while let Some((id, bytes)) = self.channel.next_transfer() {
            moved = true;
            self.transfer_done(id, bytes);
        }
        moved |= self.send_ready();
        if self.broken && !self.ended {
            moved |= self.quiesce();
        }
        moved
    }

    /// Sends what is waiting, as far as there is room. True if a fragmented operation went on.
    fn send_ready(&mut self) -> bool {
        if self.broken {
            self.active.clear();
        }
        let (mut at, mut moved) = (0, false);
        while let Some(&index) = self.active.get(at) {
            moved |= self.write_fragments(index);
            let peer = &mut self.peers[index as usize];
            peer.flush_or_ack(&mut *self.channel);
            if peer.is_idle() {
                peer.active = false;
                self.active.swap_remove(at);
            } else {
                at += 1;
            }
        }
        moved
    }

    /// Sends partly filled packets, for calls that close an epoch or start a flush. True if
    /// [`Port::next_finished`](crate::engine::Port::next_finished) has something now.
    pub fn flush_and_poll(&mut self) -> bool {
        for at in 0..if self.broken { 0 } else { self.active.len() } {
            let index = self.active[at];
            self.write_fragments(index);
            self.peers[index as usize].flush_or_ack(&mut *self.channel);
        }
        if let Some(endpoint) = self.channel.endpoint_mut() {
            endpoint.fence_puts();
            self.take_rdma_events();
        }
        self.shm.flush_and_poll() || !self.finished.is_empty()
    }

    /// Rank of this process.
    #[must_use]
    pub fn rank(&self) -> Rank {
        self.members.me()
    }

    /// First byte of this process's window memory (0 when it is empty).
    #[must_use]
    pub fn base(&self) -> Addr {
        self.shm.base()
    }

    /// Bytes and displacement unit of a process's window memory.
    #[inline]
    #[must_use]
    pub fn extent_of(&self, rank: Rank) -> (u64, u32) {
        self.extents.of(rank)
    }

    /// Whether this process accesses the memory of `rank` by load and store.
    #[inline]
    #[must_use]
    pub fn load_store(&self, rank: Rank) -> bool {
        self.members.segment_rank(rank).is_some_and(|rank| self.shm.load_store(rank))
    }

    /// Whether each of the `len` bytes at `at` of the memory of `rank` may be accessed. Always true
    /// for a peer on another node: only that peer knows what it has attached.
    ///
    /// # Errors
    /// The memory that a node-mate has attached cannot be looked up.
    pub fn reaches(&self, rank: Rank, at: u64, len: u64) -> Result<bool, SystemError> {
        self.members.segment_rank(rank).map_or(Ok(true), |rank| self.shm.reaches(rank, at, len))
    }

    /// Attaches memory of this process to a dynamic window.
    ///
    /// # Errors
    /// The memory cannot be attached.
    pub fn attach(&mut self, base: Addr, len: u64) -> Result<(), AttachError> {
        self.shm.attach(base, len)
    }

    /// Detaches memory of this process from a dynamic window.
    ///
    /// # Errors
    /// Nothing was attached there.
    pub fn detach(&mut self, base: Addr) -> Result<(), AttachError> {
        self.shm.detach(base)
    }

    /// Address in this process of the memory of `rank`, if it is accessed by load and store and not
    /// empty.
    #[must_use]
    pub fn address_of(&self, rank: Rank) -> Option<Addr> {
        self.members.segment_rank(rank).and_then(|rank| self.shm.address_of(rank))
    }

    /// The mapped memory of `rank` in an allocated window: its address in this process, its bytes
    /// and its displacement unit.
    #[inline]
    #[must_use]
    pub fn place_of(&self, rank: Rank) -> Option<(Addr, u64, u32)> {
        self.shm.place_of(self.members.shm_rank(rank)?)
    }

    /// Rank in the segment of a process that this one may notify by a store right behind copies.
    #[inline]
    fn notified_by_store(&self, rank: Rank) -> Option<Rank> {
        self.members.shm_rank(rank).filter(|_| !self.has_rdma_accumulates(rank))
    }

    /// A counter of `rank` that this process can raise by an atomic addition right behind copies.
    #[inline]
    pub(crate) fn counter_of(&self, rank: Rank, index: u32) -> Option<Counter<'_>> {
        self.shm.counter_of(self.notified_by_store(rank)?, index)
    }

    /// A slot for a tagged notification to `rank`, to be published right behind copies.
    #[inline]
    pub(crate) fn claim_tag(&self, rank: Rank, tag: u32) -> Option<Claimed<'_>> {
        self.shm.claim_tag(self.notified_by_store(rank)?, tag)
    }

    /// Alignment of the memory allocated for this process, in bytes; 1 where none was.
    #[must_use]
    pub fn alignment(&self) -> u64 {
        self.shm.alignment()
    }

    /// Value of the info key `mpix_rma_progress`: what progresses without calls of the target.
    #[must_use]
    pub fn progresses(&self) -> &'static std::ffi::CStr {
        if self.nic_locks { c"rdma" } else { c"target_calls" }
    }

    /// Whether peers wait for this process to poll: always, unless it is alone.
    #[must_use]
    pub fn needs_polling(&self) -> bool {
        self.members.size() > 1
    }

    /// Has the owner's `cookie` reported by the contexts when something arrives for the window.
    pub fn set_cookie(&mut self, cookie: u64) {
        self.channel.set_cookie(cookie);
    }

    /// Whether the window need not be polled until something arrives for it by messages or RDMA.
    fn awaits_only_contact(&self) -> bool {
        self.active.is_empty()
            && self.taken.is_empty()
            && self.pending_atomics.is_empty()
            && self.arrivals.is_empty()
            && self.broken == self.ended
            && self.channel.is_idle()
    }

    /// Whether nothing but messages can move this window: it has no node mates and no RDMA, and has
    /// sent what it had to send.
    #[inline]
    #[must_use]
    pub fn waits_for_messages(&self) -> bool {
        self.members.count() == 1
            && self.active.is_empty()
            && self.taken.is_empty()
            && self.broken == self.ended
            && self.channel.endpoint().is_none()
    }

    /// As [`ShmWindow::is_armed`].
    #[must_use]
    pub fn is_armed(&self) -> bool {
        self.members.count() > 1 && self.shm.is_armed() && self.awaits_only_contact()
    }

    /// As [`ShmWindow::arm`].
    pub fn arm(&mut self) -> bool {
        self.awaits_only_contact() && self.shm.arm()
    }

    /// As [`ShmWindow::number`], of the processes of this node.
    #[must_use]
    pub fn number(&self) -> Option<u32> {
        self.shm.number()
    }

    /// Adds the shape of an operation to `rank` about to be issued. It lives until the operation
    /// ends.
    pub fn add_shape(&mut self, rank: Rank, shape: Shape) -> Shaped {
        match self.members.shm_rank(rank) {
            Some(_) => self.shm.add_shape(shape),
            None => self.shapes.add(shape),
        }
    }

    /// Drops the shape of an operation to `rank` that will never be posted.
    pub fn drop_shape(&mut self, rank: Rank, shaped: Shaped) {
        match self.members.shm_rank(rank) {
            Some(_) => self.shm.drop_shape(shaped),
            None => drop(self.shapes.take(shaped)),
        }
    }

    /// The transports of this window, for the log.
    #[must_use]
    pub fn describe(&mut self) -> String {
        let (count, size, me) = (self.members.count(), self.members.size(), self.members.me());
        let remote = match self.channel.endpoint() {
            None => "messages".into(),
            Some(endpoint) => format!("verbs on {}", endpoint.describe()),
        };
        if (0..size).all(|rank| rank == me || self.members.shm_rank(rank).is_none()) {
            remote
        } else {
            format!("{} for {count} of them, {remote} for the others", self.shm.describe())
        }
    }

    /// The next refused message.
    pub fn next_refused(&mut self) -> Option<Refused> {
        self.refused.pop_front()
    }

    /// A fault that the application has not seen yet, of `target` or of any process. Without a
    /// target, clears all faults.
    #[inline]
    pub fn take_fault(&mut self, target: Option<Rank>) -> Option<OutOfReach> {
        if self.faults.is_empty() {
            return None;
        }
        let Some(target) = target else {
            return std::mem::take(&mut self.faults).into_iter().next();
        };
        let at = self.faults.iter().position(|fault| fault.target == target)?;
        Some(self.faults.remove(at))
    }

    /// Whether the window has failed: operations in flight never complete, and none of them
    /// accesses memory any more.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.ended
    }

    /// The first peer that cannot be reached any more, and why.
    #[must_use]
    pub fn lost(&self) -> Option<(Rank, &'static str)> {
        self.lost
    }

    /// Starts a nonblocking agreement of all processes with this process's proposal.
    pub fn propose(&mut self, proposal: Proposal) {
        self.channel.propose(proposal);
    }

    /// The highest proposal, once all processes have proposed.
    pub fn decision(&mut self) -> Option<Proposal> {
        if self.has_gathered() { self.channel.decision() } else { None }
    }

    /// Whether all messages of this process have arrived. Asks the peers for missing
    /// acknowledgements.
    pub fn is_quiet(&mut self) -> bool {
        let mut quiet = self.pending_atomics.is_empty();
        for peer in self.peers.iter_mut().filter(|peer| peer.contacted && !peer.failed) {
            if peer.is_idle() && peer.sent != peer.credited {
                peer.request_credits(&mut *self.channel);
            }
            quiet &= peer.is_quiet();
        }
        quiet && self.channel.endpoint_mut().is_none_or(|endpoint| endpoint.is_quiet())
    }

    /// Sends a close to every contacted peer, once. True when all of them have sent theirs: then no
    /// message of this window is in flight anywhere. Call after an agreement of processes that were
    /// all [quiet](Self::is_quiet).
    pub fn drain(&mut self) -> bool {
        let mut drained = true;
        for peer in self.peers.iter_mut().filter(|peer| peer.contacted && !peer.failed) {
            if !peer.close_sent {
                peer.close_sent = true;
                peer.reply_packet(&mut *self.channel, 0).close();
                peer.flush(&mut *self.channel, false);
            }
            drained &= peer.close_received;
        }
        drained && (self.broken || self.channel.is_quiet())
    }

    /// Frees local resources, after [`drain`](Self::drain).
    pub fn release(mut self) {
        self.channel.release();
        // In a failed window the host may still write into the buffers of transfers.
        std::mem::forget(self.transfers);
        self.shm.release();
    }
}
