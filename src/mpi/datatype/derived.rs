//! The layouts of derived datatypes for communication calls. A datatype is flattened at its first
//! use, and the result is cached as its attribute.
//!
//! Layouts are reference-counted: a recorded operation keeps its own after the datatype is freed.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::mpi::abi::error::Fault;
use crate::mpi::abi::host_calls;
use crate::mpi::abi::sys::*;
use crate::mpi::datatype::flatten::{Elements, View, element, flatten};
use crate::mpi::datatype::{Predefined, predefined};
use crate::mpi::request::comm_or_self;
use crate::transport::datatype::Layout;

/// What communication calls need to know of a datatype.
#[derive(Debug)]
pub(crate) struct Datatype {
    /// The layout of its data.
    pub(crate) data: Arc<Layout>,
    /// The layout of its elements, which differs for pairs with padding inside.
    pub(crate) units: Arc<Layout>,
    pub(crate) elements: Elements,
}

impl Datatype {
    fn new(
        (data, elements): (Layout, Elements),
        units: impl FnOnce() -> Result<Layout, Fault>,
    ) -> Result<Self, Fault> {
        let data = Arc::new(data);
        let units = match elements {
            Elements::Alike(predefined) if predefined.size != predefined.span => Arc::new(units()?),
            _ => Arc::clone(&data),
        };
        Ok(Datatype { data, units, elements })
    }
}

/// The attribute's keyval plus one; 0 while there is none.
static KEY: AtomicI64 = AtomicI64::new(0);

fn key() -> c_int {
    KEY.load(Ordering::Relaxed).wrapping_sub(1) as c_int
}

/// Makes the attribute's keyval, at the first derived datatype.
fn prepare() {
    if KEY.load(Ordering::Relaxed) == 0 {
        let mut key = MPI_KEYVAL_INVALID;
        // SAFETY: the callbacks live as long as the library; the place is ours.
        let status = unsafe {
            PMPI_Type_create_keyval(
                Some(on_copy),
                Some(on_delete),
                &raw mut key,
                std::ptr::null_mut(),
            )
        };
        if status == MPI_SUCCESS {
            KEY.store(i64::from(key) + 1, Ordering::Relaxed);
        }
    }
}

/// Frees the keyval. Call it before MPI is finalized.
pub(crate) fn release() {
    if KEY.load(Ordering::Relaxed) != 0 {
        // The host still deletes the attributes of live datatypes.
        host_calls::type_free_keyval(&mut key());
        KEY.store(0, Ordering::Relaxed);
    }
}

/// A duplicate shares the layouts of the original.
unsafe extern "C" fn on_copy(
    _: MPI_Datatype,
    _: c_int,
    _: *mut c_void,
    value: *mut c_void,
    copy: *mut c_void,
    flag: *mut c_int,
) -> c_int {
    // SAFETY: the attribute's value is a live `Arc` of `keep`; the host passes memory for the copy
    // and the flag.
    unsafe {
        Arc::increment_strong_count(value.cast::<Datatype>().cast_const());
        copy.cast::<*mut c_void>().write(value);
        flag.write(1);
    }
    MPI_SUCCESS
}

unsafe extern "C" fn on_delete(
    _: MPI_Datatype,
    _: c_int,
    value: *mut c_void,
    _: *mut c_void,
) -> c_int {
    // SAFETY: each attribute holds one reference of the `Arc`, and is deleted once.
    unsafe { Arc::decrement_strong_count(value.cast::<Datatype>().cast_const()) };
    MPI_SUCCESS
}

/// The layouts of a datatype that is not null. They may be used until the application's call
/// returns: MPI forbids freeing the datatype meanwhile.
///
/// # Errors
/// The datatype is invalid or not committed, or the host does not return its constructor.
pub(crate) fn known<'a>(datatype: MPI_Datatype) -> Result<&'a Datatype, Fault> {
    if let Some(predefined) = predefined(datatype) {
        return Ok(known_predefined(predefined));
    }
    if !is_datatype(datatype) {
        return Err(Fault::new(MPI_ERR_TYPE, "a datatype is invalid or has been freed"));
    }
    if KEY.load(Ordering::Relaxed) == 0 {
        return keep(datatype);
    }
    let (mut value, mut found) = (std::ptr::null_mut::<c_void>(), 0);
    // SAFETY: the handle is a datatype; the places are ours.
    let status =
        unsafe { PMPI_Type_get_attr(datatype, key(), (&raw mut value).cast(), &raw mut found) };
    if status == MPI_SUCCESS && found != 0 && !value.is_null() {
        // SAFETY: the value is an `Arc` of `keep`, which lives as long as the datatype.
        return Ok(unsafe { &*value.cast::<Datatype>() });
    }
    keep(datatype)
}

/// Flattens a datatype and caches the result as its attribute.
#[cold]
fn keep<'a>(datatype: MPI_Datatype) -> Result<&'a Datatype, Fault> {
    prepare();
    if !is_committed(datatype) {
        return Err(Fault::new(MPI_ERR_TYPE, "a datatype is not committed"));
    }
    let made =
        Datatype::new(flatten(datatype, View::Data)?, || Ok(flatten(datatype, View::Elements)?.0))?;
    let value = Arc::into_raw(Arc::new(made));
    // If `prepare` got no keyval, this call fails and the layout leaks. No host has been seen to
    // refuse a keyval.
    // SAFETY: the handle is a datatype, the keyval ours; the attribute takes over the reference.
    // Calls on our windows hold the runtime's guard, so no other thread caches the layout of the
    // same datatype at the same time.
    let status = unsafe { PMPI_Type_set_attr(datatype, key(), value.cast_mut().cast()) };
    if status != MPI_SUCCESS {
        log::debug!("the layout of a datatype could not be cached (error {status})");
    }
    // SAFETY: the attribute holds a reference as long as the datatype exists; without an attribute
    // the reference is never released.
    Ok(unsafe { &*value })
}

/// True unless the host refuses to pack zero items because the datatype is not committed.
pub(crate) fn is_committed(datatype: MPI_Datatype) -> bool {
    let (mut nothing, mut position) = ([0u8; 16], 0);
    // Errors return on this communicator.
    host_calls::pack_none(&mut nothing, datatype, &mut position, comm_or_self()) == MPI_SUCCESS
}

/// True unless the host reports an invalid handle. The call that checks it takes a communicator on
/// which errors return, since MPICH raises the errors of calls without a communicator on
/// `MPI_COMM_WORLD`, whose handler is the application's. The check is skipped for the datatype that
/// was checked last, and on Open MPI, which cannot detect invalid handles.
#[inline]
fn is_datatype(datatype: MPI_Datatype) -> bool {
    static LAST: AtomicU64 = AtomicU64::new(0);
    if cfg!(mpi_host = "openmpi") || LAST.load(Ordering::Relaxed) == datatype.key() {
        return true;
    }
    let mut size = 0;
    let known = host_calls::pack_size_of_none(datatype, comm_or_self(), &mut size) == MPI_SUCCESS;
    if known {
        LAST.store(datatype.key(), Ordering::Relaxed);
    }
    known
}

/// The layouts of a predefined datatype.
fn known_predefined(predefined: &'static Predefined) -> &'static Datatype {
    static KNOWN: [OnceLock<Datatype>; 256] = [const { OnceLock::new() }; 256];
    KNOWN[usize::from(predefined.element.0)].get_or_init(|| {
        let data = (element(predefined, View::Data), Elements::Alike(predefined));
        Datatype::new(data, || Ok(element(predefined, View::Elements)))
            .expect("a predefined datatype has a layout")
    })
}
