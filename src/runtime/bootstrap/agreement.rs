//! What the processes of a new window agree on first: whether all arguments are valid, whether this
//! library serves the window, how peers are reached, and how to wait meanwhile.
//!
//! Each process contributes a few numbers, and the maximum of each decides. They travel with the
//! first gather of the window's set-up, since a collective call of their own would take as long as
//! the rest of the set-up.

use std::ffi::c_int;
use std::num::NonZeroU32;

use crate::runtime::config::Reach;

const NUMBERS: usize = 10;
/// Bytes of a contribution.
pub(crate) const CONTRIBUTION: usize = NUMBERS * size_of::<c_int>();

/// The numbers of one process, or the maximum of each over several processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Contribution([c_int; NUMBERS]);

/// How all processes of a new window wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// In blocking calls of the host.
    Blocking,
    /// In nonblocking calls of the host, driving progress meanwhile [PR-1].
    Driving,
}

/// An info key that all processes must give the same value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DifferingKey {
    /// `mpix_rma_notify_puts`
    NotifyPuts,
    /// `mpix_rma_fence`
    Fence,
}

/// What all processes have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Agreement {
    /// Error class of an invalid argument in some process, or 0.
    pub(crate) class: c_int,
    /// This library serves the window.
    pub(crate) ours: bool,
    /// How peers are reached.
    pub(crate) reach: Reach,
    /// How to wait during the rest of the set-up.
    pub(crate) waiting: Waiting,
    /// An info key differs between processes that must be the same.
    pub(crate) differing: Option<DifferingKey>,
}

impl Agreement {
    /// Whether a window of `size` processes tries shared memory. A process that is alone always
    /// does, since it has no peer to reach by messages.
    pub(crate) fn tries_memory(&self, size: u32) -> bool {
        let agreed = self.class == 0 && self.ours && self.differing.is_none();
        agreed && (!self.reach.is_far() || size == 1)
    }
}

impl Contribution {
    /// `class`: error class of the arguments, or 0. `ours`: this library should serve the window.
    /// `oversubscribed`: ranks of the node outnumber its cores.
    pub(crate) fn new(class: c_int, ours: bool, reach: Reach, oversubscribed: bool) -> Self {
        // Processes that were started separately may have different settings.
        let reach = reach as c_int;
        Self([class, (!ours).into(), ours.into(), reach, -reach, oversubscribed.into(), 0, 0, 0, 0])
    }

    /// Adds the counter that operations raise at their targets, plus 1.
    pub(crate) fn with_counter(mut self, counter: Option<NonZeroU32>) -> Self {
        // The number of counters is an int.
        let number = counter.map_or(0, NonZeroU32::get) as c_int;
        (self.0[6], self.0[7]) = (number, -number);
        self
    }

    /// Adds whether fences learn a pattern.
    pub(crate) fn with_pattern_fences(mut self, pattern: bool) -> Self {
        let pattern = c_int::from(pattern);
        (self.0[8], self.0[9]) = (pattern, -pattern);
        self
    }

    pub(crate) fn encode(self) -> [u8; CONTRIBUTION] {
        let mut bytes = [0; CONTRIBUTION];
        for (place, number) in bytes.chunks_exact_mut(size_of::<c_int>()).zip(self.0) {
            place.copy_from_slice(&number.to_ne_bytes());
        }
        bytes
    }

    /// Raises each number to that of another process.
    pub(crate) fn join(&mut self, bytes: &[u8]) {
        for (highest, other) in self.0.iter_mut().zip(bytes.chunks_exact(size_of::<c_int>())) {
            *highest = c_int::from_ne_bytes(other.try_into().expect("an int")).max(*highest);
        }
    }

    /// What all agree on, if these are the maximums over all processes. `receives_while_waiting`:
    /// this library handles messages while a process waits in the host.
    pub(crate) fn agreement(self, receives_while_waiting: bool) -> Agreement {
        let [class, refused, _, highest, lowest, oversubscribed, ..] = self.0;
        let [.., counter, other_counter, pattern, other_pattern] = self.0;
        let reach = if highest == -lowest { Reach::of(highest.into()) } else { Reach::Auto };
        // Ignore the request for messages or RDMA if waiting in the host could deadlock.
        let reach = if receives_while_waiting || !reach.is_far() { reach } else { Reach::Auto };
        // After the first gather all processes have arrived and wait only for each other. The
        // host's blocking calls then take half the time of nonblocking ones, unless the host spins
        // on a core that another process needs [PR-4].
        let waiting = if oversubscribed == 0 { Waiting::Blocking } else { Waiting::Driving };
        let differing = match () {
            () if counter != -other_counter => Some(DifferingKey::NotifyPuts),
            () if pattern != -other_pattern => Some(DifferingKey::Fence),
            () => None,
        };
        Agreement { class, ours: refused == 0, reach, waiting, differing }
    }

    /// Warns of values that differ between processes.
    pub(crate) fn warn(self, call: &str) {
        let [_, refused, claimed, highest, lowest, ..] = self.0;
        if refused != 0 && claimed != 0 {
            log::warn!(
                "{call}: the info key mpix_rma differs between processes; the window is left to \
                 the host"
            );
        }
        if highest != -lowest {
            log::warn!(
                "{call}: the transport (mpix_rma_transport, MPIX_RMA_TRANSPORT) differs between \
                 processes; auto is used"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agreed(each: &[Contribution]) -> Agreement {
        let mut highest = each[0];
        each.iter().for_each(|other| highest.join(&other.encode()));
        highest.agreement(true)
    }

    #[test]
    fn processes_that_want_the_same_get_it() {
        for reach in [Reach::Auto, Reach::Shm, Reach::HostMpi, Reach::Verbs] {
            let agreement = agreed(&[Contribution::new(0, true, reach, false); 3]);
            let waiting = Waiting::Blocking;
            let expected = Agreement { class: 0, ours: true, reach, waiting, differing: None };
            assert_eq!(agreement, expected);
            assert_eq!(agreement.tries_memory(3), !reach.is_far());
            assert!(agreement.tries_memory(1), "alone");
        }
    }

    #[test]
    fn one_process_is_enough_to_refuse() {
        let fine = Contribution::new(0, true, Reach::Auto, false);
        let with = |other| agreed(&[fine, other, fine]);
        assert!(!with(Contribution::new(0, false, Reach::Auto, false)).ours);
        let wrong = with(Contribution::new(13, true, Reach::Auto, false));
        assert!(wrong.class == 13 && !wrong.tries_memory(3));
        let oversubscribed = with(Contribution::new(0, true, Reach::Auto, true));
        assert_eq!(oversubscribed.waiting, Waiting::Driving);
    }

    #[test]
    fn transports_that_differ_give_the_default() {
        let of = |reach| Contribution::new(0, true, reach, false);
        for [one, other] in [[Reach::Shm, Reach::HostMpi], [Reach::Verbs, Reach::Auto]] {
            assert_eq!(agreed(&[of(one), of(other)]).reach, Reach::Auto);
            assert_eq!(agreed(&[of(other), of(one)]).reach, Reach::Auto);
        }
    }

    #[test]
    fn all_processes_name_the_same_counter() {
        let of = |number| {
            Contribution::new(0, true, Reach::Auto, false).with_counter(NonZeroU32::new(number))
        };
        let same = agreed(&[of(3), of(3)]);
        assert!(same.differing.is_none() && same.tries_memory(2));
        for other in [0, 1, 4, c_int::MAX as u32] {
            for each in [[of(3), of(other)], [of(other), of(3)]] {
                let agreement = agreed(&each);
                assert_eq!(agreement.differing, Some(DifferingKey::NotifyPuts), "{other}");
                assert!(!agreement.tries_memory(2));
            }
        }
    }

    #[test]
    fn all_processes_give_the_same_fences() {
        let of =
            |pattern| Contribution::new(0, true, Reach::Auto, false).with_pattern_fences(pattern);
        for [one, other] in [[true, true], [false, false], [true, false], [false, true]] {
            let agreement = agreed(&[of(one), of(other)]);
            assert_eq!(agreement.differing, (one != other).then_some(DifferingKey::Fence));
            assert_eq!(agreement.tries_memory(2), one == other);
        }
    }

    #[test]
    fn messages_are_not_forced_where_a_wait_would_not_handle_them() {
        let of = |reach| Contribution::new(0, true, reach, false).agreement(false).reach;
        assert_eq!(of(Reach::HostMpi), Reach::Auto);
        assert_eq!(of(Reach::Verbs), Reach::Auto);
        assert_eq!(of(Reach::Shm), Reach::Shm);
    }
}
