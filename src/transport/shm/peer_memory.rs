//! The memory of the processes of a communicator, as cross-memory attach reaches it.

use std::io;

use super::bootstrap::{Bootstrap, PROBE, word};
use super::cma::{self, Direction};

/// What other processes read to find out whether they can.
static WORD: u64 = PROBE;

/// Processes whose memory this one can read and write.
#[derive(Debug)]
pub struct PeerMemory {
    pids: Box<[i32]>,
}

impl PeerMemory {
    /// Tries to read the memory of all others. Collective. `None`: that is not `allowed` in all
    /// processes, or the system does not permit it. Processes may get different answers.
    pub fn new(boot: &mut dyn Bootstrap, allowed: bool) -> Option<Self> {
        const RECORD: usize = 2 * 8;
        let pid = if allowed { std::process::id() } else { 0 };
        let mine = [u64::from(pid), (&raw const WORD) as u64].map(u64::to_ne_bytes).concat();
        let mut all = vec![0; RECORD * boot.size() as usize];
        boot.allgather(&mine, &mut all);
        let records = || {
            all.chunks_exact(RECORD).map(|record| (word(record) as u32 as i32, word(&record[8..])))
        };
        let reads = |(pid, address): (i32, u64)| pid != 0 && cma::reads(pid, address);
        records().all(reads).then(|| PeerMemory { pids: records().map(|(pid, _)| pid).collect() })
    }

    /// Copies `len` bytes at `there` in process `rank` to or from `here`.
    ///
    /// # Errors
    /// The kernel refuses, or the process has no such memory.
    ///
    /// # Safety
    /// `here` is valid for `len` bytes, and the other process expects what is written there.
    pub unsafe fn copy(
        &self,
        direction: Direction,
        rank: u32,
        there: u64,
        here: *mut u8,
        len: usize,
    ) -> io::Result<()> {
        // SAFETY: the contract of this function; a write changes nothing at `here`.
        unsafe { cma::transfer(direction, self.pids[rank as usize], here, there, len) }
    }
}
