//! The application's memory while operations use it, and after: registrations, kept for the next
//! operation.
//!
//! MPI lets a program unmap its buffer as soon as the operation is complete, and map other memory
//! at the same address; a registration that is kept would go on to reach the old pages. So one is
//! kept only while it is [watched](super::watch): the kernel tells of the pages' end before the
//! call that ends them returns, and every search first takes in what was told. What cannot be
//! watched is registered for as long as operations use it, and shared by those that do so
//! meanwhile.
//!
//! What is kept is bounded, in bytes and in number; what was not used for longest goes first, and
//! all of it if memory cannot be registered otherwise.
//!
//! What this library knows the life of is registered once: window memory, and its own buffers
//! ([`Pool`](super::pool::Pool)).

use std::collections::BTreeMap;

use super::address_ranges::AddressRanges;
use super::device::{Device, DeviceError, MemoryRegion, RegistrationError};
use super::monitor::{Invalidation, InvalidationMonitor};

/// Registrations that are kept. Each may split a mapping of the process in three, of which the
/// kernel lets it have 65,530.
const MAX_CACHED: usize = 1024;
/// Part of those kept that goes when there is no room: it is looked for among all.
const EVICT_FRACTION: usize = 16;
/// Registrations that are looked at for one that has the wanted bytes.
const MAX_PROBED: usize = 32;
/// Ranges of which it is remembered that they were emptied.
const MAX_DISCARDED_RANGES: usize = 64;

/// One registration.
#[derive(Debug)]
struct Registration {
    end: usize,
    registered: MemoryRegion,
    users: u32,
    /// It is watched, and stays when nobody uses it.
    kept: bool,
    /// What it reaches is not mapped there any more: it ends with its last user.
    stale: bool,
    /// It has pages that no operation has named.
    holes: bool,
    /// Its pages are brought in when they are needed, those that are mapped then: it cannot be
    /// stale, and locks nothing.
    on_demand: bool,
    /// When it was used last.
    used: u64,
}

impl Registration {
    fn is_watched(&self) -> bool {
        self.kept && !self.stale && !self.on_demand
    }
}

/// What kind of registration it is; see [`Region`].
#[derive(Clone, Copy, Debug)]
struct RegistrationKind {
    kept: bool,
    holes: bool,
    on_demand: bool,
}

/// How often memory was registered, and how often it already was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// It was registered.
    pub hits: u64,
    /// It had to be.
    pub misses: u64,
    /// Registrations that were given up to make room.
    pub evictions: u64,
    /// Registrations that were given up because their memory was unmapped, moved or given back.
    pub invalidations: u64,
}

/// The watch, which begins when there is something to watch.
#[derive(Debug)]
enum MonitorState {
    NotStarted,
    /// There is none.
    Unavailable,
    Running(InvalidationMonitor),
}

/// Registrations of the application's memory.
#[derive(Debug)]
pub struct RegistrationCache {
    /// By first byte. They may overlap.
    regions: BTreeMap<(usize, u64), Registration>,
    stats: CacheStats,
    /// Bytes that may be kept, those that are, and in how many.
    bound: u64,
    bytes: u64,
    count: usize,
    /// No registration is longer.
    longest: usize,
    clock: u64,
    watching: MonitorState,
    /// What is watched.
    watched: AddressRanges,
    /// What is about to be registered, and is watched already.
    coming: Option<(usize, usize)>,
    /// What was emptied at some time, and may be while it is registered: it is told before it is
    /// done.
    emptied: AddressRanges,
    page: usize,
}

/// Names a registration: where it begins, and the interface's name for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegistrationId(usize, pub u64);

/// Bytes of which registrations are kept if nothing else is said: half of what the process may
/// lock, a sixteenth of the machine's memory.
pub(super) fn default_bound() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: room for the answer.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) } == 0;
    let locked = if known && limit.rlim_cur != libc::RLIM_INFINITY && !may_lock() {
        limit.rlim_cur / 2
    } else {
        u64::MAX
    };
    locked.min(memory_here() / 16)
}

/// True if the limit of locked memory does not hold for this process.
fn may_lock() -> bool {
    const IPC_LOCK: u32 = 14;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let abilities = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    abilities
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .is_some_and(|set| set >> IPC_LOCK & 1 == 1)
}

/// Bytes of memory that this machine has.
fn memory_here() -> u64 {
    // SAFETY: two numbers of the system.
    let (pages, size) =
        unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    u64::try_from(pages).unwrap_or(0) * u64::try_from(size).unwrap_or(0)
}

impl RegistrationCache {
    /// None as yet; `bound` bytes may be kept.
    #[must_use]
    pub fn new(bound: u64) -> Self {
        // SAFETY: a number of the system.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        RegistrationCache {
            regions: BTreeMap::new(),
            stats: CacheStats::default(),
            bound,
            bytes: 0,
            count: 0,
            longest: 0,
            clock: 0,
            watching: MonitorState::NotStarted,
            watched: AddressRanges::default(),
            coming: None,
            emptied: AddressRanges::default(),
            page,
        }
    }

    /// Sets how many bytes may be kept. What is kept above that goes.
    pub fn set_bound(&mut self, device: &mut dyn Device, bound: u64) {
        self.bound = bound;
        while (self.bytes > bound || bound == 0) && self.evict(device, EVICT_FRACTION) {}
    }

    /// Uses memory: gives its keys. `holes`: the caller uses some of it, and there may be whole
    /// pages among the rest.
    ///
    /// # Safety
    /// The memory that is used must stay mapped until it is [released](Self::release).
    ///
    /// # Errors
    /// It cannot be registered: in words.
    pub unsafe fn acquire(
        &mut self,
        device: &mut dyn Device,
        at: usize,
        len: usize,
        holes: bool,
    ) -> Result<(RegistrationId, MemoryRegion), DeviceError> {
        let end = at + len;
        // Asked first: what it does not tell of has been told to the list.
        let sure = match &self.watching {
            MonitorState::Running(watch) => !watch.is_changing(),
            _ => true,
        };
        self.take_changes(device);
        self.clock += 1;
        if let Some(key) = self.find(at, end, sure) {
            let region = self.regions.get_mut(&key).expect("just found");
            region.users += 1;
            region.used = self.clock;
            self.stats.hits += 1;
            return Ok((RegistrationId(key.0, key.1), region.registered));
        }
        self.stats.misses += 1;
        let (at, end) = (at & !(self.page - 1), end.next_multiple_of(self.page));
        // Holes may be emptied by others while they are registered, who then have told it already.
        let keep = sure
            && !(holes && self.emptied.meets(at, end))
            && self.make_room(device, end - at)
            && self.watch(at, end);
        // What is given up to make room may overlap it.
        self.coming = keep.then_some((at, end));
        // SAFETY: the caller's promise; what shares a page with the memory is mapped as long. Holes
        // are registered only if they are mapped, and reached by nobody.
        let registered = unsafe { self.register(device, at, end) };
        self.coming = None;
        match registered {
            Ok((registered, on_demand)) => {
                let mut kept = keep;
                if on_demand {
                    // It needs no watch, and no room but a place.
                    self.leave(at, end);
                    kept = self.bound > 0
                        && (self.count < MAX_CACHED || self.evict(device, EVICT_FRACTION));
                }
                Ok((
                    self.insert(at, end, registered, RegistrationKind { kept, holes, on_demand }),
                    registered,
                ))
            }
            Err(reason) => {
                self.leave(at, end);
                Err(reason)
            }
        }
    }

    fn find(&self, at: usize, end: usize, sure: bool) -> Option<(usize, u64)> {
        let before = self.regions.range(..=(at, u64::MAX)).rev().take(MAX_PROBED);
        let reaching = before.take_while(|(key, _)| key.0 + self.longest >= end);
        // One that is not watched has users, whose memory is what it was; but for the holes
        // between.
        let mut good = reaching.filter(|(_, region)| {
            if region.on_demand {
                true
            } else if region.kept {
                sure && !region.stale
            } else {
                !region.holes
            }
        });
        good.find(|(_, region)| region.end >= end).map(|(key, _)| *key)
    }

    /// Registers memory whose life is known: a registration of its own.
    ///
    /// # Safety
    /// It must stay mapped until it is released.
    ///
    /// # Errors
    /// As for `acquire`.
    pub unsafe fn add(
        &mut self,
        device: &mut dyn Device,
        at: usize,
        end: usize,
    ) -> Result<(RegistrationId, MemoryRegion), DeviceError> {
        let (at, end) = (at & !(self.page - 1), end.next_multiple_of(self.page));
        // Registered memory is there, all of it: a large one that is mostly untouched would take
        // what others need, or the process with it. SAFETY: the caller's promise; what shares a
        // page with the memory is mapped as long.
        let (registered, on_demand) = unsafe {
            if (end - at) as u64 > memory_here() / 2 {
                let reason = |denied| {
                    DeviceError(format!(
                        "they are more than half of this machine's memory, and {denied}"
                    ))
                };
                (device.register(at, end - at, true).map_err(reason)?, true)
            } else {
                self.register(device, at, end)?
            }
        };
        Ok((
            self.insert(
                at,
                end,
                registered,
                RegistrationKind { kept: false, holes: false, on_demand },
            ),
            registered,
        ))
    }

    /// An operation does not need it any more.
    pub fn release(&mut self, device: &mut dyn Device, id: RegistrationId) {
        let Some(region) = self.regions.get_mut(&(id.0, id.1)) else { return };
        region.users -= 1;
        if region.users == 0 && (!region.kept || region.stale) {
            self.forget(device, (id.0, id.1));
        }
    }

    /// How often they were found.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        self.stats
    }

    /// Bytes that are watched, and in how many pieces.
    #[must_use]
    pub fn watched(&self) -> (usize, usize) {
        (self.watched.all().map(|(at, end)| end - at).sum(), self.watched.len())
    }

    /// Gives up what is kept and not there any more, so that it is not pinned for nothing.
    pub fn tidy(&mut self, device: &mut dyn Device) {
        if matches!(&self.watching, MonitorState::Running(watch) if watch.has_some()) {
            self.take_changes(device);
        }
    }

    /// Gives up all that nobody uses. False if there was nothing.
    pub(super) fn evict_all(&mut self, device: &mut dyn Device) -> bool {
        self.evict(device, 1)
    }

    /// Registers memory, on demand if there is no room otherwise; says if so.
    ///
    /// # Safety
    /// The memory must stay mapped until it is unregistered, or be a hole.
    unsafe fn register(
        &mut self,
        device: &mut dyn Device,
        at: usize,
        end: usize,
    ) -> Result<(MemoryRegion, bool), DeviceError> {
        loop {
            // SAFETY: the caller's promise.
            let registered = unsafe { device.register(at, end - at, false) };
            let reason = match registered {
                Ok(registered) => return Ok((registered, false)),
                Err(RegistrationError::OutOfMemory(_)) if self.evict(device, 2) => continue,
                Err(RegistrationError::OutOfMemory(reason)) => reason,
                Err(RegistrationError::Refused(reason)) => return Err(DeviceError(reason)),
            };
            // SAFETY: the caller's promise.
            let registered = unsafe { device.register(at, end - at, true) };
            return registered
                .map(|registered| (registered, true))
                .map_err(|_| DeviceError(reason));
        }
    }

    fn insert(
        &mut self,
        at: usize,
        end: usize,
        registered: MemoryRegion,
        kind: RegistrationKind,
    ) -> RegistrationId {
        let RegistrationKind { kept, holes, on_demand } = kind;
        if kept {
            self.count += 1;
            self.bytes += if on_demand { 0 } else { (end - at) as u64 };
        }
        self.longest = self.longest.max(end - at);
        let region = Registration {
            end,
            registered,
            users: 1,
            kept,
            stale: false,
            holes,
            on_demand,
            used: self.clock,
        };
        self.regions.insert((at, registered.id), region);
        RegistrationId(at, registered.id)
    }

    /// Ends a registration that nobody uses.
    fn forget(&mut self, device: &mut dyn Device, key: (usize, u64)) {
        let Some(region) = self.regions.remove(&key) else { return };
        device.unregister(region.registered.id);
        if region.kept {
            self.count -= 1;
            if !region.on_demand {
                self.bytes -= (region.end - key.0) as u64;
                self.leave(key.0, region.end);
            }
        }
    }

    // What is kept.

    /// Makes room for so many bytes among what is kept; false if there cannot be.
    fn make_room(&mut self, device: &mut dyn Device, len: usize) -> bool {
        let len = len as u64;
        if len > self.bound {
            return false;
        }
        while self.bytes + len > self.bound || self.count >= MAX_CACHED {
            if !self.evict(device, EVICT_FRACTION) {
                return false;
            }
        }
        true
    }

    /// Gives up a part (one in so many, but at least one) of what is kept and not used; false if
    /// there is nothing.
    fn evict(&mut self, device: &mut dyn Device, part: usize) -> bool {
        let idle = self.regions.iter().filter(|(_, region)| region.kept && region.users == 0);
        let mut idle: Vec<_> = idle.map(|(key, region)| (region.used, *key)).collect();
        idle.sort_unstable();
        let count = (idle.len() / part).max(1).min(idle.len());
        for (_, key) in &idle[..count] {
            self.stats.evictions += 1;
            self.forget(device, *key);
        }
        count > 0
    }

    fn watch(&mut self, at: usize, end: usize) -> bool {
        if matches!(self.watching, MonitorState::NotStarted) {
            self.watching = match InvalidationMonitor::start() {
                Ok(watch) => MonitorState::Running(watch),
                Err(error) => {
                    log::info!(
                        "verbs: registrations are not kept, since nothing tells of unmapped memory (userfaultfd: {error})"
                    );
                    MonitorState::Unavailable
                }
            };
        }
        let MonitorState::Running(watch) = &self.watching else { return false };
        let watched = watch.add(at, end);
        if matches!(&watched, Err(error) if error.raw_os_error() != Some(libc::ENOMEM)) {
            return false;
        }
        self.watched.add(at, end);
        let good = watched.is_ok_and(|good| good);
        if !good {
            self.leave(at, end);
        }
        good
    }

    /// A range is not watched any more but for what is kept.
    fn leave(&mut self, at: usize, end: usize) {
        let MonitorState::Running(watch) = &self.watching else { return };
        let from = (at.saturating_sub(self.longest), 0);
        let kept = self
            .regions
            .range(from..(end, 0))
            .filter(|(_, region)| region.is_watched() && region.end > at);
        let mut free = AddressRanges::default();
        free.add(at, end);
        kept.for_each(|(key, region)| free.remove(key.0, region.end));
        self.coming.iter().for_each(|(at, end)| free.remove(*at, *end));
        for (at, end) in free.all() {
            for (at, end) in self.watched.within(at, end) {
                watch.leave(at, end);
            }
            self.watched.remove(at, end);
        }
    }

    /// Takes in what was told.
    fn take_changes(&mut self, device: &mut dyn Device) {
        let MonitorState::Running(watch) = &mut self.watching else { return };
        let told = watch.take();
        if told.too_many {
            self.mark(device, 0, usize::MAX);
            self.emptied.add(0, usize::MAX);
            return;
        }
        if told.changes().is_empty() {
            return;
        }
        let changes = told.changes().to_vec();
        let mut moved = Vec::new();
        for change in changes {
            match change {
                Invalidation::Unmapped(at, end) => {
                    self.watched.remove(at, end);
                    self.mark(device, at, end);
                }
                Invalidation::Discarded(at, end) => {
                    self.emptied.add(at, end);
                    if self.emptied.len() > MAX_DISCARDED_RANGES {
                        self.emptied.add(0, usize::MAX);
                    }
                    self.mark(device, at, end);
                }
                Invalidation::Moved { from, to, len } => {
                    self.mark(device, from, from + len);
                    self.watched.add(to, to + len);
                    moved.push((to, to + len));
                }
            }
        }
        moved.into_iter().for_each(|(at, end)| self.leave(at, end));
    }

    /// Registrations of a range reach what is not there any more.
    fn mark(&mut self, device: &mut dyn Device, at: usize, end: usize) {
        let from = (at.saturating_sub(self.longest), 0);
        let mut over = Vec::new();
        for (key, region) in self.regions.range_mut(from..(end, 0)) {
            if region.is_watched() && region.end > at {
                region.stale = true;
                self.stats.invalidations += 1;
                if region.users == 0 {
                    over.push(*key);
                }
            }
        }
        over.into_iter().for_each(|key| self.forget(device, key));
    }

    /// Ends all, before the interface ends.
    pub fn end(&mut self, device: &mut dyn Device) {
        self.take_changes(device);
        let all: Vec<_> = self.regions.keys().copied().collect();
        all.into_iter().for_each(|key| self.forget(device, key));
        if let MonitorState::Running(watch) = &self.watching {
            self.watched.all().for_each(|(at, end)| watch.leave(at, end));
        }
        self.watching = MonitorState::Unavailable;
    }
}
