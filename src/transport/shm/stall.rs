//! Distinguishes a target that does not poll from one that is slow.

use crate::sync::AtomicU32;
use crate::sync::Ordering::Relaxed;

/// Polls that find the head unmoved before the outbox checks whether the target polls. A poll takes
/// 10 to 20 ns; a target that does some work between its polls needs a few hundred.
const STALL_POLLS: u32 = 64;

/// The longest patience with a target that comes back to its polls while it is being assisted:
/// 10 to 20 µs.
const MOST_POLLS: u32 = 16 * STALL_POLLS;

/// Watches the head of one channel. `polls` is the target's poll count.
///
/// Assisting a target that is only slow makes it slower: it then waits for the locks that the
/// assistance holds, while its other origins see that it does not poll, and assist it too. So
/// whenever a target has polled during the assistance, the next one is preceded by twice as many
/// polls.
#[derive(Clone, Copy, Debug)]
pub(super) struct StallDetector {
    /// Polls of the outbox since the head moved.
    stalled: u32,
    /// Value of `stalled` at which the target's poll count is checked.
    limit: u32,
    /// The same for a target that polled at the last check.
    patience: u32,
    /// The target's poll count at the last check.
    target_polls: u32,
}

/// The limit for a target that did not poll between the last two checks: it is checked at every
/// poll, until it polls again.
const UNRESPONSIVE: u32 = 1;

impl StallDetector {
    pub(super) fn new(polls: &AtomicU32) -> Self {
        StallDetector {
            stalled: 0,
            limit: STALL_POLLS,
            patience: STALL_POLLS,
            target_polls: polls.load(Relaxed),
        }
    }

    /// Notes whether the head has moved since the last poll of an outbox that waits for it.
    #[inline(always)]
    pub(super) fn note(&mut self, moved: bool) {
        self.stalled = if moved { 0 } else { self.stalled + 1 };
    }

    /// Whether the target was found unresponsive and has not polled since.
    #[inline(always)]
    pub(super) fn known_unresponsive(&self, polls: &AtomicU32) -> bool {
        self.limit == UNRESPONSIVE && polls.load(Relaxed) == self.target_polls
    }

    /// Polls before a check, for one who calls
    /// [`is_unresponsive_now`](Self::is_unresponsive_now).
    pub(super) fn patience(&self) -> u32 {
        self.patience
    }

    /// As [`is_unresponsive`](Self::is_unresponsive), without waiting for further polls.
    pub(super) fn is_unresponsive_now(&mut self, polls: &AtomicU32) -> bool {
        self.stalled = self.limit;
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
        self.stalled = 0;
        self.limit = if unresponsive { UNRESPONSIVE } else { self.patience };
        self.target_polls = target_polls;
        unresponsive
    }

    /// Notes that an unresponsive target has been assisted.
    pub(super) fn assisted(&mut self, polls: &AtomicU32) {
        let premature = polls.load(Relaxed) != self.target_polls;
        let patience = if premature { self.patience * 2 } else { self.patience * 3 / 4 };
        self.patience = patience.clamp(STALL_POLLS, MOST_POLLS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Polls that see no movement until the target is found unresponsive.
    fn polls_until_unresponsive(stall: &mut StallDetector, polls: &AtomicU32) -> u32 {
        (1..)
            .find(|_| {
                stall.note(false);
                stall.is_unresponsive(polls)
            })
            .unwrap()
    }

    #[test]
    fn a_target_that_computes_is_assisted_at_every_poll() {
        let polls = AtomicU32::new(7);
        let mut stall = StallDetector::new(&polls);
        assert_eq!(polls_until_unresponsive(&mut stall, &polls), STALL_POLLS);
        stall.assisted(&polls);
        assert!(stall.known_unresponsive(&polls));
        assert_eq!(polls_until_unresponsive(&mut stall, &polls), 1);
        polls.store(8, Relaxed);
        assert!(!stall.known_unresponsive(&polls));
        // The first check sees that the target has polled, and the next one that it has stopped.
        assert_eq!(polls_until_unresponsive(&mut stall, &polls), 1 + STALL_POLLS);
    }

    #[test]
    fn patience_grows_with_a_target_that_returns_and_shrinks_with_one_that_does_not() {
        let polls = AtomicU32::new(0);
        let mut stall = StallDetector::new(&polls);
        for round in 0..6 {
            stall.is_unresponsive_now(&polls);
            assert_eq!(stall.patience(), (STALL_POLLS << round).min(MOST_POLLS));
            polls.store(polls.load(Relaxed) + 1, Relaxed);
            stall.assisted(&polls);
        }
        for _ in 0..10 {
            stall.is_unresponsive_now(&polls);
            stall.assisted(&polls);
        }
        assert_eq!(stall.patience(), STALL_POLLS);
    }
}
