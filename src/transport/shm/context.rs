//! Addresses in a created window's segment that both ends of its channels use.

use crate::engine::{Notification, NotificationKind, Rank};
use crate::sync::AtomicU64;
use crate::sync::Ordering::{Relaxed, Release};
use crate::transport::datatype::element::ForeignReduce;

use super::channel::Channel;
use super::control::ControlBlocks;
use super::counters::Counters;
use super::layout::contact_words;
use super::tags::{self, TagRings};

/// Parts of the segment, and what belongs to this process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Context {
    pub(super) blocks: ControlBlocks,
    pub(super) me: Rank,
    /// This process's window memory.
    pub(super) base: *mut u8,
    pub(super) foreign: ForeignReduce,
    size: u32,
    contacts: *const AtomicU64,
    channels: *const Channel,
    rings: TagRings,
    /// The window's current notification counters, or null.
    counters: *const Counters,
}

impl Context {
    /// # Safety
    /// The segment parts must be those of a window of `size` ranks of which `me` is one, and stay
    /// mapped as long as the result is used; `base` is this process's window memory.
    pub(super) unsafe fn new(
        rings: TagRings,
        contacts: *const AtomicU64,
        channels: *const Channel,
        me: Rank,
        size: u32,
        base: *mut u8,
        foreign: ForeignReduce,
    ) -> Self {
        let (blocks, counters) = (rings.blocks(), std::ptr::null());
        Context { blocks, me, base, foreign, size, contacts, channels, rings, counters }
    }

    /// Replaces the notification counters.
    ///
    /// # Safety
    /// They must live until this is called again, or as long as the context is used.
    pub(super) unsafe fn set_counters(&mut self, counters: Option<&Counters>) {
        self.counters = counters.map_or(std::ptr::null(), std::ptr::from_ref);
    }

    /// Notifies `rank` on behalf of `origin`, after everything that was done to its memory before.
    /// False if its ring of tagged notifications is full.
    #[inline]
    pub(super) fn notify(&self, rank: Rank, origin: Rank, notification: Notification) -> bool {
        match notification.kind() {
            NotificationKind::Counter(index) => {
                // SAFETY: null, or counters that the caller of `set_counters` keeps alive.
                if let Some(counters) = unsafe { self.counters.as_ref() } {
                    counters.raise(rank, index);
                }
                true
            }
            NotificationKind::Tag(tag) => {
                self.rings.of(rank).push(&mut 0, tags::encode(origin, tag))
            }
        }
    }

    /// The channel from `origin` to `target`. Channels to one target are adjacent.
    #[inline(always)]
    pub(super) fn channel<'a>(&self, target: Rank, origin: Rank) -> &'a Channel {
        debug_assert!(target < self.size && origin < self.size);
        // SAFETY: the layout has one channel per ordered pair of ranks, both ranks are below the
        // size, and the window unmaps the segment only after the channels' users are dropped.
        unsafe { &*self.channels.add(target as usize * self.size as usize + origin as usize) }
    }

    /// Bit `origin` is set once that origin has used its channel to `target`.
    pub(super) fn contacts(&self, target: Rank) -> &[AtomicU64] {
        let words = contact_words(u64::from(self.size)) as usize;
        // SAFETY: the layout has this many aligned words per rank, accessed as atomics only; the
        // caller of `new` keeps them mapped.
        unsafe { std::slice::from_raw_parts(self.contacts.add(target as usize * words), words) }
    }

    /// Registers this process as an origin with `target`, once. Writes the count with release
    /// after the bit; the target reads the count before the bits.
    pub(super) fn make_contact(&self, target: Rank) {
        self.contacts(target)[self.me as usize / 64].fetch_or(1 << (self.me % 64), Relaxed);
        self.blocks.rank(target).contacts.0.origins.fetch_add(1, Release);
    }
}
