//! What a process publishes of its data, and blocks on their way between nodes.

use std::slice::from_raw_parts;

use smallvec::SmallVec;

use crate::collective::{Content, Draft, LEAD, Published};
use crate::mpi::abi::sys::*;
use crate::mpi::collective::communicators::Communicator;
use crate::mpi::collective::exchanges::number;
use crate::mpi::collective::message::Elements;
use crate::mpi::collective::single_copy;

/// How long the data of a call are, as the note of a content says. The longest counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Length {
    /// They fit into a content.
    Short,
    Long,
    /// Some block is too long for this library.
    AtHost,
}

impl Length {
    pub(super) fn of(content: Content) -> Self {
        match content.note() {
            0 => Length::Short,
            1 => Length::Long,
            _ => Length::AtHost,
        }
    }
}

/// Data of a content, or their absence.
pub(super) type Data = SmallVec<[u8; 64]>;

/// What a process publishes.
pub(super) struct Outgoing<'a> {
    pub(super) content: Content,
    pub(super) data: Data,
    /// Of a content that has its table there.
    lead: SmallVec<[u8; LEAD]>,
    /// Blocks in the application's buffers, and where they go in the content.
    dense: SmallVec<[(usize, &'a [u8]); 4]>,
}

impl<'a> Outgoing<'a> {
    /// `None` for the data: they are too long.
    pub(super) fn new(code: u32, data: Option<Data>) -> Self {
        let content = Content { bytes: data.as_ref().map_or(0, Data::len) as u32, code };
        let is_long = data.is_none();
        let (data, dense) = (data.unwrap_or_default(), SmallVec::new());
        let mut outgoing = Outgoing { content, data, lead: SmallVec::new(), dense };
        if is_long {
            outgoing.set(Length::Long);
        }
        outgoing
    }

    /// A single block of at most `room` bytes.
    ///
    /// # Safety
    /// The application may read the block, as long as this lives.
    pub(super) unsafe fn single(code: u32, block: &Elements, room: usize, comm: MPI_Comm) -> Self {
        let mut outgoing = Self::new(code, Some(Data::new()));
        if block.bytes > room {
            outgoing.set(Length::Long);
            return outgoing;
        }
        // SAFETY: the contract of this function.
        unsafe { outgoing.add(0, block, comm) };
        outgoing.content.bytes = block.bytes as u32;
        outgoing
    }

    /// A block for each other process, and a table of their places. The table is the lead of the
    /// content, unless it is too long.
    ///
    /// # Safety
    /// The application may read the blocks, as long as this lives.
    pub(super) unsafe fn all(
        code: u32,
        own: &Communicator,
        blocks: &[Elements],
        comm: MPI_Comm,
    ) -> Self {
        let others = || (0..own.ranks()).filter(|rank| *rank != own.me());
        let mut table = Table::of(own.ranks());
        let all = others().try_fold(0, |all: usize, rank| {
            let bytes = blocks[rank as usize].bytes.checked_next_multiple_of(8)?;
            all.checked_add(bytes).filter(|all| *all <= own.content_max())
        });
        let begin = all.map_or(0, |all| table.begin(all));
        let most = own.content_max().min(u16::MAX.into());
        let end = all.map(|all| begin + all).filter(|end| *end <= most);
        let Some(end) = end else { return Self::new(code, None) };
        let mut outgoing = Self::new(code, Some(Data::from_elem(0, begin.min(table.0.len()))));
        let mut at = begin;
        for rank in others() {
            let block = &blocks[rank as usize];
            table.set(number(rank, own.me()), at, block.bytes);
            // SAFETY: the contract of this function.
            unsafe { outgoing.add(at, block, comm) };
            at += block.bytes.next_multiple_of(8);
        }
        if begin < table.0.len() {
            outgoing.lead = table.0;
            outgoing.content.bytes = end.max(LEAD + 1) as u32;
        } else {
            outgoing.data[..table.0.len()].copy_from_slice(&table.0);
            outgoing.content.bytes = end as u32;
        }
        outgoing
    }

    /// Adds a block at an offset.
    ///
    /// # Safety
    /// The application may read the block, as long as this lives.
    unsafe fn add(&mut self, at: usize, block: &Elements, comm: MPI_Comm) {
        if block.bytes == 0 {
            return;
        }
        if let Some(base) = block.dense() {
            // SAFETY: the contract of this function.
            return self.dense.push((at, unsafe { from_raw_parts(base, block.bytes) }));
        }
        self.data.resize(at + block.bytes, 0);
        // SAFETY: the contract of this function.
        unsafe { block.copy_to(&mut self.data[at..], comm) };
    }

    /// Says how long the data are.
    fn set(&mut self, length: Length) {
        self.content.code = self.content.kind() | (length as u32) << 16;
        if length != Length::Short {
            (self.content.bytes, self.data) = (0, Data::new());
            self.lead.clear();
            self.dense.clear();
        }
    }

    /// Says so if one of these blocks, of which the data are, is too long for this library.
    pub(super) fn limit(&mut self, blocks: &[Elements]) {
        if blocks.iter().any(|block| block.bytes > single_copy::BYTES_MAX) {
            self.set(Length::AtHost);
        }
    }

    pub(super) fn write(&self, draft: &Draft<'_>) {
        draft.write(0, &self.data);
        self.dense.iter().for_each(|(at, block)| draft.write(*at, block));
        if !self.lead.is_empty() {
            draft.write_lead(&self.lead);
        }
    }

    pub(super) fn length(&self) -> Length {
        Length::of(self.content)
    }

    pub(super) fn is_long(&self) -> bool {
        self.length() != Length::Short
    }
}

/// Where the blocks of a content are that has one for each process but its own: the offset and the
/// length of each, as two 16-bit numbers.
struct Table(SmallVec<[u8; LEAD]>);

/// Bytes of an entry of a [`Table`].
const ENTRY: usize = 4;
/// Bytes of a cache line.
const LINE: usize = 64;

impl Table {
    /// Bytes of a table, whole words.
    fn bytes(ranks: u32) -> usize {
        ((ranks as usize).saturating_sub(1) * ENTRY).next_multiple_of(8)
    }

    fn of(ranks: u32) -> Self {
        Table(SmallVec::from_elem(0, Self::bytes(ranks)))
    }

    /// Where blocks of so many bytes begin in a content. 0: the table is its lead.
    fn begin(&self, blocks: usize) -> usize {
        match self.0.len() {
            table if table + blocks <= LEAD => table,
            table if table <= LEAD => 0,
            table => table.next_multiple_of(LINE),
        }
    }

    fn set(&mut self, place: usize, at: usize, bytes: usize) {
        let ([a, b], [c, d]) = ((at as u16).to_ne_bytes(), (bytes as u16).to_ne_bytes());
        self.0[place * ENTRY..][..ENTRY].copy_from_slice(&[a, b, c, d]);
    }
}

/// The offset and the length of a block, by its place in the table of a content.
pub(super) fn entry_of(published: &Published<'_>, ranks: u32, place: usize) -> (usize, usize) {
    let mut words = [0; 2 * ENTRY];
    let (word, half) = (place / 2 * words.len(), place % 2 * ENTRY);
    match Table::bytes(ranks) <= LEAD {
        true => published.read_lead(word, &mut words),
        false => published.read_part(word, &mut words),
    }
    let [a, b, c, d] = *words[half..].first_chunk().expect("an entry");
    (usize::from(u16::from_ne_bytes([a, b])), usize::from(u16::from_ne_bytes([c, d])))
}

/// A block on its way between processes of several nodes. Records lie behind one another. Empty
/// blocks have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record<'a> {
    /// Rank of the sender.
    pub(super) from: u16,
    /// Rank of the receiver.
    pub(super) to: u16,
    /// `None`: the block is longer than any that is expected, so it stays where it is.
    pub(super) data: Option<&'a [u8]>,
}

/// Bytes of a record before the data: both ranks, and the length.
pub(super) const HEAD: usize = 6;
/// The length of a block that stays where it is.
const ABSENT: u16 = u16::MAX;

fn head(from: u16, to: u16, length: u16) -> [u8; HEAD] {
    let ([a, b], [c, d], [e, f]) = (from.to_ne_bytes(), to.to_ne_bytes(), length.to_ne_bytes());
    [a, b, c, d, e, f]
}

/// The record of a block that stays where it is.
pub(super) fn absent(from: u32, to: u32) -> Data {
    Data::from_slice(&head(from as u16, to as u16, ABSENT))
}

impl Record<'_> {
    /// Adds the record to a list.
    pub(super) fn add_to(&self, list: &mut Vec<u8>) {
        let length = self.data.map_or(ABSENT, |data| data.len() as u16);
        list.extend_from_slice(&head(self.from, self.to, length));
        list.extend_from_slice(self.data.unwrap_or_default());
    }
}

/// The records of a list.
pub(super) fn records(mut list: &[u8]) -> impl Iterator<Item = Record<'_>> {
    std::iter::from_fn(move || {
        let ([a, b, c, d, e, f], rest) = list.split_first_chunk::<HEAD>()?;
        let length = u16::from_ne_bytes([*e, *f]);
        let here = if length == ABSENT { 0 } else { usize::from(length) };
        let (data, rest) = rest.split_at_checked(here)?;
        list = rest;
        let (from, to) = (u16::from_ne_bytes([*a, *b]), u16::from_ne_bytes([*c, *d]));
        Some(Record { from, to, data: (length != ABSENT).then_some(data) })
    })
}

/// The records of blocks that process `me` sends to others. `None`: they are longer than `most`.
///
/// # Safety
/// The application may read the blocks.
pub(super) unsafe fn pack_records<'a>(
    me: u32,
    blocks: impl Iterator<Item = (usize, &'a Elements)>,
    most: usize,
    comm: MPI_Comm,
) -> Option<Data> {
    let mut list = Data::new();
    for (to, block) in blocks.filter(|(to, block)| *to != me as usize && block.bytes != 0) {
        let at = list.len() + HEAD;
        let end = at.checked_add(block.bytes).filter(|end| *end <= most)?;
        list.extend_from_slice(&head(me as u16, to as u16, block.bytes as u16));
        list.resize(end, 0);
        // SAFETY: the contract of this function.
        unsafe { block.copy_to(&mut list[at..], comm) };
    }
    Some(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_added() {
        let all = [
            Record { from: 3, to: 65535, data: Some(&[1, 2, 3]) },
            Record { from: 0, to: 1, data: None },
            Record { from: 7, to: 2, data: Some(&[4]) },
        ];
        let mut list = Vec::new();
        all.iter().for_each(|record| record.add_to(&mut list));
        assert_eq!(list.len(), 3 * HEAD + 4);
        assert_eq!(records(&list).collect::<Vec<_>>(), all);
    }

    #[test]
    fn a_list_that_is_cut_off_ends_with_its_last_whole_record() {
        let whole = Record { from: 1, to: 2, data: Some(&[9; 5]) };
        let mut list = Vec::new();
        whole.add_to(&mut list);
        whole.add_to(&mut list);
        for length in [HEAD + 5, HEAD + 8, 2 * HEAD + 9] {
            assert_eq!(records(&list[..length]).collect::<Vec<_>>(), [whole]);
        }
    }
}
