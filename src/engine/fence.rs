//! The barrier of a fence: dissemination over rising words, O(log P) messages per process [FE-1].

use super::port::{Port, Rank, Word};
use super::slab::Key;

/// The barrier in progress. There is at most one, since a fence epoch waits for the one before it.
#[derive(Debug)]
pub(super) struct Barrier {
    /// The closed fence epoch that the barrier completes.
    pub(super) epoch: Key,
    sequence: u64,
    distance: u64,
    signalled: bool,
}

impl Barrier {
    pub(super) fn new(epoch: Key, sequence: u64) -> Self {
        Barrier { epoch, sequence, distance: 1, signalled: false }
    }

    /// The process whose hop this process waits for, for the log.
    pub(super) fn awaited(&self, me: Rank, size: u32) -> Rank {
        let size = u64::from(size);
        ((u64::from(me) + size - self.distance % size) % size) as Rank
    }

    /// Advances as far as possible. True once every process has arrived. Every hop is an acquire
    /// (`observe`) followed by a release (`signal`), so what any process did before its fence is
    /// visible after it [FE-2].
    pub(super) fn advance(&mut self, port: &mut impl Port, me: Rank, size: u32) -> bool {
        let size = u64::from(size);
        while self.distance < size {
            if !self.signalled {
                let to = (u64::from(me) + self.distance) % size;
                if port.signal(to as Rank, Word::Fence, self.sequence).is_err() {
                    return false;
                }
                self.signalled = true;
            }
            // Two processes meet in at most one round, so one word per pair serves all rounds.
            let from = (u64::from(me) + size - self.distance) % size;
            if port.observe(from as Rank, Word::Fence) < self.sequence {
                return false;
            }
            self.distance *= 2;
            self.signalled = false;
        }
        true
    }
}
