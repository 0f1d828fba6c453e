//! Loom: all interleavings of the channel and of the accumulate lock, within bounds.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64};
use loom::thread;
use mpix_rma::transport::shm::protocol::*;

/// Two slots, so that three operations wrap around.
const SLOTS: u64 = 2;

/// The words of a channel and the target's memory.
struct Channel {
    head: AtomicU64,
    consumer_lock: AtomicU32,
    stamps: [AtomicU64; SLOTS as usize],
    /// Payload of the slots. Loom reports every unordered access.
    payload: [UnsafeCell<u64>; SLOTS as usize],
    /// The target's memory: a list of the operations applied, in order.
    memory: UnsafeCell<Vec<u64>>,
}

impl Channel {
    fn new() -> Self {
        Channel {
            head: AtomicU64::new(0),
            consumer_lock: AtomicU32::new(0),
            stamps: Default::default(),
            payload: Default::default(),
            memory: UnsafeCell::new(Vec::new()),
        }
    }

    fn words(&self) -> ChannelWords<'_> {
        ChannelWords { head: &self.head, consumer_lock: &self.consumer_lock }
    }

    fn slot(&self, position: u64) -> usize {
        (position % SLOTS) as usize
    }

    /// The origin sends the operation `position + 100`.
    fn send(&self, position: u64) {
        let slot = self.slot(position);
        self.payload[slot].with_mut(|payload| unsafe { *payload = position + 100 });
        publish(&self.stamps[slot], position, 7);
    }

    /// Applies what is published: appends the value to the memory and returns twice the value. The
    /// target checks before it takes the consumer lock; the origin knows what it has published.
    fn consume(&self, end: Option<u64>) {
        if end.is_none() {
            let head = self.words().peek();
            if published(&self.stamps[self.slot(head)], head).is_none() {
                return;
            }
        }
        let Some(mut consumer) = self.words().try_consume() else { return };
        let mut position = consumer.position();
        while end.is_none_or(|end| position < end) {
            let slot = self.slot(position);
            match published(&self.stamps[slot], position) {
                Some(tag) => assert_eq!(tag, 7),
                None => break,
            }
            let value = self.payload[slot]
                .with_mut(|payload| unsafe { std::mem::replace(&mut *payload, *payload * 2) });
            self.memory.with_mut(|memory| unsafe { (*memory).push(value) });
            position += 1;
        }
        consumer.advance(position);
    }

    /// The origin collects the result of `position`.
    fn collect(&self, position: u64) {
        let result = self.payload[self.slot(position)].with(|payload| unsafe { *payload });
        assert_eq!(result, 2 * (position + 100));
    }
}

fn bounded(preemptions: usize) -> loom::model::Builder {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder
}

/// The origin sends three operations through two slots, and consumes them itself or waits.
fn origin(channel: &Channel, consumes: bool) {
    let (mut tail, mut collected) = (0, 0);
    while collected < 3 {
        while tail < 3 && tail - collected < SLOTS {
            channel.send(tail);
            tail += 1;
        }
        if consumes {
            channel.consume(Some(tail));
        }
        let applied = channel.words().applied();
        if applied == collected {
            thread::yield_now();
        }
        while collected < applied {
            channel.collect(collected);
            collected += 1;
        }
    }
}

/// What the origin knows to be complete is in the target's memory, once and in order [FE-2].
fn check(channel: &Channel) {
    channel.memory.with(|memory| assert_eq!(unsafe { &*memory }, &[100, 101, 102]));
}

#[test]
fn the_target_consumes() {
    bounded(3).check(|| {
        let channel = Arc::new(Channel::new());
        let target = {
            let channel = Arc::clone(&channel);
            thread::spawn(move || {
                while channel.words().peek() < 3 {
                    channel.consume(None);
                    thread::yield_now();
                }
            })
        };
        origin(&channel, false);
        // The origin has seen the head, so no join is needed to see the memory.
        check(&channel);
        target.join().unwrap();
    });
}

#[test]
fn the_origin_consumes_while_the_target_polls() {
    bounded(3).check(|| {
        let channel = Arc::new(Channel::new());
        let target = {
            let channel = Arc::clone(&channel);
            thread::spawn(move || {
                channel.consume(None);
                channel.consume(None);
            })
        };
        origin(&channel, true);
        check(&channel);
        target.join().unwrap();
        check(&channel);
    });
}

/// A slot by reference, and the two ranges of bytes that it refers to.
#[derive(Default)]
struct Divided {
    head: AtomicU64,
    consumer_lock: AtomicU32,
    stamp: AtomicU64,
    claimed: AtomicU64,
    ranges: [UnsafeCell<u64>; 2],
}

impl Divided {
    fn words(&self) -> ChannelWords<'_> {
        ChannelWords { head: &self.head, consumer_lock: &self.consumer_lock }
    }

    /// Copies what is unclaimed; returns the number of ranges.
    fn copy(&self) -> usize {
        std::iter::from_fn(|| Claims(&self.claimed).claim(1, 2))
            .inspect(|(start, _)| {
                self.ranges[*start as usize].with_mut(|range| unsafe { *range += 1 })
            })
            .count()
    }

    /// The target polls once.
    fn help(&self) {
        let Some(mut consumer) = self.words().try_consume() else { return };
        if consumer.position() == 0 && published(&self.stamp, 0).is_some() {
            self.copy();
            consumer.advance(1);
        }
    }
}

#[test]
fn both_ends_copy_an_operation_by_reference() {
    bounded(3).check(|| {
        let divided = Arc::new(Divided::default());
        let target = {
            let divided = Arc::clone(&divided);
            thread::spawn(move || divided.help())
        };
        publish(&divided.stamp, 0, 7);
        let mine = divided.copy();
        // What the origin has not copied itself, it knows from the head.
        while mine < 2 && divided.words().applied() == 0 {
            thread::yield_now();
        }
        for range in &divided.ranges {
            range.with(|range| assert_eq!(unsafe { *range }, 1));
        }
        target.join().unwrap();
    });
}

#[test]
fn a_signal_is_seen_after_completed_operations() {
    bounded(2).check(|| {
        use loom::sync::atomic::Ordering::{Acquire, Release};
        let channel = Arc::new(Channel::new());
        let done = Arc::new(AtomicU64::new(0));
        let target = {
            let (channel, done) = (Arc::clone(&channel), Arc::clone(&done));
            thread::spawn(move || {
                channel.consume(None);
                if done.load(Acquire) == 1 {
                    // The target reads its memory without the consumer lock, whoever applied the
                    // operations.
                    check(&channel);
                }
            })
        };
        origin(&channel, true);
        done.store(1, Release);
        target.join().unwrap();
    });
}

/// Places in one, two and three stripes, which overlap and pass the last word.
#[test]
fn the_accumulate_lock_excludes_and_publishes() {
    type Shared = (AccumulateWords, [UnsafeCell<u64>; 8]);
    /// Adds 1 to the values of some stripes.
    fn add(shared: &Shared, (first, stripes): (u64, u64)) {
        let from = (first + 1) * STRIPE_BYTES - 1;
        let _held = shared.0.lock(from, (stripes - 1) * STRIPE_BYTES + 1);
        for stripe in first..first + stripes {
            shared.1[stripe as usize % 8].with_mut(|value| unsafe { *value += 1 });
        }
    }
    let cases = [[(7, 1), (7, 1)], [(7, 2), (7, 1)], [(7, 2), (6, 3)], [(15, 1), (7, 2)]];
    for [one, two] in cases {
        bounded(3).check(move || {
            let shared: Arc<Shared> = Arc::default();
            let other = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || add(&shared, two))
            };
            add(&shared, one);
            other.join().unwrap();
            let _held = shared.0.lock_all();
            let sum: u64 = shared.1.iter().map(|value| value.with(|value| unsafe { *value })).sum();
            assert_eq!(sum, one.1 + two.1);
        });
    }
}

/// A put, a flush, and a put of a flag: both puts are plain copies. The reader is the target, which
/// polls its memory with `MPI_Win_sync`, or an origin that gets the flag, flushes, and gets the
/// data.
#[test]
fn a_completed_put_is_seen_before_a_later_one() {
    use loom::sync::atomic::Ordering::{Relaxed, SeqCst};
    let readers: [fn(); 2] = [|| loom::sync::atomic::fence(SeqCst), order_completed];
    for between in readers {
        bounded(3).check(move || {
            let memory = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
            let reader = {
                let memory = Arc::clone(&memory);
                thread::spawn(move || {
                    let flag = memory.1.load(Relaxed);
                    between();
                    let data = memory.0.load(Relaxed);
                    assert!(flag == 0 || data == 1, "the flag came before the data");
                })
            };
            memory.0.store(1, Relaxed);
            order_completed();
            memory.1.store(1, Relaxed);
            reader.join().unwrap();
        });
    }
}
