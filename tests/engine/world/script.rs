//! The calls of one process, recorded by the checker and passed to its engine.

use mpix_rma::engine::*;
use mpix_rma::transport::datatype::element::{native, reduction};

use super::links::RankPort;
use super::model::Kind;
use super::{Meaning, OpId, Req, World};

/// One process of a [`World`].
pub struct RankMut<'w> {
    pub(super) world: &'w mut World,
    pub(super) me: Rank,
}

const NO_ASSERT: Assert = Assert { nocheck: false, noprecede: false, nosucceed: false };
const NOCHECK: Assert = Assert { nocheck: true, noprecede: false, nosucceed: false };

impl RankMut<'_> {
    fn opening(
        &mut self,
        kind: Kind,
        f: impl FnOnce(&mut Window, &mut RankPort<'_>) -> Result<(), SyncError>,
    ) {
        self.world.net.model.open(self.me, kind);
        let result = self.world.raw(self.me, f);
        result.unwrap_or_else(|error| panic!("rank {} may not open: {error}", self.me));
        self.world.after_call(self.me);
    }

    fn with_request(
        &mut self,
        meaning: Meaning,
        f: impl FnOnce(&mut Window, &mut RankPort<'_>) -> Result<Outcome, SyncError>,
    ) -> Req {
        let result = self.world.raw(self.me, f);
        let outcome =
            result.unwrap_or_else(|error| panic!("rank {}: {error} ({meaning:?})", self.me));
        let req = self.world.register(self.me, meaning, outcome);
        self.world.after_call(self.me);
        req
    }

    /// Makes a call with this assertion by its short form. False if that does nothing, or is not
    /// wanted.
    fn briefly(&mut self, assert: Assert, f: impl FnOnce(&mut Window) -> bool) -> bool {
        let wanted = self.world.briefly && assert == NO_ASSERT;
        let made = wanted && self.world.raw(self.me, |w, _| f(w));
        self.world.brief_calls += u32::from(made);
        made
    }

    /// A closing call, which has been `made` already, or by `f`.
    fn closing(
        &mut self,
        meaning: Meaning,
        made: bool,
        f: impl FnOnce(&mut Window, &mut RankPort<'_>) -> Result<Outcome, SyncError>,
    ) -> Req {
        self.with_request(meaning, |w, p| if made { Ok(Outcome::Complete) } else { f(w, p) })
    }

    pub fn post(&mut self, group: &[Rank]) {
        self.opening(Kind::Exposure(group.to_vec()), |w, p| w.post(p, group, NO_ASSERT));
    }
    pub fn start(&mut self, group: &[Rank]) {
        self.start_with(group, NO_ASSERT);
    }
    pub fn start_nocheck(&mut self, group: &[Rank]) {
        self.start_with(group, NOCHECK);
    }
    fn start_with(&mut self, group: &[Rank], assert: Assert) {
        self.opening(Kind::Access(group.to_vec()), |w, p| w.start(p, group, assert));
    }
    pub fn lock(&mut self, mode: LockMode, target: Rank) {
        self.lock_with(mode, target, NO_ASSERT);
    }
    pub fn lock_nocheck(&mut self, mode: LockMode, target: Rank) {
        self.lock_with(mode, target, NOCHECK);
    }
    fn lock_with(&mut self, mode: LockMode, target: Rank, assert: Assert) {
        let kind = Kind::Lock { target, mode, nocheck: assert.nocheck };
        let made = self.briefly(assert, |w| w.lock_alone(mode));
        self.opening(kind, |w, p| if made { Ok(()) } else { w.lock(p, mode, target, assert) });
    }
    pub fn exclusive(&mut self, target: Rank) {
        self.lock(LockMode::Exclusive, target);
    }
    pub fn shared(&mut self, target: Rank) {
        self.lock(LockMode::Shared, target);
    }
    pub fn lock_all(&mut self) {
        self.lock_all_with(NO_ASSERT);
    }
    pub fn lock_all_nocheck(&mut self) {
        self.lock_all_with(NOCHECK);
    }
    fn lock_all_with(&mut self, assert: Assert) {
        let kind = Kind::LockAll { nocheck: assert.nocheck };
        let made = self.briefly(assert, Window::lock_all_alone);
        self.opening(kind, |w, p| if made { Ok(()) } else { w.lock_all(p, assert) });
    }

    pub fn wait(&mut self) -> Req {
        let meaning = self.world.net.model.close_exposure(self.me);
        self.with_request(meaning, |w, p| w.wait(p))
    }
    /// `MPI_Win_test`. If true, the exposure is closed.
    pub fn test(&mut self) -> bool {
        let result = self.world.raw(self.me, |w, p| w.test(p));
        let closed =
            result.unwrap_or_else(|error| panic!("rank {} may not test: {error}", self.me));
        if closed {
            let meaning = self.world.net.model.close_exposure(self.me);
            self.world.net.model.complete(self.me, &meaning);
        }
        self.world.after_call(self.me);
        closed
    }
    pub fn complete(&mut self) -> Req {
        let meaning = self.world.net.model.close_access(self.me);
        self.with_request(meaning, |w, p| w.complete(p))
    }
    pub fn unlock(&mut self, target: Rank) -> Req {
        let meaning = self.world.net.model.close_lock(self.me, target);
        let made = self.briefly(NO_ASSERT, |w| w.unlock_alone(false));
        self.closing(meaning, made, |w, p| w.unlock(p, target))
    }
    pub fn unlock_all(&mut self) -> Req {
        let meaning = self.world.net.model.close_lock_all(self.me);
        let made = self.briefly(NO_ASSERT, |w| w.unlock_alone(true));
        self.closing(meaning, made, |w, p| w.unlock_all(p))
    }
    /// Waits for one of several counters that were never reset.
    pub fn await_counters(&mut self, first: u32, number: u32, sum: u64) -> Req {
        self.with_request(Meaning::Counters { first, number, sum }, |w, p| {
            Ok(w.await_counters(p, first, number, sum).0)
        })
    }
    pub fn counter(&mut self, index: u32) -> u64 {
        self.world.raw(self.me, |w, p| w.counter(p, index))
    }
    pub fn has_counted(&mut self, index: u32, expected: u64) -> bool {
        self.world.raw(self.me, |w, p| w.has_counted(p, index, expected))
    }
    pub fn reset_counter(&mut self, index: u32) -> u64 {
        self.world.raw(self.me, |w, p| w.reset_counter(p, index))
    }
    pub fn fence(&mut self) -> Req {
        self.fence_with(NO_ASSERT)
    }
    pub fn fence_with(&mut self, assert: Assert) -> Req {
        let meaning = self.world.net.model.fence(self.me, assert);
        let made = self.briefly(assert, Window::fence_alone);
        self.closing(meaning, made, |w, p| w.fence(p, assert))
    }
    /// `None` flushes all targets.
    pub fn flush(&mut self, target: impl Into<Option<Rank>>) -> Req {
        let target = target.into();
        let meaning = self.world.net.model.flush(self.me, target, false);
        self.with_request(meaning, |w, p| w.flush(p, target))
    }
    /// Flushes on a lane. The test knows which operations it covers.
    pub fn flush_on(&mut self, lane: u32, target: impl Into<Option<Rank>>) -> Req {
        let target = target.into();
        self.on_lane(lane, |w, p| w.flush(p, target))
    }
    /// Leaves the lock_all epoch to other lanes, which are known to have it.
    pub fn leave_on(&mut self, lane: u32) -> Req {
        self.on_lane(lane, |w, p| w.unlock_all(p))
    }
    fn on_lane(
        &mut self,
        lane: u32,
        f: impl FnOnce(&mut Window, &mut RankPort<'_>) -> Result<Outcome, SyncError>,
    ) -> Req {
        let unknown = Meaning::Flush { local: false, covers: Vec::new(), epochs: Vec::new() };
        self.with_request(unknown, |w, p| {
            w.select_lane(lane);
            f(w, p)
        })
    }
    pub fn flush_local(&mut self, target: impl Into<Option<Rank>>) -> Req {
        let target = target.into();
        let meaning = self.world.net.model.flush(self.me, target, true);
        self.with_request(meaning, |w, p| w.flush_local(p, target))
    }
}

/// Private memory of a process.
#[derive(Clone, Copy, Debug)]
pub struct Buf {
    rank: Rank,
    pub addr: Addr,
    len: usize,
}

/// A contiguous operation on bytes, without buffers.
fn byte_op(kind: OpKind, target: Rank, disp: usize, len: usize) -> Op {
    let op = Op::notify(target, Notification::counter(0));
    let (disp, len, element) = (disp as u64, len as u64, native::BYTE);
    Op { kind, disp, len, element, reduction: reduction::REPLACE, notification: None, ..op }
}

/// An operation on a 64-bit cell, without buffers.
fn cell_op(kind: OpKind, target: Rank, disp: usize, reduction: Reduction) -> Op {
    Op { element: native::U64, reduction, extent: 8, ..byte_op(kind, target, disp, 8) }
}

impl World {
    /// Issues any operation.
    pub fn issue(&mut self, me: Rank, op: Op) -> OpId {
        let id = self.net.model.issue(me, &op);
        assert!(self.window(me).covers(op.target), "a legal operation is covered by an epoch");
        let result = self.raw(me, |w, p| w.issue(p, &op));
        result.unwrap_or_else(|error| panic!("rank {me} may not communicate: {error}"));
        self.after_call(me);
        id
    }
    /// Issues any operation in its R-form.
    pub fn issue_request(&mut self, me: Rank, op: Op) -> (OpId, Req) {
        let id = self.net.model.issue(me, &op);
        let req =
            self.rank(me).with_request(Meaning::Operation(id), |w, p| w.issue_request(p, &op));
        (id, req)
    }

    /// Issues a notification.
    pub fn notify(&mut self, me: Rank, target: Rank, counter: u32) -> OpId {
        self.notify_by(me, target, Notification::counter(counter))
    }
    /// Issues a tagged notification.
    pub fn notify_tagged(&mut self, me: Rank, target: Rank, tag: u32) -> OpId {
        self.notify_by(me, target, Notification::tag(tag))
    }
    fn notify_by(&mut self, me: Rank, target: Rank, notification: Notification) -> OpId {
        // The checker identifies operations by their buffers.
        let origin = self.place(me, &[0]).addr;
        self.issue(me, Op { origin, ..Op::notify(target, notification) })
    }
    pub fn put(&mut self, me: Rank, target: Rank, disp: usize, data: &[u8]) -> OpId {
        let op = self.put_op(me, target, disp, data);
        self.issue(me, op)
    }
    pub fn put_op(&mut self, me: Rank, target: Rank, disp: usize, data: &[u8]) -> Op {
        let origin = self.place(me, data).addr;
        Op { origin, ..byte_op(OpKind::Put, target, disp, data.len()) }
    }
    pub fn get(&mut self, me: Rank, target: Rank, disp: usize, len: usize) -> (OpId, Buf) {
        let (op, buf) = self.get_op(me, target, disp, len);
        (self.issue(me, op), buf)
    }
    pub fn get_op(&mut self, me: Rank, target: Rank, disp: usize, len: usize) -> (Op, Buf) {
        let buf = self.place(me, &vec![0xee; len]);
        (Op { result: buf.addr, ..byte_op(OpKind::Get, target, disp, len) }, buf)
    }
    /// Accumulate with `MPI_SUM` to a 64-bit cell.
    pub fn add(&mut self, me: Rank, target: Rank, disp: usize, value: u64) -> OpId {
        let origin = self.place(me, &value.to_le_bytes()).addr;
        self.issue(me, Op { origin, ..cell_op(OpKind::Accumulate, target, disp, reduction::SUM) })
    }
    /// Accumulate with `MPI_REPLACE` to a 64-bit cell.
    pub fn replace(&mut self, me: Rank, target: Rank, disp: usize, value: u64) -> OpId {
        let origin = self.place(me, &value.to_le_bytes()).addr;
        let op = cell_op(OpKind::Accumulate, target, disp, reduction::REPLACE);
        self.issue(me, Op { origin, ..op })
    }
    pub fn fetch_add(&mut self, me: Rank, target: Rank, disp: usize, value: u64) -> (OpId, Buf) {
        let (op, result) = self.fetch_add_op(me, target, disp, value);
        (self.issue(me, op), result)
    }
    pub fn fetch_add_op(&mut self, me: Rank, target: Rank, disp: usize, value: u64) -> (Op, Buf) {
        let origin = self.place(me, &value.to_le_bytes()).addr;
        let result = self.place(me, &[0xee; 8]);
        let op = cell_op(OpKind::GetAccumulate, target, disp, reduction::SUM);
        (Op { origin, result: result.addr, ..op }, result)
    }
    pub fn compare_and_swap(
        &mut self,
        me: Rank,
        target: Rank,
        disp: usize,
        compare: u64,
        new: u64,
    ) -> (OpId, Buf) {
        let (op, result) = self.compare_and_swap_op(me, target, disp, compare, new);
        (self.issue(me, op), result)
    }
    pub fn compare_and_swap_op(
        &mut self,
        me: Rank,
        target: Rank,
        disp: usize,
        compare: u64,
        new: u64,
    ) -> (Op, Buf) {
        let origin = self.place(me, &new.to_le_bytes()).addr;
        let compare = self.place(me, &compare.to_le_bytes()).addr;
        let result = self.place(me, &[0xee; 8]);
        let op = cell_op(OpKind::CompareAndSwap, target, disp, reduction::REPLACE);
        (Op { origin, compare, result: result.addr, ..op }, result)
    }

    /// Puts bytes into private memory of a process.
    fn place(&mut self, rank: Rank, bytes: &[u8]) -> Buf {
        let buf = Buf { rank, addr: self.net.sim.allocate(rank, bytes.len()), len: bytes.len() };
        self.overwrite(rank, buf.addr, bytes);
        buf
    }
    pub fn overwrite(&mut self, rank: Rank, at: Addr, bytes: &[u8]) {
        self.net.sim.private_mut(rank, at, bytes.len()).copy_from_slice(bytes);
    }
    pub fn buf(&self, buf: Buf) -> &[u8] {
        self.net.sim.private(buf.rank, buf.addr, buf.len)
    }
    /// Value of a 64-bit buffer.
    pub fn value(&self, buf: Buf) -> u64 {
        u64::from_le_bytes(self.buf(buf).try_into().expect("8 bytes"))
    }
}
