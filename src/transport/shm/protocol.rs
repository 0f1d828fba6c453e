//! The protocols in shared memory that need thought: the channel, the accumulate lock, and
//! notification counters.
//!
//! Written over borrowed words, so that loom can run them on words of its own; that is also the
//! only reason why they are public.
//!
//! # The channel of an ordered pair (origin, target)
//! A ring of slots with one producer, the origin. The consumer is whoever holds the `drain` word:
//! normally the target in its poll; or the origin itself, by cross-memory attach, when the target
//! does not poll. Positions count slots from 0 and never wrap; slot `position % SLOTS` serves a
//! position.
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
//! The origin publishes a slot by a release store of its stamp, so its fields and payload are there
//! when the stamp is. The holder of `drain` releases `head` after it has applied the positions
//! before, so when the origin sees it, the operations are visible at the target [FE-2], results lie
//! in the payload, and the slots are the origin's again. `drain` is given back by a release store
//! and taken by an acquire: the next holder sees the last head, never applies a position twice, and
//! its own release of `head` covers what earlier holders did. A peek at `head` and the stamp
//! without `drain` only decides whether to try.

use crate::sync::Ordering::{Acquire, Relaxed, Release};
use crate::sync::{AtomicU32, AtomicU64, spin_loop, yield_now};

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
        if !take(self.drain) {
            return None;
        }
        Some(Drain { ends: *self, position: self.head.load(Relaxed) })
    }
}

/// Takes a word from 0 to 1, unless it is 1. The first look leaves the cache line with the holder,
/// who is about to write it.
#[inline(always)]
fn take(word: &AtomicU32) -> bool {
    word.load(Relaxed) == 0 && word.compare_exchange(0, 1, Acquire, Relaxed).is_ok()
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

/// Low bits of a published stamp. An unused slot is 0, and a slot is never more than one lap
/// behind.
#[inline(always)]
fn expected(position: u64) -> u32 {
    (position as u32).wrapping_add(1)
}

/// Tries before the CPU is given up: the holder may have been descheduled, more ranks than cores.
const SPINS: u32 = if cfg!(loom) { 1 } else { 200 };

/// Adds a notification to a counter, wherever its word lives, after everything that this process
/// has written: a release, and since all writes of the word are additions, also for those who see a
/// later one. The word is never written otherwise: who takes notifications remembers how many, so
/// none is lost between the two.
#[inline(always)]
pub fn raise(counter: &AtomicU64) {
    counter.fetch_add(1, Release);
}

/// Notifications that have come to a counter; what was written before each is visible then.
#[inline(always)]
pub fn raised(counter: &AtomicU64) -> u64 {
    counter.load(Acquire)
}

/// A target's accumulate lock, wherever its word lives: 0 free, 1 held.
///
/// Taking it is an acquire and giving it up a release on that word, so what was written to the
/// target's memory under the lock is seen by the next holder.
#[derive(Debug)]
pub struct AccumulateLock<'a>(pub &'a AtomicU32);

impl<'a> AccumulateLock<'a> {
    /// Takes the lock; gives the CPU up between tries after a while.
    #[inline(always)]
    pub fn hold(&self) -> Hold<'a> {
        if !take(self.0) {
            self.wait();
        }
        Hold(self.0)
    }

    #[cold]
    fn wait(&self) {
        loop {
            for _ in 0..SPINS {
                if take(self.0) {
                    return;
                }
                spin_loop();
            }
            yield_now();
        }
    }
}

/// The lock as long as it is held.
#[derive(Debug)]
pub struct Hold<'a>(&'a AtomicU32);

impl Drop for Hold<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.store(0, Release);
    }
}
