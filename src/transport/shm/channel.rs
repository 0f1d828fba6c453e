//! The channel of an ordered pair (origin, target): how operations reach memory that the origin cannot
//! map (created windows).
//!
//! A ring of slots with one producer, the origin. The consumer is whoever holds the `drain` word:
//! normally the target in its poll; or the origin itself, by cross-memory attach, when the target does
//! not poll. Positions count slots from 0 and never wrap; slot `position % SLOTS` serves a position.
//!
//! Which word gives whom access to what:
//!
//! | access | given by | to |
//! |---|---|---|
//! | write slot and payload of position `p` | `head > p - SLOTS`, acquire | the origin |
//! | read them, write results into them | the slot's stamp is `p + 1`, acquire, and `drain` held | that holder |
//! | read the results | `head > p`, acquire | the origin |
//! | write `head`, read it as the truth | `drain` held, acquire | that holder |
//!
//! The origin publishes a slot by a release store of its stamp, so its fields and payload are there when
//! the stamp is. The holder of `drain` releases `head` after it has applied the positions before, so when
//! the origin sees it, the operations are visible at the target [FE-2], results lie in the payload, and
//! the slots are the origin's again. `drain` is given back by a release store and taken by an acquire: the
//! next holder sees the last head, never applies a position twice, and its own release of `head` covers
//! what earlier holders did. A peek at `head` and the stamp without `drain` only decides whether to try.
//!
//! The protocol is written over borrowed words, so that loom can run it on words of its own.

use crate::sync::Ordering::{Acquire, Relaxed, Release};
use crate::sync::{AtomicU32, AtomicU64};
use std::cell::UnsafeCell;

use super::words::Line;

/// The two words that producer and consumers share, wherever they live.
#[derive(Clone, Copy, Debug)]
pub struct Ends<'a> {
    /// First position that was not applied.
    pub head: &'a AtomicU64,
    /// 1 while somebody consumes.
    pub drain: &'a AtomicU32,
}

impl<'a> Ends<'a> {
    /// The origin: positions below are applied, and their slots its own again.
    #[inline(always)]
    pub fn applied(&self) -> u64 {
        self.head.load(Acquire)
    }

    /// Where a consumer would begin; may be old.
    #[inline(always)]
    pub fn peek(&self) -> u64 {
        self.head.load(Relaxed)
    }

    /// Becomes the consumer, unless somebody is.
    #[inline(always)]
    pub fn try_drain(&self) -> Option<Drain<'a>> {
        if self.drain.swap(1, Acquire) != 0 {
            return None;
        }
        Some(Drain { ends: *self, position: self.head.load(Relaxed) })
    }
}

/// The right to consume, as long as it lives.
#[derive(Debug)]
pub struct Drain<'a> {
    ends: Ends<'a>,
    position: u64,
}

impl Drain<'_> {
    /// First position that was not applied.
    #[inline(always)]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Tells the origin that everything below `position` has been applied.
    #[inline(always)]
    pub fn advance(&mut self, position: u64) {
        debug_assert!(position >= self.position);
        if position != self.position {
            self.position = position;
            self.ends.head.store(position, Release);
        }
    }
}

impl Drop for Drain<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.ends.drain.store(0, Release);
    }
}

/// Publishes the slot of `position` with 32 bits of the producer's: the fields are written.
#[inline(always)]
pub fn publish(stamp: &AtomicU64, position: u64, tag: u32) {
    stamp.store(u64::from(expected(position)) | u64::from(tag) << 32, Release);
}

/// The producer's 32 bits, if the slot has been published for `position`.
#[inline(always)]
pub fn published(stamp: &AtomicU64, position: u64) -> Option<u32> {
    let word = stamp.load(Acquire);
    (word as u32 == expected(position)).then_some((word >> 32) as u32)
}

/// Low bits of a published stamp. An unused slot is 0, and a slot is never more than one lap behind.
#[inline(always)]
fn expected(position: u64) -> u32 {
    (position as u32).wrapping_add(1)
}

/// Slots of a channel.
pub(super) const SLOTS: usize = 256;
/// Bytes of a channel for payloads that do not fit a slot.
pub(super) const PAYLOAD: usize = 128 * 1024;
/// Bytes that fit a slot.
pub(super) const INLINE: usize = 40;

/// One operation or a piece of one. The stamp's upper half carries the [`Tag`].
#[repr(C, align(64))]
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) stamp: AtomicU64,
    body: UnsafeCell<Body>,
}

/// What the stamp publishes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Body {
    /// Bytes from the base of the target's memory.
    pub(super) disp: u64,
    /// Bytes of the target's memory.
    pub(super) len: u32,
    /// Offset in the payload area, or [`IN_SLOT`].
    pub(super) payload: u32,
    inline: [u8; INLINE],
}

/// Says that the payload lies in the slot.
pub(super) const IN_SLOT: u32 = u32::MAX;

/// A channel as it lies in the segment. Starts as zeros.
#[repr(C, align(4096))]
#[derive(Debug)]
pub(super) struct Channel {
    head: Line<AtomicU64>,
    drain: Line<AtomicU32>,
    slots: [Slot; SLOTS],
    payload: PayloadArea,
}

#[repr(C, align(4096))]
#[derive(Debug)]
struct PayloadArea(UnsafeCell<[u8; PAYLOAD]>);

#[cfg(not(loom))]
const _: () = assert!(size_of::<Slot>() == 64 && size_of::<Channel>() == 5 * 4096 + PAYLOAD);

impl Channel {
    #[inline(always)]
    pub(super) fn ends(&self) -> Ends<'_> {
        Ends { head: &self.head.0, drain: &self.drain.0 }
    }

    /// The slot that serves `position`.
    #[inline(always)]
    pub(super) fn slot(&self, position: u64) -> &Slot {
        &self.slots[position as usize % SLOTS]
    }

    /// Where the payload of a slot lies.
    #[inline(always)]
    pub(super) fn data(&self, slot: &Slot, payload: u32) -> *mut u8 {
        if payload == IN_SLOT {
            slot.inline()
        } else {
            self.payload.0.get().cast::<u8>().wrapping_add(payload as usize % PAYLOAD)
        }
    }
}

impl Slot {
    /// Reads the fields.
    ///
    /// # Safety
    /// The caller has read access by the table above.
    #[inline(always)]
    pub(super) unsafe fn fields(&self) -> (u64, u32, u32) {
        let body = self.body.get();
        // SAFETY: nobody writes meanwhile, by the caller's promise.
        unsafe { ((*body).disp, (*body).len, (*body).payload) }
    }

    /// Writes the fields.
    ///
    /// # Safety
    /// The caller is the origin and has write access by the table above.
    #[inline(always)]
    pub(super) unsafe fn fill(&self, disp: u64, len: u32, payload: u32) {
        let body = self.body.get();
        // SAFETY: nobody else accesses them meanwhile, by the caller's promise.
        unsafe {
            (*body).disp = disp;
            (*body).len = len;
            (*body).payload = payload;
        }
    }

    #[inline(always)]
    fn inline(&self) -> *mut u8 {
        // SAFETY: an address inside the slot; nothing is read.
        unsafe { (&raw mut (*self.body.get()).inline).cast() }
    }
}

// SAFETY: who may access a slot's cells when is said in the table above; users promise to keep to it.
unsafe impl Sync for Slot {}
// SAFETY: as for `Slot`.
unsafe impl Sync for PayloadArea {}
