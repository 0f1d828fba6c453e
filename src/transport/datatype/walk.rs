//! Walks through the data of one side, or of two sides at once.

use std::sync::Arc;

use smallvec::SmallVec;

use super::layout::{Layout, Step, hull, merged, reach};

/// One side of an operation: items of a layout, or plain bytes.
///
/// A side may end within an item: an operation may move less than the buffer has room for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Side {
    layout: Option<Arc<Layout>>,
    /// Items, the last of which may be partial; bytes if there is no layout.
    count: u64,
    /// Bytes of data.
    size: u64,
}

impl Side {
    /// Contiguous bytes.
    #[must_use]
    pub fn flat(bytes: u64) -> Self {
        Side { layout: None, count: bytes, size: bytes }
    }

    /// Items of a layout, an extent apart.
    #[must_use]
    pub fn items(layout: Arc<Layout>, count: u64) -> Self {
        let size = layout.size() * count;
        Side { layout: Some(layout), count, size }
    }

    /// The first `bytes` bytes of this side, which has at least that many.
    #[must_use]
    pub fn first(self, bytes: u64) -> Self {
        debug_assert!(bytes <= self.size);
        if bytes == self.size {
            return self;
        }
        let count = match &self.layout {
            None => bytes,
            Some(layout) if bytes > 0 => bytes.div_ceil(layout.size()),
            Some(_) => 0,
        };
        Side { layout: self.layout, count, size: bytes }
    }

    /// Bytes of data.
    #[must_use]
    #[inline]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Displacements of the first data byte and past the last. Both 0 without data.
    #[must_use]
    pub fn bounds(&self) -> (i64, i64) {
        match &self.layout {
            None => (0, self.count as i64),
            Some(layout) => self.bounds_of_items(layout).unwrap_or((i64::MIN, i64::MAX)),
        }
    }

    /// `None` if they exceed 64 bits: no process has memory for such data.
    fn bounds_of_items(&self, layout: &Layout) -> Option<(i64, i64)> {
        if self.size == layout.size() * self.count {
            return layout.bounds_of(self.count);
        }
        let whole = self.size / layout.size();
        let mut bounds = if whole > 0 { Some(layout.bounds_of(whole)?) } else { None };
        // Only part of the last item belongs to the side, so add that run by run.
        let mut walk = self.walk(whole * layout.size());
        while let Some(runs) = walk.next_runs(u64::MAX) {
            bounds = Some(hull(bounds, runs.bounds()?));
        }
        bounds
    }

    /// Displacement of the data, if they are a single run.
    #[must_use]
    pub fn run(&self) -> Option<i64> {
        let top = self.top();
        (top.is_run() && top.len >= self.size).then_some(top.at)
    }

    /// The layout and the number of its items.
    #[must_use]
    pub fn layout(&self) -> Option<(&Arc<Layout>, u64)> {
        self.layout.as_ref().map(|layout| (layout, self.count))
    }

    fn steps(&self) -> &[Step] {
        self.layout.as_ref().map_or(&[], |layout| &layout.steps)
    }

    /// The whole side as one step.
    #[inline]
    fn top(&self) -> Step {
        let Some(layout) = &self.layout else { return Step::leaf(0, self.count, 1, 0) };
        if self.count != 0
            && let [root] = layout.roots()
            && let Some(step) = merged(root, self.count, layout.extent, layout.joins)
        {
            return step;
        }
        layout.copies(self.count, layout.extent)
    }

    /// A walk that starts `from` bytes after the first byte of data.
    #[must_use]
    #[inline]
    pub fn walk(&self, from: u64) -> Cursor<'_> {
        let left = self.size().saturating_sub(from);
        let (steps, top, frames) = (self.steps(), self.top(), SmallVec::new());
        let (run, rest, count, stride, at) = (0, 0, 0, 0, 0);
        let mut cursor = Cursor { steps, top, frames, left, run, rest, count, stride, at };
        if left > 0 {
            cursor.enter(TOP, 0, from);
        }
        cursor
    }
}

/// Index that stands for the whole side as one step.
const TOP: u32 = u32::MAX;

/// A step on the path to the current leaf.
#[derive(Clone, Copy, Debug)]
struct Frame {
    step: u32,
    /// Displacement of the body that contains the step.
    base: i64,
    /// Index of the current copy of its own body.
    copy: u64,
    /// Index of the current step in that body.
    member: u32,
}

/// A walk through the data of a [`Side`], at present through the `count` last runs of a leaf.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    steps: &'a [Step],
    top: Step,
    frames: SmallVec<[Frame; 4]>,
    /// Bytes of data left.
    left: u64,
    /// Bytes of each run.
    run: u64,
    /// Bytes left in the current run.
    rest: u64,
    count: u64,
    stride: i64,
    /// Displacement of the next byte.
    at: i64,
}

impl Cursor<'_> {
    #[inline]
    fn step(&self, step: u32) -> Step {
        if step == TOP { self.top } else { self.steps[step as usize] }
    }

    /// Descends into a step of a body at `base`, to byte `from` of its data.
    fn enter(&mut self, mut step: u32, mut base: i64, mut from: u64) {
        loop {
            let held = self.step(step);
            debug_assert!(held.count > 0 && held.len > 0);
            let copy = if from == 0 { 0 } else { from / held.len };
            let begin = base + held.at + (copy as i64).wrapping_mul(held.stride);
            from -= copy * held.len;
            if held.is_leaf() {
                (self.run, self.rest, self.count) = (held.len, held.len - from, held.count - copy);
                (self.stride, self.at) = (held.stride, begin + from as i64);
                return;
            }
            let members = &self.steps[held.first as usize..][..held.body as usize];
            let member = if from == 0 {
                0
            } else {
                members.partition_point(|member| member.before <= from) - 1
            };
            from -= members[member].before;
            self.frames.push(Frame { step, base, copy, member: member as u32 });
            (step, base) = (held.first + member as u32, begin);
        }
    }

    /// Moves to the next leaf.
    #[inline(never)]
    fn leave(&mut self) {
        while let Some(frame) = self.frames.last_mut() {
            let (step, base) = (frame.step, frame.base);
            let held = if step == TOP { self.top } else { self.steps[step as usize] };
            frame.member += 1;
            if frame.member == held.body {
                (frame.member, frame.copy) = (0, frame.copy + 1);
                if frame.copy == held.count {
                    self.frames.pop();
                    continue;
                }
            }
            let begin = base + held.at + (frame.copy as i64).wrapping_mul(held.stride);
            let member = held.first + frame.member;
            return self.enter(member, begin, 0);
        }
        debug_assert_eq!(self.left, 0);
    }

    /// Advances by `count` pieces of `len` bytes: whole runs, or adjacent parts of one run.
    #[inline(always)]
    fn pass(&mut self, len: u64, count: u64) {
        self.left -= len * count;
        if len == self.rest {
            self.count -= count;
            // The strides count from the start of the current run.
            let back = (self.run - self.rest) as i64;
            self.at =
                self.at.wrapping_add((count as i64).wrapping_mul(self.stride)).wrapping_sub(back);
            self.rest = self.run;
        } else {
            let bytes = len * count;
            self.rest -= bytes;
            self.at += bytes as i64;
            if self.rest == 0 {
                self.count -= 1;
                self.at = self.at.wrapping_sub(self.run as i64).wrapping_add(self.stride);
                self.rest = self.run;
            }
        }
        if self.count == 0 && self.left > 0 {
            self.leave();
        }
    }

    /// The next runs, whole or partial, at most `limit` bytes (not 0).
    #[inline]
    pub fn next_runs(&mut self, limit: u64) -> Option<Runs> {
        if self.left == 0 {
            return None;
        }
        // The side may end within a run.
        let limit = limit.min(self.left);
        let (at, stride) = (self.at, self.stride);
        let (len, count) =
            limited(self.rest, if self.rest == self.run { self.count } else { 1 }, limit);
        self.pass(len, count);
        Some(Runs { at, stride, len, count })
    }
}

/// `count` runs of `len` bytes each, `stride` apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Runs {
    /// Displacement of the first.
    pub at: i64,
    /// Bytes from the start of one run to that of the next.
    pub stride: i64,
    /// Bytes of one run.
    pub len: u64,
    /// Number of runs.
    pub count: u64,
}

impl Runs {
    /// Displacements of the first byte and past the last. `None` if they exceed 64 bits.
    #[must_use]
    pub fn bounds(&self) -> Option<(i64, i64)> {
        let len = i64::try_from(self.len).ok()?;
        reach(self.at, self.at.checked_add(len)?, self.count.max(1), self.stride)
    }
}

/// At most `limit` bytes of `count` pieces of `len`, as whole pieces or a part of one.
#[inline(always)]
fn limited(len: u64, count: u64, limit: u64) -> (u64, u64) {
    if len > limit {
        (limit, 1)
    } else if count > 1 && count > limit / len {
        (len, limit / len)
    } else {
        (len, count)
    }
}

/// A walk through two sides. It ends with the shorter one.
#[derive(Clone, Debug)]
pub struct Pair<'a> {
    one: Cursor<'a>,
    other: Cursor<'a>,
}

/// `count` pieces of `len` bytes each, on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pieces {
    /// Displacement of the first piece on either side.
    pub at: [i64; 2],
    /// Bytes from the start of one piece to that of the next, on either side.
    pub stride: [i64; 2],
    /// Bytes of one piece.
    pub len: u64,
    /// Number of pieces.
    pub count: u64,
}

impl<'a> Pair<'a> {
    /// Starts `from` bytes after the first byte of data.
    #[must_use]
    #[inline]
    pub fn new(one: &'a Side, other: &'a Side, from: u64) -> Self {
        Pair { one: one.walk(from), other: other.walk(from) }
    }

    /// The next pieces, at most `limit` bytes (not 0). A piece is divided only if it is longer than
    /// the limit, or where a run of either side ends.
    #[inline]
    pub fn next_pieces(&mut self, limit: u64) -> Option<Pieces> {
        let Pair { one, other } = self;
        let limit = limit.min(one.left).min(other.left);
        if limit == 0 {
            return None;
        }
        let whole = |side: &Cursor<'_>| if side.rest == side.run { side.count } else { 1 };
        let (a, b) = (one.rest, other.rest);
        let at = [one.at, other.at];
        let mut stride = [one.stride, other.stride];
        let (len, count) = match a.cmp(&b) {
            std::cmp::Ordering::Equal => (a, whole(one).min(whole(other))),
            std::cmp::Ordering::Greater => {
                stride[0] = b as i64;
                let count = whole(other);
                // A division costs more than a short piece.
                (b, if count == 1 { 1 } else { count.min(a / b) })
            }
            std::cmp::Ordering::Less => {
                stride[1] = a as i64;
                let count = whole(one);
                (a, if count == 1 { 1 } else { count.min(b / a) })
            }
        };
        let (len, count) = limited(len, count, limit);
        one.pass(len, count);
        other.pass(len, count);
        Some(Pieces { at, stride, len, count })
    }
}
