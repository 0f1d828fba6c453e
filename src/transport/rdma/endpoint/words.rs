//! The engine's signals and lock words.

use super::super::context::{AtomicOp, PostFlags, Purpose, Requester};
use super::super::device::{AtomicCapability, Opcode};
use super::super::handshake::{RemoteAddress, RemoteWindow};
use super::control_words::{Block, OWN_BLOCK, lock_word_place, signal_place, word_address};
use super::{Endpoint, SentSignal};
use crate::engine::{Answer, Atomic, LockTicket, LockWord, NoResource, Rank, Word};
use crate::transport::peers::PeerId;

impl Endpoint {
    /// Writes a signal word of a peer, behind all operations posted there before.
    ///
    /// A device may place the bytes of a write after those of a later write. Writes before an
    /// *atomic* are in place when it executes. So a done, which reports earlier operations, is an
    /// add to its word. So is a signal if an earlier write of its word may still be in flight.
    ///
    /// # Errors
    /// There is no room now, or earlier requests must complete first.
    pub fn signal(&mut self, peer: PeerId, word: Word, value: u64) -> Result<(), NoResource> {
        let (conn, remote) = self.connected(peer).ok_or(NoResource)?;
        if !self.post_fragments(peer) {
            return Err(NoResource);
        }
        let to = word_address(remote.pair_words, signal_place(word));
        let mut context = self.context.borrow();
        let before = self.peers[peer.at()].signals[word as usize];
        let complete = context.is_complete(conn, before.request);
        if self.nic_locks && (word == Word::Done || !complete) {
            let op = AtomicOp::Word(Atomic::Add(value.wrapping_sub(before.value)));
            context.access(conn, self.window, Requester::Signal, to, op)?;
        } else if complete {
            let flags = PostFlags { fence: true, urgent: true, ..PostFlags::default() };
            let bytes = value.to_ne_bytes();
            let write = (Opcode::Write, to);
            context.post_bytes(conn, self.window, write, &bytes, flags, Purpose::Fragment)?;
        } else {
            context.request_completion(conn, self.window);
            return Err(NoResource);
        }
        let request = context.last_posted(conn);
        self.peers[peer.at()].signals[word as usize] = SentSignal { value, request };
        Ok(())
    }

    /// Whether a done may be sent right behind operations to a process [FE-2]. Otherwise it has to
    /// wait until they are complete.
    #[inline]
    #[must_use]
    pub fn signals_follow(&self, rank: Rank) -> bool {
        self.nic_locks || !self.reaches(rank)
    }

    /// The value of a signal word that a peer writes here.
    #[inline]
    #[must_use]
    pub fn observe(&self, peer: PeerId, word: Word) -> u64 {
        let block = self.peers.get(peer.at()).and_then(|peer| peer.block);
        block.map_or(0, |block| self.words.load(block, signal_place(word)))
    }

    /// Accesses a lock word of process `home`, if [`serves_locks`](Self::serves_locks). For a word
    /// that `home` keeps for a pair, `pair` is the other process.
    pub fn atomic(
        &mut self,
        home: PeerId,
        (word, pair): (LockWord, Option<PeerId>),
        access: Atomic,
        ticket: LockTicket,
    ) -> Answer {
        // Loads of one's own words need no device. Nor do stores, as nobody else writes then.
        if home.rank == self.me
            && (self.atomics == AtomicCapability::Global
                || matches!(access, Atomic::Load | Atomic::Store(_)))
        {
            let block = self.block_of(pair);
            return Answer::Now(self.words.access(block, lock_word_place(word), access));
        }
        let Some((conn, remote)) = self.connected(home) else { return Answer::NoResource };
        let Some(block) = self.block_at(home, pair, &remote) else { return Answer::NoResource };
        let to = word_address(block, lock_word_place(word));
        let (requester, op) = (Requester::Lock(ticket), AtomicOp::Word(access));
        match self.context.borrow().access(conn, self.window, requester, to, op) {
            Ok(()) => Answer::Later,
            Err(NoResource) => Answer::NoResource,
        }
    }

    /// Reads a lock word of this process; `pair` as in [`atomic`](Self::atomic).
    #[must_use]
    pub fn read_lock_word(&mut self, word: LockWord, pair: Option<PeerId>) -> u64 {
        let block = self.block_of(pair);
        self.words.load(block, lock_word_place(word))
    }

    /// This process's block for a pair, or its own block.
    fn block_of(&mut self, pair: Option<PeerId>) -> Block {
        pair.map_or(OWN_BLOCK, |peer| self.block(peer))
    }

    /// The address of process `home`'s block for a pair, or of its own block. `None` if it is not
    /// known yet. `remote` is its part of the window.
    fn block_at(
        &mut self,
        home: PeerId,
        pair: Option<PeerId>,
        remote: &RemoteWindow,
    ) -> Option<RemoteAddress> {
        if home.rank == self.me {
            let block = self.block_of(pair);
            return Some(self.words.address(block));
        }
        match pair {
            Some(peer) if peer.rank == self.me => Some(remote.pair_words),
            Some(peer) => self.third_party_words(home, peer.rank),
            None => Some(remote.words),
        }
    }
}
