//! The RDMA context of this process, for all its windows: opened when a window first needs it.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use crate::engine::Rank;
use crate::runtime::enter;
use crate::transport::guarded::Guarded;
use crate::transport::members::RankTable;
use crate::transport::rdma::capabilities::plan;
use crate::transport::rdma::context::Context;
use crate::transport::rdma::device::DeviceError;
use crate::transport::rdma::handshake::ProcessId;
use crate::transport::rdma::ibverbs::{IbvDevice, PortSelection};
use crate::transport::rdma::{Endpoint, SharedContext, WindowMemory};

/// The context, once somebody has looked for a device.
enum Opened {
    NotYet,
    Open(SharedContext),
    /// There is no device; the log has said why.
    Absent,
}

static CONTEXT: Mutex<Opened> = Mutex::new(Opened::NotYet);

/// The limit of queue pairs, from the settings.
static MAX_QPS: AtomicU32 = AtomicU32::new(0);

/// Sets how many queue pairs the process may have.
pub(crate) fn set_max_qps(limit: u32) {
    MAX_QPS.store(limit, Relaxed);
}

/// The context, or `None` without a device. Outer `None`: nobody has looked for a device yet.
pub(crate) fn opened() -> Option<Option<SharedContext>> {
    match &*CONTEXT.lock().unwrap_or_else(PoisonError::into_inner) {
        Opened::NotYet => None,
        Opened::Open(context) => Some(Some(Arc::clone(context))),
        Opened::Absent => Some(None),
    }
}

/// Opens the context at the first call. `None`: there is no usable device, which is a warning if
/// the user `required` verbs or named a device.
pub(crate) fn open_context(required: bool) -> Option<SharedContext> {
    let mut opened = CONTEXT.lock().unwrap_or_else(PoisonError::into_inner);
    if matches!(*opened, Opened::NotYet) {
        let name = setting("MPIX_RMA_IB_DEVICE");
        *opened = match open(name.as_deref().unwrap_or_default()) {
            Ok(context) => {
                log::info!("verbs: {}", context.describe());
                // SAFETY: contexts are used under the runtime's guard only.
                let context = Arc::new(unsafe { Guarded::new(context) });
                enter().network.set_rdma(Some(Arc::clone(&context)));
                Opened::Open(context)
            }
            Err(reason) => {
                let warn = required || name.is_some();
                log::log!(
                    if warn { log::Level::Warn } else { log::Level::Info },
                    "peers are reached by messages, not by RDMA: {reason}"
                );
                Opened::Absent
            }
        };
    }
    match &*opened {
        Opened::Open(context) => Some(Arc::clone(context)),
        _ => None,
    }
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

/// A random id, which no other process has.
fn process_id() -> ProcessId {
    // Its keys are random.
    let half = || RandomState::new().build_hasher().finish();
    ProcessId([half(), half()])
}

/// Creates the endpoint of process `me` in a new window. `None`: this process has no device. `Err`:
/// it failed, and the log has said why.
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

/// Drops the context. Its windows must be gone.
pub(crate) fn close() {
    enter().network.set_rdma(None);
    *CONTEXT.lock().unwrap_or_else(PoisonError::into_inner) = Opened::NotYet;
}
