//! Requests, R-forms, `test` [RQ-4], and queries of a window.

use mpix_rma::engine::*;

use crate::world::*;

// ---- RQ-4 ----

#[test]
fn rq4_test_leaves_the_exposure_open_until_it_is_over() {
    let mut w = World::new(2);
    w.rank(1).post(&[0]);
    w.drive();
    assert!(!w.rank(1).test() && w.window(1).has_open_epoch());
    w.rank(0).start(&[1]);
    w.put(0, 1, 0, &[1]);
    w.rank(0).complete();
    assert!(!w.rank(1).test());
    w.drive();
    assert!(w.rank(1).test() && !w.window(1).has_open_epoch());
    assert_eq!(w.mem(1, 0, 1), [1]);
    assert_eq!(w.raw(1, |win, p| win.test(p)), Err(SyncError::NotPosted), "true has closed it");
    w.finish();
}

/// Test applies to the exposure that is open, and not to one closed by `iwait`.
#[test]
fn rq4_test_applies_to_the_open_exposure() {
    let mut w = World::new(2);
    w.rank(1).post(&[0]);
    let first = w.rank(1).wait();
    assert_eq!(
        w.raw(1, |win, p| win.test(p)),
        Err(SyncError::NotPosted),
        "closed by wait, though not complete"
    );
    w.rank(1).post(&[0]);
    w.rank(0).start(&[1]);
    w.rank(0).complete();
    w.drive();
    assert!(w.done(first));
    assert!(!w.rank(1).test(), "the first is over, the second is not");
    w.rank(0).start(&[1]);
    w.rank(0).complete();
    w.drive();
    assert!(w.rank(1).test());
    w.finish();
}

#[test]
fn rq4_test_of_a_deferred_exposure_gives_false() {
    let mut w = World::new(3);
    w.rank(1).start(&[2]);
    w.put(1, 2, 0, &[1]);
    w.rank(1).complete();
    // Without origins, only the deferral can make it wait.
    w.rank(1).post(&[]);
    w.drive();
    assert!(!w.rank(1).test() && w.window(1).has_open_epoch());
    w.rank(2).post(&[1]);
    w.rank(2).wait();
    w.drive();
    assert!(w.rank(1).test());
    w.finish();
}

/// Test makes progress, so a loop of tests ends.
#[test]
fn rq4_test_makes_progress() {
    let mut w = World::with_mode(2, Mode::Immediate);
    w.rank(0).start(&[1]);
    w.put(0, 1, 0, &[1]);
    w.rank(0).complete();
    w.rank(1).post(&[0]);
    w.freeze(1);
    let over = w.drive_until(|w| w.rank(1).test());
    assert!(over);
    w.thaw(1);
    w.finish();
}

// ---- R-forms ----

#[test]
fn r_forms_complete_locally_or_with_their_result() {
    let mut w = World::new(2);
    w.mem_mut(1, 0, 4).copy_from_slice(&[1, 2, 3, 4]);
    w.rank(0).shared(1);
    let op = w.put_op(0, 1, 8, &[7]);
    let (put, put_req) = w.issue_request(0, op);
    let (op, buf) = w.get_op(0, 1, 0, 4);
    let (get, get_req) = w.issue_request(0, op);
    assert!(!w.done(put_req) && !w.done(get_req));
    w.block(put_req);
    assert!(w.remote(put).is_none(), "local completion is enough for a put");
    w.block(get_req);
    assert_eq!(w.buf(buf), [1, 2, 3, 4]);
    assert!(w.posted(get).is_some());
    w.rank(0).unlock(1);
    w.finish();
}

#[test]
fn r_forms_complete_at_once_on_an_immediate_transport() {
    let mut w = World::with_mode(2, Mode::Immediate);
    w.rank(0).shared(1);
    w.progress_all();
    let op = w.put_op(0, 1, 0, &[7]);
    let (_, req) = w.issue_request(0, op);
    let (op, buf) = w.get_op(0, 1, 0, 1);
    let (_, get) = w.issue_request(0, op);
    assert!(w.done(req) && w.done(get));
    assert_eq!((w.buf(buf), w.window(0).requests_alive()), (&[7][..], 0));
    w.rank(0).unlock(1);
    w.finish();
}

#[test]
fn r_forms_of_recorded_operations_wait_for_the_lock() {
    let mut w = World::with_mode(3, Mode::LocalThenRemote);
    w.rank(2).exclusive(1);
    w.rank(0).shared(1);
    let reqs: Vec<Req> = (0..5)
        .map(|i| {
            let op = w.put_op(0, 1, i, &[7]);
            w.issue_request(0, op).1
        })
        .collect();
    let unlock = w.rank(0).unlock(1);
    w.drive();
    assert!(reqs.iter().all(|r| !w.done(*r)));
    assert_eq!(w.window(0).requests_alive(), 6);
    w.rank(2).unlock(1);
    w.finish();
    assert!(reqs.iter().all(|r| w.done_at(*r) <= w.done_at(unlock)));
}

/// Every kind of contiguous operation returns the right result.
#[test]
fn operations_of_every_kind_return_the_right_results() {
    for mode in [Mode::Immediate, Mode::LocalThenRemote, Mode::Pending] {
        for recorded in [false, true] {
            let mut w = World::with_mode(3, mode);
            if recorded {
                w.rank(2).exclusive(1);
            }
            w.rank(0).exclusive(1);
            w.progress_all();
            w.add(0, 1, 0, 40);
            let (_, before) = w.fetch_add(0, 1, 0, 2);
            let (_, failed) = w.compare_and_swap(0, 1, 0, 41, 1);
            let (_, swapped) = w.compare_and_swap(0, 1, 0, 42, 100);
            w.put(0, 1, 64, &[1, 2, 3]);
            let flush = w.rank(0).flush(1);
            if recorded {
                w.rank(2).unlock(1);
            }
            w.block(flush);
            let (_, read) = w.get(0, 1, 64, 3);
            w.rank(0).unlock(1);
            w.finish();
            assert_eq!(
                [w.value(before), w.value(failed), w.value(swapped), w.cell(1, 0)],
                [40, 42, 42, 100],
                "{mode:?}"
            );
            assert_eq!(w.buf(read), [1, 2, 3]);
        }
    }
}

// ---- bookkeeping ----

/// Live requests are counted, each is reported once, and slots are reused.
#[test]
fn requests_are_counted_and_their_slots_reused() {
    let mut w = World::new(2);
    for _ in 0..50 {
        w.rank(1).exclusive(1);
        let pending: Vec<Req> = (0..3)
            .map(|_| {
                w.rank(0).exclusive(1);
                w.rank(0).unlock(1)
            })
            .collect();
        assert_eq!(w.window(0).requests_alive(), 3);
        w.check_request_count();
        w.rank(1).unlock(1);
        w.drive();
        assert!(pending.iter().all(|r| w.done(*r)));
        assert_eq!(w.window(0).requests_alive(), 0);
    }
    assert!(
        w.highest_request_index() < 8,
        "slots are small and reused: {}",
        w.highest_request_index()
    );
    w.finish();
}

#[test]
fn rq5_open_epochs_are_distinguished_from_closed_ones() {
    let mut w = World::new(2);
    assert!(!w.window(0).has_open_epoch() && w.window(0).is_quiet());
    w.rank(0).post(&[1]);
    assert!(w.window(0).has_open_epoch());
    w.rank(0).wait();
    assert!(!w.window(0).has_open_epoch() && !w.window(0).is_quiet(), "closed and pending");
    w.rank(0).start(&[1]);
    assert!(w.window(0).has_open_epoch());
    w.rank(0).complete();
    w.rank(0).exclusive(1);
    assert!(w.window(0).has_open_epoch());
    w.rank(0).unlock(1);
    w.rank(0).lock_all();
    assert!(w.window(0).has_open_epoch());
    w.rank(0).unlock_all();
    w.rank(0).fence();
    assert!(!w.window(0).has_open_epoch());
    w.rank(1).start(&[0]);
    w.rank(1).complete();
    w.rank(1).post(&[0]);
    w.rank(1).wait();
    w.rank(1).fence();
    w.finish();
}

/// A window is quiet if its open epochs have no outstanding operation.
#[test]
fn an_open_epoch_with_nothing_outstanding_is_quiet() {
    let mut w = World::new(2);
    w.rank(0).exclusive(1);
    w.put(0, 1, 0, &[1]);
    w.progress_all();
    assert!(!w.window(0).is_quiet(), "an operation is in flight");
    w.drive();
    assert!(w.window(0).is_quiet());
    w.rank(0).unlock(1);
    w.finish();
}

/// The R-form of an atomic operation completes when its result is in place, also if it was recorded
/// behind a lock [RQ-6].
#[test]
fn rq6_r_forms_of_atomics_complete_with_their_result() {
    let mut w = World::with_mode(3, Mode::LocalThenRemote);
    w.rank(2).exclusive(1);
    w.rank(0).shared(1);
    let (add, old) = w.fetch_add_op(0, 1, 0, 5);
    let (swap, seen) = w.compare_and_swap_op(0, 1, 0, 5, 9);
    let requests = [add, swap].map(|op| w.issue_request(0, op).1);
    w.drive();
    assert!(requests.iter().all(|request| !w.done(*request)), "rank 2 holds the lock");
    w.rank(2).unlock(1);
    for request in requests {
        w.block(request);
    }
    assert_eq!((w.value(old), w.value(seen)), (0, 5));
    w.rank(0).unlock(1);
    w.finish();
}

/// Calls for lock and lock_all epochs only ask which targets these cover [RQ-6].
#[test]
fn rq6_lock_epochs_cover_their_targets_passively() {
    let mut w = World::new(3);
    let covered = |w: &mut World| [0, 1, 2].map(|target| w.window(0).covers_passively(target));
    assert_eq!(covered(&mut w), [false; 3]);
    for rank in 0..3 {
        w.rank(rank).fence();
    }
    w.put(0, 1, 0, &[1]);
    assert_eq!(covered(&mut w), [false; 3], "a fence epoch");
    let nosucceed = Assert { nocheck: false, noprecede: false, nosucceed: true };
    for rank in 0..3 {
        w.rank(rank).fence_with(nosucceed);
    }
    w.drive();
    w.rank(1).post(&[0]);
    w.rank(0).start(&[1]);
    assert_eq!(covered(&mut w), [false; 3], "an access epoch");
    w.rank(0).complete();
    w.rank(1).wait();
    w.drive();
    w.rank(0).shared(1);
    assert_eq!(covered(&mut w), [false, true, false], "one lock");
    w.rank(0).exclusive(2);
    assert_eq!(covered(&mut w), [false, true, true], "two locks");
    w.rank(0).unlock(1);
    w.rank(0).unlock(2);
    w.drive();
    assert_eq!(covered(&mut w), [false; 3], "closed");
    w.rank(0).lock_all();
    assert_eq!(covered(&mut w), [true; 3], "lock_all");
    w.rank(0).unlock_all();
    w.finish();
}
