//! The connection handshake: messages of the host by which two processes connect their queue pairs
//! and exchange the addresses of their memory.
//!
//! 1. *Request*: the initiator names itself and says where its window memory and control words are.
//! 2. *Reply*: the responder creates a queue pair, and sends the same with the pair's number.
//! 3. *Confirm*: the initiator creates and connects its queue pair, and sends its number.
//! 4. *Ready*: the responder connects its queue pair.
//!
//! Neither process sends before the peer can receive. Both may start at once. Each has one queue
//! pair for the other, so both handshakes lead to the same connection. Two processes share one
//! connection for all their windows, but they shake hands for each window.
//!
//! Where queue pairs are short, processes that hold one while they wait for a peer could block each
//! other in a cycle. To prevent this, the process with the lower id creates its queue pair first:
//! the other one answers a Request by *Yield*, and the lower one replies to that.
//!
//! Queue pairs are closed and created again, so each message names a *generation* of them.

use super::device::PortAddress;
use crate::engine::Rank;

/// Address and remote key of registered memory of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteAddress {
    /// Address in that process.
    pub addr: u64,
    /// Remote key.
    pub rkey: u32,
}

impl RemoteAddress {
    /// The address `disp` bytes behind this one. If a peer has sent a wrong address, the sum may
    /// wrap. The device refuses what lies outside the peer's registrations.
    #[inline]
    #[must_use]
    pub(super) fn offset(self, disp: u64) -> Self {
        RemoteAddress { addr: self.addr.wrapping_add(disp), rkey: self.rkey }
    }
}

/// Identifies a process in all its windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub [u64; 2]);

/// The kind of a handshake message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Step {
    /// The sender wants to connect.
    Request = 0,
    /// The sender has a queue pair for the receiver.
    Reply = 1,
    /// The sender's queue pair is connected to the receiver's.
    Confirm = 2,
    /// Both queue pairs are connected.
    Ready = 3,
    /// The sender cannot connect, or has lost the connection.
    Reject = 4,
    /// The sender asks where the receiver keeps its control words for the pair with process
    /// `about`, whose lock queue brought the two together.
    LookupRequest = 5,
    /// These control words are at `pair_words`.
    LookupReply = 6,
    /// The receiver has to create its queue pair first.
    Yield = 7,
}

impl Step {
    const ALL: [Step; 8] = {
        use Step::{Confirm, LookupReply, LookupRequest, Ready, Reject, Reply, Request, Yield};
        [Request, Reply, Confirm, Ready, Reject, LookupRequest, LookupReply, Yield]
    };

    /// Whether the receiver has to create a queue pair.
    pub(super) fn needs_qp(self) -> bool {
        matches!(self, Step::Request | Step::Yield)
    }

    /// Whether the sender waits for a reply.
    pub(super) fn expects_reply(self) -> bool {
        use Step::{Confirm, LookupRequest, Reply, Request, Yield};
        matches!(self, Request | Reply | Confirm | LookupRequest | Yield)
    }
}

/// The state of a process's queue pair for a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpStatus {
    /// Number of queue pairs that the process has had for the peer before.
    pub generation: u32,
    /// Number of the queue pair; 0 if there is none.
    pub number: u32,
    /// Whether the queue pair is connected to the peer's.
    pub connected: bool,
}

impl QpStatus {
    /// The state while the process does not know the peer yet.
    pub const UNKNOWN: Self = QpStatus { generation: u32::MAX, number: 0, connected: false };
}

/// A number that no window has. In place of a window, it says that a message belongs to none.
pub(super) const NO_WINDOW: u32 = u32::MAX;

/// A process's part of a window, as a peer reaches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteWindow {
    /// The process's number of the window.
    pub window: u32,
    /// Its window memory; zeros if peers cannot reach it by RDMA.
    pub memory: RemoteAddress,
    /// Its own block of control words.
    pub words: RemoteAddress,
    /// Its block of control words for the pair.
    pub pair_words: RemoteAddress,
}

impl RemoteWindow {
    pub(super) fn has_memory(&self) -> bool {
        self.memory != RemoteAddress::default()
    }
}

/// A message of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// The kind of message.
    pub step: Step,
    /// The sender.
    pub process: ProcessId,
    /// The sender's queue pair for the receiver.
    pub qp: QpStatus,
    /// The sender's port.
    pub address: PortAddress,
    /// The sender's part of the window.
    pub part: RemoteWindow,
    /// Eight bytes of the sender that the receiver may read at any time: the target of flush reads.
    pub flush_target: RemoteAddress,
    /// See [`Step::LookupRequest`].
    pub about: Rank,
}

const MAGIC: u32 = 0x7270_6d76;
/// Length of a message in bytes.
pub const LEN: usize = 4 + 4 + 16 + 4 + 4 + 16 + 4 + 4 * 12 + 4 + 4;

impl Handshake {
    /// Encodes the message.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(LEN);
        bytes.extend(MAGIC.to_ne_bytes());
        let Handshake { address, qp, part, .. } = self;
        bytes.extend([self.step as u8, address.mtu, address.depth, qp.connected.into()]);
        self.process.0.iter().for_each(|half| bytes.extend(half.to_ne_bytes()));
        bytes.extend(qp.number.to_ne_bytes());
        bytes.extend(address.lid.to_ne_bytes());
        bytes.extend(address.partition.to_ne_bytes());
        bytes.extend(address.gid);
        bytes.extend(part.window.to_ne_bytes());
        for address in [part.memory, part.words, part.pair_words, self.flush_target] {
            bytes.extend(address.addr.to_ne_bytes());
            bytes.extend(address.rkey.to_ne_bytes());
        }
        bytes.extend(self.about.to_ne_bytes());
        bytes.extend(qp.generation.to_ne_bytes());
        debug_assert_eq!(bytes.len(), LEN);
        bytes
    }

    /// Decodes a message. `None` if the bytes are not one.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != LEN || bytes[..4] != MAGIC.to_ne_bytes() {
            return None;
        }
        let four =
            |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let eight =
            |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let two = |at: usize| u16::from_ne_bytes(bytes[at..at + 2].try_into().expect("two bytes"));
        let address = |at: usize| RemoteAddress { addr: eight(at), rkey: four(at + 8) };
        let (window, words, pair_words) = (four(48), address(64), address(76));
        if window == NO_WINDOW || words.addr % 8 != 0 || pair_words.addr % 8 != 0 {
            return None;
        }
        Some(Handshake {
            step: *Step::ALL.get(usize::from(bytes[4]))?,
            process: ProcessId([eight(8), eight(16)]),
            qp: QpStatus {
                generation: four(104),
                number: four(24),
                connected: match bytes[7] {
                    0 => false,
                    1 => true,
                    _ => return None,
                },
            },
            address: PortAddress {
                lid: two(28),
                partition: two(30),
                mtu: bytes[5],
                depth: bytes[6],
                gid: bytes[32..48].try_into().expect("sixteen bytes"),
            },
            part: RemoteWindow { window, memory: address(52), words, pair_words },
            flush_target: address(88),
            about: four(100),
        })
    }
}
