//! Persistent epochs in random programs [PE-1, PE-2]: epochs that some ranks record, and start in
//! several rounds, while the others make calls.
//!
//! A start waits for nothing, so a rank may start its record in the first item of a round. Its
//! request is waited for in the last item only, since it may need the calls of all others [EP-10].

use mpix_rma::engine::*;
use mpix_rma::sim::{Recorded, Slot};
use mpix_rma::transport::datatype::element::{native, reduction};

use super::generator::Generator;
use super::notifications::{PUTS, SHARED, counted};
use super::operations::{NO_OP, Open};
use super::program::*;
use super::shapes::words_of;

/// What an operation does in each start.
#[derive(Clone, Copy)]
enum Role {
    /// Writes another value to memory of its own.
    Own,
    /// The same, by a derived datatype.
    Shaped,
    Constant,
    CountUp,
    Ticket,
    Elect,
    /// One of several atomic operations on this cell of the record.
    Sequence(usize),
    Notify,
    Tell,
}

struct Repeated {
    role: Role,
    /// Without data.
    plan: Plan,
    /// What the memory of its own holds.
    value: u64,
}

/// A persistent epoch as the generator knows it.
#[derive(Default)]
pub struct Draft {
    ops: Vec<Repeated>,
    /// Cells that only this record accesses: target, displacement and value.
    cells: Vec<(Rank, usize, u64)>,
    /// It was started, and its request is not known to be complete.
    active: bool,
}

/// A start whose request is not waited for yet.
pub struct Held {
    pub me: Rank,
    pub slot: Slot,
    pub record: RecordId,
    pub ids: Vec<OpId>,
    /// Memory that it writes.
    pub puts: Vec<Content>,
}

/// A part of a record: a call, or operations to these targets.
pub enum Part {
    Sync(SyncCall),
    Ops(Vec<Rank>),
}

/// The calls of a record without buffers, to check them.
pub fn bare_calls(record: &Record, program: &Program) -> Vec<Recorded> {
    let bare = |plan: &Plan| Op {
        origin: Addr(0),
        result: Addr(0),
        compare: Addr(0),
        disp: 0,
        len: 0,
        target: plan.target,
        kind: plan.kind,
        element: native::BYTE,
        reduction: plan.reduction,
        extent: 1,
        shape: None,
        notification: None,
    };
    let calls = record.calls.iter().map(|call| match call {
        RecordedCall::Sync(call) => Recorded::Sync(call.clone()),
        RecordedCall::Op(id) => Recorded::Issue(bare(&program.plans[*id])),
    });
    calls.collect()
}

/// Whether a record with these calls is legal.
fn is_legal(rank: Rank, ranks: u32, calls: &[Recorded]) -> bool {
    let mut rehearsal = Rehearsal::new(rank, ranks);
    let accepted = calls.iter().all(|call| match call {
        Recorded::Sync(call) => rehearsal.synchronize(call).is_ok(),
        Recorded::Issue(op) => rehearsal.issue(op).is_ok(),
    });
    accepted && rehearsal.is_closed()
}

/// A record is accepted, and refused without one of its calls [PE-1]. A single fence is legal.
pub fn rehearse(record: &Record, program: &Program) {
    let calls = bare_calls(record, program);
    let legal = |calls: &[Recorded]| is_legal(record.rank, program.ranks, calls);
    assert!(legal(&calls), "[refused] a record of legal calls: {record:?}");
    for at in 0..calls.len() {
        let mut without = calls.clone();
        if let Recorded::Sync(call) = without.remove(at) {
            let refused = matches!(call, SyncCall::Fence(_)) || !legal(&without);
            assert!(refused, "[refused] a record without {call:?} is accepted: {record:?}");
        }
    }
}

impl Generator {
    /// Records calls, as one persistent epoch of a rank.
    pub fn record(&mut self, window: u32, me: Rank, parts: Vec<Part>) -> RecordId {
        self.on_lane(window, me, 0);
        let (mut draft, mut calls) = (Draft::default(), Vec::new());
        for part in parts {
            let targets = match part {
                Part::Sync(call) => {
                    calls.push(RecordedCall::Sync(call));
                    continue;
                }
                Part::Ops(targets) => targets,
            };
            for target in targets {
                for _ in 0..self.rng.u32(0..4) {
                    let first = draft.ops.len();
                    self.draft(&mut draft, window, target);
                    for repeated in &draft.ops[first..] {
                        let id = self.plan(repeated.plan);
                        calls.push(RecordedCall::Op(id));
                    }
                }
            }
        }
        let id = self.drafts.len();
        self.drafts.push(draft);
        self.program.records.push(Record { window, rank: me, calls });
        self.call(me, Call::Record(id));
        self.count("record");
        id
    }

    /// Adds an operation to a record, or several that belong together.
    fn draft(&mut self, draft: &mut Draft, window: u32, target: Rank) {
        let add = |g: &mut Self, draft: &mut Draft, role, plan: Plan| {
            let adds = g.program.counted[window as usize].then(counted);
            let notification = plan.notification.or(adds);
            let plan = Plan { window, target, notification, ..plan };
            draft.ops.push(Repeated { role, plan, value: 0 });
        };
        let atomic = Plan { kind: OpKind::Accumulate, reduction: reduction::SUM, ..NO_OP };
        let fetching = Plan { kind: OpKind::GetAccumulate, ..atomic };
        let shared = Some(Notification::counter(SHARED));
        match self.rng.u8(0..12) {
            0..=2 => {
                let len = self.length();
                let disp = self.alloc(window, target, len);
                let tells = self.features.notifications && self.one_in(3);
                let notification = shared.filter(|_| tells);
                add(self, draft, Role::Own, Plan { disp, len, notification, ..NO_OP });
            }
            3 => {
                let (plan, span) = self.shaped_plan();
                let disp = self.alloc(window, target, span) + plan.disp;
                add(self, draft, Role::Shaped, Plan { disp, ..plan });
            }
            4 => {
                let disp = self.cells(window, target).constants[0].0;
                add(self, draft, Role::Constant, Plan { kind: OpKind::Get, disp, ..NO_OP });
            }
            5 => {
                let disp = self.cells(window, target).counter;
                let plan = if self.rng.bool() { fetching } else { atomic };
                add(self, draft, Role::CountUp, Plan { disp, ..plan });
            }
            6 => {
                let disp = self.cells(window, target).ticket;
                add(self, draft, Role::Ticket, Plan { disp, ..fetching });
            }
            7 => {
                let disp = self.election(window, target);
                add(self, draft, Role::Elect, Plan { kind: OpKind::CompareAndSwap, disp, ..NO_OP });
            }
            8 | 9 => {
                let cell = draft.cells.len();
                let disp = self.alloc(window, target, 8);
                draft.cells.push((target, disp, 0));
                for _ in 0..self.rng.u32(1..4) {
                    let reduction = self.reductions[self.rng.usize(0..self.reductions.len())];
                    let fetches = reduction == reduction::NO_OP || self.rng.bool();
                    let plan = if fetches { fetching } else { atomic };
                    add(self, draft, Role::Sequence(cell), Plan { disp, reduction, ..plan });
                }
            }
            10 if self.features.notifications => {
                add(self, draft, Role::Notify, Plan { len: 0, notification: shared, ..NO_OP });
            }
            11 if self.features.tags => {
                let notification = Some(Notification::tag(self.shared_tag()));
                add(self, draft, Role::Tell, Plan { len: 0, notification, ..NO_OP });
            }
            _ => {}
        }
    }

    /// Starts a record. The caller holds the request back until it may be waited for.
    pub fn restart(&mut self, record: RecordId) -> Held {
        let Record { window, rank: me, .. } = self.program.records[record];
        let mut draft = std::mem::take(&mut self.drafts[record]);
        let mut puts = Vec::new();
        let mut ids = Vec::new();
        for at in 0..draft.ops.len() {
            let id = self.repeat(&mut draft, at, me);
            ids.push(id);
            let Plan { target, disp, len, .. } = self.program.plans[id];
            if matches!(draft.ops[at].role, Role::Own) {
                puts.push(Content { window, rank: target, disp, len, value: draft.ops[at].value });
            }
        }
        draft.active = true;
        self.drafts[record] = draft;
        // A start is made on the handle of the record.
        self.on_lane(window, me, 0);
        let slot = self.hold_slot(me);
        self.call(me, Call::Restart { record, ids: ids.clone(), slot });
        self.count("start of a record");
        Held { me, slot, record, ids, puts }
    }

    /// The plan of an operation in the next start.
    fn repeat(&mut self, draft: &mut Draft, at: usize, me: Rank) -> OpId {
        let Repeated { role, plan, .. } = draft.ops[at];
        let Plan { window, target, .. } = plan;
        if plan.notification == Some(counted()) {
            self.cells(window, target).counts.raised[PUTS as usize] += 1;
        } else if plan.notification == Some(Notification::counter(SHARED)) {
            self.cells(window, target).counts.raised[SHARED as usize] += 1;
        }
        let value = self.value();
        let source = Source::Value(value);
        let plan = match role {
            Role::Own | Role::Shaped => {
                draft.ops[at].value = value;
                Plan { source, ..plan }
            }
            Role::Constant => {
                let expect = Expect::Exactly(self.cells(window, target).constants[0].1);
                Plan { expect, ..plan }
            }
            Role::CountUp => {
                self.cells(window, target).total += value;
                Plan { source, ..plan }
            }
            Role::Ticket => Plan { source: Source::Value(1), ..plan },
            Role::Elect => Plan { source, ..plan },
            Role::Sequence(cell) => {
                let held = &mut draft.cells[cell].2;
                let fetches = plan.kind == OpKind::GetAccumulate;
                let expect = if fetches { Expect::Exactly(*held) } else { Expect::Open };
                *held = reduced(plan.reduction, *held, value);
                Plan { source, expect, ..plan }
            }
            Role::Notify => plan,
            Role::Tell => {
                self.told(window, target, me, plan.notification);
                plan
            }
        };
        let id = self.plan(plan);
        let cells = self.cells(window, target);
        match role {
            Role::CountUp if plan.kind == OpKind::GetAccumulate => cells.sums.push((id, value)),
            Role::Ticket => cells.tickets.push(id),
            Role::Elect => cells.elects(id, value),
            _ => {}
        }
        id
    }

    /// The rank waits for a start, now or later. True: it has waited.
    pub fn release(&mut self, held: Held, last: bool) -> bool {
        let Held { me, slot, record, ids, .. } = held;
        self.release_slot(me, slot, ids, record);
        if last && self.one_in(2) {
            return false;
        }
        self.settle_slot(me, slot);
        true
    }

    /// The request of a start is complete.
    pub fn collect(&mut self, me: Rank, record: RecordId, ids: Vec<OpId>) {
        self.drafts[record].active = false;
        self.call(me, Call::Collect { record, ids });
    }

    /// A record is not started again: its own memory is as the last start left it.
    pub fn retire(&mut self, record: RecordId) {
        let window = self.program.records[record].window;
        let draft = std::mem::take(&mut self.drafts[record]);
        let content = |rank, disp, len, value| Content { window, rank, disp, len, value };
        let cells =
            draft.cells.iter().map(|&(target, disp, value)| content(target, disp, 8, value));
        self.program.end.extend(cells);
        for Repeated { role, plan, value } in draft.ops.iter().filter(|op| op.value > 0) {
            match (role, plan.sides) {
                (Role::Own, _) => {
                    self.program.end.push(content(plan.target, plan.disp, plan.len, *value));
                }
                (Role::Shaped, Some(sides)) => self.shaped_end(plan, sides, *value),
                _ => {}
            }
        }
        self.drafts[record] = Draft { active: draft.active, ..Draft::default() };
    }

    fn shaped_end(&mut self, plan: &Plan, sides: u32, value: u64) {
        let Plan { window, target, disp, .. } = *plan;
        let places = &self.program.sides[sides as usize].target;
        let mut bytes = vec![0; places.span];
        for (at, word) in words_of(value, places.words.len()).iter().enumerate() {
            bytes[places.at(at)..][..WORD].copy_from_slice(&word.to_ne_bytes());
        }
        let disp = disp - places.before;
        self.program.regions.push(Region { window, rank: target, disp, bytes });
    }

    /// In an epoch that is open, sometimes tries to start a record that conflicts with it.
    pub fn conflict(&mut self, open: &Open) {
        use SyncCall::{Fence, Lock, LockAll, Post, Start};
        let conflicts = |call: &SyncCall| match (call, open.in_fence) {
            (Start(_) | LockAll(_), false) | (Fence(_), false) => true,
            (Post(_) | Start(_) | Lock(..) | LockAll(_), true) => !open.ops.is_empty(),
            _ => false,
        };
        let mut found = Vec::new();
        for (id, record) in self.program.records.iter().enumerate() {
            let mut calls = record.calls.iter();
            let refused =
                calls.any(|call| matches!(call, RecordedCall::Sync(call) if conflicts(call)));
            if (record.window, record.rank) == (open.window, open.me)
                && !self.drafts[id].active
                && refused
            {
                found.push(id);
            }
        }
        if !found.is_empty() {
            let record = found[self.rng.usize(0..found.len())];
            self.on_lane(open.window, open.me, 0);
            self.call(open.me, Call::RestartRefused(record));
            self.count("start that conflicts");
        }
    }
}
