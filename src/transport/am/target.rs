//! The target side: checks the records of peers and applies them to this process's memory and
//! words.

use super::channel::{Channel, MAX_TAGS, TransferId, TransferKind, TransferTag};
use super::origin::Transfer;
use super::peer::{CREDITS, Deferred, MAX_REPLY_BYTES, MAX_TRANSFERS};
use super::wire::{ElementOp, Malformed, OpRef, PAYLOAD, Place, Reader, Record, Unattached};
use super::{MessageWindow, Refused};
use crate::engine::{Addr, Arrival, LockTicket, LockWord, Port, Rank};
use crate::transport::copy;
use crate::transport::datatype::element::{FIRST_FOREIGN, native_extent, native_has, reduction};
use crate::transport::datatype::{
    Combine, EXTENT_MAX, Pieces, combine_pieces, compare_swap, copy_pieces,
};

/// Packets handled by one poll at most.
const PACKETS_PER_POLL: usize = 32;
/// Bytes of replies that one packet may request: an origin never has more outstanding. A record has
/// no more runs than bytes, so this bounds the work per packet.
const MAX_REPLY_BYTES_PER_PACKET: u64 = MAX_REPLY_BYTES + PAYLOAD as u64;
/// Rendezvous transfers in flight at most that a peer has started, in both directions.
const MAX_TRANSFERS_SERVED: usize = 2 * MAX_TRANSFERS as usize;

impl<C: Channel + ?Sized> MessageWindow<C> {
    /// Handles received packets, a bounded number. True if there was one.
    pub(super) fn take_packets(&mut self) -> bool {
        for taken in 0..PACKETS_PER_POLL {
            let Some((rank, packet)) = self.channel.receive() else { return taken > 0 };
            if rank >= self.members.size() {
                self.refuse(rank, Malformed::UnknownWord);
            } else {
                let index = self.peer_index(rank);
                if self.broken {
                    // It may be a first contact after the window has failed: tell the peer.
                    let lost = self.lost.map(|(rank, _)| rank);
                    self.peers[index as usize].fail(&mut *self.channel, lost);
                } else {
                    self.activate(index);
                    if let Err(reason) = self.take_packet(index, &packet.bytes) {
                        self.refuse(rank, reason);
                    }
                }
            }
            self.taken.push(packet);
        }
        true
    }

    /// Refuses a message and fails the window for all peers of this process. Neither the rest of
    /// the message nor later ones can be trusted. Waits for this peer may never end, and waits for
    /// processes that wait for it.
    #[cold]
    pub(super) fn refuse(&mut self, peer: Rank, reason: Malformed) {
        self.fail_window();
        let refused = Refused { peer, reason };
        log::error!("{refused}");
        self.refused.push_back(refused);
    }

    /// As [`refuse`](Self::refuse), with the peer's index.
    #[cold]
    pub(super) fn refuse_from(&mut self, index: u32, reason: Malformed) {
        self.refuse(self.peers[index as usize].rank, reason);
    }

    /// Marks the window as failed and tells all peers that this process has contacted, by messages,
    /// RDMA or shared memory.
    #[cold]
    pub(super) fn fail_window(&mut self) {
        let mates = (0..self.members.count()).map(|at| self.members.window_rank(at));
        let contacted: Vec<Rank> = self.channel.endpoint_mut().map_or_else(Vec::new, |endpoint| {
            endpoint.peers().chain(mates).filter(|peer| *peer != self.members.me()).collect()
        });
        for rank in contacted {
            self.peer_index(rank);
        }
        let lost = self.lost.map(|(rank, _)| rank);
        for peer in &mut self.peers {
            peer.fail(&mut *self.channel, lost);
        }
        self.channel.cancel_receives();
        self.broken = true;
        self.quiesce();
    }

    fn take_packet(&mut self, index: u32, bytes: &[u8]) -> Result<(), Malformed> {
        let (header, mut reader) = Reader::new(bytes)?;
        let peer = &mut self.peers[index as usize];
        peer.contacted = true;
        peer.credit(header.taken)?;
        if header.counted {
            peer.taken += 1;
            if peer.taken - peer.taken_reported > CREDITS {
                return Err(Malformed::TooMuch);
            }
        }
        self.acknowledged(index, header.done)?;
        let mut reply_bytes = 0;
        while let Some(record) = reader.next_record()? {
            reply_bytes += record.reply_bytes();
            if reply_bytes > MAX_REPLY_BYTES_PER_PACKET {
                return Err(Malformed::TooMuch);
            }
            self.take_record(index, record)?;
        }
        if header.ack_wanted {
            let peer = &mut self.peers[index as usize];
            peer.ack_due = true;
            peer.ack_wanted_up_to = peer.received;
        }
        Ok(())
    }

    fn take_record(&mut self, index: u32, record: Record<'_>) -> Result<(), Malformed> {
        if let Some(place) = record.place()
            && !self.check_place(place)?
        {
            return self.reject_unattached(index, place, &record);
        }
        let memory = self.memory();
        let peer = &mut self.peers[index as usize];
        match record {
            Record::Put(place, data) => {
                // SAFETY: `check_place` found the place in window memory, and the reader has
                // checked that the payload has as many bytes.
                unsafe { copy_pieces(data.as_ptr(), memory, &pieces(place, true)) };
            }
            Record::PutRendezvous(place, tag) => {
                return self.serve_transfer(index, place, transfer_tag(TransferKind::Put, tag)?);
            }
            Record::GetRendezvous(place, tag) => {
                return self.serve_transfer(index, place, transfer_tag(TransferKind::Get, tag)?);
            }
            Record::Get(place, id) => {
                let len = place.bytes() as usize;
                let to = peer.reply_packet(&mut *self.channel, len).reply(id, len);
                // SAFETY: `check_place` found the place in window memory, and the reply has as many
                // bytes.
                unsafe { copy_pieces(memory, to.as_mut_ptr(), &pieces(place, false)) };
            }
            Record::Accumulate(place, how, data) => {
                self.check_reduction(place, how)?;
                let _held = self.shm.lock_accumulate();
                // SAFETY: `check_place` found the place in window memory, the reader has checked
                // that the payload has as many bytes, and the accumulate lock is held [AT-1].
                unsafe { combine(&self.settings, &mut self.scratch, how, data, memory, place) };
            }
            Record::Fetch(place, how, id, data) => {
                self.check_reduction(place, how)?;
                if data.is_empty() != (how.reduction == reduction::NO_OP) {
                    return Err(Malformed::Lengths);
                }
                let len = place.bytes() as usize;
                let peer = &mut self.peers[index as usize];
                let to = peer.reply_packet(&mut *self.channel, len).reply(id, len);
                let _held = self.shm.lock_accumulate();
                // SAFETY: `check_place` found the place in window memory. The reply has as many
                // bytes, and so has the payload, but for a no_op. The accumulate lock is held.
                unsafe {
                    copy_pieces(memory, to.as_mut_ptr(), &pieces(place, false));
                    combine(&self.settings, &mut self.scratch, how, data, memory, place);
                }
            }
            Record::Swap(place, id, data) => {
                let len = place.bytes() as usize;
                if len > EXTENT_MAX {
                    return Err(Malformed::Lengths);
                }
                let to = peer.reply_packet(&mut *self.channel, len).reply(id, len);
                let _held = self.shm.lock_accumulate();
                let at = memory.wrapping_add(place.disp as usize);
                let (new, compare) = data.split_at(len);
                // SAFETY: `check_place` found the element in window memory. The payload has two
                // elements and the reply one. The accumulate lock is held.
                unsafe { compare_swap(at, compare.as_ptr(), new.as_ptr(), to.as_mut_ptr(), len) };
            }
            Record::Reply(id, data) => return self.replied(index, id, data),
            Record::Notify(counter) => {
                if counter >= self.shm.counters_of(self.members.own_segment_rank()) {
                    return Err(Malformed::UnknownCounter);
                }
                self.apply_in_order(index, Deferred::Notify(counter));
            }
            Record::NotifyTagged(tag) => {
                if i32::try_from(tag).is_err() {
                    return Err(Malformed::UnknownTag);
                }
                let arrival = Arrival { source: peer.rank, tag };
                self.apply_in_order(index, Deferred::NotifyTagged(arrival));
            }
            Record::Signal(word, value) => {
                self.apply_in_order(index, Deferred::Signal(word, value));
                return Ok(());
            }
            Record::Access(word, access, id) => {
                let is_known = match word {
                    LockWord::Next { target, .. } | LockWord::Grant { target } => {
                        target < self.members.size()
                    }
                    // Words of the window, which rank 0 keeps.
                    LockWord::Holders | LockWord::Intent | LockWord::Licensed => {
                        self.members.me() == 0
                    }
                    _ => true,
                };
                if !is_known {
                    return Err(Malformed::UnknownWord);
                }
                let old = self.access_here(word, access);
                self.peers[index as usize].reply_packet(&mut *self.channel, 8).answer(id, old);
                return Ok(());
            }
            Record::Answer(ticket, value) => {
                if self.pending_atomics.get(&ticket) != Some(&peer.rank) {
                    return Err(Malformed::UnexpectedReply);
                }
                self.pending_atomics.remove(&ticket);
                self.answers.push_back((LockTicket(ticket), value));
                return Ok(());
            }
            Record::Refusal => {
                // The peer ignores this process already.
                peer.failed = true;
                return Err(Malformed::RefusedByPeer);
            }
            Record::Lost(lost) => {
                if lost >= self.members.size() {
                    return Err(Malformed::UnknownProcess);
                }
                // The peer ignores this process already.
                peer.failed = true;
                let reporter = peer.rank;
                let lost = if lost == self.members.me() { reporter } else { lost };
                self.peer_lost(lost, &format!("process {reporter} says so"));
                return Ok(());
            }
            Record::Unattached(what) => return self.unattached(index, what),
            Record::Close => {
                peer.close_received = true;
                return Ok(());
            }
        }
        self.count_done(index);
        Ok(())
    }

    /// Applies a signal or notification, once all operations of the peer before it are done.
    fn apply_in_order(&mut self, index: u32, effect: Deferred) {
        let peer = &mut self.peers[index as usize];
        if peer.is_caught_up() {
            self.apply(index, effect);
        } else {
            peer.deferred.push_back((peer.received, effect));
        }
    }

    #[inline]
    fn apply(&mut self, index: u32, effect: Deferred) {
        match effect {
            Deferred::Signal(word, value) => self.peers[index as usize].raise(word, value),
            Deferred::Notify(counter) => self.shm.notify_here(counter),
            Deferred::NotifyTagged(arrival) => {
                // Keep the order: node-mates' notifications that have arrived come first.
                while let Some(before) = self.next_shm_arrival() {
                    self.arrivals.push_back(before);
                }
                self.arrivals.push_back(arrival);
            }
        }
    }

    /// The next tagged notification of a process that shares memory with this one.
    #[inline]
    pub(super) fn next_shm_arrival(&mut self) -> Option<Arrival> {
        let Arrival { source, tag } = self.shm.next_arrival()?;
        Some(Arrival { source: self.members.window_rank(source), tag })
    }

    /// This process's window memory.
    #[inline]
    fn memory(&self) -> *mut u8 {
        self.shm.base().0 as *mut u8
    }

    /// Whether all of a place lies in this process's window memory. `Ok(false)`: part of it is not
    /// attached to a dynamic window. That is an error of the program and not of the message, since
    /// the origin cannot know what is attached.
    #[inline]
    fn check_place(&self, place: Place) -> Result<bool, Malformed> {
        let reaches = place.bounds().is_some_and(|(low, end)| self.shm.reaches_own(low, end - low));
        // Memory between the runs need not be attached.
        let Place { disp, len, stride, count } = place;
        let is_inside = reaches
            || (count > 1 && self.shm.has_attached_runs(disp, len, stride, u64::from(count)));
        if is_inside || self.shm.is_dynamic() {
            Ok(is_inside)
        } else {
            Err(Malformed::OutsideWindow)
        }
    }

    /// Checks that datatype and reduction are known and go together, and that runs hold whole
    /// elements.
    fn check_reduction(&self, place: Place, how: ElementOp) -> Result<(), Malformed> {
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

    /// Counts an operation of a peer that is received and done.
    #[inline]
    fn count_done(&mut self, index: u32) {
        let peer = &mut self.peers[index as usize];
        peer.received += 1;
        if !peer.unfinished.is_empty() {
            peer.unfinished.push_back((peer.received, true));
        }
    }

    /// Takes part in a rendezvous transfer that a peer has announced.
    fn serve_transfer(
        &mut self,
        index: u32,
        place: Place,
        tag: TransferTag,
    ) -> Result<(), Malformed> {
        let at = Addr(self.memory() as usize + place.disp as usize);
        let len = place.len as usize;
        let (peer, id) =
            self.number_transfer(index, |peer, number| Transfer::Served { peer, number, len })?;
        // SAFETY: `check_place` found the place in window memory, which stays valid until the
        // window is freed. That waits for all transfers; after a failure they are cancelled.
        unsafe {
            match tag.kind {
                TransferKind::Put => self.channel.receive_data(peer, tag, at, len, id),
                TransferKind::Get => self.channel.send_data(peer, tag, at, len, id),
            }
        }
        Ok(())
    }

    /// Reports an operation on memory that is not attached to its origin, and discards its data.
    #[cold]
    fn reject_unattached(
        &mut self,
        index: u32,
        place: Place,
        record: &Record<'_>,
    ) -> Result<(), Malformed> {
        let peer = &mut self.peers[index as usize];
        let which = match *record {
            Record::Get(_, id) | Record::Fetch(_, _, id, _) | Record::Swap(_, id, _) => {
                OpRef::Reply(id)
            }
            _ => OpRef::Number(peer.received + 1),
        };
        let (disp, end) = place.bounds().unwrap_or((place.disp, u64::MAX));
        let what = Unattached { disp, len: end - disp, which };
        log::info!(
            "process {} of the window reaches for {} bytes at {disp:#x}, which are not attached",
            peer.rank,
            what.len
        );
        match *record {
            Record::PutRendezvous(_, tag) => {
                let tag = transfer_tag(TransferKind::Put, tag)?;
                peer.reject(&mut *self.channel, what);
                let len = place.len as usize;
                let mut memory = Vec::new();
                memory.try_reserve_exact(len).map_err(|_| Malformed::TooMuch)?;
                let at = Addr(memory.as_mut_ptr() as usize);
                let (peer, id) = self.number_transfer(index, |peer, number| {
                    Transfer::Discarded { peer, number, _memory: memory }
                })?;
                // SAFETY: the vector has room for `len` bytes and stays in `transfers` until the
                // transfer is complete. Only the host accesses it.
                unsafe { self.channel.receive_data(peer, tag, at, len, id) };
            }
            Record::GetRendezvous(_, tag) => {
                let tag = transfer_tag(TransferKind::Get, tag)?;
                // A transfer of 0 bytes reports it.
                let (peer, id) = self.number_transfer(index, |peer, number| Transfer::Served {
                    peer,
                    number,
                    len: 0,
                })?;
                let at = Addr(self.memory() as usize);
                // SAFETY: 0 bytes are read.
                unsafe { self.channel.send_data(peer, tag, at, 0, id) };
            }
            _ => {
                peer.reject(&mut *self.channel, what);
                self.count_done(index);
            }
        }
        Ok(())
    }

    /// Numbers an operation of a peer that is done when its transfer is complete.
    fn number_transfer(
        &mut self,
        index: u32,
        transfer: impl FnOnce(u32, u64) -> Transfer,
    ) -> Result<(Rank, TransferId), Malformed> {
        let peer = &mut self.peers[index as usize];
        if peer.unfinished.iter().filter(|(_, done)| !done).count() >= MAX_TRANSFERS_SERVED {
            return Err(Malformed::TooMuch);
        }
        peer.received += 1;
        peer.unfinished.push_back((peer.received, false));
        let key = self.transfers.insert(transfer(index, peer.received));
        Ok((peer.rank, TransferId(key.index)))
    }

    /// Marks a peer's operation as done after its transfer, and applies what was deferred behind
    /// it.
    pub(super) fn served_op_done(&mut self, index: u32, number: u64) {
        let peer = &mut self.peers[index as usize];
        if let Some(op) = peer.unfinished.iter_mut().find(|(other, _)| *other == number) {
            op.1 = true;
        }
        while peer.unfinished.pop_front_if(|(_, done)| *done).is_some() {}
        let complete = peer.complete();
        while let Some((_, effect)) =
            self.peers[index as usize].deferred.pop_front_if(|(after, _)| *after <= complete)
        {
            self.apply(index, effect);
        }
        self.activate(index);
    }
}

/// The runs of a place in the window and the same data packed: copied `inward`, from the packed
/// data to the window, or outward.
#[inline]
fn pieces(place: Place, inward: bool) -> Pieces {
    let (window, packed) = ((place.disp as i64, place.stride), (0, place.len as i64));
    let (from, to) = if inward { (packed, window) } else { (window, packed) };
    Pieces {
        at: [from.0, to.0],
        stride: [from.1, to.1],
        len: place.len,
        count: u64::from(place.count),
    }
}

/// The tag that a peer has announced.
fn transfer_tag(kind: TransferKind, number: u32) -> Result<TransferTag, Malformed> {
    if number < MAX_TAGS {
        Ok(TransferTag { kind, number })
    } else {
        Err(Malformed::InvalidTransferTag)
    }
}

/// Reduces packed data into window memory.
///
/// # Safety
/// The place lies in the memory at `memory`, which nobody else accesses meanwhile. `data` has as
/// many bytes, or none for a no_op.
unsafe fn combine(
    settings: &super::Settings,
    scratch: &mut Vec<u128>,
    how: ElementOp,
    data: &[u8],
    memory: *mut u8,
    place: Place,
) {
    if how.reduction == reduction::NO_OP {
        return;
    }
    let ElementOp { element, reduction, extent } = how;
    let combine = Combine { element, reduction, extent, foreign: settings.foreign_reduce };
    if element.0 < FIRST_FOREIGN || reduction == reduction::REPLACE {
        // SAFETY: the caller guarantees that the place lies in window memory that nobody else
        // accesses, and that `data` has as many bytes.
        return unsafe { combine_pieces(&combine, data.as_ptr(), memory, &pieces(place, true)) };
    }
    // The host's reductions may need aligned, whole elements.
    let len = place.len as usize;
    let room = len.next_multiple_of(usize::from(extent));
    scratch.resize(room.div_ceil(size_of::<u128>()), 0);
    let aligned = scratch.as_mut_ptr().cast::<u8>();
    let mut to = memory.wrapping_add(place.disp as usize);
    for run in data.chunks_exact(len) {
        // SAFETY: `run` and `scratch` have `len` bytes. The caller guarantees that each run of the
        // place lies in window memory that nobody else accesses.
        unsafe {
            copy(run.as_ptr(), aligned, len);
            combine.apply(aligned, to, len);
        }
        to = to.wrapping_offset(place.stride as isize);
    }
}
