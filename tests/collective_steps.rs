//! Collectives in steps, and the repeated barrier: every process in one thread, in random order,
//! over many starts.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use mpix_rma::collective::flags::Dissemination;
use mpix_rma::collective::steps::{INLINE, Mover, Pieces, Plan, Rings, Turn};

/// Who sends how many bytes to whom; `is_same`: the same bytes.
struct Program {
    ranks: usize,
    sent: Vec<Vec<usize>>,
    is_same: bool,
    piece: usize,
}

impl Program {
    fn random(random: &mut fastrand::Rng) -> Self {
        let ranks = random.usize(1..6);
        let is_same = random.bool();
        let longest = *random.choice([1, 8, INLINE, 200, 1500].iter()).expect("not empty");
        let even = random.bool();
        let mut length = || if even { longest } else { random.usize(0..=longest) };
        let sent = (0..ranks)
            .map(|_| {
                let all = length();
                (0..ranks).map(|_| if is_same { all } else { length() }).collect()
            })
            .collect();
        Program { ranks, sent, is_same, piece: random.usize(1..=longest) }
    }

    fn steps(&self) -> u32 {
        let all = self.sent.iter().flatten();
        all.map(|bytes| self.pieces(*bytes).steps()).max().unwrap_or(0)
    }

    fn pieces(&self, total: usize) -> Pieces {
        Pieces { total, piece: self.piece }
    }

    fn plan(&self, me: usize) -> Plan {
        let others = || (0..self.ranks).filter(|rank| *rank != me);
        let steps = self.steps();
        let longest = others().map(|to| self.sent[me][to]).max().unwrap_or(0);
        let takes = (0..self.ranks).map(|from| (from as u32, self.pieces(self.sent[from][me])));
        let pairs = (0..self.ranks).flat_map(|from| (0..self.ranks).map(move |to| (from, to)));
        let mut pairs = pairs.filter(|(from, to)| from != to);
        Plan {
            steps,
            publishes: self.pieces(longest),
            takes: takes.filter(|(_, pieces)| pieces.total > 0).collect(),
            readers: others().filter(|to| self.sent[me][*to] > 0).map(|to| to as u32).collect(),
            synchronizes: pairs.all(|(from, to)| self.pieces(self.sent[from][to]).steps() == steps),
        }
    }
}

fn byte(start: usize, from: usize, to: usize, at: usize) -> u8 {
    (start * 91 + from * 17 + to * 5 + at * 3 + at / 256) as u8
}

struct Process<'a> {
    program: &'a Program,
    me: usize,
    start: usize,
    got: Vec<Vec<u8>>,
}

impl Process<'_> {
    fn content(&self, from: usize, to: usize, at: usize) -> u8 {
        byte(self.start, from, if self.program.is_same { 0 } else { to }, at)
    }

    /// Where the bytes for a process are in a slot.
    fn place(&self, to: usize) -> usize {
        if self.program.is_same { 0 } else { to * self.program.piece }
    }
}

fn write(slot: &[AtomicU64], at: usize, value: u8) {
    let (word, shift) = (&slot[at / 8], at % 8 * 8);
    let rest = word.load(Ordering::Relaxed) & !(0xff << shift);
    word.store(rest | u64::from(value) << shift, Ordering::Relaxed);
}

fn read(slot: &[AtomicU64], at: usize) -> u8 {
    (slot[at / 8].load(Ordering::Relaxed) >> (at % 8 * 8)) as u8
}

impl Mover for Process<'_> {
    fn publish(&mut self, step: u32, slot: &[AtomicU64]) {
        for to in (0..self.program.ranks).filter(|to| *to != self.me) {
            let pieces = self.program.pieces(self.program.sent[self.me][to]);
            for (place, at) in (self.place(to)..).zip(pieces.of(step).unwrap_or_default()) {
                write(slot, place, self.content(self.me, to, at));
            }
        }
    }

    fn take(&mut self, from: u32, range: Range<usize>, turn: Turn, slot: Option<&[AtomicU64]>) {
        let from = from as usize;
        assert_eq!(self.got[from].len(), range.start, "pieces come in order");
        assert!(!turn.is_first || (0..from).all(|rank| self.program.sent[rank][self.me] == 0));
        for (place, at) in (self.place(self.me)..).zip(range) {
            let value =
                slot.map_or_else(|| self.content(from, self.me, at), |slot| read(slot, place));
            self.got[from].push(value);
        }
    }
}

#[test]
fn contents_arrive_whatever_the_order_of_processes() {
    for seed in 0..if cfg!(miri) { 20 } else { 600 } {
        let mut random = fastrand::Rng::with_seed(seed);
        let program = Program::random(&mut random);
        let parts = if program.is_same { 1 } else { program.ranks };
        let rings = |me| Rings::new(me as u32, program.ranks as u32, parts * program.piece);
        let words: Vec<_> = (0..rings(0).words()).map(|_| AtomicU64::new(0)).collect();
        let plans: Vec<_> = (0..program.ranks).map(|me| program.plan(me)).collect();
        let mut rings: Vec<_> = (0..program.ranks).map(rings).collect();
        let mut processes: Vec<_> = (0..program.ranks)
            .map(|me| Process { program: &program, me, start: 0, got: Vec::new() })
            .collect();
        let starts = 30;
        let mut idle = 0;
        while processes.iter().any(|process| process.start < starts) {
            let me = random.usize(..program.ranks);
            let process = &mut processes[me];
            if process.start == starts {
                continue;
            }
            if process.got.is_empty() {
                process.got = vec![Vec::new(); program.ranks];
                rings[me].start(&plans[me]);
            }
            let (complete, moved) = rings[me].advance(&plans[me], &words, process);
            idle = if moved || complete { 0 } else { idle + 1 };
            assert!(idle < 10_000, "seed {seed}: all processes wait");
            if complete {
                for from in 0..program.ranks {
                    let expected: Vec<u8> = (0..program.sent[from][me])
                        .map(|at| process.content(from, me, at))
                        .collect();
                    assert_eq!(process.got[from], expected, "seed {seed}, {from} to {me}");
                }
                (process.start, process.got) = (process.start + 1, Vec::new());
            }
        }
    }
}

#[test]
fn a_barrier_ends_after_all_have_begun_it() {
    for ranks in [1, 2, 3, 4, 5, 8, 9, 17] {
        let mut random = fastrand::Rng::with_seed(u64::from(ranks));
        let mut barriers: Vec<_> = (0..ranks).map(|me| Dissemination::new(me, ranks)).collect();
        let words: Vec<_> = (0..barriers[0].words()).map(|_| AtomicU64::new(0)).collect();
        let (mut begun, mut ended) = (vec![0; ranks as usize], vec![0; ranks as usize]);
        while ended.iter().any(|number| *number < 50) {
            let me = random.usize(..ranks as usize);
            if begun[me] == ended[me] {
                barriers[me].start();
                begun[me] += 1;
            }
            if barriers[me].advance(&words) {
                ended[me] += 1;
                assert!(begun.iter().all(|number| *number >= ended[me]), "{ranks} processes");
            }
        }
    }
}
