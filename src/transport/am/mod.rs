//! Active messages: operations, signals and accesses to lock words that the target's process does
//! when it receives them.
//!
//! | module | what it does |
//! |---|---|
//! | [`wire`] | the format of packets and records |
//! | [`channel`] | the interface to what carries the packets of a window |
//! | [`target`] | the interface to what records act on; checks and applies them |
//! | `origin` | operations of this process: cut into records, completed by responses |
//! | `peer` | the state of one peer: credits, acknowledgements, order |
//! | [`context`] | what all windows of the process share: dispatches what arrives |
//! | [`window_channel`] | a window's part of the context |
//! | [`carrier`] | the interface to what moves the context's packets: the host |
//! | [`collective`] | agreements and allgathers of a window's processes |
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

pub mod carrier;
pub mod channel;
pub mod collective;
pub mod context;
mod origin;
mod peer;
pub mod target;
pub mod window_channel;
pub mod wire;

pub use peer::CREDITS;

/// What the protocol needs of the host glue.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Reduces elements of the host's datatypes.
    pub foreign_reduce: ForeignReduce,
    /// Extent and size in bytes of an element of a host datatype, if it has this reduction. Checks
    /// what messages say before anything is reduced.
    pub foreign: fn(ElementOp) -> Option<(u8, u8)>,
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

/// Why a window fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A message of this peer is refused. Neither the rest of it nor later ones can be trusted.
    Refused(Malformed),
    /// A process of the window cannot be reached any more, as this peer has found out.
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
    /// The ticket and the home of each lock word access without an answer.
    pending_atomics: HashMap<u32, Rank>,
    answers: VecDeque<(LockTicket, u64)>,
    finished: VecDeque<(Ticket, Stage)>,
    /// Operations that were not done. Reported before their completion.
    failed: VecDeque<Ticket>,
    /// The faults that the application has not seen yet, one per target.
    faults: Vec<OutOfReach>,
    /// A buffer with aligned elements for the host's reductions.
    scratch: Vec<u128>,
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
        }
    }

    /// Adds the next peer. Call for each before anything else is said of it.
    pub fn add_peer(&mut self, id: PeerId) {
        debug_assert_eq!(
            id.at(),
            self.peers.len(),
            "peers are added in the order of their numbers"
        );
        self.peers.push(Peer::new(id));
    }

    // What the engine asks for.

    /// Raises a signal word of a peer. The target defers it until the operations before it are done
    /// [FE-2].
    ///
    /// # Errors
    /// Not all records of those operations have been written, or there is no room.
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

    /// The signal word that a peer has raised.
    #[inline]
    #[must_use]
    pub fn observe(&self, peer: PeerId, word: Word) -> u64 {
        self.peers[peer.at()].words.signals[word as usize]
    }

    /// Requests an access to a lock word of a peer.
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

    /// Accesses a lock word that this process keeps for its pair with a peer of another node.
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

    /// Whether [`next_finished`](Self::next_finished) has something.
    #[inline]
    #[must_use]
    pub fn has_finished(&self) -> bool {
        !self.finished.is_empty()
    }

    /// The next operation that was not done.
    #[inline]
    pub fn next_failed(&mut self) -> Option<Ticket> {
        self.failed.pop_front()
    }

    /// The next answer to an access to a lock word.
    #[inline]
    pub fn next_answer(&mut self) -> Option<(LockTicket, u64)> {
        self.answers.pop_front()
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

    // Progress.

    /// Handles a completed rendezvous transfer of `bytes` bytes. Returns its peer.
    ///
    /// # Errors
    /// The peer, and what is wrong with the transfer.
    pub fn transfer_done(
        &mut self,
        channel: &mut impl Channel,
        here: &mut impl Target,
        id: TransferId,
        bytes: usize,
    ) -> Result<Option<PeerId>, (PeerId, Malformed)> {
        let Some(key) = self.transfers.key_at(id.0) else { return Ok(None) };
        let transfer = self.transfers.take(key).expect("just found");
        let (at, done) = match transfer {
            Transfer::Issued { op, at, len, tag } => {
                self.issued_done(channel, (op, at, len), tag, bytes)
            }
            Transfer::Served { peer, len, .. } if len != bytes => (peer, Err(Malformed::Lengths)),
            Transfer::Served { peer, number, .. } | Transfer::Discarded { peer, number, .. } => {
                self.served_op_done(here, peer, number);
                (peer, Ok(()))
            }
        };
        let id = self.peers[at].id;
        done.map(|()| Some(id)).map_err(|reason| (id, reason))
    }

    /// Forgets a completed transfer of a window that has failed.
    pub fn forget_transfer(&mut self, id: TransferId) {
        if let Some(key) = self.transfers.key_at(id.0) {
            self.transfers.remove(key);
        }
    }

    /// Sends what is waiting for a peer, as far as there is room. True if a fragmented operation
    /// went on.
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

    /// Whether some access to a lock word has no answer yet.
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

    /// Tells a peer, once, that this process ignores its messages from now on: one was refused, or
    /// process `lost` cannot be reached.
    #[cold]
    pub fn fail(&mut self, channel: &mut impl Channel, peer: PeerId, lost: Option<Rank>) {
        self.peers[peer.at()].fail(channel, lost);
    }

    /// A peer cannot be reached any more.
    #[cold]
    pub fn lose(&mut self, peer: PeerId) {
        self.peers[peer.at()].failed = true;
    }

    /// Whether all messages of this process have arrived. Asks the peers for missing
    /// acknowledgements.
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

    /// Sends a close to every contacted peer, once. True when all of them have sent theirs: then no
    /// message of this window is in flight anywhere. Call after an agreement of processes that were
    /// all [quiet](Self::is_quiet).
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
        // In a failed window the host may still write into the buffers of transfers.
        std::mem::forget(self.transfers);
    }
}
