//! The RDMA device of this process, for all its windows: opened when a window first wants it.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use crate::engine::Rank;
use crate::transport::host_mpi::members::Table;
use crate::transport::verbs::ability::plan;
use crate::transport::verbs::device::Device;
use crate::transport::verbs::fabric::Fabric;
use crate::transport::verbs::hello::Name;
use crate::transport::verbs::nic::Failure;
use crate::transport::verbs::ports::Wanted;
use crate::transport::verbs::{Direct, Own, Shared};

/// What came of opening it.
enum Opened {
    NotYet,
    Here(Shared),
    /// There is none; the log has said why.
    Absent,
}

static FABRIC: Mutex<Opened> = Mutex::new(Opened::NotYet);

/// Queue pairs that the process may have.
static MOST: AtomicU32 = AtomicU32::new(0);

/// From the setting.
pub(super) fn set_most(queues: u32) {
    MOST.store(queues, Relaxed);
}

/// What came of looking for the device, if that has been done: it, or nothing.
pub(super) fn opened() -> Option<Option<Shared>> {
    match &*FABRIC.lock().unwrap_or_else(PoisonError::into_inner) {
        Opened::NotYet => None,
        Opened::Here(fabric) => Some(Some(Arc::clone(fabric))),
        Opened::Absent => Some(None),
    }
}

/// The device, if there is one. `forced`: who wants it will not be content without.
pub(super) fn fabric(forced: bool) -> Option<Shared> {
    let mut opened = FABRIC.lock().unwrap_or_else(PoisonError::into_inner);
    if matches!(*opened, Opened::NotYet) {
        let wanted = given("MPIX_RMA_IB_DEVICE");
        *opened = match open(wanted.as_deref().unwrap_or_default()) {
            Ok(fabric) => {
                log::info!("verbs: {}", fabric.describe());
                Opened::Here(Arc::new(Mutex::new(fabric)))
            }
            Err(Failure(reason)) if forced || wanted.is_some() => {
                log::warn!("peers are reached by messages, not by RDMA: {reason}");
                Opened::Absent
            }
            Err(Failure(reason)) => {
                log::info!("peers are reached by messages, not by RDMA: {reason}");
                Opened::Absent
            }
        };
    }
    match &*opened {
        Opened::Here(fabric) => Some(Arc::clone(fabric)),
        _ => None,
    }
}

/// What a setting has, if it is not empty.
fn given(name: &str) -> Option<String> {
    super::init::look_up(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn open(wanted: &str) -> Result<Fabric, Failure> {
    let mut wanted = Wanted::read(wanted)?;
    if let Some(text) = given("MPIX_RMA_IB_PKEY") {
        let key = u16::from_str_radix(text.trim_start_matches("0x"), 16);
        wanted.partition = Some(
            key.map_err(|_| Failure(format!("MPIX_RMA_IB_PKEY: {text:?} is no partition key")))?,
        );
    }
    let mut fabric = Fabric::new(Box::new(Device::open(&wanted)?), name()?)?;
    if let Some(text) = super::init::look_up("MPIX_RMA_IB_CACHE") {
        match text.trim().parse::<u64>() {
            Ok(mebibytes) => fabric.keep_registrations(mebibytes.saturating_mul(1 << 20)),
            Err(_) => log::warn!("MPIX_RMA_IB_CACHE: {text:?} is no number of MiB"),
        }
    }
    fabric.limit_queues(MOST.load(Relaxed));
    Ok(fabric)
}

/// A name that no other process has.
fn name() -> Result<Name, Failure> {
    let mut name = [0_u64; 2];
    // SAFETY: room for so many bytes.
    let got = unsafe { libc::getrandom(name.as_mut_ptr().cast(), size_of_val(&name), 0) };
    if got == size_of_val(&name) as isize {
        Ok(Name(name))
    } else {
        Err(Failure(format!("getrandom: {}", std::io::Error::last_os_error())))
    }
}

/// The part of a process, of so many, of a new window, if it and another process have a device.
/// `Err`: it failed, and the log has said why.
///
/// # Safety
/// The window's memory must stay mapped until the part is ended.
pub(super) unsafe fn direct(
    me: (Rank, u32),
    fabric: Option<&Shared>,
    abilities: &Table<u8>,
    own: Own,
) -> Result<Option<Direct>, ()> {
    let Some(fabric) = fabric else { return Ok(None) };
    let (able, domain) = plan(abilities.of(me.0), abilities);
    if able != abilities.map(|ability| ability > 0) {
        log::info!(
            "verbs: processes with a device on the other kind of link layer (InfiniBand, Ethernet) are reached by messages"
        );
    }
    // SAFETY: the caller's promise.
    match unsafe { Direct::new(fabric, me, able, domain, own) } {
        Ok(direct) => Ok(Some(direct)),
        Err(Failure(reason)) => {
            log::warn!("a window does without RDMA: {reason}");
            Err(())
        }
    }
}

/// Gives the device back; its windows are gone.
pub(super) fn close() {
    *FABRIC.lock().unwrap_or_else(PoisonError::into_inner) = Opened::NotYet;
}
