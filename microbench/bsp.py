#!/usr/bin/env python3
"""Bulk-synchronous programs, after TALPF (bsp/bsp.h names it), with several kinds of
synchronization: fences that are barriers, fences that wait for neighbours, counted notifications,
and messages.

Two ranks by default. Every run compares its answer with that of one process. The kinds alternate;
times are medians of an iteration. Exits with an error for wrong data or a failed run, never for
timing.
"""

import argparse
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from driver import figures, hosts  # noqa: E402
from driver.progress import Progress  # noqa: E402
from driver.results import write_rows  # noqa: E402
from driver.table import table  # noqa: E402

# Ratios are to the first one.
MODES = ("barrier", "pattern", "notified", "two_sided")
# Rows and columns, or particles, and iterations of a run.
SIZES = {"jacobi": ((32, 2000), (128, 500), (512, 50)),
         "gauss-seidel": ((32, 1000), (128, 100), (512, 10)),
         "n-body": ((32, 1000), (128, 100), (512, 10)),
         "matmul": ((16, 2000), (64, 200), (256, 5))}
QUICK = 5  # iterations
NOTE = """\
With two ranks a barrier is one message each way, so a fence that waits for its neighbours saves
little. docs/results/README.md has the same programs on up to 16,384 simulated ranks."""


def parse():
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    hosts.add_options(parser)
    parser.add_argument("--ranks", help="comma-separated (default: 2; with --quick: 2,4)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of all kinds")
    parser.add_argument("--runs", type=int, default=5, help="runs of a kind in a round")
    parser.add_argument("--only", default="", metavar="PROGRAMS", help="comma-separated")
    parser.add_argument("--quick", action="store_true", help="few runs, to check that all works")
    parser.add_argument("--results", type=Path, default=hosts.RESULTS, help="output folder")
    parser.add_argument("--no-figures", action="store_true")
    options, chosen = hosts.chosen(parser)
    only = list(filter(None, options.only.split(","))) or list(SIZES)
    if set(only) - set(SIZES):
        sys.exit(f"unknown programs: {', '.join(sorted(set(only) - set(SIZES)))}; known: "
                 f"{', '.join(SIZES)}")
    ranks = options.ranks or ("2,4" if options.quick else "2")
    options.cases = [(int(count), program, size, QUICK if options.quick else iterations)
                     for count in ranks.split(",") for program in only
                     for size, iterations in SIZES[program][:1 if options.quick else None]]
    if options.quick:
        options.rounds, options.runs = 1, 2
    return options, chosen


def times(host, options, case, mode):
    """Microseconds of an iteration in each run of one launch."""
    ranks, program, size, iterations = case
    command = host.command(ranks, "bsp", program, mode, "-n", size, "-i", iterations,
                           "-r", options.runs)
    found = []
    for line in hosts.results_of(command):
        if not line["verified"]:
            raise hosts.RunFailed(f"{host.label}: {line['wrong']} wrong values in {line}")
        found.append(line["us"])
    if len(found) != options.runs:
        raise hosts.RunFailed(f"{host.label}: {len(found)} of {options.runs} runs of {case}")
    return found


def measure(host, options, bar):
    """One row per case and kind of synchronization."""
    samples = {(case, mode): [] for case in options.cases for mode in MODES}
    for _ in range(options.rounds):
        for case in options.cases:
            for mode in MODES:
                samples[case, mode] += times(host, options, case, mode)
            bar.step(f"{host.label} {case[1]}")
    medians = {key: statistics.median(values) for key, values in samples.items()}
    return [{"program": program, "size": size, "iterations": iterations, "host": host.label,
             "ranks": ranks, "mode": mode, "us": us, "ratio": us / medians[case, MODES[0]]}
            for (case, mode), us in medians.items()
            for ranks, program, size, iterations in [case]]


def show(label, rows):
    """The table of a host."""
    ratios, base = {}, {}
    for row in rows:
        at = row["program"], row["ranks"], row["size"]
        ratios.setdefault(at, {})[row["mode"]] = row["ratio"]
        if row["mode"] == MODES[0]:
            base[at] = row["us"]
    cells = [(*at, f"{base[at]:.2f}", *(f"{found[mode]:.2f}" for mode in MODES[1:]))
             for at, found in ratios.items()]
    print(f"\n{label}: time of an iteration, and ratios to {MODES[0]}; below 1 is faster")
    print("\n".join(table(("program", "ranks", "size", f"{MODES[0]}, us", *MODES[1:]), cells,
                          left=("program",))))


def main():
    """Builds, measures, prints, writes, draws."""
    options, chosen = parse()
    served = [host for host in chosen if host.prefix]
    try:
        for host in served:
            host.build()
        with Progress(len(options.cases) * options.rounds * len(served)) as bar:
            measured = {host.label: measure(host, options, bar) for host in served}
    except hosts.RunFailed as failure:
        sys.exit(str(failure))
    for label, rows in measured.items():
        show(label, rows)
        write_rows(options.results, "bsp", label, rows)
    print(f"\n{NOTE}")
    if served and not options.no_figures:
        figures.draw("bsp.py", options.results, *measured)


if __name__ == "__main__":
    main()
