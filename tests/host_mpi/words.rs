//! Signals and lock words between processes of different nodes.

use mpix_rma::engine::*;

use crate::world::*;

#[test]
fn fe2_a_signal_comes_after_the_operations_before_it() {
    for seed in 0..200 {
        let mut memories = vec![vec![0u8; 1 << 20]; 2];
        let (hub, mut w) = windows(&mut memories, seed);
        let lens = [8usize, 3000, 40_000, 700_000];
        let len = lens[seed as usize % 4];
        let from = vec![7u8; len];
        let mut flight = InFlight::default();
        let put = Op { origin: Addr(from.as_ptr() as usize), ..op(OpKind::Put, 1, 100, len) };
        while !flight.try_post(&mut w[0], &put) {
            w.iter_mut().for_each(|window| _ = window.poll());
        }
        assert!(w[0].signals_follow(1));
        while w[0].signal(1, Word::Done, 1).is_err() {
            w[0].poll();
            w[1].poll();
        }
        while w[1].observe(0, Word::Done) < 1 {
            w[0].poll();
            w[1].poll();
        }
        let there = unsafe { std::slice::from_raw_parts((w[1].base().0 + 100) as *const u8, len) };
        assert!(
            there.iter().all(|byte| *byte == 7),
            "seed {seed}: the signal has overtaken {len} bytes"
        );
        while flight.open > 0 {
            w.iter_mut().for_each(|window| _ = window.poll());
            flight.collect(&mut w[0]);
        }
        end(&hub, w);
    }
}

#[test]
fn signals_to_oneself_and_of_every_word_arrive() {
    let mut memories = vec![Vec::new(); 3];
    let (hub, mut w) = windows(&mut memories, 1);
    for (at, word) in [Word::Grant, Word::Done, Word::Fence].into_iter().enumerate() {
        for from in 0..3 {
            for to in 0..3 {
                let value = 10 * u64::from(from) + at as u64 + 1;
                while w[from as usize].signal(to, word, value).is_err() {
                    w.iter_mut().for_each(|window| _ = window.poll());
                }
                while w[to as usize].observe(from, word) < value {
                    w.iter_mut().for_each(|window| _ = window.poll());
                }
            }
        }
    }
    assert_eq!(w[0].observe(1, Word::Grant), 11);
    end(&hub, w);
}

/// Accesses a lock word and waits for the answer.
fn access(w: &mut [Far], me: usize, home: Rank, word: LockWord, access: Atomic) -> u64 {
    loop {
        match w[me].atomic(home, word, access, LockTicket(77)) {
            Answer::Now(old) => return old,
            Answer::NoResource => w.iter_mut().for_each(|window| _ = window.poll()),
            Answer::Later => break,
        }
    }
    for _ in 0..10_000 {
        w.iter_mut().for_each(|window| _ = window.poll());
        if let Some((ticket, old)) = w[me].next_answer() {
            assert_eq!(ticket, LockTicket(77));
            return old;
        }
    }
    panic!("no answer")
}

#[test]
fn lk7_every_word_is_one_word_from_wherever_it_is_accessed() {
    let mut memories = vec![Vec::new(); 3];
    let (hub, mut w) = windows(&mut memories, 2);
    let everywhere = [
        LockWord::Licence,
        LockWord::NextLicensed,
        LockWord::Tail,
        LockWord::Readers,
        LockWord::NextWriter,
        LockWord::Next { target: 0, parity: 0 },
        LockWord::Next { target: 1, parity: 1 },
        LockWord::Next { target: 2, parity: 0 },
        LockWord::Grant { target: 0 },
        LockWord::Grant { target: 1 },
        LockWord::Grant { target: 2 },
    ];
    let at_first = [LockWord::Holders, LockWord::Intent, LockWord::Licensed];
    let homes = |word| if at_first.contains(&word) { 0..1 } else { 0..3 };
    for (number, word) in (1u64..).zip(everywhere.into_iter().chain(at_first)) {
        for home in homes(word) {
            for me in 0..3 {
                access(&mut w, me, home, word, Atomic::Add((number << 8) | (u64::from(home) + 1)));
            }
            let sum = 3 * ((number << 8) | (u64::from(home) + 1));
            assert_eq!(access(&mut w, 2, home, word, Atomic::Load), sum);
            assert_eq!(w[home as usize].look(word), sum);
            assert_eq!(
                access(&mut w, 1, home, word, Atomic::CompareSwap { expected: 1, new: 9 }),
                sum
            );
            assert_eq!(
                access(&mut w, 0, home, word, Atomic::CompareSwap { expected: sum, new: 5 }),
                sum
            );
            assert_eq!(access(&mut w, 1, home, word, Atomic::Swap(6)), 5);
            access(&mut w, 2, home, word, Atomic::Store(7));
            assert_eq!(access(&mut w, 0, home, word, Atomic::Load), 7);
        }
    }
    end(&hub, w);
}
