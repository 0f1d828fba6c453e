//! Notifications: none lost, none twice.

use mpix_rma::transport::sim::Network;

use crate::program::*;

/// Checks all counters at the end of a run. That an engine tells what its counters hold is checked
/// whenever it does.
pub fn check(program: &Program, net: &Network) {
    for Count { window, rank, counter, raised } in &program.counts {
        let came = net.notifications(*window, *rank, *counter);
        assert_eq!(
            came, *raised,
            "[count] counter {counter} of rank {rank} in window {window}: not as many as were called for"
        );
    }
}
