//! Pattern fences: fences that wait for the neighbours of this process only [FE-3, FE-4].
//!
//! *Learning.* A fence that ends the epoch to be learned first tells each target that this process
//! has accessed it, by a *mark*, and enters the barrier when all targets have acknowledged theirs.
//! So each process that has passed the barrier knows its origins (nonblocking consensus: Hoefler,
//! Siebert, Lumsdaine, *Scalable Communication Protocols for Dynamic Sparse Data Exchange*, PPoPP
//! 2010). Marks, acknowledgements and hops share the `Fence` word of a pair, as bits that are
//! added.
//!
//! *Later fences.* A process tells its targets that its operations are complete (`DONE`), and its
//! origins that they may access it again (`GRANT`). Both are one word, so that one signal says both
//! to a neighbour that is both.

mod folded;
mod learning;

use hashbrown::HashMap;

use super::epoch::{EpochKind, EpochState, Leg};
use super::fence::FenceKind;
use super::port::{Assert, Port, Rank, SyncError, Word};
use super::record::NIL;
use super::restart::InFences;
use super::slab::Key;
use super::window::{FenceView, Window};
use learning::hop_sent_to;

/// By so much each fence of a window with a pattern raises the words.
const STEP: u64 = 8;
/// In a learned epoch this process has accessed the peer.
const MARK: u64 = 1;
/// This process knows the peer's mark.
const ACK: u64 = 2;
/// A hop of the barrier.
const HOP: u64 = 4;
/// The operations of this process at the peer are complete.
const DONE: u64 = 4;
/// As `DONE`, and the peer may access this process in the next epoch.
const GRANT: u64 = 5;

/// Neighbours up to this number are scanned, beyond that hashed.
const SCAN: usize = 8;

/// What the application's last fence means for the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum View {
    /// No fence has opened an epoch since the pattern was asked for.
    #[default]
    Unopened,
    /// The epoch to be learned is open.
    Learning,
    /// The targets are known.
    Learned,
}

impl View {
    /// The kind of the present fence epoch.
    fn kind(self) -> FenceKind {
        match self {
            View::Unopened => FenceKind::Barrier,
            View::Learning => FenceKind::Learns,
            View::Learned => FenceKind::Neighbours,
        }
    }

    /// How a fence with this assertion completes the present epoch.
    fn closing_kind(self, assert: Assert) -> FenceKind {
        match self.kind() {
            FenceKind::Learns if assert.noprecede => FenceKind::Barrier,
            kind => kind,
        }
    }

    /// The view after a fence of this kind.
    fn after(self, kind: FenceKind, assert: Assert) -> Self {
        match kind {
            FenceKind::Neighbours => self,
            FenceKind::Barrier if assert.nosucceed => View::Unopened,
            FenceKind::Barrier => View::Learning,
            FenceKind::Learns => View::Learned,
        }
    }
}

/// The fence in progress, if it needs more than a barrier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Idle,
    /// Waits for acknowledgements of marks, before its barrier.
    Marks { epoch: Key, unacknowledged: u32 },
    /// In the barrier that ends the learned epoch.
    Barrier,
    /// Waits for its own operations, and for the origins that are not done. `Key::NONE` until the
    /// folded fence epoch has a record.
    Neighbours { epoch: Key, undone: u32 },
}

#[derive(Debug)]
struct Neighbour {
    rank: Rank,
    /// It accesses this process.
    origin: bool,
    /// This process accesses it.
    target: bool,
    /// Its acknowledgement has arrived.
    acknowledged: bool,
    /// The transport had no resource to send `due`.
    refused: bool,
    /// The word that it writes here, as last observed.
    seen: u64,
    /// The word that this process writes there, without hops of the barrier.
    due: u64,
}

impl Neighbour {
    /// Reads its word (acquire). It may be lower than what the learning fence stands for.
    fn look(&mut self, port: &mut impl Port) {
        self.seen = self.seen.max(port.observe(self.rank, Word::Fence));
    }

    /// True if it is an origin that is not known to be done with the fence whose words begin at
    /// `base`.
    fn is_undone(&self, base: u64) -> bool {
        self.origin && self.seen < base + DONE
    }
}

/// The neighbours of this process in one window, and the fence that they complete.
#[derive(Debug, Default)]
pub(super) struct Pattern {
    view: View,
    stage: Stage,
    /// The origins are known too.
    learned: bool,
    neighbours: Vec<Neighbour>,
    /// Empty up to `SCAN` neighbours.
    by_rank: HashMap<Rank, u32>,
    /// The active fence epoch, while neighbours grant it.
    active: Option<Key>,
    /// A target with a word of this value has granted the epoch after the last complete fence.
    grant_at: u64,
    /// Legs of the active epoch that are not granted.
    ungranted: u32,
    /// A deferred lock epoch waits for a target [FE-3].
    holds_lock_back: bool,
    /// Neighbours whose word could not be sent.
    unsent: Vec<u32>,
}

impl Pattern {
    #[inline]
    fn find(&self, rank: Rank) -> Option<u32> {
        if self.by_rank.is_empty() {
            let at = self.neighbours.iter().position(|neighbour| neighbour.rank == rank);
            return at.map(|at| at as u32);
        }
        self.by_rank.get(&rank).copied()
    }

    fn neighbour(&mut self, rank: Rank) -> u32 {
        if let Some(at) = self.find(rank) {
            return at;
        }
        let at = self.neighbours.len();
        if at == SCAN {
            self.by_rank = self.neighbours.iter().zip(0..).map(|(n, at)| (n.rank, at)).collect();
        }
        if at >= SCAN {
            self.by_rank.insert(rank, at as u32);
        }
        self.neighbours.push(Neighbour {
            rank,
            origin: false,
            target: false,
            acknowledged: false,
            refused: false,
            seen: 0,
            due: 0,
        });
        at as u32
    }

    fn targets(&self, rank: Rank) -> bool {
        self.find(rank).is_some_and(|at| self.neighbours[at as usize].target)
    }

    /// True if a sweep has something to read or to send.
    pub(super) fn awaits(&self) -> bool {
        self.stage != Stage::Idle
            || self.ungranted > 0
            || self.holds_lock_back
            || !self.has_sent_all()
    }

    /// Number of origins that are not known to be done with the fence whose words begin at `base`.
    #[inline]
    fn known_undone(&self, base: u64) -> u32 {
        self.neighbours.iter().filter(|neighbour| neighbour.is_undone(base)).count() as u32
    }

    pub(super) fn has_sent_all(&self) -> bool {
        self.unsent.is_empty()
    }

    /// The ranks whose word the fence in progress waits for, for the log.
    pub(super) fn awaited(&self, fences: u64) -> Vec<Rank> {
        let waits = |n: &&Neighbour| match self.stage {
            Stage::Marks { .. } => n.target && !n.acknowledged,
            Stage::Neighbours { .. } => n.origin && n.seen < fences - STEP + DONE,
            Stage::Idle | Stage::Barrier => false,
        };
        self.neighbours.iter().filter(waits).map(|n| n.rank).collect()
    }
}

// The application's view.
impl Window {
    /// True if fences wait for neighbours only, once they are learned [FE-3].
    pub fn has_fence_pattern(&self) -> bool {
        self.pattern.is_some()
    }

    /// Lets fences learn a pattern anew, or end it. All processes make this call between the same
    /// two fences, and none makes another call on the window before all have made this one [FE-4].
    ///
    /// # Errors
    /// If a fence epoch with operations is open, or a fence is incomplete.
    pub fn set_fence_pattern(&mut self, on: bool) -> Result<(), SyncError> {
        if !self.may_set_fence_pattern() {
            return Err(SyncError::FenceOpen);
        }
        self.route = None;
        self.pattern = (on && self.size > 1).then(Box::default);
        Ok(())
    }

    /// True if [`set_fence_pattern`](Self::set_fence_pattern) is allowed now.
    pub fn may_set_fence_pattern(&mut self) -> bool {
        !self.fence_view.has_operations() && !self.awaits_fences()
    }

    /// True if a fence that was called is incomplete.
    pub fn awaits_fences(&mut self) -> bool {
        self.closed_epochs.drop_completed(&self.epochs);
        self.closed_epochs.has_fence()
    }

    /// Number of neighbours that this process has learned, for tests and measurements.
    pub fn fence_neighbours(&self) -> usize {
        self.pattern.as_ref().map_or(0, |pattern| pattern.neighbours.len())
    }

    /// The kind of the present fence epoch.
    pub(super) fn fence_kind(&self) -> FenceKind {
        self.pattern.as_ref().map_or(FenceKind::Barrier, |pattern| pattern.view.kind())
    }

    /// How a fence with this assertion completes the present epoch. `NOPRECEDE` says that no
    /// process has accessed another, so there is nothing to learn.
    pub(super) fn closing_kind(&self, assert: Assert) -> FenceKind {
        let view = self.pattern.as_ref().map(|pattern| pattern.view);
        view.map_or(FenceKind::Barrier, |view| view.closing_kind(assert))
    }

    /// A fence of this kind was called, which closes `epoch`. Its targets are known from here on.
    pub(super) fn fence_called(&mut self, epoch: Option<Key>, kind: FenceKind, assert: Assert) {
        let Some(pattern) = &mut self.pattern else { return };
        pattern.view = pattern.view.after(kind, assert);
        let Some(epoch) = epoch.filter(|_| kind == FenceKind::Learns) else { return };
        let legs = &self.epochs[epoch].legs;
        for target in (0..legs.len()).map(|leg| legs[leg].place) {
            if target != self.me {
                let at = pattern.neighbour(target);
                pattern.neighbours[at as usize].target = true;
            }
        }
    }

    /// True if the present fence epoch may access `target`. A process may always access itself.
    pub(super) fn fence_covers(&self, target: Rank) -> bool {
        let Some(pattern) = &self.pattern else { return true };
        pattern.view != View::Learned || target == self.me || pattern.targets(target)
    }

    /// Checks that fence epochs may make these accesses, among these fences [PE-2].
    ///
    /// # Errors
    /// The first target that a pattern will not have: the one that has been learned, or the one
    /// that the present epoch or these accesses would make.
    #[inline]
    pub fn may_make_fences(&self, calls: &[InFences]) -> Result<(), Rank> {
        self.pattern.as_ref().map_or(Ok(()), |pattern| self.may_make(pattern, calls))
    }

    fn may_make(&self, pattern: &Pattern, calls: &[InFences]) -> Result<(), Rank> {
        let mut view = pattern.view;
        // The targets in the epoch to be learned.
        let mut reached: Vec<Rank> = match (view, self.fence_view) {
            (View::Learning, FenceView::Real(epoch)) => {
                let legs = &self.epochs[epoch].legs;
                (0..legs.len()).map(|leg| legs[leg].place).collect()
            }
            _ => Vec::new(),
        };
        for call in calls {
            match *call {
                InFences::Fence(assert) => view = view.after(view.closing_kind(assert), assert),
                InFences::Access(target) if target == self.me => {}
                InFences::Access(target) if view == View::Learning => reached.push(target),
                InFences::Access(target) if view == View::Learned => {
                    if !pattern.targets(target) && !reached.contains(&target) {
                        return Err(target);
                    }
                }
                InFences::Access(_) => {}
            }
        }
        Ok(())
    }

    /// Makes the leg to `target` of a fence epoch that keeps one for each target.
    pub(super) fn add_fence_leg(&mut self, port: &mut impl Port, epoch: Key, target: Rank) {
        let entry = &self.epochs[epoch];
        if entry.legs.find(target).is_some() || entry.kind == EpochKind::Fence(FenceKind::Barrier) {
            return;
        }
        let (active, mut granted) = (entry.state == EpochState::Active, entry.granted);
        if active && entry.kind == EpochKind::Fence(FenceKind::Neighbours) {
            granted = self.granted_by(port, target);
        }
        self.epochs[epoch].legs.push(Leg::new(target, granted));
    }
}

// The engine's view.
impl Window {
    /// Counts a fence that begins. Returns the value of its barrier's hops.
    pub(super) fn count_fence(&mut self) -> u64 {
        if self.pattern.is_none() {
            self.fences += 1;
            return self.fences;
        }
        self.fences += STEP;
        self.fences - STEP + HOP
    }

    /// Neighbours grant this epoch from here on.
    pub(super) fn note_active_fence(&mut self, epoch: Key) {
        if let Some(pattern) = &mut self.pattern {
            pattern.active = Some(epoch);
        }
    }

    /// Grants the legs of a fence epoch whose targets have granted it. The others wait.
    pub(super) fn activate_by_neighbours(&mut self, port: &mut impl Port, epoch: Key) {
        self.note_active_fence(epoch);
        for leg in 0..self.epochs[epoch].legs.len() {
            let target = self.leg(epoch, leg).place;
            if self.granted_by(port, target) {
                self.leg(epoch, leg).granted = true;
                self.post_queued(port, epoch, leg);
            }
        }
    }

    /// True if `target` has granted the fence epoch after the last complete fence.
    pub(super) fn is_granted_by(&mut self, port: &mut impl Port, target: Rank) -> bool {
        let me = self.me;
        self.pattern.as_mut().is_none_or(|p| target == me || p.sees_grant(port, target))
    }

    /// As [`is_granted_by`](Self::is_granted_by), as far as this process has seen already.
    pub(super) fn was_granted_by(&self, target: Rank) -> bool {
        self.pattern.as_ref().is_none_or(|p| target == self.me || p.has_seen_grant(target))
    }

    /// True if a fence that has been called can complete without an epoch: none is in progress.
    pub(super) fn pattern_rests(&self) -> bool {
        self.pattern.as_ref().is_none_or(|p| p.stage == Stage::Idle && p.has_sent_all())
    }

    /// Gives the fence in progress, whose epoch was folded, an epoch.
    pub(super) fn name_pattern_fence(&mut self, named: Key) {
        if let Some(pattern) = &mut self.pattern
            && let Stage::Neighbours { epoch, .. } = &mut pattern.stage
        {
            *epoch = named;
        }
    }

    /// True if `target` has granted the active fence epoch. Otherwise sweeps look for its grant.
    fn granted_by(&mut self, port: &mut impl Port, target: Rank) -> bool {
        let granted = self.is_granted_by(port, target);
        if let Some(pattern) = &mut self.pattern {
            pattern.ungranted += u32::from(!granted);
        }
        granted
    }

    /// True if a lock epoch has to wait: a learned target that it locks has not completed the fence
    /// before [FE-3].
    pub(super) fn awaits_neighbours(&mut self, port: &mut impl Port, epoch: Key) -> bool {
        let Some(pattern) = self.pattern.as_mut().filter(|pattern| pattern.learned) else {
            return false;
        };
        let waits = match self.epochs[epoch].kind {
            EpochKind::Lock { target, own: false, .. } => {
                pattern.targets(target) && !pattern.sees_grant(port, target)
            }
            EpochKind::LockAll { .. } => {
                let targets = pattern.neighbours.iter().filter(|n| n.target).map(|n| n.rank);
                let targets: Vec<Rank> = targets.collect();
                !targets.into_iter().all(|target| pattern.sees_grant(port, target))
            }
            _ => false,
        };
        pattern.holds_lock_back = waits;
        waits
    }

    /// Ends a fence epoch as far as its operations and origins allow it.
    pub(super) fn close_by_neighbours(&mut self, port: &mut impl Port, epoch: Key) {
        let Some(pattern) = &mut self.pattern else { return };
        if pattern.stage == Stage::Idle {
            self.fences += STEP;
            let undone = pattern.known_undone(self.fences - STEP);
            pattern.stage = Stage::Neighbours { epoch, undone };
            if let [_] = pattern.neighbours[..] {
                // Its word does not change what it is told, and reading the word may take as long
                // as a cache line needs to get here.
                self.advance_fence(port);
            }
            self.read_neighbours(port);
        }
        self.advance_fence(port);
    }

    fn read_neighbours(&mut self, port: &mut impl Port) {
        for at in 0..self.pattern.as_ref().map_or(0, |pattern| pattern.neighbours.len() as u32) {
            self.read_neighbour(port, at);
        }
    }

    /// Sends what the fence in progress allows, and ends it when nothing is left.
    fn advance_fence(&mut self, port: &mut impl Port) {
        let Some(pattern) = &mut self.pattern else { return };
        let Stage::Neighbours { epoch, undone } = pattern.stage else { return };
        let entry = &self.epochs[epoch];
        let (base, complete) = (self.fences - STEP, entry.outstanding == 0);
        pattern.tell_neighbours(port, (base, undone), complete, |port, target| {
            entry.legs.find(target).is_none_or(|leg| {
                let leg = &entry.legs[leg];
                if port.signals_follow(target) { leg.head == NIL } else { leg.remote == 0 }
            })
        });
        if complete && undone == 0 && pattern.has_sent_all() {
            pattern.stage = Stage::Idle;
            pattern.active = None;
            pattern.grant_at = base + GRANT;
            self.end_epoch(epoch);
        }
    }

    /// Reads the words that fences wait for, and sends again what was refused.
    pub(super) fn advance_pattern<P: Port>(&mut self, port: &mut P) {
        let Some(pattern) = &mut self.pattern else { return };
        for at in std::mem::take(&mut pattern.unsent) {
            let neighbour = &mut pattern.neighbours[at as usize];
            neighbour.refused = false;
            let rank = neighbour.rank;
            let hop = hop_sent_to(pattern.stage, self.barrier.as_ref(), rank, self.me, self.size);
            self.state_changes += u64::from(pattern.send(port, at, hop));
        }
        if matches!(pattern.stage, Stage::Marks { .. } | Stage::Barrier) {
            self.advance_marks(port);
        } else if !P::NAMES_CHANGES && pattern.learned {
            self.read_neighbours(port);
        }
        self.advance_fence(port);
    }

    /// The transport reports that the word of a process has changed.
    pub(super) fn fence_word_changed(&mut self, port: &mut impl Port, rank: Rank) {
        let Some(pattern) = &self.pattern else { return };
        if !pattern.learned {
            self.read_marks(port, rank);
        } else if let Some(at) = pattern.find(rank) {
            self.read_neighbour(port, at);
        }
    }

    /// Reads the word of a neighbour if something waits for it, and continues that.
    fn read_neighbour(&mut self, port: &mut impl Port, at: u32) {
        let Some(pattern) = &mut self.pattern else { return };
        let done_at = self.fences - STEP + DONE;
        let (grant_at, neighbour) = (pattern.grant_at, &mut pattern.neighbours[at as usize]);
        let (rank, before) = (neighbour.rank, neighbour.seen);
        let awaits_done = matches!(pattern.stage, Stage::Neighbours { .. })
            && neighbour.origin
            && before < done_at;
        let awaits_grant = neighbour.target && before < grant_at;
        if !awaits_done && !awaits_grant {
            return;
        }
        neighbour.look(port);
        let seen = neighbour.seen;
        let granted = awaits_grant && grant_at <= seen;
        if awaits_done
            && done_at <= seen
            && let Stage::Neighbours { undone, .. } = &mut pattern.stage
        {
            *undone -= 1;
            self.state_changes += 1;
        }
        if granted {
            self.granted_late(port, rank);
        }
    }

    /// A target has granted the active epoch, or the locks that waited for it.
    fn granted_late(&mut self, port: &mut impl Port, target: Rank) {
        let Some(pattern) = &mut self.pattern else { return };
        self.recheck |= pattern.holds_lock_back;
        self.state_changes += 1;
        let Some(epoch) = pattern.active else { return };
        if self.epochs.get(epoch).is_some_and(|entry| entry.legs.find(target).is_some()) {
            pattern.ungranted -= 1;
            self.grant_leg(port, epoch, target);
        }
    }
}

// What is sent.
impl Pattern {
    /// True if `target` is one that was learned, and its word grants the epoch after the last
    /// complete fence.
    #[inline(always)]
    fn sees_grant(&mut self, port: &mut impl Port, target: Rank) -> bool {
        let Some(at) = self.find(target) else { return false };
        let neighbour = &mut self.neighbours[at as usize];
        if neighbour.seen < self.grant_at {
            neighbour.look(port);
        }
        neighbour.target && neighbour.seen >= self.grant_at
    }

    /// As [`sees_grant`](Self::sees_grant), as far as its word was read.
    fn has_seen_grant(&self, target: Rank) -> bool {
        let Some(at) = self.find(target) else { return false };
        let neighbour = &self.neighbours[at as usize];
        neighbour.target && neighbour.seen >= self.grant_at
    }

    /// Tells the neighbours as much as a fence allows whose words begin at `base`, and that waits
    /// for so many origins. `complete`: so are the operations of this process. `has_left`: those to
    /// a target are complete, or posted, if a signal cannot overtake them [PR-3].
    ///
    /// An origin is granted the next epoch when this process has completed the present one; its own
    /// operations need not be seen for that, since it issues those of the next epoch after them.
    #[inline]
    fn tell_neighbours<P: Port>(
        &mut self,
        port: &mut P,
        (base, undone): (u64, u32),
        complete: bool,
        has_left: impl Fn(&P, Rank) -> bool,
    ) {
        for at in 0..self.neighbours.len() {
            let n = &self.neighbours[at];
            let others = undone - u32::from(undone > 0 && n.is_undone(base));
            let value = match () {
                () if n.origin && complete && others == 0 => base + GRANT,
                () if n.target && (complete || has_left(port, n.rank)) => base + DONE,
                () => continue,
            };
            self.raise(port, at as u32, value, 0);
        }
    }

    /// Raises the word of a neighbour to `value`. `hop`: a hop that was sent already, and that the
    /// word keeps.
    fn raise(&mut self, port: &mut impl Port, at: u32, value: u64, hop: u64) {
        let neighbour = &mut self.neighbours[at as usize];
        if value <= neighbour.due {
            return;
        }
        neighbour.due = value;
        if !neighbour.refused {
            _ = self.send(port, at, hop);
        }
    }

    /// False if there was no resource: a later sweep then sends the value of that time.
    fn send(&mut self, port: &mut impl Port, at: u32, hop: u64) -> bool {
        let neighbour = &mut self.neighbours[at as usize];
        if port.signal(neighbour.rank, Word::Fence, neighbour.due + hop).is_err() {
            neighbour.refused = true;
            self.unsent.push(at);
            return false;
        }
        true
    }
}
