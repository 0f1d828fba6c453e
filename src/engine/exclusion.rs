//! Mutual exclusion between exclusive locks and lock_all, by words at rank 0 [LK-4, LK-6].
//!
//! `Holders` counts held lock_alls and *rights* to hold exclusive locks. Neither side starts while
//! the other is present. There are two kinds of rights:
//! - a *registration*, one per exclusive lock. A request registers when it is first in its queue.
//!   The release passes the registration on to an exclusive successor or removes it.
//! - a *licence*, a registration that a process keeps between its locks. Using it takes one atomic
//!   on a word of its own, so exclusive locks of many processes do not contend for one word. Each
//!   revocation doubles the number of registrations after which the process asks for a licence
//!   again, so licences are rare where lock_alls are frequent.
//!
//! A waiting lock_all revokes licences one by one. An idle licence ends at once, without its
//! owner's CPU; one in use ends with its last use. Licensed processes form a stack: the top is
//! `Licensed` at rank 0, the links are the `NextLicensed` words. One exchange pushes a process,
//! whatever the contention. It writes its link afterwards, and until then no process pops it. A
//! value of `Licensed` contains the rank and its number of pushes, which avoids the ABA problem.
//!
//! A `Licence` word holds flags: [`PENDING`] until the process is on the stack, then [`HELD`];
//! [`IN_USE`] while the owner holds locks by it; [`REVOKED`] when it must not be used again. After
//! a revocation the registration is removed by the revoking process if the licence was idle, else
//! by the owner at its last use. Then the word is 0 and the owner may ask for a licence again.

use super::lock::LockRequest;
use super::port::{LockMemory, LockWord, Rank};
use super::replay::{Replay, Suspended};
use super::slab::Key;

/// Rank that holds the window-wide words.
const HOME: Rank = 0;
const ONE_RIGHT: u64 = 1 << 32;
const ONE_LOCK_ALL: u64 = 1;

const HELD: u64 = 1 << 32;
const REVOKED: u64 = 2 << 32;
const PENDING: u64 = 4 << 32;
const IN_USE: u64 = 1;
/// In `NextLicensed`: the owner is on the stack but has not written its link.
const UNLINKED: u64 = u64::MAX;

fn lock_alls(holders: u64) -> u32 {
    holders as u32
}

fn rights(holders: u64) -> u32 {
    (holders >> 32) as u32
}

/// The right under which an exclusive lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExclusiveRight {
    Registered,
    Licensed,
}

/// Result of [`register`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RegisterOutcome {
    Held(ExclusiveRight),
    /// Registered. No further lock_all can start, but some are still held.
    Draining,
    /// The new licence was revoked before its first use, so there is no right.
    Revoked,
}

/// What this process knows of its own licence.
#[derive(Debug)]
pub(super) struct Licensing {
    /// This process has a licence, unless it was revoked since.
    licensed: bool,
    /// A lock operation on the licence is pending: it is being acquired, taken into use or made
    /// idle. Locks that need a right wait for the end of that operation.
    changing: bool,
    /// Number of locks held under the licence. Only the first and the last of them access its word.
    uses: u32,
    /// Locks that wait for the pending operation, with their epochs.
    waiting: Vec<(Key, LockRequest)>,
    /// Registrations since the last revocation, and how many precede the next licence.
    registrations: u32,
    threshold: u32,
    /// Licences that this process has asked for so far.
    pushes: u32,
}

/// How an exclusive lock that is first in its queue gets its right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Acquisition {
    /// Share the licence that is in use.
    InUse,
    /// Take the idle licence into use: [`begin_use`].
    UseIdle,
    /// Register, for a new licence if there is a number: [`register`] with this argument.
    Register(Option<u32>),
    /// Wait for the pending operation on the licence.
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

    /// Notes a revocation, perhaps before the first use. The delay before the next request prevents
    /// a livelock between a lock_all that revokes and an owner that asks again at once.
    pub(super) fn revoked(&mut self) {
        self.registrations = 0;
        self.threshold = self.threshold.saturating_mul(2);
    }

    /// Chooses how a lock gets its right. If the lock has to wait, [`changed`](Self::changed)
    /// returns it later.
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
        if std::mem::take(&mut self.licensed) {
            self.revoked();
        }
        self.registrations = self.registrations.saturating_add(1);
        // The word must be 0: a previous licence may still be ending.
        if self.registrations <= self.threshold || word != 0 {
            return Acquisition::Register(None);
        }
        self.changing = true;
        self.pushes = self.pushes.wrapping_add(1);
        Acquisition::Register(Some(self.pushes))
    }

    /// True if the licence is idle and no other lock asks for a right. The caller must then run
    /// [`begin_use`].
    #[inline(always)]
    pub(super) fn begins(&mut self, mem: &mut impl LockMemory) -> bool {
        let begins = !self.changing && self.uses == 0 && is_licensed(mem);
        self.changing |= begins;
        begins
    }

    /// The licence is in use by its first lock, and no other lock waits for it.
    #[inline(always)]
    pub(super) fn begun_alone(&mut self) {
        debug_assert!(self.waiting.is_empty());
        self.begun();
        self.changing = false;
    }

    /// The licence is in use by its first lock.
    #[inline(always)]
    pub(super) fn begun(&mut self) {
        (self.licensed, self.uses) = (true, 1);
    }

    /// A lock under the licence was released. True if it was the last one: run [`end_use`].
    #[inline(always)]
    pub(super) fn ends(&mut self) -> bool {
        self.uses -= 1;
        self.changing = self.uses == 0;
        self.changing
    }

    /// The pending operation on the licence has ended. Returns the locks that waited for it.
    #[inline(always)]
    pub(super) fn changed(&mut self) -> Vec<(Key, LockRequest)> {
        self.changing = false;
        std::mem::take(&mut self.waiting)
    }
}

/// True if this process has a licence that is not revoked. Every lock_all that waits now then
/// arrived after the licence was issued.
#[inline]
pub(super) fn is_licensed(mem: &mut impl LockMemory) -> bool {
    mem.look(LockWord::Licence) & (HELD | REVOKED) == HELD
}

/// Takes the idle licence into use. False if it is revoked.
#[inline(always)]
pub(super) fn begin_use(mem: &mut Replay<'_, impl LockMemory>) -> Result<bool, Suspended> {
    // A compare-and-swap, because an addition would also use a licence that was revoked meanwhile.
    Ok(mem.compare_swap(mem.me(), LockWord::Licence, HELD, HELD | IN_USE)? == HELD)
}

/// Makes the licence idle. If it was revoked meanwhile, removes the registration.
#[inline(always)]
pub(super) fn end_use(mem: &mut Replay<'_, impl LockMemory>) -> Result<(), Suspended> {
    if mem.add(mem.me(), LockWord::Licence, IN_USE.wrapping_neg())? & REVOKED != 0 {
        mem.store(mem.me(), LockWord::Licence, 0)?;
        deregister(mem)?;
    }
    Ok(())
}

/// Registers this process. With `push`, the number of licences that it has asked for so far, the
/// registration becomes a licence, and the lock is its first use.
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
    // If the licence is revoked already, the revoking process removes the registration.
    Ok(if met == PENDING {
        RegisterOutcome::Held(ExclusiveRight::Licensed)
    } else {
        RegisterOutcome::Revoked
    })
}

#[inline(always)]
pub(super) fn deregister(mem: &mut Replay<'_, impl LockMemory>) -> Result<(), Suspended> {
    mem.add(HOME, LockWord::Holders, ONE_RIGHT.wrapping_neg())?;
    Ok(())
}

/// Tries to start a lock_all. True if it is held; otherwise it holds nothing and is counted as
/// waiting.
#[inline(always)]
pub(super) fn enter_all(mem: &mut Replay<'_, impl LockMemory>) -> Result<bool, Suspended> {
    if rights(mem.add(HOME, LockWord::Holders, ONE_LOCK_ALL)?) == 0 {
        return Ok(true);
    }
    mem.add(HOME, LockWord::Holders, ONE_LOCK_ALL.wrapping_neg())?;
    count_intent(mem, |arrived, served| (arrived.wrapping_add(1), served))?;
    Ok(false)
}

/// Result of [`retry_all`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RetryOutcome {
    Held,
    /// A licence was revoked. Retry at once, as there may be another.
    Revoked,
    Waiting,
}

/// Retries a waiting lock_all: takes it if no right is out, otherwise revokes one licence.
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

/// Pops the top licence, if any, and revokes it.
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

#[inline(always)]
pub(super) fn leave_all(mem: &mut Replay<'_, impl LockMemory>) -> Result<(), Suspended> {
    mem.add(HOME, LockWord::Holders, ONE_LOCK_ALL.wrapping_neg())?;
    Ok(())
}

/// True if no lock_all is held.
pub(super) fn is_drained(mem: &mut Replay<'_, impl LockMemory>) -> Result<bool, Suspended> {
    Ok(lock_alls(mem.load(HOME, LockWord::Holders)?) == 0)
}

/// How many lock_alls had to wait so far, and how many of them were served [LK-6].
pub(super) fn intent(mem: &mut Replay<'_, impl LockMemory>) -> Result<(u32, u32), Suspended> {
    let intent = mem.load(HOME, LockWord::Intent)?;
    Ok((intent as u32, (intent >> 32) as u32))
}

/// Increments one half of `Intent` without a carry into the other half.
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
