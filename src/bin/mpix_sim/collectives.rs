//! The subcommand that runs collectives over many nodes.

use clap::Args;
use mpix_rma::collective::nodes::Allreduce;
use mpix_rma::sim::Machine;
use mpix_rma::sim::collectives::{Collective, Outcome, Work};
use serde::Serialize;

use crate::{cpu_seconds, print};

/// Parameters of the command.
#[derive(Args)]
pub(crate) struct Options {
    /// Collectives to run: barrier, allreduce, alltoallv, halo.
    #[arg(long, value_delimiter = ',', default_value = "barrier,allreduce,alltoallv,halo")]
    collectives: Vec<String>,
    /// Numbers of ranks.
    #[arg(long, value_delimiter = ',', default_value = "64")]
    ranks: Vec<u32>,
    /// Bytes of an allreduce, and mean bytes of a block of an alltoallv (default: by collective).
    #[arg(long, value_delimiter = ',')]
    bytes: Vec<u32>,
    /// Mean number of blocks that a process sends in an alltoallv.
    #[arg(long, default_value_t = 256)]
    partners: u32,
    /// Cells of a process in each dimension of a halo exchange.
    #[arg(long, value_delimiter = ',', default_value = "8,32")]
    cells: Vec<u32>,
    /// Schedules to run: node, flat.
    #[arg(long, value_delimiter = ',', default_value = "node,flat")]
    schedules: Vec<String>,
    /// Algorithm of an allreduce: gather, doubling, halving, direct (default: the model's choice).
    #[arg(long, value_parser = algorithm)]
    algorithm: Option<Allreduce>,
    /// Radix of a gather or a barrier (default: the model's choice).
    #[arg(long)]
    radix: Option<u32>,
    /// CPU time of each block of a copy beyond the first one, in ns.
    #[arg(long, default_value_t = 2.0)]
    block_ns: f64,
    /// Each process enters at a random time up to this one, in microseconds.
    #[arg(long, default_value_t = 0.0)]
    skew_us: f64,
    /// Seed of these times, and of the blocks of an alltoallv.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn algorithm(name: &str) -> Result<Allreduce, String> {
    match name {
        "gather" => Ok(Allreduce::Gather { radix: 2 }),
        "doubling" => Ok(Allreduce::Doubling),
        "halving" => Ok(Allreduce::Halving),
        "direct" => Ok(Allreduce::Direct),
        _ => Err("unknown; available: gather, doubling, halving, direct".into()),
    }
}

/// The runs of a collective by its name.
fn collectives(name: &str, options: &Options) -> Result<Vec<Collective>, String> {
    let partners = options.partners;
    let sizes = |default: [u32; 2]| match options.bytes.is_empty() {
        true => default.to_vec(),
        false => options.bytes.clone(),
    };
    Ok(match name {
        "barrier" => vec![Collective::Barrier],
        "allreduce" => {
            sizes([8, 1 << 20]).into_iter().map(|bytes| Collective::Allreduce { bytes }).collect()
        }
        "alltoallv" => sizes([64, 1024])
            .into_iter()
            .map(|bytes| Collective::Alltoallv { bytes, partners })
            .collect(),
        "halo" => options.cells.iter().map(|&cells| Collective::Halo { cells }).collect(),
        _ => {
            return Err(format!(
                "unknown collective {name}; available: barrier, allreduce, \
                                 alltoallv, halo"
            ));
        }
    })
}

#[derive(Serialize)]
struct Line<'a> {
    application: &'a str,
    profile: &'a str,
    set: &'a [String],
    collective: &'a str,
    schedule: &'a str,
    ranks: u32,
    /// Of an allreduce, or of a block.
    bytes: Option<u32>,
    partners: Option<u32>,
    cells: Option<u32>,
    forced: Option<String>,
    block_ns: f64,
    skew_us: f64,
    seed: u64,
    #[serde(flatten)]
    outcome: Outcome,
    cpu_seconds: f64,
    events_per_second: f64,
}

/// Runs each collective in each size on each number of ranks, and prints the results.
pub(crate) fn run(options: &Options, machine: &Machine, set: &[String]) -> Result<(), String> {
    let &Options { radix, block_ns, skew_us, seed, .. } = options;
    let algorithm = match (options.algorithm, radix) {
        (Some(Allreduce::Gather { .. }), Some(radix)) => Some(Allreduce::Gather { radix }),
        (other, _) => other,
    };
    let forced = match (algorithm, radix) {
        (None, None) => None,
        (some, radix) => Some(format!("{some:?} {radix:?}")),
    };
    for name in &options.collectives {
        for collective in collectives(name, options)? {
            for &ranks in &options.ranks {
                for schedule in &options.schedules {
                    let node_aware = match schedule.as_str() {
                        "node" => true,
                        "flat" => false,
                        _ => return Err(format!("unknown schedule {schedule}: node or flat")),
                    };
                    let work = Work {
                        machine: *machine,
                        collective,
                        node_aware,
                        algorithm,
                        radix,
                        ranks,
                        block_ns,
                        skew_us,
                        seed,
                    };
                    let began = cpu_seconds();
                    let outcome = work.run()?;
                    let cpu_seconds = cpu_seconds() - began;
                    let (bytes, partners, cells) = match collective {
                        Collective::Barrier => (None, None, None),
                        Collective::Allreduce { bytes } => (Some(bytes), None, None),
                        Collective::Alltoallv { bytes, partners } => {
                            (Some(bytes), Some(partners), None)
                        }
                        Collective::Halo { cells } => (None, None, Some(cells)),
                    };
                    print(&Line {
                        application: "collectives",
                        profile: machine.name,
                        set,
                        collective: collective.name(),
                        schedule,
                        ranks,
                        bytes,
                        partners,
                        cells,
                        forced: forced.clone(),
                        block_ns,
                        skew_us,
                        seed,
                        events_per_second: outcome.events as f64 / cpu_seconds,
                        outcome,
                        cpu_seconds,
                    })?;
                }
            }
        }
    }
    Ok(())
}
