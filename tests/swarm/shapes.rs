//! Derived datatypes of 8-byte elements: a layout of the library, and a plain list of the elements'
//! displacements as the reference.

use std::rc::Rc;
use std::sync::Arc;

use mpix_rma::transport::datatype::element::{native, reduction};
use mpix_rma::transport::datatype::{Block, Layout, Side};

use mpix_rma::engine::*;

use super::generator::Generator;
use super::operations::{NO_OP, Open};
use super::program::*;

/// Bytes per element.
pub const WORD: usize = 8;
/// Maximum number of elements of an operation, except for one operation in [`LONG`].
const FEW: usize = 24;
const MANY: usize = 900;
const LONG: u32 = 12;

/// The elements of one side of an operation.
#[derive(Clone, Debug)]
pub struct Places {
    pub side: Side,
    /// Displacement of each element, in packing order.
    pub words: Vec<i64>,
    /// Bytes before the first item.
    pub before: usize,
    /// Bytes in total, including those before the first item.
    pub span: usize,
}

impl Places {
    fn new(side: Side, words: Vec<i64>) -> Self {
        let low = words.iter().min().map_or(0, |low| (*low).min(0));
        let high = words.iter().max().map_or(0, |high| high + WORD as i64);
        Places { side, words, before: -low as usize, span: (high.max(0) - low) as usize }
    }

    /// Contiguous bytes.
    pub fn flat(words: usize) -> Self {
        Places::new(
            Side::flat((words * WORD) as u64),
            (0..words as i64).map(|word| word * WORD as i64).collect(),
        )
    }

    /// Offset of an element in memory of `span` bytes.
    pub fn at(&self, word: usize) -> usize {
        (self.before as i64 + self.words[word]) as usize
    }
}

/// The three sides of an operation.
#[derive(Clone, Debug)]
pub struct Sides {
    pub origin: Places,
    pub result: Places,
    pub target: Places,
}

/// Expected content of a part of window memory.
#[derive(Clone, Debug)]
pub struct Region {
    pub window: u32,
    pub rank: Rank,
    pub disp: usize,
    pub bytes: Vec<u8>,
}

/// The words of a value.
pub fn words_of(value: u64, count: usize) -> Vec<u64> {
    let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("a word"));
    bytes_of(value, count * WORD).chunks_exact(WORD).map(word).collect()
}

type Made = (Layout, Vec<i64>);

fn copies(words: &[i64], count: u64, stride: i64, at: i64) -> impl Iterator<Item = i64> {
    (0..count as i64).flat_map(move |copy| words.iter().map(move |word| word + copy * stride + at))
}

impl Generator {
    /// A random datatype of this nesting depth.
    fn any_type(&mut self, depth: u32) -> Made {
        if depth == 0 {
            return (Layout::element(WORD as u64, WORD as i64).expect("a word"), vec![0]);
        }
        let (inner, words) = self.any_type(depth - 1);
        let extent = inner.extent();
        let rng = &mut self.rng;
        let made = match rng.u8(0..5) {
            0 => {
                let count = rng.u64(1..5);
                (inner.repeated(count, extent), copies(&words, count, extent, 0).collect())
            }
            1 => {
                let (count, block) = (rng.u64(1..6), rng.u64(1..4));
                let stride =
                    extent * (block as i64 + rng.i64(0..4)) * if rng.bool() { 1 } else { -1 };
                let one: Vec<i64> = copies(&words, block, extent, 0).collect();
                (inner.strided(count, block, stride), copies(&one, count, stride, 0).collect())
            }
            2 => {
                let mut at = 0;
                let mut blocks = Vec::new();
                for _ in 0..rng.u32(1..5) {
                    let count = rng.u64(0..3);
                    blocks.push(Block { count, at });
                    at += extent * (count as i64 + rng.i64(0..3));
                }
                rng.shuffle(&mut blocks);
                let all = blocks
                    .iter()
                    .flat_map(|block| copies(&words, block.count, extent, block.at))
                    .collect();
                (inner.blocks(blocks), all)
            }
            3 => {
                let (other, others) = self.any_type(depth - 1);
                let low = |words: &[i64]| words.iter().min().copied().unwrap_or(0);
                let high = |words: &[i64]| words.iter().max().map_or(0, |last| last + WORD as i64);
                let at = high(&words) - low(&others) + WORD as i64 * self.rng.i64(0..3);
                let members =
                    [(Block { count: 1, at: 0 }, &inner), (Block { count: 1, at }, &other)];
                (
                    Layout::structure(members),
                    words.iter().copied().chain(copies(&others, 1, 0, at)).collect(),
                )
            }
            _ => (Some(inner.resized(0, extent.abs() + WORD as i64 * rng.i64(0..3))), words),
        };
        (made.0.expect("small numbers"), made.1)
    }

    /// Random positions that do not overlap, between one and `most`.
    pub fn any_places(&mut self, most: usize) -> Places {
        for _ in 0..8 {
            let depth = self.rng.u32(1..4);
            let (layout, words) = self.any_type(depth);
            let count = self.rng.u64(1..4);
            let all: Vec<i64> = copies(&words, count, layout.extent(), 0).collect();
            let mut sorted = all.clone();
            sorted.sort_unstable();
            let apart = sorted.windows(2).all(|pair| pair[1] - pair[0] >= WORD as i64);
            if apart && !all.is_empty() && all.len() <= most {
                return Places::new(Side::items(Arc::new(layout), count), all);
            }
        }
        Places::flat(self.rng.usize(1..=most))
    }

    /// Positions for `count` words: contiguous, strided, or in any order.
    pub fn places_for(&mut self, count: usize) -> Places {
        let word = Layout::element(WORD as u64, WORD as i64).expect("a word");
        let words: Vec<i64> = match self.rng.u8(0..3) {
            0 => return Places::flat(count),
            1 => {
                let stride = WORD as i64 * self.rng.i64(1..4);
                let layout = word.repeated(count as u64, stride).expect("small numbers");
                return Places::new(
                    Side::items(Arc::new(layout), 1),
                    copies(&[0], count as u64, stride, 0).collect(),
                );
            }
            _ => {
                let mut places: Vec<i64> =
                    (0..count as i64).map(|at| at * 2 * WORD as i64).collect();
                self.rng.shuffle(&mut places);
                places
            }
        };
        let layout =
            word.blocks(words.iter().map(|at| Block { count: 1, at: *at })).expect("small numbers");
        Places::new(Side::items(Arc::new(layout), 1), words)
    }

    fn sides(&mut self, target: Places) -> u32 {
        let (origin, result) =
            (self.places_for(target.words.len()), self.places_for(target.words.len()));
        self.program.sides.push(Rc::new(Sides { origin, result, target }));
        self.program.sides.len() as u32 - 1
    }

    fn words(&mut self, words: Vec<u64>) -> Expect {
        self.program.words.push(words);
        Expect::Words(self.program.words.len() as u32 - 1)
    }

    /// A put or accumulate to memory that nothing else touches; the gaps must stay unchanged. Read
    /// back after a flush.
    pub fn own_shaped(&mut self, open: &mut Open, target: Rank) {
        let most = if self.features.bulk && self.one_in(LONG) { MANY } else { FEW };
        let places = if most == MANY { self.places_for(MANY) } else { self.any_places(most) };
        let base = self.alloc(open.window, target, places.span);
        let value = self.value();
        let words = words_of(value, places.words.len());
        let mut bytes = vec![0; places.span];
        for (at, word) in words.iter().enumerate() {
            bytes[places.at(at)..][..WORD].copy_from_slice(&word.to_ne_bytes());
        }
        self.program.regions.push(Region { window: open.window, rank: target, disp: base, bytes });
        let (disp, len) = (base + places.before, places.words.len() * WORD);
        let put = self.rng.bool();
        let kind = if put { OpKind::Put } else { OpKind::Accumulate };
        let reduction = if put { reduction::REPLACE } else { reduction::SUM };
        let sides = Some(self.sides(places.clone()));
        let plan = Plan {
            kind,
            reduction,
            target,
            disp,
            len,
            sides,
            source: Source::Value(value),
            ..NO_OP
        };
        self.issue(open, plan);
        self.count(if put { "put with a datatype" } else { "accumulate with a datatype" });
        if open.passive && open.may_wait && self.features.flushes {
            self.flush_how(open, Some(target), false, true);
            let (sides, expect) = (Some(self.sides(places)), self.words(words));
            self.issue(open, Plan { kind: OpKind::Get, target, disp, len, sides, expect, ..NO_OP });
            self.count("get with a datatype");
        }
    }

    /// Accumulates of one origin to its own memory take effect in order at each location, whatever
    /// the datatypes.
    pub fn shaped_sequence(&mut self, open: &mut Open, target: Rank) {
        const BLOCK: usize = 16;
        let ordered = self.ordered(open.window);
        let known = self.cells(open.window, target).block.get(&open.me).cloned();
        let fresh = |g: &mut Self| (g.alloc(open.window, target, BLOCK * WORD), vec![0; BLOCK]);
        let (base, mut current) = match known.filter(|_| ordered) {
            Some(known) => known,
            None => fresh(self),
        };
        for _ in 0..self.rng.u32(2..6) {
            // A part of the block, with or without a datatype.
            let (places, first) = loop {
                let places = if self.one_in(3) {
                    Places::flat(self.rng.usize(1..=BLOCK))
                } else {
                    self.any_places(BLOCK)
                };
                if places.span <= BLOCK * WORD {
                    let room = BLOCK - places.span / WORD;
                    break (places, self.rng.usize(0..=room));
                }
            };
            let count = places.words.len();
            let value = self.value();
            let operands = words_of(value, count);
            let word = |at: usize| first + places.at(at) / WORD;
            let old: Vec<u64> = (0..count).map(|at| current[word(at)]).collect();
            let reduction = [
                reduction::REPLACE,
                reduction::SUM,
                reduction::BXOR,
                reduction::MAX,
                reduction::NO_OP,
            ];
            let reduction = reduction[self.rng.usize(0..5)];
            for at in 0..count {
                let (held, operand) = (&mut current[word(at)], operands[at]);
                *held = match reduction {
                    reduction::REPLACE => operand,
                    reduction::SUM => held.wrapping_add(operand),
                    reduction::BXOR => *held ^ operand,
                    reduction::MAX => (*held).max(operand),
                    _ => *held,
                };
            }
            let fetches = reduction == reduction::NO_OP || self.rng.bool();
            let kind = if fetches { OpKind::GetAccumulate } else { OpKind::Accumulate };
            let disp = base + first * WORD + places.before;
            // Sometimes contiguous on all sides: an operation without a shape.
            let plain = places.side.layout().is_none() && self.rng.bool();
            let sides = if plain { None } else { Some(self.sides(places)) };
            let expect = if fetches { self.words(old) } else { Expect::Open };
            let source = Source::Value(value);
            self.issue(
                open,
                Plan {
                    kind,
                    reduction,
                    target,
                    disp,
                    len: count * WORD,
                    sides,
                    source,
                    expect,
                    ..NO_OP
                },
            );
        }
        if ordered {
            self.cells(open.window, target).block.insert(open.me, (base, current));
        } else {
            self.block_ends(open.window, target, base, &current);
        }
        self.count("sequence of atomics with datatypes");
    }

    pub fn block_ends(&mut self, window: u32, rank: Rank, disp: usize, words: &[u64]) {
        let bytes = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.program.regions.push(Region { window, rank, disp, bytes });
    }
}

/// The datatype of an element.
pub const ELEMENT: Element = native::U64;
