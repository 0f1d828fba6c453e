//! Random programs over ports. `MPIX_TEST_PROGRAMS=n` runs `n` of each kind, and
//! `MPIX_TEST_PROGRAM_SEED=n` one. A failure prints the command that repeats it.

use std::collections::VecDeque;

use mpix_rma::engine::*;
use mpix_rma::transport::datatype::element::{native, reduction};

use crate::conformance::{World, op, until};
use crate::world::InFlight;

/// Programs of each kind, unless a variable says otherwise.
const PROGRAMS: u64 = 16;

/// Says how to repeat a program, if it fails.
struct Replay(u64);

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let test = std::thread::current().name().unwrap_or("").to_owned();
            let device = std::env::var("MPIX_TEST_DEVICE_SEED").unwrap_or_else(|_| "0".into());
            eprintln!(
                "to replay: MPIX_TEST_PROGRAM_SEED={} MPIX_TEST_DEVICE_SEED={device} cargo test \
                 --test ports {test}",
                self.0
            );
        }
    }
}

/// Runs `program` with each seed.
pub fn run(program: impl Fn(u64)) {
    let number = |name| {
        let text = std::env::var(name).ok()?;
        Some(text.parse::<u64>().unwrap_or_else(|_| panic!("{name} is a number")))
    };
    let seeds = match number("MPIX_TEST_PROGRAM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("MPIX_TEST_PROGRAMS").unwrap_or(PROGRAMS),
    };
    for seed in seeds {
        let _replay = Replay(seed);
        program(seed);
    }
}

/// Places of the target's memory that one round of an exchange uses, and bytes of each.
const SLOTS: usize = 6;
const SLOT: usize = 40_000;
const ROUNDS: u64 = 8;
/// Most processes.
const RANKS: Rank = 4;
/// Place of the word at process 0 to which all add.
const SHARED: u64 = (RANKS as usize * SLOTS * SLOT) as u64;

/// How an origin reports its operations to the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Report {
    Done,
    /// A notification without data.
    Counter,
    Tag,
    /// The notification of the last operation.
    CounterOfLast,
    TagOfLast,
}

/// Operations of one origin on its part of a target's memory, round after round: the origin posts
/// some and reports them, and the target then overwrites the memory and acknowledges that.
#[derive(Debug)]
struct Exchange {
    origin: Rank,
    target: Rank,
    round: u64,
    report: Report,
    to_post: VecDeque<Op>,
    reported: bool,
    /// Operations of the round, as numbered by the origin's `InFlight`.
    posted: Vec<usize>,
    /// What the target finds in each slot when it sees the report.
    outcome: Vec<Vec<u8>>,
    /// Result buffers, and what the origin finds there in the end.
    results: Vec<(Addr, Vec<u8>)>,
    /// Reports so far by [`Word::Done`] and by the counter.
    dones: u64,
    counts: u64,
    /// The last tag that has arrived.
    tag: Option<u32>,
    /// The target has overwritten its memory after this many rounds, and has said so.
    overwritten: u64,
    acknowledged: u64,
}

/// The byte with which a target fills a slot before a round.
fn fill(round: u64, slot: usize) -> u8 {
    (round as u8).wrapping_mul(7).wrapping_add(3 * slot as u8 + 1)
}

impl Exchange {
    fn new(origin: Rank, target: Rank) -> Self {
        Exchange {
            origin,
            target,
            round: 0,
            report: Report::Done,
            to_post: VecDeque::new(),
            reported: true,
            posted: Vec::new(),
            outcome: Vec::new(),
            results: Vec::new(),
            dones: 0,
            counts: 0,
            tag: None,
            overwritten: 0,
            acknowledged: 0,
        }
    }

    fn place(&self, slot: usize) -> usize {
        (self.origin as usize * SLOTS + slot) * SLOT
    }

    /// The target fills all slots for the next round.
    fn overwrite<W: World>(&mut self, world: &mut W) {
        for slot in 0..SLOTS {
            let content = vec![fill(self.overwritten + 1, slot); SLOT];
            world.set_memory(self.target, self.place(slot), &content);
        }
        self.overwritten += 1;
    }

    /// Draws the operations of the next round. `shared` counts additions to a word that all
    /// processes use.
    fn draw<W: World>(&mut self, world: &mut W, rng: &mut fastrand::Rng, shared: &mut u64) {
        self.round += 1;
        (self.reported, self.tag) = (false, None);
        self.posted.clear();
        self.results.clear();
        self.outcome = (0..SLOTS).map(|slot| vec![fill(self.round, slot); SLOT]).collect();
        // Only some kinds in one round, so that each kind comes right before each report.
        let kinds: &[&[u8]] = &[b"g", b"gp", b"a", b"ap", b"f", b"gfx", b"m", b"gpafmxls"];
        let kinds = rng.choice(kinds).unwrap();
        for slot in 0..rng.usize(0..=SLOTS) {
            let kind = *rng.choice(kinds.iter()).unwrap();
            let next = self.draw_one(world, rng, slot, kind);
            *shared += u64::from(kind == b's');
            self.to_post.push_back(next);
        }
        self.report = *rng
            .choice(&[
                Report::Done,
                Report::Counter,
                Report::Tag,
                Report::CounterOfLast,
                Report::TagOfLast,
            ])
            .unwrap();
        let notification = match self.report {
            Report::Counter | Report::CounterOfLast => Notification::counter(self.origin),
            _ => Notification::tag(self.round as u32),
        };
        self.dones += u64::from(self.report == Report::Done);
        self.counts += u64::from(matches!(self.report, Report::Counter | Report::CounterOfLast));
        match (self.report, self.to_post.back_mut()) {
            (Report::Done, _) => {}
            (Report::CounterOfLast | Report::TagOfLast, Some(last))
                if last.target == self.target =>
            {
                last.notification = Some(notification);
                self.reported = true;
            }
            _ => self.to_post.push_back(Op::notify(self.target, notification)),
        }
        self.reported = self.report != Report::Done;
    }

    fn draw_one<W: World>(
        &mut self,
        world: &mut W,
        rng: &mut fastrand::Rng,
        slot: usize,
        kind: u8,
    ) -> Op {
        let (old, target) = (fill(self.round, slot), self.target);
        let word = u64::from_ne_bytes([old; 8]);
        let len = *rng.choice(&[8, 64, 700, 5000, 16_384, 20_000, SLOT]).unwrap();
        let at = self.place(slot);
        let single = |kind, reduction| Op {
            element: native::U64,
            extent: 8,
            reduction,
            ..op(kind, target, at, 8)
        };
        let operand = rng.u64(..);
        let (mut there, mut result) = (None, None);
        let drawn = match kind {
            b'p' => {
                there = Some(vec![old ^ 0x5a; len]);
                op(OpKind::Put, target, at, len)
            }
            b'g' => {
                result = Some(vec![old; len]);
                op(OpKind::Get, target, at, len)
            }
            // A sum of many elements, which processors compute.
            b'l' => {
                there = Some(vec![old.wrapping_add(old ^ 0x5a); len]);
                op(OpKind::Accumulate, target, at, len)
            }
            // Single elements, which devices may compute: sums, and operations that devices do not
            // have.
            b'a' => {
                there = Some(word.wrapping_add(operand).to_ne_bytes().to_vec());
                single(OpKind::Accumulate, reduction::SUM)
            }
            b'f' => {
                there = Some(word.wrapping_add(operand).to_ne_bytes().to_vec());
                result = Some(vec![old; 8]);
                single(OpKind::GetAccumulate, reduction::SUM)
            }
            b'm' => {
                there = Some(word.max(operand).to_ne_bytes().to_vec());
                single(OpKind::Accumulate, reduction::MAX)
            }
            b'x' => {
                let compare = if rng.bool() { word } else { operand };
                there = (compare == word).then(|| operand.to_ne_bytes().to_vec());
                result = Some(vec![old; 8]);
                Op {
                    compare: world.buffer(self.origin, &compare.to_ne_bytes()),
                    ..single(OpKind::CompareAndSwap, reduction::SUM)
                }
            }
            _ => {
                let add = single(OpKind::Accumulate, reduction::SUM);
                Op {
                    origin: world.buffer(self.origin, &1u64.to_ne_bytes()),
                    target: 0,
                    disp: SHARED,
                    ..add
                }
            }
        };
        let drawn = match kind {
            b's' | b'g' => drawn,
            b'p' | b'l' => {
                Op { origin: world.buffer(self.origin, &vec![old ^ 0x5a; len]), ..drawn }
            }
            _ => Op { origin: world.buffer(self.origin, &operand.to_ne_bytes()), ..drawn },
        };
        if let Some(bytes) = there {
            self.outcome[slot][..bytes.len()].copy_from_slice(&bytes);
        }
        match result {
            None => drawn,
            Some(bytes) => {
                let at = world.buffer(self.origin, &vec![0; bytes.len()]);
                self.results.push((at, bytes));
                Op { result: at, ..drawn }
            }
        }
    }
}

impl Exchange {
    /// The origin's part: posts, reports, and checks the results when the target has answered.
    fn originate<W: World>(&mut self, world: &mut W, flight: &mut InFlight) {
        let (origin, target) = (self.origin, self.target);
        flight.collect(&mut world.port(origin));
        while let Some(next) = self.to_post.front() {
            if !flight.try_post(&mut world.port(origin), next) {
                return;
            }
            self.posted.push(flight.seen.len() - 1);
            self.to_post.pop_front();
        }
        let complete = self.posted.iter().all(|ticket| flight.seen[*ticket].1);
        if !self.reported {
            let follows = complete || world.port(origin).signals_follow(target);
            self.reported =
                follows && world.port(origin).signal(target, Word::Done, self.dones).is_ok();
        }
    }

    /// Whether the round is over. Then all results are there.
    fn is_over<W: World>(&mut self, world: &mut W, flight: &InFlight) -> bool {
        if !self.to_post.is_empty()
            || world.port(self.origin).observe(self.target, Word::Grant) < self.round
            || !self.posted.iter().all(|ticket| flight.seen[*ticket].1)
        {
            return false;
        }
        for (at, expected) in &self.results {
            let found = world.read(self.origin, *at, expected.len());
            assert!(found == *expected, "a result is not what was there before {self}");
        }
        true
    }

    /// The target's part: when it sees the report, everything reported is there.
    fn serve<W: World>(&mut self, world: &mut W) {
        let (origin, target) = (self.origin, self.target);
        if self.overwritten == self.round {
            let mut port = world.port(target);
            let seen = match self.report {
                Report::Done => port.observe(origin, Word::Done) == self.dones,
                Report::Counter | Report::CounterOfLast => port.counter(origin) == self.counts,
                Report::Tag | Report::TagOfLast => self.tag == Some(self.round as u32),
            };
            if !seen {
                return;
            }
            drop(port);
            let there = world.memory(target);
            for (slot, expected) in self.outcome.iter().enumerate() {
                let at = self.place(slot);
                assert!(there[at..at + SLOT] == *expected, "slot {slot} is wrong after {self}");
            }
            self.overwrite(world);
        }
        if self.acknowledged < self.overwritten - 1 {
            let told = world.port(target).signal(origin, Word::Grant, self.overwritten - 1);
            self.acknowledged += u64::from(told.is_ok());
        }
    }
}

impl std::fmt::Display for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Exchange { origin, target, round, report, .. } = self;
        write!(f, "round {round} from {origin} to {target}, reported by {report:?}")
    }
}

/// Origins post random operations and report them at once, by each kind of signal and notification.
/// A target that sees a report finds all operations before it done: puts and accumulates are
/// visible, and gets have read what was there before the target overwrites it.
pub fn reports_come_behind_what_they_report<W: World>() {
    run(|seed| {
        let mut rng = fastrand::Rng::with_seed(seed);
        let ranks = rng.u32(2..=RANKS);
        let mut world = W::new(ranks, SHARED as usize + 8, seed);
        world.make_counters(ranks);
        let pairs = (0..ranks).flat_map(|from| (0..ranks).map(move |to| (from, to)));
        let mut exchanges: Vec<Exchange> = pairs
            .filter(|(from, to)| from != to)
            .map(|(origin, target)| Exchange::new(origin, target))
            .collect();
        let mut flights: Vec<InFlight> = (0..ranks).map(|_| InFlight::default()).collect();
        let mut shared = 0;
        for exchange in &mut exchanges {
            exchange.overwrite(&mut world);
            exchange.draw(&mut world, &mut rng, &mut shared);
        }
        until(&mut world, "the rounds", |world| {
            for _ in 0..exchanges.len() {
                let one = rng.usize(..exchanges.len());
                for to in 0..ranks {
                    while let Some(Arrival { source, tag }) = world.port(to).next_arrival() {
                        let of = exchanges
                            .iter_mut()
                            .find(|one| (one.origin, one.target) == (source, to));
                        of.expect("a pair").tag = Some(tag);
                    }
                }
                let exchange = &mut exchanges[one];
                let flight = &mut flights[exchange.origin as usize];
                exchange.originate(world, flight);
                exchange.serve(world);
                if exchange.round < ROUNDS && exchange.is_over(world, flight) {
                    exchange.draw(world, &mut rng, &mut shared);
                }
            }
            exchanges
                .iter_mut()
                .all(|one| one.round == ROUNDS && one.is_over(world, &flights[one.origin as usize]))
        });
        let word = &world.memory(0)[SHARED as usize..][..8];
        assert_eq!(u64::from_ne_bytes(word.try_into().unwrap()), shared, "additions by all");
        world.end();
    });
}
