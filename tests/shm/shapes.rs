//! Shaped operations on the shared-memory transport, on every path, mixed with plain ones and in
//! order.

use std::sync::Arc;

use crate::world::*;
use mpix_rma::engine::*;
use mpix_rma::transport::Proposal;
use mpix_rma::transport::datatype::element::reduction;
use mpix_rma::transport::datatype::{Block, Layout, Shape, Side};
use mpix_rma::transport::datatype::{gathered, scatter};
use mpix_rma::transport::shm::ShmWindow;

const WORD: usize = 8;

/// A barrier in which the window polls.
fn barrier(w: &mut ShmWindow) {
    w.propose(Proposal::Ready);
    while w.decision().is_none() {
        w.poll();
        std::thread::yield_now();
    }
}

/// A random layout of `words` words within twice the room; some are contiguous.
fn side(random: &mut fastrand::Rng, words: usize) -> Side {
    let word = Layout::element(WORD as u64, WORD as i64).unwrap();
    let (count, step) = (words as i64, 2 * WORD as i64);
    let layout = match random.u8(0..5) {
        0 => return Side::flat((words * WORD) as u64),
        1 => word.repeated(words as u64, step),
        2 => word
            .repeated(words as u64, -step)
            .map(|back| back.blocks([Block { count: 1, at: (count - 1) * step }]).unwrap()),
        3 => {
            // Blocks of different lengths, each followed by a gap of the same length.
            let (mut blocks, mut at) = (Vec::new(), 0);
            while at < count {
                let block = random.i64(1..5).min(count - at);
                blocks.push(Block { count: block as u64, at: at * step });
                at += block;
            }
            word.blocks(blocks)
        }
        _ => {
            let mut order: Vec<i64> = (0..count).collect();
            random.shuffle(&mut order);
            word.blocks(order.into_iter().map(|at| Block { count: 1, at: at * step }))
        }
    };
    Side::items(Arc::new(layout.unwrap()), 1)
}

/// Applies [`reduction::BXOR`] or [`reduction::REPLACE`].
fn combined(how: Reduction, target: &[u8], origin: &[u8]) -> Vec<u8> {
    let byte = |(a, b): (&u8, &u8)| if how == reduction::BXOR { a ^ b } else { *b };
    target.iter().zip(origin).map(byte).collect()
}

#[test]
fn shaped_and_plain_operations_match_a_model() {
    const SIZE: usize = 1 << 20;
    const ROUNDS: u64 = 30;
    for (flavour, away) in [
        (Flavour::Allocated, 0),
        (Flavour::Copied, 1),
        (Flavour::Attached, 0),
        (Flavour::Attached, 1),
        (Flavour::Attached, 50),
    ] {
        // This target never polls, so the origins have to take its part.
        if (flavour, away) == (Flavour::Attached, 0)
            && skips_without_attach("shaped_and_plain_operations_match_a_model, away")
        {
            continue;
        }
        run(3, |world| {
            let mut memory = vec![0u8; 2 * SIZE];
            let mut w = world.window(flavour, &mut memory);
            let mut random = fastrand::Rng::with_seed(u64::from(world.rank) + 7 * away);
            barrier(&mut w);
            if world.rank == 2 {
                // The others count themselves in this word when they are done.
                while w.access(2, LockWord::Readers, Atomic::Load) < 2 {
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
                let from: Vec<u8> = (0..SIZE).map(|_| random.u8(..)).collect();
                let mut back = vec![0xeeu8; SIZE];
                let mut expected = back.clone();
                // The buffers of one round follow one another. Target places are reused in later
                // rounds, those of atomic operations also within a round.
                let mut at = 0;
                while random.u8(0..24) != 0 {
                    let words = random.usize(4..8) << random.u32(0..11);
                    let len = 2 * words * WORD;
                    if at + len > SIZE {
                        break;
                    }
                    let kind =
                        [OpKind::Put, OpKind::Get, OpKind::Accumulate, OpKind::GetAccumulate]
                            [random.usize(0..4)];
                    let atomic = matches!(kind, OpKind::Accumulate | OpKind::GetAccumulate);
                    let place = if atomic { SIZE / 2 + random.usize(0..8) * WORD } else { at };
                    if place + len > if atomic { SIZE } else { SIZE / 2 } {
                        break;
                    }
                    let [origin, result, target] = [(); 3].map(|()| side(&mut random, words));
                    let how = if random.bool() { reduction::BXOR } else { reduction::REPLACE };
                    let data = gathered(&from, at, &origin);
                    let old = gathered(&model, place, &target);
                    if matches!(kind, OpKind::Get | OpKind::GetAccumulate) {
                        scatter(&old, &mut expected, at, &result);
                    }
                    if kind != OpKind::Get {
                        let new =
                            if kind == OpKind::Put { data } else { combined(how, &old, &data) };
                        scatter(&new, &mut model, place, &target);
                    }
                    let shape = [&origin, &result, &target]
                        .iter()
                        .any(|side| side.layout().is_some())
                        .then(|| {
                            let origin = (kind != OpKind::Get).then(|| origin.clone());
                            let result = matches!(kind, OpKind::Get | OpKind::GetAccumulate)
                                .then(|| result.clone());
                            w.add_shape(Shape {
                                origin,
                                result,
                                target: target.clone(),
                                disp: (base + place) as i64,
                            })
                        });
                    let disp = if shape.is_some() { 0 } else { (base + place) as u64 };
                    let op = Op {
                        origin: Addr(&raw const from[at] as usize),
                        result: if kind == OpKind::Put || kind == OpKind::Accumulate {
                            Addr(0)
                        } else {
                            Addr(&raw mut back[at] as usize)
                        },
                        element: U64,
                        extent: 8,
                        reduction: how,
                        shape,
                        ..op(kind, 2, disp, words * WORD)
                    };
                    flight.post(&mut w, &op);
                    at += len;
                }
                flight.finish(&mut w);
                assert_eq!(w.shapes(), 0, "shapes end with their operations");
                let first = back.iter().zip(&expected).position(|(one, other)| one != other);
                assert_eq!(first, None, "{flavour:?}, away {away}, round {round}: results");
                let mut all = vec![0u8; SIZE];
                w.get(2, base as u64, &mut all);
                let first = all.iter().zip(&model).position(|(one, other)| one != other);
                assert_eq!(first, None, "{flavour:?}, away {away}, round {round}: memory");
            }
            w.access(2, LockWord::Readers, Atomic::Add(1));
            barrier(&mut w);
        });
    }
}

/// A refused operation keeps its shape. If it will never be posted, the caller drops the shape.
#[test]
fn a_refused_operation_keeps_its_shape() {
    run(2, |world| {
        let mut memory = vec![0u8; 1 << 20];
        let mut w = world.create(&mut memory, false);
        if world.rank == 0 {
            let from = vec![5u8; 1 << 20];
            let mut kept = 0;
            let mut posted = Vec::new();
            for number in 0..8u32 {
                let (words, word) = (1 << 15, Layout::element(8, 8).unwrap());
                let target = Side::items(Arc::new(word.repeated(words, 16).unwrap()), 1);
                let origin = Some(Side::flat(words * 8));
                let shape = w.add_shape(Shape { origin, result: None, target, disp: 0 });
                let origin = Addr(from.as_ptr() as usize);
                let op = Op {
                    origin,
                    shape: Some(shape),
                    element: U64,
                    extent: 8,
                    ..op(OpKind::Put, 1, 0, 1 << 18)
                };
                match w.post(&op, Ticket(number)) {
                    Posted::NoResource => {
                        kept += 1;
                        w.take_shape(shape);
                    }
                    Posted::Complete => {}
                    _ => posted.push(number),
                }
            }
            assert!(kept > 0, "nobody serves the channel, so it fills");
            assert_eq!(w.shapes(), 0);
            world.barrier();
            while !posted.is_empty() {
                w.poll();
                while let Some((Ticket(number), stage)) = w.next_finished() {
                    if stage == Stage::Remote {
                        posted.retain(|other| *other != number);
                    }
                }
            }
        } else {
            world.barrier();
        }
        barrier(&mut w);
    });
}
