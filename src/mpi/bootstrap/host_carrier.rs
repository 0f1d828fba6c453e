//! Carries the packets and rendezvous transfers of this process over the host's point-to-point
//! messages.
//!
//! They use a private communicator, so they cannot match the application's messages. A few receives
//! are always posted. They match in the order in which they were posted, so only the first of them
//! is tested. One `MPI_Testsome` tests it together with all sends and transfers; that call is also
//! what drives the host.

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};

use smallvec::SmallVec;

use crate::engine::{Addr, Rank};
use crate::mpi::abi::host_calls;
use crate::mpi::abi::sys::*;
use crate::mpi::progress::hook;
use crate::transport::am::carrier::{Carrier, Event, PortNumber, Process};
use crate::transport::am::channel::{TransferId, TransferTag};
use crate::transport::am::wire::{PACKET, Packet};

/// Number of receives that are kept posted.
const POSTED: usize = 8;
/// Sends in flight from which on the carrier is busy.
const BUSY: usize = 256;
/// Most packets kept for reuse.
const MAX_SPARE: usize = 256;
/// Polls for sends in flight when the carrier closes. Bounded, since sends to a process that has
/// died may never complete.
const CLOSING_POLLS: u32 = 1 << 20;

/// The host's tag of packets.
const PACKETS: c_int = 0;

/// The host's tag of a rendezvous transfer.
fn host_tag(tag: TransferTag) -> c_int {
    1 + 2 * tag.number as c_int + tag.kind as c_int
}

/// The purpose of a request of the host.
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
    /// The requests to test. The first is the oldest posted receive.
    requests: Vec<MPI_Request>,
    /// The purpose of each request.
    work: Vec<Work>,
    /// The other receives, in the order in which they were posted.
    posted: VecDeque<(MPI_Request, Packet)>,
    /// Output arrays of `MPI_Testsome`.
    indices: Vec<c_int>,
    statuses: Vec<MPI_Status>,

    /// Completed receives that the next poll posts again.
    unposted: usize,
    /// Sends in flight.
    sending: usize,
    /// The last poll found a packet, so more are likely.
    streaming: bool,
    events: VecDeque<Event>,
    spare: Vec<Packet>,
}

// SAFETY: the host's handles may be used in any thread, and one thread at a time uses the carrier.
unsafe impl Send for HostCarrier {}

/// A status of zeros.
fn blank() -> MPI_Status {
    // SAFETY: a status is integers; any are valid.
    unsafe { std::mem::zeroed() }
}

/// Logs an error of the host, which only this library or the network can have caused. Windows that
/// need the message go on waiting, and the log names what they wait for.
#[cold]
fn report(call: &str, code: c_int) {
    log::error!("host_mpi: {call} of the host failed with {code}");
}

impl HostCarrier {
    /// Takes over a private communicator.
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
        // SAFETY: the packet has room for `PACKET` bytes, and is not touched until the request is
        // complete.
        let request = unsafe { self.receive(MPI_ANY_SOURCE, PACKETS, at, PACKET) };
        let Some(request) = request else { return };
        if self.requests.is_empty() {
            self.requests.push(request);
            self.work.push(Work::Arrival(packet));
        } else if self.requests[0] == MPI_REQUEST_NULL {
            // All posted receives had completed.
            self.requests[0] = request;
            self.work[0] = Work::Arrival(packet);
        } else {
            self.posted.push_back((request, packet));
        }
    }

    /// Starts a receive of at most `len` bytes.
    ///
    /// # Safety
    /// `to` has room for `len` bytes, and nobody touches them until the request is complete.
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
    /// There are `len` bytes at `from`, which nobody changes until the request is complete.
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
        debug_assert!(!self.requests.is_empty(), "the first request is a receive");
        self.requests.push(request);
        self.work.push(work);
    }

    /// Tests all requests once. True if a packet has arrived.
    fn test(&mut self) -> bool {
        let count = self.requests.len();
        if count == 0 {
            return false;
        }
        if self.indices.len() < count {
            self.indices.resize(count.next_power_of_two(), 0);
            self.statuses.resize(count.next_power_of_two(), blank());
        }
        let mut complete = 0;
        // SAFETY: all arrays have `count` entries. The requests' buffers are packets in `work`, or
        // memory that the callers of `send_data` and `receive_data` keep until they are complete.
        let code = unsafe {
            PMPI_Testsome(
                count as c_int,
                self.requests.as_mut_ptr(),
                &raw mut complete,
                self.indices.as_mut_ptr(),
                self.statuses.as_mut_ptr(),
            )
        };
        // An error in one request does not affect the others.
        if code != MPI_SUCCESS {
            report("MPI_Testsome", code);
        }
        if complete <= 0 || complete == MPI_UNDEFINED {
            return false;
        }
        // The highest index first, since `swap_remove` moves the last entry into the gap.
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

    /// Number of bytes that a receive got.
    fn bytes(status: &MPI_Status) -> usize {
        let mut count = 0;
        // SAFETY: the status is that of a receive of bytes.
        let code = unsafe { PMPI_Get_count(&raw const *status, MPI_BYTE, &raw mut count) };
        if code != MPI_SUCCESS {
            report("MPI_Get_count", code);
        }
        usize::try_from(count).unwrap_or(0)
    }

    /// Handles completion of the oldest receive: the next one moves to the first place. The next
    /// poll posts a new receive, once the packet has been handled.
    fn take_arrived(&mut self, status: &MPI_Status) {
        let (request, next) =
            self.posted.pop_front().unwrap_or((MPI_REQUEST_NULL, Packet::default()));
        self.requests[0] = request;
        let Work::Arrival(mut packet) = std::mem::replace(&mut self.work[0], Work::Arrival(next))
        else {
            unreachable!("the first request is a receive")
        };
        let bytes = Self::bytes(status);
        if bytes > packet.bytes.capacity() {
            self.unposted += 1;
            return self.recycle(packet);
        }
        // SAFETY: the host has written `bytes` bytes into the packet, which has room for them.
        unsafe { packet.bytes.set_len(bytes) };
        self.events.push_back(Event::Arrived(status.MPI_SOURCE as Rank, packet));
        self.unposted += 1;
    }

    /// Handles completion of a request other than the first.
    fn finish(&mut self, work: Work, status: &MPI_Status, failed: bool) {
        match work {
            Work::Arrival(_) => unreachable!("only the first request is a receive"),
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
        let arrived = self.test();
        // Each test finds at most one packet, so test again, at most once for each posted receive.
        // But over a network a test takes about a microsecond, and a packet that comes alone should
        // not wait for a second one. So do this only if the last poll found a packet too.
        if arrived && self.streaming {
            let _ = (1..POSTED).all(|_| self.test());
        }
        self.streaming = arrived;
    }

    fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn close(&mut self) {
        for _ in 0..CLOSING_POLLS {
            if self.sending == 0 {
                break;
            }
            self.test();
        }
        let mut receives: Vec<(MPI_Request, Packet)> = self.posted.drain(..).collect();
        for (request, work) in self.requests.drain(..).zip(self.work.drain(..)) {
            match work {
                Work::Arrival(packet) => receives.push((request, packet)),
                // The receiver has not taken the packet, and the host may still read it.
                Work::Sent(_, packet) => std::mem::forget(packet),
                Work::DataSent(..) | Work::DataReceived(_) => {}
            }
        }
        for (mut request, packet) in receives {
            if request == MPI_REQUEST_NULL {
                continue;
            }
            let mut flag = 0;
            // SAFETY: the requests are receives that were posted here.
            unsafe {
                PMPI_Cancel(&raw mut request);
                PMPI_Test(&raw mut request, &raw mut flag, MPI_STATUS_IGNORE);
            }
            if request != MPI_REQUEST_NULL {
                // The cancellation is not complete: the host may still write to the packet.
                std::mem::forget(packet);
                // SAFETY: the request is not used again.
                unsafe { PMPI_Request_free(&raw mut request) };
            }
        }
        host_calls::comm_free(&mut self.comm);
    }
}
