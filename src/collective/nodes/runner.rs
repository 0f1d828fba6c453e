//! Runs the program of a process again and again.
//!
//! Two sets of counters, and of the memory that a program uses, take turns. So a process may begin
//! a run only when all processes have completed the last but one. A program in which nobody
//! completes before all have begun sees to that by itself. Beside another one, a *gate* runs: a
//! [`barrier`](super::barrier) that each process enters when it begins a run, and that must be
//! complete when it begins the next.

use std::collections::BTreeMap;

use super::program::{Counter, Kind, Move, Place, Program, Progress, StepId};

/// One of two programs, and one of its two sets of counters and memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// 0: the program; 1: its gate.
    pub part: usize,
    /// 0 or 1.
    pub set: usize,
}

/// What a program needs of its process.
pub trait Machine {
    /// A run begins. `before` runs of the program have used the same set.
    fn begin(&mut self, turn: Turn, before: u64);

    /// How often a counter of a process of this node has been raised so far.
    fn count(&mut self, turn: Turn, counter: Counter) -> u64;

    /// Raises a counter of a process of this node. What this process has read and written before
    /// comes before that.
    fn raise(&mut self, turn: Turn, counter: Counter);

    /// Copies or reduces pieces within the node.
    fn transfer(&mut self, turn: Turn, program: &Program, moves: &Move);

    /// Whether a process is on another node.
    fn is_far(&self, rank: u32) -> bool;

    /// Puts bytes to another node, and raises a counter there behind them.
    fn put(&mut self, turn: Turn, from: Place, to: Place, bytes: u32, counter: Counter);
}

/// How often each counter is raised in a run, by all processes.
pub type Totals = BTreeMap<Counter, u32>;

/// Adds what a program notifies.
pub fn add_totals(program: &Program, totals: &mut Totals) {
    for counter in program.steps().iter().filter_map(|step| step.notifies) {
        *totals.entry(counter).or_insert(0) += 1;
    }
}

/// The program of a process and its gate, in the middle of a run or between two.
#[derive(Debug)]
pub struct Repeated {
    main: Runner,
    gate: Option<Runner>,
    /// The gate of the last run was complete, so that this one has begun.
    begun: bool,
}

impl Repeated {
    /// A program that has not run yet, and its gate if it needs one, each with its totals.
    #[must_use]
    pub fn new(main: (Program, &Totals), gate: Option<(Program, &Totals)>) -> Self {
        let gate = gate.map(|(program, totals)| Runner::new(1, program, totals));
        Repeated { main: Runner::new(0, main.0, main.1), gate, begun: true }
    }

    /// Begins a run. The last one is done.
    pub fn start(&mut self) {
        debug_assert!(self.is_done());
        self.begun = false;
    }

    /// Does what can be done. True if anything was.
    pub fn advance(&mut self, machine: &mut impl Machine) -> bool {
        let mut moved = false;
        if let Some(gate) = &mut self.gate {
            moved |= gate.advance(machine);
            if !self.begun && !gate.is_done() {
                return moved;
            }
        }
        if !self.begun {
            self.begun = true;
            self.main.start(machine);
            if let Some(gate) = &mut self.gate {
                gate.start(machine);
                gate.advance(machine);
            }
            moved = true;
        }
        moved | self.main.advance(machine)
    }

    /// Whether the run is done in this process.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.begun && self.main.progress.is_done()
    }
}

/// A program in the middle of a run or between two.
#[derive(Debug)]
struct Runner {
    part: usize,
    program: Program,
    progress: Progress,
    /// Steps that wait for no other step, lowest number first.
    ready: Vec<StepId>,
    /// By step: how often the counter that it waits for is raised in a run.
    totals: Vec<u32>,
    /// Runs that have begun.
    runs: u64,
}

impl Runner {
    fn new(part: usize, program: Program, totals: &Totals) -> Self {
        let of = |counter: Counter| totals.get(&counter).copied().unwrap_or(0);
        let steps = program.steps().iter();
        let totals = steps.map(|step| step.awaits.map_or(0, |wait| of(wait.counter))).collect();
        let progress = Progress::done_before(&program);
        Runner { part, program, progress, ready: Vec::new(), totals, runs: 0 }
    }

    fn turn(&self) -> Turn {
        Turn { part: self.part, set: (self.runs % 2) as usize }
    }

    /// Runs before the current one that have used its set.
    fn before(&self) -> u64 {
        self.runs.saturating_sub(1) / 2
    }

    fn is_done(&self) -> bool {
        self.progress.is_done()
    }

    fn start(&mut self, machine: &mut impl Machine) {
        self.runs += 1;
        let ready = &mut self.ready;
        self.progress.restart(|step| ready.push(step));
        machine.begin(self.turn(), self.before());
    }

    /// Does all steps that can be done. True if there were any.
    fn advance(&mut self, machine: &mut impl Machine) -> bool {
        let (mut moved, mut at) = (false, 0);
        while let Some(&id) = self.ready.get(at) {
            if !self.may(machine, id) {
                at += 1;
                continue;
            }
            self.perform(machine, id);
            moved = true;
            self.ready.remove(at);
            let ready = &mut self.ready;
            // Steps depend on earlier ones only, so what becomes ready comes behind this place.
            self.progress.done(id, |next| {
                ready.insert(ready.partition_point(|other| *other < next), next);
            });
        }
        moved
    }

    fn may(&self, machine: &mut impl Machine, id: StepId) -> bool {
        let at = id as usize;
        self.program.steps()[at].awaits.is_none_or(|wait| {
            let before = self.before() * u64::from(self.totals[at]);
            machine.count(self.turn(), wait.counter) >= before + u64::from(wait.value)
        })
    }

    fn perform(&self, machine: &mut impl Machine, id: StepId) {
        let (turn, step) = (self.turn(), &self.program.steps()[id as usize]);
        if let (Some(moves), Some(counter)) = (&step.moves, step.notifies)
            && moves.kind == Kind::Put
            && machine.is_far(moves.to.rank)
        {
            let [piece] = self.program.pieces(moves) else {
                unreachable!("a put to another node is one block: {step:?}")
            };
            let (from, to) = (moves.from.plus(piece.from), moves.to.plus(piece.to));
            return machine.put(turn, from, to, piece.bytes, counter);
        }
        if let Some(moves) = &step.moves {
            machine.transfer(turn, &self.program, moves);
        }
        if let Some(counter) = step.notifies {
            machine.raise(turn, counter);
        }
    }
}
