//! [LK-1] to [LK-6]: order of locks, hand-over without the target, cost, and lock_all beside
//! exclusive locks. The world checks mutual exclusion at each operation and whenever a lock is
//! held.

use mpix_rma::engine::*;

use crate::world::*;

/// Processes that hold the lock of `target` or a lock_all.
fn holders(w: &World, target: Rank) -> Vec<Rank> {
    (0..w.size()).filter(|me| w.holds(*me, target) || w.window(*me).holds_lock_all()).collect()
}

// ---- LK-1 ----

#[test]
fn lk1_exclusive_waiters_are_served_in_order_of_arrival() {
    let order = [2, 5, 1, 4, 3];
    let mut w = World::new(7);
    w.rank(0).exclusive(6);
    for me in order {
        w.rank(me).exclusive(6);
        w.drive();
    }
    let mut holder = 0;
    for next in order {
        assert_eq!(holders(&w, 6), [holder]);
        w.rank(holder).unlock(6);
        w.drive();
        holder = next;
    }
    assert_eq!(holders(&w, 6), [holder]);
    w.rank(holder).unlock(6);
    w.finish();
}

/// Neighbouring shared waiters are granted together, but not those behind an exclusive waiter.
#[test]
fn lk1_neighbouring_shared_waiters_are_granted_in_one_batch() {
    use LockMode::{Exclusive, Shared};
    let mut w = World::new(9);
    let queue = [
        (0, Exclusive),
        (1, Shared),
        (2, Shared),
        (3, Shared),
        (4, Exclusive),
        (5, Shared),
        (6, Shared),
        (7, Exclusive),
    ];
    for (me, mode) in queue {
        w.rank(me).lock(mode, 8);
        w.drive();
    }
    for batch in [&[0][..], &[1, 2, 3], &[4], &[5, 6], &[7]] {
        assert_eq!(holders(&w, 8), batch);
        // Shared holders leave in any order. The next batch waits for the last of them.
        for (left, me) in batch.iter().rev().enumerate() {
            assert_eq!(holders(&w, 8).len(), batch.len() - left);
            w.rank(*me).unlock(8);
            w.drive();
        }
    }
    assert_eq!(holders(&w, 8), [0; 0]);
    w.finish();
}

#[test]
fn lk1_shared_requests_join_shared_holders() {
    let mut w = World::new(5);
    for me in 0..4 {
        w.rank(me).shared(4);
        w.drive();
        assert_eq!(holders(&w, 4), (0..=me).collect::<Vec<_>>());
    }
    // They leave in another order than they came, while others arrive.
    w.rank(0).unlock(4);
    w.rank(2).unlock(4);
    w.drive();
    w.rank(0).shared(4);
    w.drive();
    assert_eq!(holders(&w, 4), [0, 1, 3]);
    [3, 0, 1].iter().for_each(|me| _ = w.rank(*me).unlock(4));
    w.finish();
}

/// Shared holders, leaving in any order, hand over to the exclusive waiter exactly once.
#[test]
fn lk1_the_last_reader_hands_over() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        for arrives_after in 0..=3 {
            let mut w = World::new(5);
            (0..3).for_each(|me| w.rank(me).shared(4));
            w.drive();
            for (left, me) in order.iter().enumerate() {
                if left == arrives_after {
                    w.rank(3).exclusive(4);
                    w.drive();
                }
                assert!(!w.holds(3, 4));
                w.rank(*me).unlock(4);
                w.drive();
            }
            if arrives_after == 3 {
                w.rank(3).exclusive(4);
                w.drive();
            }
            assert_eq!(holders(&w, 4), [3], "{order:?}, writer after {arrives_after}");
            w.rank(3).unlock(4);
            w.finish();
        }
    }
}

// ---- LK-2 ----

/// The process that hands over writes the waiter's grant word. Neither lock nor unlock contacts the
/// target.
#[test]
fn lk2_the_releaser_writes_the_grant_without_contacting_the_target() {
    let mut w = World::new(3);
    w.rank(0).exclusive(2);
    w.put(0, 2, 0, &[1]);
    w.rank(1).exclusive(2);
    w.drive();
    let before = w.net.lock_writes.len();
    w.rank(0).unlock(2);
    w.drive();
    assert!(w.holds(1, 2));
    let grants: Vec<_> = w.net.lock_writes[before..]
        .iter()
        .filter(|c| matches!(c.word, LockWord::Grant { .. }))
        .copied()
        .collect();
    assert_eq!(grants.len(), 1);
    assert_eq!(
        (grants[0].by, grants[0].home, grants[0].word),
        (0, 1, LockWord::Grant { target: 2 })
    );
    w.rank(1).unlock(2);
    w.finish();
    assert!(w.net.signals.is_empty());
    assert_eq!(w.net.calls[2].lock_words(), 0, "the target does nothing");
}

/// A grant names its request, so an earlier grant is not mistaken for a new one.
#[test]
fn lk2_an_old_grant_does_not_grant_a_new_request() {
    let mut w = World::new(3);
    for _ in 0..5 {
        w.rank(0).exclusive(2);
        w.drive();
        w.rank(1).exclusive(2);
        w.drive();
        assert_eq!(holders(&w, 2), [0]);
        w.rank(0).unlock(2);
        w.drive();
        assert_eq!(holders(&w, 2), [1]);
        w.rank(0).shared(2);
        w.drive();
        assert_eq!(holders(&w, 2), [1], "the grant word of rank 0 still holds an old grant");
        w.rank(1).unlock(2);
        w.drive();
        w.rank(0).unlock(2);
        w.drive();
    }
    w.finish();
}

// ---- LK-3 ----

/// The lock moves while the target computes and makes no call at all.
#[test]
fn lk3_the_lock_moves_while_the_target_computes() {
    let mut w = World::new(5);
    w.freeze(4);
    for round in 0..10u64 {
        for me in 0..4 {
            let mode = if (round + u64::from(me)) % 3 == 0 {
                LockMode::Shared
            } else {
                LockMode::Exclusive
            };
            w.rank(me).lock(mode, 4);
            w.add(me, 4, 0, 1);
            w.rank(me).unlock(4);
        }
    }
    w.rank(0).lock_all();
    w.add(0, 4, 0, 1);
    let last = w.rank(0).unlock_all();
    w.drive();
    assert!(w.done(last));
    assert_eq!(w.cell(4, 0), 41);
    assert_eq!(w.net.calls[4].total(), 0);
    w.finish();
}

/// A releaser never waits, even if all its successors compute.
#[test]
fn lk3_release_is_wait_free() {
    use LockMode::{Exclusive, Shared};
    for (holder, successor) in
        [(Exclusive, Exclusive), (Exclusive, Shared), (Shared, Exclusive), (Shared, Shared)]
    {
        let mut w = World::new(4);
        w.rank(0).lock(holder, 3);
        w.drive();
        w.rank(1).lock(successor, 3);
        w.rank(2).exclusive(3);
        w.drive();
        w.freeze(1);
        w.freeze(2);
        let before = w.net.calls[0].lock_words();
        let unlock = w.rank(0).unlock(3);
        assert!(w.done(unlock), "{holder:?} before {successor:?}");
        assert!(w.net.calls[0].lock_words() - before < 12);
        w.drive();
        w.thaw(2);
        w.drive();
        assert!(!w.holds(2, 3), "rank 1 has the lock, though it does not know yet");
        w.thaw(1);
        w.drive();
        assert!(w.holds(1, 3));
        w.rank(1).unlock(3);
        w.drive();
        assert_eq!(holders(&w, 3), [2]);
        w.rank(2).unlock(3);
        w.finish();
    }
}

/// The releaser also grants the readers behind a reader, because that reader may be computing.
#[test]
fn lk3_the_releaser_grants_neighbouring_readers_itself() {
    let mut w = World::new(6);
    w.rank(0).exclusive(5);
    w.drive();
    for me in 1..5 {
        w.rank(me).shared(5);
        w.drive();
    }
    w.freeze(1);
    w.freeze(3);
    w.rank(0).unlock(5);
    w.drive();
    assert_eq!(holders(&w, 5), [2, 4]);
    w.thaw(1);
    w.thaw(3);
    w.drive();
    assert_eq!(holders(&w, 5), [1, 2, 3, 4]);
    (1..5).for_each(|me| _ = w.rank(me).unlock(5));
    w.finish();
}

// ---- LK-4 ----

/// An uncontended exclusive lock takes two atomics: on the window's word and the target's; with a
/// licence, on the process's own word and the target's.
#[test]
fn lk4_an_uncontended_exclusive_lock_is_two_atomics() {
    for (me, target) in [(0, 1), (1, 0), (2, 2), (0, 0), (1, 2)] {
        let mut w = World::new(3);
        for round in 0..5 {
            let licensed = round >= 3;
            assert_eq!(w.is_licensed(me), licensed);
            let (before, writes) = (w.net.calls[me as usize], w.net.lock_writes.len());
            w.rank(me).exclusive(target);
            w.drive();
            assert!(w.holds(me, target));
            // The third lock acquires the licence, with one exchange on the window's word and one
            // on its own.
            let more = if round == 2 { 2 } else { 0 };
            assert_eq!(
                w.net.calls[me as usize].rmw - before.rmw,
                2 + more,
                "rank {me} on {target}, round {round}"
            );
            let mut words: Vec<_> =
                w.net.lock_writes[writes..].iter().map(|c| (c.home, c.word)).collect();
            words.retain(|(_, word)| !matches!(word, LockWord::Next { .. }));
            words.sort();
            words.retain(|(_, word)| {
                round != 2 || matches!(word, LockWord::Holders | LockWord::Tail)
            });
            let right = if licensed { (me, LockWord::Licence) } else { (0, LockWord::Holders) };
            let mut expected = [right, (target, LockWord::Tail)];
            expected.sort();
            assert_eq!(words, expected);
            w.rank(me).unlock(target);
            w.drive();
            assert!(
                w.net.calls[me as usize].rmw - before.rmw <= 4 + more,
                "and two to give it back"
            );
        }
        w.finish();
    }
}

/// A lock_all and its release cost the same in a window of any size from two processes on.
#[test]
fn lk4_lock_all_costs_the_same_at_any_size() {
    for ranks in [2, 16, 256] {
        let mut w = World::new(ranks);
        let me = ranks - 1;
        w.rank(me).lock_all();
        w.progress_all();
        assert!(w.window(me).holds_lock_all());
        assert_eq!(w.net.calls[me as usize].lock_words(), 1, "{ranks} processes");
        w.rank(me).unlock_all();
        assert_eq!(w.net.calls[me as usize].lock_words(), 2);
        assert!(w.net.signals.is_empty());
        w.finish();
    }
}

/// Shared locks and lock_alls do not exclude each other.
#[test]
fn lk4_lock_all_is_shared() {
    let mut w = World::new(4);
    w.rank(0).lock_all();
    w.rank(1).shared(3);
    w.rank(2).lock_all();
    w.drive();
    assert_eq!(holders(&w, 3), [0, 1, 2]);
    w.rank(0).unlock_all();
    w.rank(1).unlock(3);
    w.rank(2).unlock_all();
    w.finish();
}

/// A lock_all and an exclusive lock exclude each other, in both orders.
#[test]
fn lk4_lock_all_excludes_exclusive_locks() {
    let mut w = World::new(3);
    w.rank(0).lock_all();
    w.rank(1).exclusive(2);
    w.drive();
    assert_eq!(holders(&w, 2), [0]);
    w.rank(0).unlock_all();
    w.drive();
    assert_eq!(holders(&w, 2), [1]);
    w.rank(0).lock_all();
    w.drive();
    assert_eq!(holders(&w, 2), [1]);
    w.rank(1).unlock(2);
    w.drive();
    assert_eq!(holders(&w, 2), [0]);
    w.rank(0).unlock_all();
    w.finish();
}

// ---- LK-5 ----

#[test]
fn lk5_a_lock_is_requested_by_the_opening_call() {
    for mode in [LockMode::Shared, LockMode::Exclusive] {
        let mut w = World::new(2);
        w.rank(0).lock(mode, 1);
        w.progress_all();
        assert!(w.holds(0, 1), "before any operation, and before the unlock");
        let put = w.put(0, 1, 0, &[1]);
        assert_eq!(w.posted(put), Some(w.now()), "the transfer overlaps what the epoch does next");
        w.drive();
        assert!(w.remote(put).is_some());
        w.rank(0).unlock(1);
        w.finish();
    }
}

// ---- LK-6 ----

/// A lock whose licence is revoked before its first use registers without asking for another
/// licence. Otherwise a process slower than the waiting lock_alls could lose one licence after the
/// other, and never get its second lock while they wait for its first.
#[test]
fn lk6_a_licence_revoked_before_its_use_is_not_requested_again() {
    let (me, waits, held, wanted) = (1, 2, 0, 3);
    let pending = |c: &LockWrite| (c.by, c.word, c.value) == (me, LockWord::Licence, 4 << 32);
    let taken_off =
        |c: &LockWrite| (c.by, c.home, c.word, c.value) == (waits, me, LockWord::Licence, 0);
    let mut w = World::new(4);
    w.net.slow_locks = true;
    w.rank(me).exclusive(held);
    w.rank(me).unlock(held);
    w.drive();
    w.rank(me).exclusive(held);
    w.drive();
    w.rank(waits).lock_all();
    w.rank(me).exclusive(wanted);
    // The licence is on the stack, linked to no other, and not in use yet.
    let linked = |c: &LockWrite| (c.by, c.word, c.value) == (me, LockWord::NextLicensed, 0);
    assert!(w.drive_until(|w| w.net.lock_writes.iter().any(linked)));
    w.freeze(me);
    assert!(w.drive_until(|w| w.net.lock_writes.iter().any(taken_off)));
    w.thaw(me);
    assert!(w.drive_until(|w| w.holds(me, wanted)));
    assert_eq!(w.net.lock_writes.iter().filter(|c| pending(c)).count(), 1);
    w.rank(me).unlock(held);
    w.rank(me).unlock(wanted);
    assert!(w.drive_until(|w| w.window(waits).holds_lock_all()));
    w.rank(waits).unlock_all();
    w.finish();
}

/// A waiting lock_all holds nothing, so a process that holds a lock gets further locks before it.
#[test]
fn lk6_a_holder_is_never_queued_behind_a_waiting_lock_all() {
    for first in [LockMode::Exclusive, LockMode::Shared] {
        for second in [LockMode::Exclusive, LockMode::Shared] {
            let mut w = World::new(6);
            w.rank(3).exclusive(5);
            w.rank(0).lock(first, 1);
            w.drive();
            w.rank(4).lock_all();
            w.drive();
            assert!(!w.window(4).holds_lock_all());
            w.rank(0).lock(second, 2);
            w.drive();
            assert!(w.holds(0, 2), "{first:?} held, {second:?} asked for");
            assert!(!w.window(4).holds_lock_all());
            w.rank(0).unlock(1);
            w.rank(0).unlock(2);
            w.rank(3).unlock(5);
            w.drive();
            assert!(w.window(4).holds_lock_all());
            w.rank(4).unlock_all();
            w.finish();
        }
    }
}

/// One holder waits for the other's target while a lock_all waits: no deadlock.
#[test]
fn lk6_nested_locks_overtake_waiting_lock_alls() {
    let mut w = World::new(5);
    w.rank(0).exclusive(2);
    w.rank(1).exclusive(3);
    w.drive();
    w.rank(4).lock_all();
    w.drive();
    w.rank(0).exclusive(3);
    w.drive();
    assert!(!w.holds(0, 3));
    w.rank(1).unlock(3);
    w.drive();
    assert!(w.holds(0, 3), "it was not queued behind the lock_all");
    w.rank(0).unlock(3);
    w.rank(0).unlock(2);
    w.drive();
    assert!(w.window(4).holds_lock_all());
    w.rank(4).unlock_all();
    w.finish();
}

/// Exclusive locks that overlap endlessly do not starve a lock_all: bounded bypass.
#[test]
fn lk6_exclusive_locks_do_not_starve_a_lock_all() {
    let mut w = World::new(5);
    w.rank(0).exclusive(0);
    w.drive();
    w.rank(4).lock_all();
    w.drive();
    let mut bypassed = 0;
    for round in 0..100u32 {
        let (old, new) = (round % 3, (round + 1) % 3);
        w.rank(new).exclusive(new);
        w.drive();
        bypassed += u32::from(w.holds(new, new));
        w.rank(old).unlock(old);
        w.drive();
        if w.window(4).holds_lock_all() {
            w.rank(4).unlock_all();
            w.drive();
            w.rank(new).unlock(new);
            w.finish();
            assert!(bypassed <= 3, "overtaken {bypassed} times");
            return;
        }
    }
    panic!("the lock_all starves");
}

/// Lock_alls that overlap endlessly do not starve an exclusive lock.
#[test]
fn lk6_lock_alls_do_not_starve_an_exclusive_lock() {
    let mut w = World::new(5);
    w.rank(0).lock_all();
    w.drive();
    w.rank(4).exclusive(3);
    w.drive();
    let mut bypassed = 0;
    for round in 0..100u32 {
        let (old, new) = (round % 3, (round + 1) % 3);
        w.rank(new).lock_all();
        w.drive();
        bypassed += u32::from(w.window(new).holds_lock_all());
        w.rank(old).unlock_all();
        w.drive();
        if w.holds(4, 3) {
            w.rank(4).unlock(3);
            w.drive();
            w.rank(new).unlock_all();
            w.finish();
            assert!(bypassed <= 3, "overtaken {bypassed} times");
            return;
        }
    }
    panic!("the exclusive lock starves");
}

/// Requests that let a lock_all pass leave in the order in which their epochs were opened [EP-10],
/// shared ones too.
#[test]
fn lk6_requests_delayed_by_a_lock_all_leave_in_order_of_opening() {
    let mut w = World::new(6);
    w.rank(4).exclusive(4);
    w.drive();
    w.rank(5).lock_all();
    w.drive();
    w.rank(0).exclusive(1);
    w.rank(0).exclusive(3);
    w.rank(0).shared(2);
    w.drive();
    let tails = |w: &World| -> Vec<Rank> {
        let mine = w.net.lock_writes.iter().filter(|c| c.by == 0 && c.word == LockWord::Tail);
        mine.map(|c| c.home).collect()
    };
    assert_eq!(tails(&w), [0; 0], "the lock_all came first");
    w.rank(4).unlock(4);
    w.drive();
    assert!(w.window(5).holds_lock_all());
    assert_eq!(tails(&w), [1, 3, 2]);
    w.rank(5).unlock_all();
    w.drive();
    assert!([1, 2, 3].iter().all(|target| w.holds(0, *target)));
    [1, 2, 3].iter().for_each(|target| _ = w.rank(0).unlock(*target));
    w.finish();
}

/// All lock_alls that wait behind an exclusive lock are served, then the exclusive locks that came
/// after them.
#[test]
fn lk6_waiting_lock_alls_and_later_exclusive_locks_all_end() {
    let mut w = World::new(8);
    w.rank(0).exclusive(1);
    w.drive();
    for me in 1..4 {
        w.rank(me).lock_all();
        w.add(me, 7, 0, 1);
        w.rank(me).unlock_all();
    }
    for me in 4..8 {
        w.rank(me).exclusive(1);
        w.add(me, 1, 0, 1);
        w.rank(me).unlock(1);
    }
    w.drive();
    w.rank(0).unlock(1);
    w.finish();
    assert_eq!((w.cell(7, 0), w.cell(1, 0)), (3, 4));
}
