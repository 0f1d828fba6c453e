//! How the host's own functions are reached.
//!
//! This library defines `MPI_*` and `PMPI_*` itself: programs call the former, Fortran wrappers and
//! tools the latter. So `PMPI_Put` in this code would resolve to the library's own. The host's is
//! the *next* definition in the dynamic linker's order. That holds whether this library is
//! preloaded, linked before the host, or linked into the program, and other tools may sit between.
//! If there is no next definition (the program has loaded both libraries by `dlopen` with
//! `RTLD_LOCAL`), the function is looked up in the host library by its handle.
//!
//! A function is looked up at its first call. A static variable holds the address to jump to, which
//! is at first that of the look-up. So a call costs what it costs through the dynamic linker: a
//! load and an indirect jump.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Where the address of a function of the host is kept.
pub struct Place(AtomicPtr<()>);

impl Place {
    /// A place that leads to the look-up.
    pub const fn new(first: *mut ()) -> Self {
        Self(AtomicPtr::new(first))
    }

    /// The address to call.
    #[inline(always)]
    pub fn address(&self) -> *mut () {
        // The code behind an address is there before the address is: nothing has to be ordered.
        self.0.load(Ordering::Relaxed)
    }

    /// Looks the function up for good.
    #[cold]
    pub fn resolve(&self, name: &CStr) -> *mut () {
        let Some(address) = find(name) else { absent(name) };
        self.0.store(address, Ordering::Relaxed);
        address
    }
}

/// Aborts: the caller would go on with undefined results.
#[cold]
fn absent(name: &CStr) -> ! {
    eprintln!(
        "mpix-rma: the MPI library of this process has no {}. This library was built for {}; it \
         needs that MPI library, \
         as a shared one, loaded after it.",
        name.to_string_lossy(),
        env!("MPIX_RMA_HOST")
    );
    std::process::abort();
}

unsafe extern "C" {
    // A function of the host that is not interposed. The reference keeps linkers from dropping the
    // host's library from a program that calls nothing else of it, and `dladdr` finds the library
    // by it.
    #[link_name = "PMPI_Get_library_version"]
    fn anchor(version: *mut c_char, resultlen: *mut c_int) -> c_int;
}

/// A function of the host by its name.
pub(crate) fn find(name: &CStr) -> Option<*mut ()> {
    static FOLLOWED: OnceLock<bool> = OnceLock::new();
    // Skip another copy of this library, such as one that is built into a program into which this
    // one is preloaded: both would serve the same windows.
    let followed = *FOLLOWED.get_or_init(|| look(libc::RTLD_NEXT, c"PMPIX_Get_version").is_some());
    let next = if followed { None } else { look(libc::RTLD_NEXT, name) };
    next.or_else(|| look(library()?.0, name)).map(<*mut c_void>::cast)
}

fn look(handle: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a handle of the dynamic linker, and a C string.
    let address = unsafe { libc::dlsym(handle, name.as_ptr()) };
    (!address.is_null()).then_some(address)
}

/// A handle of the dynamic linker.
struct Library(*mut c_void);

// SAFETY: handles may be used by any thread.
unsafe impl Send for Library {}
// SAFETY: the functions of the dynamic linker take a handle from several threads at once.
unsafe impl Sync for Library {}

/// The host's library.
fn library() -> Option<&'static Library> {
    static LIBRARY: OnceLock<Option<Library>> = OnceLock::new();
    let open = || {
        // SAFETY: an all-zero description is a valid one.
        let mut about = unsafe { std::mem::zeroed::<libc::Dl_info>() };
        // SAFETY: the address is that of a function, and the description is written by the call.
        let known = unsafe { libc::dladdr(anchor as *const c_void, &raw mut about) } != 0
            && !about.dli_fname.is_null();
        if !known {
            return None;
        }
        // SAFETY: the name is the dynamic linker's own; the library is loaded already and stays.
        let handle = unsafe { libc::dlopen(about.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        (!handle.is_null()).then_some(Library(handle))
    };
    LIBRARY.get_or_init(open).as_ref()
}

/// Defines what `mpi.h` declares as functions that call the host's.
macro_rules! host_functions {
    ($(pub fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)?;)*) => {$(
        #[inline(always)]
        pub unsafe extern "C" fn $name($($arg: $type),*) $(-> $result)? {
            type Function = unsafe extern "C" fn($($type),*) $(-> $result)?;
            unsafe extern "C" fn first($($arg: $type),*) $(-> $result)? {
                const NAME: &std::ffi::CStr =
                    $crate::mpi::abi::host::c_name(concat!(stringify!($name), "\0"));
                let address = PLACE.resolve(NAME);
                // SAFETY: the host's function of this name, which `mpi.h` declares so.
                unsafe { std::mem::transmute::<*mut (), Function>(address)($($arg),*) }
            }
            static PLACE: $crate::mpi::abi::host::Place =
                $crate::mpi::abi::host::Place::new(first as Function as *mut ());
            // SAFETY: the place holds `first` or the host's function, both of this type; the caller
            // answers for the arguments.
            unsafe { std::mem::transmute::<*mut (), Function>(PLACE.address())($($arg),*) }
        }
    )*};
}
pub(crate) use host_functions;

/// A name with its end, as a C string.
pub(crate) const fn c_name(name: &str) -> &CStr {
    match CStr::from_bytes_with_nul(name.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("a name has one end"),
    }
}

/// Exports calls under both their names: programs call `MPI_*`; Fortran wrappers, and tools that
/// define `MPI_*` themselves, call `PMPI_*`. The same for calls of our own (`MPIX_*`).
///
/// Both names run the same body, a function that is not exported. One name must not call the other,
/// which a tool may define itself. The body is not inlined into both: only a function with one
/// caller is inlined into `catch_unwind`, and otherwise the arguments go through memory on each
/// side of it, which costs short calls some ten nanoseconds. `tests/header.rs` checks that each
/// call has both names, and that none is called by name.
macro_rules! exports {
    ($($name:ident($($arg:ident: $type:ty),* $(,)?);)*) => {$(
        const _: () = {
            #[unsafe(export_name = stringify!($name))]
            #[allow(clippy::too_many_arguments)]
            unsafe extern "C" fn called($($arg: $type),*) -> std::ffi::c_int {
                // SAFETY: the application's arguments, passed on.
                unsafe { $name($($arg),*) }
            }
            #[unsafe(export_name = concat!("P", stringify!($name)))]
            #[allow(clippy::too_many_arguments)]
            unsafe extern "C" fn profiled($($arg: $type),*) -> std::ffi::c_int {
                // SAFETY: the application's arguments, passed on.
                unsafe { $name($($arg),*) }
            }
        };
    )*};
}
pub(crate) use exports;
