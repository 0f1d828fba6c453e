//! Segments of ended windows, cached for the next window of the same processes. Creating a segment
//! costs some 20 µs of system calls and page faults; reusing one less than 1 µs.
//!
//! A process offers a cached segment only after its window there has ended. A segment is reused
//! only if all processes of the new window offer it, so nobody still uses it. The number of
//! processes that offer it equals the number that mapped it, so no other window can take it at the
//! same time.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

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

/// Takes the most recently used segment that fits such a window.
pub(super) fn take(ranks: u32, allocated: bool) -> Option<CachedSegment> {
    let mut cache = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    let fits = |cached: &CachedSegment| cached.ranks == ranks && cached.allocated == allocated;
    let at = cache.iter().position(fits)?;
    cache.remove(at)
}

/// Caches a segment that this process no longer uses, or drops it or an older one.
pub(super) fn put(cached: CachedSegment) {
    if cached.segment.len() <= CACHED_BYTES_MAX {
        let mut cache = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
        cache.push_front(cached);
        cache.truncate(CACHED_MAX);
    }
}

/// Returns a segment that other processes did not offer. Next time others are offered first.
pub(super) fn put_back(cached: CachedSegment) {
    CACHE.lock().unwrap_or_else(PoisonError::into_inner).push_back(cached);
}

/// An id for a new segment: the pid and a count.
pub(super) fn new_id(pid: i32) -> u64 {
    static COUNT: AtomicU32 = AtomicU32::new(1);
    u64::from(pid as u32) << 32 | u64::from(COUNT.fetch_add(1, Ordering::Relaxed))
}
