//! How the processes of a new window come to the same transport: what they tell each other, what
//! follows from it, and in which order the collective steps are taken.
//!
//! Nothing here communicates. The host glue carries out each [`Action`] over the host's collectives
//! (`src/mpi/bootstrap`), and tests run all processes of a window in one thread.
//!
//! | module | what it has |
//! |---|---|
//! | [`agreement`] | numbers that the first gather carries, and what follows from the highest ones |
//! | [`card`] | what a process publishes for peers that reach it by messages or RDMA |
//! | [`setup`] | the steps |

pub(crate) mod agreement;
pub(crate) mod card;
pub(crate) mod setup;

pub(crate) use agreement::{CONTRIBUTION, Contribution, Waiting};
pub(crate) use card::{CARD, Card, PortCard};
pub(crate) use setup::{Action, Event, Missing, NotMade, SegmentOf, Setup};
