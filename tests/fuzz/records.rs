//! Records that processes exchange while a window in shared memory is made.
#![no_main]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use libfuzzer_sys::fuzz_target;
use mpix_rma::engine::{Addr, Element, Rank, Reduction};
use mpix_rma::transport::shm::{Bootstrap, Memory, Settings, ShmWindow};

/// Where a record has the process number, and its descriptor behind it.
const PID: usize = 24;
/// Times that the set-up waits for a peer, which never does anything.
const MAX_WAITS: u32 = 100;

/// A process whose peers send the bytes of the input. They are on this node, and claim to be this
/// process, so that no other process's memory is read.
struct Peers<'a> {
    rank: Rank,
    size: u32,
    input: &'a [u8],
    is_first: bool,
}

impl Bootstrap for Peers<'_> {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn allgather(&mut self, mine: &[u8], all: &mut [u8]) {
        for (rank, theirs) in (0..).zip(all.chunks_exact_mut(mine.len())) {
            if rank == self.rank {
                theirs.copy_from_slice(mine);
                continue;
            }
            let length = theirs.len().min(self.input.len());
            let (bytes, rest) = self.input.split_at(length);
            theirs[..length].copy_from_slice(bytes);
            self.input = rest;
            if self.is_first && theirs.len() >= PID + 8 {
                // Mostly of this node: the first byte says so.
                if theirs[0] % 4 > 0 {
                    theirs[..PID].copy_from_slice(&mine[..PID]);
                }
                theirs[PID..][..8].copy_from_slice(&mine[PID..][..8]);
            }
        }
        self.is_first = false;
    }

    fn wait(&mut self, done: &mut dyn FnMut() -> bool) {
        for _ in 0..MAX_WAITS {
            if done() {
                return;
            }
        }
        // The fuzzer takes panics for findings, but does not see this.
        resume_unwind(Box::new(()));
    }
}

unsafe fn no_reduction(_: Element, _: Reduction, _: *const u8, _: *mut u8, _: usize) {}

fuzz_target!(|input: &[u8]| {
    let Some((how, input)) = input.split_first() else { return };
    let mut bytes = [0u8; 256];
    let (base, size) = (Addr(bytes.as_mut_ptr() as usize), 256);
    let memory = match how % 4 {
        0 => Memory::Create { base, size },
        1 => Memory::Allocate { size, align: 64 },
        2 => Memory::Share { size, align: 64, noncontig: how & 4 > 0 },
        _ => Memory::Dynamic,
    };
    let size = 2 + u32::from(how >> 3 & 1);
    let rank = Rank::from(how >> 4) % size;
    let settings =
        Settings { cma: how & 128 > 0, oversubscribed: false, foreign_reduce: no_reduction };
    let mut peers = Peers { rank, size, input, is_first: true };
    _ = catch_unwind(AssertUnwindSafe(|| ShmWindow::new(&mut peers, memory, 1, settings)));
});
