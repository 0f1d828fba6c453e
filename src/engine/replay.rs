//! Replay: lock operations whose remote atomics may be answered later.
//!
//! A lock operation (`lock`, `exclusion`) is written as one plain function that accesses lock words
//! through [`Replay`]. Where the transport answers at once, the function runs through. Otherwise it
//! returns [`Suspended`], and the answers so far are recorded. When the missing answer arrives, the
//! function runs again from its start, and recorded answers replace the accesses already made. So a
//! lock operation must depend on its arguments and answers only, must have no other side effect
//! before it ends, and must make a bounded number of accesses.

use smallvec::SmallVec;

use super::port::{Answer, Atomic, LockMemory, LockTicket, LockWord, Rank};

/// Recorded answers. A lock operation without contention makes no more than these accesses.
pub(super) type Answers = SmallVec<[u64; 2]>;

/// Why a lock operation could not continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suspended {
    /// The answer to its last access arrives later.
    AwaitsAnswer,
    /// The transport had no resource for its next access.
    NoResource,
}

/// Makes, or replays, the accesses of one lock operation.
#[derive(Debug)]
pub struct Replay<'m, M> {
    memory: &'m mut M,
    me: Rank,
    ticket: LockTicket,
    answers: Answers,
    /// Number of answers used or recorded in this run.
    at: usize,
}

impl<'m, M: LockMemory> Replay<'m, M> {
    /// Starts a lock operation of process `me`.
    #[inline(always)]
    pub fn new(memory: &'m mut M, me: Rank, ticket: LockTicket) -> Self {
        Self::resume(memory, me, ticket, Answers::new())
    }

    /// Replays a lock operation with the `answers` recorded so far.
    #[inline(always)]
    pub(super) fn resume(
        memory: &'m mut M,
        me: Rank,
        ticket: LockTicket,
        answers: Answers,
    ) -> Self {
        Replay { memory, me, ticket, answers, at: 0 }
    }

    #[inline(always)]
    pub(super) fn me(&self) -> Rank {
        self.me
    }

    /// The recorded answers, for the next replay.
    pub(super) fn into_answers(self) -> Answers {
        self.answers
    }

    #[inline(always)]
    fn record(&mut self, value: u64) -> u64 {
        if !M::ANSWERS_AT_ONCE {
            self.answers.push(value);
            self.at += 1;
        }
        value
    }

    #[inline(always)]
    fn replayed(&mut self) -> Option<u64> {
        if M::ANSWERS_AT_ONCE {
            return None;
        }
        let value = self.answers.get(self.at).copied()?;
        self.at += 1;
        Some(value)
    }

    #[inline(always)]
    fn atomic(&mut self, home: Rank, word: LockWord, access: Atomic) -> Result<u64, Suspended> {
        if let Some(value) = self.replayed() {
            return Ok(value);
        }
        match self.memory.atomic(home, word, access, self.ticket) {
            Answer::Now(value) => Ok(self.record(value)),
            answer if M::ANSWERS_AT_ONCE => {
                unreachable!("{answer:?} from lock words that answer at once")
            }
            Answer::Later => Err(Suspended::AwaitsAnswer),
            Answer::NoResource => Err(Suspended::NoResource),
        }
    }

    /// Reads a word of this process.
    #[inline(always)]
    pub(super) fn look(&mut self, word: LockWord) -> u64 {
        if let Some(value) = self.replayed() {
            return value;
        }
        let value = self.memory.look(word);
        self.record(value)
    }

    #[inline(always)]
    pub(super) fn load(&mut self, home: Rank, word: LockWord) -> Result<u64, Suspended> {
        self.atomic(home, word, Atomic::Load)
    }

    #[inline(always)]
    pub(super) fn store(
        &mut self,
        home: Rank,
        word: LockWord,
        value: u64,
    ) -> Result<(), Suspended> {
        self.atomic(home, word, Atomic::Store(value)).map(|_| ())
    }

    /// Exchanges a word at `home` and returns the old value.
    #[inline(always)]
    pub(super) fn swap(
        &mut self,
        home: Rank,
        word: LockWord,
        value: u64,
    ) -> Result<u64, Suspended> {
        self.atomic(home, word, Atomic::Swap(value))
    }

    /// Adds (wrapping) to a word at `home` and returns the old value.
    #[inline(always)]
    pub(super) fn add(&mut self, home: Rank, word: LockWord, delta: u64) -> Result<u64, Suspended> {
        self.atomic(home, word, Atomic::Add(delta))
    }

    /// Stores `new` if the word at `home` equals `expected`. Returns the old value either way.
    #[inline(always)]
    pub(super) fn compare_swap(
        &mut self,
        home: Rank,
        word: LockWord,
        expected: u64,
        new: u64,
    ) -> Result<u64, Suspended> {
        self.atomic(home, word, Atomic::CompareSwap { expected, new })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A word that refuses, or answers later, on demand.
    #[derive(Default)]
    struct Slow {
        word: u64,
        accesses: u32,
        refusals: u32,
        later: bool,
        answer: Option<u64>,
    }

    impl LockMemory for Slow {
        fn atomic(&mut self, _: Rank, _: LockWord, access: Atomic, _: LockTicket) -> Answer {
            if self.refusals > 0 {
                self.refusals -= 1;
                return Answer::NoResource;
            }
            self.accesses += 1;
            let new = access.applied_to(self.word);
            let old = std::mem::replace(&mut self.word, new);
            if self.later {
                self.answer = Some(old);
                return Answer::Later;
            }
            Answer::Now(old)
        }
        fn look(&mut self, _: LockWord) -> u64 {
            self.word
        }
    }

    /// Reads, adds twice, reads again.
    fn operation(mem: &mut Replay<'_, Slow>) -> Result<[u64; 4], Suspended> {
        let first = mem.look(LockWord::Tail);
        let second = mem.add(0, LockWord::Tail, 1)?;
        let third = mem.add(0, LockWord::Tail, 10)?;
        Ok([first, second, third, mem.look(LockWord::Tail)])
    }

    #[test]
    fn a_replayed_operation_makes_each_access_once() {
        for later in [false, true] {
            let mut memory = Slow { later, refusals: 2, ..Slow::default() };
            let mut answers = Answers::new();
            let result = loop {
                let mut replay =
                    Replay::resume(&mut memory, 0, LockTicket(0), std::mem::take(&mut answers));
                let result = operation(&mut replay);
                answers = replay.into_answers();
                match result {
                    Ok(result) => break result,
                    Err(Suspended::AwaitsAnswer) => {
                        answers.push(memory.answer.take().expect("an answer"))
                    }
                    Err(Suspended::NoResource) => assert!(memory.answer.is_none()),
                }
            };
            assert_eq!(result, [0, 0, 1, 11]);
            assert_eq!(memory.accesses, 2);
        }
    }
}
