//! Operations of every kind and size in random order, compared with a model of the memory.

use std::sync::Arc;

use mpix_rma::engine::*;
use mpix_rma::transport::datatype::element::{native, reduction};
use mpix_rma::transport::datatype::{Layout, Shape, Side};

use crate::world::*;

const SIZE: usize = 256 * 1024;

/// One operation with its buffers and the expected result.
struct Call {
    op: Op,
    origin: Vec<u8>,
    result: Vec<u8>,
    expected: Vec<u8>,
    compare: Vec<u8>,
}

/// A random operation of `me` on its own part of a target's memory. Applies it to the model.
fn call(rng: &mut fastrand::Rng, me: Rank, ranks: u32, model: &mut [Vec<u8>]) -> Call {
    let target = rng.u32(0..ranks);
    let own = SIZE / ranks as usize;
    let sizes = [1, 8, 8, 8, 40, 511, 512, 1024, 5000, 16_000, 16_384, 33_000];
    let kind = [
        OpKind::Put,
        OpKind::Get,
        OpKind::Accumulate,
        OpKind::GetAccumulate,
        OpKind::CompareAndSwap,
    ][rng.usize(0..5)];
    let (element, extent) = if rng.bool() { (native::U64, 8usize) } else { (native::U8, 1) };
    let len = match kind {
        OpKind::CompareAndSwap => extent,
        _ => (sizes[rng.usize(0..sizes.len())] / extent).max(1) * extent,
    };
    let disp = (own * me as usize + rng.usize(0..own - len)) / extent * extent;
    let disp =
        disp.max(own * me as usize).next_multiple_of(extent).min(own * (me as usize + 1) - len);
    let mut call = Call {
        op: Op {
            element,
            extent: extent as u8,
            reduction: reduction::SUM,
            ..op(kind, target, disp as u64, len)
        },
        origin: (0..len).map(|_| rng.u8(..)).collect(),
        result: vec![0; len],
        expected: vec![0; len],
        compare: Vec::new(),
    };
    let there = &mut model[target as usize][disp..disp + len];
    call.compare = if rng.bool() { there.to_vec() } else { vec![3; len] };
    if kind != OpKind::Put && kind != OpKind::Accumulate {
        call.expected.copy_from_slice(there);
    }
    match kind {
        OpKind::Put => there.copy_from_slice(&call.origin),
        OpKind::Get => {}
        OpKind::CompareAndSwap if *there != *call.compare => {}
        OpKind::CompareAndSwap => there.copy_from_slice(&call.origin),
        OpKind::Accumulate | OpKind::GetAccumulate => {
            for (to, from) in there.chunks_exact_mut(extent).zip(call.origin.chunks_exact(extent)) {
                if extent == 1 {
                    to[0] = to[0].wrapping_add(from[0]);
                } else {
                    let sum = u64::from_ne_bytes((&*to).try_into().unwrap())
                        .wrapping_add(u64::from_ne_bytes(from.try_into().unwrap()));
                    to.copy_from_slice(&sum.to_ne_bytes());
                }
            }
        }
    }
    call.op.origin = Addr(call.origin.as_ptr() as usize);
    call.op.result = Addr(call.result.as_mut_ptr() as usize);
    call.op.compare = Addr(call.compare.as_ptr() as usize);
    call
}

/// Operations of one origin on one place are ordered where they are accumulates [AT-1]; others are
/// waited for.
#[test]
fn operations_do_what_they_say() {
    for seed in 1..=60u64 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let ranks = rng.u32(2..=4);
        let mut memories: Vec<Vec<u8>> =
            (0..ranks).map(|_| (0..SIZE).map(|_| rng.u8(..)).collect()).collect();
        let mut model = memories.clone();
        let (hub, mut w) = windows(&mut memories, seed);
        for _ in 0..60 {
            let me = rng.u32(0..ranks) as usize;
            let mut flight = InFlight::default();
            let mut call = call(&mut rng, me as Rank, ranks, &mut model);
            while !flight.try_post(&mut w[me], &call.op) {
                w.iter_mut().for_each(|window| _ = window.poll());
            }
            // The origin buffer is the application's again once the operation is locally complete.
            let mut turns = 0;
            while flight.open > 0 {
                if flight.is_local(0) {
                    call.origin.fill(0xEE);
                }
                w.iter_mut().for_each(|window| _ = window.poll());
                flight.collect(&mut w[me]);
                turns += 1;
                assert!(turns < 10_000, "seed {seed}: {:?} does not end", call.op);
            }
            assert!(call.result == call.expected, "seed {seed}: wrong result of {:?}", call.op);
        }
        end(&hub, w);
        assert!(memories == model, "seed {seed}: wrong memory");
    }
}

#[test]
fn at1_accumulates_of_one_origin_keep_their_order() {
    for seed in 1..=30u64 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut memories = vec![vec![0u8; 60_000]; 2];
        let (hub, mut w) = windows(&mut memories, seed);
        let values: Vec<Vec<u8>> = (0..40)
            .map(|round| vec![round as u8 + 1; [8, 100, 20_000, 60_000][rng.usize(0..4)]])
            .collect();
        let mut flight = InFlight::default();
        for value in &values {
            let op = Op {
                origin: Addr(value.as_ptr() as usize),
                element: native::BYTE,
                reduction: reduction::REPLACE,
                ..op(OpKind::Accumulate, 1, 0, value.len())
            };
            while !flight.try_post(&mut w[0], &op) {
                w.iter_mut().for_each(|window| _ = window.poll());
                flight.collect(&mut w[0]);
            }
        }
        while flight.open > 0 {
            w.iter_mut().for_each(|window| _ = window.poll());
            flight.collect(&mut w[0]);
        }
        end(&hub, w);
        let mut expected = vec![0u8; 60_000];
        values.iter().for_each(|value| expected[..value.len()].copy_from_slice(value));
        assert!(memories[1] == expected, "seed {seed}");
    }
}

/// Completes one shaped operation.
fn shaped(w: &mut [Far], op: Op, shape: Shape) {
    let shaped = w[0].add_shape(op.target, shape);
    let op = Op { shape: Some(shaped), ..op };
    let mut flight = InFlight::default();
    while !flight.try_post(&mut w[0], &op) {
        w.iter_mut().for_each(|window| _ = window.poll());
    }
    while flight.open > 0 {
        w.iter_mut().for_each(|window| _ = window.poll());
        flight.collect(&mut w[0]);
    }
}

#[test]
fn strided_data_arrive_where_they_belong() {
    const BLOCKS: u64 = 9000;
    let word = Arc::new(word_layout());
    // Every second word at the target, in reverse order; every third word at the origin.
    let there = Arc::new(word.repeated(BLOCKS, -16).unwrap());
    let here = Arc::new(word.repeated(BLOCKS, 24).unwrap());
    let base = 16 * (BLOCKS as i64 - 1);
    let mut memories = vec![vec![0u8; 16 * BLOCKS as usize]; 2];
    let (hub, mut w) = windows(&mut memories, 5);
    let origin: Vec<u64> = (0..3 * BLOCKS).collect();
    let mut result = vec![u64::MAX; 3 * BLOCKS as usize];
    let side = |layout: &Arc<Layout>| Side::items(Arc::clone(layout), 1);
    let len = 8 * BLOCKS as usize;
    let put = Op { origin: Addr(origin.as_ptr() as usize), ..op(OpKind::Put, 1, 0, len) };
    shaped(
        &mut w,
        put,
        Shape { origin: Some(side(&here)), result: None, target: side(&there), disp: base },
    );
    let how = |kind| Op {
        element: native::U64,
        reduction: reduction::SUM,
        extent: 8,
        ..op(kind, 1, 0, len)
    };
    let add = Op { origin: Addr(origin.as_ptr() as usize), ..how(OpKind::Accumulate) };
    shaped(
        &mut w,
        add,
        Shape { origin: Some(side(&here)), result: None, target: side(&there), disp: base },
    );
    let get = Op { result: Addr(result.as_mut_ptr() as usize), ..op(OpKind::Get, 1, 0, len) };
    shaped(
        &mut w,
        get,
        Shape { origin: None, result: Some(side(&here)), target: side(&there), disp: base },
    );
    for at in 0..BLOCKS as usize {
        assert_eq!(result[3 * at], 2 * 3 * at as u64, "block {at}");
        assert_eq!(result[3 * at + 1], u64::MAX);
    }
    let fetch = Op {
        origin: Addr(origin.as_ptr() as usize),
        result: Addr(result.as_mut_ptr() as usize),
        ..how(OpKind::GetAccumulate)
    };
    let target = side(&there);
    shaped(
        &mut w,
        fetch,
        Shape {
            origin: Some(Side::flat(len as u64)),
            result: Some(Side::flat(len as u64)),
            target,
            disp: base,
        },
    );
    assert!((0..BLOCKS as usize).all(|at| result[at] == 6 * at as u64));
    end(&hub, w);
    for at in 0..BLOCKS as usize {
        let place = 16 * (BLOCKS as usize - 1 - at);
        assert_eq!(
            u64::from_ne_bytes(memories[1][place..place + 8].try_into().unwrap()),
            6 * at as u64 + at as u64
        );
    }
}

/// The layout of one word of 8 bytes.
fn word_layout() -> Layout {
    Layout::element(8, 8).expect("a word")
}

#[test]
fn elements_of_the_host_are_reduced_aligned_and_whole() {
    let mut memories = vec![vec![0u8; 4096]; 2];
    let (hub, mut w) = windows(&mut memories, 3);
    let pairs: Vec<(f64, i32)> = (0..100).map(|i| (f64::from(i) + 1.0, i)).collect();
    let mut flight = InFlight::default();
    // The last pair has no padding.
    let len = 99 * 16 + 12;
    let op = Op {
        origin: Addr(pairs.as_ptr() as usize),
        element: PAIR,
        reduction: reduction::MAXLOC,
        extent: 16,
        ..op(OpKind::Accumulate, 1, 16, len)
    };
    assert!((0..100).any(|_| flight.try_post(&mut w[0], &op)));
    while flight.open > 0 {
        w.iter_mut().for_each(|window| _ = window.poll());
        flight.collect(&mut w[0]);
    }
    end(&hub, w);
    for i in 0..100usize {
        assert_eq!(
            f64::from_ne_bytes(memories[1][16 + 16 * i..][..8].try_into().unwrap()),
            i as f64 + 1.0
        );
    }
}
