//! Puts, gets, words, agreements and the doorbell.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::world::*;
use mpix_rma::engine::*;
use mpix_rma::transport::Proposal;
use mpix_rma::transport::datatype::element::reduction;
use mpix_rma::transport::shm::*;

/// Runs `body` on `ranks` threads for each flavour of window, with `size` bytes per rank.
fn everywhere(ranks: u32, size: usize, body: impl Fn(&World, ShmWindow) + Sync) {
    for flavour in FLAVOURS {
        run(ranks, |world| {
            let mut memory = vec![0u8; size];
            let mut window = world.window(flavour, &mut memory);
            barrier(&mut window);
            body(&world, window);
        });
    }
}

#[test]
fn puts_and_gets_of_all_sizes() {
    everywhere(3, 4 << 20, |world, mut w| {
        let (next, before) = ((world.rank + 1) % 3, (world.rank + 2) % 3);
        for (i, len) in (0..).zip([
            0usize,
            1,
            2,
            4,
            7,
            8,
            16,
            40,
            41,
            4096,
            8192,
            8193,
            (64 << 10) + 3,
            (3 << 20) + 1,
        ]) {
            let from = bytes(len, u64::from(world.rank) + i);
            let mut back = vec![0u8; len];
            w.put(next, 3, &from);
            barrier(&mut w);
            w.get(next, 3, &mut back);
            assert!(back == from, "length {len}");
            assert!(own(&w, 3, len) == bytes(len, u64::from(before) + i), "length {len}");
            barrier(&mut w);
        }
    });
}

#[test]
fn operations_on_own_memory() {
    for ranks in [1, 2] {
        everywhere(ranks, 1 << 20, |world, mut w| {
            let me = world.rank;
            let from = bytes(100_000, 5);
            let mut back = vec![0u8; from.len()];
            w.put(me, 17, &from);
            w.get(me, 17, &mut back);
            assert!(back == from && own(&w, 17, from.len()) == from);
            let mut old = [0; 8];
            w.get_accumulate(me, 17, (U64, reduction::SUM), &1u64.to_ne_bytes(), &mut old);
            assert_eq!(old[..], from[..8]);
            w.compare_and_swap(me, 17, &old, &[9; 8], &mut back[..8]);
            assert_ne!(back[..8], old);
            barrier(&mut w);
        });
    }
}

/// Many operations in flight at once. Every stage is reported once, and local before remote.
#[test]
fn pipelined_puts_and_gets() {
    const COUNT: usize = 5000;
    everywhere(2, COUNT * 16, |world, mut w| {
        let other = 1 - world.rank;
        let from = bytes(COUNT * 16, u64::from(world.rank));
        let mut back = vec![0u8; COUNT * 16];
        for gets in [false, true] {
            let mut posted = Flight::default();
            for i in 0..COUNT {
                // Lengths of 1 to 16 bytes, which fit a slot, at places that do not overlap.
                let len = 1 + i % 16;
                let disp = 16 * i as u64;
                let origin = Addr(&raw const from[16 * i] as usize);
                let result = Addr(&raw mut back[16 * i] as usize);
                let kind = if gets { OpKind::Get } else { OpKind::Put };
                posted.post(&mut w, &Op { origin, result, ..op(kind, other, disp, len) });
            }
            posted.finish(&mut w);
            barrier(&mut w);
        }
        for i in 0..COUNT {
            assert_eq!(back[16 * i..][..1 + i % 16], from[16 * i..][..1 + i % 16]);
        }
    });
}

#[test]
fn many_origins_use_one_target() {
    // More origins than one poll serves.
    everywhere(24, 24 * 8, |world, mut w| {
        for target in 0..2 {
            w.put(target, 8 * u64::from(world.rank), &(u64::from(world.rank) + 100).to_ne_bytes());
        }
        barrier(&mut w);
        if world.rank < 2 {
            for origin in 0..24 {
                assert_eq!(own(&w, 8 * origin, 8), (origin as u64 + 100).to_ne_bytes());
            }
        }
        barrier(&mut w);
    });
}

/// Displacements beyond 4 GiB in a window that is larger than memory. Only the touched pages exist.
#[test]
fn displacements_beyond_4_gib() {
    const SIZE: usize = 6 << 30;
    const FAR: u64 = (5 << 30) + 4093;
    for flavour in FLAVOURS {
        run(2, |world| {
            let sparse = Sparse::new(SIZE);
            let memory = unsafe { std::slice::from_raw_parts_mut(sparse.0, SIZE) };
            let mut w = world.window(flavour, memory);
            let other = 1 - world.rank;
            for len in [8usize, 5000, 100_000] {
                let from = bytes(len, u64::from(world.rank));
                let mut back = vec![0; len];
                w.put(other, FAR, &from);
                barrier(&mut w);
                w.get(other, FAR, &mut back);
                assert!(back == from);
                w.accumulate(other, FAR, (U8, reduction::BXOR), &from);
                barrier(&mut w);
                assert!(own(&w, FAR as usize, len).iter().all(|byte| *byte == 0));
                barrier(&mut w);
            }
        });
    }
}

#[test]
fn windows_report_sizes_and_reachability() {
    everywhere(3, 1000, |world, w| {
        for rank in 0..3 {
            assert_eq!(w.extent_of(rank), (1000, 1));
            assert_eq!(w.load_store(rank), rank == world.rank || w.describe() == "shared memory");
        }
        assert_eq!(w.needs_polling(), w.describe() != "shared memory");
        assert_ne!(w.base(), Addr(0));
        world.barrier();
    });
    run(3, |world| {
        // Sizes differ, and two of them are 0.
        let size = if world.rank == 1 { 12345 } else { 0 };
        let mut w = world.allocate(size);
        assert_eq!(w.base() == Addr(0), size == 0);
        assert_eq!([0, 1, 2].map(|rank| w.extent_of(rank).0), [0, 12345, 0]);
        w.put(1, 100 * u64::from(world.rank), &[world.rank as u8 + 1; 100]);
        barrier(&mut w);
        if world.rank == 1 {
            assert_eq!([0, 100, 200].map(|at| own(&w, at, 1)[0]), [1, 2, 3]);
        }
        barrier(&mut w);
    });
}

/// [MA-1, MA-2] Every word of every pair is distinct, and so are lock words [LK-2].
#[test]
fn signal_and_lock_words_are_distinct() {
    const WORDS: [Word; 3] = [Word::Grant, Word::Done, Word::Fence];
    everywhere(3, 8, |world, mut w| {
        let me = world.rank;
        let value = |reader: Rank, writer: Rank, word: Word| {
            u64::from(1 + reader * 100 + writer * 10 + word as u32)
        };
        let locks = |home: Rank| {
            let mut words = vec![LockWord::Tail, LockWord::Readers, LockWord::NextWriter];
            if home == 0 {
                words.extend([LockWord::Holders, LockWord::Intent]);
            }
            for target in 0..3 {
                let next = [0, 1].map(|parity| LockWord::Next { target, parity });
                words.extend([LockWord::Grant { target }, next[0], next[1]]);
            }
            words
        };
        for peer in 0..3 {
            for word in WORDS {
                assert_eq!(w.observe(peer, word), 0);
            }
        }
        world.barrier();
        for peer in 0..3 {
            for word in WORDS {
                assert_eq!(w.signal(peer, word, value(peer, me, word)), Ok(()));
            }
        }
        // Each rank writes the words of the next one.
        let home = (me + 1) % 3;
        for (i, word) in (1u64..).zip(locks(home)) {
            assert_eq!(w.load(home, word), 0);
            w.store(home, word, u64::from(home) * 1000 + i);
        }
        world.barrier();
        for peer in 0..3 {
            for word in WORDS {
                assert_eq!(w.observe(peer, word), value(me, peer, word));
            }
        }
        for (i, word) in (1u64..).zip(locks(me)) {
            let value = u64::from(me) * 1000 + i;
            assert_eq!(w.load(me, word), value);
            assert_eq!(w.swap(me, word, value + 1), value);
            assert_eq!(w.fetch_add(me, word, u64::MAX), value + 1);
            assert_eq!(w.compare_swap(me, word, value + 1, 5), value);
            assert_eq!(w.compare_swap(me, word, value, 7), value);
            assert_eq!(w.load(me, word), 7);
        }
        world.barrier();
    });
}

/// [RQ-5] Each agreement gives every process the highest proposal, round after round.
#[test]
fn agreements_decide_on_the_highest_proposal() {
    everywhere(4, 8, |world, mut w| {
        for round in 0..2000u32 {
            let says = |rank: Rank| match round {
                _ if round % 7 == rank || (round % 11 == 3 && rank.is_multiple_of(2)) => {
                    Proposal::Objection
                }
                _ if round % 5 == rank || round % 13 == rank => Proposal::Busy,
                _ => Proposal::Ready,
            };
            assert_eq!(w.decision(), None, "no decision before this process has proposed");
            w.propose(says(world.rank));
            let decision = loop {
                match w.decision() {
                    Some(decision) => break decision,
                    None => std::thread::yield_now(),
                }
            };
            assert_eq!(Some(decision), (0..4).map(says).max(), "round {round}");
        }
    });
}

/// Posts an operation, again as long as there is no room for it.
fn post(w: &mut ShmWindow, op: &Op) -> Posted {
    loop {
        match w.post(op, Ticket(7)) {
            Posted::NoResource => _ = w.poll(),
            posted => return posted,
        }
    }
}

/// The doorbell is one for the whole process: tests that arm windows take turns at it.
fn take_doorbell() -> MutexGuard<'static, ()> {
    static DOORBELL: Mutex<()> = Mutex::new(());
    let held = DOORBELL.lock().unwrap_or_else(PoisonError::into_inner);
    take_rung(|_| ());
    held
}

/// Anything that a peer sends disarms an armed window once and rings the doorbell for that window.
#[test]
fn a_contact_disarms_the_window_and_rings_once() {
    let _doorbell = take_doorbell();
    let long = bytes(100_000, 1);
    let ways = [OpKind::Put, OpKind::Get, OpKind::Accumulate].map(|kind| (kind, None));
    let told = Some(Notification::tag(5));
    for (kind, notification) in ways.into_iter().chain(ways.map(|(kind, _)| (kind, told))) {
        everywhere(2, 1 << 20, |world, mut w| {
            // Operations on mapped memory do not contact its owner, except for notifications.
            let contacts = w.describe() != "shared memory" || notification.is_some();
            for len in [8, long.len()] {
                if world.rank == 0 {
                    while !w.arm() {
                        w.poll();
                        while w.next_arrival().is_some() {}
                    }
                    assert!(w.is_armed() && !is_rung());
                }
                world.barrier();
                if world.rank == 1 {
                    let mut back = vec![0; len];
                    let buffers = (Addr(long.as_ptr() as usize), Addr(back.as_mut_ptr() as usize));
                    let op = Op {
                        origin: buffers.0,
                        result: buffers.1,
                        element: U8,
                        notification,
                        ..op(kind, 0, 5, len)
                    };
                    if post(&mut w, &op) != Posted::Complete {
                        while w.next_finished().is_none_or(|(_, stage)| stage != Stage::Remote) {
                            w.poll();
                        }
                    }
                } else if contacts {
                    while w.is_armed() {
                        std::thread::yield_now();
                    }
                    while !is_rung() {
                        std::thread::yield_now();
                    }
                    let mut rung = Vec::new();
                    take_rung(|slot| rung.push(slot));
                    assert_eq!(
                        rung,
                        [doorbell::slot(w.number().unwrap())],
                        "{kind:?} of {len} bytes"
                    );
                }
                // Serves rank 1 until it has arrived.
                barrier(&mut w);
                if world.rank == 0 {
                    let arrived = std::iter::from_fn(|| w.next_arrival()).count();
                    assert_eq!(arrived, usize::from(notification.is_some()));
                }
                assert!(contacts || world.rank == 1 || w.is_armed());
                world.barrier();
            }
        });
    }
}

/// A window is not armed while something published waits.
#[test]
fn a_window_with_waiting_work_is_not_armed() {
    let _doorbell = take_doorbell();
    everywhere(2, 4096, |world, mut w| {
        if world.rank == 1 {
            assert_ne!(post(&mut w, &Op::notify(0, Notification::tag(5))), Posted::NoResource);
        }
        world.barrier();
        if world.rank == 0 {
            assert!(!w.arm() && !w.is_armed());
            w.poll();
            assert!(w.next_arrival().is_some() && w.next_arrival().is_none());
            assert!(w.arm() && w.is_armed());
        }
        barrier(&mut w);
    });
}

/// [NA-1] What was left to the target is copied before a notification is sent. The target passes
/// what the origin has claimed, and so would take the notification while the origin still copies.
#[test]
fn what_is_left_to_the_target_is_copied_before_a_notification() {
    if skips_without_attach("notifications behind puts that are left to the target") {
        return;
    }
    let (data, tail) = (bytes(32 << 10, 1), bytes(8, 2));
    run(2, |world| {
        let mut memory = vec![0; 2 * data.len()];
        let mut w = world.create(&mut memory, true);
        let mut posted = Flight::default();
        world.barrier();
        if world.rank == 1 {
            let put = |disp: usize, from: &[u8], notification| Op {
                origin: Addr(from.as_ptr() as usize),
                notification,
                ..op(OpKind::Put, 0, disp as u64, from.len())
            };
            posted.post(&mut w, &put(0, &data, None));
            assert!(posted.is_open(), "the put is left to the target");
            posted.post(&mut w, &put(data.len(), &tail, Some(Notification::tag(5))));
        }
        world.barrier();
        if world.rank == 0 {
            assert!(own(&w, 0, data.len()) == data, "the target has not polled");
        }
        posted.finish(&mut w);
        barrier(&mut w);
        if world.rank == 0 {
            assert!(own(&w, data.len(), tail.len()) == tail && w.next_arrival().is_some());
        }
        barrier(&mut w);
    });
}
