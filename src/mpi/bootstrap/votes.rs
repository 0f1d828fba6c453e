//! What the processes of a new window agree on before anything is made: whether all arguments are
//! right, whether the window is ours, how its peers are reached, and how to wait meanwhile.
//!
//! Each process has a few numbers, and what counts is the maximum of each. They go with the first
//! gather of the transport's set-up, since a collective call of its own takes as long as the rest
//! of that. The same call is made first whatever the settings are: processes that were started
//! apart, and have met since, may have others.

use std::ffi::c_int;

use super::Gathering;
use crate::mpi::abi::error::Fault;
use crate::mpi::info::Wishes;
use crate::mpi::progress::drive;
use crate::mpi::progress::hook;
use crate::runtime::config::{Reach, Serve, Settings};
use crate::runtime::progress;

/// Numbers of a process.
const NUMBERS: usize = 7;
/// Bytes of them.
pub(crate) const BYTES: usize = NUMBERS * size_of::<c_int>();

/// Live windows of a process from which a new one counts as one of many.
const MANY: usize = 512;

/// The numbers of one process, or the highest ones of some.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Votes([c_int; NUMBERS]);

/// What all have agreed on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Verdict {
    /// Error class of a wrong argument in some process, or 0.
    pub(crate) class: c_int,
    /// The window is ours.
    pub(crate) ours: bool,
    /// How peers are reached.
    pub(crate) reach: Reach,
    /// How to wait from here on.
    pub(crate) gathering: Gathering,
    /// Some process has so many windows that the host may have no room for another.
    pub(crate) many: bool,
}

impl Verdict {
    /// True if shared memory is to be tried for a window of `size` processes. Alone there is nobody
    /// to send to.
    pub(crate) fn by_memory(&self, size: u32) -> bool {
        self.class == 0 && self.ours && (!self.reach.is_far() || size == 1)
    }
}

impl Votes {
    /// Those of this process: for a wrong argument, and the wishes of its info object. `can_serve`
    /// is asked where the window would be ours.
    pub(crate) fn new(
        fault: Option<&Fault>,
        wishes: &Wishes,
        settings: &Settings,
        can_serve: impl FnOnce() -> bool,
    ) -> Self {
        let served = settings.serve() != Serve::Off
            && wishes.serve.unwrap_or(settings.serve() == Serve::All);
        let ours = served && can_serve();
        // The settings of processes that were started apart may differ.
        let reach = wishes.reach.unwrap_or(settings.reach()) as c_int;
        let class = fault.map_or(0, |fault| fault.class);
        Self([
            class,
            c_int::from(!ours),
            c_int::from(ours),
            reach,
            -reach,
            c_int::from(progress::crowded()),
            c_int::from(progress::live() >= MANY),
        ])
    }

    pub(crate) fn encode(self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        for (place, number) in bytes.chunks_exact_mut(size_of::<c_int>()).zip(self.0) {
            place.copy_from_slice(&number.to_ne_bytes());
        }
        bytes
    }

    /// Raises these to those of another process.
    pub(crate) fn join(&mut self, bytes: &[u8]) {
        for (highest, other) in self.0.iter_mut().zip(bytes.chunks_exact(size_of::<c_int>())) {
            *highest = c_int::from_ne_bytes(other.try_into().expect("an int")).max(*highest);
        }
    }

    /// What follows from the highest numbers of all processes.
    pub(crate) fn verdict(self) -> Verdict {
        let [class, refused, _, highest, lowest, crowded, many] = self.0;
        let reach = if highest == -lowest { Reach::of(highest.into()) } else { Reach::Auto };
        // Where a wait in the host takes no messages in, a hint is not worth a hang.
        let reach = if hook::takes_messages() || drive::collectives() || !reach.is_far() {
            reach
        } else {
            Reach::Auto
        };
        // All have come here, and wait for nothing but each other until the window is made. The
        // host's blocking calls take half the time of the others, unless it spins on a core that
        // somebody else needs [PR-4].
        let gathering = if crowded == 0 { Gathering::Blocking } else { Gathering::Driving };
        Verdict { class, ours: refused == 0, reach, gathering, many: many != 0 }
    }

    /// Says what differs between processes.
    pub(crate) fn warn(self, call: &str) {
        let [_, refused, claimed, highest, lowest, ..] = self.0;
        if refused != 0 && claimed != 0 {
            log::warn!(
                "{call}: the info key mpix_rma differs between processes; the window is left to the host"
            );
        }
        if highest != -lowest {
            log::warn!(
                "{call}: the transport asked for differs between processes; the default is used"
            );
        }
    }
}
