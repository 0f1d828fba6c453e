//! Notification counters of a window with peers on other nodes.
//!
//! A process's counters lie in the segment of its node. Node-mates raise them directly. For other
//! peers the process raises them itself, when it receives the notification. Both add to the same
//! words [LK-7]. This module keeps the number of counters of every process, so that a call with an
//! invalid counter fails early.

use super::Router;
use crate::engine::Rank;
use crate::transport::members::RankTable;
use crate::transport::shm::CounterStep;

/// The number of counters of each process, and the state of a pending change.
#[derive(Debug, Default)]
pub(super) struct Counters {
    numbers: Option<RankTable<u32>>,
    /// An allgather of the numbers is pending.
    gathering: bool,
    gathered: Option<Vec<u32>>,
    /// The previous numbers, until the change is agreed.
    previous: Option<Option<RankTable<u32>>>,
}

impl Router {
    /// Number of notification counters of a process.
    #[must_use]
    #[inline]
    pub fn counters_of(&self, rank: Rank) -> u32 {
        self.counters.numbers.as_ref().map_or(0, |numbers| numbers.of(rank))
    }

    /// Collective. Changes the number of counters, in steps with an agreement after each; see
    /// [`ShmWindow::make_counters`](crate::transport::shm::ShmWindow::make_counters).
    ///
    /// # Errors
    /// This process cannot take the step.
    pub fn make_counters(&mut self, step: CounterStep, number: u32) -> Result<(), String> {
        match step {
            CounterStep::Want => {}
            // Either all processes take this step after the first agreement, or none does.
            CounterStep::Create => {
                self.packets.host.start_allgather(number);
                self.counters.gathering = true;
            }
            CounterStep::Map => {
                let gathered = self.counters.gathered.take();
                let numbers = RankTable::new(gathered.ok_or("no allgather was started")?);
                self.counters.previous = Some(self.counters.numbers.replace(numbers));
            }
        }
        self.shm.make_counters(step, number).map_err(|error| error.to_string())
    }

    /// Ends the change: keeps the new counters if `agreed`, else the previous ones.
    pub fn counters_made(&mut self, agreed: bool) {
        self.counters.gathered = None;
        if let Some(previous) = self.counters.previous.take().filter(|_| !agreed) {
            self.counters.numbers = previous;
        }
        self.shm.counters_made(agreed);
    }

    /// Whether no allgather of the numbers is pending. Until then, an agreement has no decision.
    pub(super) fn has_gathered(&mut self) -> bool {
        if self.counters.gathering
            && let Some(numbers) = self.packets.host.finish_allgather()
        {
            self.counters.gathering = false;
            self.counters.gathered = Some(numbers);
        }
        !self.counters.gathering
    }
}
