//! Where the areas and counters of programs are: in a window, which the processes of a node map.
//!
//! ```text
//! memory of a process: a line for each counter | areas of set 0 | areas of set 1
//! ```
//!
//! The window has a notification counter for each line. The process that it belongs to writes into
//! the line how often it has been raised from other nodes, since only this process can read it. The
//! processes of its node raise the line itself.

use super::blocks::Blocks;
use super::plan::{Order, Parts, Plan};
use crate::collective::nodes::{
    AREAS, Area, Block, Counter, Kind, Machine, Move, Place, Program, Totals, Turn, add_totals,
};
use crate::engine::{Addr, Notification, Op, Port};
use crate::mpi::collective::persistent::folding::FOLDED;
use crate::runtime::{Window, with_port};
use crate::sync::AtomicU64;
use crate::sync::Ordering::{AcqRel, Acquire, Release};
use crate::transport::copy;
use crate::transport::datatype::Combine;

/// Bytes of a cache line, in which each counter is alone, and at which areas begin.
const LINE: usize = 64;

/// Where a process has its counters and areas.
pub(super) struct Layout {
    /// Counters in a set, by part.
    counters: [u32; 2],
    /// By set and area, in bytes from the beginning of the memory. `Receive` has no place there.
    areas: [[usize; AREAS.len()]; 2],
    end: usize,
}

impl Layout {
    fn new(counters: [u32; 2], areas: [u32; AREAS.len()], unit: usize) -> Self {
        let mut end = 2 * (counters[0] + counters[1]) as usize * LINE;
        let mut place = |(area, units): (Area, u32)| {
            let at = end;
            if area != Area::Receive {
                end += (units as usize * unit).next_multiple_of(LINE);
            }
            at
        };
        let mut set = || {
            let mut all = AREAS.into_iter().zip(areas);
            std::array::from_fn(|_| all.next().map_or(0, &mut place))
        };
        let areas = [set(), set()];
        Layout { counters, areas, end }
    }

    /// Number of lines.
    pub(super) fn lines(&self) -> u32 {
        2 * (self.counters[0] + self.counters[1])
    }

    /// Sets all counters to 0. New windows may have memory of old ones.
    pub(super) fn clear(&self, base: usize) {
        let words = self.lines() as usize * LINE / size_of::<AtomicU64>();
        // SAFETY: the window's memory begins with so many bytes of lines, for words that are used
        // by atomics only.
        let words = unsafe {
            std::slice::from_raw_parts(std::ptr::with_exposed_provenance::<AtomicU64>(base), words)
        };
        words.iter().for_each(|word| word.store(0, Release));
    }

    /// Bytes of the memory.
    pub(super) fn bytes(&self) -> usize {
        self.end
    }

    fn line(&self, turn: Turn, index: u32) -> u32 {
        let first = if turn.part == 0 { 0 } else { 2 * self.counters[0] };
        first + turn.set as u32 * self.counters[turn.part] + index
    }

    fn area(&self, set: usize, area: Area) -> usize {
        self.areas[set][area.number()]
    }
}

/// What the programs of a part add up to.
pub(super) struct Sums {
    pub(super) totals: Totals,
    /// How often each counter is raised from other nodes.
    far: Totals,
}

impl Sums {
    pub(super) fn of(order: &Order, programs: &[Program]) -> Self {
        let mut sums = Sums { totals: Totals::new(), far: Totals::new() };
        let node_of = |at| order.placement.node_of(at);
        for program in programs {
            add_totals(program, &mut sums.totals);
            for step in program.steps() {
                let moves = step.moves.filter(|moves| {
                    moves.kind == Kind::Put && node_of(moves.to.rank) != node_of(program.me())
                });
                if let Some(counter) = moves.and(step.notifies) {
                    *sums.far.entry(counter).or_insert(0) += 1;
                }
            }
        }
        sums
    }

    /// Number of counters of a process.
    fn counters(&self, rank: u32) -> u32 {
        let own = self.totals.keys().filter(|counter| counter.rank == rank);
        own.map(|counter| counter.index + 1).max().unwrap_or(0)
    }
}

/// The layouts of all processes, by position. `packs`: what is sent is packed into messages, so
/// `Send` has no place either.
pub(super) fn layouts(plan: &Plan, sums: &[Sums; 2], packs: bool) -> Vec<Layout> {
    let each = plan.programs.iter().map(|program| {
        let counters = [&sums[0], &sums[1]].map(|sums| sums.counters(program.me()));
        let mut areas = program.areas();
        if packs {
            areas[Area::Send.number()] = 0;
        }
        Layout::new(counters, areas, plan.unit)
    });
    each.collect()
}

/// A notification counter that rises in a run.
#[derive(Clone, Copy)]
struct Arriving {
    line: u32,
    /// What it has when all of the run have arrived.
    value: u64,
}

/// The application's buffers: as parts of `Send` and `Receive`, or as blocks in their place.
#[derive(Default)]
pub(super) struct Buffers {
    pub(super) sends: Parts,
    pub(super) receives: Parts,
    pub(super) blocks: Option<Blocks>,
    pub(super) combine: Option<Combine>,
}

/// The memory of a program in this process.
pub(super) struct Memory {
    /// This process's position.
    me: u32,
    order: Order,
    layouts: Vec<Layout>,
    /// By position: where the memory of a process is here. 0: on another node.
    bases: Vec<usize>,
    unit: usize,
    buffers: Buffers,
    /// `Receive`, unless it is one part of the application's: aligned for every element.
    private: Vec<u128>,
    /// By part: its counters that are raised from other nodes, and how often in a run.
    far: [Vec<(u32, u32)>; 2],
    /// By part: those that have not had all of the current run.
    arriving: [Vec<Arriving>; 2],
}

// SAFETY: addresses in the window's memory and of the application's buffers, which any thread may
// use while the collective is active.
unsafe impl Send for Memory {}

/// What a program is about.
pub(super) struct Terms {
    pub(super) me: u32,
    pub(super) unit: usize,
    pub(super) buffers: Buffers,
    /// Bytes of `Receive`. 0: there are blocks in its place.
    pub(super) received: usize,
}

impl Memory {
    pub(super) fn new(
        terms: Terms,
        order: Order,
        (layouts, bases): (Vec<Layout>, Vec<usize>),
        sums: &[Sums; 2],
    ) -> Self {
        let Terms { me, unit, buffers, received } = terms;
        let far = [&sums[0], &sums[1]].map(|sums| {
            let own = sums.far.iter().filter(|(counter, _)| counter.rank == me);
            own.map(|(counter, times)| (counter.index, *times)).collect()
        });
        let is_whole = matches!(buffers.receives[..], [(0, part)] if part.bytes == received);
        let words = if is_whole { 0 } else { received.div_ceil(size_of::<u128>()) };
        let (private, arriving) = (vec![0; words], [Vec::new(), Vec::new()]);
        Memory { me, order, layouts, bases, unit, buffers, private, far, arriving }
    }

    /// Where a place of a process of this node is.
    fn address(&mut self, set: usize, place: Place) -> *mut u8 {
        let skipped = place.at as usize * self.unit;
        if place.area == Area::Receive {
            debug_assert_eq!(place.rank, self.me, "a program receives for its own process only");
            let base = match &self.buffers.receives[..] {
                [(_, part)] if self.private.is_empty() => part.at,
                _ => self.private.as_mut_ptr().cast(),
            };
            return base.wrapping_add(skipped);
        }
        let at = place.rank as usize;
        let offset = self.layouts[at].area(set, place.area);
        std::ptr::with_exposed_provenance_mut(self.bases[at] + offset + skipped)
    }

    /// The words of a line of a process of this node: how often its counter was raised by
    /// processes of the node, and by others.
    fn words(&self, rank: u32, line: u32) -> &[AtomicU64; 2] {
        let address = self.bases[rank as usize] + line as usize * LINE;
        // SAFETY: the window's memory, which is mapped here until it is freed, begins with lines of
        // words that are used by atomics only.
        unsafe { &*std::ptr::with_exposed_provenance(address) }
    }

    /// Those of a counter.
    fn counter(&self, turn: Turn, Counter { rank, index }: Counter) -> &[AtomicU64; 2] {
        self.words(rank, self.layouts[rank as usize].line(turn, index))
    }

    /// Whether everything of this run that other nodes put to this process has arrived.
    pub(super) fn has_arrived(&self) -> bool {
        self.arriving[0].is_empty()
    }

    /// Passes on what has arrived. True if anything had.
    pub(super) fn pass_on(&mut self, window: &mut Window) -> bool {
        let mut moved = false;
        for part in 0..self.arriving.len() {
            let mut arriving = std::mem::take(&mut self.arriving[part]);
            arriving.retain(|Arriving { line, value }| {
                let found = with_port!(&mut window.port, port => port.counter(*line));
                let [_, from_far] = self.words(self.me, *line);
                if from_far.load(Acquire) != found {
                    from_far.store(found, Release);
                    moved = true;
                }
                found < *value
            });
            self.arriving[part] = arriving;
        }
        moved
    }

    /// Delivers what was received, when the program is done.
    pub(super) fn deliver(&mut self) {
        if self.private.is_empty() {
            return;
        }
        let from: *const u8 = self.private.as_ptr().cast();
        for (at, part) in &self.buffers.receives {
            // SAFETY: the part lies in `Receive` and in the application's buffer, which belongs to
            // the collective.
            unsafe { copy(from.wrapping_add(*at), part.at, part.bytes) };
        }
    }

    /// Copies blocks, or reduces them into their places.
    fn move_blocks(&mut self, set: usize, blocks: impl Iterator<Item = Block>) {
        for Block { from, to, with, bytes } in blocks {
            if self.packs(set, (from, to), bytes as usize) {
                continue;
            }
            let first = with.filter(|with| *with != to).map(|with| self.address(set, with));
            let (source, target) = (self.address(set, from), self.address(set, to));
            let bytes = bytes as usize * self.unit;
            // SAFETY: the program's blocks lie in areas of processes of this node, which are mapped
            // here, and in `Receive`. Nobody writes what it reads or reads what it writes, until
            // its counters say so.
            unsafe {
                match with {
                    None => copy(source, target, bytes),
                    Some(_) => self.fold(source, first, target, bytes),
                }
            }
        }
    }

    /// Packs blocks or unpacks them, if that is how these bytes are moved.
    fn packs(&mut self, set: usize, (from, to): (Place, Place), bytes: usize) -> bool {
        if self.buffers.blocks.is_none() {
            return false;
        }
        let sends = from.area == Area::Send;
        let packed = self.address(set, if sends { to } else { from });
        let Some(blocks) = &self.buffers.blocks else { return false };
        // SAFETY: as in `move_blocks`. Buffers of the application belong to the collective.
        unsafe {
            match sends {
                true => blocks.pack(from.at as usize, bytes, packed),
                false => blocks.unpack(to.at as usize, bytes, packed),
            }
        }
        true
    }

    /// Reduces `from` into `to`, which becomes a copy of `first` before, if there is one.
    ///
    /// # Safety
    /// All are valid for so many bytes, whole elements.
    unsafe fn fold(&self, from: *const u8, first: Option<*mut u8>, to: *mut u8, bytes: usize) {
        let Some(combine) = self.buffers.combine else { return };
        for at in (0..bytes).step_by(FOLDED) {
            let bytes = FOLDED.min(bytes - at);
            // SAFETY: the contract of this function.
            unsafe {
                if let Some(first) = first {
                    copy(first.add(at), to.add(at), bytes);
                }
                combine.apply(from.add(at), to.add(at), bytes);
            }
        }
    }
}

/// A program's memory and window, in a step.
pub(super) struct Access<'a> {
    pub(super) memory: &'a mut Memory,
    pub(super) window: &'a mut Window,
    /// The engine has refused a put.
    pub(super) refused: bool,
}

impl Machine for Access<'_> {
    fn begin(&mut self, turn: Turn, before: u64) {
        let memory = &mut *self.memory;
        let layout = &memory.layouts[memory.me as usize];
        let expected = memory.far[turn.part].iter().map(|(index, times)| Arriving {
            line: layout.line(turn, *index),
            value: (before + 1) * u64::from(*times),
        });
        memory.arriving[turn.part].extend(expected);
        if turn.part == 0 {
            let (rank, area) = (memory.me, Area::Send);
            let to = memory.address(turn.set, Place { rank, area, at: 0 });
            for (at, part) in &memory.buffers.sends {
                // SAFETY: the application's buffer, which belongs to the collective, and a part of
                // the area, which nobody uses any more.
                unsafe { copy(part.at, to.wrapping_add(*at), part.bytes) };
            }
        }
    }

    fn count(&mut self, turn: Turn, counter: Counter) -> u64 {
        let [near, far] = self.memory.counter(turn, counter);
        near.load(Acquire) + far.load(Acquire)
    }

    fn raise(&mut self, turn: Turn, counter: Counter) {
        let [near, _] = self.memory.counter(turn, counter);
        near.fetch_add(1, AcqRel);
    }

    fn transfer(&mut self, turn: Turn, program: &Program, moves: &Move) {
        self.memory.move_blocks(turn.set, program.blocks(moves));
    }

    fn is_far(&self, rank: u32) -> bool {
        self.memory.bases[rank as usize] == 0
    }

    fn put(&mut self, turn: Turn, from: Place, to: Place, bytes: u32, counter: Counter) {
        let memory = &mut *self.memory;
        let unit = memory.unit;
        let there = &memory.layouts[to.rank as usize];
        debug_assert_eq!(to.rank, counter.rank, "a put notifies the process that it is for");
        let line = there.line(turn, counter.index);
        let disp = (there.area(turn.set, to.area) + to.at as usize * unit) as u64;
        let target = memory.order.ranks[to.rank as usize];
        let op = Op {
            origin: Addr(memory.address(turn.set, from).expose_provenance()),
            disp,
            len: (bytes as usize * unit) as u64,
            ..Op::notify(target, Notification::counter(line))
        };
        let issued = with_port!(&mut self.window.port, port => self.window.engine.issue(port, &op));
        self.refused |= issued.is_err();
    }
}
