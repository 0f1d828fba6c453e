//! The active-message context: what a process has of a carrier, for all windows that use it.
//!
//! Each window has a *port* in the context, with a number that its process chooses before the
//! window is made. The processes of a window tell each other their numbers, and packets carry the
//! number of the receiver's port. A packet that arrives before its window is assembled waits in the
//! port. Numbers are not used again, so a late packet of a window that has failed finds nothing.
//!
//! [`poll`](Context::poll) drives the carrier once for all windows, and
//! [`next_contacted`](Context::next_contacted) says which of them something has arrived for.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::carrier::{Carrier, Event, PortNumber, Process};
use super::channel::{MAX_TAGS, TransferId};
use super::wire::{Content, Packet};
use crate::engine::slab::{Key, Slab};
use crate::transport::guarded::Guarded;

/// The context, shared by the windows that use it.
pub type SharedContext = Arc<Guarded<Context>>;

static OPEN_PORTS: AtomicUsize = AtomicUsize::new(0);

/// Whether this process has windows that use messages, and so has to poll its contexts.
#[inline]
#[must_use]
pub fn any_in_use() -> bool {
    OPEN_PORTS.load(Ordering::Relaxed) != 0
}

/// What has arrived for one window.
#[derive(Debug, Default)]
pub(super) struct Port {
    pub(super) packets: VecDeque<(Process, Packet)>,
    pub(super) collectives: VecDeque<(Process, Packet)>,
    pub(super) transfers: VecDeque<(TransferId, usize)>,
    /// What the owner of the window wants to hear when something arrives.
    cookie: Option<u64>,
    /// It is in the list of windows that something has arrived for.
    is_listed: bool,
    /// The window waits for messages.
    expects: bool,
}

impl Port {
    /// Adds it to the list of ports that something has arrived for.
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

/// Numbers of rendezvous transfers that are free.
#[derive(Debug, Default)]
struct Tags {
    returned: Vec<u32>,
    fresh: u32,
}

impl Tags {
    fn take(&mut self) -> Option<u32> {
        self.returned.pop().or_else(|| {
            let fresh = (self.fresh < MAX_TAGS).then_some(self.fresh)?;
            self.fresh += 1;
            Some(fresh)
        })
    }
}

/// The active-message context of a process.
#[derive(Debug)]
pub struct Context {
    carrier: Box<dyn Carrier>,
    /// Common to the contexts of all processes of the carrier's communicator, and to no others.
    name: u64,
    /// Rank of this process in that communicator.
    process: Process,
    ports: Slab<Port>,
    tags: Tags,
    /// Ports that something has arrived for.
    contacted: Vec<PortNumber>,
    /// Ports that wait for messages.
    expecting: usize,
}

/// Port `number`. Not a method, so that the context's other fields stay usable.
#[inline]
fn port_of(ports: &mut Slab<Port>, number: PortNumber) -> Option<&mut Port> {
    ports.get_mut(Key::of_word(number)?)
}

impl Context {
    /// A context over a carrier, in which this process is `process`. `name` is not 0.
    #[must_use]
    pub fn new(carrier: Box<dyn Carrier>, name: u64, process: Process) -> Self {
        Context {
            carrier,
            name,
            process,
            ports: Slab::new(),
            tags: Tags::default(),
            contacted: Vec::new(),
            expecting: 0,
        }
    }

    /// The name that this context shares with those of the other processes.
    #[must_use]
    pub fn name(&self) -> u64 {
        self.name
    }

    /// Number of this process among those that share the name.
    #[must_use]
    pub fn process(&self) -> Process {
        self.process
    }

    /// Opens a port for a window. From now on packets for it are kept.
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

    /// Drives the carrier and hands over what has arrived. True if anything has.
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
                let Some(port) = port_of(&mut self.ports, number) else {
                    log::debug!("a message of process {from} for a window that has ended");
                    return self.carrier.recycle(packet);
                };
                match content {
                    Content::Collective => port.collectives.push_back((from, packet)),
                    Content::Records | Content::Handshake => port.packets.push_back((from, packet)),
                }
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

    pub(super) fn port(&mut self, number: PortNumber) -> Option<&mut Port> {
        port_of(&mut self.ports, number)
    }

    pub(super) fn carrier(&mut self) -> &mut dyn Carrier {
        &mut *self.carrier
    }

    pub(super) fn take_tag(&mut self) -> Option<u32> {
        self.tags.take()
    }

    pub(super) fn return_tag(&mut self, tag: u32) {
        self.tags.returned.push(tag);
    }

    /// Notes whether a port waits for messages.
    pub(super) fn expect(&mut self, number: PortNumber, expects: bool) {
        let Some(port) = self.port(number) else { return };
        let before = std::mem::replace(&mut port.expects, expects);
        self.expecting = self.expecting + usize::from(expects) - usize::from(before);
    }

    /// Reports `cookie` when something arrives for a port, and now if something has.
    pub(super) fn set_cookie(&mut self, number: PortNumber, cookie: u64) {
        let Some(port) = port_of(&mut self.ports, number) else { return };
        port.cookie = Some(cookie);
        if !port.is_empty() {
            port.list(number, &mut self.contacted);
        }
    }

    /// The cookie of the next window that something has arrived for.
    pub fn next_contacted(&mut self) -> Option<u64> {
        while let Some(number) = self.contacted.pop() {
            if let Some(port) = self.port(number) {
                port.is_listed = false;
                return port.cookie;
            }
        }
        None
    }

    /// Closes a port. What arrives for it from now on is dropped.
    pub fn close(&mut self, number: PortNumber) {
        self.expect(number, false);
        let Some(port) = Key::of_word(number).and_then(|key| self.ports.take(key)) else { return };
        OPEN_PORTS.fetch_sub(1, Ordering::Relaxed);
        for (_, packet) in port.packets.into_iter().chain(port.collectives) {
            self.carrier.recycle(packet);
        }
    }

    /// Ends the carrier. No window uses the context any more.
    pub fn end(&mut self) {
        self.carrier.close();
    }

    /// A message of `from` is no packet, so nobody knows for which window it was meant: all windows
    /// get an empty one in its place, which those of that process refuse.
    #[cold]
    fn distrust(&mut self, from: Process, packet: Packet) {
        self.carrier.recycle(packet);
        let mut numbers = Vec::new();
        for index in 0..self.ports.end() {
            numbers.extend(self.ports.key_at(index).map(Key::to_word));
        }
        for number in numbers {
            if let Some(port) = port_of(&mut self.ports, number) {
                port.packets.push_back((from, Packet::default()));
                port.list(number, &mut self.contacted);
            }
        }
    }
}
