//! Connecting to the peers of a window, by handshakes through the host.

use std::collections::VecDeque;

use hashbrown::HashMap;

use super::super::context::{ConnectionError, ConnectionId, ConnectionState, HandshakeOutcome};
use super::super::handshake::{Handshake, QpStatus, RemoteAddress, RemoteWindow, Step};
use super::Endpoint;
use super::control_words::OWN_BLOCK;
use crate::engine::Rank;
use crate::transport::peers::PeerId;

/// Handshake messages of a window.
#[derive(Debug, Default)]
pub(super) struct Handshakes {
    outgoing: VecDeque<(Rank, Handshake)>,
    /// Messages of peers that need a queue pair which is not available yet.
    deferred: VecDeque<(PeerId, Handshake)>,
    /// Where a process (first key) keeps its control words for a third one (second key). `None` if
    /// that was requested.
    third_party: HashMap<(Rank, Rank), Option<RemoteAddress>>,
}

impl Handshakes {
    pub(super) fn are_done(&self) -> bool {
        self.outgoing.is_empty() && self.deferred.is_empty()
    }
}

impl Endpoint {
    /// The established connection to a peer, and the peer's part of the window. `None` if there is
    /// none yet; starts to connect then.
    #[inline]
    pub(super) fn connected(&mut self, id: PeerId) -> Option<(ConnectionId, RemoteWindow)> {
        let peer = self.peer(id);
        let is_lost = peer.lost;
        if let (Some(conn), Some(remote)) = (peer.conn, peer.remote)
            && self.context.borrow().connection_state(conn) == ConnectionState::Established
        {
            return Some((conn, remote));
        }
        if !is_lost {
            self.connect(id);
        }
        None
    }

    #[cold]
    fn connect(&mut self, id: PeerId) {
        if id.rank == self.me {
            return self.connect_loopback(id);
        }
        let peer = &self.peers[id.at()];
        let generation = match (peer.conn, peer.remote) {
            (Some(conn), Some(_)) => {
                let context = self.context.borrow();
                // A connection that is not closed is being established, or has to be closed first.
                if context.connection_state(conn) != ConnectionState::Closed {
                    return;
                }
                context.qp_status(conn).generation
            }
            _ => QpStatus::UNKNOWN.generation,
        };
        if self.peers[id.at()].requested != Some(generation) {
            self.peers[id.at()].requested = Some(generation);
            self.send_handshake(id, Step::Request);
        }
    }

    /// This process's part of the window, for a peer with this block of control words.
    fn own_part(&self, pair_words: RemoteAddress) -> RemoteWindow {
        let words = self.words.address(OWN_BLOCK);
        RemoteWindow { window: self.window, memory: self.memory, words, pair_words }
    }

    fn connect_loopback(&mut self, id: PeerId) {
        let block = self.block(id);
        let remote = self.own_part(self.words.address(block));
        let connected = self.context.borrow().loopback();
        match connected {
            Ok(None) => {}
            Ok(Some(conn)) => {
                let peer = &mut self.peers[id.at()];
                (peer.conn, peer.remote) = (Some(conn), Some(remote));
                self.by_connection.insert(conn, id);
            }
            Err(error) => self.lose(id, error.into()),
        }
    }

    /// The next handshake message to send through the host.
    pub fn next_handshake(&mut self) -> Option<(Rank, Handshake)> {
        self.handshakes.outgoing.pop_front()
    }

    pub(super) fn send_handshake(&mut self, peer: PeerId, step: Step) {
        let block = self.block(peer);
        self.send_handshake_about(peer, step, self.words.address(block), 0);
    }

    fn send_handshake_about(
        &mut self,
        id: PeerId,
        step: Step,
        pair_words: RemoteAddress,
        about: Rank,
    ) {
        let peer = self.peer(id);
        peer.replies_due += u32::from(step.expects_reply());
        let conn = peer.conn;
        let context = self.context.borrow();
        let message = Handshake {
            step,
            process: context.process,
            qp: conn.map_or(QpStatus::UNKNOWN, |conn| context.qp_status(conn)),
            address: context.address(),
            part: self.own_part(pair_words),
            flush_target: context.flush_target(),
            about,
        };
        self.handshakes.outgoing.push_back((id.rank, message));
    }

    /// Handles a handshake message of a peer. `about` is the process that a
    /// [`Step::LookupRequest`] asks about; `None` if the window has no such process.
    pub fn receive_handshake(&mut self, from: PeerId, message: &Handshake, about: Option<PeerId>) {
        let peer = self.peer(from);
        if !matches!(message.step, Step::Request | Step::LookupRequest) {
            peer.replies_due = peer.replies_due.saturating_sub(1);
        }
        match (message.step, about) {
            (Step::LookupRequest, None) => {
                self.lose(from, ConnectionError::InvalidLookup);
                self.send_handshake(from, Step::Reject);
            }
            (Step::LookupRequest, Some(about)) => {
                // This process is in the lock queue of `about`, so it has a block for that peer.
                let block = self.block(about);
                let pair_words = self.words.address(block);
                self.send_handshake_about(from, Step::LookupReply, pair_words, about.rank);
            }
            (Step::LookupReply, _) => {
                let known = self.handshakes.third_party.get_mut(&(from.rank, message.about));
                if let Some(known) = known {
                    *known = Some(message.part.pair_words);
                }
            }
            _ => self.handle_handshake(from, message),
        }
    }

    /// Handles deferred messages again.
    pub(super) fn retry_handshakes(&mut self) {
        for _ in 0..self.handshakes.deferred.len() {
            if let Some((peer, message)) = self.handshakes.deferred.pop_front() {
                self.handle_handshake(peer, &message);
            }
        }
    }

    /// Handles a message of the connection, now or when there is a queue pair.
    fn handle_handshake(&mut self, peer: PeerId, message: &Handshake) {
        if self.peers[peer.at()].lost {
            if message.step.expects_reply() {
                self.send_handshake(peer, Step::Reject);
            }
            return;
        }
        if message.step == Step::Reject {
            return self.lose(peer, ConnectionError::Rejected);
        }
        let conn = self.context.borrow().connection_to(message.process);
        self.peers[peer.at()].conn = Some(conn);
        self.by_connection.insert(conn, peer);
        let outcome = self.context.borrow().handle_handshake(conn, message);
        let answer = match outcome {
            Ok(HandshakeOutcome::Proceed) => Step::Reply,
            Ok(HandshakeOutcome::PeerFirst) => Step::Yield,
            Ok(HandshakeOutcome::Retry) => {
                return self.handshakes.deferred.push_back((peer, *message));
            }
            Err(error) => {
                self.lose(peer, error.into());
                return self.send_handshake(peer, Step::Reject);
            }
        };
        self.peers[peer.at()].remote = Some(message.part);
        match message.step {
            Step::Request | Step::Yield => self.send_handshake(peer, answer),
            Step::Reply => self.send_handshake(peer, Step::Confirm),
            Step::Confirm => self.send_handshake(peer, Step::Ready),
            _ => {}
        }
    }

    /// Address of the block of control words that process `home` keeps for its pair with `target`,
    /// a third process. The first call requests it; `None` until the reply arrives.
    pub(super) fn third_party_words(
        &mut self,
        home: PeerId,
        target: Rank,
    ) -> Option<RemoteAddress> {
        if let Some(known) = self.handshakes.third_party.get(&(home.rank, target)) {
            return *known;
        }
        self.handshakes.third_party.insert((home.rank, target), None);
        self.send_handshake_about(home, Step::LookupRequest, RemoteAddress::default(), target);
        None
    }
}
