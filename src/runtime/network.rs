//! What the windows of this process share to reach other nodes: active-message contexts, and the
//! RDMA context. Each is polled once per look, whatever the number of windows.

use crate::transport::am;
use crate::transport::rdma;

/// Polls of RDMA between two of the host, if no window waits for its messages: one takes as long as
/// several of RDMA.
const POLLS_PER_HOST_POLL: u32 = 64;

/// The contexts of this process.
#[derive(Debug)]
pub(crate) struct Network {
    /// Of all processes of `MPI_COMM_WORLD`.
    job: Option<am::context::SharedContext>,
    /// Each of one window with other processes.
    own: Vec<am::context::SharedContext>,
    rdma: Option<rdma::SharedContext>,
    /// Polls since the last one of the host.
    polls: u32,
}

impl Network {
    pub(crate) const fn new() -> Self {
        Network { job: None, own: Vec::new(), rdma: None, polls: 0 }
    }

    /// The active-message context of the job.
    pub(crate) fn job(&self) -> Option<&am::context::SharedContext> {
        self.job.as_ref()
    }

    pub(crate) fn set_job(&mut self, context: am::context::SharedContext) {
        self.job = Some(context);
    }

    /// Adds the context of one window.
    pub(crate) fn add(&mut self, context: am::context::SharedContext) {
        self.own.push(context);
    }

    /// The RDMA context of this process.
    pub(crate) fn set_rdma(&mut self, context: Option<rdma::SharedContext>) {
        self.rdma = context;
    }

    /// Ends the contexts of single windows that have ended.
    pub(crate) fn end_unused(&mut self) {
        self.own.retain(|context| {
            let mut context = context.borrow();
            let used = !context.is_unused();
            if !used {
                context.end();
            }
            used
        });
    }

    /// Ends the context of the job, unless windows are left that use it.
    pub(crate) fn end_job(&mut self) {
        if let Some(context) = self.job.take() {
            let mut context = context.borrow();
            if context.is_unused() {
                context.end();
            }
        }
    }

    /// Polls all contexts once, and calls `contacted` with the cookie of each window that something
    /// has arrived for. True if anything has.
    pub(crate) fn poll(&mut self, mut contacted: impl FnMut(u64)) -> bool {
        let mut any = false;
        if let Some(rdma) = &self.rdma {
            let mut rdma = rdma.borrow();
            any |= rdma.poll();
            std::iter::from_fn(|| rdma.next_contacted()).for_each(&mut contacted);
        }
        self.polls += 1;
        let by_rdma = any;
        let is_due = self.polls >= POLLS_PER_HOST_POLL;
        for context in self.job.iter().chain(&self.own) {
            let mut context = context.borrow();
            if is_due || (!by_rdma && context.expects_messages()) {
                self.polls = 0;
                any |= context.poll();
            }
            std::iter::from_fn(|| context.next_contacted()).for_each(&mut contacted);
        }
        any
    }
}
