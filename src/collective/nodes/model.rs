//! What a collective takes, after the LogGP model with nodes: the choice of an algorithm, and lower
//! bounds. All times are nanoseconds.

use super::allreduce::{Allreduce, distances, spans};

/// Parameters of a machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// L between nodes.
    pub latency: f64,
    /// o: CPU time of a put.
    pub post: f64,
    /// g: least time between two messages of a node.
    pub gap: f64,
    /// G: time per byte between nodes.
    pub byte: f64,
    /// Time of a notification in the target's adapter, which handles one at a time.
    pub notify: f64,
    /// Until a processor of the node sees what another one has stored.
    pub local_latency: f64,
    /// CPU time to raise a counter of the node, or to notice that one has been raised.
    pub local_flag: f64,
    /// CPU time to begin a copy or a reduction.
    pub local_gap: f64,
    /// Of each byte of it.
    pub local_byte: f64,
    /// Of each block beyond the first one.
    pub block: f64,
    /// Time per byte of the memory bus, which the processes of a node share.
    pub bus_byte: f64,
}

/// The nodes as an algorithm sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Nodes.
    pub nodes: u32,
    /// Processes of each.
    pub members: u32,
    /// How many of these nodes share an adapter: 1, unless each process is taken for a node.
    pub sharing: u32,
}

/// What the busiest node and its busiest process exchange in a sparse or irregular collective.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Traffic {
    /// Bytes that the node sends to others, or gets from them.
    pub wire_bytes: f64,
    /// Blocks between processes of different nodes that the node sends or gets.
    pub wire_blocks: f64,
    /// Nodes with which it exchanges.
    pub partners: f64,
    /// Bytes from one process of the node to another.
    pub inside_bytes: f64,
    /// Bytes that a process sends to other nodes.
    pub process_wire_bytes: f64,
    /// Its blocks for other nodes, and contiguous runs of bytes in them.
    pub process_wire_blocks: f64,
    /// Contiguous runs of bytes in all its blocks.
    pub process_runs: f64,
    /// Bytes that it gets from processes of its node.
    pub process_inside_bytes: f64,
    /// Blocks of these.
    pub process_inside_blocks: f64,
}

impl Machine {
    /// A copy or reduction by each of `sharers` processes of a node.
    fn moves(&self, bytes: f64, blocks: f64, sharers: u32) -> f64 {
        let alone = self.local_gap + (blocks - 1.0).max(0.0) * self.block;
        let bus = f64::from(sharers) * bytes * self.bus_byte;
        alone + (bytes * self.local_byte).max(bus)
    }

    /// From a process that raises a counter to one that has noticed it.
    fn flag(&self) -> f64 {
        2.0 * self.local_flag + self.local_latency
    }

    /// `count` puts of a node at a time, by `posters` processes, until the last one is noticed.
    fn puts(&self, count: u32, posters: u32, bytes: f64, sharing: u32) -> f64 {
        if count == 0 {
            return 0.0;
        }
        let each = self.gap.max(self.notify).max(bytes * self.byte);
        let queue = (f64::from(count) * f64::from(sharing) - 1.0) * each;
        let posts = f64::from(count.div_ceil(posters)) * self.post;
        posts + self.latency + bytes * self.byte + self.notify + queue + self.local_flag
    }

    /// What an allreduce takes.
    #[must_use]
    pub fn allreduce(&self, algorithm: Allreduce, layout: Layout, bytes: u32) -> f64 {
        let Layout { nodes, members, sharing } = layout;
        let size = f64::from(bytes);
        let all = f64::from(members);
        // The processes of a physical node move bytes at the same time.
        let sharers = members * sharing;
        let is_large = matches!(algorithm, Allreduce::Halving | Allreduce::Direct);
        let sums = match (members, is_large) {
            (1, _) => 0.0,
            (_, false) => {
                let publish = self.moves(size, 1.0, members) + self.flag();
                publish + all * self.local_gap + self.moves(all * size, all, 1)
            }
            (_, true) => {
                let part = size * (all - 1.0) / all;
                2.0 * self.flag() + self.moves(part, all, members) + all * self.local_gap
            }
        };
        let result = match members {
            1 => 0.0,
            _ => self.flag() + self.moves(size, 1.0, members),
        };
        let rounds = nodes.ilog2();
        let extra = !nodes.is_power_of_two();
        let put = |bytes| self.puts(1, 1, bytes, sharing);
        let exchanges = match algorithm {
            Allreduce::Gather { radix } => {
                let mut time = self.moves(f64::from(nodes) * size, f64::from(nodes), sharers);
                for span in spans(nodes, radix) {
                    let count = distances(nodes, radix, span).count() as u32;
                    let sent = f64::from(span) * size;
                    let seen = if members > 1 { self.local_latency } else { 0.0 };
                    time += self.puts(count, members, sent, sharing) + seen;
                }
                return sums + time + if members > 1 { self.flag() } else { 0.0 };
            }
            Allreduce::Doubling => {
                let round = |distance: u32| match distance < sharing.div_ceil(2) {
                    true => self.flag() + self.moves(size, 1.0, sharers),
                    false => put(size),
                };
                let fold = self.moves(size, 1.0, sharers);
                let extras = if extra { 2.0 * put(size) + fold } else { 0.0 };
                extras + (0..rounds).map(|at| round(1 << at) + fold).sum::<f64>()
            }
            Allreduce::Halving => {
                let mut time = 0.0;
                for at in 0..rounds {
                    let half = size / f64::from(2 << at);
                    let moves = self.moves(half, 1.0, sharers);
                    let hop = match (1 << at) < sharing.div_ceil(2) {
                        true => self.flag() + moves,
                        false => put(half),
                    };
                    time += 2.0 * hop + moves;
                }
                let extras = 2.0 * put(size) + self.moves(size, 1.0, sharers);
                time + if extra { extras } else { 0.0 }
            }
            Allreduce::Direct => {
                let segment = size / f64::from(nodes);
                let phase = self.puts(nodes - 1, members, segment, sharing);
                let reduced = self.moves(size / all, f64::from(nodes), sharers);
                let copies = if members > 1 { 0.0 } else { self.moves(size, 1.0, sharers) };
                // The result is copied while later segments arrive.
                let copied = self.moves(size, 1.0, members);
                let hidden = phase.min(copied * 15.0 / 16.0);
                2.0 * phase + reduced + copies + 2.0 * self.flag() - hidden
            }
        };
        sums + exchanges + result
    }

    /// The fastest algorithm for an allreduce. A gather is not considered if the sums of all nodes
    /// take more than 64 KiB.
    #[must_use]
    pub fn best_allreduce(&self, layout: Layout, bytes: u32) -> Allreduce {
        let nodes = layout.nodes;
        let fits = u64::from(nodes) * u64::from(bytes) <= 64 * 1024;
        let gathers = (2..=nodes.max(2)).filter(|radix| *radix <= 64 || *radix == nodes);
        let gathers = gathers.filter(|_| fits).map(|radix| Allreduce::Gather { radix });
        let all = [Allreduce::Doubling, Allreduce::Halving, Allreduce::Direct].into_iter();
        let cost = |algorithm: &Allreduce| self.allreduce(*algorithm, layout, bytes);
        all.chain(gathers).min_by(|a, b| cost(a).total_cmp(&cost(b))).unwrap_or(Allreduce::Doubling)
    }

    /// What a dissemination barrier takes.
    #[must_use]
    pub fn barrier(&self, radix: u32, layout: Layout) -> f64 {
        let Layout { nodes, members, sharing } = layout;
        let entered = self.flag() + f64::from(members) * self.local_gap;
        let seen = if members > 1 { self.local_latency } else { 0.0 };
        let round = |span| {
            let count = distances(nodes, radix, span).count() as u32;
            self.puts(count, members, 0.0, sharing) + seen
        };
        entered + spans(nodes, radix).map(round).sum::<f64>()
    }

    /// The fastest radix of a barrier.
    #[must_use]
    pub fn best_barrier(&self, layout: Layout) -> u32 {
        let cost = |radix: &u32| self.barrier(*radix, layout);
        (2..=layout.nodes.clamp(2, 64)).min_by(|a, b| cost(a).total_cmp(&cost(b))).unwrap_or(2)
    }

    /// What an exchange of blocks takes that packs them into one message per pair of nodes.
    #[must_use]
    pub fn aggregated(&self, traffic: &Traffic, members: u32) -> f64 {
        let t = traffic;
        let inside = self.moves(t.process_inside_bytes, t.process_inside_blocks, members);
        let inside = inside + t.process_inside_blocks * self.local_gap;
        let pack = self.moves(t.process_wire_bytes, t.process_runs, members)
            + t.partners * (self.local_gap + self.local_flag);
        let unpack = self.moves(t.process_wire_bytes, t.partners, members)
            + t.partners * (self.local_gap + self.local_flag + self.local_latency);
        let each = self.gap.max(self.notify);
        let wire = (t.wire_bytes * self.byte).max(t.partners * each) + self.latency + self.post;
        pack + inside + unpack + wire
    }

    /// What it takes with a message per block.
    #[must_use]
    pub fn by_blocks(&self, traffic: &Traffic, members: u32) -> f64 {
        let t = traffic;
        let inside = self.moves(t.process_inside_bytes, t.process_inside_blocks, members);
        let inside = inside + t.process_inside_blocks * (self.local_gap + self.local_flag);
        let each = self.gap.max(self.notify);
        let wire = (t.wire_bytes * self.byte).max(t.wire_blocks * each);
        let posts = t.process_wire_blocks * self.post;
        inside + wire.max(posts) + self.latency + self.post
    }

    // ---- lower bounds ----

    /// Least time in which what one node knows can reach all others: each node that knows it may
    /// pass it on once per gap.
    fn broadcast_bound(&self, nodes: u32) -> f64 {
        let hop = self.post + self.latency + self.notify;
        // Times at which nodes learn it, earliest first.
        let mut known = std::collections::BinaryHeap::new();
        let key = |time: f64| std::cmp::Reverse((time * 1000.0) as u64);
        known.push(key(0.0));
        let mut last = 0.0;
        for _ in 1..nodes {
            let Some(std::cmp::Reverse(next)) = known.pop() else { break };
            let at = next as f64 / 1000.0;
            known.push(key(at + self.gap));
            known.push(key(at + hop));
            last = f64::max(last, at + hop);
        }
        last
    }

    /// No allreduce takes less: what each process contributes must reach all others; all bytes
    /// must pass an adapter twice; and each contribution must be read, and each result written.
    #[must_use]
    pub fn allreduce_bound(&self, nodes: u32, members: u32, bytes: u32) -> f64 {
        let (size, all) = (f64::from(bytes), f64::from(members));
        let others = f64::from(nodes - 1) / f64::from(nodes);
        let inside = if members > 1 { self.local_latency } else { 0.0 };
        let wire = 2.0 * others * size * self.byte;
        let memory = (2.0 * all - 1.0) * size * self.bus_byte;
        (inside + self.broadcast_bound(nodes)).max(wire).max(memory)
    }

    /// No barrier takes less.
    #[must_use]
    pub fn barrier_bound(&self, nodes: u32, members: u32) -> f64 {
        self.allreduce_bound(nodes, members, 0)
    }

    /// No exchange of blocks takes less: its bytes must pass the adapter, and be copied within the
    /// node.
    #[must_use]
    pub fn exchange_bound(&self, traffic: &Traffic) -> f64 {
        let t = traffic;
        let first = if t.wire_bytes > 0.0 { self.post + self.latency + self.notify } else { 0.0 };
        let copies = t.process_inside_bytes * self.local_byte;
        (first + t.wire_bytes * self.byte).max(t.inside_bytes * self.bus_byte).max(copies)
    }
}
