//! Memory of this process that its peers on the node may map: its doorbell, and tables that have
//! outgrown the segments of its windows.
//!
//! Each process has one memory file for all its windows, so that no window needs a descriptor of
//! its own. It creates the file with its first window that has peers. A peer maps the file through
//! `/proc/<pid>/fd/<n>` when it first needs it, once for all windows. The file only grows.
//!
//! ```text
//! doorbell, nonce | extents of whole pages
//! ```

use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use hashbrown::HashMap;

use crate::sync::AtomicU64;
use crate::sync::Ordering::{Acquire, Release};

use super::control::CacheLine;
use super::doorbell::{self, Doorbell};
use super::layout::page;
use super::segment::{self, Segment, Step, SystemError};

#[repr(C)]
struct FirstPage {
    summary: CacheLine<AtomicU64>,
    words: [AtomicU64; doorbell::WORDS],
    /// See [`MemoryFileId::nonce`].
    nonce: AtomicU64,
}

/// The first part of a process's memory file, at least a page, as mapped here.
#[derive(Debug)]
pub(super) struct MappedFile(Segment);

impl MappedFile {
    pub(super) fn segment(&self) -> &Segment {
        &self.0
    }

    fn first_page(&self) -> &FirstPage {
        // SAFETY: the mapping contains the first page, the file is never shorter, and all processes
        // access these words as atomics only.
        unsafe { &*self.0.base().cast::<FirstPage>() }
    }

    fn doorbell(&self) -> Doorbell<'_> {
        let page = self.first_page();
        Doorbell { summary: &page.summary.0, words: &page.words }
    }
}

/// Where peers find the memory file of a process.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MemoryFileId {
    pub(super) pid: i32,
    /// Descriptor of the file in that process.
    pub(super) fd: RawFd,
    /// Random number that tells the file from that of a later process with this pid. 0: no file.
    pub(super) nonce: u64,
}

struct ProcessMemory {
    file: File,
    id: MemoryFileId,
    mapped: MappedFile,
    /// Number of windows that have registered.
    windows: AtomicU32,
    extents: Mutex<Extents>,
}

static PROCESS_MEMORY: OnceLock<ProcessMemory> = OnceLock::new();
/// Held while the file is being created.
static CREATING: Mutex<()> = Mutex::new(());

/// Locks a mutex whose content a panic cannot leave inconsistent.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn process_memory() -> Result<&'static ProcessMemory, SystemError> {
    if let Some(own) = PROCESS_MEMORY.get() {
        return Ok(own);
    }
    let _creating = lock(&CREATING);
    match PROCESS_MEMORY.get() {
        Some(own) => Ok(own),
        None => ProcessMemory::create().map(|own| PROCESS_MEMORY.get_or_init(|| own)),
    }
}

impl ProcessMemory {
    fn create() -> Result<ProcessMemory, SystemError> {
        let file = segment::create()?;
        segment::resize(&file, page())?;
        segment::seal(&file, libc::F_SEAL_SHRINK)?;
        let mapped = MappedFile(Segment::map_part(&file, 0, page())?);
        let nonce = RandomState::new().build_hasher().finish() | 1;
        mapped.first_page().nonce.store(nonce, Release);
        let id = MemoryFileId { pid: std::process::id() as i32, fd: file.as_raw_fd(), nonce };
        let extents = Mutex::new(Extents { end: page(), free: [const { Vec::new() }; 64] });
        Ok(ProcessMemory { file, id, mapped, windows: AtomicU32::new(0), extents })
    }
}

/// This process's memory file, and a number for a new window. `None` if the file cannot be created;
/// then the process's windows cannot be armed.
pub(super) fn register() -> Option<(MemoryFileId, u32)> {
    match process_memory() {
        Ok(own) => Some((own.id, own.windows.fetch_add(1, Ordering::Relaxed))),
        Err(error) => {
            log::warn!(
                "no doorbell for this process, so every wait polls all its windows: {error}"
            );
            None
        }
    }
}

/// Whether a peer has contacted an armed window of this process.
#[inline]
#[must_use]
pub fn is_rung() -> bool {
    PROCESS_MEMORY.get().is_some_and(|own| own.mapped.doorbell().is_rung())
}

/// Passes the [`doorbell::slot`] of each window that peers have contacted to `rung`, and clears it.
pub fn take_rung(rung: impl FnMut(u32)) {
    if let Some(own) = PROCESS_MEMORY.get() {
        own.mapped.doorbell().take(rung);
    }
}

/// Free extents of the file by size, and the end of the file.
struct Extents {
    end: u64,
    /// Offsets, by the binary logarithm of the number of pages.
    free: [Vec<u64>; 64],
}

/// A part of this process's memory file, mapped here. Peers may map it too.
#[derive(Debug)]
pub(super) struct Extent {
    /// Offset in the file: a page that is not the first.
    pub(super) offset: u64,
    pub(super) segment: Segment,
    /// Binary logarithm of its number of pages.
    order: usize,
}

impl Extent {
    /// At least `len` bytes, which are 0 or left over from a dropped extent.
    pub(super) fn new(len: u64) -> Result<Extent, SystemError> {
        let own = process_memory()?;
        let too_long = SystemError { step: Step::Resize, errno: libc::ENOMEM };
        let pages = len.div_ceil(page()).max(1).checked_next_power_of_two().ok_or(too_long)?;
        let (order, len) = (pages.ilog2() as usize, pages.checked_mul(page()).ok_or(too_long)?);
        let mut extents = lock(&own.extents);
        let offset = match extents.free[order].pop() {
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
        if let Some(own) = PROCESS_MEMORY.get() {
            give_back(own, self.offset, self.order);
        }
    }
}

fn give_back(own: &ProcessMemory, offset: u64, order: usize) {
    lock(&own.extents).free[order].push(offset);
}

/// Mappings of other processes' memory files.
struct Peers {
    /// By pid and nonce.
    mapped: HashMap<(i32, u64), Arc<MappedFile>>,
    /// At this many mappings, [`map`] drops those of processes that have ended.
    limit: usize,
}

static PEERS: Mutex<Option<Peers>> = Mutex::new(None);

/// Mappings kept before the first search for processes that have ended.
const LIMIT_MIN: usize = 256;
/// Minimum bytes to map of a file, at least a page. A mapping beyond the end only uses addresses.
const MAPPED_MIN: u64 = 1 << 20;

/// Maps at least the first `len` bytes of a process's memory file.
///
/// # Errors
/// The process has ended, or this one has no descriptor or memory for the mapping.
pub(super) fn map(id: MemoryFileId, len: u64) -> Result<Arc<MappedFile>, SystemError> {
    let mut peers = lock(&PEERS);
    let peers = peers.get_or_insert_with(|| Peers { mapped: HashMap::new(), limit: LIMIT_MIN });
    let key = (id.pid, id.nonce);
    if let Some(known) = peers.mapped.get(&key).filter(|known| known.segment().len() >= len) {
        return Ok(Arc::clone(known));
    }
    let file = segment::open(id.pid, id.fd)?;
    let len = len.max(MAPPED_MIN).next_power_of_two();
    let mapped = Arc::new(MappedFile(Segment::map_part(&file, 0, len)?));
    if mapped.first_page().nonce.load(Acquire) != id.nonce {
        // Another process has this pid now.
        return Err(SystemError { step: Step::Open, errno: libc::ESRCH });
    }
    if peers.mapped.len() >= peers.limit {
        // SAFETY: signal 0 is not delivered; the call only checks that the process exists.
        peers.mapped.retain(|(pid, _), _| unsafe { libc::kill(*pid, 0) } == 0);
        peers.limit = (2 * peers.mapped.len()).max(LIMIT_MIN);
    }
    peers.mapped.insert(key, Arc::clone(&mapped));
    Ok(mapped)
}

/// Rings the doorbell of a process for one of its windows. If this process cannot map the doorbell,
/// the other one finds the operation when it polls its armed windows in turn.
#[cold]
pub(super) fn ring(id: MemoryFileId, window: u32) {
    match map(id, page()) {
        Ok(mapped) => mapped.doorbell().ring(doorbell::slot(window)),
        Err(error) => {
            static LOGGED: AtomicBool = AtomicBool::new(false);
            if !LOGGED.swap(true, Ordering::Relaxed) {
                log::warn!(
                    "cannot ring the doorbell of process {}, which may answer late: {error}",
                    id.pid
                );
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn dropped_extents_are_reused() {
        let first = Extent::new(3 * page()).unwrap();
        let (offset, second) = (first.offset, Extent::new(1).unwrap());
        assert_ne!(second.offset, offset);
        assert!(first.segment.len() == 4 * page() && second.segment.len() == page());
        drop(first);
        let again = Extent::new(4 * page()).unwrap();
        assert_eq!(again.offset, offset);
    }

    #[test]
    fn a_peer_maps_the_file_and_a_wrong_nonce_is_refused() {
        let (id, _) = register().unwrap();
        let extent = Extent::new(1).unwrap();
        let len = extent.offset + extent.segment.len();
        let peer = map(id, len).unwrap();
        // SAFETY: the byte lies in both mappings, in an extent that nothing else uses.
        unsafe {
            extent.segment.at(17).write(5);
            assert_eq!(peer.segment().at(extent.offset + 17).read(), 5);
        }
        let other = MemoryFileId { nonce: id.nonce ^ 2, ..id };
        assert_eq!(map(other, 1).unwrap_err().errno, libc::ESRCH);
    }
}
