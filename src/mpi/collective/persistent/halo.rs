//! Persistent neighbour collectives, on the nodes that the processes are on [CL-6].
//!
//! Neighbours on the same node read each other's buffers in place ([`mates`](super::mates)). Blocks
//! between nodes are [messages](super::messages) of the host or, on request, messages between nodes
//! that are [put with a notification](super::over_nodes). Both begin when the collective is
//! started. Then sweeps see to it, and the host to its messages, whatever call this process makes
//! next.

use super::at_host::refused;
use super::bundles::Bundles;
use super::mates::{Preparation, Shared};
use super::messages::Messages;
use super::neighbours::{Block, Both, Neighbours};
use super::{NotServed, gather, note_left, over_nodes, serves_always};
use crate::mpi::abi::error::Fault;
use crate::mpi::abi::sys::*;
use crate::mpi::collective::communicators::Carrier;
use crate::mpi::collective::own_comm::OwnComm;
use crate::runtime::collectives::{Advance, PersistentCollective};
use crate::runtime::enter;
use crate::runtime::registry::Registry;
use crate::transport::shm;

/// A part of a neighbour collective.
struct Part {
    collective: Box<dyn PersistentCollective>,
    complete: bool,
}

/// A neighbour collective of several nodes: what this process exchanges with those of other nodes,
/// and with its mates, unless it shares memory with none.
struct Halo(Vec<Part>);

impl Halo {
    fn new(far: Box<dyn PersistentCollective>, near: Option<Shared>) -> Self {
        let near = near.map(|near| Box::new(near) as Box<dyn PersistentCollective>);
        let part = |collective| Part { collective, complete: false };
        Halo([far].into_iter().chain(near).map(part).collect())
    }

    /// Has each part that is not complete take a step, up to one that fails.
    fn each(&mut self, mut step: impl FnMut(&mut dyn PersistentCollective) -> Advance) -> Advance {
        let mut all = Advance::Complete;
        for part in self.0.iter_mut().filter(|part| !part.complete) {
            let now = step(&mut *part.collective);
            part.complete = now == Advance::Complete;
            all = match (all, now) {
                (_, Advance::Failed(_)) => return now,
                (Advance::Pending { moved }, Advance::Pending { moved: also }) => {
                    Advance::Pending { moved: moved || also }
                }
                (Advance::Pending { .. }, _) => all,
                (_, Advance::Complete) => all,
                _ => now,
            };
        }
        all
    }
}

impl PersistentCollective for Halo {
    fn start(&mut self) -> Advance {
        self.0.iter_mut().for_each(|part| part.complete = false);
        self.each(|part| part.start())
    }

    fn advance(&mut self) -> Advance {
        self.each(|part| part.advance())
    }

    fn sweep(&mut self, windows: &mut Registry) -> Advance {
        self.each(|part| part.sweep(windows))
    }

    fn finish(&mut self) -> Advance {
        self.each(|part| part.finish())
    }

    fn without_guard(&self) -> bool {
        true
    }
}

/// Has all processes agree on the first fault. `None` in all: there is none.
fn agree(carrier: &mut Carrier, fault: Option<Fault>) -> Result<(), NotServed> {
    let mine = fault.map_or(0, |fault| fault.class as u64);
    let classes = gather(carrier, [mine]);
    refuse(fault, classes.iter().map(|[class]| *class))
}

/// The outcome of a process whose own fault is `fault`, if these are the classes of all. 0: none.
fn refuse(fault: Option<Fault>, mut classes: impl Iterator<Item = u64>) -> Result<(), NotServed> {
    let Some(class) = classes.find(|class| *class != 0) else { return Ok(()) };
    const OTHERS: &str = "another process has called with wrong arguments, or with blocks that \
                          match no other's";
    Err(NotServed::Refused(fault.unwrap_or_else(|| Fault::new(class as i32, OTHERS))))
}

/// Has all processes agree, and returns what succeeded here.
fn agree_on<T>(carrier: &mut Carrier, mine: Result<T, Fault>) -> Result<T, NotServed> {
    agree(carrier, mine.as_ref().err().copied())?;
    mine.map_err(NotServed::Refused)
}

/// Sets up a neighbour collective of `comm`. Collective. `blocks` gives what this process sends to
/// and receives from its neighbours.
pub(super) fn set_up(
    carrier: &mut Carrier,
    comm: MPI_Comm,
    blocks: impl FnOnce(&Neighbours) -> Both,
) -> Result<Box<dyn PersistentCollective>, NotServed> {
    let me = carrier.me;
    let Some(neighbours) = Neighbours::of(comm, me as i32) else {
        return Err(NotServed::LeftToHost("the communicator has no topology"));
    };
    let made = {
        // Layouts of datatypes are cached under the guard.
        let _guard = enter();
        blocks(&neighbours)
    };
    let fault = made.as_ref().err().copied();
    let [first, second, third] = shm::node().unwrap_or_default();
    let class = fault.map_or(0, |fault| fault.class as u64);
    let all = gather(carrier, [class, first, second, third]);
    refuse(fault, all.iter().map(|[class, ..]| *class))?;
    let (sent, received) = made.map_err(NotServed::Refused)?;

    let node_of = |rank: u32| &all[rank as usize][1..];
    let is_known = [first, second, third] != [0; 3];
    let is_mate = |rank: &u32| *rank == me || (is_known && node_of(*rank) == node_of(me));
    let mates: Vec<u32> = (0..carrier.ranks).filter(is_mate).collect();
    if mates.len() == carrier.ranks as usize {
        let prepared = Preparation::new(carrier, (me, &mates), &neighbours, &sent)?;
        let (shared, _) = connect(carrier, Some(prepared), &received, || Ok(()))?;
        return Ok(Box::new(shared.expect("it was prepared")));
    }
    let part = OwnComm::split(comm, mates[0] as i32).map_err(refused)?;
    let own = OwnComm::duplicate(comm).map_err(refused)?;
    let mut node = Carrier {
        comm: part.0,
        me: mates.partition_point(|mate| *mate < me) as u32,
        ranks: mates.len() as u32,
        failed: false,
    };
    let prepared = Preparation::new(&mut node, (me, &mates), &neighbours, &sent).ok();
    let reached = if prepared.is_some() { &mates[..] } else { &[] };
    let bundles = Bundles::new(reached, &neighbours, (&sent, &received));
    let ids: Vec<_> = all.iter().map(|[_, node @ ..]| *node).collect();
    let puts = by_puts(carrier, &ids, prepared.is_some().then_some(&bundles))?;
    let far = || match puts {
        Some(puts) => Ok(puts),
        None => Ok(Box::new(Messages::new(own, &bundles)?) as Box<dyn PersistentCollective>),
    };
    let (shared, far) = connect(carrier, prepared, &received, far)?;
    Ok(Box::new(Halo::new(far, shared)))
}

/// What processes of different nodes exchange, by puts between the nodes, if that is requested.
/// Collective. `None`, in all processes: by messages of the host. `bundles` is `None` if this
/// process shares no memory with its mates.
fn by_puts(
    carrier: &mut Carrier,
    ids: &[over_nodes::Node],
    bundles: Option<&Bundles<'_>>,
) -> Result<Option<Box<dyn PersistentCollective>>, NotServed> {
    let Some(order) = serves_always().then(|| over_nodes::order(ids)).flatten() else {
        return Ok(None);
    };
    match over_nodes::set_up_halo(carrier, order, bundles) {
        Ok(puts) => Ok(Some(puts)),
        Err(NotServed::LeftToHost(reason)) => {
            note_left("a neighbour collective, between nodes", reason, carrier.me);
            Ok(None)
        }
        Err(refused) => Err(refused),
    }
}

/// Ends the set-up: among mates, if it is `prepared`, and with others by `far`. Collective.
fn connect<F>(
    carrier: &mut Carrier,
    mut prepared: Option<Preparation<'_>>,
    received: &[Block],
    far: impl FnOnce() -> Result<F, Fault>,
) -> Result<(Option<Shared>, F), NotServed> {
    // Orders the descriptions before their readers.
    agree(carrier, None)?;
    let reads = prepared.as_mut().map(|mates| mates.reads(received)).transpose();
    let connected = reads.and_then(|reads| Ok((reads, far()?)));
    // Orders the choices of the readers before their senders.
    let (reads, far) = agree_on(carrier, connected)?;
    let shared = prepared.zip(reads).map(|(mates, reads)| mates.finish(reads)).transpose();
    // The readers' places were looked up; no process goes on before all have.
    Ok((agree_on(carrier, shared)?, far))
}
