//! Waits for several windows at once [FL-2].

use super::continuations::{self, Thread, any_runnable};
use super::process::{Guard, Host, State, enter};
use super::progress::{Backoff, sweep};
use super::registry::{Registry, WindowId};
use super::window::Window;
use crate::transport::am::context::any_in_use;

/// Looks at several windows, of which most wait for something to arrive.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    /// Windows that each look drives.
    driven: Vec<WindowId>,
    /// Windows that something has arrived for; memory to be used again.
    contacted: Vec<WindowId>,
}

/// Whether a window moves only if it is driven.
fn needs_driving(window: &Window) -> bool {
    !window.engine.is_quiet() && !window.port.awaits_contact()
}

/// Takes in what has arrived. That is all if no operation is left.
fn drive(window: &mut Window, host: &Host) {
    window.take_arrived(host);
    if !window.engine.has_nothing_to_flush() {
        window.advance(host);
    }
}

impl Looks {
    pub(crate) fn at(windows: &Registry, ids: &[WindowId]) -> Self {
        let driven = |id: &&WindowId| windows.get(**id).is_some_and(needs_driving);
        Looks { driven: ids.iter().filter(driven).copied().collect(), contacted: Vec::new() }
    }

    /// Polls the network once, and drives the windows that something has arrived for, and those
    /// that wait for nothing to arrive.
    pub(crate) fn look(&mut self, state: &mut State) {
        let State { windows, network, host, .. } = state;
        let Looks { driven, contacted } = self;
        if any_in_use() {
            network.poll(|cookie| contacted.push(WindowId::of_word(cookie)));
        }
        network.hold();
        driven.retain(|id| {
            let Some(window) = windows.get_mut(*id) else { return false };
            drive(window, host);
            needs_driving(window)
        });
        for id in contacted.drain(..) {
            windows.attend(id);
            let Some(window) = windows.get_mut(id) else { continue };
            drive(window, host);
            if needs_driving(window) && !driven.contains(&id) {
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
    let host = guard.host;
    let held = count_waits(&mut guard, ids, for_request);
    let mut backoff = Backoff::new();
    let mut looks = Looks::at(&guard.windows, ids);
    loop {
        looks.look(&mut guard);
        if done(&mut guard.windows) {
            uncount_waits(&mut guard, &held, for_request);
            return guard;
        }
        let round = backoff.round();
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
