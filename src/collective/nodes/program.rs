//! What one process does in a collective over several nodes, as data.
//!
//! Every process has four areas of memory ([`Area`]) and some counters. The processes of a node
//! load from and store to each other's areas, and see each other's counters. A put to another node
//! raises a counter there, which all processes of that node see (NOCOS).
//!
//! A [`Step`] waits for earlier steps of its process and for a counter, moves bytes, and raises a
//! counter. The memory that a step reads does not change before its put has arrived, so no step
//! waits for local completion.

use std::ops::Range;

/// An area of a process's memory, in which places are counted in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Area {
    /// The contribution. No step writes it.
    Send,
    /// The result; in a halo exchange, the field.
    Receive,
    /// What processes of the node prepare for each other and for other nodes.
    Work,
    /// What arrives from other nodes.
    Inbox,
}

impl Area {
    /// Its place in [`AREAS`].
    #[must_use]
    pub fn number(self) -> usize {
        self as usize
    }
}

/// All areas, in the order of [`Program::areas`].
pub const AREAS: [Area; 4] = [Area::Send, Area::Receive, Area::Work, Area::Inbox];

/// A place in the memory of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The process.
    pub rank: u32,
    /// The area.
    pub area: Area,
    /// Bytes from its beginning.
    pub at: u32,
}

impl Place {
    /// This place, `by` bytes further.
    #[must_use]
    pub fn plus(self, by: u32) -> Self {
        Place { at: self.at + by, ..self }
    }
}

/// A place of a process.
#[must_use]
pub(super) fn place(rank: u32, area: Area, at: u32) -> Place {
    Place { rank, area, at }
}

/// Blocks of equal length, at equal distances on both sides, from the places of the step on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Begin of the first block at the source.
    pub from: u32,
    /// Begin of the first block at the destination.
    pub to: u32,
    /// Bytes of a block.
    pub bytes: u32,
    /// Number of blocks.
    pub count: u32,
    /// Distance of the blocks at the source.
    pub from_step: u32,
    /// Distance of the blocks at the destination. 0 in a fold of many blocks into one.
    pub to_step: u32,
}

impl Piece {
    /// One block.
    #[must_use]
    pub fn whole(bytes: u32) -> Self {
        Piece { from: 0, to: 0, bytes, count: 1, from_step: 0, to_step: 0 }
    }

    /// The blocks, as begins at source and destination.
    pub fn blocks(self) -> impl Iterator<Item = (u32, u32)> {
        (0..self.count)
            .map(move |at| (self.from + at * self.from_step, self.to + at * self.to_step))
    }
}

/// A counter of a process. All start at 0 and rise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Counter {
    /// The process.
    pub rank: u32,
    /// The number.
    pub index: u32,
}

/// How a step moves bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Loads and stores within the node.
    Copy,
    /// Likewise; reduces what it loads into the destination.
    Fold,
    /// Likewise; the destination becomes the reduction of the source with what is here.
    Combine(Place),
    /// A put with the step's notification. The target may be on any node.
    Put,
}

/// What a step moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// How.
    pub kind: Kind,
    /// The source.
    pub from: Place,
    /// The destination.
    pub to: Place,
    /// Which of the program's pieces.
    pieces: (u32, u32),
}

/// A block that a step moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The source.
    pub from: Place,
    /// The destination.
    pub to: Place,
    /// In a reduction, the other operand.
    pub with: Option<Place>,
    /// Its bytes, not 0.
    pub bytes: u32,
}

/// A wait for a counter of a process of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Await {
    /// The counter.
    pub counter: Counter,
    /// Its least value.
    pub value: u32,
}

/// A step of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// What it waits for, besides earlier steps.
    pub awaits: Option<Await>,
    /// What it moves then.
    pub moves: Option<Move>,
    /// The counter that it raises by one in the end.
    pub notifies: Option<Counter>,
    after: (u32, u32),
}

/// Number of a step.
pub type StepId = u32;

/// The steps of one process.
#[derive(Clone, Debug)]
pub struct Program {
    me: u32,
    steps: Vec<Step>,
    afters: Vec<StepId>,
    pieces: Vec<Piece>,
    areas: [u32; 4],
}

/// A step under construction.
#[derive(Debug)]
pub(super) struct Draft<'a> {
    program: &'a mut Program,
    step: Step,
}

impl Program {
    /// No steps. The areas have these bytes, in the order of [`AREAS`].
    pub(super) fn new(me: u32, areas: [u32; 4]) -> Self {
        Program { me, steps: Vec::new(), afters: Vec::new(), pieces: Vec::new(), areas }
    }

    /// The process.
    #[must_use]
    pub fn me(&self) -> u32 {
        self.me
    }

    /// Bytes of each area of this process.
    #[must_use]
    pub fn areas(&self) -> [u32; 4] {
        self.areas
    }

    /// The steps. Each depends on earlier ones only.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The steps that come before a step.
    #[must_use]
    pub fn before(&self, step: &Step) -> &[StepId] {
        &self.afters[step.after.0 as usize..step.after.1 as usize]
    }

    /// What a step moves, relative to its places.
    #[must_use]
    pub fn pieces(&self, moves: &Move) -> &[Piece] {
        &self.pieces[moves.pieces.0 as usize..moves.pieces.1 as usize]
    }

    /// The blocks that a step moves.
    pub fn blocks(&self, moves: &Move) -> impl Iterator<Item = Block> {
        let Move { kind, from, to, .. } = *moves;
        // What is combined with the first block is reduced with the further ones.
        let mut first = match kind {
            Kind::Combine(with) => Some(with),
            _ => None,
        };
        let reduces = matches!(kind, Kind::Fold | Kind::Combine(_));
        let pieces = self.pieces(moves).iter().filter(|piece| piece.bytes > 0);
        pieces.flat_map(|piece| piece.blocks().map(|at| (at, piece.bytes))).map(
            move |((source, target), bytes)| {
                let with = reduces.then(|| first.take().unwrap_or(to).plus(target));
                Block { from: from.plus(source), to: to.plus(target), with, bytes }
            },
        )
    }

    /// Bytes and blocks that a step moves.
    #[must_use]
    pub fn extent(&self, moves: &Move) -> (u64, u64) {
        let pieces = self.pieces(moves).iter().filter(|piece| piece.bytes > 0);
        pieces.fold((0, 0), |(bytes, blocks), piece| {
            let count = u64::from(piece.count);
            (bytes + count * u64::from(piece.bytes), blocks + count)
        })
    }

    /// A step behind others.
    pub(super) fn step(&mut self, after: &[StepId]) -> Draft<'_> {
        let begin = self.afters.len() as u32;
        debug_assert!(after.iter().all(|step| (*step as usize) < self.steps.len()));
        self.afters.extend_from_slice(after);
        let after = (begin, self.afters.len() as u32);
        let step = Step { awaits: None, moves: None, notifies: None, after };
        Draft { program: self, step }
    }

    /// A step that waits for a counter only.
    pub(super) fn wait(&mut self, after: &[StepId], rank: u32, index: u32, value: u32) -> StepId {
        self.step(after).awaits(rank, index, value).add()
    }
}

impl Draft<'_> {
    /// Waits for a counter; for nothing if the value is 0.
    pub(super) fn awaits(mut self, rank: u32, index: u32, value: u32) -> Self {
        self.step.awaits = (value > 0).then_some(Await { counter: Counter { rank, index }, value });
        self
    }

    /// Moves pieces.
    pub(super) fn moves(
        mut self,
        kind: Kind,
        from: Place,
        to: Place,
        pieces: impl IntoIterator<Item = Piece>,
    ) -> Self {
        let begin = self.program.pieces.len() as u32;
        self.program.pieces.extend(pieces);
        let pieces = (begin, self.program.pieces.len() as u32);
        self.step.moves = Some(Move { kind, from, to, pieces });
        self
    }

    pub(super) fn copy(self, from: Place, to: Place, bytes: u32) -> Self {
        self.moves(Kind::Copy, from, to, [Piece::whole(bytes)])
    }

    pub(super) fn put(self, from: Place, to: Place, bytes: u32) -> Self {
        self.moves(Kind::Put, from, to, [Piece::whole(bytes)])
    }

    /// Reduces `count` blocks, `step` bytes apart, into one.
    pub(super) fn fold(self, from: Place, to: Place, bytes: u32, count: u32, step: u32) -> Self {
        let piece = Piece { count, from_step: step, ..Piece::whole(bytes) };
        self.moves(Kind::Fold, from, to, [piece])
    }

    pub(super) fn combine(self, from: Place, with: Place, to: Place, bytes: u32) -> Self {
        self.moves(Kind::Combine(with), from, to, [Piece::whole(bytes)])
    }

    /// Raises a counter.
    pub(super) fn notifies(mut self, rank: u32, index: u32) -> Self {
        self.step.notifies = Some(Counter { rank, index });
        self
    }

    /// Adds the step.
    pub(super) fn add(self) -> StepId {
        let id = self.program.steps.len() as StepId;
        self.program.steps.push(self.step);
        id
    }
}

/// Places of the ranges that follow one another.
pub(super) fn offsets(lengths: impl IntoIterator<Item = u32>) -> Vec<u32> {
    let mut ends = vec![0];
    let mut sum = 0;
    for length in lengths {
        sum += length;
        ends.push(sum);
    }
    ends
}

/// Bytes of a range.
pub(super) fn length(range: &Range<u32>) -> u32 {
    range.end - range.start
}

/// The order in which one process does the steps of its program: those that may be done, lowest
/// number first.
#[derive(Debug)]
pub struct Progress {
    /// By step: predecessors that are not done, and all of them.
    left: Vec<u32>,
    all: Vec<u32>,
    /// By step: where its successors begin in the next list.
    first: Vec<u32>,
    successors: Vec<StepId>,
    undone: usize,
}

impl Progress {
    /// The beginning of a program. Calls `free` with each step that waits for no other.
    pub fn new(program: &Program, mut free: impl FnMut(StepId)) -> Self {
        let steps = program.steps();
        let mut first = vec![0; steps.len() + 1];
        for before in steps.iter().flat_map(|step| program.before(step)) {
            first[*before as usize + 1] += 1;
        }
        for at in 0..steps.len() {
            first[at + 1] += first[at];
        }
        let mut next = first.clone();
        let mut successors = vec![0; program.afters.len()];
        let mut left = Vec::with_capacity(steps.len());
        for (id, step) in (0..).zip(steps) {
            let before = program.before(step);
            left.push(before.len() as u32);
            for of in before {
                successors[next[*of as usize] as usize] = id;
                next[*of as usize] += 1;
            }
            if before.is_empty() {
                free(id);
            }
        }
        Progress { all: left.clone(), left, first, successors, undone: steps.len() }
    }

    /// The end of a program, which [`restart`](Self::restart) begins.
    pub(super) fn done_before(program: &Program) -> Self {
        Progress { undone: 0, ..Self::new(program, |_| ()) }
    }

    /// The beginning again. Calls `free` with each step that waits for no other, in their order.
    pub(super) fn restart(&mut self, free: impl FnMut(StepId)) {
        self.undone = self.all.len();
        self.left.copy_from_slice(&self.all);
        (0..).zip(&self.all).filter(|(_, before)| **before == 0).map(|(id, _)| id).for_each(free);
    }

    /// A step is done. Calls `free` with each step that waits for no other step now.
    pub fn done(&mut self, step: StepId, mut free: impl FnMut(StepId)) {
        self.undone -= 1;
        let at = step as usize;
        for &next in &self.successors[self.first[at] as usize..self.first[at + 1] as usize] {
            self.left[next as usize] -= 1;
            if self.left[next as usize] == 0 {
                free(next);
            }
        }
    }

    /// Whether all steps are done.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.undone == 0
    }
}
