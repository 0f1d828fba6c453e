//! Execution of the steps for tagged notifications.

use super::*;
use crate::engine::{ExpectationId, ExpectationState};

impl<S: Script> World<S> {
    pub(super) fn tagged(&mut self, rank: Rank, step: &Step, watch: &mut impl Watch) -> Flow {
        match *step {
            Step::Expect { window, wanted, expected, slot } => {
                let id =
                    self.call_engine(rank, window, |engine, _| engine.expect(wanted, expected));
                let before = self.process(rank).expectations.insert(slot, id);
                assert!(before.is_none(), "slot {slot} of rank {rank} holds an expectation");
            }
            Step::StartExpecting { window, slot } => {
                let id = self.expectation(rank, slot);
                self.call_engine(rank, window, |engine, _| engine.start_expecting(id));
                // Every call of the library makes progress [PR-1].
                self.sweep(rank, watch);
            }
            Step::AwaitExpectation { window, slot } => {
                let flow = self.wait_unless_over(rank, Wait::Expectation(window, slot));
                if matches!(flow, Flow::Next) {
                    self.finish_expectation(rank, window, slot, watch);
                }
                return flow;
            }
            Step::TestExpectation { window, slot } => {
                self.sweep(rank, watch);
                let over = self.is_met(rank, window, slot);
                self.process(rank).flag = over;
                if over {
                    self.finish_expectation(rank, window, slot, watch);
                }
            }
            Step::Abandon { window, slot } => {
                let id = self.expectation(rank, slot);
                self.call_engine(rank, window, |engine, _| engine.abandon(id));
                self.process(rank).expectations.remove(&slot);
            }
            Step::Probe { window, wanted } => {
                let found =
                    self.call_engine(rank, window, |engine, port| engine.probe(port, wanted));
                self.process(rank).arrival = found;
                watch.probed(rank, window, wanted, found, &mut self.net);
                self.sweep(rank, watch);
            }
            _ => unreachable!("not a step of tagged notifications"),
        }
        Flow::Next
    }

    fn expectation(&self, rank: Rank, slot: Slot) -> ExpectationId {
        let held = self.processes[rank as usize].expectations.get(&slot);
        *held.unwrap_or_else(|| panic!("slot {slot} of rank {rank} holds no expectation"))
    }

    pub(super) fn is_met(&self, rank: Rank, window: u32, slot: Slot) -> bool {
        let state = self.window(window, rank).expectation_state(self.expectation(rank, slot));
        assert_ne!(
            state,
            ExpectationState::Idle,
            "rank {rank} waits for the expectation in slot {slot}, which is not started"
        );
        matches!(state, ExpectationState::Met(_))
    }

    /// Ends a wait for an expectation: reports its last notification and makes it idle again.
    pub(super) fn finish_expectation(
        &mut self,
        rank: Rank,
        window: u32,
        slot: Slot,
        watch: &mut impl Watch,
    ) {
        let id = self.expectation(rank, slot);
        let ExpectationState::Met(last) = self.window(window, rank).expectation_state(id) else {
            unreachable!("the wait is over")
        };
        self.call_engine(rank, window, |engine, _| engine.make_idle(id));
        self.process(rank).arrival = Some(last);
        watch.met(rank, window, slot, last, &mut self.net);
    }

    /// Takes the unclaimed tagged notifications of a rank, in order.
    pub fn take_unexpected(&mut self, window: u32, rank: Rank) -> Vec<Arrival> {
        let mut taken = Vec::new();
        let any = Wanted { source: None, tag: None };
        self.call_engine(rank, window, |engine, port| {
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
