//! Polls of calls that expect what they wait for soon.

use super::Window;
use crate::engine::{Outcome, Rank, RequestId};
use crate::runtime::process::Host;
use crate::runtime::progress::oversubscribed;
use crate::runtime::registry::Attendance;
use crate::runtime::transport::{Transport, with_port};

/// Polls for peers that are about to answer: about a microsecond.
pub(in crate::runtime) const POLLS_OF_A_RESTART: u32 = 24;

/// Polls before a request of the host is made. More polls gain nothing.
const POLLS_BEFORE_REQUEST: u32 = 4;

impl Window {
    /// Before restarted operations: waits for the posts for a moment, for the same reason as
    /// [`expect_posts`](Self::expect_posts).
    #[cold]
    pub(in crate::runtime) fn poll_posts(&mut self) {
        if self.polling_pays() {
            self.poll_words_of_posts();
        }
    }

    /// Whether polling for a moment pays: all peers write to memory of this node, and each has a
    /// core of its own.
    #[inline(always)]
    pub(crate) fn polling_pays(&self) -> bool {
        !oversubscribed() && !self.port.uses_network()
    }

    pub(super) fn poll_words_of_posts(&mut self) {
        for _ in 0..POLLS_OF_A_RESTART {
            if !with_port!(&mut self.port, port => self.engine.poll_posts(port)) {
                break;
            }
            std::hint::spin_loop();
        }
    }

    /// Polls the words by which peers grant access and say that they are done, for a moment, until
    /// a request is complete. Much cheaper than sweeps.
    pub(crate) fn poll_words(&mut self, id: RequestId) {
        const POLLS: u32 = 64;
        if self.port.uses_network() {
            return;
        }
        for _ in 0..POLLS {
            if !self.engine.is_pending(id) {
                return;
            }
            with_port!(&mut self.port, port => self.engine.poll_peers(port));
            std::hint::spin_loop();
        }
    }

    /// Called after a call that closes an epoch or starts a flush. Polls until in-flight operations
    /// stop completing, so that the *done* need not wait for the next call, which may come much
    /// later [PR-3]. Returns the outcome after that.
    #[inline]
    pub(crate) fn poll_while_moving(&mut self, outcome: Outcome) -> Outcome {
        let Outcome::Pending(id) = outcome else { return outcome };
        if self.polls {
            while self.engine.is_pending(id) && self.port.flush_and_poll() {
                with_port!(&mut self.port, port => self.engine.progress(port));
            }
        }
        if self.engine.is_pending(id) { outcome } else { Outcome::Complete }
    }

    /// Sends what waits to be sent, for a flush that waits for several windows.
    #[inline]
    pub(crate) fn send_waiting(&mut self) {
        if self.port.flush_and_poll() || !self.port.uses_network() {
            with_port!(&mut self.port, port => self.engine.progress(port));
        }
    }

    /// Whether a pending flush moves only if the window is driven, and not just by what arrives.
    #[inline]
    pub(in crate::runtime) fn needs_driving(&self) -> bool {
        let Transport::Routed(port) = &self.port else { return true };
        !port.awaits_contact() || (port.has_mates() && !self.engine.awaits_only_port())
    }

    /// Handles packets that have arrived, and answers them, if sweeps do not visit the window. True
    /// if that is all there is to do; otherwise they must visit it.
    #[inline]
    pub(in crate::runtime) fn serves_contact(&mut self, host: &Host) -> bool {
        match self.attendance {
            Attendance::Full => return false,
            Attendance::No if !self.resting => {}
            _ => return self.take_packets(host) && self.still_rests(),
        }
        let Transport::Routed(port) = &mut self.port else { return false };
        port.serve_packets()
    }

    /// Whether the window still rests after packets for it have been taken in.
    #[inline]
    pub(in crate::runtime) fn still_rests(&self) -> bool {
        let Transport::Routed(port) = &self.port else { return false };
        self.attendance != Attendance::Full && port.is_at_rest() && self.engine.awaits_only_port()
    }

    /// Handles packets that have arrived in a window with operations in flight. True if that is all
    /// there is to do; otherwise the window must be driven.
    pub(in crate::runtime) fn take_packets(&mut self, host: &Host) -> bool {
        let Transport::Routed(port) = &mut self.port else { return false };
        let served = port.serve_packets();
        self.engine.take_finished(&mut **port);
        self.progressed = true;
        self.report(host);
        served
    }

    /// As [`advance`](Self::advance), for a window that waits for other nodes only. `None`: the
    /// window must be advanced. Otherwise, whether sweeps need not visit it until a message arrives
    /// or a node-mate rings.
    #[inline]
    pub(in crate::runtime) fn only_sends(&mut self) -> Option<bool> {
        let Transport::Routed(port) = &mut self.port else { return None };
        let rested = match self.attendance {
            Attendance::No => self.resting,
            Attendance::ToSend => true,
            Attendance::Full => false,
        };
        let only_sends =
            if rested { port.sends() } else { self.engine.awaits_only_port() && port.only_sends() };
        if !only_sends {
            return None;
        }
        let rests = port.rests();
        self.count_poll();
        Some(rests)
    }

    /// Whether only a message to `target` waits in this window, which rested or was idle before its
    /// last operation.
    pub(in crate::runtime) fn only_message_waits(&self, target: Rank) -> bool {
        let Transport::Routed(port) = &self.port else { return false };
        port.goes_by_message(target) && self.engine.awaits_only_port()
    }

    /// Takes in what has arrived from other nodes, and answers it. Enough for a window that waits
    /// for nothing else. True if anything moved.
    pub(crate) fn take_arrived(&mut self, host: &Host) -> bool {
        let Transport::Routed(port) = &mut self.port else { return false };
        let moved = port.poll_network() && {
            self.engine.take_finished(&mut **port);
            self.note_progress();
            true
        };
        self.report(host) | moved
    }

    /// Polls a few times before the host's request of a pending request is made. Making it takes
    /// longer than many requests are pending, for example if a neighbour is just handing a lock
    /// over. True if the request is complete.
    #[inline]
    pub(crate) fn poll_before_request(&mut self, id: RequestId, host: &Host) -> bool {
        // A deferred epoch waits for other epochs.
        if self.engine.defers() {
            return false;
        }
        (0..POLLS_BEFORE_REQUEST).any(|_| {
            self.advance(host);
            !self.engine.is_pending(id)
        })
    }
}
