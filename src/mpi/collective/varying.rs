//! `MPI_Gatherv`, `MPI_Scatterv`, `MPI_Alltoallv` and `MPI_Alltoallw`: a process does not know the
//! lengths of blocks between others. So each publishes its data if they fit into one content, or
//! else that they are long. Where a process that all read says so, they go from buffer to buffer or
//! the host serves the call: the root, or any process of an alltoallv.

mod across;
mod packing;
mod trials;

use std::ffi::{c_int, c_void};
use std::ptr::{copy_nonoverlapping, null_mut};
use std::slice::from_raw_parts_mut;

use self::across::Route;
use self::packing::{Data, HEAD, Length, Outgoing, absent, entry_of, pack_records};
use super::communicators::{Collective, Communicator};
use super::exchanges::{Blocks, Lists, PerRank, list, number, valid_root};
use super::message::{Elements, Number, Staged, Triple};
use super::nodes::{BYTES_MAX, Nodes};
use super::serve::{Failed, Host, Served, code, differs, serve_across};
use super::single_copy::{self, Kept};
use crate::collective::{Content, Draft, Mismatch, Published, Work};
use crate::mpi::abi::error::Fault;
use crate::mpi::abi::sys::*;

pub(super) use self::trials::Trials;

/// How a call moves its blocks.
struct Call<'a> {
    which: Collective,
    code: u32,
    /// The blocks by processes, or the only one.
    send: &'a [Elements],
    receive: &'a [Elements],
    /// What is received takes the place of what is sent.
    in_place: bool,
    /// The block that the process keeps, and its place.
    kept: [Option<&'a Elements>; 2],
}

/// The collective of short blocks.
struct Round<'a, 'b> {
    me: u32,
    ranks: u32,
    call: &'a Call<'a>,
    outgoing: &'a Outgoing<'b>,
    /// What has been received in packed form: (from, data).
    received: Vec<(u32, Data)>,
    /// How long the data are, as all processes know.
    length: Length,
    /// A block is longer than its place.
    is_longer: bool,
}

impl Work for Round<'_, '_> {
    fn write(&mut self, _: Content, draft: &Draft<'_>) {
        self.outgoing.write(draft);
    }

    fn collect(&mut self, from: u32, published: &Published<'_>) -> Option<Mismatch> {
        let length = Length::of(published.content);
        if length != Length::Short {
            match self.call.is_decided_by(from) {
                true => self.length = self.length.max(length),
                // Only the root reads this. It may have a long place for them.
                false => self.is_longer |= self.length == Length::Short,
            }
            return None;
        }
        let place = self.call.place(from)?;
        let (mut at, mut bytes) = (0, published.content.bytes as usize);
        if self.call.parts() {
            (at, bytes) = entry_of(published, self.ranks, number(self.me, from));
        }
        if bytes > place.bytes {
            self.is_longer = true;
            return None;
        }
        match place.dense() {
            _ if bytes == 0 => {}
            // If the call turns out to be long, this is overwritten.
            Some(to) if !self.call.in_place => {
                // SAFETY: within a block that the application may write (contract of `run`).
                published.read_part(at, unsafe { from_raw_parts_mut(to, bytes) });
            }
            _ => {
                let mut data = Data::from_elem(0, bytes);
                published.read_part(at, &mut data);
                self.received.push((from, data));
            }
        }
        None
    }
}

impl Call<'_> {
    /// A content has a block for each other process.
    fn parts(&self) -> bool {
        !matches!(self.which, Collective::AnnouncedGather { .. })
    }

    /// The root.
    fn root(&self) -> Option<u32> {
        match self.which {
            Collective::AnnouncedGather { root } | Collective::Scatter { root } => Some(root),
            _ => None,
        }
    }

    /// Whether the word of a process counts, if its data are too long: the root's, or without a
    /// root that of any.
    fn is_decided_by(&self, rank: u32) -> bool {
        self.root().is_none_or(|root| root == rank)
    }

    /// How the host serves it. Without a root, each process has heard of all others.
    fn at_host(&self) -> Served {
        if self.root().is_some() { Served::AtHost } else { Served::Assembled }
    }

    /// The place of the block that comes from a process.
    fn place(&self, from: u32) -> Option<&Elements> {
        match self.receive {
            [only] => Some(only),
            all => all.get(from as usize),
        }
    }

    /// Moves the blocks. If they are long, they go from buffer to buffer if processes reach each
    /// other, and else the host serves the call.
    ///
    /// # Safety
    /// The application may read the blocks that are sent and write those that are received.
    unsafe fn run(
        self,
        own: &mut Communicator,
        outgoing: &Outgoing<'_>,
        comm: MPI_Comm,
    ) -> Result<Served, Failed> {
        let (me, ranks, content) = (own.me(), own.ranks(), outgoing.content);
        let length = if self.is_decided_by(me) { outgoing.length() } else { Length::Short };
        let mut round = Round {
            me,
            ranks,
            call: &self,
            outgoing,
            received: Vec::new(),
            length,
            is_longer: false,
        };
        if let (_, Some(mismatch)) = own.run_with(self.which, content, &mut round) {
            return Err(differs(mismatch, MPI_ERR_OTHER, MPI_ERR_OTHER).into());
        }
        let longer = || differs(Mismatch::Longer, MPI_ERR_OTHER, MPI_ERR_OTHER);
        match (round.length, round.is_longer) {
            (Length::Short, true) => return Err(longer().into()),
            (Length::Short, false) => {}
            (Length::Long, _) if own.attached().is_some() => {
                // SAFETY: the contract of this function.
                unsafe { self.run_long(own, comm)? };
                return Ok(Served::Done);
            }
            (_, false) => return Ok(self.at_host()),
            (_, true) => return Err(Failed::AfterHost(self.at_host(), Box::new(longer()))),
        }
        for (from, data) in &round.received {
            if let Some(place) = self.place(*from) {
                // SAFETY: the contract of this function; no block is longer than its place.
                unsafe { place.copy_from(data, comm) };
            }
        }
        // SAFETY: the contract of this function.
        unsafe { copy_kept(self.kept, comm) };
        Ok(Served::Done)
    }

    /// Moves long blocks from buffer to buffer.
    ///
    /// # Safety
    /// As [`run`](Self::run).
    unsafe fn run_long(&self, own: &mut Communicator, comm: MPI_Comm) -> Result<(), Fault> {
        let me = own.me();
        // SAFETY: the contract of this function.
        let sources = Stage::new(me, self.send, |block| unsafe { Staged::source(block, comm) });
        let mut sinks = Stage::new(me, self.receive, Staged::sink);
        sinks.close();
        let which = (self.which, self.code);
        let bytes = if let [Some(from), Some(_)] = self.kept { from.bytes } else { 0 };
        // SAFETY: the contract of this function.
        let kept = Kept { bytes, copy: || unsafe { copy_kept(self.kept, comm) } };
        // SAFETY: the contract of this function; what is staged lives as long as its owner.
        unsafe {
            single_copy::exchange(own, which, sources.blocks(), sinks.blocks(), kept)?;
            for (staged, block) in sinks.staged.iter().zip(self.receive) {
                if let Some(staged) = staged {
                    staged.deliver(block, comm);
                }
            }
        }
        Ok(())
    }
}

/// The bytes of long blocks, in the application's buffers or packed.
struct Stage {
    staged: PerRank<Option<Staged>>,
    places: PerRank<(*mut u8, usize)>,
}

impl Stage {
    /// Those of a block for each process, without the own one, or of the only block.
    fn new(me: u32, blocks: &[Elements], stage: impl Fn(&Elements) -> Staged) -> Self {
        let mut all = Stage { staged: PerRank::new(), places: PerRank::new() };
        for (rank, block) in blocks.iter().enumerate() {
            let is_kept = blocks.len() > 1 && rank == me as usize;
            // A longer one cannot be packed. Only a mistake of this process leads here with such a
            // block, and the other process refuses it.
            let is_suited = block.dense().is_some() || block.bytes <= single_copy::BYTES_MAX;
            let staged = (!is_kept && is_suited).then(|| stage(block));
            let base = staged.as_ref().map_or(null_mut(), Staged::base);
            all.places.push((base, if is_kept { 0 } else { block.bytes }));
            all.staged.push(staged);
        }
        all
    }

    /// Has blocks refused that have no place.
    fn close(&mut self) {
        for ((_, bytes), staged) in self.places.iter_mut().zip(&self.staged) {
            if staged.is_none() {
                *bytes = 0;
            }
        }
    }

    fn blocks(&self) -> Blocks<'_> {
        match self.places[..] {
            [] => Blocks::NONE,
            [(base, bytes)] => Blocks::Single(base, bytes),
            _ => Blocks::Places(&self.places),
        }
    }
}

/// Ends a call: if it is complete, copies the block that a process keeps from the first place to
/// the second.
///
/// # Safety
/// The application may read the first place and write the second.
unsafe fn keep(served: Served, kept: [Option<&Elements>; 2], comm: MPI_Comm) -> Served {
    if let Served::Done = served {
        // SAFETY: the contract of this function.
        unsafe { copy_kept(kept, comm) };
    }
    served
}

/// Copies the block that a process keeps from the first place to the second, if it has any.
///
/// # Safety
/// The application may read the first place and write the second.
unsafe fn copy_kept(kept: [Option<&Elements>; 2], comm: MPI_Comm) {
    if let [Some(from), Some(to)] = kept {
        let bytes = from.bytes.min(to.bytes);
        // SAFETY: the contract of this function. The places do not overlap.
        unsafe {
            match (from.dense(), to.dense()) {
                (Some(from), Some(to)) if bytes > 0 => copy_nonoverlapping(from, to, bytes),
                _ => {
                    let mut data = Data::from_elem(0, from.bytes);
                    from.copy_to(&mut data, comm);
                    to.copy_from(&data[..bytes], comm);
                }
            }
        }
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
            Ok(keep(served, [from.as_ref(), to.get(me as usize)], comm))
        }
    };
    let ours = |own: &mut Communicator| {
        let root = valid_root(own, root).ok_or(Failed::Wrong)?;
        let (me, room) = (own.me(), own.content_max());
        let (from, to) = arguments(me, own.ranks())?;
        let code = code::GATHERV;
        // SAFETY: the application's buffers, as MPI says of the call.
        unsafe {
            let outgoing = match from.filter(|_| me != root) {
                Some(from) => Outgoing::single(code, &from, room, comm),
                // The own block does not travel.
                None => {
                    let fits = |rank: usize| rank == me as usize || to[rank].bytes <= room;
                    let is_short = (0..to.len()).all(fits);
                    let mut outgoing = Outgoing::new(code, is_short.then(Data::new));
                    outgoing.limit(&to);
                    outgoing
                }
            };
            let which = Collective::AnnouncedGather { root };
            let send = if me == root { &[] } else { from.as_slice() };
            let kept = [from.as_ref(), to.get(me as usize)];
            let call = Call { which, code, send, receive: &to, in_place: false, kept };
            call.run(own, &outgoing, comm)
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
            Ok(keep(served, [from.get(me as usize), to.as_ref()], comm))
        }
    };
    let ours = |own: &mut Communicator| {
        let root = valid_root(own, root).ok_or(Failed::Wrong)?;
        let me = own.me();
        let (from, to) = arguments(me, own.ranks())?;
        let code = code::SCATTERV;
        // SAFETY: the application's buffers, as MPI says of the call.
        unsafe {
            let mut outgoing = match me == root {
                true => Outgoing::all(code, own, &from, comm),
                false => Outgoing::new(code, Some(Data::new())),
            };
            outgoing.limit(&from);
            let which = Collective::Scatter { root };
            let receive = if me == root { &[] } else { to.as_slice() };
            let kept = [from.get(me as usize), to.as_ref()];
            let call = Call { which, code, send: &from, receive, in_place: false, kept };
            call.run(own, &outgoing, comm)
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
            let kept = from.as_ref().and_then(|from| from.get(me as usize));
            Ok(keep(served, [kept, to.get(me as usize)], comm))
        }
    };
    let ours = |own: &mut Communicator| {
        let (from, to) = arguments(own.ranks())?;
        let (me, code) = (own.me(), code::ALLTOALLV);
        // SAFETY: the application's buffers, as MPI says of the call.
        unsafe {
            let send = from.as_ref().unwrap_or(&to);
            let mut outgoing = Outgoing::all(code, own, send, comm);
            outgoing.limit(send);
            let which = Collective::Exchange;
            let kept = from.as_ref().and_then(|from| from.get(me as usize));
            let kept = [kept, to.get(me as usize)];
            let call = Call { which, code, send, receive: &to, in_place, kept };
            call.run(own, &outgoing, comm)
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
