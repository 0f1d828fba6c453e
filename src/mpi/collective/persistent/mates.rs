//! Neighbour collectives among *mates*, the processes of a node: each reads its neighbours' buffers
//! in place, from their datatype to its own.
//!
//! The set-up is collective. Each process describes its blocks in memory that its mates share:
//! where they lie, and their layouts. Then each matches the blocks that it receives with those that
//! are sent, and prepares the copies. A buffer in memory of an allocated window, which the receiver
//! has mapped, is read there. Other blocks are *staged*: the sender packs them into its part of the
//! shared memory, which is reserved for all blocks and takes memory only where it is used.
//!
//! ```text
//! part of a process: words of the exchange | how each block is read | description | staged blocks
//! ```
//!
//! Ranks are those of the communicator, of whose processes the mates may be a part.

use std::ops::Range;

use super::NotServed;
use super::neighbours::{Block, Neighbours, sent_to};
use super::scratch;
use super::windows::Windows;
use crate::collective::halo::{Exchange, Links, distinct, words_of};
use crate::mpi::abi::error::Fault;
use crate::mpi::abi::sys::*;
use crate::mpi::collective::communicators::Carrier;
use crate::runtime::collectives::{Advance, PersistentCollective};
use crate::sync::AtomicU64;
use crate::sync::Ordering::Relaxed;
use crate::transport::datatype::{CopyPlan, Side};
use crate::transport::shm::window_memory::{WindowPlace, address_of, place_of};
use crate::transport::shm::{Bootstrap, Scratch};

/// Words of a cache line, at which staged blocks begin.
const LINE: usize = 8;

/// How a block is read. The receiver chooses, and the sender stages the block if it must.
const IN_PLACE: u64 = 1;
const STAGED: u64 = 2;

/// Blocks whose runs are shorter, in bytes, are staged wherever they lie. Read in place, each run
/// costs at least one cache line from another core; packed, its sender takes them from its own
/// cache. An exchange of 32³ doubles takes 36 µs in place, and 13 with such faces staged.
const SCATTERED: u64 = 128;

/// `MPI_PROC_NULL`, and the segment of a block that lies in no window.
const NONE: u64 = u64::MAX;

/// A copy of one block.
#[derive(Debug)]
pub(super) struct Copy {
    plan: CopyPlan,
    from: *const u8,
    to: *mut u8,
}

impl Copy {
    /// # Safety
    /// The source may be read and the sink written.
    unsafe fn run(&self) {
        // SAFETY: the contract of this function.
        unsafe { self.plan.run(self.from, self.to) };
    }
}

/// The part of a neighbour collective that mates do.
pub(super) struct Shared {
    scratch: Scratch,
    exchange: Exchange,
    /// What it reads from each neighbour.
    reads: Vec<Vec<Copy>>,
    /// What it stages.
    stages: Vec<Copy>,
    windows: Windows,
}

// SAFETY: the addresses are those of the application's buffers and of shared memory, which belong
// to the process.
unsafe impl Send for Shared {}

impl PersistentCollective for Shared {
    fn start(&mut self) -> Advance {
        if let Err(failure) = self.windows.check() {
            return Advance::Failed(failure);
        }
        for stage in &self.stages {
            // SAFETY: the application's buffer, which belongs to the collective from now on; all
            // readers have read the last content of the staged block, since the exchange before is
            // complete.
            unsafe { stage.run() };
        }
        self.exchange.start(self.scratch.words());
        self.advance()
    }

    fn advance(&mut self) -> Advance {
        let Shared { scratch, exchange, reads, .. } = self;
        let before = exchange.pending();
        let complete = exchange.advance(scratch.words(), |place| {
            for read in &reads[place] {
                // SAFETY: the neighbour has started this exchange, so its buffers may be read until
                // this process confirms; the receive buffer belongs to the collective.
                unsafe { read.run() };
            }
        });
        match complete {
            true => Advance::Complete,
            false => Advance::Pending { moved: exchange.pending() != before },
        }
    }
}

/// What a process tells its mates first.
#[derive(Clone, Copy, Debug)]
struct Announcement {
    /// Mates from which it receives.
    sources: u64,
    destinations: u64,
    /// Words of its description.
    description: u64,
    /// Words of its staged blocks.
    staged: u64,
}

impl Announcement {
    const BYTES: usize = 4 * 8;

    fn encode(self) -> Vec<u8> {
        let Announcement { sources, destinations, description, staged } = self;
        [sources, destinations, description, staged].map(u64::to_ne_bytes).concat()
    }

    fn decode(bytes: &[u8]) -> Self {
        let (words, _) = bytes.as_chunks::<8>();
        let word = |at: usize| words.get(at).map_or(0, |word| u64::from_ne_bytes(*word));
        Announcement {
            sources: word(0),
            destinations: word(1),
            description: word(2),
            staged: word(3),
        }
    }
}

/// Where the parts of a process begin, in words.
#[derive(Clone, Debug)]
struct Part {
    exchange: usize,
    /// How each of its blocks is read.
    modes: Range<usize>,
    description: Range<usize>,
    staged: usize,
}

/// The parts of all processes, and the number of all words. `None`: they exceed the addresses.
fn parts(announced: &[Announcement]) -> Option<(Vec<Part>, usize)> {
    let mut end = 0usize;
    let mut room = |words: u64| {
        let start = end;
        end = usize::try_from(words).ok()?.checked_next_multiple_of(LINE)?.checked_add(end)?;
        (end < isize::MAX as usize / 8).then_some(start)
    };
    let all: Option<Vec<Part>> = announced
        .iter()
        .map(|one| {
            let exchange = room(words_of(usize::try_from(one.sources).ok()?) as u64)?;
            let modes = room(one.destinations)?;
            let description = room(one.description)?;
            let staged = room(one.staged)?;
            Some(Part {
                exchange,
                modes: modes..modes + one.destinations as usize,
                description: description..description + one.description as usize,
                staged,
            })
        })
        .collect();
    Some((all?, end))
}

/// A block that a process sends, as it describes it.
#[derive(Debug)]
struct Sent {
    place: Option<WindowPlace>,
    /// Displacement of the block's first byte, and the bytes from it to the last.
    low: i64,
    length: u64,
    base: usize,
    /// Where it may be staged, in words from the process's first staged one.
    staged: usize,
    side: Side,
}

/// What a process tells its neighbours on the node.
#[derive(Debug, Default)]
struct Description {
    sources: Vec<Option<u32>>,
    destinations: Vec<Option<u32>>,
    /// One for each destination, or one for all.
    sent: Vec<Sent>,
}

fn encode_ranks(ranks: &[Option<u32>], words: &mut Vec<u64>) {
    words.push(ranks.len() as u64);
    words.extend(ranks.iter().map(|rank| rank.map_or(NONE, u64::from)));
}

fn decode_ranks(words: &mut &[u64]) -> Option<Vec<Option<u32>>> {
    let (length, rest) = words.split_first()?;
    let (ranks, rest) = rest.split_at_checked(usize::try_from(*length).ok()?)?;
    *words = rest;
    Some(ranks.iter().map(|rank| u32::try_from(*rank).ok()).collect())
}

impl Description {
    fn encode(&self) -> Vec<u64> {
        let mut words = Vec::new();
        encode_ranks(&self.sources, &mut words);
        encode_ranks(&self.destinations, &mut words);
        words.push(self.sent.len() as u64);
        for sent in &self.sent {
            let place = sent.place.unwrap_or(WindowPlace { segment: NONE, offset: 0 });
            words.extend([place.segment, place.offset, sent.low.cast_unsigned(), sent.length]);
            words.extend([sent.base as u64, sent.staged as u64]);
            sent.side.encode(&mut words);
        }
        words
    }

    fn decode(words: &[AtomicU64]) -> Option<Self> {
        let words: Vec<u64> = words.iter().map(|word| word.load(Relaxed)).collect();
        let mut rest = &words[..];
        let sources = decode_ranks(&mut rest)?;
        let destinations = decode_ranks(&mut rest)?;
        let (length, mut rest) = rest.split_first()?;
        let sent: Option<Vec<Sent>> = (0..*length)
            .map(|_| {
                let (head, behind) = rest.split_first_chunk::<6>()?;
                rest = behind;
                let [segment, offset, low, length, base, staged] = *head;
                let place = (segment != NONE).then_some(WindowPlace { segment, offset });
                let side = Side::decode(&mut rest)?;
                let (low, base) = (low.cast_signed(), base as usize);
                Some(Sent { place, low, length, base, staged: staged as usize, side })
            })
            .collect();
        Some(Description { sources, destinations, sent: sent? })
    }
}

impl Sent {
    fn new(block: &Block, staged: &mut usize) -> Self {
        let (first, length) = block.bytes().unwrap_or((block.base, 0));
        let place = if length == 0 { None } else { place_of(first, length) };
        let sent = Sent {
            place,
            low: first.wrapping_sub(block.base) as i64,
            length,
            base: block.base,
            staged: *staged,
            side: block.side.clone(),
        };
        *staged += (sent.side.size().div_ceil(8) as usize).next_multiple_of(LINE);
        sent
    }

    /// Where this process reads it. `None`: it is staged.
    fn readable(&self, own: bool) -> Option<usize> {
        if own {
            return Some(self.base);
        }
        let first = address_of(self.place?, self.length)?;
        let bytes = self.side.size();
        let scattered = bytes > LINE as u64 * 8
            && CopyPlan::new(&self.side, &Side::flat(bytes)).piece() < SCATTERED;
        if scattered {
            return None;
        }
        Some(first.wrapping_add_signed(-self.low as isize))
    }
}

/// The collective while it is set up.
pub(super) struct Preparation<'a> {
    me: u32,
    /// Ranks of this process and its mates, in rising order.
    mates: &'a [u32],
    neighbours: &'a Neighbours,
    scratch: Scratch,
    parts: Vec<Part>,
    own: Description,
    windows: Windows,
}

/// The place of a process among the mates.
fn place_among(mates: &[u32], rank: u32) -> Option<usize> {
    mates.binary_search(&rank).ok()
}

/// Those processes of a list that are mates, each once.
fn distinct_mates(mates: &[u32], ranks: &[Option<u32>]) -> Vec<u32> {
    let mut found = distinct(ranks);
    found.retain(|rank| place_among(mates, *rank).is_some());
    found
}

impl<'a> Preparation<'a> {
    /// Describes what this process sends. Collective over the mates, whose carrier this is.
    ///
    /// # Errors
    /// The mates cannot share memory. All get the same.
    pub(super) fn new(
        carrier: &mut Carrier,
        (me, mates): (u32, &'a [u32]),
        neighbours: &'a Neighbours,
        blocks: &[Block],
    ) -> Result<Self, NotServed> {
        let mut staged = 0;
        let own = Description {
            sources: neighbours.sources.clone(),
            destinations: neighbours.destinations.clone(),
            sent: blocks.iter().map(|block| Sent::new(block, &mut staged)).collect(),
        };
        let words = own.encode();
        let announcement = Announcement {
            sources: distinct_mates(mates, &own.sources).len() as u64,
            destinations: own.destinations.len() as u64,
            description: words.len() as u64,
            staged: staged as u64,
        };
        let mut bytes = vec![0; Announcement::BYTES * carrier.ranks as usize];
        carrier.allgather(&announcement.encode(), &mut bytes);
        let announced: Vec<_> =
            bytes.chunks_exact(Announcement::BYTES).map(Announcement::decode).collect();
        let Some((parts, total)) = parts(&announced) else {
            return Err(NotServed::LeftToHost("the blocks exceed the addresses"));
        };
        let scratch = scratch(carrier, total)?;
        let part = &parts[carrier.me as usize];
        for (place, word) in scratch.words()[part.description.clone()].iter().zip(&words) {
            place.store(*word, Relaxed);
        }
        Ok(Preparation { me, mates, neighbours, scratch, parts, own, windows: Windows::new() })
    }

    /// The end of the set-up.
    pub(super) fn finish(mut self, reads: Vec<Vec<Copy>>) -> Result<Shared, Fault> {
        let stages = self.stages()?;
        let exchange = Exchange::new(self.links()?);
        let Preparation { scratch, windows, .. } = self;
        Ok(Shared { scratch, exchange, reads, stages, windows })
    }

    fn unmatched() -> Fault {
        Fault::new(MPI_ERR_TOPOLOGY, "two neighbours differ in the number of their edges")
    }

    fn part(&self, mate: u32) -> Result<&Part, Fault> {
        let place = place_among(self.mates, mate);
        place.and_then(|place| self.parts.get(place)).ok_or_else(Self::unmatched)
    }

    fn described(&self, mate: u32) -> Result<Description, Fault> {
        let words = &self.scratch.words()[self.part(mate)?.description.clone()];
        Description::decode(words).ok_or_else(Self::unmatched)
    }

    /// The address of a block that is staged in this part.
    fn staged(&self, part: &Part, sent: &Sent) -> *mut u8 {
        let first = part.staged + sent.staged;
        self.scratch.words().as_ptr().wrapping_add(first).cast_mut().cast()
    }

    /// The copies from each mate, and tells the mates how their blocks are read. All mates have
    /// described their blocks.
    pub(super) fn reads(&mut self, received: &[Block]) -> Result<Vec<Vec<Copy>>, Fault> {
        let sources = &self.neighbours.sources;
        let mut all = Vec::new();
        for from in distinct_mates(self.mates, sources) {
            let sender = self.described(from)?;
            let part = self.part(from)?.clone();
            let mut copies = Vec::new();
            for (at, block) in received.iter().enumerate() {
                if sources[at] != Some(from) {
                    continue;
                }
                let topology = self.neighbours.topology;
                let matched = topology.matching((self.me, sources), at, &sender.destinations);
                let to = matched.ok_or_else(Self::unmatched)?;
                let sent = sent_to(&sender.sent, to).ok_or_else(Self::unmatched)?;
                if sent.side.size() > block.side.size() {
                    const TEXT: &str = "a block is longer than the receive buffer";
                    return Err(Fault::new(MPI_ERR_TRUNCATE, TEXT));
                }
                let base = sent.readable(from == self.me);
                let mode = if base.is_some() { IN_PLACE } else { STAGED };
                self.scratch.words()[part.modes.start + to].store(mode, Relaxed);
                if sent.side.size() == 0 {
                    continue;
                }
                let (plan, from) = match base {
                    Some(base) => {
                        let first = base.wrapping_add_signed(sent.low as isize);
                        if let Some(place) = sent.place {
                            self.windows.add(first, place);
                        }
                        (CopyPlan::new(&sent.side, &block.side), std::ptr::without_provenance(base))
                    }
                    None => {
                        let packed = Side::flat(sent.side.size());
                        let from = self.staged(&part, sent).cast_const();
                        (CopyPlan::new(&packed, &block.side), from)
                    }
                };
                let to = std::ptr::without_provenance_mut(block.base);
                copies.push(Copy { plan, from, to });
            }
            all.push(copies);
        }
        Ok(all)
    }

    /// The copies of this process's blocks that some reader wants to be staged.
    fn stages(&mut self) -> Result<Vec<Copy>, Fault> {
        let part = self.part(self.me)?.clone();
        let modes = &self.scratch.words()[part.modes.clone()];
        let wants: Vec<bool> = modes.iter().map(|mode| mode.load(Relaxed) == STAGED).collect();
        let one = self.own.sent.len() == 1;
        let mut copies = Vec::new();
        for (at, sent) in self.own.sent.iter().enumerate() {
            let wanted = if one { wants.contains(&true) } else { wants.get(at) == Some(&true) };
            if sent.side.size() == 0 {
                continue;
            }
            if let Some(place) = sent.place {
                let first = sent.base.wrapping_add_signed(sent.low as isize);
                self.windows.add(first, place);
            }
            if wanted {
                let plan = CopyPlan::new(&sent.side, &Side::flat(sent.side.size()));
                let from = std::ptr::without_provenance(sent.base);
                copies.push(Copy { plan, from, to: self.staged(&part, sent) });
            }
        }
        Ok(copies)
    }

    fn links(&self) -> Result<Links, Fault> {
        let first = |mate: u32| Ok(self.part(mate)?.exchange);
        let sources = distinct_mates(self.mates, &self.neighbours.sources).into_iter().map(first);
        let mut readers = Vec::new();
        for mate in distinct_mates(self.mates, &self.neighbours.destinations) {
            let reads = distinct_mates(self.mates, &self.described(mate)?.sources);
            let place = reads.iter().position(|from| *from == self.me);
            readers.push((first(mate)?, place.ok_or_else(Self::unmatched)?));
        }
        Ok(Links::new(first(self.me)?, sources.collect::<Result<_, Fault>>()?, readers))
    }
}
