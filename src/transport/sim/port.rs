//! One rank's view of the network: the engine's port.

use super::event::EventKind;
use super::message::{Message, NO_TICKET, Path, Purpose};
use super::network::{Inbox, Network};
use super::parameters::transfer_time;
use super::violation::Violation;
use super::{Times, meter};
use crate::engine::{
    Answer, Arrival, Atomic, Change, LockMemory, LockTicket, LockWord, NoResource,
    NotificationKind, Op, OpKind, Port, Posted, Rank, Stage, Ticket, Word,
};

/// Wire length of a signal, an access, or the request of a get.
const WORD: u64 = 8;

/// One rank in one window, for the duration of a call.
pub struct SimPort<'a> {
    net: &'a mut Network,
    window: u32,
    me: u32,
    times: Option<Times>,
}

impl<'a> SimPort<'a> {
    pub(super) fn new(net: &'a mut Network, window: u32, me: u32) -> Self {
        SimPort { net, window, me, times: None }
    }

    /// This port with `times` for the messages that it sends. An operation whose `done` is now is
    /// complete on return. The caller must keep the promises of [`Port`] on the order of effects.
    #[must_use]
    pub fn timed(self, times: Times) -> Self {
        SimPort { times: Some(times), ..self }
    }

    fn message(&self, target: u32, purpose: Purpose, path: Path) -> Message {
        Message {
            origin: self.me,
            target,
            window: self.window,
            ticket: 0,
            connection: 0,
            number: 0,
            purpose,
            notification: None,
            path,
            back: false,
            inlined: true,
            timed: self.times.is_some(),
            bytes: WORD,
            value: 0,
        }
    }

    fn same_node(&self, other: u32) -> bool {
        self.net.parameters.same_node(self.me, other)
    }

    /// The path of a message to `other`: `inside` if both ranks are on one node.
    fn path_to(&self, other: u32, inside: Path) -> Path {
        if self.same_node(other) { inside } else { Path::Wire }
    }

    /// Put or get inside the node, by copying. The copies of a node share its memory bus.
    fn copy(&mut self, op: &Op) {
        let net = &mut *self.net;
        let (local, bus) = (net.parameters.local, net.parameters.bus_byte_fs);
        let node = net.parameters.node(self.me) as usize;
        let bus_free = net.nodes[node].bus_free.max(net.clock) + transfer_time(op.len, bus);
        net.nodes[node].bus_free = bus_free;
        net.spend(local.gap + local.serial(op.len));
        net.clock = net.clock.max(bus_free);
        net.stats.copies += 1;
        if let Some(memory) = &mut net.memory {
            memory.copy(self.window, self.me, op);
            for kind in [EventKind::Posted(*op), EventKind::Effect(*op), EventKind::Local(*op)] {
                net.record_event(self.window, self.me, kind);
            }
        }
    }

    fn post_op(&mut self, op: &Op, ticket: Ticket) -> Posted {
        // An operation that notifies goes through the NIC, because its notification must follow
        // earlier accumulates, which do so too.
        let copies = matches!(op.kind, OpKind::Put | OpKind::Get) && op.notification.is_none();
        if copies && self.times.is_none() && self.same_node(op.target) {
            self.copy(op);
            return Posted::Complete;
        }
        let path = self.path_to(op.target, Path::Loopback);
        let net = &mut *self.net;
        let bulk = if matches!(op.kind, OpKind::Put | OpKind::Accumulate) { op.len } else { 0 };
        if !net.has_credit(self.me, op.target) || !net.has_bulk_room(self.me, bulk) {
            return Posted::NoResource;
        }
        net.spend(net.parameters.wire.post);
        let inlined = match self.times {
            Some(times) => times.left <= net.now,
            None => op.len <= net.parameters.inline_max,
        };
        let (purpose, bytes) = match op.kind {
            OpKind::Put if op.len == 0 => (Purpose::Put, WORD),
            OpKind::Put => (Purpose::Put, op.len),
            OpKind::Accumulate => (Purpose::Accumulate, op.len),
            OpKind::Get => (Purpose::Get, WORD),
            OpKind::GetAccumulate | OpKind::CompareAndSwap => (Purpose::Fetch, op.len),
        };
        // Only operations that store at the target have a local stage of their own.
        let local_first = inlined && matches!(op.kind, OpKind::Put | OpKind::Accumulate);
        // An operation that is complete on return has no ticket, so it is not reported again.
        let complete = self.times.is_some_and(|times| times.done <= net.now)
            || matches!(op.kind, OpKind::Put | OpKind::Accumulate)
                && net.violates(Violation::EarlyFinish);
        let early_notification = op.notification.filter(|notification| {
            net.violates(match notification.kind() {
                NotificationKind::Counter(_) => Violation::EarlyNotification,
                NotificationKind::Tag(_) => Violation::EarlyTagged,
            })
        });
        let message = Message {
            ticket: if complete { NO_TICKET } else { ticket.0 },
            bytes,
            value: op.len,
            notification: op.notification.filter(|_| early_notification.is_none()),
            inlined: inlined || op.kind == OpKind::Get,
            ..self.message(op.target, purpose, path)
        };
        self.net.send(message, Some(op), self.times);
        if let Some(notification) = early_notification {
            self.net.notify(self.window, self.me, op.target, notification);
            self.net.record_event(self.window, self.me, EventKind::Notified(*op));
        }
        match (complete, local_first) {
            (true, _) => Posted::Complete,
            (false, true) => Posted::Local,
            (false, false) => Posted::Pending,
        }
    }

    fn send_signal(&mut self, peer: Rank, word: Word, value: u64) -> Result<(), NoResource> {
        if peer == self.me
            && self.times.is_none()
            && self.net.connections.in_flight(peer, peer) == 0
        {
            // A plain store. While operations to this rank itself are in flight through the NIC,
            // the signal must follow them as a message.
            let net = &mut *self.net;
            net.spend(net.parameters.local.post);
            net.record_event(self.window, peer, EventKind::Signalled { to: peer, word, value });
            net.raise(self.window, peer, peer, word, value);
            return Ok(());
        }
        let path = self.path_to(peer, Path::Shared);
        let net = &mut *self.net;
        if !net.has_credit(self.me, peer) {
            return Err(NoResource);
        }
        let (local, wire) = (net.parameters.local, net.parameters.wire);
        net.spend(if path == Path::Shared { local.post } else { wire.post });
        net.record_event(self.window, self.me, EventKind::Signalled { to: peer, word, value });
        if net.violates(Violation::Overtake(word)) {
            net.raise(self.window, self.me, peer, word, value);
        }
        let message = Message { value, ..self.message(peer, Purpose::Signal(word), path) };
        self.net.send(message, None, self.times);
        Ok(())
    }

    fn access(&mut self, home: Rank, word: LockWord, access: Atomic, ticket: LockTicket) -> Answer {
        let path = self.path_to(home, Path::Loopback);
        let modelled = self.times.is_none();
        let net = &mut *self.net;
        if modelled && home == self.me && matches!(access, Atomic::Load | Atomic::Store(_)) {
            // The CPU may access its own words directly: words that it stores to are never targets
            // of an atomic read-modify-write.
            net.spend(net.parameters.local.post);
            return Answer::Now(net.change(self.window, home, home, word, access));
        }
        if modelled && net.shares_lock_words() {
            net.spend(net.parameters.local.post);
            return Answer::Now(net.change_shared(self.window, self.me, home, word, access));
        }
        if !net.has_credit(self.me, home) {
            return Answer::NoResource;
        }
        net.spend(net.parameters.wire.post);
        let message =
            Message { ticket: ticket.0, ..self.message(home, Purpose::Access(word, access), path) };
        self.net.send(message, None, self.times);
        Answer::Later
    }

    /// Sends a packet of the network's owner, without a check for credits.
    pub(crate) fn send_packet(&mut self, to: Rank, value: u64, bytes: u64) {
        self.net.spend(self.net.parameters.wire.post);
        let path = self.path_to(to, Path::Shared);
        let message =
            Message { value, bytes: bytes.max(WORD), ..self.message(to, Purpose::Packet, path) };
        self.net.send(message, None, self.times);
    }

    /// Takes the next item from this window's inbox, and charges the CPU for handling it.
    #[inline]
    fn take<T>(&mut self, next: impl FnOnce(&mut Inbox) -> Option<T>) -> Option<T> {
        let at = self.net.inbox_at(self.window, self.me);
        let taken = next(&mut self.net.inboxes[at])?;
        self.net.spend(self.net.parameters.wire.handle);
        Some(taken)
    }
}

impl LockMemory for SimPort<'_> {
    fn atomic(&mut self, home: Rank, word: LockWord, access: Atomic, ticket: LockTicket) -> Answer {
        meter::outside(|| self.access(home, word, access, ticket))
    }

    fn look(&mut self, word: LockWord) -> u64 {
        self.net.words.lock(self.window, self.me, word)
    }
}

impl Port for SimPort<'_> {
    const NAMES_CHANGES: bool = true;
    const SIGNALS_FOLLOW: bool = true;

    fn post(&mut self, op: &Op, ticket: Ticket) -> Posted {
        meter::outside(|| self.post_op(op, ticket))
    }

    /// Messages of a connection take effect in order. A copy inside the node must not overtake
    /// them.
    fn order(&mut self, target: Rank) -> Result<(), NoResource> {
        let copies = self.times.is_none() && self.same_node(target);
        if copies
            && self.net.connections.in_flight(self.me, target) > 0
            && !self.net.violates(Violation::Unordered)
        {
            // Woken when one of them has taken effect.
            self.net.starving[self.me as usize] = true;
            return Err(NoResource);
        }
        Ok(())
    }

    fn signal(&mut self, peer: Rank, word: Word, value: u64) -> Result<(), NoResource> {
        meter::outside(|| self.send_signal(peer, word, value))
    }

    fn observe(&mut self, peer: Rank, word: Word) -> u64 {
        self.net.words.seen(self.window, self.me, peer, word)
    }

    fn counter(&mut self, index: u32) -> u64 {
        self.net.words.counter(self.window, self.me, index)
    }

    fn next_arrival(&mut self) -> Option<Arrival> {
        self.take(|inbox| inbox.arrivals.pop_front())
    }

    fn poll(&mut self) -> bool {
        let at = self.net.inbox_at(self.window, self.me);
        std::mem::take(&mut self.net.inboxes[at].fresh)
    }

    fn next_finished(&mut self) -> Option<(Ticket, Stage)> {
        self.take(|inbox| inbox.finished.pop_front())
    }

    fn next_answer(&mut self) -> Option<(LockTicket, u64)> {
        self.take(|inbox| inbox.answers.pop_front())
    }

    fn next_change(&mut self) -> Option<Change> {
        self.take(|inbox| inbox.changes.pop_front())
    }
}
