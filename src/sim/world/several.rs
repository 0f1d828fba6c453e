//! Calls that make several calls of the engine: starts of persistent epochs [PE-2], and flushes of
//! several windows [FL-2].

use super::*;
use crate::engine::{InFences, SyncCall};

impl Recorded {
    /// The call as a step of its own. The slot is that of the request that it contributes to.
    fn as_step(&self, window: u32, slot: Slot) -> Step {
        let how = How::Slot(slot);
        let list = |group: &[Rank]| Group::List(group.to_vec());
        match self {
            Recorded::Issue(op) => Step::Issue { window, op: *op },
            Recorded::Sync(call) => match call {
                SyncCall::Post(group) => Step::Post { window, group: list(group) },
                SyncCall::Wait => Step::Wait { window, how },
                SyncCall::Start(group) => Step::Start { window, group: list(group) },
                SyncCall::Complete => Step::Complete { window, how },
                SyncCall::Fence(assert) => Step::Fence { window, assert: *assert, how },
                &SyncCall::Lock(mode, target, assert) => {
                    Step::Lock { window, mode, target, assert, blocking: false }
                }
                SyncCall::Unlock(target) => Step::Unlock { window, target: *target, how },
                SyncCall::LockAll(assert) => {
                    Step::LockAll { window, assert: *assert, blocking: false }
                }
                SyncCall::UnlockAll => Step::UnlockAll { window, how },
            },
        }
    }

    fn opens_only(&self) -> bool {
        use SyncCall::{Lock, LockAll, Post, Start};
        matches!(self, Recorded::Sync(Post(_) | Start(_) | Lock(..) | LockAll(_)))
    }
}

impl<S: Script> World<S> {
    /// Whether a start of a persistent epoch is legal now.
    pub(super) fn may_restart(
        &mut self,
        rank: Rank,
        window: u32,
        calls: &[Recorded],
    ) -> Result<(), SyncError> {
        let syncs = || {
            calls.iter().filter_map(|call| match call {
                Recorded::Sync(call) => Some(call),
                Recorded::Issue(_) => None,
            })
        };
        let in_fence = matches!(calls.first(), Some(Recorded::Issue(_)));
        let has_fence = syncs().any(|call| matches!(call, SyncCall::Fence(_)));
        let in_fences = calls.iter().filter_map(|call| match call {
            Recorded::Issue(op) if has_fence => Some(InFences::Access(op.target)),
            Recorded::Sync(SyncCall::Fence(assert)) => Some(InFences::Fence(*assert)),
            _ => None,
        });
        let in_fences: Vec<InFences> = in_fences.collect();
        self.call_engine(rank, window, |engine, _| {
            engine.may_restart(in_fence, syncs())?;
            engine.may_make_fences(&in_fences).map_err(|_| SyncError::NotLearned)
        })
    }

    /// Makes the calls of a persistent epoch.
    pub(super) fn restart(
        &mut self,
        rank: Rank,
        window: u32,
        calls: Vec<Recorded>,
        slot: Slot,
        watch: &mut impl Watch,
    ) -> Result<Flow, SyncError> {
        assert_eq!(self.process(rank).held(slot), SlotState::Free, "slot {slot} holds a request");
        self.may_restart(rank, window, &calls)?;
        for call in calls {
            watch.called(self.net.clock(), rank, &call.as_step(window, slot));
            match &call {
                Recorded::Issue(op) => {
                    self.call_engine(rank, window, |engine, port| engine.issue(port, op))?;
                }
                Recorded::Sync(sync) => {
                    let outcome = self
                        .call_engine(rank, window, |engine, port| engine.synchronize(port, sync))?;
                    if !call.opens_only() {
                        self.add_part(rank, window, outcome, slot, watch);
                    }
                }
            }
            self.report(rank, window, watch);
            self.watch_after(rank, watch);
        }
        self.end_parts(rank, slot, watch);
        Ok(Flow::Next)
    }

    /// Flushes several windows. None is flushed if one may not be.
    pub(super) fn flush_wins(
        &mut self,
        rank: Rank,
        windows: &[u32],
        target: Option<Rank>,
        how: How,
        watch: &mut impl Watch,
    ) -> Result<Flow, SyncError> {
        for &window in windows {
            self.call_engine(rank, window, |engine, _| engine.may_flush(target))?;
        }
        let mut pending = Vec::new();
        for &window in windows {
            watch.called(
                self.net.clock(),
                rank,
                &Step::Flush { window, target, local: false, how },
            );
            let outcome =
                self.call_engine(rank, window, |engine, port| engine.flush(port, target))?;
            match (how, outcome) {
                (How::Slot(slot), _) => self.add_part(rank, window, outcome, slot, watch),
                (How::Blocking, Outcome::Pending(id)) => {
                    watch.outcome(rank, window, outcome, &mut self.net);
                    pending.push((window, id));
                }
                (How::Blocking, Outcome::Complete) => {
                    watch.outcome(rank, window, outcome, &mut self.net);
                }
            }
            self.report(rank, window, watch);
            self.watch_after(rank, watch);
        }
        match how {
            How::Slot(slot) => self.end_parts(rank, slot, watch),
            How::Blocking => self.process(rank).unfinished = Some(Unfinished::Requests(pending)),
        }
        Ok(Flow::Next)
    }

    /// A call that contributes to the request in a slot has this outcome.
    fn add_part(
        &mut self,
        rank: Rank,
        window: u32,
        outcome: Outcome,
        slot: Slot,
        watch: &mut impl Watch,
    ) {
        watch.outcome(rank, window, outcome, &mut self.net);
        if let Outcome::Pending(id) = outcome {
            self.process(rank).bind(window, id, slot);
        }
    }

    /// The request in a slot has all its parts.
    fn end_parts(&mut self, rank: Rank, slot: Slot, watch: &mut impl Watch) {
        if self.process(rank).held(slot) == SlotState::Free {
            self.process(rank).set(slot, SlotState::Complete);
        }
        // Every call of the library makes progress [PR-1].
        self.sweep(rank, watch);
    }
}
