//! Active messages: how they are written, and read again trusting nothing.
//!
//! A packet is a header and records, in the order in which they are to take effect. Numbers have
//! the byte order of the machine: processes of one job have one. What a reader gives out has been
//! checked against the packet: every length lies in it, every code is known. Whether a place lies
//! in the window is for the one to check who has the window ([`Place::lies_in`]).
//!
//! ```text
//! packet:  magic u32 | flags u32 | packets taken u64 | operations done u64 | records ...
//! record:  kind u8, three codes u8 | id u32 | payload u32 | runs u32 | numbers u64 ... | payload, padded to 8 bytes
//! ```

use crate::engine::{Atomic, Element, LockWord, Rank, Reduction, Word};

/// Bytes of a packet at most.
pub const PACKET: usize = 16 * 1024;
/// Bytes before the first record.
pub const HEADER: usize = 24;
/// Bytes of a record's head.
const HEAD: usize = 16;
/// Bytes that an operation needs besides its payload.
const BESIDES: usize = HEAD + 3 * 8 + 7;
/// Bytes of payload of one operation at most.
pub const PAYLOAD: usize = (PACKET - HEADER - BESIDES) & !63;
/// Bytes that are moved in one message of their own at most: the host's counts are ints.
pub const BULK: u64 = 1 << 30;

const MAGIC: u32 = 0x7270_6d01;
/// The sender waits until its operations are done here.
const ACK_WANTED: u32 = 1;
/// The packet was paid for with a credit.
const COUNTED: u32 = 2;

/// What is wrong with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// It does not begin as a packet does.
    #[error("it is not a packet of this version of the library")]
    NotAPacket,
    /// A record ends beyond the packet.
    #[error("it is truncated")]
    Truncated,
    /// A code is unknown.
    #[error("it has a record of an unknown kind")]
    UnknownKind,
    /// Numbers of a record contradict each other.
    #[error("the lengths in a record contradict each other")]
    Lengths,
    /// An operation reaches beyond the window.
    #[error("an operation reaches beyond the window")]
    OutsideWindow,
    /// A datatype or reduction is unknown, or the two do not go together.
    #[error("an operation has an unknown datatype or reduction")]
    UnknownReduction,
    /// A rank is not one of the window's, or a word is not at home here.
    #[error("a rank or word is not of this window")]
    UnknownWord,
    /// This process has no such counter.
    #[error("it raises a counter that this process does not have")]
    UnknownCounter,
    /// It is no tag.
    #[error("it tells a tag that is none")]
    UnknownTag,
    /// A reply to nothing.
    #[error("it answers a question that was not asked")]
    NotAsked,
    /// It reports more than was sent.
    #[error("it acknowledges what was not sent")]
    NotSent,
    /// The peer has sent more than it had credits for.
    #[error("the peer has sent more than was agreed")]
    TooMuch,
    /// It tells of a process that the window does not have.
    #[error("it tells of a process that is none")]
    UnknownProcess,
    /// The peer has refused what this process has sent.
    #[error("the peer says that it has refused a message of this process")]
    RefusedThere,
}

/// Bytes of a target's window: `count` runs of `len` bytes, `stride` apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Displacement of the first run.
    pub disp: u64,
    /// Bytes of one run.
    pub len: u64,
    /// From one run to the next.
    pub stride: i64,
    /// How many.
    pub count: u32,
}

impl Place {
    /// One run.
    #[must_use]
    #[inline]
    pub fn flat(disp: u64, len: u64) -> Self {
        Place { disp, len, stride: 0, count: 1 }
    }

    /// Bytes of all runs. At most 2^64 after a reader has seen it.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.len.saturating_mul(u64::from(self.count))
    }

    /// Displacements of the first byte and of what follows the last; `None` if they pass 64 bits or
    /// lie before the window.
    #[must_use]
    pub fn bounds(&self) -> Option<(u64, u64)> {
        let span = self.stride.checked_mul(i64::from(self.count.max(1)) - 1)?;
        let last = self.disp.checked_add_signed(span)?;
        let (low, high) = (self.disp.min(last), self.disp.max(last));
        Some((low, high.checked_add(self.len)?))
    }

    /// True if all of it lies in a window of `size` bytes.
    #[must_use]
    pub fn lies_in(&self, size: u64) -> bool {
        self.bounds().is_some_and(|(_, end)| end <= size)
    }
}

/// What accumulates do to their elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct How {
    /// Datatype.
    pub element: Element,
    /// Reduction.
    pub reduction: Reduction,
    /// Bytes from one element to the next.
    pub extent: u8,
}

/// One record. `id` is the asker's, and comes back in the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// Stores the payload.
    Put(Place, &'a [u8]),
    /// Stores a message of its own, the next of its stream.
    PutBulk(Place),
    /// Wants bytes in a reply.
    Get(Place, u32),
    /// Wants bytes in a message of their own, the next of its stream.
    GetBulk(Place),
    /// Reduces the payload into the window.
    Accumulate(Place, How, &'a [u8]),
    /// The same, and wants what was there. Without payload for no_op.
    Fetch(Place, How, u32, &'a [u8]),
    /// Compares and swaps one element: origin and compare, in this order.
    Swap(Place, u32, &'a [u8]),
    /// What was asked for under this id.
    Reply(u32, &'a [u8]),
    /// Raises a counter of the receiver, when the sender's operations before it are done; itself
    /// one of them.
    Notify(u32),
    /// Tells the receiver a tag, in the same way.
    NotifyTagged(u32),
    /// Raises the word that the sender writes.
    Signal(Word, u64),
    /// Accesses a lock word; the id is the asker's ticket.
    Access(LockWord, Atomic, u32),
    /// The old value of a lock word.
    Answer(u32, u64),
    /// The sender sends nothing more.
    Farewell,
    /// The sender has refused a message of the receiver's, and takes nothing more from it.
    Refusal,
    /// The sender cannot reach this process of the window any more, for which it or the receiver
    /// may wait; it takes nothing more.
    Lost(Rank),
    /// An operation of the receiver's was not done, since some of the memory that it reaches is not
    /// attached to the window.
    Unattached(Unattached),
}

/// Of an operation that was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unattached {
    /// First byte that it was to reach.
    pub disp: u64,
    /// Bytes from there to the end of what it was to reach.
    pub len: u64,
    /// What it was.
    pub which: Which,
}

/// Names a record of the receiver's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// By the id under which a reply is wanted: there will be none.
    Id(u32),
    /// By its number among the operations.
    Number(u64),
}

impl Record<'_> {
    /// Where an operation reaches.
    #[must_use]
    #[inline]
    pub fn place(&self) -> Option<Place> {
        match *self {
            Record::Put(place, _)
            | Record::PutBulk(place)
            | Record::Get(place, _)
            | Record::GetBulk(place)
            | Record::Accumulate(place, ..)
            | Record::Fetch(place, ..)
            | Record::Swap(place, ..) => Some(place),
            _ => None,
        }
    }
}

impl Record<'_> {
    /// Bytes that it wants in a reply.
    #[must_use]
    #[inline]
    pub fn wants(&self) -> u64 {
        match *self {
            Record::Get(place, _) | Record::Fetch(place, ..) | Record::Swap(place, ..) => {
                place.bytes()
            }
            _ => 0,
        }
    }
}

/// Everything that stands before the records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The sender waits until its operations are done.
    pub ack_wanted: bool,
    /// The packet was paid for with a credit.
    pub counted: bool,
    /// Packets of the receiver's, of those paid for, that the sender has taken out.
    pub taken: u64,
    /// Operations of the receiver's that are done at the sender.
    pub done: u64,
}

mod kind {
    pub(super) const PUT: u8 = 1;
    pub(super) const PUT_BULK: u8 = 2;
    pub(super) const GET: u8 = 3;
    pub(super) const GET_BULK: u8 = 4;
    pub(super) const ACCUMULATE: u8 = 5;
    pub(super) const FETCH: u8 = 6;
    pub(super) const SWAP: u8 = 7;
    pub(super) const REPLY: u8 = 8;
    pub(super) const SIGNAL: u8 = 9;
    pub(super) const ACCESS: u8 = 10;
    pub(super) const ANSWER: u8 = 11;
    pub(super) const FAREWELL: u8 = 12;
    pub(super) const REFUSAL: u8 = 13;
    pub(super) const NOTIFY: u8 = 14;
    pub(super) const NOTIFY_TAGGED: u8 = 15;
    pub(super) const UNATTACHED: u8 = 16;
    pub(super) const LOST: u8 = 17;
}

/// A packet being written, or one that came in.
#[derive(Debug, Default)]
pub struct Packet {
    /// Its bytes; never more than [`PACKET`].
    pub bytes: Vec<u8>,
}

impl Packet {
    /// With room for all that may be written into it.
    #[must_use]
    pub fn new() -> Self {
        let mut packet = Packet { bytes: Vec::with_capacity(PACKET) };
        packet.clear();
        packet
    }

    /// Without records.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.resize(HEADER, 0);
    }

    /// True if nothing was written into it.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.len() == HEADER
    }

    /// Bytes of payload that fit into one more record, if it can be had at all.
    #[must_use]
    #[inline]
    pub fn room(&self) -> Option<usize> {
        (PACKET - self.bytes.len()).checked_sub(BESIDES)
    }

    /// Writes the header, when the records are complete.
    pub fn seal(&mut self, header: Header) {
        let flags = if header.ack_wanted { ACK_WANTED } else { 0 }
            | if header.counted { COUNTED } else { 0 };
        self.bytes[..4].copy_from_slice(&MAGIC.to_ne_bytes());
        self.bytes[4..8].copy_from_slice(&flags.to_ne_bytes());
        self.bytes[8..16].copy_from_slice(&header.taken.to_ne_bytes());
        self.bytes[16..24].copy_from_slice(&header.done.to_ne_bytes());
    }

    #[inline]
    fn head(&mut self, codes: [u8; 4], id: u32, payload: usize, runs: u32) {
        let mut head = [0; HEAD];
        head[..4].copy_from_slice(&codes);
        head[4..8].copy_from_slice(&id.to_ne_bytes());
        head[8..12].copy_from_slice(&(payload as u32).to_ne_bytes());
        head[12..].copy_from_slice(&runs.to_ne_bytes());
        self.bytes.extend_from_slice(&head);
    }

    #[inline]
    fn number(&mut self, number: u64) {
        self.bytes.extend_from_slice(&number.to_ne_bytes());
    }

    #[inline]
    fn place(&mut self, place: Place) {
        self.number(place.disp);
        self.number(place.len);
        if place.count != 1 {
            self.number(place.stride as u64);
        }
    }

    /// Appends an operation with `payload` bytes, which are zero until they are written through
    /// what is given back.
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

    /// Appends [`Record::PutBulk`].
    pub fn put_bulk(&mut self, place: Place) {
        self.operation([kind::PUT_BULK, 0, 0, 0], 0, place, 0);
    }

    /// Appends [`Record::Get`].
    pub fn get(&mut self, place: Place, id: u32) {
        self.operation([kind::GET, 0, 0, 0], id, place, 0);
    }

    /// Appends [`Record::GetBulk`].
    pub fn get_bulk(&mut self, place: Place) {
        self.operation([kind::GET_BULK, 0, 0, 0], 0, place, 0);
    }

    /// Appends [`Record::Accumulate`].
    pub fn accumulate(&mut self, place: Place, how: How) -> &mut [u8] {
        let codes = [kind::ACCUMULATE, how.element.0, how.reduction.0, how.extent];
        self.operation(codes, 0, place, place.bytes() as usize)
    }

    /// Appends [`Record::Fetch`].
    pub fn fetch(&mut self, place: Place, how: How, id: u32, with_payload: bool) -> &mut [u8] {
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

    /// Appends [`Record::Notify`].
    #[inline]
    pub fn notify(&mut self, index: u32) {
        self.head([kind::NOTIFY, 0, 0, 0], index, 0, 0);
    }

    /// Appends [`Record::NotifyTagged`].
    #[inline]
    pub fn notify_tagged(&mut self, tag: u32) {
        self.head([kind::NOTIFY_TAGGED, 0, 0, 0], tag, 0, 0);
    }

    /// Appends [`Record::Signal`].
    pub fn signal(&mut self, word: Word, value: u64) {
        self.head([kind::SIGNAL, word as u8, 0, 0], 0, 0, 0);
        self.number(value);
    }

    /// Appends [`Record::Access`].
    pub fn access(&mut self, word: LockWord, access: Atomic, ticket: u32) {
        let (code, parity, target) = encode_word(word);
        let (how, one, other) = match access {
            Atomic::Load => (0, 0, 0),
            Atomic::Store(value) => (1, value, 0),
            Atomic::Swap(value) => (2, value, 0),
            Atomic::Add(delta) => (3, delta, 0),
            Atomic::CompareSwap { expected, new } => (4, expected, new),
        };
        self.head([kind::ACCESS, code, parity, how], ticket, 0, target);
        self.number(one);
        self.number(other);
    }

    /// Appends [`Record::Answer`].
    pub fn answer(&mut self, ticket: u32, value: u64) {
        self.head([kind::ANSWER, 0, 0, 0], ticket, 0, 0);
        self.number(value);
    }

    /// Appends [`Record::Farewell`].
    pub fn farewell(&mut self) {
        self.head([kind::FAREWELL, 0, 0, 0], 0, 0, 0);
    }

    /// Appends [`Record::Refusal`].
    pub fn refusal(&mut self) {
        self.head([kind::REFUSAL, 0, 0, 0], 0, 0, 0);
    }

    /// Appends [`Record::Lost`].
    pub fn lost(&mut self, rank: Rank) {
        self.head([kind::LOST, 0, 0, 0], rank, 0, 0);
    }

    /// Appends [`Record::Unattached`].
    pub fn unattached(&mut self, what: Unattached) {
        let (by, id, number) = match what.which {
            Which::Id(id) => (0, id, 0),
            Which::Number(number) => (1, 0, number),
        };
        self.head([kind::UNATTACHED, by, 0, 0], id, 0, 0);
        self.number(what.disp);
        self.number(what.len);
        self.number(number);
    }
}

fn encode_word(word: LockWord) -> (u8, u8, Rank) {
    match word {
        LockWord::Holders => (0, 0, 0),
        LockWord::Intent => (1, 0, 0),
        LockWord::Licensed => (2, 0, 0),
        LockWord::Licence => (3, 0, 0),
        LockWord::NextLicensed => (4, 0, 0),
        LockWord::Tail => (5, 0, 0),
        LockWord::Readers => (6, 0, 0),
        LockWord::NextWriter => (7, 0, 0),
        LockWord::Next { target, parity } => (8, parity & 1, target),
        LockWord::Grant { target } => (9, 0, target),
    }
}

fn decode_word(code: u8, parity: u8, target: Rank) -> Option<LockWord> {
    Some(match code {
        0 => LockWord::Holders,
        1 => LockWord::Intent,
        2 => LockWord::Licensed,
        3 => LockWord::Licence,
        4 => LockWord::NextLicensed,
        5 => LockWord::Tail,
        6 => LockWord::Readers,
        7 => LockWord::NextWriter,
        8 if parity <= 1 => LockWord::Next { target, parity },
        9 => LockWord::Grant { target },
        _ => return None,
    })
}

/// Reads a packet's header, and its records one by one.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// The header, and a reader of what follows.
    ///
    /// # Errors
    /// It is no packet.
    pub fn new(bytes: &'a [u8]) -> Result<(Header, Self), Malformed> {
        let mut reader = Reader { rest: bytes };
        if bytes.len() < HEADER || bytes.len() > PACKET || reader.word()? != MAGIC {
            return Err(Malformed::NotAPacket);
        }
        let flags = reader.word()?;
        if flags & !(ACK_WANTED | COUNTED) != 0 {
            return Err(Malformed::NotAPacket);
        }
        let (taken, done) = (reader.number()?, reader.number()?);
        Ok((
            Header {
                ack_wanted: flags & ACK_WANTED != 0,
                counted: flags & COUNTED != 0,
                taken,
                done,
            },
            reader,
        ))
    }

    #[inline]
    fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(Malformed::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    fn word(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_ne_bytes(self.take(4)?.try_into().expect("four bytes")))
    }

    #[inline]
    fn number(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_ne_bytes(self.take(8)?.try_into().expect("eight bytes")))
    }

    #[inline]
    fn place(&mut self, count: u32) -> Result<Place, Malformed> {
        let (disp, len) = (self.number()?, self.number()?);
        let stride = if count == 1 { 0 } else { self.number()? as i64 };
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
    /// It is malformed. Nothing can be said of what follows it.
    #[inline]
    pub fn next_record(&mut self) -> Result<Option<Record<'a>>, Malformed> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let codes: [u8; 4] = self.take(4)?.try_into().expect("four bytes");
        let (id, payload, runs) = (self.word()?, self.word()? as usize, self.word()?);
        let [kind, ..] = codes;
        let record = match kind {
            kind::PUT
            | kind::GET
            | kind::ACCUMULATE
            | kind::FETCH
            | kind::SWAP
            | kind::PUT_BULK
            | kind::GET_BULK => {
                let place = self.place(runs)?;
                let data = self.payload(payload)?;
                operation(codes, id, place, data)?
            }
            kind::REPLY => Record::Reply(id, self.payload(payload)?),
            _ if payload != 0 => return Err(Malformed::Lengths),
            kind::NOTIFY => Record::Notify(id),
            kind::NOTIFY_TAGGED => Record::NotifyTagged(id),
            kind::SIGNAL => {
                Record::Signal(signal(codes[1]).ok_or(Malformed::UnknownKind)?, self.number()?)
            }
            kind::ACCESS => {
                let word = decode_word(codes[1], codes[2], runs).ok_or(Malformed::UnknownKind)?;
                let (one, other) = (self.number()?, self.number()?);
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
            kind::ANSWER => Record::Answer(id, self.number()?),
            kind::FAREWELL => Record::Farewell,
            kind::REFUSAL => Record::Refusal,
            kind::LOST => Record::Lost(id),
            kind::UNATTACHED => {
                let (disp, len, number) = (self.number()?, self.number()?, self.number()?);
                let which = match codes[1] {
                    0 => Which::Id(id),
                    1 => Which::Number(number),
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

/// Puts an operation together if its lengths agree.
#[inline]
fn operation(codes: [u8; 4], id: u32, place: Place, data: &[u8]) -> Result<Record<'_>, Malformed> {
    let [kind, element, reduction, extent] = codes;
    let how = How { element: Element(element), reduction: Reduction(reduction), extent };
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
        kind::PUT_BULK => (len == 0 && place.count == 1 && bytes <= BULK, Record::PutBulk(place)),
        _ => (len == 0 && place.count == 1 && bytes <= BULK, Record::GetBulk(place)),
    };
    if agrees { Ok(record) } else { Err(Malformed::Lengths) }
}
