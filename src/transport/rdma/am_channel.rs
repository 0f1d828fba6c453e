//! The active-message channel of a window: packets as RDMA sends, to peers that the window's
//! [`Endpoint`] reaches. Everything else goes through the host's channel.
//!
//! A packet for a peer that is not connected yet waits here, so that packets keep their order.
//! Rendezvous transfers, which are ordered by themselves, and agreements go through the host.

use std::collections::VecDeque;

use hashbrown::HashMap;

use super::endpoint::Endpoint;
use super::handshake::Handshake;
use crate::engine::{Addr, Rank};
use crate::transport::Proposal;
use crate::transport::am::channel::{Channel, TransferId, TransferTag};
use crate::transport::am::wire::{Content, ENVELOPE, Packet};

/// Waiting packets from which on operations are refused.
const BUSY_FROM: usize = 64;
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
    /// Rendezvous transfers in flight.
    transfers: usize,
}

impl<H: Channel> RdmaAmChannel<H> {
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
            transfers: 0,
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
            let mut packet = self.host.empty_packet().holding(Content::Handshake);
            packet.bytes.extend(message.encode());
            self.host.send(peer, packet);
        }
    }

    fn receive_from_host(&mut self) {
        self.host.poll();
        while let Some((peer, packet)) = self.host.receive() {
            if packet.content() == Some(Content::Handshake) {
                match Handshake::decode(&packet.bytes[ENVELOPE..]) {
                    Some(message) => self.endpoint.receive_handshake(peer, &message),
                    None => log::error!("a malformed handshake of process {peer} is dropped"),
                }
                self.host.recycle(packet);
            } else {
                self.from_host.push_back((peer, packet));
            }
        }
    }
}

impl<H: Channel> Channel for RdmaAmChannel<H> {
    fn empty_packet(&mut self) -> Packet {
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

    fn recycle(&mut self, packet: Packet) {
        match self.origins.pop_front() {
            Some(false) => self.endpoint.recycle_packet(packet.bytes),
            _ => self.host.recycle(packet),
        }
    }

    fn poll(&mut self) {
        self.receive_from_host();
        self.endpoint.poll();
        self.host.expect(self.transfers > 0 || self.endpoint.awaits_host());
        self.send_handshakes();
        self.send_waiting();
    }

    fn take_tag(&mut self) -> Option<u32> {
        self.host.take_tag()
    }

    fn return_tag(&mut self, number: u32) {
        self.host.return_tag(number);
    }

    unsafe fn send_data(
        &mut self,
        peer: Rank,
        tag: TransferTag,
        from: Addr,
        len: usize,
        transfer: TransferId,
    ) {
        self.transfers += 1;
        // SAFETY: the caller keeps the memory valid and unchanged until the message is complete.
        unsafe { self.host.send_data(peer, tag, from, len, transfer) }
    }

    unsafe fn receive_data(
        &mut self,
        peer: Rank,
        tag: TransferTag,
        to: Addr,
        len: usize,
        transfer: TransferId,
    ) {
        self.transfers += 1;
        // SAFETY: the caller keeps the memory valid and unused until the message is complete.
        unsafe { self.host.receive_data(peer, tag, to, len, transfer) }
    }

    fn next_transfer(&mut self) -> Option<(TransferId, usize)> {
        let next = self.host.next_transfer()?;
        self.transfers -= 1;
        Some(next)
    }

    fn cancel_receives(&mut self) {
        self.host.cancel_receives();
    }

    fn propose(&mut self, proposal: Proposal) {
        self.host.propose(proposal);
    }

    fn decision(&mut self) -> Option<Proposal> {
        self.host.decision()
    }

    fn start_allgather(&mut self, number: u32) {
        self.host.start_allgather(number);
    }

    fn finish_allgather(&mut self) -> Option<Vec<u32>> {
        self.host.finish_allgather()
    }

    fn is_quiet(&mut self) -> bool {
        self.waiting_count == 0 && self.endpoint.is_quiet() && self.host.is_quiet()
    }

    fn is_idle(&self) -> bool {
        self.waiting_count == 0
            && self.from_host.is_empty()
            && self.endpoint.is_idle()
            && self.host.is_idle()
    }

    fn set_cookie(&mut self, cookie: u64) {
        self.endpoint.set_cookie(cookie);
        self.host.set_cookie(cookie);
    }

    fn release(&mut self) {
        self.endpoint.end();
        self.host.release();
    }

    fn endpoint_mut(&mut self) -> Option<&mut Endpoint> {
        Some(&mut self.endpoint)
    }

    fn endpoint(&self) -> Option<&Endpoint> {
        Some(&self.endpoint)
    }
}
