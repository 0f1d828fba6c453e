//! The binary interface of libibverbs, as far as it is used, and the library, loaded at run time.
//!
//! Nothing links against libibverbs, so one build runs on machines with and without it. The part
//! used has been stable since symbol version 1.1. `tests/rdma/abi_layout.rs` compares the layouts
//! with `<infiniband/verbs.h>` where that is installed.

#![allow(
    missing_docs,
    reason = "the names are those of <infiniband/verbs.h>, which documents them"
)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::NonNull;
use std::sync::OnceLock;

use super::super::device::DeviceError;

/// A C `enum`.
pub type Enum = u32;

type PollCq = unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int;
type PostSrqRecv =
    unsafe extern "C" fn(*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int;
type PostSend = unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int;
type QueryDeviceEx =
    unsafe extern "C" fn(*mut ibv_context, *const c_void, *mut ibv_device_attr_ex, usize) -> c_int;

/// Structures of the header, with all members public. Members named `before_*` and `rest` stand for
/// members that are not used.
macro_rules! c_structs {
    ($($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $member:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[repr(C)]
        #[derive(Debug)]
        pub struct $name {
            $($(#[$of])* pub $member: $type,)*
        }
    )*};
}

c_structs! {
    ibv_device {
        ops: [*mut c_void; 2],
        node_type: Enum,
        transport_type: Enum,
    }
    ibv_pd {
        _opaque: [u8; 0],
    }
    /// The table through which the header's inline functions call.
    ibv_context_ops {
        before_poll_cq: [*mut c_void; 11],
        poll_cq: PollCq,
        before_post_srq_recv: [*mut c_void; 8],
        post_srq_recv: PostSrqRecv,
        before_post_send: [*mut c_void; 4],
        post_send: PostSend,
        rest: [*mut c_void; 6],
    }
    ibv_context {
        device: *mut ibv_device,
        ops: ibv_context_ops,
        cmd_fd: c_int,
        async_fd: c_int,
        num_comp_vectors: c_int,
        mutex: libc::pthread_mutex_t,
        abi_compat: *mut c_void,
    }
    /// The end of the structure around an [`ibv_context`] whose `abi_compat` is all ones. New
    /// members are added in front.
    verbs_context {
        query_device_ex: Option<QueryDeviceEx>,
        before_placeholder3: [*mut c_void; 10],
        placeholder3: u64,
        /// Size of the whole structure in bytes.
        sz: usize,
        context: ibv_context,
    }
    /// Extended attributes; members that the device does not report are 0.
    #[derive(Default)]
    ibv_device_attr_ex {
        orig_attr: ibv_device_attr,
        comp_mask: u32,
        odp_caps: ibv_odp_caps,
        /// With room for future members.
        rest: [[u64; 32]; 2],
    }
    #[derive(Clone, Copy, Default)]
    ibv_odp_caps {
        general_caps: u64,
        rc_odp_caps: u32,
        uc_odp_caps: u32,
        ud_odp_caps: u32,
    }
    ibv_cq {
        context: *mut ibv_context,
    }
    ibv_srq {
        context: *mut ibv_context,
    }
    ibv_qp {
        context: *mut ibv_context,
        qp_context: *mut c_void,
        pd: *mut ibv_pd,
        send_cq: *mut ibv_cq,
        recv_cq: *mut ibv_cq,
        srq: *mut ibv_srq,
        handle: u32,
        qp_num: u32,
    }
    ibv_mr {
        context: *mut ibv_context,
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: usize,
        handle: u32,
        lkey: u32,
        rkey: u32,
    }
    #[derive(Default)]
    ibv_device_attr {
        fw_ver: [[c_char; 32]; 2],
        node_guid: u64,
        before_vendor_id: [u64; 3],
        vendor_id: u32,
        before_max_qp: [u32; 2],
        max_qp: c_int,
        max_qp_wr: c_int,
        device_cap_flags: u32,
        max_sge: c_int,
        max_sge_rd: c_int,
        max_cq: c_int,
        max_cqe: c_int,
        before_max_qp_rd_atom: [c_int; 2],
        max_qp_rd_atom: c_int,
        before_max_qp_init_rd_atom: [c_int; 2],
        max_qp_init_rd_atom: c_int,
        max_ee_init_rd_atom: c_int,
        atomic_cap: Enum,
        before_max_srq: [c_int; 11],
        max_srq: c_int,
        max_srq_wr: c_int,
        max_srq_sge: c_int,
        max_pkeys: u16,
        local_ca_ack_delay: u8,
        phys_port_cnt: u8,
    }
    #[derive(Default)]
    ibv_port_attr {
        state: Enum,
        max_mtu: Enum,
        active_mtu: Enum,
        gid_tbl_len: c_int,
        port_cap_flags: u32,
        max_msg_sz: u32,
        before_pkey_tbl_len: [u32; 2],
        pkey_tbl_len: u16,
        lid: u16,
        sm_lid: u16,
        before_link_layer: [u8; 8],
        link_layer: u8,
        flags: u8,
        port_cap_flags2: u16,
    }
    #[derive(Default)]
    ibv_qp_cap {
        max_send_wr: u32,
        max_recv_wr: u32,
        max_send_sge: u32,
        max_recv_sge: u32,
        max_inline_data: u32,
    }
    ibv_qp_init_attr {
        qp_context: *mut c_void,
        send_cq: *mut ibv_cq,
        recv_cq: *mut ibv_cq,
        srq: *mut ibv_srq,
        cap: ibv_qp_cap,
        qp_type: Enum,
        sq_sig_all: c_int,
    }
    ibv_srq_init_attr {
        srq_context: *mut c_void,
        max_wr: u32,
        max_sge: u32,
        srq_limit: u32,
    }
    #[derive(Default)]
    ibv_global_route {
        dgid: ibv_gid,
        flow_label: u32,
        sgid_index: u8,
        hop_limit: u8,
        traffic_class: u8,
    }
    #[derive(Default)]
    ibv_ah_attr {
        grh: ibv_global_route,
        dlid: u16,
        sl: u8,
        src_path_bits: u8,
        static_rate: u8,
        is_global: u8,
        port_num: u8,
    }
    #[derive(Default)]
    ibv_qp_attr {
        qp_state: Enum,
        cur_qp_state: Enum,
        path_mtu: Enum,
        path_mig_state: Enum,
        qkey: u32,
        rq_psn: u32,
        sq_psn: u32,
        dest_qp_num: u32,
        qp_access_flags: u32,
        cap: ibv_qp_cap,
        ah_attr: ibv_ah_attr,
        alt_ah_attr: ibv_ah_attr,
        pkey_index: u16,
        alt_pkey_index: u16,
        en_sqd_async_notify: u8,
        sq_draining: u8,
        max_rd_atomic: u8,
        max_dest_rd_atomic: u8,
        min_rnr_timer: u8,
        port_num: u8,
        timeout: u8,
        retry_cnt: u8,
        rnr_retry: u8,
        alt_port_num: u8,
        alt_timeout: u8,
        rate_limit: u32,
    }
    ibv_async_event {
        element: ibv_async_element,
        event_type: Enum,
    }
    #[derive(Clone, Copy, Default)]
    ibv_sge {
        addr: u64,
        length: u32,
        lkey: u32,
    }
    #[derive(Clone, Copy)]
    ibv_wr_rdma {
        remote_addr: u64,
        rkey: u32,
    }
    #[derive(Clone, Copy)]
    ibv_wr_atomic {
        remote_addr: u64,
        compare_add: u64,
        swap: u64,
        rkey: u32,
    }
    ibv_send_wr {
        wr_id: u64,
        next: *mut ibv_send_wr,
        sg_list: *mut ibv_sge,
        num_sge: c_int,
        opcode: Enum,
        send_flags: u32,
        /// In network byte order.
        imm_data: u32,
        wr: ibv_wr,
        /// Members for other types of queue pairs and requests.
        others: [u64; 7],
    }
    ibv_recv_wr {
        wr_id: u64,
        next: *mut ibv_recv_wr,
        sg_list: *mut ibv_sge,
        num_sge: c_int,
    }
    #[derive(Clone, Copy, Default)]
    ibv_wc {
        wr_id: u64,
        status: Enum,
        opcode: Enum,
        vendor_err: u32,
        byte_len: u32,
        /// In network byte order.
        imm_data: u32,
        qp_num: u32,
        src_qp: u32,
        wc_flags: u32,
        pkey_index: u16,
        slid: u16,
        sl: u8,
        dlid_path_bits: u8,
    }
}

#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ibv_gid {
    pub raw: [u8; 16],
}

/// The member `wr` of a send request, for RDMA and for atomics.
#[repr(C)]
#[derive(Clone, Copy)]
pub union ibv_wr {
    pub rdma: ibv_wr_rdma,
    pub atomic: ibv_wr_atomic,
}

impl std::fmt::Debug for ibv_wr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ibv_wr")
    }
}

/// The member `element` of an event: what it is about.
#[repr(C)]
#[derive(Clone, Copy)]
pub union ibv_async_element {
    pub qp: *mut ibv_qp,
    pub port_num: c_int,
}

impl std::fmt::Debug for ibv_async_element {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ibv_async_element")
    }
}

pub const IBV_PORT_ACTIVE: Enum = 4;
pub const IBV_LINK_LAYER_ETHERNET: u8 = 2;
pub const IBV_QPT_RC: Enum = 2;
pub const IBV_QPS_INIT: Enum = 1;
pub const IBV_QPS_RTR: Enum = 2;
pub const IBV_QPS_RTS: Enum = 3;
pub const IBV_QPS_ERR: Enum = 6;
pub const IBV_TRANSPORT_IB: Enum = 0;
/// Port flag: packets need a global route header.
pub const IBV_QPF_GRH_REQUIRED: u8 = 1;
pub const IBV_ATOMIC_NONE: Enum = 0;
pub const IBV_ATOMIC_GLOB: Enum = 2;

pub const IBV_ACCESS_LOCAL_WRITE: u32 = 1;
pub const IBV_ACCESS_REMOTE_WRITE: u32 = 2;
pub const IBV_ACCESS_REMOTE_READ: u32 = 4;
pub const IBV_ACCESS_REMOTE_ATOMIC: u32 = 8;
pub const IBV_ACCESS_ON_DEMAND: u32 = 1 << 6;

pub const IBV_ODP_SUPPORT: u64 = 1;
pub const IBV_ODP_SUPPORT_WRITE: u32 = 1 << 2;
pub const IBV_ODP_SUPPORT_READ: u32 = 1 << 3;
pub const IBV_ODP_SUPPORT_ATOMIC: u32 = 1 << 4;

pub const IBV_QP_STATE: u32 = 1;
pub const IBV_QP_ACCESS_FLAGS: u32 = 1 << 3;
pub const IBV_QP_PKEY_INDEX: u32 = 1 << 4;
pub const IBV_QP_PORT: u32 = 1 << 5;
pub const IBV_QP_AV: u32 = 1 << 7;
pub const IBV_QP_PATH_MTU: u32 = 1 << 8;
pub const IBV_QP_TIMEOUT: u32 = 1 << 9;
pub const IBV_QP_RETRY_CNT: u32 = 1 << 10;
pub const IBV_QP_RNR_RETRY: u32 = 1 << 11;
pub const IBV_QP_RQ_PSN: u32 = 1 << 12;
pub const IBV_QP_MAX_QP_RD_ATOMIC: u32 = 1 << 13;
pub const IBV_QP_MIN_RNR_TIMER: u32 = 1 << 15;
pub const IBV_QP_SQ_PSN: u32 = 1 << 16;
pub const IBV_QP_MAX_DEST_RD_ATOMIC: u32 = 1 << 17;
pub const IBV_QP_DEST_QPN: u32 = 1 << 20;

pub const IBV_WR_RDMA_WRITE: Enum = 0;
pub const IBV_WR_RDMA_WRITE_WITH_IMM: Enum = 1;
pub const IBV_WR_SEND_WITH_IMM: Enum = 3;
pub const IBV_WR_RDMA_READ: Enum = 4;
pub const IBV_WR_ATOMIC_CMP_AND_SWP: Enum = 5;
pub const IBV_WR_ATOMIC_FETCH_AND_ADD: Enum = 6;

/// Vendor id of soft-RoCE.
pub const VENDOR_SOFT_ROCE: u32 = 0x00ff_ffff;
pub const IBV_SEND_FENCE: u32 = 1;
pub const IBV_SEND_SIGNALED: u32 = 2;
pub const IBV_SEND_INLINE: u32 = 8;

pub const IBV_EVENT_CQ_ERR: Enum = 0;
pub const IBV_EVENT_QP_FATAL: Enum = 1;
pub const IBV_EVENT_QP_REQ_ERR: Enum = 2;
pub const IBV_EVENT_QP_ACCESS_ERR: Enum = 3;
pub const IBV_EVENT_DEVICE_FATAL: Enum = 8;
pub const IBV_EVENT_PORT_ACTIVE: Enum = 9;
pub const IBV_EVENT_PORT_ERR: Enum = 10;
pub const IBV_EVENT_LID_CHANGE: Enum = 11;
pub const IBV_EVENT_PKEY_CHANGE: Enum = 12;
pub const IBV_EVENT_SRQ_ERR: Enum = 14;
pub const IBV_EVENT_GID_CHANGE: Enum = 18;

pub const IBV_WC_SUCCESS: Enum = 0;
pub const IBV_WC_FATAL_ERR: Enum = 19;
pub const IBV_WC_RECV_RDMA_WITH_IMM: Enum = 129;

macro_rules! library {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The exported functions of libibverbs.
        #[derive(Clone, Copy, Debug)]
        pub struct Library {
            $(pub $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Library {
            fn find(handle: NonNull<c_void>) -> Result<Self, DeviceError> {
                Ok(Library {
                    // SAFETY: the symbol is the function of this name, which has this type in
                    // `<infiniband/verbs.h>`.
                    $($name: unsafe {
                        std::mem::transmute::<
                            NonNull<c_void>,
                            unsafe extern "C" fn($($argument),*) $(-> $result)?,
                        >(symbol(handle, concat!(stringify!($name), "\0"))?)
                    },)*
                })
            }
        }
    };
}

library! {
    ibv_get_device_list: fn(*mut c_int) -> *mut *mut ibv_device;
    ibv_free_device_list: fn(*mut *mut ibv_device);
    ibv_get_device_name: fn(*mut ibv_device) -> *const c_char;
    ibv_open_device: fn(*mut ibv_device) -> *mut ibv_context;
    ibv_close_device: fn(*mut ibv_context) -> c_int;
    ibv_query_device: fn(*mut ibv_context, *mut ibv_device_attr) -> c_int;
    ibv_query_port: fn(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int;
    ibv_query_gid: fn(*mut ibv_context, u8, c_int, *mut ibv_gid) -> c_int;
    ibv_query_pkey: fn(*mut ibv_context, u8, c_int, *mut u16) -> c_int;
    ibv_fork_init: fn() -> c_int;
    ibv_alloc_pd: fn(*mut ibv_context) -> *mut ibv_pd;
    ibv_dealloc_pd: fn(*mut ibv_pd) -> c_int;
    ibv_reg_mr: fn(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr;
    ibv_dereg_mr: fn(*mut ibv_mr) -> c_int;
    ibv_create_cq: fn(*mut ibv_context, c_int, *mut c_void, *mut c_void, c_int) -> *mut ibv_cq;
    ibv_destroy_cq: fn(*mut ibv_cq) -> c_int;
    ibv_create_srq: fn(*mut ibv_pd, *mut ibv_srq_init_attr) -> *mut ibv_srq;
    ibv_destroy_srq: fn(*mut ibv_srq) -> c_int;
    ibv_create_qp: fn(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp;
    ibv_modify_qp: fn(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int;
    ibv_destroy_qp: fn(*mut ibv_qp) -> c_int;
    ibv_wc_status_str: fn(Enum) -> *const c_char;
    ibv_get_async_event: fn(*mut ibv_context, *mut ibv_async_event) -> c_int;
    ibv_ack_async_event: fn(*mut ibv_async_event);
    ibv_event_type_str: fn(Enum) -> *const c_char;
}

fn symbol(handle: NonNull<c_void>, name: &'static str) -> Result<NonNull<c_void>, DeviceError> {
    // SAFETY: the handle is an open library, and `name` ends with a zero byte (`library!`).
    NonNull::new(unsafe { libc::dlsym(handle.as_ptr(), name.as_ptr().cast()) })
        .ok_or_else(|| DeviceError::Symbol(name.trim_end_matches('\0')))
}

impl Library {
    /// Loads the library at the first call, for the life of the process.
    ///
    /// # Errors
    /// It is not installed, or lacks a function.
    pub fn get() -> Result<&'static Library, DeviceError> {
        static LOADED: OnceLock<Result<Library, DeviceError>> = OnceLock::new();
        LOADED
            .get_or_init(|| {
                // SAFETY: the name is a C string; constructors of the system's libibverbs run.
                let handle = unsafe {
                    libc::dlopen(c"libibverbs.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL)
                };
                match NonNull::new(handle) {
                    Some(handle) => Library::find(handle),
                    // SAFETY: `dlerror` returns null or a string that is valid until this thread's
                    // next call of the loader.
                    None => Err(DeviceError::Library(unsafe { string(libc::dlerror()) })),
                }
            })
            .as_ref()
            .map_err(Clone::clone)
    }
}

/// Copies a C string; `"unknown"` for null.
///
/// # Safety
/// `text` is null or points to a string that ends with a zero byte.
#[must_use]
pub(super) unsafe fn string(text: *const c_char) -> String {
    if text.is_null() {
        return "unknown".into();
    }
    // SAFETY: not null, so it points to a C string (contract of this function).
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
