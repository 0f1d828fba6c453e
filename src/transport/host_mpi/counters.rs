//! Notification counters of a window some of whose processes are reached by messages.
//!
//! The counters themselves lie in the segment of their process's node: node-mates that share memory
//! raise them directly, and for all others their process does, when it takes the notification out
//! of a packet. Both add to the same words [LK-7]. What is kept here is how many everybody has, so
//! that wrong calls are refused where they are made.

use super::MessageWindow;
use super::courier::Courier;
use super::members::Table;
use crate::engine::Rank;
use crate::transport::shm::CounterStep;

/// How many counters each process has, and the set that is being made.
#[derive(Debug, Default)]
pub(super) struct Counters {
    numbers: Option<Table<u32>>,
    /// The processes are telling each other.
    gathering: bool,
    gathered: Option<Result<Vec<u32>, String>>,
    /// The table that was in force before, once the new one is.
    before: Option<Option<Table<u32>>>,
}

impl<C: Courier> MessageWindow<C> {
    /// Notification counters of a process.
    #[must_use]
    #[inline]
    pub fn counters_of(&self, rank: Rank) -> u32 {
        self.counters.numbers.as_ref().map_or(0, |numbers| numbers.of(rank))
    }

    /// A notification is about to be posted, behind an operation on the same target.
    #[inline]
    pub fn announce_notification(&mut self, rank: Rank) {
        if self.members.near(rank).is_none() {
            let link = self.link_to(rank);
            self.links[link as usize].notified = true;
            if let Some(direct) = self.courier.direct() {
                direct.announce_notification(rank);
            }
        }
    }

    /// Collective, in steps with a vote after each; see
    /// [`ShmWindow::make_counters`](crate::transport::shm::ShmWindow::make_counters).
    ///
    /// # Errors
    /// The counters cannot be had, in words.
    pub fn make_counters(&mut self, step: CounterStep, number: u32) -> Result<(), String> {
        match step {
            CounterStep::Want => {}
            // All take this step, or none.
            CounterStep::Create => {
                self.courier.gather(number);
                self.counters.gathering = true;
            }
            CounterStep::Map => {
                let numbers = self
                    .counters
                    .gathered
                    .take()
                    .unwrap_or_else(|| Err("nothing was gathered".into()))?;
                let before = self.counters.numbers.replace(Table::new(numbers));
                self.counters.before = Some(before);
            }
        }
        self.near.make_counters(step, number).map_err(|error| error.to_string())
    }

    /// Ends the making of counters: with the new ones, or with those that there were.
    pub fn counters_made(&mut self, agreed: bool) {
        self.counters.gathered = None;
        if let Some(before) = self.counters.before.take().filter(|_| !agreed) {
            self.counters.numbers = before;
        }
        self.near.counters_made(agreed);
    }

    /// True when the processes have told each other what they were to: no vote ends before.
    pub(super) fn has_gathered(&mut self) -> bool {
        if self.counters.gathering
            && let Some(numbers) = self.courier.gathered()
        {
            self.counters.gathering = false;
            self.counters.gathered = Some(numbers);
        }
        !self.counters.gathering
    }
}
