//! Collectives over many nodes in virtual time: the schedules of
//! [`collective::nodes`](crate::collective::nodes), on the simulated network.
//!
//! A put to another node is a notified put of the production engine. Within a node, copies and
//! reductions take the time of the network's local class and share the memory bus. A counter that a
//! processor raises is seen after the local latency. Schedules that know no nodes run on the same
//! nodes: their puts within a node are copies.
//!
//! The contents of each run are checked. A byte of them stands for `unit` bytes of the simulated
//! collective.

mod driver;

use serde::Serialize;

use self::driver::Driver;
use super::noise::mixed;
use super::profile::Machine;
use crate::collective::nodes::alltoallv::{NodePlan, pairwise};
use crate::collective::nodes::halo::{Grid, NodeHalo};
use crate::collective::nodes::model::{self, Layout, Traffic};
use crate::collective::nodes::{Allreduce, Area, Placement, Program, barrier};
use crate::engine::Rank;
use crate::transport::sim::{NS, Time, US};

/// A collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collective {
    /// Nothing but synchronization.
    Barrier,
    /// A sum of as many bytes.
    Allreduce {
        /// Bytes of a contribution.
        bytes: u32,
    },
    /// Blocks of irregular length between random pairs of processes.
    Alltoallv {
        /// Mean length of a block in bytes, a multiple of 4.
        bytes: u32,
        /// Mean number of blocks that a process sends. All, if there are no more processes.
        partners: u32,
    },
    /// Ghost cells of 8 bytes in three dimensions, with 26 neighbours.
    Halo {
        /// Cells of a process in each dimension.
        cells: u32,
    },
}

impl Collective {
    /// The name in the results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Collective::Barrier => "barrier",
            Collective::Allreduce { .. } => "allreduce",
            Collective::Alltoallv { .. } => "alltoallv",
            Collective::Halo { .. } => "halo",
        }
    }
}

/// Bytes of a cell.
const CELL: u32 = 8;
/// Bytes of the contents of an allreduce, at most.
const CONTENTS_MAX: u32 = 16_384;

/// A run of a collective.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Network and CPUs.
    pub machine: Machine,
    /// The collective.
    pub collective: Collective,
    /// Whether the schedule knows the nodes.
    pub node_aware: bool,
    /// The algorithm of an allreduce, if not the one that the model chooses.
    pub algorithm: Option<Allreduce>,
    /// The radix of a barrier, likewise.
    pub radix: Option<u32>,
    /// Number of processes.
    pub ranks: u32,
    /// CPU time of each block of a copy beyond the first one, in nanoseconds.
    pub block_ns: f64,
    /// Each process enters at a random time up to this one, in microseconds.
    pub skew_us: f64,
    /// Seed of these times, and of the blocks of an alltoallv.
    pub seed: u64,
}

/// Results of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The algorithm.
    pub algorithm: String,
    /// Microseconds until the last process has its result.
    pub time_us: f64,
    /// Mean over the processes, each from its own beginning.
    pub mean_us: f64,
    /// What the LogGP model says.
    pub model_us: f64,
    /// What no algorithm can do better, after the LogGP model.
    pub bound_us: f64,
    /// Puts between nodes.
    pub messages: u64,
    /// Copies and reductions within nodes.
    pub copies: u64,
    /// Events of the network.
    pub events: u64,
    /// Hash of the run, hexadecimal.
    pub trace: String,
}

/// The parameters of the model, from those of the simulated machine.
#[must_use]
pub fn parameters(machine: &Machine, block_ns: f64) -> model::Machine {
    let ns = |time: Time| time as f64 / NS as f64;
    let network = &machine.network;
    let hops = network.tree.map_or(0, |tree| 2 * tree.hop);
    model::Machine {
        // Most nodes are below another switch.
        latency: ns(network.wire.latency + hops),
        post: ns(network.wire.post),
        gap: ns(network.wire.gap),
        byte: network.wire.byte_fs as f64 * 1e-6,
        notify: ns(network.atomic_gap),
        local_latency: ns(network.local.latency),
        local_flag: ns(network.local.post),
        local_gap: ns(network.local.gap),
        local_byte: network.local.byte_fs as f64 * 1e-6,
        block: block_ns,
        bus_byte: network.bus_byte_fs as f64 * 1e-6,
    }
}

/// What process `me` contributes to a sum.
fn contribution(me: Rank, at: usize) -> u8 {
    ((u64::from(me).wrapping_mul(0x9E37_79B9) + at as u64 * 11) >> 3) as u8
}

/// A byte of a block.
fn content(from: Rank, to: Rank, at: u32) -> u8 {
    from.wrapping_mul(31).wrapping_add(to.wrapping_mul(17)).wrapping_add(at) as u8
}

/// The value of the field at global coordinates.
fn value(at: [u32; 3]) -> u8 {
    let [x, y, z] = at.map(|at| at.wrapping_mul(0x9E37_79B9));
    (x ^ y.rotate_left(7) ^ z.rotate_left(15)).wrapping_mul(0x85EB_CA6B).to_be_bytes()[0]
}

impl Work {
    /// The nodes.
    #[must_use]
    pub fn nodes(&self) -> Placement {
        Placement::even(self.ranks, self.machine.network.ranks_per_node)
    }

    /// The nodes that the schedule knows.
    fn known(&self) -> Placement {
        if self.node_aware { self.nodes() } else { Placement::flat(self.ranks) }
    }

    fn layout(&self) -> Layout {
        let (known, sharing) = (self.known(), self.nodes().size_max());
        let sharing = if self.node_aware { 1 } else { sharing };
        Layout { nodes: known.nodes(), members: known.size_max(), sharing }
    }

    /// Bytes of the block from one process to another, in units.
    fn block(&self, from: Rank, to: Rank) -> u32 {
        let Collective::Alltoallv { partners, .. } = self.collective else { return 0 };
        let random = mixed(self.seed ^ mixed(u64::from(from) << 32 | u64::from(to)));
        let (choice, length) = (random as u32, (random >> 32) as u32);
        let chosen = (u64::from(choice) * u64::from(self.ranks)) >> 32 < u64::from(partners);
        if chosen { 1 + length % 7 } else { 0 }
    }

    /// Bytes of the simulated collective for which a byte of the contents stands.
    fn unit(&self) -> u32 {
        match self.collective {
            Collective::Barrier => 1,
            Collective::Allreduce { bytes } => bytes.div_ceil(CONTENTS_MAX).max(1),
            Collective::Alltoallv { bytes, .. } => bytes / 4,
            Collective::Halo { .. } => CELL,
        }
    }

    fn problem(&self) -> Result<(), String> {
        if self.ranks == 0 {
            return Err("ranks must be positive".into());
        }
        match self.collective {
            Collective::Allreduce { bytes } if !bytes.is_multiple_of(self.unit()) => {
                Err(format!("{bytes} bytes are not a multiple of {}", self.unit()))
            }
            Collective::Alltoallv { bytes, .. } if bytes == 0 || !bytes.is_multiple_of(4) => {
                Err(format!("{bytes} bytes are not a positive multiple of 4"))
            }
            Collective::Halo { cells: 0 } => Err("cells must be positive".into()),
            _ if self.radix.is_some_and(|radix| radix < 2) => Err("radix must be 2 or more".into()),
            _ => Ok(()),
        }
    }

    fn grid(&self, cells: u32) -> Grid {
        Grid::of(self.ranks, cells, 1)
    }

    /// The program of each process.
    fn programs(&self, radix: u32, algorithm: Allreduce) -> Vec<Program> {
        let (known, ranks) = (self.known(), 0..self.ranks);
        let nodes = 0..known.nodes();
        match self.collective {
            Collective::Barrier => ranks.map(|me| barrier(&known, me, radix)).collect(),
            Collective::Allreduce { bytes } => {
                let bytes = bytes / self.unit();
                ranks.map(|me| algorithm.program(&known, me, bytes)).collect()
            }
            Collective::Alltoallv { .. } if self.node_aware => {
                let size = |from, to| self.block(from, to);
                let plan = |node| NodePlan::new(&known, node, &size);
                let arrivals: Vec<Vec<u32>> =
                    nodes.clone().map(|node| plan(node).arrivals().to_vec()).collect();
                let of_node = |node: u32| {
                    let plan = plan(node);
                    let members = known.members(node);
                    let program = |me| plan.program(me, |to| arrivals[to as usize][node as usize]);
                    members.map(program).collect::<Vec<_>>()
                };
                nodes.flat_map(of_node).collect()
            }
            Collective::Alltoallv { .. } => {
                let mut next = vec![0; self.ranks as usize];
                let size = |from, to| self.block(from, to);
                ranks
                    .map(|me| {
                        let program = pairwise(self.ranks, me, &size, |to| next[to as usize]);
                        (0..self.ranks).zip(&mut next).for_each(|(to, at)| *at += size(me, to));
                        program
                    })
                    .collect()
            }
            Collective::Halo { cells } if self.node_aware => {
                let halo = |node| NodeHalo::new(&known, self.grid(cells), node);
                let halos: Vec<_> = nodes.map(halo).collect();
                let program = |me| {
                    let node = known.node_of(me);
                    halos[node as usize].program(me, |to| halos[to as usize].arrival(node))
                };
                ranks.map(program).collect()
            }
            Collective::Halo { cells } => ranks.map(|me| self.grid(cells).flat(me)).collect(),
        }
    }

    /// Writes the contributions.
    fn fill(&self, driver: &mut Driver) {
        for me in 0..self.ranks {
            match self.collective {
                Collective::Barrier => {}
                Collective::Allreduce { .. } => {
                    let area = driver.area(me, Area::Send).iter_mut().enumerate();
                    area.for_each(|(at, byte)| *byte = contribution(me, at));
                }
                Collective::Alltoallv { .. } => {
                    let blocks = (0..self.ranks).map(|to| (to, self.block(me, to)));
                    let bytes = blocks
                        .flat_map(|(to, bytes)| (0..bytes).map(move |at| content(me, to, at)));
                    *driver.area(me, Area::Send) = bytes.collect();
                }
                Collective::Halo { cells } => {
                    self.each_cell(me, cells, &mut |at, global, is_ghost| {
                        driver.area(me, Area::Receive)[at] =
                            if is_ghost { 0 } else { value(global) };
                    });
                }
            }
        }
    }

    /// Calls `each` with each cell of a process inside the domain: its place, its global
    /// coordinates, and whether it is a ghost cell.
    fn each_cell(&self, me: Rank, cells: u32, each: &mut dyn FnMut(usize, [u32; 3], bool)) {
        let [a, b, c] = self.grid(cells).sides;
        let corner = [me / (b * c), me / c % b, me % c].map(|at| at * cells);
        let side = cells + 2;
        let global = |local: u32, of: usize| {
            (corner[of] + local).checked_sub(1).filter(|at| *at < [a, b, c][of] * cells)
        };
        let is_ghost = |local: u32| local == 0 || local == cells + 1;
        for plane in 0..side {
            let Some(x) = global(plane, 0) else { continue };
            for row in 0..side {
                let Some(y) = global(row, 1) else { continue };
                for column in 0..side {
                    let Some(z) = global(column, 2) else { continue };
                    let at = (plane * side + row) * side + column;
                    each(at as usize, [x, y, z], [plane, row, column].into_iter().any(is_ghost));
                }
            }
        }
    }

    /// Compares the results.
    fn check(&self, driver: &mut Driver) -> Result<(), String> {
        let mut sum = Vec::new();
        if let Collective::Allreduce { bytes } = self.collective {
            sum = vec![0_u8; (bytes / self.unit()) as usize];
            for (at, byte) in sum.iter_mut().enumerate() {
                *byte =
                    (0..self.ranks).fold(0, |sum: u8, me| sum.wrapping_add(contribution(me, at)));
            }
        }
        for me in 0..self.ranks {
            let is_right = match self.collective {
                Collective::Barrier => true,
                Collective::Allreduce { .. } => *driver.area(me, Area::Receive) == sum,
                Collective::Alltoallv { .. } => {
                    let blocks = (0..self.ranks).map(|from| (from, self.block(from, me)));
                    let expected = blocks
                        .flat_map(|(from, bytes)| (0..bytes).map(move |at| content(from, me, at)));
                    driver.area(me, Area::Receive).iter().copied().eq(expected)
                }
                Collective::Halo { cells } => {
                    let mut is_right = true;
                    let field = driver.area(me, Area::Receive);
                    self.each_cell(me, cells, &mut |at, global, _| {
                        is_right &= field[at] == value(global);
                    });
                    is_right
                }
            };
            if !is_right {
                return Err(format!("rank {me} of {self:?} has a wrong result"));
            }
        }
        Ok(())
    }

    /// What the busiest node and process exchange.
    fn traffic(&self) -> Traffic {
        let nodes = self.nodes();
        let unit = f64::from(self.unit());
        let mut most = Traffic::default();
        for node in 0..nodes.nodes() {
            let mut sum = Traffic::default();
            let mut partners = vec![false; nodes.nodes() as usize];
            for me in nodes.members(node) {
                let mut mine = Traffic::default();
                let mut block = |to: Rank, bytes: f64, runs: f64| {
                    let other = nodes.node_of(to);
                    if other == node {
                        sum.inside_bytes += bytes;
                        mine.process_inside_bytes += bytes;
                        mine.process_inside_blocks += 1.0;
                    } else {
                        partners[other as usize] = true;
                        sum.wire_bytes += bytes;
                        sum.wire_blocks += 1.0;
                        mine.process_wire_bytes += bytes;
                        mine.process_wire_blocks += 1.0;
                        mine.process_runs += runs;
                    }
                };
                match self.collective {
                    Collective::Alltoallv { .. } => {
                        for (to, bytes) in (0..self.ranks).map(|to| (to, self.block(me, to))) {
                            if bytes > 0 {
                                block(to, f64::from(bytes) * unit, 1.0);
                            }
                        }
                    }
                    Collective::Halo { cells } => {
                        let grid = self.grid(cells);
                        for (to, way) in grid.neighbours(me) {
                            block(to, f64::from(grid.bytes(way)) * unit, grid.run_count(way));
                        }
                    }
                    _ => {}
                }
                for (most, mine) in [
                    (&mut most.process_wire_bytes, mine.process_wire_bytes),
                    (&mut most.process_wire_blocks, mine.process_wire_blocks),
                    (&mut most.process_runs, mine.process_runs),
                    (&mut most.process_inside_bytes, mine.process_inside_bytes),
                    (&mut most.process_inside_blocks, mine.process_inside_blocks),
                ] {
                    *most = most.max(mine);
                }
            }
            sum.partners = partners.iter().filter(|is| **is).count() as f64;
            for (most, sum) in [
                (&mut most.wire_bytes, sum.wire_bytes),
                (&mut most.wire_blocks, sum.wire_blocks),
                (&mut most.partners, sum.partners),
                (&mut most.inside_bytes, sum.inside_bytes),
            ] {
                *most = most.max(sum);
            }
        }
        most
    }

    /// Runs the collective once, and checks the results of all processes.
    ///
    /// # Errors
    /// If the parameters are invalid, the run is stuck, or a result is wrong.
    pub fn run(&self) -> Result<Outcome, String> {
        self.problem()?;
        let model = parameters(&self.machine, self.block_ns);
        let (layout, nodes) = (self.layout(), self.nodes());
        let bytes = if let Collective::Allreduce { bytes } = self.collective { bytes } else { 0 };
        let algorithm = self.algorithm.unwrap_or_else(|| model.best_allreduce(layout, bytes));
        let radix = self.radix.unwrap_or_else(|| model.best_barrier(layout));
        let (count, members) = (nodes.nodes(), nodes.size_max());
        let (name, expected, bound) = match self.collective {
            Collective::Barrier => (
                format!("radix {radix}"),
                model.barrier(radix, layout),
                model.barrier_bound(count, members),
            ),
            Collective::Allreduce { .. } => (
                name_of(algorithm),
                model.allreduce(algorithm, layout, bytes),
                model.allreduce_bound(count, members, bytes),
            ),
            Collective::Alltoallv { .. } | Collective::Halo { .. } => {
                let traffic = self.traffic();
                let (name, time) = match self.node_aware {
                    true => ("aggregated", model.aggregated(&traffic, members)),
                    false => ("blocks", model.by_blocks(&traffic, members)),
                };
                (name.to_owned(), time, model.exchange_bound(&traffic))
            }
        };
        let block = (self.block_ns * NS as f64) as Time;
        let costs = (u64::from(self.unit()), block, self.machine.call);
        let programs = self.programs(radix, algorithm);
        let mut driver = Driver::new(self.machine.network, programs, costs);
        self.fill(&mut driver);
        let enters = |me: Rank| {
            let random = mixed(self.seed ^ mixed(u64::from(me) | 1 << 40));
            (random as f64 / u64::MAX as f64 * self.skew_us * US as f64) as Time
        };
        driver.run(enters)?;
        self.check(&mut driver)?;
        let all = 0..self.ranks;
        let last = all.clone().map(|rank| driver.end(rank)).max().unwrap_or(0);
        let taken = all.map(|rank| (driver.end(rank) - enters(rank)) as f64).sum::<f64>();
        let stats = driver.net().stats();
        Ok(Outcome {
            algorithm: name,
            time_us: last as f64 / US as f64,
            mean_us: taken / f64::from(self.ranks) / US as f64,
            model_us: expected / 1000.0,
            bound_us: bound / 1000.0,
            messages: stats.messages,
            copies: stats.copies,
            events: stats.events,
            trace: format!("{:016x}", driver.net().trace()),
        })
    }
}

/// The name of an algorithm in the results.
#[must_use]
pub fn name_of(algorithm: Allreduce) -> String {
    match algorithm {
        Allreduce::Gather { radix } => format!("gather {radix}"),
        Allreduce::Doubling => "doubling".into(),
        Allreduce::Halving => "halving".into(),
        Allreduce::Direct => "direct".into(),
    }
}
