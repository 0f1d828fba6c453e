//! The out-of-band exchange of a new window's processes, by the host's collectives.

use std::ffi::c_int;

use crate::engine::Rank;
use crate::mpi::abi::host_calls;
use crate::mpi::abi::sys::*;
use crate::mpi::bootstrap::channel::ReservedPort;
use crate::mpi::bootstrap::{Part, rdma};
use crate::mpi::progress::{drive, hook};
use crate::runtime::bootstrap::{CARD, CONTRIBUTION, Card, Contribution, Setup, Waiting};
use crate::runtime::progress::Backoff;
use crate::transport::shm::{self, Bootstrap, Memory};

/// One process's side of the exchange, and the set-up that decides the steps.
pub(crate) struct Exchange {
    pub(super) comm: MPI_Comm,
    rank: Rank,
    size: u32,
    pub(super) setup: Setup,
    pub(super) part: Part,
    /// This process's port for messages.
    pub(super) port: Option<ReservedPort>,
    /// How to wait; `None` before the first gather.
    waiting: Option<Waiting>,
    /// The processes agreed in the first gather to make no segment.
    unwanted: bool,
    /// The first error of the host, which has called the error handler. The gather's result is set
    /// to zeros, and the set-up ends without a window.
    pub(super) failed: Option<c_int>,
}

impl Exchange {
    /// Makes an exchange over a live communicator. `contribution` goes into the agreement, `part`
    /// into the window.
    pub(crate) fn over(
        comm: MPI_Comm,
        (rank, size): (c_int, c_int),
        contribution: Contribution,
        part: Part,
    ) -> Self {
        let (rank, size) = (rank as Rank, size as u32);
        let must_share = matches!(part.memory, Memory::Share { .. });
        let setup = Setup::new((rank, size), must_share, contribution);
        let (port, waiting, unwanted, failed) = (None, None, false, None);
        Exchange { comm, rank, size, setup, part, port, waiting, unwanted, failed }
    }

    /// Makes an exchange over a communicator of some of these processes, which have agreed already.
    pub(super) fn within(&self, comm: MPI_Comm) -> Self {
        let (mut rank, mut size) = (0, 0);
        host_calls::comm_rank(comm, &mut rank);
        host_calls::comm_size(comm, &mut size);
        let mut part = Self::over(comm, (rank, size), self.setup.contribution(), self.part);
        part.waiting = self.waiting;
        part
    }

    /// Logs settings that differ between processes.
    pub(crate) fn warn(&self, call: &str) {
        self.setup.contribution().warn(call);
    }

    /// True if the next collective may be a blocking call of the host: all processes have arrived,
    /// and wait only for each other.
    pub(super) fn may_block(&self) -> bool {
        self.waiting == Some(Waiting::Blocking)
    }

    /// The card that this process publishes.
    fn card(&self, capability: Option<u8>) -> Card {
        Card {
            node: shm::node().unwrap_or_default(),
            bytes: self.part.bytes,
            disp_unit: self.part.disp_unit,
            capability,
            port: self.port.as_ref().map(|port| port.card).unwrap_or_default(),
        }
    }

    /// The first gather: contributions and cards travel with the caller's `mine`.
    fn gather_first(&mut self, mine: &[u8], all: &mut [u8]) -> c_int {
        self.port = ReservedPort::reserve();
        let single = self.part.single;
        let card =
            self.card(rdma::opened().map(|context| rdma::capability(context.as_ref(), single)));
        let mut record = mine.to_vec();
        record.extend_from_slice(&self.setup.contribution().encode());
        record.extend_from_slice(&card.encode());
        let mut records = vec![0; record.len() * self.size as usize];
        // SAFETY: the communicator is live; `records` has room for one record of each process.
        let code = unsafe { drive::allgather(self.comm, &record, &mut records) };
        for (theirs, record) in
            all.chunks_exact_mut(mine.len()).zip(records.chunks_exact(record.len()))
        {
            theirs.copy_from_slice(&record[..mine.len()]);
        }
        let each = records.chunks_exact(record.len()).map(|record| {
            let (contribution, card) = record[mine.len()..].split_at(CONTRIBUTION);
            (contribution, Card::decode(card))
        });
        // All processes compute the same value: MPI_Init agrees on what it depends on [PR-5].
        let receives_while_waiting = hook::takes_messages() || drive::collectives();
        self.unwanted = !self.setup.gathered(each, receives_while_waiting);
        self.waiting = self.setup.agreement().map(|agreement| agreement.waiting);
        code
    }

    /// Gathers the cards again, now with this process's RDMA capability.
    pub(super) fn advertise(&mut self, capability: u8) -> Vec<Card> {
        let mine = self.card(Some(capability)).encode();
        let mut all = vec![0; CARD * self.size as usize];
        self.allgather(&mine, &mut all);
        all.chunks_exact(CARD).map(Card::decode).collect()
    }
}

impl Bootstrap for Exchange {
    fn rank(&self) -> Rank {
        self.rank
    }
    fn size(&self) -> u32 {
        self.size
    }
    fn allgather(&mut self, mine: &[u8], all: &mut [u8]) {
        assert_eq!(mine.len() * self.size as usize, all.len());
        let code = match self.waiting {
            None => self.gather_first(mine, all),
            // SAFETY: the communicator is live; the lengths were just compared.
            Some(Waiting::Blocking) => unsafe { drive::allgather_blocking(self.comm, mine, all) },
            // SAFETY: as above: a live communicator, and lengths that were just compared.
            Some(Waiting::Driving) => unsafe { drive::allgather(self.comm, mine, all) },
        };
        if code != MPI_SUCCESS {
            all.fill(0);
            self.failed.get_or_insert(code);
        }
    }
    fn goes_on(&self) -> bool {
        !self.unwanted && self.failed.is_none()
    }
    fn wait(&mut self, done: &mut dyn FnMut() -> bool) {
        if self.may_block() {
            let mut backoff = Backoff::new();
            while !done() {
                backoff.round();
                backoff.pause();
            }
        } else {
            drive::until(|| done().then_some(()));
        }
    }
}
