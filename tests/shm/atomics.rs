//! Atomic operations of the shared-memory transport: arithmetic, order, atomicity, and targets that
//! do not poll.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::world::*;
use mpix_rma::engine::*;
use mpix_rma::transport::Proposal;
use mpix_rma::transport::datatype::element::{native_has, reduction};

const NATIVE: [Element; 11] = [I8, U8, I16, U16, I32, U32, I64, U64, F32, F64, BYTE];

/// Reference implementation: one element at a time, in the widest type.
fn reference(element: Element, reduction: Reduction, target: &[u8], origin: &[u8]) -> Vec<u8> {
    macro_rules! integer {
        ($t:ty) => {{
            let (a, b) = (
                <$t>::from_ne_bytes(target.try_into().unwrap()),
                <$t>::from_ne_bytes(origin.try_into().unwrap()),
            );
            let (wide_a, wide_b) = (a as i128, b as i128);
            let truth = |t: bool| t as $t;
            let value = match reduction {
                reduction::REPLACE => b,
                reduction::NO_OP => a,
                reduction::SUM => (wide_a + wide_b) as $t,
                reduction::PROD => wide_a.wrapping_mul(wide_b) as $t,
                reduction::MIN => wide_a.min(wide_b) as $t,
                reduction::MAX => wide_a.max(wide_b) as $t,
                reduction::LAND => truth(a != 0 && b != 0),
                reduction::LOR => truth(a != 0 || b != 0),
                reduction::LXOR => truth((a != 0) != (b != 0)),
                reduction::BAND => a & b,
                reduction::BOR => a | b,
                reduction::BXOR => a ^ b,
                _ => unreachable!(),
            };
            value.to_ne_bytes().to_vec()
        }};
    }
    macro_rules! floating {
        ($t:ty) => {{
            let (a, b) = (
                <$t>::from_ne_bytes(target.try_into().unwrap()),
                <$t>::from_ne_bytes(origin.try_into().unwrap()),
            );
            let value = match reduction {
                reduction::REPLACE => b,
                reduction::NO_OP => a,
                reduction::SUM => a + b,
                reduction::PROD => a * b,
                reduction::MIN => a.min(b),
                reduction::MAX => a.max(b),
                _ => unreachable!(),
            };
            value.to_ne_bytes().to_vec()
        }};
    }
    match element {
        I8 => integer!(i8),
        U8 | BYTE => integer!(u8),
        I16 => integer!(i16),
        U16 => integer!(u16),
        I32 => integer!(i32),
        U32 => integer!(u32),
        I64 => integer!(i64),
        U64 => integer!(u64),
        F32 => floating!(f32),
        F64 => floating!(f64),
        _ => unreachable!(),
    }
}

/// Random elements. Floating-point ones are numbers (the sign of a NaN is unspecified), the others
/// are random bits with zeros among them for the logical reductions.
fn elements(element: Element, count: usize, seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut bytes = Vec::new();
    for _ in 0..count {
        let zero = random.u8(0..4) == 0;
        match element {
            F32 => bytes.extend((random.f32() * 200.0 - 100.0).to_ne_bytes()),
            F64 => bytes.extend((random.f64() * 200.0 - 100.0).to_ne_bytes()),
            other => bytes.extend((0..extent(other)).map(|_| if zero { 0 } else { random.u8(..) })),
        }
    }
    bytes
}

#[test]
fn every_datatype_and_reduction_matches_the_reference() {
    for flavour in FLAVOURS {
        run(2, |world| {
            let mut memory = vec![0u8; 1 << 17];
            let mut w = world.window(flavour, &mut memory);
            barrier(&mut w);
            if world.rank == 1 {
                // Serves rank 0's operations.
                barrier(&mut w);
                return;
            }
            for element in NATIVE {
                for code in 0..12 {
                    let reduction = Reduction(code);
                    if !native_has(element, reduction) {
                        continue;
                    }
                    let width = usize::from(extent(element));
                    // One element; an odd number at an odd displacement; more than a piece of a
                    // channel, a block of a fetch and a hold of the lock.
                    for (count, disp, target) in
                        [(1, 8, 1), (3, 5, 1), (1, 8, 0), (9000, 3, 1), (70_000 / width, 3, 0)]
                    {
                        let seed = u64::from(code) * 1000 + count as u64;
                        let before = elements(element, count, seed);
                        let with = elements(element, count, seed + 1);
                        let expected: Vec<u8> = before
                            .chunks(width)
                            .zip(with.chunks(width))
                            .flat_map(|(a, b)| reference(element, reduction, a, b))
                            .collect();
                        let mut after = vec![0u8; expected.len()];
                        w.put(target, disp, &before);
                        w.accumulate(target, disp, (element, reduction), &with);
                        w.get(target, disp, &mut after);
                        assert!(
                            after == expected,
                            "accumulate {element:?} {reduction:?} x {count}"
                        );
                        w.put(target, disp, &before);
                        let mut old = vec![0u8; expected.len()];
                        w.get_accumulate(target, disp, (element, reduction), &with, &mut old);
                        w.get(target, disp, &mut after);
                        assert!(
                            old == before,
                            "get_accumulate's result {element:?} {reduction:?} x {count}"
                        );
                        assert!(
                            after == expected,
                            "get_accumulate {element:?} {reduction:?} x {count}"
                        );
                    }
                }
            }
            barrier(&mut w);
        });
    }
}

#[test]
fn foreign_datatypes_are_reduced_by_the_host() {
    for flavour in FLAVOURS {
        run(2, |world| {
            let mut memory = vec![0u8; 1 << 17];
            let mut w = world.window(flavour, &mut memory);
            for count in [1usize, 2, 3000] {
                let pair = |value: f64, index: i32| {
                    [&value.to_ne_bytes()[..], &index.to_ne_bytes()[..]].concat()
                };
                let mine: Vec<u8> = (0..count).flat_map(|i| pair(i as f64, 1)).collect();
                let other: Vec<u8> =
                    (0..count).flat_map(|i| pair(i as f64 + (i % 2) as f64 - 0.5, 2)).collect();
                let expected: Vec<u8> = (0..count)
                    .flat_map(|i| {
                        if i % 2 == 1 {
                            other[12 * i..][..12].to_vec()
                        } else {
                            mine[12 * i..][..12].to_vec()
                        }
                    })
                    .collect();
                write_own(&w, 4, &mine);
                barrier(&mut w);
                let target = 1 - world.rank;
                let mut old = vec![0; mine.len()];
                w.get_accumulate(target, 4, (PAIR, reduction::MAXLOC), &other, &mut old);
                assert!(old == mine);
                w.accumulate(target, 4, (PAIR, reduction::MAXLOC), &other);
                w.get_accumulate(target, 4, (PAIR, reduction::NO_OP), &other, &mut old);
                assert!(old == expected);
                w.get_accumulate(target, 4, (PAIR, reduction::REPLACE), &mine, &mut old);
                assert!(old == expected);
                barrier(&mut w);
                assert!(own(&w, 4, mine.len()) == mine);
                barrier(&mut w);
            }
        });
    }
}

#[test]
fn compare_and_swap_of_every_width() {
    for flavour in FLAVOURS {
        run(2, |world| {
            let mut memory = vec![0u8; 100];
            let mut w = world.window(flavour, &mut memory);
            barrier(&mut w);
            for target in [world.rank, 1 - world.rank] {
                for width in [1usize, 2, 4, 8, 16, 32] {
                    let disp = 1 + u64::from(world.rank) * 40;
                    let (zero, one, two) = (vec![0u8; width], vec![1u8; width], vec![2u8; width]);
                    let mut old = vec![9u8; width];
                    w.compare_and_swap(target, disp, &zero, &one, &mut old);
                    assert_eq!(old, zero);
                    w.compare_and_swap(target, disp, &zero, &two, &mut old);
                    assert_eq!(old, one, "a failed swap gives the value too");
                    w.compare_and_swap(target, disp, &one, &zero, &mut old);
                    assert_eq!(old, one);
                }
            }
            barrier(&mut w);
            assert_eq!(own(&w, 0, 100), [0; 100]);
            barrier(&mut w);
        });
    }
}

/// [AT-1] All origins, the target included, update one counter. Nothing is lost, and no value is
/// seen twice.
#[test]
fn concurrent_atomics_lose_no_update() {
    const EACH: u64 = 2000;
    for flavour in FLAVOURS {
        run(4, |world| {
            let mut memory = vec![0u8; 64];
            let mut w = world.window(flavour, &mut memory);
            barrier(&mut w);
            let mut last = None;
            for i in 0..EACH {
                w.accumulate(0, 8, (F64, reduction::SUM), &0.5f64.to_ne_bytes());
                let mut old = [0; 8];
                w.get_accumulate(0, 0, (U64, reduction::SUM), &1u64.to_ne_bytes(), &mut old);
                let old = u64::from_ne_bytes(old);
                assert!(last < Some(old), "the counter rises");
                last = Some(old);
                if i % 8 == 0 {
                    // A spin lock by compare_and_swap, as users write them, around a plain counter.
                    let mut state = [1; 4];
                    while state != [0; 4] {
                        w.compare_and_swap(0, 16, &[0; 4], &[1; 4], &mut state);
                    }
                    let mut value = [0; 8];
                    w.get(0, 24, &mut value);
                    w.put(0, 24, &(u64::from_ne_bytes(value) + 1).to_ne_bytes());
                    w.accumulate(0, 16, (BYTE, reduction::REPLACE), &[0; 4]);
                }
            }
            barrier(&mut w);
            if world.rank == 0 {
                assert_eq!(own(&w, 0, 8), (4 * EACH).to_ne_bytes());
                assert_eq!(own(&w, 8, 8), (2.0 * EACH as f64).to_ne_bytes());
                assert_eq!(own(&w, 24, 8), (4 * EACH / 8).to_ne_bytes());
            }
            barrier(&mut w);
        });
    }
}

/// Accumulates of one origin on one place take effect in the order of the calls, with short and
/// long ones mixed.
#[test]
fn accumulates_of_one_origin_keep_their_order() {
    const COUNT: usize = 3000;
    const LONG: usize = 40_000;
    for flavour in FLAVOURS {
        run(3, |world| {
            let mut memory = vec![0u8; 3 * LONG];
            let mut w = world.window(flavour, &mut memory);
            barrier(&mut w);
            let disp = u64::from(world.rank) * LONG as u64;
            let long = vec![0xaau8; LONG];
            let values: Vec<u64> = (1..=COUNT as u64).collect();
            let mut old = vec![0u64; COUNT];
            let mut flight = Flight::default();
            for i in 0..COUNT {
                if i % 100 == 50 {
                    let origin = Addr(long.as_ptr() as usize);
                    let replace =
                        Op { origin, element: BYTE, ..op(OpKind::Accumulate, 2, disp, LONG) };
                    flight.post(&mut w, &replace);
                }
                let (origin, result) =
                    (Addr(&raw const values[i] as usize), Addr(&raw mut old[i] as usize));
                let how = Op {
                    origin,
                    result,
                    element: U64,
                    extent: 8,
                    ..op(OpKind::GetAccumulate, 2, disp, 8)
                };
                flight.post(&mut w, &how);
            }
            flight.finish(&mut w);
            for (i, old) in old.into_iter().enumerate() {
                let before = if i % 100 == 50 { 0xaaaa_aaaa_aaaa_aaaa } else { i as u64 };
                assert_eq!(old, before);
            }
            barrier(&mut w);
        });
    }
}

/// With cross-memory attach, a target that does not poll delays nobody (as [LK-3] says of locks).
#[test]
fn operations_complete_if_the_target_never_polls() {
    if skips_without_attach("operations_complete_if_the_target_never_polls") {
        return;
    }
    run(3, |world| {
        let mut memory = vec![0u8; 1 << 20];
        let mut w = world.window(Flavour::Attached, &mut memory);
        if world.rank != 2 {
            let base = u64::from(world.rank) * 500_000;
            for (i, len) in (0..).zip([8usize, 40, 41, 5000, 8192, 100_000, 300_000]) {
                let from = bytes(len, i);
                let mut back = vec![0; len];
                w.put(2, base, &from);
                w.get(2, base, &mut back);
                assert!(back == from);
                w.accumulate(2, base, (BYTE, reduction::BXOR), &from);
                w.get_accumulate(2, base, (BYTE, reduction::REPLACE), &from, &mut back);
                assert!(back.iter().all(|byte| *byte == 0), "length {len}");
                w.get(2, base, &mut back);
                assert!(back == from);
                w.compare_and_swap(2, base, &from[..8], &[7; 8], &mut back[..8]);
                assert_eq!(back[..8], from[..8]);
            }
            // Small puts and counters in flight together, at scattered and at adjacent places.
            let one = 1u64;
            let mut old = vec![0u64; 2000];
            w.put(2, base, &[0; 8]);
            let mut flight = Flight::default();
            for i in 0..2000u64 {
                let origin = Addr(&raw const one as usize);
                let result = Addr(&raw mut old[i as usize] as usize);
                flight.post(&mut w, &Op { origin, ..op(OpKind::Put, 2, base + 8 + 200 * i, 8) });
                let add = Op {
                    element: U64,
                    reduction: reduction::SUM,
                    extent: 8,
                    origin,
                    result,
                    ..op(OpKind::Put, 2, base, 8)
                };
                flight.post(&mut w, &Op { kind: OpKind::GetAccumulate, ..add });
                flight.post(
                    &mut w,
                    &Op { kind: OpKind::Accumulate, disp: base + 16 + 200 * i, ..add },
                );
            }
            flight.finish(&mut w);
            assert!(old.iter().copied().eq(0..2000));
        }
        world.barrier();
        if world.rank == 2 {
            let memory = own(&w, 0, 1 << 20);
            for origin in 0..2 {
                for i in 0..2000 {
                    assert_eq!(memory[500_000 * origin + 8 + 200 * i..][..8], 1u64.to_ne_bytes());
                }
            }
        }
        world.barrier();
    });
}

/// [PR-3] After `settle` nothing is in flight, although neither process polls.
#[test]
fn settle_completes_operations_without_polls() {
    if skips_without_attach("settle_completes_operations_without_polls") {
        return;
    }
    run(2, |world| {
        let mut memory = vec![0u8; 1 << 20];
        let mut w = world.window(Flavour::Attached, &mut memory);
        if world.rank == 0 {
            assert!(!w.flush_and_poll(), "nothing in flight, nothing to collect");
            let from = bytes(500_000, 1);
            for (disp, len) in [(0, 8), (100, 3000), (10_000, 100_000)] {
                let origin = Addr(from.as_ptr() as usize);
                let mut open = 0;
                for (kind, disp) in [(OpKind::Accumulate, disp), (OpKind::Put, disp + 500_000)] {
                    let op = Op {
                        origin,
                        element: U8,
                        reduction: reduction::SUM,
                        ..op(kind, 1, disp, len)
                    };
                    open += usize::from(w.post(&op, Ticket(7)) != Posted::Complete);
                }
                assert_eq!(w.flush_and_poll(), open > 0);
                while let Some((ticket, stage)) = w.next_finished() {
                    assert_eq!(ticket, Ticket(7));
                    open -= usize::from(stage == Stage::Remote);
                }
                assert_eq!(open, 0);
                w.signal(1, Word::Done, disp + 1).unwrap();
            }
        } else {
            while w.observe(0, Word::Done) != 10_001 {
                std::thread::yield_now();
            }
            for disp in [10_000, 510_000] {
                assert!(own(&w, disp, 100_000) == bytes(500_000, 1)[..100_000]);
            }
        }
        world.barrier();
    });
}

/// The target polls now and then while the origins assist. Every operation is applied exactly once.
#[test]
fn target_and_origins_consume_concurrently() {
    const COUNT: u64 = 20_000;
    let done = AtomicBool::new(false);
    run(3, |world| {
        let mut memory = vec![0u8; 4096];
        let mut w = world.window(Flavour::Attached, &mut memory);
        barrier(&mut w);
        if world.rank == 2 {
            let mut random = fastrand::Rng::with_seed(1);
            let mut absent = 0u64;
            while !done.load(Ordering::Acquire) {
                // Bursts of polls, with pauses about as long as the origin waits before it assists.
                for _ in 0..random.u32(1..20) {
                    w.poll();
                }
                for _ in 0..random.u32(1..3000) {
                    absent = std::hint::black_box(absent + 1);
                }
            }
        } else {
            let disp = 64 * u64::from(world.rank);
            let one = 1u64;
            let mut old = vec![0u64; COUNT as usize];
            let mut random = fastrand::Rng::with_seed(u64::from(world.rank));
            let mut flight = Flight::default();
            for i in 0..COUNT {
                let (origin, result) =
                    (Addr(&raw const one as usize), Addr(&raw mut old[i as usize] as usize));
                let add = Op {
                    element: U64,
                    reduction: reduction::SUM,
                    extent: 8,
                    origin,
                    result,
                    ..op(OpKind::Put, 2, disp, 8)
                };
                flight.post(&mut w, &Op { kind: OpKind::GetAccumulate, ..add });
                flight.post(&mut w, &Op { kind: OpKind::Accumulate, disp: 1024, ..add });
                if random.u8(..) == 0 {
                    for _ in 0..random.u32(0..500) {
                        flight.drive(&mut w);
                    }
                }
            }
            flight.finish(&mut w);
            assert!(old.iter().copied().eq(0..COUNT), "each one once, in order");
        }
        if world.rank == 0 {
            w.propose(Proposal::Ready);
            while w.decision().is_none() {
                done.store(true, Ordering::Release);
                std::thread::yield_now();
            }
        } else if world.rank == 1 {
            barrier(&mut w);
        }
        if world.rank == 2 {
            barrier(&mut w);
            assert_eq!(own(&w, 1024, 8), (2 * COUNT).to_ne_bytes());
        }
        barrier(&mut w);
    });
}

/// Random operations of all kinds and sizes, several in flight, compared with a model of the
/// target's memory. The target polls, does not poll, or alternates.
#[test]
fn random_operations_match_a_model() {
    const SIZE: usize = 1 << 20;
    const ROUNDS: u64 = 50;
    for (flavour, away) in [
        (Flavour::Allocated, 0),
        (Flavour::Copied, 1),
        (Flavour::Attached, 0),
        (Flavour::Attached, 1),
        (Flavour::Attached, 50),
    ] {
        // This target never polls, so the origins have to take its part.
        if (flavour, away) == (Flavour::Attached, 0)
            && skips_without_attach("random_operations_match_a_model, away")
        {
            continue;
        }
        run(3, |world| {
            let mut memory = vec![0u8; 2 * SIZE];
            let mut w = world.window(flavour, &mut memory);
            let mut random = fastrand::Rng::with_seed(u64::from(world.rank) + away);
            barrier(&mut w);
            if world.rank == 2 {
                // The others count themselves in this word when they are done.
                while w.load(2, LockWord::Readers) < 2 {
                    for _ in 0..random.u64(0..=100 * away.min(10)) {
                        w.poll();
                    }
                    for _ in 0..random.u64(0..=2000 * away) {
                        std::hint::black_box(());
                    }
                    std::thread::yield_now();
                }
                barrier(&mut w);
                return;
            }
            let base = SIZE * world.rank as usize;
            let mut model = vec![0u8; SIZE];
            for round in 0..ROUNDS {
                let mut flight = Flight::default();
                let mut at = 0;
                let from = bytes(SIZE, round);
                let mut back = vec![0u8; SIZE];
                let mut expected = vec![0u8; SIZE];
                while random.u8(0..16) != 0 {
                    // Sizes from 8 bytes to 128 KiB, as many small as large ones.
                    let len = random.usize(4..8) << random.u32(1..15);
                    let len = len & !7;
                    if at + len > SIZE {
                        break;
                    }
                    let place = at..at + len;
                    let mine = Op {
                        origin: Addr(&raw const from[at] as usize),
                        result: Addr(&raw mut back[at] as usize),
                        element: U64,
                        extent: 8,
                        ..op(OpKind::Put, 2, (base + at) as u64, len)
                    };
                    at += len;
                    match random.u8(0..5) {
                        0 => {
                            flight.post(&mut w, &mine);
                            model[place.clone()].copy_from_slice(&from[place]);
                        }
                        1 => {
                            flight.post(&mut w, &Op { kind: OpKind::Get, ..mine });
                            expected[place.clone()].copy_from_slice(&model[place]);
                        }
                        kind => {
                            if kind > 2 {
                                expected[place.clone()].copy_from_slice(&model[place.clone()]);
                            }
                            let kind =
                                if kind > 2 { OpKind::GetAccumulate } else { OpKind::Accumulate };
                            flight.post(&mut w, &Op { kind, reduction: reduction::BXOR, ..mine });
                            for (to, from) in model[place.clone()].iter_mut().zip(&from[place]) {
                                *to ^= from;
                            }
                        }
                    }
                }
                flight.finish(&mut w);
                assert!(back == expected, "round {round}");
            }
            let mut all = vec![0u8; SIZE];
            w.get(2, base as u64, &mut all);
            assert!(all == model);
            w.fetch_add(2, LockWord::Readers, 1);
            barrier(&mut w);
        });
    }
}
