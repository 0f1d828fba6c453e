//! No completion before its conditions: complete, wait, unlock, fence, flush, R-forms, and the
//! signals that report them.

use mpix_rma::engine::*;

use super::{EpochId, Kind, Meaning, Model, OpId};

impl Model {
    /// Checks a signal when it is given to the transport.
    pub fn check_signal(&mut self, from: Rank, to: Rank, word: Word, value: u64) {
        match word {
            Word::Grant => {} // its exposure is checked when the call is over
            Word::Done => {
                let accesses = self.accesses.get(&(from, to)).map_or(&[][..], |list| list);
                assert!(
                    value as usize <= accesses.len(),
                    "[completion] done {value} of {from} to {to}, which it never opened [MA-2]"
                );
                if !self.signals_follow {
                    self.check_seen(from, to, word, value);
                }
            }
            Word::Fence => {
                let (number, acknowledges) = self.fence_of(value);
                if acknowledges {
                    return;
                }
                assert!(
                    number <= self.of(from).fences,
                    "[completion] rank {from} signals fence {number}, which it has not called"
                );
                if self.is_by_neighbours(number) {
                    return self.check_neighbour_signal(from, to, value);
                }
                // The hop also reports the process's own operations of earlier epochs.
                let open = self.fence_op_open(number, |op| op.rank == from);
                assert!(
                    open.is_none(),
                    "[completion] rank {from} signals fence {number} over an operation in flight \
                     [FE-1]"
                );
            }
        }
    }

    /// Checks a signal when it becomes visible to its reader.
    pub(super) fn check_seen(&mut self, from: Rank, to: Rank, word: Word, value: u64) {
        if word == Word::Done {
            // What has ended stays so: a program of many epochs checks each once.
            let first = self.ended.insert((from, to), value).unwrap_or(0).min(value);
            let accesses = self.accesses.get(&(from, to)).map_or(&[][..], |list| list);
            let done = accesses.get(first as usize..value as usize).unwrap_or_else(|| {
                panic!(
                    "[completion] done {value} of {from} is seen by {to}, and only {} were \
                        opened [MA-2]",
                    accesses.len()
                )
            });
            for &access in done {
                self.assert_ops_remote(access, Some(to), "done [MA-2, PR-3]");
            }
        }
        if word == Word::Fence {
            self.check_neighbour_seen(from, to, value);
        }
    }

    /// Checks the completion of an epoch, flush or operation.
    pub fn complete(&mut self, rank: Rank, meaning: &Meaning) {
        match meaning {
            Meaning::Close(epoch) => self.complete_epoch(*epoch),
            Meaning::Fence(barrier, fence) => {
                let Kind::Barrier(number) = self.epochs[*barrier].kind else { unreachable!() };
                if self.is_by_neighbours(number) {
                    self.check_origins_came(rank, number);
                } else {
                    self.check_all_came(rank, number);
                }
                if let Some(fence) = fence {
                    self.set_complete(*fence);
                }
                self.set_complete(*barrier);
            }
            Meaning::Flush { local, covers, epochs } => {
                self.flushed.extend(epochs);
                for &op in covers {
                    let record = &self.ops[op];
                    let is_local = record.local.or(record.remote).is_some();
                    assert!(
                        if *local { is_local } else { record.is_over() },
                        "[completion] a flush of rank {rank} is complete before an older \
                         operation [FL-1]"
                    );
                }
            }
            Meaning::Operation(op) => {
                assert!(
                    self.ops[*op].local.is_some(),
                    "[completion] an R-form request completes too early"
                )
            }
            Meaning::Counters { first, number, sum } => {
                let risen = (*first..first + number).any(|index| self.counter(rank, index) >= *sum);
                assert!(
                    risen,
                    "[completion] rank {rank} completed a wait for notifications that did not \
                     arrive: {meaning:?}"
                );
            }
        }
    }

    /// Checks that a notification overtakes neither its data nor operations before.
    pub(super) fn check_notification(&self, id: OpId) {
        let notification = &self.ops[id];
        for &op in self.epochs[notification.epoch].ops.iter().filter(|&&op| op <= id) {
            let before = &self.ops[op];
            assert!(
                (before.target, before.lane) != (notification.target, notification.lane)
                    || before.remote.is_some(),
                "[completion] a notification of rank {} overtakes earlier operations: {before:?}",
                notification.rank
            );
        }
    }

    /// Number of notifications that have reached a counter.
    pub fn counter(&self, rank: Rank, index: u32) -> u64 {
        let came = |op: &&super::OpRecord| {
            op.target == rank
                && op.notification == Some(Notification::counter(index))
                && op.notified.is_some()
        };
        self.ops.iter().filter(came).count() as u64
    }

    fn check_all_came(&self, rank: Rank, number: u64) {
        let late = self.ranks.iter().position(|r| r.fences < number);
        assert!(
            late.is_none(),
            "[completion] fence {number} of rank {rank} complete before rank {late:?} called it \
             [FE-1]"
        );
        self.assert_fence_ops_remote(number - 1);
    }

    fn complete_epoch(&mut self, epoch: EpochId) {
        let e = &self.epochs[epoch];
        assert!(e.is_closed());
        match &e.kind {
            Kind::Exposure(_) => {
                for &(origin, ordinal) in &e.ordinals {
                    let accesses =
                        self.accesses.get(&(origin, e.rank)).map_or(&[][..], |list| list);
                    let access = accesses.get(ordinal as usize - 1).copied();
                    let access = access.unwrap_or_else(|| {
                        panic!(
                            "[completion] exposure {ordinal} of {} to {origin} complete, never \
                                accessed [EP-3]",
                            e.rank
                        )
                    });
                    assert!(
                        self.epochs[access].is_closed(),
                        "[completion] exposure of {} complete before {origin} closed its access",
                        e.rank
                    );
                    self.assert_ops_remote(access, Some(e.rank), "the end of its exposure [EP-3]");
                }
            }
            Kind::Access(_) => {
                self.assert_ops_remote(epoch, None, "complete");
                for &(target, ordinal) in &e.ordinals {
                    let done = self.dones.get(&(e.rank, target)).copied().unwrap_or(0);
                    assert!(
                        done >= ordinal,
                        "[completion] access {ordinal} of {} to {target} complete with done {done}",
                        e.rank
                    );
                }
            }
            _ => self.assert_ops_remote(epoch, None, "unlock"),
        }
        self.set_complete(epoch);
    }

    pub(super) fn assert_ops_remote(&self, epoch: EpochId, target: Option<Rank>, what: &str) {
        for &op in &self.epochs[epoch].ops {
            let record = &self.ops[op];
            let counts = target.is_none_or(|t| record.target == t);
            assert!(
                !counts || record.is_over(),
                "[completion] {what} of rank {} before its operation ended: {record:?}",
                record.rank
            );
        }
    }

    pub(super) fn assert_fence_ops_remote(&self, up_to: u64) {
        let open = self
            .fence_ops
            .range(..=up_to)
            .flat_map(|(_, ops)| ops)
            .find(|&&op| !self.ops[op].is_over());
        assert!(
            open.is_none(),
            "[completion] fence {up_to}+1 is passed over an operation in flight: {:?} [FE-1]",
            open.map(|&op| &self.ops[op])
        );
    }

    /// Checks that nothing that the application closed is left.
    pub fn assert_finished(&self) {
        assert!(
            self.unposted.is_empty(),
            "[leak] operations were never posted: {:?}",
            self.unposted
        );
        for op in &self.ops {
            assert!(op.is_over(), "[leak] an operation never ended: {op:?}");
        }
        for epoch in &self.epochs {
            let tentative = matches!(epoch.kind, Kind::Fence(_)) && epoch.ops.is_empty();
            assert!(epoch.complete || tentative, "[leak] an epoch never completed: {epoch:?}");
        }
    }
}
