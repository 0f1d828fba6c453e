//! The subcommand that runs the Gauss-Seidel method in several versions.

use clap::Args;
use mpix_rma::sim::Machine;
use mpix_rma::sim::tasks::{Outcome, Version, Work};
use serde::Serialize;

use crate::{cpu_seconds, print};

/// Parameters of the command.
#[derive(Args)]
pub(crate) struct Options {
    /// Numbers of nodes. A node has as many cores as the profile has ranks per node.
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    nodes: Vec<u32>,
    /// Rows of the matrix.
    #[arg(long, default_value_t = 65536)]
    rows: u64,
    /// Rows of the matrix for each node, instead of `--rows`.
    #[arg(long, conflicts_with = "rows")]
    rows_per_node: Option<u64>,
    /// Columns of the matrix.
    #[arg(long, default_value_t = 65536)]
    columns: u64,
    /// Columns of a block; in hybrid versions its rows too.
    #[arg(long, default_value_t = 1024)]
    block: u64,
    /// Number of iterations.
    #[arg(long, default_value_t = 1000)]
    iterations: u32,
    /// Time to update an element, in nanoseconds.
    #[arg(long, default_value_t = 4.0)]
    element_ns: f64,
    /// Time to begin a task, in nanoseconds.
    #[arg(long, default_value_t = 1000.0)]
    task_ns: f64,
    /// A block takes its time times a random factor between 1 - JITTER and 1 + JITTER.
    #[arg(long, default_value_t = 0.0)]
    jitter: f64,
    /// Seed of the random factors.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Versions to run: pure, nbuffer, forkjoin, sentinel, interop, notified.
    #[arg(long, value_delimiter = ',', value_parser = version,
          default_value = "pure,nbuffer,forkjoin,sentinel,interop,notified")]
    versions: Vec<Version>,
}

fn version(name: &str) -> Result<Version, String> {
    let names = Version::ALL.map(Version::name).join(", ");
    let mut all = Version::ALL.into_iter();
    all.find(|version| version.name() == name).ok_or(format!("unknown; available: {names}"))
}

#[derive(Serialize)]
struct Line<'a> {
    application: &'a str,
    profile: &'a str,
    set: &'a [String],
    version: &'a str,
    nodes: u32,
    cores: u32,
    ranks: u32,
    rows: u64,
    columns: u64,
    block: u64,
    iterations: u32,
    element_ns: f64,
    task_ns: f64,
    jitter: f64,
    seed: u64,
    #[serde(flatten)]
    outcome: Outcome,
    cpu_seconds: f64,
    events_per_second: f64,
}

/// Runs each version on each number of nodes, and prints the results.
pub(crate) fn run(options: &Options, machine: &Machine, set: &[String]) -> Result<(), String> {
    for &nodes in &options.nodes {
        for &version in &options.versions {
            let rows = options.rows_per_node.map_or(options.rows, |rows| rows * u64::from(nodes));
            let &Options { columns, block, iterations, element_ns, task_ns, jitter, seed, .. } =
                options;
            let work = Work {
                machine: *machine,
                version,
                nodes,
                rows,
                columns,
                block,
                iterations,
                element_ns,
                task_ns,
                jitter,
                seed,
            };
            let began = cpu_seconds();
            let outcome = work.run()?;
            let cpu_seconds = cpu_seconds() - began;
            print(&Line {
                application: "gauss-seidel",
                profile: machine.name,
                set,
                version: version.name(),
                nodes,
                cores: nodes * work.cores(),
                ranks: work.ranks(),
                rows,
                columns,
                block,
                iterations,
                element_ns,
                task_ns,
                jitter,
                seed,
                events_per_second: outcome.events as f64 / cpu_seconds,
                outcome,
                cpu_seconds,
            })?;
        }
    }
    Ok(())
}
