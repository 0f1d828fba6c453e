//! Blocking two-sided send and receive, with an eager and a rendezvous protocol.

use std::collections::VecDeque;

use crate::engine::Rank;

/// The kind of a packet: the two lowest bits of its content. The others are the message length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PacketKind {
    Eager,
    /// Ready to send: the sender has a message of this length.
    Ready,
    /// Clear to send: the receiver has posted the receive.
    Clear,
    /// Message data of the rendezvous protocol.
    Data,
}

const KINDS: [PacketKind; 4] =
    [PacketKind::Eager, PacketKind::Ready, PacketKind::Clear, PacketKind::Data];

pub(super) fn packed(kind: PacketKind, bytes: u64) -> u64 {
    bytes << 2 | kind as u64
}

pub(super) fn unpacked(value: u64) -> (PacketKind, u64) {
    (KINDS[(value & 3) as usize], value >> 2)
}

/// The two-sided messages of a rank, which sends and receives one at a time.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    /// Arrived and not received: sender, kind (eager or ready to send), length.
    pub(super) arrived: VecDeque<(Rank, PacketKind, u64)>,
    /// The current send is complete.
    pub(super) sent: bool,
    /// The current receive is complete.
    pub(super) received: bool,
}

impl Mailbox {
    /// Takes the oldest message from this rank.
    pub(super) fn take(&mut self, from: Rank) -> Option<(PacketKind, u64)> {
        let at = self.arrived.iter().position(|(sender, ..)| *sender == from)?;
        self.arrived.remove(at).map(|(_, kind, bytes)| (kind, bytes))
    }
}
