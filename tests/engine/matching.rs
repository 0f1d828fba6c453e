//! [MA-1] to [MA-3] and [PR-3]: when a process may access a peer, and when the peer learns that it
//! is done.

use mpix_rma::engine::*;

use crate::world::*;

/// The triple counts start and post epochs only: the grant of a lock is never taken for an
/// exposure's.
#[test]
fn ma1_a_lock_is_not_mistaken_for_an_exposure() {
    let mut w = World::new(2);
    for _ in 0..3 {
        w.rank(0).exclusive(1);
        w.put(0, 1, 0, &[1]);
        w.rank(0).unlock(1);
    }
    w.rank(0).lock_all();
    w.rank(0).unlock_all();
    w.rank(0).start(&[1]);
    let put = w.put(0, 1, 0, &[2]);
    let complete = w.rank(0).complete();
    w.drive();
    assert!(w.posted(put).is_none() && !w.done(complete));
    assert!(w.signals(Word::Grant).is_empty() && w.signals(Word::Done).is_empty());
    w.rank(1).post(&[0]);
    w.rank(1).wait();
    w.finish();
    assert_eq!(w.mem(1, 0, 1), [2]);
}

/// Grants persist for an origin that is several epochs late, and cost one signal each.
#[test]
fn ma1_grants_persist_for_a_late_origin() {
    let flags = ReorderFlags { exposure_after_exposure: true, ..Default::default() };
    let mut w = World::with_flags(2, flags);
    for _ in 0..5 {
        w.rank(1).post(&[0]);
        w.rank(1).wait();
    }
    w.drive();
    let grants = w.signals(Word::Grant);
    assert!(grants.iter().all(|s| (s.from, s.to) == (1, 0)));
    assert_eq!(grants.iter().map(|s| s.value).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    for value in 0..5 {
        w.rank(0).start(&[1]);
        let put = w.put(0, 1, value as usize, &[value]);
        assert_eq!(w.posted(put), Some(w.now()), "granted long ago");
        let complete = w.rank(0).complete();
        w.block(complete);
    }
    w.finish();
    assert_eq!(w.signals(Word::Grant).len(), 5);
    assert_eq!(w.mem(1, 0, 5), [0, 1, 2, 3, 4]);
}

/// An access epoch starts with each target as soon as that target has granted.
#[test]
fn ma1_targets_grant_independently() {
    let mut w = World::new(3);
    w.rank(0).start(&[1, 2]);
    let puts = [w.put(0, 1, 0, &[1]), w.put(0, 2, 0, &[2])];
    let complete = w.rank(0).complete();
    w.rank(2).post(&[0]);
    let second = w.rank(2).wait();
    w.drive();
    assert!(w.posted(puts[0]).is_none() && w.remote(puts[1]).is_some());
    assert!(w.done(second) && !w.done(complete));
    w.rank(1).post(&[0]);
    w.rank(1).wait();
    w.finish();
}

/// A process may be its own peer.
#[test]
fn ma1_a_process_matches_with_itself() {
    let mut w = World::new(1);
    for value in 1..4 {
        w.rank(0).post(&[0]);
        w.rank(0).start(&[0]);
        w.put(0, 0, 0, &[value]);
        w.rank(0).complete();
        let wait = w.rank(0).wait();
        w.block(wait);
        assert_eq!(w.mem(0, 0, 1), [value]);
    }
    w.finish();
}

/// Accesses to one target finish out of order. Their dones leave in order, as one rising word.
#[test]
fn ma2_dones_of_one_pair_leave_in_order() {
    let flags = ReorderFlags {
        access_after_access: true,
        exposure_after_exposure: true,
        ..Default::default()
    };
    let mut w = World::with_flags(3, flags);
    w.net.script_latencies(0, 1, &[500, 10]);
    let mut waits = Vec::new();
    for _ in 0..2 {
        w.rank(1).post(&[0]);
        waits.push(w.rank(1).wait());
    }
    w.rank(2).post(&[0]);
    let other = w.rank(2).wait();
    w.drive();
    w.rank(0).start(&[1, 2]);
    let slow = w.put(0, 1, 0, &[1]);
    w.put(0, 2, 0, &[1]);
    w.rank(0).complete();
    w.rank(0).start(&[1]);
    let fast = w.put(0, 1, 1, &[2]);
    w.rank(0).complete();
    w.run_to(200);
    assert!(w.remote(fast).is_some() && w.remote(slow).is_none());
    assert!(waits.iter().all(|r| !w.done(*r)), "the second done is held back");
    assert!(w.done(other), "a different pair does not wait [PR-3]");
    w.finish();
    let dones: Vec<u64> =
        w.signals(Word::Done).iter().filter(|s| s.to == 1).map(|s| s.value).collect();
    assert!(dones.is_sorted() && dones.last() == Some(&2), "{dones:?}");
    assert!(w.remote(slow).unwrap() < w.done_at(waits[0]));
}

/// `NOCHECK` promises a matching post, but the engine waits for the grant anyway.
#[test]
fn ma3_nocheck_does_not_skip_the_grant() {
    let mut w = World::new(2);
    w.rank(0).start_nocheck(&[1]);
    let put = w.put(0, 1, 0, &[1]);
    let complete = w.rank(0).complete();
    w.drive();
    assert!(w.posted(put).is_none() && !w.done(complete));
    w.rank(1).post(&[0]);
    w.rank(1).wait();
    w.finish();
}

/// A `NOCHECK` lock does not queue and releases nothing.
#[test]
fn ma3_a_nocheck_lock_touches_no_lock_word() {
    let mut w = World::new(3);
    w.rank(1).exclusive(2);
    w.drive();
    let words = |w: &World| {
        [LockWord::Holders, LockWord::Tail, LockWord::Readers]
            .map(|word| [0, 2].map(|r| w.net.lock_word(r, word)))
    };
    let before = words(&w);
    w.rank(0).lock_nocheck(LockMode::Exclusive, 2);
    let put = w.put(0, 2, 0, &[1]);
    assert_eq!(w.posted(put), Some(w.now()));
    let flush = w.rank(0).flush(2);
    let unlock = w.rank(0).unlock(2);
    w.drive();
    assert!(w.done(flush) && w.done(unlock));
    w.rank(0).lock_all_nocheck();
    w.put(0, 2, 1, &[1]);
    let unlock_all = w.rank(0).unlock_all();
    w.drive();
    assert!(w.done(unlock_all));
    assert_eq!(w.net.calls[0].lock_words(), 0);
    assert_eq!(words(&w), before);
    // The other process's lock is unaffected: it is still held and is handed over.
    w.rank(0).exclusive(2);
    w.drive();
    assert!(w.holds(1, 2) && !w.holds(0, 2));
    w.rank(1).unlock(2);
    w.drive();
    assert!(w.holds(0, 2));
    w.rank(0).unlock(2);
    w.finish();
}

/// Each target gets its done as soon as its own last transfer has finished,
#[test]
fn pr3_targets_of_one_epoch_complete_at_different_times() {
    let mut w = World::new(4);
    w.net.script_latencies(0, 1, &[1000]);
    w.net.script_latencies(0, 2, &[100]);
    let waits: Vec<Req> = (1..4)
        .map(|target| {
            w.rank(target).post(&[0]);
            w.rank(target).wait()
        })
        .collect();
    w.rank(0).start(&[1, 2, 3]);
    w.put(0, 1, 0, &[1]);
    w.put(0, 2, 0, &[1]);
    let complete = w.rank(0).complete();
    w.finish();
    let times: Vec<Time> = waits.iter().map(|r| w.done_at(*r)).collect();
    assert!(times[2] < 50, "no transfer at all: {times:?}");
    assert!((100..150).contains(&times[1]), "{times:?}");
    assert!((1000..1050).contains(&times[0]), "{times:?}");
    assert!(w.done_at(complete) >= 1000);
}

/// but not before the epoch is closed.
#[test]
fn pr3_no_done_before_the_epoch_is_closed() {
    let mut w = World::new(2);
    w.rank(1).post(&[0]);
    let wait = w.rank(1).wait();
    w.rank(0).start(&[1]);
    let put = w.put(0, 1, 0, &[1]);
    w.drive();
    assert!(w.remote(put).is_some() && !w.done(wait) && w.signals(Word::Done).is_empty());
    w.rank(0).complete();
    w.finish();
}
