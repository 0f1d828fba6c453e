//! Protocols in shared memory: the channel, the accumulate lock, notification counters, and the
//! order of completed operations.
//!
//! Each works on borrowed words, so that loom can run it on words of its own. That is the only
//! reason why this module is public.
//!
//! # The channel of an ordered pair (origin, target)
//! A ring of slots with one producer, the origin. The consumer is whoever holds the consumer lock:
//! normally the target when it polls. If the target does not poll, the origin consumes its own
//! operations by cross-memory attach. Positions count slots from 0 and never wrap. Position `p`
//! uses slot `p % SLOTS`.
//!
//! Which word grants which access:
//!
//! | access | granted by | to |
//! |---|---|---|
//! | write slot and payload of position `p` | `head > p - SLOTS`, acquire | the origin |
//! | read them, write results into them | stamp of the slot is `p + 1`, acquire, and the consumer lock | the lock's holder |
//! | read the results | `head > p`, acquire | the origin |
//! | write `head`, rely on its value | the consumer lock, acquire | the lock's holder |
//!
//! The origin publishes a slot by a release store of its stamp, which makes its fields and payload
//! visible. The consumer stores `head` with release after it has applied the positions below. When
//! the origin sees that `head`, the operations are visible at the target [FE-2], the results are in
//! the payload, and the origin may write the slots again.
//!
//! The consumer lock is taken with acquire and released with release. The next holder therefore
//! sees the last `head` and applies no position twice, and its own release of `head` also covers
//! what earlier holders applied. Reading `head` or a stamp without the lock only tells whether an
//! attempt is worthwhile.

use std::sync::atomic::AtomicBool;

use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use crate::sync::{AtomicU32, AtomicU64, fence, fence_after_update, spin_loop, yield_now};

/// The two words that producer and consumers of a channel share.
#[derive(Clone, Copy, Debug)]
pub struct ChannelWords<'a> {
    /// First position that has not been applied.
    pub head: &'a AtomicU64,
    /// Consumer lock: 1 while held.
    pub consumer_lock: &'a AtomicU32,
}

impl<'a> ChannelWords<'a> {
    /// For the origin: positions below are applied, and it may reuse their slots.
    #[inline(always)]
    pub fn applied(&self) -> u64 {
        self.head.load(Acquire)
    }

    /// Where a consumer would start. The value may be outdated.
    #[inline(always)]
    pub fn peek(&self) -> u64 {
        self.head.load(Relaxed)
    }

    /// Takes the consumer lock; `None` if it is held.
    #[inline(always)]
    pub fn try_consume(&self) -> Option<Consumer<'a>> {
        if !try_lock(self.consumer_lock) {
            return None;
        }
        Some(Consumer { words: *self, position: self.head.load(Relaxed) })
    }
}

/// Sets a lock word from 0 to 1; false if it is 1. The load first keeps the cache line with the
/// holder, who is about to write it.
#[inline(always)]
fn try_lock(word: &AtomicU32) -> bool {
    word.load(Relaxed) == 0 && word.compare_exchange(0, 1, Acquire, Relaxed).is_ok()
}

/// Holds the consumer lock of a channel.
#[derive(Debug)]
pub struct Consumer<'a> {
    words: ChannelWords<'a>,
    position: u64,
}

impl Consumer<'_> {
    /// First position that has not been applied.
    #[inline(always)]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Publishes to the origin that every position below `position` is applied.
    #[inline(always)]
    pub fn advance(&mut self, position: u64) {
        debug_assert!(position >= self.position);
        if position != self.position {
            self.position = position;
            self.words.head.store(position, Release);
        }
    }
}

impl Drop for Consumer<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.words.consumer_lock.store(0, Release);
    }
}

/// Publishes the slot of `position`, whose fields are written, with a tag of 32 bits.
#[inline(always)]
pub fn publish(stamp: &AtomicU64, position: u64, tag: u32) {
    stamp.store(u64::from(expected(position)) | u64::from(tag) << 32, Release);
}

/// The tag of the slot, if it is published for `position`.
#[inline(always)]
pub fn published(stamp: &AtomicU64, position: u64) -> Option<u32> {
    let word = stamp.load(Acquire);
    (word as u32 == expected(position)).then_some((word >> 32) as u32)
}

/// Low half of a published stamp. It differs from 0, the stamp of an unused slot, and from the
/// stamp of the lap before. No slot has an older stamp.
#[inline(always)]
fn expected(position: u64) -> u32 {
    (position as u32).wrapping_add(1)
}

/// Shares the bytes of an operation between the two ends of a channel: each claims a range, copies
/// it, and claims the next. The word is 0 when the slot is published. It only divides the work; the
/// stamp and `head` order the accesses.
#[derive(Clone, Copy, Debug)]
pub struct Claims<'a>(pub &'a AtomicU64);

impl Claims<'_> {
    /// Claims the next `most` bytes of `len`, or the rest: their start and number. `None` if all
    /// are claimed.
    #[inline]
    pub fn claim(&self, most: u64, len: u64) -> Option<(u64, u64)> {
        if self.is_exhausted(len) {
            return None;
        }
        let start = self.0.fetch_add(most, Relaxed);
        (start < len).then(|| (start, most.min(len - start)))
    }

    /// Whether all of `len` bytes are claimed.
    #[inline]
    #[must_use]
    pub fn is_exhausted(&self, len: u64) -> bool {
        self.0.load(Relaxed) >= len
    }
}

/// Attempts before a waiter yields its CPU, because the holder of the lock may be descheduled.
const SPINS: u32 = if cfg!(loom) { 1 } else { 200 };

/// Spins for a while, then yields the CPU between attempts. Calls `waits` after each in vain.
fn wait_until(done: impl Fn() -> bool, waits: impl Fn()) {
    loop {
        for _ in 0..SPINS {
            if done() {
                return;
            }
            waits();
            spin_loop();
        }
        yield_now();
    }
}

/// Adds 1 to a notification counter, ordered after everything that this process has written. All
/// writes to the word are such additions, so whoever sees a later one also sees what came before
/// this one. Nobody resets the word (the engine subtracts what was consumed), so no addition is
/// lost.
#[inline(always)]
pub fn raise(counter: &AtomicU64) {
    counter.fetch_add(1, Release);
}

/// Number of notifications that a counter has received. What was written before each of them is
/// visible to the caller.
#[inline(always)]
pub fn raised(counter: &AtomicU64) -> u64 {
    counter.load(Acquire)
}

/// Origins of a counter that have a word of their own.
const OWN_COUNTS: usize = 3;

/// A notification counter that has a cache line of its own. Its value is the sum of its words.
///
/// An atomic addition waits until all earlier stores are visible: first for the cache lines of the
/// data, then for that of the counter. So the first origins that notify each claim a word that
/// nobody else writes. They raise it by a store, which waits for nothing: consecutive notifications
/// follow each other through the store buffer, and one transfer of the line carries several.
#[repr(C)]
#[derive(Debug, Default)]
pub struct CounterLine {
    shared: AtomicU64,
    own: [OwnCount; OWN_COUNTS],
}

/// A word of a [`CounterLine`] that belongs to one process.
#[repr(C)]
#[derive(Debug, Default)]
pub struct OwnCount {
    /// Who writes `count`; 0 for nobody.
    owner: AtomicU64,
    count: AtomicU64,
}

impl OwnCount {
    /// The process's share of the count.
    #[inline(always)]
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    /// As [`raise`], for the process that the word belongs to, to the count before plus 1. It does
    /// not read the word, whose line the target may have taken.
    #[inline(always)]
    pub fn raise_to(&self, count: u64) {
        self.count.store(count, Release);
    }
}

impl CounterLine {
    /// The word of process `name`, which is not 0: the process claims one if it has none. `None` if
    /// others have them all. The process's threads raise it one at a time, each after the one
    /// before in the sense of happens-before; other threads call
    /// [`raise_shared`](Self::raise_shared).
    #[inline(always)]
    pub fn claim(&self, name: u64) -> Option<&OwnCount> {
        if self.own[0].owner.load(Relaxed) == name {
            return Some(&self.own[0]);
        }
        self.claim_any(name)
    }

    #[inline(never)]
    fn claim_any(&self, name: u64) -> Option<&OwnCount> {
        self.own.iter().find(|own| {
            let owner = own.owner.load(Relaxed);
            owner == name
                || owner == 0 && own.owner.compare_exchange(0, name, Relaxed, Relaxed).is_ok()
        })
    }

    /// As [`raise`].
    #[inline(always)]
    pub fn raise_shared(&self) {
        raise(&self.shared);
    }

    /// The word that any thread may raise at any time.
    #[inline(always)]
    pub fn shared(&self) -> &AtomicU64 {
        &self.shared
    }

    /// As [`raised`].
    #[inline(always)]
    pub fn raised(&self) -> u64 {
        self.own.iter().fold(raised(&self.shared), |sum, own| sum + raised(&own.count))
    }
}

/// Orders the operations that a call has completed before whatever its caller does next [FE-2].
///
/// Puts and gets to mapped memory are plain copies, and most calls that complete them access no
/// shared word. A program may put data, flush, and put a flag: a peer that sees the flag must see
/// the data. Or it may get a flag, flush, and get the data. On x86-64 this fence is no instruction,
/// since the processor keeps those orders by itself.
#[inline(always)]
pub fn order_completed() {
    fence(AcqRel);
}

/// A get that is a load must wait until earlier stores are visible.
static LOADS_WAIT: AtomicBool = AtomicBool::new(false);

/// Orders operations on mapped memory before all that this process issues later [OR-1].
///
/// x86-64 keeps all orders but one: a load may be executed before an earlier store is visible. Only
/// a get after a put needs a fence for that, so the fence is left to the next get, which calls
/// [`order_load`]. AArch64 needs `dmb ish` here, which is also enough for loads.
#[inline(always)]
pub fn order_operations() {
    order_completed();
    LOADS_WAIT.store(true, Relaxed);
}

/// Called before a get that is a load, if [`order_operations`] may have been called in this thread.
#[inline(always)]
pub fn order_load() {
    if load_waits() {
        order_all();
    }
}

/// Whether [`order_load`] has something to do.
#[inline(always)]
#[must_use]
pub fn load_waits() -> bool {
    LOADS_WAIT.load(Relaxed)
}

/// As [`order_operations`], and orders loads too: for threads, which may call neither of the others
/// for each other.
#[cold]
pub fn order_all() {
    LOADS_WAIT.store(false, Relaxed);
    fence(SeqCst);
}

/// The accumulate lock of one target. Each word, on a cache line of its own, is 0 or held (1).
///
/// An operation within one piece of [`STRIPE_BYTES`] of the target's memory holds the stripe's word
/// of that piece, so that threads and processes that update different places do not wait for each
/// other. A wider one holds `wide`, and waits until nobody holds a stripe that it needs: one atomic
/// operation, whatever the number of pieces. Both set their word, execute a full fence, and read
/// the other's: the side whose fence comes second sees what the other has set. If it is the one
/// that needs a stripe, it gives that back, so a wide operation never waits for new ones.
#[derive(Debug, Default)]
#[repr(C)]
pub struct AccumulateWords {
    wide: Word,
    stripes: [Word; STRIPES],
}

/// The accumulate lock of a target, or none, for threads that may use it at any time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccumulateAddress(u64);

impl AccumulateAddress {
    /// The address of a lock.
    #[must_use]
    pub fn of(lock: Option<&AccumulateWords>) -> Self {
        AccumulateAddress(lock.map_or(0, |lock| std::ptr::from_ref(lock) as u64))
    }

    /// The address as a word.
    #[must_use]
    pub fn to_word(self) -> u64 {
        self.0
    }

    /// The inverse of [`to_word`](Self::to_word).
    #[must_use]
    pub fn of_word(word: u64) -> Self {
        AccumulateAddress(word)
    }

    /// The lock.
    ///
    /// # Safety
    /// The segment of the lock that this was made of is still mapped.
    #[must_use]
    #[inline(always)]
    pub unsafe fn get<'a>(self) -> Option<&'a AccumulateWords> {
        // SAFETY: null, or a lock in a segment that is mapped (contract of this function). All
        // processes access it as atomics only.
        unsafe { (self.0 as *const AccumulateWords).as_ref() }
    }
}

/// Words for the pieces, which take turns.
const STRIPES: usize = 8;
/// Bytes of the target's memory under one word.
pub const STRIPE_BYTES: u64 = 4096;

impl AccumulateWords {
    /// Locks `len` bytes at displacement `at` of the target's memory. Publishes what earlier
    /// holders wrote there. Spins for a while, then yields the CPU between attempts.
    #[inline(always)]
    pub fn lock(&self, at: u64, len: u64) -> AccumulateGuard<'_> {
        self.lock_while(at, len, || {})
    }

    /// As [`lock`](Self::lock). Calls `waits` again and again while it waits for another holder.
    #[inline(always)]
    pub fn lock_while(&self, at: u64, len: u64, waits: impl Fn()) -> AccumulateGuard<'_> {
        let (first, last) = (at / STRIPE_BYTES, at.wrapping_add(len.max(1) - 1) / STRIPE_BYTES);
        if first != last {
            return self.lock_wide(first, last.wrapping_sub(first), waits);
        }
        let stripe = &self.stripes[first as usize % STRIPES];
        loop {
            stripe.lock(&waits);
            fence_after_update();
            if self.wide.is_free() {
                return AccumulateGuard(stripe);
            }
            // Wide operations go first.
            stripe.unlock();
            self.wide.wait(&waits);
        }
    }

    /// Locks all of the target's memory.
    pub fn lock_all(&self) -> AccumulateGuard<'_> {
        self.lock_wide(0, STRIPES as u64, || {})
    }

    /// Locks the stripe of the piece `first`, and of `more` that follow it.
    #[inline(never)]
    fn lock_wide(&self, first: u64, more: u64, waits: impl Fn()) -> AccumulateGuard<'_> {
        self.wide.lock(&waits);
        fence_after_update();
        for stripe in 0..=more.min(STRIPES as u64 - 1) {
            let stripe = &self.stripes[first.wrapping_add(stripe) as usize % STRIPES];
            stripe.wait(&waits);
        }
        AccumulateGuard(&self.wide)
    }
}

/// A word of an accumulate lock.
#[derive(Debug, Default)]
#[repr(C, align(64))]
struct Word(AtomicU32);

impl Word {
    #[inline(always)]
    fn lock(&self, waits: impl Fn()) {
        if !try_lock(&self.0) {
            wait_until(|| try_lock(&self.0), waits);
        }
    }

    #[inline(always)]
    fn unlock(&self) {
        self.0.store(0, Release);
    }

    /// Waits until nobody holds it.
    #[inline]
    fn wait(&self, waits: impl Fn()) {
        wait_until(|| self.is_free(), waits);
    }

    /// Whether nobody holds it. What its last holder did is then visible.
    #[inline(always)]
    fn is_free(&self) -> bool {
        self.0.load(Acquire) == 0
    }
}

/// Holds an accumulate lock.
#[derive(Debug)]
pub struct AccumulateGuard<'a>(&'a Word);

impl Drop for AccumulateGuard<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.unlock();
    }
}
