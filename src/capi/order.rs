//! Order without completion [OR-1].

use std::ffi::c_int;

use crate::mpi::abi::sys::*;
use crate::mpi::rma::args;
use crate::mpi::rma::call::{Done, window_calls};
use crate::mpi::rma::fast_path;
use crate::runtime::process::multiple;
use crate::runtime::progress::sweep_between_calls;
use crate::runtime::{Guard, with_port};
use crate::transport::shm::protocol::{order_all, order_operations};

/// Orders the operations to one target, or to all.
fn order(mut guard: Guard, target: Option<u32>) -> Done {
    let window = guard.windows.called();
    with_port!(&mut window.port, port => window.engine.order(port, target))?;
    match target {
        Some(target) => window.update_fast_path(target),
        None => window.close_fast_path(),
    }
    if multiple() {
        order_all();
    } else {
        order_operations();
        guard.windows.order_gets();
    }
    if guard.windows.count_call() {
        sweep_between_calls(&mut guard);
    }
    Ok(())
}

window_calls! { win;
    /// Has later operations to a target take effect after earlier ones.
    MPIX_Win_order(rank: c_int, win: MPI_Win),
        |mut guard| {
            const OUTSIDE: &str = "rank is outside the window's group";
            match args::rank(guard.windows.called(), rank, OUTSIDE)? {
                Some(rank) => order(guard, Some(rank)),
                None => Ok(()),
            }
        },
        unless fast_path::order(win, rank), before fast_path::order_again(win, rank);
    /// Has later operations to each target take effect after earlier ones to the same target.
    MPIX_Win_order_all(win: MPI_Win), |guard| order(guard, None),
        unless fast_path::order_all(win);
}
