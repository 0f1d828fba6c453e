//! The engine's port of a routed window. For each target it chooses shared memory, RDMA or active
//! messages.
//!
//! Packets use the same queue pairs as RDMA operations, so they stay ordered behind those. The
//! reverse does not hold: an RDMA operation may take effect before the target's process handles an
//! earlier packet. So whatever must follow an active message is an active message itself.

use super::Router;
use super::here::{next_shm_arrival, word_in_segment};
use crate::engine::{
    Answer, Arrival, Atomic, LockMemory, LockTicket, LockWord, NoResource, NotificationKind, Op,
    OpKind, Port, Posted, Rank, Stage, Ticket, Word,
};
use crate::transport::am::target::Target;
use crate::transport::peers::PeerId;

impl Router {
    /// Posts an operation to a peer of another node; `None` if it must be an active message.
    #[inline]
    pub(super) fn post_by_rdma(&mut self, peer: PeerId, op: &Op, ticket: Ticket) -> Option<Posted> {
        let may_take = self.packets.endpoint.as_ref()?.may_take(op);
        if may_take && !self.am.is_free(peer) {
            return Some(Posted::NoResource);
        }
        if let Some(notification) = op.notification {
            // A put carries the number of a counter, unless it must follow an active message.
            let immediate = op.kind == OpKind::Put
                && matches!(notification.kind(), NotificationKind::Counter(_))
                && self.am.is_done(peer);
            match op.len {
                _ if immediate => {}
                0 => return None,
                _ => return self.post_apart(peer, op, ticket),
            }
        }
        let endpoint = self.packets.endpoint.as_mut()?;
        if !matches!(op.kind, OpKind::Put | OpKind::Get) {
            return endpoint.post_atomic(peer, op, ticket);
        }
        let Some(shaped) = op.shape else { return endpoint.post(peer, op, ticket) };
        let shape = self.shapes.get(shaped);
        let posted = match shape.as_single_run(op) {
            Some(single) => endpoint.post(peer, &single, ticket)?,
            None => endpoint.post_shaped(peer, op, shape, ticket)?,
        };
        if posted != Posted::NoResource {
            drop(self.shapes.take(shaped));
        }
        Some(posted)
    }

    /// Posts an accumulate to this process or a node-mate as device atomics; `None` if a processor
    /// applies it.
    #[inline]
    pub(super) fn post_to_mate_by_rdma(&mut self, op: &Op, ticket: Ticket) -> Option<Posted> {
        let endpoint = self.packets.endpoint.as_mut()?;
        let offloads = endpoint.offloads(op);
        if op.notification.is_none() && !offloads {
            return None;
        }
        let peer = self.peer(op.target);
        let endpoint = self.packets.endpoint.as_mut()?;
        // A notification is a store by the processor, and would overtake accumulates that are in
        // flight in the device.
        if op.notification.is_some() && endpoint.has_accumulates_in_flight(peer) {
            return Some(Posted::NoResource);
        }
        let mate = self.members.shm_rank(op.target);
        match op.notification {
            _ if !offloads => None,
            _ if self.broken => Some(Posted::NoResource),
            // The device would overtake what the channel to the mate still holds.
            _ if mate.is_some_and(|mate| !self.shm.is_free(mate)) => Some(Posted::NoResource),
            Some(_) => self.post_apart(peer, op, ticket),
            None => endpoint.post_atomic(peer, op, ticket),
        }
    }

    /// Posts an operation whose data travel by RDMA and whose notification travels apart. `None` if
    /// the data must be an active message.
    fn post_apart(&mut self, peer: PeerId, op: &Op, ticket: Ticket) -> Option<Posted> {
        let notification = op.notification?;
        let data = Op { notification: None, ..*op };
        let posted = self.post_by_rdma(peer, &data, ticket)?;
        if posted != Posted::NoResource {
            self.in_two_parts.insert(ticket, op.kind != OpKind::Put && posted == Posted::Pending);
            self.post_owed(Op::notify(op.target, notification), ticket);
        }
        Some(posted)
    }

    /// Posts an owed notification, or leaves it to the next poll.
    pub(super) fn post_owed(&mut self, notification: Op, ticket: Ticket) {
        match self.post(&notification, ticket) {
            Posted::NoResource => self.owed.push_back((notification, ticket)),
            Posted::Complete => {
                let whole = self.whole((ticket, Stage::Remote), false);
                self.finished.extend(whole);
            }
            Posted::Local | Posted::Pending => {}
        }
    }

    /// Whether a notification to `rank` is owed.
    #[inline]
    pub(super) fn owes_notification(&self, rank: Rank) -> bool {
        !self.owed.is_empty() && self.owed.iter().any(|(op, _)| op.target == rank)
    }

    /// The other process of the pair, if a lock word belongs to a pair.
    fn pair_of(&mut self, word: LockWord) -> Option<PeerId> {
        match word {
            LockWord::Next { target, .. } | LockWord::Grant { target } => Some(self.peer(target)),
            _ => None,
        }
    }

    fn access_here(&mut self, word: LockWord, access: Atomic) -> u64 {
        let (mut here, am, _) = self.here();
        here.access(am, word, access)
    }
}

impl LockMemory for Router {
    fn atomic(&mut self, home: Rank, word: LockWord, access: Atomic, ticket: LockTicket) -> Answer {
        if self.nic_locks {
            let (home, pair) = (self.peer(home), self.pair_of(word));
            return match &mut self.packets.endpoint {
                Some(endpoint) if !self.broken => {
                    endpoint.atomic(home, (word, pair), access, ticket)
                }
                _ => Answer::NoResource,
            };
        }
        if home == self.members.me() {
            return Answer::Now(self.access_here(word, access));
        }
        // [LK-7] Only the home and name of a word decide whether it lies in the segment.
        if let Some(home) = self.members.shm_rank(home)
            && let Some(word) = word_in_segment(&self.members, word)
        {
            return self.shm.atomic(home, word, access, ticket);
        }
        let home = self.peer(home);
        if self.broken || self.am.access(&mut self.packets, home, (word, access), ticket).is_err() {
            return Answer::NoResource;
        }
        self.peers.activate(home);
        Answer::Later
    }

    fn look(&mut self, word: LockWord) -> u64 {
        if self.nic_locks {
            let pair = self.pair_of(word);
            if let Some(endpoint) = &mut self.packets.endpoint {
                return endpoint.read_lock_word(word, pair);
            }
        }
        self.access_here(word, Atomic::Load)
    }
}

impl Port for Router {
    #[inline]
    fn signals_follow(&self, peer: Rank) -> bool {
        self.members.shm_rank(peer).is_none()
            && self.endpoint().is_none_or(|endpoint| endpoint.signals_follow(peer))
    }

    #[inline]
    fn post(&mut self, op: &Op, ticket: Ticket) -> Posted {
        if op.notification.is_some() && self.owes_notification(op.target) {
            return Posted::NoResource;
        }
        if let Some(target) = self.members.shm_rank(op.target) {
            if let Some(posted) = self.post_to_mate_by_rdma(op, ticket) {
                return posted;
            }
            return self.shm.post(&Op { target, ..*op }, ticket);
        }
        if self.broken {
            return Posted::NoResource;
        }
        let peer = self.peer(op.target);
        self.peers.activate(peer);
        self.post_by_rdma(peer, op, ticket)
            .unwrap_or_else(|| self.am.post(&mut self.packets, peer, op, &mut self.shapes, ticket))
    }

    fn order(&mut self, target: Rank) -> Result<(), NoResource> {
        if self.owes_notification(target) {
            return Err(NoResource);
        }
        if let Some(mate) = self.members.shm_rank(target) {
            // A store by the processor would overtake accumulates that are in flight in the device.
            let known = self.peers.recall(target);
            let in_flight = self.endpoint().zip(known);
            if in_flight.is_some_and(|(rdma, peer)| rdma.has_accumulates_in_flight(peer)) {
                return Err(NoResource);
            }
            return self.shm.order(mate);
        }
        let peer = self.peer(target);
        self.am.order(peer)?;
        self.packets.endpoint.as_mut().map_or(Ok(()), |endpoint| endpoint.order(peer))
    }

    fn signal(&mut self, peer: Rank, word: Word, value: u64) -> Result<(), NoResource> {
        if let Some(peer) = self.members.shm_rank(peer) {
            return self.shm.signal(peer, word, value);
        }
        if self.broken || self.owes_notification(peer) {
            return Err(NoResource);
        }
        let peer = self.peer(peer);
        // A signal by RDMA would overtake active messages that are not done.
        if let Some(endpoint) = &mut self.packets.endpoint
            && endpoint.reaches(peer.rank)
            && self.am.is_done(peer)
        {
            return endpoint.signal(peer, word, value);
        }
        self.peers.activate(peer);
        self.am.signal(&mut self.packets, peer, word, value)
    }

    fn observe(&mut self, peer: Rank, word: Word) -> u64 {
        if let Some(peer) = self.members.shm_rank(peer) {
            return self.shm.observe(peer, word);
        }
        let Some(peer) = self.peers.recall(peer) else { return 0 };
        let by_rdma = self.endpoint().map_or(0, |endpoint| endpoint.observe(peer, word));
        self.am.observe(peer, word).max(by_rdma)
    }

    #[inline]
    fn counter(&mut self, index: u32) -> u64 {
        self.shm.counter(index)
    }

    fn next_arrival(&mut self) -> Option<Arrival> {
        self.arrivals.pop_front().or_else(|| next_shm_arrival(&mut self.shm, &self.members))
    }

    fn poll(&mut self) -> bool {
        let moved = self.shm.poll();
        self.poll_network() | moved
    }

    fn next_finished(&mut self) -> Option<(Ticket, Stage)> {
        while let Some(done) = self.am.next_finished() {
            if let Some(whole) = self.whole(done, false) {
                return Some(whole);
            }
        }
        while let Some(done) = self.packets.endpoint.as_mut().and_then(|rdma| rdma.next_finished())
        {
            if let Some(whole) = self.whole(done, true) {
                return Some(whole);
            }
        }
        self.finished.pop_front().or_else(|| self.shm.next_finished())
    }

    fn next_failed(&mut self) -> Option<Ticket> {
        self.am.next_failed()
    }

    fn next_answer(&mut self) -> Option<(LockTicket, u64)> {
        let by_rdma = self.packets.endpoint.as_mut().and_then(|endpoint| endpoint.next_answer());
        by_rdma.or_else(|| self.am.next_answer())
    }
}
