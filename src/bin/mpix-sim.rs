//! Worlds in virtual time, from the command line: figures of the paper, and curves of our own. One JSON object per line.

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use mpix_rma::sim::applications::{self, Outcome};
use mpix_rma::sim::{Machine, PROFILES, Series, patterns, profile};
use serde::Serialize;

mod mpix_sim {
    pub(crate) mod allocator;
}

#[global_allocator]
static ALLOCATOR: mpix_sim::allocator::Metered = mpix_sim::allocator::Metered;

/// The engine in virtual time. Results are JSON, one object per line, times in microseconds.
#[derive(Parser)]
struct Arguments {
    /// The simulated machine.
    #[arg(long, global = true, default_value = "qdr-2014", value_parser = machine)]
    profile: Machine,
    /// Each rank has a second core that makes progress while the first computes.
    #[arg(long, global = true)]
    progress_thread: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The patterns of section VIII.A, figures 2 to 11.
    Pattern {
        /// Only those whose name contains this.
        #[arg(default_value = "")]
        name: String,
    },
    /// LU decomposition, figure 13.
    Lu {
        /// Numbers of ranks.
        #[arg(long, value_delimiter = ',', default_value = "64,128")]
        ranks: Vec<u32>,
        /// Rows and columns.
        #[arg(long, value_delimiter = ',', default_value = "1024")]
        size: Vec<u64>,
        /// Rows that a window holds.
        #[arg(long, default_value_t = 8)]
        depth: u64,
        /// Broadcast the next row before the others are updated.
        #[arg(long)]
        ahead: bool,
        /// Which series.
        #[arg(long, value_delimiter = ',', default_value = "blocking,nonblocking")]
        series: Vec<String>,
    },
    /// Massive unstructured transactions, figure 12.
    Transactions {
        /// Numbers of ranks.
        #[arg(long, value_delimiter = ',', default_value = "64,128")]
        ranks: Vec<u32>,
        /// Transactions of each rank.
        #[arg(long, default_value_t = 200)]
        count: u64,
        /// Accounts in each window.
        #[arg(long, default_value_t = 1000)]
        accounts: u64,
        /// Epochs that may be pending; 0: no bound.
        #[arg(long, default_value_t = 64)]
        window: u64,
        /// Of the random choices.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Which series.
        #[arg(long, value_delimiter = ',', default_value = "blocking,nonblocking,reorder")]
        series: Vec<String>,
    },
}

fn machine(name: &str) -> Result<Machine, String> {
    profile(name).ok_or_else(|| {
        let names: Vec<_> = PROFILES.iter().map(|machine| machine.name).collect();
        format!("there is {}", names.join(", "))
    })
}

fn print(value: &impl Serialize) -> Result<(), String> {
    let line = serde_json::to_string(value).map_err(|error| error.to_string())?;
    writeln!(std::io::stdout(), "{line}").map_err(|error| error.to_string())
}

#[derive(Serialize)]
struct PatternLine<'a> {
    profile: &'a str,
    progress_thread: bool,
    #[serde(flatten)]
    measure: &'a patterns::Measure,
    difference: Option<f64>,
}

/// What a run of an application prints.
#[derive(Serialize)]
struct ApplicationLine<'a> {
    application: &'a str,
    profile: &'a str,
    progress_thread: bool,
    series: &'a str,
    ranks: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    depth: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ahead: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    window: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    per_second: Option<f64>,
    #[serde(flatten)]
    outcome: Outcome,
    wall_seconds: f64,
    events_per_second: f64,
}

impl Default for ApplicationLine<'_> {
    fn default() -> Self {
        ApplicationLine {
            application: "",
            profile: "",
            progress_thread: false,
            series: "",
            ranks: 0,
            size: None,
            depth: None,
            ahead: None,
            count: None,
            window: None,
            seed: None,
            per_second: None,
            outcome: Outcome::default(),
            wall_seconds: 0.0,
            events_per_second: 0.0,
        }
    }
}

/// Runs and says how long that took.
#[allow(clippy::disallowed_methods, reason = "how fast the simulator is, not what it does")]
fn timed(run: impl FnOnce() -> Result<Outcome, String>) -> Result<(Outcome, f64), String> {
    let began = std::time::Instant::now();
    let outcome = run()?;
    Ok((outcome, began.elapsed().as_secs_f64()))
}

fn series_of(name: &str) -> Result<(Series, bool), String> {
    match name {
        "blocking" => Ok((Series::Blocking, false)),
        "nonblocking" => Ok((Series::Nonblocking, false)),
        "reorder" => Ok((Series::Nonblocking, true)),
        _ => Err(format!("there is no series {name}: blocking, nonblocking, reorder")),
    }
}

fn run(arguments: &Arguments) -> Result<(), String> {
    let (machine, progress_thread) = (&arguments.profile, arguments.progress_thread);
    match &arguments.command {
        Command::Pattern { name } => {
            let measures = patterns::measure(machine, progress_thread, name).map_err(|stuck| stuck.to_string())?;
            for measure in &measures {
                let difference = measure.difference();
                print(&PatternLine { profile: machine.name, progress_thread, measure, difference })?;
            }
            Ok(())
        }
        Command::Lu { ranks, size, depth, ahead, series } => {
            for (&size, &ranks) in size.iter().flat_map(|size| ranks.iter().map(move |ranks| (size, ranks))) {
                for name in series {
                    let (calls, _) = series_of(name)?;
                    let ring = (size, *depth, *ahead);
                    let (outcome, wall_seconds) = timed(|| applications::lu(machine, progress_thread, ranks, ring, calls))?;
                    print(&ApplicationLine {
                        application: "lu",
                        profile: machine.name,
                        progress_thread,
                        series: name,
                        ranks,
                        size: Some(size),
                        depth: Some(*depth),
                        ahead: Some(*ahead),
                        events_per_second: outcome.events as f64 / wall_seconds,
                        outcome,
                        wall_seconds,
                        ..Default::default()
                    })?;
                }
            }
            Ok(())
        }
        Command::Transactions { ranks, count, accounts, window, seed, series } => {
            for (&ranks, name) in ranks.iter().flat_map(|ranks| series.iter().map(move |name| (ranks, name))) {
                let (calls, reorder) = series_of(name)?;
                let work = (*count, *accounts, *seed, *window);
                let (outcome, wall_seconds) =
                    timed(|| applications::transactions(machine, progress_thread, ranks, work, calls, reorder))?;
                print(&ApplicationLine {
                    application: "transactions",
                    profile: machine.name,
                    progress_thread,
                    series: name,
                    ranks,
                    count: Some(*count),
                    window: Some(*window),
                    seed: Some(*seed),
                    per_second: Some(f64::from(ranks) * *count as f64 / outcome.seconds),
                    events_per_second: outcome.events as f64 / wall_seconds,
                    outcome,
                    wall_seconds,
                    ..Default::default()
                })?;
            }
            Ok(())
        }
    }
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "mpix-sim: {error}");
            ExitCode::FAILURE
        }
    }
}
