//! The RDMA transport: the tests of `am` once more, and its own, over an in-memory or a real
//! device.
//! `MPIX_TEST_DEVICE` names a device of libibverbs (`any`: the best). The in-memory device delays
//! and reorders what the InfiniBand specification allows; `MPIX_TEST_DEVICE_SEED` seeds it.
#![cfg(not(loom))]
#![allow(clippy::needless_range_loop, reason = "ranks and rounds are numbers first")]
#![allow(unreachable_pub, dead_code, reason = "a test binary exports nothing")]
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "tests read and write the buffers that they own"
)]

mod abi_layout;
mod atomics;
mod buffers;
mod capabilities;
mod carry;
mod connection_recycling;
mod failures;
mod fences;
mod handshake;
mod hostile;
mod memory_device;
mod notifications;
mod registration_cache;
mod request_counts;
mod strided;

#[path = "../am/counters.rs"]
mod counters;
#[path = "../am/data.rs"]
mod data;
#[path = "../am/epochs.rs"]
mod epochs;
#[path = "../am/hub.rs"]
mod hub;
#[path = "../am/tagged.rs"]
mod tagged;
#[path = "../am/unattached.rs"]
mod unattached;
#[path = "../am/world.rs"]
mod world;
