//! Runs one seed: generates its program and settings, runs it, and checks the results.

use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe};
use std::rc::Rc;

use mpix_rma::engine::Rank;
use mpix_rma::sim::{Report, StuckBecause, World};
use mpix_rma::transport::sim::Time;

use super::checks::{counts, leaks, memory};
use super::generator::generate;
use super::player::Player;
use super::program::*;
use super::records;
use super::settings::{Broken, settings_of};
use super::watcher::Watcher;

/// A seed, the transactions left out, the number of ranks unless the seed draws it, and an injected
/// violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    pub seed: u64,
    pub skip: Vec<u32>,
    pub ranks: Option<u32>,
    pub broken: Broken,
}

/// A successful run.
pub struct Success {
    pub program: Rc<Program>,
    pub report: Report,
    pub bound: Time,
}

/// A failed run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The checker that failed, or `crash`.
    pub class: String,
    pub text: String,
}

thread_local! {
    static CATCHING: Cell<bool> = const { Cell::new(false) };
    static PANIC_TEXT: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Panics during runs are caught and reported as failures, not printed.
pub fn catch_panics() {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if CATCHING.get() {
            let text = info.payload_as_str().unwrap_or("a panic without words");
            let place = info
                .location()
                .map_or(String::new(), |at| format!(" ({}:{})", at.file(), at.line()));
            PANIC_TEXT.set(format!("{text}{place}"));
        } else {
            before(info);
        }
    }));
}

/// A checker's message starts with its class. Any other panic is a crash of the engine or of the
/// tests.
const CLASSES: [&str; 9] =
    ["memory", "count", "match", "order", "exclusion", "completion", "liveness", "leak", "refused"];

fn failure(text: String) -> Failure {
    let class =
        CLASSES.into_iter().find(|class| text.contains(&format!("[{class}] "))).unwrap_or("crash");
    Failure { class: class.to_owned(), text }
}

/// The rank that issues each operation.
fn owners(program: &Program) -> Vec<Rank> {
    let mut owners = vec![0; program.plans.len()];
    for (rank, calls) in (0..).zip(&program.calls) {
        for id in calls.iter().flat_map(Call::ops) {
            owners[*id] = rank;
        }
    }
    owners
}

/// Runs a case. Appends the events to `trace`.
pub fn run(case: &Case, trace: Option<&mut Vec<String>>) -> Result<Success, Failure> {
    let program = Rc::new(generate(case.seed, &case.skip, case.ranks));
    let mut watcher = Watcher::new(program.ranks, program.windows.iter().map(|spec| spec.flags));
    for (window, _) in (0..).zip(&program.windows).filter(|(_, spec)| spec.pattern_fences) {
        watcher.learns(window);
    }
    watcher.trace = trace.is_some().then(Vec::new);
    CATCHING.set(true);
    let result = panic::catch_unwind(AssertUnwindSafe(|| play(case, &program, &mut watcher)));
    CATCHING.set(false);
    if let (Some(trace), Some(lines)) = (trace, watcher.trace.take()) {
        *trace = lines;
    }
    match result {
        Ok(result) => result.map(|(report, bound)| Success { program, report, bound }),
        Err(_) => Err(failure(PANIC_TEXT.take())),
    }
}

fn play(
    case: &Case,
    program: &Rc<Program>,
    watcher: &mut Watcher,
) -> Result<(Report, Time), Failure> {
    program.records.iter().for_each(|record| records::rehearse(record, program));
    let settings = settings_of(case.seed, program);
    let buffers = Rc::new(RefCell::new(vec![None; program.plans.len()]));
    let player = |me| Player::new(me, Rc::clone(program), Rc::clone(&buffers));
    let mut world = World::new(program.ranks, settings, &program.windows, player);
    let net = world.net();
    net.record();
    if let Some((fault, one_in)) = case.broken {
        net.inject_violation(fault, one_in, case.seed);
    }
    for Content { window, rank, disp, len, value } in &program.begin {
        net.window_mut(*window, *rank)[*disp..][..*len].copy_from_slice(&bytes_of(*value, *len));
    }
    let result = world.run_watched(watcher);
    let report = result.map_err(|stuck| {
        let ended = (0..world.net().windows()).all(|window| {
            (0..program.ranks).all(|rank| world.window(window, rank).epochs_pending() == 0)
        });
        let class = match stuck.because {
            StuckBecause::Refused { .. } => "refused",
            StuckBecause::DeadLock if ended => "leak",
            StuckBecause::DeadLock | StuckBecause::LiveLock => "liveness",
        };
        Failure {
            class: class.to_owned(),
            text: format!("[{class}] {stuck}; expected to end by {} ps", settings.time_limit),
        }
    })?;
    watcher.finish();
    leaks::check(&mut world);
    counts::check(program, world.net());
    watcher.tags.check(program, &mut world);
    memory::check(program, &owners(program), &buffers, world.net());
    Ok((report, settings.time_limit))
}

/// Leaves out transactions of a failing case, one by one, as long as it fails in the same class.
pub fn shrink(case: &Case, class: &str) -> Case {
    let mut smallest = case.clone();
    let transactions = generate(case.seed, &[], case.ranks).transactions;
    let mut goes_on = true;
    while goes_on {
        goes_on = false;
        for number in (0..transactions)
            .rev()
            .filter(|number| !smallest.skip.contains(number))
            .collect::<Vec<_>>()
        {
            let mut smaller = smallest.clone();
            smaller.skip.push(number);
            smaller.skip.sort_unstable();
            if run(&smaller, None).is_err_and(|failure| failure.class == class) {
                smallest = smaller;
                goes_on = true;
            }
        }
    }
    smallest
}
