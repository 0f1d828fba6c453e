//! Memory of this process that all its peers on the node may map: its doorbell, and what has
//! outgrown the segments of its windows.
//!
//! One memory file for the whole process, made when its first window with peers is, so that no
//! window takes a descriptor of its own. Peers map it when they first need it, once for all
//! windows, through `/proc/<pid>/fd/<n>`. It only grows.
//!
//! ```text
//! doorbell, name | extents of whole pages
//! ```

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use hashbrown::HashMap;

use crate::sync::AtomicU64;
use crate::sync::Ordering::{Acquire, Release};

use super::doorbell::{self, Doorbell};
use super::layout::page;
use super::segment::{self, Failure, Segment, Step};
use super::words::Line;

/// First page of the file.
#[repr(C)]
struct Front {
    summary: Line<AtomicU64>,
    words: [AtomicU64; doorbell::WORDS],
    /// See [`Identity::name`].
    name: AtomicU64,
}

impl Front {
    /// # Safety
    /// `segment` maps the first page of a process's memory file, and lives as long as the result is
    /// used.
    unsafe fn of<'a>(segment: &Segment) -> &'a Front {
        // SAFETY: the page begins with these words, which are atomics to everybody.
        unsafe { &*segment.base().cast::<Front>() }
    }

    fn doorbell(&self) -> Doorbell<'_> {
        Doorbell { summary: &self.summary.0, words: &self.words }
    }
}

/// How a peer finds the memory of a process, and tells it from that of another process with its
/// number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Identity {
    /// Process.
    pub(super) pid: i32,
    /// Descriptor of the memory in that process.
    pub(super) fd: RawFd,
    /// Drawn at random when the process made its memory; 0: it has none.
    pub(super) name: u64,
}

/// A system call that failed on the way to memory of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreachable(pub(super) Failure);

impl Unreachable {
    /// The errno of the system call that failed.
    #[must_use]
    pub fn errno(&self) -> i32 {
        self.0.errno
    }
}

impl fmt::Display for Unreachable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.0.step.name(), io::Error::from_raw_os_error(self.0.errno))
    }
}

/// This process's memory file.
struct Own {
    file: OwnedFd,
    identity: Identity,
    front: Segment,
    /// Numbers given to windows.
    windows: AtomicU32,
    extents: Mutex<Extents>,
}

static OWN: OnceLock<Own> = OnceLock::new();
/// Held while the file is being made.
static MAKING: Mutex<()> = Mutex::new(());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn own() -> Result<&'static Own, Failure> {
    if let Some(own) = OWN.get() {
        return Ok(own);
    }
    let _making = lock(&MAKING);
    match OWN.get() {
        Some(own) => Ok(own),
        None => Own::make().map(|own| OWN.get_or_init(|| own)),
    }
}

impl Own {
    fn make() -> Result<Own, Failure> {
        let file = segment::create()?;
        segment::resize(&file, page())?;
        segment::seal(&file, libc::F_SEAL_SHRINK)?;
        let front = Segment::map_part(&file, 0, page())?;
        let name = RandomState::new().build_hasher().finish() | 1;
        // SAFETY: the first page of the file, which `Own` keeps mapped for the life of the process.
        unsafe { Front::of(&front) }.name.store(name, Release);
        // SAFETY: getpid has no precondition.
        let identity = Identity { pid: unsafe { libc::getpid() }, fd: file.as_raw_fd(), name };
        let extents = Mutex::new(Extents { end: page(), free: Vec::new() });
        Ok(Own { file, identity, front, windows: AtomicU32::new(0), extents })
    }

    fn doorbell(&self) -> Doorbell<'static> {
        // SAFETY: the page stays mapped for the life of the process.
        unsafe { Front::of(&self.front) }.doorbell()
    }
}

/// Who this process is to its peers, and a number for a new window of it. `None` where it can have
/// no memory file: then its windows cannot be armed.
pub(super) fn register() -> Option<(Identity, u32)> {
    match own() {
        Ok(own) => Some((own.identity, own.windows.fetch_add(1, Ordering::Relaxed))),
        Err(failure) => {
            log::warn!(
                "this process has no doorbell, so every wait polls all its windows: {}",
                Unreachable(failure)
            );
            None
        }
    }
}

/// Whether a peer has contacted an armed window of this process.
#[inline]
#[must_use]
pub fn is_rung() -> bool {
    OWN.get().is_some_and(|own| own.doorbell().is_rung())
}

/// Hands over the slots of the windows that peers have contacted; see [`doorbell::slot`].
pub fn take_rung(rung: impl FnMut(u32)) {
    if let Some(own) = OWN.get() {
        own.doorbell().take(rung);
    }
}

/// Free parts of the file, by size, and where it ends.
struct Extents {
    end: u64,
    /// Offsets, by the binary logarithm of the number of pages.
    free: Vec<Vec<u64>>,
}

/// A part of this process's memory file, mapped here; peers may map it too.
#[derive(Debug)]
pub(super) struct Extent {
    /// Where it begins in the file: a page that is not the first.
    pub(super) offset: u64,
    pub(super) segment: Segment,
    order: u32,
}

impl Extent {
    /// At least `len` bytes, all 0 or left by an extent that was dropped.
    pub(super) fn new(len: u64) -> Result<Extent, Failure> {
        let own = own()?;
        let too_long = Failure { step: Step::Resize, errno: libc::ENOMEM };
        let pages = len.div_ceil(page()).max(1).checked_next_power_of_two().ok_or(too_long)?;
        let (order, len) = (pages.trailing_zeros(), pages.checked_mul(page()).ok_or(too_long)?);
        let mut extents = lock(&own.extents);
        let offset = match extents.free.get_mut(order as usize).and_then(Vec::pop) {
            Some(offset) => offset,
            None => {
                let offset = extents.end;
                let end = offset
                    .checked_add(len)
                    .filter(|end| *end <= i64::MAX as u64)
                    .ok_or(too_long)?;
                segment::resize(&own.file, end)?;
                extents.end = end;
                offset
            }
        };
        drop(extents);
        match Segment::map_part(&own.file, offset, len) {
            Ok(segment) => Ok(Extent { offset, segment, order }),
            Err(failure) => {
                give_back(own, offset, order);
                Err(failure)
            }
        }
    }
}

impl Drop for Extent {
    fn drop(&mut self) {
        if let Some(own) = OWN.get() {
            give_back(own, self.offset, self.order);
        }
    }
}

fn give_back(own: &Own, offset: u64, order: u32) {
    let mut extents = lock(&own.extents);
    let order = order as usize;
    if extents.free.len() <= order {
        extents.free.resize_with(order + 1, Vec::new);
    }
    extents.free[order].push(offset);
}

/// Mappings of other processes' memory files.
struct Peers {
    /// By process and name.
    mapped: HashMap<(i32, u64), Arc<Segment>>,
    /// As soon as there are so many, those of processes that have ended are dropped.
    most: usize,
}

static PEERS: Mutex<Option<Peers>> = Mutex::new(None);

/// Mappings that are kept before the first look for processes that have ended.
const PEERS_AT_FIRST: usize = 256;
/// Bytes of a file that are mapped at least. What is beyond its end costs addresses alone.
const MAPPED_AT_LEAST: u64 = 1 << 20;

/// The first `len` bytes of a process's memory file, as mapped here.
///
/// # Errors
/// The process has ended, or this one has no descriptor or memory for the mapping.
pub(super) fn map(whose: Identity, len: u64) -> Result<Arc<Segment>, Failure> {
    let mut peers = lock(&PEERS);
    let peers = peers.get_or_insert_with(|| Peers { mapped: HashMap::new(), most: PEERS_AT_FIRST });
    let key = (whose.pid, whose.name);
    if let Some(known) = peers.mapped.get(&key).filter(|known| known.len() >= len) {
        return Ok(Arc::clone(known));
    }
    let file = segment::open(whose.pid, whose.fd)?;
    let mapped =
        Arc::new(Segment::map_part(&file, 0, len.max(MAPPED_AT_LEAST).next_power_of_two())?);
    // SAFETY: the mapping lives as long as this borrow, and a file has its first page from the
    // beginning.
    if unsafe { Front::of(&mapped) }.name.load(Acquire) != whose.name {
        // Another process has its number now.
        return Err(Failure { step: Step::Open, errno: libc::ESRCH });
    }
    if peers.mapped.len() >= peers.most {
        // SAFETY: signal 0 only asks whether the process exists.
        peers.mapped.retain(|(pid, _), _| unsafe { libc::kill(*pid, 0) } == 0);
        peers.most = (2 * peers.mapped.len()).max(PEERS_AT_FIRST);
    }
    peers.mapped.insert(key, Arc::clone(&mapped));
    Ok(mapped)
}

/// Rings the doorbell of a process for one of its windows. A process that cannot be reached in this
/// way finds out when it next looks at an armed window by turns.
#[cold]
pub(super) fn ring(whose: Identity, window: u32) {
    match map(whose, page()) {
        // SAFETY: the mapping lives until the end of this call.
        Ok(mapped) => unsafe { Front::of(&mapped) }.doorbell().ring(doorbell::slot(window)),
        Err(failure) => {
            static TOLD: AtomicBool = AtomicBool::new(false);
            if !TOLD.swap(true, Ordering::Relaxed) {
                log::warn!(
                    "process {} cannot be woken, and may answer late: {}",
                    whose.pid,
                    Unreachable(failure)
                );
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn extents_are_used_again() {
        let first = Extent::new(3 * page()).unwrap();
        let (offset, second) = (first.offset, Extent::new(1).unwrap());
        assert_ne!(second.offset, offset);
        assert!(first.segment.len() == 4 * page() && second.segment.len() == page());
        drop(first);
        let again = Extent::new(4 * page()).unwrap();
        assert_eq!(again.offset, offset);
    }

    #[test]
    fn a_peer_sees_what_the_owner_writes_and_a_stranger_nothing() {
        let (identity, _) = register().unwrap();
        let extent = Extent::new(1).unwrap();
        let len = extent.offset + extent.segment.len();
        let peer = map(identity, len).unwrap();
        // SAFETY: inside both mappings of a part that is this test's.
        unsafe {
            extent.segment.at(17).write(5);
            assert_eq!(peer.at(extent.offset + 17).read(), 5);
        }
        let stranger = Identity { name: identity.name ^ 2, ..identity };
        assert_eq!(map(stranger, 1).unwrap_err().errno, libc::ESRCH);
    }
}
