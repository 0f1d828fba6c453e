//! Blocks of a neighbour collective between processes that share no memory: messages of the host,
//! from the sender's datatype to the receiver's.
//!
//! All of them begin when the collective is started, and receives have no buffer but the
//! application's. So none waits for another call of this process. They are persistent requests, on
//! a communicator of their own.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;

use super::at_host::{OwnComm, failed};
use super::kept::{Datatype, Kept};
use super::neighbours::{Block, Neighbours, sent_to};
use super::neighbours_at_host::Count;
use crate::collective::halo::Topology;
use crate::mpi::abi::error::Fault;
use crate::mpi::abi::host_calls;
use crate::mpi::abi::status::Status;
use crate::mpi::abi::sys::*;
use crate::runtime::collectives::Advance;

#[cfg(mpi_large_count)]
use PMPI_Recv_init_c as recv_init;
#[cfg(mpi_large_count)]
use PMPI_Send_init_c as send_init;

#[cfg(not(mpi_large_count))]
use PMPI_Recv_init as recv_init;
#[cfg(not(mpi_large_count))]
use PMPI_Send_init as send_init;

/// The messages of one process.
pub(super) struct Messages {
    requests: Vec<Cell<MPI_Request>>,
    /// So many of them are complete.
    complete: usize,
    /// They own the datatypes.
    datatypes: Vec<Datatype>,
    comm: OwnComm,
}

// SAFETY: handles, which any thread may pass to the host.
unsafe impl Send for Messages {}

/// The tag of a block that is sent to its `at`-th destination.
///
/// Blocks for the same process have the same tag where their order decides (MPI-4.1 8.6). In
/// Cartesian topologies their directions do.
fn tag_sent(topology: Topology, at: usize) -> c_int {
    if topology == Topology::Cartesian { at as c_int } else { 0 }
}

/// The tag of the block that arrives from the `at`-th source.
fn tag_received(topology: Topology, at: usize) -> c_int {
    tag_sent(topology, at ^ 1)
}

impl Messages {
    /// Those with all neighbours but the mates, of blocks sent and received.
    ///
    /// # Errors
    /// The host refuses one.
    pub(super) fn new(
        comm: OwnComm,
        mates: &[u32],
        neighbours: &Neighbours,
        (sent, received): (&[Block], &[Block]),
    ) -> Result<Self, Fault> {
        let mut own = Messages { requests: Vec::new(), complete: 0, datatypes: Vec::new(), comm };
        let topology = neighbours.topology;
        let is_other = |rank: &Option<u32>| rank.filter(|rank| mates.binary_search(rank).is_err());
        // In turns: the first sends should not wait until all receives have begun.
        for at in 0..neighbours.sources.len().max(neighbours.destinations.len()) {
            let source = neighbours.sources.get(at).and_then(is_other);
            if let Some((from, block)) = source.zip(received.get(at)) {
                own.add(block, from, tag_received(topology, at), false)?;
            }
            let destination = neighbours.destinations.get(at).and_then(is_other);
            if let Some((to, block)) = destination.zip(sent_to(sent, at)) {
                own.add(block, to, tag_sent(topology, at), true)?;
            }
        }
        Ok(own)
    }

    fn add(&mut self, block: &Block, peer: u32, tag: c_int, sends: bool) -> Result<(), Fault> {
        const LARGE: &str = "the host has no messages of so many items";
        let count = Count::try_from(block.count).map_err(|_| Fault::new(MPI_ERR_COUNT, LARGE))?;
        let datatype = Datatype::new(block.datatype);
        let (at, peer, comm) = (block.base, peer as c_int, self.comm.0);
        let mut request = MPI_REQUEST_NULL;
        // SAFETY: the block is the application's buffer, which belongs to the collective from each
        // start to its completion; the datatype lives as long as the request.
        let code = unsafe {
            if sends {
                let from: *const c_void = ptr::without_provenance(at);
                send_init(from, count, datatype.passed(), peer, tag, comm, &raw mut request)
            } else {
                let to = ptr::without_provenance_mut(at);
                recv_init(to, count, datatype.passed(), peer, tag, comm, &raw mut request)
            }
        };
        if code != MPI_SUCCESS {
            const REFUSED: &str = "the host cannot make the message of a block";
            return Err(Fault::new(host_calls::class_of(code), REFUSED));
        }
        self.requests.push(Cell::new(request));
        self.datatypes.push(datatype);
        Ok(())
    }

    /// Starts all.
    ///
    /// # Errors
    /// How the collective has failed.
    pub(super) fn start(&mut self) -> Result<(), Advance> {
        // One after the other: several from the same process match in this order.
        for request in &self.requests {
            let code = host_calls::start(request);
            if code != MPI_SUCCESS {
                return Err(failed(code, FAILED));
            }
        }
        self.complete = 0;
        Ok(())
    }

    /// Tests one after the other, up to the first that is not complete: each test makes progress
    /// for all.
    pub(super) fn advance(&mut self) -> Advance {
        while let Some(request) = self.requests.get(self.complete) {
            let mut flag = 0;
            let code = host_calls::test(request, &mut flag, Status::ignored());
            if code != MPI_SUCCESS {
                return failed(code, FAILED);
            }
            if flag == 0 {
                return Advance::AtHost;
            }
            self.complete += 1;
        }
        Advance::Complete
    }
}

const FAILED: &str = "a message of the collective has failed";

impl Drop for Messages {
    fn drop(&mut self) {
        // Open MPI has freed one that has failed.
        for request in self.requests.iter().filter(|request| request.get() != MPI_REQUEST_NULL) {
            host_calls::request_free(request);
        }
    }
}
