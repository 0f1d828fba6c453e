//! The ten patterns of the paper's section VIII.A in virtual time. A 1 MB transfer takes 340, and a
//! late process is 1000 late. As in the paper, each runs blocking and nonblocking, or with its flag
//! off and on.

use mpix_rma::engine::*;

use crate::world::*;

const TRANSFER: Time = 340;
const DELAY: Time = 1000;
/// Allowance for the signals of a pattern.
const SLACK: Time = 20;

fn world(ranks: u32, flags: ReorderFlags) -> World {
    let mut w = World::with_flags(ranks, flags);
    w.net.default_link = Link {
        op_latency: TRANSFER,
        local_latency: TRANSFER,
        signal_latency: 1,
        ..Link::default()
    };
    w
}

#[track_caller]
fn takes(w: &World, req: Req, expected: Time) {
    let at = w.done_at(req);
    assert!((expected..expected + SLACK).contains(&at), "at {at}, expected {expected}");
}

fn put(w: &mut World, origin: Rank, target: Rank) {
    w.put(origin, target, 0, &[origin as u8 + 1]);
}

/// An access epoch, closed without waiting.
fn access(w: &mut World, origin: Rank, target: Rank) -> Req {
    w.rank(origin).start(&[target]);
    put(w, origin, target);
    w.rank(origin).complete()
}

fn exposure(w: &mut World, target: Rank, origin: Rank) -> Req {
    w.rank(target).post(&[origin]);
    w.rank(target).wait()
}

fn locked_put(w: &mut World, origin: Rank, target: Rank) -> Req {
    w.rank(origin).exclusive(target);
    put(w, origin, target);
    w.rank(origin).unlock(target)
}

/// The origin's next activity starts at once, or after delay and transfer.
#[test]
fn late_post() {
    for blocking in [false, true] {
        let mut w = world(2, ReorderFlags::default());
        w.net.wake_at(DELAY);
        let epoch = access(&mut w, 0, 1);
        w.run_to(DELAY - 1);
        assert!(!w.done(epoch));
        w.run_to(DELAY);
        exposure(&mut w, 1, 0);
        let next_activity_starts = if blocking {
            w.block(epoch);
            w.now()
        } else {
            0
        };
        w.finish();
        takes(&w, epoch, DELAY + TRANSFER);
        assert_eq!(next_activity_starts >= DELAY + TRANSFER, blocking);
    }
}

/// The target waits for the transfer only, or for the origin's work too.
#[test]
fn late_complete() {
    for blocking in [false, true] {
        let mut w = world(2, ReorderFlags::default());
        let target = exposure(&mut w, 1, 0);
        w.rank(0).start(&[1]);
        put(&mut w, 0, 1);
        if blocking {
            // The origin works inside the epoch, to overlap its transfer.
            w.run_to(DELAY);
        }
        w.rank(0).complete();
        w.finish();
        takes(&w, target, if blocking { DELAY } else { TRANSFER });
    }
}

/// The fence takes as long as the transfer, but its caller continues at once.
#[test]
fn early_fence() {
    let mut w = world(2, ReorderFlags::default());
    (0..2).for_each(|me| _ = w.rank(me).fence());
    w.drive();
    let begin = w.now();
    put(&mut w, 0, 1);
    w.rank(0).fence();
    let target = w.rank(1).fence();
    assert!(w.now() == begin && !w.done(target));
    w.finish();
    takes(&w, target, begin + TRANSFER);
}

/// An origin that works inside its epoch delays the target; one that closes it first does not.
#[test]
fn wait_at_fence() {
    for blocking in [false, true] {
        let mut w = world(2, ReorderFlags::default());
        (0..2).for_each(|me| _ = w.rank(me).fence());
        w.drive();
        let begin = w.now();
        put(&mut w, 0, 1);
        let target = w.rank(1).fence();
        if blocking {
            w.run_to(begin + DELAY);
        }
        w.rank(0).fence();
        w.finish();
        takes(&w, target, begin + if blocking { DELAY } else { TRANSFER });
    }
}

/// The second requester waits for the first one's transfer only, or for its work too.
#[test]
fn late_unlock() {
    for blocking in [false, true] {
        let mut w = world(3, ReorderFlags::default());
        w.rank(0).exclusive(2);
        put(&mut w, 0, 2);
        w.drive_bounded(0);
        let first = (!blocking).then(|| w.rank(0).unlock(2));
        let second = locked_put(&mut w, 1, 2);
        w.run_to(DELAY);
        let first = first.unwrap_or_else(|| w.rank(0).unlock(2));
        w.finish();
        takes(&w, first, if blocking { DELAY } else { TRANSFER });
        takes(&w, second, if blocking { DELAY + TRANSFER } else { 2 * TRANSFER });
    }
}

#[test]
fn a_a_a_r_with_gats() {
    for on in [false, true] {
        let mut w = world(3, ReorderFlags { access_after_access: on, ..Default::default() });
        let late = access(&mut w, 0, 1);
        let second = access(&mut w, 0, 2);
        let target = exposure(&mut w, 2, 0);
        w.run_to(DELAY);
        exposure(&mut w, 1, 0);
        w.finish();
        takes(&w, late, DELAY + TRANSFER);
        let cumulative = w.done_at(late).max(w.done_at(second));
        takes(&w, target, if on { TRANSFER } else { DELAY + 2 * TRANSFER });
        assert_eq!(cumulative < DELAY + TRANSFER + SLACK, on, "the delay hides the second epoch");
    }
}

#[test]
fn a_a_a_r_with_locks() {
    for on in [false, true] {
        let mut w = world(4, ReorderFlags { access_after_access: on, ..Default::default() });
        w.rank(0).exclusive(2);
        put(&mut w, 0, 2);
        let first = locked_put(&mut w, 1, 2);
        let second = locked_put(&mut w, 1, 3);
        w.run_to(DELAY);
        w.rank(0).unlock(2);
        w.finish();
        takes(&w, first, DELAY + TRANSFER);
        takes(&w, second, if on { TRANSFER } else { DELAY + 2 * TRANSFER });
    }
}

/// P2 is a target of the late P0, then an origin for P1.
#[test]
fn a_a_e_r() {
    for on in [false, true] {
        let mut w = world(3, ReorderFlags { access_after_exposure: on, ..Default::default() });
        let own = exposure(&mut w, 2, 0);
        let second = access(&mut w, 2, 1);
        let p1 = exposure(&mut w, 1, 2);
        w.run_to(DELAY);
        access(&mut w, 0, 2);
        w.finish();
        takes(&w, own, DELAY + TRANSFER);
        takes(&w, p1, if on { TRANSFER } else { DELAY + 2 * TRANSFER });
        assert_eq!(w.done_at(second) < DELAY, on);
    }
}

/// The target is exposed to the late O0, then to O1.
#[test]
fn e_a_e_r() {
    for on in [false, true] {
        let mut w = world(3, ReorderFlags { exposure_after_exposure: on, ..Default::default() });
        let late = exposure(&mut w, 2, 0);
        let second = exposure(&mut w, 2, 1);
        let o1 = access(&mut w, 1, 2);
        w.run_to(DELAY);
        access(&mut w, 0, 2);
        w.finish();
        takes(&w, late, DELAY + TRANSFER);
        takes(&w, o1, if on { TRANSFER } else { DELAY + 2 * TRANSFER });
        takes(&w, second, if on { TRANSFER } else { DELAY + 2 * TRANSFER });
    }
}

/// P2 is an origin for the late P0, then a target of P1.
#[test]
fn e_a_a_r() {
    for on in [false, true] {
        let mut w = world(3, ReorderFlags { exposure_after_access: on, ..Default::default() });
        let own = access(&mut w, 2, 0);
        let second = exposure(&mut w, 2, 1);
        let p1 = access(&mut w, 1, 2);
        w.run_to(DELAY);
        exposure(&mut w, 0, 2);
        w.finish();
        takes(&w, own, DELAY + TRANSFER);
        takes(&w, p1, if on { TRANSFER } else { DELAY + 2 * TRANSFER });
        takes(&w, second, if on { TRANSFER } else { DELAY + 2 * TRANSFER });
    }
}
