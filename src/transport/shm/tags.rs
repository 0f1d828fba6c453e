//! The ring of tagged notifications to one process.
//!
//! It has any number of producers and one consumer. Positions count from 0 and never wrap; position
//! `p` uses slot `p % slots`. A producer claims a position, then publishes it. It tries again later
//! if the ring is full. The consumer empties the ring whenever it makes progress.
//!
//! Which word grants which access:
//!
//! | access | granted by | to |
//! |---|---|---|
//! | write the slot of position `p` | `tail` advanced from `p` to `p + 1`, after `head > p - slots`, acquire | that producer |
//! | read it | the slot's phase is that of `p`, acquire | the consumer |
//!
//! A producer publishes by one release store of the slot, whose top bit is the *phase*: 1 in the
//! first lap, 0 in the second, and so on, as in the completion queues of NVMe. A consumer that has
//! seen the phase also sees what the producer did before, so no notification comes before its data.
//! The consumer stores `head` with release after reading, so a producer that acquires it may write
//! the slot again. A claimed position that is not yet published delays those behind it, but none is
//! lost. Notifications of one producer keep their order, because it claims one position at a time.
//!
//! Everything starts as zeros. No slot is cleared while the window lives.

use std::cell::Cell;
use std::collections::VecDeque;

use crate::engine::{Arrival, Rank};
use crate::sync::AtomicU64;
use crate::sync::Ordering::{Acquire, Relaxed, Release};

use super::control::Parts;

/// Slots of a ring.
pub const SLOTS: usize = 1024;

/// One notification. Four share a cache line, so one transfer carries several to a consumer that is
/// behind.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Slot {
    word: AtomicU64,
    /// Where its data begin, so that the consumer can fetch them while it matches the notification:
    /// bytes from the start of the segment, 0 if unknown. Stored before the word.
    data: AtomicU64,
}

/// The bit of a slot that changes from lap to lap. A notification uses the others.
const PHASE: u64 = 1 << 63;

/// A ring over borrowed words. The number of slots is a power of two.
#[derive(Clone, Copy, Debug)]
pub struct TagRing<'a> {
    /// First position that no producer has claimed.
    pub tail: &'a AtomicU64,
    /// Positions below have been read.
    pub head: &'a AtomicU64,
    /// Not 0 once anything was published. Until then the consumer does not touch the slots' pages.
    pub used: &'a AtomicU64,
    /// The slots.
    pub slots: &'a [Slot],
}

impl TagRing<'_> {
    #[inline(always)]
    fn slot(&self, position: u64) -> &Slot {
        &self.slots[position as usize & (self.slots.len() - 1)]
    }

    /// The phase of a published position.
    #[inline(always)]
    fn phase(&self, position: u64) -> u64 {
        if position & self.slots.len() as u64 == 0 { PHASE } else { 0 }
    }

    /// For a producer: claims a position, which it must publish soon. `None` if the ring is full.
    /// `known_head` caches `head`, starting at 0; it is refreshed only when the ring looks full.
    #[inline]
    pub fn claim(&self, known_head: &mut u64) -> Option<u64> {
        let mut position = self.tail.load(Relaxed);
        loop {
            if position.wrapping_sub(*known_head) >= self.slots.len() as u64 {
                *known_head = self.head.load(Acquire);
                if position.wrapping_sub(*known_head) >= self.slots.len() as u64 {
                    // `tail` may be outdated, and `head` beyond it.
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

    /// For a producer: publishes a word below 2^63 at a claimed position, after everything that
    /// this process has done. `data`: see [`Slot`].
    #[inline]
    pub fn publish(&self, position: u64, word: u64, data: u64) {
        if position == 0 {
            self.used.store(1, Relaxed);
        }
        let slot = self.slot(position);
        slot.data.store(data, Relaxed);
        slot.word.store(self.phase(position) | word, Release);
    }

    /// For a producer: claims a position and publishes a word there. False if the ring is full.
    #[inline]
    pub fn push(&self, known_head: &mut u64, word: u64) -> bool {
        self.claim(known_head).map(|position| self.publish(position, word, 0)).is_some()
    }

    /// For the consumer: whether anything was ever published.
    #[inline(always)]
    pub fn is_used(&self) -> bool {
        self.used.load(Relaxed) != 0
    }

    /// For the consumer: the word at a position, once it is published.
    #[inline(always)]
    pub fn look(&self, position: u64) -> Option<u64> {
        let word = self.slot(position).word.load(Acquire);
        (word & PHASE == self.phase(position)).then_some(word & !PHASE)
    }

    /// For the consumer: where the data of a published position begin; see [`Slot`].
    #[inline(always)]
    fn data(&self, position: u64) -> u64 {
        self.slot(position).data.load(Relaxed)
    }

    /// For the consumer: releases the positions below `position` to the producers.
    #[inline(always)]
    pub fn advance(&self, position: u64) {
        self.head.store(position, Release);
    }
}

/// Source and tag in one word of the ring, both below 2^31, as MPI's integers are.
pub(super) fn encode(source: Rank, tag: u32) -> u64 {
    u64::from(source) << 32 | u64::from(tag)
}

fn decode(word: u64) -> Arrival {
    Arrival { source: (word >> 32) as Rank, tag: word as u32 }
}

/// A claimed position. It must be published, because the positions behind it wait for it.
#[must_use]
pub struct Claimed<'a> {
    parts: &'a Parts,
    /// The process that is notified.
    rank: Rank,
    position: u64,
    word: u64,
}

impl Claimed<'_> {
    /// Publishes it, after everything that this process has done. `data`: where this process has
    /// mapped its data, in the segment, or null.
    #[inline(always)]
    pub fn publish(self, data: *const u8) {
        let data = if data.is_null() { 0 } else { self.parts.offset(data) };
        self.parts.ring(self.rank).publish(self.position, self.word, data);
        let block = self.parts.rank(self.rank);
        // The claim has announced it by an atomic read-modify-write of `tail`.
        block.ring_if(block.arm().trigger_announced());
    }
}

/// Positions that the consumer reads between two updates of `head`, while there are more.
const PUBLISH_EVERY: u64 = SLOTS as u64 / 4;

/// Tagged notifications of one process: the consumer of its own ring, and a producer of the others.
#[derive(Debug, Default)]
pub(super) struct TagQueue {
    /// Parts of the segment, with the rings. `None` in a window of one process.
    parts: Option<Parts>,
    me: Rank,
    /// Own ring: positions below have been read.
    position: u64,
    /// Own ring: value of `head`.
    published: u64,
    /// Whether anything was ever published in the own ring.
    was_used: bool,
    /// Notifications to return before those in the ring: from this process to itself, and those
    /// that had arrived before them.
    pending: VecDeque<Arrival>,
    /// Cached heads of other rings, by rank. Empty until this process first notifies a peer.
    known_heads: Vec<Cell<u64>>,
    ranks: u32,
}

impl TagQueue {
    pub(super) fn new(parts: Option<Parts>, me: Rank, ranks: u32) -> Self {
        TagQueue { parts, me, ranks, ..TagQueue::default() }
    }

    /// Sends a tagged notification to this process itself.
    #[inline]
    pub(super) fn notify_self(&mut self, tag: u32) {
        // Notifications that have arrived come first.
        while let Some(arrival) = self.next_from_ring() {
            self.pending.push_back(arrival);
        }
        self.pending.push_back(Arrival { source: self.me, tag });
    }

    /// Allocates the cached heads. From now on [`claim`](Self::claim) fails only if a ring is full.
    #[inline]
    pub(super) fn prepare(&mut self) {
        if self.known_heads.is_empty() {
            self.known_heads = vec![Cell::new(0); self.ranks as usize];
        }
    }

    /// Claims a position in the ring of another process. `None` if the ring is full, or if this
    /// process has not notified a peer before.
    #[inline(always)]
    pub(super) fn claim(&self, rank: Rank, tag: u32) -> Option<Claimed<'_>> {
        let (known, parts) = (self.known_heads.get(rank as usize)?, self.parts.as_ref()?);
        if rank == self.me {
            return None;
        }
        let (ring, mut head) = (parts.ring(rank), known.get());
        let position = ring.claim(&mut head);
        known.set(head);
        Some(Claimed { parts, rank, position: position?, word: encode(self.me, tag) })
    }

    #[inline]
    pub(super) fn next(&mut self) -> Option<Arrival> {
        self.pending.pop_front().or_else(|| self.next_from_ring())
    }

    #[inline]
    fn next_from_ring(&mut self) -> Option<Arrival> {
        let parts = self.parts.as_ref()?;
        let ring = parts.ring(self.me);
        if !self.was_used {
            self.was_used = ring.is_used();
            if !self.was_used {
                return None;
            }
        }
        let word = ring.look(self.position);
        if word.is_some() {
            parts.prefetch(ring.data(self.position));
            self.position += 1;
        }
        if self.position != self.published
            && (word.is_none() || self.position - self.published == PUBLISH_EVERY)
        {
            self.published = self.position;
            ring.advance(self.position);
        }
        word.map(decode)
    }

    /// Whether a notification waits, or is about to be published. Called for a window that is being
    /// armed, after the fence of [`super::doorbell`].
    pub(super) fn has_work(&self) -> bool {
        let claimed = |parts: &Parts| parts.rank(self.me).tags_tail.0.load(Relaxed);
        !self.pending.is_empty()
            || self.parts.as_ref().is_some_and(|parts| claimed(parts) != self.position)
    }
}
