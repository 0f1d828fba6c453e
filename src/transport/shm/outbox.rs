//! The origin's end of a channel: what it has sent, what of that was applied, what waits to be
//! sent.

use std::collections::VecDeque;

use crate::engine::{Op, OpKind, Posted, Rank, Shaped, Stage, Ticket};
use crate::sync::AtomicU32;
use crate::sync::Ordering::Relaxed;
use crate::transport::copy;
use crate::transport::datatype::element::{FIRST_FOREIGN, reduction};
use crate::transport::datatype::{self, Shape, Shapes, whole};

use super::channel::{Channel, IN_SLOT, INLINE, PAYLOAD, SLOTS, Tag};
use super::list::{self, List, PLACES_MAX, Place};
use super::protocol::publish;

/// Bytes up to which an operation goes as one piece: less than that is not worth a second slot.
pub(super) const SHORT: usize = 8 * 1024;

/// Bytes of one piece of a long operation. Large enough to hide what handing over a slot costs,
/// small enough that several are in the channel and both ends work at the same time; so it depends
/// on the length.
pub(super) const PIECE_MIN: usize = 4 * 1024;
pub(super) const PIECE_MAX: usize = 16 * 1024;

/// Looks at an unmoved head before the target is suspected to be away, in polls. A poll takes some
/// 10 to 20 ns, a target in the middle of its own work a few hundred.
const PATIENCE: u32 = 64;

/// One slot's counterpart in private memory.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Where the results go, or null.
    result: *mut u8,
    /// Where they come from.
    data: *const u8,
    /// How many bytes.
    len: u32,
    /// Operation that ends with this slot, if `last`.
    ticket: u32,
    last: bool,
    /// The payload area is free up to here when the slot is.
    payload_end: u64,
    /// The operation's shape, if it has one, and the number of the slot's first byte among its
    /// data.
    shape: Option<Shaped>,
    from: u64,
}

const EMPTY: Entry = Entry {
    result: std::ptr::null_mut(),
    data: std::ptr::null(),
    len: 0,
    ticket: 0,
    last: false,
    payload_end: 0,
    shape: None,
    from: 0,
};

/// A long operation that is being cut into pieces.
#[derive(Clone, Copy, Debug)]
struct Feed {
    op: Op,
    ticket: Ticket,
    /// Bytes sent.
    at: usize,
}

/// The origin's end of the channel to one target.
///
/// [`post`](Self::post) and [`begin`](Self::begin) send; [`look`](Self::look) notices what was
/// applied and sends what waits; [`next_finished`](Self::next_finished) collects. At most one long
/// operation waits: later ones are refused until it is sent, which also keeps accumulates in order.
#[derive(Debug)]
pub(super) struct Outbox {
    pub(super) target: Rank,
    channel: *const Channel,
    /// Next position to publish.
    tail: u64,
    /// Positions below are applied.
    applied: u64,
    /// Positions below are collected; their slots are free.
    collected: u64,
    /// Bytes of the payload area ever given to slots, skipped ones too; freed.
    payload_given: u64,
    payload_freed: u64,
    entries: Box<[Entry; SLOTS]>,
    feed: Option<Feed>,
    /// A long operation that has been sent completely since the last report.
    sent: Option<Ticket>,
    /// Operations collected to make room, not yet reported; at most [`UNREPORTED`].
    finished: VecDeque<Ticket>,
    watch: Watch,
    /// Of operations that were begun.
    shapes: Shapes,
    /// Places of the slot that is being filled; kept for its memory.
    places: Vec<Place>,
    /// In the list of outboxes with something in flight.
    pub(super) active: bool,
}

/// Operations that may be collected before they are reported.
const UNREPORTED: usize = SLOTS;

/// Suspicion that the target is not polling.
#[derive(Clone, Copy, Debug)]
struct Watch {
    /// Looks since the head moved.
    idle: u32,
    /// Looks before the beat is compared.
    patience: u32,
    /// The target's beat when it was last compared.
    beat: u32,
}

impl Outbox {
    /// # Safety
    /// `channel` must be the one from this process to `target`, valid as long as the result is
    /// used, and never have been used.
    pub(super) unsafe fn new(target: Rank, channel: *const Channel, beat: &AtomicU32) -> Self {
        Outbox {
            target,
            channel,
            tail: 0,
            applied: 0,
            collected: 0,
            payload_given: 0,
            payload_freed: 0,
            entries: Box::new([EMPTY; SLOTS]),
            feed: None,
            sent: None,
            finished: VecDeque::with_capacity(UNREPORTED),
            watch: Watch { idle: 0, patience: PATIENCE, beat: beat.load(Relaxed) },
            shapes: Shapes::new(),
            places: Vec::new(),
            active: false,
        }
    }

    #[inline(always)]
    pub(super) fn channel<'a>(&self) -> &'a Channel {
        // SAFETY: valid by the promise made to `new`; the segment outlives all uses in this module
        // tree.
        unsafe { &*self.channel }
    }

    /// End of what was published.
    pub(super) fn tail(&self) -> u64 {
        self.tail
    }

    /// True if nothing is in flight, waits or is left to collect.
    #[inline(always)]
    pub(super) fn is_idle(&self) -> bool {
        self.collected == self.tail
            && self.feed.is_none()
            && self.sent.is_none()
            && self.finished.is_empty()
    }

    /// True if nothing waits, and all that was sent is applied.
    pub(super) fn is_applied(&self) -> bool {
        self.applied == self.tail && self.feed.is_none()
    }

    /// True if [`next_finished`](Self::next_finished) may have something.
    pub(super) fn has_finished(&self) -> bool {
        self.collected != self.applied || self.sent.is_some() || !self.finished.is_empty()
    }

    /// Sends an operation of at most [`SHORT`] bytes, or refuses it for now.
    #[inline]
    pub(super) fn post(&mut self, op: &Op, ticket: Ticket) -> Posted {
        let sent = self.feed.is_none()
            && (self.send(op, 0, op.len as usize, Some(ticket)) || self.send_late(op, ticket));
        match sent {
            false => Posted::NoResource,
            true if has_result(op) => Posted::Pending,
            true => Posted::Local,
        }
    }

    /// The channel was full when last looked at.
    #[cold]
    fn send_late(&mut self, op: &Op, ticket: Ticket) -> bool {
        self.look();
        self.make_room();
        self.send(op, 0, op.len as usize, Some(ticket))
    }

    /// Begins a long operation, unless another one waits. The pieces go by
    /// [`advance`](Self::advance).
    pub(super) fn begin(&mut self, op: &Op, ticket: Ticket) -> bool {
        if self.feed.is_some() || self.sent.is_some() {
            return false;
        }
        self.feed = Some(Feed { op: *op, ticket, at: 0 });
        true
    }

    /// As [`begin`](Self::begin); the shape is ours from then on.
    pub(super) fn begin_shaped(&mut self, op: &Op, ticket: Ticket, shapes: &mut Shapes) -> bool {
        let Some(shape) = op.shape.filter(|_| self.feed.is_none() && self.sent.is_none()) else {
            return false;
        };
        let shape = self.shapes.add(shapes.take(shape));
        self.begin(&Op { shape: Some(shape), ..*op }, ticket)
    }

    /// Sends what waits as far as there is room, and makes room where the target has applied. True
    /// if anything moved.
    pub(super) fn advance(&mut self) -> bool {
        let first = self.collected;
        self.make_room();
        let sent = self.send_waiting();
        sent || self.look() || self.collected != first
    }

    /// The operation that waits, and how many of its bytes were sent.
    #[inline(always)]
    pub(super) fn waiting(&self) -> Option<(&Op, usize)> {
        self.feed.as_ref().map(|feed| (&feed.op, feed.at))
    }

    /// The rest of the waiting operation was done by other means.
    pub(super) fn waiting_is_done(&mut self) {
        let Some(Feed { op, ticket, at }) = self.feed.take() else { return };
        if at > 0 && self.collected < self.tail {
            // Its pieces are the last that were sent: it ends with them.
            let last = &mut self.entries[(self.tail - 1) as usize % SLOTS];
            (last.last, last.ticket) = (true, ticket.0);
            if !has_result(&op) {
                self.sent = Some(ticket);
            }
        } else {
            self.finished.push_back(ticket);
        }
    }

    /// What to answer for the long operation that was begun last, after it was driven for a while.
    pub(super) fn posted(&mut self, op: &Op, ticket: Ticket) -> Posted {
        if self.finished.back() == Some(&ticket) {
            self.finished.pop_back();
            self.sent = None;
            return Posted::Complete;
        }
        if self.sent.take().is_some() && !has_result(op) { Posted::Local } else { Posted::Pending }
    }

    /// Sends pieces of the waiting operation as far as there is room. True if any went.
    fn send_waiting(&mut self) -> bool {
        let Some(Feed { op, ticket, at: first }) = self.feed else { return false };
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
                let last = (at + part == len).then_some(ticket);
                if !self.send(&op, at, part, last) {
                    break;
                }
                at += part;
            }
        }
        self.feed = (at < len).then_some(Feed { op, ticket, at });
        if self.feed.is_none() && !has_result(&op) {
            self.sent = Some(ticket);
        }
        at > first
    }

    /// Fills and publishes one slot; false if there is no room.
    #[inline]
    fn send(&mut self, op: &Op, at: usize, part: usize, last: Option<Ticket>) -> bool {
        if self.tail - self.collected == SLOTS as u64 {
            return false;
        }
        let need = match op.kind {
            OpKind::CompareAndSwap => 2 * part,
            _ => part,
        };
        // Reductions of the host may need their natural alignment, which a slot does not give
        // beyond 8.
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
        // SAFETY: the slot is the origin's, because fewer than SLOTS positions are uncollected, and
        // so is the payload, by `reserve`. The buffers are valid for the operation's length [EP-8].
        unsafe {
            slot.fill(op.disp + at as u64, part as u32, payload);
            let origin = (op.origin.0 as *const u8).wrapping_add(at);
            match op.kind {
                OpKind::Put | OpKind::Accumulate => copy(origin, data, part),
                OpKind::Get | OpKind::Notify | OpKind::NotifyTagged => {}
                OpKind::GetAccumulate if op.reduction == reduction::NO_OP => {}
                OpKind::GetAccumulate => copy(origin, data, part),
                OpKind::CompareAndSwap => {
                    copy(origin, data, part);
                    copy(op.compare.0 as *const u8, data.add(part), part);
                }
            }
        }
        let result = if has_result(op) {
            (op.result.0 as *mut u8).wrapping_add(at)
        } else {
            std::ptr::null_mut()
        };
        self.entries[self.tail as usize % SLOTS] = Entry {
            result,
            data,
            len: part as u32,
            ticket: last.map_or(0, |ticket| ticket.0),
            last: last.is_some(),
            payload_end: self.payload_given,
            shape: None,
            from: 0,
        };
        publish(&slot.stamp, self.tail, Tag::of(op, false).encode());
        self.tail += 1;
        true
    }

    /// Fills and publishes one slot with the data of a shaped operation from number `at` on, `most`
    /// bytes or fewer; gives how many, 0 if there is no room. Whole elements go in, if `most` is a
    /// number of those.
    fn send_shaped(
        &mut self,
        op: &Op,
        shaped: Shaped,
        at: usize,
        most: usize,
        ticket: Ticket,
    ) -> usize {
        if self.tail - self.collected == SLOTS as u64 {
            return 0;
        }
        let mut places = std::mem::take(&mut self.places);
        places.clear();
        let Shape { target, disp, .. } = self.shapes.get(shaped);
        let (mut walk, mut part) = (target.walk(at as u64), 0);
        while part < most
            && places.len() < PLACES_MAX
            && let Some(runs) = walk.next_runs((most - part) as u64)
        {
            let disp = disp.wrapping_add(runs.at) as u64;
            places.push(Place {
                disp,
                stride: runs.stride,
                len: runs.len as u32,
                count: runs.count as u32,
            });
            part += (runs.len * runs.count) as usize;
        }
        let listed = !matches!(places[..], [Place { count: 1, .. }]);
        let before = if listed { list::head(places.len()) } else { 0 };
        let sent = match self.reserve(before + part) {
            Some(payload) => {
                self.fill_shaped(op, shaped, (at, part), (&places, listed), payload, ticket);
                part
            }
            None => 0,
        };
        self.places = places;
        sent
    }

    /// Fills and publishes the slot at the tail, whose payload is reserved.
    fn fill_shaped(
        &mut self,
        op: &Op,
        shaped: Shaped,
        (at, part): (usize, usize),
        (places, listed): (&[Place], bool),
        payload: u32,
        ticket: Ticket,
    ) {
        let channel = self.channel();
        let slot = channel.slot(self.tail);
        let mut data = channel.data(slot, payload);
        let sends = op.kind != OpKind::Get
            && !(op.kind == OpKind::GetAccumulate && op.reduction == reduction::NO_OP);
        // SAFETY: the slot is the origin's, because fewer than SLOTS positions are uncollected, and
        // so is the payload, by `reserve`, which aligns it. The buffers are valid for their sides
        // [EP-8].
        unsafe {
            slot.fill(places[0].disp, part as u32, payload);
            if listed {
                data = List::write(data, places);
            }
            if let Some(origin) = self.shapes.get(shaped).origin.as_ref().filter(|_| sends) {
                datatype::pack(op.origin.0 as *const u8, origin, at as u64, data, part);
            }
        }
        let last = at + part == op.len as usize;
        self.entries[self.tail as usize % SLOTS] = Entry {
            result: if has_result(op) { op.result.0 as *mut u8 } else { std::ptr::null_mut() },
            data,
            len: part as u32,
            ticket: if last { ticket.0 } else { 0 },
            last,
            payload_end: self.payload_given,
            shape: Some(shaped),
            from: at as u64,
        };
        publish(&slot.stamp, self.tail, Tag::of(op, listed).encode());
        self.tail += 1;
    }

    /// Gives `need` bytes of the payload area to the slot about to be filled.
    #[inline]
    fn reserve(&mut self, need: usize) -> Option<u32> {
        if self.collected == self.tail {
            // Begin with the same bytes each time: they are in the caches.
            (self.payload_given, self.payload_freed) = (0, 0);
        }
        let mut start = self.payload_given;
        let offset = start as usize % PAYLOAD;
        if offset + need > PAYLOAD {
            start += (PAYLOAD - offset) as u64;
        }
        let end = start + need.next_multiple_of(64) as u64;
        if end - self.payload_freed > PAYLOAD as u64 {
            return None;
        }
        self.payload_given = end;
        Some((start as usize % PAYLOAD) as u32)
    }

    /// Notices what was applied and sends what waits. True if anything moved.
    #[inline]
    pub(super) fn look(&mut self) -> bool {
        let applied = self.channel().ends().applied();
        if applied == self.applied {
            self.watch.idle += u32::from(applied != self.tail);
            return self.feed.is_some() && self.send_waiting();
        }
        self.applied = applied;
        self.watch.idle = 0;
        if self.feed.is_some() {
            self.make_room();
            self.send_waiting();
        }
        true
    }

    /// Collects what is applied, without waiting to be asked for it.
    fn make_room(&mut self) {
        while self.collected < self.applied && self.finished.len() < UNREPORTED {
            let (last, ticket) = (self.oldest().last, Ticket(self.oldest().ticket));
            self.collect();
            if last {
                self.finished.push_back(ticket);
            }
        }
    }

    /// True if the target was found away, and has not polled since.
    #[inline(always)]
    pub(super) fn knows_away(&self, beat: &AtomicU32) -> bool {
        self.watch.patience != PATIENCE && beat.load(Relaxed) == self.watch.beat
    }

    /// Sees the target as it is: away if it has not polled since the last suspicion.
    pub(super) fn suspect_now(&mut self, beat: &AtomicU32) -> bool {
        self.watch.idle = PATIENCE;
        self.suspects(beat)
    }

    /// True if the target seems to be away: the head has not moved for some looks, and neither has
    /// the target polled since the last suspicion.
    #[inline]
    pub(super) fn suspects(&mut self, beat: &AtomicU32) -> bool {
        if self.watch.idle < self.watch.patience {
            return false;
        }
        let beat = beat.load(Relaxed);
        let away = beat == self.watch.beat;
        // A target found away is expected to be away still, until it polls.
        self.watch = Watch { idle: 0, patience: if away { 1 } else { PATIENCE }, beat };
        away
    }

    /// The next stage that an operation has reached.
    #[inline]
    pub(super) fn next_finished(&mut self) -> Option<(Ticket, Stage)> {
        if let Some(ticket) = self.sent.take() {
            return Some((ticket, Stage::Local));
        }
        if let Some(ticket) = self.finished.pop_front() {
            return Some((ticket, Stage::Remote));
        }
        while self.collected < self.applied {
            let (last, ticket) = (self.oldest().last, Ticket(self.oldest().ticket));
            self.collect();
            if last {
                return Some((ticket, Stage::Remote));
            }
        }
        None
    }

    #[inline(always)]
    fn oldest(&self) -> &Entry {
        &self.entries[self.collected as usize % SLOTS]
    }

    /// Copies out the results of the oldest slot and frees it. It must be applied.
    #[inline(always)]
    fn collect(&mut self) {
        debug_assert!(self.collected < self.applied);
        let Entry { result, data, len, payload_end, shape, .. } = *self.oldest();
        if let Some(shaped) = shape {
            self.collect_shaped(shaped);
        } else if !result.is_null() {
            // SAFETY: the result buffer is valid until the operation is complete [EP-8]; the
            // payload is the origin's again, because the position is applied.
            unsafe { copy(data, result, len as usize) };
        }
        self.payload_freed = payload_end;
        self.collected += 1;
    }
}

impl Outbox {
    /// Copies out the results of the oldest slot, which has a shape; after the last one the shape
    /// ends.
    #[inline(never)]
    fn collect_shaped(&mut self, shaped: Shaped) {
        let Entry { result, data, len, last, from, .. } = *self.oldest();
        if let Some(side) = &self.shapes.get(shaped).result {
            // SAFETY: as in `collect`; the result buffer may lie at displacements from the null
            // address.
            unsafe { datatype::unpack(data, result, side, from, len as usize) };
        }
        if last {
            self.shapes.take(shaped);
        }
    }
}

/// True if the operation brings something back.
#[inline(always)]
fn has_result(op: &Op) -> bool {
    matches!(op.kind, OpKind::Get | OpKind::GetAccumulate | OpKind::CompareAndSwap)
}
