//! Derived datatypes by RDMA: numbers of requests, and that each byte arrives where it belongs.

use std::sync::Arc;

use mpix_rma::engine::*;
use mpix_rma::transport::datatype::{Block, Layout, Shape, Side};

use crate::carry::{contexts, net};
use crate::request_counts::{Met, drain, poll, stats_of};
use crate::world::*;

/// Runs of bytes: places and lengths.
type Places = Vec<(usize, usize)>;

fn side(places: &Places) -> Side {
    let byte = Layout::element(1, 1).unwrap();
    let blocks = places.iter().map(|(at, len)| Block { count: *len as u64, at: *at as i64 });
    Side::items(Arc::new(byte.blocks(blocks).unwrap()), 1)
}

/// `count` runs of `len` bytes, `stride` bytes apart.
fn every(count: usize, len: usize, stride: usize) -> Places {
    (0..count).map(|run| (run * stride, len)).collect()
}

fn gather(memory: &[u8], places: &Places) -> Vec<u8> {
    places.iter().flat_map(|(at, len)| memory[*at..at + len].iter().copied()).collect()
}

fn scatter(memory: &mut [u8], places: &Places, mut bytes: &[u8]) {
    for (at, len) in places {
        let (now, rest) = bytes.split_at(*len);
        memory[*at..at + len].copy_from_slice(now);
        bytes = rest;
    }
}

fn shaped(w: &mut [Far], kind: OpKind, near: (&[u8], &Places), disp: usize, there: &Places) -> Op {
    let (at, len) = (Addr(near.0.as_ptr() as usize), near.1.iter().map(|(_, len)| len).sum());
    let (origin, result) =
        if kind == OpKind::Put { (Some(side(near.1)), None) } else { (None, Some(side(near.1))) };
    let shape = Shape { origin, result, target: side(there), disp: disp as i64 };
    let shaped = w[0].add_shape(1, shape);
    let (origin, result) = if kind == OpKind::Put { (at, Addr(0)) } else { (Addr(0), at) };
    Op { origin, result, shape: Some(shaped), ..op(kind, 1, 0, len) }
}

fn post(w: &mut [Far], flight: &mut InFlight, op: &Op) {
    for turn in 0.. {
        assert!(turn < 100_000, "the operation is refused");
        if flight.try_post(&mut w[0], op) {
            break;
        }
        poll(w);
        flight.collect(&mut w[0]);
    }
}

const SIZE: usize = 1 << 20;

fn two() -> Met {
    let mut memories = vec![vec![0u8; SIZE]; 2];
    let (hub, mut w) = windows(&mut memories, 1);
    let mut flight = InFlight::default();
    let first = op(OpKind::Put, 1, 0, 1);
    post(&mut w, &mut flight, &Op { origin: Addr(memories[0].as_ptr() as usize), ..first });
    w[0].flush_and_poll();
    drain(&mut w, &mut flight);
    (hub, w, memories, flight)
}

#[test]
fn each_run_at_the_target_is_a_request() {
    let (hub, mut w, memories, mut flight) = two();
    assert!(count(&mut w, &[0, 1], None));
    let mut notified = 0;
    let one = |len: usize| vec![(40, len)];
    // The in-memory device gathers 4 runs, scatters 3, and takes 64 KB at a time.
    let cases: [(&str, Places, Places, [u64; 2]); 9] = [
        ("short runs into one", every(16, 100, 200), one(1600), [1, 1]),
        ("more of them than a buffer has", every(40, 1000, 1100), one(40_000), [3, 3]),
        ("long runs into one", every(4, 8192, 10_000), one(32_768), [1, 2]),
        ("long runs far apart, which are copied", every(4, 8192, 80_000), one(32_768), [2, 2]),
        ("one into long runs", one(32_768), every(8, 4096, 5000), [8, 8]),
        ("few short ones", one(80), every(10, 8, 64), [10, 10]),
        ("runs on both sides", every(20, 2048, 2500), every(40, 1024, 1500), [40, 40]),
        (
            "short ones into long ones, two of which are in two buffers",
            every(420, 100, 200),
            every(28, 1500, 2000),
            [30, 30],
        ),
        ("long ones on both sides", every(5, 8000, 9000), every(4, 10_000, 20_000), [4, 4]),
    ];
    for (name, near, there, requests) in cases {
        let sizes = [&near, &there].map(|places| places.iter().map(|(_, len)| len).sum::<usize>());
        assert_eq!(sizes[0], sizes[1], "{name}");
        let mut here: Vec<u8> = (0..SIZE).map(|_| fastrand::u8(..)).collect();
        let mut expected = memories[1].clone();
        scatter(&mut expected[64..], &there, &gather(&here, &near));
        // The last write of a put carries its notification.
        let told = Some(Notification::counter(0));
        let ways = [(OpKind::Put, None), (OpKind::Get, None), (OpKind::Put, told)];
        for (kind, notification) in ways {
            let expect = requests[usize::from(kind == OpKind::Get)];
            let mut result = vec![0u8; SIZE];
            let buffer = if kind == OpKind::Put { &mut here } else { &mut result };
            let op = Op { notification, ..shaped(&mut w, kind, (buffer, &near), 64, &there) };
            let before = stats_of(&hub, 0);
            post(&mut w, &mut flight, &op);
            w[0].flush_and_poll();
            drain(&mut w, &mut flight);
            let after = stats_of(&hub, 0);
            notified += u64::from(notification.is_some());
            assert_eq!(w[1].counter(0), notified, "{name}: {kind:?}");
            if crate::carry::device().is_none() {
                let posted =
                    after.posted - before.posted - (after.remote_fences - before.remote_fences);
                assert_eq!(posted, expect, "{name}: {kind:?}");
            }
            assert!(memories[1] == expected, "{name}: {kind:?}");
            if kind == OpKind::Get {
                let mut wanted = vec![0u8; SIZE];
                scatter(&mut wanted, &near, &gather(&here, &near));
                assert!(result == wanted, "{name}: what was fetched");
            }
        }
    }
    end(&hub, w);
}

#[test]
fn many_short_runs_go_as_packets() {
    let (hub, mut w, memories, mut flight) = two();
    let (near, there) = (vec![(0, 16_000)], every(2000, 8, 24));
    let here: Vec<u8> = (0..16_000).map(|_| fastrand::u8(..)).collect();
    let op = shaped(&mut w, OpKind::Put, (&here, &near), 64, &there);
    let before = stats_of(&hub, 0).posted;
    post(&mut w, &mut flight, &op);
    w[0].flush_and_poll();
    drain(&mut w, &mut flight);
    assert!(stats_of(&hub, 0).posted - before < 20);
    assert_eq!(gather(&memories[1][64..], &there), here);
    end(&hub, w);
}

/// A short put is locally complete when it has been posted.
#[test]
fn a_copied_put_is_locally_complete_at_once() {
    let (hub, mut w, memories, mut flight) = two();
    let (near, there) = (every(20, 100, 200), vec![(0, 2000)]);
    let mut here = vec![5u8; 4000];
    let op = shaped(&mut w, OpKind::Put, (&here, &near), 0, &there);
    assert_eq!(w[0].post(&op, Ticket(1000)), Posted::Local);
    here.fill(6);
    w[0].flush_and_poll();
    for turn in 0.. {
        assert!(turn < 100_000);
        poll(&mut w);
        if let Some((ticket, stage)) = w[0].next_finished() {
            assert_eq!((ticket, stage), (Ticket(1000), Stage::Remote));
            break;
        }
    }
    assert_eq!(memories[1][..2000], [5u8; 2000]);
    drain(&mut w, &mut flight);
    end(&hub, w);
}

#[test]
fn pending_fragments_release_their_memory_on_failure() {
    if crate::carry::device().is_some() {
        return;
    }
    // From registered memory, and through buffers; more requests than the queue holds.
    for near in [every(20, 2048, 2500), every(160, 256, 300)] {
        let (hub, mut w, _memories, mut flight) = two();
        let there = every(40, 1024, 1500);
        contexts(&hub)[0].borrow().set_registration_bound(0);
        let before = net(&hub).lock().unwrap().registered();
        net(&hub).lock().unwrap().make_unreachable(w[1].base().0);
        let here = vec![1u8; 1 << 17];
        let op = shaped(&mut w, OpKind::Put, (&here, &near), 64, &there);
        assert!(flight.try_post(&mut w[0], &op));
        assert_eq!(net(&hub).lock().unwrap().registered() - before, usize::from(near.len() == 20));
        for turn in 0.. {
            assert!(turn < 1000, "the failure is not reported");
            w[0].poll();
            if w[0].is_broken() {
                break;
            }
        }
        assert_eq!(net(&hub).lock().unwrap().registered(), before);
    }
}

/// Runs in ascending or descending order within `room` bytes, with `len` bytes of data.
fn places(rng: &mut fastrand::Rng, len: usize, room: usize) -> Places {
    let scale = [8, 64, 700, 3000, 20_000][rng.usize(0..5)];
    let (mut places, mut at, mut left, mut spare) = (Vec::new(), 0, len, room - len);
    while left > 0 {
        let gap = rng.usize(0..=scale.min(spare));
        let run = rng.usize(1..=scale * 2).min(left);
        (at, spare, left) = (at + gap, spare - gap, left - run);
        places.push((at, run));
        at += run;
    }
    if rng.bool() {
        places.reverse();
    }
    places
}

#[test]
fn every_byte_comes_where_it_belongs() {
    const SLOT: usize = 1 << 16;
    const SLOTS: usize = SIZE / SLOT;
    let rounds = if crate::carry::device().is_some() { 3 } else { 40 };
    for seed in 0..rounds {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (hub, mut w, memories, mut flight) = two();
        let mut expected = memories[1].clone();
        let plan: Vec<(Vec<u8>, Places, Places)> = (0..SLOTS)
            .map(|_| {
                let len = [1, 30, 900, 5000, 17_000, 50_000][rng.usize(0..6)];
                let buffer = (0..SLOT).map(|_| rng.u8(..)).collect();
                (buffer, places(&mut rng, len, SLOT), places(&mut rng, len, SLOT))
            })
            .collect();
        for (slot, (buffer, near, there)) in plan.iter().enumerate() {
            scatter(&mut expected[slot * SLOT..], there, &gather(buffer, near));
            let op = shaped(&mut w, OpKind::Put, (buffer, near), slot * SLOT, there);
            post(&mut w, &mut flight, &op);
        }
        w[0].flush_and_poll();
        drain(&mut w, &mut flight);
        assert!(memories[1] == expected, "seed {seed}");
        let results: Vec<Vec<u8>> = plan.iter().map(|_| vec![0; SLOT]).collect();
        for (slot, (_, near, there)) in plan.iter().enumerate() {
            let op = shaped(&mut w, OpKind::Get, (&results[slot], near), slot * SLOT, there);
            post(&mut w, &mut flight, &op);
        }
        drain(&mut w, &mut flight);
        for (slot, (buffer, near, _)) in plan.iter().enumerate() {
            let mut wanted = vec![0u8; SLOT];
            scatter(&mut wanted, near, &gather(buffer, near));
            assert!(results[slot] == wanted, "seed {seed}, slot {slot}");
        }
        end(&hub, w);
    }
}
