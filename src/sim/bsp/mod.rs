//! Bulk-synchronous programs in virtual time: those of TALPF (2023), chapter 7, each synchronized
//! in several ways.
//!
//! A program is a sequence of *supersteps*: every rank computes, puts to its targets, and
//! synchronizes. Halos and blocks have two buffers, which take turns, so a superstep writes none
//! that its target reads.

mod member;

use serde::Serialize;

use self::member::Member;
use super::noise::{factor, mixed};
use super::profile::Machine;
use super::world::{Settings, WindowSpec, World};
use crate::engine::Rank;
use crate::transport::sim::{Time, US};

/// A program: who communicates with whom, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// Square blocks of a matrix; all exchange their edges with up to four neighbours.
    Jacobi,
    /// Horizontal bands of a matrix. An iteration has two supersteps: every other rank updates its
    /// band and puts its edges, the others wait for them.
    GaussSeidel,
    /// A ring: every rank passes on the particles that it has, and computes with them.
    NBody,
    /// As `NBody`, with slices of a matrix.
    MatMul,
}

/// How the ranks synchronize.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Series {
    /// A fence, which is a barrier.
    Barrier,
    /// A fence of a window that has learned a pattern.
    Pattern,
    /// Post, start, complete and wait, by hand: the post comes before the computation.
    Pscw,
    /// Counted notifications. Rings also acknowledge what they have used.
    Notified,
    /// Eager messages.
    TwoSided,
}

impl Program {
    /// All programs.
    pub const ALL: [Program; 4] =
        [Program::Jacobi, Program::GaussSeidel, Program::NBody, Program::MatMul];

    /// The name in the results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Program::Jacobi => "jacobi",
            Program::GaussSeidel => "gauss-seidel",
            Program::NBody => "n-body",
            Program::MatMul => "matmul",
        }
    }

    fn is_ring(self) -> bool {
        matches!(self, Program::NBody | Program::MatMul)
    }

    fn supersteps(self) -> u32 {
        if self == Program::GaussSeidel { 2 } else { 1 }
    }

    /// The ranks to which `me` puts, in the order of its calls.
    #[must_use]
    pub fn targets(self, me: Rank, ranks: u32) -> Vec<Rank> {
        let side = match self {
            Program::Jacobi => ranks.isqrt(),
            Program::GaussSeidel => 1,
            Program::NBody | Program::MatMul => return vec![(me + 1) % ranks],
        };
        let column = me % side;
        let near = [
            me.checked_sub(side),
            (column > 0).then(|| me - 1),
            (column + 1 < side).then_some(me + 1),
            (me + side < ranks).then_some(me + side),
        ];
        near.into_iter().flatten().collect()
    }

    /// The ranks that put to `me`.
    #[must_use]
    pub fn origins(self, me: Rank, ranks: u32) -> Vec<Rank> {
        if self.is_ring() { vec![(me + ranks - 1) % ranks] } else { self.targets(me, ranks) }
    }
}

impl Series {
    /// All series.
    pub const ALL: [Series; 5] =
        [Series::Barrier, Series::Pattern, Series::Pscw, Series::Notified, Series::TwoSided];

    /// The name in the results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Series::Barrier => "barrier",
            Series::Pattern => "pattern",
            Series::Pscw => "pscw",
            Series::Notified => "notified",
            Series::TwoSided => "two-sided",
        }
    }
}

/// A run of a program.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Network and CPUs.
    pub machine: Machine,
    /// The program.
    pub program: Program,
    /// The series.
    pub series: Series,
    /// Number of ranks.
    pub ranks: u32,
    /// Time that a rank computes in a superstep, in microseconds.
    pub compute_us: f64,
    /// The computation takes its time times a random factor between 1 - jitter and 1 + jitter.
    pub jitter: f64,
    /// Seed of the random factors.
    pub seed: u64,
    /// Bytes of each put.
    pub bytes: u64,
    /// Iterations before the measurement.
    pub warm_up: u32,
    /// Iterations of the measurement.
    pub iterations: u32,
}

/// Results of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Time of an iteration in microseconds, mean over iterations and ranks.
    pub iteration_us: f64,
    /// What synchronization and transfers add to the mean computation, which in the Gauss-Seidel
    /// method is that of a rank and of its neighbour.
    pub sync_us: f64,
    /// Messages between NICs, the warm-up included.
    pub messages: u64,
    /// Events of the network.
    pub events: u64,
    /// Peak memory of a rank's engine in bytes, mean over the ranks.
    pub engine_bytes_peak_mean: f64,
    /// Maximum over the ranks.
    pub engine_bytes_peak_max: i64,
    /// Hash of the run, hexadecimal.
    pub trace: String,
}

impl Work {
    /// Time that a rank computes in this superstep.
    #[must_use]
    pub fn compute_time(&self, me: Rank, superstep: u32) -> Time {
        let random = mixed(mixed(self.seed ^ mixed(me.into())) ^ u64::from(superstep));
        (self.compute_us * US as f64 * factor(random, self.jitter)) as Time
    }

    fn problem(&self) -> Result<(), String> {
        let (ranks, most) = (self.ranks, self.machine.eager_max);
        if ranks < 2 || self.iterations == 0 || self.warm_up == 0 {
            return Err("at least two ranks, one iteration and one before, which is learned".into());
        }
        if self.program == Program::Jacobi && ranks.isqrt().pow(2) != ranks {
            return Err(format!("{ranks} ranks are not a square"));
        }
        if self.series == Series::TwoSided && self.bytes > most {
            return Err(format!("messages of {} bytes are not eager (up to {most})", self.bytes));
        }
        if !(0.0..1.0).contains(&self.jitter) || self.compute_us <= 0.0 {
            return Err("compute-us must be positive, and jitter at least 0 and below 1".into());
        }
        Ok(())
    }

    /// Runs the program.
    ///
    /// # Errors
    /// If the parameters are invalid, or the run is stuck.
    pub fn run(&self) -> Result<Outcome, String> {
        self.problem()?;
        let pattern_fences = self.series == Series::Pattern;
        let window = WindowSpec { pattern_fences, ..WindowSpec::default() };
        let mut world = World::new(self.ranks, Settings::new(self.machine), &[window], |me| {
            Member::new(*self, me)
        });
        let report = world.run().map_err(|stuck| stuck.to_string())?;
        let all = 0..self.ranks;
        let mean =
            |of: &dyn Fn(Rank) -> f64| all.clone().map(of).sum::<f64>() / f64::from(self.ranks);
        let per_iteration = |time: f64| time / US as f64 / f64::from(self.iterations);
        let iteration_us = per_iteration(mean(&|rank| world.script(rank).measured_time() as f64));
        let computed = mean(&|rank| world.script(rank).computed as f64);
        let computed_us = per_iteration(computed) * f64::from(self.program.supersteps());
        Ok(Outcome {
            iteration_us,
            sync_us: iteration_us - computed_us,
            messages: report.stats.messages,
            events: report.stats.events,
            engine_bytes_peak_mean: mean(&|rank| world.memory(rank).peak as f64),
            engine_bytes_peak_max: all
                .clone()
                .map(|rank| world.memory(rank).peak)
                .max()
                .unwrap_or(0),
            trace: format!("{:016x}", report.trace),
        })
    }
}
