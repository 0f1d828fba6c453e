//! Point-to-point calls. Their blocking and nonblocking forms match each other, so each call
//! decides for itself whether it is driven.
//!
//! `MPI_Bsend` is not interposed: it only copies.
//!
//! Errors of receives are raised on the communicator, as by the host's own calls ([`Receive`]).
//! `MPI_Mrecv` needs no care: MPICH's own raises its errors on `MPI_COMM_WORLD`, like a wait for
//! the nonblocking form.

use std::cell::Cell;
use std::ffi::{c_int, c_void};

use super::interpose;
use crate::mpi::abi::host_calls;
use crate::mpi::abi::status::Status;
use crate::mpi::abi::sys::*;
use crate::mpi::progress::drive;

/// A receive in flight. Its errors are raised on its communicator, like those of a blocking
/// receive. MPICH does so only for persistent requests: it raises those of other receives on
/// `MPI_COMM_WORLD`. The latter cost less, so receives on that communicator use them.
struct Receive {
    request: Cell<MPI_Request>,
    is_persistent: bool,
}

impl Receive {
    /// Starts a receive: `init` makes a persistent request, `receive` one that is in flight.
    ///
    /// # Errors
    /// The host's error code; the host has raised the error.
    fn start(
        comm: MPI_Comm,
        init: impl FnOnce(*mut MPI_Request) -> c_int,
        receive: impl FnOnce(*mut MPI_Request) -> c_int,
    ) -> Result<Self, c_int> {
        let mut request = MPI_REQUEST_NULL;
        let is_persistent = comm != MPI_COMM_WORLD;
        let code = if is_persistent { init(&raw mut request) } else { receive(&raw mut request) };
        if code != MPI_SUCCESS {
            return Err(code);
        }
        let started = Receive { request: Cell::new(request), is_persistent };
        let code = if is_persistent { host_calls::start(&started.request) } else { MPI_SUCCESS };
        if code == MPI_SUCCESS { Ok(started) } else { Err(code) }
    }

    fn wait(&self, status: Status<'_>) -> c_int {
        drive::wait_for(&self.request, status)
    }

    /// Cancels the receive, and waits for the cancellation or for a message that has already
    /// arrived.
    fn cancel(&self) {
        host_calls::cancel(&self.request);
        self.wait(Status::ignored());
    }
}

impl Drop for Receive {
    fn drop(&mut self) {
        // The request is inactive; or the host has failed, and keeps it until it is complete.
        if self.is_persistent {
            host_calls::request_free(&self.request);
        }
    }
}

/// Makes an `MPI_Sendrecv`: a receive by `init` or `receive`, as in [`Receive::start`], and `send`.
fn exchange(
    comm: MPI_Comm,
    init: impl FnOnce(*mut MPI_Request) -> c_int,
    receive: impl FnOnce(*mut MPI_Request) -> c_int,
    send: impl FnOnce(*mut MPI_Request) -> c_int,
    status: Status<'_>,
) -> c_int {
    let receive = match Receive::start(comm, init, receive) {
        Ok(receive) => receive,
        Err(code) => return code,
    };
    let sending = Cell::new(MPI_REQUEST_NULL);
    let code = send(sending.as_ptr());
    if code != MPI_SUCCESS {
        // The receive must not outlive the call: its buffer belongs to the caller again.
        receive.cancel();
        return code;
    }
    let received = receive.wait(status);
    let sent = drive::wait_for(&sending, Status::ignored());
    if received != MPI_SUCCESS { received } else { sent }
}

/// The calls that take a count, for one type of count.
macro_rules! counted {
    ($count:ty; $recv:ident $precv:ident $recv_init:ident $irecv:ident;
     $mrecv:ident $pmrecv:ident $imrecv:ident;
     $(send $send:ident $psend:ident $isend:ident;)*
     exchange $sendrecv:ident $psendrecv:ident $isend_one:ident;
     replace $replace:ident $preplace:ident $pack_size:ident $pack:ident) => {
        interpose! {
            drive::must_drive_now;
            $recv(
                buf: *mut c_void, count: $count, datatype: MPI_Datatype, source: c_int, tag: c_int,
                comm: MPI_Comm, status: *mut MPI_Status
            ) => $precv,
                match Receive::start(
                    comm,
                    |request| $recv_init(buf, count, datatype, source, tag, comm, request),
                    |request| $irecv(buf, count, datatype, source, tag, comm, request),
                ) {
                    Ok(receive) => receive.wait(Status::new(status)),
                    Err(code) => code,
                };
            $mrecv(
                buf: *mut c_void, count: $count, datatype: MPI_Datatype, message: *mut MPI_Message,
                status: *mut MPI_Status,
            ) => $pmrecv,
                drive::through(
                    |request| $imrecv(buf, count, datatype, message, request),
                    Status::new(status),
                );
            $($send(
                buf: *const c_void, count: $count, datatype: MPI_Datatype, dest: c_int, tag: c_int,
                comm: MPI_Comm,
            ) => $psend,
                drive::through(
                    |request| $isend(buf, count, datatype, dest, tag, comm, request),
                    Status::ignored(),
                );)*
            $sendrecv(
                sendbuf: *const c_void, sendcount: $count, sendtype: MPI_Datatype, dest: c_int,
                sendtag: c_int, recvbuf: *mut c_void, recvcount: $count, recvtype: MPI_Datatype,
                source: c_int, recvtag: c_int, comm: MPI_Comm, status: *mut MPI_Status
            ) => $psendrecv,
                exchange(
                    comm,
                    |request| {
                        $recv_init(recvbuf, recvcount, recvtype, source, recvtag, comm, request)
                    },
                    |request| $irecv(recvbuf, recvcount, recvtype, source, recvtag, comm, request),
                    |request| {
                        $isend_one(sendbuf, sendcount, sendtype, dest, sendtag, comm, request)
                    },
                    Status::new(status),
                );
            $replace(
                buf: *mut c_void, count: $count, datatype: MPI_Datatype, dest: c_int,
                sendtag: c_int, source: c_int, recvtag: c_int, comm: MPI_Comm,
                status: *mut MPI_Status
            ) => $preplace,
                {
                    // As in the host: send a packed copy, so that the receive may overwrite the
                    // buffer.
                    let (mut room, mut packed) = (0 as $count, 0 as $count);
                    let mut code = $pack_size(count, datatype, comm, &raw mut room);
                    let mut copy = Vec::<u8>::with_capacity(usize::try_from(room).unwrap_or(0));
                    if code == MPI_SUCCESS {
                        let to = copy.as_mut_ptr().cast();
                        code = $pack(buf, count, datatype, to, room, &raw mut packed, comm);
                    }
                    if code != MPI_SUCCESS {
                        return code;
                    }
                    let from = copy.as_ptr().cast();
                    exchange(
                        comm,
                        |request| $recv_init(buf, count, datatype, source, recvtag, comm, request),
                        |request| $irecv(buf, count, datatype, source, recvtag, comm, request),
                        |request| {
                            $isend_one(from, packed, MPI_PACKED, dest, sendtag, comm, request)
                        },
                        Status::new(status),
                    )
                };
        }
    };
}

counted! {
    c_int; MPI_Recv PMPI_Recv PMPI_Recv_init PMPI_Irecv; MPI_Mrecv PMPI_Mrecv PMPI_Imrecv;
    send MPI_Send PMPI_Send PMPI_Isend; send MPI_Ssend PMPI_Ssend PMPI_Issend;
    send MPI_Rsend PMPI_Rsend PMPI_Irsend;
    exchange MPI_Sendrecv PMPI_Sendrecv PMPI_Isend;
    replace MPI_Sendrecv_replace PMPI_Sendrecv_replace PMPI_Pack_size PMPI_Pack
}

#[cfg(mpi_large_count)]
counted! {
    MPI_Count; MPI_Recv_c PMPI_Recv_c PMPI_Recv_init_c PMPI_Irecv_c;
    MPI_Mrecv_c PMPI_Mrecv_c PMPI_Imrecv_c;
    send MPI_Send_c PMPI_Send_c PMPI_Isend_c; send MPI_Ssend_c PMPI_Ssend_c PMPI_Issend_c;
    send MPI_Rsend_c PMPI_Rsend_c PMPI_Irsend_c;
    exchange MPI_Sendrecv_c PMPI_Sendrecv_c PMPI_Isend_c;
    replace MPI_Sendrecv_replace_c PMPI_Sendrecv_replace_c PMPI_Pack_size_c PMPI_Pack_c
}

interpose! {
    drive::must_drive_now;
    MPI_Probe(source: c_int, tag: c_int, comm: MPI_Comm, status: *mut MPI_Status) => PMPI_Probe,
        drive::until_flag(|flag| PMPI_Iprobe(source, tag, comm, flag, status));
    MPI_Mprobe(
        source: c_int, tag: c_int, comm: MPI_Comm, message: *mut MPI_Message,
        status: *mut MPI_Status
    ) => PMPI_Mprobe,
        drive::until_flag(|flag| PMPI_Improbe(source, tag, comm, flag, message, status));
}
