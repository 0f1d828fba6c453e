//! The applications of the paper's section VIII.B in virtual time: LU decomposition and massive
//! transactions, by the same schedules as the programs on real ranks.

use serde::Serialize;

use super::profile::Machine;
use super::schedule::{LuOptions, Schedule, Series, TransactionsOptions};
use super::script::{Moment, Script, Step};
use super::world::{Report, Settings, WindowSpec, World};
use crate::engine::{Rank, ReorderFlags};
use crate::transport::sim::{SECOND, Time};

/// Results of a run of an application.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Outcome {
    /// Virtual seconds from the end of the warm-up to the end.
    pub seconds: f64,
    /// Fraction of the ranks' time spent in calls, waits included.
    pub in_calls: f64,
    /// Mean fraction of time that an atomic unit was busy.
    pub atomics_busy_mean: f64,
    /// Maximum over the atomic units.
    pub atomics_busy_max: f64,
    /// Events of the network.
    pub events: u64,
    /// Messages between NICs.
    pub messages: u64,
    /// Answers "no resource".
    pub refusals: u64,
    /// Maximum number of messages in flight.
    pub in_flight_max: usize,
    /// Peak memory of a rank's engine in bytes, mean over the ranks.
    pub engine_bytes_peak_mean: f64,
    /// Maximum over the ranks.
    pub engine_bytes_peak_max: i64,
    /// Memory of a rank's engine at the end in bytes, mean over the ranks.
    pub engine_bytes_end_mean: f64,
    /// Peers that a rank's engine has touched at the end, mean over the ranks.
    pub peers_mean: f64,
    /// Hash of the run, hexadecimal.
    pub trace: String,
}

/// An application with an optional warm-up.
struct Timed {
    warm_up: Option<Schedule>,
    schedule: Schedule,
    /// Number of hot targets; 0: none.
    hot: Rank,
    /// End of the warm-up.
    began: Option<Time>,
}

impl Script for Timed {
    fn next(&mut self, at: &mut Moment<'_>) -> Step {
        if let Some(warm_up) = &mut self.warm_up {
            match warm_up.next(at) {
                Step::End => self.warm_up = None,
                step => return retargeted(step, self.hot),
            }
            return Step::Barrier;
        }
        self.began.get_or_insert(at.now);
        retargeted(self.schedule.next(at), self.hot)
    }
}

/// The target instead of `target` with `hot` hot targets: every other rank stands for a hot one.
fn hot_target(target: Rank, hot: Rank) -> Rank {
    if hot == 0 || target.is_multiple_of(2) { target } else { target / 2 % hot }
}

/// A step of a lock epoch, aimed at its hot target if it has one.
fn retargeted(mut step: Step, hot: Rank) -> Step {
    match &mut step {
        Step::Lock { target, .. } | Step::Unlock { target, .. } => {
            *target = hot_target(*target, hot);
        }
        Step::Issue { op, .. } => op.target = hot_target(op.target, hot),
        _ => {}
    }
    step
}

fn outcome(world: &mut World<Timed>, report: &Report) -> Outcome {
    let units: Vec<f64> =
        world.net().atomics_busy().map(|busy| busy as f64 / report.end.max(1) as f64).collect();
    let ranks = f64::from(world.ranks());
    let all = 0..world.ranks();
    let began = all.clone().filter_map(|rank| world.script(rank).began).min().unwrap_or(0);
    let mean = |of: &dyn Fn(u32) -> f64| all.clone().map(of).sum::<f64>() / ranks;
    Outcome {
        seconds: (report.end - began) as f64 / SECOND as f64,
        in_calls: mean(&|rank| world.time_in_calls(rank) as f64) / report.end.max(1) as f64,
        atomics_busy_mean: units.iter().sum::<f64>() / units.len() as f64,
        atomics_busy_max: units.iter().copied().fold(0.0, f64::max),
        events: report.stats.events,
        messages: report.stats.messages,
        refusals: report.stats.refusals,
        in_flight_max: report.stats.in_flight_max,
        engine_bytes_peak_mean: mean(&|rank| world.memory(rank).peak as f64),
        engine_bytes_peak_max: all.clone().map(|rank| world.memory(rank).peak).max().unwrap_or(0),
        engine_bytes_end_mean: mean(&|rank| world.memory(rank).bytes as f64),
        peers_mean: mean(&|rank| world.window(0, rank).peers_touched() as f64),
        trace: format!("{:016x}", report.trace),
    }
}

/// Runs the warm-up, if any, and the schedule of each rank.
fn run(
    ranks: u32,
    machine: &Machine,
    progress_thread: bool,
    flags: ReorderFlags,
    hot: Rank,
    schedules: impl Fn(i32) -> Result<(Option<Schedule>, Schedule), String>,
) -> Result<Outcome, String> {
    let settings = Settings { progress_thread, ..Settings::new(*machine) };
    let scripts = (0..ranks).map(|rank| {
        let (warm_up, schedule) = schedules(rank.cast_signed())?;
        Ok(Timed { warm_up, schedule, hot, began: None })
    });
    let mut scripts = scripts.collect::<Result<Vec<_>, String>>()?.into_iter();
    let mut world =
        World::new(ranks, settings, &[WindowSpec { flags, ..Default::default() }], |_| {
            scripts.next().expect("a script for each rank")
        });
    let report = world.run().map_err(|stuck| stuck.to_string())?;
    Ok(outcome(&mut world, &report))
}

/// LU decomposition of an m x m matrix. `depth` and `ahead` are described in `schedule.h`.
pub fn lu(
    machine: &Machine,
    progress_thread: bool,
    ranks: u32,
    (m, depth, ahead): (u64, u64, bool),
    series: Series,
) -> Result<Outcome, String> {
    let count = ranks.cast_signed();
    run(ranks, machine, progress_thread, ReorderFlags::default(), 0, |rank| {
        let options = LuOptions { rank, ranks: count, m, depth, ahead: ahead.into(), series };
        Ok((None, Schedule::lu(&options)?))
    })
}

/// Parameters of the transactions; see `schedule.h`.
#[derive(Clone, Copy, Debug)]
pub struct Transactions {
    /// Transactions of each rank before the measurement.
    pub warm_up: u64,
    /// Transactions of each rank.
    pub count: u64,
    /// Accounts in each window.
    pub accounts: u64,
    /// Seed of the random choices.
    pub seed: u64,
    /// Maximum number of pending epochs; 0: unbounded.
    pub window: u64,
    /// Half of all transactions go to this many ranks, the hot targets; 0: all targets are equal.
    pub hot: u32,
}

/// Runs the transactions, with `reorder` under `access_after_access`.
pub fn transactions(
    machine: &Machine,
    progress_thread: bool,
    ranks: u32,
    work: Transactions,
    series: Series,
    reorder: bool,
) -> Result<Outcome, String> {
    let Transactions { warm_up, count, accounts, seed, window, hot } = work;
    if hot > ranks {
        return Err(format!("{hot} hot targets, but only {ranks} ranks"));
    }
    let flags = ReorderFlags { access_after_access: reorder, ..ReorderFlags::default() };
    run(ranks, machine, progress_thread, flags, hot, |rank| {
        let options = TransactionsOptions {
            rank,
            ranks: ranks.cast_signed(),
            count,
            accounts,
            seed,
            window,
            flops: 0.0,
            audits: 0,
            series,
        };
        let schedule = Schedule::transactions(&options)?;
        // The warm-up uses other targets than the measurement.
        let other = TransactionsOptions { count: warm_up, seed: seed ^ 1 << 63, ..options };
        let warm_up = (warm_up > 0).then(|| Schedule::transactions(&other)).transpose()?;
        Ok((warm_up, schedule))
    })
}
