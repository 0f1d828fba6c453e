//! Sets of address ranges.

use std::collections::BTreeMap;

/// A set of addresses, as maximal ranges. Maps the start of each range to its end.
#[derive(Debug, Default)]
pub(super) struct AddressRanges(BTreeMap<usize, usize>);

impl AddressRanges {
    pub(super) fn add(&mut self, at: usize, end: usize) {
        let (mut at, mut end) = (at, end);
        // Ranges that touch are joined.
        while let Some((from, to)) =
            self.last_before(end.saturating_add(1)).filter(|(_, to)| *to >= at)
        {
            self.0.remove(&from);
            (at, end) = (at.min(from), end.max(to));
        }
        if at < end {
            self.0.insert(at, end);
        }
    }

    /// Removes a range. Returns the parts of it that were in the set.
    pub(super) fn remove(&mut self, at: usize, end: usize) -> Vec<(usize, usize)> {
        let mut removed = Vec::new();
        while let Some((from, to)) = self.last_before(end).filter(|(_, to)| at < end && *to > at) {
            self.0.remove(&from);
            if to > end {
                self.0.insert(end, to);
            }
            if from < at {
                self.0.insert(from, at);
            }
            removed.push((from.max(at), to.min(end)));
        }
        removed
    }

    /// The last range that starts before this address.
    fn last_before(&self, end: usize) -> Option<(usize, usize)> {
        self.0.range(..end).next_back().map(|(from, to)| (*from, *to))
    }

    /// Whether the set contains an address of the range.
    pub(super) fn meets(&self, at: usize, end: usize) -> bool {
        at < end && self.last_before(end).is_some_and(|(_, to)| to > at)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (usize, usize)> {
        self.0.iter().map(|(from, to)| (*from, *to))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_an_array_of_flags() {
        let mut rng = fastrand::Rng::with_seed(5);
        for _ in 0..200 {
            let (mut ranges, mut model) = (AddressRanges::default(), [false; 64]);
            for _ in 0..30 {
                let at = rng.usize(0..64);
                let end = rng.usize(at..=64);
                let add = rng.bool();
                if add {
                    ranges.add(at, end);
                } else {
                    let removed = ranges.remove(at, end);
                    for (place, member) in model.iter().enumerate() {
                        let part = removed.iter().any(|(from, to)| (*from..*to).contains(&place));
                        assert_eq!(part, *member && (at..end).contains(&place));
                    }
                }
                model[at..end].fill(add);
                let held: Vec<_> = ranges.all().collect();
                assert!(
                    held.iter().all(|(from, to)| from < to)
                        && held.windows(2).all(|two| two[0].1 < two[1].0),
                    "{held:?}"
                );
                assert_eq!(held.len(), ranges.len());
                let (at, end) = (rng.usize(0..32), rng.usize(32..64));
                for (place, member) in model.iter().enumerate() {
                    assert_eq!(ranges.meets(place, place + 1), *member, "{held:?}: {place}");
                }
                assert_eq!(ranges.meets(at, end), model[at..end].contains(&true));
            }
        }
    }
}
