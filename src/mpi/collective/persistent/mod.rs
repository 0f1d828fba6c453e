//! Persistent collectives (MPI-4.1 6.13): `MPI_Barrier_init` and its kin, and their `MPIX_` names
//! for hosts that lack them [CL-4].
//!
//! - [`calls`]: the exported names.
//! - [`host_form`], [`kept`], [`at_host`]: the host's calls, and their arguments. [`checks`]: the
//!   host's checks. [`sent_apart`]: calls in place that Open MPI cannot complete.
//! - [`barrier`], [`movement`], [`divided`], [`in_place`]: schedules of this library. [`moves`]:
//!   what each call moves. [`folding`]: sums. [`windows`]: the windows that have buffers.
//! - [`over_nodes`]: schedules of several nodes.
//! - [`neighbour_calls`], [`neighbours`], [`neighbours_at_host`], [`halo`], [`mates`], [`bundles`],
//!   [`messages`]: neighbour collectives [CL-6].
//!
//! The host's own call comes first, if it has one: it checks the arguments, and the request that it
//! makes is freed. Then the processes of the communicator agree whether this library serves the
//! collective ([`serve`]). If not, each start makes the host's nonblocking call ([`at_host`]).

mod at_host;
mod barrier;
mod bundles;
mod calls;
mod checks;
mod divided;
mod folding;
mod halo;
mod host_form;
mod in_place;
mod kept;
mod mates;
mod messages;
mod movement;
mod moves;
mod neighbour_calls;
mod neighbours;
mod neighbours_at_host;
mod over_nodes;
mod sent_apart;
mod windows;

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::communicators::Carrier;
use crate::mpi::abi::argument::Out;
use crate::mpi::abi::error::{Fault, Place, raise};
use crate::mpi::abi::sys::*;
use crate::mpi::request::persistent::collective::make;
use crate::runtime::collectives::{self, PersistentCollective};
use crate::runtime::config::Collectives;
use crate::transport::shm::{Bootstrap, Scratch};

pub(super) use over_nodes::free_windows_of;
pub(crate) use over_nodes::{WindowCalls, free_windows};

/// Whether persistent collectives may be served by this library.
static OPEN: AtomicBool = AtomicBool::new(false);
/// See [`serves_always`].
static ALWAYS: AtomicBool = AtomicBool::new(false);
/// See [`attaches`].
static ATTACHES: AtomicBool = AtomicBool::new(false);

/// Lets this library serve persistent collectives. All processes of the job call it, or none.
pub(crate) fn open(setting: Collectives, attaches: bool, calls: &'static WindowCalls) {
    over_nodes::use_calls(calls);
    ATTACHES.store(attaches, Ordering::Relaxed);
    ALWAYS.store(setting == Collectives::Always, Ordering::Relaxed);
    OPEN.store(true, Ordering::Release);
}

/// Whether schedules are used that are known to be slower on some machines, too
/// (`MPIX_RMA_COLLECTIVES=always`). All processes have the same answer.
fn serves_always() -> bool {
    ALWAYS.load(Ordering::Relaxed)
}

/// Whether this process may use cross-memory attach.
fn attaches() -> bool {
    ATTACHES.load(Ordering::Relaxed)
}

/// Ends all persistent collectives. Call it before MPI is finalized.
pub(super) fn close() {
    OPEN.store(false, Ordering::Release);
    collectives::clear();
    checks::clear();
}

/// Why this library does not serve a collective, the same in all processes of the communicator.
pub(super) enum NotServed {
    /// The host serves it.
    LeftToHost(&'static str),
    /// The processes' calls do not match.
    Refused(Fault),
}

/// Serves a call that makes a persistent collective of `comm`.
///
/// `check` makes the host's call, if it has it, for its checks of the arguments ([`checks::run`]).
/// `set_up` is collective, and has the same outcome in all processes: a collective of this library,
/// or the reason why there is none. It is not called if the host refuses the arguments, for
/// intercommunicators, or if the communicator has processes of other jobs, which may have other
/// settings. Then, and if it is left to the host, each start calls what `at_host` returns.
///
/// # Safety
/// `request` is as MPI says of the call.
pub(super) unsafe fn serve(
    call: &'static str,
    comm: MPI_Comm,
    request: *mut MPI_Request,
    check: impl FnOnce(MPI_Comm, *mut MPI_Request) -> Result<c_int, c_int>,
    set_up: impl FnOnce(&mut Carrier) -> Result<Box<dyn PersistentCollective>, NotServed>,
    at_host: impl FnOnce() -> at_host::Start,
) -> c_int {
    if request.is_null() {
        let fault = Fault::new(MPI_ERR_ARG, "request is NULL");
        return raise(call, Place::World, fault);
    }
    if let Err(code) = checks::run(comm, check) {
        return code;
    }
    let mut outcome = Err(NotServed::LeftToHost(""));
    if let Some(mut carrier) = OPEN.load(Ordering::Acquire).then(|| Carrier::of(comm)).flatten() {
        outcome = set_up(&mut carrier);
        if let Err(NotServed::LeftToHost(reason)) = outcome {
            note_left(call, reason, carrier.me);
        }
    }
    if let Err(NotServed::LeftToHost(_)) = outcome {
        outcome = at_host::set_up(comm, at_host());
    }
    let none_made = Fault::new(MPI_ERR_INTERN, "the host could not make a persistent request");
    let fault = match outcome {
        // SAFETY: the application's place for a request.
        Ok(collective) => match make(comm, collective, unsafe { Out::new(request) }) {
            Some(()) => return MPI_SUCCESS,
            None => none_made,
        },
        Err(NotServed::Refused(fault)) => fault,
        Err(NotServed::LeftToHost(_)) => none_made,
    };
    raise(call, Place::Communicator(comm), fault)
}

/// Gathers some words of each process.
fn gather<const N: usize>(carrier: &mut Carrier, mine: [u64; N]) -> Vec<[u64; N]> {
    let mut all = vec![0; 8 * N * carrier.ranks as usize];
    carrier.allgather(&mine.map(u64::to_ne_bytes).concat(), &mut all);
    let (words, _) = all.as_chunks::<8>();
    let words: Vec<u64> = words.iter().map(|word| u64::from_ne_bytes(*word)).collect();
    words.as_chunks::<N>().0.to_vec()
}

/// Memory that the processes share, of zeroed words. Collective.
pub(super) fn scratch(carrier: &mut Carrier, words: usize) -> Result<Scratch, NotServed> {
    let made = Scratch::new(carrier, words);
    let made =
        made.inspect_err(|reason| log::debug!("no shared memory for a collective: {reason}"));
    made.ok()
        .filter(|_| !carrier.failed)
        .ok_or(NotServed::LeftToHost("the processes are not on one node, or share no memory"))
}

/// Logs once for each reason, in rank 0 of the communicator, that the host serves a collective.
fn note_left(call: &'static str, reason: &'static str, me: u32) {
    static NOTED: Mutex<Vec<&str>> = Mutex::new(Vec::new());
    let mut noted = NOTED.lock().unwrap_or_else(PoisonError::into_inner);
    if me == 0 && !noted.contains(&reason) {
        noted.push(reason);
        log::info!("{call}: left to the host: {reason}");
    }
}

/// A communicator ends. Its collectives go on.
pub(super) fn forget(comm: MPI_Comm) {
    collectives::forget_comm(comm.key());
    over_nodes::forget(comm);
    checks::forget(comm);
}
