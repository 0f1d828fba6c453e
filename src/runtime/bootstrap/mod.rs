//! How the processes of a new window choose the same transport: what they exchange, what they
//! decide from it, and the order of the collective steps.
//!
//! Nothing here communicates. The host glue carries out each [`Action`] over the host's collectives
//! (`src/mpi/bootstrap`), and tests run all processes of a window in one thread.
//!
//! | module | what it has |
//! |---|---|
//! | [`agreement`] | contributions to the first gather, and what the processes decide from them |
//! | [`card`] | what a process publishes for peers that reach it by messages or RDMA |
//! | [`setup`] | the steps |

pub(crate) mod agreement;
pub(crate) mod card;
pub(crate) mod setup;

pub(crate) use agreement::{CONTRIBUTION, Contribution, DifferingKey, Waiting};
pub(crate) use card::{CARD, Card, PortCard};
pub(crate) use setup::{Action, Event, Missing, NotMade, SegmentOf, Setup};
