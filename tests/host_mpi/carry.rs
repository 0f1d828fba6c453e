//! The channel of these tests: the hub carries all messages.

use std::sync::{Arc, Mutex};

use mpix_rma::engine::Rank;
use mpix_rma::transport::shm::ShmWindow;

use crate::hub::{Hub, HubChannel};

pub type Carrier = HubChannel;

/// Whether all messages go through the hub, where they can be counted.
pub const ALL_BY_MESSAGES: bool = true;

pub fn carry(hub: &Arc<Mutex<Hub>>, me: Rank, _: &ShmWindow, _: Rank) -> Carrier {
    HubChannel::new(hub, me)
}
