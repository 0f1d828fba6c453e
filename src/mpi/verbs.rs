//! The RDMA device of this process, for all its windows: opened when a window first wants it.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use crate::engine::Rank;
use crate::transport::host_mpi::members::Table;
use crate::transport::rdma::capabilities::plan;
use crate::transport::rdma::context::Context;
use crate::transport::rdma::device::DeviceError;
use crate::transport::rdma::handshake::ProcessId;
use crate::transport::rdma::ibverbs::IbvDevice;
use crate::transport::rdma::ibverbs::PortSelection;
use crate::transport::rdma::{Endpoint, SharedContext, WindowMemory};

/// What came of opening it.
enum Opened {
    NotYet,
    Here(SharedContext),
    /// There is none; the log has said why.
    Absent,
}

static CONTEXT: Mutex<Opened> = Mutex::new(Opened::NotYet);

/// Queue pairs that the process may have.
static MAX_QPS: AtomicU32 = AtomicU32::new(0);

/// From the setting.
pub(super) fn set_max_qps(queues: u32) {
    MAX_QPS.store(queues, Relaxed);
}

/// What came of looking for the device, if that has been done: it, or nothing.
pub(super) fn opened() -> Option<Option<SharedContext>> {
    match &*CONTEXT.lock().unwrap_or_else(PoisonError::into_inner) {
        Opened::NotYet => None,
        Opened::Here(context) => Some(Some(Arc::clone(context))),
        Opened::Absent => Some(None),
    }
}

/// The device, if there is one. `forced`: who wants it will not be content without.
pub(super) fn open_context(forced: bool) -> Option<SharedContext> {
    let mut opened = CONTEXT.lock().unwrap_or_else(PoisonError::into_inner);
    if matches!(*opened, Opened::NotYet) {
        let wanted = given("MPIX_RMA_IB_DEVICE");
        *opened = match open(wanted.as_deref().unwrap_or_default()) {
            Ok(context) => {
                log::info!("verbs: {}", context.describe());
                Opened::Here(Arc::new(Mutex::new(context)))
            }
            Err(DeviceError(reason)) if forced || wanted.is_some() => {
                log::warn!("peers are reached by messages, not by RDMA: {reason}");
                Opened::Absent
            }
            Err(DeviceError(reason)) => {
                log::info!("peers are reached by messages, not by RDMA: {reason}");
                Opened::Absent
            }
        };
    }
    match &*opened {
        Opened::Here(context) => Some(Arc::clone(context)),
        _ => None,
    }
}

/// What a setting has, if it is not empty.
fn given(name: &str) -> Option<String> {
    super::init::look_up(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn open(wanted: &str) -> Result<Context, DeviceError> {
    let mut wanted = PortSelection::read(wanted)?;
    if let Some(text) = given("MPIX_RMA_IB_PKEY") {
        let key = u16::from_str_radix(text.trim_start_matches("0x"), 16);
        wanted.partition =
            Some(key.map_err(|_| {
                DeviceError(format!("MPIX_RMA_IB_PKEY: {text:?} is no partition key"))
            })?);
    }
    let mut context = Context::new(Box::new(IbvDevice::open(&wanted)?), name()?)?;
    if let Some(text) = super::init::look_up("MPIX_RMA_IB_CACHE") {
        match text.trim().parse::<u64>() {
            Ok(mebibytes) => context.set_registration_bound(mebibytes.saturating_mul(1 << 20)),
            Err(_) => log::warn!("MPIX_RMA_IB_CACHE: {text:?} is no number of MiB"),
        }
    }
    context.set_max_qps(MAX_QPS.load(Relaxed));
    Ok(context)
}

/// A name that no other process has.
fn name() -> Result<ProcessId, DeviceError> {
    let mut name = [0_u64; 2];
    // SAFETY: room for so many bytes.
    let got = unsafe { libc::getrandom(name.as_mut_ptr().cast(), size_of_val(&name), 0) };
    if got == size_of_val(&name) as isize {
        Ok(ProcessId(name))
    } else {
        Err(DeviceError(format!("getrandom: {}", std::io::Error::last_os_error())))
    }
}

/// The part of a process, of so many, of a new window, if it and another process have a device.
/// `Err`: it failed, and the log has said why.
///
/// # Safety
/// The window's memory must stay mapped until the part is ended.
pub(super) unsafe fn create_endpoint(
    me: (Rank, u32),
    context: Option<&SharedContext>,
    abilities: &Table<u8>,
    own: WindowMemory,
) -> Result<Option<Endpoint>, ()> {
    let Some(context) = context else { return Ok(None) };
    let (able, domain) = plan(abilities.of(me.0), abilities);
    if able != abilities.map(|ability| ability > 0) {
        log::info!(
            "verbs: processes with a device on the other kind of link layer (InfiniBand, Ethernet) are reached by messages"
        );
    }
    // SAFETY: the caller's promise.
    match unsafe { Endpoint::new(context, me, able, domain, own) } {
        Ok(direct) => Ok(Some(direct)),
        Err(DeviceError(reason)) => {
            log::warn!("a window does without RDMA: {reason}");
            Err(())
        }
    }
}

/// Gives the device back; its windows are gone.
pub(super) fn close() {
    *CONTEXT.lock().unwrap_or_else(PoisonError::into_inner) = Opened::NotYet;
}
