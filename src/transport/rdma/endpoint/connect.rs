//! Connecting to the peers of a window, by handshakes through the host.

use std::collections::VecDeque;

use hashbrown::HashMap;

use super::super::context::{
    ConnectionError, ConnectionId, ConnectionState, HandshakeOutcome, QpStatus,
};
use super::super::device::DeviceError;
use super::control_words::OWN_BLOCK;
use super::{Endpoint, Handshake, RemoteAddress, RemoteWindow, Step, lock};
use crate::engine::Rank;

/// Handshake messages of a window.
#[derive(Debug, Default)]
pub(super) struct Handshakes {
    outgoing: VecDeque<(Rank, Handshake)>,
    /// Messages of peers that wait for a queue pair.
    deferred: VecDeque<(u32, Handshake)>,
    /// Addresses of a process's control words about a third one; `None`: requested.
    third_party: HashMap<(Rank, Rank), Option<RemoteAddress>>,
}

impl Handshakes {
    pub(super) fn are_done(&self) -> bool {
        self.outgoing.is_empty() && self.deferred.is_empty()
    }
}

impl Endpoint {
    /// The established connection to a peer, and the peer's part of the window. Otherwise starts to
    /// connect.
    #[inline]
    pub(super) fn connected(&mut self, index: u32) -> Option<(ConnectionId, RemoteWindow)> {
        let peer = &self.peers[index as usize];
        if let (Some(conn), Some(remote)) = (peer.conn, peer.remote)
            && lock(&self.context).connection_state(conn) == ConnectionState::Established
        {
            return Some((conn, remote));
        }
        if !peer.lost {
            self.connect(index);
        }
        None
    }

    #[cold]
    fn connect(&mut self, index: u32) {
        let peer = &self.peers[index as usize];
        if peer.rank == self.me {
            return self.connect_loopback(index);
        }
        let generation = match (peer.conn, peer.remote) {
            (Some(conn), Some(_)) => {
                let context = lock(&self.context);
                // Unless closed, it is about to be established, or has to be closed first.
                if context.connection_state(conn) != ConnectionState::Closed {
                    return;
                }
                context.qp_status(conn).generation
            }
            _ => Handshake::UNKNOWN,
        };
        if self.peers[index as usize].requested != Some(generation) {
            self.peers[index as usize].requested = Some(generation);
            self.send_handshake(index, Step::Request);
        }
    }

    fn connect_loopback(&mut self, index: u32) {
        let block = self.peers[index as usize].block;
        let (words, pair_words) = (self.words.address(OWN_BLOCK), self.words.address(block));
        let connected = lock(&self.context).loopback();
        match connected {
            Ok(None) => {}
            Ok(Some(conn)) => {
                let peer = &mut self.peers[index as usize];
                let (window, memory) = (self.window, self.memory);
                peer.conn = Some(conn);
                peer.remote = Some(RemoteWindow { window, memory, words, pair_words });
                self.by_connection.insert(conn, index);
            }
            Err(error) => self.lose(index, error.into()),
        }
    }

    /// The next message to be sent through the host.
    pub(in super::super) fn next_handshake(&mut self) -> Option<(Rank, Handshake)> {
        self.handshakes.outgoing.pop_front()
    }

    pub(super) fn send_handshake(&mut self, index: u32, step: Step) {
        let pair_words = self.words.address(self.peers[index as usize].block);
        self.send_handshake_about(index, step, pair_words, 0);
    }

    fn send_handshake_about(
        &mut self,
        index: u32,
        step: Step,
        pair_words: RemoteAddress,
        about: Rank,
    ) {
        let peer = &mut self.peers[index as usize];
        peer.replies_due += u32::from(step.expects_reply());
        let context = lock(&self.context);
        let unknown = QpStatus { generation: Handshake::UNKNOWN, number: 0, connected: false };
        let QpStatus { generation, number, connected } =
            peer.conn.map_or(unknown, |conn| context.qp_status(conn));
        let message = Handshake {
            step,
            process: context.process(),
            generation,
            qp_number: number,
            connected,
            address: context.address(),
            window: self.window,
            memory: self.memory,
            words: self.words.address(OWN_BLOCK),
            pair_words,
            flush_target: context.flush_target(),
            about,
        };
        self.handshakes.outgoing.push_back((peer.rank, message));
    }

    /// Handles a message of a peer.
    pub(in super::super) fn receive_handshake(&mut self, rank: Rank, message: &Handshake) {
        let index = self.peer(rank);
        let peer = &mut self.peers[index as usize];
        if !matches!(message.step, Step::Request | Step::LookupRequest) {
            peer.replies_due = peer.replies_due.saturating_sub(1);
        }
        match message.step {
            Step::LookupRequest if message.about >= self.ranks => {
                self.lose(index, ConnectionError::InvalidLookup);
                self.send_handshake(index, Step::Reject);
            }
            Step::LookupRequest => {
                // A process in the lock queue of `about` is a peer of it, so the block exists.
                let about = self.peer(message.about);
                let pair_words = self.words.address(self.peers[about as usize].block);
                self.send_handshake_about(index, Step::LookupReply, pair_words, message.about);
            }
            Step::LookupReply => {
                if let Some(known) = self.handshakes.third_party.get_mut(&(rank, message.about)) {
                    *known = Some(message.pair_words);
                }
            }
            _ => self.handle_handshake(index, message),
        }
    }

    /// Tries the messages again that wait for a queue pair.
    pub(super) fn retry_handshakes(&mut self) {
        for _ in 0..self.handshakes.deferred.len() {
            if let Some((index, message)) = self.handshakes.deferred.pop_front() {
                self.handle_handshake(index, &message);
            }
        }
    }

    /// Does what a message asks for, now or when there is a queue pair.
    fn handle_handshake(&mut self, index: u32, message: &Handshake) {
        if self.peers[index as usize].lost {
            if message.step.expects_reply() {
                self.send_handshake(index, Step::Reject);
            }
            return;
        }
        if message.step == Step::Reject {
            return self.lose(index, ConnectionError::Rejected);
        }
        let answer = match self.advance_connection(index, message) {
            Ok(HandshakeOutcome::Proceed) => Step::Reply,
            Ok(HandshakeOutcome::PeerFirst) => Step::Yield,
            Ok(HandshakeOutcome::Retry) => {
                return self.handshakes.deferred.push_back((index, *message));
            }
            Err(error) => {
                self.lose(index, error.into());
                return self.send_handshake(index, Step::Reject);
            }
        };
        let Handshake { window, memory, words, pair_words, .. } = *message;
        self.peers[index as usize].remote =
            Some(RemoteWindow { window, memory, words, pair_words });
        match message.step {
            Step::Request | Step::Yield => self.send_handshake(index, answer),
            Step::Reply => self.send_handshake(index, Step::Confirm),
            Step::Confirm => self.send_handshake(index, Step::Ready),
            _ => {}
        }
    }

    fn advance_connection(
        &mut self,
        index: u32,
        message: &Handshake,
    ) -> Result<HandshakeOutcome, DeviceError> {
        let mut context = lock(&self.context);
        let conn = context.connection_to(message.process);
        self.peers[index as usize].conn = Some(conn);
        self.by_connection.insert(conn, index);
        context.handle_handshake(conn, message)
    }

    /// Address of the block of control words that process `home` keeps for its pair with `target`,
    /// a third process. Requests it at the first call.
    pub(super) fn third_party_words(&mut self, home: Rank, target: Rank) -> Option<RemoteAddress> {
        if let Some(known) = self.handshakes.third_party.get(&(home, target)) {
            return *known;
        }
        self.handshakes.third_party.insert((home, target), None);
        let index = self.peer(home);
        self.send_handshake_about(index, Step::LookupRequest, RemoteAddress::default(), target);
        None
    }
}
