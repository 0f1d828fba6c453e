//! Mutual exclusion: conflicting locks are not held together [LK-1], nor two locks of one process
//! on one target [AC-3]. Waiters hold the lock in the order of the queue, neighbouring readers
//! together [LK-1].

use mpix_rma::engine::{Rank, Window};

use super::{EpochId, Kind, Model};

/// A request in a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queued {
    epoch: EpochId,
    writer: bool,
    held: bool,
}

impl Model {
    /// Checks the locks that the engine of `rank` holds after a call: no operation was posted and
    /// no flush completed without its lock [LK-1, EP-1, FL-1].
    pub(super) fn check_locks(&mut self, rank: Rank, engine: &Window) {
        let flushed = std::mem::take(&mut self.flushed);
        let state = &self.ranks[rank as usize];
        let mut held: Vec<(EpochId, Rank)> = Vec::new();
        let locks = state.locks.iter().map(|(target, epoch)| (*epoch, *target..*target + 1));
        let lock_all = state.lock_all.map(|epoch| (epoch, 0..self.ranks.len() as Rank));
        for (epoch, targets) in locks.chain(lock_all) {
            let kind = &self.epochs[epoch].kind;
            let holds = match kind {
                Kind::Lock { target, .. } => engine.holds_lock(*target),
                _ => engine.holds_lock_all(),
            };
            if holds {
                held.extend(targets.map(|target| (epoch, target)));
            } else if !self.epochs[epoch].nocheck() {
                assert!(
                    !self.has_posted(epoch),
                    "[exclusion] rank {rank} operates under {kind:?} and does not hold it"
                );
                assert!(
                    !flushed.contains(&epoch),
                    "[completion] a flush of rank {rank} is complete before {kind:?} is held [FL-1]"
                );
            }
        }
        for (epoch, target) in held {
            self.hold(epoch, target);
        }
    }

    /// `epoch` holds `target`: checks that no conflicting epoch holds it [LK-1, AC-3].
    pub(super) fn hold(&mut self, epoch: EpochId, target: Rank) {
        if self.epochs[epoch].nocheck() {
            return;
        }
        self.passes(epoch, target);
        let mut holders = self.holders.remove(&target).unwrap_or_default();
        holders.retain(|&other| {
            let e = &self.epochs[other];
            !(e.is_closed() && e.ops.iter().all(|&op| self.ops[op].remote.is_some()))
        });
        for &other in holders.iter().filter(|&&other| other != epoch) {
            let conflict =
                self.epochs[epoch].holds_exclusively() || self.epochs[other].holds_exclusively();
            let (a, b) = (&self.epochs[epoch], &self.epochs[other]);
            assert!(
                !conflict,
                "[exclusion] rank {} ({:?}) and rank {} ({:?}) hold {target} together [LK-1]",
                a.rank, a.kind, b.rank, b.kind
            );
            assert!(
                a.rank != b.rank,
                "[exclusion] two lock epochs of rank {} on target {target} are active together \
                 [AC-3]",
                a.rank
            );
        }
        if !holders.contains(&epoch) {
            holders.push(epoch);
        }
        self.holders.insert(target, holders);
    }

    /// A lock request of `rank` enters the queue of `target`, with `node` in the target's `Tail`.
    pub(super) fn queued(&mut self, rank: Rank, target: Rank, node: u64) {
        let (sequence, writer) = ((node >> 32) as usize, node & 1 == 1);
        let requests = self.requests.get(&(rank, target)).map_or(&[][..], |list| list);
        let Some(&epoch) = sequence.checked_sub(1).and_then(|at| requests.get(at)) else {
            panic!(
                "[exclusion] rank {rank} makes lock request {sequence} of {target} and has opened \
                 {}",
                requests.len()
            );
        };
        assert_eq!(
            self.epochs[epoch].holds_exclusively(),
            writer,
            "[exclusion] rank {rank} asks {target} for another lock"
        );
        self.queues.entry(target).or_default().push_back(Queued { epoch, writer, held: false });
    }

    /// `epoch` holds the lock: checks that conflicting requests before it in the queue have held
    /// it.
    fn passes(&mut self, epoch: EpochId, target: Rank) {
        let Some(queue) = self.queues.get_mut(&target) else { return };
        let Some(at) = queue.iter().position(|queued| queued.epoch == epoch) else { return };
        if queue[at].held {
            return;
        }
        queue[at].held = true;
        let writer = queue[at].writer;
        // An earlier epoch of the same process may have held the lock and ended in the current
        // call, which is not reported yet.
        let rank = self.epochs[epoch].rank;
        let others = |before: &&Queued| self.epochs[before.epoch].rank != rank;
        let passed = queue
            .range(..at)
            .filter(others)
            .find(|before| !before.held && (writer || before.writer));
        if let Some(passed) = passed {
            let (me, other) = (&self.epochs[epoch], &self.epochs[passed.epoch]);
            panic!(
                "[exclusion] rank {} ({:?}) holds before rank {} ({:?}), which entered the queue \
                 first [LK-1]",
                me.rank, me.kind, other.rank, other.kind
            );
        }
        while queue.front().is_some_and(|queued| queued.held && self.epochs[queued.epoch].complete)
        {
            queue.pop_front();
        }
    }

    /// A complete lock epoch has held its lock.
    pub(super) fn passed_queue(&mut self, epoch: EpochId) {
        if let Kind::Lock { target, nocheck: false, .. } = self.epochs[epoch].kind {
            self.passes(epoch, target);
        }
    }
}
