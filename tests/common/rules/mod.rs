//! The rules: a model of what the application called in one window, checked against every
//! operation, signal and completion of the engines. It does not know how an engine decides. The
//! text of a failure starts with the file of the rule in brackets.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use mpix_rma::engine::*;
use mpix_rma::transport::sim::{Event, EventKind};

mod completion;
mod exclusion;
mod order;
mod pattern;

/// Virtual time.
pub type Time = u64;
pub type EpochId = usize;
pub type OpId = usize;

/// The kind of an epoch in the application's view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Barrier of the fence call of this number (from 1). It completes with its request.
    Barrier(u64),
    /// The epoch between that fence call and the next.
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
    /// Closed by the n-th closing call of the process.
    closed_as: Option<u64>,
    /// By a blocking call of another thread than the one that opens later epochs.
    closed_by_waiting: bool,
    pub complete: bool,
    /// Epochs closed when this one was opened. EP-6 applies to these only [EP-7].
    opened_after: u64,
    ops: Vec<OpId>,
    /// Per peer: number of this access or exposure of the pair, from 1.
    ordinals: Vec<(Rank, u64)>,
}

impl Epoch {
    fn is_closed(&self) -> bool {
        self.closed_as.is_some()
    }
    /// True if EP-6 makes `later` wait for this epoch.
    fn precedes(&self, later: &Epoch) -> bool {
        !self.closed_by_waiting && self.closed_as.is_some_and(|n| n <= later.opened_after)
    }
    fn is_lock(&self) -> bool {
        matches!(self.kind, Kind::Lock { .. } | Kind::LockAll { .. })
    }
    fn holds_exclusively(&self) -> bool {
        matches!(self.kind, Kind::Lock { mode: LockMode::Exclusive, .. })
    }
    fn nocheck(&self) -> bool {
        matches!(self.kind, Kind::Lock { nocheck: true, .. } | Kind::LockAll { nocheck: true })
    }
}

#[derive(Debug)]
pub struct OpRecord {
    pub rank: Rank,
    pub target: Rank,
    pub epoch: EpochId,
    /// Of the handle that issued it; 0 in epochs that cannot be flushed [DU-2].
    lane: u32,
    pub notification: Option<Notification>,
    pub posted: Option<Time>,
    pub local: Option<Time>,
    /// The data have taken effect.
    pub remote: Option<Time>,
    /// The notification has taken effect.
    pub notified: Option<Time>,
}

impl OpRecord {
    /// True if the operation has taken effect at its target, with its notification.
    fn is_over(&self) -> bool {
        self.remote.is_some() && (self.notification.is_none() || self.notified.is_some())
    }
}

#[derive(Debug, Default)]
pub struct RankModel {
    pub access: Option<EpochId>,
    pub exposure: Option<EpochId>,
    pub locks: BTreeMap<Rank, EpochId>,
    pub lock_all: Option<EpochId>,
    /// The lanes on which it was called.
    lock_all_lanes: BTreeSet<u32>,
    /// Of the handle that makes the next calls [DU-1].
    lane: u32,
    pub fence: Option<EpochId>,
    /// Number of fence calls so far.
    pub fences: u64,
    closings: u64,
    /// Incomplete epochs, in order of opening.
    incomplete: BTreeSet<EpochId>,
}

/// The meaning of a request.
#[derive(Clone, Debug)]
pub enum Meaning {
    Close(EpochId),
    /// A fence: its barrier, and the fence epoch that it closes.
    Fence(EpochId, Option<EpochId>),
    /// A flush: the operations covered, and the epochs that must be granted.
    Flush {
        local: bool,
        covers: Vec<OpId>,
        epochs: Vec<EpochId>,
    },
    Operation(OpId),
    /// One of these counters has reached `sum` since the window was created.
    Counters {
        first: u32,
        number: u32,
        sum: u64,
    },
}

/// A check to make when the completions of the current engine call are known.
#[derive(Debug)]
enum Late {
    Posted(OpId),
    Signalled { from: Rank, to: Rank, word: Word, value: u64 },
}

type OpKey = (Rank, usize, usize, Rank, u64, Option<Notification>);

pub struct Model {
    flags: Vec<ReorderFlags>,
    pub epochs: Vec<Epoch>,
    pub ops: Vec<OpRecord>,
    pub ranks: Vec<RankModel>,
    unposted: HashMap<OpKey, VecDeque<OpId>>,
    /// Posted operations, by rank and buffers: operations in flight share no buffers.
    posted: HashMap<(Rank, usize, usize), OpId>,
    /// Epochs with a flush that completed in the current engine call.
    flushed: Vec<EpochId>,
    /// By (origin, target): access epochs in order of opening.
    accesses: HashMap<(Rank, Rank), Vec<EpochId>>,
    /// By (target, origin): exposure epochs in order of opening.
    exposures: HashMap<(Rank, Rank), Vec<EpochId>>,
    dones: HashMap<(Rank, Rank), u64>,
    /// By (origin, target): accesses whose operations were found to be over.
    ended: HashMap<(Rank, Rank), u64>,
    fence_ops: BTreeMap<u64, Vec<OpId>>,
    /// Lock epochs that hold each target.
    holders: BTreeMap<Rank, Vec<EpochId>>,
    /// By (origin, target): lock epochs that request their lock, in order of opening.
    requests: HashMap<(Rank, Rank), Vec<EpochId>>,
    /// Lock requests in the queue order of each target.
    queues: BTreeMap<Rank, VecDeque<exclusion::Queued>>,
    /// A done may be sent before its operations are visible, if it becomes visible after them.
    pub signals_follow: bool,
    late: Vec<Late>,
    fence_words: Vec<pattern::Era>,
}

fn key(rank: Rank, op: &Op) -> OpKey {
    (rank, op.origin.0, op.result.0, op.target, op.disp, op.notification)
}

impl Model {
    pub fn new(ranks: u32, flags: Vec<ReorderFlags>) -> Self {
        Model {
            flags,
            epochs: Vec::new(),
            ops: Vec::new(),
            ranks: (0..ranks).map(|_| RankModel::default()).collect(),
            unposted: HashMap::new(),
            posted: HashMap::new(),
            flushed: Vec::new(),
            accesses: HashMap::new(),
            exposures: HashMap::new(),
            dones: HashMap::new(),
            ended: HashMap::new(),
            fence_ops: BTreeMap::new(),
            holders: BTreeMap::new(),
            requests: HashMap::new(),
            queues: BTreeMap::new(),
            signals_follow: false,
            late: Vec::new(),
            fence_words: vec![pattern::Era::default()],
        }
    }

    pub fn of(&mut self, rank: Rank) -> &mut RankModel {
        &mut self.ranks[rank as usize]
    }

    // ---- calls of the application, recorded before the engine sees them ----

    pub fn open(&mut self, rank: Rank, kind: Kind) -> EpochId {
        let id = self.epochs.len();
        let me = self.of(rank);
        match kind {
            Kind::Access(_) => me.access = Some(id),
            Kind::Exposure(_) => me.exposure = Some(id),
            Kind::Lock { target, .. } => _ = me.locks.insert(target, id),
            Kind::LockAll { .. } => me.lock_all = Some(id),
            Kind::Barrier(_) | Kind::Fence(_) => {}
        }
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
            &Kind::Lock { target, nocheck: false, .. } => {
                self.requests.entry((rank, target)).or_default().push(id)
            }
            _ => {}
        }
        // A post takes only the local exposure part of the tentative epoch [EP-11].
        if !matches!(kind, Kind::Barrier(_) | Kind::Exposure(_)) {
            self.dissolve_fence(rank);
        }
        self.epochs.push(Epoch {
            rank,
            kind,
            closed_as: None,
            closed_by_waiting: false,
            complete: false,
            opened_after,
            ops: Vec::new(),
            ordinals,
        });
        self.of(rank).incomplete.insert(id);
        id
    }

    /// The call that closed an epoch waits for it.
    #[allow(dead_code, reason = "the engine's tests have threads, the swarm's programs have not")]
    pub fn close_by_waiting(&mut self, meaning: &Meaning) {
        let Meaning::Close(epoch) = meaning else { panic!("no closing call") };
        self.epochs[*epoch].closed_by_waiting = true;
    }
    pub fn close_access(&mut self, rank: Rank) -> Meaning {
        let epoch = self.of(rank).access.take();
        self.close_open(epoch)
    }
    pub fn close_exposure(&mut self, rank: Rank) -> Meaning {
        let epoch = self.of(rank).exposure.take();
        self.close_open(epoch)
    }
    pub fn close_lock(&mut self, rank: Rank, target: Rank) -> Meaning {
        let epoch = self.of(rank).locks.remove(&target);
        self.close_open(epoch)
    }
    pub fn close_lock_all(&mut self, rank: Rank) -> Meaning {
        let epoch = self.of(rank).lock_all.take();
        self.close_open(epoch)
    }

    /// The next calls of a rank are made on another handle.
    #[allow(dead_code, reason = "the swarm's programs have duplicates, the engine's tests not")]
    pub fn select_lane(&mut self, rank: Rank, lane: u32) {
        self.of(rank).lane = lane;
    }

    /// A lock_all on the handle of the next calls.
    #[allow(dead_code, reason = "as above")]
    pub fn lock_all(&mut self, rank: Rank, nocheck: bool) {
        if self.of(rank).lock_all.is_none() {
            self.open(rank, Kind::LockAll { nocheck });
        }
        let me = self.of(rank);
        me.lock_all_lanes.insert(me.lane);
    }

    /// An unlock_all on it. All but the last one of an epoch complete the operations of their lane.
    #[allow(dead_code, reason = "as above")]
    pub fn unlock_all(&mut self, rank: Rank) -> Meaning {
        let me = self.of(rank);
        assert!(me.lock_all_lanes.remove(&me.lane), "the script unlocks what it has locked");
        if me.lock_all_lanes.is_empty() {
            return self.close_lock_all(rank);
        }
        self.flush(rank, None, false)
    }

    fn close_open(&mut self, epoch: Option<EpochId>) -> Meaning {
        let epoch = epoch.expect("the script closes what it has opened");
        self.close(epoch);
        Meaning::Close(epoch)
    }

    fn close(&mut self, epoch: EpochId) {
        let rank = self.epochs[epoch].rank;
        self.of(rank).closings += 1;
        self.epochs[epoch].closed_as = Some(self.of(rank).closings);
    }

    /// The next opening call dissolves the tentative epoch after a fence [EP-11].
    fn dissolve_fence(&mut self, rank: Rank) {
        if let Some(fence) = self.of(rank).fence.take() {
            assert!(
                self.epochs[fence].ops.is_empty(),
                "the script opens an epoch in a fence epoch with operations"
            );
            self.set_complete(fence);
        }
    }

    /// A fence call. Returns the meaning of its request.
    pub fn fence(&mut self, rank: Rank, assert: Assert) -> Meaning {
        let closed = self.of(rank).fence.take();
        self.of(rank).fences += 1;
        let number = self.of(rank).fences;
        self.learn(number, assert);
        // Opened first, because the epoch that this fence closes completes with it and not before.
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
        let in_access = |e: &EpochId| match &self.epochs[*e].kind {
            Kind::Access(group) => group.contains(&op.target),
            _ => false,
        };
        let epoch = me
            .access
            .filter(in_access)
            .or(me.locks.get(&op.target).copied())
            .or(me.lock_all)
            .or(me.fence)
            .expect("the script issues an operation outside any epoch");
        let id = self.ops.len();
        let lane = if self.epochs[epoch].is_lock() { me.lane } else { 0 };
        self.ops.push(OpRecord {
            rank,
            target: op.target,
            epoch,
            lane,
            notification: op.notification,
            posted: None,
            local: None,
            remote: None,
            notified: None,
        });
        self.epochs[epoch].ops.push(id);
        if let Kind::Fence(number) = self.epochs[epoch].kind {
            self.fence_ops.entry(number).or_default().push(id);
        }
        self.unposted.entry(key(rank, op)).or_default().push_back(id);
        id
    }

    /// The operations that a flush of `target` covers, and their epochs [DU-2].
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
            .filter(|&op| {
                let record = &self.ops[op];
                let covered = target.is_none_or(|t| record.target == t) && record.lane == me.lane;
                covered && !record.is_over()
            })
            .collect();
        Meaning::Flush { local, covers, epochs }
    }

    // ---- actions of the engines ----

    /// Checks a call that a port accepted, or an effect in the network.
    pub fn event(&mut self, event: &Event) {
        let Event { at, by, kind, .. } = *event;
        let buffers = |op: &Op| (by, op.origin.0, op.result.0);
        match kind {
            EventKind::Posted(op) => {
                let id = self.check_post(by, &op);
                self.op_posted(id, &op, at);
                let before = self.posted.insert(buffers(&op), id);
                let shared = before.is_some_and(|before| !self.ops[before].is_over());
                assert!(!shared, "the script issues operations that share buffers: {op:?}");
            }
            EventKind::Local(op) => self.ops[self.posted[&buffers(&op)]].local = Some(at),
            EventKind::Effect(op) => self.op_remote(self.posted[&buffers(&op)], at),
            EventKind::Notified(op) => self.op_notified(self.posted[&buffers(&op)], at),
            EventKind::Signalled { to, word, value } => {
                self.check_signal(by, to, word, value);
                self.signalled(by, to, word, value);
            }
            EventKind::Seen { to, word, value } => self.check_seen(by, to, word, value),
            EventKind::Accessed {
                home, word: LockWord::Tail, access: Atomic::Swap(node), ..
            } => self.queued(by, home, node),
            EventKind::Accessed { .. } => {}
        }
    }

    fn op_posted(&mut self, id: OpId, op: &Op, now: Time) {
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
    fn op_remote(&mut self, id: OpId, now: Time) {
        assert!(self.ops[id].remote.is_none());
        self.ops[id].remote = Some(now);
    }
    fn op_notified(&mut self, id: OpId, now: Time) {
        self.ops[id].notified = Some(now);
        self.check_notification(id);
    }

    fn signalled(&mut self, from: Rank, to: Rank, word: Word, value: u64) {
        if word == Word::Done {
            self.dones.insert((from, to), value);
        }
        self.late.push(Late::Signalled { from, to, word, value });
    }

    fn set_complete(&mut self, epoch: EpochId) {
        self.passed_queue(epoch);
        let e = &mut self.epochs[epoch];
        assert!(!e.complete, "completed twice: {e:?}");
        e.complete = true;
        let rank = e.rank;
        self.of(rank).incomplete.remove(&epoch);
    }

    /// True if the transport has accepted an operation of this epoch.
    fn has_posted(&self, epoch: EpochId) -> bool {
        self.epochs[epoch].ops.iter().any(|&op| self.ops[op].posted.is_some())
    }
}
