//! Layouts of datatypes: random ones, nested at random, compared with a plain list of their bytes.

#![cfg(not(loom))]

use std::sync::Arc;

use mpix_rma::transport::datatype::*;

/// A layout, and the displacements of its bytes in packing order.
#[derive(Clone)]
struct Both {
    layout: Layout,
    bytes: Vec<i64>,
}

fn element(span: i64, extent: i64) -> Both {
    Both { layout: Layout::element(span as u64, extent).unwrap(), bytes: (0..span).collect() }
}

fn copies(bytes: &[i64], count: i64, stride: i64, at: i64) -> impl Iterator<Item = i64> {
    (0..count).flat_map(move |i| bytes.iter().map(move |byte| byte + i * stride + at))
}

/// A random layout, nested `depth` levels deep.
fn random(rng: &mut fastrand::Rng, depth: u32) -> Both {
    if depth == 0 {
        let (span, extent) =
            [(1, 1), (2, 2), (4, 4), (8, 8), (12, 16), (16, 16), (20, 32)][rng.usize(0..7)];
        return element(span, extent);
    }
    let inner = random(rng, depth - 1);
    let extent = inner.layout.extent();
    match rng.u8(0..6) {
        0 => {
            let count = rng.i64(0..5);
            let bytes = copies(&inner.bytes, count, extent, 0).collect();
            Both { layout: inner.layout.repeated(count as u64, extent).unwrap(), bytes }
        }
        1 | 2 => {
            let (count, block) = (rng.i64(0..5), rng.i64(0..4));
            let stride = if rng.bool() { rng.i64(-3..6) * extent } else { rng.i64(-100..100) };
            let one: Vec<i64> = copies(&inner.bytes, block, extent, 0).collect();
            let bytes = copies(&one, count, stride, 0).collect();
            Both {
                layout: inner.layout.strided(count as u64, block as u64, stride).unwrap(),
                bytes,
            }
        }
        3 => {
            let even = rng.bool();
            let blocks: Vec<Block> = (0..rng.i64(0..7))
                .map(|i| Block {
                    count: rng.u64(0..3),
                    at: if even { i * 3 * extent } else { rng.i64(-200..200) },
                })
                .collect();
            let bytes = blocks
                .iter()
                .flat_map(|block| copies(&inner.bytes, block.count as i64, extent, block.at))
                .collect();
            Both { layout: inner.layout.blocks(blocks).unwrap(), bytes }
        }
        4 => {
            let others: Vec<Both> = (0..rng.u32(1..4)).map(|_| random(rng, depth - 1)).collect();
            let members: Vec<(Block, &Both)> = others
                .iter()
                .map(|both| (Block { count: rng.u64(0..3), at: rng.i64(-300..300) }, both))
                .collect();
            let bytes = members
                .iter()
                .flat_map(|(block, both)| {
                    copies(&both.bytes, block.count as i64, both.layout.extent(), block.at)
                })
                .collect();
            Both {
                layout: Layout::structure(
                    members.iter().map(|(block, both)| (*block, &both.layout)),
                )
                .unwrap(),
                bytes,
            }
        }
        _ => {
            let Both { layout, bytes } = inner;
            Both { layout: layout.resized(rng.i64(-20..20), rng.i64(-40..90)), bytes }
        }
    }
}

fn side(both: &Both, count: i64) -> (Side, Vec<i64>) {
    let bytes = copies(&both.bytes, count, both.layout.extent(), 0).collect();
    (Side::items(Arc::new(both.layout.clone()), count as u64), bytes)
}

fn random_side(rng: &mut fastrand::Rng) -> (Side, Vec<i64>) {
    let depth = rng.u32(0..5);
    let both = random(rng, depth);
    let (side, mut bytes) = side(&both, rng.i64(0..4));
    if rng.bool() {
        return (side, bytes);
    }
    // Half of the sides end anywhere.
    bytes.truncate(rng.usize(0..=bytes.len()));
    (side.first(bytes.len() as u64), bytes)
}

fn walked(side: &Side, from: u64, rng: &mut fastrand::Rng) -> Vec<i64> {
    let mut cursor = side.walk(from);
    let mut bytes = Vec::new();
    loop {
        let limit = if rng.bool() { u64::MAX } else { rng.u64(1..40) };
        let Some(runs) = cursor.next_runs(limit) else { break };
        assert!(runs.len > 0 && runs.count > 0 && runs.len * runs.count <= limit);
        bytes.extend(
            (0..runs.count as i64)
                .flat_map(|i| (0..runs.len as i64).map(move |k| runs.at + i * runs.stride + k)),
        );
    }
    bytes
}

/// Runs a test for many seeds; reports the seed that fails.
fn seeds(count: u64, test: impl Fn(&mut fastrand::Rng)) {
    for seed in 0..count {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            test(&mut fastrand::Rng::with_seed(seed))
        }));
        assert!(result.is_ok(), "seed {seed}");
    }
}

const SEEDS: u64 = if cfg!(miri) { 30 } else { 4000 };

#[test]
fn a_walk_visits_every_byte_in_order_from_any_offset() {
    seeds(SEEDS, |rng| {
        let (side, bytes) = random_side(rng);
        assert_eq!(side.size(), bytes.len() as u64);
        let bounds = (
            bytes.iter().min().copied().unwrap_or(0),
            bytes.iter().max().map_or(0, |last| last + 1),
        );
        assert_eq!(side.bounds(), bounds);
        assert_eq!(walked(&side, 0, rng), bytes);
        for _ in 0..3 {
            let from = rng.usize(0..=bytes.len());
            assert_eq!(walked(&side, from as u64, rng), bytes[from..], "from {from}");
        }
    });
}

#[test]
fn bounds_match_the_constructors() {
    let int = Layout::element(4, 4).unwrap();
    let vector = int.strided(3, 2, 20).unwrap();
    assert_eq!(
        (vector.lower(), vector.extent(), vector.bounds(), vector.size()),
        (0, 48, (0, 48), 24)
    );
    let resized = vector.clone().resized(-8, 64);
    let pair = Layout::structure([
        (Block { count: 2, at: 100 }, &resized),
        (Block { count: 1, at: -4 }, &int),
    ])
    .unwrap();
    assert_eq!((pair.lower(), pair.extent()), (-4, 92 + 128 + 4));
    assert_eq!(pair.bounds(), (-4, 100 + 64 + 48));
    assert_eq!(Layout::empty().repeated(5, 8).unwrap().size(), 0);
}

#[test]
fn a_pair_walk_matches_the_bytes_of_both_sides() {
    seeds(SEEDS, |rng| {
        let (one, bytes) = random_side(rng);
        // Another layout of the same size: contiguous, or of another element.
        let other = match rng.u8(0..3) {
            0 => (Side::flat(bytes.len() as u64), (0..bytes.len() as i64).collect::<Vec<_>>()),
            _ => {
                let len = [1, 2, 4, 8, 3][rng.usize(0..5)];
                if bytes.len() % len != 0 {
                    return;
                }
                let both = element(len as i64, len as i64);
                let stride = rng.i64(-30..30);
                let items = (bytes.len() / len) as i64;
                let all = copies(&both.bytes, items, stride, 0).collect();
                (Side::items(Arc::new(both.layout.repeated(items as u64, stride).unwrap()), 1), all)
            }
        };
        let from = rng.usize(0..=bytes.len());
        let mut pair = Pair::new(&one, &other.0, from as u64);
        let mut seen = Vec::new();
        loop {
            let limit = if rng.bool() { u64::MAX } else { rng.u64(1..40) };
            let Some(Pieces { at, stride, len, count }) = pair.next_pieces(limit) else { break };
            assert!(len > 0 && count > 0 && len * count <= limit);
            for i in 0..count as i64 {
                seen.extend(
                    (0..len as i64).map(|k| (at[0] + i * stride[0] + k, at[1] + i * stride[1] + k)),
                );
            }
        }
        let expected: Vec<(i64, i64)> = bytes.into_iter().zip(other.1).skip(from).collect();
        assert_eq!(seen, expected);
    });
}

#[test]
fn elements_are_never_divided() {
    seeds(SEEDS, |rng| {
        // Two layouts of the same elements, some with padding.
        let (span, extent) = [(8, 8), (12, 16), (20, 32), (4, 4)][rng.usize(0..4)];
        let unit = element(span, extent).layout;
        let (count, block) = (rng.u64(1..6), rng.u64(1..6));
        let one = unit.strided(count, block, rng.i64(1..9) * extent * block as i64).unwrap();
        let blocks = (0..count * block)
            .map(|i| Block { count: 1, at: (i as i64 * 3 + i as i64 / 2) * extent });
        let other = unit.blocks(blocks).unwrap();
        assert_eq!([one.unit(), other.unit()], [span as u8; 2]);
        let sides = [one, other].map(|layout| Side::items(Arc::new(layout), 2));
        let mut pair = Pair::new(&sides[0], &sides[1], 0);
        while let Some(pieces) = pair.next_pieces(span as u64 * rng.u64(1..9)) {
            let whole = if span == extent {
                pieces.len % span as u64 == 0
            } else {
                pieces.len == span as u64
            };
            assert!(whole, "{pieces:?} of elements of {span}");
        }
    });
}

#[test]
fn a_million_blocks_are_one_step() {
    let double = Layout::element(8, 8).unwrap();
    let vector = double.strided(1_000_000, 1, 16).unwrap();
    assert_eq!(vector.steps(), 1);
    // The same if every block is listed, or the vector is made of vectors.
    let listed = double.blocks((0..1_000_000).map(|i| Block { count: 1, at: 16 * i })).unwrap();
    assert_eq!(listed.steps(), 1);
    let rows = double.strided(1000, 1, 16).unwrap().repeated(1000, 16_000).unwrap();
    assert_eq!(rows.steps(), 1);
    assert_eq!((rows.bounds(), listed.bounds()), (vector.bounds(), vector.bounds()));
    // A matrix of structures stores the structure once.
    let record = Layout::structure([
        (Block { count: 1, at: 0 }, &double),
        (Block { count: 3, at: 24 }, &vector),
    ])
    .unwrap();
    assert!(
        record.strided(1000, 1, 1 << 40).unwrap().strided(50, 2, 1 << 50).unwrap().steps() < 10
    );
    let touching = double.strided(10, 4, 32).unwrap();
    assert_eq!(Side::items(Arc::new(touching), 7).run(), Some(0));
}

#[test]
fn layouts_beyond_64_bits_are_refused() {
    let double = Layout::element(8, 8).unwrap();
    assert!(double.repeated(1 << 61, 8).is_none());
    assert!(double.strided(3, 1, i64::MAX / 2).is_none());
    assert!(double.blocks([Block { count: 1, at: i64::MAX - 3 }]).is_none());
    let far = double.blocks([Block { count: 1, at: i64::MIN }, Block { count: 1, at: 0 }]);
    assert!(far.is_none_or(|far| far.bounds() == (i64::MIN, 8)));
    let spread = double.strided(2, 1, 1 << 40).unwrap();
    assert_eq!(spread.bounds_of(1 << 30), None);
    assert_eq!(spread.bounds_of(0), Some((0, 0)));
    assert_eq!(spread.size_of(u64::MAX / 8), None);
}

#[test]
fn unpacking_restores_what_was_packed() {
    seeds(SEEDS, |rng| {
        let (side, bytes) = random_side(rng);
        let (low, high) = side.bounds();
        let base = (-low).max(0) as usize;
        let memory: Vec<u8> = (0..base as i64 + high.max(0)).map(|_| rng.u8(..)).collect();
        let expected: Vec<u8> =
            bytes.iter().map(|at| memory[(base as i64 + at) as usize]).collect();
        assert_eq!(gathered(&memory, base, &side), expected);
        let from = rng.usize(0..=bytes.len());
        let len = rng.usize(0..=bytes.len() - from);
        let mut packed = vec![0; len];
        // SAFETY: the side lies in `memory`, and has the packed bytes.
        unsafe {
            pack(memory.as_ptr().wrapping_add(base), &side, from as u64, packed.as_mut_ptr(), len)
        };
        assert_eq!(packed, expected[from..from + len]);
        let mut other = vec![0; memory.len()];
        // SAFETY: the side lies in `other`, and has the packed bytes.
        unsafe {
            unpack(packed.as_ptr(), other.as_mut_ptr().wrapping_add(base), &side, from as u64, len)
        };
        for (at, byte) in bytes.iter().zip(&expected).skip(from).take(len) {
            // A byte that occurs twice in the side is written twice with the same value.
            assert_eq!(other[(base as i64 + at) as usize], *byte);
        }
        assert_eq!(other.iter().filter(|byte| **byte != 0).count(), {
            let touched: std::collections::BTreeSet<i64> =
                bytes.iter().skip(from).take(len).copied().collect();
            touched.iter().filter(|at| memory[(base as i64 + **at) as usize] != 0).count()
        });
        let mut scattered = vec![0; memory.len()];
        scatter(&expected, &mut scattered, base, &side);
        assert_eq!(gathered(&scattered, base, &side), expected);
        let mut moved = vec![0; memory.len()];
        let places = [memory.as_ptr().wrapping_add(base), moved.as_mut_ptr().wrapping_add(base)];
        // SAFETY: the side lies in both memories.
        unsafe { transfer(places[0], &side, places[1].cast_mut(), &side) };
        assert_eq!(moved, scattered);
    });
}

#[test]
fn a_plan_copies_from_one_layout_to_another() {
    seeds(SEEDS, |rng| {
        let (source, bytes) = random_side(rng);
        let width = [1, 2, 4, 8, 3][rng.usize(0..5)];
        let items = bytes.len() / width;
        let unit = Layout::element(width as u64, width as i64).unwrap();
        // Any distance at which the items do not overlap.
        let stride = rng.i64(width as i64..40);
        let sink =
            Side::items(Arc::new(unit.repeated(items as u64, stride).unwrap()), 1 + rng.u64(0..2));
        let (low, high) = source.bounds();
        let base = (-low).max(0) as usize;
        let memory: Vec<u8> = (0..base as i64 + high.max(0)).map(|_| rng.u8(..)).collect();
        let plan = CopyPlan::new(&source, &sink);
        let moved = bytes.len().min(sink.size() as usize);
        assert_eq!(plan.bytes(), moved as u64);
        let mut result = vec![0u8; sink.bounds().1 as usize];
        let mut expected = result.clone();
        let mut places = sink.walk(0);
        let mut packed = gathered(&memory, base, &source).into_iter().take(moved);
        while let Some(Runs { at, stride, len, count }) = places.next_runs(u64::MAX) {
            for run in 0..count as i64 {
                let start = (at + run * stride) as usize;
                expected[start..start + len as usize]
                    .iter_mut()
                    .zip(&mut packed)
                    .for_each(|(place, byte)| *place = byte);
            }
        }
        // SAFETY: both sides lie in their memories.
        unsafe { plan.run(memory.as_ptr().wrapping_add(base), result.as_mut_ptr()) };
        assert_eq!(result, expected);
    });
}

#[test]
fn sides_are_the_same_after_a_transfer_as_words() {
    seeds(SEEDS, |rng| {
        let sides = [random_side(rng).0, random_side(rng).0, Side::flat(rng.u64(..))];
        let mut words = Vec::new();
        sides.iter().for_each(|side| side.encode(&mut words));
        let mut rest = &words[..];
        for side in &sides {
            assert_eq!(Side::decode(&mut rest).as_ref(), Some(side));
        }
        assert!(rest.is_empty());
        // Words that are cut off, or not those of a side, are refused or decoded, without a panic.
        let cut = rng.usize(..words.len());
        _ = Side::decode(&mut &words[..cut]);
        words[cut] = rng.u64(..);
        _ = Side::decode(&mut &words[..]);
    });
}
