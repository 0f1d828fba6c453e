//! Blocks of different lengths among processes of several nodes, while they are short. The first
//! process of each node collects the blocks that its node sends, exchanges them for those that it
//! gets, in one message to and from each other node, and hands them out.
//!
//! No process knows all lengths. So a word travels with the blocks: whether they are short, or too
//! long for this way. The word of the root decides, or in an alltoallv that of any process. All
//! processes of the communicator learn it before any of them goes to the host.
//!
//! A process that finds that calls do not match still takes part in all that follows, since others
//! wait there.

use std::ops::Range;

use super::packing::{Outgoing, Record, records};
use crate::collective::{Content, Draft, Mismatch, Published, Work};
use crate::mpi::abi::error::Fault;
use crate::mpi::abi::sys::*;
use crate::mpi::collective::communicators::Collective;
use crate::mpi::collective::exchanges::PerRank;
use crate::mpi::collective::message::Elements;
use crate::mpi::collective::nodes::{BYTES_MAX, Message, Nodes, Place};
use crate::mpi::collective::serve::{Failed, Served, differs};

/// Most processes of a communicator. Their ranks fit into records, and the number of pieces that
/// are handed out into the note of a content.
const PROCESSES_MAX: u32 = 1 << 13;

/// Who has blocks for whom.
#[derive(Clone, Copy)]
pub(super) enum Route {
    /// All for all.
    All,
    /// All for this root.
    To(Place),
    /// This root for all.
    From(Place),
}

impl Route {
    /// Place in a list of all kinds.
    fn number(self) -> usize {
        match self {
            Route::All => 0,
            Route::To(_) => 1,
            Route::From(_) => 2,
        }
    }
}

/// How a call goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Word {
    /// The blocks travel here.
    Short,
    /// The host serves the call.
    Long,
    /// The calls of processes do not match.
    Differs,
}

impl Word {
    fn of(number: u32) -> Self {
        match number {
            0 => Word::Short,
            1 => Word::Long,
            _ => Word::Differs,
        }
    }

    /// What follows from the words of two nodes. Where the root has decided for the host, all other
    /// nodes go there, whatever else they have found.
    fn with(self, other: Word, route: Route) -> Word {
        let is_long = self == Word::Long || other == Word::Long;
        match route {
            Route::To(_) if is_long => Word::Long,
            _ => self.max(other),
        }
    }
}

/// Collects what processes of a node publish.
struct Collector<'a, 'b> {
    outgoing: &'a Outgoing<'b>,
    /// This process passes on what it collects.
    is_first: bool,
    records: Vec<u8>,
    word: Word,
}

impl Work for Collector<'_, '_> {
    fn write(&mut self, _: Content, draft: &Draft<'_>) {
        self.outgoing.write(draft);
    }

    fn collect(&mut self, _: u32, published: &Published<'_>) -> Option<Mismatch> {
        if published.content.note() != 0 {
            self.word = Word::Long;
        } else if self.is_first {
            let at = self.records.len();
            self.records.resize(at + published.content.bytes as usize, 0);
            published.read_part(0, &mut self.records[at..]);
        }
        None
    }
}

/// The blocks that this node sends, in its first process, and the word of its processes.
fn collect(own: &mut Nodes, route: Route, outgoing: &Outgoing) -> (Vec<u8>, Word) {
    let here = own.here();
    let which = match route {
        Route::From(root) if root.node != here.node || root.rank == 0 => None,
        Route::From(root) => Some(Collective::Scatter { root: root.rank }),
        Route::All | Route::To(_) => Some(Collective::Gather { root: 0 }),
    };
    let is_first = here.rank == 0;
    let mut all = Collector { outgoing, is_first, records: Vec::new(), word: Word::Short };
    let published = which.map(|which| own.mates.run_with(which, outgoing.content, &mut all));
    if let Some((_, Some(_))) = published {
        all.word = Word::Differs;
    }
    if outgoing.is_long() {
        all.word = all.word.max(Word::Long);
    }
    all.records.extend_from_slice(&outgoing.data);
    (all.records, all.word)
}

/// The nodes that the first process of node `here` sends messages to, and receives them from.
fn partners(route: Route, here: u32, nodes: u32) -> (PerRank<u32>, PerRank<u32>) {
    let others = || (0..nodes).filter(|node| *node != here).collect();
    let only = |node| PerRank::from_slice(&[node]);
    match route {
        Route::All => (others(), others()),
        // The root's node answers with its word.
        Route::To(root) if root.node == here => (others(), others()),
        Route::To(root) => (only(root.node), only(root.node)),
        Route::From(root) if root.node == here => (others(), PerRank::new()),
        Route::From(root) => (PerRank::new(), only(root.node)),
    }
}

/// In the first process of a node: exchanges `sent`, the records of its processes, for those of the
/// blocks that they get.
fn exchange(
    own: &Nodes,
    route: Route,
    code: u32,
    (sent, mut word): (&[u8], Word),
) -> (Vec<u8>, Word, Option<Fault>) {
    let (here, nodes) = (own.here().node, own.nodes());
    let mut lists: PerRank<Vec<u8>> = smallvec::smallvec![Vec::new(); nodes as usize];
    for record in records(sent) {
        if let Some(place) = own.places().get(usize::from(record.to)) {
            record.add_to(&mut lists[place.node as usize]);
        }
    }
    for (node, list) in (0..).zip(&mut lists) {
        if node != here && list.len() > BYTES_MAX {
            match route {
                // The root expects less, so it reports the blocks.
                Route::To(_) => *list = without_data(list),
                _ => word = word.max(Word::Long),
            }
        }
    }
    let (to, from) = partners(route, here, nodes);
    let messages: PerRank<(u32, Message)> = to
        .iter()
        .map(|node| {
            let list = if word == Word::Short { &lists[*node as usize][..] } else { &[] };
            (*node, Message::new(code as u8, word as u8, list))
        })
        .collect();
    let (arrived, fault) = match own.messages(&messages, &from) {
        Ok(arrived) => (arrived, None),
        Err(fault) => (Vec::new(), Some(fault)),
    };
    let mut got = std::mem::take(&mut lists[here as usize]);
    for message in &arrived {
        let is_same = message.kind() == code as u8;
        let theirs = if is_same { Word::of(message.note().into()) } else { Word::Differs };
        word = word.with(theirs, route);
        got.extend_from_slice(message.data());
    }
    (got, if fault.is_some() { Word::Differs } else { word }, fault)
}

fn without_data(list: &[u8]) -> Vec<u8> {
    let mut heads = Vec::new();
    records(list).for_each(|record| Record { data: None, ..record }.add_to(&mut heads));
    heads
}

/// What the first process of a node has for the others: for each of them the place and the length
/// of its records, and the records. Nothing, if there are none.
fn parts(own: &Nodes, list: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (here, ranks) = (own.here(), own.mates.ranks() as usize);
    let mut lists: PerRank<Vec<u8>> = smallvec::smallvec![Vec::new(); ranks];
    for record in records(list) {
        let place = own.places().get(usize::from(record.to));
        if let Some(place) = place.filter(|place| place.node == here.node) {
            record.add_to(&mut lists[place.rank as usize]);
        }
    }
    let (mine, others) = lists.split_first_mut().expect("a node has a process");
    let mut all = Vec::new();
    if others.iter().any(|list| !list.is_empty()) {
        all.resize(others.len() * ENTRY, 0);
        for (number, list) in others.iter().enumerate() {
            let entry = [all.len() as u32, list.len() as u32].map(u32::to_ne_bytes);
            all[number * ENTRY..][..ENTRY].copy_from_slice(entry.as_flattened());
            all.extend_from_slice(list);
            all.resize(all.len().next_multiple_of(8), 0);
        }
    }
    (std::mem::take(mine), all)
}

/// Bytes of a place and a length.
const ENTRY: usize = 8;
/// The word in the note of a content: above the number of pieces.
const WORD_SHIFT: u32 = 14;

/// A piece of what the first process hands out.
struct Piece<'a> {
    me: u32,
    /// In the first process.
    data: &'a [u8],
    /// Its first byte in the whole.
    from: usize,
    /// In the others: their records in the whole, and what they have of them.
    mine: Range<usize>,
    got: Vec<u8>,
    note: u32,
}

impl Work for Piece<'_> {
    fn write(&mut self, _: Content, draft: &Draft<'_>) {
        draft.write(0, self.data);
    }

    fn collect(&mut self, _: u32, published: &Published<'_>) -> Option<Mismatch> {
        let bytes = published.content.bytes as usize;
        if self.from == 0 {
            self.note = published.content.note();
            if bytes != 0 {
                let mut entry = [0; ENTRY];
                published.read_part((self.me as usize - 1) * ENTRY, &mut entry);
                let [a, b, c, d, length @ ..] = entry;
                let at = u32::from_ne_bytes([a, b, c, d]) as usize;
                self.mine = at..at + u32::from_ne_bytes(length) as usize;
            }
        }
        let begin = self.mine.start.max(self.from);
        let end = self.mine.end.min(self.from + bytes);
        if begin < end {
            let at = self.got.len();
            self.got.resize(at + end - begin, 0);
            published.read_part(begin - self.from, &mut self.got[at..]);
        }
        None
    }
}

/// Hands out the records `list` of the first process of a node, and the word. Returns those of this
/// process, and the word.
fn hand_out(own: &mut Nodes, code: u32, (list, word): (&[u8], Word)) -> (Vec<u8>, Word) {
    let is_first = own.here().rank == 0;
    let list = if word == Word::Short { list } else { &[] };
    let (mine, all) = if is_first { parts(own, list) } else { Default::default() };
    let room = own.mates.content_max();
    let pieces = all.len().div_ceil(room).max(1) as u32;
    let note = (word as u32) << WORD_SHIFT | (pieces - 1);
    let me = own.here().rank;
    let mut piece = Piece { me, data: &[], from: 0, mine: 0..0, got: mine, note };
    loop {
        let end = all.len().min(piece.from + room);
        piece.data = all.get(piece.from..end).unwrap_or_default();
        let content = Content { bytes: piece.data.len() as u32, code: code | note << 16 };
        let which = Collective::Scatter { root: 0 };
        if let (_, Some(_)) = own.mates.run_with(which, content, &mut piece) {
            return (Vec::new(), Word::Differs);
        }
        piece.from += room;
        let pieces = (piece.note & ((1 << WORD_SHIFT) - 1)) as usize + 1;
        if piece.from >= pieces * room {
            return (piece.got, Word::of(piece.note >> WORD_SHIFT));
        }
    }
}

/// Whether a call is tried here, as all processes know. If not, the host serves it.
pub(super) fn tries(own: &mut Nodes, route: Route) -> bool {
    own.ranks() <= PROCESSES_MAX && own.trials[route.number()].begin()
}

/// Moves the blocks of all processes, if this call is [tried](tries). `outgoing` has the records of
/// those that this process sends, or says that they are long; in a gatherv only the root may say
/// so. `place` returns where the block of a rank goes.
///
/// # Safety
/// The application may write the places.
pub(super) unsafe fn serve(
    own: &mut Nodes,
    route: Route,
    outgoing: &Outgoing,
    place: impl Fn(usize) -> Option<Elements>,
    comm: MPI_Comm,
) -> Result<Served, Failed> {
    let code = outgoing.content.kind();
    let (mut list, mut word) = collect(own, route, outgoing);
    let mut fault = None;
    if own.here().rank == 0 {
        (list, word, fault) = exchange(own, route, code, (&list, word));
    }
    let (list, word) = hand_out(own, code, (&list, word));
    own.trials[route.number()].end(word == Word::Long);
    match word {
        Word::Short => {}
        Word::Long => return Ok(Served::AtHost),
        Word::Differs => {
            let differs = || differs(Mismatch::Operation, MPI_ERR_OTHER, MPI_ERR_OTHER);
            return Err(fault.unwrap_or_else(differs).into());
        }
    }
    let arrived = || {
        records(&list).filter_map(|record| Some((place(usize::from(record.from))?, record.data)))
    };
    if arrived().any(|(to, data)| data.is_none_or(|data| data.len() > to.bytes)) {
        return Err(differs(Mismatch::Longer, MPI_ERR_OTHER, MPI_ERR_OTHER).into());
    }
    for (to, data) in arrived() {
        // SAFETY: the contract of this function; no block is longer than its place.
        unsafe { to.copy_from(data.unwrap_or_default(), comm) };
    }
    Ok(Served::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_has_a_sender_and_a_receiver() {
        let root = Place { node: 1, rank: 2 };
        for route in [Route::All, Route::To(root), Route::From(root)] {
            let all: Vec<_> = (0..4).map(|here| partners(route, here, 4)).collect();
            for (here, (to, _)) in all.iter().enumerate() {
                assert!(!to.contains(&(here as u32)));
                for (there, (_, from)) in all.iter().enumerate() {
                    let sends = to.contains(&(there as u32));
                    assert_eq!(sends, from.contains(&(here as u32)), "from {here} to {there}");
                }
            }
        }
    }

    #[test]
    fn a_root_that_decides_for_the_host_decides_for_all() {
        let (root, differs) = (Place { node: 0, rank: 0 }, Word::Differs);
        assert_eq!(Word::Long.with(differs, Route::To(root)), Word::Long);
        assert_eq!(differs.with(Word::Long, Route::To(root)), Word::Long);
        assert_eq!(differs.with(Word::Short, Route::To(root)), differs);
        assert_eq!(Word::Long.with(differs, Route::All), differs);
        assert_eq!(Word::Short.with(Word::Long, Route::From(root)), Word::Long);
    }
}
