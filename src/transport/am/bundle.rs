//! Bundles: packets of several windows to the same process, in one message of the carrier.
//!
//! A process that flushes a hundred windows has a short packet for each, and so have the answers.
//! While [`Held`] packets wait for each other, each joins the last one to the same process, if both
//! are short. The order of packets between two processes stays.
//!
//! ```text
//! bundle:  envelope | packets ...
//! packet:  bytes u64 | its bytes, padded to 8
//! ```

use super::carrier::{Carrier, PortNumber, Process};
use super::wire::{Content, ENVELOPE, PACKET, Packet};

/// The port of bundles, which belong to no window: [`Key`](crate::engine::slab::Key)s are never 0.
pub(super) const NO_PORT: PortNumber = 0;

/// Longer packets travel alone: to copy one takes as long as a message of its own.
const SHORT: usize = 1024;
/// Processes among which the last packet to a process is looked for.
const LOOKED_AT: usize = 16;
/// Bytes of the number in front of each packet.
const PREFIX: usize = 8;

/// A packet that waits, for this process.
#[derive(Debug)]
struct Waiting {
    port: PortNumber,
    to: Process,
    packet: Packet,
}

/// Packets that wait for each other.
#[derive(Debug, Default)]
pub(super) struct Held {
    is_holding: bool,
    waiting: Vec<Waiting>,
}

impl Held {
    pub(super) fn is_holding(&self) -> bool {
        self.is_holding
    }

    pub(super) fn hold(&mut self) {
        self.is_holding = true;
    }

    /// Whether a packet of this port waits.
    pub(super) fn holds(&self, port: PortNumber) -> bool {
        self.waiting.iter().any(|waiting| waiting.port == port || waiting.port == NO_PORT)
    }

    /// Adds a packet behind the others.
    pub(super) fn add(
        &mut self,
        carrier: &mut dyn Carrier,
        port: PortNumber,
        to: Process,
        packet: Packet,
    ) {
        let before = self.waiting.iter_mut().rev().take(LOOKED_AT).find(|before| before.to == to);
        match before {
            Some(before) if before.has_room(&packet) => before.join(carrier, packet),
            _ => self.waiting.push(Waiting { port, to, packet }),
        }
    }

    /// Sends all packets.
    pub(super) fn send(&mut self, carrier: &mut dyn Carrier) {
        self.is_holding = false;
        for Waiting { port, to, packet } in self.waiting.drain(..) {
            carrier.send(port, to, packet);
        }
    }
}

impl Waiting {
    fn has_room(&self, packet: &Packet) -> bool {
        let len = self.packet.bytes.len();
        let len = if self.port == NO_PORT { len } else { ENVELOPE + PREFIX + len + 7 };
        (self.port == NO_PORT || self.packet.bytes.len() <= SHORT)
            && packet.bytes.len() <= SHORT
            && len + PREFIX + packet.bytes.len() + 7 <= PACKET
    }

    fn join(&mut self, carrier: &mut dyn Carrier, packet: Packet) {
        if self.port != NO_PORT {
            let bundle = carrier.empty_packet().holding(Content::Bundle);
            let first = std::mem::replace(&mut self.packet, bundle);
            self.port = NO_PORT;
            self.append(&first);
            carrier.recycle(first);
        }
        self.append(&packet);
        carrier.recycle(packet);
    }

    fn append(&mut self, packet: &Packet) {
        let bytes = &mut self.packet.bytes;
        bytes.extend_from_slice(&(packet.bytes.len() as u64).to_ne_bytes());
        bytes.extend_from_slice(&packet.bytes);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
    }
}

/// The packets of a bundle. Ends with `None` at bytes that are none.
pub(super) fn packets(bundle: &Packet) -> impl Iterator<Item = Option<&[u8]>> {
    let mut rest = bundle.bytes.get(ENVELOPE..).unwrap_or_default();
    let mut is_valid = true;
    std::iter::from_fn(move || {
        if rest.is_empty() || !is_valid {
            return None;
        }
        let next = split(rest);
        is_valid = next.is_some();
        rest = next.map_or(rest, |(_, rest)| rest);
        Some(next.map(|(packet, _)| packet))
    })
}

/// The first packet, and what follows it.
fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (prefix, rest) = bytes.split_first_chunk::<PREFIX>()?;
    let len = usize::try_from(u64::from_ne_bytes(*prefix)).ok().filter(|len| *len <= PACKET)?;
    let (padded, rest) = rest.split_at_checked(len.next_multiple_of(8))?;
    Some((&padded[..len], rest))
}
