//! Selection of device, port, GID and partition key.
//!
//! Candidates are the active ports of all devices. InfiniBand comes first, then Ethernet with a
//! routable address, then Ethernet with link-local addresses only. The order of the device list
//! does not decide, because machines in clouds often have an RDMA-capable Ethernet port beside
//! InfiniBand.

use std::cmp::Reverse;
use std::ffi::c_int;

use super::super::device::{DeviceError, PortAddress, PortError};
use super::objects::{DeviceList, OpenDevice};
use super::sys::*;

/// The user's choice of device, port, GID and partition key. `None` leaves a choice to the library.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortSelection<'a> {
    /// Device name.
    pub device: Option<&'a str>,
    /// Port number.
    pub port: Option<u8>,
    /// Index in the port's GID table.
    pub gid: Option<u8>,
    /// Partition key, compared without the membership bit. The default is the first one of which
    /// the port is a full member.
    pub partition: Option<u16>,
}

impl<'a> PortSelection<'a> {
    /// Parses `NAME`, `NAME:PORT` or `NAME:PORT:GID`.
    ///
    /// # Errors
    /// A number is out of range, or there are more parts.
    pub fn read(text: &'a str) -> Result<Self, DeviceError> {
        let wrong = |problem| DeviceError::Setting { text: text.to_owned(), problem };
        let mut parts = text.split(':');
        let device = parts.next().filter(|name| !name.is_empty());
        let mut number = |problem| match parts.next().map(str::parse::<u8>) {
            None => Ok(None),
            Some(Ok(number)) => Ok(Some(number)),
            Some(Err(_)) => Err(wrong(problem)),
        };
        let port = number("invalid port number (0 to 255)")?;
        let gid = number("invalid GID index (0 to 255)")?;
        if parts.next().is_some() {
            return Err(wrong("expected NAME:PORT:GID"));
        }
        Ok(PortSelection { device, port, gid, partition: None })
    }
}

/// A usable port of an open device.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) device: OpenDevice,
    /// Name of the device.
    pub(super) name: String,
    pub(super) number: u8,
    pub(super) attributes: ibv_port_attr,
    pub(super) gid_index: u8,
    pub(super) gid: ibv_gid,
    /// Index in the port's table of partition keys.
    pub(super) pkey_index: u16,
    /// The partition key; 0 on Ethernet.
    pub(super) partition: u16,
    /// Higher is better.
    rank: u8,
}

impl Port {
    pub(super) fn is_ethernet(&self) -> bool {
        self.attributes.link_layer == IBV_LINK_LAYER_ETHERNET
    }

    /// The address. `depth`: reads and atomics that the device serves on one queue pair.
    pub(super) fn address(&self, depth: u8) -> PortAddress {
        PortAddress {
            lid: self.attributes.lid,
            mtu: self.attributes.active_mtu as u8,
            depth,
            gid: self.gid.raw,
            partition: self.partition,
        }
    }
}

/// Usable ports, best first; and why other devices have none.
pub(super) type Candidates = (Vec<Port>, Vec<(String, DeviceError)>);

pub(super) fn candidates(
    library: &Library,
    list: &DeviceList,
    wanted: &PortSelection<'_>,
) -> Candidates {
    let (mut found, mut reasons) = (Vec::new(), Vec::new());
    for index in 0..list.len() {
        let name = list.name(index);
        if wanted.device.is_some_and(|wanted| wanted != name) {
            continue;
        }
        match ports_of(library, list, index, &name, wanted) {
            Ok(ports) => found.extend(ports),
            Err(reason) => reasons.push((name, reason)),
        }
    }
    // The sort is stable: equally good ports keep the order of the list.
    found.sort_by_key(|port| Reverse(port.rank));
    (found, reasons)
}

fn ports_of(
    library: &Library,
    list: &DeviceList,
    index: usize,
    name: &str,
    wanted: &PortSelection<'_>,
) -> Result<Vec<Port>, DeviceError> {
    // iWARP connects in another way, and has neither immediates nor atomics.
    if list.transport_type(index) != IBV_TRANSPORT_IB {
        return Err(DeviceError::WrongTransport);
    }
    let device = list.open(index)?;
    let ports = library.query_device(&device)?.phys_port_cnt;
    let (mut found, mut reason) = (Vec::new(), DeviceError::NoPorts);
    for number in wanted.port.map_or(1..=ports, |port| port..=port) {
        match inspect(library, &device, name, number, wanted) {
            Ok(port) => found.push(port),
            Err(why) => reason = DeviceError::Port(number, why),
        }
    }
    if found.is_empty() { Err(reason) } else { Ok(found) }
}

fn inspect(
    library: &Library,
    device: &OpenDevice,
    name: &str,
    number: u8,
    wanted: &PortSelection<'_>,
) -> Result<Port, PortError> {
    let attributes = library.query_port(device, number).map_err(PortError::Query)?;
    if attributes.state != IBV_PORT_ACTIVE {
        return Err(PortError::Inactive);
    }
    let ethernet = attributes.link_layer == IBV_LINK_LAYER_ETHERNET;
    let indices = wanted
        .gid
        .map_or(0..attributes.gid_tbl_len.min(256), |gid| c_int::from(gid)..c_int::from(gid) + 1);
    let gids = indices.filter_map(|index| Some((index, library.query_gid(device, number, index)?)));
    let best = if ethernet {
        gids.max_by_key(|(index, gid)| (gid_attributes(name, number, *index), reach(gid), *index))
    } else {
        gids.min_by_key(|(index, _)| *index)
    };
    let (gid_index, gid) = match (best, wanted.gid) {
        (Some((index, gid)), _) => (index as u8, gid),
        (None, Some(index)) => return Err(PortError::NoAddressAt(index)),
        (None, None) if ethernet => return Err(PortError::NoAddress),
        (None, None) => (0, ibv_gid::default()),
    };
    let rank = if ethernet { u8::from(reach(&gid) > 0) } else { 2 };
    let key = |index: &u16| library.query_pkey(device, number, *index);
    let pkey_index = find_pkey(0..attributes.pkey_tbl_len, key, wanted.partition)?;
    let partition = if ethernet { 0 } else { key(&pkey_index) };
    let (device, name) = (OpenDevice::clone(device), name.to_owned());
    Ok(Port { device, name, number, attributes, gid_index, gid, pkey_index, partition, rank })
}

/// How well a GID of an Ethernet port can be routed: 2 for IPv4-mapped, 1 for global IPv6, 0 for
/// link-local.
fn reach(gid: &ibv_gid) -> u8 {
    match gid.raw {
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, ..] => 2,
        [0xfe, 0x80, ..] => 0,
        _ => 1,
    }
}

/// Whether a GID's network interface is in this network namespace, and whether the GID is of RoCE
/// v2, which is routable. (The table lists the interfaces of all namespaces.)
fn gid_attributes(name: &str, port: u8, index: c_int) -> (bool, bool) {
    let attribute = |what: &str| {
        let file = format!("/sys/class/infiniband/{name}/ports/{port}/gid_attrs/{what}/{index}");
        std::fs::read_to_string(file).unwrap_or_default().trim().to_owned()
    };
    let interface = attribute("ndevs");
    let is_here =
        !interface.is_empty() && std::path::Path::new("/sys/class/net").join(&interface).exists();
    (is_here, attribute("types") == "RoCE v2")
}

/// Index of the partition key to use. Two members of a partition can communicate if at least one
/// of them is a full member.
fn find_pkey(
    mut indices: std::ops::Range<u16>,
    key: impl Fn(&u16) -> u16,
    wanted: Option<u16>,
) -> Result<u16, PortError> {
    const FULL: u16 = 0x8000;
    match wanted {
        Some(wanted) => indices
            .find(|index| key(index) & !FULL == wanted & !FULL && key(index) != 0)
            .ok_or(PortError::NoPartitionKey(wanted)),
        // Ethernet ports have a single key, without meaning.
        None => Ok(indices.find(|index| key(index) & FULL != 0).unwrap_or(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routable_gids_are_preferred() {
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
