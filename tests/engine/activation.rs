//! [EP-6], [AC-1] to [AC-3]: which epoch may overtake which, for every pair of kinds and every
//! setting of the reorder flags.

use mpix_rma::engine::*;

use crate::world::*;

/// The epoch opened first. It is closed, and other processes delay it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    Access,
    Exposure,
    Lock,
    OwnLock,
    LockAll,
    Fence,
}

/// The epoch opened second. All that it needs from other processes is available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Second {
    Access,
    Exposure,
    Lock,
    /// A lock on the target of the first lock.
    SameLock,
    OwnLock,
    LockAll,
    Fence,
}

const FIRSTS: [First; 6] =
    [First::Access, First::Exposure, First::Lock, First::OwnLock, First::LockAll, First::Fence];
const SECONDS: [Second; 7] = [
    Second::Access,
    Second::Exposure,
    Second::Lock,
    Second::SameLock,
    Second::OwnLock,
    Second::LockAll,
    Second::Fence,
];

fn flags(bits: u32) -> ReorderFlags {
    ReorderFlags {
        access_after_access: bits & 1 != 0,
        access_after_exposure: bits & 2 != 0,
        exposure_after_exposure: bits & 4 != 0,
        exposure_after_access: bits & 8 != 0,
    }
}

/// AC-1 to AC-3 as a table.
fn may_overtake(first: First, second: Second, flags: ReorderFlags) -> bool {
    match (first, second) {
        // [AC-2]
        (First::Fence | First::LockAll, _) | (_, Second::Fence | Second::LockAll) => false,
        (First::Exposure, Second::OwnLock) | (First::OwnLock, Second::Exposure) => false,
        // [AC-3]
        (First::Lock, Second::SameLock) | (First::OwnLock, Second::OwnLock) => false,
        // [AC-1]
        (First::Exposure, Second::Exposure) => flags.exposure_after_exposure,
        (First::Exposure, _) => flags.access_after_exposure,
        (_, Second::Exposure) => flags.exposure_after_access,
        _ => flags.access_after_access,
    }
}

const ME: Rank = 0;
const FIRST_PEER: Rank = 1;
const SECOND_PEER: Rank = 2;
const BLOCKER: Rank = 3;
const OTHER: Rank = 4;

fn open_first(w: &mut World, first: First) -> Req {
    match first {
        First::Access => {
            w.rank(ME).start(&[FIRST_PEER]);
            w.put(ME, FIRST_PEER, 0, &[1]);
            w.rank(ME).complete()
        }
        First::Exposure => {
            w.rank(ME).post(&[FIRST_PEER]);
            w.rank(ME).wait()
        }
        First::Lock | First::OwnLock => {
            let target = if first == First::Lock { FIRST_PEER } else { ME };
            w.rank(BLOCKER).exclusive(target);
            w.rank(ME).exclusive(target);
            w.rank(ME).unlock(target)
        }
        First::LockAll => {
            w.rank(BLOCKER).exclusive(OTHER);
            w.rank(ME).lock_all();
            w.rank(ME).unlock_all()
        }
        First::Fence => w.rank(ME).fence(),
    }
}

fn release_first(w: &mut World, first: First) {
    match first {
        First::Access => {
            w.rank(FIRST_PEER).post(&[ME]);
            w.rank(FIRST_PEER).wait();
        }
        First::Exposure => {
            w.rank(FIRST_PEER).start(&[ME]);
            w.rank(FIRST_PEER).complete();
        }
        First::Lock => _ = w.rank(BLOCKER).unlock(FIRST_PEER),
        First::OwnLock => _ = w.rank(BLOCKER).unlock(ME),
        First::LockAll => _ = w.rank(BLOCKER).unlock(OTHER),
        First::Fence => (1..w.size()).for_each(|me| _ = w.rank(me).fence()),
    }
}

/// Opens the second epoch. Returns a predicate that tells whether it is active.
fn open_second(w: &mut World, second: Second) -> Box<dyn Fn(&World) -> bool> {
    let writes = w.net.lock_writes.len();
    let asked = move |w: &World| w.net.lock_writes[writes..].iter().any(|c| c.by == ME);
    match second {
        Second::Access => {
            w.rank(SECOND_PEER).post(&[ME]);
            w.rank(SECOND_PEER).wait();
            w.drive();
            w.rank(ME).start(&[SECOND_PEER]);
            let put = w.put(ME, SECOND_PEER, 0, &[2]);
            w.rank(ME).complete();
            Box::new(move |w| w.posted(put).is_some())
        }
        Second::Exposure => {
            w.rank(SECOND_PEER).start(&[ME]);
            let put = w.put(SECOND_PEER, ME, 0, &[2]);
            w.rank(SECOND_PEER).complete();
            w.drive();
            w.rank(ME).post(&[SECOND_PEER]);
            w.rank(ME).wait();
            Box::new(move |w| w.posted(put).is_some())
        }
        Second::Lock | Second::SameLock | Second::OwnLock => {
            let target = match second {
                Second::Lock => SECOND_PEER,
                Second::SameLock => FIRST_PEER,
                _ => ME,
            };
            w.rank(ME).exclusive(target);
            w.rank(ME).unlock(target);
            Box::new(asked)
        }
        Second::LockAll => {
            w.rank(ME).lock_all();
            w.rank(ME).unlock_all();
            Box::new(asked)
        }
        Second::Fence => {
            let signals = w.signals(Word::Fence).iter().filter(|s| s.from == ME).count();
            w.rank(ME).fence();
            Box::new(move |w| {
                w.signals(Word::Fence).iter().filter(|s| s.from == ME).count() > signals
            })
        }
    }
}

/// Runs one pair. True if the second was active while the first was incomplete.
fn overtakes(first: First, second: Second, flags: ReorderFlags) -> bool {
    let mut w = World::with_flags(5, flags);
    let first_request = open_first(&mut w, first);
    w.drive();
    assert!(!w.done(first_request));
    let is_active = open_second(&mut w, second);
    w.drive();
    assert!(!w.done(first_request));
    let active = is_active(&w);
    // A peer cannot take part in the second epoch and also have passed the fence before it.
    if first == First::Fence && matches!(second, Second::Access | Second::Exposure) {
        return active;
    }
    release_first(&mut w, first);
    w.drive();
    assert!(
        w.done(first_request) && is_active(&w),
        "{first:?}, {second:?}: the second follows when the first is complete"
    );
    if second == Second::Fence {
        (1..w.size()).for_each(|me| _ = w.rank(me).fence());
    }
    w.finish();
    active
}

/// By default E_k+1 is activated after E_k completes, for every pair of kinds.
#[test]
fn ep6_by_default_epochs_are_serial() {
    for first in FIRSTS {
        for second in SECONDS {
            assert!(!overtakes(first, second, flags(0)), "{second:?} overtakes {first:?}");
        }
    }
}

/// Under all sixteen settings, each flag relaxes its own pair of kinds and no other.
#[test]
fn ac1_each_flag_relaxes_its_pair_of_kinds() {
    for bits in 1..16 {
        for first in FIRSTS {
            for second in SECONDS {
                let expected = may_overtake(first, second, flags(bits));
                assert_eq!(
                    overtakes(first, second, flags(bits)),
                    expected,
                    "{first:?}, {second:?}, {:?}",
                    flags(bits)
                );
            }
        }
    }
}

/// The flags apply to *every* earlier epoch that is still active, not only to the preceding one.
#[test]
fn ac1_flags_count_against_every_earlier_active_epoch() {
    // The second access may overtake the exposure. It may not overtake the first access, which the
    // exposure overtook.
    let flags = ReorderFlags {
        exposure_after_access: true,
        access_after_exposure: true,
        ..Default::default()
    };
    let mut w = World::with_flags(4, flags);
    w.rank(3).post(&[0]);
    w.rank(3).wait();
    w.rank(0).start(&[1]);
    w.put(0, 1, 0, &[1]);
    w.rank(0).complete();
    w.rank(0).post(&[2]);
    let exposure = w.rank(0).wait();
    w.rank(0).start(&[3]);
    let put = w.put(0, 3, 0, &[1]);
    w.rank(0).complete();
    w.drive();
    assert_eq!(w.posted(put), None);
    w.rank(1).post(&[0]);
    w.rank(1).wait();
    w.drive();
    assert!(w.posted(put).is_some() && !w.done(exposure));
    w.rank(2).start(&[0]);
    w.rank(2).complete();
    w.finish();
}

/// [AC-2] protects memory consistency: a lock on self is a local access during an exposure.
#[test]
fn ac2_an_exposure_and_a_lock_on_self_stay_in_order() {
    for bits in 0..16 {
        assert!(!overtakes(First::Exposure, Second::OwnLock, flags(bits)));
        assert!(!overtakes(First::OwnLock, Second::Exposure, flags(bits)));
    }
}

#[test]
fn ac2_no_flag_moves_a_fence_or_a_lock_all() {
    for first in FIRSTS {
        assert!(
            !overtakes(first, Second::Fence, flags(15))
                && !overtakes(first, Second::LockAll, flags(15))
        );
    }
    for second in SECONDS {
        assert!(
            !overtakes(First::Fence, second, flags(15))
                && !overtakes(First::LockAll, second, flags(15))
        );
    }
}

/// [AC-3]: with every flag on, a second lock on a target waits for the first, although no other
/// process wants the lock.
#[test]
fn ac3_two_lock_epochs_on_one_target_are_never_active_together() {
    for (first, second) in
        [(LockMode::Shared, LockMode::Shared), (LockMode::Shared, LockMode::Exclusive)]
    {
        let mut w = World::with_flags(2, flags(15));
        w.net.script_latencies(0, 1, &[100, 1]);
        w.rank(0).lock(first, 1);
        w.put(0, 1, 0, &[1]);
        let one = w.rank(0).unlock(1);
        w.rank(0).lock(second, 1);
        let put = w.put(0, 1, 0, &[2]);
        w.rank(0).unlock(1);
        w.progress_all();
        assert!(!w.done(one) && w.posted(put).is_none());
        w.finish();
        assert_eq!(w.mem(1, 0, 1), [2]);
    }
}

/// When an epoch completes, deferred epochs are activated up to the first that is blocked.
#[test]
fn activation_goes_on_as_far_as_it_can() {
    let mut w = World::new(3);
    w.rank(0).post(&[1]);
    let first = w.rank(0).wait();
    let locks: Vec<Req> = (0..10)
        .map(|value| {
            w.rank(0).exclusive(2);
            w.put(0, 2, 0, &[value]);
            w.rank(0).unlock(2)
        })
        .collect();
    w.rank(0).post(&[1]);
    let last = w.rank(0).wait();
    w.drive();
    w.rank(1).start(&[0]);
    w.rank(1).complete();
    w.drive();
    assert!(w.done(first) && locks.iter().all(|r| w.done(*r)) && !w.done(last));
    w.rank(1).start(&[0]);
    w.rank(1).complete();
    w.finish();
    assert_eq!(w.mem(2, 0, 1), [9]);
}
