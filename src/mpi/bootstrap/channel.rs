//! Active-message channels of windows: over the context of the job where all processes of a window
//! share it, else over a context of the window's own.
//!
//! The context of the job is made by `MPI_Init` where messages may be needed. Making a communicator
//! takes hosts a few rounds of messages, between nodes longer than all else that a window needs; so
//! windows share that one. Processes of other jobs (`MPI_Comm_spawn`, `MPI_Comm_connect`) and
//! sessions do not have it: a window with them has a communicator of its own.

use std::ffi::c_int;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Mutex};

use super::Collectives;
use super::communicators::create;
use super::host_carrier::HostCarrier;
use crate::mpi::abi::sys::*;
use crate::mpi::progress::drive;
use crate::runtime::enter;
use crate::transport::am::carrier::PortNumber;
use crate::transport::am::channel::Channel;
use crate::transport::am::context::{Context, SharedContext, lock};
use crate::transport::am::window_channel::{PeerAddress, WindowChannel};

/// The name of a context that only the processes of one window have.
const OWN: u64 = 1;

/// What a process says of its port before a window is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PortCard {
    /// Name of the job's context; 0 without one.
    context: u64,
    address: PeerAddress,
}

/// Bytes of it.
pub(crate) const PORT_CARD: usize = 24;

impl PortCard {
    pub(crate) fn encode(self, bytes: &mut [u8]) {
        bytes[..8].copy_from_slice(&self.context.to_ne_bytes());
        bytes[8..16].copy_from_slice(&self.address.port.to_ne_bytes());
        bytes[16..20].copy_from_slice(&self.address.process.to_ne_bytes());
    }

    pub(crate) fn decode(bytes: &[u8]) -> Self {
        let word =
            |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let process = u32::from_ne_bytes(bytes[16..20].try_into().expect("four bytes"));
        PortCard { context: word(0), address: PeerAddress { process, port: word(8) } }
    }
}

/// Whether the processes share a context.
fn share_context(mut cards: impl Iterator<Item = PortCard>) -> bool {
    let Some(first) = cards.next() else { return false };
    first.context != 0 && cards.all(|card| card.context == first.context)
}

/// A port in the job's context for a window that may be made.
#[derive(Debug)]
pub(crate) struct ReservedPort {
    context: SharedContext,
    port: PortNumber,
}

impl ReservedPort {
    /// Reserves one, if there is a context.
    pub(crate) fn reserve() -> Option<Self> {
        let guard = enter();
        let context = Arc::clone(guard.network.job()?);
        let port = lock(&context).open();
        Some(ReservedPort { context, port })
    }

    /// What this process says of it.
    pub(crate) fn card(reserved: Option<&Self>) -> PortCard {
        let Some(ReservedPort { context, port }) = reserved else { return PortCard::default() };
        let context = lock(context);
        let address = PeerAddress { process: context.process(), port: *port };
        PortCard { context: context.name(), address }
    }
}

impl Drop for ReservedPort {
    fn drop(&mut self) {
        let _guard = enter();
        lock(&self.context).close(self.port);
    }
}

/// Makes the context of the job. Collective over `MPI_COMM_WORLD`.
pub(crate) fn open_job() {
    let comm = match create(MPI_COMM_WORLD) {
        Ok(comm) => comm,
        Err(code) => {
            return log::warn!(
                "the host cannot make a communicator (error {code}); each window makes its own"
            );
        }
    };
    let mut name = RandomState::new().build_hasher().finish() | 2;
    // SAFETY: the communicator was just made, and all of its processes come here.
    unsafe { PMPI_Bcast((&raw mut name).cast(), size_of::<u64>() as c_int, MPI_BYTE, 0, comm) };
    enter().network.set_job(context_over(comm, name));
}

/// A context over a communicator that only this library sends on.
fn context_over(comm: MPI_Comm, name: u64) -> SharedContext {
    let mut process = 0;
    // SAFETY: the communicator is live.
    unsafe { PMPI_Comm_rank(comm, &raw mut process) };
    let carrier = Box::new(HostCarrier::new(comm));
    Arc::new(Mutex::new(Context::new(carrier, name, process as u32)))
}

/// The channel of a window of the processes of `all`, which have these `cards`; this one has
/// `reserved` its port. Collective where they do not share a context.
///
/// # Errors
/// The host's error code.
pub(crate) fn open<I: ExactSizeIterator<Item = PortCard>>(
    all: &Collectives,
    reserved: Option<ReservedPort>,
    cards: impl Fn() -> I,
) -> Result<WindowChannel, c_int> {
    if share_context(cards())
        && let Some(reserved) = reserved
    {
        let (context, port) = (Arc::clone(&reserved.context), reserved.port);
        log::debug!("the window's messages go through the context of the job");
        // The channel closes it.
        std::mem::forget(reserved);
        let addresses = cards().map(|card| card.address);
        return Ok(WindowChannel::new(context, port, all.rank, addresses));
    }
    drop(reserved);
    if !all.may_block() {
        // SAFETY: the communicator is live, and all of its processes come here.
        unsafe { drive::assemble(all.comm) }?;
    }
    let context = context_over(create(all.comm)?, OWN);
    let mut guard = enter();
    guard.network.add(Arc::clone(&context));
    // The first port of a context has the same number everywhere.
    let port = lock(&context).open();
    let addresses = (0..all.size).map(|process| PeerAddress { process, port });
    Ok(WindowChannel::new(context, port, all.rank, addresses))
}

/// Gives up a channel that no window uses.
pub(crate) fn give_up(mut channel: WindowChannel) {
    let mut guard = enter();
    channel.release();
    drop(channel);
    guard.network.end_unused();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(context: u64) -> PortCard {
        let card = PortCard { context, address: PeerAddress { process: 3, port: 1 << 33 } };
        let mut bytes = [0; PORT_CARD];
        card.encode(&mut bytes);
        assert_eq!(PortCard::decode(&bytes), card);
        card
    }

    #[test]
    fn a_context_is_shared_if_all_processes_have_it() {
        let share = |contexts: &[u64]| share_context(contexts.iter().copied().map(card));
        assert!(share(&[5, 5, 5]));
        assert!(!share(&[5, 7, 5]), "of two jobs");
        assert!(!share(&[5, 0]), "one without");
        assert!(!share(&[0, 0]), "sessions");
        assert!(!share(&[]));
    }
}
