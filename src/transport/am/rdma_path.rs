//! The RDMA path: operations, signals and lock words that bypass active messages, where the channel
//! has an RDMA endpoint.
//!
//! Packets use the same queue pairs, so they stay ordered behind RDMA operations. The reverse does
//! not hold: a packet arrives before the target's process has handled it. So whatever must follow
//! operations that are active messages is an active message itself.

use std::time::{Duration, Instant};

use super::MessageWindow;
use super::channel::Channel;
use super::origin::as_single_run;
use super::wire::Malformed;
use crate::engine::{
    Answer, Atomic, LockTicket, LockWord, NoResource, NotificationKind, Op, OpKind, Port, Posted,
    Rank, Stage, Ticket, Word,
};
use crate::transport::rdma::Endpoint;

/// How long a failed window waits for its RDMA operations before it fails their connections.
const QUIESCE_TIMEOUT: Duration = Duration::from_secs(10);

impl<C: Channel + ?Sized> MessageWindow<C> {
    /// Whether all operations that were posted to a peer as active messages are done there.
    fn has_no_messages(&mut self, peer: Rank) -> bool {
        let index = self.peer_index(peer);
        let peer = &self.peers[index as usize];
        peer.issued == peer.done && peer.fragmented.is_none()
    }

    /// Posts an operation by RDMA; `None` if it must be an active message.
    #[inline]
    pub(super) fn post_rdma(&mut self, op: &Op, ticket: Ticket) -> Option<Posted> {
        self.channel.endpoint()?;
        if self.broken {
            return Some(Posted::NoResource);
        }
        if let Some(notification) = op.notification {
            // A put carries the number of a counter, unless a message is to come before.
            let immediate = op.kind == OpKind::Put
                && matches!(notification.kind(), NotificationKind::Counter(_))
                && self.has_no_messages(op.target);
            match op.len {
                _ if immediate => {}
                0 => return None,
                _ => return self.post_apart(op, ticket),
            }
        }
        if !matches!(op.kind, OpKind::Put | OpKind::Get) {
            return self.post_rdma_atomic(op, ticket);
        }
        let endpoint = self.channel.endpoint_mut()?;
        let Some(shaped) = op.shape else { return endpoint.post(op, ticket) };
        let shape = self.shapes.get(shaped);
        let posted = match as_single_run(op, shape) {
            Some(single) => endpoint.post(&Op { shape: None, ..single }, ticket)?,
            None => endpoint.post_shaped(op, shape, ticket)?,
        };
        if posted != Posted::NoResource {
            drop(self.shapes.take(shaped));
        }
        Some(posted)
    }

    /// Posts an operation whose data travel by RDMA and whose notification does not travel in the
    /// same request. `None`: the data are no matter of RDMA.
    fn post_apart(&mut self, op: &Op, ticket: Ticket) -> Option<Posted> {
        let notification = op.notification?;
        let data = Op { notification: None, ..*op };
        let posted = match self.members.shm_rank(op.target) {
            Some(_) => self.post_rdma_atomic(&data, ticket)?,
            None => self.post_rdma(&data, ticket)?,
        };
        if posted != Posted::NoResource {
            self.in_two_parts.insert(ticket, op.kind != OpKind::Put && posted == Posted::Pending);
            self.post_owed(Op::notify(op.target, notification), ticket);
        }
        Some(posted)
    }

    /// Posts the notification of an operation whose data were posted, or leaves it to the next
    /// poll.
    fn post_owed(&mut self, notification: Op, ticket: Ticket) {
        match self.post(&notification, ticket) {
            Posted::NoResource => self.owed.push_back((notification, ticket)),
            Posted::Complete => self.part_done(ticket),
            Posted::Local | Posted::Pending => {}
        }
    }

    /// Whether the data of an operation to `rank` were posted and its notification was not.
    #[inline]
    pub(super) fn owes_notification(&self, rank: Rank) -> bool {
        !self.owed.is_empty() && self.owed.iter().any(|(op, _)| op.target == rank)
    }

    /// An operation is complete at its target, or the first of its two parts.
    pub(super) fn part_done(&mut self, ticket: Ticket) {
        if self.in_two_parts.is_empty() || self.in_two_parts.remove(&ticket).is_none() {
            self.finished.push_back((ticket, Stage::Remote));
        }
    }

    /// Posts an accumulate to any process, this one included, as device atomics; `None` if the
    /// target's processor does it.
    #[inline]
    pub(super) fn post_rdma_atomic(&mut self, op: &Op, ticket: Ticket) -> Option<Posted> {
        if !matches!(op.kind, OpKind::Accumulate | OpKind::GetAccumulate | OpKind::CompareAndSwap) {
            return None;
        }
        if op.notification.is_some() {
            return self.post_apart(op, ticket);
        }
        let endpoint = self.channel.endpoint_mut().filter(|endpoint| endpoint.offloads(op))?;
        if self.broken { Some(Posted::NoResource) } else { endpoint.post_atomic(op, ticket) }
    }

    /// Whether a notification to a node-mate or to this process must wait: it is a store by the
    /// processor, and would overtake accumulates that are in flight in the device.
    #[inline]
    pub(super) fn must_follow_rdma(&self, op: &Op) -> bool {
        op.notification.is_some() && self.has_rdma_accumulates(op.target)
    }

    /// Whether device atomics to `rank` are in flight.
    #[inline]
    pub(super) fn has_rdma_accumulates(&self, rank: Rank) -> bool {
        self.channel.endpoint().is_some_and(|endpoint| endpoint.has_accumulates_in_flight(rank))
    }

    /// Writes a signal word of a peer by RDMA; `None` if the signal must be an active message.
    #[inline]
    pub(super) fn signal_rdma(
        &mut self,
        peer: Rank,
        word: Word,
        value: u64,
    ) -> Option<Result<(), NoResource>> {
        if !self.channel.endpoint()?.reaches(peer) || self.broken || !self.has_no_messages(peer) {
            return None;
        }
        Some(self.channel.endpoint_mut()?.signal(peer, word, value))
    }

    /// The signal word that a peer has written by RDMA.
    #[inline]
    pub(super) fn observe_rdma(&mut self, peer: Rank, word: Word) -> u64 {
        self.channel.endpoint_mut().map_or(0, |endpoint| endpoint.observe(peer, word))
    }

    /// Accesses a lock word by device atomics, if the window uses them for lock words [LK-7].
    #[inline]
    pub(super) fn access_lock_word_rdma(
        &mut self,
        home: Rank,
        word: LockWord,
        access: Atomic,
        ticket: LockTicket,
    ) -> Option<Answer> {
        let endpoint = self.channel.endpoint_mut().filter(|endpoint| endpoint.serves_locks())?;
        Some(if self.broken {
            Answer::NoResource
        } else {
            endpoint.atomic(home, word, access, ticket)
        })
    }

    /// Reads a lock word of this process, if device atomics access them.
    #[inline]
    pub(super) fn read_lock_word_rdma(&mut self, word: LockWord) -> Option<u64> {
        let endpoint = self.channel.endpoint_mut().filter(|endpoint| endpoint.serves_locks())?;
        Some(endpoint.read_lock_word(word))
    }

    /// Polls the completion queue a few times, until it has an entry. Returns at once without RDMA.
    #[inline]
    pub fn spin_briefly(&self) {
        const POLLS: u32 = 8;
        if let Some(endpoint) = self.channel.endpoint() {
            let _ = (0..POLLS).any(|_| endpoint.has_completions());
        }
    }

    /// Polls the completion queue only, and raises the counters of RDMA notifications. False if
    /// there was a completion, or if only a full poll can find anything (no RDMA).
    #[inline]
    pub fn poll_notifications(&mut self) -> bool {
        let Some(endpoint) = self.channel.endpoint_mut() else { return false };
        if !endpoint.poll_completions() {
            return true;
        }
        self.take_rdma_notifications();
        false
    }

    /// Handles completions, answers, notifications and lost peers of the endpoint. True if any.
    pub(super) fn take_rdma_events(&mut self) -> bool {
        let Some(endpoint) = self.channel.endpoint_mut() else { return false };
        let before = self.answers.len();
        self.answers.extend(std::iter::from_fn(|| endpoint.next_answer()));
        let mut moved = self.answers.len() > before;
        while let Some((ticket, stage)) =
            self.channel.endpoint_mut().and_then(Endpoint::next_finished)
        {
            moved = true;
            match stage {
                Stage::Local => self.finished.push_back((ticket, stage)),
                Stage::Remote => {
                    if self.in_two_parts.get(&ticket) == Some(&true) {
                        // The result is in place: of the two parts, only the data report here
                        // first.
                        self.finished.push_back((ticket, Stage::Local));
                    }
                    self.part_done(ticket);
                }
            }
        }
        for _ in 0..self.owed.len() {
            if let Some((notification, ticket)) = self.owed.pop_front() {
                self.post_owed(notification, ticket);
            }
        }
        moved |= self.take_rdma_notifications();
        while let Some((peer, reason)) = self.channel.endpoint_mut().and_then(Endpoint::next_lost) {
            moved = true;
            self.peer_lost(peer, &reason.to_string());
        }
        moved
    }

    /// Raises the counters of this process that peers have notified by RDMA. True if any.
    fn take_rdma_notifications(&mut self) -> bool {
        let mut moved = false;
        while let Some((peer, counter)) =
            self.channel.endpoint_mut().and_then(Endpoint::next_notification)
        {
            moved = true;
            if counter < self.shm.counters_of(self.members.own_segment_rank()) {
                self.shm.notify_here(counter);
            } else {
                self.refuse(peer, Malformed::UnknownCounter);
            }
        }
        moved
    }

    /// Probes the peers' connections in a long wait. Returns their state for the log; empty without
    /// RDMA or in a failed window.
    #[cold]
    pub fn probe(&mut self) -> String {
        let Some(endpoint) = self.channel.endpoint_mut().filter(|_| !self.broken) else {
            return String::new();
        };
        endpoint.probe();
        endpoint.describe_connections()
    }

    /// Ends a failed window for its users once nothing in flight can access their memory any more:
    /// the device continues with posted requests, also to healthy peers. True if it just ended.
    #[cold]
    #[allow(clippy::disallowed_methods, reason = "only for the timeout of a failed window")]
    pub(super) fn quiesce(&mut self) -> bool {
        if let Some(endpoint) = self.channel.endpoint_mut()
            && !endpoint.quiesce()
        {
            // Connections to dead processes fail by themselves. Those to a live peer that posts no
            // receives may not.
            if self.failed_since.get_or_insert_with(Instant::now).elapsed() < QUIESCE_TIMEOUT {
                return false;
            }
            endpoint.abort();
        }
        !std::mem::replace(&mut self.ended, true)
    }

    /// Fails the window because a peer cannot be reached any more.
    #[cold]
    pub(super) fn peer_lost(&mut self, peer: Rank, reason: &str) {
        let text = format!("process {peer} of the window cannot be reached any more: {reason}");
        log::error!("{text}");
        // Leaked once per failed window: error handlers may ask for the text at any time, and the
        // texts of error codes live as long as the process.
        self.lost.get_or_insert_with(|| (peer, text.leak()));
        let index = self.peer_index(peer);
        self.peers[index as usize].failed = true;
        self.fail_window();
    }
}
