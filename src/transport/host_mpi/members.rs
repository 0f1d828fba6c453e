//! Who is in a window: which processes share memory with this one, and how much memory each has.

use crate::engine::Rank;

/// The processes of a window that share a segment with this one, itself among them.
#[derive(Clone, Debug)]
pub struct Members {
    me: Rank,
    size: u32,
    /// Window ranks, rising; a process's place is its rank in the segment.
    mates: Box<[Rank]>,
    /// Where this process stands among them.
    place: Rank,
    /// Their ranks are neighbours.
    dense: bool,
    /// Operations on mates go through shared memory; else through messages, but for those on
    /// oneself.
    near: bool,
}

impl Members {
    /// `mates` are the window ranks of the processes that share a segment, rising, `me` among them.
    /// With `near` false, messages go to them too.
    ///
    /// # Panics
    /// If `me` is not among them.
    #[must_use]
    pub fn new(me: Rank, size: u32, mates: Vec<Rank>, near: bool) -> Self {
        let place = mates.binary_search(&me).expect("a process shares memory with itself") as Rank;
        let dense = mates[mates.len() - 1] - mates[0] == mates.len() as u32 - 1;
        Members { me, size, mates: mates.into_boxed_slice(), place, dense, near }
    }

    /// This process.
    #[must_use]
    pub fn me(&self) -> Rank {
        self.me
    }

    /// This process's rank in the segment.
    #[must_use]
    pub fn place(&self) -> Rank {
        self.place
    }

    /// Processes of the window.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Processes in the segment.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.mates.len() as u32
    }

    /// Rank in the segment of a process that shares it.
    #[inline]
    #[must_use]
    pub fn place_of(&self, rank: Rank) -> Option<Rank> {
        if self.dense {
            return rank.checked_sub(self.mates[0]).filter(|place| *place < self.count());
        }
        self.mates.binary_search(&rank).ok().map(|place| place as Rank)
    }

    /// Rank in the window of a process that shares the segment.
    #[inline]
    #[must_use]
    pub fn rank_at(&self, place: Rank) -> Rank {
        self.mates[place as usize]
    }

    /// Rank in the segment of a process that is reached through it.
    #[inline]
    #[must_use]
    pub fn near(&self, rank: Rank) -> Option<Rank> {
        if rank == self.me {
            return Some(self.place);
        }
        if self.near { self.place_of(rank) } else { None }
    }
}

/// Something of every process, as runs of processes that have the same: one run in most windows, so
/// that the table does not grow with them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table<T> {
    runs: Box<[(Rank, T)]>,
}

/// Bytes and displacement unit of every process's memory.
pub type Extents = Table<(u64, u32)>;

impl<T: Copy + PartialEq> Table<T> {
    /// In rank order. At least one.
    #[must_use]
    pub fn new(each: impl IntoIterator<Item = T>) -> Self {
        let mut runs: Vec<(Rank, T)> = Vec::new();
        for (rank, value) in (0..).zip(each) {
            if runs.last().is_none_or(|run| run.1 != value) {
                runs.push((rank, value));
            }
        }
        assert!(!runs.is_empty(), "a window has a process");
        Table { runs: runs.into_boxed_slice() }
    }

    /// Something that follows from it.
    #[must_use]
    pub fn map<U: Copy + PartialEq>(&self, what: impl Fn(T) -> U) -> Table<U> {
        let mut runs: Vec<(Rank, U)> =
            self.runs.iter().map(|(rank, value)| (*rank, what(*value))).collect();
        runs.dedup_by(|next, before| next.1 == before.1);
        Table { runs: runs.into_boxed_slice() }
    }

    /// True if it is the same for all.
    #[inline]
    #[must_use]
    pub fn is_one(&self) -> bool {
        self.runs.len() == 1
    }

    /// Of a process of the window.
    #[inline]
    #[must_use]
    pub fn of(&self, rank: Rank) -> T {
        let at = if self.runs.len() == 1 {
            0
        } else {
            self.runs.partition_point(|run| run.0 <= rank) - 1
        };
        self.runs[at].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_in_the_segment() {
        let members = Members::new(5, 9, vec![1, 5, 8], true);
        assert_eq!((members.place(), members.count()), (1, 3));
        assert_eq!(
            [0, 1, 5, 6, 8].map(|rank| members.near(rank)),
            [None, Some(0), Some(1), None, Some(2)]
        );
        let members = Members::new(3, 9, vec![2, 3, 4], false);
        assert_eq!(
            [1, 2, 3, 4, 5].map(|rank| members.near(rank)),
            [None, None, Some(1), None, None]
        );
        assert_eq!(
            [1, 2, 3, 4, 5].map(|rank| members.place_of(rank)),
            [None, Some(0), Some(1), Some(2), None]
        );
        assert_eq!([0, 1, 2].map(|place| members.rank_at(place)), [2, 3, 4]);
    }

    #[test]
    fn extents_are_runs() {
        let each = [(8, 1), (8, 1), (0, 1), (8, 1), (8, 4)];
        let extents = Extents::new(each);
        assert_eq!(extents.runs.len(), 4);
        for (rank, extent) in (0..).zip(each) {
            assert_eq!(extents.of(rank), extent);
        }
        assert_eq!(Extents::new(vec![(8, 1); 1000]).runs.len(), 1);
    }
}
