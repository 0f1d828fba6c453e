//! The schedules in C of `microbench/schedule`: the same steps that the programs on real ranks make
//! by MPI calls.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};

use super::script::{Group, How, Moment, Script, Slot, Step};
use crate::engine::{Addr, Assert, LockMode, Op, OpKind, Rank};
use crate::transport::datatype::element::{native, reduction};

/// Which calls a schedule makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Series {
    /// MPI's own.
    Blocking = 0,
    /// Every opening and closing returns at once.
    Nonblocking = 1,
}

/// `schedule_lu_options`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct LuOptions {
    /// This rank.
    pub rank: i32,
    /// Number of ranks.
    pub ranks: i32,
    /// Rows and columns.
    pub m: u64,
    /// Slots of the ring of rows.
    pub depth: u64,
    /// 1: a row is broadcast before the rows after the next are updated.
    pub ahead: i32,
    /// Calls.
    pub series: Series,
}

/// `schedule_transactions_options`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct TransactionsOptions {
    /// This rank.
    pub rank: i32,
    /// Number of ranks.
    pub ranks: i32,
    /// Transactions of each rank.
    pub count: u64,
    /// Accounts in each window.
    pub accounts: u64,
    /// Of the random choices.
    pub seed: u64,
    /// Epochs pending at most, nonblocking; 0: no bound.
    pub window: u64,
    /// Computed after each transaction.
    pub flops: f64,
    /// 1: every fourth transaction reads both halves of an account, which must match.
    pub audits: i32,
    /// Calls.
    pub series: Series,
}

/// `schedule_step`
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct CStep {
    kind: i32,
    peer: i32,
    disp: u64,
    bytes: u64,
    request: u64,
    work: u64,
    first: u64,
    rows: u64,
    amount: i64,
    flops: f64,
}

unsafe extern "C" {
    fn schedule_lu_problem(options: *const LuOptions) -> *const c_char;
    fn schedule_lu_size() -> usize;
    fn schedule_lu_open(state: *mut c_void, options: *const LuOptions) -> c_int;
    fn schedule_lu_next(state: *mut c_void, step: *mut CStep) -> c_int;
    fn schedule_transactions_problem(options: *const TransactionsOptions) -> *const c_char;
    fn schedule_transactions_size() -> usize;
    fn schedule_transactions_open(state: *mut c_void, options: *const TransactionsOptions)
    -> c_int;
    fn schedule_transactions_next(state: *mut c_void, step: *mut CStep) -> c_int;
}

type Next = unsafe extern "C" fn(*mut c_void, *mut CStep) -> c_int;

/// One rank's schedule.
pub struct Schedule {
    /// The schedule's memory, aligned as it asks for.
    state: Box<[u64]>,
    next: Next,
    series: Series,
    /// Row length, for what a computation touches; 0: nothing is known.
    m: u64,
    /// Where bytes are carried: what an audit reads, by request.
    audits: Vec<Vec<Addr>>,
    /// The epoch of this request is complete when the step that was given last returns.
    ends: Option<u64>,
    /// Audits made, and those whose halves did not match.
    pub audited: [u64; 2],
}

/// Memory for a schedule of so many bytes.
fn memory(bytes: usize) -> Box<[u64]> {
    vec![0; bytes.div_ceil(size_of::<u64>())].into()
}

/// What C says of a problem.
fn problem(text: *const c_char) -> Result<(), String> {
    if text.is_null() {
        return Ok(());
    }
    // SAFETY: the schedules give NULL or a string constant.
    Err(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

impl Schedule {
    /// LU decomposition.
    ///
    /// # Errors
    /// What is wrong with the options.
    pub fn lu(options: &LuOptions) -> Result<Self, String> {
        // SAFETY: the options are laid out as in schedule.h and only read.
        problem(unsafe { schedule_lu_problem(options) })?;
        // SAFETY: the size is asked for before, and the memory is aligned for u64; the options have
        // no problem.
        let (state, opened) = unsafe {
            let mut state = memory(schedule_lu_size());
            let opened = schedule_lu_open(state.as_mut_ptr().cast(), options);
            (state, opened)
        };
        assert_eq!(opened, 0, "options without a problem");
        Ok(Schedule {
            state,
            next: schedule_lu_next,
            series: options.series,
            m: options.m,
            audits: Vec::new(),
            ends: None,
            audited: [0; 2],
        })
    }

    /// Transactions.
    ///
    /// # Errors
    /// What is wrong with the options.
    pub fn transactions(options: &TransactionsOptions) -> Result<Self, String> {
        // SAFETY: as in `lu`.
        problem(unsafe { schedule_transactions_problem(options) })?;
        // SAFETY: as in `lu`.
        let (state, opened) = unsafe {
            let mut state = memory(schedule_transactions_size());
            let opened = schedule_transactions_open(state.as_mut_ptr().cast(), options);
            (state, opened)
        };
        assert_eq!(opened, 0, "options without a problem");
        Ok(Schedule {
            state,
            next: schedule_transactions_next,
            series: options.series,
            m: 0,
            audits: Vec::new(),
            ends: None,
            audited: [0; 2],
        })
    }

    fn how(&mut self, step: &CStep) -> How {
        match self.series {
            Series::Blocking => {
                self.ends = Some(step.request);
                How::Blocking
            }
            Series::Nonblocking => How::Slot(step.request as Slot),
        }
    }

    /// Where bytes are carried, a call has buffers of its own: an accumulate adds the amount and 1,
    /// an audit is remembered.
    fn fill(&mut self, at: &mut Moment<'_>, step: &CStep, op: Op) -> Op {
        if !at.net.carries_bytes() {
            return op;
        }
        let len = op.len as usize;
        let buffer = at.net.allocate(at.me, len);
        for (to, word) in
            at.net.private_mut(at.me, buffer, len).chunks_exact_mut(8).zip([step.amount, 1])
        {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        if op.kind == OpKind::Get {
            let request = step.request as usize;
            self.audits.resize(self.audits.len().max(request + 1), Vec::new());
            self.audits[request].push(buffer);
        }
        Op { origin: buffer, result: buffer, ..op }
    }

    /// The epoch of this request is complete: its audit, if it was one, has read both halves.
    fn audit(&mut self, at: &Moment<'_>, request: u64) {
        let Some(halves) = self.audits.get_mut(request as usize).map(std::mem::take) else {
            return;
        };
        let &[left, right] = halves.as_slice() else { return };
        let read = |half, word: usize| {
            let bytes = &at.net.private(at.me, half, 16)[8 * word..][..8];
            i64::from_ne_bytes(bytes.try_into().expect("8 bytes"))
        };
        let matching = read(left, 0) == -read(right, 0) && read(left, 1) == read(right, 1);
        self.audited[0] += 1;
        self.audited[1] += u64::from(!matching);
    }
}

/// What `SCHEDULE_OTHERS` says.
const OTHERS: i32 = -1;

fn op(kind: OpKind, step: &CStep) -> Op {
    let (element, reduction, extent) = match kind {
        OpKind::Accumulate => (native::I64, reduction::SUM, 8),
        _ => (native::BYTE, reduction::REPLACE, 1),
    };
    Op {
        origin: Addr(0),
        result: Addr(0),
        compare: Addr(0),
        disp: step.disp,
        len: step.bytes,
        target: step.peer.max(0) as Rank,
        kind,
        element,
        reduction,
        extent,
        shape: None,
    }
}

impl Script for Schedule {
    fn next(&mut self, at: &mut Moment<'_>) -> Step {
        if let Some(request) = self.ends.take() {
            self.audit(at, request);
        }
        let mut step = CStep::default();
        // SAFETY: the state was opened for this function and belongs to this schedule alone; the
        // step is laid out as in schedule.h.
        let kind = unsafe { (self.next)(self.state.as_mut_ptr().cast(), &raw mut step) };
        let (window, peer) = (0, step.peer.max(0) as Rank);
        let group = if step.peer == OTHERS { Group::Others } else { Group::One(peer) };
        let blocking = self.series == Series::Blocking;
        match kind {
            0 => Step::End,
            1 => Step::Post { window, group },
            2 => Step::Start { window, group },
            3 if step.peer == OTHERS => {
                Step::IssueOthers { window, op: self.fill(at, &step, op(OpKind::Put, &step)) }
            }
            3 => Step::Issue { window, op: self.fill(at, &step, op(OpKind::Put, &step)) },
            4 => Step::Issue { window, op: self.fill(at, &step, op(OpKind::Accumulate, &step)) },
            5 => Step::Complete { window, how: self.how(&step) },
            6 => Step::Wait { window, how: self.how(&step) },
            7 => {
                let (mode, assert) = (LockMode::Exclusive, Assert::default());
                Step::Lock { window, mode, target: peer, assert, blocking }
            }
            8 => Step::Unlock { window, target: peer, how: self.how(&step) },
            9 => {
                self.ends = Some(step.request);
                Step::Await(step.request as Slot)
            }
            10 => Step::Flops {
                flops: step.flops,
                bytes: step.rows * self.m.saturating_sub(step.work) * 8,
            },
            11 => Step::Issue { window, op: self.fill(at, &step, op(OpKind::Get, &step)) },
            other => unreachable!("schedule.h has no step {other}"),
        }
    }
}
