//! Delivery of messages: out of a port, through switches, into a port, and the effect at the
//! target.

use super::event::EventKind;
use super::message::{Message, NO_TICKET, Path, Purpose};
use super::network::{Network, Packet};
use super::parameters::transfer_time;
use super::queue::EventType;
use super::violation::Violation;
use super::{Time, Times};
use crate::engine::{
    Arrival, Atomic, Change, LockTicket, LockWord, Notification, NotificationKind, Op, Stage,
    Ticket, Word,
};

/// Answers up to this length travel like acknowledgements, without reserving a port.
const SHORT_ANSWER: u64 = 64;

impl Network {
    /// True if there is a credit for one more message on this connection. Otherwise the origin is
    /// woken when a credit may be available.
    pub(super) fn has_credit(&mut self, origin: u32, target: u32) -> bool {
        let node = self.parameters.node(origin) as usize;
        if let Some(wait) = self.faults.as_mut().and_then(super::faults::FaultInjector::refuses) {
            self.stats.refusals += 1;
            // One wake-up for all refusals until then, because a woken rank retries everything.
            if !std::mem::replace(&mut self.nudged[origin as usize], true) {
                let at = self.clock + wait;
                self.push(at, EventType::Nudge, origin, 0);
            }
            return false;
        }
        if self.nodes[node].in_flight >= self.parameters.credits_nic {
            self.stats.refusals += 1;
            let starved = &mut self.nodes[node].starved;
            if starved.last() != Some(&origin) {
                starved.push(origin);
            }
            return false;
        }
        if self.connections.in_flight(origin, target) >= self.parameters.credits_pair {
            self.stats.refusals += 1;
            self.starving[origin as usize] = true;
            return false;
        }
        true
    }

    /// True if the bulk window of the origin has room for an operation of `bytes` bytes. Otherwise
    /// the origin is woken when one of its bulk operations is acknowledged.
    pub(super) fn has_bulk_room(&mut self, origin: u32, bytes: u64) -> bool {
        let out = self.bulk_out[origin as usize];
        let fits = bytes <= self.parameters.mtu
            || out == 0
            || out.saturating_add(bytes) <= self.parameters.bulk_window;
        if !fits {
            self.stats.refusals += 1;
            self.starving[origin as usize] = true;
        }
        fits
    }

    /// Returns the credit of a message to its origin.
    fn return_credit(&mut self, message: &Message) {
        if self.violates(Violation::KeepCredit) {
            return;
        }
        let origin = message.origin;
        self.connections.close(message.connection);
        let node = self.parameters.node(origin) as usize;
        self.nodes[node].in_flight -= 1;
        self.bulk_out[origin as usize] -= self.bulk_bytes(message);
        for rank in std::mem::take(&mut self.nodes[node].starved) {
            self.wake(rank);
        }
        if std::mem::take(&mut self.starving[origin as usize]) {
            self.wake(origin);
        }
    }

    /// Sends a message at the calling CPU's time, or with the given `times`. The caller has checked
    /// that there is a credit.
    pub(super) fn send(&mut self, mut message: Message, op: Option<&Op>, times: Option<Times>) {
        message.connection = self.connections.open(message.origin, message.target);
        let node = self.parameters.node(message.origin) as usize;
        self.nodes[node].in_flight += 1;
        self.bulk_out[message.origin as usize] += self.bulk_bytes(&message);
        self.stats.messages += 1;
        let Message { origin, window, inlined, .. } = message;
        let id = self.messages.insert(message);
        self.stats.in_flight_max = self.stats.in_flight_max.max(self.messages.len());
        if let (Some(memory), Some(op)) = (&mut self.memory, op) {
            memory.attach(id, op);
            if inlined {
                memory.read_origin(id, origin);
            }
            self.record_event(window, origin, EventKind::Posted(*op));
            if inlined && message.purpose != Purpose::Get && message.purpose != Purpose::Fetch {
                self.record_event(window, origin, EventKind::Local(*op));
            }
        }
        match times {
            Some(times) => self.schedule_timed(id, times, !inlined),
            None => self.depart(id, self.clock),
        }
    }

    /// Schedules the events of a message whose times the caller has set. Handles those that are due
    /// now before it returns.
    fn schedule_timed(&mut self, id: u32, times: Times, leaves: bool) {
        let Times { left, lands, done } = times;
        let ends = !matches!(self.messages[id].purpose, Purpose::Signal(_));
        let stages = [
            (leaves, left, EventType::Left),
            (true, lands, EventType::Land),
            (ends, done, EventType::Done),
        ];
        for (_, at, stage) in stages.into_iter().filter(|(happens, ..)| *happens) {
            if at <= self.now {
                self.handle(stage, id);
            } else {
                self.push(at, stage, id, 0);
            }
        }
    }

    /// The nodes that a message leaves and reaches.
    fn nodes_of(&self, message: &Message) -> (usize, usize) {
        let (origin, target) = (
            self.parameters.node(message.origin) as usize,
            self.parameters.node(message.target) as usize,
        );
        if message.back { (target, origin) } else { (origin, target) }
    }

    fn is_bulk(&self, message: &Message) -> bool {
        message.path != Path::Shared && message.bytes > self.parameters.mtu
    }

    /// Bytes that a message occupies of its origin's bulk window.
    fn bulk_bytes(&self, message: &Message) -> u64 {
        let stores = matches!(message.purpose, Purpose::Put | Purpose::Accumulate);
        if stores && message.bytes > self.parameters.mtu { message.bytes } else { 0 }
    }

    /// How long a message occupies a node's port.
    fn busy(&self, node: usize, bytes: u64) -> Time {
        let wire = &self.parameters.wire;
        let busy = wire.serial(bytes).max(wire.gap);
        self.faults.as_ref().map_or(busy, |faults| faults.nic_time(node as u32, busy))
    }

    /// How long a message occupies the atomic unit of its target.
    fn unit_time(&self, message: &Message) -> Time {
        let unit = self.parameters.atomic_gap;
        match message.purpose {
            _ if message.back => 0,
            Purpose::Access(_, Atomic::Swap(_) | Atomic::Add(_) | Atomic::CompareSwap { .. }) => {
                unit
            }
            Purpose::Put | Purpose::Get if message.notification.is_some() => unit,
            Purpose::Accumulate | Purpose::Fetch => {
                unit + transfer_time(message.bytes, self.parameters.accumulate_byte_fs)
            }
            _ => 0,
        }
    }

    fn latency(&self, path: Path) -> Time {
        match path {
            Path::Shared => self.parameters.local.latency,
            Path::Loopback => self.parameters.loopback,
            Path::Wire => self.parameters.wire.latency,
        }
    }

    fn leaf(&self, node: usize) -> usize {
        self.parameters.tree.map_or(0, |tree| node / tree.nodes_per_leaf as usize)
    }

    fn extra_delay(&mut self) -> Time {
        let now = self.now;
        self.faults.as_mut().map_or(0, |faults| faults.delay(now))
    }

    /// Time from the effect of a message to its acknowledgement at the origin.
    fn return_time(&mut self, message: &Message) -> Time {
        let (from, to) = self.nodes_of(message);
        let hops = match self.parameters.tree {
            Some(tree) if self.leaf(from) != self.leaf(to) => 2 * tree.hop,
            _ => 0,
        };
        self.latency(message.path) + hops + self.extra_delay()
    }

    /// Reserves the port from which a message leaves, and schedules its next event. An answer
    /// leaves the node of the target.
    fn depart(&mut self, id: u32, ready: Time) {
        let message = self.messages[id];
        self.stats.bytes += message.bytes;
        let direction = self.connections.direction(&message);
        let number = direction.sent;
        direction.sent = direction.sent.wrapping_add(1);
        let ready = ready.max(direction.left);
        self.messages[id].number = number;
        let latency = self.latency(message.path) + self.extra_delay();
        if message.path == Path::Shared {
            let at = ready + self.parameters.local.serial(message.bytes) + latency;
            return self.push(at, EventType::Arrive, id, 0);
        }
        let (from, to) = self.nodes_of(&message);
        let (bulk, busy) = (self.is_bulk(&message), self.busy(from, message.bytes));
        let serial = self.parameters.wire.serial(message.bytes);
        let packet = self.parameters.wire.serial(self.parameters.mtu);
        let out = &mut self.nodes[from].out;
        let start = if bulk { out.bulk(ready, busy) } else { out.short(ready, busy, packet) };
        self.connections.direction(&message).left = start + serial;
        if !message.back
            && !message.inlined
            && (self.memory.is_some() || self.parameters.local_stage)
        {
            self.push(start + serial, EventType::Left, id, 0);
        }
        if self.leaf(from) != self.leaf(to) {
            self.push(start + latency / 2, EventType::Switch, id, 0);
        } else {
            self.push_arrival(id, &message, start + latency);
        }
    }

    /// Schedules the arrival of a message at the target's port, which its head reaches at `head`.
    fn push_arrival(&mut self, id: u32, message: &Message, head: Time) {
        if self.is_bulk(message) {
            self.push(head, EventType::Head, id, 0);
        } else {
            let serial = self.parameters.wire.serial(message.bytes);
            self.push(head + serial + self.unit_time(message), EventType::Arrive, id, 0);
        }
    }

    /// The head of a message reaches the first switch on the way to another leaf.
    fn switch(&mut self, id: u32) {
        let message = self.messages[id];
        let tree = self.parameters.tree.expect("only a tree has switches");
        let (from, to) = self.nodes_of(&message);
        let (bulk, busy) = (self.is_bulk(&message), self.parameters.wire.serial(message.bytes));
        let packet = self.parameters.wire.serial(self.parameters.mtu);
        let uplinks = tree.uplinks as usize;
        let route = to % uplinks;
        let mut pass = |leaf: usize, down: usize, ready: Time| {
            let link = &mut self.links[leaf * uplinks + route][down];
            if bulk { link.bulk(ready, busy) } else { link.short(ready, busy, packet) }
        };
        let leaves = [from, to].map(|node| node / tree.nodes_per_leaf as usize);
        let up = pass(leaves[0], 0, self.now);
        let down = pass(leaves[1], 1, up + tree.hop);
        let head = down + tree.hop + self.latency(message.path) / 2;
        self.push_arrival(id, &message, head);
    }

    /// True if all earlier messages of the connection have landing times. Otherwise parks the
    /// message.
    fn is_next(&mut self, id: u32) -> bool {
        let message = self.messages[id];
        let direction = self.connections.direction(&message);
        if message.number == direction.admitted {
            return true;
        }
        let messages = &self.messages;
        let is_later = |other: &u32| messages[*other].number.wrapping_sub(message.number) < 1 << 31;
        let at = direction.parked.partition_point(is_later);
        direction.parked.insert(at, id);
        false
    }

    /// Fixes the time at which the message lands: `at`, or just after its predecessor. Resumes a
    /// parked successor.
    fn schedule_landing(&mut self, id: u32, at: Time) -> Time {
        let direction = self.connections.direction(&self.messages[id]);
        direction.admitted = direction.admitted.wrapping_add(1);
        let at = at.max(direction.landed + 1);
        direction.landed = at;
        let (messages, admitted) = (&self.messages, direction.admitted);
        if let Some(next) = direction.parked.pop_if(|next| messages[*next].number == admitted) {
            let bulk = self.is_bulk(&self.messages[next]);
            self.push(self.now, if bulk { EventType::Head } else { EventType::Arrive }, next, 0);
        }
        at
    }

    /// The head of a bulk message reaches the target's port.
    fn head(&mut self, id: u32) {
        if !self.is_next(id) {
            return;
        }
        let message = self.messages[id];
        let (_, to) = self.nodes_of(&message);
        let busy = self.busy(to, message.bytes);
        let end =
            self.nodes[to].into.bulk(self.now, busy) + self.parameters.wire.serial(message.bytes);
        let at = self.through_unit(&message, end, self.unit_time(&message));
        let at = self.schedule_landing(id, at);
        let effect = message.purpose != Purpose::Put || message.notification.is_some();
        if !effect && self.memory.is_none() {
            // Nothing observes the effect of a put without bytes, so it needs no event.
            let at = at + self.return_time(&message);
            self.push(at, EventType::Done, id, 0);
        } else {
            self.push(at, EventType::Land, id, 0);
        }
    }

    /// The last byte of a short message reaches the target's port. `now` includes its time in the
    /// atomic unit.
    fn arrive(&mut self, id: u32) {
        if !self.is_next(id) {
            return;
        }
        let message = self.messages[id];
        let mut end = self.now;
        if message.path != Path::Shared {
            let (_, to) = self.nodes_of(&message);
            let lead = self.unit_time(&message);
            let serial = self.parameters.wire.serial(message.bytes);
            let packet = self.parameters.wire.serial(self.parameters.mtu);
            let busy = self.busy(to, message.bytes);
            let begun = self.now.saturating_sub(lead + serial);
            end = self.nodes[to].into.short(begun, busy, packet) + serial;
            end = self.through_unit(&message, end, lead).max(self.now);
        }
        let at = self.schedule_landing(id, end);
        if at > self.now {
            self.push(at, EventType::Land, id, 0);
        } else {
            self.land(id);
        }
    }

    /// Time at which a message that has arrived completely at `at` leaves the atomic unit of its
    /// target, which it occupies for `time`.
    fn through_unit(&mut self, message: &Message, at: Time, time: Time) -> Time {
        if time == 0 {
            return at;
        }
        let by_rank = self.parameters.atomics_by_rank;
        let unit = if by_rank { message.target } else { self.parameters.node(message.target) };
        let unit = &mut self.units[unit as usize];
        unit.busy += time;
        unit.free = at.max(unit.free) + time;
        unit.free
    }

    /// Applies the effect of a message.
    fn land(&mut self, id: u32) {
        let message = self.messages[id];
        if message.back {
            return self.done(id);
        }
        let Message { origin, target, window, .. } = message;
        match message.purpose {
            Purpose::Put | Purpose::Accumulate | Purpose::Get | Purpose::Fetch => {
                self.take_effect(id, &message);
                if let Some(notification) = message.notification {
                    self.deliver_notification(id, &message, notification);
                }
                let fetches = matches!(message.purpose, Purpose::Get | Purpose::Fetch);
                if fetches && message.value > SHORT_ANSWER && !message.timed {
                    let answer = &mut self.messages[id];
                    answer.back = true;
                    answer.bytes = message.value;
                    return self.depart(id, self.now);
                }
                let bytes = if fetches { self.parameters.wire.serial(message.value) } else { 0 };
                self.answer(id, &message, bytes);
            }
            Purpose::Signal(word) => {
                if !self.violates(Violation::LoseSignal(word)) {
                    self.raise(window, origin, target, word, message.value);
                }
                self.messages.remove(id);
                self.return_credit(&message);
            }
            Purpose::Access(word, access) => {
                let mut old = self.change(window, origin, target, word, access);
                if let (LockWord::Tail, Atomic::Swap(_)) = (word, access)
                    && self.violates(Violation::StaleTail)
                {
                    old = 0;
                }
                self.messages[id].value = old;
                self.answer(id, &message, self.parameters.wire.serial(8));
            }
            Purpose::Packet => {
                let packet = Packet { from: origin, value: message.value, acknowledged: false };
                self.deliver_packet(target, packet);
                self.answer(id, &message, 0);
            }
        }
    }

    fn deliver_packet(&mut self, to: u32, packet: Packet) {
        self.packets[to as usize].push_back(packet);
        self.wake(to);
    }

    /// Schedules the end of a message, by an acknowledgement or an answer whose bytes take
    /// `serial`.
    fn answer(&mut self, id: u32, message: &Message, serial: Time) {
        if !message.timed {
            let at = self.now + self.return_time(message) + serial;
            self.push(at, EventType::Done, id, 0);
        }
    }

    fn take_effect(&mut self, id: u32, message: &Message) {
        let atomic = matches!(message.purpose, Purpose::Accumulate | Purpose::Fetch);
        if atomic && self.delayed.is_none() && self.violates(Violation::DelayAccumulate) {
            self.delayed = Some(id);
            return;
        }
        let lost = message.purpose == Purpose::Put && self.violates(Violation::LosePut);
        let again =
            message.purpose == Purpose::Accumulate && self.violates(Violation::RepeatAccumulate);
        self.apply(id, message, if lost { 0 } else { 1 + u32::from(again) });
        let pair = |message: &Message| (message.origin, message.target, message.window);
        if let Some(late) =
            self.delayed.filter(|late| atomic && pair(&self.messages[*late]) == pair(message))
        {
            self.apply_delayed(late);
        }
    }

    fn deliver_notification(&mut self, id: u32, message: &Message, notification: Notification) {
        let (lose, repeat) = match notification.kind() {
            NotificationKind::Counter(_) => {
                (Violation::LoseNotification, Violation::RepeatNotification)
            }
            NotificationKind::Tag(_) => (Violation::LoseTagged, Violation::RepeatTagged),
        };
        let Message { window, origin, target, .. } = *message;
        let times = if self.violates(lose) { 0 } else { 1 + u32::from(self.violates(repeat)) };
        (0..times).for_each(|_| self.notify(window, origin, target, notification));
        if let Some(memory) = &self.memory {
            self.record_event(window, origin, EventKind::Notified(memory.op(id)));
        }
    }

    /// Raises a counter of the target, or delivers the tag.
    pub(super) fn notify(
        &mut self,
        window: u32,
        origin: u32,
        target: u32,
        notification: Notification,
    ) {
        match notification.kind() {
            NotificationKind::Counter(index) => self.words.notify(window, target, index),
            NotificationKind::Tag(tag) => {
                self.deliver_to(window, target).arrivals.push_back(Arrival { source: origin, tag });
            }
        }
        self.wake(target);
    }

    fn apply(&mut self, id: u32, message: &Message, times: u32) {
        let shaped = self.memory.as_ref().is_some_and(|memory| memory.is_shaped(id));
        let short = shaped && self.violates(Violation::CutShape);
        let Some(memory) = &mut self.memory else { return };
        let op = memory.apply(id, message.window, times, short);
        self.record_event(message.window, message.origin, EventKind::Effect(op));
    }

    /// Applies an operation that was delayed in violation of the contract.
    fn apply_delayed(&mut self, id: u32) {
        self.delayed = None;
        let message = self.messages[id];
        self.apply(id, &message, 1);
    }

    /// Delivers a signal.
    pub(super) fn raise(&mut self, window: u32, from: u32, to: u32, word: Word, value: u64) {
        let value = value + u64::from(self.violates(Violation::RaiseSignal(word)));
        self.record_event(window, from, EventKind::Seen { to, word, value });
        if self.words.raise(window, to, from, word, value) && !self.violates(Violation::LoseChange)
        {
            self.deliver_to(window, to).changes.push_back(Change::Signal(from, word));
        }
    }

    /// Accesses a lock word at its home. Returns the old value.
    pub(super) fn change(
        &mut self,
        window: u32,
        by: u32,
        home: u32,
        word: LockWord,
        access: Atomic,
    ) -> u64 {
        let old = self.words.access(window, home, word, access);
        self.record_event(window, by, EventKind::Accessed { home, word, access, old });
        if by != home
            && access != Atomic::Load
            && matches!(word, LockWord::Holders | LockWord::Intent | LockWord::Licensed)
        {
            // Ranks that wait for a lock poll these words. A rank polls its own without a message
            // whose answer would wake it.
            self.wake(home);
        }
        if let LockWord::Grant { target } = word
            && access != Atomic::Load
            && !self.violates(Violation::LoseChange)
        {
            self.deliver_to(window, home).changes.push_back(Change::LockGrant(target));
        }
        old
    }

    /// True if processors access the lock words of all ranks directly.
    pub(super) fn shares_lock_words(&self) -> bool {
        self.parameters.shared_lock_words && self.parameters.ranks_per_node >= self.ranks
    }

    /// Accesses a lock word in shared memory and wakes the ranks that may poll it. Returns the old
    /// value.
    pub(super) fn change_shared(
        &mut self,
        window: u32,
        by: u32,
        home: u32,
        word: LockWord,
        access: Atomic,
    ) -> u64 {
        let old = self.change(window, by, home, word, access);
        if access.applied_to(old) != old {
            (0..self.ranks).filter(|rank| *rank != by).for_each(|rank| self.wake(rank));
        }
        old
    }

    /// The last byte of an operation has left the origin.
    fn left(&mut self, id: u32) {
        let message = self.messages[id];
        if let Some(op) =
            self.memory.as_mut().and_then(|memory| memory.read_origin(id, message.origin))
            && message.purpose != Purpose::Fetch
        {
            self.record_event(message.window, message.origin, EventKind::Local(op));
        }
        let reported = self.parameters.local_stage && message.ticket != NO_TICKET;
        if reported && matches!(message.purpose, Purpose::Put | Purpose::Accumulate) {
            self.deliver_to(message.window, message.origin)
                .finished
                .push_back((Ticket(message.ticket), Stage::Local));
        }
    }

    /// A message is acknowledged or answered.
    fn done(&mut self, id: u32) {
        if self.delayed == Some(id) {
            self.apply_delayed(id);
        }
        let message = self.messages[id];
        let Message { origin, window, ticket, .. } = message;
        self.messages.remove(id);
        match message.purpose {
            Purpose::Access(..) if self.violates(Violation::LoseAnswer) => {}
            Purpose::Access(..) => {
                let answer = (LockTicket(ticket), message.value);
                self.deliver_to(window, origin).answers.push_back(answer);
            }
            Purpose::Packet => {
                let packet =
                    Packet { from: message.target, value: message.value, acknowledged: true };
                self.deliver_packet(origin, packet);
            }
            Purpose::Put | Purpose::Get | Purpose::Accumulate | Purpose::Fetch => {
                if let Some(op) =
                    self.memory.as_mut().and_then(|memory| memory.deliver_result(id, origin))
                    && matches!(message.purpose, Purpose::Get | Purpose::Fetch)
                {
                    self.record_event(window, origin, EventKind::Local(op));
                }
                if ticket != NO_TICKET {
                    let finished = (Ticket(ticket), Stage::Remote);
                    self.deliver_to(window, origin).finished.push_back(finished);
                }
            }
            Purpose::Signal(_) => unreachable!("signals are not acknowledged"),
        }
        self.return_credit(&message);
    }

    /// Handles an event of a message, or the wake-up of a rank that was refused.
    #[inline]
    pub(super) fn handle(&mut self, kind: EventType, subject: u32) {
        match kind {
            EventType::Switch => self.switch(subject),
            EventType::Head => self.head(subject),
            EventType::Arrive => self.arrive(subject),
            EventType::Land => self.land(subject),
            EventType::Left => self.left(subject),
            EventType::Done => self.done(subject),
            EventType::Nudge => {
                self.nudged[subject as usize] = false;
                self.wake(subject);
            }
            EventType::Alarm => unreachable!("alarms are the owner's"),
        }
    }
}
