//! The memory that a process has attached to a dynamic window.
//!
//! Bookkeeping only: checks what may be attached and detached, and whether bytes are covered.
//! [`super::region_table`] publishes the regions to peers.

/// Attached memory: its first byte, and the byte after its last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// Why memory cannot be attached or detached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachError {
    /// Part of it is attached already.
    Overlaps,
    /// It ends beyond the address space.
    TooLong,
    /// No memory was attached at this address.
    Unknown,
    /// No memory for a larger region table.
    NoRoom,
}

/// The attached memory of one process, sorted by address. Regions may touch, but not overlap.
#[derive(Debug, Default)]
pub(crate) struct Regions {
    sorted: Vec<Region>,
    /// Addresses at which zero bytes are attached. They cover nothing, but each is detached once.
    empty: Vec<u64>,
}

impl Regions {
    /// Attached regions that are not empty.
    pub(crate) fn sorted(&self) -> &[Region] {
        &self.sorted
    }

    /// Attaches `len` bytes at `start`. Returns the new region's index, or `None` if it is empty.
    pub(crate) fn attach(&mut self, start: u64, len: u64) -> Result<Option<usize>, AttachError> {
        let end = start.checked_add(len).ok_or(AttachError::TooLong)?;
        if len == 0 {
            self.empty.push(start);
            return Ok(None);
        }
        let at = self.sorted.partition_point(|region| region.end <= start);
        if self.sorted.get(at).is_some_and(|next| next.start < end) {
            return Err(AttachError::Overlaps);
        }
        self.sorted.insert(at, Region { start, end });
        Ok(Some(at))
    }

    /// Detaches what was attached at `start`. Returns the former index of the region, or `None` if
    /// it was empty. If an empty one was attached at the start of another, the other is detached
    /// first; callers cannot tell them apart.
    pub(crate) fn detach(&mut self, start: u64) -> Result<Option<usize>, AttachError> {
        if let Ok(at) = self.sorted.binary_search_by_key(&start, |region| region.start) {
            self.sorted.remove(at);
            return Ok(Some(at));
        }
        let at = self.empty.iter().position(|empty| *empty == start).ok_or(AttachError::Unknown)?;
        self.empty.swap_remove(at);
        Ok(None)
    }

    /// Whether each of the `len` bytes at `start` is attached, in one or several adjacent regions.
    pub(crate) fn cover(&self, start: u64, len: u64) -> bool {
        covered(&self.sorted, start, len, |region| *region).is_some()
    }

    /// Whether each of `count` runs of `len` bytes is attached, the first at `start` and `stride`
    /// bytes apart.
    pub(crate) fn cover_runs(&self, start: u64, len: u64, stride: i64, count: u64) -> bool {
        let lookup = |at| covered(&self.sorted, at, len, |region| *region);
        runs_covered(start, len, stride, count, lookup)
    }
}

/// [`Regions::cover_runs`], with a `lookup` that returns the regions that cover a run. Skips the
/// other runs that the same regions cover, so it makes at most one lookup more than regions.
fn runs_covered(
    start: u64,
    len: u64,
    stride: i64,
    count: u64,
    mut lookup: impl FnMut(u64) -> Option<Region>,
) -> bool {
    let mut run = 0;
    while run < count {
        let offset = i64::try_from(run).ok().and_then(|run| stride.checked_mul(run));
        let Some(at) = offset.and_then(|offset| start.checked_add_signed(offset)) else {
            return false;
        };
        let Some(found) = lookup(at) else { return false };
        let room = if stride < 0 { at - found.start } else { found.end - at - len };
        let more = room.checked_div(stride.unsigned_abs()).unwrap_or(count);
        run = run.saturating_add(1).saturating_add(more);
    }
    true
}

/// The one of the sorted regions, or the adjacent ones joined, that cover `len` bytes at `start`.
pub(crate) fn covered<T>(
    sorted: &[T],
    start: u64,
    len: u64,
    region: impl Fn(&T) -> Region,
) -> Option<Region> {
    let end = start.checked_add(len)?;
    let at = sorted.partition_point(|entry| region(entry).end <= start);
    let mut rest = sorted[at..].iter().map(&region);
    let mut found = rest.next().filter(|first| first.start <= start)?;
    while found.end < end {
        found.end = rest.next().filter(|next| next.start == found.end)?.end;
    }
    Some(found)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn regions_may_be_adjacent_but_not_overlap() {
        let mut regions = Regions::default();
        assert_eq!(regions.attach(100, 50), Ok(Some(0)));
        assert_eq!(regions.attach(150, 50), Ok(Some(1)));
        assert_eq!(regions.attach(50, 50), Ok(Some(0)));
        for (start, len) in [(100, 50), (99, 2), (199, 1), (0, 51), (120, 1), (0, 1000)] {
            assert_eq!(regions.attach(start, len), Err(AttachError::Overlaps), "{start} {len}");
        }
        assert_eq!(regions.attach(u64::MAX, 2), Err(AttachError::TooLong));
        assert_eq!(regions.sorted().len(), 3);
    }

    #[test]
    fn only_attached_bytes_are_covered() {
        let mut regions = Regions::default();
        for start in [100, 150, 300] {
            regions.attach(start, 50).unwrap();
        }
        for (start, len) in [(100, 50), (100, 100), (149, 2), (199, 1), (300, 50), (349, 1)] {
            assert!(regions.cover(start, len), "{start} {len}");
        }
        for (start, len) in [
            (99, 1),
            (99, 2),
            (199, 2),
            (200, 1),
            (299, 2),
            (349, 2),
            (100, 250),
            (350, 1),
            (u64::MAX, 2),
        ] {
            assert!(!regions.cover(start, len), "{start} {len}");
        }
        assert_eq!(regions.detach(150), Ok(Some(1)));
        assert!(!regions.cover(149, 2) && regions.cover(149, 1));
    }

    #[test]
    fn each_region_is_looked_up_once_for_its_runs() {
        let mut regions = Regions::default();
        for start in [1000, 3000, 10_000] {
            regions.attach(start, 1000).unwrap();
        }
        let looks = |start, len, stride, count| {
            let mut looks = 0;
            let look = |at| {
                looks += 1;
                covered(&regions.sorted, at, len, |region| *region)
            };
            let covered = runs_covered(start, len, stride, count, look);
            assert_eq!(covered, regions.cover_runs(start, len, stride, count));
            (covered, looks)
        };
        assert_eq!(looks(1000, 10, 10, 100), (true, 1));
        assert_eq!(looks(1990, 10, -10, 100), (true, 1));
        assert_eq!(looks(1000, 10, 10, 101), (false, 2));
        assert_eq!(looks(1990, 10, -10, 101), (false, 2));
        // Counts for which no process has memory.
        assert_eq!(looks(1000, 10, 0, u64::MAX), (true, 1));
        assert_eq!(looks(1000, 1, 1, u64::from(u32::MAX)), (false, 2));
        assert_eq!(looks(1999, 1, -1, u64::from(u32::MAX)), (false, 2));
        assert_eq!(looks(1000, 10, i64::MAX, 3), (false, 2));
        assert_eq!(looks(1000, 10, i64::MIN, u64::MAX), (false, 1));
        // From region to region, which lie in the gaps of the runs.
        assert_eq!(looks(1000, 1000, 2000, 2), (true, 2));
        assert_eq!(looks(1500, 500, 4250, 3), (false, 2));
        // Run by run, against a plain walk.
        for stride in [-900i64, -7, 0, 3, 500, 2000] {
            for start in (900..4100).step_by(50) {
                for count in 1..6u64 {
                    let plain = (0..count as i64)
                        .all(|run| regions.cover((start + run * stride) as u64, 20));
                    assert_eq!(
                        looks(start as u64, 20, stride, count).0,
                        plain,
                        "{start} {stride} {count}"
                    );
                }
            }
        }
    }

    #[test]
    fn detach_needs_the_address_of_an_attached_region() {
        let mut regions = Regions::default();
        regions.attach(100, 50).unwrap();
        assert_eq!(regions.attach(120, 0), Ok(None));
        assert_eq!(regions.attach(120, 0), Ok(None));
        assert_eq!(regions.detach(101), Err(AttachError::Unknown));
        assert_eq!(regions.detach(120), Ok(None));
        assert_eq!(regions.detach(120), Ok(None));
        assert_eq!(regions.detach(120), Err(AttachError::Unknown));
        assert_eq!(regions.detach(100), Ok(Some(0)));
        assert_eq!(regions.detach(100), Err(AttachError::Unknown));
    }
}
