//! What a window waits for, as text for the log. The engine decides nothing by it.

use std::fmt;

use super::activation::{BlockedBy, may_activate};
use super::epoch::LockState;
use super::peer::Peer;
use super::port::{Rank, Word};
use super::window::Window;

/// At most this many ranks are listed.
const NAMED: usize = 8;

/// Displays what a window waits for. Made by [`Window::waits`].
#[derive(Debug)]
pub struct Waits<'a>(&'a Window);

impl Window {
    /// Describes what this window waits for [EP-10]. If a program hangs because it relies on
    /// another MPI library's buffering or laziness, the log shows which rank waits for which.
    pub fn waits(&self) -> Waits<'_> {
        Waits(self)
    }
}

/// Writes a list of ranks, truncated after [`NAMED`].
fn ranks(f: &mut fmt::Formatter<'_>, what: &str, ranks: &[Rank]) -> fmt::Result {
    if ranks.is_empty() {
        return Ok(());
    }
    write!(f, "; {what} ")?;
    for (at, rank) in ranks.iter().take(NAMED).enumerate() {
        write!(f, "{}{rank}", if at == 0 { "" } else { ", " })?;
    }
    if ranks.len() > NAMED {
        write!(f, " and {} more", ranks.len() - NAMED)?;
    }
    Ok(())
}

impl fmt::Display for Waits<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let w = self.0;
        write!(f, "{} epochs pending, {} deferred", w.epochs_pending(), w.deferred.len())?;
        if let Some(epoch) = w.deferred.front()
            && let Err(by) = may_activate(&w.epochs[*epoch], &w.closed_epochs, &w.peers, w.flags)
        {
            match by {
                BlockedBy::Earlier(class) => {
                    write!(f, " (first behind an earlier {class:?} epoch)")?
                }
                BlockedBy::SameTarget => write!(f, " (first behind a lock of the same target)")?,
            }
        }
        let of = |waits: &dyn Fn(&Peer) -> bool| {
            w.peers.iter().filter(|peer| waits(peer)).map(|peer| peer.rank).collect::<Vec<_>>()
        };
        let awaited = |word: Word| of(&|peer| !peer.words[word as usize].waiters.is_empty());
        ranks(f, "access epochs wait for a post of rank", &awaited(Word::Grant))?;
        ranks(f, "exposure epochs wait for a complete of rank", &awaited(Word::Done))?;
        if let Some(barrier) = &w.barrier {
            ranks(f, "a fence waits for rank", &[barrier.awaited(w.me, w.size)])?;
        }
        if let Some(pattern) = &w.pattern {
            ranks(f, "a pattern fence waits for rank", &pattern.awaited(w.fences))?;
        }
        let lock_epoch = |peer: &Peer| w.epochs.get(peer.lock_active?);
        let locks = of(&|peer| lock_epoch(peer).is_some_and(|entry| !entry.granted));
        ranks(f, "locks are queued at target", &locks)?;
        if w.lock_watch.iter().any(|epoch| w.epochs[*epoch].locking == LockState::AllWaiting) {
            write!(f, "; lock_all waits for exclusive locks")?;
        }
        match w.matcher.waiting() {
            0 => {}
            waiting => write!(f, "; {waiting} requests wait for tagged notifications")?,
        }
        match w.records.len() {
            0 => Ok(()),
            operations => write!(f, "; {operations} operations recorded or in flight"),
        }
    }
}
