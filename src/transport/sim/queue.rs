//! The event queue: a heap, ordered by time and then by insertion.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Time;

/// The type of an event of a message or a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum EventType {
    /// The head of a message reaches the first switch.
    Switch,
    /// The head of a bulk message reaches the target's port.
    Head,
    /// The last byte of a short message reaches the target's port.
    Arrive,
    /// A message takes effect.
    Land,
    /// The last byte of a message has left.
    Left,
    /// A message is acknowledged or answered.
    Done,
    /// A refused rank may retry.
    Nudge,
    /// An alarm of the owner.
    Alarm,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ScheduledEvent {
    pub(super) at: Time,
    sequence: u64,
    pub(super) kind: EventType,
    /// Message or rank.
    pub(super) subject: u32,
    /// Tag of an alarm.
    pub(super) tag: u32,
}

#[derive(Default)]
pub(super) struct Queue {
    heap: BinaryHeap<Reverse<ScheduledEvent>>,
    sequence: u64,
}

impl Queue {
    #[inline]
    pub(super) fn next_time(&self) -> Option<Time> {
        self.heap.peek().map(|first| first.0.at)
    }

    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }

    #[inline]
    pub(super) fn push(&mut self, at: Time, kind: EventType, subject: u32, tag: u32) {
        self.sequence += 1;
        let sequence = self.sequence;
        self.heap.push(Reverse(ScheduledEvent { at, sequence, kind, subject, tag }));
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<ScheduledEvent> {
        self.heap.pop().map(|first| first.0)
    }
}
