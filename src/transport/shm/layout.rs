//! Offsets of the parts of a segment.
//!
//! ```text
//! header | rank blocks | pair blocks | contacts | rings | region tables | channels | memory
//! ```
//! Contacts, region tables and channels exist in created and dynamic windows, memory in allocated
//! ones, and rings of tagged notifications wherever there are peers. The parts that grow with the
//! square of the ranks are sparse: an untouched page uses no memory. Zeros are the initial state of
//! every part.

use std::sync::OnceLock;

use super::channel::Channel;
use super::control::{Header, PairBlock, RankBlock};
use super::region_table;
use super::tags;

/// Bytes of a page on most kernels. Rings and channels are whole multiples of it on all kernels.
pub(super) const SMALL_PAGE: u64 = 4096;

/// Bytes of the kernel's page: 64 KiB on some aarch64 and ppc64 kernels.
pub(super) fn page() -> u64 {
    static PAGE: OnceLock<u64> = OnceLock::new();
    *PAGE.get_or_init(|| {
        // SAFETY: sysconf only reads its argument.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        u64::try_from(page)
            .ok()
            .filter(|page| page.is_power_of_two())
            .unwrap_or(SMALL_PAGE)
            .max(SMALL_PAGE)
    })
}

/// How the memory of the ranks is laid out; the same in every process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Placement {
    /// Each rank's memory directly follows that of the rank before (MPI-4.1 12.2.3). Otherwise each
    /// begins a new page: ranks share no cache lines, and first touch places their pages.
    pub(super) packed: bool,
    /// Alignment of each rank's memory, or of the whole if packed: a power of two, at least a page.
    pub(super) align: u64,
}

impl Placement {
    /// Each rank begins a new small page.
    #[cfg(test)]
    pub(super) const PAGES: Placement = Placement { packed: false, align: SMALL_PAGE };

    /// Bytes from the start of a rank's memory to that of the next.
    fn stride(self, size: u64) -> Option<u64> {
        if self.packed { Some(size) } else { size.checked_next_multiple_of(self.align) }
    }
}

/// Byte offsets in the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Control blocks of the ranks.
    pub(super) ranks: u64,
    /// Control blocks of the ordered pairs (owner, peer), owner-major.
    pub(super) pairs: u64,
    /// Contact bits of the ranks, [`contact_words`] each.
    pub(super) contacts: u64,
    /// Rings of the ranks' tagged notifications, [`RING`] bytes each.
    pub(super) rings: u64,
    /// Tables of the ranks' attached memory, [`REGIONS`] bytes each.
    pub(super) regions: u64,
    /// Channels (target, origin), target-major.
    pub(super) channels: u64,
    /// Memory of rank 0; the others follow as [`Placement`] says.
    pub(super) memory: u64,
    placement: Placement,
    /// Length of the segment.
    pub(super) total: u64,
}

/// Bytes of a ring: whole pages, which use no memory until they are written.
pub(super) const RING: u64 = (tags::SLOTS * size_of::<tags::Slot>()) as u64;
#[cfg(not(loom))]
const _: () = assert!(RING.is_multiple_of(SMALL_PAGE));

/// Bytes of a region table in the segment. A larger table lies in its process's memory file.
pub(super) const REGIONS: u64 = region_table::IN_SEGMENT as u64 * region_table::ENTRY;

/// 64-bit words that hold one bit per rank, in whole cache lines.
pub(super) fn contact_words(ranks: u64) -> u64 {
    ranks.div_ceil(64).next_multiple_of(8)
}

impl Layout {
    /// Offsets for `ranks` processes with these sizes of memory in the segment. `None` if they
    /// overflow. `created`: the memory comes from the application.
    pub(super) fn new(
        ranks: u32,
        created: bool,
        placement: Placement,
        mut memory: impl Iterator<Item = u64>,
    ) -> Option<Self> {
        let channels = created && ranks > 1;
        let ranks = u64::from(ranks);
        let pair_count = ranks.checked_mul(ranks)?;
        let mut end = size_of::<Header>() as u64;
        let mut part = |align: u64, count: u64, bytes: u64| {
            let at = end.checked_next_multiple_of(align)?;
            end = count.checked_mul(bytes)?.checked_add(at)?;
            Some(at)
        };
        let where_used = |used: bool, count: u64| if used { count } else { 0 };
        let memory = memory.try_fold(0u64, |sum, size| sum.checked_add(placement.stride(size)?))?;
        let channel = size_of::<Channel>() as u64;
        // Parts follow one another in this order. They begin at small pages, so that their contents
        // do not depend on the kernel's page.
        let layout = Layout {
            ranks: part(SMALL_PAGE / 8, ranks, size_of::<RankBlock>() as u64)?,
            pairs: part(1, pair_count, size_of::<PairBlock>() as u64)?,
            contacts: part(1, where_used(channels, ranks), contact_words(ranks) * 8)?,
            rings: part(SMALL_PAGE, where_used(ranks > 1, ranks), RING)?,
            regions: part(SMALL_PAGE, where_used(created, ranks), REGIONS)?,
            channels: part(SMALL_PAGE, where_used(channels, pair_count), channel)?,
            memory: part(placement.align, 1, memory)?,
            placement,
            total: part(SMALL_PAGE, 0, 0)?,
        };
        // Offsets are pointer differences in every process.
        (layout.total <= isize::MAX as u64).then_some(layout)
    }

    /// Alignment that the segment needs.
    pub(super) fn align(&self) -> u64 {
        self.placement.align
    }

    /// Offset of the memory that follows the memory of the given sizes.
    pub(super) fn memory_after(&self, before: impl Iterator<Item = u64>) -> u64 {
        // The same sum was checked for all ranks.
        before.fold(self.memory, |at, size| at + self.placement.stride(size).unwrap_or(0))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_one_another() {
        let layout = Layout::new(3, true, Placement::PAGES, [10, 0, 5000].into_iter()).unwrap();
        assert!(layout.ranks >= size_of::<Header>() as u64);
        assert!(layout.pairs - layout.ranks == 3 * size_of::<RankBlock>() as u64);
        assert!(layout.contacts - layout.pairs == 9 * size_of::<PairBlock>() as u64);
        assert!(layout.rings >= layout.contacts + 3 * contact_words(3) * 8);
        assert_eq!(layout.regions - layout.rings, 3 * RING);
        assert_eq!(layout.channels - layout.regions, 3 * REGIONS);
        assert_eq!(layout.channels % SMALL_PAGE, 0);
        assert_eq!(layout.memory - layout.channels, 9 * size_of::<Channel>() as u64);
        assert_eq!(layout.total - layout.memory, 3 * SMALL_PAGE);
        assert_eq!(layout.memory_after([10, 0].into_iter()), layout.memory + SMALL_PAGE);
    }

    #[test]
    fn packed_memory_has_no_padding() {
        let placement = Placement { packed: true, align: 1 << 21 };
        let layout = Layout::new(3, false, placement, [10, 0, 5000].into_iter()).unwrap();
        assert_eq!(layout.memory % (1 << 21), 0);
        assert_eq!(layout.memory_after([10, 0].into_iter()), layout.memory + 10);
        assert_eq!(layout.total, layout.memory + 2 * SMALL_PAGE);
    }

    #[test]
    fn each_rank_has_the_requested_alignment() {
        let placement = Placement { packed: false, align: 1 << 16 };
        let layout = Layout::new(2, false, placement, [10, 5000].into_iter()).unwrap();
        assert_eq!(layout.memory_after([10].into_iter()), layout.memory + (1 << 16));
        assert_eq!(layout.memory % (1 << 16), 0);
    }

    #[test]
    fn overflowing_sizes_have_no_layout() {
        assert_eq!(Layout::new(2, false, Placement::PAGES, [u64::MAX, 1].into_iter()), None);
        assert_eq!(
            Layout::new(2, false, Placement::PAGES, [i64::MAX as u64, 4096].into_iter()),
            None
        );
        assert_eq!(Layout::new(u32::MAX, true, Placement::PAGES, [].into_iter()), None);
    }
}
