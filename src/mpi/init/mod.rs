//! `MPI_Init`, `MPI_Init_thread` and `MPI_Finalize`: settings, agreements, and completion of what
//! is left.

#[cfg(mpi_sessions)]
pub(crate) mod session;

use std::ffi::{c_char, c_int};
use std::io::Write;

use crate::mpi::abi::error::boundary;
use crate::mpi::abi::host::exports;
use crate::mpi::abi::host_calls;
use crate::mpi::abi::sys::*;
use crate::mpi::abi::world;
use crate::mpi::bootstrap::{self, communicators};
use crate::mpi::datatype;
use crate::mpi::datatype::derived;
use crate::mpi::progress::drive;
use crate::mpi::progress::hook;
use crate::mpi::request;
use crate::runtime::config::{self, Reach, Serve, Settings};
use crate::runtime::process::{self, Host};
use crate::runtime::{enter, progress, thread};

/// Initializes the host, then this library.
///
/// # Safety
/// As MPI says of the call.
#[inline(never)]
pub unsafe extern "C" fn MPI_Init(argc: *mut c_int, argv: *mut *mut *mut c_char) -> c_int {
    boundary("MPI_Init", || {
        if Settings::read(world::look_up).0.progress_thread() {
            let mut provided = 0;
            // [PR-2] The thread of the library completes requests of the host.
            // SAFETY: the application's arguments, passed on, and an int of ours.
            return start_after(unsafe {
                PMPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &raw mut provided)
            });
        }
        // SAFETY: the application's arguments, passed on.
        let code = unsafe { PMPI_Init(argc, argv) };
        start_after(code)
    })
}

/// Initializes the host, then this library.
///
/// # Safety
/// As MPI says of the call.
#[inline(never)]
pub unsafe extern "C" fn MPI_Init_thread(
    argc: *mut c_int,
    argv: *mut *mut *mut c_char,
    required: c_int,
    provided: *mut c_int,
) -> c_int {
    boundary("MPI_Init_thread", || {
        // MPI allows a host to provide a higher level than required. [PR-2]
        let required = if Settings::read(world::look_up).0.progress_thread() {
            MPI_THREAD_MULTIPLE
        } else {
            required
        };
        // SAFETY: the application's arguments, passed on.
        let code = unsafe { PMPI_Init_thread(argc, argv, required, provided) };
        start_after(code)
    })
}

exports! {
    MPI_Init(argc: *mut c_int, argv: *mut *mut *mut c_char);
    MPI_Init_thread(
        argc: *mut c_int, argv: *mut *mut *mut c_char, required: c_int, provided: *mut c_int);
    MPI_Finalize();
}

fn start_after(code: c_int) -> c_int {
    if code == MPI_SUCCESS {
        // SAFETY: MPI has just been initialised by this thread, and no other may call before this
        // one returns.
        unsafe { start() };
    }
    code
}

/// Numbers in one agreement: the settings, whether there were sessions, and whether blocking calls
/// must be driven. Each is sent with both signs, so that one maximum yields maximum and minimum.
const AGREED: usize = config::COUNT + 2;

/// # Safety
/// MPI is initialised, and no other thread is in this library or in MPI.
unsafe fn start() {
    let (mine, complaints) = Settings::read(world::look_up);
    let rank = rank_of(MPI_COMM_WORLD);
    let mut level = 0;
    host_calls::query_thread(&mut level);
    process::set_multiple(level == MPI_THREAD_MULTIPLE);
    progress::set_oversubscribed(is_oversubscribed());
    let (settings, [loops, sessions], differing) = agree(mine);
    start_log(rank, &settings, &complaints);
    if rank == 0 && differing {
        log::warn!(
            "the MPIX_RMA settings differ between processes; those of rank 0 of MPI_COMM_WORLD \
             are used"
        );
    }
    // SAFETY: MPI is initialised.
    unsafe { datatype::fill(true) };
    request::set_max_alive(settings.max_requests());
    crate::mpi::bootstrap::rdma::set_max_qps(settings.max_queues());
    if settings.serve() != Serve::Off {
        let own = communicators::open_own();
        hook::use_comm(Some(own));
        request::use_comm(Some(own));
    }
    // With MPIX_RMA=off this library never has anything pending, in any process, so the host's own
    // calls are made. Sessions that were opened before could not know the setting of other
    // processes.
    drive::set_driven(loops && (settings.serve() != Serve::Off || sessions));
    world::begin();
    set_up(settings, level);
    if settings.serve() != Serve::Off && needs_messages(&settings) {
        bootstrap::open_job();
    }
    log_start(rank);
}

/// Whether windows may have peers that are reached by messages. The same in all processes.
fn needs_messages(settings: &Settings) -> bool {
    settings.reach().is_far() || (settings.reach() == Reach::Auto && !world::on_one_node())
}

/// True if settings have been read.
#[cfg(mpi_sessions)]
pub(crate) fn is_started() -> bool {
    enter().settings.is_some()
}

/// Gives the runtime its settings and the functions of the host, and starts the progress thread.
fn set_up(settings: Settings, level: c_int) {
    let mut guard = enter();
    let again = guard.settings.is_some();
    guard.host = Host { progress_host: hook::progress_host, complete: request::complete };
    guard.settings = Some(settings);
    drop(guard);
    if settings.progress_thread() && settings.serve() != Serve::Off && !again {
        start_thread(level);
    }
}

/// Starts this library at the first session, without an agreement. The process has this rank among
/// `size`.
#[cfg(mpi_sessions)]
pub(crate) fn start_alone(rank: c_int, size: c_int) {
    let (settings, complaints) = Settings::read(world::look_up);
    start_log(rank, &settings, &complaints);
    let mut level = 0;
    host_calls::query_thread(&mut level);
    // SAFETY: MPI is initialised, by this thread, while all others that come here wait.
    unsafe { datatype::fill(false) };
    process::set_multiple(level == MPI_THREAD_MULTIPLE);
    // Launchers export the number of processes on this node.
    let here = ["MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE"]
        .iter()
        .find_map(|name| world::look_up(name)?.parse().ok());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    progress::set_oversubscribed(here.unwrap_or(size as usize) > cores);
    request::set_max_alive(settings.max_requests());
    crate::mpi::bootstrap::rdma::set_max_qps(settings.max_queues());
    // A single process never waits for peers.
    let sends = settings.reach() != Reach::Shm;
    drive::set_driven((!hook::exists() || (sends && !hook::takes_messages())) && size > 1);
    set_up(settings, level);
    log_start(rank);
}

/// Shuts this library down at the end of the last session, in a process without `MPI_Init`.
#[cfg(mpi_sessions)]
pub(crate) fn finish_alone() {
    complete_rest("MPI_Session_finalize");
    request::free_spare_requests();
    derived::release();
    thread::stop();
    hook::remove_and_wait();
    enter().settings = None;
    crate::mpi::bootstrap::rdma::close();
    drive::set_driven(false);
}

/// True if a session of the application is open, or was `ever`.
#[cfg(mpi_sessions)]
fn sessions(ever: bool) -> bool {
    if ever { crate::mpi::init::session::ever() } else { crate::mpi::init::session::is_open() }
}

/// This host has no sessions.
#[cfg(not(mpi_sessions))]
fn sessions(_: bool) -> bool {
    false
}

/// Agrees on the settings, which are those of rank 0. Also gives whether blocking calls are driven,
/// whether there are sessions, and whether settings differed.
fn agree(mine: Settings) -> (Settings, [bool; 2], bool) {
    let mut numbers = [0 as c_int; AGREED];
    for (number, value) in numbers.iter_mut().zip(mine.0) {
        *number = value as c_int;
    }
    numbers[AGREED - 2] = c_int::from(sessions(true));
    numbers[AGREED - 1] =
        c_int::from(!hook::exists() || (needs_messages(&mine) && !hook::takes_messages()));
    let mut ends = [0 as c_int; 2 * AGREED];
    for (at, number) in numbers.iter().enumerate() {
        ends[at] = *number;
        ends[AGREED + at] = -*number;
    }
    // Nothing is agreed yet, so all processes make the host's blocking call.
    host_calls::allreduce_ints(&mut ends, MPI_MAX, MPI_COMM_WORLD);
    // If one process must drive its blocking calls, all of them use the same form.
    let (loops, sessions) = (ends[AGREED - 1] != 0, ends[AGREED - 2] != 0);
    let differing = (0..config::COUNT).any(|at| ends[at] != -ends[AGREED + at]);
    if differing {
        // All processes have the same maxima, so all of them come here.
        host_calls::bcast_ints(&mut numbers, MPI_COMM_WORLD);
    }
    let settings = Settings(std::array::from_fn(|at| i64::from(numbers[at])));
    (settings, [loops, sessions], differing)
}

/// Starts the progress thread [PR-2].
fn start_thread(level: c_int) {
    if level != MPI_THREAD_MULTIPLE {
        log::warn!(
            "MPIX_RMA_PROGRESS=thread: the host does not provide MPI_THREAD_MULTIPLE in this \
             process, which goes on without"
        );
    } else if let Err(error) = thread::start() {
        log::warn!(
            "MPIX_RMA_PROGRESS=thread: no thread could be started ({error}); this process goes on \
             without"
        );
    }
}

fn rank_of(comm: MPI_Comm) -> c_int {
    let mut rank = 0;
    host_calls::comm_rank(comm, &mut rank);
    rank
}

/// True if the node is oversubscribed: its ranks outnumber the cores that they may run on.
fn is_oversubscribed() -> bool {
    let mut node = MPI_COMM_NULL;
    if host_calls::comm_split_node(MPI_COMM_WORLD, &mut node) != MPI_SUCCESS
        || node == MPI_COMM_NULL
    {
        return false;
    }
    let (mut ranks, mut all) = (1, 0);
    host_calls::comm_size(node, &mut ranks);
    host_calls::comm_size(MPI_COMM_WORLD, &mut all);
    world::set_on_one_node(ranks == all);
    let mut cores = own_cores();
    host_calls::allreduce_ints(&mut cores, MPI_BOR, node);
    host_calls::comm_free(&mut node);
    let number: u32 = cores.iter().map(|word| word.count_ones()).sum();
    ranks.unsigned_abs() > number
}

/// The cores that this process may run on, as ints with a bit for each.
fn own_cores() -> [c_int; size_of::<libc::cpu_set_t>() / size_of::<c_int>()] {
    let mut cores = [0; _];
    // SAFETY: the call writes at most as many bytes as it is told, which is the array's size; no
    // core has a bit elsewhere.
    unsafe { libc::sched_getaffinity(0, size_of_val(&cores), (&raw mut cores).cast()) };
    cores
}

/// Says once in a job what has been started.
fn log_start(rank: c_int) {
    if rank == 0 {
        log::info!(
            "mpix-rma {} on {}; driven by {}",
            env!("CARGO_PKG_VERSION"),
            env!("MPIX_RMA_HOST"),
            hook::describe()
        );
    }
}

/// Each line has the rank, since launchers merge the standard error of all processes. Rank 0 says
/// what is wrong with the settings.
fn start_log(rank: c_int, settings: &Settings, complaints: &[String]) {
    let started = env_logger::Builder::new()
        .filter_level(settings.log())
        .target(env_logger::Target::Stderr)
        .format(move |out, record| {
            writeln!(
                out,
                "mpix-rma [{rank}] {}: {}",
                record.level().as_str().to_lowercase(),
                record.args()
            )
        })
        .try_init();
    // It fails if the application, written in Rust, has a logger already, which is used then.
    drop(started);
    for complaint in complaints.iter().filter(|_| rank == 0) {
        log::warn!("{complaint}");
    }
}

/// Completes closed epochs and freed requests [RQ-2], then finalizes the host.
///
/// # Safety
/// As MPI says of the call.
#[inline(never)]
pub unsafe extern "C" fn MPI_Finalize() -> c_int {
    boundary("MPI_Finalize", || {
        finish();
        // SAFETY: the application finalizes MPI.
        unsafe { PMPI_Finalize() }
    })
}

fn finish() {
    let started = enter().settings.is_some_and(|settings| settings.serve() != Serve::Off);
    if !started {
        return;
    }
    complete_rest("MPI_Finalize");
    request::free_spare_requests();
    // Others may need this process until they have come here too, and the host's own MPI_Finalize
    // would not drive our windows.
    drive::barrier(MPI_COMM_WORLD);
    enter().network.end_job();
    world::end();
    derived::release();
    #[cfg(mpi_sessions)]
    if sessions(false) {
        // Windows of sessions stay usable, on a communicator of our own session.
        hook::use_comm(None);
        request::use_comm(None);
        communicators::close_own();
        crate::mpi::init::session::settle();
        return;
    }
    thread::stop();
    hook::remove_and_wait();
    hook::use_comm(None);
    // The delete functions of attributes run in the host's MPI_Finalize, and may still use a window
    // that is not freed.
    request::use_comm(Some(MPI_COMM_SELF));
    communicators::close_own();
    enter().settings = None;
    crate::mpi::bootstrap::rdma::close();
    drive::set_driven(false);
    // If a process hangs from here on, the host hangs.
    log::info!("finalised; the host's own MPI_Finalize follows");
}

/// Completes closed epochs and freed requests [RQ-2].
fn complete_rest(call: &str) {
    if !progress::nothing_lives() {
        let epochs_open = {
            let mut guard = enter();
            let engines = guard.windows.iter_mut().map(|window| &window.engine);
            engines.filter(|engine| engine.has_open_epoch() || engine.awaits_counters()).count()
        };
        if epochs_open != 0 {
            log::warn!(
                "{call}: epochs are open, or waits for counters pending, on {epochs_open} windows; \
                 they are abandoned"
            );
        }
        // Complete closed epochs and freed requests. An open epoch can block later ones forever, so
        // do not wait if there is one.
        while epochs_open == 0 && !progress::all_quiet() {
            progress::sweep_from_hook();
            hook::progress_host();
            std::thread::yield_now();
        }
    }
}
