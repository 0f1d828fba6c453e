//! The shared-memory transport. Threads play the processes of a window: each maps the segment by
//! itself, and cross-memory attach also works within one process.

#![cfg(not(loom))]
// A test binary exports nothing.
#![allow(unreachable_pub)]
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "tests read and write the buffers that they own"
)]

mod atomics;
mod operations;
mod setup;
mod shapes;
mod speed;
mod world;
