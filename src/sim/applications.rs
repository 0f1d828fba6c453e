//! The paper's section VIII.B in virtual time: LU decomposition and massive transactions, by the schedules of the programs on
//! real ranks.

use serde::Serialize;

use super::profile::Machine;
use super::schedule::{LuOptions, Schedule, Series, TransactionsOptions};
use super::world::{Report, Settings, WindowSpec, World};
use crate::engine::ReorderFlags;
use crate::transport::sim::SECOND;

/// What any run of an application tells.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Outcome {
    /// Virtual seconds from the first call to the end.
    pub seconds: f64,
    /// Part of the ranks' time that was spent in calls, waits included.
    pub in_calls: f64,
    /// Events of the network.
    pub events: u64,
    /// Messages between NICs.
    pub messages: u64,
    /// Answers "no resource".
    pub refusals: u64,
    /// Most messages under way at one time.
    pub in_flight_max: usize,
    /// Bytes that a rank's engine held at most: on average over the ranks, and the most of any.
    pub engine_bytes_peak_mean: f64,
    /// See above.
    pub engine_bytes_peak_max: i64,
    /// Bytes held at the end, on average.
    pub engine_bytes_end_mean: f64,
    /// Hash of the run, in hexadecimal.
    pub trace: String,
}

fn outcome(world: &World<Schedule>, report: &Report) -> Outcome {
    let ranks = f64::from(world.ranks());
    let all = || (0..world.ranks()).map(|rank| (world.memory(rank), world.time_in_calls(rank)));
    Outcome {
        seconds: report.end as f64 / SECOND as f64,
        in_calls: all().map(|(_, time)| time as f64).sum::<f64>() / ranks / (report.end.max(1) as f64),
        events: report.counters.events,
        messages: report.counters.messages,
        refusals: report.counters.refusals,
        in_flight_max: report.counters.in_flight_max,
        engine_bytes_peak_mean: all().map(|(memory, _)| memory.peak as f64).sum::<f64>() / ranks,
        engine_bytes_peak_max: all().map(|(memory, _)| memory.peak).max().unwrap_or(0),
        engine_bytes_end_mean: all().map(|(memory, _)| memory.bytes as f64).sum::<f64>() / ranks,
        trace: format!("{:016x}", report.trace),
    }
}

fn run(
    ranks: u32,
    machine: &Machine,
    progress_thread: bool,
    flags: ReorderFlags,
    mut schedule: impl FnMut(i32) -> Result<Schedule, String>,
) -> Result<Outcome, String> {
    let settings = Settings { progress_thread, ..Settings::new(*machine) };
    let schedules: Result<Vec<_>, _> = (0..ranks).map(|rank| schedule(rank.cast_signed())).collect();
    let mut schedules = schedules?.into_iter();
    let mut world =
        World::new(ranks, settings, &[WindowSpec { bytes: 0, flags }], |_| schedules.next().expect("a schedule for each rank"));
    let report = world.run().map_err(|stuck| stuck.to_string())?;
    Ok(outcome(&world, &report))
}

/// LU decomposition of an m x m matrix; `ring` and `ahead` as in `schedule.h`.
///
/// # Errors
/// Wrong options, or a run that does not end.
pub fn lu(
    machine: &Machine,
    progress_thread: bool,
    ranks: u32,
    (m, depth, ahead): (u64, u64, bool),
    series: Series,
) -> Result<Outcome, String> {
    let count = ranks.cast_signed();
    run(ranks, machine, progress_thread, ReorderFlags::default(), |rank| {
        Schedule::lu(&LuOptions { rank, ranks: count, m, depth, ahead: ahead.into(), series })
    })
}

/// `count` transactions of each rank; at most `window` epochs pending (0: no bound), in any order or not.
///
/// # Errors
/// Wrong options, or a run that does not end.
pub fn transactions(
    machine: &Machine,
    progress_thread: bool,
    ranks: u32,
    (count, accounts, seed, window): (u64, u64, u64, u64),
    series: Series,
    reorder: bool,
) -> Result<Outcome, String> {
    let all = ranks.cast_signed();
    let flags = ReorderFlags { access_after_access: reorder, ..ReorderFlags::default() };
    run(ranks, machine, progress_thread, flags, |rank| {
        Schedule::transactions(&TransactionsOptions {
            rank,
            ranks: all,
            count,
            accounts,
            seed,
            window,
            flops: 0.0,
            stamps: 0,
            series,
        })
    })
}
