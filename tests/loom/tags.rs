//! Loom: all interleavings of the ring of tagged notifications, within bounds.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;
use mpix_rma::transport::shm::tags::{Slot, TagRing};

/// Few slots, so that few notifications wrap around.
const SLOTS: usize = 2;

struct Shared {
    tail: AtomicU64,
    head: AtomicU64,
    used: AtomicU64,
    slots: Vec<Slot>,
    /// What each producer puts before it notifies. Loom reports every unordered access.
    data: Vec<UnsafeCell<u64>>,
}

impl Shared {
    fn new(slots: usize, data: usize) -> Arc<Self> {
        Arc::new(Shared {
            tail: AtomicU64::new(0),
            head: AtomicU64::new(0),
            used: AtomicU64::new(0),
            slots: (0..slots).map(|_| Slot::default()).collect(),
            data: (0..data).map(|_| UnsafeCell::new(0)).collect(),
        })
    }

    fn ring(&self) -> TagRing<'_> {
        TagRing { tail: &self.tail, head: &self.head, used: &self.used, slots: &self.slots }
    }

    /// Puts a value into a place and notifies the consumer of the place. False if the ring is full.
    fn try_put(&self, known: &mut u64, place: usize) -> bool {
        self.data[place].with_mut(|cell| unsafe { *cell = place as u64 + 100 });
        self.ring().push(known, place as u64)
    }

    /// The same, repeated while the ring is full.
    fn put(&self, known: &mut u64, place: usize) {
        self.data[place].with_mut(|cell| unsafe { *cell = place as u64 + 100 });
        while !self.ring().push(known, place as u64) {
            thread::yield_now();
        }
    }

    /// Takes one notification, and reads its data.
    fn take(&self, position: u64) -> usize {
        loop {
            let ring = self.ring();
            if ring.is_used()
                && let Some(place) = ring.look(position)
            {
                self.data[place as usize].with(|cell| {
                    assert_eq!(unsafe { *cell }, place + 100, "no notification before its data")
                });
                ring.advance(position + 1);
                return place as usize;
            }
            thread::yield_now();
        }
    }
}

/// One producer wraps around: order is kept, nothing is lost or duplicated, and slots are reused
/// only after they were read.
#[test]
fn one_producer_wraps_around_the_ring() {
    loom::model(|| {
        let shared = Shared::new(SLOTS, 4);
        let producer = {
            let shared = shared.clone();
            thread::spawn(move || {
                let mut known = 0;
                (0..4).for_each(|place| shared.put(&mut known, place));
            })
        };
        for position in 0..4 {
            assert_eq!(shared.take(position), position as usize);
        }
        producer.join().unwrap();
        assert_eq!(shared.ring().look(4), None);
    });
}

/// Two producers in a ring with room for all: each keeps its order, and nothing is lost or
/// duplicated.
#[test]
fn two_producers_share_the_ring() {
    loom::model(|| {
        let shared = Shared::new(4, 4);
        let producers: Vec<_> = (0..2)
            .map(|producer| {
                let shared = shared.clone();
                thread::spawn(move || {
                    let mut known = 0;
                    (0..2).for_each(|number| {
                        assert!(shared.try_put(&mut known, 2 * producer + number))
                    });
                })
            })
            .collect();
        let mut next = [0, 2];
        for position in 0..4 {
            let place = shared.take(position);
            assert_eq!(
                place,
                next[place / 2],
                "the notifications of one producer keep their order"
            );
            next[place / 2] += 1;
        }
        assert_eq!(next, [2, 4]);
        producers.into_iter().for_each(|producer| producer.join().unwrap());
        assert_eq!(shared.ring().look(4), None);
    });
}

/// Two producers try once each while a slot of a full ring becomes free. At most one succeeds, and
/// its notification is there.
#[test]
fn a_freed_slot_is_given_once() {
    loom::model(|| {
        let shared = Shared::new(SLOTS, SLOTS + 2);
        let mut known = 0;
        (0..SLOTS).for_each(|place| assert!(shared.try_put(&mut known, place)));
        let producers: Vec<_> = (SLOTS..SLOTS + 2)
            .map(|place| {
                let shared = shared.clone();
                thread::spawn(move || shared.try_put(&mut 0, place))
            })
            .collect();
        assert_eq!(shared.take(0), 0);
        let told: Vec<bool> =
            producers.into_iter().map(|producer| producer.join().unwrap()).collect();
        assert_ne!(told, [true, true], "one place is free");
        assert_eq!(shared.take(1), 1);
        let there = SLOTS as u64;
        match told.iter().position(|told| *told) {
            Some(who) => assert_eq!(shared.take(there), SLOTS + who),
            None => assert_eq!(shared.ring().look(there), None),
        }
    });
}

/// A full ring refuses a notification and changes nothing.
#[test]
fn a_full_ring_refuses() {
    loom::model(|| {
        let shared = Shared::new(SLOTS, 3);
        let mut known = 0;
        for place in 0..SLOTS {
            shared.put(&mut known, place);
        }
        assert!(!shared.ring().push(&mut known, 2));
        let producer = {
            let shared = shared.clone();
            thread::spawn(move || shared.put(&mut known, 2))
        };
        assert_eq!((0..3).map(|position| shared.take(position)).collect::<Vec<_>>(), [0, 1, 2]);
        producer.join().unwrap();
    });
}
