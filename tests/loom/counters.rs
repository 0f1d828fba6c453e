//! Loom: all interleavings of processes that notify and one that reads, resets and waits, within
//! bounds. The production engine runs over loom's words.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use mpix_rma::engine::*;
use mpix_rma::transport::shm::protocol::CounterLine;

/// As the library raises a counter for a process.
fn raise_as(counter: &CounterLine, name: u64) {
    match counter.claim(name) {
        Some(own) => own.raise_to(own.count() + 1),
        None => counter.raise_shared(),
    }
}

/// Twice, the second time without reading the word.
fn raise_twice(counter: &CounterLine, name: u64) {
    match counter.claim(name) {
        Some(own) => {
            let count = own.count();
            own.raise_to(count + 1);
            own.raise_to(count + 2);
        }
        None => (0..2).for_each(|_| counter.raise_shared()),
    }
}

/// Counters of rank 0, and memory that two others write.
#[derive(Default)]
struct Shared {
    counters: [CounterLine; 2],
    data: [UnsafeCell<u64>; 2],
}

impl Shared {
    fn put(&self, which: usize, value: u64) {
        self.data[which].with_mut(|data| unsafe { *data = value });
    }

    fn get(&self, which: usize) -> u64 {
        self.data[which].with(|data| unsafe { *data })
    }
}

/// The owner's port, which has nothing but counters.
struct Own(Arc<Shared>);

impl LockMemory for Own {
    fn atomic(&mut self, _: Rank, _: LockWord, _: Atomic, _: LockTicket) -> Answer {
        unreachable!("nobody locks")
    }
    fn look(&mut self, _: LockWord) -> u64 {
        0
    }
}

impl Port for Own {
    fn post(&mut self, _: &Op, _: Ticket) -> Posted {
        unreachable!("the owner only looks")
    }
    fn signal(&mut self, _: Rank, _: Word, _: u64) -> Result<(), NoResource> {
        unreachable!("no epoch is opened")
    }
    fn observe(&mut self, _: Rank, _: Word) -> u64 {
        0
    }
    fn counter(&mut self, index: u32) -> u64 {
        self.0.counters[index as usize].raised()
    }
    fn poll(&mut self) -> bool {
        false
    }
    fn next_finished(&mut self) -> Option<(Ticket, Stage)> {
        None
    }
}

fn owner(shared: &Arc<Shared>) -> (Window, Own) {
    (Window::new(0, 3, ReorderFlags::default()), Own(Arc::clone(shared)))
}

fn origin(
    shared: &Arc<Shared>,
    work: impl FnOnce(&Shared) + Send + 'static,
) -> thread::JoinHandle<()> {
    let shared = Arc::clone(shared);
    thread::spawn(move || work(&shared))
}

/// Resets and the final value add up to all notifications.
#[test]
fn resets_lose_no_notification() {
    loom::model(|| {
        let shared = Arc::new(Shared::default());
        let origins = [1, 2].map(|times| {
            origin(&shared, move |shared| {
                for _ in 0..times {
                    raise_as(&shared.counters[0], times);
                }
            })
        });
        let (mut engine, mut port) = owner(&shared);
        let mut taken = engine.reset_counter(&mut port, 0);
        let between = engine.counter(&mut port, 0);
        let again = engine.reset_counter(&mut port, 0);
        assert!(again >= between, "counts only rise between two resets");
        taken += again;
        origins.into_iter().for_each(|origin| origin.join().unwrap());
        assert_eq!(taken + engine.counter(&mut port, 0), 3);
        assert_eq!(taken + engine.reset_counter(&mut port, 0), 3);
        assert_eq!(engine.counter(&mut port, 0), 0);
    });
}

/// Two origins claim the last word of a counter, and one of them shares a word with all others.
#[test]
fn more_origins_than_words_lose_no_notification() {
    loom::model(|| {
        let shared = Arc::new(Shared::default());
        (11..=12).for_each(|name| raise_as(&shared.counters[0], name));
        let origins = [1, 2].map(|name| {
            origin(&shared, move |shared| {
                shared.put(name as usize - 1, 7);
                raise_twice(&shared.counters[0], name);
            })
        });
        let (mut engine, mut port) = owner(&shared);
        if engine.counter(&mut port, 0) == 6 {
            assert_eq!((shared.get(0), shared.get(1)), (7, 7));
        }
        origins.into_iter().for_each(|origin| origin.join().unwrap());
        assert_eq!(engine.counter(&mut port, 0), 6);
    });
}

/// A process that has seen both counts may read what both origins put. The second addition does not
/// hide what came before the first.
#[test]
fn observing_a_count_is_an_acquire_for_the_data() {
    loom::model(|| {
        let shared = Arc::new(Shared::default());
        let origins = [0, 1].map(|which| {
            origin(&shared, move |shared| {
                shared.put(which, 7);
                raise_as(&shared.counters[0], which as u64 + 1);
            })
        });
        let (mut engine, mut port) = owner(&shared);
        if engine.counter(&mut port, 0) == 2 {
            assert_eq!((shared.get(0), shared.get(1)), (7, 7));
        }
        origins.into_iter().for_each(|origin| origin.join().unwrap());
    });
}

/// The same for a request that waits, and for data put again after its count was consumed.
#[test]
fn a_wait_ends_after_its_data_arrived() {
    loom::model(|| {
        let shared = Arc::new(Shared::default());
        let origin = origin(&shared, |shared| {
            shared.put(0, 7);
            raise_as(&shared.counters[0], 1);
            shared.put(1, 8);
            raise_as(&shared.counters[1], 1);
        });
        let (mut engine, mut port) = owner(&shared);
        let (outcome, found) = engine.await_counters(&mut port, 0, 2, 1);
        let found = match outcome {
            Outcome::Complete => found,
            Outcome::Pending(request) => {
                while engine.is_pending(request) {
                    engine.progress(&mut port);
                    thread::yield_now();
                }
                engine.found(request)
            }
        };
        // Both may have arrived before it looked at the first, which is found in either case.
        let Some(Notified { index, value: 1 }) = found else { panic!("{found:?}") };
        assert_eq!(shared.get(0), 7);
        if index == 1 {
            assert_eq!(shared.get(1), 8);
        }
        assert_eq!(engine.reset_counter(&mut port, 0), 1);
        while engine.look_at_counters(&mut port, 0, 2, 1).is_none() {
            thread::yield_now();
        }
        assert_eq!((shared.get(0), shared.get(1)), (7, 8));
        origin.join().unwrap();
    });
}
