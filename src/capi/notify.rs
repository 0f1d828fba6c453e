//! Counters of notified access, and waiting for them.

use std::ffi::c_int;

use crate::engine::{Notified, Outcome};
use crate::mpi::abi::argument::Out;
use crate::mpi::abi::error::Fault;
use crate::mpi::abi::sys::*;
use crate::mpi::request::task::pause;
use crate::mpi::rma::call::{
    Checked, Done, admit, deliver, not_complete, require, wait_for, wait_unless_broken,
    window_calls,
};
use crate::mpi::rma::fast_path;
use crate::mpi::window::set_number;
use crate::runtime::progress::{CounterWait, FocusedPoll, step, sweep_between_calls};
use crate::runtime::window::CounterOutput;
use crate::runtime::{Guard, Scope, Window, with_port};

/// Checked arguments: counters of this process, and the value to wait for.
#[derive(Clone, Copy)]
struct Range {
    first: u32,
    number: u32,
    expected: u64,
}

/// Checks the arguments for the counters `first` to `first + number - 1` of this process.
fn own(window: &Window, first: c_int, number: c_int, expected: MPI_Count) -> Checked<Range> {
    let refuse = |text| Err(Fault::new(MPI_ERR_ARG, text));
    let there = window.port.counters_of(window.rank());
    let (Ok(first), Ok(number)) = (u32::try_from(first), u32::try_from(number)) else {
        return refuse("the index or number of counters is negative");
    };
    if number == 0 {
        return refuse("the number of counters is 0");
    }
    if there == 0 {
        return refuse("this process has no counters on the window (MPIX_Win_set_num_notify)");
    }
    if first >= there || number > there - first {
        return refuse(
            "the index is beyond the counters of this process (MPIX_Win_get_num_notify)",
        );
    }
    let Ok(expected) = u64::try_from(expected) else { return refuse("expected is negative") };
    Ok(Range { first, number, expected })
}

/// The output arguments of a call that waits for one of several counters.
fn counter_output(index: Out<'_, c_int>, value: Out<'_, MPI_Count>) -> Checked<CounterOutput> {
    require(index, "idx is NULL")?;
    require(value, "value is NULL")?;
    // SAFETY: `mpix_notify.h` requires of the application that both are memory for their types,
    // which is the library's until the call ends, or the request that it makes is complete.
    Ok(unsafe { CounterOutput::new(index.as_ptr(), value.as_ptr()) })
}

fn look(window: &mut Window, range: Range) -> Option<Notified> {
    let Range { first, number, expected } = range;
    with_port!(&mut window.port, port => {
        window.engine.look_at_counters(port, first, number, expected)
    })
}

/// Blocks until a round of looks finds a counter that is high enough. Polls only the counters at
/// first, and makes progress if they do not change for a while.
fn block(guard: Guard, looks: impl FnMut(&mut Window) -> bool) -> Done {
    let id = guard.windows.called_id();
    let mut guard = wait_unless_broken(guard, id, looks)?;
    guard[id].answers = true;
    Ok(())
}

/// Blocks until the first counter is high enough.
fn wait_for_one(mut guard: Guard, range: Range) -> Done {
    let window = guard.windows.called();
    if window.engine.had_counted(range.first, range.expected) {
        return Ok(());
    }
    if pause::in_task() {
        return wait_in_task(guard, range, CounterOutput::none());
    }
    let mut wait = CounterWait::begin(window, range.first, range.expected);
    block(guard, |window| wait.look(window))
}

/// Makes progress now and then, as a put does, before a wait is made: after that, a sweep would
/// often find the counter high enough, and would have to complete the request at the host, which
/// takes longer than the wait for it. The sweep may find that the window has no work, but the wait
/// is work.
fn drive_before(guard: &mut Guard) {
    if guard.windows.count_call() {
        let id = guard.windows.called_id();
        sweep_between_calls(guard);
        guard.windows.attend(id);
    }
}

/// Starts a nonblocking wait.
fn start(
    mut guard: Guard,
    range: Range,
    output: CounterOutput,
    request: Out<'_, MPI_Request>,
) -> Done {
    drive_before(&mut guard);
    let ours = guard.windows.called();
    let (outcome, found) = with_port!(&mut ours.port, port => {
        ours.engine.await_counters(port, range.first, range.number, range.expected)
    });
    match (outcome, found) {
        (_, Some(found)) => output.write(found),
        (Outcome::Pending(request), None) => ours.keep_counter_output(request, output),
        (Outcome::Complete, None) => {}
    }
    deliver(guard, outcome, Scope::Operation, request)
}

/// The thresholds of a wait for `number` counters; without an array, 1 for each.
///
/// # Safety
/// `thresholds` is NULL, or points to `number` values.
unsafe fn thresholds_of(thresholds: *const MPI_Count, number: u32) -> Checked<Vec<u64>> {
    if thresholds.is_null() {
        return Ok(vec![1; number as usize]);
    }
    // SAFETY: the contract of this function.
    let given = unsafe { std::slice::from_raw_parts(thresholds, number as usize) };
    let refuse = |_| Fault::new(MPI_ERR_ARG, "thresholds has a negative value");
    given.iter().map(|threshold| u64::try_from(*threshold).map_err(refuse)).collect()
}

/// Starts a nonblocking wait for all of some counters.
fn start_all(
    mut guard: Guard,
    first: u32,
    thresholds: &[u64],
    output: CounterOutput,
    request: Out<'_, MPI_Request>,
) -> Done {
    drive_before(&mut guard);
    let ours = guard.windows.called();
    let (outcome, values) = with_port!(&mut ours.port, port => {
        ours.engine.await_all_counters(port, first, thresholds)
    });
    match (outcome, values) {
        (_, Some(values)) => output.write_all(&values),
        (Outcome::Pending(request), None) => ours.keep_counter_output(request, output),
        (Outcome::Complete, None) => {}
    }
    deliver(guard, outcome, Scope::Operation, request)
}

/// Pauses the current task until a counter is high enough.
#[cold]
fn wait_in_task(mut guard: Guard, range: Range, output: CounterOutput) -> Done {
    let id = guard.windows.called_id();
    let ours = guard.windows.called();
    let (outcome, found) = with_port!(&mut ours.port, port => {
        ours.engine.await_counters(port, range.first, range.number, range.expected)
    });
    match (outcome, found) {
        (_, Some(found)) => output.write(found),
        (Outcome::Pending(request), None) => {
            ours.keep_counter_output(request, output);
            wait_for(guard, id, request, None)?;
        }
        (Outcome::Complete, None) => {}
    }
    Ok(())
}

/// Counters read between two sweeps.
const READS_PER_SWEEP: u32 = 8;

/// Reads a counter of this process, and sets it to 0 if the call `resets`. Sweeps now and then: a
/// program may make no other calls [PR-1].
#[inline(always)]
fn read(mut guard: Guard, index: c_int, value: Out<'_, MPI_Count>, resets: bool) -> Done {
    require(value, "value is NULL")?;
    let ours = guard.windows.called();
    let Range { first, .. } = own(ours, index, 1, 0)?;
    let seen = with_port!(&mut ours.port, port => match resets {
        true => ours.engine.reset_counter(port, first),
        false => ours.engine.counter(port, first),
    });
    value.write(seen as MPI_Count);
    guard.polls = guard.polls.wrapping_add(1);
    if guard.polls.is_multiple_of(READS_PER_SWEEP) {
        step(guard);
    }
    Ok(())
}

window_calls! { win;
    /// Collective: sets the number of counters of this process to `num`. All counters start at 0.
    MPIX_Win_set_num_notify(win: MPI_Win, info: MPI_Info, num: c_int),
        |guard| {
            let _ = info;
            let id = guard.windows.called_id();
            set_number(guard, id, num)
        };
    /// Returns the number of counters of a process.
    MPIX_Win_get_num_notify(win: MPI_Win, rank: c_int; num: c_int),
        |mut guard| {
            require(num, "num is NULL")?;
            let window = guard.windows.called();
            let Some(rank) = u32::try_from(rank).ok().filter(|rank| *rank < window.size) else {
                return Err(Fault::new(MPI_ERR_RANK, "rank is outside the window's group"));
            };
            // The number of counters fits an int.
            num.write(window.port.counters_of(rank) as c_int);
            Ok(())
        };
    /// Returns the value of a counter of this process.
    MPIX_Win_get_notify_value(win: MPI_Win, notification_idx: c_int; value: MPI_Count),
        |guard| read(guard, notification_idx, value, false);
    /// Returns the value of a counter of this process and sets it to 0.
    MPIX_Win_reset_notify_value(win: MPI_Win, notification_idx: c_int; value: MPI_Count),
        |guard| read(guard, notification_idx, value, true);
    /// Complete when the counter is at least `expected`.
    MPIX_Win_notify_ithreshold(
        win: MPI_Win, notification_idx: c_int, expected: MPI_Count; request: MPI_Request
    ),
        |mut guard| {
            admit(request)?;
            let range = own(guard.windows.called(), notification_idx, 1, expected)?;
            start(guard, range, CounterOutput::none(), request)
        };
    /// Returns when the counter is at least `expected`.
    MPIX_Win_notify_threshold(win: MPI_Win, notification_idx: c_int, expected: MPI_Count),
        |mut guard| {
            let range = own(guard.windows.called(), notification_idx, 1, expected)?;
            wait_for_one(guard, range)
        },
        unless fast_path::threshold(win, notification_idx, expected);
    /// Tests whether the counter is at least `expected`.
    MPIX_Win_notify_test_threshold(
        win: MPI_Win, notification_idx: c_int, expected: MPI_Count; flag: c_int
    ),
        |mut guard| {
            require(flag, "flag is NULL")?;
            let window = guard.windows.called();
            let range = own(window, notification_idx, 1, expected)?;
            let reached = window.has_counted(range.first, range.expected);
            if !reached {
                not_complete(guard)?;
            }
            flag.write(c_int::from(reached));
            Ok(())
        };
    /// Complete when one of `num` counters from `first` on is not 0. `idx` and `value` are its
    /// index and value.
    MPIX_Win_notify_iwaitsome(
        win: MPI_Win, first: c_int, num: c_int; idx: c_int, value: MPI_Count, request: MPI_Request
    ),
        |mut guard| {
            admit(request)?;
            let output = counter_output(idx, value)?;
            let range = own(guard.windows.called(), first, num, 1)?;
            start(guard, range, output, request)
        };
    /// Complete when each of `num` counters from `first` on has been at least its threshold.
    /// `values` gets their values, or is NULL.
    MPIX_Win_notify_iwaitall(
        win: MPI_Win, first: c_int, num: c_int, thresholds: *const MPI_Count,
        values: *mut MPI_Count; request: MPI_Request
    ),
        |mut guard| {
            admit(request)?;
            let range = own(guard.windows.called(), first, num, 0)?;
            // SAFETY: `mpix_notify.h` requires of the application that both are NULL or have `num`
            // values; `values` is the library's until the request is complete.
            let (thresholds, output) = unsafe {
                (thresholds_of(thresholds, range.number)?, CounterOutput::of_list(values))
            };
            start_all(guard, range.first, &thresholds, output, request)
        };
    /// Returns when one of `num` counters from `first` on is not 0.
    MPIX_Win_notify_waitsome(win: MPI_Win, first: c_int, num: c_int; idx: c_int, value: MPI_Count),
        |mut guard| {
            let output = counter_output(idx, value)?;
            let range = own(guard.windows.called(), first, num, 1)?;
            if pause::in_task() {
                return wait_in_task(guard, range, output);
            }
            let mut focused = FocusedPoll::default();
            block(guard, |window| {
                focused.look(window, |window| {
                    let found = look(window, range);
                    if let Some(found) = found {
                        output.write(found);
                    }
                    found.is_some()
                })
            })
        };
    /// Tests whether one of `num` counters from `first` on is not 0.
    MPIX_Win_notify_testsome(
        win: MPI_Win, first: c_int, num: c_int; idx: c_int, value: MPI_Count, flag: c_int
    ),
        |mut guard| {
            let output = counter_output(idx, value)?;
            require(flag, "flag is NULL")?;
            let window = guard.windows.called();
            let range = own(window, first, num, 1)?;
            let found = look(window, range);
            match found {
                Some(found) => output.write(found),
                None => not_complete(guard)?,
            }
            flag.write(c_int::from(found.is_some()));
            Ok(())
        };
}
