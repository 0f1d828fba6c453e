//! The memory and words to which the records of peers apply: the memory of this process, and words
//! in the segment of its node or in private memory. Node-mates access *the same words, under the
//! same accumulate lock*. So each target has one atomicity domain, the CPU's [LK-7].

use std::collections::VecDeque;

use crate::engine::{Answer, Arrival, Atomic, LockMemory, LockTicket, LockWord, Port, Rank};
use crate::transport::am::Protocol;
use crate::transport::am::target::Target;
use crate::transport::am::wire::Place;
use crate::transport::members::Members;
use crate::transport::peers::{PeerId, Peers};
use crate::transport::shm::ShmWindow;

/// This process's part of a window.
#[derive(Debug)]
pub(super) struct Here<'a> {
    pub(super) members: &'a Members,
    pub(super) shm: &'a mut ShmWindow,
    pub(super) peers: &'a mut Peers,
    /// Tagged notifications for the engine.
    pub(super) arrivals: &'a mut VecDeque<Arrival>,
}

/// The peer of a rank. Adds the peer at first contact.
#[inline]
pub(super) fn peer_of(peers: &mut Peers, am: &mut Protocol, rank: Rank) -> PeerId {
    peers.recall(rank).unwrap_or_else(|| {
        let id = peers.add(rank);
        am.add_peer(id);
        id
    })
}

/// The segment's name of a lock word whose home is on this node: it counts ranks in the segment.
/// `None` for a word of a pair with a process of another node, which lies in private memory.
#[inline]
pub(super) fn word_in_segment(members: &Members, word: LockWord) -> Option<LockWord> {
    Some(match word {
        LockWord::Next { target, parity } => {
            LockWord::Next { target: members.segment_rank(target)?, parity }
        }
        LockWord::Grant { target } => LockWord::Grant { target: members.segment_rank(target)? },
        word => word,
    })
}

/// The next tagged notification of a process that shares memory with this one.
#[inline]
pub(super) fn next_shm_arrival(shm: &mut ShmWindow, members: &Members) -> Option<Arrival> {
    let Arrival { source, tag } = shm.next_arrival()?;
    Some(Arrival { source: members.window_rank(source), tag })
}

impl Target for Here<'_> {
    fn rank(&self) -> Rank {
        self.members.me()
    }

    fn processes(&self) -> u32 {
        self.members.size()
    }

    #[inline]
    fn memory(&self) -> *mut u8 {
        self.shm.base().0 as *mut u8
    }

    fn is_dynamic(&self) -> bool {
        self.shm.is_dynamic()
    }

    #[inline]
    fn reaches(&self, at: u64, len: u64) -> bool {
        self.shm.reaches_own(at, len)
    }

    fn has_attached_runs(&self, Place { disp, len, stride, count }: Place) -> bool {
        count > 1 && self.shm.has_attached_runs(disp, len, stride, u64::from(count))
    }

    fn lock_accumulate(&self, Place { disp, len, stride, count }: Place) -> impl Sized {
        // From the lowest byte of the place on: any other runs lie above the first, or below it.
        let more = i64::from(count.saturating_sub(1)).saturating_mul(stride);
        self.shm.lock_accumulate(disp.saturating_add_signed(more.min(0)), len + more.unsigned_abs())
    }

    #[inline]
    fn counters(&self) -> u32 {
        self.shm.counters_of(self.members.own_segment_rank())
    }

    #[inline]
    fn notify(&mut self, counter: u32) {
        self.shm.notify_here(counter);
    }

    fn notify_tagged(&mut self, arrival: Arrival) {
        // Keep the order of arrival: earlier notifications of node-mates come first.
        while let Some(before) = next_shm_arrival(self.shm, self.members) {
            self.arrivals.push_back(before);
        }
        self.arrivals.push_back(arrival);
    }

    fn access(&mut self, pairs: &mut Protocol, word: LockWord, access: Atomic) -> u64 {
        if let Some(word) = word_in_segment(self.members, word) {
            let me = self.members.own_segment_rank();
            return match self.shm.atomic(me, word, access, LockTicket(0)) {
                Answer::Now(old) => old,
                answer => unreachable!("{answer:?} from shared memory"),
            };
        }
        let (LockWord::Next { target, .. } | LockWord::Grant { target }) = word else {
            unreachable!("all other words lie in the segment")
        };
        let peer = peer_of(self.peers, pairs, target);
        pairs.access_own(peer, word, access)
    }
}
