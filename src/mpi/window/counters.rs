//! How many notification counters each process of a window has.

use std::ffi::c_int;

use super::free::any_objection;
use crate::mpi::abi::error::Fault;
use crate::mpi::abi::sys::*;
use crate::mpi::rma::call::{Done, broken};
use crate::runtime::{Guard, Window, WindowId};
use crate::transport::shm::CounterStep;

/// Why this process cannot have that many counters, if it cannot.
fn objection(window: &Window, number: c_int) -> Option<Fault> {
    let refuse = |class, text| Some(Fault::new(class, text));
    let Ok(wanted) = u32::try_from(number) else {
        return refuse(MPI_ERR_ARG, "num is negative");
    };
    let most = window.hints.max_counters;
    if most != 0 && wanted > most {
        const ASSERTED: &str =
            "num is beyond what the info key mpi_assert_max_num_notify has asserted";
        return refuse(MPI_ERR_ARG, ASSERTED);
    }
    if wanted < window.counters_in_use() {
        const RAISED: &str = "num leaves out the counter of the info key mpix_rma_notify_puts";
        return refuse(MPI_ERR_ARG, RAISED);
    }
    if window.engine.awaits_counters() {
        return refuse(MPI_ERR_RMA_SYNC, "a wait for a counter is pending");
    }
    if window.engine.has_operations() {
        return refuse(MPI_ERR_RMA_SYNC, "operations of this process are not complete");
    }
    None
}

/// Sets the number of counters of this process. Collective over the window.
pub(crate) fn set_number(mut guard: Guard, id: WindowId, number: c_int) -> Done {
    let mut fault = objection(&guard[id], number);
    let wanted = u32::try_from(number).unwrap_or(0);
    let mut objected = false;
    let mut bases = None;
    for step in [CounterStep::Want, CounterStep::Create, CounterStep::Map] {
        if fault.is_none() {
            if let Err(reason) = guard[id].port.make_counters(step, wanted) {
                log::warn!("{wanted} notification counters cannot be made: {reason}");
                fault = Some(Fault::new(MPI_ERR_NO_MEM, "out of memory for notification counters"));
            } else if step == CounterStep::Map {
                guard[id].forget_counters();
                bases = Some(guard[id].engine.begin_counters());
            }
        }
        (guard, objected) = any_objection(guard, id, fault.is_some());
        if objected {
            break;
        }
    }
    let ours = &mut guard[id];
    ours.forget_counters(); // other threads may have opened a fast path during the waits
    ours.port.counters_made(!objected);
    if let Some(bases) = bases.filter(|_| objected) {
        ours.engine.resume_counters(bases);
    }
    if objected && ours.port.is_broken() {
        fault.get_or_insert_with(|| broken(ours));
    }
    drop(guard);
    match fault {
        Some(fault) => Err(fault),
        None if objected => {
            Err(Fault::new(MPI_ERR_ARG, "another process of the window cannot set its counters"))
        }
        None => Ok(()),
    }
}
