//! What one process remembers of another: ω = ⟨a, e, g⟩ of the paper's section VII.B, and who waits
//! for it.

use std::collections::{BTreeMap, VecDeque};

use hashbrown::HashMap;

use super::port::Rank;
use super::slab::Key;

/// An active access epoch whose access to the peer is not granted yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct AccessWaiter {
    pub(super) access: u64,
    pub(super) epoch: Key,
}

/// An active exposure epoch that the peer has not finished with.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExposureWaiter {
    pub(super) exposure: u64,
    pub(super) epoch: Key,
}

/// One peer. Only start and post epochs touch ω [MA-1]; locks have their own words.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) rank: Rank,
    /// a: accesses requested to the peer.
    pub(super) accesses: u64,
    /// e: exposures opened to the peer.
    pub(super) exposures: u64,
    /// g: accesses granted by the peer, as last observed.
    pub(super) granted: u64,
    /// Exposures that the peer is done with, as last observed.
    pub(super) done_seen: u64,
    /// The last of the accesses to the peer that are done without a gap: what `Done` is to say
    /// [MA-2].
    pub(super) done: u64,
    /// Accesses that are done but whose done has not left: it waits for an earlier one, or for the
    /// transport.
    pub(super) dones_held: BTreeMap<u64, Key>,
    /// In order of access id.
    pub(super) access_waiters: VecDeque<AccessWaiter>,
    /// In order of exposure id.
    pub(super) exposure_waiters: VecDeque<ExposureWaiter>,
    /// The lock epoch on the peer that the application has open.
    pub(super) lock_open: Option<Key>,
    /// The lock epoch on the peer that is active [AC-3].
    pub(super) lock_active: Option<Key>,
    /// The transport had no resource for the present value of `Grant`, `Done`.
    pub(super) unsent: [bool; 2],
    /// Lock requests made to the peer.
    pub(super) lock_sequence: u32,
}

/// Peers by rank, made at first contact.
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

    /// Index of the peer, for [`Peers`]' `[]`.
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
            list.push(Peer {
                rank,
                accesses: 0,
                exposures: 0,
                granted: 0,
                done_seen: 0,
                done: 0,
                dones_held: BTreeMap::new(),
                access_waiters: VecDeque::new(),
                exposure_waiters: VecDeque::new(),
                lock_open: None,
                lock_active: None,
                unsent: [false; 2],
                lock_sequence: 0,
            });
            list.len() as u32 - 1
        });
        self.last = (rank, index);
        index
    }

    /// Index of the peer, if there was contact.
    #[inline]
    pub(super) fn index_of(&self, rank: Rank) -> Option<u32> {
        if self.last.0 == rank && self.last.1 != u32::MAX {
            Some(self.last.1)
        } else {
            self.by_rank.get(&rank).copied()
        }
    }

    /// All peers with which there was contact.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.list.iter()
    }

    /// The peer, if there was contact.
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

/// Gives memory back once a queue that had grown is empty.
pub(super) fn shrink<T>(queue: &mut VecDeque<T>) {
    if queue.is_empty() && queue.capacity() > 1024 {
        *queue = VecDeque::new();
    }
}
