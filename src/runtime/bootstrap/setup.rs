//! The steps by which the processes of a window choose the same transport: shared memory if all are
//! on one node, otherwise a router over shared memory, RDMA and messages.
//!
//! All processes take the same collective steps in the same order and get the same result.

use std::ffi::c_int;

use super::agreement::{Agreement, Contribution, DifferingKey};
use super::card::Card;
use crate::engine::Rank;
use crate::runtime::config::Reach;
use crate::transport::members::{Extents, RankTable};
use crate::transport::shm::SetupError;

/// Whose memory is in a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SegmentOf {
    /// That of these ranks, the processes of this node. Making it is collective over the window.
    Node(Vec<Rank>),
    /// That of this process alone.
    Own,
}

/// What a process lacks, worst last. The processes agree on the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub(crate) enum Missing {
    Nothing,
    /// RDMA, although its device should provide it.
    Rdma,
    Memory,
}

impl Missing {
    /// From its number in an agreement.
    pub(crate) fn of(number: u32) -> Self {
        match number {
            0 => Missing::Nothing,
            1 => Missing::Rdma,
            _ => Missing::Memory,
        }
    }
}

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Make a segment of all processes. Its first gather carries each process's contribution and
    /// card; pass them to [`Setup::gathered`].
    ShareSegment,
    /// Open the RDMA device, and gather the cards again with its capability.
    Advertise,
    /// Open the channel for messages between all processes.
    OpenChannel,
    /// Make this segment, and an RDMA endpoint for its memory.
    Acquire(SegmentOf),
    /// Agree on what is missing.
    Agree(Missing),
    /// The window's transport is the segment of all processes.
    UseSegment,
    /// The window's transport is a router over what was acquired, with RDMA or without.
    UseRouter {
        /// Use the RDMA endpoint, if there is one.
        rdma: bool,
    },
    /// There is no transport, in any process.
    Fail(NotMade),
}

/// Why there is no transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotMade {
    /// Some process passed an invalid argument, of this error class.
    Invalid(c_int),
    /// Some process wants to leave the window to the host.
    LeftToHost,
    /// The processes give different values for this info key.
    Differing(DifferingKey),
    /// The window is left to the host for this reason.
    Unsuitable(SetupError),
    /// A call of the host failed in this process.
    Host(c_int),
}

/// The result of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The segment of all processes was made in all of them, or failed in all for the same reason.
    Shared(Result<(), SetupError>),
    /// The cards were gathered again.
    Advertised(Vec<Card>),
    /// The channel is open.
    ChannelOpen,
    /// The segment and the endpoint were made, except for what this process lacks.
    Acquired(Missing),
    /// The worst that any process lacks.
    Agreed(Missing),
}

/// The set-up of a window in one process.
#[derive(Debug)]
pub(crate) struct Setup {
    me: Rank,
    size: u32,
    /// All memory must be in one segment (`MPI_Win_allocate_shared`).
    must_share: bool,
    /// That of this process; after the first gather, the maximum over all.
    contribution: Contribution,
    agreement: Option<Agreement>,
    cards: Vec<Card>,
    /// How the router reaches peers.
    reach: Reach,
    /// The processes of this node, and whether they reach each other through its segment.
    node_ranks: Vec<Rank>,
    uses_shm: bool,
    /// The segments are made again, each for one process.
    is_retry: bool,
}

impl Setup {
    pub(crate) fn new(
        (me, size): (Rank, u32),
        must_share: bool,
        contribution: Contribution,
    ) -> Self {
        Setup {
            me,
            size,
            must_share,
            contribution,
            agreement: None,
            cards: Vec::new(),
            reach: Reach::Auto,
            node_ranks: Vec::new(),
            uses_shm: false,
            is_retry: false,
        }
    }

    /// The first step.
    pub(crate) fn start(&self) -> Action {
        Action::ShareSegment
    }

    /// The contribution of this process; after the first gather, the maximum over all.
    pub(crate) fn contribution(&self) -> Contribution {
        self.contribution
    }

    /// The agreement. `None` before the first gather.
    pub(crate) fn agreement(&self) -> Option<Agreement> {
        self.agreement
    }

    /// The cards of all processes, in rank order.
    pub(crate) fn cards(&self) -> &[Card] {
        &self.cards
    }

    /// The processes of this node, and whether they reach each other through their segment.
    pub(crate) fn node(&self) -> (&[Rank], bool) {
        (&self.node_ranks, self.uses_shm)
    }

    /// Bytes and displacement unit of all processes' memory.
    pub(crate) fn extents(&self) -> Extents {
        Extents::new(self.cards.iter().map(|card| (card.bytes, card.disp_unit)))
    }

    /// Whether peers may be reached by RDMA.
    pub(crate) fn may_use_rdma(&self) -> bool {
        self.reach != Reach::HostMpi
    }

    /// The RDMA capabilities of all processes.
    pub(crate) fn capabilities(&self) -> RankTable<u8> {
        if !self.may_use_rdma() {
            return RankTable::new([0]);
        }
        RankTable::new(self.cards.iter().map(|card| card.capability.unwrap_or_default()))
    }

    /// Takes the result of the first gather: the contributions and cards of all processes.
    /// `receives_while_waiting` is the same in all of them. Returns whether to make the segment.
    pub(crate) fn gathered<'a>(
        &mut self,
        each: impl Iterator<Item = (&'a [u8], Card)>,
        receives_while_waiting: bool,
    ) -> bool {
        for (contribution, card) in each {
            self.contribution.join(contribution);
            self.cards.push(card);
        }
        let agreement = self.contribution.agreement(receives_while_waiting);
        self.agreement = Some(agreement);
        agreement.tries_memory(self.size)
    }

    /// The next step after this result.
    pub(crate) fn next(&mut self, event: Event) -> Action {
        match event {
            Event::Shared(Ok(())) => Action::UseSegment,
            Event::Shared(Err(reason)) => self.without_segment(reason),
            Event::Advertised(cards) => {
                self.cards = cards;
                self.connect()
            }
            Event::ChannelOpen => {
                // Segments of nodes need a split communicator, which takes rounds of messages.
                let shares = self.some_share_a_node();
                let node = || SegmentOf::Node(self.node_ranks.clone());
                Action::Acquire(if shares { node() } else { SegmentOf::Own })
            }
            Event::Acquired(missing) => Action::Agree(missing),
            Event::Agreed(Missing::Memory) if self.must_share || self.is_retry => {
                Action::Fail(NotMade::Unsuitable(SetupError::NoMemory))
            }
            Event::Agreed(Missing::Memory) => {
                // If a segment fails on one node, no node uses one.
                self.is_retry = true;
                (self.node_ranks, self.uses_shm) = (vec![self.me], false);
                Action::Acquire(SegmentOf::Own)
            }
            Event::Agreed(missing) => Action::UseRouter { rdma: missing == Missing::Nothing },
        }
    }

    /// There is no segment of all processes.
    fn without_segment(&mut self, reason: SetupError) -> Action {
        let Some(agreement) = self.agreement else {
            return Action::Fail(NotMade::Unsuitable(reason));
        };
        if agreement.class != 0 {
            return Action::Fail(NotMade::Invalid(agreement.class));
        }
        if !agreement.ours {
            return Action::Fail(NotMade::LeftToHost);
        }
        if let Some(key) = agreement.differing {
            return Action::Fail(NotMade::Differing(key));
        }
        let must_share = agreement.reach == Reach::Shm || self.size == 1 || self.must_share;
        self.reach = match reason {
            SetupError::Unwanted => agreement.reach,
            reason if must_share => return Action::Fail(NotMade::Unsuitable(reason)),
            SetupError::NotOneNode => agreement.reach,
            // After shared memory has failed, reach all peers by messages.
            reason => {
                log::info!("peers are reached by messages, not by shared memory: {reason}");
                Reach::HostMpi
            }
        };
        let knows_devices = self.cards.iter().all(|card| card.capability.is_some());
        if !self.may_use_rdma() || knows_devices {
            return self.connect();
        }
        Action::Advertise
    }

    /// The step after all cards are complete.
    fn connect(&mut self) -> Action {
        // The processes of a node share a segment even if operations do not use it: programs may
        // query the address of allocated memory, and region tables of dynamic windows are in it.
        let own = self.cards[self.me as usize];
        let on_node = |(rank, card): &(Rank, &Card)| *rank == self.me || card.is_on_node_of(&own);
        self.node_ranks = (0..).zip(&self.cards).filter(on_node).map(|(rank, _)| rank).collect();
        self.uses_shm = self.reach == Reach::Auto;
        if self.must_share && !self.all_share_a_node() {
            return Action::Fail(NotMade::Unsuitable(SetupError::NotOneNode));
        }
        Action::OpenChannel
    }

    fn all_share_a_node(&self) -> bool {
        self.size == 1 || self.cards.iter().all(|card| card.is_on_node_of(&self.cards[0]))
    }

    fn some_share_a_node(&self) -> bool {
        let mut cards: Vec<&Card> = self.cards.iter().collect();
        cards.sort_unstable_by_key(|card| card.node);
        cards.windows(2).any(|two| two[0].is_on_node_of(two[1]))
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    /// The inputs of all processes of a simulated window.
    struct Case {
        rng: fastrand::Rng,
        must_share: bool,
        each: Vec<(Contribution, Card)>,
        /// Whether the library handles messages while a process waits in the host.
        receives: bool,
    }

    impl Case {
        fn random(seed: u64) -> Self {
            let mut rng = fastrand::Rng::with_seed(seed);
            let size = rng.u32(1..7);
            let nodes = rng.u64(1..4);
            let reaches = [Reach::Auto, Reach::Shm, Reach::HostMpi, Reach::Verbs];
            let common = reaches[rng.usize(0..4)];
            let one_in = |rng: &mut fastrand::Rng, odds: u32| rng.u32(0..odds) == 0;
            let (must_share, receives) = (one_in(&mut rng, 4), !one_in(&mut rng, 5));
            let each = (0..size)
                .map(|_| {
                    let class = if one_in(&mut rng, 20) { 7 } else { 0 };
                    let ours = !one_in(&mut rng, 20);
                    let reach = if one_in(&mut rng, 20) { Reach::Auto } else { common };
                    let counter = NonZeroU32::new(u32::from(one_in(&mut rng, 30)));
                    let contribution = Contribution::new(class, ours, reach, one_in(&mut rng, 3))
                        .with_counter(counter)
                        .with_pattern_fences(one_in(&mut rng, 30));
                    let unknown = one_in(&mut rng, 8);
                    let node = if unknown { [0; 3] } else { [rng.u64(0..nodes) + 1, 2, 3] };
                    let capability = one_in(&mut rng, 3).then(|| rng.u8(0..3));
                    let card = Card { node, capability, bytes: rng.u64(..), ..Card::default() };
                    (contribution, card)
                })
                .collect();
            Case { rng, must_share, each, receives }
        }

        /// Runs all processes. Returns their last steps.
        fn run(&mut self) -> Vec<(Setup, Action)> {
            let size = self.each.len() as u32;
            let mut setups: Vec<Setup> = (0..size)
                .map(|me| Setup::new((me, size), self.must_share, self.each[me as usize].0))
                .collect();
            let mut actions: Vec<Action> = setups.iter().map(Setup::start).collect();
            for _ in 0..20 {
                let kinds: Vec<_> = actions.iter().map(kind).collect();
                assert!(kinds.iter().all(|one| *one == kinds[0]), "{actions:?}");
                let events: Vec<Event> = match &actions[0] {
                    Action::UseSegment | Action::UseRouter { .. } | Action::Fail(_) => {
                        return setups.into_iter().zip(actions).collect();
                    }
                    Action::ShareSegment => self.share(&mut setups),
                    Action::Advertise => {
                        let cards: Vec<Card> = setups[0]
                            .cards()
                            .iter()
                            .map(|card| Card {
                                capability: card.capability.or(Some(self.rng.u8(0..3))),
                                ..*card
                            })
                            .collect();
                        vec![Event::Advertised(cards); size as usize]
                    }
                    Action::OpenChannel => vec![Event::ChannelOpen; size as usize],
                    Action::Acquire(_) => {
                        self.check_segments(&actions);
                        let one = |rng: &mut fastrand::Rng| Missing::of(rng.u32(0..12).max(9) - 9);
                        (0..size).map(|_| Event::Acquired(one(&mut self.rng))).collect()
                    }
                    Action::Agree(_) => {
                        let missing = actions.iter().map(|action| match action {
                            Action::Agree(missing) => *missing,
                            _ => unreachable!(),
                        });
                        vec![Event::Agreed(missing.max().unwrap()); size as usize]
                    }
                };
                actions =
                    setups.iter_mut().zip(events).map(|(one, event)| one.next(event)).collect();
            }
            panic!("it does not end: {actions:?}");
        }

        fn share(&mut self, setups: &mut [Setup]) -> Vec<Event> {
            let encoded: Vec<_> =
                self.each.iter().map(|(one, card)| (one.encode(), *card)).collect();
            let receives = self.receives;
            let mut wanted = setups.iter_mut().map(|setup| {
                setup.gathered(encoded.iter().map(|(one, card)| (&one[..], *card)), receives)
            });
            let first = wanted.next().unwrap();
            assert!(wanted.all(|other| other == first));
            let known = |card: &Card| card.node != [0; 3] && card.node == self.each[0].1.node;
            let result = match () {
                () if !first => Err(SetupError::Unwanted),
                () if !self.each.iter().all(|(_, card)| known(card)) => Err(SetupError::NotOneNode),
                () if self.rng.u8(0..4) == 0 => Err(SetupError::NoMemory),
                () => Ok(()),
            };
            vec![Event::Shared(result); setups.len()]
        }

        /// The processes of a node name the same ranks, themselves among them.
        fn check_segments(&self, actions: &[Action]) {
            for (me, action) in actions.iter().enumerate() {
                let Action::Acquire(SegmentOf::Node(ranks)) = action else { continue };
                assert!(ranks.contains(&(me as Rank)) && ranks.is_sorted());
                for mate in ranks {
                    assert_eq!(&actions[*mate as usize], action);
                }
            }
        }
    }

    /// The part of a step that is the same in all processes.
    fn kind(action: &Action) -> String {
        match action {
            Action::Acquire(SegmentOf::Node(_)) => "node".into(),
            Action::Agree(_) => "agree".into(),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn all_processes_take_the_same_steps_and_end_alike() {
        let mut ends = std::collections::HashMap::<String, u32>::new();
        for seed in 0..20_000 {
            // To replay a failure, run the loop over its seed only.
            let replay = format!("seed {seed}");
            let result = std::panic::catch_unwind(|| Case::random(seed).run());
            let ended = result.unwrap_or_else(|_| panic!("{replay}"));
            let end = ended[0].1.clone();
            *ends.entry(kind(&end)).or_default() += 1;
            for (setup, _) in &ended {
                let (ranks, uses_shm) = setup.node();
                let is_router = matches!(end, Action::UseRouter { .. });
                assert!(!is_router || ranks.contains(&setup.me), "{replay}");
                assert!(!uses_shm || setup.reach == Reach::Auto, "{replay}");
            }
        }
        assert!(ends.len() >= 6, "few ends were met: {ends:?}");
    }

    fn end_of(must_share: bool, reach: Reach, nodes: &[u64]) -> Action {
        let each = nodes
            .iter()
            .map(|node| {
                let card = Card { node: [*node, 1, 1], capability: Some(0), ..Card::default() };
                (Contribution::new(0, true, reach, false), card)
            })
            .collect();
        // With this seed nothing is missing.
        let rng = fastrand::Rng::with_seed(2);
        Case { rng, must_share, each, receives: true }.run().remove(0).1
    }

    #[test]
    fn nodes_and_settings_decide() {
        let router = Action::UseRouter { rdma: true };
        assert_eq!(end_of(false, Reach::Auto, &[1, 1]), Action::UseSegment);
        assert_eq!(end_of(false, Reach::Auto, &[1, 2]), router);
        assert_eq!(end_of(false, Reach::HostMpi, &[1, 1]), router);
        let unsuitable = Action::Fail(NotMade::Unsuitable(SetupError::NotOneNode));
        assert_eq!(end_of(true, Reach::Auto, &[1, 2]), unsuitable);
        assert_eq!(end_of(false, Reach::Shm, &[1, 2]), unsuitable);
    }
}
