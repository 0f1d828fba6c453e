//! Messages under way, and the connections that they belong to.

use super::Time;
use super::words::Map;
use crate::engine::{Atomic, LockWord, Word};

/// End of a list.
pub(super) const NIL: u32 = u32::MAX;
/// What a notification says that was counted before it set out, by a [violation](super::violation).
pub(super) const COUNTED: u64 = u64::MAX;

/// What a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Put,
    Get,
    Accumulate,
    /// Accumulates and compare-and-swaps with a result.
    Fetch,
    /// Raises a counter.
    Notify,
    /// Tells a tag.
    NotifyTagged,
    Signal(Word),
    /// An access to a lock word.
    Access(LockWord, Atomic),
    /// The caller's own.
    Packet,
}

/// How it travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Path {
    /// Stores and loads of one node.
    Shared,
    /// Through the NIC, to its own node.
    Loopback,
    /// To another node.
    Wire,
}

/// A message under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pub(super) origin: u32,
    pub(super) target: u32,
    pub(super) window: u32,
    /// Of the operation or lock procedure.
    pub(super) ticket: u32,
    pub(super) pair: u32,
    /// Its place among those of its pair and direction.
    pub(super) number: u32,
    /// The next one that waits for its turn.
    pub(super) next: u32,
    pub(super) purpose: Purpose,
    pub(super) path: Path,
    /// An answer: from the target to the origin.
    pub(super) back: bool,
    /// The origin's buffer was taken along when it was posted.
    pub(super) inlined: bool,
    /// On the wire, in this direction.
    pub(super) bytes: u64,
    /// Of a signal; of an access, what the word held; of a packet, what it says; of a notification,
    /// which counter or tag.
    pub(super) value: u64,
}

/// A slab: places are reused, last freed first.
#[derive(Default)]
pub(super) struct Messages {
    list: Vec<Message>,
    free: Vec<u32>,
}

impl Messages {
    #[inline]
    pub(super) fn insert(&mut self, message: Message) -> u32 {
        match self.free.pop() {
            Some(id) => {
                self.list[id as usize] = message;
                id
            }
            None => {
                self.list.push(message);
                self.list.len() as u32 - 1
            }
        }
    }

    #[inline]
    pub(super) fn remove(&mut self, id: u32) {
        self.free.push(id);
    }

    pub(super) fn alive(&self) -> usize {
        self.list.len() - self.free.len()
    }
}

impl std::ops::Index<u32> for Messages {
    type Output = Message;
    #[inline]
    fn index(&self, id: u32) -> &Message {
        &self.list[id as usize]
    }
}

impl std::ops::IndexMut<u32> for Messages {
    #[inline]
    fn index_mut(&mut self, id: u32) -> &mut Message {
        &mut self.list[id as usize]
    }
}

/// One direction of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Direction {
    /// Messages that set out.
    pub(super) sent: u32,
    /// Messages that have their time of landing.
    pub(super) admitted: u32,
    /// When the last of these lands; the next lands after it.
    pub(super) landed: Time,
    /// When the last byte of the last one leaves.
    pub(super) left: Time,
    /// Messages that came before their predecessors, in order.
    pub(super) parked: u32,
}

/// A connection with messages under way. One without any is forgotten: it could not be told from a
/// new one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    key: u64,
    pub(super) in_flight: u32,
    /// To the target, and back.
    pub(super) ways: [Direction; 2],
}

/// All connections in use.
#[derive(Default)]
pub(super) struct Pairs {
    by_ranks: Map<u64, u32>,
    list: Vec<Pair>,
    free: Vec<u32>,
}

const IDLE: Direction = Direction { sent: 0, admitted: 0, landed: 0, left: 0, parked: NIL };

impl Pairs {
    fn key(origin: u32, target: u32) -> u64 {
        u64::from(origin) << 32 | u64::from(target)
    }

    /// Messages under way on a connection.
    #[inline]
    pub(super) fn in_flight(&self, origin: u32, target: u32) -> u32 {
        self.by_ranks
            .get(&Self::key(origin, target))
            .map_or(0, |at| self.list[*at as usize].in_flight)
    }

    /// The connection, for one more message.
    #[inline]
    pub(super) fn open(&mut self, origin: u32, target: u32) -> u32 {
        let key = Self::key(origin, target);
        let (list, free) = (&mut self.list, &mut self.free);
        let at = *self.by_ranks.entry(key).or_insert_with(|| {
            let pair = Pair { key, in_flight: 0, ways: [IDLE; 2] };
            match free.pop() {
                Some(at) => {
                    list[at as usize] = pair;
                    at
                }
                None => {
                    list.push(pair);
                    list.len() as u32 - 1
                }
            }
        });
        self.list[at as usize].in_flight += 1;
        at
    }

    /// One message less.
    #[inline]
    pub(super) fn close(&mut self, at: u32) {
        let pair = &mut self.list[at as usize];
        pair.in_flight -= 1;
        if pair.in_flight == 0 {
            debug_assert!(
                pair.ways.iter().all(|way| way.parked == NIL && way.sent == way.admitted)
            );
            self.by_ranks.remove(&pair.key);
            self.free.push(at);
        }
    }

    #[inline]
    pub(super) fn way(&mut self, at: u32, back: bool) -> &mut Direction {
        &mut self.list[at as usize].ways[usize::from(back)]
    }
}
