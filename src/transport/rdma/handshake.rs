//! The connection handshake: messages of the host by which two processes connect their queue pairs
//! and exchange the addresses of their memory.
//!
//! 1. *Request*: the initiator names itself and says where its window memory and control words are.
//! 2. *Reply*: the responder creates a queue pair, and sends the same with its number.
//! 3. *Confirm*: the initiator creates and connects its queue pair, and sends its number.
//! 4. *Ready*: the responder connects. Neither may send before the peer can receive.
//!
//! Both may start at once: each has one queue pair for the other, so both handshakes lead to the
//! same connection. Two processes share one connection for all their windows, but each window
//! shakes hands for itself.
//!
//! Where queue pairs are short, processes that hold one while they wait for a peer could block each
//! other in a cycle. To prevent it, the process with the lower id creates its queue pair first: the
//! other one answers a Request by *Yield*, and the lower one replies to that.
//!
//! Queue pairs are closed and created again, so each message names the *generation* it speaks of.

use super::device::PortAddress;
use crate::engine::Rank;

/// Address and key of registered memory of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteAddress {
    /// Address in that process.
    pub addr: u64,
    /// Remote key.
    pub rkey: u32,
}

/// Identifies a process in all its windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub [u64; 2]);

/// The step of the handshake that a message stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Step {
    /// The sender wants to connect.
    Request = 0,
    /// The sender has a queue pair for the receiver.
    Reply = 1,
    /// The sender's queue pair is connected to the receiver's.
    Confirm = 2,
    /// Both are connected.
    Ready = 3,
    /// The sender cannot connect, or has lost the connection.
    Reject = 4,
    /// The sender asks where the receiver keeps the control words for the pair with process
    /// `about`. (The two met in that process's lock queue.)
    LookupRequest = 5,
    /// They are at `pair_words`.
    LookupReply = 6,
    /// The sender creates its queue pair after the receiver has created its own.
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

/// A message of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// What the message stands for.
    pub step: Step,
    /// The sender.
    pub process: ProcessId,
    /// Queue pairs that the sender has had for the receiver before; [`UNKNOWN`](Self::UNKNOWN) if
    /// it does not know the receiver yet.
    pub generation: u32,
    /// Number of the sender's queue pair; 0 if it has none.
    pub qp_number: u32,
    /// Whether that is connected to the receiver's.
    pub connected: bool,
    /// The sender's port.
    pub address: PortAddress,
    /// The sender's number of the window.
    pub window: u32,
    /// The sender's window memory; zeros if it cannot be reached.
    pub memory: RemoteAddress,
    /// The sender's own block of control words.
    pub words: RemoteAddress,
    /// The sender's block of control words for the pair.
    pub pair_words: RemoteAddress,
    /// Eight bytes of the sender that may be read at any time: the target of flush reads.
    pub flush_target: RemoteAddress,
    /// See [`Step::LookupRequest`].
    pub about: Rank,
}

const MAGIC: u32 = 0x7270_6d76;
/// Length of a message in bytes.
pub const LEN: usize = 4 + 4 + 16 + 4 + 4 + 16 + 4 + 4 * 12 + 4 + 4;

impl Handshake {
    /// Stands for no generation.
    pub const UNKNOWN: u32 = u32::MAX;

    /// The message as sent.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(LEN);
        bytes.extend(MAGIC.to_ne_bytes());
        bytes.extend([
            self.step as u8,
            self.address.mtu,
            self.address.depth,
            self.connected.into(),
        ]);
        self.process.0.iter().for_each(|half| bytes.extend(half.to_ne_bytes()));
        bytes.extend(self.qp_number.to_ne_bytes());
        bytes.extend(u32::from(self.address.lid).to_ne_bytes());
        bytes.extend(self.address.gid);
        bytes.extend(self.window.to_ne_bytes());
        for address in [self.memory, self.words, self.pair_words, self.flush_target] {
            bytes.extend(address.addr.to_ne_bytes());
            bytes.extend(address.rkey.to_ne_bytes());
        }
        bytes.extend(self.about.to_ne_bytes());
        bytes.extend(self.generation.to_ne_bytes());
        debug_assert_eq!(bytes.len(), LEN);
        bytes
    }

    /// Decodes a message; `None` if the bytes are something else.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != LEN || bytes[..4] != MAGIC.to_ne_bytes() {
            return None;
        }
        let four =
            |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let eight =
            |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let address = |at: usize| RemoteAddress { addr: eight(at), rkey: four(at + 8) };
        Some(Handshake {
            step: *Step::ALL.get(usize::from(bytes[4]))?,
            process: ProcessId([eight(8), eight(16)]),
            generation: four(104),
            qp_number: four(24),
            connected: match bytes[7] {
                0 => false,
                1 => true,
                _ => return None,
            },
            address: PortAddress {
                lid: u16::try_from(four(28)).ok()?,
                mtu: bytes[5],
                depth: bytes[6],
                gid: bytes[32..48].try_into().expect("sixteen bytes"),
            },
            window: four(48),
            memory: address(52),
            words: address(64),
            pair_words: address(76),
            flush_target: address(88),
            about: four(100),
        })
    }
}
