//! Straight ways to the transport: found where an operation may leave at once, and nowhere else;
//! looking for one opens nothing.

use mpix_rma::engine::Rank;

use crate::world::*;

fn way(w: &mut World, target: Rank) -> bool {
    w.raw(0, |window, _| {
        let found = window.finds_direct_route(target);
        assert_eq!(window.has_direct_route(target), found, "what was found is kept");
        found
    })
}

#[test]
fn nothing_open_no_way() {
    let mut w = World::new(2);
    assert!(!way(&mut w, 1));
    for me in 0..2 {
        w.rank(me).fence();
    }
    w.drive();
    // The fence epoch stays a tentative one, which another epoch may replace [EP-11].
    assert!(!way(&mut w, 1) && !w.window(0).has_open_epoch());
    w.rank(0).lock_all();
    w.drive();
    assert!(way(&mut w, 1));
    assert!(!way(&mut w, 2) && !way(&mut w, u32::MAX), "outside the window's group");
    w.rank(0).unlock_all();
    w.drive();
    assert!(!way(&mut w, 1));
    w.finish();
}

#[test]
fn a_lock_has_a_way_to_its_target_once_it_is_held() {
    let mut w = World::new(3);
    w.rank(1).exclusive(2);
    w.drive();
    w.rank(0).exclusive(2);
    w.drive();
    assert!(!way(&mut w, 2) && !way(&mut w, 1) && !way(&mut w, 3));
    w.rank(1).unlock(2);
    w.drive();
    assert!(w.holds(0, 2));
    assert!(way(&mut w, 2) && !way(&mut w, 1) && !way(&mut w, 3));
    let put = w.put(0, 2, 0, &[7]);
    let unlock = w.rank(0).unlock(2);
    assert!(!way(&mut w, 2));
    w.drive();
    assert!(w.remote(put).is_some() && w.done(unlock));
    assert_eq!(w.mem(2, 0, 1), [7]);
    w.finish();
}

#[test]
fn a_start_has_a_way_to_those_that_have_posted() {
    let mut w = World::new(4);
    w.rank(1).post(&[0]);
    w.rank(0).start(&[1, 2]);
    w.drive();
    assert!(way(&mut w, 1) && !way(&mut w, 2) && !way(&mut w, 3) && !way(&mut w, 4));
    w.rank(2).post(&[0]);
    w.drive();
    assert!(way(&mut w, 2) && way(&mut w, 1));
    w.rank(0).complete();
    for me in [1, 2] {
        w.rank(me).wait();
    }
    w.drive();
    w.finish();
}

/// Operations of one origin keep their order: none goes past what is queued.
#[test]
fn behind_queued_operations_there_is_no_way() {
    let mut w = World::new(2);
    w.rank(0).lock_all();
    w.drive();
    w.net.refuse_ops(0, 1, 1);
    w.put(0, 1, 0, &[1]);
    assert!(!way(&mut w, 1));
    w.drive();
    assert!(way(&mut w, 1));
    w.rank(0).unlock_all();
    w.drive();
    w.finish();
}
