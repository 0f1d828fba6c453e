//! [PE-1], [PE-2]: the record of a persistent epoch is checked like the calls themselves, and a
//! start is permitted if and only if each of its calls is.

use mpix_rma::engine::*;

use crate::world::*;

const RANKS: u32 = 3;

/// A call of a record.
#[derive(Clone, Debug)]
enum Call {
    Sync(SyncCall),
    Put(Rank),
}

fn random_call(rng: &mut fastrand::Rng) -> Call {
    let target = rng.u32(..RANKS);
    let group = || -> Box<[Rank]> { [target].into() };
    let assert = Assert { nosucceed: rng.u8(..4) == 0, ..Assert::default() };
    let nocheck = Assert { nocheck: rng.u8(..4) == 0, ..Assert::default() };
    let mode = if rng.bool() { LockMode::Shared } else { LockMode::Exclusive };
    Call::Sync(match rng.u32(..12) {
        0 => SyncCall::Post(group()),
        1 => SyncCall::Wait,
        2 => SyncCall::Start(group()),
        3 => SyncCall::Complete,
        4 => SyncCall::Fence(assert),
        5 => SyncCall::Lock(mode, target, nocheck),
        6 => SyncCall::Unlock(target),
        7 => SyncCall::LockAll(nocheck),
        8 => SyncCall::UnlockAll,
        _ => return Call::Put(target),
    })
}

/// Makes a call in process 0.
fn make(w: &mut World, call: &Call) -> Result<(), SyncError> {
    match call {
        Call::Sync(call) => w.raw(0, |window, port| window.synchronize(port, call).map(|_| ())),
        Call::Put(target) => {
            let op = w.put_op(0, *target, 0, &[1]);
            w.raw(0, |window, port| window.issue(port, &op))
        }
    }
}

fn rehearse(rehearsal: &mut Rehearsal, call: &Call) -> Result<(), SyncError> {
    match call {
        Call::Sync(call) => rehearsal.synchronize(call),
        Call::Put(target) => {
            let covered = rehearsal.covers(*target);
            let issued = rehearsal.put(*target);
            assert_eq!(issued.is_ok(), covered, "{target}");
            issued
        }
    }
}

/// Issues a put without data that matter.
trait Issue {
    fn put(&mut self, target: Rank) -> Result<(), SyncError>;
}

impl Issue for Rehearsal {
    fn put(&mut self, target: Rank) -> Result<(), SyncError> {
        self.issue(&Op::notify(target, Notification::counter(0)))
    }
}

/// A random record, from calls of which many are refused.
fn random_record(rng: &mut fastrand::Rng) -> Vec<Call> {
    loop {
        let mut rehearsal = Rehearsal::new(0, RANKS);
        let mut record = Vec::new();
        for _ in 0..rng.usize(2..30) {
            let call = random_call(rng);
            if rehearse(&mut rehearsal, &call).is_ok() {
                record.push(call);
            }
        }
        if rehearsal.is_closed() {
            return record;
        }
    }
}

#[test]
fn pe1_a_rehearsal_refuses_what_the_window_refuses() {
    for seed in 0..3000 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut w = World::new(RANKS);
        let mut rehearsal = Rehearsal::new(0, RANKS);
        for _ in 0..30 {
            let call = random_call(&mut rng);
            let found = rehearse(&mut rehearsal, &call);
            assert_eq!(found, make(&mut w, &call), "seed {seed}: {call:?}");
            if rng.bool() {
                w.progress(0);
            }
            let closed = w.window(0).has_nothing_open();
            assert_eq!(rehearsal.is_closed(), closed, "seed {seed}: {call:?}");
        }
    }
}

#[test]
fn pe2_a_start_is_permitted_if_each_of_its_calls_is() {
    let (mut permitted, mut refused) = (0, 0);
    for seed in 0..4000 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let record = random_record(&mut rng);
        let mut w = World::new(RANKS);
        for _ in 0..rng.usize(..6) {
            _ = make(&mut w, &random_call(&mut rng));
        }
        let calls = || {
            record.iter().filter_map(|call| match call {
                Call::Sync(call) => Some(call),
                Call::Put(_) => None,
            })
        };
        let pending = w.window(0).epochs_pending();
        let answer = w.raw(0, |window, _| window.may_restart(calls()));
        assert_eq!(w.window(0).epochs_pending(), pending, "the question changes nothing");
        match answer {
            Ok(()) => {
                permitted += 1;
                for call in &record {
                    assert_eq!(make(&mut w, call), Ok(()), "seed {seed}: {call:?} of {record:?}");
                }
            }
            Err(error) => {
                refused += 1;
                let first = record.iter().find_map(|call| make(&mut w, call).err());
                assert!(first.is_some(), "seed {seed}: {error:?} for {record:?}");
            }
        }
    }
    assert!(permitted > 500 && refused > 500, "{permitted}, {refused}");
}

/// Process 0 exchanges with process 1, again and again, while epochs of both are pending.
#[test]
fn pe2_restarted_epochs_match_and_take_effect_in_order() {
    let mut w = World::new(2);
    let group: [Box<[Rank]>; 2] = [[1].into(), [0].into()];
    let record = |me: usize| {
        let to = || group[me].clone();
        [SyncCall::Post(to()), SyncCall::Start(to()), SyncCall::Complete, SyncCall::Wait]
    };
    let mut pending = [Vec::new(), Vec::new()];
    for round in 0..20u8 {
        for me in 0..2 {
            let calls = record(me as usize);
            w.raw(me, |window, _| window.may_restart(calls.iter())).expect("nothing is open");
            let op = w.put_op(me, 1 - me, usize::from(round), &[round + 1]);
            for call in &calls {
                if *call == SyncCall::Complete {
                    w.raw(me, |window, port| window.issue(port, &op)).expect("covered");
                }
                let outcome = w.raw(me, |window, port| window.synchronize(port, call));
                if let Outcome::Pending(id) = outcome.expect("permitted") {
                    pending[me as usize].push(id);
                }
            }
        }
        if round % 5 == 4 {
            w.drive();
            for me in 0..2 {
                let window = w.window(me);
                assert!(pending[me as usize].iter().all(|id| !window.is_pending(*id)));
                assert_eq!(w.mem(me, usize::from(round), 1), [round + 1]);
            }
        }
    }
    w.finish();
}
