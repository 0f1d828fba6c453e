//! The processes of a window, those that share memory with this one, and tables of per-rank values.

use crate::engine::Rank;

/// The processes of a window, and which of them share a segment with this one.
#[derive(Clone, Debug)]
pub struct Members {
    me: Rank,
    size: u32,
    /// Window ranks of the processes in the segment, rising; the index is the rank in the segment.
    node_ranks: Box<[Rank]>,
    own_segment_rank: Rank,
    /// `node_ranks` are consecutive.
    consecutive: bool,
    /// Operations on node-mates go through shared memory. If false, only those on oneself do.
    use_shm: bool,
}

impl Members {
    /// `node_ranks` are the window ranks of the processes that share a segment, rising, `me` among
    /// them. Without `use_shm`, operations on them go by messages too.
    ///
    /// # Panics
    /// If `me` is not among them.
    #[must_use]
    pub fn new(me: Rank, size: u32, node_ranks: Vec<Rank>, use_shm: bool) -> Self {
        let at = node_ranks.binary_search(&me).expect("a process shares memory with itself");
        let span = node_ranks[node_ranks.len() - 1] - node_ranks[0];
        Members {
            me,
            size,
            own_segment_rank: at as Rank,
            consecutive: span == node_ranks.len() as u32 - 1,
            node_ranks: node_ranks.into_boxed_slice(),
            use_shm,
        }
    }

    /// Rank of this process in the window.
    #[must_use]
    pub fn me(&self) -> Rank {
        self.me
    }

    /// Rank of this process in the segment.
    #[must_use]
    pub fn own_segment_rank(&self) -> Rank {
        self.own_segment_rank
    }

    /// Number of processes in the window.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Number of processes in the segment.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.node_ranks.len() as u32
    }

    /// Whether another process reaches this one through shared memory.
    #[inline]
    #[must_use]
    pub fn has_mates(&self) -> bool {
        self.use_shm && self.count() > 1
    }

    /// Rank in the segment of a process of the window, if it shares the segment.
    #[inline]
    #[must_use]
    pub fn segment_rank(&self, rank: Rank) -> Option<Rank> {
        if self.consecutive {
            return rank.checked_sub(self.node_ranks[0]).filter(|at| *at < self.count());
        }
        self.node_ranks.binary_search(&rank).ok().map(|at| at as Rank)
    }

    /// Rank in the window of a process in the segment.
    #[inline]
    #[must_use]
    pub fn window_rank(&self, segment_rank: Rank) -> Rank {
        self.node_ranks[segment_rank as usize]
    }

    /// Rank in the segment of a process whose operations go through shared memory.
    #[inline]
    #[must_use]
    pub fn shm_rank(&self, rank: Rank) -> Option<Rank> {
        if rank == self.me {
            return Some(self.own_segment_rank);
        }
        if self.use_shm { self.segment_rank(rank) } else { None }
    }
}

/// A value per rank, run-length encoded. In most windows all ranks have the same value, and then
/// the table does not grow with the window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankTable<T> {
    runs: Box<[(Rank, T)]>,
}

/// Bytes and displacement unit of every process's memory.
pub type Extents = RankTable<(u64, u32)>;

impl<T: Copy + PartialEq> RankTable<T> {
    /// From the values in rank order.
    #[must_use]
    pub fn new(each: impl IntoIterator<Item = T>) -> Self {
        let mut runs: Vec<(Rank, T)> = Vec::new();
        for (rank, value) in (0..).zip(each) {
            if runs.last().is_none_or(|run| run.1 != value) {
                runs.push((rank, value));
            }
        }
        assert!(!runs.is_empty(), "a window has a process");
        RankTable { runs: runs.into_boxed_slice() }
    }

    /// The table of `what(value)` for each value.
    #[must_use]
    pub fn map<U: Copy + PartialEq>(&self, what: impl Fn(T) -> U) -> RankTable<U> {
        let mut runs: Vec<(Rank, U)> =
            self.runs.iter().map(|(rank, value)| (*rank, what(*value))).collect();
        runs.dedup_by(|next, before| next.1 == before.1);
        RankTable { runs: runs.into_boxed_slice() }
    }

    /// Whether all ranks have the same value.
    #[inline]
    #[must_use]
    pub fn is_uniform(&self) -> bool {
        self.runs.len() == 1
    }

    /// The value of a rank.
    #[inline]
    #[must_use]
    pub fn of(&self, rank: Rank) -> T {
        let at =
            if self.is_uniform() { 0 } else { self.runs.partition_point(|run| run.0 <= rank) - 1 };
        self.runs[at].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_in_the_segment() {
        let members = Members::new(5, 9, vec![1, 5, 8], true);
        assert_eq!((members.own_segment_rank(), members.count()), (1, 3));
        assert_eq!(
            [0, 1, 5, 6, 8].map(|rank| members.shm_rank(rank)),
            [None, Some(0), Some(1), None, Some(2)]
        );
        let members = Members::new(3, 9, vec![2, 3, 4], false);
        assert_eq!(
            [1, 2, 3, 4, 5].map(|rank| members.shm_rank(rank)),
            [None, None, Some(1), None, None]
        );
        assert_eq!(
            [1, 2, 3, 4, 5].map(|rank| members.segment_rank(rank)),
            [None, Some(0), Some(1), Some(2), None]
        );
        assert_eq!([0, 1, 2].map(|at| members.window_rank(at)), [2, 3, 4]);
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
