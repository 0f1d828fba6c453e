//! Errors: MPI error codes with texts of this library, raised on the error handler of the window.
//!
//! A [`Fault`] is an MPI error class and a text that names the argument. `MPI_Add_error_code` makes
//! its error code, once per (class, call, text). The texts are static, so the number of codes is
//! bounded; values such as ranks and sizes go to the log. Hosts have no text for codes that are
//! added to a predefined class, so `MPI_Error_string` is interposed for our codes. The host's
//! `MPI_Error_class` knows them.

use std::ffi::{c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::engine::{Rank, SyncError};
use crate::mpi::abi::host::exports;
use crate::mpi::abi::host_calls;
use crate::mpi::abi::sys::*;

/// The error of a call. A call that fails has changed nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    /// MPI error class.
    pub(crate) class: c_int,
    /// What is wrong, with the name of the argument.
    pub(crate) text: &'static str,
}

/// Texts by target.
type Texts = Mutex<Vec<(Rank, &'static str)>>;

impl Fault {
    #[cold]
    pub(crate) fn new(class: c_int, text: &'static str) -> Self {
        Self { class, text }
    }

    #[cold]
    pub(crate) fn unattached() -> Self {
        Self::new(
            MPI_ERR_RMA_RANGE,
            "an operation reached memory that its target has not attached; standard error names \
             both",
        )
    }

    /// The error of an access that a pattern fence has not learned [FE-4]. The texts of faults are
    /// static, so that of each target is made once.
    #[cold]
    pub(crate) fn not_learned(target: Rank) -> Self {
        static TEXTS: Texts = Mutex::new(Vec::new());
        Self::pattern_lacks(target, &TEXTS, || {
            format!(
                "target_rank {target} was not accessed in the fence epoch whose pattern was \
                 learned; set the info key mpix_rma_fence again (pattern learns anew, barrier \
                 ends it)"
            )
        })
    }

    /// The error of a start whose record accesses a target that a pattern fence lacks then.
    #[cold]
    pub(crate) fn not_in_pattern(target: Rank) -> Self {
        static TEXTS: Texts = Mutex::new(Vec::new());
        Self::pattern_lacks(target, &TEXTS, || {
            format!(
                "target_rank {target} of the record is not accessed in the fence epoch whose \
                 pattern is learned; if the record's first fence ends that epoch, record it with \
                 MPI_MODE_NOPRECEDE; or set the info key mpix_rma_fence again (pattern learns \
                 anew, barrier ends it)"
            )
        })
    }

    /// Writes the text once for each target and keeps it, since the texts of faults are static.
    fn pattern_lacks(target: Rank, texts: &Texts, write: impl FnOnce() -> String) -> Self {
        let mut texts = texts.lock().unwrap_or_else(PoisonError::into_inner);
        let known = texts.iter().find(|(rank, _)| *rank == target).map(|(_, text)| *text);
        let text = known.unwrap_or_else(|| {
            let text = Box::leak(write().into_boxed_str());
            texts.push((target, text));
            text
        });
        Self::new(MPI_ERR_RMA_SYNC, text)
    }

    /// The error of a request or a wait in a broken window. `why`: the reason, if a peer is
    /// unreachable.
    #[cold]
    pub(crate) fn broken(why: Option<&'static str>) -> Self {
        match why {
            Some(text) => Self::new(MPI_ERR_OTHER, text),
            None => Self::new(
                MPI_ERR_INTERN,
                "a malformed message was refused; standard error names the peer",
            ),
        }
    }
}

impl From<SyncError> for Fault {
    #[cold]
    fn from(error: SyncError) -> Self {
        // The texts of faults are static, so those of `SyncError` cannot be formatted here.
        let text = match error {
            SyncError::NoAccessEpoch => "no access epoch is open for this target",
            SyncError::NoFenceEpoch => {
                "no fence epoch is open for the operations with which the record begins"
            }
            SyncError::NotStarted => "no access epoch is open (start was not called)",
            SyncError::NotPosted => "no exposure epoch is open (post was not called)",
            SyncError::NotLocked => "the target is not locked",
            SyncError::NoPassiveEpoch => "no passive-target epoch is open for this target",
            SyncError::UncheckedByOther => {
                "the window's lock_all epoch, opened on another handle, has MPI_MODE_NOCHECK: \
                 pass it here too"
            }
            SyncError::AlreadyLocked => "the target is already locked by this process",
            SyncError::AccessOpen => "an access epoch is already open",
            SyncError::ExposureOpen => "an exposure epoch is already open",
            SyncError::NotLearned => "the pattern fence has not learned this target",
            SyncError::FenceOpen => "a fence epoch with operations is open",
        };
        Self { class: MPI_ERR_RMA_SYNC, text }
    }
}

/// The object whose error handler is called.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    Window(MPI_Win),
    Communicator(MPI_Comm),
    /// `MPI_COMM_WORLD`, as both hosts do for an invalid handle.
    World,
}

/// An error code of this library.
struct Code {
    class: c_int,
    call: &'static str,
    text: &'static str,
    code: c_int,
}

fn codes() -> MutexGuard<'static, Vec<Code>> {
    static CODES: Mutex<Vec<Code>> = Mutex::new(Vec::new());
    CODES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The error code of a fault of `call`.
pub(crate) fn code_of(call: &'static str, fault: Fault) -> c_int {
    let mut codes = codes();
    let known = codes
        .iter()
        .find(|code| code.class == fault.class && code.call == call && code.text == fault.text);
    if let Some(known) = known {
        return known.code;
    }
    let mut code = fault.class;
    if host_calls::add_error_code(fault.class, &mut code) != MPI_SUCCESS {
        // A class is a valid error code; only the text is lost.
        return fault.class;
    }
    codes.push(Code { class: fault.class, call, text: fault.text, code });
    code
}

/// Calls the error handler for a fault, and gives the error code that the call returns. The caller
/// must not hold the runtime's guard, since the handler is the application's.
#[cold]
#[inline(never)]
pub(crate) fn raise(call: &'static str, place: Place, fault: Fault) -> c_int {
    let code = code_of(call, fault);
    log::debug!("{call}: {} (error class {})", fault.text, fault.class);
    let mut raised = code;
    if is_fatal(place) {
        // The host's message, with which it aborts the job, knows only predefined classes.
        eprintln!("mpix-rma: {call}: {}", fault.text);
        raised = fault.class;
    }
    match place {
        Place::Window(window) => host_calls::win_call_errhandler(window, raised),
        Place::Communicator(comm) => host_calls::comm_call_errhandler(comm, raised),
        Place::World => host_calls::comm_call_errhandler(MPI_COMM_WORLD, raised),
    };
    code
}

fn is_fatal(place: Place) -> bool {
    let mut handler = MPI_ERRORS_ARE_FATAL;
    let status = match place {
        Place::Window(window) => host_calls::win_get_errhandler(window, &mut handler),
        Place::Communicator(comm) => host_calls::comm_get_errhandler(comm, &mut handler),
        Place::World => host_calls::comm_get_errhandler(MPI_COMM_WORLD, &mut handler),
    };
    if status != MPI_SUCCESS {
        return true;
    }
    let fatal = handler == MPI_ERRORS_ARE_FATAL || handler == MPI_ERRORS_ABORT;
    // The host returned a new reference.
    host_calls::errhandler_free(&mut handler);
    fatal
}

/// The boundary of every exported function: a panic becomes `MPI_ERR_INTERN` instead of unwinding
/// into C.
#[inline(always)]
pub(crate) fn boundary(call: &'static str, body: impl FnOnce() -> c_int) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(code) => code,
        Err(_) => panicked(call),
    }
}

#[cold]
#[inline(never)]
fn panicked(call: &'static str) -> c_int {
    // The panic message is on standard error already.
    const TEXT: &str = "an internal error of mpix-rma; please report it";
    log::error!("{call}: {TEXT}");
    raise(call, Place::World, Fault::new(MPI_ERR_INTERN, TEXT))
}

/// Returns the text of one of our codes, or the host's text of any other code.
///
/// # Safety
/// As MPI says: `string` has room for `MPI_MAX_ERROR_STRING` characters.
#[inline(never)]
pub unsafe extern "C" fn MPI_Error_string(
    errorcode: c_int,
    string: *mut c_char,
    resultlen: *mut c_int,
) -> c_int {
    boundary("MPI_Error_string", || {
        let ours = codes()
            .iter()
            .find(|code| code.code == errorcode)
            .map(|code| format!("{}: {}", code.call, code.text));
        let Some(text) = ours.filter(|_| !string.is_null() && !resultlen.is_null()) else {
            // SAFETY: the arguments are the application's, passed on.
            return unsafe { PMPI_Error_string(errorcode, string, resultlen) };
        };
        let length = text.len().min(MPI_MAX_ERROR_STRING as usize - 1);
        // SAFETY: MPI gives `string` room for MPI_MAX_ERROR_STRING characters; `length` + 1 are
        // written.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr().cast(), string, length);
            string.add(length).write(0);
            resultlen.write(length as c_int);
        }
        MPI_SUCCESS
    })
}

exports! {
    MPI_Error_string(errorcode: c_int, string: *mut c_char, resultlen: *mut c_int);
}
