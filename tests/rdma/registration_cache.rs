//! The registration cache over memory that comes and goes, with a device that really pins pages.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::sync::Mutex;

use mpix_rma::transport::rdma::device::*;
use mpix_rma::transport::rdma::registration_cache::*;

const PAGE: usize = 4096;

/// A device that pins the first page of each registration, by a reference in a pipe.
#[derive(Debug, Default)]
struct PinningDevice {
    held: std::collections::HashMap<u64, (std::io::PipeReader, usize)>,
    next: u64,
    /// Bytes that may be registered.
    room: usize,
    /// Registrations with on-demand paging, if the device has it.
    paged: Option<std::collections::HashMap<u64, usize>>,
}

impl PinningDevice {
    fn with_room(room: usize) -> Self {
        PinningDevice { room, ..PinningDevice::default() }
    }

    fn on_demand(&mut self, at: usize) -> Result<MemoryRegion, RegistrationError> {
        let Some(paged) = &mut self.paged else {
            return Err(RegistrationError::NoOnDemandPaging);
        };
        self.next += 1;
        paged.insert(self.next, at);
        Ok(MemoryRegion { id: self.next, lkey: 1, rkey: 1 })
    }

    /// What a device would read there: the first bytes of the page that is pinned, or mapped now.
    fn reads(&self, id: RegistrationId) -> u64 {
        if let Some(at) = self.paged.as_ref().and_then(|paged| paged.get(&id.1)) {
            return unsafe { (*at as *const u64).read() };
        }
        let (pipe, _) = &self.held[&id.1];
        let (mut out, into) = std::io::pipe().unwrap();
        let got = unsafe { libc::tee(pipe.as_raw_fd(), into.as_raw_fd(), PAGE, 0) };
        assert_eq!(got, PAGE as isize, "{}", std::io::Error::last_os_error());
        let mut bytes = [0; 8];
        out.read_exact(&mut bytes).unwrap();
        u64::from_ne_bytes(bytes)
    }

    fn bytes(&self) -> usize {
        self.held.values().map(|(_, len)| len).sum()
    }
}

impl Device for PinningDevice {
    unsafe fn register(
        &mut self,
        at: usize,
        len: usize,
        on_demand: bool,
    ) -> Result<MemoryRegion, RegistrationError> {
        if on_demand {
            return self.on_demand(at);
        }
        if self.bytes() + len > self.room {
            return Err(RegistrationError::OutOfMemory(len));
        }
        let (reader, writer) = std::io::pipe().unwrap();
        let page = libc::iovec { iov_base: at as *mut _, iov_len: PAGE };
        let got = unsafe { libc::vmsplice(writer.as_raw_fd(), &raw const page, 1, 0) };
        if got != PAGE as isize {
            return Err(RegistrationError::Refused { bytes: len, errno: libc::EFAULT });
        }
        self.next += 1;
        self.held.insert(self.next, (reader, len));
        Ok(MemoryRegion { id: self.next, lkey: 1, rkey: 1 })
    }
    fn unregister(&mut self, id: u64) {
        let paged = self.paged.as_mut().is_some_and(|paged| paged.remove(&id).is_some());
        assert!(paged || self.held.remove(&id).is_some(), "unregistered twice");
    }
    fn limits(&self) -> DeviceLimits {
        unreachable!()
    }
    fn address(&self) -> PortAddress {
        unreachable!()
    }
    fn name(&self) -> String {
        unreachable!()
    }
    fn create_qp(&mut self) -> Result<(Qp, u32), DeviceError> {
        unreachable!()
    }
    fn connect_qp(&mut self, _: Qp, _: u32, _: &PortAddress) -> Result<(), DeviceError> {
        unreachable!()
    }
    fn next_event(&mut self) -> Option<DeviceEvent> {
        unreachable!()
    }
    fn destroy_qp(&mut self, _: Qp, _: bool, _: &mut VecDeque<Completion>) {}
    unsafe fn post_send(
        &mut self,
        _: Qp,
        _: &WorkRequest,
        _: &[LocalSegment],
    ) -> Result<(), DeviceError> {
        unreachable!()
    }
    unsafe fn post_receive(&mut self, _: u32, _: usize, _: u32, _: u32) -> Result<(), DeviceError> {
        unreachable!()
    }
    fn poll(&mut self, _: &mut VecDeque<Completion>) -> bool {
        false
    }
    fn status_text(&self, _: u32) -> String {
        unreachable!()
    }
}

const LEN: usize = 16 * PAGE;
/// Most registrations in the cache.
const MAX_CACHED: usize = 1024;

fn map_at(at: usize, len: usize, flags: i32) -> usize {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags;
    let got =
        unsafe { libc::mmap(at as *mut _, len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    assert_ne!(got, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
    got as usize
}

/// New memory with a guard page on either side.
fn map() -> usize {
    map_at(0, LEN + 2 * PAGE, libc::MAP_NORESERVE) + PAGE
}

fn unmap(at: usize, len: usize) {
    assert_eq!(unsafe { libc::munmap(at as *mut _, len) }, 0);
}

fn set(at: usize, value: u64) {
    unsafe { (at as *mut u64).write_volatile(value) };
}

/// Uses memory once. Returns what the device reads there, and whether a registration was found.
fn used(
    cache: &mut RegistrationCache,
    device: &mut PinningDevice,
    at: usize,
    len: usize,
) -> (u64, bool) {
    let before = cache.stats().hits;
    let (id, _) = unsafe { cache.acquire(device, at, len, false) }.expect("it can be registered");
    let read = device.reads(id);
    cache.release(device, id);
    (read, cache.stats().hits > before)
}

/// Whether this machine reports unmapped memory.
pub fn is_supported() -> bool {
    // With the flags that the library uses.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | 1) };
    if fd < 0 {
        println!("SKIPPED: userfaultfd: {}", std::io::Error::last_os_error());
        return false;
    }
    unsafe { libc::close(fd as i32) };
    true
}

/// Waits until `left` registrations are held: another thread reports unmapped memory.
fn wait_until_held(cache: &mut RegistrationCache, device: &mut PinningDevice, left: usize) {
    for turn in 0.. {
        cache.drop_stale(device);
        if device.held.len() == left {
            break;
        }
        assert!(turn < 10_000_000, "{} are held", device.held.len());
        std::thread::yield_now();
    }
}

fn started() -> (RegistrationCache, PinningDevice) {
    (RegistrationCache::new(1 << 30), PinningDevice::with_room(usize::MAX))
}

type Way = (&'static str, fn(usize));

/// Ways to replace the pages of a buffer by others at the same address.
const WAYS: [Way; 8] = [
    ("munmap and mmap", |at| {
        unmap(at, LEN);
        map_at(at, LEN, libc::MAP_FIXED_NOREPLACE);
    }),
    ("mmap over it", |at| _ = map_at(at, LEN, libc::MAP_FIXED)),
    ("munmap of its first page", |at| {
        unmap(at, PAGE);
        map_at(at, PAGE, libc::MAP_FIXED_NOREPLACE);
    }),
    ("MADV_DONTNEED", |at| {
        assert_eq!(unsafe { libc::madvise(at as *mut _, LEN, libc::MADV_DONTNEED) }, 0)
    }),
    ("MADV_DONTNEED of a page", |at| {
        assert_eq!(unsafe { libc::madvise(at as *mut _, PAGE, libc::MADV_DONTNEED) }, 0)
    }),
    ("mremap to another address", |at| {
        let moved = unsafe { libc::mremap(at as *mut _, LEN, LEN + PAGE, libc::MREMAP_MAYMOVE) };
        assert_ne!(moved, libc::MAP_FAILED);
        assert_ne!(moved as usize, at, "there is something behind it");
        map_at(at, LEN, libc::MAP_FIXED_NOREPLACE);
        unmap(moved as usize, LEN + PAGE);
    }),
    ("mremap of others over it", |at| {
        let other = map();
        set(other, 1);
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        let moved =
            unsafe { libc::mremap(other as *mut _, LEN, LEN, flags, at as *mut libc::c_void) };
        assert_eq!(moved as usize, at);
    }),
    ("memory made larger elsewhere", |at| {
        unmap(at + PAGE, LEN - PAGE);
        let moved = unsafe { libc::mremap(at as *mut _, PAGE, 4 * LEN, libc::MREMAP_MAYMOVE) };
        assert_ne!(moved, libc::MAP_FAILED);
        if moved as usize != at {
            map_at(at, LEN, libc::MAP_FIXED_NOREPLACE);
            unmap(moved as usize, 4 * LEN);
        } else {
            unmap(at, PAGE);
            map_at(at, PAGE, libc::MAP_FIXED_NOREPLACE);
        }
    }),
];

#[test]
fn remapped_memory_is_registered_again() {
    if !is_supported() {
        return;
    }
    let (mut cache, mut device) = started();
    for (name, way) in WAYS {
        let at = map();
        set(at, 1);
        assert_eq!(used(&mut cache, &mut device, at, LEN), (1, false), "{name}");
        assert_eq!(used(&mut cache, &mut device, at, LEN), (1, true), "{name}: it was kept");
        assert!(used(&mut cache, &mut device, at + PAGE, LEN - PAGE).1, "{name}: a part of it");
        let before = cache.stats().invalidations;
        way(at);
        set(at, 2);
        assert_eq!(used(&mut cache, &mut device, at, LEN), (2, false), "{name}");
        assert_eq!(cache.stats().invalidations, before + 1, "{name}");
        assert_eq!(used(&mut cache, &mut device, at, LEN), (2, true), "{name}: again");
    }
    assert_eq!(device.held.len(), WAYS.len());
    cache.end(&mut device);
    assert!(device.held.is_empty());
}

/// An evicted registration may share pages with the new one, which stay monitored.
#[test]
fn an_eviction_keeps_shared_pages_monitored() {
    if !is_supported() {
        return;
    }
    let (mut cache, mut device) = (RegistrationCache::new(1 << 30), PinningDevice::with_room(LEN));
    let at = map();
    let (second, len) = (at + 2 * PAGE, LEN - 2 * PAGE);
    set(second, 1);
    assert!(!used(&mut cache, &mut device, at, LEN - PAGE).1);
    assert_eq!(used(&mut cache, &mut device, second, len), (1, false));
    assert_eq!(cache.stats().evictions, 1);
    unmap(second, PAGE);
    map_at(second, PAGE, libc::MAP_FIXED_NOREPLACE);
    set(second, 2);
    assert_eq!(used(&mut cache, &mut device, second, len), (2, false), "the old page is used");
    cache.end(&mut device);
}

#[test]
fn the_heap_may_shrink_and_grow() {
    if !is_supported() {
        return;
    }
    // In a child process: other threads move the end of the heap as well.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let done = std::panic::catch_unwind(|| {
            let (mut cache, mut device) = started();
            let end = unsafe { libc::sbrk(0) } as usize;
            let at = end.next_multiple_of(PAGE);
            for value in 1..4 {
                assert_eq!(unsafe { libc::brk((at + LEN) as *mut _) }, 0);
                set(at, value);
                assert_eq!(used(&mut cache, &mut device, at, LEN), (value, false));
                assert_eq!(used(&mut cache, &mut device, at, LEN), (value, true));
                assert_eq!(unsafe { libc::brk(at as *mut _) }, 0);
            }
        });
        unsafe { libc::_exit(i32::from(done.is_err())) };
    }
    let mut status = 0;
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
}

#[test]
fn a_registration_in_use_stays_until_released() {
    if !is_supported() {
        return;
    }
    let (mut cache, mut device) = started();
    let at = map();
    set(at, 1);
    let (first, _) = unsafe { cache.acquire(&mut device, at, LEN, false) }.unwrap();
    // A part of a registration in use may be unmapped by its owner.
    unmap(at + PAGE, LEN - PAGE);
    map_at(at + PAGE, LEN - PAGE, libc::MAP_FIXED_NOREPLACE);
    set(at + PAGE, 2);
    assert_eq!(used(&mut cache, &mut device, at + PAGE, PAGE), (2, false));
    assert_eq!(device.held.len(), 2);
    assert_eq!(device.reads(first), 1);
    cache.release(&mut device, first);
    assert_eq!(device.held.len(), 1, "it ends with its user");
    assert_eq!(
        used(&mut cache, &mut device, at + PAGE, PAGE),
        (2, true),
        "the other one is monitored as before"
    );
    unmap(at + PAGE, PAGE);
    wait_until_held(&mut cache, &mut device, 0);
    cache.end(&mut device);
}

#[test]
fn memory_of_files_is_not_cached() {
    if !is_supported() {
        return;
    }
    let (mut cache, mut device) = started();
    let fd = unsafe { libc::memfd_create(c"file".as_ptr(), libc::MFD_CLOEXEC) };
    assert_eq!(unsafe { libc::ftruncate(fd, LEN as i64) }, 0);
    for flags in [libc::MAP_SHARED, libc::MAP_PRIVATE] {
        // Beside cached memory.
        let at = map();
        set(at + LEN / 2, 1);
        assert_eq!(used(&mut cache, &mut device, at + LEN / 2, LEN / 2), (1, false));
        let got = unsafe {
            libc::mmap(
                at as *mut _,
                LEN / 2,
                libc::PROT_READ | libc::PROT_WRITE,
                flags | libc::MAP_FIXED,
                fd,
                0,
            )
        };
        assert_eq!(got as usize, at);
        set(at, 5);
        assert_eq!(used(&mut cache, &mut device, at, LEN), (5, false));
        // This is not reported.
        assert_eq!(unsafe { libc::ftruncate(fd, 0) + libc::ftruncate(fd, LEN as i64) }, 0);
        set(at, 6);
        assert_eq!(used(&mut cache, &mut device, at, LEN), (6, false));
        assert_eq!(
            used(&mut cache, &mut device, at + LEN / 2, LEN / 2),
            (1, true),
            "it is still monitored"
        );
        unmap(at + LEN / 2, PAGE);
        wait_until_held(&mut cache, &mut device, 0);
    }
    cache.end(&mut device);
}

#[test]
fn the_cache_is_bounded() {
    if !is_supported() {
        return;
    }
    let mut device = PinningDevice::with_room(usize::MAX);
    let mut cache = RegistrationCache::new(8 * LEN as u64);
    let buffers: Vec<usize> = (0..32).map(|_| map()).collect();
    for round in 0..3 {
        for at in &buffers {
            set(*at, 7);
            used(&mut cache, &mut device, *at, LEN);
            assert!(device.bytes() <= 8 * LEN, "round {round}");
            assert_eq!(cache.monitored().0, device.bytes());
        }
    }
    assert!(cache.stats().evictions >= 80, "{:?}", cache.stats());
    // The last one is still cached, and one that is used again and again stays.
    assert!(used(&mut cache, &mut device, buffers[31], LEN).1);
    for at in &buffers {
        used(&mut cache, &mut device, *at, LEN);
        assert!(used(&mut cache, &mut device, buffers[31], LEN).1);
    }
    // What exceeds the bound is registered for its use alone.
    let large = map_at(0, 9 * LEN, 0);
    assert!(!used(&mut cache, &mut device, large, 9 * LEN).1);
    assert!(!used(&mut cache, &mut device, large, 9 * LEN).1);
    cache.set_bound(&mut device, 0);
    assert_eq!((device.held.len(), cache.monitored().1), (0, 0));
    for _ in 0..2 {
        assert!(!used(&mut cache, &mut device, buffers[0], LEN).1);
    }
    assert_eq!(device.held.len(), 0);
    cache.end(&mut device);
}

#[test]
fn the_number_of_registrations_is_bounded() {
    if !is_supported() {
        return;
    }
    let (mut cache, mut device) = started();
    // Pipes are descriptors, of which there may be too few.
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    limit.rlim_cur = limit.rlim_max;
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    if limit.rlim_cur < 2 * MAX_CACHED as u64 {
        println!("SKIPPED: too few descriptors");
        return;
    }
    let at = map_at(0, 4 * MAX_CACHED * PAGE, libc::MAP_NORESERVE);
    for place in 0..2 * MAX_CACHED {
        set(at + 2 * place * PAGE, 1);
        used(&mut cache, &mut device, at + 2 * place * PAGE, 8);
        assert!(device.held.len() <= MAX_CACHED && cache.monitored().1 <= MAX_CACHED);
    }
    assert!(device.held.len() > MAX_CACHED * 3 / 4);
    cache.end(&mut device);
}

#[test]
fn the_cache_is_evicted_where_memory_is_short() {
    if !is_supported() {
        return;
    }
    let mut device = PinningDevice::with_room(4 * LEN);
    let mut cache = RegistrationCache::new(1 << 30);
    for value in 1..20 {
        let at = map();
        set(at, value);
        assert_eq!(used(&mut cache, &mut device, at, LEN), (value, false));
    }
    let window = map_at(0, 4 * LEN, 0);
    let (id, _) =
        unsafe { cache.add(&mut device, window, window + 4 * LEN) }.expect("all that is kept goes");
    assert_eq!(device.held.len(), 1);
    assert!(unsafe { cache.acquire(&mut device, map(), LEN, false) }.is_err());
    cache.release(&mut device, id);
    assert!(cache.monitored().1 == 0);
    cache.end(&mut device);
}

#[test]
fn memory_that_cannot_be_locked_is_paged_on_demand() {
    if !is_supported() {
        return;
    }
    let mut device =
        PinningDevice { paged: Some(Default::default()), ..PinningDevice::with_room(LEN) };
    let mut cache = RegistrationCache::new(1 << 30);
    let (small, at) = (map(), map_at(0, 2 * LEN, 0));
    set(small, 5);
    assert_eq!(used(&mut cache, &mut device, small, LEN), (5, false));
    for value in 1..4 {
        set(at, value);
        // It locks nothing, and follows what is mapped.
        assert_eq!(used(&mut cache, &mut device, at, 2 * LEN), (value, value > 1));
        assert!(used(&mut cache, &mut device, at + LEN, LEN).1);
        assert_eq!((device.held.len(), cache.monitored()), (0, (0, 0)));
        // In one step: other threads of this process map memory too, and might take the gap.
        map_at(at, 2 * LEN, libc::MAP_FIXED);
    }
    assert_eq!(cache.stats().invalidations, 0);
    // So is memory larger than half of the machine's, even if there is room.
    device.room = usize::MAX;
    let pages = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) } as usize;
    let large = map_at(0, (pages / 2 + 1) * PAGE, libc::MAP_NORESERVE);
    let (id, _) = unsafe { cache.add(&mut device, large, large + (pages / 2 + 1) * PAGE) }.unwrap();
    assert!(device.paged.as_ref().unwrap().contains_key(&id.1));
    cache.release(&mut device, id);
    device.paged.as_mut().unwrap().clear();
    device.paged = None;
    assert!(unsafe { cache.add(&mut device, large, large + (pages / 2 + 1) * PAGE) }.is_err());
    unmap(large, (pages / 2 + 1) * PAGE);
}

#[test]
fn without_a_bound_registrations_are_shared_while_used() {
    let (mut cache, mut device) = (RegistrationCache::new(0), PinningDevice::with_room(usize::MAX));
    let at = map();
    for value in 0..4 {
        set(at, value);
        let (first, _) = unsafe { cache.acquire(&mut device, at, LEN, false) }.unwrap();
        assert_eq!(used(&mut cache, &mut device, at, LEN), (value, true), "shared meanwhile");
        cache.release(&mut device, first);
        assert!(device.held.is_empty());
        WAYS[0].1(at);
    }
    cache.end(&mut device);
}

#[test]
fn discarded_holes_are_not_cached() {
    if !is_supported() {
        return;
    }
    let (mut cache, mut device) = started();
    let at = map();
    set(at, 1);
    let mut with_holes = |cache: &mut RegistrationCache, expected: bool| {
        let before = cache.stats().hits;
        let (id, _) = unsafe { cache.acquire(&mut device, at, LEN, true) }.unwrap();
        assert_eq!(cache.stats().hits > before, expected);
        // Unmonitored memory is used by its owner only.
        let (other, _) = unsafe { cache.acquire(&mut device, at + PAGE, PAGE, false) }.unwrap();
        assert!(cache.monitored().0 > 0 || id != other);
        cache.release(&mut device, other);
        cache.release(&mut device, id);
    };
    with_holes(&mut cache, false);
    with_holes(&mut cache, true);
    // A page in a hole. Its report precedes the change, so another registration may come in
    // between.
    assert_eq!(unsafe { libc::madvise((at + 3 * PAGE) as *mut _, PAGE, libc::MADV_DONTNEED) }, 0);
    with_holes(&mut cache, false);
    with_holes(&mut cache, false);
    cache.end(&mut device);
    assert!(device.held.is_empty());
}

/// Addresses go from thread to thread through the kernel, while each thread uses its own memory.
#[test]
fn threads_that_remap_memory_never_reach_old_pages() {
    if !is_supported() {
        return;
    }
    let both = Mutex::new((RegistrationCache::new(1 << 30), PinningDevice::with_room(usize::MAX)));
    std::thread::scope(|scope| {
        for thread in 1..4_u64 {
            let both = &both;
            scope.spawn(move || {
                for round in 0..2000 {
                    let at = map_at(0, 2 * PAGE, 0);
                    let value = thread << 32 | round;
                    set(at, value);
                    for _ in 0..2 {
                        let mut both = both.lock().unwrap();
                        let (cache, device) = &mut *both;
                        assert_eq!(used(cache, device, at, 2 * PAGE).0, value);
                    }
                    unmap(at, 2 * PAGE);
                }
            });
        }
    });
    let (mut cache, mut device) = both.into_inner().unwrap();
    println!("{:?}", cache.stats());
    assert!(cache.stats().hits > 0 && cache.stats().invalidations > 0);
    wait_until_held(&mut cache, &mut device, 0);
    cache.end(&mut device);
}

/// A child inherits the descriptor. It may do with its memory what it likes, and the parent does
/// not depend on it.
#[test]
fn a_forked_child_and_its_parent_go_on() {
    if !is_supported() {
        return;
    }
    let (mut cache, mut device) = started();
    let (at, other) = (map(), map());
    set(at, 1);
    set(other, 1);
    used(&mut cache, &mut device, at, LEN);
    used(&mut cache, &mut device, other, LEN);
    let (mut wait, mut go) = std::io::pipe().unwrap();
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop(go);
        unmap(at, LEN);
        // The child's copy of the cache ends as well.
        cache.end(&mut device);
        // The child keeps the descriptor until the parent is done without it.
        _ = wait.read(&mut [0]);
        unsafe { libc::_exit(0) };
    }
    drop(wait);
    // (A device's pages stay the parent's; pages in a pipe do not.)
    assert!(used(&mut cache, &mut device, at, LEN).1);
    unmap(at, LEN);
    map_at(at, LEN, libc::MAP_FIXED_NOREPLACE);
    set(at, 3);
    assert_eq!(used(&mut cache, &mut device, at, LEN), (3, false));
    cache.end(&mut device);
    // Nobody listens any more, but the descriptor is open.
    unmap(at, LEN);
    unmap(other, LEN);
    go.write_all(&[1]).unwrap();
    let mut status = 0;
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
}
