//! One window in one process.

use super::alphabet::*;

/// One window in one process.
#[derive(Debug)]
pub struct Window {}

#[allow(unused_variables, clippy::missing_errors_doc, missing_docs)]
impl Window {
    pub fn new(me: Rank, size: u32, flags: ReorderFlags) -> Self { unimplemented!() }

    // Opening calls: never block [EP-1].
    pub fn post(&mut self, port: &mut impl Port, group: &[Rank], assert: Assert) -> Result<(), SyncError> { unimplemented!() }
    pub fn start(&mut self, port: &mut impl Port, group: &[Rank], assert: Assert) -> Result<(), SyncError> { unimplemented!() }
    pub fn lock(&mut self, port: &mut impl Port, mode: LockMode, target: Rank, assert: Assert) -> Result<(), SyncError> { unimplemented!() }
    pub fn lock_all(&mut self, port: &mut impl Port, assert: Assert) -> Result<(), SyncError> { unimplemented!() }

    // Closing calls.
    pub fn wait(&mut self, port: &mut impl Port) -> Result<Outcome, SyncError> { unimplemented!() }
    /// `MPI_Win_test` [RQ-4]
    pub fn test(&mut self, port: &mut impl Port) -> Result<bool, SyncError> { unimplemented!() }
    pub fn complete(&mut self, port: &mut impl Port) -> Result<Outcome, SyncError> { unimplemented!() }
    pub fn fence(&mut self, port: &mut impl Port, assert: Assert) -> Result<Outcome, SyncError> { unimplemented!() }
    pub fn unlock(&mut self, port: &mut impl Port, target: Rank) -> Result<Outcome, SyncError> { unimplemented!() }
    pub fn unlock_all(&mut self, port: &mut impl Port) -> Result<Outcome, SyncError> { unimplemented!() }

    // Flushes: `None` is the `_all` form.
    pub fn flush(&mut self, port: &mut impl Port, target: Option<Rank>) -> Result<Outcome, SyncError> { unimplemented!() }
    pub fn flush_local(&mut self, port: &mut impl Port, target: Option<Rank>) -> Result<Outcome, SyncError> { unimplemented!() }

    // Communication. Ranks, displacements and sizes were checked by the caller.
    pub fn issue(&mut self, port: &mut impl Port, op: Op) -> Result<(), SyncError> { unimplemented!() }
    /// The R-forms: local completion for put and accumulate, results in place for the others.
    pub fn issue_request(&mut self, port: &mut impl Port, op: Op) -> Result<Outcome, SyncError> { unimplemented!() }

    /// One bounded sweep. True if anything moved.
    pub fn progress(&mut self, port: &mut impl Port) -> bool { unimplemented!() }
    /// Requests completed since the last call.
    pub fn next_completed(&mut self) -> Option<RequestId> { unimplemented!() }
    /// True while the request is not complete (for blocking callers).
    pub fn is_pending(&self, request: RequestId) -> bool { unimplemented!() }
    /// True if nothing waits for progress: no closed epoch, deferred epoch, operation in flight, flush or lock request.
    pub fn is_quiet(&self) -> bool { unimplemented!() }
    /// True if the lock on `target` (or lock_all) opened by this process is held [EP-1].
    pub fn holds_lock(&self, target: Rank) -> bool { unimplemented!() }
    /// True if lock_all is held.
    pub fn holds_lock_all(&self) -> bool { unimplemented!() }
    /// True if a start, post, lock or lock_all epoch is open by the application [RQ-5].
    pub fn has_open_epoch(&self) -> bool { unimplemented!() }
    /// Requests alive.
    pub fn requests_alive(&self) -> u32 { unimplemented!() }
}
