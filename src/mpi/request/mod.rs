//! Requests: always the host's own [RQ-1].
//!
//! A request that is complete at birth is a null send (to `MPI_PROC_NULL`), which costs some ten
//! nanoseconds and takes nothing of the host. A pending one is a generalized request, completed
//! when the engine reports it ([`complete`](complete)). The application may free it before: the
//! engine's side then still completes it, once, which is legal on every host [RQ-2]; the host's
//! object goes away when both have happened.
//!
//! Making one, completing it and having the host find that out costs more than most of what is
//! waited for. So a call that waits for one of ours, and sees it end, does not tell the host
//! ([`mpi::direct`](crate::mpi::request::direct)): for the host it stays pending, the application has
//! `MPI_REQUEST_NULL` from then on, and it is given out again with the next request. Everywhere
//! else it is what any generalized request is.

mod completion;
pub(crate) mod direct;
pub(crate) mod persistent;

use std::cell::{Cell, UnsafeCell};
use std::ffi::{c_int, c_void};
use std::hash::BuildHasherDefault;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use hashbrown::HashMap;

use crate::engine::RequestId;
use crate::engine::slab::{Key, Slab};
use crate::mpi::abi::argument::Out;
use crate::mpi::abi::error::{Fault, code_of};
use crate::mpi::abi::host_calls;
use crate::mpi::abi::status::{Status, Statuses};
use crate::mpi::abi::sys::*;
use crate::mpi::progress::hook;
use crate::runtime::registry::HandleHasher;
use crate::runtime::{Ending, HostRequest, WindowId, process};

/// Generalized requests that the application has, or that are pending, or still held by the host
/// [RQ-3]. Spare ones are given out before another is made, so the host never has more than the
/// cap.
static ALIVE: AtomicI64 = AtomicI64::new(0);
/// The cap; set at `MPI_Init`.
static MOST: AtomicI64 = AtomicI64::new(i64::MAX);

/// Sets the cap on requests alive.
pub(crate) fn set_most(most: i64) {
    MOST.store(most, Ordering::Relaxed);
}

/// A generalized request. Held by the host (until it runs the free function) and by us (until
/// completion): hosts differ in which of the two comes last when the application frees a pending
/// request.
struct Held {
    request: MPI_Request,
    by_host: bool,
    by_us: bool,
    /// A call of ours waits for it, and the host is not to be told.
    awaited: bool,
    /// What the application waits for, until it has ended.
    source: Option<(WindowId, RequestId)>,
    /// What calls that complete it tell.
    fault: Option<Fault>,
}

/// Requests that are kept for the next ones.
const SPARE: usize = 64;

struct Contents {
    slab: Slab<Held>,
    /// Entries by the host's handle.
    numbers: HashMap<u64, HostRequest, BuildHasherDefault<HandleHasher>>,
    /// The handle that was given out last.
    hot: Option<(u64, HostRequest)>,
    /// Pending for the host; the application has none of them.
    spare: Vec<HostRequest>,
}

impl Contents {
    fn get(&mut self, number: HostRequest) -> Option<(Key, &mut Held)> {
        let key = self.slab.key_at(number.0.get() - 1)?;
        Some((key, self.slab.get_mut(key)?))
    }

    /// A spare request is the application's from now on.
    fn take_spare(&mut self) -> Option<(HostRequest, MPI_Request)> {
        let number = self.spare.pop()?;
        let (_, held) = self.get(number)?;
        let request = held.request;
        self.hot = Some((request.key(), number));
        Some((number, request))
    }

    fn find(&self, handle: u64) -> Option<HostRequest> {
        match self.hot {
            Some((hot, number)) if hot == handle => Some(number),
            _ => self.numbers.get(&handle).copied(),
        }
    }

    fn forget(&mut self, handle: u64) {
        self.hot = None;
        self.numbers.remove(&handle);
        if self.numbers.is_empty() && self.numbers.capacity() > KEPT {
            self.numbers = HashMap::default();
        }
    }
}

/// An empty table of more room gives its memory back.
const KEPT: usize = 1024;

/// All generalized requests of this process: a few bytes each, in memory that goes when none is
/// left. The host runs the free function wherever the application is, also inside calls that we
/// make with the runtime's guard held, so the table has a flag of its own, which nobody keeps while
/// calling anything.
struct Table {
    /// Somebody is inside: a lock under `MPI_THREAD_MULTIPLE`, unused below.
    inside: AtomicBool,
    contents: UnsafeCell<Contents>,
}

// SAFETY: `contents` is reached in `Table::with` alone, by one thread at a time: under
// MPI_THREAD_MULTIPLE by the one that has set `inside` from false to true, below that level by the
// only one that MPI lets call. The host's handles may be used in any thread.
unsafe impl Sync for Table {}

static TABLE: Table = Table {
    inside: AtomicBool::new(false),
    contents: UnsafeCell::new(Contents {
        slab: Slab::new(),
        numbers: HashMap::with_hasher(BuildHasherDefault::new()),
        hot: None,
        spare: Vec::new(),
    }),
};

impl Table {
    /// Runs `body`, which neither panics nor calls the host, on the table.
    #[inline]
    fn with<R>(&self, body: impl FnOnce(&mut Contents) -> R) -> R {
        let locks = process::multiple();
        if locks {
            while self.inside.swap(true, Ordering::Acquire) {
                // The one inside is there for some ten nanoseconds, unless it has lost its core.
                std::thread::yield_now();
            }
        }
        // SAFETY: this thread is the only one inside (see `Table`), and `body` cannot come back
        // here.
        let contents = unsafe { &mut *self.contents.get() };
        let result = body(contents);
        ALIVE.store((contents.slab.len() - contents.spare.len()) as i64, Ordering::Relaxed);
        if locks {
            self.inside.store(false, Ordering::Release);
        }
        result
    }

    /// Makes an entry.
    fn insert(&self) -> HostRequest {
        let held = Held {
            request: MPI_REQUEST_NULL,
            by_host: true,
            by_us: true,
            awaited: false,
            source: None,
            fault: None,
        };
        let index = self.with(|contents| contents.slab.insert(held).index);
        // The cap is below the largest index [RQ-3].
        HostRequest(NonZeroU32::new(index + 1).expect("fewer than 2^32 - 1 requests"))
    }

    /// Changes an entry, which goes when nobody holds it any more. Gives its request.
    fn change(&self, number: HostRequest, how: impl FnOnce(&mut Held)) -> Option<MPI_Request> {
        self.with(|contents| {
            let (key, held) = contents.get(number)?;
            how(held);
            let (request, by_host, by_us) = (held.request, held.by_host, held.by_us);
            if !by_host {
                // The host may soon give the handle to another.
                contents.forget(request.key());
                if !by_us {
                    contents.slab.remove(key);
                }
            }
            Some(request)
        })
    }
}

/// Refuses a call that may need a request when the cap is reached, before anything happens [RQ-3].
#[inline]
pub(crate) fn admit() -> Result<(), Fault> {
    if ALIVE.load(Ordering::Relaxed) >= MOST.load(Ordering::Relaxed) {
        return Err(Fault::new(
            MPI_ERR_NO_MEM,
            "too many requests are alive (MPIX_RMA_MAX_REQUESTS); complete some first",
        ));
    }
    Ok(())
}

/// Makes a request that is complete.
#[inline]
pub(crate) fn completed(request: Out<'_, MPI_Request>) -> c_int {
    host_calls::null_isend(comm_in_use(), request)
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
pub(crate) fn pending(request: Out<'_, MPI_Request>) -> Result<HostRequest, c_int> {
    if let Some((number, spare)) = TABLE.with(Contents::take_spare) {
        request.write(spare);
        return Ok(number);
    }
    let number = TABLE.insert();
    let held = std::ptr::without_provenance_mut::<c_void>(number.0.get() as usize);
    let mut made = MPI_REQUEST_NULL;
    // SAFETY: the callbacks live as long as the process, and what they are given is a number, never
    // an address; `made` is written before the call returns.
    let status = unsafe {
        match hook::polled_requests() {
            Some((start, poll, wait)) => {
                start(query, free, cancel, poll, wait, held, &raw mut made)
            }
            None => PMPI_Grequest_start(Some(query), Some(free), Some(cancel), held, &raw mut made),
        }
    };
    if status != MPI_SUCCESS {
        TABLE.change(number, |held| (held.by_host, held.by_us) = (false, false));
        return Err(status);
    }
    request.write(made);
    TABLE.with(|contents| {
        if let Some((_, held)) = contents.get(number) {
            held.request = made;
        }
        contents.numbers.insert(made.key(), number);
        contents.hot = Some((made.key(), number));
    });
    Ok(number)
}

/// Completes a pending request, once.
pub(crate) fn complete(number: HostRequest, ending: Ending) {
    let fault = match ending {
        Ending::Done => None,
        Ending::Unattached => Some(Fault::unattached()),
        Ending::Broken(why) => Some(Fault::broken(why)),
    };
    let mut awaited = false;
    let changed = TABLE.change(number, |held| {
        awaited = held.awaited;
        (held.by_us, held.source, held.fault) = (awaited, None, fault);
    });
    match changed {
        Some(_) if awaited => {}
        Some(request) => tell_host(request),
        None => log::error!("a request was completed twice"),
    }
}

/// Completes a request for the host.
fn tell_host(request: MPI_Request) {
    // It lives until it is complete, even if the application has freed it.
    let status = host_calls::grequest_complete(request);
    if status != MPI_SUCCESS {
        log::error!("MPI_Grequest_complete failed with {status}");
    }
}

/// Notes what a pending request stands for.
pub(crate) fn bind(number: HostRequest, window: WindowId, id: RequestId) {
    TABLE.change(number, |held| held.source = Some((window, id)));
}

/// True if the application has no generalized request of ours.
#[inline(always)]
pub(crate) fn none_given() -> bool {
    ALIVE.load(Ordering::Relaxed) == 0
}

/// What a request stands for that is one of ours and has not ended.
pub(crate) fn source(request: MPI_Request) -> Option<(HostRequest, WindowId, RequestId)> {
    TABLE.with(|contents| {
        let number = contents.find(request.key())?;
        let (window, id) = contents.get(number)?.1.source?;
        Some((number, window, id))
    })
}

/// From now on a request that ends is for a call of ours alone, which waits for it; or not any
/// more.
pub(crate) fn set_awaited(number: HostRequest, awaited: bool) {
    TABLE.change(number, |held| held.awaited = awaited);
}

/// True if a request that was awaited has ended.
pub(crate) fn has_ended(number: HostRequest) -> bool {
    TABLE.with(|contents| contents.get(number).is_none_or(|(_, held)| held.source.is_none()))
}

/// Notes that what an awaited request stands for is done, where nobody reports it.
pub(crate) fn end(number: HostRequest) {
    TABLE.change(number, |held| held.source = None);
}

/// An awaited request has ended, and the application's place for it is to be MPI_REQUEST_NULL.
/// False if the host has to say what has become of it: it failed, or there are spare ones enough.
pub(crate) fn put_by(number: HostRequest) -> bool {
    let put = TABLE.with(|contents| {
        let room = contents.spare.len() < SPARE;
        let (_, held) = contents.get(number)?;
        held.awaited = false;
        let keep = room && held.fault.is_none();
        let request = held.request;
        if keep {
            contents.spare.push(number);
        } else {
            held.by_us = false;
        }
        Some((keep, request))
    });
    match put {
        Some((false, request)) => tell_host(request),
        Some((true, _)) | None => return true,
    }
    false
}

/// Gives spare requests back to the host: no window lives, or MPI is about to end.
pub(crate) fn give_spare_back() {
    while let Some((number, request)) = TABLE.with(Contents::take_spare) {
        TABLE.change(number, |held| held.by_us = false);
        tell_host(request);
        // The application no longer has it.
        host_calls::request_free(&Cell::new(request));
    }
}

/// The status of a request of ours: MPI's empty status, and its error. Hosts may ask more than
/// once.
unsafe extern "C" fn query(held: *mut c_void, status: *mut MPI_Status) -> c_int {
    // SAFETY: the host passes a status of its own, which nobody else uses during the callback.
    let status = unsafe { Status::new(status) };
    status.fill_empty();
    let mut fault = None;
    if let Some(number) = NonZeroU32::new(held.addr() as u32) {
        TABLE.change(HostRequest(number), |held| fault = held.fault);
    }
    let Some(fault) = fault else { return MPI_SUCCESS };
    let code = code_of("a nonblocking call", fault);
    if cfg!(mpi_host = "mpich") {
        status.set_origin(FAILED, code);
    }
    code
}

/// The source in statuses of requests that have failed, on their way through MPICH; their tag is
/// the error code. MPICH (4.0 to 5.0) gives that code from calls that return one, but in arrays of
/// statuses it puts one of its own, of class `MPI_ERR_OTHER`.
const FAILED: c_int = -0x4d50_4958;

/// Corrects the status of a request of ours that has failed, after a call of the host that has
/// returned an error. Gives the request's error code.
fn correct(status: Status<'_>) -> Option<c_int> {
    let (source, code) = status.origin()?;
    (source == FAILED).then(|| {
        status.fill_empty();
        code
    })
}

/// As [`correct`], for a call that completes one request.
#[cold]
pub(crate) fn set_error(status: Status<'_>) {
    _ = correct(status);
}

/// As [`correct`], for a call that has written `count` statuses of an array.
#[cold]
pub(crate) fn set_errors(statuses: Statuses<'_>, count: c_int) {
    for status in statuses.first(usize::try_from(count).unwrap_or(0)) {
        if let Some(code) = correct(status) {
            status.set_error(code);
        }
    }
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
