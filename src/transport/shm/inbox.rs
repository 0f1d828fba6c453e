//! The target's end of all channels to it.

use std::cell::RefCell;
use std::rc::Rc;

use crate::engine::{OpKind, Rank};
use crate::sync::Ordering::{Acquire, Relaxed};
use crate::transport::copy::{copy, copy_away};
use crate::transport::datatype::compare_swap_in_place;
use crate::transport::datatype::element::ForeignReduce;

use super::accumulate::LOCK_HOLD_BYTES;
use super::accumulate_reference;
use super::channel::{Channel, PublishedSlot, SLOTS, Tag};
use super::context::Context;
use super::control::RankBlock;
use super::reference::{drop_rest, help};
use super::regions::Regions;
use super::run_list::RunList;

/// Maximum number of channels polled in one call.
const CHANNELS_PER_POLL: usize = 16;

/// Bytes of a batch after which `head` is published, so that the origin continues meanwhile.
const PUBLISH_BYTES: usize = 4 * 1024;

/// The origins that use their channel to this process, polled round robin.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    /// The contact count for which `origins` was read.
    contacts: u32,
    origins: Vec<Rank>,
    cursor: usize,
    /// Dynamic windows: the memory that this process has attached.
    attached: Option<Rc<RefCell<Regions>>>,
    /// Cross-memory attach to origins works.
    attaches: bool,
    /// Data of atomic operations by reference, kept for reuse.
    scratch: Vec<u8>,
}

impl Inbox {
    pub(super) fn new(attached: Option<Rc<RefCell<Regions>>>) -> Self {
        Inbox { attached, attaches: true, ..Inbox::default() }
    }

    /// Applies operations that have arrived, from a bounded number of origins and a bounded number
    /// of each. True if there were any.
    #[inline]
    pub(super) fn poll(&mut self, context: &Context) -> bool {
        let block = context.parts.rank(context.me);
        count_poll(block);
        let contacts = block.contacts.0.origins.load(Acquire);
        if contacts != self.contacts {
            self.read_contacts(context, contacts);
        }
        let mut moved = false;
        for _ in 0..self.origins.len().min(CHANNELS_PER_POLL) {
            if self.cursor >= self.origins.len() {
                self.cursor = 0;
            }
            let origin = self.origins[self.cursor];
            let channel = context.parts.channel(context.me, origin);
            self.cursor += 1;
            if channel.has_published() {
                let Inbox { attached, attaches, scratch, .. } = self;
                moved |= serve(channel, origin, context, attached.as_deref(), attaches, scratch);
            }
        }
        moved
    }

    /// Whether an operation waits, or an origin has made contact since the last poll. Called for a
    /// window that is being armed, after the fence of [`super::doorbell`].
    pub(super) fn has_work(&self, context: &Context) -> bool {
        let block = context.parts.rank(context.me);
        block.contacts.0.origins.load(Acquire) != self.contacts
            || self
                .origins
                .iter()
                .any(|origin| context.parts.channel(context.me, *origin).has_published())
    }

    /// Reads which origins have made contact. The caller has read the count `contacts` before, so a
    /// contact that is not yet among the bits changes the count, and a later poll finds it.
    #[cold]
    fn read_contacts(&mut self, context: &Context, contacts: u32) {
        self.contacts = contacts;
        self.origins.clear();
        for (at, word) in (0..).zip(context.parts.contacts(context.me)) {
            let mut bits = word.load(Acquire);
            while bits != 0 {
                self.origins.push(at * 64 + bits.trailing_zeros());
                bits &= bits - 1;
            }
        }
    }
}

/// Shows other processes that this one polls.
#[inline(always)]
fn count_poll(block: &RankBlock) {
    // This process alone writes the word, so load and store suffice.
    block.polls.0.store(block.polls.0.load(Relaxed).wrapping_add(1), Relaxed);
}

/// Applies a channel's operations to this process's memory, at most as many as it has slots.
fn serve(
    channel: &Channel,
    origin: Rank,
    context: &Context,
    attached: Option<&RefCell<Regions>>,
    attaches: &mut bool,
    scratch: &mut Vec<u8>,
) -> bool {
    let Some(mut consuming) = channel.try_consume() else {
        return false; // The origin is applying them by cross-memory attach.
    };
    let first = consuming.consumer.position();
    let mut position = first;
    let mut unpublished = 0;
    while position - first < SLOTS as u64 {
        let Some(slot) = consuming.slot(position) else { break };
        if let Some(notification) = slot.notification() {
            if !context.notify(context.me, origin, notification) {
                // The ring is full. This process empties it before the next poll.
                break;
            }
            position += 1;
            continue;
        }
        if let Some(attached) = attached
            // SAFETY: `slot` is published and the consumer lock is held.
            && !unsafe { is_attached(slot, &attached.borrow()) }
        {
            position += 1;
            continue;
        }
        if slot.tag.is_reference {
            // The copy may take long, and the origin may wait for what came before.
            consuming.consumer.advance(position);
            // SAFETY: `slot` is published and by reference, and the consumer lock is held.
            let ended = unsafe { apply_reference(&slot, origin, context, attaches, scratch) };
            if !ended {
                break;
            }
            position += 1;
            consuming.consumer.advance(position);
            continue;
        }
        // SAFETY: `slot` is published and the consumer lock is held. The origin has checked the
        // target bytes against this window.
        unsafe { apply(slot, context) };
        unpublished += slot.len;
        position += 1;
        if unpublished >= PUBLISH_BYTES {
            unpublished = 0;
            consuming.consumer.advance(position);
        }
    }
    consuming.consumer.advance(position);
    position != first
}

/// Applies a slot by reference, or a part of it. True if that ends it.
///
/// # Safety
/// The slot is by reference and published, and the caller holds the consumer lock of its channel.
#[inline(never)]
unsafe fn apply_reference(
    slot: &PublishedSlot,
    origin: Rank,
    context: &Context,
    attaches: &mut bool,
    scratch: &mut Vec<u8>,
) -> bool {
    let origin = context.parts.rank(origin).info.0.process.pid;
    // SAFETY: the slot is published and by reference, and the consumer lock is held (contract of
    // this function). The origin has checked the target bytes against this window.
    unsafe {
        match slot.tag.is_atomic() {
            true => accumulate_reference::apply(slot, context, origin, attaches, scratch),
            false => help(slot, context.base, origin, attaches),
        }
    }
}

/// Whether the target bytes of a slot are still attached. If not, the program has detached them too
/// early, since the origin saw them attached. Then the slot fetches zeros and must not be applied.
///
/// # Safety
/// The slot is published and the caller holds the consumer lock of its channel.
#[inline(never)]
unsafe fn is_attached(slot: PublishedSlot, attached: &Regions) -> bool {
    let PublishedSlot { tag, disp, len, mut data } = slot;
    let covered = if tag.has_run_list {
        // SAFETY: the origin wrote and published the list, and the caller holds the consumer lock.
        let list = unsafe { RunList::read(data) };
        data = list.data;
        list.runs().all(|(at, len, _)| attached.cover(at, len as u64))
    } else {
        attached.cover(disp, len as u64)
    };
    if !covered {
        log::error!(
            "dropped an operation on {len} bytes at {disp:#x}: \
             the memory was detached before the operation completed"
        );
        if tag.is_reference {
            // SAFETY: `slot` is published and by reference, and the caller holds the consumer lock.
            unsafe { drop_rest(&slot) };
            return false;
        }
        if tag.kind != OpKind::Put && tag.kind != OpKind::Accumulate {
            // SAFETY: the payload of a fetching operation has room for `len` bytes and belongs to
            // the holder of the consumer lock.
            unsafe { data.write_bytes(0, len) };
        }
    }
    covered
}

/// Applies one slot to this process's memory.
///
/// # Safety
/// The slot is published, the caller holds the consumer lock of its channel, and its target bytes
/// lie in this process's window memory.
#[inline(always)]
unsafe fn apply(slot: PublishedSlot, context: &Context) {
    let PublishedSlot { tag, disp, len, data } = slot;
    if tag.has_run_list {
        // SAFETY: the payload is a run list that belongs to the holder of the consumer lock, and
        // its runs lie in the window memory.
        unsafe { apply_list(tag, data, context) };
        return;
    }
    let target = context.base.wrapping_add(disp as usize);
    match tag.kind {
        // SAFETY: the payload holds `len` bytes and the window memory has them at `target`.
        OpKind::Put => unsafe { copy(data, target, len) },
        // SAFETY: the payload has room for `len` bytes and the window memory has them at `target`.
        OpKind::Get => unsafe { copy_away(target, data, len) },
        _ => {
            // A slot has at most one piece, short enough for one hold of the lock.
            const _: () = assert!(super::outbox::PIECE_MAX <= LOCK_HOLD_BYTES);
            let block = context.parts.rank(context.me);
            // Counts polls while another process holds the lock: otherwise other origins would take
            // this process for one that does not poll, and assist it.
            let lock = &block.accumulate_lock;
            let _held = lock.lock_while(disp, len as u64, || count_poll(block));
            // SAFETY: payload and `len` bytes at `target` are valid; the accumulate lock is held
            // [AT-1].
            unsafe { combine_slot(tag, data, target, len, context.foreign) };
        }
    }
}

/// Applies a slot with a run list to this process's memory.
///
/// # Safety
/// `payload` is a run list that belongs to the caller, and its runs lie in the window memory.
#[inline(never)]
unsafe fn apply_list(tag: Tag, payload: *mut u8, context: &Context) {
    let combine = tag.combine(context.foreign);
    let _held = tag.is_atomic().then(|| context.parts.rank(context.me).accumulate_lock.lock_all());
    // SAFETY: the list belongs to the caller, its runs lie in the window memory, and the accumulate
    // lock is held if the operation is atomic [AT-1].
    unsafe { RunList::read(payload).apply(tag.kind, &combine, context.base) };
}

/// Applies the data of an atomic operation to `target`. The elements that it fetches replace the
/// data.
///
/// # Safety
/// `data` and `target` must be valid for the operation on `len` bytes, and nobody else may access
/// them: `target` is private or the caller holds its accumulate lock.
#[inline]
pub(super) unsafe fn combine_slot(
    tag: Tag,
    data: *mut u8,
    target: *mut u8,
    len: usize,
    foreign: ForeignReduce,
) {
    let combine = tag.combine(foreign);
    // SAFETY: both buffers are valid, do not overlap, and nobody else accesses them.
    unsafe {
        match tag.kind {
            OpKind::Accumulate => combine.apply(data, target, len),
            OpKind::GetAccumulate => combine.exchange_apply(data, target, len),
            OpKind::CompareAndSwap => compare_swap_in_place(target, data, len),
            OpKind::Put | OpKind::Get => debug_assert!(false, "not atomic"),
        }
    }
}
