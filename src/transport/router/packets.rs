//! The packets of a window. They travel as RDMA sends to peers that the window's endpoint reaches,
//! and through the host to others. Rendezvous transfers, which need no order among packets, and the
//! handshakes that connect the endpoint always go through the host.

use crate::transport::am::channel::Channel;
use crate::transport::am::window_channel::WindowChannel;
use crate::transport::am::wire::{Content, Packet};
use crate::transport::peers::PeerId;
use crate::transport::rdma::Endpoint;

/// Operations are refused while this many packets wait for RDMA.
const BUSY_FROM: usize = 64;

/// Carries the packets of one window.
#[derive(Debug)]
pub(super) struct Packets {
    pub(super) host: WindowChannel,
    pub(super) endpoint: Option<Endpoint>,
}

impl Packets {
    /// Returns the memory of a received packet for reuse.
    #[inline]
    pub(super) fn recycle(&mut self, packet: Packet) {
        match &mut self.endpoint {
            Some(endpoint) => endpoint.recycle(packet.bytes),
            None => self.host.recycle(packet),
        }
    }

    /// Sends the handshakes that are due. Has the host polled at every look only while the endpoint
    /// waits for its messages.
    pub(super) fn send_handshakes(&mut self) {
        let Some(endpoint) = &mut self.endpoint else { return };
        self.host.expect(endpoint.awaits_host());
        while let Some((peer, message)) = endpoint.next_handshake() {
            let mut packet = self.host.empty_packet().holding(Content::Handshake);
            packet.bytes.extend(message.encode());
            self.host.send(peer, packet);
        }
    }

    /// Whether everything that this process has sent is complete.
    pub(super) fn is_quiet(&mut self) -> bool {
        self.endpoint.as_ref().is_none_or(Endpoint::is_quiet) && self.host.is_quiet()
    }

    /// Whether all that has arrived was handled, and only a message of a peer can bring more work.
    pub(super) fn are_idle(&self) -> bool {
        self.endpoint.as_ref().is_none_or(Endpoint::is_idle) && self.host.is_idle()
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
        match self.endpoint.as_mut().filter(|endpoint| endpoint.reaches(to.rank)) {
            Some(endpoint) => endpoint.send_packet(to, packet.bytes),
            None => self.host.send(to.rank, packet),
        }
    }

    fn is_busy(&self) -> bool {
        let endpoint = self.endpoint.as_ref();
        self.host.is_busy() || endpoint.is_some_and(|rdma| rdma.waiting_packets() >= BUSY_FROM)
    }

    fn host(&mut self) -> &mut WindowChannel {
        &mut self.host
    }
}
