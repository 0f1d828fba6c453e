//! Shared memory of one node.

use super::element::ForeignReduce;
use crate::engine::*;

/// What the collective set-up needs of the host. Blocking, collective over the window's processes.
pub trait Bootstrap {
    /// Rank of this process in the window.
    fn rank(&self) -> Rank;
    /// Processes of the window.
    fn size(&self) -> u32;
    /// Gathers `mine` (the same length everywhere) of every rank, in rank order, into `all`.
    fn allgather(&mut self, mine: &[u8], all: &mut [u8]);
}

/// Memory that this process puts in the window.
#[derive(Clone, Copy, Debug)]
pub enum Memory {
    /// `MPI_Win_allocate`: the transport allocates this many bytes, shared between the processes.
    Allocate {
        /** bytes */
        size: u64,
    },
    /// `MPI_Win_create`: the application's memory.
    Create {
        /** first byte */
        base: Addr,
        /** bytes */
        size: u64,
    },
}

/// Settings of the transport, the same in every process.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Cross-memory attach may be used (`MPIX_RMA_CMA`).
    pub cma: bool,
    /// Reduces elements of the host's datatypes.
    pub foreign_reduce: ForeignReduce,
}

/// Why a window cannot be served by shared memory; the same answer in every process.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// The processes do not share one node.
    #[error("the window's processes are not all on one node")]
    NotOneNode,
    /// A system call failed in some process.
    #[error("{call} failed on rank {rank}: {reason}")]
    System {
        /** which */
        call: &'static str,
        /** where */
        rank: Rank,
        /** errno in words */
        reason: String,
    },
}

/// One window in one process over shared memory.
#[derive(Debug)]
pub struct ShmWindow {}

#[allow(unused_variables, missing_docs)]
impl ShmWindow {
    /// Collective. `disp_unit` in bytes. Fails in every process or in none.
    pub fn new(boot: &mut dyn Bootstrap, memory: Memory, disp_unit: u32, settings: Settings) -> Result<Self, SetupError> {
        unimplemented!()
    }
    /// First byte of this process's window memory (0 when it is empty).
    pub fn base(&self) -> Addr {
        unimplemented!()
    }
    /// Bytes and displacement unit of a process's window memory.
    pub fn extent_of(&self, rank: Rank) -> (u64, u32) {
        unimplemented!()
    }
    /// True if this process reaches the memory of `rank` by load and store (allocated windows; itself always).
    pub fn load_store(&self, rank: Rank) -> bool {
        unimplemented!()
    }
    /// True if peers can make this process's part progress only by `poll` (created windows: incoming small operations).
    pub fn needs_polling(&self) -> bool {
        unimplemented!()
    }
    /// Nonblocking collective vote, used to tear down: deposits this process's vote ...
    pub fn vote(&mut self, objection: bool) {
        unimplemented!()
    }
    /// ... and gives the verdict (true: somebody objected) once every process has voted, `None` before. Reusable.
    pub fn verdict(&mut self) -> Option<bool> {
        unimplemented!()
    }
    /// Words for `MPIX_RMA_LOG`: "shared memory", "shared memory + cross-memory attach", "shared memory + active copying".
    pub fn describe(&self) -> &'static str {
        unimplemented!()
    }
}

#[allow(unused_variables)]
impl LockMemory for ShmWindow {
    fn load(&mut self, home: Rank, word: LockWord) -> u64 {
        unimplemented!()
    }
    fn store(&mut self, home: Rank, word: LockWord, value: u64) {
        unimplemented!()
    }
    fn swap(&mut self, home: Rank, word: LockWord, value: u64) -> u64 {
        unimplemented!()
    }
    fn fetch_add(&mut self, home: Rank, word: LockWord, delta: u64) -> u64 {
        unimplemented!()
    }
    fn compare_swap(&mut self, home: Rank, word: LockWord, expected: u64, new: u64) -> u64 {
        unimplemented!()
    }
}
#[allow(unused_variables)]
impl Port for ShmWindow {
    fn post(&mut self, op: &Op, ticket: Ticket) -> Posted {
        unimplemented!()
    }
    fn signal(&mut self, peer: Rank, word: Word, value: u64) -> Result<(), NoResource> {
        unimplemented!()
    }
    fn observe(&mut self, peer: Rank, word: Word) -> u64 {
        unimplemented!()
    }
    fn poll(&mut self) -> bool {
        unimplemented!()
    }
    fn next_finished(&mut self) -> Option<(Ticket, Stage)> {
        unimplemented!()
    }
}
