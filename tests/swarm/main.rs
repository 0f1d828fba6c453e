//! Random legal programs on the production engine, over a simulated network with injected faults,
//! with one checker per property.
//!
//! `make swarm SEEDS=n` runs seeds 1 to n. `make swarm SEED=n` runs one seed and prints its program
//! and the end of its trace.
//!
//! | property | checker |
//! |---|---|
//! | memory and fetched values are what MPI's rules allow | `checks/memory` |
//! | epochs match, are activated and overtake as they may [EP-3, EP-4, EP-6, AC-1 to AC-3, MA-1, FE-1] | `common/rules/order` |
//! | mutual exclusion and queue order of locks [LK-1] | `common/rules/exclusion` |
//! | nothing completes before its conditions [EP-3, FE-1, FL-1, MA-2, PR-3] | `common/rules/completion` |
//! | no notification before its data | `common/rules/completion`, and what its target sees |
//! | none lost, none duplicated; values and resets agree | `watcher`, `checks/counts` |
//! | tagged notifications are matched by MPI's rules, in order | `checks/tags` |
//! | everything legal ends, within a time derived from the program [EP-10] | `settings`, and the world's own |
//! | nothing is left | `checks/leaks` |

// A test binary exports nothing.
#![allow(unreachable_pub)]

mod checks;
mod generator;
mod notifications;
mod operations;
mod player;
mod program;
mod records;
mod repeated;
mod requests;
#[path = "../common/rules/mod.rs"]
mod rules;
mod run;
mod settings;
mod shapes;
mod tagged;
mod text;
mod transactions;
mod watcher;
mod wrong;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use mpix_rma::engine::Word;
use mpix_rma::transport::sim::Violation;

use run::{Case, Failure, catch_panics, run, shrink};

/// Number of programs by default, starting with seed 1.
const PROGRAMS: u64 = 10_000;
/// Lines of the trace that a replay prints.
const TAIL: usize = 400;

fn number(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .filter(|text| !text.is_empty())
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

fn case(seed: u64) -> Case {
    Case { seed, skip: Vec::new(), ranks: None, broken: None }
}

#[derive(Default)]
struct Sums {
    programs: u64,
    calls: u64,
    events: u64,
    refusals: u64,
    /// The largest fraction of its time bound that a program needed, and its seed.
    closest: (f64, u64),
    coverage: BTreeMap<&'static str, u64>,
}

/// Runs seeds on all processors. Returns the first that failed.
fn sweep(first: u64, programs: u64, broken: settings::Broken) -> (Sums, Option<(Case, Failure)>) {
    let (next, last) = (AtomicU64::new(first), first + programs);
    let failed = AtomicU64::new(u64::MAX);
    let found: Mutex<BTreeMap<u64, Failure>> = Mutex::default();
    let sums: Mutex<Sums> = Mutex::default();
    let work =
        || {
            let mut own = Sums::default();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= last || seed > failed.load(Ordering::Relaxed) {
                    break;
                }
                if broken.is_none() && seed.is_multiple_of(100_000) {
                    println!("seed {seed}");
                }
                match run(&Case { broken, ..case(seed) }, None) {
                    Ok(success) => {
                        own.programs += 1;
                        own.calls += success.report.calls;
                        own.events += success.report.stats.events;
                        own.refusals += success.report.stats.refusals;
                        let taken = success.report.end as f64 / success.bound as f64;
                        if taken > own.closest.0 {
                            own.closest = (taken, seed);
                        }
                        success.program.coverage.iter().for_each(|(what, count)| {
                            *own.coverage.entry(what).or_insert(0) += count
                        });
                    }
                    Err(failure) => {
                        failed.fetch_min(seed, Ordering::Relaxed);
                        found.lock().expect("no panic holds it").insert(seed, failure);
                    }
                }
            }
            let mut sums = sums.lock().expect("no panic holds it");
            sums.programs += own.programs;
            sums.calls += own.calls;
            sums.events += own.events;
            sums.refusals += own.refusals;
            if own.closest.0 > sums.closest.0 {
                sums.closest = own.closest;
            }
            own.coverage
                .into_iter()
                .for_each(|(what, count)| *sums.coverage.entry(what).or_insert(0) += count);
        };
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let first = found.into_inner().expect("no panic holds it").pop_first();
    let first = first.map(|(seed, failure)| (Case { broken, ..case(seed) }, failure));
    (sums.into_inner().expect("no panic holds it"), first)
}

fn replay_command(case: &Case) -> String {
    let skip: Vec<_> = case.skip.iter().map(u32::to_string).collect();
    let skip = if skip.is_empty() { String::new() } else { format!(" SKIP={}", skip.join(",")) };
    format!("make swarm SEED={}{skip}", case.seed)
}

/// Runs one case and prints its program and trace.
fn replay(case: &Case) {
    let program = generator::generate(case.seed, &case.skip, case.ranks);
    println!("{program}\n{:#?}", settings::settings_of(case.seed, &program));
    let mut trace = Vec::new();
    let result = run(case, Some(&mut trace));
    for line in &trace[trace.len().saturating_sub(TAIL)..] {
        println!("{line}");
    }
    match result {
        Ok(success) => println!("seed {} is success: {:?}", case.seed, success.report),
        Err(failure) => panic!("seed {}: {}", case.seed, failure.text),
    }
}

#[test]
#[allow(clippy::disallowed_methods, reason = "tells how long it took")]
fn legal_programs_keep_every_rule() {
    catch_panics();
    if let Some(seed) = number("MPIX_SWARM_SEED") {
        let skip = std::env::var("MPIX_SWARM_SKIP").unwrap_or_default();
        let skip = skip.split(',').filter_map(|text| text.parse().ok()).collect();
        return replay(&Case { skip, ..case(seed) });
    }
    let (first, programs) =
        (number("MPIX_SWARM_FIRST").unwrap_or(1), number("MPIX_SWARM_SEEDS").unwrap_or(PROGRAMS));
    let began = Instant::now();
    let (sums, failed) = sweep(first, programs, None);
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{} programs in {seconds:.1} s ({:.0} per second): {} calls, {} events, {} refusals; seed \
         {} took {:.0} % of its bound",
        sums.programs,
        sums.programs as f64 / seconds,
        sums.calls,
        sums.events,
        sums.refusals,
        sums.closest.1,
        100.0 * sums.closest.0
    );
    sums.coverage.iter().for_each(|(what, count)| println!("  {count:>9} {what}"));
    if let Some((failed, failure)) = failed {
        println!("class {}, seed {}: {}", failure.class, failed.seed, failure.text);
        let smallest = if number("MPIX_SWARM_SHRINK") == Some(0) {
            failed.clone()
        } else {
            shrink(&failed, &failure.class)
        };
        panic!(
            "class {}, seed {}: {}\n  replay: {}\n  smallest: {}",
            failure.class,
            failed.seed,
            failure.text,
            replay_command(&failed),
            replay_command(&smallest)
        );
    }
}

/// Writes programs for real ranks ([`text`]) to the file MPIX_SWARM_WRITE, each after a simulated
/// run that checked its predictions.
#[test]
#[ignore = "make test-random writes and runs them"]
fn write_programs() {
    catch_panics();
    let path = std::env::var("MPIX_SWARM_WRITE").expect("MPIX_SWARM_WRITE is a path");
    let ranks = number("MPIX_SWARM_RANKS").map(|ranks| ranks as u32);
    let skip = std::env::var("MPIX_SWARM_SKIP").unwrap_or_default();
    let skip: Vec<u32> = skip.split(',').filter_map(|text| text.parse().ok()).collect();
    let first = number("MPIX_SWARM_FIRST").unwrap_or(1);
    let mut file = BufWriter::new(File::create(&path).expect("the file can be written"));
    for seed in first..first + number("MPIX_SWARM_SEEDS").unwrap_or(1) {
        let case = Case { skip: skip.clone(), ranks, ..case(seed) };
        let success = run(&case, None).unwrap_or_else(|failure| {
            panic!("seed {seed}, {ranks:?} ranks: {}", failure.text);
        });
        file.write_all(text::text_of(seed, &success.program).as_bytes()).expect("disk space");
    }
    file.flush().expect("disk space");
}

/// Equal seeds give equal runs.
#[test]
fn equal_seeds_give_equal_runs() {
    catch_panics();
    for seed in [7, 77, 777, 7777] {
        let report =
            || run(&case(seed), None).map(|success| success.report).map_err(|failure| failure.text);
        assert_eq!(report(), report());
    }
}

/// The checkers detect every violation of the port's contract.
#[test]
fn every_contract_violation_is_detected() {
    catch_panics();
    let faults = [
        (Violation::LoseSignal(Word::Grant), "liveness"),
        (Violation::LoseSignal(Word::Done), "liveness"),
        (Violation::LoseSignal(Word::Fence), "liveness"),
        (Violation::RaiseSignal(Word::Grant), "order"),
        (Violation::RaiseSignal(Word::Done), "completion"),
        (Violation::RaiseSignal(Word::Fence), "completion"),
        (Violation::Overtake(Word::Done), "completion"),
        (Violation::LoseChange, "liveness"),
        (Violation::LoseAnswer, "liveness leak"),
        (Violation::EarlyFinish, "completion"),
        (Violation::LosePut, "memory"),
        (Violation::RepeatAccumulate, "memory"),
        (Violation::CutShape, "memory"),
        (Violation::DelayAccumulate, "memory completion"),
        (Violation::StaleTail, "exclusion"),
        (Violation::KeepCredit, "liveness leak"),
        (Violation::Unordered, "memory"),
        (Violation::EarlyNotification, "completion"),
        (Violation::LoseNotification, "count liveness leak"),
        (Violation::RepeatNotification, "count"),
        (Violation::EarlyTagged, "completion"),
        (Violation::LoseTagged, "match liveness leak"),
        (Violation::RepeatTagged, "match"),
    ];
    for (fault, class) in faults {
        let (_, found) = sweep(1, PROGRAMS, Some((fault, 10)));
        let (case, failure) =
            found.unwrap_or_else(|| panic!("{fault:?} was not detected in {PROGRAMS} programs"));
        println!("{fault:?}: seed {}, {}", case.seed, failure.class);
        assert!(
            class.split(' ').any(|class| class == failure.class),
            "{fault:?}: {}",
            failure.text
        );
    }
}
