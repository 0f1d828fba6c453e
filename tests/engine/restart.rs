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

/// A transport whose peers never answer. Operations complete now and then.
struct Deaf(fastrand::Rng);

impl LockMemory for Deaf {
    fn atomic(&mut self, _: Rank, _: LockWord, _: Atomic, _: LockTicket) -> Answer {
        Answer::NoResource
    }
    fn look(&mut self, _: LockWord) -> u64 {
        0
    }
}

impl Port for Deaf {
    fn post(&mut self, _: &Op, _: Ticket) -> Posted {
        if self.0.bool() { Posted::Complete } else { Posted::NoResource }
    }
    fn signal(&mut self, _: Rank, _: Word, _: u64) -> Result<(), NoResource> {
        if self.0.bool() { Ok(()) } else { Err(NoResource) }
    }
    fn observe(&mut self, _: Rank, _: Word) -> u64 {
        0
    }
    fn poll(&mut self) -> bool {
        false
    }
    fn next_finished(&mut self) -> Option<(Ticket, Stage)> {
        None
    }
}

/// Process 0 of a window, and its transport.
struct Process {
    window: Window,
    port: Deaf,
}

impl Process {
    fn new(seed: u64) -> Self {
        let port = Deaf(fastrand::Rng::with_seed(!seed));
        Process { window: Window::new(0, RANKS, ReorderFlags::default()), port }
    }

    fn make(&mut self, call: &Call) -> Result<(), SyncError> {
        let Process { window, port } = self;
        match call {
            Call::Sync(call) => window.synchronize(port, call).map(|_| ()),
            Call::Put(target) => window.issue(port, &Op::notify(*target, Notification::counter(0))),
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
        let mut process = Process::new(seed);
        let mut rehearsal = Rehearsal::new(0, RANKS);
        let mut is_empty = true;
        for _ in 0..30 {
            let call = random_call(&mut rng);
            if is_empty && matches!(call, Call::Put(_)) {
                _ = process.make(&Call::Sync(SyncCall::Fence(Assert::default())));
            }
            let found = rehearse(&mut rehearsal, &call);
            assert_eq!(found, process.make(&call), "seed {seed}: {call:?}");
            is_empty &= found.is_err();
            if rng.bool() {
                process.window.progress(&mut process.port);
            }
            let closed = process.window.has_nothing_open();
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
        let mut process = Process::new(seed);
        for _ in 0..rng.usize(..6) {
            _ = process.make(&random_call(&mut rng));
        }
        let calls = || {
            record.iter().filter_map(|call| match call {
                Call::Sync(call) => Some(call),
                Call::Put(_) => None,
            })
        };
        let pending = process.window.epochs_pending();
        let in_fence = matches!(record.first(), Some(Call::Put(_)));
        let answer = process.window.may_restart(in_fence, calls());
        assert_eq!(process.window.epochs_pending(), pending, "the question changes nothing");
        match answer {
            Ok(()) => {
                permitted += 1;
                for call in &record {
                    assert_eq!(process.make(call), Ok(()), "seed {seed}: {call:?} of {record:?}");
                }
            }
            Err(error) => {
                refused += 1;
                let first = record.iter().find_map(|call| process.make(call).err());
                assert!(first.is_some(), "seed {seed}: {error:?} for {record:?}");
            }
        }
    }
    assert!(permitted > 500 && refused > 500, "{permitted}, {refused}");
}

/// Two processes exchange, again and again, while epochs of both are pending.
#[test]
fn pe2_restarted_epochs_match_and_take_effect_in_order() {
    let mut w = World::new(2);
    let mut pending = Vec::new();
    for round in 0..20u8 {
        for me in 0..2 {
            let peer = 1 - me;
            let calls = [SyncCall::Post([peer].into()), SyncCall::Start([peer].into())];
            let may_start = w.raw(me, |window, _| window.may_restart(false, calls.iter()));
            assert_eq!(may_start, Ok(()), "closed epochs forbid nothing");
            w.rank(me).post(&[peer]);
            w.rank(me).start(&[peer]);
            w.put(me, peer, round.into(), &[round + 1]);
            pending.push(w.rank(me).complete());
            pending.push(w.rank(me).wait());
        }
        if round % 5 == 4 {
            w.drive();
            assert!(pending.iter().all(|request| w.done(*request)));
            for me in 0..2 {
                assert_eq!(w.mem(me, round.into(), 1), [round + 1]);
            }
        }
    }
    w.finish();
}
