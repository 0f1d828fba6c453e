//! The paper's section VIII.A in virtual time: within 5 % of the numbers in its text, without the
//! delays of 1000 µs, which the scripts put in themselves.

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
    assert!(compared > 35, "{compared}");
}

/// With a progress thread nothing gets slower [PR-2].
#[test]
fn a_progress_thread_reproduces_them_too() {
    check(true, "");
}

/// A value that is nothing but the delay proves nothing.
#[test]
fn delays_that_were_put_in_are_not_compared() {
    let measures = patterns::measure(&profile("qdr-2014").unwrap(), false, "late_complete")
        .unwrap_or_else(|stuck| panic!("{stuck}"));
    let of = |series: &str, metric: &str| {
        measures
            .iter()
            .find(|measure| (measure.series, measure.metric) == (series, metric))
            .unwrap_or_else(|| panic!("{series} {metric}"))
    };
    assert_eq!(of("blocking", "origin_epoch").difference(), None, "1000 µs of work");
    let late = patterns::measure(&profile("qdr-2014").unwrap(), false, "late_post")
        .unwrap_or_else(|stuck| panic!("{stuck}"));
    let epoch = late.iter().find(|measure| measure.metric == "access_epoch").expect("measured");
    let (value, own) = (epoch.value, 340.0);
    let expected = (value - 1340.0) / own;
    assert!((epoch.difference().expect("340 µs are the transfer") - expected).abs() < 1e-12);
}
