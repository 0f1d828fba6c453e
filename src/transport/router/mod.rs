//! Windows with peers on other nodes.
//!
//! A [`Router`] is the port of such a window, and chooses a transport for each peer. The processes
//! of one node share a segment, as in a window of one node ([`ShmWindow`]); a process that is alone
//! on its node has a segment of its own. Other peers are reached by active messages
//! ([`am`](super::am)) and, where there is a device, by RDMA ([`Endpoint`]).
//!
//! | module | what it does |
//! |---|---|
//! | `port` | the engine's port |
//! | `contact` | what arrives for a window that waits for nothing else |
//! | `events` | handles the reports of the RDMA endpoint |
//! | `packets` | sends packets as RDMA sends, or through the host |
//! | `here` | the memory and words of this process to which the records of peers apply |
//! | `counters` | the number of notification counters per process |
//! | `failure` | failed windows |

use std::collections::VecDeque;
use std::time::Instant;

use hashbrown::HashMap;

use crate::engine::{Addr, Arrival, Op, Rank, Shaped, Stage, Ticket};
use crate::transport::Proposal;
use crate::transport::am::Protocol;
use crate::transport::am::window_channel::WindowChannel;
use crate::transport::am::wire::{Content, ENVELOPE, Packet};
use crate::transport::datatype::{Shape, Shapes};
use crate::transport::members::{Extents, Members};
use crate::transport::peers::{PeerId, Peers};
use crate::transport::rdma::Endpoint;
use crate::transport::rdma::handshake::{Handshake, Step};
use crate::transport::shm::tags::Claimed;
use crate::transport::shm::{
    AttachError, Counter, CounterTable, PlainCopy, ShmWindow, SystemError,
};

use counters::Counters;
use here::{Here, peer_of};
use packets::Packets;

mod contact;
mod counters;
mod events;
mod failure;
mod here;
mod packets;
mod port;

pub use failure::Refused;

/// Maximum of packets handled by one poll.
const PACKETS_PER_POLL: usize = 32;

/// One window in one process, with peers on other nodes.
#[derive(Debug)]
pub struct Router {
    members: Members,
    extents: Extents,
    /// The window of the processes that share a segment with this one.
    shm: ShmWindow,
    am: Protocol,
    packets: Packets,
    /// Lock words are accessed by device atomics.
    nic_locks: bool,
    peers: Peers,
    /// Shapes of recorded operations to peers on other nodes.
    shapes: Shapes,
    counters: Counters,
    /// Tagged notifications for the engine.
    arrivals: VecDeque<Arrival>,
    /// Finished operations that no transport reports.
    finished: VecDeque<(Ticket, Stage)>,
    /// Operations whose data and notification travel apart and are both in flight. The flag says
    /// that the data are a result, whose arrival is the local stage.
    in_two_parts: HashMap<Ticket, bool>,
    /// Owed notifications, as operations without data.
    owed: VecDeque<(Op, Ticket)>,
    /// Received packets. The next poll recycles them, so that replies and completions go first.
    taken: Vec<Packet>,
    refused: VecDeque<Refused>,
    /// The window has failed: a message was refused, or a peer was lost. Nothing is sent or handled
    /// any more.
    broken: bool,
    /// The window has failed, and nothing in flight accesses its users' memory any more.
    ended: bool,
    /// When the window failed, if it still waits for operations in flight.
    failed_since: Option<Instant>,
    /// When the failed window first waited for an agreement.
    agrees_since: Option<Instant>,
    /// The first peer that was lost, and the reason.
    lost: Option<(Rank, &'static str)>,
}

impl Router {
    /// `shm` is the window of the processes of `members` that share a segment, in that order.
    /// `extents` are those of all processes.
    #[must_use]
    pub fn new(
        channel: WindowChannel,
        endpoint: Option<Endpoint>,
        members: Members,
        shm: ShmWindow,
        extents: Extents,
        am: Protocol,
    ) -> Self {
        Router {
            members,
            extents,
            shm,
            am,
            nic_locks: endpoint.as_ref().is_some_and(Endpoint::serves_locks),
            packets: Packets { host: channel, endpoint },
            peers: Peers::default(),
            shapes: Shapes::new(),
            counters: Counters::default(),
            arrivals: VecDeque::new(),
            finished: VecDeque::new(),
            in_two_parts: HashMap::new(),
            owed: VecDeque::new(),
            taken: Vec::new(),
            refused: VecDeque::new(),
            broken: false,
            ended: false,
            failed_since: None,
            agrees_since: None,
            lost: None,
        }
    }

    /// The peer of a rank. Adds the peer at first contact.
    #[inline]
    fn peer(&mut self, rank: Rank) -> PeerId {
        peer_of(&mut self.peers, &mut self.am, rank)
    }

    #[inline]
    fn endpoint(&self) -> Option<&Endpoint> {
        self.packets.endpoint.as_ref()
    }

    /// This process as the target of records, with the protocol and the channel.
    #[inline]
    fn here(&mut self) -> (Here<'_>, &mut Protocol, &mut Packets) {
        let Router { members, shm, peers, arrivals, am, packets, .. } = self;
        (Here { members, shm, peers, arrivals }, am, packets)
    }

    // Progress.

    /// Handles arrivals and sends waiting records and packets. True if anything moved.
    pub(crate) fn poll_network(&mut self) -> bool {
        for packet in self.taken.drain(..) {
            self.packets.recycle(packet);
        }
        self.packets.host.poll();
        let mut moved = self.packets.endpoint.as_mut().is_some_and(Endpoint::poll);
        moved |= self.take_rdma_events();
        moved |= self.take_packets();
        moved |= self.take_transfers();
        self.packets.send_handshakes();
        moved |= self.drive_peers(false);
        if self.broken && !self.ended {
            moved |= self.quiesce();
        }
        moved
    }

    /// Handles a bounded number of received packets. True if there was one.
    fn take_packets(&mut self) -> bool {
        for taken in 0..PACKETS_PER_POLL {
            let Some((peer, packet)) = self.next_packet() else { return taken > 0 };
            if packet.content() == Some(Content::Handshake) && self.packets.endpoint.is_some() {
                self.take_handshake(peer, &packet);
            } else if self.broken {
                // The peer may not know that the window has failed.
                let lost = self.lost.map(|(rank, _)| rank);
                self.am.fail(&mut self.packets, peer, lost);
            } else {
                let (mut here, am, packets) = self.here();
                if let Err(failure) = am.receive(packets, &mut here, peer, &packet.bytes) {
                    self.fail(peer, &failure);
                }
            }
            self.peers.activate(peer);
            self.taken.push(packet);
        }
        true
    }

    /// The next received packet and its sender.
    #[inline]
    fn next_packet(&mut self) -> Option<(PeerId, Packet)> {
        if let Some((rank, packet)) = self.packets.host.receive() {
            return Some((self.peer(rank), packet));
        }
        let (peer, bytes) = self.packets.endpoint.as_mut()?.next_packet()?;
        Some((peer, Packet { bytes }))
    }

    /// Handles a handshake message of a peer's endpoint.
    fn take_handshake(&mut self, from: PeerId, packet: &Packet) {
        let Some(message) = Handshake::decode(&packet.bytes[ENVELOPE..]) else {
            return log::error!("dropped a malformed handshake of process {}", from.rank);
        };
        let asks = message.step == Step::LookupRequest && message.about < self.members.size();
        let about = asks.then(|| self.peer(message.about));
        if let Some(endpoint) = &mut self.packets.endpoint {
            endpoint.receive_handshake(from, &message, about);
        }
    }

    /// Handles completed rendezvous transfers. True if there was one.
    fn take_transfers(&mut self) -> bool {
        let mut moved = false;
        while let Some((id, bytes)) = self.packets.host.next_transfer() {
            moved = true;
            if self.broken {
                self.am.forget_transfer(id);
                continue;
            }
            let (mut here, am, packets) = self.here();
            match am.transfer_done(packets, &mut here, id, bytes) {
                Some((peer, Ok(()))) => self.peers.activate(peer),
                Some((peer, Err(reason))) => self.refuse(peer.rank, reason),
                None => {}
            }
        }
        moved
    }

    /// Sends the waiting records and packets to all active peers, as far as there is room. `now`
    /// also posts remote fences that nobody awaits yet. True if a fragmented operation has
    /// advanced.
    fn drive_peers(&mut self, now: bool) -> bool {
        let (mut at, mut moved) = (0, false);
        while let Some(peer) = self.peers.active(at) {
            let mut is_idle = true;
            if !self.broken {
                moved |= self.am.drive(&mut self.packets, peer);
                is_idle = self.am.is_idle(peer);
            }
            if let Some(endpoint) = &mut self.packets.endpoint {
                let (went_on, is_done) = endpoint.drive(peer, now);
                (moved, is_idle) = (moved | went_on, is_idle & is_done);
            }
            if is_idle {
                self.peers.retire(at);
            } else {
                at += 1;
            }
        }
        moved
    }

    /// Sends partly filled packets, for calls that close an epoch or start a flush. True if
    /// [`Port::next_finished`](crate::engine::Port::next_finished) would return an operation.
    pub fn flush_and_poll(&mut self) -> bool {
        self.drive_peers(true);
        self.take_rdma_events();
        let by_rdma = self.endpoint().is_some_and(Endpoint::has_finished);
        self.shm.flush_and_poll() || self.am.has_finished() || by_rdma || !self.finished.is_empty()
    }

    // The window.

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
    /// This process cannot read what `rank` has attached.
    pub fn reaches(&self, rank: Rank, at: u64, len: u64) -> Result<bool, SystemError> {
        self.members.segment_rank(rank).map_or(Ok(true), |rank| self.shm.reaches(rank, at, len))
    }

    /// Attaches memory of this process to a dynamic window.
    pub fn attach(&mut self, base: Addr, len: u64) -> Result<(), AttachError> {
        self.shm.attach(base, len)
    }

    /// Detaches memory of this process from a dynamic window.
    pub fn detach(&mut self, base: Addr) -> Result<(), AttachError> {
        self.shm.detach(base)
    }

    /// Address in this process of the memory of `rank`, if it is accessed by load and store and not
    /// empty.
    #[must_use]
    pub fn address_of(&self, rank: Rank) -> Option<Addr> {
        self.members.segment_rank(rank).and_then(|rank| self.shm.address_of(rank))
    }

    /// As [`ShmWindow::is_allocated`].
    #[inline]
    #[must_use]
    pub fn is_allocated(&self) -> bool {
        self.shm.is_allocated()
    }

    /// As [`ShmWindow::place_of`].
    #[inline]
    #[must_use]
    pub fn place_of(&self, rank: Rank) -> Option<(Addr, u64, u32)> {
        self.shm.place_of(self.members.shm_rank(rank)?)
    }

    /// Copies a put or get to a process of this node by the kernel; see
    /// [`ShmWindow::copy_by_kernel`].
    ///
    /// # Safety
    /// The buffer in this process is valid for the operation.
    pub unsafe fn copy_by_kernel(&mut self, copy: &PlainCopy) -> bool {
        self.members.shm_rank(copy.rank).is_some_and(|rank| {
            // SAFETY: the buffer is valid for the operation (contract of this function).
            unsafe { self.shm.copy_by_kernel(&PlainCopy { rank, ..*copy }) }
        })
    }

    /// The segment rank of a process that this one may notify by a store right after its copies.
    #[inline]
    fn notified_by_store(&self, rank: Rank) -> Option<Rank> {
        self.members.shm_rank(rank).filter(|_| !self.has_rdma_accumulates(rank))
    }

    /// A counter of `rank` that this process may raise by an atomic addition right after its
    /// copies.
    #[inline]
    pub(crate) fn counter_of(&self, rank: Rank, index: u32) -> Option<Counter<'_>> {
        self.shm.counter_of(self.notified_by_store(rank)?, index)
    }

    /// All such counters of `rank`.
    pub(crate) fn counter_table(&self, rank: Rank) -> CounterTable {
        let rank = self.notified_by_store(rank);
        rank.map_or(CounterTable::default(), |rank| self.shm.counter_table(rank))
    }

    /// A slot for a tagged notification to `rank`. The caller publishes it right after its copies.
    #[inline]
    pub(crate) fn claim_tag(&self, rank: Rank, tag: u32) -> Option<Claimed<'_>> {
        self.shm.claim_tag(self.notified_by_store(rank)?, tag)
    }

    /// Alignment of the memory allocated for this process, in bytes; 1 where none was.
    #[must_use]
    pub fn alignment(&self) -> u64 {
        self.shm.alignment()
    }

    /// Value of the info key `mpix_rma_progress`, which describes the weakest target of the window.
    #[must_use]
    pub fn progresses(&self) -> &'static std::ffi::CStr {
        if self.nic_locks { c"rdma" } else { c"target_calls" }
    }

    /// Whether remote progress depends on this process polling: always, unless it is alone.
    #[must_use]
    pub fn needs_polling(&self) -> bool {
        self.members.size() > 1
    }

    /// Has the contexts report the owner's `cookie` when something arrives for the window.
    pub fn set_cookie(&mut self, cookie: u64) {
        if let Some(endpoint) = &mut self.packets.endpoint {
            endpoint.set_cookie(cookie);
        }
        self.packets.host.set_cookie(cookie);
    }

    /// Whether nothing waits to be sent, recycled or, in a failed window, ended.
    #[inline]
    pub(crate) fn is_at_rest(&self) -> bool {
        self.peers.are_idle() && self.taken.is_empty() && self.broken == self.ended
    }

    /// Whether the window need not be polled until something arrives for it by messages or RDMA.
    fn awaits_only_contact(&self) -> bool {
        self.is_at_rest()
            && !self.am.awaits_answers()
            && self.arrivals.is_empty()
            && self.packets.are_idle()
    }

    /// Whether only a message can bring this window work: it has no node-mates and no RDMA, and
    /// nothing waits to be sent.
    #[inline]
    #[must_use]
    pub fn waits_for_messages(&self) -> bool {
        !self.has_mates() && self.is_at_rest() && self.endpoint().is_none()
    }

    /// Whether no operation of this window moves until a message or an RDMA event has arrived for
    /// it: nothing waits to be sent, and none is in flight to a node-mate.
    #[inline]
    #[must_use]
    pub fn awaits_contact(&self) -> bool {
        self.awaits_only_contact() && !self.shm.has_operations()
    }

    /// Whether no operation of this window moves until a message has arrived for it, after
    /// [`only_sends`](Self::only_sends) was all there was to do. If so, node-mates ring from now on
    /// if they want anything.
    #[inline]
    pub fn rests(&mut self) -> bool {
        self.is_at_rest() && (!self.has_mates() || self.shm.is_armed() || self.shm.arm())
    }

    /// As [`Members::has_mates`].
    #[inline]
    #[must_use]
    pub fn has_mates(&self) -> bool {
        self.members.has_mates()
    }

    /// As [`ShmWindow::is_armed`].
    #[must_use]
    pub fn is_armed(&self) -> bool {
        self.has_mates() && self.shm.is_armed() && self.awaits_only_contact()
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

    /// Adds the shape of an operation to `rank` that is about to be issued. The shape lives until
    /// the operation ends.
    pub fn add_shape(&mut self, rank: Rank, shape: Shape) -> Shaped {
        match self.members.shm_rank(rank) {
            Some(_) => self.shm.add_shape(shape),
            None => self.shapes.add(shape),
        }
    }

    /// Takes back the shape of an operation to `rank` that will never be posted.
    pub fn take_shape(&mut self, rank: Rank, shaped: Shaped) -> Shape {
        match self.members.shm_rank(rank) {
            Some(_) => self.shm.take_shape(shaped),
            None => self.shapes.take(shaped),
        }
    }

    /// Names the transports of this window for the log.
    #[must_use]
    pub fn describe(&mut self) -> String {
        let (count, size, me) = (self.members.count(), self.members.size(), self.members.me());
        let remote = match self.endpoint() {
            None => "messages".into(),
            Some(endpoint) => format!("verbs on {}", endpoint.describe()),
        };
        if (0..size).all(|rank| rank == me || self.members.shm_rank(rank).is_none()) {
            remote
        } else {
            format!("{} for {count} of them, {remote} for the others", self.shm.describe())
        }
    }

    // The end.

    /// Starts a nonblocking agreement of all processes with this process's proposal.
    pub fn propose(&mut self, proposal: Proposal) {
        self.packets.host.propose(proposal);
    }

    /// The highest proposal, once all processes have proposed. In a failed window, some may never
    /// do that: after a time, [`Proposal::Abandoned`].
    pub fn decision(&mut self) -> Option<Proposal> {
        let decided = if self.has_gathered() { self.packets.host.decision() } else { None };
        match decided {
            None if self.ended => self.abandon_agreement(),
            decided => decided,
        }
    }

    /// Whether all messages of this process have arrived. Requests the missing acknowledgements
    /// from the peers.
    pub fn is_quiet(&mut self) -> bool {
        self.drive_peers(true);
        let is_quiet = self.am.is_quiet(&mut self.packets);
        self.peers.activate_all();
        is_quiet && self.endpoint().is_none_or(Endpoint::is_quiet)
    }

    /// As [`Protocol::drain`]. In a window that works, everything sent must also be complete.
    pub fn drain(&mut self) -> bool {
        let drained = self.am.drain(&mut self.packets);
        self.peers.activate_all();
        drained && (self.broken || self.packets.is_quiet())
    }

    /// Frees local resources, after [`drain`](Self::drain).
    pub fn release(self) {
        let Packets { mut host, endpoint, .. } = self.packets;
        if let Some(mut endpoint) = endpoint {
            endpoint.end();
        }
        host.release();
        self.am.release();
        self.shm.release();
    }
}
