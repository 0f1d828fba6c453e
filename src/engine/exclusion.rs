//! Exclusive locks against lock_all, by words of the window [LK-4, LK-6].
//!
//! A lock_all is held, or a right to hold exclusive locks is out: `Holders`, at rank 0, counts both, and neither begins while the other
//! is there. A right is one of two:
//! - a *registration*: one per exclusive lock, made when the lock's request is first in its queue, passed on to an exclusive successor,
//!   and given back with the lock;
//! - a *licence*: a registration that a process keeps between its locks. Using it is one atomic on a word of its own, so exclusive
//!   locks of many processes do not meet in one word. Licences are rare where lock_alls are frequent: each revocation doubles the
//!   number of registrations after which the process asks for the next one.
//!
//! A lock_all that waits revokes licences: those that are idle at once, without their owners' CPU; those in use end with the last use.
//! To be found, licensed processes form a stack: its top is `Licensed` at rank 0, links are `NextLicensed` words. `Licensed`
//! carries a count in its high half, so that a top that was taken away and came back is not mistaken for the old one.
//!
//! A `Licence` word holds the number of locks that use it (low 32 bits) and flags:
//! [`PENDING`]: on its way to the stack; [`HELD`]; [`REVOKED`]: no use may begin. Who removes the registration after a revocation: who
//! revoked if there was no use, else the owner with its last use. Only then is the word 0 again and may the owner ask for the next.

use super::alphabet::{LockMemory, LockWord, Rank};
use super::steps::{Later, Steps};

/// Where the words of the window live.
const HOME: Rank = 0;
const ONE_RIGHT: u64 = 1 << 32;
const ONE_LOCK_ALL: u64 = 1;

const HELD: u64 = 1 << 32;
const REVOKED: u64 = 2 << 32;
const PENDING: u64 = 4 << 32;
const ONE_USE: u64 = 1;

fn lock_alls(holders: u64) -> u32 {
    holders as u32
}

fn rights(holders: u64) -> u32 {
    (holders >> 32) as u32
}

fn uses(licence: u64) -> u32 {
    licence as u32
}

/// The right by which an exclusive lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Right {
    Registered,
    Licensed,
}

/// What became of [`claim`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claimed {
    Held(Right),
    /// Registered, which keeps further lock_alls out; some are still held.
    Draining,
}

/// When this process asks for a licence.
#[derive(Debug)]
pub(super) struct Licensing {
    /// By what this process knows; it may have been revoked since.
    pub(super) licensed: bool,
    /// A licence is being asked for.
    pub(super) asking: bool,
    registrations: u32,
    threshold: u32,
}

impl Licensing {
    pub(super) fn new() -> Self {
        Licensing { licensed: false, asking: false, registrations: 0, threshold: 2 }
    }

    /// A lock was registered.
    pub(super) fn registered(&mut self) {
        self.registrations = self.registrations.saturating_add(1);
    }

    /// The licence was found revoked.
    pub(super) fn lost(&mut self) {
        if std::mem::take(&mut self.licensed) {
            self.registrations = 0;
            self.threshold = self.threshold.saturating_mul(2);
        }
    }

    /// A registration that is not needed any more may become a licence.
    pub(super) fn wants_one(&self) -> bool {
        !self.licensed && !self.asking && self.registrations >= self.threshold
    }
}

/// True if this process has a licence that is not revoked, so that no lock_all has been waiting since before.
#[inline]
pub(super) fn is_licensed(mem: &mut impl LockMemory) -> bool {
    mem.look(LockWord::Licence) & (HELD | REVOKED) == HELD
}

/// An exclusive lock that is first in its queue asks for its right.
#[inline(always)]
pub(super) fn claim(s: &mut Steps<'_, impl LockMemory>) -> Result<Claimed, Later> {
    let mut licence = s.look(LockWord::Licence);
    while licence & (HELD | REVOKED) == HELD {
        // Not an addition, which would count a use of a licence that is revoked meanwhile.
        let met = s.compare_swap(s.me(), LockWord::Licence, licence, licence + ONE_USE)?;
        if met == licence {
            return Ok(Claimed::Held(Right::Licensed));
        }
        licence = met;
    }
    let holders = s.add(HOME, LockWord::Holders, ONE_RIGHT)?;
    Ok(if lock_alls(holders) == 0 { Claimed::Held(Right::Registered) } else { Claimed::Draining })
}

/// Gives the right of an exclusive lock back.
#[inline(always)]
pub(super) fn give_back(s: &mut Steps<'_, impl LockMemory>, right: Right) -> Result<(), Later> {
    if right == Right::Licensed {
        let licence = s.add(s.me(), LockWord::Licence, ONE_USE.wrapping_neg())?;
        if licence & REVOKED == 0 || uses(licence) != 1 {
            return Ok(());
        }
        s.store(s.me(), LockWord::Licence, 0)?;
    }
    s.add(HOME, LockWord::Holders, ONE_RIGHT.wrapping_neg())?;
    Ok(())
}

/// Makes a registration that is not needed any more a licence, or gives it back. True if this process is licensed now.
pub(super) fn obtain(s: &mut Steps<'_, impl LockMemory>) -> Result<bool, Later> {
    let intent = s.load(HOME, LockWord::Intent)?;
    let waited_for = intent as u32 != (intent >> 32) as u32;
    if waited_for || s.look(LockWord::Licence) != 0 {
        give_back(s, Right::Registered)?;
        return Ok(false);
    }
    let top = s.load(HOME, LockWord::Licensed)?;
    s.store(s.me(), LockWord::NextLicensed, top & u64::from(u32::MAX))?;
    s.store(s.me(), LockWord::Licence, PENDING)?;
    if s.compare_swap(HOME, LockWord::Licensed, top, above(top, u64::from(s.me()) + 1))? != top {
        // Somebody else was faster; this process is not on the stack, so nobody knows of its licence.
        s.store(s.me(), LockWord::Licence, 0)?;
        give_back(s, Right::Registered)?;
        return Ok(false);
    }
    // If it is revoked already, who did that removes the registration.
    Ok(s.compare_swap(s.me(), LockWord::Licence, PENDING, HELD)? == PENDING)
}

/// The next value of `Licensed`, with `top` (rank + 1, or 0) on it.
fn above(before: u64, top: u64) -> u64 {
    ((before >> 32).wrapping_add(1) << 32) | top
}

/// A lock_all is asked for. True if it is held; else nothing is held.
#[inline(always)]
pub(super) fn enter_all(s: &mut Steps<'_, impl LockMemory>) -> Result<bool, Later> {
    if rights(s.add(HOME, LockWord::Holders, ONE_LOCK_ALL)?) == 0 {
        return Ok(true);
    }
    s.add(HOME, LockWord::Holders, ONE_LOCK_ALL.wrapping_neg())?;
    count_intent(s, |arrived, served| (arrived.wrapping_add(1), served))?;
    Ok(false)
}

/// What became of [`retry_all`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retried {
    Held,
    /// A licence was taken off the stack, so there may be more to do at once.
    Revoked,
    Waiting,
}

/// A lock_all that waits tries again: held if no right is out, else one licence is revoked.
pub(super) fn retry_all(s: &mut Steps<'_, impl LockMemory>) -> Result<Retried, Later> {
    let holders = s.load(HOME, LockWord::Holders)?;
    if rights(holders) > 0 {
        return Ok(if revoke_one(s)? { Retried::Revoked } else { Retried::Waiting });
    }
    if s.compare_swap(HOME, LockWord::Holders, holders, holders + ONE_LOCK_ALL)? != holders {
        return Ok(Retried::Waiting);
    }
    count_intent(s, |arrived, served| (arrived, served.wrapping_add(1)))?;
    Ok(Retried::Held)
}

/// Takes the top off the stack of licences, if there is one, and revokes it.
fn revoke_one(s: &mut Steps<'_, impl LockMemory>) -> Result<bool, Later> {
    let top = s.load(HOME, LockWord::Licensed)?;
    let Some(owner) = (top as u32).checked_sub(1) else { return Ok(false) };
    let below = s.load(owner, LockWord::NextLicensed)?;
    if s.compare_swap(HOME, LockWord::Licensed, top, above(top, below))? != top {
        return Ok(false);
    }
    let licence = s.add(owner, LockWord::Licence, REVOKED)?;
    if uses(licence) == 0 {
        s.add(HOME, LockWord::Holders, ONE_RIGHT.wrapping_neg())?;
        s.store(owner, LockWord::Licence, 0)?;
    }
    Ok(true)
}

/// Gives a lock_all back.
#[inline(always)]
pub(super) fn leave_all(s: &mut Steps<'_, impl LockMemory>) -> Result<(), Later> {
    s.add(HOME, LockWord::Holders, ONE_LOCK_ALL.wrapping_neg())?;
    Ok(())
}

/// True if no lock_all is held any more.
pub(super) fn is_drained(s: &mut Steps<'_, impl LockMemory>) -> Result<bool, Later> {
    Ok(lock_alls(s.load(HOME, LockWord::Holders)?) == 0)
}

/// lock_alls that had to wait so far, and those of them that were served [LK-6].
pub(super) fn intent(s: &mut Steps<'_, impl LockMemory>) -> Result<(u32, u32), Later> {
    let intent = s.load(HOME, LockWord::Intent)?;
    Ok((intent as u32, (intent >> 32) as u32))
}

/// Counts one up in a half of `Intent`, without a carry from one half to the other.
fn count_intent(s: &mut Steps<'_, impl LockMemory>, count: impl Fn(u32, u32) -> (u32, u32)) -> Result<(), Later> {
    let mut seen = s.load(HOME, LockWord::Intent)?;
    loop {
        let (arrived, served) = count(seen as u32, (seen >> 32) as u32);
        let met = s.compare_swap(HOME, LockWord::Intent, seen, u64::from(served) << 32 | u64::from(arrived))?;
        if met == seen {
            return Ok(());
        }
        seen = met;
    }
}
