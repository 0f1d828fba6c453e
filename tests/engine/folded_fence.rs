//! Folded fence epochs behave exactly like regular ones [EP-11, FE-1, FE-3].

use mpix_rma::engine::*;

use crate::world::*;

const NO_ASSERT: Assert = Assert { nocheck: false, noprecede: false, nosucceed: false };

fn fences(w: &mut World) -> Vec<Req> {
    (0..w.size()).map(|me| w.rank(me).fence()).collect()
}

/// A world in the epoch after a fence. With a pattern, rank 0 accesses all others and rank 1
/// accesses rank 0. Operations complete as soon as they are posted.
fn in_fence_epoch(ranks: u32, pattern: bool) -> World {
    let mut w = World::with_mode(ranks, Mode::Immediate);
    w.set_pattern(pattern);
    fences(&mut w);
    w.drive();
    (1..ranks).for_each(|to| _ = w.put(0, to, 0, &[1]));
    w.put(1, 0, 0, &[1]);
    fences(&mut w);
    w.drive();
    w
}

/// With barriers, and with a pattern.
fn each(mut program: impl FnMut(&mut World, bool)) {
    for pattern in [false, true] {
        let mut w = in_fence_epoch(3, pattern);
        program(&mut w, pattern);
        w.finish();
    }
}

#[test]
fn an_epoch_whose_operations_are_complete_is_open_all_the_same() {
    each(|w, _| {
        let put = w.put(0, 1, 0, &[2]);
        assert!(w.remote(put).is_some() && w.window(0).is_quiet());
        assert_eq!(w.window(0).epochs_pending(), 1);
        w.raw(0, |window, port| {
            assert!(window.has_direct_route(1) && window.finds_direct_route(2));
            let shared = LockMode::Shared;
            assert_eq!(window.lock(port, shared, 1, NO_ASSERT), Err(SyncError::FenceOpen));
            assert_eq!(window.lock_all(port, NO_ASSERT), Err(SyncError::FenceOpen));
            assert_eq!(window.post(port, &[1], NO_ASSERT), Err(SyncError::FenceOpen));
            assert_eq!(window.start(port, &[1], NO_ASSERT), Err(SyncError::FenceOpen));
            assert!(!window.may_set_fence_pattern() && !window.has_nothing_open());
            assert_eq!(window.order(port, Some(1)), Ok(()));
        });
        let closing = fences(w);
        w.drive();
        assert!(closing.iter().all(|req| w.done(*req)));
        assert!((0..3).all(|me| w.window(me).epochs_pending() == 0));
        w.raw(0, |window, _| assert!(!window.has_direct_route(1), "the next epoch is tentative"));
        assert_eq!(w.mem(1, 0, 1), [2]);
    });
}

/// The last process finds that all others have come, so its fence needs no request.
#[test]
fn the_last_process_at_a_fence_needs_no_request() {
    each(|w, _| {
        for value in 2..5 {
            w.put(0, 2, 0, &[value]);
            let early: Vec<Req> = (0..2).map(|me| w.rank(me).fence()).collect();
            w.drive();
            let last = w.rank(2).fence();
            w.drive();
            assert!(w.done(last) && early.iter().all(|req| w.done(*req)));
            assert_eq!(w.mem(2, 0, 1), [value]);
        }
        assert_eq!(w.window(2).requests_alive(), 0);
    });
}

#[test]
fn a_refused_operation_unfolds_the_epoch_and_is_waited_for() {
    each(|w, _| {
        w.put(0, 1, 0, &[2]);
        w.net.refuse_ops(0, 1, 2);
        let refused = w.put(0, 1, 8, &[3]);
        w.put(0, 2, 0, &[4]);
        let closing = fences(w);
        assert!(!w.done(closing[0]) && w.posted(refused).is_none());
        w.drive();
        assert!(closing.iter().all(|req| w.done(*req)));
        assert_eq!([w.mem(1, 0, 1), w.mem(1, 8, 1), w.mem(2, 0, 1)], [[2], [3], [4]]);
    });
}

#[test]
fn an_operation_that_does_not_complete_at_once_unfolds_the_epoch() {
    for pattern in [false, true] {
        let mut w = World::new(2);
        w.set_pattern(pattern);
        fences(&mut w);
        w.drive();
        w.put(0, 1, 0, &[1]);
        fences(&mut w);
        w.drive();
        for value in 2..5 {
            let put = w.put(0, 1, 0, &[value]);
            let closing = fences(&mut w);
            assert!(!w.done(closing[0]) && w.remote(put).is_none());
            w.drive();
            assert!(w.done(closing[1]) && w.remote(put).is_some());
            assert_eq!(w.mem(1, 0, 1), [value]);
        }
        w.finish();
    }
}

/// Rank 0 may put to rank 1, which has completed the fence, but not to rank 2 yet.
#[test]
fn a_target_that_is_late_at_the_fence_is_not_accessed() {
    each(|w, pattern| {
        if !pattern {
            return;
        }
        let mut early = vec![w.rank(0).fence(), w.rank(1).fence()];
        w.drive();
        assert!(early.iter().all(|req| w.done(*req)), "rank 2 accesses nobody");
        let first = w.put(0, 1, 0, &[2]);
        assert!(w.remote(first).is_some());
        w.raw(0, |window, port| {
            assert!(!window.may_fold_fence(port, 2) && !window.finds_direct_route(2));
        });
        let second = w.put(0, 2, 0, &[3]);
        early.push(w.rank(0).fence());
        w.drive();
        assert!(w.posted(second).is_none() && !w.done(early[2]));
        (0..2).for_each(|_| early.push(w.rank(2).fence()));
        w.rank(1).fence();
        w.drive();
        assert!(early.iter().all(|req| w.done(*req)));
        assert_eq!([w.mem(1, 0, 1), w.mem(2, 0, 1)], [[2], [3]]);
    });
}

/// As [`each`], of two ranks. Both call a fence with this assertion, rank 0 second, so that it is
/// complete when the call returns.
fn after_a_fence(assert: Assert, mut program: impl FnMut(&mut World)) {
    for pattern in [false, true] {
        let mut w = in_fence_epoch(2, pattern);
        fence_second(&mut w, assert);
        program(&mut w);
        w.drive();
        w.finish();
    }
}

fn fence_second(w: &mut World, assert: Assert) {
    w.rank(1).fence_with(assert);
    w.drive();
    let second = w.rank(0).fence_with(assert);
    assert!(w.done(second));
}

#[test]
fn the_first_operation_opens_the_epoch_on_the_route_that_the_fence_has_prepared() {
    after_a_fence(NO_ASSERT, |w| {
        w.raw(0, |window, port| {
            assert!(!window.has_direct_route(1) && !window.finds_direct_route(1));
            assert!(window.has_nothing_open() && window.may_set_fence_pattern());
            assert!(!window.enters_direct_route(2) && window.has_nothing_open());
            assert!(window.enters_direct_route(1) && window.has_direct_route(1));
            let shared = LockMode::Shared;
            assert_eq!(window.lock(port, shared, 1, NO_ASSERT), Err(SyncError::FenceOpen));
        });
        let put = w.put(0, 1, 0, &[2]);
        assert!(w.remote(put).is_some() && w.window(0).is_quiet());
        let closing = fences(w);
        w.drive();
        assert!(closing.iter().all(|req| w.done(*req)));
        assert_eq!(w.mem(1, 0, 1), [2]);
    });
}

/// Rank 1 has not granted the epoch yet when the fence of rank 0 is complete.
#[test]
fn nothing_is_prepared_for_a_target_that_is_late() {
    let mut w = World::with_mode(2, Mode::Immediate);
    w.set_pattern(true);
    fences(&mut w);
    w.drive();
    w.put(0, 1, 0, &[1]);
    fences(&mut w);
    w.drive();
    let first = w.rank(0).fence();
    assert!(w.done(first), "rank 0 waits for no origin");
    w.raw(0, |window, port| {
        assert!(!window.enters_direct_route(1) && !window.may_fold_fence(port, 1));
    });
    w.rank(1).fence();
    w.drive();
    w.raw(0, |window, port| assert!(window.folds_fence(port, 1)));
    fences(&mut w);
    w.drive();
    w.finish();
}

#[test]
fn nothing_is_prepared_after_nosucceed() {
    after_a_fence(Assert { nosucceed: true, ..NO_ASSERT }, |w| {
        w.raw(0, |window, _| {
            assert!(!window.enters_direct_route(1));
            assert_eq!(window.covering(1), Err(SyncError::NoAccessEpoch));
        });
    });
}

/// Between two fences without operations, other epochs may be opened. They end the prepared route.
#[test]
fn another_epoch_takes_the_place_of_a_prepared_one() {
    after_a_fence(NO_ASSERT, |w| {
        w.rank(0).post(&[1]);
        w.raw(0, |window, _| assert!(!window.enters_direct_route(1)));
        w.rank(1).start(&[0]);
        w.rank(1).complete();
        w.rank(0).wait();
        w.drive();
        fence_second(w, NO_ASSERT);
        w.rank(0).shared(1);
        w.drive();
        w.raw(0, |window, _| assert!(window.enters_direct_route(1), "by the lock"));
        w.rank(0).unlock(1);
        w.drive();
        w.raw(0, |window, _| assert!(!window.enters_direct_route(1)));
    });
}

/// A process that is alone waits for nobody, so each fence prepares the next epoch.
#[test]
fn a_fence_of_one_process_prepares_the_next_epoch() {
    let mut w = World::with_mode(1, Mode::Immediate);
    w.raw(0, |window, _| {
        assert!(window.fence_alone() && window.has_nothing_open());
        assert!(!window.finds_direct_route(0) && window.enters_direct_route(0));
        assert!(!window.has_nothing_open() && window.has_direct_route(0));
        assert!(window.fence_alone() && window.has_nothing_open());
        assert!(window.lock_alone(LockMode::Shared) && window.unlock_alone(false));
        assert!(!window.enters_direct_route(0));
    });
}

/// Rank 1 accesses rank 0, which does not access it.
#[test]
fn an_origin_that_is_no_target_is_not_accessed() {
    let mut w = World::with_mode(2, Mode::Immediate);
    w.set_pattern(true);
    fences(&mut w);
    w.drive();
    w.put(1, 0, 0, &[1]);
    fences(&mut w);
    w.drive();
    w.raw(0, |window, port| {
        assert!(!window.may_fold_fence(port, 1) && !window.finds_direct_route(1));
        assert_eq!(window.covering(1), Err(SyncError::NotLearned));
    });
    w.finish();
}

/// A process that comes while the call polls.
struct Late {
    polls: u32,
    comes_at: u32,
}

impl LockMemory for Late {
    fn atomic(&mut self, _: Rank, _: LockWord, _: Atomic, _: LockTicket) -> Answer {
        Answer::NoResource
    }
    fn look(&mut self, _: LockWord) -> u64 {
        0
    }
}

impl Port for Late {
    fn post(&mut self, _: &Op, _: Ticket) -> Posted {
        Posted::Complete
    }
    fn signal(&mut self, _: Rank, _: Word, _: u64) -> Result<(), NoResource> {
        Ok(())
    }
    fn observe(&mut self, _: Rank, _: Word) -> u64 {
        u64::from(self.polls >= self.comes_at)
    }
    fn poll(&mut self) -> bool {
        self.polls += 1;
        false
    }
    fn next_finished(&mut self) -> Option<(Ticket, Stage)> {
        None
    }
}

#[test]
fn a_patient_fence_polls_before_it_makes_a_request() {
    for (comes_at, complete) in [(0, true), (3, true), (4, true), (5, false)] {
        let mut window = Window::new(0, 2, ReorderFlags::default());
        let mut port = Late { polls: 0, comes_at };
        let mut asked = 0;
        let outcome = window.fence_patiently(&mut port, NO_ASSERT, || {
            asked += 1;
            asked <= 4
        });
        assert_eq!(outcome == Ok(Outcome::Complete), complete, "comes at poll {comes_at}");
        assert_eq!((port.polls, asked), (comes_at.min(4), comes_at.min(5)));
        assert_eq!(window.requests_alive(), u32::from(!complete));
        port.polls = comes_at;
        window.progress(&mut port);
        assert!(window.next_completed().is_some() != complete && window.is_quiet());
    }
}
