#!/usr/bin/env python3
"""The paper's figures 2 to 13, programs of tasks and bulk-synchronous ones, and collectives over
many nodes, in virtual time, by the simulator mpix-sim, as docs/results/PROTOCOL.md says: results as
JSON lines, a page beside the papers' numbers, figures.
Rows that are not recomputed stay as they are. `--full` continues to 2,048 ranks (LU) and 131,072
(transactions), which takes hours. `--check` recomputes the small rows and compares them with the
published ones.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from driver import figures  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
# What decides a result, beside the arguments; and what of it each part of the protocol has for
# itself alone: files, or lines of other files that end in `// only: PART`.
SOURCES = ("src/engine", "src/sim", "src/transport/sim", "src/bin/mpix-sim.rs",
           "microbench/schedule")
OWN = {"patterns": ("src/sim/patterns.rs",), "pending": ("src/sim/curves.rs",),
       "tasks": ("src/sim/tasks", "src/bin/mpix_sim/tasks.rs"),
       "bsp": ("src/sim/bsp", "src/bin/mpix_sim/bsp.rs"),
       "collectives": ("src/sim/collectives", "src/bin/mpix_sim/collectives.rs",
                       "src/collective/nodes")}
# Fields that depend on the machine that runs the simulator, and where a row comes from.
UNSTABLE = ("cpu_seconds", "events_per_second", "ns_per_epoch", "command", "sources")
# Fields that are results. The others say what was run.
RESULTS = UNSTABLE + (
    "value", "paper", "difference", "engine_bytes_per_epoch", "seconds", "in_calls", "per_second",
    "busy", "tasks", "waiting_max", "iteration_us", "sync_us", "algorithm", "time_us", "mean_us",
    "model_us", "bound_us", "copies",
    "atomics_busy_mean", "atomics_busy_max", "events", "messages", "refusals", "in_flight_max",
    "engine_bytes_peak_mean", "engine_bytes_peak_max", "engine_bytes_end_mean", "peers_mean",
    "trace")

PENDING = (1, 2, 4, 8, 16, 32, 64, 128, 256)
DEPTHS = (1, 2, 4, 8, 16)
SEEDS = (1, 2, 3, 4, 5)
FACTORS = (0.5, 2)
# Parameters of the machine that are halved and doubled.
NETWORK = ("latency", "gap", "atomic_gap")
FLOPS = ("flops_cached", "flops_streaming")
# As PROTOCOL.md says.
BULK_WINDOW = "bulk_window=65536"
SERVED = "atomics_by_rank=1,atomic_gap=12800"
CREDITS = (16, 64, 256)
COUNTS = (25, 100, 400, 1600)
TASKS = ("--profile", "ndr-2024", "tasks")
NODES = (1, 2, 4, 8, 16, 32, 64)
HYBRID = "forkjoin,sentinel,interop,notified"
ALL_VERSIONS = f"pure,nbuffer,{HYBRID}"
BSP = ("--profile", "ndr-2024", "bsp")
FENCES = ("--programs", "jacobi", "--series", "barrier,pattern,pscw")
# As PROTOCOL.md says.
OVER_NODES = ("--profile", "ndr-2024", "--set", "ranks_per_node=48", "collectives")


def number(value):
    """As an argument, without a fraction that is 0."""
    return f"{value:g}" if value < 1e6 else f"{value:.0f}"


def transactions(ranks, seed, count=400, warm_up=40, range_of_pending=PENDING):
    """Figure 12: both nonblocking series with each number of pending epochs."""
    shared = ["transactions", "--ranks", ranks, "--seed", str(seed), "--count", str(count),
              "--warm-up", str(warm_up)]
    yield [*shared, "--series", "blocking", "--window", "1"]
    for pending in range_of_pending:
        yield [*shared, "--series", "nonblocking,reorder", "--window", str(pending)]


def varied(machine, groups, arguments):
    """The same with parameters of the machine halved and doubled, those of a group at once."""
    for names in groups:
        for factor in FACTORS:
            values = ",".join(f"{name}={number(machine[name] * factor)}" for name in names)
            yield ["--set", values, *arguments]


def lu(size, ranks):
    """Figure 13: each depth of the ring, with and without the next row first."""
    for depth in DEPTHS:
        for ahead in ([], ["--ahead"]):
            yield ["lu", "--size", str(size), "--depth", str(depth), *ahead, "--ranks", ranks]


def bulk(size, ranks):
    """LU decomposition with a bulk window and a progress thread; with few ranks, also without one
    and with the next row first."""
    for some in ranks.split(","):
        for thread in ([], ["--progress-thread"]) if int(some) <= 256 else (["--progress-thread"],):
            for ahead in ([], ["--ahead"]) if int(some) <= 128 else ([],):
                yield [*thread, "--set", BULK_WINDOW, "lu", "--size", str(size), "--depth", "2",
                       *ahead, "--ranks", some]


def pressure(checks):
    """Transactions with hot targets that run out of credits, and longer and longer ones."""
    hot = ["transactions", "--count", "100", "--warm-up", "10", "--hot", "8", "--series",
           "nonblocking,reorder", "--ranks"]
    for ranks in ("64",) if checks else ("64", "512"):
        for credits in CREDITS:
            yield ["--set", f"credits_nic={credits}", *hot, ranks, "--window", "256"]
        yield [*hot, ranks, "--window", "256"]
    for ranks in () if checks else ("4096", "16384"):
        for credits in CREDITS[:2]:
            yield ["--set", f"credits_nic={credits}", *hot, ranks, "--window", "256"]
    for ranks, counts in (("64", COUNTS[:2]),) if checks else (
            ("64", COUNTS), ("512", COUNTS), ("4096", COUNTS[:2])):
        for count in counts:
            yield ["transactions", "--count", str(count), "--warm-up", "0", "--series", "reorder",
                   "--ranks", ranks]


def served(ranks):
    """Transactions whose locks and accumulates are served by the CPUs of their targets."""
    for run in transactions(ranks, 1, 400, 100, (4, 64)):
        yield ["--set", SERVED, *run]


def tasks(checks):
    """The Gauss-Seidel method by tasks. The first rows are those of the figure."""
    def run(versions, nodes, *more, profile=TASKS):
        return [*profile, "--versions", versions, "--nodes", str(nodes), *more]

    jitter = ("--jitter", "0.5", "--iterations", "100")
    yield run(f"pure,{HYBRID}", 2)
    if checks:
        yield run(ALL_VERSIONS, 2, *jitter, "--seed", "1")
        return
    yield from (run(f"pure,{HYBRID}", nodes) for nodes in NODES if nodes != 2)
    paper = ("--profile", "ndr-2024", "--set", "ranks_per_node=48", "tasks")
    yield from (run(f"pure,{HYBRID}", nodes, profile=paper) for nodes in NODES)
    for seed in SEEDS[:3]:
        yield from (run(ALL_VERSIONS, nodes, *jitter, "--seed", str(seed)) for nodes in (2, 16))
    yield from (run(ALL_VERSIONS, nodes, "--iterations", "100") for nodes in (2, 16))
    small = ("--rows", "16384", "--columns", "16384")
    yield from (run("interop,notified", 16, *small, "--block", block)
                for block in ("512", "256", "128", "64"))
    for name, values in (("--element-ns", ("2", "8")), ("--task-ns", ("500", "2000"))):
        yield from (run(f"pure,{HYBRID}", nodes, name, value)
                    for value in values for nodes in (1, 16))
    yield from (run(HYBRID, nodes, "--block", "512") for nodes in NODES[::2])
    yield from (run("nbuffer", nodes, "--block", "2048") for nodes in (1, 4, 16))
    many = ("--profile", "ndr-2024", "--set", "ranks_per_node=16", "tasks")
    yield from (run(HYBRID, nodes, "--rows-per-node", "1024", "--iterations", "25", profile=many)
                for nodes in (64, 256, 1024, 4096))
    yield from (run("nbuffer", nodes) for nodes in NODES)


def bsp(checks):
    """Bulk-synchronous programs. The first rows are those of the figure."""
    def run(ranks, *more, profile=BSP):
        return [*profile, "--ranks", str(ranks), *more]

    def sized(compute_us, size):
        return "--compute-us", compute_us, "--bytes", size

    yield run(64)
    if checks:
        return
    yield from (run(ranks) for ranks in (256, 1024, 4096, 16384))
    for ranks in (1024, 16384):
        for size in (("4.1", "512"), ("65.5", "2048"), ("262", "4096")):
            yield run(ranks, *FENCES, *sized(*size))
    yield run(1024, "--jitter", "0")
    yield run(16384, *FENCES, "--jitter", "0")
    for seed in ("2", "3"):
        yield run(1024, "--programs", "jacobi", "--seed", seed)
        yield run(16384, *FENCES, "--seed", seed)
    for change in ("latency=350", "latency=1400", "gap=5", "gap=20", "atomic_gap=25",
                   "atomic_gap=100"):
        yield run(1024, "--programs", "jacobi",
                  profile=("--profile", "ndr-2024", "--set", change, "bsp"))
    yield from (run(ranks, *FENCES, profile=("--profile", "qdr-2014", "bsp"))
                for ranks in (64, 1024, 16384))
    for program, *size in (("gauss-seidel", "262", "2048"), ("n-body", "82", "4096"),
                           ("matmul", "131", "16384")):
        yield run(1024, "--programs", program, *sized(*size))


def collectives(checks):
    """Collectives over many nodes; the largest ones last."""
    def run(ranks, *more, change=""):
        profile = list(OVER_NODES)
        profile[3] += change
        return [*profile, "--ranks", str(ranks), *more]

    yield run(64)
    if checks:
        yield run(256, "--collectives", "allreduce,barrier", "--skew-us", "10")
        return
    yield from (run(ranks) for ranks in (256, 1024, 4096))
    short = (("--collectives", "allreduce", "--bytes", "8"),
             ("--collectives", "alltoallv,halo", "--bytes", "64", "--cells", "32"))
    for change in ("latency=350", "latency=1400", "gap=5", "gap=20", "atomic_gap=0",
                   "atomic_gap=25", "atomic_gap=100"):
        yield from (run(1024, *some, change=f",{change}") for some in short)
    yield from (run(1024, *short[1], "--block-ns", block) for block in ("0", "4"))
    yield run(1024, "--collectives", "allreduce,halo", "--skew-us", "10", "--cells", "32")
    for algorithm in (("gather", "--radix", "2", "--bytes", "8"), ("doubling",), ("halving",),
                      ("direct",)):
        yield run(1024, "--collectives", "allreduce", "--schedules", "node", "--algorithm",
                  *algorithm)
    yield run(256, "--collectives", "allreduce,barrier", "--skew-us", "10")
    yield run(1024, "--collectives", "alltoallv", "--partners", "1024")
    yield from (run(16384, "--collectives", some)
                for some in ("barrier", "allreduce", "halo", "alltoallv"))


def parts(options, machine):
    """Name of the results, and the simulator's arguments, for each part of the protocol."""
    if options.quick:
        yield "patterns", [["pattern"], ["--progress-thread", "pattern"]]
        yield "lu", [["lu", "--depth", "2", "--size", "256", "--ranks", "16,32"]]
        yield "transactions", [["transactions", "--count", "20", "--warm-up", "5", "--ranks",
                                "16,32", "--window", "8"]]
        yield "bulk", [["--set", BULK_WINDOW, "lu", "--depth", "2", "--size", "256", "--ranks",
                        "16"]]
        yield "pressure", [["--set", "credits_nic=16", "transactions", "--count", "20", "--warm-up",
                            "5", "--ranks", "16", "--window", "8", "--hot", "2"]]
        yield "served", [["--set", SERVED, "transactions", "--count", "20", "--warm-up", "5",
                          "--ranks", "16", "--window", "8"]]
        yield "pending", [["pending", "--epochs", "1,100,1000"]]
        yield "tasks", [[*TASKS, "--rows", "4096", "--columns", "4096", "--block", "256",
                         "--iterations", "3"]]
        yield "bsp", [[*BSP, "--ranks", "16", "--warm-up", "2", "--iterations", "3"]]
        yield "collectives", [["--profile", "ndr-2024", "--set", "ranks_per_node=6",
                               "collectives", "--ranks", "16", "--cells", "4"]]
        return
    ranks = "64" if options.check else "64,128,256,512"
    yield "patterns", [["pattern"], ["--progress-thread", "pattern"]]
    runs = [run for seed in SEEDS for run in transactions(ranks, seed)]
    runs += varied(machine, [(name,) for name in NETWORK],
                   ["transactions", "--ranks", ranks, "--count", "400", "--warm-up", "40",
                    "--window", "64"])
    if options.full:
        for many in ("1024", "4096", "16384"):
            runs += transactions(many, 1, 100, 10)
        runs.append(["transactions", "--ranks", "131072", "--count", "100", "--warm-up", "10",
                     "--window", "64"])
    yield "transactions", runs
    wide = "64,128,256,512,1024,2048"
    small = "64" if options.check else wide if options.full else "64,128,256,512"
    large = "64" if options.check else wide if options.full else "64,128,256"
    runs = [*lu(8192, small), *lu(16384, large)]
    changed = ["lu", "--size", "8192", "--depth", "2", "--ranks",
               "64" if options.check else "64,128,256"]
    runs += varied(machine, [("latency",), ("gap",), FLOPS], changed)
    for change in ("byte=0", "ranks_per_node=1", "ranks_per_node=2"):
        runs.append(["--set", change, *changed])
    yield "lu", runs
    some = "64" if options.check else wide if options.full else "64,128,256"
    yield "bulk", [*bulk(8192, some), *([] if options.check else bulk(16384, some))]
    yield "pressure", list(pressure(options.check))
    yield "served", list(served(ranks))
    epochs = "1,10,100,1000"
    if not options.check:
        epochs += ",10000,100000" + (",1000000" if options.full else "")
    yield "pending", [["pending", "--epochs", epochs]]
    yield "tasks", list(tasks(options.check))
    yield "bsp", list(bsp(options.check))
    yield "collectives", list(collectives(options.check))


def code_of(path, part):
    """The lines that the compiler sees, without indentation and those of other parts alone."""
    lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    others = tuple(f"// only: {of}" for of in OWN if of != part)
    return "\n".join(line for line in lines
                     if line and not line.startswith("//") and not line.endswith(others))


def files_of(names):
    """The files with these names and in these folders."""
    for name in names:
        top = ROOT / name
        yield from sorted(top.rglob("*")) if top.is_dir() else [top]


def sources(part):
    """A hash of what decides the results of a part. Comments and indentation do not."""
    own = set(files_of(OWN.get(part, ())))
    others = {path for of, names in OWN.items() if of != part for path in files_of(names)}
    found = hashlib.sha256()
    for path in [*files_of(SOURCES), *sorted(own - set(files_of(SOURCES)))]:
        if path.suffix in (".rs", ".c", ".h") and path not in others:
            found.update(f"{path.relative_to(ROOT)}\n{code_of(path, part)}\n".encode())
    return found.hexdigest()[:12]


def key(row):
    """What was run, and which value of it the row has."""
    return json.dumps({name: row[name] for name in sorted(row) if name not in RESULTS})


def read(path):
    """The rows of a file by their key, in order."""
    if not path.exists():
        return {}
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return {key(row): row for row in rows}


def profiled(options, arguments):
    """The arguments with a profile; some have their own."""
    return arguments if "--profile" in arguments else ["--profile", options.profile, *arguments]


def command_of(options, arguments):
    """The command that repeats a run."""
    return " ".join(["mpix-sim", *profiled(options, arguments)])


def simulate(options, made_by, arguments):
    """Runs the simulator; returns its rows."""
    command = [str(options.program), *profiled(options, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: exit status {done.returncode}")
    shown = command_of(options, arguments)
    rows = map(json.loads, done.stdout.splitlines())
    return [{**row, "command": shown, "sources": made_by} for row in rows]


def parameters(options):
    """The parameters of the simulated machine."""
    command = [str(options.program), "--profile", options.profile, "profile"]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


def keep_parameters(options, machine):
    """Saves the parameters for the page, or compares them with those saved; returns differences."""
    path = options.results / "machine.json"
    if not options.check:
        path.write_text(json.dumps(machine, indent=1) + "\n", encoding="utf-8")
    elif json.loads(path.read_text(encoding="utf-8")) != machine:
        return [f"{path}: not the parameters of the profile {options.profile}"]
    return []


def rows_of(options, name, runs):
    """Rows of each run of a part, as they come in order; several runs at a time."""
    made_by = sources(name)
    with ThreadPoolExecutor(options.jobs) as pool:
        results = [pool.submit(simulate, options, made_by, arguments) for arguments in runs]
        for arguments, result in zip(runs, results):
            yield result.result()
            print(" ".join(arguments), file=sys.stderr, flush=True)


def update(options, name, runs):
    """Runs one part. Its rows replace those of the same runs; others stay. Saves after each run."""
    path = options.results / f"{name}.jsonl"
    rows, made_by = read(path), sources(name)
    if options.resume:
        made = {row["command"] for row in rows.values() if row.get("sources") == made_by}
        runs = [run for run in runs if command_of(options, run) not in made]
    for some in rows_of(options, name, runs):
        rows.update((key(row), row) for row in some)
        partial = path.with_suffix(".partial")
        partial.write_text("".join(f"{json.dumps(row)}\n" for row in rows.values()),
                           encoding="utf-8")
        partial.replace(path)


def check(options, name, runs):
    """Compares recomputed rows with the published ones; returns the differences."""
    published, wrong = read(options.results / f"{name}.jsonl"), []
    compared = 0
    for some in rows_of(options, name, runs):
        for row in some:
            before = published.get(key(row))
            if before is None:
                wrong.append(f"{name}: not published: {key(row)}")
                continue
            compared += 1
            # Fields that the row did not have when it was published cannot differ.
            for field, value in before.items():
                if field not in UNSTABLE and row.get(field) != value:
                    wrong.append(f"{name}: {field} was {value}, now {row.get(field)}: "
                                 f"{row['command']}")
    print(f"{name}: {compared} rows compared with the published ones")
    return wrong


def parse():
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=ROOT / "target/quick/mpix-sim")
    parser.add_argument("--results", type=Path, default=ROOT / "docs/results")
    parser.add_argument("--profile", default="qdr-2014")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(),
                        help="simulations at a time (default: as many as processors)")
    parser.add_argument("--full", action="store_true", help="the large numbers of ranks too")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to check that all works")
    parser.add_argument("--check", action="store_true",
                        help="recompute the small rows and compare them with the published ones")
    parser.add_argument("--only", help="only this part: patterns, transactions, lu, bulk, "
                        "pressure, served, pending, tasks, bsp, collectives")
    parser.add_argument("--resume", action="store_true",
                        help="leave out runs whose rows the present sources have made")
    parser.add_argument("--no-figures", action="store_true")
    return parser.parse_args()


def main():
    """Runs everything and draws it, or checks it."""
    options = parse()
    options.results.mkdir(parents=True, exist_ok=True)
    try:
        machine = parameters(options)
        wrong = keep_parameters(options, machine)
        for name, runs in parts(options, machine):
            if options.only not in (None, name):
                continue
            if options.check:
                wrong += check(options, name, runs)
            else:
                update(options, name, runs)
    except (RuntimeError, subprocess.CalledProcessError) as failure:
        sys.exit(str(failure))
    if wrong:
        print(*wrong[:20], sep="\n")
        sys.exit(f"{len(wrong)} differences from the published results; `make figures` makes them "
                 "again")
    if not options.check and not options.no_figures:
        if not figures.draw("simulated.py", options.results):
            sys.exit(1)


if __name__ == "__main__":
    main()
