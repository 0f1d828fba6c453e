//! Exchanges between neighbours, again and again: each process reads its neighbours' data in place.
//!
//! No process copies on behalf of another, and there is no barrier. Two kinds of rising words order
//! the accesses, in memory that all processes of the communicator share:
//!
//! - The *ready* word of a process has the number of the exchange for which its data may be read.
//!   It stores the number when it starts the exchange (release); its neighbours look (acquire).
//! - The *read* word of a pair has the number of the exchange whose data the reader has read. The
//!   reader stores it after its last access (release). When all readers have (acquire), the sender
//!   completes, and the application may change the data.
//!
//! A process has one line for its ready word, then one for each neighbour that it reads from. Where
//! the data are, and how they are copied, is the caller's business.

use crate::sync::AtomicU64;
use crate::sync::Ordering::{Acquire, Relaxed, Release};

/// Words of a cache line.
const LINE: usize = 8;

/// How the blocks of two neighbours correspond (MPI-4.1 8.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// Blocks 2d and 2d + 1 belong to the neighbours in negative and positive direction of
    /// dimension d. What is sent in one direction is received from the other, even where both
    /// neighbours are the same process.
    Cartesian,
    /// The k-th block to a process is its k-th block from the sender.
    Graph,
}

impl Topology {
    /// Which block of the sender arrives as block `at` of process `me`. `sources` are the processes
    /// from which `me` receives; `destinations` those to which the sender `sources[at]` sends.
    /// `None`: there is no such block, or the two processes differ in their number.
    #[must_use]
    pub fn matching(
        self,
        (me, sources): (u32, &[Option<u32>]),
        at: usize,
        destinations: &[Option<u32>],
    ) -> Option<usize> {
        let from = sources[at]?;
        if self == Topology::Cartesian {
            let opposite = at ^ 1;
            return (destinations.get(opposite) == Some(&Some(me))).then_some(opposite);
        }
        let among =
            |list: &[Option<u32>], rank| list.iter().filter(|to| **to == Some(rank)).count();
        if among(sources, from) != among(destinations, me) {
            return None;
        }
        let before = among(&sources[..at], from);
        let sent = destinations.iter().enumerate().filter(|(_, to)| **to == Some(me));
        sent.map(|(block, _)| block).nth(before)
    }
}

/// The processes of a list, each once, in the order of their first occurrence.
#[must_use]
pub fn distinct(ranks: &[Option<u32>]) -> Vec<u32> {
    let mut seen = Vec::new();
    for rank in ranks.iter().flatten() {
        if !seen.contains(rank) {
            seen.push(*rank);
        }
    }
    seen
}

/// Words of a process that reads from so many neighbours.
#[must_use]
pub fn words_of(neighbours: usize) -> usize {
    LINE * (1 + neighbours)
}

/// The words of a process and its neighbours, by their places.
#[derive(Clone, Debug)]
pub struct Links {
    /// Its ready word.
    ready: usize,
    /// The ready word of each neighbour from which it reads.
    sources: Vec<usize>,
    /// The read word of each neighbour that reads from it.
    readers: Vec<usize>,
}

impl Links {
    /// `own`: the first of the process's words. `sources`: those of the neighbours from which it
    /// reads. `readers`: those of the neighbours that read from it, each with the place of this
    /// process among that neighbour's sources.
    #[must_use]
    pub fn new(
        own: usize,
        sources: Vec<usize>,
        readers: impl IntoIterator<Item = (usize, usize)>,
    ) -> Self {
        let read_word = |(first, place): (usize, usize)| first + words_of(place);
        Links { ready: own, sources, readers: readers.into_iter().map(read_word).collect() }
    }
}

/// The exchanges of one process.
///
/// [`start`](Self::start) begins one; then [`advance`](Self::advance) until it returns true.
#[derive(Debug)]
pub struct Exchange {
    links: Links,
    /// Of the current exchange, or of the last one.
    number: u64,
    /// Neighbours that this process has not read from, by their places in the links.
    unread: Vec<u32>,
    /// Neighbours that have not read from this process, likewise.
    unconfirmed: Vec<u32>,
}

impl Exchange {
    /// No exchange yet.
    #[must_use]
    pub fn new(links: Links) -> Self {
        Exchange { links, number: 0, unread: Vec::new(), unconfirmed: Vec::new() }
    }

    /// Whether the last exchange has completed.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.pending() == 0
    }

    /// Neighbours that it waits for, in either direction.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.unread.len() + self.unconfirmed.len()
    }

    /// Begins an exchange: neighbours may read this process's data from now on.
    ///
    /// # Panics
    /// The exchange before is not complete.
    pub fn start(&mut self, words: &[AtomicU64]) {
        assert!(self.is_complete(), "an exchange begins when the last one has completed");
        self.number += 1;
        self.unread.extend(0..self.links.sources.len() as u32);
        self.unconfirmed.extend(0..self.links.readers.len() as u32);
        words[self.links.ready].store(self.number, Release);
    }

    /// Whether it can read from all neighbours that it has not read from.
    #[must_use]
    pub fn can_read_all(&self, words: &[AtomicU64]) -> bool {
        let source = |place: &u32| &words[self.links.sources[*place as usize]];
        self.unread.iter().all(|place| source(place).load(Acquire) >= self.number)
    }

    /// Reads from all neighbours that are ready, each by one call of `read` with its place, and
    /// looks which have read. True if the exchange is complete.
    pub fn advance(&mut self, words: &[AtomicU64], mut read: impl FnMut(usize)) -> bool {
        let Exchange { links, number, unread, unconfirmed } = self;
        unread.retain(|place| {
            let place = *place as usize;
            if words[links.sources[place]].load(Acquire) < *number {
                return true;
            }
            read(place);
            let own = &words[links.ready + words_of(place)];
            debug_assert_eq!(own.load(Relaxed) + 1, *number);
            own.store(*number, Release);
            false
        });
        unconfirmed.retain(|place| words[links.readers[*place as usize]].load(Acquire) < *number);
        self.is_complete()
    }
}
