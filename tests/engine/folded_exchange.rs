//! Folded exchanges: processes that make an exposure and an access together match others that make
//! the calls, at whatever moment a peer answers [PE-2, EP-3, MA-1].

use std::sync::atomic::{AtomicU64, Ordering};

use mpix_rma::engine::*;

const RANKS: Rank = 3;
const ROUNDS: u64 = 3000;

/// What the processes, which are threads here, share: signals by reader, writer and word, and one
/// cell for each target and origin.
struct Memory {
    words: Vec<AtomicU64>,
    cells: Vec<AtomicU64>,
}

impl Memory {
    fn new() -> Self {
        let zeros = |number| (0..number).map(|_| AtomicU64::new(0)).collect();
        Memory { words: zeros(3 * RANKS * RANKS), cells: zeros(RANKS * RANKS) }
    }

    fn word(&self, reader: Rank, writer: Rank, word: Word) -> &AtomicU64 {
        &self.words[((reader * RANKS + writer) * 3) as usize + word as usize]
    }

    fn cell(&self, target: Rank, origin: Rank) -> &AtomicU64 {
        &self.cells[(target * RANKS + origin) as usize]
    }
}

/// Puts and signals are stores.
struct Stores<'a> {
    me: Rank,
    memory: &'a Memory,
}

impl LockMemory for Stores<'_> {
    fn atomic(&mut self, _: Rank, _: LockWord, _: Atomic, _: LockTicket) -> Answer {
        unreachable!("no locks")
    }
    fn look(&mut self, _: LockWord) -> u64 {
        unreachable!("no locks")
    }
}

impl Port for Stores<'_> {
    fn post(&mut self, op: &Op, _: Ticket) -> Posted {
        self.memory.cell(op.target, self.me).store(op.origin.0 as u64, Ordering::Relaxed);
        Posted::Complete
    }
    fn signal(&mut self, peer: Rank, word: Word, value: u64) -> Result<(), NoResource> {
        self.memory.word(peer, self.me, word).store(value, Ordering::Release);
        Ok(())
    }
    fn observe(&mut self, peer: Rank, word: Word) -> u64 {
        self.memory.word(self.me, peer, word).load(Ordering::Acquire)
    }
    fn poll(&mut self) -> bool {
        false
    }
    fn next_finished(&mut self) -> Option<(Ticket, Stage)> {
        None
    }
}

/// The groups of a round, which all processes draw alike.
fn groups(rng: &mut fastrand::Rng) -> [Vec<Rank>; 2] {
    [(); 2].map(|()| {
        let mut group: Vec<Rank> = (0..RANKS).filter(|_| rng.u8(..4) > 0).collect();
        rng.shuffle(&mut group);
        group
    })
}

/// What has happened in all processes: exchanges that were folded to their end, and others.
#[derive(Default)]
struct Seen {
    folded: AtomicU64,
    unfolded: AtomicU64,
}

fn run(me: Rank, memory: &Memory, seed: u64, seen: &Seen) {
    let mut window = Window::new(me, RANKS, ReorderFlags::default());
    let mut port = Stores { me, memory };
    let (mut common, mut own) =
        (fastrand::Rng::with_seed(seed), fastrand::Rng::with_seed(seed ^ u64::from(me + 1)));
    for round in 1..=ROUNDS {
        let [origins, targets] = groups(&mut common);
        let exposes = targets.contains(&me).then(|| origins.clone().into_boxed_slice());
        let accesses = origins.contains(&me).then(|| targets.clone().into_boxed_slice());
        let exchange = Exchange { origins: exposes, targets: accesses };
        let mut pending = Vec::new();
        let polls = [0, 3, 10_000][own.usize(..3)];
        let folds = own.u8(..4) > 0 && window.may_fold_exchange();
        make(&mut window, &mut port, &exchange, round, folds.then_some(polls), &mut pending);
        let folded = folds && pending.is_empty();
        let count = if folded { &seen.folded } else { &seen.unfolded };
        count.fetch_add(1, Ordering::Relaxed);
        while pending.iter().any(|id| window.is_pending(*id)) {
            window.progress(&mut port);
            std::thread::yield_now();
        }
        while window.next_completed().is_some() {}
        for origin in exchange.origins.iter().flatten() {
            let found = memory.cell(me, *origin).load(Ordering::Relaxed);
            assert_eq!(found, round, "rank {me}: seed {seed}, the put of {origin}");
        }
        assert!(!window.has_open_epoch() && window.is_quiet(), "rank {me}: round {round}");
    }
}

/// Makes the calls of a round, folded with so many polls if `polls` is given.
fn make(
    window: &mut Window,
    port: &mut Stores<'_>,
    exchange: &Exchange,
    round: u64,
    polls: Option<u32>,
    pending: &mut Vec<RequestId>,
) {
    let (me, memory) = (port.me, port.memory);
    if let Some(mut left) = polls {
        let mut waits = || {
            left = left.saturating_sub(1);
            if left % 16 == 15 {
                std::thread::yield_now();
            }
            left > 0
        };
        if window.open_exchange(port, exchange, &mut waits) {
            for target in exchange.targets.iter().flatten() {
                memory.cell(*target, me).store(round, Ordering::Relaxed);
            }
            if let Outcome::Pending(id) = window.close_exchange(port, exchange, waits) {
                pending.push(id);
            }
            return;
        }
    } else {
        if let Some(origins) = &exchange.origins {
            window.post(port, origins, Assert::default()).unwrap();
        }
        if let Some(targets) = &exchange.targets {
            window.start(port, targets, Assert::default()).unwrap();
        }
    }
    for target in exchange.targets.iter().flatten() {
        let put = Op {
            origin: Addr(round as usize),
            len: 8,
            ..Op::notify(*target, Notification::counter(0))
        };
        window.issue(port, &Op { notification: None, ..put }).unwrap();
    }
    let mut add = |outcome| {
        if let Outcome::Pending(id) = outcome {
            pending.push(id);
        }
    };
    if exchange.targets.is_some() {
        add(window.complete(port).unwrap());
    }
    if exchange.origins.is_some() {
        add(window.wait(port).unwrap());
    }
}

#[test]
fn pe2_folded_exchanges_match_calls() {
    let seen = Seen::default();
    for seed in 0..4 {
        let memory = Memory::new();
        std::thread::scope(|scope| {
            for me in 0..RANKS {
                let (memory, seen) = (&memory, &seen);
                scope.spawn(move || run(me, memory, seed, seen));
            }
        });
    }
    let [folded, unfolded] =
        [seen.folded, seen.unfolded].map(|count| count.load(Ordering::Relaxed));
    assert!(folded > 100 && unfolded > 100, "{folded} folded, {unfolded} not");
}
