//! Blocking calls of hosts without a progress hook (MPICH before 4.3), made in their nonblocking form and driven here.
//!
//! - [`waits`]: Wait*, Test*, Request_get_status.
//! - [`point_to_point`]: Recv, the Send family, Sendrecv, Probe and their kin.
//! - [`collectives`]: every blocking collective, by its nonblocking twin.
//! - [`assembled`]: collective calls without such a twin, after a nonblocking barrier of our own.
//!
//! On a host with a hook the same build passes all of them on (`drive::collectives` is false), but for `MPI_Waitall`.
//!
//! Not driven while they block, because there is nothing to wait for in their place: collective file operations after
//! `MPI_File_open`, `MPI_Comm_create_group`, the leaders' meeting in `MPI_Intercomm_create`, `MPI_Buffer_detach`, and the
//! synchronisation of windows that are left to the host.
//!
//! What it costs: two ranks on MPICH 4.0.2, `MPI_Barrier` and `MPI_Allreduce` of one int, see `docs/ARCHITECTURE.md`.

mod assembled;
mod collectives;
mod point_to_point;
mod waits;

/// Interposes a call: `direct` to the host, or `driven` by us where `when` says so.
macro_rules! interpose {
    ($when:path; $($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),* $(,)?) => $host:ident, $driven:expr;)*) => {$(
        $(#[$doc])*
        /// Interposed so that our windows are driven while it waits [PR-1].
        ///
        /// # Safety
        /// As MPI says of the call.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> std::ffi::c_int {
            $crate::mpi::error::boundary(stringify!($name), || {
                if $when() {
                    // SAFETY: the application's arguments, passed on.
                    unsafe { $driven }
                } else {
                    // SAFETY: as above.
                    unsafe { $host($($arg),*) }
                }
            })
        }
    )*};
}
pub(super) use interpose;
