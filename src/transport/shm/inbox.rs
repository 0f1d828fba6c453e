//! The target's end of all channels to it.

use std::cell::RefCell;
use std::rc::Rc;

use crate::engine::{OpKind, Rank};
use crate::sync::AtomicU32;
use crate::sync::Ordering::{Acquire, Relaxed};
use crate::transport::copy;
use crate::transport::datatype::compare_swap_in_place;
use crate::transport::datatype::element::ForeignReduce;

use super::acc;
use super::channel::{Channel, SLOTS, Tag};
use super::list::List;
use super::protocol::{AccumulateLock, published};
use super::regions::Regions;
use super::shared::Shared;

/// Channels looked at in one poll.
const CHANNELS_PER_POLL: usize = 16;

/// Bytes after which the origin is told, in the middle of a batch, so that both ends work at once.
const TELL_BYTES: usize = 4 * 1024;

/// Which origins have ever used their channel to this process, and whose turn it is.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    /// Contacts when the list was made.
    contacts: u32,
    origins: Vec<Rank>,
    cursor: usize,
    /// Dynamic windows: what this process has attached.
    attached: Option<Rc<RefCell<Regions>>>,
}

impl Inbox {
    pub(super) fn new(attached: Option<Rc<RefCell<Regions>>>) -> Self {
        Inbox { attached, ..Inbox::default() }
    }

    /// Applies what has come in, from a bounded number of origins, a bounded number of operations
    /// each.
    #[inline]
    pub(super) fn poll(&mut self, shared: &Shared) -> bool {
        let block = shared.blocks.rank(shared.me);
        // Only this process writes it.
        block.beat.0.store(block.beat.0.load(Relaxed).wrapping_add(1), Relaxed);
        let contacts = block.contacts.0.origins.load(Acquire);
        if contacts != self.contacts {
            self.meet(shared, contacts);
        }
        let mut moved = false;
        for _ in 0..self.origins.len().min(CHANNELS_PER_POLL) {
            if self.cursor >= self.origins.len() {
                self.cursor = 0;
            }
            let origin = self.origins[self.cursor];
            let channel = shared.channel(shared.me, origin);
            self.cursor += 1;
            let head = channel.ends().peek();
            if published(&channel.slot(head).stamp, head).is_some() {
                moved |= serve(channel, origin, shared, self.attached.as_deref());
            }
        }
        moved
    }

    /// Whether an operation waits, or an origin has made contact that was not read. For a window
    /// that is being armed, after the fence of [`super::doorbell`].
    pub(super) fn has_work(&self, shared: &Shared) -> bool {
        let block = shared.blocks.rank(shared.me);
        block.contacts.0.origins.load(Acquire) != self.contacts
            || self.origins.iter().any(|origin| {
                let channel = shared.channel(shared.me, *origin);
                let head = channel.ends().peek();
                published(&channel.slot(head).stamp, head).is_some()
            })
    }

    /// Reads who has made contact. `contacts` was read before the bits, so that no later one is
    /// missed.
    #[cold]
    fn meet(&mut self, shared: &Shared, contacts: u32) {
        self.contacts = contacts;
        self.origins.clear();
        for (at, word) in (0..).zip(shared.contacts(shared.me)) {
            let mut bits = word.load(Acquire);
            while bits != 0 {
                self.origins.push(at * 64 + bits.trailing_zeros());
                bits &= bits - 1;
            }
        }
    }
}

/// Applies a channel's operations to this process's memory, at most a channelful.
fn serve(
    channel: &Channel,
    origin: Rank,
    shared: &Shared,
    attached: Option<&RefCell<Regions>>,
) -> bool {
    let Some(mut drain) = channel.ends().try_drain() else {
        return false; // The origin does it itself just now.
    };
    let first = drain.position();
    let mut position = first;
    let mut untold = 0;
    while position - first < SLOTS as u64 {
        let Some(tag) = published(&channel.slot(position).stamp, position) else { break };
        let kind = Tag::decode(tag).kind;
        if kind == OpKind::NotifyTagged {
            // SAFETY: the stamp was seen under the drain, so the slot is ours to read.
            let (disp, ..) = unsafe { channel.slot(position).fields() };
            if !shared.tell(shared.me, origin, disp) {
                // The next poll has made room before it comes here.
                break;
            }
            position += 1;
            continue;
        }
        if let Some(attached) = attached
            && kind != OpKind::Notify
            // SAFETY: as below.
            && !unsafe { may_apply(channel, position, Tag::decode(tag), &attached.borrow()) }
        {
            position += 1;
            continue;
        }
        // SAFETY: the stamp was seen under the drain, so the slot and its payload are ours to use.
        untold += unsafe { apply(channel, position, Tag::decode(tag), shared.base, shared) };
        position += 1;
        if untold >= TELL_BYTES {
            untold = 0;
            drain.advance(position);
        }
    }
    drain.advance(position);
    position != first
}

/// True if this process still has attached what a slot works on; else the slot fetches zeros, and
/// does nothing. Its origin has seen the memory attached, so the program has detached it too early.
///
/// # Safety
/// As [`apply`].
#[inline(never)]
unsafe fn may_apply(channel: &Channel, position: u64, tag: Tag, attached: &Regions) -> bool {
    let slot = channel.slot(position);
    // SAFETY: read access is the caller's.
    let (disp, len, payload) = unsafe { slot.fields() };
    let mut data = channel.data(slot, payload);
    let covered = if tag.listed {
        // SAFETY: the payload is a list, and the caller's.
        let list = unsafe { List::read(data) };
        data = list.data;
        list.runs().all(|(at, len, _)| attached.cover(at, len as u64))
    } else {
        attached.cover(disp, u64::from(len))
    };
    if !covered {
        log::error!(
            "an operation on {len} bytes at {disp:#x} is left out: the memory was detached before it was complete"
        );
        if tag.kind != OpKind::Put && tag.kind != OpKind::Accumulate {
            // SAFETY: the payload has room for as many bytes as are moved, and is the caller's.
            unsafe { data.write_bytes(0, len as usize) };
        }
    }
    covered
}

/// Applies one slot to this process's memory at `base`; gives the bytes it moved.
///
/// # Safety
/// The caller holds the channel's drain and has seen the slot published.
#[inline(always)]
unsafe fn apply(
    channel: &Channel,
    position: u64,
    tag: Tag,
    base: *mut u8,
    shared: &Shared,
) -> usize {
    let slot = channel.slot(position);
    // SAFETY: read access is the caller's.
    let (disp, len, payload) = unsafe { slot.fields() };
    let len = len as usize;
    let data = channel.data(slot, payload);
    if tag.listed {
        // SAFETY: the origin has checked all places against this window; the payload is ours.
        unsafe { apply_list(tag, data, base, shared) };
        return len;
    }
    let target = base.wrapping_add(disp as usize);
    match tag.kind {
        // SAFETY: the origin has checked displacement and length against this window; the payload
        // holds `len` bytes.
        OpKind::Put => unsafe { copy(data, target, len) },
        // SAFETY: as above.
        OpKind::Get => unsafe { copy(target, data, len) },
        OpKind::Notify => shared.raise(shared.me, disp),
        _ => {
            let lock = &shared.blocks.rank(shared.me).accumulate.0;
            // SAFETY: as above.
            unsafe { apply_atomic(lock, tag, data, target, len, shared.foreign) };
        }
    }
    len
}

/// Applies a slot with a list of places.
///
/// # Safety
/// As [`apply`]: `payload` is a list, and its places lie in the memory at `base`.
#[inline(never)]
unsafe fn apply_list(tag: Tag, payload: *mut u8, base: *mut u8, shared: &Shared) {
    let combine = tag.combine(shared.foreign);
    let copies = matches!(tag.kind, OpKind::Put | OpKind::Get);
    let _held =
        (!copies).then(|| AccumulateLock(&shared.blocks.rank(shared.me).accumulate.0).hold());
    // SAFETY: the caller's promise, and the lock [AT-1].
    unsafe { List::read(payload).apply(tag.kind, &combine, base) };
}

/// Applies an atomic operation to mapped memory, under its lock [AT-1].
///
/// # Safety
/// `data` and `target` must be valid as the operation needs, and `data` the caller's alone.
#[inline]
unsafe fn apply_atomic(
    lock: &AtomicU32,
    tag: Tag,
    data: *mut u8,
    target: *mut u8,
    len: usize,
    foreign: ForeignReduce,
) {
    // One piece of a channel is shorter than one hold of the lock may be.
    const _: () = assert!(super::outbox::PIECE_MAX <= acc::HOLD);
    let _held = AccumulateLock(lock).hold();
    // SAFETY: the caller's promise, and the lock.
    unsafe { combine_slot(tag, data, target, len, foreign) };
}

/// Applies an atomic operation's slot to memory that the caller has locked.
///
/// # Safety
/// As [`apply_atomic`].
#[inline]
pub(super) unsafe fn combine_slot(
    tag: Tag,
    data: *mut u8,
    target: *mut u8,
    len: usize,
    foreign: ForeignReduce,
) {
    let combine = tag.combine(foreign);
    // SAFETY: the caller's promise.
    unsafe {
        match tag.kind {
            OpKind::Accumulate => combine.apply(data, target, len),
            OpKind::GetAccumulate => combine.exchange_apply(data, target, len),
            OpKind::CompareAndSwap => compare_swap_in_place(target, data, len),
            OpKind::Put | OpKind::Get | OpKind::Notify | OpKind::NotifyTagged => {
                debug_assert!(false, "not atomic")
            }
        }
    }
}
