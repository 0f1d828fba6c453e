//! Chooses and makes the transport of a window: for each peer, shared memory where both are on one
//! node, else RDMA where both have a device for it, else messages.
//!
//! Everything here is collective over the window's communicator, and comes to the same answer in
//! every process.

mod channel;
pub(crate) mod communicators;
mod host_carrier;
pub(crate) mod messages;
pub(crate) mod rdma;
mod votes;

pub(crate) use channel::open_job;
pub(crate) use votes::{BYTES as VOTES_BYTES, Verdict, Votes};

use std::ffi::c_int;

use crate::engine::Rank;
use crate::mpi::abi::sys::*;
use crate::mpi::progress::drive;
use crate::runtime::Transport;
use crate::runtime::config::Reach;
use crate::runtime::progress::Backoff;
use crate::transport::shm::{self, Bootstrap, Memory, SetupError, ShmWindow};
use channel::ReservedPort;
use messages::{CARD, Card, Pending};

/// How the processes of a new window wait for each other; the same in all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gathering {
    /// In the host.
    Blocking,
    /// As all other calls that wait [PR-1].
    Driving,
}

/// Set-up over the host's collectives.
pub(crate) struct Collectives {
    comm: MPI_Comm,
    rank: Rank,
    size: u32,
    /// Of this process, or of all when there is a verdict.
    votes: Votes,
    verdict: Option<Verdict>,
    /// Votes that came with a gather say that what it was for is not wanted.
    unwanted: bool,
    /// First error of the host. Its error handler has heard of it; the set-up goes on with zeros
    /// and is thrown away.
    failed: Option<c_int>,
    /// What this process puts in.
    part: Part,
    /// What peers that this one sends messages to have to know of each process, as the first gather
    /// has brought it.
    cards: Vec<u8>,
    /// This process's port for messages.
    port: Option<ReservedPort>,
}

impl Collectives {
    /// Over a live communicator, with what its processes are to agree on, and what this one puts in
    /// the window.
    pub(crate) fn over(comm: MPI_Comm, rank: c_int, size: c_int, votes: Votes, part: Part) -> Self {
        Self {
            comm,
            rank: rank as Rank,
            size: size as u32,
            votes,
            verdict: None,
            unwanted: false,
            failed: None,
            part,
            cards: Vec::new(),
            port: None,
        }
    }

    /// Over a communicator of some of the processes that have agreed.
    pub(crate) fn of_some(&self, comm: MPI_Comm) -> Self {
        let (mut rank, mut size) = (0, 0);
        // SAFETY: the caller's communicator.
        unsafe {
            PMPI_Comm_rank(comm, &raw mut rank);
            PMPI_Comm_size(comm, &raw mut size);
        }
        let mut some = Self::over(comm, rank, size, self.votes, self.part);
        some.verdict = self.verdict;
        some
    }

    /// What was agreed on.
    pub(crate) fn votes(&self) -> Votes {
        self.votes
    }

    /// True once all have come: they wait for nothing but each other, and may do so in the host.
    pub(crate) fn may_block(&self) -> bool {
        self.verdict.is_some_and(|verdict| verdict.gathering == Gathering::Blocking)
    }

    /// The first gather, which carries the votes, and the cards for messages.
    fn gather_votes(&mut self, mine: &[u8], all: &mut [u8]) -> c_int {
        let (votes, card) = (mine.len(), mine.len() + VOTES_BYTES);
        let len = card + CARD;
        self.port = ReservedPort::reserve();
        let port = ReservedPort::card(self.port.as_ref());
        let mut together = mine.to_vec();
        together.extend_from_slice(&self.votes.encode());
        together.extend_from_slice(&Card::new(&self.part, port).encode());
        let mut everybody = vec![0; len * self.size as usize];
        // SAFETY: the communicator is live; the lengths fit.
        let code = unsafe { drive::allgather(self.comm, &together, &mut everybody) };
        for (theirs, part) in all.chunks_exact_mut(mine.len()).zip(everybody.chunks_exact(len)) {
            theirs.copy_from_slice(&part[..votes]);
            self.votes.join(&part[votes..card]);
            self.cards.extend_from_slice(&part[card..]);
        }
        let verdict = self.votes.verdict();
        self.verdict = Some(verdict);
        self.unwanted = !verdict.by_memory(self.size);
        code
    }

    /// Everybody's card for messages, and this process's port: taken out.
    pub(crate) fn take_cards(&mut self) -> (Vec<u8>, Option<ReservedPort>) {
        (std::mem::take(&mut self.cards), self.port.take())
    }

    /// The communicator.
    pub(crate) fn comm(&self) -> MPI_Comm {
        self.comm
    }

    /// First error of the host.
    pub(crate) fn failed(&self) -> Option<c_int> {
        self.failed
    }
}

impl Bootstrap for Collectives {
    fn rank(&self) -> Rank {
        self.rank
    }
    fn size(&self) -> u32 {
        self.size
    }
    fn allgather(&mut self, mine: &[u8], all: &mut [u8]) {
        assert_eq!(mine.len() * self.size as usize, all.len());
        let code = if self.verdict.is_none() {
            self.gather_votes(mine, all)
        } else if self.may_block() {
            // SAFETY: the communicator is live; the lengths were just compared.
            unsafe { drive::allgather_blocking(self.comm, mine, all) }
        } else {
            // SAFETY: as above.
            unsafe { drive::allgather(self.comm, mine, all) }
        };
        if code != MPI_SUCCESS {
            all.fill(0);
            self.failed.get_or_insert(code);
        }
    }
    fn goes_on(&self) -> bool {
        !self.unwanted && self.failed.is_none()
    }
    fn wait(&mut self, done: &mut dyn FnMut() -> bool) {
        if self.may_block() {
            let mut backoff = Backoff::new();
            while !done() {
                backoff.round();
                backoff.pause();
            }
        } else {
            drive::until(|| done().then_some(()));
        }
    }
}

/// Why there is no transport.
#[derive(Debug)]
pub(crate) enum Unmade {
    /// Some process gave a wrong argument, of this error class.
    Wrong(c_int),
    /// Some process leaves the window to the host.
    NotOurs,
    /// The window is left to the host, for this reason.
    Unsuitable(SetupError),
    /// The host failed.
    Host(c_int),
}

/// What this process puts in a window.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    pub(crate) memory: Memory,
    pub(crate) bytes: u64,
    pub(crate) disp_unit: u32,
    /// The application says that every accumulate is of one element.
    pub(crate) single: bool,
}

/// A transport that is made, or nearly so.
#[expect(clippy::large_enum_variant, reason = "there is one at a time, for a moment")]
pub(crate) enum Begun {
    /// By shared memory alone.
    Memory(Transport),
    /// With messages; the processes are finding out meanwhile whether all have what they need.
    Messages(Pending),
}

impl Begun {
    /// By shared memory alone.
    pub(crate) fn is_memory(&self) -> bool {
        matches!(self, Begun::Memory(_))
    }

    /// Ends what is under way; to be called in any case. Before it the caller may make collective
    /// calls on other communicators.
    ///
    /// # Errors
    /// As [`make`].
    pub(crate) fn finish(self, all: &mut Collectives) -> Result<Transport, Unmade> {
        match self {
            Begun::Memory(port) => Ok(port),
            Begun::Messages(pending) => pending.finish(all),
        }
    }
}

/// Begins the transport of a window of the processes of `all`.
///
/// # Errors
/// No process has a transport, for the same reason.
pub(crate) fn make(all: &mut Collectives, settings: shm::Settings) -> Result<Begun, Unmade> {
    let (size, part) = (all.size, all.part);
    // The votes tell what is to be made, or will with the first gather.
    if all.verdict.is_none_or(|verdict| verdict.by_memory(size)) {
        let port = ShmWindow::new(all, part.memory, part.disp_unit, settings);
        if let Some(code) = all.failed {
            return Err(Unmade::Host(code));
        }
        let reach = all.verdict.map_or(Reach::Auto, |verdict| verdict.reach);
        match port {
            Ok(port) => {
                all.port = None;
                return Ok(Begun::Memory(port.into()));
            }
            Err(SetupError::Unwanted) => {}
            Err(reason) if reach == Reach::Shm || size == 1 => {
                return Err(Unmade::Unsuitable(reason));
            }
            Err(reason) if matches!(part.memory, Memory::Share { .. }) => {
                return Err(Unmade::Unsuitable(reason));
            }
            Err(SetupError::NotOneNode) => {
                return messages::begin(all, part, reach, settings).map(Begun::Messages);
            }
            Err(reason) => log::info!("messages instead of shared memory: {reason}"),
        }
    }
    match all.verdict {
        Some(Verdict { class, .. }) if class != 0 => Err(Unmade::Wrong(class)),
        Some(Verdict { ours: false, .. }) => Err(Unmade::NotOurs),
        // Where shared memory has failed, its processes are peers like any others.
        Some(Verdict { reach: Reach::Verbs, .. }) => {
            messages::begin(all, part, Reach::Verbs, settings).map(Begun::Messages)
        }
        _ => messages::begin(all, part, Reach::HostMpi, settings).map(Begun::Messages),
    }
}
