//! Words of one window that peers read and write through the interface.
//!
//! Every process has a block of words of its own, and one for each peer that it has met: memory
//! grows with the peers that are used. Blocks lie in pages that never move, each registered once.

use crate::engine::{Atomic, LockWord, Word};
use crate::sync::AtomicU64;
use crate::sync::Ordering::{Acquire, Release};

use super::super::context::{Context, Held};
use super::super::device::DeviceError;
use super::super::handshake::RemoteAddress;
use super::super::registration_cache::RegistrationId;

/// Words of a block.
const WORDS: usize = 8;
/// Blocks of a page.
const BLOCKS: usize = 64;

#[repr(C, align(4096))]
#[derive(Debug)]
struct Page([AtomicU64; WORDS * BLOCKS]);

/// The words of this process.
#[derive(Debug, Default)]
pub(super) struct ControlWords {
    pages: Vec<(Box<Page>, RegistrationId, u32)>,
    used: u32,
}

/// Names a block.
pub(super) type Block = u32;

/// The process's own block.
pub(super) const OWN_BLOCK: Block = 0;

/// Where a word of a process lies in its own block, or in that of a pair.
pub(super) fn place(word: LockWord) -> usize {
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

/// Where a signal lies in the block of a pair.
pub(super) fn signal_place(word: Word) -> usize {
    word as usize
}

/// A word of a block that is somewhere else.
pub(super) fn spot(block: RemoteAddress, place: usize) -> RemoteAddress {
    RemoteAddress { at: block.at + 8 * place as u64, rkey: block.rkey }
}

impl ControlWords {
    /// One more block; the first one is this process's own.
    pub(super) fn add(&mut self, context: &mut Context) -> Result<Block, DeviceError> {
        let block = self.used;
        if block as usize == self.pages.len() * BLOCKS {
            let page = Box::new(Page(std::array::from_fn(|_| AtomicU64::new(0))));
            // SAFETY: the page stays where it is until it is let go in `end`.
            let (id, rkey) = unsafe { context.keep(&raw const *page as usize, size_of::<Page>()) }?;
            self.pages.push((page, id, rkey));
        }
        self.used += 1;
        Ok(block)
    }

    /// Where peers find a block.
    pub(super) fn spot(&self, block: Block) -> RemoteAddress {
        let (page, _, rkey) = &self.pages[block as usize / BLOCKS];
        let at = &raw const page.0[block as usize % BLOCKS * WORDS] as u64;
        RemoteAddress { at, rkey: *rkey }
    }

    fn word(&self, block: Block, place: usize) -> &AtomicU64 {
        &self.pages[block as usize / BLOCKS].0.0[block as usize % BLOCKS * WORDS + place]
    }

    /// Reads a word; what its writer has written before is visible then.
    #[inline]
    pub(super) fn read_lock_word(&self, block: Block, place: usize) -> u64 {
        self.word(block, place).load(Acquire)
    }

    /// Accesses a word with the processor, whose atomics are the interface's.
    pub(super) fn access(&self, block: Block, place: usize, access: Atomic) -> u64 {
        use crate::sync::Ordering::SeqCst;
        let word = self.word(block, place);
        match access {
            Atomic::Load => word.load(Acquire),
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

    /// Nobody reaches for them any more.
    pub(super) fn end(&mut self, context: &mut Context) {
        for (_, id, _) in self.pages.drain(..) {
            context.release(Held::Registration(id));
        }
    }
}
