//! What carries the packets of these tests: the hub alone.

use std::sync::{Arc, Mutex};

use mpix_rma::engine::Rank;
use mpix_rma::transport::rdma::Endpoint;
use mpix_rma::transport::shm::ShmWindow;

use crate::hub::Hub;

/// Whether all messages go through the hub, where they can be counted.
pub const ALL_BY_MESSAGES: bool = true;

/// The RDMA endpoint of a process, and what polls its context: there is none.
pub fn endpoint(_: &Arc<Mutex<Hub>>, _: Rank, _: &ShmWindow, _: Rank) -> Option<(Endpoint, Poll)> {
    None
}

/// Polls an RDMA context. True if anything has happened.
pub type Poll = Box<dyn FnMut() -> bool + Send>;
