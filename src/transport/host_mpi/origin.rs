//! Operations of this process on the memory of peers: cut into records, and what comes back.

use super::courier::{Bulk, Courier, Stream};
use super::link::{BULKS, FETCHED, Feed, PARTS, WAITING, Waiting};
use super::wire::{BULK, How, Malformed, Packet, Place, Unattached, Which};
use super::{Link, MessageWindow, OutOfReach};
use crate::engine::{Op, OpKind, Posted, Stage, Ticket, Word};
use crate::transport::copy;
use crate::transport::datatype::element::reduction;
use crate::transport::datatype::{self, Shape, whole};

/// Bytes from which a put or get between single runs goes as a message of its own, from and into
/// the application's memory.
const BULK_FROM: u64 = 16 * 1024;
/// Bytes of an operation that leaves as soon as nothing else is under way to its target. Shorter
/// ones are collected until the process polls or the packet is full: each message costs more than
/// they do.
const AT_ONCE: u64 = 1024;
/// Bulk messages of this process's own that may be under way in the window.
const BULKS_HERE: usize = 64;

/// What is known of an operation of which something comes back or goes by itself.
#[derive(Debug)]
pub(super) struct Flight {
    ticket: Ticket,
    link: u32,
    op: Op,
    shape: Option<Box<Shape>>,
    /// Replies and bulk messages that are awaited.
    awaited: u32,
    /// All its records were made.
    fed: bool,
    /// It is done at the target.
    acknowledged: bool,
}

/// What a reply is to bring.
#[derive(Debug)]
pub(super) struct Part {
    flight: u32,
    /// Which of the operation's data.
    at: u64,
    len: u32,
}

/// What a bulk message is.
#[derive(Debug)]
pub(super) enum Use {
    /// Data of an operation of this process: where they begin in it, and how many bytes they are.
    Own { flight: u32, at: u64, len: usize },
    /// Data of a peer's operation, and that operation's number.
    Peers { link: u32, number: u64, len: usize },
    /// The same of one that has no place here.
    Nobodys { link: u32, number: u64, _memory: Vec<u8> },
}

/// True if the operation brings something back.
fn has_result(op: &Op) -> bool {
    !matches!(op.kind, OpKind::Put | OpKind::Accumulate)
}

impl<C: Courier> MessageWindow<C> {
    /// Starts an operation on the memory of a peer that is reached by messages.
    #[inline]
    pub(super) fn post_far(&mut self, op: &Op, ticket: Ticket) -> Posted {
        let index = self.link_to(op.target);
        let link = &mut self.links[index as usize];
        if link.feed.is_some() || link.waiting.len() >= WAITING || self.broken {
            return Posted::NoResource;
        }
        if matches!(op.kind, OpKind::Notify | OpKind::NotifyTagged) {
            return self.post_notification(index, op, ticket);
        }
        if op.shape.is_none() && op.len < AT_ONCE && op.kind == OpKind::Put {
            if op.len == 0 {
                return Posted::Complete;
            }
            if link.room(&mut self.courier, op.len as usize).is_none() {
                self.list(index);
                return Posted::NoResource;
            }
            let to = link.own().put(Place::flat(op.disp, op.len));
            // SAFETY: the record has room for the bytes; the origin's buffer is valid until the
            // operation is complete [EP-8].
            unsafe { copy(op.origin.0 as *const u8, to.as_mut_ptr(), op.len as usize) };
            link.issued += 1;
            link.waiting.push_back(Waiting { number: link.issued, ticket, flight: None });
            self.list(index);
            return Posted::Local;
        }
        self.post_long(index, op, ticket)
    }

    /// A notification goes behind its data, in the packet that carries them or announces them if
    /// that has room. It leaves as soon as nothing else is under way: somebody waits for it.
    fn post_notification(&mut self, index: u32, op: &Op, ticket: Ticket) -> Posted {
        self.list(index);
        let link = &mut self.links[index as usize];
        link.notified = false;
        if link.room(&mut self.courier, 0).is_none() {
            return Posted::NoResource;
        }
        match op.kind {
            OpKind::Notify => link.own().notify(op.disp as u32),
            _ => link.own().notify_tagged(op.disp as u32),
        }
        link.issued += 1;
        link.waiting.push_back(Waiting { number: link.issued, ticket, flight: None });
        if link.sent == link.credited || link.bulks > 0 {
            link.flush(&mut self.courier, true);
        }
        Posted::Local
    }

    #[inline(never)]
    fn post_long(&mut self, index: u32, op: &Op, ticket: Ticket) -> Posted {
        let link = &mut self.links[index as usize];
        // Nothing has been begun: a feed that could not begin would be an operation that no refusal
        // holds back.
        if link.room(&mut self.courier, 0).is_none() {
            self.list(index);
            return Posted::NoResource;
        }
        let (mut op, mut shape) = (*op, None);
        if let Some(shaped) = op.shape.take() {
            shape = Some(Box::new(self.shapes.take(shaped)));
        }
        if let Some(single) = shape.as_deref().and_then(|shape| as_single_run(&op, shape)) {
            (op, shape) = (single, None);
        }
        if op.len == 0 {
            return Posted::Complete;
        }
        let first = self.links[index as usize].waiting.len();
        self.links[index as usize].feed = Some(Feed { op, ticket, shape, at: 0, flight: None });
        let reported = self.finished.len();
        self.feed(index);
        let link = &mut self.links[index as usize];
        if (op.len >= AT_ONCE || has_result(&op)) && link.sent == link.credited && !link.notified {
            link.flush_or_tell(&mut self.courier);
        }
        let fed = link.feed.is_none();
        debug_assert!(link.waiting.len() <= first + 1);
        self.list(index);
        // Told here instead.
        if self.finished.len() > reported && self.finished.back() == Some(&(ticket, Stage::Local)) {
            self.finished.pop_back();
            debug_assert!(fed);
            return Posted::Local;
        }
        Posted::Pending
    }

    /// Makes records of the operation that waits on a link, as far as there is room. True if any
    /// was made.
    pub(super) fn feed(&mut self, index: u32) -> bool {
        let Some(mut feed) = self.links[index as usize].feed.take() else { return false };
        let first = feed.at;
        let len = feed.op.len;
        let single = feed.shape.is_none() && matches!(feed.op.kind, OpKind::Put | OpKind::Get);
        while feed.at < len {
            let done = if single && len - feed.at >= BULK_FROM {
                self.feed_bulk(index, &mut feed)
            } else {
                self.feed_record(index, &mut feed)
            };
            if !done {
                break;
            }
        }
        let moved = feed.at != first;
        if feed.at < len {
            self.links[index as usize].feed = Some(feed);
        } else {
            self.fed(index, feed);
        }
        moved
    }

    /// All records of an operation were made.
    fn fed(&mut self, index: u32, feed: Feed) {
        let Feed { op, ticket, flight, shape, .. } = feed;
        let link = &mut self.links[index as usize];
        if !has_result(&op) {
            let flight = flight.and_then(|flight| self.flights.key_at(flight));
            link.waiting.push_back(Waiting { number: link.issued, ticket, flight });
        }
        let Some(flight) = flight else {
            // Everything was copied.
            return self.finished.push_back((ticket, Stage::Local));
        };
        let key = self.flights.key_at(flight).expect("a flight that is being fed");
        let flight = self.flights.get_mut(key).expect("just found");
        flight.fed = true;
        flight.shape = shape;
        if flight.awaited == 0 {
            self.landed(key.index);
        }
    }

    /// Nothing more of an operation is awaited.
    fn landed(&mut self, index: u32) {
        let key = self.flights.key_at(index).expect("a flight that lands");
        let flight = self.flights.take(key).expect("just found");
        // The end of a put is told by the acknowledgement, if it has not come before.
        let stage = if has_result(&flight.op) || flight.acknowledged {
            Stage::Remote
        } else {
            Stage::Local
        };
        self.finished.push_back((flight.ticket, stage));
    }

    fn flight_of(&mut self, index: u32, feed: &mut Feed) -> u32 {
        *feed.flight.get_or_insert_with(|| {
            let flight = Flight {
                ticket: feed.ticket,
                link: index,
                op: feed.op,
                shape: None,
                awaited: 0,
                fed: false,
                acknowledged: false,
            };
            self.flights.insert(flight).index
        })
    }

    fn awaits(&mut self, flight: u32) {
        let key = self.flights.key_at(flight).expect("a flight that is being fed");
        self.flights.get_mut(key).expect("just found").awaited += 1;
    }

    /// One bulk message. False if there is no resource.
    fn feed_bulk(&mut self, index: u32, feed: &mut Feed) -> bool {
        let link = &mut self.links[index as usize];
        if link.bulks >= BULKS
            || self.bulks.len() >= BULKS_HERE
            || link.room(&mut self.courier, 0).is_none()
        {
            return false;
        }
        let flight = self.flight_of(index, feed);
        let (op, at) = (&feed.op, feed.at);
        let part = (op.len - at).min(BULK);
        let bulk = Bulk(self.bulks.insert(Use::Own { flight, at, len: part as usize }).index);
        self.awaits(flight);
        let link = &mut self.links[index as usize];
        let place = Place::flat(op.disp + at, part);
        link.bulks += 1;
        link.issued += 1;
        let peer = link.peer;
        if op.kind == OpKind::Put {
            link.own().put_bulk(place);
            // SAFETY: the origin's buffer is valid until the operation is locally complete [EP-8].
            unsafe {
                self.courier.send_bulk(
                    peer,
                    Stream::Put,
                    crate::engine::Addr(op.origin.0 + at as usize),
                    part as usize,
                    bulk,
                )
            };
        } else {
            link.own().get_bulk(place);
            // SAFETY: as above; nobody else may use a result buffer until then.
            unsafe {
                self.courier.receive_bulk(
                    peer,
                    Stream::Get,
                    crate::engine::Addr(op.result.0 + at as usize),
                    part as usize,
                    bulk,
                )
            };
        }
        // The announcement must not wait for the next poll while the data go; but a notification
        // goes with it, and will see to that.
        let link = &mut self.links[index as usize];
        if !link.notified {
            link.flush(&mut self.courier, false);
        }
        feed.at += part;
        true
    }

    /// One record. False if there is no resource.
    fn feed_record(&mut self, index: u32, feed: &mut Feed) -> bool {
        let link = &mut self.links[index as usize];
        let with_result = has_result(&feed.op);
        if with_result && (link.parts >= PARTS || link.fetched >= FETCHED) {
            return false;
        }
        // A packet with room for a little is as good as a full one, but for what must not be
        // divided.
        let least = match feed.op.kind {
            OpKind::CompareAndSwap => 2 * feed.op.len as usize,
            _ => (feed.op.len - feed.at).min(LEAST) as usize,
        };
        let Some(room) = link.room(&mut self.courier, least) else { return false };
        let room = if with_result { room.min(super::wire::PAYLOAD) } else { room };
        let place = place_of(feed, room as u64);
        let len = place.bytes();
        let id = if with_result {
            let flight = self.flight_of(index, feed);
            self.awaits(flight);
            let link = &mut self.links[index as usize];
            link.parts += 1;
            link.fetched += len;
            self.parts.insert(Part { flight, at: feed.at, len: len as u32 }).index
        } else {
            0
        };
        let link = &mut self.links[index as usize];
        // SAFETY: the operation's buffers are valid until it is complete [EP-8], and the place is a
        // part of it.
        unsafe { write_record(link.own(), feed, place, id) };
        link.issued += 1;
        feed.at += len;
        true
    }

    /// The peer has not done an operation, since it has not attached what that reaches.
    #[cold]
    pub(super) fn unattached(&mut self, index: u32, what: Unattached) -> Result<(), Malformed> {
        let link = &self.links[index as usize];
        let ticket = match what.which {
            Which::Id(id) => {
                let key = self.parts.key_at(id).ok_or(Malformed::NotAsked)?;
                let Part { flight, len, .. } = *self.parts.get(key).expect("just found");
                let held = self
                    .flights
                    .key_at(flight)
                    .and_then(|key| self.flights.get(key))
                    .expect("a part belongs to a flight");
                if held.link != index {
                    return Err(Malformed::NotAsked);
                }
                let ticket = held.ticket;
                self.parts.remove(key);
                let link = &mut self.links[index as usize];
                link.parts -= 1;
                link.fetched -= u64::from(len);
                self.arrived_for(flight);
                ticket
            }
            Which::Number(number) if number <= link.done || number > link.issued => {
                return Err(Malformed::NotSent);
            }
            // Of an operation in pieces, the last one's number stands there.
            Which::Number(number) => {
                match link.waiting.get(link.waiting.partition_point(|other| other.number < number))
                {
                    Some(waiting) => waiting.ticket,
                    None => link.feed.as_ref().ok_or(Malformed::NotSent)?.ticket,
                }
            }
        };
        self.fail(index, ticket, what.disp, what.len);
        Ok(())
    }

    /// An operation of this process was not done.
    #[cold]
    fn fail(&mut self, index: u32, ticket: Ticket, disp: u64, len: u64) {
        let target = self.links[index as usize].peer;
        self.failed.push_back(ticket);
        // The first of those to a target that the application has not heard of stands for all.
        if self.faults.iter().all(|fault| fault.target != target) {
            let fault = OutOfReach { target, disp, len };
            log::error!("{fault}");
            self.faults.push(fault);
        }
    }

    /// A reply has come in.
    pub(super) fn replied(&mut self, index: u32, id: u32, data: &[u8]) -> Result<(), Malformed> {
        let key = self.parts.key_at(id).ok_or(Malformed::NotAsked)?;
        let Part { flight, at, len } = *self.parts.get(key).expect("just found");
        let flight_key = self.flights.key_at(flight).expect("a part belongs to a flight");
        let held = self.flights.get(flight_key).expect("just found");
        if held.link != index {
            return Err(Malformed::NotAsked);
        }
        if data.len() != len as usize {
            return Err(Malformed::Lengths);
        }
        let feeding =
            self.links[index as usize].feed.as_ref().filter(|feed| feed.flight == Some(flight));
        let shape = feeding.map_or(held.shape.as_deref(), |feed| feed.shape.as_deref());
        let to = held.op.result.0 as *mut u8;
        // SAFETY: the result buffer is valid until the operation is complete [EP-8], and the part
        // lies in it.
        unsafe {
            match shape.and_then(|shape| shape.result.as_ref()) {
                Some(side) => datatype::unpack(data.as_ptr(), to, side, at, data.len()),
                None => copy(data.as_ptr(), to.add(at as usize), data.len()),
            }
        }
        self.parts.remove(key);
        let link = &mut self.links[index as usize];
        link.parts -= 1;
        link.fetched -= u64::from(len);
        self.arrived_for(flight);
        Ok(())
    }

    /// Something of an operation has arrived.
    fn arrived_for(&mut self, flight: u32) {
        let key = self.flights.key_at(flight).expect("a flight in the air");
        let held = self.flights.get_mut(key).expect("just found");
        held.awaited -= 1;
        if held.awaited == 0 && held.fed {
            self.landed(flight);
        }
    }

    /// A bulk message was sent or received.
    pub(super) fn bulk_moved(&mut self, bulk: Bulk, bytes: usize) {
        let Some(key) = self.bulks.key_at(bulk.0) else { return };
        let what = self.bulks.take(key).expect("just found");
        if self.broken {
            return;
        }
        match what {
            Use::Own { flight, at, len } => {
                let key = self.flights.key_at(flight).expect("a flight in the air");
                let Flight { link: index, ref op, ticket, .. } =
                    *self.flights.get(key).expect("just found");
                let disp = op.disp + at;
                if bytes != len {
                    // The peer says so that there is nothing to get.
                    if op.kind != OpKind::Get || bytes != 0 {
                        return self.refuse(
                            self.links[index as usize].peer,
                            Some(index),
                            Malformed::Lengths,
                        );
                    }
                    self.fail(index, ticket, disp, len as u64);
                }
                self.links[index as usize].bulks -= 1;
                self.list(index);
                self.arrived_for(flight);
            }
            Use::Peers { link, len, .. } if len != bytes => {
                self.refuse(self.links[link as usize].peer, Some(link), Malformed::Lengths);
            }
            Use::Peers { link, number, .. } | Use::Nobodys { link, number, .. } => {
                self.bulk_done(link, number)
            }
        }
    }

    /// The peer says how many operations are done.
    pub(super) fn acknowledged(&mut self, index: u32, done: u64) -> Result<(), Malformed> {
        let link = &mut self.links[index as usize];
        if done > link.issued {
            return Err(Malformed::NotSent);
        }
        link.done = link.done.max(done);
        while let Some(Waiting { ticket, flight, .. }) =
            link.waiting.pop_front_if(|first| first.number <= link.done)
        {
            match flight.and_then(|flight| self.flights.get_mut(flight)) {
                Some(flight) => flight.acknowledged = true,
                None => self.finished.push_back((ticket, Stage::Remote)),
            }
        }
        if link.waiting.is_empty() && link.waiting.capacity() > KEEP {
            link.waiting = std::collections::VecDeque::new();
        }
        Ok(())
    }
}

/// Places that a link keeps when nothing waits.
const KEEP: usize = 256;
/// Bytes of payload for which a new packet is not begun.
const LEAST: u64 = 512;

/// A put or get whose sides are one run each, as the plain operation that it is.
pub(super) fn as_single_run(op: &Op, shape: &Shape) -> Option<Op> {
    let target = shape.target.run()?;
    let disp = u64::try_from(shape.disp.checked_add(target)?).ok()?;
    let mut single = Op { disp, ..*op };
    match op.kind {
        OpKind::Put => {
            single.origin.0 =
                single.origin.0.wrapping_add_signed(shape.origin.as_ref()?.run()? as isize)
        }
        OpKind::Get => {
            single.result.0 =
                single.result.0.wrapping_add_signed(shape.result.as_ref()?.run()? as isize)
        }
        _ => return None,
    }
    Some(single)
}

/// Where at the target the next data of an operation lie, at most `room` bytes, in whole elements.
fn place_of(feed: &Feed, room: u64) -> Place {
    let op = &feed.op;
    let limit = match op.kind {
        OpKind::Put | OpKind::Get => room,
        OpKind::CompareAndSwap => op.len,
        _ => whole(room as usize, op.extent) as u64,
    };
    match &feed.shape {
        None => Place::flat(op.disp + feed.at, (op.len - feed.at).min(limit)),
        Some(shape) => {
            let (_, limit) = shape.part(op, feed.at, limit);
            let runs = shape.target.walk(feed.at).next_runs(limit).expect("data are left");
            Place {
                disp: (shape.disp + runs.at) as u64,
                len: runs.len,
                stride: runs.stride,
                count: runs.count as u32,
            }
        }
    }
}

/// Writes the record of the next data of an operation.
///
/// # Safety
/// The operation's buffers are valid, and `place` is a part of it for which the packet has room.
unsafe fn write_record(packet: &mut Packet, feed: &Feed, place: Place, id: u32) {
    let op = match &feed.shape {
        Some(shape) => &shape.part(&feed.op, feed.at, place.bytes()).0,
        None => &feed.op,
    };
    let how = How { element: op.element, reduction: op.reduction, extent: op.extent };
    let data = match op.kind {
        OpKind::Put => packet.put(place),
        OpKind::Get => return packet.get(place, id),
        OpKind::Accumulate => packet.accumulate(place, how),
        OpKind::GetAccumulate => packet.fetch(place, how, id, op.reduction != reduction::NO_OP),
        OpKind::CompareAndSwap => packet.swap(place, id),
        OpKind::Notify | OpKind::NotifyTagged => unreachable!("a notification has no data"),
    };
    let (from, to) = (op.origin.0 as *const u8, data.as_mut_ptr());
    let len = place.bytes() as usize;
    // SAFETY: the caller's promise.
    unsafe {
        match feed.shape.as_ref().and_then(|shape| shape.origin.as_ref()) {
            _ if data.is_empty() => {}
            Some(side) => datatype::pack(from, side, feed.at, to, len),
            None => copy(from.add(feed.at as usize), to, len),
        }
        if op.kind == OpKind::CompareAndSwap {
            copy(op.compare.0 as *const u8, to.add(len), len);
        }
    }
}

impl Link {
    /// A word that the peer writes has risen.
    #[inline]
    pub(super) fn raise(&mut self, word: Word, value: u64) {
        let place = &mut self.words.signals[word as usize];
        *place = value.max(*place);
    }

    /// Takes note of what the peer has taken out.
    pub(super) fn credit(&mut self, taken: u64) -> Result<(), Malformed> {
        if taken > self.sent {
            return Err(Malformed::NotSent);
        }
        self.credited = self.credited.max(taken);
        Ok(())
    }
}
