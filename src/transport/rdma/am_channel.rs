//! Carries packets through the queues of the [`Direct`], to the peers that have an interface, and
//! all else through the host.
//!
//! A packet for a peer that is not connected yet waits here, so that packets keep their order. Bulk
//! messages, which are streams of their own, and votes are the host's.

use std::collections::VecDeque;

use hashbrown::HashMap;

use super::endpoint::Endpoint;
use super::handshake::Handshake;
use crate::engine::{Addr, Rank};
use crate::transport::Ballot;
use crate::transport::host_mpi::courier::{Bulk, Courier, Stream};
use crate::transport::host_mpi::wire::Packet;

/// Packets that wait here from which on operations are refused.
const BUSY_FROM: usize = 64;
/// Polls between two looks at the host while nothing is expected of it: a look over a network costs
/// as much as several of ours.
const HOST_POLL_INTERVAL: u32 = 64;

/// The packets of one window.
#[derive(Debug)]
pub struct RdmaAmChannel<H> {
    host: H,
    direct: Endpoint,
    waiting: HashMap<Rank, VecDeque<Packet>>,
    /// Packets in there.
    count: usize,
    arrived: VecDeque<(Rank, Packet)>,
    /// Of the packets that were taken out and not given back, in order: they came through the host.
    origins: VecDeque<bool>,
    spare: Vec<Packet>,
    /// Bulk messages under way.
    bulks: usize,
    polls: u32,
}

/// Packets that are kept for later ones.
const KEPT: usize = 64;

impl<H: Courier> RdmaAmChannel<H> {
    /// Packets to peers that the other cannot reach go through `host`.
    pub fn new(host: H, direct: Endpoint) -> Self {
        RdmaAmChannel {
            host,
            direct,
            waiting: HashMap::new(),
            count: 0,
            arrived: VecDeque::new(),
            origins: VecDeque::new(),
            spare: Vec::new(),
            bulks: 0,
            polls: 0,
        }
    }

    /// Sends what waits, in order for each peer.
    fn send_waiting(&mut self) {
        if self.count == 0 {
            return;
        }
        let (direct, spare, count) = (&mut self.direct, &mut self.spare, &mut self.count);
        self.waiting.retain(|peer, queue| {
            while let Some(packet) = queue.front() {
                if !direct.is_lost(*peer) && !direct.send_packet(*peer, &packet.bytes) {
                    return true;
                }
                *count -= 1;
                spare.extend(queue.pop_front());
            }
            false
        });
        self.spare.truncate(KEPT);
    }

    fn send_handshakes(&mut self) {
        while let Some((peer, handshake)) = self.direct.next_handshake() {
            let mut packet = self.host.packet();
            packet.bytes.clear();
            packet.bytes.extend(handshake.bytes());
            self.host.send(peer, packet);
        }
    }

    fn drive_host(&mut self) {
        self.polls = 0;
        self.host.drive();
        while let Some((peer, packet)) = self.host.receive() {
            match Handshake::read(&packet.bytes) {
                Some(handshake) => {
                    self.direct.receive_handshake(peer, &handshake);
                    self.host.give_back(packet);
                }
                None => self.arrived.push_back((peer, packet)),
            }
        }
    }
}

impl<H: Courier> Courier for RdmaAmChannel<H> {
    fn packet(&mut self) -> Packet {
        match self.spare.pop() {
            Some(mut packet) => {
                packet.clear();
                packet
            }
            None => Packet::new(),
        }
    }

    fn send(&mut self, peer: Rank, packet: Packet) {
        if !self.direct.reaches(peer) {
            return self.host.send(peer, packet);
        }
        let first = self.waiting.get(&peer).is_none_or(VecDeque::is_empty);
        if first && self.direct.send_packet(peer, &packet.bytes) {
            return self.spare.push(packet);
        }
        self.waiting.entry(peer).or_default().push_back(packet);
        self.count += 1;
    }

    fn is_busy(&self) -> bool {
        self.count >= BUSY_FROM || self.host.is_busy()
    }

    fn receive(&mut self) -> Option<(Rank, Packet)> {
        if let Some((rank, bytes)) = self.direct.next_packet() {
            self.origins.push_back(false);
            return Some((rank, Packet { bytes }));
        }
        let arrived = self.arrived.pop_front()?;
        self.origins.push_back(true);
        Some(arrived)
    }

    fn give_back(&mut self, packet: Packet) {
        match self.origins.pop_front() {
            Some(false) => self.direct.recycle_packet(packet.bytes),
            _ => self.host.give_back(packet),
        }
    }

    fn drive(&mut self) {
        let moved = self.direct.poll();
        self.polls += 1;
        let expected = self.bulks > 0 || self.direct.awaits_host();
        if self.polls >= HOST_POLL_INTERVAL || !moved && expected {
            self.drive_host();
        }
        self.send_handshakes();
        self.send_waiting();
    }

    unsafe fn send_bulk(&mut self, peer: Rank, stream: Stream, from: Addr, len: usize, bulk: Bulk) {
        self.bulks += 1;
        // SAFETY: the caller's promise.
        unsafe { self.host.send_bulk(peer, stream, from, len, bulk) }
    }

    unsafe fn receive_bulk(
        &mut self,
        peer: Rank,
        stream: Stream,
        to: Addr,
        len: usize,
        bulk: Bulk,
    ) {
        self.bulks += 1;
        // SAFETY: the caller's promise.
        unsafe { self.host.receive_bulk(peer, stream, to, len, bulk) }
    }

    fn next_bulk(&mut self) -> Option<(Bulk, usize)> {
        let next = self.host.next_bulk()?;
        self.bulks -= 1;
        Some(next)
    }

    fn cancel_bulks(&mut self) {
        self.host.cancel_bulks();
    }

    fn next_failure(&mut self) -> Option<String> {
        self.host.next_failure()
    }

    fn vote(&mut self, ballot: Ballot) {
        self.host.vote(ballot);
    }

    fn verdict(&mut self) -> Option<Ballot> {
        self.host.verdict()
    }

    fn gather(&mut self, number: u32) {
        self.host.gather(number);
    }

    fn gathered(&mut self) -> Option<Result<Vec<u32>, String>> {
        self.host.gathered()
    }

    fn is_quiet(&mut self) -> bool {
        self.count == 0 && self.direct.is_quiet() && self.host.is_quiet()
    }

    fn release(&mut self, clean: bool) {
        self.direct.end();
        self.host.release(clean);
    }

    fn direct(&mut self) -> Option<&mut Endpoint> {
        Some(&mut self.direct)
    }

    fn direct_ref(&self) -> Option<&Endpoint> {
        Some(&self.direct)
    }
}
