//! What a generated program is: calls per rank, and what must come of them.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::rc::Rc;

use mpix_rma::engine::*;
use mpix_rma::sim::{Slot, Step, WindowSpec};
use mpix_rma::transport::sim::Time;

pub use super::shapes::{Places, Region, Sides, WORD};

/// An operation, numbered in the program.
pub type OpId = usize;

/// What an operation sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Nothing,
    /// Bytes made of this value ([`bytes_of`]).
    Value(u64),
    /// What this earlier get has fetched, plus one.
    OneMoreThan(OpId),
}

/// What an operation must fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Nothing, or what a [`Group`] says.
    Open,
    Exactly(u64),
    /// These of the program's words, element by element.
    Words(u32),
}

/// An operation before its buffers have addresses.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub window: u32,
    pub target: Rank,
    pub kind: OpKind,
    pub reduction: Reduction,
    pub disp: usize,
    pub len: usize,
    pub source: Source,
    pub compare: u64,
    pub expect: Expect,
    /// Derived datatypes: which of the program's sides; `disp` is where the target's items are.
    pub sides: Option<u32>,
}

/// One thing that a rank does.
#[derive(Clone, Debug)]
pub enum Call {
    Step(Step),
    Op(OpId),
    /// The R-form of one.
    Request(OpId, Slot),
    /// `MPI_Win_test` until it is true.
    TestLoop(u32),
    /// `MPI_Test` until it is true.
    TestSlotLoop(Slot),
    /// The origin buffers of these may be used again: they are filled with something else.
    Scribble(Vec<OpId>),
    /// The rank's own window memory holds this now.
    See(Content),
    /// The rank writes this to its own window memory.
    Store(Content),
    /// `MPI_Test` on an expectation until it is true.
    TestExpectationLoop {
        window: u32,
        slot: Slot,
    },
    /// If the notification that was last waited for tells of something, it is there.
    SeeTold(u32),
    /// A counter is reset; again and again, waiting for it to rise, until so many notifications
    /// have been taken from it in all.
    TakeLoop {
        window: u32,
        counter: u32,
        until: u64,
    },
}

/// A counter of a rank, and how often it was raised.
#[derive(Clone, Copy, Debug)]
pub struct Count {
    pub window: u32,
    pub rank: Rank,
    pub counter: u32,
    pub raised: u64,
}

/// Window memory of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    pub window: u32,
    pub rank: Rank,
    pub disp: usize,
    pub len: usize,
    pub value: u64,
}

/// Operations whose results hang together, whatever the order in which they took effect.
#[derive(Clone, Debug)]
pub enum Group {
    /// Each of these fetched another number, from 0 on: atomic additions of one, or reads under
    /// exclusive locks of what is then written back plus one.
    Permutation(Vec<OpId>),
    /// Fetched sums of a cell that is only added to: none above the last.
    Sums { fetches: Vec<(OpId, u64)>, total: u64 },
    /// Compare-and-swaps from 0 to these values: one has won, and the others have found its value.
    Election { cell: Content, ops: Vec<(OpId, u64)> },
    /// Pairs of cells that are written together under exclusive locks and read together under
    /// locks: equal, and one of these or 0.
    Twins { cells: [Content; 2], written: Vec<u64>, reads: Vec<[OpId; 2]> },
}

/// A program.
pub struct Program {
    pub ranks: u32,
    pub windows: Vec<WindowSpec>,
    pub calls: Vec<Vec<Call>>,
    pub plans: Vec<Plan>,
    pub sides: Vec<Rc<Sides>>,
    pub words: Vec<Vec<u64>>,
    /// Memory afterwards, with what lies between.
    pub regions: Vec<Region>,
    /// Memory before.
    pub begin: Vec<Content>,
    /// Memory afterwards.
    pub end: Vec<Content>,
    /// Counters afterwards.
    pub counts: Vec<Count>,
    /// What a tag tells: by window, target, source and tag.
    pub told: HashMap<(u32, Rank, Rank, u32), Content>,
    pub groups: Vec<Group>,
    /// How often each thing was generated.
    pub coverage: BTreeMap<&'static str, u64>,
    /// Transactions that could be left out.
    pub transactions: u32,
}

/// The bytes that a value stands for: itself in 8 bytes, a pattern in any other length.
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

impl Program {
    /// Time that ranks compute, all of them together.
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
                    call => writeln!(f, "rank {rank} {at}: {call:?}")?,
                }
            }
        }
        Ok(())
    }
}
