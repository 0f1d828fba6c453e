//! The contract of [`Port`](mpix_rma::engine::Port), on every transport: shared memory, active
//! messages, RDMA, and the simulated network. The bodies are in `conformance`; each world says what
//! its transport can do beyond the contract.
#![cfg(not(loom))]
#![allow(clippy::needless_range_loop, reason = "ranks and rounds are numbers first")]
#![allow(unreachable_pub, dead_code, reason = "a test binary exports nothing")]
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "tests read and write the buffers that they own"
)]

mod conformance;
mod ordered;
mod programs;
mod real;
mod routed;
mod sim;
mod together;

#[path = "../rdma/carry.rs"]
mod carry;
#[path = "../am/hub.rs"]
mod hub;
#[path = "../rdma/memory_device/mod.rs"]
mod memory_device;
#[path = "../am/world.rs"]
mod world;

/// All bodies for one world.
macro_rules! conforms {
    ($($name:ident: $world:ty;)*) => { $(
        mod $name {
            use crate::conformance as body;
            #[test]
            fn operations_do_what_they_say() {
                body::operations_do_what_they_say::<$world>();
            }
            #[test]
            fn at1_accumulates_of_one_origin_keep_their_order() {
                body::at1_accumulates_of_one_origin_keep_their_order::<$world>();
            }
            #[test]
            fn fe2_a_signal_comes_after_the_operations_before_it() {
                body::fe2_a_signal_comes_after_the_operations_before_it::<$world>();
            }
            #[test]
            fn signals_of_every_word_arrive_from_everywhere() {
                body::signals_of_every_word_arrive_from_everywhere::<$world>();
            }
            #[test]
            fn lk7_every_word_is_one_word_from_wherever_it_is_accessed() {
                body::lk7_every_word_is_one_word_from_wherever_it_is_accessed::<$world>();
            }
            #[test]
            fn lk1_additions_to_a_lock_word_are_atomic() {
                body::lk1_additions_to_a_lock_word_are_atomic::<$world>();
            }
            #[test]
            fn a_count_comes_behind_its_data() {
                body::a_count_comes_behind_its_data::<$world>();
            }
            #[test]
            fn tags_of_one_origin_come_in_order_behind_their_data() {
                body::tags_of_one_origin_come_in_order_behind_their_data::<$world>();
            }
            #[test]
            fn a_flood_is_refused_and_nothing_is_lost() {
                body::a_flood_is_refused_and_nothing_is_lost::<$world>();
            }
            #[test]
            fn or1_operations_take_effect_in_order() {
                crate::ordered::or1_operations_take_effect_in_order::<$world>();
            }
            #[test]
            fn or1_a_flag_is_seen_behind_its_data() {
                crate::ordered::or1_a_flag_is_seen_behind_its_data::<$world>();
            }
            #[test]
            fn reports_come_behind_what_they_report() {
                crate::programs::reports_come_behind_what_they_report::<$world>();
            }
        }
    )* };
}

conforms! {
    shm_allocated: crate::together::Allocated;
    shm_created: crate::together::Created;
    shm_created_with_cma: crate::together::CreatedWithCma;
    messages: crate::routed::Messages;
    messages_on_nodes: crate::routed::OnNodes;
    rdma: crate::routed::Rdma;
    rdma_accumulates: crate::routed::RdmaAccumulates;
    rdma_without_atomics: crate::routed::RdmaWithoutAtomics;
    rdma_global_atomics: crate::routed::RdmaGlobalAtomics;
    rdma_mixed: crate::routed::RdmaMixed;
}

#[cfg(feature = "sim")]
conforms! {
    simulated: crate::sim::Simulated;
}
