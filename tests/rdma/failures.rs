//! What becomes of a window when a connection fails, a key is wrong, or a process is gone:
//! everybody who depends on it gets an error within bounded time, which names the peer, the request
//! and the reason. Other peers go on.

use std::sync::{Arc, Mutex};

use mpix_rma::engine::*;
use mpix_rma::transport::Proposal;
use mpix_rma::transport::am::wire::ENVELOPE;
use mpix_rma::transport::rdma::device::{DeviceEvent, Qp};
use mpix_rma::transport::rdma::handshake::Handshake;

use crate::carry::{device, net, queues};
use crate::hub::Hub;
use crate::request_counts::{Met, met, poll, stats_of};
use crate::world::*;

type Three = (Arc<Mutex<Hub>>, Vec<Far>, Vec<Vec<u8>>);

/// Polls until a condition holds.
#[allow(clippy::disallowed_methods, reason = "a real device retries for seconds")]
fn until(w: &mut [Far], what: &str, mut so: impl FnMut(&mut [Far]) -> bool) {
    // A real device retries for seconds; the in-memory one fails at once.
    let end = std::time::Instant::now()
        + std::time::Duration::from_secs(if device().is_some() { 30 } else { 5 });
    while !so(w) {
        assert!(std::time::Instant::now() < end, "{what}");
        poll(w);
    }
}

fn put_of(value: &u64, target: Rank) -> Op {
    Op { origin: Addr(std::ptr::from_ref(value) as usize), ..op(OpKind::Put, target, 8, 8) }
}

/// Rank 0 puts a value to a peer and waits until it is there.
fn reach(w: &mut [Far], target: Rank) {
    let mut flight = InFlight::default();
    let value = 5u64;
    let put = put_of(&value, target);
    until(w, "no connection", |w| flight.try_post(&mut w[0], &put));
    until(w, "a put does not complete", |w| {
        flight.collect(&mut w[0]);
        flight.open == 0
    });
}

/// Two connected processes; the second one's memory has become unreachable.
fn met_unreachable() -> Met {
    let met = met();
    net(&met.0).lock().unwrap().make_unreachable(met.1[1].base().0);
    met
}

#[test]
fn a_failed_connection_ends_its_operations() {
    if device().is_some() {
        return;
    }
    let (_hub, mut w, _memories, mut flight) = met_unreachable();
    let value = 9u64;
    let put = put_of(&value, 1);
    assert!(flight.try_post(&mut w[0], &put));
    until(&mut w[..1], "the failure is not reported", |w| w[0].is_broken());
    assert_eq!(w[0].post(&put, Ticket(77)), Posted::NoResource);
    assert_eq!(w[0].signal(1, Word::Done, 9), Err(NoResource));
    assert!(
        w[0].lost().is_some_and(|(peer, reason)| peer == 1 && reason.contains("put")),
        "{:?}",
        w[0].lost()
    );
}

/// A process that only waits learns of the failure through the host.
#[test]
fn both_sides_learn_of_a_failed_connection() {
    if device().is_some() {
        return;
    }
    let (_hub, mut w, _memories, mut flight) = met_unreachable();
    let value = 9u64;
    assert!(flight.try_post(&mut w[0], &put_of(&value, 1)));
    until(&mut w, "a process does not learn of the failure", |w| {
        w.iter().all(|window| window.is_broken())
    });
    assert_eq!(w[1].lost().map(|(peer, _)| peer), Some(0));
}

/// The failure affects existing windows. Later ones connect anew.
#[test]
fn later_windows_reconnect_after_a_failure() {
    if device().is_some() {
        return;
    }
    let (hub, mut w, _memories, mut flight) = met_unreachable();
    let value = 9u64;
    assert!(flight.try_post(&mut w[0], &put_of(&value, 1)));
    until(&mut w, "a process does not learn of the failure", |w| {
        w.iter().all(|window| window.is_broken())
    });
    let mut more = vec![vec![0u8; 4096]; 2];
    let mut later = windows_over(&hub, &mut more);
    reach(&mut later, 1);
    assert_eq!(unsafe { ((later[1].base().0 + 8) as *const u64).read() }, 5);
    assert!(
        later.iter().all(|window| !window.is_broken()) && w.iter().all(|window| window.is_broken())
    );
}

/// Three connected processes. The second one is stalled and has gets to serve; the third one is
/// dead, and the first one knows.
fn slow_and_gone(result: &mut [u8]) -> Option<Three> {
    if device().is_some() || queues().is_some() {
        return None;
    }
    let mut memories = vec![vec![3u8; 100_000]; 3];
    let (hub, mut w) = windows(&mut memories, 3);
    reach(&mut w, 1);
    reach(&mut w, 2);
    net(&hub).lock().unwrap().stalled = Some(1);
    let mut flight = InFlight::default();
    for (at, len) in [(0, 10_000), (10_000, 90_000)] {
        let get =
            Op { result: Addr(result[at..].as_mut_ptr() as usize), ..op(OpKind::Get, 1, 0, len) };
        assert!(flight.try_post(&mut w[0], &get));
    }
    net(&hub).lock().unwrap().kill(2);
    let value = 9u64;
    assert!(flight.try_post(&mut w[0], &put_of(&value, 2)));
    w[0].flush_and_poll();
    until(&mut w[..1], "the failure is not reported", |w| w[0].lost().is_some());
    Some((hub, w, memories))
}

/// Calls return with an error only when the buffers are the program's again: live peers still serve
/// requests.
#[test]
fn a_broken_window_ends_when_no_request_reaches_memory() {
    let mut result = vec![0u8; 100_000];
    let Some((hub, mut w, _memories)) = slow_and_gone(&mut result) else { return };
    for _ in 0..10_000 {
        w[0].poll();
    }
    assert!(!w[0].is_broken(), "gets are under way");
    net(&hub).lock().unwrap().stalled = None;
    until(&mut w[..1], "timeout", |w| w[0].is_broken());
    result.fill(77);
    for _ in 0..10_000 {
        w[0].poll();
    }
    assert!(result.iter().all(|byte| *byte == 77), "a buffer was written to after the end");
}

/// ... but not forever.
#[test]
#[allow(clippy::disallowed_methods, reason = "it takes seconds")]
fn a_peer_that_does_not_answer_is_abandoned() {
    let mut result = vec![0u8; 100_000];
    let Some((hub, mut w, _memories)) = slow_and_gone(&mut result) else { return };
    let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !w[0].is_broken() {
        assert!(std::time::Instant::now() < end, "timeout");
        w[0].poll();
        std::thread::yield_now();
    }
    result.fill(77);
    net(&hub).lock().unwrap().stalled = None;
    for _ in 0..10_000 {
        w[0].poll();
    }
    assert!(result.iter().all(|byte| *byte == 77), "a buffer was written to after the end");
}

/// Completions of a closed window do not reach a later one.
#[test]
fn completions_of_a_closed_window_are_dropped() {
    let mut result = vec![0u8; 100_000];
    let Some((hub, mut w, _memories)) = slow_and_gone(&mut result) else { return };
    w.remove(0).release();
    // A number is not reused at once, but would be by now.
    for _ in 0..16 {
        let mut more = vec![vec![0u8; 64]; 3];
        windows_over(&hub, &mut more).into_iter().for_each(Far::release);
    }
    let mut more = vec![vec![0u8; 64]; 3];
    let mut later = windows_over(&hub, &mut more);
    net(&hub).lock().unwrap().stalled = None;
    for _ in 0..10_000 {
        later[0].poll();
        assert_eq!(later[0].next_finished(), None);
    }
    // The part that is copied. (Before a window is called broken, it waits for what a device stores
    // itself.)
    assert!(
        result[..10_000].iter().all(|byte| *byte == 0),
        "a buffer was written to after the end"
    );
    reach(&mut later[..2], 1);
    until(&mut later[..2], "the window does not become quiet", |w| w[0].is_quiet());
}

/// A process without requests in flight notices a dead peer by probing it.
#[test]
fn a_waiting_process_probes_its_peers() {
    if device().is_some() {
        return;
    }
    let (hub, mut w, _memories, _) = met();
    let before = stats_of(&hub, 0);
    drop(w[0].probe());
    until(&mut w, "an answer", |w| w[0].is_quiet());
    assert_eq!(stats_of(&hub, 0).posted - before.posted, 1, "one read for a peer that is there");
    assert!(!w[0].is_broken());
    net(&hub).lock().unwrap().kill(1);
    for _ in 0..1000 {
        w[0].poll();
    }
    assert!(!w[0].is_broken());
    assert!(w[0].probe().contains("process 1: queue pair"), "the log says where it stands");
    until(&mut w[..1], "the loss is not noticed", |w| w[0].is_broken());
    assert_eq!(w[0].lost().map(|(peer, _)| peer), Some(1));
    // No further probes.
    assert_eq!(w[0].probe(), "");
}

/// A process that waits for one that waits for a dead one would wait forever.
#[test]
fn everybody_learns_of_a_dead_process() {
    let mut memories = vec![vec![0u8; 4096]; 3];
    // With a limit of 1, the connection may be closed, and then only the host notices.
    if device().is_some() || queues().is_some_and(|most| most < 2) {
        return;
    }
    let (hub, mut w) = windows(&mut memories, 3);
    reach(&mut w, 1);
    reach(&mut w, 2);
    net(&hub).lock().unwrap().kill(1);
    let _dead = w.remove(1);
    drop(w[0].probe());
    until(&mut w, "a process does not learn of the failure", |w| {
        w.iter().all(|window| window.is_broken())
    });
    assert!(w[0].lost().is_some_and(|(peer, _)| peer == 1));
    assert!(
        w[1].lost()
            .is_some_and(|(peer, reason)| peer == 1 && reason.contains("reported by process 0")),
        "{:?}",
        w[1].lost()
    );
    assert_eq!(w[1].next_refused(), None, "no message was wrong");
}

/// Without the dead process there is no agreement. A process that has never met it waits for the
/// agreement as well, until it is told.
#[test]
#[allow(clippy::disallowed_methods, reason = "it takes seconds")]
fn agreements_of_a_failed_window_are_abandoned() {
    let mut memories = vec![vec![0u8; 4096]; 3];
    if device().is_some() || queues().is_some() || std::env::var_os("MPIX_TEST_NO_FENCES").is_some()
    {
        return;
    }
    let (hub, mut w) = windows(&mut memories, 3);
    reach(&mut w, 1);
    net(&hub).lock().unwrap().kill(1);
    let _dead = w.remove(1);
    drop(w[0].probe());
    let begin = std::time::Instant::now();
    w.iter_mut().for_each(|window| window.propose(Proposal::Ready));
    let mut decisions = [None; 2];
    while decisions.contains(&None) {
        assert!(begin.elapsed().as_secs() < 60, "timeout");
        for (window, decision) in w.iter_mut().zip(&mut decisions) {
            window.poll();
            *decision = decision.or_else(|| window.decision());
        }
        std::thread::yield_now();
    }
    assert_eq!(decisions, [Some(Proposal::Abandoned); 2]);
    assert!(w[1].lost().is_some_and(|(peer, _)| peer == 1));
}

/// A wrong key, as if the peer had deregistered the memory.
fn wrong(sender: Rank, bytes: &mut Vec<u8>) {
    if let (1, Some(mut message)) = (sender, Handshake::decode(&bytes[ENVELOPE..])) {
        message.part.memory.rkey ^= 0x5500;
        bytes.splice(ENVELOPE.., message.encode());
    }
}

fn poisoned() -> Three {
    let mut memories = vec![vec![0u8; 4096]; 3];
    let (hub, w) = windows(&mut memories, 5);
    hub.lock().unwrap().tamper = Some(wrong);
    (hub, w, memories)
}

#[test]
fn a_wrong_key_is_an_error_with_a_reason() {
    for kind in [OpKind::Put, OpKind::Get] {
        let (hub, mut w, memories) = poisoned();
        let mut value = 6u64;
        let at = Addr(&raw mut value as usize);
        let one = Op { origin: at, result: at, ..op(kind, 1, 8, 8) };
        let mut flight = InFlight::default();
        until(&mut w, "no connection", |w| flight.try_post(&mut w[0], &one));
        w[0].flush_and_poll();
        until(&mut w[..1], "the failure is not reported", |w| w[0].is_broken());
        let (peer, reason) = w[0].lost().expect("a reason");
        let words = if device().is_some() { "remote access error" } else { "code 10" };
        let what = if kind == OpKind::Put { "a put (RDMA write)" } else { "a get (RDMA read)" };
        assert!(peer == 1 && reason.contains(what) && reason.contains(words), "{reason}");
        assert!(memories[1].iter().all(|byte| *byte == 0), "nothing was written");
        // In another window, what does not concern that peer goes on.
        let mut more = vec![vec![0u8; 4096]; 3];
        let mut second = windows_over(&hub, &mut more);
        reach(&mut second, 2);
        reach(&mut second, 0);
        assert!(!second[0].is_broken());
        assert_eq!(more[2][8..16], 5u64.to_ne_bytes());
    }
}

/// A queue pair that fails with nothing in flight has no completion that says so.
#[test]
fn a_queue_pair_that_the_device_reports_is_lost() {
    if device().is_some() {
        return;
    }
    let (hub, mut w, _memories, _) = met();
    let queue_pair = net(&hub).lock().unwrap().queue_pairs(0)[0];
    let reason = "local access violation".to_owned();
    net(&hub).lock().unwrap().report(0, DeviceEvent::QpFailed(queue_pair, reason));
    until(&mut w[..1], "the loss is not noticed", |w| w[0].is_broken());
    let (peer, reason) = w[0].lost().expect("a reason");
    assert!(peer == 1 && reason.contains("local access violation"), "{reason}");
    until(&mut w, "the peer does not learn of it", |w| w[1].is_broken());
}

/// As [`met_unreachable`], with a put of `value` that will fail, and a device that reports its
/// queue pair.
fn met_failing(value: &u64) -> (Met, Qp) {
    let (hub, mut w, memories, mut flight) = met_unreachable();
    let queue_pair = net(&hub).lock().unwrap().queue_pairs(0)[0];
    assert!(flight.try_post(&mut w[0], &put_of(value, 1)));
    net(&hub).lock().unwrap().report(0, DeviceEvent::QpFailed(queue_pair, "failed".into()));
    ((hub, w, memories, flight), queue_pair)
}

/// The completion of the request that has failed says more than the event.
#[test]
fn a_failed_request_explains_a_failed_queue_pair() {
    if device().is_some() {
        return;
    }
    let value = 9u64;
    let ((_hub, mut w, _memories, _), _) = met_failing(&value);
    until(&mut w[..1], "the loss is not noticed", |w| w[0].is_broken());
    let (_, reason) = w[0].lost().expect("a reason");
    assert!(reason.contains("a put (RDMA write) has failed"), "{reason}");
}

/// An event about a queue pair that is gone says nothing about the next one with its handle.
#[test]
fn events_end_with_their_queue_pair() {
    if device().is_some() {
        return;
    }
    let value = 9u64;
    let ((hub, mut w, _memories, _), queue_pair) = met_failing(&value);
    until(&mut w, "a process does not learn of the failure", |w| {
        w.iter().all(|window| window.is_broken())
    });
    let mut more = vec![vec![0u8; 4096]; 2];
    let mut later = windows_over(&hub, &mut more);
    reach(&mut later, 1);
    assert_eq!(net(&hub).lock().unwrap().queue_pairs(0), [queue_pair], "the handle is used again");
    for _ in 0..3000 {
        poll(&mut later);
    }
    assert!(!later[0].is_broken(), "{:?}", later[0].lost());
}

#[test]
fn a_failed_device_loses_all_peers_for_good() {
    if device().is_some() || queues().is_some() {
        return;
    }
    let mut memories = vec![vec![0u8; 4096]; 3];
    let (hub, mut w) = windows(&mut memories, 3);
    let mut more = vec![vec![0u8; 4096]; 3];
    let mut second = windows_over(&hub, &mut more);
    reach(&mut w, 1);
    reach(&mut second, 2);
    net(&hub).lock().unwrap().report(0, DeviceEvent::DeviceFailed("local catastrophe".into()));
    until(&mut w[..1], "a window does not learn of it", |w| w[0].is_broken());
    until(&mut second[..1], "a window does not learn of it", |w| w[0].is_broken());
    for window in [&w[0], &second[0]] {
        assert!(window.lost().is_some_and(|(_, reason)| reason.contains("local catastrophe")));
    }
    let mut later = vec![vec![0u8; 4096]; 3];
    let mut third = windows_over(&hub, &mut later);
    let (mut flight, value) = (InFlight::default(), 5u64);
    let put = put_of(&value, 1);
    until(&mut third, "a later window waits for a device that has failed", |w| {
        flight.try_post(&mut w[0], &put);
        w[0].is_broken()
    });
    let (_, reason) = third[0].lost().expect("a reason");
    assert!(reason.contains("local catastrophe"), "{reason}");
}

/// A port may go down and come up again without loss. If a request fails in between, the error says
/// why.
#[test]
fn a_port_that_is_down_explains_a_failed_request() {
    if device().is_some() {
        return;
    }
    for is_up_again in [false, true] {
        let (hub, mut w, _memories, mut flight) = met();
        net(&hub).lock().unwrap().report(0, DeviceEvent::PortDown);
        for _ in 0..3000 {
            poll(&mut w);
        }
        assert!(!w[0].is_broken());
        if is_up_again {
            net(&hub).lock().unwrap().report(0, DeviceEvent::PortUp);
        }
        net(&hub).lock().unwrap().kill(1);
        let value = 9u64;
        assert!(flight.try_post(&mut w[0], &put_of(&value, 1)));
        w[0].flush_and_poll();
        until(&mut w[..1], "the loss is not noticed", |w| w[0].is_broken());
        let (_, reason) = w[0].lost().expect("a reason");
        assert!(reason.contains("a put (RDMA write) has failed: code 12"), "{reason}");
        assert_eq!(reason.contains("the port of this process is down"), !is_up_again, "{reason}");
    }
}
