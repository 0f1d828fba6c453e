//! Bulk-synchronous programs against the times that their dependencies allow, and against one
//! another.

use mpix_rma::sim::bsp::{Program, Series, Work};
use mpix_rma::sim::profile;
use mpix_rma::transport::sim::US;

/// Computations of about 1 ms, beside which communication takes little.
fn work(program: Program, series: Series, ranks: u32) -> Work {
    Work {
        machine: profile("ndr-2024").unwrap(),
        program,
        series,
        ranks,
        compute_us: 1000.0,
        jitter: 0.5,
        seed: 3,
        bytes: 1024,
        warm_up: 2,
        iterations: 10,
    }
}

fn iteration_us(work: &Work) -> f64 {
    work.run().unwrap_or_else(|problem| panic!("{work:?}: {problem}")).iteration_us
}

/// Time of an iteration on a network that costs nothing: when each rank ends a superstep, by when
/// it and the ranks that it waits for have begun and computed.
fn free_of_charge(work: &Work) -> f64 {
    let &Work { program, series, ranks, .. } = work;
    let is_ring = matches!(program, Program::NBody | Program::MatMul);
    let alternates = program == Program::GaussSeidel;
    let per_iteration = if alternates { 2 } else { 1 };
    let first = work.warm_up * per_iteration;
    let mut began = vec![0; ranks as usize];
    let mut at_first = 0.0;
    let mean = |times: &[u64]| times.iter().sum::<u64>() as f64 / f64::from(ranks);
    for superstep in 0..first + work.iterations * per_iteration {
        if superstep == first {
            at_first = mean(&began);
        }
        let accesses = |rank: u32| !alternates || (rank + superstep).is_multiple_of(2);
        let computed: Vec<u64> = (0..ranks)
            .map(|rank| {
                let time = if accesses(rank) { work.compute_time(rank, superstep) } else { 0 };
                began[rank as usize] + time
            })
            .collect();
        let ends = |rank: u32| {
            let mut end = computed[rank as usize];
            let mut after = |time: u64| end = end.max(time);
            match series {
                // The fence that learns is a barrier too.
                Series::Pattern if superstep == 0 && !alternates => {
                    computed.iter().copied().for_each(after);
                }
                Series::Barrier => computed.iter().copied().for_each(after),
                // A block leaves before its rank computes, and is acknowledged when it was used.
                Series::TwoSided | Series::Notified if is_ring => {
                    let (origins, targets) =
                        (program.origins(rank, ranks), program.targets(rank, ranks));
                    origins.iter().for_each(|at| after(began[*at as usize]));
                    if series == Series::Notified {
                        targets.iter().for_each(|at| after(computed[*at as usize]));
                    }
                }
                _ => {
                    let origins = program.origins(rank, ranks).into_iter();
                    // A fence waits for idle origins too.
                    origins
                        .filter(|at| accesses(*at) || series == Series::Pattern)
                        .for_each(|at| after(computed[at as usize]));
                    // A target grants access when it begins.
                    let waits = is_ring || accesses(rank);
                    if waits && matches!(series, Series::Pattern | Series::Pscw) {
                        let targets = program.targets(rank, ranks);
                        targets.iter().for_each(|at| after(began[*at as usize]));
                    }
                }
            }
            end
        };
        began = (0..ranks).map(ends).collect();
    }
    (mean(&began) - at_first) / US as f64 / f64::from(work.iterations)
}

#[test]
fn a_superstep_waits_for_what_it_depends_on() {
    for program in Program::ALL {
        for series in Series::ALL {
            let work = work(program, series, 36);
            let (found, free) = (iteration_us(&work), free_of_charge(&work));
            let costs = found - free;
            assert!(
                costs > 0.0 && costs < 40.0,
                "{} {}: {found} us, dependencies alone {free} us",
                program.name(),
                series.name()
            );
        }
    }
}

#[test]
fn without_jitter_an_iteration_takes_its_computation() {
    for program in Program::ALL {
        for series in Series::ALL {
            let work = Work { jitter: 0.0, ..work(program, series, 16) };
            let outcome = work.run().unwrap();
            let computed = if program == Program::GaussSeidel { 2000.0 } else { 1000.0 };
            assert!(
                (outcome.iteration_us - computed - outcome.sync_us).abs() < 1e-6
                    && outcome.sync_us > 0.0
                    && outcome.sync_us < 20.0,
                "{} {}: {outcome:?}",
                program.name(),
                series.name()
            );
        }
    }
}

/// What a fence that knows its neighbours is for: no slower than the same epochs by hand, and far
/// below the barrier.
#[test]
fn a_pattern_fence_costs_no_more_than_epochs_by_hand() {
    let sync = |series| {
        let short = Work { compute_us: 16.4, jitter: 0.1, ..work(Program::Jacobi, series, 256) };
        short.run().unwrap().sync_us
    };
    let (barrier, pattern, by_hand) =
        (sync(Series::Barrier), sync(Series::Pattern), sync(Series::Pscw));
    assert!(pattern <= by_hand, "pattern {pattern} us, by hand {by_hand} us");
    assert!(pattern < barrier / 2.0, "pattern {pattern} us, barrier {barrier} us");
}

#[test]
fn neighbours_agree_on_who_accesses_whom() {
    for program in Program::ALL {
        for ranks in [4, 9, 16] {
            for me in 0..ranks {
                let targets = program.targets(me, ranks);
                assert!(!targets.contains(&me), "{program:?}: {me} of {ranks}");
                for target in targets {
                    assert!(program.origins(target, ranks).contains(&me), "{program:?} {me}");
                }
            }
        }
    }
    assert_eq!(Program::Jacobi.targets(4, 9), [1, 3, 5, 7]);
    assert_eq!(Program::Jacobi.targets(0, 9), [1, 3]);
    assert_eq!(Program::GaussSeidel.targets(8, 9), [7]);
}

#[test]
fn equal_seeds_give_equal_runs() {
    for series in Series::ALL {
        let run = |seed| {
            let outcome = Work { seed, ..work(Program::Jacobi, series, 16) }.run().unwrap();
            (outcome.iteration_us.to_bits(), outcome.trace)
        };
        assert_eq!(run(1), run(1), "{}", series.name());
        assert_ne!(run(1), run(2), "{}", series.name());
    }
}

#[test]
fn invalid_parameters_are_rejected() {
    let problem = |work: Work| work.run().unwrap_err();
    assert_eq!(problem(work(Program::Jacobi, Series::Barrier, 12)), "12 ranks are not a square");
    assert_eq!(
        problem(Work { bytes: 20_000, ..work(Program::NBody, Series::TwoSided, 4) }),
        "messages of 20000 bytes are not eager (up to 16384)"
    );
    let alone = problem(work(Program::MatMul, Series::Pattern, 1));
    assert!(alone.contains("at least two ranks"), "{alone}");
    let jitter = problem(Work { jitter: 1.0, ..work(Program::MatMul, Series::Pattern, 4) });
    assert!(jitter.contains("jitter"), "{jitter}");
}
