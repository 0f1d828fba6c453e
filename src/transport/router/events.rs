//! Handles the reports of the window's RDMA endpoint, if it has one.

use super::Router;
use crate::engine::{Rank, Stage, Ticket};
use crate::transport::am::wire::Malformed;
use crate::transport::rdma::Endpoint;

impl Router {
    /// The stage of a whole operation, after active messages or RDMA have reported a stage of a
    /// part. `None` while the other part is in flight.
    #[inline]
    pub(super) fn whole(
        &mut self,
        (ticket, stage): (Ticket, Stage),
        by_rdma: bool,
    ) -> Option<(Ticket, Stage)> {
        if stage == Stage::Local || self.in_two_parts.is_empty() {
            return Some((ticket, stage));
        }
        match self.in_two_parts.remove(&ticket) {
            None => Some((ticket, stage)),
            // The result is in place; the notification is in flight.
            Some(true) if by_rdma => Some((ticket, Stage::Local)),
            Some(_) => None,
        }
    }

    /// Whether device atomics to `rank` are in flight.
    #[inline]
    pub(super) fn has_rdma_accumulates(&self, rank: Rank) -> bool {
        self.endpoint().is_some_and(|endpoint| {
            self.peers.find(rank).is_some_and(|peer| endpoint.has_accumulates_in_flight(peer))
        })
    }

    /// Polls the completion queue, at most `polls` times, until it has an entry, and raises the
    /// counters of RDMA notifications. True if it had one: then operations may be finished. Does
    /// nothing without RDMA.
    #[inline]
    pub fn poll_completions(&mut self, polls: u32) -> bool {
        let Some(endpoint) = &mut self.packets.endpoint else { return false };
        let any = (0..polls).any(|_| endpoint.poll_completions());
        if any {
            self.take_rdma_notifications();
        }
        any
    }

    /// Polls only the completion queue, and raises the counters of RDMA notifications. False if a
    /// full poll may find more: there was a completion, or the window has no RDMA.
    #[inline]
    pub fn poll_notifications(&mut self) -> bool {
        self.endpoint().is_some() && !self.poll_completions(1)
    }

    /// Posts owed notifications, and handles the endpoint's notifications and lost peers. True if
    /// it reported any.
    pub(super) fn take_rdma_events(&mut self) -> bool {
        if self.packets.endpoint.is_none() {
            return false;
        }
        for _ in 0..self.owed.len() {
            if let Some((notification, ticket)) = self.owed.pop_front() {
                self.post_owed(notification, ticket);
            }
        }
        let mut moved = self.take_rdma_notifications();
        while let Some((peer, reason)) =
            self.packets.endpoint.as_mut().and_then(Endpoint::next_lost)
        {
            moved = true;
            self.peer_lost(peer.rank, &reason.to_string());
        }
        moved
    }

    /// Raises the counters that peers have notified by RDMA. True if there was any.
    fn take_rdma_notifications(&mut self) -> bool {
        let mut moved = false;
        while let Some((peer, counter)) =
            self.packets.endpoint.as_mut().and_then(Endpoint::next_notification)
        {
            moved = true;
            if counter < self.shm.counters_of(self.members.own_segment_rank()) {
                self.shm.notify_here(counter);
            } else {
                self.refuse(peer.rank, Malformed::UnknownCounter);
            }
        }
        moved
    }

    /// Probes the connections to all peers during a long wait. Returns their state for the log;
    /// empty without RDMA and in a failed window.
    #[cold]
    pub fn probe(&mut self) -> String {
        let Some(endpoint) = self.packets.endpoint.as_mut().filter(|_| !self.broken) else {
            return String::new();
        };
        endpoint.probe();
        endpoint.describe_connections()
    }
}
