//! Windows that share the active-message contexts of their processes: each gets what was sent to
//! it, whatever else goes on.

use std::sync::{Arc, Mutex};

use mpix_rma::engine::{Addr, Rank};
use mpix_rma::transport::Proposal;
use mpix_rma::transport::am::carrier::Process;
use mpix_rma::transport::am::channel::{
    MAX_TAGS, TransferEnd, TransferId, TransferKind, TransferTag,
};
use mpix_rma::transport::am::context::SharedContext;
use mpix_rma::transport::am::window_channel::{PeerAddress, WindowChannel};
use mpix_rma::transport::am::wire::{Content, Header, Packet, Reader, Record};

use crate::hub::{Hub, contexts, open_ports};

/// Processes with a context each. Nothing is delayed.
struct World {
    hub: Arc<Mutex<Hub>>,
    contexts: Vec<SharedContext>,
}

impl World {
    fn new(processes: u32) -> Self {
        let hub = Hub::new(processes, 1);
        (hub.lock().unwrap().delay, hub.lock().unwrap().busy) = (0, 0);
        let contexts = contexts(&hub);
        World { hub, contexts }
    }

    fn ports(&self, processes: &[Process]) -> Vec<PeerAddress> {
        open_ports(&self.hub, &self.contexts, processes)
    }

    fn channel(&self, addresses: &[PeerAddress], me: Rank) -> WindowChannel {
        let PeerAddress { process, port } = addresses[me as usize];
        let context = Arc::clone(&self.contexts[process as usize]);
        WindowChannel::new(context, port, me, addresses.iter().copied())
    }

    fn window(&self, processes: &[Process]) -> Vec<WindowChannel> {
        let addresses = self.ports(processes);
        (0..processes.len() as Rank).map(|me| self.channel(&addresses, me)).collect()
    }

    fn poll(&self, process: Process) -> bool {
        self.contexts[process as usize].borrow().poll()
    }

    fn next_contacted(&self, process: Process) -> Option<u64> {
        self.contexts[process as usize].borrow().next_contacted()
    }
}

/// A packet that tells its senders apart.
fn mark(channel: &mut WindowChannel, counter: u32) -> Packet {
    let mut packet = channel.empty_packet();
    packet.push(&Record::Notify(counter));
    packet.seal(Header::default());
    packet
}

/// The marks that have arrived, with the ranks of their senders.
fn received(channel: &mut WindowChannel) -> Vec<(Rank, u32)> {
    channel.poll();
    let marks = std::iter::from_fn(|| channel.receive()).map(|(rank, packet)| {
        match Reader::new(&packet.bytes).map(|(_, mut reader)| reader.next_record()) {
            Ok(Ok(Some(Record::Notify(counter)))) => (rank, counter),
            _ => (rank, u32::MAX),
        }
    });
    marks.collect()
}

#[test]
fn each_window_gets_its_packets() {
    let world = World::new(4);
    let mut all = world.window(&[0, 1, 2, 3]);
    let mut reversed = world.window(&[3, 1]);
    for round in 0..3 {
        let packet = mark(&mut all[3], round);
        all[3].send(1, packet);
        let packet = mark(&mut reversed[0], 10 + round);
        reversed[0].send(1, packet);
    }
    world.poll(1);
    assert_eq!(received(&mut reversed[1]), [(0, 10), (0, 11), (0, 12)]);
    assert_eq!(received(&mut all[1]), [(3, 0), (3, 1), (3, 2)]);
    assert_eq!(received(&mut all[0]), []);
}

#[test]
fn packets_wait_for_a_window_that_is_not_assembled() {
    let world = World::new(2);
    let _other = world.window(&[0, 1]);
    let addresses = world.ports(&[0, 1]);
    let mut first = world.channel(&addresses, 0);
    let packet = mark(&mut first, 4);
    first.send(1, packet);
    world.poll(1);
    world.poll(1);
    let mut second = world.channel(&addresses, 1);
    second.set_cookie(99);
    assert_eq!(world.next_contacted(1), Some(99), "it is told of what came before");
    assert_eq!(received(&mut second), [(0, 4)]);
}

#[test]
fn a_window_with_packets_is_reported_once() {
    let world = World::new(2);
    let mut window = world.window(&[0, 1]);
    window[1].set_cookie(5);
    assert_eq!(world.next_contacted(1), None);
    for _ in 0..2 {
        for counter in 0..3 {
            let packet = mark(&mut window[0], counter);
            window[0].send(1, packet);
        }
        world.poll(1);
        assert!(!window[1].is_idle());
        assert_eq!((world.next_contacted(1), world.next_contacted(1)), (Some(5), None));
        assert_eq!(received(&mut window[1]).len(), 3);
        assert!(window[1].is_idle());
    }
}

#[test]
fn late_packets_find_no_other_window() {
    let world = World::new(2);
    let mut old = world.window(&[0, 1]);
    let packet = mark(&mut old[0], 1);
    old[0].send(1, packet);
    old.pop().unwrap().release();
    let mut new = world.window(&[0, 1]);
    world.poll(1);
    assert_eq!(received(&mut new[1]), []);
}

#[test]
fn forged_packets_are_refused() {
    let world = World::new(3);
    let addresses = world.ports(&[0, 1, 2]);
    let mut window: Vec<_> = (0..3).map(|me| world.channel(&addresses, me)).collect();
    let mut pair = world.window(&[0, 2]);
    // Process 1 says that it is rank 0.
    let mut packet = mark(&mut window[1], 3);
    packet.address(addresses[2].port, 0);
    world.contexts[1].borrow().poll();
    let deliver = |packet: Packet| {
        world.hub.lock().unwrap().deliver(1, 2, packet.bytes);
        world.poll(2);
    };
    deliver(packet);
    assert_eq!(received(&mut window[2]), [(1, u32::MAX)], "refused, and blamed on its sender");
    // Nobody knows for which window this was: all windows of that process refuse it.
    deliver(Packet { bytes: b"this is no packet".to_vec() });
    assert_eq!(received(&mut window[2]), [(1, u32::MAX)]);
    assert_eq!(received(&mut pair[1]), [], "it has no part in this window");
    deliver(Packet { bytes: Vec::new() });
    assert_eq!(received(&mut window[2]), [(1, u32::MAX)]);
}

#[test]
fn transfers_of_two_windows_match_by_their_tags() {
    let world = World::new(2);
    let (mut one, mut other) = (world.window(&[0, 1]), world.window(&[0, 1]));
    let sent = [[1u8; 100], [2; 100]];
    let mut got = [[0u8; 100]; 2];
    let tags: Vec<TransferTag> = [&mut one[0], &mut other[0]]
        .into_iter()
        .map(|channel| TransferTag { kind: TransferKind::Put, number: channel.take_tag().unwrap() })
        .collect();
    assert_ne!(tags[0], tags[1]);
    let end = |tag, at: *const u8, sends, id| TransferEnd {
        tag,
        sends,
        at: Addr(at as usize),
        len: 100,
        id: TransferId(id),
    };
    // SAFETY: the buffers outlive the transfers.
    unsafe {
        one[0].transfer(1, end(tags[0], sent[0].as_ptr(), true, 3));
        other[0].transfer(1, end(tags[1], sent[1].as_ptr(), true, 3));
        // The announcement of the later one is handled first.
        other[1].transfer(0, end(tags[1], got[1].as_mut_ptr(), false, 8));
        one[1].transfer(0, end(tags[0], got[0].as_mut_ptr(), false, 8));
    }
    // The sender hears of the end after the receiver.
    [1, 0].into_iter().for_each(|process| _ = world.poll(process));
    assert_eq!(got, sent);
    for window in [&mut one, &mut other] {
        window.iter_mut().for_each(WindowChannel::poll);
        assert_eq!(window[0].next_transfer(), Some((TransferId(3), 100)));
        assert_eq!(window[1].next_transfer(), Some((TransferId(8), 100)));
    }
}

#[test]
fn tags_are_used_again_when_they_are_returned() {
    let world = World::new(1);
    let mut window = world.window(&[0]);
    let taken: Vec<u32> = std::iter::from_fn(|| window[0].take_tag()).collect();
    assert_eq!(taken.len(), MAX_TAGS as usize);
    window[0].return_tag(77);
    assert_eq!((window[0].take_tag(), window[0].take_tag()), (Some(77), None));
}

#[test]
fn agreements_of_windows_do_not_mix() {
    let world = World::new(5);
    let mut all = world.window(&[0, 1, 2, 3, 4]);
    let mut some = world.window(&[4, 2, 0]);
    let mut rng = fastrand::Rng::with_seed(11);
    let mut decided = 0;
    for (rank, channel) in (0..).zip(&mut all) {
        channel.propose(if rank == 3 { Proposal::Busy } else { Proposal::Ready });
    }
    some.iter_mut().for_each(|channel| channel.propose(Proposal::unless(channel.is_busy())));
    let mut gathered = 0;
    for turn in 0.. {
        assert!(turn < 10_000, "timeout");
        let process = rng.u32(0..5);
        world.poll(process);
        let rank = process as usize;
        if let Some(decision) = all[rank].decision() {
            assert_eq!(decision, Proposal::Busy);
            decided += 1;
            all[rank].start_allgather(100 + process);
        }
        if let Some(numbers) = all[rank].finish_allgather() {
            assert_eq!(numbers, [100, 101, 102, 103, 104]);
            gathered += 1;
        }
        let rank = rng.usize(0..3);
        decided += usize::from(some[rank].decision() == Some(Proposal::Ready));
        if decided == 5 + 3 && gathered == 5 {
            break;
        }
    }
    let expects = |process: usize| world.contexts[process].borrow().expects_messages();
    assert!((0..5).all(expects));
    all.iter_mut().chain(&mut some).for_each(|channel| channel.expect(false));
    assert!(!(0..5).any(expects), "nothing is due any more");
}

/// A flush of many windows sends one message to each process [FL-2].
#[test]
fn packets_that_are_held_travel_together() {
    let world = World::new(3);
    let mut windows: Vec<_> = (0..100).map(|_| world.window(&[0, 1, 2])).collect();
    world.contexts[0].borrow().hold();
    for (at, window) in windows.iter_mut().enumerate() {
        for to in [1, 2] {
            let packet = mark(&mut window[0], at as u32);
            window[0].send(to, packet);
        }
        assert!(!window[0].is_quiet(), "its packets have not left");
    }
    assert_eq!(world.hub.lock().unwrap().messages, 0);
    world.contexts[0].borrow().send_held();
    assert_eq!(world.hub.lock().unwrap().messages, 2);
    assert!(windows.iter_mut().all(|window| window[0].is_quiet()));
    world.poll(1);
    world.poll(2);
    for (at, window) in windows.iter_mut().enumerate() {
        assert_eq!(received(&mut window[1]), [(0, at as u32)]);
        assert_eq!(received(&mut window[2]), [(0, at as u32)]);
    }
    let packet = mark(&mut windows[0][0], 0);
    windows[0][0].send(1, packet);
    assert_eq!(world.hub.lock().unwrap().messages, 3, "nothing is held any more");
}

/// Bundles keep the order of packets, also of those that are too long to join one.
#[test]
fn held_packets_stay_in_order() {
    let world = World::new(2);
    let mut windows = [world.window(&[0, 1]), world.window(&[0, 1])];
    let mut rng = fastrand::Rng::with_seed(11);
    let mut sent = [Vec::new(), Vec::new()];
    for turn in 0..60 {
        world.contexts[0].borrow().hold();
        for _ in 0..rng.u32(0..200) {
            let (at, counter) = (rng.usize(0..2), rng.u32(0..1000));
            let mut packet = mark(&mut windows[at][0], counter);
            (0..rng.usize(0..200)).for_each(|_| packet.push(&Record::Notify(0)));
            windows[at][0].send(1, packet);
            sent[at].push((0, counter));
        }
        world.contexts[0].borrow().send_held();
        while world.poll(1) {}
        for at in 0..2 {
            let arrived = received(&mut windows[at][1]);
            assert_eq!(arrived, std::mem::take(&mut sent[at]), "turn {turn}, window {at}");
        }
    }
}

#[test]
fn a_malformed_bundle_is_refused_by_all_windows() {
    let bundle = |rest: &[u8]| {
        let mut packet = Packet::new().holding(Content::Bundle);
        packet.bytes.extend_from_slice(rest);
        packet.bytes
    };
    let nested = bundle(&[]);
    let mut in_bundle = (nested.len() as u64).to_ne_bytes().to_vec();
    in_bundle.extend_from_slice(&nested);
    let cases: [&[u8]; 5] =
        [&[1; 7], &[0; 8], &100u64.to_ne_bytes(), &u64::MAX.to_ne_bytes(), &in_bundle];
    for rest in cases {
        let world = World::new(2);
        let mut windows = [world.window(&[0, 1]), world.window(&[0, 1])];
        world.hub.lock().unwrap().deliver(0, 1, bundle(rest));
        while world.poll(1) {}
        for window in &mut windows {
            let empty = window[1].receive().map(|(rank, packet)| (rank, packet.bytes));
            assert_eq!(empty, Some((0, Vec::new())), "{rest:?}");
        }
    }
}

#[test]
fn other_contents_are_told_apart() {
    let handshake = Packet::new().holding(Content::Handshake);
    assert_eq!(handshake.content(), Some(Content::Handshake));
    assert_eq!(Packet { bytes: vec![0; 11] }.addressee(), None);
    assert_eq!(Packet { bytes: vec![0; 60] }.content(), None);
}
