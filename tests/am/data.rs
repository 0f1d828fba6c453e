//! Operations with derived datatypes, and on elements of the host.

use std::sync::Arc;

use mpix_rma::engine::*;
use mpix_rma::transport::datatype::element::{native, reduction};
use mpix_rma::transport::datatype::{Layout, Shape, Side};

use crate::world::*;

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
