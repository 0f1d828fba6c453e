//! What carries the messages of these tests: an interface for each process, and the hub for what
//! goes through the host.

use std::sync::{Arc, Mutex};

use mpix_rma::engine::Rank;
use mpix_rma::transport::host_mpi::members::Table;
use mpix_rma::transport::shm::ShmWindow;
use mpix_rma::transport::verbs::device::Device;
use mpix_rma::transport::verbs::fabric::Fabric;
use mpix_rma::transport::verbs::hello::Name;
use mpix_rma::transport::verbs::nic::Nic;
use mpix_rma::transport::verbs::ports::Wanted;
use mpix_rma::transport::verbs::{Direct, Domain, Own, Shared, VerbsCourier};

use crate::hub::{Hub, HubCourier};
use crate::net::{MemoryNic, Net};

pub type Carrier = VerbsCourier<HubCourier>;

/// What goes through the hub is not all.
pub const ALL_BY_MESSAGES: bool = false;

/// The real device that is to be used, if any.
pub fn device() -> Option<String> {
    std::env::var("MPIX_TEST_DEVICE").ok()
}

/// How many queues a process may have, if that is not left to it: all tests are to pass with a
/// single one, but for those that are about several.
pub fn queues() -> Option<u32> {
    std::env::var("MPIX_TEST_QUEUES").ok().map(|text| text.parse().expect("a number of queues"))
}

type Beside = (Arc<Vec<Shared>>, Arc<Mutex<Net>>);

/// The interfaces of the processes that a hub connects.
pub fn fabrics(hub: &Arc<Mutex<Hub>>) -> Arc<Vec<Shared>> {
    beside(hub).0
}

/// What connects them, if they are in memory.
pub fn net(hub: &Arc<Mutex<Hub>>) -> Arc<Mutex<Net>> {
    beside(hub).1
}

fn beside(hub: &Arc<Mutex<Hub>>) -> Beside {
    let mut hub = hub.lock().unwrap();
    let ranks = hub.ranks;
    let held = hub.beside.get_or_insert_with(|| {
        let net = Net::new(u64::from(ranks) + 17);
        net.lock().unwrap().completions = COMPLETIONS.get();
        net.lock().unwrap().fences =
            FENCES.get() && std::env::var_os("MPIX_TEST_NO_FENCES").is_none();
        let fabrics: Vec<Shared> = (0..ranks)
            .map(|rank| {
                let nic: Box<dyn Nic> = match device() {
                    Some(name) => {
                        let wanted = Wanted::read(if name == "any" { "" } else { &name })
                            .expect("a device's name");
                        Box::new(Device::open(&wanted).expect("a device"))
                    }
                    None => Box::new(MemoryNic::new(&net)),
                };
                let name = Name([u64::from(rank) + 1, 1]);
                let mut fabric = Fabric::new(nic, name).expect("buffers can be registered");
                if let Some(most) = queues() {
                    fabric.limit_queues(most);
                }
                Arc::new(Mutex::new(fabric))
            })
            .collect();
        Box::new((Arc::new(fabrics), net))
    });
    held.downcast_ref::<Beside>().expect("made here").clone()
}

thread_local! {
    /// What the atomics of the windows that are made next are used for.
    pub static DOMAIN: std::cell::Cell<Domain> = const { std::cell::Cell::new(Domain::Locks) };
    /// Completions that the interfaces in memory that are made next have room for.
    pub static COMPLETIONS: std::cell::Cell<u32> = const { std::cell::Cell::new(256) };
    /// Whether requests may wait for reads in the interfaces in memory that are made next; without,
    /// for all tests: `MPIX_TEST_NO_FENCES=1`.
    pub static FENCES: std::cell::Cell<bool> = const { std::cell::Cell::new(true) };
}

pub fn carry(hub: &Arc<Mutex<Hub>>, me: Rank, near: &ShmWindow, place: Rank) -> Carrier {
    let fabric = Arc::clone(&fabrics(hub)[me as usize]);
    let ranks = hub.lock().unwrap().ranks;
    let (bytes, _) = near.extent_of(place);
    let own = Own { base: near.base(), bytes };
    let direct = unsafe {
        Direct::new(&fabric, (me, ranks), Table::new((0..ranks).map(|_| true)), DOMAIN.get(), own)
    }
    .expect("words");
    VerbsCourier::new(HubCourier::new(hub, me), direct)
}
