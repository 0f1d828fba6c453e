//! Waits for several windows at once [FL-2].

use super::continuations::{self, Thread, any_runnable};
use super::process::{self, Guard, Host, State, enter};
use super::progress::{Backoff, sweep};
use super::registry::{Registry, WindowId};
use super::transport::any_skipped;
use super::window::Window;
use crate::engine::Rank;
use crate::transport::am::context::any_in_use;

/// Looks at several windows, of which most wait for something to arrive.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    /// Windows that each look drives.
    driven: Vec<WindowId>,
}

/// Whether a window moves only if it is driven.
fn needs_driving(window: &Window) -> bool {
    !window.engine.is_quiet() && window.needs_driving()
}

/// Takes in what has arrived. That is all if no operation is left.
fn drive(window: &mut Window, host: &Host) {
    window.take_arrived(host);
    if !window.engine.has_nothing_to_flush() {
        window.advance(host);
    }
}

/// Takes in what has arrived for a window, and drives it if that was not all. True if the window
/// rests, as before.
fn take_contact(windows: &mut Registry, id: WindowId, host: &Host) -> bool {
    let Some(window) = windows.get_mut(id) else { return false };
    if window.engine.has_nothing_to_flush() {
        process::take_contact(windows, id, host);
        return false;
    }
    let served = window.take_packets(host);
    if !served {
        drive(window, host);
    }
    let rests = served && window.still_rests();
    if !rests {
        windows.attend(id);
    }
    rests
}

impl Looks {
    pub(crate) fn at(windows: &Registry, ids: &[WindowId]) -> Self {
        let driven = |id: &&WindowId| windows.get(**id).is_some_and(needs_driving);
        Looks { driven: ids.iter().filter(driven).copied().collect() }
    }

    /// Polls the network once, and drives the windows that something has arrived for, and those
    /// that wait for nothing to arrive. Calls `seen` with each of them.
    pub(crate) fn look(&mut self, state: &mut State, mut seen: impl FnMut(&mut Window)) {
        let State { windows, network, host, contacted, .. } = state;
        let Looks { driven } = self;
        if any_in_use() {
            network.poll(|cookie| contacted.push(WindowId::of_word(cookie)));
        }
        if contacted.is_empty() && driven.is_empty() {
            return;
        }
        network.hold();
        driven.retain(|id| {
            let Some(window) = windows.get_mut(*id) else { return false };
            drive(window, host);
            seen(window);
            needs_driving(window)
        });
        for id in contacted.drain(..) {
            let rests = take_contact(windows, id, host);
            let Some(window) = windows.get_mut(id) else { continue };
            seen(window);
            if !rests && needs_driving(window) && !driven.contains(&id) {
                driven.push(id);
            }
        }
        network.send_held();
    }
}

/// Waits until `done`, which windows `ids` bring about. Drives the other windows and the host once
/// per round [PR-1]. `for_request`: as in [`Window::request_waits`], so that others may free the
/// windows.
pub(crate) fn wait_for_all(
    mut guard: Guard,
    ids: &[WindowId],
    for_request: bool,
    mut done: impl FnMut(&mut Registry) -> bool,
) -> Guard {
    if done(&mut guard.windows) {
        return guard;
    }
    let held = count_waits(&mut guard, ids, for_request);
    let mut looks = Looks::at(&guard.windows, ids);
    let mut guard = wait(guard, |state, _| {
        looks.look(state, |_| ());
        done(&mut state.windows)
    });
    uncount_waits(&mut guard, &held, for_request);
    guard
}

/// Looks until `look` returns true. It gets whether the rest of the process was driven since the
/// look before.
fn wait(mut guard: Guard, mut look: impl FnMut(&mut State, bool) -> bool) -> Guard {
    let host = guard.host;
    let mut backoff = Backoff::new();
    let mut round = false;
    while !look(&mut guard, round) {
        round = backoff.round();
        if round {
            sweep(&mut guard);
        }
        drop(guard);
        if round {
            (host.progress_host)();
        }
        if round || any_runnable() {
            continuations::run(Thread::Application);
        }
        backoff.pause();
        guard = enter();
    }
    guard
}

/// Keeps those windows alive that have not been freed. Returns them.
fn count_waits(state: &mut State, ids: &[WindowId], for_request: bool) -> Vec<WindowId> {
    let mut held = Vec::with_capacity(ids.len());
    for id in ids {
        if let Some(window) = state.windows.get_mut(*id) {
            window.waiting += 1;
            window.request_waits += u32::from(for_request);
            held.push(*id);
        }
    }
    held
}

fn uncount_waits(state: &mut State, held: &[WindowId], for_request: bool) {
    for id in held {
        let window = &mut state.windows[*id];
        window.waiting -= 1;
        window.request_waits -= u32::from(for_request);
    }
}

/// The flushes of several windows towards one target, or all, which one call waits for. Each window
/// is looked at only when it is driven, so the wait is one pass over the windows, not one per look.
struct Flushes {
    target: Option<Rank>,
    awaited: Vec<WindowId>,
    /// How many of them have not ended.
    left: usize,
    any_broken: bool,
}

impl Flushes {
    /// Sends what waits to be sent in the checked windows that `is_concerned`. The flushes of those
    /// that have something in flight then are awaited.
    fn begin(
        state: &mut State,
        target: Option<Rank>,
        is_concerned: impl Fn(&Window) -> bool,
    ) -> (Self, Looks) {
        let State { windows, checked, network, .. } = state;
        let most = checked.windows().len();
        let awaited = Vec::with_capacity(most);
        let mut flushes = Flushes { target, awaited, left: 0, any_broken: false };
        let mut looks = Looks::default();
        let mut at_rest = Vec::with_capacity(most);
        network.hold();
        for (id, _) in checked.windows() {
            let Some(window) = windows.get_mut(*id).filter(|window| is_concerned(window)) else {
                continue;
            };
            if std::mem::replace(&mut window.flush_awaited, true) {
                // The call has named the window twice.
                continue;
            }
            let rests = window.only_sends() == Some(true);
            if !rests {
                window.send_waiting();
            }
            window.waiting += 1;
            flushes.awaited.push(*id);
            flushes.left += 1;
            if !rests && needs_driving(window) {
                looks.driven.push(*id);
            }
            flushes.end_if_done(window);
            if rests {
                at_rest.push(*id);
            } else {
                windows.attend(*id);
            }
        }
        network.send_held();
        windows.rest_all(&at_rest);
        (flushes, looks)
    }

    /// Ends the wait for a window whose flush is complete, or that is broken.
    #[inline]
    fn end_if_done(&mut self, window: &mut Window) {
        if !window.flush_awaited {
            return;
        }
        let is_broken = window.port.is_broken();
        if is_broken || window.engine.is_flushed(self.target) {
            self.any_broken |= is_broken;
            window.flush_awaited = false;
            window.waiting -= 1;
            self.left -= 1;
        }
    }
}

/// Flushes the checked windows that `is_concerned`, and waits for all of them. Nobody calls
/// meanwhile, so what is in flight is all that the flushes wait for, and they need no requests.
/// Returns those whose faults are to be reported.
pub(crate) fn flush_checked(
    mut guard: Guard,
    target: Option<Rank>,
    is_concerned: impl Fn(&Window) -> bool,
) -> (Guard, Vec<WindowId>) {
    let (mut flushes, mut looks) = Flushes::begin(&mut guard, target, is_concerned);
    if flushes.left > 0 {
        guard = wait(guard, |state, swept| {
            looks.look(state, |window| flushes.end_if_done(window));
            if swept {
                // The sweep may have completed any of them.
                for at in 0..flushes.awaited.len() {
                    let id = flushes.awaited[at];
                    flushes.end_if_done(&mut state.windows[id]);
                }
            }
            flushes.left == 0
        });
    }
    let faulty = flushes.any_broken || any_skipped();
    (guard, if faulty { flushes.awaited } else { Vec::new() })
}
