//! Blocks of the application, which are packed into messages between nodes and unpacked from them:
//! those of halo exchanges.

use std::ops::Range;

use super::plan::Order;
use crate::mpi::collective::persistent::bundles::{Bundle, Bundles};
use crate::transport::datatype::{CopyPlan, Side};

/// One block, and the bytes of an area for which it stands.
struct Laid {
    bytes: Range<usize>,
    plan: CopyPlan,
    base: usize,
}

/// The blocks of a process in place of its `Send` and `Receive`, in the order of these.
#[derive(Default)]
pub(super) struct Blocks([Vec<Laid>; 2]);

impl Blocks {
    pub(super) const PACKED: usize = 0;
    pub(super) const UNPACKED: usize = 1;

    pub(super) fn new(bundles: &Bundles<'_>, order: &Order) -> Self {
        let packed =
            laid(&bundles.sent, order, |side| CopyPlan::new(side, &Side::flat(side.size())));
        let unpacked =
            laid(&bundles.received, order, |side| CopyPlan::new(&Side::flat(side.size()), side));
        Blocks([packed, unpacked])
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(Vec::is_empty)
    }

    /// Packs to `packed` the blocks in these bytes of the area, or unpacks them from there.
    ///
    /// # Safety
    /// The buffers of the blocks, and as many bytes at `packed`, may be read and written.
    pub(super) unsafe fn run(&self, list: usize, at: usize, bytes: usize, packed: *mut u8) {
        let all = &self.0[list];
        let first = all.partition_point(|block| block.bytes.start < at);
        for block in all[first..].iter().take_while(|block| block.bytes.end <= at + bytes) {
            let place = packed.wrapping_add(block.bytes.start - at);
            let own = std::ptr::with_exposed_provenance_mut(block.base);
            let (from, to) = if list == Self::PACKED { (own, place) } else { (place, own) };
            // SAFETY: the contract of this function.
            unsafe { block.plan.run(from, to) };
        }
    }
}

/// The blocks of bundles, in the order of their processes' positions.
fn laid(bundles: &[Bundle<'_>], order: &Order, plan: impl Fn(&Side) -> CopyPlan) -> Vec<Laid> {
    let mut bundles: Vec<&Bundle<'_>> = bundles.iter().collect();
    bundles.sort_by_key(|bundle| order.positions[bundle.peer as usize]);
    let mut end = 0;
    let blocks = bundles.into_iter().flat_map(|bundle| &bundle.blocks);
    blocks
        .filter(|(_, block)| block.side.size() > 0)
        .map(|(_, block)| {
            let start = end;
            end += block.side.size() as usize;
            Laid { bytes: start..end, plan: plan(&block.side), base: block.base }
        })
        .collect()
}
