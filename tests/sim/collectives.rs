//! Collectives over nodes: small ones against closed forms, the model's choices against the other
//! algorithms, and lower bounds. Each run checks its contents.

use mpix_rma::collective::nodes::Allreduce;
use mpix_rma::sim::collectives::{Collective, Outcome, Work};
use mpix_rma::sim::profile;

fn work(collective: Collective, node_aware: bool, ranks: u32, per_node: u32) -> Work {
    let mut machine = profile("ndr-2024").unwrap();
    machine.network.ranks_per_node = per_node;
    Work {
        machine,
        collective,
        node_aware,
        algorithm: None,
        radix: None,
        ranks,
        block_ns: 2.0,
        skew_us: 0.0,
        seed: 1,
    }
}

fn run(work: &Work) -> Outcome {
    work.run().unwrap_or_else(|problem| panic!("{work:?}: {problem}"))
}

fn assert_near(found_us: f64, expected_ns: f64, of: &str) {
    let expected = expected_ns / 1000.0;
    assert!((found_us / expected - 1.0).abs() < 0.02, "{of}: {found_us} us instead of {expected}");
}

const BYTES: [u32; 3] = [8, 4096, 1 << 20];

fn every_collective() -> impl Iterator<Item = Collective> {
    let reductions = BYTES.map(|bytes| Collective::Allreduce { bytes });
    let exchanges = [
        Collective::Alltoallv { bytes: 64, partners: 20 },
        Collective::Alltoallv { bytes: 4096, partners: 1000 },
        Collective::Halo { cells: 4 },
        Collective::Barrier,
    ];
    reductions.into_iter().chain(exchanges)
}

/// Parameters of `ndr-2024` in nanoseconds.
const CALL: f64 = 40.0;
const POST: f64 = 80.0;
const LATENCY: f64 = 700.0;
const NOTIFY: f64 = 50.0;
const BYTE: f64 = 0.021;
const FLAG: f64 = 20.0;
const LOCAL_LATENCY: f64 = 80.0;
const COPY: f64 = 20.0;
const COPY_BYTE: f64 = 0.08;

/// Two processes on two nodes: each publishes, puts, waits, and folds two operands.
#[test]
fn an_allreduce_of_two_nodes_takes_its_steps() {
    for bytes in [8_u32, 1024] {
        let collective = Collective::Allreduce { bytes };
        let algorithm = Some(Allreduce::Gather { radix: 2 });
        let found = run(&Work { algorithm, ..work(collective, true, 2, 1) });
        let copy = COPY + f64::from(bytes) * COPY_BYTE;
        let wire = LATENCY + f64::from(bytes) * BYTE + NOTIFY;
        let expected = CALL + copy + POST + wire + FLAG + 2.0 * copy;
        assert_near(found.time_us, expected, &format!("{bytes} bytes"));
        assert_eq!(found.messages, 2);
    }
}

/// One node: all processes publish at once, the first one folds, and all take its result.
#[test]
fn an_allreduce_within_a_node_takes_its_steps() {
    let collective = Collective::Allreduce { bytes: 8 };
    let algorithm = Some(Allreduce::Gather { radix: 2 });
    let found = run(&Work { algorithm, ..work(collective, true, 4, 4) });
    let (copy, seen) = (COPY + 8.0 * COPY_BYTE, LOCAL_LATENCY + FLAG);
    // The four raise one counter, a gap apart.
    let published = copy + FLAG + 3.0 * COPY + seen;
    let folded = 2.0 * copy + 2.0 * 8.0 * COPY_BYTE + 2.0 * 2.0;
    let expected = CALL + published + folded + FLAG + seen + copy;
    assert_near(found.time_us, expected, "four processes");
    assert_eq!(found.messages, 0);
}

/// A barrier of single processes: a notification and its wait in each round.
#[test]
fn a_barrier_takes_its_rounds() {
    for (ranks, rounds) in [(2, 1.0), (8, 3.0), (13, 4.0)] {
        let found = run(&Work { radix: Some(2), ..work(Collective::Barrier, true, ranks, 1) });
        let round = POST + LATENCY + 8.0 * BYTE + NOTIFY + FLAG;
        let expected = CALL + FLAG + LOCAL_LATENCY + FLAG + rounds * round;
        // Between rounds a process handles the acknowledgement of its last put, 50 ns.
        let most = expected + rounds * 50.0;
        assert!(
            (0.98 * expected..1.02 * most).contains(&(found.time_us * 1000.0)),
            "{ranks} ranks: {} us instead of {expected} to {most} ns",
            found.time_us
        );
    }
}

/// A large allreduce on one node is bound by the memory bus: it reads each contribution once, and
/// writes each result once.
#[test]
fn a_large_allreduce_within_a_node_takes_its_copies() {
    let collective = Collective::Allreduce { bytes: 1 << 20 };
    let algorithm = Some(Allreduce::Direct);
    let found = run(&Work { algorithm, ..work(collective, true, 48, 48) });
    // 47 reductions, the copy of the node's sum to the result, and 48 copies of that.
    let expected = (47.0 + 1.0 + 48.0) * f64::from(1 << 20) * 0.005;
    assert!(
        (expected..1.1 * expected).contains(&(found.time_us * 1000.0)),
        "{} us instead of {expected} ns",
        found.time_us
    );
}

/// Nothing is faster than its lower bound, with or without nodes.
#[test]
fn no_collective_beats_its_bound() {
    for collective in every_collective() {
        for (ranks, per_node) in [(1, 1), (7, 1), (48, 48), (64, 48), (100, 12), (96, 16)] {
            for node_aware in [true, false] {
                let found = run(&work(collective, node_aware, ranks, per_node));
                assert!(
                    found.time_us >= found.bound_us,
                    "{collective:?}, {ranks} ranks, nodes: {node_aware}: {found:?}"
                );
            }
        }
    }
}

/// A node puts to another one once, or twice where segments are reduced and gathered.
#[test]
fn a_schedule_that_knows_the_nodes_sends_a_message_per_pair() {
    let (ranks, nodes) = (100, 9_u64);
    let pairs = nodes * (nodes - 1);
    let aware = |collective| work(collective, true, ranks, 12);
    let dense = Collective::Alltoallv { bytes: 64, partners: 1000 };
    assert_eq!(run(&aware(dense)).messages, pairs);
    let direct = Some(Allreduce::Direct);
    let reduce = Work { algorithm: direct, ..aware(Collective::Allreduce { bytes: 1 << 20 }) };
    assert_eq!(run(&reduce).messages, 2 * pairs);
    assert!(run(&aware(Collective::Halo { cells: 4 })).messages <= pairs);
    let flat = run(&work(dense, false, ranks, 12));
    assert!(flat.messages > 100 * pairs, "{flat:?}");
}

/// The algorithm that the model chooses is nearly the fastest one.
#[test]
fn the_model_chooses_well() {
    for bytes in [8, 256, 4096, 65_536, 1 << 20] {
        for (ranks, per_node) in [(64, 48), (96, 16), (240, 12), (60, 1)] {
            let of = |algorithm| {
                let collective = Collective::Allreduce { bytes };
                run(&Work { algorithm, ..work(collective, true, ranks, per_node) })
            };
            let chosen = of(None);
            let mut others: Vec<Allreduce> =
                vec![Allreduce::Doubling, Allreduce::Halving, Allreduce::Direct];
            if bytes <= 4096 {
                others.extend([2, 3, 4, 8, 64].map(|radix| Allreduce::Gather { radix }));
            }
            let best = others
                .into_iter()
                .map(|other| of(Some(other)))
                .min_by(|a, b| a.time_us.total_cmp(&b.time_us))
                .unwrap();
            assert!(
                chosen.time_us <= 1.3 * best.time_us,
                "{bytes} bytes, {ranks} ranks: chose {chosen:?}, best {best:?}"
            );
        }
    }
}

#[test]
fn equal_seeds_give_equal_runs() {
    for collective in every_collective() {
        let run = |seed| {
            let outcome = run(&Work { seed, skew_us: 5.0, ..work(collective, true, 40, 16) });
            (outcome.time_us.to_bits(), outcome.trace)
        };
        assert_eq!(run(1), run(1), "{collective:?}");
        assert_ne!(run(1), run(2), "{collective:?}");
    }
}

#[test]
fn invalid_parameters_are_rejected() {
    let problem = |collective| work(collective, true, 4, 2).run().unwrap_err();
    assert_eq!(
        problem(Collective::Alltoallv { bytes: 6, partners: 1 }),
        "6 bytes are not a positive multiple of 4"
    );
    assert_eq!(
        problem(Collective::Allreduce { bytes: 100_001 }),
        "100001 bytes are not a multiple of 7"
    );
    assert_eq!(problem(Collective::Halo { cells: 0 }), "cells must be positive");
    let none = work(Collective::Barrier, true, 0, 2).run().unwrap_err();
    assert_eq!(none, "ranks must be positive");
}
