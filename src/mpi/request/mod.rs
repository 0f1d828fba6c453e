//! Requests: always the host's own [RQ-1].
//!
//! A request that is complete from the start is a send to `MPI_PROC_NULL`, which costs some ten
//! nanoseconds and no resources of the host. A pending one is a generalized request, completed when
//! the engine reports it ([`complete`]). The application may free it before that. The
//! library still completes it, once, which is legal on every host [RQ-2]; the host frees its object
//! when both have happened.
//!
//! Making a generalized request, completing it, and the host's noticing take longer than most
//! waits. So a call that waits for one of ours, and sees it complete, does not complete it at the
//! host ([`direct`]). The application gets `MPI_REQUEST_NULL`; at the host the request stays
//! pending, and the next call that needs a request reuses it. In all other calls it is an ordinary
//! generalized request.

pub(crate) mod attached;
pub(crate) mod completion;
pub(crate) mod continuation;
pub(crate) mod direct;
mod host_persistent;
pub(crate) mod persistent;
pub(crate) mod task;

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::hash::BuildHasherDefault;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use hashbrown::HashMap;

use crate::engine::RequestId;
use crate::engine::slab::{Key, Slab};
use crate::mpi::abi::argument::Out;
use crate::mpi::abi::error::{Fault, code_of};
use crate::mpi::abi::host_calls;
use crate::mpi::abi::status::{Status, Statuses};
use crate::mpi::abi::sys::*;
use crate::mpi::progress::hook;
use crate::mpi::request::attached::Attached;
use crate::runtime::process::Own;
use crate::runtime::registry::HandleHasher;
use crate::runtime::{Completion, HostRequest, WindowId};

/// Generalized requests that the application holds, that are pending, or that the host has not
/// freed yet [RQ-3]. Spare requests do not count: they are reused before another is made, so the
/// host never has more requests than the limit.
static ALIVE: AtomicI64 = AtomicI64::new(0);
/// The limit; set at `MPI_Init`.
static MAX_ALIVE: AtomicI64 = AtomicI64::new(i64::MAX);

/// Sets the limit on requests that are alive.
pub(crate) fn set_max_alive(max: i64) {
    MAX_ALIVE.store(max, Ordering::Relaxed);
}

/// A generalized request. The host refers to it until it runs the free function, the library until
/// completion: hosts differ in which of the two comes last when the application frees a pending
/// request.
struct Entry {
    request: MPI_Request,
    host_refers: bool,
    engine_refers: bool,
    /// A call of this library waits for it, and does not complete it at the host.
    awaited: bool,
    /// Requests of engines whose completion it awaits: more than 1 for flushes of several windows.
    parts: u32,
    /// The engine's request, until it is complete: of several, the first.
    source: Option<(WindowId, RequestId)>,
    /// The windows of several requests of engines.
    windows: Option<Arc<[WindowId]>>,
    /// What a continuation knows of it. The application no longer uses the request.
    attached: Option<Attached>,
    /// The error that calls which complete it return.
    fault: Option<Fault>,
}

/// Spare requests that are kept for reuse.
const MAX_SPARE: usize = 64;

struct Contents {
    slab: Slab<Entry>,
    /// Entries by the host's handle.
    numbers: HashMap<u64, HostRequest, BuildHasherDefault<HandleHasher>>,
    /// The request that the application was given last.
    last: Option<(u64, HostRequest)>,
    /// Spare requests: pending at the host, and unknown to the application.
    spare: Vec<HostRequest>,
}

impl Contents {
    fn get(&mut self, number: HostRequest) -> Option<(Key, &mut Entry)> {
        let key = self.slab.key_at(number.0.get() - 1)?;
        Some((key, self.slab.get_mut(key)?))
    }

    /// Takes a spare request, to be given to the application.
    fn take_spare(&mut self) -> Option<(HostRequest, MPI_Request)> {
        let number = self.spare.pop()?;
        let (_, entry) = self.get(number)?;
        let request = entry.request;
        self.last = Some((request.key(), number));
        Some((number, request))
    }

    fn find(&self, handle: u64) -> Option<HostRequest> {
        match self.last {
            Some((last, number)) if last == handle => Some(number),
            _ => self.numbers.get(&handle).copied(),
        }
    }

    fn forget(&mut self, handle: u64) {
        self.last = None;
        self.numbers.remove(&handle);
        if self.numbers.is_empty() && self.numbers.capacity() > KEPT {
            self.numbers = HashMap::default();
        }
    }
}

/// The table is freed when it is empty, unless its capacity is at most this.
const KEPT: usize = 1024;

/// All generalized requests of this process. The host may run the free function inside calls that
/// this library makes while it holds the runtime's guard. So the table has a lock of its own.
struct Table(Own<Contents>);

static TABLE: Table = Table(
    // SAFETY: the host's handles may be used in any thread, and so may the application's memory.
    unsafe {
        Own::new(Contents {
            slab: Slab::new(),
            numbers: HashMap::with_hasher(BuildHasherDefault::new()),
            last: None,
            spare: Vec::new(),
        })
    },
);

impl Table {
    /// Runs `body`, which neither panics nor calls the host, on the table.
    #[inline]
    fn with<R>(&self, body: impl FnOnce(&mut Contents) -> R) -> R {
        self.0.with(|contents| {
            let result = body(contents);
            ALIVE.store((contents.slab.len() - contents.spare.len()) as i64, Ordering::Relaxed);
            result
        })
    }

    /// Makes an entry.
    fn insert(&self) -> HostRequest {
        let entry = Entry {
            request: MPI_REQUEST_NULL,
            host_refers: true,
            engine_refers: true,
            awaited: false,
            parts: 1,
            source: None,
            windows: None,
            attached: None,
            fault: None,
        };
        let index = self.with(|contents| contents.slab.insert(entry).index);
        // The limit is below the largest index [RQ-3].
        HostRequest(NonZeroU32::new(index + 1).expect("fewer than 2^32 - 1 requests"))
    }

    /// Changes an entry, and removes it when neither side refers to it any more. Returns its
    /// request.
    fn change(&self, number: HostRequest, how: impl FnOnce(&mut Entry)) -> Option<MPI_Request> {
        self.with(|contents| {
            let (key, entry) = contents.get(number)?;
            how(entry);
            let Entry { request, host_refers, engine_refers, .. } = *entry;
            if !host_refers {
                // The host may soon reuse the handle.
                contents.forget(request.key());
                if !engine_refers {
                    contents.slab.remove(key);
                }
            }
            Some(request)
        })
    }
}

/// Refuses a call that may need a request when the limit is reached, before anything happens
/// [RQ-3].
#[inline]
pub(crate) fn admit() -> Result<(), Fault> {
    if ALIVE.load(Ordering::Relaxed) >= MAX_ALIVE.load(Ordering::Relaxed) {
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

/// The handle of every request of [`completed`], or 0 if the host makes one for each.
static COMPLETED: AtomicU64 = AtomicU64::new(0);

/// Finds out whether the requests of [`completed`] are all the same one.
pub(crate) fn compare_completed() {
    let mut made = [MPI_REQUEST_NULL; 2];
    for request in &mut made {
        host_calls::null_isend(comm_or_self(), Out::to(request));
    }
    let [first, second] = made.map(MPI_Request::key);
    for request in made {
        host_calls::wait(&Cell::new(request), Status::ignored());
    }
    // Two pending ones would differ, so such a handle never stands for another request.
    let same = first == second && first != MPI_REQUEST_NULL.key();
    COMPLETED.store(if same { first } else { 0 }, Ordering::Relaxed);
}

/// Whether the host makes all complete requests as this one.
#[inline]
pub(crate) fn is_made_complete(request: MPI_Request) -> bool {
    let completed = COMPLETED.load(Ordering::Relaxed);
    completed != 0 && request.key() == completed
}

/// A communicator that exists as long as windows do.
static COMM: AtomicU64 = AtomicU64::new(0);

/// Sets the communicator on which complete requests are made.
pub(crate) fn use_comm(comm: Option<MPI_Comm>) {
    COMM.store(comm.map_or(0, MPI_Comm::key), Ordering::Relaxed);
}

/// The communicator of [`use_comm`]. There is one while windows exist.
pub(crate) fn comm_in_use() -> MPI_Comm {
    MPI_Comm::of(COMM.load(Ordering::Relaxed))
}

/// A communicator for tokens of requests that need no window.
pub(crate) fn comm_or_self() -> MPI_Comm {
    if COMM.load(Ordering::Relaxed) == 0 { MPI_COMM_SELF } else { comm_in_use() }
}

/// Makes a pending request.
pub(crate) fn pending(request: Out<'_, MPI_Request>) -> Result<HostRequest, c_int> {
    if let Some((number, spare)) = TABLE.with(Contents::take_spare) {
        request.write(spare);
        return Ok(number);
    }
    let number = TABLE.insert();
    let entry = std::ptr::without_provenance_mut::<c_void>(number.0.get() as usize);
    let mut made = MPI_REQUEST_NULL;
    // SAFETY: the callbacks live as long as the process, and what they are given is a number, never
    // an address; `made` is written before the call returns.
    let status = unsafe {
        match hook::polled_requests() {
            Some((start, poll, wait)) => {
                start(query, free, cancel, poll, wait, entry, &raw mut made)
            }
            None => {
                PMPI_Grequest_start(Some(query), Some(free), Some(cancel), entry, &raw mut made)
            }
        }
    };
    if status != MPI_SUCCESS {
        TABLE.change(number, |entry| (entry.host_refers, entry.engine_refers) = (false, false));
        return Err(status);
    }
    request.write(made);
    TABLE.with(|contents| {
        if let Some((_, entry)) = contents.get(number) {
            entry.request = made;
        }
        contents.numbers.insert(made.key(), number);
        contents.last = Some((made.key(), number));
    });
    Ok(number)
}

/// Binds a pending request to one of each window's engine. It is complete when all of them are.
/// `first` is that of the first window.
pub(crate) fn bind_all(number: HostRequest, windows: &[WindowId], first: RequestId) {
    let several = (windows.len() > 1).then(|| Arc::from(windows));
    TABLE.change(number, |entry| {
        (entry.parts, entry.windows) = (windows.len() as u32, several);
        entry.source = windows.first().map(|window| (*window, first));
    });
}

/// Completes a pending request, once for each of its parts.
pub(crate) fn complete(number: HostRequest, completion: Completion) {
    let fault = match completion {
        Completion::Success => None,
        Completion::NotAttached => Some(Fault::unattached()),
        Completion::WindowBroken(why) => Some(Fault::broken(why)),
    };
    let (mut awaited, mut attached, mut parts_left) = (false, None, false);
    let mut fault = fault;
    let changed = TABLE.change(number, |entry| {
        fault = entry.fault.or(fault);
        if entry.parts > 1 {
            (entry.parts, entry.fault, parts_left) = (entry.parts - 1, fault, true);
            return;
        }
        (awaited, attached) = (entry.awaited, entry.attached.take());
        entry.windows = None;
        let stays = awaited || attached.is_some();
        (entry.engine_refers, entry.source, entry.fault) = (stays, None, fault);
    });
    match (changed, attached) {
        _ if parts_left => {}
        (Some(request), Some(attached)) => {
            if !recycle(number) {
                host_calls::request_free(&Cell::new(request));
            }
            let error = fault.map_or(MPI_SUCCESS, |fault| code_of("a nonblocking call", fault));
            attached.complete(error, None, MPI_REQUEST_NULL);
        }
        (Some(_), None) if awaited => {}
        (Some(request), None) => complete_at_host(request),
        (None, _) => log::error!("a request was completed twice"),
    }
}

/// Completes a request at the host.
fn complete_at_host(request: MPI_Request) {
    // It lives until it is complete, even if the application has freed it.
    let status = host_calls::grequest_complete(request);
    if status != MPI_SUCCESS {
        log::error!("MPI_Grequest_complete failed with {status}");
    }
}

/// Binds a pending request to one of the engine.
pub(crate) fn bind(number: HostRequest, window: WindowId, id: RequestId) {
    TABLE.change(number, |entry| entry.source = Some((window, id)));
}

/// True if the application holds no generalized request of ours.
#[inline(always)]
pub(crate) fn none_alive() -> bool {
    ALIVE.load(Ordering::Relaxed) == 0
}

/// The engine's request to which a request is bound, if it is one of ours and not complete.
pub(crate) fn source(request: MPI_Request) -> Option<(HostRequest, WindowId, RequestId)> {
    TABLE.with(|contents| {
        let number = contents.find(request.key())?;
        let (window, id) = contents.get(number)?.1.source?;
        Some((number, window, id))
    })
}

/// A request of ours that a call of this library waits for.
pub(crate) struct Awaited {
    pub(crate) number: HostRequest,
    /// The engine's request to which it is bound: of several, the first.
    pub(crate) window: WindowId,
    pub(crate) id: RequestId,
    /// The windows, if it is bound to requests of several.
    pub(crate) windows: Option<Arc<[WindowId]>>,
}

/// As [`source`], for a call of this library that waits for the request. The request is then not
/// completed at the host.
pub(crate) fn to_await(request: MPI_Request) -> Option<Awaited> {
    TABLE.with(|contents| {
        let number = contents.find(request.key())?;
        let (_, entry) = contents.get(number)?;
        let (window, id) = entry.source?;
        entry.awaited = true;
        Some(Awaited { number, window, id, windows: entry.windows.clone() })
    })
}

/// What [`attach`] has found.
pub(crate) enum AttachedTo {
    /// The request, which will complete what was attached.
    Pending,
    /// Something is attached to the request already.
    Nothing,
    /// It is not a pending request of ours: the host answers for it.
    Host,
}

/// Attaches a continuation to a request, if it is one of ours and pending. From then on the
/// application must not use the request, and the host does not hear of its completion.
pub(crate) fn attach(request: MPI_Request, attached: Attached) -> AttachedTo {
    to_attach(request, |entry| entry.attached = Some(attached))
}

/// What a continuation would find.
pub(crate) fn attachable(request: MPI_Request) -> AttachedTo {
    to_attach(request, |_| ())
}

/// Calls `how` with the entry of a request to which a continuation can be attached.
fn to_attach(request: MPI_Request, how: impl FnOnce(&mut Entry)) -> AttachedTo {
    TABLE.with(|contents| {
        let found = contents.find(request.key()).and_then(|number| contents.get(number));
        match found {
            Some((_, entry)) if entry.attached.is_some() => AttachedTo::Nothing,
            Some((_, entry)) if entry.source.is_some() => {
                how(entry);
                AttachedTo::Pending
            }
            _ => AttachedTo::Host,
        }
    })
}

/// The inverse of [`to_await`].
pub(crate) fn stop_awaiting(number: HostRequest) {
    TABLE.change(number, |entry| entry.awaited = false);
}

/// True if an awaited request is complete.
pub(crate) fn is_complete(number: HostRequest) -> bool {
    TABLE.with(|contents| contents.get(number).is_none_or(|(_, entry)| entry.source.is_none()))
}

/// Keeps an awaited request that is complete as a spare one; the caller then gives the application
/// MPI_REQUEST_NULL. False if the host must complete it instead, because it has failed or there are
/// enough spare requests.
pub(crate) fn recycle(number: HostRequest) -> bool {
    let kept = TABLE.with(|contents| {
        let room = contents.spare.len() < MAX_SPARE;
        let (_, entry) = contents.get(number)?;
        // The engine reports no request that ended in a poll of its counters.
        (entry.awaited, entry.source) = (false, None);
        let keep = room && entry.fault.is_none();
        let request = entry.request;
        if keep {
            contents.spare.push(number);
        } else {
            entry.engine_refers = false;
        }
        Some((keep, request))
    });
    let Some((false, request)) = kept else { return true };
    complete_at_host(request);
    false
}

/// Frees the spare requests: the last window was freed, or MPI is about to be finalized.
pub(crate) fn free_spare_requests() {
    while let Some((number, request)) = TABLE.with(Contents::take_spare) {
        TABLE.change(number, |entry| entry.engine_refers = false);
        complete_at_host(request);
        // The application no longer has it.
        host_calls::request_free(&Cell::new(request));
    }
}

/// The status of a request of ours: MPI's empty status, and its error. Hosts may ask more than
/// once.
unsafe extern "C" fn query(entry: *mut c_void, status: *mut MPI_Status) -> c_int {
    // SAFETY: the host passes a status of its own, which nobody else uses during the callback.
    let status = unsafe { Status::new(status) };
    status.fill_empty();
    let mut fault = None;
    if let Some(number) = NonZeroU32::new(entry.addr() as u32) {
        TABLE.change(HostRequest(number), |entry| fault = entry.fault);
    }
    let Some(fault) = fault else { return MPI_SUCCESS };
    let code = code_of("a nonblocking call", fault);
    if cfg!(mpi_host = "mpich") {
        status.set_origin(FAILED, code);
    }
    code
}

/// The source in the status of a failed request, by which [`correct`] recognizes it; the tag is the
/// error code. MPICH (4.0 to 5.0) returns that code from calls that complete one request, but in
/// arrays of statuses it writes one of its own, of class `MPI_ERR_OTHER`.
const FAILED: c_int = -0x4d50_4958;

/// Corrects the status of a failed request of ours, after a call of the host that has returned an
/// error. Returns the request's error code.
#[cold]
pub(crate) fn correct(status: Status<'_>) -> Option<c_int> {
    let (source, code) = status.origin()?;
    (source == FAILED).then(|| {
        status.fill_empty();
        code
    })
}

/// As [`correct`], for a call that has written `count` statuses of an array; sets their errors.
#[cold]
pub(crate) fn correct_all(statuses: Statuses<'_>, count: c_int) {
    for status in statuses.first(usize::try_from(count).unwrap_or(0)) {
        if let Some(code) = correct(status) {
            status.set_error(code);
        }
    }
}

unsafe extern "C" fn free(entry: *mut c_void) -> c_int {
    if let Some(number) = NonZeroU32::new(entry.addr() as u32) {
        TABLE.change(HostRequest(number), |entry| entry.host_refers = false);
    }
    MPI_SUCCESS
}

/// `MPI_Cancel` has no effect [RQ-2].
unsafe extern "C" fn cancel(_: *mut c_void, _: c_int) -> c_int {
    MPI_SUCCESS
}
