//! The registration cache: memory of the application stays registered after an operation, for the
//! next one.
//!
//! A program may unmap a buffer as soon as its operation is complete, and map other memory at the
//! same address. A cached registration would then still reach the old pages. Therefore memory is
//! cached only while it is [monitored](super::monitor). The kernel reports an unmapping before the
//! call that caused it returns, and each lookup first applies the reports. Memory that cannot be
//! monitored is registered only while operations use it; concurrent operations share it.
//!
//! The cache is bounded in bytes and entries, and evicts the least recently used. It evicts all
//! unused registrations if memory cannot be registered otherwise.
//!
//! Window memory and the library's own [buffers](super::buffer_pool::BufferPool) are registered
//! once, for as long as they live.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::ops::Range;

use super::address_ranges::AddressRanges;
use super::device::{Device, MemoryRegion, RegistrationError};
use super::monitor::{Invalidation, InvalidationMonitor};

/// Most registrations that are cached. Monitoring one may split a mapping of the process in three,
/// and the kernel allows 65,530 mappings.
const MAX_CACHED: usize = 1024;
/// An eviction takes 1/16 of the unused registrations, because it has to sort all of them.
const EVICT_FRACTION: usize = 16;
/// Most registrations that a lookup inspects.
const MAX_PROBED: usize = 32;
/// Most discarded ranges that are remembered.
const MAX_DISCARDED_RANGES: usize = 64;

/// How a registration was made, and how long it lasts.
#[derive(Clone, Copy, Debug)]
struct RegistrationKind {
    /// It outlives its users. Unless on demand, its memory is monitored.
    cached: bool,
    /// It includes pages between the data of its operation, which no operation uses.
    holes: bool,
    /// The device faults pages in. So the registration is never stale, and no memory is locked.
    on_demand: bool,
}

#[derive(Debug)]
struct Registration {
    end: usize,
    region: MemoryRegion,
    users: u32,
    kind: RegistrationKind,
    /// Its memory was unmapped, moved or discarded, so it ends with its last user.
    stale: bool,
    /// Time of the last use, by `clock`.
    used: u64,
}

impl Registration {
    fn is_monitored(&self) -> bool {
        self.kind.cached && !self.stale && !self.kind.on_demand
    }
}

/// Counters of the registration cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Uses that found a registration.
    pub hits: u64,
    /// Uses that had to register.
    pub misses: u64,
    /// Registrations evicted to make room.
    pub evictions: u64,
    /// Registrations whose memory was unmapped, moved or discarded.
    pub invalidations: u64,
}

/// Registrations of application memory.
#[derive(Debug, Default)]
pub struct RegistrationCache {
    /// They may overlap.
    registrations: BTreeMap<RegistrationId, Registration>,
    stats: CacheStats,
    /// Most bytes to cache.
    bound: u64,
    /// Bytes that are cached, and in how many registrations.
    bytes: u64,
    count: usize,
    /// No registration was longer.
    longest: usize,
    clock: u64,
    /// Started when there is memory to monitor; then `None` if the kernel has no such monitor.
    monitor: OnceCell<Option<InvalidationMonitor>>,
    monitored: AddressRanges,
    /// A range that is monitored already, and about to be registered.
    pending: Option<(usize, usize)>,
    /// Ranges whose pages were discarded. The kernel reports this before it discards the pages, so
    /// a registration made in between may hold the old ones.
    discarded: AddressRanges,
    page: usize,
}

/// Identifies a registration: its first byte, and the device's handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RegistrationId(usize, pub u64);

/// The default bound of the cache in bytes: 1/16 of the machine's memory, but at most half of the
/// memory that the process may lock.
pub(super) fn default_bound() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call writes one `rlimit`, for which `limit` has room.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) } == 0;
    let locked = if known && limit.rlim_cur != libc::RLIM_INFINITY && !ignores_lock_limit() {
        limit.rlim_cur / 2
    } else {
        u64::MAX
    };
    locked.min(machine_memory() / 16)
}

/// Whether the process may lock memory without limit (`CAP_IPC_LOCK`).
fn ignores_lock_limit() -> bool {
    const IPC_LOCK: u32 = 14;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    capabilities
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .is_some_and(|set| set >> IPC_LOCK & 1 == 1)
}

/// The value of a system setting; 0 if unknown.
fn sysconf(name: i32) -> u64 {
    // SAFETY: the call takes any number and returns -1 for an unknown one.
    u64::try_from(unsafe { libc::sysconf(name) }).unwrap_or(0)
}

/// The machine's memory, in bytes.
fn machine_memory() -> u64 {
    sysconf(libc::_SC_PHYS_PAGES) * sysconf(libc::_SC_PAGESIZE)
}

impl RegistrationCache {
    /// An empty cache of at most `bound` bytes.
    #[must_use]
    pub fn new(bound: u64) -> Self {
        RegistrationCache {
            bound,
            page: usize::try_from(sysconf(libc::_SC_PAGESIZE)).unwrap_or(0).max(4096),
            ..RegistrationCache::default()
        }
    }

    /// Sets the bound in bytes, and evicts what exceeds it. 0 disables the cache.
    pub fn set_bound(&mut self, device: &mut dyn Device, bound: u64) {
        self.bound = bound;
        while (self.bytes > bound || bound == 0) && self.evict(device, EVICT_FRACTION) {}
    }

    /// Finds or makes a registration of `len` bytes at `addr`, and adds a user to it. With `holes`,
    /// the caller uses only parts of the range, and there may be whole pages between them.
    ///
    /// # Safety
    /// The memory that the caller uses must stay mapped until the registration is
    /// [released](Self::release).
    pub unsafe fn acquire(
        &mut self,
        device: &mut dyn Device,
        addr: usize,
        len: usize,
        holes: bool,
    ) -> Result<(RegistrationId, MemoryRegion), RegistrationError> {
        let (start, end) = (addr, addr + len);
        // Queried before the reports are taken, so that they include every change that has ended.
        let settled = !self.running_monitor().is_some_and(InvalidationMonitor::is_changing);
        self.take_invalidations(device);
        self.clock += 1;
        if let Some(id) = self.find(start, end, settled) {
            let found = self.registrations.get_mut(&id).expect("just found");
            found.users += 1;
            found.used = self.clock;
            self.stats.hits += 1;
            return Ok((id, found.region));
        }
        self.stats.misses += 1;
        let (start, end) = self.whole_pages(start, end);
        // Somebody may be about to discard the holes, in a call whose report was already taken.
        let cache = settled
            && !(holes && self.discarded.meets(start, end))
            && self.make_room(device, end - start)
            && self.monitor(start, end);
        // An eviction during `register` must not stop the monitoring of this range.
        self.pending = cache.then_some((start, end));
        // SAFETY: the caller keeps its memory mapped until the release (contract of this function),
        // and so the rest of its pages. Holes are registered only if mapped, and no operation
        // accesses them.
        let registered = unsafe { self.register(device, start, end) };
        self.pending = None;
        let (region, on_demand) = registered.inspect_err(|_| self.stop_monitoring(start, end))?;
        let mut cached = cache;
        if on_demand {
            // It needs no monitoring, and no room except an entry.
            self.stop_monitoring(start, end);
            cached =
                self.bound > 0 && (self.count < MAX_CACHED || self.evict(device, EVICT_FRACTION));
        }
        Ok((self.insert(start, end, region, RegistrationKind { cached, holes, on_demand }), region))
    }

    fn whole_pages(&self, start: usize, end: usize) -> (usize, usize) {
        (start & !(self.page - 1), end.next_multiple_of(self.page))
    }

    fn find(&self, start: usize, end: usize, settled: bool) -> Option<RegistrationId> {
        let last = RegistrationId(start, u64::MAX);
        let before = self.registrations.range(..=last).rev().take(MAX_PROBED);
        let mut reaching = before.take_while(|(id, _)| id.0 + self.longest >= end);
        // A registration that is not cached has users, which keep their memory mapped, but not the
        // holes.
        let is_valid = |found: &Registration| match found.kind {
            RegistrationKind { on_demand: true, .. } => true,
            RegistrationKind { cached: true, .. } => settled && !found.stale,
            RegistrationKind { holes, .. } => !holes,
        };
        reaching.find(|(_, found)| found.end >= end && is_valid(found)).map(|(id, _)| *id)
    }

    /// Registers memory whose lifetime the caller knows. The registration is not cached.
    ///
    /// # Safety
    /// The memory must stay mapped until the registration is released.
    pub unsafe fn add(
        &mut self,
        device: &mut dyn Device,
        start: usize,
        end: usize,
    ) -> Result<(RegistrationId, MemoryRegion), RegistrationError> {
        let (start, end) = self.whole_pages(start, end);
        // Locking allocates all pages. For a huge window that is mostly unused, that would take
        // memory from others, or the kernel would kill the process.
        let too_large = (end - start) as u64 > machine_memory() / 2;
        // SAFETY: the caller keeps the memory mapped until the release (contract of this function),
        // and so the rest of its pages.
        let (region, on_demand) = unsafe {
            if too_large {
                let region = device.register(start, end - start, true);
                (region.map_err(|why| RegistrationError::TooLarge(Box::new(why)))?, true)
            } else {
                self.register(device, start, end)?
            }
        };
        let kind = RegistrationKind { cached: false, holes: false, on_demand };
        Ok((self.insert(start, end, region, kind), region))
    }

    /// Removes a user.
    pub fn release(&mut self, device: &mut dyn Device, id: RegistrationId) {
        let Some(found) = self.registrations.get_mut(&id) else { return };
        found.users -= 1;
        if found.users == 0 && (!found.kind.cached || found.stale) {
            self.remove(device, id);
        }
    }

    /// Hits, misses, evictions and invalidations so far.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        self.stats
    }

    /// Bytes that are monitored, and the number of their ranges.
    #[must_use]
    pub fn monitored(&self) -> (usize, usize) {
        (self.monitored.all().map(|(start, end)| end - start).sum(), self.monitored.len())
    }

    /// Ends stale registrations, so that no unmapped memory stays locked.
    pub fn drop_stale(&mut self, device: &mut dyn Device) {
        if self.running_monitor().is_some_and(InvalidationMonitor::has_reports) {
            self.take_invalidations(device);
        }
    }

    /// Registers memory, with on-demand paging if it cannot be locked. Returns whether that was
    /// used.
    ///
    /// # Safety
    /// The memory must stay mapped until it is unregistered, unless nobody accesses it through the
    /// registration.
    unsafe fn register(
        &mut self,
        device: &mut dyn Device,
        start: usize,
        end: usize,
    ) -> Result<(MemoryRegion, bool), RegistrationError> {
        let (mut on_demand, mut reason) = (false, None);
        loop {
            // SAFETY: the caller keeps the memory mapped until it is unregistered.
            match unsafe { device.register(start, end - start, on_demand) } {
                Ok(region) => return Ok((region, on_demand)),
                Err(why) if on_demand => return Err(reason.unwrap_or(why)),
                Err(RegistrationError::OutOfMemory(_)) if self.evict(device, 2) => {}
                Err(why @ RegistrationError::OutOfMemory(_)) => {
                    (on_demand, reason) = (true, Some(why));
                }
                Err(why) => return Err(why),
            }
        }
    }

    fn insert(
        &mut self,
        start: usize,
        end: usize,
        region: MemoryRegion,
        kind: RegistrationKind,
    ) -> RegistrationId {
        if kind.cached {
            self.count += 1;
            self.bytes += if kind.on_demand { 0 } else { (end - start) as u64 };
        }
        self.longest = self.longest.max(end - start);
        let id = RegistrationId(start, region.id);
        let new = Registration { end, region, users: 1, kind, stale: false, used: self.clock };
        self.registrations.insert(id, new);
        id
    }

    /// Ends a registration without users.
    fn remove(&mut self, device: &mut dyn Device, id: RegistrationId) {
        let Some(removed) = self.registrations.remove(&id) else { return };
        device.unregister(removed.region.id);
        if removed.kind.cached {
            self.count -= 1;
            if !removed.kind.on_demand {
                self.bytes -= (removed.end - id.0) as u64;
                self.stop_monitoring(id.0, removed.end);
            }
        }
    }

    /// Makes room for `len` more bytes. Returns false if they do not fit.
    fn make_room(&mut self, device: &mut dyn Device, len: usize) -> bool {
        let len = len as u64;
        let fits = |cache: &Self| cache.bytes + len <= cache.bound && cache.count < MAX_CACHED;
        while len <= self.bound && !fits(self) && self.evict(device, EVICT_FRACTION) {}
        fits(self)
    }

    /// Evicts the least recently used 1/`fraction` of the unused registrations, but at least one.
    /// Returns false if there is none.
    pub(super) fn evict(&mut self, device: &mut dyn Device, fraction: usize) -> bool {
        let unused = self.registrations.iter().filter(|(_, it)| it.kind.cached && it.users == 0);
        let mut unused: Vec<_> = unused.map(|(id, it)| (it.used, *id)).collect();
        unused.sort_unstable();
        unused.truncate((unused.len() / fraction).max(1));
        self.stats.evictions += unused.len() as u64;
        unused.iter().for_each(|(_, id)| self.remove(device, *id));
        !unused.is_empty()
    }

    // Monitoring.

    fn running_monitor(&self) -> Option<&InvalidationMonitor> {
        self.monitor.get()?.as_ref()
    }

    /// Monitors a range. Returns false if it cannot be monitored.
    fn monitor(&mut self, start: usize, end: usize) -> bool {
        let monitor = self.monitor.get_or_init(|| {
            let started = InvalidationMonitor::start();
            started
                .inspect_err(|error| {
                    log::info!(
                        "verbs: the registration cache is off: no userfaultfd to report unmapped \
                         memory: {error}"
                    );
                })
                .ok()
        });
        let Some(monitor) = monitor else { return false };
        let added = monitor.add(start, end);
        if matches!(&added, Err(error) if error.raw_os_error() != Some(libc::ENOMEM)) {
            return false;
        }
        // If memory was short, parts of the range may be monitored.
        self.monitored.add(start, end);
        let complete = added.is_ok_and(|complete| complete);
        if !complete {
            self.stop_monitoring(start, end);
        }
        complete
    }

    /// Stops monitoring a range, except where cached registrations need it.
    fn stop_monitoring(&mut self, start: usize, end: usize) {
        let Some(Some(monitor)) = self.monitor.get() else { return };
        let needed = self.registrations.range(self.may_meet(start, end));
        let mut free = AddressRanges::default();
        free.add(start, end);
        for (id, it) in needed.filter(|(_, it)| it.is_monitored() && it.end > start) {
            free.remove(id.0, it.end);
        }
        if let Some((start, end)) = self.pending {
            free.remove(start, end);
        }
        for (start, end) in free.all() {
            for (start, end) in self.monitored.remove(start, end) {
                monitor.remove(start, end);
            }
        }
    }

    /// The ids of all registrations that may meet a range of memory.
    fn may_meet(&self, start: usize, end: usize) -> Range<RegistrationId> {
        RegistrationId(start.saturating_sub(self.longest), 0)..RegistrationId(end, 0)
    }

    /// Applies the reports of the monitor.
    fn take_invalidations(&mut self, device: &mut dyn Device) {
        let Some(Some(monitor)) = self.monitor.get_mut() else { return };
        let reports = monitor.take();
        if reports.overflowed {
            self.invalidate(device, 0, usize::MAX);
            self.discarded.add(0, usize::MAX);
            return;
        }
        let mut moved = Vec::new();
        for report in reports.list.clone() {
            match report {
                Invalidation::Unmapped(start, end) => {
                    self.monitored.remove(start, end);
                    self.invalidate(device, start, end);
                }
                Invalidation::Discarded(start, end) => {
                    self.discarded.add(start, end);
                    if self.discarded.len() > MAX_DISCARDED_RANGES {
                        self.discarded.add(0, usize::MAX);
                    }
                    self.invalidate(device, start, end);
                }
                Invalidation::Moved { from, to, len } => {
                    self.invalidate(device, from, from + len);
                    // The kernel keeps monitoring it at its new address.
                    self.monitored.add(to, to + len);
                    moved.push((to, to + len));
                }
            }
        }
        moved.into_iter().for_each(|(start, end)| self.stop_monitoring(start, end));
    }

    /// Marks registrations of a range as stale, and removes those without users.
    fn invalidate(&mut self, device: &mut dyn Device, start: usize, end: usize) {
        let mut unused = Vec::new();
        for (id, it) in self.registrations.range_mut(self.may_meet(start, end)) {
            if it.is_monitored() && it.end > start {
                it.stale = true;
                self.stats.invalidations += 1;
                if it.users == 0 {
                    unused.push(*id);
                }
            }
        }
        unused.into_iter().for_each(|id| self.remove(device, id));
    }

    /// Ends all registrations. Call it before the device is dropped.
    pub fn end(&mut self, device: &mut dyn Device) {
        self.take_invalidations(device);
        while let Some((id, _)) = self.registrations.first_key_value() {
            self.remove(device, *id);
        }
        if let Some(monitor) = self.running_monitor() {
            self.monitored.all().for_each(|(start, end)| monitor.remove(start, end));
        }
        self.monitor = OnceCell::from(None);
    }
}
