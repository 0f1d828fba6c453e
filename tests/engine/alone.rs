//! Epochs in a window of one process: the short forms agree with the regular calls, in any mix, and
//! do nothing where a regular call is needed.

use mpix_rma::engine::*;

use crate::world::*;

/// What an application can tell of the state.
fn state(w: &World) -> ([bool; 5], usize) {
    let window = w.window(0);
    let known = [
        window.holds_lock(0),
        window.holds_lock_all(),
        window.has_open_epoch(),
        window.covers(0),
        window.is_quiet(),
    ];
    (known, window.epochs_pending())
}

/// A program that random choices make: epochs of all kinds, whose operations may be refused at
/// first or complete late.
fn program(w: &mut World, rng: &mut fastrand::Rng, states: &mut Vec<([bool; 5], usize)>) {
    let mut value = 0;
    w.rank(0).fence();
    for _ in 0..40 {
        let kind = rng.u8(..5);
        match kind {
            0 => w.rank(0).exclusive(0),
            1 => w.rank(0).lock_all(),
            2 => {
                w.rank(0).post(&[0]);
                w.rank(0).start(&[0]);
            }
            // The open fence epoch, with operations or without.
            _ => {}
        }
        if rng.bool() {
            w.net.refuse_ops(0, 0, rng.u32(..2));
        }
        for _ in 0..rng.u8(..3) {
            value += 1;
            w.put(0, 0, 0, &[value]);
        }
        if rng.bool() {
            w.drive();
        }
        states.push(state(w));
        let closed = match kind {
            0 => w.rank(0).unlock(0),
            1 => w.rank(0).unlock_all(),
            2 => {
                w.rank(0).complete();
                w.rank(0).wait()
            }
            _ => w.rank(0).fence(),
        };
        if rng.bool() {
            w.drive();
            assert!(w.done(closed));
        }
        if kind < 3 {
            w.rank(0).fence();
        }
        states.push(state(w));
    }
    let last = w.rank(0).fence_with(Assert { nosucceed: true, ..Assert::default() });
    w.drive();
    assert!(w.done(last));
    w.finish();
}

#[test]
fn short_forms_agree_with_regular_calls() {
    let mut brief = 0;
    for seed in 0..300 {
        let run = |briefly| {
            let mut w = World::new(1);
            w.briefly = briefly;
            let mut states = Vec::new();
            program(&mut w, &mut fastrand::Rng::with_seed(seed), &mut states);
            (states, w.brief_calls)
        };
        let (short, regular) = (run(true), run(false));
        assert_eq!(short.0, regular.0, "seed {seed}");
        brief += short.1;
    }
    assert!(brief > 3000, "only {brief} calls took a short form");
}

/// Calls that MPI forbids change nothing.
#[test]
fn forbidden_calls_have_no_short_forms() {
    let forbidden = |w: &mut World, lock: bool, unlock: bool, unlock_all: bool, fence: bool| {
        let before = state(w);
        w.raw(0, |window, _| {
            assert!(!lock || !window.lock_alone(LockMode::Shared) && !window.lock_all_alone());
            assert!(!unlock || !window.unlock_alone(false));
            assert!(!unlock_all || !window.unlock_alone(true));
            assert!(!fence || !window.fence_alone());
        });
        assert_eq!(state(w), before);
    };
    let mut w = World::new(1);
    w.briefly = true;
    forbidden(&mut w, false, true, true, false);
    w.rank(0).exclusive(0);
    forbidden(&mut w, true, false, true, true);
    w.rank(0).unlock(0);
    w.rank(0).lock_all();
    forbidden(&mut w, true, true, false, true);
    w.rank(0).unlock_all();
    w.rank(0).post(&[0]);
    forbidden(&mut w, false, true, true, true);
    w.rank(0).start(&[0]);
    forbidden(&mut w, true, true, true, true);
    w.rank(0).complete();
    w.rank(0).wait();
    w.drive();
    w.rank(0).fence();
    w.put(0, 0, 0, &[1]);
    forbidden(&mut w, true, true, true, false);
    w.rank(0).fence_with(Assert { nosucceed: true, ..Assert::default() });
    assert_eq!(w.brief_calls, 5);
    w.finish();
}

#[test]
fn windows_of_more_processes_or_lanes_have_no_short_forms() {
    for (ranks, lane) in [(2, 0), (1, 1)] {
        let mut w = World::new(ranks);
        w.raw(0, |window, _| window.select_lane(lane));
        for locked in [false, true] {
            w.raw(0, |window, _| {
                assert!(!window.lock_alone(LockMode::Shared) && !window.lock_all_alone());
                assert!(!window.unlock_alone(false) && !window.unlock_alone(true));
                assert!(!window.fence_alone());
            });
            if !locked {
                w.rank(0).lock_all();
                w.drive();
            }
        }
        w.rank(0).unlock_all();
        w.drive();
        w.finish();
    }
}
