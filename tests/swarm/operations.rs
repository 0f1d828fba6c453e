//! Operations of a rank in one of its epochs.

use mpix_rma::engine::*;
use mpix_rma::sim::Step;
use mpix_rma::transport::datatype::element::reduction;
use mpix_rma::transport::sim::US;

use super::generator::Generator;
use super::program::*;

/// An epoch that a rank has open.
pub struct Open {
    pub me: Rank,
    pub window: u32,
    /// The epoch allows flushes and R-forms.
    pub passive: bool,
    /// It is a fence epoch.
    pub in_fence: bool,
    /// The rank may wait here for its own flushes and R-forms.
    pub may_wait: bool,
    /// Operations so far, with their target and lane.
    pub ops: Vec<(Rank, u32, OpId)>,
    /// The lanes on which a lock_all was called.
    pub lock_alls: Vec<u32>,
    /// Targets whose `last` cell this epoch has written. A second write would conflict.
    lasts: Vec<Rank>,
    /// Puts to memory of its own: target and content.
    pub puts: Vec<Content>,
    /// The targets of a fence epoch, those of mere notifications too.
    pub reached: Vec<Rank>,
}

impl Open {
    pub fn new(me: Rank, window: u32, passive: bool, may_wait: bool) -> Self {
        Open {
            me,
            window,
            passive,
            in_fence: false,
            may_wait,
            ops: Vec::new(),
            lock_alls: Vec::new(),
            lasts: Vec::new(),
            puts: Vec::new(),
            reached: Vec::new(),
        }
    }

    /// A fence epoch.
    pub fn in_fence(me: Rank, window: u32) -> Self {
        Open { in_fence: true, ..Open::new(me, window, false, false) }
    }

    /// The epoch's operations to `target`, or to all targets.
    pub fn ids(&self, target: Option<Rank>) -> Vec<OpId> {
        self.ids_where(|to, _| target.is_none_or(|target| target == to))
    }

    /// The same, of those that were issued on this lane.
    pub fn ids_of_lane(&self, lane: u32, target: Option<Rank>) -> Vec<OpId> {
        self.ids_where(|to, by| by == lane && target.is_none_or(|target| target == to))
    }

    fn ids_where(&self, wanted: impl Fn(Rank, u32) -> bool) -> Vec<OpId> {
        self.ops.iter().filter(|(to, lane, _)| wanted(*to, *lane)).map(|(_, _, id)| *id).collect()
    }
}

pub const NO_OP: Plan = Plan {
    window: 0,
    target: 0,
    kind: OpKind::Put,
    notification: None,
    reduction: reduction::REPLACE,
    disp: 0,
    len: 8,
    source: Source::Nothing,
    compare: 0,
    expect: Expect::Open,
    sides: None,
};

impl Generator {
    /// One operation, sometimes in its R-form.
    pub fn issue(&mut self, open: &mut Open, plan: Plan) -> OpId {
        let plan = self.counted(Plan { window: open.window, ..plan });
        let id = self.plan(plan);
        open.ops.push((plan.target, self.lanes[open.me as usize][open.window as usize], id));
        if !(open.passive && self.features.requests && self.one_in(3)) {
            self.call(open.me, Call::Op(id));
            return id;
        }
        self.count("R-form");
        let slot = self.slot_for(open.me, vec![id]);
        self.call(open.me, Call::Request(id, slot));
        id
    }

    /// Some operations to `target`.
    pub fn operations(&mut self, open: &mut Open, target: Rank) {
        for _ in 0..self.rng.u32(0..4) {
            let kind = self.rng.u8(0..22);
            // The operations of these kinds take effect in the order of the calls.
            if matches!(kind, 9 | 12 | 16..=18) {
                self.on_lane(open.window, open.me, 0);
            } else {
                self.on_any_lane(open.window, open.me);
            }
            match kind {
                0..=2 => self.own_put(open, target),
                3 => self.own_accumulate(open, target),
                4 => self.count_up(open, target),
                5 => self.constant(open, target),
                6 => self.ticket(open, target),
                7 => self.elect(open, target),
                8 => self.last(open, target),
                9 => self.sequence(open, target),
                10 | 11 => self.own_shaped(open, target),
                12 => self.shaped_sequence(open, target),
                13..=15 => self.notifying(open, target),
                16..=18 => self.telling(open, target),
                19 => self.in_order(open, target),
                _ => self.flush(open, target),
            }
        }
        if self.one_in(4) {
            self.conflict(open);
        }
        self.maybe_compute(open.me);
    }

    /// A put to memory of its own, sometimes read back after a flush or an order.
    fn own_put(&mut self, open: &mut Open, target: Rank) {
        // A single word can be read back.
        let len = if self.one_in(4) { 8 } else { self.length() };
        let (disp, value) = (self.alloc(open.window, target, len), self.value());
        let content = Content { window: open.window, rank: target, disp, len, value };
        self.program.end.push(content);
        open.puts.push(content);
        self.issue(open, Plan { target, disp, len, source: Source::Value(value), ..NO_OP });
        self.count("put");
        if len != 8 {
            return;
        }
        if self.features.orders && self.rng.bool() {
            self.order(open, target);
        } else if open.passive && open.may_wait && self.features.flushes {
            self.flush_how(open, Some(target), false, true);
        } else {
            return;
        }
        let read = Plan { kind: OpKind::Get, target, disp, ..NO_OP };
        self.issue(open, Plan { expect: Expect::Exactly(value), ..read });
    }

    /// Later operations take effect after earlier ones [OR-1].
    fn order(&mut self, open: &Open, target: Rank) {
        let target = self.rng.bool().then_some(target);
        self.step(open.me, Step::Order { window: open.window, target });
        self.count(if target.is_some() { "order" } else { "order_all" });
    }

    /// Operations of several kinds on one word, each of which takes effect after those before.
    fn in_order(&mut self, open: &mut Open, target: Rank) {
        if !self.features.orders {
            return;
        }
        let (disp, mut held) = (self.alloc(open.window, target, 8), 0);
        for _ in 0..self.rng.u32(2..6) {
            let operand = self.value();
            let kinds = [OpKind::Put, OpKind::Get, OpKind::Accumulate, OpKind::GetAccumulate];
            let kind = kinds[self.rng.usize(0..4)];
            let fetches = matches!(kind, OpKind::Get | OpKind::GetAccumulate);
            let expect = if fetches { Expect::Exactly(held) } else { Expect::Open };
            let reads = kind == OpKind::Get;
            let source = if reads { Source::Nothing } else { Source::Value(operand) };
            let adds = matches!(kind, OpKind::Accumulate | OpKind::GetAccumulate);
            let reduction = if adds { reduction::SUM } else { reduction::REPLACE };
            self.issue(open, Plan { kind, reduction, target, disp, source, expect, ..NO_OP });
            held = match kind {
                OpKind::Put => operand,
                OpKind::Get => held,
                _ => held + operand,
            };
            self.order(open, target);
        }
        let content = Content { window: open.window, rank: target, disp, len: 8, value: held };
        self.program.end.push(content);
        open.puts.push(content);
        self.count("operations in order");
    }

    /// An accumulate to memory of its own.
    fn own_accumulate(&mut self, open: &mut Open, target: Rank) {
        let (disp, value) = (self.alloc(open.window, target, 8), self.value());
        let content = Content { window: open.window, rank: target, disp, len: 8, value };
        self.program.end.push(content);
        open.puts.push(content);
        let plan =
            Plan { kind: OpKind::Accumulate, reduction: reduction::SUM, target, disp, ..NO_OP };
        self.issue(open, Plan { source: Source::Value(value), ..plan });
        self.count("accumulate");
    }

    /// An accumulate to a cell that all ranks add to.
    fn count_up(&mut self, open: &mut Open, target: Rank) {
        let value = self.rng.u64(1..100);
        let fetches = self.rng.bool();
        let disp = self.cells(open.window, target).counter;
        let kind = if fetches { OpKind::GetAccumulate } else { OpKind::Accumulate };
        let plan = Plan {
            kind,
            reduction: reduction::SUM,
            target,
            disp,
            source: Source::Value(value),
            ..NO_OP
        };
        let id = self.issue(open, plan);
        let cells = self.cells(open.window, target);
        cells.total += value;
        if fetches {
            cells.sums.push((id, value));
        }
        self.count(if fetches { "get_accumulate" } else { "accumulate" });
    }

    fn constant(&mut self, open: &mut Open, target: Rank) {
        let which = self.rng.usize(0..2);
        let (disp, value) = self.cells(open.window, target).constants[which];
        self.issue(
            open,
            Plan { kind: OpKind::Get, target, disp, expect: Expect::Exactly(value), ..NO_OP },
        );
        self.count("get");
    }

    /// Fetches a number that no other operation gets.
    fn ticket(&mut self, open: &mut Open, target: Rank) {
        let disp = self.cells(open.window, target).ticket;
        let plan =
            Plan { kind: OpKind::GetAccumulate, reduction: reduction::SUM, target, disp, ..NO_OP };
        let id = self.issue(open, Plan { source: Source::Value(1), ..plan });
        self.cells(open.window, target).tickets.push(id);
        self.count("get_accumulate");
    }

    fn elect(&mut self, open: &mut Open, target: Rank) {
        let value = self.value();
        let disp = self.election(open.window, target);
        let id = self.issue(
            open,
            Plan {
                kind: OpKind::CompareAndSwap,
                target,
                disp,
                source: Source::Value(value),
                ..NO_OP
            },
        );
        self.cells(open.window, target).elects(id, value);
        self.count("compare_and_swap");
    }

    /// The cell that all ranks swap.
    pub fn election(&mut self, window: u32, target: Rank) -> usize {
        if let Some((disp, _)) = self.cells(window, target).election {
            return disp;
        }
        let disp = self.alloc(window, target, 8);
        self.cells(window, target).election = Some((disp, Vec::new()));
        disp
    }

    /// A cell that only this origin writes, once per epoch, and reads in other epochs. Epochs take
    /// effect in order [EP-6].
    fn last(&mut self, open: &mut Open, target: Rank) {
        if !self.ordered(open.window) || open.lasts.contains(&target) {
            return;
        }
        open.lasts.push(target);
        let known = self.cells(open.window, target).last.get(&open.me).copied();
        let (disp, current) = known.unwrap_or_else(|| (self.alloc(open.window, target, 8), 0));
        if self.one_in(3) {
            self.cells(open.window, target).last.insert(open.me, (disp, current));
            self.issue(
                open,
                Plan { kind: OpKind::Get, target, disp, expect: Expect::Exactly(current), ..NO_OP },
            );
            return self.count("get");
        }
        let value = self.value();
        self.cells(open.window, target).last.insert(open.me, (disp, value));
        self.issue(open, Plan { target, disp, source: Source::Value(value), ..NO_OP });
        self.count("put");
    }

    /// Atomic operations of one origin on one cell take effect in order.
    fn sequence(&mut self, open: &mut Open, target: Rank) {
        let known = self.cells(open.window, target).sequence.get(&open.me).copied();
        let ordered = self.ordered(open.window);
        let (disp, mut current) =
            known.filter(|_| ordered).unwrap_or_else(|| (self.alloc(open.window, target, 8), 0));
        for _ in 0..self.rng.u32(1..4) {
            let operand = self.value();
            let reduction = self.reductions[self.rng.usize(0..self.reductions.len())];
            let fetches = reduction == reduction::NO_OP || self.rng.bool();
            let plan = Plan { reduction, target, disp, source: Source::Value(operand), ..NO_OP };
            if fetches {
                self.issue(
                    open,
                    Plan { kind: OpKind::GetAccumulate, expect: Expect::Exactly(current), ..plan },
                );
            } else {
                self.issue(open, Plan { kind: OpKind::Accumulate, ..plan });
            }
            current = reduced(reduction, current, operand);
        }
        if ordered {
            self.cells(open.window, target).sequence.insert(open.me, (disp, current));
        } else {
            self.program.end.push(Content {
                window: open.window,
                rank: target,
                disp,
                len: 8,
                value: current,
            });
        }
        self.count("sequence of atomics");
    }

    fn flush(&mut self, open: &mut Open, target: Rank) {
        if !open.passive || !self.features.flushes {
            return;
        }
        let of = self.rng.bool().then_some(target);
        let (local, blocks) = (self.rng.bool(), open.may_wait && self.blocks());
        self.flush_how(open, of, local, blocks);
    }

    pub fn flush_how(&mut self, open: &Open, target: Option<Rank>, local: bool, blocks: bool) {
        let window = open.window;
        let ids = open.ids_of_lane(self.lanes[open.me as usize][window as usize], target);
        // A call that waits for the lock of another window would keep that of this one meanwhile.
        let windows = if blocks { vec![window] } else { self.flushed_with(open, target) };
        let several = windows.len() > 1;
        if !local && if several { self.rng.u8(0..4) > 0 } else { self.one_in(6) } {
            self.count(if several { "flush of windows" } else { "flush of one window" });
            self.closing(open.me, blocks, &ids, |how| Step::FlushWins { windows, target, how });
            return;
        }
        self.closing(open.me, blocks, &ids, |how| Step::Flush { window, target, local, how });
        self.count(match (local, target) {
            (false, Some(_)) => "flush",
            (false, None) => "flush_all",
            (true, Some(_)) => "flush_local",
            (true, None) => "flush_local_all",
        });
    }

    /// Some windows that may be flushed together with that of an open epoch.
    fn flushed_with(&mut self, open: &Open, target: Option<Rank>) -> Vec<u32> {
        let covers = |of: Option<Rank>| of.is_none() || target.is_none() || of == target;
        let held = self.held[open.me as usize].iter();
        let mut windows: Vec<u32> =
            held.filter(|(_, of)| covers(*of)).map(|(window, _)| *window).collect();
        windows.sort_unstable();
        windows.dedup();
        windows.retain(|window| *window == open.window || self.rng.u8(0..4) > 0);
        self.rng.shuffle(&mut windows);
        windows
    }

    /// Read, increment, write back, under an exclusive lock.
    pub fn increment(&mut self, open: &mut Open, target: Rank) {
        let disp = self.cells(open.window, target).increment;
        let read = self.issue(open, Plan { kind: OpKind::Get, target, disp, ..NO_OP });
        let local = self.rng.bool();
        self.flush_how(open, Some(target), local, true);
        self.issue(open, Plan { target, disp, source: Source::OneMoreThan(read), ..NO_OP });
        self.cells(open.window, target).increments.push(read);
        self.count("increment under lock");
    }

    /// Two cells that are always written together.
    pub fn write_twins(&mut self, open: &mut Open, target: Rank) {
        let value = self.value();
        for disp in self.cells(open.window, target).twins {
            self.issue(open, Plan { target, disp, source: Source::Value(value), ..NO_OP });
        }
        self.cells(open.window, target).twins_written.push(value);
        self.count("twins written");
    }

    /// Reads two cells that are always written together.
    pub fn read_twins(&mut self, open: &mut Open, target: Rank) {
        let twins = self.cells(open.window, target).twins;
        let reads =
            twins.map(|disp| self.issue(open, Plan { kind: OpKind::Get, target, disp, ..NO_OP }));
        self.cells(open.window, target).twins_read.push(reads);
        // A reader may stay for a while, so that readers leave in another order than they came.
        if self.rng.bool() {
            let time = self.rng.u64(0..40) * US;
            self.step(open.me, Step::Compute(time));
        }
        self.count("twins read");
    }
}
