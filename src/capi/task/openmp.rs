//! The OpenMP runtime in this process, found at run time.

use std::sync::OnceLock;

use crate::mpi::abi::host::loaded;

/// `omp_event_handle_t` of gcc's and clang's OpenMP: an enumeration with the values of a
/// `uintptr_t`.
pub(super) type Event = usize;
type FulfillEvent = unsafe extern "C" fn(Event);

fn fulfill_event() -> Option<FulfillEvent> {
    static FOUND: OnceLock<Option<FulfillEvent>> = OnceLock::new();
    // SAFETY: OpenMP declares the function so.
    *FOUND.get_or_init(|| unsafe { loaded(c"omp_fulfill_event") })
}

/// Whether there is a runtime whose tasks can detach.
pub(super) fn is_there() -> bool {
    fulfill_event().is_some()
}

/// Fulfils an event.
///
/// # Safety
/// It is the event of a task, and not fulfilled yet.
pub(super) unsafe fn fulfill(event: Event) {
    if let Some(fulfill_event) = fulfill_event() {
        // SAFETY: the contract of this function.
        unsafe { fulfill_event(event) };
    }
}
