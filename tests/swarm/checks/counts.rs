//! Notifications: none lost, none duplicated [NA-3].

use mpix_rma::transport::sim::Network;

use crate::program::*;

/// Checks all counters at the end of a run. Values that engines return during the run are checked
/// by the watcher.
pub fn check(program: &Program, net: &Network) {
    for Count { window, rank, counter, raised } in &program.counts {
        let came = net.notifications(*window, *rank, *counter);
        assert_eq!(
            came, *raised,
            "[count] counter {counter} of rank {rank} in window {window}: wrong number of \
             notifications"
        );
    }
}
