//! `MPI_Win_free`.

use std::ffi::c_int;

use super::duplicate;
use crate::mpi::abi::error::{Fault, Place, boundary, raise};
use crate::mpi::abi::host::exports;
use crate::mpi::abi::host_calls;
use crate::mpi::abi::sys::*;
use crate::mpi::progress::hook;
use crate::mpi::request;
use crate::mpi::rma::call::Done;
use crate::mpi::rma::record;
use crate::runtime::persistent::look;
use crate::runtime::progress::{note_live, nothing_lives, wait_until};
use crate::runtime::{Guard, HandleState, HostHandle, Window, WindowId, enter};
use crate::transport::Proposal;

/// Frees a window. A duplicate is freed locally; the original not before its duplicates [DU-3].
/// One of ours completes its closed epochs first. If an epoch is open in any
/// process, all processes get `MPI_ERR_RMA_SYNC`, and the window stays usable [RQ-5]. Open epochs
/// of a broken window can never be closed, so they do not keep it from being freed.
///
/// # Safety
/// As MPI says of the call.
#[inline(never)]
pub unsafe extern "C" fn MPI_Win_free(win: *mut MPI_Win) -> c_int {
    const CALL: &str = "MPI_Win_free";
    boundary(CALL, || {
        if win.is_null() {
            // SAFETY: the host checks the argument, and raises the error.
            return unsafe { PMPI_Win_free(win) };
        }
        // SAFETY: MPI requires that `win` points to a handle.
        let window = unsafe { *win };
        let handle = HostHandle(window.key());
        let mut guard = enter();
        let mut lane = 0;
        let (state, ours) = (guard.windows.state(handle), guard.windows.ours(handle));
        match ours {
            Some(id) if guard[id].recorder_here().is_some() => {
                drop(guard);
                return raise(CALL, Place::Window(window), record::not_allowed());
            }
            Some(id) => {
                lane = guard[id].lane();
                let settled = if lane == 0 {
                    settle(guard, id)
                } else {
                    let settled = duplicate::settle(&guard[id]);
                    drop(guard);
                    settled
                };
                if let Err(fault) = settled {
                    return raise(CALL, Place::Window(window), fault);
                }
            }
            None => drop(guard),
        }
        if ours.is_none() && state == Some(HandleState::Freed) {
            return raise(CALL, Place::World, Fault::new(MPI_ERR_WIN, "win has been freed"));
        }
        // SAFETY: the application's argument, passed on. Its attribute callbacks run in this call
        // and may still use the window.
        let code = unsafe { PMPI_Win_free(win) };
        match ours {
            _ if code != MPI_SUCCESS => {}
            Some(id) if lane != 0 => duplicate::discard(id, handle, lane),
            Some(id) => discard(id),
            None if state == Some(HandleState::Host) => enter().windows.remove_host(handle),
            None => {}
        }
        code
    })
}

/// Agrees that the window can be freed, and completes what is closed.
fn settle(mut guard: Guard, id: WindowId) -> Done {
    let host = guard.host;
    let ours = &mut guard[id];
    // Deliver the notifications that have arrived, so that nobody still waits for those. Requests
    // outlive the window, so those that are complete, and all of a broken window, end here.
    look(ours);
    ours.advance(&host);
    let broken = ours.port.is_broken();
    let open = ours.engine.has_open_epoch()
        || ours.engine.awaits_counters()
        || ours.engine.expectations_waiting() != 0;
    // A call that waits for a request does not keep the window from being freed, nor does any call
    // in a broken one: it ends below or by itself, and `discard` waits until it has left.
    let duplicated = ours.has_duplicates();
    let waited_for = ours.waiting != ours.request_waits;
    let objection = (waited_for || open) && !broken || duplicated;
    let proposal = match () {
        () if objection => Proposal::Objection,
        () if rests(ours) => Proposal::Ready,
        () => Proposal::Busy,
    };
    let (mut guard, decision) = agree(guard, id, proposal);
    if duplicated {
        return Err(Fault::new(
            MPI_ERR_RMA_SYNC,
            "a duplicate of this window has not been freed (MPIX_Win_dup)",
        ));
    }
    match decision {
        Proposal::Objection => {
            return Err(Fault::new(
                MPI_ERR_RMA_SYNC,
                "in some process, an epoch is open on this window, a wait for notifications is \
                 pending, or a duplicate has not been freed",
            ));
        }
        Proposal::Busy => {
            guard = wait_until(guard, id, rests);
            // Until the others are settled too, they may still need this process: on a created
            // window it copies for them.
            (guard, _) = agree(guard, id, Proposal::Ready);
        }
        Proposal::Ready | Proposal::Abandoned => {}
    }
    guard = wait_until(guard, id, |window| window.port.drain());
    // Completes the last requests for those that wait for them.
    guard[id].report(&host);
    drop(guard);
    Ok(())
}

/// True if this process's operations and epochs are complete, and nothing that it has sent is in
/// flight. A broken window may never get that far, so there the latter does not count.
fn rests(window: &mut Window) -> bool {
    window.is_settled() && (window.port.is_broken() || window.port.is_quiet())
}

/// Agrees on whether any process objects. Collective: returns after all processes have called it.
/// In a broken window there may be no agreement, which counts as an objection.
pub(crate) fn any_objection(guard: Guard, id: WindowId, objection: bool) -> (Guard, bool) {
    let (guard, decision) = agree(guard, id, Proposal::unless(objection));
    (guard, matches!(decision, Proposal::Objection | Proposal::Abandoned))
}

/// Agrees on the highest proposal. Collective.
fn agree(mut guard: Guard, id: WindowId, proposal: Proposal) -> (Guard, Proposal) {
    guard[id].port.propose(proposal);
    let mut decision = None;
    let guard = wait_until(guard, id, |window| {
        decision = window.port.decision();
        decision.is_some()
    });
    (guard, decision.unwrap_or(Proposal::Ready))
}

/// Waits until the calls of other threads that wait for a request of this window have left. All
/// requests have ended, so each call leaves at its next poll.
fn let_waiters_leave(id: WindowId) -> Guard {
    loop {
        let guard = enter();
        if guard[id].waiting == 0 {
            return guard;
        }
        drop(guard);
        std::thread::yield_now();
    }
}

/// Forgets a window of ours whose handle is gone.
fn discard(id: WindowId) {
    let mut guard = let_waiters_leave(id);
    let runtime = &mut *guard;
    runtime.persistent.forget(&mut runtime.windows, id);
    let window = runtime.windows.remove_ours(id);
    note_live(runtime);
    if runtime.windows.len() == 0 {
        hook::turn_off();
    }
    let Some(window) = window else { return };
    // Takes out two fields, so the rest of the window, which is large, is not moved.
    let Window { port, group, .. } = *window;
    if port.uses_network() {
        port.release();
        guard.network.end_unused();
        drop(guard);
    } else {
        drop(guard);
        port.release();
    }
    if nothing_lives() {
        request::free_spare_requests();
    }
    host_calls::group_free(&mut MPI_Group::of(group.0));
}

exports! { MPI_Win_free(win: *mut MPI_Win); }
