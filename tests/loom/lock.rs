//! Loom: the queue lock [LK-1 to LK-4]. All interleavings, up to a bound on preemptions, of two or
//! three processes that share only lock words, with the memory orderings of shared memory.

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Arc, Notify};
use loom::thread;
use mpix_rma::engine::lock::{self, LockRequest, Turn, look};
use mpix_rma::engine::replay::Replay;
use mpix_rma::engine::*;

/// The process whose window is locked, and the home of the window's own words.
const TARGET: Rank = 0;

/// All lock words of one target, and those of the window.
struct Words {
    holders: AtomicU64,
    intent: AtomicU64,
    licensed: AtomicU64,
    tail: AtomicU64,
    readers: AtomicU64,
    next_writer: AtomicU64,
    next: Vec<[AtomicU64; 2]>,
    grant: Vec<AtomicU64>,
    licence: Vec<AtomicU64>,
    next_licensed: Vec<AtomicU64>,
    /// A waiting process sleeps until a word that it may wait for is written. A lost hand-over is
    /// then a deadlock, which loom reports, and several may wait at once. `None`: it polls, and
    /// only the lock words order memory; loom terminates that where one process at a time waits.
    bell: Option<Vec<Notify>>,
}

impl Words {
    fn new(ranks: u32, bells: bool) -> Arc<Self> {
        let word = || AtomicU64::new(0);
        Arc::new(Words {
            holders: word(),
            intent: word(),
            licensed: word(),
            tail: word(),
            readers: word(),
            next_writer: word(),
            next: (0..ranks).map(|_| [word(), word()]).collect(),
            grant: (0..ranks).map(|_| word()).collect(),
            licence: (0..ranks).map(|_| word()).collect(),
            next_licensed: (0..ranks).map(|_| word()).collect(),
            bell: bells.then(|| (0..ranks).map(|_| Notify::new()).collect()),
        })
    }

    fn of(&self, home: Rank, word: LockWord) -> &AtomicU64 {
        match word {
            LockWord::Holders => &self.holders,
            LockWord::Intent => &self.intent,
            LockWord::Licensed => &self.licensed,
            LockWord::Licence => &self.licence[home as usize],
            LockWord::NextLicensed => &self.next_licensed[home as usize],
            LockWord::Tail => &self.tail,
            LockWord::Readers => &self.readers,
            LockWord::NextWriter => &self.next_writer,
            LockWord::Next { parity, .. } => &self.next[home as usize][parity as usize],
            LockWord::Grant { .. } => &self.grant[home as usize],
        }
    }

    /// Nothing is held once everybody has left. (Readers enter in one word and leave in another, so
    /// the sum matters.)
    fn assert_free(&self) {
        let get = |word: &AtomicU64| word.load(Ordering::SeqCst);
        assert_eq!(get(&self.tail) as u32, 0, "nobody queues");
        assert_eq!(
            (get(&self.tail) >> 33 << 33).wrapping_add(get(&self.readers)),
            0,
            "nobody reads"
        );
        let licences = self.licence.iter().filter(|word| get(word) != 0);
        licences
            .clone()
            .for_each(|word| assert_eq!(get(word), 1 << 32, "a licence that nobody uses"));
        assert_eq!(get(&self.holders), (licences.count() as u64) << 32);
    }
}

/// One process's access to the words. Counts the accesses.
struct Memory {
    words: Arc<Words>,
    me: Rank,
    accesses: usize,
}

impl Memory {
    fn new(words: &Arc<Words>, me: Rank) -> Self {
        Memory { words: words.clone(), me, accesses: 0 }
    }
    fn rest(&self) {
        match &self.words.bell {
            Some(bell) => bell[self.me as usize].wait(),
            None => thread::yield_now(),
        }
    }
    fn ring(&self, home: Rank, word: LockWord) {
        for (rank, bell) in self
            .words
            .bell
            .iter()
            .flatten()
            .enumerate()
            .filter(|(rank, _)| *rank as Rank != self.me)
        {
            let concerns = match word {
                LockWord::Grant { .. } => rank as Rank == home,
                LockWord::Holders | LockWord::Intent | LockWord::NextLicensed => true,
                _ => false,
            };
            if concerns {
                bell.notify();
            }
        }
    }
    fn word(&mut self, home: Rank, word: LockWord) -> &AtomicU64 {
        self.accesses += 1;
        self.words.of(home, word)
    }
}

/// The memory orderings of `transport::shm`.
impl LockMemory for Memory {
    fn atomic(&mut self, home: Rank, word: LockWord, access: Atomic, _: LockTicket) -> Answer {
        let cell = self.word(home, word);
        let (old, rings) = match access {
            Atomic::Load => (cell.load(Ordering::Acquire), false),
            Atomic::Store(value) => {
                cell.store(value, Ordering::Release);
                (0, true)
            }
            Atomic::Swap(value) => (cell.swap(value, Ordering::SeqCst), false),
            Atomic::Add(delta) => (cell.fetch_add(delta, Ordering::SeqCst), true),
            Atomic::CompareSwap { expected, new } => {
                match cell.compare_exchange(expected, new, Ordering::SeqCst, Ordering::SeqCst) {
                    Ok(old) => (old, true),
                    Err(old) => (old, false),
                }
            }
        };
        if rings {
            self.ring(home, word);
        }
        Answer::Now(old)
    }
    fn look(&mut self, word: LockWord) -> u64 {
        self.word(self.me, word).load(Ordering::Acquire)
    }
}

/// What the lock protects. Loom reports a write concurrent with any other access, and a read that
/// misses an earlier write.
struct Protected(UnsafeCell<u64>);

// SAFETY: the lock under test excludes writers. If it does not, loom fails the test.
unsafe impl Sync for Protected {}

impl Protected {
    fn new() -> Arc<Self> {
        Arc::new(Protected(UnsafeCell::new(0)))
    }
    fn increment(&self) {
        // SAFETY: under the exclusive lock, which loom checks.
        self.0.with_mut(|at| unsafe { *at += 1 });
    }
    fn read(&self) -> u64 {
        // SAFETY: under the lock, which loom checks.
        self.0.with(|at| unsafe { *at })
    }
}

fn request(mode: LockMode, sequence: u32) -> LockRequest {
    LockRequest::new(TARGET, mode, sequence)
}

fn enqueue(mem: &mut Memory, request: &mut LockRequest) -> Turn {
    let me = mem.me;
    let enqueued = lock::enqueue(&mut Replay::new(mem, me, LockTicket(0)), *request)
        .expect("answers come at once");
    *request = request.placed(enqueued.queued);
    let_readers_in(mem, enqueued.next_reader);
    enqueued.turn
}

fn release(mem: &mut Memory, request: LockRequest) {
    let me = mem.me;
    let released = lock::release(&mut Replay::new(mem, me, LockTicket(0)), request, true)
        .expect("answers come at once");
    let_readers_in(mem, released.next_reader);
}

fn let_readers_in(mem: &mut Memory, mut reader: Option<lock::Node>) {
    let me = mem.me;
    while let Some(next) = reader {
        reader = lock::grant_reader(&mut Replay::new(mem, me, LockTicket(0)), TARGET, next)
            .expect("answers come at once");
    }
}

/// Waits for the lock.
fn wait_for_turn(mem: &mut Memory, request: LockRequest, mut turn: Turn) -> bool {
    loop {
        if let Turn::Granted { inherited } = turn {
            return inherited;
        }
        mem.rest();
        turn = look(mem, request);
    }
}

/// One epoch: lock, access, release. Release never waits: it takes a bounded number of accesses,
/// whatever the others do [LK-3].
fn epoch(mem: &mut Memory, data: &Protected, mode: LockMode, sequence: u32) {
    let mut request = request(mode, sequence);
    let turn = enqueue(mem, &mut request);
    let inherited = wait_for_turn(mem, request, turn);
    assert!(!inherited || mode == LockMode::Exclusive);
    match mode {
        LockMode::Exclusive => data.increment(),
        LockMode::Shared => _ = data.read(),
    }
    let before = mem.accesses;
    release(mem, request);
    assert!(mem.accesses - before <= 16, "release is bounded");
}

fn model(preemptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    if builder.preemption_bound.is_none() {
        builder.preemption_bound = Some(preemptions);
    }
    builder.check(f);
}

/// Runs each list of epochs as one process; the last one on this thread.
fn contend(preemptions: usize, processes: &'static [&'static [LockMode]]) {
    contend_after(0, preemptions, processes);
}

/// As [`contend`], after `readers` have entered and left.
fn contend_after(readers: u64, preemptions: usize, processes: &'static [&'static [LockMode]]) {
    contend_waiting(readers, preemptions, processes, true);
    if processes.len() == 2 {
        contend_waiting(readers, preemptions, processes, false);
    }
}

/// One reader, in `Tail` and `Readers`.
const ONE_READER: u64 = 1 << 33;

fn contend_waiting(
    readers: u64,
    preemptions: usize,
    processes: &'static [&'static [LockMode]],
    bells: bool,
) {
    model(preemptions, move || {
        let ranks = processes.len() as u32;
        let (words, data) = (Words::new(ranks, bells), Protected::new());
        words.tail.store(readers * ONE_READER, Ordering::SeqCst);
        words.readers.store((readers * ONE_READER).wrapping_neg(), Ordering::SeqCst);
        let run = |me: usize| {
            let (mut mem, data) = (Memory::new(&words, me as Rank), data.clone());
            move || {
                for (i, mode) in processes[me].iter().enumerate() {
                    epoch(&mut mem, &data, *mode, i as u32 + 1);
                }
            }
        };
        let threads: Vec<_> = (0..processes.len() - 1).map(|me| thread::spawn(run(me))).collect();
        run(processes.len() - 1)();
        threads.into_iter().for_each(|t| t.join().unwrap());
        words.assert_free();
        let writes = processes
            .iter()
            .flat_map(|modes| modes.iter())
            .filter(|m| **m == LockMode::Exclusive)
            .count();
        assert_eq!(data.read(), writes as u64);
    });
}

use LockMode::{Exclusive as X, Shared as S};

#[test]
fn two_writers() {
    contend(4, &[&[X], &[X]]);
}

#[test]
fn a_writer_and_a_reader() {
    contend(4, &[&[X], &[S]]);
}

#[test]
fn two_readers() {
    contend(4, &[&[S], &[S]]);
}

#[test]
fn three_writers() {
    contend(2, &[&[X], &[X], &[X]]);
}

#[test]
fn a_writer_and_two_readers() {
    contend(2, &[&[X], &[S], &[S]]);
}

#[test]
fn two_writers_and_a_reader() {
    contend(2, &[&[X], &[X], &[S]]);
}

#[test]
fn three_readers() {
    contend(2, &[&[S], &[S], &[S]]);
}

/// An origin alternates between two nodes: its third request reuses the node of the first.
#[test]
fn nodes_are_reused() {
    contend(2, &[&[X, X, X], &[X]]);
    contend(2, &[&[X, X, X], &[S]]);
    contend(2, &[&[S, X, S], &[X]]);
    contend(2, &[&[S, S, S], &[X]]);
}

#[test]
fn both_processes_lock_repeatedly() {
    contend(2, &[&[X, X], &[X, X]]);
    contend(2, &[&[X, S], &[S, X]]);
    contend(2, &[&[S, S], &[X, X]]);
}

/// Readers that have left without a queue stay in `Tail`, and are subtracted from `Readers`.
#[test]
fn readers_have_come_and_gone() {
    contend_after(1, 3, &[&[S], &[X]]);
    contend_after(3, 2, &[&[S], &[X], &[S]]);
}

/// A count of readers in `Tail` never becomes 0 by overflow. Half of the range is a sign to queue,
/// so that nobody sees the end of the range unless as many processes enter at once.
#[test]
fn the_count_of_readers_is_moved_before_it_overflows() {
    const HALF: u64 = 1 << 30;
    contend_after(HALF - 1, 3, &[&[S, S], &[X]]);
    contend_after(HALF, 3, &[&[S], &[X]]);
    contend_after(HALF, 2, &[&[S], &[S], &[X]]);
    model(1, || {
        let words = Words::new(2, false);
        words.tail.store(HALF * ONE_READER, Ordering::SeqCst);
        words.readers.store((HALF * ONE_READER).wrapping_neg(), Ordering::SeqCst);
        let mut mem = Memory::new(&words, 1);
        let mut reader = request(S, 1);
        assert_eq!(enqueue(&mut mem, &mut reader), Turn::Granted { inherited: false });
        assert_eq!(words.tail.load(Ordering::SeqCst) as u32, 2 << 1, "the reader's node");
        assert_eq!(words.readers.load(Ordering::SeqCst), ONE_READER, "one reader is active");
        release(&mut mem, reader);
        words.assert_free();
        assert_eq!(words.tail.load(Ordering::SeqCst) >> 33, 0, "the count starts over");
    });
}

/// A reader that is about to queue has added itself to a word that holds a node. The node's owner
/// still removes it.
#[test]
fn a_node_is_removed_beside_readers_that_are_about_to_queue() {
    model(1, || {
        for (mode, left) in [(X, 0), (S, 1 << 32)] {
            let words = Words::new(2, false);
            let mut mem = Memory::new(&words, 0);
            // A reader owns a node if many have been counted.
            words.tail.store(ONE_READER << 30, Ordering::SeqCst);
            words.readers.store((ONE_READER << 30).wrapping_neg(), Ordering::SeqCst);
            let mut holder = request(mode, 1);
            assert_eq!(enqueue(&mut mem, &mut holder), Turn::Granted { inherited: false });
            words.tail.fetch_add(5 * ONE_READER, Ordering::SeqCst);
            release(&mut mem, holder);
            assert_eq!(words.tail.load(Ordering::SeqCst), left, "{mode:?}: no node is left");
            assert_eq!(words.readers.load(Ordering::SeqCst), 0, "{mode:?}: nobody reads");
        }
    });
}

/// Adjacent readers are admitted together [LK-1], although the first does nothing for the second
/// [LK-3]. Each leaves only when both have been inside. A hand-over that is lost, or that depends
/// on the first reader, never ends.
#[test]
fn adjacent_readers_are_admitted_together() {
    model(3, || {
        let (words, inside) = (Words::new(3, true), Arc::new([Notify::new(), Notify::new()]));
        // The writer holds the lock; the readers queue, in either order, while it releases.
        let mut writer = request(X, 1);
        let mut mem = Memory::new(&words, 0);
        assert_eq!(enqueue(&mut mem, &mut writer), Turn::Granted { inherited: false });
        let readers: Vec<_> = [1, 2]
            .into_iter()
            .map(|me| {
                let (mut mem, inside) = (Memory::new(&words, me), inside.clone());
                thread::spawn(move || {
                    let mut mine = request(S, 1);
                    let turn = enqueue(&mut mem, &mut mine);
                    wait_for_turn(&mut mem, mine, turn);
                    inside[me as usize - 1].notify();
                    inside[2 - me as usize].wait();
                    release(&mut mem, mine);
                })
            })
            .collect();
        release(&mut mem, writer);
        readers.into_iter().for_each(|t| t.join().unwrap());
        words.assert_free();
    });
}

/// First come, first served: a writer that queues behind a holder goes before a reader that arrives
/// later.
#[test]
fn requests_are_served_in_arrival_order() {
    model(3, || {
        let (words, data) = (Words::new(3, true), Protected::new());
        let mut mem = Memory::new(&words, 0);
        let mut holder = request(S, 1);
        assert_eq!(enqueue(&mut mem, &mut holder), Turn::Granted { inherited: false });
        let mut writer = request(X, 1);
        assert_eq!(enqueue(&mut Memory::new(&words, 1), &mut writer), Turn::Waiting);
        let mut reader = request(S, 1);
        assert_eq!(enqueue(&mut Memory::new(&words, 2), &mut reader), Turn::Waiting);
        let second = {
            let (mut mem, data) = (Memory::new(&words, 1), data.clone());
            thread::spawn(move || {
                wait_for_turn(&mut mem, writer, Turn::Waiting);
                data.increment();
                release(&mut mem, writer);
            })
        };
        let third = {
            let (mut mem, data) = (Memory::new(&words, 2), data.clone());
            thread::spawn(move || {
                wait_for_turn(&mut mem, reader, Turn::Waiting);
                assert_eq!(data.read(), 1, "the writer was first");
                release(&mut mem, reader);
            })
        };
        release(&mut mem, holder);
        second.join().unwrap();
        third.join().unwrap();
        words.assert_free();
    });
}

// ---- whole windows: lock_all beside exclusive locks, over the window's words ----

/// A port that has only lock words.
struct LockPort(Memory);

impl LockMemory for LockPort {
    fn atomic(&mut self, home: Rank, word: LockWord, access: Atomic, ticket: LockTicket) -> Answer {
        self.0.atomic(home, word, access, ticket)
    }
    fn look(&mut self, word: LockWord) -> u64 {
        self.0.look(word)
    }
}

impl Port for LockPort {
    fn post(&mut self, _: &Op, _: Ticket) -> Posted {
        Posted::Complete
    }
    fn signal(&mut self, _: Rank, word: Word, _: u64) -> Result<(), NoResource> {
        unreachable!("locks send no signals: {word:?}")
    }
    fn observe(&mut self, _: Rank, _: Word) -> u64 {
        0
    }
    fn poll(&mut self) -> bool {
        false
    }
    fn next_finished(&mut self) -> Option<(Ticket, Stage)> {
        None
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Exclusive,
    Shared,
    All,
}

/// One lock epoch of a window, in blocking form.
fn window_epoch(window: &mut Window, port: &mut LockPort, data: &Protected, kind: Kind) {
    let assert = Assert::default();
    match kind {
        Kind::Exclusive => window.lock(port, X, TARGET, assert).unwrap(),
        Kind::Shared => window.lock(port, S, TARGET, assert).unwrap(),
        Kind::All => window.lock_all(port, assert).unwrap(),
    }
    while !(window.holds_lock(TARGET) || window.holds_lock_all()) {
        port.0.rest();
        while window.progress(port) {}
    }
    match kind {
        Kind::Exclusive => data.increment(),
        Kind::Shared | Kind::All => _ = data.read(),
    }
    let outcome = match kind {
        Kind::All => window.unlock_all(port),
        _ => window.unlock(port, TARGET),
    };
    assert_eq!(outcome, Ok(Outcome::Complete), "release waits for nobody");
}

fn windows_contend(preemptions: usize, processes: &'static [&'static [Kind]]) {
    model(preemptions, move || {
        let ranks = processes.len() as u32;
        let (words, data) = (Words::new(ranks, true), Protected::new());
        let run = |me: usize| {
            let (memory, data) = (Memory::new(&words, me as Rank), data.clone());
            move || {
                let (mut window, mut port) =
                    (Window::new(me as Rank, ranks, ReorderFlags::default()), LockPort(memory));
                processes[me]
                    .iter()
                    .for_each(|kind| window_epoch(&mut window, &mut port, &data, *kind));
            }
        };
        let threads: Vec<_> = (0..processes.len() - 1).map(|me| thread::spawn(run(me))).collect();
        run(processes.len() - 1)();
        threads.into_iter().for_each(|t| t.join().unwrap());
        words.assert_free();
    });
}

#[test]
fn lock_all_and_exclusive_locks_exclude_each_other() {
    windows_contend(3, &[&[Kind::All], &[Kind::Exclusive]]);
    windows_contend(2, &[&[Kind::All, Kind::Exclusive], &[Kind::Exclusive, Kind::All]]);
}

/// A process that locks often keeps its licence, and a lock_all revokes it.
#[test]
fn lock_all_and_licensed_locks_exclude_each_other() {
    windows_contend(2, &[&[Kind::All], &[Kind::Exclusive, Kind::Exclusive, Kind::Exclusive]]);
    windows_contend(
        1,
        &[
            &[Kind::All, Kind::All],
            &[Kind::Exclusive, Kind::Exclusive, Kind::Exclusive, Kind::Exclusive],
        ],
    );
}

#[test]
fn lock_all_excludes_two_exclusive_locks() {
    windows_contend(2, &[&[Kind::All], &[Kind::Exclusive], &[Kind::Exclusive]]);
}

#[test]
fn lock_alls_and_shared_locks_exclude_an_exclusive_lock() {
    windows_contend(2, &[&[Kind::All], &[Kind::Exclusive], &[Kind::Shared]]);
    windows_contend(2, &[&[Kind::All], &[Kind::Exclusive], &[Kind::All]]);
}
