//! Notifications in random programs: raised behind operations in any epoch, waited for and taken by
//! their target between its other calls.
//!
//! A wait is for what was called in earlier items alone, so it makes no circle [EP-10]: whatever a
//! notification needs stands before it.

use mpix_rma::engine::*;
use mpix_rma::sim::Step;
use mpix_rma::transport::datatype::element::reduction;

use super::generator::Generator;
use super::operations::{NO_OP, Open};
use super::program::*;

/// Everybody raises it; it is never reset.
const SHARED: u32 = 0;
/// Everybody raises it; its rank takes what has come.
const TAKEN: u32 = 1;
/// From here on each counter is raised once.
const OWN: u32 = 2;

/// Counters of a rank, as far as calls have been made.
pub struct Counts {
    /// Notifications of each.
    pub raised: Vec<u64>,
    /// Counters that are raised once, with what the rank may do when it has seen them.
    told: Vec<(u32, Told)>,
}

/// What a notification says.
#[derive(Clone, Copy)]
pub enum Told {
    /// This is there.
    There(Content),
    /// This has been read, and may be written.
    Read(Content),
}

impl Told {
    /// What stays as it was read if it is not written.
    pub fn left_alone(&self) -> Option<Content> {
        if let Told::Read(content) = self { Some(*content) } else { None }
    }
}

impl Counts {
    pub fn new() -> Self {
        Counts { raised: vec![0; OWN as usize], told: Vec::new() }
    }
}

impl Generator {
    /// A notification, to `target`.
    fn notify(&mut self, open: &Open, target: Rank, counter: u32) {
        let disp = counter as usize;
        let id = self.plan(Plan {
            window: open.window,
            kind: OpKind::Notify,
            target,
            disp,
            len: 0,
            ..NO_OP
        });
        self.call(open.me, Call::Op(id));
        self.cells(open.window, target).counts.raised[disp] += 1;
    }

    /// An operation and its notification, or one alone.
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

    /// With a counter of its own.
    fn own_notified(&mut self, open: &mut Open, target: Rank) {
        let told = self.own_operation(open, target);
        let counts = &mut self.cells(open.window, target).counts;
        let counter = counts.raised.len() as u32;
        counts.raised.push(0);
        counts.told.push((counter, told));
        self.notify(open, target, counter);
    }

    /// On memory that nothing else touches, to be notified of.
    pub fn own_operation(&mut self, open: &mut Open, target: Rank) -> Told {
        let window = open.window;
        let len = if self.features.bulk && self.one_in(3) {
            self.rng.usize(1..6000)
        } else {
            self.rng.usize(1..40)
        };
        let kind = [OpKind::Put, OpKind::Accumulate, OpKind::Get][self.rng.usize(0..3)];
        let len = if kind == OpKind::Put { len } else { 8 };
        let (disp, value) = (self.alloc(window, target, len), self.value());
        let content = Content { window, rank: target, disp, len, value };
        let plan = Plan { kind, target, disp, len, ..NO_OP };
        match kind {
            OpKind::Get => {
                self.program.begin.push(content);
                self.issue(open, Plan { expect: Expect::Exactly(value), ..plan });
                self.count("get with notification");
            }
            OpKind::Accumulate => {
                self.issue(
                    open,
                    Plan { reduction: reduction::SUM, source: Source::Value(value), ..plan },
                );
                self.count("accumulate with notification");
            }
            _ => {
                self.issue(open, Plan { source: Source::Value(value), ..plan });
                self.count("put with notification");
            }
        }
        if kind == OpKind::Get {
            return Told::Read(content);
        }
        self.program.end.push(content);
        Told::There(content)
    }

    /// Between two items a rank may wait for what it is told, or take it.
    pub fn listen(&mut self, me: Rank) {
        if !self.features.notifications {
            return;
        }
        let window = self.rng.u32(0..self.windows);
        let counts = &self.cells[window as usize][me as usize].counts;
        let (shared, taken, own) =
            (counts.raised[0], counts.raised[1], counts.raised.len() as u32 - OWN);
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

    /// What is told by a counter of its own is there as soon as that is seen, and nothing else was
    /// waited for.
    fn hear(&mut self, window: u32, me: Rank) {
        let counts = &self.cells[window as usize][me as usize].counts;
        if counts.told.is_empty() {
            return;
        }
        let which = self.rng.usize(0..counts.told.len());
        let (counter, told) = counts.told[which];
        // Who has only begun to wait may wait again.
        let blocks = self.blocks() || self.rng.bool();
        if !self.await_counters(window, me, counter, 1, 1, blocks) {
            return;
        }
        self.count("data seen by their notification");
        self.cells(window, me).counts.told.swap_remove(which);
        self.heard(me, told);
    }

    /// A rank has been told, and looks or writes.
    pub fn heard(&mut self, me: Rank, told: Told) {
        match told {
            Told::There(content) => self.call(me, Call::See(content)),
            Told::Read(content) => {
                let content = Content { value: self.value(), ..content };
                self.call(me, Call::Store(content));
                self.program.end.push(content);
            }
        }
    }

    /// At the end each rank hears the rest, or not.
    pub fn hear_rest(&mut self, window: u32, me: Rank) {
        if self.features.notifications && self.rng.bool() {
            for _ in 0..2 * self.cells(window, me).counts.told.len() {
                self.hear(window, me);
            }
            let until = self.cells(window, me).counts.raised[TAKEN as usize];
            self.call(me, Call::TakeLoop { window, counter: TAKEN, until });
        }
    }

    /// What counters hold at the end, and memory that its rank was told of and has left alone.
    pub fn conclude_counts(&mut self, window: u32, rank: Rank) {
        let counts = &self.cells[window as usize][rank as usize].counts;
        let raised = (0..).zip(&counts.raised).map(|(counter, raised)| Count {
            window,
            rank,
            counter,
            raised: *raised,
        });
        self.program.counts.extend(raised);
        self.program.end.extend(counts.told.iter().filter_map(|(_, told)| told.left_alone()));
    }
}
