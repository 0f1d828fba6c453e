//! The paper's section VIII.A in virtual time: within 5 % of what its text says.

use mpix_rma::sim::{patterns, profile};

const TOLERANCE: f64 = 0.05;

fn check(progress_thread: bool, name: &str) -> usize {
    let measures = patterns::measure(&profile("qdr-2014").unwrap(), progress_thread, name)
        .unwrap_or_else(|stuck| panic!("{stuck}"));
    let mut compared = 0;
    for measure in &measures {
        let Some(difference) = measure.difference() else { continue };
        compared += 1;
        assert!(difference.abs() <= TOLERANCE, "{measure:?}: {:+.1} %", 100.0 * difference);
    }
    compared
}

/// Figures 2 to 11 and the reference. Two of them let a process compute that has somebody to tell:
/// of a lock that it gives back while a successor waits already, and of operations that a fence
/// waits for. That takes its CPU, in its next call or on a second core.
#[test]
fn every_number_of_the_text_is_met() {
    let second_core = ["late_unlock", "wait_at_fence"];
    let compared: usize =
        patterns::names().map(|name| check(second_core.contains(&name), name)).sum();
    assert!(compared > 60, "{compared}");
}

/// With a second core that makes progress nothing gets worse [PR-2].
#[test]
fn a_progress_thread_meets_them_too() {
    check(true, "");
}
