//! Alltoallv. With nodes, the blocks from one node to another are one message. Its sender is one
//! of the processes of the node, by turns.

use super::placement::Placement;
use super::program::{Area, Kind, Piece, Program, offsets, place};

/// Bytes of the block from one process to another.
pub trait Sizes {
    /// Bytes from `from` to `to`.
    fn bytes(&self, from: u32, to: u32) -> u32;
}

impl<F: Fn(u32, u32) -> u32> Sizes for F {
    fn bytes(&self, from: u32, to: u32) -> u32 {
        self(from, to)
    }
}

/// What the processes of one node know of each other: sizes and places of all blocks that leave
/// the node or come to it. They learn it from the counts that each of them is called with.
#[derive(Debug)]
pub struct NodePlan<'a> {
    placement: &'a Placement,
    node: u32,
    /// By process of the node: where its blocks to each rank are in its `Send`, and their end.
    sends: Vec<Vec<u32>>,
    /// By process of the node, and behind all of them: bytes that the ones before it send to each
    /// rank.
    before: Vec<Vec<u32>>,
    /// By process of the node: where the blocks from each rank are in its `Receive`, and their end.
    receives: Vec<Vec<u32>>,
    /// By node: where the message to it is in the `Work` of its sender.
    leaving: Vec<u32>,
    /// By node: where the message from it is in the `Inbox` of the process that gets it.
    arriving: Vec<u32>,
    /// By process of the node: bytes of its `Work`, and of its `Inbox`.
    areas: Vec<[u32; 2]>,
}

/// Whether runs of the exchange of these blocks need a gate.
///
/// They need none if each process receives from each node to which it sends. Such a node's message
/// of a run leaves when all its processes have completed the run before. So whoever begins the next
/// but one has seen that its own messages of the first were read, and their memory is free.
#[must_use]
pub fn needs_gate(placement: &Placement, sizes: &impl Sizes) -> bool {
    let one_way = |me: u32, node: u32| {
        let mut others = placement.members(node);
        others.clone().any(|other| sizes.bytes(me, other) > 0)
            && others.all(|other| sizes.bytes(other, me) == 0)
    };
    let others = |me| (0..placement.nodes()).filter(move |node| *node != placement.node_of(me));
    (0..placement.ranks()).any(|me| others(me).any(|node| one_way(me, node)))
}

/// Distance between two nodes in the order in which a node visits the others.
fn distance(nodes: u32, from: u32, to: u32) -> u32 {
    (to + nodes - from) % nodes
}

impl<'a> NodePlan<'a> {
    /// The plan of a node.
    #[must_use]
    pub fn new(placement: &'a Placement, node: u32, sizes: &impl Sizes) -> Self {
        let (ranks, nodes) = (placement.ranks(), placement.nodes());
        let members = placement.members(node);
        let lists = |size: &dyn Fn(u32, u32) -> u32| {
            members.clone().map(|me| offsets((0..ranks).map(|other| size(me, other)))).collect()
        };
        let sends: Vec<Vec<u32>> = lists(&|me, to| sizes.bytes(me, to));
        let receives: Vec<Vec<u32>> = lists(&|me, from| sizes.bytes(from, me));
        let mut before = vec![vec![0; ranks as usize]];
        for list in &sends {
            let last = &before[before.len() - 1];
            let blocks = list.windows(2).map(|ends| ends[1] - ends[0]);
            before.push(last.iter().zip(blocks).map(|(sum, block)| sum + block).collect());
        }
        let mut areas = vec![[0; 2]; members.len()];
        let mut messages = |of: &[Vec<u32>], area: usize| {
            (0..nodes)
                .map(|other| {
                    let handler = distance(nodes, node, other) as usize % areas.len();
                    let at = areas[handler][area];
                    if other != node {
                        let there = placement.members(other);
                        let (begin, end) = (there.start as usize, there.end as usize);
                        let blocks = of.iter().map(|list| list[end] - list[begin]);
                        areas[handler][area] += blocks.sum::<u32>();
                    }
                    at
                })
                .collect()
        };
        let leaving = messages(&sends, 0);
        let arriving = messages(&receives, 1);
        NodePlan { placement, node, sends, before, receives, leaving, arriving, areas }
    }

    /// The process of this node that sends the message to another node, and gets the one from it.
    fn handler(&self, other: u32) -> u32 {
        let turn = distance(self.placement.nodes(), self.node, other);
        self.placement.worker(self.node, turn)
    }

    /// Bytes of the message to another node.
    #[must_use]
    pub fn message(&self, to: u32) -> u32 {
        let there = self.placement.members(to);
        let sent = self.sends.iter();
        sent.map(|list| list[there.end as usize] - list[there.start as usize]).sum()
    }

    /// The program of a process of the node. `arrives_at` tells where the message from this node
    /// is in the `Inbox` of the other node's process, as that node's [`arrivals`](Self::arrivals)
    /// have it.
    #[must_use]
    pub fn program(&self, me: u32, arrives_at: impl Fn(u32) -> u32) -> Program {
        let (placement, node) = (self.placement, self.node);
        let (nodes, members) = (placement.nodes(), placement.members(node));
        let (home, size) = (members.start, members.len() as u32);
        let index = (me - home) as usize;
        let (sends, receives) = (&self.sends[index], &self.receives[index]);
        let end = |list: &[u32]| list[list.len() - 1];
        let [work, inbox] = self.areas[index];
        let mut program = Program::new(me, [end(sends), end(receives), work, inbox]);
        // Counters: entered, what is packed for each node, what has come from each node, processes
        // that have read this one's blocks.
        let (packed, arrived, read) = (1, 1 + nodes, 1 + 2 * nodes);
        let entered = program.step(&[]).notifies(home, 0).add();
        for turn in 1..nodes {
            let other = (node + turn) % nodes;
            let bytes = self.message(other);
            if bytes == 0 {
                continue;
            }
            let sender = self.handler(other);
            let message = place(sender, Area::Work, self.leaving[other as usize]);
            // The message has a section for each target, with the blocks in the order of ranks, so
            // that a target unpacks by one copy.
            let mut section = 0;
            let mut pieces = Vec::new();
            for to in placement.members(other) {
                let at = to as usize;
                let (from, bytes) = (sends[at], sends[at + 1] - sends[at]);
                if bytes > 0 {
                    let to = section + self.before[index][at];
                    pieces.push(Piece { from, to, ..Piece::whole(bytes) });
                }
                section += self.before[size as usize][at];
            }
            let step = program.step(&[]);
            let step = step.moves(Kind::Copy, place(me, Area::Send, 0), message, pieces);
            let mine = step.notifies(sender, packed + other).add();
            if sender == me {
                let reader = placement.worker(other, distance(nodes, other, node));
                let to = place(reader, Area::Inbox, arrives_at(other));
                let put = program.step(&[mine]).awaits(me, packed + other, size);
                put.put(message, to, bytes).notifies(reader, arrived + node).add();
            }
        }
        // Blocks from the own node, in place.
        let all = program.wait(&[entered], home, 0, size);
        let mut last = all;
        let mut readers = 0;
        for turn in 0..size {
            let from = home + (index as u32 + turn) % size;
            let list = &self.sends[(from - home) as usize];
            let (at, to) = (list[me as usize], receives[from as usize]);
            let bytes = list[me as usize + 1] - at;
            if bytes > 0 {
                let (at, to) = (place(from, Area::Send, at), place(me, Area::Receive, to));
                last = program.step(&[all]).copy(at, to, bytes).notifies(from, read).add();
            }
            readers += u32::from(sends[from as usize + 1] > sends[from as usize]);
        }
        program.wait(&[last], me, read, readers);
        for turn in 1..nodes {
            let other = (node + nodes - turn) % nodes;
            let there = placement.members(other);
            let of = |list: &[u32]| list[there.end as usize] - list[there.start as usize];
            let bytes = of(receives);
            if bytes > 0 {
                let reader = self.handler(other);
                let section: u32 = self.receives[..index].iter().map(|list| of(list)).sum();
                let from = place(reader, Area::Inbox, self.arriving[other as usize] + section);
                let to = place(me, Area::Receive, receives[there.start as usize]);
                let step = program.step(&[]).awaits(reader, arrived + other, 1);
                step.copy(from, to, bytes).add();
            }
        }
        program
    }

    /// By node: where its message arrives.
    #[must_use]
    pub fn arrivals(&self) -> &[u32] {
        &self.arriving
    }
}

/// Each process puts each block to where it belongs, to the next rank first. `there` tells where
/// the block from this process is in the `Receive` of another one.
#[must_use]
pub fn pairwise(ranks: u32, me: u32, sizes: &impl Sizes, there: impl Fn(u32) -> u32) -> Program {
    let sends = offsets((0..ranks).map(|to| sizes.bytes(me, to)));
    let (mut received, mut arrivals) = (0, 0);
    for from in 0..ranks {
        let bytes = sizes.bytes(from, me);
        received += bytes;
        arrivals += u32::from(bytes > 0 && from != me);
    }
    let mut program = Program::new(me, [sends[ranks as usize], received, 0, 0]);
    for turn in 0..ranks {
        let to = (me + turn) % ranks;
        let at = sends[to as usize];
        let bytes = sends[to as usize + 1] - at;
        if bytes == 0 {
            continue;
        }
        let (from, there) = (place(me, Area::Send, at), place(to, Area::Receive, there(to)));
        let step = program.step(&[]);
        match to == me {
            true => step.copy(from, there, bytes).add(),
            false => step.put(from, there, bytes).notifies(to, 0).add(),
        };
    }
    program.wait(&[], me, 0, arrivals);
    program
}
