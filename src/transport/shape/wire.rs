//! A side in a message.
//!
//! Little-endian words: items, steps, extent, element size and whether elements join, the outermost body; then per step `at`,
//! `count`, `stride`, and either a run's length or a body. Plain bytes are a side without steps. Sizes and bounds do not travel:
//! the reader derives them, so that none can be wrong. What is read is safe to walk, and ends after as many bytes of data as it
//! says; whether it lies in the window is for the reader to ask ([`Side::bounds`]).

use std::sync::Arc;

use super::cursor::Side;
use super::layout::{Layout, Step, reach};

/// Words before the steps, and of each step.
const HEAD: usize = 5;
const STEP: usize = 4;
/// Marks a step that is a leaf, whose length follows.
const LEAF: u64 = 1 << 63;
/// Where elements join.
const JOINS: u64 = 1 << 32;

/// What is wrong with a side in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// It ends too early.
    #[error("the layout is cut off")]
    Short,
    /// A body is not before the step that uses it, or beyond the steps.
    #[error("a layout's step refers to no earlier steps")]
    Reference,
    /// A step without data, or without pieces.
    #[error("a layout's step is empty")]
    Empty,
    /// A size or an address passes 63 bits.
    #[error("a layout's size or address passes 63 bits")]
    Overflow,
}

/// Bytes that a side takes.
#[must_use]
pub fn length(side: &Side) -> usize {
    8 * (HEAD + side.layout().filter(|_| side.size() > 0).map_or(0, |(layout, _)| STEP * layout.steps.len()))
}

/// Writes a side behind what is there.
pub fn write(side: &Side, out: &mut Vec<u8>) {
    let mut word = |value: u64| out.extend_from_slice(&value.to_le_bytes());
    let Some((layout, count)) = side.layout().filter(|_| side.size() > 0) else {
        return [side.size(), 0, 0, 0, 0].into_iter().for_each(word);
    };
    word(count);
    word(layout.steps.len() as u64);
    word(layout.extent as u64);
    word(u64::from(layout.unit) | if layout.joins { JOINS } else { 0 });
    word(u64::from(layout.first) << 32 | u64::from(layout.body));
    for step in &layout.steps {
        word(step.at as u64);
        word(step.count);
        word(step.stride as u64);
        word(if step.is_leaf() { LEAF | step.len } else { u64::from(step.first) << 32 | u64::from(step.body) });
    }
}

/// Reads a side, and gives what follows it.
///
/// # Errors
/// It is not what [`write`] writes.
pub fn read(from: &[u8]) -> Result<(Side, &[u8]), Malformed> {
    let (head, rest) = from.split_at_checked(8 * HEAD).ok_or(Malformed::Short)?;
    let [count, length, extent, unit, roots] = words(head);
    if length == 0 {
        return i64::try_from(count).map(|_| (Side::flat(count), rest)).map_err(|_| Malformed::Overflow);
    }
    let bytes = usize::try_from(length).ok().and_then(|length| length.checked_mul(8 * STEP)).ok_or(Malformed::Short)?;
    let (listed, rest) = rest.split_at_checked(bytes).ok_or(Malformed::Short)?;
    let mut read = Reader::with_capacity(listed.len() / (8 * STEP));
    for raw in listed.chunks_exact(8 * STEP) {
        let [at, count, stride, what] = words(raw);
        let mut step = Step::leaf(at as i64, what & !LEAF, count, stride as i64);
        let mut within = (0, i64::try_from(step.len).map_err(|_| Malformed::Overflow)?);
        if what & LEAF == 0 {
            (step.first, step.body) = ((what >> 32) as u32, what as u32);
            (step.len, within) = read.body(step.first, step.body)?;
        }
        read.add(step, within)?;
    }
    let (first, body) = ((roots >> 32) as u32, roots as u32);
    let (size, (low, high)) = read.body(first, body)?;
    let (unit, joins) = ((unit as u8).max(1), unit & JOINS != 0);
    let extent = extent as i64;
    let layout = Layout { steps: read.steps.into(), first, body, size, lower: low, extent, low, high, unit, joins };
    if layout.size_of(count).is_none() || layout.bounds_of(count).is_none() {
        return Err(Malformed::Overflow);
    }
    Ok((Side::items(Arc::new(layout), count), rest))
}

/// Size and bounds.
type Measure = (u64, (i64, i64));

/// Steps that were read.
struct Reader {
    steps: Vec<Step>,
    /// Bounds of all pieces of each step, in its body.
    reaches: Vec<(i64, i64)>,
    /// The body to which each step belongs, by its first step: one, so that `before` means one thing, and all bodies together are
    /// measured in the time that the steps take.
    owners: Vec<u32>,
    /// Of bodies, at their first step: their length and what they measure.
    bodies: Vec<Option<(u32, Measure)>>,
}

const NOBODY: u32 = u32::MAX;

impl Reader {
    fn with_capacity(steps: usize) -> Self {
        let reaches = Vec::with_capacity(steps);
        Reader { steps: Vec::with_capacity(steps), reaches, owners: Vec::with_capacity(steps), bodies: Vec::with_capacity(steps) }
    }

    /// A step whose piece has these bounds.
    fn add(&mut self, step: Step, (low, high): (i64, i64)) -> Result<(), Malformed> {
        if step.count == 0 || step.len == 0 {
            return Err(Malformed::Empty);
        }
        let ends = reach(low, high, step.count, step.stride);
        let ends = ends.and_then(|(low, high)| Some((low.checked_add(step.at)?, high.checked_add(step.at)?)));
        step.len.checked_mul(step.count).filter(|size| i64::try_from(*size).is_ok()).ok_or(Malformed::Overflow)?;
        self.reaches.push(ends.ok_or(Malformed::Overflow)?);
        self.steps.push(step);
        self.owners.push(NOBODY);
        self.bodies.push(None);
        Ok(())
    }

    /// A body of steps that were read, so that nothing contains itself.
    fn body(&mut self, first: u32, body: u32) -> Result<Measure, Malformed> {
        let end = (first as usize).checked_add(body as usize).filter(|end| *end <= self.steps.len() && body > 0);
        let range = first as usize..end.ok_or(Malformed::Reference)?;
        if let Some((length, measure)) = self.bodies[range.start] {
            return if length == body { Ok(measure) } else { Err(Malformed::Reference) };
        }
        let (mut size, mut low, mut high) = (0u64, i64::MAX, i64::MIN);
        for at in range {
            if self.owners[at] != NOBODY {
                return Err(Malformed::Reference);
            }
            let step = &mut self.steps[at];
            (self.owners[at], step.before) = (first, size);
            size =
                size.checked_add(step.len * step.count).filter(|size| i64::try_from(*size).is_ok()).ok_or(Malformed::Overflow)?;
            (low, high) = (low.min(self.reaches[at].0), high.max(self.reaches[at].1));
        }
        self.bodies[first as usize] = Some((body, (size, (low, high))));
        Ok((size, (low, high)))
    }
}

fn words<const N: usize>(bytes: &[u8]) -> [u64; N] {
    std::array::from_fn(|at| u64::from_le_bytes(bytes[8 * at..8 * at + 8].try_into().expect("eight bytes")))
}
