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

/// The blocks of a process, in the order of the areas whose place they take.
pub(super) struct Blocks {
    /// In place of `Send`.
    sent: Vec<Laid>,
    /// In place of `Receive`.
    received: Vec<Laid>,
}

impl Blocks {
    pub(super) fn new(bundles: &Bundles<'_>, order: &Order) -> Self {
        let packed = |side: &Side| Side::flat(side.size());
        Blocks {
            sent: laid(&bundles.sent, order, |side| CopyPlan::new(side, &packed(side))),
            received: laid(&bundles.received, order, |side| CopyPlan::new(&packed(side), side)),
        }
    }

    /// Packs to `to` the blocks in the `bytes` bytes at `at` of `Send`.
    ///
    /// # Safety
    /// The blocks may be read, and as many bytes at `to` written.
    pub(super) unsafe fn pack(&self, at: usize, bytes: usize, to: *mut u8) {
        for (block, skipped) in within(&self.sent, at, bytes) {
            let from = std::ptr::with_exposed_provenance(block.base);
            // SAFETY: the contract of this function.
            unsafe { block.plan.run(from, to.wrapping_add(skipped)) };
        }
    }

    /// Unpacks from `from` the blocks in the `bytes` bytes at `at` of `Receive`.
    ///
    /// # Safety
    /// The blocks may be written, and as many bytes at `from` read.
    pub(super) unsafe fn unpack(&self, at: usize, bytes: usize, from: *const u8) {
        for (block, skipped) in within(&self.received, at, bytes) {
            let to = std::ptr::with_exposed_provenance_mut(block.base);
            // SAFETY: the contract of this function.
            unsafe { block.plan.run(from.wrapping_add(skipped), to) };
        }
    }
}

/// The blocks in the `bytes` bytes at `at`, and how far from there they begin.
fn within(all: &[Laid], at: usize, bytes: usize) -> impl Iterator<Item = (&Laid, usize)> {
    let first = all.partition_point(|block| block.bytes.start < at);
    let found = all[first..].iter().take_while(move |block| block.bytes.end <= at + bytes);
    found.map(move |block| (block, block.bytes.start - at))
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
