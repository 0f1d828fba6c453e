#!/usr/bin/env python3
"""Runs random programs on real ranks. tests/swarm generates them and predicts their outcome, and
executor.c runs many of them in one job.

  run.py --host NAME [--host NAME ...] [--seeds N] [--first N] [--ranks N,N] [--settings WORD,WORD]
  run.py --host NAME --seed N --ranks N --settings WORD [--skip N,N] [--repeat N]

Each host, number of ranks and setting has a job with N programs, whose seeds no other job runs.
Without --first, the seeds follow from the date. A job goes on after a difference, but not after a
hang or a crash (--keep-going: from the next seed on). --shrink leaves out transactions of a failing
program, as long as it fails.
"""
import argparse
import collections
import datetime
import os
import re
import struct
import subprocess
import sys
import time
from dataclasses import dataclass

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
C_TESTS = os.path.join(ROOT, "tests", "c")
NETNS = os.path.join(ROOT, "tests", "netns")
NODES = os.path.join(NETNS, "nodes.py")
sys.path.insert(0, C_TESTS)
import mutants  # noqa: E402
import run as c_tests  # noqa: E402


@dataclass
class Setting:
    """How a job runs: variables of docs/user/settings.md, threads of each process that run programs
    of their own, whether half of the processes are on another node (tests/netns), whether a second
    thread issues operations of the same program, and whether another process computes meanwhile."""

    env: dict
    threads: int = 1
    nodes: bool = False
    helped: bool = False
    loaded: bool = False


SETTINGS = {
    "shm": Setting({}),
    "cma-off": Setting({"MPIX_RMA_CMA": "off"}),
    "messages": Setting({"MPIX_RMA_TRANSPORT": "host_mpi"}),
    "progress": Setting({"MPIX_RMA_PROGRESS": "thread"}),
    "threads": Setting({}, threads=2),
    "helped": Setting({}, helped=True),
    "nodes": Setting({}, nodes=True),
    "progress-messages": Setting({"MPIX_RMA_PROGRESS": "thread",
                                  "MPIX_RMA_TRANSPORT": "host_mpi"}),
    "threads-messages": Setting({"MPIX_RMA_TRANSPORT": "host_mpi"}, threads=2),
    "threads-cma-off": Setting({"MPIX_RMA_CMA": "off"}, threads=2),
    "helped-messages": Setting({"MPIX_RMA_TRANSPORT": "host_mpi"}, helped=True),
    "helped-cma-off": Setting({"MPIX_RMA_CMA": "off"}, helped=True),
    "nodes-cma-off": Setting({"MPIX_RMA_CMA": "off"}, nodes=True),
    "nodes-progress": Setting({"MPIX_RMA_PROGRESS": "thread"}, nodes=True),
    # A thread inside the library yields to this process, and so may keep another one out.
    "nodes-loaded": Setting({"MPIX_RMA_PROGRESS": "thread"}, nodes=True, loaded=True),
}
# A process that stays at one call for so many seconds hangs.
PATIENCE = 60


@dataclass
class Batch:
    """Programs of one job."""

    host: object
    ranks: int
    setting: str
    first: int
    seeds: int
    skip: str = ""
    repeat: int = 1

    def threads(self):
        """Threads of each process."""
        return SETTINGS[self.setting].threads

    def replay(self):
        """The command that runs these programs again, without the seed."""
        skip = f" SKIP={self.skip}" if self.skip else ""
        return (f"make test-random HOSTS={self.host.name} RANKS={self.ranks} "
                f"SETTINGS={self.setting}{skip}")


def compile_executor(host, options):
    """Compiles the executor for a host. Returns its path."""
    binary = os.path.join(options.build, host.name, "executor")
    os.makedirs(os.path.dirname(binary), exist_ok=True)
    line = [*c_tests.shlex.split(host.mpicc), *c_tests.FLAGS, "-I", C_TESTS,
            os.path.join(HERE, "executor.c"), "-o", binary, *host.headers, *host.linked]
    subprocess.run(line, check=True)
    return binary


def write_programs(batch, path, options):
    """Generates the programs of a batch, and runs each in the simulator."""
    env = dict(os.environ, MPIX_SWARM_WRITE=path, MPIX_SWARM_RANKS=str(batch.ranks),
               MPIX_SWARM_FIRST=str(batch.first), MPIX_SWARM_SEEDS=str(batch.seeds),
               MPIX_SWARM_SKIP=batch.skip)
    done = subprocess.run([options.generator, "write_programs", "--ignored"], env=env,
                          capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"the generator fails:\n{done.stdout}{done.stderr}")


def cover(path, coverage):
    """Counts the windows and calls of programs."""
    with open(path) as file:
        for line in file:
            words = line.split(maxsplit=4)
            if words[0] == "window":
                fast = "fast path" if words[3] == "1" else "no fast path"
                coverage[f"window: {words[1]}, {fast}"] += 1
            elif words[0] == "call":
                coverage[f"call: {words[2]}"] += 1


def find_generator(options):
    """Builds tests/swarm. Returns the path of its binary."""
    line = [options.cargo, "test", "-j", options.jobs, "--test", "swarm", "--no-run"]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True)
    found = re.search(r"^ *Executable .*\((.*)\)$", done.stderr, re.M)
    if done.returncode or not found:
        raise SystemExit(f"tests/swarm does not build:\n{done.stderr}")
    return os.path.join(ROOT, found[1])


def positions(path, count):
    """Seed and line of each thread, those of a process together."""
    with open(path, "rb") as file:
        numbers = struct.unpack(f"{2 * count}q", file.read(16 * count))
    return list(zip(numbers[::2], numbers[1::2]))


def describe(batch, path, at):
    """Where each process was, with the text of its call."""
    with open(path) as file:
        lines = file.read().splitlines()
    text = ""
    for which, (seed, line) in enumerate(at):
        text += (f"  process {which // batch.threads()}: seed {seed}, line {line}: "
                 f"{lines[line - 1] if line else ''}\n")
    return text + f"  replay: {batch.replay()} SEED={max(seed for seed, _ in at)}\n"


def command(batch, binary, arguments):
    """The command of a job, and its environment."""
    setting = SETTINGS[batch.setting]
    line = batch.host.command(batch.ranks, dict(setting.env), [], binary,
                              [str(argument) for argument in arguments])
    if not setting.nodes:
        return line, None
    # As in the Makefile: one launcher for every host, which is told the host's own.
    line = [sys.executable, NODES, os.path.join(NETNS, "mpiexec"), *line[1:]]
    return line, dict(os.environ, MPIX_MPIEXEC=batch.host.mpiexec)


def compute_meanwhile():
    """A process that computes until it is killed, or this one ends."""
    line = f"import os\nwhile os.getppid() == {os.getpid()}: sum(range(10 ** 6))"
    return subprocess.Popen([sys.executable, "-c", line])


def run_job(batch, binary, path, options):
    """Runs the programs of a file in one job. Returns what is wrong (None if nothing), the output,
    and the seed at which the job ended before its time."""
    where, count = path + ".at", batch.ranks * batch.threads()
    with open(where, "wb") as file:
        file.write(bytes(16 * count))
    arguments = (path, where, batch.replay(), batch.threads(), batch.repeat, options.seconds,
                 int(SETTINGS[batch.setting].helped))
    line, env = command(batch, binary, arguments)
    output = os.path.join(options.build, "output")
    with open(output, "wb") as file:
        process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=file,
                                   stderr=subprocess.STDOUT, start_new_session=True, env=env)
    c_tests.RUNNING.update(launcher=process, binary=binary)
    computing = compute_meanwhile() if SETTINGS[batch.setting].loaded else None
    last, since, wrong = None, time.monotonic(), None
    while wrong is None:
        try:
            process.wait(0.5)
            break
        except subprocess.TimeoutExpired:
            at = positions(where, count)
            if at != last:
                last, since = at, time.monotonic()
            waited = (time.monotonic() - since) / options.slowdown
            ended = SETTINGS[batch.setting].nodes and batch.host.may_hang and succeeded(output)
            if waited > (5 if ended else PATIENCE):
                wrong = "ended" if ended else "hangs"
                c_tests.kill_job(process, binary)
    if computing:
        computing.kill()
        computing.wait()
    c_tests.RUNNING.clear()
    c_tests.sweep()
    with open(output, errors="replace") as file:
        text = file.read()
    if wrong == "ended":
        print(f"     {batch.host.name} hung in its own MPI_Finalize", flush=True)
        return None, text, None
    if wrong is None and process.returncode == 0 and succeeded(output):
        return None, text, None
    if wrong is None and "FAILED" in text:
        return "differs", text, None
    at = positions(where, count)
    return wrong or "crashes", text + describe(batch, path, at), max(seed for seed, _ in at)


def succeeded(path):
    """Whether the executor says so in its output."""
    with open(path, errors="replace") as file:
        return re.search(c_tests.SAYS_OK, file.read())


def failing_seeds(text):
    """Seeds that the executor has reported."""
    return sorted({int(seed) for seed in re.findall(r"^seed (\d+), rank", text, re.M)})


def run_batch(batch, options):
    """Runs a batch, behind a hang or crash from the next seed on. Returns the failing seeds, each
    with what is wrong, and the number of programs that ran to their end."""
    failed, ran, last = {}, 0, batch.first + batch.seeds
    first = batch.first
    path = os.path.join(options.build, f"programs-{batch.ranks}")
    while first < last:
        rest = Batch(batch.host, batch.ranks, batch.setting, first, last - first, batch.skip,
                     batch.repeat)
        write_programs(rest, path, options)
        cover(path, options.coverage)
        wrong, text, ended = run_job(rest, options.binaries[batch.host.name], path, options)
        done = re.search(r"^(\d+) programs$", text, re.M)
        ran += int(done[1]) if done else max(0, (ended or first) - first)
        if wrong is None:
            break
        shown = text if len(text) < 6000 else f"{text[:4000]}\n...\n{text[-2000:]}"
        print(f"{wrong}:\n{shown}", flush=True)
        failed.update({seed: "differs" for seed in failing_seeds(text)})
        if ended is not None:
            failed[ended or first] = wrong
        if ended is None or not options.keep_going:
            break
        first = max(ended, first) + 1
    return failed, ran


def check_the_executor(host, options):
    """Runs programs with wrong predictions. Returns whether the executor reports each."""
    batch = Batch(host, 2, "shm", 1, 100)
    path = os.path.join(options.build, "mutants")
    write_programs(batch, path, options)
    with open(path) as file:
        text, wrong = mutants.mutate(file.read())
    with open(path, "w") as file:
        file.write(text)
    _, output, _ = run_job(batch, options.binaries[host.name], path, options)
    missed = [name for seed, name in wrong.items() if seed not in failing_seeds(output)]
    if missed:
        print(f"{output}\nthe executor does not report: {', '.join(missed)}")
    else:
        print(f"the executor reports each of {len(wrong)} wrong predictions", flush=True)
    return not missed


def shrink(batch, options):
    """Leaves out transactions of a failing program as long as it fails."""
    skip = []
    for number in range(13, -1, -1):
        tried = Batch(batch.host, batch.ranks, batch.setting, batch.first, batch.threads(),
                      ",".join(map(str, sorted([*skip, number]))), max(batch.repeat, 20))
        path = os.path.join(options.build, f"programs-{batch.ranks}")
        write_programs(tried, path, options)
        wrong, _, _ = run_job(tried, options.binaries[batch.host.name], path, options)
        if wrong:
            skip.append(number)
    batch.skip = ",".join(map(str, sorted(skip)))
    print(f"smallest: {batch.replay()} SEED={batch.first}", flush=True)


def batches(hosts, options):
    """The batches of this run, each with seeds of its own."""
    first = options.first
    for setting in options.settings.split(","):
        if SETTINGS[setting].nodes and subprocess.run([sys.executable, NODES, "--check"],
                                                      stdout=subprocess.DEVNULL).returncode:
            print(f"SKIPPED {setting}: this machine does not allow network namespaces")
            continue
        for ranks in map(int, options.ranks.split(",")):
            for host in hosts:
                # A failing program needs company to fail again between threads.
                seeds = SETTINGS[setting].threads if options.seed else options.seeds
                yield Batch(host, ranks, setting, first, seeds, options.skip, options.repeat)
                first += 0 if options.seed else options.seeds


def main():
    """Runs the batches."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    c_tests.add_host_options(parser)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int)
    parser.add_argument("--seed", type=int, help="this program alone")
    parser.add_argument("--skip", default="", help="without these transactions: N[,N]")
    parser.add_argument("--ranks", default="2,3")
    parser.add_argument("--settings",
                        default="shm,cma-off,messages,progress,threads,helped,nodes,nodes-loaded",
                        help=f"of {', '.join(SETTINGS)}")
    parser.add_argument("--repeat", type=int, default=1, help="run each program so often")
    parser.add_argument("--seconds", type=float, default=1e6,
                        help="a job begins no program after that")
    parser.add_argument("--keep-going", action="store_true", help="also after a hang or crash")
    parser.add_argument("--shrink", action="store_true")
    parser.add_argument("--generator", help="binary of tests/swarm; default: built here")
    parser.add_argument("--cargo", default=os.environ.get("CARGO", "cargo"))
    parser.add_argument("--jobs", default="2")
    parser.add_argument("--build", default=os.path.join(ROOT, "target", "random"))
    parser.add_argument("--write-only", action="store_true",
                        help="leave HOST/executor and the programs in the build folder, one file "
                             "per number of ranks")
    parser.add_argument("--slowdown", type=float,
                        default=float(os.environ.get("MPIX_TEST_SLOWDOWN", "1")))
    options = parser.parse_args()
    if options.seed:
        options.first, options.seeds = options.seed, 1
    elif options.first is None:
        options.first = datetime.date.today().toordinal() * 100_000
        print(f"seeds of today: FIRST={options.first}", flush=True)
    options.programs, options.plain = "", False
    c_tests.leave_at_signals()
    hosts = c_tests.hosts_of(options)
    options.generator = options.generator or find_generator(options)
    options.binaries = {host.name: compile_executor(host, options) for host in hosts}
    if options.write_only:
        for ranks in map(int, options.ranks.split(",")):
            batch = Batch(hosts[0], ranks, "shm", options.first, options.seeds)
            write_programs(batch, os.path.join(options.build, f"programs-{ranks}"), options)
        return 0
    options.coverage = collections.Counter()
    failures = 0 if options.seed or check_the_executor(hosts[0], options) else 1
    for batch in batches(hosts, options):
        began = time.monotonic()
        failed, ran = run_batch(batch, options)
        print(f"{'FAIL' if failed else 'ok  '} {batch.host.name:8} {batch.ranks} ranks "
              f"{batch.setting:17} {ran:6} of {batch.seeds} programs from seed {batch.first} on"
              f" {time.monotonic() - began:7.2f} s", flush=True)
        for seed, wrong in failed.items():
            print(f"     seed {seed} {wrong}", flush=True)
        failures += len(failed)
        if options.shrink and failed:
            batch.first = min(failed)
            shrink(batch, options)
    for what, count in sorted(options.coverage.items()):
        print(f"{count:9} {what}")
    print(f"random programs: {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
