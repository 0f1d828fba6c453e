//! Makes the transport of a window: carries out the steps of [`Setup`] over the host's collectives.
//!
//! Every step is collective over the window's communicator and has the same outcome in all
//! processes. Between nodes each round of messages costs more than everything else. So the first
//! gather carries all that the processes must know of each other.
//!
//! [`Setup`]: crate::runtime::bootstrap::Setup

mod channel;
pub(crate) mod communicators;
mod exchange;
mod host_carrier;
#[cfg(mpi_sessions)]
pub(crate) mod own_session;
pub(crate) mod rdma;

use std::ffi::c_int;

use crate::engine::Rank;
use crate::mpi::abi::error::Fault;
use crate::mpi::abi::host_calls;
use crate::mpi::abi::sys::*;
use crate::mpi::datatype;
use crate::mpi::info::InfoKeys;
use crate::mpi::progress::drive;
use crate::runtime::bootstrap::{Action, Contribution, Event, Missing, SegmentOf};
use crate::runtime::config::{Reach, Serve, Settings};
use crate::runtime::{Transport, enter, progress};
use crate::transport::am;
use crate::transport::am::window_channel::WindowChannel;
use crate::transport::members::Members;
use crate::transport::rdma::{Endpoint, SharedContext, WindowMemory};
use crate::transport::router::Router;
use crate::transport::shm::{self, Alone, Bootstrap, Memory, ShmWindow};

pub(crate) use crate::runtime::bootstrap::NotMade;
pub(crate) use channel::open_job;
pub(crate) use exchange::Exchange;

/// The memory that this process contributes to a window, and one assertion about its use.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    pub(crate) memory: Memory,
    pub(crate) bytes: u64,
    pub(crate) disp_unit: u32,
    /// The application asserts that every accumulate is of one element.
    pub(crate) single: bool,
}

/// This process's contribution to the agreement. `fault`: an argument is invalid; `serves`: this
/// library can serve the window.
pub(crate) fn contribution(
    fault: Option<&Fault>,
    keys: &InfoKeys,
    settings: &Settings,
    serves: bool,
) -> Contribution {
    let class = fault.map_or(0, |fault| fault.class);
    let reach = keys.reach.unwrap_or(settings.reach());
    Contribution::new(class, serves, reach, progress::oversubscribed())
        .with_counter(keys.puts_counter)
        .with_pattern_fences(keys.pattern_fences == Some(true))
}

/// Whether the settings and info keys of this process ask this library to serve the window.
pub(crate) fn wants(keys: &InfoKeys, settings: &Settings) -> bool {
    settings.serve() != Serve::Off && keys.serve.unwrap_or(settings.serve() == Serve::All)
}

/// Makes the transport of a window of the processes of `exchange`.
///
/// # Errors
/// The reason why no process gets a transport, the same in all processes.
pub(crate) fn make(exchange: &mut Exchange, settings: shm::Settings) -> Result<Transport, NotMade> {
    let mut action = exchange.setup.start();
    let (mut segment, mut device, mut channel) = (None, None, None);
    loop {
        let event = match action {
            Action::ShareSegment => {
                let part = exchange.part;
                let made = ShmWindow::new(exchange, part.memory, part.disp_unit, settings);
                if let Some(code) = exchange.failed {
                    return Err(NotMade::Host(code));
                }
                Event::Shared(made.map(|made| segment = Some(made)))
            }
            Action::UseSegment => {
                // Releases the port: no messages are needed.
                exchange.port = None;
                return Ok(segment.expect("made above").into());
            }
            Action::Advertise => {
                let agreed = exchange.setup.agreement().map(|agreement| agreement.reach);
                device = rdma::open_context(agreed == Some(Reach::Verbs));
                let capability = rdma::capability(device.as_ref(), exchange.part.single);
                Event::Advertised(exchange.advertise(capability))
            }
            Action::OpenChannel => {
                let opened = channel::open(exchange).map_err(NotMade::Host)?;
                channel = Some(opened);
                Event::ChannelOpen
            }
            Action::Acquire(of) => {
                let channel = channel.take().expect("the channel is opened first");
                // The device of an earlier window, if all processes have looked for one before.
                let device = device
                    .or_else(|| rdma::opened().flatten())
                    .filter(|_| exchange.setup.may_use_rdma());
                let (segment, endpoint) = (None, Ok(None));
                let pending = PendingRouter { settings, channel, device, segment, endpoint };
                return pending.finish(exchange, of);
            }
            Action::Fail(reason) => return Err(reason),
            Action::Agree(_) | Action::UseRouter { .. } => {
                unreachable!("{action:?} before anything was acquired")
            }
        };
        action = exchange.setup.next(event);
    }
}

/// A router whose processes are agreeing on whether all have what they need.
struct PendingRouter {
    settings: shm::Settings,
    channel: WindowChannel,
    device: Option<SharedContext>,
    /// `None`: this process lacks memory.
    segment: Option<ShmWindow>,
    /// `Ok(None)`: this process has no device, or uses none. `Err`: RDMA failed on its device.
    endpoint: Result<Option<Endpoint>, ()>,
}

impl PendingRouter {
    /// Makes a segment and an endpoint, and proposes to the others what this process lacks.
    fn acquire(&mut self, exchange: &mut Exchange, of: SegmentOf) {
        self.segment = match of {
            SegmentOf::Node(ranks) => node_segment(exchange, &ranks, self.settings),
            SegmentOf::Own => own_segment(exchange.part, self.settings),
        };
        self.endpoint = match &self.segment {
            None => Ok(None),
            Some(segment) => {
                let bytes = if segment.is_dynamic() { 0 } else { exchange.part.bytes };
                let own = WindowMemory { base: segment.base(), bytes };
                let me = exchange.rank();
                let capabilities = exchange.setup.capabilities();
                // SAFETY: the segment, or the application, keeps the window's memory mapped until
                // the window ends, and the endpoint is ended before.
                unsafe { rdma::create_endpoint(me, self.device.as_ref(), &capabilities, own) }
            }
        };
        let missing = match (&self.segment, &self.endpoint) {
            (None, _) => Missing::Memory,
            (_, Err(())) => Missing::Rdma,
            _ => Missing::Nothing,
        };
        if let Action::Agree(missing) = exchange.setup.next(Event::Acquired(missing)) {
            // Contexts are used under the guard only.
            let _guard = enter();
            self.channel.propose_value(missing as u32);
        }
    }

    /// Waits for the agreement on what some process lacks.
    fn agree(&mut self, exchange: &mut Exchange) -> Missing {
        let (channel, mut decided) = (&mut self.channel, None);
        exchange.wait(&mut || {
            let mut guard = enter();
            guard.poll_network();
            decided = channel.decided_value();
            decided.is_some()
        });
        Missing::of(decided.unwrap_or(Missing::Memory as u32))
    }

    /// Acquires what the router needs, until all processes have agreed on what to do without.
    ///
    /// # Errors
    /// As [`make`].
    fn finish(mut self, exchange: &mut Exchange, of: SegmentOf) -> Result<Transport, NotMade> {
        self.acquire(exchange, of);
        if let Some(code) = exchange.failed {
            self.give_up();
            return Err(NotMade::Host(code));
        }
        loop {
            let missing = self.agree(exchange);
            match exchange.setup.next(Event::Agreed(missing)) {
                Action::UseRouter { rdma } => {
                    if !rdma {
                        self.end_endpoint();
                    }
                    return Ok(self.assemble(exchange));
                }
                Action::Acquire(of) => {
                    self.end_endpoint();
                    self.acquire(exchange, of);
                }
                Action::Fail(reason) => {
                    self.give_up();
                    return Err(reason);
                }
                other => unreachable!("{other:?} after an agreement"),
            }
        }
    }

    /// Ends this process's endpoint, while the window's memory is still mapped.
    fn end_endpoint(&mut self) {
        if let Ok(Some(endpoint)) = &mut self.endpoint {
            let _guard = enter();
            endpoint.end();
        }
        self.endpoint = Ok(None);
    }

    fn give_up(mut self) {
        self.end_endpoint();
        channel::give_up(self.channel);
    }

    fn assemble(self, exchange: &Exchange) -> Transport {
        let PendingRouter { settings, channel, segment, endpoint, .. } = self;
        let segment = segment.expect("every process has one");
        let (node_ranks, uses_shm) = exchange.setup.node();
        let (me, size) = (exchange.rank(), exchange.size());
        let members = Members::new(me, size, node_ranks.to_vec(), uses_shm);
        let host =
            am::Settings { foreign_reduce: settings.foreign_reduce, foreign: datatype::foreign };
        let (endpoint, extents) = (endpoint.unwrap_or_default(), exchange.setup.extents());
        Router::new(channel, endpoint, members, segment, extents, am::Protocol::new(host)).into()
    }
}

/// Makes a segment of this process alone.
fn own_segment(part: Part, settings: shm::Settings) -> Option<ShmWindow> {
    ShmWindow::new(&mut Alone, part.memory, part.disp_unit, settings)
        .inspect_err(|reason| log::info!("no memory for the window: {reason}"))
        .ok()
}

/// Makes a segment of the processes of this node.
fn node_segment(exchange: &Exchange, ranks: &[Rank], settings: shm::Settings) -> Option<ShmWindow> {
    let (comm, part, mut node) = (exchange.comm, exchange.part, MPI_COMM_NULL);
    if !exchange.may_block() {
        drive::assemble(comm).ok()?;
    }
    let (color, key) = (ranks[0] as c_int, exchange.rank() as c_int);
    if host_calls::comm_split(comm, color, key, &mut node) != MPI_SUCCESS {
        return None;
    }
    let mut on_node = exchange.within(node);
    let segment = ShmWindow::new(&mut on_node, part.memory, part.disp_unit, settings);
    host_calls::comm_free(&mut node);
    if let Err(reason) = &segment {
        log::info!("messages instead of shared memory on a node: {reason}");
    }
    segment.ok().filter(|_| on_node.failed.is_none())
}
