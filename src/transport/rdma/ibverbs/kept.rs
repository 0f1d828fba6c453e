//! Requests that wait for the next one of their queue pair, so that all ring the doorbell once.

use super::super::device::{Qp, WorkRequest};
use super::device::MAX_INLINE;
use crate::transport::copy;

/// Most requests that wait. The next one is posted with them.
pub(super) const MOST_KEPT: usize = 3;

#[derive(Clone, Copy, Debug)]
struct Request {
    work: WorkRequest,
    /// What an inline request sends, since the caller's memory may change.
    bytes: [u8; MAX_INLINE as usize],
}

/// The requests that wait, oldest first.
#[derive(Debug, Default)]
pub(super) struct Kept {
    qp: Qp,
    requests: Vec<Request>,
}

impl Kept {
    /// The queue pair of the requests, and the number of the last one. `None` if none waits.
    #[inline]
    pub(super) fn queue(&self) -> Option<(Qp, u64)> {
        self.requests.last().map(|last| (self.qp, last.work.id))
    }

    /// The requests, and the addresses of their local memory.
    #[inline]
    pub(super) fn requests(&self) -> impl DoubleEndedIterator<Item = (&WorkRequest, usize)> {
        self.requests.iter().map(|Request { work, bytes }| {
            (work, if work.inline { bytes.as_ptr() as usize } else { work.local })
        })
    }

    /// Keeps a request of this queue pair, which is that of all others. False if there is no room.
    ///
    /// # Safety
    /// The local memory of the request is valid.
    pub(super) unsafe fn keep(&mut self, qp: Qp, work: &WorkRequest) -> bool {
        if self.requests.len() == MOST_KEPT {
            return false;
        }
        self.qp = qp;
        let mut request = Request { work: *work, bytes: [0; MAX_INLINE as usize] };
        if work.inline {
            let len = work.len as usize;
            assert!(len <= request.bytes.len(), "{len} bytes are too many for an inline request");
            // SAFETY: the request's memory is valid for `len` bytes (contract of this function), of
            // which `bytes` has as many.
            unsafe { copy(work.local as *const u8, request.bytes.as_mut_ptr(), len) };
        }
        self.requests.push(request);
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
