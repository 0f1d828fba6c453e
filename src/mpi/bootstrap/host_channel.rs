//! Carries the packets and bulk messages of one window over the host's point-to-point messages.
//!
//! Each window that needs it has a communicator of its own, so nothing of the application can be
//! mistaken for ours, and windows do not disturb each other. A few receives are always posted; they
//! match in the order in which they were posted, so only the first is looked at. All requests are
//! asked about in one call, which is also what drives the host.

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};

use smallvec::SmallVec;

use crate::engine::{Addr, Rank};
use crate::mpi::abi::sys::*;
use crate::mpi::bootstrap::private::Private;
use crate::mpi::progress::hook;
use crate::transport::Proposal;
use crate::transport::am::channel::{Channel, TransferId, TransferKind};
use crate::transport::am::wire::{PACKET, Packet};

/// Receives that are posted.
const POSTED: usize = 8;
/// Packets under way from which on operations are refused.
const BUSY: usize = 256;
/// Packets that are kept for later ones.
const KEPT: usize = 64;

const PACKETS: c_int = 0;

fn tag(kind: TransferKind) -> c_int {
    1 + kind as c_int
}

/// What a request of the host is for.
#[derive(Debug)]
enum Work {
    /// A receive of any packet.
    Arrival(Packet),
    Sent(Packet),
    DataSent(TransferId, usize),
    DataReceived(TransferId),
}

/// One window's messages.
#[derive(Debug)]
pub(crate) struct HostChannel {
    private: Private,
    /// Requests and what they are for. The first is the receive that was posted first.
    requests: Vec<MPI_Request>,
    work: Vec<Work>,
    /// The other receives, in the order in which they were posted.
    posted: VecDeque<(MPI_Request, Packet)>,
    /// Where the host says which requests are complete.
    indices: Vec<c_int>,
    statuses: Vec<MPI_Status>,

    sending: usize,
    /// The last look has found a packet: there are likely more.
    streaming: bool,
    arrived: VecDeque<(Rank, Packet)>,
    moved: VecDeque<(TransferId, usize)>,
    failures: VecDeque<String>,
    spare: Vec<Packet>,
    agreement: Option<Agreement>,
    gather: Option<Gather>,
}

// SAFETY: the host's handles may be used in any thread; calls are made by one at a time.
unsafe impl Send for HostChannel {}

/// A pending agreement. The host reads the first number and writes the second.
#[derive(Debug)]
struct Agreement {
    request: MPI_Request,
    numbers: Box<[c_int; 2]>,
}

/// An exchange of numbers under way; the host reads the one and writes the others.
#[derive(Debug)]
struct Gather {
    request: MPI_Request,
    /// What the call said.
    code: c_int,
    mine: Box<u32>,
    all: Box<[u32]>,
}

/// A status without content.
fn blank() -> MPI_Status {
    // SAFETY: a status is integers; any are valid.
    unsafe { std::mem::zeroed() }
}

impl HostChannel {
    /// Takes over a communicator of the window's processes.
    pub(crate) fn new(private: Private) -> Self {
        let mut channel = HostChannel {
            private,
            requests: Vec::new(),
            work: Vec::new(),
            posted: VecDeque::new(),
            indices: Vec::new(),
            statuses: Vec::new(),
            sending: 0,
            streaming: false,
            arrived: VecDeque::new(),
            moved: VecDeque::new(),
            failures: VecDeque::new(),
            spare: Vec::new(),
            agreement: None,
            gather: None,
        };
        for _ in 0..POSTED {
            channel.post(Packet::new());
        }
        channel
    }

    fn failed(&mut self, call: &str, code: c_int) {
        self.failures.push_back(format!("host_mpi: {call} of the host failed with {code}"));
    }

    /// Posts a receive behind the others.
    fn post(&mut self, mut packet: Packet) {
        packet.bytes.clear();
        packet.bytes.reserve(PACKET);
        let mut request = MPI_REQUEST_NULL;
        let place = packet.bytes.as_mut_ptr().cast::<c_void>();
        // SAFETY: the packet has room for so many bytes, and is not touched until the request is
        // complete.
        let code = unsafe {
            PMPI_Irecv(
                place,
                PACKET as c_int,
                MPI_BYTE,
                MPI_ANY_SOURCE,
                PACKETS,
                self.private.comm(),
                &raw mut request,
            )
        };
        if code != MPI_SUCCESS {
            return self.failed("MPI_Irecv", code);
        }
        if self.requests.is_empty() {
            self.requests.push(request);
            self.work.push(Work::Arrival(packet));
        } else if self.requests[0] == MPI_REQUEST_NULL {
            // All had come in.
            self.requests[0] = request;
            self.work[0] = Work::Arrival(packet);
        } else {
            self.posted.push_back((request, packet));
        }
    }

    fn add(&mut self, request: MPI_Request, work: Work) {
        debug_assert!(!self.requests.is_empty(), "the first place is that of a receive");
        self.requests.push(request);
        self.work.push(work);
    }

    /// Asks once about all requests. True if a packet has come in.
    fn ask(&mut self) -> bool {
        let count = self.requests.len();
        if count == 0 {
            return false;
        }
        if self.indices.len() < count {
            self.indices.resize(count.next_power_of_two(), 0);
            self.statuses.resize(count.next_power_of_two(), blank());
        }
        let mut complete = 0;
        // SAFETY: all lists have `count` entries; what the requests use lives in `work` or is the
        // library's until they are complete.
        let code = unsafe {
            PMPI_Testsome(
                count as c_int,
                self.requests.as_mut_ptr(),
                &raw mut complete,
                self.indices.as_mut_ptr(),
                self.statuses.as_mut_ptr(),
            )
        };
        // With an error in one of them the others are complete all the same.
        if code != MPI_SUCCESS {
            self.failed("MPI_Testsome", code);
        }
        if complete <= 0 || complete == MPI_UNDEFINED {
            return false;
        }
        let mut done: SmallVec<[(usize, MPI_Status); 8]> = (0..complete as usize)
            .map(|at| (self.indices[at] as usize, self.statuses[at]))
            .collect();
        // Places are filled from the end, so the highest goes first.
        done.sort_unstable_by_key(|(at, _)| std::cmp::Reverse(*at));
        let mut arrived = false;
        for (at, status) in done {
            if at == 0 {
                arrived = true;
                self.take_arrived(&status);
            } else {
                self.requests.swap_remove(at);
                let work = self.work.swap_remove(at);
                let failed = code != MPI_SUCCESS && status.MPI_ERROR != MPI_SUCCESS;
                self.finish(work, &status, failed);
            }
        }
        arrived
    }

    /// Bytes that a receive has brought.
    fn bytes(&mut self, status: &MPI_Status) -> usize {
        let mut count = 0;
        // SAFETY: the status is that of a receive of bytes.
        let code = unsafe { PMPI_Get_count(&raw const *status, MPI_BYTE, &raw mut count) };
        if code != MPI_SUCCESS {
            self.failed("MPI_Get_count", code);
        }
        usize::try_from(count).unwrap_or(0)
    }

    /// The receive in the first place is complete: the next one takes its place.
    fn take_arrived(&mut self, status: &MPI_Status) {
        let (request, next) =
            self.posted.pop_front().unwrap_or((MPI_REQUEST_NULL, Packet::default()));
        self.requests[0] = request;
        let Work::Arrival(mut packet) = std::mem::replace(&mut self.work[0], Work::Arrival(next))
        else {
            unreachable!("the first place is that of a receive")
        };
        let bytes = self.bytes(status);
        if bytes > packet.bytes.capacity() {
            return self.recycle(packet);
        }
        // SAFETY: the host has written so many bytes into the packet, which has room for them.
        unsafe { packet.bytes.set_len(bytes) };
        self.arrived.push_back((status.MPI_SOURCE as Rank, packet));
    }

    /// Another request is complete.
    fn finish(&mut self, work: Work, status: &MPI_Status, failed: bool) {
        match work {
            Work::Arrival(_) => unreachable!("a receive stands in the first place"),
            Work::Sent(packet) => {
                self.sending -= 1;
                self.keep(packet);
            }
            Work::DataSent(transfer, len) => {
                self.sending -= 1;
                self.moved.push_back((transfer, len));
            }
            Work::DataReceived(transfer) => {
                let bytes = if failed { usize::MAX } else { self.bytes(status) };
                self.moved.push_back((transfer, bytes));
            }
        }
    }

    fn keep(&mut self, packet: Packet) {
        if self.spare.len() < KEPT {
            self.spare.push(packet);
        }
    }
}

impl Channel for HostChannel {
    fn empty_packet(&mut self) -> Packet {
        let mut packet = self.spare.pop().unwrap_or_default();
        packet.clear();
        packet
    }

    fn send(&mut self, peer: Rank, packet: Packet) {
        let mut request = MPI_REQUEST_NULL;
        let (place, len) = (packet.bytes.as_ptr().cast::<c_void>(), packet.bytes.len() as c_int);
        // SAFETY: the packet is kept until the request is complete.
        let code = unsafe {
            PMPI_Isend(
                place,
                len,
                MPI_BYTE,
                peer as c_int,
                PACKETS,
                self.private.comm(),
                &raw mut request,
            )
        };
        if code != MPI_SUCCESS {
            return self.failed("MPI_Isend", code);
        }
        self.sending += 1;
        self.add(request, Work::Sent(packet));
    }

    fn is_busy(&self) -> bool {
        self.sending >= BUSY
    }

    fn receive(&mut self) -> Option<(Rank, Packet)> {
        self.arrived.pop_front()
    }

    fn recycle(&mut self, packet: Packet) {
        self.post(packet);
    }

    fn poll(&mut self) {
        if hook::is_restricted() {
            return;
        }
        let arrived = self.ask();
        // One after the other, since only the first receive is looked at; no more than are posted.
        // But each look drives the host, which over a network takes about a microsecond: a packet
        // that comes alone is not kept waiting for a second look.
        if arrived && self.streaming {
            while self.arrived.len() < POSTED && self.ask() {}
        }
        self.streaming = arrived;
    }

    unsafe fn send_data(
        &mut self,
        peer: Rank,
        kind: TransferKind,
        from: Addr,
        len: usize,
        transfer: TransferId,
    ) {
        let mut request = MPI_REQUEST_NULL;
        let from = from.0 as *const c_void;
        // SAFETY: the caller's promise.
        let code = unsafe {
            PMPI_Isend(
                from,
                len as c_int,
                MPI_BYTE,
                peer as c_int,
                tag(kind),
                self.private.comm(),
                &raw mut request,
            )
        };
        if code != MPI_SUCCESS {
            self.moved.push_back((transfer, usize::MAX));
            return self.failed("MPI_Isend", code);
        }
        self.sending += 1;
        self.add(request, Work::DataSent(transfer, len));
    }

    unsafe fn receive_data(
        &mut self,
        peer: Rank,
        kind: TransferKind,
        to: Addr,
        len: usize,
        transfer: TransferId,
    ) {
        let mut request = MPI_REQUEST_NULL;
        let to = to.0 as *mut c_void;
        // SAFETY: the caller's promise.
        let code = unsafe {
            PMPI_Irecv(
                to,
                len as c_int,
                MPI_BYTE,
                peer as c_int,
                tag(kind),
                self.private.comm(),
                &raw mut request,
            )
        };
        if code != MPI_SUCCESS {
            self.moved.push_back((transfer, usize::MAX));
            return self.failed("MPI_Irecv", code);
        }
        self.add(request, Work::DataReceived(transfer));
    }

    fn next_transfer(&mut self) -> Option<(TransferId, usize)> {
        self.moved.pop_front()
    }

    fn cancel_receives(&mut self) {
        for (request, work) in self.requests.iter_mut().zip(&self.work) {
            if matches!(work, Work::DataReceived(..)) {
                // SAFETY: a receive that is pending.
                unsafe { PMPI_Cancel(&raw mut *request) };
            }
        }
    }

    fn next_failure(&mut self) -> Option<String> {
        self.failures.pop_front()
    }

    fn propose(&mut self, proposal: Proposal) {
        debug_assert!(self.agreement.is_none(), "a second proposal before the decision");
        let numbers = Box::new([proposal as c_int, 0]);
        let mut agreement = Agreement { request: MPI_REQUEST_NULL, numbers };
        let [mine, all] = &mut *agreement.numbers;
        // SAFETY: the two numbers live on the heap until the request is complete, and nobody else
        // uses them.
        let code = unsafe {
            PMPI_Iallreduce(
                (&raw const *mine).cast(),
                (&raw mut *all).cast(),
                1,
                MPI_INT,
                MPI_MAX,
                self.private.comm(),
                &raw mut agreement.request,
            )
        };
        if code != MPI_SUCCESS {
            self.failed("MPI_Iallreduce", code);
        }
        self.agreement = Some(agreement);
    }

    fn decision(&mut self) -> Option<Proposal> {
        if hook::is_restricted() {
            return None;
        }
        let agreement = self.agreement.as_mut()?;
        let mut flag = 0;
        // SAFETY: the request is that of the agreement, or null after an error.
        let code =
            unsafe { PMPI_Test(&raw mut agreement.request, &raw mut flag, MPI_STATUS_IGNORE) };
        if code == MPI_SUCCESS && flag == 0 {
            return None;
        }
        let agreement = self.agreement.take()?;
        if code != MPI_SUCCESS {
            self.failed("MPI_Test", code);
        }
        // SAFETY: written by the host, whose request is complete.
        let highest = unsafe { std::ptr::read_volatile(&raw const agreement.numbers[1]) };
        Some(
            [Proposal::Ready, Proposal::Busy]
                .into_iter()
                .find(|proposal| *proposal as c_int == highest)
                .unwrap_or(Proposal::Objection),
        )
    }

    fn start_allgather(&mut self, number: u32) {
        debug_assert!(self.gather.is_none(), "a second exchange before the end of the first");
        let mut size = 0;
        // SAFETY: the communicator is live.
        let code = unsafe { PMPI_Comm_size(self.private.comm(), &raw mut size) };
        let all = vec![0u32; usize::try_from(size).unwrap_or(0)].into_boxed_slice();
        let mut gather = Gather { request: MPI_REQUEST_NULL, code, mine: Box::new(number), all };
        if code == MPI_SUCCESS {
            let (mine, all) = ((&raw const *gather.mine).cast(), gather.all.as_mut_ptr().cast());
            let bytes = size_of::<u32>() as c_int;
            // SAFETY: the numbers live on the heap until the request is complete, and nobody else
            // uses them; there is one for each process.
            gather.code = unsafe {
                PMPI_Iallgather(
                    mine,
                    bytes,
                    MPI_BYTE,
                    all,
                    bytes,
                    MPI_BYTE,
                    self.private.comm(),
                    &raw mut gather.request,
                )
            };
        }
        self.gather = Some(gather);
    }

    fn finish_allgather(&mut self) -> Option<Result<Vec<u32>, String>> {
        if hook::is_restricted() {
            return None;
        }
        let gather = self.gather.as_mut()?;
        let (mut flag, mut code) = (0, gather.code);
        if code == MPI_SUCCESS {
            // SAFETY: the request is that of the exchange.
            code = unsafe { PMPI_Test(&raw mut gather.request, &raw mut flag, MPI_STATUS_IGNORE) };
            if code == MPI_SUCCESS && flag == 0 {
                return None;
            }
        }
        let gather = self.gather.take()?;
        if code != MPI_SUCCESS {
            return Some(Err(format!("MPI_Iallgather of the host failed with {code}")));
        }
        Some(Ok(gather.all.into_vec()))
    }

    fn is_quiet(&mut self) -> bool {
        self.sending == 0
    }

    fn release(&mut self, clean: bool) {
        let mut clean = clean && self.sending == 0;
        let mut receives: Vec<(MPI_Request, Packet)> = self.posted.drain(..).collect();
        for (request, work) in self.requests.drain(..).zip(self.work.drain(..)) {
            match work {
                Work::Arrival(packet) => receives.push((request, packet)),
                // Of a window that has broken: the host may still read it.
                Work::Sent(packet) => std::mem::forget(packet),
                Work::DataSent(..) | Work::DataReceived(_) => {}
            }
        }
        for (mut request, packet) in receives {
            let mut flag = 0;
            // SAFETY: the requests are receives that were posted here; nothing is under way that
            // they could match.
            unsafe {
                if request != MPI_REQUEST_NULL {
                    PMPI_Cancel(&raw mut request);
                    PMPI_Test(&raw mut request, &raw mut flag, MPI_STATUS_IGNORE);
                }
            }
            if request != MPI_REQUEST_NULL {
                // Not cancelled yet: the host may still look at the packet.
                clean = false;
                std::mem::forget(packet);
                // SAFETY: as above.
                unsafe { PMPI_Request_free(&raw mut request) };
            }
        }
        // All processes have come here.
        self.private.end(clean);
    }
}
