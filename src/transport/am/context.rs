//! The active-message context: a process's side of a carrier, for all windows that use it.
//!
//! Each window has a *port* in the context, with a number that its process chooses before the
//! window is made. The processes of a window exchange their port numbers, and each packet carries
//! the number of the receiver's port. A packet that arrives before its window is assembled waits in
//! the port. Port numbers are never reused, so a late packet of a failed window finds no port.
//!
//! [`poll`](Context::poll) drives the carrier once for all windows.
//! [`next_contacted`](Context::next_contacted) returns the windows with new arrivals.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::bundle::{self, Held};
use super::carrier::{Carrier, Event, PortNumber, Process};
use super::channel::{MAX_TAGS, TransferId};
use super::wire::{Content, Packet};
use crate::engine::slab::{Key, Slab};
use crate::transport::guarded::Guarded;

/// The context, shared by the windows that use it.
pub type SharedContext = Arc<Guarded<Context>>;

static OPEN_PORTS: AtomicUsize = AtomicUsize::new(0);

/// Whether some window of this process uses messages, so that its contexts must be polled.
#[inline]
#[must_use]
pub fn any_in_use() -> bool {
    OPEN_PORTS.load(Ordering::Relaxed) != 0
}

/// The arrivals of one window.
#[derive(Debug, Default)]
pub(super) struct Port {
    pub(super) packets: VecDeque<(Process, Packet)>,
    pub(super) collectives: VecDeque<(Process, Packet)>,
    pub(super) transfers: VecDeque<(TransferId, usize)>,
    /// Identifies the window to its owner when something arrives.
    cookie: Option<u64>,
    /// The port is in [`Context::contacted`].
    is_listed: bool,
    /// The window waits for messages.
    expects: bool,
}

impl Port {
    /// Adds the port to the list of ports with new arrivals.
    #[inline]
    fn list(&mut self, number: PortNumber, contacted: &mut Vec<PortNumber>) {
        if self.cookie.is_some() && !std::mem::replace(&mut self.is_listed, true) {
            contacted.push(number);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty() && self.collectives.is_empty() && self.transfers.is_empty()
    }
}

/// The active-message context of a process.
#[derive(Debug)]
pub struct Context {
    carrier: Box<dyn Carrier>,
    /// The same in all processes of the carrier's communicator, and different from other contexts.
    name: u64,
    /// Rank of this process in that communicator.
    process: Process,
    ports: Slab<Port>,
    /// Free numbers of rendezvous transfers: used before, and never used.
    returned_tags: Vec<u32>,
    fresh_tags: Range<u32>,
    /// Ports with new arrivals.
    contacted: Vec<PortNumber>,
    /// Number of ports whose windows wait for messages.
    expecting: usize,
    held: Held,
}

/// Port `number`. Not a method, so that the context's other fields stay usable.
#[inline]
fn port_of(ports: &mut Slab<Port>, number: PortNumber) -> Option<&mut Port> {
    ports.get_mut(Key::of_word(number)?)
}

impl Context {
    /// A context over a carrier in whose communicator this process has rank `process`. `name` is
    /// not 0.
    #[must_use]
    pub fn new(carrier: Box<dyn Carrier>, name: u64, process: Process) -> Self {
        Context {
            carrier,
            name,
            process,
            ports: Slab::new(),
            returned_tags: Vec::new(),
            fresh_tags: 0..MAX_TAGS,
            contacted: Vec::new(),
            expecting: 0,
            held: Held::default(),
        }
    }

    /// The name, which the contexts of the communicator's other processes share.
    #[must_use]
    pub fn name(&self) -> u64 {
        self.name
    }

    /// Rank of this process in the carrier's communicator.
    #[must_use]
    pub fn process(&self) -> Process {
        self.process
    }

    /// Opens a port for a window. It keeps packets from now on.
    pub fn open(&mut self) -> PortNumber {
        OPEN_PORTS.fetch_add(1, Ordering::Relaxed);
        self.ports.insert(Port::default()).to_word()
    }

    /// Whether no window has a port.
    #[must_use]
    pub fn is_unused(&self) -> bool {
        self.ports.len() == 0
    }

    /// Whether some window waits for messages.
    #[must_use]
    pub fn expects_messages(&self) -> bool {
        self.expecting > 0
    }

    /// Drives the carrier and moves all arrivals to their ports. Returns whether there was any.
    pub fn poll(&mut self) -> bool {
        self.carrier.poll();
        let mut any = false;
        while let Some(event) = self.carrier.next_event() {
            any = true;
            self.dispatch(event);
        }
        any
    }

    fn dispatch(&mut self, event: Event) {
        match event {
            Event::Arrived(from, packet) => {
                let (Some((number, _)), Some(content)) = (packet.addressee(), packet.content())
                else {
                    return self.distrust(from, packet);
                };
                if content == Content::Bundle {
                    return self.unpack(from, packet);
                }
                let Some(port) = port_of(&mut self.ports, number) else {
                    log::debug!("dropped a message of process {from} for a window that has ended");
                    return self.carrier.recycle(packet);
                };
                let is_collective = content == Content::Collective;
                let arrivals =
                    if is_collective { &mut port.collectives } else { &mut port.packets };
                arrivals.push_back((from, packet));
                port.list(number, &mut self.contacted);
            }
            Event::Moved(number, transfer, bytes) => {
                let Some(port) = port_of(&mut self.ports, number) else {
                    return;
                };
                port.transfers.push_back((transfer, bytes));
                port.list(number, &mut self.contacted);
            }
        }
    }

    /// Handles the packets of a bundle. One that is malformed counts as an invalid packet.
    fn unpack(&mut self, from: Process, bundle: Packet) {
        for bytes in bundle::packets(&bundle) {
            let mut packet = self.carrier.empty_packet();
            packet.bytes.clear();
            packet.bytes.extend_from_slice(bytes.unwrap_or_default());
            match packet.content() {
                Some(Content::Bundle) => self.distrust(from, packet),
                _ => self.dispatch(Event::Arrived(from, packet)),
            }
        }
        self.carrier.recycle(bundle);
    }

    /// Has packets wait for others to the same process, until [`send_held`](Self::send_held).
    #[inline]
    pub fn hold(&mut self) {
        self.held.hold();
    }

    /// Sends the packets that have waited.
    #[inline]
    pub fn send_held(&mut self) {
        self.held.send(&mut *self.carrier);
    }

    /// Sends a packet of a port. Never refuses.
    pub(super) fn send(&mut self, port: PortNumber, to: Process, packet: Packet) {
        if self.held.is_holding() {
            self.held.add(&mut *self.carrier, port, to, packet);
        } else {
            self.carrier.send(port, to, packet);
        }
    }

    /// Whether some packet of a port has not left yet.
    pub(super) fn is_sending(&self, port: PortNumber) -> bool {
        let in_carrier = |port| self.carrier.is_sending(port);
        self.held.holds(port) || in_carrier(port) || in_carrier(bundle::NO_PORT)
    }

    pub(super) fn port(&mut self, number: PortNumber) -> Option<&mut Port> {
        port_of(&mut self.ports, number)
    }

    pub(super) fn carrier(&mut self) -> &mut dyn Carrier {
        &mut *self.carrier
    }

    pub(super) fn take_tag(&mut self) -> Option<u32> {
        self.returned_tags.pop().or_else(|| self.fresh_tags.next())
    }

    pub(super) fn return_tag(&mut self, tag: u32) {
        self.returned_tags.push(tag);
    }

    /// Sets whether a port's window waits for messages.
    pub(super) fn expect(&mut self, number: PortNumber, expects: bool) {
        let Some(port) = self.port(number) else { return };
        let before = std::mem::replace(&mut port.expects, expects);
        self.expecting = self.expecting + usize::from(expects) - usize::from(before);
    }

    /// Sets the cookie to report when something arrives for a port. Reports it now if something has
    /// arrived already.
    pub(super) fn set_cookie(&mut self, number: PortNumber, cookie: u64) {
        let Some(port) = port_of(&mut self.ports, number) else { return };
        port.cookie = Some(cookie);
        if !port.is_empty() {
            port.list(number, &mut self.contacted);
        }
    }

    /// The cookie of the next window with new arrivals.
    pub fn next_contacted(&mut self) -> Option<u64> {
        while let Some(number) = self.contacted.pop() {
            if let Some(port) = self.port(number) {
                port.is_listed = false;
                return port.cookie;
            }
        }
        None
    }

    /// Closes a port. Later arrivals for it are dropped.
    pub fn close(&mut self, number: PortNumber) {
        self.expect(number, false);
        let Some(port) = Key::of_word(number).and_then(|key| self.ports.take(key)) else { return };
        OPEN_PORTS.fetch_sub(1, Ordering::Relaxed);
        for (_, packet) in port.packets.into_iter().chain(port.collectives) {
            self.carrier.recycle(packet);
        }
    }

    /// Ends the carrier. Call when no window uses the context any more.
    pub fn end(&mut self) {
        self.carrier.close();
    }

    /// Handles a message of `from` that is not a valid packet. Its window is unknown, so all
    /// windows get an empty packet of `from` instead. Those with this peer refuse it.
    #[cold]
    fn distrust(&mut self, from: Process, packet: Packet) {
        self.carrier.recycle(packet);
        for index in 0..self.ports.end() {
            let Some(key) = self.ports.key_at(index) else { continue };
            let port = &mut self.ports[key];
            port.packets.push_back((from, Packet::default()));
            port.list(key.to_word(), &mut self.contacted);
        }
    }
}
