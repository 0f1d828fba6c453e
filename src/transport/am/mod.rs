//! Active messages: operations, signals and accesses to lock words that the target's process
//! carries out when it receives them.
//!
//! | module | what it does |
//! |---|---|
//! | [`wire`] | the format of packets and records |
//! | [`channel`] | the interface through which a window sends packets |
//! | [`target`] | checks and applies records; the interface to the memory and words they access |
//! | `origin` | operations of this process: cuts them into records, handles the responses |
//! | `peer` | the state of one peer: credits, acknowledgements, order |
//! | [`context`] | the state that all windows of the process share: dispatches what arrives |
//! | [`window_channel`] | a window's part of the context |
//! | `bundle` | packets of several windows to one process, in one message |
//! | [`carrier`] | the interface through which the context reaches the host |
//! | `collective` | agreements and allgathers of a window's processes |
//!
//! Small puts and accumulates are copied into packets, several per packet, so they are locally
//! complete at once. A long put or get of one run on each side uses the rendezvous protocol: a
//! record announces a message from and into the application's memory. Other layouts are sent as
//! runs with a stride, never as datatypes.
//!
//! All queues are bounded. An operation is refused ([`Posted::NoResource`]) while [`CREDITS`]
//! packets are in flight to its target, or the channel is busy. Each reply answers a request, so
//! the same limit bounds the replies.
//!
//! [`Posted::NoResource`]: crate::engine::Posted::NoResource

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use hashbrown::HashMap;

use crate::engine::slab::Slab;
use crate::engine::{Atomic, LockTicket, LockWord, NoResource, Rank, Stage, Ticket, Word};
use crate::transport::datatype::element::ForeignReduce;
use crate::transport::peers::PeerId;

use channel::{Channel, TransferId};
use origin::{InFlight, PendingReply, Transfer};
use peer::Peer;
use target::Target;
use wire::{ElementOp, Malformed, Record};

mod bundle;
pub mod carrier;
pub mod channel;
mod collective;
pub mod context;
mod origin;
mod peer;
pub mod target;
pub mod window_channel;
pub mod wire;

pub use peer::CREDITS;

/// The host glue's functions that the protocol calls.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Reduces elements of the host's datatypes.
    pub foreign_reduce: ForeignReduce,
    /// Extent and size in bytes of an element of a host datatype; `None` if the datatype does not
    /// support the reduction. Validates messages before anything is reduced.
    pub foreign: fn(ElementOp) -> Option<(u8, u8)>,
}

/// An operation of this process that its target has skipped: the memory is not attached there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "an operation accesses {len} bytes at address {disp:#x} of process {target} of the window, \
     which are not attached there"
)]
pub struct OutOfReach {
    /// Rank of the target.
    pub target: Rank,
    /// Address of the first byte.
    pub disp: u64,
    /// Bytes from there to the operation's last byte.
    pub len: u64,
}

static ANY_SKIPPED: AtomicBool = AtomicBool::new(false);

/// Whether a target has ever skipped an operation of this process, so that a window may have a
/// fault to report although none of its operations is in flight.
#[inline]
#[must_use]
pub fn any_skipped() -> bool {
    ANY_SKIPPED.load(Ordering::Relaxed)
}

/// Why a window fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// This process has refused a message of the peer. Nothing more of the peer can be trusted.
    Refused(Malformed),
    /// The peer reports that it cannot reach this process of the window any more.
    Lost(Rank),
}

impl From<Malformed> for Failure {
    fn from(reason: Malformed) -> Self {
        Failure::Refused(reason)
    }
}

/// The active messages of one window in one process.
#[derive(Debug)]
pub struct Protocol {
    settings: Settings,
    peers: Vec<Peer>,
    in_flight: Slab<InFlight>,
    pending_replies: Slab<PendingReply>,
    transfers: Slab<Transfer>,
    /// The lock word accesses without an answer: ticket and home.
    pending_atomics: HashMap<u32, Rank>,
    answers: VecDeque<(LockTicket, u64)>,
    finished: VecDeque<(Ticket, Stage)>,
    /// Operations that their targets have skipped. Reported before their completion.
    failed: VecDeque<Ticket>,
    /// Faults not yet reported to the application, one per target.
    faults: Vec<OutOfReach>,
    /// An aligned buffer for the host's reductions.
    scratch: Vec<u128>,
    /// A record other than one of an operation has arrived.
    has_news: bool,
}

impl Protocol {
    /// The protocol of a window without peers.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Protocol {
            settings,
            peers: Vec::new(),
            in_flight: Slab::new(),
            pending_replies: Slab::new(),
            transfers: Slab::new(),
            pending_atomics: HashMap::new(),
            answers: VecDeque::new(),
            finished: VecDeque::new(),
            failed: VecDeque::new(),
            faults: Vec::new(),
            scratch: Vec::new(),
            has_news: false,
        }
    }

    /// Adds a peer. Call this first for each peer, in the order of their numbers.
    pub fn add_peer(&mut self, id: PeerId) {
        debug_assert_eq!(id.at(), self.peers.len());
        self.peers.push(Peer::new(id));
    }

    // Calls of the engine.

    /// Raises a signal word of a peer. The target applies it after the earlier operations [FE-2].
    ///
    /// # Errors
    /// A record of an earlier operation is still to be written, or there is no room.
    pub fn signal(
        &mut self,
        channel: &mut impl Channel,
        to: PeerId,
        word: Word,
        value: u64,
    ) -> Result<(), NoResource> {
        let peer = &mut self.peers[to.at()];
        if peer.fragmented.is_some() || peer.room(channel, 0).is_none() {
            return Err(NoResource);
        }
        peer.request_packet().push(&Record::Signal(word, value));
        peer.flush(channel, false);
        if word != Word::Grant {
            peer.put_off_asking();
        }
        Ok(())
    }

    /// Has later operations to a peer take effect after all earlier ones [OR-1]. The target takes
    /// records in order. But the host moves the data of transfers at any time, so nothing may
    /// follow until they have arrived.
    ///
    /// # Errors
    /// A transfer is in flight, or an operation is not written completely.
    pub fn order(&mut self, to: PeerId) -> Result<(), NoResource> {
        let peer = &mut self.peers[to.at()];
        if peer.fragmented.is_some() || peer.transfers > 0 || peer.has_puts_on_the_way() {
            return Err(NoResource);
        }
        peer.ordered = peer.issued;
        Ok(())
    }

    /// Whether an operation that does not travel in a record overtakes none that it must follow. If
    /// not, asks the peer whether those are done.
    #[inline]
    pub fn is_free(&mut self, peer: PeerId) -> bool {
        self.peers[peer.at()].has_done_ordered()
    }

    /// The signal word that a peer has raised.
    #[inline]
    #[must_use]
    pub fn observe(&self, peer: PeerId, word: Word) -> u64 {
        self.peers[peer.at()].words.signals[word as usize]
    }

    /// Requests an access to a lock word of a peer.
    ///
    /// # Errors
    /// There is no room.
    pub fn access(
        &mut self,
        channel: &mut impl Channel,
        home: PeerId,
        (word, access): (LockWord, Atomic),
        ticket: LockTicket,
    ) -> Result<(), NoResource> {
        let peer = &mut self.peers[home.at()];
        peer.room(channel, 0).ok_or(NoResource)?;
        peer.request_packet().push(&Record::Access(word, access, ticket.0));
        self.pending_atomics.insert(ticket.0, home.rank);
        peer.flush(channel, false);
        Ok(())
    }

    /// Accesses a lock word of the pair of this process and a peer on another node. This process
    /// keeps the word.
    pub fn access_own(&mut self, peer: PeerId, word: LockWord, access: Atomic) -> u64 {
        let words = &mut self.peers[peer.at()].words;
        let place = match word {
            LockWord::Next { parity, .. } => &mut words.next[usize::from(parity & 1)],
            LockWord::Grant { .. } => &mut words.grant,
            _ => unreachable!("{word:?} lies in the segment"),
        };
        let old = *place;
        *place = access.applied_to(old);
        old
    }

    /// The next stage of completion of an operation.
    #[inline]
    pub fn next_finished(&mut self) -> Option<(Ticket, Stage)> {
        self.finished.pop_front()
    }

    /// Whether [`next_finished`](Self::next_finished) would return an operation.
    #[inline]
    #[must_use]
    pub fn has_finished(&self) -> bool {
        !self.finished.is_empty()
    }

    /// True, once, if something other than operations, replies and acknowledgements has arrived: an
    /// epoch, a lock or a notification may depend on it.
    #[inline]
    pub fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.has_news)
    }

    /// The next operation that its target has skipped.
    #[inline]
    pub fn next_failed(&mut self) -> Option<Ticket> {
        self.failed.pop_front()
    }

    /// The next answer to an access to a lock word.
    #[inline]
    pub fn next_answer(&mut self) -> Option<(LockTicket, u64)> {
        self.answers.pop_front()
    }

    /// Takes a fault not yet reported to the application: that of `target`, or the first one.
    /// Without a target, clears all faults.
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

    // Progress.

    /// Handles a completed rendezvous transfer of `bytes` bytes. Returns its peer, with an error if
    /// the transfer has failed or has the wrong length.
    pub fn transfer_done(
        &mut self,
        channel: &mut impl Channel,
        here: &mut impl Target,
        id: TransferId,
        bytes: usize,
    ) -> Option<(PeerId, Result<(), Malformed>)> {
        let key = self.transfers.key_at(id.0)?;
        let (at, done) = match self.transfers.take(key).expect("just found") {
            Transfer::Issued { op, at, len, tag } => {
                self.issued_done(channel, (op, at, len), tag, bytes)
            }
            Transfer::Served { peer, len, discarded: None, .. } if len != bytes => {
                (peer, Err(Malformed::Lengths))
            }
            Transfer::Served { peer, number, .. } => {
                self.served_op_done(here, peer, number);
                (peer, Ok(()))
            }
        };
        Some((self.peers[at].id, done))
    }

    /// Forgets a completed transfer of a window that has failed.
    pub fn forget_transfer(&mut self, id: TransferId) {
        if let Some(key) = self.transfers.key_at(id.0) {
            self.transfers.remove(key);
        }
    }

    /// Sends the waiting records and packets to a peer, as far as there is room. Returns whether a
    /// fragmented operation has advanced.
    #[inline]
    pub fn drive(&mut self, channel: &mut impl Channel, peer: PeerId) -> bool {
        let moved = self.write_fragments(channel, peer.at());
        self.peers[peer.at()].flush_or_ack(channel);
        moved
    }

    /// Whether [`drive`](Self::drive) has nothing to do for a peer.
    #[inline]
    #[must_use]
    pub fn is_idle(&self, peer: PeerId) -> bool {
        self.peers[peer.at()].is_idle()
    }

    /// Whether [`drive`](Self::drive) has anything to do for a peer after a packet of it.
    #[inline]
    #[must_use]
    pub fn has_work(&self, peer: PeerId) -> bool {
        self.peers[peer.at()].has_work()
    }

    /// Whether an access to a lock word has no answer yet.
    #[inline]
    #[must_use]
    pub fn awaits_answers(&self) -> bool {
        !self.pending_atomics.is_empty()
    }

    /// Whether all operations that were posted to a peer are done there.
    #[inline]
    #[must_use]
    pub fn is_done(&self, peer: PeerId) -> bool {
        let peer = &self.peers[peer.at()];
        peer.issued == peer.done && peer.fragmented.is_none()
    }

    // Failure, and the end.

    /// Tells a peer, once, that this process ignores its messages from now on: this process has
    /// refused one, or cannot reach process `lost`.
    #[cold]
    pub fn fail(&mut self, channel: &mut impl Channel, peer: PeerId, lost: Option<Rank>) {
        self.peers[peer.at()].fail(channel, lost);
    }

    /// Marks a peer as unreachable.
    #[cold]
    pub fn lose(&mut self, peer: PeerId) {
        self.peers[peer.at()].failed = true;
    }

    /// Whether all messages of this process have arrived. Requests the missing acknowledgements
    /// from the peers.
    pub fn is_quiet(&mut self, channel: &mut impl Channel) -> bool {
        let mut quiet = self.pending_atomics.is_empty();
        for peer in self.peers.iter_mut().filter(|peer| peer.contacted && !peer.failed) {
            if peer.is_idle() && peer.sent != peer.credited {
                peer.request_credits(channel);
            }
            quiet &= peer.is_quiet();
        }
        quiet
    }

    /// Sends a close to every contacted peer, once. Returns whether all of them have sent theirs:
    /// then no message between them and this process is in flight. Call after all processes of the
    /// window have agreed that they are [quiet](Self::is_quiet).
    pub fn drain(&mut self, channel: &mut impl Channel) -> bool {
        let mut drained = true;
        for peer in self.peers.iter_mut().filter(|peer| peer.contacted && !peer.failed) {
            if !peer.close_sent {
                peer.close_sent = true;
                peer.reply_packet(channel, 0).push(&Record::Close);
                peer.flush(channel, false);
            }
            drained &= peer.close_received;
        }
        drained
    }

    /// Ends the protocol, after [`drain`](Self::drain).
    pub fn release(self) {
        // A failed window leaves transfers behind, into whose buffers the host may still write.
        if self.transfers.len() > 0 {
            std::mem::forget(self.transfers);
        }
    }
}
