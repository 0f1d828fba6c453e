//! The format of packets: a writer, and a reader that validates its input.
//!
//! A packet is an envelope, a header and records, which take effect in order. Integers are in
//! native byte order, which all processes of a job share. The reader checks every code, and every
//! length against the packet. The caller checks that places lie in the window ([`Place::bounds`]).
//!
//! Envelope and header are small because hosts send very short messages faster. A short put with
//! the signal behind it should fit into one of those.
//!
//! ```text
//! packet:  window u64 | source u32 | magic u16 | content u8 | flags u8 |
//!          packets taken u32 | operations done u32 | records ...
//! record:  kind u8, three codes u8 | id u32 | payload bytes u32 | runs u32 | u64 ... |
//!          payload, padded to 8 bytes
//! ```

use super::channel::{MAX_TAGS, TransferKind, TransferTag};
use crate::engine::{Atomic, Element, LockWord, Rank, Reduction, Word};
pub use crate::transport::PACKET;

/// Bytes of a packet's envelope.
pub const ENVELOPE: usize = 16;
/// Bytes of a packet's envelope and header.
pub const HEADER: usize = ENVELOPE + 8;
/// Bytes of a record's header.
const RECORD_HEADER: usize = 16;
/// Maximum bytes of an operation's record without its payload.
pub(super) const RECORD_OVERHEAD: usize = RECORD_HEADER + 3 * 8 + 7;
/// Maximum bytes of payload of one record.
pub const PAYLOAD: usize = (PACKET - HEADER - RECORD_OVERHEAD) & !63;
/// Maximum bytes of a rendezvous transfer: the host's counts are ints.
pub const MAX_TRANSFER: u64 = 1 << 30;

/// What follows the envelope of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Content {
    /// A header and records.
    Records = 1,
    /// A message of a collective operation of the library ([`super::collective`]).
    Collective = 2,
    /// A message of RDMA's connection handshake.
    Handshake = 3,
    /// Packets of several windows to the same process ([`super::bundle`]).
    Bundle = 4,
}

/// Marks the packets of this version of the library.
const MAGIC: u16 = 0x726d;
/// Flag: the sender asks for an acknowledgement.
const ACK_WANTED: u8 = 1;
/// Flag: the packet costs a credit.
const COUNTED: u8 = 2;

/// The last four bytes of an envelope.
fn mark(content: Content, flags: u8) -> [u8; 4] {
    let [low, high] = MAGIC.to_ne_bytes();
    [low, high, content as u8, flags]
}

/// Why a message is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the error texts are the documentation")]
pub enum Malformed {
    #[error("it is not a packet of this version of the library")]
    NotAPacket,
    #[error("it is truncated")]
    Truncated,
    #[error("it has a record of an unknown kind")]
    UnknownKind,
    #[error("the lengths in a record contradict each other")]
    Lengths,
    #[error("an operation accesses memory outside the window")]
    OutsideWindow,
    #[error("an operation has an unknown datatype or reduction")]
    UnknownReduction,
    #[error("it names a rank or lock word that does not exist")]
    UnknownWord,
    #[error("invalid notification counter")]
    UnknownCounter,
    /// The tag of a notification is negative as an `int`.
    #[error("invalid tag")]
    UnknownTag,
    #[error("unexpected reply: no matching request is outstanding")]
    UnexpectedReply,
    #[error("it acknowledges packets or operations that were not sent")]
    NotSent,
    /// The peer exceeds its credits, transfers or bytes of replies.
    #[error("the peer exceeds the limits of flow control")]
    TooMuch,
    #[error("it names an invalid rank")]
    UnknownProcess,
    #[error("it announces a transfer with an invalid tag")]
    InvalidTransferTag,
    #[error("the peer has refused a message of this process")]
    RefusedByPeer,
}

/// Bytes in a target's window: `count` runs of `len` bytes each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Displacement of the first run.
    pub disp: u64,
    /// Bytes of one run.
    pub len: u64,
    /// Bytes from the start of one run to that of the next.
    pub stride: i64,
    /// Number of runs.
    pub count: u32,
}

impl Place {
    /// A place of one run.
    #[must_use]
    #[inline]
    pub fn flat(disp: u64, len: u64) -> Self {
        Place { disp, len, stride: 0, count: 1 }
    }

    /// Bytes of all runs, saturating.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.len.saturating_mul(u64::from(self.count))
    }

    /// Displacements of the first byte and past the last; `None` if they overflow or are negative.
    #[must_use]
    pub fn bounds(&self) -> Option<(u64, u64)> {
        let span = self.stride.checked_mul(i64::from(self.count.max(1)) - 1)?;
        let last = self.disp.checked_add_signed(span)?;
        let (low, high) = (self.disp.min(last), self.disp.max(last));
        Some((low, high.checked_add(self.len)?))
    }
}

/// The elements of an accumulate and their reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElementOp {
    /// Datatype of the elements.
    pub element: Element,
    /// Reduction applied to them.
    pub reduction: Reduction,
    /// Bytes from one element to the next.
    pub extent: u8,
}

/// One record. Ids are chosen by the requester and returned in the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// Stores the payload.
    Put(Place, &'a [u8]),
    /// Requests bytes in a reply.
    Get(Place, u32),
    /// Announces a rendezvous transfer, which carries the data of a put or get.
    Rendezvous(Place, TransferTag),
    /// Reduces the payload into the window.
    Accumulate(Place, ElementOp, &'a [u8]),
    /// Like `Accumulate`, and requests the old bytes in a reply. A no_op has no payload.
    Fetch(Place, ElementOp, u32, &'a [u8]),
    /// Compares and swaps one element. The payload is the new value, then the compare value.
    Swap(Place, u32, &'a [u8]),
    /// The reply to the request with this id.
    Reply(u32, &'a [u8]),
    /// Raises a counter of the receiver after the sender's earlier operations. It is an operation
    /// itself.
    Notify(u32),
    /// Like `Notify`, but delivers a notification with this tag.
    NotifyTagged(u32),
    /// Raises one of the sender's signal words after the sender's earlier operations.
    Signal(Word, u64),
    /// Accesses a lock word of the receiver. The id is the requester's ticket.
    Access(LockWord, Atomic, u32),
    /// The old value of a lock word, with the ticket.
    Answer(u32, u64),
    /// The last record of the sender.
    Close,
    /// The sender has refused a message of the receiver and ignores the receiver from now on.
    Refusal,
    /// The sender has lost its connection to this rank, so the window has failed. The sender
    /// ignores the receiver from now on.
    Lost(Rank),
    /// The sender has skipped an operation of the receiver on memory that is not attached.
    Unattached(Unattached),
}

/// An operation that its target has skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unattached {
    /// Address of its first byte.
    pub disp: u64,
    /// Bytes from there to its last byte.
    pub len: u64,
    /// The operation.
    pub which: OpRef,
}

/// Identifies an operation of the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpRef {
    /// By the id of its reply, which will not come.
    Reply(u32),
    /// By its number among the receiver's operations.
    Number(u64),
}

impl Record<'_> {
    /// The memory that an operation accesses.
    #[must_use]
    #[inline]
    pub fn place(&self) -> Option<Place> {
        match *self {
            Record::Put(place, _)
            | Record::Get(place, _)
            | Record::Rendezvous(place, _)
            | Record::Accumulate(place, ..)
            | Record::Fetch(place, ..)
            | Record::Swap(place, ..) => Some(place),
            _ => None,
        }
    }

    /// Whether it is more than a part of an operation whose effect is complete with the record.
    #[must_use]
    #[inline]
    pub fn is_news(&self) -> bool {
        !matches!(
            self,
            Record::Put(..)
                | Record::Get(..)
                | Record::Accumulate(..)
                | Record::Fetch(..)
                | Record::Swap(..)
                | Record::Reply(..)
        )
    }

    /// Bytes that it requests in a reply.
    #[must_use]
    #[inline]
    pub fn reply_bytes(&self) -> u64 {
        match *self {
            Record::Get(place, _) | Record::Fetch(place, ..) | Record::Swap(place, ..) => {
                place.bytes()
            }
            _ => 0,
        }
    }
}

/// A packet's header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The sender asks for an acknowledgement.
    pub ack_wanted: bool,
    /// The packet costs a credit.
    pub counted: bool,
    /// Number of the receiver's packets with a credit that the sender has received (low half).
    pub taken: u32,
    /// Number up to which the sender has done the receiver's operations (low half).
    pub done: u32,
}

/// Kinds of records. Those of operations, which have a place, are the first: up to `SWAP`.
mod kind {
    pub(super) const PUT: u8 = 1;
    pub(super) const PUT_RENDEZVOUS: u8 = 2;
    pub(super) const GET: u8 = 3;
    pub(super) const GET_RENDEZVOUS: u8 = 4;
    pub(super) const ACCUMULATE: u8 = 5;
    pub(super) const FETCH: u8 = 6;
    pub(super) const SWAP: u8 = 7;
    pub(super) const REPLY: u8 = 8;
    pub(super) const SIGNAL: u8 = 9;
    pub(super) const ACCESS: u8 = 10;
    pub(super) const ANSWER: u8 = 11;
    pub(super) const CLOSE: u8 = 12;
    pub(super) const REFUSAL: u8 = 13;
    pub(super) const NOTIFY: u8 = 14;
    pub(super) const NOTIFY_TAGGED: u8 = 15;
    pub(super) const UNATTACHED: u8 = 16;
    pub(super) const LOST: u8 = 17;
}

/// A packet being written, or a received one.
#[derive(Debug, Default)]
pub struct Packet {
    /// At most [`PACKET`] bytes.
    pub bytes: Vec<u8>,
}

impl Packet {
    /// An empty packet with full capacity.
    #[must_use]
    pub fn new() -> Self {
        let mut packet = Packet { bytes: Vec::with_capacity(PACKET) };
        packet.clear();
        packet
    }

    /// The packet with an envelope only, for content other than records. The caller appends that.
    #[must_use]
    pub fn holding(mut self, content: Content) -> Self {
        self.bytes.clear();
        self.bytes.resize(ENVELOPE, 0);
        self.bytes[12..].copy_from_slice(&mark(content, 0));
        self
    }

    /// Writes the number of the receiver's port, and the sender's rank in the window.
    pub fn address(&mut self, window: u64, source: Rank) {
        self.bytes[..8].copy_from_slice(&window.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&source.to_ne_bytes());
    }

    /// The number of the receiver's port, and the sender's rank; `None` if the packet is too short.
    #[must_use]
    pub fn addressee(&self) -> Option<(u64, Rank)> {
        let window = u64::from_ne_bytes(*self.bytes.first_chunk()?);
        let source = u32::from_ne_bytes(self.bytes.get(8..12)?.try_into().ok()?);
        Some((window, source))
    }

    /// Its content; `None` if it is not a packet of this version of the library.
    #[must_use]
    pub fn content(&self) -> Option<Content> {
        let marked = self.bytes.get(12..ENVELOPE - 1)?;
        [Content::Records, Content::Collective, Content::Handshake, Content::Bundle]
            .into_iter()
            .find(|content| *marked == mark(*content, 0)[..3])
    }

    /// Removes all records.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.resize(HEADER, 0);
    }

    /// Whether it has no records.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.len() == HEADER
    }

    /// Bytes of payload for which one more record has room; `None` if no record fits.
    #[must_use]
    #[inline]
    pub fn room(&self) -> Option<usize> {
        (PACKET - self.bytes.len()).checked_sub(RECORD_OVERHEAD)
    }

    /// Writes the header. Call after the last record.
    pub fn seal(&mut self, header: Header) {
        let flags = if header.ack_wanted { ACK_WANTED } else { 0 }
            | if header.counted { COUNTED } else { 0 };
        self.bytes[12..16].copy_from_slice(&mark(Content::Records, flags));
        self.bytes[16..20].copy_from_slice(&header.taken.to_ne_bytes());
        self.bytes[20..HEADER].copy_from_slice(&header.done.to_ne_bytes());
    }

    #[inline]
    fn head(&mut self, codes: [u8; 4], id: u32, payload: usize, runs: u32) {
        let mut head = [0; RECORD_HEADER];
        head[..4].copy_from_slice(&codes);
        head[4..8].copy_from_slice(&id.to_ne_bytes());
        head[8..12].copy_from_slice(&(payload as u32).to_ne_bytes());
        head[12..].copy_from_slice(&runs.to_ne_bytes());
        self.bytes.extend_from_slice(&head);
    }

    #[inline]
    fn u64(&mut self, number: u64) {
        self.bytes.extend_from_slice(&number.to_ne_bytes());
    }

    #[inline]
    fn place(&mut self, place: Place) {
        self.u64(place.disp);
        self.u64(place.len);
        if place.count != 1 {
            self.u64(place.stride as u64);
        }
    }

    /// Appends an operation. Returns its payload of `payload` zero bytes for the caller to fill.
    #[inline]
    fn operation(&mut self, codes: [u8; 4], id: u32, place: Place, payload: usize) -> &mut [u8] {
        debug_assert!(self.room().is_some_and(|room| payload <= room));
        self.head(codes, id, payload, place.count);
        self.place(place);
        self.payload(payload)
    }

    #[inline]
    fn payload(&mut self, len: usize) -> &mut [u8] {
        let at = self.bytes.len();
        self.bytes.resize(at + len.next_multiple_of(8), 0);
        &mut self.bytes[at..at + len]
    }

    /// Appends [`Record::Put`].
    #[inline]
    pub fn put(&mut self, place: Place) -> &mut [u8] {
        self.operation([kind::PUT, 0, 0, 0], 0, place, place.bytes() as usize)
    }

    /// Appends [`Record::Accumulate`].
    pub fn accumulate(&mut self, place: Place, how: ElementOp) -> &mut [u8] {
        let codes = [kind::ACCUMULATE, how.element.0, how.reduction.0, how.extent];
        self.operation(codes, 0, place, place.bytes() as usize)
    }

    /// Appends [`Record::Fetch`].
    pub fn fetch(
        &mut self,
        place: Place,
        how: ElementOp,
        id: u32,
        with_payload: bool,
    ) -> &mut [u8] {
        let codes = [kind::FETCH, how.element.0, how.reduction.0, how.extent];
        self.operation(codes, id, place, if with_payload { place.bytes() as usize } else { 0 })
    }

    /// Appends [`Record::Swap`].
    pub fn swap(&mut self, place: Place, id: u32) -> &mut [u8] {
        self.operation([kind::SWAP, 0, 0, 0], id, place, 2 * place.bytes() as usize)
    }

    /// Appends [`Record::Reply`].
    pub fn reply(&mut self, id: u32, len: usize) -> &mut [u8] {
        self.head([kind::REPLY, 0, 0, 0], id, len, 0);
        self.payload(len)
    }

    /// Appends a record without payload.
    ///
    /// # Panics
    /// If the record has a payload: another method of this type appends it.
    #[inline]
    pub fn push(&mut self, record: &Record<'_>) {
        let mut plain = |kind, code, id| self.head([kind, code, 0, 0], id, 0, 0);
        match *record {
            Record::Get(place, id) => _ = self.operation([kind::GET, 0, 0, 0], id, place, 0),
            Record::Rendezvous(place, tag) => {
                let kind = match tag.kind {
                    TransferKind::Put => kind::PUT_RENDEZVOUS,
                    TransferKind::Get => kind::GET_RENDEZVOUS,
                };
                self.operation([kind, 0, 0, 0], tag.number, place, 0);
            }
            Record::Notify(index) => plain(kind::NOTIFY, 0, index),
            Record::NotifyTagged(tag) => plain(kind::NOTIFY_TAGGED, 0, tag),
            Record::Signal(word, value) => {
                plain(kind::SIGNAL, word as u8, 0);
                self.u64(value);
            }
            Record::Access(word, access, ticket) => {
                let (code, parity, target) = encode_word(word);
                let (operation, one, other) = match access {
                    Atomic::Load => (0, 0, 0),
                    Atomic::Store(value) => (1, value, 0),
                    Atomic::Swap(value) => (2, value, 0),
                    Atomic::Add(delta) => (3, delta, 0),
                    Atomic::CompareSwap { expected, new } => (4, expected, new),
                };
                self.head([kind::ACCESS, code, parity, operation], ticket, 0, target);
                self.u64(one);
                self.u64(other);
            }
            Record::Answer(ticket, value) => {
                plain(kind::ANSWER, 0, ticket);
                self.u64(value);
            }
            Record::Close => plain(kind::CLOSE, 0, 0),
            Record::Refusal => plain(kind::REFUSAL, 0, 0),
            Record::Lost(rank) => plain(kind::LOST, 0, rank),
            Record::Unattached(Unattached { disp, len, which }) => {
                let (by, id, number) = match which {
                    OpRef::Reply(id) => (0, id, 0),
                    OpRef::Number(number) => (1, 0, number),
                };
                plain(kind::UNATTACHED, by, id);
                self.u64(disp);
                self.u64(len);
                self.u64(number);
            }
            Record::Put(..)
            | Record::Accumulate(..)
            | Record::Fetch(..)
            | Record::Swap(..)
            | Record::Reply(..) => unreachable!("{record:?} has a payload"),
        }
    }
}

/// Lock words without parameters. The index is the code.
const PLAIN_WORDS: [LockWord; 8] = [
    LockWord::Holders,
    LockWord::Intent,
    LockWord::Licensed,
    LockWord::Licence,
    LockWord::NextLicensed,
    LockWord::Tail,
    LockWord::Readers,
    LockWord::NextWriter,
];

fn encode_word(word: LockWord) -> (u8, u8, Rank) {
    match word {
        LockWord::Next { target, parity } => (8, parity & 1, target),
        LockWord::Grant { target } => (9, 0, target),
        _ => {
            let code = PLAIN_WORDS.iter().position(|plain| *plain == word);
            (code.expect("all other words are listed") as u8, 0, 0)
        }
    }
}

fn decode_word(code: u8, parity: u8, target: Rank) -> Option<LockWord> {
    match code {
        8 if parity <= 1 => Some(LockWord::Next { target, parity }),
        9 => Some(LockWord::Grant { target }),
        _ => PLAIN_WORDS.get(usize::from(code)).copied(),
    }
}

/// Reads and validates the records of a packet.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// The header of a packet, and a reader of its records.
    ///
    /// # Errors
    /// The bytes do not begin with a valid envelope and header, or are too many.
    pub fn new(bytes: &'a [u8]) -> Result<(Header, Self), Malformed> {
        let mut reader = Reader { rest: bytes };
        let is_sized = (HEADER..=PACKET).contains(&bytes.len());
        let envelope = reader.take(ENVELOPE).map_err(|_| Malformed::NotAPacket)?;
        let flags = envelope[ENVELOPE - 1];
        let is_marked = envelope[12..] == mark(Content::Records, flags);
        if !is_sized || !is_marked || flags & !(ACK_WANTED | COUNTED) != 0 {
            return Err(Malformed::NotAPacket);
        }
        let (taken, done) = (reader.u32()?, reader.u32()?);
        let (ack_wanted, counted) = (flags & ACK_WANTED != 0, flags & COUNTED != 0);
        Ok((Header { ack_wanted, counted, taken, done }, reader))
    }

    #[inline]
    fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(Malformed::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_ne_bytes(self.take(4)?.try_into().expect("four bytes")))
    }

    #[inline]
    fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_ne_bytes(self.take(8)?.try_into().expect("eight bytes")))
    }

    #[inline]
    fn place(&mut self, count: u32) -> Result<Place, Malformed> {
        let (disp, len) = (self.u64()?, self.u64()?);
        let stride = if count == 1 { 0 } else { self.u64()? as i64 };
        if count == 0 || len == 0 {
            return Err(Malformed::Lengths);
        }
        Ok(Place { disp, len, stride, count })
    }

    #[inline]
    fn payload(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let padded = len.checked_next_multiple_of(8).ok_or(Malformed::Truncated)?;
        Ok(&self.take(padded)?[..len])
    }

    /// The next record.
    ///
    /// # Errors
    /// The record is malformed, which makes the rest of the packet unreadable.
    #[inline]
    pub fn next_record(&mut self) -> Result<Option<Record<'a>>, Malformed> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let codes: [u8; 4] = self.take(4)?.try_into().expect("four bytes");
        let (id, payload, runs) = (self.u32()?, self.u32()? as usize, self.u32()?);
        let [kind, ..] = codes;
        let record = match kind {
            kind::PUT..=kind::SWAP => {
                operation(codes, id, self.place(runs)?, self.payload(payload)?)?
            }
            kind::REPLY => Record::Reply(id, self.payload(payload)?),
            _ if payload != 0 => return Err(Malformed::Lengths),
            kind::NOTIFY => Record::Notify(id),
            kind::NOTIFY_TAGGED => Record::NotifyTagged(id),
            kind::SIGNAL => {
                Record::Signal(signal(codes[1]).ok_or(Malformed::UnknownKind)?, self.u64()?)
            }
            kind::ACCESS => {
                let word = decode_word(codes[1], codes[2], runs).ok_or(Malformed::UnknownKind)?;
                let (one, other) = (self.u64()?, self.u64()?);
                let access = match codes[3] {
                    0 => Atomic::Load,
                    1 => Atomic::Store(one),
                    2 => Atomic::Swap(one),
                    3 => Atomic::Add(one),
                    4 => Atomic::CompareSwap { expected: one, new: other },
                    _ => return Err(Malformed::UnknownKind),
                };
                Record::Access(word, access, id)
            }
            kind::ANSWER => Record::Answer(id, self.u64()?),
            kind::CLOSE => Record::Close,
            kind::REFUSAL => Record::Refusal,
            kind::LOST => Record::Lost(id),
            kind::UNATTACHED => {
                let (disp, len, number) = (self.u64()?, self.u64()?, self.u64()?);
                let which = match codes[1] {
                    0 => OpRef::Reply(id),
                    1 => OpRef::Number(number),
                    _ => return Err(Malformed::UnknownKind),
                };
                Record::Unattached(Unattached { disp, len, which })
            }
            _ => return Err(Malformed::UnknownKind),
        };
        Ok(Some(record))
    }
}

fn signal(code: u8) -> Option<Word> {
    [Word::Grant, Word::Done, Word::Fence].into_iter().find(|word| *word as u8 == code)
}

/// The operation with these parts.
///
/// # Errors
/// Its lengths contradict each other, or the tag of its transfer is invalid.
#[inline]
fn operation(codes: [u8; 4], id: u32, place: Place, data: &[u8]) -> Result<Record<'_>, Malformed> {
    let [kind, element, reduction, extent] = codes;
    let how = ElementOp { element: Element(element), reduction: Reduction(reduction), extent };
    let (bytes, len) = (place.bytes(), data.len() as u64);
    let small = bytes <= PAYLOAD as u64;
    let (agrees, record) = match kind {
        kind::PUT => (len == bytes, Record::Put(place, data)),
        kind::GET => (len == 0 && small, Record::Get(place, id)),
        kind::ACCUMULATE => (len == bytes, Record::Accumulate(place, how, data)),
        kind::FETCH => (small && (len == 0 || len == bytes), Record::Fetch(place, how, id, data)),
        kind::SWAP => {
            (place.count == 1 && Some(len) == bytes.checked_mul(2), Record::Swap(place, id, data))
        }
        _ if id >= MAX_TAGS => return Err(Malformed::InvalidTransferTag),
        _ => {
            let is_put = kind == kind::PUT_RENDEZVOUS;
            let kind = if is_put { TransferKind::Put } else { TransferKind::Get };
            let record = Record::Rendezvous(place, TransferTag { kind, number: id });
            (len == 0 && place.count == 1 && bytes <= MAX_TRANSFER, record)
        }
    };
    if agrees { Ok(record) } else { Err(Malformed::Lengths) }
}
