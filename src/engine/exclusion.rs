//! Exclusive locks against lock_all, by words of the window [LK-4, LK-6].
//!
//! A lock_all is held, or a right to hold exclusive locks is out: `Holders`, at rank 0, counts
//! both, and neither begins while the other is there. A right is one of two:
//! - a *registration*: one per exclusive lock, made when the lock's request is first in its queue,
//!   passed on to an exclusive successor, and given back with the lock;
//! - a *licence*: a registration that a process keeps between its locks. Using it is one atomic on
//!   a word of its own, so exclusive locks of many processes do not meet in one word. Licences are
//!   rare where lock_alls are frequent: each revocation doubles the number of registrations after
//!   which the process asks for the next one.
//!
//! A lock_all that waits revokes licences: those that are idle at once, without their owners' CPU;
//! those in use end with the last use. To be found, licensed processes form a stack: its top is
//! `Licensed` at rank 0, links are `NextLicensed` words. One exchange puts a process on it, however
//! many do so at once; the link is written after it, and until then nobody takes that process off.
//! A value of `Licensed` names the process and counts its pushes, so that a top that was taken away
//! and came back is not mistaken for the old one.
//!
//! A `Licence` word holds flags: [`IN_USE`] while locks of its owner are held by it; [`PENDING`] on
//! its way to the stack; [`HELD`]; [`REVOKED`]: it may not be taken into use. Who removes the
//! registration after a revocation: who revoked if it was not in use, else the owner when it has
//! left use. Only then is the word 0 again and may the owner ask for the next.

use super::lock::LockRequest;
use super::port::{LockMemory, LockWord, Rank};
use super::replay::{Replay, Suspended};
use super::slab::Key;

/// Where the words of the window live.
const HOME: Rank = 0;
const ONE_RIGHT: u64 = 1 << 32;
const ONE_LOCK_ALL: u64 = 1;

const HELD: u64 = 1 << 32;
const REVOKED: u64 = 2 << 32;
const PENDING: u64 = 4 << 32;
const IN_USE: u64 = 1;
/// In `NextLicensed`: the owner is on the stack and has not written yet what is below it.
const UNLINKED: u64 = u64::MAX;

fn lock_alls(holders: u64) -> u32 {
    holders as u32
}

fn rights(holders: u64) -> u32 {
    (holders >> 32) as u32
}

/// The right by which an exclusive lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExclusiveRight {
    Registered,
    Licensed,
}

/// What became of [`claim`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RegisterOutcome {
    Held(ExclusiveRight),
    /// Registered, which keeps further lock_alls out; some are still held.
    Draining,
    /// It was to be a licence, and was revoked before it was there. There is no right.
    Revoked,
}

/// What this process knows of its licence.
#[derive(Debug)]
pub(super) struct Licensing {
    /// It has one, unless it was revoked since.
    licensed: bool,
    /// A procedure on its word is under way: it is asked for, or its use begins or ends. Locks that
    /// need a right wait for that.
    changing: bool,
    /// Locks held by it. The first takes it into use, the last gives it back; those between cost
    /// nothing.
    uses: u32,
    waiting: Vec<(Key, LockRequest)>,
    registrations: u32,
    threshold: u32,
    pushes: u32,
}

/// What an exclusive lock that is first in its queue does for its right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Acquisition {
    /// The licence is in use already.
    InUse,
    /// It is idle: [`begin_use`].
    UseIdle,
    /// There is none: [`register`].
    Register(Option<u32>),
    /// To be seen when what is under way has ended.
    Wait,
}

impl Licensing {
    pub(super) fn new() -> Self {
        Licensing {
            licensed: false,
            changing: false,
            uses: 0,
            waiting: Vec::new(),
            registrations: 0,
            threshold: 2,
            pushes: 0,
        }
    }

    /// The licence was found revoked.
    fn lost(&mut self) {
        if std::mem::take(&mut self.licensed) {
            self.revoked();
        }
    }

    /// A licence was revoked, perhaps before it was there: the next one is to wait, or its owner
    /// and a lock_all that revokes as fast as it is asked for would run in circles.
    pub(super) fn revoked(&mut self) {
        self.registrations = 0;
        self.threshold = self.threshold.saturating_mul(2);
    }

    /// The way of a lock to its right; one that waits is given back by [`changed`](Self::changed).
    #[inline(always)]
    pub(super) fn acquire(
        &mut self,
        mem: &mut impl LockMemory,
        epoch: Key,
        request: LockRequest,
    ) -> Acquisition {
        if self.changing {
            self.waiting.push((epoch, request));
            return Acquisition::Wait;
        }
        let word = mem.look(LockWord::Licence);
        if word & (HELD | REVOKED) == HELD {
            if self.uses > 0 {
                self.uses += 1;
                return Acquisition::InUse;
            }
            self.changing = true;
            return Acquisition::UseIdle;
        }
        self.lost();
        self.registrations = self.registrations.saturating_add(1);
        // Of the last licence nothing may be left.
        if self.registrations <= self.threshold || word != 0 {
            return Acquisition::Register(None);
        }
        self.changing = true;
        self.pushes = self.pushes.wrapping_add(1);
        Acquisition::Register(Some(self.pushes))
    }

    /// True if the licence is idle and nobody else asks for a right: then [`begin_use`] is under
    /// way.
    #[inline(always)]
    pub(super) fn begins(&mut self, mem: &mut impl LockMemory) -> bool {
        let begins = !self.changing && self.uses == 0 && is_licensed(mem);
        self.changing |= begins;
        begins
    }

    /// A lock has its licence, the first one, and none waits for it.
    #[inline(always)]
    pub(super) fn begun_alone(&mut self) {
        debug_assert!(self.waiting.is_empty());
        self.begun();
        self.changing = false;
    }

    /// A lock has its licence: the first one.
    #[inline(always)]
    pub(super) fn begun(&mut self) {
        (self.licensed, self.uses) = (true, 1);
    }

    /// A lock that was held by the licence is released. True if it was the last one: [`end_use`].
    #[inline(always)]
    pub(super) fn ends(&mut self) -> bool {
        self.uses -= 1;
        self.changing = self.uses == 0;
        self.changing
    }

    /// What was under way has ended: gives the locks that waited for it.
    #[inline(always)]
    pub(super) fn changed(&mut self) -> Vec<(Key, LockRequest)> {
        self.changing = false;
        std::mem::take(&mut self.waiting)
    }
}

/// True if this process has a licence that is not revoked, so that no lock_all has been waiting
/// since before.
#[inline]
pub(super) fn is_licensed(mem: &mut impl LockMemory) -> bool {
    mem.look(LockWord::Licence) & (HELD | REVOKED) == HELD
}

/// Takes the idle licence into use. False if it is revoked.
#[inline(always)]
pub(super) fn begin_use(mem: &mut Replay<'_, impl LockMemory>) -> Result<bool, Suspended> {
    // Not an addition, which would take a licence into use that is revoked meanwhile.
    Ok(mem.compare_swap(mem.me(), LockWord::Licence, HELD, HELD | IN_USE)? == HELD)
}

/// Makes the licence idle. If it was revoked meanwhile the registration is removed.
#[inline(always)]
pub(super) fn end_use(mem: &mut Replay<'_, impl LockMemory>) -> Result<(), Suspended> {
    if mem.add(mem.me(), LockWord::Licence, IN_USE.wrapping_neg())? & REVOKED != 0 {
        mem.store(mem.me(), LockWord::Licence, 0)?;
        deregister(mem)?;
    }
    Ok(())
}

/// It is registered instead. With `push`, the number of times that this process has done so, the
/// registration becomes a licence, and the lock its first use.
pub(super) fn register(
    mem: &mut Replay<'_, impl LockMemory>,
    push: Option<u32>,
) -> Result<RegisterOutcome, Suspended> {
    let holders = mem.add(HOME, LockWord::Holders, ONE_RIGHT)?;
    if lock_alls(holders) > 0 {
        return Ok(RegisterOutcome::Draining);
    }
    let Some(push) = push else { return Ok(RegisterOutcome::Held(ExclusiveRight::Registered)) };
    mem.store(mem.me(), LockWord::NextLicensed, UNLINKED)?;
    mem.store(mem.me(), LockWord::Licence, PENDING)?;
    let below =
        mem.swap(HOME, LockWord::Licensed, u64::from(push) << 32 | (u64::from(mem.me()) + 1))?;
    mem.store(mem.me(), LockWord::NextLicensed, below)?;
    let met = mem.compare_swap(mem.me(), LockWord::Licence, PENDING, HELD | IN_USE)?;
    // If it is revoked already, who did that removes the registration.
    Ok(if met == PENDING {
        RegisterOutcome::Held(ExclusiveRight::Licensed)
    } else {
        RegisterOutcome::Revoked
    })
}

/// Removes a registration.
#[inline(always)]
pub(super) fn deregister(mem: &mut Replay<'_, impl LockMemory>) -> Result<(), Suspended> {
    mem.add(HOME, LockWord::Holders, ONE_RIGHT.wrapping_neg())?;
    Ok(())
}

/// A lock_all is asked for. True if it is held; else nothing is held.
#[inline(always)]
pub(super) fn enter_all(mem: &mut Replay<'_, impl LockMemory>) -> Result<bool, Suspended> {
    if rights(mem.add(HOME, LockWord::Holders, ONE_LOCK_ALL)?) == 0 {
        return Ok(true);
    }
    mem.add(HOME, LockWord::Holders, ONE_LOCK_ALL.wrapping_neg())?;
    count_intent(mem, |arrived, served| (arrived.wrapping_add(1), served))?;
    Ok(false)
}

/// What became of [`retry_all`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RetryOutcome {
    Held,
    /// A licence was taken off the stack, so there may be more to do at once.
    Revoked,
    Waiting,
}

/// A lock_all that waits tries again: held if no right is out, else one licence is revoked.
pub(super) fn retry_all(mem: &mut Replay<'_, impl LockMemory>) -> Result<RetryOutcome, Suspended> {
    let holders = mem.load(HOME, LockWord::Holders)?;
    if rights(holders) > 0 {
        return Ok(if revoke_one(mem)? { RetryOutcome::Revoked } else { RetryOutcome::Waiting });
    }
    if mem.compare_swap(HOME, LockWord::Holders, holders, holders + ONE_LOCK_ALL)? != holders {
        return Ok(RetryOutcome::Waiting);
    }
    count_intent(mem, |arrived, served| (arrived, served.wrapping_add(1)))?;
    Ok(RetryOutcome::Held)
}

/// Takes the top off the stack of licences, if there is one, and revokes it.
fn revoke_one(mem: &mut Replay<'_, impl LockMemory>) -> Result<bool, Suspended> {
    let top = mem.load(HOME, LockWord::Licensed)?;
    let Some(owner) = (top as u32).checked_sub(1) else { return Ok(false) };
    let below = mem.load(owner, LockWord::NextLicensed)?;
    if below == UNLINKED || mem.compare_swap(HOME, LockWord::Licensed, top, below)? != top {
        return Ok(false);
    }
    let licence = mem.add(owner, LockWord::Licence, REVOKED)?;
    if licence & IN_USE == 0 {
        deregister(mem)?;
        mem.store(owner, LockWord::Licence, 0)?;
    }
    Ok(true)
}

/// Gives a lock_all back.
#[inline(always)]
pub(super) fn leave_all(mem: &mut Replay<'_, impl LockMemory>) -> Result<(), Suspended> {
    mem.add(HOME, LockWord::Holders, ONE_LOCK_ALL.wrapping_neg())?;
    Ok(())
}

/// True if no lock_all is held any more.
pub(super) fn is_drained(mem: &mut Replay<'_, impl LockMemory>) -> Result<bool, Suspended> {
    Ok(lock_alls(mem.load(HOME, LockWord::Holders)?) == 0)
}

/// lock_alls that had to wait so far, and those of them that were served [LK-6].
pub(super) fn intent(mem: &mut Replay<'_, impl LockMemory>) -> Result<(u32, u32), Suspended> {
    let intent = mem.load(HOME, LockWord::Intent)?;
    Ok((intent as u32, (intent >> 32) as u32))
}

/// Counts one up in a half of `Intent`, without a carry from one half to the other.
fn count_intent(
    mem: &mut Replay<'_, impl LockMemory>,
    count: impl Fn(u32, u32) -> (u32, u32),
) -> Result<(), Suspended> {
    let mut seen = mem.load(HOME, LockWord::Intent)?;
    loop {
        let (arrived, served) = count(seen as u32, (seen >> 32) as u32);
        let met = mem.compare_swap(
            HOME,
            LockWord::Intent,
            seen,
            u64::from(served) << 32 | u64::from(arrived),
        )?;
        if met == seen {
            return Ok(());
        }
        seen = met;
    }
}
