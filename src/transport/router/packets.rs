//! How the packets of a window travel: as RDMA sends to peers that the window's endpoint reaches,
//! else through the host. Rendezvous transfers, which are ordered by themselves, and the handshakes
//! that connect the endpoint always go through the host.

use crate::engine::Rank;
use crate::transport::am::channel::{Channel, TransferEnd, TransferId};
use crate::transport::am::window_channel::WindowChannel;
use crate::transport::am::wire::{Content, Packet};
use crate::transport::peers::PeerId;
use crate::transport::rdma::Endpoint;

/// Packets that wait for RDMA from which on operations are refused.
const BUSY_FROM: usize = 64;

/// Carries the packets of one window.
#[derive(Debug)]
pub(super) struct Packets {
    pub(super) host: WindowChannel,
    pub(super) endpoint: Option<Endpoint>,
    /// Rendezvous transfers in flight.
    transfers: usize,
}

impl Packets {
    pub(super) fn new(host: WindowChannel, endpoint: Option<Endpoint>) -> Self {
        Packets { host, endpoint, transfers: 0 }
    }

    /// Takes the memory of a received packet for one to be sent.
    #[inline]
    pub(super) fn recycle(&mut self, packet: Packet) {
        match &mut self.endpoint {
            Some(endpoint) => endpoint.recycle(packet.bytes),
            None => self.host.recycle(packet),
        }
    }

    /// Sends the handshakes that are due, and says what the host has to be polled for.
    pub(super) fn send_handshakes(&mut self) {
        let Some(endpoint) = &mut self.endpoint else { return };
        self.host.expect(self.transfers > 0 || endpoint.awaits_host());
        while let Some((peer, message)) = endpoint.next_handshake() {
            let mut packet = self.host.empty_packet().holding(Content::Handshake);
            packet.bytes.extend(message.encode());
            self.host.send(peer, packet);
        }
    }

    /// The next completed transfer and its bytes; `usize::MAX` if it failed or was too long.
    #[inline]
    pub(super) fn next_transfer(&mut self) -> Option<(TransferId, usize)> {
        let next = self.host.next_transfer()?;
        self.transfers -= 1;
        Some(next)
    }

    /// Whether all that this process has sent is complete.
    pub(super) fn is_quiet(&mut self) -> bool {
        self.endpoint.as_ref().is_none_or(Endpoint::is_quiet) && self.host.is_quiet()
    }

    /// Whether nothing has arrived that this process has not handled, and nothing is due but what
    /// peers may send.
    pub(super) fn are_idle(&self) -> bool {
        self.endpoint.as_ref().is_none_or(Endpoint::is_idle) && self.host.is_idle()
    }

    /// Whether packets to a process go as RDMA sends.
    fn endpoint_to(&mut self, rank: Rank) -> Option<&mut Endpoint> {
        self.endpoint.as_mut().filter(|endpoint| endpoint.reaches(rank))
    }
}

impl Channel for Packets {
    fn empty_packet(&mut self) -> Packet {
        let Some(endpoint) = &mut self.endpoint else { return self.host.empty_packet() };
        let Some(bytes) = endpoint.spare_packet() else { return Packet::new() };
        let mut packet = Packet { bytes };
        packet.clear();
        packet
    }

    fn send(&mut self, to: PeerId, packet: Packet) {
        match self.endpoint_to(to.rank) {
            Some(endpoint) => endpoint.send_packet(to, packet.bytes),
            None => self.host.send(to.rank, packet),
        }
    }

    fn is_busy(&self) -> bool {
        self.host.is_busy()
            || self
                .endpoint
                .as_ref()
                .is_some_and(|endpoint| endpoint.waiting_packets() >= BUSY_FROM)
    }

    fn take_tag(&mut self) -> Option<u32> {
        self.host.take_tag()
    }

    fn return_tag(&mut self, number: u32) {
        self.host.return_tag(number);
    }

    unsafe fn transfer(&mut self, peer: PeerId, end: TransferEnd) {
        self.transfers += 1;
        // SAFETY: the caller keeps the memory valid, and unchanged or unused, until the transfer is
        // complete (contract of this function).
        unsafe { self.host.transfer(peer.rank, end) }
    }
}
