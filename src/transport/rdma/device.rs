//! What is wanted of a network interface: memory that peers may reach, queues to them, and
//! completions.
//!
//! [`Device`](super::device::Device) is the real one. Tests have one in memory, which is late,
//! reorders what may be reordered, and fails.

use std::fmt::Debug;

/// Where a port is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortAddress {
    /// InfiniBand's local address; 0 on Ethernet.
    pub lid: u16,
    /// Code of the largest packet (`enum ibv_mtu`).
    pub mtu: u8,
    /// Reads and atomics that it serves at a time, of one queue.
    pub depth: u8,
    /// Global address.
    pub gid: [u8; 16],
}

/// Sizes and abilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceLimits {
    /// Requests that one queue holds.
    pub queue: u32,
    /// Signalled requests and receives, of all queues together, that may be under way.
    pub completions: u32,
    /// Bytes of a write that are copied into the request.
    pub inline: u32,
    /// Bytes of one request.
    pub message: u64,
    /// Receives that may be posted.
    pub receives: u32,
    /// Queues.
    pub queues: u32,
    /// Runs of local memory that one write gathers, and one read scatters.
    pub parts: [u32; 2],
    /// What atomics are atomic with.
    pub atomics: AtomicCapability,
    /// Requests may wait in the interface for reads before them. Else they are not handed over
    /// before those have ended.
    pub fences: bool,
}

/// What the interface's atomics are atomic with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicCapability {
    /// There are none.
    None,
    /// Those of this interface.
    Hca,
    /// The processor's as well.
    Global,
}

/// Names a queue to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Qp(pub u32);

/// Registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRegion {
    /// For unregistering it.
    pub id: u64,
    /// For requests of this process.
    pub lkey: u32,
    /// For peers.
    pub rkey: u32,
}

/// What one request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode {
    /// Stores local bytes in the peer's memory.
    Write,
    /// The same, and tells the peer's process a number.
    WriteImm(u32),
    /// Fetches bytes of the peer's memory.
    Read,
    /// Sends local bytes to one of the peer's receives, with a number.
    SendImm(u32),
    /// Adds to a word of the peer's; the old value comes into local memory.
    FetchAdd(u64),
    /// Stores `new` in a word of the peer's if it is `expected`; the old value comes into local
    /// memory.
    CompareSwap {
        /// What the word must be.
        expected: u64,
        /// What is stored then.
        new: u64,
    },
}

/// One request.
#[derive(Clone, Copy, Debug)]
pub struct WorkRequest {
    /// What is done.
    pub act: Opcode,
    /// Its number in the queue, told by its completion.
    pub number: u64,
    /// Local memory.
    pub local: usize,
    /// Bytes.
    pub len: u32,
    /// Key of the local memory; not asked for if it is copied.
    pub lkey: u32,
    /// The peer's memory.
    pub remote: u64,
    /// Its key.
    pub rkey: u32,
    /// A completion is told.
    pub signalled: bool,
    /// The local bytes are copied by the call.
    pub inline: bool,
    /// It waits for the reads and atomics before it.
    pub fence: bool,
}

/// A run of local memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocalSegment {
    /// Its first byte.
    pub at: usize,
    /// Bytes.
    pub len: u32,
}

/// What has come to an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// Requests of a queue up to this number are complete.
    Success(Qp, u64),
    /// A receive has been filled with so many bytes and this number.
    Received {
        /// Which queue has brought it.
        queue: Qp,
        /// The receive.
        receive: u32,
        /// Bytes.
        len: u32,
        /// What the peer has said.
        number: u32,
        /// It came with a write: the receive's memory was not touched.
        bare: bool,
    },
    /// A request has failed, and with it the queue. `code` is for [`Nic::explain`].
    Error(Qp, u64, u32),
    /// A receive has failed.
    ReceiveError(u32, u32),
}

/// A request was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DeviceError(pub String);

/// Memory was not registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistrationError {
    /// It may be when less is.
    #[error("{0}")]
    OutOfMemory(String),
    /// It cannot be.
    #[error("{0}")]
    Refused(String),
}

impl From<RegistrationError> for DeviceError {
    fn from(denied: RegistrationError) -> Self {
        DeviceError(denied.to_string())
    }
}

/// A network interface, as one process sees it.
pub trait Device: Debug + Send {
    /// Sizes and abilities.
    fn limits(&self) -> DeviceLimits;

    /// Where its port is found.
    fn address(&self) -> PortAddress;

    /// For the log: which device and port.
    fn name(&self) -> String;

    /// Registers memory for the interface's use. Its pages stay where they are; or they are brought
    /// in when they are needed, if the interface can do that (`on_demand`), and are those that are
    /// mapped there at that time.
    ///
    /// # Safety
    /// The memory must stay mapped until it is unregistered, since the interface writes to it.
    ///
    /// # Errors
    /// In words.
    unsafe fn register(
        &mut self,
        at: usize,
        len: usize,
        on_demand: bool,
    ) -> Result<MemoryRegion, RegistrationError>;

    /// Ends a registration.
    fn unregister(&mut self, id: u64);

    /// Makes a queue that is not connected; gives its number as well, by which a peer finds it.
    ///
    /// # Errors
    /// In words.
    fn open(&mut self) -> Result<(Qp, u32), DeviceError>;

    /// Connects it to a queue of a peer.
    ///
    /// # Errors
    /// In words.
    fn connect(&mut self, queue: Qp, number: u32, to: &PortAddress) -> Result<(), DeviceError>;

    /// Ends it; what is under way is given up, without completions. `in_order`: that is nothing, in
    /// either direction, but for an acknowledgement that is about to leave.
    fn close(&mut self, queue: Qp, in_order: bool);

    /// Hands a request over. `parts`: its local memory, if that is more than one run; all have its
    /// key.
    ///
    /// # Safety
    /// Local memory must stay as it is until the request is complete, unless it is copied; memory
    /// that is written to is nobody else's.
    ///
    /// # Errors
    /// In words. Nothing was done.
    unsafe fn post(
        &mut self,
        queue: Qp,
        work: &WorkRequest,
        parts: &[LocalSegment],
    ) -> Result<(), DeviceError>;

    /// Posts memory for what peers send.
    ///
    /// # Safety
    /// It is the interface's until it is told to be filled.
    ///
    /// # Errors
    /// In words.
    unsafe fn receive(
        &mut self,
        receive: u32,
        at: usize,
        len: u32,
        lkey: u32,
    ) -> Result<(), DeviceError>;

    /// What has come to an end since the last call, in order for each queue, a bounded number. True
    /// if that may not be all.
    fn poll(&mut self, into: &mut Vec<Completion>) -> bool;

    /// Whether [`poll`](Self::poll) would find something; true if that is not known.
    fn stirs(&mut self) -> bool {
        true
    }

    /// A code of a failure, in words.
    fn explain(&self, code: u32) -> String;
}
