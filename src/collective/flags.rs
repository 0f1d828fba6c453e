//! A barrier that is repeated any number of times, over words of its own.

use crate::sync::{AtomicU64, Ordering};

/// Words from one flag to the next: each has a cache line.
const LINE: usize = 8;

/// A dissemination barrier. In round `k`, a process tells the process `2^k` ranks above that it has
/// heard of `2^k` processes. A flag holds the number of the last barrier in which it was raised, so
/// flags only rise and are never reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dissemination {
    me: usize,
    ranks: usize,
    /// Barriers that have been started.
    number: u64,
    /// Rounds of the current one that are done.
    done: u32,
    /// The flag of the next round has been raised.
    told: bool,
}

impl Dissemination {
    /// The barrier as process `me` of `ranks` sees it.
    #[must_use]
    pub fn new(me: u32, ranks: u32) -> Self {
        assert!(me < ranks);
        let (me, ranks) = (me as usize, ranks as usize);
        Dissemination { me, ranks, number: 0, done: 0, told: false }
    }

    fn rounds(&self) -> u32 {
        self.ranks.next_power_of_two().trailing_zeros()
    }

    /// Words that the processes share. They are zeros at first.
    #[must_use]
    pub fn words(&self) -> usize {
        (self.ranks * self.rounds() as usize * LINE).max(1)
    }

    fn flag<'a>(&self, words: &'a [AtomicU64], rank: usize, round: u32) -> &'a AtomicU64 {
        &words[(rank * self.rounds() as usize + round as usize) * LINE]
    }

    /// Begins the next barrier. The last one is complete.
    pub fn start(&mut self) {
        (self.number, self.done, self.told) = (self.number + 1, 0, false);
    }

    /// Does what can be done. True if all processes have begun this barrier.
    #[inline]
    pub fn advance(&mut self, words: &[AtomicU64]) -> bool {
        while self.done < self.rounds() {
            if !self.told {
                // Release: whoever hears of this process sees what it did before the barrier.
                self.flag(words, self.me, self.done).store(self.number, Ordering::Release);
                self.told = true;
            }
            let from = (self.me + self.ranks - (1 << self.done)) % self.ranks;
            if self.flag(words, from, self.done).load(Ordering::Acquire) < self.number {
                return false;
            }
            (self.done, self.told) = (self.done + 1, false);
        }
        true
    }
}
