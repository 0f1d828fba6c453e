//! The world: ranks, their engines, and one network.

mod calls;
mod drive;
mod several;
mod tagged;

use super::process::{Process, RankState, SlotState, Unfinished, Wait};
use super::profile::Machine;
use super::script::{Group, How, Moment, Recorded, Script, Slot, Step};
use super::{Memory, two_sided};
use crate::engine::{
    Arrival, LockHeld, Notified, Outcome, Rank, ReorderFlags, RequestId, SyncError, Wanted, Window,
    earlier_locks_first,
};
use crate::transport::sim::{
    Carry, FaultInjection, Network, NextEvent, SimPort, Stats, Time, meter,
};

/// Each rank makes its calls from a single thread.
const MANY_THREADS: bool = false;

/// One window of a world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowSpec {
    /// Bytes at each rank, if the world carries bytes.
    pub bytes: usize,
    /// Reorder flags [AC-1].
    pub flags: ReorderFlags,
    /// Fences learn a pattern [FE-4].
    pub pattern_fences: bool,
}

/// Settings of a world.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Network and CPUs.
    pub machine: Machine,
    /// Whether operations move bytes or only take time.
    pub carry: Carry,
    /// Injected faults.
    pub faults: FaultInjection,
    /// Each rank has a second core, which sweeps while the first computes [PR-2].
    pub progress_thread: bool,
    /// Virtual time after which the run counts as a livelock.
    pub time_limit: Time,
    /// Number of events after which the run counts as a livelock.
    pub event_limit: u64,
}

impl Settings {
    /// Settings without faults, payload bytes and limits.
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

/// Observes a run, for checkers. It must not influence the run.
pub trait Watch {
    /// A rank makes a call, or computes.
    fn called(&mut self, _at: Time, _rank: Rank, _step: &Step) {}
    /// The outcome of the preceding call: a closing call, a flush, an R-form, or a test that
    /// closes.
    fn outcome(&mut self, _rank: Rank, _window: u32, _outcome: Outcome, _net: &mut Network) {}
    /// The engine reported a request complete.
    fn completed(&mut self, _rank: Rank, _window: u32, _id: RequestId, _net: &mut Network) {}
    /// A wait for counters returned `found`. Called before [`completed`](Self::completed) for its
    /// request.
    fn notified(&mut self, _rank: Rank, _window: u32, _found: Notified, _net: &mut Network) {}
    /// A reset of a counter returned `taken`.
    fn taken(&mut self, _rank: Rank, _window: u32, _taken: Notified, _net: &mut Network) {}
    /// The expectation in a slot of a rank was met, by `last`.
    fn met(&mut self, _rank: Rank, _window: u32, _place: Slot, _last: Arrival, _net: &mut Network) {
    }
    /// A probe returned `found`.
    fn probed(
        &mut self,
        _rank: Rank,
        _window: u32,
        _wanted: Wanted,
        _found: Option<Arrival>,
        _net: &mut Network,
    ) {
    }
    /// A call or sweep of a rank has ended. `windows` are the rank's engines, by window number.
    fn after(
        &mut self,
        _rank: Rank,
        _windows: &mut dyn Iterator<Item = &Window>,
        _net: &mut Network,
    ) {
    }
    /// An event was handled.
    fn event(&mut self, _net: &mut Network) {}
}

/// Observes nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unwatched;

impl Watch for Unwatched {}

/// Results of a run that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Time at which the last rank had ended and nothing was in flight.
    pub end: Time,
    /// Number of calls of all ranks.
    pub calls: u64,
    /// Number of sweeps of all ranks.
    pub sweeps: u64,
    /// Statistics of the network.
    pub stats: Stats,
    /// Hash of all events.
    pub trace: u64,
}

/// Why a run did not end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StuckBecause {
    /// Nothing is in flight, and ranks wait or left something incomplete.
    DeadLock,
    /// A limit of the settings was exceeded.
    LiveLock,
    /// A script made a call that the engine refused.
    Refused {
        /// The calling rank.
        rank: Rank,
        /// The engine's error.
        error: SyncError,
    },
}

/// A run that did not end.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{because:?} at {at} ps: {text}")]
pub struct Stuck {
    /// Reason.
    pub because: StuckBecause,
    /// Virtual time.
    pub at: Time,
    /// What each rank waits for.
    pub text: String,
}

/// How a step ended.
enum Flow {
    Next,
    Wait(Wait),
    Compute,
    End,
}

/// Communication calls between two sweeps, as in the library [PR-1].
const CALLS_PER_SWEEP: u32 = 64;
/// Maximum number of ranks described when a run is stuck.
const DESCRIBED_MAX: usize = 16;
/// Lowest bit of an alarm's tag: the alarm is for the progress thread.
const HELPER: u32 = 1;

/// A simulated world. See the [module](super).
pub struct World<S> {
    settings: Settings,
    net: Network,
    /// By window, then rank.
    windows: Vec<Window>,
    processes: Vec<Process<S>>,
    ended: u32,
    in_barrier: Vec<Rank>,
    calls: u64,
    sweeps: u64,
}

impl<S: Script> World<S> {
    /// A world of `ranks` ranks; `script` creates each rank's script.
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
                engines.push(meter::engine(|| {
                    let mut window = Window::new(me, ranks, spec.flags);
                    let set = window.set_fence_pattern(spec.pattern_fences);
                    set.expect("a new window has no fence epoch");
                    window
                }));
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
            calls: 0,
            sweeps: 0,
        }
    }

    /// Runs all scripts to their end.
    pub fn run(&mut self) -> Result<Report, Stuck> {
        self.run_watched(&mut Unwatched)
    }

    /// As [`run`](Self::run), observed by `watch`.
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
                self.handle_alarm(rank, tag, watch)?;
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

    /// The network and the memory of the ranks.
    #[must_use]
    pub fn net(&mut self) -> &mut Network {
        &mut self.net
    }

    /// The script of a rank.
    #[must_use]
    pub fn script(&self, rank: Rank) -> &S {
        &self.processes[rank as usize].script
    }

    /// The engine of a rank.
    #[must_use]
    pub fn window(&self, window: u32, rank: Rank) -> &Window {
        &self.windows[self.at(window, rank)]
    }

    /// A hash of all events, equal for equal runs.
    #[must_use]
    pub fn trace(&self) -> u64 {
        self.net.trace()
    }

    /// Memory of a rank's engines, if the allocator counts it by [`meter`].
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
        let windows = 0..self.net.windows();
        let mut unfinished: Vec<_> = (0..self.ranks()).zip(&self.processes).collect();
        unfinished.retain(|(rank, process)| {
            process.state != RankState::Ended
                || windows.clone().any(|window| !self.window(window, *rank).is_quiet())
        });
        for (rank, process) in unfinished.iter().take(DESCRIBED_MAX) {
            let _ = write!(text, "\n  rank {rank}: {:?}", process.state);
            for window in windows.clone() {
                let _ = write!(text, "; window {window}: {}", self.window(window, *rank).waits());
            }
        }
        if unfinished.len() > DESCRIBED_MAX {
            let _ = write!(text, "\n  and {} more ranks", unfinished.len() - DESCRIBED_MAX);
        }
        let _ = write!(text, "\n  messages in flight: {}", self.net.in_flight());
        Stuck { because, at: self.net.now(), text }
    }
}
