//! [FE-1]: every fence is a nonblocking dissemination barrier.

use mpix_rma::engine::*;

use crate::world::*;

const NOPRECEDE: Assert = Assert { nocheck: false, noprecede: true, nosucceed: false };
const NOSUCCEED: Assert = Assert { nocheck: false, noprecede: false, nosucceed: true };

/// Each process sends ⌈log2 P⌉ messages per fence.
#[test]
fn fe1_a_fence_costs_log_p_messages() {
    for ranks in 1..=17u32 {
        let mut w = World::new(ranks);
        for fence in 1..=3u64 {
            let reqs: Vec<Req> = (0..ranks).map(|me| w.rank(me).fence()).collect();
            w.drive();
            assert!(reqs.iter().all(|r| w.done(*r)));
            let rounds = u64::from(ranks.next_power_of_two().trailing_zeros());
            assert_eq!(
                w.net.signals.len() as u64,
                fence * rounds * u64::from(ranks),
                "{ranks} processes"
            );
        }
        assert!(w.net.signals.iter().all(|s| s.word == Word::Fence));
        w.finish();
    }
}

/// No process passes before every process has entered, whoever is late, with `NOPRECEDE` too.
#[test]
fn fe1_a_fence_is_a_barrier_with_noprecede_too() {
    for assert in [Assert::default(), NOPRECEDE] {
        for ranks in [2, 3, 5, 8] {
            for late in 0..ranks {
                let mut w = World::new(ranks);
                let mut reqs: Vec<Req> = (0..ranks)
                    .filter(|me| *me != late)
                    .map(|me| w.rank(me).fence_with(assert))
                    .collect();
                w.drive();
                assert!(reqs.iter().all(|r| !w.done(*r)), "{ranks} processes, {late} is late");
                reqs.push(w.rank(late).fence_with(assert));
                w.drive();
                assert!(reqs.iter().all(|r| w.done(*r)));
                w.finish();
            }
        }
    }
}

/// A target may store to its window until its fence, so operations of the next epoch leave only
/// after the barrier.
#[test]
fn fe1_operations_leave_only_after_the_barrier() {
    for assert in [Assert::default(), NOPRECEDE] {
        let mut w = World::with_mode(4, Mode::Immediate);
        w.rank(0).fence_with(assert);
        let puts: Vec<OpId> = (0..4).map(|target| w.put(0, target, 0, &[1])).collect();
        for peer in 1..4 {
            w.drive();
            assert!(puts.iter().all(|p| w.posted(*p).is_none()), "before rank {peer} came");
            w.rank(peer).fence_with(assert);
        }
        w.drive();
        assert!(puts.iter().all(|p| w.remote(*p).is_some()));
        (0..4).for_each(|me| _ = w.rank(me).fence_with(NOSUCCEED));
        w.finish();
    }
}

/// At a process that has passed a fence, all operations issued before the fence are visible.
#[test]
fn fe1_a_passed_fence_has_everybodys_operations() {
    let mut w = World::new(5);
    (0..5).for_each(|me| _ = w.rank(me).fence());
    w.drive();
    w.net.script_latencies(3, 4, &[700]);
    let slow = w.put(3, 4, 0, &[1]);
    let reqs: Vec<Req> = (0..5).map(|me| w.rank(me).fence()).collect();
    for me in 0..5 {
        w.block(reqs[me as usize]);
        assert!(
            w.remote(slow).is_some(),
            "rank {me} passes before the put of rank 3 to rank 4 is in place"
        );
    }
    w.finish();
}

/// Many fences of one process are pending, with operations between them.
#[test]
fn fe1_fences_pend_and_complete_in_order() {
    let mut w = World::new(3);
    w.net.script_latencies(0, 1, &[90, 5, 60, 1]);
    let mut early = vec![w.rank(0).fence()];
    for value in 1..=4 {
        w.put(0, 1, 0, &[value]);
        w.put(0, 2, 0, &[value]);
        early.push(w.rank(0).fence());
    }
    w.drive();
    assert!(early.iter().all(|r| !w.done(*r)));
    for me in [1, 2] {
        (0..4).for_each(|_| _ = w.rank(me).fence());
    }
    w.drive();
    assert_eq!(
        early.iter().map(|r| w.done(*r)).collect::<Vec<_>>(),
        [true, true, true, true, false]
    );
    assert_eq!(
        (w.mem(1, 0, 1), w.mem(2, 0, 1)),
        (&[4][..], &[4][..]),
        "the last epoch's operations need barrier 4 only"
    );
    (1..3).for_each(|me| _ = w.rank(me).fence_with(NOSUCCEED));
    w.finish();
}

#[test]
fn fe1_after_nosucceed_there_is_no_epoch() {
    let mut w = World::new(2);
    (0..2).for_each(|me| _ = w.rank(me).fence_with(NOSUCCEED));
    w.drive();
    let op = w.put_op(0, 1, 0, &[1]);
    assert_eq!(w.raw(0, |win, p| win.issue(p, &op)), Err(SyncError::NoAccessEpoch));
    w.finish();
}

#[test]
fn fe1_a_fence_alone_is_complete_at_once() {
    let mut w = World::new(1);
    let first = w.rank(0).fence();
    assert!(w.done(first));
    w.put(0, 0, 0, &[1]);
    let second = w.rank(0).fence();
    // While the put is in flight, neither its own fence nor the next one is complete.
    let third = w.rank(0).fence();
    assert!(!w.done(second) && !w.done(third));
    w.finish();
    assert!(w.done(second) && w.done(third));
    assert_eq!(w.mem(0, 0, 1), [1]);
}

/// Fences alternate with epochs of every other kind.
#[test]
fn fe1_fences_mix_with_other_epochs() {
    let mut w = World::new(2);
    for round in 0..20u8 {
        for me in 0..2 {
            w.rank(me).fence();
            w.put(me, 1 - me, round as usize, &[round]);
            w.rank(me).fence_with(if round % 2 == 0 { NOSUCCEED } else { Assert::default() });
            w.rank(me).exclusive(1 - me);
            w.put(me, 1 - me, 100, &[round]);
            w.rank(me).unlock(1 - me);
            w.rank(me).post(&[1 - me]);
            w.rank(me).start(&[1 - me]);
            w.put(me, 1 - me, 101, &[round]);
            w.rank(me).complete();
            w.rank(me).wait();
        }
    }
    w.finish();
    assert_eq!(w.mem(0, 0, 20), (0..20).collect::<Vec<u8>>());
    assert_eq!(w.mem(1, 100, 2), [19, 19]);
}
