//! Collectives of long contents that lie in windows: each process reads the buffers of the others
//! in place, as in halo exchanges [CL-5].
//!
//! One copy takes the place of two, and nobody needs a ring. A sender completes when all of its
//! readers have read. The processes choose this together, if each finds all that it reads in
//! windows that it has mapped, and none receives where others read.

use super::folding::{FOLDED, Folding};
use super::movement::{Exchanged, Movement, Part};
use super::windows::Windows;
use super::{NotServed, scratch};
use crate::collective::halo::{Exchange, Links, words_of};
use crate::collective::steps::Turn;
use crate::mpi::collective::communicators::{Carrier, bytes_of};
use crate::runtime::collectives::{Advance, PersistentCollective};
use crate::transport::copy;
use crate::transport::crossing::copy_in;
use crate::transport::shm::window_memory::{WindowPlace, address_of, place_of};
use crate::transport::shm::{Bootstrap, Scratch};

/// Fewest bytes of the longest content: where each process reads from each other, and where some
/// only send. Those need not wait for their readers if they have a ring.
const SHORTEST: usize = 512;
const SHORTEST_ONE_WAY: usize = 8192;

/// Whether a collective is worth it, whose longest content has so many bytes.
pub(super) fn is_worthwhile(exchanged: &Exchanged, longest: usize) -> bool {
    let is_mutual =
        || exchanged.pairs().all(|(from, to)| from == to || exchanged.sent(from, to) > 0);
    longest >= SHORTEST_ONE_WAY || (longest >= SHORTEST && is_mutual())
}

/// A contribution, and where it is stored.
#[derive(Clone, Copy)]
struct Take {
    from: *const u8,
    to: Part,
}

/// What one process does.
pub(super) struct InPlace {
    scratch: Scratch,
    exchange: Exchange,
    windows: Windows,
    /// What it stores from each of its sources, in their order.
    takes: Vec<Take>,
    /// What it stores of its own.
    own: Option<Take>,
    fold: Option<Fold>,
    /// Whether the current start has folded.
    folded: bool,
}

// SAFETY: the addresses are those of the application's buffers and of windows, which any thread may
// use while the collective is active.
unsafe impl Send for InPlace {}

/// A reduction, to one result.
struct Fold {
    folding: Folding,
    /// All contributions, in the order of ranks.
    sources: Vec<*const u8>,
    result: Part,
}

impl Fold {
    /// # Safety
    /// The contributions may be read, and the result written.
    unsafe fn run(&mut self) {
        let Part { at: result, bytes } = self.result;
        let last = self.sources.len() - 1;
        for at in (0..bytes).step_by(FOLDED) {
            let len = FOLDED.min(bytes - at);
            for (number, source) in self.sources.iter().enumerate() {
                let turn = Turn { step: 0, is_first: number == 0, is_last: number == last };
                // SAFETY: all buffers have this part, and a sum apart has room for it.
                unsafe { self.folding.add(source.add(at), result.add(at), len, turn) };
            }
        }
    }
}

impl PersistentCollective for InPlace {
    fn start(&mut self) -> Advance {
        if let Err(failure) = self.windows.check() {
            return Advance::Failed(failure);
        }
        self.exchange.start(self.scratch.words());
        self.folded = false;
        if let Some(Take { from, to }) = self.own {
            // SAFETY: the application's buffers, which belong to the collective now.
            unsafe { copy(from, to.at, to.bytes) };
        }
        self.advance()
    }

    fn advance(&mut self) -> Advance {
        let InPlace { scratch, exchange, takes, .. } = self;
        let (words, before) = (scratch.words(), exchange.pending());
        if let Some(fold) = self.fold.as_mut().filter(|_| !self.folded) {
            if !exchange.can_read_all(words) {
                return Advance::Pending { moved: false };
            }
            // SAFETY: all sources have started, so their buffers may be read until this process
            // confirms; the result belongs to the collective, and nobody reads there.
            unsafe { fold.run() };
            self.folded = true;
        }
        let complete = exchange.advance(words, |place| {
            if let Some(Take { from, to }) = takes.get(place) {
                // SAFETY: likewise, for this source.
                unsafe { copy_in(*from, to.at, to.bytes) };
            }
        });
        match complete {
            true => Advance::Complete,
            false => Advance::Pending { moved: exchange.pending() != before },
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

/// Where the buffers of all processes lie, in two words for each pair. Segment 0: in no window.
struct Places {
    words: Vec<u64>,
    ranks: usize,
}

impl Places {
    /// Collective.
    fn exchange(carrier: &mut Carrier, movement: &Movement) -> Self {
        let (me, ranks) = (carrier.me as usize, carrier.ranks as usize);
        let mut mine = vec![0u64; 2 * ranks];
        let usable = !conflicts(movement, me);
        for (words, part) in mine.chunks_exact_mut(2).zip(&movement.sends) {
            let place = if usable { place_of(part.at.addr(), part.bytes as u64) } else { None };
            if let Some(WindowPlace { segment, offset }) = place {
                words.copy_from_slice(&[segment, offset]);
            }
        }
        let mut all = vec![0u64; 2 * ranks * ranks];
        carrier.allgather(bytes_of(&mut mine), bytes_of(&mut all));
        Places { words: all, ranks }
    }

    fn of(&self, from: usize, to: usize) -> Option<WindowPlace> {
        let at = 2 * (from * self.ranks + to);
        let (segment, offset) = (self.words[at], self.words[at + 1]);
        (segment != 0).then_some(WindowPlace { segment, offset })
    }
}

/// What a process has found in windows.
pub(super) struct Found {
    /// Where it reads the contribution of each process, its own included.
    sources: Vec<*const u8>,
    windows: Windows,
}

impl Found {
    /// `None`: this process cannot read some buffer.
    fn look_up(
        me: usize,
        exchanged: &Exchanged,
        movement: &Movement,
        places: &Places,
    ) -> Option<Self> {
        let mut windows = Windows::new();
        let mut sources: Vec<_> = movement.sends.iter().map(|_| std::ptr::null()).collect();
        sources[me] = movement.sends[me].at.cast_const();
        for from in exchanged.sources(me) {
            let place = places.of(from, me)?;
            let at = address_of(place, exchanged.sent(from, me) as u64)?;
            windows.add(at, place);
            sources[from] = std::ptr::without_provenance(at);
        }
        for to in exchanged.readers(me) {
            windows.add(movement.sends[to].at.addr(), places.of(me, to)?);
        }
        Some(Found { sources, windows })
    }
}

/// Whether all processes can read all that they receive in place. `None` in all of them: some
/// cannot. Collective.
pub(super) fn agree(
    carrier: &mut Carrier,
    exchanged: &Exchanged,
    movement: &Movement,
) -> Option<Found> {
    let places = Places::exchange(carrier, movement);
    let is_known = |(from, to)| !exchanged.reads(from, to) || places.of(from, to).is_some();
    if !exchanged.pairs().all(is_known) {
        return None; // in all processes, without another exchange
    }
    let found = Found::look_up(carrier.me as usize, exchanged, movement, &places);
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
    let Found { sources, windows } = found;
    let (receives, combine) = (&movement.receives, movement.combine);
    let take = |from: usize| Take { from: sources[from], to: receives[from] };
    let received = || (0..sources.len()).filter(|from| receives[*from].bytes > 0);
    let fold = combine.and_then(|combine| {
        let result = receives[received().next()?];
        let sources = received().map(|from| sources[from]).collect();
        let folding = Folding::new(combine, if movement.in_place { FOLDED } else { 0 });
        Some(Fold { folding, sources, result })
    });
    let is_elsewhere = |take: &Take| take.to.bytes > 0 && take.from != take.to.at.cast_const();
    let (takes, own) = match combine {
        Some(_) => (Vec::new(), None),
        None => (exchanged.sources(me).map(take).collect(), Some(take(me)).filter(is_elsewhere)),
    };
    let exchange = Exchange::new(links);
    Ok(InPlace { scratch, exchange, windows, takes, own, fold, folded: false })
}
