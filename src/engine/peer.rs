//! What a process knows of each peer: `ω = ⟨a, e, g⟩` of the paper's section VII.B, and the epochs
//! that wait for the peer.

use std::collections::{BTreeMap, VecDeque};

use hashbrown::HashMap;

use super::port::Rank;
use super::slab::Key;

/// An active epoch that waits until a word of the peer reaches `value`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiter {
    pub(super) value: u64,
    pub(super) epoch: Key,
}

/// A word that the peer writes in this process, and the epochs that wait for it.
#[derive(Debug, Default)]
pub(super) struct AwaitedWord {
    /// The value as last observed.
    pub(super) seen: u64,
    /// In ascending order of the awaited value.
    pub(super) waiters: VecDeque<Waiter>,
}

impl AwaitedWord {
    /// Removes and returns the next epoch whose value has been observed.
    #[inline]
    pub(super) fn next_reached(&mut self) -> Option<Key> {
        self.waiters.pop_front_if(|waiter| waiter.value <= self.seen).map(|waiter| waiter.epoch)
    }
}

/// One peer. Only start and post epochs use ω [MA-1]; locks have words of their own.
#[derive(Debug, Default)]
pub(super) struct Peer {
    pub(super) rank: Rank,
    /// `a`: accesses requested from the peer.
    pub(super) accesses: u64,
    /// `e`: exposures opened to the peer.
    pub(super) exposures: u64,
    /// `Grant`: its value is `g`, the accesses granted by the peer; access epochs wait for it.
    /// `Done`: exposures that the peer has finished with; exposure epochs wait for it.
    pub(super) words: [AwaitedWord; 2],
    /// Largest access id up to which all accesses are done: the value of `Done` [MA-2].
    pub(super) done: u64,
    /// Accesses whose done has not been sent, because an earlier one is missing or for lack of
    /// resources.
    pub(super) dones_held: BTreeMap<u64, Key>,
    /// The lock epoch on the peer that the application has open.
    pub(super) lock_open: Option<Key>,
    /// The lock epoch on the peer that is active [AC-3].
    pub(super) lock_active: Option<Key>,
    /// `Grant`, `Done`: true if the transport had no resource to send the current value.
    pub(super) unsent: [bool; 2],
    /// Number of lock requests made to the peer.
    pub(super) lock_sequence: u32,
}

/// Peers by rank, created at first contact.
#[derive(Debug)]
pub(super) struct Peers {
    by_rank: HashMap<Rank, u32>,
    list: Vec<Peer>,
    last: (Rank, u32),
}

impl Peers {
    pub(super) fn new() -> Self {
        Peers { by_rank: HashMap::new(), list: Vec::new(), last: (0, u32::MAX) }
    }

    /// Index of the peer for [`Peers`]' `[]`, creating the peer if necessary.
    #[inline]
    pub(super) fn index(&mut self, rank: Rank) -> u32 {
        if self.last.0 == rank && self.last.1 != u32::MAX {
            return self.last.1;
        }
        self.index_slow(rank)
    }

    fn index_slow(&mut self, rank: Rank) -> u32 {
        let list = &mut self.list;
        let index = *self.by_rank.entry(rank).or_insert_with(|| {
            list.push(Peer { rank, ..Peer::default() });
            list.len() as u32 - 1
        });
        self.last = (rank, index);
        index
    }

    /// Index of the peer, if there has been contact.
    #[inline]
    pub(super) fn index_of(&self, rank: Rank) -> Option<u32> {
        if self.last.0 == rank && self.last.1 != u32::MAX {
            Some(self.last.1)
        } else {
            self.by_rank.get(&rank).copied()
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.list.iter()
    }

    /// The peer, if there has been contact.
    #[inline]
    pub(super) fn find(&self, rank: Rank) -> Option<&Peer> {
        self.index_of(rank).map(|index| &self[index])
    }

    #[inline]
    pub(super) fn of(&mut self, rank: Rank) -> &mut Peer {
        let index = self.index(rank);
        &mut self.list[index as usize]
    }
}

impl std::ops::Index<u32> for Peers {
    type Output = Peer;
    #[inline]
    fn index(&self, index: u32) -> &Peer {
        &self.list[index as usize]
    }
}

impl std::ops::IndexMut<u32> for Peers {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut Peer {
        &mut self.list[index as usize]
    }
}

/// Frees the memory of an empty queue that had grown large.
pub(super) fn shrink<T>(queue: &mut VecDeque<T>) {
    if queue.is_empty() && queue.capacity() > 1024 {
        *queue = VecDeque::new();
    }
}
