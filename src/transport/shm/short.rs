//! Puts and gets of less than 64 KiB on other processes' memory in created windows: which way they
//! take.
//!
//! The kernel copies one, or several by one system call ([`super::gather`]), or those of 16 KiB and
//! more in either process ([`super::reference`]); or they go through the channel, if the target
//! polls. Which is the faster depends on the machine, so it is learned from
//! the times of both: of one operation ([`Fastest`](super::adaptive::Fastest)) where they come
//! alone, and of bursts where they come together ([`Bursts`]). In a burst, the target copies while
//! the origin sends what comes next: a put of 4 KiB that comes alone took 0.5 µs by the kernel and
//! 0.9 µs through the channel, and one of 64 that come together 0.85 and 0.55 µs.

use std::time::{Duration, Instant};

use crate::engine::{Op, Posted, Ticket};
use crate::transport::datatype::Shapes;
use crate::transport::trials::{Trials, Turn};

use super::adaptive::{self, Choice, Way};
use super::channels::Channels;
use super::gather::GATHERED_MAX;
use super::outbox::{Outbox, SHORT};
use super::reference::{BY_KERNEL_MIN, DIVIDED_MIN};

/// What an operation costs that is not complete on return, beside the channel: its record, the
/// sweeps that find it complete, the wait. With 4 KiB, 0.38 µs where a cache line took 0.02 µs, and
/// 0.6 µs where it took 0.11.
const CHANNEL_REST: Duration = Duration::from_nanos(400);
/// Bytes of a burst, at most, or operations of more bytes together.
const BURST: u64 = 64 * 1024;
const BURST_OPERATIONS: u64 = 8;
/// Classes of the lengths of operations; see [`adaptive::class`].
const CLASSES: usize = (DIVIDED_MIN / BY_KERNEL_MIN).ilog2() as usize;

/// Bursts of a trial in each way. The first ones through the channel find its slots in no cache, or
/// in those of the target.
const TURNS: u32 = 8;

/// The ways of bursts.
const KERNEL: usize = 0;
const CHANNEL: usize = 1;
/// Of 20 parts of the kernel's time, the channel must take less than so many: it also takes the
/// time of the target's processor.
const WORTHWHILE: u64 = 19;

/// Operations of one length to one target without a pause: until all are complete, or until there
/// are [`BURST`] bytes and [`BURST_OPERATIONS`].
#[derive(Clone, Copy, Debug)]
struct Burst {
    class: usize,
    way: usize,
    operations: u32,
    bytes: u64,
    /// When it began, if it is on trial.
    begin: Option<Instant>,
}

/// The ways that bursts to one target take.
#[derive(Debug)]
pub(super) struct Bursts {
    trials: [Trials<2, TURNS>; CLASSES],
    /// The one that is being sent.
    now: Option<Burst>,
}

impl Bursts {
    pub(super) const fn new() -> Self {
        Bursts { trials: [Trials::new(KERNEL); CLASSES], now: None }
    }

    /// The way of an operation, which belongs to the burst that is being sent or begins one.
    #[allow(clippy::disallowed_methods, reason = "only to learn which way is the faster")]
    fn way(&mut self, class: usize) -> usize {
        if let Some(Burst { class: other, way, .. }) = self.now {
            if other == class {
                return way;
            }
            // Lengths that alternate have no time of their own.
            self.end(None);
        }
        let (way, begin) = match self.trials[class].next() {
            Turn::Best(way) => (way, None),
            Turn::Trial(way) => (way, Some(Instant::now())),
        };
        self.now = Some(Burst { class, way, operations: 0, bytes: 0, begin });
        way
    }

    /// Counts an operation. True if the burst is over.
    fn count(&mut self, len: u64) -> bool {
        self.now.as_mut().is_some_and(|burst| {
            burst.operations += 1;
            burst.bytes += len;
            burst.bytes >= BURST.max(BURST_OPERATIONS * len)
        })
    }

    /// Whether an operation that is posted now is the first of its burst.
    fn is_first(&self) -> bool {
        self.now.is_some_and(|burst| burst.operations == 0)
    }

    fn is_on_trial(&self) -> bool {
        self.now.is_some_and(|burst| burst.begin.is_some())
    }

    /// Ends the burst, whose operations are complete now if it is on trial. `None`: its time says
    /// nothing. Returns the burst.
    fn end(&mut self, now: Option<Instant>) -> Option<Burst> {
        let burst = self.now.take()?;
        let Burst { class, way, operations, bytes, begin } = burst;
        if let Some(begin) = begin {
            let took = match now {
                Some(now) if operations > 1 => now.duration_since(begin),
                _ => Duration::from_secs(1),
            };
            let trials = &mut self.trials[class];
            if let Some([kernel, channel]) = trials.note(way, took, bytes.max(1) as usize) {
                let is_worthwhile = channel.saturating_mul(20) < kernel.saturating_mul(WORTHWHILE);
                trials.settle(if is_worthwhile { CHANNEL } else { KERNEL });
            }
        }
        Some(burst)
    }
}

impl Outbox {
    /// Ends a burst, since all of it is complete.
    #[inline]
    pub(super) fn end_burst(&mut self) {
        if self.bursts.now.is_some() {
            self.end_burst_now();
        }
    }

    #[cold]
    #[allow(clippy::disallowed_methods, reason = "only to learn which way is the faster")]
    fn end_burst_now(&mut self) {
        let now = self.bursts.is_on_trial().then(Instant::now);
        let Some(Burst { class, way, operations, .. }) = self.bursts.end(now) else { return };
        if way == CHANNEL || class >= adaptive::class(GATHERED_MAX, BY_KERNEL_MIN) {
            self.gather.note(operations > 1);
        }
    }
}

impl Channels {
    /// Starts a put or get of less than [`DIVIDED_MIN`] bytes.
    pub(super) fn post_short(
        &mut self,
        index: u32,
        op: &Op,
        ticket: Ticket,
        shapes: &mut Shapes,
    ) -> Posted {
        let outbox = &mut self.outboxes[index as usize];
        if !outbox.gather.takes(op.kind) {
            self.copy_gathered(index);
        }
        let outbox = &mut self.outboxes[index as usize];
        match outbox.bursts.now.is_some() || outbox.gather.tries() {
            true => self.post_in_burst(index, op, ticket, shapes),
            false => self.post_single(index, op, ticket, shapes),
        }
    }

    /// Whether the channel is a choice: ranks have cores of their own, and the target polls.
    fn may_choose(&self, index: u32, op: &Op) -> bool {
        let polls = &self.context.parts.rank(op.target).polls.0;
        self.learns() && !self.outboxes[index as usize].stall.known_unresponsive(polls)
    }

    /// Starts one of several that come together.
    fn post_in_burst(
        &mut self,
        index: u32,
        op: &Op,
        ticket: Ticket,
        shapes: &mut Shapes,
    ) -> Posted {
        let may_choose = self.may_choose(index, op);
        let outbox = &mut self.outboxes[index as usize];
        let way = match may_choose {
            true => outbox.bursts.way(adaptive::class(op.len, BY_KERNEL_MIN)),
            false => {
                outbox.bursts.end(None);
                KERNEL
            }
        };
        let posted = match way {
            CHANNEL => self.post_through(index, op, ticket, shapes),
            _ if op.len >= GATHERED_MAX => {
                match self.post_in_either(index, op, ticket, shapes) {
                    // Complete only with the next poll, so that the burst ends with that.
                    Posted::Complete if self.outboxes[index as usize].bursts.is_first() => {
                        self.outboxes[index as usize].add_finished(ticket);
                        self.activate(index);
                        Posted::Pending
                    }
                    posted => posted,
                }
            }
            _ => {
                let there = self.context.parts.rank(op.target).info.0.memory + op.disp;
                outbox.gather.add(op, ticket, there);
                if outbox.gather.is_full() {
                    self.copy_gathered(index);
                }
                self.activate(index);
                Posted::Pending
            }
        };
        let outbox = &mut self.outboxes[index as usize];
        if posted != Posted::NoResource && outbox.bursts.count(op.len) {
            if outbox.bursts.is_on_trial() {
                self.drive_while(index, |outbox| !outbox.is_applied());
            }
            self.outboxes[index as usize].end_burst();
        }
        posted
    }

    /// Copies one that comes alone in the way that has been the faster for its length: by
    /// cross-memory attach, or through the channel if the target polls. A system call takes from a
    /// third of a microsecond to more than one, a round trip of the channel about the same.
    #[allow(clippy::disallowed_methods, reason = "only to learn which way is the faster")]
    fn post_single(&mut self, index: u32, op: &Op, ticket: Ticket, shapes: &mut Shapes) -> Posted {
        if !self.may_choose(index, op) {
            return self.post_in_either(index, op, ticket, shapes);
        }
        let class = adaptive::class(op.len, BY_KERNEL_MIN);
        let Choice { way, timed } = self.outboxes[index as usize].short_ways[class].choose();
        let begin = timed.then(Instant::now);
        let posted = match way {
            Way::Channel => self.post_through(index, op, ticket, shapes),
            _ if timed => self.post_alone(index, op, ticket, shapes),
            _ => self.post_in_either(index, op, ticket, shapes),
        };
        if let Some(took) = self.end_trial(index, begin, posted) {
            let rest = if way == Way::Channel { CHANNEL_REST } else { Duration::ZERO };
            self.outboxes[index as usize].short_ways[class].note(way, took + rest);
        }
        posted
    }

    /// Starts one that the kernel copies, in this process or, if it is not too short for that, in
    /// the target.
    fn post_in_either(
        &mut self,
        index: u32,
        op: &Op,
        ticket: Ticket,
        shapes: &mut Shapes,
    ) -> Posted {
        if op.len >= GATHERED_MAX && self.outboxes[index as usize].post_reference(op, ticket) {
            self.activate(index);
            self.wake(index);
            return Posted::Pending;
        }
        self.post_alone(index, op, ticket, shapes)
    }

    /// Starts one through the channel.
    fn post_through(&mut self, index: u32, op: &Op, ticket: Ticket, shapes: &mut Shapes) -> Posted {
        match op.len <= SHORT as u64 {
            true => self.post_slot(index, op, ticket),
            false => self.post_long(index, op, ticket, shapes),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Sends bursts of `operations` puts of 4 KiB that take these times each. Returns how many
    /// bursts went through the channel.
    #[allow(clippy::disallowed_methods, reason = "a base for times that the test makes up")]
    fn sent(bursts: &mut Bursts, count: u32, operations: u32, times: [u64; 2]) -> u32 {
        let mut through = 0;
        for _ in 0..count {
            let way = bursts.way(3);
            through += way as u32;
            for _ in 1..operations {
                assert!(!bursts.count(4096), "not {BURST} bytes yet");
                assert_eq!(bursts.way(3), way, "a burst has one way");
            }
            bursts.count(4096);
            let begin = bursts.now.and_then(|burst| burst.begin);
            let took = Duration::from_nanos(times[way] * u64::from(operations));
            bursts.end(begin.map(|begin| begin + took));
            assert!(bursts.now.is_none());
        }
        through
    }

    #[test]
    fn bursts_take_the_way_that_is_faster_for_several() {
        let mut bursts = Bursts::new();
        assert!(sent(&mut bursts, 2000, 15, [850, 550]) > 1500);
        assert!(sent(&mut bursts, 5000, 15, [540, 550]) < 2000, "the kernel became faster");
        assert!(sent(&mut bursts, 5000, 15, [560, 550]) < 400, "not worth the target's time");
        let mut bursts = Bursts::new();
        assert!(sent(&mut bursts, 1000, 1, [850, 550]) < 100, "the time of one says nothing");
    }

    #[test]
    fn a_burst_of_longer_operations_has_several_of_them() {
        let (mut bursts, len) = (Bursts::new(), 48 * 1024);
        let class = adaptive::class(len, BY_KERNEL_MIN);
        assert_eq!(class, CLASSES - 1, "the longest class");
        bursts.way(class);
        assert!((1..BURST_OPERATIONS).all(|_| !bursts.count(len)));
        assert!(bursts.count(len));
    }

    #[test]
    fn a_burst_ends_with_its_bytes_or_with_another_length() {
        let mut bursts = Bursts::new();
        bursts.way(3);
        assert!((1..BURST / 4096).all(|_| !bursts.count(4096)));
        assert!(bursts.count(4096));
        bursts.end(None);
        bursts.way(3);
        bursts.count(4096);
        bursts.way(0);
        let now = bursts.now.expect("one has begun");
        assert_eq!((now.class, now.operations), (0, 0));
        // Lengths that alternate end each trial without a time.
        for turn in 0..1000 {
            bursts.way(turn % 2);
            bursts.count(512);
        }
        assert!(bursts.trials.iter_mut().all(|trials| trials.next() == Turn::Best(KERNEL)));
    }
}
