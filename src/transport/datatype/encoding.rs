//! Sides as words, for another process of this library.

use std::sync::Arc;

use super::layout::{Layout, Step};
use super::walk::Side;

/// Words of a step.
const STEP: usize = 6;
/// Words of a layout before its steps.
const HEAD: usize = 8;

impl Side {
    /// Appends this side to `words`.
    pub fn encode(&self, words: &mut Vec<u64>) {
        let Some((layout, count)) = self.layout() else {
            words.extend([0, self.size()]);
            return;
        };
        words.extend([1 + layout.steps.len() as u64, self.size(), count]);
        layout.encode(words);
    }

    /// Takes a side from the beginning of `words`. `None`: it is not one.
    #[must_use]
    pub fn decode(words: &mut &[u64]) -> Option<Self> {
        let [kind, size] = take(words)?;
        let Some(steps) = kind.checked_sub(1) else { return Some(Side::flat(size)) };
        let [count] = take(words)?;
        let layout = Layout::decode(words, usize::try_from(steps).ok()?)?;
        let whole = layout.size_of(count)?;
        (size <= whole).then(|| Side::items(Arc::new(layout), count).first(size))
    }
}

impl Layout {
    fn encode(&self, words: &mut Vec<u64>) {
        let shape = u64::from(self.first) | u64::from(self.body) << 32;
        let kind = u64::from(self.unit) | u64::from(self.joins) << 8;
        words.extend([shape, kind, self.size]);
        let bounds = [self.lower, self.extent, self.low, self.high];
        words.extend(bounds.map(i64::cast_unsigned));
        words.push(self.steps.len() as u64);
        for step in &self.steps {
            let body = u64::from(step.first) | u64::from(step.body) << 32;
            let (at, stride) = (step.at.cast_unsigned(), step.stride.cast_unsigned());
            words.extend([at, step.count, stride, step.len, step.before, body]);
        }
    }

    fn decode(words: &mut &[u64], steps: usize) -> Option<Self> {
        let [shape, kind, size, lower, extent, low, high, length] = take::<HEAD>(words)?;
        let split = |word: u64| (word as u32, (word >> 32) as u32);
        let inside = |(first, body): (u32, u32), end: usize| first as usize + body as usize <= end;
        if length != steps as u64 || !inside(split(shape), steps) {
            return None;
        }
        let decoded: Option<Box<[Step]>> = (0..steps)
            .map(|index| {
                let [at, count, stride, len, before, body] = take::<STEP>(words)?;
                let (first, body) = split(body);
                // Bodies come before the steps that repeat them, so no walk is endless.
                let valid = count != 0 && len != 0 && (body == 0 || inside((first, body), index));
                let (at, stride) = (at.cast_signed(), stride.cast_signed());
                valid.then_some(Step { at, count, stride, len, before, first, body })
            })
            .collect();
        let (first, body) = split(shape);
        Some(Layout {
            steps: decoded?,
            first,
            body,
            size,
            lower: lower.cast_signed(),
            extent: extent.cast_signed(),
            low: low.cast_signed(),
            high: high.cast_signed(),
            unit: kind as u8,
            joins: kind >> 8 & 1 != 0,
        })
    }
}

fn take<const N: usize>(words: &mut &[u64]) -> Option<[u64; N]> {
    let (first, rest) = words.split_first_chunk()?;
    *words = rest;
    Some(*first)
}
