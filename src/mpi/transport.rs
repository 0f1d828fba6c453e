//! Chooses and makes the transport of a window: for each peer, shared memory where both are on one node, else RDMA where both have a device for it,
//! else messages.
//!
//! Everything here is collective over the window's communicator, and comes to the same answer in every process.

use std::ffi::c_int;

use super::courier::HostCourier;
use super::sys::*;
use super::window::{VOTES_BYTES, Verdict, Votes};
use super::{datatype, drive, verbs};
use crate::engine::Rank;
use crate::runtime::Transport;
use crate::runtime::config::Reach;
use crate::runtime::progress::Patience;
use crate::transport::host_mpi::courier::Courier;
use crate::transport::host_mpi::members::{Extents, Members, Table};
use crate::transport::host_mpi::{self, MessageWindow};
use crate::transport::shm::{self, Alone, Bootstrap, Memory, SetupError, ShmWindow};
use crate::transport::verbs::ability::ability;
use crate::transport::verbs::{Own, VerbsCourier};

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
    /// First error of the host. Its error handler has heard of it; the set-up goes on with zeros and is thrown away.
    failed: Option<c_int>,
}

impl Collectives {
    /// Over a live communicator, with what its processes are to agree on.
    pub(crate) fn over(comm: MPI_Comm, rank: c_int, size: c_int, votes: Votes) -> Self {
        Self { comm, rank: rank as Rank, size: size as u32, votes, verdict: None, unwanted: false, failed: None }
    }

    /// Over a communicator of some of the processes that have agreed.
    fn of_some(&self, comm: MPI_Comm) -> Self {
        let (mut rank, mut size) = (0, 0);
        // SAFETY: the caller's communicator.
        unsafe {
            PMPI_Comm_rank(comm, &raw mut rank);
            PMPI_Comm_size(comm, &raw mut size);
        }
        Self { verdict: self.verdict, ..Self::over(comm, rank, size, self.votes) }
    }

    /// What was agreed on.
    pub(crate) fn votes(&self) -> Votes {
        self.votes
    }

    /// True once all have come: they wait for nothing but each other, and may do so in the host.
    fn may_block(&self) -> bool {
        self.verdict.is_some_and(|verdict| verdict.gathering == Gathering::Blocking)
    }

    /// The first gather, which carries the votes.
    fn gather_votes(&mut self, mine: &[u8], all: &mut [u8]) -> c_int {
        let len = mine.len() + VOTES_BYTES;
        let mut together = mine.to_vec();
        together.extend_from_slice(&self.votes.encode());
        let mut everybody = vec![0; len * self.size as usize];
        // SAFETY: the communicator is live; the lengths fit.
        let code = unsafe { drive::allgather(self.comm, &together, &mut everybody) };
        for (theirs, part) in all.chunks_exact_mut(mine.len()).zip(everybody.chunks_exact(len)) {
            theirs.copy_from_slice(&part[..mine.len()]);
            self.votes.join(&part[mine.len()..]);
        }
        let verdict = self.votes.verdict();
        self.verdict = Some(verdict);
        self.unwanted = !verdict.by_memory(self.size);
        code
    }

    fn maximum(&mut self, mut value: c_int) -> c_int {
        // SAFETY: the communicator is live.
        let code = unsafe { drive::maximum(self.comm, std::slice::from_mut(&mut value)) };
        if code != MPI_SUCCESS {
            self.failed.get_or_insert(code);
        }
        value
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
            let mut patience = Patience::new();
            while !done() {
                patience.round();
                patience.pause();
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

/// Makes the transport of a window of the processes of `comm`.
///
/// # Errors
/// No process has a transport, for the same reason.
pub(crate) fn make(all: &mut Collectives, part: Part, settings: shm::Settings) -> Result<Transport, Unmade> {
    let size = all.size;
    // The votes tell what is to be made, or will with the first gather.
    if all.verdict.is_none_or(|verdict| verdict.by_memory(size)) {
        let port = ShmWindow::new(all, part.memory, part.disp_unit, settings);
        if let Some(code) = all.failed {
            return Err(Unmade::Host(code));
        }
        let reach = all.verdict.map_or(Reach::Auto, |verdict| verdict.reach);
        match port {
            Ok(port) => return Ok(port.into()),
            Err(SetupError::Unwanted) => {}
            Err(reason) if reach == Reach::Shm || size == 1 => return Err(Unmade::Unsuitable(reason)),
            Err(reason) if matches!(part.memory, Memory::Share { .. }) => return Err(Unmade::Unsuitable(reason)),
            Err(SetupError::NotOneNode) => return by_messages(all, part, reach, settings),
            Err(reason) => log::info!("messages instead of shared memory: {reason}"),
        }
    }
    match all.verdict {
        Some(Verdict { class, .. }) if class != 0 => Err(Unmade::Wrong(class)),
        Some(Verdict { ours: false, .. }) => Err(Unmade::NotOurs),
        // Where shared memory has failed, its processes are peers like any others.
        Some(Verdict { reach: Reach::Verbs, .. }) => by_messages(all, part, Reach::Verbs, settings),
        _ => by_messages(all, part, Reach::HostMpi, settings),
    }
}

/// Bytes that tell a process's node and memory, and what RDMA it has.
const CARD: usize = 3 * 8 + 8 + 4 + 4;

/// A window some of whose peers are reached by messages or RDMA: all of them, unless each is to be reached in the best way.
fn by_messages(all: &mut Collectives, part: Part, reach: Reach, settings: shm::Settings) -> Result<Transport, Unmade> {
    let near = reach == Reach::Auto;
    let fabric = if reach == Reach::HostMpi { None } else { verbs::fabric(reach == Reach::Verbs) };
    let mut card = [0; CARD];
    for (place, number) in card.chunks_exact_mut(8).zip(shm::node().unwrap_or_default()) {
        place.copy_from_slice(&number.to_ne_bytes());
    }
    card[24..32].copy_from_slice(&part.bytes.to_ne_bytes());
    card[32..36].copy_from_slice(&part.disp_unit.to_ne_bytes());
    card[36] = ability(fabric.as_ref(), part.single);
    let mut cards = vec![0; CARD * all.size as usize];
    all.allgather(&card, &mut cards);
    let cards = || cards.chunks_exact(CARD);
    let extents = Extents::new(cards().map(|card| {
        let bytes = u64::from_ne_bytes(card[24..32].try_into().expect("eight bytes"));
        (bytes, u32::from_ne_bytes(card[32..36].try_into().expect("four bytes")))
    }));
    let abilities: Table<u8> = Table::new(cards().map(|card| card[36]));
    // The processes of a node share a segment, whichever way operations go: programs may ask for memory that is allocated, and what is
    // attached to a dynamic window is seen there.
    let shares = matches!(part.memory, Memory::Share { .. });
    // A process that does not know its node has none in common with anybody.
    let known = card[..24].iter().any(|byte| *byte != 0);
    let mates: Vec<Rank> = (0..)
        .zip(cards())
        .filter(|(rank, other)| *rank == all.rank || known && other[..24] == card[..24])
        .map(|(rank, _)| rank)
        .collect();

    if shares && mates.len() != all.size as usize {
        return Err(Unmade::Unsuitable(SetupError::NotOneNode));
    }
    let comm = private(all)?;
    // Where no two processes are on one node, nobody has a communicator of its node to make.
    let mut nodes: Vec<&[u8]> = cards().map(|card| &card[..24]).filter(|node| node.iter().any(|byte| *byte != 0)).collect();
    nodes.sort_unstable();
    let mut port = if nodes.windows(2).any(|two| two[0] == two[1]) {
        node_window(all, comm, &mates, part, settings)
    } else {
        alone_window(part, settings)
    };
    let mut mates = (mates, near);
    if all.maximum(c_int::from(port.is_none())) != 0 {
        if shares {
            free(comm);
            return Err(Unmade::Unsuitable(SetupError::NotOneNode));
        }
        // What fails on one node is done without on all of them.
        mates = (vec![all.rank], false);
        port = alone_window(part, settings);
        if all.maximum(c_int::from(port.is_none())) != 0 {
            free(comm);
            let reason = "the memory of a process".into();
            return Err(Unmade::Unsuitable(SetupError::System { call: "mmap", rank: all.rank, reason }));
        }
    }
    if let Some(code) = all.failed {
        free(comm);
        return Err(Unmade::Host(code));
    }
    let port = port.expect("every process has one");
    let (mates, near) = mates;
    let members = Members::new(all.rank, all.size, mates, near);
    let own = Own { base: port.base(), bytes: if port.is_dynamic() { 0 } else { part.bytes } };
    // SAFETY: the memory is the window's, which the courier leaves before it goes.
    let direct = unsafe { verbs::direct((all.rank, all.size), fabric.as_ref(), &abilities, own) };
    let refused = all.maximum(c_int::from(direct.is_err())) != 0;
    let host = HostCourier::new(comm);
    let courier: Box<dyn Courier> = match direct {
        Ok(Some(direct)) if !refused => Box::new(VerbsCourier::new(host, direct)),
        _ => Box::new(host),
    };
    let host = host_mpi::Settings { foreign_reduce: settings.foreign_reduce, foreign: datatype::foreign };
    Ok(MessageWindow::new(courier, members, port, extents, host).into())
}

/// A communicator of the same processes that nobody else sends on. Not a duplicate, which would call the application's functions
/// for attributes.
fn private(all: &Collectives) -> Result<MPI_Comm, Unmade> {
    let (mut group, mut comm) = (MPI_GROUP_NULL, MPI_COMM_NULL);
    // SAFETY: the communicator is live, and all of its processes come here.
    unsafe {
        if !all.may_block() {
            drive::assemble(all.comm);
        }
        let mut code = PMPI_Comm_group(all.comm, &raw mut group);
        if code == MPI_SUCCESS {
            code = PMPI_Comm_create(all.comm, group, &raw mut comm);
            PMPI_Group_free(&raw mut group);
        }
        if code != MPI_SUCCESS {
            return Err(Unmade::Host(code));
        }
        PMPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    }
    Ok(comm)
}

/// The window of a process that shares it with nobody.
fn alone_window(part: Part, settings: shm::Settings) -> Option<ShmWindow> {
    ShmWindow::new(&mut Alone, part.memory, part.disp_unit, settings)
        .inspect_err(|reason| log::info!("no memory for the window: {reason}"))
        .ok()
}

/// The window of the processes of this node.
fn node_window(all: &Collectives, comm: MPI_Comm, mates: &[Rank], part: Part, settings: shm::Settings) -> Option<ShmWindow> {
    let mut node = MPI_COMM_NULL;
    // SAFETY: the communicator was just made, and all of its processes come here.
    let code = unsafe {
        if !all.may_block() {
            drive::assemble(comm);
        }
        PMPI_Comm_split(comm, mates[0] as c_int, all.rank as c_int, &raw mut node)
    };
    if code != MPI_SUCCESS {
        return None;
    }
    let mut some = all.of_some(node);
    let port = ShmWindow::new(&mut some, part.memory, part.disp_unit, settings);
    free(node);
    if let Err(reason) = &port {
        log::info!("messages instead of shared memory on a node: {reason}");
    }
    port.ok().filter(|_| some.failed.is_none())
}

fn free(mut comm: MPI_Comm) {
    // SAFETY: a communicator that was made here, and that nobody uses any more.
    unsafe { PMPI_Comm_free(&raw mut comm) };
}
