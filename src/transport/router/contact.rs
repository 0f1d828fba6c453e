//! What arrives for a window that waits for nothing else.
//!
//! A full poll of a window looks at all that may move it. For a window that only serves its peers,
//! or only awaits acknowledgements, that takes several times as long as handling the packet.

use super::{PACKETS_PER_POLL, Router};
use crate::engine::Rank;

impl Router {
    /// Handles packets that have arrived, and answers them. True if that is all there is to do, and
    /// no epoch, lock or notification can depend on what has arrived. Otherwise a full poll must
    /// follow.
    pub fn serve_packets(&mut self) -> bool {
        if self.packets.endpoint.is_some() || self.broken || !self.taken.is_empty() {
            return false;
        }
        for _ in 0..PACKETS_PER_POLL {
            let Some((rank, packet)) = self.packets.host.receive() else { break };
            let peer = self.peer(rank);
            let (mut here, am, packets) = self.here();
            let received = am.receive(packets, &mut here, peer, &packet.bytes);
            self.packets.recycle(packet);
            if self.am.has_work(peer) {
                self.peers.activate(peer);
            }
            if let Err(failure) = received {
                self.fail(peer, &failure);
                return false;
            }
        }
        if !self.peers.are_idle() {
            self.drive_peers(false);
        }
        !self.am.take_news() && self.peers.are_idle() && self.packets.host.is_idle()
    }

    /// Sends what waits to be sent, in a window that rested, or was idle, before operations were
    /// posted by messages. False: a full poll must follow.
    pub fn sends(&mut self) -> bool {
        self.drive_peers(false);
        !self.broken && !self.am.has_finished()
    }

    /// Whether an operation to this rank leaves as a message, and nothing else of it waits.
    #[inline]
    #[must_use]
    pub fn goes_by_message(&self, target: Rank) -> bool {
        self.packets.endpoint.is_none() && !self.broken && self.members.shm_rank(target).is_none()
    }

    /// Sends what waits to be sent, if nothing else is to be done for this window until something
    /// arrives. False: a full poll must follow.
    pub fn only_sends(&mut self) -> bool {
        let rests = self.packets.endpoint.is_none()
            && !self.broken
            && self.taken.is_empty()
            && self.arrivals.is_empty()
            && self.finished.is_empty()
            && !self.am.awaits_answers()
            && !self.am.has_finished()
            && self.packets.host.is_idle()
            && !self.shm.has_operations()
            && !self.shm.has_work();
        if rests && !self.peers.are_idle() {
            self.drive_peers(false);
        }
        rests && !self.am.has_finished()
    }
}
