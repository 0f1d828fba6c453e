//! Requests of persistent collectives on schedules of this library [CL-4].

use std::cell::Cell;

use super::{fill, finish_one};
use crate::engine::slab::Key;
use crate::mpi::abi::argument::Out;
use crate::mpi::abi::error::Fault;
use crate::mpi::abi::host_calls;
use crate::mpi::abi::status::Status;
use crate::mpi::abi::sys::*;
use crate::mpi::progress::{drive, hook};
use crate::mpi::request;
use crate::runtime::collectives::{self, CollectiveState, PersistentCollective};
use crate::runtime::enter;
use crate::runtime::persistent::Source;
use crate::runtime::progress::{nothing_lives, oversubscribed, step};

/// Makes the request of a persistent collective of `comm`. It is inactive. `None`: the host could
/// not make its token.
pub(crate) fn make(
    comm: MPI_Comm,
    collective: Box<dyn PersistentCollective>,
    request: Out<'_, MPI_Request>,
) -> Option<()> {
    let mut made = MPI_REQUEST_NULL;
    if host_calls::null_recv_init(request::comm_or_self(), &mut made) != MPI_SUCCESS {
        return None;
    }
    let key = collectives::insert(collective, comm.key());
    enter().persistent.insert_collective(made.key(), key);
    // From now on, calls of the host advance it.
    hook::turn_on();
    request.write(made);
    Some(())
}

/// Looks before a wait makes progress of other kinds.
const QUICK_LOOKS: u32 = 64;
/// Looks of a wait before each further one runs the host's progress, too: peers may wait for the
/// host's messages.
const LOOKS_ALONE: u32 = 16;
/// Waits that end at once, between two rounds of progress [PR-1].
const BETWEEN_PROGRESS: u32 = 64;

/// Waits until a collective is complete or has failed, unless it is inactive. Returns its state.
pub(super) fn wait_for(key: Key) -> CollectiveState {
    let mut state = collectives::state(key);
    if state != CollectiveState::Active {
        count_wait();
        return state;
    }
    for _ in 0..if oversubscribed() { 1 } else { QUICK_LOOKS } {
        state = collectives::finish(key);
        if state != CollectiveState::Active {
            count_wait();
            return state;
        }
        std::hint::spin_loop();
    }
    let mut looks = 0u32;
    drive::until(|| {
        looks = looks.saturating_add(1);
        if looks > LOOKS_ALONE {
            hook::progress_host();
        }
        let state = collectives::finish(key);
        (state != CollectiveState::Active).then_some(state)
    })
}

thread_local! {
    static WAITS: Cell<u32> = const { Cell::new(0) };
}

/// A program may make no other calls than starts and waits that end at once [PR-1].
fn count_wait() {
    WAITS.set(WAITS.get().wrapping_add(1));
    if WAITS.get().is_multiple_of(BETWEEN_PROGRESS) {
        step(enter());
    }
}

/// Advances the collective of a request if it is active and sweeps do not complete it.
pub(super) fn test_at_host(request: MPI_Request) {
    let source = enter().persistent.source(request.key());
    if let Some(Source::Collective(key)) = source
        && collectives::without_guard(key)
    {
        collectives::finish(key);
    }
}

/// `MPI_Wait` for a persistent collective. `None`: it is inactive.
pub(super) fn wait(key: Key, request: MPI_Request, status: Status<'_>) -> Option<i32> {
    match wait_for(key) {
        CollectiveState::Inactive | CollectiveState::Dead => return None,
        CollectiveState::Active | CollectiveState::Failed(_) => {
            return Some(finish_one("MPI_Wait", request, status));
        }
        CollectiveState::Complete => {}
    }
    collectives::deactivate(key);
    fill(status, None);
    Some(MPI_SUCCESS)
}

/// Whether the request of a persistent collective may be freed.
pub(super) fn may_free(key: Key) -> Result<(), Fault> {
    match collectives::state(key) {
        CollectiveState::Inactive | CollectiveState::Dead => Ok(()),
        _ => Err(Fault::new(
            MPI_ERR_REQUEST,
            "the persistent collective is active; complete it first, by MPI_Wait for example",
        )),
    }
}

/// The request of a persistent collective has been freed.
pub(super) fn freed(key: Key) {
    collectives::remove(key);
    if nothing_lives() {
        hook::turn_off();
    }
}
