//! Which windows a sweep visits.
//!
//! Sweeps visit the *attended* windows: those that were called or contacted since they were last
//! found without work. A window that has something in flight, but moves only if a message arrives
//! for it, *rests*: it leaves the list, and the message brings it back. Otherwise a program that
//! puts to a hundred windows on other nodes would visit all of them again and again. If such a
//! window, or an idle one, gets an operation that leaves as a message, sweeps only send it: a full
//! visit touches several times as many cache lines.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Registry, WindowId};
use crate::engine::Rank;
use crate::runtime::process::Host;
use crate::runtime::window::{POLLS_PER_CLOCK, Window};
use crate::transport::shm;

/// Whether sweeps visit a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attendance {
    /// They do not: it is not in the list.
    No,
    /// They send what waits to be sent. Otherwise the window rests, or is idle.
    ToSend,
    /// They drive all that may move.
    Full,
}

/// A place in the list of windows that a sweep visits.
pub(crate) enum Attended<'a> {
    /// A window with work. `moved`: some of its requests were reported just now.
    Busy { window: &'a mut Window, moved: bool },
    /// A window without work. It has just left the list, and another window has its place.
    Idle { moved: bool },
    /// The list ends before this place.
    End,
}

/// If more windows than this are attended, a window without work is armed at once. Polling all of
/// them for a while would cost more than the doorbell.
const MAX_POLLED_LONGER: usize = 4;

/// Number of attended windows.
static ATTENDED: AtomicUsize = AtomicUsize::new(0);

/// Whether a sweep would visit no window. Hooks check it before they enter the runtime.
#[inline(always)]
pub(crate) fn nothing_attended() -> bool {
    ATTENDED.load(Ordering::Acquire) == 0
}

impl Registry {
    /// Has the next sweeps visit this window.
    #[inline(never)]
    pub(crate) fn attend(&mut self, id: WindowId) {
        let Some(window) = self.windows.get_mut(id) else { return };
        if std::mem::replace(&mut window.attendance, Attendance::Full) == Attendance::No {
            self.attended.push(id);
            self.publish_attended();
        }
    }

    /// Attends the window of the present call, which may have rested or been idle.
    pub(super) fn wake(&mut self, id: WindowId) {
        self.was_woken =
            self.windows.get(id).is_some_and(|window| window.attendance != Attendance::Full);
        self.attend(id);
    }

    /// Called after an operation to `target`. If the window rested or was idle before the present
    /// call, and the operation leaves as a message, sweeps only send it.
    #[inline]
    pub(crate) fn end_operation(&mut self, target: Rank) {
        if self.was_woken {
            let window = self.called();
            if window.only_message_waits(target) {
                window.attendance = Attendance::ToSend;
            }
        }
    }

    /// Whether no flush of any window has anything to wait for. Windows with operations in flight
    /// are attended, or rest.
    #[inline]
    pub(crate) fn nothing_to_flush(&mut self) -> bool {
        let flushed = |id: &WindowId| {
            self.windows.get(*id).is_none_or(|window| window.engine.has_nothing_to_flush())
        };
        self.attended.iter().all(flushed) && self.forget_quiet()
    }

    /// Forgets windows in the list of those that rest that have nothing in flight any more. False
    /// at the first that has.
    fn forget_quiet(&mut self) -> bool {
        while let Some(window) = self.resting.last().and_then(|id| self.windows.get_mut(*id)) {
            if !window.engine.is_quiet() {
                return false;
            }
            window.resting = false;
            self.resting.pop();
        }
        true
    }

    fn publish_attended(&self) {
        ATTENDED.store(self.attended.len(), Ordering::Release);
    }

    /// The window at this place of the list that a sweep goes through.
    #[inline]
    pub(crate) fn attended(&mut self, at: usize, host: &Host) -> Attended<'_> {
        let Some(id) = self.attended.get(at).copied() else { return Attended::End };
        let window = self.windows.get_mut(id).expect("attended windows are live");
        if window.attendance == Attendance::ToSend {
            return Attended::Busy { window, moved: false };
        }
        // A call may have completed a request and left nothing to wait for: report first.
        let moved = window.report(host);
        if window.is_idle(self.attended.len() > MAX_POLLED_LONGER) {
            window.attendance = Attendance::No;
            self.attended.swap_remove(at);
            ATTENDED.store(self.attended.len(), Ordering::Release);
            return Attended::Idle { moved };
        }
        Attended::Busy { window, moved }
    }

    /// Takes the window at this place off the list, which only a message moves now.
    #[inline]
    pub(crate) fn rest(&mut self, at: usize) {
        let id = self.attended.swap_remove(at);
        self.publish_attended();
        self.note_rest(id);
    }

    #[inline]
    fn note_rest(&mut self, id: WindowId) {
        let Some(window) = self.windows.get_mut(id) else { return };
        window.attendance = Attendance::No;
        if !std::mem::replace(&mut window.resting, true) {
            self.resting.push(id);
        }
    }

    /// Takes windows off the list, which only messages move now.
    pub(crate) fn rest_all(&mut self, ids: &[WindowId]) {
        ids.iter().for_each(|id| self.note_rest(*id));
        let Registry { windows, attended, .. } = self;
        let stays = |id: &WindowId| {
            windows.get(*id).is_some_and(|window| window.attendance != Attendance::No)
        };
        attended.retain(stays);
        self.publish_attended();
    }

    /// Called by each sweep, which does not visit the windows that rest.
    #[inline]
    pub(crate) fn pass_resting(&mut self) {
        if !self.resting.is_empty() {
            self.passed_resting += 1;
            if self.passed_resting == POLLS_PER_CLOCK {
                self.count_polls_of_resting();
            }
        }
    }

    /// Counts as many polls for each window that rests, so that a long wait is reported [EP-10].
    /// Forgets those that do not rest any more.
    #[cold]
    fn count_polls_of_resting(&mut self) {
        let polls = std::mem::take(&mut self.passed_resting);
        let Registry { windows, resting, .. } = self;
        resting.retain(|id| {
            let Some(window) = windows.get_mut(*id) else { return false };
            window.resting = window.attendance == Attendance::No && !window.engine.is_quiet();
            if window.resting {
                window.count_polls(polls);
            }
            window.resting
        });
    }

    /// Attends the windows that peers have contacted since the last call.
    #[cold]
    pub(crate) fn attend_rung(&mut self) {
        shm::take_rung(|slot| {
            for id in self.by_doorbell.get(&slot).into_iter().flatten() {
                let Some(window) = self.windows.get_mut(*id) else { continue };
                if window.was_contacted()
                    && std::mem::replace(&mut window.attendance, Attendance::Full) == Attendance::No
                {
                    self.attended.push(*id);
                }
            }
        });
        self.publish_attended();
    }

    /// Polls one window that is not attended, in turn, to serve a peer that could not ring the
    /// doorbell. True if anything moved.
    #[cold]
    pub(crate) fn check_next(&mut self, host: &Host) -> bool {
        let Some((slot, id)) = self.windows.next_from(self.next_checked) else { return false };
        self.next_checked = slot + 1;
        let window = self.windows.get_mut(id).expect("a live window");
        let moved = window.attendance == Attendance::No && window.advance(host);
        if moved {
            self.attend(id);
        }
        moved
    }

    /// Forgets a window that is freed.
    pub(super) fn forget_attended(&mut self, id: WindowId) {
        self.attended.retain(|other| *other != id);
        self.resting.retain(|other| *other != id);
        self.publish_attended();
    }
}
