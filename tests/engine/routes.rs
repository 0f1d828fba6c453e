//! Direct routes to the transport exist only where an operation may be posted at once. Looking one
//! up opens no epoch.

use mpix_rma::engine::Rank;

use crate::world::*;

fn has_route(w: &mut World, target: Rank) -> bool {
    w.raw(0, |window, _| {
        let found = window.finds_direct_route(target);
        assert_eq!(window.has_direct_route(target), found, "the route is cached");
        found
    })
}

#[test]
fn without_an_open_epoch_there_is_no_direct_route() {
    let mut w = World::new(2);
    assert!(!has_route(&mut w, 1));
    for me in 0..2 {
        w.rank(me).fence();
    }
    w.drive();
    // The fence epoch stays tentative, so another kind of epoch may replace it [EP-11].
    assert!(!has_route(&mut w, 1) && !w.window(0).has_open_epoch());
    w.rank(0).lock_all();
    w.drive();
    assert!(has_route(&mut w, 1));
    assert!(!has_route(&mut w, 2) && !has_route(&mut w, u32::MAX), "outside the window's group");
    w.rank(0).unlock_all();
    w.drive();
    assert!(!has_route(&mut w, 1));
    w.finish();
}

#[test]
fn a_lock_has_a_direct_route_once_it_is_held() {
    let mut w = World::new(3);
    w.rank(1).exclusive(2);
    w.drive();
    w.rank(0).exclusive(2);
    w.drive();
    assert!(!has_route(&mut w, 2) && !has_route(&mut w, 1) && !has_route(&mut w, 3));
    w.rank(1).unlock(2);
    w.drive();
    assert!(w.holds(0, 2));
    assert!(has_route(&mut w, 2) && !has_route(&mut w, 1) && !has_route(&mut w, 3));
    let put = w.put(0, 2, 0, &[7]);
    let unlock = w.rank(0).unlock(2);
    assert!(!has_route(&mut w, 2));
    w.drive();
    assert!(w.remote(put).is_some() && w.done(unlock));
    assert_eq!(w.mem(2, 0, 1), [7]);
    w.finish();
}

#[test]
fn a_start_has_direct_routes_to_targets_that_posted() {
    let mut w = World::new(4);
    w.rank(1).post(&[0]);
    w.rank(0).start(&[1, 2]);
    w.drive();
    assert!(
        has_route(&mut w, 1)
            && !has_route(&mut w, 2)
            && !has_route(&mut w, 3)
            && !has_route(&mut w, 4)
    );
    w.rank(2).post(&[0]);
    w.drive();
    assert!(has_route(&mut w, 2) && has_route(&mut w, 1));
    w.rank(0).complete();
    for me in [1, 2] {
        w.rank(me).wait();
    }
    w.drive();
    w.finish();
}

/// Operations of one origin stay in order: no operation overtakes queued ones.
#[test]
fn behind_queued_operations_there_is_no_direct_route() {
    let mut w = World::new(2);
    w.rank(0).lock_all();
    w.drive();
    w.net.refuse_ops(0, 1, 1);
    w.put(0, 1, 0, &[1]);
    assert!(!has_route(&mut w, 1));
    w.drive();
    assert!(has_route(&mut w, 1));
    w.rank(0).unlock_all();
    w.drive();
    w.finish();
}

#[test]
fn a_granted_epoch_that_covers_the_window_has_direct_routes_to_all_its_ranks() {
    let mut w = World::new(3);
    w.rank(0).lock_all();
    w.drive();
    assert!(has_route(&mut w, 1));
    let direct = |w: &mut World, target| w.raw(0, |window, _| window.has_direct_route(target));
    assert!(direct(&mut w, 2) && direct(&mut w, 0) && !direct(&mut w, 3));
    assert!(w.raw(0, |window, _| window.flushes_all_at_once()));

    // An operation that does not complete at once ends that: the next one may have to wait for it.
    let put = w.put(0, 2, 0, &[7]);
    assert!(w.remote(put).is_none() && !direct(&mut w, 1));
    assert!(!w.raw(0, |window, _| window.flushes_all_at_once()));
    assert!(has_route(&mut w, 1) && !w.raw(0, |window, _| window.flushes_at_once(2)));
    w.drive();
    assert!(w.remote(put).is_some());
    assert!(w.raw(0, |window, _| window.flushes_all_at_once()));
    w.rank(0).unlock_all();
    assert!(!direct(&mut w, 1) && !w.raw(0, |window, _| window.flushes_all_at_once()));
    w.drive();
    w.finish();
}
