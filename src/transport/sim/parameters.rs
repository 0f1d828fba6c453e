//! Parameters of a network.

use super::Time;

/// A class of messages: between nodes, or inside one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkClass {
    /// L: from the departure of the last byte to its arrival.
    pub latency: Time,
    /// o at the origin: CPU time to post an operation, signal or access.
    pub post: Time,
    /// o at the receiver: CPU time to handle a completion, answer or change.
    pub handle: Time,
    /// g: minimum time that a message occupies a port.
    pub gap: Time,
    /// G in femtoseconds per byte, to avoid rounding on fast networks.
    pub byte_fs: u64,
}

impl LinkClass {
    /// n G: the time that `bytes` bytes take to leave or arrive.
    #[inline]
    #[must_use]
    pub fn serial(&self, bytes: u64) -> Time {
        transfer_time(bytes, self.byte_fs)
    }
}

/// Time for `bytes` bytes at `byte_fs` femtoseconds per byte.
#[inline]
pub(super) fn transfer_time(bytes: u64, byte_fs: u64) -> Time {
    (u128::from(bytes) * u128::from(byte_fs) / 1000) as Time
}

/// A two-level fat tree. Routes are static: the destination node chooses the way up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tree {
    /// Nodes per leaf switch.
    pub nodes_per_leaf: u32,
    /// Uplinks of a leaf switch, each as fast as a node's port. As many as nodes give full
    /// bisection.
    pub uplinks: u32,
    /// Latency of each of the two additional switches on the way to another leaf.
    pub hop: Time,
}

/// The times of one message, instead of those of the model. See
/// [`SimPort::timed`](super::SimPort::timed).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// A put or accumulate reads its origin buffer, and reports `Stage::Local`.
    pub left: Time,
    /// The message takes effect.
    pub lands: Time,
    /// The completion or answer is reported: `lands` or later.
    pub done: Time,
}

/// The parameters of a network, with times in picoseconds unless noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Ranks per node; consecutive ranks share a node.
    pub ranks_per_node: u32,
    /// Between nodes.
    pub wire: LinkClass,
    /// Inside a node. Gap and G are those of a copy by one CPU.
    pub local: LinkClass,
    /// Memory bus shared by the copies of one node, in femtoseconds per byte.
    pub bus_byte_fs: u64,
    /// Latency inside a node through its NIC (atomics and accumulates).
    pub loopback: Time,
    /// Largest packet. Longer messages are bulk messages.
    pub mtu: u64,
    /// Puts up to this length copy the origin buffer when they are posted, so that it is free at
    /// once.
    pub inline_max: u64,
    /// Longer puts also report `Stage::Local` when their last byte has left. Reliable connections
    /// of real NICs report the acknowledgement only.
    pub local_stage: bool,
    /// If all ranks are on one node, processors access lock words directly, as in shared memory.
    /// Otherwise the NIC does.
    pub shared_lock_words: bool,
    /// Gap of the NIC's atomic unit.
    pub atomic_gap: Time,
    /// The CPU of each rank serves the atomics and accumulates that reach it, instead of the NIC of
    /// its node. It always finds the time, as in a rank that waits in calls.
    pub atomics_by_rank: bool,
    /// Additional time of an accumulate in the atomic unit, in femtoseconds per byte.
    pub accumulate_byte_fs: u64,
    /// Credits of a connection: operations, signals and accesses in flight.
    pub credits_pair: u32,
    /// Credits of a node's NIC.
    pub credits_nic: u32,
    /// Bytes of bulk operations that a rank keeps at its NIC until they are acknowledged, or a
    /// single operation if that is longer. `u64::MAX`: no limit.
    pub bulk_window: u64,
    /// Switches. `None`: one crossbar without congestion.
    pub tree: Option<Tree>,
}

impl Parameters {
    /// The node on which a rank runs.
    #[inline]
    #[must_use]
    pub fn node(&self, rank: u32) -> u32 {
        rank / self.ranks_per_node
    }

    /// True if both ranks run on the same node.
    #[inline]
    #[must_use]
    pub fn same_node(&self, a: u32, b: u32) -> bool {
        self.node(a) == self.node(b)
    }
}
