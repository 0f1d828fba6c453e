//! A device of libibverbs: one port, one protection domain, one completion queue, one shared
//! receive queue.

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::ptr::{NonNull, null_mut};

use super::super::device::{
    AtomicCapability, Completion, Device, DeviceError, DeviceLimits, LocalSegment, MemoryRegion,
    Opcode, PortAddress, Qp, RegistrationError, WorkRequest,
};
use super::ports::{Port, PortSelection, abilities, candidates};
use super::sys::*;

/// Requests that a queue is to hold.
const SEND_QUEUE_DEPTH: u32 = 256;
/// Receives of a process.
const SRQ_DEPTH: u32 = 256;
/// Entries of the completion queue.
const CQ_DEPTH: u32 = 16 * 1024;
/// Bytes that requests are to hold themselves.
const MAX_INLINE: u32 = 188;
/// Runs of memory that a request is to gather: they take as much of it as those bytes.
const MAX_SGE: u32 = 12;
/// Reads and atomics under way on one queue.
const MAX_RD_ATOMIC: c_int = 16;
/// 4.096 us * 2^16, then again, 6 times: a peer that is gone is told within a few seconds, and a
/// busy one is not. (Not 7 times, which soft-RoCE takes for ever.)
const TIMEOUT: u8 = 16;
const RETRIES: u8 = 6;
/// Without end: the peer's process has no receive posted, and will have.
const RNR_RETRIES: u8 = 7;
/// Code of 0.64 ms: after so long it is tried again.
const RNR_TIMER: u8 = 12;
/// Completions taken at a time.
const POLL_BATCH: usize = 32;

/// A queue pair.
#[derive(Debug)]
struct QueuePair_ {
    qp: NonNull<ibv_qp>,
}

/// A device's port.
#[derive(Debug)]
pub struct IbvDevice {
    library: &'static Library,
    context: NonNull<ibv_context>,
    pd: NonNull<ibv_pd>,
    cq: NonNull<ibv_cq>,
    srq: NonNull<ibv_srq>,
    name: String,
    port: u8,
    gid_index: u8,
    /// The place of its partition key.
    partition: u16,
    /// Peers are reached by their global addresses alone.
    global: bool,
    limits: DeviceLimits,
    /// It has on-demand paging for all that may be done with memory.
    on_demand: bool,
    address: PortAddress,
    pairs: Vec<Option<QueuePair_>>,
    /// Queue pairs by their numbers, those in use.
    numbers: hashbrown::HashMap<u32, u32>,
    /// Completions that were taken out and not told.
    taken: Vec<ibv_wc>,
    /// Its completion queue has failed.
    is_dead: bool,
}

impl QueuePair_ {
    /// By which peers find it.
    fn number(&self) -> u32 {
        // SAFETY: a live queue pair, whose first members are public.
        unsafe { (*self.qp.as_ptr()).qp_num }
    }
}

// SAFETY: the library's objects may be used in any thread; calls are made by one at a time.
unsafe impl Send for IbvDevice {}

pub(super) fn failure(what: &str) -> DeviceError {
    DeviceError(format!("{what}: {}", io::Error::last_os_error()))
}

/// An error number that a call has given back.
pub(super) fn error(what: &str, code: c_int) -> DeviceError {
    DeviceError(format!("{what}: {}", io::Error::from_raw_os_error(code.abs())))
}

impl IbvDevice {
    /// Opens the device and port that are wanted, else the best that there are (`ports`).
    ///
    /// # Errors
    /// Why there is none, in words.
    pub fn open(wanted: &PortSelection<'_>) -> Result<Self, DeviceError> {
        let library = Library::get().map_err(DeviceError)?;
        // Older kernels would give a child the pages that the interface uses. (Later ones need
        // nothing, and the library, where it does not know that, takes those pages from the child,
        // with whatever else is on them.)
        if kernel() < (5, 12) {
            // SAFETY: it may be called at any time.
            let code = unsafe { (library.ibv_fork_init)() };
            if code != 0 {
                log::info!(
                    "verbs: a child process that is forked may disturb this one: {}",
                    error("ibv_fork_init", code)
                );
            }
        }
        let mut count = 0;
        // SAFETY: the list is ended below; devices that were opened stay.
        let schedule = unsafe { (library.ibv_get_device_list)(&raw mut count) };
        if schedule.is_null() {
            return Err(failure("no schedule of RDMA devices"));
        }
        // SAFETY: the list has `count` entries.
        let (candidates, mut reasons) =
            unsafe { candidates(library, schedule, usize::try_from(count).unwrap_or(0), wanted) };
        let mut found = None;
        for (device, name, port) in candidates {
            match Self::open_device(library, device, &name, &port) {
                Ok(device) => {
                    found = Some(device);
                    break;
                }
                Err(DeviceError(reason)) => reasons.push(format!("{name}: {reason}")),
            }
        }
        // SAFETY: made above.
        unsafe { (library.ibv_free_device_list)(schedule) };
        found.ok_or_else(|| match (wanted.device, reasons.is_empty()) {
            (_, false) => DeviceError(reasons.join("; ")),
            (Some(name), true) => DeviceError(format!("there is no RDMA device {name}")),
            (None, true) => DeviceError("there is no RDMA device".into()),
        })
    }

    fn open_device(
        library: &'static Library,
        device: *mut ibv_device,
        name: &str,
        port: &Port,
    ) -> Result<Self, DeviceError> {
        // SAFETY: a device of the list; what is made here is ended in the reverse order if a later
        // step fails.
        unsafe {
            let context = NonNull::new((library.ibv_open_device)(device))
                .ok_or_else(|| failure("ibv_open_device"))?;
            Self::with_context(library, context, name, port).inspect_err(|_| {
                (library.ibv_close_device)(context.as_ptr());
            })
        }
    }

    /// # Safety
    /// The context is open, and nobody else's.
    unsafe fn with_context(
        library: &'static Library,
        context: NonNull<ibv_context>,
        name: &str,
        port: &Port,
    ) -> Result<Self, DeviceError> {
        // SAFETY: the caller's promise.
        let attributes = unsafe { abilities(library, context) }?;
        let receives = SRQ_DEPTH.min(attributes.max_srq_wr.max(1) as u32);
        let entries = CQ_DEPTH.min(attributes.max_cqe.max(1) as u32);
        // SAFETY: live objects of the library, ended in the reverse order if a later step fails.
        let (pd, cq, srq) = unsafe {
            let pd = NonNull::new((library.ibv_alloc_pd)(context.as_ptr()))
                .ok_or_else(|| failure("ibv_alloc_pd"))?;
            let end_pd = || (library.ibv_dealloc_pd)(pd.as_ptr());
            let cq = (library.ibv_create_cq)(
                context.as_ptr(),
                entries as c_int,
                null_mut(),
                null_mut(),
                0,
            );
            let Some(cq) = NonNull::new(cq) else {
                let reason = failure("ibv_create_cq");
                end_pd();
                return Err(reason);
            };
            let mut wanted = ibv_srq_init_attr {
                srq_context: null_mut(),
                max_wr: receives,
                max_sge: 1,
                srq_limit: 0,
            };
            let Some(srq) = NonNull::new((library.ibv_create_srq)(pd.as_ptr(), &raw mut wanted))
            else {
                let reason = failure("ibv_create_srq");
                (library.ibv_destroy_cq)(cq.as_ptr());
                end_pd();
                return Err(reason);
            };
            (pd, cq, srq)
        };
        let limits = DeviceLimits {
            queue: SEND_QUEUE_DEPTH.min(attributes.max_qp_wr.max(1) as u32),
            completions: entries,
            inline: MAX_INLINE,
            message: u64::from(port.attributes.max_msg_sz).clamp(1 << 16, 1 << 30),
            receives,
            queues: attributes.max_qp.max(1) as u32,
            parts: [attributes.max_sge, attributes.max_sge_rd]
                .map(|parts| MAX_SGE.min(parts.max(1) as u32)),
            atomics: match attributes.atomic_cap {
                IBV_ATOMIC_NONE => AtomicCapability::None,
                IBV_ATOMIC_GLOB => AtomicCapability::Global,
                _ => AtomicCapability::Hca,
            },
            // When soft-RoCE (Linux 6.1) sends a request once more it takes reads behind it for
            // reads before it, and waits for ever.
            fences: attributes.vendor_id != VENDOR_SOFT_ROCE,
        };
        // SAFETY: an open context.
        let on_demand = unsafe { odp_caps(context) }.is_some_and(|caps| {
            let atomics =
                if attributes.atomic_cap == IBV_ATOMIC_NONE { 0 } else { IBV_ODP_SUPPORT_ATOMIC };
            let all = IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ | atomics;
            caps.general_caps & IBV_ODP_SUPPORT != 0 && caps.rc_odp_caps & all == all
        });
        let served =
            attributes.max_qp_rd_atom.min(attributes.max_qp_init_rd_atom).clamp(1, MAX_RD_ATOMIC);
        let address = PortAddress {
            lid: port.attributes.lid,
            mtu: port.attributes.active_mtu as u8,
            depth: served as u8,
            gid: port.gid.raw,
        };
        let mut device = IbvDevice {
            library,
            context,
            pd,
            cq,
            srq,
            name: name.to_owned(),
            port: port.number,
            gid_index: port.gid_index,
            partition: port.partition,
            // Virtual functions of InfiniBand cards may share their port's local address.
            global: port.is_ethernet() || port.attributes.flags & IBV_QPF_GRH_REQUIRED != 0,
            limits,
            on_demand,
            address,
            pairs: Vec::new(),
            numbers: hashbrown::HashMap::new(),
            taken: Vec::new(),
            is_dead: false,
        };
        device.fit();
        Ok(device)
    }

    /// Bytes and parts that requests hold: as many as a queue pair can be made with.
    fn fit(&mut self) {
        let parts = self.limits.parts;
        for (inline, most) in [
            (MAX_INLINE, MAX_SGE),
            (MAX_INLINE, 4),
            (MAX_INLINE, 1),
            (96, 4),
            (96, 1),
            (64, 1),
            (32, 1),
            (0, 1),
        ] {
            self.limits.parts = parts.map(|parts| parts.min(most));
            self.limits.inline = inline;
            if let Ok(pair) = self.make_pair(inline) {
                // SAFETY: just made.
                unsafe { (self.library.ibv_destroy_qp)(pair.as_ptr()) };
                return;
            }
        }
    }

    fn make_pair(&self, inline: u32) -> Result<NonNull<ibv_qp>, DeviceError> {
        let mut wanted = ibv_qp_init_attr {
            qp_context: null_mut(),
            send_cq: self.cq.as_ptr(),
            recv_cq: self.cq.as_ptr(),
            srq: self.srq.as_ptr(),
            cap: ibv_qp_cap {
                max_send_wr: self.limits.queue,
                max_recv_wr: 0,
                max_send_sge: self.limits.parts[0].max(self.limits.parts[1]),
                max_recv_sge: 0,
                max_inline_data: inline,
            },
            qp_type: IBV_QPT_RC,
            sq_sig_all: 0,
        };
        // SAFETY: live objects.
        NonNull::new(unsafe { (self.library.ibv_create_qp)(self.pd.as_ptr(), &raw mut wanted) })
            .ok_or_else(|| {
                let mut reason = failure("ibv_create_qp");
                if io::Error::last_os_error().raw_os_error() == Some(libc::ENOMEM) {
                    reason.0.push_str(" (the limit of locked memory, ulimit -l, may be too low)");
                }
                reason
            })
    }

    fn modify(
        &self,
        pair: NonNull<ibv_qp>,
        what: &str,
        change: &mut ibv_qp_attr,
        mask: u32,
    ) -> Result<(), DeviceError> {
        // SAFETY: a queue pair of this device.
        match unsafe {
            (self.library.ibv_modify_qp)(pair.as_ptr(), &raw mut *change, mask as c_int)
        } {
            0 => Ok(()),
            code => Err(error(what, code)),
        }
    }

    /// Takes out completions. False if there are none.
    fn take_batch(&mut self) -> bool {
        self.taken.reserve(POLL_BATCH);
        let free = self.taken.spare_capacity_mut().as_mut_ptr().cast();
        // SAFETY: room for so many.
        let count = unsafe {
            ((*self.context.as_ptr()).ops.poll_cq)(self.cq.as_ptr(), POLL_BATCH as c_int, free)
        };
        if let Ok(count) = usize::try_from(count) {
            // SAFETY: so many were written behind those that were there.
            unsafe { self.taken.set_len(self.taken.len() + count) };
            return count > 0;
        }
        // Nothing will be told any more, of any queue.
        if !std::mem::replace(&mut self.is_dead, true) {
            log::error!("{}", error("ibv_poll_cq", count));
            let failed = |number: &u32| ibv_wc {
                qp_num: *number,
                status: IBV_WC_FATAL_ERR,
                ..ibv_wc::default()
            };
            let mut numbers: Vec<u32> =
                self.pairs.iter().flatten().map(|pair| pair.number()).collect();
            numbers.sort_unstable();
            self.taken.extend(numbers.iter().map(failed));
            return true;
        }
        false
    }

    fn pair(&self, queue: Qp) -> NonNull<ibv_qp> {
        self.pairs[queue.0 as usize].as_ref().expect("a queue that is open").qp
    }
}

/// The first two numbers of the kernel's version; 0 where they are not known.
fn kernel() -> (u32, u32) {
    // SAFETY: texts, which are written by the call.
    let mut names: libc::utsname = unsafe { std::mem::zeroed() };
    // SAFETY: room for the answer.
    if unsafe { libc::uname(&raw mut names) } != 0 {
        return (0, 0);
    }
    // SAFETY: the call has ended it with a zero.
    version(&unsafe { words(names.release.as_ptr()) })
}

fn version(release: &str) -> (u32, u32) {
    let mut numbers = release
        .split(|other: char| !other.is_ascii_digit())
        .map(|digits| digits.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
#[test]
fn the_version_of_a_kernel_is_two_numbers() {
    assert_eq!(version("6.1.0-48-amd64"), (6, 1));
    assert_eq!(version("5.12"), (5, 12));
    assert_eq!(version("4.18.0-305.el8.x86_64"), (4, 18));
    assert_eq!(version("unknown"), (0, 0));
}

/// Attributes without content.
fn blank() -> ibv_qp_attr {
    // SAFETY: numbers, any of which are valid.
    unsafe { std::mem::zeroed() }
}

impl Device for IbvDevice {
    fn limits(&self) -> DeviceLimits {
        self.limits
    }

    fn address(&self) -> PortAddress {
        self.address
    }

    fn name(&self) -> String {
        let paging = if self.on_demand { ", on-demand paging" } else { "" };
        format!("{} port {} (GID index {}{paging})", self.name, self.port, self.gid_index)
    }

    unsafe fn register(
        &mut self,
        at: usize,
        len: usize,
        on_demand: bool,
    ) -> Result<MemoryRegion, RegistrationError> {
        if on_demand && !self.on_demand {
            return Err(RegistrationError::Refused("the device has no on-demand paging".into()));
        }
        let kind = if on_demand { IBV_ACCESS_ON_DEMAND } else { 0 };
        let access = IBV_ACCESS_LOCAL_WRITE
            | IBV_ACCESS_REMOTE_WRITE
            | IBV_ACCESS_REMOTE_READ
            | IBV_ACCESS_REMOTE_ATOMIC
            | kind;
        // SAFETY: the caller's promise.
        let region = unsafe {
            (self.library.ibv_reg_mr)(self.pd.as_ptr(), at as *mut c_void, len, access as c_int)
        };
        let Some(region) = NonNull::new(region) else {
            let error = io::Error::last_os_error();
            return Err(match error.raw_os_error() {
                Some(libc::ENOMEM) => RegistrationError::OutOfMemory(format!(
                    "ibv_reg_mr: {error}, {len} bytes (see ulimit -l)"
                )),
                _ => RegistrationError::Refused(format!("ibv_reg_mr: {error}, {len} bytes")),
            });
        };
        // SAFETY: just made; its first members are public.
        let (lkey, rkey) = unsafe { ((*region.as_ptr()).lkey, (*region.as_ptr()).rkey) };
        Ok(MemoryRegion { id: region.as_ptr() as u64, lkey, rkey })
    }

    fn unregister(&mut self, id: u64) {
        // SAFETY: what `register` has given.
        let code = unsafe { (self.library.ibv_dereg_mr)(id as *mut ibv_mr) };
        if code != 0 {
            log::warn!("{}", error("ibv_dereg_mr", code));
        }
    }

    fn open(&mut self) -> Result<(Qp, u32), DeviceError> {
        if self.is_dead {
            return Err(DeviceError("the device's completion queue has failed".into()));
        }
        let qp = self.make_pair(self.limits.inline)?;
        let mut change = blank();
        change.qp_state = IBV_QPS_INIT;
        change.port_num = self.port;
        change.pkey_index = self.partition;
        change.qp_access_flags =
            IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
        let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
        if let Err(reason) = self.modify(qp, "a queue pair cannot be prepared", &mut change, mask) {
            // SAFETY: just made.
            unsafe { (self.library.ibv_destroy_qp)(qp.as_ptr()) };
            return Err(reason);
        }
        // SAFETY: its first members are public.
        let number = unsafe { (*qp.as_ptr()).qp_num };
        let free = self.pairs.iter().position(Option::is_none).unwrap_or(self.pairs.len());
        if free == self.pairs.len() {
            self.pairs.push(None);
        }
        self.pairs[free] = Some(QueuePair_ { qp });
        self.numbers.insert(number, free as u32);
        Ok((Qp(free as u32), number))
    }

    fn connect(&mut self, queue: Qp, number: u32, to: &PortAddress) -> Result<(), DeviceError> {
        let qp = self.pair(queue);
        let mut change = blank();
        change.qp_state = IBV_QPS_RTR;
        change.path_mtu = Enum::from(self.address.mtu.min(to.mtu));
        change.dest_qp_num = number;
        change.rq_psn = 0;
        change.max_dest_rd_atomic = self.address.depth;
        change.min_rnr_timer = RNR_TIMER;
        change.ah_attr.dlid = to.lid;
        change.ah_attr.port_num = self.port;
        // Local addresses are those of one subnet, of which global ones have the name.
        let elsewhere = to.gid[..8] != self.address.gid[..8] && to.gid != [0; 16];
        if self.global || to.lid == 0 || elsewhere {
            change.ah_attr.is_global = 1;
            change.ah_attr.grh.dgid = ibv_gid { raw: to.gid };
            change.ah_attr.grh.sgid_index = self.gid_index;
            change.ah_attr.grh.hop_limit = 64;
        }
        let mask = IBV_QP_STATE
            | IBV_QP_AV
            | IBV_QP_PATH_MTU
            | IBV_QP_DEST_QPN
            | IBV_QP_RQ_PSN
            | IBV_QP_MAX_DEST_RD_ATOMIC
            | IBV_QP_MIN_RNR_TIMER;
        self.modify(qp, "a queue pair cannot be made ready to receive", &mut change, mask)?;
        let mut change = blank();
        change.qp_state = IBV_QPS_RTS;
        change.timeout = TIMEOUT;
        change.retry_cnt = RETRIES;
        change.rnr_retry = RNR_RETRIES;
        change.sq_psn = 0;
        change.max_rd_atomic = self.address.depth.min(to.depth);
        let mask = IBV_QP_STATE
            | IBV_QP_TIMEOUT
            | IBV_QP_RETRY_CNT
            | IBV_QP_RNR_RETRY
            | IBV_QP_SQ_PSN
            | IBV_QP_MAX_QP_RD_ATOMIC;
        self.modify(qp, "a queue pair cannot be made ready to send", &mut change, mask)
    }

    fn close(&mut self, queue: Qp, in_order: bool) {
        let Some(pair) = self.pairs[queue.0 as usize].take() else { return };
        let (qp, number) = (pair.qp, pair.number());
        // Receives that it holds come back by their completions, but not those that it takes with
        // it: first all ends, and is taken out. In order, it holds none, and an error would only
        // keep the last acknowledgement from leaving: soft-RoCE has a receive's completion before
        // it.
        if !in_order {
            let mut change = blank();
            change.qp_state = IBV_QPS_ERR;
            if let Err(DeviceError(reason)) =
                self.modify(qp, "a queue pair cannot be ended", &mut change, IBV_QP_STATE)
            {
                log::debug!("{reason}");
            }
        }
        while self.take_batch() {}
        // A later queue may have its number.
        self.taken.retain_mut(|wc| {
            if wc.qp_num == number {
                wc.status = IBV_WC_WR_FLUSH_ERR;
            }
            wc.qp_num != number || wc.wr_id & super::super::context::RECEIVE != 0
        });
        self.numbers.remove(&number);
        // SAFETY: a live queue pair, used by nobody after this.
        unsafe { (self.library.ibv_destroy_qp)(qp.as_ptr()) };
    }

    unsafe fn post(
        &mut self,
        queue: Qp,
        work: &WorkRequest,
        parts: &[LocalSegment],
    ) -> Result<(), DeviceError> {
        let qp = self.pair(queue);
        let mut place = ibv_sge { addr: work.local as u64, length: work.len, lkey: work.lkey };
        let mut places = [const { MaybeUninit::uninit() }; MAX_SGE as usize];
        let (schedule, count) = if parts.is_empty() {
            (&raw mut place, usize::from(work.len > 0))
        } else {
            for (place, part) in places.iter_mut().zip(parts) {
                place.write(ibv_sge { addr: part.at as u64, length: part.len, lkey: work.lkey });
            }
            (places.as_mut_ptr().cast(), parts.len().min(places.len()))
        };
        let rdma = ibv_wr { rdma: ibv_wr_rdma { remote_addr: work.remote, rkey: work.rkey } };
        let atomic = |compare_add, swap| ibv_wr {
            atomic: ibv_wr_atomic { remote_addr: work.remote, compare_add, swap, rkey: work.rkey },
        };
        let (opcode, imm, wr) = match work.act {
            Opcode::Write => (IBV_WR_RDMA_WRITE, 0, rdma),
            Opcode::WriteImm(number) => (IBV_WR_RDMA_WRITE_WITH_IMM, number, rdma),
            Opcode::Read => (IBV_WR_RDMA_READ, 0, rdma),
            Opcode::SendImm(number) => (IBV_WR_SEND_WITH_IMM, number, atomic(0, 0)),
            Opcode::FetchAdd(delta) => (IBV_WR_ATOMIC_FETCH_AND_ADD, 0, atomic(delta, 0)),
            Opcode::CompareSwap { expected, new } => {
                (IBV_WR_ATOMIC_CMP_AND_SWP, 0, atomic(expected, new))
            }
        };
        let flag = |on: bool, flag: u32| if on { flag } else { 0 };
        let mut request = ibv_send_wr {
            wr_id: work.number,
            next: null_mut(),
            sg_list: schedule,
            num_sge: count as c_int,
            opcode,
            send_flags: flag(work.signalled, IBV_SEND_SIGNALED)
                | flag(work.inline && work.len > 0, IBV_SEND_INLINE)
                | flag(work.fence, IBV_SEND_FENCE),
            imm_data: imm.to_be(),
            wr,
            others: [0; 7],
        };
        let mut bad = null_mut();
        // SAFETY: the caller's promise; the request and its list are read by the call alone.
        let code = unsafe {
            ((*self.context.as_ptr()).ops.post_send)(qp.as_ptr(), &raw mut request, &raw mut bad)
        };
        if code == 0 { Ok(()) } else { Err(error("ibv_post_send", code)) }
    }

    unsafe fn receive(
        &mut self,
        receive: u32,
        at: usize,
        len: u32,
        lkey: u32,
    ) -> Result<(), DeviceError> {
        let mut place = ibv_sge { addr: at as u64, length: len, lkey };
        let mut request = ibv_recv_wr {
            wr_id: super::super::context::RECEIVE | u64::from(receive),
            next: null_mut(),
            sg_list: &raw mut place,
            num_sge: 1,
        };
        let mut bad = null_mut();
        // SAFETY: the caller's promise.
        let code = unsafe {
            ((*self.context.as_ptr()).ops.post_srq_recv)(
                self.srq.as_ptr(),
                &raw mut request,
                &raw mut bad,
            )
        };
        if code == 0 { Ok(()) } else { Err(error("ibv_post_srq_recv", code)) }
    }

    fn poll(&mut self, into: &mut Vec<Completion>) -> bool {
        // What was taken before is not all that there is now.
        let more = !self.taken.is_empty() || self.take_batch() && self.taken.len() >= POLL_BATCH;
        for wc in self.taken.drain(..) {
            // Of a queue that was closed.
            let queue = self.numbers.get(&wc.qp_num).map(|index| Qp(*index));
            // After an error the kind of the request is not told: numbers of receives have a bit of
            // their own.
            let receive = wc.wr_id & super::super::context::RECEIVE != 0;
            into.push(match (queue, receive) {
                (_, true) if wc.status != IBV_WC_SUCCESS => {
                    Completion::ReceiveError(wc.wr_id as u32, wc.status)
                }
                (None, true) => Completion::ReceiveError(wc.wr_id as u32, IBV_WC_SUCCESS),
                (Some(queue), true) => Completion::Received {
                    queue,
                    receive: wc.wr_id as u32,
                    len: wc.byte_len,
                    number: u32::from_be(wc.imm_data),
                    bare: wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM,
                },
                (None, false) => continue,
                (Some(queue), false) if wc.status == IBV_WC_SUCCESS => {
                    Completion::Success(queue, wc.wr_id)
                }
                (Some(queue), false) => Completion::Error(queue, wc.wr_id, wc.status),
            });
        }
        more
    }

    fn stirs(&mut self) -> bool {
        !self.taken.is_empty() || self.take_batch()
    }

    fn explain(&self, code: u32) -> String {
        // SAFETY: the function knows all codes.
        unsafe { words((self.library.ibv_wc_status_str)(code)) }
    }
}

impl Drop for IbvDevice {
    fn drop(&mut self) {
        for queue in 0..self.pairs.len() as u32 {
            self.close(Qp(queue), false);
        }
        // SAFETY: live objects, in the reverse order of their making. What fails stays until the
        // process ends.
        unsafe {
            (self.library.ibv_destroy_srq)(self.srq.as_ptr());
            (self.library.ibv_destroy_cq)(self.cq.as_ptr());
            (self.library.ibv_dealloc_pd)(self.pd.as_ptr());
            (self.library.ibv_close_device)(self.context.as_ptr());
        }
    }
}
