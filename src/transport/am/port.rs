//! The engine's port of a window with messages. For each target it chooses shared memory, RDMA or
//! active messages.

use super::MessageWindow;
use super::channel::Channel;
use crate::engine::{
    Answer, Arrival, Atomic, LockMemory, LockTicket, LockWord, NoResource, Op, Port, Posted, Rank,
    Stage, Ticket, Word,
};

impl<C: Channel + ?Sized> MessageWindow<C> {
    /// The name in the segment of a lock word whose home is on this node; `None` if the word
    /// concerns a process of another node and is kept in private memory.
    #[inline]
    fn word_in_segment(&self, word: LockWord) -> Option<LockWord> {
        match word {
            LockWord::Next { target, parity } => {
                self.members.segment_rank(target).map(|target| LockWord::Next { target, parity })
            }
            LockWord::Grant { target } => {
                self.members.segment_rank(target).map(|target| LockWord::Grant { target })
            }
            word => Some(word),
        }
    }

    /// Accesses a lock word of this process.
    pub(super) fn access_here(&mut self, word: LockWord, access: Atomic) -> u64 {
        if let Some(word) = self.word_in_segment(word) {
            let me = self.members.own_segment_rank();
            return match self.shm.atomic(me, word, access, LockTicket(0)) {
                Answer::Now(old) => old,
                answer => unreachable!("{answer:?} from shared memory"),
            };
        }
        let (LockWord::Next { target, .. } | LockWord::Grant { target }) = word else {
            unreachable!("all other words lie in the segment")
        };
        let index = self.peer_index(target);
        let words = &mut self.peers[index as usize].words;
        let place = match word {
            LockWord::Next { parity, .. } => &mut words.next[usize::from(parity & 1)],
            _ => &mut words.grant,
        };
        let old = *place;
        *place = access.applied_to(old);
        old
    }
}

impl<C: Channel + ?Sized> LockMemory for MessageWindow<C> {
    fn atomic(&mut self, home: Rank, word: LockWord, access: Atomic, ticket: LockTicket) -> Answer {
        if let Some(answer) = self.access_lock_word_rdma(home, word, access, ticket) {
            return answer;
        }
        if home == self.members.me() {
            return Answer::Now(self.access_here(word, access));
        }
        // [LK-7] Whether a word lies in the segment depends on its home and name alone.
        if let Some(home) = self.members.shm_rank(home)
            && let Some(word) = self.word_in_segment(word)
        {
            return self.shm.atomic(home, word, access, ticket);
        }
        let index = self.peer_index(home);
        let peer = &mut self.peers[index as usize];
        if self.broken || peer.room(&mut *self.channel, 0).is_none() {
            return Answer::NoResource;
        }
        peer.request_packet().access(word, access, ticket.0);
        self.pending_atomics.insert(ticket.0, home);
        peer.flush(&mut *self.channel, false);
        self.activate(index);
        Answer::Later
    }

    fn look(&mut self, word: LockWord) -> u64 {
        match self.read_lock_word_rdma(word) {
            Some(value) => value,
            None => self.access_here(word, Atomic::Load),
        }
    }
}

impl<C: Channel + ?Sized> Port for MessageWindow<C> {
    #[inline]
    fn signals_follow(&self, peer: Rank) -> bool {
        self.members.shm_rank(peer).is_none()
            && self.channel.endpoint().is_none_or(|endpoint| endpoint.signals_follow(peer))
    }

    #[inline]
    fn post(&mut self, op: &Op, ticket: Ticket) -> Posted {
        if op.notification.is_some() && self.owes_notification(op.target) {
            return Posted::NoResource;
        }
        let posted = match self.members.shm_rank(op.target) {
            Some(_) if self.must_follow_rdma(op) => Some(Posted::NoResource),
            Some(_) => self.post_rdma_atomic(op, ticket),
            None => self.post_rdma(op, ticket),
        };
        posted.unwrap_or_else(|| match self.members.shm_rank(op.target) {
            Some(target) => self.shm.post(&Op { target, ..*op }, ticket),
            None => self.post_am(op, ticket),
        })
    }

    fn signal(&mut self, peer: Rank, word: Word, value: u64) -> Result<(), NoResource> {
        if let Some(peer) = self.members.shm_rank(peer) {
            return self.shm.signal(peer, word, value);
        }
        if self.owes_notification(peer) {
            return Err(NoResource);
        }
        if let Some(signalled) = self.signal_rdma(peer, word, value) {
            return signalled;
        }
        let index = self.peer_index(peer);
        let peer = &mut self.peers[index as usize];
        // The target defers a signal until the operations before it are done [FE-2]. All their
        // records must have been written.
        if self.broken || peer.fragmented.is_some() || peer.room(&mut *self.channel, 0).is_none() {
            return Err(NoResource);
        }
        peer.request_packet().signal(word, value);
        peer.flush(&mut *self.channel, false);
        self.activate(index);
        Ok(())
    }

    fn observe(&mut self, peer: Rank, word: Word) -> u64 {
        if let Some(peer) = self.members.shm_rank(peer) {
            return self.shm.observe(peer, word);
        }
        let by_message = self
            .index
            .get(&peer)
            .map_or(0, |index| self.peers[*index as usize].words.signals[word as usize]);
        by_message.max(self.observe_rdma(peer, word))
    }

    #[inline]
    fn counter(&mut self, index: u32) -> u64 {
        self.shm.counter(index)
    }

    fn next_arrival(&mut self) -> Option<Arrival> {
        self.arrivals.pop_front().or_else(|| self.next_shm_arrival())
    }

    fn poll(&mut self) -> bool {
        let moved = self.shm.poll();
        self.poll_messages() | moved
    }

    fn next_finished(&mut self) -> Option<(Ticket, Stage)> {
        self.finished.pop_front().or_else(|| self.shm.next_finished())
    }

    fn next_failed(&mut self) -> Option<Ticket> {
        self.failed.pop_front()
    }

    fn next_answer(&mut self) -> Option<(LockTicket, u64)> {
        self.answers.pop_front()
    }
}
