//! Folded lock epochs behave exactly like regular ones, whatever happens between lock and unlock.

use mpix_rma::engine::*;

use crate::world::*;

const NO_ASSERT: Assert = Assert { nocheck: false, noprecede: false, nosucceed: false };

/// A lock_all, or a lock of rank 1. A process's third exclusive lock uses a licence.
#[derive(Clone, Copy, Debug)]
enum Form {
    Shared,
    Exclusive,
    All,
}

const FORMS: [Form; 3] = [Form::Shared, Form::Exclusive, Form::All];

fn open(w: &mut World, form: Form) {
    match form {
        Form::Shared => w.rank(0).shared(1),
        Form::Exclusive => w.rank(0).exclusive(1),
        Form::All => w.rank(0).lock_all(),
    }
    w.drive();
    assert!(if let Form::All = form { w.window(0).holds_lock_all() } else { w.holds(0, 1) });
    assert!(
        w.window(0).has_open_epoch() && w.window(0).is_quiet() && !w.window(0).awaits_open_lock()
    );
    assert_eq!(w.window(0).epochs_pending(), 1);
}

fn close(w: &mut World, form: Form) -> Req {
    if let Form::All = form { w.rank(0).unlock_all() } else { w.rank(0).unlock(1) }
}

/// Runs `program` for each form, without and with a licence, over lock words that answer at once or
/// later.
fn each(mut program: impl FnMut(&mut World, Form)) {
    for slow in [false, true] {
        for rounds in [0, 4] {
            for form in FORMS {
                let mut w = World::new(3);
                w.net.slow_locks = slow;
                for _ in 0..rounds {
                    open(&mut w, form);
                    close(&mut w, form);
                    w.drive();
                }
                open(&mut w, form);
                program(&mut w, form);
                w.finish();
            }
        }
    }
}

#[test]
fn a_folded_epoch_without_outstanding_operations_completes_at_once() {
    each(|w, form| {
        w.put(0, 1, 0, &[1]);
        w.drive();
        let flush = w.rank(0).flush(Some(1));
        assert!(w.done(flush));
        let closed = close(w, form);
        assert!(w.done(closed) && !w.window(0).has_open_epoch());
        assert_eq!(w.window(0).epochs_pending(), 0);
        w.drive();
        assert_eq!(w.mem(1, 0, 1), [1]);
    });
}

#[test]
fn a_pending_operation_unfolds_the_epoch_and_is_waited_for() {
    each(|w, form| {
        let put = w.put(0, 1, 0, &[1]);
        let flush = w.rank(0).flush(Some(1));
        assert_eq!(w.done(flush), w.remote(put).is_some());
        let after = w.put(0, 1, 8, &[2]);
        let closed = close(w, form);
        assert_eq!(w.done(closed), w.remote(after).is_some());
        w.drive();
        assert!(w.done(flush) && w.done(closed));
        assert_eq!([w.mem(1, 0, 1), w.mem(1, 8, 1)], [[1], [2]]);
    });
}

#[test]
fn a_refused_operation_unfolds_the_epoch_and_is_waited_for() {
    each(|w, form| {
        w.net.refuse_ops(0, 1, 2);
        let put = w.put(0, 1, 0, &[1]);
        let closed = close(w, form);
        assert!(!w.done(closed) && w.remote(put).is_none());
        w.drive();
        assert!(w.done(closed) && w.remote(put).is_some());
    });
}

#[test]
fn opening_another_epoch_unfolds_the_first() {
    each(|w, form| {
        w.rank(0).post(&[2]);
        w.rank(2).start(&[0]);
        w.put(2, 0, 0, &[5]);
        let done = w.rank(2).complete();
        if !matches!(form, Form::All) {
            w.rank(0).exclusive(2);
            w.drive();
            assert!(w.holds(0, 1) && w.holds(0, 2));
        }
        assert_eq!(w.window(0).epochs_pending(), if let Form::All = form { 2 } else { 3 });
        let closed = close(w, form);
        w.drive();
        assert!(w.done(closed) && w.done(done));
        if !matches!(form, Form::All) {
            w.rank(0).unlock(2);
        }
        let waited = w.rank(0).wait();
        w.drive();
        assert!(w.done(waited));
    });
}

/// The next epoch on the same target inherits nothing from the one before.
#[test]
fn the_same_target_may_be_locked_again_at_once() {
    each(|w, form| {
        for value in 1..4 {
            w.put(0, 1, 0, &[value]);
            close(w, form);
            match form {
                Form::Shared => w.rank(0).shared(1),
                Form::Exclusive => w.rank(0).exclusive(1),
                Form::All => w.rank(0).lock_all(),
            }
        }
        w.drive();
        close(w, form);
        w.drive();
        assert_eq!(w.mem(1, 0, 1), [3]);
    });
}

#[test]
fn a_folded_lock_excludes_other_processes() {
    each(|w, form| {
        w.rank(2).exclusive(1);
        // A waiting lock_all, or a lock that waits for one, polls, so the world never comes to
        // rest.
        w.drive_bounded(50);
        assert!(!w.holds(2, 1));
        close(w, form);
        w.drive();
        assert!(w.holds(2, 1));
        // The reverse: rank 0 waits for rank 2.
        match form {
            Form::Shared => w.rank(0).shared(1),
            Form::Exclusive => w.rank(0).exclusive(1),
            Form::All => w.rank(0).lock_all(),
        }
        w.put(0, 1, 0, &[9]);
        let closed = close(w, form);
        w.drive_bounded(50);
        assert!(!w.done(closed) && w.mem(1, 0, 1) == [0]);
        w.rank(2).unlock(1);
        w.drive();
        assert!(w.done(closed) && w.mem(1, 0, 1) == [9]);
    });
}

/// The standard's restrictions apply as in regular epochs, and a refused call changes nothing.
#[test]
fn forbidden_calls_are_refused_in_a_folded_epoch() {
    each(|w, form| {
        w.raw(0, |window, port| {
            assert_eq!(window.start(port, &[1], NO_ASSERT), Err(SyncError::AccessOpen));
            assert_eq!(window.fence(port, NO_ASSERT), Err(SyncError::AccessOpen));
            assert_eq!(window.lock_all(port, NO_ASSERT), Err(SyncError::AlreadyLocked));
            assert_eq!(
                window.lock(port, LockMode::Shared, 1, NO_ASSERT),
                Err(SyncError::AlreadyLocked)
            );
            assert_eq!(window.complete(port), Err(SyncError::NotStarted));
            assert_eq!(window.unlock(port, 2), Err(SyncError::NotLocked));
            match form {
                Form::All => assert_eq!(window.unlock(port, 1), Err(SyncError::NotLocked)),
                _ => assert_eq!(window.unlock_all(port), Err(SyncError::NotLocked)),
            }
        });
        w.put(0, 1, 0, &[4]);
        close(w, form);
        w.drive();
        assert_eq!(w.mem(1, 0, 1), [4]);
    });
    each(|w, form| {
        // The first call after the lock.
        let wrong = w.raw(0, |window, port| window.flush(port, Some(2)));
        assert_eq!(wrong.is_ok(), matches!(form, Form::All));
        close(w, form);
    });
    each(|w, form| {
        let unlocked = w.raw(0, |window, port| window.unlock(port, 2));
        assert_eq!(unlocked, Err(SyncError::NotLocked));
        close(w, form);
    });
}

/// The lock epochs of one process never overlap on one target, whatever may be reordered.
#[test]
fn lk4_a_window_of_one_process_takes_no_locks() {
    let relaxed = ReorderFlags { access_after_access: true, ..ReorderFlags::default() };
    let open = |w: &mut World, form| match form {
        Form::Shared => w.rank(0).shared(0),
        Form::Exclusive => w.rank(0).exclusive(0),
        Form::All => w.rank(0).lock_all(),
    };
    let close = |w: &mut World, form| match form {
        Form::All => w.rank(0).unlock_all(),
        _ => w.rank(0).unlock(0),
    };
    for flags in [ReorderFlags::default(), relaxed] {
        for (first, then) in FORMS.into_iter().flat_map(|first| FORMS.map(|then| (first, then))) {
            let mut w = World::with_flags(1, flags);
            open(&mut w, first);
            let closed = close(&mut w, first);
            assert!(w.done(closed), "folded");

            open(&mut w, first);
            let one = w.put(0, 0, 0, &[1]);
            let closed = close(&mut w, first);
            open(&mut w, then);
            let two = w.put(0, 0, 0, &[2]);
            assert!(w.remote(one).is_none() && !w.done(closed));
            assert!(w.posted(two).is_none(), "{first:?}, then {then:?}: the second epoch waits");
            w.drive();
            assert!(w.done(closed) && w.posted(two) >= w.remote(one));
            close(&mut w, then);
            w.drive();
            assert_eq!(w.mem(0, 0, 1), [2]);
            assert_eq!(w.net.calls[0].lock_words(), 0);
            w.finish();
        }
    }
}
