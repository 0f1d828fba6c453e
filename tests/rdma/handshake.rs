//! Malformed handshakes, and peers that do not answer.
//! To replay one seed: `MPIX_FUZZ_SEED=<seed> cargo test --test rdma handshake -- --nocapture`. To
//! run more: `MPIX_FUZZ_SEEDS=<number>`.

use mpix_rma::engine::*;
use mpix_rma::transport::rdma::device::{AtomicCapability, PortAddress};
use mpix_rma::transport::rdma::handshake::{
    Handshake, LEN, ProcessId, QpStatus, RemoteAddress, RemoteWindow, Step,
};

use crate::carry::{ADAPTERS, Adapter, Adapters, contexts};
use crate::hostile::{self, Turn};
use crate::world::*;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// A message that rank 1 might send, with some fields wrong.
fn malformed(rng: &mut fastrand::Rng) -> Vec<u8> {
    let steps = [
        Step::Request,
        Step::Reply,
        Step::Confirm,
        Step::Ready,
        Step::LookupRequest,
        Step::LookupReply,
        Step::Yield,
        Step::Reject,
    ];
    let few = |rng: &mut fastrand::Rng| if rng.u8(0..3) > 0 { rng.u32(0..4) } else { rng.u32(..) };
    // Some overflow when a displacement is added.
    let spot = |rng: &mut fastrand::Rng| {
        let addr = if rng.bool() { rng.u64(..) } else { u64::MAX - rng.u64(0..64) };
        RemoteAddress { addr, rkey: rng.u32(..) }
    };
    let aligned = |rng: &mut fastrand::Rng| {
        let RemoteAddress { addr, rkey } = spot(rng);
        RemoteAddress { addr: addr & !7, rkey }
    };
    let message = Handshake {
        step: steps[rng.usize(0..steps.len())],
        // Mostly the sender's own id, or that of the receiver.
        process: ProcessId([if rng.u8(0..4) > 0 { rng.u64(1..4) } else { rng.u64(..) }, 1]),
        qp: QpStatus { generation: few(rng), number: few(rng), connected: rng.bool() },
        address: PortAddress {
            lid: rng.u16(..),
            mtu: rng.u8(..),
            depth: rng.u8(..),
            gid: [rng.u8(..); 16],
            // The in-memory devices have none.
            partition: if rng.u8(0..8) > 0 { 0 } else { rng.u16(..) },
        },
        part: RemoteWindow {
            window: few(rng),
            memory: spot(rng),
            words: aligned(rng),
            pair_words: aligned(rng),
        },
        flush_target: spot(rng),
        about: few(rng),
    };
    let mut bytes = message.encode();
    match rng.u8(0..4) {
        0 => bytes[rng.usize(4..LEN)] ^= 1 << rng.u8(0..8),
        1 => bytes[4..].iter_mut().for_each(|byte| *byte = rng.u8(..)),
        _ => {}
    }
    bytes
}

/// Whatever arrives, this process survives. It may lose the sender, and says so.
#[test]
fn malformed_handshakes_are_survived() {
    if crate::carry::device().is_some() {
        return;
    }
    let seeds = match number("MPIX_FUZZ_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("MPIX_FUZZ_SEEDS").unwrap_or(200),
    };
    for seed in seeds {
        eprintln!("seed {seed}");
        let mut rng = fastrand::Rng::with_seed(seed);
        let turns: Vec<Turn> = (0..rng.usize(1..60))
            .map(|_| Turn { puts: rng.bool(), message: rng.bool().then(|| malformed(&mut rng)) })
            .collect();
        hostile::run(turns.into_iter(), seed);
    }
}

/// A peer that computes keeps its queue pair; nobody waits for it to disconnect.
/// Later changes of peers do not wait for it again.
#[test]
fn lk3_nobody_waits_for_a_peer_that_computes() {
    let mut memories = vec![vec![0u8; 4096]; 4];
    let (hub, mut w) = windows(&mut memories, 3);
    contexts(&hub)[0].borrow().set_max_qps(1);
    let mut flight = InFlight::default();
    let value = 7u64;
    let origin = Addr(&raw const value as usize);
    let mut reach = |w: &mut Vec<Far>, target: Rank, silent: Option<usize>| {
        let put = Op { origin, ..op(OpKind::Put, target, 8, 8) };
        let mut posted = false;
        for turn in 0..200_000 {
            posted = posted || flight.try_post(&mut w[0], &put);
            (0..4).filter(|rank| Some(*rank) != silent).for_each(|rank| _ = w[rank].poll());
            flight.collect(&mut w[0]);
            if posted && flight.open == 0 {
                return turn;
            }
        }
        panic!("process {target} is not reached");
    };
    let held = || contexts(&hub)[0].borrow().qps_in_use();
    reach(&mut w, 1, None);
    reach(&mut w, 2, None);
    assert_eq!(held(), 1, "one has made room for the other");
    reach(&mut w, 1, Some(2));
    assert_eq!(held(), 2, "one more than allowed");
    let turns = reach(&mut w, 3, Some(2));
    assert!(turns < 8000, "process 0 waits {turns} turns for process 2 again");
    assert_eq!(held(), 2, "process 1 has made room for process 3");
    // The silent one answers now.
    while held() > 1 {
        w.iter_mut().for_each(|window| _ = window.poll());
    }
    for rank in 1..4 {
        assert_eq!(unsafe { ((w[rank].base().0 + 8) as *const u64).read() }, 7);
    }
    end(&hub, w);
}

/// A device without queue pairs is an error at once.
#[test]
fn a_device_without_queue_pairs_is_an_error() {
    if crate::carry::device().is_some() {
        return;
    }
    let mut memories = vec![vec![0u8; 4096]; 2];
    let (hub, mut w) = windows(&mut memories, 3);
    crate::carry::net(&hub).lock().unwrap().most_queues = 0;
    let mut flight = InFlight::default();
    let value = 7u64;
    let put = Op { origin: Addr(&raw const value as usize), ..op(OpKind::Put, 1, 8, 8) };
    for turn in 0.. {
        assert!(turn < 10_000, "the error is not reported");
        flight.try_post(&mut w[0], &put);
        w.iter_mut().for_each(|window| _ = window.poll());
        if w.iter().all(|window| window.is_broken()) {
            break;
        }
    }
    assert!(
        w[1].lost().is_some_and(|(_, reason)| reason.contains("create_qp")),
        "{:?}",
        w[1].lost()
    );
}

#[test]
fn only_encoded_messages_decode() {
    let address = |n: u64| RemoteAddress { addr: n << 40 | 8, rkey: n as u32 };
    let handshake = Handshake {
        step: Step::Reply,
        process: ProcessId([1 << 60, 2]),
        qp: QpStatus { generation: 3, number: 77, connected: true },
        address: PortAddress {
            lid: 9,
            mtu: 5,
            depth: 16,
            gid: std::array::from_fn(|at| at as u8),
            partition: 0x8001,
        },
        part: RemoteWindow {
            window: 12,
            memory: address(1),
            words: address(2),
            pair_words: address(3),
        },
        flush_target: address(4),
        about: 8,
    };
    let bytes = handshake.encode();
    assert_eq!(Handshake::decode(&bytes), Some(handshake));
    assert_eq!(Handshake::decode(&bytes[..LEN - 1]), None);
    let mut other = bytes.clone();
    other[0] ^= 1;
    assert_eq!(Handshake::decode(&other), None);
    let mut other = bytes;
    other[4] = 8;
    assert_eq!(Handshake::decode(&other), None);
    let mut unaligned = handshake;
    unaligned.part.words.addr += 4;
    assert_eq!(Handshake::decode(&unaligned.encode()), None);
    // As the immediate of a message, this number says that the sender disconnects.
    let mut no_window = handshake;
    no_window.part.window = u32::MAX;
    assert_eq!(Handshake::decode(&no_window.encode()), None);
}

/// Ports without a common partition: both sides report the keys, and nobody waits for requests to
/// time out. A full and a limited member of one partition communicate.
#[test]
fn partition_keys_are_compared() {
    if crate::carry::device().is_some() {
        return;
    }
    let value = 7u64;
    let origin = Addr(&raw const value as usize);
    let put = Op { origin, ..op(OpKind::Put, 1, 8, 8) };
    let keys: [(Adapters, bool); 3] = [
        (|rank, _| member([0xffff, 0x8001][rank as usize]), false),
        (|_, _| member(0x0001), false),
        (|rank, _| member([0x8001, 0x0001][rank as usize]), true),
    ];
    for (adapters, communicate) in keys {
        ADAPTERS.set(adapters);
        let mut memories = vec![vec![0u8; 4096]; 2];
        let (hub, mut w) = windows(&mut memories, 3);
        let mut flight = InFlight::default();
        let mut over = false;
        for _ in 0..10_000 {
            if flight.is_empty() {
                flight.try_post(&mut w[0], &put);
            }
            w.iter_mut().for_each(|window| _ = window.poll());
            flight.collect(&mut w[0]);
            over =
                w.iter().all(|window| window.is_broken()) || !flight.is_empty() && flight.open == 0;
            if over {
                break;
            }
        }
        assert!(over, "neither complete nor failed");
        assert_eq!(w[0].lost().is_none(), communicate);
        if communicate {
            end(&hub, w);
        } else {
            let reasons: Vec<String> =
                w.iter().filter_map(|window| Some(format!("{:?}", window.lost()?))).collect();
            let text = reasons.join(" ");
            assert!(text.contains("share no partition"), "{text}");
        }
    }
}

/// An adapter on InfiniBand with this partition key.
fn member(partition: u16) -> Option<Adapter> {
    Some(Adapter { infiniband: true, partition, ..Adapter::with(AtomicCapability::Hca) })
}
