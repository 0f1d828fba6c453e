//! Dynamic windows: operations on memory that is not attached change nothing and fail at the
//! origin, and all others go on (MPI-4.1 12.2.4). Also: how a window fails after a refused message.

use mpix_rma::engine::*;
use mpix_rma::transport::am::wire::{Header, Malformed, Packet, Record};
use mpix_rma::transport::datatype::element::{native, reduction};

use crate::world::*;

const LONG: usize = 40_000;

/// Polls both windows until nothing is in flight. Returns the tickets of failed operations.
fn drive(windows: &mut [Far], flight: &mut InFlight) -> Vec<u32> {
    let mut failed = Vec::new();
    for _ in 0..10_000 {
        windows.iter_mut().for_each(|window| _ = window.poll());
        while let Some(Ticket(ticket)) = windows[0].next_failed() {
            failed.push(ticket);
        }
        flight.collect(&mut windows[0]);
        if flight.open == 0 {
            return failed;
        }
    }
    panic!("operations never end: {:#?}", windows[0]);
}

/// One operation of each kind and protocol on the memory at `at`.
fn each(at: u64, data: &mut [u8]) -> Vec<Op> {
    let mut all = Vec::new();
    let buffer = Addr(data.as_mut_ptr() as usize);
    let elements = |kind, len| {
        let reduction = if kind == OpKind::CompareAndSwap { Reduction(0) } else { reduction::SUM };
        Op { element: native::U64, reduction, extent: 8, ..op(kind, 1, at, len) }
    };
    for len in [8, 5000, LONG] {
        all.push(op(OpKind::Put, 1, at, len));
        all.push(op(OpKind::Get, 1, at, len));
        all.push(elements(OpKind::Accumulate, len));
        all.push(elements(OpKind::GetAccumulate, len));
    }
    all.push(elements(OpKind::CompareAndSwap, 8));
    all.into_iter().map(|op| Op { origin: buffer, result: buffer, compare: buffer, ..op }).collect()
}

#[test]
fn operations_on_unattached_memory_fail_and_change_nothing() {
    for seed in 1..40 {
        let (hub, mut w) = dynamic_windows(2, seed);
        let mut memory = vec![0u8; 3 * LONG];
        let start = memory.as_mut_ptr() as u64;
        // The middle third is not attached.
        w[1].attach(Addr(start as usize), LONG as u64).unwrap();
        w[1].attach(Addr(start as usize + 2 * LONG), LONG as u64).unwrap();
        let mut flight = InFlight::default();
        let mut data = vec![1u8; LONG];
        // Each invalid operation is followed by a valid one.
        for (turn, wrong) in
            each(start + LONG as u64 - 1 + seed % 2, &mut data).into_iter().enumerate()
        {
            let mut buffers = [vec![7u8; LONG], vec![9u8; LONG]];
            let [first, second] = &mut buffers;
            for (op, buffer) in
                [(wrong, first), (Op { disp: start + 2 * LONG as u64, ..wrong }, second)]
            {
                let buffer = Addr(buffer.as_mut_ptr() as usize);
                let op = Op { origin: buffer, result: buffer, compare: buffer, ..op };
                while !flight.try_post(&mut w[0], &op) {
                    w.iter_mut().for_each(|window| _ = window.poll());
                    flight.collect(&mut w[0]);
                }
            }
            let failed = drive(&mut w, &mut flight);
            assert!(!failed.is_empty(), "seed {seed}, operation {turn}");
            assert!(
                failed.iter().all(|ticket| *ticket == 2 * turn as u32),
                "seed {seed}, operation {turn}: {failed:?}"
            );
            let fault = w[0].take_fault(Some(1)).expect("a fault of this target");
            assert_eq!(fault.target, 1);
            assert!(
                fault.disp >= wrong.disp && fault.disp + fault.len <= wrong.disp + wrong.len,
                "{fault:?} {wrong:?}"
            );
            assert!(fault.to_string().contains("process 1"), "{fault}");
            assert_eq!(w[0].take_fault(None), None);
            assert!(
                memory[LONG..2 * LONG].iter().all(|byte| *byte == 0),
                "seed {seed}, operation {turn}: memory was touched"
            );
            if matches!(wrong.kind, OpKind::Get | OpKind::GetAccumulate) && wrong.len == 8 {
                assert!(buffers[0].iter().all(|byte| *byte == 7), "a result of nothing");
            }
        }
        // The window still works: a valid operation, and a drain with nothing in flight.
        let put = Op { origin: Addr(data.as_ptr() as usize), ..op(OpKind::Put, 1, start + 8, 100) };
        while !flight.try_post(&mut w[0], &put) {
            w[0].poll();
        }
        assert_eq!(drive(&mut w, &mut flight), []);
        assert_eq!(memory[8..108], data[..100]);
        end(&hub, w);
    }
}

/// A fault is reported before its operation is acknowledged, however packets cross.
#[test]
fn a_fault_is_known_when_its_operation_ends() {
    for seed in 1..200 {
        let (hub, mut w) = dynamic_windows(2, seed);
        let mut flight = InFlight::default();
        let data = [1u8; 64];
        for turn in 0..20 {
            let put = Op { origin: Addr(data.as_ptr() as usize), ..op(OpKind::Put, 1, 64, 64) };
            while !flight.try_post(&mut w[0], &put) {
                w.iter_mut().for_each(|window| _ = window.poll());
            }
            // Packets of the target carry acknowledgements too.
            let _ = w[1].signal(0, Word::Done, turn + 1);
            let failed = drive(&mut w, &mut flight);
            assert_eq!(failed, [turn as u32], "seed {seed}");
            assert!(w[0].take_fault(None).is_some());
        }
        end(&hub, w);
    }
}

#[test]
fn invented_faults_are_refused() {
    use mpix_rma::transport::am::wire::{OpRef, Unattached};
    for which in [
        OpRef::Reply(0),
        OpRef::Reply(u32::MAX),
        OpRef::Number(0),
        OpRef::Number(1),
        OpRef::Number(u64::MAX),
    ] {
        let (hub, mut w) = dynamic_windows(2, 1);
        hub.lock().unwrap().delay = 0;
        let mut packet = Packet::new();
        packet.push(&Record::Unattached(Unattached { disp: 0, len: 1, which }));
        packet.seal(Header::default());
        hub.lock().unwrap().inject(1, 0, packet.bytes);
        (0..100).for_each(|_| _ = w[0].poll());
        let refused = w[0].next_refused().expect("it is refused");
        assert!(
            matches!(refused.reason, Malformed::UnexpectedReply | Malformed::NotSent),
            "{refused}"
        );
        assert_eq!((w[0].next_failed(), w[0].take_fault(None)), (None, None));
    }
}

/// A process that refuses a message tells all contacted peers, not only the sender. Operations in
/// flight no longer access its memory.
#[test]
fn a_refused_message_ends_the_window_for_all_that_were_met() {
    if !crate::carry::ALL_BY_MESSAGES {
        return;
    }
    let (hub, mut w) = dynamic_windows(4, 1);
    hub.lock().unwrap().delay = 0;
    let mut memory = vec![5u8; 2 * LONG];
    let start = memory.as_ptr() as u64;
    w[2].attach(Addr(start as usize), 2 * LONG as u64).unwrap();
    // Rank 0 has a get from rank 2 in flight. Rank 1 waits for a signal of rank 0. Rank 3 has
    // contacted nobody.
    let mut result = vec![0u8; LONG];
    let mut flight = InFlight::default();
    let get = Op { result: Addr(result.as_mut_ptr() as usize), ..op(OpKind::Get, 2, start, LONG) };
    while !flight.try_post(&mut w[0], &get) {}
    while w[0].signal(1, Word::Done, 1).is_err() {}
    w[1].poll();
    hub.lock().unwrap().inject(3, 0, vec![1, 2, 3]);
    w[0].poll();
    assert_eq!(
        w[0].next_refused().map(|refused| (refused.peer, refused.reason)),
        Some((3, Malformed::NotAPacket))
    );
    assert!(w[0].is_broken());
    for _ in 0..20 {
        w.iter_mut().for_each(|window| _ = window.poll());
    }
    assert!(
        w.iter().all(|window| window.is_broken()),
        "all peers that may wait for rank 0 learn of it"
    );
    assert!(result.iter().all(|byte| *byte == 0), "a cancelled get has changed memory");
    memory.fill(0);
    // New operations are refused, and the drain does not wait.
    assert_eq!(w[0].post(&get, Ticket(9)), Posted::NoResource);
    assert_eq!(w[0].signal(1, Word::Done, 2), Err(NoResource));
    assert_eq!(w[0].atomic(1, LockWord::Tail, Atomic::Load, LockTicket(1)), Answer::NoResource);
    assert!(w[0].drain());
}
