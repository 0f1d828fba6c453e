//! What processes and threads share, under loom: all interleavings, with bounded preemptions.
//!
//! Run with `make test-loom`; `LOOM_MAX_PREEMPTIONS` raises the bound.

#![cfg(loom)]
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "loom checks the accesses that unsafe would have to justify"
)]

mod board;
mod channel;
mod continuations;
mod counters;
mod doorbell;
mod fast_path;
mod halo;
mod lock;
mod steps;
mod tags;
