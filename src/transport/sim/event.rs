//! Events for checkers, recorded in order once [`Network::record`] was called.

use std::collections::VecDeque;

use super::{Network, Time};
use crate::engine::{Atomic, LockWord, Op, Word};

/// A call that a port accepted, or an effect in the network.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// Time.
    pub at: Time,
    /// Window.
    pub window: u32,
    /// Rank whose operation, signal or access it is.
    pub by: u32,
    /// Kind, with its details.
    pub kind: EventKind,
}

/// The kinds of recorded events.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the variants describe their fields")]
pub enum EventKind {
    /// An operation was accepted.
    Posted(Op),
    /// The operation's origin buffer was read, and fetched data is in place.
    Local(Op),
    /// The operation took effect at its target.
    Effect(Op),
    /// The operation's notification took effect at its target.
    Notified(Op),
    /// A signal to rank `to` was accepted.
    Signalled { to: u32, word: Word, value: u64 },
    /// A signal became visible to rank `to`.
    Seen { to: u32, word: Word, value: u64 },
    /// A lock word that rank `home` holds was accessed, and had the value `old`.
    Accessed { home: u32, word: LockWord, access: Atomic, old: u64 },
}

impl Network {
    /// Starts recording events for [`next_event`](Self::next_event). Needs
    /// [`Carry::Bytes`](super::Carry::Bytes).
    pub fn record(&mut self) {
        assert!(self.memory.is_some(), "recording needs Carry::Bytes");
        self.recorded = Some(VecDeque::new());
    }

    /// The next recorded event.
    #[inline]
    pub fn next_event(&mut self) -> Option<Event> {
        self.recorded.as_mut()?.pop_front()
    }

    #[inline]
    pub(super) fn record_event(&mut self, window: u32, by: u32, kind: EventKind) {
        if let Some(recorded) = &mut self.recorded {
            recorded.push_back(Event { at: self.now, window, by, kind });
        }
    }
}
