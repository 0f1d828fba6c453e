//! The rising words of each pair of ranks, the lock words and the notification counters. Lock words
//! that are 0 take no memory.

use hashbrown::HashMap;

use crate::engine::{Atomic, LockWord, Word};

const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

/// Folds a value into a running hash.
#[inline]
pub(super) fn fold(hash: &mut u64, value: u64) {
    *hash = (hash.rotate_left(5) ^ value).wrapping_mul(FACTOR);
}

/// Two ranks, and the window with a code for the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct WordKey {
    ranks: u64,
    what: u32,
}

fn two(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// All words of all ranks and windows.
#[derive(Default)]
pub(super) struct WordStore {
    words: HashMap<WordKey, u64>,
    /// Notification counters, by window and rank, and by number.
    counters: HashMap<(u64, u32), u64>,
}

/// Bits for the word's code, below the window's number.
const WHAT_BITS: u32 = 4;

impl WordStore {
    fn signal_key(window: u32, reader: u32, writer: u32, word: Word) -> WordKey {
        WordKey { ranks: two(reader, writer), what: window << WHAT_BITS | word as u32 }
    }

    fn lock_key(window: u32, home: u32, word: LockWord) -> WordKey {
        let (code, target) = match word {
            LockWord::Holders => (3, 0),
            LockWord::Intent => (4, 0),
            LockWord::Tail => (5, 0),
            LockWord::Readers => (6, 0),
            LockWord::NextWriter => (7, 0),
            LockWord::Licensed => (8, 0),
            LockWord::Licence => (9, 0),
            LockWord::NextLicensed => (10, 0),
            LockWord::Grant { target } => (11, target),
            LockWord::Next { target, parity } => (12 + u32::from(parity & 1), target),
        };
        WordKey { ranks: two(home, target), what: window << WHAT_BITS | code }
    }

    /// The value that `writer` has sent to `reader`.
    #[inline]
    pub(super) fn seen(&self, window: u32, reader: u32, writer: u32, word: Word) -> u64 {
        self.words.get(&Self::signal_key(window, reader, writer, word)).copied().unwrap_or(0)
    }

    /// Raises a word of a pair to `value`. True if it was lower.
    #[inline]
    pub(super) fn raise(
        &mut self,
        window: u32,
        reader: u32,
        writer: u32,
        word: Word,
        value: u64,
    ) -> bool {
        let seen = self.words.entry(Self::signal_key(window, reader, writer, word)).or_insert(0);
        let rises = *seen < value;
        *seen = value.max(*seen);
        rises
    }

    #[inline]
    pub(super) fn lock(&self, window: u32, home: u32, word: LockWord) -> u64 {
        self.words.get(&Self::lock_key(window, home, word)).copied().unwrap_or(0)
    }

    /// Applies an access to a lock word. Returns the old value.
    #[inline]
    pub(super) fn access(&mut self, window: u32, home: u32, word: LockWord, access: Atomic) -> u64 {
        let old = self.lock(window, home, word);
        let key = Self::lock_key(window, home, word);
        match access.applied_to(old) {
            new if new == old => None,
            0 => self.words.remove(&key),
            new => self.words.insert(key, new),
        };
        old
    }

    /// Counts a notification.
    pub(super) fn notify(&mut self, window: u32, rank: u32, index: u32) {
        *self.counters.entry((two(window, rank), index)).or_insert(0) += 1;
    }

    /// Value of a notification counter.
    pub(super) fn counter(&self, window: u32, rank: u32, index: u32) -> u64 {
        self.counters.get(&(two(window, rank), index)).copied().unwrap_or(0)
    }
}
