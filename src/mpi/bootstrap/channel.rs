//! Active-message channels of windows. A window whose processes all share the job's context uses
//! that one; any other window makes a context of its own.
//!
//! `MPI_Init` makes the job's context if windows may need messages. A context needs a communicator,
//! which takes hosts a few rounds of messages to make. Between nodes that takes longer than all
//! other steps of making a window, so windows share the job's. Processes of other jobs
//! (`MPI_Comm_spawn`, `MPI_Comm_connect`) and sessions do not have the job's context.

use std::ffi::c_int;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use super::communicators::create;
use super::exchange::Exchange;
use super::host_carrier::HostCarrier;
use crate::mpi::abi::host_calls;
use crate::mpi::abi::sys::*;
use crate::mpi::progress::drive;
use crate::runtime::bootstrap::PortCard;
use crate::runtime::enter;
use crate::runtime::process::guard_flag;
use crate::transport::am::context::{Context, SharedContext};
use crate::transport::am::window_channel::{PeerAddress, WindowChannel};
use crate::transport::guarded::Guarded;
use crate::transport::shm::Bootstrap;

/// The name of each context that serves one window only.
const OWN: u64 = 1;

/// A port in the job's context, for a window that may still fail or be left to the host.
#[derive(Debug)]
pub(crate) struct ReservedPort {
    context: SharedContext,
    /// What this process publishes of the port.
    pub(super) card: PortCard,
    /// A channel has taken the port over, and closes it.
    is_claimed: bool,
}

impl ReservedPort {
    /// Reserves a port. `None`: this process has no context of the job.
    pub(crate) fn reserve() -> Option<Self> {
        let guard = enter();
        let context = Arc::clone(guard.network.job()?);
        let card = {
            let mut context = context.borrow();
            let address = PeerAddress { process: context.process(), port: context.open() };
            PortCard { context: context.name(), address }
        };
        Some(ReservedPort { context, card, is_claimed: false })
    }
}

impl Drop for ReservedPort {
    fn drop(&mut self) {
        if !self.is_claimed {
            let _guard = enter();
            self.context.borrow().close(self.card.address.port);
        }
    }
}

/// Makes the job's context. Collective over `MPI_COMM_WORLD`.
pub(crate) fn open_job() {
    let comm = match create(MPI_COMM_WORLD) {
        Ok(comm) => comm,
        Err(code) => {
            return log::warn!(
                "the host cannot make a communicator (error {code}); each window makes its own"
            );
        }
    };
    // A random name, distinct from `OWN` and from 0, which stands for no context.
    let mut name = RandomState::new().build_hasher().finish() | 2;
    // SAFETY: the communicator was just made, and all of its processes come here.
    unsafe { PMPI_Bcast((&raw mut name).cast(), size_of::<u64>() as c_int, MPI_BYTE, 0, comm) };
    enter().network.set_job(context_over(comm, name));
}

/// Makes a context over a private communicator.
fn context_over(comm: MPI_Comm, name: u64) -> SharedContext {
    let mut process = 0;
    host_calls::comm_rank(comm, &mut process);
    let carrier = Box::new(HostCarrier::new(comm));
    // SAFETY: contexts are used under the runtime's guard only.
    Arc::new(unsafe { Guarded::new(Context::new(carrier, name, process as u32), guard_flag()) })
}

/// Opens the channel of a new window. Collective if its processes do not share a context.
///
/// # Errors
/// The host's error code.
pub(super) fn open(exchange: &mut Exchange) -> Result<WindowChannel, c_int> {
    let (me, size) = (exchange.rank(), exchange.size());
    let reserved = exchange.port.take();
    let ports = || exchange.setup.cards().iter().map(|card| card.port);
    if PortCard::share_context(ports())
        && let Some(mut reserved) = reserved
    {
        log::debug!("the window's messages go through the context of the job");
        reserved.is_claimed = true;
        let (context, port) = (Arc::clone(&reserved.context), reserved.card.address.port);
        let addresses = ports().map(|port| port.address);
        // Contexts are used under the guard only.
        let _guard = enter();
        return Ok(WindowChannel::new(context, port, me, addresses));
    }
    drop(reserved);
    let comm = exchange.comm;
    if !exchange.may_block() {
        drive::assemble(comm)?;
    }
    let context = context_over(create(comm)?, OWN);
    let mut guard = enter();
    guard.network.add(Arc::clone(&context));
    // The first port of a context has the same number in every process.
    let port = context.borrow().open();
    let addresses = (0..size).map(|process| PeerAddress { process, port });
    Ok(WindowChannel::new(context, port, me, addresses))
}

/// Closes a channel whose window was not made.
pub(crate) fn give_up(mut channel: WindowChannel) {
    let mut guard = enter();
    channel.release();
    drop(channel);
    guard.network.end_unused();
}
