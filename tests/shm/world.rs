//! The processes of a window as threads of one process.

use std::io::Write;
use std::process::Command;
use std::sync::{Arc, Barrier, Mutex, Once, OnceLock};

use mpix_rma::engine::*;
use mpix_rma::transport::Proposal;
use mpix_rma::transport::datatype::element::{FIRST_FOREIGN, native_extent};
use mpix_rma::transport::shm::*;

/// The command that runs this test's binary, if the processor cannot (`make test-aarch64`).
fn emulator() -> Option<String> {
    std::env::var("MPIX_TEST_EMULATOR").ok().filter(|command| !command.is_empty())
}

/// Whether the system has cross-memory attach. An emulator of one process does not implement it;
/// then windows fall back to active copying.
pub fn attaches() -> bool {
    static ATTACHES: OnceLock<bool> = OnceLock::new();
    *ATTACHES.get_or_init(|| {
        let (from, mut to) = (7u64, 0u64);
        let piece = |at: *mut u64| libc::iovec { iov_base: at.cast(), iov_len: 8 };
        let (local, remote) = (piece(&raw mut to), piece((&raw const from).cast_mut()));
        let pid = std::process::id() as i32;
        let moved = unsafe { libc::process_vm_readv(pid, &local, 1, &remote, 1, 0) };
        let refused = (moved < 0).then(std::io::Error::last_os_error);
        assert!(refused.is_some() || to == from);
        refused.is_none_or(|error| error.raw_os_error() != Some(libc::ENOSYS))
    })
}

/// Whether to skip `what`, which needs cross-memory attach. If so, says it on standard error, past
/// the capture of the tests' output.
pub fn skips_without_attach(what: &str) -> bool {
    if !attaches() {
        _ = writeln!(std::io::stderr(), "SKIPPED {what}: no process_vm_readv on this system");
    }
    !attaches()
}

/// Runs the body of the test `name` in a process of its own, without other tests.
pub fn in_own_process(name: &str, body: impl FnOnce()) {
    const OWN: &str = "MPIX_TEST_OWN_PROCESS";
    if std::env::var_os(OWN).is_some() {
        return body();
    }
    let test = std::env::current_exe().unwrap();
    let emulator = emulator().unwrap_or_default();
    let mut words = emulator.split_whitespace().map(Into::into).chain([test.into_os_string()]);
    let mut command = Command::new(words.next().unwrap());
    let child = command.args(words).args(["--exact", name]).env(OWN, "1").output().unwrap();
    let [said, errors] = [&child.stdout, &child.stderr].map(|text| String::from_utf8_lossy(text));
    let passed = child.status.success() && said.contains("1 passed");
    assert!(passed, "{name}: {}: {said}{errors}", child.status);
    for line in errors.lines().filter(|line| line.starts_with("SKIPPED")) {
        _ = writeln!(std::io::stderr(), "{line}");
    }
}

/// The bootstrap of one thread: gathers through a shared buffer between barriers.
#[derive(Clone)]
pub struct World {
    pub rank: Rank,
    pub size: u32,
    barrier: Arc<Barrier>,
    buffer: Arc<Mutex<Vec<u8>>>,
}

impl World {
    pub fn barrier(&self) {
        self.barrier.wait();
    }

    /// A window of `size` bytes per rank in shared memory.
    pub fn allocate(&self, size: u64) -> ShmWindow {
        self.try_window(Memory::Allocate { size, align: 1 }, true).unwrap()
    }

    /// A window on this thread's own memory.
    pub fn create(&self, memory: &mut [u8], cma: bool) -> ShmWindow {
        let base = Addr(memory.as_mut_ptr() as usize);
        self.try_window(Memory::Create { base, size: memory.len() as u64 }, cma).unwrap()
    }

    pub fn try_window(&self, memory: Memory, cma: bool) -> Result<ShmWindow, SetupError> {
        ShmWindow::new(
            &mut self.clone(),
            memory,
            1,
            Settings { cma, oversubscribed: false, foreign_reduce },
        )
    }
}

impl Bootstrap for World {
    fn rank(&self) -> Rank {
        self.rank
    }
    fn size(&self) -> u32 {
        self.size
    }
    fn allgather(&mut self, mine: &[u8], all: &mut [u8]) {
        let len = mine.len();
        assert_eq!(all.len(), len * self.size as usize);
        {
            let mut buffer = self.buffer.lock().unwrap();
            buffer.resize(all.len(), 0);
            buffer[self.rank as usize * len..][..len].copy_from_slice(mine);
        }
        self.barrier();
        all.copy_from_slice(&self.buffer.lock().unwrap());
        self.barrier();
        if self.rank == 0 {
            self.buffer.lock().unwrap().clear();
        }
        self.barrier();
    }
}

/// Lets panics be printed past the capture of the tests' output, which an abort would lose.
fn say_panics_at_once() {
    static SAYS: Once = Once::new();
    SAYS.call_once(|| {
        std::panic::set_hook(Box::new(|panic| _ = writeln!(std::io::stderr(), "{panic}")));
    });
}

/// Runs `body` on `size` threads, one per rank.
pub fn run(size: u32, body: impl Fn(World) + Sync) {
    say_panics_at_once();
    let barrier = Arc::new(Barrier::new(size as usize));
    let buffer = Arc::default();
    std::thread::scope(|scope| {
        for rank in 0..size {
            let world =
                World { rank, size, barrier: Arc::clone(&barrier), buffer: Arc::clone(&buffer) };
            let body = &body;
            scope.spawn(move || {
                // The other ranks would wait for a rank that fails, so end the test.
                let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(world)));
                if result.is_err() {
                    std::process::abort();
                }
            });
        }
    });
}

/// A foreign datatype of 12 bytes: f64 value and i32 index, like MPI_DOUBLE_INT without padding.
pub const PAIR: Element = Element(FIRST_FOREIGN + 1);
pub const PAIR_EXTENT: u8 = 12;

unsafe fn foreign_reduce(
    element: Element,
    reduction: Reduction,
    input: *const u8,
    inout: *mut u8,
    count: usize,
) {
    use mpix_rma::transport::datatype::element::reduction::MAXLOC;
    assert_eq!((element, reduction), (PAIR, MAXLOC));
    for i in 0..count {
        unsafe {
            let (a, b) = (inout.add(12 * i), input.add(12 * i));
            let (x, y) = (a.cast::<f64>().read_unaligned(), b.cast::<f64>().read_unaligned());
            if y > x {
                std::ptr::copy_nonoverlapping(b, a, 12);
            }
        }
    }
}

/// An operation without buffers.
pub fn op(kind: OpKind, target: Rank, disp: u64, len: usize) -> Op {
    Op {
        origin: Addr(0),
        result: Addr(0),
        compare: Addr(0),
        disp,
        len: len as u64,
        target,
        kind,
        element: Element(0),
        reduction: Reduction(0),
        extent: 1,
        shape: None,
        notification: None,
    }
}

/// Datatype and reduction.
pub type How = (Element, Reduction);

pub fn extent(element: Element) -> u8 {
    native_extent(element).unwrap_or(PAIR_EXTENT)
}

/// Calls that complete one operation each.
pub trait Drive {
    fn finish(&mut self, op: &Op);
    fn put(&mut self, target: Rank, disp: u64, from: &[u8]);
    fn get(&mut self, target: Rank, disp: u64, to: &mut [u8]);
    fn accumulate(&mut self, target: Rank, disp: u64, how: How, from: &[u8]);
    fn get_accumulate(&mut self, target: Rank, disp: u64, how: How, from: &[u8], to: &mut [u8]);
    fn compare_and_swap(
        &mut self,
        target: Rank,
        disp: u64,
        compare: &[u8],
        from: &[u8],
        to: &mut [u8],
    );
}

impl Drive for ShmWindow {
    fn finish(&mut self, op: &Op) {
        let ticket = Ticket(0x1000_0000 + op.disp as u32);
        let mut local = false;
        loop {
            match self.post(op, ticket) {
                Posted::Complete => return,
                Posted::Local => local = true,
                Posted::Pending => {}
                Posted::NoResource => {
                    self.poll();
                    assert_eq!(self.next_finished(), None);
                    std::thread::yield_now();
                    continue;
                }
            }
            break;
        }
        loop {
            self.poll();
            match self.next_finished() {
                Some((done, Stage::Local)) => {
                    assert_eq!(done, ticket);
                    assert!(!std::mem::replace(&mut local, true), "local completion twice");
                }
                Some((done, Stage::Remote)) => {
                    assert_eq!(done, ticket);
                    assert_eq!(self.next_finished(), None);
                    return;
                }
                None => std::thread::yield_now(),
            }
        }
    }

    fn put(&mut self, target: Rank, disp: u64, from: &[u8]) {
        let origin = Addr(from.as_ptr() as usize);
        self.finish(&Op { origin, ..op(OpKind::Put, target, disp, from.len()) });
    }

    fn get(&mut self, target: Rank, disp: u64, to: &mut [u8]) {
        let result = Addr(to.as_mut_ptr() as usize);
        self.finish(&Op { result, ..op(OpKind::Get, target, disp, to.len()) });
    }

    fn accumulate(&mut self, target: Rank, disp: u64, (element, reduction): How, from: &[u8]) {
        let origin = Addr(from.as_ptr() as usize);
        let extent = extent(element);
        self.finish(&Op {
            origin,
            element,
            reduction,
            extent,
            ..op(OpKind::Accumulate, target, disp, from.len())
        });
    }

    fn get_accumulate(
        &mut self,
        target: Rank,
        disp: u64,
        (element, reduction): How,
        from: &[u8],
        to: &mut [u8],
    ) {
        assert_eq!(from.len(), to.len());
        let (origin, result) = (Addr(from.as_ptr() as usize), Addr(to.as_mut_ptr() as usize));
        let extent = extent(element);
        let op = op(OpKind::GetAccumulate, target, disp, from.len());
        self.finish(&Op { origin, result, element, reduction, extent, ..op });
    }

    fn compare_and_swap(
        &mut self,
        target: Rank,
        disp: u64,
        compare: &[u8],
        from: &[u8],
        to: &mut [u8],
    ) {
        let (origin, result) = (Addr(from.as_ptr() as usize), Addr(to.as_mut_ptr() as usize));
        let compare = Addr(compare.as_ptr() as usize);
        let extent = from.len() as u8;
        self.finish(&Op {
            origin,
            result,
            compare,
            extent,
            ..op(OpKind::CompareAndSwap, target, disp, from.len())
        });
    }
}

/// `len` bytes that depend on `seed`.
pub fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut bytes = vec![0; len];
    random.fill(&mut bytes);
    bytes
}

/// This rank's window memory.
pub fn own(window: &ShmWindow, disp: usize, len: usize) -> Vec<u8> {
    unsafe { std::slice::from_raw_parts((window.base().0 + disp) as *const u8, len) }.to_vec()
}

/// Writes this rank's window memory.
pub fn write_own(window: &ShmWindow, disp: usize, bytes: &[u8]) {
    unsafe { std::ptr::copy(bytes.as_ptr(), (window.base().0 + disp) as *mut u8, bytes.len()) };
}

/// A barrier in which everybody polls, as processes do that wait in MPI.
pub fn barrier(window: &mut ShmWindow) {
    window.propose(Proposal::Ready);
    while window.decision().is_none() {
        window.poll();
        std::thread::yield_now();
    }
}

/// Where the window memory is and how others reach it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    Allocated,
    Attached,
    Copied,
}

pub const FLAVOURS: [Flavour; 3] = [Flavour::Allocated, Flavour::Attached, Flavour::Copied];

impl World {
    /// A window of `memory.len()` bytes, in `memory` if it is created.
    pub fn window(&self, flavour: Flavour, memory: &mut [u8]) -> ShmWindow {
        let window = match flavour {
            Flavour::Allocated => self.allocate(memory.len() as u64),
            Flavour::Attached => self.create(memory, true),
            Flavour::Copied => self.create(memory, false),
        };
        let words = match flavour {
            Flavour::Allocated => "shared memory",
            Flavour::Attached if attaches() => "shared memory + cross-memory attach",
            Flavour::Attached | Flavour::Copied => "shared memory + active copying",
        };
        if self.size > 1 {
            assert_eq!(window.describe(), words);
        }
        window
    }
}

#[allow(unused_imports)]
pub use mpix_rma::transport::datatype::element::native::*;

/// Operations in flight. Each must report its stages once.
#[derive(Default)]
pub struct Flight {
    /// By ticket: local completion was reported, remote completion was reported.
    seen: Vec<(bool, bool)>,
    open: usize,
}

impl Flight {
    pub fn post(&mut self, window: &mut ShmWindow, op: &Op) {
        let ticket = Ticket(self.seen.len() as u32);
        let seen = loop {
            match window.post(op, ticket) {
                Posted::Complete => break (true, true),
                Posted::Local => break (true, false),
                Posted::Pending => break (false, false),
                Posted::NoResource => self.drive(window),
            }
        };
        self.open += usize::from(!seen.1);
        self.seen.push(seen);
    }

    pub fn drive(&mut self, window: &mut ShmWindow) {
        if !window.poll() {
            std::thread::yield_now();
        }
        while let Some((Ticket(ticket), stage)) = window.next_finished() {
            let seen = &mut self.seen[ticket as usize];
            match stage {
                Stage::Local => {
                    assert!(!std::mem::replace(&mut seen.0, true), "local completion twice")
                }
                Stage::Remote => {
                    assert!(!std::mem::replace(&mut seen.1, true), "remote completion twice");
                    self.open -= 1;
                }
            }
        }
    }

    /// Whether an operation has not completed.
    pub fn is_open(&self) -> bool {
        self.open > 0
    }

    pub fn finish(mut self, window: &mut ShmWindow) {
        while self.open > 0 {
            self.drive(window);
        }
    }
}

/// Private memory that allocates only pages that are touched.
pub struct Sparse(pub *mut u8, usize);

impl Sparse {
    pub fn new(len: usize) -> Self {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED);
        Sparse(base.cast(), len)
    }
}

impl Drop for Sparse {
    fn drop(&mut self) {
        unsafe { libc::munmap(self.0.cast(), self.1) };
    }
}

/// Accesses to lock words, which shared memory answers at once.
pub trait LockWords {
    fn access(&mut self, home: Rank, word: LockWord, access: Atomic) -> u64;

    fn load(&mut self, home: Rank, word: LockWord) -> u64 {
        self.access(home, word, Atomic::Load)
    }
    fn store(&mut self, home: Rank, word: LockWord, value: u64) {
        self.access(home, word, Atomic::Store(value));
    }
    fn swap(&mut self, home: Rank, word: LockWord, value: u64) -> u64 {
        self.access(home, word, Atomic::Swap(value))
    }
    fn fetch_add(&mut self, home: Rank, word: LockWord, delta: u64) -> u64 {
        self.access(home, word, Atomic::Add(delta))
    }
    fn compare_swap(&mut self, home: Rank, word: LockWord, expected: u64, new: u64) -> u64 {
        self.access(home, word, Atomic::CompareSwap { expected, new })
    }
}

impl LockWords for ShmWindow {
    fn access(&mut self, home: Rank, word: LockWord, access: Atomic) -> u64 {
        match self.atomic(home, word, access, LockTicket(0)) {
            Answer::Now(old) => old,
            answer => panic!("shared memory answers at once, not {answer:?}"),
        }
    }
}
