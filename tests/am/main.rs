//! The active-message transport. One thread or several run all processes of a window, and messages
//! are delivered in memory.
#![cfg(not(loom))]
#![allow(clippy::needless_range_loop, reason = "ranks and rounds are numbers first")]
#![allow(unreachable_pub, reason = "a test binary exports nothing")]
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "tests read and write the buffers that they own"
)]

mod carry;
mod contexts;
mod counters;
mod data;
mod epochs;
mod flow;
mod fuzz;
mod hostile;
mod hub;
mod tagged;
mod unattached;
mod world;
