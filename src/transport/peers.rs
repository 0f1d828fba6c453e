//! The peers of a window that the network reaches.
//!
//! A peer gets a number at first contact. Active messages and RDMA store their state of the peer
//! under that number. So each operation looks up a rank only once, and one list has the peers that
//! the next poll must visit. Memory grows with the peers that are used.

use hashbrown::HashMap;

use crate::engine::Rank;

/// A peer of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PeerId {
    /// Its number, from 0 in the order of first contact.
    pub number: u32,
    /// Its rank in the window.
    pub rank: Rank,
}

impl PeerId {
    /// Its number, as an index.
    #[inline]
    #[must_use]
    pub fn at(self) -> usize {
        self.number as usize
    }
}

/// The peers that a process has met in a window.
#[derive(Debug)]
pub struct Peers {
    numbers: HashMap<Rank, u32>,
    /// By number: the peer's rank, and whether it is in `active`.
    all: Vec<(Rank, bool)>,
    /// Peers with work for the next poll.
    active: Vec<PeerId>,
    /// The peer that was looked up last.
    last: PeerId,
}

impl Default for Peers {
    fn default() -> Self {
        Peers {
            numbers: HashMap::new(),
            all: Vec::new(),
            active: Vec::new(),
            last: PeerId { number: 0, rank: Rank::MAX },
        }
    }
}

impl Peers {
    /// A peer that this process has met.
    #[inline]
    #[must_use]
    pub fn find(&self, rank: Rank) -> Option<PeerId> {
        if self.last.rank == rank {
            return Some(self.last);
        }
        Some(PeerId { number: *self.numbers.get(&rank)?, rank })
    }

    /// As [`find`](Self::find), and makes the next lookup of this peer fast.
    #[inline]
    pub fn recall(&mut self, rank: Rank) -> Option<PeerId> {
        self.last = self.find(rank)?;
        Some(self.last)
    }

    /// All peers that this process has met.
    pub fn all(&self) -> impl Iterator<Item = PeerId> {
        (0..).zip(&self.all).map(|(number, (rank, _))| PeerId { number, rank: *rank })
    }

    /// Numbers a peer that this process meets for the first time.
    #[cold]
    pub fn add(&mut self, rank: Rank) -> PeerId {
        let number = self.all.len() as u32;
        self.numbers.insert(rank, number);
        self.all.push((rank, false));
        PeerId { number, rank }
    }

    /// Has the next poll visit a peer.
    #[inline]
    pub fn activate(&mut self, peer: PeerId) {
        if !std::mem::replace(&mut self.all[peer.at()].1, true) {
            self.active.push(peer);
        }
    }

    /// Has the next poll visit all peers.
    pub fn activate_all(&mut self) {
        self.active = self.all().collect();
        self.all.iter_mut().for_each(|(_, is_active)| *is_active = true);
    }

    /// The active peer at index `at` of the list of active peers.
    #[inline]
    #[must_use]
    pub fn active(&self, at: usize) -> Option<PeerId> {
        self.active.get(at).copied()
    }

    /// Removes the active peer at index `at`, which has no more work. Another takes its index.
    #[inline]
    pub fn retire(&mut self, at: usize) {
        let peer = self.active.swap_remove(at);
        self.all[peer.at()].1 = false;
    }

    /// Whether no peer has work for the next poll.
    #[inline]
    #[must_use]
    pub fn are_idle(&self) -> bool {
        self.active.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_keeps_its_number_and_is_active_once() {
        let mut peers = Peers::default();
        assert_eq!(peers.find(7), None);
        let (seven, three) = (peers.add(7), peers.add(3));
        assert_eq!((seven.number, three.number), (0, 1));
        assert_eq!((peers.find(7), peers.find(3)), (Some(seven), Some(three)));
        for _ in 0..2 {
            peers.activate(seven);
            peers.activate(three);
        }
        assert_eq!([0, 1, 2].map(|at| peers.active(at)), [Some(seven), Some(three), None]);
        peers.retire(0);
        assert_eq!([0, 1].map(|at| peers.active(at)), [Some(three), None]);
        peers.activate(seven);
        peers.retire(0);
        peers.retire(0);
        assert!(peers.are_idle());
    }
}
