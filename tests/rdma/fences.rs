//! Requests that tell the target that earlier gets and accumulates have taken effect wait for
//! those. A queue pair keeps that order only where the later request has the fence flag. There is a
//! test for each kind of request: it fails if that kind is posted without the flag.

use mpix_rma::engine::*;
use mpix_rma::transport::datatype::element::{native, reduction};
use mpix_rma::transport::rdma::NicAtomics;

use crate::carry::NIC_ATOMICS;
use crate::world::*;

const SEEDS: u64 = 30;
const SIZE: usize = 40_000;

/// Polls both processes until `done` returns true.
fn until(seed: u64, w: &mut [Far], mut done: impl FnMut(&mut [Far]) -> bool) {
    for _ in 0..100_000 {
        if done(w) {
            return;
        }
        w.iter_mut().for_each(|window| _ = window.poll());
    }
    panic!("seed {seed}: timeout");
}

/// The window memory of process 1.
fn memory(w: &mut [Far]) -> &'static mut [u8] {
    unsafe { std::slice::from_raw_parts_mut(w[1].base().0 as *mut u8, SIZE) }
}

/// Process 0 posts an operation to process 1, and then what `report` posts. When process 1 sees
/// that (`seen`), the operation has taken effect, whatever process 1 does next.
fn follows(
    report: impl Fn(&mut Far, &mut InFlight, Addr) -> bool,
    seen: impl Fn(&mut Far) -> bool,
) {
    for seed in 0..SEEDS {
        NIC_ATOMICS.set(NicAtomics::LockWordsAndAccumulates);
        let mut memories = vec![vec![0u8; SIZE]; 2];
        let (hub, mut w) = windows(&mut memories, seed);
        NIC_ATOMICS.set(NicAtomics::LockWords);
        assert!(count(&mut w, &[1, 1], None));
        let mut flight = InFlight::default();
        let origin = [7u8; SIZE];
        let origin = Addr(origin.as_ptr() as usize);
        let mut result = vec![0u8; 8000];
        // The first operation connects the two.
        let put = Op { origin, ..op(OpKind::Put, 1, 0, 8) };
        until(seed, &mut w, |w| flight.try_post(&mut w[0], &put));
        until(seed, &mut w, |w| {
            flight.collect(&mut w[0]);
            flight.open == 0
        });
        memory(&mut w).fill(1);
        let is_get = seed % 2 == 0;
        let get = Op { result: Addr(result.as_mut_ptr() as usize), ..op(OpKind::Get, 1, 64, 8000) };
        let (element, reduction) = (native::U64, reduction::SUM);
        let add = Op { origin, element, reduction, extent: 8, ..op(OpKind::Accumulate, 1, 64, 8) };
        let first = if is_get { get } else { add };
        until(seed, &mut w, |w| flight.try_post(&mut w[0], &first));
        until(seed, &mut w, |w| {
            flight.collect(&mut w[0]);
            report(&mut w[0], &mut flight, origin)
        });
        until(seed, &mut w, |w| seen(&mut w[1]));
        if is_get {
            memory(&mut w).fill(2);
        } else {
            assert_eq!(memory(&mut w)[64..72], [8; 8], "seed {seed}: not added yet");
        }
        until(seed, &mut w, |w| {
            flight.collect(&mut w[0]);
            flight.open == 0
        });
        let expected = if is_get { 1 } else { 0 };
        assert!(result.iter().all(|byte| *byte == expected), "seed {seed}: the get was late");
        end(&hub, w);
    }
}

/// A signal of a word that no earlier operation has written is a write, but a done is an atomic.
fn a_signal_follows(word: Word) {
    follows(|w, _, _| w.signal(1, word, 1).is_ok(), |w| w.observe(0, word) == 1);
}

#[test]
fn fe2_a_done_waits_for_gets_and_accumulates() {
    a_signal_follows(Word::Done);
}

#[test]
fn fe2_grants_and_hops_wait_for_gets_and_accumulates() {
    a_signal_follows(Word::Grant);
    a_signal_follows(Word::Fence);
}

/// A put of `len` bytes behind the place of the first operation, with a notification.
fn a_notified_put_follows(len: usize) {
    follows(
        |w, flight, origin| {
            let notification = Some(Notification::counter(0));
            flight.try_post(w, &Op { origin, notification, ..op(OpKind::Put, 1, 10_000, len) })
        },
        |w| w.counter(0) == 1,
    );
}

#[test]
fn fe2_notified_puts_wait_for_gets_and_accumulates() {
    [0, 8, 3000].into_iter().for_each(a_notified_put_follows);
}

/// A long put notifies with the last of its requests.
#[test]
fn fe2_long_notified_puts_wait_for_gets_and_accumulates() {
    a_notified_put_follows(30_000);
}

#[test]
fn fe2_packets_wait_for_gets_and_accumulates() {
    follows(
        |w, flight, _| flight.try_post(w, &Op::notify(1, Notification::tag(5))),
        |w| w.next_arrival().is_some(),
    );
}
