//! Collectives of communicators whose processes are on several nodes: on the board of each node,
//! and between the nodes by a nonblocking call of the host, which the first process of each node
//! makes.
//!
//! So the host moves one message for all processes of a node, and the others need no hook to make
//! progress. Barriers, broadcasts, reductions with predefined operations, and exchanges of blocks
//! do so while they are short; all else is the host's.

use std::cell::Cell;
use std::ffi::c_int;

use smallvec::SmallVec;

use super::communicators::{Carrier, Communicator};
use super::own_comm::OwnComm;
use super::serve::{Failed, Served, assemble};
use super::varying::Trials;
use crate::collective::RANKS_MAX;
use crate::mpi::abi::error::Fault;
use crate::mpi::abi::host_calls;
use crate::mpi::abi::status::Status;
use crate::mpi::abi::sys::*;
use crate::mpi::progress::drive;
use crate::transport::shm::{self, Bootstrap};

/// Most bytes of a message between nodes.
pub(super) const BYTES_MAX: usize = 8 << 10;

/// A message from the first process of a node to that of another one.
pub(super) struct Message(Vec<u8>);

impl Message {
    /// Bytes before the data: the kind, the note, and the length of the data.
    const HEAD: usize = 8;
    /// The tag of all messages.
    const TAG: c_int = 0;

    /// A message of at most [`BYTES_MAX`] bytes of data. The receiver compares its `kind`.
    pub(super) fn new(kind: u8, note: u8, data: &[u8]) -> Self {
        assert!(data.len() <= BYTES_MAX);
        let mut bytes = Vec::with_capacity(Self::HEAD + data.len());
        bytes.extend_from_slice(&[kind, note, 0, 0]);
        bytes.extend_from_slice(&(data.len() as u32).to_ne_bytes());
        bytes.extend_from_slice(data);
        Message(bytes)
    }

    fn room() -> Self {
        Message(vec![0; Self::HEAD + BYTES_MAX])
    }

    pub(super) fn kind(&self) -> u8 {
        self.0[0]
    }

    pub(super) fn note(&self) -> u8 {
        self.0[1]
    }

    pub(super) fn data(&self) -> &[u8] {
        let length = [self.0[4], self.0[5], self.0[6], self.0[7]];
        &self.0[Self::HEAD..][..u32::from_ne_bytes(length) as usize]
    }
}

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
    /// Number of nodes.
    nodes: u32,
    /// Of collectives with blocks of different lengths, by kind.
    pub(super) trials: [Trials; 3],
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
        let nodes = places.iter().map(|place| place.node + 1).max().unwrap_or(0);
        if me == 0 {
            log::info!(
                "short collectives of a communicator of {} processes on {nodes} nodes run on \
                 schedules within each node",
                carrier.ranks
            );
        }
        Some(Nodes { mates, first, me, places, nodes, trials: Default::default() })
    }

    pub(super) fn ranks(&self) -> u32 {
        self.places.len() as u32
    }

    pub(super) fn me(&self) -> u32 {
        self.me
    }

    /// Number of nodes.
    pub(super) fn nodes(&self) -> u32 {
        self.nodes
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
        outcome(drive::through(|request| start(self.first.0, request), Status::ignored()))
    }

    /// In the first process of a node: sends messages, each with its node, and receives one from
    /// each node of `from`, in this order.
    pub(super) fn messages(
        &self,
        sent: &[(u32, Message)],
        from: &[u32],
    ) -> Result<Vec<Message>, Fault> {
        let mut received: Vec<Message> = from.iter().map(|_| Message::room()).collect();
        let mut requests: SmallVec<[Cell<MPI_Request>; 8]> = SmallVec::new();
        let mut code = MPI_SUCCESS;
        let mut start = |started: &dyn Fn(*mut MPI_Request) -> c_int| {
            let request = Cell::new(MPI_REQUEST_NULL);
            let started = started(request.as_ptr());
            requests.push(request);
            code = if code == MPI_SUCCESS { started } else { code };
        };
        let (comm, tag) = (self.first.0, Message::TAG);
        for (node, message) in from.iter().zip(&mut received) {
            let (at, room) = (message.0.as_mut_ptr().cast(), message.0.len() as c_int);
            // SAFETY: the room is the host's until the request is complete, for which this function
            // waits.
            start(&|request| unsafe {
                PMPI_Irecv(at, room, MPI_BYTE, *node as c_int, tag, comm, request)
            });
        }
        for (node, message) in sent {
            let (at, bytes) = (message.0.as_ptr().cast(), message.0.len() as c_int);
            // SAFETY: likewise for the data.
            start(&|request| unsafe {
                PMPI_Isend(at, bytes, MPI_BYTE, *node as c_int, tag, comm, request)
            });
        }
        for request in &requests {
            let waited = drive::wait_for(request, Status::ignored());
            code = if code == MPI_SUCCESS { waited } else { code };
        }
        outcome(code).map(|()| received)
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

/// The outcome of a call of the host between nodes.
fn outcome(code: c_int) -> Result<(), Fault> {
    const FAILED: &str = "a message between nodes has failed";
    match code {
        MPI_SUCCESS => Ok(()),
        code => Err(Fault::new(host_calls::class_of(code), FAILED)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_were_made() {
        let (mut arrived, sent) = (Message::room(), Message::new(7, 2, &[1, 2, 3]));
        arrived.0[..sent.0.len()].copy_from_slice(&sent.0);
        assert_eq!((arrived.kind(), arrived.note(), arrived.data()), (7, 2, &[1, 2, 3][..]));
    }

    #[test]
    fn nodes_are_numbered_as_they_occur() {
        let found = places(&["x", "y", "x", "z", "y"]);
        let found: Vec<_> = found.iter().map(|place| (place.node, place.rank)).collect();
        assert_eq!(found, [(0, 0), (1, 0), (0, 1), (2, 0), (1, 1)]);
    }
}
