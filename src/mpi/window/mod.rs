//! How windows are made. What else is said and asked of them stands beside this file:
//!
//! | module | what it does |
//! |---|---|
//! | `constructors` | the constructors as programs call them |
//! | `memory` | `MPI_Win_shared_query`, and memory that is attached to dynamic windows |
//! | `handle` | the host's window that stands for one of ours, and its group |
//! | `attributes`, `hints` | what can be asked of a window, and its info keys |
//! | `free` | its end |
//!
//! The handle of a window of ours is a real window of the host without memory, of this process
//! alone ([`HostWindow`]). So attributes, info, name and error handler work by themselves; the
//! group and the attributes that describe the memory are answered here.
//!
//! Whether a window is ours is agreed by all its processes before anything is made that the
//! application sees, and a wrong argument in one process gives an error in all.

use std::ffi::{c_int, c_void};

use crate::engine::{self, Addr, Rank};
use crate::mpi::abi::error::{Fault, Place, raise};
use crate::mpi::abi::sys::*;
use crate::mpi::abi::world;
use crate::mpi::bootstrap::{self, Exchange, NotMade, communicators};
use crate::mpi::datatype;
use crate::mpi::info;
use crate::mpi::progress::drive;
use crate::mpi::progress::hook;
use crate::runtime::config::{Serve, Settings};
use crate::runtime::progress::note_live;
use crate::runtime::window::Attributes;
use crate::runtime::{Hints, HostHandle, Window, enter};
use crate::transport::shm::{self, COUNTERS_APART, Memory};
use handle::HostWindow;

mod attributes;
mod constructors;
mod fortran;
mod free;
mod handle;
mod hints;
mod memory;

pub(crate) use attributes::{MPI_Win_get_attr, NOTIFICATION_VALUE_UB, is_ours};
pub(crate) use free::any_objection;

/// What the application asks for.
struct Wanted {
    call: &'static str,
    base: *mut c_void,
    size: i64,
    disp_unit: i64,
    info: MPI_Info,
    comm: MPI_Comm,
    flavor: c_int,
}

impl Wanted {
    /// What is wrong with the arguments.
    fn fault(&self) -> Option<Fault> {
        if self.size < 0 {
            Some(Fault::new(MPI_ERR_SIZE, "size is negative"))
        } else if self.disp_unit <= 0 {
            Some(Fault::new(MPI_ERR_DISP, "disp_unit is not positive"))
        } else if self.flavor == MPI_WIN_FLAVOR_CREATE && self.base.is_null() && self.size > 0 {
            Some(Fault::new(MPI_ERR_BUFFER, "base is NULL"))
        } else {
            None
        }
    }

    /// The memory that this process puts in, for the transport.
    fn memory(&self, hints: &Hints) -> Memory {
        let (size, align) = (self.size as u64, hints.alignment);
        if self.flavor == MPI_WIN_FLAVOR_CREATE {
            Memory::Create { base: Addr(self.base as usize), size }
        } else if self.flavor == MPI_WIN_FLAVOR_DYNAMIC {
            Memory::Dynamic
        } else if self.flavor == MPI_WIN_FLAVOR_SHARED {
            Memory::Share { size, align, noncontig: hints.noncontig }
        } else {
            Memory::Allocate { size, align }
        }
    }

    /// True if the window's memory is to be allocated.
    fn allocates(&self) -> bool {
        [MPI_WIN_FLAVOR_ALLOCATE, MPI_WIN_FLAVOR_SHARED].contains(&self.flavor)
    }

    /// There is no window of ours, for this reason.
    fn unmade(&self, fault: Option<Fault>, reason: NotMade) -> Made {
        match reason {
            NotMade::Host(code) => Made::Failed(code),
            NotMade::Invalid(class) => {
                let fault = fault.unwrap_or_else(|| {
                    Fault::new(class, "another process of the communicator gave a wrong argument")
                });
                Made::Failed(raise(self.call, Place::Communicator(self.comm), fault))
            }
            NotMade::LeftToHost => {
                log::info!(
                    "{}: the window is left to the host: it is not marked mpix_rma=true, or is \
                     marked false",
                    self.call
                );
                Made::Host
            }
            // Neither host survives what it cannot allocate either.
            NotMade::Unsuitable(reason) if reason.lacks_memory() && self.allocates() => {
                log::warn!("{}: {reason}", self.call);
                let fault = Fault::new(
                    MPI_ERR_NO_MEM,
                    "the system has no memory for the window in some process",
                );
                Made::Failed(raise(self.call, Place::Communicator(self.comm), fault))
            }
            NotMade::Unsuitable(reason) => {
                log::info!("{}: the window is left to the host: {reason}", self.call);
                Made::Host
            }
        }
    }
}

/// What became of it.
enum Made {
    /// Ours, under this handle, with its memory.
    Ours(MPI_Win, Addr),
    /// Left to the host.
    Host,
    /// Failed; the error handler has heard of it.
    Failed(c_int),
}

/// Nothing before `MPI_Init` and where that call does not come through us.
fn settings() -> Option<Settings> {
    enter().settings
}

/// Makes a window of ours, or says why not.
fn create(wanted: &Wanted) -> Made {
    let Some(settings) = settings() else { return Made::Host };
    // Without MPI_Init the others may have another setting: it is asked for below.
    if settings.serve() == Serve::Off && world::has_world() {
        return Made::Host;
    }
    if wanted.comm == MPI_COMM_NULL {
        return Made::Host;
    }
    let (mut inter, mut rank, mut size) = (0, 0, 0);
    // SAFETY: the handle is the application's; the host checks it.
    unsafe {
        let code = PMPI_Comm_test_inter(wanted.comm, &raw mut inter);
        if code != MPI_SUCCESS {
            return Made::Failed(code);
        }
        if inter != 0 {
            // Hosts may not look: MPICH 4.0 takes a signal in some of its constructors.
            let fault = Fault::new(MPI_ERR_COMM, "comm is an intercommunicator");
            return Made::Failed(raise(wanted.call, Place::Communicator(wanted.comm), fault));
        }
        PMPI_Comm_rank(wanted.comm, &raw mut rank);
        PMPI_Comm_size(wanted.comm, &raw mut size);
    }
    let keys = info::keys(wanted.info);
    let mut fault = wanted.fault().or(keys.as_ref().err().copied());
    let keys = keys.unwrap_or_default();
    let mut own = c_int::try_from(wanted.disp_unit).ok().and_then(|_| own_comm());
    own = own.filter(|_| bootstrap::wants(&keys, &settings));
    // Made first, since this process alone learns whether the host has room for another window.
    let mut handle = None;
    if let Some(own) = own.filter(|_| fault.is_none()) {
        match HostWindow::make(own, wanted.info) {
            Ok(made) => handle = Some(made),
            Err(full) => fault = Some(full),
        }
    }
    let contribution = bootstrap::contribution(fault.as_ref(), &keys, &settings, own.is_some());
    let hints = keys.hints();
    let part = bootstrap::Part {
        memory: wanted.memory(&hints),
        bytes: if wanted.flavor == MPI_WIN_FLAVOR_DYNAMIC { 0 } else { wanted.size as u64 },
        disp_unit: wanted.disp_unit as u32,
        single: hints.single,
    };
    let mut exchange = Exchange::over(wanted.comm, (rank, size), contribution, part);
    let shared = shm::Settings { cma: settings.cma(), foreign_reduce: datatype::reduce };
    let made = bootstrap::make(&mut exchange, shared);
    exchange.warn(wanted.call);
    let (mut port, handle) = match (made, handle) {
        (Ok(port), Some(handle)) => (port, handle.keep()),
        (Ok(_), None) => unreachable!("all have agreed that each process has a handle"),
        (Err(reason), _) => return wanted.unmade(fault, reason),
    };
    let base = port.base();
    log::info!(
        "{}: window {:#x} of {size} processes: {}; driven by {}",
        wanted.call,
        handle.key(),
        port.describe(),
        hook::describe()
    );
    let attributes = Attributes {
        base: base.0,
        size: wanted.size as isize,
        disp_unit: wanted.disp_unit as c_int,
        flavor: wanted.flavor,
        model: MPI_WIN_UNIFIED,
        notification_num_sb: match hints.max_counters {
            0 => COUNTERS_APART as c_int,
            most => most as c_int,
        },
    };
    let engine = engine::Window::new(rank as Rank, size as u32, keys.flags);
    let window = Box::new(Window::new(
        engine,
        port,
        HostHandle(handle.key()),
        (size as u32, handle::group_of(wanted.comm)),
        attributes,
        hints,
    ));
    let mut guard = enter();
    guard.windows.insert_ours(window);
    note_live(&guard);
    // With the guard held, so that it cannot cross another thread's freeing of the last window.
    hook::turn_on();
    Made::Ours(handle, base)
}

/// The communicator of this process alone. `None`: it cannot be made, and windows are the host's.
fn own_comm() -> Option<MPI_Comm> {
    #[cfg(mpi_sessions)]
    if !world::has_world() && !crate::mpi::init::session::settle() {
        return None;
    }
    communicators::own()
}

/// Calls the host's constructor, and notes its window.
fn leave_to_host(comm: MPI_Comm, window: *mut MPI_Win, host: impl FnOnce() -> c_int) -> c_int {
    if let Err(code) = drive::assemble(comm) {
        return code;
    }
    let code = host();
    if code == MPI_SUCCESS && !window.is_null() {
        // SAFETY: the host has written it.
        let handle = unsafe { *window };
        enter().windows.insert_host(HostHandle(handle.key()));
    }
    code
}
