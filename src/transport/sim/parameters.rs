//! What a network is made of.

use super::Time;

/// Messages of one class: between nodes, or inside one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkClass {
    /// L: from the last byte's leaving to its being there.
    pub latency: Time,
    /// o of the origin: CPU time to post an operation, signal or access.
    pub post: Time,
    /// o of whoever hears of it: CPU time to handle one completion, answer or change.
    pub handle: Time,
    /// g: a port takes no message for less.
    pub gap: Time,
    /// G in femtoseconds per byte, so that fast networks are not rounded.
    pub byte_fs: u64,
}

impl LinkClass {
    /// n G.
    #[inline]
    #[must_use]
    pub fn serial(&self, bytes: u64) -> Time {
        (u128::from(bytes) * u128::from(self.byte_fs) / 1000) as Time
    }
}

/// A two-level fat tree. Routes are static: the destination node chooses the way up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tree {
    /// Nodes below one leaf switch.
    pub nodes_per_leaf: u32,
    /// Links from a leaf switch up, each as fast as a node's port; as many as nodes: full
    /// bisection.
    pub uplinks: u32,
    /// Latency of each of the two further switches on the way to another leaf.
    pub hop: Time,
}

/// A network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Ranks on one node, in the order of their numbers.
    pub ranks_per_node: u32,
    /// Between nodes.
    pub wire: LinkClass,
    /// Inside a node. Its gap and G are those of a copy by one CPU.
    pub local: LinkClass,
    /// What the copies of one node share: femtoseconds per byte of its memory bus.
    pub bus_byte_fs: u64,
    /// Inside a node, but through its NIC (atomics and accumulates): instead of the wire's latency.
    pub loopback: Time,
    /// Largest packet: longer messages are bulk.
    pub mtu: u64,
    /// Up to here the origin's bytes are taken along when a put is posted, and its buffer is free
    /// at once.
    pub inline_max: u64,
    /// Longer puts tell when their last byte has left, too (`Stage::Local`). Reliable connections
    /// of real NICs report the acknowledgement alone.
    pub local_stage: bool,
    /// Where all ranks are on one node, their processors access lock words themselves, as in shared
    /// memory; else every NIC does.
    pub shared_lock_words: bool,
    /// Gap of the NIC's atomic unit.
    pub atomic_gap: Time,
    /// What an accumulate takes the unit beyond one gap, in femtoseconds per byte.
    pub accumulate_byte_fs: u64,
    /// Operations, signals and accesses under way from one rank to another.
    pub credits_pair: u32,
    /// The same for all from one node.
    pub credits_nic: u32,
    /// Switches; `None`: one that is never crowded.
    pub tree: Option<Tree>,
}

impl Parameters {
    /// The node on which a rank runs.
    #[inline]
    #[must_use]
    pub fn node(&self, rank: u32) -> u32 {
        rank / self.ranks_per_node
    }
}
