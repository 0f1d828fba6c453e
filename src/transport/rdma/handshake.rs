//! What two processes tell each other, through the host, before they reach each other's memory.
//!
//! Who wants to reach a peer *asks*: it says its name, and where its window memory and words are.
//! The peer makes a queue for a process of that name, if it has none, and *answers* with the same
//! and the queue's number; the asker connects its own queue to it, and *confirms* with that one's
//! number; the peer connects, and says that it *is ready*, since nobody may send before the other
//! can take it in. Both may ask at once: each has one queue for the other, so both come to the same
//! pair. A pair of processes has one pair of queues, whatever windows they share; each window says
//! hello for itself.
//!
//! Where there are too few queues, whoever has made its own and waits for the peer's keeps others
//! waiting. So that they do not wait for each other in a round, the process with the lower name
//! makes its queue first: the other one does not answer its question, but *yields*, and it answers
//! that.
//!
//! What a hello says of the queue holds for one *generation* of it: queues are closed where there
//! are too many, and made again.

use super::device::PortAddress;
use crate::engine::Rank;

/// Where some registered memory of a process is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteAddress {
    /// Address there.
    pub at: u64,
    /// Key.
    pub rkey: u32,
}

/// Names a process among all others, whatever window they meet in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub [u64; 2]);

/// How far they have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Step {
    /// The sender wants to reach the receiver.
    Request = 0,
    /// The sender has a queue for the receiver.
    Reply = 1,
    /// The sender's queue is connected to the receiver's.
    Confirm = 2,
    /// So is the other one.
    Ready = 3,
    /// The sender cannot connect.
    Reject = 4,
    /// The sender wants to know where the receiver's words are that concern the target `about`, in
    /// whose queue the two have met.
    LookupRequest = 5,
    /// They are at `pair`.
    LookupReply = 6,
    /// The sender makes a queue for the receiver as soon as the receiver has made its own.
    Yield = 7,
}

impl Step {
    /// The receiver is to make a queue for the sender.
    pub(in crate::transport::rdma) fn needs_qp(self) -> bool {
        matches!(self, Step::Request | Step::Yield)
    }

    /// The sender waits for a hello that comes of this one.
    pub(in crate::transport::rdma) fn expects_reply(self) -> bool {
        matches!(
            self,
            Step::Request | Step::Reply | Step::Confirm | Step::LookupRequest | Step::Yield
        )
    }
}

/// The message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// What it says.
    pub stage: Step,
    /// Who sends it.
    pub name: ProcessId,
    /// How many queues it has had for the receiver before; [`UNKNOWN`](Self::UNKNOWN) if it does
    /// not know the receiver yet.
    pub generation: u32,
    /// Number of its queue for the receiver; 0 if it has none.
    pub number: u32,
    /// That is connected to the receiver's.
    pub connected: bool,
    /// Its port.
    pub address: PortAddress,
    /// Its number of the window.
    pub window: u32,
    /// Its window memory; key and address are 0 if it has none that can be reached.
    pub memory: RemoteAddress,
    /// Its words of the lock service.
    pub words: RemoteAddress,
    /// Its words of this pair.
    pub pair: RemoteAddress,
    /// Eight bytes of the process's that may be read at any time.
    pub flush_target: RemoteAddress,
    /// See [`Stage::Seeks`].
    pub about: Rank,
}

const MAGIC: u32 = 0x7270_6d76;
/// Bytes of the message.
pub const LEN: usize = 4 + 4 + 16 + 4 + 4 + 16 + 4 + 4 * 12 + 4 + 4;

impl Handshake {
    /// No generation.
    pub const UNKNOWN: u32 = u32::MAX;

    /// As it is sent.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(LEN);
        bytes.extend(MAGIC.to_ne_bytes());
        bytes.extend([
            self.stage as u8,
            self.address.mtu,
            self.address.depth,
            self.connected.into(),
        ]);
        self.name.0.iter().for_each(|half| bytes.extend(half.to_ne_bytes()));
        bytes.extend(self.number.to_ne_bytes());
        bytes.extend(u32::from(self.address.lid).to_ne_bytes());
        bytes.extend(self.address.gid);
        bytes.extend(self.window.to_ne_bytes());
        for spot in [self.memory, self.words, self.pair, self.flush_target] {
            bytes.extend(spot.at.to_ne_bytes());
            bytes.extend(spot.rkey.to_ne_bytes());
        }
        bytes.extend(self.about.to_ne_bytes());
        bytes.extend(self.generation.to_ne_bytes());
        debug_assert_eq!(bytes.len(), LEN);
        bytes
    }

    /// Reads what has come in; `None` if it is something else.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != LEN || bytes[..4] != MAGIC.to_ne_bytes() {
            return None;
        }
        let four =
            |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let eight =
            |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let spot = |at: usize| RemoteAddress { at: eight(at), rkey: four(at + 8) };
        Some(Handshake {
            stage: match bytes[4] {
                0 => Step::Request,
                1 => Step::Reply,
                2 => Step::Confirm,
                3 => Step::Ready,
                4 => Step::Reject,
                5 => Step::LookupRequest,
                6 => Step::LookupReply,
                7 => Step::Yield,
                _ => return None,
            },
            name: ProcessId([eight(8), eight(16)]),
            generation: four(104),
            number: four(24),
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
            memory: spot(52),
            words: spot(64),
            pair: spot(76),
            flush_target: spot(88),
            about: four(100),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_was_written_and_nothing_else() {
        let spot = |n: u64| RemoteAddress { at: n << 40 | 7, rkey: n as u32 };
        let hello = Handshake {
            stage: Step::Reply,
            name: ProcessId([1 << 60, 2]),
            generation: 3,
            number: 77,
            connected: true,
            address: PortAddress {
                lid: 9,
                mtu: 5,
                depth: 16,
                gid: std::array::from_fn(|at| at as u8),
            },
            window: 12,
            memory: spot(1),
            words: spot(2),
            pair: spot(3),
            flush_target: spot(4),
            about: 8,
        };
        let bytes = hello.bytes();
        assert_eq!(Handshake::read(&bytes), Some(hello));
        assert_eq!(Handshake::read(&bytes[..LEN - 1]), None);
        let mut other = bytes.clone();
        other[0] ^= 1;
        assert_eq!(Handshake::read(&other), None);
        let mut other = bytes;
        other[4] = 8;
        assert_eq!(Handshake::read(&other), None);
    }
}
