//! Machine profiles, with the source of every parameter.

use crate::transport::sim::{LinkClass, NS, Parameters, SECOND, Time, Tree, US};

/// A machine: network and CPUs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// Name of the profile.
    pub name: &'static str,
    /// Parameters of the network.
    pub network: Parameters,
    /// CPU time of any call, without what it posts and handles.
    pub call: Time,
    /// Flop/s of one core updating a vector by another (two operations per element) while all cores
    /// of its node do the same, with the updated vectors in its share of the cache.
    pub flops_cached: f64,
    /// The same with vectors from memory.
    pub flops_streaming: f64,
    /// A core's share of the cache, in bytes.
    pub cache: u64,
    /// Longest two-sided message without a handshake, in bytes.
    pub eager_max: u64,
}

impl Machine {
    /// All parameters that [`set`](Self::set) accepts, in its units. A bulk window without limit is
    /// infinite (null in JSON); the tree is the number of its nodes per leaf switch, or 0.
    #[must_use]
    pub fn parameters(&self) -> [(&'static str, f64); 20] {
        let (network, wire) = (&self.network, &self.network.wire);
        let ns = |time: Time| time as f64 / NS as f64;
        let window = network.bulk_window;
        [
            ("latency", ns(wire.latency)),
            ("post", ns(wire.post)),
            ("handle", ns(wire.handle)),
            ("gap", ns(wire.gap)),
            ("byte", wire.byte_fs as f64 / 1000.0),
            ("loopback", ns(network.loopback)),
            ("atomic_gap", ns(network.atomic_gap)),
            ("atomics_by_rank", f64::from(u8::from(network.atomics_by_rank))),
            ("accumulate_byte", network.accumulate_byte_fs as f64 / 1000.0),
            ("call", ns(self.call)),
            ("mtu", network.mtu as f64),
            ("ranks_per_node", f64::from(network.ranks_per_node)),
            ("credits_pair", f64::from(network.credits_pair)),
            ("credits_nic", f64::from(network.credits_nic)),
            ("bulk_window", if window == u64::MAX { f64::INFINITY } else { window as f64 }),
            ("flops_cached", self.flops_cached),
            ("flops_streaming", self.flops_streaming),
            ("cache", self.cache as f64),
            ("eager_max", self.eager_max as f64),
            ("tree", network.tree.map_or(0.0, |tree| f64::from(tree.nodes_per_leaf))),
        ]
    }

    /// Sets one parameter, in nanoseconds, bytes, numbers, or picoseconds per byte.
    ///
    /// # Errors
    /// If no parameter has this name, or the value is out of range.
    pub fn set(&mut self, name: &str, value: f64) -> Result<(), String> {
        let ns = (value * NS as f64).round() as u64;
        let whole = value.round() as u64;
        let count = u32::try_from(whole).map_err(|error| error.to_string());
        let network = &mut self.network;
        match name {
            "latency" => network.wire.latency = ns,
            "post" => network.wire.post = ns,
            "handle" => network.wire.handle = ns,
            "gap" => network.wire.gap = ns,
            "byte" => network.wire.byte_fs = (value * 1000.0).round() as u64,
            "loopback" => network.loopback = ns,
            "atomic_gap" => network.atomic_gap = ns,
            "accumulate_byte" => network.accumulate_byte_fs = (value * 1000.0).round() as u64,
            "atomics_by_rank" if whole <= 1 => network.atomics_by_rank = whole == 1,
            "call" => self.call = ns,
            "mtu" => network.mtu = whole,
            "ranks_per_node" if whole > 0 => network.ranks_per_node = count?,
            "credits_pair" if whole > 0 => network.credits_pair = count?,
            "credits_nic" if whole > 0 => network.credits_nic = count?,
            "bulk_window" if whole > 0 => network.bulk_window = whole,
            "flops_cached" => self.flops_cached = value,
            "flops_streaming" => self.flops_streaming = value,
            "cache" => self.cache = whole,
            "eager_max" => self.eager_max = whole,
            "tree" if whole == 0 => network.tree = None,
            "tree" if network.tree.is_some_and(|tree| u64::from(tree.nodes_per_leaf) == whole) => {}
            _ => return Err(format!("{name}={value}: unknown parameter or invalid value")),
        }
        Ok(())
    }

    /// Time that a core takes for `flops` operations on `bytes` bytes.
    #[must_use]
    pub fn computes(&self, flops: f64, bytes: u64) -> Time {
        let rate = if bytes <= self.cache { self.flops_cached } else { self.flops_streaming };
        (flops / rate * SECOND as f64) as Time
    }
}

/// The paper's cluster: two quad-core Nehalem at 2.6 GHz per node (8 ranks), Mellanox ConnectX QDR.
///
/// | parameter | value | why |
/// |---|---|---|
/// | `wire.latency` | 1.3 µs | ConnectX QDR: one-way 8-byte write about 1.3 to 1.6 µs between two processes through one switch, less the CPU's part below |
/// | `wire.post` | 0.25 µs | building a work request and ringing the doorbell over PCIe 2.0 on Nehalem |
/// | `wire.handle` | 0.15 µs | one completion-queue entry and its bookkeeping |
/// | `wire.gap` | 0.2 µs | about 5 million messages per second and port, ConnectX (2) of that time |
/// | `wire.byte_fs` | 320 ps/byte | 3.1 GB/s: QDR's 4 GB/s less PCIe 2.0 x8 and headers. **The calibrated one**: 1 MB epoch = 340 µs |
/// | `local.latency` | 0.1 µs | a cache line from one core to another, across sockets at worst |
/// | `local.byte_fs` | 250 ps/byte | 4 GB/s: one Nehalem core copying outside its cache |
/// | `bus_byte_fs` | 80 ps/byte | 12.5 GB/s of copies per node: about 25 GB/s of STREAM traffic, read and write |
/// | `loopback` | 1.0 µs | through the HCA and back over PCIe, no wire |
/// | `mtu` | 2 KiB | the usual setting of IPoIB-era fabrics |
/// | `inline_max` | 128 bytes | MVAPICH's default |
/// | `atomic_gap` | 0.4 µs | ConnectX atomics: about 2.5 million per second, each a locked PCIe read and write |
/// | `accumulate_byte_fs` | 500 ps/byte | 2 GB/s of read, add, write by an agent |
/// | `credits_pair` | 64 | depth of an MVAPICH send queue |
/// | `credits_nic` | 16,384 | a completion queue |
/// | `tree` | 18 nodes per leaf, 18 uplinks | 36-port switches, full bisection, 0.1 µs per hop |
/// | `call` | 0.1 µs | argument checks and look-ups |
/// | `flops_streaming` | 0.47 GFlop/s | an update reads and writes 16 bytes per 2 operations; 30 GB/s of STREAM per node, by 8 cores: 3.75 GB/s each |
/// | `flops_cached` | 1.4 GFlop/s | the same from the third-level cache, at some 11 GB/s per core |
/// | `cache` | 2 MiB | 8 MiB per socket of 4 cores |
/// | `eager_max` | 12 KiB | MVAPICH's default on InfiniBand |
const QDR_2014: Machine = Machine {
    name: "qdr-2014",
    network: Parameters {
        ranks_per_node: 8,
        wire: LinkClass {
            latency: 1_300 * NS,
            post: 250 * NS,
            handle: 150 * NS,
            gap: 200 * NS,
            byte_fs: 320_000,
        },
        local: LinkClass {
            latency: 100 * NS,
            post: 50 * NS,
            handle: 50 * NS,
            gap: 50 * NS,
            byte_fs: 250_000,
        },
        bus_byte_fs: 80_000,
        loopback: US,
        mtu: 2048,
        inline_max: 128,
        local_stage: false,
        shared_lock_words: false,
        atomic_gap: 400 * NS,
        atomics_by_rank: false,
        accumulate_byte_fs: 500_000,
        credits_pair: 64,
        credits_nic: 16_384,
        bulk_window: u64::MAX,
        tree: Some(Tree { nodes_per_leaf: 18, uplinks: 18, hop: 100 * NS }),
    },
    call: 100 * NS,
    flops_cached: 1.4e9,
    flops_streaming: 0.47e9,
    cache: 2 << 20,
    eager_max: 12 * 1024,
};

/// A current machine: 64 ranks per node, one NDR 400 adapter.
///
/// | parameter | value | why |
/// |---|---|---|
/// | `wire.latency` | 0.7 µs | ConnectX-7 with one NDR switch: about 1 µs between processes, less the CPU's part |
/// | `wire.post`, `handle`, `gap` | 80, 50, 10 ns | write-combined doorbells; some 100 million messages per second and port |
/// | `wire.byte_fs` | 21 ps/byte | 48 GB/s of 400 Gbit/s |
/// | `local.byte_fs`, `bus_byte_fs` | 80, 5 ps/byte | 12 GB/s per core, 200 GB/s of copies per node |
/// | `atomic_gap` | 50 ns | ConnectX-7 atomics |
/// | `tree` | 32 nodes per leaf, 32 uplinks | 64-port switches |
/// | `flops_streaming` | 1.2 GFlop/s | 600 GB/s of memory per node by 64 cores: 9.4 GB/s each, 16 bytes per 2 operations |
/// | `flops_cached`, `cache` | 4 GFlop/s, 4 MiB | 30 GB/s from 2 MiB of its own and its part of the shared cache |
const NDR_2024: Machine = Machine {
    name: "ndr-2024",
    network: Parameters {
        ranks_per_node: 64,
        wire: LinkClass {
            latency: 700 * NS,
            post: 80 * NS,
            handle: 50 * NS,
            gap: 10 * NS,
            byte_fs: 21_000,
        },
        local: LinkClass {
            latency: 80 * NS,
            post: 20 * NS,
            handle: 20 * NS,
            gap: 20 * NS,
            byte_fs: 80_000,
        },
        bus_byte_fs: 5_000,
        loopback: 500 * NS,
        mtu: 4096,
        inline_max: 256,
        local_stage: false,
        shared_lock_words: false,
        atomic_gap: 50 * NS,
        atomics_by_rank: false,
        accumulate_byte_fs: 100_000,
        credits_pair: 128,
        credits_nic: 65_536,
        bulk_window: u64::MAX,
        tree: Some(Tree { nodes_per_leaf: 32, uplinks: 32, hop: 100 * NS }),
    },
    call: 40 * NS,
    flops_cached: 4e9,
    flops_streaming: 1.2e9,
    cache: 4 << 20,
    eager_max: 16 * 1024,
};

/// All profiles.
pub const PROFILES: [Machine; 2] = [QDR_2014, NDR_2024];

/// The profile of this name.
#[must_use]
pub fn profile(name: &str) -> Option<Machine> {
    PROFILES.into_iter().find(|machine| machine.name == name)
}
