//! Tagged notifications. Every sweep moves arrived notifications from the port to private memory,
//! where `matching` matches them with expectations. So peers depend only on this process's
//! progress, never on a call of its application [NA-5].

use super::matching::ExpectationState;
use super::port::{Arrival, ExpectationId, Port, Wanted};
use super::window::Window;

/// Maximum number of notifications taken per sweep, so that a sweep ends under any load.
const PER_SWEEP: usize = 4096;

impl Window {
    /// Creates an expectation of `expected` (at least 1) tagged notifications. It takes none before
    /// it is started.
    pub fn expect(&mut self, wanted: Wanted, expected: u64) -> ExpectationId {
        self.matcher.expect(wanted, expected)
    }

    /// Starts an idle expectation. It takes notifications that have arrived, oldest first, and
    /// waits for the rest.
    pub fn start_expecting(&mut self, id: ExpectationId) -> ExpectationState {
        self.state_changes += 1;
        self.matcher.start(id)
    }

    /// The state of an expectation.
    pub fn expectation_state(&self, id: ExpectationId) -> ExpectationState {
        self.matcher.expectation_state(id)
    }

    /// Makes a met expectation idle, so that it may be started again.
    pub fn make_idle(&mut self, id: ExpectationId) {
        self.matcher.make_idle(id);
    }

    /// Frees an expectation. One that waits still takes its notifications before it disappears.
    pub fn abandon(&mut self, id: ExpectationId) {
        self.matcher.abandon(id);
    }

    /// The oldest unclaimed notification that matches `wanted`. It stays unclaimed.
    pub fn probe(&mut self, port: &mut impl Port, wanted: Wanted) -> Option<Arrival> {
        self.take_arrivals(port);
        self.matcher.probe(wanted)
    }

    /// Number of expectations that are started and not met.
    pub fn expectations_waiting(&self) -> u32 {
        self.matcher.waiting()
    }

    /// Number of notifications that have arrived and are unclaimed.
    pub fn unexpected(&self) -> u64 {
        self.matcher.unexpected()
    }

    /// Matches the notifications that have arrived. Part of a sweep; also for callers that poll for
    /// notifications only.
    #[inline]
    pub fn take_arrivals(&mut self, port: &mut impl Port) {
        for _ in 0..PER_SWEEP {
            let Some(arrival) = port.next_arrival() else { return };
            self.state_changes += 1;
            self.matcher.arrived(arrival);
        }
    }
}
