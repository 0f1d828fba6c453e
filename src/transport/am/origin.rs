//! The origin side: cuts operations of this process into records and handles the responses.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use super::channel::{Channel, TransferEnd, TransferId, TransferKind, TransferTag};
use super::peer::{FragmentedOp, MAX_REPLIES, MAX_REPLY_BYTES, MAX_UNACKED, Unacked};
use super::wire::{
    ElementOp, MAX_TRANSFER, Malformed, OpRef, PAYLOAD, Packet, Place, RECORD_OVERHEAD, Record,
    Unattached,
};
use super::{ANY_SKIPPED, OutOfReach, Protocol};
use crate::engine::slab::Key;
use crate::engine::{Addr, Notification, NotificationKind, Op, OpKind, Posted, Stage, Ticket};
use crate::transport::copy;
use crate::transport::datatype::element::reduction;
use crate::transport::datatype::{self, Shape, Shapes, whole};
use crate::transport::peers::PeerId;

/// Bytes from which a put or get between single runs uses the rendezvous protocol.
const RENDEZVOUS_THRESHOLD: u64 = 16 * 1024;
/// Bytes from which an operation is sent at once if nothing else is in flight to its target.
/// Shorter operations share a packet, which is sent when it is full or when the process polls: a
/// message for each would cost more than the operation.
const EAGER_FLUSH_THRESHOLD: u64 = 1024;
/// Maximum of rendezvous transfers in flight in a window.
const MAX_TRANSFERS_PER_WINDOW: usize = 64;
/// A packet with less room for payload than this is full, unless the rest of the operation fits.
const MIN_FRAGMENT: u64 = 512;
/// An empty list of unacknowledged operations with more capacity than this frees its memory.
const KEPT_CAPACITY: usize = 256;

/// An operation that awaits replies or transfers.
#[derive(Debug)]
pub(super) struct InFlight {
    ticket: Ticket,
    /// Index of the target among the window's peers.
    peer: usize,
    op: Op,
    shape: Option<Box<Shape>>,
    /// Outstanding replies and transfers.
    awaited: u32,
    all_written: bool,
    acknowledged: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct PendingReply {
    op: Key,
    /// Offset and length, in bytes, of the reply's data within those of the operation.
    at: u64,
    len: u32,
}

/// A rendezvous transfer of `len` bytes in flight.
#[derive(Debug)]
pub(super) enum Transfer {
    /// Of an operation of this process, from byte `at` of its data on.
    Issued { op: Key, at: u64, len: usize, tag: TransferTag },
    /// Of operation `number` of the peer with index `peer`. The data of a put to memory that is not
    /// attached go to `discarded`.
    Served { peer: usize, number: u64, len: usize, discarded: Option<Vec<u8>> },
}

/// Whether the operation returns data.
fn has_result(op: &Op) -> bool {
    !matches!(op.kind, OpKind::Put | OpKind::Accumulate)
}

impl Protocol {
    /// Posts an operation. Removes its shape from `shapes`, unless the operation is refused.
    #[inline]
    pub fn post(
        &mut self,
        channel: &mut impl Channel,
        to: PeerId,
        op: &Op,
        shapes: &mut Shapes,
        ticket: Ticket,
    ) -> Posted {
        let index = to.at();
        let peer = &mut self.peers[index];
        if peer.fragmented.is_some() || peer.unacked.len() >= MAX_UNACKED {
            return Posted::NoResource;
        }
        if op.shape.is_none() && op.len < EAGER_FLUSH_THRESHOLD && op.kind == OpKind::Put {
            if op.len == 0 && op.notification.is_none() {
                return Posted::Complete;
            }
            // A put and its notification share the packet.
            let behind = if op.notification.is_some() { RECORD_OVERHEAD } else { 0 };
            if peer.room(channel, op.len as usize + behind).is_none() {
                return Posted::NoResource;
            }
            if op.len > 0 {
                let to = peer.request_packet().put(Place::flat(op.disp, op.len));
                // SAFETY: `to` has `op.len` bytes, in a packet of this library. The origin buffer
                // is valid for as many until the operation is complete [EP-8].
                unsafe { copy(op.origin.0 as *const u8, to.as_mut_ptr(), op.len as usize) };
                peer.issued += 1;
            }
            if let Some(notification) = op.notification {
                self.write_notification(channel, index, notification);
            }
            let peer = &mut self.peers[index];
            peer.unacked.push_back(Unacked { number: peer.issued, ticket, in_flight: None });
            return Posted::Local;
        }
        self.post_long(channel, index, op, shapes, ticket)
    }

    /// Appends a notification behind its data, in the same packet if there is room. The packet
    /// leaves as soon as nothing else is in flight, since the target may be waiting for it. False
    /// if there is no resource.
    fn write_notification(
        &mut self,
        channel: &mut impl Channel,
        index: usize,
        notification: Notification,
    ) -> bool {
        let peer = &mut self.peers[index];
        if peer.room(channel, 0).is_none() {
            return false;
        }
        match notification.kind() {
            NotificationKind::Counter(counter) => {
                peer.request_packet().push(&Record::Notify(counter))
            }
            NotificationKind::Tag(tag) => peer.request_packet().push(&Record::NotifyTagged(tag)),
        }
        peer.issued += 1;
        if peer.sent == peer.credited || peer.transfers > 0 {
            peer.flush(channel, true);
        }
        true
    }

    #[inline(never)]
    fn post_long(
        &mut self,
        channel: &mut impl Channel,
        index: usize,
        op: &Op,
        shapes: &mut Shapes,
        ticket: Ticket,
    ) -> Posted {
        if op.len == 0 && op.notification.is_none() {
            // Without a look for room, which may begin a packet that nobody completes.
            op.shape.map(|shaped| shapes.take(shaped));
            return Posted::Complete;
        }
        let peer = &mut self.peers[index];
        // The processor of the target may execute a load before earlier stores are visible.
        let waits = op.kind == OpKind::Get && !peer.has_done_ordered();
        // Without room, refuse: the number of accepted operations that wait must stay bounded.
        if waits || peer.room(channel, 0).is_none() {
            return Posted::NoResource;
        }
        let mut op = *op;
        let mut shape = op.shape.take().map(|shaped| Box::new(shapes.take(shaped)));
        if let Some(single) = shape.as_deref().and_then(|shape| shape.as_single_run(&op)) {
            (op, shape) = (single, None);
        }
        self.peers[index].fragmented =
            Some(FragmentedOp { op, ticket, shape, at: 0, in_flight: None });
        let reported = self.finished.len();
        self.write_fragments(channel, index);
        let peer = &mut self.peers[index];
        let is_long = op.len >= EAGER_FLUSH_THRESHOLD || has_result(&op);
        if is_long && peer.sent == peer.credited {
            peer.flush_or_ack(channel);
        }
        // Return local completion instead of reporting it.
        if self.finished.len() > reported && self.finished.back() == Some(&(ticket, Stage::Local)) {
            self.finished.pop_back();
            return Posted::Local;
        }
        Posted::Pending
    }

    /// Writes records of the peer's fragmented operation while there is room. The notification
    /// comes last. Returns whether any record was written.
    pub(super) fn write_fragments(&mut self, channel: &mut impl Channel, index: usize) -> bool {
        let Some(mut op) = self.peers[index].fragmented.take() else { return false };
        let (first, len) = (op.at, op.op.len);
        let is_run = op.shape.is_none() && matches!(op.op.kind, OpKind::Put | OpKind::Get);
        while op.at < len {
            let written = if is_run && len - op.at >= RENDEZVOUS_THRESHOLD {
                self.start_transfer(channel, index, &mut op)
            } else {
                self.write_fragment(channel, index, &mut op)
            };
            if !written {
                break;
            }
        }
        let notification = op.op.notification;
        let complete = op.at == len
            && notification.is_none_or(|behind| self.write_notification(channel, index, behind));
        let moved = op.at != first || complete;
        if complete {
            self.all_written(index, op);
        } else {
            self.peers[index].fragmented = Some(op);
        }
        moved
    }

    /// All records of an operation have been written.
    fn all_written(&mut self, index: usize, fragmented: FragmentedOp) {
        let FragmentedOp { op, ticket, in_flight, shape, .. } = fragmented;
        let peer = &mut self.peers[index];
        if !has_result(&op) || op.notification.is_some() {
            peer.unacked.push_back(Unacked { number: peer.issued, ticket, in_flight });
        }
        let Some(key) = in_flight else {
            // All data were copied into packets.
            return self.finished.push_back((ticket, Stage::Local));
        };
        let in_flight = &mut self.in_flight[key];
        in_flight.all_written = true;
        in_flight.shape = shape;
        if in_flight.awaited == 0 {
            self.all_arrived(key);
        }
    }

    /// All replies and transfers of an operation have arrived.
    fn all_arrived(&mut self, key: Key) {
        let op = self.in_flight.take(key).expect("an operation in flight");
        // The acknowledgement completes a put or a notification remotely. It may arrive before the
        // last reply or transfer.
        let awaits_ack = !has_result(&op.op) || op.op.notification.is_some();
        let is_remote = op.acknowledged || !awaits_ack;
        let stage = if is_remote { Stage::Remote } else { Stage::Local };
        self.finished.push_back((op.ticket, stage));
    }

    /// Counts one more reply or transfer that the operation awaits.
    fn await_response(&mut self, index: usize, fragmented: &mut FragmentedOp) -> Key {
        let key = *fragmented.in_flight.get_or_insert_with(|| {
            self.in_flight.insert(InFlight {
                ticket: fragmented.ticket,
                peer: index,
                op: fragmented.op,
                shape: None,
                awaited: 0,
                all_written: false,
                acknowledged: false,
            })
        });
        self.in_flight[key].awaited += 1;
        key
    }

    /// Announces and starts the operation's next rendezvous transfer. False if there is no
    /// resource.
    fn start_transfer(
        &mut self,
        channel: &mut impl Channel,
        index: usize,
        fragmented: &mut FragmentedOp,
    ) -> bool {
        let peer = &mut self.peers[index];
        if !peer.may_transfer()
            || self.transfers.len() >= MAX_TRANSFERS_PER_WINDOW
            || peer.room(channel, 0).is_none()
        {
            return false;
        }
        let Some(number) = channel.host().take_tag() else { return false };
        let key = self.await_response(index, fragmented);
        let (op, at) = (&fragmented.op, fragmented.at);
        let part = (op.len - at).min(MAX_TRANSFER);
        let len = part as usize;
        let sends = op.kind == OpKind::Put;
        let (kind, buffer) =
            if sends { (TransferKind::Put, op.origin) } else { (TransferKind::Get, op.result) };
        let tag = TransferTag { kind, number };
        let transfer = Transfer::Issued { op: key, at, len, tag };
        let id = TransferId(self.transfers.insert(transfer).index);
        let peer = &mut self.peers[index];
        peer.transfers += 1;
        peer.issued += 1;
        peer.request_packet().push(&Record::Rendezvous(Place::flat(op.disp + at, part), tag));
        peer.announced.push_back((peer.issued, sends.then_some(number)));
        let end = TransferEnd { tag, sends, at: Addr(buffer.0 + at as usize), len, id };
        // SAFETY: the bytes lie in the origin buffer, which is valid and unchanged until the
        // operation is locally complete, or in the result buffer, which nobody else accesses until
        // it is complete [EP-8]. Both are after the transfer.
        unsafe { channel.host().transfer(peer.id.rank, end) };
        // Send the announcement now: the peer cannot join the transfer before it arrives. The
        // notification of an operation takes the announcement along at once.
        if op.notification.is_none() {
            peer.flush(channel, false);
        }
        fragmented.at += part;
        true
    }

    /// Writes the operation's next record. False if there is no resource.
    fn write_fragment(
        &mut self,
        channel: &mut impl Channel,
        index: usize,
        fragmented: &mut FragmentedOp,
    ) -> bool {
        let peer = &mut self.peers[index];
        let with_result = has_result(&fragmented.op);
        if with_result && (peer.replies >= MAX_REPLIES || peer.reply_bytes >= MAX_REPLY_BYTES) {
            return false;
        }
        let least = match fragmented.op.kind {
            // One element, which is never divided.
            OpKind::CompareAndSwap => 2 * fragmented.op.len as usize,
            _ => (fragmented.op.len - fragmented.at).min(MIN_FRAGMENT) as usize,
        };
        let Some(room) = peer.room(channel, least) else { return false };
        let room = if with_result { room.min(PAYLOAD) } else { room };
        let place = next_place(fragmented, room as u64);
        let len = place.bytes();
        let mut id = 0;
        if with_result {
            peer.replies += 1;
            peer.reply_bytes += len;
            let op = self.await_response(index, fragmented);
            let reply = PendingReply { op, at: fragmented.at, len: len as u32 };
            id = self.pending_replies.insert(reply).index;
        }
        let peer = &mut self.peers[index];
        // SAFETY: the operation's buffers are valid until it is complete [EP-8]. `place` covers its
        // next bytes, for which the packet has room.
        unsafe { write_record(peer.request_packet(), fragmented, place, id) };
        peer.issued += 1;
        fragmented.at += len;
        true
    }

    /// The pending reply with this id and its operation.
    ///
    /// # Errors
    /// No reply with this id is due from the peer.
    #[inline]
    fn pending_reply(
        &self,
        index: usize,
        id: u32,
    ) -> Result<(Key, PendingReply, &InFlight), Malformed> {
        let key = self.pending_replies.key_at(id).ok_or(Malformed::UnexpectedReply)?;
        let reply = self.pending_replies[key];
        let in_flight = &self.in_flight[reply.op];
        if in_flight.peer != index {
            return Err(Malformed::UnexpectedReply);
        }
        Ok((key, reply, in_flight))
    }

    /// Handles the peer's report that it has skipped an operation on memory that is not attached.
    #[cold]
    pub(super) fn unattached(&mut self, index: usize, what: Unattached) -> Result<(), Malformed> {
        let peer = &self.peers[index];
        let ticket = match what.which {
            OpRef::Reply(id) => {
                let (key, reply, in_flight) = self.pending_reply(index, id)?;
                let ticket = in_flight.ticket;
                self.reply_arrived(index, key, reply);
                ticket
            }
            OpRef::Number(number) if number <= peer.done || number > peer.issued => {
                return Err(Malformed::NotSent);
            }
            // `unacked` has the number of each operation's last record.
            OpRef::Number(number) => {
                let at = peer.unacked.partition_point(|other| other.number < number);
                match peer.unacked.get(at) {
                    Some(unacked) => unacked.ticket,
                    None => peer.fragmented.as_ref().ok_or(Malformed::NotSent)?.ticket,
                }
            }
        };
        self.fail_op(index, ticket, what.disp, what.len);
        Ok(())
    }

    /// Records that a peer has skipped an operation of this process.
    #[cold]
    fn fail_op(&mut self, index: usize, ticket: Ticket, disp: u64, len: u64) {
        let target = self.peers[index].id.rank;
        self.failed.push_back(ticket);
        ANY_SKIPPED.store(true, Ordering::Relaxed);
        // Report only the first fault per target to the application.
        if self.faults.iter().all(|fault| fault.target != target) {
            let fault = OutOfReach { target, disp, len };
            log::error!("{fault}");
            self.faults.push(fault);
        }
    }

    /// Handles a reply.
    pub(super) fn replied(&mut self, index: usize, id: u32, data: &[u8]) -> Result<(), Malformed> {
        let (key, reply, in_flight) = self.pending_reply(index, id)?;
        let PendingReply { op, at, len } = reply;
        if data.len() != len as usize {
            return Err(Malformed::Lengths);
        }
        // `fragmented` holds the shape until all records are written.
        let shape = match &self.peers[index].fragmented {
            Some(fragmented) if fragmented.in_flight == Some(op) => fragmented.shape.as_deref(),
            _ => in_flight.shape.as_deref(),
        };
        let to = in_flight.op.result.0 as *mut u8;
        // SAFETY: the result buffer is valid and belongs to the library until the operation is
        // complete [EP-8]. `at` and `len` were computed from the operation, so they lie in it.
        unsafe {
            match shape.and_then(|shape| shape.result.as_ref()) {
                Some(side) => datatype::unpack(data.as_ptr(), to, side, at, data.len()),
                None => copy(data.as_ptr(), to.add(at as usize), data.len()),
            }
        }
        self.reply_arrived(index, key, reply);
        Ok(())
    }

    fn reply_arrived(&mut self, index: usize, key: Key, reply: PendingReply) {
        self.pending_replies.remove(key);
        let peer = &mut self.peers[index];
        peer.replies -= 1;
        peer.reply_bytes -= u64::from(reply.len);
        self.response_arrived(reply.op);
    }

    /// Counts a reply or transfer of an operation that has arrived.
    fn response_arrived(&mut self, op: Key) {
        let in_flight = &mut self.in_flight[op];
        in_flight.awaited -= 1;
        if in_flight.awaited == 0 && in_flight.all_written {
            self.all_arrived(op);
        }
    }

    /// Handles the end of a transfer of `len` bytes, from byte `at` of an operation of this process
    /// on. `bytes` bytes were moved. Returns the index of the peer.
    pub(super) fn issued_done(
        &mut self,
        channel: &mut impl Channel,
        (key, at, len): (Key, u64, usize),
        tag: TransferTag,
        bytes: usize,
    ) -> (usize, Result<(), Malformed>) {
        // A put's tag is in use until the target has received the data.
        if tag.kind == TransferKind::Get {
            channel.host().return_tag(tag.number);
        }
        let InFlight { peer: index, ref op, ticket, .. } = self.in_flight[key];
        let disp = op.disp + at;
        if bytes != len {
            // To report a get of memory that is not attached, the peer sends 0 bytes.
            if op.kind != OpKind::Get || bytes != 0 {
                return (index, Err(Malformed::Lengths));
            }
            self.fail_op(index, ticket, disp, len as u64);
        }
        self.peers[index].transfers -= 1;
        self.response_arrived(key);
        (index, Ok(()))
    }

    /// Handles an acknowledgement. `done` is the low half of the number up to which the peer has
    /// done the operations of this process.
    pub(super) fn acknowledged(
        &mut self,
        channel: &mut impl Channel,
        index: usize,
        done: u32,
    ) -> Result<(), Malformed> {
        let peer = &mut self.peers[index];
        let more = u64::from(done.wrapping_sub(peer.done as u32));
        if more > peer.issued - peer.done {
            return Err(Malformed::NotSent);
        }
        peer.done += more;
        let done = peer.done;
        while let Some((_, tag)) = peer.announced.pop_front_if(|(number, _)| *number <= done) {
            tag.into_iter().for_each(|tag| channel.host().return_tag(tag));
        }
        while let Some(Unacked { ticket, in_flight, .. }) =
            self.peers[index].unacked.pop_front_if(|first| first.number <= done)
        {
            match in_flight.and_then(|key| self.in_flight.get_mut(key)) {
                Some(op) => op.acknowledged = true,
                None => self.finished.push_back((ticket, Stage::Remote)),
            }
        }
        let peer = &mut self.peers[index];
        if peer.unacked.is_empty() && peer.unacked.capacity() > KEPT_CAPACITY {
            peer.unacked = VecDeque::new();
        }
        Ok(())
    }
}

/// The place at the target of the operation's next data: at most `room` bytes of whole elements.
fn next_place(fragmented: &FragmentedOp, room: u64) -> Place {
    let op = &fragmented.op;
    let limit = match op.kind {
        OpKind::Put | OpKind::Get => room,
        OpKind::CompareAndSwap => op.len,
        _ => whole(room as usize, op.extent) as u64,
    };
    match &fragmented.shape {
        None => Place::flat(op.disp + fragmented.at, (op.len - fragmented.at).min(limit)),
        Some(shape) => {
            let (_, limit) = shape.part(op, fragmented.at, limit);
            let runs = shape.target.walk(fragmented.at).next_runs(limit).expect("data are left");
            Place {
                disp: (shape.disp + runs.at) as u64,
                len: runs.len,
                stride: runs.stride,
                count: runs.count as u32,
            }
        }
    }
}

/// Writes the record of the operation's next data.
///
/// # Safety
/// The operation's buffers must be valid. `place` must cover the operation's next bytes, and the
/// packet must have room for them.
unsafe fn write_record(packet: &mut Packet, fragmented: &FragmentedOp, place: Place, id: u32) {
    let op = match &fragmented.shape {
        Some(shape) => &shape.part(&fragmented.op, fragmented.at, place.bytes()).0,
        None => &fragmented.op,
    };
    let how = ElementOp { element: op.element, reduction: op.reduction, extent: op.extent };
    let data = match op.kind {
        OpKind::Put => packet.put(place),
        OpKind::Get => return packet.push(&Record::Get(place, id)),
        OpKind::Accumulate => packet.accumulate(place, how),
        OpKind::GetAccumulate => packet.fetch(place, how, id, op.reduction != reduction::NO_OP),
        OpKind::CompareAndSwap => packet.swap(place, id),
    };
    let (from, to) = (op.origin.0 as *const u8, data.as_mut_ptr());
    let len = place.bytes() as usize;
    // SAFETY: the caller guarantees `len` valid bytes at the operation's offset in its buffers.
    // `data` has `len` bytes, twice as many for a compare-and-swap, or none for a no_op.
    unsafe {
        match fragmented.shape.as_ref().and_then(|shape| shape.origin.as_ref()) {
            _ if data.is_empty() => {}
            Some(side) => datatype::pack(from, side, fragmented.at, to, len),
            None => copy(from.add(fragmented.at as usize), to, len),
        }
        if op.kind == OpKind::CompareAndSwap {
            copy(op.compare.0 as *const u8, to.add(len), len);
        }
    }
}
