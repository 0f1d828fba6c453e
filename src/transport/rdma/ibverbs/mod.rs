//! The RDMA device of libibverbs, which is loaded at run time.

mod device;
mod events;
mod kept;
mod objects;
mod ports;
#[allow(non_camel_case_types, reason = "the names are those of <infiniband/verbs.h>")]
pub mod sys;

pub use device::IbvDevice;
pub use ports::PortSelection;
