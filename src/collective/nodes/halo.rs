//! Halo exchange of a three-dimensional grid with 26 neighbours. Within a node the receiver copies
//! from the sender's field to its own, once (SHAN). Between nodes, what one node needs of another
//! is one message.
//!
//! A process has a cube of cells with a layer of ghost cells around it: its `Receive`.

use std::ops::Range;

use super::placement::Placement;
use super::program::{Area, Kind, Piece, Program, place};

/// A grid of processes, without wrap-around. Ranks count along the last dimension first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Processes in each dimension.
    pub sides: [u32; 3],
    /// Cells of a process in each dimension, without ghost cells.
    pub cells: u32,
    /// Bytes of a cell.
    pub cell: u32,
}

/// Offset of a neighbour in each dimension: -1, 0 or 1.
type Direction = [i32; 3];

/// All neighbours.
fn directions() -> impl Iterator<Item = Direction> {
    (0..27).filter(|at| *at != 13).map(|at| [at / 9 - 1, at / 3 % 3 - 1, at % 3 - 1])
}

impl Grid {
    /// A grid of so many processes whose sides differ as little as possible.
    #[must_use]
    pub fn of(ranks: u32, cells: u32, cell: u32) -> Self {
        let divisors = |of: u32| (1..=of).filter(move |side| of.is_multiple_of(*side));
        let all =
            divisors(ranks).flat_map(|a| divisors(ranks / a).map(move |b| [a, b, ranks / a / b]));
        let descending = all.filter(|sides| sides.is_sorted_by(|a, b| a >= b));
        let sides = descending.min_by_key(|sides| sides[0] - sides[2]).unwrap_or([ranks, 1, 1]);
        Grid { sides, cells, cell }
    }

    /// Number of processes.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        self.sides.iter().product()
    }

    /// Bytes of a process's field, ghost cells included.
    #[must_use]
    pub fn field(&self) -> u32 {
        (self.cells + 2).pow(3) * self.cell
    }

    fn coordinates(&self, rank: u32) -> [u32; 3] {
        let [_, b, c] = self.sides;
        [rank / (b * c), rank / c % b, rank % c]
    }

    /// The neighbour of a process in a direction.
    fn neighbour(&self, rank: u32, direction: Direction) -> Option<u32> {
        let mut found = 0;
        for ((at, step), side) in self.coordinates(rank).into_iter().zip(direction).zip(self.sides)
        {
            let at = at.checked_add_signed(step).filter(|at| *at < side)?;
            found = found * side + at;
        }
        Some(found)
    }

    /// The neighbours of a process, with their directions.
    pub fn neighbours(&self, rank: u32) -> impl Iterator<Item = (u32, [i32; 3])> {
        directions().filter_map(move |way| Some((self.neighbour(rank, way)?, way)))
    }

    /// The cells that a process sends in a direction, by dimension; and the ghost cells into which
    /// its neighbour there puts them.
    fn ranges(&self, way: Direction) -> [[Range<u32>; 3]; 2] {
        let last = self.cells;
        let sent = way.map(|step| match step {
            -1 => 1..2,
            0 => 1..last + 1,
            _ => last..last + 1,
        });
        let got = way.map(|step| match step {
            -1 => last + 1..last + 2,
            0 => 1..last + 1,
            _ => 0..1,
        });
        [sent, got]
    }

    /// Bytes that a process sends in a direction.
    #[must_use]
    pub fn bytes(&self, way: [i32; 3]) -> u32 {
        way.iter().map(|step| if *step == 0 { self.cells } else { 1 }).product::<u32>() * self.cell
    }

    /// Contiguous runs of bytes among them.
    #[must_use]
    pub fn run_count(&self, way: [i32; 3]) -> f64 {
        let [cells, _] = self.ranges(way);
        let runs = self.runs(&cells);
        runs.iter().map(|(_, _, count, _)| f64::from(*count)).sum()
    }

    /// Runs of cells as begins in the field, and their length and distance.
    fn runs(&self, cells: &[Range<u32>; 3]) -> Vec<(u32, u32, u32, u32)> {
        let side = self.cells + 2;
        let [planes, rows, columns] = cells.clone();
        let at = |plane, row, column| ((plane * side + row) * side + column) * self.cell;
        let mut runs = Vec::new();
        for plane in planes {
            let begin = at(plane, rows.start, columns.start);
            let (count, length) = (rows.len() as u32, columns.len() as u32 * self.cell);
            runs.push((begin, length, count, side * self.cell));
        }
        runs
    }

    /// Pieces from the field of a process to that of its neighbour; or to or from a message, in
    /// which they follow one another.
    fn pieces(&self, way: Direction, from_field: bool, to_field: bool) -> Vec<Piece> {
        let [sent, got] = self.ranges(way).map(|cells| self.runs(&cells));
        let mut packed = 0;
        sent.into_iter()
            .zip(got)
            .map(|((from, bytes, count, step), (to, ..))| {
                let at = packed;
                packed += count * bytes;
                let (from, from_step) = if from_field { (from, step) } else { (at, bytes) };
                let (to, to_step) = if to_field { (to, step) } else { (at, bytes) };
                Piece { from, to, bytes, count, from_step, to_step }
            })
            .collect()
    }

    /// The program of a process that knows no nodes: it packs and puts a message for each
    /// neighbour, and unpacks those that arrive.
    #[must_use]
    pub fn flat(&self, me: u32) -> Program {
        let slot = |rank: u32, way: Direction| -> u32 {
            let all = self.neighbours(rank).take_while(move |(_, other)| *other != way);
            all.map(|(_, way)| self.bytes(way)).sum()
        };
        let inbox = self.neighbours(me).map(|(_, way)| self.bytes(way)).sum();
        let mut program = Program::new(me, [0, self.field(), 0, inbox]);
        let field = place(me, Area::Receive, 0);
        for (other, way) in self.neighbours(me) {
            let back = way.map(|step| -step);
            let to = place(other, Area::Inbox, slot(other, back));
            let put = program.step(&[]).moves(Kind::Put, field, to, self.pieces(way, true, false));
            put.notifies(other, number(back)).add();
        }
        for (_, way) in self.neighbours(me) {
            let back = way.map(|step| -step);
            let from = place(me, Area::Inbox, slot(me, way));
            let step = program.step(&[]).awaits(me, number(way), 1);
            step.moves(Kind::Copy, from, field, self.pieces(back, false, true)).add();
        }
        program
    }
}

/// Number of a direction.
fn number(way: Direction) -> u32 {
    way.into_iter().fold(0, |number, step| number * 3 + (step + 1) as u32)
}

/// A part of a message between two nodes: what one process sends to another.
#[derive(Clone, Copy, Debug)]
struct Part {
    from: u32,
    to: u32,
    way: Direction,
    at: u32,
}

/// The halo exchange of one node with the others.
#[derive(Debug)]
pub struct NodeHalo<'a> {
    placement: &'a Placement,
    grid: Grid,
    node: u32,
    /// By node with which this one exchanges, in ascending order: the parts that leave.
    leaving: Vec<(u32, Vec<Part>)>,
    /// Those that arrive.
    arriving: Vec<(u32, Vec<Part>)>,
}

impl<'a> NodeHalo<'a> {
    /// The exchange of a node.
    #[must_use]
    pub fn new(placement: &'a Placement, grid: Grid, node: u32) -> Self {
        let leaving = Self::parts(placement, grid, node);
        let arriving = leaving.iter().map(|(other, _)| {
            let theirs = Self::parts(placement, grid, *other);
            let mine = theirs.into_iter().find(|(to, _)| *to == node);
            (*other, mine.map(|(_, parts)| parts).unwrap_or_default())
        });
        let arriving = arriving.collect();
        NodeHalo { placement, grid, node, leaving, arriving }
    }

    /// By node: what leaves `node` for it.
    fn parts(placement: &Placement, grid: Grid, node: u32) -> Vec<(u32, Vec<Part>)> {
        let mut found: Vec<(u32, Vec<Part>)> = Vec::new();
        for from in placement.members(node) {
            for (to, way) in grid.neighbours(from) {
                let other = placement.node_of(to);
                if other == node {
                    continue;
                }
                let at = found.partition_point(|(some, _)| *some < other);
                if found.get(at).is_none_or(|(some, _)| *some != other) {
                    found.insert(at, (other, Vec::new()));
                }
                let parts = &mut found[at].1;
                let before = parts.last().map_or(0, |part| part.at + grid.bytes(part.way));
                parts.push(Part { from, to, way, at: before });
            }
        }
        found
    }

    /// Nodes with which this one exchanges a message, in ascending order.
    pub fn others(&self) -> impl Iterator<Item = u32> {
        self.leaving.iter().map(|(other, _)| *other)
    }

    fn bytes(&self, parts: &[Part]) -> u32 {
        parts.iter().map(|part| self.grid.bytes(part.way)).sum()
    }

    /// Where the message from another node arrives: process, and place in its `Inbox`.
    #[must_use]
    pub fn arrival(&self, from: u32) -> (u32, u32) {
        self.handled(&self.arriving, from)
    }

    /// The process that handles the message with another node, and the place of the message. The
    /// processes take turns.
    fn handled(&self, messages: &[(u32, Vec<Part>)], other: u32) -> (u32, u32) {
        let size = self.placement.size(self.node) as usize;
        let turn = messages.partition_point(|(some, _)| *some < other);
        let same = (turn % size..turn).step_by(size);
        let at = same.map(|turn| self.bytes(&messages[turn].1)).sum();
        (self.placement.worker(self.node, turn as u32), at)
    }

    /// Bytes of all messages that a process handles.
    fn area(&self, messages: &[(u32, Vec<Part>)], me: u32) -> u32 {
        let mine = messages.iter().filter(|(other, _)| self.handled(messages, *other).0 == me);
        mine.map(|(_, parts)| self.bytes(parts)).sum()
    }

    /// The program of a process of the node. `arrival` tells where the message to another node
    /// arrives, as that node's [`arrival`](Self::arrival) has it.
    #[must_use]
    pub fn program(&self, me: u32, arrival: impl Fn(u32) -> (u32, u32)) -> Program {
        let grid = self.grid;
        let (work, inbox) = (self.area(&self.leaving, me), self.area(&self.arriving, me));
        let mut program = Program::new(me, [0, grid.field(), work, inbox]);
        let field = place(me, Area::Receive, 0);
        // Counters: a process's field may be read; by node, what is packed and what has come;
        // neighbours that have read the field.
        let nodes = self.placement.nodes();
        let (packed, arrived, read) = (1, 1 + nodes, 1 + 2 * nodes);
        program.step(&[]).notifies(me, 0).add();
        for (other, parts) in &self.leaving {
            let (sender, at) = self.handled(&self.leaving, *other);
            let message = place(sender, Area::Work, at);
            let pieces: Vec<Piece> = parts
                .iter()
                .filter(|part| part.from == me)
                .flat_map(|part| {
                    let pieces = grid.pieces(part.way, true, false).into_iter();
                    pieces.map(|piece| Piece { to: piece.to + part.at, ..piece })
                })
                .collect();
            let mut mine = None;
            if !pieces.is_empty() {
                let step = program.step(&[]).moves(Kind::Copy, field, message, pieces);
                mine = Some(step.notifies(sender, packed + other).add());
            }
            if sender == me {
                let mut packers: Vec<u32> = parts.iter().map(|part| part.from).collect();
                packers.dedup();
                let (reader, at) = arrival(*other);
                let put = program.step(mine.as_slice());
                let put = put.awaits(me, packed + other, packers.len() as u32);
                let to = place(reader, Area::Inbox, at);
                let put = put.put(message, to, self.bytes(parts));
                put.notifies(reader, arrived + self.node).add();
            }
        }
        let mut readers = 0;
        for (other, way) in grid.neighbours(me) {
            if self.placement.node_of(other) == self.node {
                readers += 1;
                let back = way.map(|step| -step);
                let from = place(other, Area::Receive, 0);
                let step = program.step(&[]).awaits(other, 0, 1);
                let step = step.moves(Kind::Copy, from, field, grid.pieces(back, true, true));
                step.notifies(other, read).add();
            }
        }
        for (other, parts) in &self.arriving {
            let (reader, at) = self.handled(&self.arriving, *other);
            let message = place(reader, Area::Inbox, at);
            let pieces: Vec<Piece> = parts
                .iter()
                .filter(|part| part.to == me)
                .flat_map(|part| {
                    let pieces = grid.pieces(part.way, false, true).into_iter();
                    pieces.map(|piece| Piece { from: piece.from + part.at, ..piece })
                })
                .collect();
            if !pieces.is_empty() {
                let step = program.step(&[]).awaits(reader, arrived + other, 1);
                step.moves(Kind::Copy, message, field, pieces).add();
            }
        }
        program.wait(&[], me, read, readers);
        debug_assert!(self.placement.members(self.node).contains(&me));
        program
    }
}
