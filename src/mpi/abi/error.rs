//! Errors: MPI error codes with texts of this library, raised on the error handler of the window.
//!
//! A [`Fault`] is an MPI error class and a text that names the argument. `MPI_Add_error_code` makes
//! its error code, once per (class, call, text). The texts are static, so the number of codes is
//! bounded; values such as ranks and sizes go to the log. Hosts have no text for added codes of a
//! predefined class, so `MPI_Error_string` is interposed for our codes. `MPI_Error_class` works as
//! it is.

use std::ffi::{CString, c_char, c_int};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use crate::engine::SyncError;
use crate::mpi::abi::host::exports;
use crate::mpi::abi::host_calls;
use crate::mpi::abi::sys::*;

/// The error of a call, which has changed nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    /// MPI error class.
    pub(crate) class: c_int,
    /// What is wrong, with the name of the argument.
    pub(crate) text: &'static str,
}

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

    /// Of a request or a wait in a broken window; `why`: the reason, if a peer is unreachable.
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
        let (class, text) = match error {
            SyncError::NoAccessEpoch => {
                (MPI_ERR_RMA_SYNC, "no access epoch is open for this target")
            }
            SyncError::NotStarted => {
                (MPI_ERR_RMA_SYNC, "no access epoch is open (start was not called)")
            }
            SyncError::NotPosted => {
                (MPI_ERR_RMA_SYNC, "no exposure epoch is open (post was not called)")
            }
            SyncError::NotLocked => (MPI_ERR_RMA_SYNC, "the target is not locked"),
            SyncError::NoPassiveEpoch => {
                (MPI_ERR_RMA_SYNC, "no passive-target epoch is open for this target")
            }
            SyncError::AlreadyLocked => {
                (MPI_ERR_RMA_SYNC, "the target is already locked by this process")
            }
            SyncError::AccessOpen => (MPI_ERR_RMA_SYNC, "an access epoch is already open"),
            SyncError::ExposureOpen => (MPI_ERR_RMA_SYNC, "an exposure epoch is already open"),
            SyncError::FenceOpen => (MPI_ERR_RMA_SYNC, "a fence epoch with operations is open"),
        };
        Self { class, text }
    }
}

/// The object whose error handler is called.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    /// The window's.
    Window(MPI_Win),
    /// The communicator's.
    Communicator(MPI_Comm),
    /// `MPI_COMM_WORLD`, which both hosts use for an invalid handle.
    World,
}

struct Code {
    class: c_int,
    call: &'static str,
    text: &'static str,
    code: c_int,
}

static CODES: Mutex<Vec<Code>> = Mutex::new(Vec::new());

/// The error code of a fault of `call`.
pub(crate) fn code_of(call: &'static str, fault: Fault) -> c_int {
    let mut codes = CODES.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
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

/// Calls the error handler for a fault, and gives the error code that the call returns. Not with
/// the runtime's guard held, since the handler is the application's.
#[cold]
#[inline(never)]
pub(crate) fn raise(call: &'static str, place: Place, fault: Fault) -> c_int {
    let code = code_of(call, fault);
    log::debug!("{call}: {} (error class {})", fault.text, fault.class);
    let mut told = code;
    if is_fatal(place) {
        // The host aborts the job with its own message, which it has for the class only.
        eprintln!("mpix-rma: {}", Words { call, text: fault.text });
        told = fault.class;
    }
    match place {
        Place::Window(window) => host_calls::win_call_errhandler(window, told),
        Place::Communicator(comm) => host_calls::comm_call_errhandler(comm, told),
        Place::World => host_calls::comm_call_errhandler(MPI_COMM_WORLD, told),
    };
    code
}

struct Words {
    call: &'static str,
    text: &'static str,
}

impl fmt::Display for Words {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.call, self.text)
    }
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
    // The host has given a reference.
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
    log::error!("{call}: an internal error of mpix-rma; please report it");
    raise(
        call,
        Place::World,
        Fault::new(MPI_ERR_INTERN, "an internal error of mpix-rma; please report it"),
    )
}

/// Answers for our own codes, and passes all others on.
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
        let words = {
            let codes = CODES.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            codes
                .iter()
                .find(|code| code.code == errorcode)
                .map(|code| Words { call: code.call, text: code.text }.to_string())
        };
        let words = words
            .filter(|_| !string.is_null() && !resultlen.is_null())
            .and_then(|words| CString::new(words).ok());
        let Some(words) = words else {
            // SAFETY: the arguments are the application's, passed on.
            return unsafe { PMPI_Error_string(errorcode, string, resultlen) };
        };
        let bytes = words.as_bytes();
        let most = (MPI_MAX_ERROR_STRING as usize).saturating_sub(1);
        let length = bytes.len().min(most);
        // SAFETY: MPI gives `string` room for MPI_MAX_ERROR_STRING characters; `length` + 1 are
        // written.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), string, length);
            string.add(length).write(0);
            resultlen.write(length as c_int);
        }
        MPI_SUCCESS
    })
}

exports! {
    MPI_Error_string(errorcode: c_int, string: *mut c_char, resultlen: *mut c_int);
}
