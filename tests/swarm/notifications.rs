//! Notifications in random programs: sent behind operations in any epoch, and waited for or reset
//! by their target between its other calls.
//!
//! A wait is only for notifications of earlier items, so it causes no cyclic wait [EP-10].

use mpix_rma::engine::*;
use mpix_rma::sim::Step;
use mpix_rma::transport::datatype::element::reduction;

use super::generator::Generator;
use super::operations::{NO_OP, Open};
use super::program::*;
use super::shapes::words_of;

/// All ranks raise this counter. It is never reset.
pub const SHARED: u32 = 0;
/// All ranks raise this counter. Its rank resets it.
const TAKEN: u32 = 1;
/// All operations on a counted window raise this counter, unless they name another notification.
pub const PUTS: u32 = 2;
/// Counters from here on are raised once each.
const OWN: u32 = 3;

/// What a counted window adds to its operations.
pub fn counted() -> Notification {
    Notification::counter(PUTS)
}

/// The counters of a rank, according to the calls so far.
pub struct Counts {
    /// Number of notifications per counter.
    pub raised: Vec<u64>,
    /// Counters that are raised once, and what the rank may do after the notification.
    announced: Vec<(u32, Announced)>,
}

/// What a notification announces.
#[derive(Clone, Copy)]
pub enum Announced {
    /// This content is in place.
    There(Content),
    /// This content was read and may be overwritten.
    Read(Content),
}

impl Announced {
    /// Content that stays in place unless the rank overwrites it.
    pub fn left_alone(&self) -> Option<Content> {
        if let Announced::Read(content) = self { Some(*content) } else { None }
    }
}

impl Counts {
    pub fn new() -> Self {
        Counts { raised: vec![0; OWN as usize], announced: Vec::new() }
    }
}

impl Generator {
    /// A notification to `target`, without data.
    pub fn notify_alone(&mut self, open: &Open, target: Rank, notification: Notification) {
        let notification = Some(notification);
        let id = self.plan(Plan { window: open.window, notification, target, len: 0, ..NO_OP });
        self.call(open.me, Call::Op(id));
    }

    /// An operation with the notification that its window adds, if it names none itself.
    pub fn counted(&mut self, plan: Plan) -> Plan {
        if plan.notification.is_some() || !self.program.counted[plan.window as usize] {
            return plan;
        }
        self.cells(plan.window, plan.target).counts.raised[PUTS as usize] += 1;
        self.count("operation on a counted window");
        Plan { notification: Some(counted()), ..plan }
    }

    fn notify(&mut self, open: &Open, target: Rank, counter: u32) {
        self.notify_alone(open, target, Notification::counter(counter));
        self.cells(open.window, target).counts.raised[counter as usize] += 1;
    }

    /// An operation and its notification, or a notification alone.
    pub fn notifying(&mut self, open: &mut Open, target: Rank) {
        if !self.features.notifications {
            return;
        }
        match self.rng.u8(0..4) {
            0 | 1 => self.own_notified(open, target),
            2 => {
                for _ in 0..self.rng.u32(1..4) {
                    self.notify(open, target, SHARED);
                }
                self.count("notification alone");
            }
            _ => {
                self.notify(open, target, TAKEN);
                self.count("notification alone");
            }
        }
    }

    /// A notification with a counter of its own.
    fn own_notified(&mut self, open: &mut Open, target: Rank) {
        let counter = self.cells(open.window, target).counts.raised.len() as u32;
        let announced = self.own_operation(open, target, Notification::counter(counter));
        let counts = &mut self.cells(open.window, target).counts;
        counts.raised.push(1);
        counts.announced.push((counter, announced));
    }

    /// An operation on memory of its own, and its notification: of the operation, or alone behind
    /// it.
    pub fn own_operation(
        &mut self,
        open: &mut Open,
        target: Rank,
        told: Notification,
    ) -> Announced {
        let window = open.window;
        let len = self.length();
        let kind = [
            OpKind::Put,
            OpKind::Accumulate,
            OpKind::Get,
            OpKind::GetAccumulate,
            OpKind::CompareAndSwap,
        ][self.rng.usize(0..5)];
        let len = match kind {
            OpKind::Put => len,
            OpKind::Get if self.features.long_transfers => len.next_multiple_of(8),
            _ => 8,
        };
        let (disp, value) = (self.alloc(window, target, len), self.value());
        let content = Content { window, rank: target, disp, len, value };
        // Only put and get have tagged forms: other calls, which the tag follows, count themselves.
        let counts = self.program.counted[window as usize]
            && matches!(told.kind(), NotificationKind::Tag(_))
            && !matches!(kind, OpKind::Put | OpKind::Get);
        let notification = Some(told).filter(|_| !self.one_in(3) && !counts);
        let plan = Plan { kind, target, disp, len, notification, ..NO_OP };
        match kind {
            OpKind::Get => {
                self.program.begin.push(content);
                let expect = if len == 8 {
                    Expect::Exactly(value)
                } else {
                    self.words(words_of(value, len / WORD))
                };
                self.issue(open, Plan { expect, ..plan });
                self.count("get with notification");
            }
            OpKind::Accumulate => {
                self.issue(
                    open,
                    Plan { reduction: reduction::SUM, source: Source::Value(value), ..plan },
                );
                self.count("accumulate with notification");
            }
            OpKind::GetAccumulate | OpKind::CompareAndSwap => {
                // The memory still holds 0, with which a swap compares.
                let (reduction, source) = (reduction::SUM, Source::Value(value));
                self.issue(open, Plan { reduction, source, expect: Expect::Exactly(0), ..plan });
                self.count("fetching atomic with notification");
            }
            _ => {
                self.issue(open, Plan { source: Source::Value(value), ..plan });
                self.count("put with notification");
            }
        }
        if notification.is_none() {
            self.notify_alone(open, target, told);
        }
        if kind == OpKind::Get {
            return Announced::Read(content);
        }
        self.program.end.push(content);
        Announced::There(content)
    }

    /// Between two items a rank may wait for counters or reset them.
    pub fn listen(&mut self, me: Rank) {
        if !self.features.notifications {
            return;
        }
        let window = self.rng.u32(0..self.windows);
        let counts = &self.cells[window as usize][me as usize].counts;
        let [shared, taken, puts] = [SHARED, TAKEN, PUTS].map(|at| counts.raised[at as usize]);
        let own = counts.raised.len() as u32 - OWN;
        match self.rng.u8(0..6) {
            0 if shared > 0 => {
                self.count("threshold");
                let (expected, blocks) = (self.rng.u64(0..=shared), self.blocks());
                self.await_counters(window, me, SHARED, 1, expected, blocks);
            }
            1 if own > 0 => {
                self.count("wait for some");
                let blocks = self.blocks();
                self.await_counters(window, me, OWN, own, 1, blocks);
            }
            2 => {
                self.count("reset");
                let until = if self.rng.bool() { taken } else { 0 };
                self.call(me, Call::TakeLoop { window, counter: TAKEN, until });
            }
            3 if puts > 0 => {
                self.count("threshold of operations");
                let (expected, blocks) = (self.rng.u64(0..=puts), self.blocks());
                self.await_counters(window, me, PUTS, 1, expected, blocks);
            }
            _ => self.hear(window, me),
        }
    }

    fn await_counters(
        &mut self,
        window: u32,
        me: Rank,
        first: u32,
        number: u32,
        expected: u64,
        blocks: bool,
    ) -> bool {
        self.closing(me, blocks, &[], |how| Step::AwaitCounters {
            window,
            first,
            number,
            expected,
            how,
        })
    }

    /// Memory announced by a unique counter is visible once the counter has risen, without other
    /// synchronization.
    fn hear(&mut self, window: u32, me: Rank) {
        let counts = &self.cells[window as usize][me as usize].counts;
        if counts.announced.is_empty() {
            return;
        }
        let which = self.rng.usize(0..counts.announced.len());
        let (counter, announced) = counts.announced[which];
        // A rank that has only started to wait may wait again.
        let blocks = self.blocks() || self.rng.bool();
        if !self.await_counters(window, me, counter, 1, 1, blocks) {
            return;
        }
        self.count("data seen by their notification");
        self.cells(window, me).counts.announced.swap_remove(which);
        self.handle_notification(me, announced);
    }

    /// A rank was notified: it checks or overwrites the announced memory.
    pub fn handle_notification(&mut self, me: Rank, announced: Announced) {
        match announced {
            Announced::There(content) => self.call(me, Call::Check(content)),
            Announced::Read(content) => {
                let content = Content { value: self.value(), ..content };
                self.call(me, Call::Store(content));
                self.program.end.push(content);
            }
        }
    }

    /// At the end each rank waits for the remaining notifications, or does not.
    pub fn hear_rest(&mut self, window: u32, me: Rank) {
        if self.features.notifications && self.rng.bool() {
            for _ in 0..2 * self.cells(window, me).counts.announced.len() {
                self.hear(window, me);
            }
            let until = self.cells(window, me).counts.raised[TAKEN as usize];
            self.call(me, Call::TakeLoop { window, counter: TAKEN, until });
        }
    }

    /// Expected counters at the end, and announced memory that its rank did not change.
    pub fn conclude_counts(&mut self, window: u32, rank: Rank) {
        let counts = &self.cells[window as usize][rank as usize].counts;
        let raised = (0..).zip(&counts.raised).map(|(counter, raised)| Count {
            window,
            rank,
            counter,
            raised: *raised,
        });
        self.program.counts.extend(raised);
        self.program
            .end
            .extend(counts.announced.iter().filter_map(|(_, announced)| announced.left_alone()));
    }
}
