//! Collectives of long contents whose processes read the buffers of the others in place, as in halo
//! exchanges [CL-5]: in windows that they have mapped, or by cross-memory attach.
//!
//! One copy takes the place of two, and nobody needs a ring. A sender completes when all of its
//! readers have read. The processes choose this together, if each can read all that it receives,
//! and none receives where others read.

use super::folding::{FOLDED, Folding};
use super::movement::{Exchanged, Movement, Part};
use super::windows::Windows;
use super::{NotServed, attaches, scratch};
use crate::collective::halo::{Exchange, Links, words_of};
use crate::collective::steps::Turn;
use crate::mpi::abi::sys::MPI_ERR_BUFFER;
use crate::mpi::collective::communicators::{Carrier, bytes_of};
use crate::runtime::collectives::{Advance, CollectiveFailure, PersistentCollective};
use crate::transport::copy;
use crate::transport::crossing::copy_in;
use crate::transport::datatype::Combine;
use crate::transport::shm::window_memory::{WindowPlace, address_of, place_of};
use crate::transport::shm::{Bootstrap, Direction, PeerMemory, Scratch};

/// Fewest bytes of the longest content: where each process reads from each other, and where some
/// only send. Those need not wait for their readers if they have a ring.
#[derive(Clone, Copy)]
struct Shortest {
    mutual: usize,
    one_way: usize,
}

/// In windows.
const MAPPED: Shortest = Shortest { mutual: 512, one_way: 8192 };
/// By cross-memory attach, whose system call and page tables take as long as the copy of some
/// kilobytes.
const ATTACHED: Shortest = Shortest { mutual: 16 << 10, one_way: 48 << 10 };

impl Shortest {
    fn is_reached(self, exchanged: &Exchanged, longest: usize) -> bool {
        let is_mutual =
            || exchanged.pairs().all(|(from, to)| from == to || exchanged.sent(from, to) > 0);
        longest >= self.one_way || (longest >= self.mutual && is_mutual())
    }
}

/// Whether it is worth it to read in windows, if the longest content has so many bytes.
pub(super) fn is_worthwhile(exchanged: &Exchanged, longest: usize) -> bool {
    MAPPED.is_reached(exchanged, longest)
}

/// Where a contribution is.
#[derive(Clone, Copy)]
enum Source {
    /// At an address of this process.
    Mapped(*const u8),
    /// At an address of another one.
    Attached { rank: u32, address: u64 },
}

/// What reads contributions.
struct Reach(Option<PeerMemory>);

impl Reach {
    /// Reads bytes of a contribution, from the `first` on.
    ///
    /// # Safety
    /// It has these bytes and may be read, and there is room at `to`.
    unsafe fn read(
        &self,
        source: Source,
        first: usize,
        to: *mut u8,
        bytes: usize,
    ) -> Result<(), CollectiveFailure> {
        match (source, &self.0) {
            (Source::Mapped(from), _) => {
                // SAFETY: the contract of this function.
                unsafe { copy_in(from.add(first), to, bytes) };
                Ok(())
            }
            (Source::Attached { rank, address }, Some(memory)) => {
                let there = address + first as u64;
                // SAFETY: the contract of this function.
                unsafe { memory.copy(Direction::Read, rank, there, to, bytes) }.map_err(|error| {
                    log::error!(
                        "cross-memory attach in a persistent collective failed: {error}; with \
                         MPIX_RMA_CMA=off, processes send copies of such buffers"
                    );
                    const TEXT: &str = "a buffer of another process cannot be read; standard error \
                                        says why";
                    CollectiveFailure { class: MPI_ERR_BUFFER, text: TEXT }
                })
            }
            (Source::Attached { .. }, None) => unreachable!("it is attached to no process"),
        }
    }
}

/// A contribution, and where it is stored.
#[derive(Clone, Copy)]
struct Take {
    from: Source,
    to: Part,
}

/// What one process does.
pub(super) struct InPlace {
    scratch: Scratch,
    exchange: Exchange,
    windows: Windows,
    reach: Reach,
    /// What it stores from each of its sources, in their order.
    takes: Vec<Take>,
    /// What it stores of its own.
    own: Option<(*const u8, Part)>,
    fold: Option<Fold>,
    /// Whether the current start has folded.
    folded: bool,
    /// Why the current start fails. Its other processes still learn that their buffers are free.
    failure: Option<CollectiveFailure>,
}

// SAFETY: the addresses are those of the application's buffers and of windows, which any thread may
// use while the collective is active.
unsafe impl Send for InPlace {}

/// A reduction, to one result.
struct Fold {
    folding: Folding,
    combine: Combine,
    /// All contributions, in the order of ranks.
    sources: Vec<Source>,
    result: Part,
    /// If some are attached: the one of the first two that the sum begins with, at its place.
    begins_with: Option<Begin>,
    /// Room for [`STAGED`] bytes of each other contribution that is attached.
    staged: Vec<u128>,
    /// Addresses of the part of each contribution that is folded.
    parts: Vec<*const u8>,
}

/// The contribution that a sum begins with.
#[derive(Clone, Copy)]
struct Begin {
    number: usize,
    /// It lies where the sum is built.
    is_there: bool,
}

/// Bytes of an attached contribution that are read at once. They stay in a second-level cache, and
/// their copy takes far longer than a system call.
const STAGED: usize = 64 << 10;

impl Fold {
    /// `in_place`: the result takes the place of contributions.
    fn new(combine: Combine, sources: Vec<Source>, result: Part, in_place: bool) -> Self {
        let is_attached = |source: &Source| matches!(source, Source::Attached { .. });
        let is_there =
            |source: &Source| matches!(source, Source::Mapped(at) if *at == result.at.cast_const());
        let attached = sources.iter().filter(|source| is_attached(source)).count();
        // The operations are commutative, so either of the first two may come first.
        let mut firsts = sources.iter().take(2);
        let begins_with = match in_place {
            _ if attached == 0 => None,
            true => firsts.position(is_there),
            false => firsts.position(is_attached),
        };
        let begins_with = begins_with.map(|number| Begin { number, is_there: in_place });
        let folding = Folding::new(combine, if in_place { FOLDED } else { 0 });
        let parts = vec![std::ptr::null(); sources.len()];
        let staged = vec![0; attached * STAGED / size_of::<u128>()];
        Fold { folding, combine, sources, result, begins_with, staged, parts }
    }

    /// # Safety
    /// The contributions may be read, and the result written.
    unsafe fn run(&mut self, reach: &Reach) -> Result<(), CollectiveFailure> {
        let bytes = self.result.bytes;
        let step = if self.staged.is_empty() { bytes.max(1) } else { STAGED };
        for at in (0..bytes).step_by(step) {
            let len = step.min(bytes - at);
            // SAFETY: the contract of this function.
            unsafe {
                match self.begins_with {
                    Some(begin) => self.fold_on(begin, reach, at, len),
                    None => self.fold(reach, at, len),
                }
            }?;
        }
        Ok(())
    }

    /// Finds the part of each contribution but that of `except`, from byte `first` on. Copies those
    /// that are attached.
    ///
    /// # Safety
    /// As [`run`](Self::run); at most [`STAGED`] bytes, if some are attached.
    unsafe fn find_parts(
        &mut self,
        reach: &Reach,
        first: usize,
        bytes: usize,
        except: Option<usize>,
    ) -> Result<(), CollectiveFailure> {
        let mut rooms = self.staged.chunks_exact_mut(STAGED / size_of::<u128>());
        let all = self.parts.iter_mut().zip(&self.sources).enumerate();
        for (_, (part, source)) in all.filter(|(number, _)| Some(*number) != except) {
            *part = match *source {
                // SAFETY: the contribution has these bytes.
                Source::Mapped(at) => unsafe { at.add(first) },
                Source::Attached { .. } => {
                    let room = rooms.next().expect("there is room for each of them");
                    let room = room.as_mut_ptr().cast::<u8>();
                    // SAFETY: the contract of this function; no more bytes than there is room for.
                    unsafe { reach.read(*source, first, room, bytes) }?;
                    room.cast_const()
                }
            };
        }
        Ok(())
    }

    /// Folds some bytes, [`FOLDED`] at a time.
    ///
    /// # Safety
    /// As [`find_parts`](Self::find_parts).
    unsafe fn fold(
        &mut self,
        reach: &Reach,
        first: usize,
        bytes: usize,
    ) -> Result<(), CollectiveFailure> {
        // SAFETY: the contract of this function.
        unsafe { self.find_parts(reach, first, bytes, None) }?;
        let last = self.parts.len() - 1;
        for at in (0..bytes).step_by(FOLDED) {
            let len = FOLDED.min(bytes - at);
            for (number, part) in self.parts.iter().enumerate() {
                let turn = Turn { step: 0, is_first: number == 0, is_last: number == last };
                let result = self.result.at.wrapping_add(first + at);
                // SAFETY: all buffers have this part, and a sum apart has room for it.
                unsafe { self.folding.add(part.add(at), result, len, turn) };
            }
        }
        Ok(())
    }

    /// Folds some bytes on a contribution that is at the place of the result, or is read to there.
    ///
    /// # Safety
    /// As [`find_parts`](Self::find_parts).
    unsafe fn fold_on(
        &mut self,
        Begin { number, is_there }: Begin,
        reach: &Reach,
        first: usize,
        bytes: usize,
    ) -> Result<(), CollectiveFailure> {
        let result = self.result.at.wrapping_add(first);
        // SAFETY: the contract of this function; all buffers have this part.
        unsafe {
            if !is_there {
                reach.read(self.sources[number], first, result, bytes)?;
            }
            self.find_parts(reach, first, bytes, Some(number))?;
            let others = self.parts.iter().enumerate().filter(|(other, _)| *other != number);
            others.for_each(|(_, part)| self.combine.apply(*part, result, bytes));
        }
        Ok(())
    }
}

impl PersistentCollective for InPlace {
    fn start(&mut self) -> Advance {
        if let Err(failure) = self.windows.check() {
            return Advance::Failed(failure);
        }
        self.exchange.start(self.scratch.words());
        self.folded = false;
        if let Some((from, to)) = self.own {
            // SAFETY: the application's buffers, which belong to the collective now.
            unsafe { copy(from, to.at, to.bytes) };
        }
        self.advance()
    }

    fn advance(&mut self) -> Advance {
        let InPlace { scratch, exchange, takes, reach, failure, .. } = self;
        let (words, before) = (scratch.words(), exchange.pending());
        if let Some(fold) = self.fold.as_mut().filter(|_| !self.folded) {
            if !exchange.can_read_all(words) {
                return Advance::Pending { moved: false };
            }
            // SAFETY: all sources have started, so their buffers may be read until this process
            // confirms; the result belongs to the collective, and nobody reads there.
            *failure = unsafe { fold.run(reach) }.err();
            self.folded = true;
        }
        let complete = exchange.advance(words, |place| {
            if let Some(Take { from, to }) = takes.get(place) {
                // SAFETY: likewise, for this source.
                let read = unsafe { reach.read(*from, 0, to.at, to.bytes) };
                *failure = failure.or(read.err());
            }
        });
        match (complete, *failure) {
            (true, Some(failure)) => Advance::Failed(failure),
            (true, None) => Advance::Complete,
            (false, _) => Advance::Pending { moved: exchange.pending() != before },
        }
    }
}

fn overlap(one: Part, other: Part) -> bool {
    let end = |part: Part| part.at.addr() + part.bytes;
    one.bytes > 0 && other.bytes > 0 && one.at.addr() < end(other) && other.at.addr() < end(one)
}

/// Whether this process receives where others read.
fn conflicts(movement: &Movement, me: usize) -> bool {
    let mut others = movement.sends.iter().enumerate().filter(|(to, _)| *to != me);
    others.any(|(_, sent)| {
        let received = movement.receives.iter().enumerate();
        let mut stored = received.filter(|(from, _)| *from != me || movement.combine.is_some());
        stored.any(|(_, part)| overlap(*sent, *part))
    })
}

/// The links of a process, and the number of words of all processes.
fn links(exchanged: &Exchanged, me: usize) -> (Links, usize) {
    let mut end = 0;
    let mut room = |rank| {
        let start = end;
        end += words_of(exchanged.sources(rank).count());
        start
    };
    let first: Vec<usize> = (0..exchanged.ranks).map(&mut room).collect();
    let sources = exchanged.sources(me).map(|from| first[from]).collect();
    let readers = exchanged.readers(me).map(|to| {
        let place = exchanged.sources(to).position(|from| from == me);
        (first[to], place.expect("it is one of the reader's sources"))
    });
    (Links::new(first[me], sources, readers), end)
}

/// Where the buffers of all processes lie, in three words for each pair: segment and offset in a
/// window, or segment 0, and the address in its process. Address 0: it cannot be read in place.
struct Places {
    words: Vec<u64>,
    ranks: usize,
}

impl Places {
    const WORDS: usize = 3;

    /// Collective.
    fn exchange(carrier: &mut Carrier, movement: &Movement) -> Self {
        let (me, ranks) = (carrier.me as usize, carrier.ranks as usize);
        let mut mine = vec![0u64; Self::WORDS * ranks];
        if !conflicts(movement, me) {
            for (words, part) in mine.chunks_exact_mut(Self::WORDS).zip(&movement.sends) {
                let window = place_of(part.at.addr(), part.bytes as u64);
                let (segment, offset) = window.map_or((0, 0), |at| (at.segment, at.offset));
                words.copy_from_slice(&[segment, offset, part.at.addr() as u64]);
            }
        }
        let mut all = vec![0u64; mine.len() * ranks];
        carrier.allgather(bytes_of(&mut mine), bytes_of(&mut all));
        Places { words: all, ranks }
    }

    fn of(&self, from: usize, to: usize) -> &[u64] {
        &self.words[Self::WORDS * (from * self.ranks + to)..][..Self::WORDS]
    }

    fn window(&self, from: usize, to: usize) -> Option<WindowPlace> {
        let words = self.of(from, to);
        let (segment, offset) = (words[0], words[1]);
        (segment != 0).then_some(WindowPlace { segment, offset })
    }

    fn address(&self, from: usize, to: usize) -> u64 {
        self.of(from, to)[2]
    }
}

/// Where a process finds what it reads.
pub(super) struct Found {
    /// The contribution of each process, its own included. `None`: it reads none.
    sources: Vec<Option<Source>>,
    windows: Windows,
    reach: Reach,
}

impl Found {
    /// `None`: this process cannot read some buffer.
    fn look_up(
        me: usize,
        exchanged: &Exchanged,
        movement: &Movement,
        places: &Places,
        memory: Option<PeerMemory>,
    ) -> Option<Self> {
        let mut windows = Windows::new();
        let mut sources = vec![None; exchanged.ranks];
        sources[me] = Some(Source::Mapped(movement.sends[me].at.cast_const()));
        for from in exchanged.sources(me) {
            let place = places.window(from, me);
            let mapped = place.and_then(|place| {
                let at = address_of(place, exchanged.sent(from, me) as u64)?;
                windows.add(at, place);
                Some(Source::Mapped(std::ptr::without_provenance(at)))
            });
            let (rank, address) = (from as u32, places.address(from, me));
            let attached = memory.as_ref().map(|_| Source::Attached { rank, address });
            sources[from] = Some(mapped.or(attached)?);
        }
        for to in exchanged.readers(me) {
            if let Some(place) = places.window(me, to) {
                windows.add(movement.sends[to].at.addr(), place);
            }
        }
        Some(Found { sources, windows, reach: Reach(memory) })
    }
}

/// Whether all processes can read all that they receive in place, if the longest content has so
/// many bytes. `None` in all of them: some cannot, or it is not worth it. Collective.
pub(super) fn agree(
    carrier: &mut Carrier,
    exchanged: &Exchanged,
    movement: &Movement,
    longest: usize,
) -> Option<Found> {
    let places = Places::exchange(carrier, movement);
    let reads = || exchanged.pairs().filter(|(from, to)| exchanged.reads(*from, *to));
    if !reads().all(|(from, to)| places.address(from, to) != 0) {
        return None; // in all processes, without another exchange
    }
    let all_in_windows = reads().all(|(from, to)| places.window(from, to).is_some());
    let me = carrier.me as usize;
    if all_in_windows {
        let found = Found::look_up(me, exchanged, movement, &places, None);
        if let Some(found) = agreed(carrier, found) {
            return Some(found);
        }
    }
    if !ATTACHED.is_reached(exchanged, longest) {
        return None;
    }
    let found = PeerMemory::new(carrier, attaches())
        .and_then(|memory| Found::look_up(me, exchanged, movement, &places, Some(memory)));
    agreed(carrier, found)
}

/// What this process has found, if all have found something. Collective.
fn agreed(carrier: &mut Carrier, found: Option<Found>) -> Option<Found> {
    let mut all = vec![0; carrier.ranks as usize];
    carrier.allgather(&[u8::from(found.is_some())], &mut all);
    found.filter(|_| !all.contains(&0))
}

/// Sets up a collective whose processes have agreed. Collective.
pub(super) fn set_up(
    carrier: &mut Carrier,
    exchanged: &Exchanged,
    movement: &Movement,
    found: Found,
) -> Result<InPlace, NotServed> {
    let me = carrier.me as usize;
    let (links, words) = links(exchanged, me);
    let scratch = scratch(carrier, words)?;
    let Found { sources, windows, reach } = found;
    let (receives, combine) = (&movement.receives, movement.combine);
    let source = |from: usize| sources[from].expect("it has found all that it reads");
    let received = || (0..sources.len()).filter(|from| receives[*from].bytes > 0);
    let fold = combine.and_then(|combine| {
        let result = receives[received().next()?];
        Some(Fold::new(combine, received().map(source).collect(), result, movement.in_place))
    });
    let (takes, own) = match combine {
        Some(_) => (Vec::new(), None),
        None => {
            let take = |from| Take { from: source(from), to: receives[from] };
            let (from, to) = (movement.sends[me].at.cast_const(), receives[me]);
            let is_elsewhere = to.bytes > 0 && from != to.at.cast_const();
            (exchanged.sources(me).map(take).collect(), is_elsewhere.then_some((from, to)))
        }
    };
    let exchange = Exchange::new(links);
    let (folded, failure) = (false, None);
    Ok(InPlace { scratch, exchange, windows, reach, takes, own, fold, folded, failure })
}
