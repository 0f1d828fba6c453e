//! The shared-memory transport, with the processes of a window played by threads: each has its own
//! mapping of the segment, and cross-memory attach reaches one's own process too.

#![cfg(not(loom))]
#![allow(clippy::undocumented_unsafe_blocks, reason = "tests read and write the buffers that they own")]

mod shm_world;

use mpix_rma::engine::*;
use mpix_rma::transport::element::{native, reduction};
use mpix_rma::transport::shm::*;
use shm_world::*;

#[test]
fn puts_and_gets_of_all_sizes_in_allocated_memory() {
    run(3, |world| {
        let mut w = world.allocate(4 << 20);
        let (next, before) = ((world.rank + 1) % 3, (world.rank + 2) % 3);
        for (i, len) in (0..).zip([0usize, 1, 2, 4, 7, 8, 16, 4096, (64 << 10) + 3, (3 << 20) + 1]) {
            let from = bytes(len, u64::from(world.rank) + i);
            let mut back = vec![0u8; len];
            w.put(next, 3, &from);
            barrier(&mut w);
            w.get(next, 3, &mut back);
            assert!(back == from, "length {len}");
            assert!(own(&w, 3, len) == bytes(len, u64::from(before) + i), "length {len}");
            barrier(&mut w);
        }
    });
}
