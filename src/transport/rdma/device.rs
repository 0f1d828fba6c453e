//! The device interface: registered memory, reliable-connected queue pairs, completions.
//!
//! [`IbvDevice`](super::ibverbs::IbvDevice) implements it by libibverbs. Tests implement it in
//! memory, with delays, reordering and failures.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::io;

/// The address of a port, which peers need to connect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortAddress {
    /// InfiniBand's local identifier (LID); 0 on Ethernet.
    pub lid: u16,
    /// Code of the path MTU (`enum ibv_mtu`).
    pub mtu: u8,
    /// RDMA reads and atomics that the port serves concurrently on one queue pair.
    pub depth: u8,
    /// Global identifier (GID).
    pub gid: [u8; 16],
    /// Partition key; 0 on Ethernet, where keys have no meaning.
    pub partition: u16,
}

impl PortAddress {
    /// Checks that two ports may communicate: they are in one partition, and one of them is a full
    /// member. Otherwise the network drops their packets, and each request would only time out.
    pub(super) fn check_partition(&self, peer: &PortAddress) -> Result<(), DeviceError> {
        /// Set in the key of a full member.
        const FULL: u16 = 0x8000;
        let (own, peers) = (self.partition, peer.partition);
        let share = (own ^ peers) & !FULL == 0 && (own | peers) & FULL != 0;
        if own == 0 && peers == 0 || share {
            Ok(())
        } else {
            Err(DeviceError::Partitions { own, peers })
        }
    }
}

/// Sizes and capabilities of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceLimits {
    /// Work requests that one send queue holds.
    pub send_depth: u32,
    /// Entries of the completion queue, which all queue pairs share.
    pub cq_depth: u32,
    /// Largest inline write, in bytes.
    pub max_inline: u32,
    /// Largest message, in bytes.
    pub max_message: u64,
    /// Receives that may be posted.
    pub receive_depth: u32,
    /// Queue pairs.
    pub max_qps: u32,
    /// Most local segments that one write gathers, and that one read scatters.
    pub max_sge: [u32; 2],
    /// What the device's atomics are atomic with.
    pub atomics: AtomicCapability,
    /// Whether the fence flag works. If not, the caller has to wait for earlier reads.
    pub fences: bool,
}

/// What a device's atomics are atomic with (`enum ibv_atomic_cap`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicCapability {
    /// The device has no atomics.
    None,
    /// Atomics of the same device.
    Hca,
    /// Atomics of the same device and of the processors.
    Global,
}

/// Handle of a queue pair. The device may reuse it after the queue pair is destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Qp(pub u32);

/// A memory registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRegion {
    /// Handle for [`Device::unregister`].
    pub id: u64,
    /// Key for this process's work requests.
    pub lkey: u32,
    /// Key for peers.
    pub rkey: u32,
}

/// The operation of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode {
    /// RDMA write.
    Write,
    /// RDMA write with an immediate, which consumes a receive of the peer.
    WriteImm(u32),
    /// RDMA read.
    Read,
    /// Send with an immediate.
    SendImm(u32),
    /// Adds to an 8-byte word of the peer. Stores the old value in local memory.
    FetchAdd(u64),
    /// Stores `new` in an 8-byte word of the peer if it equals `expected`. Stores the old value in
    /// local memory.
    CompareSwap {
        /// The value to compare with.
        expected: u64,
        /// The value to store.
        new: u64,
    },
}

/// A work request for a send queue.
#[derive(Clone, Copy, Debug)]
pub struct WorkRequest {
    /// The operation.
    pub opcode: Opcode,
    /// Sequence number in the queue. The completion reports it.
    pub id: u64,
    /// Local address.
    pub local: usize,
    /// Bytes.
    pub len: u32,
    /// Key of the local memory; ignored for inline requests.
    pub lkey: u32,
    /// Remote address.
    pub remote: u64,
    /// Key of the remote memory.
    pub rkey: u32,
    /// Generate a completion.
    pub signalled: bool,
    /// Copy the local bytes during the call.
    pub inline: bool,
    /// Start only after earlier reads and atomics of this queue have completed. Without it, the
    /// request may take effect before they do.
    pub fence: bool,
    /// Another request of this queue probably follows. The device may keep this one until then, or
    /// until it is polled, and ring the doorbell for both.
    pub more: bool,
}

/// A contiguous range of local memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocalSegment {
    /// Address of the first byte.
    pub addr: usize,
    /// Bytes.
    pub len: u32,
}

/// A completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// All work requests of a queue pair up to this number are complete.
    Success(Qp, u64),
    /// A receive is complete.
    Received {
        /// The queue pair that received.
        qp: Qp,
        /// The receive, as numbered by [`Device::post_receive`].
        receive: u32,
        /// Bytes.
        len: u32,
        /// The immediate.
        imm: u32,
        /// The immediate is that of an RDMA write, which does not use the receive's memory.
        from_write: bool,
    },
    /// A work request failed, and the queue pair with it. The status is for
    /// [`Device::status_text`].
    Error(Qp, u64, u32),
    /// A receive was returned without a message. Its memory belongs to the caller again.
    ReceiveReturned(u32),
}

/// What a device reports of itself, apart from completions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceEvent {
    /// A queue pair has failed, for the reason in the text.
    QpFailed(Qp, String),
    /// No request completes any more, for the reason in the text.
    DeviceFailed(String),
    /// The port is down. Requests are retried as long as they have retries left.
    PortDown,
    /// The port is up again.
    PortUp,
    /// The port's address has changed, and [`Device::address`] with it. Connections that were made
    /// with the old one may fail.
    AddressChanged,
}

/// Why the device, or a call of it, failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the texts of the errors say what they mean")]
pub enum DeviceError {
    /// libibverbs cannot be loaded, with the loader's text.
    #[error("{0}")]
    Library(String),
    #[error("libibverbs.so.1 has no {0}")]
    Symbol(&'static str),
    #[error("{call}: {}", io::Error::from_raw_os_error(*errno))]
    System { call: &'static str, errno: i32 },
    #[error("{0} (the limit of locked memory, ulimit -l, may be too low)")]
    QueueMemory(Box<DeviceError>),
    #[error("there is no RDMA device{}{}", if .0.is_empty() { "" } else { " " }, .0)]
    NoDevice(String),
    #[error("{}", join(.0))]
    NoUsableDevice(Vec<(String, DeviceError)>),
    #[error("it is neither InfiniBand nor RoCE")]
    WrongTransport,
    #[error("it has no ports")]
    NoPorts,
    #[error("port {0} {1}")]
    Port(u8, PortError),
    #[error("{text}: {problem}")]
    Setting { text: String, problem: &'static str },
    #[error(
        "the ports share no partition: this process has key {own:#06x}, and the peer {peers:#06x} \
         (see MPIX_RMA_IB_PKEY)"
    )]
    Partitions { own: u16, peers: u16 },
    #[error("the device has failed: {0}")]
    Failed(String),
    #[error(transparent)]
    Registration(#[from] RegistrationError),
}

fn join(reasons: &[(String, DeviceError)]) -> String {
    reasons.iter().map(|(name, why)| format!("{name}: {why}")).collect::<Vec<_>>().join("; ")
}

/// Why a port cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the texts of the errors say what they mean")]
pub enum PortError {
    #[error("cannot be queried: {}", io::Error::from_raw_os_error(*.0))]
    Query(i32),
    #[error("is not active")]
    Inactive,
    #[error("has no address")]
    NoAddress,
    #[error("has no address with index {0}")]
    NoAddressAt(u8),
    #[error("has no partition key {0:#06x}")]
    NoPartitionKey(u16),
}

/// Why memory was not registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the texts of the errors say what they mean")]
pub enum RegistrationError {
    /// The device or the limit of locked memory is exhausted. Ending registrations may help.
    #[error("ibv_reg_mr: out of memory, {0} bytes (see ulimit -l)")]
    OutOfMemory(usize),
    #[error("ibv_reg_mr: {}, {bytes} bytes", io::Error::from_raw_os_error(*errno))]
    Refused { bytes: usize, errno: i32 },
    #[error("the device has no on-demand paging")]
    NoOnDemandPaging,
    #[error("more than half of this machine's memory, and {0}")]
    TooLarge(Box<RegistrationError>),
}

/// A port of an RDMA device, as one process sees it.
pub trait Device: Debug + Send {
    /// Sizes and capabilities.
    fn limits(&self) -> DeviceLimits;

    /// The port's address.
    fn address(&self) -> PortAddress;

    /// Device and port, for the log.
    fn name(&self) -> String;

    /// Registers `len` bytes at `addr` for all accesses.
    ///
    /// The pages are locked. With `on_demand`, the device faults them in when it needs them.
    ///
    /// # Safety
    /// The memory must stay mapped until it is unregistered: the device writes to it.
    unsafe fn register(
        &mut self,
        addr: usize,
        len: usize,
        on_demand: bool,
    ) -> Result<MemoryRegion, RegistrationError>;

    /// Ends a registration.
    fn unregister(&mut self, id: u64);

    /// Creates a queue pair. Returns its handle, and the number by which peers address it.
    fn create_qp(&mut self) -> Result<(Qp, u32), DeviceError>;

    /// Connects a queue pair to the peer's queue pair `number` at port `to`.
    fn connect_qp(&mut self, qp: Qp, number: u32, to: &PortAddress) -> Result<(), DeviceError>;

    /// Destroys a queue pair and abandons its work requests.
    ///
    /// Appends all completions that are available to `completions`. The caller drops those of this
    /// queue pair. `drained`: at most an outgoing acknowledgement is outstanding on it.
    fn destroy_qp(&mut self, qp: Qp, drained: bool, completions: &mut VecDeque<Completion>);

    /// Posts a work request. If the local memory has several segments, `segments` lists them; all
    /// have the request's `lkey`.
    ///
    /// # Safety
    /// Unless the request is inline, its local memory must stay valid and unchanged until the
    /// request completes. If the request writes local memory, nothing else may access it until
    /// then.
    ///
    /// # Errors
    /// The device refuses the request, or one that it has kept.
    unsafe fn post_send(
        &mut self,
        qp: Qp,
        request: &WorkRequest,
        segments: &[LocalSegment],
    ) -> Result<(), DeviceError>;

    /// Posts receive number `receive` with `len` bytes at `addr`.
    ///
    /// # Safety
    /// The memory must stay valid, and belongs to the device, until the receive completes.
    ///
    /// # Errors
    /// The device refuses the request; nothing was posted.
    unsafe fn post_receive(
        &mut self,
        receive: u32,
        addr: usize,
        len: u32,
        lkey: u32,
    ) -> Result<(), DeviceError>;

    /// Polls the completion queue. Appends a bounded number of completions, in order for each queue
    /// pair. Returns whether there may be more.
    fn poll(&mut self, completions: &mut VecDeque<Completion>) -> bool;

    /// The next event that was not taken yet.
    fn next_event(&mut self) -> Option<DeviceEvent>;

    /// The text of a completion status.
    fn status_text(&self, status: u32) -> String;
}
