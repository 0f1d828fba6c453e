//! How a window finds its peers' queues, memory and words: by hellos, which are messages of the
//! host.

use super::super::context::{ConnectionState, HandshakeOutcome, QpStatus, WindowEvent};
use super::super::device::DeviceError;
use super::super::handshake::{Handshake, RemoteAddress, Step};
use super::control_words::OWN_BLOCK;
use super::{Endpoint, RemoteWindow, lock};
use crate::engine::Rank;

impl Endpoint {
    /// The connected queue to a peer, and what it has said. Contact is made if there was none.
    #[inline]
    pub(in crate::transport::rdma) fn reach(&mut self, index: u32) -> Option<(u32, RemoteWindow)> {
        let peer = &self.peers[index as usize];
        if let (Some(conn), Some(remote)) = (peer.conn, peer.remote)
            && *lock(&self.context).connection_state(conn) == ConnectionState::Established
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
                // Otherwise somebody is about to connect it, or to leave it first.
                if *context.connection_state(conn) != ConnectionState::Closed {
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

    /// A queue that leads back.
    fn connect_loopback(&mut self, index: u32) {
        let (words, pair) =
            (self.words.spot(OWN_BLOCK), self.words.spot(self.peers[index as usize].block));
        let made = lock(&self.context).loopback();
        match made {
            Ok(None) => {}
            Ok(Some(conn)) => {
                let peer = &mut self.peers[index as usize];
                peer.conn = Some(conn);
                peer.remote =
                    Some(RemoteWindow { window: self.window, memory: self.memory, words, pair });
                self.by_connection.insert(conn, index);
            }
            Err(DeviceError(reason)) => self.lose(index, reason),
        }
    }

    pub(super) fn send_handshake(&mut self, index: u32, stage: Step) {
        let pair = self.words.spot(self.peers[index as usize].block);
        self.send_handshake_about(index, stage, pair, 0);
    }

    fn send_handshake_about(&mut self, index: u32, stage: Step, pair: RemoteAddress, about: Rank) {
        let peer = &mut self.peers[index as usize];
        if stage.expects_reply() {
            peer.replies_due += 1;
        }
        let context = lock(&self.context);
        let unknown = QpStatus { generation: Handshake::UNKNOWN, number: 0, connected: false };
        let QpStatus { generation, number, connected } =
            peer.conn.map_or(unknown, |conn| context.qp_status(conn));
        let handshake = Handshake {
            stage,
            name: context.name(),
            generation,
            number,
            connected,
            address: context.address(),
            window: self.window,
            memory: self.memory,
            words: self.words.spot(OWN_BLOCK),
            pair,
            flush_target: context.flush_target(),
            about,
        };
        let rank = peer.rank;
        drop(context);
        self.handshakes.push_back((rank, handshake));
    }

    /// A peer has said hello.
    pub(in crate::transport::rdma) fn receive_handshake(
        &mut self,
        rank: Rank,
        handshake: &Handshake,
    ) {
        let index = self.peer(rank);
        let peer = &mut self.peers[index as usize];
        if !matches!(handshake.stage, Step::Request | Step::LookupRequest) {
            peer.replies_due = peer.replies_due.saturating_sub(1);
        }
        match handshake.stage {
            Step::LookupRequest if handshake.about >= self.ranks => {
                self.lose(
                    index,
                    "it has requested for words of a process that the window does not have".into(),
                );
                return self.send_handshake(index, Step::Reject);
            }
            Step::LookupRequest => {
                // Whoever is in a target's queue has met it.
                let about = self.peer(handshake.about);
                let pair = self.words.spot(self.peers[about as usize].block);
                return self.send_handshake_about(index, Step::LookupReply, pair, handshake.about);
            }
            Step::LookupReply => {
                if let Some(requested) = self.third_party.get_mut(&(rank, handshake.about)) {
                    *requested = Some(handshake.pair);
                }
                return;
            }
            _ => {}
        }
        self.handle_handshake(index, handshake);
    }

    /// Does what a hello wants for the queue, as soon as that can be done.
    pub(super) fn handle_handshake(&mut self, index: u32, handshake: &Handshake) {
        let peer = &self.peers[index as usize];
        if peer.lost {
            if handshake.stage.expects_reply() {
                self.send_handshake(index, Step::Reject);
            }
            return;
        }
        if handshake.stage == Step::Reject {
            return self.lose(index, "its queue cannot be connected, or has failed".into());
        }
        let answer = match self.join(index, handshake) {
            Ok(HandshakeOutcome::Proceed) => Step::Reply,
            Ok(HandshakeOutcome::PeerFirst) => Step::Yield,
            Ok(HandshakeOutcome::Retry) => return self.deferred.push_back((index, *handshake)),
            Err(DeviceError(reason)) => {
                self.lose(index, reason);
                return self.send_handshake(index, Step::Reject);
            }
        };
        let remote = RemoteWindow {
            window: handshake.window,
            memory: handshake.memory,
            words: handshake.words,
            pair: handshake.pair,
        };
        self.peers[index as usize].remote = Some(remote);
        match handshake.stage {
            Step::Request | Step::Yield => self.send_handshake(index, answer),
            Step::Reply => self.send_handshake(index, Step::Confirm),
            Step::Confirm => self.send_handshake(index, Step::Ready),
            _ => {}
        }
    }

    /// Does what a hello allows for the queue.
    fn join(&mut self, index: u32, handshake: &Handshake) -> Result<HandshakeOutcome, DeviceError> {
        let conn = lock(&self.context).conn(handshake.name);
        self.peers[index as usize].conn = Some(conn);
        if self.by_connection.insert(conn, index).is_none() {
            let (ripe, early) =
                std::mem::take(&mut self.early).into_iter().partition(|(other, _)| *other == conn);
            self.early = early;
            let ripe: Vec<(u32, WindowEvent)> = ripe;
            ripe.into_iter().for_each(|(_, event)| self.take(event));
        }
        lock(&self.context).join(conn, handshake)
    }

    /// Where the words of `home` are that concern `target`, which is another process; asks for it
    /// the first time.
    pub(in crate::transport::rdma) fn third_party_words(
        &mut self,
        home: Rank,
        target: Rank,
    ) -> Option<RemoteAddress> {
        if let Some(known) = self.third_party.get(&(home, target)) {
            return *known;
        }
        self.third_party.insert((home, target), None);
        let index = self.peer(home);
        self.send_handshake_about(index, Step::LookupRequest, RemoteAddress::default(), target);
        None
    }
}
