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

    /// Reads `len` bytes at `address` in process `rank`.
    ///
    /// # Errors
    /// The kernel refuses, or the process has no such memory.
    ///
    /// # Safety
    /// `to` is valid for `len` bytes.
    pub unsafe fn read(&self, rank: u32, address: u64, to: *mut u8, len: usize) -> io::Result<()> {
        // SAFETY: the contract of this function.
        unsafe { cma::transfer(Direction::Read, self.pids[rank as usize], to, address, len) }
    }

    /// Writes `len` bytes to `address` in process `rank`.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    ///
    /// # Safety
    /// `from` is valid for `len` bytes, and the other process expects the write.
    pub unsafe fn write(
        &self,
        rank: u32,
        address: u64,
        from: *const u8,
        len: usize,
    ) -> io::Result<()> {
        let (pid, from) = (self.pids[rank as usize], from.cast_mut());
        // SAFETY: the contract of this function; a write changes nothing at `from`.
        unsafe { cma::transfer(Direction::Write, pid, from, address, len) }
    }
}
