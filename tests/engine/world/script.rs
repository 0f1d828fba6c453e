//! The calls of one process, recorded by the checker and passed to its engine.

use mpix_rma::engine::*;
use mpix_rma::transport::datatype::element::{native, reduction};

use super::model::Kind;
use super::net::RankPort;
use super::{Buf, Meaning, OpId, Req, World};

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
    ) -> usize {
        let epoch = self.world.net.model.open(self.me, kind);
        let result = self.world.raw(self.me, f);
        result.unwrap_or_else(|error| panic!("rank {} may not open: {error}", self.me));
        epoch
    }

    fn closing(
        &mut self,
        epoch: Option<usize>,
        f: impl FnOnce(&mut Window, &mut RankPort<'_>) -> Result<Outcome, SyncError>,
    ) -> Req {
        let epoch = epoch.expect("the script closes what it has not opened");
        self.world.net.model.close(epoch);
        self.with_request(Meaning::Close(epoch), f)
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

    pub fn post(&mut self, group: &[Rank]) {
        let epoch =
            self.opening(Kind::Exposure(group.to_vec()), |w, p| w.post(p, group, NO_ASSERT));
        self.world.net.model.of(self.me).exposure = Some(epoch);
        self.world.after_call(self.me);
    }
    pub fn start(&mut self, group: &[Rank]) {
        self.start_with(group, NO_ASSERT);
    }
    pub fn start_nocheck(&mut self, group: &[Rank]) {
        self.start_with(group, NOCHECK);
    }
    fn start_with(&mut self, group: &[Rank], assert: Assert) {
        let epoch = self.opening(Kind::Access(group.to_vec()), |w, p| w.start(p, group, assert));
        self.world.net.model.of(self.me).access = Some(epoch);
        self.world.after_call(self.me);
    }
    pub fn lock(&mut self, mode: LockMode, target: Rank) {
        self.lock_with(mode, target, NO_ASSERT);
    }
    pub fn lock_nocheck(&mut self, mode: LockMode, target: Rank) {
        self.lock_with(mode, target, NOCHECK);
    }
    fn lock_with(&mut self, mode: LockMode, target: Rank, assert: Assert) {
        let kind = Kind::Lock { target, mode, nocheck: assert.nocheck };
        let epoch = self.opening(kind, |w, p| w.lock(p, mode, target, assert));
        self.world.net.model.of(self.me).locks.insert(target, epoch);
        self.world.after_call(self.me);
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
        let epoch =
            self.opening(Kind::LockAll { nocheck: assert.nocheck }, |w, p| w.lock_all(p, assert));
        self.world.net.model.of(self.me).lock_all = Some(epoch);
        self.world.after_call(self.me);
    }

    pub fn wait(&mut self) -> Req {
        let epoch = self.world.net.model.of(self.me).exposure.take();
        self.closing(epoch, |w, p| w.wait(p))
    }
    /// `MPI_Win_test`. If true, the exposure is closed.
    pub fn test(&mut self) -> bool {
        let result = self.world.raw(self.me, |w, p| w.test(p));
        let closed =
            result.unwrap_or_else(|error| panic!("rank {} may not test: {error}", self.me));
        if closed {
            let epoch = self.world.net.model.of(self.me).exposure.take();
            let epoch = epoch.expect("test of an exposure that the script has not opened");
            self.world.net.model.close(epoch);
            self.world.net.model.complete(self.me, &Meaning::Close(epoch));
        }
        self.world.after_call(self.me);
        closed
    }
    pub fn complete(&mut self) -> Req {
        let epoch = self.world.net.model.of(self.me).access.take();
        self.closing(epoch, |w, p| w.complete(p))
    }
    pub fn unlock(&mut self, target: Rank) -> Req {
        let epoch = self.world.net.model.of(self.me).locks.remove(&target);
        self.closing(epoch, |w, p| w.unlock(p, target))
    }
    pub fn unlock_all(&mut self) -> Req {
        let epoch = self.world.net.model.of(self.me).lock_all.take();
        self.closing(epoch, |w, p| w.unlock_all(p))
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
    pub fn reset_counter(&mut self, index: u32) -> u64 {
        self.world.raw(self.me, |w, p| w.reset_counter(p, index))
    }
    pub fn fence(&mut self) -> Req {
        self.fence_with(NO_ASSERT)
    }
    pub fn fence_with(&mut self, assert: Assert) -> Req {
        let meaning = self.world.net.model.fence(self.me, assert);
        self.with_request(meaning, |w, p| w.fence(p, assert))
    }
    /// `None` flushes all targets.
    pub fn flush(&mut self, target: impl Into<Option<Rank>>) -> Req {
        let target = target.into();
        let meaning = self.world.net.model.flush(self.me, target, false);
        self.with_request(meaning, |w, p| w.flush(p, target))
    }
    pub fn flush_local(&mut self, target: impl Into<Option<Rank>>) -> Req {
        let target = target.into();
        let meaning = self.world.net.model.flush(self.me, target, true);
        self.with_request(meaning, |w, p| w.flush_local(p, target))
    }
}

/// A contiguous operation on bytes, without buffers.
pub fn byte_op(kind: OpKind, target: Rank, disp: u64, len: u64) -> Op {
    Op {
        origin: Addr::default(),
        result: Addr::default(),
        compare: Addr::default(),
        disp,
        len,
        target,
        kind,
        element: native::BYTE,
        reduction: reduction::REPLACE,
        extent: 1,
        shape: None,
        notification: None,
    }
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
        self.issue(me, Op::notify(target, Notification::counter(counter)))
    }
    /// Issues a tagged notification.
    pub fn notify_tagged(&mut self, me: Rank, target: Rank, tag: u32) -> OpId {
        self.issue(me, Op::notify(target, Notification::tag(tag)))
    }
    pub fn put(&mut self, me: Rank, target: Rank, disp: usize, data: &[u8]) -> OpId {
        let op = self.put_op(target, disp, data);
        self.issue(me, op)
    }
    pub fn put_op(&mut self, target: Rank, disp: usize, data: &[u8]) -> Op {
        let buf = self.net.allocate(data.to_vec());
        Op { origin: buf.addr(), ..byte_op(OpKind::Put, target, disp as u64, data.len() as u64) }
    }
    pub fn get(&mut self, me: Rank, target: Rank, disp: usize, len: usize) -> (OpId, Buf) {
        let (op, buf) = self.get_op(target, disp, len);
        (self.issue(me, op), buf)
    }
    pub fn get_op(&mut self, target: Rank, disp: usize, len: usize) -> (Op, Buf) {
        let buf = self.net.allocate(vec![0xee; len]);
        (Op { result: buf.addr(), ..byte_op(OpKind::Get, target, disp as u64, len as u64) }, buf)
    }
    /// Accumulate with `MPI_SUM` to a 64-bit cell.
    pub fn add(&mut self, me: Rank, target: Rank, disp: usize, value: u64) -> OpId {
        let origin = self.net.allocate(value.to_le_bytes().to_vec()).addr();
        let op = byte_op(OpKind::Accumulate, target, disp as u64, 8);
        self.issue(
            me,
            Op { origin, element: native::U64, reduction: reduction::SUM, extent: 8, ..op },
        )
    }
    /// Accumulate with `MPI_REPLACE` to a 64-bit cell.
    pub fn replace(&mut self, me: Rank, target: Rank, disp: usize, value: u64) -> OpId {
        let origin = self.net.allocate(value.to_le_bytes().to_vec()).addr();
        let op = byte_op(OpKind::Accumulate, target, disp as u64, 8);
        self.issue(
            me,
            Op { origin, element: native::U64, reduction: reduction::REPLACE, extent: 8, ..op },
        )
    }
    pub fn fetch_add(&mut self, me: Rank, target: Rank, disp: usize, value: u64) -> (OpId, Buf) {
        let origin = self.net.allocate(value.to_le_bytes().to_vec()).addr();
        let result = self.net.allocate(vec![0xee; 8]);
        let op = byte_op(OpKind::GetAccumulate, target, disp as u64, 8);
        let op = Op {
            origin,
            result: result.addr(),
            element: native::U64,
            reduction: reduction::SUM,
            extent: 8,
            ..op
        };
        (self.issue(me, op), result)
    }
    pub fn compare_and_swap(
        &mut self,
        me: Rank,
        target: Rank,
        disp: usize,
        compare: u64,
        new: u64,
    ) -> (OpId, Buf) {
        let origin = self.net.allocate(new.to_le_bytes().to_vec()).addr();
        let compare = self.net.allocate(compare.to_le_bytes().to_vec()).addr();
        let result = self.net.allocate(vec![0xee; 8]);
        let op = byte_op(OpKind::CompareAndSwap, target, disp as u64, 8);
        let op =
            Op { origin, compare, result: result.addr(), element: native::U64, extent: 8, ..op };
        (self.issue(me, op), result)
    }
    /// Value of a 64-bit buffer.
    pub fn value(&self, buf: Buf) -> u64 {
        u64::from_le_bytes(self.net.buf(buf)[..8].try_into().expect("8 bytes"))
    }
}
