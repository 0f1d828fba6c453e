//! Calls that the standard forbids return the right error and change nothing.

use mpix_rma::engine::*;

use crate::world::*;

const NONE: Assert = Assert { nocheck: false, noprecede: false, nosucceed: false };

/// The state that a refused call must not change: calls of the transport and queries of the window.
fn snapshot(w: &World, me: Rank) -> impl PartialEq + std::fmt::Debug + use<> {
    let window = w.window(me);
    let held: Vec<bool> = (0..w.size())
        .map(|target| window.holds_lock(target))
        .chain([window.holds_lock_all()])
        .collect();
    let asked = (w.net.calls[me as usize].post, w.net.lock_writes.len(), w.net.signals.len());
    (
        window.requests_alive(),
        window.is_quiet(),
        window.has_open_epoch(),
        window.epochs_pending(),
        held,
        asked,
    )
}

/// Calls that may be refused.
#[derive(Clone, Copy, Debug)]
enum Call {
    Post,
    Start,
    Lock(Rank),
    LockAll,
    Wait,
    Test,
    Complete,
    Fence,
    Unlock(Rank),
    UnlockAll,
    Flush(Option<Rank>),
    FlushLocal(Option<Rank>),
    Put(Rank),
    RequestPut(Rank),
}

/// Rank 0 makes a call that must fail with one of these errors and change nothing.
fn refuse_any(w: &mut World, call: Call, errors: &[SyncError]) {
    w.drive();
    let before = snapshot(w, 0);
    let op = w.put_op(
        0,
        if let Call::Put(target) | Call::RequestPut(target) = call { target } else { 0 },
        0,
        &[1],
    );
    if let Call::Put(target) | Call::RequestPut(target) = call {
        assert!(!w.window(0).covers(target), "{call:?}");
    }
    let result = w.raw(0, |win, p| match call {
        Call::Post => win.post(p, &[1], NONE),
        Call::Start => win.start(p, &[1], NONE),
        Call::Lock(target) => win.lock(p, LockMode::Shared, target, NONE),
        Call::LockAll => win.lock_all(p, NONE),
        Call::Wait => win.wait(p).map(drop),
        Call::Test => win.test(p).map(drop),
        Call::Complete => win.complete(p).map(drop),
        Call::Fence => win.fence(p, NONE).map(drop),
        Call::Unlock(target) => win.unlock(p, target).map(drop),
        Call::UnlockAll => win.unlock_all(p).map(drop),
        Call::Flush(target) => win.flush(p, target).map(drop),
        Call::FlushLocal(target) => win.flush_local(p, target).map(drop),
        Call::Put(_) => win.issue(p, &op),
        Call::RequestPut(_) => win.issue_request(p, &op).map(drop),
    });
    let error = result.expect_err(&format!("{call:?} must fail"));
    assert!(errors.contains(&error), "{call:?}: {error:?}, expected {errors:?}");
    w.drive();
    assert_eq!(snapshot(w, 0), before, "{call:?} changed something");
}

fn refuse(w: &mut World, call: Call, error: SyncError) {
    refuse_any(w, call, &[error]);
}

/// Communication, closing calls and flushes in a window without an open epoch.
#[test]
fn calls_that_need_an_open_epoch_are_refused_without_one() {
    let mut w = World::new(3);
    for round in 0..2 {
        refuse(&mut w, Call::Put(1), SyncError::NoAccessEpoch);
        refuse(&mut w, Call::RequestPut(1), SyncError::NoAccessEpoch);
        refuse(&mut w, Call::Complete, SyncError::NotStarted);
        refuse(&mut w, Call::Wait, SyncError::NotPosted);
        refuse(&mut w, Call::Test, SyncError::NotPosted);
        refuse(&mut w, Call::Unlock(1), SyncError::NotLocked);
        refuse(&mut w, Call::UnlockAll, SyncError::NotLocked);
        for target in [None, Some(1)] {
            refuse(&mut w, Call::Flush(target), SyncError::NoPassiveEpoch);
            refuse(&mut w, Call::FlushLocal(target), SyncError::NoPassiveEpoch);
        }
        // Repeat after a legal use of the window.
        if round == 0 {
            w.rank(0).exclusive(1);
            w.put(0, 1, 0, &[5]);
            w.rank(0).unlock(1);
            w.drive();
        }
    }
    w.finish();
    assert_eq!(w.mem(1, 0, 1), [5]);
}

#[test]
fn calls_are_refused_in_an_access_epoch() {
    let mut w = World::new(3);
    w.rank(0).start(&[1]);
    refuse(&mut w, Call::Put(2), SyncError::NoAccessEpoch);
    refuse(&mut w, Call::RequestPut(0), SyncError::NoAccessEpoch);
    refuse(&mut w, Call::Start, SyncError::AccessOpen);
    refuse(&mut w, Call::Lock(1), SyncError::AccessOpen);
    refuse(&mut w, Call::LockAll, SyncError::AccessOpen);
    refuse(&mut w, Call::Fence, SyncError::AccessOpen);
    refuse(&mut w, Call::Wait, SyncError::NotPosted);
    refuse(&mut w, Call::Unlock(1), SyncError::NotLocked);
    refuse(&mut w, Call::UnlockAll, SyncError::NotLocked);
    refuse(&mut w, Call::Flush(Some(1)), SyncError::NoPassiveEpoch);
    refuse(&mut w, Call::FlushLocal(None), SyncError::NoPassiveEpoch);
    w.put(0, 1, 0, &[5]);
    w.rank(0).complete();
    refuse(&mut w, Call::Complete, SyncError::NotStarted);
    refuse(&mut w, Call::Put(1), SyncError::NoAccessEpoch);
    w.rank(1).post(&[0]);
    w.rank(1).wait();
    w.finish();
    assert_eq!(w.mem(1, 0, 1), [5]);
}

#[test]
fn calls_are_refused_in_an_exposure_epoch() {
    let mut w = World::new(3);
    w.rank(0).post(&[1]);
    refuse(&mut w, Call::Post, SyncError::ExposureOpen);
    refuse(&mut w, Call::Fence, SyncError::ExposureOpen);
    refuse(&mut w, Call::Put(1), SyncError::NoAccessEpoch);
    refuse(&mut w, Call::Complete, SyncError::NotStarted);
    refuse(&mut w, Call::Flush(Some(1)), SyncError::NoPassiveEpoch);
    w.rank(0).wait();
    refuse(&mut w, Call::Wait, SyncError::NotPosted);
    refuse(&mut w, Call::Test, SyncError::NotPosted);
    w.rank(1).start(&[0]);
    w.rank(1).complete();
    w.finish();
}

#[test]
fn calls_are_refused_under_a_lock() {
    let mut w = World::new(3);
    w.rank(0).exclusive(1);
    refuse(&mut w, Call::Lock(1), SyncError::AlreadyLocked);
    refuse_any(&mut w, Call::LockAll, &[SyncError::AlreadyLocked, SyncError::AccessOpen]);
    refuse(&mut w, Call::Start, SyncError::AccessOpen);
    refuse(&mut w, Call::Fence, SyncError::AccessOpen);
    refuse(&mut w, Call::Put(2), SyncError::NoAccessEpoch);
    refuse(&mut w, Call::Complete, SyncError::NotStarted);
    refuse(&mut w, Call::Unlock(2), SyncError::NotLocked);
    refuse(&mut w, Call::UnlockAll, SyncError::NotLocked);
    refuse(&mut w, Call::Flush(Some(2)), SyncError::NoPassiveEpoch);
    refuse(&mut w, Call::FlushLocal(Some(0)), SyncError::NoPassiveEpoch);
    w.put(0, 1, 0, &[5]);
    w.rank(0).unlock(1);
    refuse(&mut w, Call::Unlock(1), SyncError::NotLocked);
    w.finish();
    assert_eq!(w.mem(1, 0, 1), [5]);
}

#[test]
fn calls_are_refused_under_lock_all() {
    let mut w = World::new(3);
    w.rank(0).lock_all();
    refuse(&mut w, Call::Lock(1), SyncError::AlreadyLocked);
    refuse_any(&mut w, Call::LockAll, &[SyncError::AlreadyLocked, SyncError::AccessOpen]);
    refuse(&mut w, Call::Start, SyncError::AccessOpen);
    refuse(&mut w, Call::Fence, SyncError::AccessOpen);
    refuse(&mut w, Call::Unlock(1), SyncError::NotLocked);
    refuse(&mut w, Call::Complete, SyncError::NotStarted);
    w.put(0, 2, 0, &[5]);
    w.rank(0).unlock_all();
    refuse(&mut w, Call::UnlockAll, SyncError::NotLocked);
    w.finish();
}

/// Only a fence ends a fence epoch with operations.
#[test]
fn calls_are_refused_in_a_fence_epoch_with_operations() {
    let mut w = World::new(3);
    (0..3).for_each(|me| _ = w.rank(me).fence());
    w.put(0, 1, 0, &[5]);
    for call in [Call::Post, Call::Start, Call::Lock(1), Call::LockAll] {
        refuse(&mut w, call, SyncError::FenceOpen);
    }
    refuse(&mut w, Call::Complete, SyncError::NotStarted);
    refuse(&mut w, Call::Wait, SyncError::NotPosted);
    refuse(&mut w, Call::Flush(None), SyncError::NoPassiveEpoch);
    (0..3).for_each(|me| _ = w.rank(me).fence());
    w.finish();
    assert_eq!(w.mem(1, 0, 1), [5]);
}

/// Errors depend on the application's view, so deferred epochs refuse the same calls as active
/// ones.
#[test]
fn calls_are_refused_in_deferred_epochs() {
    let mut w = World::new(3);
    w.rank(0).post(&[1]);
    w.rank(0).wait();
    w.rank(0).exclusive(2);
    refuse(&mut w, Call::Lock(2), SyncError::AlreadyLocked);
    refuse(&mut w, Call::Start, SyncError::AccessOpen);
    refuse(&mut w, Call::Put(1), SyncError::NoAccessEpoch);
    refuse(&mut w, Call::Test, SyncError::NotPosted);
    w.put(0, 2, 0, &[5]);
    w.rank(0).unlock(2);
    refuse(&mut w, Call::Unlock(2), SyncError::NotLocked);
    w.rank(1).start(&[0]);
    w.rank(1).complete();
    w.finish();
    assert_eq!(w.mem(2, 0, 1), [5]);
}
