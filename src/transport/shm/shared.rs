//! What a created window's processes share, as the channel's two ends need it.

use crate::engine::Rank;
use crate::sync::AtomicU64;
use crate::sync::Ordering::{Relaxed, Release};
use crate::transport::datatype::element::ForeignReduce;

use super::channel::Channel;
use super::counters::Counters;
use super::layout::contact_words;
use super::tags::{self, Rings};
use super::words::Blocks;

/// Addresses in the segment, and this process's part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shared {
    pub(super) blocks: Blocks,
    pub(super) me: Rank,
    /// This process's window memory.
    pub(super) base: *mut u8,
    pub(super) foreign: ForeignReduce,
    size: u32,
    contacts: *const AtomicU64,
    channels: *const Channel,
    rings: Rings,
    /// Of the window, as long as these are in force; null if there are none.
    counters: *const Counters,
}

impl Shared {
    /// # Safety
    /// The segment parts must be those of a window of `size` ranks of which `me` is one, valid as
    /// long as the result is used; `base` is this process's window memory.
    pub(super) unsafe fn new(
        rings: Rings,
        contacts: *const AtomicU64,
        channels: *const Channel,
        me: Rank,
        size: u32,
        base: *mut u8,
        foreign: ForeignReduce,
    ) -> Self {
        let (blocks, counters) = (rings.blocks(), std::ptr::null());
        Shared { blocks, me, base, foreign, size, contacts, channels, rings, counters }
    }

    /// Other counters are in force.
    ///
    /// # Safety
    /// They live until this is called again, or as long as the result is used.
    pub(super) unsafe fn set_counters(&mut self, counters: Option<&Counters>) {
        self.counters = counters.map_or(std::ptr::null(), std::ptr::from_ref);
    }

    /// Raises a counter, after everything that was done to the memory of `rank` before.
    #[inline]
    pub(super) fn raise(&self, rank: Rank, index: u64) {
        // SAFETY: null, or alive by the promise of `set_counters`.
        if let Some(counters) = unsafe { self.counters.as_ref() } {
            counters.raise(rank, index as u32);
        }
    }

    /// Tells `rank` a tag in the name of `origin`, after everything that was done to its memory
    /// before. False if there is no room now.
    #[inline]
    pub(super) fn tell(&self, rank: Rank, origin: Rank, tag: u64) -> bool {
        self.rings.of(rank).push(&mut 0, tags::encode(origin, tag as u32))
    }

    /// The channel from `origin` to `target`. Channels to one target are neighbours.
    #[inline(always)]
    pub(super) fn channel<'a>(&self, target: Rank, origin: Rank) -> &'a Channel {
        debug_assert!(target < self.size && origin < self.size);
        // SAFETY: the layout has one channel for each ordered pair of ranks, and the segment
        // outlives all uses in this module tree.
        unsafe { &*self.channels.add(target as usize * self.size as usize + origin as usize) }
    }

    /// The words whose bits say which origins have made contact with `target`.
    pub(super) fn contacts(&self, target: Rank) -> &[AtomicU64] {
        let words = contact_words(u64::from(self.size)) as usize;
        // SAFETY: the layout has this many words for each rank.
        unsafe { std::slice::from_raw_parts(self.contacts.add(target as usize * words), words) }
    }

    /// Makes this process known to `target`, once. The count is released after the bit, and read
    /// before it.
    pub(super) fn make_contact(&self, target: Rank) {
        self.contacts(target)[self.me as usize / 64].fetch_or(1 << (self.me % 64), Relaxed);
        self.blocks.rank(target).contacts.0.origins.fetch_add(1, Release);
    }
}
