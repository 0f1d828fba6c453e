//! The memory of targets that were looked up before.
//!
//! A program that communicates with many targets in turn would otherwise read the segment at each
//! operation: the control blocks of all ranks, which compete for the same places of the caches.

use crate::engine::Rank;
use crate::runtime::fast_path::MappedTarget;

/// Number of entries at most. Targets with the same remainder share one.
const ENTRIES: usize = 64;

/// Targets and their memory, by the remainder of the rank.
#[derive(Debug, Default)]
pub(super) struct KnownTargets(Vec<(Rank, MappedTarget)>);

impl KnownTargets {
    #[inline]
    pub(super) fn find(&self, target: Rank) -> Option<MappedTarget> {
        let (known, memory) = *self.0.get(target as usize % ENTRIES)?;
        (known == target).then_some(memory)
    }

    #[cold]
    pub(super) fn insert(&mut self, target: Rank, memory: MappedTarget) {
        let at = target as usize % ENTRIES;
        if at >= self.0.len() {
            let none = MappedTarget { base: 0, size: 0, unit: 1 };
            self.0.resize(at + 1, (Rank::MAX, none));
        }
        self.0[at] = (target, memory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_target_has_its_own_memory() {
        let memory = |base| MappedTarget { base, size: 8, unit: 1 };
        let mut known = KnownTargets::default();
        assert_eq!(known.find(3), None);
        known.insert(3, memory(30));
        known.insert(1, memory(10));
        assert_eq!((known.find(3), known.find(1)), (Some(memory(30)), Some(memory(10))));
        assert_eq!((known.find(0), known.find(2), known.find(Rank::MAX - 61)), (None, None, None));
        let other = 3 + ENTRIES as Rank;
        assert_eq!(known.find(other), None);
        known.insert(other, memory(40));
        assert_eq!((known.find(3), known.find(other)), (None, Some(memory(40))));
    }
}
