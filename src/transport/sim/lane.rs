//! One direction of a port or link: who may send when.

use super::Time;

/// One direction of a port or link.
///
/// Bulk messages reserve it whole, one after the other. Short ones do not wait for them: a packet
/// that is just leaving is all that stands before them, and after it short ones follow one another.
/// What they take is added to what bulk messages reserve afterwards, so no bandwidth is won; bulk
/// messages that have reserved already are not moved.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lane {
    bulk_free: Time,
    short_free: Time,
}

impl Lane {
    /// A bulk message that could start at `ready` and takes the lane for `busy`: when it starts.
    #[inline]
    pub(super) fn bulk(&mut self, ready: Time, busy: Time) -> Time {
        let start = ready.max(self.bulk_free).max(self.short_free);
        self.bulk_free = start + busy;
        start
    }

    /// The same for a message of at most one packet; `packet` is how long a packet takes.
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
