//! The RDMA context of this process, which all its windows share. The first window that needs it
//! opens it.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use crate::engine::Rank;
use crate::runtime::enter;
use crate::runtime::process::guard_flag;
use crate::transport::guarded::Guarded;
use crate::transport::members::RankTable;
use crate::transport::rdma::capabilities::{advertise, plan};
use crate::transport::rdma::context::Context;
use crate::transport::rdma::device::DeviceError;
use crate::transport::rdma::handshake::ProcessId;
use crate::transport::rdma::ibverbs::{IbvDevice, PortSelection};
use crate::transport::rdma::{Endpoint, SharedContext, WindowMemory};

/// The context. `None`: no window has looked for a device yet; `Some(None)`: there is no usable
/// device, and the log has said why.
static CONTEXT: Mutex<Option<Option<SharedContext>>> = Mutex::new(None);

/// The limit of queue pairs, from the settings.
static MAX_QPS: AtomicU32 = AtomicU32::new(0);

/// Sets how many queue pairs the process may have. Call it before the context is opened.
pub(crate) fn set_max_qps(limit: u32) {
    MAX_QPS.store(limit, Relaxed);
}

/// The context, or `None` without a device. Outer `None`: no window has looked for a device yet.
pub(crate) fn opened() -> Option<Option<SharedContext>> {
    CONTEXT.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Opens the context at the first call. `None`: there is no usable device, which is a warning if
/// the user `required` verbs or named a device.
pub(crate) fn open_context(required: bool) -> Option<SharedContext> {
    let mut context = CONTEXT.lock().unwrap_or_else(PoisonError::into_inner);
    let look = || {
        let name = setting("MPIX_RMA_IB_DEVICE");
        match open(name.as_deref().unwrap_or_default()) {
            Ok(context) => {
                log::info!("verbs: {}", context.describe());
                // SAFETY: contexts are used under the runtime's guard only.
                let context = Arc::new(unsafe { Guarded::new(context, guard_flag()) });
                enter().network.set_rdma(Some(Arc::clone(&context)));
                Some(context)
            }
            Err(reason) => {
                let warn = required || name.is_some();
                log::log!(
                    if warn { log::Level::Warn } else { log::Level::Info },
                    "peers are reached by messages, not by RDMA: {reason}"
                );
                None
            }
        }
    };
    context.get_or_insert_with(look).clone()
}

/// The capability byte that this process advertises for a new window, in which all accumulates are
/// of single elements if `single_element` is set.
pub(super) fn capability(context: Option<&SharedContext>, single_element: bool) -> u8 {
    let _guard = enter();
    advertise(context, single_element)
}

/// The value of a setting, unless it is empty.
fn setting(name: &str) -> Option<String> {
    crate::mpi::abi::world::look_up(name)
        .map(|text| text.trim().to_owned())
        .filter(|text| !text.is_empty())
}

fn open(device: &str) -> Result<Context, DeviceError> {
    let mut selection = PortSelection::read(device)?;
    if let Some(text) = setting("MPIX_RMA_IB_PKEY") {
        let key = u16::from_str_radix(text.trim_start_matches("0x"), 16);
        selection.partition = Some(key.map_err(|_| DeviceError::Setting {
            text: format!("MPIX_RMA_IB_PKEY={text}"),
            problem: "invalid partition key (16 bits, hexadecimal)",
        })?);
    }
    let mut context = Context::new(Box::new(IbvDevice::open(&selection)?), process_id())?;
    if let Some(text) = crate::mpi::abi::world::look_up("MPIX_RMA_IB_CACHE") {
        match text.trim().parse::<u64>() {
            Ok(mebibytes) => context.set_registration_bound(mebibytes.saturating_mul(1 << 20)),
            Err(_) => log::warn!("MPIX_RMA_IB_CACHE={text}: invalid number of MiB"),
        }
    }
    context.set_max_qps(MAX_QPS.load(Relaxed));
    Ok(context)
}

/// A random id, different in each process.
fn process_id() -> ProcessId {
    // Each `RandomState` has random keys, so the hash of nothing is random.
    let half = || RandomState::new().build_hasher().finish();
    ProcessId([half(), half()])
}

/// Creates the endpoint of process `me` in a new window. `None`: this process has no device. `Err`:
/// the endpoint could not be created, and the log says why.
///
/// # Safety
/// The window's memory must stay mapped until the endpoint is ended.
pub(crate) unsafe fn create_endpoint(
    me: Rank,
    context: Option<&SharedContext>,
    capabilities: &RankTable<u8>,
    own: WindowMemory,
) -> Result<Option<Endpoint>, ()> {
    let Some(context) = context else { return Ok(None) };
    let (reachable, atomics) = plan(capabilities.of(me), capabilities);
    if reachable != capabilities.map(|capability| capability > 0) {
        log::info!(
            "verbs: processes with a device on the other kind of link layer (InfiniBand, Ethernet) \
             are reached by messages"
        );
    }
    let _guard = enter();
    // SAFETY: the window's memory stays mapped until `end` (contract of this function).
    match unsafe { Endpoint::new(context, me, reachable, atomics, own) } {
        Ok(endpoint) => Ok(Some(endpoint)),
        Err(reason) => {
            log::warn!("RDMA is disabled for a window: {reason}");
            Err(())
        }
    }
}

/// Drops the context. All its windows must have been freed.
pub(crate) fn close() {
    enter().network.set_rdma(None);
    *CONTEXT.lock().unwrap_or_else(PoisonError::into_inner) = None;
}
