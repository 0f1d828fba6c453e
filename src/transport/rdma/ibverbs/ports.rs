//! Which device and port are taken, and which of the port's addresses.
//!
//! All ports that are active are looked at, and the first of the best kind is taken: InfiniBand;
//! Ethernet with an address that other networks can reach; Ethernet with addresses of the segment
//! alone. (A machine in a cloud often has an Ethernet port with RDMA beside its InfiniBand, and
//! either may come first.)

use std::cmp::Reverse;
use std::ffi::c_int;
use std::ptr::NonNull;

use super::super::device::DeviceError;
use super::device::{error, failure};
use super::sys::*;

/// What is asked for. Nothing: the best.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortSelection<'a> {
    /// A device's name.
    pub device: Option<&'a str>,
    /// The number of its port.
    pub port: Option<u8>,
    /// The index of the port's address.
    pub gid: Option<u8>,
    /// The port's partition key, of which the highest bit (full membership) does not count; else
    /// the first of which it is a full member.
    pub partition: Option<u16>,
}

impl<'a> PortSelection<'a> {
    /// Reads `NAME`, `NAME:PORT` or `NAME:PORT:GID`.
    ///
    /// # Errors
    /// In words.
    pub fn read(text: &'a str) -> Result<Self, DeviceError> {
        let mut parts = text.split(':');
        let device = parts.next().filter(|name| !name.is_empty());
        let mut number = |what: &str| match parts.next().map(str::parse::<u8>) {
            None => Ok(None),
            Some(Ok(number)) => Ok(Some(number)),
            Some(Err(_)) => Err(DeviceError(format!(
                "{text}: what stands for {what} is no number from 0 to 255"
            ))),
        };
        let (port, gid) = (number("the port")?, number("the GID index")?);
        if parts.next().is_some() {
            return Err(DeviceError(format!("{text}: more than NAME:PORT:GID")));
        }
        Ok(PortSelection { device, port, gid, partition: None })
    }
}

/// A port that may be used.
pub(super) struct Port {
    pub(super) number: u8,
    pub(super) attributes: ibv_port_attr,
    pub(super) gid_index: u8,
    pub(super) gid: ibv_gid,
    /// The place of its partition key.
    pub(super) partition: u16,
    rank: u8,
}

impl Port {
    pub(super) fn is_ethernet(&self) -> bool {
        self.attributes.link_layer == IBV_LINK_LAYER_ETHERNET
    }
}

/// The devices and ports that may be used, the best first; for each device that has none, why.
///
/// # Safety
/// The list has so many devices.
pub(super) unsafe fn candidates(
    library: &Library,
    schedule: *mut *mut ibv_device,
    count: usize,
    wanted: &PortSelection<'_>,
) -> (Vec<(*mut ibv_device, String, Port)>, Vec<String>) {
    let (mut found, mut reasons) = (Vec::new(), Vec::new());
    for at in 0..count {
        // SAFETY: the caller's promise.
        let device = unsafe { *schedule.add(at) };
        // SAFETY: a device of the list.
        let name = unsafe { words((library.ibv_get_device_name)(device)) };
        if wanted.device.is_some_and(|wanted| wanted != name) {
            continue;
        }
        // SAFETY: a device of the list.
        match unsafe { ports_of(library, device, &name, wanted) } {
            Ok(ports) => found.extend(ports.into_iter().map(|port| (device, name.clone(), port))),
            Err(DeviceError(reason)) => reasons.push(format!("{name}: {reason}")),
        }
    }
    // What is as good stays in the order of the list.
    found.sort_by_key(|(_, _, port)| Reverse(port.rank));
    (found, reasons)
}

/// # Safety
/// A device of the list.
unsafe fn ports_of(
    library: &Library,
    device: *mut ibv_device,
    name: &str,
    wanted: &PortSelection<'_>,
) -> Result<Vec<Port>, DeviceError> {
    // SAFETY: the caller's promise; these members are public.
    let transport = unsafe { (*device).transport_type };
    // Queues of iWARP are not connected as those of the others are, and it has neither immediates
    // nor atomics.
    if transport != IBV_TRANSPORT_IB {
        return Err(DeviceError("it is neither InfiniBand nor RoCE".into()));
    }
    // SAFETY: a device of the list; its context is closed below.
    unsafe {
        let context = NonNull::new((library.ibv_open_device)(device))
            .ok_or_else(|| failure("ibv_open_device"))?;
        let found = active(library, context, name, wanted);
        (library.ibv_close_device)(context.as_ptr());
        found
    }
}

/// What a device says of itself.
///
/// # Safety
/// The context is open.
pub(super) unsafe fn abilities(
    library: &Library,
    context: NonNull<ibv_context>,
) -> Result<ibv_device_attr, DeviceError> {
    // SAFETY: numbers, any of which are valid.
    let mut attributes: ibv_device_attr = unsafe { std::mem::zeroed() };
    // SAFETY: an open context, and room for the answer.
    let code = unsafe { (library.ibv_query_device)(context.as_ptr(), &raw mut attributes) };
    if code == 0 { Ok(attributes) } else { Err(error("ibv_query_device", code)) }
}

/// The active ports of a device.
///
/// # Safety
/// The context is open.
unsafe fn active(
    library: &Library,
    context: NonNull<ibv_context>,
    name: &str,
    wanted: &PortSelection<'_>,
) -> Result<Vec<Port>, DeviceError> {
    // SAFETY: the caller's promise.
    let attributes = unsafe { abilities(library, context) }?;
    let mut reason = DeviceError("it has no ports".into());
    let mut found = Vec::new();
    for number in wanted.port.map_or(1..=attributes.phys_port_cnt, |port| port..=port) {
        // SAFETY: the caller's promise.
        match unsafe { look_at(library, context, (name, number), wanted) } {
            Ok(port) => found.push(port),
            Err(other) => reason = other,
        }
    }
    if found.is_empty() { Err(reason) } else { Ok(found) }
}

/// # Safety
/// The context is open.
unsafe fn look_at(
    library: &Library,
    context: NonNull<ibv_context>,
    (name, number): (&str, u8),
    wanted: &PortSelection<'_>,
) -> Result<Port, DeviceError> {
    // SAFETY: numbers, which are written by the call.
    let mut attributes: ibv_port_attr = unsafe { std::mem::zeroed() };
    // SAFETY: an open context.
    let code = unsafe { (library.ibv_query_port)(context.as_ptr(), number, &raw mut attributes) };
    if code != 0 {
        return Err(error(&format!("port {number}"), code));
    }
    if attributes.state != IBV_PORT_ACTIVE {
        return Err(DeviceError(format!("port {number} is not active")));
    }
    let ethernet = attributes.link_layer == IBV_LINK_LAYER_ETHERNET;
    let indices = wanted
        .gid
        .map_or(0..attributes.gid_tbl_len.min(256), |gid| c_int::from(gid)..c_int::from(gid) + 1);
    // SAFETY: an open context.
    let gids = indices.filter_map(|index| unsafe { gid(library, context, number, index) });
    let best = if ethernet {
        gids.max_by_key(|(index, gid)| (quality(name, number, *index), reach(gid), *index))
    } else {
        gids.min_by_key(|(index, _)| *index)
    };
    let (gid_index, gid) = match (best, wanted.gid) {
        (Some((index, gid)), _) => (index as u8, gid),
        (None, Some(index)) => {
            return Err(DeviceError(format!("port {number} has no address with index {index}")));
        }
        (None, None) if ethernet => {
            return Err(DeviceError(format!("port {number} has no address")));
        }
        (None, None) => (0, ibv_gid::default()),
    };
    let rank = match ethernet {
        true => u8::from(reach(&gid) > 0),
        false => 2,
    };
    // SAFETY: an open context.
    let partition = unsafe { partition(library, context, number, &attributes, wanted.partition) }?;
    Ok(Port { number, attributes, gid_index, gid, partition, rank })
}

/// How far an address of Ethernet reaches: RoCE v2 over IPv4 goes through any network that IP does;
/// link-local ones stay on a segment.
fn reach(gid: &ibv_gid) -> u8 {
    match gid.raw {
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, ..] => 2,
        [0xfe, 0x80, ..] => 0,
        _ => 1,
    }
}

/// What the kernel says of an address: whether it is RoCE v2, which is routed, and of an interface
/// that this process can use. (In a container the table has those of others, too.)
fn quality(name: &str, port: u8, index: c_int) -> (bool, bool) {
    let said = |what: &str| {
        let file = format!("/sys/class/infiniband/{name}/ports/{port}/gid_attrs/{what}/{index}");
        std::fs::read_to_string(file).unwrap_or_default().trim().to_owned()
    };
    let interface = said("ndevs");
    let is_here =
        !interface.is_empty() && std::path::Path::new("/sys/class/net").join(&interface).exists();
    (is_here, said("types") == "RoCE v2")
}

/// A global address of a port, if there is one at this index.
///
/// # Safety
/// The context is open.
unsafe fn gid(
    library: &Library,
    context: NonNull<ibv_context>,
    port: u8,
    index: c_int,
) -> Option<(c_int, ibv_gid)> {
    let mut gid = ibv_gid::default();
    // SAFETY: the caller's promise.
    let code = unsafe { (library.ibv_query_gid)(context.as_ptr(), port, index, &raw mut gid) };
    (code == 0 && gid.raw != [0; 16]).then_some((index, gid))
}

/// The place of the partition key that is to be used. Of two members of a partition one must be a
/// full one to talk to the other.
///
/// # Safety
/// The context is open.
unsafe fn partition(
    library: &Library,
    context: NonNull<ibv_context>,
    port: u8,
    attributes: &ibv_port_attr,
    wanted: Option<u16>,
) -> Result<u16, DeviceError> {
    const FULL: u16 = 0x8000;
    let key = |index: &u16| {
        let mut key = 0_u16;
        // SAFETY: the caller's promise.
        let code = unsafe {
            (library.ibv_query_pkey)(context.as_ptr(), port, c_int::from(*index), &raw mut key)
        };
        if code == 0 { u16::from_be(key) } else { 0 }
    };
    let mut indices = 0..attributes.pkey_tbl_len;
    match wanted {
        Some(wanted) => indices
            .find(|index| key(index) & !FULL == wanted & !FULL && key(index) != 0)
            .ok_or_else(|| DeviceError(format!("port {port} has no partition key {wanted:#06x}"))),
        // Ethernet has one, for form's sake.
        None => Ok(indices.find(|index| key(index) & FULL != 0).unwrap_or(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_may_be_named_with_port_and_address() {
        let none = PortSelection::default();
        assert_eq!(
            PortSelection::read("mlx5_0"),
            Ok(PortSelection { device: Some("mlx5_0"), ..none })
        );
        assert_eq!(
            PortSelection::read("mlx5_0:2"),
            Ok(PortSelection { device: Some("mlx5_0"), port: Some(2), ..none })
        );
        assert_eq!(
            PortSelection::read("mlx5_0:1:3"),
            Ok(PortSelection { device: Some("mlx5_0"), port: Some(1), gid: Some(3), ..none })
        );
        assert_eq!(PortSelection::read(""), Ok(none));
        for wrong in ["mlx5_0:", "mlx5_0:x", "mlx5_0:1:256", "mlx5_0:1:2:3"] {
            let Err(DeviceError(reason)) = PortSelection::read(wrong) else {
                panic!("{wrong} was taken")
            };
            assert!(reason.starts_with(wrong), "{reason}");
        }
    }

    #[test]
    fn an_address_that_goes_through_networks_is_better() {
        let gid = |first: [u8; 2], last: [u8; 6]| {
            let mut raw = [0; 16];
            raw[..2].copy_from_slice(&first);
            raw[10..].copy_from_slice(&last);
            reach(&ibv_gid { raw })
        };
        assert_eq!(gid([0, 0], [0xff, 0xff, 10, 0, 0, 1]), 2);
        assert_eq!(gid([0x20, 1], [0, 0, 0, 0, 0, 1]), 1);
        assert_eq!(gid([0xfe, 0x80], [0, 0, 0, 0, 0, 1]), 0);
    }
}
