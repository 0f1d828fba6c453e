//! Order without completion [OR-1].

use mpix_rma::engine::{Rank, SyncError};

use crate::world::*;

fn order(w: &mut World, me: Rank, target: Option<Rank>) -> Result<(), SyncError> {
    w.raw(me, |window, port| window.order(port, target))
}

/// The link delivers the first put later than the second, unless they are ordered.
fn two_puts(ordered: bool) -> Vec<u8> {
    let mut w = World::new(2);
    w.rank(0).lock_all();
    w.drive();
    w.net.script_latencies(0, 1, &[30, 3]);
    let first = w.put(0, 1, 0, &[1]);
    if ordered {
        order(&mut w, 0, Some(1)).unwrap();
    }
    assert!(w.remote(first).is_none(), "the call waits for nothing");
    w.put(0, 1, 0, &[2]);
    w.rank(0).unlock_all();
    w.drive();
    let there = w.mem(1, 0, 1).to_vec();
    w.finish();
    there
}

#[test]
fn or1_a_later_put_takes_effect_after_an_earlier_one() {
    assert_eq!(two_puts(false), [1], "nothing orders the two");
    assert_eq!(two_puts(true), [2]);
}

#[test]
fn or1_recorded_operations_keep_the_order() {
    for all in [false, true] {
        let mut w = World::new(2);
        w.rank(1).exclusive(1);
        w.drive();
        w.rank(0).exclusive(1);
        w.net.script_latencies(0, 1, &[30, 3, 3]);
        w.put(0, 1, 0, &[1]);
        order(&mut w, 0, (!all).then_some(1)).unwrap();
        w.put(0, 1, 0, &[2]);
        order(&mut w, 0, (!all).then_some(1)).unwrap();
        w.put(0, 1, 0, &[3]);
        w.rank(0).unlock(1);
        w.rank(1).unlock(1);
        w.drive();
        assert_eq!(w.mem(1, 0, 1), [3]);
        w.finish();
    }
}

#[test]
fn or1_an_order_concerns_its_target_only() {
    let mut w = World::new(3);
    w.rank(0).lock_all();
    w.drive();
    w.net.script_latencies(0, 1, &[30]);
    let first = w.put(0, 1, 0, &[1]);
    w.put(0, 2, 0, &[7]);
    order(&mut w, 0, Some(1)).unwrap();
    let direct = |w: &mut World, to| w.raw(0, |window, _| window.finds_direct_route(to));
    assert!(direct(&mut w, 2) && !direct(&mut w, 1), "the next operation asks the port again");
    w.drive();
    assert!(w.remote(first).is_some());
    let put = w.put(0, 1, 0, &[2]);
    assert!(direct(&mut w, 1), "all is done that came before");
    w.rank(0).unlock_all();
    w.drive();
    assert!(w.remote(put).is_some());
    w.finish();
}

#[test]
fn or1_a_flush_covers_operations_that_wait_for_their_order() {
    let mut w = World::new(2);
    w.rank(0).lock_all();
    w.drive();
    w.net.script_latencies(0, 1, &[30, 3]);
    w.put(0, 1, 0, &[1]);
    order(&mut w, 0, None).unwrap();
    let second = w.put(0, 1, 0, &[2]);
    let flush = w.rank(0).flush(1);
    w.drive();
    assert!(w.done(flush) && w.remote(second).is_some());
    w.rank(0).unlock_all();
    w.drive();
    w.finish();
}

#[test]
fn or1_order_needs_an_access_epoch() {
    let mut w = World::new(3);
    assert_eq!(order(&mut w, 0, Some(1)), Err(SyncError::NoAccessEpoch));
    assert_eq!(order(&mut w, 0, None), Err(SyncError::NoAccessEpoch));
    w.rank(0).exclusive(1);
    w.drive();
    assert_eq!(order(&mut w, 0, Some(1)), Ok(()));
    assert_eq!(order(&mut w, 0, Some(2)), Err(SyncError::NoAccessEpoch));
    assert_eq!(order(&mut w, 0, None), Ok(()));
    w.rank(0).unlock(1);
    w.drive();
    for me in 0..3 {
        w.rank(me).fence();
    }
    w.drive();
    assert_eq!(order(&mut w, 0, None), Ok(()), "a fence opened an epoch");
    assert!(!w.window(0).has_open_epoch(), "which stays tentative [EP-11]");
    w.finish();
}
