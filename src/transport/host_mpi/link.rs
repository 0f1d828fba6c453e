//! What this process knows of one peer that it reaches by messages.
//!
//! Each side counts what it has sent and what it has seen, and tells the other in the header of
//! every packet; all counts only rise.
//!
//! - *Credits.* A packet that carries something of the sender's own (an operation, a signal, an
//!   access to a lock word) is paid for. At most [`CREDITS`] of them may be under way: the host
//!   holds them at the target until that polls. Replies are free; there are as many as were asked
//!   for.
//! - *Operations* are numbered in the order of their records. Those that are done at the target are
//!   told by the highest number up to which all are; the sender says when it waits for that.
//! - *Signals* take effect after all operations before them are done [FE-2], so they cannot
//!   overtake. So do notifications, which are operations themselves.

use std::collections::VecDeque;

use super::courier::Courier;
use super::wire::{Header, Packet, Unattached};
use crate::engine::slab::Key;
use crate::engine::{Arrival, Op, Rank, Ticket, Word};
use crate::transport::datatype::Shape;

/// Packets under way at most that are paid for.
pub const CREDITS: u64 = 32;

/// Operations under way at most for which nothing but their end is awaited.
pub(super) const WAITING: usize = 4096;
/// Bytes of replies under way at most, and replies.
pub(super) const FETCHED: u64 = 256 * 1024;
pub(super) const PARTS: u32 = 1024;
/// Bulk messages under way at most that this process has asked for.
pub const BULKS: u32 = 8;

/// A packet that is filled or waits for a credit.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) packet: Packet,
    /// It is to be paid for.
    pub(super) counted: bool,
}

/// An operation that goes in pieces.
#[derive(Debug)]
pub(super) struct Feed {
    pub(super) op: Op,
    pub(super) ticket: Ticket,
    pub(super) shape: Option<Box<Shape>>,
    /// Bytes of data in the pieces so far.
    pub(super) at: u64,
    /// Its place among the flights, if something of it comes back or goes by itself.
    pub(super) flight: Option<u32>,
}

/// An operation that is complete when so many are done.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) number: u64,
    pub(super) ticket: Ticket,
    /// Its bulk messages, which must have left as well: until then the host reads the origin's
    /// buffer.
    pub(super) flight: Option<Key>,
}

/// What takes effect when the operations before it are done.
#[derive(Clone, Copy, Debug)]
pub(super) enum Held {
    /// A word rises.
    Signal(Word, u64),
    /// A counter of this process rises.
    Notify(u32),
    /// This process is told a tag.
    Tell(Arrival),
}

/// The words of a pair of processes that share no memory: those that this process owns.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Words {
    /// Written by the peer.
    pub(super) signals: [u64; 3],
    /// This process's node in the lock queue of the peer.
    pub(super) next: [u64; 2],
    pub(super) grant: u64,
}

/// One peer.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) peer: Rank,
    pub(super) words: Words,

    pub(super) out: Option<Outgoing>,
    /// Full packets that wait for a credit, oldest first.
    pub(super) queue: VecDeque<Outgoing>,
    /// Packets paid for: sent, and taken out by the peer.
    pub(super) sent: u64,
    pub(super) credited: u64,
    /// How many were sent when the peer was last asked for nothing else than how many it has taken.
    inquired: u64,
    /// Operations: numbered, done at the peer, and those of which the peer knows that they are
    /// waited for.
    pub(super) issued: u64,
    pub(super) done: u64,
    pub(super) asked: u64,
    /// Operations that are complete when so many are done.
    pub(super) waiting: VecDeque<Waiting>,
    pub(super) feed: Option<Feed>,
    /// A notification is about to be posted behind the operation that comes next: they leave
    /// together.
    pub(super) notified: bool,
    pub(super) bulks: u32,
    pub(super) parts: u32,
    pub(super) fetched: u64,

    /// The same for what the peer sends: packets taken out, and told.
    pub(super) taken: u64,
    pub(super) told_taken: u64,
    pub(super) seen: u64,
    pub(super) told_done: u64,
    /// The peer waits until so many are done.
    pub(super) wanted: u64,
    /// Operations of the peer that are not done, oldest first; true: done, but not the one before.
    pub(super) unfinished: VecDeque<(u64, bool)>,
    /// What waits for so many operations to be done.
    pub(super) held: VecDeque<(u64, Held)>,
    /// The peer is to be told what is done here, whatever else there is to say.
    pub(super) tell: bool,
    /// Which operations of the peer were not done. It leaves before any header says that they are
    /// over.
    unattached: Option<Packet>,

    /// In the list of links to be looked at.
    pub(super) listed: bool,
    /// Something was ever sent or received.
    pub(super) met: bool,
    pub(super) left: bool,
    pub(super) farewell: bool,
    /// A message of the peer was refused: nothing more is taken from it.
    pub(super) broken: bool,
}

impl Link {
    pub(super) fn new(peer: Rank) -> Self {
        Link {
            peer,
            words: Words::default(),
            out: None,
            queue: VecDeque::new(),
            sent: 0,
            credited: 0,
            inquired: 0,
            issued: 0,
            done: 0,
            asked: 0,
            waiting: VecDeque::new(),
            feed: None,
            notified: false,
            bulks: 0,
            parts: 0,
            fetched: 0,
            taken: 0,
            told_taken: 0,
            seen: 0,
            told_done: 0,
            wanted: 0,
            unfinished: VecDeque::new(),
            held: VecDeque::new(),
            tell: false,
            unattached: None,
            listed: false,
            met: false,
            left: false,
            farewell: false,
            broken: false,
        }
    }

    #[inline]
    fn has_credit(&self) -> bool {
        self.sent - self.credited < CREDITS
    }

    /// The peer's operations that are done: all up to this number.
    #[inline]
    pub(super) fn complete(&self) -> u64 {
        self.unfinished.front().map_or(self.seen, |(first, _)| first - 1)
    }

    /// Bytes of payload of one more record of this process's own that go without waiting; `None`:
    /// it would have to wait for a credit, or the courier is busy.
    #[inline]
    pub(super) fn room(&mut self, courier: &mut impl Courier, needed: usize) -> Option<usize> {
        if let Some(out) = &self.out {
            match out.packet.room() {
                Some(room) if room >= needed && self.queue.is_empty() => return Some(room),
                _ => self.flush(courier, false),
            }
        }
        if self.out.is_some() || !self.queue.is_empty() || !self.has_credit() || courier.is_busy() {
            return None;
        }
        let packet = courier.packet();
        let room = packet.room();
        self.out = Some(Outgoing { packet, counted: false });
        room
    }

    /// The packet being filled, for a record of this process's own. After [`room`](Self::room) had
    /// some.
    #[inline]
    pub(super) fn own(&mut self) -> &mut Packet {
        let out = self.out.as_mut().expect("there is room");
        out.counted = true;
        &mut out.packet
    }

    /// The packet being filled, for a reply with so much payload, which is never refused.
    #[inline]
    pub(super) fn reply(&mut self, courier: &mut impl Courier, payload: usize) -> &mut Packet {
        if self.out.as_ref().is_some_and(|out| out.packet.room().is_none_or(|room| room < payload))
        {
            self.flush(courier, false);
            // Without a credit it waits.
            self.queue.extend(self.out.take());
        }
        let out =
            self.out.get_or_insert_with(|| Outgoing { packet: courier.packet(), counted: false });
        &mut out.packet
    }

    /// Sends what there is, as far as credits allow. With `ask`, the peer is to tell when the
    /// operations so far are done.
    pub(super) fn flush(&mut self, courier: &mut impl Courier, ask: bool) {
        while let Some(first) = self.queue.front() {
            if first.counted && !self.has_credit() {
                return;
            }
            let first = self.queue.pop_front().expect("just looked at");
            self.send(courier, first, false);
        }
        let may = self
            .out
            .as_ref()
            .is_some_and(|out| !out.packet.is_empty() && (!out.counted || self.has_credit()));
        if may && let Some(out) = self.out.take() {
            let ack_wanted = ask && self.asked < self.issued;
            self.send(courier, out, ack_wanted);
        }
    }

    /// Notes that an operation of the peer was not done; the peer is told with the next packet.
    #[cold]
    pub(super) fn reject(&mut self, courier: &mut impl Courier, what: Unattached) {
        let packet = self.unattached.get_or_insert_with(|| courier.packet());
        packet.unattached(what);
        if packet.room().is_none() {
            self.send_unattached(courier);
        }
    }

    /// The peer must read it before it hears that those operations are over, so this packet says
    /// nothing of that.
    fn send_unattached(&mut self, courier: &mut impl Courier) {
        let Some(mut packet) = self.unattached.take() else { return };
        packet.seal(Header { taken: self.taken, done: self.told_done, ..Header::default() });
        self.told_taken = self.taken;
        self.met = true;
        courier.send(self.peer, packet);
    }

    fn send(&mut self, courier: &mut impl Courier, mut out: Outgoing, ack_wanted: bool) {
        self.send_unattached(courier);
        if ack_wanted {
            self.asked = self.issued;
        }
        let header =
            Header { ack_wanted, counted: out.counted, taken: self.taken, done: self.complete() };
        (self.told_taken, self.told_done) = (header.taken, header.done);
        self.tell = false;
        self.sent += u64::from(out.counted);
        self.met = true;
        out.packet.seal(header);
        courier.send(self.peer, out.packet);
    }

    /// Sends what there is; a packet of nothing but the header if there is nothing and the peer is
    /// to be asked or told.
    pub(super) fn flush_or_tell(&mut self, courier: &mut impl Courier) {
        let ask = self.waiting.back().is_some_and(|last| last.number > self.asked);
        self.flush(courier, ask);
        let owes = self.tell
            || self.unattached.is_some()
            || self.taken - self.told_taken >= CREDITS / 2
            || self.wanted > self.told_done && self.complete() > self.told_done;
        let asks = ask && self.asked < self.issued && self.out.is_none() && self.queue.is_empty();
        // Behind a farewell nothing comes: everybody was quiet then, so that what is still asked
        // for is known.
        if (owes || asks) && !self.farewell {
            let packet = courier.packet();
            self.send(courier, Outgoing { packet, counted: false }, asks);
        }
    }

    /// Asks the peer to tell what it has taken out, though nothing is waited for.
    pub(super) fn inquire(&mut self, courier: &mut impl Courier) {
        self.flush(courier, false);
        if self.out.is_none() && self.queue.is_empty() && self.inquired < self.sent {
            self.inquired = self.sent;
            let packet = courier.packet();
            self.send(courier, Outgoing { packet, counted: false }, true);
        }
    }

    /// Ends it: tells the peer, once, that nothing is taken from it any more, since a message was
    /// refused or a process was lost.
    #[cold]
    pub(super) fn end(&mut self, courier: &mut impl Courier, lost: Option<Rank>) {
        if !std::mem::replace(&mut self.broken, true) {
            let mut packet = courier.packet();
            match lost {
                Some(rank) => packet.lost(rank),
                None => packet.refusal(),
            }
            self.queue.clear();
            self.out = None;
            self.send(courier, Outgoing { packet, counted: false }, false);
        }
    }

    /// True if the next poll has nothing to do for it.
    pub(super) fn rests(&self) -> bool {
        self.out.is_none()
            && self.queue.is_empty()
            && self.feed.is_none()
            && !self.tell
            && self.unattached.is_none()
            && self.waiting.back().is_none_or(|last| last.number <= self.asked)
    }

    /// True if all that this process has sent has arrived, as the peer says.
    pub(super) fn is_quiet(&self) -> bool {
        self.rests()
            && self.waiting.is_empty()
            && self.parts == 0
            && self.bulks == 0
            && self.sent == self.credited
    }
}
