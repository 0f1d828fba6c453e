//! Synchronization calls on a window: what `MPI_Win_*` and `MPIX_Win_i*` share, then the interposed
//! blocking forms, then the nonblocking ones.
//!
//! The shared functions check arguments and call the engine. A program may mix both forms in one
//! epoch [EP-2]. Nonblocking calls that open an epoch return a request that is complete [EP-1];
//! closing calls and flushes return one that completes when the blocking call would return.

use std::ffi::c_int;
use std::sync::atomic::{Ordering, fence as memory_fence};

use smallvec::SmallVec;

use crate::engine::{self, Assert, LockHeld, LockMode, Outcome, SyncCall};
use crate::mpi::abi::argument::Out;
use crate::mpi::abi::error::Fault;
use crate::mpi::abi::host_calls;
use crate::mpi::abi::sys::*;
use crate::mpi::rma::alone;
use crate::mpi::rma::args;
use crate::mpi::rma::call::{
    Checked, Done, NO_REQUEST, admit, block, deliver, deliver_complete, not_complete, require,
    wait_unless_broken, window_calls,
};
use crate::mpi::rma::fast_path;
use crate::mpi::rma::record::{nonblocking_sync, sync};
use crate::runtime::process::multiple;
use crate::runtime::progress::{oversubscribed, sweep, wait_until};
use crate::runtime::registry::is_left_to_host;
use crate::runtime::{Guard, HostHandle, Scope, Window, with_port};

/// The assertion for the engine; fails if it has bits that are not `allowed` in the call.
#[inline(always)]
fn assertion(assert: c_int, allowed: c_int) -> Checked<Assert> {
    if assert & !allowed != 0 {
        return Err(Fault::new(MPI_ERR_ASSERT, "assert has bits that this call does not take"));
    }
    Ok(Assert {
        nocheck: assert & MPI_MODE_NOCHECK != 0,
        noprecede: assert & MPI_MODE_NOPRECEDE != 0,
        nosucceed: assert & MPI_MODE_NOSUCCEED != 0,
    })
}

const OUTSIDE: &str = "rank is outside the window's group";

/// A group that the host has checked, or `MPI_GROUP_NULL`.
#[derive(Clone, Copy)]
struct Members {
    group: MPI_Group,
    size: c_int,
}

/// Has the host check a group; returns the host's error code if it is invalid. The caller must not
/// hold the guard, since the host raises the error on a handler of the application.
#[inline(always)]
fn members(group: MPI_Group) -> Result<Members, c_int> {
    let mut size = 0;
    if group == MPI_GROUP_NULL {
        return Ok(Members { group, size });
    }
    let code = host_calls::group_size(group, &mut size);
    if code == MPI_SUCCESS { Ok(Members { group, size }) } else { Err(code) }
}

/// Ranks in the window of the processes of a group.
fn ranks(window: &mut Window, Members { group, size }: Members) -> Checked<SmallVec<[u32; 16]>> {
    if group == MPI_GROUP_NULL {
        return Err(Fault::new(MPI_ERR_GROUP, "group is MPI_GROUP_NULL"));
    }
    if size == 0 {
        return Ok(SmallVec::new());
    }
    let Some(there) = host_calls::ranks_within(group, size, MPI_Group::of(window.group.0)) else {
        return Err(Fault::new(MPI_ERR_GROUP, "group cannot be compared with the window's group"));
    };
    if there.iter().any(|rank| *rank >= window.size) {
        return Err(Fault::new(MPI_ERR_GROUP, "group has a process outside the window's group"));
    }
    Ok(there)
}

/// The assertion of a post.
#[inline(always)]
fn of_post(assert: c_int) -> Checked<Assert> {
    assertion(assert, MPI_MODE_NOCHECK | MPI_MODE_NOSTORE | MPI_MODE_NOPUT)
}

/// The assertion of a fence.
#[inline(always)]
fn of_fence(assert: c_int) -> Checked<Assert> {
    let allowed = MPI_MODE_NOSTORE | MPI_MODE_NOPUT | MPI_MODE_NOPRECEDE | MPI_MODE_NOSUCCEED;
    assertion(assert, allowed)
}

/// `MPI_Win_post`.
fn post(window: &mut Window, group: Members, assert: c_int) -> Done {
    let assert = of_post(assert)?;
    let group = ranks(window, group)?;
    Ok(with_port!(&mut window.port, port => window.engine.post(port, &group, assert))?)
}

/// `MPI_Win_start`.
fn start(window: &mut Window, group: Members, assert: c_int) -> Done {
    window.close_fast_path();
    let assert = assertion(assert, MPI_MODE_NOCHECK)?;
    let group = ranks(window, group)?;
    Ok(with_port!(&mut window.port, port => window.engine.start(port, &group, assert))?)
}

/// The blocking `MPI_Win_start`. The first operations are recorded while the targets' posts are on
/// their way; see [`Window::expect_posts`].
fn start_and_expect(guard: &mut Guard, group: Members, assert: c_int) -> Done {
    let window = guard.windows.called();
    start(window, group, assert)?;
    if window.polling_pays() {
        window.expect_posts();
    }
    Ok(())
}

/// `MPI_Win_fence`.
#[inline(always)]
fn fence(window: &mut Window, assert: c_int) -> Checked<Outcome> {
    window.close_fast_path();
    let assert = of_fence(assert)?;
    Ok(with_port!(&mut window.port, port => window.engine.fence(port, assert))?)
}

/// The blocking `MPI_Win_fence`. Polls for a moment, since a fence that is complete by then needs
/// no request.
#[inline(always)]
fn fence_and_poll(window: &mut Window, assert: c_int) -> Checked<Outcome> {
    if !window.polling_pays() {
        return fence(window, assert);
    }
    window.close_fast_path();
    let assert = of_fence(assert)?;
    let mut looks = window.fence_looks.begin();
    let outcome = with_port!(&mut window.port, port => {
        window.engine.fence_patiently(port, assert, || looks.pause(POLLS_BEFORE_REQUEST))
    });
    window.fence_looks.learn(looks);
    Ok(outcome?)
}

/// Warns once per window of a lock despite `no_locks=true`. The lock works, as in both hosts.
#[inline(always)]
fn note_lock(window: &mut Window, call: &str) {
    if window.hints.no_locks && !window.warned_of_locks {
        warn_of_lock(window, call);
    }
}

#[cold]
#[inline(never)]
fn warn_of_lock(window: &mut Window, call: &str) {
    window.warned_of_locks = true;
    let handle = window.handle.0;
    log::warn!(
        "{call}: window {handle:#x} has the info key no_locks=true; it is locked all the same"
    );
}

/// Arguments of `MPI_Win_lock` for the engine. `None` for `MPI_PROC_NULL`.
#[inline(always)]
fn lock_arguments(
    window: &mut Window,
    kind: c_int,
    rank: c_int,
    assert: c_int,
) -> Checked<Option<(LockMode, u32, Assert)>> {
    let Some(mode) = args::lock_mode(kind) else {
        return Err(Fault::new(
            MPI_ERR_LOCKTYPE,
            "lock_type is neither MPI_LOCK_SHARED nor MPI_LOCK_EXCLUSIVE",
        ));
    };
    let assert = assertion(assert, MPI_MODE_NOCHECK)?;
    Ok(args::rank(window, rank, OUTSIDE)?.map(|rank| (mode, rank, assert)))
}

/// `MPI_Win_lock`, without waiting, on behalf of `call`. `None` for `MPI_PROC_NULL`.
#[inline(always)]
fn lock(
    window: &mut Window,
    call: &str,
    kind: c_int,
    rank: c_int,
    assert: c_int,
) -> Checked<Option<u32>> {
    window.close_fast_path();
    let Some((mode, rank, assert)) = lock_arguments(window, kind, rank, assert)? else {
        return Ok(None);
    };
    with_port!(&mut window.port, port => window.engine.lock(port, mode, rank, assert))?;
    note_lock(window, call);
    Ok(Some(rank))
}

/// `MPI_Win_lock_all`, without waiting, on behalf of `call`.
#[inline(always)]
fn lock_all(window: &mut Window, call: &str, assert: c_int) -> Done {
    window.close_fast_path();
    let assert = assertion(assert, MPI_MODE_NOCHECK)?;
    with_port!(&mut window.port, port => window.engine.lock_all(port, assert))?;
    note_lock(window, call);
    Ok(())
}

/// `MPI_Win_unlock`.
#[inline(always)]
fn unlock(window: &mut Window, rank: c_int) -> Checked<Outcome> {
    window.close_fast_path();
    match args::rank(window, rank, OUTSIDE)? {
        Some(rank) => Ok(with_port!(&mut window.port, port => window.engine.unlock(port, rank))?),
        None => Ok(Outcome::Complete),
    }
}

/// `MPI_Win_complete`.
#[inline(always)]
fn complete(window: &mut Window) -> Checked<Outcome> {
    window.close_fast_path();
    Ok(with_port!(&mut window.port, port => window.engine.complete(port))?)
}

/// `MPI_Win_wait`.
#[inline(always)]
fn wait(window: &mut Window) -> Checked<Outcome> {
    Ok(with_port!(&mut window.port, port => window.engine.wait(port))?)
}

/// Polls of a blocking call before it makes a request to wait for: about a microsecond.
const POLLS_BEFORE_REQUEST: u32 = 64;

/// The blocking `MPI_Win_wait`. Polls for a moment before it closes the epoch, since an epoch that
/// is complete by then needs no request.
#[inline(always)]
fn poll_and_wait(window: &mut Window) -> Checked<Outcome> {
    if window.polling_pays() {
        for _ in 0..POLLS_BEFORE_REQUEST {
            if !with_port!(&mut window.port, port => window.engine.poll_dones(port)) {
                break;
            }
            std::hint::spin_loop();
        }
    }
    wait(window)
}

/// `MPI_Win_unlock_all`.
#[inline(always)]
fn unlock_all(window: &mut Window) -> Checked<Outcome> {
    window.close_fast_path();
    Ok(with_port!(&mut window.port, port => window.engine.unlock_all(port))?)
}

/// `MPI_Win_flush` and `MPI_Win_flush_local`.
#[inline(always)]
fn flush(window: &mut Window, rank: c_int, local: bool) -> Checked<Outcome> {
    match args::rank(window, rank, OUTSIDE)? {
        Some(rank) => flush_some(window, Some(rank), local),
        None => Ok(Outcome::Complete),
    }
}

/// As [`block`], for a call that completes operations of this process. Polls for a moment until
/// they are complete, since a call that finds them complete needs no request.
#[inline(always)]
fn poll_and_block(
    mut guard: Guard,
    target: Option<u32>,
    body: impl FnOnce(&mut Window) -> Checked<Outcome>,
) -> Done {
    let window = guard.windows.called();
    if window.engine.has_operations() && window.polling_pays() {
        with_port!(&mut window.port, port => {
            window.engine.poll_operations(port, POLLS_BEFORE_REQUEST)
        });
    }
    block(guard, target, body)
}

/// `MPI_Win_flush_all` and `MPI_Win_flush_local_all`.
#[inline(always)]
fn flush_all(window: &mut Window, local: bool) -> Checked<Outcome> {
    flush_some(window, None, local)
}

#[inline(always)]
fn flush_some(window: &mut Window, rank: Option<u32>, local: bool) -> Checked<Outcome> {
    // What is complete already needs no request.
    window.take_completions(1);
    Ok(with_port!(&mut window.port, port => match local {
        true => window.engine.flush_local(port, rank)?,
        false => window.engine.flush(port, rank)?,
    }))
}

/// The target of [`block`] for a call that completes no operation of this process.
const NOWHERE: Option<u32> = Some(u32::MAX);

/// Waits until every open lock epoch holds its lock, if a blocking lock call has to [EP-10]. A call
/// with an error must not wait, so `check` looks for one first.
#[inline(always)]
fn wait_for_earlier_locks(
    mut guard: Guard,
    check: impl FnOnce(&mut Window) -> Done,
) -> Checked<Guard> {
    if engine::earlier_locks_first(multiple()) && guard.windows.awaiting_lock().is_some() {
        let window = guard.windows.called();
        window.close_fast_path();
        check(window)?;
        Ok(wait_for_locks(guard))
    } else {
        Ok(guard)
    }
}

#[inline(never)]
fn wait_for_locks(mut guard: Guard) -> Guard {
    let (called, lane) = (guard.windows.called_id(), guard.windows.called().lane());
    while let Some(id) = guard.windows.awaiting_lock() {
        guard = wait_until(guard, id, |window| !window.awaits_open_lock());
        guard.windows.call_again(called, lane);
    }
    guard
}

/// `MPI_Win_lock`. [`LockHeld::after_lock`] says whether it returns before the lock is held [EP-1].
#[inline(always)]
fn lock_and_wait(guard: Guard, kind: c_int, rank: c_int, assert: c_int) -> Done {
    let mut guard = wait_for_earlier_locks(guard, |window| {
        if let Some((_, rank, _)) = lock_arguments(window, kind, rank, assert)? {
            window.engine.may_lock(rank)?;
        }
        Ok(())
    })?;
    let window = guard.windows.called();
    if kind == MPI_LOCK_EXCLUSIVE && window.lock_spin.looks(rank as u32) && !oversubscribed() {
        let (engine, port, spin) = (&window.engine, &mut window.port, &mut window.lock_spin);
        with_port!(port, port => spin.wait(|| engine.last_in_queue(port, rank as u32)));
    }
    let Some(target) = lock(window, "MPI_Win_lock", kind, rank, assert)? else { return Ok(()) };
    if let Some(held) = LockHeld::after_lock(target, window.port.load_store(target), multiple()) {
        if !held.is_held_in(&window.engine) && window.port.is_mapped() {
            window.lock_spin.queued(target);
        }
        let id = guard.windows.called_id();
        drop(wait_unless_broken(guard, id, |window| held.is_held_in(&window.engine))?);
    }
    Ok(())
}

/// `MPI_Win_lock_all`. Returns when the locks are held, since this process is one of the targets
/// [EP-1].
#[inline(always)]
fn lock_all_and_wait(guard: Guard, assert: c_int) -> Done {
    let mut guard = wait_for_earlier_locks(guard, |window| {
        assertion(assert, MPI_MODE_NOCHECK)?;
        Ok(window.engine.may_lock_all()?)
    })?;
    lock_all(guard.windows.called(), "MPI_Win_lock_all", assert)?;
    let held = LockHeld::after_lock_all();
    let id = guard.windows.called_id();
    drop(wait_unless_broken(guard, id, |window| held.is_held_in(&window.engine))?);
    Ok(())
}

/// `MPI_Win_test` [RQ-4]. Returns true if `MPI_Win_wait` would return at once, so messages that
/// have arrived are received before it returns false.
#[inline(always)]
fn test(mut guard: Guard, flag: Out<'_, c_int>) -> Done {
    require(flag, "flag is NULL")?;
    let window = guard.windows.called();
    let mut over = with_port!(&mut window.port, port => window.engine.test(port))?;
    if !over && window.port.uses_network() {
        over = test_after_receiving(&mut guard)?;
    }
    if !over {
        let window = guard.windows.called();
        if window.port.is_broken() {
            // Closes the epoch as `MPI_Win_wait` does in a broken window.
            _ = wait(window)?;
        }
        not_complete(guard)?;
    }
    flag.write(c_int::from(over));
    Ok(())
}

/// Most polls of the network in one test, so that a peer that sends without end cannot keep it from
/// returning.
const POLLS_BEFORE_FALSE: u32 = 64;
/// Polls in a row that find nothing until a test returns false. What has arrived may take the host
/// more than one round of progress to deliver, with MPICH 5 for example.
const EMPTY_POLLS: u32 = 8;

/// `MPI_Win_test` in a window that is reached by messages or RDMA. A poll takes one message or few,
/// and this window's may be behind those of others.
#[cold]
fn test_after_receiving(guard: &mut Guard) -> Result<bool, Fault> {
    let mut empty = 0;
    for _ in 0..POLLS_BEFORE_FALSE {
        let any = guard.poll_network();
        let window = guard.windows.called();
        if with_port!(&mut window.port, port => window.engine.test(port))? {
            return Ok(true);
        }
        empty = if any { 0 } else { empty + 1 };
        if empty == EMPTY_POLLS {
            break;
        }
    }
    Ok(false)
}

/// The calls of this module, as they are recorded for a persistent epoch [PE-1].
mod recorded {
    use super::*;

    type Made = Checked<Option<SyncCall>>;

    pub(super) fn post(window: &mut Window, group: Members, assert: c_int) -> Made {
        of_post(assert)?;
        Ok(Some(SyncCall::Post(ranks(window, group)?.into_vec().into())))
    }

    pub(super) fn start(window: &mut Window, group: Members, assert: c_int) -> Made {
        assertion(assert, MPI_MODE_NOCHECK)?;
        Ok(Some(SyncCall::Start(ranks(window, group)?.into_vec().into())))
    }

    pub(super) fn fence(assert: c_int) -> Made {
        Ok(Some(SyncCall::Fence(of_fence(assert)?)))
    }

    pub(super) fn lock(window: &mut Window, kind: c_int, rank: c_int, assert: c_int) -> Made {
        let arguments = lock_arguments(window, kind, rank, assert)?;
        Ok(arguments.map(|(mode, rank, assert)| SyncCall::Lock(mode, rank, assert)))
    }

    pub(super) fn unlock(window: &mut Window, rank: c_int) -> Made {
        Ok(args::rank(window, rank, OUTSIDE)?.map(SyncCall::Unlock))
    }

    pub(super) fn lock_all(assert: c_int) -> Made {
        Ok(Some(SyncCall::LockAll(assertion(assert, MPI_MODE_NOCHECK)?)))
    }
}

/// As [`members`], unless the window is left to the host, which checks the group itself.
#[inline(always)]
fn members_unless_left(window: MPI_Win, group: MPI_Group) -> Result<Members, c_int> {
    if is_left_to_host(HostHandle(window.key())) {
        return Ok(Members { group, size: 0 });
    }
    members(group)
}

window_calls! { win;
    /// Opens an exposure epoch [EP-1].
    MPI_Win_post(group: MPI_Group, assert: c_int, win: MPI_Win) => PMPI_Win_post,
        |mut guard| post(guard.windows.called(), members, assert),
        given members = members_unless_left(win, group),
        recorded |guard, id| sync(guard, id, |window| recorded::post(window, members, assert));
    /// Opens an access epoch [EP-1].
    MPI_Win_start(group: MPI_Group, assert: c_int, win: MPI_Win) => PMPI_Win_start,
        |mut guard| start_and_expect(&mut guard, members, assert),
        given members = members_unless_left(win, group),
        recorded |guard, id| sync(guard, id, |window| recorded::start(window, members, assert));
    /// Closes the access epoch.
    MPI_Win_complete(win: MPI_Win) => PMPI_Win_complete,
        |guard| poll_and_block(guard, None, complete),
        recorded |guard, id| sync(guard, id, |_| Ok(Some(SyncCall::Complete)));
    /// Closes the exposure epoch.
    MPI_Win_wait(win: MPI_Win) => PMPI_Win_wait, |guard| block(guard, NOWHERE, poll_and_wait),
        recorded |guard, id| sync(guard, id, |_| Ok(Some(SyncCall::Wait)));
    /// Tests whether all origins have completed, and closes the exposure epoch then.
    MPI_Win_test(win: MPI_Win; flag: c_int) => PMPI_Win_test, |guard| test(guard, flag);
    /// Closes a fence epoch and opens the next.
    MPI_Win_fence(assert: c_int, win: MPI_Win) => PMPI_Win_fence,
        |guard| block(guard, None, |window| fence_and_poll(window, assert)),
        before alone::fence(assert, win),
        recorded |guard, id| sync(guard, id, |_| recorded::fence(assert));
    /// Locks a target.
    MPI_Win_lock(lock_type: c_int, rank: c_int, assert: c_int, win: MPI_Win) => PMPI_Win_lock,
        |guard| lock_and_wait(guard, lock_type, rank, assert),
        before alone::lock(lock_type, rank, assert, win),
        recorded |guard, id| sync(guard, id, |window| {
            recorded::lock(window, lock_type, rank, assert)
        });
    /// Releases the lock of a target.
    MPI_Win_unlock(rank: c_int, win: MPI_Win) => PMPI_Win_unlock,
        |guard| poll_and_block(guard, Some(rank as u32), |window| unlock(window, rank)),
        before alone::unlock(rank, win),
        recorded |guard, id| sync(guard, id, |window| recorded::unlock(window, rank));
    /// Locks all targets.
    MPI_Win_lock_all(assert: c_int, win: MPI_Win) => PMPI_Win_lock_all,
        |guard| lock_all_and_wait(guard, assert),
        before alone::lock_all(assert, win),
        recorded |guard, id| sync(guard, id, |_| recorded::lock_all(assert));
    /// Releases the locks of all targets.
    MPI_Win_unlock_all(win: MPI_Win) => PMPI_Win_unlock_all,
        |guard| poll_and_block(guard, None, unlock_all),
        before alone::unlock_all(win),
        recorded |guard, id| sync(guard, id, |_| Ok(Some(SyncCall::UnlockAll)));
    /// Completes the operations to a target, at origin and target.
    MPI_Win_flush(rank: c_int, win: MPI_Win) => PMPI_Win_flush,
        |guard| poll_and_block(guard, Some(rank as u32), |window| flush(window, rank, false)),
        unless fast_path::flush(win, rank);
    /// Completes the operations to a target at the origin.
    MPI_Win_flush_local(rank: c_int, win: MPI_Win) => PMPI_Win_flush_local,
        |guard| poll_and_block(guard, Some(rank as u32), |window| flush(window, rank, true)),
        unless fast_path::flush(win, rank);
    /// Completes all operations, at origin and targets.
    MPI_Win_flush_all(win: MPI_Win) => PMPI_Win_flush_all,
        |guard| poll_and_block(guard, None, |window| flush_all(window, false)),
        unless fast_path::flush_all(win);
    /// Completes all operations at the origin.
    MPI_Win_flush_local_all(win: MPI_Win) => PMPI_Win_flush_local_all,
        |guard| poll_and_block(guard, None, |window| flush_all(window, true));
    /// Orders this process's loads and stores of window memory against those of others.
    MPI_Win_sync(win: MPI_Win) => PMPI_Win_sync,
        |mut guard| {
            memory_fence(Ordering::SeqCst);
            // A program may poll memory with nothing but this call [PR-1].
            sweep(&mut guard);
            Ok(())
        };
}

/// A call that opens an epoch. Its request is complete.
#[inline(always)]
fn opening(
    mut guard: Guard,
    request: Out<'_, MPI_Request>,
    body: impl FnOnce(&mut Window) -> Done,
) -> Done {
    require(request, NO_REQUEST)?;
    body(guard.windows.called())?;
    drop(guard);
    deliver_complete(request)
}

/// A call that closes an epoch or flushes. With a `target`, it completes operations to it alone.
#[inline(always)]
fn closing(
    mut guard: Guard,
    request: Out<'_, MPI_Request>,
    target: Option<u32>,
    body: impl FnOnce(&mut Window) -> Checked<Outcome>,
) -> Done {
    admit(request)?;
    let window = guard.windows.called();
    let outcome = body(window)?;
    let outcome = window.poll_while_moving(outcome);
    deliver(guard, outcome, Scope::Target(target), request)
}

// Each takes the arguments of the blocking call, then `request`.
window_calls! { win;
    /// Opens an exposure epoch to the processes of `group`.
    MPIX_Win_ipost(group: MPI_Group, assert: c_int, win: MPI_Win; request: MPI_Request),
        |guard| opening(guard, request, |window| post(window, members, assert)),
        given members = members(group),
        recorded |guard, id| nonblocking_sync(guard, id, request, |window| {
            recorded::post(window, members, assert)
        });
    /// Opens an access epoch to the processes of `group`.
    MPIX_Win_istart(group: MPI_Group, assert: c_int, win: MPI_Win; request: MPI_Request),
        |guard| opening(guard, request, |window| start(window, members, assert)),
        given members = members(group),
        recorded |guard, id| nonblocking_sync(guard, id, request, |window| {
            recorded::start(window, members, assert)
        });
    /// Closes the access epoch; complete when its operations are.
    MPIX_Win_icomplete(win: MPI_Win; request: MPI_Request),
        |guard| closing(guard, request, None, complete),
        recorded |guard, id| nonblocking_sync(guard, id, request, |_| Ok(Some(SyncCall::Complete)));
    /// Closes the exposure epoch; complete when every origin has completed its access.
    MPIX_Win_iwait(win: MPI_Win; request: MPI_Request),
        |guard| closing(guard, request, NOWHERE, wait),
        recorded |guard, id| nonblocking_sync(guard, id, request, |_| Ok(Some(SyncCall::Wait)));
    /// Closes a fence epoch and opens the next; complete when the operations before it are, and all
    /// processes have called.
    MPIX_Win_ifence(assert: c_int, win: MPI_Win; request: MPI_Request),
        |guard| closing(guard, request, None, |window| fence(window, assert)),
        recorded |guard, id| nonblocking_sync(guard, id, request, |_| recorded::fence(assert));
    /// Opens a lock epoch.
    MPIX_Win_ilock(
        lock_type: c_int, rank: c_int, assert: c_int, win: MPI_Win; request: MPI_Request
    ),
        |guard| opening(guard, request, |window| {
            lock(window, "MPIX_Win_ilock", lock_type, rank, assert).map(|_| ())
        }),
        recorded |guard, id| nonblocking_sync(guard, id, request, |window| {
            recorded::lock(window, lock_type, rank, assert)
        });
    /// Closes a lock epoch; complete when its operations are, at the target too.
    MPIX_Win_iunlock(rank: c_int, win: MPI_Win; request: MPI_Request),
        |guard| closing(guard, request, Some(rank as u32), |window| unlock(window, rank)),
        recorded |guard, id| nonblocking_sync(guard, id, request, |window| {
            recorded::unlock(window, rank)
        });
    /// Opens a shared lock epoch to all processes.
    MPIX_Win_ilock_all(assert: c_int, win: MPI_Win; request: MPI_Request),
        |guard| opening(guard, request, |window| {
            lock_all(window, "MPIX_Win_ilock_all", assert)
        }),
        recorded |guard, id| nonblocking_sync(guard, id, request, |_| recorded::lock_all(assert));
    /// Closes the lock_all epoch; complete when its operations are, at their targets too.
    MPIX_Win_iunlock_all(win: MPI_Win; request: MPI_Request),
        |guard| closing(guard, request, None, unlock_all),
        recorded |guard, id| nonblocking_sync(guard, id, request, |_| {
            Ok(Some(SyncCall::UnlockAll))
        });
    /// Complete when the operations to `rank` that were called before are, there too.
    MPIX_Win_iflush(rank: c_int, win: MPI_Win; request: MPI_Request),
        |guard| closing(guard, request, Some(rank as u32), |window| {
            flush(window, rank, false)
        });
    /// Complete when the buffers of the operations to `rank` that were called before may be used
    /// again.
    MPIX_Win_iflush_local(rank: c_int, win: MPI_Win; request: MPI_Request),
        |guard| closing(guard, request, Some(rank as u32), |window| {
            flush(window, rank, true)
        });
    /// Complete when all operations that were called before are, at their targets too.
    MPIX_Win_iflush_all(win: MPI_Win; request: MPI_Request),
        |guard| closing(guard, request, None, |window| flush_all(window, false));
    /// Complete when the buffers of all operations that were called before may be used again.
    MPIX_Win_iflush_local_all(win: MPI_Win; request: MPI_Request),
        |guard| closing(guard, request, None, |window| flush_all(window, true));
}
