//! Collectives in steps, and the repeated barrier: every process in one thread, in random order,
//! over many starts.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use mpix_rma::collective::flags::Dissemination;
use mpix_rma::collective::steps::{Content, INLINE, Mover, Pieces, Plan, Rings, Turn};

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
        let content = |from: usize| Content::whole(self.pieces(self.sent[from][me]));
        let takes = (0..self.ranks).filter(|from| self.sent[*from][me] > 0);
        let pairs = (0..self.ranks).flat_map(|from| (0..self.ranks).map(move |to| (from, to)));
        let mut pairs = pairs.filter(|(from, to)| from != to);
        Plan {
            steps,
            publishes: Content::whole(self.pieces(longest)),
            takes: takes.map(|from| (from as u32, content(from))).collect(),
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

/// Runs collectives of several processes in random order, each so often. `begin` prepares a start,
/// given its number, and `check` sees what a complete one has moved.
fn run<M: Mover>(
    seed: u64,
    random: &mut fastrand::Rng,
    (plans, slot): (&[Plan], usize),
    movers: &mut [M],
    starts: usize,
    (begin, check): (impl Fn(&mut M, usize), impl Fn(usize, &M)),
) {
    let ranks = plans.len();
    let rings = |me| Rings::new(me as u32, ranks as u32, slot);
    let words: Vec<_> = (0..rings(0).words()).map(|_| AtomicU64::new(0)).collect();
    let mut rings: Vec<_> = (0..ranks).map(rings).collect();
    let (mut begun, mut ended) = (vec![0; ranks], vec![0; ranks]);
    let mut idle = 0;
    while ended.iter().any(|number| *number < starts) {
        let me = random.usize(..ranks);
        if ended[me] == starts {
            continue;
        }
        if begun[me] == ended[me] {
            begin(&mut movers[me], begun[me]);
            rings[me].start(&plans[me]);
            begun[me] += 1;
        }
        let (complete, moved) = rings[me].advance(&plans[me], &words, &mut movers[me]);
        idle = if moved || complete { 0 } else { idle + 1 };
        assert!(idle < 10_000, "seed {seed}: all processes wait");
        if complete {
            check(me, &movers[me]);
            ended[me] += 1;
        }
    }
}

#[test]
fn contents_arrive_whatever_the_order_of_processes() {
    for seed in 0..if cfg!(miri) { 20 } else { 600 } {
        let mut random = fastrand::Rng::with_seed(seed);
        let program = Program::random(&mut random);
        let ranks = program.ranks;
        let slot = if program.is_same { 1 } else { ranks } * program.piece;
        let plans: Vec<_> = (0..ranks).map(|me| program.plan(me)).collect();
        let mut processes: Vec<_> = (0..ranks)
            .map(|me| Process { program: &program, me, start: 0, got: Vec::new() })
            .collect();
        let begin = |process: &mut Process, start| {
            (process.start, process.got) = (start, vec![Vec::new(); ranks]);
        };
        let check = |me: usize, process: &Process| {
            for from in 0..ranks {
                let expected: Vec<u8> =
                    (0..program.sent[from][me]).map(|at| process.content(from, me, at)).collect();
                assert_eq!(process.got[from], expected, "seed {seed}, {from} to {me}");
            }
        };
        run(seed, &mut random, (&plans, slot), &mut processes, 30, (begin, check));
    }
}

/// A sum of all contributions, divided among the processes. Some get it, or all.
struct Sum {
    ranks: u32,
    pieces: Pieces,
    gets: Vec<bool>,
}

impl Sum {
    fn random(random: &mut fastrand::Rng) -> Self {
        let ranks = random.u32(2..6);
        let piece = random.usize(1..=2000);
        let all = random.bool();
        let gets = (0..ranks).map(|_| all || random.bool()).collect();
        Sum { ranks, pieces: Pieces { total: random.usize(1..=12 * piece), piece }, gets }
    }

    fn content(&self, first: u32, second: Option<u32>) -> Content {
        Content::divided(self.pieces, self.ranks, Some(first), second)
    }

    fn plan(&self, me: u32) -> Plan {
        let number = self.pieces.steps();
        let i_get_it = self.gets[me as usize];
        let second = |from| (i_get_it && from != me).then_some(from);
        let is_wanted = (0..self.ranks).any(|rank| rank != me && self.gets[rank as usize]);
        let has_parts = |step| self.content(self.ranks - 1, None).of(step).is_some();
        Plan {
            steps: 2 * number,
            publishes: self.content(0, is_wanted.then_some(me)),
            takes: (0..self.ranks).map(|from| (from, self.content(me, second(from)))).collect(),
            readers: (0..self.ranks).filter(|rank| *rank != me).collect(),
            synchronizes: self.gets.iter().all(|gets| *gets) && (0..number).all(has_parts),
        }
    }
}

struct Reducer<'a> {
    sum: &'a Sum,
    me: u32,
    start: usize,
    result: Vec<u8>,
}

impl Reducer<'_> {
    fn contribution(&self, at: usize) -> u8 {
        byte(self.start, self.me as usize, 0, at)
    }
}

impl Mover for Reducer<'_> {
    fn publish(&mut self, step: u32, slot: &[AtomicU64]) {
        let own = self.sum.content(self.me, Some(self.me));
        let (piece, is_second) = own.piece(step).expect("there is something");
        let range = if is_second { own.of(step).expect("likewise") } else { piece.clone() };
        for at in range {
            let value = if is_second { self.result[at] } else { self.contribution(at) };
            write(slot, at - piece.start, value);
        }
    }

    fn take(&mut self, _: u32, range: Range<usize>, turn: Turn, slot: Option<&[AtomicU64]>) {
        let (piece, is_second) = self.sum.content(0, None).piece(turn.step).expect("likewise");
        for at in range {
            let value =
                slot.map_or_else(|| self.contribution(at), |slot| read(slot, at - piece.start));
            let adds = !is_second && !turn.is_first;
            self.result[at] = if adds { self.result[at].wrapping_add(value) } else { value };
        }
    }
}

#[test]
fn divided_sums_are_complete_where_they_are_wanted() {
    for seed in 0..if cfg!(miri) { 20 } else { 600 } {
        let mut random = fastrand::Rng::with_seed(seed);
        let sum = Sum::random(&mut random);
        let plans: Vec<_> = (0..sum.ranks).map(|me| sum.plan(me)).collect();
        let mut processes: Vec<_> = (0..sum.ranks)
            .map(|me| Reducer { sum: &sum, me, start: 0, result: Vec::new() })
            .collect();
        let begin = |process: &mut Reducer, start| {
            (process.start, process.result) = (start, vec![0xee; sum.pieces.total]);
        };
        let check = |me: usize, process: &Reducer| {
            let wanted = (0..sum.pieces.total).map(|at| {
                let from_all = (0..plans.len()).map(|from| byte(process.start, from, 0, at));
                from_all.fold(0, u8::wrapping_add)
            });
            let is_right = !sum.gets[me] || process.result == wanted.collect::<Vec<_>>();
            assert!(is_right, "seed {seed}: process {me}");
        };
        let slot = sum.pieces.piece;
        run(seed, &mut random, (&plans, slot), &mut processes, 10, (begin, check));
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
