//! How a lock or lock_all epoch acquires and releases its lock [LK-1 to LK-6].
//!
//! An exclusive lock is held when its request is first in the target's queue, no reader is left,
//! and it has a right that excludes lock_alls ([`exclusion`](super::exclusion)). It asks for the
//! right only once it is first, because a right blocks new lock_alls; it then waits only for
//! lock_alls that are held already. A lock_all that finds a right out waits without holding
//! anything.
//!
//! The *gate* bounds starvation of lock_alls: a process that holds neither a lock of the window nor
//! a licence lets the lock_alls that already wait pass before it enters a queue. A process in a
//! queue is never held back by a waiting lock_all.

use super::epoch::{EpochKind, HeldLock, LockState};
use super::exclusion::ExclusiveRight::{Licensed, Registered};
use super::exclusion::{
    self, Acquisition, ExclusiveRight, RegisterOutcome, RetryOutcome, is_licensed,
};
use super::lock::{self, Enqueued, LockRequest, Node, Turn, look};
use super::lock_ops::LockOp;
use super::port::{LockMode, Port, Rank};
use super::slab::Key;
use super::window::Window;

impl Window {
    /// Requests the lock of an activated epoch, behind the requests that wait at the gate [EP-10].
    pub(super) fn request_lock(&mut self, port: &mut impl Port, epoch: Key) {
        self.locks_awaited += 1;
        if self.size == 1 {
            return self.lock_acquired(port, epoch, HeldLock::Alone);
        }
        if self.lock_gate.is_empty() && self.passes_gate(port, self.lock_of(epoch).1) {
            self.enter_queue(port, epoch);
        } else {
            self.epochs[epoch].locking = LockState::Gate(None);
            self.lock_gate.push_back(epoch);
            self.advance_gate(port);
        }
    }

    /// True if a request of this mode passes the gate without waiting.
    #[inline(always)]
    pub(super) fn passes_gate(&mut self, port: &mut impl Port, mode: LockMode) -> bool {
        if mode == LockMode::Shared || self.open_locks_held > 0 {
            return true;
        }
        is_licensed(port)
    }

    /// Makes the lock requests that may pass the gate, in the order in which their epochs were
    /// activated [EP-10].
    pub(super) fn advance_gate(&mut self, port: &mut impl Port) {
        while let Some(&epoch) = self.lock_gate.front() {
            if self.epochs[epoch].lock_op_pending {
                return;
            }
            if self.passes_gate(port, self.lock_of(epoch).1) {
                self.lock_gate.pop_front();
                self.enter_queue(port, epoch);
                continue;
            }
            self.read_intent(port, epoch);
            if self.lock_gate.front() == Some(&epoch) {
                // No answer yet, or lock_alls go first. The next sweep asks again.
                return;
            }
        }
    }

    /// The first request at the gate reads how many lock_alls arrived and were served. Those that
    /// waited when it arrived go first [LK-6].
    pub(super) fn read_intent(&mut self, port: &mut impl Port, epoch: Key) {
        let result = self.attempt(port, LockOp::ReadIntent(epoch), |mem| exclusion::intent(mem));
        let Some((arrived, served)) = result else { return };
        let LockState::Gate(awaited) = self.epochs[epoch].locking else {
            unreachable!("the epoch waits at the gate")
        };
        let awaited = awaited.unwrap_or(arrived);
        self.epochs[epoch].locking = LockState::Gate(Some(awaited));
        if served.wrapping_sub(awaited).cast_signed() < 0 {
            return;
        }
        debug_assert_eq!(self.lock_gate.front(), Some(&epoch));
        self.lock_gate.pop_front();
        self.enter_queue(port, epoch);
    }

    fn lock_of(&self, epoch: Key) -> (Rank, LockMode) {
        match self.epochs[epoch].kind {
            EpochKind::Lock { target, mode, .. } => (target, mode),
            kind => unreachable!("{kind:?} has no single lock"),
        }
    }

    fn enter_queue(&mut self, port: &mut impl Port, epoch: Key) {
        let (target, mode) = self.lock_of(epoch);
        let request = self.next_request(target, mode);
        self.state_changes += 1;
        self.queue_up(port, epoch, request);
    }

    #[inline(always)]
    pub(super) fn next_request(&mut self, target: Rank, mode: LockMode) -> LockRequest {
        let peer = self.peers.of(target);
        peer.lock_sequence = peer.lock_sequence.wrapping_add(1);
        LockRequest::new(target, mode, peer.lock_sequence)
    }

    pub(super) fn queue_up(&mut self, port: &mut impl Port, epoch: Key, request: LockRequest) {
        let result =
            self.attempt(port, LockOp::Enqueue(epoch, request), |mem| lock::enqueue(mem, request));
        let Some(enqueued) = result else { return };
        self.enqueued(port, epoch, request, enqueued);
    }

    /// Continues after the request was enqueued.
    pub(super) fn enqueued<P: Port>(
        &mut self,
        port: &mut P,
        epoch: Key,
        request: LockRequest,
        enqueued: Enqueued,
    ) {
        let request = request.placed(enqueued.queued);
        if let Some(reader) = enqueued.next_reader {
            self.grant_reader(port, request.target(), reader);
        }
        if enqueued.turn != Turn::Waiting {
            self.take_turn(port, epoch, request, enqueued.turn);
            return;
        }
        self.epochs[epoch].locking = LockState::Queued(request);
        if P::NAMES_CHANGES {
            // The grant may have arrived before the answer of the enqueue operation.
            self.poll_turn(port, epoch, request);
        } else {
            self.watch(epoch);
        }
    }

    /// The grant word of the lock request to this target has changed.
    pub(super) fn lock_granted(&mut self, port: &mut impl Port, target: Rank) {
        let Some(epoch) = self.peers.find(target).and_then(|peer| peer.lock_active) else { return };
        if let Some(LockState::Queued(request)) = self.pollable(epoch) {
            self.poll_turn(port, epoch, request);
        }
    }

    /// The lock state of an epoch, unless it has ended or one of its lock operations is suspended.
    fn pollable(&self, epoch: Key) -> Option<LockState> {
        let entry = self.epochs.get(epoch)?;
        (!entry.lock_op_pending).then_some(entry.locking)
    }

    fn poll_turn(&mut self, port: &mut impl Port, epoch: Key, request: LockRequest) {
        let turn = look(port, request);
        if turn != Turn::Waiting {
            self.take_turn(port, epoch, request, turn);
        }
    }

    #[inline(always)]
    fn take_turn(&mut self, port: &mut impl Port, epoch: Key, request: LockRequest, turn: Turn) {
        let lock = match (turn, request.mode()) {
            (Turn::Waiting, _) => unreachable!("the caller has found a grant"),
            (Turn::Granted { .. }, LockMode::Shared) => HeldLock::Shared(request),
            (Turn::Granted { inherited: true }, _) => HeldLock::Exclusive(request, Registered),
            (Turn::Granted { inherited: false }, LockMode::Exclusive) => {
                return self.acquire_right(port, epoch, request);
            }
        };
        self.lock_acquired(port, epoch, lock);
    }

    /// Gets the right for an exclusive lock that is first in its queue.
    #[inline(always)]
    fn acquire_right(&mut self, port: &mut impl Port, epoch: Key, request: LockRequest) {
        match self.licensing.acquire(port, epoch, request) {
            Acquisition::InUse => {
                self.lock_acquired(port, epoch, HeldLock::Exclusive(request, Licensed));
            }
            Acquisition::UseIdle => self.begin_use(port, epoch, request),
            Acquisition::Register(push) => self.register(port, epoch, request, push),
            Acquisition::Wait => self.epochs[epoch].lock_op_pending = true,
        }
    }

    #[inline(always)]
    pub(super) fn begin_use(&mut self, port: &mut impl Port, epoch: Key, request: LockRequest) {
        let result =
            self.attempt(port, LockOp::BeginUse(epoch, request), |mem| exclusion::begin_use(mem));
        if let Some(begun) = result {
            self.licence_begun(port, epoch, request, begun);
        }
    }

    /// Continues after an attempt to use the idle licence; `begun` is false if it was found
    /// revoked.
    #[inline(always)]
    pub(super) fn licence_begun(
        &mut self,
        port: &mut impl Port,
        epoch: Key,
        request: LockRequest,
        begun: bool,
    ) {
        if begun {
            self.licensing.begun();
            self.lock_acquired(port, epoch, HeldLock::Exclusive(request, Licensed));
            self.licence_changed(port);
        } else {
            self.licence_changed(port);
            self.acquire_right(port, epoch, request);
        }
    }

    /// Registers the lock. With `push`, acquires a licence too.
    pub(super) fn register(
        &mut self,
        port: &mut impl Port,
        epoch: Key,
        request: LockRequest,
        push: Option<u32>,
    ) {
        let result = self.attempt(port, LockOp::Register(epoch, request, push), |mem| {
            exclusion::register(mem, push)
        });
        let Some(claimed) = result else { return };
        match claimed {
            RegisterOutcome::Held(right) => {
                if right == Licensed {
                    self.licensing.begun();
                }
                self.lock_acquired(port, epoch, HeldLock::Exclusive(request, right));
            }
            RegisterOutcome::Draining => {
                self.epochs[epoch].locking = LockState::Draining(request);
                self.watch(epoch);
            }
            RegisterOutcome::Revoked => self.licensing.revoked(),
        }
        if push.is_some() {
            self.licence_changed(port);
        }
        if claimed == RegisterOutcome::Revoked {
            self.acquire_right(port, epoch, request);
        }
    }

    /// Ends the pending operation on the licence and continues the locks that waited for it.
    #[inline(always)]
    fn licence_changed(&mut self, port: &mut impl Port) {
        for (epoch, request) in self.licensing.changed() {
            self.epochs[epoch].lock_op_pending = false;
            self.acquire_right(port, epoch, request);
        }
    }

    pub(super) fn end_use(&mut self, port: &mut impl Port) {
        if self.attempt(port, LockOp::EndUse, |mem| exclusion::end_use(mem)).is_some() {
            self.licence_changed(port);
        }
    }

    /// Checks whether a registered lock still has to wait for lock_alls.
    pub(super) fn await_drain(&mut self, port: &mut impl Port, epoch: Key, request: LockRequest) {
        let result = self
            .attempt(port, LockOp::AwaitDrain(epoch, request), |mem| exclusion::is_drained(mem));
        if result == Some(true) {
            self.lock_acquired(port, epoch, HeldLock::Exclusive(request, Registered));
        }
    }

    #[inline(always)]
    fn lock_acquired(&mut self, port: &mut impl Port, epoch: Key, lock: HeldLock) {
        self.locks_awaited -= 1;
        self.epochs[epoch].locking = LockState::Held(lock);
        self.grant(port, epoch);
        if self.epochs[epoch].closed {
            self.try_complete(port, epoch);
        }
    }

    pub(super) fn request_lock_all(&mut self, port: &mut impl Port, epoch: Key) {
        self.locks_awaited += 1;
        if self.size == 1 {
            return self.lock_acquired(port, epoch, HeldLock::Alone);
        }
        self.enter_all(port, epoch);
    }

    pub(super) fn enter_all(&mut self, port: &mut impl Port, epoch: Key) {
        let result = self.attempt(port, LockOp::EnterAll(epoch), |mem| exclusion::enter_all(mem));
        if let Some(entered) = result {
            self.all_entered(port, epoch, entered);
        }
    }

    /// Continues after an attempt to start the lock_all of this epoch.
    pub(super) fn all_entered(&mut self, port: &mut impl Port, epoch: Key, entered: bool) {
        if entered {
            return self.lock_acquired(port, epoch, HeldLock::All);
        }
        self.epochs[epoch].locking = LockState::AllWaiting;
        self.watch(epoch);
        self.retry_all(port, epoch);
    }

    /// Retries a waiting lock_all as long as there are licences to revoke.
    pub(super) fn retry_all(&mut self, port: &mut impl Port, epoch: Key) {
        loop {
            match self.attempt(port, LockOp::RetryAll(epoch), |mem| exclusion::retry_all(mem)) {
                None | Some(RetryOutcome::Waiting) => return,
                Some(RetryOutcome::Held) => return self.lock_acquired(port, epoch, HeldLock::All),
                Some(RetryOutcome::Revoked) => self.state_changes += 1,
            }
        }
    }

    fn watch(&mut self, epoch: Key) {
        if !std::mem::replace(&mut self.epochs[epoch].watched, true) {
            self.lock_watch.push(epoch);
        }
    }

    /// Polls every lock request whose progress the port does not report.
    pub(super) fn poll_lock_watch(&mut self, port: &mut impl Port) {
        let mut at = 0;
        while at < self.lock_watch.len() {
            let epoch = self.lock_watch[at];
            match self.pollable(epoch) {
                Some(LockState::Queued(request)) => self.poll_turn(port, epoch, request),
                Some(LockState::Draining(request)) => self.await_drain(port, epoch, request),
                Some(LockState::AllWaiting) => self.retry_all(port, epoch),
                _ => {}
            }
            // An epoch that got its lock leaves the list. It may have ended since the last sweep.
            let waits = self.epochs.get(epoch).is_some_and(|entry| {
                matches!(
                    entry.locking,
                    LockState::Queued(_) | LockState::Draining(_) | LockState::AllWaiting
                )
            });
            if waits {
                at += 1;
            } else {
                self.lock_watch.swap_remove(at);
                if let Some(entry) = self.epochs.get_mut(epoch) {
                    entry.watched = false;
                }
            }
        }
    }

    /// Releases the lock of an epoch. Sends nothing to the target [LK-2].
    pub(super) fn unlock_now(&mut self, port: &mut impl Port, epoch: Key) {
        match self.epochs[epoch].locking {
            LockState::Held(lock) => self.release_lock(port, lock),
            LockState::Unchecked => {
                if let EpochKind::Lock { target, .. } = self.epochs[epoch].kind {
                    self.peers.of(target).lock_active = None;
                }
            }
            _ => unreachable!("only a held lock is released"),
        }
    }

    #[inline(always)]
    pub(super) fn release_lock(&mut self, port: &mut impl Port, lock: HeldLock) {
        match lock {
            HeldLock::Alone => {
                self.peers.of(self.me).lock_active = None;
                self.recheck |= !self.deferred.is_empty();
            }
            HeldLock::Shared(request) => self.release(port, request, None),
            HeldLock::Exclusive(request, right) => self.release(port, request, Some(right)),
            HeldLock::All => self.leave_all(port),
        }
    }

    /// Leaves the queue. The right of an exclusive lock is passed on or given back.
    pub(super) fn release(
        &mut self,
        port: &mut impl Port,
        request: LockRequest,
        right: Option<ExclusiveRight>,
    ) {
        let registered = right == Some(Registered);
        let result = self.attempt(port, LockOp::Release(request, right), |mem| {
            let released = lock::release(mem, request, registered)?;
            if registered && !released.passed_on {
                exclusion::deregister(mem)?;
            }
            Ok(released)
        });
        let Some(released) = result else { return };
        self.peers.of(request.target()).lock_active = None;
        self.recheck |= !self.deferred.is_empty();
        if let Some(reader) = released.next_reader {
            self.grant_reader(port, request.target(), reader);
        }
        if right == Some(Licensed) && self.licensing.ends() {
            self.end_use(port);
        }
    }

    /// Grants the readers that stand directly behind one that was granted.
    pub(super) fn grant_reader(&mut self, port: &mut impl Port, target: Rank, mut reader: Node) {
        while let Some(Some(next)) =
            self.attempt(port, LockOp::GrantReader(target, reader), |mem| {
                lock::grant_reader(mem, target, reader)
            })
        {
            reader = next;
        }
    }

    pub(super) fn leave_all(&mut self, port: &mut impl Port) {
        self.attempt(port, LockOp::LeaveAll, |mem| exclusion::leave_all(mem));
    }
}
