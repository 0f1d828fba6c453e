//! Persistent epochs and operations: what their requests keep, and what a start makes of it
//! [PE-1 to PE-3].
//!
//! A start makes the calls of the record, in their nonblocking forms, without checking arguments
//! again. Puts and gets to mapped memory are kept as copies with resolved addresses. While the
//! route to their target is direct, a start makes them without the engine.

use std::ops::Range;
use std::thread::ThreadId;

use smallvec::SmallVec;

use super::persistent::{Failure, NotStarted, State};
use super::process::multiple;
use super::transport::with_port;
use super::window::{POLLS_OF_A_RESTART, Window};
use crate::engine::slab::Key;
use crate::engine::{
    Assert, Exchange, InFences, Op, OpKind, Outcome, Rank, Rehearsal, RequestId, SyncCall,
    SyncError,
};
use crate::transport::copy;
use crate::transport::datatype::Shape;
use crate::transport::shm::protocol::order_completed;

/// Polls of a start for the answers of peers, in total: as long as two cache lines take from one
/// processor to another and back, several times.
const POLLS_OF_AN_EXCHANGE: u32 = 100;

/// An operation that is kept. Its shape is added anew for each start.
#[derive(Debug)]
pub(crate) struct KeptOp {
    op: Op,
    shape: Option<Box<Shape>>,
}

impl KeptOp {
    /// Takes the shape of an operation that was made for this window.
    pub(crate) fn of(window: &mut Window, mut op: Op) -> Self {
        let shape = op.shape.take();
        let shape = shape.map(|shape| Box::new(window.port.take_shape(op.target, shape)));
        KeptOp { op, shape }
    }

    /// The operation to issue now.
    #[inline]
    fn to_issue(&self, window: &mut Window) -> Op {
        let add = |shape: &Shape| window.port.add_shape(self.op.target, shape.clone());
        Op { shape: self.shape.as_deref().map(add), ..self.op }
    }
}

/// A put or get between mapped addresses.
#[derive(Clone, Copy, Debug)]
struct Move {
    from: usize,
    to: usize,
    len: usize,
}

impl Move {
    /// Both moves as one, if `next` continues this one on both sides.
    fn joined(self, next: Move) -> Option<Move> {
        let continues = (self.from + self.len, self.to + self.len) == (next.from, next.to);
        continues.then_some(Move { len: self.len + next.len, ..self })
    }

    /// # Safety
    /// Both sides are valid for `len` bytes, and the other process lets this one access its side.
    #[inline(always)]
    unsafe fn make(&self) {
        let (from, to) = (self.from as *const u8, self.to as *mut u8);
        // SAFETY: the contract of this function. A word takes no detour by a table of lengths.
        unsafe {
            match self.len {
                8 => to.cast::<u64>().write_unaligned(from.cast::<u64>().read_unaligned()),
                len => copy(from, to, len),
            }
        }
    }
}

/// A part of recorded epochs.
#[derive(Debug)]
enum Step {
    Sync(SyncCall),
    /// These operations.
    Ops(Range<usize>),
    /// Operations on one target, the moves to make if its route is direct, and the same moves with
    /// those as one that continue each other.
    Moves {
        target: Rank,
        ops: Range<usize>,
        moves: Range<usize>,
        joined: Range<usize>,
    },
}

/// Recorded epochs.
#[derive(Debug, Default)]
pub(crate) struct Epochs {
    steps: Vec<Step>,
    ops: Vec<KeptOp>,
    moves: Vec<Move>,
    joined: Vec<Move>,
    /// The epochs are one exchange, and all operations are moves.
    exchange: Option<Exchange>,
    /// Fences, and the targets of operations in their epochs, each once in an epoch.
    in_fences: Vec<InFences>,
}

impl Epochs {
    fn calls(&self) -> impl Iterator<Item = &SyncCall> {
        self.steps.iter().filter_map(|step| match step {
            Step::Sync(call) => Some(call),
            Step::Ops(_) | Step::Moves { .. } => None,
        })
    }

    /// Whether operations of an open fence epoch precede the first call.
    fn begin_in_fence(&self) -> bool {
        matches!(self.steps.first(), Some(Step::Ops(_) | Step::Moves { .. }))
    }

    /// Resolves the addresses of operations that are copies.
    fn resolve(&mut self, window: &Window) {
        for step in std::mem::take(&mut self.steps) {
            let Step::Ops(ops) = step else {
                self.steps.push(step);
                continue;
            };
            for at in ops {
                self.add_resolved(at, self.ops[at].as_move(window));
            }
        }
        self.join();
        self.steps.shrink_to_fit();
        self.ops.shrink_to_fit();
        self.moves.shrink_to_fit();
        self.joined.shrink_to_fit();
        self.in_fences.shrink_to_fit();
        self.exchange = self.find_exchange();
    }

    /// Joins moves that continue each other. Operations of an epoch have no order.
    fn join(&mut self) {
        for step in &mut self.steps {
            let Step::Moves { moves, joined, .. } = step else { continue };
            let first = self.joined.len();
            for found in &self.moves[moves.clone()] {
                match self.joined[first..].last_mut() {
                    Some(last) if let Some(both) = last.joined(*found) => *last = both,
                    _ => self.joined.push(*found),
                }
            }
            *joined = first..self.joined.len();
        }
    }

    /// The exchange that the epochs are, if their calls are: post, start; moves; complete, wait.
    fn find_exchange(&self) -> Option<Exchange> {
        let mut exchange = Exchange::default();
        let (opening, rest) = self.steps.split_at(self.openings());
        let (mut moves, mut closings) = (true, 0);
        for step in opening {
            match step {
                Step::Sync(SyncCall::Post(group)) => exchange.origins = Some(group.clone()),
                Step::Sync(SyncCall::Start(group)) => exchange.targets = Some(group.clone()),
                _ => return None,
            }
        }
        for step in rest {
            match step {
                Step::Moves { .. } if moves => {}
                Step::Sync(SyncCall::Complete | SyncCall::Wait) => {
                    (moves, closings) = (false, closings + 1)
                }
                _ => return None,
            }
        }
        // Each epoch that is opened is closed. Others follow neither of them.
        let epochs = [&exchange.origins, &exchange.targets].into_iter().flatten().count();
        (epochs > 0 && epochs == opening.len() && closings == epochs).then_some(exchange)
    }

    /// Number of calls with which the record begins that open epochs of groups.
    fn openings(&self) -> usize {
        let opens =
            |step: &&Step| matches!(step, Step::Sync(SyncCall::Post(_) | SyncCall::Start(_)));
        self.steps.iter().take_while(opens).count()
    }

    fn add_resolved(&mut self, at: usize, found: Option<Move>) {
        let target = self.ops[at].op.target;
        let place = self.moves.len();
        self.moves.extend(found);
        match (self.steps.last_mut(), found) {
            (Some(Step::Ops(ops)), None) => ops.end += 1,
            (Some(Step::Moves { target: same, ops, moves, .. }), Some(_)) if *same == target => {
                ops.end += 1;
                moves.end += 1;
            }
            (_, None) => self.steps.push(Step::Ops(at..at + 1)),
            (_, Some(_)) => {
                let (ops, moves) = (at..at + 1, place..place + 1);
                self.steps.push(Step::Moves { target, ops, moves, joined: 0..0 });
            }
        }
    }

    /// Notes an operation in a fence epoch.
    fn add_in_fence(&mut self, target: Rank) {
        let access = InFences::Access(target);
        let fence = |call: &&InFences| matches!(call, InFences::Fence(_));
        let mut epoch = self.in_fences.iter().rev().take_while(|call| !fence(call));
        if !epoch.any(|call| *call == access) {
            self.in_fences.push(access);
        }
    }

    /// Makes the calls. Adds the requests of those that are not complete to `pending`.
    #[inline]
    fn start(&self, window: &mut Window, pending: &mut Pending) -> Result<(), SyncError> {
        let mut steps = &self.steps[..];
        if let Some(exchange) = &self.exchange
            && window.polling_pays()
            && window.engine.may_fold_exchange()
        {
            if let Some(outcome) = self.exchange(window, exchange) {
                if let Outcome::Pending(id) = outcome {
                    pending.push(id);
                }
                return Ok(());
            }
            steps = &steps[self.openings()..];
        }
        for step in steps {
            match step {
                Step::Sync(call) => {
                    let outcome = match call {
                        SyncCall::Fence(assert) => fence_and_poll(window, *assert)?,
                        _ => with_port!(&mut window.port, port => {
                            window.engine.synchronize(port, call)
                        })?,
                    };
                    if let Outcome::Pending(id) = window.poll_while_moving(outcome) {
                        pending.push(id);
                    }
                }
                Step::Ops(ops) => self.issue(window, ops.clone())?,
                Step::Moves { target, ops, moves, joined } => {
                    if opens_direct_route(window, *target) {
                        // SAFETY: as of `make_moves`.
                        self.joined[joined.clone()]
                            .iter()
                            .for_each(|found| unsafe { found.make() });
                    } else {
                        self.make_moves(window, *target, ops, moves)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Makes the calls of an exchange. `None`: it has only opened its epochs.
    #[inline]
    fn exchange(&self, window: &mut Window, exchange: &Exchange) -> Option<Outcome> {
        let mut polls = POLLS_OF_AN_EXCHANGE;
        let mut waits = || {
            let more = polls > 0;
            polls = polls.saturating_sub(1);
            std::hint::spin_loop();
            more
        };
        with_port!(&mut window.port, port => {
            if !window.engine.open_exchange(port, exchange, &mut waits) {
                return None;
            }
            for made in &self.joined {
                // SAFETY: as of `make_moves`. All targets have granted access.
                unsafe { made.make() };
            }
            Some(window.engine.close_exchange(port, exchange, waits))
        })
    }

    /// Makes the moves of a target whose route was not direct, or issues their operations.
    #[cold]
    fn make_moves(
        &self,
        window: &mut Window,
        target: Rank,
        ops: &Range<usize>,
        moves: &Range<usize>,
    ) -> Result<(), SyncError> {
        window.poll_posts();
        // The first operation may open the route for the others.
        for made in 0..ops.len() {
            if opens_direct_route(window, target) {
                for found in &self.moves[moves.start + made..moves.end] {
                    // SAFETY: the record was checked against the target's memory, which is mapped
                    // while the window exists. The buffer of this process is the application's for
                    // as many bytes until the epoch is complete [PE-1].
                    unsafe { found.make() };
                }
                return Ok(());
            }
            let at = ops.start + made;
            self.issue(window, at..at + 1)?;
        }
        Ok(())
    }

    fn issue(&self, window: &mut Window, ops: Range<usize>) -> Result<(), SyncError> {
        for kept in &self.ops[ops] {
            let op = kept.to_issue(window);
            issue(window, &op)?;
        }
        Ok(())
    }

    /// Whether an operation of these epochs has failed. Each failure is reported once.
    #[cold]
    fn have_failed(&self, window: &mut Window) -> bool {
        let fault = |kept: &KeptOp| window.port.take_fault(Some(kept.op.target)).is_some();
        self.ops.iter().map(fault).fold(false, |any, failed| any | failed)
    }
}

impl KeptOp {
    /// The copy that the operation is, if it is one.
    fn as_move(&self, window: &Window) -> Option<Move> {
        let op = &self.op;
        if self.shape.is_some() || op.notification.is_some() {
            return None;
        }
        let there = (window.mapped_target(op.target)?.base + op.disp) as usize;
        let len = op.len as usize;
        match op.kind {
            OpKind::Put => Some(Move { from: op.origin.0, to: there, len }),
            OpKind::Get => Some(Move { from: there, to: op.result.0, len }),
            _ => None,
        }
    }
}

/// Whether moves to `target` may be made now. The first of a fence epoch may open it.
#[inline]
fn opens_direct_route(window: &mut Window, target: Rank) -> bool {
    window.engine.enters_direct_route(target)
        || with_port!(&mut window.port, port => window.engine.folds_fence(port, target))
}

/// A fence of a restarted epoch. Polls for a moment, because operations that are recorded until the
/// fence is complete take longer than those that go straight to memory.
#[inline]
fn fence_and_poll(window: &mut Window, assert: Assert) -> Result<Outcome, SyncError> {
    let mut polls = if window.polling_pays() { POLLS_OF_A_RESTART } else { 0 };
    let waits = || {
        let more = polls > 0;
        polls = polls.saturating_sub(1);
        std::hint::spin_loop();
        more
    };
    with_port!(&mut window.port, port => window.engine.fence_patiently(port, assert, waits))
}

/// Issues an operation; drops its shape if the engine refuses it.
fn issue(window: &mut Window, op: &Op) -> Result<(), SyncError> {
    let issued = with_port!(&mut window.port, port => window.engine.issue(port, op));
    issued.inspect_err(|_| drop_shape(window, op))
}

#[cold]
fn drop_shape(window: &mut Window, op: &Op) {
    if let Some(shape) = op.shape {
        window.port.take_shape(op.target, shape);
    }
}

/// Requests of the engine that a started request waits for.
type Pending = SmallVec<[RequestId; 2]>;

/// What a request starts.
#[derive(Debug)]
pub(crate) enum Kept {
    /// Nothing yet: the epochs are being recorded.
    Recording,
    Epochs(Epochs),
    Operation(KeptOp),
    /// An operation without data.
    Nothing,
}

impl Kept {
    /// An operation that was made for this window, or one without data.
    pub(crate) fn operation(window: &mut Window, made: Option<Op>) -> Self {
        made.map_or(Kept::Nothing, |op| Kept::Operation(KeptOp::of(window, op)))
    }
}

/// A persistent epoch or operation.
#[derive(Debug)]
pub(crate) struct Recorded {
    pub(super) kept: Kept,
    /// Of the handle that it was made on [DU-2].
    pub(crate) lane: u32,
    state: State,
    pending: Pending,
}

impl Recorded {
    pub(crate) fn new(kept: Kept, lane: u32) -> Self {
        Recorded { kept, lane, state: State::Inactive, pending: Pending::new() }
    }

    /// Whether it can be started. Changes nothing [PE-2].
    #[inline]
    pub(crate) fn may_start(&mut self, window: &mut Window) -> Result<(), NotStarted> {
        if !self.is_inactive() {
            return Err(NotStarted::Active);
        }
        if window.port.is_broken() {
            return Err(NotStarted::WindowGone);
        }
        if window.recorder.is_some() {
            return Err(NotStarted::Recording);
        }
        match &self.kept {
            Kept::Recording => Err(NotStarted::Recording),
            Kept::Epochs(epochs) => {
                window.engine.may_restart(epochs.begin_in_fence(), epochs.calls())?;
                let found = window.engine.may_make_fences(&epochs.in_fences);
                found.map_err(NotStarted::NotInPattern)
            }
            Kept::Operation(kept) => match window.engine.covering(kept.op.target) {
                Err(SyncError::NotLearned) => Err(NotStarted::NotLearned(kept.op.target)),
                covered => Ok(covered?),
            },
            Kept::Nothing => Ok(()),
        }
    }

    /// Starts what [`may_start`](Self::may_start) has permitted. True if it is not complete.
    #[inline]
    pub(crate) fn start(&mut self, window: &mut Window) -> Result<bool, NotStarted> {
        match &self.kept {
            Kept::Epochs(epochs) => {
                window.close_fast_path();
                if let Err(error) = epochs.start(window, &mut self.pending) {
                    self.pending.clear();
                    return Err(error.into());
                }
            }
            Kept::Operation(kept) => {
                let op = kept.to_issue(window);
                self.pending.extend(issue_for_request(window, &op)?);
                window.update_fast_path(op.target);
            }
            Kept::Nothing | Kept::Recording => {}
        }
        self.state = State::Active;
        if !self.pending.is_empty() {
            return Ok(true);
        }
        if window.port.uses_network() {
            self.look(window);
        } else {
            order_completed();
            self.state = State::Complete(None);
        }
        Ok(false)
    }

    /// Makes a request that is known to be complete inactive. False: it is not.
    #[inline]
    pub(crate) fn take_complete(&mut self) -> bool {
        let complete = matches!(self.state, State::Complete(_));
        if complete {
            self.state = State::Inactive;
        }
        complete
    }

    pub(crate) fn is_inactive(&self) -> bool {
        matches!(self.state, State::Inactive)
    }

    /// Looks whether a request that is active has completed or failed.
    #[inline]
    pub(crate) fn state(&mut self, window: &mut Window) -> State {
        if self.state == State::Active {
            self.look(window);
        }
        self.state
    }

    /// A request of the engine that it waits for.
    pub(crate) fn first_pending(&self) -> Option<RequestId> {
        self.pending.first().copied()
    }

    fn look(&mut self, window: &mut Window) {
        let failed = self.operation_has_failed(window);
        self.pending.retain(|id| window.engine.is_pending(*id));
        if self.pending.is_empty() {
            order_completed();
            self.state = match &self.kept {
                Kept::Epochs(epochs) if window.port.uses_network() => {
                    completed(epochs.have_failed(window))
                }
                _ => completed(failed),
            };
        } else if window.port.is_broken() {
            self.pending.clear();
            self.state = State::Failed(Failure::Window(window.port.lost().map(|(_, why)| why)));
        }
    }

    fn operation_has_failed(&self, window: &mut Window) -> bool {
        match (&self.kept, self.pending.first()) {
            (Kept::Operation(_), Some(id)) if !window.engine.is_pending(*id) => {
                window.has_failed(*id)
            }
            _ => false,
        }
    }

    /// Makes a request that is complete or has failed inactive.
    pub(crate) fn deactivate(&mut self) {
        if self.state != State::Active {
            self.state = State::Inactive;
        }
    }
}

fn completed(failed: bool) -> State {
    if failed { State::Failed(Failure::NotAttached) } else { State::Complete(None) }
}

/// Issues an operation as its R-form. Returns its request, unless it is complete.
fn issue_for_request(window: &mut Window, op: &Op) -> Result<Option<RequestId>, SyncError> {
    if op.len == 0 {
        return issue(window, op).map(|()| None);
    }
    let issued = with_port!(&mut window.port, port => window.engine.issue_request(port, op));
    match issued.inspect_err(|_| drop_shape(window, op))? {
        Outcome::Pending(id) => Ok(Some(id)),
        Outcome::Complete => Ok(None),
    }
}

/// Records the epochs that one handle of a window opens.
#[derive(Debug)]
pub(crate) struct Recorder {
    /// Whose request it is, in the table of persistent requests.
    pub(super) key: Key,
    /// Of the handle whose calls are recorded.
    pub(super) lane: u32,
    /// The thread whose calls are recorded.
    thread: ThreadId,
    rehearsal: Rehearsal,
    epochs: Epochs,
}

impl Recorder {
    pub(crate) fn new(window: &Window, key: Key) -> Self {
        Recorder {
            key,
            lane: window.lane(),
            thread: std::thread::current().id(),
            rehearsal: Rehearsal::new(window.rank(), window.size),
            epochs: Epochs::default(),
        }
    }

    /// Whether the calls of this thread are recorded.
    pub(crate) fn is_of_this_thread(&self) -> bool {
        !multiple() || self.thread == std::thread::current().id()
    }

    /// Records a call that opens or closes an epoch.
    pub(crate) fn synchronize(&mut self, call: SyncCall) -> Result<(), SyncError> {
        self.rehearsal.synchronize(&call)?;
        if let SyncCall::Fence(assert) = call {
            self.epochs.in_fences.push(InFences::Fence(assert));
        }
        self.epochs.steps.push(Step::Sync(call));
        Ok(())
    }

    /// Records an operation.
    pub(crate) fn issue(&mut self, kept: KeptOp) -> Result<(), SyncError> {
        self.rehearsal.issue(&kept.op)?;
        if self.rehearsal.covers_by_fence(kept.op.target) {
            self.epochs.add_in_fence(kept.op.target);
        }
        let at = self.epochs.ops.len();
        self.epochs.ops.push(kept);
        match self.epochs.steps.last_mut() {
            Some(Step::Ops(ops)) => ops.end += 1,
            _ => self.epochs.steps.push(Step::Ops(at..at + 1)),
        }
        Ok(())
    }

    /// Whether an operation to `target` may be recorded.
    pub(crate) fn covers(&self, target: Rank) -> bool {
        self.rehearsal.covers(target)
    }

    /// Whether each epoch with recorded calls is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.rehearsal.is_closed()
    }

    /// Ends the record.
    pub(super) fn finish(mut self, window: &Window) -> Epochs {
        self.epochs.resolve(window);
        self.epochs
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn moves_that_continue_each_other_are_one() {
        let moves =
            [(0, 100, 8), (8, 108, 8), (16, 116, 4), (24, 120, 8), (32, 200, 8), (40, 208, 8)];
        let moves: Vec<Move> =
            moves.into_iter().map(|(from, to, len)| Move { from, to, len }).collect();
        let step = |target, range: Range<usize>| Step::Moves {
            target,
            ops: range.clone(),
            moves: range,
            joined: 0..0,
        };
        let steps = vec![step(1, 0..5), step(2, 5..6)];
        let mut epochs = Epochs { steps, moves, ..Epochs::default() };
        epochs.join();
        let joined = |step: &Step| match step {
            Step::Moves { joined, .. } => epochs.joined[joined.clone()]
                .iter()
                .map(|found| (found.from, found.to, found.len))
                .collect(),
            other => panic!("{other:?}"),
        };
        let joined: Vec<Vec<_>> = epochs.steps.iter().map(joined).collect();
        // The fourth continues no source, the fifth no destination, and the last no target.
        assert_eq!(joined[0], [(0, 100, 20), (24, 120, 8), (32, 200, 8)]);
        assert_eq!(joined[1], [(40, 208, 8)]);
    }
}
