//! Puts and gets by reference: the slot has the address of the origin's buffer, and both ends copy
//! the bytes by cross-memory attach, each what it has claimed.
//!
//! A copy through the channel moves each byte twice, through cache lines that both processors want.
//! The kernel moves it once, but then one processor does all the work. So the origin shares the
//! work with the target where that may help:
//!
//! - A long operation is divided. Both ends claim chunks until there are none left.
//! - Of several operations in flight, the origin leaves one or two to the target and goes on with
//!   the next. What the target has not begun when the origin has nothing else to do, the origin
//!   copies after all. It learns from that whether leaving operations pays ([`Tendency`]).
//!
//! Neither end waits for the other to begin. So a target that does not poll costs no more than the
//! slot.

use std::collections::VecDeque;

use crate::engine::{Op, OpKind, Ticket};
use crate::sync::AtomicU64;
use crate::sync::Ordering::Relaxed;

use super::adaptive::Tendency;
use super::channel::{Channel, IN_SLOT, PublishedSlot};
use super::cma::{self, Direction};
use super::protocol::Claims;

/// Shortest put or get, in bytes, that is copied by cross-memory attach if that is faster than the
/// channel, and if each rank has a core. On most machines, a system call takes about as long as a
/// round trip to the target.
pub const BY_KERNEL_MIN: u64 = 512;
/// Longest one that a slot can describe. The origin copies longer ones alone.
pub(super) const REFERENCE_MAX: u64 = u32::MAX as u64;
/// From this length on, both ends copy the same operation.
pub(super) const DIVIDED_MIN: u64 = 64 * 1024;
/// Bytes of a chunk: enough to hide the cost of a system call, and few enough that both ends finish
/// at about the same time.
const CHUNK_MIN: u64 = 32 * 1024;
const CHUNK_MAX: u64 = 256 * 1024;
/// Bytes that the target copies in one poll, so that a call that does not wait returns soon.
const HELP_MAX: u64 = 1 << 20;
/// Operations that are left to the target at a time.
const LEFT_MAX: usize = 2;

/// The payload of a slot by reference. The origin writes it before it publishes the slot. Then both
/// ends use the atomic words until the slot is applied.
#[repr(C)]
pub(super) struct Reference {
    /// The origin's buffer, in its process.
    pub(super) address: u64,
    /// See [`Claims`]. Of an accumulate: the bytes that are applied, from the first on.
    pub(super) claimed: AtomicU64,
    /// 1 if the target could not copy a range that it had claimed, or was to apply.
    pub(super) failed: AtomicU64,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Reference>() <= super::channel::INLINE);

impl Reference {
    pub(super) fn new(address: usize) -> Self {
        let (claimed, failed) = (AtomicU64::new(0), AtomicU64::new(0));
        Reference { address: address as u64, claimed, failed }
    }

    /// The reference in a slot of `channel`.
    ///
    /// # Safety
    /// The slot at `position` is by reference and published, and the origin does not write it while
    /// the result is used.
    pub(super) unsafe fn at(channel: &Channel, position: u64) -> &Reference {
        let slot = channel.slot(position);
        // SAFETY: the slot has room for a reference, aligned to its words; while it is published,
        // both ends change its atomic words only (contract of this function).
        unsafe { &*channel.data(slot, IN_SLOT).cast::<Reference>() }
    }

    fn claims(&self) -> Claims<'_> {
        Claims(&self.claimed)
    }
}

/// Bytes to claim at a time of an operation of `len` bytes.
fn chunk_of(len: u64) -> u64 {
    if len < DIVIDED_MIN { len } else { (len / 8).clamp(CHUNK_MIN, CHUNK_MAX) }
}

/// For the target: copies what nobody has claimed of a slot by reference. True if all is claimed,
/// and done as far as the target claimed it. Clears `attaches` if the kernel refuses; the target
/// then copies no more.
///
/// # Safety
/// The slot is by reference and published, the caller holds the consumer lock, and the slot's
/// target bytes lie in its window memory at `base`. `origin` is the process that published it.
pub(super) unsafe fn help(
    slot: &PublishedSlot,
    base: *mut u8,
    origin: i32,
    attaches: &mut bool,
) -> bool {
    // SAFETY: the payload is a reference, which stays as it is while the consumer lock is held.
    let reference = unsafe { &*slot.data.cast::<Reference>() };
    let (claims, len, mut helped) = (reference.claims(), slot.len as u64, 0);
    let direction = match slot.tag.kind {
        OpKind::Put => Direction::Read,
        _ => Direction::Write,
    };
    while *attaches && helped < HELP_MAX {
        let Some((start, count)) = claims.claim(chunk_of(len), len) else { break };
        let here = base.wrapping_add((slot.disp + start) as usize);
        // SAFETY: the bytes lie in the window memory (contract of this function). The origin keeps
        // its buffer valid until the operation completes [EP-8].
        let copied = unsafe {
            cma::transfer(direction, origin, here, reference.address + start, count as usize)
        };
        if let Err(error) = copied {
            log::warn!(
                "cross-memory attach to the origin failed ({error}); \
                 in this window, this process leaves the copying to origins"
            );
            // Made visible by the head that passes this slot.
            reference.failed.store(1, Relaxed);
            *attaches = false;
        }
        helped += count;
    }
    claims.is_exhausted(len)
}

/// For the target: claims all that is left, and copies or applies nothing.
///
/// # Safety
/// As for [`help`].
pub(super) unsafe fn drop_rest(slot: &PublishedSlot) {
    // SAFETY: the payload is a reference, which stays as it is while the consumer lock is held.
    let claims = unsafe { &*slot.data.cast::<Reference>() }.claims();
    let _ = claims.claim(slot.len as u64, slot.len as u64);
}

/// A slot by reference that the target has not passed.
#[derive(Clone, Copy, Debug)]
struct Open {
    position: u64,
    op: Op,
    ticket: Ticket,
    /// Bytes that this process has copied.
    copied: u64,
    /// The kernel refused to copy a range that this process had claimed.
    failed: bool,
    /// This process had nothing else to do before the operation was complete.
    waited: bool,
}

/// The origin's slots by reference in one channel.
#[derive(Debug, Default)]
pub(super) struct References {
    /// Oldest first.
    open: VecDeque<Open>,
    /// Leaving operations to the target pays if this process need not wait for them.
    leaving: Tendency,
    /// The target cannot copy.
    refused: bool,
}

/// A range that this process has claimed and must copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    /// Index of its slot among those that are open.
    index: usize,
    pub(super) op: Op,
    pub(super) start: usize,
    pub(super) len: usize,
}

impl References {
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Whether to publish an operation of `len` bytes, so that the target may copy it too.
    pub(super) fn shares(&mut self, len: u64) -> bool {
        if self.refused || len > REFERENCE_MAX {
            return false;
        }
        if len >= DIVIDED_MIN {
            // What is open, the target has not passed: it does not poll.
            return self.open.is_empty();
        }
        if self.open.len() >= LEFT_MAX {
            return false;
        }
        self.leaving.tries()
    }

    /// Whether an operation shorter than [`DIVIDED_MIN`] is copied at once. If so, it counts.
    pub(super) fn skips(&mut self) -> bool {
        self.is_empty() && self.leaving.skips()
    }

    /// Adds the operation that the caller publishes at `position`.
    pub(super) fn push(&mut self, position: u64, op: &Op, ticket: Ticket) {
        let (copied, failed, waited) = (0, false, false);
        self.open.push_back(Open { position, op: *op, ticket, copied, failed, waited });
    }

    /// Claims a range of the newest slot that has any left. For a process that has nothing else to
    /// do if `waits`.
    pub(super) fn claim(&mut self, channel: &Channel, waits: bool) -> Option<Range> {
        for (index, open) in self.open.iter_mut().enumerate().rev() {
            open.waited |= waits && open.op.len < DIVIDED_MIN;
            // SAFETY: the slot is published and by reference, and this process is its origin and
            // writes it again only after it has removed it from `open`.
            let claims = unsafe { Reference::at(channel, open.position) }.claims();
            if let Some((start, len)) = claims.claim(chunk_of(open.op.len), open.op.len) {
                let (start, len) = (start as usize, len as usize);
                return Some(Range { index, op: open.op, start, len });
            }
        }
        None
    }

    /// Notes whether a claimed range was copied.
    pub(super) fn note(&mut self, range: &Range, copied: bool) {
        let Some(open) = self.open.get_mut(range.index) else { return };
        open.copied += if copied { range.len as u64 } else { 0 };
        open.failed |= !copied;
    }

    /// Whether this process has copied all of the slot at `position`, which the target has not
    /// passed.
    pub(super) fn is_complete(&self, position: u64) -> bool {
        self.open.iter().any(|open| open.position == position && open.copied == open.op.len)
    }

    /// Whether this process has copied all of each slot that the target has not passed.
    pub(super) fn are_copied(&self) -> bool {
        self.open.iter().all(|open| !open.failed && open.copied == open.op.len)
    }

    /// Whether the kernel has refused to copy for this process.
    pub(super) fn have_failed(&self) -> bool {
        self.open.iter().any(|open| open.failed)
    }

    /// Removes the oldest slot if the target has passed it, that is, if its position is below
    /// `head`. Returns its position and operation if bytes are missing, so that it must be sent
    /// again.
    pub(super) fn pass(
        &mut self,
        channel: &Channel,
        head: u64,
    ) -> Option<Option<(u64, Op, Ticket)>> {
        let open = *self.open.front().filter(|open| open.position < head)?;
        // SAFETY: the slot is by reference, and this process writes it again only after this.
        let refused = unsafe { Reference::at(channel, open.position) }.failed.load(Relaxed) != 0;
        self.refused |= refused;
        if open.op.len < DIVIDED_MIN {
            self.leaving.note(!open.waited);
        }
        self.open.pop_front();
        Some((refused || open.failed).then_some((open.position, open.op, open.ticket)))
    }
}

/// Address of the origin's buffer of a put or get.
#[inline(always)]
pub(super) fn buffer_of(op: &Op) -> usize {
    match op.kind {
        OpKind::Put => op.origin.0,
        _ => op.result.0,
    }
}
