//! What carries the messages of these tests: nothing but the hub.

use std::sync::{Arc, Mutex};

use mpix_rma::engine::Rank;
use mpix_rma::transport::shm::ShmWindow;

use crate::hub::{Hub, HubChannel};

pub type Carrier = HubChannel;

/// All messages go through the hub, so they can be counted there.
pub const ALL_BY_MESSAGES: bool = true;

pub fn carry(hub: &Arc<Mutex<Hub>>, me: Rank, _: &ShmWindow, _: Rank) -> Carrier {
    HubChannel::new(hub, me)
}
