//! Owned objects of libibverbs. Dropping one destroys it, before the objects it was made from. The
//! calls on them are wrapped in safe functions.

use std::ffi::{c_int, c_void};
use std::io;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use super::super::device::DeviceError;
use super::sys::*;

/// An object of libibverbs, with the objects it was made from.
#[derive(Debug)]
pub(super) struct Owned<T, P = ()> {
    raw: NonNull<T>,
    destroy: unsafe extern "C" fn(*mut T) -> c_int,
    _parents: P,
}

pub(super) type OpenDevice = Arc<Owned<ibv_context>>;
pub(super) type ProtectionDomain = Arc<Owned<ibv_pd, OpenDevice>>;
pub(super) type CompletionQueue = Arc<Owned<ibv_cq, OpenDevice>>;
pub(super) type SharedReceiveQueue = Arc<Owned<ibv_srq, ProtectionDomain>>;
pub(super) type QueuePair = Owned<ibv_qp, (ProtectionDomain, CompletionQueue, SharedReceiveQueue)>;
pub(super) type Registration = Owned<ibv_mr, ProtectionDomain>;

// SAFETY: libibverbs is thread-safe, and an object's memory is reached through its owner alone.
unsafe impl<T, P: Send> Send for Owned<T, P> {}
// SAFETY: shared references give out the pointer only, for calls that libibverbs synchronises.
unsafe impl<T, P: Sync> Sync for Owned<T, P> {}

impl<T, P> Owned<T, P> {
    /// Owns what the call `name` returned; null means that it failed.
    ///
    /// # Safety
    /// `raw` is null, or a new object that nobody else owns, made from `parents`. `destroy` is the
    /// destructor of such objects.
    unsafe fn new(
        name: &'static str,
        raw: *mut T,
        destroy: unsafe extern "C" fn(*mut T) -> c_int,
        parents: P,
    ) -> Result<Self, DeviceError> {
        match NonNull::new(raw) {
            Some(raw) => Ok(Owned { raw, destroy, _parents: parents }),
            None => Err(last_error(name)),
        }
    }

    pub(super) fn as_ptr(&self) -> *mut T {
        self.raw.as_ptr()
    }
}

impl<T, P> Drop for Owned<T, P> {
    fn drop(&mut self) {
        // SAFETY: the object is alive and owned, its parents are dropped after it, and `destroy` is
        // its destructor (contract of `Owned::new`).
        let code = unsafe { (self.destroy)(self.as_ptr()) };
        if let Err(reason) = checked(std::any::type_name::<T>(), code) {
            log::warn!("verbs: {reason}");
        }
    }
}

/// The error of a call that sets `errno`.
pub(super) fn last_error(call: &'static str) -> DeviceError {
    error(call, io::Error::last_os_error().raw_os_error().unwrap_or(0))
}

/// The error of a call that returned this error number, positive or negative.
pub(super) fn error(call: &'static str, code: c_int) -> DeviceError {
    DeviceError::System { call, errno: code.abs() }
}

/// The result of a call that returns 0 or an error number.
pub(super) fn checked(call: &'static str, code: c_int) -> Result<(), DeviceError> {
    if code == 0 { Ok(()) } else { Err(error(call, code)) }
}

/// The RDMA devices of this machine.
pub(super) struct DeviceList {
    library: &'static Library,
    list: NonNull<*mut ibv_device>,
    len: usize,
}

impl DeviceList {
    pub(super) fn get(library: &'static Library) -> Result<Self, DeviceError> {
        let mut len = 0;
        // SAFETY: the call writes the length to a variable of its type.
        let list = unsafe { (library.ibv_get_device_list)(&raw mut len) };
        let list = NonNull::new(list).ok_or_else(|| last_error("no list of RDMA devices"))?;
        Ok(DeviceList { library, list, len: usize::try_from(len).unwrap_or(0) })
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    fn device(&self, index: usize) -> *mut ibv_device {
        assert!(index < self.len, "device {index} of {}", self.len);
        // SAFETY: the list has `len` entries and lives until `self` is dropped.
        unsafe { self.list.add(index).read() }
    }

    pub(super) fn name(&self, index: usize) -> String {
        // SAFETY: the device belongs to the live list; its name is a string that lives as long.
        unsafe { string((self.library.ibv_get_device_name)(self.device(index))) }
    }

    pub(super) fn transport_type(&self, index: usize) -> Enum {
        // SAFETY: the device belongs to the live list, and this member of it is public.
        unsafe { (*self.device(index)).transport_type }
    }

    pub(super) fn open(&self, index: usize) -> Result<OpenDevice, DeviceError> {
        let library = self.library;
        // SAFETY: the device belongs to the live list. The new context is ours, and stays valid
        // when the list is freed.
        unsafe {
            let raw = (library.ibv_open_device)(self.device(index));
            Owned::new("ibv_open_device", raw, library.ibv_close_device, ()).map(Arc::new)
        }
    }
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        // SAFETY: the list was made by `ibv_get_device_list` and is freed once.
        unsafe { (self.library.ibv_free_device_list)(self.list.as_ptr()) };
    }
}

impl Library {
    pub(super) fn query_device(&self, device: &OpenDevice) -> Result<ibv_device_attr, DeviceError> {
        let mut attributes = ibv_device_attr::default();
        // SAFETY: the device is open, and the call writes one structure of this type.
        let code = unsafe { (self.ibv_query_device)(device.as_ptr(), &raw mut attributes) };
        checked("ibv_query_device", code).map(|()| attributes)
    }

    /// Attributes of a port, or the error number.
    pub(super) fn query_port(&self, device: &OpenDevice, port: u8) -> Result<ibv_port_attr, c_int> {
        let mut attributes = ibv_port_attr::default();
        // SAFETY: the device is open, and the call writes one structure of this type.
        let code = unsafe { (self.ibv_query_port)(device.as_ptr(), port, &raw mut attributes) };
        if code == 0 { Ok(attributes) } else { Err(code.abs()) }
    }

    /// The GID of a port at this index, unless the entry is empty.
    pub(super) fn query_gid(&self, device: &OpenDevice, port: u8, index: c_int) -> Option<ibv_gid> {
        let mut gid = ibv_gid::default();
        // SAFETY: the device is open, and the call writes one GID.
        let code = unsafe { (self.ibv_query_gid)(device.as_ptr(), port, index, &raw mut gid) };
        (code == 0 && gid.raw != [0; 16]).then_some(gid)
    }

    /// The partition key of a port at this index; 0 if there is none.
    pub(super) fn query_pkey(&self, device: &OpenDevice, port: u8, index: u16) -> u16 {
        let mut key = 0_u16;
        // SAFETY: the device is open, and the call writes one 16-bit key.
        let code = unsafe {
            (self.ibv_query_pkey)(device.as_ptr(), port, c_int::from(index), &raw mut key)
        };
        if code == 0 { u16::from_be(key) } else { 0 }
    }

    /// Capabilities of on-demand paging; `None` if the device does not report them.
    pub(super) fn query_odp(&self, device: &OpenDevice) -> Option<ibv_odp_caps> {
        let context = device.as_ptr();
        let around = context
            .wrapping_byte_sub(std::mem::offset_of!(verbs_context, context))
            .cast::<verbs_context>();
        let mut attributes = ibv_device_attr_ex::default();
        // SAFETY: the device is open. If `abi_compat` is all ones, the context lies in a
        // `verbs_context`. Its `sz` lies before the context and says how many bytes of the
        // structure exist. The call writes at most the size that it is given.
        let code = unsafe {
            if (*context).abi_compat as usize != usize::MAX
                || (&raw const (*around).sz).read() < size_of::<verbs_context>()
            {
                return None;
            }
            let (attributes, size) = (&raw mut attributes, size_of::<ibv_device_attr_ex>());
            (*around).query_device_ex?(context, std::ptr::null(), attributes, size)
        };
        (code == 0).then_some(attributes.odp_caps)
    }

    pub(super) fn alloc_pd(&self, device: &OpenDevice) -> Result<ProtectionDomain, DeviceError> {
        // SAFETY: the device is open; the new domain is ours and keeps it open.
        unsafe {
            let raw = (self.ibv_alloc_pd)(device.as_ptr());
            Owned::new("ibv_alloc_pd", raw, self.ibv_dealloc_pd, Arc::clone(device)).map(Arc::new)
        }
    }

    pub(super) fn create_cq(
        &self,
        device: &OpenDevice,
        entries: u32,
    ) -> Result<CompletionQueue, DeviceError> {
        // SAFETY: the device is open; the queue has no completion channel, so those pointers are
        // null. The new queue is ours and keeps the device open.
        unsafe {
            let raw =
                (self.ibv_create_cq)(device.as_ptr(), entries as c_int, null_mut(), null_mut(), 0);
            Owned::new("ibv_create_cq", raw, self.ibv_destroy_cq, Arc::clone(device)).map(Arc::new)
        }
    }

    pub(super) fn create_srq(
        &self,
        pd: &ProtectionDomain,
        receives: u32,
    ) -> Result<SharedReceiveQueue, DeviceError> {
        let mut attributes = ibv_srq_init_attr {
            srq_context: null_mut(),
            max_wr: receives,
            max_sge: 1,
            srq_limit: 0,
        };
        // SAFETY: the domain is alive, and the call reads the attributes before it returns. The new
        // queue is ours and keeps the domain alive.
        unsafe {
            let raw = (self.ibv_create_srq)(pd.as_ptr(), &raw mut attributes);
            Owned::new("ibv_create_srq", raw, self.ibv_destroy_srq, Arc::clone(pd)).map(Arc::new)
        }
    }

    pub(super) fn create_qp(
        &self,
        pd: &ProtectionDomain,
        cq: &CompletionQueue,
        srq: &SharedReceiveQueue,
        cap: ibv_qp_cap,
    ) -> Result<QueuePair, DeviceError> {
        let mut attributes = ibv_qp_init_attr {
            qp_context: null_mut(),
            send_cq: cq.as_ptr(),
            recv_cq: cq.as_ptr(),
            srq: srq.as_ptr(),
            cap,
            qp_type: IBV_QPT_RC,
            sq_sig_all: 0,
        };
        let parents = (Arc::clone(pd), Arc::clone(cq), Arc::clone(srq));
        // SAFETY: domain and queues are alive, and the call reads the attributes before it returns.
        // The new queue pair is ours and keeps its parents alive.
        let qp = unsafe {
            let raw = (self.ibv_create_qp)(pd.as_ptr(), &raw mut attributes);
            Owned::new("ibv_create_qp", raw, self.ibv_destroy_qp, parents)
        };
        qp.map_err(|error| match error {
            DeviceError::System { errno: libc::ENOMEM, .. } => {
                DeviceError::QueueMemory(Box::new(error))
            }
            error => error,
        })
    }

    pub(super) fn modify_qp(
        &self,
        qp: &QueuePair,
        purpose: &'static str,
        attributes: &mut ibv_qp_attr,
        mask: u32,
    ) -> Result<(), DeviceError> {
        // SAFETY: the queue pair is alive, and the call reads the attributes before it returns.
        let code = unsafe {
            (self.ibv_modify_qp)(qp.as_ptr(), std::ptr::from_mut(attributes), mask as c_int)
        };
        checked(purpose, code)
    }

    /// # Safety
    /// The memory must stay mapped until the registration is dropped.
    pub(super) unsafe fn reg_mr(
        &self,
        pd: &ProtectionDomain,
        addr: usize,
        len: usize,
        access: u32,
    ) -> Result<Registration, DeviceError> {
        // SAFETY: the domain is alive; the memory stays mapped as long as the registration, which
        // is ours (contract of this function).
        unsafe {
            let raw = (self.ibv_reg_mr)(pd.as_ptr(), addr as *mut c_void, len, access as c_int);
            Owned::new("ibv_reg_mr", raw, self.ibv_dereg_mr, Arc::clone(pd))
        }
    }

    /// Asks libibverbs to keep registered pages with the parent after a `fork`.
    pub(super) fn fork_init(&self) -> Result<(), DeviceError> {
        // SAFETY: the call takes no arguments and may be made before any registration.
        checked("ibv_fork_init", unsafe { (self.ibv_fork_init)() })
    }

    pub(super) fn status_text(&self, status: u32) -> String {
        // SAFETY: the call returns a static string for every number.
        unsafe { string((self.ibv_wc_status_str)(status)) }
    }
}

impl<P> Owned<ibv_qp, P> {
    /// The number by which peers address the queue pair.
    pub(super) fn number(&self) -> u32 {
        // SAFETY: the queue pair is alive, and this member of it is public and constant.
        unsafe { (*self.as_ptr()).qp_num }
    }

    /// # Safety
    /// As for [`Device::post_send`](super::super::device::Device::post_send).
    pub(super) unsafe fn post_send(&self, request: &mut ibv_send_wr) -> c_int {
        let mut bad = null_mut();
        // SAFETY: the queue pair is alive, so its device's table of calls is valid. The call reads
        // the request and its list before it returns; local memory is the caller's contract.
        unsafe { ((*(*self.as_ptr()).context).ops.post_send)(self.as_ptr(), request, &raw mut bad) }
    }
}

impl<P> Owned<ibv_srq, P> {
    /// # Safety
    /// The receive's memory must stay valid, and belongs to the device, until it completes.
    pub(super) unsafe fn post_receive(&self, request: &mut ibv_recv_wr) -> c_int {
        let mut bad = null_mut();
        // SAFETY: the queue is alive, so its device's table of calls is valid. The call reads the
        // request before it returns; the receive's memory is the caller's contract.
        unsafe {
            ((*(*self.as_ptr()).context).ops.post_srq_recv)(self.as_ptr(), request, &raw mut bad)
        }
    }
}

impl<P> Owned<ibv_cq, P> {
    /// Stores completions in `batch`. Returns their number, or a negative error number.
    pub(super) fn poll(&self, batch: &mut [ibv_wc]) -> c_int {
        // SAFETY: the queue is alive, so its device's table of calls is valid; the call writes no
        // more entries than the batch has.
        unsafe {
            ((*(*self.as_ptr()).context).ops.poll_cq)(
                self.as_ptr(),
                batch.len() as c_int,
                batch.as_mut_ptr(),
            )
        }
    }
}

impl<P> Owned<ibv_mr, P> {
    /// Local and remote key.
    pub(super) fn keys(&self) -> (u32, u32) {
        // SAFETY: the registration is alive, and these members of it are public and constant.
        unsafe { ((*self.as_ptr()).lkey, (*self.as_ptr()).rkey) }
    }
}
