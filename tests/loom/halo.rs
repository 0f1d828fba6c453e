//! Loom: neighbours read each other's data in place, and no one changes data that are being read.
//! The production exchange runs over loom's words.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;
use mpix_rma::collective::halo::{Exchange, Links, words_of};

const PART: usize = 16;

struct Shared {
    words: Vec<AtomicU64>,
    /// The data of each process.
    data: [UnsafeCell<u64>; 2],
}

/// Two exchanges of process `me` with the other one.
fn run(shared: &Shared, me: usize) {
    let other = 1 - me;
    let links = Links::new(me * PART, vec![other * PART], [(other * PART, 0)]);
    let mut exchange = Exchange::new(links);
    for round in 1..=2 {
        shared.data[me].with_mut(|data| unsafe { *data = round * 10 + me as u64 });
        exchange.start(&shared.words);
        let mut seen = 0;
        let mut read = |_| seen = shared.data[other].with(|data| unsafe { *data });
        while !exchange.advance(&shared.words, &mut read) {
            thread::yield_now();
        }
        assert_eq!(seen, round * 10 + other as u64);
    }
}

#[test]
fn data_are_read_before_they_change() {
    assert_eq!(words_of(1), PART);
    loom::model(|| {
        let words = (0..2 * PART).map(|_| AtomicU64::new(0)).collect();
        let shared = Arc::new(Shared { words, data: [UnsafeCell::new(0), UnsafeCell::new(0)] });
        let second = Arc::clone(&shared);
        let other = thread::spawn(move || run(&second, 1));
        run(&shared, 0);
        other.join().expect("no process panics");
    });
}
