//! Constructors of windows, their attributes, and `MPI_Win_free`.
//!
//! The handle of a window of ours is a real window of the host, made by its cheapest constructor (allocate, of no bytes;
//! the only one that works everywhere: Open MPI 4 refuses the others on one process). So attributes, info, name, group and
//! error handler work by themselves; only the attributes that describe the memory are answered here.
//!
//! Whether a window is ours is agreed by all its processes before anything is made, and a wrong argument in one process
//! gives an error in all.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use super::call::Done;
use super::error::{Fault, Place, boundary, raise};
use super::host::exports;
use super::info::{self, Unreadable, Wishes};
use super::sys::*;
use super::transport::{self, Unmade};
use super::{datatype, drive, hook};
use crate::engine::{self, Addr, Rank};
use crate::runtime::config::{Serve, Settings};
use crate::runtime::progress::{note_live, wait_until};
use crate::runtime::window::Attributes;
use crate::runtime::{Entry, Guard, HostHandle, Window, enter};
use crate::transport::shm::{self, Memory};

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
    if settings.serve() == Serve::Off {
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
            return Made::Host;
        }
        PMPI_Comm_rank(wanted.comm, &raw mut rank);
        PMPI_Comm_size(wanted.comm, &raw mut size);
    }
    let wishes = match agree(wanted, &settings) {
        Ok(Some(wishes)) => wishes,
        Ok(None) => {
            log::info!("{}: the window is left to the host: it is not marked mpix_rma=true, or is marked false", wanted.call);
            return Made::Host;
        }
        Err(code) => return Made::Failed(code),
    };
    let memory = if wanted.flavor == MPI_WIN_FLAVOR_CREATE {
        Memory::Create { base: Addr(wanted.base as usize), size: wanted.size as u64 }
    } else {
        Memory::Allocate { size: wanted.size as u64 }
    };
    let part = transport::Part { memory, bytes: wanted.size as u64, disp_unit: wanted.disp_unit as u32 };
    let shared = shm::Settings { cma: settings.cma(), foreign_reduce: datatype::reduce };
    let port = match transport::make(wanted.comm, part, wishes.reach.unwrap_or(settings.reach()), shared) {
        Ok(port) => port,
        Err(Unmade::Host(code)) => return Made::Failed(code),
        Err(Unmade::Unsuitable(reason)) => {
            log::info!("{}: the window is left to the host: {reason}", wanted.call);
            return Made::Host;
        }
    };
    let (handle, code) = host_window(wanted);
    if code != MPI_SUCCESS {
        return Made::Failed(code);
    }
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
    };
    let engine = engine::Window::new(rank as Rank, size as u32, wishes.flags);
    let window = Box::new(Window::new(engine, port, HostHandle(handle.key()), size as u32, attributes));
    let mut guard = enter();
    guard.windows.insert_ours(window);
    note_live(&guard);
    // With the guard held, so that it cannot cross another thread's freeing of the last window.
    hook::turn_on();
    Made::Ours(handle, base)
}

/// Checks arguments and info in all processes, and agrees whether the window is ours: `Ok(None)` if it is not.
fn agree(wanted: &Wanted, settings: &Settings) -> Result<Option<Wishes>, c_int> {
    // SAFETY: the info object is the application's.
    let wishes = unsafe { info::read(wanted.info) };
    let fault = if wanted.size < 0 {
        Some(Fault::new(MPI_ERR_SIZE, "size is negative"))
    } else if wanted.disp_unit <= 0 {
        Some(Fault::new(MPI_ERR_DISP, "disp_unit is not positive"))
    } else if wanted.flavor == MPI_WIN_FLAVOR_CREATE && wanted.base.is_null() && wanted.size > 0 {
        Some(Fault::new(MPI_ERR_BUFFER, "base is NULL"))
    } else {
        match wishes {
            Ok(_) => None,
            Err(Unreadable::Value(text)) => Some(Fault::new(MPI_ERR_INFO_VALUE, text)),
            Err(Unreadable::Object) => Some(Fault::new(MPI_ERR_INFO, "info cannot be read")),
        }
    };
    let wishes = wishes.unwrap_or_default();
    let ours = wishes.serve.unwrap_or(settings.serve() == Serve::All) && c_int::try_from(wanted.disp_unit).is_ok();
    let reach = wishes.reach.map_or(-1, |reach| reach as c_int);
    let mut votes = [fault.map_or(0, |fault| fault.class), c_int::from(!ours), c_int::from(ours), reach, -reach];
    // SAFETY: the communicator was checked.
    let code = unsafe { drive::maximum(wanted.comm, &mut votes) };
    if code != MPI_SUCCESS {
        return Err(code);
    }
    let [class, refused, claimed, highest, lowest] = votes;
    if class != 0 {
        let fault = fault.unwrap_or_else(|| Fault::new(class, "another process of the communicator gave a wrong argument"));
        return Err(raise(wanted.call, Place::Communicator(wanted.comm), fault));
    }
    if refused != 0 && claimed != 0 {
        log::warn!("{}: the info key mpix_rma differs between processes; the window is left to the host", wanted.call);
    }
    if highest != -lowest {
        log::warn!("{}: the info key mpix_rma_transport differs between processes; it is not used", wanted.call);
    }
    let reach = wishes.reach.filter(|_| highest == -lowest);
    Ok((refused == 0).then_some(Wishes { reach, ..wishes }))
}

/// The host's window that is the handle of ours.
fn host_window(wanted: &Wanted) -> (MPI_Win, c_int) {
    let mut handle = MPI_WIN_NULL;
    let mut nothing: *mut c_void = std::ptr::null_mut();
    // SAFETY: the communicator and info were checked; the places are ours. The address that the host gives for the
    // memory of no bytes is of no use.
    let code = unsafe { PMPI_Win_allocate(0, 1, wanted.info, wanted.comm, (&raw mut nothing).cast(), &raw mut handle) };
    (handle, code)
}

/// Calls the host's constructor, and notes its window.
fn leave_to_host(comm: MPI_Comm, window: *mut MPI_Win, host: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: the communicator is the application's.
    unsafe { drive::assemble(comm) };
    let code = host();
    if code == MPI_SUCCESS && !window.is_null() {
        // SAFETY: the host has written it.
        let handle = unsafe { *window };
        enter().windows.insert_host(HostHandle(handle.key()));
    }
    code
}

/// # Safety
/// `win` is null or the application's place for a window.
unsafe fn construct(wanted: &Wanted, win: *mut MPI_Win, place: Option<*mut c_void>, host: impl FnOnce() -> c_int) -> c_int {
    boundary(wanted.call, || {
        if win.is_null() || place.is_some_and(|place| place.is_null()) {
            return host();
        }
        match create(wanted) {
            Made::Ours(handle, base) => {
                // SAFETY: checked above; MPI gives them room for a handle and an address.
                unsafe {
                    win.write(handle);
                    if let Some(place) = place {
                        place.cast::<*mut c_void>().write_unaligned(base.0 as *mut c_void);
                    }
                }
                MPI_SUCCESS
            }
            Made::Host => leave_to_host(wanted.comm, win, host),
            Made::Failed(code) => code,
        }
    })
}

/// `MPI_Win_allocate` and `MPI_Win_create`, for one type of displacement unit.
macro_rules! constructors {
    ($unit:ty; $allocate:ident => $host_allocate:ident, $create:ident => $host_create:ident) => {
        /// Makes a window with memory of its own: shared between the processes of a node.
        ///
        /// # Safety
        /// As MPI says of the call.
        #[inline(always)]
        pub unsafe extern "C" fn $allocate(
            size: MPI_Aint,
            disp_unit: $unit,
            info: MPI_Info,
            comm: MPI_Comm,
            baseptr: *mut c_void,
            win: *mut MPI_Win,
        ) -> c_int {
            let wanted = Wanted {
                call: stringify!($allocate),
                base: std::ptr::null_mut(),
                size: size as i64,
                disp_unit: disp_unit as i64,
                info,
                comm,
                flavor: MPI_WIN_FLAVOR_ALLOCATE,
            };
            // SAFETY: the application's arguments, passed on.
            unsafe { construct(&wanted, win, Some(baseptr), || $host_allocate(size, disp_unit, info, comm, baseptr, win)) }
        }

        /// Makes a window of the application's memory.
        ///
        /// # Safety
        /// As MPI says of the call.
        #[inline(always)]
        pub unsafe extern "C" fn $create(
            base: *mut c_void,
            size: MPI_Aint,
            disp_unit: $unit,
            info: MPI_Info,
            comm: MPI_Comm,
            win: *mut MPI_Win,
        ) -> c_int {
            let wanted = Wanted {
                call: stringify!($create),
                base,
                size: size as i64,
                disp_unit: disp_unit as i64,
                info,
                comm,
                flavor: MPI_WIN_FLAVOR_CREATE,
            };
            // SAFETY: the application's arguments, passed on.
            unsafe { construct(&wanted, win, None, || $host_create(base, size, disp_unit, info, comm, win)) }
        }
        exports! {
            $allocate(size: MPI_Aint, disp_unit: $unit, info: MPI_Info, comm: MPI_Comm, baseptr: *mut c_void, win: *mut MPI_Win);
            $create(base: *mut c_void, size: MPI_Aint, disp_unit: $unit, info: MPI_Info, comm: MPI_Comm, win: *mut MPI_Win);
        }
    };
}

constructors! { c_int; MPI_Win_allocate => PMPI_Win_allocate, MPI_Win_create => PMPI_Win_create }

#[cfg(mpi_large_count)]
constructors! { MPI_Aint; MPI_Win_allocate_c => PMPI_Win_allocate_c, MPI_Win_create_c => PMPI_Win_create_c }

/// A constructor whose windows are always left to the host; seen so that calls on them get a clear answer.
macro_rules! left_to_host {
    ($($name:ident => $host:ident($($arg:ident: $type:ty),*) over $comm:ident;)*) => {$(
        /// Makes a window that is left to the host.
        ///
        /// # Safety
        /// As MPI says of the call.
        #[inline(always)]
        pub unsafe extern "C" fn $name($($arg: $type,)* win: *mut MPI_Win) -> c_int {
            boundary(stringify!($name), || {
                if settings().is_none() {
                    // SAFETY: the application's arguments, passed on.
                    return unsafe { $host($($arg,)* win) };
                }
                log::info!("{}: such windows are left to the host", stringify!($name));
                // SAFETY: as above.
                leave_to_host($comm, win, || unsafe { $host($($arg,)* win) })
            })
        }
        exports! { $name($($arg: $type,)* win: *mut MPI_Win); }
    )*};
}

left_to_host! {
    MPI_Win_allocate_shared => PMPI_Win_allocate_shared(
        size: MPI_Aint, disp_unit: c_int, info: MPI_Info, comm: MPI_Comm, baseptr: *mut c_void) over comm;
    MPI_Win_create_dynamic => PMPI_Win_create_dynamic(info: MPI_Info, comm: MPI_Comm) over comm;
}

#[cfg(mpi_large_count)]
left_to_host! {
    MPI_Win_allocate_shared_c => PMPI_Win_allocate_shared_c(
        size: MPI_Aint, disp_unit: MPI_Aint, info: MPI_Info, comm: MPI_Comm, baseptr: *mut c_void) over comm;
}

/// Tells a window's attributes; those that describe the memory of a window of ours are answered here.
///
/// # Safety
/// As MPI says of the call.
#[inline(always)]
pub unsafe extern "C" fn MPI_Win_get_attr(
    win: MPI_Win,
    win_keyval: c_int,
    attribute_val: *mut c_void,
    flag: *mut c_int,
) -> c_int {
    boundary("MPI_Win_get_attr", || {
        let ours = enter().windows.ours(HostHandle(win.key())).filter(|_| !attribute_val.is_null() && !flag.is_null());
        let found = ours.and_then(|window| {
            // SAFETY: the window is live, and its attributes do not change; MPI gives out their addresses, valid until
            // the window is freed.
            let attributes = unsafe { &raw const (*window.as_ptr()).attributes };
            // SAFETY: as above.
            unsafe {
                Some(match win_keyval {
                    key if key == MPI_WIN_BASE => (*attributes).base as *mut c_void,
                    key if key == MPI_WIN_SIZE => (&raw const (*attributes).size).cast_mut().cast(),
                    key if key == MPI_WIN_DISP_UNIT => (&raw const (*attributes).disp_unit).cast_mut().cast(),
                    key if key == MPI_WIN_CREATE_FLAVOR => (&raw const (*attributes).flavor).cast_mut().cast(),
                    key if key == MPI_WIN_MODEL => (&raw const (*attributes).model).cast_mut().cast(),
                    _ => return None,
                })
            }
        });
        match found {
            Some(value) => {
                // SAFETY: MPI gives `attribute_val` room for an address, and `flag` for an int.
                unsafe {
                    attribute_val.cast::<*mut c_void>().write_unaligned(value);
                    flag.write(1);
                }
                MPI_SUCCESS
            }
            // SAFETY: the application's arguments, passed on.
            None => unsafe { PMPI_Win_get_attr(win, win_keyval, attribute_val, flag) },
        }
    })
}

/// Frees a window. One of ours completes its closed epochs first; if an epoch is open in any process, all of them get
/// `MPI_ERR_RMA_SYNC`, and the window stays usable [RQ-5].
///
/// # Safety
/// As MPI says of the call.
#[inline(always)]
pub unsafe extern "C" fn MPI_Win_free(win: *mut MPI_Win) -> c_int {
    const CALL: &str = "MPI_Win_free";
    boundary(CALL, || {
        if win.is_null() {
            // SAFETY: the host says what is wrong.
            return unsafe { PMPI_Win_free(win) };
        }
        // SAFETY: the application's place of a window.
        let window = unsafe { *win };
        let handle = HostHandle(window.key());
        let mut guard = enter();
        let entry = guard.windows.entry(handle);
        match guard.windows.ours(handle) {
            Some(ours) => {
                if let Err(fault) = settle(guard, ours) {
                    return raise(CALL, Place::Window(window), fault);
                }
                // SAFETY: as above. The application's attribute callbacks run in this call, and may still use the window.
                let code = unsafe { PMPI_Win_free(win) };
                if code == MPI_SUCCESS {
                    discard(handle, ours);
                }
                code
            }
            None => {
                drop(guard);
                if entry == Some(Entry::Freed) {
                    return raise(CALL, Place::World, Fault::new(MPI_ERR_WIN, "win has been freed"));
                }
                // SAFETY: as above.
                let code = unsafe { PMPI_Win_free(win) };
                if code == MPI_SUCCESS && entry == Some(Entry::Host) {
                    enter().windows.remove_host(handle);
                }
                code
            }
        }
    })
}

/// Agrees that the window can be freed, and completes what is closed.
fn settle(guard: Guard, mut window: NonNull<Window>) -> Done {
    // SAFETY: found under this guard, and no other reference to it is alive.
    let ours = unsafe { window.as_mut() };
    let objection = ours.engine.has_open_epoch() || ours.waiting != 0;
    let (guard, objected) = vote(guard, window, objection);
    if objected {
        return Err(Fault::new(MPI_ERR_RMA_SYNC, "an epoch is open on this window in some process"));
    }
    let guard = wait_until(guard, window, |window| window.engine.is_quiet() && window.port.is_quiet());
    // Others may still need this process (to copy for them, on created windows) until they are quiet too.
    let (guard, _) = vote(guard, window, false);
    drop(wait_until(guard, window, |window| window.port.farewell()));
    Ok(())
}

fn vote(guard: Guard, mut window: NonNull<Window>, objection: bool) -> (Guard, bool) {
    // SAFETY: found under this guard, and no other reference to it is alive.
    unsafe { window.as_mut() }.port.vote(objection);
    let mut verdict = None;
    let guard = wait_until(guard, window, |window| {
        verdict = window.port.verdict();
        verdict.is_some()
    });
    (guard, verdict.unwrap_or(false))
}

/// Forgets a window of ours whose handle is gone.
fn discard(handle: HostHandle, window: NonNull<Window>) {
    let mut guard = enter();
    let window = guard.windows.remove_ours(handle, window);
    note_live(&guard);
    if guard.windows.live().is_empty() {
        hook::turn_off();
    }
    drop(guard);
    let window = *window;
    window.port.release();
    if let Some(group) = window.group {
        let mut group = MPI_Group::of(group.0);
        // SAFETY: the group was made for this window (`group_of`) and is not used any more.
        unsafe { PMPI_Group_free(&raw mut group) };
    }
}

exports! {
    MPI_Win_get_attr(win: MPI_Win, win_keyval: c_int, attribute_val: *mut c_void, flag: *mut c_int);
    MPI_Win_free(win: *mut MPI_Win);
}
