//! Makes windows. The modules have the other calls on windows:
//!
//! | module | what it does |
//! |---|---|
//! | `constructors` | the constructors that programs call |
//! | `memory` | `MPI_Win_shared_query`, and memory that is attached to dynamic windows |
//! | `handle` | the host's window behind the handle of one of ours, and its group |
//! | `counters` | how many notification counters each process has |
//! | `attributes`, `hints` | the attributes and info keys of a window |
//! | `fortran` | the attributes, for Fortran |
//! | `duplicate` | `MPIX_Win_dup` |
//! | `free` | `MPI_Win_free` |
//! | `for_collectives` | windows that this library makes for itself |
//!
//! The handle of a window of ours is a real window of the host without memory, of this process
//! alone ([`HostWindow`]). So the host serves its name, its error handler, the application's own
//! attributes, and info keys that this library does not know. This library serves the group, the
//! attributes that describe the memory, and its own and the standard's info keys.
//!
//! All processes agree on whether a window is ours before anything is made that the application
//! sees. An invalid argument in one process is an error in all of them.

use std::ffi::{c_int, c_void};

use crate::engine::{self, Addr, Rank};
use crate::mpi::abi::error::{Fault, Place, raise};
use crate::mpi::abi::host_calls;
use crate::mpi::abi::sys::*;
use crate::mpi::abi::world;
use crate::mpi::bootstrap::{self, Exchange, NotMade, communicators};
use crate::mpi::datatype;
use crate::mpi::info;
use crate::mpi::progress::drive;
use crate::mpi::progress::hook;
use crate::runtime::bootstrap::DifferingKey;
use crate::runtime::config::Serve;
use crate::runtime::progress::{note_live, oversubscribed};
use crate::runtime::window::Attributes;
use crate::runtime::{Hints, HostHandle, Window, enter};
use crate::transport::shm::{self, COUNTERS_APART, Memory};
use handle::HostWindow;

mod attributes;
mod constructors;
mod counters;
mod duplicate;
mod for_collectives;
mod fortran;
mod free;
mod handle;
mod hints;
mod memory;

pub(crate) use attributes::{MPI_Win_get_attr, NOTIFICATION_VALUE_UB, is_ours};
pub(crate) use counters::set_number;
pub(crate) use duplicate::MPIX_Win_dup;
pub(crate) use for_collectives::FOR_COLLECTIVES;

/// The arguments of a constructor.
struct Wanted {
    call: &'static str,
    base: *mut c_void,
    size: i64,
    disp_unit: i64,
    info: MPI_Info,
    comm: MPI_Comm,
    flavor: c_int,
    /// It is for this library itself, whichever windows the application wants served.
    is_own: bool,
}

impl Wanted {
    /// The first invalid argument, as an error.
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

    /// The memory that this process contributes, for the transport.
    fn memory(&self, hints: &Hints) -> Memory {
        let (size, align) = (self.size as u64, 1 << hints.log_alignment);
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

    /// True if the window allocates its memory.
    fn allocates(&self) -> bool {
        [MPI_WIN_FLAVOR_ALLOCATE, MPI_WIN_FLAVOR_SHARED].contains(&self.flavor)
    }

    /// Raises an error on the communicator.
    fn fail(&self, fault: Fault) -> Made {
        Made::Failed(raise(self.call, Place::Communicator(self.comm), fault))
    }

    /// Raises an error, or leaves the window to the host, depending on why no window of ours was
    /// made. `fault`: the error of this process.
    fn unmade(&self, fault: Option<Fault>, reason: NotMade) -> Made {
        match reason {
            NotMade::Host(code) => Made::Failed(code),
            NotMade::Invalid(class) => {
                const OTHER: &str =
                    "another process of the communicator passed an invalid argument";
                self.fail(fault.unwrap_or_else(|| Fault::new(class, OTHER)))
            }
            NotMade::LeftToHost => {
                log::info!(
                    "{}: the window is left to the host: it is not marked mpix_rma=true, or is \
                     marked false",
                    self.call
                );
                Made::Host
            }
            NotMade::Differing(key) => self.fail(Fault::new(
                MPI_ERR_INFO_VALUE,
                match key {
                    DifferingKey::NotifyPuts => {
                        "info key mpix_rma_notify_puts differs between processes"
                    }
                    DifferingKey::Fence => "info key mpix_rma_fence differs between processes",
                },
            )),
            // Not left to the host: both hosts end the job if they cannot allocate the memory.
            NotMade::Unsuitable(reason) if reason.lacks_memory() && self.allocates() => {
                log::warn!("{}: {reason}", self.call);
                self.fail(Fault::new(
                    MPI_ERR_NO_MEM,
                    "out of memory for the window in some process",
                ))
            }
            NotMade::Unsuitable(reason) => {
                log::info!("{}: the window is left to the host: {reason}", self.call);
                Made::Host
            }
        }
    }
}

/// The result of a constructor.
enum Made {
    /// A window of ours, with its handle and memory.
    Ours(MPI_Win, Addr),
    /// The window is left to the host.
    Host,
    /// The constructor failed with this error code; the error handler has been called.
    Failed(c_int),
}

/// Makes a window of ours, or returns why not.
fn create(wanted: &Wanted) -> Made {
    // No settings: this library was not started, or did not see the call of MPI_Init.
    let Some(settings) = enter().settings else { return Made::Host };
    // Without MPI_Init other processes may have another setting, so all of them must agree below.
    if settings.serve() == Serve::Off && world::has_world() {
        return Made::Host;
    }
    if wanted.comm == MPI_COMM_NULL {
        return Made::Host;
    }
    let (mut inter, mut rank, mut size) = (0, 0, 0);
    let code = host_calls::comm_test_inter(wanted.comm, &mut inter);
    if code != MPI_SUCCESS {
        return Made::Failed(code);
    }
    if inter != 0 {
        // Not left to the host, which may not check: MPICH 4.0 crashes in some constructors.
        return wanted.fail(Fault::new(MPI_ERR_COMM, "comm is an intercommunicator"));
    }
    host_calls::comm_rank(wanted.comm, &mut rank);
    host_calls::comm_size(wanted.comm, &mut size);
    let keys = info::keys(wanted.info);
    let mut fault = wanted.fault().or(keys.as_ref().err().copied());
    let mut keys = keys.unwrap_or_default();
    if wanted.is_own {
        keys.serve = Some(true);
    }
    let mut own = c_int::try_from(wanted.disp_unit).ok().and_then(|_| own_comm());
    own = own.filter(|_| bootstrap::wants(&keys, &settings));
    // Made before the agreement, since only this process learns whether its host has room for
    // another window.
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
    let shared = shm::Settings {
        cma: settings.cma(),
        oversubscribed: oversubscribed(),
        foreign_reduce: datatype::reduce,
    };
    let made = bootstrap::make(&mut exchange, shared);
    exchange.warn(wanted.call);
    let (mut port, handle) = match (made, handle) {
        (Ok(port), Some(handle)) => (port, handle.keep()),
        (Ok(_), None) => unreachable!("the processes agreed that each has a handle"),
        (Err(reason), _) => return wanted.unmade(fault, reason),
    };
    let base = port.base();
    if log::log_enabled!(log::Level::Info) {
        // Other threads may be using the RDMA context that the port describes.
        let transports = {
            let _guard = enter();
            port.describe()
        };
        log::info!(
            "{}: window {:#x} of {size} processes: {transports}; driven by {}",
            wanted.call,
            handle.key(),
            hook::describe()
        );
    }
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
    let mut engine = engine::Window::new(rank as Rank, size as u32, keys.flags);
    if hints.pattern_fences {
        engine.set_fence_pattern(true).expect("a new window has no fence epoch");
    }
    let window = Box::new(Window::new(
        engine,
        port,
        HostHandle(handle.key()),
        (size as u32, handle::group_of(wanted.comm)),
        attributes,
        hints,
    ));
    let mut guard = enter();
    let id = guard.windows.insert_ours(window);
    note_live(&guard);
    // With the guard held, so that another thread that frees the last window cannot turn the hook
    // off afterwards.
    hook::turn_on();
    let Some(number) = hints.puts_counter else { return Made::Ours(handle, base) };
    match counters::set_number(guard, id, number.get() as c_int) {
        Ok(()) => Made::Ours(handle, base),
        Err(fault) => without_counters(wanted, handle, fault),
    }
}

/// Frees a new window whose operations raise a counter, since some process has no memory for that.
fn without_counters(wanted: &Wanted, mut handle: MPI_Win, fault: Fault) -> Made {
    // SAFETY: the window was made just now. It failed in all processes, and all free it.
    unsafe { free::MPI_Win_free(&raw mut handle) };
    // The arguments were checked: if another process has failed, it lacks memory.
    const OTHER: &str = "out of memory for notification counters in some process";
    let lacks_memory = fault.class == MPI_ERR_ARG;
    wanted.fail(if lacks_memory { Fault::new(MPI_ERR_NO_MEM, OTHER) } else { fault })
}

/// The communicator of this process alone. `None`: the host cannot make one, and windows are left
/// to the host.
fn own_comm() -> Option<MPI_Comm> {
    #[cfg(mpi_sessions)]
    if !world::has_world() && !bootstrap::own_session::settle() {
        return None;
    }
    communicators::own()
}

/// Calls the host's constructor, and registers its window as one of the host.
fn leave_to_host(comm: MPI_Comm, window: *mut MPI_Win, host: impl FnOnce() -> c_int) -> c_int {
    if let Err(code) = drive::assemble(comm) {
        return code;
    }
    let code = host();
    if code == MPI_SUCCESS && !window.is_null() {
        // SAFETY: the host has written a handle there.
        let handle = unsafe { *window };
        enter().windows.insert_host(HostHandle(handle.key()));
    }
    code
}
