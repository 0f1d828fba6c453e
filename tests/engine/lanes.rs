//! Lanes of a window: one for each of its handles in a process [DU-1, DU-2].

use mpix_rma::engine::{Assert, Rank, SyncError};

use crate::world::*;

fn select(w: &mut World, me: Rank, lane: u32) {
    w.raw(me, |window, _| window.select_lane(lane));
}

fn lock_all_on(w: &mut World, lane: u32, assert: Assert) -> Result<(), SyncError> {
    w.raw(0, |window, port| {
        window.select_lane(lane);
        window.lock_all(port, assert)
    })
}

/// A put on a lane.
fn put_on(w: &mut World, lane: u32, target: Rank, byte: u8) -> OpId {
    select(w, 0, lane);
    w.put(0, target, lane as usize, &[byte])
}

/// Rank 0 has a lock_all epoch open, and put on lane 0 what takes long to arrive at rank 1.
fn with_slow_put(ranks: u32) -> (World, OpId) {
    let mut w = World::new(ranks);
    w.rank(0).lock_all();
    w.drive();
    w.net.script_latencies(0, 1, &[30, 3, 3]);
    let slow = put_on(&mut w, 0, 1, 7);
    (w, slow)
}

fn unlock(mut w: World) -> World {
    select(&mut w, 0, 0);
    w.rank(0).unlock_all();
    w.drive();
    w
}

#[test]
fn du2_a_flush_completes_the_operations_of_its_lane_only() {
    for (target, lane) in [(Some(1), 1), (None, 1), (None, 5)] {
        let (mut w, slow) = with_slow_put(2);
        let quick = put_on(&mut w, lane, 1, 8);
        let flush = w.rank(0).flush_on(lane, target);
        assert!(!w.done(flush));
        assert!(w.drive_until(|w| w.done(flush)));
        assert!(w.remote(quick).is_some() && w.remote(slow).is_none());
        let flush = w.rank(0).flush_on(0, target);
        assert!(!w.done(flush), "the flush of lane 0 waits for lane 0");
        assert!(w.drive_until(|w| w.done(flush)));
        assert!(w.remote(slow).is_some());
        unlock(w).finish();
    }
}

#[test]
fn du2_a_flush_of_a_lane_without_operations_is_complete() {
    let (mut w, slow) = with_slow_put(2);
    let flush = w.rank(0).flush_on(1, 1);
    assert!(w.done(flush) && w.remote(slow).is_none());
    let flush = w.rank(0).flush_on(1, None);
    assert!(w.done(flush) && w.remote(slow).is_none());
    unlock(w).finish();
}

#[test]
fn du2_a_flush_of_any_lane_waits_for_the_lock() {
    let mut w = World::new(2);
    w.rank(1).exclusive(1);
    w.drive();
    w.rank(0).lock_all();
    let flush = w.rank(0).flush_on(1, 1);
    w.drive();
    assert!(!w.done(flush));
    w.rank(1).unlock(1);
    w.drive();
    assert!(w.done(flush));
    unlock(w).finish();
}

#[test]
fn du2_an_order_concerns_its_lane_only() {
    let (mut w, slow) = with_slow_put(2);
    w.raw(0, |window, port| window.order(port, Some(1))).unwrap();
    let quick = put_on(&mut w, 1, 1, 8);
    assert!(w.drive_until(|w| w.remote(quick).is_some()));
    assert!(w.remote(slow).is_none(), "no order concerned the second put");
    unlock(w).finish();
}

#[test]
fn du2_operations_queue_in_their_lane() {
    let mut w = World::new(2);
    w.rank(0).lock_all();
    w.drive();
    w.net.refuse_ops(0, 1, 1);
    let refused = put_on(&mut w, 0, 1, 7);
    let behind = put_on(&mut w, 0, 1, 8);
    let beside = put_on(&mut w, 1, 1, 9);
    assert!(w.posted(refused).is_none() && w.posted(behind).is_none());
    assert!(w.posted(beside).is_some(), "another lane has nothing queued");
    w.drive();
    assert_eq!(w.mem(1, 0, 2), [8, 9]);
    unlock(w).finish();
}

#[test]
fn du2_many_targets_and_lanes_are_kept_apart() {
    let mut w = World::new(12);
    w.rank(0).lock_all();
    w.drive();
    for target in 1..12 {
        w.net.script_latencies(0, target, &[30, 3, 3]);
    }
    let puts: Vec<_> = (0..3)
        .flat_map(|lane| (1..12).map(move |target| (lane, target)))
        .map(|(lane, target)| (lane, put_on(&mut w, lane, target, lane as u8 + 1)))
        .collect();
    let flush = w.rank(0).flush_on(2, None);
    assert!(w.drive_until(|w| w.done(flush)));
    for (lane, put) in puts {
        assert!(w.remote(put).is_some() || lane != 2);
        assert!(w.remote(put).is_none() || lane != 0);
    }
    w = unlock(w);
    for target in 1..12 {
        assert_eq!(w.mem(target, 0, 3), [1, 2, 3]);
    }
    w.finish();
}

#[test]
fn du1_a_lock_all_ends_with_the_last_unlock_all() {
    let (mut w, slow) = with_slow_put(2);
    lock_all_on(&mut w, 3, Assert::default()).unwrap();
    assert!(w.window(0).has_lock_all_on(0) && w.window(0).has_lock_all_on(3));
    let quick = put_on(&mut w, 3, 1, 8);
    let left = w.rank(0).leave_on(3);
    assert!(w.drive_until(|w| w.done(left)));
    assert!(w.remote(quick).is_some() && w.remote(slow).is_none());
    assert!(w.window(0).has_open_epoch() && !w.window(0).has_lock_all_on(3));
    w.rank(1).exclusive(1);
    w.drive();
    assert!(!w.holds(1, 1), "the epoch still holds its lock");
    w = unlock(w);
    assert!(w.remote(slow).is_some() && w.holds(1, 1));
    w.rank(1).unlock(1);
    w.drive();
    w.finish();
}

#[test]
fn du1_every_lane_uses_the_epochs_of_the_window() {
    let mut w = World::new(2);
    w.rank(0).exclusive(1);
    w.drive();
    let put = put_on(&mut w, 1, 1, 8);
    select(&mut w, 0, 0);
    let unlock = w.rank(0).unlock(1);
    w.drive();
    assert!(w.done(unlock) && w.remote(put).is_some(), "the unlock completes all operations");
    for me in 0..2 {
        w.rank(me).fence();
    }
    let put = put_on(&mut w, 1, 1, 9);
    for me in 0..2 {
        w.rank(me).fence();
    }
    w.drive();
    assert!(w.remote(put).is_some());
    w.rank(1).post(&[0]);
    w.rank(0).start(&[1]);
    let put = put_on(&mut w, 1, 1, 10);
    w.rank(0).complete();
    w.rank(1).wait();
    w.drive();
    assert!(w.remote(put).is_some());
    w.finish();
}

#[test]
fn du1_wrong_calls_are_refused() {
    let nocheck = Assert { nocheck: true, ..Assert::default() };
    let mut w = World::new(2);
    w.rank(0).lock_all();
    w.drive();
    assert_eq!(lock_all_on(&mut w, 0, Assert::default()), Err(SyncError::AlreadyLocked));
    let unlocked = |w: &mut World, lane| {
        w.raw(0, |window, port| {
            window.select_lane(lane);
            window.unlock_all(port).map(|_| ())
        })
    };
    assert_eq!(unlocked(&mut w, 1), Err(SyncError::NotLocked), "lane 1 did not call lock_all");
    assert_eq!(lock_all_on(&mut w, 1, nocheck), Ok(()));
    assert_eq!(lock_all_on(&mut w, 1, nocheck), Err(SyncError::AlreadyLocked));
    assert_eq!(w.raw(0, |window, port| window.fence(port, nocheck)), Err(SyncError::AccessOpen));
    assert_eq!(unlocked(&mut w, 1), Ok(()));
    w = unlock(w);
    w.rank(0).lock_all_nocheck();
    assert_eq!(lock_all_on(&mut w, 1, Assert::default()), Err(SyncError::UncheckedByOther));
    assert_eq!(lock_all_on(&mut w, 1, nocheck), Ok(()));
    assert_eq!(unlocked(&mut w, 1), Ok(()));
    unlock(w).finish();
}
