//! Accesses to lock words whose answers may come later.
//!
//! A procedure of the lock service (`lock`, `exclusion`) is written as one function that accesses
//! words in turn through [`Replay`]. Where the transport answers at once it runs through. Where an
//! answer is still to come it ends with [`Suspended`]; what was answered until then is kept
//! ([`Answers`]), and when the answer is there the function runs again from its beginning, the kept
//! answers standing for the accesses that were made. So a procedure must depend on its arguments
//! and answers alone, must not act on anything else before its end, and must have a bounded number
//! of accesses.

use super::port::{Answer, Atomic, LockMemory, LockTicket, LockWord, Rank};

/// Answers so far. Nothing is allocated as long as there are none to keep.
pub(super) type Answers = Vec<u64>;

/// Why a procedure has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suspended {
    /// An answer is under way.
    AwaitsAnswer,
    /// The transport had no resource for the next access.
    NoResource,
}

/// The accesses of one procedure.
#[derive(Debug)]
pub struct Replay<'m, M> {
    memory: &'m mut M,
    me: Rank,
    ticket: LockTicket,
    answers: Answers,
    at: usize,
}

impl<'m, M: LockMemory> Replay<'m, M> {
    /// The first steps of a procedure of process `me`.
    #[inline(always)]
    pub fn new(memory: &'m mut M, me: Rank, ticket: LockTicket) -> Self {
        Self::again(memory, me, ticket, Answers::new())
    }

    /// The steps of a procedure whose answers so far are `answers`.
    #[inline(always)]
    pub(super) fn again(memory: &'m mut M, me: Rank, ticket: LockTicket, answers: Answers) -> Self {
        Replay { memory, me, ticket, answers, at: 0 }
    }

    /// The process that makes these steps.
    #[inline(always)]
    pub(super) fn me(&self) -> Rank {
        self.me
    }

    /// What was answered, for the next run.
    pub(super) fn into_answers(self) -> Answers {
        self.answers
    }

    #[inline(always)]
    fn answered(&mut self, value: u64) -> u64 {
        if !M::ANSWERS_AT_ONCE {
            self.answers.push(value);
            self.at += 1;
        }
        value
    }

    #[inline(always)]
    fn known(&mut self) -> Option<u64> {
        if M::ANSWERS_AT_ONCE {
            return None;
        }
        let value = self.answers.get(self.at).copied()?;
        self.at += 1;
        Some(value)
    }

    #[inline(always)]
    fn atomic(&mut self, home: Rank, word: LockWord, access: Atomic) -> Result<u64, Suspended> {
        if let Some(value) = self.known() {
            return Ok(value);
        }
        match self.memory.atomic(home, word, access, self.ticket) {
            Answer::Now(value) => Ok(self.answered(value)),
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
        if let Some(value) = self.known() {
            return value;
        }
        let value = self.memory.look(word);
        self.answered(value)
    }

    /// Reads a word at `home`.
    #[inline(always)]
    pub(super) fn load(&mut self, home: Rank, word: LockWord) -> Result<u64, Suspended> {
        self.atomic(home, word, Atomic::Load)
    }

    /// Writes a word at `home`.
    #[inline(always)]
    pub(super) fn store(
        &mut self,
        home: Rank,
        word: LockWord,
        value: u64,
    ) -> Result<(), Suspended> {
        self.atomic(home, word, Atomic::Store(value)).map(|_| ())
    }

    /// Exchanges a word at `home`, giving the old value.
    #[inline(always)]
    pub(super) fn swap(
        &mut self,
        home: Rank,
        word: LockWord,
        value: u64,
    ) -> Result<u64, Suspended> {
        self.atomic(home, word, Atomic::Swap(value))
    }

    /// Adds (wrapping) to a word at `home`, giving the old value.
    #[inline(always)]
    pub(super) fn add(&mut self, home: Rank, word: LockWord, delta: u64) -> Result<u64, Suspended> {
        self.atomic(home, word, Atomic::Add(delta))
    }

    /// Stores `new` if the word at `home` is `expected`; gives the old value either way.
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

    /// Answers when it is told to.
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

    /// Looks, adds twice, looks again.
    fn procedure(s: &mut Replay<'_, Slow>) -> Result<[u64; 4], Suspended> {
        let first = s.look(LockWord::Tail);
        let second = s.add(0, LockWord::Tail, 1)?;
        let third = s.add(0, LockWord::Tail, 10)?;
        Ok([first, second, third, s.look(LockWord::Tail)])
    }

    #[test]
    fn a_procedure_makes_each_access_once_whenever_the_answers_come() {
        for later in [false, true] {
            let mut memory = Slow { later, refusals: 2, ..Slow::default() };
            let mut answers = Answers::new();
            let result = loop {
                let mut steps =
                    Replay::again(&mut memory, 0, LockTicket(0), std::mem::take(&mut answers));
                let result = procedure(&mut steps);
                answers = steps.into_answers();
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
