//! Execution of the steps of a script.

use super::*;
use crate::engine::OpKind;
use crate::sim::script::byte_op;

impl<S: Script> World<S> {
    /// Makes the next step of a rank, or continues its unfinished one.
    pub(super) fn step(&mut self, rank: Rank, watch: &mut impl Watch) -> Result<Flow, Stuck> {
        let step = match self.process(rank).unfinished.take() {
            Some(Unfinished::Step(step)) => step,
            Some(Unfinished::Others { window, mut op, distance }) => {
                op.target = (rank + distance) % self.ranks();
                if distance + 1 < self.ranks() {
                    self.process(rank).unfinished =
                        Some(Unfinished::Others { window, op, distance: distance + 1 });
                }
                Step::Issue { window, op }
            }
            Some(Unfinished::Requests(mut left)) => {
                left.retain(|(window, id)| self.window(*window, rank).is_pending(*id));
                if let Some((window, id)) = left.pop() {
                    self.process(rank).unfinished = Some(Unfinished::Requests(left));
                    return Ok(Flow::Wait(Wait::Request(window, id)));
                }
                return Ok(Flow::Next);
            }
            None => {
                let (now, process) = (self.net.clock(), &mut self.processes[rank as usize]);
                let mut moment = Moment {
                    me: rank,
                    now,
                    flag: process.flag,
                    value: process.value,
                    arrival: process.arrival,
                    net: &mut self.net,
                };
                process.script.next(&mut moment)
            }
        };
        let blocks = matches!(
            step,
            Step::Lock { blocking: true, .. } | Step::LockAll { blocking: true, .. }
        );
        if blocks && earlier_locks_first(MANY_THREADS) && self.awaits_lock(rank) {
            self.process(rank).unfinished = Some(Unfinished::Step(step));
            return Ok(Flow::Wait(Wait::OlderLocks));
        }
        watch.called(self.net.clock(), rank, &step);
        let flow = self
            .call(rank, step, watch)
            .map_err(|error| self.stuck(StuckBecause::Refused { rank, error }))?;
        self.net.note(u64::from(rank) << 32 ^ self.net.clock());
        // Any call may complete epochs that were closed before.
        for window in 0..self.net.windows() {
            self.report(rank, window, watch);
        }
        self.watch_after(rank, watch);
        Ok(flow)
    }

    pub(super) fn call(
        &mut self,
        rank: Rank,
        step: Step,
        watch: &mut impl Watch,
    ) -> Result<Flow, SyncError> {
        let is_call = !matches!(
            step,
            Step::Compute(_)
                | Step::Flops { .. }
                | Step::End
                | Step::Barrier
                | Step::IssueOthers { .. }
                | Step::SelectLane { .. }
        );
        if is_call {
            self.calls += 1;
            self.net.spend(self.settings.machine.call);
        }
        match step {
            Step::Compute(time) => {
                self.net.spend(time);
                Ok(Flow::Compute)
            }
            Step::Flops { flops, bytes } => {
                self.net.spend(self.settings.machine.computes(flops, bytes));
                Ok(Flow::Compute)
            }
            Step::End => Ok(Flow::End),
            Step::Barrier => Ok(self.barrier(rank)),
            Step::IssueOthers { window, op } => {
                if self.ranks() > 1 {
                    self.process(rank).unfinished =
                        Some(Unfinished::Others { window, op, distance: 1 });
                }
                Ok(Flow::Next)
            }
            Step::Post { window, group } => {
                self.opening(rank, window, &group, |engine, port, group| {
                    engine.post(port, group, Default::default())
                })
            }
            Step::Start { window, group } => {
                self.opening(rank, window, &group, |engine, port, group| {
                    engine.start(port, group, Default::default())
                })
            }
            Step::Complete { window, how } => {
                self.closing(rank, window, how, watch, |engine, port| engine.complete(port))
            }
            Step::Wait { window, how } => {
                self.closing(rank, window, how, watch, |engine, port| engine.wait(port))
            }
            Step::Fence { window, assert, how } => {
                self.closing(rank, window, how, watch, |engine, port| engine.fence(port, assert))
            }
            Step::Unlock { window, target, how } => {
                self.closing(rank, window, how, watch, |engine, port| engine.unlock(port, target))
            }
            Step::UnlockAll { window, how } => {
                self.closing(rank, window, how, watch, |engine, port| engine.unlock_all(port))
            }
            Step::Flush { window, target, local, how } => {
                self.closing(rank, window, how, watch, |engine, port| {
                    if local {
                        engine.flush_local(port, target)
                    } else {
                        engine.flush(port, target)
                    }
                })
            }
            Step::FlushWins { windows, target, how } => {
                self.flush_wins(rank, &windows, target, how, watch)
            }
            Step::Restart { window, calls, slot } => self.restart(rank, window, calls, slot, watch),
            Step::RestartRefused { window, calls } => {
                match self.may_restart(rank, window, &calls) {
                    Err(_) => Ok(Flow::Next),
                    Ok(()) => Err(SyncError::AccessOpen),
                }
            }
            Step::SelectLane { window, lane } => {
                self.call_engine(rank, window, |engine, _| engine.select_lane(lane));
                Ok(Flow::Next)
            }
            Step::Order { window, target } => {
                self.call_engine(rank, window, |engine, port| engine.order(port, target))?;
                Ok(Flow::Next)
            }
            Step::AwaitCounters { window, first, number, expected, how } => {
                let mut found = None;
                let flow = self.closing(rank, window, how, watch, |engine, port| {
                    let (outcome, at_once) = engine.await_counters(port, first, number, expected);
                    found = at_once;
                    Ok(outcome)
                });
                if let Some(found) = found {
                    watch.notified(rank, window, found, &mut self.net);
                }
                flow
            }
            Step::ResetCounter { window, counter } => {
                let taken = self
                    .call_engine(rank, window, |engine, port| engine.reset_counter(port, counter));
                self.process(rank).value = taken;
                watch.taken(rank, window, Notified { index: counter, value: taken }, &mut self.net);
                // Sweep, because a program may make no other call [PR-1].
                self.sweep(rank, watch);
                Ok(Flow::Next)
            }
            Step::Expect { .. }
            | Step::StartExpecting { .. }
            | Step::AwaitExpectation { .. }
            | Step::TestExpectation { .. }
            | Step::Abandon { .. }
            | Step::Probe { .. } => Ok(self.tagged(rank, &step, watch)),
            Step::IssueRequest { window, op, slot } => {
                self.closing(rank, window, How::Slot(slot), watch, |engine, port| {
                    engine.issue_request(port, &op)
                })
            }
            Step::Issue { window, op } => {
                // Calls that copy ask first whether an operation may go straight to memory.
                let asks = self.process(rank).communications.is_multiple_of(2);
                self.call_engine(rank, window, |engine, port| {
                    _ = asks && engine.enters_direct_route(op.target);
                    engine.issue(port, &op)
                })?;
                let process = self.process(rank);
                process.communications = process.communications.wrapping_add(1);
                if process.communications.is_multiple_of(CALLS_PER_SWEEP) {
                    self.sweep(rank, watch);
                }
                Ok(Flow::Next)
            }
            Step::IssueUnlearned { window, target } => {
                let op = byte_op(OpKind::Put, target, 0, 0);
                match self.call_engine(rank, window, |engine, port| engine.issue(port, &op)) {
                    Err(SyncError::NotLearned) => Ok(Flow::Next),
                    result => Err(result.err().unwrap_or(SyncError::NotLearned)),
                }
            }
            Step::Test { window } => {
                let over = self.call_engine(rank, window, |engine, port| engine.test(port))?;
                self.process(rank).flag = over;
                if over {
                    watch.outcome(rank, window, Outcome::Complete, &mut self.net);
                    self.report(rank, window, watch);
                } else {
                    self.sweep(rank, watch);
                }
                Ok(Flow::Next)
            }
            Step::Lock { window, mode, target, assert, blocking } => {
                self.call_engine(rank, window, |engine, port| {
                    engine.lock(port, mode, target, assert)
                })?;
                // The memory of the rank's own node is reached by load and store [EP-1].
                let near = self.net.parameters().same_node(rank, target);
                let held = LockHeld::after_lock(target, near, MANY_THREADS);
                Ok(match held.filter(|_| blocking) {
                    Some(held) => self.wait_unless_over(rank, Wait::Lock(window, held)),
                    None => Flow::Next,
                })
            }
            Step::LockAll { window, assert, blocking } => {
                self.call_engine(rank, window, |engine, port| engine.lock_all(port, assert))?;
                let wait = Wait::Lock(window, LockHeld::after_lock_all());
                Ok(if blocking { self.wait_unless_over(rank, wait) } else { Flow::Next })
            }
            Step::Await(slot) => {
                assert_ne!(
                    self.process(rank).held(slot),
                    SlotState::Free,
                    "rank {rank} waits for slot {slot}, which holds no request"
                );
                Ok(self.wait_unless_over(rank, Wait::Slot(slot)))
            }
            Step::AwaitAll => Ok(self.wait_unless_over(rank, Wait::AllSlots)),
            Step::TestSlot(slot) => {
                self.sweep(rank, watch);
                let over = self.is_over(rank, Wait::Slot(slot));
                self.process(rank).flag = over;
                Ok(Flow::Next)
            }
            Step::Free(slot) => {
                self.process(rank).free(slot);
                Ok(Flow::Next)
            }
            Step::Send { to, bytes } => Ok(self.send(rank, to, bytes)),
            Step::Receive { from } => {
                self.receive(rank, from);
                Ok(self.wait_unless_over(rank, Wait::Received(from)))
            }
        }
    }

    pub(super) fn wait_unless_over(&mut self, rank: Rank, wait: Wait) -> Flow {
        if self.is_over(rank, wait) { Flow::Next } else { Flow::Wait(wait) }
    }

    pub(super) fn opening(
        &mut self,
        rank: Rank,
        window: u32,
        group: &Group,
        call: impl FnOnce(&mut Window, &mut SimPort<'_>, &[Rank]) -> Result<(), SyncError>,
    ) -> Result<Flow, SyncError> {
        let others: Vec<_>;
        let group = match group {
            Group::One(other) => std::slice::from_ref(other),
            Group::List(list) => list,
            Group::Others => {
                others = (0..self.ranks()).filter(|other| *other != rank).collect();
                &others
            }
        };
        self.call_engine(rank, window, |engine, port| call(engine, port, group))?;
        Ok(Flow::Next)
    }

    /// Makes a call that may return a request. Waits for the request, or puts it into a slot.
    pub(super) fn closing(
        &mut self,
        rank: Rank,
        window: u32,
        how: How,
        watch: &mut impl Watch,
        call: impl FnOnce(&mut Window, &mut SimPort<'_>) -> Result<Outcome, SyncError>,
    ) -> Result<Flow, SyncError> {
        if let How::Slot(slot) = how {
            assert_eq!(
                self.process(rank).held(slot),
                SlotState::Free,
                "slot {slot} of rank {rank} holds a request"
            );
        }
        let outcome = self.call_engine(rank, window, call)?;
        watch.outcome(rank, window, outcome, &mut self.net);
        self.report(rank, window, watch);
        Ok(match (outcome, how) {
            (Outcome::Complete, How::Blocking) => Flow::Next,
            (Outcome::Complete, How::Slot(slot)) => {
                self.process(rank).set(slot, SlotState::Complete);
                Flow::Next
            }
            (Outcome::Pending(id), How::Blocking) => {
                self.wait_unless_over(rank, Wait::Request(window, id))
            }
            (Outcome::Pending(id), How::Slot(slot)) => {
                self.process(rank).bind(window, id, slot);
                // Every call of the library makes progress [PR-1].
                self.sweep(rank, watch);
                Flow::Next
            }
        })
    }

    pub(super) fn send(&mut self, rank: Rank, to: Rank, bytes: u64) -> Flow {
        use two_sided::{PacketKind, packed};
        let mut port = self.net.port(0, rank);
        if bytes <= self.settings.machine.eager_max {
            port.send_packet(to, packed(PacketKind::Eager, bytes), bytes);
            // The library copies an eager message into a buffer.
            self.net.spend(self.settings.machine.network.local.serial(bytes));
            return Flow::Next;
        }
        port.send_packet(to, packed(PacketKind::Ready, bytes), 0);
        Flow::Wait(Wait::Sent)
    }

    /// Enters the barrier of all ranks. The last rank releases the others.
    pub(super) fn barrier(&mut self, rank: Rank) -> Flow {
        self.in_barrier.push(rank);
        if self.in_barrier.len() < self.processes.len() {
            return Flow::Wait(Wait::Barrier);
        }
        let at = self.net.clock();
        for other in std::mem::take(&mut self.in_barrier) {
            if other != rank {
                let process = self.process(other);
                let on = process.clock.max(at);
                process.in_calls += on - process.clock;
                process.clock = on;
                process.state = RankState::Busy;
                self.set_alarm(other, on);
            }
        }
        Flow::Next
    }
}
