//! Pattern fences: who is learned [FE-4], and what a fence of neighbours waits for [FE-3].

use mpix_rma::engine::*;

use crate::world::*;

const NOPRECEDE: Assert = Assert { nocheck: false, noprecede: true, nosucceed: false };
const NOSUCCEED: Assert = Assert { nocheck: false, noprecede: false, nosucceed: true };

fn fences(w: &mut World) -> Vec<Req> {
    (0..w.size()).map(|me| w.rank(me).fence()).collect()
}

/// A world that has learned these accesses. All processes have called the fence that ends the
/// learned epoch.
fn learned(ranks: u32, accesses: &[(Rank, Rank)]) -> World {
    learn(World::with_pattern(ranks), accesses)
}

fn learn(mut w: World, accesses: &[(Rank, Rank)]) -> World {
    fences(&mut w);
    w.drive();
    for (from, to) in accesses {
        w.put(*from, *to, 0, &[1]);
    }
    let closing = fences(&mut w);
    w.drive();
    assert!(closing.iter().all(|req| w.done(*req)));
    w
}

fn ring(ranks: u32) -> Vec<(Rank, Rank)> {
    (0..ranks).map(|me| (me, (me + 1) % ranks)).collect()
}

/// A fence waits for the learned origins, and for nobody else.
#[test]
fn fe3_a_fence_waits_for_its_origins_only() {
    // 0 accesses 1, and 1 accesses 2.
    for late in 0..4 {
        let mut w = learned(4, &[(0, 1), (1, 2)]);
        let reqs: Vec<(Rank, Req)> =
            (0..4).filter(|me| *me != late).map(|me| (me, w.rank(me).fence())).collect();
        w.drive();
        for (me, req) in reqs {
            let waits = me == late + 1 && late < 2;
            assert_eq!(w.done(req), !waits, "rank {me}, {late} is late");
        }
        w.rank(late).fence();
        w.finish();
    }
}

/// No message without neighbours; one per neighbour between two that access each other.
#[test]
fn fe3_a_fence_costs_one_message_per_neighbour() {
    let mut w = learned(8, &[]);
    let before = w.net.signals.len();
    for req in fences(&mut w) {
        assert!(w.done(req), "a fence without neighbours is local");
    }
    assert_eq!(w.net.signals.len(), before);
    w.finish();

    let mut w = learned(2, &[(0, 1), (1, 0)]);
    for round in 0..10 {
        let before = w.net.signals.len();
        w.put(0, 1, 0, &[round]);
        w.put(1, 0, 0, &[round]);
        w.drive();
        fences(&mut w);
        w.drive();
        assert_eq!(w.net.signals.len(), before + 2);
    }
    w.finish();
}

/// TALPF's race: an origin that hears nothing of its target does not write before the target has
/// called the fence.
#[test]
fn fe3_no_access_before_the_target_is_at_the_fence() {
    let mut w = learned(3, &[(0, 1)]);
    let early = w.rank(0).fence();
    assert!(w.done(early), "nobody accesses rank 0");
    let put = w.put(0, 1, 0, &[7]);
    let closing = w.rank(0).fence();
    w.drive();
    assert!(w.posted(put).is_none() && !w.done(closing));
    w.rank(1).fence();
    w.drive();
    assert!(w.remote(put).is_some() && w.done(closing));
    let last = w.rank(1).fence();
    w.drive();
    assert!(w.done(last), "rank 2 is no neighbour");
    (0..2).for_each(|_| _ = w.rank(2).fence());
    w.finish();
    assert_eq!(w.mem(1, 0, 1), [7]);
}

/// An operation of the next epoch does not overtake another origin's one of the epoch before.
#[test]
fn fe3_a_grant_follows_the_operations_of_other_origins() {
    let mut w = learned(3, &[(0, 2), (1, 2)]);
    w.net.script_latencies(0, 2, &[900]);
    let slow = w.put(0, 2, 0, &[1]);
    fences(&mut w);
    let next = w.put(1, 2, 0, &[2]);
    w.drive_until(|w| w.posted(next).is_some());
    assert!(w.remote(slow).is_some());
    fences(&mut w);
    w.finish();
    assert_eq!(w.mem(2, 0, 1), [2]);
}

#[test]
fn fe3_fences_pend_and_complete_in_order() {
    let mut w = learned(4, &ring(4));
    let mut early = Vec::new();
    for value in 2..6 {
        w.put(0, 1, 0, &[value]);
        early.push(w.rank(0).fence());
    }
    w.drive();
    assert!(early.iter().all(|req| !w.done(*req)), "rank 3 is late");
    for me in 1..4 {
        for value in 2..6 {
            w.put(me, (me + 1) % 4, 0, &[value]);
            w.rank(me).fence();
        }
    }
    w.finish();
    assert!(early.iter().all(|req| w.done(*req)));
    assert_eq!(w.mem(1, 0, 1), [5]);
}

/// Learning, and the fences after it, without waiting for anything between the calls.
#[test]
fn fe4_learning_may_be_pending() {
    for mode in [Mode::Immediate, Mode::Pending] {
        for ranks in 2..=9 {
            let mut w = World::with_mode(ranks, mode);
            w.set_pattern(true);
            for round in 0..6u8 {
                for me in 0..ranks {
                    w.rank(me).fence();
                    for distance in [0, 1, 3] {
                        let at = usize::from(round) * 4 + distance as usize;
                        w.put(me, (me + distance) % ranks, at, &[round]);
                    }
                }
            }
            (0..ranks).for_each(|me| _ = w.rank(me).fence_with(NOSUCCEED));
            w.finish();
            for me in 0..ranks {
                for round in 0..6u8 {
                    assert_eq!(w.mem(me, usize::from(round) * 4, 2), [round; 2]);
                }
            }
        }
    }
}

/// Marks come early or late, over slow links and refused signals, and with each process late.
#[test]
fn fe4_everyone_learns_its_origins() {
    for seed in 0..300 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let ranks = rng.u32(2..9);
        let mut w = World::with_pattern(ranks);
        let modes = [Mode::Immediate, Mode::LocalThenRemote, Mode::Pending];
        for (from, to) in (0..ranks).flat_map(|from| (0..ranks).map(move |to| (from, to))) {
            let signal_latency = rng.u64(1..60);
            let link = Link { signal_latency, ..Link::with_mode(modes[rng.usize(0..3)]) };
            w.net.link(from, to, link);
            w.net.refuse_signals(from, to, Word::Fence, rng.u32(0..3));
        }
        let pairs: Vec<(Rank, Rank)> = (0..ranks)
            .flat_map(|from| (0..ranks).map(move |to| (from, to)))
            .filter(|_| rng.u8(0..3) == 0)
            .collect();
        for round in 0..4u8 {
            let mut order: Vec<Rank> = (0..ranks).collect();
            rng.shuffle(&mut order);
            for me in order {
                w.rank(me).fence();
                for (_, to) in pairs.iter().filter(|(from, _)| *from == me) {
                    if round == 0 || rng.bool() {
                        w.put(me, *to, me as usize, &[round]);
                    }
                }
                w.drive_bounded(rng.u32(0..4));
            }
        }
        fences(&mut w);
        w.finish();
    }
}

/// The learned epoch is the first that a fence without `NOSUCCEED` opens and a fence without
/// `NOPRECEDE` closes.
#[test]
fn fe4_assertions_tell_which_epoch_is_learned() {
    let mut w = World::with_pattern(2);
    for assert in [NOSUCCEED, Assert::default(), NOPRECEDE, NOSUCCEED] {
        (0..2).for_each(|me| _ = w.rank(me).fence_with(assert));
        w.drive();
        let op = w.put_op(0, 1, 0, &[1]);
        let covered = w.window(0).covers(1);
        assert_eq!(covered, assert != NOSUCCEED);
        if !covered {
            assert_eq!(w.raw(0, |win, p| win.issue(p, &op)), Err(SyncError::NoAccessEpoch));
        }
    }
    // The epoch between the last two fences was learned, as empty.
    fences(&mut w);
    w.drive();
    let op = w.put_op(0, 1, 0, &[1]);
    assert_eq!(w.raw(0, |win, p| win.issue(p, &op)), Err(SyncError::NotLearned));
    w.finish();
}

/// A refused access changes nothing, also while learning is pending. Accesses to the process itself
/// need not be learned.
#[test]
fn fe4_an_access_that_was_not_learned_is_refused() {
    let mut w = World::with_pattern(3);
    w.rank(0).fence();
    w.put(0, 1, 0, &[1]);
    w.rank(0).fence();
    for learning_is_pending in [true, false] {
        let before = (w.window(0).epochs_pending(), w.net.signals.len());
        let op = w.put_op(0, 2, 0, &[1]);
        assert!(!w.window(0).covers(2) && w.window(0).covers(1) && w.window(0).covers(0));
        assert_eq!(w.raw(0, |win, p| win.issue(p, &op)), Err(SyncError::NotLearned));
        assert_eq!(w.raw(0, |win, p| win.issue_request(p, &op)), Err(SyncError::NotLearned));
        assert_eq!((w.window(0).epochs_pending(), w.net.signals.len()), before);
        if learning_is_pending {
            (1..3).for_each(|me| _ = (w.rank(me).fence(), w.rank(me).fence()));
            w.drive();
        }
    }
    w.put(0, 0, 8, &[3]);
    w.put(0, 1, 8, &[4]);
    fences(&mut w);
    w.finish();
    assert_eq!((w.mem(0, 8, 1), w.mem(1, 8, 1)), (&[3][..], &[4][..]));
}

/// The pattern is learned anew, or ended, as often as the program asks for it.
#[test]
fn fe4_a_pattern_is_learned_anew_and_ended() {
    let mut w = learned(5, &ring(5));
    fences(&mut w);
    w.drive();
    w.put(0, 1, 0, &[9]);
    assert_eq!(w.raw(0, |win, _| win.set_fence_pattern(false)), Err(SyncError::FenceOpen));
    fences(&mut w);
    w.drive();
    for round in 0..6u8 {
        // The present epoch is everybody's: the processes agreed.
        w.set_pattern(round % 3 != 2);
        w.put(4, 2, 0, &[round]);
        fences(&mut w);
        w.drive();
        w.put(3, u32::from(round % 3), 0, &[round]);
        fences(&mut w);
        w.put(3, u32::from(round % 3), 1, &[round]);
        fences(&mut w);
        w.drive();
    }
    w.finish();
    assert_eq!((w.mem(2, 0, 2), w.mem(1, 0, 2)), (&[5, 5][..], &[4, 4][..]));
}

/// Lock epochs between fences come after what a learned target has completed before its fence, and
/// before the next fence of everyone who has learned this process.
#[test]
fn fe3_locks_between_fences_are_ordered_with_neighbours() {
    for all in [false, true] {
        let mut w = learned(3, &[(0, 1), (2, 1)]);
        w.net.script_latencies(2, 1, &[800]);
        let slow = w.put(2, 1, 0, &[1]);
        fences(&mut w);
        if all {
            w.rank(0).lock_all();
        } else {
            w.rank(0).exclusive(1);
        }
        let put = w.put(0, 1, 0, &[2]);
        w.drive_until(|w| w.posted(put).is_some());
        assert!(w.remote(slow).is_some(), "before rank 1 has completed its fence");
        let passed = w.rank(1).fence();
        w.rank(2).fence();
        w.drive();
        assert!(!w.done(passed), "rank 0 has not called the fence");
        if all {
            w.rank(0).unlock_all();
        } else {
            w.rank(0).unlock(1);
        }
        w.rank(0).fence();
        w.finish();
        assert_eq!(w.mem(1, 0, 1), [2]);
    }
}

/// Post, start, complete and wait between fences do not disturb them.
#[test]
fn fe3_fences_mix_with_other_epochs() {
    let mut w = learned(3, &ring(3));
    for round in 0..20u8 {
        for me in 0..3 {
            w.rank(me).fence();
            w.put(me, (me + 1) % 3, round as usize, &[round]);
            w.rank(me).fence_with(if round % 2 == 0 { NOSUCCEED } else { Assert::default() });
            w.rank(me).exclusive((me + 2) % 3);
            w.put(me, (me + 2) % 3, 100, &[round]);
            w.rank(me).unlock((me + 2) % 3);
            w.rank(me).post(&[(me + 1) % 3]);
            w.rank(me).start(&[(me + 2) % 3]);
            w.put(me, (me + 2) % 3, 101, &[round]);
            w.rank(me).complete();
            w.rank(me).wait();
        }
    }
    w.finish();
    for me in 0..3 {
        assert_eq!(w.mem(me, 0, 20), (0..20).collect::<Vec<u8>>());
        assert_eq!(w.mem(me, 100, 2), [19, 19]);
    }
}

/// Memory is used for neighbours only.
#[test]
fn fe4_memory_is_used_for_neighbours_only() {
    let mut w = learned(64, &[(0, 1), (5, 0)]);
    for _ in 0..10 {
        fences(&mut w);
        w.put(0, 1, 0, &[1]);
        w.drive();
    }
    fences(&mut w);
    w.drive();
    assert!((0..64).all(|me| w.window(me).fence_neighbours() <= 2));
    w.finish();
}

/// The log says whom a pattern fence waits for.
#[test]
fn fe3_the_log_names_the_neighbours() {
    let mut w = learned(4, &[(0, 1), (2, 1)]);
    w.rank(1).fence();
    w.rank(2).fence();
    w.drive();
    let text = w.window(1).waits().to_string();
    assert!(text.contains("a pattern fence waits for rank 0") && !text.contains('2'), "{text}");
    (0..4).filter(|me| *me % 3 == 0).for_each(|me| _ = w.rank(me).fence());
    w.finish();
}
