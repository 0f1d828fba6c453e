//! Notifications: counters that operations raise at their target, and waits for them.
//!
//! A notification is part of its operation ([`Op::notification`](super::Op::notification)), which
//! is recorded, posted and completed like any other, in every kind of epoch [NA-2]. The port
//! applies it after the operation's data and after the operations posted to the same target before
//! [NA-1].
//!
//! The port's counters only rise. All additions are made in one atomicity domain [LK-7]. The
//! application sees the counter minus a base that is private to this process. A reset moves the
//! base, so no concurrent notification is lost [NA-3].

use hashbrown::HashMap;

use super::counter_waits::{CounterWaits, Watch};
use super::port::{Outcome, Port, RequestId};
use super::window::Window;

/// A counter that has reached the expected value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notified {
    /// Counter number.
    pub index: u32,
    /// Its value when it was read.
    pub value: u64,
}

/// The bases of counters that were replaced; see [`Window::begin_counters`].
#[derive(Debug)]
pub struct CounterBases(HashMap<u32, u64>);

/// Bases of this process's counters, and waits for them.
#[derive(Debug, Default)]
pub(super) struct Notifications {
    /// Bases of the counters that were ever reset.
    bases: HashMap<u32, u64>,
    waits: CounterWaits,
    /// Results of completed waits that were not queried yet.
    found: HashMap<u32, Notified>,
    found_all: Option<Box<HashMap<u32, Vec<u64>>>>,
    /// The counter that [`Window::has_counted`] read last, unless it was reset since.
    read: Option<Notified>,
}

impl Window {
    /// Value of a counter of this process: notifications since the last reset. The operations
    /// before a counted notification are visible to the caller.
    #[inline]
    pub fn counter(&mut self, port: &mut impl Port, index: u32) -> u64 {
        let base = self.notifications.bases.get(&index).copied().unwrap_or(0);
        port.counter(index).wrapping_sub(base)
    }

    /// Returns the value of a counter and resets it to 0, atomically.
    pub fn reset_counter(&mut self, port: &mut impl Port, index: u32) -> u64 {
        let sum = port.counter(index);
        let base = self.notifications.bases.insert(index, sum).unwrap_or(0);
        self.notifications.read = None;
        sum.wrapping_sub(base)
    }

    /// Whether a counter is at least `expected`. If it already was at the last look, does not read
    /// it again: origins that notify in a row would lose its cache line once for each of them.
    #[inline]
    pub fn has_counted(&mut self, port: &mut impl Port, index: u32, expected: u64) -> bool {
        if self.had_counted(index, expected) {
            return true;
        }
        let value = self.counter(port, index);
        self.notifications.read = Some(Notified { index, value });
        value >= expected
    }

    /// Whether the last [`has_counted`](Self::has_counted) was for the same counter and found that
    /// it is at least `expected`.
    #[inline(always)]
    pub fn had_counted(&self, index: u32, expected: u64) -> bool {
        self.last_count(index).is_some_and(|value| value >= expected)
    }

    /// What the last [`has_counted`](Self::has_counted) has read, if it was for this counter.
    #[inline(always)]
    #[must_use]
    pub fn last_count(&self, index: u32) -> Option<u64> {
        self.notifications.read.filter(|read| read.index == index).map(|read| read.value)
    }

    /// Finds the first of `number` counters from `first` on whose value is at least `expected`.
    pub fn look_at_counters(
        &mut self,
        port: &mut impl Port,
        first: u32,
        number: u32,
        expected: u64,
    ) -> Option<Notified> {
        (first..first + number).find_map(|index| {
            let value = self.counter(port, index);
            (value >= expected).then_some(Notified { index, value })
        })
    }

    /// Starts a nonblocking wait until one of `number` counters from `first` on is at least
    /// `expected`. Returns the counter if one already is. Otherwise [`found`](Self::found) returns
    /// it after the request was reported complete.
    pub fn await_counters(
        &mut self,
        port: &mut impl Port,
        first: u32,
        number: u32,
        expected: u64,
    ) -> (Outcome, Option<Notified>) {
        if let Some(found) = self.look_at_counters(port, first, number, expected) {
            return (Outcome::Complete, Some(found));
        }
        let request = self.requests.open();
        let watch = Watch { request, first, number, expected, of_list: false };
        self.notifications.waits.push(watch);
        (Outcome::Pending(request), None)
    }

    /// Starts a nonblocking wait until each of the counters from `first` on has been at least its
    /// threshold. Returns their values if they already are. Otherwise
    /// [`found_all`](Self::found_all) returns them after the request was reported complete.
    pub fn await_all_counters(
        &mut self,
        port: &mut impl Port,
        first: u32,
        thresholds: &[u64],
    ) -> (Outcome, Option<Vec<u64>>) {
        let mut values = Vec::new();
        for (index, threshold) in (first..).zip(thresholds) {
            let value = self.counter(port, index);
            if value < *threshold {
                break;
            }
            values.push(value);
        }
        if values.len() == thresholds.len() {
            return (Outcome::Complete, Some(values));
        }
        let request = self.requests.open();
        self.notifications.waits.push_list(request, first, thresholds, values);
        (Outcome::Pending(request), None)
    }

    /// What the pending wait for counters to which `request` belongs looks at, if it does.
    #[inline]
    pub fn watch_of(&self, request: RequestId) -> Option<Watch> {
        self.notifications.waits.get(request)
    }

    /// Whether a look at the counters would get a wait further.
    #[inline]
    pub fn is_reached(&mut self, port: &mut impl Port, watch: Watch) -> bool {
        self.look(port, watch).is_some()
    }

    fn look(&mut self, port: &mut impl Port, watch: Watch) -> Option<Notified> {
        self.look_at_counters(port, watch.first, watch.number, watch.expected)
    }

    /// Polls the counters of a pending wait. If it returns a counter, the wait has ended and its
    /// request is not reported. For a list, that is the last one, and
    /// [`found_all`](Self::found_all) returns the values.
    pub fn take_awaited(&mut self, port: &mut impl Port, request: RequestId) -> Option<Notified> {
        let watch = self.notifications.waits.get(request)?;
        let found = self.follow(port, watch)?;
        self.requests.withdraw(request);
        Some(found)
    }

    /// Ends a pending wait for one counter, which the caller goes on with: for which one, and what
    /// it waits for. Its request is not reported. `None`: it waits for several, or is complete.
    pub fn take_over(&mut self, request: RequestId) -> Option<(u32, u64)> {
        let waits = &mut self.notifications.waits;
        let watch = waits.get(request).filter(|watch| watch.number == 1 && !watch.of_list)?;
        waits.remove(request);
        self.requests.withdraw(request);
        Some((watch.first, watch.expected))
    }

    /// Takes a wait as far as its counters allow. If it ends, removes it and returns the counter
    /// that it looked at last.
    fn follow(&mut self, port: &mut impl Port, mut watch: Watch) -> Option<Notified> {
        loop {
            let found = self.look(port, watch)?;
            match self.go_on(watch, found) {
                Some(next) => watch = next,
                None => return Some(found),
            }
        }
    }

    /// A wait has found a counter. Returns what it looks at next; `None`: it has ended.
    fn go_on(&mut self, watch: Watch, found: Notified) -> Option<Watch> {
        let Notifications { waits, found_all, .. } = &mut self.notifications;
        let values = if watch.of_list {
            match waits.next_of_list(watch.request, found.value) {
                Ok(next) => return Some(next),
                Err(values) => Some(values),
            }
        } else {
            None
        };
        waits.remove(watch.request);
        if let Some(values) = values {
            found_all.get_or_insert_default().insert(watch.request.index, values);
        }
        None
    }

    /// Drops the pending waits selected by `ended`, which can no longer succeed. Their requests are
    /// not reported.
    #[cold]
    pub fn withdraw_waits(&mut self, ended: impl Fn(RequestId) -> bool) {
        let requests = &mut self.requests;
        self.notifications.waits.remove_if(|request| {
            let ends = ended(request);
            if ends {
                requests.withdraw(request);
            }
            ends
        });
    }

    /// The counter that completed a wait, returned once.
    pub fn found(&mut self, request: RequestId) -> Option<Notified> {
        if self.notifications.found.is_empty() {
            None
        } else {
            self.notifications.found.remove(&request.index)
        }
    }

    /// The values of the counters that completed a wait for a list, returned once.
    pub fn found_all(&mut self, request: RequestId) -> Option<Vec<u64>> {
        self.notifications.found_all.as_mut()?.remove(&request.index)
    }

    /// True if a wait for counters is pending.
    pub fn awaits_counters(&self) -> bool {
        !self.notifications.waits.is_empty()
    }

    /// True if operations are recorded or in flight.
    pub fn has_operations(&self) -> bool {
        self.records.len() != 0
    }

    /// Call this when the port gets new counters, which start at 0. Returns the bases of the old
    /// ones.
    pub fn begin_counters(&mut self) -> CounterBases {
        self.notifications.read = None;
        CounterBases(std::mem::take(&mut self.notifications.bases))
    }

    /// Call this when the port gets its old counters back. Restores their bases.
    pub fn resume_counters(&mut self, bases: CounterBases) {
        self.notifications.read = None;
        self.notifications.bases = bases.0;
    }

    /// Sets how many waits for counters a sweep looks at, in turns, so that its cost does not
    /// depend on how many there are. Only for callers that sweep again and again. All by default.
    pub fn set_waits_per_sweep(&mut self, most: usize) {
        self.notifications.waits.set_per_turn(most);
    }

    /// Part of a sweep: completes waits whose counters have reached the expected value.
    pub(super) fn poll_counter_waits(&mut self, port: &mut impl Port) {
        for _ in 0..self.notifications.waits.turn() {
            let Some(watch) = self.notifications.waits.next() else { return };
            let Some(found) = self.follow(port, watch) else { continue };
            if !watch.of_list {
                self.notifications.found.insert(watch.request.index, found);
            }
            self.requests.complete(watch.request);
            self.state_changes += 1;
        }
    }
}
