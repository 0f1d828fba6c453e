//! What both ends of a created window's channels use.

use crate::engine::{Notification, NotificationKind, Rank};
use crate::transport::datatype::element::ForeignReduce;

use super::control::Parts;
use super::counters::Counters;
use super::tags;

/// Parts of the segment, and what belongs to this process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Context {
    pub(super) parts: Parts,
    pub(super) me: Rank,
    /// This process's window memory.
    pub(super) base: *mut u8,
    pub(super) foreign: ForeignReduce,
    /// The window's current notification counters, or null.
    counters: *const Counters,
}

impl Context {
    pub(super) fn new(parts: Parts, me: Rank, base: *mut u8, foreign: ForeignReduce) -> Self {
        Context { parts, me, base, foreign, counters: std::ptr::null() }
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
                self.parts.ring(rank).push(&mut 0, tags::encode(origin, tag))
            }
        }
    }
}
