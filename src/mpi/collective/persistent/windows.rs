//! The memory of windows that a collective reads in place.

use crate::mpi::abi::sys::MPI_ERR_BUFFER;
use crate::runtime::collectives::CollectiveFailure;
use crate::transport::shm::window_memory::{WindowPlace, address_of, mappings_ended};

/// Where a collective reads, and where it is read.
#[derive(Debug)]
pub(super) struct Windows {
    /// Addresses here, and places.
    mapped: Vec<(usize, WindowPlace)>,
    /// [`mappings_ended`] when they were last valid.
    ended: u64,
}

impl Windows {
    /// None yet. The addresses that are added are looked up after this.
    pub(super) fn new() -> Self {
        Windows { mapped: Vec::new(), ended: mappings_ended() }
    }

    pub(super) fn add(&mut self, address: usize, place: WindowPlace) {
        self.mapped.push((address, place));
    }

    /// Whether all are still there.
    ///
    /// # Errors
    /// A window has been freed.
    #[inline]
    pub(super) fn check(&mut self) -> Result<(), CollectiveFailure> {
        let ended = mappings_ended();
        if ended == self.ended {
            return Ok(());
        }
        if !self.mapped.iter().all(|(at, place)| address_of(*place, 1) == Some(*at)) {
            const TEXT: &str = "the window that has a buffer of the collective has been freed";
            return Err(CollectiveFailure { class: MPI_ERR_BUFFER, text: TEXT });
        }
        self.ended = ended;
        Ok(())
    }
}
