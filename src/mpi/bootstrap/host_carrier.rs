//! Carries the packets and rendezvous transfers of this process over the host's point-to-point
//! messages.
//!
//! They have a communicator of their own, so nothing of the application can be mistaken for them. A
//! few receives are always posted; they match in the order in which they were posted, so only the
//! first is looked at. All requests are asked about in one call, which is also what drives the
//! host.

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};

use smallvec::SmallVec;

use crate::engine::{Addr, Rank};
use crate::mpi::abi::sys::*;
use crate::mpi::progress::hook;
use crate::transport::am::carrier::{Carrier, Event, PortNumber, Process};
use crate::transport::am::channel::{TransferId, TransferTag};
use crate::transport::am::wire::{PACKET, Packet};

/// Receives that are posted.
const POSTED: usize = 8;
/// Packets under way from which on operations are refused.
const BUSY: usize = 256;
/// Packets that are kept for later ones.
const MAX_SPARE: usize = 64;
/// Looks at what is on its way out when the carrier ends: where a process has died, it may stay.
const LOOKS_AT_THE_END: u32 = 1 << 20;

const PACKETS: c_int = 0;

/// The host's tag of a rendezvous transfer.
fn host_tag(tag: TransferTag) -> c_int {
    1 + 2 * tag.number as c_int + tag.kind as c_int
}

/// What a request of the host is for.
#[derive(Debug)]
enum Work {
    /// A receive of any packet.
    Arrival(Packet),
    Sent(PortNumber, Packet),
    DataSent((PortNumber, TransferId), usize),
    DataReceived((PortNumber, TransferId)),
}

/// The messages of this process.
#[derive(Debug)]
pub(crate) struct HostCarrier {
    comm: MPI_Comm,
    /// Requests and what they are for. The first is the receive that was posted first.
    requests: Vec<MPI_Request>,
    work: Vec<Work>,
    /// The other receives, in the order in which they were posted.
    posted: VecDeque<(MPI_Request, Packet)>,
    /// Where the host says which requests are complete.
    indices: Vec<c_int>,
    statuses: Vec<MPI_Status>,

    /// Receives to be posted again.
    unposted: usize,
    sending: usize,
    /// The last look has found a packet: there are likely more.
    streaming: bool,
    events: VecDeque<Event>,
    spare: Vec<Packet>,
}

// SAFETY: the host's handles may be used in any thread; calls are made by one at a time.
unsafe impl Send for HostCarrier {}

/// A status without content.
fn blank() -> MPI_Status {
    // SAFETY: a status is integers; any are valid.
    unsafe { std::mem::zeroed() }
}

/// Errors of the host are the library's own fault or the network's; the windows concerned wait, and
/// say so.
#[cold]
fn report(call: &str, code: c_int) {
    log::error!("host_mpi: {call} of the host failed with {code}");
}

impl HostCarrier {
    /// Takes over a communicator that only this library sends on, and in which errors return.
    pub(crate) fn new(comm: MPI_Comm) -> Self {
        HostCarrier {
            comm,
            requests: Vec::new(),
            work: Vec::new(),
            posted: VecDeque::new(),
            indices: Vec::new(),
            statuses: Vec::new(),
            unposted: 0,
            sending: 0,
            streaming: false,
            events: VecDeque::new(),
            spare: Vec::new(),
        }
    }

    /// Posts a receive behind the others.
    fn post(&mut self, mut packet: Packet) {
        packet.bytes.clear();
        packet.bytes.reserve(PACKET);
        let at = Addr(packet.bytes.as_mut_ptr() as usize);
        // SAFETY: the packet has room for so many bytes, and is not touched until the request is
        // complete.
        let request = unsafe { self.receive(MPI_ANY_SOURCE, PACKETS, at, PACKET) };
        let Some(request) = request else { return };
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

    /// Starts a receive of at most `len` bytes.
    ///
    /// # Safety
    /// `to` has room for so many bytes, and nobody touches them until the request is complete.
    unsafe fn receive(
        &mut self,
        from: c_int,
        tag: c_int,
        to: Addr,
        len: usize,
    ) -> Option<MPI_Request> {
        let (to, len) = (to.0 as *mut c_void, len as c_int);
        let mut request = MPI_REQUEST_NULL;
        // SAFETY: the memory is the host's until the request is complete (contract of this
        // function).
        let code = unsafe { PMPI_Irecv(to, len, MPI_BYTE, from, tag, self.comm, &raw mut request) };
        if code != MPI_SUCCESS {
            report("MPI_Irecv", code);
            return None;
        }
        Some(request)
    }

    /// Starts to send `len` bytes.
    ///
    /// # Safety
    /// There are so many bytes at `from`, which nobody changes until the request is complete.
    unsafe fn start_send(
        &mut self,
        to: Process,
        tag: c_int,
        from: Addr,
        len: usize,
    ) -> Option<MPI_Request> {
        let (from, to, len) = (from.0 as *const c_void, to as c_int, len as c_int);
        let mut request = MPI_REQUEST_NULL;
        // SAFETY: the memory stays as it is until the request is complete (contract of this
        // function).
        let code = unsafe { PMPI_Isend(from, len, MPI_BYTE, to, tag, self.comm, &raw mut request) };
        if code != MPI_SUCCESS {
            report("MPI_Isend", code);
            return None;
        }
        self.sending += 1;
        Some(request)
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
            report("MPI_Testsome", code);
        }
        if complete <= 0 || complete == MPI_UNDEFINED {
            return false;
        }
        // Places are filled from the end, so the highest goes first.
        let mut order: SmallVec<[u32; 8]> = (0..complete as u32).collect();
        order.sort_unstable_by_key(|at| std::cmp::Reverse(self.indices[*at as usize]));
        let mut arrived = false;
        for at in order {
            let (at, status) = (self.indices[at as usize] as usize, self.statuses[at as usize]);
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
    fn bytes(status: &MPI_Status) -> usize {
        let mut count = 0;
        // SAFETY: the status is that of a receive of bytes.
        let code = unsafe { PMPI_Get_count(&raw const *status, MPI_BYTE, &raw mut count) };
        if code != MPI_SUCCESS {
            report("MPI_Get_count", code);
        }
        usize::try_from(count).unwrap_or(0)
    }

    /// The receive in the first place is complete: the next one takes its place. The next poll
    /// posts another one, when the packet has been answered.
    fn take_arrived(&mut self, status: &MPI_Status) {
        let (request, next) =
            self.posted.pop_front().unwrap_or((MPI_REQUEST_NULL, Packet::default()));
        self.requests[0] = request;
        let Work::Arrival(mut packet) = std::mem::replace(&mut self.work[0], Work::Arrival(next))
        else {
            unreachable!("the first place is that of a receive")
        };
        let bytes = Self::bytes(status);
        if bytes > packet.bytes.capacity() {
            self.unposted += 1;
            return self.recycle(packet);
        }
        // SAFETY: the host has written so many bytes into the packet, which has room for them.
        unsafe { packet.bytes.set_len(bytes) };
        self.events.push_back(Event::Arrived(status.MPI_SOURCE as Rank, packet));
        self.unposted += 1;
    }

    /// Another request is complete.
    fn finish(&mut self, work: Work, status: &MPI_Status, failed: bool) {
        match work {
            Work::Arrival(_) => unreachable!("a receive stands in the first place"),
            Work::Sent(_, packet) => {
                self.sending -= 1;
                self.recycle(packet);
            }
            Work::DataSent((port, transfer), len) => {
                self.sending -= 1;
                self.events.push_back(Event::Moved(port, transfer, len));
            }
            Work::DataReceived((port, transfer)) => {
                let bytes = if failed { usize::MAX } else { Self::bytes(status) };
                self.events.push_back(Event::Moved(port, transfer, bytes));
            }
        }
    }
}

impl Carrier for HostCarrier {
    fn start(&mut self) {
        if self.requests.is_empty() {
            for _ in 0..POSTED {
                self.post(Packet::new());
            }
        }
    }

    fn empty_packet(&mut self) -> Packet {
        let mut packet = self.spare.pop().unwrap_or_default();
        packet.clear();
        packet
    }

    fn recycle(&mut self, packet: Packet) {
        if self.spare.len() < MAX_SPARE {
            self.spare.push(packet);
        }
    }

    fn send(&mut self, port: PortNumber, to: Process, packet: Packet) {
        let from = Addr(packet.bytes.as_ptr() as usize);
        // SAFETY: the packet is kept until the request is complete.
        if let Some(request) = unsafe { self.start_send(to, PACKETS, from, packet.bytes.len()) } {
            self.add(request, Work::Sent(port, packet));
        }
    }

    fn is_sending(&self, port: PortNumber) -> bool {
        self.work.iter().any(|work| matches!(work, Work::Sent(of, _) if *of == port))
    }

    fn is_busy(&self) -> bool {
        self.sending >= BUSY
    }

    unsafe fn send_data(
        &mut self,
        port: (PortNumber, TransferId),
        to: Process,
        tag: TransferTag,
        from: Addr,
        len: usize,
    ) {
        // SAFETY: the caller keeps the memory valid and unchanged until the transfer is complete
        // (contract of this function).
        match unsafe { self.start_send(to, host_tag(tag), from, len) } {
            Some(request) => self.add(request, Work::DataSent(port, len)),
            None => self.events.push_back(Event::Moved(port.0, port.1, usize::MAX)),
        }
    }

    unsafe fn receive_data(
        &mut self,
        port: (PortNumber, TransferId),
        from: Process,
        tag: TransferTag,
        to: Addr,
        len: usize,
    ) {
        // SAFETY: the caller keeps the memory valid and unused until the transfer is complete
        // (contract of this function).
        match unsafe { self.receive(from as c_int, host_tag(tag), to, len) } {
            Some(request) => self.add(request, Work::DataReceived(port)),
            None => self.events.push_back(Event::Moved(port.0, port.1, usize::MAX)),
        }
    }

    fn cancel_receives(&mut self, port: PortNumber) {
        for (request, work) in self.requests.iter_mut().zip(&self.work) {
            if matches!(work, Work::DataReceived((other, _)) if *other == port) {
                // SAFETY: a receive that is pending.
                unsafe { PMPI_Cancel(&raw mut *request) };
            }
        }
    }

    fn poll(&mut self) {
        if hook::is_restricted() {
            return;
        }
        for _ in 0..std::mem::take(&mut self.unposted) {
            let packet = self.spare.pop().unwrap_or_default();
            self.post(packet);
        }
        let arrived = self.ask();
        // One after the other, since only the first receive is looked at; no more than are posted.
        // But each look drives the host, which over a network takes about a microsecond: a packet
        // that comes alone is not kept waiting for a second look.
        if arrived && self.streaming {
            let _ = (1..POSTED).all(|_| self.ask());
        }
        self.streaming = arrived;
    }

    fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn close(&mut self) {
        for _ in 0..LOOKS_AT_THE_END {
            if self.sending == 0 {
                break;
            }
            self.ask();
        }
        let mut receives: Vec<(MPI_Request, Packet)> = self.posted.drain(..).collect();
        for (request, work) in self.requests.drain(..).zip(self.work.drain(..)) {
            match work {
                Work::Arrival(packet) => receives.push((request, packet)),
                // To a process that takes nothing in: the host may still read it.
                Work::Sent(_, packet) => std::mem::forget(packet),
                Work::DataSent(..) | Work::DataReceived(_) => {}
            }
        }
        for (mut request, packet) in receives {
            let mut flag = 0;
            // SAFETY: the requests are receives that were posted here.
            unsafe {
                if request != MPI_REQUEST_NULL {
                    PMPI_Cancel(&raw mut request);
                    PMPI_Test(&raw mut request, &raw mut flag, MPI_STATUS_IGNORE);
                }
            }
            if request != MPI_REQUEST_NULL {
                // Not cancelled yet: the host may still write to the packet.
                std::mem::forget(packet);
                // SAFETY: the request is not used again.
                unsafe { PMPI_Request_free(&raw mut request) };
            }
        }
        // SAFETY: the communicator was made for this carrier, which does not use it any more.
        unsafe { PMPI_Comm_free(&raw mut self.comm) };
    }
}
