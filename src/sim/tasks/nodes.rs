//! Runs the ranks: their cores take tasks, compute, and make calls in virtual time.

use super::exchange::{Costs, Exchange};
use super::gauss_seidel::{Band, Kind, Task};
use super::scheduler::{Core, Scheduler};
use super::{Ran, Work};
use crate::engine::{Rank, SyncError};
use crate::transport::sim::{Carry, FaultInjection, Network, NextEvent, Time};

/// What a core does, or does next when its alarm rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Nothing,
    /// Looks for work.
    Look,
    /// Begins a task.
    Begin(Task),
    /// Makes the call of a communication task.
    Call(Task),
    /// Computes since this time.
    Compute(Task, Time),
    /// Waits in a blocking call.
    Held(Task),
}

struct Process {
    scheduler: Scheduler<Band>,
    exchange: Exchange,
    cores: Vec<Doing>,
    /// Cores whose alarm is set.
    alarms: Vec<bool>,
    /// The core that waits in a blocking call. The versions that have such calls make one at a
    /// time.
    held: Option<Core>,
    /// An idle core is about to sweep.
    polled: bool,
    /// Something has arrived since the last sweep.
    news: bool,
    /// Until then a core is in the library, where one core at a time may be.
    guard: Time,
    /// Time that its cores have computed.
    computed: Time,
    /// End of its last task.
    end: Time,
}

/// All ranks and the network.
pub(super) struct Nodes<'a, W> {
    work: &'a Work,
    net: Network,
    processes: Vec<Process>,
    /// Tasks that a sweep has found complete; empty between calls.
    complete: Vec<Task>,
    watch: W,
}

/// What a run has found.
pub(super) struct Found {
    pub(super) end: Time,
    pub(super) computed: Time,
    pub(super) tasks: u64,
    pub(super) waiting_max: usize,
    pub(super) net: Network,
}

impl<'a, W: FnMut(Ran)> Nodes<'a, W> {
    pub(super) fn new(work: &'a Work, watch: W) -> Self {
        let (ranks, cores) = (work.ranks(), work.cores_per_rank());
        let mut parameters = work.machine.network;
        parameters.ranks_per_node = work.ranks_per_node();
        let mut net = Network::new(ranks, parameters, Carry::Nothing, FaultInjection::default());
        net.add_window(0);
        let costs = Costs {
            call: work.machine.call,
            eager_max: work.machine.eager_max,
            bytes: work.bytes(),
            pieces: work.pieces(),
        };
        let processes = (0..ranks).map(|me| Process {
            scheduler: Scheduler::new(work.band(me), cores),
            exchange: if work.puts() {
                Exchange::by_puts(me, ranks, costs)
            } else {
                Exchange::by_messages(me, costs)
            },
            cores: vec![Doing::Nothing; cores as usize],
            alarms: vec![false; cores as usize],
            held: None,
            polled: false,
            news: false,
            guard: 0,
            computed: 0,
            end: 0,
        });
        let processes = processes.collect();
        Nodes { work, net, processes, complete: Vec::new(), watch }
    }

    /// Runs all tasks.
    pub(super) fn run(mut self) -> Result<Found, String> {
        let refused = |error: SyncError| format!("the engine refused a call: {error:?}");
        for rank in 0..self.net.ranks() {
            self.net.begin(rank, 0);
            self.processes[rank as usize].exchange.open(&mut self.net).map_err(refused)?;
            self.processes[rank as usize].guard = self.net.clock();
            self.assign(rank);
        }
        while let Some(event) = self.net.advance() {
            if let NextEvent::Alarm { rank, tag } = event {
                self.processes[rank as usize].alarms[tag as usize] = false;
                self.go_on(rank, tag).map_err(refused)?;
            }
            while let Some(rank) = self.net.next_woken() {
                self.woken(rank);
            }
        }
        self.finish()
    }

    fn finish(self) -> Result<Found, String> {
        let left =
            |process: &&Process| !process.scheduler.is_done() || !process.exchange.is_quiet();
        if let Some(process) = self.processes.iter().find(left) {
            let (done, doing) = (process.scheduler.finished(), &process.cores);
            return Err(format!("a rank is stuck after {done} tasks; its cores: {doing:?}"));
        }
        let sum = |of: &dyn Fn(&Process) -> u64| self.processes.iter().map(of).sum();
        let most = |of: &dyn Fn(&Process) -> u64| self.processes.iter().map(of).max();
        Ok(Found {
            end: most(&|process| process.end).unwrap_or(0),
            computed: sum(&|process| process.computed),
            tasks: sum(&|process| process.scheduler.finished()),
            waiting_max: most(&|process| process.scheduler.waiting_max() as u64).unwrap_or(0)
                as usize,
            net: self.net,
        })
    }

    fn set_alarm(&mut self, rank: Rank, core: Core, at: Time) {
        let alarm = &mut self.processes[rank as usize].alarms[core as usize];
        assert!(!*alarm, "core {core} of rank {rank} has two things to do");
        *alarm = true;
        self.net.alarm(at, rank, core);
    }

    /// Gives ready tasks to free cores, which begin them at the time of the calling core.
    fn assign(&mut self, rank: Rank) {
        while let Some((core, task)) = self.processes[rank as usize].scheduler.assign() {
            self.processes[rank as usize].cores[core as usize] = Doing::Begin(task);
            self.set_alarm(rank, core, self.net.clock());
        }
    }

    /// Something has arrived. A core that waits in a call handles it, or a free one if tasks
    /// complete outside calls. Otherwise it waits for the next call or the end of a task.
    fn woken(&mut self, rank: Rank) {
        let polls = !self.work.version.blocks_core();
        let process = &mut self.processes[rank as usize];
        process.news = true;
        let at = process.guard.max(self.net.now());
        let core = match process.held {
            Some(core) if process.alarms[core as usize] => return,
            Some(core) => core,
            None if !polls || process.polled => return,
            None => {
                let Some(core) = process.scheduler.take_core() else { return };
                process.polled = true;
                process.cores[core as usize] = Doing::Look;
                core
            }
        };
        self.set_alarm(rank, core, at);
    }

    /// Lets a core continue until it computes, waits, or has nothing to do.
    fn go_on(&mut self, rank: Rank, core: Core) -> Result<(), SyncError> {
        self.net.begin(rank, self.net.now());
        loop {
            let process = &self.processes[rank as usize];
            let doing = process.cores[core as usize];
            let in_library = match doing {
                Doing::Look => process.news,
                Doing::Call(_) | Doing::Held(_) => true,
                Doing::Begin(_) | Doing::Compute(..) | Doing::Nothing => false,
            };
            if in_library && process.guard > self.net.clock() {
                let at = process.guard;
                self.set_alarm(rank, core, at);
                return Ok(());
            }
            if !self.step(rank, core, doing)? {
                return Ok(());
            }
            // Ranks that have an earlier event run first.
            if self.net.next_time().is_some_and(|next| next <= self.net.clock()) {
                self.set_alarm(rank, core, self.net.clock());
                return Ok(());
            }
            self.net.begin(rank, self.net.clock());
        }
    }

    /// One action of a core. Returns whether the core goes on.
    fn step(&mut self, rank: Rank, core: Core, doing: Doing) -> Result<bool, SyncError> {
        match doing {
            Doing::Nothing => Ok(false),
            Doing::Look => {
                self.processes[rank as usize].polled = false;
                if self.processes[rank as usize].news {
                    self.sweep(rank, None)?;
                }
                Ok(self.free(rank, core))
            }
            Doing::Begin(task) => {
                self.net.spend(self.work.task_overhead());
                let (began, computes) = (self.net.clock(), task.kind == Kind::Compute);
                let next = if computes { Doing::Compute(task, began) } else { Doing::Call(task) };
                self.processes[rank as usize].cores[core as usize] = next;
                if computes {
                    self.set_alarm(rank, core, began + self.work.compute_time(rank, task));
                }
                Ok(!computes)
            }
            Doing::Call(task) => self.communicate(rank, core, task),
            Doing::Compute(task, began) => {
                let ended = self.net.clock();
                self.processes[rank as usize].computed += ended - began;
                (self.watch)(Ran { rank, task, began, ended });
                self.complete(rank, task)?;
                Ok(self.free(rank, core))
            }
            Doing::Held(task) => {
                if !self.sweep(rank, Some(task))? {
                    return Ok(false);
                }
                self.processes[rank as usize].held = None;
                Ok(self.free(rank, core))
            }
        }
    }

    /// Makes the call of a communication task. Like every call, it makes progress.
    fn communicate(&mut self, rank: Rank, core: Core, task: Task) -> Result<bool, SyncError> {
        let process = &mut self.processes[rank as usize];
        let mut over = process.exchange.call(&mut self.net, task)?;
        if over {
            self.complete(rank, task)?;
        }
        let news = self.processes[rank as usize].news;
        let waits = !over && self.work.version.blocks_core();
        if news {
            over |= self.sweep(rank, Some(task).filter(|_| waits))?;
        }
        let process = &mut self.processes[rank as usize];
        process.guard = self.net.clock();
        if waits && !over {
            process.cores[core as usize] = Doing::Held(task);
            let before = process.held.replace(core);
            assert_eq!(before, None, "rank {rank} waits in two calls");
            return Ok(false);
        }
        Ok(self.free(rank, core))
    }

    /// Handles what has arrived. Returns whether `awaited` is now complete.
    fn sweep(&mut self, rank: Rank, awaited: Option<Task>) -> Result<bool, SyncError> {
        let process = &mut self.processes[rank as usize];
        process.news = false;
        let mut complete = std::mem::take(&mut self.complete);
        process.exchange.sweep(&mut self.net, &mut complete);
        process.guard = self.net.clock();
        let found = awaited.is_some_and(|task| complete.contains(&task));
        for task in complete.drain(..) {
            self.complete(rank, task)?;
        }
        self.complete = complete;
        self.assign(rank);
        Ok(found)
    }

    /// Completes a task. The last one ends the rank's communication.
    fn complete(&mut self, rank: Rank, task: Task) -> Result<(), SyncError> {
        let process = &mut self.processes[rank as usize];
        process.scheduler.finish(task);
        if process.scheduler.is_done() {
            process.end = self.net.clock();
            process.exchange.close(&mut self.net)?;
        }
        Ok(())
    }

    /// Frees a core, which then takes a task itself if there is one. A core whose tasks complete
    /// outside calls sweeps first. Returns whether the core goes on.
    fn free(&mut self, rank: Rank, core: Core) -> bool {
        let polls = !self.work.version.blocks_core();
        let process = &mut self.processes[rank as usize];
        if polls && process.news && !process.polled {
            process.polled = true;
            process.cores[core as usize] = Doing::Look;
            return true;
        }
        process.cores[core as usize] = Doing::Nothing;
        process.scheduler.release(core);
        // The core that was freed last is assigned first.
        if let Some((same, task)) = process.scheduler.assign() {
            debug_assert_eq!(same, core, "the scheduler gave the task to another core");
            process.cores[core as usize] = Doing::Begin(task);
        }
        self.assign(rank);
        self.processes[rank as usize].cores[core as usize] != Doing::Nothing
    }
}
