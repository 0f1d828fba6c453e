//! The ring of tagged notifications to one process: what its peers tell it, in the order in which
//! they have claimed their places.
//!
//! Any number of producers, one consumer. Positions count from 0 and never wrap; slot `position %
//! slots` serves a position. The ring is bounded: a producer that finds it full does nothing, and
//! tries again later. The consumer empties it into private memory whenever it makes progress,
//! whatever its application does.
//!
//! Which word gives whom access to what:
//!
//! | access | given by | to |
//! |---|---|---|
//! | write the word of the slot of position `p` | `tail` taken from `p` to `p + 1`, after `head > p - slots`, acquire | that producer |
//! | read it | the slot's stamp is `p + 1`, acquire | the consumer |
//!
//! A producer publishes by a release store of the stamp, so what it wrote (or read) before,
//! anywhere, comes before what the consumer does after it has seen the stamp: no notification
//! before its data. The consumer releases `head` when it has read, so a producer that acquires it
//! may write the slot again. A producer that has claimed a place and not yet published it holds up
//! those behind it, and nobody loses anything. Notifications of one producer keep their order,
//! because it claims one place after the other.
//!
//! Everything starts as zeros. A stamp tells every lap apart, so slots are never cleared while the
//! window lives.

use std::cell::Cell;
use std::collections::VecDeque;

use crate::engine::{Arrival, Rank};
use crate::sync::AtomicU64;
use crate::sync::Ordering::{Acquire, Relaxed, Release};

use super::words::{Blocks, RankBlock};

/// Slots of a ring.
pub const SLOTS: usize = 1024;

/// One notification. Four to a cache line: a consumer that is behind reads them at once.
#[repr(C, align(16))]
#[derive(Debug, Default)]
pub struct Slot {
    stamp: AtomicU64,
    word: AtomicU64,
}

/// A ring, wherever its words live. The number of slots is a power of two.
#[derive(Clone, Copy, Debug)]
pub struct Ring<'a> {
    /// First position that no producer has claimed.
    pub tail: &'a AtomicU64,
    /// Positions below were read.
    pub head: &'a AtomicU64,
    /// Not 0 once there was anything: the consumer need not look at the slots before, which lie in
    /// memory of their own.
    pub used: &'a AtomicU64,
    /// The slots.
    pub slots: &'a [Slot],
}

impl Ring<'_> {
    #[inline(always)]
    fn slot(&self, position: u64) -> &Slot {
        &self.slots[position as usize & (self.slots.len() - 1)]
    }

    /// A producer: claims a place, which is to be published before long. `None` if there is no room
    /// now. `known` is what this producer knows of `head`, 0 at first: it asks again only when that
    /// does not suffice.
    #[inline]
    pub fn claim(&self, known: &mut u64) -> Option<u64> {
        let mut position = self.tail.load(Relaxed);
        loop {
            if position.wrapping_sub(*known) >= self.slots.len() as u64 {
                *known = self.head.load(Acquire);
                if position.wrapping_sub(*known) >= self.slots.len() as u64 {
                    // `tail` may have been old, and then `head` is beyond it.
                    let now = self.tail.load(Relaxed);
                    if now == position {
                        return None;
                    }
                    position = now;
                    continue;
                }
            }
            match self.tail.compare_exchange_weak(position, position + 1, Relaxed, Relaxed) {
                Ok(_) => return Some(position),
                Err(now) => position = now,
            }
        }
    }

    /// A producer: publishes the place that it has claimed, behind all that this process has done.
    #[inline]
    pub fn publish(&self, position: u64, word: u64) {
        if position == 0 {
            self.used.store(1, Relaxed);
        }
        let slot = self.slot(position);
        slot.word.store(word, Relaxed);
        slot.stamp.store(position + 1, Release);
    }

    /// A producer: adds a word behind all that this process has done. False if there is no room
    /// now.
    #[inline]
    pub fn push(&self, known: &mut u64, word: u64) -> bool {
        self.claim(known).map(|position| self.publish(position, word)).is_some()
    }

    /// The consumer: true if there was ever anything.
    #[inline(always)]
    pub fn is_used(&self) -> bool {
        self.used.load(Relaxed) != 0
    }

    /// The consumer: the word at a position, once it is published.
    #[inline(always)]
    pub fn look(&self, position: u64) -> Option<u64> {
        let slot = self.slot(position);
        (slot.stamp.load(Acquire) == position + 1).then(|| slot.word.load(Relaxed))
    }

    /// The consumer: everything below `position` was read.
    #[inline(always)]
    pub fn advance(&self, position: u64) {
        self.head.store(position, Release);
    }
}

/// Source and tag as a word of the ring.
pub(super) fn encode(source: Rank, tag: u32) -> u64 {
    u64::from(source) << 32 | u64::from(tag)
}

fn decode(word: u64) -> Arrival {
    Arrival { source: (word >> 32) as Rank, tag: word as u32 }
}

/// The rings of a window's processes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rings {
    blocks: Blocks,
    slots: *const Slot,
}

impl Rings {
    /// # Safety
    /// `slots` has [`SLOTS`] slots for each of the ranks of `blocks`, shared and zeroed or in use
    /// by this protocol, for as long as the result is used; or the result is used for nothing but
    /// its blocks.
    pub(super) unsafe fn new(blocks: Blocks, slots: *const Slot) -> Self {
        Rings { blocks, slots }
    }

    #[inline(always)]
    pub(super) fn blocks(&self) -> Blocks {
        self.blocks
    }

    /// The ring of a process.
    #[inline(always)]
    pub(super) fn of(&self, rank: Rank) -> Ring<'_> {
        let block = self.blocks.rank(rank);
        // SAFETY: by the promise made to `new`.
        let slots =
            unsafe { std::slice::from_raw_parts(self.slots.add(rank as usize * SLOTS), SLOTS) };
        Ring { tail: &block.tags_tail.0, head: &block.tags.0.head, used: &block.tags.0.used, slots }
    }
}

/// A place for a notification, which must be published: those behind it wait for it.
#[derive(Debug)]
#[must_use]
pub struct Claimed<'a> {
    ring: Ring<'a>,
    /// Of the process that is notified.
    block: &'a RankBlock,
    position: u64,
    word: u64,
}

impl Claimed<'_> {
    /// Publishes it, behind all that this process has done.
    #[inline(always)]
    pub fn publish(self) {
        self.ring.publish(self.position, self.word);
        // The claim has announced it.
        self.block.ring_if(self.block.arm().trigger_announced());
    }
}

/// Positions after which producers are told that they were read, if there is more.
const TELL: u64 = SLOTS as u64 / 4;

/// Tagged notifications of one process: both of its ends.
#[derive(Debug)]
pub(super) struct Tags {
    /// `None` in a window of one process.
    rings: Option<Rings>,
    me: Rank,
    /// Of its own ring: positions below were read; producers know of those below the second.
    position: u64,
    told: u64,
    /// There was something once.
    used: bool,
    /// Those that were read and not yet given: of this process to itself, and what had come before.
    read: VecDeque<Arrival>,
    /// What is known of the heads of other rings, by rank; empty as long as none was told anything.
    known: Vec<Cell<u64>>,
    ranks: u32,
}

impl Tags {
    pub(super) fn new(rings: Option<Rings>, me: Rank, ranks: u32) -> Self {
        Tags {
            rings,
            me,
            position: 0,
            told: 0,
            used: false,
            read: VecDeque::new(),
            known: Vec::new(),
            ranks,
        }
    }

    /// Tells a process a tag, after everything that this process has done. False if there is no
    /// room now.
    #[inline]
    pub(super) fn tell(&mut self, rank: Rank, tag: u32) -> bool {
        match self.rings {
            Some(rings) if rank != self.me => {
                if self.known.is_empty() {
                    self.known = vec![Cell::new(0); self.ranks as usize];
                }
                let told =
                    rings.of(rank).push(self.known[rank as usize].get_mut(), encode(self.me, tag));
                let block = rings.blocks.rank(rank);
                block.ring_if(told && block.arm().trigger_announced());
                told
            }
            _ => {
                // Behind what has come before.
                while let Some(arrival) = self.next_of_ring() {
                    self.read.push_back(arrival);
                }
                self.read.push_back(Arrival { source: self.me, tag });
                true
            }
        }
    }

    /// Claims a place in the ring of another process. `None` if there is no room now, or if it was
    /// never told anything.
    #[inline(always)]
    pub(super) fn claim(&self, rank: Rank, tag: u32) -> Option<Claimed<'_>> {
        let (known, rings) = (self.known.get(rank as usize)?, self.rings.as_ref()?);
        if rank == self.me {
            return None;
        }
        let (ring, mut head) = (rings.of(rank), known.get());
        let position = ring.claim(&mut head);
        known.set(head);
        Some(Claimed {
            ring,
            block: self.rings.as_ref()?.blocks.rank(rank),
            position: position?,
            word: encode(self.me, tag),
        })
    }

    /// The next notification to this process.
    #[inline]
    pub(super) fn next(&mut self) -> Option<Arrival> {
        if let Some(arrival) = self.read.pop_front() {
            return Some(arrival);
        }
        self.next_of_ring()
    }

    #[inline]
    fn next_of_ring(&mut self) -> Option<Arrival> {
        let ring = self.rings.as_ref()?.of(self.me);
        if !self.used {
            self.used = ring.is_used();
            if !self.used {
                return None;
            }
        }
        let word = ring.look(self.position);
        self.position += u64::from(word.is_some());
        if self.position != self.told && (word.is_none() || self.position - self.told == TELL) {
            self.told = self.position;
            ring.advance(self.position);
        }
        word.map(decode)
    }

    /// True if a notification waits to be taken out, or is about to be published. For a window that
    /// is being armed, after the fence of [`super::doorbell`].
    pub(super) fn has_work(&self) -> bool {
        !self.read.is_empty()
            || self.rings.is_some_and(|rings| rings.of(self.me).tail.load(Relaxed) != self.position)
    }
}

/// As when the ring was new; nobody uses it.
///
/// # Safety
/// No process uses the window's segment for anything else meanwhile, and `slots` is the ring of
/// this block.
pub(super) unsafe fn clean(tail: &AtomicU64, slots: *mut Slot) {
    if tail.load(Relaxed) != 0 {
        // SAFETY: the caller's promise.
        unsafe { slots.write_bytes(0, SLOTS) };
    }
}
