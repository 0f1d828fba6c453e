//! Failed windows. A window fails when a message of a peer is refused, or a peer is lost. Waits for
//! this peer may then never end, and neither may waits for processes that wait for it. So the
//! window fails for all its processes.

use std::time::{Duration, Instant};

use super::Router;
use crate::engine::Rank;
use crate::transport::Proposal;
use crate::transport::am::wire::Malformed;
use crate::transport::am::{Failure, OutOfReach};
use crate::transport::peers::PeerId;

/// Time for which a failed window waits for its RDMA operations before it aborts their connections.
const QUIESCE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for which a failed window waits for an agreement of its processes.
const AGREEMENT_TIMEOUT: Duration = Duration::from_secs(5);

/// A message that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message of process {peer} of the window is refused: {reason}")]
pub struct Refused {
    /// Rank of the sender.
    pub peer: Rank,
    /// Why the message was refused.
    pub reason: Malformed,
}

impl Router {
    /// Fails the window because of a message of `peer`.
    #[cold]
    pub(super) fn fail(&mut self, peer: PeerId, failure: &Failure) {
        match *failure {
            Failure::Refused(reason) => self.refuse(peer.rank, reason),
            Failure::Lost(lost) => {
                let reporter = peer.rank;
                let lost = if lost == self.members.me() { reporter } else { lost };
                self.peer_lost(lost, &format!("reported by process {reporter}"));
            }
        }
    }

    /// Refuses a message and fails the window.
    #[cold]
    pub(super) fn refuse(&mut self, peer: Rank, reason: Malformed) {
        self.fail_window();
        let refused = Refused { peer, reason };
        log::error!("{refused}");
        self.refused.push_back(refused);
    }

    /// Fails the window because a peer cannot be reached any more.
    #[cold]
    pub(super) fn peer_lost(&mut self, rank: Rank, reason: &str) {
        let text = format!("process {rank} of the window cannot be reached any more: {reason}");
        log::error!("{text}");
        // Leaked once per failed window: error handlers may ask for the text at any time, so the
        // text of an error code lives as long as the process.
        self.lost.get_or_insert_with(|| (rank, text.leak()));
        let peer = self.peer(rank);
        self.am.lose(peer);
        self.fail_window();
    }

    /// Marks the window as failed and tells all peers that this process has contacted. With RDMA
    /// that includes the node-mates.
    #[cold]
    fn fail_window(&mut self) {
        if self.packets.endpoint.is_some() {
            for at in 0..self.members.count() {
                self.peer(self.members.window_rank(at));
            }
        }
        let (me, lost) = (self.members.me(), self.lost.map(|(rank, _)| rank));
        for peer in self.peers.all().filter(|peer| peer.rank != me) {
            self.am.fail(&mut self.packets, peer, lost);
        }
        self.peers.activate_all();
        self.packets.host.cancel_receives();
        self.broken = true;
        self.quiesce();
    }

    /// Ends a failed window for its users when nothing in flight can access their memory any more.
    /// Until then the device continues with posted requests, also to healthy peers. True if the
    /// window has just ended.
    #[cold]
    #[allow(clippy::disallowed_methods, reason = "only for the timeout of a failed window")]
    pub(super) fn quiesce(&mut self) -> bool {
        if let Some(endpoint) = &mut self.packets.endpoint
            && !endpoint.quiesce()
        {
            // Connections to dead processes fail by themselves. A connection to a live peer that
            // posts no receives may not.
            if self.failed_since.get_or_insert_with(Instant::now).elapsed() < QUIESCE_TIMEOUT {
                return false;
            }
            endpoint.abort();
        }
        !std::mem::replace(&mut self.ended, true)
    }

    /// Abandons an agreement of a failed window after a time. Processes that have not noticed the
    /// failure may be waiting for the agreement, too, so all processes are told.
    #[cold]
    #[allow(clippy::disallowed_methods, reason = "only for the timeout of a failed window")]
    pub(super) fn abandon_agreement(&mut self) -> Option<Proposal> {
        if self.agrees_since.get_or_insert_with(Instant::now).elapsed() < AGREEMENT_TIMEOUT {
            return None;
        }
        log::warn!("some processes of a failed window were not heard of in time");
        let (me, lost) = (self.members.me(), self.lost.map(|(rank, _)| rank));
        for rank in (0..self.members.size()).filter(|rank| *rank != me) {
            let peer = self.peer(rank);
            self.am.fail(&mut self.packets, peer, lost);
        }
        Some(Proposal::Abandoned)
    }

    /// The next refused message.
    pub fn next_refused(&mut self) -> Option<Refused> {
        self.refused.pop_front()
    }

    /// As [`Protocol::take_fault`](crate::transport::am::Protocol::take_fault).
    #[inline]
    pub fn take_fault(&mut self, target: Option<Rank>) -> Option<OutOfReach> {
        self.am.take_fault(target)
    }

    /// Whether the window has failed and ended: operations in flight never complete, and none of
    /// them accesses memory any more.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.ended
    }

    /// The first peer that cannot be reached any more, and why.
    #[must_use]
    pub fn lost(&self) -> Option<(Rank, &'static str)> {
        self.lost
    }
}
