//! Distinguishes a target that does not poll from one that is slow.

use crate::sync::AtomicU32;
use crate::sync::Ordering::Relaxed;

/// Polls that find the head unmoved before the outbox checks whether the target polls. A poll takes
/// 10 to 20 ns; a target that does some work between its polls needs a few hundred.
const STALL_POLLS: u32 = 64;

/// Watches the head of one channel. `polls` is the target's poll count.
#[derive(Clone, Copy, Debug)]
pub(super) struct StallDetector {
    /// Polls of the outbox since the head moved.
    stalled: u32,
    /// Value of `stalled` at which the target's poll count is checked.
    limit: u32,
    /// The target's poll count at the last check.
    target_polls: u32,
}

impl StallDetector {
    pub(super) fn new(polls: &AtomicU32) -> Self {
        StallDetector { stalled: 0, limit: STALL_POLLS, target_polls: polls.load(Relaxed) }
    }

    /// Notes whether the head has moved since the last poll of an outbox that waits for it.
    #[inline(always)]
    pub(super) fn note(&mut self, moved: bool) {
        self.stalled = if moved { 0 } else { self.stalled + 1 };
    }

    /// Whether the target was found unresponsive and has not polled since.
    #[inline(always)]
    pub(super) fn known_unresponsive(&self, polls: &AtomicU32) -> bool {
        self.limit != STALL_POLLS && polls.load(Relaxed) == self.target_polls
    }

    /// As [`is_unresponsive`](Self::is_unresponsive), without waiting for further polls.
    pub(super) fn is_unresponsive_now(&mut self, polls: &AtomicU32) -> bool {
        self.stalled = STALL_POLLS;
        self.is_unresponsive(polls)
    }

    /// Whether the head has stalled, and the target has not polled since the last check.
    #[inline]
    pub(super) fn is_unresponsive(&mut self, polls: &AtomicU32) -> bool {
        if self.stalled < self.limit {
            return false;
        }
        let target_polls = polls.load(Relaxed);
        let unresponsive = target_polls == self.target_polls;
        // Check an unresponsive target at every poll until it polls again.
        let limit = if unresponsive { 1 } else { STALL_POLLS };
        *self = StallDetector { stalled: 0, limit, target_polls };
        unresponsive
    }
}
