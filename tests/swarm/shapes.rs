//! Derived datatypes of 8-byte elements: a layout of the library, MPI's constructors of the same
//! datatype, and a plain list of the elements' displacements as the reference.

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
const LOTS: usize = 9000;
const LONG: u32 = 12;

/// A datatype as MPI's constructors make it. Displacements and strides are in bytes.
#[derive(Debug)]
pub enum Datatype {
    Word,
    Contiguous { count: u64, of: Rc<Datatype> },
    Hvector { count: u64, block: u64, stride: i64, of: Rc<Datatype> },
    Hindexed { blocks: Vec<Block>, of: Rc<Datatype> },
    Struct { members: [(i64, Rc<Datatype>); 2] },
    Resized { lower: i64, extent: i64, of: Rc<Datatype> },
}

impl Datatype {
    /// Whether `MPI_Type_create_resized` has set its bounds, or those of a part.
    fn is_resized(&self) -> bool {
        match self {
            Datatype::Word => false,
            Datatype::Resized { .. } => true,
            Datatype::Struct { members } => members.iter().any(|(_, of)| of.is_resized()),
            Datatype::Contiguous { of, .. }
            | Datatype::Hvector { of, .. }
            | Datatype::Hindexed { of, .. } => of.is_resized(),
        }
    }
}

/// The elements of one side of an operation.
#[derive(Clone, Debug)]
pub struct Places {
    pub side: Side,
    /// The datatype of the items, and their number.
    pub items: (Rc<Datatype>, u64),
    /// Displacement of each element, in packing order.
    pub words: Vec<i64>,
    /// Bytes before the first item.
    pub before: usize,
    /// Bytes in total, including those before the first item.
    pub span: usize,
}

impl Places {
    fn new(side: Side, items: (Rc<Datatype>, u64), words: Vec<i64>) -> Self {
        let low = words.iter().min().map_or(0, |low| (*low).min(0));
        let high = words.iter().max().map_or(0, |high| high + WORD as i64);
        let (before, span) = (-low as usize, (high.max(0) - low) as usize);
        Places { side, items, words, before, span }
    }

    /// Contiguous bytes.
    pub fn flat(words: usize) -> Self {
        Places::new(
            Side::flat((words * WORD) as u64),
            (Rc::new(Datatype::Word), words as u64),
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

type Made = (Layout, Rc<Datatype>, Vec<i64>);

fn copies(words: &[i64], count: u64, stride: i64, at: i64) -> impl Iterator<Item = i64> {
    (0..count as i64).flat_map(move |copy| words.iter().map(move |word| word + copy * stride + at))
}

impl Generator {
    /// A random datatype of this nesting depth.
    fn any_type(&mut self, depth: u32) -> Made {
        if depth == 0 {
            let word = Layout::element(WORD as u64, WORD as i64).expect("a word");
            return (word, Rc::new(Datatype::Word), vec![0]);
        }
        let (inner, of, words) = self.any_type(depth - 1);
        let extent = inner.extent();
        let rng = &mut self.rng;
        let made = match rng.u8(0..5) {
            0 => {
                let count = rng.u64(1..5);
                let all = copies(&words, count, extent, 0).collect();
                (inner.repeated(count, extent), Datatype::Contiguous { count, of }, all)
            }
            1 => {
                let (count, block) = (rng.u64(1..6), rng.u64(1..4));
                let stride =
                    extent * (block as i64 + rng.i64(0..4)) * if rng.bool() { 1 } else { -1 };
                let one: Vec<i64> = copies(&words, block, extent, 0).collect();
                let all = copies(&one, count, stride, 0).collect();
                let datatype = Datatype::Hvector { count, block, stride, of };
                (inner.strided(count, block, stride), datatype, all)
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
                (inner.blocks(blocks.iter().copied()), Datatype::Hindexed { blocks, of }, all)
            }
            3 => {
                let (other, of_other, others) = self.any_type(depth - 1);
                let low = |words: &[i64]| words.iter().min().copied().unwrap_or(0);
                let high = |words: &[i64]| words.iter().max().map_or(0, |last| last + WORD as i64);
                let at = high(&words) - low(&others) + WORD as i64 * self.rng.i64(0..3);
                let members =
                    [(Block { count: 1, at: 0 }, &inner), (Block { count: 1, at }, &other)];
                let layout = Layout::structure(members);
                let differ = of.is_resized() != of_other.is_resized()
                    || words.is_empty()
                    || others.is_empty();
                let mut datatype = Datatype::Struct { members: [(0, of), (at, of_other)] };
                // Hosts differ in the bounds if one member is empty, or if one is resized: by
                // MPI-4.1 section 5.1.6 the bounds are those of that member, MPICH takes both.
                if let Some(layout) = layout.as_ref().filter(|_| differ) {
                    let (lower, extent) = (layout.lower(), layout.extent());
                    datatype = Datatype::Resized { lower, extent, of: Rc::new(datatype) };
                }
                (layout, datatype, words.iter().copied().chain(copies(&others, 1, 0, at)).collect())
            }
            _ => {
                let extent = extent.abs() + WORD as i64 * rng.i64(0..3);
                (Some(inner.resized(0, extent)), Datatype::Resized { lower: 0, extent, of }, words)
            }
        };
        (made.0.expect("small numbers"), Rc::new(made.1), made.2)
    }

    /// Random positions that do not overlap, between one and `most`.
    pub fn any_places(&mut self, most: usize) -> Places {
        for _ in 0..8 {
            let depth = self.rng.u32(1..4);
            let (layout, datatype, words) = self.any_type(depth);
            let count = self.rng.u64(1..4);
            let all: Vec<i64> = copies(&words, count, layout.extent(), 0).collect();
            let mut sorted = all.clone();
            sorted.sort_unstable();
            let apart = sorted.windows(2).all(|pair| pair[1] - pair[0] >= WORD as i64);
            if apart && !all.is_empty() && all.len() <= most {
                return Places::new(Side::items(Arc::new(layout), count), (datatype, count), all);
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
                let (count, of) = (count as u64, Rc::new(Datatype::Word));
                let datatype = Datatype::Hvector { count, block: 1, stride, of };
                return Places::new(
                    Side::items(Arc::new(layout), 1),
                    (Rc::new(datatype), 1),
                    copies(&[0], count, stride, 0).collect(),
                );
            }
            _ => {
                let mut places: Vec<i64> =
                    (0..count as i64).map(|at| at * 2 * WORD as i64).collect();
                self.rng.shuffle(&mut places);
                places
            }
        };
        let blocks: Vec<_> = words.iter().map(|at| Block { count: 1, at: *at }).collect();
        let layout = word.blocks(blocks.iter().copied()).expect("small numbers");
        let datatype = Datatype::Hindexed { blocks, of: Rc::new(Datatype::Word) };
        Places::new(Side::items(Arc::new(layout), 1), (Rc::new(datatype), 1), words)
    }

    fn sides(&mut self, target: Places) -> u32 {
        let (origin, result) =
            (self.places_for(target.words.len()), self.places_for(target.words.len()));
        self.program.sides.push(Rc::new(Sides { origin, result, target }));
        self.program.sides.len() as u32 - 1
    }

    pub fn words(&mut self, words: Vec<u64>) -> Expect {
        self.program.words.push(words);
        Expect::Words(self.program.words.len() as u32 - 1)
    }

    /// A put or accumulate to memory that nothing else touches; the gaps must stay unchanged. Read
    /// back after a flush.
    pub fn own_shaped(&mut self, open: &mut Open, target: Rank) {
        let many = if self.features.long_transfers { LOTS } else { MANY };
        let places = if self.features.bulk && self.one_in(LONG) {
            self.places_for(many)
        } else {
            self.any_places(FEW)
        };
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
            let reduction = self.reductions[self.rng.usize(0..self.reductions.len())];
            for (at, operand) in operands.into_iter().enumerate() {
                let held = &mut current[word(at)];
                *held = reduced(reduction, *held, operand);
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

    /// A put to any places, whose displacement counts from the begin of its memory, and the bytes
    /// of that.
    pub fn shaped_plan(&mut self) -> (Plan, usize) {
        let places = self.any_places(FEW);
        let (disp, len, span) = (places.before, places.words.len() * WORD, places.span);
        let sides = Some(self.sides(places));
        (Plan { disp, len, sides, ..NO_OP }, span)
    }

    pub fn block_ends(&mut self, window: u32, rank: Rank, disp: usize, words: &[u64]) {
        let bytes = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.program.regions.push(Region { window, rank, disp, bytes });
    }
}

/// The datatype of an element.
pub const ELEMENT: Element = native::U64;
