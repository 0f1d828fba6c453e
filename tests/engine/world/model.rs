//! What the application has asked for, kept beside the engines, and the rules checked against it at every
//! operation, signal and completion. It knows nothing of how an engine decides.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use mpix_rma::engine::*;

use super::net::Time;

pub type EpochId = usize;
pub type OpId = usize;

/// What kind of epoch, from the application's side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The fence call of this number (from 1): opened and closed at once, complete with its request.
    Barrier(u64),
    /// What follows that fence call, up to the next.
    Fence(u64),
    Access(Vec<Rank>),
    Exposure(Vec<Rank>),
    Lock {
        target: Rank,
        mode: LockMode,
        nocheck: bool,
    },
    LockAll {
        nocheck: bool,
    },
}

#[derive(Debug)]
pub struct Epoch {
    pub rank: Rank,
    pub kind: Kind,
    /// Closed as the n-th of the process.
    closed_as: Option<u64>,
    pub complete: bool,
    /// Epochs closed when this one was opened: EP-6 binds to these and to no others [EP-7].
    opened_after: u64,
    ops: Vec<OpId>,
    /// Per peer, the number of this access or exposure in the pair, from 1.
    ordinals: Vec<(Rank, u64)>,
}

impl Epoch {
    pub fn is_closed(&self) -> bool {
        self.closed_as.is_some()
    }
    /// EP-6 binds `later` to this epoch.
    fn precedes(&self, later: &Epoch) -> bool {
        self.closed_as.is_some_and(|n| n <= later.opened_after)
    }
    fn is_lock(&self) -> bool {
        matches!(self.kind, Kind::Lock { .. } | Kind::LockAll { .. })
    }
    fn holds_exclusively(&self) -> bool {
        matches!(self.kind, Kind::Lock { mode: LockMode::Exclusive, .. })
    }
    pub fn nocheck(&self) -> bool {
        matches!(self.kind, Kind::Lock { nocheck: true, .. } | Kind::LockAll { nocheck: true })
    }
}

#[derive(Debug)]
pub struct OpRecord {
    pub rank: Rank,
    pub target: Rank,
    pub epoch: EpochId,
    pub posted: Option<Time>,
    pub local: Option<Time>,
    pub remote: Option<Time>,
}

#[derive(Debug, Default)]
pub struct RankModel {
    pub access: Option<EpochId>,
    pub exposure: Option<EpochId>,
    pub locks: BTreeMap<Rank, EpochId>,
    pub lock_all: Option<EpochId>,
    pub fence: Option<EpochId>,
    /// Fence calls so far.
    pub fences: u64,
    closings: u64,
    /// Not complete, in order of opening.
    incomplete: BTreeSet<EpochId>,
}

/// What a request stands for.
#[derive(Clone, Debug)]
pub enum Meaning {
    Close(EpochId),
    /// A fence: its barrier, and the fence epoch that it closed.
    Fence(EpochId, Option<EpochId>),
    /// Operations covered, and the epochs that must be granted.
    Flush {
        local: bool,
        covers: Vec<OpId>,
        epochs: Vec<EpochId>,
    },
    Operation(OpId),
}

/// To be checked once the completions of the running engine call are known.
#[derive(Debug)]
enum Late {
    Posted(OpId),
    Signalled { from: Rank, to: Rank, word: Word, value: u64 },
}

type OpKey = (Rank, usize, usize, Rank, u64);

pub struct Model {
    flags: Vec<ReorderFlags>,
    pub epochs: Vec<Epoch>,
    pub ops: Vec<OpRecord>,
    pub ranks: Vec<RankModel>,
    unposted: HashMap<OpKey, VecDeque<OpId>>,
    /// (origin, target): access epochs in order of opening.
    accesses: HashMap<(Rank, Rank), Vec<EpochId>>,
    /// (target, origin): exposure epochs in order of opening.
    exposures: HashMap<(Rank, Rank), Vec<EpochId>>,
    dones: HashMap<(Rank, Rank), u64>,
    fence_ops: BTreeMap<u64, Vec<OpId>>,
    /// Lock epochs seen to hold each target.
    holders: BTreeMap<Rank, Vec<EpochId>>,
    late: Vec<Late>,
}

fn key(rank: Rank, op: &Op) -> OpKey {
    (rank, op.origin.0, op.result.0, op.target, op.disp)
}

impl Model {
    pub fn new(ranks: u32, flags: Vec<ReorderFlags>) -> Self {
        Model {
            flags,
            epochs: Vec::new(),
            ops: Vec::new(),
            ranks: (0..ranks).map(|_| RankModel::default()).collect(),
            unposted: HashMap::new(),
            accesses: HashMap::new(),
            exposures: HashMap::new(),
            dones: HashMap::new(),
            fence_ops: BTreeMap::new(),
            holders: BTreeMap::new(),
            late: Vec::new(),
        }
    }

    pub fn of(&mut self, rank: Rank) -> &mut RankModel {
        &mut self.ranks[rank as usize]
    }

    // ---- the application's calls, recorded before the engine sees them ----

    pub fn open(&mut self, rank: Rank, kind: Kind) -> EpochId {
        let id = self.epochs.len();
        let opened_after = self.of(rank).closings;
        let mut ordinals = Vec::new();
        match &kind {
            Kind::Access(group) => {
                for &target in group {
                    let list = self.accesses.entry((rank, target)).or_default();
                    list.push(id);
                    ordinals.push((target, list.len() as u64));
                }
            }
            Kind::Exposure(group) => {
                for &origin in group {
                    let list = self.exposures.entry((rank, origin)).or_default();
                    list.push(id);
                    ordinals.push((origin, list.len() as u64));
                }
            }
            _ => {}
        }
        // A post takes only the local exposure part of the tentative epoch [EP-11].
        if !matches!(kind, Kind::Barrier(_) | Kind::Exposure(_)) {
            self.dissolve_fence(rank);
        }
        self.epochs.push(Epoch { rank, kind, closed_as: None, complete: false, opened_after, ops: Vec::new(), ordinals });
        self.of(rank).incomplete.insert(id);
        id
    }

    pub fn close(&mut self, epoch: EpochId) {
        let rank = self.epochs[epoch].rank;
        self.of(rank).closings += 1;
        self.epochs[epoch].closed_as = Some(self.of(rank).closings);
    }

    /// The tentative epoch after a fence goes at the next opening call [EP-11].
    fn dissolve_fence(&mut self, rank: Rank) {
        if let Some(fence) = self.of(rank).fence.take() {
            assert!(self.epochs[fence].ops.is_empty(), "the script opens an epoch in a fence epoch with operations");
            self.set_complete(fence);
        }
    }

    /// A fence call: gives what its request means.
    pub fn fence(&mut self, rank: Rank, assert: Assert) -> Meaning {
        let closed = self.of(rank).fence.take();
        self.of(rank).fences += 1;
        let number = self.of(rank).fences;
        // Opened first: what this fence closes completes with it, not before it.
        let barrier = self.open(rank, Kind::Barrier(number));
        if let Some(fence) = closed {
            self.close(fence);
        }
        self.close(barrier);
        if !assert.nosucceed {
            let next = self.open(rank, Kind::Fence(number));
            self.of(rank).fence = Some(next);
        }
        Meaning::Fence(barrier, closed)
    }

    /// An operation, in the epoch that covers its target.
    pub fn issue(&mut self, rank: Rank, op: &Op) -> OpId {
        let me = &self.ranks[rank as usize];
        let in_access = |e: &EpochId| matches!(&self.epochs[*e].kind, Kind::Access(group) if group.contains(&op.target));
        let epoch = me
            .access
            .filter(in_access)
            .or(me.locks.get(&op.target).copied())
            .or(me.lock_all)
            .or(me.fence)
            .expect("the script issues an operation outside any epoch");
        let id = self.ops.len();
        self.ops.push(OpRecord { rank, target: op.target, epoch, posted: None, local: None, remote: None });
        self.epochs[epoch].ops.push(id);
        if let Kind::Fence(number) = self.epochs[epoch].kind {
            self.fence_ops.entry(number).or_default().push(id);
        }
        self.unposted.entry(key(rank, op)).or_default().push_back(id);
        id
    }

    /// The operations that a flush of `target` covers now, and the epochs that it stands in.
    pub fn flush(&self, rank: Rank, target: Option<Rank>, local: bool) -> Meaning {
        let me = &self.ranks[rank as usize];
        let epochs: Vec<EpochId> = match target {
            Some(target) => me.locks.get(&target).copied().or(me.lock_all).into_iter().collect(),
            None => me.locks.values().copied().chain(me.lock_all).collect(),
        };
        let covers = epochs
            .iter()
            .flat_map(|&e| &self.epochs[e].ops)
            .copied()
            .filter(|&op| target.is_none_or(|t| self.ops[op].target == t) && self.ops[op].remote.is_none())
            .collect();
        Meaning::Flush { local, covers, epochs }
    }

    // ---- what the engines do ----

    /// Finds the operation and checks that it may take effect now.
    pub fn check_post(&mut self, rank: Rank, op: &Op) -> OpId {
        let waiting = self.unposted.get(&key(rank, op)).and_then(|list| list.front().copied());
        let id = waiting.unwrap_or_else(|| panic!("rank {rank} posts an operation never issued, or twice: {op:?}"));
        let (epoch, target) = (self.ops[id].epoch, op.target);
        match &self.epochs[epoch].kind {
            Kind::Access(_) => {
                let ordinal = self.ordinal(epoch, target);
                let opened = self.exposures.get(&(target, rank)).map_or(0, Vec::len) as u64;
                assert!(ordinal <= opened, "access {ordinal} of {rank} to {target} before its exposure ({opened}) [MA-1]");
                // The exposure itself must be active: nothing that it has to wait for is still incomplete.
                let exposure = self.exposures[&(target, rank)][ordinal as usize - 1];
                if target != rank {
                    self.assert_activatable(exposure, "access to an exposure");
                }
            }
            Kind::Fence(number) => {
                let (number, called) = (*number, |r: &RankModel| r.fences);
                let late = self.ranks.iter().position(|r| called(r) < number);
                assert!(late.is_none(), "an operation after fence {number} before rank {late:?} called it [FE-1]");
                self.assert_fence_ops_remote(number - 1);
            }
            Kind::Lock { .. } | Kind::LockAll { .. } => self.hold(epoch, target),
            Kind::Barrier(_) | Kind::Exposure(_) => unreachable!("no operations in these"),
        }
        id
    }

    pub fn op_posted(&mut self, id: OpId, op: &Op, now: Time) {
        let rank = self.ops[id].rank;
        let key = key(rank, op);
        let list = self.unposted.get_mut(&key).expect("checked");
        list.pop_front();
        if list.is_empty() {
            self.unposted.remove(&key);
        }
        self.ops[id].posted = Some(now);
        self.late.push(Late::Posted(id));
    }
    pub fn op_local(&mut self, id: OpId, now: Time) {
        self.ops[id].local = Some(now);
    }
    pub fn op_remote(&mut self, id: OpId, now: Time) {
        assert!(self.ops[id].remote.is_none());
        self.ops[id].remote = Some(now);
    }

    /// What must be true at once when a signal is given to the transport.
    pub fn check_signal(&mut self, from: Rank, to: Rank, word: Word, value: u64) {
        match word {
            Word::Grant => {} // its exposure is checked when the call is over
            Word::Done => {
                let accesses = self.accesses.get(&(from, to)).map_or(&[][..], |list| list);
                assert!(value as usize <= accesses.len(), "done {value} of {from} to {to}, which it never opened [MA-2]");
                for &access in &accesses[..value as usize] {
                    self.assert_ops_remote(access, Some(to), "done [MA-2, PR-3]");
                }
            }
            Word::Fence => {
                assert!(value <= self.of(from).fences, "rank {from} signals fence {value}, which it has not called");
                // This process's own operations of the epochs before are part of what the hop announces.
                for (_, ops) in self.fence_ops.range(..value) {
                    let open = ops.iter().find(|&&op| self.ops[op].rank == from && self.ops[op].remote.is_none());
                    assert!(open.is_none(), "rank {from} signals fence {value} over an operation in flight [FE-1]");
                }
            }
        }
    }

    pub fn signalled(&mut self, from: Rank, to: Rank, word: Word, value: u64) {
        if word == Word::Done {
            self.dones.insert((from, to), value);
        }
        self.late.push(Late::Signalled { from, to, word, value });
    }

    /// `epoch` is seen to hold `target`: nobody who conflicts may hold it too [LK-1, AC-3].
    pub fn hold(&mut self, epoch: EpochId, target: Rank) {
        if self.epochs[epoch].nocheck() {
            return;
        }
        let mut holders = self.holders.remove(&target).unwrap_or_default();
        holders.retain(|&other| {
            let e = &self.epochs[other];
            !(e.is_closed() && e.ops.iter().all(|&op| self.ops[op].remote.is_some()))
        });
        for &other in holders.iter().filter(|&&other| other != epoch) {
            let conflict = self.epochs[epoch].holds_exclusively() || self.epochs[other].holds_exclusively();
            let (a, b) = (&self.epochs[epoch], &self.epochs[other]);
            assert!(!conflict, "rank {} ({:?}) and rank {} ({:?}) hold {target} together [LK-1]", a.rank, a.kind, b.rank, b.kind);
            assert!(a.rank != b.rank, "two lock epochs of rank {} on target {target} are active together [AC-3]", a.rank);
        }
        if !holders.contains(&epoch) {
            holders.push(epoch);
        }
        self.holders.insert(target, holders);
    }

    /// The engine has completed the request of an epoch, a flush or an operation.
    pub fn complete(&mut self, rank: Rank, meaning: &Meaning) {
        match meaning {
            Meaning::Close(epoch) => self.complete_epoch(*epoch),
            Meaning::Fence(barrier, fence) => {
                let Kind::Barrier(number) = self.epochs[*barrier].kind else { unreachable!() };
                let late = self.ranks.iter().position(|r| r.fences < number);
                assert!(late.is_none(), "fence {number} of rank {rank} complete before rank {late:?} called it [FE-1]");
                self.assert_fence_ops_remote(number - 1);
                if let Some(fence) = fence {
                    self.set_complete(*fence);
                }
                self.set_complete(*barrier);
            }
            Meaning::Flush { local, covers, .. } => {
                for &op in covers {
                    let record = &self.ops[op];
                    let reached = if *local { record.local.or(record.remote) } else { record.remote };
                    assert!(reached.is_some(), "a flush of rank {rank} is complete before an older operation [FL-1]");
                }
            }
            Meaning::Operation(op) => assert!(self.ops[*op].local.is_some(), "an R-form request completes too early"),
        }
    }

    fn complete_epoch(&mut self, epoch: EpochId) {
        let e = &self.epochs[epoch];
        assert!(e.is_closed());
        match &e.kind {
            Kind::Exposure(_) => {
                for &(origin, ordinal) in &e.ordinals {
                    let accesses = self.accesses.get(&(origin, e.rank)).map_or(&[][..], |list| list);
                    let access = accesses.get(ordinal as usize - 1).copied();
                    let access = access.unwrap_or_else(|| {
                        panic!("exposure {ordinal} of {} to {origin} complete, never accessed [EP-3]", e.rank)
                    });
                    assert!(self.epochs[access].is_closed(), "exposure of {} complete before {origin} closed its access", e.rank);
                    self.assert_ops_remote(access, Some(e.rank), "the end of its exposure [EP-3]");
                }
            }
            Kind::Access(_) => {
                self.assert_ops_remote(epoch, None, "complete");
                for &(target, ordinal) in &e.ordinals {
                    let done = self.dones.get(&(e.rank, target)).copied().unwrap_or(0);
                    assert!(done >= ordinal, "access {ordinal} of {} to {target} complete with done {done}", e.rank);
                }
            }
            _ => self.assert_ops_remote(epoch, None, "unlock"),
        }
        self.set_complete(epoch);
    }

    fn set_complete(&mut self, epoch: EpochId) {
        let e = &mut self.epochs[epoch];
        assert!(!e.complete, "completed twice: {e:?}");
        e.complete = true;
        let rank = e.rank;
        self.of(rank).incomplete.remove(&epoch);
    }

    /// Checks what could not be judged while the engine's call ran.
    pub fn settle_late(&mut self) {
        for late in std::mem::take(&mut self.late) {
            match late {
                Late::Posted(op) => self.assert_activatable(self.ops[op].epoch, "operation"),
                Late::Signalled { from, to, word, value } => match word {
                    Word::Grant => {
                        let exposures = self.exposures.get(&(from, to)).map_or(&[][..], |list| list);
                        assert!(value as usize <= exposures.len(), "grant {value} of {from} to {to}, never opened [MA-1]");
                        self.assert_activatable(exposures[value as usize - 1], "grant");
                    }
                    Word::Done => {
                        let access = self.accesses[&(from, to)][value as usize - 1];
                        assert!(self.epochs[access].is_closed(), "done {value} of {from} to {to} before complete [PR-3]");
                        self.assert_activatable(access, "done");
                    }
                    Word::Fence => {
                        let barrier = self.epochs.iter().position(|e| e.rank == from && e.kind == Kind::Barrier(value));
                        self.assert_activatable(barrier.expect("checked at the signal"), "barrier hop");
                    }
                },
            }
        }
    }

    // ---- rules ----

    fn ordinal(&self, epoch: EpochId, peer: Rank) -> u64 {
        let found = self.epochs[epoch].ordinals.iter().find(|(rank, _)| *rank == peer);
        found.expect("in the group").1
    }

    fn assert_ops_remote(&self, epoch: EpochId, target: Option<Rank>, what: &str) {
        for &op in &self.epochs[epoch].ops {
            let record = &self.ops[op];
            let counts = target.is_none_or(|t| record.target == t);
            assert!(!counts || record.remote.is_some(), "{what} of rank {} before its operation ended: {record:?}", record.rank);
        }
    }

    fn assert_fence_ops_remote(&self, up_to: u64) {
        let open = self.fence_ops.range(..=up_to).flat_map(|(_, ops)| ops).find(|&&op| self.ops[op].remote.is_none());
        assert!(
            open.is_none(),
            "fence {up_to}+1 is passed over an operation in flight: {:?} [FE-1]",
            open.map(|&op| &self.ops[op])
        );
    }

    /// EP-4 and EP-6: no epoch of the process up to this one waits for an incomplete one.
    fn assert_activatable(&self, epoch: EpochId, what: &str) {
        let e = &self.epochs[epoch];
        let incomplete = &self.ranks[e.rank as usize].incomplete;
        for &id in incomplete.range(..=epoch) {
            let earlier = &self.epochs[id];
            for b in incomplete.range(..id).map(|&b| &self.epochs[b]) {
                assert!(
                    !b.precedes(earlier) || self.may_overtake(b, earlier),
                    "{what} of rank {} in {:?}, but {:?} waits for {:?} [EP-4, EP-6]",
                    e.rank,
                    e.kind,
                    earlier.kind,
                    b.kind
                );
            }
        }
    }

    /// AC-1 to AC-3, written a second time.
    fn may_overtake(&self, earlier: &Epoch, later: &Epoch) -> bool {
        let flags = self.flags[later.rank as usize];
        let special = |e: &Epoch| matches!(e.kind, Kind::Barrier(_) | Kind::Fence(_) | Kind::LockAll { .. });
        if special(earlier) || special(later) {
            return false;
        }
        let exposure = |e: &Epoch| matches!(e.kind, Kind::Exposure(_));
        let locked = |e: &Epoch| match e.kind {
            Kind::Lock { target, .. } => Some(target),
            _ => None,
        };
        if earlier.is_lock() && locked(earlier) == locked(later) {
            return false;
        }
        let on_self = |e: &Epoch| locked(e) == Some(e.rank);
        if exposure(earlier) && on_self(later) || on_self(earlier) && exposure(later) {
            return false;
        }
        match (exposure(earlier), exposure(later)) {
            (false, false) => flags.access_after_access,
            (true, false) => flags.access_after_exposure,
            (true, true) => flags.exposure_after_exposure,
            (false, true) => flags.exposure_after_access,
        }
    }

    /// True if the transport has accepted an operation of this epoch.
    pub fn has_posted(&self, epoch: EpochId) -> bool {
        self.epochs[epoch].ops.iter().any(|&op| self.ops[op].posted.is_some())
    }

    /// Nothing that the application closed is left over.
    pub fn assert_finished(&self) {
        assert!(self.unposted.is_empty(), "operations were never posted: {:?}", self.unposted);
        for op in &self.ops {
            assert!(op.remote.is_some(), "an operation never ended: {op:?}");
        }
        for epoch in &self.epochs {
            let tentative = matches!(epoch.kind, Kind::Fence(_)) && epoch.ops.is_empty();
            assert!(epoch.complete || tentative, "an epoch never completed: {epoch:?}");
        }
    }
}
