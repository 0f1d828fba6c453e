//! Scratch memory that the processes of a communicator share, for collectives.
//!
//! Rank 0 creates a segment, and all map it. The set-up takes two allgathers: in the first, the
//! processes exchange their nodes and the descriptor; in the second, whether they have mapped the
//! segment. All come to the same result.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;

use crate::engine::Rank;
use crate::sync::AtomicU64;

use super::bootstrap::{Bootstrap, NodeId, decode_error, encode_error, node_id, word};
use super::layout::page;
use super::segment::{self, Segment, SystemError};
use super::setup::SetupError;

/// Zeroed words that all processes of a communicator have mapped.
#[derive(Debug)]
pub struct Scratch {
    segment: Segment,
    words: usize,
}

/// What a process sends in the first allgather: node, pid, descriptor, error.
const RECORD_BYTES: usize = 6 * 8;

/// One process's part in the first allgather.
#[derive(Clone, Copy)]
struct Record {
    node: NodeId,
    pid: i32,
    /// Rank 0: descriptor of the segment.
    fd: i32,
    error: Option<SystemError>,
}

impl Record {
    fn encode(&self) -> Vec<u8> {
        let [first, second, third] = self.node.words();
        let error = self.error.map_or(0, encode_error);
        let (pid, fd) = (u64::from(self.pid as u32), u64::from(self.fd as u32));
        [first, second, third, pid, fd, error].map(u64::to_ne_bytes).concat()
    }

    fn decode(bytes: &[u8]) -> Self {
        let number = |at: usize| word(&bytes[at * 8..]);
        Record {
            node: NodeId::of_words([number(0), number(1), number(2)]),
            pid: number(3) as u32 as i32,
            fd: number(4) as u32 as i32,
            error: decode_error(number(5)),
        }
    }
}

impl Scratch {
    /// Makes `words` words. Collective, with the same number in all processes.
    ///
    /// # Errors
    /// The reason why no process gets the memory, the same in all.
    pub fn new(boot: &mut dyn Bootstrap, words: usize) -> Result<Self, SetupError> {
        let size = boot.size() as usize;
        let (mine, file) = Self::prepare(boot.rank());
        let mut bytes = vec![0; RECORD_BYTES * size];
        boot.allgather(&mine.encode(), &mut bytes);
        let records: Vec<_> = bytes.chunks_exact(RECORD_BYTES).map(Record::decode).collect();
        for (rank, record) in (0..).zip(&records) {
            if let Some(error) = record.error {
                return Err(SetupError::System { rank, error });
            }
            if record.node != records[0].node {
                return Err(SetupError::NotOneNode);
            }
        }
        let place = (records[0].pid, records[0].fd);
        let mapped = Segment::map_shared(file.as_ref(), place, words as u64 * 8, 1);
        let status = mapped.as_ref().err().map_or(0, |error| encode_error(*error));
        let mut bytes = vec![0; 8 * size];
        // Rank 0 keeps its descriptor open until all have mapped the segment, which is here.
        boot.allgather(&status.to_ne_bytes(), &mut bytes);
        for (rank, status) in (0..).zip(bytes.chunks_exact(8).map(word)) {
            if let Some(error) = decode_error(status) {
                return Err(SetupError::System { rank, error });
            }
        }
        let segment = mapped.expect("a failure of this process is among the statuses");
        Ok(Scratch { segment, words })
    }

    /// What this process knows before it exchanges anything. Rank 0 creates the segment.
    fn prepare(me: Rank) -> (Record, Option<File>) {
        let pid = std::process::id() as i32;
        let mut record = Record { node: NodeId::default(), pid, fd: -1, error: None };
        let mut create = || {
            record.node = node_id()?;
            if me != 0 {
                return Ok(None);
            }
            let file = segment::create()?;
            record.fd = file.as_raw_fd();
            Ok(Some(file))
        };
        let file = create().unwrap_or_else(|error| {
            record.error = Some(error);
            None
        });
        (record, file)
    }

    /// Makes the pages of some words present, so that the first access to them is as fast as later
    /// ones. A kernel before Linux 5.14 does so at the first access.
    pub fn populate(&self, words: Range<usize>) {
        let bytes = &self.words()[words];
        let start = bytes.as_ptr().addr() & !(page() as usize - 1);
        let length = bytes.as_ptr_range().end.addr() - start;
        // SAFETY: the pages belong to the segment. The call changes none of their bytes.
        unsafe {
            let start = std::ptr::without_provenance_mut(start);
            libc::madvise(start, length, libc::MADV_POPULATE_WRITE);
        }
    }

    /// The words. All processes see the same.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the segment has room for that many words and is aligned to a page. It was made
        // of zeros, which are valid words, and all processes access it as atomic words only. It
        // stays mapped as long as `self` lives.
        unsafe { std::slice::from_raw_parts(self.segment.base().cast(), self.words) }
    }
}
