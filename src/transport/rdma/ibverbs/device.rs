//! A port of an RDMA device: one protection domain, one completion queue, one shared receive queue.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr::null_mut;

use hashbrown::HashMap;

use super::super::device::{
    AtomicCapability, Completion, Device, DeviceError, DeviceEvent, DeviceLimits, LocalSegment,
    MemoryRegion, Opcode, PortAddress, Qp, RegistrationError, WorkRequest,
};
use super::kept::{Kept, MOST_KEPT};
use super::objects::{
    CompletionQueue, DeviceList, ProtectionDomain, QueuePair, Registration, SharedReceiveQueue,
    error,
};
use super::ports::{Port, PortSelection, candidates};
use super::sys::*;

/// Work requests that a send queue holds.
const SEND_QUEUE_DEPTH: u32 = 256;
/// Receives that the shared receive queue holds.
const SRQ_DEPTH: u32 = 256;
const CQ_DEPTH: u32 = 16 * 1024;
/// Bytes of inline data.
pub(super) const MAX_INLINE: u32 = 188;
/// Local segments of a request. Their list takes as much room in a send queue as the inline data.
const MAX_SGE: u32 = 12;
/// Outstanding reads and atomics of a queue pair.
const MAX_RD_ATOMIC: c_int = 16;
/// 4.096 us * 2^16 = 0.27 s, retried 6 times. This detects a dead peer within two seconds and does
/// not mistake a busy peer for a dead one. (Soft-RoCE takes 7 retries as infinite.)
const TIMEOUT: u8 = 16;
const RETRIES: u8 = 6;
/// Infinite: a peer that has no receive posted will post one.
const RNR_RETRIES: u8 = 7;
/// Code of 0.64 ms: the sender's pause after "receiver not ready".
const RNR_TIMER: u8 = 12;
/// Completions that one `ibv_poll_cq` takes.
const POLL_BATCH: usize = 32;
/// Marks the `wr_id` of a receive, because a failed completion has no valid opcode.
const RECEIVE: u64 = 1 << 63;

/// A port of an RDMA device.
#[derive(Debug)]
pub struct IbvDevice {
    pub(super) qps: Vec<Option<QueuePair>>,
    registrations: HashMap<u64, Registration>,
    srq: SharedReceiveQueue,
    cq: CompletionQueue,
    pd: ProtectionDomain,
    pub(super) library: &'static Library,
    pub(super) port: Port,
    /// Packets to peers need a global route header.
    global: bool,
    limits: DeviceLimits,
    on_demand_paging: bool,
    pub(super) address: PortAddress,
    /// Handles of open queue pairs by number.
    by_number: HashMap<u32, Qp>,
    /// Where `ibv_poll_cq` stores completions.
    batch: Box<[ibv_wc]>,
    /// Why the device has failed.
    pub(super) failed: Option<String>,
    /// Requests that are posted with the next one.
    kept: Kept,
}

impl IbvDevice {
    /// Opens the selected port, or the best usable one (see `ports`).
    ///
    /// # Errors
    /// libibverbs cannot be loaded, or no port is usable.
    pub fn open(wanted: &PortSelection<'_>) -> Result<Self, DeviceError> {
        let library = Library::get()?;
        // Since Linux 5.12, a fork leaves registered pages to the parent. `ibv_fork_init` would
        // take whole pages away from the child, so older kernels alone need it.
        if kernel_version() < (5, 12)
            && let Err(reason) = library.fork_init()
        {
            log::info!("verbs: registered memory is not protected from forks: {reason}");
        }
        let list = DeviceList::get(library)?;
        let (candidates, mut reasons) = candidates(library, &list, wanted);
        for port in candidates {
            let name = port.name.clone();
            match Self::create(library, port) {
                Ok(device) => return Ok(device),
                Err(reason) => reasons.push((name, reason)),
            }
        }
        Err(match reasons.is_empty() {
            false => DeviceError::NoUsableDevice(reasons),
            true => DeviceError::NoDevice(wanted.device.unwrap_or_default().to_owned()),
        })
    }

    fn create(library: &'static Library, port: Port) -> Result<Self, DeviceError> {
        let device = &port.device;
        let attributes = library.query_device(device)?;
        library.unblock_events(device)?;
        let receive_depth = SRQ_DEPTH.min(attributes.max_srq_wr.max(1) as u32);
        let cq_depth = CQ_DEPTH.min(attributes.max_cqe.max(1) as u32);
        let pd = library.alloc_pd(device)?;
        let cq = library.create_cq(device, cq_depth)?;
        let srq = library.create_srq(&pd, receive_depth)?;
        let limits = DeviceLimits {
            send_depth: SEND_QUEUE_DEPTH.min(attributes.max_qp_wr.max(1) as u32),
            cq_depth,
            max_inline: MAX_INLINE,
            max_message: u64::from(port.attributes.max_msg_sz).clamp(1 << 16, 1 << 30),
            receive_depth,
            max_qps: attributes.max_qp.max(1) as u32,
            max_sge: [attributes.max_sge, attributes.max_sge_rd]
                .map(|most| MAX_SGE.min(most.max(1) as u32)),
            atomics: match attributes.atomic_cap {
                IBV_ATOMIC_NONE => AtomicCapability::None,
                IBV_ATOMIC_GLOB => AtomicCapability::Global,
                _ => AtomicCapability::Hca,
            },
            // When soft-RoCE (Linux 6.1) retransmits a fenced request, it waits for reads behind
            // that request as if they were earlier ones, and so forever.
            fences: attributes.vendor_id != VENDOR_SOFT_ROCE,
        };
        let on_demand_paging = library.query_odp(device).is_some_and(|caps| {
            let atomics = flag(attributes.atomic_cap != IBV_ATOMIC_NONE, IBV_ODP_SUPPORT_ATOMIC);
            let all = IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ | atomics;
            caps.general_caps & IBV_ODP_SUPPORT != 0 && caps.rc_odp_caps & all == all
        });
        let depth = attributes.max_qp_rd_atom.min(attributes.max_qp_init_rd_atom);
        let mut device = IbvDevice {
            qps: Vec::new(),
            registrations: HashMap::new(),
            srq,
            cq,
            pd,
            library,
            // Virtual functions of InfiniBand devices may share their port's LID.
            global: port.is_ethernet() || port.attributes.flags & IBV_QPF_GRH_REQUIRED != 0,
            limits,
            on_demand_paging,
            address: port.address(depth.clamp(1, MAX_RD_ATOMIC) as u8),
            port,
            by_number: HashMap::new(),
            batch: vec![ibv_wc::default(); POLL_BATCH].into(),
            failed: None,
            kept: Kept::new(),
        };
        device.fit_limits();
        Ok(device)
    }

    /// Lowers `max_inline` and `max_sge` until a queue pair can be created.
    fn fit_limits(&mut self) {
        let (most, max_sge) = (MAX_INLINE, self.limits.max_sge);
        for (inline, sge) in
            [(most, MAX_SGE), (most, 4), (most, 1), (96, 4), (96, 1), (64, 1), (32, 1), (0, 1)]
        {
            self.limits.max_sge = max_sge.map(|limit| limit.min(sge));
            self.limits.max_inline = inline;
            if self.new_qp().is_ok() {
                return;
            }
        }
    }

    fn new_qp(&self) -> Result<QueuePair, DeviceError> {
        let cap = ibv_qp_cap {
            max_send_wr: self.limits.send_depth,
            max_recv_wr: 0,
            max_send_sge: self.limits.max_sge[0].max(self.limits.max_sge[1]),
            max_recv_sge: 0,
            max_inline_data: self.limits.max_inline,
        };
        self.library.create_qp(&self.pd, &self.cq, &self.srq, cap)
    }

    fn qp(&self, qp: Qp) -> &QueuePair {
        self.qps[qp.0 as usize].as_ref().expect("an open queue pair")
    }

    /// Polls the completion queue once. Returns the number of entries that it gave.
    fn poll_batch(&mut self, completions: &mut VecDeque<Completion>) -> usize {
        let count = self.cq.poll(&mut self.batch);
        let Ok(count) = usize::try_from(count) else {
            // No queue pair will get a completion any more, so all of them fail.
            if self.failed.is_none() {
                let error = error("ibv_poll_cq", count);
                log::error!("verbs: {error}");
                self.failed = Some(error.to_string());
                let open = (0..self.qps.len()).filter(|index| self.qps[*index].is_some());
                completions.extend(
                    open.map(|index| Completion::Error(Qp(index as u32), 0, IBV_WC_FATAL_ERR)),
                );
            }
            return 0;
        };
        for wc in &self.batch[..count] {
            // `None` if the queue pair was destroyed.
            let qp = self.by_number.get(&wc.qp_num).copied();
            let receive = wc.wr_id & RECEIVE != 0;
            completions.push_back(match (qp, receive) {
                (Some(qp), true) if wc.status == IBV_WC_SUCCESS => Completion::Received {
                    qp,
                    receive: wc.wr_id as u32,
                    len: wc.byte_len,
                    imm: u32::from_be(wc.imm_data),
                    from_write: wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM,
                },
                (_, true) => Completion::ReceiveReturned(wc.wr_id as u32),
                (None, false) => continue,
                (Some(qp), false) if wc.status == IBV_WC_SUCCESS => {
                    Completion::Success(qp, wc.wr_id)
                }
                (Some(qp), false) => Completion::Error(qp, wc.wr_id, wc.status),
            });
        }
        count
    }

    /// Posts the kept requests, and a last one behind them.
    ///
    /// # Safety
    /// As [`Device::post_send`], for all.
    unsafe fn post_list(
        &mut self,
        qp: Qp,
        last: Option<(&WorkRequest, &[LocalSegment])>,
    ) -> Result<(), DeviceError> {
        let mut several = [const { MaybeUninit::<ibv_sge>::uninit() }; MAX_SGE as usize];
        let mut single = ibv_sge::default();
        let mut second = last.map(|(request, segments)| {
            let lkey = request.lkey;
            for (entry, segment) in several.iter_mut().zip(segments) {
                entry.write(ibv_sge { addr: segment.addr as u64, length: segment.len, lkey });
            }
            let (list, count) = if segments.is_empty() {
                single = whole(request, request.local);
                (&raw mut single, usize::from(request.len > 0))
            } else {
                (several.as_mut_ptr().cast(), segments.len().min(several.len()))
            };
            send_request(request, list, count)
        });
        let mut next = second.as_mut().map_or(null_mut(), std::ptr::from_mut);
        let mut lists = [ibv_sge::default(); MOST_KEPT];
        let mut before = [const { MaybeUninit::<ibv_send_wr>::uninit() }; MOST_KEPT];
        let kept = self.kept.requests().rev().zip(&mut lists).zip(&mut before);
        for (((request, local), list), wr) in kept {
            *list = whole(request, local);
            let made = send_request(request, list, usize::from(request.len > 0));
            next = wr.write(ibv_send_wr { next, ..made });
        }
        // SAFETY: `next` is null or one of the requests above.
        let Some(first) = (unsafe { next.as_mut() }) else { return Ok(()) };
        // SAFETY: the local memory stays valid until the requests complete (contract of this
        // function); all lists outlive the call, and `count` entries are initialised.
        let code = unsafe { self.qp(qp).post_send(first) };
        self.kept.clear();
        if code == 0 { Ok(()) } else { Err(error("ibv_post_send", code)) }
    }

    /// Posts the kept requests, if there are any. Fails their queue pair if the device refuses.
    fn post_kept(&mut self, completions: &mut VecDeque<Completion>) {
        let Some((qp, last)) = self.kept.queue() else { return };
        // SAFETY: the memory of kept requests is valid (contract of `Device::post_send`).
        if let Err(reason) = unsafe { self.post_list(qp, None) } {
            log::error!("verbs: {reason}");
            completions.push_back(Completion::Error(qp, last, IBV_WC_FATAL_ERR));
        }
    }
}

/// The local memory of a request, which is one segment.
fn whole(request: &WorkRequest, local: usize) -> ibv_sge {
    ibv_sge { addr: local as u64, length: request.len, lkey: request.lkey }
}

/// A request for libibverbs, whose local memory is `count` entries of `list`.
fn send_request(request: &WorkRequest, list: *mut ibv_sge, count: usize) -> ibv_send_wr {
    let (remote_addr, rkey) = (request.remote, request.rkey);
    let rdma = ibv_wr { rdma: ibv_wr_rdma { remote_addr, rkey } };
    let atomic = |compare_add, swap| ibv_wr {
        atomic: ibv_wr_atomic { remote_addr, compare_add, swap, rkey },
    };
    let (opcode, imm, wr) = match request.opcode {
        Opcode::Write => (IBV_WR_RDMA_WRITE, 0, rdma),
        Opcode::WriteImm(imm) => (IBV_WR_RDMA_WRITE_WITH_IMM, imm, rdma),
        Opcode::Read => (IBV_WR_RDMA_READ, 0, rdma),
        Opcode::SendImm(imm) => (IBV_WR_SEND_WITH_IMM, imm, atomic(0, 0)),
        Opcode::FetchAdd(delta) => (IBV_WR_ATOMIC_FETCH_AND_ADD, 0, atomic(delta, 0)),
        Opcode::CompareSwap { expected, new } => {
            (IBV_WR_ATOMIC_CMP_AND_SWP, 0, atomic(expected, new))
        }
    };
    ibv_send_wr {
        wr_id: request.id,
        next: null_mut(),
        sg_list: list,
        num_sge: count as c_int,
        opcode,
        send_flags: flag(request.signalled, IBV_SEND_SIGNALED)
            | flag(request.inline && request.len > 0, IBV_SEND_INLINE)
            | flag(request.fence, IBV_SEND_FENCE),
        imm_data: imm.to_be(),
        wr,
        others: [0; 7],
    }
}

fn flag(on: bool, flag: u32) -> u32 {
    if on { flag } else { 0 }
}

/// Major and minor version of the kernel; 0 where unknown.
fn kernel_version() -> (u32, u32) {
    parse_version(&std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default())
}

fn parse_version(release: &str) -> (u32, u32) {
    let mut numbers = release
        .split(|other: char| !other.is_ascii_digit())
        .map(|digits| digits.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
#[test]
fn a_kernel_version_is_two_numbers() {
    assert_eq!(parse_version("6.1.0-48-amd64"), (6, 1));
    assert_eq!(parse_version("5.12"), (5, 12));
    assert_eq!(parse_version("4.18.0-305.el8.x86_64"), (4, 18));
    assert_eq!(parse_version("unknown"), (0, 0));
}

impl Device for IbvDevice {
    fn limits(&self) -> DeviceLimits {
        self.limits
    }

    fn address(&self) -> PortAddress {
        self.address
    }

    fn name(&self) -> String {
        let paging = if self.on_demand_paging { ", on-demand paging" } else { "" };
        let Port { name, number, gid_index, .. } = &self.port;
        format!("{name} port {number} (GID index {gid_index}{paging})")
    }

    unsafe fn register(
        &mut self,
        addr: usize,
        len: usize,
        on_demand: bool,
    ) -> Result<MemoryRegion, RegistrationError> {
        if on_demand && !self.on_demand_paging {
            return Err(RegistrationError::NoOnDemandPaging);
        }
        let access = IBV_ACCESS_LOCAL_WRITE
            | IBV_ACCESS_REMOTE_WRITE
            | IBV_ACCESS_REMOTE_READ
            | IBV_ACCESS_REMOTE_ATOMIC
            | flag(on_demand, IBV_ACCESS_ON_DEMAND);
        // SAFETY: the memory stays mapped until `unregister` drops the registration (contract of
        // `Device::register`).
        let region = match unsafe { self.library.reg_mr(&self.pd, addr, len, access) } {
            Ok(region) => region,
            Err(DeviceError::System { errno, .. }) if errno != libc::ENOMEM => {
                return Err(RegistrationError::Refused { bytes: len, errno });
            }
            Err(_) => return Err(RegistrationError::OutOfMemory(len)),
        };
        let (id, (lkey, rkey)) = (region.as_ptr() as u64, region.keys());
        self.registrations.insert(id, region);
        Ok(MemoryRegion { id, lkey, rkey })
    }

    fn unregister(&mut self, id: u64) {
        self.registrations.remove(&id);
    }

    fn create_qp(&mut self) -> Result<(Qp, u32), DeviceError> {
        if let Some(reason) = &self.failed {
            return Err(DeviceError::Failed(reason.clone()));
        }
        let qp = self.new_qp()?;
        let mut change = ibv_qp_attr {
            qp_state: IBV_QPS_INIT,
            port_num: self.port.number,
            pkey_index: self.port.pkey_index,
            qp_access_flags: IBV_ACCESS_REMOTE_WRITE
                | IBV_ACCESS_REMOTE_READ
                | IBV_ACCESS_REMOTE_ATOMIC,
            ..ibv_qp_attr::default()
        };
        let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
        self.library.modify_qp(&qp, "ibv_modify_qp to INIT", &mut change, mask)?;
        let number = qp.number();
        let free = self.qps.iter().position(Option::is_none).unwrap_or_else(|| {
            self.qps.push(None);
            self.qps.len() - 1
        });
        self.qps[free] = Some(qp);
        self.by_number.insert(number, Qp(free as u32));
        Ok((Qp(free as u32), number))
    }

    fn connect_qp(&mut self, qp: Qp, number: u32, to: &PortAddress) -> Result<(), DeviceError> {
        let qp = self.qp(qp);
        let mut change = ibv_qp_attr {
            qp_state: IBV_QPS_RTR,
            path_mtu: self.address.mtu.min(to.mtu).into(),
            dest_qp_num: number,
            max_dest_rd_atomic: self.address.depth,
            min_rnr_timer: RNR_TIMER,
            ..ibv_qp_attr::default()
        };
        change.ah_attr.dlid = to.lid;
        change.ah_attr.port_num = self.port.number;
        // LIDs are unique within a subnet; the first half of the GID names the subnet.
        let other_subnet = to.gid[..8] != self.address.gid[..8] && to.gid != [0; 16];
        if self.global || to.lid == 0 || other_subnet {
            change.ah_attr.is_global = 1;
            change.ah_attr.grh.dgid = ibv_gid { raw: to.gid };
            change.ah_attr.grh.sgid_index = self.port.gid_index;
            change.ah_attr.grh.hop_limit = 64;
        }
        let mask = IBV_QP_STATE
            | IBV_QP_AV
            | IBV_QP_PATH_MTU
            | IBV_QP_DEST_QPN
            | IBV_QP_RQ_PSN
            | IBV_QP_MAX_DEST_RD_ATOMIC
            | IBV_QP_MIN_RNR_TIMER;
        self.library.modify_qp(qp, "ibv_modify_qp to RTR", &mut change, mask)?;
        let mut change = ibv_qp_attr {
            qp_state: IBV_QPS_RTS,
            timeout: TIMEOUT,
            retry_cnt: RETRIES,
            rnr_retry: RNR_RETRIES,
            max_rd_atomic: self.address.depth.min(to.depth),
            ..ibv_qp_attr::default()
        };
        let mask = IBV_QP_STATE
            | IBV_QP_TIMEOUT
            | IBV_QP_RETRY_CNT
            | IBV_QP_RNR_RETRY
            | IBV_QP_SQ_PSN
            | IBV_QP_MAX_QP_RD_ATOMIC;
        self.library.modify_qp(qp, "ibv_modify_qp to RTS", &mut change, mask)
    }

    fn destroy_qp(&mut self, qp: Qp, drained: bool, completions: &mut VecDeque<Completion>) {
        self.kept.forget(qp);
        let Some(pair) = self.qps[qp.0 as usize].take() else { return };
        // The error state returns the receives that the queue pair holds, as failed completions;
        // destroying the queue pair alone would lose them. A drained queue pair holds none. The
        // error state would suppress its last acknowledgement, because soft-RoCE completes a
        // receive before it acknowledges it.
        if !drained {
            let mut change = ibv_qp_attr { qp_state: IBV_QPS_ERR, ..ibv_qp_attr::default() };
            if let Err(reason) =
                self.library.modify_qp(&pair, "ibv_modify_qp to ERR", &mut change, IBV_QP_STATE)
            {
                log::debug!("verbs: {reason}");
            }
        }
        while self.poll_batch(completions) > 0 {}
        // A later queue pair may get the same number.
        self.by_number.remove(&pair.number());
    }

    unsafe fn post_send(
        &mut self,
        qp: Qp,
        request: &WorkRequest,
        segments: &[LocalSegment],
    ) -> Result<(), DeviceError> {
        if let Some((other, _)) = self.kept.queue().filter(|(other, _)| *other != qp) {
            // SAFETY: the memory of kept requests is valid (contract of `Device::post_send`).
            unsafe { self.post_list(other, None) }?;
        }
        // SAFETY: the request's memory is valid (contract of `Device::post_send`).
        if request.more && segments.is_empty() && unsafe { self.kept.keep(qp, request) } {
            return Ok(());
        }
        // SAFETY: the memory of all requests is valid (contract of `Device::post_send`).
        unsafe { self.post_list(qp, Some((request, segments))) }
    }

    unsafe fn post_receive(
        &mut self,
        receive: u32,
        addr: usize,
        len: u32,
        lkey: u32,
    ) -> Result<(), DeviceError> {
        let mut segment = ibv_sge { addr: addr as u64, length: len, lkey };
        let mut request = ibv_recv_wr {
            wr_id: RECEIVE | u64::from(receive),
            next: null_mut(),
            sg_list: &raw mut segment,
            num_sge: 1,
        };
        // SAFETY: the memory is the device's until the receive completes (contract of
        // `Device::post_receive`).
        match unsafe { self.srq.post_receive(&mut request) } {
            0 => Ok(()),
            code => Err(error("ibv_post_srq_recv", code)),
        }
    }

    fn poll(&mut self, completions: &mut VecDeque<Completion>) -> bool {
        self.post_kept(completions);
        self.poll_batch(completions) == POLL_BATCH
    }

    fn next_event(&mut self) -> Option<DeviceEvent> {
        self.take_event()
    }

    fn status_text(&self, status: u32) -> String {
        self.library.status_text(status)
    }
}
