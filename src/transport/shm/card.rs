//! What the processes of a window tell each other while it is set up.

use std::io;
use std::sync::OnceLock;

use super::segment::{Failure, Step};

/// Numbers on a process's card.
const CARD: usize = 11;
/// Bytes of a card.
pub(super) const CARD_BYTES: usize = CARD * 8;

/// What a process tells the others first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Card {
    pub(super) node: Node,
    pub(super) pid: i32,
    pub(super) kind: Kind,
    /// Each process's memory may begin a new page.
    pub(super) apart: bool,
    /// It may try to read and write others' memory.
    pub(super) cma: bool,
    /// Alignment of the memory, as a power of two.
    pub(super) align: u8,
    pub(super) base: u64,
    pub(super) size: u64,
    pub(super) disp_unit: u32,
    /// Rank 0: descriptor of the segment that it has made for this window.
    pub(super) fd: i32,
    /// Rank 0: name of the segment if a new one is used.
    pub(super) fresh: u64,
    /// Address of a word that others may try to read, see [`PROBE`].
    pub(super) probe: u64,
    /// Segment that this process has kept from an earlier window, or 0.
    pub(super) kept: u64,
    /// What failed already.
    pub(super) failure: Option<Failure>,
}

/// Where the memory of a window comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// From the application, when the window is made.
    #[default]
    Created = 0,
    /// From us.
    Allocated = 1,
    /// From us, and the application may rely on where each process's is.
    Shared = 2,
    /// From the application, piece by piece.
    Dynamic = 3,
}

impl Kind {
    fn from_code(code: u8) -> Self {
        match code {
            1 => Kind::Allocated,
            2 => Kind::Shared,
            3 => Kind::Dynamic,
            _ => Kind::Created,
        }
    }

    /// The memory lies in the segment.
    pub(super) fn in_segment(self) -> bool {
        matches!(self, Kind::Allocated | Kind::Shared)
    }
}

/// Node and process namespace: where these are equal, a pid names the same process and a segment
/// can be shared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Node([u64; 3]);

/// Content of the word that the others try to read.
pub(super) const PROBE: u64 = 0x6d70_6978_2d72_6d61;

impl Card {
    pub(super) fn encode(&self) -> [u8; CARD_BYTES] {
        let failure = self.failure.map_or(0, encode_failure);
        let numbers: [u64; CARD] = [
            self.node.0[0],
            self.node.0[1],
            self.node.0[2],
            u64::from(self.pid as u32) | u64::from(self.fd as u32) << 32,
            self.base,
            self.size,
            u64::from(self.disp_unit)
                | u64::from(self.kind as u8) << 32
                | u64::from(self.apart) << 40
                | u64::from(self.cma) << 41
                | u64::from(self.align) << 48,
            self.probe,
            self.kept,
            self.fresh,
            failure,
        ];
        let mut bytes = [0; CARD_BYTES];
        for (slot, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            slot.copy_from_slice(&number.to_ne_bytes());
        }
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Self {
        let number = |i: usize| word(&bytes[i * 8..]);
        Card {
            node: Node([number(0), number(1), number(2)]),
            pid: number(3) as u32 as i32,
            fd: (number(3) >> 32) as u32 as i32,
            base: number(4),
            size: number(5),
            disp_unit: number(6) as u32,
            kind: Kind::from_code((number(6) >> 32) as u8),
            apart: number(6) >> 40 & 1 != 0,
            cma: number(6) >> 41 & 1 != 0,
            align: (number(6) >> 48) as u8 & 63,
            probe: number(7),
            kept: number(8),
            fresh: number(9),
            failure: decode_failure(number(10)),
        }
    }
}

pub(super) fn word(bytes: &[u8]) -> u64 {
    u64::from_ne_bytes(bytes[..8].try_into().expect("eight bytes"))
}

/// 0 means success, so steps count from 1.
pub(super) fn encode_failure(failure: Failure) -> u64 {
    u64::from(failure.step as u8) << 32 | u64::from(failure.errno as u32)
}

pub(super) fn decode_failure(number: u64) -> Option<Failure> {
    Step::from_code((number >> 32) as u8).map(|step| Failure { step, errno: number as u32 as i32 })
}

/// Numbers of this process's node and process namespace, never all 0: processes that have the same
/// can share memory. `None` where the system does not tell.
#[must_use]
pub fn node() -> Option<[u64; 3]> {
    identity().ok().map(|node| node.0)
}

/// This process's node and process namespace. Read once: neither can change.
pub(super) fn identity() -> Result<Node, Failure> {
    static NODE: OnceLock<Node> = OnceLock::new();
    if let Some(node) = NODE.get() {
        return Ok(*node);
    }
    let failed = |error: io::Error| Failure {
        step: Step::Identity,
        errno: error.raw_os_error().unwrap_or(libc::EIO),
    };
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map_err(failed)?;
    let digits: String = boot.chars().filter(char::is_ascii_hexdigit).collect();
    let boot = u128::from_str_radix(&digits, 16)
        .map_err(|_| Failure { step: Step::Identity, errno: libc::EINVAL })?;
    let pids = std::fs::metadata("/proc/self/ns/pid").map_err(failed)?;
    let pids = std::os::unix::fs::MetadataExt::ino(&pids);
    Ok(*NODE.get_or_init(|| Node([(boot >> 64) as u64, boot as u64, pids])))
}
