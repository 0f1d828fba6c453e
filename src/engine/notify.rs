//! Notifications: counters that operations raise at their target, and what waits for them there.
//!
//! A notification is an operation of its own ([`OpKind::Notify`](super::OpKind::Notify)), recorded
//! and posted like any other; the port lets it take effect behind what was posted to the same
//! target before it. So it needs no room in other operations' records, exists in every kind of
//! epoch, and completes with its epoch.
//!
//! The port's counters are only ever added to, by whoever is in their atomicity domain [LK-7]. What
//! the application sees is the counter less a base of this process's own, and a reset moves the
//! base: no count is lost between a reader and an adder.

use hashbrown::HashMap;

use super::port::{Outcome, Port, RequestId};
use super::window::Window;

/// A counter that waited for has come to something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notified {
    /// Which counter.
    pub index: u32,
    /// Its value when it was seen.
    pub value: u64,
}

/// What a process knows of its counters, apart from them; see [`Window::begin_counters`].
#[derive(Debug)]
pub struct CounterBases(HashMap<u32, u64>);

/// What waits for counters `first` to `first + number - 1`: for any of them to be at least
/// `expected`.
#[derive(Debug)]
struct Watch {
    request: RequestId,
    first: u32,
    number: u32,
    expected: u64,
}

/// What one process knows of its own counters.
#[derive(Debug, Default)]
pub(super) struct Notifications {
    /// Of counters that were ever reset.
    bases: HashMap<u32, u64>,
    watches: Vec<Watch>,
    /// What completed watches have found, until somebody asks.
    found: HashMap<u32, Notified>,
}

impl Notifications {
    pub(super) fn are_awaited(&self) -> bool {
        !self.watches.is_empty()
    }

    fn value(&self, port: &mut impl Port, index: u32) -> u64 {
        let sum = port.counter(index);
        sum.wrapping_sub(if self.bases.is_empty() {
            0
        } else {
            self.bases.get(&index).copied().unwrap_or(0)
        })
    }

    fn look(
        &self,
        port: &mut impl Port,
        first: u32,
        number: u32,
        expected: u64,
    ) -> Option<Notified> {
        (first..first + number).find_map(|index| {
            let value = self.value(port, index);
            (value >= expected).then_some(Notified { index, value })
        })
    }
}

impl Window {
    /// Value of a counter of this process: notifications since the last reset. What they follow is
    /// visible to whoever has seen them.
    #[inline]
    pub fn counter(&mut self, port: &mut impl Port, index: u32) -> u64 {
        self.notifications.value(port, index)
    }

    /// Takes the value of a counter and makes it 0, in one.
    pub fn reset_counter(&mut self, port: &mut impl Port, index: u32) -> u64 {
        let sum = port.counter(index);
        let base = self.notifications.bases.insert(index, sum).unwrap_or(0);
        sum.wrapping_sub(base)
    }

    /// Looks for the first of `number` counters from `first` on that is at least `expected`.
    pub fn look_at_counters(
        &mut self,
        port: &mut impl Port,
        first: u32,
        number: u32,
        expected: u64,
    ) -> Option<Notified> {
        self.notifications.look(port, first, number, expected)
    }

    /// Waits, without blocking, until one of `number` counters from `first` on is at least
    /// `expected`. Gives what was found if it is so already; else [`found`](Self::found) does once
    /// the request is reported complete.
    pub fn await_counters(
        &mut self,
        port: &mut impl Port,
        first: u32,
        number: u32,
        expected: u64,
    ) -> (Outcome, Option<Notified>) {
        if let Some(found) = self.notifications.look(port, first, number, expected) {
            return (Outcome::Complete, Some(found));
        }
        let request = self.requests.open();
        self.notifications.watches.push(Watch { request, first, number, expected });
        (Outcome::Pending(request), None)
    }

    /// True if a request is that of a pending wait for counters.
    pub fn awaits(&self, request: RequestId) -> bool {
        self.notifications.watches.iter().any(|watch| watch.request == request)
    }

    /// Up to `looks` looks at what a pending wait waits for, and at nothing else. What is found is
    /// told here: the wait is over, and its request not reported.
    pub fn take_awaited(
        &mut self,
        port: &mut impl Port,
        request: RequestId,
        looks: u32,
    ) -> Option<Notified> {
        let at = self.notifications.watches.iter().position(|watch| watch.request == request)?;
        let Watch { first, number, expected, .. } = self.notifications.watches[at];
        let found =
            (0..looks).find_map(|_| self.notifications.look(port, first, number, expected))?;
        self.notifications.watches.remove(at);
        self.requests.withdraw(request);
        Some(found)
    }

    /// Ends pending waits that will never come to anything, whose requests are not reported: those
    /// that `ended` tells.
    #[cold]
    pub fn withdraw_waits(&mut self, ended: impl Fn(RequestId) -> bool) {
        let requests = &mut self.requests;
        self.notifications.watches.retain(|watch| {
            let ends = ended(watch.request);
            if ends {
                requests.withdraw(watch.request);
            }
            !ends
        });
    }

    /// What a completed wait has found, once.
    pub fn found(&mut self, request: RequestId) -> Option<Notified> {
        if self.notifications.found.is_empty() {
            None
        } else {
            self.notifications.found.remove(&request.index)
        }
    }

    /// True if something waits for a counter.
    pub fn awaits_counters(&self) -> bool {
        self.notifications.are_awaited()
    }

    /// True if operations are recorded or in flight.
    pub fn has_operations(&self) -> bool {
        self.records.len() != 0
    }

    /// The port's counters are new ones, which begin at 0. Gives what was known of the old ones.
    pub fn begin_counters(&mut self) -> CounterBases {
        CounterBases(std::mem::take(&mut self.notifications.bases))
    }

    /// The port's counters are the old ones again.
    pub fn resume_counters(&mut self, bases: CounterBases) {
        self.notifications.bases = bases.0;
    }

    /// Part of a sweep: completes the waits that have come to their end.
    pub(super) fn look_at_watches(&mut self, port: &mut impl Port) {
        let mut at = 0;
        while let Some(watch) = self.notifications.watches.get(at) {
            match self.notifications.look(port, watch.first, watch.number, watch.expected) {
                None => at += 1,
                Some(found) => {
                    // In the order of the calls, which is what waits that end together complete in.
                    let request = self.notifications.watches.remove(at).request;
                    self.notifications.found.insert(request.index, found);
                    self.requests.complete(request);
                    self.moves += 1;
                }
            }
        }
    }
}
