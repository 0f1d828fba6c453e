//! When a message may use one direction of a port or link.

use super::Time;

/// One direction of a port or link.
///
/// Bulk messages reserve it exclusively, one after the other. A short message waits at most for the
/// packet that is leaving and for other short ones. Its time is added to later bulk reservations,
/// so no bandwidth is gained. Existing reservations do not move.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lane {
    bulk_free: Time,
    short_free: Time,
}

impl Lane {
    /// Start time of a bulk message that is ready at `ready` and occupies the lane for `busy`.
    #[inline]
    pub(super) fn bulk(&mut self, ready: Time, busy: Time) -> Time {
        let start = ready.max(self.bulk_free).max(self.short_free);
        self.bulk_free = start + busy;
        start
    }

    /// Start time of a message of at most one packet. `packet` is the time of a full packet.
    #[inline]
    pub(super) fn short(&mut self, ready: Time, busy: Time, packet: Time) -> Time {
        let mut start = ready;
        if self.short_free > ready {
            start = self.short_free;
        } else if self.bulk_free > ready {
            start += packet.min(self.bulk_free - ready);
        }
        self.short_free = start + busy;
        if self.bulk_free > start {
            self.bulk_free += busy;
        }
        start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_messages_pass_a_bulk_message_within_a_packet_and_cost_it_their_time() {
        let mut lane = Lane::default();
        assert_eq!(lane.bulk(0, 1000), 0);
        assert_eq!(lane.short(100, 5, 20), 120);
        assert_eq!(lane.short(100, 5, 20), 125);
        assert_eq!(lane.bulk(200, 1000), 1010);
    }

    #[test]
    fn an_idle_lane_lets_everybody_start_at_once() {
        let mut lane = Lane::default();
        assert_eq!(lane.short(7, 5, 20), 7);
        assert_eq!(lane.bulk(100, 10), 100);
        assert_eq!(lane.short(110, 5, 20), 110);
    }
}
