//! What happens in a network, for checkers: recorded in order where [`Network::record`] was asked
//! for.

use std::collections::VecDeque;

use super::{Network, Time};
use crate::engine::{Atomic, LockWord, Op, Word};

/// Something that a port accepted or that the network did.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// When.
    pub at: Time,
    /// In which window.
    pub window: u32,
    /// Whose operation, signal or access.
    pub by: u32,
    /// What.
    pub what: EventKind,
}

/// See [`Event`].
#[derive(Clone, Copy, Debug)]
pub enum EventKind {
    /// An operation was accepted.
    Posted(Op),
    /// The operation's origin buffer has been read, and what it fetches is there.
    Local(Op),
    /// The operation takes effect at its target.
    Effect(Op),
    /// A signal was accepted.
    Signalled {
        /// Its reader.
        to: u32,
        /// Which word.
        word: Word,
        /// What it is to be.
        value: u64,
    },
    /// A signal is there.
    Seen {
        /// Its reader.
        to: u32,
        /// Which word.
        word: Word,
        /// What it is to be.
        value: u64,
    },
    /// A word of the lock service was accessed.
    Accessed {
        /// Where it is.
        home: u32,
        /// Which word.
        word: LockWord,
        /// How.
        access: Atomic,
        /// What it was before.
        old: u64,
    },
}

impl Network {
    /// From now on everything that happens is kept for [`next_event`](Self::next_event).
    /// Needs [`Carry::Bytes`](super::Carry::Bytes).
    pub fn record(&mut self) {
        assert!(self.memory.is_some(), "what is recorded is what becomes of bytes");
        self.recorded = Some(VecDeque::new());
    }

    /// The next thing that happened.
    #[inline]
    pub fn next_event(&mut self) -> Option<Event> {
        self.recorded.as_mut()?.pop_front()
    }

    #[inline]
    pub(super) fn record_event(&mut self, window: u32, by: u32, what: EventKind) {
        if let Some(recorded) = &mut self.recorded {
            recorded.push_back(Event { at: self.now, window, by, what });
        }
    }
}
