//! The contract of every transport, and the interface of the worlds in which it is tested.

use mpix_rma::engine::*;
use mpix_rma::transport::datatype::element::{native, reduction};

use crate::world::InFlight;

/// Steps after which a waiting test has failed.
const MAX_TURNS: u32 = 200_000;

/// The processes of one window in one thread.
pub trait World {
    /// The port of one process.
    type Port<'a>: Port
    where
        Self: 'a;

    /// A window of `bytes` bytes at each of `ranks` processes.
    fn new(ranks: u32, bytes: usize, seed: u64) -> Self;

    fn port(&mut self, me: Rank) -> Self::Port<'_>;

    /// Advances time and lets all processes poll.
    fn step(&mut self);

    /// Private memory of a process, with this content.
    fn buffer(&mut self, me: Rank, content: &[u8]) -> Addr;

    /// Content of private memory.
    fn read(&self, me: Rank, at: Addr, len: usize) -> Vec<u8>;

    /// Overwrites private memory.
    fn write(&mut self, me: Rank, at: Addr, content: &[u8]);

    /// The window memory of a process.
    fn memory(&self, me: Rank) -> Vec<u8>;

    /// Overwrites part of the window memory of a process, as its own program does.
    fn set_memory(&mut self, me: Rank, disp: usize, content: &[u8]);

    /// Gives each process this number of notification counters.
    fn make_counters(&mut self, number: u32);

    /// Ends the window. Nothing may be in flight.
    fn end(self);
}

/// An operation without buffers.
pub fn op(kind: OpKind, target: Rank, disp: usize, len: usize) -> Op {
    Op {
        origin: Addr(0),
        result: Addr(0),
        compare: Addr(0),
        disp: disp as u64,
        len: len as u64,
        shape: None,
        notification: None,
        target,
        kind,
        element: native::U8,
        reduction: reduction::SUM,
        extent: 1,
    }
}

/// Steps until `done` returns true.
pub fn until<W: World>(world: &mut W, what: &str, mut done: impl FnMut(&mut W) -> bool) {
    for _ in 0..MAX_TURNS {
        if done(world) {
            return;
        }
        world.step();
    }
    panic!("no end after {MAX_TURNS} steps: {what}");
}

/// Posts an operation as soon as the port accepts it.
fn post<W: World>(world: &mut W, me: Rank, flight: &mut InFlight, op: &Op) {
    until(world, "room for an operation", |world| {
        flight.collect(&mut world.port(me));
        flight.try_post(&mut world.port(me), op)
    });
}

/// Waits for all operations of a process.
pub fn finish<W: World>(world: &mut W, me: Rank, flight: &mut InFlight) {
    until(world, "operations", |world| {
        flight.collect(&mut world.port(me));
        flight.open == 0
    });
}

/// A random operation of `me` on its own part of a target's memory, and its buffers.
pub struct Call {
    pub op: Op,
    pub origin: Vec<u8>,
    pub compare: Vec<u8>,
    /// The data that it must return, if any.
    pub expected: Option<Vec<u8>>,
}

impl Call {
    /// Draws an operation, and applies it to the model of the memory.
    pub fn draw(rng: &mut fastrand::Rng, me: Rank, size: usize, model: &mut [Vec<u8>]) -> Self {
        let ranks = model.len();
        let target = rng.usize(0..ranks);
        let own = size / ranks;
        let kind = *rng
            .choice(&[
                OpKind::Put,
                OpKind::Get,
                OpKind::Accumulate,
                OpKind::GetAccumulate,
                OpKind::CompareAndSwap,
            ])
            .unwrap();
        let (element, extent) = if rng.bool() { (native::U64, 8) } else { (native::U8, 1) };
        let sizes = [1, 8, 8, 8, 40, 511, 512, 1024, 5000, 16_000, 16_384, 33_000];
        let len = match kind {
            OpKind::CompareAndSwap => extent,
            _ => (rng.choice(&sizes).unwrap() / extent).max(1) * extent,
        };
        let first = (own * me as usize).next_multiple_of(extent);
        let disp = first + rng.usize(0..=(own - len - extent) / extent) * extent;
        let origin: Vec<u8> = (0..len).map(|_| rng.u8(..)).collect();
        let there = &mut model[target][disp..disp + len];
        let compare = if rng.bool() { there.to_vec() } else { vec![3; len] };
        let returns = !matches!(kind, OpKind::Put | OpKind::Accumulate);
        let expected = returns.then(|| there.to_vec());
        match kind {
            OpKind::Get => {}
            OpKind::CompareAndSwap if *there != *compare => {}
            OpKind::Put | OpKind::CompareAndSwap => there.copy_from_slice(&origin),
            OpKind::Accumulate | OpKind::GetAccumulate if extent == 1 => {
                there.iter_mut().zip(&origin).for_each(|(to, from)| *to = to.wrapping_add(*from));
            }
            OpKind::Accumulate | OpKind::GetAccumulate => {
                let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap());
                for (to, from) in there.chunks_exact_mut(8).zip(origin.chunks_exact(8)) {
                    to.copy_from_slice(&word(to).wrapping_add(word(from)).to_ne_bytes());
                }
            }
        }
        let op = Op { element, extent: extent as u8, ..op(kind, target as Rank, disp, len) };
        Call { op, origin, compare, expected }
    }
}

/// Operations of every kind and size in random order leave the memory as a model says, and return
/// what was there. An origin buffer is free once its operation is locally complete.
pub fn operations_do_what_they_say<W: World>() {
    const SIZE: usize = 256 * 1024;
    for seed in 1..=30 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let ranks = rng.u32(2..=4);
        let mut world = W::new(ranks, SIZE, seed);
        let mut model = vec![vec![0; SIZE]; ranks as usize];
        for _ in 0..60 {
            let me = rng.u32(0..ranks);
            let call = Call::draw(&mut rng, me, SIZE, &mut model);
            let len = call.origin.len();
            let origin = world.buffer(me, &call.origin);
            let compare = world.buffer(me, &call.compare);
            let result = world.buffer(me, &vec![0; len]);
            let mut flight = InFlight::default();
            let posted = Op { origin, compare, result, ..call.op };
            post(&mut world, me, &mut flight, &posted);
            until(&mut world, "an operation", |world| {
                flight.collect(&mut world.port(me));
                if flight.seen[0].0 {
                    world.write(me, origin, &vec![0xEE; len]);
                }
                flight.open == 0
            });
            if let Some(expected) = call.expected {
                let found = world.read(me, result, len);
                assert!(found == expected, "seed {seed}: wrong result of {posted:?}");
            }
        }
        for (me, model) in (0..).zip(&model) {
            assert!(world.memory(me) == *model, "seed {seed}: wrong memory of {me}");
        }
        world.end();
    }
}

pub fn at1_accumulates_of_one_origin_keep_their_order<W: World>() {
    const SIZE: usize = 60_000;
    for seed in 1..=20 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut world = W::new(2, SIZE, seed);
        let (mut flight, mut expected) = (InFlight::default(), vec![0; SIZE]);
        for round in 0..40 {
            let value = vec![round as u8 + 1; *rng.choice(&[8, 100, 20_000, SIZE]).unwrap()];
            expected[..value.len()].copy_from_slice(&value);
            let origin = world.buffer(0, &value);
            let replace = Op {
                origin,
                reduction: reduction::REPLACE,
                ..op(OpKind::Accumulate, 1, 0, value.len())
            };
            post(&mut world, 0, &mut flight, &replace);
        }
        finish(&mut world, 0, &mut flight);
        assert!(world.memory(1) == expected, "seed {seed}");
        world.end();
    }
}

pub fn fe2_a_signal_comes_after_the_operations_before_it<W: World>() {
    const SIZE: usize = 1 << 20;
    for seed in 0..80 {
        let len = [8, 3000, 40_000, 700_000][seed as usize % 4];
        let mut world = W::new(2, SIZE, seed);
        let mut flight = InFlight::default();
        let origin = world.buffer(0, &vec![7; len]);
        let put = Op { origin, ..op(OpKind::Put, 1, 100, len) };
        post(&mut world, 0, &mut flight, &put);
        // Otherwise the engine waits until it is done.
        if !world.port(0).signals_follow(1) {
            finish(&mut world, 0, &mut flight);
        }
        until(&mut world, "room for a signal", |world| {
            world.port(0).signal(1, Word::Done, 1).is_ok()
        });
        until(&mut world, "a signal", |world| world.port(1).observe(0, Word::Done) == 1);
        let there = world.memory(1);
        assert!(
            there[100..100 + len].iter().all(|byte| *byte == 7),
            "seed {seed}: the signal has overtaken {len} bytes"
        );
        finish(&mut world, 0, &mut flight);
        world.end();
    }
}

pub fn signals_of_every_word_arrive_from_everywhere<W: World>() {
    let mut world = W::new(3, 64, 1);
    for (at, word) in (1..).zip([Word::Grant, Word::Done, Word::Fence]) {
        for (from, to) in (0..3).flat_map(|from| (0..3).map(move |to| (from, to))) {
            let value = 10 * u64::from(from) + at;
            until(&mut world, "room for a signal", |world| {
                world.port(from).signal(to, word, value).is_ok()
            });
            until(&mut world, "a signal", |world| world.port(to).observe(from, word) >= value);
            assert_eq!(world.port(to).observe(from, word), value);
        }
    }
    assert_eq!(world.port(0).observe(1, Word::Grant), 11, "words of a pair are apart");
    world.end();
}

/// Accesses a lock word and waits for the answer.
fn access<W: World>(world: &mut W, me: Rank, home: Rank, word: LockWord, access: Atomic) -> u64 {
    let mut answered = None;
    until(world, "room for an access", |world| {
        match world.port(me).atomic(home, word, access, LockTicket(77)) {
            Answer::Now(old) => answered = Some(old),
            Answer::Later => {}
            Answer::NoResource => return false,
        }
        true
    });
    until(world, "an answer", |world| {
        if answered.is_none() {
            answered = world.port(me).next_answer().map(|(ticket, old)| {
                assert_eq!(ticket, LockTicket(77));
                old
            });
        }
        answered.is_some()
    });
    answered.expect("just seen")
}

pub fn lk7_every_word_is_one_word_from_wherever_it_is_accessed<W: World>() {
    let mut world = W::new(3, 64, 2);
    let everywhere = [
        LockWord::Licence,
        LockWord::NextLicensed,
        LockWord::Tail,
        LockWord::Readers,
        LockWord::NextWriter,
        LockWord::Next { target: 0, parity: 0 },
        LockWord::Next { target: 1, parity: 1 },
        LockWord::Next { target: 2, parity: 0 },
        LockWord::Grant { target: 0 },
        LockWord::Grant { target: 1 },
        LockWord::Grant { target: 2 },
    ];
    let at_first = [LockWord::Holders, LockWord::Intent, LockWord::Licensed];
    let homes = |word| if at_first.contains(&word) { 0..1 } else { 0..3 };
    for (number, word) in (1u64..).zip(everywhere.into_iter().chain(at_first)) {
        for home in homes(word) {
            let part = (number << 8) | (u64::from(home) + 1);
            for me in 0..3 {
                access(&mut world, me, home, word, Atomic::Add(part));
            }
            let sum = 3 * part;
            let swap = |expected, new| Atomic::CompareSwap { expected, new };
            assert_eq!(access(&mut world, 2, home, word, Atomic::Load), sum);
            assert_eq!(world.port(home).look(word), sum);
            assert_eq!(access(&mut world, 1, home, word, swap(1, 9)), sum);
            assert_eq!(access(&mut world, 0, home, word, swap(sum, 5)), sum);
            assert_eq!(access(&mut world, 1, home, word, Atomic::Swap(6)), 5);
            access(&mut world, 2, home, word, Atomic::Store(7));
            assert_eq!(access(&mut world, 0, home, word, Atomic::Load), 7);
        }
    }
    world.end();
}

/// Concurrent additions by all processes each fetch a different value.
pub fn lk1_additions_to_a_lock_word_are_atomic<W: World>() {
    const EACH: usize = 40;
    for seed in 0..10 {
        let mut world = W::new(3, 64, seed);
        let mut found: Vec<u64> = Vec::new();
        let mut sent = [0; 3];
        until(&mut world, "answers", |world| {
            for me in 0..3 {
                let mut port = world.port(me);
                while let Some((_, old)) = port.next_answer() {
                    found.push(old);
                }
                let ticket = LockTicket(sent[me as usize] as u32);
                if sent[me as usize] < EACH {
                    match port.atomic(1, LockWord::Readers, Atomic::Add(1), ticket) {
                        Answer::Now(old) => found.push(old),
                        Answer::Later => {}
                        Answer::NoResource => continue,
                    }
                    sent[me as usize] += 1;
                }
            }
            found.len() == 3 * EACH
        });
        found.sort_unstable();
        assert_eq!(found, (0..3 * EACH as u64).collect::<Vec<_>>(), "seed {seed}");
        world.end();
    }
}

/// When a counter rises, the data of the preceding operation is visible, for every kind and size.
pub fn a_count_comes_behind_its_data<W: World>() {
    const SIZE: usize = 1 << 20;
    for seed in 0..48 {
        let mut world = W::new(2, SIZE, seed);
        world.make_counters(3);
        let len = [8, 700, 3000, 15_000, 40_000, 700_000][seed as usize % 6];
        let kind = [OpKind::Put, OpKind::Accumulate, OpKind::Get, OpKind::GetAccumulate]
            [seed as usize / 6 % 4];
        let (origin, result) = (world.buffer(0, &vec![6; len]), world.buffer(0, &vec![9; len]));
        let data = Op { origin, result, ..op(kind, 1, 100, len) };
        let mut flight = InFlight::default();
        // A notification of the operation or behind it, then one more: all in order.
        let told = Notification::counter(2);
        if seed / 24 % 2 == 0 {
            post(&mut world, 0, &mut flight, &Op { notification: Some(told), ..data });
        } else {
            post(&mut world, 0, &mut flight, &data);
            post(&mut world, 0, &mut flight, &Op::notify(1, told));
        }
        post(&mut world, 0, &mut flight, &Op::notify(1, Notification::counter(0)));
        until(&mut world, "a notification", |world| {
            let mut port = world.port(1);
            let (first, second) = (port.counter(2), port.counter(0));
            assert!(second == 0 || first == 1, "seed {seed}: the second overtakes the first");
            first == 1
        });
        let there = world.memory(1);
        let expected = if matches!(kind, OpKind::Get) { 0 } else { 6 };
        assert!(
            there[100..100 + len].iter().all(|byte| *byte == expected),
            "seed {seed}: {kind:?} of {len} bytes comes after its notification"
        );
        finish(&mut world, 0, &mut flight);
        until(&mut world, "the last notification", |world| world.port(1).counter(0) == 1);
        if matches!(kind, OpKind::Get | OpKind::GetAccumulate) {
            assert!(world.read(0, result, len).iter().all(|byte| *byte == 0), "seed {seed}");
        }
        assert_eq!([0, 1, 2].map(|index| world.port(1).counter(index)), [1, 0, 1]);
        world.end();
    }
}

/// Processes send each other numbered notifications. None is lost or duplicated, those of one
/// origin keep their order, and each arrives after its data.
pub fn tags_of_one_origin_come_in_order_behind_their_data<W: World>() {
    const EACH: u32 = 12;
    const ROOM: usize = 20_000;
    for seed in 0..12 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut world = W::new(3, 3 * EACH as usize * ROOM, seed);
        let data: Vec<Vec<Addr>> = (0..3)
            .map(|me| {
                let fill = |number: u32| vec![number as u8 + 1; ROOM];
                (0..EACH).map(|number| world.buffer(me, &fill(number))).collect()
            })
            .collect();
        let place = |origin: u32, number: u32| (origin * EACH + number) as usize * ROOM;
        let mut flights: [InFlight; 3] = Default::default();
        let (mut sent, mut taken) = ([[0; 3]; 3], [[0; 3]; 3]);
        let mut lens = vec![[[0; EACH as usize]; 3]; 3];
        until(&mut world, "notifications", |world| {
            let (me, target) = (rng.u32(0..3), rng.u32(0..3));
            let number = sent[me as usize][target as usize];
            if number < EACH {
                let len = *rng.choice(&[0, 8, 700, ROOM]).unwrap();
                let put = Op {
                    origin: data[me as usize][number as usize],
                    notification: Some(Notification::tag(number)),
                    ..op(OpKind::Put, target, place(me, number), len)
                };
                if flights[me as usize].try_post(&mut world.port(me), &put) {
                    lens[me as usize][target as usize][number as usize] = len;
                    sent[me as usize][target as usize] += 1;
                }
            }
            for me in 0..3 {
                flights[me as usize].collect(&mut world.port(me));
                loop {
                    let arrival = world.port(me).next_arrival();
                    let Some(Arrival { source, tag }) = arrival else { break };
                    let next = &mut taken[source as usize][me as usize];
                    assert_eq!(tag, *next, "seed {seed}: from {source} to {me}");
                    *next += 1;
                    let len = lens[source as usize][me as usize][tag as usize];
                    let at = place(source, tag);
                    let there = world.memory(me);
                    assert!(
                        there[at..at + len].iter().all(|byte| *byte == tag as u8 + 1),
                        "seed {seed}"
                    );
                }
            }
            taken.iter().flatten().all(|count| *count == EACH)
                && flights.iter().all(|flight| flight.open == 0)
        });
        world.end();
    }
}

/// A target that does not poll holds a bounded number of operations. Those that are accepted are
/// done once it polls, and those that are refused can be posted later.
pub fn a_flood_is_refused_and_nothing_is_lost<W: World>() {
    const OPS: usize = 3000;
    let mut world = W::new(2, 8 * OPS, 4);
    let mut flight = InFlight::default();
    let one = 1u64.to_ne_bytes();
    let origin = world.buffer(0, &one);
    for number in 0..OPS {
        let add = Op {
            origin,
            element: native::U64,
            extent: 8,
            ..op(OpKind::Accumulate, 1, 8 * number, 8)
        };
        post(&mut world, 0, &mut flight, &add);
    }
    finish(&mut world, 0, &mut flight);
    assert!(world.memory(1).chunks_exact(8).all(|word| *word == one));
    world.end();
}
