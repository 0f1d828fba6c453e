//! Two-sided communication, as much of it as programs beside an epoch need: blocking send and
//! receive, eager up to a size, beyond it with a handshake.

use std::collections::VecDeque;

use crate::engine::Rank;

/// What a packet says, in its lowest bits; its length stands above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Saying {
    /// The message itself.
    Eager,
    /// There is a message of this length.
    Ready,
    /// Its place is there.
    Clear,
    /// The message itself, after the handshake.
    Data,
}

const SAYINGS: [Saying; 4] = [Saying::Eager, Saying::Ready, Saying::Clear, Saying::Data];

pub(super) fn packed(saying: Saying, bytes: u64) -> u64 {
    bytes << 2 | saying as u64
}

pub(super) fn unpacked(value: u64) -> (Saying, u64) {
    (SAYINGS[(value & 3) as usize], value >> 2)
}

/// A rank's messages. A rank sends one at a time, and receives one at a time.
#[derive(Debug, Default)]
pub(super) struct Mail {
    /// Came and not received: from whom, eager or ready.
    pub(super) arrived: VecDeque<(Rank, Saying, u64)>,
    /// The send under way is over.
    pub(super) sent: bool,
    /// The receive under way is over.
    pub(super) received: bool,
}

impl Mail {
    /// The oldest message from this rank.
    pub(super) fn take(&mut self, from: Rank) -> Option<(Saying, u64)> {
        let at = self.arrived.iter().position(|(sender, ..)| *sender == from)?;
        self.arrived.remove(at).map(|(_, saying, bytes)| (saying, bytes))
    }
}
