//! `World`: N engines in one thread and virtual time, on scripted links of the simulated network,
//! with a checker that observes every operation, signal, lock and completion.
//!
//! A test makes a process's calls through [`World::rank`], [`World::put`] and similar methods.
//! [`World::step`] lets every process make progress and jumps to the next event; [`World::drive`]
//! steps until nothing happens any more. Equal calls give equal runs, because simultaneous events
//! are ordered by sequence number.

mod links;
#[path = "../../common/rules/mod.rs"]
mod model;
mod script;

use std::collections::HashMap;

use mpix_rma::engine::*;

pub use links::{FaultInjection, Link, LockWrite, Mode, Signal, Time};
pub use model::{Meaning, OpId};
pub use script::{Buf, RankMut};

use links::{Net, RankPort};

/// Steps after which a world that still moves counts as a livelock.
const STEPS_MAX: u32 = 1_000_000;
/// Sweeps at one virtual time after which a world counts as a livelock.
const SWEEPS_MAX: u32 = 100_000;

/// A request of some process. It was complete when it was made, or an engine completes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Req(usize);

#[derive(Debug)]
struct Request {
    rank: Rank,
    meaning: Meaning,
    completed: Option<Time>,
}

/// N engines and their network. See the [module](self).
pub struct World {
    pub net: Net,
    windows: Vec<Window>,
    requests: Vec<Request>,
    alive: HashMap<(Rank, RequestId), Req>,
    frozen: Vec<bool>,
    /// Order in which processes make progress.
    order: Vec<Rank>,
    highest_index: u32,
    /// Calls take their short forms where these do anything ([`Window::fence_alone`] and others).
    pub briefly: bool,
    /// Calls that took one.
    pub brief_calls: u32,
}

impl World {
    /// A window over `ranks` processes, with all reorder flags off.
    pub fn new(ranks: u32) -> Self {
        Self::with_flags(ranks, ReorderFlags::default())
    }

    pub fn with_flags(ranks: u32, flags: ReorderFlags) -> Self {
        World {
            net: Net::new(ranks, flags, 4096),
            windows: (0..ranks).map(|me| Window::new(me, ranks, flags)).collect(),
            requests: Vec::new(),
            alive: HashMap::new(),
            frozen: vec![false; ranks as usize],
            order: (0..ranks).collect(),
            highest_index: 0,
            briefly: false,
            brief_calls: 0,
        }
    }

    /// As [`new`](Self::new), with all links in one mode.
    pub fn with_mode(ranks: u32, mode: Mode) -> Self {
        let mut world = Self::new(ranks);
        world.net.default_link = Link::with_mode(mode);
        world
    }

    /// As [`new`](Self::new), with fences that learn a pattern.
    pub fn with_pattern(ranks: u32) -> Self {
        let mut world = Self::new(ranks);
        world.set_pattern(true);
        world
    }

    /// Lets fences learn a pattern from here on, or no more. All fences so far are complete.
    pub fn set_pattern(&mut self, on: bool) {
        self.net.model.set_pattern(on);
        for window in &mut self.windows {
            window.set_fence_pattern(on).expect("no fence epoch with operations is open");
        }
    }

    pub fn size(&self) -> u32 {
        self.windows.len() as u32
    }

    pub fn now(&self) -> Time {
        self.net.sim.now()
    }

    /// The calls of one process. A call that the engine refuses is a panic.
    pub fn rank(&mut self, me: Rank) -> RankMut<'_> {
        RankMut { world: self, me }
    }

    /// Makes an engine call that the checker does not record: a call that must fail, or a query.
    pub fn raw<R>(&mut self, me: Rank, f: impl FnOnce(&mut Window, &mut RankPort<'_>) -> R) -> R {
        f(&mut self.windows[me as usize], &mut self.net.port(me))
    }

    pub fn window(&self, me: Rank) -> &Window {
        &self.windows[me as usize]
    }

    // ---- time ----

    /// Stops the progress of a process, as if it computed.
    pub fn freeze(&mut self, me: Rank) {
        self.frozen[me as usize] = true;
    }
    pub fn thaw(&mut self, me: Rank) {
        self.frozen[me as usize] = false;
    }

    /// One sweep of one process.
    pub fn progress(&mut self, me: Rank) -> bool {
        let moved = self.windows[me as usize].progress(&mut self.net.port(me));
        self.after_call(me);
        moved
    }

    /// Lets all processes make progress at the current time, until none moves any more.
    pub fn progress_all(&mut self) -> bool {
        let mut any = false;
        for _ in 0..SWEEPS_MAX {
            let mut moved = false;
            for i in 0..self.order.len() {
                let me = self.order[i];
                if !self.frozen[me as usize] {
                    moved |= self.progress(me);
                }
            }
            if !moved {
                return any;
            }
            any = true;
        }
        panic!("live-lock: still moving after {SWEEPS_MAX} sweeps at time {}", self.now());
    }

    /// Makes progress, handles the next event, makes progress again. False if nothing happened.
    pub fn step(&mut self) -> bool {
        let moved = self.progress_all();
        if self.net.next_time().is_none() {
            return moved;
        }
        self.net.advance();
        self.progress_all();
        true
    }

    /// Steps until nothing happens any more.
    pub fn drive(&mut self) {
        self.drive_until(|_| false);
    }

    /// At most `steps` steps. False if nothing was left to do earlier.
    pub fn drive_bounded(&mut self, steps: u32) -> bool {
        (0..steps).all(|_| self.step())
    }

    /// Steps until `reached` holds. False if the world came to rest before.
    pub fn drive_until(&mut self, mut reached: impl FnMut(&mut Self) -> bool) -> bool {
        for _ in 0..STEPS_MAX {
            if reached(self) {
                return true;
            }
            if !self.step() {
                return reached(self);
            }
        }
        panic!("live-lock: still stepping after {STEPS_MAX} steps, at time {}", self.now());
    }

    /// Lets virtual time advance to `until`.
    pub fn run_to(&mut self, until: Time) {
        assert!(until >= self.now());
        self.net.wake_at(until);
        while self.net.next_time().is_some_and(|next| next <= until) {
            self.step();
        }
    }

    /// Steps until the request is complete, as a blocking call waits.
    pub fn block(&mut self, req: Req) {
        let reached = self.drive_until(|w| w.done(req));
        assert!(reached, "a blocking call never returns: {:?}", self.requests[req.0]);
    }

    /// Shuffles the order in which processes make progress.
    pub fn shuffle(&mut self, rng: &mut fastrand::Rng) {
        rng.shuffle(&mut self.order);
    }

    // ---- queries ----

    pub fn done(&self, req: Req) -> bool {
        self.requests[req.0].completed.is_some()
    }
    /// The closing call that made this request is a blocking one.
    pub fn overlap_closing(&mut self, req: Req) {
        let pending = self.alive.iter().find(|(_, alive)| **alive == req);
        let (rank, id) = *pending.expect("it is pending").0;
        self.net.model.close_by_waiting(&self.requests[req.0].meaning);
        self.windows[rank as usize].overlap_closing(id);
    }
    /// Completion time of the request.
    pub fn done_at(&self, req: Req) -> Time {
        self.requests[req.0]
            .completed
            .unwrap_or_else(|| panic!("not complete: {:?}", self.requests[req.0]))
    }
    /// Time at which the transport accepted the operation.
    pub fn posted(&self, op: OpId) -> Option<Time> {
        self.net.model.ops[op].posted
    }
    /// Time at which the operation became visible at its target.
    pub fn remote(&self, op: OpId) -> Option<Time> {
        self.net.model.ops[op].remote
    }
    pub fn mem(&self, rank: Rank, disp: usize, len: usize) -> &[u8] {
        &self.net.sim.window(0, rank)[disp..disp + len]
    }
    pub fn mem_mut(&mut self, rank: Rank, disp: usize, len: usize) -> &mut [u8] {
        &mut self.net.sim.window_mut(0, rank)[disp..disp + len]
    }
    pub fn cell(&self, rank: Rank, disp: usize) -> u64 {
        u64::from_le_bytes(self.mem(rank, disp, 8).try_into().expect("8 bytes"))
    }
    pub fn holds(&self, me: Rank, target: Rank) -> bool {
        self.windows[me as usize].holds_lock(target)
    }
    /// True if the process has an idle licence.
    pub fn is_licensed(&self, me: Rank) -> bool {
        match self.net.lock_word(me, LockWord::Licence) {
            0 => false,
            licence => {
                assert_eq!(licence, 1 << 32, "the licence of rank {me}, with no lock held");
                true
            }
        }
    }
    /// All signals of one word so far.
    pub fn signals(&self, word: Word) -> Vec<Signal> {
        self.net.signals.iter().copied().filter(|s| s.word == word).collect()
    }

    /// Drives to the end and checks that nothing is left.
    pub fn finish(&mut self) {
        self.drive();
        self.net.model.assert_finished();
        assert!(self.net.is_idle(), "completions were never taken from the transport");
        for (me, window) in self.windows.iter().enumerate() {
            assert!(window.is_quiet(), "rank {me} is not quiet");
            assert!(!window.has_open_epoch(), "rank {me} has an open epoch");
            assert_eq!(window.requests_alive(), 0, "requests of rank {me}");
        }
        for request in &self.requests {
            assert!(request.completed.is_some(), "a request never completed: {request:?}");
        }
        for me in 0..self.size() {
            let (tail, readers) =
                (self.net.lock_word(me, LockWord::Tail), self.net.lock_word(me, LockWord::Readers));
            assert_eq!(tail as u32, 0, "nobody queues at rank {me}");
            // Readers enter in one word and leave in the other; only the sum matters.
            assert_eq!((tail >> 33 << 33).wrapping_add(readers), 0, "nobody reads at rank {me}");
        }
        let licences = (0..self.size()).filter(|me| self.is_licensed(*me)).count() as u64;
        assert_eq!(
            self.net.lock_word(0, LockWord::Holders),
            licences << 32,
            "what is held is licences that nobody uses"
        );
    }

    // ---- bookkeeping of engine calls ----

    fn register(&mut self, rank: Rank, meaning: Meaning, outcome: Outcome) -> Req {
        let req = Req(self.requests.len());
        self.requests.push(Request { rank, meaning, completed: None });
        match outcome {
            Outcome::Complete => self.mark_complete(req),
            Outcome::Pending(id) => {
                self.highest_index = self.highest_index.max(id.index);
                assert!(
                    self.windows[rank as usize].is_pending(id),
                    "a new request that is not pending"
                );
                let previous = self.alive.insert((rank, id), req);
                assert!(previous.is_none(), "request {id:?} of rank {rank} given out twice");
            }
        }
        req
    }

    fn mark_complete(&mut self, req: Req) {
        let request = &mut self.requests[req.0];
        request.completed = Some(self.net.sim.now());
        self.net.model.complete(request.rank, &request.meaning);
    }

    fn after_call(&mut self, me: Rank) {
        while let Some(id) = self.windows[me as usize].next_completed() {
            let req = self.alive.remove(&(me, id));
            let req =
                req.unwrap_or_else(|| panic!("rank {me} completes {id:?}, which is not alive"));
            assert!(!self.windows[me as usize].is_pending(id), "completed and still pending");
            self.mark_complete(req);
        }
        self.net.model.check_after(me, &self.windows[me as usize]);
    }

    /// Highest request index used so far.
    pub fn highest_request_index(&self) -> u32 {
        self.highest_index
    }

    /// Checks the engines' number of live requests against the world's.
    pub fn check_request_count(&self) {
        for (me, window) in self.windows.iter().enumerate() {
            let expected = self.alive.keys().filter(|(rank, _)| *rank as usize == me).count();
            assert_eq!(window.requests_alive() as usize, expected, "requests alive of rank {me}");
        }
    }
}
