//! Asynchronous events of the device.
//!
//! They arrive at a file descriptor of the device, which does not block here. An event is
//! acknowledged as soon as it is read, because destroying a queue pair waits for the
//! acknowledgement of all events about it that were read.

use std::ffi::c_int;

use super::super::device::{DeviceError, DeviceEvent, Qp};
use super::device::IbvDevice;
use super::objects::{OpenDevice, QueuePair, last_error};
use super::sys::*;

impl Library {
    /// Has [`next_event`](Self::next_event) return instead of waiting for an event.
    pub(super) fn unblock_events(&self, device: &OpenDevice) -> Result<(), DeviceError> {
        // SAFETY: the device is open; its descriptor for events is public and constant.
        let descriptor = unsafe { (*device.as_ptr()).async_fd };
        // SAFETY: the call changes a flag of that descriptor, which nobody else uses.
        let code = unsafe {
            let flags = libc::fcntl(descriptor, libc::F_GETFL);
            libc::fcntl(descriptor, libc::F_SETFL, flags | libc::O_NONBLOCK)
        };
        if code == 0 { Ok(()) } else { Err(last_error("fcntl on the descriptor of events")) }
    }

    /// Takes the next event and acknowledges it.
    fn next_event(&self, device: &OpenDevice) -> Option<ibv_async_event> {
        let none = ibv_async_element { port_num: 0 };
        let mut event = ibv_async_event { element: none, event_type: 0 };
        // SAFETY: the device is open, and the call writes one structure of this type.
        let code = unsafe { (self.ibv_get_async_event)(device.as_ptr(), &raw mut event) };
        if code != 0 {
            return None;
        }
        // SAFETY: the event was read and is acknowledged once. The object it is about still exists,
        // because destroying an object drops its unread events.
        unsafe { (self.ibv_ack_async_event)(&raw mut event) };
        Some(event)
    }

    fn event_text(&self, event: Enum) -> String {
        // SAFETY: the call returns a static string for every number.
        unsafe { string((self.ibv_event_type_str)(event)) }
    }
}

impl IbvDevice {
    /// The next event that matters to connections. The others are logged.
    pub(super) fn take_event(&mut self) -> Option<DeviceEvent> {
        loop {
            let event = self.library.next_event(&self.port.device)?;
            let text = self.library.event_text(event.event_type);
            match event.event_type {
                IBV_EVENT_QP_FATAL | IBV_EVENT_QP_REQ_ERR | IBV_EVENT_QP_ACCESS_ERR => {
                    // SAFETY: events of these types are about queue pairs.
                    let about = unsafe { event.element.qp };
                    let is_it = |pair: &QueuePair| std::ptr::eq(pair.as_ptr(), about);
                    let found = self.qps.iter().position(|pair| pair.as_ref().is_some_and(is_it));
                    if let Some(index) = found {
                        return Some(DeviceEvent::QpFailed(Qp(index as u32), text));
                    }
                }
                // Nothing completes, or is received, any more.
                IBV_EVENT_DEVICE_FATAL | IBV_EVENT_CQ_ERR | IBV_EVENT_SRQ_ERR => {
                    self.failed = Some(text.clone());
                    return Some(DeviceEvent::DeviceFailed(text));
                }
                IBV_EVENT_PORT_ERR if self.is_of_port(&event) => {
                    return Some(DeviceEvent::PortDown);
                }
                IBV_EVENT_PORT_ACTIVE if self.is_of_port(&event) => {
                    self.refresh_address();
                    return Some(DeviceEvent::PortUp);
                }
                IBV_EVENT_LID_CHANGE | IBV_EVENT_GID_CHANGE | IBV_EVENT_PKEY_CHANGE
                    if self.is_of_port(&event) && self.refresh_address() =>
                {
                    return Some(DeviceEvent::AddressChanged);
                }
                _ => log::debug!("verbs: {} reports: {text}", self.port.name),
            }
        }
    }

    /// Whether an event about a port is about this one.
    fn is_of_port(&self, event: &ibv_async_event) -> bool {
        // SAFETY: the caller has checked that the event is about a port.
        unsafe { event.element.port_num == c_int::from(self.port.number) }
    }

    /// Queries the port's address. Returns whether it has changed.
    fn refresh_address(&mut self) -> bool {
        let (library, port) = (self.library, &mut self.port);
        if let Ok(attributes) = library.query_port(&port.device, port.number) {
            port.attributes = attributes;
        }
        let gid = library.query_gid(&port.device, port.number, port.gid_index.into());
        port.gid = gid.unwrap_or(port.gid);
        if !port.is_ethernet() {
            port.partition = library.query_pkey(&port.device, port.number, port.pkey_index);
        }
        let before = self.address;
        self.address = port.address(before.depth);
        self.address != before
    }
}
