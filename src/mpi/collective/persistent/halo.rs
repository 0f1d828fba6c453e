//! Persistent neighbour collectives, on the nodes that the processes are on [CL-6].
//!
//! Neighbours on the same node read each other's buffers in place ([`mates`](super::mates)). Blocks
//! between nodes are [messages](super::messages) of the host. Both begin when the collective is
//! started. Then sweeps see to the former, and the host to the latter, whatever call this process
//! makes next.

use super::at_host::refused;
use super::mates::{Preparation, Shared};
use super::messages::Messages;
use super::neighbours::{Block, Both, Neighbours};
use super::{NotServed, gather};
use crate::mpi::abi::error::Fault;
use crate::mpi::abi::sys::*;
use crate::mpi::collective::communicators::Carrier;
use crate::mpi::collective::own_comm::OwnComm;
use crate::runtime::collectives::{Advance, PersistentCollective};
use crate::runtime::enter;
use crate::transport::shm;

/// A neighbour collective of several nodes.
struct Halo {
    /// `None`: this process shares memory with no other.
    shared: Option<Shared>,
    messages: Messages,
}

impl Halo {
    /// Does what sweeps may do.
    fn advance_shared(&mut self) -> Advance {
        self.shared.as_mut().map_or(Advance::Complete, Shared::advance)
    }
}

impl PersistentCollective for Halo {
    fn start(&mut self) -> Advance {
        if let Err(failed) = self.messages.start() {
            return failed;
        }
        match self.shared.as_mut().map_or(Advance::Complete, Shared::start) {
            Advance::Complete => self.messages.advance(),
            incomplete => incomplete,
        }
    }

    fn advance(&mut self) -> Advance {
        match self.advance_shared() {
            Advance::Complete => Advance::AtHost,
            incomplete => incomplete,
        }
    }

    fn finish(&mut self) -> Advance {
        match (self.messages.advance(), self.advance_shared()) {
            (failed @ Advance::Failed(_), _) => failed,
            (messages, Advance::Complete) => messages,
            (_, incomplete) => incomplete,
        }
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
    let messages = || Messages::new(own, reached, &neighbours, (&sent, &received));
    let (shared, messages) = connect(carrier, prepared, &received, messages)?;
    Ok(Box::new(Halo { shared, messages }))
}

/// Ends the set-up: among mates, if it is `prepared`, and with others by `messages`. Collective.
fn connect<M>(
    carrier: &mut Carrier,
    mut prepared: Option<Preparation<'_>>,
    received: &[Block],
    messages: impl FnOnce() -> Result<M, Fault>,
) -> Result<(Option<Shared>, M), NotServed> {
    // Orders the descriptions before their readers.
    agree(carrier, None)?;
    let reads = prepared.as_mut().map(|mates| mates.reads(received)).transpose();
    let connected = reads.and_then(|reads| Ok((reads, messages()?)));
    // Orders the choices of the readers before their senders.
    let (reads, messages) = agree_on(carrier, connected)?;
    let shared = prepared.zip(reads).map(|(mates, reads)| mates.finish(reads)).transpose();
    // The readers' places were looked up; no process goes on before all have.
    Ok((agree_on(carrier, shared)?, messages))
}
