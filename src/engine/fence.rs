//! The barrier of a fence: dissemination over rising words, O(log P) messages per process [FE-1].

use super::port::{Port, Rank, Word};
use super::slab::Key;

/// How a fence epoch is granted and completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FenceKind {
    /// A barrier grants it, and a barrier completes it [FE-1].
    Barrier,
    /// As `Barrier`, and its accesses become the window's pattern [FE-4].
    Learns,
    /// The neighbours of this process grant and complete it [FE-3].
    Neighbours,
}

/// The process whose rank is lower by `distance`, at most `size`, modulo the number of processes.
/// Without a division, which would take a tenth of the time of a near hop.
#[inline]
fn before(me: Rank, distance: u64, size: u32) -> Rank {
    let me = u64::from(me);
    (if me >= distance { me - distance } else { me + u64::from(size) - distance }) as Rank
}

/// The barrier in progress. There is at most one, since a fence epoch waits for the one before it.
#[derive(Debug)]
pub(super) struct Barrier {
    /// The closed fence epoch that the barrier completes.
    pub(super) epoch: Key,
    /// The value of a hop, without marks.
    hop: u64,
    /// The distance of the present round is two to this power.
    round: u8,
    signalled: bool,
}

impl Barrier {
    pub(super) fn new(epoch: Key, hop: u64) -> Self {
        Barrier { epoch, hop, round: 0, signalled: false }
    }

    /// The process whose hop this process waits for, for the log.
    pub(super) fn awaited(&self, me: Rank, size: u32) -> Rank {
        before(me, (1 << self.round) % u64::from(size), size)
    }

    /// True if a hop was sent to the process whose rank is higher by `distance`, modulo the number
    /// of processes.
    pub(super) fn has_sent_hop(&self, distance: u64) -> bool {
        let rounds = u32::from(self.round) + u32::from(self.signalled);
        distance.is_power_of_two() && distance.trailing_zeros() < rounds
    }

    /// Advances as far as possible. True once every process has arrived. Every hop is an acquire
    /// (`observe`) followed by a release (`signal`), so what any process did before its fence is
    /// visible after it [FE-2]. `marks`: what else the word of a process says [FE-4].
    #[inline]
    pub(super) fn advance(
        &mut self,
        port: &mut impl Port,
        me: Rank,
        size: u32,
        marks: impl Fn(Rank, u64) -> u64,
    ) -> bool {
        while 1 << self.round < u64::from(size) {
            let distance = 1 << self.round;
            if !self.signalled {
                let to = before(me, u64::from(size) - distance, size);
                if port.signal(to, Word::Fence, self.hop + marks(to, self.hop)).is_err() {
                    return false;
                }
                self.signalled = true;
            }
            // Two processes meet in at most one round, so one word per pair serves all rounds.
            if port.observe(before(me, distance, size), Word::Fence) < self.hop {
                return false;
            }
            self.round += 1;
            self.signalled = false;
        }
        true
    }
}
