//! Worlds in virtual time, from the command line: figures of the paper, and curves of our own. One JSON object per line.

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use mpix_rma::sim::{Machine, PROFILES, patterns, profile};
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
