//! Memory of the ranks and payloads of messages, in worlds that carry bytes.

use hashbrown::HashMap;

use super::Network;
use crate::engine::{Addr, Element, Op, OpKind, Reduction, Shaped};
use crate::transport::datatype::element::{native, reduction};
use crate::transport::datatype::{Shape, Shapes, Side};
use crate::transport::datatype::{gathered, scatter};

/// What operations move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carry {
    /// No bytes: operations only take time, addresses are meaningless and there is no memory. For
    /// thousands of ranks.
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

/// A side of the shape at the origin, or a contiguous one of the operation's length.
fn origin_side(op: &Op, shape: Option<&Shape>, side: fn(&Shape) -> Option<&Side>) -> Side {
    shape.and_then(side).cloned().unwrap_or_else(|| Side::flat(op.len))
}

/// The target's side: displacement of the first item, and layout.
fn target_side(op: &Op, shape: Option<&Shape>) -> (usize, Side) {
    match shape {
        Some(shape) => {
            (usize::try_from(shape.disp).expect("items begin in the window"), shape.target.clone())
        }
        None => (op.disp as usize, Side::flat(op.len)),
    }
}

impl Network {
    /// Allocates zeroed private memory of a rank. Without bytes, returns a meaningless address.
    pub fn allocate(&mut self, rank: u32, bytes: usize) -> Addr {
        let Some(memory) = &mut self.memory else { return Addr(0) };
        let private = &mut memory.private[rank as usize];
        let at = private.len();
        private.resize(at + bytes.next_multiple_of(8), 0);
        Addr(at + BASE)
    }

    /// Keeps the shape of an operation that is about to be issued until the operation is sent.
    ///
    /// # Panics
    /// If the network carries no bytes.
    pub fn add_shape(&mut self, shape: Shape) -> Shaped {
        self.bytes_mut().shapes.add(shape)
    }

    /// Number of shapes of operations that were not sent yet.
    #[must_use]
    pub fn shapes(&self) -> usize {
        self.memory.as_ref().map_or(0, |memory| memory.shapes.len())
    }

    /// True if operations carry bytes.
    #[must_use]
    pub fn carries_bytes(&self) -> bool {
        self.memory.is_some()
    }

    fn bytes(&self) -> &Memory {
        self.memory.as_ref().expect("this network carries no bytes")
    }

    fn bytes_mut(&mut self) -> &mut Memory {
        self.memory.as_mut().expect("this network carries no bytes")
    }

    /// Private memory of a rank.
    #[must_use]
    pub fn private(&self, rank: u32, at: Addr, len: usize) -> &[u8] {
        &self.bytes().private[rank as usize][at.0 - BASE..][..len]
    }

    /// Private memory of a rank, writable.
    pub fn private_mut(&mut self, rank: u32, at: Addr, len: usize) -> &mut [u8] {
        &mut self.bytes_mut().private[rank as usize][at.0 - BASE..][..len]
    }

    /// Window memory of a rank.
    #[must_use]
    pub fn window(&self, window: u32, rank: u32) -> &[u8] {
        &self.bytes().windows[window as usize][rank as usize]
    }

    /// Window memory of a rank, writable.
    pub fn window_mut(&mut self, window: u32, rank: u32) -> &mut [u8] {
        &mut self.bytes_mut().windows[window as usize][rank as usize]
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

    /// True if the operation reads its origin buffer. A get and a get-accumulate with `MPI_NO_OP`
    /// do not.
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
        let payload = self.payloads.get_mut(&message)?;
        let op = payload.op;
        let memory = &self.private[origin as usize];
        if Self::reads_origin(&op) {
            let side = origin_side(&op, payload.shape.as_ref(), |shape| shape.origin.as_ref());
            payload.data = gathered(memory, op.origin.0 - BASE, &side);
        }
        if op.kind == OpKind::CompareAndSwap {
            payload.compare = memory[op.compare.0 - BASE..][..op.len as usize].to_vec();
        }
        Some(op)
    }

    /// Applies the operation `times` times at its target. Fetched data becomes the payload. `short`
    /// leaves out the last byte of a shaped operation (a violation).
    pub(super) fn apply(&mut self, message: u32, window: u32, times: u32, short: bool) -> Op {
        let payload =
            self.payloads.get_mut(&message).expect("an operation in flight has a payload");
        let op = payload.op;
        let (base, target) = target_side(&op, payload.shape.as_ref());
        let memory = &mut self.windows[window as usize][op.target as usize];
        let old = gathered(memory, base, &target);
        let mut new = old.clone();
        match op.kind {
            OpKind::Put if times == 0 => {}
            OpKind::Put => new.copy_from_slice(&payload.data),
            OpKind::Get => {}
            OpKind::Accumulate => {
                (0..times).for_each(|_| reduce(op.element, op.reduction, &mut new, &payload.data))
            }
            OpKind::GetAccumulate if op.reduction == reduction::NO_OP => {}
            OpKind::GetAccumulate => reduce(op.element, op.reduction, &mut new, &payload.data),
            OpKind::CompareAndSwap => {
                if old == payload.compare {
                    new.copy_from_slice(&payload.data);
                }
            }
        }
        if short && let (Some(last), Some(byte)) = (new.last_mut(), old.last()) {
            *last = *byte;
        }
        if op.kind != OpKind::Get {
            scatter(&new, memory, base, &target);
        }
        payload.data =
            if matches!(op.kind, OpKind::Put | OpKind::Accumulate) { Vec::new() } else { old };
        op
    }

    /// The operation in flight.
    pub(super) fn op(&self, message: u32) -> Op {
        self.payloads[&message].op
    }

    /// True if the operation in flight has a shape.
    pub(super) fn is_shaped(&self, message: u32) -> bool {
        self.payloads.get(&message).is_some_and(|payload| payload.shape.is_some())
    }

    /// Ends the operation and writes fetched data to its result buffer.
    pub(super) fn deliver_result(&mut self, message: u32, origin: u32) -> Option<Op> {
        let Payload { op, shape, data, .. } = self.payloads.remove(&message)?;
        if !data.is_empty() {
            let result = origin_side(&op, shape.as_ref(), |shape| shape.result.as_ref());
            scatter(&data, &mut self.private[origin as usize], op.result.0 - BASE, &result);
        }
        Some(op)
    }

    /// Put or get inside a node, by copying.
    pub(super) fn copy(&mut self, window: u32, origin: u32, op: &Op) {
        let shape = op.shape.map(|shaped| self.shapes.take(shaped));
        let (base, target) = target_side(op, shape.as_ref());
        let memory = &mut self.windows[window as usize][op.target as usize];
        let private = &mut self.private[origin as usize];
        match op.kind {
            OpKind::Put => {
                let origin = origin_side(op, shape.as_ref(), |shape| shape.origin.as_ref());
                let data = gathered(private, op.origin.0 - BASE, &origin);
                scatter(&data, memory, base, &target);
            }
            OpKind::Get => {
                let result = origin_side(op, shape.as_ref(), |shape| shape.result.as_ref());
                let data = gathered(memory, base, &target);
                scatter(&data, private, op.result.0 - BASE, &result);
            }
            _ => unreachable!("only puts and gets are copies"),
        }
    }
}

/// `inout = inout (op) input`, element by element. Independent of the library's own kernels, and
/// simpler, because tests compare the two.
fn reduce(element: Element, reduction: Reduction, inout: &mut [u8], input: &[u8]) {
    // Combines elements in a wider type. The conversion back rounds or wraps as the type does.
    macro_rules! each {
        ($type:ty, $combine:ident) => {
            for (inout, input) in inout
                .chunks_exact_mut(size_of::<$type>())
                .zip(input.chunks_exact(size_of::<$type>()))
            {
                let value = |bytes: &[u8]| {
                    <$type>::from_ne_bytes(bytes.try_into().expect("a whole element")).into()
                };
                let result = $combine(reduction, value(inout), value(input)) as $type;
                inout.copy_from_slice(&result.to_ne_bytes());
            }
        };
    }
    match (reduction, element) {
        (reduction::REPLACE, _) => inout[..input.len()].copy_from_slice(input),
        (reduction::NO_OP, _) => {}
        (_, native::I8) => each!(i8, integer),
        (_, native::U8 | native::BYTE) => each!(u8, integer),
        (_, native::I16) => each!(i16, integer),
        (_, native::U16) => each!(u16, integer),
        (_, native::I32) => each!(i32, integer),
        (_, native::U32) => each!(u32, integer),
        (_, native::I64) => each!(i64, integer),
        (_, native::U64) => each!(u64, integer),
        (_, native::F32) => each!(f32, floating),
        (_, native::F64) => each!(f64, floating),
        (_, other) => panic!("unsupported datatype {other:?}"),
    }
}

fn integer(reduction: Reduction, a: i128, b: i128) -> i128 {
    match reduction {
        reduction::SUM => a.wrapping_add(b),
        reduction::PROD => a.wrapping_mul(b),
        reduction::MIN => a.min(b),
        reduction::MAX => a.max(b),
        reduction::LAND => i128::from(a != 0 && b != 0),
        reduction::LOR => i128::from(a != 0 || b != 0),
        reduction::LXOR => i128::from((a != 0) != (b != 0)),
        reduction::BAND => a & b,
        reduction::BOR => a | b,
        reduction::BXOR => a ^ b,
        other => panic!("{other:?} is not defined for integers"),
    }
}

fn floating(reduction: Reduction, a: f64, b: f64) -> f64 {
    match reduction {
        reduction::SUM => a + b,
        reduction::PROD => a * b,
        reduction::MIN => {
            if b < a {
                b
            } else {
                a
            }
        }
        reduction::MAX => {
            if b > a {
                b
            } else {
                a
            }
        }
        other => panic!("{other:?} is not defined for floating-point numbers"),
    }
}
