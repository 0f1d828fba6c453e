//! Notifications: counters rise after the data, in every kind of epoch, and complete the waits for
//! them.

use mpix_rma::engine::*;

use crate::world::*;

/// Time goes on by one, and both processes make progress, whose completions are not noted.
fn one_step(w: &mut World) {
    let later = w.now() + 1;
    w.net.wake_at(later);
    w.net.advance();
    for rank in 0..2 {
        w.raw(rank, |window, port| window.progress(port));
    }
}

/// The notification is fast and the put before it slow. The counter rises after the data [NA-1].
#[test]
fn a_notification_arrives_after_its_data() {
    let mut w = World::new(2);
    w.net.script_latencies(0, 1, &[500, 10]);
    w.rank(0).shared(1);
    let put = w.put(0, 1, 0, &[7]);
    w.notify(0, 1, 3);
    let wait = w.rank(1).await_counters(3, 1, 1);
    w.run_to(499);
    assert!(w.remote(put).is_none() && !w.done(wait) && w.rank(1).counter(3) == 0);
    w.run_to(501);
    assert!(w.done(wait) && w.rank(1).counter(3) == 1 && w.mem(1, 0, 1) == [7]);
    w.rank(0).unlock(1);
    w.finish();
}

/// What a counter has reached it keeps until it is reset; a reset or new counters start over.
#[test]
fn a_reached_value_is_remembered_until_a_reset() {
    let mut w = World::new(2);
    w.rank(0).shared(1);
    for _ in 0..3 {
        w.notify(0, 1, 3);
    }
    w.drive();
    assert!(w.rank(1).has_counted(3, 2) && w.rank(1).has_counted(3, 3));
    assert!(!w.rank(1).has_counted(3, 4) && !w.rank(1).has_counted(2, 1));
    w.notify(0, 1, 3);
    w.drive();
    assert!(w.rank(1).has_counted(3, 3) && w.rank(1).has_counted(3, 4));
    w.notify(0, 1, 3);
    w.drive();
    assert_eq!(w.rank(1).reset_counter(3), 5);
    assert!(w.rank(1).has_counted(3, 0) && !w.rank(1).has_counted(3, 1));
    w.notify(0, 1, 3);
    w.drive();
    assert!(w.rank(1).has_counted(3, 1) && !w.rank(1).has_counted(3, 2));
    w.rank(0).unlock(1);
    w.finish();
}

/// A put or get and its notification are one operation, which follows the one before and completes
/// the epoch with both.
#[test]
fn an_operation_carries_its_notification() {
    for mode in [Mode::Pending, Mode::LocalThenRemote] {
        for counter in [true, false] {
            let told = if counter { Notification::counter(3) } else { Notification::tag(3) };
            let mut w = World::new(2);
            w.net.default_link = Link::with_mode(mode);
            w.net.script_latencies(0, 1, &[500, 10, 300]);
            w.rank(0).shared(1);
            let before = w.put(0, 1, 0, &[7]);
            let put = w.put_op(0, 1, 1, &[8]);
            let put = w.issue(0, Op { notification: Some(told), ..put });
            let (get, _) = w.get_op(0, 1, 0, 1);
            let get = w.issue(0, Op { notification: Some(told), ..get });
            assert_eq!(w.net.calls[0].post, 3);
            let close = w.rank(0).unlock(1);
            w.run_to(499);
            assert!(w.remote(before).is_none() && w.remote(put).is_none() && !w.done(close));
            assert_eq!(w.rank(1).counter(3), 0);
            w.drive();
            assert!(w.remote(get).is_some() && w.done(close));
            assert_eq!(w.rank(1).counter(3), if counter { 2 } else { 0 });
            assert_eq!(w.mem(1, 0, 2), [7, 8]);
            w.finish();
        }
    }
}

/// A get has read the target's memory when the counter rises.
#[test]
fn a_notification_arrives_after_a_get() {
    let mut w = World::new(2);
    w.net.script_latencies(0, 1, &[300, 1]);
    w.rank(0).shared(1);
    let (get, _) = w.get(0, 1, 0, 1);
    w.notify(0, 1, 0);
    w.run_to(100);
    assert!(w.remote(get).is_none() && w.rank(1).counter(0) == 0);
    w.drive();
    assert_eq!(w.rank(1).counter(0), 1);
    w.rank(0).unlock(1);
    w.finish();
}

/// Deferred epochs record notifications, and send them after activation, in order [NA-2].
#[test]
fn deferred_epochs_notify_after_they_are_activated() {
    let mut w = World::new(2);
    for epoch in 0..3 {
        w.rank(0).start(&[1]);
        w.put(0, 1, epoch, &[epoch as u8 + 1]);
        w.notify(0, 1, 5);
        w.rank(0).complete();
    }
    w.drive();
    assert_eq!(w.rank(1).counter(5), 0, "nothing is exposed yet");
    for epoch in 0..3 {
        w.rank(1).post(&[0]);
        w.rank(1).wait();
        w.drive();
        assert_eq!(w.rank(1).counter(5), epoch + 1);
    }
    w.finish();
}

/// Each kind of epoch can notify, also the process itself [NA-2].
#[test]
fn every_kind_of_epoch_can_notify() {
    let mut w = World::new(2);
    for me in 0..2 {
        w.rank(me).fence();
    }
    w.notify(0, 1, 0);
    w.notify(1, 1, 0);
    for me in 0..2 {
        w.rank(me).fence_with(Assert { nosucceed: true, ..Assert::default() });
    }
    w.drive();
    assert_eq!(w.rank(1).counter(0), 2);
    w.rank(1).post(&[0, 1]);
    for me in 0..2 {
        w.rank(me).start(&[1]);
        w.notify(me, 1, 0);
        w.rank(me).complete();
    }
    w.rank(1).wait();
    w.drive();
    assert_eq!(w.rank(1).counter(0), 4);
    w.rank(0).exclusive(1);
    w.notify(0, 1, 0);
    w.rank(0).unlock(1);
    w.drive();
    w.rank(0).lock_all();
    w.notify(0, 1, 0);
    w.rank(0).unlock_all();
    w.drive();
    assert_eq!(w.rank(1).counter(0), 6);
    w.finish();
}

/// An epoch is not complete before its notifications are.
#[test]
fn closing_waits_for_notifications() {
    let mut w = World::new(2);
    w.net.script_latencies(0, 1, &[400]);
    w.rank(0).shared(1);
    w.notify(0, 1, 0);
    let flush = w.rank(0).flush(1);
    let unlock = w.rank(0).unlock(1);
    w.run_to(399);
    assert!(!w.done(flush) && !w.done(unlock));
    w.drive();
    assert!(w.done(flush) && w.done(unlock));
    w.finish();
}

/// A reset returns the value and restarts the counter at 0. No notification between two resets is
/// lost [NA-3].
#[test]
fn a_reset_loses_nothing() {
    let mut w = World::new(3);
    w.net.default_link = Link { op_latency: 7, ..Link::with_mode(Mode::Pending) };
    let mut taken = 0;
    for me in [0, 1] {
        w.rank(me).lock_all();
    }
    for turn in 0..50 {
        w.notify(0, 2, 1);
        w.notify(1, 2, 1);
        w.run_to(turn * 3);
        taken += w.rank(2).reset_counter(1);
    }
    for me in [0, 1] {
        w.rank(me).unlock_all();
    }
    w.drive();
    taken += w.rank(2).reset_counter(1);
    assert_eq!((taken, w.rank(2).counter(1)), (100, 0));
    w.finish();
}

/// A wait for several counters returns the first that has reached the value.
#[test]
fn a_wait_for_several_counters_returns_the_one_reached() {
    let mut w = World::new(2);
    w.net.script_latencies(0, 1, &[20, 10]);
    w.rank(0).shared(1);
    w.notify(0, 1, 6);
    let (outcome, found) = w.raw(1, |window, port| window.await_counters(port, 4, 4, 1));
    let (Outcome::Pending(request), None) = (outcome, found) else {
        panic!("{outcome:?}, {found:?}")
    };
    while w.window(1).is_pending(request) {
        one_step(&mut w);
    }
    assert_eq!(w.raw(1, |window, _| window.next_completed()), Some(request));
    assert_eq!(w.raw(1, |window, _| window.found(request)), Some(Notified { index: 6, value: 1 }));
    assert_eq!(w.raw(1, |window, _| window.found(request)), None, "told once");
    let (outcome, found) = w.raw(1, |window, port| window.await_counters(port, 4, 4, 1));
    assert_eq!((outcome, found), (Outcome::Complete, Some(Notified { index: 6, value: 1 })));
    w.rank(0).unlock(1);
    w.finish();
}

/// A wait for each of several counters looks at one after the other, and returns all values.
#[test]
fn a_wait_for_all_of_some_counters_returns_their_values() {
    let mut w = World::new(2);
    w.rank(0).shared(1);
    w.notify(0, 1, 4);
    w.drive();
    let start =
        |w: &mut World| w.raw(1, |window, port| window.await_all_counters(port, 4, &[1, 0, 2]));
    let (Outcome::Pending(request), None) = start(&mut w) else { panic!("a counter is 0") };
    assert!(!w.window(1).is_quiet() && w.window(1).awaits_counters());
    w.notify(0, 1, 6);
    w.notify(0, 1, 4);
    w.raw(1, |window, port| while window.progress(port) {});
    assert!(w.window(1).is_pending(request), "1 is not 2");
    w.notify(0, 1, 6);
    while w.window(1).is_pending(request) {
        one_step(&mut w);
    }
    assert_eq!(w.raw(1, |window, _| window.next_completed()), Some(request));
    // The first counter had the value 1 when it was seen.
    assert_eq!(w.raw(1, |window, _| window.found_all(request)), Some(vec![1, 0, 2]));
    assert_eq!(w.raw(1, |window, _| window.found_all(request)), None, "told once");
    assert_eq!(start(&mut w), (Outcome::Complete, Some(vec![2, 0, 2])));
    assert!(!w.window(1).awaits_counters());
    w.rank(0).unlock(1);
    w.finish();
}

/// Sweeps that look at a few waits each complete all of them, in whatever order they are reached
/// and dropped.
#[test]
fn bounded_sweeps_reach_every_wait() {
    const MANY: u32 = 200;
    let mut rng = fastrand::Rng::with_seed(7);
    let mut w = World::new(2);
    w.raw(1, |window, _| window.set_waits_per_sweep(3));
    w.rank(0).shared(1);
    let mut waits: Vec<(u32, RequestId)> = (0..MANY)
        .map(|counter| match w.raw(1, |window, port| window.await_counters(port, counter, 1, 1)) {
            (Outcome::Pending(request), None) => (counter, request),
            other => panic!("{other:?}"),
        })
        .collect();
    rng.shuffle(&mut waits);
    let mut reached = Vec::new();
    for (at, (counter, request)) in waits.iter().enumerate() {
        match at % 4 {
            0 => w.raw(1, |window, _| window.withdraw_waits(|id| id == *request)),
            _ => {
                w.notify(0, 1, *counter);
                reached.push(*request);
            }
        }
        if at % 4 == 1 {
            w.raw(0, |window, port| window.progress(port));
            w.raw(1, |window, port| window.progress(port));
        }
    }
    let mut completed = Vec::new();
    for _ in 0..10 * MANY {
        one_step(&mut w);
        completed.extend(w.raw(1, |window, _| window.next_completed()));
    }
    completed.sort_unstable_by_key(|request| request.index);
    reached.sort_unstable_by_key(|request| request.index);
    assert_eq!(completed, reached);
    assert!(!w.window(1).awaits_counters() && w.window(1).is_quiet());
    w.rank(0).unlock(1);
    w.finish();
}

/// A withdrawn wait is never reported, and other waits are unaffected.
#[test]
fn a_wait_can_be_withdrawn() {
    let mut w = World::new(2);
    let waits = [3, 5].map(|index| {
        match w.raw(1, |window, port| window.await_counters(port, index, 1, 1)) {
            (Outcome::Pending(request), None) => request,
            other => panic!("{other:?}"),
        }
    });
    w.raw(1, |window, _| window.withdraw_waits(|request| request == waits[0]));
    assert!(!w.window(1).is_pending(waits[0]) && w.window(1).is_pending(waits[1]));
    w.rank(0).shared(1);
    w.notify(0, 1, 3);
    w.notify(0, 1, 5);
    while w.window(1).is_pending(waits[1]) {
        one_step(&mut w);
    }
    assert_eq!(w.raw(1, |window, _| window.next_completed()), Some(waits[1]));
    assert_eq!(w.raw(1, |window, _| window.next_completed()), None);
    assert!(!w.window(1).awaits_counters() && w.window(1).is_quiet());
    w.rank(0).unlock(1);
    w.finish();
}

/// A wait for one counter that a call goes on with is never reported. Waits for several counters
/// and complete ones stay.
#[test]
fn a_wait_for_one_counter_can_be_taken_over() {
    let mut w = World::new(2);
    let mut start = |index, number| match w
        .raw(1, |window, port| window.await_counters(port, index, number, 1))
    {
        (Outcome::Pending(request), None) => request,
        other => panic!("{other:?}"),
    };
    let (one, several) = (start(3, 1), start(4, 2));
    let take = |w: &mut World, request| w.raw(1, |window, _| window.take_over(request));
    assert_eq!(take(&mut w, several), None);
    assert_eq!(take(&mut w, one), Some((3, 1)));
    assert_eq!(take(&mut w, one), None, "only once");
    assert!(!w.window(1).is_pending(one) && w.window(1).is_pending(several));
    w.rank(0).shared(1);
    w.notify(0, 1, 3);
    w.notify(0, 1, 5);
    while w.window(1).is_pending(several) {
        one_step(&mut w);
    }
    assert_eq!(w.raw(1, |window, _| window.next_completed()), Some(several));
    assert_eq!(w.raw(1, |window, _| window.next_completed()), None);
    assert_eq!(take(&mut w, several), None);
    assert!(!w.window(1).awaits_counters() && w.window(1).is_quiet());
    w.rank(0).unlock(1);
    w.finish();
}

/// A pending wait keeps the window from being quiet.
#[test]
fn a_pending_wait_keeps_the_window_from_being_quiet() {
    let mut w = World::new(2);
    let wait = w.rank(1).await_counters(2, 3, 2);
    assert!(!w.window(1).is_quiet());
    assert!(w.window(1).awaits_counters() && !w.window(0).awaits_counters());
    w.rank(0).shared(1);
    w.notify(0, 1, 4);
    w.notify(0, 1, 3);
    w.drive();
    assert!(!w.done(wait), "one each is not two of one");
    w.notify(0, 1, 4);
    w.drive();
    assert!(w.done(wait) && w.window(1).is_quiet());
    w.rank(0).unlock(1);
    w.finish();
}
