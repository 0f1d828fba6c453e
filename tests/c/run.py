#!/usr/bin/env python3
"""Compiles the C programs in this folder and the Fortran programs in tests/fortran against an
installed library, and runs them under mpiexec.

  run.py --host NAME [--host NAME ...] [--prefix NAME=DIR] [--mpicc NAME=CMD]
         [--mpiexec NAME=CMD] [--only REGEX] ...

NAME is any name; its mpiexec tells whether it is MPICH or Open MPI. Defaults: target/prefix-NAME,
mpicc.NAME, mpiexec.NAME. The Fortran compiler has mpif90 in place of mpicc in its name. `testlist`
has one entry per line:

  name ranks seconds [key=value ...]

  arg=WORD       argument of the program (may repeat)
  env=NAME=VALUE environment variable of the processes (may repeat)
  mode=          link (default: by pkg-config), static, preload (linked with the host only),
                 plain (without the library), alone (without MPI: the program loads the library),
                 openmp (with gcc's), libomp (with clang and its OpenMP), c++20,
                 tasks (the program exports a tasking runtime), tampi (the same, written for TAMPI),
                 ours-first, other-first (the same, beside another TAMPI, in this link order)
  result=        ok (default: exit status 0 and a line OK), exit (status 0),
                 death or fatal (the job must end with another status)
  expect=REGEX   must occur in the output (may repeat; `_` stands for a space)
  reject=REGEX   must not occur
  host=          mpich or openmpi: only on this kind of host
  program=NAME   a linked program from --programs instead of one that is compiled here
  tag=WORD       selected by --tag

Lines of output that begin with NOTE are shown. After an entry, none of its processes and no new
segment in /dev/shm may be left. The last line is "N passed, N failed".

--host-may-hang SECONDS, for MPICH 4.0.2 alone: if a job has printed OK and every process has
finished this library's part of MPI_Finalize, the host alone is hanging. The job is ended after that
many seconds, counted as passed, and reported. --build-only compiles and runs nothing; --built runs
what was compiled, on machines where compiling is slow. MPIX_TEST_SLOWDOWN in the environment
multiplies time limits.
"""
import argparse
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
FORTRAN = os.path.join(os.path.dirname(HERE), "fortran")
# Left in /dev/shm by plain hosts when a process is killed.
HOST_SEGMENTS = re.compile(r"^(mpich|vader_segment|sm_segment|osc_|psm|sem\.|ompi|prte|pmix|ucx"
                           r"|memory_ucx|hwloc|__KMP_)", re.I)
FLAGS = ["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-Wno-error=stringop-overflow",
         "-Wno-stringop-overflow"]


class Host:
    """An MPI library: its commands, and where this library is installed for it."""

    def __init__(self, name, options):
        self.name = name
        self.prefix = os.path.abspath(options.prefix.get(name, os.path.join(ROOT, "target",
                                                                            f"prefix-{name}")))
        self.mpicc = options.mpicc.get(name, f"mpicc.{name}")
        self.mpiexec = options.mpiexec.get(name, f"mpiexec.{name}")
        self.mpif90 = self.mpicc.replace("mpicc", "mpif90")
        self.build = os.path.join(os.path.abspath(options.build), name)
        self.programs = os.path.join(os.path.abspath(options.programs), name)
        os.makedirs(self.build, exist_ok=True)
        version = subprocess.run([self.mpiexec, "--version"], capture_output=True, text=True)
        self.kind = "openmpi" if re.search(r"open.?mpi|openrte|prrte", version.stdout
                                           + version.stderr, re.I) else "mpich"
        # Between network namespaces this release alone hangs in MPI_Finalize now and then.
        self.may_hang = bool(re.search(r"^ *Version: +4\.0\.2$", version.stdout, re.M))
        # Open MPI 5 asks its UCX component about each new window. UCX scans all network devices,
        # which takes milliseconds, and prints an error if there is no fast network.
        self.settings = []
        number = re.search(r"open.?mpi\)?\s+v?(\d+)\.", version.stdout, re.I)
        if number and int(number[1]) >= 5 and "OMPI_MCA_osc" not in os.environ:
            self.settings = ["--mca", "osc", "^ucx"]
        env = dict(os.environ, PKG_CONFIG_PATH=f"{self.prefix}/lib/pkgconfig")
        self.linked = self.headers = None
        if not options.plain:
            ask = lambda what, library: shlex.split(
                subprocess.check_output(["pkg-config", what, library], env=env, text=True))
            self.headers, self.linked = ask("--cflags", "mpix-rma"), ask("--libs", "mpix-rma")
            self.tampi = ask("--cflags", "mpix-tampi") + ask("--libs", "mpix-tampi")

    def command(self, ranks, env, wrap, program, args):
        """The whole mpiexec command line. MPICH passes the environment on, Open MPI needs each
        name."""
        if self.kind == "mpich":
            line = [self.mpiexec]
            for key, value in env.items():
                line += ["-genv", key, value]
        else:
            line = [self.mpiexec, "--oversubscribe"] + self.settings + (["--allow-run-as-root"]
                                                                        if os.geteuid() == 0
                                                                        else [])
            for key, value in env.items():
                line += ["-x", f"{key}={value}"]
        return line + ["-n", str(ranks)] + wrap + [program] + args


class Entry:
    """One line of the test list."""

    def __init__(self, line):
        words = line.split()
        self.name, self.ranks, self.limit = words[0], int(words[1]), float(words[2])
        self.args, self.env, self.tags, self.expect, self.reject = [], {}, [], [], []
        self.mode, self.result, self.host, self.program = "link", "ok", None, None
        for word in words[3:]:
            key, _, value = word.partition("=")
            if key == "arg":
                self.args.append(value)
            elif key == "env":
                name, _, text = value.partition("=")
                self.env[name] = text
            elif key == "tag":
                self.tags.append(value)
            elif key in ("expect", "reject"):
                getattr(self, key).append(value.replace("_", " "))
            elif key in ("mode", "result", "host", "program"):
                setattr(self, key, value)
            else:
                raise SystemExit(f"testlist: unknown key {key}=: {line}")
        self.title = " ".join([self.name] + words[3:])

    def binary(self, host):
        if self.program:
            return os.path.join(host.programs, self.program)
        return os.path.join(host.build, f"{self.name}.{self.mode}")


# Modes that compile with OpenMP: with the host's compiler (gcc's libgomp), and with clang's libomp.
OPENMP = ("openmp", "libomp")


# The complete programs in the user documentation: page, language, number on the page.
EXAMPLES = {
    "example_fence": ("getting-started.md", "c", 0),
    "example_fortran": ("getting-started.md", "fortran", 0),
    "example_counters": ("notified-access.md", "c", 0),
    "example_tags": ("notified-access.md", "c", 1),
    "example_persistent": ("persistent-epochs.md", "c", 0),
    "example_continuations": ("continuations.md", "c", 0),
}


def example(name):
    """Returns a complete program of a page of docs/user, and the extension of its file."""
    page, language, number = EXAMPLES[name]
    with open(os.path.join(ROOT, "docs", "user", page)) as f:
        blocks = re.findall(rf"^```{language}\n(.*?)^```", f.read(), re.M | re.S)
    programs = [b for b in blocks if re.search(r"\bint main\(|^program ", b, re.M)]
    if number >= len(programs):
        raise SystemExit(f"docs/user/{page} prints {len(programs)} complete {language} programs")
    return programs[number], ".c" if language == "c" else ".f90"


def source_of(entry, host):
    if entry.name in EXAMPLES:
        text, ending = example(entry.name)
        path = os.path.join(host.build, entry.name + ending)
        with open(path, "w") as f:
            f.write(text)
        return path
    for folder, ending in ((HERE, ".c"), (HERE, ".cpp"), (FORTRAN, ".F90"), (FORTRAN, ".f90")):
        path = os.path.join(folder, entry.name + ending)
        if os.path.exists(path):
            return path
    raise SystemExit(f"testlist: no program {entry.name}")


def compile_line(entry, host, source, sanitize):
    if source.endswith(("F90", "f90")):
        return compile_fortran(entry, host, source)
    line = shlex.split(host.mpicc)
    if source.endswith(".cpp"):
        line += ["-x", "c++", "-Wall", "-Wextra", "-Werror"]
    elif entry.name in EXAMPLES:
        pass  # as printed
    else:
        line += FLAGS
    line += ["-I", HERE, source, "-x", "none", "-o", entry.binary(host)] + sanitize
    if entry.mode == "link":
        line += host.headers + host.linked
    elif entry.mode in OPENMP:
        unknown = ["-Wno-unknown-warning-option"] if entry.mode == "libomp" else []
        line += ["-fopenmp", *unknown] + host.headers + host.linked
    elif entry.mode == "tasks":  # the program is a tasking runtime, which the library finds
        line += ["-rdynamic"] + host.headers + host.linked
    elif entry.mode == "tampi":
        line += ["-rdynamic"] + host.tampi
    elif entry.mode in TWO_TAMPIS:
        other = other_tampi(host, entry.mode)
        first, last = TWO_TAMPIS[entry.mode](host.tampi, other)
        line += ["-rdynamic", "-Wl,--no-as-needed"] + first + last
    elif entry.mode == "c++20":
        line += ["-std=c++20"] + host.headers + host.linked + ["-lstdc++"]
    elif entry.mode == "static":
        line += host.headers + [f"{host.prefix}/lib/libmpix_rma.a", "-lpthread", "-ldl", "-lm"]
    else:
        # In this order: with `alone`, the linker drops unused libraries, also those of the wrapper.
        line += ["-DPLAIN"] + (["-Wl,--as-needed"] if entry.mode == "alone" else [])
    return line + ([] if entry.name in EXAMPLES else ["-lpthread", "-ldl"])


# Which library comes first.
TWO_TAMPIS = {"ours-first": lambda ours, other: (ours, other),
              "other-first": lambda ours, other: (other, ours)}


def other_tampi(host, mode):
    """Makes the library that stands for TAMPI itself; what the linker needs for it. Another mode's
    program may be linked with it meanwhile, so it gets its name when it is whole."""
    library = os.path.join(host.build, "libother_tampi.so")
    made = f"{library}.{mode}"
    subprocess.check_call(shlex.split(host.mpicc) + FLAGS + [
        "-fPIC", "-shared", "-o", made, os.path.join(HERE, "other_tampi.c")])
    os.replace(made, library)
    return [library, f"-Wl,-rpath,{host.build}"]


def compile_fortran(entry, host, source):
    """A Fortran program; if linked, with the module as installed."""
    modules = entry.binary(host) + ".modules"
    os.makedirs(modules, exist_ok=True)
    line = shlex.split(host.mpif90) + ["-O1", "-g", "-Wall", "-Werror=conversion", f"-J{modules}",
                                       f"-I{FORTRAN}"]
    if entry.mode == "link":
        line += [f"-I{host.prefix}/include", f"{host.prefix}/include/mpix_rma_f08.f90"]
    return line + [source, "-o", entry.binary(host)] + (host.linked if entry.mode == "link" else [])


def compile_all(entries, hosts, jobs, sanitize):
    """Compiles each program once per host and mode. Returns the compiler's output of each
    failure."""
    wanted = {}
    for host in hosts:
        for entry in entries:
            if entry.program:
                continue
            wanted.setdefault(entry.binary(host), (entry, host))
    failed = {}

    def one(item):
        binary, (entry, host) = item
        source = source_of(entry, host)
        if source.endswith(".cpp"):
            probe = subprocess.run(shlex.split(host.mpicc)
                                   + ["-x", "c++", "-fsyntax-only", "/dev/null"],
                                   capture_output=True)
            if probe.returncode:
                failed[binary] = "SKIP there is no C++ compiler"
                return
        if source.endswith(("F90", "f90")) and not shutil.which(shlex.split(host.mpif90)[0]):
            failed[binary] = f"SKIP there is no {host.mpif90}"
            return
        if entry.mode == "libomp" and not shutil.which("clang"):
            failed[binary] = "SKIP there is no clang"
            return
        # The compiler of MPICH's and of Open MPI's wrapper.
        clang = {"MPICH_CC": "clang", "OMPI_CC": "clang"} if entry.mode == "libomp" else {}
        run = subprocess.run(compile_line(entry, host, source, sanitize), capture_output=True,
                             text=True, env={**os.environ, **clang})
        if run.returncode:
            failed[binary] = run.stderr + run.stdout

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, wanted.items()))
    return failed


def processes_of(binary):
    """Processes that run the binary, also under a wrapper such as valgrind."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            running = os.readlink(f"/proc/{pid}/exe")
            words = open(f"/proc/{pid}/cmdline", "rb").read().decode(errors="replace").split("\0")
        except OSError:
            continue  # ended, a zombie, or another user's
        if running == binary or ("valgrind" in os.path.basename(running) and binary in words):
            found.append(int(pid))
    return found


def segments(of_hosts=False):
    """Names of segments in /dev/shm: those of the hosts, or all others."""
    try:
        return {n for n in os.listdir("/dev/shm") if bool(HOST_SEGMENTS.match(n)) == of_hosts}
    except OSError:
        return set()


# Segments of hosts that were there before this run.
FOREIGN = segments(of_hosts=True)


def sweep():
    """Removes segments that a killed host left: later tests need the memory."""
    left = segments(of_hosts=True) - FOREIGN
    if not left:
        return
    mapped = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            mapped.update(re.findall(r"/dev/shm/(\S+)", open(f"/proc/{pid}/maps").read()))
        except OSError:
            pass  # ended
    for name in left - mapped:
        path = f"/dev/shm/{name}"
        try:
            # A newer one may belong to a job of another runner, about to map it.
            if time.time() - os.stat(path).st_mtime > 5:
                os.unlink(path)
        except OSError:
            pass  # removed by its host meanwhile


def memory_available():
    kilobytes = re.search(r"^MemAvailable: *(\d+)", open("/proc/meminfo").read(), re.M)
    return f"{int(kilobytes[1]) / 2**20:.1f} GiB" if kilobytes else "unknown"


def until(condition, seconds):
    """Polls `condition`. A launcher needs a moment to tear a killed job down."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


RUNNING = {}  # the running job: its launcher and its program


def kill_job(launcher, binary):
    """Ends a job: first by its launcher, then any remaining processes by process id."""
    os.killpg(launcher.pid, signal.SIGTERM)
    try:
        output, _ = launcher.communicate(timeout=10)
    except subprocess.TimeoutExpired:
        os.killpg(launcher.pid, signal.SIGKILL)
        kill_processes(binary)
        output, _ = launcher.communicate()
    return output


def kill_processes(binary):
    for pid in processes_of(binary):
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass


def leave(number, _frame):
    """Signal handler: ends the running job with the runner."""
    if RUNNING:
        kill_job(**RUNNING)
        kill_processes(RUNNING["binary"])
    sys.exit(128 + number)


# A line, or the end of a line of the library's log: Open MPI's launcher writes standard output
# between two pieces of standard error.
SAYS_OK = r"(?m)^(mpix-rma \[\d+\] .*)?OK$"
FINALISED = re.compile(rb"^mpix-rma \[(\d+)\] info: finalised; the host's own MPI_Finalize "
                       rb"follows$", re.M)


class HostHangs(Exception):
    """Only the host's own MPI_Finalize has not returned."""


def wait_for(process, entry, limit, grace):
    """The output of a job that ends within its limit. With `grace`, raises HostHangs once only the
    host has been left for that many seconds."""
    if not grace or entry.result not in ("ok", "exit"):
        return process.communicate(timeout=limit)[0]
    chunks, pipe = [], os.dup(process.stdout.fileno())

    def read():
        while chunk := os.read(pipe, 1 << 16):
            chunks.append(chunk)
        os.close(pipe)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    end, since = time.monotonic() + limit, None
    while reader.is_alive() or process.poll() is None:
        reader.join(0.05)
        if process.poll() is not None:
            reader.join(10)
            break
        now, output = time.monotonic(), b"".join(chunks)
        said = [SAYS_OK] if entry.result == "ok" else entry.expect
        finalised = len(set(FINALISED.findall(output)))
        done = finalised >= entry.ranks and all(re.search(t.encode(), output) for t in said)
        since = (since or now) if done else None
        if since and now - since > grace:
            raise HostHangs(output)
        if now > end:
            raise subprocess.TimeoutExpired(process.args, limit, output)
    return b"".join(chunks)


def run_one(entry, host, options):
    """Returns what is wrong (None if it passed), and the output."""
    env = dict(entry.env)
    if entry.mode == "preload":
        env["LD_PRELOAD"] = os.path.join(host.prefix, "lib", "libmpix_rma.so")
        env["EXPECT_LIBRARY"] = "1"
    if entry.mode == "alone":
        env["TEST_LIBRARY"] = os.path.join(host.prefix, "lib", "libmpix_rma.so")
    may_hang = options.host_may_hang if host.may_hang else 0
    if may_hang:
        env.setdefault("MPIX_RMA_LOG", "info")
    for item in options.env:
        key, _, value = item.partition("=")
        env[key] = value
    binary = os.path.realpath(entry.binary(host))
    limit = entry.limit * options.slowdown
    before = segments()
    process = subprocess.Popen(
        host.command(entry.ranks, env, options.wrap, binary, entry.args),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=True, cwd=host.build)
    RUNNING.update(launcher=process, binary=binary)
    wrong, code = [], None
    try:
        output = wait_for(process, entry, limit, may_hang)
        code = process.returncode
    except HostHangs as hang:
        kill_job(process, binary)
        output, code = hang.args[0] + b"\nNOTE the host hung in its own MPI_Finalize\n", 0
    except subprocess.TimeoutExpired as late:
        wrong.append(f"still running after {limit:.0f} s")
        if options.autopsy:
            try:
                subprocess.run([*options.autopsy, binary], timeout=200)
            except subprocess.TimeoutExpired:
                print("the autopsy does not end")
        if options.stacks:
            for pid in processes_of(binary):
                subprocess.run(["gdb", "-batch", "-p", str(pid), "-ex", "thread apply all bt 12"],
                               stderr=subprocess.DEVNULL)
        output = getattr(late, "output", None) or b""
        output += kill_job(process, binary) or b""
    RUNNING.clear()
    output = output.decode(errors="replace")
    if not until(lambda: not processes_of(binary), 5):
        wrong.append("processes left behind: %s" % processes_of(binary))
        kill_processes(binary)
    if not until(lambda: not segments() - before, 2):
        wrong.append("segments left behind: %s" % sorted(segments() - before))
    sweep()
    skip = re.search(r"^SKIP (.*)$", output, re.M)
    if skip and code == 0 and not wrong:
        return "SKIP " + skip.group(1), output
    if not wrong:
        if entry.result in ("ok", "exit"):
            if code != 0:
                wrong.append(f"exit status {code}")
            if entry.result == "ok" and not re.search(SAYS_OK, output):
                wrong.append("no line OK")
        elif code == 0:
            wrong.append("exit status 0")
        if entry.result == "fatal" and not output.strip():
            wrong.append("it ended without output")
        wrong += [f"the output lacks /{e}/" for e in entry.expect if not re.search(e, output)]
        wrong += [f"the output has /{e}/" for e in entry.reject if re.search(e, output)]
    return "; ".join(wrong) or None, output


def pairs(words):
    return dict(word.split("=", 1) for word in words)


def add_host_options(parser):
    """Adds the options that `hosts_of` reads."""
    parser.add_argument("--host", action="append", required=True)
    for name in ("prefix", "mpicc", "mpiexec"):
        parser.add_argument(f"--{name}", action="append", default=[], metavar="NAME=VALUE")


def hosts_of(options):
    """The hosts of a command line."""
    for name in ("prefix", "mpicc", "mpiexec"):
        setattr(options, name, pairs(getattr(options, name)))
    return [Host(name, options) for name in options.host]


def leave_at_signals():
    """Has `leave` handle the signals that end a program."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, leave)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add_host_options(parser)
    parser.add_argument("--build", default=os.path.join(ROOT, "target", "ctests"))
    parser.add_argument("--programs", default=os.path.join(ROOT, "target", "microbench"),
                        help="DIR/NAME has the programs of entries with program=")
    parser.add_argument("--list", default=os.path.join(HERE, "testlist"))
    parser.add_argument("--only", help="regular expression on `name ranks key=value...`")
    parser.add_argument("--tag", help="only entries with one of these tags: WORD[,WORD]")
    parser.add_argument("--max-ranks", type=int, default=64)
    parser.add_argument("--mode", help="only entries of this mode")
    parser.add_argument("--names", action="store_true", help="print the entries and exit")
    parser.add_argument("--build-only", action="store_true")
    parser.add_argument("--built", action="store_true")
    parser.add_argument("--plain", action="store_true",
                        help="run mode=plain and mode=preload entries on the plain hosts, to test "
                             "the tests")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--wrap", type=shlex.split, default=[],
                        help="command in front of each process, such as valgrind")
    parser.add_argument("--sanitize", type=shlex.split, default=[],
                        help="additional compiler flags")
    parser.add_argument("--slowdown", type=float,
                        default=float(os.environ.get("MPIX_TEST_SLOWDOWN", "1")))
    parser.add_argument("--host-may-hang", type=float, default=0, metavar="SECONDS",
                        help="in its MPI_Finalize")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--stacks", action="store_true", help="print gdb stacks at the time limit")
    parser.add_argument("--autopsy", type=shlex.split, metavar="COMMAND",
                        help="run with the program's path at the time limit")
    parser.add_argument("-v", "--verbose", action="store_true",
                        help="show the output of passing tests too")
    options = parser.parse_args()
    leave_at_signals()
    lines = [line.split("#")[0].strip() for line in open(options.list)]
    entries = [Entry(line) for line in lines if line]
    if options.plain:
        entries = [e for e in entries if e.mode in ("plain", "preload")]
        for e in entries:
            e.mode, e.expect = "plain", []
    chosen = [e for e in entries
              if (not options.only or re.search(options.only, f"{e.name} {e.ranks} {e.title}"))
              and (not options.tag or set(options.tag.split(",")) & set(e.tags))
              and (not options.mode or e.mode == options.mode)
              and e.ranks <= options.max_ranks]
    if options.names:
        print("".join(f"{e.title}\n" for e in chosen), end="")
        return 0
    hosts = hosts_of(options)
    start = time.monotonic()
    broken = {} if options.built else compile_all(chosen, hosts, options.jobs, options.sanitize)
    if not options.built:
        print(f"{len({e.name for e in chosen})} programs compiled for "
              f"{', '.join(h.name for h in hosts)} in {time.monotonic() - start:.0f} s", flush=True)
    if options.build_only:
        print("".join(f"{binary} does not compile\n{words}" for binary, words in broken.items()),
              end="", flush=True)
        return 1 if broken else 0
    passed, hung, failed, skipped = 0, 0, [], []
    width = min(max([len(e.title) for e in chosen] + [10]), 90)
    for _ in range(options.repeat):
        for host in hosts:
            for entry in chosen:
                if entry.host and entry.host != host.kind:
                    continue
                begin = time.monotonic()
                if entry.binary(host) in broken:
                    wrong, output = broken[entry.binary(host)], ""
                    if not wrong.startswith("SKIP"):
                        wrong, output = "does not compile", wrong
                        broken[entry.binary(host)] = ""  # print it once
                else:
                    wrong, output = run_one(entry, host, options)
                word = "ok  " if not wrong else "SKIP" if wrong.startswith("SKIP") else "FAIL"
                print(f"{word} {host.name:8} {entry.title:{width}} {entry.ranks} ranks "
                      f"{time.monotonic() - begin:7.2f} s"
                      + (f"  {wrong}" if wrong else ""), flush=True)
                for note in re.findall(r"^NOTE (.*)$", output, re.M):
                    print(f"     {note}", flush=True)
                hung += "NOTE the host hung in its own MPI_Finalize" in output
                if word == "FAIL":
                    print(f"     | memory available now: {memory_available()}", flush=True)
                if word == "FAIL" or options.verbose:
                    print("".join(f"     | {line}\n" for line in output.splitlines()[-40:]), end="",
                          flush=True)
                if word == "ok  ":
                    passed += 1
                elif word == "SKIP":
                    skipped.append(f"{host.name} {entry.title}: {wrong[5:]}")
                else:
                    failed.append(f"{host.name} {entry.title}, {entry.ranks} ranks: {wrong}")
    for title, those in (("skipped", skipped), ("failed", failed)):
        if those:
            print(f"{title}:\n  " + "\n  ".join(those))
    print(f"C programs: {time.monotonic() - start:.0f} s")
    if hung:
        print(f"the host hung in its own MPI_Finalize, after all was done, in {hung} of them")
    print(f"{passed} passed, {len(failed)} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
