#!/usr/bin/env python3
"""The paper's figures 2 to 13 in virtual time, by the simulator mpix-sim, as
docs/results/PROTOCOL.md says: results as JSON lines, a page beside the paper's numbers, figures.
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
# itself alone.
SOURCES = ("src/engine", "src/sim", "src/transport/sim", "src/bin/mpix-sim.rs",
           "microbench/schedule")
OWN = {"patterns": "src/sim/patterns.rs", "pending": "src/sim/curves.rs"}
# Fields that depend on the machine that runs the simulator, and where a row comes from.
UNSTABLE = ("cpu_seconds", "events_per_second", "ns_per_epoch", "command", "sources")
# Fields that are results. The others say what was run.
RESULTS = UNSTABLE + (
    "value", "paper", "difference", "engine_bytes_per_epoch", "seconds", "in_calls", "per_second",
    "atomics_busy_mean", "atomics_busy_max", "events", "messages", "refusals", "in_flight_max",
    "engine_bytes_peak_mean", "engine_bytes_peak_max", "engine_bytes_end_mean", "trace")

PENDING = (1, 2, 4, 8, 16, 32, 64, 128, 256)
DEPTHS = (1, 2, 4, 8, 16)
SEEDS = (1, 2, 3, 4, 5)
FACTORS = (0.5, 2)
# Nanoseconds, and flop/s, of the profile qdr-2014.
NETWORK = {"latency": 1300, "gap": 200, "atomic_gap": 400}
FLOPS = {"flops_cached": 1.4e9, "flops_streaming": 0.47e9}


def number(value):
    """As an argument, without a fraction that is 0."""
    return f"{value:g}" if value < 1e6 else f"{value:.0f}"


def transactions(ranks, seed, count=400, warm_up=40):
    """Figure 12: both nonblocking series with each number of pending epochs."""
    shared = ["transactions", "--ranks", ranks, "--seed", str(seed), "--count", str(count),
              "--warm-up", str(warm_up)]
    yield [*shared, "--series", "blocking", "--window", "1"]
    for pending in PENDING:
        yield [*shared, "--series", "nonblocking,reorder", "--window", str(pending)]


def varied(names, arguments):
    """The same with parameters of the machine halved and doubled, those of a group at once."""
    for group in names:
        for factor in FACTORS:
            values = ",".join(f"{name}={number(value * factor)}" for name, value in group.items())
            yield ["--set", values, *arguments]


def lu(size, ranks):
    """Figure 13: each depth of the ring, with and without the next row first."""
    for depth in DEPTHS:
        for ahead in ([], ["--ahead"]):
            yield ["lu", "--size", str(size), "--depth", str(depth), *ahead, "--ranks", ranks]


def parts(options):
    """Name of the results, and the simulator's arguments, for each part of the protocol."""
    if options.quick:
        yield "patterns", [["pattern"], ["--progress-thread", "pattern"]]
        yield "lu", [["lu", "--depth", "2", "--size", "256", "--ranks", "16,32"]]
        yield "transactions", [["transactions", "--count", "20", "--warm-up", "5", "--ranks",
                                "16,32", "--window", "8"]]
        yield "pending", [["pending", "--epochs", "1,100,1000"]]
        return
    ranks = "64" if options.check else "64,128,256,512"
    yield "patterns", [["pattern"], ["--progress-thread", "pattern"]]
    network = [{name: value} for name, value in NETWORK.items()]
    runs = [run for seed in SEEDS for run in transactions(ranks, seed)]
    runs += varied(network, ["transactions", "--ranks", ranks, "--count", "400", "--warm-up", "40",
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
    runs += varied([{name: NETWORK[name]} for name in ("latency", "gap")] + [FLOPS], changed)
    for change in ("byte=0", "ranks_per_node=1", "ranks_per_node=2"):
        runs.append(["--set", change, *changed])
    yield "lu", runs
    epochs = "1,10,100,1000"
    if not options.check:
        epochs += ",10000,100000" + (",1000000" if options.full else "")
    yield "pending", [["pending", "--epochs", epochs]]


def without_comments(path):
    """The lines that the compiler sees, without indentation."""
    lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//"))


def sources(part):
    """A hash of what decides the results of a part. Comments and indentation do not."""
    others = {ROOT / name for of, name in OWN.items() if of != part}
    found = hashlib.sha256()
    for name in SOURCES:
        top = ROOT / name
        files = sorted(top.rglob("*")) if top.is_dir() else [top]
        for path in files:
            if path.suffix in (".rs", ".c", ".h") and path not in others:
                found.update(f"{path.relative_to(ROOT)}\n{without_comments(path)}\n".encode())
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


def simulate(options, made_by, arguments):
    """Runs the simulator; returns its rows."""
    command = [str(options.program), "--profile", options.profile, *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: exit status {done.returncode}")
    shown = " ".join(["mpix-sim", *command[1:]])
    rows = map(json.loads, done.stdout.splitlines())
    return [{**row, "command": shown, "sources": made_by} for row in rows]


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
    rows = read(path)
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
            for field in row:
                if field not in UNSTABLE and row[field] != before.get(field):
                    wrong.append(f"{name}: {field} was {before.get(field)}, now {row[field]}: "
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
    parser.add_argument("--only", help="only this part: patterns, lu, transactions, pending")
    parser.add_argument("--no-figures", action="store_true")
    return parser.parse_args()


def main():
    """Runs everything and draws it, or checks it."""
    options = parse()
    options.results.mkdir(parents=True, exist_ok=True)
    wrong = []
    try:
        for name, runs in parts(options):
            if options.only not in (None, name):
                continue
            if options.check:
                wrong += check(options, name, runs)
            else:
                update(options, name, runs)
    except RuntimeError as failure:
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
