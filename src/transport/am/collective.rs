//! The collective operations of a window's processes: agreements, and allgathers of one number per
//! process. A state machine without I/O; [`WindowChannel`](super::window_channel::WindowChannel)
//! moves its messages.
//!
//! Messages follow a binomial tree with rank 0 at its root, towards the root and back, so each
//! operation takes `2 log n` steps. The subtree of a rank is a range of ranks that begins with it.
//!
//! A process starts an operation only after the result of the previous one of the same kind, and a
//! result exists only after all processes have started. So a process receives messages of at most
//! two operations of a kind: the one whose result it awaits, and the next.

use std::collections::VecDeque;

use super::wire::{Content, ENVELOPE, Malformed, PACKET, Packet};
use crate::engine::Rank;

/// Numbers that fit into one packet.
const NUMBERS_PER_PACKET: usize = (PACKET - ENVELOPE - FIELDS) / size_of::<u32>();
/// Bytes of a message's kind and argument.
const FIELDS: usize = 8;

/// A message between a process and its parent or one of its children in the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// To the parent: the highest value of the sender's subtree.
    Highest(u32),
    /// To a child: the highest value of all.
    Decided(u32),
    /// To the parent: numbers of the sender's subtree from this rank on.
    Numbers(Rank, Vec<u32>),
    /// To a child: numbers of all, from this rank on.
    AllNumbers(Rank, Vec<u32>),
}

impl Message {
    /// Appends the message to an empty packet.
    pub(super) fn write(&self, packet: Packet) -> Packet {
        let (kind, argument, numbers): (u32, u32, &[u32]) = match self {
            Message::Highest(value) => (0, *value, &[]),
            Message::Decided(value) => (1, *value, &[]),
            Message::Numbers(first, numbers) => (2, *first, numbers),
            Message::AllNumbers(first, numbers) => (3, *first, numbers),
        };
        let mut packet = packet.holding(Content::Collective);
        for number in [kind, argument].iter().chain(numbers) {
            packet.bytes.extend_from_slice(&number.to_ne_bytes());
        }
        packet
    }

    /// The message in a packet.
    pub(super) fn read(packet: &Packet) -> Result<Self, Malformed> {
        let bytes = packet.bytes.get(ENVELOPE..).ok_or(Malformed::Truncated)?;
        let (words, rest) = bytes.as_chunks::<4>();
        let [kind, argument, numbers @ ..] = words else { return Err(Malformed::Truncated) };
        let (kind, argument) = (u32::from_ne_bytes(*kind), u32::from_ne_bytes(*argument));
        if !rest.is_empty() || numbers.is_empty() != (kind < 2) {
            return Err(Malformed::Lengths);
        }
        let numbers = || numbers.iter().map(|number| u32::from_ne_bytes(*number)).collect();
        match kind {
            0 => Ok(Message::Highest(argument)),
            1 => Ok(Message::Decided(argument)),
            2 => Ok(Message::Numbers(argument, numbers())),
            3 => Ok(Message::AllNumbers(argument, numbers())),
            _ => Err(Malformed::UnknownKind),
        }
    }
}

/// The state of one process.
#[derive(Debug, Default)]
pub(super) struct Collectives {
    me: Rank,
    size: u32,
    /// Who has contributed to the agreement: this process in bit 0, and the child at a distance of
    /// `1 << n` in bit `n + 1`.
    parts: u64,
    highest: u32,
    /// The decision of an agreement, for the owner to take.
    pub(super) decided: Option<u32>,
    /// Numbers of this process's subtree in rank order, and how many are known.
    subtree: Vec<u32>,
    known: usize,
    /// Numbers of all processes, and how many are known.
    all: Vec<u32>,
    all_known: usize,
    /// The result of an allgather in rank order, for the owner to take.
    pub(super) gathered: Option<Vec<u32>>,
    /// Messages for the owner to send.
    pub(super) outgoing: VecDeque<(Rank, Message)>,
}

impl Collectives {
    /// Of process `me` of `size`.
    pub(super) fn new(me: Rank, size: u32) -> Self {
        Collectives { me, size, ..Collectives::default() }
    }

    /// Number of ranks in the subtree of `rank`, in a tree of unlimited size.
    fn span(rank: Rank) -> u64 {
        if rank == 0 { 1 << 32 } else { 1 << rank.trailing_zeros() }
    }

    fn parent_of(rank: Rank) -> Rank {
        rank & rank.wrapping_sub(1)
    }

    /// The children, that with the largest subtree first.
    fn children(&self) -> impl Iterator<Item = Rank> + use<> {
        let (me, size) = (u64::from(self.me), u64::from(self.size));
        let steps = Self::span(self.me).ilog2();
        (0..steps)
            .rev()
            .map(move |bit| me + (1 << bit))
            .filter(move |child| *child < size)
            .map(|child| child as Rank)
    }

    fn is_child(&self, rank: Rank) -> bool {
        rank < self.size && rank > self.me && Self::parent_of(rank) == self.me
    }

    /// Number of ranks in this process's subtree.
    fn subtree_len(&self) -> usize {
        Self::span(self.me).min(u64::from(self.size - self.me)) as usize
    }

    /// Starts an agreement with this process's value. The highest value decides.
    pub(super) fn propose(&mut self, value: u32) {
        self.add_part(1, value);
    }

    fn add_part(&mut self, part: u64, value: u32) {
        self.parts |= part;
        self.highest = self.highest.max(value);
        if self.parts.count_ones() as usize <= self.children().count() {
            return;
        }
        let highest = std::mem::take(&mut self.highest);
        self.parts = 0;
        if self.me == 0 {
            self.decide(highest);
        } else {
            self.outgoing.push_back((Self::parent_of(self.me), Message::Highest(highest)));
        }
    }

    fn decide(&mut self, value: u32) {
        self.outgoing.extend(self.children().map(|child| (child, Message::Decided(value))));
        self.decided = Some(value);
    }

    /// Starts an allgather with this process's number.
    pub(super) fn gather(&mut self, number: u32) {
        self.add_numbers(self.me, &[number]);
    }

    fn add_numbers(&mut self, first: Rank, numbers: &[u32]) {
        let at = (first - self.me) as usize;
        self.subtree.resize(self.subtree_len(), 0);
        self.subtree[at..at + numbers.len()].copy_from_slice(numbers);
        self.known += numbers.len();
        if self.known < self.subtree.len() {
            return;
        }
        self.known = 0;
        let subtree = std::mem::take(&mut self.subtree);
        for (part, numbers) in (0..).zip(subtree.chunks(NUMBERS_PER_PACKET)) {
            let first = self.me + part * NUMBERS_PER_PACKET as u32;
            if self.me == 0 {
                self.add_all_numbers(first, numbers);
            } else {
                let message = Message::Numbers(first, numbers.to_vec());
                self.outgoing.push_back((Self::parent_of(self.me), message));
            }
        }
    }

    fn add_all_numbers(&mut self, first: Rank, numbers: &[u32]) {
        for child in self.children() {
            self.outgoing.push_back((child, Message::AllNumbers(first, numbers.to_vec())));
        }
        self.all.resize(self.size as usize, 0);
        self.all[first as usize..][..numbers.len()].copy_from_slice(numbers);
        self.all_known += numbers.len();
        if self.all_known == self.all.len() {
            self.all_known = 0;
            self.gathered = Some(std::mem::take(&mut self.all));
        }
    }

    /// Handles a message of process `from`.
    ///
    /// # Errors
    /// The sender is not the parent or child that sends such messages, or its numbers belong to
    /// ranks outside its subtree or the window.
    pub(super) fn receive(&mut self, from: Rank, message: &Message) -> Result<(), Malformed> {
        let is_expected = match message {
            Message::Highest(_) | Message::Numbers(..) => self.is_child(from),
            Message::Decided(_) | Message::AllNumbers(..) => {
                self.me != 0 && from == Self::parent_of(self.me)
            }
        };
        if !is_expected {
            return Err(Malformed::UnexpectedReply);
        }
        match message {
            Message::Highest(value) => {
                let part = 2 << (from - self.me).trailing_zeros();
                if self.parts & part != 0 {
                    return Err(Malformed::UnexpectedReply);
                }
                self.add_part(part, *value);
            }
            Message::Decided(value) => self.decide(*value),
            Message::Numbers(first, numbers) => {
                let end = u64::from(*first) + numbers.len() as u64;
                let subtree_end = u64::from(from) + Self::span(from);
                if *first < from || end > subtree_end.min(u64::from(self.size)) {
                    return Err(Malformed::UnknownProcess);
                }
                self.add_numbers(*first, numbers);
            }
            Message::AllNumbers(first, numbers) => {
                if u64::from(*first) + numbers.len() as u64 > u64::from(self.size) {
                    return Err(Malformed::UnknownProcess);
                }
                self.add_all_numbers(*first, numbers);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Processes, and the messages between them.
    struct World {
        processes: Vec<Collectives>,
        in_flight: Vec<(Rank, Rank, Message)>,
        rng: fastrand::Rng,
    }

    impl World {
        fn new(size: u32, seed: u64) -> Self {
            World {
                processes: (0..size).map(|rank| Collectives::new(rank, size)).collect(),
                in_flight: Vec::new(),
                rng: fastrand::Rng::with_seed(seed),
            }
        }

        fn send(&mut self) {
            for (from, process) in (0..).zip(&mut self.processes) {
                while let Some((to, message)) = process.outgoing.pop_front() {
                    let packet = message.write(Packet::new());
                    assert!(packet.bytes.len() <= PACKET);
                    self.in_flight.push((from, to, Message::read(&packet).unwrap()));
                }
            }
        }

        /// Delivers the oldest message of a random pair. False if there is none.
        fn deliver(&mut self) -> bool {
            self.send();
            if self.in_flight.is_empty() {
                return false;
            }
            let (from, to, _) = self.in_flight[self.rng.usize(0..self.in_flight.len())];
            let at = self.in_flight.iter().position(|other| (other.0, other.1) == (from, to));
            let (_, _, message) = self.in_flight.remove(at.unwrap());
            self.processes[to as usize].receive(from, &message).unwrap();
            true
        }
    }

    #[test]
    fn every_process_learns_the_highest_value_of_each_round() {
        for size in [1, 2, 3, 4, 5, 7, 8, 13, 64, 100] {
            let mut world = World::new(size, u64::from(size));
            let mut rounds = vec![0u32; size as usize];
            let mut waiting = vec![false; size as usize];
            let value = |rank: usize, round: u32| (rank as u32 * 7 + round * 13) % 17;
            while rounds.iter().any(|round| *round < 6) {
                let rank = world.rng.usize(0..size as usize);
                if !waiting[rank] && rounds[rank] < 6 {
                    world.processes[rank].propose(value(rank, rounds[rank]));
                    waiting[rank] = true;
                }
                world.deliver();
                if let Some(decided) = world.processes[rank].decided.take() {
                    let all = (0..size as usize).map(|other| value(other, rounds[rank])).max();
                    assert_eq!(Some(decided), all, "size {size}, rank {rank}");
                    waiting[rank] = false;
                    rounds[rank] += 1;
                }
            }
        }
    }

    #[test]
    fn nothing_is_decided_before_all_have_proposed() {
        let mut world = World::new(9, 1);
        for rank in (0..9).filter(|rank| *rank != 6) {
            world.processes[rank].propose(1);
        }
        while world.deliver() {}
        assert!(world.processes.iter().all(|process| process.decided.is_none()));
        world.processes[6].propose(0);
        while world.deliver() {}
        assert!(world.processes.iter().all(|process| process.decided == Some(1)));
    }

    #[test]
    fn numbers_of_all_processes_are_gathered_in_parts_if_there_are_many() {
        for size in [1, 2, 6, 33, 3 * NUMBERS_PER_PACKET as u32 + 5] {
            let mut world = World::new(size, 3);
            for round in 0..2 {
                for rank in 0..size {
                    world.processes[rank as usize].gather(rank ^ round);
                }
                while world.deliver() {}
                let expected: Vec<u32> = (0..size).map(|rank| rank ^ round).collect();
                for process in &mut world.processes {
                    assert_eq!(process.gathered.take().as_ref(), Some(&expected));
                }
            }
        }
    }

    #[test]
    fn messages_from_elsewhere_are_refused() {
        let mut root = Collectives::new(0, 8);
        assert!(root.receive(3, &Message::Highest(1)).is_err(), "not a child");
        assert!(root.receive(1, &Message::Decided(1)).is_err(), "the root has no parent");
        assert!(root.receive(4, &Message::Numbers(2, vec![0])).is_err(), "not its subtree");
        assert!(root.receive(4, &Message::Numbers(6, vec![0; 3])).is_err(), "too many");
        let mut leaf = Collectives::new(5, 8);
        assert!(leaf.receive(0, &Message::Decided(1)).is_err(), "not the parent");
        assert!(leaf.receive(4, &Message::AllNumbers(7, vec![0; 2])).is_err(), "too many");
        assert!(leaf.receive(9, &Message::Highest(0)).is_err(), "no process");
    }

    #[test]
    fn malformed_packets_are_refused() {
        let packet = Message::Numbers(3, vec![1, 2]).write(Packet::new());
        for len in 0..packet.bytes.len() {
            let cut = Packet { bytes: packet.bytes[..len].to_vec() };
            let read = Message::read(&cut);
            assert!(read.is_err() || read == Ok(Message::Numbers(3, vec![1])), "{len} bytes");
        }
    }
}
