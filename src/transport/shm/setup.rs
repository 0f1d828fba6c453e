//! Collective set-up of a window.
//!
//! In a first allgather the processes exchange their bootstrap records (node, process, memory).
//! Before that, rank 0 has created the segment, and its record has the descriptor; or all processes
//! have cached the same segment from an earlier window ([`segment_cache`]). Then each process maps
//! the segment, or clears its part of the cached one, and writes its own block.
//!
//! In a second allgather each process says whether that succeeded. It is also the barrier after
//! which the blocks may be read. All processes see the same records, so all come to the same
//! result. With a cached segment nothing can fail any more. If it is also known whether
//! cross-memory attach works, a count of arrivals in the segment replaces the second allgather.

use std::fs::File;
use std::os::fd::AsRawFd;

use crate::engine::Rank;
use crate::transport::datatype::element::ForeignReduce;

use super::bootstrap::{
    Bootstrap, BootstrapRecord, Memory, PROBE, RECORD_BYTES, WindowKind, decode_error,
    encode_error, node_id, word,
};
use super::cma;
use super::control::{Parts, RankInfo};
use super::layout::{Layout, Placement, page};
use super::process::{self, MemoryFileId};
use super::segment::{self, Segment, Step, SystemError};
use super::segment_cache::{self, CACHED_BYTES_MAX, CachedSegment};
use super::window_memory::Listing;

/// Settings of the transport.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Cross-memory attach may be used (`MPIX_RMA_CMA`).
    pub cma: bool,
    /// The node's ranks outnumber its cores, so a target may be without one.
    pub oversubscribed: bool,
    /// Reduces elements of the host's datatypes.
    pub foreign_reduce: ForeignReduce,
}

/// Why shared memory cannot serve a window. All processes get the same error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the texts of the errors say what they mean")]
pub enum SetupError {
    /// [`Bootstrap::goes_on`] returned false.
    #[error("the processes agreed not to make the window")]
    Unwanted,
    #[error("the window's processes are not all on one node")]
    NotOneNode,
    #[error("a process of the window has no memory for it")]
    NoMemory,
    #[error("{} failed on rank {rank}: {}", error.step.name(), error.reason())]
    System { rank: Rank, error: SystemError },
}

impl SetupError {
    /// Whether the set-up failed for lack of memory or address space.
    pub fn lacks_memory(&self) -> bool {
        match self {
            SetupError::System { error, .. } => matches!(error.step, Step::Resize | Step::Map),
            _ => *self == SetupError::NoMemory,
        }
    }
}

/// Result of a successful set-up.
#[derive(Debug)]
pub(super) struct MappedWindow {
    /// If the window's memory is in the segment. Ends before the segment.
    listing: Option<Listing>,
    pub(super) segment: Segment,
    /// Id of the segment in the cache.
    segment_id: u64,
    pub(super) layout: Layout,
    pub(super) parts: Parts,
    pub(super) me: Rank,
    pub(super) size: u32,
    pub(super) kind: WindowKind,
    /// Cross-memory attach works between all processes.
    pub(super) cma: bool,
}

impl MappedWindow {
    /// Caches the segment for a later window of these processes.
    pub(super) fn release(self) {
        let MappedWindow { listing, segment, segment_id: id, size: ranks, kind, cma, .. } = self;
        drop(listing);
        segment_cache::put(CachedSegment { id, segment, ranks, allocated: kind.in_segment(), cma });
    }
}

/// Bit of the second allgather's word: this process could read a word of its neighbour.
const CMA_WORKS: u64 = 1 << 63;

/// Sets the window up. Collective; fails in every process or in none.
pub(super) fn set_up(
    boot: &mut dyn Bootstrap,
    memory: Memory,
    disp_unit: u32,
    settings: Settings,
) -> Result<MappedWindow, SetupError> {
    let (me, size) = (boot.rank(), boot.size());
    let probe = PROBE;
    let mut record = BootstrapRecord::new(memory, disp_unit, &raw const probe);
    record.cma = settings.cma;
    let kind = record.kind;
    let in_segment = kind.in_segment();
    // A cached segment is aligned to a page only.
    let offer = if record.error.is_none() && record.align() <= page() {
        segment_cache::take(size, in_segment)
    } else {
        None
    };
    record.cached_segment = offer.as_ref().map_or(0, |cached| cached.id);
    // Rank 0 keeps its descriptor open until the others have mapped the segment.
    let mut file = if me == 0 && offer.is_none() { record.create_segment() } else { None };

    let mut bytes = vec![0; RECORD_BYTES * size as usize];
    boot.allgather(&record.encode(), &mut bytes);
    let records = || bytes.chunks_exact(RECORD_BYTES).map(BootstrapRecord::decode);
    let first = records().next().expect("a window has a process");
    let agreed = if boot.goes_on() { agree(records) } else { Err(SetupError::Unwanted) };
    let reuse = offer.and_then(|cached| {
        // All offer the same segment, so all find the same length.
        let fits = agreed.as_ref().is_ok_and(|layout| {
            records().all(|record| record.cached_segment == cached.id)
                && cached.segment.len() >= layout.total
                && layout.align() <= page()
        });
        if fits {
            return Some(cached);
        }
        segment_cache::put_back(cached);
        None
    });
    let layout = agreed?;
    // The settings of processes that were started separately may differ.
    let may_attach = records().all(|record| record.cma);

    let reused = reuse.is_some();
    let (segment_id, known_cma) =
        reuse.as_ref().map_or((first.new_segment, false), |cached| (cached.id, cached.cma));
    let mapped = match reuse {
        Some(cached) => Ok(cached.segment),
        None => {
            let fd = match first.cached_segment {
                0 => Ok(first.fd),
                _ => late_segment(boot, &mut record, &mut file),
            };
            // Round up what may be cached, so that it can serve a slightly larger window later.
            let len = match layout.total {
                total if total <= CACHED_BYTES_MAX => total.next_power_of_two(),
                total => total,
            };
            let align = layout.align();
            fd.and_then(|fd| Segment::map_shared(file.as_ref(), (first.pid, fd), len, align))
        }
    };
    let mapped = mapped.map(|segment| {
        // SAFETY: the layout is the segment's. A new segment is zeros, and each process clears its
        // parts of a cached one here. The window keeps the segment mapped as long as it uses them.
        let parts = unsafe { Parts::new(&segment, &layout, size) };
        if reused {
            // SAFETY: the processes agreed that the earlier window has ended. The count of arrivals
            // or the second allgather comes before any use of the new one.
            unsafe { parts.clear(me, !in_segment) };
        }
        let memory = match in_segment {
            true => layout.memory_after(records().take(me as usize).map(|record| record.size)),
            false => record.base,
        };
        // Nobody rings for a window of one process.
        let (file, window) = if size > 1 { process::register() } else { None }.unwrap_or_default();
        let process = MemoryFileId { pid: record.pid, ..file };
        let size = record.size;
        parts.set_rank_info(me, RankInfo { memory, size, disp_unit, window, process });
        (segment, parts)
    });
    let works = match &mapped {
        // Whether cross-memory attach works is known from an earlier window or from settings.
        Ok((_, parts)) if reused && (in_segment || known_cma || !may_attach) => {
            let count = parts.header().arrive(size);
            boot.wait(&mut || parts.header().have_arrived(count));
            may_attach
        }
        Ok(_) => {
            let works = in_segment || (may_attach && (known_cma || probe_next(records, me, size)));
            confirm(boot, u64::from(works) * CMA_WORKS)?
        }
        Err(error) => confirm(boot, encode_error(*error))?,
    };
    // Keep the probe word in place until all processes have tried to read it, which is now.
    std::hint::black_box(&probe);
    let (segment, parts) = mapped.expect("a failure of this rank is among the statuses");
    let cma = works && !in_segment;
    let listing = (in_segment && size > 1).then(|| Listing::new(segment_id, &segment));
    Ok(MappedWindow { listing, segment, segment_id, layout, parts, me, size, kind, cma })
}

/// The second allgather: whether all processes have mapped the segment. If so, returns whether
/// cross-memory attach works between all of them.
fn confirm(boot: &mut dyn Bootstrap, status: u64) -> Result<bool, SetupError> {
    let mut bytes = vec![0; 8 * boot.size() as usize];
    boot.allgather(&status.to_ne_bytes(), &mut bytes);
    let mut works = true;
    for (rank, status) in (0..).zip(bytes.chunks_exact(8).map(word)) {
        if let Some(error) = decode_error(status & !CMA_WORKS) {
            return Err(SetupError::System { rank, error });
        }
        works &= status & CMA_WORKS != 0;
    }
    Ok(works)
}

impl BootstrapRecord {
    /// What this process knows before it exchanges anything.
    fn new(memory: Memory, disp_unit: u32, probe: *const u64) -> Self {
        let pid = std::process::id() as i32;
        let (kind, base, size, align, noncontig) = match memory {
            Memory::Allocate { size, align } => (WindowKind::Allocated, 0, size, align, true),
            Memory::Share { size, align, noncontig } => {
                (WindowKind::Shared, 0, size, align, noncontig)
            }
            Memory::Create { base, size } => (WindowKind::Created, base.0 as u64, size, 1, true),
            Memory::Dynamic => (WindowKind::Dynamic, 0, 0, 1, true),
        };
        let (node, mut error) = match node_id() {
            Ok(node) => (node, None),
            Err(error) => (Default::default(), Some(error)),
        };
        if base.checked_add(size).is_none() {
            error = Some(SystemError { step: Step::Arguments, errno: libc::EOVERFLOW });
        }
        BootstrapRecord {
            node,
            pid,
            kind,
            noncontig,
            align_log2: align.next_power_of_two().trailing_zeros() as u8,
            base,
            size,
            disp_unit,
            new_segment: segment_cache::new_id(pid),
            probe: probe as u64,
            error,
            ..BootstrapRecord::default()
        }
    }

    /// Creates a segment, and records its descriptor or the failure.
    fn create_segment(&mut self) -> Option<File> {
        if self.error.is_some() {
            return None;
        }
        let file = segment::create().map_err(|error| self.error = Some(error)).ok()?;
        self.fd = file.as_raw_fd();
        Some(file)
    }
}

/// Rank 0 creates a segment after all, since its cached one cannot be used. One more allgather.
/// Returns the descriptor in rank 0.
fn late_segment(
    boot: &mut dyn Bootstrap,
    record: &mut BootstrapRecord,
    file: &mut Option<File>,
) -> Result<i32, SystemError> {
    if boot.rank() == 0 {
        *file = record.create_segment();
    }
    let mut bytes = vec![0; RECORD_BYTES * boot.size() as usize];
    boot.allgather(&record.encode(), &mut bytes);
    let first = BootstrapRecord::decode(&bytes);
    first.error.map_or(Ok(first.fd), Err)
}

/// The layout or error that all processes derive from the records.
fn agree<I: Iterator<Item = BootstrapRecord>>(
    records: impl Fn() -> I,
) -> Result<Layout, SetupError> {
    let mut first = None;
    for (rank, record) in (0..).zip(records()) {
        if let Some(error) = record.error {
            return Err(SetupError::System { rank, error });
        }
        let first = *first.get_or_insert(record);
        if record.node != first.node {
            return Err(SetupError::NotOneNode);
        }
        if record.kind != first.kind {
            let error = SystemError { step: Step::Arguments, errno: libc::EINVAL };
            return Err(SetupError::System { rank, error });
        }
    }
    let in_segment = first.is_some_and(|first| first.kind.in_segment());
    let ranks = records().count() as u32;
    let memory = records().map(|record| if in_segment { record.size } else { 0 });
    let placement = Placement {
        // One process that relies on its neighbours' addresses is enough.
        packed: !records().all(|record| record.noncontig),
        align: records().map(|record| record.align()).max().unwrap_or(1).max(page()),
    };
    let error = SystemError { step: Step::Resize, errno: libc::EOVERFLOW };
    Layout::new(ranks, !in_segment, placement, memory).ok_or(SetupError::System { rank: 0, error })
}

/// Tries to read a word of the next rank's process.
fn probe_next<I: Iterator<Item = BootstrapRecord>>(
    records: impl Fn() -> I,
    me: Rank,
    size: u32,
) -> bool {
    let next = records().nth(((me + 1) % size) as usize).expect("ranks are below the size");
    cma::reads(next.pid, next.probe)
}
