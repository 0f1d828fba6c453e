//! Loom: all interleavings of two processes that publish, read and reuse the slots of rings [CL-5],
//! within bounds. The production code runs over loom's words.

use std::ops::Range;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use mpix_rma::collective::steps::{Content, DEPTH, Mover, Pieces, Plan, Rings, Turn};

/// Publishes the number of the step, and adds up what it takes.
struct Process {
    first: u64,
    sum: u64,
}

impl Mover for Process {
    fn publish(&mut self, step: u32, slot: &[AtomicU64]) {
        slot[0].store(self.first + u64::from(step), Ordering::Relaxed);
    }

    fn take(&mut self, _: u32, _: Range<usize>, _: Turn, slot: Option<&[AtomicU64]>) {
        if let Some(slot) = slot {
            self.sum += slot[0].load(Ordering::Relaxed);
        }
    }
}

/// One process: `starts` collectives of `steps` steps. Returns the sum of all that it has taken.
fn run(words: &[AtomicU64], me: u32, plan: &Plan, starts: u64) -> u64 {
    let mut rings = Rings::new(me, 2, 8);
    let mut process = Process { first: 0, sum: 0 };
    for start in 0..starts {
        process.first = start * u64::from(plan.steps);
        rings.start(plan);
        while !rings.advance(plan, words, &mut process).0 {
            thread::yield_now();
        }
    }
    process.sum
}

fn check(plans: [Plan; 2], starts: u64, wanted: [u64; 2]) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(move || {
        let rings = Rings::new(0, 2, 8);
        let words: Vec<_> = (0..rings.words()).map(|_| AtomicU64::new(0)).collect();
        let words = Arc::new(words);
        let (theirs, plan) = (words.clone(), plans[1].clone());
        let other = thread::spawn(move || run(&theirs, 1, &plan, starts));
        let own = run(&words, 0, &plans[0], starts);
        assert_eq!([own, other.join().expect("no panic")], wanted);
    });
}

/// More steps than a ring has slots.
const STEPS: u32 = DEPTH as u32 + 1;

fn content(steps: u32) -> Content {
    Content::whole(Pieces { total: 8 * steps as usize, piece: 8 })
}

#[test]
fn a_slot_is_reused_when_its_reader_has_read_it() {
    let none = Content::default();
    let from_first = |publishes, takes, readers| Plan {
        steps: STEPS,
        publishes,
        takes,
        readers,
        synchronizes: false,
    };
    let plans = [
        from_first(content(STEPS), Vec::new(), vec![1]),
        from_first(none, vec![(0, content(STEPS))], Vec::new()),
    ];
    let sum = u64::from(STEPS * (STEPS - 1) / 2);
    check(plans, 1, [0, sum]);
}

#[test]
fn processes_that_take_from_each_other_need_no_counts() {
    let plan = |other| Plan {
        steps: 3,
        publishes: content(3),
        takes: vec![(other, content(3))],
        readers: vec![other],
        synchronizes: true,
    };
    let sum = (0..6).sum();
    check([plan(1), plan(0)], 2, [sum, sum]);
}
