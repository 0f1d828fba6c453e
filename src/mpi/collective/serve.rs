//! Who serves a collective: a schedule, or the host in one of two forms.

use std::ffi::c_int;

use super::communicators::{self, Claim, Collective, Communicator, Ours};
use super::nodes::Nodes;
use crate::collective::{Content, Mismatch};
use crate::mpi::abi::error::{Fault, Place, raise};
use crate::mpi::abi::sys::*;

/// Codes of contents. A reduction adds its operation's code.
pub(super) mod code {
    pub(crate) const BARRIER: u32 = 0;
    pub(crate) const BROADCAST: u32 = 1;
    pub(crate) const GATHER: u32 = 2;
    pub(crate) const SCATTER: u32 = 3;
    pub(crate) const ALLGATHER: u32 = 4;
    pub(crate) const ALLTOALL: u32 = 5;
    pub(crate) const GATHERV: u32 = 6;
    pub(crate) const SCATTERV: u32 = 7;
    pub(crate) const ALLGATHERV: u32 = 8;
    pub(crate) const ALLTOALLV: u32 = 9;
    pub(crate) const ALLREDUCE: u32 = 1 << 8;
    pub(crate) const REDUCE: u32 = 2 << 8;
    pub(crate) const SCAN: u32 = 3 << 8;
    pub(crate) const EXSCAN: u32 = 4 << 8;
    pub(crate) const REDUCE_SCATTER: u32 = 5 << 8;
}

/// The host's forms of a call.
pub(super) struct Host<D, B> {
    /// The nonblocking form, driven.
    pub(super) driven: D,
    /// The blocking form, for processes that have all entered the call.
    pub(super) blocking: B,
}

/// How a call went on a communicator with a board.
#[derive(Clone, Copy)]
pub(super) enum Served {
    /// It is complete.
    Done,
    /// The host serves it, as all processes know.
    AtHost,
    /// The same, and all processes have entered it.
    Assembled,
}

/// Why a call failed on a communicator with a board. Faults are boxed, so that results fit into
/// registers: those of most calls are good.
pub(super) enum Failed {
    /// It is wrong in this process, so the host reports it. The others may not have called.
    Wrong,
    /// This library reports it.
    Fault(Box<Fault>),
    /// The same, after the host has served the call in this way: other processes wait there, and
    /// MPICH's nonblocking forms do not report blocks that are too long.
    AfterHost(Served, Box<Fault>),
}

impl From<Fault> for Failed {
    fn from(fault: Fault) -> Self {
        Failed::Fault(Box::new(fault))
    }
}

/// Serves a call that all processes of `comm` make, by `ours` if the communicator has a board. On
/// several nodes, the host serves it.
#[inline]
pub(super) fn serve(
    call: &'static str,
    comm: MPI_Comm,
    host: Host<impl FnOnce() -> c_int, impl FnOnce() -> c_int>,
    ours: impl FnOnce(&mut Communicator) -> Result<Served, Failed>,
) -> c_int {
    serve_across(call, comm, host, ours, |_| Ok(Served::AtHost))
}

/// As [`serve`]; on several nodes by `across`.
#[inline]
pub(super) fn serve_across(
    call: &'static str,
    comm: MPI_Comm,
    host: Host<impl FnOnce() -> c_int, impl FnOnce() -> c_int>,
    ours: impl FnOnce(&mut Communicator) -> Result<Served, Failed>,
    across: impl FnOnce(&mut Nodes) -> Result<Served, Failed>,
) -> c_int {
    const BUSY: &str = "comm is in use by another collective of this process";
    if !communicators::is_open() {
        return (host.driven)();
    }
    let fault = match communicators::claim(comm) {
        Claim::Host => return (host.driven)(),
        Claim::Unknown => {
            let code = (host.driven)();
            if code == MPI_SUCCESS {
                communicators::begin(comm);
            }
            return code;
        }
        Claim::Ours(mut own) => {
            let (served, late, may_block) = match &mut own {
                Ours::Node(own) => {
                    let may_block = !own.is_crowded();
                    let (served, late) = apart(ours(own));
                    let served = match served {
                        Ok(Served::AtHost) if may_block => {
                            assemble(own).map(|()| Served::Assembled).map_err(Failed::from)
                        }
                        other => other,
                    };
                    (served, late, may_block)
                }
                Ours::Nodes(own) => {
                    let (served, late) = apart(across(own));
                    (served, late, false)
                }
            };
            communicators::release(comm, own);
            let code = match served {
                Ok(Served::Done) => return MPI_SUCCESS,
                Ok(Served::Assembled) if may_block => (host.blocking)(),
                Ok(_) | Err(Failed::Wrong) => (host.driven)(),
                Err(Failed::Fault(fault) | Failed::AfterHost(_, fault)) => {
                    return raise(call, Place::Communicator(comm), *fault);
                }
            };
            match late {
                Some(fault) if code == MPI_SUCCESS => *fault,
                _ => return code,
            }
        }
        Claim::Busy => Fault::new(MPI_ERR_OTHER, BUSY),
    };
    raise(call, Place::Communicator(comm), fault)
}

/// How a call goes on, and what this process reports after the host has served it.
#[inline]
fn apart(served: Result<Served, Failed>) -> (Result<Served, Failed>, Option<Box<Fault>>) {
    match served {
        Err(Failed::AfterHost(served, fault)) => (Ok(served), Some(fault)),
        other => (other, None),
    }
}

/// A barrier before a blocking call of the host: when it returns, all processes have entered the
/// call, so the host blocks only for its own work.
pub(super) fn assemble(own: &mut Communicator) -> Result<(), Fault> {
    let content = Content { bytes: 0, code: code::BARRIER };
    let mismatch = own.run(Collective::Barrier, content, |_, _| ());
    mismatch.map_or(Ok(()), |mismatch| Err(differs(mismatch, MPI_ERR_OTHER, MPI_ERR_OTHER)))
}

/// `MPI_Barrier`.
pub(super) fn barrier(own: &mut Communicator) -> Result<Served, Failed> {
    assemble(own)?;
    Ok(Served::Done)
}

/// The error of a collective whose calls do not match between processes [CL-3].
#[cold]
pub(super) fn differs(mismatch: Mismatch, shorter: c_int, operation: c_int) -> Fault {
    match mismatch {
        Mismatch::Longer => {
            Fault::new(MPI_ERR_TRUNCATE, "count: another process has more data than this one")
        }
        Mismatch::Shorter => {
            Fault::new(shorter, "count: another process has less data than this one")
        }
        Mismatch::Operation => {
            Fault::new(operation, "another process has called with another operation")
        }
    }
}
