//! Requests that wait for the next one of their queue pair, so that all ring the doorbell once.

use super::super::device::{Qp, WorkRequest};
use super::device::MAX_INLINE;
use crate::transport::copy;

/// Most requests that wait. The next one is posted with them.
pub(super) const MOST_KEPT: usize = 3;

/// The requests that wait, oldest first.
#[derive(Debug)]
pub(super) struct Kept {
    qp: Qp,
    requests: Vec<WorkRequest>,
    /// What inline requests send, in the same order, since the caller's memory may change.
    bytes: [[u8; MAX_INLINE as usize]; MOST_KEPT],
}

impl Kept {
    pub(super) fn new() -> Self {
        Kept { qp: Qp(0), requests: Vec::new(), bytes: [[0; _]; _] }
    }

    /// The queue pair of the requests, and the number of the last one. `None` if none waits.
    #[inline]
    pub(super) fn queue(&self) -> Option<(Qp, u64)> {
        self.requests.last().map(|last| (self.qp, last.id))
    }

    /// The requests, and the addresses of their local memory.
    #[inline]
    pub(super) fn requests(&self) -> impl DoubleEndedIterator<Item = (&WorkRequest, usize)> {
        // As long as each other, so that both can be reversed.
        self.requests.iter().zip(&self.bytes[..self.requests.len()]).map(|(request, bytes)| {
            (request, if request.inline { bytes.as_ptr() as usize } else { request.local })
        })
    }

    /// Keeps a request of this queue pair, which is that of all others. False if there is no room.
    ///
    /// # Safety
    /// The local memory of the request is valid.
    pub(super) unsafe fn keep(&mut self, qp: Qp, request: &WorkRequest) -> bool {
        let Some(bytes) = self.bytes.get_mut(self.requests.len()) else { return false };
        if request.inline {
            let len = request.len as usize;
            assert!(len <= bytes.len(), "{len} bytes are too many for an inline request");
            // SAFETY: the request's memory is valid for `len` bytes (contract of this function), of
            // which `bytes` has as many.
            unsafe { copy(request.local as *const u8, bytes.as_mut_ptr(), len) };
        }
        self.qp = qp;
        self.requests.push(*request);
        true
    }

    pub(super) fn clear(&mut self) {
        self.requests.clear();
    }

    /// Drops the requests of a queue pair that is being destroyed.
    pub(super) fn forget(&mut self, qp: Qp) {
        if self.qp == qp {
            self.requests.clear();
        }
    }
}
