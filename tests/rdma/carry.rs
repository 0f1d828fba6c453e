//! What carries the packets of these tests: RDMA on a device per process, and the hub.

use std::cell::Cell;
use std::sync::{Arc, Mutex};

use mpix_rma::engine::Rank;
use mpix_rma::transport::guarded::Guarded;
use mpix_rma::transport::members::RankTable;
use mpix_rma::transport::rdma::capabilities::{advertise, plan};
use mpix_rma::transport::rdma::context::Context;
use mpix_rma::transport::rdma::device::{AtomicCapability, Device};
use mpix_rma::transport::rdma::handshake::ProcessId;
use mpix_rma::transport::rdma::ibverbs::IbvDevice;
use mpix_rma::transport::rdma::ibverbs::PortSelection;
use mpix_rma::transport::rdma::{Endpoint, NicAtomics, SharedContext, WindowMemory};
use mpix_rma::transport::shm::ShmWindow;

use crate::hub::{Hub, LOCKED};
pub use crate::memory_device::Adapter;
use crate::memory_device::{MemoryDevice, SimulatedNetwork};

/// Some messages bypass the hub.
pub const ALL_BY_MESSAGES: bool = false;

/// The real device to use, if any.
pub fn device() -> Option<String> {
    std::env::var("MPIX_TEST_DEVICE").ok()
}

/// The limit of queue pairs per process, if given. All tests must pass with 1, but for those that
/// need several.
pub fn queues() -> Option<u32> {
    std::env::var("MPIX_TEST_QUEUES").ok().map(|text| text.parse().expect("a number of queues"))
}

type Beside = (Arc<Vec<SharedContext>>, Arc<Mutex<SimulatedNetwork>>);

/// The RDMA contexts of the processes that a hub connects.
pub fn contexts(hub: &Arc<Mutex<Hub>>) -> Arc<Vec<SharedContext>> {
    beside(hub).0
}

/// The network between in-memory devices.
pub fn net(hub: &Arc<Mutex<Hub>>) -> Arc<Mutex<SimulatedNetwork>> {
    beside(hub).1
}

fn beside(hub: &Arc<Mutex<Hub>>) -> Beside {
    let mut hub = hub.lock().unwrap();
    let (ranks, seed) = (hub.ranks, hub.seed);
    let held = hub.beside.get_or_insert_with(|| {
        let net = SimulatedNetwork::new(seed);
        net.lock().unwrap().completions = COMPLETIONS.get();
        net.lock().unwrap().fences =
            FENCES.get() && std::env::var_os("MPIX_TEST_NO_FENCES").is_none();
        let contexts: Vec<SharedContext> = (0..ranks)
            .map(|rank| {
                let nic: Box<dyn Device> = match device() {
                    Some(name) => {
                        let wanted = PortSelection::read(if name == "any" { "" } else { &name })
                            .expect("a device's name");
                        Box::new(IbvDevice::open(&wanted).expect("a device"))
                    }
                    None => {
                        let adapter = ADAPTERS.get()(rank, seed);
                        let idle = Adapter::with(AtomicCapability::None);
                        Box::new(MemoryDevice::new(&net, adapter.unwrap_or(idle)))
                    }
                };
                let name = ProcessId([u64::from(rank) + 1, 1]);
                let mut context = Context::new(nic, name).expect("buffers can be registered");
                if let Some(most) = queues() {
                    context.set_max_qps(most);
                }
                // SAFETY: each test uses it in one thread.
                Arc::new(unsafe { Guarded::new(context, &LOCKED) })
            })
            .collect();
        Box::new((Arc::new(contexts), net))
    });
    held.downcast_ref::<Beside>().expect("made here").clone()
}

/// The adapters of the processes of a job.
pub type Adapters = fn(Rank, u64) -> Option<Adapter>;

thread_local! {
    /// Whether windows created next use RDMA at all.
    pub static RDMA: Cell<bool> = const { Cell::new(true) };
    /// The adapter of each process, by its rank and the seed of the test, in windows created next.
    /// `None`: the process has none.
    pub static ADAPTERS: Cell<Adapters> =
        const { Cell::new(|_, _| Some(Adapter::with(AtomicCapability::Hca))) };
    /// What device atomics are used for in windows created next, if all processes have them.
    pub static NIC_ATOMICS: Cell<NicAtomics> = const { Cell::new(NicAtomics::LockWords) };
    /// Completion queue entries of in-memory devices created next.
    pub static COMPLETIONS: Cell<u32> = const { Cell::new(256) };
    /// Whether the fence flag works in in-memory devices created next. `MPIX_TEST_NO_FENCES=1`: in
    /// none.
    pub static FENCES: Cell<bool> = const { Cell::new(true) };
}

/// Polls an RDMA context. True if anything has happened.
pub type Poll = Box<dyn FnMut() -> bool + Send>;

/// The RDMA endpoint of a process, which has rank `place` in the window `near`, and what polls its
/// context.
pub fn endpoint(
    hub: &Arc<Mutex<Hub>>,
    me: Rank,
    near: &ShmWindow,
    place: Rank,
) -> Option<(Endpoint, Poll)> {
    if !RDMA.get() {
        return None;
    }
    let contexts = contexts(hub);
    let context = Arc::clone(&contexts[me as usize]);
    let single = NIC_ATOMICS.get() == NicAtomics::LockWordsAndAccumulates;
    let seed = hub.lock().unwrap().seed;
    let offers = |rank: usize| {
        let has_adapter = device().is_some() || ADAPTERS.get()(rank as Rank, seed).is_some();
        advertise(has_adapter.then(|| &contexts[rank]), single)
    };
    let all = RankTable::new((0..contexts.len()).map(offers));
    let mine = all.of(me);
    if mine == 0 {
        return None;
    }
    let (reachable, atomics) = plan(mine, &all);
    let (bytes, _) = near.extent_of(place);
    let own = WindowMemory { base: near.base(), bytes };
    let endpoint = unsafe { Endpoint::new(&context, me, reachable, atomics, own) };
    Some((endpoint.expect("words"), Box::new(move || context.borrow().poll())))
}
