//! The state of one peer that is reached by active messages.
//!
//! Each side counts what it has sent and received and reports the counts in the header of every
//! packet. Counts only rise.
//!
//! - *Credits.* A packet with an operation, a signal or a lock word access costs a credit. At most
//!   [`CREDITS`] such packets are in flight, since the host buffers them until the target polls.
//!   Replies cost none: their number is bounded by the requests.
//! - *Operations* are numbered in the order of their records. The target acknowledges the highest
//!   number up to which all are done. The origin requests an acknowledgement when it needs one.
//! - *Signals* take effect after all operations before them [FE-2]. So do notifications, which are
//!   operations themselves.

use std::collections::VecDeque;

use super::channel::Channel;
use super::wire::{Header, Malformed, Packet, Record, Unattached};
use crate::engine::slab::Key;
use crate::engine::{Arrival, Op, Rank, Ticket, Word};
use crate::transport::datatype::Shape;
use crate::transport::peers::PeerId;

/// Maximum of packets in flight to one peer that cost a credit.
pub const CREDITS: u64 = 32;

/// Polls before the acknowledgement of operations that a signal has reported is requested. A packet
/// of the peer usually brings it sooner.
const ASK_DELAY_POLLS: u32 = 32;

/// Maximum of unacknowledged operations to one peer.
pub(super) const MAX_UNACKED: usize = 4096;
/// Maximum of outstanding replies of one peer: their bytes, and their number.
pub(super) const MAX_REPLY_BYTES: u64 = 256 * 1024;
pub(super) const MAX_REPLIES: u32 = 1024;
/// Maximum of rendezvous transfers that this process may have in flight with one peer.
pub(super) const MAX_TRANSFERS: u32 = 8;
/// Maximum of rendezvous transfers that a peer has not acknowledged. It serves as many. They may be
/// more than those in flight: the host copies short ones, so that they are done here before the
/// peer has begun them, and a peer may hear of the end of a get after this process.
pub(super) const MAX_TRANSFERS_SERVED: usize = 2 * MAX_TRANSFERS as usize;

/// A packet that is being filled, or waits for a credit.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) packet: Packet,
    /// It costs a credit.
    pub(super) counted: bool,
}

/// An operation that is being cut into records.
#[derive(Debug)]
pub(super) struct FragmentedOp {
    pub(super) op: Op,
    pub(super) ticket: Ticket,
    pub(super) shape: Option<Box<Shape>>,
    /// Bytes of its data in the records so far.
    pub(super) at: u64,
    /// Its key among the operations in flight, if it awaits replies or transfers.
    pub(super) in_flight: Option<Key>,
}

/// An operation that is complete when the peer has acknowledged this number.
#[derive(Debug)]
pub(super) struct Unacked {
    pub(super) number: u64,
    pub(super) ticket: Ticket,
    /// Its transfers, which must be complete as well: until then the host reads the origin buffer.
    pub(super) in_flight: Option<Key>,
}

/// An effect that waits for earlier operations.
#[derive(Clone, Copy, Debug)]
pub(super) enum Deferred {
    Signal(Word, u64),
    Notify(u32),
    NotifyTagged(Arrival),
}

/// The words that this process keeps for a peer with which it shares no memory.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PairWords {
    /// Written by the peer.
    pub(super) signals: [u64; 3],
    /// This process's node in the lock queue of the peer.
    pub(super) next: [u64; 2],
    pub(super) grant: u64,
}

#[derive(Debug, Default)]
pub(super) struct Peer {
    pub(super) id: PeerId,
    pub(super) words: PairWords,

    pub(super) out: Option<Outgoing>,
    /// Full packets that wait for a credit, oldest first.
    pub(super) queue: VecDeque<Outgoing>,
    /// Packets that cost a credit: sent, and received by the peer.
    pub(super) sent: u64,
    pub(super) credited: u64,
    /// `sent` when this process last sent an empty packet to learn `credited`.
    credits_requested: u64,
    /// Numbers of the last operation issued, acknowledged, and covered by an acknowledgement
    /// request.
    pub(super) issued: u64,
    pub(super) done: u64,
    pub(super) ack_requested: u64,
    /// Operations up to this one come before those that do not travel in records [OR-1].
    pub(super) ordered: u64,
    /// Such an operation, or a transfer, waits for the acknowledgement of these.
    awaited: u64,
    /// A signal has reported the operations up to this one, so nobody waits for their
    /// acknowledgement. It is requested after `ask_delay` more polls.
    reported_by_signal: u64,
    ask_delay: u32,
    pub(super) unacked: VecDeque<Unacked>,
    /// Transfers that the peer has not acknowledged: the numbers of their operations and, for puts,
    /// their tags. Such a tag is free when the peer has received the data.
    pub(super) announced: VecDeque<(u64, Option<u32>)>,
    pub(super) fragmented: Option<FragmentedOp>,
    /// Rendezvous transfers in flight, outstanding replies, and the bytes of those.
    pub(super) transfers: u32,
    pub(super) replies: u32,
    pub(super) reply_bytes: u64,

    /// Packets of the peer that cost a credit: received, and reported to the peer.
    pub(super) taken: u64,
    pub(super) taken_reported: u64,
    /// Operations of the peer: received, and reported as done.
    pub(super) received: u64,
    pub(super) done_reported: u64,
    /// The peer has requested an acknowledgement of its operations up to this one.
    pub(super) ack_wanted_up_to: u64,
    /// Operations of the peer from the first one that is not done on, and whether each is done.
    pub(super) unfinished: VecDeque<(u64, bool)>,
    /// Deferred effects, each with the number of the operation for which it waits.
    pub(super) deferred: VecDeque<(u64, Deferred)>,
    /// Send the peer an acknowledgement, if necessary in an empty packet.
    pub(super) ack_due: bool,
    /// Reports of skipped operations. Sent before a header acknowledges these.
    unattached: Option<Packet>,

    /// This process has sent the peer a message, or received one.
    pub(super) contacted: bool,
    pub(super) close_received: bool,
    pub(super) close_sent: bool,
    /// Its messages are ignored: one was refused, or the window has failed.
    pub(super) failed: bool,
}

impl Peer {
    pub(super) fn new(id: PeerId) -> Self {
        Peer { id, ..Peer::default() }
    }

    #[inline]
    fn has_credit(&self) -> bool {
        self.sent - self.credited < CREDITS
    }

    /// The number up to which all operations of the peer are done.
    #[inline]
    pub(super) fn complete(&self) -> u64 {
        self.unfinished.front().map_or(self.received, |(first, _)| first - 1)
    }

    /// Whether all received operations and deferred effects have been applied.
    #[inline]
    pub(super) fn is_caught_up(&self) -> bool {
        self.unfinished.is_empty() && self.deferred.is_empty()
    }

    /// Raises a word that the peer writes.
    #[inline]
    pub(super) fn raise(&mut self, word: Word, value: u64) {
        let place = &mut self.words.signals[word as usize];
        *place = value.max(*place);
    }

    /// Records the peer's report of how many packets it has received. The number only rises.
    pub(super) fn credit(&mut self, taken: u32) -> Result<(), Malformed> {
        let more = u64::from(taken.wrapping_sub(self.credited as u32));
        if more > self.sent - self.credited {
            return Err(Malformed::NotSent);
        }
        self.credited += more;
        Ok(())
    }

    /// Bytes of payload for which the packet being filled has room in one more record. Starts a new
    /// packet if there are less than `needed`. `None` without a credit, or if the channel is busy.
    #[inline]
    pub(super) fn room(&mut self, channel: &mut impl Channel, needed: usize) -> Option<usize> {
        if let Some(out) = &self.out {
            match out.packet.room() {
                Some(room) if room >= needed && self.queue.is_empty() => return Some(room),
                _ => self.flush(channel, false),
            }
        }
        if self.out.is_some() || !self.queue.is_empty() || !self.has_credit() || channel.is_busy() {
            return None;
        }
        let packet = channel.empty_packet();
        let room = packet.room();
        self.out = Some(Outgoing { packet, counted: false });
        room
    }

    /// The packet for a record that costs a credit. Call only after [`room`](Self::room) has found
    /// room.
    #[inline]
    pub(super) fn request_packet(&mut self) -> &mut Packet {
        let out = self.out.as_mut().expect("there is room");
        out.counted = true;
        &mut out.packet
    }

    /// The packet for a reply with `payload` bytes. Replies are never refused.
    #[inline]
    pub(super) fn reply_packet(
        &mut self,
        channel: &mut impl Channel,
        payload: usize,
    ) -> &mut Packet {
        if self.out.as_ref().is_some_and(|out| out.packet.room().is_none_or(|room| room < payload))
        {
            self.flush(channel, false);
            // Without a credit, the packet waits in the queue.
            self.queue.extend(self.out.take());
        }
        let new = || Outgoing { packet: channel.empty_packet(), counted: false };
        &mut self.out.get_or_insert_with(new).packet
    }

    /// Sends the waiting packets, as far as credits allow. With `ask`, requests an acknowledgement
    /// of all operations so far.
    pub(super) fn flush(&mut self, channel: &mut impl Channel, ask: bool) {
        while let Some(first) = self.queue.front() {
            if first.counted && !self.has_credit() {
                return;
            }
            let first = self.queue.pop_front().expect("just looked at");
            self.send(channel, first, false);
        }
        let may_leave =
            |out: &Outgoing| !out.packet.is_empty() && (!out.counted || self.has_credit());
        if self.out.as_ref().is_some_and(may_leave)
            && let Some(out) = self.out.take()
        {
            let ack_wanted = ask && self.ack_requested < self.issued;
            self.send(channel, out, ack_wanted);
        }
    }

    /// Reports to the peer that this process has skipped one of its operations.
    #[cold]
    pub(super) fn reject(&mut self, channel: &mut impl Channel, what: Unattached) {
        let packet = self.unattached.get_or_insert_with(|| channel.empty_packet());
        packet.push(&Record::Unattached(what));
        if packet.room().is_none() {
            self.send_unattached(channel);
        }
    }

    /// Sends the reports of skipped operations. The header must not acknowledge these yet, since
    /// the peer handles a header before the records behind it.
    fn send_unattached(&mut self, channel: &mut impl Channel) {
        let Some(mut packet) = self.unattached.take() else { return };
        let (taken, done) = (self.taken as u32, self.done_reported as u32);
        packet.seal(Header { taken, done, ..Header::default() });
        self.taken_reported = self.taken;
        self.contacted = true;
        channel.send(self.id, packet);
    }

    fn send(&mut self, channel: &mut impl Channel, mut out: Outgoing, ack_wanted: bool) {
        self.send_unattached(channel);
        if ack_wanted {
            self.ack_requested = self.issued;
        }
        (self.taken_reported, self.done_reported) = (self.taken, self.complete());
        let (taken, done) = (self.taken_reported as u32, self.done_reported as u32);
        let header = Header { ack_wanted, counted: out.counted, taken, done };
        self.ack_due = false;
        self.sent += u64::from(out.counted);
        self.contacted = true;
        out.packet.seal(header);
        channel.send(self.id, out.packet);
    }

    fn send_empty(&mut self, channel: &mut impl Channel, ack_wanted: bool) {
        let packet = channel.empty_packet();
        self.send(channel, Outgoing { packet, counted: false }, ack_wanted);
    }

    /// Whether all operations are done that an order names. If not, has the next poll request an
    /// acknowledgement.
    #[inline]
    pub(super) fn has_done_ordered(&mut self) -> bool {
        if self.ordered > self.done {
            self.awaited = self.ordered;
        }
        self.ordered <= self.done
    }

    /// Whether the peer serves one more transfer. Has the next poll request an acknowledgement of
    /// the earliest if there are many.
    pub(super) fn may_transfer(&mut self) -> bool {
        if self.announced.len() >= MAX_TRANSFERS as usize
            && let Some((first, _)) = self.announced.front()
        {
            self.awaited = self.awaited.max(*first);
        }
        self.transfers < MAX_TRANSFERS && self.announced.len() < MAX_TRANSFERS_SERVED
    }

    /// Whether put transfers have not all arrived.
    pub(super) fn has_puts_on_the_way(&self) -> bool {
        self.announced.iter().any(|(_, tag)| tag.is_some())
    }

    /// Delays the acknowledgement request of the operations so far. A signal has reported them.
    pub(super) fn put_off_asking(&mut self) {
        (self.reported_by_signal, self.ask_delay) = (self.issued, ASK_DELAY_POLLS);
    }

    /// Whether this poll requests an acknowledgement.
    fn is_time_to_ask(&mut self) -> bool {
        if self.awaited > self.ack_requested {
            return true;
        }
        let Some(last) = self.unacked.back().filter(|last| last.number > self.ack_requested) else {
            return false;
        };
        if last.number > self.reported_by_signal || self.ask_delay == 0 {
            return true;
        }
        self.ask_delay -= 1;
        false
    }

    /// Whether the peer waits for an acknowledgement, or soon for credits.
    #[inline]
    fn owes(&self) -> bool {
        self.ack_due
            || self.unattached.is_some()
            || self.taken - self.taken_reported >= CREDITS / 2
            || self.ack_wanted_up_to > self.done_reported && self.complete() > self.done_reported
    }

    /// Whether the next poll has anything to do for this peer, after a packet of it.
    #[inline]
    pub(super) fn has_work(&self) -> bool {
        !self.is_idle() || self.owes()
    }

    /// Sends the waiting packets. If there are none, and an acknowledgement is due to the peer or
    /// needed from it, sends an empty packet.
    pub(super) fn flush_or_ack(&mut self, channel: &mut impl Channel) {
        let ask = self.is_time_to_ask();
        self.flush(channel, ask);
        let owes = self.owes();
        let asks =
            ask && self.ack_requested < self.issued && self.out.is_none() && self.queue.is_empty();
        // Nothing may follow a close. All processes were quiet before it, so nothing is missing.
        if (owes || asks) && !self.close_sent {
            self.send_empty(channel, asks);
        }
    }

    /// Asks the peer how many packets it has received, even if no operation awaits an
    /// acknowledgement.
    pub(super) fn request_credits(&mut self, channel: &mut impl Channel) {
        self.flush(channel, false);
        if self.out.is_none() && self.queue.is_empty() && self.credits_requested < self.sent {
            self.credits_requested = self.sent;
            self.send_empty(channel, true);
        }
    }

    /// As [`Protocol::fail`](super::Protocol::fail).
    #[cold]
    pub(super) fn fail(&mut self, channel: &mut impl Channel, lost: Option<Rank>) {
        if !std::mem::replace(&mut self.failed, true) {
            let mut packet = channel.empty_packet();
            packet.push(&lost.map_or(Record::Refusal, Record::Lost));
            self.queue.clear();
            self.out = None;
            self.send(channel, Outgoing { packet, counted: false }, false);
        }
    }

    /// Whether this peer needs no work from the next poll.
    pub(super) fn is_idle(&self) -> bool {
        self.out.is_none()
            && self.queue.is_empty()
            && self.fragmented.is_none()
            && !self.ack_due
            && self.unattached.is_none()
            && self.unacked.back().is_none_or(|last| last.number <= self.ack_requested)
            && self.awaited <= self.ack_requested
    }

    /// Whether the peer has confirmed that all messages of this process have arrived.
    pub(super) fn is_quiet(&self) -> bool {
        self.is_idle()
            && self.unacked.is_empty()
            && self.replies == 0
            && self.transfers == 0
            && self.sent == self.credited
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_pass_the_end_of_their_low_halves() {
        let full = 1u64 << 32;
        let mut peer = Peer { sent: full + 5, credited: full - 3, ..Peer::default() };
        assert_eq!(peer.credit(u32::MAX - 1), Ok(()));
        assert_eq!(peer.credited, full - 2);
        assert_eq!(peer.credit(4), Ok(()));
        assert_eq!(peer.credited, full + 4);
        assert_eq!(peer.credit(6), Err(Malformed::NotSent), "more than was sent");
        assert_eq!(peer.credit(3), Err(Malformed::NotSent), "less than it has said before");
    }
}
