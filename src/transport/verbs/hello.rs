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

use super::nic::Address;
use crate::engine::Rank;

/// Where some registered memory of a process is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spot {
    /// Address there.
    pub at: u64,
    /// Key.
    pub rkey: u32,
}

/// Names a process among all others, whatever window they meet in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(pub [u64; 2]);

/// How far they have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stage {
    /// The sender wants to reach the receiver.
    Asks = 0,
    /// The sender has a queue for the receiver.
    Answers = 1,
    /// The sender's queue is connected to the receiver's.
    Confirms = 2,
    /// So is the other one.
    IsReady = 3,
    /// The sender cannot connect.
    Declines = 4,
    /// The sender wants to know where the receiver's words are that concern the target `about`, in
    /// whose queue the two have met.
    Seeks = 5,
    /// They are at `pair`.
    Finds = 6,
    /// The sender makes a queue for the receiver as soon as the receiver has made its own.
    Yields = 7,
}

impl Stage {
    /// The receiver is to make a queue for the sender.
    pub(in crate::transport::verbs) fn wants_queue(self) -> bool {
        matches!(self, Stage::Asks | Stage::Yields)
    }

    /// The sender waits for a hello that comes of this one.
    pub(in crate::transport::verbs) fn wants_answer(self) -> bool {
        matches!(
            self,
            Stage::Asks | Stage::Answers | Stage::Confirms | Stage::Seeks | Stage::Yields
        )
    }
}

/// The message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// What it says.
    pub stage: Stage,
    /// Who sends it.
    pub name: Name,
    /// How many queues it has had for the receiver before; [`UNKNOWN`](Self::UNKNOWN) if it does
    /// not know the receiver yet.
    pub generation: u32,
    /// Number of its queue for the receiver; 0 if it has none.
    pub number: u32,
    /// That is connected to the receiver's.
    pub connected: bool,
    /// Its port.
    pub address: Address,
    /// Its number of the window.
    pub window: u32,
    /// Its window memory; key and address are 0 if it has none that can be reached.
    pub memory: Spot,
    /// Its words of the lock service.
    pub words: Spot,
    /// Its words of this pair.
    pub pair: Spot,
    /// Eight bytes of the process's that may be read at any time.
    pub ground: Spot,
    /// See [`Stage::Seeks`].
    pub about: Rank,
}

const MAGIC: u32 = 0x7270_6d76;
/// Bytes of the message.
pub const LEN: usize = 4 + 4 + 16 + 4 + 4 + 16 + 4 + 4 * 12 + 4 + 4;

impl Hello {
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
        for spot in [self.memory, self.words, self.pair, self.ground] {
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
        let spot = |at: usize| Spot { at: eight(at), rkey: four(at + 8) };
        Some(Hello {
            stage: match bytes[4] {
                0 => Stage::Asks,
                1 => Stage::Answers,
                2 => Stage::Confirms,
                3 => Stage::IsReady,
                4 => Stage::Declines,
                5 => Stage::Seeks,
                6 => Stage::Finds,
                7 => Stage::Yields,
                _ => return None,
            },
            name: Name([eight(8), eight(16)]),
            generation: four(104),
            number: four(24),
            connected: match bytes[7] {
                0 => false,
                1 => true,
                _ => return None,
            },
            address: Address {
                lid: u16::try_from(four(28)).ok()?,
                mtu: bytes[5],
                depth: bytes[6],
                gid: bytes[32..48].try_into().expect("sixteen bytes"),
            },
            window: four(48),
            memory: spot(52),
            words: spot(64),
            pair: spot(76),
            ground: spot(88),
            about: four(100),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_was_written_and_nothing_else() {
        let spot = |n: u64| Spot { at: n << 40 | 7, rkey: n as u32 };
        let hello = Hello {
            stage: Stage::Answers,
            name: Name([1 << 60, 2]),
            generation: 3,
            number: 77,
            connected: true,
            address: Address { lid: 9, mtu: 5, depth: 16, gid: std::array::from_fn(|at| at as u8) },
            window: 12,
            memory: spot(1),
            words: spot(2),
            pair: spot(3),
            ground: spot(4),
            about: 8,
        };
        let bytes = hello.bytes();
        assert_eq!(Hello::read(&bytes), Some(hello));
        assert_eq!(Hello::read(&bytes[..LEN - 1]), None);
        let mut other = bytes.clone();
        other[0] ^= 1;
        assert_eq!(Hello::read(&other), None);
        let mut other = bytes;
        other[4] = 8;
        assert_eq!(Hello::read(&other), None);
    }
}
