//! Persistent epochs and operations (`MPIX_Win_epoch_init`, `MPIX_Put_init` and their kin), and the
//! calls on a window while an epoch is recorded [PE-1].
//!
//! Meanwhile the registry does not find the window under that handle. So calls on it end up in
//! [`in_record`], and other calls pay nothing for that. Calls on other handles of the window, if it
//! has duplicates, are not recorded.

use crate::engine::{Op, SyncCall};
use crate::mpi::abi::argument::Out;
use crate::mpi::abi::error::Fault;
use crate::mpi::abi::sys::*;
use crate::mpi::request::persistent;
use crate::mpi::rma::call::{Checked, Done, NO_REQUEST, deliver_complete, require, window_calls};
use crate::runtime::recorded::{Kept, KeptOp, Recorder};
use crate::runtime::{Guard, Window, WindowId};

/// The fault of a call that cannot be recorded.
#[cold]
pub(crate) fn not_allowed() -> Fault {
    Fault::new(
        MPI_ERR_RMA_SYNC,
        "the call is not allowed while an epoch is recorded on this window \
         (MPIX_Win_epoch_init)",
    )
}

/// What a call that cannot be recorded does while an epoch is.
#[cold]
pub(crate) fn refused(_: Guard, _: WindowId) -> Done {
    Err(not_allowed())
}

/// A call on a handle on which an epoch is recorded.
#[cold]
pub(crate) fn in_record(
    mut guard: Guard,
    (id, lane): (WindowId, u32),
    recorded: impl FnOnce(Guard, WindowId) -> Done,
) -> Done {
    let recorder = guard.windows.on_lane(id, lane).recorder.as_ref();
    if recorder.is_none_or(|recorder| recorder.is_of_this_thread()) {
        return recorded(guard, id);
    }
    Err(Fault::new(
        MPI_ERR_RMA_SYNC,
        "another thread records an epoch on this window (MPIX_Win_epoch_init)",
    ))
}

/// Records a call that opens or closes an epoch; none for a lock of `MPI_PROC_NULL`.
#[cold]
pub(crate) fn sync(
    mut guard: Guard,
    id: WindowId,
    make: impl FnOnce(&mut Window) -> Checked<Option<SyncCall>>,
) -> Done {
    let window = &mut guard[id];
    let Some(call) = make(window)? else { return Ok(()) };
    Ok(recorder_of(window)?.synchronize(call)?)
}

/// As [`sync`], for a nonblocking call. Its request is complete.
#[cold]
pub(crate) fn nonblocking_sync(
    guard: Guard,
    id: WindowId,
    request: Out<'_, MPI_Request>,
    make: impl FnOnce(&mut Window) -> Checked<Option<SyncCall>>,
) -> Done {
    require(request, NO_REQUEST)?;
    sync(guard, id, make)?;
    deliver_complete(request)
}

/// The forms of calls that issue an operation, while an epoch is recorded.
pub(crate) mod recording {
    use super::*;

    /// Records an operation.
    #[cold]
    pub(crate) fn communicate(
        mut guard: Guard,
        id: WindowId,
        make: impl FnOnce(&mut Window) -> Checked<Option<Op>>,
    ) -> Done {
        let window = &mut guard[id];
        let Some(op) = make(window)? else { return Ok(()) };
        let kept = KeptOp::of(window, op);
        Ok(recorder_of(window)?.issue(kept)?)
    }

    /// What makes a request is refused: that of an R-form could not complete within the record, and
    /// persistent operations are started by themselves.
    #[cold]
    pub(crate) fn refuse_request(
        _: Guard,
        _: WindowId,
        _: Out<'_, MPI_Request>,
        _: impl FnOnce(&mut Window) -> Checked<Option<Op>>,
    ) -> Done {
        Err(not_allowed())
    }

    pub(crate) use refuse_request as communicate_request;
    pub(crate) use refuse_request as communicate_passively;
    pub(crate) use refuse_request as persistent;
}

fn recorder_of(window: &mut Window) -> Checked<&mut Recorder> {
    window.recorder.as_deref_mut().ok_or_else(none_recorded)
}

#[cold]
fn none_recorded() -> Fault {
    Fault::new(
        MPI_ERR_RMA_SYNC,
        "no epoch is recorded on this window (MPIX_Win_epoch_init was not called)",
    )
}

/// `MPIX_Win_epoch_init`
fn begin(mut guard: Guard, request: Out<'_, MPI_Request>) -> Done {
    require(request, NO_REQUEST)?;
    let id = guard.windows.called_id();
    if guard[id].recorder.is_some() {
        return Err(Fault::new(
            MPI_ERR_RMA_SYNC,
            "an epoch is being recorded on another handle of this window (MPIX_Win_dup): one at a \
             time",
        ));
    }
    let key = make_request(&mut guard, id, Kept::Recording, request)?;
    let window = &mut guard[id];
    window.close_fast_path();
    window.recorder = Some(Box::new(Recorder::new(window, key)));
    guard.windows.set_recording(id, true);
    Ok(())
}

/// `MPIX_Win_epoch_end`
fn end(mut guard: Guard, id: WindowId) -> Done {
    let runtime = &mut *guard;
    let window = &mut runtime.windows[id];
    let recorder = window.recorder.take().ok_or_else(none_recorded)?;
    if !recorder.is_closed() {
        window.recorder = Some(recorder);
        return Err(Fault::new(
            MPI_ERR_RMA_SYNC,
            "an epoch of the record has not been closed: one that it opens, or the fence epoch \
             that its first operations belong to",
        ));
    }
    runtime.persistent.end_record(window, *recorder);
    runtime.windows.set_recording(id, false);
    Ok(())
}

fn make_request(
    guard: &mut Guard,
    id: WindowId,
    kept: Kept,
    request: Out<'_, MPI_Request>,
) -> Checked<crate::engine::slab::Key> {
    persistent::make_recorded(guard, id, kept, request)
        .ok_or_else(|| Fault::new(MPI_ERR_INTERN, "the host could not make a persistent request"))
}

/// Makes a request for a persistent operation [PE-3]. It needs no epoch until it is started.
#[inline(never)]
pub(crate) fn persistent(
    mut guard: Guard,
    request: Out<'_, MPI_Request>,
    make: impl FnOnce(&mut Window) -> Checked<Option<Op>>,
) -> Done {
    require(request, NO_REQUEST)?;
    let id = guard.windows.called_id();
    let window = guard.windows.called();
    window.any_epoch = true;
    let made = make(window);
    window.any_epoch = false;
    let kept = Kept::operation(window, made?);
    make_request(&mut guard, id, kept, request).map(|_| ())
}

window_calls! { win;
    /// Begins to record epochs on this window, for a persistent request [PE-1].
    MPIX_Win_epoch_init(win: MPI_Win; request: MPI_Request), |guard| begin(guard, request);
    /// Ends the record.
    MPIX_Win_epoch_end(win: MPI_Win), |_| Err(none_recorded()), recorded end;
}
