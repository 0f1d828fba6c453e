//! Signals and lock words of the engine.

use super::super::context::{AtomicOp, PostFlags, Purpose, Requester};
use super::super::device::{AtomicCapability, Opcode};
use super::super::handshake::RemoteAddress;
use super::control_words::{Block, OWN_BLOCK, lock_word_place, signal_place, word_address};
use super::{Endpoint, SentSignal, lock};
use crate::engine::{Answer, Atomic, LockTicket, LockWord, NoResource, Rank, Word};

impl Endpoint {
    /// Writes a signal word of a peer, behind all operations posted there before.
    ///
    /// A device may place the bytes of a write after those of a later one, but what an *atomic*
    /// finds is in place. Therefore a done, which reports earlier operations, is an add to its
    /// word; so is a signal behind a write of the same word that may still be in flight.
    ///
    /// # Errors
    /// There is no room now, or something must be complete first.
    pub fn signal(&mut self, rank: Rank, word: Word, value: u64) -> Result<(), NoResource> {
        let index = self.peer(rank);
        let (conn, remote) = self.connected(index).ok_or(NoResource)?;
        if !self.post_fragments(index) {
            return Err(NoResource);
        }
        let to = word_address(remote.pair_words, signal_place(word));
        let mut context = lock(&self.context);
        let before = self.peers[index as usize].signals[word as usize];
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
        self.peers[index as usize].signals[word as usize] = SentSignal { value, request };
        Ok(())
    }

    /// Whether a done may be sent right behind operations to a peer [FE-2]. Otherwise it has to
    /// wait until they are complete.
    #[inline]
    #[must_use]
    pub fn signals_follow(&self, rank: Rank) -> bool {
        self.nic_locks || !self.reaches(rank)
    }

    /// The value of a signal word that a peer writes here.
    #[inline]
    #[must_use]
    pub fn observe(&self, rank: Rank, word: Word) -> u64 {
        self.index.get(&rank).map_or(0, |index| {
            self.words.load(self.peers[*index as usize].block, signal_place(word))
        })
    }

    /// Accesses a lock word, if [`serves_locks`](Self::serves_locks).
    pub fn atomic(
        &mut self,
        home: Rank,
        word: LockWord,
        access: Atomic,
        ticket: LockTicket,
    ) -> Answer {
        // Loads of one's own words need no device; nor do stores, while nobody else writes.
        if home == self.me
            && (self.atomics == AtomicCapability::Global
                || matches!(access, Atomic::Load | Atomic::Store(_)))
        {
            let block = self.block_of(word);
            return Answer::Now(self.words.access(block, lock_word_place(word), access));
        }
        let Some(to) = self.lock_word_address(home, word) else { return Answer::NoResource };
        let index = self.peer(home);
        let Some((conn, _)) = self.connected(index) else { return Answer::NoResource };
        let (requester, op) = (Requester::Lock(ticket), AtomicOp::Word(access));
        match lock(&self.context).access(conn, self.window, requester, to, op) {
            Ok(()) => Answer::Later,
            Err(NoResource) => Answer::NoResource,
        }
    }

    /// Reads a lock word of this process.
    #[must_use]
    pub fn read_lock_word(&mut self, word: LockWord) -> u64 {
        let block = self.block_of(word);
        self.words.load(block, lock_word_place(word))
    }

    /// The block of this process that contains a lock word.
    fn block_of(&mut self, word: LockWord) -> Block {
        match word {
            LockWord::Next { target, .. } | LockWord::Grant { target } => {
                let index = self.peer(target);
                self.peers[index as usize].block
            }
            _ => OWN_BLOCK,
        }
    }

    /// Address of a lock word of process `home`, if known already.
    fn lock_word_address(&mut self, home: Rank, word: LockWord) -> Option<RemoteAddress> {
        if home == self.me {
            let block = self.block_of(word);
            return Some(word_address(self.words.address(block), lock_word_place(word)));
        }
        let index = self.peer(home);
        let (_, remote) = self.connected(index)?;
        let block = match word {
            LockWord::Next { target, .. } | LockWord::Grant { target } if target == self.me => {
                remote.pair_words
            }
            LockWord::Next { target, .. } | LockWord::Grant { target } => {
                self.third_party_words(home, target)?
            }
            _ => remote.words,
        };
        Some(word_address(block, lock_word_place(word)))
    }
}
