//! `MPI_Gatherv`, `MPI_Scatterv`, `MPI_Alltoallv` and `MPI_Alltoallw`: a process does not know the
//! lengths of blocks between others. So each publishes its data if they fit into one content, or
//! else that they are long. Where a process that all read says so, the host serves the call: the
//! root, or any process of an alltoallv.

mod across;
mod packing;
mod trials;

use std::ffi::{c_int, c_void};

use smallvec::SmallVec;

use self::across::Route;
use self::packing::{Data, HEAD, Outgoing, absent, pack_all, pack_records};
use super::communicators::{Collective, Communicator};
use super::exchanges::{Lists, PerRank, list, number, valid_root};
use super::message::{Elements, Number, Triple};
use super::nodes::{BYTES_MAX, Nodes};
use super::serve::{Failed, Host, Served, code, differs, serve_across};
use crate::collective::{Content, Draft, Mismatch, Published, Work};
use crate::mpi::abi::sys::*;

pub(super) use self::trials::Trials;

/// One collective of this kind.
struct Round<'a> {
    me: u32,
    outgoing: &'a Outgoing,
    /// The receive blocks of the other processes.
    receive: &'a [Elements],
    /// A content has a block for each other process.
    parts: bool,
    /// The process whose word counts, if its data are too long. `None`: that of any.
    decider: Option<u32>,
    /// What has been received, in packed form: (from, data).
    received: SmallVec<[(u32, Data); 8]>,
    /// The host serves the call, as all processes know.
    long: bool,
    /// A block is longer than its place.
    is_longer: bool,
}

impl Work for Round<'_> {
    fn write(&mut self, _: Content, draft: &Draft<'_>) {
        draft.write(0, &self.outgoing.data);
    }

    fn collect(&mut self, from: u32, published: &Published<'_>) -> Option<Mismatch> {
        if published.content.note() != 0 {
            match self.decider.is_none_or(|decider| decider == from) {
                true => self.long = true,
                // Only the root reads this. It may have a long place for them.
                false => self.is_longer |= !self.long,
            }
            return None;
        }
        let place = self.receive.get(from as usize)?;
        let (mut at, mut bytes) = (0, published.content.bytes as usize);
        if self.parts {
            let mut entry = [0; 8];
            published.read_part(number(self.me, from) * 8, &mut entry);
            let [a, b, c, d, rest @ ..] = entry;
            (at, bytes) =
                (u32::from_ne_bytes([a, b, c, d]) as usize, u32::from_ne_bytes(rest) as usize);
        }
        if bytes > place.bytes {
            self.is_longer = true;
            return None;
        }
        let mut data = Data::from_elem(0, bytes);
        published.read_part(at, &mut data);
        self.received.push((from, data));
        None
    }
}

impl<'a> Round<'a> {
    fn new(
        me: u32,
        outgoing: &'a Outgoing,
        receive: &'a [Elements],
        parts: bool,
        decider: Option<u32>,
    ) -> Self {
        let received = SmallVec::new();
        let counts = decider.is_none_or(|decider| decider == me);
        let long = counts && outgoing.is_long();
        Round { me, outgoing, receive, parts, decider, received, long, is_longer: false }
    }

    /// Runs the collective, and delivers the data. If they are long, the host serves the call, in
    /// the way `at_host`.
    ///
    /// # Safety
    /// The application may write the receive blocks.
    unsafe fn run(
        mut self,
        own: &mut Communicator,
        which: Collective,
        at_host: Served,
        comm: MPI_Comm,
    ) -> Result<Served, Failed> {
        if let (_, Some(mismatch)) = own.run_with(which, self.outgoing.content, &mut self) {
            return Err(differs(mismatch, MPI_ERR_OTHER, MPI_ERR_OTHER).into());
        }
        let longer = || differs(Mismatch::Longer, MPI_ERR_OTHER, MPI_ERR_OTHER);
        match (self.long, self.is_longer) {
            (true, false) => return Ok(at_host),
            (true, true) => return Err(Failed::AfterHost(at_host, longer())),
            (false, true) => return Err(longer().into()),
            (false, false) => {}
        }
        for (from, data) in &self.received {
            // SAFETY: the contract of this function; no block is longer than its place.
            unsafe { self.receive[*from as usize].copy_from(data, comm) };
        }
        Ok(Served::Done)
    }
}

/// Copies the block that a process keeps.
///
/// # Safety
/// The application may read the first block and write the second.
unsafe fn keep(from: &Elements, to: &Elements, comm: MPI_Comm) {
    let mut data = Data::from_elem(0, from.bytes);
    // SAFETY: the contract of this function.
    unsafe {
        from.copy_to(&mut data, comm);
        to.copy_from(&data[..from.bytes.min(to.bytes)], comm);
    }
}

/// Whether the root of a gatherv expects blocks that are short between nodes, too.
fn is_short_across(own: &Nodes, to: &[Elements]) -> bool {
    let (me, here) = (own.me() as usize, own.here().node);
    let mut bytes: PerRank<usize> = smallvec::smallvec![0; own.nodes() as usize];
    for (rank, (block, place)) in to.iter().zip(own.places()).enumerate() {
        let record = block.bytes.saturating_add(HEAD);
        if rank == me || block.bytes == 0 {
            continue;
        }
        if record > own.mates.content_max() {
            return false;
        }
        bytes[place.node as usize] += record;
    }
    (0..).zip(bytes).all(|(node, bytes)| node == here || bytes <= BYTES_MAX)
}

/// # Safety
/// As MPI says of `MPI_Gatherv`.
pub(super) unsafe fn gatherv<C: Number, D: Number>(
    send: Triple,
    receive: Lists<C, D>,
    root: c_int,
    comm: MPI_Comm,
    host: Host<impl FnOnce() -> c_int, impl FnOnce() -> c_int>,
) -> c_int {
    // What this process gives, unless it is in its place, and what the root gets.
    let arguments = |me: u32, ranks: u32| {
        let is_root = me as c_int == root;
        let in_place = is_root && send.0 == MPI_IN_PLACE.cast_const();
        let from = match in_place {
            true => None,
            false => Some(Elements::new(send).ok_or(Failed::Wrong)?),
        };
        if !is_root {
            return Ok((from, PerRank::new()));
        }
        // SAFETY: the application's arrays, as MPI says of the call.
        let to = unsafe { receive.elements(ranks) }.ok_or(Failed::Wrong)?;
        let is_wrong = from.is_some_and(|from| from.is_same_as(&to[me as usize]));
        if is_wrong { Err(Failed::Wrong) } else { Ok((from, to)) }
    };
    let across = |own: &mut Nodes| {
        let route = Route::To(own.place(root).ok_or(Failed::Wrong)?);
        if !across::tries(own, route) {
            return Ok(Served::AtHost);
        }
        let (me, room) = (own.me(), own.mates.content_max());
        let (from, to) = arguments(me, own.ranks())?;
        let data = match from.filter(|_| me != root as u32) {
            None => is_short_across(own, &to).then(Data::new),
            Some(from) => {
                let block = std::iter::once((root as usize, &from));
                // SAFETY: the application's buffer, as MPI says of the call.
                let list = unsafe { pack_records(me, block, room, comm) };
                Some(list.unwrap_or_else(|| absent(me, root as u32)))
            }
        };
        let outgoing = Outgoing::new(code::GATHERV, data);
        let place = |rank| to.get(rank).copied();
        // SAFETY: the application's buffers, as MPI says of the call.
        unsafe {
            let served = across::serve(own, route, &outgoing, place, comm)?;
            if let (Served::Done, Some(from), Some(mine)) = (&served, from, place(me as usize)) {
                keep(&from, &mine, comm);
            }
            Ok(served)
        }
    };
    let ours = |own: &mut Communicator| {
        let root = valid_root(own, root).ok_or(Failed::Wrong)?;
        let (me, room) = (own.me(), own.content_max());
        let (from, to) = arguments(me, own.ranks())?;
        let data = match from.filter(|_| me != root) {
            // The own block does not travel.
            None => {
                let is_short = |rank: usize| rank == me as usize || to[rank].bytes <= room;
                (0..to.len()).all(is_short).then(Data::new)
            }
            Some(from) => (from.bytes <= room).then(|| {
                let mut data = Data::from_elem(0, from.bytes);
                // SAFETY: the application's buffer, as MPI says of the call.
                unsafe { from.copy_to(&mut data, comm) };
                data
            }),
        };
        let outgoing = Outgoing::new(code::GATHERV, data);
        let round = Round::new(me, &outgoing, &to, false, Some(root));
        // SAFETY: the application's buffers, as MPI says of the call.
        unsafe {
            let which = Collective::AnnouncedGather { root };
            let served = round.run(own, which, Served::AtHost, comm)?;
            if let (Served::Done, Some(from), Some(mine)) = (&served, from, to.get(me as usize)) {
                keep(&from, mine, comm);
            }
            Ok(served)
        }
    };
    serve_across("MPI_Gatherv", comm, host, ours, across)
}

/// # Safety
/// As MPI says of `MPI_Scatterv`.
pub(super) unsafe fn scatterv<C: Number, D: Number>(
    send: Lists<C, D>,
    receive: Triple,
    root: c_int,
    comm: MPI_Comm,
    host: Host<impl FnOnce() -> c_int, impl FnOnce() -> c_int>,
) -> c_int {
    // What the root gives, and what this process gets, unless it is in its place.
    let arguments = |me: u32, ranks: u32| {
        let is_root = me as c_int == root;
        let in_place = is_root && receive.0 == MPI_IN_PLACE.cast_const();
        let to = match in_place {
            true => None,
            false => Some(Elements::new(receive).ok_or(Failed::Wrong)?),
        };
        if !is_root {
            return Ok((PerRank::new(), to));
        }
        // SAFETY: the application's arrays, as MPI says of the call.
        let from = unsafe { send.elements(ranks) }.ok_or(Failed::Wrong)?;
        let is_wrong = to.is_some_and(|to| to.is_same_as(&from[me as usize]));
        if is_wrong { Err(Failed::Wrong) } else { Ok((from, to)) }
    };
    let across = |own: &mut Nodes| {
        let route = Route::From(own.place(root).ok_or(Failed::Wrong)?);
        if !across::tries(own, route) {
            return Ok(Served::AtHost);
        }
        let (me, room) = (own.me(), own.mates.content_max());
        let (from, to) = arguments(me, own.ranks())?;
        // SAFETY: the application's buffers, as MPI says of the call.
        unsafe {
            let data = pack_records(me, from.iter().enumerate(), room, comm);
            let outgoing = Outgoing::new(code::SCATTERV, data);
            let place = |rank| to.filter(|_| rank == root as usize);
            let served = across::serve(own, route, &outgoing, place, comm)?;
            if let (Served::Done, Some(mine), Some(to)) = (&served, from.get(me as usize), to) {
                keep(mine, &to, comm);
            }
            Ok(served)
        }
    };
    let ours = |own: &mut Communicator| {
        let root = valid_root(own, root).ok_or(Failed::Wrong)?;
        let (me, which) = (own.me(), Collective::Scatter { root });
        let (from, to) = arguments(me, own.ranks())?;
        // SAFETY: the application's buffers, as MPI says of the call.
        unsafe {
            let (data, places) = match to.filter(|_| me != root) {
                Some(to) => (Some(Data::new()), PerRank::from_elem(to, own.ranks() as usize)),
                None => (pack_all(own, &from, comm), PerRank::new()),
            };
            let outgoing = Outgoing::new(code::SCATTERV, data);
            let round = Round::new(me, &outgoing, &places, true, Some(root));
            let served = round.run(own, which, Served::AtHost, comm)?;
            if let (Served::Done, Some(mine), Some(to)) = (&served, from.get(me as usize), to) {
                keep(mine, &to, comm);
            }
            Ok(served)
        }
    };
    serve_across("MPI_Scatterv", comm, host, ours, across)
}

/// Serves an exchange of all with all. `send` and `receive` give the blocks, by the number of
/// processes. In place, those that are received are sent.
///
/// # Safety
/// As MPI says of `MPI_Alltoallw`.
unsafe fn exchange(
    call: &'static str,
    comm: MPI_Comm,
    host: Host<impl FnOnce() -> c_int, impl FnOnce() -> c_int>,
    in_place: bool,
    send: impl Fn(u32) -> Option<PerRank<Elements>>,
    receive: impl Fn(u32) -> Option<PerRank<Elements>>,
) -> c_int {
    // What this process gives, unless it is in place, and what it gets.
    let arguments = |ranks: u32| {
        let to = receive(ranks).ok_or(Failed::Wrong)?;
        let from = match in_place {
            true => None,
            false => Some(send(ranks).ok_or(Failed::Wrong)?),
        };
        let is_same =
            |from: &PerRank<Elements>| from.iter().zip(&to).any(|(from, to)| from.is_same_as(to));
        if from.as_ref().is_some_and(is_same) { Err(Failed::Wrong) } else { Ok((from, to)) }
    };
    let across = |own: &mut Nodes| {
        if !across::tries(own, Route::All) {
            return Ok(Served::AtHost);
        }
        let (me, room) = (own.me(), own.mates.content_max());
        let (from, to) = arguments(own.ranks())?;
        // SAFETY: the application's buffers, as MPI says of the call.
        unsafe {
            let sent = from.as_ref().unwrap_or(&to);
            let data = pack_records(me, sent.iter().enumerate(), room, comm);
            let outgoing = Outgoing::new(code::ALLTOALLV, data);
            let place = |rank| to.get(rank).copied();
            let served = across::serve(own, Route::All, &outgoing, place, comm)?;
            if let (Served::Done, Some(from)) = (&served, from) {
                keep(&from[me as usize], &to[me as usize], comm);
            }
            Ok(served)
        }
    };
    let ours = |own: &mut Communicator| {
        let (from, to) = arguments(own.ranks())?;
        let me = own.me();
        // SAFETY: the application's buffers, as MPI says of the call.
        unsafe {
            let data = pack_all(own, from.as_ref().unwrap_or(&to), comm);
            let outgoing = Outgoing::new(code::ALLTOALLV, data);
            let round = Round::new(me, &outgoing, &to, true, None);
            let served = round.run(own, Collective::Exchange, Served::Assembled, comm)?;
            if let (Served::Done, Some(from)) = (&served, from) {
                keep(&from[me as usize], &to[me as usize], comm);
            }
            Ok(served)
        }
    };
    serve_across(call, comm, host, ours, across)
}

/// # Safety
/// As MPI says of `MPI_Alltoallv`.
pub(super) unsafe fn alltoallv<C: Number, D: Number>(
    send: Lists<C, D>,
    receive: Lists<C, D>,
    comm: MPI_Comm,
    host: Host<impl FnOnce() -> c_int, impl FnOnce() -> c_int>,
) -> c_int {
    let in_place = send.buffer == MPI_IN_PLACE.cast_const();
    // SAFETY: the contract of this function; the application's arrays, as MPI says of the call.
    unsafe {
        let (send, receive) = (|ranks| send.elements(ranks), |ranks| receive.elements(ranks));
        exchange("MPI_Alltoallv", comm, host, in_place, send, receive)
    }
}

/// Arguments of what each process sends or receives in `MPI_Alltoallw`.
pub(super) struct TypedLists<C, D> {
    pub(super) buffer: *const c_void,
    pub(super) counts: *const C,
    pub(super) displacements: *const D,
    pub(super) datatypes: *const MPI_Datatype,
}

impl<C: Number, D: Number> TypedLists<C, D> {
    /// The elements of each process. `None`: the arguments are wrong.
    ///
    /// # Safety
    /// The arrays have an entry for each process.
    unsafe fn elements(&self, ranks: u32) -> Option<PerRank<Elements>> {
        // SAFETY: the contract of this function.
        let (counts, displacements, datatypes) = unsafe {
            (
                list(self.counts, ranks)?,
                list(self.displacements, ranks)?,
                list(self.datatypes, ranks)?,
            )
        };
        let each = counts.iter().zip(displacements).zip(datatypes);
        each.map(|((count, displacement), datatype)| {
            let elements = Elements::new((self.buffer, count.wide(), *datatype))?;
            Some(elements.moved_bytes(displacement.wide() as isize))
        })
        .collect()
    }
}

/// # Safety
/// As MPI says of `MPI_Alltoallw`.
pub(super) unsafe fn alltoallw<C: Number, D: Number>(
    send: TypedLists<C, D>,
    receive: TypedLists<C, D>,
    comm: MPI_Comm,
    host: Host<impl FnOnce() -> c_int, impl FnOnce() -> c_int>,
) -> c_int {
    let in_place = send.buffer == MPI_IN_PLACE.cast_const();
    // SAFETY: the contract of this function; the application's arrays, as MPI says of the call.
    unsafe {
        let (send, receive) = (|ranks| send.elements(ranks), |ranks| receive.elements(ranks));
        exchange("MPI_Alltoallw", comm, host, in_place, send, receive)
    }
}
