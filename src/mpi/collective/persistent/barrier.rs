//! `MPI_Barrier_init`: a dissemination barrier over words that only rise.

use super::{NotServed, over_nodes, scratch, serves_always};
use crate::collective::flags::Dissemination;
use crate::mpi::collective::communicators::Carrier;
use crate::runtime::collectives::{Advance, PersistentCollective};
use crate::transport::shm::Scratch;

struct Barrier {
    scratch: Scratch,
    barrier: Dissemination,
}

impl PersistentCollective for Barrier {
    fn start(&mut self) -> Advance {
        self.barrier.start();
        self.advance()
    }

    fn advance(&mut self) -> Advance {
        let before = self.barrier;
        match self.barrier.advance(self.scratch.words()) {
            true => Advance::Complete,
            false => Advance::Pending { moved: self.barrier != before },
        }
    }
}

/// Sets up a barrier. Collective.
pub(super) fn set_up(carrier: &mut Carrier) -> Result<Box<dyn PersistentCollective>, NotServed> {
    if serves_always()
        && let Some(made) = over_nodes::barrier(carrier)
    {
        return made;
    }
    let barrier = Dissemination::new(carrier.me, carrier.ranks);
    let scratch = scratch(carrier, barrier.words())?;
    Ok(Box::new(Barrier { scratch, barrier }))
}
