//! Which process runs on which node.

use std::ops::Range;

/// The nodes of a communicator. Consecutive ranks share a node; where they do not, the processes
/// are renumbered first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// First rank of each node, and then the number of ranks.
    first: Vec<u32>,
}

impl Placement {
    /// Nodes with so many processes each.
    ///
    /// # Panics
    /// There is no node, or one without a process.
    #[must_use]
    pub fn of(sizes: &[u32]) -> Self {
        assert!(!sizes.is_empty() && !sizes.contains(&0), "nodes without processes: {sizes:?}");
        let mut first = vec![0];
        first.extend(sizes.iter().scan(0, |sum, size| {
            *sum += size;
            Some(*sum)
        }));
        Placement { first }
    }

    /// Nodes of `per_node` processes; the last one may have fewer.
    #[must_use]
    pub fn even(ranks: u32, per_node: u32) -> Self {
        let starts = (0..ranks).step_by(per_node as usize);
        let sizes: Vec<u32> = starts.map(|at| per_node.min(ranks - at)).collect();
        Self::of(&sizes)
    }

    /// Each process is taken for a node of its own. Schedules for this placement know no nodes.
    #[must_use]
    pub fn flat(ranks: u32) -> Self {
        Self::even(ranks, 1)
    }

    /// Number of processes.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        self.first[self.first.len() - 1]
    }

    /// Number of nodes.
    #[must_use]
    pub fn nodes(&self) -> u32 {
        self.first.len() as u32 - 1
    }

    /// The node of a process.
    #[must_use]
    pub fn node_of(&self, rank: u32) -> u32 {
        self.first.partition_point(|first| *first <= rank) as u32 - 1
    }

    /// The processes of a node.
    #[must_use]
    pub fn members(&self, node: u32) -> Range<u32> {
        self.first[node as usize]..self.first[node as usize + 1]
    }

    /// Number of processes of a node.
    #[must_use]
    pub fn size(&self, node: u32) -> u32 {
        self.members(node).len() as u32
    }

    /// The first process of a node. What the node shares is in its memory.
    #[must_use]
    pub fn home(&self, node: u32) -> u32 {
        self.first[node as usize]
    }

    /// The process of `node` that handles the share `number` of some work. Shares take turns.
    #[must_use]
    pub fn worker(&self, node: u32, number: u32) -> u32 {
        self.home(node) + number % self.size(node)
    }

    /// Most processes of a node.
    #[must_use]
    pub fn size_max(&self) -> u32 {
        (0..self.nodes()).map(|node| self.size(node)).max().unwrap_or(1)
    }
}

/// Part `at` of `whole` in `parts` parts of nearly equal size.
#[must_use]
pub(super) fn share(whole: u32, parts: u32, at: u32) -> Range<u32> {
    let end = |part: u32| (u64::from(whole) * u64::from(part) / u64::from(parts)) as u32;
    end(at)..end(at + 1)
}

/// Part `at` of a range, likewise.
#[must_use]
pub(super) fn share_of(range: Range<u32>, parts: u32, at: u32) -> Range<u32> {
    let part = share(range.end - range.start, parts, at);
    range.start + part.start..range.start + part.end
}
