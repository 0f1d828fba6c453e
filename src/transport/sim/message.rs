//! Messages in flight, and their connections.

use hashbrown::HashMap;

use super::Time;
use crate::engine::{Atomic, LockWord, Notification, Word};

/// The ticket of an operation whose completion is not reported.
pub(super) const NO_TICKET: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Put,
    Get,
    Accumulate,
    /// Get-accumulate and compare-and-swap.
    Fetch,
    Signal(Word),
    Access(LockWord, Atomic),
    /// A packet of the network's owner, for two-sided communication.
    Packet,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Path {
    /// Loads and stores inside a node.
    Shared,
    /// Through the NIC to its own node.
    Loopback,
    /// To another node.
    Wire,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pub(super) origin: u32,
    pub(super) target: u32,
    pub(super) window: u32,
    /// Ticket of the operation or lock operation.
    pub(super) ticket: u32,
    /// Sequence number within its connection and direction.
    pub(super) number: u32,
    pub(super) purpose: Purpose,
    /// Notification of the target, which follows the operation's effect.
    pub(super) notification: Option<Notification>,
    pub(super) path: Path,
    /// True for an answer, which travels from target to origin.
    pub(super) back: bool,
    /// The origin buffer was read when the operation was posted.
    pub(super) inlined: bool,
    /// The caller set its [`Times`](super::Times), so it waits for no port and keeps no order.
    pub(super) timed: bool,
    /// Length on the wire, in this direction.
    pub(super) bytes: u64,
    /// Signal: value. Access: old value. Packet: content. Others: length.
    pub(super) value: u64,
}

/// The messages in flight, in a slab that reuses the most recently freed slot first.
#[derive(Default)]
pub(super) struct Messages {
    list: Vec<Message>,
    free: Vec<u32>,
}

impl Messages {
    #[inline]
    pub(super) fn insert(&mut self, message: Message) -> u32 {
        match self.free.pop() {
            Some(at) => {
                self.list[at as usize] = message;
                at
            }
            None => {
                self.list.push(message);
                self.list.len() as u32 - 1
            }
        }
    }

    #[inline]
    pub(super) fn remove(&mut self, at: u32) {
        self.free.push(at);
    }

    pub(super) fn in_flight(&self) -> usize {
        self.list.len() - self.free.len()
    }
}

impl std::ops::Index<u32> for Messages {
    type Output = Message;
    #[inline]
    fn index(&self, at: u32) -> &Message {
        &self.list[at as usize]
    }
}

impl std::ops::IndexMut<u32> for Messages {
    #[inline]
    fn index_mut(&mut self, at: u32) -> &mut Message {
        &mut self.list[at as usize]
    }
}

#[derive(Debug, Default)]
pub(super) struct Direction {
    pub(super) sent: u32,
    /// Messages whose landing time is fixed.
    pub(super) admitted: u32,
    /// Landing time of the last admitted message. The next lands later.
    pub(super) landed: Time,
    /// When the last byte of the last message leaves.
    pub(super) left: Time,
    /// Messages that overtook a predecessor, highest number first.
    pub(super) parked: Vec<u32>,
}

/// A connection with messages in flight.
#[derive(Debug, Default)]
struct Connection {
    in_flight: u32,
    /// To the target, and back.
    directions: [Direction; 2],
}

/// The connections by origin and target. An idle connection has no state and is removed.
#[derive(Default)]
pub(super) struct Connections(HashMap<(u32, u32), Connection>);

impl Connections {
    #[inline]
    pub(super) fn in_flight(&self, origin: u32, target: u32) -> u32 {
        self.0.get(&(origin, target)).map_or(0, |connection| connection.in_flight)
    }

    /// Adds one message in flight.
    #[inline]
    pub(super) fn open(&mut self, origin: u32, target: u32) {
        self.0.entry((origin, target)).or_default().in_flight += 1;
    }

    fn of(&mut self, message: &Message) -> &mut Connection {
        self.0.get_mut(&(message.origin, message.target)).expect("a message in flight counts")
    }

    /// Removes one message in flight.
    #[inline]
    pub(super) fn close(&mut self, message: &Message) {
        let connection = self.of(message);
        connection.in_flight -= 1;
        if connection.in_flight == 0 {
            debug_assert!(connection.directions.iter().all(
                |direction| direction.parked.is_empty() && direction.sent == direction.admitted
            ));
            self.0.remove(&(message.origin, message.target));
        }
    }

    /// The direction in which a message travels.
    #[inline]
    pub(super) fn direction(&mut self, message: &Message) -> &mut Direction {
        &mut self.of(message).directions[usize::from(message.back)]
    }
}
