//! The target side: checks the records of peers and applies them to this process's memory and
//! words.

use super::channel::{Channel, TransferEnd, TransferId, TransferKind, TransferTag};
use super::origin::Transfer;
use super::peer::{CREDITS, Deferred, MAX_REPLY_BYTES, MAX_TRANSFERS_SERVED};
use super::wire::{ElementOp, Malformed, OpRef, PAYLOAD, Place, Reader, Record, Unattached};
use super::{Failure, Protocol};
use crate::engine::{Addr, Arrival, Atomic, LockTicket, LockWord, Rank};
use crate::transport::copy;
use crate::transport::datatype::element::{FIRST_FOREIGN, native_extent, native_has, reduction};
use crate::transport::datatype::{
    Combine, EXTENT_MAX, Pieces, combine_pieces, compare_swap, copy_pieces,
};
use crate::transport::peers::PeerId;

/// Bytes of replies that one packet may request at most. An origin never has more outstanding. A
/// record has at most as many runs as bytes, so this bounds the work per packet.
const MAX_REPLY_BYTES_PER_PACKET: u64 = MAX_REPLY_BYTES + PAYLOAD as u64;

/// The memory and words of this process in the window, to which the records of peers apply.
pub trait Target {
    /// Rank of this process.
    fn rank(&self) -> Rank;

    /// Number of processes of the window.
    fn processes(&self) -> u32;

    /// First byte of this process's window memory.
    fn memory(&self) -> *mut u8;

    /// Whether the window is dynamic.
    fn is_dynamic(&self) -> bool;

    /// Whether each of the `len` bytes at displacement `at` may be accessed.
    fn reaches(&self, at: u64, len: u64) -> bool;

    /// Whether a place consists of several runs that all lie in attached memory of a dynamic
    /// window. Memory between the runs need not be attached.
    fn has_attached_runs(&self, place: Place) -> bool;

    /// Locks a place in this process's memory for accumulates, until the result is dropped [AT-1].
    fn lock_accumulate(&self, place: Place) -> impl Sized;

    /// Number of notification counters of this process.
    fn counters(&self) -> u32;

    /// Raises a counter of this process.
    fn notify(&mut self, counter: u32);

    /// Queues a tagged notification for the engine.
    fn notify_tagged(&mut self, arrival: Arrival);

    /// Accesses a lock word of this process. [`Protocol::access_own`] has the words of its pairs
    /// with processes of other nodes.
    fn access(&mut self, pairs: &mut Protocol, word: LockWord, access: Atomic) -> u64;
}

impl Protocol {
    /// Handles a packet of a peer.
    ///
    /// # Errors
    /// The packet is refused, or reports that the window has failed.
    pub fn receive(
        &mut self,
        channel: &mut impl Channel,
        here: &mut impl Target,
        from: PeerId,
        bytes: &[u8],
    ) -> Result<(), Failure> {
        let index = from.at();
        let (header, mut reader) = Reader::new(bytes)?;
        let peer = &mut self.peers[index];
        peer.contacted = true;
        peer.credit(header.taken)?;
        if header.counted {
            peer.taken += 1;
            if peer.taken - peer.taken_reported > CREDITS {
                return Err(Malformed::TooMuch.into());
            }
        }
        self.acknowledged(channel, index, header.done)?;
        let mut reply_bytes = 0;
        while let Some(record) = reader.next_record()? {
            reply_bytes += record.reply_bytes();
            if reply_bytes > MAX_REPLY_BYTES_PER_PACKET {
                return Err(Malformed::TooMuch.into());
            }
            self.take_record(channel, here, index, record)?;
        }
        if header.ack_wanted {
            let peer = &mut self.peers[index];
            peer.ack_due = true;
            peer.ack_wanted_up_to = peer.received;
        }
        Ok(())
    }

    fn take_record(
        &mut self,
        channel: &mut impl Channel,
        here: &mut impl Target,
        index: usize,
        record: Record<'_>,
    ) -> Result<(), Failure> {
        self.has_news |= record.is_news();
        if let Some(place) = record.place()
            && !check_place(here, place)?
        {
            return Ok(self.reject_unattached(channel, here, index, place, &record)?);
        }
        let memory = here.memory();
        let peer = &mut self.peers[index];
        match record {
            Record::Put(place, data) => {
                // SAFETY: `check_place` found the place in window memory, and the reader has
                // checked that the payload has as many bytes as the place.
                unsafe { copy_pieces(data.as_ptr(), memory, &pieces(place, true)) };
            }
            Record::Rendezvous(place, tag) => {
                let at = Addr(memory as usize + place.disp as usize);
                // SAFETY: `check_place` found the place in window memory, which stays valid until
                // the window is freed. That waits for all transfers; after a failure they are
                // cancelled.
                unsafe { self.join_transfer(channel, index, tag, (at, place.len as usize), None) }?;
                return Ok(());
            }
            Record::Get(place, id) => {
                let len = place.bytes() as usize;
                let to = peer.reply_packet(channel, len).reply(id, len);
                // SAFETY: `check_place` found the place in window memory, and the reply has as many
                // bytes as the place.
                unsafe { copy_pieces(memory, to.as_mut_ptr(), &pieces(place, false)) };
            }
            Record::Accumulate(place, how, data) => {
                self.check_reduction(place, how)?;
                let _held = here.lock_accumulate(place);
                // SAFETY: `check_place` found the place in window memory, the reader has checked
                // that the payload has as many bytes, and the accumulate lock is held [AT-1].
                unsafe { self.combine(how, data, memory, place) };
            }
            Record::Fetch(place, how, id, data) => {
                self.check_reduction(place, how)?;
                if data.is_empty() != (how.reduction == reduction::NO_OP) {
                    return Err(Malformed::Lengths.into());
                }
                let len = place.bytes() as usize;
                let peer = &mut self.peers[index];
                let to = peer.reply_packet(channel, len).reply(id, len);
                let _held = here.lock_accumulate(place);
                // SAFETY: `check_place` found the place in window memory. The reply has as many
                // bytes as the place. So does the payload, except that a no_op has none. The
                // accumulate lock is held.
                unsafe {
                    copy_pieces(memory, to.as_mut_ptr(), &pieces(place, false));
                    self.combine(how, data, memory, place);
                }
            }
            Record::Swap(place, id, data) => {
                let len = place.bytes() as usize;
                if len > EXTENT_MAX {
                    return Err(Malformed::Lengths.into());
                }
                let to = peer.reply_packet(channel, len).reply(id, len);
                let _held = here.lock_accumulate(place);
                let at = memory.wrapping_add(place.disp as usize);
                let (new, compare) = data.split_at(len);
                // SAFETY: `check_place` found the element in window memory. The payload has two
                // elements and the reply one. The accumulate lock is held.
                unsafe { compare_swap(at, compare.as_ptr(), new.as_ptr(), to.as_mut_ptr(), len) };
            }
            Record::Reply(id, data) => return Ok(self.replied(index, id, data)?),
            Record::Notify(counter) => {
                if counter >= here.counters() {
                    return Err(Malformed::UnknownCounter.into());
                }
                self.apply_in_order(here, index, Deferred::Notify(counter));
            }
            Record::NotifyTagged(tag) => {
                if i32::try_from(tag).is_err() {
                    return Err(Malformed::UnknownTag.into());
                }
                let arrival = Arrival { source: peer.id.rank, tag };
                self.apply_in_order(here, index, Deferred::NotifyTagged(arrival));
            }
            Record::Signal(word, value) => {
                self.apply_in_order(here, index, Deferred::Signal(word, value));
                return Ok(());
            }
            Record::Access(word, access, id) => {
                let old = self.access_here(here, word, access)?;
                self.peers[index].reply_packet(channel, 8).push(&Record::Answer(id, old));
                return Ok(());
            }
            Record::Answer(ticket, value) => {
                if self.pending_atomics.get(&ticket) != Some(&peer.id.rank) {
                    return Err(Malformed::UnexpectedReply.into());
                }
                self.pending_atomics.remove(&ticket);
                self.answers.push_back((LockTicket(ticket), value));
                return Ok(());
            }
            Record::Refusal => {
                // The peer already ignores this process, so it needs no record of the failure.
                peer.failed = true;
                return Err(Malformed::RefusedByPeer.into());
            }
            Record::Lost(lost) => {
                if lost >= here.processes() {
                    return Err(Malformed::UnknownProcess.into());
                }
                peer.failed = true;
                return Err(Failure::Lost(lost));
            }
            Record::Unattached(what) => return Ok(self.unattached(index, what)?),
            Record::Close => {
                peer.close_received = true;
                return Ok(());
            }
        }
        self.count_done(index);
        Ok(())
    }

    /// Applies a signal or notification, now or after the peer's earlier operations.
    fn apply_in_order(&mut self, here: &mut impl Target, index: usize, effect: Deferred) {
        let peer = &mut self.peers[index];
        if peer.is_caught_up() {
            self.apply(here, index, effect);
        } else {
            peer.deferred.push_back((peer.received, effect));
        }
    }

    #[inline]
    fn apply(&mut self, here: &mut impl Target, index: usize, effect: Deferred) {
        match effect {
            Deferred::Signal(word, value) => self.peers[index].raise(word, value),
            Deferred::Notify(counter) => here.notify(counter),
            Deferred::NotifyTagged(arrival) => here.notify_tagged(arrival),
        }
    }

    /// Accesses a lock word for a peer, after checking that this process has the word.
    fn access_here(
        &mut self,
        here: &mut impl Target,
        word: LockWord,
        access: Atomic,
    ) -> Result<u64, Malformed> {
        let is_known = match word {
            LockWord::Next { target, .. } | LockWord::Grant { target } => target < here.processes(),
            // Words of the window, which rank 0 keeps.
            LockWord::Holders | LockWord::Intent | LockWord::Licensed => here.rank() == 0,
            _ => true,
        };
        if !is_known {
            return Err(Malformed::UnknownWord);
        }
        Ok(here.access(self, word, access))
    }

    /// Checks that the datatype supports the reduction, and that runs consist of whole elements.
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

    /// Reduces packed data into window memory.
    ///
    /// # Safety
    /// The place must lie in the memory at `memory`, and nobody else may access it meanwhile.
    /// `data` has as many bytes, or none for a no_op.
    unsafe fn combine(&mut self, how: ElementOp, data: &[u8], memory: *mut u8, place: Place) {
        if how.reduction == reduction::NO_OP {
            return;
        }
        let ElementOp { element, reduction, extent } = how;
        let combine = Combine { element, reduction, extent, foreign: self.settings.foreign_reduce };
        if element.0 < FIRST_FOREIGN || reduction == reduction::REPLACE {
            // SAFETY: the caller guarantees that the place lies in window memory that nobody else
            // accesses, and that `data` has as many bytes.
            return unsafe {
                combine_pieces(&combine, data.as_ptr(), memory, &pieces(place, true))
            };
        }
        // The host's reductions may need aligned, whole elements.
        let len = place.len as usize;
        let room = len.next_multiple_of(usize::from(extent));
        self.scratch.resize(room.div_ceil(size_of::<u128>()), 0);
        let aligned = self.scratch.as_mut_ptr().cast::<u8>();
        let mut to = memory.wrapping_add(place.disp as usize);
        for run in data.chunks_exact(len) {
            // SAFETY: `run` and `scratch` have `len` bytes. The caller guarantees that each run of
            // the place lies in window memory that nobody else accesses.
            unsafe {
                copy(run.as_ptr(), aligned, len);
                combine.apply(aligned, to, len);
            }
            to = to.wrapping_offset(place.stride as isize);
        }
    }

    /// Counts a received operation that is already done.
    #[inline]
    fn count_done(&mut self, index: usize) {
        let peer = &mut self.peers[index];
        peer.received += 1;
        if !peer.unfinished.is_empty() {
            peer.unfinished.push_back((peer.received, true));
        }
    }

    /// Starts this process's end of a rendezvous transfer that a peer has announced. The peer's
    /// operation is done when the transfer is complete.
    ///
    /// # Safety
    /// The `len` bytes at `at` must be valid until then: unchanged for a get, and else accessed by
    /// nobody. They lie in window memory, or in `discarded`.
    unsafe fn join_transfer(
        &mut self,
        channel: &mut impl Channel,
        index: usize,
        tag: TransferTag,
        (at, len): (Addr, usize),
        discarded: Option<Vec<u8>>,
    ) -> Result<(), Malformed> {
        let peer = &mut self.peers[index];
        if peer.unfinished.iter().filter(|(_, done)| !done).count() >= MAX_TRANSFERS_SERVED {
            return Err(Malformed::TooMuch);
        }
        peer.received += 1;
        peer.unfinished.push_back((peer.received, false));
        let transfer = Transfer::Served { peer: index, number: peer.received, len, discarded };
        let id = TransferId(self.transfers.insert(transfer).index);
        let end = TransferEnd { tag, sends: tag.kind == TransferKind::Get, at, len, id };
        // SAFETY: the caller keeps the memory valid, and unchanged or unused, until the transfer is
        // complete (contract of this function).
        unsafe { channel.host().transfer(peer.id.rank, end) };
        Ok(())
    }

    /// Reports to its origin an operation on memory that is not attached, and discards its data.
    #[cold]
    fn reject_unattached(
        &mut self,
        channel: &mut impl Channel,
        here: &impl Target,
        index: usize,
        place: Place,
        record: &Record<'_>,
    ) -> Result<(), Malformed> {
        let peer = &mut self.peers[index];
        let which = match *record {
            Record::Get(_, id) | Record::Fetch(_, _, id, _) | Record::Swap(_, id, _) => {
                OpRef::Reply(id)
            }
            _ => OpRef::Number(peer.received + 1),
        };
        let (disp, end) = place.bounds().unwrap_or((place.disp, u64::MAX));
        let what = Unattached { disp, len: end - disp, which };
        log::info!(
            "skipped an operation of process {} of the window: {} bytes at {disp:#x} not attached",
            peer.id.rank,
            what.len
        );
        match *record {
            Record::Rendezvous(_, tag) if tag.kind == TransferKind::Get => {
                // A transfer of 0 bytes reports it.
                let at = Addr(here.memory() as usize);
                // SAFETY: 0 bytes are read.
                unsafe { self.join_transfer(channel, index, tag, (at, 0), None) }
            }
            Record::Rendezvous(_, tag) => {
                peer.reject(channel, what);
                let (len, mut memory) = (place.len as usize, Vec::new());
                memory.try_reserve_exact(len).map_err(|_| Malformed::TooMuch)?;
                let at = Addr(memory.as_mut_ptr() as usize);
                // SAFETY: the vector has room for `len` bytes and stays in `transfers` until the
                // transfer is complete. Only the host accesses it.
                unsafe { self.join_transfer(channel, index, tag, (at, len), Some(memory)) }
            }
            _ => {
                peer.reject(channel, what);
                self.count_done(index);
                Ok(())
            }
        }
    }

    /// Marks a peer's operation as done after its transfer, and applies the effects that waited for
    /// it.
    pub(super) fn served_op_done(&mut self, here: &mut impl Target, index: usize, number: u64) {
        let peer = &mut self.peers[index];
        if let Some(op) = peer.unfinished.iter_mut().find(|(other, _)| *other == number) {
            op.1 = true;
        }
        while peer.unfinished.pop_front_if(|(_, done)| *done).is_some() {}
        let complete = peer.complete();
        while let Some((_, effect)) =
            self.peers[index].deferred.pop_front_if(|(after, _)| *after <= complete)
        {
            self.apply(here, index, effect);
        }
    }
}

/// Whether all of a place lies in this process's window memory. `Ok(false)` if part of it is not
/// attached to a dynamic window. The origin cannot know what is attached, so the program is wrong
/// and not the message.
#[inline]
fn check_place(here: &impl Target, place: Place) -> Result<bool, Malformed> {
    let reaches = place.bounds().is_some_and(|(low, end)| here.reaches(low, end - low));
    if reaches || here.has_attached_runs(place) {
        Ok(true)
    } else if here.is_dynamic() {
        Ok(false)
    } else {
        Err(Malformed::OutsideWindow)
    }
}

/// The runs of a place in the window, beside the same data in a packed buffer. `inward` copies from
/// the buffer to the window.
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
