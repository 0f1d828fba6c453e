//! Windows some of whose peers are reached by messages or RDMA: how they are made.
//!
//! Between nodes each round of messages costs more than all else. So there are few: what the
//! processes have to know of each other comes with the first gather of all, their channel is one
//! over the context of the job where they have it ([`channel`]), and whether all have what they need
//! is found out while the host makes the window that is the handle.

use std::ffi::c_int;

use crate::engine::Rank;
use crate::mpi::abi::sys::*;
use crate::mpi::bootstrap::channel::{self, PORT_CARD, PortCard, ReservedPort};
use crate::mpi::bootstrap::rdma;
use crate::mpi::bootstrap::{Collectives, Part, Unmade};
use crate::mpi::datatype;
use crate::mpi::progress::drive;
use crate::runtime::config::Reach;
use crate::runtime::{Transport, enter};
use crate::transport::am::channel::Channel;
use crate::transport::am::members::{Extents, Members, RankTable};
use crate::transport::am::window_channel::WindowChannel;
use crate::transport::am::{self, MessageWindow};
use crate::transport::rdma::capabilities::advertise;
use crate::transport::rdma::{Endpoint, RdmaAmChannel, SharedContext, WindowMemory};
use crate::transport::shm::{self, Alone, Bootstrap, Memory, SetupError, ShmWindow};

/// Bytes of a card.
pub(crate) const CARD: usize = 24 + 8 + 4 + 4 + PORT_CARD;

/// What a process tells of itself: its node, its memory, what RDMA it has, and its port for
/// messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Card {
    /// Zeros if the process does not know its node.
    node: [u64; 3],
    bytes: u64,
    disp_unit: u32,
    /// `None`: nobody has looked for a device yet.
    ability: Option<u8>,
    port: PortCard,
}

impl Card {
    /// What this process knows without looking for a device.
    pub(crate) fn new(part: &Part, port: PortCard) -> Self {
        Card {
            node: shm::node().unwrap_or_default(),
            bytes: part.bytes,
            disp_unit: part.disp_unit,
            ability: rdma::opened().map(|fabric| advertise(fabric.as_ref(), part.single)),
            port,
        }
    }

    pub(crate) fn encode(self) -> [u8; CARD] {
        let mut bytes = [0; CARD];
        for (place, number) in bytes.chunks_exact_mut(8).zip(self.node) {
            place.copy_from_slice(&number.to_ne_bytes());
        }
        bytes[24..32].copy_from_slice(&self.bytes.to_ne_bytes());
        bytes[32..36].copy_from_slice(&self.disp_unit.to_ne_bytes());
        bytes[36] = self.ability.unwrap_or_default();
        bytes[37] = self.ability.is_some().into();
        self.port.encode(&mut bytes[40..]);
        bytes
    }

    fn decode(bytes: &[u8]) -> Self {
        let word =
            |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        Card {
            node: [word(0), word(8), word(16)],
            bytes: word(24),
            disp_unit: u32::from_ne_bytes(bytes[32..36].try_into().expect("four bytes")),
            ability: (bytes[37] != 0).then_some(bytes[36]),
            port: PortCard::decode(&bytes[40..]),
        }
    }

    fn knows_its_node(&self) -> bool {
        self.node != [0; 3]
    }
}

/// What is needed of the peers that RDMA may reach.
struct Fabric {
    device: Option<SharedContext>,
    abilities: RankTable<u8>,
}

/// A window whose processes are finding out whether all have what they need.
pub(crate) struct Pending {
    me: (Rank, u32),
    part: Part,
    settings: shm::Settings,
    channel: WindowChannel,
    extents: Extents,
    fabric: Fabric,
    /// Who shares this process's node, and whether they reach each other through its memory.
    mates: (Vec<Rank>, bool),
    parts: Parts,
}

/// What may not be had: memory, and RDMA.
struct Parts {
    port: Option<ShmWindow>,
    direct: Result<Option<Endpoint>, ()>,
}

/// Begins a window some of whose peers are reached by messages or RDMA: all of them, unless each is
/// to be reached in the best way.
pub(crate) fn begin(
    all: &mut Collectives,
    part: Part,
    reach: Reach,
    settings: shm::Settings,
) -> Result<Pending, Unmade> {
    let (bytes, reserved) = all.take_cards();
    let (bytes, device) = match reach {
        Reach::HostMpi => (bytes, None),
        _ => with_devices(all, &part, reach, bytes, reserved.as_ref()),
    };
    let cards = || bytes.chunks_exact(CARD).map(Card::decode);
    let abilities = match reach {
        Reach::HostMpi => RankTable::new([0]),
        _ => RankTable::new(cards().map(|card| card.ability.unwrap_or_default())),
    };
    // The processes of a node share a segment, whichever way operations go: programs may ask for
    // memory that is allocated, and what is attached to a dynamic window is seen there.
    let shares = matches!(part.memory, Memory::Share { .. });
    // A process that does not know its node has none in common with anybody.
    let node = shm::node().filter(|node| *node != [0; 3]);
    let mates: Vec<Rank> = (0..)
        .zip(cards())
        .filter(|(rank, other)| *rank == all.rank() || node == Some(other.node))
        .map(|(rank, _)| rank)
        .collect();
    if shares && mates.len() != all.size() as usize {
        return Err(Unmade::Unsuitable(SetupError::NotOneNode));
    }
    let mut channel =
        channel::open(all, reserved, || cards().map(|card| card.port)).map_err(Unmade::Host)?;
    // Where no two processes are on one node, nobody has a communicator of its node to make.
    let mut nodes: Vec<[u64; 3]> =
        cards().filter(Card::knows_its_node).map(|card| card.node).collect();
    nodes.sort_unstable();
    let port = if nodes.windows(2).any(|two| two[0] == two[1]) {
        node_window(all, &mates, part, settings)
    } else {
        alone_window(part, settings)
    };
    if let Some(code) = all.failed() {
        channel::give_up(channel);
        return Err(Unmade::Host(code));
    }
    let extents = Extents::new(cards().map(|card| (card.bytes, card.disp_unit)));
    let (me, fabric) = ((all.rank(), all.size()), Fabric { device, abilities });
    let parts = Parts::of(port, me, &part, &fabric);
    propose(&mut channel, Lack::of(&parts));
    let mates = (mates, reach == Reach::Auto);
    Ok(Pending { me, part, settings, channel, extents, fabric, mates, parts })
}

/// The cards with what RDMA everybody has, and this process's device. One more gather, if some
/// process has not looked for its own yet.
fn with_devices(
    all: &mut Collectives,
    part: &Part,
    reach: Reach,
    cards: Vec<u8>,
    reserved: Option<&ReservedPort>,
) -> (Vec<u8>, Option<SharedContext>) {
    if cards.chunks_exact(CARD).all(|card| Card::decode(card).ability.is_some()) {
        return (cards, rdma::opened().flatten());
    }
    let device = rdma::open_context(reach == Reach::Verbs);
    let port = ReservedPort::card(reserved);
    let mine =
        Card { ability: Some(advertise(device.as_ref(), part.single)), ..Card::new(part, port) };
    let mut everybody = vec![0; cards.len()];
    all.allgather(&mine.encode(), &mut everybody);
    (everybody, device)
}

impl Parts {
    /// With this memory, or without.
    fn of(port: Option<ShmWindow>, me: (Rank, u32), part: &Part, fabric: &Fabric) -> Self {
        let direct = match &port {
            None => Ok(None),
            Some(port) => {
                let own = WindowMemory {
                    base: port.base(),
                    bytes: if port.is_dynamic() { 0 } else { part.bytes },
                };
                // SAFETY: the memory is the window's, which the channel leaves before it goes.
                unsafe { rdma::create_endpoint(me, fabric.device.as_ref(), &fabric.abilities, own) }
            }
        };
        Parts { port, direct }
    }

    /// Takes no part in RDMA after all. To be called while there is the memory.
    fn leave(&mut self) {
        if let Ok(Some(direct)) = &mut self.direct {
            direct.end();
        }
        self.direct = Ok(None);
    }
}

/// What some process lacks, worst last. What counts is the worst of all processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Lack {
    Nothing,
    /// RDMA, which it should have.
    Rdma,
    Memory,
}

impl Lack {
    fn of(parts: &Parts) -> Self {
        match parts {
            Parts { port: None, .. } => Lack::Memory,
            Parts { direct: Err(()), .. } => Lack::Rdma,
            _ => Lack::Nothing,
        }
    }
}

/// Begins to find out what some process lacks.
fn propose(channel: &mut WindowChannel, lack: Lack) {
    // The context is used under the guard only.
    let _guard = enter();
    channel.propose_value(lack as u32);
}

/// Waits until it is known.
fn agree(all: &mut Collectives, channel: &mut WindowChannel) -> Lack {
    let mut decided = None;
    all.wait(&mut || {
        let mut guard = enter();
        guard.poll_network();
        decided = channel.decided_value();
        decided.is_some()
    });
    match decided {
        Some(0) => Lack::Nothing,
        Some(1) => Lack::Rdma,
        _ => Lack::Memory,
    }
}

impl Pending {
    /// Waits until all know that all have what they need; what some process lacks, all do without.
    ///
    /// # Errors
    /// No process has a transport, for the same reason.
    pub(crate) fn finish(mut self, all: &mut Collectives) -> Result<Transport, Unmade> {
        let mut lack = agree(all, &mut self.channel);
        if lack == Lack::Memory && !matches!(self.part.memory, Memory::Share { .. }) {
            // What fails on one node is done without on all of them.
            self.mates = (vec![self.me.0], false);
            self.parts.leave();
            let port = alone_window(self.part, self.settings);
            self.parts = Parts::of(port, self.me, &self.part, &self.fabric);
            propose(&mut self.channel, Lack::of(&self.parts));
            lack = agree(all, &mut self.channel);
        }
        if lack == Lack::Memory {
            self.parts.leave();
            channel::give_up(self.channel);
            return Err(Unmade::Unsuitable(SetupError::NoMemory));
        }
        if lack == Lack::Rdma {
            self.parts.leave();
        }
        Ok(self.assemble())
    }

    fn assemble(self) -> Transport {
        let Pending { me, settings, channel, extents, mates: (mates, near), parts, .. } = self;
        let port = parts.port.expect("every process has one");
        let members = Members::new(me.0, me.1, mates, near);
        let channel: Box<dyn Channel> = match parts.direct {
            Ok(Some(direct)) => Box::new(RdmaAmChannel::new(channel, direct)),
            _ => Box::new(channel),
        };
        let host =
            am::Settings { foreign_reduce: settings.foreign_reduce, foreign: datatype::foreign };
        MessageWindow::new(channel, members, port, extents, host).into()
    }
}

/// The window of a process that shares it with nobody.
fn alone_window(part: Part, settings: shm::Settings) -> Option<ShmWindow> {
    ShmWindow::new(&mut Alone, part.memory, part.disp_unit, settings)
        .inspect_err(|reason| log::info!("no memory for the window: {reason}"))
        .ok()
}

/// The window of the processes of this node.
fn node_window(
    all: &Collectives,
    mates: &[Rank],
    part: Part,
    settings: shm::Settings,
) -> Option<ShmWindow> {
    let mut node = MPI_COMM_NULL;
    // SAFETY: the communicator is live, and all of its processes come here.
    let code = unsafe {
        if !all.may_block() {
            drive::assemble(all.comm()).ok()?;
        }
        PMPI_Comm_split(all.comm(), mates[0] as c_int, all.rank() as c_int, &raw mut node)
    };
    if code != MPI_SUCCESS {
        return None;
    }
    let mut some = all.of_some(node);
    let port = ShmWindow::new(&mut some, part.memory, part.disp_unit, settings);
    // SAFETY: a communicator that was made here, and that nobody uses any more.
    unsafe { PMPI_Comm_free(&raw mut node) };
    if let Err(reason) = &port {
        log::info!("messages instead of shared memory on a node: {reason}");
    }
    port.ok().filter(|_| some.failed().is_none())
}
