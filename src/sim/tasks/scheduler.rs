//! The tasks of one rank: dependency counts, a ready queue, and free cores. It knows no time.

use std::collections::VecDeque;
use std::hash::Hash;

use hashbrown::HashMap;

/// The tasks of a rank, and which of them wait for which others.
pub trait Graph {
    /// Names a task.
    type Task: Copy + Eq + Hash;

    /// Number of tasks.
    fn len(&self) -> u64;

    /// True if there are no tasks.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `each` with the tasks that wait for no other task, in the order of their creation.
    fn roots(&self, each: &mut dyn FnMut(Self::Task));

    /// Calls `each` with the tasks for which this one waits.
    fn predecessors(&self, task: Self::Task, each: &mut dyn FnMut(Self::Task));

    /// Calls `each` with the tasks that wait for this one.
    fn successors(&self, task: Self::Task, each: &mut dyn FnMut(Self::Task));
}

/// Index of a core of a rank.
pub type Core = u32;

/// Gives ready tasks to free cores, first come, first served.
///
/// 1. [`assign`](Self::assign) until it returns `None`.
/// 2. [`finish`](Self::finish) when a task is complete, and [`release`](Self::release) when its
///    core is free. A task may give its core back before it is complete.
///
/// The graph is not stored. A task takes memory from the end of its first predecessor until it
/// starts, so the memory grows with the front of the execution and not with its length.
pub struct Scheduler<G: Graph> {
    graph: G,
    /// Number of unfinished predecessors of the tasks that have a finished one.
    waiting: HashMap<G::Task, u32>,
    ready: VecDeque<G::Task>,
    /// The core on top has been free for the shortest time.
    free: Vec<Core>,
    finished: u64,
    waiting_max: usize,
}

impl<G: Graph> Scheduler<G> {
    /// A scheduler with `cores` free cores. The roots of the graph are ready.
    pub fn new(graph: G, cores: u32) -> Self {
        let mut ready = VecDeque::new();
        graph.roots(&mut |task| ready.push_back(task));
        Scheduler {
            graph,
            waiting: HashMap::new(),
            ready,
            free: (0..cores).rev().collect(),
            finished: 0,
            waiting_max: 0,
        }
    }

    /// Gives the oldest ready task a free core.
    pub fn assign(&mut self) -> Option<(Core, G::Task)> {
        if self.free.is_empty() {
            return None;
        }
        let task = self.ready.pop_front()?;
        Some((self.free.pop()?, task))
    }

    /// Takes a free core for work that is not a task.
    pub fn take_core(&mut self) -> Option<Core> {
        self.free.pop()
    }

    /// Frees a core.
    pub fn release(&mut self, core: Core) {
        debug_assert!(!self.free.contains(&core), "core {core} is free already");
        self.free.push(core);
    }

    /// Completes a task: successors without other unfinished predecessors become ready.
    pub fn finish(&mut self, task: G::Task) {
        self.finished += 1;
        let (graph, waiting, ready) = (&self.graph, &mut self.waiting, &mut self.ready);
        graph.successors(task, &mut |successor| {
            let left = waiting.entry(successor).or_insert_with(|| {
                let mut predecessors = 0;
                graph.predecessors(successor, &mut |_| predecessors += 1);
                predecessors
            });
            *left -= 1;
            if *left == 0 {
                waiting.remove(&successor);
                ready.push_back(successor);
            }
        });
        self.waiting_max = self.waiting_max.max(self.waiting.len());
    }

    /// Number of finished tasks.
    #[must_use]
    pub fn finished(&self) -> u64 {
        self.finished
    }

    /// True if every task is finished.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.finished == self.graph.len()
    }

    /// Most tasks that have waited at a time with a finished predecessor.
    #[must_use]
    pub fn waiting_max(&self) -> usize {
        self.waiting_max
    }
}
