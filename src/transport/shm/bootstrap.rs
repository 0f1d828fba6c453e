//! What the processes of a window exchange while it is set up.

use std::io;
use std::sync::OnceLock;

use crate::engine::{Addr, Rank};

use super::segment::{Step, SystemError};

/// What the set-up of a window needs from the host. The calls block, and are collective over the
/// window's processes.
pub trait Bootstrap {
    /// Rank of this process in the window.
    fn rank(&self) -> Rank;
    /// Number of processes of the window.
    fn size(&self) -> u32;
    /// Gathers `mine`, equally long in every process, into `all` in rank order.
    fn allgather(&mut self, mine: &[u8], all: &mut [u8]);
    /// Called after the first allgather. False if all processes have agreed not to make the window.
    fn goes_on(&self) -> bool {
        true
    }
    /// Waits until `done` returns true. Other processes make it true without this one's help.
    fn wait(&mut self, done: &mut dyn FnMut() -> bool) {
        while !done() {
            std::thread::yield_now();
        }
    }
}

/// The bootstrap of a window of one process.
#[derive(Debug)]
pub struct Alone;

impl Bootstrap for Alone {
    fn rank(&self) -> Rank {
        0
    }
    fn size(&self) -> u32 {
        1
    }
    fn allgather(&mut self, mine: &[u8], all: &mut [u8]) {
        all.copy_from_slice(mine);
    }
}

/// Memory that this process puts in the window.
#[derive(Clone, Copy, Debug)]
pub enum Memory {
    /// `MPI_Win_allocate`: the transport allocates memory that the processes share.
    Allocate {
        /// Bytes.
        size: u64,
        /// Alignment in bytes, a power of two.
        align: u64,
    },
    /// `MPI_Win_allocate_shared`: the same, and the processes' memory is contiguous in rank order.
    Share {
        /// Bytes.
        size: u64,
        /// Alignment of the whole in bytes, a power of two.
        align: u64,
        /// This process does not rely on the addresses of others' memory
        /// (`alloc_shared_noncontig`).
        noncontig: bool,
    },
    /// `MPI_Win_create`: the application's memory.
    Create {
        /// First byte.
        base: Addr,
        /// Bytes.
        size: u64,
    },
    /// `MPI_Win_create_dynamic`: none yet. Memory is attached later; displacements are addresses.
    Dynamic,
}

const RECORD_WORDS: usize = 11;
pub(super) const RECORD_BYTES: usize = RECORD_WORDS * 8;

/// What a process sends to all others in the first allgather.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BootstrapRecord {
    pub(super) node: NodeId,
    pub(super) pid: i32,
    pub(super) kind: WindowKind,
    /// The memory of each process may begin at a page of its own.
    pub(super) noncontig: bool,
    /// The process may use cross-memory attach.
    pub(super) cma: bool,
    /// Binary logarithm of the alignment of the memory.
    pub(super) align_log2: u8,
    pub(super) base: u64,
    pub(super) size: u64,
    pub(super) disp_unit: u32,
    /// Rank 0: descriptor of the segment that it has created for this window.
    pub(super) fd: i32,
    /// Rank 0: id of the segment if the window uses a new one.
    pub(super) new_segment: u64,
    /// Address of a word with the value [`PROBE`].
    pub(super) probe: u64,
    /// Segment that this process has cached from an earlier window, or 0.
    pub(super) cached_segment: u64,
    /// The first failure in this process.
    pub(super) error: Option<SystemError>,
}

/// Where the memory of a window comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum WindowKind {
    /// From the application, when the window is made.
    #[default]
    Created = 0,
    /// From the segment.
    Allocated = 1,
    /// From the segment, at addresses that the application may rely on.
    Shared = 2,
    /// From the application, attached piece by piece.
    Dynamic = 3,
}

impl WindowKind {
    fn from_code(code: u8) -> Self {
        match code {
            1 => WindowKind::Allocated,
            2 => WindowKind::Shared,
            3 => WindowKind::Dynamic,
            _ => WindowKind::Created,
        }
    }

    /// Whether the memory lies in the segment.
    pub(super) fn in_segment(self) -> bool {
        matches!(self, WindowKind::Allocated | WindowKind::Shared)
    }
}

/// A node and a process namespace. Processes with the same id can share segments, and a pid means
/// the same process to all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NodeId([u64; 3]);

impl NodeId {
    pub(super) fn words(self) -> [u64; 3] {
        self.0
    }

    pub(super) fn of_words(words: [u64; 3]) -> Self {
        NodeId(words)
    }
}

/// Value of the word that a peer tries to read, to find out whether cross-memory attach works.
pub(super) const PROBE: u64 = 0x6d70_6978_2d72_6d61;

impl BootstrapRecord {
    /// Alignment of the memory in bytes.
    pub(super) fn align(&self) -> u64 {
        1 << self.align_log2
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let words: [u64; RECORD_WORDS] = [
            self.node.0[0],
            self.node.0[1],
            self.node.0[2],
            u64::from(self.pid as u32) | u64::from(self.fd as u32) << 32,
            self.base,
            self.size,
            u64::from(self.disp_unit)
                | u64::from(self.kind as u8) << 32
                | u64::from(self.noncontig) << 40
                | u64::from(self.cma) << 41
                | u64::from(self.align_log2) << 48,
            self.probe,
            self.cached_segment,
            self.new_segment,
            self.error.map_or(0, encode_error),
        ];
        words.map(u64::to_ne_bytes).concat()
    }

    pub(super) fn decode(bytes: &[u8]) -> Self {
        let number = |i: usize| word(&bytes[i * 8..]);
        BootstrapRecord {
            node: NodeId([number(0), number(1), number(2)]),
            pid: number(3) as u32 as i32,
            fd: (number(3) >> 32) as u32 as i32,
            base: number(4),
            size: number(5),
            disp_unit: number(6) as u32,
            kind: WindowKind::from_code((number(6) >> 32) as u8),
            noncontig: number(6) >> 40 & 1 != 0,
            cma: number(6) >> 41 & 1 != 0,
            align_log2: (number(6) >> 48) as u8 & 63,
            probe: number(7),
            cached_segment: number(8),
            new_segment: number(9),
            error: decode_error(number(10)),
        }
    }
}

pub(super) fn word(bytes: &[u8]) -> u64 {
    u64::from_ne_bytes(bytes[..8].try_into().expect("eight bytes"))
}

/// 0 means success, so the numbers of steps start at 1.
pub(super) fn encode_error(error: SystemError) -> u64 {
    u64::from(error.step as u8) << 32 | u64::from(error.errno as u32)
}

pub(super) fn decode_error(word: u64) -> Option<SystemError> {
    Step::from_code((word >> 32) as u8).map(|step| SystemError { step, errno: word as u32 as i32 })
}

/// Id of this process's node and process namespace, never all 0. Processes with equal ids can share
/// memory. `None` if it cannot be read from `/proc`.
#[must_use]
pub fn node() -> Option<[u64; 3]> {
    node_id().ok().map(|node| node.0)
}

/// As [`node`]. Read once, since neither node nor namespace can change.
pub(super) fn node_id() -> Result<NodeId, SystemError> {
    static NODE: OnceLock<NodeId> = OnceLock::new();
    if let Some(node) = NODE.get() {
        return Ok(*node);
    }
    let failed = |error: io::Error| SystemError::of(Step::Identity, &error, libc::EIO);
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map_err(failed)?;
    let digits: String = boot.chars().filter(char::is_ascii_hexdigit).collect();
    let boot = u128::from_str_radix(&digits, 16)
        .map_err(|_| SystemError { step: Step::Identity, errno: libc::EINVAL })?;
    let pids = std::fs::metadata("/proc/self/ns/pid").map_err(failed)?;
    let pids = std::os::unix::fs::MetadataExt::ino(&pids);
    Ok(*NODE.get_or_init(|| NodeId([(boot >> 64) as u64, boot as u64, pids])))
}
