//! The bytes of a world that carries any.

use super::words::Map;
use crate::engine::{Addr, Element, Op, OpKind, Reduction, Shaped};
use crate::transport::datatype::element::{native, reduction};
use crate::transport::datatype::{Shape, Shapes, Side};
use crate::transport::datatype::{gathered, scatter};

/// What operations move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carry {
    /// Nothing but time: addresses mean nothing, and no memory is there. For thousands of ranks.
    Nothing,
    /// Bytes. Each rank has window memory and memory of its own, from which
    /// [`Network::allocate`](super::Network::allocate) gives addresses.
    Bytes,
}

/// Address 0 is nobody's.
const BASE: usize = 64;

/// An operation under way, with the bytes that it carries at the moment.
struct Cargo {
    op: Op,
    shape: Option<Shape>,
    data: Vec<u8>,
    compare: Vec<u8>,
}

/// Memory of all ranks, and cargo by message.
pub(super) struct Memory {
    /// Per window and rank.
    windows: Vec<Vec<Vec<u8>>>,
    private: Vec<Vec<u8>>,
    cargo: Map<u32, Cargo>,
    /// Of operations that have not set out.
    shapes: Shapes,
}

/// The side of a shape, or as many bytes as the operation has.
fn side(side: Option<&Side>, op: &Op) -> Side {
    side.cloned().unwrap_or_else(|| Side::flat(op.len))
}

/// Where the operation goes at its target: the first item, and the side.
fn there(op: &Op, shape: Option<&Shape>) -> (usize, Side) {
    match shape {
        Some(shape) => {
            (usize::try_from(shape.disp).expect("items begin in the window"), shape.target.clone())
        }
        None => (op.disp as usize, Side::flat(op.len)),
    }
}

impl Memory {
    pub(super) fn new(ranks: u32) -> Self {
        Memory {
            windows: Vec::new(),
            private: vec![Vec::new(); ranks as usize],
            cargo: Map::default(),
            shapes: Shapes::new(),
        }
    }

    pub(super) fn add_window(&mut self, bytes: usize) {
        self.windows.push(vec![vec![0; bytes]; self.private.len()]);
    }

    pub(super) fn add_shape(&mut self, shape: Shape) -> Shaped {
        self.shapes.add(shape)
    }

    /// Shapes of operations that have not set out.
    pub(super) fn shapes(&self) -> usize {
        self.shapes.len()
    }

    pub(super) fn allocate(&mut self, rank: u32, bytes: usize) -> Addr {
        let memory = &mut self.private[rank as usize];
        let at = memory.len();
        memory.resize(at + bytes.next_multiple_of(8), 0);
        Addr(at + BASE)
    }

    pub(super) fn private(&self, rank: u32, at: Addr, len: usize) -> &[u8] {
        &self.private[rank as usize][at.0 - BASE..][..len]
    }

    pub(super) fn private_mut(&mut self, rank: u32, at: Addr, len: usize) -> &mut [u8] {
        &mut self.private[rank as usize][at.0 - BASE..][..len]
    }

    pub(super) fn window(&self, window: u32, rank: u32) -> &[u8] {
        &self.windows[window as usize][rank as usize]
    }

    pub(super) fn window_mut(&mut self, window: u32, rank: u32) -> &mut [u8] {
        &mut self.windows[window as usize][rank as usize]
    }

    /// True if the operation reads its origin buffer: a fetch without operation, and a get, do not.
    fn reads_origin(op: &Op) -> bool {
        match op.kind {
            OpKind::Get | OpKind::Notify | OpKind::NotifyTagged => false,
            OpKind::GetAccumulate => op.reduction != reduction::NO_OP,
            OpKind::Put | OpKind::Accumulate | OpKind::CompareAndSwap => true,
        }
    }

    /// An operation sets out as this message; its origin's bytes stay where they are.
    pub(super) fn embark(&mut self, message: u32, op: &Op) {
        let shape = op.shape.map(|shaped| self.shapes.take(shaped));
        self.cargo.insert(message, Cargo { op: *op, shape, data: Vec::new(), compare: Vec::new() });
    }

    /// Takes the origin's bytes along: later changes of its buffers are not seen.
    pub(super) fn load(&mut self, message: u32, origin: u32) -> Option<Op> {
        let cargo = self.cargo.get_mut(&message)?;
        let op = cargo.op;
        let memory = &self.private[origin as usize];
        let taken = |at: Addr| memory[at.0 - BASE..][..op.len as usize].to_vec();
        if Self::reads_origin(&op) {
            let origin = side(cargo.shape.as_ref().and_then(|shape| shape.origin.as_ref()), &op);
            cargo.data = gathered(memory, op.origin.0 - BASE, &origin);
        }
        if op.kind == OpKind::CompareAndSwap {
            cargo.compare = taken(op.compare);
        }
        Some(op)
    }

    /// The operation takes effect at its target, so often; what it fetches becomes its cargo.
    /// `short`: the last byte of what a shaped one writes stays as it was.
    pub(super) fn apply(&mut self, message: u32, window: u32, times: u32, short: bool) -> Op {
        let cargo = self.cargo.get_mut(&message).expect("an operation under way has cargo");
        let op = cargo.op;
        if matches!(op.kind, OpKind::Notify | OpKind::NotifyTagged) {
            return op;
        }
        let (base, target) = there(&op, cargo.shape.as_ref());
        let memory = &mut self.windows[window as usize][op.target as usize];
        let old = gathered(memory, base, &target);
        let mut new = old.clone();
        match op.kind {
            OpKind::Put if times == 0 => {}
            OpKind::Put => new.copy_from_slice(&cargo.data),
            OpKind::Get | OpKind::Notify | OpKind::NotifyTagged => {}
            OpKind::Accumulate => {
                (0..times).for_each(|_| reduce(op.element, op.reduction, &mut new, &cargo.data))
            }
            OpKind::GetAccumulate if op.reduction == reduction::NO_OP => {}
            OpKind::GetAccumulate => reduce(op.element, op.reduction, &mut new, &cargo.data),
            OpKind::CompareAndSwap => {
                if old == cargo.compare {
                    new.copy_from_slice(&cargo.data);
                }
            }
        }
        if short && let (Some(last), Some(byte)) = (new.last_mut(), old.last()) {
            *last = *byte;
        }
        if op.kind != OpKind::Get {
            scatter(&new, memory, base, &target);
        }
        cargo.data =
            if matches!(op.kind, OpKind::Put | OpKind::Accumulate) { Vec::new() } else { old };
        op
    }

    /// True if the operation under way has a shape.
    pub(super) fn is_shaped(&self, message: u32) -> bool {
        self.cargo.get(&message).is_some_and(|cargo| cargo.shape.is_some())
    }

    /// The operation is over: what it fetched goes to its result buffer.
    pub(super) fn unload(&mut self, message: u32, origin: u32) -> Option<Op> {
        let Cargo { op, shape, data, .. } = self.cargo.remove(&message)?;
        if !data.is_empty() {
            let result = side(shape.as_ref().and_then(|shape| shape.result.as_ref()), &op);
            scatter(&data, &mut self.private[origin as usize], op.result.0 - BASE, &result);
        }
        Some(op)
    }

    /// Put or get inside a node: a copy.
    pub(super) fn copy(&mut self, window: u32, origin: u32, op: &Op) {
        let shape = op.shape.map(|shaped| self.shapes.take(shaped));
        let (base, target) = there(op, shape.as_ref());
        let memory = &mut self.windows[window as usize][op.target as usize];
        let private = &mut self.private[origin as usize];
        let near = |of: fn(&Shape) -> Option<&Side>| side(shape.as_ref().and_then(of), op);
        match op.kind {
            OpKind::Put => {
                let data =
                    gathered(private, op.origin.0 - BASE, &near(|shape| shape.origin.as_ref()));
                scatter(&data, memory, base, &target);
            }
            OpKind::Get => {
                let data = gathered(memory, base, &target);
                scatter(&data, private, op.result.0 - BASE, &near(|shape| shape.result.as_ref()));
            }
            _ => unreachable!("only puts and gets are copies"),
        }
    }
}

macro_rules! each {
    ($type:ty, $inout:expr, $input:expr, $f:expr) => {{
        const SIZE: usize = size_of::<$type>();
        let f: fn($type, $type) -> $type = $f;
        for (inout, input) in $inout.chunks_exact_mut(SIZE).zip($input.chunks_exact(SIZE)) {
            let value =
                |bytes: &[u8]| <$type>::from_ne_bytes(bytes.try_into().expect("a whole element"));
            let result = f(value(inout), value(input));
            inout.copy_from_slice(&result.to_ne_bytes());
        }
    }};
}

macro_rules! integer {
    ($type:ty, $reduction:expr, $inout:expr, $input:expr) => {
        match $reduction {
            reduction::SUM => each!($type, $inout, $input, <$type>::wrapping_add),
            reduction::PROD => each!($type, $inout, $input, <$type>::wrapping_mul),
            reduction::MIN => each!($type, $inout, $input, <$type>::min),
            reduction::MAX => each!($type, $inout, $input, <$type>::max),
            reduction::LAND => each!($type, $inout, $input, |a, b| <$type>::from(a != 0 && b != 0)),
            reduction::LOR => each!($type, $inout, $input, |a, b| <$type>::from(a != 0 || b != 0)),
            reduction::LXOR => {
                each!($type, $inout, $input, |a, b| <$type>::from((a != 0) != (b != 0)))
            }
            reduction::BAND => each!($type, $inout, $input, |a, b| a & b),
            reduction::BOR => each!($type, $inout, $input, |a, b| a | b),
            reduction::BXOR => each!($type, $inout, $input, |a, b| a ^ b),
            other => panic!("integers have no {other:?}"),
        }
    };
}

macro_rules! floating {
    ($type:ty, $reduction:expr, $inout:expr, $input:expr) => {
        match $reduction {
            reduction::SUM => each!($type, $inout, $input, |a, b| a + b),
            reduction::PROD => each!($type, $inout, $input, |a, b| a * b),
            reduction::MIN => each!($type, $inout, $input, |a, b| if b < a { b } else { a }),
            reduction::MAX => each!($type, $inout, $input, |a, b| if b > a { b } else { a }),
            other => panic!("floating-point numbers have no {other:?}"),
        }
    };
}

/// `inout = inout (op) input`, element by element. Written apart from the shared memory's own
/// kernel, and more plainly.
fn reduce(element: Element, reduction: Reduction, inout: &mut [u8], input: &[u8]) {
    match (reduction, element) {
        (reduction::REPLACE, _) => inout[..input.len()].copy_from_slice(input),
        (reduction::NO_OP, _) => {}
        (_, native::I8) => integer!(i8, reduction, inout, input),
        (_, native::U8 | native::BYTE) => integer!(u8, reduction, inout, input),
        (_, native::I16) => integer!(i16, reduction, inout, input),
        (_, native::U16) => integer!(u16, reduction, inout, input),
        (_, native::I32) => integer!(i32, reduction, inout, input),
        (_, native::U32) => integer!(u32, reduction, inout, input),
        (_, native::I64) => integer!(i64, reduction, inout, input),
        (_, native::U64) => integer!(u64, reduction, inout, input),
        (_, native::F32) => floating!(f32, reduction, inout, input),
        (_, native::F64) => floating!(f64, reduction, inout, input),
        (_, other) => panic!("{other:?} is no native datatype"),
    }
}
