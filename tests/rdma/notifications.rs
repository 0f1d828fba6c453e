//! Puts with notifications of counters, and how the target learns of them.

use mpix_rma::engine::*;

use crate::request_counts::{counted, drain, met, poll, stats_of};
use crate::world::*;

/// A put to process 1 that raises its counter.
fn put_of(from: &[u8]) -> Op {
    let notification = Some(Notification::counter(0));
    Op { origin: Addr(from.as_ptr() as usize), notification, ..op(OpKind::Put, 1, 16, from.len()) }
}

/// Waits until the counter of process 1 rises; then the bytes of the put are there.
fn assert_notified(w: &mut [Far], before: u64, bytes: &[u8]) {
    while w[1].counter(0) == before {
        poll(w);
    }
    let there =
        unsafe { std::slice::from_raw_parts((w[1].base().0 + 16) as *const u8, bytes.len()) };
    assert_eq!(there, bytes, "the data come before the notification");
}

/// Requests of each notified operation: a put in pieces notifies with the last one; a get is
/// followed by an empty write, and a tag is a packet behind the data.
#[test]
fn a_notified_put_is_one_request() {
    let (hub, mut w, _memories, mut flight) = met();
    let from = vec![5u8; 20_000];
    let mut into = vec![0u8; 8];
    let put = |len: usize| Op { origin: Addr(from.as_ptr() as usize), ..put_of(&from[..len]) };
    for len in [0usize, 8, 3000, 16 * 1024, 20_000] {
        let before = w[1].counter(0);
        let requests = counted(&hub, || assert!(flight.try_post(&mut w[0], &put(len))));
        let pieces = len.div_ceil(16 * 1024).max(1) as u64;
        assert_eq!(requests, (pieces, if pieces > 1 { pieces } else { 0 }, 0), "{len} bytes");
        assert_notified(&mut w, before, &from[..len]);
        drain(&mut w, &mut flight);
    }
    let before = w[1].counter(0);
    let result = Addr(into.as_mut_ptr() as usize);
    let get = Op { kind: OpKind::Get, result, ..put(8) };
    let requests = counted(&hub, || assert!(flight.try_post(&mut w[0], &get)));
    if crate::carry::device().is_none() && std::env::var_os("MPIX_TEST_NO_FENCES").is_none() {
        assert_eq!(requests.0, 2);
    }
    assert_notified(&mut w, before, &from[..8]);
    drain(&mut w, &mut flight);
    assert_eq!(into, from[..8]);
    let tagged = Op { notification: Some(Notification::tag(7)), ..put(8) };
    let requests = counted(&hub, || assert!(flight.try_post(&mut w[0], &tagged)));
    assert_eq!(requests.0, 2);
    for turn in 0.. {
        assert!(turn < 100_000, "the tag does not arrive");
        if let Some(arrival) = w[1].next_arrival() {
            assert_eq!(arrival, Arrival { source: 0, tag: 7 });
            break;
        }
        poll(&mut w);
    }
    drain(&mut w, &mut flight);
    end(&hub, w);
}

/// In a dialogue, one remote fence serves many notified puts; but none stays incomplete for long.
#[test]
fn notified_puts_share_remote_fences() {
    let (hub, mut w, _memories, mut flight) = met();
    let from = [4u8; 8];
    let put = put_of(&from);
    let before = stats_of(&hub, 0);
    for round in 0..500 {
        while !flight.try_post(&mut w[0], &put) {
            poll(&mut w);
        }
        while w[1].counter(0) <= round {
            poll(&mut w);
        }
        flight.collect(&mut w[0]);
        assert!(flight.open < 600, "{} operations have no end", flight.open);
    }
    let fences = stats_of(&hub, 0).remote_fences - before.remote_fences;
    if crate::carry::device().is_none() {
        assert!((1..100).contains(&fences), "{fences} requests for the end of 500 puts");
    }
    // They complete without a flush.
    drain(&mut w, &mut flight);
    end(&hub, w);
}

/// The same where nobody polls in between: the number of unfenced puts is bounded too.
#[test]
fn notified_puts_are_fenced_where_polls_are_rare() {
    let (hub, mut w, _memories, mut flight) = met();
    let from = [4u8; 8];
    let put = put_of(&from);
    let before = stats_of(&hub, 0).remote_fences;
    for call in 1..=640 {
        while !flight.try_post(&mut w[0], &put) {
            poll(&mut w);
        }
        // The target learns of it; the origin only takes in completions.
        assert!(
            (0..1_000_000).any(|_| !w[1].poll_notifications()),
            "call {call}: the notification does not arrive"
        );
        w[0].poll_notifications();
        if call % 64 == 0 {
            poll(&mut w);
        }
    }
    let fences = stats_of(&hub, 0).remote_fences - before;
    assert!(fences >= 5, "{fences} requests for the end of 640 puts");
    drain(&mut w, &mut flight);
    end(&hub, w);
}

/// In the engine: recorded before access is granted, and an operation that the epoch waits for.
#[test]
fn a_notified_put_in_an_open_epoch_is_one_operation_of_it() {
    let (hub, mut w, _memories, _) = met();
    let mut engine = Window::new(0, 2, ReorderFlags::default());
    let from = [6u8; 8];
    let put = put_of(&from);
    engine.lock(&mut w[0], LockMode::Shared, 1, Assert::default()).unwrap();
    let before = (w[1].counter(0), stats_of(&hub, 0).posted);
    engine.issue(&mut w[0], &put).unwrap();
    assert!(engine.has_operations());
    let Outcome::Pending(request) = engine.unlock(&mut w[0], 1).unwrap() else {
        panic!("the put is not complete")
    };
    while engine.is_pending(request) {
        engine.progress(&mut w[0]);
        w[1].poll();
    }
    assert!(!engine.has_operations());
    assert!(stats_of(&hub, 0).posted > before.1);
    while w[1].counter(0) == before.0 {
        w[1].poll();
    }
    assert_eq!(w[1].counter(0), before.0 + 1, "notified once");
    assert_eq!(unsafe { ((w[1].base().0 + 16) as *const u64).read() }, u64::from_ne_bytes(from));
    // The release ends after the request.
    for _ in 0..50 {
        engine.progress(&mut w[0]);
        w[1].poll();
    }
    end(&hub, w);
}

/// Whoever waits for a counter needs no full poll. Other events wait for the next one.
#[test]
fn a_counter_needs_no_full_poll() {
    let (hub, mut w, _memories, mut flight) = met();
    let from = [4u8; 8];
    let put = put_of(&from);
    for round in 1..=200 {
        while !flight.try_post(&mut w[0], &put) {
            poll(&mut w);
        }
        for turn in 0.. {
            assert!(turn < 1_000_000, "round {round}: the notification does not arrive");
            if turn % 2 == 0 {
                w[1].poll_completions(8);
            } else {
                w[1].poll_notifications();
            }
            if w[1].counter(0) == round {
                break;
            }
        }
        // The origin's operations complete at polls.
        flight.collect(&mut w[0]);
    }
    drain(&mut w, &mut flight);
    end(&hub, w);
}
