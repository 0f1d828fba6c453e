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
    pub(super) connection: u32,
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

/// A slab that reuses the most recently freed slot first.
pub(super) struct Slots<T> {
    list: Vec<T>,
    free: Vec<u32>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Slots { list: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slots<T> {
    #[inline]
    pub(super) fn insert(&mut self, value: T) -> u32 {
        match self.free.pop() {
            Some(at) => {
                self.list[at as usize] = value;
                at
            }
            None => {
                self.list.push(value);
                self.list.len() as u32 - 1
            }
        }
    }

    #[inline]
    pub(super) fn remove(&mut self, at: u32) {
        self.free.push(at);
    }

    pub(super) fn len(&self) -> usize {
        self.list.len() - self.free.len()
    }
}

impl<T> std::ops::Index<u32> for Slots<T> {
    type Output = T;
    #[inline]
    fn index(&self, at: u32) -> &T {
        &self.list[at as usize]
    }
}

impl<T> std::ops::IndexMut<u32> for Slots<T> {
    #[inline]
    fn index_mut(&mut self, at: u32) -> &mut T {
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

/// A connection with messages in flight. An idle connection has no state and is removed.
#[derive(Debug)]
pub(super) struct Connection {
    key: u64,
    pub(super) in_flight: u32,
    /// To the target, and back.
    pub(super) directions: [Direction; 2],
}

#[derive(Default)]
pub(super) struct Connections {
    by_ranks: HashMap<u64, u32>,
    list: Slots<Connection>,
}

impl Connections {
    fn key(origin: u32, target: u32) -> u64 {
        u64::from(origin) << 32 | u64::from(target)
    }

    #[inline]
    pub(super) fn in_flight(&self, origin: u32, target: u32) -> u32 {
        self.by_ranks.get(&Self::key(origin, target)).map_or(0, |at| self.list[*at].in_flight)
    }

    /// The connection, with one more message in flight.
    #[inline]
    pub(super) fn open(&mut self, origin: u32, target: u32) -> u32 {
        let key = Self::key(origin, target);
        let list = &mut self.list;
        let at = *self.by_ranks.entry(key).or_insert_with(|| {
            list.insert(Connection { key, in_flight: 0, directions: Default::default() })
        });
        self.list[at].in_flight += 1;
        at
    }

    /// Removes one message in flight.
    #[inline]
    pub(super) fn close(&mut self, at: u32) {
        let connection = &mut self.list[at];
        connection.in_flight -= 1;
        if connection.in_flight == 0 {
            debug_assert!(connection.directions.iter().all(
                |direction| direction.parked.is_empty() && direction.sent == direction.admitted
            ));
            self.by_ranks.remove(&connection.key);
            self.list.remove(at);
        }
    }

    /// The direction in which a message travels.
    #[inline]
    pub(super) fn direction(&mut self, message: &Message) -> &mut Direction {
        &mut self.list[message.connection].directions[usize::from(message.back)]
    }
}
