//! Persistent collectives on schedules of this library: the table of those that are alive, and what
//! drives them.
//!
//! A collective is a [`PersistentCollective`] behind a persistent request of the application
//! (`mpi/request/persistent/collective.rs`). `MPI_Start` starts it. From then until it is complete,
//! every sweep of this process advances it, and so does a call that waits for it.
//!
//! The table has a lock of its own. A thread that runs a collective takes it out of its entry, so
//! no lock is held meanwhile; other threads then leave it alone.

use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};

#[cfg(not(loom))]
use super::process::Own;
use super::registry::Registry;
use crate::engine::slab::{Key, Slab};

/// A collective that is set up once and started many times.
///
/// It has all that it needs: the application's buffers, memory that it shares with its peers, and
/// the number of times that it was started. It does not depend on the communicator, which the
/// application may free while the collective is inactive or active.
///
/// # Contract
/// Calls come in the order `start`, then `advance` and `finish` until one of them returns
/// `Advance::Complete`, then `start` again. They may come from any thread, one at a time, with or
/// without the runtime's guard, and from inside calls of the host. So none may take the guard,
/// wait, panic, call a function of the application, or call one of the host's that makes progress,
/// but as [`without_guard`](Self::without_guard) says. Dropping it, which happens only while it is
/// inactive, frees what it has in this process only: peers may still use theirs.
///
/// Peers may start the collectives of a communicator in different orders. So each needs words of
/// its own in shared memory.
pub(crate) trait PersistentCollective: Send {
    /// Starts it: from now on the buffers belong to it. Does what can be done at once.
    fn start(&mut self) -> Advance;

    /// Does what can be done without waiting. Sweeps call it, and hooks.
    fn advance(&mut self) -> Advance;

    /// As [`advance`](Self::advance), from calls of the application that wait for it or test it.
    fn finish(&mut self) -> Advance {
        self.advance()
    }

    /// As [`advance`](Self::advance), in a sweep.
    fn sweep(&mut self, _: &mut Registry) -> Advance {
        self.advance()
    }

    /// Whether sweeps do not complete it, or `start` and `finish` take the guard, or make calls of
    /// the host, which may make progress. Then the guard is not held meanwhile. `advance` and
    /// `sweep` never make any.
    fn without_guard(&self) -> bool {
        false
    }
}

/// How far a collective is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Advance {
    /// It waits for other processes. `moved`: something was done meanwhile.
    Pending { moved: bool },
    /// What is left is the host's to do, which needs no call for it. Only `finish` sees whether it
    /// is complete.
    AtHost,
    /// This process's part is done: its buffers belong to the application again.
    Complete,
    /// It cannot be completed. It is not advanced any more and cannot be started again.
    Failed(CollectiveFailure),
}

/// Why a collective has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CollectiveFailure {
    /// The class of the error.
    pub(crate) class: c_int,
    pub(crate) text: &'static str,
}

/// The state of a collective, in the terms of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CollectiveState {
    Inactive,
    Active,
    Complete,
    Failed(CollectiveFailure),
    /// Failed, and inactive again.
    Dead,
}

/// A [`CollectiveState`] of one byte. A start writes it, and a wait soon reads it, behind stores to
/// lines of other processors: a longer value that is not read as it was written would have to wait
/// for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Inactive,
    Active,
    Complete,
    Failed,
    Dead,
}

struct Entry {
    /// `None` while a thread runs it.
    body: Option<Box<dyn PersistentCollective>>,
    phase: Phase,
    /// Of one that has failed.
    failure: CollectiveFailure,
    /// See [`PersistentCollective::without_guard`].
    without_guard: bool,
    /// Key of the communicator's handle. `None`: the communicator was freed.
    comm: Option<u64>,
}

impl Entry {
    #[inline]
    fn state(&self) -> CollectiveState {
        match self.phase {
            Phase::Inactive => CollectiveState::Inactive,
            Phase::Active => CollectiveState::Active,
            Phase::Complete => CollectiveState::Complete,
            Phase::Failed => CollectiveState::Failed(self.failure),
            Phase::Dead => CollectiveState::Dead,
        }
    }
}

struct Table {
    entries: Slab<Entry>,
    /// Those that sweeps advance.
    active: Vec<Key>,
}

// SAFETY: bodies are `Send`, and all else is numbers.
#[cfg(not(loom))]
static TABLE: Own<Table> = unsafe { Own::new(Table { entries: Slab::new(), active: Vec::new() }) };

#[cfg(not(loom))]
#[inline]
fn with<R>(body: impl FnOnce(&mut Table) -> R) -> R {
    TABLE.with(body)
}

#[cfg(loom)]
fn with<R>(_: impl FnOnce(&mut Table) -> R) -> R {
    unreachable!("no process is modelled")
}

/// Collectives in the table, and those that are active, for readers without the lock.
static ALIVE: AtomicUsize = AtomicUsize::new(0);
static ACTIVE: AtomicUsize = AtomicUsize::new(0);

/// Whether there is any collective, active or not: then the host's hook stays registered.
pub(crate) fn any_alive() -> bool {
    ALIVE.load(Ordering::Relaxed) != 0
}

/// Whether a collective is active, so that calls of the host must be driven.
#[inline(always)]
pub(crate) fn any_active() -> bool {
    ACTIVE.load(Ordering::Relaxed) != 0
}

impl Table {
    fn note(&self) {
        ALIVE.store(self.entries.len(), Ordering::Relaxed);
        ACTIVE.store(self.active.len(), Ordering::Relaxed);
    }

    /// Takes a collective out of its entry, to run it. `None`: it is not in that state, or another
    /// thread runs it.
    fn take(&mut self, key: Key, phase: Phase) -> Option<Box<dyn PersistentCollective>> {
        let entry = self.entries.get_mut(key).filter(|entry| entry.phase == phase)?;
        entry.body.take()
    }

    /// Puts it back, with what its run has returned.
    fn put_back(&mut self, key: Key, body: Box<dyn PersistentCollective>, result: Advance) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        entry.body = Some(body);
        entry.phase = match result {
            Advance::Pending { .. } | Advance::AtHost => Phase::Active,
            Advance::Complete => Phase::Complete,
            Advance::Failed(failure) => {
                entry.failure = failure;
                Phase::Failed
            }
        };
        let listed = self.active.iter().rposition(|active| *active == key);
        match (listed, result) {
            (None, Advance::Pending { .. }) => self.active.push(key),
            (Some(at), Advance::AtHost | Advance::Complete | Advance::Failed(_)) => {
                self.active.swap_remove(at);
            }
            _ => return,
        }
        self.note();
    }
}

/// Adds a collective of the communicator with this key. It is inactive.
pub(crate) fn insert(body: Box<dyn PersistentCollective>, comm: u64) -> Key {
    with(|table| {
        let without_guard = body.without_guard();
        let (phase, comm) = (Phase::Inactive, Some(comm));
        let failure = CollectiveFailure { class: 0, text: "" };
        let entry = Entry { body: Some(body), phase, failure, without_guard, comm };
        let key = table.entries.insert(entry);
        table.note();
        key
    })
}

/// Removes a collective. Its request is inactive, and is being freed.
pub(crate) fn remove(key: Key) {
    // Dropped outside of the lock.
    let entry = with(|table| {
        let entry = table.entries.take(key);
        table.active.retain(|active| *active != key);
        table.note();
        entry
    });
    drop(entry);
}

/// Removes all. Call it before MPI is finalized.
pub(crate) fn clear() {
    let entries = with(|table| {
        let entries = std::mem::take(&mut table.entries);
        table.active.clear();
        table.note();
        entries
    });
    drop(entries);
}

/// The communicator of a collective, unless one of them was freed.
pub(crate) fn comm_of(key: Key) -> Option<u64> {
    with(|table| table.entries.get(key)?.comm)
}

/// A communicator has been freed: its handle may soon mean another one.
pub(crate) fn forget_comm(comm: u64) {
    with(|table| {
        let all = table.entries.iter_mut();
        all.filter(|entry| entry.comm == Some(comm)).for_each(|entry| entry.comm = None);
    });
}

/// Whether tests of it must call [`finish`], without the guard: sweeps do not complete it.
pub(crate) fn without_guard(key: Key) -> bool {
    with(|table| table.entries.get(key).is_some_and(|entry| entry.without_guard))
}

/// The state of a collective.
#[inline]
pub(crate) fn state(key: Key) -> CollectiveState {
    with(|table| table.entries.get(key).map_or(CollectiveState::Dead, Entry::state))
}

/// Starts a collective. False: it is not inactive.
#[inline]
pub(crate) fn start(key: Key) -> bool {
    let taken = with(|table| {
        let body = table.take(key, Phase::Inactive)?;
        if let Some(entry) = table.entries.get_mut(key) {
            entry.phase = Phase::Active;
        }
        Some(body)
    });
    let Some(mut body) = taken else { return false };
    let result = body.start();
    with(|table| table.put_back(key, body, result));
    if matches!(result, Advance::Pending { .. }) {
        super::thread::wake();
    }
    true
}

/// Advances a collective, as far as to its end, if it is active and no other thread is doing so.
/// Returns its state.
#[inline]
pub(crate) fn finish(key: Key) -> CollectiveState {
    run(key, |body| body.finish());
    state(key)
}

/// Runs a collective if it is active. True if anything moved.
#[inline]
fn run(key: Key, step: impl FnOnce(&mut dyn PersistentCollective) -> Advance) -> bool {
    let Some(mut body) = with(|table| table.take(key, Phase::Active)) else {
        return false;
    };
    let result = step(&mut *body);
    with(|table| table.put_back(key, body, result));
    result != Advance::Pending { moved: false }
}

/// Advances all that are active. True if anything moved.
#[inline]
pub(crate) fn advance_all(windows: &mut Registry) -> bool {
    if !any_active() {
        return false;
    }
    let mut moved = false;
    // Backwards: one that completes is replaced by the last, which has had its turn.
    let mut at = with(|table| table.active.len());
    while at > 0 {
        at -= 1;
        if let Some(key) = with(|table| table.active.get(at).copied()) {
            moved |= run(key, |body| body.sweep(windows));
        }
    }
    moved
}

/// Makes a complete collective inactive, and one that has failed dead.
#[inline]
pub(crate) fn deactivate(key: Key) {
    with(|table| {
        if let Some(entry) = table.entries.get_mut(key) {
            match entry.phase {
                Phase::Complete => entry.phase = Phase::Inactive,
                Phase::Failed => entry.phase = Phase::Dead,
                Phase::Inactive | Phase::Active | Phase::Dead => {}
            }
        }
    });
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Completes at the `left`-th call, and fails if that number is 0. The last of several calls is
    /// made by `finish` alone, if that calls the host.
    struct Counter {
        left: u32,
        at_host: bool,
    }

    const FAILURE: CollectiveFailure = CollectiveFailure { class: 7, text: "test" };

    impl PersistentCollective for Counter {
        fn start(&mut self) -> Advance {
            self.advance()
        }

        fn advance(&mut self) -> Advance {
            if self.at_host && self.left == 1 { Advance::AtHost } else { self.finish() }
        }

        fn finish(&mut self) -> Advance {
            match self.left {
                0 => Advance::Failed(FAILURE),
                1 => Advance::Complete,
                _ => {
                    self.left -= 1;
                    Advance::Pending { moved: true }
                }
            }
        }

        fn without_guard(&self) -> bool {
            self.at_host
        }
    }

    // One test: the table is one per process.
    #[test]
    fn sweeps_advance_what_is_active() {
        let mut windows = Registry::new();
        let key_of = |(left, at_host)| insert(Box::new(Counter { left, at_host }), 1);
        let [first, second, third, fourth] =
            [(3, false), (2, false), (0, false), (2, true)].map(key_of);
        assert!(any_alive() && !any_active() && !advance_all(&mut windows));
        assert!([first, second, third].into_iter().all(start) && !start(first));
        assert_eq!(state(first), CollectiveState::Active);
        assert_eq!(state(third), CollectiveState::Failed(FAILURE));
        assert!(advance_all(&mut windows));
        assert_eq!(
            [first, second].map(state),
            [CollectiveState::Active, CollectiveState::Complete]
        );
        assert!(!start(second), "not completed yet");
        assert_eq!(finish(first), CollectiveState::Complete);
        assert!(!any_active());
        [first, second, third].into_iter().for_each(deactivate);
        assert!(start(fourth) && any_active() && !without_guard(first) && without_guard(fourth));
        assert!(advance_all(&mut windows) && !any_active(), "the rest is the host's");
        assert!(!advance_all(&mut windows));
        assert_eq!(state(fourth), CollectiveState::Active);
        assert_eq!(finish(fourth), CollectiveState::Complete);
        deactivate(fourth);
        assert!(start(second) && !start(third));
        assert_eq!(state(third), CollectiveState::Dead);
        assert_eq!(comm_of(first), Some(1));
        forget_comm(1);
        assert_eq!(comm_of(first), None);
        [first, second, fourth].into_iter().for_each(remove);
        clear();
        assert!(!any_alive());
    }
}
