//! RDMA networks, by libibverbs, for peers that shared memory does not reach.
//!
//! A window with an interface is a [`MessageWindow`](super::host_mpi::MessageWindow) whose packets
//! go through the interface's queues ([`VerbsCourier`]), and which reaches its peers' memory and
//! words by them without packets where that is possible ([`Direct`]). So what needs the target's
//! processor (accumulates, derived datatypes, memory that is not registered) is done as between any
//! nodes, and what does not is not.
//!
//! | module | what it does |
//! |---|---|
//! | `sys` | the binary interface of libibverbs, loaded at run time |
//! | [`nic`] | what is wanted of an interface; [`device`] has it from libibverbs, tests from memory |
//! | [`fabric`] | queues, buffers and requests of a process, shared by its windows |
//! | `memory`, `watch`, `ranges` | registrations of the application's memory, and what tells that it is gone |
//! | [`ports`] | which device and port, and which address |
//! | `pool` | registered buffers |
//! | [`hello`] | how two processes find each other's queues, memory and words |
//! | `words` | signals and words of the lock service, in registered memory |
//! | `direct` | one window's part: its peers, how they are met (`contact`), what comes in |
//! | `operations`, `reductions` | its operations, signals and lock words |
//! | `strided` | puts and gets of derived datatypes |
//! | `courier` | one window's packets |
//! | [`ability`] | whom a window reaches by it, and what its atomics are used for |
//!
//! `docs/design/verbs.md` counts what each call costs.

pub mod ability;
mod courier;
pub mod device;
mod direct;
pub mod fabric;
pub mod hello;
pub mod memory;
pub mod nic;
mod operations;
mod pool;
pub mod ports;
mod ranges;
mod reductions;
mod strided;
#[allow(non_camel_case_types, reason = "the names are those of the C header")]
pub mod sys;
mod watch;
mod words;

pub use courier::VerbsCourier;
pub use direct::{Direct, Domain, Own, Shared};
