//! Exchanges between neighbours: every process of a communicator in one thread, in random order,
//! against a reference; and which blocks correspond.

#![cfg(not(loom))]

use std::sync::atomic::AtomicU64;

use mpix_rma::collective::halo::{Exchange, Links, Topology, distinct, words_of};

/// The neighbours of one process, by blocks.
#[derive(Clone, Default)]
struct Neighbours {
    sources: Vec<Option<u32>>,
    destinations: Vec<Option<u32>>,
}

/// A random directed graph, with repeated edges and edges of a process to itself.
fn graph(ranks: u32, random: &mut fastrand::Rng) -> Vec<Neighbours> {
    let mut all = vec![Neighbours::default(); ranks as usize];
    for _ in 0..random.u32(..4 * ranks) {
        let (from, to) = (random.u32(..ranks), random.u32(..ranks));
        all[from as usize].destinations.push(Some(to));
        all[to as usize].sources.push(Some(from));
    }
    all
}

/// A Cartesian grid.
fn grid(dims: &[u32], periodic: &[bool]) -> Vec<Neighbours> {
    let ranks: u32 = dims.iter().product();
    let of = |rank: u32| {
        let mut neighbours = Neighbours::default();
        let mut span = ranks;
        for (extent, periodic) in dims.iter().zip(periodic) {
            span /= extent;
            let here = rank / span % extent;
            let moved = |ahead: bool| {
                let inside = if ahead { here + 1 < *extent } else { here > 0 };
                let there = (here + if ahead { 1 } else { extent - 1 }) % extent;
                (inside || *periodic).then(|| rank + there * span - here * span)
            };
            let both = [moved(false), moved(true)];
            neighbours.sources.extend(both);
            neighbours.destinations.extend(both);
        }
        neighbours
    };
    (0..ranks).map(of).collect()
}

/// The block that process `me` receives as block `at`.
fn matching(topology: Topology, all: &[Neighbours], me: u32, at: usize) -> Option<usize> {
    let own = &all[me as usize].sources;
    topology.matching((me, own), at, &all[own[at]? as usize].destinations)
}

#[test]
fn blocks_in_a_grid_come_from_the_opposite_direction() {
    for (dims, periodic) in [
        (vec![1], vec![true]),
        (vec![2], vec![true]),
        (vec![3], vec![true]),
        (vec![2, 1, 3], vec![true, true, false]),
        (vec![2, 2], vec![false, true]),
    ] {
        let all = grid(&dims, &periodic);
        for (me, own) in (0..).zip(&all) {
            for (at, source) in own.sources.iter().enumerate() {
                let expected = source.map(|_| at ^ 1);
                assert_eq!(matching(Topology::Cartesian, &all, me, at), expected, "{dims:?} {me}");
            }
        }
    }
}

#[test]
fn repeated_blocks_of_a_graph_keep_their_order() {
    let edges = |list: &[u32]| list.iter().map(|rank| Some(*rank)).collect::<Vec<_>>();
    let (sources, destinations) = (edges(&[1, 0, 1, 2, 1]), edges(&[2, 0, 0, 1, 0]));
    let matched = |at| Topology::Graph.matching((0, &sources), at, &destinations);
    assert_eq!([matched(0), matched(2), matched(4)], [Some(1), Some(2), Some(4)]);
    // The two processes differ in the number of blocks between them.
    assert_eq!(Topology::Graph.matching((0, &sources), 0, &destinations[..4]), None);
    assert_eq!(Topology::Graph.matching((0, &[None]), 0, &destinations), None);
    assert_eq!(Topology::Cartesian.matching((0, &edges(&[1, 1])), 0, &edges(&[0])), None);
}

/// What process `from` sends as block `block` of exchange `number`.
fn value(number: u64, from: u32, block: usize) -> u64 {
    number << 32 | u64::from(from) << 16 | block as u64
}

struct Process {
    exchange: Exchange,
    sources: Vec<u32>,
    number: u64,
    sent: Vec<u64>,
    received: Vec<u64>,
}

fn execute(topology: Topology, all: &[Neighbours], rounds: u64, random: &mut fastrand::Rng) {
    let reads: Vec<Vec<u32>> = all.iter().map(|own| distinct(&own.sources)).collect();
    let mut starts = vec![0];
    for sources in &reads {
        starts.push(starts.last().unwrap() + words_of(sources.len()));
    }
    let words: Vec<AtomicU64> = (0..*starts.last().unwrap()).map(|_| AtomicU64::new(0)).collect();
    let mut processes: Vec<Process> = (0..all.len())
        .map(|me| {
            let place = |rank: u32| {
                let found = reads[rank as usize].iter().position(|from| *from as usize == me);
                (starts[rank as usize], found.expect("a neighbour reads"))
            };
            let readers = distinct(&all[me].destinations).into_iter().map(place);
            let sources = reads[me].iter().map(|rank| starts[*rank as usize]).collect();
            Process {
                exchange: Exchange::new(Links::new(starts[me], sources, readers)),
                sources: reads[me].clone(),
                number: 0,
                sent: vec![0; all[me].destinations.len()],
                received: vec![0; all[me].sources.len()],
            }
        })
        .collect();
    let mut turns = 0;
    while processes.iter().any(|process| process.number < rounds || !process.exchange.is_complete())
    {
        turns += 1;
        assert!(turns < 1_000_000, "the exchanges stopped");
        let me = random.usize(..processes.len());
        if processes[me].exchange.is_complete() {
            let process = &mut processes[me];
            if process.number == rounds || random.bool() {
                continue;
            }
            process.number += 1;
            for (block, sent) in process.sent.iter_mut().enumerate() {
                *sent = value(process.number, me as u32, block);
            }
            process.exchange.start(&words);
        }
        let sent: Vec<Vec<u64>> = processes.iter().map(|process| process.sent.clone()).collect();
        let Process { exchange, sources, number, received, .. } = &mut processes[me];
        let complete = exchange.advance(&words, |place| {
            for (at, source) in all[me].sources.iter().enumerate() {
                if *source == Some(sources[place]) {
                    let block = matching(topology, all, me as u32, at).expect("blocks match");
                    received[at] = sent[sources[place] as usize][block];
                }
            }
        });
        if complete {
            for (at, source) in all[me].sources.iter().enumerate() {
                let Some(from) = *source else { continue };
                let block = matching(topology, all, me as u32, at).unwrap();
                assert_eq!(received[at], value(*number, from, block));
            }
        }
    }
}

#[test]
fn each_process_receives_the_data_of_each_exchange() {
    for seed in 0..200 {
        let random = &mut fastrand::Rng::with_seed(seed);
        let all = graph(1 + random.u32(..7), random);
        execute(Topology::Graph, &all, 5, random);
        let dims: Vec<u32> = (0..random.u32(1..4)).map(|_| random.u32(1..4)).collect();
        let periodic: Vec<bool> = dims.iter().map(|_| random.bool()).collect();
        execute(Topology::Cartesian, &grid(&dims, &periodic), 5, random);
    }
}

#[test]
fn a_process_without_neighbours_completes_at_once() {
    let words: Vec<AtomicU64> = (0..words_of(0)).map(|_| AtomicU64::new(0)).collect();
    let mut exchange = Exchange::new(Links::new(0, Vec::new(), []));
    for _ in 0..3 {
        exchange.start(&words);
        assert!(exchange.advance(&words, |_| panic!("nothing to read")));
    }
}
