//! The origin's end of a channel: operations sent, applied and waiting to be sent.

mod by_kernel;

use std::collections::VecDeque;

use crate::engine::{NoResource, Notification, Op, OpKind, Posted, Rank, Shaped, Stage, Ticket};
use crate::sync::AtomicU32;
use crate::transport::copy::{copy, copy_away, prefetch_to_write};
use crate::transport::datatype::element::{FIRST_FOREIGN, reduction};
use crate::transport::datatype::{self, Shape, Shapes, whole};

use super::adaptive::{CLASSES, COPIES, Fastest, TWO_WAYS};
use super::channel::{Channel, IN_SLOT, INLINE, PAYLOAD, SLOTS, Tag};
use super::gather::Gather;
use super::protocol::publish;
use super::reference::References;
use super::run_list::{self, RUNS_MAX, RunList, StridedRun};
use super::scattered::SCATTERED_CLASSES;
use super::short::Bursts;
use super::stall::StallDetector;

/// Longest operation, in bytes, that is sent in one slot. For these, a second slot does not pay.
pub(super) const SHORT: usize = 8 * 1024;

/// Bytes of one piece of a long operation, depending on its length: long enough to hide the cost of
/// a slot, short enough for several in the channel, so that both ends work at the same time.
pub(super) const PIECE_MIN: usize = 4 * 1024;
pub(super) const PIECE_MAX: usize = 16 * 1024;

/// Bytes of the next payload that are fetched ahead: as many lines as a processor waits for at a
/// time.
const FETCHED: usize = 512;

/// What the origin remembers of one slot that it has sent.
#[derive(Clone, Copy, Debug, Default)]
struct SentSlot {
    /// Where to copy the results, or null.
    result: *mut u8,
    /// Where the results are.
    data: *const u8,
    /// Bytes of the results.
    len: u32,
    /// The operation that reaches a stage when this slot is applied, and the stage.
    ends: Option<(Ticket, Stage)>,
    /// The slot has the last of the operation's data.
    has_last: bool,
    /// End of the slot's payload. When the slot is freed, so is the payload area up to here.
    payload_end: u64,
    /// The operation's shape, if any, and the offset of the slot's first byte in its data.
    shape: Option<Shaped>,
    from: u64,
}

/// A long operation that is being sent in pieces. Its notification, if it has one, comes last.
#[derive(Clone, Copy, Debug)]
struct LongOp {
    op: Op,
    ticket: Ticket,
    /// Bytes sent, or applied by reference.
    at: usize,
    means: Means,
}

impl LongOp {
    /// An operation that is sent again, from its first byte on.
    fn redone(op: Op, ticket: Ticket) -> Self {
        LongOp { op, ticket, at: 0, means: Means::Pieces }
    }
}

/// How a long operation is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Means {
    Pieces,
    /// By reference, as soon as a slot is free.
    Reference,
    /// By the reference in the slot at this position.
    Referred(u64),
}

/// The origin's end of the channel to one target.
///
/// [`post`](Self::post) and [`begin_long`](Self::begin_long) send. [`poll`](Self::poll) notices
/// what was applied and continues the long operation. [`next_finished`](Self::next_finished)
/// collects. At most one long operation waits. Until it is sent, all others are refused, which also
/// keeps accumulates in order.
#[derive(Debug)]
pub(super) struct Outbox {
    pub(super) target: Rank,
    channel: *const Channel,
    /// Next position to publish.
    tail: u64,
    /// Positions below are applied.
    applied: u64,
    /// Positions below were passed by the consumer, and their slots are the origin's. Less than
    /// `applied` if this process has copied the latest slots by reference itself.
    passed: u64,
    /// Whatever bypasses the channel waits until positions below are applied [OR-1].
    ordered: u64,
    /// Positions below are collected: their results are copied out and their slots are free.
    collected: u64,
    /// Payload bytes that slots have taken (with those skipped at the end of the area), and freed.
    payload_tail: u64,
    payload_head: u64,
    slots: Box<[SentSlot; SLOTS]>,
    long: Option<LongOp>,
    /// A long operation that has been sent completely and is yet to be reported as local.
    long_sent: Option<Ticket>,
    /// Operations collected to make room and yet to be reported; at most [`UNREPORTED_MAX`].
    finished: VecDeque<(Ticket, Stage)>,
    pub(super) stall: StallDetector,
    references: References,
    /// Short puts or gets that wait for a common system call.
    pub(super) gather: Gather,
    /// How to make those that come together.
    pub(super) bursts: Bursts,
    /// How to make short puts and gets that come alone, by the class of their length.
    pub(super) short_ways: [Fastest; CLASSES],
    /// How to copy long puts and gets, by the binary logarithm of their length.
    pub(super) long_ways: [Fastest; CLASSES],
    /// The same for accumulates.
    pub(super) accumulate_ways: [Fastest; CLASSES],
    /// The same for puts and gets of derived datatypes.
    pub(super) scattered_ways: [Fastest; SCATTERED_CLASSES],
    /// Operations by reference that failed, and follow the long operation.
    redone: VecDeque<LongOp>,
    /// The target cannot apply atomic operations by reference.
    accumulates_refused: bool,
    /// Shapes of operations in flight.
    shapes: Shapes,
    /// Run list of the slot that is being filled, kept here to reuse its allocation.
    entries: Vec<StridedRun>,
    /// In the list of outboxes with operations in flight.
    pub(super) active: bool,
    /// A notification was sent since the last check whether to ring the target's doorbell.
    pub(super) notified: bool,
}

/// Maximum number of operations that are collected before they are reported.
const UNREPORTED_MAX: usize = SLOTS;

impl Outbox {
    /// # Safety
    /// `channel` must be the one from this process to `target`, stay mapped as long as the result
    /// is used, and never have been used.
    pub(super) unsafe fn new(target: Rank, channel: *const Channel, polls: &AtomicU32) -> Self {
        Outbox {
            target,
            channel,
            tail: 0,
            applied: 0,
            passed: 0,
            ordered: 0,
            collected: 0,
            payload_tail: 0,
            payload_head: 0,
            slots: Box::new([SentSlot::default(); SLOTS]),
            long: None,
            long_sent: None,
            finished: VecDeque::with_capacity(UNREPORTED_MAX),
            stall: StallDetector::new(polls),
            references: References::default(),
            gather: Gather::default(),
            bursts: Bursts::new(),
            long_ways: [Fastest::of(COPIES); CLASSES],
            short_ways: [Fastest::of_short(TWO_WAYS); CLASSES],
            accumulate_ways: [Fastest::of(TWO_WAYS); CLASSES],
            scattered_ways: [Fastest::of(TWO_WAYS); SCATTERED_CLASSES],
            redone: VecDeque::new(),
            accumulates_refused: false,
            shapes: Shapes::new(),
            entries: Vec::new(),
            active: false,
            notified: false,
        }
    }

    #[inline(always)]
    pub(super) fn channel<'a>(&self) -> &'a Channel {
        // SAFETY: the caller of `new` keeps the channel mapped. The window unmaps its segment only
        // after it has dropped all users of its channels.
        unsafe { &*self.channel }
    }

    /// First position that has not been published.
    pub(super) fn tail(&self) -> u64 {
        self.tail
    }

    /// True if nothing is in flight, waits, or is left to collect.
    #[inline(always)]
    pub(super) fn is_idle(&self) -> bool {
        self.collected == self.tail
            && self.long.is_none()
            && self.long_sent.is_none()
            && self.finished.is_empty()
            && self.gather.is_empty()
    }

    /// Has later operations follow all that was sent [OR-1].
    ///
    /// # Errors
    /// Not now: an operation is not sent completely, or the target copies one by reference.
    pub(super) fn order(&mut self) -> Result<(), NoResource> {
        self.see_applied();
        let all_sent = self.long.is_none() && self.redone.is_empty() && self.gather.is_empty();
        if !all_sent || !self.references.are_copied() {
            return Err(NoResource);
        }
        self.ordered = self.tail;
        Ok(())
    }

    /// Whether an operation by reference has failed that is not sent again yet.
    pub(super) fn sends_again(&self) -> bool {
        !self.redone.is_empty() || self.references.have_failed()
    }

    /// True if an operation may bypass the channel: it overtakes nothing that it must follow.
    #[inline(always)]
    pub(super) fn is_free(&mut self) -> bool {
        self.ordered <= self.applied || self.sees_all_ordered()
    }

    #[cold]
    fn sees_all_ordered(&mut self) -> bool {
        self.see_applied();
        self.ordered <= self.applied
    }

    /// True if nothing waits and all that was sent is applied.
    pub(super) fn is_applied(&self) -> bool {
        self.applied == self.tail && self.long.is_none() && self.gather.is_empty()
    }

    /// True if [`next_finished`](Self::next_finished) may return something.
    pub(super) fn has_finished(&self) -> bool {
        self.collected != self.applied || self.long_sent.is_some() || !self.finished.is_empty()
    }

    /// Sends an operation of at most [`SHORT`] bytes, or refuses it for now.
    #[inline]
    pub(super) fn post(&mut self, op: &Op, ticket: Ticket) -> Posted {
        let sent =
            self.long.is_none() && (self.send_whole(op, ticket) || self.send_late(op, ticket));
        match sent {
            false => Posted::NoResource,
            true if has_result(op) => Posted::Pending,
            true => Posted::Local,
        }
    }

    /// Polls and tries again, since the channel was full at the last poll.
    #[cold]
    fn send_late(&mut self, op: &Op, ticket: Ticket) -> bool {
        self.poll();
        self.collect_applied();
        self.send_whole(op, ticket)
    }

    /// Slots that may be written.
    #[inline(always)]
    fn free_slots(&self) -> u64 {
        SLOTS as u64 - (self.tail - self.collected.min(self.passed))
    }

    /// Sends a short operation with its notification, or nothing.
    #[inline(always)]
    fn send_whole(&mut self, op: &Op, ticket: Ticket) -> bool {
        let len = op.len as usize;
        let Some(notification) = op.notification else { return self.send(op, 0, len, ticket) };
        self.free_slots() >= 2
            && (len == 0 || self.send(op, 0, len, ticket))
            && self.send_notification(notification, ticket)
    }

    /// Begins a long or shaped operation, unless another one waits. Moves its shape here from
    /// `shapes`. [`drive`](Self::drive) sends it, by reference if it `refers` and the target
    /// permits that.
    pub(super) fn begin_long(
        &mut self,
        op: &Op,
        ticket: Ticket,
        shapes: &mut Shapes,
        refers: bool,
    ) -> bool {
        if self.long.is_some() || self.long_sent.is_some() {
            return false;
        }
        let refers = refers && !self.accumulates_refused;
        let shape = op.shape.map(|shape| self.shapes.add(shapes.take(shape)));
        let means = if refers { Means::Reference } else { Means::Pieces };
        self.long = Some(LongOp { op: Op { shape, ..*op }, ticket, at: 0, means });
        true
    }

    /// Sends what fits, and frees slots that were applied. True if anything moved.
    pub(super) fn drive(&mut self) -> bool {
        let first = self.collected;
        self.collect_applied();
        let sent = self.send_long();
        sent || self.poll() || self.collected != first
    }

    /// The long operation that waits, and the number of its bytes that were sent.
    #[inline(always)]
    pub(super) fn pending_long(&self) -> Option<(&Op, usize)> {
        self.long.as_ref().map(|long| (&long.op, long.at))
    }

    /// Ends the long operation that waits, whose remaining data the caller has transferred.
    pub(super) fn finish_long(&mut self) {
        let Some(LongOp { op, ticket, at, .. }) = self.long.take() else { return };
        if op.notification.is_some() {
            self.long = Some(LongOp { op, ticket, at: op.len as usize, means: Means::Pieces });
            self.send_long();
        } else if at > 0 && self.collected < self.tail {
            // Its pieces were sent last, so the newest slot ends it.
            self.slots[(self.tail - 1) as usize % SLOTS].ends = Some((ticket, Stage::Remote));
            if !has_result(&op) {
                self.long_sent = Some(ticket);
            }
        } else {
            self.finished.push_back((ticket, Stage::Remote));
        }
        self.begin_redone();
    }

    /// What to return for the long operation that was begun last, after driving it for a while.
    pub(super) fn posted_long(&mut self, op: &Op, ticket: Ticket) -> Posted {
        if self.finished.back() == Some(&(ticket, Stage::Remote)) {
            while self.finished.pop_back_if(|(other, _)| *other == ticket).is_some() {}
            self.long_sent = None;
            return Posted::Complete;
        }
        if self.long_sent.take().is_some() && !has_result(op) {
            Posted::Local
        } else {
            Posted::Pending
        }
    }

    /// Begins an operation that is to be sent again, unless a long one waits.
    fn begin_redone(&mut self) {
        if self.long.is_none() {
            self.long = self.redone.pop_front();
        }
    }

    /// Sends pieces of the long operation as far as there is room. True if any were sent.
    fn send_long(&mut self) -> bool {
        let Some(LongOp { op, ticket, at: first, means }) = self.long else { return false };
        if means != Means::Pieces {
            return means == Means::Reference && self.send_reference(&op);
        }
        let len = op.len as usize;
        let piece = (len / 4).clamp(PIECE_MIN, PIECE_MAX);
        let mut at = first;
        if let Some(shape) = op.shape {
            let unit = self
                .shapes
                .get(shape)
                .target
                .layout()
                .map_or(op.extent, |(layout, _)| layout.unit());
            let piece = whole(piece & !63, unit);
            while at < len {
                let most = piece.min(len - at) as u64;
                let (part, most) = self.shapes.get(shape).part(&op, at as u64, most);
                match self.send_shaped(&part, shape, at, most as usize, ticket) {
                    0 => break,
                    part => at += part,
                }
            }
        } else {
            let piece = whole(piece, op.extent);
            while at < len {
                let part = piece.min(len - at);
                if !self.send(&op, at, part, ticket) {
                    break;
                }
                at += part;
            }
        }
        let complete = at == len
            && op.notification.is_none_or(|behind| self.send_notification(behind, ticket));
        self.long = (!complete).then_some(LongOp { op, ticket, at, means });
        self.begin_redone();
        if complete && !has_result(&op) {
            self.long_sent = Some(ticket);
        }
        at > first || complete
    }

    /// Sends a notification in a slot without data. False if there is no room.
    fn send_notification(&mut self, notification: Notification, ticket: Ticket) -> bool {
        let disp = notification.bits().into();
        let slot = Op { disp, notification: None, ..Op::notify(self.target, notification) };
        let sent = self.send(&slot, 0, 0, ticket);
        self.notified |= sent;
        sent
    }

    /// Fills and publishes one slot; false if there is no room.
    #[inline]
    fn send(&mut self, op: &Op, at: usize, part: usize, ticket: Ticket) -> bool {
        if self.free_slots() == 0 {
            return false;
        }
        let need = match op.kind {
            OpKind::CompareAndSwap => 2 * part,
            _ => part,
        };
        // Reductions of the host may need their natural alignment, and a slot aligns to 8 only.
        let fits = need <= INLINE && (op.element.0 < FIRST_FOREIGN || op.extent <= 8);
        let payload = match fits {
            true => IN_SLOT,
            false => match self.reserve(need) {
                Some(payload) => payload,
                None => return false,
            },
        };
        let channel = self.channel();
        let slot = channel.slot(self.tail);
        let data = channel.data(slot, payload);
        // SAFETY: fewer than SLOTS positions are uncollected, so the slot is the origin's to write,
        // and `reserve` gave it the payload. The application keeps the buffers valid for the
        // operation's length until it completes [EP-8].
        unsafe {
            slot.fill(op.disp + at as u64, part as u32, payload);
            let origin = (op.origin.0 as *const u8).wrapping_add(at);
            match op.kind {
                OpKind::Put | OpKind::Accumulate => copy_away(origin, data, part),
                OpKind::Get => {}
                OpKind::GetAccumulate if op.reduction == reduction::NO_OP => {}
                OpKind::GetAccumulate => copy_away(origin, data, part),
                OpKind::CompareAndSwap => {
                    copy(origin, data, part);
                    copy(op.compare.0 as *const u8, data.add(part), part);
                }
            }
        }
        self.publish(op, (at, part), data, (None, false), ticket);
        self.fetch_next(if fits { 0 } else { part });
        true
    }

    /// Takes the lines of the next slot and its payload, as long as the last one's, back from the
    /// target: several at a time, while this process does something else. Not if this is the only
    /// one in flight: then the next one may use the same lines again.
    #[inline]
    fn fetch_next(&self, payload: usize) {
        let channel = self.channel();
        if self.free_slots() == 0 || self.tail - self.collected < 2 {
            return;
        }
        let slot = channel.slot(self.tail);
        prefetch_to_write(std::ptr::from_ref(slot).cast());
        let next = channel.data(slot, (self.payload_tail as usize % PAYLOAD) as u32);
        for line in (0..payload.min(FETCHED)).step_by(64) {
            prefetch_to_write(next.wrapping_add(line));
        }
    }

    /// Publishes the slot at the tail: `part` bytes of the data of `op`, from byte `at` on.
    #[inline(always)]
    fn publish(
        &mut self,
        op: &Op,
        (at, part): (usize, usize),
        data: *mut u8,
        (shape, has_run_list): (Option<Shaped>, bool),
        ticket: Ticket,
    ) {
        // The results of a shaped operation are unpacked, from byte `at` of its data on.
        let offset = if shape.is_none() { at } else { 0 };
        let result = match has_result(op) {
            true => (op.result.0 as *mut u8).wrapping_add(offset),
            false => std::ptr::null_mut(),
        };
        let has_last = at + part == op.len as usize;
        self.slots[self.tail as usize % SLOTS] = SentSlot {
            result,
            data,
            len: part as u32,
            ends: stage_of_data(op).filter(|_| has_last).map(|stage| (ticket, stage)),
            has_last,
            payload_end: self.payload_tail,
            shape,
            from: at as u64,
        };
        let slot = self.channel().slot(self.tail);
        publish(&slot.stamp, self.tail, Tag::of(op, has_run_list).encode());
        self.tail += 1;
    }

    /// Fills and publishes one slot with at most `most` bytes of the data of a shaped operation,
    /// from byte `at` on. Returns their number; 0 if there is no room. If `most` is a multiple of
    /// the element size, so is the result.
    fn send_shaped(
        &mut self,
        op: &Op,
        shaped: Shaped,
        at: usize,
        most: usize,
        ticket: Ticket,
    ) -> usize {
        if self.free_slots() == 0 {
            return 0;
        }
        let mut entries = std::mem::take(&mut self.entries);
        entries.clear();
        let Shape { target, disp, .. } = self.shapes.get(shaped);
        let (mut walk, mut part) = (target.walk(at as u64), 0);
        while part < most
            && entries.len() < RUNS_MAX
            && let Some(runs) = walk.next_runs((most - part) as u64)
        {
            let disp = disp.wrapping_add(runs.at) as u64;
            entries.push(StridedRun {
                disp,
                stride: runs.stride,
                len: runs.len as u32,
                count: runs.count as u32,
            });
            part += (runs.len * runs.count) as usize;
        }
        let has_run_list = !matches!(entries[..], [StridedRun { count: 1, .. }]);
        let before = if has_run_list { run_list::header_len(entries.len()) } else { 0 };
        if let Some(payload) = self.reserve(before + part) {
            let channel = self.channel();
            let slot = channel.slot(self.tail);
            let mut data = channel.data(slot, payload);
            let sends = op.kind != OpKind::Get
                && !(op.kind == OpKind::GetAccumulate && op.reduction == reduction::NO_OP);
            // SAFETY: fewer than SLOTS positions are uncollected, so the slot is the origin's to
            // write, and `reserve` gave it the payload, aligned to a cache line. The application
            // keeps the buffers valid for their sides until the operation completes [EP-8].
            unsafe {
                slot.fill(entries[0].disp, part as u32, payload);
                if has_run_list {
                    data = RunList::write(data, &entries);
                }
                if let Some(origin) = self.shapes.get(shaped).origin.as_ref().filter(|_| sends) {
                    datatype::pack(op.origin.0 as *const u8, origin, at as u64, data, part);
                }
            }
            self.publish(op, (at, part), data, (Some(shaped), has_run_list), ticket);
        } else {
            part = 0;
        }
        self.entries = entries;
        part
    }

    /// Reserves `need` bytes of the payload area for the next slot; returns their offset.
    #[inline]
    fn reserve(&mut self, need: usize) -> Option<u32> {
        if self.collected == self.tail {
            // Nothing is in flight: reuse the same bytes, which are in the caches.
            (self.payload_tail, self.payload_head) = (0, 0);
        }
        let mut start = self.payload_tail;
        let offset = start as usize % PAYLOAD;
        if offset + need > PAYLOAD {
            start += (PAYLOAD - offset) as u64;
        }
        let end = start + need.next_multiple_of(64) as u64;
        if end - self.payload_head > PAYLOAD as u64 {
            return None;
        }
        self.payload_tail = end;
        Some((start as usize % PAYLOAD) as u32)
    }

    /// Notices what was applied and sends what waits. True if anything moved.
    // As a function of its own, it makes an atomic operation of 8 bytes 60 ns slower.
    #[inline(always)]
    pub(super) fn poll(&mut self) -> bool {
        let moved = self.see_applied();
        self.stall.note(moved || self.applied == self.tail);
        if !moved {
            return self.long.is_some() && self.send_long();
        }
        if self.long.is_some() {
            self.collect_applied();
            self.send_long();
        }
        true
    }

    /// Notices what was applied. True if there was anything new.
    #[inline]
    fn see_applied(&mut self) -> bool {
        let (head, before) = (self.channel().words().applied(), self.applied);
        if self.long.is_some() || !self.references.is_empty() {
            return self.see_long(head);
        }
        (self.applied, self.passed) = (head, head);
        self.applied != before
    }

    /// Whether the operation published last is complete already. Its stage is not reported then.
    pub(super) fn is_last_complete(&mut self) -> bool {
        self.see_applied();
        let complete = self.applied == self.tail && self.long.is_none();
        if complete {
            self.slots[(self.tail - 1) as usize % SLOTS].ends = None;
        }
        complete
    }

    /// Collects applied slots before the caller asks for them, to free their payload.
    fn collect_applied(&mut self) {
        while self.collected < self.applied && self.finished.len() < UNREPORTED_MAX {
            let ends = self.oldest().ends;
            self.collect();
            self.finished.extend(ends);
        }
    }

    /// The next stage that an operation has reached.
    #[inline]
    pub(super) fn next_finished(&mut self) -> Option<(Ticket, Stage)> {
        if let Some(ticket) = self.long_sent.take() {
            return Some((ticket, Stage::Local));
        }
        if let Some(finished) = self.finished.pop_front() {
            return Some(finished);
        }
        while self.collected < self.applied {
            let ends = self.oldest().ends;
            self.collect();
            if ends.is_some() {
                return ends;
            }
        }
        None
    }

    #[inline(always)]
    fn oldest(&self) -> &SentSlot {
        &self.slots[self.collected as usize % SLOTS]
    }

    /// Copies out the results of the oldest slot, which is applied, and frees it.
    #[inline(always)]
    fn collect(&mut self) {
        debug_assert!(self.collected < self.applied);
        let SentSlot { result, data, len, payload_end, shape, .. } = *self.oldest();
        if let Some(shaped) = shape {
            self.collect_shaped(shaped);
        } else if !result.is_null() {
            // SAFETY: the application keeps the result buffer valid until the operation completes
            // [EP-8]. The position is applied, so the payload is the origin's again.
            unsafe { copy(data, result, len as usize) };
        }
        self.payload_head = payload_end;
        self.collected += 1;
    }

    /// Copies out the results of the oldest slot, which has a shape. The last one ends the shape.
    #[inline(never)]
    fn collect_shaped(&mut self, shaped: Shaped) {
        let SentSlot { result, data, len, has_last, from, .. } = *self.oldest();
        if let Some(side) = &self.shapes.get(shaped).result {
            // SAFETY: the application keeps the result's side valid until the operation completes
            // [EP-8]. The position is applied, so the payload is the origin's again. A datatype
            // with absolute addresses has a null `result`.
            unsafe { datatype::unpack(data, result, side, from, len as usize) };
        }
        if has_last {
            self.shapes.take(shaped);
        }
    }
}

/// The stage that an operation reaches when the last of its data is applied. `None` for one with a
/// notification and without results: it is local once sent, and remote with the notification.
#[inline(always)]
fn stage_of_data(op: &Op) -> Option<Stage> {
    match op.notification {
        None => Some(Stage::Remote),
        Some(_) => has_result(op).then_some(Stage::Local),
    }
}

/// Whether the operation returns data.
#[inline(always)]
fn has_result(op: &Op) -> bool {
    matches!(op.kind, OpKind::Get | OpKind::GetAccumulate | OpKind::CompareAndSwap)
}
