//! Requests: always the host's own [RQ-1].
//!
//! A request that is complete at birth is a null send (to `MPI_PROC_NULL`), which costs some ten nanoseconds and takes
//! nothing of the host. A pending one is a generalized request, completed when the engine reports it
//! ([`complete`](complete)). The application may free it before: the engine's side then still completes it, once, which
//! is legal on every host [RQ-2]; the host's object goes away when both have happened.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use super::error::Fault;
use super::hook;
use super::sys::*;
use crate::engine::slab::Slab;
use crate::runtime::{Ending, HostRequest, process};

/// Generalized requests of ours that are pending or still held by the host [RQ-3]: the length of the table.
static ALIVE: AtomicI64 = AtomicI64::new(0);
/// The cap; set at `MPI_Init`.
static MOST: AtomicI64 = AtomicI64::new(i64::MAX);

/// Sets the cap on requests alive.
pub(crate) fn set_most(most: i64) {
    MOST.store(most, Ordering::Relaxed);
}

/// A generalized request. Held by the host (until it runs the free function) and by us (until completion): hosts differ in
/// which of the two comes last when the application frees a pending request.
struct Held {
    request: MPI_Request,
    by_host: bool,
    by_us: bool,
    /// What calls that complete it return: an error class.
    error: c_int,
}

/// All generalized requests of this process: a few bytes each, in memory that goes when none is left. The host runs the
/// free function wherever the application is, also inside calls that we make with the runtime's guard held, so the table
/// has a flag of its own, which nobody keeps while calling anything.
struct Table {
    /// Somebody is inside: a lock under `MPI_THREAD_MULTIPLE`, unused below.
    inside: AtomicBool,
    slab: UnsafeCell<Slab<Held>>,
}

// SAFETY: `slab` is reached in `Table::with` alone, by one thread at a time: under MPI_THREAD_MULTIPLE by the one that has set
// `inside` from false to true, below that level by the only one that MPI lets call. The host's handles may be used in any thread.
unsafe impl Sync for Table {}

static TABLE: Table = Table { inside: AtomicBool::new(false), slab: UnsafeCell::new(Slab::new()) };

impl Table {
    /// Runs `body`, which neither panics nor calls the host, on the table.
    #[inline]
    fn with<R>(&self, body: impl FnOnce(&mut Slab<Held>) -> R) -> R {
        let locks = process::multiple();
        if locks {
            while self.inside.swap(true, Ordering::Acquire) {
                // The one inside is there for some ten nanoseconds, unless it has lost its core.
                std::thread::yield_now();
            }
        }
        // SAFETY: this thread is the only one inside (see `Table`), and `body` cannot come back here.
        let slab = unsafe { &mut *self.slab.get() };
        let result = body(slab);
        ALIVE.store(slab.len() as i64, Ordering::Relaxed);
        if locks {
            self.inside.store(false, Ordering::Release);
        }
        result
    }

    /// Makes an entry.
    fn insert(&self) -> HostRequest {
        let held = Held { request: MPI_REQUEST_NULL, by_host: true, by_us: true, error: MPI_SUCCESS };
        let index = self.with(|slab| slab.insert(held).index);
        // The cap is below the largest index [RQ-3].
        HostRequest(NonZeroU32::new(index + 1).expect("fewer than 2^32 - 1 requests"))
    }

    /// Changes an entry, which goes when nobody holds it any more. Gives its request.
    fn change(&self, number: HostRequest, how: impl FnOnce(&mut Held)) -> Option<MPI_Request> {
        self.with(|slab| {
            let key = slab.key_at(number.0.get() - 1)?;
            let held = slab.get_mut(key)?;
            how(held);
            let request = held.request;
            if !held.by_host && !held.by_us {
                slab.remove(key);
            }
            Some(request)
        })
    }
}

/// Refuses a call that may need a request when the cap is reached, before anything happens [RQ-3].
#[inline]
pub(crate) fn admit() -> Result<(), Fault> {
    if ALIVE.load(Ordering::Relaxed) >= MOST.load(Ordering::Relaxed) {
        return Err(Fault::new(MPI_ERR_NO_MEM, "too many requests are alive (MPIX_RMA_MAX_REQUESTS); complete some first"));
    }
    Ok(())
}

/// Makes a request that is complete.
///
/// # Safety
/// `request` is a place for a request; MPI is initialised.
#[inline]
pub(crate) unsafe fn completed(request: *mut MPI_Request) -> c_int {
    let comm = MPI_Comm::of(COMM.load(Ordering::Relaxed));
    // SAFETY: no byte is sent; the caller gives the place; there is a window, so there is a communicator (`use_comm`).
    unsafe { PMPI_Isend(std::ptr::null(), 0, MPI_BYTE, MPI_PROC_NULL, 0, comm, request) }
}

/// A communicator that is there as long as windows are.
static COMM: AtomicU64 = AtomicU64::new(0);

/// Sets the communicator on which requests that are complete are made.
pub(crate) fn use_comm(comm: Option<MPI_Comm>) {
    COMM.store(comm.map_or(0, MPI_Comm::key), Ordering::Relaxed);
}

/// The communicator that [`use_comm`] has set. Calls on windows find one.
pub(crate) fn comm_in_use() -> MPI_Comm {
    MPI_Comm::of(COMM.load(Ordering::Relaxed))
}

/// Makes a pending request.
///
/// # Safety
/// As [`completed`].
pub(crate) unsafe fn pending(request: *mut MPI_Request) -> Result<HostRequest, c_int> {
    let number = TABLE.insert();
    let held = std::ptr::without_provenance_mut::<c_void>(number.0.get() as usize);
    // SAFETY: the callbacks live as long as the process; what they are given is a number, never a place.
    let status = unsafe {
        match hook::polled_requests() {
            Some((start, poll, wait)) => start(query, free, cancel, poll, wait, held, request),
            None => PMPI_Grequest_start(Some(query), Some(free), Some(cancel), held, request),
        }
    };
    if status != MPI_SUCCESS {
        TABLE.change(number, |held| (held.by_host, held.by_us) = (false, false));
        return Err(status);
    }
    // SAFETY: the host has written the handle.
    let request = unsafe { *request };
    TABLE.change(number, |held| held.request = request);
    Ok(number)
}

/// Completes a pending request, once.
pub(crate) fn complete(number: HostRequest, ending: Ending) {
    let error = match ending {
        Ending::Done => MPI_SUCCESS,
        Ending::Unattached => MPI_ERR_RMA_RANGE,
        Ending::Broken => MPI_ERR_INTERN,
    };
    let Some(request) = TABLE.change(number, |held| (held.by_us, held.error) = (false, error)) else {
        log::error!("a request was completed twice");
        return;
    };
    // SAFETY: a generalized request lives until it is complete, even if the application has freed it.
    let status = unsafe { PMPI_Grequest_complete(request) };
    if status != MPI_SUCCESS {
        log::error!("MPI_Grequest_complete failed with {status}");
    }
}

/// The status of a request of ours: MPI's empty status, and its error. Hosts may ask more than once.
unsafe extern "C" fn query(held: *mut c_void, status: *mut MPI_Status) -> c_int {
    // SAFETY: the host gives a status of its own, never MPI_STATUS_IGNORE.
    unsafe {
        PMPI_Status_set_elements(status, MPI_BYTE, 0);
        PMPI_Status_set_cancelled(status, 0);
        (*status).MPI_SOURCE = MPI_ANY_SOURCE;
        (*status).MPI_TAG = MPI_ANY_TAG;
    }
    let mut error = MPI_SUCCESS;
    if let Some(number) = NonZeroU32::new(held.addr() as u32) {
        TABLE.change(HostRequest(number), |held| error = held.error);
    }
    error
}

unsafe extern "C" fn free(held: *mut c_void) -> c_int {
    if let Some(number) = NonZeroU32::new(held.addr() as u32) {
        TABLE.change(HostRequest(number), |held| held.by_host = false);
    }
    MPI_SUCCESS
}

/// `MPI_Cancel` has no effect [RQ-2].
unsafe extern "C" fn cancel(_: *mut c_void, _: c_int) -> c_int {
    MPI_SUCCESS
}
