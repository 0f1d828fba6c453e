//! Persistent collectives of several nodes, on schedules of puts with notifications [CL-5]. On
//! request only: over TCP they are slower than the host's (`docs/design/collectives.md`).
//!
//! [`plan`]: the programs of `collective::nodes` that a collective runs. [`memory`]: where their
//! areas and counters are. [`blocks`]: what halo exchanges pack and unpack. [`window`]: the window
//! that has the memory, which is in an epoch for all processes all the time. Every sweep of this
//! process advances the program: it does what the counters allow, and puts to other nodes through
//! the engine.

mod blocks;
mod memory;
mod plan;
mod window;

use super::bundles::Bundles;
use super::movement::{Exchanged, Movement, RANKS_MAX};
use super::{NotServed, gather};
use crate::collective::nodes::Repeated;
use crate::mpi::abi::sys::*;
use crate::mpi::collective::communicators::Carrier;
use crate::mpi::collective::nodes;
use crate::runtime::collectives::{Advance, CollectiveFailure, PersistentCollective};
use crate::runtime::enter;
use crate::runtime::registry::Registry;
use crate::transport::shm;
use blocks::Blocks;
use memory::{Access, Buffers, Memory, Sums, Terms, layouts};
use plan::{Order, Plan, Shape};
pub(crate) use window::{WindowCalls, free_windows};
pub(in crate::mpi::collective) use window::{forget, free_windows_of, use_calls};

/// The node of a process. Zeros: unknown.
pub(super) type Node = [u64; 3];

/// Most bytes of a process's memory.
const MEMORY_MAX: usize = 1 << 30;

/// A collective of several nodes.
struct OverNodes {
    repeated: Repeated,
    memory: Memory,
    window: window::InUse,
}

/// The outcome if another node cannot be reached.
#[cold]
fn broken() -> Advance {
    const TEXT: &str = "a process of another node cannot be reached any more";
    Advance::Failed(CollectiveFailure { class: MPI_ERR_OTHER, text: TEXT })
}

impl OverNodes {
    fn step(&mut self, windows: &mut Registry) -> Advance {
        let OverNodes { repeated, memory, window: in_use } = self;
        let Some(window) = windows.get_mut(in_use.0) else { return broken() };
        let mut moved = memory.pass_on(window);
        let mut access = Access { memory, window, refused: false };
        moved |= repeated.advance(&mut access);
        if access.refused || window.port.is_broken() {
            return broken();
        }
        if moved {
            windows.attend(in_use.0);
        }
        if repeated.is_done() && memory.has_arrived() {
            memory.deliver();
            return Advance::Complete;
        }
        Advance::Pending { moved }
    }
}

impl PersistentCollective for OverNodes {
    fn start(&mut self) -> Advance {
        self.repeated.start();
        self.step(&mut enter().windows)
    }

    /// Nothing moves without the windows, which only sweeps and calls of the application have.
    fn advance(&mut self) -> Advance {
        Advance::Pending { moved: false }
    }

    fn sweep(&mut self, windows: &mut Registry) -> Advance {
        self.step(windows)
    }

    fn finish(&mut self) -> Advance {
        let mut guard = enter();
        let host = guard.host;
        guard.poll_network();
        if let Some(window) = guard.windows.get_mut(self.window.0) {
            window.advance(&host);
        }
        self.step(&mut guard.windows)
    }

    fn without_guard(&self) -> bool {
        true
    }
}

/// The order of processes on these nodes, by rank, if there are several of them. `None`: there is
/// one, or a process does not know its own.
pub(super) fn order(ids: &[Node]) -> Option<Order> {
    let several = ids.iter().any(|id| *id != ids[0]) && !ids.contains(&[0; 3]);
    several.then(|| Order::of(&nodes::places(ids)))
}

/// Sets up a barrier, if the processes are on several nodes. Collective.
pub(super) fn barrier(
    carrier: &mut Carrier,
) -> Option<Result<Box<dyn PersistentCollective>, NotServed>> {
    let ids = gather(carrier, shm::node().unwrap_or_default());
    let order = order(&ids).filter(|_| !carrier.failed)?;
    let plan = Plan::barrier(&order);
    Some(make(carrier, order, plan, Buffers::default()))
}

/// Sets up a collective that moves data. Collective.
pub(super) fn set_up(
    carrier: &mut Carrier,
    order: Order,
    exchanged: &Exchanged,
    movement: &Movement,
) -> Result<Box<dyn PersistentCollective>, NotServed> {
    let shape = plan::shape(&order, exchanged, movement);
    let planned =
        shape.and_then(|shape| Some((shape, Plan::of(shape, &order, exchanged, movement)?)));
    let Some((shape, plan)) = planned else {
        return Err(NotServed::LeftToHost("no schedule over several nodes does what it does"));
    };
    let (sends, receives) = plan::parts(shape, &order, exchanged, movement, carrier.me as usize);
    let buffers = Buffers { sends, receives, combine: movement.combine, ..Buffers::default() };
    make(carrier, order, plan, buffers)
}

/// Sets up what processes of different nodes exchange in a neighbour collective. Collective.
/// `bundles` is `None` if this process exchanges more than that.
pub(super) fn set_up_halo(
    carrier: &mut Carrier,
    order: Order,
    bundles: Option<&Bundles<'_>>,
) -> Result<Box<dyn PersistentCollective>, NotServed> {
    let left = |reason| Err(NotServed::LeftToHost(reason));
    if carrier.ranks > RANKS_MAX {
        return left("the communicator has more than 64 processes");
    }
    let movement = bundles.map(|bundles| bundles.movement(carrier.ranks as usize));
    let Some(exchanged) = Exchanged::of(carrier, movement.as_ref()) else {
        return left("the host could not exchange the lengths of blocks");
    };
    let (true, Some(bundles), Some(movement)) = (exchanged.all_can(), bundles, movement) else {
        return left("the processes of a node share no memory");
    };
    if !exchanged.lengths_match() {
        return left("a process sends more or less than another receives");
    }
    let Some(plan) = Plan::of(Shape::Exchange, &order, &exchanged, &movement) else {
        return left("its blocks between nodes are too long");
    };
    let blocks = Some(Blocks::new(bundles, &order));
    make(carrier, order, plan, Buffers { blocks, ..Buffers::default() })
}

/// Makes the window, and the collective. Collective.
fn make(
    carrier: &mut Carrier,
    order: Order,
    plan: Plan,
    buffers: Buffers,
) -> Result<Box<dyn PersistentCollective>, NotServed> {
    let sums = [Sums::of(&order, &plan.programs), Sums::of(&order, &plan.gates)];
    let packs = buffers.blocks.is_some();
    let layouts = layouts(&plan, &sums, packs);
    if layouts.iter().any(|layout| layout.bytes() > MEMORY_MAX) {
        return Err(NotServed::LeftToHost("its buffers between the nodes would be too long"));
    }
    let me = order.positions[carrier.me as usize];
    let own = &layouts[me as usize];
    const NONE: &str = "the nodes cannot have a window for it";
    let made = window::make(carrier, own.bytes(), own.lines());
    let window = made.ok_or(NotServed::LeftToHost(NONE))?;
    let bases = bases(&order, me, &window);
    if let Some(bases) = &bases {
        // The exchange below orders this before all others' counting.
        own.clear(bases[me as usize]);
    }
    let all = gather(carrier, [u64::from(bases.is_some())]);
    let Some(bases) = bases.filter(|_| !carrier.failed && !all.contains(&[0])) else {
        return Err(NotServed::LeftToHost("the processes of a node share no memory"));
    };
    let Plan { programs, gates, unit } = plan;
    let program = |all: Vec<_>| all.into_iter().nth(me as usize);
    let main = program(programs).expect("each process has a program");
    let [_, received, ..] = main.areas();
    let received = if packs { 0 } else { received as usize * unit };
    let terms = Terms { me, unit, buffers, received };
    let gate = program(gates).map(|gate| (gate, &sums[1].totals));
    let repeated = Repeated::new((main, &sums[0].totals), gate);
    let memory = Memory::new(terms, order, (layouts, bases), &sums);
    Ok(Box::new(OverNodes { repeated, memory, window }))
}

/// Where the memory of each process is here, by position. 0: on another node. `None`: the processes
/// of this node do not map each other's.
fn bases(order: &Order, me: u32, window: &window::InUse) -> Option<Vec<usize>> {
    let guard = enter();
    let window = guard.windows.get(window.0)?;
    let node = order.placement.node_of(me);
    (0..)
        .zip(&order.ranks)
        .map(|(at, rank)| match at {
            at if order.placement.node_of(at) != node => Some(0),
            at if at == me => Some(window.port.base().0),
            _ => window.port.mapped_target(*rank).map(|memory| memory.base as usize),
        })
        .collect()
}
