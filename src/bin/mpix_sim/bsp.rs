//! The subcommand that runs bulk-synchronous programs.

use clap::Args;
use mpix_rma::sim::Machine;
use mpix_rma::sim::bsp::{Outcome, Program, Series, Work};
use serde::Serialize;

use crate::{cpu_seconds, print};

/// Parameters of the command.
#[derive(Args)]
pub(crate) struct Options {
    /// Programs to run: jacobi, gauss-seidel, n-body, matmul.
    #[arg(long, value_delimiter = ',', value_parser = program,
          default_value = "jacobi,gauss-seidel,n-body,matmul")]
    programs: Vec<Program>,
    /// Numbers of ranks; for jacobi they are squares.
    #[arg(long, value_delimiter = ',', default_value = "64")]
    ranks: Vec<u32>,
    /// Time that a rank computes in a superstep, in microseconds (default: by program).
    #[arg(long)]
    compute_us: Option<f64>,
    /// Bytes of each put (default: by program).
    #[arg(long)]
    bytes: Option<u64>,
    /// The computation takes its time times a random factor between 1 - JITTER and 1 + JITTER.
    #[arg(long, default_value_t = 0.1)]
    jitter: f64,
    /// Seed of the random factors.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Iterations before the measurement; fences learn in the first one.
    #[arg(long, default_value_t = 20)]
    warm_up: u32,
    /// Iterations of the measurement.
    #[arg(long, default_value_t = 50)]
    iterations: u32,
    /// Series to run: barrier, pattern, pscw, notified, two-sided.
    #[arg(long, value_delimiter = ',', value_parser = series,
          default_value = "barrier,pattern,pscw,notified,two-sided")]
    series: Vec<Series>,
}

fn program(name: &str) -> Result<Program, String> {
    let names = Program::ALL.map(Program::name).join(", ");
    let mut all = Program::ALL.into_iter();
    all.find(|program| program.name() == name).ok_or(format!("unknown; available: {names}"))
}

fn series(name: &str) -> Result<Series, String> {
    let names = Series::ALL.map(Series::name).join(", ");
    let mut all = Series::ALL.into_iter();
    all.find(|series| series.name() == name).ok_or(format!("unknown; available: {names}"))
}

/// Microseconds of a superstep, and bytes of a put; docs/results/PROTOCOL.md derives them.
fn sizes(program: Program) -> (f64, u64) {
    match program {
        Program::Jacobi => (16.4, 1024),
        Program::GaussSeidel => (65.5, 1024),
        Program::NBody => (20.5, 2048),
        Program::MatMul => (32.8, 8192),
    }
}

#[derive(Serialize)]
struct Line<'a> {
    application: &'a str,
    profile: &'a str,
    set: &'a [String],
    program: &'a str,
    series: &'a str,
    ranks: u32,
    compute_us: f64,
    bytes: u64,
    jitter: f64,
    seed: u64,
    warm_up: u32,
    iterations: u32,
    #[serde(flatten)]
    outcome: Outcome,
    cpu_seconds: f64,
    events_per_second: f64,
}

/// Runs each program in each series on each number of ranks, and prints the results.
pub(crate) fn run(options: &Options, machine: &Machine, set: &[String]) -> Result<(), String> {
    let &Options { jitter, seed, warm_up, iterations, .. } = options;
    for &program in &options.programs {
        let (compute_us, bytes) = sizes(program);
        let compute_us = options.compute_us.unwrap_or(compute_us);
        let bytes = options.bytes.unwrap_or(bytes);
        for &ranks in &options.ranks {
            for &series in &options.series {
                let machine = *machine;
                let work = Work {
                    machine,
                    program,
                    series,
                    ranks,
                    compute_us,
                    jitter,
                    seed,
                    bytes,
                    warm_up,
                    iterations,
                };
                let began = cpu_seconds();
                let outcome = work.run()?;
                let cpu_seconds = cpu_seconds() - began;
                print(&Line {
                    application: "bsp",
                    profile: machine.name,
                    set,
                    program: program.name(),
                    series: series.name(),
                    ranks,
                    compute_us,
                    bytes,
                    jitter,
                    seed,
                    warm_up,
                    iterations,
                    events_per_second: outcome.events as f64 / cpu_seconds,
                    outcome,
                    cpu_seconds,
                })?;
            }
        }
    }
    Ok(())
}
