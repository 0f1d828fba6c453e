//! [EP-1] to [EP-11]: the life of an epoch, after the paper's rules 1 to 5 of section VI.A.

use mpix_rma::engine::*;

use crate::world::*;

// ---- EP-1 ----

#[test]
fn ep1_opening_calls_return_while_nothing_is_granted() {
    let mut w = World::new(4);
    w.rank(3).exclusive(2);
    w.rank(0).start(&[1]);
    let put = w.put(0, 1, 0, &[1]);
    let access = w.rank(0).complete();
    w.rank(0).post(&[1]);
    let exposure = w.rank(0).wait();
    w.rank(0).exclusive(2);
    let lock = w.rank(0).unlock(2);
    w.rank(0).lock_all();
    let lock_all = w.rank(0).unlock_all();
    w.drive();
    assert_eq!(w.now(), 0, "no call took time, and none has sent anything");
    assert!([access, exposure, lock, lock_all].iter().all(|r| !w.done(*r)));
    assert_eq!(w.posted(put), None);

    w.rank(1).post(&[0]);
    let peer = w.rank(1).wait();
    w.drive();
    assert!(w.done(access) && w.done(peer) && !w.done(exposure));
    w.rank(1).start(&[0]);
    let peer = w.rank(1).complete();
    w.drive();
    assert!(w.done(exposure) && w.done(peer) && !w.done(lock));
    let holder = w.rank(3).unlock(2);
    w.finish();
    assert!(w.done(holder) && w.done(lock) && w.done(lock_all));
}

/// After a nonblocking lock, loads and stores are allowed once a flush has completed. The flush
/// never completes before the grant.
#[test]
fn ep1_a_completed_flush_means_that_the_lock_is_held() {
    for mode in [LockMode::Shared, LockMode::Exclusive] {
        let mut w = World::new(3);
        w.rank(0).exclusive(2);
        w.rank(1).lock(mode, 2);
        let flushes = [
            w.rank(1).flush(2),
            w.rank(1).flush_local(2),
            w.rank(1).flush(None),
            w.rank(1).flush_local(None),
        ];
        w.drive();
        assert!(!w.holds(1, 2) && flushes.iter().all(|f| !w.done(*f)), "{mode:?}");
        w.rank(0).unlock(2);
        w.drive();
        assert!(w.holds(1, 2) && flushes.iter().all(|f| w.done(*f)), "{mode:?}");
        w.rank(1).unlock(2);
        w.finish();
    }
    let mut w = World::new(3);
    w.rank(0).exclusive(2);
    w.rank(1).lock_all();
    let flushes = [w.rank(1).flush(1), w.rank(1).flush(None), w.rank(1).flush_local(2)];
    w.drive();
    assert!(!w.window(1).holds_lock_all() && flushes.iter().all(|f| !w.done(*f)));
    w.rank(0).unlock(2);
    w.drive();
    assert!(w.window(1).holds_lock_all() && flushes.iter().all(|f| w.done(*f)));
    w.rank(1).unlock_all();
    w.finish();
}

/// A deferred lock is not requested, and its flush waits for the activation too.
#[test]
fn ep1_a_deferred_lock_is_not_held() {
    let mut w = World::new(3);
    w.rank(0).post(&[1]);
    let exposure = w.rank(0).wait();
    w.rank(0).exclusive(2);
    let flush = w.rank(0).flush(2);
    w.drive();
    assert!(!w.holds(0, 2) && !w.done(flush) && w.net.calls[0].rmw == 0);
    w.rank(1).start(&[0]);
    w.rank(1).complete();
    w.drive();
    assert!(w.done(exposure) && w.holds(0, 2) && w.done(flush));
    w.rank(0).unlock(2);
    w.finish();
}

// ---- EP-2 (rule 1) ----

#[test]
fn ep2_blocking_and_nonblocking_calls_mix_in_one_epoch() {
    for (origin_blocks, target_blocks) in
        [(false, false), (false, true), (true, false), (true, true)]
    {
        let mut w = World::new(2);
        w.rank(1).post(&[0]);
        w.rank(0).start(&[1]);
        w.put(0, 1, 0, &[7]);
        let complete = w.rank(0).complete();
        if origin_blocks {
            w.block(complete);
        }
        let wait = w.rank(1).wait();
        if target_blocks {
            w.block(wait);
            assert_eq!(w.mem(1, 0, 1), [7]);
        }
        w.finish();
        assert_eq!(w.mem(1, 0, 1), [7]);
    }
}

/// Rule 2: a closed epoch need not be complete.
#[test]
fn ep2_a_closed_epoch_may_be_incomplete() {
    let mut w = World::new(2);
    w.rank(1).exclusive(1);
    w.rank(0).exclusive(1);
    let (op, buf) = w.get(0, 1, 0, 4);
    let unlock = w.rank(0).unlock(1);
    w.drive();
    assert!(!w.done(unlock) && w.posted(op).is_none());
    assert_eq!(w.buf(buf), [0xee; 4], "the buffer is not touched yet");
    w.rank(1).unlock(1);
    w.finish();
    assert_eq!(w.buf(buf), [0; 4]);
}

// ---- EP-3 (rule 3) ----

#[test]
fn ep3_accesses_and_exposures_match_in_order() {
    for accesses_first in [true, false] {
        let mut w = World::new(2);
        let accesses = |w: &mut World| {
            for value in 1..=4u8 {
                w.rank(0).start(&[1]);
                w.put(0, 1, 0, &[value]);
                w.put(0, 1, value as usize, &[value]);
                w.rank(0).complete();
            }
        };
        if accesses_first {
            accesses(&mut w);
            w.drive();
        }
        // Each exposure sees its own access and no later one.
        let mut waits = Vec::new();
        for _ in 1..=4 {
            w.rank(1).post(&[0]);
            waits.push(w.rank(1).wait());
        }
        if !accesses_first {
            w.drive();
            accesses(&mut w);
        }
        for (k, wait) in waits.iter().enumerate() {
            assert!(w.drive_until(|w| w.done(*wait)));
            let mut expect = [0; 5];
            (1..=k + 1).for_each(|i| expect[i] = i as u8);
            expect[0] = k as u8 + 1;
            assert_eq!(w.mem(1, 0, 5), expect, "after exposure {}", k + 1);
        }
        w.finish();
    }
}

/// The example of the paper's section VII.B: the sixth access of P0 is the fifth to P1 and the
/// second to P2.
#[test]
fn ep3_order_is_kept_per_pair() {
    let groups: [&[Rank]; 6] = [&[1], &[1], &[1], &[1], &[2], &[1, 2]];
    let mut w = World::new(3);
    // P2 opens both of its exposures before P0 opens anything.
    w.rank(2).post(&[0]);
    let first = w.rank(2).wait();
    w.rank(2).post(&[0]);
    let second = w.rank(2).wait();
    w.drive();
    for (i, group) in groups.iter().enumerate() {
        w.rank(0).start(group);
        for &target in *group {
            w.put(0, target, 0, &[i as u8]);
        }
        w.rank(0).complete();
    }
    w.drive();
    assert!(!w.done(first));
    for i in [0, 1, 2, 3, 5] {
        w.rank(1).post(&[0]);
        let wait = w.rank(1).wait();
        w.block(wait);
        assert_eq!(w.mem(1, 0, 1), [i]);
        if i == 3 {
            w.block(first);
            assert_eq!(w.mem(2, 0, 1), [4]);
            w.drive();
            assert!(!w.done(second) || w.mem(2, 0, 1) == [5]);
        }
    }
    w.finish();
    assert!(w.done(second));
    assert_eq!(w.mem(2, 0, 1), [5]);
}

// ---- EP-4 (rule 4) ----

/// The flags allow the third epoch to overtake each of the others, but no deferred epoch is
/// skipped.
#[test]
fn ep4_no_epoch_is_skipped() {
    let flags = ReorderFlags {
        access_after_access: true,
        access_after_exposure: true,
        ..Default::default()
    };
    let mut w = World::with_flags(4, flags);
    w.rank(3).post(&[0]);
    w.rank(3).wait();
    w.rank(0).start(&[1]);
    w.put(0, 1, 0, &[1]);
    let first = w.rank(0).complete();
    w.rank(0).post(&[2]);
    let second = w.rank(0).wait();
    w.rank(0).start(&[3]);
    let put = w.put(0, 3, 0, &[3]);
    let third = w.rank(0).complete();
    w.drive();
    assert_eq!(w.posted(put), None, "behind an exposure that cannot be activated");
    w.rank(1).post(&[0]);
    w.rank(1).wait();
    w.drive();
    assert!(w.done(first) && !w.done(second) && w.done(third), "now it overtakes the exposure");
    w.rank(2).start(&[0]);
    w.rank(2).complete();
    w.finish();
}

#[test]
fn ep4_deferred_locks_are_requested_in_order_of_opening() {
    let mut w = World::new(6);
    w.rank(5).start(&[0]);
    w.rank(0).post(&[5]);
    let exposure = w.rank(0).wait();
    for target in [4, 2, 3] {
        w.rank(0).exclusive(target);
    }
    w.drive();
    assert!(w.net.lock_writes.is_empty());
    w.rank(5).complete();
    w.drive();
    assert!(w.done(exposure));
    let tails: Vec<Rank> =
        w.net.lock_writes.iter().filter(|c| c.word == LockWord::Tail).map(|c| c.home).collect();
    assert_eq!(tails, [4, 2, 3]);
    for target in [2, 3, 4] {
        w.rank(0).unlock(target);
    }
    w.finish();
}

// ---- EP-5 (rule 5) ----

#[test]
fn ep5_a_fence_delays_completion_but_not_its_caller() {
    let mut w = World::new(3);
    let firsts: Vec<Req> = (0..3).map(|r| w.rank(r).fence()).collect();
    w.drive();
    assert!(firsts.iter().all(|r| w.done(*r)));
    let before = w.now();
    w.put(0, 1, 0, &[1]);
    let closing = w.rank(0).fence();
    let next = w.put(0, 1, 0, &[2]);
    let last = w.rank(0).fence();
    assert_eq!(w.now(), before);
    w.rank(1).fence();
    w.drive();
    assert!(!w.done(closing) && w.posted(next).is_none(), "rank 2 has not called it");
    w.rank(2).fence();
    w.drive();
    assert!(w.done(closing) && w.posted(next).is_some() && !w.done(last));
    w.rank(1).fence();
    w.rank(2).fence();
    w.finish();
    assert_eq!(w.mem(1, 0, 1), [2]);
}

// ---- EP-7 ----

/// Overlap is decided when the second epoch is opened, whatever is closed first.
#[test]
fn ep7_epochs_open_together_do_not_wait_for_each_other() {
    // The exposure is closed first and cannot complete. The access does not wait for it.
    let mut w = World::new(3);
    w.rank(2).post(&[0]);
    w.rank(2).wait();
    w.rank(0).post(&[1]);
    w.rank(0).start(&[2]);
    let exposure = w.rank(0).wait();
    w.put(0, 2, 0, &[1]);
    let access = w.rank(0).complete();
    w.drive();
    assert!(w.done(access) && !w.done(exposure));
    w.rank(1).start(&[0]);
    w.rank(1).complete();
    w.finish();

    // The reverse.
    let mut w = World::new(3);
    w.rank(0).start(&[1]);
    w.put(0, 1, 0, &[1]);
    w.rank(0).post(&[2]);
    let access = w.rank(0).complete();
    let exposure = w.rank(0).wait();
    w.rank(2).start(&[0]);
    w.rank(2).complete();
    w.drive();
    assert!(!w.done(access) && w.done(exposure));
    w.rank(1).post(&[0]);
    w.rank(1).wait();
    w.finish();
}

/// What other threads open while a blocking call closes an epoch overlaps it.
#[test]
fn ep7_an_epoch_overlaps_one_that_a_blocking_call_is_closing() {
    for blocking in [true, false] {
        // The exposure waits for this process's own access, which is opened later.
        let mut w = World::new(1);
        w.rank(0).post(&[0]);
        let exposure = w.rank(0).wait();
        if blocking {
            w.overlap_closing(exposure);
        }
        w.rank(0).start(&[0]);
        let access = w.rank(0).complete();
        w.drive();
        assert_eq!((w.done(access), w.done(exposure)), (blocking, blocking));

        // The reverse.
        let mut w = World::new(1);
        w.rank(0).start(&[0]);
        w.put(0, 0, 0, &[1]);
        let access = w.rank(0).complete();
        if blocking {
            w.overlap_closing(access);
        }
        w.rank(0).post(&[0]);
        let exposure = w.rank(0).wait();
        w.drive();
        assert_eq!((w.done(access), w.done(exposure)), (blocking, blocking));
    }
}

/// Both epochs are deferred and closed long before their activation. They still overlap.
#[test]
fn ep7_overlap_is_remembered_through_deferral() {
    let mut w = World::new(3);
    let fence = w.rank(0).fence();
    w.rank(0).post(&[1]);
    w.rank(0).start(&[2]);
    w.put(0, 2, 0, &[5]);
    let exposure = w.rank(0).wait();
    let access = w.rank(0).complete();
    w.drive();
    assert!(!w.done(fence));
    w.rank(1).fence();
    w.rank(2).fence();
    w.rank(2).post(&[0]);
    w.rank(2).wait();
    w.drive();
    assert!(w.done(fence) && w.done(access) && !w.done(exposure));
    w.rank(1).start(&[0]);
    w.rank(1).complete();
    w.finish();
}

/// An epoch waits for those that were closed before it was opened, and for no others.
#[test]
fn ep7_an_epoch_waits_only_for_those_closed_before_it_was_opened() {
    let mut w = World::new(4);
    w.rank(3).post(&[0]);
    w.rank(3).wait();
    w.rank(0).start(&[1]);
    w.put(0, 1, 0, &[1]);
    w.rank(0).post(&[2]);
    w.rank(0).complete();
    w.rank(0).wait();
    w.rank(0).start(&[3]);
    let put = w.put(0, 3, 0, &[1]);
    w.rank(0).complete();
    w.drive();
    assert_eq!(w.posted(put), None);
    w.rank(1).post(&[0]);
    w.rank(1).wait();
    w.drive();
    assert_eq!(w.posted(put), None, "the exposure is still incomplete");
    w.rank(2).start(&[0]);
    w.rank(2).complete();
    w.finish();
}

#[test]
fn ep7_locks_of_different_targets_are_independent() {
    let mut w = World::new(4);
    w.rank(3).exclusive(1);
    w.rank(0).exclusive(1);
    w.rank(0).exclusive(2);
    w.put(0, 1, 0, &[1]);
    let put = w.put(0, 2, 0, &[2]);
    let second = w.rank(0).unlock(2);
    let first = w.rank(0).unlock(1);
    w.drive();
    assert!(w.remote(put).is_some() && w.done(second) && !w.done(first));
    w.rank(3).unlock(1);
    w.finish();
}

// ---- EP-8 ----

/// An operation is recorded by address: it sends what the buffer holds when it is posted.
#[test]
fn ep8_a_recorded_operation_reads_its_buffer_when_it_is_posted() {
    for mode in [Mode::Immediate, Mode::LocalThenRemote, Mode::Pending] {
        let mut w = World::with_mode(2, mode);
        let op = w.put_op(0, 1, 0, &[1, 1]);
        w.rank(0).start(&[1]);
        w.issue(0, op);
        w.rank(0).complete();
        w.drive();
        w.overwrite(0, op.origin, &[2, 2]);
        w.rank(1).post(&[0]);
        w.rank(1).wait();
        w.finish();
        assert_eq!(w.mem(1, 0, 2), [2, 2], "{mode:?}");
    }
}

/// After local completion the buffer belongs to the application again.
#[test]
fn ep8_the_buffer_is_free_after_local_completion() {
    for mode in [Mode::LocalThenRemote, Mode::Pending] {
        let mut w = World::with_mode(2, mode);
        let op = w.put_op(0, 1, 0, &[1, 1]);
        w.rank(0).exclusive(1);
        let id = w.issue(0, op);
        let local = w.rank(0).flush_local(1);
        w.block(local);
        assert_eq!(w.remote(id), None, "{mode:?}");
        w.overwrite(0, op.origin, &[2, 2]);
        w.rank(0).unlock(1);
        w.finish();
        assert_eq!(w.mem(1, 0, 2), [1, 1], "{mode:?}");
    }
}

// ---- EP-9 ----

/// Epochs of every kind are opened, used and closed while a fence delays the first activation.
#[test]
fn ep9_epochs_are_closed_before_they_are_activated() {
    let mut w = World::new(3);
    let mut closes = vec![w.rank(0).fence()];
    w.put(0, 1, 0, &[1]);
    closes.push(w.rank(0).fence());
    w.rank(0).start(&[1, 2]);
    w.put(0, 1, 1, &[2]);
    w.put(0, 2, 1, &[2]);
    closes.push(w.rank(0).complete());
    w.rank(0).post(&[1, 2]);
    closes.push(w.rank(0).wait());
    w.rank(0).exclusive(1);
    w.put(0, 1, 2, &[3]);
    closes.push(w.rank(0).unlock(1));
    w.rank(0).lock_all();
    w.put(0, 2, 2, &[4]);
    closes.push(w.rank(0).unlock_all());
    w.drive();
    assert!(closes.iter().all(|r| !w.done(*r)));
    for peer in [1, 2] {
        w.rank(peer).fence();
        w.rank(peer).fence();
        w.rank(peer).post(&[0]);
        w.rank(peer).wait();
        w.rank(peer).start(&[0]);
        w.put(peer, 0, peer as usize, &[9]);
        w.rank(peer).complete();
    }
    w.finish();
    let times: Vec<Time> = closes.iter().map(|r| w.done_at(*r)).collect();
    assert!(times.is_sorted(), "the order of the blocking form [EP-10]: {times:?}");
    assert_eq!(w.mem(1, 0, 3), [1, 2, 3]);
    assert_eq!(w.mem(2, 0, 3), [0, 2, 4]);
    assert_eq!(w.mem(0, 0, 3), [0, 9, 9]);
}

// ---- EP-10 ----

/// A slow put and a later fast one to the same location, in epochs of every kind: the later epoch's
/// value remains.
#[test]
fn ep10_epochs_take_effect_in_the_order_of_the_blocking_form() {
    type Epoch = fn(&mut World, u8);
    let access: Epoch = |w, value| {
        w.rank(1).post(&[0]);
        w.rank(0).start(&[1]);
        w.put(0, 1, 0, &[value]);
        w.rank(0).complete();
        w.rank(1).wait();
    };
    let lock: Epoch = |w, value| {
        w.rank(0).shared(1);
        w.put(0, 1, 0, &[value]);
        w.rank(0).unlock(1);
    };
    let lock_all: Epoch = |w, value| {
        w.rank(0).lock_all();
        w.put(0, 1, 0, &[value]);
        w.rank(0).unlock_all();
    };
    let fence: Epoch = |w, value| {
        w.rank(0).fence();
        w.rank(1).fence();
        w.put(0, 1, 0, &[value]);
        w.rank(0).fence();
        w.rank(1).fence();
    };
    let kinds = [access, lock, lock_all, fence];
    for (i, first) in kinds.iter().enumerate() {
        for (j, second) in kinds.iter().enumerate() {
            for mode in [Mode::LocalThenRemote, Mode::Pending] {
                let mut w = World::with_mode(2, mode);
                w.net.script_latencies(0, 1, &[100, 1]);
                first(&mut w, 1);
                second(&mut w, 2);
                w.finish();
                assert_eq!(w.mem(1, 0, 1), [2], "kinds {i} and {j}, {mode:?}");
            }
        }
    }
}

/// Epochs closed before a fence complete before its barrier, so a peer that has passed the fence
/// sees their effects.
#[test]
fn ep10_a_fence_follows_the_epochs_closed_before_it() {
    let mut w = World::new(2);
    w.net.script_latencies(0, 1, &[100]);
    w.rank(0).exclusive(1);
    let put = w.put(0, 1, 0, &[1]);
    w.rank(0).unlock(1);
    w.rank(0).fence();
    let peer = w.rank(1).fence();
    w.block(peer);
    assert!(w.remote(put).is_some());
    w.finish();
}

// ---- EP-11 ----

/// `fence; put; fence`, followed by an epoch of another kind on the same window.
#[test]
fn ep11_the_tentative_epoch_dissolves() {
    type Call = fn(&mut World);
    let start: Call = |w| {
        w.rank(1).post(&[0]);
        w.rank(0).start(&[1]);
        w.put(0, 1, 0, &[1]);
        w.rank(0).complete();
        w.rank(1).wait();
    };
    let lock: Call = |w| {
        w.rank(0).exclusive(1);
        w.put(0, 1, 0, &[1]);
        w.rank(0).unlock(1);
    };
    let lock_all: Call = |w| {
        w.rank(0).lock_all();
        w.put(0, 1, 0, &[1]);
        w.rank(0).unlock_all();
    };
    for epoch in [start, lock, lock_all] {
        let mut w = World::new(2);
        for me in [0, 1] {
            w.rank(me).fence();
        }
        w.put(0, 1, 8, &[9]);
        for me in [0, 1] {
            w.rank(me).fence();
        }
        assert!(
            !w.window(0).has_open_epoch(),
            "a fence leaves nothing that would forbid a free [RQ-5]"
        );
        epoch(&mut w);
        w.drive();
        let op = w.put_op(0, 1, 0, &[2]);
        assert_eq!(
            w.raw(0, |win, p| win.issue(p, &op)),
            Err(SyncError::NoAccessEpoch),
            "dissolved for good"
        );
        w.finish();
        assert_eq!((w.mem(1, 0, 1), w.mem(1, 8, 1)), (&[1][..], &[9][..]));
    }
}

/// A post dissolves the local exposure part only. The access part may still become real.
#[test]
fn ep11_a_post_dissolves_the_exposure_part_only() {
    let mut w = World::new(3);
    (0..3).for_each(|me| _ = w.rank(me).fence());
    w.rank(0).post(&[1]);
    let put = w.put(0, 2, 0, &[3]);
    w.rank(1).start(&[0]);
    w.put(1, 0, 0, &[4]);
    w.rank(1).complete();
    let wait = w.rank(0).wait();
    w.drive();
    assert!(w.done(wait) && w.remote(put).is_some());
    (0..3).for_each(|me| _ = w.rank(me).fence());
    w.finish();
    assert_eq!((w.mem(2, 0, 1), w.mem(0, 0, 1)), (&[3][..], &[4][..]));
}
