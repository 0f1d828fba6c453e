//! Two-sided communication, as much of it as programs beside an epoch need: blocking send and
//! receive, eager up to a size, beyond it with a handshake.

use std::collections::VecDeque;

use crate::engine::Rank;

/// What a packet says, in its lowest bits; its length stands above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PacketKind {
    /// The message itself.
    Eager,
    /// There is a message of this length.
    Ready,
    /// Its place is there.
    Clear,
    /// The message itself, after the handshake.
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

/// A rank's messages. A rank sends one at a time, and receives one at a time.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    /// Came and not received: from whom, eager or ready.
    pub(super) arrived: VecDeque<(Rank, PacketKind, u64)>,
    /// The send under way is over.
    pub(super) sent: bool,
    /// The receive under way is over.
    pub(super) received: bool,
}

impl Mailbox {
    /// The oldest message from this rank.
    pub(super) fn take(&mut self, from: Rank) -> Option<(PacketKind, u64)> {
        let at = self.arrived.iter().position(|(sender, ..)| *sender == from)?;
        self.arrived.remove(at).map(|(_, kind, bytes)| (kind, bytes))
    }
}
