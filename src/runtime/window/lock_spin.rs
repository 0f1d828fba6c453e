//! Waiting for a free lock before a request enters its queue.
//!
//! The queue hands a lock over at each release. So two processes that lock the same target again
//! and again wait for four transfers of a cache line each time, and neither of them ever finds the
//! lock free while its words are in its own cache. Where two processes compete, one that has to
//! wait therefore looks at the queue a few times before it enters it, less often each time.
//! Meanwhile the other one may lock several times in a row.
//!
//! Nobody in the queue is passed by, since an empty queue is what the looks wait for. They delay a
//! request by less than a microsecond. With three or more processes, or where the target applies
//! the operations under the lock, so that it is held for longer, the queue is faster.

use std::time::Duration;

use crate::engine::Rank;
use crate::runtime::looks::pause_for;

/// Pauses between looks, in units of 50 ns. A hand-over takes 100 to 500 ns.
const PAUSES: [u32; 4] = [1, 2, 4, 8];
const UNIT: Duration = Duration::from_nanos(50);

/// Requests that enter the queue at once after one that has seen two other processes there.
const CROWDED: u32 = 63;

/// Whether the next request for a lock looks at the queue first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LockSpin {
    /// The target whose lock this process had to wait for the last time it had to wait.
    target: Option<Rank>,
    /// The process that was seen in the queue.
    other: Option<Rank>,
    /// Requests that will not look.
    skips: u32,
}

impl LockSpin {
    pub(crate) const fn new() -> Self {
        LockSpin { target: None, other: None, skips: 0 }
    }

    /// Whether a request for this target's lock looks first. False for what is no rank.
    #[inline(always)]
    pub(crate) fn looks(&mut self, target: Rank) -> bool {
        Some(target) == self.target && self.is_due()
    }

    #[inline(never)]
    fn is_due(&mut self) -> bool {
        let due = self.skips == 0;
        self.skips -= u32::from(!due);
        due
    }

    /// Looks until the queue is empty, not for long. `last` returns the last process in the queue.
    #[inline(never)]
    pub(crate) fn wait(&mut self, mut last: impl FnMut() -> Option<Rank>) {
        let mut pauses = PAUSES.iter();
        while let Some(seen) = last() {
            if *self.other.get_or_insert(seen) != seen {
                (self.other, self.skips) = (None, CROWDED);
                return;
            }
            let Some(pause) = pauses.next() else { return };
            pause_for(UNIT, *pause);
        }
    }

    /// Notes that a request had to wait in the queue of this target.
    pub(crate) fn queued(&mut self, target: Rank) {
        if Some(target) != self.target {
            *self = LockSpin { target: Some(target), ..Self::new() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks that find these processes in the queue, then nobody. Returns their number.
    fn looks(spin: &mut LockSpin, found: &[Rank]) -> usize {
        let mut made = 0;
        spin.wait(|| {
            made += 1;
            found.get(made - 1).copied()
        });
        made
    }

    #[test]
    fn only_a_target_that_was_waited_for_is_looked_at() {
        let mut spin = LockSpin::new();
        // `MPI_PROC_NULL` looks like the last one.
        assert!(!spin.looks(3) && !spin.looks(Rank::MAX) && !spin.looks(Rank::MAX - 1));
        spin.queued(3);
        assert!(spin.looks(3) && !spin.looks(2));
        spin.queued(2);
        assert!(!spin.looks(3) && spin.looks(2));
    }

    #[test]
    fn looks_end_with_an_empty_queue_or_after_a_while() {
        let mut spin = LockSpin::new();
        spin.queued(3);
        assert_eq!(looks(&mut spin, &[]), 1);
        assert_eq!(looks(&mut spin, &[7, 7]), 3);
        assert_eq!(looks(&mut spin, &[7; 100]), 1 + PAUSES.len());
        assert!(spin.looks(3));
    }

    #[test]
    fn a_queue_of_several_processes_is_entered_at_once() {
        let mut spin = LockSpin::new();
        spin.queued(3);
        assert_eq!(looks(&mut spin, &[7, 8, 7]), 2);
        assert_eq!((0..).find(|_| spin.looks(3)), Some(CROWDED));
        assert_eq!(looks(&mut spin, &[8, 8]), 3);
        assert_eq!(looks(&mut spin, &[7]), 1, "another one than before");
        assert!(!spin.looks(3));
    }
}
