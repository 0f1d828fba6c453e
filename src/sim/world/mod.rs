//! The world: ranks, their engines, and one network.

mod calls;
mod drive;
mod tagged;

use super::process::{Process, RankState, SlotState, Unfinished, Wait};
use super::profile::Machine;
use super::script::{Group, How, Moment, Script, Slot, Step};
use super::{Memory, two_sided};
use crate::engine::{
    Arrival, LockHeld, Notified, Outcome, Rank, ReorderFlags, RequestId, SyncError, Wanted, Window,
    earlier_locks_first,
};
use crate::transport::sim::{Carry, FaultInjection, Network, NextEvent, Stats, Time, meter};

/// A rank's calls are those of one thread.
const MANY_THREADS: bool = false;

/// One window of a world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowSpec {
    /// Bytes at each rank, where bytes are carried.
    pub bytes: usize,
    /// Reorder flags [AC-1].
    pub flags: ReorderFlags,
}

/// What a world is made of, beside its scripts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Network and CPUs.
    pub machine: Machine,
    /// Time alone, or bytes too.
    pub carry: Carry,
    /// What goes wrong.
    pub faults: FaultInjection,
    /// Each rank has a second core that sweeps while the first computes [PR-2].
    pub progress_thread: bool,
    /// A world that is not over by then is called live-locked.
    pub time_limit: Time,
    /// The same for the number of events.
    pub event_limit: u64,
}

impl Settings {
    /// A machine in order, without bytes and without limits.
    #[must_use]
    pub fn new(machine: Machine) -> Self {
        Settings {
            machine,
            carry: Carry::Nothing,
            faults: FaultInjection::default(),
            progress_thread: false,
            time_limit: Time::MAX,
            event_limit: u64::MAX,
        }
    }
}

/// Sees what happens in a world, for checkers. Nothing that it does changes the run.
pub trait Watch {
    /// A rank makes a call (or computes).
    fn called(&mut self, _at: Time, _rank: Rank, _step: &Step) {}
    /// The call before was a closing call, a flush, an R-form or a test that closes: how it left
    /// its epoch or request.
    fn outcome(&mut self, _rank: Rank, _window: u32, _outcome: Outcome, _net: &mut Network) {}
    /// The engine reports a request complete.
    fn completed(&mut self, _rank: Rank, _window: u32, _id: RequestId, _net: &mut Network) {}
    /// A wait for stats has found this; told before its request is.
    fn notified(&mut self, _rank: Rank, _window: u32, _found: Notified, _net: &mut Network) {}
    /// A reset has taken this.
    fn taken(&mut self, _rank: Rank, _window: u32, _taken: Notified, _net: &mut Network) {}
    /// The expectation in a place of a rank is met, and this was its last notification.
    fn met(&mut self, _rank: Rank, _window: u32, _place: Slot, _last: Arrival, _net: &mut Network) {
    }
    /// A probe has found this.
    fn probed(
        &mut self,
        _rank: Rank,
        _window: u32,
        _wanted: Wanted,
        _found: Option<Arrival>,
        _net: &mut Network,
    ) {
    }
    /// A call or sweep of a rank is over; its windows, in order, and the network as they are now.
    fn after(
        &mut self,
        _rank: Rank,
        _windows: &mut dyn Iterator<Item = &Window>,
        _net: &mut Network,
    ) {
    }
    /// An event has passed.
    fn event(&mut self, _net: &mut Network) {}
}

/// Nobody looks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unwatched;

impl Watch for Unwatched {}

/// How a run ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// When the last rank had ended and nothing was under way any more.
    pub end: Time,
    /// Calls of all ranks.
    pub calls: u64,
    /// Sweeps of all ranks.
    pub sweeps: u64,
    /// Of the network.
    pub stats: Stats,
    /// Hash of everything that happened.
    pub trace: u64,
}

/// Why a run did not end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StuckBecause {
    /// Nothing is under way, and ranks wait, or have ended and left something incomplete.
    DeadLock,
    /// It took longer than the settings allow.
    LiveLock,
    /// A script made a call that the engine refuses.
    Refused {
        /// Whose.
        rank: Rank,
        /// Why.
        error: SyncError,
    },
}

/// A run that did not end.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{because:?} at {at} ps: {text}")]
pub struct Stuck {
    /// Why.
    pub because: StuckBecause,
    /// When.
    pub at: Time,
    /// Who waits for what, in words.
    pub text: String,
}

/// How a step ended.
enum Flow {
    Next,
    Wait(Wait),
    Compute,
    End,
}

/// Communication calls between two sweeps, as in the library itself [PR-1].
const CALLS_PER_SWEEP: u32 = 64;
/// Ranks whose waits are told when a world is stuck.
const TOLD: usize = 16;
/// Lowest bit of an alarm's tag: it is the progress thread's.
const HELPER: u32 = 1;

/// See the [module](super).
pub struct World<S> {
    settings: Settings,
    net: Network,
    /// Per window, then rank.
    windows: Vec<Window>,
    processes: Vec<Process<S>>,
    ended: u32,
    in_barrier: Vec<Rank>,
    group: Vec<Rank>,
    calls: u64,
    sweeps: u64,
}

impl<S: Script> World<S> {
    /// A world of so many ranks; `script` makes each rank's.
    pub fn new(
        ranks: u32,
        settings: Settings,
        windows: &[WindowSpec],
        mut script: impl FnMut(Rank) -> S,
    ) -> Self {
        let mut net =
            Network::new(ranks, settings.machine.network, settings.carry, settings.faults);
        let mut engines = Vec::with_capacity(windows.len() * ranks as usize);
        let mut processes: Vec<_> =
            (0..ranks).map(|me| Process::new(script(me), windows.len() as u32)).collect();
        for spec in windows {
            net.add_window(spec.bytes);
            for me in 0..ranks {
                let before = meter::bytes();
                engines.push(meter::engine(|| Window::new(me, ranks, spec.flags)));
                let memory = &mut processes[me as usize].memory;
                memory.bytes += meter::bytes() - before + size_of::<Window>() as i64;
                memory.peak = memory.bytes;
            }
        }
        World {
            settings,
            net,
            windows: engines,
            processes,
            ended: 0,
            in_barrier: Vec::new(),
            group: Vec::new(),
            calls: 0,
            sweeps: 0,
        }
    }

    /// Runs all scripts to their end.
    ///
    /// # Errors
    /// If that does not happen.
    pub fn run(&mut self) -> Result<Report, Stuck> {
        self.run_watched(&mut Unwatched)
    }

    /// The same, and somebody looks.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_watched(&mut self, watch: &mut impl Watch) -> Result<Report, Stuck> {
        for rank in 0..self.ranks() {
            self.set_alarm(rank, self.net.now());
        }
        while let Some(occurrence) = self.net.advance() {
            let Stats { events, .. } = self.net.stats();
            if self.net.now() > self.settings.time_limit || events > self.settings.event_limit {
                return Err(self.stuck(StuckBecause::LiveLock));
            }
            if let NextEvent::Alarm { rank, tag } = occurrence {
                self.rings(rank, tag, watch)?;
            }
            while let Some(rank) = self.net.next_woken() {
                self.woken(rank, watch)?;
            }
            watch.event(&mut self.net);
        }
        if self.ended < self.ranks()
            || !self.net.is_idle()
            || !self.windows.iter().all(Window::is_quiet)
        {
            return Err(self.stuck(StuckBecause::DeadLock));
        }
        Ok(Report {
            end: self.net.now(),
            calls: self.calls,
            sweeps: self.sweeps,
            stats: self.net.stats(),
            trace: self.net.trace(),
        })
    }

    /// Number of ranks.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        self.processes.len() as u32
    }

    /// The network, and with it the ranks' memory.
    #[must_use]
    pub fn net(&mut self) -> &mut Network {
        &mut self.net
    }

    /// A rank's script.
    #[must_use]
    pub fn script(&self, rank: Rank) -> &S {
        &self.processes[rank as usize].script
    }

    /// A rank's engine.
    #[must_use]
    pub fn window(&self, window: u32, rank: Rank) -> &Window {
        &self.windows[self.at(window, rank)]
    }

    /// A hash of everything that happened: equal for equal runs.
    #[must_use]
    pub fn trace(&self) -> u64 {
        self.net.trace()
    }

    /// Memory of a rank's engines; what counts it is [`meter`].
    #[must_use]
    pub fn memory(&self, rank: Rank) -> Memory {
        self.processes[rank as usize].memory
    }

    /// Time that a rank has spent in calls, waits included.
    #[must_use]
    pub fn time_in_calls(&self, rank: Rank) -> Time {
        self.processes[rank as usize].in_calls
    }

    fn at(&self, window: u32, rank: Rank) -> usize {
        window as usize * self.processes.len() + rank as usize
    }

    fn process(&mut self, rank: Rank) -> &mut Process<S> {
        &mut self.processes[rank as usize]
    }

    fn stuck(&self, because: StuckBecause) -> Stuck {
        use std::fmt::Write as _;
        let mut text = String::new();
        let waiting = |(rank, process): &&(u32, &Process<S>)| {
            process.state != RankState::Ended
                || (0..self.net.windows()).any(|window| !self.window(window, *rank).is_quiet())
        };
        let all: Vec<_> = (0..).zip(&self.processes).collect();
        let mut told = 0;
        for (rank, process) in all.iter().filter(waiting).take(TOLD) {
            let _ = write!(text, "\n  rank {rank}: {:?}", process.state);
            for window in 0..self.net.windows() {
                let _ = write!(text, "; window {window}: {}", self.window(window, *rank).waits());
            }
            told += 1;
        }
        let waiting = all.iter().filter(waiting).count();
        if waiting > told {
            let _ = write!(text, "\n  and {} more ranks", waiting - told);
        }
        let _ = write!(text, "\n  messages under way: {}", self.net.in_flight());
        Stuck { because, at: self.net.now(), text }
    }

    // ---- time ----
}
