//! The host's calls that are safe functions here: they take references, handles, and arguments of
//! the application with the types of `argument` and `status`.
//!
//! Every handle in this library comes from the application or from the host. The host itself checks
//! those of the application. [`Handle::of`] only restores handles from their [`Handle::key`].

use std::cell::Cell;
use std::ffi::{CStr, c_int, c_void};
use std::ptr::{null, null_mut};

use smallvec::SmallVec;

use super::argument::{Out, OutList, count_of, first_of};
use super::status::{Status, Statuses};
use super::sys::*;

macro_rules! host_calls {
    ($(
        $(#[$attr:meta])*
        $name:ident$(<const $size:ident: usize>)?($($arg:ident: $type:ty),*) =
            $host:ident($($passed:expr),*);
    )*) => {$(
        $(#[$attr])*
        #[inline]
        pub(crate) fn $name$(<const $size: usize>)?($($arg: $type),*) -> c_int {
            // SAFETY: each pointer comes from a reference, or from an argument of the application
            // whose type says that this call may read and write there; lists are passed with their
            // lengths. Handles are as the module says. The host keeps no pointer beyond the call.
            unsafe { $host($($passed),*) }
        }
    )*};
}

// Each makes the host's call of this name and returns its error code.
host_calls! {
    comm_rank(comm: MPI_Comm, rank: &mut c_int) = PMPI_Comm_rank(comm, rank);
    comm_size(comm: MPI_Comm, size: &mut c_int) = PMPI_Comm_size(comm, size);
    comm_test_inter(comm: MPI_Comm, inter: &mut c_int) = PMPI_Comm_test_inter(comm, inter);
    comm_group(comm: MPI_Comm, group: &mut MPI_Group) = PMPI_Comm_group(comm, group);
    comm_create(comm: MPI_Comm, group: MPI_Group, created: &mut MPI_Comm) =
        PMPI_Comm_create(comm, group, created);
    comm_split(comm: MPI_Comm, color: c_int, key: c_int, part: &mut MPI_Comm) =
        PMPI_Comm_split(comm, color, key, part);
    comm_set_name(comm: MPI_Comm, name: &CStr) = PMPI_Comm_set_name(comm, name.as_ptr());
    comm_free(comm: &mut MPI_Comm) = PMPI_Comm_free(comm);
    comm_get_errhandler(comm: MPI_Comm, handler: &mut MPI_Errhandler) =
        PMPI_Comm_get_errhandler(comm, handler);
    error_class(code: c_int, class: &mut c_int) = PMPI_Error_class(code, class);
    comm_set_errhandler(comm: MPI_Comm, handler: MPI_Errhandler) =
        PMPI_Comm_set_errhandler(comm, handler);
    comm_call_errhandler(comm: MPI_Comm, code: c_int) = PMPI_Comm_call_errhandler(comm, code);
    win_get_errhandler(win: MPI_Win, handler: &mut MPI_Errhandler) =
        PMPI_Win_get_errhandler(win, handler);
    win_set_errhandler(win: MPI_Win, handler: MPI_Errhandler) =
        PMPI_Win_set_errhandler(win, handler);
    win_call_errhandler(win: MPI_Win, code: c_int) = PMPI_Win_call_errhandler(win, code);
    errhandler_free(handler: &mut MPI_Errhandler) = PMPI_Errhandler_free(handler);
    add_error_code(class: c_int, code: &mut c_int) = PMPI_Add_error_code(class, code);
    query_thread(level: &mut c_int) = PMPI_Query_thread(level);

    // Makes a communicator of the processes on this node.
    comm_split_node(comm: MPI_Comm, node: &mut MPI_Comm) =
        PMPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, node);
    // Reduces in place.
    allreduce_ints(numbers: &mut [c_int], op: MPI_Op, comm: MPI_Comm) =
        PMPI_Allreduce(
            MPI_IN_PLACE, numbers.as_mut_ptr().cast(), numbers.len() as c_int, MPI_INT, op, comm);
    // Broadcasts from rank 0.
    bcast_ints(numbers: &mut [c_int], comm: MPI_Comm) =
        PMPI_Bcast(numbers.as_mut_ptr().cast(), numbers.len() as c_int, MPI_INT, 0, comm);

    // Windows without memory.
    win_create_dynamic(info: MPI_Info, comm: MPI_Comm, win: &mut MPI_Win) =
        PMPI_Win_create_dynamic(info, comm, win);
    win_create_empty(info: MPI_Info, comm: MPI_Comm, win: &mut MPI_Win) =
        PMPI_Win_create(null_mut(), 0, 1, info, comm, win);
    win_free(win: &mut MPI_Win) = PMPI_Win_free(win);
    win_set_info(win: MPI_Win, info: MPI_Info) = PMPI_Win_set_info(win, info);
    win_get_info(win: MPI_Win, info: &mut MPI_Info) = PMPI_Win_get_info(win, info);
    group_size(group: MPI_Group, size: &mut c_int) = PMPI_Group_size(group, size);
    #[cfg(mpi_sessions)]
    group_rank(group: MPI_Group, rank: &mut c_int) = PMPI_Group_rank(group, rank);
    group_free(group: &mut MPI_Group) = PMPI_Group_free(group);
    // Another handle of the same group.
    group_copy(group: MPI_Group, copy: &mut MPI_Group) = PMPI_Group_excl(group, 0, null(), copy);

    type_size(datatype: MPI_Datatype, size: &mut MPI_Count) = PMPI_Type_size_x(datatype, size);
    type_extent(datatype: MPI_Datatype, lower: &mut MPI_Count, extent: &mut MPI_Count) =
        PMPI_Type_get_extent_x(datatype, lower, extent);
    type_true_extent(datatype: MPI_Datatype, lower: &mut MPI_Count, extent: &mut MPI_Count) =
        PMPI_Type_get_true_extent_x(datatype, lower, extent);
    // Gets the numbers of integers, addresses, counts and datatypes. The large form serves
    // datatypes that were made by either form.
    #[cfg(mpi_large_count)]
    type_envelope(datatype: MPI_Datatype, numbers: &mut [MPI_Count; 4], combiner: &mut c_int) =
        PMPI_Type_get_envelope_c(
            datatype, &raw mut numbers[0], &raw mut numbers[1], &raw mut numbers[2],
            &raw mut numbers[3], combiner);
    #[cfg(not(mpi_large_count))]
    type_envelope(datatype: MPI_Datatype, numbers: &mut [c_int; 4], combiner: &mut c_int) =
        PMPI_Type_get_envelope(
            datatype, &raw mut numbers[0], &raw mut numbers[1], &raw mut numbers[3], combiner);
    // Fails if a list is shorter than the envelope says.
    #[cfg(mpi_large_count)]
    type_contents(
        datatype: MPI_Datatype, integers: &mut [c_int], addresses: &mut [MPI_Aint],
        counts: &mut [i64], types: &mut [MPI_Datatype]
    ) =
        PMPI_Type_get_contents_c(
            datatype, integers.len() as MPI_Count, addresses.len() as MPI_Count,
            counts.len() as MPI_Count, types.len() as MPI_Count, integers.as_mut_ptr(),
            addresses.as_mut_ptr(), counts.as_mut_ptr().cast(), types.as_mut_ptr());
    #[cfg(not(mpi_large_count))]
    type_contents(
        datatype: MPI_Datatype, integers: &mut [c_int], addresses: &mut [MPI_Aint],
        _counts: &mut [i64], types: &mut [MPI_Datatype]
    ) =
        PMPI_Type_get_contents(
            datatype, integers.len() as c_int, addresses.len() as c_int, types.len() as c_int,
            integers.as_mut_ptr(), addresses.as_mut_ptr(), types.as_mut_ptr());
    // Makes a datatype of `count` elements that begin `by` bytes further.
    type_moved(datatype: MPI_Datatype, count: c_int, by: isize, moved: &mut MPI_Datatype) =
        PMPI_Type_create_hindexed(1, &raw const count, &(by as MPI_Aint), datatype, moved);
    type_commit(datatype: &mut MPI_Datatype) = PMPI_Type_commit(datatype);
    type_free(datatype: &mut MPI_Datatype) = PMPI_Type_free(datatype);
    type_free_keyval(key: &mut c_int) = PMPI_Type_free_keyval(key);
    comm_free_keyval(key: &mut c_int) = PMPI_Comm_free_keyval(key);
    // Fails unless the datatype is valid.
    pack_size_of_none(datatype: MPI_Datatype, comm: MPI_Comm, size: &mut c_int) =
        PMPI_Pack_size(0, datatype, comm, size);
    // Fails unless the datatype is committed.
    pack_none(buffer: &mut [u8; 16], datatype: MPI_Datatype, position: &mut c_int, comm: MPI_Comm) =
        PMPI_Pack(
            buffer.as_ptr().cast(), 0, datatype, buffer.as_mut_ptr().cast(), 0, position, comm);

    #[cfg(mpi_sessions)]
    session_finalize(session: &mut MPI_Session) = PMPI_Session_finalize(session);
    // Returns the group of a process set.
    #[cfg(mpi_sessions)]
    session_group(session: MPI_Session, set: &CStr, group: &mut MPI_Group) =
        PMPI_Group_from_session_pset(session, set.as_ptr(), group);
    #[cfg(mpi_sessions)]
    comm_from_group(group: MPI_Group, tag: &CStr, comm: &mut MPI_Comm) =
        PMPI_Comm_create_from_group(group, tag.as_ptr(), MPI_INFO_NULL, MPI_ERRORS_RETURN, comm);

    info_dup(info: MPI_Info, copy: &mut MPI_Info) = PMPI_Info_dup(info, copy);
    info_free(info: &mut MPI_Info) = PMPI_Info_free(info);
    info_delete(info: MPI_Info, key: &CStr) = PMPI_Info_delete(info, key.as_ptr());
    info_set(info: MPI_Info, key: &CStr, value: &CStr) =
        PMPI_Info_set(info, key.as_ptr(), value.as_ptr());
    info_value_length(info: MPI_Info, key: &CStr, length: &mut c_int, flag: &mut c_int) =
        PMPI_Info_get_valuelen(info, key.as_ptr(), length, flag);
    // Gets a value with its NUL, truncated to the array.
    info_get<const N: usize>(info: MPI_Info, key: &CStr, value: &mut [u8; N], flag: &mut c_int) =
        PMPI_Info_get(info, key.as_ptr(), N as c_int - 1, value.as_mut_ptr().cast(), flag);

    start(request: &Cell<MPI_Request>) = PMPI_Start(request.as_ptr());
    request_free(request: &Cell<MPI_Request>) = PMPI_Request_free(request.as_ptr());
    cancel(request: &Cell<MPI_Request>) = PMPI_Cancel(request.as_ptr());
    barrier(comm: MPI_Comm) = PMPI_Barrier(comm);
    ibarrier(comm: MPI_Comm, request: &Cell<MPI_Request>) = PMPI_Ibarrier(comm, request.as_ptr());
    // Receives nothing from rank 0.
    irecv_nothing(comm: MPI_Comm, request: &mut MPI_Request) =
        PMPI_Irecv(null_mut(), 0, MPI_BYTE, 0, 0, comm, request);
    grequest_complete(request: MPI_Request) = PMPI_Grequest_complete(request);
    wait(request: &Cell<MPI_Request>, status: Status<'_>) =
        PMPI_Wait(request.as_ptr(), status.as_ptr());
    test(request: &Cell<MPI_Request>, flag: &mut c_int, status: Status<'_>) =
        PMPI_Test(request.as_ptr(), flag, status.as_ptr());
    request_get_status(request: MPI_Request, flag: &mut c_int) =
        PMPI_Request_get_status(request, flag, MPI_STATUS_IGNORE);
    test_any(
        requests: &[Cell<MPI_Request>], index: &mut c_int, flag: &mut c_int, status: Status<'_>
    ) =
        PMPI_Testany(count_of(requests), first_of(requests), index, flag, status.as_ptr());
    test_some(
        requests: &[Cell<MPI_Request>], number: &mut c_int, indices: OutList<'_, c_int>,
        statuses: Statuses<'_>
    ) =
        PMPI_Testsome(
            count_of(requests), first_of(requests), number, indices.as_ptr(count_of(requests)),
            statuses.as_ptr(count_of(requests)));
    // Makes a persistent request that receives nothing.
    null_recv_init(comm: MPI_Comm, request: &mut MPI_Request) =
        PMPI_Recv_init(null_mut(), 0, MPI_BYTE, MPI_PROC_NULL, 0, comm, request);
}

/// The class of an error code. `MPI_ERR_OTHER`: the host does not know the code.
pub(crate) fn class_of(code: c_int) -> c_int {
    let mut class = MPI_ERR_OTHER;
    error_class(code, &mut class);
    class
}

/// Makes a request that is already complete, by sending nothing to `MPI_PROC_NULL`.
#[inline]
pub(crate) fn null_isend(comm: MPI_Comm, request: Out<'_, MPI_Request>) -> c_int {
    if request.is_null() {
        return MPI_ERR_ARG;
    }
    // SAFETY: no byte is read; `request` is memory for a request, since it is not NULL.
    unsafe { PMPI_Isend(null(), 0, MPI_BYTE, MPI_PROC_NULL, 0, comm, request.as_ptr()) }
}

/// Makes a shared-memory window of zero bytes.
pub(crate) fn win_allocate_empty(info: MPI_Info, comm: MPI_Comm, win: &mut MPI_Win) -> c_int {
    let mut nothing: *mut c_void = null_mut();
    // SAFETY: both places are this function's or its caller's, and handles are as the module says.
    unsafe { PMPI_Win_allocate_shared(0, 1, info, comm, (&raw mut nothing).cast(), win) }
}

/// Translates the ranks `0..size` of a group to ranks in `other`. A process outside `other` gets
/// MPI_UNDEFINED as a u32, which is larger than any rank. `None`: the host's call failed.
pub(crate) fn ranks_within(
    group: MPI_Group,
    size: c_int,
    other: MPI_Group,
) -> Option<SmallVec<[u32; 16]>> {
    // Small groups, as most are, need no list of their ranks made.
    static FIRST: [c_int; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
    let all: Vec<c_int>;
    let own = match FIRST.get(..size as usize) {
        Some(own) => own,
        None => {
            all = (0..size).collect();
            &all
        }
    };
    let mut there = SmallVec::<[u32; 16]>::from_elem(0, own.len());
    // SAFETY: both lists have as many entries as the call is told, and an int has the layout of a
    // u32; handles are as the module says.
    let code = unsafe {
        PMPI_Group_translate_ranks(
            group,
            own.len() as c_int,
            own.as_ptr(),
            other,
            there.as_mut_ptr().cast(),
        )
    };
    (code == MPI_SUCCESS).then_some(there)
}

/// Opens a session of this library, in which errors return.
#[cfg(mpi_sessions)]
pub(crate) fn session_init() -> Option<MPI_Session> {
    let mut session = std::mem::MaybeUninit::uninit();
    // SAFETY: the call writes the session if it succeeds; it reads handles only.
    unsafe {
        let code = PMPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, session.as_mut_ptr());
        (code == MPI_SUCCESS).then(|| session.assume_init())
    }
}
