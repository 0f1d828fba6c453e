//! Tagged notifications arrive after their data in every kind of epoch, and are matched with
//! expectations. `tag_matching` tests the matching itself.

use mpix_rma::engine::*;

use crate::world::*;

const ANY: Wanted = Wanted { source: None, tag: None };

fn from(source: Rank, tag: u32) -> Wanted {
    Wanted { source: Some(source), tag: Some(tag) }
}

fn expect(w: &mut World, me: Rank, wanted: Wanted, expected: u64) -> ExpectationId {
    w.raw(me, |window, _| {
        let id = window.expect(wanted, expected);
        window.start_expecting(id);
        id
    })
}

fn standing(w: &mut World, me: Rank, id: ExpectationId) -> ExpectationState {
    w.raw(me, |window, _| window.expectation_state(id))
}

/// Ends a met expectation and returns its last notification.
fn met(w: &mut World, me: Rank, id: ExpectationId) -> Arrival {
    let ExpectationState::Met(arrival) = standing(w, me, id) else {
        panic!("{:?}", standing(w, me, id))
    };
    w.raw(me, |window, _| window.abandon(id));
    arrival
}

/// The notification is fast and the put before it slow. The expectation is met after the data
/// arrived [NA-1].
#[test]
fn a_tagged_notification_arrives_after_its_data() {
    let mut w = World::new(2);
    w.net.script_latencies(0, 1, &[500, 10]);
    let id = expect(&mut w, 1, from(0, 9), 1);
    w.rank(0).shared(1);
    let put = w.put(0, 1, 0, &[7]);
    w.notify_tagged(0, 1, 9);
    w.run_to(499);
    assert!(w.remote(put).is_none());
    assert_eq!(standing(&mut w, 1, id), ExpectationState::Waiting(1));
    assert!(!w.window(1).is_quiet(), "an expectation keeps its window awake");
    w.run_to(501);
    assert_eq!(met(&mut w, 1, id), Arrival { source: 0, tag: 9 });
    assert_eq!(w.mem(1, 0, 1), [7]);
    w.rank(0).unlock(1);
    w.finish();
}

/// A get has read the target's memory when its notification arrives.
#[test]
fn a_tagged_notification_arrives_after_a_get() {
    let mut w = World::new(2);
    w.net.script_latencies(0, 1, &[300, 1]);
    let id = expect(&mut w, 1, ANY, 1);
    w.rank(0).shared(1);
    let (get, _) = w.get(0, 1, 0, 1);
    w.notify_tagged(0, 1, 0);
    w.run_to(100);
    assert!(w.remote(get).is_none());
    assert_eq!(standing(&mut w, 1, id), ExpectationState::Waiting(1));
    w.drive();
    met(&mut w, 1, id);
    w.rank(0).unlock(1);
    w.finish();
}

/// Deferred epochs record notifications, and send them after activation, in order, each with its
/// own tag.
#[test]
fn deferred_epochs_send_tags_after_activation() {
    let mut w = World::new(2);
    for epoch in 0..3 {
        w.rank(0).start(&[1]);
        w.put(0, 1, epoch, &[epoch as u8 + 1]);
        w.notify_tagged(0, 1, 100 + epoch as u32);
        w.rank(0).complete();
    }
    w.drive();
    assert_eq!(w.window(1).unexpected(), 0, "nothing is exposed yet");
    for epoch in 0..3 {
        w.rank(1).post(&[0]);
        w.rank(1).wait();
        w.drive();
        assert_eq!(w.window(1).unexpected(), 1);
        let id = expect(&mut w, 1, ANY, 1);
        assert_eq!(met(&mut w, 1, id), Arrival { source: 0, tag: 100 + epoch });
    }
    w.finish();
}

/// Every kind of epoch can notify, also the process itself, and completes after its notifications.
#[test]
fn every_kind_of_epoch_can_send_tags() {
    let mut w = World::new(2);
    for me in 0..2 {
        w.rank(me).fence();
    }
    w.notify_tagged(0, 1, 1);
    w.notify_tagged(1, 1, 1);
    for me in 0..2 {
        w.rank(me).fence_with(Assert { nosucceed: true, ..Assert::default() });
    }
    w.drive();
    w.rank(1).post(&[0, 1]);
    for me in 0..2 {
        w.rank(me).start(&[1]);
        w.notify_tagged(me, 1, 1);
        w.rank(me).complete();
    }
    w.rank(1).wait();
    w.drive();
    w.net.script_latencies(0, 1, &[400]);
    let begin = w.now();
    w.rank(0).exclusive(1);
    w.notify_tagged(0, 1, 1);
    let unlock = w.rank(0).unlock(1);
    w.drive();
    assert!(w.done_at(unlock) >= begin + 400);
    w.rank(0).lock_all();
    w.notify_tagged(0, 1, 1);
    w.rank(0).unlock_all();
    w.drive();
    let id = expect(&mut w, 1, Wanted { source: None, tag: Some(1) }, 6);
    met(&mut w, 1, id);
    assert_eq!(w.window(1).unexpected(), 0);
    w.finish();
}

/// If the transport has no room, notifications stay recorded at their origin. None is lost or
/// duplicated [NA-3], and they stay in order [NA-4].
#[test]
fn a_refusing_transport_loses_nothing_and_keeps_the_order() {
    let mut w = World::new(2);
    w.net.default_link.credits = 3;
    w.rank(0).shared(1);
    for tag in 0..100 {
        w.notify_tagged(0, 1, tag);
    }
    w.rank(0).unlock(1);
    w.drive();
    for tag in 0..100 {
        let id = expect(&mut w, 1, ANY, 1);
        assert_eq!(met(&mut w, 1, id), Arrival { source: 0, tag });
    }
    w.finish();
}

/// A probe finds unexpected notifications and leaves them unclaimed.
#[test]
fn a_probe_does_not_claim() {
    let mut w = World::new(3);
    for me in [0, 1] {
        w.rank(me).shared(2);
        w.notify_tagged(me, 2, 10 + me);
        w.rank(me).unlock(2);
        w.drive();
    }
    let probe = |w: &mut World, wanted| w.raw(2, |window, port| window.probe(port, wanted));
    let one = Arrival { source: 1, tag: 11 };
    assert_eq!(probe(&mut w, Wanted { source: Some(1), tag: None }), Some(one));
    assert_eq!(probe(&mut w, from(1, 11)), Some(one));
    assert_eq!(probe(&mut w, from(1, 10)), None);
    assert_eq!(probe(&mut w, ANY), Some(Arrival { source: 0, tag: 10 }));
    let id = expect(&mut w, 2, ANY, 2);
    assert_eq!(met(&mut w, 2, id), one);
    w.finish();
}

/// An expectation can be started repeatedly, like a persistent request.
#[test]
fn an_expectation_can_be_restarted() {
    let mut w = World::new(2);
    let id = w.raw(1, |window, _| window.expect(from(0, 1), 2));
    w.rank(0).shared(1);
    for _ in 0..5 {
        assert_eq!(w.raw(1, |window, _| window.start_expecting(id)), ExpectationState::Waiting(2));
        w.notify_tagged(0, 1, 1);
        w.drive();
        assert_eq!(standing(&mut w, 1, id), ExpectationState::Waiting(1));
        w.notify_tagged(0, 1, 1);
        w.drive();
        assert!(matches!(standing(&mut w, 1, id), ExpectationState::Met(_)));
        w.raw(1, |window, _| window.make_idle(id));
        assert_eq!(standing(&mut w, 1, id), ExpectationState::Idle);
    }
    w.rank(0).unlock(1);
    w.finish();
}
