//! What the calls for tagged notifications do.

use super::*;
use crate::engine::{ExpectationId, ExpectationState};

impl<S: Script> World<S> {
    pub(super) fn tagged(&mut self, rank: Rank, step: &Step, watch: &mut impl Watch) -> Flow {
        match *step {
            Step::Expect { window, wanted, expected, place } => {
                let at = self.at(window, rank);
                let id =
                    self.metered(rank, at, window, |engine, _| engine.expect(wanted, expected));
                let before = self.process(rank).expectations.insert(place, id);
                assert!(before.is_none(), "place {place} of rank {rank} holds an expectation");
            }
            Step::StartExpecting { window, place } => {
                let (at, id) = (self.at(window, rank), self.expectation(rank, place));
                self.metered(rank, at, window, |engine, _| engine.start_expecting(id));
                // A call of ours drives everything [PR-1].
                self.sweep(rank, watch);
            }
            Step::AwaitExpectation { window, place } => {
                let flow = self.wait_unless_over(rank, Wait::Expectation(window, place));
                if matches!(flow, Flow::Next) {
                    self.meets(rank, window, place, watch);
                }
                return flow;
            }
            Step::TestExpectation { window, place } => {
                self.sweep(rank, watch);
                let over = self.is_met(rank, window, place);
                self.process(rank).flag = over;
                if over {
                    self.meets(rank, window, place, watch);
                }
            }
            Step::Abandon { window, place } => {
                let (at, id) = (self.at(window, rank), self.expectation(rank, place));
                self.metered(rank, at, window, |engine, _| engine.abandon(id));
                self.process(rank).expectations.remove(&place);
            }
            Step::Probe { window, wanted } => {
                let at = self.at(window, rank);
                let found =
                    self.metered(rank, at, window, |engine, port| engine.probe(port, wanted));
                self.process(rank).arrival = found;
                watch.probed(rank, window, wanted, found, &mut self.net);
                self.sweep(rank, watch);
            }
            _ => unreachable!("not of tagged notifications"),
        }
        Flow::Next
    }

    fn expectation(&self, rank: Rank, place: Slot) -> ExpectationId {
        let held = self.processes[rank as usize].expectations.get(&place);
        *held.unwrap_or_else(|| panic!("place {place} of rank {rank} holds no expectation"))
    }

    pub(super) fn is_met(&self, rank: Rank, window: u32, place: Slot) -> bool {
        let standing = self.window(window, rank).expectation_state(self.expectation(rank, place));
        assert_ne!(
            standing,
            ExpectationState::Idle,
            "rank {rank} waits for the expectation in place {place}, which is not started"
        );
        matches!(standing, ExpectationState::Met(_))
    }

    /// A wait for an expectation is over: it tells its last notification, and rests.
    pub(super) fn meets(&mut self, rank: Rank, window: u32, place: Slot, watch: &mut impl Watch) {
        let (at, id) = (self.at(window, rank), self.expectation(rank, place));
        let ExpectationState::Met(last) = self.windows[at].expectation_state(id) else {
            unreachable!("the wait is over")
        };
        self.metered(rank, at, window, |engine, _| engine.make_idle(id));
        self.process(rank).arrival = Some(last);
        watch.met(rank, window, place, last, &mut self.net);
    }

    /// Takes the tagged notifications that have come to a rank and that nobody has taken, in order.
    pub fn take_unexpected(&mut self, window: u32, rank: Rank) -> Vec<Arrival> {
        let (at, mut taken) = (self.at(window, rank), Vec::new());
        let any = Wanted { source: None, tag: None };
        self.metered(rank, at, window, |engine, port| {
            while engine.probe(port, any).is_some() {
                let id = engine.expect(any, 1);
                if let ExpectationState::Met(arrival) = engine.start_expecting(id) {
                    taken.push(arrival);
                }
                engine.abandon(id);
            }
        });
        taken
    }
}
