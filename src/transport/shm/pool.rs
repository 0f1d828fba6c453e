//! Segments of ended windows, kept for the next window of the same processes: making one costs some
//! 20 µs of system calls and page faults, taking a kept one less than one.
//!
//! A segment is offered for reuse only by a process that has let go of it, and used again only if
//! all processes of the new window offer it; so nobody still works on it. As many processes offer
//! it as have mapped it, so no other window can use it at the same time.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use super::segment::Segment;

/// Segments kept in a process.
const KEPT: usize = 4;

/// Bytes of the largest segment that is kept.
pub(super) const KEPT_BYTES: u64 = 4 << 20;

/// A segment that no window uses.
#[derive(Debug)]
pub(super) struct Kept {
    /// Its name, the same in all processes that have mapped it.
    pub(super) name: u64,
    pub(super) segment: Segment,
    /// Processes that have mapped it.
    pub(super) ranks: u32,
    /// What kind of window it was; decides how the first part is laid out.
    pub(super) allocated: bool,
    /// These processes were found able to attach to each other.
    pub(super) attached: bool,
}

/// The most recently kept first.
static POOL: Mutex<VecDeque<Kept>> = Mutex::new(VecDeque::new());

/// Takes the most recently kept segment that could serve such a window.
pub(super) fn take(ranks: u32, allocated: bool) -> Option<Kept> {
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    let at = pool.iter().position(|kept| kept.ranks == ranks && kept.allocated == allocated)?;
    pool.remove(at)
}

/// Keeps a segment that this process has done with, or drops it or an older one.
pub(super) fn keep(kept: Kept) {
    if kept.segment.len() <= KEPT_BYTES {
        let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
        pool.push_front(kept);
        pool.truncate(KEPT);
    }
}

/// Puts a segment back that the other processes did not offer; others are offered before it next
/// time.
pub(super) fn put_back(kept: Kept) {
    POOL.lock().unwrap_or_else(PoisonError::into_inner).push_back(kept);
}

/// A name for a new segment: this process, and a count.
pub(super) fn fresh_name(pid: i32) -> u64 {
    static COUNT: AtomicU32 = AtomicU32::new(1);
    u64::from(pid as u32) << 32 | u64::from(COUNT.fetch_add(1, Ordering::Relaxed))
}
