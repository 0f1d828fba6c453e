//! `MPI_Init`, `MPI_Init_thread` and `MPI_Finalize`: agree on the settings, start this library, and
//! complete pending work before the host finalizes.

#[cfg(mpi_sessions)]
pub(crate) mod session;

use std::ffi::{c_char, c_int};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::mpi::abi::error::boundary;
use crate::mpi::abi::host::exports;
use crate::mpi::abi::host_calls;
use crate::mpi::abi::sys::*;
use crate::mpi::abi::world;
use crate::mpi::bootstrap::{self, communicators, rdma};
use crate::mpi::collective;
use crate::mpi::datatype;
use crate::mpi::datatype::derived;
use crate::mpi::progress::drive;
use crate::mpi::progress::hook;
use crate::mpi::request;
use crate::mpi::request::task::pause::{self, task_multiple};
use crate::mpi::window;
use crate::runtime::config::{self, Collectives, Reach, Serve, Settings};
use crate::runtime::process::{self, Host};
use crate::runtime::{continuations, enter, progress, thread};

/// Initializes the host, then this library.
///
/// # Safety
/// As MPI says of the call.
#[inline(never)]
pub unsafe extern "C" fn MPI_Init(argc: *mut c_int, argv: *mut *mut *mut c_char) -> c_int {
    boundary("MPI_Init", || {
        let mut provided = 0;
        // SAFETY: the application's arguments, passed on, and an int of ours.
        let code = unsafe {
            if wants_thread() {
                PMPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &raw mut provided)
            } else {
                PMPI_Init(argc, argv)
            }
        };
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
        let pauses = required == task_multiple();
        // MPI allows a host to provide a higher level than required.
        let required = if wants_thread() || pauses { MPI_THREAD_MULTIPLE } else { required };
        WANTS_PAUSES.store(pauses, Ordering::Relaxed);
        // SAFETY: the application's arguments, passed on.
        let code = unsafe { PMPI_Init_thread(argc, argv, required, provided) };
        let code = start_after(code);
        // SAFETY: the host has written the level there if it gives success.
        unsafe { with_pauses(code, provided) }
    })
}

/// `MPI_Init_thread` was called with `MPI_TASK_MULTIPLE`.
static WANTS_PAUSES: AtomicBool = AtomicBool::new(false);

/// Replaces the level that a call of the host has written by `MPI_TASK_MULTIPLE` if tasks are
/// paused. Returns the call's code.
///
/// # Safety
/// `provided` points to an int if the code is `MPI_SUCCESS`.
unsafe fn with_pauses(code: c_int, provided: *mut c_int) -> c_int {
    if code == MPI_SUCCESS && pause::is_enabled() {
        // SAFETY: the contract of this function.
        unsafe { provided.write(task_multiple()) };
    }
    code
}

/// The host's level, or `MPI_TASK_MULTIPLE`.
///
/// # Safety
/// As MPI says of the call.
#[inline(never)]
pub unsafe extern "C" fn MPI_Query_thread(provided: *mut c_int) -> c_int {
    boundary("MPI_Query_thread", || {
        // SAFETY: the application's argument, passed on.
        let code = unsafe { PMPI_Query_thread(provided) };
        // SAFETY: the host has written the level there if it gives success.
        unsafe { with_pauses(code, provided) }
    })
}

exports! {
    MPI_Init(argc: *mut c_int, argv: *mut *mut *mut c_char);
    MPI_Init_thread(
        argc: *mut c_int, argv: *mut *mut *mut c_char, required: c_int, provided: *mut c_int);
    MPI_Query_thread(provided: *mut c_int);
    MPI_Finalize();
}

/// Whether the settings ask for a progress thread. It completes requests of the host, so it needs
/// `MPI_THREAD_MULTIPLE` [PR-2].
fn wants_thread() -> bool {
    Settings::read(world::look_up).0.progress_thread()
}

/// Starts this library if the host's call succeeded, and returns the host's error code.
fn start_after(code: c_int) -> c_int {
    if code == MPI_SUCCESS {
        // SAFETY: MPI has just been initialized by this thread, and no other may call before this
        // one returns.
        unsafe { start() };
    }
    code
}

/// Numbers in one agreement: the settings, whether collectives cannot run on schedules of this
/// library, whether sessions were opened, and whether blocking calls must be driven. Each is sent
/// with both signs, so that one maximum yields maximum and minimum.
const AGREED: usize = config::COUNT + 3;

/// # Safety
/// MPI is initialized, and no other thread is in this library or in MPI.
unsafe fn start() {
    let (mine, complaints) = Settings::read(world::look_up);
    let mut rank = 0;
    host_calls::comm_rank(MPI_COMM_WORLD, &mut rank);
    let level = note_thread_level();
    progress::set_oversubscribed(is_oversubscribed());
    let pauses = level == MPI_THREAD_MULTIPLE && WANTS_PAUSES.load(Ordering::Relaxed);
    let (settings, [no_schedules, sessions, loops], differing) = agree(mine, pauses);
    start_log(rank, &settings, &complaints);
    if rank == 0 && differing {
        log::warn!(
            "the MPIX_RMA settings differ between processes; those of rank 0 of MPI_COMM_WORLD \
             are used"
        );
    }
    // SAFETY: MPI is initialized, and no other thread is in here (contract of this function).
    unsafe { datatype::fill(true) };
    if settings.serve() != Serve::Off {
        let own = communicators::open_own();
        hook::use_comm(Some(own));
        request::use_comm(Some(own));
    }
    // With MPIX_RMA=off no process ever has pending work of this library, so nothing is driven. But
    // sessions that are already open could not know the settings of other processes.
    drive::set_driven(loops && (settings.serve() != Serve::Off || sessions));
    if pauses && settings.serve() != Serve::Off && !pause::turn_on() {
        log::info!(
            "MPI_TASK_MULTIPLE: no runtime that pauses tasks is loaded; calls wait in place"
        );
    }
    world::begin();
    set_up(settings, level);
    let (setting, attaches) = (settings.collectives(), settings.cma());
    if settings.serve() != Serve::Off && !no_schedules {
        collective::open(setting, attaches);
    }
    if settings.serve() != Serve::Off && !sessions && setting != Collectives::Host {
        collective::persistent::open(setting, attaches, &window::FOR_COLLECTIVES);
    }
    if settings.serve() != Serve::Off && needs_messages(&settings) {
        bootstrap::open_job();
    }
    log_start(rank);
}

/// Whether windows may have peers that are reached by messages. All processes get the same answer.
fn needs_messages(settings: &Settings) -> bool {
    settings.reach().is_far() || (settings.reach() == Reach::Auto && !world::on_one_node())
}

/// Whether `MPI_Init` or a session has started this library.
#[cfg(mpi_sessions)]
pub(crate) fn is_started() -> bool {
    enter().settings.is_some()
}

/// Reads the thread level that the host provides, and tells the runtime whether it is
/// `MPI_THREAD_MULTIPLE`.
fn note_thread_level() -> c_int {
    let mut level = 0;
    host_calls::query_thread(&mut level);
    process::set_multiple(level == MPI_THREAD_MULTIPLE);
    level
}

/// Gives the runtime its settings and the functions of the host, and starts the progress thread.
fn set_up(settings: Settings, level: c_int) {
    request::set_max_alive(settings.max_requests());
    rdma::set_max_qps(settings.max_queues());
    let mut guard = enter();
    let again = guard.settings.is_some();
    guard.host = Host { progress_host: hook::progress_host, complete: request::complete };
    guard.settings = Some(settings);
    drop(guard);
    if settings.progress_thread() && settings.serve() != Serve::Off && !again {
        start_thread(level);
    }
}

/// Starts this library at the first session, without an agreement. This process has rank `rank` of
/// `size`.
#[cfg(mpi_sessions)]
pub(crate) fn start_alone(rank: c_int, size: c_int) {
    let (settings, complaints) = Settings::read(world::look_up);
    start_log(rank, &settings, &complaints);
    let level = note_thread_level();
    // SAFETY: this thread has just initialized MPI, and all others that open a session wait.
    unsafe { datatype::fill(false) };
    // Launchers export the number of processes on this node.
    let here = ["MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE"]
        .iter()
        .find_map(|name| world::look_up(name)?.parse().ok());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    progress::set_oversubscribed(here.unwrap_or(size as usize) > cores);
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
    rdma::close();
    drive::set_driven(false);
}

/// Agrees on the settings, which are those of rank 0. Also returns the three answers of [`AGREED`],
/// each true if it is true of any process, and whether settings differed.
fn agree(mine: Settings, pauses: bool) -> (Settings, [bool; 3], bool) {
    let mut numbers = [0 as c_int; AGREED];
    for (number, value) in numbers.iter_mut().zip(mine.0) {
        *number = value as c_int;
    }
    #[cfg(mpi_sessions)]
    {
        numbers[AGREED - 2] = c_int::from(session::ever());
    }
    // A host with a hook can call this library while it blocks. Processes of a session without
    // MPI_Init have not agreed on anything.
    numbers[AGREED - 3] = c_int::from(hook::exists() || numbers[AGREED - 2] != 0);
    let by_hook = hook::exists() && (!needs_messages(&mine) || hook::takes_messages());
    numbers[AGREED - 1] = c_int::from(!by_hook || pauses);
    let mut ends = [0 as c_int; 2 * AGREED];
    for (at, number) in numbers.iter().enumerate() {
        ends[at] = *number;
        ends[AGREED + at] = -*number;
    }
    // Nothing is agreed yet, so all processes make the host's blocking call.
    host_calls::allreduce_ints(&mut ends, MPI_MAX, MPI_COMM_WORLD);
    // If one process must drive its blocking calls, all processes do.
    let answers = [3, 2, 1].map(|from_end| ends[AGREED - from_end] != 0);
    let differing = (0..config::COUNT).any(|at| ends[at] != -ends[AGREED + at]);
    if differing {
        // All processes have the same maxima, so all of them come here.
        host_calls::bcast_ints(&mut numbers, MPI_COMM_WORLD);
    }
    let settings = Settings(std::array::from_fn(|at| i64::from(numbers[at])));
    (settings, answers, differing)
}

/// Starts the progress thread [PR-2].
fn start_thread(level: c_int) {
    if level != MPI_THREAD_MULTIPLE {
        log::warn!(
            "MPIX_RMA_PROGRESS=thread: the host does not provide MPI_THREAD_MULTIPLE; this process \
             runs without a progress thread"
        );
    } else if let Err(error) = thread::start() {
        log::warn!(
            "MPIX_RMA_PROGRESS=thread: no thread could be started ({error}); this process runs \
             without a progress thread"
        );
    }
}

/// True if the node is oversubscribed: its ranks outnumber the cores that they may run on. Also
/// notes whether the job has one node only.
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
    // SAFETY: the call writes at most `size_of_val(&cores)` bytes, the array's size.
    unsafe { libc::sched_getaffinity(0, size_of_val(&cores), (&raw mut cores).cast()) };
    cores
}

/// Logs, once in a job, the versions and who drives progress.
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

/// Starts the log. Each line has the rank, since launchers merge the standard error of all
/// processes. Rank 0 logs what is wrong with the settings.
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
    // This fails if an application in Rust has installed a logger already, which is used then.
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
    collective::free_windows();
    complete_rest("MPI_Finalize");
    request::free_spare_requests();
    // Other processes may need this one until they get here too, and the host's own MPI_Finalize
    // would not drive our windows. By the blocking call where the host's hook drives them: a faulty
    // program may have left the communicator unusable for nonblocking collectives.
    if drive::collectives() {
        drive::barrier(MPI_COMM_WORLD);
    } else {
        host_calls::barrier(MPI_COMM_WORLD);
    }
    enter().network.end_job();
    world::end();
    derived::release();
    #[cfg(mpi_sessions)]
    if session::is_open() {
        // Windows of sessions stay usable, with a communicator of our own session.
        hook::use_comm(None);
        request::use_comm(None);
        communicators::close_own();
        bootstrap::own_session::settle();
        return;
    }
    collective::close();
    thread::stop();
    hook::remove_and_wait();
    hook::use_comm(None);
    // The attribute delete callbacks run in the host's MPI_Finalize, and may still use a window
    // that was not freed.
    request::use_comm(Some(MPI_COMM_SELF));
    communicators::close_own();
    enter().settings = None;
    rdma::close();
    drive::set_driven(false);
    // If a process hangs after this line, the host hangs.
    log::info!("finalised; the host's own MPI_Finalize follows");
}

/// Completes closed epochs and freed requests [RQ-2]. An open epoch can block later ones forever,
/// so nothing is completed if there is one.
fn complete_rest(call: &str) {
    let continuations = continuations::pending();
    if continuations != 0 {
        log::warn!("{call}: abandoning {continuations} continuations that have not ended");
    }
    if progress::nothing_lives() {
        return;
    }
    let open = {
        let mut guard = enter();
        let engines = guard.windows.iter_mut().map(|window| &window.engine);
        engines.filter(|engine| engine.has_open_epoch() || engine.awaits_counters()).count()
    };
    if open != 0 {
        return log::warn!(
            "{call}: abandoning {open} windows with open epochs or pending waits for counters"
        );
    }
    while !progress::all_quiet() {
        progress::sweep_from_hook();
        hook::progress_host();
        std::thread::yield_now();
    }
}
