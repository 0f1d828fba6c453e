//! What the windows of this process share to reach other nodes: active-message contexts and the
//! RDMA context. A sweep polls each of them once, however many windows there are.

use crate::transport::am;
use crate::transport::rdma;

/// Polls of RDMA between two polls of the host, if no window expects messages: one poll of the host
/// takes as long as several of RDMA.
const POLLS_PER_HOST_POLL: u32 = 64;

/// The contexts of this process.
#[derive(Debug)]
pub(crate) struct Network {
    /// Over `MPI_COMM_WORLD`, for all windows whose processes share it.
    job: Option<am::context::SharedContext>,
    /// One for each other window.
    own: Vec<am::context::SharedContext>,
    rdma: Option<rdma::SharedContext>,
    /// Polls since the host was last polled.
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

    /// Ends the contexts of single windows that have been freed.
    pub(crate) fn end_unused(&mut self) {
        self.own.retain(|context| !end_if_unused(context));
    }

    /// Ends the context of the job, unless windows still use it.
    pub(crate) fn end_job(&mut self) {
        if let Some(context) = self.job.take() {
            end_if_unused(&context);
        }
    }

    /// Polls all contexts once, and calls `contacted` with the cookie of each window that a message
    /// or an RDMA event has arrived for. True if anything has arrived.
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

    /// From now on, packets to one process wait for each other, until
    /// [`send_held`](Self::send_held).
    #[inline]
    pub(crate) fn hold(&self) {
        for context in self.job.iter().chain(&self.own) {
            context.borrow().hold();
        }
    }

    /// Sends the packets that have waited since [`hold`](Self::hold). Those to one process travel
    /// together.
    #[inline]
    pub(crate) fn send_held(&self) {
        for context in self.job.iter().chain(&self.own) {
            context.borrow().send_held();
        }
    }
}

/// Ends a context unless a window uses it. True if it was ended.
fn end_if_unused(context: &am::context::SharedContext) -> bool {
    let mut context = context.borrow();
    let is_unused = context.is_unused();
    if is_unused {
        context.end();
    }
    is_unused
}
