//! The cost of many pending epochs: port calls and time per epoch, and memory [MA-1].
//!
//! Two windows run over a port that answers at once and keeps no records. The number of port calls
//! is asserted exactly. Times are printed (`cargo test --release --test engine cost --
//! --nocapture`), and only their order of magnitude is asserted.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use mpix_rma::engine::*;
use mpix_rma::transport::datatype::element::{native, reduction};

use crate::alloc;

const NONE: Assert = Assert { nocheck: false, noprecede: false, nosucceed: false };
const FEW: u64 = 10;
/// One million; a tenth of that in unoptimized builds.
const MANY: u64 = if cfg!(debug_assertions) { 100_000 } else { 1_000_000 };

#[derive(Default)]
struct Bare {
    words: HashMap<(Rank, Rank, Word), u64>,
    lock_words: HashMap<(Rank, LockWord), u64>,
    calls: u64,
    /// Operations are answered by `Pending`, and finish when the test says so.
    pend: bool,
    pending: VecDeque<Ticket>,
    finished: VecDeque<(Ticket, Stage)>,
    /// Every other process has entered every fence.
    alone: bool,
}

struct BarePort<'a>(&'a mut Bare, Rank);

impl BarePort<'_> {
    fn word(&mut self, home: Rank, word: LockWord) -> &mut u64 {
        self.0.calls += 1;
        self.0.lock_words.entry((home, word)).or_insert(0)
    }
}

impl LockMemory for BarePort<'_> {
    const ANSWERS_AT_ONCE: bool = true;

    fn atomic(&mut self, home: Rank, word: LockWord, access: Atomic, _: LockTicket) -> Answer {
        let word = self.word(home, word);
        Answer::Now(std::mem::replace(word, access.applied_to(*word)))
    }
    fn look(&mut self, word: LockWord) -> u64 {
        *self.word(self.1, word)
    }
}

impl Port for BarePort<'_> {
    fn post(&mut self, _: &Op, ticket: Ticket) -> Posted {
        self.0.calls += 1;
        if !self.0.pend {
            return Posted::Complete;
        }
        self.0.pending.push_back(ticket);
        Posted::Pending
    }
    fn signal(&mut self, peer: Rank, word: Word, value: u64) -> Result<(), NoResource> {
        self.0.calls += 1;
        if !self.0.alone {
            self.0.words.insert((peer, self.1, word), value);
        }
        Ok(())
    }
    fn observe(&mut self, peer: Rank, word: Word) -> u64 {
        self.0.calls += 1;
        if self.0.alone && word == Word::Fence {
            return u64::MAX;
        }
        self.0.words.get(&(self.1, peer, word)).copied().unwrap_or(0)
    }
    fn poll(&mut self) -> bool {
        self.0.calls += 1;
        false
    }
    fn next_finished(&mut self) -> Option<(Ticket, Stage)> {
        self.0.finished.pop_front()
    }
}

/// Two processes.
struct Pair {
    bare: Bare,
    windows: [Window; 2],
    completed: u64,
}

impl Pair {
    fn new(flags: ReorderFlags) -> Self {
        Pair {
            bare: Bare::default(),
            windows: [0, 1].map(|me| Window::new(me, 2, flags)),
            completed: 0,
        }
    }

    fn on<R>(&mut self, me: Rank, f: impl FnOnce(&mut Window, &mut BarePort<'_>) -> R) -> R {
        f(&mut self.windows[me as usize], &mut BarePort(&mut self.bare, me))
    }

    /// Makes a closing call or a flush.
    fn close(
        &mut self,
        me: Rank,
        f: impl FnOnce(&mut Window, &mut BarePort<'_>) -> Result<Outcome, SyncError>,
    ) {
        if self.on(me, f).expect("legal") == Outcome::Complete {
            self.completed += 1;
        }
    }

    fn sweep(&mut self) -> bool {
        let mut moved = false;
        for me in [0, 1] {
            moved |= self.on(me, |w, p| w.progress(p));
            while self.windows[me as usize].next_completed().is_some() {
                self.completed += 1;
            }
        }
        moved
    }

    fn drain(&mut self) {
        while self.sweep() {}
    }

    fn access(&mut self, me: Rank) {
        self.on(me, |w, p| w.start(p, &[1 - me], NONE)).expect("legal");
        self.on(me, |w, p| w.issue(p, &put(1 - me))).expect("legal");
        self.close(me, |w, p| w.complete(p));
    }
    fn exposure(&mut self, me: Rank) {
        self.on(me, |w, p| w.post(p, &[1 - me], NONE)).expect("legal");
        self.close(me, |w, p| w.wait(p));
    }
    fn lock(&mut self, me: Rank) {
        self.on(me, |w, p| w.lock(p, LockMode::Exclusive, 1 - me, NONE)).expect("legal");
        self.on(me, |w, p| w.issue(p, &put(1 - me))).expect("legal");
        self.close(me, |w, p| w.unlock(p, 1 - me));
    }
    fn lock_all(&mut self, me: Rank) {
        self.on(me, |w, p| w.lock_all(p, NONE)).expect("legal");
        self.on(me, |w, p| w.issue(p, &put(1 - me))).expect("legal");
        self.close(me, |w, p| w.unlock_all(p));
    }
    fn fence(&mut self, me: Rank) {
        self.close(me, |w, p| w.fence(p, NONE));
    }
}

fn put(target: Rank) -> Op {
    Op {
        origin: Addr(8),
        result: Addr(0),
        compare: Addr(0),
        disp: 0,
        len: 8,
        target,
        kind: OpKind::Put,
        element: native::BYTE,
        reduction: reduction::REPLACE,
        extent: 1,
        shape: None,
        notification: None,
    }
}

/// Makes `n` epochs of process 0 pending and lets them complete. Returns the number of requests to
/// complete.
type Scenario = fn(&mut Pair, u64) -> u64;

/// Access epochs whose target posts when all of them are closed.
fn accesses(p: &mut Pair, n: u64) -> u64 {
    (0..n).for_each(|_| p.access(0));
    (0..n).for_each(|_| p.exposure(1));
    2 * n
}

/// Exposure epochs opened long before their accesses.
fn exposures(p: &mut Pair, n: u64) -> u64 {
    (0..n).for_each(|_| p.exposure(1));
    (0..n).for_each(|_| p.access(0));
    2 * n
}

/// Lock epochs behind a pending exposure.
fn locks(p: &mut Pair, n: u64) -> u64 {
    p.exposure(0);
    (0..n).for_each(|_| p.lock(0));
    p.access(1);
    n + 2
}

fn lock_alls(p: &mut Pair, n: u64) -> u64 {
    p.exposure(0);
    (0..n).for_each(|_| p.lock_all(0));
    p.access(1);
    n + 2
}

/// Fence epochs with operations. The other process enters its fences after all of them.
fn fences(p: &mut Pair, n: u64) -> u64 {
    for _ in 0..n {
        p.fence(0);
        p.on(0, |w, port| w.issue(port, &put(1))).expect("legal");
    }
    p.fence(0);
    (0..=n).for_each(|_| p.fence(1));
    2 * n + 2
}

/// All kinds in turn, in groups of five.
fn mixed(p: &mut Pair, n: u64) -> u64 {
    p.exposure(0);
    for _ in 0..n / 5 {
        p.access(0);
        p.lock(0);
        p.exposure(0);
        p.lock_all(0);
        p.fence(0);
    }
    p.access(1);
    for _ in 0..n / 5 {
        p.exposure(1);
        p.access(1);
        p.fence(1);
    }
    2 + n / 5 * 8
}

/// CPU time of this thread, in user mode and in the kernel. Unlike the clock it does not count
/// other processes. The kernel's part is the cost of fresh pages, which a few pending epochs do not
/// need.
fn thread_time() -> (Duration, Duration) {
    // SAFETY: `rusage` is a plain C structure, for which all zeros is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is a valid place for the result.
    let failed = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    assert_eq!(failed, 0);
    let duration = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    (duration(usage.ru_utime), duration(usage.ru_stime))
}

/// Cost per epoch.
struct Cost {
    calls: f64,
    user_ns: f64,
    system_ns: f64,
}

/// Runs a scenario with `n` epochs pending, as `samples` of `batches` each. Times are medians.
fn measure(scenario: Scenario, flags: ReorderFlags, n: u64, batches: u64, samples: u64) -> Cost {
    let mut pair = Pair::new(flags);
    let (mut user, mut system) = (Vec::new(), Vec::new());
    for _ in 0..samples {
        let begin = thread_time();
        for _ in 0..batches {
            pair.completed = 0;
            let expected = scenario(&mut pair, n);
            pair.drain();
            assert_eq!(pair.completed, expected);
        }
        let end = thread_time();
        user.push(end.0 - begin.0);
        system.push(end.1 - begin.1);
        assert!(
            pair.windows
                .iter()
                .all(|w| w.is_quiet() && w.epochs_pending() == 0 && w.requests_alive() == 0)
        );
    }
    let per_epoch = |mut times: Vec<Duration>| {
        times.sort();
        times[times.len() / 2].as_nanos() as f64 / (n * batches) as f64
    };
    Cost {
        calls: pair.bare.calls as f64 / (n * batches * samples) as f64,
        user_ns: per_epoch(user),
        system_ns: per_epoch(system),
    }
}

const ON: ReorderFlags = ReorderFlags {
    access_after_access: true,
    access_after_exposure: true,
    exposure_after_exposure: true,
    exposure_after_access: true,
};

/// From ten to a million pending epochs, the port calls per epoch are equal and the times similar.
#[test]
fn cost_per_epoch_is_flat_up_to_a_million_pending() {
    let scenarios: [(&str, Scenario, ReorderFlags); 8] = [
        ("accesses", accesses, ReorderFlags::default()),
        ("accesses, flags on", accesses, ON),
        ("exposures", exposures, ReorderFlags::default()),
        ("exposures, flags on", exposures, ON),
        ("locks", locks, ReorderFlags::default()),
        ("lock_alls", lock_alls, ReorderFlags::default()),
        ("fences", fences, ReorderFlags::default()),
        ("mixed", mixed, ReorderFlags::default()),
    ];
    for (name, scenario, flags) in scenarios {
        let few = measure(scenario, flags, FEW, MANY / FEW / 4, 3);
        let many = measure(scenario, flags, MANY, 1, 1);
        println!(
            "{name}: per epoch with {FEW} and {MANY} pending: {:.2} and {:.2} calls of the port, \
             {:.0} and {:.0} ns (ratio {:.2}), \
             and {:.0} ns of the kernel for fresh pages",
            few.calls,
            many.calls,
            few.user_ns,
            many.user_ns,
            many.user_ns / few.user_ns,
            many.system_ns
        );
        assert!(
            many.calls <= 1.05 * few.calls,
            "{name}: {} calls per epoch, {} with few",
            many.calls,
            few.calls
        );
        // Quadratic behaviour would be a factor of thousands, which a loaded machine does not
        // reach.
        assert!(
            many.user_ns < 20.0 * few.user_ns.max(50.0),
            "{name}: {} ns per epoch, {} with few",
            many.user_ns,
            few.user_ns
        );
    }
}

/// Memory per pending epoch does not depend on their number, and all of it is freed.
#[test]
fn memory_per_pending_epoch_is_constant_and_returns() {
    let mut per_epoch = Vec::new();
    for n in [1_000, MANY] {
        let mut pair = Pair::new(ReorderFlags::default());
        // Warm up: create peers and small tables.
        accesses(&mut pair, 10);
        pair.drain();
        let before = alloc::live();
        (0..n).for_each(|_| pair.access(0));
        let pending = alloc::live() - before;
        assert_eq!(pair.windows[0].epochs_pending() as u64, n);
        per_epoch.push(pending as f64 / n as f64);
        (0..n).for_each(|_| pair.exposure(1));
        pair.drain();
        let left = alloc::live() - before;
        // Tables may keep room for about a thousand entries.
        assert!(left < 1 << 20, "{left} bytes are left of {pending} with {n} epochs");
        println!(
            "{n} pending access epochs with a put: {:.0} bytes each, {left} bytes left at the end",
            per_epoch[per_epoch.len() - 1]
        );
    }
    // A table that doubles is at most twice as large as its content.
    assert!(per_epoch[1] <= 2.0 * per_epoch[0], "{per_epoch:?}");
}

/// The same for flushes and operations of one long epoch.
#[test]
fn memory_of_flushes_and_operations_returns() {
    let mut pair = Pair::new(ReorderFlags::default());
    pair.bare.pend = true;
    pair.on(0, |w, p| w.lock_all(p, NONE)).expect("legal");
    let before = alloc::live();
    for _ in 0..200_000 {
        pair.on(0, |w, p| w.issue(p, &put(1))).expect("legal");
        pair.close(0, |w, p| w.flush(p, Some(1)));
        pair.close(0, |w, p| w.flush_local(p, None));
    }
    assert_eq!(pair.completed, 0);
    // The youngest operation finishes first, so no flush completes before the last one.
    while let Some(ticket) = pair.bare.pending.pop_back() {
        pair.bare.finished.extend([(ticket, Stage::Local), (ticket, Stage::Remote)]);
        if pair.bare.finished.len() == 1000 && !pair.bare.pending.is_empty() {
            pair.sweep();
            assert_eq!(pair.completed, 0);
        }
    }
    pair.drain();
    assert_eq!(pair.completed, 400_000);
    pair.close(0, |w, p| w.unlock_all(p));
    pair.drain();
    pair.bare.pending = VecDeque::new();
    pair.bare.finished = VecDeque::new();
    let left = alloc::live() - before;
    assert!(left < 512 << 10, "{left} bytes are left");
}

/// A recorded contiguous operation takes at most 64 bytes.
#[test]
fn a_recorded_operation_takes_64_bytes() {
    assert!(size_of::<Op>() <= 64);
    // A power of two, so that tables that double are exactly full.
    let n = 1 << 17;
    let mut pair = Pair::new(ReorderFlags::default());
    pair.on(0, |w, p| w.start(p, &[1], NONE)).expect("legal");
    let before = alloc::live();
    (0..n).for_each(|_| pair.on(0, |w, p| w.issue(p, &put(1))).expect("legal"));
    let bytes = (alloc::live() - before) as f64 / f64::from(n);
    assert!(bytes <= 64.5, "{bytes} bytes for each recorded put");
    pair.close(0, |w, p| w.complete(p));
    pair.exposure(1);
    pair.drain();
    assert_eq!(pair.completed, 2);
    assert!(alloc::live() - before < 128 << 10, "memory returns");
}

/// A put in an active, granted epoch does not allocate, and neither does a warm lock epoch around
/// it.
#[test]
fn a_granted_put_allocates_nothing() {
    let mut pair = Pair::new(ReorderFlags::default());
    (0..10).for_each(|_| pair.lock(0));
    pair.drain();
    let before = alloc::calls();
    (0..100).for_each(|_| pair.lock(0));
    assert_eq!(alloc::calls(), before, "lock, put, unlock");
    pair.on(0, |w, p| w.lock_all(p, NONE)).expect("legal");
    pair.on(0, |w, p| w.issue(p, &put(1))).expect("legal");
    let before = alloc::calls();
    for _ in 0..1000 {
        pair.on(0, |w, p| w.issue(p, &put(1))).expect("legal");
        pair.close(0, |w, p| w.flush(p, Some(1)));
    }
    assert_eq!(alloc::calls(), before, "put and flush");
    pair.close(0, |w, p| w.unlock_all(p));
}

/// Memory depends on the peers used and on log P, not on the size of the window.
#[test]
fn memory_depends_on_the_peers_used() {
    let before = alloc::live();
    let mut bare = Bare { alone: true, ..Default::default() };
    let mut window = Window::new(3, 1 << 30, ReorderFlags::default());
    assert!(alloc::live() - before < 16 << 10, "a new window: {}", alloc::live() - before);
    let mut port = BarePort(&mut bare, 3);
    for _ in 0..5 {
        assert_eq!(window.fence(&mut port, NONE), Ok(Outcome::Complete));
    }
    assert_eq!(port.0.calls, 5 * 2 * 30, "one hop out and one in per round, ⌈log2 P⌉ rounds");
    for target in [5, 1 << 20, (1 << 30) - 1] {
        window.lock(&mut port, LockMode::Exclusive, target, NONE).expect("legal");
        window.issue(&mut port, &put(target)).expect("legal");
        assert_eq!(window.unlock(&mut port, target), Ok(Outcome::Complete));
    }
    let used = alloc::live() - before;
    assert!(used < 32 << 10, "fences and three peers: {used}");
}
