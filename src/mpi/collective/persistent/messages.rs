//! Blocks of a neighbour collective between processes that share no memory: one message of the host
//! for all blocks from one process to another, from the sender's datatypes to the receiver's.
//!
//! All of them begin when the collective is started, and receives have no buffer but the
//! application's. So none waits for another call of this process. They are persistent requests, on
//! a communicator of their own.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;

use super::at_host::failed;
use super::bundles::{Bundle, Bundles};
use super::kept::{Datatype, Kept};
use super::neighbours::Block;
use super::neighbours_at_host::Count;
use crate::mpi::abi::error::Fault;
use crate::mpi::abi::host_calls;
use crate::mpi::abi::status::Status;
use crate::mpi::abi::sys::*;
use crate::mpi::collective::own_comm::OwnComm;
use crate::runtime::collectives::{Advance, PersistentCollective};

#[cfg(mpi_large_count)]
use PMPI_Recv_init_c as recv_init;
#[cfg(mpi_large_count)]
use PMPI_Send_init_c as send_init;
#[cfg(mpi_large_count)]
use PMPI_Type_create_struct_c as type_create_struct;

#[cfg(not(mpi_large_count))]
use PMPI_Recv_init as recv_init;
#[cfg(not(mpi_large_count))]
use PMPI_Send_init as send_init;
#[cfg(not(mpi_large_count))]
use PMPI_Type_create_struct as type_create_struct;

/// The host's type of displacements in a datatype.
#[cfg(mpi_large_count)]
type Address = MPI_Count;
#[cfg(not(mpi_large_count))]
type Address = MPI_Aint;

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

/// A tag for all: between two processes, a collective has one message in each direction.
const TAG: c_int = 0;

impl Messages {
    /// One for each bundle.
    ///
    /// # Errors
    /// The host refuses one.
    pub(super) fn new(comm: OwnComm, bundles: &Bundles<'_>) -> Result<Self, Fault> {
        let mut own = Messages { requests: Vec::new(), complete: 0, datatypes: Vec::new(), comm };
        // Receives first: data should find where they belong.
        for bundle in &bundles.received {
            own.add(bundle, false)?;
        }
        for bundle in &bundles.sent {
            own.add(bundle, true)?;
        }
        Ok(own)
    }

    fn add(&mut self, bundle: &Bundle<'_>, sends: bool) -> Result<(), Fault> {
        let data = Data::of(bundle)?;
        let (peer, comm) = (bundle.peer as c_int, self.comm.0);
        let datatype = data.datatype.passed();
        let mut request = MPI_REQUEST_NULL;
        // SAFETY: the blocks are parts of the application's buffer, which belongs to the collective
        // from each start to its completion; the datatype lives as long as the request.
        let code = unsafe {
            if sends {
                let from: *const c_void = ptr::without_provenance(data.base);
                send_init(from, data.count, datatype, peer, TAG, comm, &raw mut request)
            } else {
                let to = ptr::without_provenance_mut(data.base);
                recv_init(to, data.count, datatype, peer, TAG, comm, &raw mut request)
            }
        };
        if code != MPI_SUCCESS {
            return Err(refused(code));
        }
        self.requests.push(Cell::new(request));
        self.datatypes.push(data.datatype);
        Ok(())
    }

    /// How far they are, as far as this process has seen.
    fn state(&self) -> Advance {
        if self.complete == self.requests.len() { Advance::Complete } else { Advance::AtHost }
    }
}

impl PersistentCollective for Messages {
    fn start(&mut self) -> Advance {
        // One after the other: several from the same process match in this order.
        for request in &self.requests {
            let code = host_calls::start(request);
            if code != MPI_SUCCESS {
                return failed(code, FAILED);
            }
        }
        self.complete = 0;
        self.state()
    }

    fn advance(&mut self) -> Advance {
        self.state()
    }

    /// Tests one after the other, up to the first that is not complete: each test makes progress
    /// for all.
    fn finish(&mut self) -> Advance {
        while let Some(request) = self.requests.get(self.complete) {
            let mut flag = 0;
            let code = host_calls::test(request, &mut flag, Status::ignored());
            if code != MPI_SUCCESS {
                return failed(code, FAILED);
            }
            if flag == 0 {
                break;
            }
            self.complete += 1;
        }
        self.state()
    }

    fn without_guard(&self) -> bool {
        true
    }
}

const FAILED: &str = "a message of the collective has failed";

fn refused(code: c_int) -> Fault {
    Fault::new(host_calls::class_of(code), "the host cannot make the message of a neighbour")
}

/// What a message has, in the terms of the host.
struct Data {
    base: usize,
    count: Count,
    datatype: Datatype,
}

impl Data {
    fn of(bundle: &Bundle<'_>) -> Result<Self, Fault> {
        const LARGE: &str = "the host has no messages of so many items";
        let count = |block: &Block| {
            Count::try_from(block.count).map_err(|_| Fault::new(MPI_ERR_COUNT, LARGE))
        };
        if let [(_, block)] = bundle.blocks[..] {
            let (count, datatype) = (count(block)?, Datatype::new(block.datatype));
            return Ok(Data { base: block.base, count, datatype });
        }
        let counts = bundle.blocks.iter().map(|(_, block)| count(block));
        let counts: Vec<Count> = counts.collect::<Result<_, _>>()?;
        let addresses = bundle.blocks.iter().map(|(_, block)| block.base as Address);
        let addresses: Vec<Address> = addresses.collect();
        let types: Vec<_> = bundle.blocks.iter().map(|(_, block)| block.datatype).collect();
        let mut all = MPI_DATATYPE_NULL;
        // SAFETY: lists of this length, and a place of ours.
        let mut code = unsafe {
            type_create_struct(
                types.len() as Count,
                counts.as_ptr(),
                addresses.as_ptr(),
                types.as_ptr(),
                &raw mut all,
            )
        };
        if code == MPI_SUCCESS {
            code = host_calls::type_commit(&mut all);
        }
        if code != MPI_SUCCESS {
            return Err(refused(code));
        }
        Ok(Data { base: 0, count: 1, datatype: Datatype::made(all) })
    }
}

impl Drop for Messages {
    fn drop(&mut self) {
        // Open MPI has freed one that has failed.
        for request in self.requests.iter().filter(|request| request.get() != MPI_REQUEST_NULL) {
            host_calls::request_free(request);
        }
    }
}
