//! How this library calls the host's functions, and how it exports its own.
//!
//! This library defines `MPI_*` and `PMPI_*` itself: programs call the former, Fortran wrappers and
//! tools the latter. So a plain call of `PMPI_Put` in this code would call this library again. The
//! host's function is the *next* definition in the dynamic linker's order. That holds whether this
//! library is preloaded, linked before the host, or linked into the program, and other tools may
//! sit between. If there is no next definition (the program has loaded both libraries by `dlopen`
//! with `RTLD_LOCAL`), the function is looked up in the host library by its handle.
//!
//! A function is looked up at its first call. Until then its static [`Slot`] holds the address of
//! the look-up. So a call costs what it costs through the dynamic linker's table: a load and an
//! indirect jump.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Holds the address of a function of the host.
pub struct Slot(AtomicPtr<()>);

impl Slot {
    /// A slot with the address of the look-up.
    pub const fn new(first: *mut ()) -> Self {
        Self(AtomicPtr::new(first))
    }

    /// The address to call.
    #[inline(always)]
    pub fn address(&self) -> *mut () {
        // Acquire: the function reads what the dynamic linker wrote before its address was stored.
        self.0.load(Ordering::Acquire)
    }

    /// Looks the function up, and stores its address.
    #[cold]
    pub fn resolve(&self, name: &CStr) -> *mut () {
        let Some(address) = find(name) else { absent(name) };
        self.0.store(address, Ordering::Release);
        address
    }
}

/// Aborts: the caller could only go on with undefined results.
#[cold]
fn absent(name: &CStr) -> ! {
    eprintln!(
        "mpix-rma: the MPI library of this process has no {}. This library was built for {}; it \
         needs that MPI library, as a shared one, loaded after it.",
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
    // Skip another copy of this library, such as one linked into a program into which this one is
    // preloaded: otherwise both copies would serve the same windows.
    let followed = *FOLLOWED.get_or_init(|| look(libc::RTLD_NEXT, c"PMPIX_Get_version").is_some());
    let next = if followed { None } else { look(libc::RTLD_NEXT, name) };
    next.or_else(|| look(library()?, name)).map(<*mut c_void>::cast)
}

/// A function of the host by its name and type, if it has one.
///
/// # Safety
/// `F` is the type of that function. If `F` is a safe function, any call of it must be sound.
pub(crate) unsafe fn resolve<F: Copy>(name: &CStr) -> Option<F> {
    // SAFETY: the contract of this function.
    find(name).map(|address| unsafe { typed(address) })
}

/// As [`resolve`], for a function of any library in this process.
///
/// # Safety
/// As [`resolve`].
pub(crate) unsafe fn loaded<F: Copy>(name: &CStr) -> Option<F> {
    // SAFETY: the contract of this function.
    look(libc::RTLD_DEFAULT, name).map(|address| unsafe { typed(address.cast()) })
}

/// # Safety
/// It is the address of a function of type `F`.
unsafe fn typed<F: Copy>(address: *mut ()) -> F {
    const { assert!(size_of::<F>() == size_of::<*mut ()>()) };
    // SAFETY: `F` is the function's type (contract of this function), and as wide as an address.
    unsafe { std::mem::transmute_copy(&address) }
}

fn look(handle: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a handle of the dynamic linker, and a C string.
    let address = unsafe { libc::dlsym(handle, name.as_ptr()) };
    (!address.is_null()).then_some(address)
}

/// The host's library, as a handle of the dynamic linker.
fn library() -> Option<*mut c_void> {
    static LIBRARY: OnceLock<AtomicPtr<c_void>> = OnceLock::new();
    let open = || {
        // SAFETY: an all-zero description is a valid one.
        let mut about = unsafe { std::mem::zeroed::<libc::Dl_info>() };
        // SAFETY: the address is that of a function, and the description is written by the call.
        let known = unsafe { libc::dladdr(anchor as *const c_void, &raw mut about) } != 0
            && !about.dli_fname.is_null();
        if !known {
            return null_mut();
        }
        // SAFETY: the name is the dynamic linker's own; the library is loaded already and stays.
        unsafe { libc::dlopen(about.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD) }
    };
    let handle = LIBRARY.get_or_init(|| AtomicPtr::new(open())).load(Ordering::Relaxed);
    (!handle.is_null()).then_some(handle)
}

/// Defines the functions that `mpi.h` declares: each calls the host's function of its name.
macro_rules! host_functions {
    ($(pub fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)?;)*) => {$(
        #[inline(always)]
        pub unsafe extern "C" fn $name($($arg: $type),*) $(-> $result)? {
            type Function = unsafe extern "C" fn($($type),*) $(-> $result)?;
            unsafe extern "C" fn first($($arg: $type),*) $(-> $result)? {
                const NAME: &std::ffi::CStr =
                    $crate::mpi::abi::host::c_name(concat!(stringify!($name), "\0"));
                let address = SLOT.resolve(NAME);
                // SAFETY: the host's function of this name, which `mpi.h` declares so.
                unsafe { std::mem::transmute::<*mut (), Function>(address)($($arg),*) }
            }
            static SLOT: $crate::mpi::abi::host::Slot =
                $crate::mpi::abi::host::Slot::new(first as Function as *mut ());
            // SAFETY: the slot holds `first` or the host's function, both of this type; the caller
            // answers for the arguments.
            unsafe { std::mem::transmute::<*mut (), Function>(SLOT.address())($($arg),*) }
        }
    )*};
}
pub(crate) use host_functions;

/// A name that ends in a NUL, as a C string.
pub(crate) const fn c_name(name: &str) -> &CStr {
    match CStr::from_bytes_with_nul(name.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("a name has one NUL, at its end"),
    }
}

/// Exports calls under both their names: programs call `MPI_*`; Fortran wrappers, and tools that
/// define `MPI_*` themselves, call `PMPI_*`. The same for calls of our own (`MPIX_*`).
///
/// Both names call the same body, a function that is not exported. Neither name may call the other,
/// since a tool may define that one itself. The body must stay `#[inline(never)]`: a body that is
/// inlined into both names is not inlined into `catch_unwind`. Its arguments then go through memory
/// on each side of `catch_unwind`, which costs short calls some ten nanoseconds. `tests/header.rs`
/// checks that each call has both names, and that this library calls neither.
///
/// `else if` gives a condition on which both names go on to another function instead, by a jump
/// before anything else.
macro_rules! exports {
    ($(
        $name:ident($($arg:ident: $type:ty),* $(,)?) $(else if $condition:expr, $other:expr)?;
    )*) => {$(
        const _: () = {
            #[unsafe(export_name = stringify!($name))]
            #[allow(clippy::too_many_arguments)]
            unsafe extern "C" fn called($($arg: $type),*) -> std::ffi::c_int {
                $(if $condition {
                    return $other;
                })?
                // SAFETY: the application's arguments, passed on.
                unsafe { $name($($arg),*) }
            }
            #[unsafe(export_name = concat!("P", stringify!($name)))]
            #[allow(clippy::too_many_arguments)]
            unsafe extern "C" fn profiled($($arg: $type),*) -> std::ffi::c_int {
                $(if $condition {
                    return $other;
                })?
                // SAFETY: the application's arguments, passed on.
                unsafe { $name($($arg),*) }
            }
        };
    )*};
}
pub(crate) use exports;
