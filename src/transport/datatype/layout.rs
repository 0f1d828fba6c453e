//! Layout of one item of a datatype: a tree of repeated runs.
//!
//! A vector of a million blocks is one [`Step`]. Adjacent runs are joined, runs at a constant
//! stride become one step, and a repeated body is stored once. So the size of a layout grows with
//! the constructors of the datatype, not with its data.

/// One member of a body: `count` pieces, `stride` apart, the first at displacement `at`.
///
/// The pieces of a leaf are runs of `len` bytes. The pieces of any other step are copies of its own
/// body, which is the `body` steps from `first` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    pub(super) at: i64,
    /// Not 0.
    pub(super) count: u64,
    pub(super) stride: i64,
    /// Bytes of data in one piece, not 0.
    pub(super) len: u64,
    /// Bytes of data in the steps before this one, in one copy of its body.
    pub(super) before: u64,
    pub(super) first: u32,
    /// Steps of its own body; 0 for a leaf.
    pub(super) body: u32,
}

impl Step {
    pub(super) fn leaf(at: i64, len: u64, count: u64, stride: i64) -> Self {
        Step { at, count, stride, len, before: 0, first: 0, body: 0 }
    }

    #[inline(always)]
    pub(super) fn is_leaf(&self) -> bool {
        self.body == 0
    }

    /// A single run.
    #[inline(always)]
    pub(super) fn is_run(&self) -> bool {
        self.is_leaf() && self.count == 1
    }

    fn bytes(&self) -> u64 {
        self.len * self.count
    }
}

/// The layout of one item of a datatype.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    pub(super) steps: Box<[Step]>,
    /// The outermost body.
    pub(super) first: u32,
    pub(super) body: u32,
    pub(super) size: u64,
    pub(super) lower: i64,
    pub(super) extent: i64,
    pub(super) low: i64,
    pub(super) high: i64,
    /// Bytes of an element, which is never divided; 1 if elements differ.
    pub(super) unit: u8,
    /// Whether adjacent elements may be joined to one run.
    pub(super) joins: bool,
}

/// A block of items, for [`Layout::blocks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Items, each an extent after the one before.
    pub count: u64,
    /// Displacement of the first, in bytes.
    pub at: i64,
}

impl Layout {
    /// One element of a predefined datatype: `span` bytes at 0, which are never divided. Elements
    /// with padding (`span` differs from `extent`) are never joined, so each run is one of them.
    /// `None` if `span` is 0 or above 255.
    #[must_use]
    pub fn element(span: u64, extent: i64) -> Option<Self> {
        let unit = u8::try_from(span).ok().filter(|unit| *unit != 0)?;
        Some(Layout {
            steps: Box::new([Step::leaf(0, span, 1, 0)]),
            body: 1,
            size: span,
            extent,
            high: span as i64,
            unit,
            joins: i64::from(unit) == extent,
            ..Layout::empty()
        })
    }

    /// A layout without data.
    #[must_use]
    pub fn empty() -> Self {
        Layout { unit: 1, joins: true, ..Layout::default() }
    }

    /// Bytes of data.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Lower bound.
    #[must_use]
    pub fn lower(&self) -> i64 {
        self.lower
    }

    /// Bytes from one item to the next.
    #[must_use]
    pub fn extent(&self) -> i64 {
        self.extent
    }

    /// True bounds: displacements of the first data byte and past the last. Both 0 without data.
    #[must_use]
    pub fn bounds(&self) -> (i64, i64) {
        (self.low, self.high)
    }

    /// Bytes of an element, which is never divided; 1 if elements differ.
    #[must_use]
    pub fn unit(&self) -> u8 {
        self.unit
    }

    /// Number of steps stored.
    #[must_use]
    pub fn steps(&self) -> usize {
        self.steps.len()
    }

    /// The same data with other bounds (`MPI_Type_create_resized`).
    #[must_use]
    pub fn resized(mut self, lower: i64, extent: i64) -> Self {
        (self.lower, self.extent) = (lower, extent);
        self
    }

    /// `count` items, `stride` bytes apart (`MPI_Type_contiguous`, `MPI_Type_create_hvector` with
    /// blocks of one item). `None` if a displacement exceeds 64 bits.
    #[must_use]
    pub fn repeated(&self, count: u64, stride: i64) -> Option<Self> {
        let mut builder = Builder::default();
        builder.add(self, count, stride, 0, &mut None)?;
        builder.finish()
    }

    /// `count` blocks of `block` items each, `stride` bytes apart (`MPI_Type_create_hvector`).
    /// `None` as for [`repeated`](Self::repeated).
    #[must_use]
    pub fn strided(&self, count: u64, block: u64, stride: i64) -> Option<Self> {
        self.repeated(block, self.extent)?.repeated(count, stride)
    }

    /// Blocks of this layout (`MPI_Type_create_hindexed` and its relatives). `None` as for
    /// [`repeated`](Self::repeated).
    #[must_use]
    pub fn blocks(&self, blocks: impl IntoIterator<Item = Block>) -> Option<Self> {
        let mut builder = Builder::default();
        let mut body = None;
        for Block { count, at } in blocks {
            builder.add(self, count, self.extent, at, &mut body)?;
        }
        builder.finish()
    }

    /// Blocks of several layouts (`MPI_Type_create_struct`). `None` as for
    /// [`repeated`](Self::repeated).
    #[must_use]
    pub fn structure<'a>(members: impl IntoIterator<Item = (Block, &'a Layout)>) -> Option<Self> {
        let mut builder = Builder::default();
        for (Block { count, at }, layout) in members {
            builder.add(layout, count, layout.extent, at, &mut None)?;
        }
        builder.finish()
    }

    /// `count` items, `stride` apart, as one step.
    #[inline]
    pub(super) fn copies(&self, count: u64, stride: i64) -> Step {
        let Layout { size: len, first, body, .. } = *self;
        Step { at: 0, count, stride, len, before: 0, first, body }
    }

    pub(super) fn roots(&self) -> &[Step] {
        &self.steps[self.first as usize..][..self.body as usize]
    }

    /// Bounds of `count` items, an extent apart. `None` if they exceed 64 bits.
    #[must_use]
    pub fn bounds_of(&self, count: u64) -> Option<(i64, i64)> {
        if count == 0 || self.size == 0 {
            return Some((0, 0));
        }
        reach(self.low, self.high, count, self.extent)
    }

    /// Bytes of data in `count` items. `None` if that exceeds 63 bits.
    #[must_use]
    pub fn size_of(&self, count: u64) -> Option<u64> {
        self.size.checked_mul(count).filter(|size| i64::try_from(*size).is_ok())
    }
}

/// The least range that contains both.
pub(super) fn hull(known: Option<(i64, i64)>, (low, high): (i64, i64)) -> (i64, i64) {
    known.map_or((low, high), |(least, most)| (least.min(low), most.max(high)))
}

/// Bounds of `count` pieces, not 0, `stride` apart.
pub(super) fn reach(low: i64, high: i64, count: u64, stride: i64) -> Option<(i64, i64)> {
    let last = i64::try_from(count - 1).ok()?.checked_mul(stride)?;
    Some((low.checked_add(last.min(0))?, high.checked_add(last.max(0))?))
}

/// A body of at most this many steps is copied into the enclosing body, if that saves a level.
const FEW: usize = 4;

#[derive(Default)]
struct Builder {
    /// Finished bodies.
    steps: Vec<Step>,
    /// The body being built.
    body: Vec<Step>,
    size: u64,
    /// Lower and upper bound.
    bounds: Option<(i64, i64)>,
    data: Option<(i64, i64)>,
    unit: Option<u8>,
    joins: bool,
}

impl Builder {
    /// Adds `count` copies of a layout. `shared` has the index of its steps once they are stored.
    fn add(
        &mut self,
        layout: &Layout,
        count: u64,
        stride: i64,
        at: i64,
        shared: &mut Option<u32>,
    ) -> Option<()> {
        if count == 0 {
            return Some(());
        }
        let upper = layout.lower.checked_add(layout.extent)?;
        let shift = |(low, high): (i64, i64)| Some((low.checked_add(at)?, high.checked_add(at)?));
        self.bounds = Some(hull(self.bounds, shift(reach(layout.lower, upper, count, stride)?)?));
        if layout.size == 0 {
            return Some(());
        }
        self.data = Some(hull(self.data, shift(reach(layout.low, layout.high, count, stride)?)?));
        self.size = self
            .size
            .checked_add(layout.size_of(count)?)
            .filter(|size| i64::try_from(*size).is_ok())?;
        let first = self.unit.is_none();
        self.unit = Some(if first || self.unit == Some(layout.unit) { layout.unit } else { 1 });
        self.joins = layout.joins && (first || self.joins);
        let roots = layout.roots();
        // The bounds above were checked, so nothing below overflows.
        if let [root] = roots
            && let Some(step) = merged(root, count, stride, layout.joins)
        {
            let moved = self.moved(step, at, layout, shared);
            self.push(moved, layout.joins);
        } else if count == 1 && roots.len() <= FEW {
            for root in roots {
                let moved = self.moved(*root, at, layout, shared);
                self.push(moved, layout.joins);
            }
        } else {
            let base = self.store(layout, shared);
            let copies = layout.copies(count, stride);
            self.push(Step { at, first: base + layout.first, ..copies }, layout.joins);
        }
        Some(())
    }

    /// A step of the layout, displaced by `at`. Stores the bodies that the step refers to.
    fn moved(&mut self, step: Step, at: i64, layout: &Layout, shared: &mut Option<u32>) -> Step {
        let base = if step.is_leaf() { 0 } else { self.store(layout, shared) };
        Step { at: step.at + at, first: base + step.first, ..step }
    }

    /// Stores the steps of a layout if necessary, and returns the index of the first.
    fn store(&mut self, layout: &Layout, shared: &mut Option<u32>) -> u32 {
        *shared.get_or_insert_with(|| {
            let base =
                u32::try_from(self.steps.len()).expect("a datatype has fewer than 2^32 steps");
            let moved = layout.steps.iter().map(|step| Step {
                first: step.first + if step.is_leaf() { 0 } else { base },
                ..*step
            });
            self.steps.extend(moved);
            base
        })
    }

    /// Adds a step to the body, merging it with the last one if possible.
    fn push(&mut self, step: Step, joins: bool) {
        if let Some(last) = self.body.last_mut().filter(|last| last.is_leaf() && step.is_leaf()) {
            if last.count == 1 && step.count == 1 && joins && last.at + last.len as i64 == step.at {
                last.len += step.len;
                return;
            }
            if last.len == step.len {
                let distance = step.at.wrapping_sub(last.at);
                let stride = match (last.count, step.count) {
                    (1, 1) => distance,
                    (1, _) => step.stride,
                    _ => last.stride,
                };
                let covered = i64::try_from(last.count).ok().and_then(|n| n.checked_mul(stride));
                if (step.count == 1 || step.stride == stride) && covered == Some(distance) {
                    (last.stride, last.count) = (stride, last.count + step.count);
                    return;
                }
            }
        }
        self.body.push(step);
    }

    fn finish(mut self) -> Option<Layout> {
        let Some((lower, upper)) = self.bounds else { return Some(Layout::empty()) };
        let mut before = 0;
        for step in &mut self.body {
            step.before = before;
            before += step.bytes();
        }
        debug_assert_eq!(before, self.size);
        let first = u32::try_from(self.steps.len()).expect("a datatype has fewer than 2^32 steps");
        let body = u32::try_from(self.body.len()).expect("a datatype has fewer than 2^32 steps");
        let mut steps = self.steps;
        steps.append(&mut self.body);
        let (low, high) = self.data.unwrap_or((0, 0));
        Some(Layout {
            steps: steps.into_boxed_slice(),
            first,
            body,
            size: self.size,
            lower,
            extent: upper.checked_sub(lower)?,
            low,
            high,
            unit: self.unit.unwrap_or(1),
            joins: self.joins,
        })
    }
}

/// `count` copies of a body of one step, as one step; `None` if that is impossible.
pub(super) fn merged(root: &Step, count: u64, stride: i64, joins: bool) -> Option<Step> {
    if count == 1 {
        return Some(*root);
    }
    if root.is_run() {
        // Adjacent runs are one, unless their elements have padding.
        if joins && i64::try_from(root.len).is_ok_and(|len| len == stride) {
            return Some(Step { len: root.len.checked_mul(count)?, ..*root });
        }
        return Some(Step { count, stride, ..*root });
    }
    let length = i64::try_from(root.count).ok()?.checked_mul(root.stride)?;
    (length == stride).then_some(Step { count: root.count.checked_mul(count)?, ..*root })
}
