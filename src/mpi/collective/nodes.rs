//! Collectives of communicators whose processes are on several nodes: on the board of each node,
//! and between the nodes by a nonblocking call of the host, which the first process of each node
//! makes.
//!
//! So the host moves one message for all processes of a node, and the others need no hook to make
//! progress. Barriers, broadcasts, reductions with predefined operations, and exchanges of blocks
//! whose lengths all processes know do so while they are short; all else is the host's.

use std::ffi::c_int;

use super::communicators::{Carrier, Communicator};
use super::own_comm::OwnComm;
use super::serve::{Failed, Served, assemble};
use crate::collective::RANKS_MAX;
use crate::mpi::abi::error::Fault;
use crate::mpi::abi::host_calls;
use crate::mpi::abi::status::Status;
use crate::mpi::abi::sys::*;
use crate::mpi::progress::drive;
use crate::transport::shm::{self, Bootstrap};

/// Most bytes of a message between nodes.
pub(super) const BYTES_MAX: usize = 8 << 10;

/// The place of a process: its node, and its rank there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) node: u32,
    pub(super) rank: u32,
}

/// A communicator of several nodes.
pub(super) struct Nodes {
    /// Of the processes of this node.
    pub(super) mates: Communicator,
    /// Of the first processes of all nodes, in the order of the nodes. In others, none.
    first: OwnComm,
    me: u32,
    /// By rank.
    places: Vec<Place>,
}

/// The places of processes that are on these nodes. Nodes are numbered as they occur.
pub(super) fn places<N: PartialEq>(nodes: &[N]) -> Vec<Place> {
    // Of each node, its first process and the number of its processes.
    let mut found: Vec<(&N, u32)> = Vec::new();
    let place = |node| {
        let at = found.iter().position(|(known, _)| *known == node).unwrap_or(found.len());
        if at == found.len() {
            found.push((node, 0));
        }
        let rank = found[at].1;
        found[at].1 += 1;
        Place { node: at as u32, rank }
    };
    nodes.iter().map(place).collect()
}

impl Nodes {
    /// Makes the boards of the nodes of a communicator. Collective. `None`, in all processes: the
    /// host serves it.
    pub(super) fn set_up(carrier: &mut Carrier) -> Option<Self> {
        let node = shm::node().unwrap_or_default();
        let mut ids = vec![0; size_of_val(&node) * carrier.ranks as usize];
        carrier.allgather(&node.map(u64::to_ne_bytes).concat(), &mut ids);
        let ids = ids.as_chunks::<{ 3 * size_of::<u64>() }>().0;
        let places = places(ids);
        let most = places.iter().map(|place| place.rank + 1).max().unwrap_or(0);
        if carrier.failed || !(2..=RANKS_MAX).contains(&most) || ids.contains(&[0; _]) {
            return None;
        }
        let me = carrier.me;
        let here = places[me as usize];
        let mates = OwnComm::split(carrier.comm, here.node as c_int);
        let color = if here.rank == 0 { 0 } else { MPI_UNDEFINED };
        let first = OwnComm::split(carrier.comm, color);
        let made = mates.and_then(|mates| Ok((mates, first?)));
        let made = made.ok().and_then(|(mates, first)| {
            let ranks = places.iter().filter(|place| place.node == here.node).count();
            let mut carrier =
                Carrier { comm: mates.0, me: here.rank, ranks: ranks as u32, failed: false };
            Communicator::of_node(&mut carrier).ok().map(|mates| (mates, first))
        });
        let mut all = vec![0; carrier.ranks as usize];
        carrier.allgather(&[u8::from(made.is_some())], &mut all);
        let (mates, first) = made.filter(|_| !carrier.failed && !all.contains(&0))?;
        if me == 0 {
            let nodes = places.iter().map(|place| place.node + 1).max().unwrap_or(0);
            log::info!(
                "short collectives of a communicator of {} processes on {nodes} nodes run on \
                 schedules within each node",
                carrier.ranks
            );
        }
        Some(Nodes { mates, first, me, places })
    }

    pub(super) fn ranks(&self) -> u32 {
        self.places.len() as u32
    }

    pub(super) fn me(&self) -> u32 {
        self.me
    }

    /// The places of all processes, by rank.
    pub(super) fn places(&self) -> &[Place] {
        &self.places
    }

    /// The place of this process.
    pub(super) fn here(&self) -> Place {
        self.places[self.me as usize]
    }

    /// The place of a rank. `None`: there is no such rank.
    pub(super) fn place(&self, rank: c_int) -> Option<Place> {
        self.places.get(usize::try_from(rank).ok()?).copied()
    }

    /// In the first process of a node: has the host exchange something with other nodes. `start`
    /// makes its call.
    pub(super) fn between(
        &self,
        start: impl FnOnce(MPI_Comm, *mut MPI_Request) -> c_int,
    ) -> Result<(), Fault> {
        if self.first.0 == MPI_COMM_NULL {
            return Ok(());
        }
        const FAILED: &str = "a message between nodes has failed";
        match drive::through(|request| start(self.first.0, request), Status::ignored()) {
            MPI_SUCCESS => Ok(()),
            code => Err(Fault::new(host_calls::class_of(code), FAILED)),
        }
    }

    /// `MPI_Barrier`.
    pub(super) fn barrier(&mut self) -> Result<Served, Failed> {
        let entered = assemble(&mut self.mates);
        // SAFETY: a communicator of ours, and a place of ours.
        let all = self.between(|comm, request| unsafe { PMPI_Ibarrier(comm, request) });
        let left = assemble(&mut self.mates);
        entered.and(all).and(left)?;
        Ok(Served::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_numbered_as_they_occur() {
        let found = places(&["x", "y", "x", "z", "y"]);
        let found: Vec<_> = found.iter().map(|place| (place.node, place.rank)).collect();
        assert_eq!(found, [(0, 0), (1, 0), (0, 1), (2, 0), (1, 1)]);
    }
}
