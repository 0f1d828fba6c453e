//! What one process does in one collective, as data.
//!
//! Each process has a *block*: its contribution at first, and the result at the end. A step moves
//! a block through a slot of a *stage*. A process publishes at most once per stage, so that the
//! stage and the number of the collective identify what it has published.

/// One thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Publishes the block.
    Publish {
        /// The slot.
        stage: u8,
    },
    /// Waits until the process has published.
    Await {
        /// Rank of the process.
        from: u32,
        /// The slot.
        stage: u8,
    },
    /// Waits likewise, and replaces the block by what the process has published.
    Take {
        /// Rank of the process.
        from: u32,
        /// The slot.
        stage: u8,
    },
    /// Waits likewise, and reduces what the process has published into the block, as its left
    /// operand.
    Fold {
        /// Rank of the process.
        from: u32,
        /// The slot.
        stage: u8,
    },
    /// Waits likewise, and reduces what the process has published into the block, as its right
    /// operand.
    Append {
        /// Rank of the process.
        from: u32,
        /// The slot.
        stage: u8,
    },
    /// Waits likewise, and passes what the process has published to the caller.
    Collect {
        /// Rank of the process.
        from: u32,
        /// The slot.
        stage: u8,
    },
    /// Does that for each other process, beginning with the next one. At most once in a schedule.
    CollectAll {
        /// The slots.
        stage: u8,
    },
}

/// An action, and the steps that come before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// What to do.
    pub action: Action,
    /// A bit for each step that must be done before.
    pub after: u64,
}

/// The steps of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    steps: Vec<Step>,
    synchronizes: bool,
}

/// Most steps: their numbers are bits of a word.
const STEPS_MAX: usize = 64;

/// Most processes for which each reads what all others have published. With more, trees take fewer
/// cache misses per process.
pub const FLAT_MAX: u32 = 8;

impl Schedule {
    fn new(synchronizes: bool) -> Self {
        Schedule { steps: Vec::new(), synchronizes }
    }

    /// The steps. Each depends on earlier ones only.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Whether a process that has completed it knows that all others have begun it.
    #[must_use]
    pub fn synchronizes(&self) -> bool {
        self.synchronizes
    }

    /// The bits of all steps.
    #[must_use]
    pub fn all(&self) -> u64 {
        u64::MAX.checked_shr((STEPS_MAX - self.steps.len()) as u32).unwrap_or(0)
    }

    /// Adds a step behind those of `after`, and returns its bit.
    fn add(&mut self, action: Action, after: u64) -> u64 {
        assert!(self.steps.len() < STEPS_MAX, "a schedule of more than {STEPS_MAX} steps");
        let bit = 1 << self.steps.len();
        debug_assert!(after < bit, "a step depends on earlier ones");
        self.steps.push(Step { action, after });
        bit
    }
}

/// A barrier of `ranks` processes, for rank `me`: flat for a few, a dissemination barrier for more.
#[must_use]
pub fn barrier(me: u32, ranks: u32) -> Schedule {
    let mut schedule = Schedule::new(true);
    if ranks <= FLAT_MAX {
        if ranks > 1 {
            schedule.add(Action::Publish { stage: 0 }, 0);
        }
        for from in (0..ranks).filter(|from| *from != me) {
            schedule.add(Action::Await { from, stage: 0 }, 0);
        }
        return schedule;
    }
    let (mut stage, mut heard) = (0, 0);
    while 1 << stage < ranks {
        schedule.add(Action::Publish { stage }, heard);
        let from = (me + ranks - (1 << stage)) % ranks;
        heard |= schedule.add(Action::Await { from, stage }, 0);
        stage += 1;
    }
    schedule
}

/// A broadcast from `root`: flat for a few processes, along a binomial tree for more.
#[must_use]
pub fn broadcast(me: u32, ranks: u32, root: u32) -> Schedule {
    let mut schedule = Schedule::new(false);
    if ranks <= FLAT_MAX {
        match me == root {
            true if ranks == 1 => 0,
            true => schedule.add(Action::Publish { stage: 0 }, 0),
            false => schedule.add(Action::Take { from: root, stage: 0 }, 0),
        };
        return schedule;
    }
    spread(&mut schedule, Tree { me, ranks, root }, 0, 0);
    schedule
}

/// A reduction to `root`, whose block has the result. The contributions are operands in the order
/// of the ranks, grouped in a way that depends on the number of processes only, so that a repeated
/// run gives the same result [CL-2]. Among a few processes, the root folds all blocks. Among more,
/// they are reduced to rank 0 along a tree, which passes the result to the root.
#[must_use]
pub fn reduce(me: u32, ranks: u32, root: u32) -> Schedule {
    let mut schedule = Schedule::new(false);
    if ranks > FLAT_MAX {
        let gathered = gather_up(&mut schedule, Tree { me, ranks, root: 0 }, 0);
        if root != 0 && me == 0 {
            schedule.add(Action::Publish { stage: 1 }, gathered);
        } else if root != 0 && me == root {
            schedule.add(Action::Take { from: 0, stage: 1 }, gathered);
        }
    } else if me == root {
        fold_all(&mut schedule, me, ranks);
    } else {
        schedule.add(Action::Publish { stage: 0 }, 0);
    }
    schedule
}

/// A reduction whose result all processes get, the same in all of them [CL-2]. Among a few
/// processes, each folds all blocks. Among more, the blocks are reduced to rank 0 along a tree, and
/// the result returns along it. The order is that of [`reduce`].
#[must_use]
pub fn allreduce(me: u32, ranks: u32) -> Schedule {
    let mut schedule = Schedule::new(true);
    if ranks > FLAT_MAX {
        let tree = Tree { me, ranks, root: 0 };
        let gathered = gather_up(&mut schedule, tree, 0);
        spread(&mut schedule, tree, 1, gathered);
    } else {
        fold_all(&mut schedule, me, ranks);
    }
    schedule
}

/// A prefix reduction among a few processes: each folds the blocks of all that precede it, and its
/// own if it is `inclusive`. Otherwise the block of rank 0 is its contribution.
#[must_use]
pub fn scan(me: u32, ranks: u32, inclusive: bool) -> Schedule {
    assert!(ranks <= FLAT_MAX, "a scan of {ranks} processes");
    let mut schedule = Schedule::new(false);
    let mut before = 0;
    if me + 1 < ranks {
        before = schedule.add(Action::Publish { stage: 0 }, 0);
    }
    for from in (0..me).rev() {
        before = match inclusive || from + 1 < me {
            true => schedule.add(Action::Fold { from, stage: 0 }, before),
            false => schedule.add(Action::Take { from, stage: 0 }, before),
        };
    }
    schedule
}

/// The root collects what all others publish.
#[must_use]
pub fn gather(me: u32, ranks: u32, root: u32) -> Schedule {
    let mut schedule = Schedule::new(me == root);
    if ranks > 1 {
        let stage = 0;
        let action =
            if me == root { Action::CollectAll { stage } } else { Action::Publish { stage } };
        schedule.add(action, 0);
    }
    schedule
}

/// All others collect what the root publishes.
#[must_use]
pub fn scatter(me: u32, ranks: u32, root: u32) -> Schedule {
    let mut schedule = Schedule::new(false);
    if ranks > 1 {
        let publish = Action::Publish { stage: 0 };
        let action = if me == root { publish } else { Action::Collect { from: root, stage: 0 } };
        schedule.add(action, 0);
    }
    schedule
}

/// A gather in which all others collect what the root publishes, too.
#[must_use]
pub fn announced_gather(me: u32, ranks: u32, root: u32) -> Schedule {
    let mut schedule = Schedule::new(me == root);
    if ranks > 1 {
        let stage = 0;
        schedule.add(Action::Publish { stage }, 0);
        let collect = Action::Collect { from: root, stage };
        schedule.add(if me == root { Action::CollectAll { stage } } else { collect }, 0);
    }
    schedule
}

/// Each process collects what all others publish.
#[must_use]
pub fn exchange(ranks: u32) -> Schedule {
    let mut schedule = Schedule::new(true);
    if ranks > 1 {
        // What is sent must have left before what is received may replace it.
        let published = schedule.add(Action::Publish { stage: 0 }, 0);
        schedule.add(Action::CollectAll { stage: 0 }, published);
    }
    schedule
}

/// An exchange among a few processes in which each collects from the last rank to the first.
#[must_use]
pub fn ordered_exchange(me: u32, ranks: u32) -> Schedule {
    assert!(ranks <= FLAT_MAX, "an ordered exchange of {ranks} processes");
    let mut schedule = Schedule::new(true);
    if ranks > 1 {
        let mut before = schedule.add(Action::Publish { stage: 0 }, 0);
        for from in (0..ranks).rev().filter(|from| *from != me) {
            before = schedule.add(Action::Collect { from, stage: 0 }, before);
        }
    }
    schedule
}

/// A process's place in a binomial tree.
#[derive(Clone, Copy)]
struct Tree {
    me: u32,
    ranks: u32,
    root: u32,
}

impl Tree {
    /// Distance from the root in the order of ranks, which is the process's number in the tree.
    fn number(self) -> u32 {
        (self.me + self.ranks - self.root) % self.ranks
    }

    /// The rank of a process by its number.
    fn rank(self, number: u32) -> u32 {
        (number + self.root) % self.ranks
    }

    fn parent(self) -> Option<u32> {
        let number = self.number();
        (number != 0).then(|| self.rank(number & (number - 1)))
    }

    /// Children, nearest first.
    fn children(self) -> impl Iterator<Item = u32> {
        let number = self.number();
        let span = match number {
            0 => self.ranks.next_power_of_two(),
            _ => 1 << number.trailing_zeros(),
        };
        (0..span.trailing_zeros())
            .map(move |bit| number + (1 << bit))
            .filter(move |child| *child < self.ranks)
            .map(move |child| self.rank(child))
    }
}

/// Folds all blocks from the last rank to the first. Returns the last step's bit.
fn fold_all(schedule: &mut Schedule, me: u32, ranks: u32) -> u64 {
    let last = ranks - 1;
    if last == 0 {
        return 0;
    }
    // The own contribution is folded in its turn, and by then it is in the slot only.
    let mut before = schedule.add(Action::Publish { stage: 0 }, 0);
    if me != last {
        before = schedule.add(Action::Take { from: last, stage: 0 }, before);
    }
    for from in (0..last).rev() {
        before = schedule.add(Action::Fold { from, stage: 0 }, before);
    }
    before
}

/// Appends the children's blocks, and publishes the sum for the parent. Returns the last step's
/// bit.
fn gather_up(schedule: &mut Schedule, tree: Tree, stage: u8) -> u64 {
    let mut before = 0;
    for from in tree.children() {
        before = schedule.add(Action::Append { from, stage }, before);
    }
    match tree.parent() {
        Some(_) => schedule.add(Action::Publish { stage }, before),
        None => before,
    }
}

/// Takes the parent's block, and publishes it for the children.
fn spread(schedule: &mut Schedule, tree: Tree, stage: u8, after: u64) {
    let mut before = after;
    if let Some(from) = tree.parent() {
        before = schedule.add(Action::Take { from, stage }, before);
    }
    if tree.children().next().is_some() {
        schedule.add(Action::Publish { stage }, before);
    }
}
