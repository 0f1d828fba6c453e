//! [FL-1]: a flush waits for *older* operations only.

use crate::world::*;

/// Operations issued while a flush is pending do not delay it.
#[test]
fn fl1_later_operations_do_not_delay_a_flush() {
    let mut w = World::new(2);
    w.net.script_latencies(0, 1, &[50, 500]);
    w.rank(0).shared(1);
    let older = w.put(0, 1, 0, &[1]);
    let flush = w.rank(0).flush(1);
    let younger = w.put(0, 1, 1, &[1]);
    w.run_to(100);
    assert!(w.remote(older).is_some() && w.done(flush) && w.remote(younger).is_none());
    w.rank(0).unlock(1);
    w.finish();
}

/// What a blocking flush of many windows asks instead of a request [FL-2].
#[test]
fn fl2_a_window_is_flushed_when_its_operations_are_complete() {
    let mut w = World::new(3);
    w.net.script_latencies(0, 1, &[50]);
    w.net.script_latencies(0, 2, &[500]);
    w.rank(0).shared(1);
    w.rank(0).shared(2);
    w.drive();
    let flushed = |w: &World| {
        let window = w.window(0);
        [Some(1), Some(2), None].map(|target| window.is_flushed(target))
    };
    assert_eq!((flushed(&w), w.window(0).has_nothing_to_flush()), ([true; 3], true));
    let near = w.put(0, 1, 0, &[1]);
    let far = w.put(0, 2, 0, &[1]);
    assert_eq!((flushed(&w), w.window(0).has_nothing_to_flush()), ([false; 3], false));
    while w.remote(near).is_none() {
        w.step();
    }
    assert_eq!(flushed(&w), [true, false, false]);
    w.rank(0).unlock(1);
    assert_eq!(flushed(&w), [false, false, false], "no epoch is open to rank 1");
    while w.remote(far).is_none() {
        w.step();
    }
    w.drive();
    assert_eq!(flushed(&w), [true; 3]);
    w.rank(0).unlock(2);
    w.finish();
}

/// A flush is not complete before the lock is held [EP-1].
#[test]
fn fl2_a_window_is_not_flushed_before_its_lock_is_held() {
    let mut w = World::new(2);
    w.rank(1).exclusive(1);
    w.drive();
    w.rank(0).shared(1);
    w.drive();
    assert!(!w.window(0).is_flushed(Some(1)) && !w.window(0).is_flushed(None));
    w.rank(1).unlock(1);
    w.drive();
    assert!(w.window(0).is_flushed(Some(1)) && w.window(0).is_flushed(None));
    w.rank(0).unlock(1);
    w.finish();
}

/// A younger operation that finishes first does not complete the flush. (The paper's "younger" is a
/// slip.)
#[test]
fn fl1_younger_completions_do_not_satisfy_a_flush() {
    let mut w = World::new(2);
    w.net.script_latencies(0, 1, &[500, 10]);
    w.rank(0).shared(1);
    w.put(0, 1, 0, &[1]);
    let first = w.rank(0).flush(1);
    let younger = w.put(0, 1, 1, &[1]);
    let second = w.rank(0).flush(1);
    w.run_to(100);
    assert!(w.remote(younger).is_some() && !w.done(first) && !w.done(second));
    w.run_to(600);
    assert!(w.done(first) && w.done(second));
    w.rank(0).unlock(1);
    w.finish();
}

#[test]
fn fl1_a_flush_waits_for_all_older_operations_in_any_order_of_completion() {
    for latencies in [[30, 20, 10], [10, 20, 30], [10, 30, 20], [20, 10, 30]] {
        let mut w = World::new(2);
        w.net.script_latencies(0, 1, &latencies);
        w.rank(0).shared(1);
        let mut flushes = Vec::new();
        for cell in 0..3 {
            w.put(0, 1, cell, &[1]);
            flushes.push(w.rank(0).flush(1));
        }
        w.drive();
        let mut covered = 0;
        for (flush, latency) in flushes.iter().zip(latencies) {
            covered = covered.max(latency);
            assert_eq!(w.done_at(*flush), covered, "{latencies:?}");
        }
        w.rank(0).unlock(1);
        w.finish();
    }
}

/// `flush_local` and `flush` wait for different stages.
#[test]
fn fl1_local_and_remote_completion_are_counted_apart() {
    for (mode, local_at) in [(Mode::LocalThenRemote, 0), (Mode::Pending, 5)] {
        let mut w = World::with_mode(2, mode);
        w.rank(0).shared(1);
        w.put(0, 1, 0, &[1]);
        let (local, remote) = (w.rank(0).flush_local(1), w.rank(0).flush(1));
        let (local_all, remote_all) = (w.rank(0).flush_local(None), w.rank(0).flush(None));
        w.drive();
        assert_eq!([w.done_at(local), w.done_at(local_all)], [local_at; 2], "{mode:?}");
        assert_eq!([w.done_at(remote), w.done_at(remote_all)], [10; 2], "{mode:?}");
        w.rank(0).unlock(1);
        w.finish();
    }
}

#[test]
fn fl1_a_flush_of_one_target_ignores_the_others() {
    for lock_all in [false, true] {
        let mut w = World::new(3);
        w.net.script_latencies(0, 1, &[500]);
        w.net.script_latencies(0, 2, &[10]);
        if lock_all {
            w.rank(0).lock_all();
        } else {
            w.rank(0).shared(1);
            w.rank(0).shared(2);
        }
        w.put(0, 1, 0, &[1]);
        w.put(0, 2, 0, &[1]);
        let (slow, fast, all) = (w.rank(0).flush(1), w.rank(0).flush(2), w.rank(0).flush(None));
        w.drive();
        assert_eq!([w.done_at(slow), w.done_at(fast), w.done_at(all)], [500, 10, 500]);
        if lock_all {
            w.rank(0).unlock_all();
        } else {
            w.rank(0).unlock(2);
            w.rank(0).unlock(1);
        }
        w.finish();
    }
}

/// A flush covers recorded operations and never completes before the grant.
#[test]
fn fl1_a_flush_never_completes_before_the_grant() {
    let mut w = World::new(4);
    w.rank(3).exclusive(1);
    w.rank(0).shared(1);
    w.rank(0).shared(2);
    w.put(0, 1, 0, &[1]);
    w.put(0, 2, 0, &[1]);
    let waiting = [
        w.rank(0).flush(1),
        w.rank(0).flush_local(1),
        w.rank(0).flush(None),
        w.rank(0).flush_local(None),
    ];
    let other = w.rank(0).flush(2);
    w.drive();
    assert!(waiting.iter().all(|f| !w.done(*f)) && w.done(other));
    w.rank(3).unlock(1);
    w.drive();
    assert!(waiting.iter().all(|f| w.done(*f)));
    w.rank(0).unlock(1);
    w.rank(0).unlock(2);
    w.finish();
}

/// A flush without outstanding operations makes no request.
#[test]
fn fl1_a_flush_without_outstanding_operations_makes_no_request() {
    let mut w = World::with_mode(2, Mode::Immediate);
    w.rank(0).shared(1);
    w.progress_all();
    w.put(0, 1, 0, &[1]);
    let flushes = [w.rank(0).flush(1), w.rank(0).flush_local(None)];
    assert!(flushes.iter().all(|f| w.done(*f)));
    assert_eq!(w.window(0).requests_alive(), 0);
    w.rank(0).unlock(1);
    w.finish();
}

/// An epoch may be closed while its flushes are pending.
#[test]
fn fl1_flushes_of_a_closed_epoch_complete() {
    let mut w = World::new(3);
    w.rank(2).exclusive(1);
    w.rank(0).shared(1);
    w.put(0, 1, 0, &[1]);
    let (remote, local) = (w.rank(0).flush(1), w.rank(0).flush_local(1));
    let unlock = w.rank(0).unlock(1);
    w.drive();
    assert!([remote, local, unlock].iter().all(|r| !w.done(*r)));
    w.rank(2).unlock(1);
    w.finish();
    assert!(w.done_at(local) <= w.done_at(remote) && w.done_at(remote) <= w.done_at(unlock));
}

/// Ages work over many flushes in one long epoch.
#[test]
fn fl1_many_flushes_in_one_epoch() {
    let mut w = World::new(2);
    w.rank(0).lock_all();
    let mut expected = Vec::new();
    for round in 0..200u64 {
        let latency = 1 + (round * 7919) % 97;
        w.net.script_latencies(0, 1, &[latency]);
        w.put(0, 1, (round % 64) as usize, &[round as u8]);
        let oldest_open = w.now();
        let flush = w.rank(0).flush(1);
        expected.push((oldest_open + latency, flush));
        if round % 3 == 0 {
            w.step();
        }
    }
    w.drive();
    let mut latest = 0;
    for (at, flush) in expected {
        latest = latest.max(at);
        assert!(w.done_at(flush) <= latest);
        assert!(w.done_at(flush) >= at);
    }
    w.rank(0).unlock_all();
    w.finish();
}

/// A flush without outstanding operations is complete and makes no port call, whatever the epoch of
/// another target waits for.
#[test]
fn a_flush_without_outstanding_operations_ignores_other_targets() {
    let mut w = World::new(3);
    w.net.script_latencies(0, 2, &[500]);
    w.rank(0).shared(1);
    w.rank(0).shared(2);
    let late = w.put(0, 2, 0, &[1]);
    let one = w.rank(0).flush(1);
    let local = w.rank(0).flush_local(1);
    assert!(w.done(one) && w.done(local) && w.remote(late).is_none());
    let (other, all) = (w.rank(0).flush(2), w.rank(0).flush(None));
    assert!(!w.done(other) && !w.done(all));
    w.drive();
    assert!(w.done(other) && w.done(all) && w.remote(late).is_some());
    for target in [1, 2] {
        w.rank(0).unlock(target);
    }
    w.drive();
    w.finish();
}
