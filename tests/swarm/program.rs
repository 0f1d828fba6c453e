//! A generated program: the calls of each rank, and the expected results.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::rc::Rc;

use mpix_rma::engine::*;
use mpix_rma::sim::{Slot, Step, WindowSpec};
use mpix_rma::transport::datatype::element::reduction;
use mpix_rma::transport::sim::Time;

pub use super::shapes::{Datatype, Places, Region, Sides, WORD};

/// Number of an operation in the program.
pub type OpId = usize;

/// Number of a persistent epoch in the program.
pub type RecordId = usize;

/// Data that an operation sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Nothing,
    /// The bytes of this value ([`bytes_of`]).
    Value(u64),
    /// The result of this earlier get, plus one.
    OneMoreThan(OpId),
}

/// Data that an operation must fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// None, or checked by a [`Group`].
    Open,
    Exactly(u64),
    /// These words of the program, element by element.
    Words(u32),
}

/// A planned operation, without buffer addresses.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub window: u32,
    pub target: Rank,
    pub kind: OpKind,
    pub notification: Option<Notification>,
    pub reduction: Reduction,
    pub disp: usize,
    pub len: usize,
    pub source: Source,
    pub compare: u64,
    pub expect: Expect,
    /// Index of the derived datatypes in the program's sides. `disp` is the displacement of the
    /// target's items.
    pub sides: Option<u32>,
}

/// A call of a persistent epoch.
#[derive(Clone, Debug)]
pub enum RecordedCall {
    Sync(SyncCall),
    /// An operation as it is recorded. It has buffers, and a plan without data.
    Op(OpId),
}

/// A persistent epoch of a rank. Each start has operations of its own, in the buffers of those that
/// are recorded.
#[derive(Clone, Debug)]
pub struct Record {
    pub window: u32,
    pub rank: Rank,
    pub calls: Vec<RecordedCall>,
}

impl Record {
    pub fn ops(&self) -> impl Iterator<Item = OpId> {
        self.calls.iter().filter_map(|call| match call {
            RecordedCall::Op(id) => Some(*id),
            RecordedCall::Sync(_) => None,
        })
    }
}

/// One action of a rank.
#[derive(Clone, Debug)]
pub enum Call {
    Step(Step),
    Op(OpId),
    /// The R-form of an operation.
    Request(OpId, Slot),
    /// `MPI_Win_test` until it is true.
    TestLoop(u32),
    /// `MPI_Test` until it is true.
    TestSlotLoop(Slot),
    /// The origin buffers of these operations are free again: overwrites them.
    Scribble(Vec<OpId>),
    /// Checks that the rank's own window memory holds this.
    Check(Content),
    /// Stores this to the rank's own window memory.
    Store(Content),
    /// `MPI_Test` on an expectation until it is true.
    TestExpectationLoop {
        window: u32,
        slot: Slot,
    },
    /// Checks the memory that the last awaited notification announced, if any.
    CheckAnnounced(u32),
    /// Resets a counter, and waits for it to rise, repeatedly until this many notifications were
    /// taken in total.
    TakeLoop {
        window: u32,
        counter: u32,
        until: u64,
    },
    /// Records a persistent epoch.
    Record(RecordId),
    /// Starts it, with these operations.
    Restart {
        record: RecordId,
        ids: Vec<OpId>,
        slot: Slot,
    },
    /// A start that conflicts with the epochs that are open.
    RestartRefused(RecordId),
    /// A start is complete: keeps what these operations have fetched, since the next start
    /// overwrites it.
    Collect {
        record: RecordId,
        ids: Vec<OpId>,
    },
}

impl Call {
    /// The operations that the call issues.
    pub fn ops(&self) -> &[OpId] {
        match self {
            Call::Op(id) | Call::Request(id, _) => std::slice::from_ref(id),
            Call::Restart { ids, .. } => ids,
            _ => &[],
        }
    }
}

/// A counter of a rank, and the number of its notifications.
#[derive(Clone, Copy, Debug)]
pub struct Count {
    pub window: u32,
    pub rank: Rank,
    pub counter: u32,
    pub raised: u64,
}

/// Content of the window memory of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    pub window: u32,
    pub rank: Rank,
    pub disp: usize,
    pub len: usize,
    pub value: u64,
}

/// Operations whose results depend on each other, in any legal order of effects.
#[derive(Clone, Debug)]
pub enum Group {
    /// Each fetched a different number, counted from 0: atomic additions of one, or reads under an
    /// exclusive lock that are written back plus one.
    Permutation(Vec<OpId>),
    /// Fetched sums of a cell that is only added to. None exceeds the final sum.
    Sums { fetches: Vec<(OpId, u64)>, total: u64 },
    /// Compare-and-swaps from 0 to these values. One succeeded; the others fetched its value.
    Election { cell: Content, ops: Vec<(OpId, u64)> },
    /// Pairs of cells, written together under exclusive locks and read together under locks: both
    /// hold the same value, which is one of these or 0.
    Twins { cells: [Content; 2], written: Vec<u64>, reads: Vec<[OpId; 2]> },
}

/// A generated program.
pub struct Program {
    pub ranks: u32,
    pub windows: Vec<WindowSpec>,
    /// Windows whose operations all raise the counter [`PUTS`](super::notifications::PUTS), unless
    /// they name another notification [NA-6].
    pub counted: Vec<bool>,
    pub calls: Vec<Vec<Call>>,
    pub records: Vec<Record>,
    pub plans: Vec<Plan>,
    pub sides: Vec<Rc<Sides>>,
    pub words: Vec<Vec<u64>>,
    /// Expected memory at the end for derived datatypes, gaps included.
    pub regions: Vec<Region>,
    /// Initial memory.
    pub begin: Vec<Content>,
    /// Expected memory at the end.
    pub end: Vec<Content>,
    /// Expected counters at the end.
    pub counts: Vec<Count>,
    /// Memory announced by a tag: by window, target, source and tag.
    pub announced: HashMap<(u32, Rank, Rank, u32), Content>,
    pub groups: Vec<Group>,
    /// How often each feature was generated.
    pub coverage: BTreeMap<&'static str, u64>,
    /// Number of transactions, each of which can be left out.
    pub transactions: u32,
}

/// The bytes of a value: the value itself in 8 bytes, otherwise a pattern.
pub fn bytes_of(value: u64, len: usize) -> Vec<u8> {
    if len == 8 {
        return value.to_ne_bytes().to_vec();
    }
    (0..len as u64)
        .map(|at| {
            (value.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(at.wrapping_mul(value | 1))
                >> 24) as u8
        })
        .collect()
}

/// All reductions of integers (MPI-4.1 sections 6.9.2 and 12.3.4): those of any integer type, those
/// that types like `MPI_AINT` lack, and those whose result depends on the type's sign.
pub const REDUCTIONS: [Reduction; 12] = [
    reduction::REPLACE,
    reduction::NO_OP,
    reduction::SUM,
    reduction::PROD,
    reduction::BAND,
    reduction::BOR,
    reduction::BXOR,
    reduction::LAND,
    reduction::LOR,
    reduction::LXOR,
    reduction::MIN,
    reduction::MAX,
];

/// The reductions of a program. Each third of the programs can have another choice of types.
pub fn reductions(seed: u64) -> &'static [Reduction] {
    &REDUCTIONS[..[7, 10, 12][(seed % 3) as usize]]
}

/// A word that holds `held` after a reduction with `operand`.
pub fn reduced(reduction: Reduction, held: u64, operand: u64) -> u64 {
    let (one, other) = (held != 0, operand != 0);
    match reduction {
        reduction::REPLACE => operand,
        reduction::SUM => held.wrapping_add(operand),
        reduction::PROD => held.wrapping_mul(operand),
        reduction::MIN => held.min(operand),
        reduction::MAX => held.max(operand),
        reduction::LAND => u64::from(one && other),
        reduction::LOR => u64::from(one || other),
        reduction::LXOR => u64::from(one != other),
        reduction::BAND => held & operand,
        reduction::BOR => held | operand,
        reduction::BXOR => held ^ operand,
        reduction::NO_OP => held,
        other => unreachable!("not predefined: {other:?}"),
    }
}

impl Program {
    /// Total time that all ranks compute.
    pub fn computes(&self) -> Time {
        let time = |call: &Call| if let Call::Step(Step::Compute(time)) = call { *time } else { 0 };
        self.calls.iter().flatten().map(time).sum()
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (window, spec) in self.windows.iter().enumerate() {
            writeln!(f, "window {window}: {spec:?}")?;
        }
        for (rank, calls) in self.calls.iter().enumerate() {
            for (at, call) in calls.iter().enumerate() {
                match call {
                    Call::Op(id) => writeln!(f, "rank {rank} {at}: op {id} {:?}", self.plans[*id])?,
                    Call::Request(id, slot) => writeln!(
                        f,
                        "rank {rank} {at}: op {id} in slot {slot} {:?}",
                        self.plans[*id]
                    )?,
                    Call::Step(step) => writeln!(f, "rank {rank} {at}: {step:?}")?,
                    Call::Record(record) => {
                        writeln!(
                            f,
                            "rank {rank} {at}: record {record}: {:?}",
                            self.records[*record]
                        )?;
                    }
                    Call::Restart { record, ids, .. } => {
                        writeln!(f, "rank {rank} {at}: {call:?}")?;
                        for (template, id) in self.records[*record].ops().zip(ids) {
                            writeln!(f, "  op {template} as {id} {:?}", self.plans[*id])?;
                        }
                    }
                    call => writeln!(f, "rank {rank} {at}: {call:?}")?,
                }
            }
        }
        Ok(())
    }
}
