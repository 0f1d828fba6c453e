//! Programs of tasks in virtual time: the Gauss-Seidel method in several versions, on nodes whose
//! cores take tasks from a queue.
//!
//! A rank has one [`Scheduler`] and some cores. A ready task takes a free core. A communication
//! keeps its core until it is complete, or gives it back at once and completes later
//! ([`Version::blocks_core`]). Data travel on the simulated network, as two-sided messages
//! ([`two_sided`](super::two_sided)) or as notified puts of the production engine. Both pay for
//! calls, posted messages and handled arrivals, with the same [`Machine`].
//!
//! One core at a time is in the library. Arrivals are handled in calls; where calls do not block,
//! also by idle cores, at once, and by each core between two tasks.

mod exchange;
mod gauss_seidel;
mod nodes;
mod scheduler;

pub use gauss_seidel::{Band, Kind, Task, Version};
pub use scheduler::{Core, Graph, Scheduler};

use serde::Serialize;

use super::noise::{factor, mixed};
use super::profile::Machine;
use crate::engine::Rank;
use crate::transport::sim::{NS, SECOND, Time};

/// A run of the Gauss-Seidel method.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Network and CPUs. Its ranks per node are the cores of a node.
    pub machine: Machine,
    /// The version.
    pub version: Version,
    /// Number of nodes.
    pub nodes: u32,
    /// Rows of the matrix.
    pub rows: u64,
    /// Columns of the matrix.
    pub columns: u64,
    /// Columns of a block; in hybrid versions its rows too.
    pub block: u64,
    /// Number of iterations.
    pub iterations: u32,
    /// Time to update an element, in nanoseconds.
    pub element_ns: f64,
    /// Time to begin a task, in nanoseconds. Versions with one rank per core have no tasks.
    pub task_ns: f64,
    /// A block takes its time times a random factor between 1 - jitter and 1 + jitter.
    pub jitter: f64,
    /// Seed of the random factors.
    pub seed: u64,
}

/// A block that was updated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ran {
    /// Rank.
    pub rank: Rank,
    /// The task.
    pub task: Task,
    /// Begin of the computation.
    pub began: Time,
    /// Its end.
    pub ended: Time,
}

/// Results of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Virtual seconds to the end of the last task.
    pub seconds: f64,
    /// Fraction of the time of all cores in which they computed.
    pub busy: f64,
    /// Tasks of all ranks, communication included.
    pub tasks: u64,
    /// Events of the network.
    pub events: u64,
    /// Messages between NICs.
    pub messages: u64,
    /// Most tasks of a rank that waited with a finished predecessor.
    pub waiting_max: usize,
    /// Hash of the run, hexadecimal.
    pub trace: String,
}

impl Work {
    /// Cores of a node.
    #[must_use]
    pub fn cores(&self) -> u32 {
        self.machine.network.ranks_per_node
    }

    /// Number of ranks.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        self.nodes * self.ranks_per_node()
    }

    fn ranks_per_node(&self) -> u32 {
        if self.version.is_hybrid() { 1 } else { self.cores() }
    }

    fn cores_per_rank(&self) -> u32 {
        self.cores() / self.ranks_per_node()
    }

    fn puts(&self) -> bool {
        self.version == Version::Notified
    }

    /// Rows and columns of a block of this rank. With one rank per core, bands that differ by one
    /// row divide any number of rows.
    fn block_size(&self, rank: Rank) -> (u64, u64) {
        let end = |band: u64| band * self.rows / u64::from(self.ranks());
        let band = end(u64::from(rank) + 1) - end(rank.into());
        match self.version {
            Version::Pure => (band, self.columns),
            Version::NBuffer => (band, self.block),
            _ => (self.block, self.block),
        }
    }

    /// The tasks of a rank.
    #[must_use]
    pub fn band(&self, rank: Rank) -> Band {
        let (rows, columns) = self.block_size(rank);
        let hybrid = self.version.is_hybrid();
        Band {
            version: self.version,
            rows: if hybrid { (self.rows / u64::from(self.nodes) / rows) as u32 } else { 1 },
            columns: (self.columns / columns) as u32,
            iterations: self.iterations,
            upper: rank > 0,
            lower: rank + 1 < self.ranks(),
        }
    }

    /// Pieces in which a row is exchanged.
    fn pieces(&self) -> u32 {
        if self.version.sends_whole_rows() { 1 } else { (self.columns / self.block) as u32 }
    }

    /// Bytes of such a piece.
    fn bytes(&self) -> u64 {
        8 * self.columns / u64::from(self.pieces())
    }

    fn task_overhead(&self) -> Time {
        if self.version.is_hybrid() { (self.task_ns * NS as f64) as Time } else { 0 }
    }

    fn compute_time(&self, rank: Rank, task: Task) -> Time {
        let (rows, columns) = self.block_size(rank);
        let time = (rows * columns) as f64 * self.element_ns * NS as f64;
        let place = u64::from(rank) << 32 ^ u64::from(task.row) << 16 ^ u64::from(task.column);
        let random = mixed(mixed(self.seed ^ mixed(place)) ^ u64::from(task.iteration));
        (time * factor(random, self.jitter)) as Time
    }

    fn problem(&self) -> Result<(), String> {
        let (ranks, cores) = (u64::from(self.nodes) * u64::from(self.cores()), self.cores());
        if self.nodes == 0 || self.iterations == 0 || self.block == 0 {
            return Err("nodes, iterations and block must be positive".into());
        }
        // The number of ranks must not overflow.
        if ranks > u64::from(u32::MAX) {
            return Err(format!("{} nodes of {cores} cores are too many", self.nodes));
        }
        let bands = u64::from(self.nodes) * self.block;
        if self.version.is_hybrid() && !self.rows.is_multiple_of(bands) || self.rows < ranks {
            let rows = self.rows;
            return Err(format!(
                "{rows} rows do not give each node whole blocks, or each core one"
            ));
        }
        if !self.columns.is_multiple_of(self.block) || self.columns == 0 {
            let (columns, block) = (self.columns, self.block);
            return Err(format!("{columns} columns are not a multiple of the block's {block}"));
        }
        // The model of n buffers sends a piece and goes on, which takes an eager message.
        if self.version == Version::NBuffer && self.bytes() > self.machine.eager_max {
            let (bytes, most) = (self.bytes(), self.machine.eager_max);
            return Err(format!("pieces of {bytes} bytes are not eager (up to {most})"));
        }
        if !(0.0..1.0).contains(&self.jitter) || self.element_ns <= 0.0 || self.task_ns < 0.0 {
            return Err("element-ns must be positive, and jitter at least 0 and below 1".into());
        }
        Ok(())
    }

    /// Runs all tasks.
    ///
    /// # Errors
    /// If the work cannot be divided, or the run is stuck.
    pub fn run(&self) -> Result<Outcome, String> {
        self.run_watched(|_| {})
    }

    /// As [`run`](Self::run); calls `watch` at the end of each update of a block.
    ///
    /// # Errors
    /// As `run`.
    pub fn run_watched(&self, watch: impl FnMut(Ran)) -> Result<Outcome, String> {
        self.problem()?;
        let found = nodes::Nodes::new(self, watch).run()?;
        let stats = found.net.stats();
        let cores = f64::from(self.nodes) * f64::from(self.cores());
        Ok(Outcome {
            seconds: found.end as f64 / SECOND as f64,
            busy: found.computed as f64 / (found.end.max(1) as f64 * cores),
            tasks: found.tasks,
            events: stats.events,
            messages: stats.messages,
            waiting_max: found.waiting_max,
            trace: format!("{:016x}", found.net.trace()),
        })
    }
}
