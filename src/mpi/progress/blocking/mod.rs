//! Blocking calls, made in their nonblocking form and driven here: of hosts without a progress hook
//! (MPICH before 4.3), and in tasks, which they pause, on every host [CO-4].
//!
//! - [`waits`]: Wait*, Test*, Request_get_status, which `mpi/request/completion.rs` interposes;
//!   Iprobe, Improbe.
//! - [`point_to_point`]: Recv, the Send family, Sendrecv, Probe and their kin.
//! - [`collectives`]: neighbourhood collectives. The others are in `mpi::collective`, which drives
//!   those that it does not serve.
//! - [`assembled`]: collective calls without one, after a nonblocking barrier of our own.
//!
//! On a host with a hook, outside tasks, all of them are passed to the host (`drive::collectives`
//! is false), except `MPI_Waitall` on MPICH.
//!
//! Not driven, because they have no nonblocking form and no barrier can precede them: collective
//! file operations after `MPI_File_open`, `MPI_Comm_create_group`, the exchange between the leaders
//! in `MPI_Intercomm_create`, `MPI_Buffer_detach`, and synchronization of windows that are left to
//! the host.
//!
//! Errors are those of the host's own calls, with one exception: where the processes of a
//! collective other than a broadcast give counts that do not match, MPICH's nonblocking forms
//! report nothing.
//!
//! Cost in ns, blocking form of the host and driven, with two ranks of MPICH 4.0.2 over shared
//! memory: `MPI_Barrier` 320 and 380, `MPI_Allreduce` of one int 310 and 720, `MPI_Bcast` of one
//! int 100 and 365, a ping-pong 255 and 258, with an idle window or without. All but 10 to 50 ns
//! are the host's nonblocking forms. With `MPIX_RMA=off` the host's blocking calls are made.
//! Collectives within a node take less than the blocking forms (`docs/design/collectives.md`).

mod assembled;
mod collectives;
pub(crate) use collectives::broadcast as broadcast_at_host;
mod point_to_point;
pub(crate) mod waits;

/// Interposes calls: each is driven where `when` is true, and otherwise goes to the host.
macro_rules! interpose {
    ($when:path; $(
        $name:ident($($arg:ident: $type:ty),* $(,)?) => $host:ident, $driven:expr;
    )*) => {
        $(
            /// Interposed so that this library makes progress while it waits [PR-1].
            ///
            /// # Safety
            /// As MPI says of the call.
            #[inline(never)]
            #[allow(clippy::too_many_arguments)]
            pub unsafe extern "C" fn $name($($arg: $type),*) -> std::ffi::c_int {
                if $crate::mpi::progress::drive::drives_nothing() {
                    // SAFETY: the application's arguments, passed on.
                    return unsafe { $host($($arg),*) };
                }
                $crate::mpi::abi::error::boundary(stringify!($name), || {
                    // SAFETY: the application's arguments, passed on.
                    unsafe { if $when() { $driven } else { $host($($arg),*) } }
                })
            }
        )*
        $crate::mpi::abi::host::exports! { $($name($($arg: $type),*);)* }
    };
}
pub(crate) use interpose;
