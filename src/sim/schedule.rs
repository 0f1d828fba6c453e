//! The C schedules of `microbench/schedule`: the steps that the programs on real ranks make as MPI
//! calls.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};

use super::script::{Group, How, Moment, Script, Slot, Step, byte_op};
use crate::engine::{Addr, Assert, LockMode, Op, OpKind, Rank};
use crate::transport::datatype::element::{native, reduction};

/// The kind of calls that a schedule makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Series {
    /// MPI's blocking calls.
    Blocking = 0,
    /// Nonblocking opening and closing calls.
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
    /// Rows and columns of the matrix.
    pub m: u64,
    /// Rows that the ring buffer holds.
    pub depth: u64,
    /// 1: broadcast a row before updating the rows after the next.
    pub ahead: i32,
    /// Kind of calls.
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
    /// Seed of the random choices.
    pub seed: u64,
    /// Maximum number of pending epochs (nonblocking); 0: unbounded.
    pub window: u64,
    /// Floating-point operations after each transaction.
    pub flops: f64,
    /// 1: every fourth transaction is an audit, which reads both halves of an account; they must
    /// match.
    pub audits: i32,
    /// Kind of calls.
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
    /// The C state, aligned as the schedule requires.
    state: Box<[u64]>,
    next: Next,
    series: Series,
    /// Row length in elements, from which the bytes touched follow; 0: not LU.
    m: u64,
    /// Buffers read by audits, by request (if bytes are carried).
    audits: Vec<Vec<Addr>>,
    /// Request of the last step, if its epoch is complete when the step returns.
    ends: Option<u64>,
    /// Number of audits, and of those whose halves did not match.
    pub audited: [u64; 2],
}

/// Zeroed memory for the C state of a schedule.
fn memory(bytes: usize) -> Box<[u64]> {
    vec![0; bytes.div_ceil(size_of::<u64>())].into()
}

/// Converts an error message from C; NULL is success.
fn problem(text: *const c_char) -> Result<(), String> {
    if text.is_null() {
        return Ok(());
    }
    // SAFETY: the schedule functions return NULL or a static NUL-terminated string.
    Err(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// The C functions of one schedule, whose options are `O`.
struct Functions<O> {
    problem: unsafe extern "C" fn(*const O) -> *const c_char,
    size: unsafe extern "C" fn() -> usize,
    open: unsafe extern "C" fn(*mut c_void, *const O) -> c_int,
    next: Next,
}

const LU: Functions<LuOptions> = Functions {
    problem: schedule_lu_problem,
    size: schedule_lu_size,
    open: schedule_lu_open,
    next: schedule_lu_next,
};

const TRANSACTIONS: Functions<TransactionsOptions> = Functions {
    problem: schedule_transactions_problem,
    size: schedule_transactions_size,
    open: schedule_transactions_open,
    next: schedule_transactions_next,
};

impl Schedule {
    /// A schedule of the LU decomposition.
    ///
    /// # Errors
    /// If the options are invalid; the text says why.
    pub fn lu(options: &LuOptions) -> Result<Self, String> {
        Self::open(&LU, options, options.series, options.m)
    }

    /// A schedule of the transactions.
    ///
    /// # Errors
    /// If the options are invalid; the text says why.
    pub fn transactions(options: &TransactionsOptions) -> Result<Self, String> {
        Self::open(&TRANSACTIONS, options, options.series, 0)
    }

    fn open<O>(
        functions: &Functions<O>,
        options: &O,
        series: Series,
        m: u64,
    ) -> Result<Self, String> {
        // SAFETY: `options` points to live options of this schedule, which are only read.
        problem(unsafe { (functions.problem)(options) })?;
        // SAFETY: `functions` belong to one schedule (`LU` or `TRANSACTIONS`), so `state` has the
        // size that its `open` needs. It is aligned to 8 as schedule.h requires, and `problem`
        // accepted `options`.
        let (state, opened) = unsafe {
            let mut state = memory((functions.size)());
            let opened = (functions.open)(state.as_mut_ptr().cast(), options);
            (state, opened)
        };
        assert_eq!(opened, 0, "the schedule rejects options that it has accepted");
        let (next, audits) = (functions.next, Vec::new());
        Ok(Schedule { state, next, series, m, audits, ends: None, audited: [0; 2] })
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

    /// The operation of a step. It gets a buffer if the network carries bytes: an accumulate adds
    /// the amount and 1, and the buffer of a get is kept for [`audit`](Self::audit).
    fn op(&mut self, at: &mut Moment<'_>, step: &CStep, kind: OpKind) -> Op {
        let mut op = byte_op(kind, step.peer.max(0) as Rank, step.disp, step.bytes);
        if kind == OpKind::Accumulate {
            op = Op { element: native::I64, reduction: reduction::SUM, extent: 8, ..op };
        }
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
        if kind == OpKind::Get {
            let request = step.request as usize;
            self.audits.resize(self.audits.len().max(request + 1), Vec::new());
            self.audits[request].push(buffer);
        }
        Op { origin: buffer, result: buffer, ..op }
    }

    /// Checks the audit, if any, of a completed epoch: both halves must match.
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

/// `SCHEDULE_OTHERS`
const OTHERS: i32 = -1;

impl Script for Schedule {
    fn next(&mut self, at: &mut Moment<'_>) -> Step {
        if let Some(request) = self.ends.take() {
            self.audit(at, request);
        }
        let mut step = CStep::default();
        // SAFETY: `state` was opened for this `next` function and is owned by `self`; `step` points
        // to a live `schedule_step` that the function writes.
        let kind = unsafe { (self.next)(self.state.as_mut_ptr().cast(), &raw mut step) };
        let (window, peer) = (0, step.peer.max(0) as Rank);
        let group = if step.peer == OTHERS { Group::Others } else { Group::One(peer) };
        let blocking = self.series == Series::Blocking;
        match kind {
            0 => Step::End,
            1 => Step::Post { window, group },
            2 => Step::Start { window, group },
            3 if step.peer == OTHERS => {
                Step::IssueOthers { window, op: self.op(at, &step, OpKind::Put) }
            }
            3 => Step::Issue { window, op: self.op(at, &step, OpKind::Put) },
            4 => Step::Issue { window, op: self.op(at, &step, OpKind::Accumulate) },
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
            11 => Step::Issue { window, op: self.op(at, &step, OpKind::Get) },
            other => unreachable!("schedule.h has no step {other}"),
        }
    }
}
