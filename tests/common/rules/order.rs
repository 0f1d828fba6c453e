//! Order: epochs of a pair match in FIFO order [EP-3], are activated in order of opening [EP-4],
//! wait for epochs closed before them [EP-6], and overtake only as the reorder flags allow [AC-1 to
//! AC-3]. No operation is posted before access is granted [MA-1] or the fence passed [FE-1].

use mpix_rma::engine::*;

use super::{Epoch, EpochId, Kind, Late, Model, OpId, RankModel, key};

impl Model {
    /// Finds a posted operation and checks that it may take effect now.
    pub fn check_post(&mut self, rank: Rank, op: &Op) -> OpId {
        let waiting = self.unposted.get(&key(rank, op)).and_then(|list| list.front().copied());
        let id = waiting.unwrap_or_else(|| {
            panic!("[order] rank {rank} posts an operation never issued, or twice: {op:?}")
        });
        let (epoch, target) = (self.ops[id].epoch, op.target);
        match &self.epochs[epoch].kind {
            Kind::Access(_) => {
                let ordinal = self.ordinal(epoch, target);
                let opened = self.exposures.get(&(target, rank)).map_or(0, Vec::len) as u64;
                assert!(
                    ordinal <= opened,
                    "[order] access {ordinal} of {rank} to {target} before its exposure \
                     ({opened}) [MA-1]"
                );
                // The exposure itself must be active: no epoch that it waits for is incomplete.
                let exposure = self.exposures[&(target, rank)][ordinal as usize - 1];
                if target != rank {
                    self.assert_activatable(exposure, "access to an exposure");
                }
            }
            Kind::Fence(number) => {
                let (number, called) = (*number, |r: &RankModel| r.fences);
                self.check_learned(rank, target, number);
                if self.is_granted_by_neighbours(number) {
                    self.check_granted(target, number);
                    return id;
                }
                let late = self.ranks.iter().position(|r| called(r) < number);
                assert!(
                    late.is_none(),
                    "[order] an operation after fence {number} before rank {late:?} called it \
                     [FE-1]"
                );
                self.assert_fence_ops_remote(number - 1);
            }
            Kind::Lock { .. } | Kind::LockAll { .. } => self.hold(epoch, target),
            Kind::Barrier(_) | Kind::Exposure(_) => unreachable!("no operations in these"),
        }
        id
    }

    /// Makes the checks that were postponed until the call of an engine of `rank` ended.
    pub fn check_after(&mut self, rank: Rank, engine: &Window) {
        self.check_postponed();
        self.check_locks(rank, engine);
    }

    fn check_postponed(&mut self) {
        for late in std::mem::take(&mut self.late) {
            match late {
                Late::Posted(op) => self.assert_activatable(self.ops[op].epoch, "operation"),
                Late::Signalled { from, to, word, value } => match word {
                    Word::Grant => {
                        let exposures =
                            self.exposures.get(&(from, to)).map_or(&[][..], |list| list);
                        assert!(
                            value as usize <= exposures.len(),
                            "[order] grant {value} of {from} to {to}, never opened [MA-1]"
                        );
                        self.assert_activatable(exposures[value as usize - 1], "grant");
                    }
                    Word::Done => {
                        let access = self.accesses[&(from, to)][value as usize - 1];
                        assert!(
                            self.epochs[access].is_closed(),
                            "[order] done {value} of {from} to {to} before complete [PR-3]"
                        );
                        self.assert_activatable(access, "done");
                    }
                    Word::Fence => {
                        let (number, acknowledges) = self.fence_of(value);
                        if acknowledges {
                            continue;
                        }
                        let barrier = self
                            .epochs
                            .iter()
                            .position(|e| e.rank == from && e.kind == Kind::Barrier(number));
                        self.assert_activatable(
                            barrier.expect("checked at the signal"),
                            "barrier hop",
                        );
                    }
                },
            }
        }
    }

    fn ordinal(&self, epoch: EpochId, peer: Rank) -> u64 {
        let found = self.epochs[epoch].ordinals.iter().find(|(rank, _)| *rank == peer);
        found.expect("in the group").1
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
                    "[order] {what} of rank {} in {:?}, but {:?} waits for {:?} [EP-4, EP-6]",
                    e.rank,
                    e.kind,
                    earlier.kind,
                    b.kind
                );
            }
        }
    }

    /// AC-1 to AC-3, implemented independently of the engine.
    fn may_overtake(&self, earlier: &Epoch, later: &Epoch) -> bool {
        let flags = self.flags[later.rank as usize];
        let special =
            |e: &Epoch| matches!(e.kind, Kind::Barrier(_) | Kind::Fence(_) | Kind::LockAll { .. });
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
}
