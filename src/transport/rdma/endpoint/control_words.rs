//! Control words of a window: signals and lock words, in registered memory that peers access.
//!
//! A process has a block of words of its own, and one for each peer that it has met. So memory
//! grows only with the peers that are used. Blocks lie in pages that never move; each page is
//! registered once.

use crate::engine::{Atomic, LockWord, Word};
use crate::sync::Ordering::{Acquire, Release, SeqCst};
use crate::sync::{AtomicU64, device_fence};

use super::super::context::{Context, Held};
use super::super::device::RegistrationError;
use super::super::handshake::RemoteAddress;
use super::super::registration_cache::RegistrationId;

/// Words of a block.
const WORDS: usize = 8;
/// Blocks of a page.
const BLOCKS: usize = 64;

#[repr(C, align(4096))]
#[derive(Debug)]
struct Page([AtomicU64; WORDS * BLOCKS]);

#[derive(Debug, Default)]
pub(super) struct ControlWords {
    /// With their registrations and remote keys.
    pages: Vec<(Box<Page>, RegistrationId, u32)>,
    used: u32,
}

pub(super) type Block = u32;

pub(super) const OWN_BLOCK: Block = 0;

/// Place of a lock word in a process's own block, or in that of a pair.
pub(super) fn lock_word_place(word: LockWord) -> usize {
    match word {
        LockWord::Holders => 0,
        LockWord::Intent => 1,
        LockWord::Licensed => 2,
        LockWord::Licence => 3,
        LockWord::NextLicensed => 4,
        LockWord::Tail => 5,
        LockWord::Readers => 6,
        LockWord::NextWriter => 7,
        LockWord::Next { parity, .. } => 4 + usize::from(parity & 1),
        LockWord::Grant { .. } => 6,
    }
}

/// Place of a signal word in the block of a pair.
pub(super) fn signal_place(word: Word) -> usize {
    word as usize
}

/// Address of a word in a peer's block.
pub(super) fn word_address(block: RemoteAddress, place: usize) -> RemoteAddress {
    block.offset(8 * place as u64)
}

impl ControlWords {
    /// Adds a block; the first one is the process's own.
    pub(super) fn add_block(&mut self, context: &mut Context) -> Result<Block, RegistrationError> {
        let block = self.used;
        if block as usize == self.pages.len() * BLOCKS {
            let page = Box::new(Page(std::array::from_fn(|_| AtomicU64::new(0))));
            // SAFETY: the page is boxed, so it stays where it is, and `end` drops it together with
            // its registration.
            let (id, rkey) =
                unsafe { context.register(&raw const *page as usize, size_of::<Page>()) }?;
            self.pages.push((page, id, rkey));
        }
        self.used += 1;
        Ok(block)
    }

    /// The address of a block, for peers.
    pub(super) fn address(&self, block: Block) -> RemoteAddress {
        let (_, _, rkey) = &self.pages[block as usize / BLOCKS];
        RemoteAddress { addr: std::ptr::from_ref(self.word(block, 0)) as u64, rkey: *rkey }
    }

    fn word(&self, block: Block, place: usize) -> &AtomicU64 {
        &self.pages[block as usize / BLOCKS].0.0[block as usize % BLOCKS * WORDS + place]
    }

    /// Reads a word, with acquire ordering: what its writer wrote before the word is visible.
    #[inline]
    pub(super) fn load(&self, block: Block, place: usize) -> u64 {
        let value = self.word(block, place).load(Acquire);
        // The writer is the device, which placed the data first.
        device_fence();
        value
    }

    /// Accesses a word with the processor. Returns its old value; 0 for a store.
    pub(super) fn access(&self, block: Block, place: usize, access: Atomic) -> u64 {
        let word = self.word(block, place);
        match access {
            Atomic::Load => self.load(block, place),
            Atomic::Store(value) => {
                word.store(value, Release);
                0
            }
            Atomic::Swap(value) => word.swap(value, SeqCst),
            Atomic::Add(delta) => word.fetch_add(delta, SeqCst),
            Atomic::CompareSwap { expected, new } => {
                word.compare_exchange(expected, new, SeqCst, SeqCst).unwrap_or_else(|old| old)
            }
        }
    }

    /// Releases all blocks. Peers must no longer access them.
    pub(super) fn end(&mut self, context: &mut Context) {
        for (_, id, _) in self.pages.drain(..) {
            context.release(Held::Registration(id));
        }
    }
}
