//! Events of the device: what it reports of itself, apart from completions.

use super::super::device::{DeviceEvent, Qp};
use super::{Batch, ConnectionError, Context};

/// Polls between two looks for events. A look is a system call.
const POLLS_PER_LOOK: u64 = 1024;

impl Context {
    /// Looks for events once in a while.
    pub(super) fn look_for_events(&mut self) {
        if self.quota.polls.is_multiple_of(POLLS_PER_LOOK) {
            self.handle_events();
        }
    }

    #[cold]
    fn handle_events(&mut self) {
        self.read_events();
        while let Some(event) = self.failures.pop_front() {
            match event {
                DeviceEvent::QpFailed(qp, reason) => {
                    // The completion of the request that has failed says more.
                    while self.take_batch() != Batch::Empty {}
                    if let Some(conn) = self.connection_of(qp)
                        && !self.disconnect_failed(conn, self.connections[conn].posted)
                    {
                        self.fail_connection(conn, &ConnectionError::QueuePair(reason));
                    }
                }
                DeviceEvent::DeviceFailed(reason) => self.fail_device(&reason),
                _ => {}
            }
        }
    }

    /// Reads all events. Notes and logs the state of the port, and leaves failures in `failures`.
    #[cold]
    pub(super) fn read_events(&mut self) {
        while let Some(event) = self.device.next_event() {
            let name = self.device.name();
            match event {
                DeviceEvent::PortDown => {
                    self.port_is_down = true;
                    log::warn!(
                        "verbs: {name} is down: requests fail if it is not up again within two \
                         seconds"
                    );
                }
                DeviceEvent::PortUp => {
                    self.port_is_down = false;
                    log::warn!("verbs: {name} is up again");
                }
                DeviceEvent::AddressChanged => log::warn!(
                    "verbs: the address of {name} has changed: connections that use the old one \
                     may fail, and new ones use {:?}",
                    self.device.address()
                ),
                DeviceEvent::QpFailed(..) | DeviceEvent::DeviceFailed(_) => {
                    self.failures.push_back(event);
                }
            }
        }
    }

    /// Drops events about a queue pair that is being destroyed: a later one may get its handle.
    pub(super) fn forget_events(&mut self, qp: Qp) {
        self.failures.retain(|event| !matches!(event, DeviceEvent::QpFailed(of, _) if *of == qp));
    }

    /// Fails all connections, because the device completes no request any more.
    fn fail_device(&mut self, reason: &str) {
        log::error!("verbs: {} has failed: {reason}", self.device.name());
        for conn in 0..self.connections.len() {
            if self.connections[conn].qp.is_some() {
                self.fail_connection(conn, &ConnectionError::DeviceFailed(reason.to_owned()));
            }
        }
    }
}
