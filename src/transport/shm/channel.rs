//! The memory of the channel of an ordered pair (origin, target), for operations on memory that the
//! origin cannot map (created windows). [`super::protocol`] says who may access what when.

use std::cell::UnsafeCell;

use crate::engine::{Element, Notification, Op, OpKind, Reduction};
use crate::sync::{AtomicU32, AtomicU64};
use crate::transport::datatype::Combine;
use crate::transport::datatype::element::ForeignReduce;

use super::control::CacheLine;
use super::protocol::{ChannelWords, Consumer, published};

pub(super) const SLOTS: usize = 256;
/// Bytes of a channel for payloads that do not fit a slot.
pub(super) const PAYLOAD: usize = 128 * 1024;
/// Payload bytes that fit a slot.
pub(super) const INLINE: usize = 40;

/// One operation, a piece of one, or the notification behind it. The upper half of the stamp
/// carries the [`Tag`].
#[repr(C, align(64))]
pub(super) struct Slot {
    pub(super) stamp: AtomicU64,
    body: UnsafeCell<Body>,
}

/// The fields that the stamp publishes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Body {
    /// Bytes from the base of the target's memory, or the bits of a notification.
    pub(super) disp: u64,
    /// Bytes of the target's memory; 0 for a notification.
    pub(super) len: u32,
    /// Offset in the payload area, or [`IN_SLOT`].
    pub(super) payload: u32,
    inline: [u8; INLINE],
}

/// The payload is in the slot itself.
pub(super) const IN_SLOT: u32 = u32::MAX;

/// A channel in the segment. Starts as zeros.
#[repr(C, align(4096))]
pub(super) struct Channel {
    head: CacheLine<AtomicU64>,
    consumer_lock: CacheLine<AtomicU32>,
    slots: [Slot; SLOTS],
    payload: PayloadArea,
}

#[repr(C, align(4096))]
struct PayloadArea(UnsafeCell<[u8; PAYLOAD]>);

#[cfg(not(loom))]
const _: () = assert!(size_of::<Slot>() == 64 && size_of::<Channel>() == 5 * 4096 + PAYLOAD);

impl Channel {
    /// Bytes from its start that must be zeros initially; the payload need not.
    pub(super) const WORDS: usize = std::mem::offset_of!(Channel, payload);

    #[inline(always)]
    pub(super) fn words(&self) -> ChannelWords<'_> {
        ChannelWords { head: &self.head.0, consumer_lock: &self.consumer_lock.0 }
    }

    /// Whether the target has something to apply, as far as can be seen without the consumer lock.
    #[inline(always)]
    pub(super) fn has_published(&self) -> bool {
        let head = self.words().peek();
        published(&self.slot(head).stamp, head).is_some()
    }

    /// Takes the consumer lock; `None` if it is held.
    #[inline(always)]
    pub(super) fn try_consume(&self) -> Option<Consuming<'_>> {
        Some(Consuming { channel: self, consumer: self.words().try_consume()? })
    }

    #[inline(always)]
    pub(super) fn slot(&self, position: u64) -> &Slot {
        &self.slots[position as usize % SLOTS]
    }

    /// Address of a slot's payload.
    #[inline(always)]
    pub(super) fn data(&self, slot: &Slot, payload: u32) -> *mut u8 {
        if payload == IN_SLOT {
            slot.inline()
        } else {
            self.payload.0.get().cast::<u8>().wrapping_add(payload as usize % PAYLOAD)
        }
    }
}

/// A channel while this process holds its consumer lock.
pub(super) struct Consuming<'a> {
    channel: &'a Channel,
    pub(super) consumer: Consumer<'a>,
}

/// A published operation, or a piece of one, that the holder of the consumer lock applies.
#[derive(Clone, Copy, Debug)]
pub(super) struct PublishedSlot {
    pub(super) tag: Tag,
    /// Bytes from the base of the target's memory.
    pub(super) disp: u64,
    /// Bytes of the target's memory.
    pub(super) len: usize,
    /// The payload. Its bytes belong to the holder until it advances beyond the position.
    pub(super) data: *mut u8,
}

impl Consuming<'_> {
    /// The operation at a position that has not been applied, if it is published.
    #[inline(always)]
    pub(super) fn slot(&self, position: u64) -> Option<PublishedSlot> {
        debug_assert!(position >= self.consumer.position());
        let slot = self.channel.slot(position);
        let tag = published(&slot.stamp, position).map(Tag::decode)?;
        let body = slot.body.get();
        // SAFETY: the slot is published and not applied, so the origin does not write it, and the
        // consumer lock keeps other consumers away.
        let (disp, len, payload) = unsafe { ((*body).disp, (*body).len, (*body).payload) };
        Some(PublishedSlot { tag, disp, len: len as usize, data: self.channel.data(slot, payload) })
    }
}

impl PublishedSlot {
    /// The notification of a slot without data.
    #[inline(always)]
    pub(super) fn notification(&self) -> Option<Notification> {
        if self.len == 0 { Notification::from_bits(self.disp as u32) } else { None }
    }
}

impl Slot {
    /// Writes the fields.
    ///
    /// # Safety
    /// The caller is the origin and has write access by the table in [`super::protocol`].
    #[inline(always)]
    pub(super) unsafe fn fill(&self, disp: u64, len: u32, payload: u32) {
        let body = self.body.get();
        // SAFETY: no consumer reads the fields before the origin publishes the stamp.
        unsafe {
            (*body).disp = disp;
            (*body).len = len;
            (*body).payload = payload;
        }
    }

    #[inline(always)]
    fn inline(&self) -> *mut u8 {
        // SAFETY: computes an address inside the slot; reads nothing.
        unsafe { (&raw mut (*self.body.get()).inline).cast() }
    }
}

// SAFETY: by the table in [`super::protocol`], one process at a time accesses a slot's cells.
unsafe impl Sync for Slot {}
// SAFETY: a payload area is accessed under the same rules as the slots that refer to it.
unsafe impl Sync for PayloadArea {}

/// What to do with a slot's bytes. Travels in the upper half of the stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag {
    pub(super) kind: OpKind,
    pub(super) element: Element,
    pub(super) reduction: Reduction,
    pub(super) extent: u8,
    /// The payload starts with a list of runs (`run_list`), and the slot's displacement is unused.
    pub(super) has_run_list: bool,
    /// The payload is a [`Reference`](super::reference::Reference) to the origin's buffer.
    pub(super) is_reference: bool,
}

/// Flags beside the kind.
const LISTED: u8 = 0x80;
const REFERENCE: u8 = 0x40;

impl Tag {
    #[inline(always)]
    pub(super) fn of(op: &Op, has_run_list: bool) -> Self {
        Tag {
            kind: op.kind,
            element: op.element,
            reduction: op.reduction,
            extent: op.extent,
            has_run_list,
            is_reference: false,
        }
    }

    #[inline(always)]
    pub(super) fn encode(self) -> u32 {
        let kind = self.kind as u8
            | if self.has_run_list { LISTED } else { 0 }
            | if self.is_reference { REFERENCE } else { 0 };
        u32::from_le_bytes([kind, self.element.0, self.reduction.0, self.extent])
    }

    #[inline(always)]
    pub(super) fn decode(tag: u32) -> Self {
        let [kind, element, reduction, extent] = tag.to_le_bytes();
        let (has_run_list, is_reference) = (kind & LISTED != 0, kind & REFERENCE != 0);
        let kind = match kind & !(LISTED | REFERENCE) {
            0 => OpKind::Put,
            1 => OpKind::Get,
            2 => OpKind::Accumulate,
            3 => OpKind::GetAccumulate,
            _ => OpKind::CompareAndSwap,
        };
        Tag {
            kind,
            element: Element(element),
            reduction: Reduction(reduction),
            extent,
            has_run_list,
            is_reference,
        }
    }

    /// Whether it is an atomic operation, and not a put or get.
    #[inline(always)]
    pub(super) fn is_atomic(self) -> bool {
        !matches!(self.kind, OpKind::Put | OpKind::Get)
    }

    /// The reduction that the operation applies.
    #[inline(always)]
    pub(super) fn combine(self, foreign: ForeignReduce) -> Combine {
        Combine { element: self.element, reduction: self.reduction, extent: self.extent, foreign }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::protocol::publish;
    use super::*;

    #[test]
    fn decode_inverts_encode() {
        for kind in [
            OpKind::Put,
            OpKind::Get,
            OpKind::Accumulate,
            OpKind::GetAccumulate,
            OpKind::CompareAndSwap,
        ] {
            for (has_run_list, is_reference) in [(false, false), (true, false), (false, true)] {
                let tag = Tag {
                    kind,
                    element: Element(200),
                    reduction: Reduction(13),
                    extent: 32,
                    has_run_list,
                    is_reference,
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
