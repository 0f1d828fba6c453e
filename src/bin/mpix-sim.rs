//! The simulator's command line: the paper's figures and cost curves, one JSON object per line.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use mpix_rma::sim::applications::{self, Outcome, Transactions};
use mpix_rma::sim::{Machine, PROFILES, Series, curves, patterns, profile};
use serde::Serialize;

mod mpix_sim {
    pub(crate) mod allocator;
    pub(crate) mod bsp; // only: bsp
    pub(crate) mod collectives; // only: collectives
    pub(crate) mod tasks; // only: tasks
}

#[global_allocator]
static ALLOCATOR: mpix_sim::allocator::Metered = mpix_sim::allocator::Metered;

/// The engine in virtual time. Results are JSON, one object per line, times in microseconds.
#[derive(Parser)]
struct Arguments {
    /// The simulated machine.
    #[arg(long, global = true, default_value = "qdr-2014", value_parser = machine)]
    profile: Machine,
    /// Give each rank a second core, which makes progress while the first computes.
    #[arg(long, global = true)]
    progress_thread: bool,
    /// Machine parameters that override the profile, NAME=VALUE, in ns, bytes or ps per byte.
    #[arg(long, global = true, value_delimiter = ',')]
    set: Vec<String>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The patterns of section VIII.A, figures 2 to 11.
    Pattern {
        /// Only patterns whose name contains this.
        #[arg(default_value = "")]
        name: String,
    },
    /// LU decomposition, figure 13.
    Lu {
        /// Numbers of ranks.
        #[arg(long, value_delimiter = ',', default_value = "64,128")]
        ranks: Vec<u32>,
        /// Rows and columns of the matrix.
        #[arg(long, value_delimiter = ',', default_value = "1024")]
        size: Vec<u64>,
        /// Rows of the ring buffer.
        #[arg(long, default_value_t = 8)]
        depth: u64,
        /// Broadcast the next row before updating the others.
        #[arg(long)]
        ahead: bool,
        /// Series to run.
        #[arg(long, value_delimiter = ',', default_value = "blocking,nonblocking")]
        series: Vec<String>,
    },
    /// Prints the parameters of the machine, by their names in `--set`.
    Profile,
    /// Cost of an epoch (CPU time, memory) as closed epochs pile up behind a late target.
    Pending {
        /// Numbers of epochs.
        #[arg(long, value_delimiter = ',', default_value = "1,10,100,1000,10000,100000")]
        epochs: Vec<u64>,
    },
    /// Massive unstructured transactions, figure 12.
    Transactions {
        /// Numbers of ranks.
        #[arg(long, value_delimiter = ',', default_value = "64,128")]
        ranks: Vec<u32>,
        /// Transactions of each rank.
        #[arg(long, default_value_t = 200)]
        count: u64,
        /// Transactions of each rank before the measurement.
        #[arg(long, default_value_t = 20)]
        warm_up: u64,
        /// Accounts in each window.
        #[arg(long, default_value_t = 1000)]
        accounts: u64,
        /// Maximum number of pending epochs; 0: unbounded.
        #[arg(long, default_value_t = 64)]
        window: u64,
        /// Number of hot targets, to which half of all transactions go; 0: none.
        #[arg(long, default_value_t = 0)]
        hot: u32,
        /// Seed of the random choices.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Series to run.
        #[arg(long, value_delimiter = ',', default_value = "blocking,nonblocking,reorder")]
        series: Vec<String>,
    },
    /// Bulk-synchronous programs, synchronized in several ways.
    Bsp(mpix_sim::bsp::Options), // only: bsp
    /// Collectives over many nodes, with and without schedules that know the nodes.
    Collectives(mpix_sim::collectives::Options), // only: collectives
    /// The Gauss-Seidel method by tasks, in several versions.
    Tasks(mpix_sim::tasks::Options), // only: tasks
}

fn machine(name: &str) -> Result<Machine, String> {
    profile(name).ok_or_else(|| {
        let names: Vec<_> = PROFILES.iter().map(|machine| machine.name).collect();
        format!("unknown profile; available: {}", names.join(", "))
    })
}

fn print(value: &impl Serialize) -> Result<(), String> {
    let line = serde_json::to_string(value).map_err(|error| error.to_string())?;
    writeln!(std::io::stdout(), "{line}").map_err(|error| error.to_string())
}

#[derive(Serialize)]
struct PatternLine<'a> {
    profile: &'a str,
    set: &'a [String],
    progress_thread: bool,
    #[serde(flatten)]
    measure: &'a patterns::Measure,
    difference: Option<f64>,
}

#[derive(Serialize)]
struct PendingLine<'a> {
    profile: &'a str,
    set: &'a [String],
    epochs: u64,
    ns_per_epoch: f64,
    engine_bytes_per_epoch: f64,
}

/// The result of a run of an application, with its parameters `P`.
#[derive(Serialize)]
struct ApplicationLine<'a, P> {
    application: &'a str,
    profile: &'a str,
    set: &'a [String],
    progress_thread: bool,
    series: &'a str,
    ranks: u32,
    #[serde(flatten)]
    parameters: P,
    #[serde(flatten)]
    outcome: Outcome,
    cpu_seconds: f64,
    events_per_second: f64,
}

#[derive(Serialize)]
struct LuParameters {
    size: u64,
    depth: u64,
    ahead: bool,
}

#[derive(Serialize)]
struct TransactionsParameters {
    count: u64,
    window: u64,
    seed: u64,
    #[serde(skip_serializing_if = "is_zero")]
    hot: u32,
    per_second: f64,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// CPU time of this process, which does not depend on other load on the machine.
fn cpu_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `CLOCK_PROCESS_CPUTIME_ID` exists on Linux, and `time` is a valid place for the
    // result.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// The calls of a series, and whether it sets the reorder flag.
fn series_of(name: &str) -> Result<(Series, bool), String> {
    match name {
        "blocking" => Ok((Series::Blocking, false)),
        "nonblocking" => Ok((Series::Nonblocking, false)),
        "reorder" => Ok((Series::Nonblocking, true)),
        _ => Err(format!("unknown series {name}; available: blocking, nonblocking, reorder")),
    }
}

fn run(arguments: &Arguments) -> Result<(), String> {
    let (mut machine, progress_thread) = (arguments.profile, arguments.progress_thread);
    for change in &arguments.set {
        let (name, value) =
            change.split_once('=').ok_or_else(|| format!("--set {change}: not NAME=VALUE"))?;
        let value = value.parse().map_err(|_| format!("--set {change}: not a number"))?;
        machine.set(name, value)?;
    }
    let (machine, set) = (&machine, arguments.set.as_slice());
    match &arguments.command {
        Command::Pattern { name } => {
            let measures = patterns::measure(machine, progress_thread, name)
                .map_err(|stuck| stuck.to_string())?;
            for measure in &measures {
                let difference = measure.difference();
                print(&PatternLine {
                    profile: machine.name,
                    set,
                    progress_thread,
                    measure,
                    difference,
                })?;
            }
            Ok(())
        }
        Command::Bsp(options) => mpix_sim::bsp::run(options, machine, set), // only: bsp
        Command::Collectives(o) => mpix_sim::collectives::run(o, machine, set), // only: collectives
        Command::Tasks(options) => mpix_sim::tasks::run(options, machine, set), // only: tasks
        Command::Profile => print(&BTreeMap::from_iter(machine.parameters())),
        Command::Pending { epochs } => {
            for &epochs in epochs {
                // Repeat runs with few epochs to get a measurable time.
                let rounds = (100_000 / epochs).clamp(1, 1000);
                let began = cpu_seconds();
                let mut bytes = 0.0;
                for _ in 0..rounds {
                    let (_, memory) = curves::pending_epochs(machine, epochs)?;
                    bytes = memory.peak as f64 / epochs as f64;
                }
                let ns_per_epoch = (cpu_seconds() - began) * 1e9 / (rounds * epochs) as f64;
                print(&PendingLine {
                    profile: machine.name,
                    set,
                    epochs,
                    ns_per_epoch,
                    engine_bytes_per_epoch: bytes,
                })?;
            }
            Ok(())
        }
        Command::Lu { ranks, size, depth, ahead, series } => {
            for (&size, &ranks) in
                size.iter().flat_map(|size| ranks.iter().map(move |ranks| (size, ranks)))
            {
                let parameters = LuParameters { size, depth: *depth, ahead: *ahead };
                let ring = (size, *depth, *ahead);
                run_series(arguments, machine, "lu", ranks, series, |calls, reorder| {
                    if reorder {
                        return Err("lu has no series reorder".into());
                    }
                    let outcome = applications::lu(machine, progress_thread, ranks, ring, calls)?;
                    Ok((&parameters, outcome))
                })?;
            }
            Ok(())
        }
        &Command::Transactions {
            ref ranks,
            count,
            warm_up,
            accounts,
            window,
            hot,
            seed,
            ref series,
        } => {
            let work = Transactions { warm_up, count, accounts, seed, window, hot };
            for &ranks in ranks {
                run_series(arguments, machine, "transactions", ranks, series, |calls, reorder| {
                    let outcome = applications::transactions(
                        machine,
                        progress_thread,
                        ranks,
                        work,
                        calls,
                        reorder,
                    )?;
                    let per_second = f64::from(ranks) * count as f64 / outcome.seconds;
                    let parameters =
                        TransactionsParameters { count, window, seed, hot, per_second };
                    Ok((parameters, outcome))
                })?;
            }
            Ok(())
        }
    }
}

/// Runs an application in each series, and prints the results.
fn run_series<P: Serialize>(
    arguments: &Arguments,
    machine: &Machine,
    application: &str,
    ranks: u32,
    series: &[String],
    run: impl Fn(Series, bool) -> Result<(P, Outcome), String>,
) -> Result<(), String> {
    for name in series {
        let (calls, reorder) = series_of(name)?;
        let began = cpu_seconds();
        let (parameters, outcome) = run(calls, reorder)?;
        let cpu_seconds = cpu_seconds() - began;
        print(&ApplicationLine {
            application,
            profile: machine.name,
            set: &arguments.set,
            progress_thread: arguments.progress_thread,
            series: name,
            ranks,
            parameters,
            events_per_second: outcome.events as f64 / cpu_seconds,
            outcome,
            cpu_seconds,
        })?;
    }
    Ok(())
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
