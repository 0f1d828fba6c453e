//! The paper's section VIII.A in virtual time: within 5 % of the numbers in its text.

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

/// Figures 2 to 11 and the reference. In two of them a computing rank must act: to hand a lock over
/// to a queued successor, and to continue a fence whose operations have completed. That needs its
/// CPU, in its next call or on a second core.
#[test]
fn every_number_in_the_paper_is_reproduced() {
    let second_core = ["late_unlock", "wait_at_fence"];
    let compared: usize =
        patterns::names().map(|name| check(second_core.contains(&name), name)).sum();
    assert!(compared > 60, "{compared}");
}

/// With a progress thread nothing gets slower [PR-2].
#[test]
fn a_progress_thread_reproduces_them_too() {
    check(true, "");
}
