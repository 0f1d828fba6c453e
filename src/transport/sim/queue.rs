//! The event queue: a heap of small entries, ordered by time and then by insertion.

use super::Time;

/// What is due, for a message or a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

const EVENT_TYPES: [EventType; 8] = [
    EventType::Switch,
    EventType::Head,
    EventType::Arrive,
    EventType::Land,
    EventType::Left,
    EventType::Done,
    EventType::Nudge,
    EventType::Alarm,
];

/// An event taken from the queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScheduledEvent {
    pub(super) at: Time,
    pub(super) kind: EventType,
    /// Message or rank.
    pub(super) subject: u32,
    /// Tag of an alarm.
    pub(super) tag: u32,
}

#[derive(Clone, Copy)]
struct HeapEntry {
    at: Time,
    /// Sequence number; the type in the lowest bits.
    order: u64,
    subject: u32,
    tag: u32,
}

const TYPE_BITS: u32 = 3;
/// Four children per entry: half as many levels as a binary heap, and the children share one or two
/// cache lines.
const WIDTH: usize = 4;

impl HeapEntry {
    #[inline(always)]
    fn before(&self, other: &HeapEntry) -> bool {
        (self.at, self.order) < (other.at, other.order)
    }
}

/// The queue.
#[derive(Default)]
pub(super) struct Queue {
    heap: Vec<HeapEntry>,
    sequence: u64,
}

impl Queue {
    #[inline]
    pub(super) fn next_time(&self) -> Option<Time> {
        self.heap.first().map(|entry| entry.at)
    }

    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }

    #[inline]
    pub(super) fn push(&mut self, at: Time, kind: EventType, subject: u32, tag: u32) {
        self.sequence += 1;
        let entry = HeapEntry { at, order: self.sequence << TYPE_BITS | kind as u64, subject, tag };
        let mut hole = self.heap.len();
        self.heap.push(entry);
        while hole > 0 {
            let parent = (hole - 1) / WIDTH;
            if !entry.before(&self.heap[parent]) {
                break;
            }
            self.heap[hole] = self.heap[parent];
            hole = parent;
        }
        self.heap[hole] = entry;
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<ScheduledEvent> {
        let last = self.heap.pop()?;
        let first = match self.heap.first() {
            None => last,
            Some(first) => {
                let first = *first;
                self.sift(last);
                first
            }
        };
        let kind = EVENT_TYPES[(first.order & ((1 << TYPE_BITS) - 1)) as usize];
        Some(ScheduledEvent { at: first.at, kind, subject: first.subject, tag: first.tag })
    }

    /// Puts `entry` in the place of the first one and restores the order.
    #[inline]
    fn sift(&mut self, entry: HeapEntry) {
        let heap = &mut self.heap[..];
        let mut hole = 0;
        loop {
            let child = hole * WIDTH + 1;
            if child >= heap.len() {
                break;
            }
            let mut least = child;
            for other in child + 1..(child + WIDTH).min(heap.len()) {
                if heap[other].before(&heap[least]) {
                    least = other;
                }
            }
            if !heap[least].before(&entry) {
                break;
            }
            heap[hole] = heap[least];
            hole = least;
        }
        heap[hole] = entry;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_in_the_order_of_their_making() {
        let mut queue = Queue::default();
        let times = [5u64, 3, 5, 1, 9, 3, 3, 1, 7, 0, 5];
        for (subject, at) in times.iter().enumerate() {
            queue.push(*at, EVENT_TYPES[subject % EVENT_TYPES.len()], subject as u32, 0);
        }
        let mut expected: Vec<(u64, u32)> = times.iter().copied().zip(0..).collect();
        expected.sort();
        let mut seen = Vec::new();
        while let Some(event) = queue.pop() {
            assert_eq!(event.kind, EVENT_TYPES[event.subject as usize % EVENT_TYPES.len()]);
            seen.push((event.at, event.subject));
        }
        assert_eq!(seen, expected);
    }
}
