//! The channel of an ordered pair (origin, target) as it lies in the segment: how operations reach
//! memory that the origin cannot map (created windows). Who may access what when:
//! [`super::protocol`].

use std::cell::UnsafeCell;

use crate::engine::{Element, Op, OpKind, Reduction};
use crate::sync::{AtomicU32, AtomicU64};
use crate::transport::datatype::Combine;
use crate::transport::datatype::element::ForeignReduce;

use super::protocol::Ends;
use super::words::Line;

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
    /// Bytes at its beginning that must be zeros at first.
    pub(super) const WORDS: u64 = std::mem::offset_of!(Channel, payload) as u64;

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
    /// The caller has read access by the table in [`super::protocol`].
    #[inline(always)]
    pub(super) unsafe fn fields(&self) -> (u64, u32, u32) {
        let body = self.body.get();
        // SAFETY: nobody writes meanwhile, by the caller's promise.
        unsafe { ((*body).disp, (*body).len, (*body).payload) }
    }

    /// Writes the fields.
    ///
    /// # Safety
    /// The caller is the origin and has write access by the table in [`super::protocol`].
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

// SAFETY: who may access a slot's cells when is said in [`super::protocol`]; users promise to keep
// to it.
unsafe impl Sync for Slot {}
// SAFETY: as for `Slot`.
unsafe impl Sync for PayloadArea {}

/// What is done with a slot's bytes; travels in the upper half of the stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag {
    pub(super) kind: OpKind,
    pub(super) element: Element,
    pub(super) reduction: Reduction,
    pub(super) extent: u8,
    /// The payload is a list of places with the data (`list`); the slot's displacement says
    /// nothing.
    pub(super) listed: bool,
}

/// Marks a listed payload, beside the kind.
const LISTED: u8 = 0x80;

impl Tag {
    #[inline(always)]
    pub(super) fn of(op: &Op, listed: bool) -> Self {
        Tag {
            kind: op.kind,
            element: op.element,
            reduction: op.reduction,
            extent: op.extent,
            listed,
        }
    }

    #[inline(always)]
    pub(super) fn encode(self) -> u32 {
        let kind = self.kind as u8 | if self.listed { LISTED } else { 0 };
        u32::from_le_bytes([kind, self.element.0, self.reduction.0, self.extent])
    }

    #[inline(always)]
    pub(super) fn decode(tag: u32) -> Self {
        let [kind, element, reduction, extent] = tag.to_le_bytes();
        let listed = kind & LISTED != 0;
        let kind = match kind & !LISTED {
            0 => OpKind::Put,
            1 => OpKind::Get,
            2 => OpKind::Accumulate,
            3 => OpKind::GetAccumulate,
            4 => OpKind::CompareAndSwap,
            5 => OpKind::Notify,
            _ => OpKind::NotifyTagged,
        };
        Tag { kind, element: Element(element), reduction: Reduction(reduction), extent, listed }
    }

    /// How the elements are combined.
    #[inline(always)]
    pub(super) fn combine(self, foreign: ForeignReduce) -> Combine {
        Combine { element: self.element, reduction: self.reduction, extent: self.extent, foreign }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::protocol::{publish, published};
    use super::*;

    #[test]
    fn tags_travel() {
        let bare = [OpKind::Notify, OpKind::NotifyTagged];
        for kind in [
            OpKind::Put,
            OpKind::Get,
            OpKind::Accumulate,
            OpKind::GetAccumulate,
            OpKind::CompareAndSwap,
        ]
        .iter()
        .chain(&bare)
        {
            let kind = *kind;
            for listed in [false, true] {
                let tag = Tag {
                    kind,
                    element: Element(200),
                    reduction: Reduction(13),
                    extent: 32,
                    listed,
                };
                assert_eq!(Tag::decode(tag.encode()), tag);
            }
        }
    }

    #[test]
    fn stamps_of_neighbouring_laps_differ() {
        let stamp = AtomicU64::new(0);
        let late = u64::from(u32::MAX) + 5;
        for position in [0, 1, SLOTS as u64, u64::from(u32::MAX) - 1, u64::from(u32::MAX), late] {
            assert_eq!(published(&stamp, position), None);
            publish(&stamp, position, 7);
            assert_eq!(published(&stamp, position), Some(7));
            assert_eq!(published(&stamp, position + SLOTS as u64), None);
        }
    }
}
