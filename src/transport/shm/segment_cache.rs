//! Segments of ended windows, cached for the next window of the same processes. Creating a segment
//! takes some 20 µs of system calls and page faults; reusing one takes less than 1 µs.
//!
//! A process offers a cached segment only after its own use of it has ended. A new window reuses a
//! segment only if all its processes offer it, and they must be as many as have mapped it. So
//! nobody still uses it, and no other window can take it at the same time.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use super::process::lock;
use super::segment::Segment;

const CACHED_MAX: usize = 4;

/// Bytes of the largest segment that is cached.
pub(super) const CACHED_BYTES_MAX: u64 = 4 << 20;

/// A segment that no window uses.
#[derive(Debug)]
pub(super) struct CachedSegment {
    /// The same in all processes that have mapped it.
    pub(super) id: u64,
    pub(super) segment: Segment,
    /// Number of processes that have mapped it.
    pub(super) ranks: u32,
    /// Its window's memory was in the segment, which decides the layout of the control blocks.
    pub(super) allocated: bool,
    /// Cross-memory attach works between these processes.
    pub(super) cma: bool,
}

/// Most recently used first.
static CACHE: Mutex<VecDeque<CachedSegment>> = Mutex::new(VecDeque::new());

/// Takes the most recently used segment that fits a window of this kind.
pub(super) fn take(ranks: u32, allocated: bool) -> Option<CachedSegment> {
    let mut cache = lock(&CACHE);
    let fits = |cached: &CachedSegment| cached.ranks == ranks && cached.allocated == allocated;
    let at = cache.iter().position(fits)?;
    cache.remove(at)
}

/// Caches a segment that this process no longer uses. Drops it if it is too long, or the least
/// recently used ones if the cache is full.
pub(super) fn put(cached: CachedSegment) {
    if cached.segment.len() <= CACHED_BYTES_MAX {
        let mut cache = lock(&CACHE);
        cache.push_front(cached);
        cache.truncate(CACHED_MAX);
    }
}

/// Puts back a segment that other processes did not offer. The next window is offered others first.
pub(super) fn put_back(cached: CachedSegment) {
    lock(&CACHE).push_back(cached);
}

/// An id for a new segment: the pid and a count.
pub(super) fn new_id(pid: i32) -> u64 {
    static COUNT: AtomicU32 = AtomicU32::new(1);
    u64::from(pid as u32) << 32 | u64::from(COUNT.fetch_add(1, Ordering::Relaxed))
}
