//! Put and get with tagged notifications: the operation of the plain call, which then delivers a
//! tag to its target.

use std::ffi::{c_int, c_void};

use crate::engine::{Notification, OpKind};
use crate::mpi::abi::error::Fault;
use crate::mpi::abi::host::exports;
use crate::mpi::abi::sys::*;
use crate::mpi::rma::args::{self, Buffer, Target};
use crate::mpi::rma::call::on_our_window;
use crate::mpi::rma::communication::{communicate, communicate_request, new_request};
use crate::mpi::rma::fast_path;
use crate::mpi::rma::notify::{TargetNotification, notified};
use crate::runtime::Window;

/// Checks the tag of a notification: any int from 0 on, which is more than `MPI_TAG_UB` of some
/// hosts.
#[inline(always)]
pub(crate) fn tag_of(tag: c_int) -> Result<u32, Fault> {
    u32::try_from(tag).map_err(|_| Fault::new(MPI_ERR_TAG, "tag is negative"))
}

/// The target and the notification of a tag; `None` for `MPI_PROC_NULL`.
#[inline(always)]
fn notification(window: &Window, target: c_int, tag: c_int) -> Result<TargetNotification, Fault> {
    let tag = tag_of(tag)?;
    let Some(rank) = args::rank(window, target, "target_rank is outside the window's group")?
    else {
        return Ok(None);
    };
    Ok(Some((rank, Notification::tag(tag))))
}

/// Put and get with one type of count.
macro_rules! tagged {
    ($count:ty; $($name:ident $kind:expr, $pointer:ty, $short:path, $form:ident ($($request:ident: $type:ty)?);)*) => {$(
        /// Moves data between this process and a target's window and notifies the target with a
        /// tag.
        ///
        /// # Safety
        /// As MPI says of the plain call.
        #[inline(never)]
        pub unsafe extern "C" fn $name(
            origin_addr: $pointer, origin_count: $count, origin_datatype: MPI_Datatype, target_rank: c_int,
            target_disp: MPI_Aint, target_count: $count, target_datatype: MPI_Datatype, tag: c_int, win: MPI_Win
            $(, $request: $type)?
        ) -> c_int {
            // Made twice, where they are used: kept in between they would go through memory.
            let origin = || Buffer { address: origin_addr.cast(), count: origin_count as i64, datatype: origin_datatype };
            let target =
                || Target { rank: target_rank, disp: target_disp, count: target_count as i64, datatype: target_datatype };
            // SAFETY: the arguments are those of the application's call.
            if unsafe { $short(win, $kind, origin(), target(), tag) } {
                return MPI_SUCCESS;
            }
            on_our_window(stringify!($name), win, |guard| {
                $form(guard, $(new_request!($request),)? |window| {
                    let notification = notification(window, target_rank, tag)?;
                    Ok(notified(args::transfer(window, $kind, origin(), target())?, notification))
                })
            })
        }
        exports! {
            $name(origin_addr: $pointer, origin_count: $count, origin_datatype: MPI_Datatype, target_rank: c_int,
                  target_disp: MPI_Aint, target_count: $count, target_datatype: MPI_Datatype, tag: c_int, win: MPI_Win
                  $(, $request: $type)?);
        }
    )*};
}

tagged! { c_int;
    MPIX_Put_tagged OpKind::Put, *const c_void, fast_path::tagged_transfer, communicate ();
    MPIX_Get_tagged OpKind::Get, *mut c_void, fast_path::tagged_transfer, communicate ();
    MPIX_Rput_tagged OpKind::Put, *const c_void, fast_path::not_notified, communicate_request (request: *mut MPI_Request);
    MPIX_Rget_tagged OpKind::Get, *mut c_void, fast_path::not_notified, communicate_request (request: *mut MPI_Request);
}

tagged! { MPI_Count;
    MPIX_Put_tagged_c OpKind::Put, *const c_void, fast_path::tagged_transfer, communicate ();
    MPIX_Get_tagged_c OpKind::Get, *mut c_void, fast_path::tagged_transfer, communicate ();
    MPIX_Rput_tagged_c OpKind::Put, *const c_void, fast_path::not_notified, communicate_request (request: *mut MPI_Request);
    MPIX_Rget_tagged_c OpKind::Get, *mut c_void, fast_path::not_notified, communicate_request (request: *mut MPI_Request);
}
