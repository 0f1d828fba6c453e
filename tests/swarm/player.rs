//! Plays the calls of one rank in a world.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use mpix_rma::engine::*;
use mpix_rma::sim::{How, Moment, Recorded, Script, Step};
use mpix_rma::transport::datatype::Shape;
use mpix_rma::transport::datatype::element::native;
use mpix_rma::transport::sim::{Network, Time, US};

use super::program::*;
use super::records;
use super::shapes::{ELEMENT, words_of};

/// Fills origin buffers that are free again.
const SCRIBBLE: u8 = 0xa5;
/// Initial content of result buffers.
pub const UNFETCHED: u8 = 0xee;
/// A loop of tests computes between two tests, twice as long each time, up to this time.
pub const TEST_PAUSE_MAX: Time = 16 * US;

/// Origin and result buffers of all operations issued so far.
pub type Buffers = Rc<RefCell<Vec<Option<(Addr, Addr)>>>>;

/// The script of one rank.
pub struct Player {
    me: Rank,
    program: Rc<Program>,
    buffers: Buffers,
    at: usize,
    /// In a loop of tests: the next pause, and whether it is due.
    pause: Time,
    pausing: bool,
    /// In a loop of resets: the last step.
    taking: Taking,
    /// Notifications taken so far, by window and counter.
    taken: HashMap<(u32, u32), u64>,
}

/// The last step of a loop that takes notifications by resets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taking {
    Nothing,
    Reset,
    Waited,
}

impl Player {
    pub fn new(me: Rank, program: Rc<Program>, buffers: Buffers) -> Self {
        Player {
            me,
            program,
            buffers,
            at: 0,
            pause: 0,
            pausing: false,
            taking: Taking::Nothing,
            taken: HashMap::new(),
        }
    }

    /// Fills the buffers of an operation: new ones, or those of an earlier start of its record.
    fn op(&mut self, id: OpId, known: Option<(Addr, Addr)>, net: &mut Network) -> Op {
        let plan = self.program.plans[id];
        let fetched = |net: &Network, get: OpId| {
            let (_, result) = self.buffers.borrow()[get].expect("a get that was issued");
            u64::from_ne_bytes(net.private(self.me, result, 8).try_into().expect("8 bytes"))
        };
        if let Some(which) = plan.sides {
            let sides = Rc::clone(&self.program.sides[which as usize]);
            return self.shaped_op(id, known, &plan, &sides, net);
        }
        let data = match plan.source {
            Source::Nothing => Vec::new(),
            Source::Value(value) => bytes_of(value, plan.len),
            Source::OneMoreThan(get) => bytes_of(fetched(net, get).wrapping_add(1), plan.len),
        };
        let (known_origin, known_result) = known.unzip();
        let place = |net: &mut Network, known: Option<Addr>, bytes: &[u8]| {
            let at = known.unwrap_or_else(|| net.allocate(self.me, bytes.len()));
            net.private_mut(self.me, at, bytes.len()).copy_from_slice(bytes);
            at
        };
        let origin = match plan.kind {
            // The checkers identify operations by their buffers.
            _ if plan.len == 0 => place(net, known_origin, &[0; 8]),
            _ if data.is_empty() => Addr(0),
            _ => place(net, known_origin, &data),
        };
        let fetches =
            matches!(plan.kind, OpKind::Get | OpKind::GetAccumulate | OpKind::CompareAndSwap);
        let result =
            if fetches { place(net, known_result, &vec![UNFETCHED; plan.len]) } else { Addr(0) };
        let compare = if plan.kind == OpKind::CompareAndSwap {
            place(net, None, &plan.compare.to_ne_bytes())
        } else {
            Addr(0)
        };
        self.buffers.borrow_mut()[id] = Some((origin, result));
        let words = plan.len.is_multiple_of(8);
        Op {
            origin,
            result,
            compare,
            disp: plan.disp as u64,
            len: plan.len as u64,
            target: plan.target,
            kind: plan.kind,
            element: if words { native::U64 } else { native::BYTE },
            reduction: plan.reduction,
            extent: if words { 8 } else { 1 },
            shape: None,
            notification: plan.notification,
        }
    }

    /// As [`op`](Self::op) with derived datatypes. The gaps between the elements hold filler bytes.
    fn shaped_op(
        &mut self,
        id: OpId,
        known: Option<(Addr, Addr)>,
        plan: &Plan,
        sides: &Sides,
        net: &mut Network,
    ) -> Op {
        let (known_origin, known_result) = known.unzip();
        let place =
            |net: &mut Network, known: Option<Addr>, places: &Places, filler, words: &[u64]| {
                let at = known.map(|at| Addr(at.0 - places.before));
                let at = at.unwrap_or_else(|| net.allocate(self.me, places.span));
                let memory = net.private_mut(self.me, at, places.span);
                memory.fill(filler);
                for (number, word) in words.iter().enumerate() {
                    memory[places.at(number)..][..WORD].copy_from_slice(&word.to_ne_bytes());
                }
                Addr(at.0 + places.before)
            };
        let words = match plan.source {
            Source::Value(value) => words_of(value, plan.len / WORD),
            _ => Vec::new(),
        };
        let sends = matches!(plan.kind, OpKind::Put | OpKind::Accumulate | OpKind::GetAccumulate);
        let fetches = matches!(plan.kind, OpKind::Get | OpKind::GetAccumulate);
        let origin =
            if sends { place(net, known_origin, &sides.origin, SCRIBBLE, &words) } else { Addr(0) };
        let result =
            if fetches { place(net, known_result, &sides.result, UNFETCHED, &[]) } else { Addr(0) };
        self.buffers.borrow_mut()[id] = Some((origin, result));
        let shape = net.add_shape(Shape {
            origin: sends.then(|| sides.origin.side.clone()),
            result: fetches.then(|| sides.result.side.clone()),
            target: sides.target.side.clone(),
            disp: plan.disp as i64,
        });
        let (len, target, kind) = (plan.len as u64, plan.target, plan.kind);
        let (element, reduction, extent, shape) =
            (ELEMENT, plan.reduction, WORD as u8, Some(shape));
        Op {
            origin,
            result,
            compare: Addr(0),
            disp: 0,
            len,
            target,
            kind,
            element,
            reduction,
            extent,
            shape,
            notification: plan.notification,
        }
    }

    fn scribble(&self, ids: &[OpId], net: &mut Network) {
        for &id in ids {
            if let Some((origin, _)) = self.buffers.borrow()[id].filter(|(origin, _)| origin.0 != 0)
            {
                let plan = &self.program.plans[id];
                let (before, len) = plan.sides.map_or((0, plan.len), |which| {
                    let places = &self.program.sides[which as usize].origin;
                    (places.before, places.span)
                });
                net.private_mut(self.me, Addr(origin.0 - before), len).fill(SCRIBBLE);
            }
        }
    }

    /// The calls of a record, with the operations of a start.
    fn recorded(&mut self, record: RecordId, ids: &[OpId], net: &mut Network) -> Vec<Recorded> {
        let program = Rc::clone(&self.program);
        let mut ids = ids.iter();
        let calls = program.records[record].calls.iter().map(|call| match call {
            RecordedCall::Sync(call) => Recorded::Sync(call.clone()),
            RecordedCall::Op(template) => {
                let id = *ids.next().expect("one for each recorded operation");
                let known = self.buffers.borrow()[*template];
                let op = self.op(id, known, net);
                let mut buffers = self.buffers.borrow_mut();
                buffers[*template] = buffers[id];
                Recorded::Issue(op)
            }
        });
        calls.collect()
    }

    /// Copies what operations have fetched to memory of their own.
    fn collect(&self, ids: &[OpId], net: &mut Network) {
        for &id in ids {
            let (origin, result) = self.buffers.borrow()[id].expect("it was started");
            if result.0 == 0 {
                continue;
            }
            let plan = &self.program.plans[id];
            let (before, span) = plan.sides.map_or((0, plan.len), |which| {
                let places = &self.program.sides[which as usize].result;
                (places.before, places.span)
            });
            let fetched = net.private(self.me, Addr(result.0 - before), span).to_vec();
            let copy = net.allocate(self.me, span);
            net.private_mut(self.me, copy, span).copy_from_slice(&fetched);
            self.buffers.borrow_mut()[id] = Some((origin, Addr(copy.0 + before)));
        }
    }

    /// The next step of a loop of resets. `None` when enough notifications were taken.
    fn take(&mut self, value: u64, window: u32, counter: u32, until: u64) -> Option<Step> {
        let taken = self.taken.entry((window, counter)).or_insert(0);
        if self.taking == Taking::Reset {
            *taken += value;
            if *taken >= until {
                self.taking = Taking::Nothing;
                return None;
            }
            self.taking = Taking::Waited;
            return Some(Step::AwaitCounters {
                window,
                first: counter,
                number: 1,
                expected: 1,
                how: How::Blocking,
            });
        }
        self.taking = Taking::Reset;
        Some(Step::ResetCounter { window, counter })
    }

    /// The next step of a loop of tests. `None` when the last test was true.
    fn round(&mut self, flag: bool, test: Step) -> Option<Step> {
        if self.pause > 0 && flag {
            self.pause = 0;
            self.pausing = false;
            return None;
        }
        if self.pausing {
            self.pausing = false;
            return Some(Step::Compute(self.pause));
        }
        self.pause = (self.pause * 2).clamp(US / 8, TEST_PAUSE_MAX);
        self.pausing = true;
        Some(test)
    }
}

/// Checks the content of a rank's window memory.
pub fn check_content(content: &Content, net: &Network, when: &str) {
    let Content { window, rank, disp, len, value } = *content;
    let there = &net.window(window, rank)[disp..][..len];
    let expected = bytes_of(value, len);
    if there != expected {
        let at = there.iter().zip(&expected).position(|(a, b)| a != b).expect("they differ");
        panic!(
            "[memory] {when}: window {window} of rank {rank}, displacement {disp}, length {len}: \
             byte {at} is {:#x} and not {:#x} ({value})",
            there[at], expected[at]
        );
    }
}

impl Script for Player {
    fn next(&mut self, at: &mut Moment<'_>) -> Step {
        let program = Rc::clone(&self.program);
        while let Some(call) = program.calls[self.me as usize].get(self.at) {
            let step = match call {
                Call::Step(step) => Some(step.clone()),
                Call::Op(id) => {
                    let op = self.op(*id, None, at.net);
                    Some(Step::Issue { window: program.plans[*id].window, op })
                }
                Call::Request(id, slot) => {
                    let op = self.op(*id, None, at.net);
                    Some(Step::IssueRequest { window: program.plans[*id].window, op, slot: *slot })
                }
                Call::TestLoop(window) => match self.round(at.flag, Step::Test { window: *window })
                {
                    Some(step) => return step,
                    None => None,
                },
                Call::TestSlotLoop(slot) => match self.round(at.flag, Step::TestSlot(*slot)) {
                    Some(step) => return step,
                    None => None,
                },
                Call::Scribble(ids) => {
                    self.scribble(ids, at.net);
                    None
                }
                Call::TakeLoop { window, counter, until } => {
                    match self.take(at.value, *window, *counter, *until) {
                        Some(step) => return step,
                        None => None,
                    }
                }
                Call::Store(Content { window, disp, len, value, .. }) => {
                    at.net.window_mut(*window, self.me)[*disp..][..*len]
                        .copy_from_slice(&bytes_of(*value, *len));
                    None
                }
                Call::TestExpectationLoop { window, slot } => {
                    match self
                        .round(at.flag, Step::TestExpectation { window: *window, slot: *slot })
                    {
                        Some(step) => return step,
                        None => None,
                    }
                }
                Call::Record(_) => None,
                Call::Restart { record, ids, slot } => {
                    let window = program.records[*record].window;
                    let calls = self.recorded(*record, ids, at.net);
                    Some(Step::Restart { window, calls, slot: *slot })
                }
                Call::RestartRefused(record) => {
                    let record = &program.records[*record];
                    let calls = records::bare_calls(record, &program);
                    Some(Step::RestartRefused { window: record.window, calls })
                }
                Call::Collect { ids, .. } => {
                    self.collect(ids, at.net);
                    None
                }
                Call::CheckAnnounced(window) => {
                    let Arrival { source, tag } = at.arrival.expect("an expectation was met");
                    if let Some(content) = program.announced.get(&(*window, self.me, source, tag)) {
                        check_content(content, at.net, "after a tagged notification");
                    }
                    None
                }
                Call::Check(content) => {
                    check_content(content, at.net, "after a blocking call");
                    None
                }
            };
            self.at += 1;
            if let Some(step) = step {
                return step;
            }
        }
        Step::End
    }
}
