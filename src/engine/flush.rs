//! Ages of operations, and the flushes that wait for older ones [FL-1].
//!
//! Operations issued between two flushes share an age. A flush waits for the current age at each
//! target and opens the next one. It is complete at a target when no operation of its age or an
//! older one is outstanding there. A completion updates only the count of its own age. So the cost
//! does not grow with the number of pending flushes, and operations may complete in any order.

use std::collections::VecDeque;

use smallvec::SmallVec;

use super::port::RequestId;
use super::slab::Key;

/// A pending flush. It is complete when `remaining` is 0.
#[derive(Debug)]
pub(super) struct Flush {
    pub(super) request: RequestId,
    /// Targets with older operations outstanding, plus lock epochs that are not granted yet [EP-1].
    pub(super) remaining: u32,
}

#[derive(Debug)]
struct Age {
    outstanding: u32,
    flush: Option<Key>,
}

/// The ages of the operations to one target, for one completion stage.
#[derive(Debug)]
pub(super) struct Ages {
    oldest: u32,
    /// Never empty: the last age is open.
    ages: VecDeque<Age>,
}

impl Ages {
    /// Made by the first flush that has to wait. All outstanding operations get age 0.
    pub(super) fn new(outstanding: u32) -> Self {
        Ages { oldest: 0, ages: VecDeque::from([Age { outstanding, flush: None }]) }
    }

    /// As [`new`](Self::new), with the memory of one that nothing waits for any more.
    pub(super) fn renew(&mut self, outstanding: u32) {
        self.oldest = 0;
        self.ages.clear();
        self.ages.push_back(Age { outstanding, flush: None });
    }

    /// Whether it has memory for more ages than are worth keeping for another target.
    pub(super) fn is_large(&self) -> bool {
        self.ages.capacity() > 64
    }

    pub(super) fn current(&self) -> u32 {
        self.oldest.wrapping_add(self.ages.len() as u32 - 1)
    }

    /// Counts a new operation and returns its age.
    pub(super) fn issue(&mut self) -> u32 {
        self.ages.back_mut().expect("the last age is open").outstanding += 1;
        self.current()
    }

    /// Makes `flush` wait for all operations issued so far. At least one must be outstanding.
    pub(super) fn stamp(&mut self, flush: Key) {
        let last = self.ages.back_mut().expect("the last age is open");
        debug_assert!(last.flush.is_none());
        last.flush = Some(flush);
        self.ages.push_back(Age { outstanding: 0, flush: None });
    }

    /// An operation of `age` has completed. Returns the flushes that are now complete here.
    pub(super) fn retire(&mut self, age: u32) -> SmallVec<[Key; 4]> {
        let mut satisfied = SmallVec::new();
        let at = age.wrapping_sub(self.oldest) as usize;
        self.ages[at].outstanding -= 1;
        while self.ages.len() > 1 && self.ages[0].outstanding == 0 {
            let age = self.ages.pop_front().expect("more than one age");
            self.oldest = self.oldest.wrapping_add(1);
            satisfied.extend(age.flush);
        }
        satisfied
    }
}
