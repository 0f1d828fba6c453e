//! Tagged notifications: what has come is taken out of the port at every sweep, into memory of this
//! process, so that its peers wait for its progress at most, and never for a call of its
//! application; there it is matched with what is expected (`matching`).

use super::matching::ExpectationState;
use super::port::{Arrival, ExpectationId, Port, Wanted};
use super::window::Window;

/// Notifications that one sweep takes out, so that it ends under any traffic.
const PER_SWEEP: usize = 4096;

impl Window {
    /// Makes an expectation of `expected` tagged notifications, at least 1. It takes none before it
    /// is started.
    pub fn expect(&mut self, wanted: Wanted, expected: u64) -> ExpectationId {
        self.matcher.expect(wanted, expected)
    }

    /// Starts an expectation that is idle. It takes notifications that have come, the oldest first,
    /// and waits for the rest.
    pub fn start_expecting(&mut self, id: ExpectationId) -> ExpectationState {
        self.moves += 1;
        self.matcher.start(id)
    }

    /// How an expectation stands.
    pub fn expectation_state(&self, id: ExpectationId) -> ExpectationState {
        self.matcher.expectation_state(id)
    }

    /// An expectation that is met becomes idle, and may be started again.
    pub fn rest(&mut self, id: ExpectationId) {
        self.matcher.rest(id);
    }

    /// Ends an expectation. One that waits still takes what it waits for, and is gone then.
    pub fn abandon(&mut self, id: ExpectationId) {
        self.matcher.abandon(id);
    }

    /// The oldest notification that is wanted and that nobody has taken; it stays.
    pub fn probe(&mut self, port: &mut impl Port, wanted: Wanted) -> Option<Arrival> {
        self.take_arrivals(port);
        self.matcher.probe(wanted)
    }

    /// Expectations that are started and not met.
    pub fn expectations_waiting(&self) -> u32 {
        self.matcher.waiting()
    }

    /// Notifications that have come and that nobody has taken.
    pub fn unexpected(&self) -> u64 {
        self.matcher.unexpected()
    }

    /// Takes out of the port what has come, and matches it: a part of a sweep, for callers that
    /// look often.
    #[inline]
    pub fn take_arrivals(&mut self, port: &mut impl Port) {
        for _ in 0..PER_SWEEP {
            let Some(arrival) = port.next_arrival() else { return };
            self.moves += 1;
            self.matcher.arrived(arrival);
        }
    }
}
