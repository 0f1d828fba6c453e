//! Records of peers: checked, and done on this process's memory and words.

use super::courier::{Bulk, Courier, Stream};
use super::link::{BULKS, CREDITS, FETCHED, Held};
use super::origin::Use;
use super::wire::{How, Malformed, PAYLOAD, Place, Reader, Record, Unattached, Which};
use super::{MessageWindow, Refused};
use crate::engine::{Addr, Arrival, LockTicket, LockWord, Port, Rank};
use crate::transport::copy;
use crate::transport::datatype::element::{FIRST_FOREIGN, native_extent, native_has, reduction};
use crate::transport::datatype::{
    Combine, EXTENT_MAX, Pieces, combine_pieces, compare_swap, copy_pieces,
};

/// Packets taken in by one poll.
const PACKETS_PER_POLL: usize = 32;
/// Bytes of replies that one packet may want: an origin asks for no more before it has some of
/// them. A record's runs are no more than its bytes, so this bounds the work for a packet.
const REPLIES_MAX: u64 = FETCHED + PAYLOAD as u64;
/// Bulk messages of a peer that may be under way: those that it has asked for, in both directions.
const BULKS_OF_A_PEER: usize = 2 * BULKS as usize;

impl<C: Courier> MessageWindow<C> {
    /// Takes in the packets that have come, a bounded number.
    pub(super) fn take_packets(&mut self) -> bool {
        for taken in 0..PACKETS_PER_POLL {
            let Some((peer, packet)) = self.courier.receive() else { return taken > 0 };
            let index = if peer < self.members.size() { Some(self.link_to(peer)) } else { None };
            match index {
                None => self.refuse(peer, None, Malformed::UnknownWord),
                // One that this process may not have met when the window ended.
                Some(index) if self.broken => {
                    let lost = self.lost.map(|(rank, _)| rank);
                    self.links[index as usize].end(&mut self.courier, lost);
                }
                Some(index) => {
                    self.list(index);
                    if let Err(reason) = self.take_packet(index, &packet.bytes) {
                        self.refuse(peer, Some(index), reason);
                    }
                }
            }
            self.taken.push(packet);
        }
        true
    }

    /// Nothing that stands in a message which is wrong can be trusted, nor what the peer sends
    /// after it. Who waits for that peer may wait for ever, and so may who waits for those: the
    /// window ends for all that this process has met.
    #[cold]
    pub(super) fn refuse(&mut self, peer: Rank, index: Option<u32>, reason: Malformed) {
        if let Some(index) = index
            && reason == Malformed::RefusedThere
        {
            // It knows.
            self.links[index as usize].broken = true;
        }
        self.break_off();
        let refused = Refused { peer, reason };
        log::error!("{refused}");
        self.refused.push_back(refused);
    }

    /// Ends the window for all that this process has met, by whatever way.
    #[cold]
    pub(super) fn break_off(&mut self) {
        let mates = (0..self.members.count()).map(|place| self.members.rank_at(place));
        let met: Vec<Rank> = self
            .courier
            .direct()
            .map_or_else(Vec::new, |direct| direct.peers().chain(mates).collect());
        for peer in met.into_iter().filter(|peer| *peer != self.members.me()).collect::<Vec<_>>() {
            self.link_to(peer);
        }
        let lost = self.lost.map(|(rank, _)| rank);
        for link in self.links.iter_mut().filter(|link| !link.broken) {
            link.end(&mut self.courier, lost);
        }
        self.courier.cancel_bulks();
        self.broken = true;
        self.wind_up();
    }

    fn take_packet(&mut self, index: u32, bytes: &[u8]) -> Result<(), Malformed> {
        let (header, mut reader) = Reader::new(bytes)?;
        let link = &mut self.links[index as usize];
        link.met = true;
        link.credit(header.taken)?;
        if header.counted {
            link.taken += 1;
            if link.taken - link.told_taken > CREDITS {
                return Err(Malformed::TooMuch);
            }
        }
        self.acknowledged(index, header.done)?;
        let mut wanted = 0;
        while let Some(record) = reader.next_record()? {
            wanted += record.wants();
            if wanted > REPLIES_MAX {
                return Err(Malformed::TooMuch);
            }
            self.take_record(index, record)?;
        }
        if header.ack_wanted {
            let link = &mut self.links[index as usize];
            link.tell = true;
            link.wanted = link.seen;
        }
        Ok(())
    }

    fn take_record(&mut self, index: u32, record: Record<'_>) -> Result<(), Malformed> {
        if let Some(place) = record.place()
            && !self.check(place)?
        {
            return self.leave_undone(index, place, &record);
        }
        let link = &mut self.links[index as usize];
        match record {
            Record::Put(place, data) => {
                // SAFETY: the place was checked; the payload has as many bytes.
                unsafe { copy_pieces(data.as_ptr(), self.memory(), &pieces(place, 0, true)) };
            }
            Record::PutBulk(place) => return self.bulk(index, place, Stream::Put),
            Record::GetBulk(place) => return self.bulk(index, place, Stream::Get),
            Record::Get(place, id) => {
                let (len, memory) = (place.bytes() as usize, self.memory());
                let to = self.links[index as usize].reply(&mut self.courier, len).reply(id, len);
                // SAFETY: as above, into a reply of that length.
                unsafe { copy_pieces(memory, to.as_mut_ptr(), &pieces(place, 0, false)) };
            }
            Record::Accumulate(place, how, data) => {
                self.check_how(place, how)?;
                let memory = self.memory();
                let held = self.near.lock_accumulate();
                // SAFETY: as above, under the lock [AT-1].
                unsafe { combine(&self.settings, &mut self.scratch, how, data, memory, place) };
                drop(held);
            }
            Record::Fetch(place, how, id, data) => {
                self.check_how(place, how)?;
                if data.is_empty() != (how.reduction == reduction::NO_OP) {
                    return Err(Malformed::Lengths);
                }
                let (len, memory) = (place.bytes() as usize, self.memory());
                let to = self.links[index as usize].reply(&mut self.courier, len).reply(id, len);
                let held = self.near.lock_accumulate();
                // SAFETY: as above.
                unsafe {
                    copy_pieces(memory, to.as_mut_ptr(), &pieces(place, 0, false));
                    combine(&self.settings, &mut self.scratch, how, data, memory, place);
                }
                drop(held);
            }
            Record::Swap(place, id, data) => {
                let (len, memory) = (place.bytes() as usize, self.memory());
                if len > EXTENT_MAX {
                    return Err(Malformed::Lengths);
                }
                let to = self.links[index as usize].reply(&mut self.courier, len).reply(id, len);
                let held = self.near.lock_accumulate();
                // SAFETY: as above; the payload is two elements.
                unsafe {
                    compare_swap(
                        memory.wrapping_add(place.disp as usize),
                        data[len..].as_ptr(),
                        data.as_ptr(),
                        to.as_mut_ptr(),
                        len,
                    );
                }
                drop(held);
            }
            Record::Reply(id, data) => return self.replied(index, id, data),
            Record::Notify(counter) => {
                if counter >= self.near.counters_of(self.members.place()) {
                    return Err(Malformed::UnknownCounter);
                }
                if link.complete() == link.seen && link.held.is_empty() {
                    self.near.notify_here(counter);
                } else {
                    link.held.push_back((link.seen, Held::Notify(counter)));
                }
            }
            Record::NotifyTagged(tag) => {
                if i32::try_from(tag).is_err() {
                    return Err(Malformed::UnknownTag);
                }
                let arrival = Arrival { source: link.peer, tag };
                if link.complete() == link.seen && link.held.is_empty() {
                    self.tell_here(arrival);
                } else {
                    link.held.push_back((link.seen, Held::Tell(arrival)));
                }
            }
            Record::Signal(word, value) => {
                if link.complete() == link.seen && link.held.is_empty() {
                    link.raise(word, value);
                } else {
                    link.held.push_back((link.seen, Held::Signal(word, value)));
                }
                return Ok(());
            }
            Record::Access(word, access, id) => {
                let rank = match word {
                    LockWord::Next { target, .. } | LockWord::Grant { target } => target,
                    LockWord::Holders | LockWord::Intent | LockWord::Licensed => self.members.me(),
                    _ => 0,
                };
                let at_home =
                    !matches!(word, LockWord::Holders | LockWord::Intent | LockWord::Licensed)
                        || rank == 0;
                if rank >= self.members.size() || !at_home {
                    return Err(Malformed::UnknownWord);
                }
                let old = self.access_here(word, access);
                self.links[index as usize].reply(&mut self.courier, 8).answer(id, old);
                return Ok(());
            }
            Record::Answer(ticket, value) => {
                if self.asked.get(&ticket) != Some(&link.peer) {
                    return Err(Malformed::NotAsked);
                }
                self.asked.remove(&ticket);
                self.answers.push_back((LockTicket(ticket), value));
                return Ok(());
            }
            Record::Refusal => return Err(Malformed::RefusedThere),
            Record::Lost(rank) => {
                if rank >= self.members.size() {
                    return Err(Malformed::UnknownProcess);
                }
                let peer = link.peer;
                // It knows.
                link.broken = true;
                self.lose(
                    if rank == self.members.me() { peer } else { rank },
                    &format!("process {peer} says so"),
                );
                return Ok(());
            }
            Record::Unattached(what) => return self.unattached(index, what),
            Record::Farewell => {
                link.left = true;
                return Ok(());
            }
        }
        self.seen(index);
        Ok(())
    }

    /// A tagged notification takes effect: behind those that came before it, by whatever way.
    fn tell_here(&mut self, arrival: Arrival) {
        while let Some(before) = self.next_told_near() {
            self.told.push_back(before);
        }
        self.told.push_back(arrival);
    }

    /// The next tagged notification of a process that shares memory with this one.
    #[inline]
    pub(super) fn next_told_near(&mut self) -> Option<Arrival> {
        let Arrival { source, tag } = self.near.next_arrival()?;
        Some(Arrival { source: self.members.rank_at(source), tag })
    }

    /// This process's window memory.
    #[inline]
    fn memory(&self) -> *mut u8 {
        self.near.base().0 as *mut u8
    }

    /// All of a place lies in this process's window, or is attached to it. Where it is not
    /// attached, the program is wrong and not the message: the origin cannot know what is.
    #[inline]
    fn check(&self, place: Place) -> Result<bool, Malformed> {
        let reaches =
            place.bounds().is_some_and(|(low, end)| self.near.reaches_own(low, end - low));
        // Between runs there may be memory that is not attached.
        let Place { disp, len, stride, count } = place;
        let is_inside = reaches
            || (count > 1 && self.near.has_attached_runs(disp, len, stride, u64::from(count)));
        if is_inside || self.near.is_dynamic() {
            Ok(is_inside)
        } else {
            Err(Malformed::OutsideWindow)
        }
    }

    /// Datatype and reduction are known and go together, and runs hold whole elements.
    fn check_how(&self, place: Place, how: How) -> Result<(), Malformed> {
        let (extent, span) = if how.element.0 < FIRST_FOREIGN {
            native_extent(how.element)
                .filter(|_| native_has(how.element, how.reduction))
                .map(|extent| (extent, extent))
        } else {
            (self.settings.foreign)(how)
        }
        .ok_or(Malformed::UnknownReduction)?;
        if extent != how.extent || extent == 0 {
            return Err(Malformed::UnknownReduction);
        }
        let (extent, span) = (u64::from(extent), u64::from(span));
        let is_whole = place.len.is_multiple_of(extent) || place.len % extent == span % extent;
        if is_whole { Ok(()) } else { Err(Malformed::Lengths) }
    }

    /// An operation of a peer was seen, and is done.
    #[inline]
    fn seen(&mut self, index: u32) {
        let link = &mut self.links[index as usize];
        link.seen += 1;
        if !link.unfinished.is_empty() {
            link.unfinished.push_back((link.seen, true));
        }
    }

    /// A bulk message is announced or asked for.
    fn bulk(&mut self, index: u32, place: Place, stream: Stream) -> Result<(), Malformed> {
        let at = Addr(self.memory() as usize + place.disp as usize);
        let (peer, bulk) = self.begin_bulk(index, |link, number| Use::Peers {
            link,
            number,
            len: place.len as usize,
        })?;
        // SAFETY: the place was checked; window memory is the library's until the window is freed,
        // which waits for all peers.
        unsafe {
            match stream {
                Stream::Put => {
                    self.courier.receive_bulk(peer, stream, at, place.len as usize, bulk)
                }
                Stream::Get => self.courier.send_bulk(peer, stream, at, place.len as usize, bulk),
            }
        }
        Ok(())
    }

    /// An operation on memory that is not attached: its origin is told, and all that belongs to it
    /// is taken out of the way.
    #[cold]
    fn leave_undone(
        &mut self,
        index: u32,
        place: Place,
        record: &Record<'_>,
    ) -> Result<(), Malformed> {
        let link = &mut self.links[index as usize];
        let which = match *record {
            Record::Get(_, id) | Record::Fetch(_, _, id, _) | Record::Swap(_, id, _) => {
                Which::Id(id)
            }
            _ => Which::Number(link.seen + 1),
        };
        let (disp, end) = place.bounds().unwrap_or((place.disp, u64::MAX));
        let what = Unattached { disp, len: end - disp, which };
        log::info!(
            "process {} of the window reaches for {} bytes at {disp:#x}, which are not attached",
            link.peer,
            what.len
        );
        match record {
            Record::PutBulk(_) => {
                link.reject(&mut self.courier, what);
                let len = place.len as usize;
                let mut nowhere = Vec::new();
                nowhere.try_reserve_exact(len).map_err(|_| Malformed::TooMuch)?;
                let at = Addr(nowhere.as_mut_ptr() as usize);
                let (peer, bulk) = self.begin_bulk(index, |link, number| Use::Nobodys {
                    link,
                    number,
                    _memory: nowhere,
                })?;
                // SAFETY: the memory is kept until the message has come.
                unsafe { self.courier.receive_bulk(peer, Stream::Put, at, len, bulk) };
            }
            Record::GetBulk(_) => {
                // A message without bytes says it.
                let (peer, bulk) =
                    self.begin_bulk(index, |link, number| Use::Peers { link, number, len: 0 })?;
                // SAFETY: nothing is read.
                unsafe {
                    self.courier.send_bulk(peer, Stream::Get, Addr(self.memory() as usize), 0, bulk)
                };
            }
            _ => {
                link.reject(&mut self.courier, what);
                self.seen(index);
            }
        }
        Ok(())
    }

    /// Numbers an operation of a peer that is a bulk message.
    fn begin_bulk(
        &mut self,
        index: u32,
        what: impl FnOnce(u32, u64) -> Use,
    ) -> Result<(Rank, Bulk), Malformed> {
        let link = &mut self.links[index as usize];
        if link.unfinished.iter().filter(|(_, done)| !done).count() >= BULKS_OF_A_PEER {
            return Err(Malformed::TooMuch);
        }
        link.seen += 1;
        let (peer, number) = (link.peer, link.seen);
        link.unfinished.push_back((number, false));
        Ok((peer, Bulk(self.bulks.insert(what(index, number)).index)))
    }

    /// A bulk message of a peer's operation has come or gone: that operation is done.
    pub(super) fn bulk_done(&mut self, index: u32, number: u64) {
        let link = &mut self.links[index as usize];
        if let Some(place) = link.unfinished.iter_mut().find(|(other, _)| *other == number) {
            place.1 = true;
        }
        while link.unfinished.front().is_some_and(|(_, done)| *done) {
            link.unfinished.pop_front();
        }
        let complete = link.complete();
        while let Some((_, held)) = {
            let link = &mut self.links[index as usize];
            link.held.pop_front_if(|(after, _)| *after <= complete)
        } {
            match held {
                Held::Signal(word, value) => self.links[index as usize].raise(word, value),
                Held::Notify(counter) => self.near.notify_here(counter),
                Held::Tell(arrival) => self.tell_here(arrival),
            }
        }
        self.list(index);
    }
}

/// The runs of a place in the window beside the same data packed: from the packed side to the
/// window, or back.
#[inline]
fn pieces(place: Place, packed: i64, inward: bool) -> Pieces {
    let (window, beside) = ((place.disp as i64, place.stride), (packed, place.len as i64));
    let (from, to) = if inward { (beside, window) } else { (window, beside) };
    Pieces {
        at: [from.0, to.0],
        stride: [from.1, to.1],
        len: place.len,
        count: u64::from(place.count),
    }
}

/// Reduces packed data into window memory.
///
/// # Safety
/// The place lies in the memory at `memory`, which nobody else accesses meanwhile; `data` has as
/// many bytes, or none for no_op.
unsafe fn combine(
    settings: &super::Settings,
    scratch: &mut Vec<u128>,
    how: How,
    data: &[u8],
    memory: *mut u8,
    place: Place,
) {
    if how.reduction == reduction::NO_OP {
        return;
    }
    let How { element, reduction, extent } = how;
    let combine = Combine { element, reduction, extent, foreign: settings.foreign_reduce };
    if element.0 < FIRST_FOREIGN || reduction == reduction::REPLACE {
        // SAFETY: the caller's promise.
        return unsafe { combine_pieces(&combine, data.as_ptr(), memory, &pieces(place, 0, true)) };
    }
    // The host may want its elements aligned, and whole.
    let len = place.len as usize;
    let room = len.next_multiple_of(usize::from(extent));
    scratch.resize(room.div_ceil(size_of::<u128>()), 0);
    let aligned = scratch.as_mut_ptr().cast::<u8>();
    let mut to = memory.wrapping_add(place.disp as usize);
    for run in data.chunks_exact(len) {
        // SAFETY: the caller's promise; the scratch has room for a run.
        unsafe {
            copy(run.as_ptr(), aligned, len);
            combine.apply(aligned, to, len);
        }
        to = to.wrapping_offset(place.stride as isize);
    }
}
