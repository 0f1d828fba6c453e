//! Memory of the ranks and payloads of messages, in worlds that carry bytes.

use hashbrown::HashMap;

use crate::engine::{Addr, Element, Op, OpKind, Reduction, Shaped};
use crate::transport::datatype::element::{native, reduction};
use crate::transport::datatype::{Shape, Shapes, Side};
use crate::transport::datatype::{gathered, scatter};

/// What operations move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carry {
    /// Nothing but time: addresses are meaningless and there is no memory. For thousands of ranks.
    Nothing,
    /// Bytes. Each rank has window memory, and private memory from
    /// [`Network::allocate`](super::Network::allocate).
    Bytes,
}

/// First address of private memory. 0 is invalid.
const BASE: usize = 64;

/// An operation in flight and the bytes that it carries.
struct Payload {
    op: Op,
    shape: Option<Shape>,
    data: Vec<u8>,
    compare: Vec<u8>,
}

/// Memory of all ranks, and payloads by message.
pub(super) struct Memory {
    /// By window and rank.
    windows: Vec<Vec<Vec<u8>>>,
    private: Vec<Vec<u8>>,
    payloads: HashMap<u32, Payload>,
    /// Shapes of operations that were not sent yet.
    shapes: Shapes,
}

/// A side of the shape, or a contiguous one of the operation's length.
fn side(side: Option<&Side>, op: &Op) -> Side {
    side.cloned().unwrap_or_else(|| Side::flat(op.len))
}

/// The target's side: displacement of the first item, and layout.
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
            payloads: HashMap::default(),
            shapes: Shapes::new(),
        }
    }

    pub(super) fn add_window(&mut self, bytes: usize) {
        self.windows.push(vec![vec![0; bytes]; self.private.len()]);
    }

    pub(super) fn add_shape(&mut self, shape: Shape) -> Shaped {
        self.shapes.add(shape)
    }

    /// Shapes of operations that were not sent yet.
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

    /// True if the operation reads its origin buffer. A get and a fetch with `MPI_NO_OP` do not.
    fn reads_origin(op: &Op) -> bool {
        match op.kind {
            OpKind::Get => false,
            OpKind::GetAccumulate => op.reduction != reduction::NO_OP,
            OpKind::Put => op.len > 0,
            OpKind::Accumulate | OpKind::CompareAndSwap => true,
        }
    }

    /// Attaches an operation to its message. The origin buffer is not read yet.
    pub(super) fn attach(&mut self, message: u32, op: &Op) {
        let shape = op.shape.map(|shaped| self.shapes.take(shaped));
        self.payloads
            .insert(message, Payload { op: *op, shape, data: Vec::new(), compare: Vec::new() });
    }

    /// Reads the origin buffer into the payload. Later changes of the buffer have no effect.
    pub(super) fn read_origin(&mut self, message: u32, origin: u32) -> Option<Op> {
        let payloads = self.payloads.get_mut(&message)?;
        let op = payloads.op;
        let memory = &self.private[origin as usize];
        let taken = |at: Addr| memory[at.0 - BASE..][..op.len as usize].to_vec();
        if Self::reads_origin(&op) {
            let origin = side(payloads.shape.as_ref().and_then(|shape| shape.origin.as_ref()), &op);
            payloads.data = gathered(memory, op.origin.0 - BASE, &origin);
        }
        if op.kind == OpKind::CompareAndSwap {
            payloads.compare = taken(op.compare);
        }
        Some(op)
    }

    /// Applies the operation `times` times at its target. Fetched data becomes the payload. `short`
    /// leaves out the last byte of a shaped operation (a violation).
    pub(super) fn apply(&mut self, message: u32, window: u32, times: u32, short: bool) -> Op {
        let payloads =
            self.payloads.get_mut(&message).expect("an operation in flight has a payload");
        let op = payloads.op;
        let (base, target) = there(&op, payloads.shape.as_ref());
        let memory = &mut self.windows[window as usize][op.target as usize];
        let old = gathered(memory, base, &target);
        let mut new = old.clone();
        match op.kind {
            OpKind::Put if times == 0 => {}
            OpKind::Put => new.copy_from_slice(&payloads.data),
            OpKind::Get => {}
            OpKind::Accumulate => {
                (0..times).for_each(|_| reduce(op.element, op.reduction, &mut new, &payloads.data))
            }
            OpKind::GetAccumulate if op.reduction == reduction::NO_OP => {}
            OpKind::GetAccumulate => reduce(op.element, op.reduction, &mut new, &payloads.data),
            OpKind::CompareAndSwap => {
                if old == payloads.compare {
                    new.copy_from_slice(&payloads.data);
                }
            }
        }
        if short && let (Some(last), Some(byte)) = (new.last_mut(), old.last()) {
            *last = *byte;
        }
        if op.kind != OpKind::Get {
            scatter(&new, memory, base, &target);
        }
        payloads.data =
            if matches!(op.kind, OpKind::Put | OpKind::Accumulate) { Vec::new() } else { old };
        op
    }

    /// The operation in flight.
    pub(super) fn op(&self, message: u32) -> Op {
        self.payloads[&message].op
    }

    /// True if the operation in flight has a shape.
    pub(super) fn is_shaped(&self, message: u32) -> bool {
        self.payloads.get(&message).is_some_and(|payloads| payloads.shape.is_some())
    }

    /// Ends the operation and writes fetched data to its result buffer.
    pub(super) fn deliver_result(&mut self, message: u32, origin: u32) -> Option<Op> {
        let Payload { op, shape, data, .. } = self.payloads.remove(&message)?;
        if !data.is_empty() {
            let result = side(shape.as_ref().and_then(|shape| shape.result.as_ref()), &op);
            scatter(&data, &mut self.private[origin as usize], op.result.0 - BASE, &result);
        }
        Some(op)
    }

    /// Put or get inside a node, by copying.
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
            other => panic!("{other:?} is not defined for integers"),
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
            other => panic!("{other:?} is not defined for floating-point numbers"),
        }
    };
}

/// `inout = inout (op) input`, element by element. Independent of the library's own kernels, and
/// simpler, since tests compare the two.
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
        (_, other) => panic!("unsupported datatype {other:?}"),
    }
}
