//! The active-message channel of a window: packets as RDMA sends, to peers that the window's
//! [`Endpoint`] reaches. Everything else goes through the host's channel.
//!
//! A packet for a peer that is not connected yet waits here, so that packets keep their order. Bulk
//! messages, which are streams of their own, and votes go through the host.

use std::collections::VecDeque;

use hashbrown::HashMap;

use super::endpoint::Endpoint;
use super::handshake::Handshake;
use crate::engine::{Addr, Rank};
use crate::transport::Ballot;
use crate::transport::host_mpi::courier::{Bulk, Courier, Stream};
use crate::transport::host_mpi::wire::Packet;

/// Waiting packets from which on operations are refused.
const BUSY_FROM: usize = 64;
/// Polls between two of the host while nothing is due from it: its poll costs as much as several of
/// ours over a network.
const HOST_POLL_INTERVAL: u32 = 64;
/// Packets kept for reuse.
const MAX_SPARE: usize = 64;

/// The active-message channel of one window.
#[derive(Debug)]
pub struct RdmaAmChannel<H> {
    host: H,
    endpoint: Endpoint,
    waiting: HashMap<Rank, VecDeque<Packet>>,
    /// Packets in `waiting`.
    waiting_count: usize,
    from_host: VecDeque<(Rank, Packet)>,
    /// For each packet handed out and not given back, oldest first: whether it came by the host.
    origins: VecDeque<bool>,
    spare: Vec<Packet>,
    /// Bulk messages in flight.
    bulks: usize,
    polls: u32,
}

impl<H: Courier> RdmaAmChannel<H> {
    /// A channel over `endpoint`, and over `host` for peers that the endpoint does not reach.
    pub fn new(host: H, endpoint: Endpoint) -> Self {
        RdmaAmChannel {
            host,
            endpoint,
            waiting: HashMap::new(),
            waiting_count: 0,
            from_host: VecDeque::new(),
            origins: VecDeque::new(),
            spare: Vec::new(),
            bulks: 0,
            polls: 0,
        }
    }

    /// Sends waiting packets, in order for each peer.
    fn send_waiting(&mut self) {
        if self.waiting_count == 0 {
            return;
        }
        let (endpoint, spare) = (&mut self.endpoint, &mut self.spare);
        let count = &mut self.waiting_count;
        self.waiting.retain(|peer, queue| {
            while let Some(packet) = queue.front() {
                if !endpoint.is_lost(*peer) && !endpoint.send_packet(*peer, &packet.bytes) {
                    return true;
                }
                *count -= 1;
                spare.extend(queue.pop_front());
            }
            false
        });
        self.spare.truncate(MAX_SPARE);
    }

    fn send_handshakes(&mut self) {
        while let Some((peer, message)) = self.endpoint.next_handshake() {
            let mut packet = self.host.packet();
            packet.bytes.clear();
            packet.bytes.extend(message.encode());
            self.host.send(peer, packet);
        }
    }

    fn drive_host(&mut self) {
        self.polls = 0;
        self.host.drive();
        while let Some((peer, packet)) = self.host.receive() {
            match Handshake::decode(&packet.bytes) {
                Some(message) => {
                    self.endpoint.receive_handshake(peer, &message);
                    self.host.give_back(packet);
                }
                None => self.from_host.push_back((peer, packet)),
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
        if !self.endpoint.reaches(peer) {
            return self.host.send(peer, packet);
        }
        let first = self.waiting.get(&peer).is_none_or(VecDeque::is_empty);
        if first && self.endpoint.send_packet(peer, &packet.bytes) {
            return self.spare.push(packet);
        }
        self.waiting.entry(peer).or_default().push_back(packet);
        self.waiting_count += 1;
    }

    fn is_busy(&self) -> bool {
        self.waiting_count >= BUSY_FROM || self.host.is_busy()
    }

    fn receive(&mut self) -> Option<(Rank, Packet)> {
        if let Some((rank, bytes)) = self.endpoint.next_packet() {
            self.origins.push_back(false);
            return Some((rank, Packet { bytes }));
        }
        let received = self.from_host.pop_front()?;
        self.origins.push_back(true);
        Some(received)
    }

    fn give_back(&mut self, packet: Packet) {
        match self.origins.pop_front() {
            Some(false) => self.endpoint.recycle_packet(packet.bytes),
            _ => self.host.give_back(packet),
        }
    }

    fn drive(&mut self) {
        let moved = self.endpoint.poll();
        self.polls += 1;
        let expected = self.bulks > 0 || self.endpoint.awaits_host();
        if self.polls >= HOST_POLL_INTERVAL || !moved && expected {
            self.drive_host();
        }
        self.send_handshakes();
        self.send_waiting();
    }

    unsafe fn send_bulk(&mut self, peer: Rank, stream: Stream, from: Addr, len: usize, bulk: Bulk) {
        self.bulks += 1;
        // SAFETY: the caller keeps the memory valid and unchanged until the message is complete.
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
        // SAFETY: the caller keeps the memory valid and unused until the message is complete.
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
        self.waiting_count == 0 && self.endpoint.is_quiet() && self.host.is_quiet()
    }

    fn release(&mut self, clean: bool) {
        self.endpoint.end();
        self.host.release(clean);
    }

    fn direct(&mut self) -> Option<&mut Endpoint> {
        Some(&mut self.endpoint)
    }

    fn direct_ref(&self) -> Option<&Endpoint> {
        Some(&self.endpoint)
    }
}
