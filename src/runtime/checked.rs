//! The list of windows that the last flush of many has found right [FL-2].
//!
//! A program flushes the same windows again and again. Looking up each of a hundred handles takes
//! longer than a flush that has nothing to wait for. So a call whose list is that of the call
//! before only compares the two, unless a handle or an epoch has changed since.

use std::sync::atomic::{AtomicU64, Ordering};

use super::registry::WindowId;
use super::window::HostHandle;

/// Counts what may make a list wrong that was right.
static CHANGES: AtomicU64 = AtomicU64::new(0);

/// Called, with the guard held, when a handle changes its meaning, and when a call opens or closes
/// an epoch.
#[inline(always)]
pub(crate) fn note_change() {
    // The guard orders the writers.
    CHANGES.store(CHANGES.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
}

/// A list of windows, all of which may be flushed towards `rank`.
#[derive(Debug)]
pub(crate) struct CheckedList {
    handles: Vec<u64>,
    /// The windows, and the lanes of the handles [DU-2].
    windows: Vec<(WindowId, u32)>,
    /// Whether one of them has duplicates.
    any_duplicated: bool,
    rank: i32,
    /// [`CHANGES`] when the check began. `None`: the check found a fault, or has not ended.
    since: Option<u64>,
}

impl CheckedList {
    pub(crate) const fn new() -> Self {
        Self {
            handles: Vec::new(),
            windows: Vec::new(),
            any_duplicated: false,
            rank: 0,
            since: None,
        }
    }

    /// Whether this is the list, and still right.
    #[inline]
    pub(crate) fn is(&self, rank: i32, handles: impl ExactSizeIterator<Item = HostHandle>) -> bool {
        self.since == Some(CHANGES.load(Ordering::Relaxed))
            && self.rank == rank
            && self.handles.len() == handles.len()
            // Without an early end, this is a few instructions for several handles.
            && self.handles.iter().zip(handles).fold(0, |diff, (a, b)| diff | (a ^ b.0)) == 0
    }

    /// Begins a new list. [`add`](Self::add) its windows, then call [`end`](Self::end).
    pub(crate) fn begin(&mut self, rank: i32) {
        (self.rank, self.since) = (rank, None);
        self.handles.clear();
        self.windows.clear();
        self.any_duplicated = false;
    }

    /// Adds a window that was found right.
    #[inline]
    pub(crate) fn add(&mut self, handle: HostHandle, window: (WindowId, u32), duplicated: bool) {
        self.handles.push(handle.0);
        self.windows.push(window);
        self.any_duplicated |= duplicated;
    }

    /// All windows were found right, with the guard held since [`begin`](Self::begin).
    pub(crate) fn end(&mut self) {
        self.since = Some(CHANGES.load(Ordering::Relaxed));
    }

    pub(crate) fn windows(&self) -> &[(WindowId, u32)] {
        &self.windows
    }

    /// Whether a window has duplicates, whose operations its flush does not wait for [DU-2].
    pub(crate) fn any_duplicated(&self) -> bool {
        self.any_duplicated
    }
}
