#!/usr/bin/env python3
"""Measures up to how many bytes collectives should run on schedules of the library on this machine,
and writes the table for MPIX_RMA_COLLECTIVES_TABLE.

For hosts that cannot call the library while they block (MPICH before 4.3). The same program runs
preloaded in turns, once with a table that has the schedules serve all, and once with one that has
the host serve all. The limit of a collective is the size up to which the schedules save most, all
sizes together. With more ranks than cores, times depend on the scheduler. Exits with an error for
wrong results or a failed run, never for timing.
"""

import argparse
import math
import os
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from driver import hosts  # noqa: E402
from driver.progress import Progress  # noqa: E402
from driver.table import bytes_text, figure_text, table  # noqa: E402

# Names in the table, and of the program's figures.
COLLECTIVES = {"broadcast": "bcast", "reduce": "reduce", "allreduce": "allreduce", "scan": "scan",
               "reduce_scatter": "reduce_scatter", "gather": "gather", "scatter": "scatter",
               "allgather": "allgather", "alltoall": "alltoall"}
SETTING = "MPIX_RMA_COLLECTIVES_TABLE"
# Most processes and bytes of a table.
RANKS_MAX, BYTES_MAX = 8, 16 << 20
# What the library logs when it uses a table.
USED = "collectives run on schedules up to the bytes"


def parse():
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    hosts.add_options(parser)
    parser.add_argument("--ranks", type=lambda text: [int(word) for word in text.split(",")],
                        help="comma-separated, 2 to 8 (default: 2, 4 and 8, as far as there are "
                             "cores)")
    parser.add_argument("--rounds", type=int, default=7, help="rounds of both")
    parser.add_argument("--turns", type=int, default=5, help="turns of each figure in a round")
    parser.add_argument("--quick", action="store_true", help="small sizes, to check that all works")
    parser.add_argument("--results", type=Path, default=hosts.RESULTS, help="output folder")
    options, chosen = hosts.chosen(parser)
    cores = len(os.sched_getaffinity(0))
    options.ranks = options.ranks or [n for n in (2, 4, RANKS_MAX) if n <= max(cores, 2)]
    if not all(2 <= ranks <= RANKS_MAX for ranks in options.ranks):
        parser.error(f"--ranks: not from 2 to {RANKS_MAX}")
    return options, chosen


def with_limit(folder, most):
    """A table with the same limit for all."""
    path = Path(folder) / f"{most}.table"
    path.write_text("".join(f"{name} {RANKS_MAX} {most}\n" for name in COLLECTIVES))
    return path


def uses_tables(host, path):
    """Whether the library uses tables on this host."""
    environment = {**host.preload(), SETTING: path, "MPIX_RMA_LOG": "info"}
    command = host.command(2, "collectives-plain", "--turns", 1, "--only", "barrier",
                           environment=environment)
    return any(USED in line for line in list(hosts.lines_of(command)))


def measure(host, options, folder, bar):
    """Medians in us by (ranks, collective, bytes): of the schedules, and of the host."""
    rounds = 1 if options.quick else options.rounds
    sizes = ["--turns", 1, "--most", 4096] if options.quick else ["--turns", options.turns]
    seen = {}
    for ranks in options.ranks:
        for _ in range(rounds):
            for which, most in (("ours", BYTES_MAX), ("host", 0)):
                bar.show(f"{host.label}, {ranks} ranks, {which}")
                environment = {**host.preload(), SETTING: with_limit(folder, most),
                               "MPIX_RMA_COLLECTIVES": "always"}
                command = host.command(ranks, "collectives-plain", *sizes, environment=environment)
                for r in hosts.results_of(command):
                    both = seen.setdefault((ranks, r["bench"], r["bytes"]), {})
                    both.setdefault(which, []).append(r["us"])
                bar.step(host.label)
    return {key: {which: statistics.median(times) for which, times in both.items()}
            for key, both in seen.items()}


def limit(sizes):
    """The size up to which schedules save most. `sizes`: (bytes, us of ours, us of the host)."""
    best, saved, most = 0.0, 0.0, 0
    for size, ours, theirs in sorted(sizes):
        saved += math.log(theirs / ours)
        if saved > best:
            best, most = saved, size
    return most


def rows_of(found, ranks):
    """Per collective: its name, its limit in the table's bytes, and the sizes with their times."""
    for name, bench in COLLECTIVES.items():
        # The table says the bytes of a block; the program has one for each process.
        parts = ranks if name == "alltoall" else 1
        sizes = [(size // parts, both["ours"], both["host"])
                 for (n, b, size), both in found.items() if (n, b) == (ranks, bench)]
        if sizes:
            yield name, limit(sizes), sorted(sizes)


def show(host, found, options):
    """Prints what was measured. Returns the lines of the table."""
    lines = []
    for ranks in options.ranks:
        print(f"\n{host.label}, {ranks} ranks: us of a collective; * is served by a schedule")
        shown = []
        for name, most, sizes in rows_of(found, ranks):
            lines.append(f"{name} {ranks} {most}")
            shown += [(name, bytes_text(size), figure_text(ours), figure_text(theirs),
                       f"{ours / theirs:.2f}{' *' if size <= most else ''}")
                      for size, ours, theirs in sizes]
        head = ("collective", "bytes", "schedule", "host", "ratio")
        print("\n".join(table(head, shown, left=("collective",))))
    return lines


def main():
    """Builds, measures, prints, writes."""
    options, chosen = parse()
    chosen = [host for host in chosen if host.prefix]
    os.environ.pop("LD_PRELOAD", None)
    try:
        for host in chosen:
            host.build()
        with tempfile.TemporaryDirectory() as folder:
            for host in chosen:
                if not uses_tables(host, with_limit(folder, 0)):
                    print(f"{host.label}: the host serves its collectives; there is nothing to "
                          "tune")
                    continue
                steps = 2 * len(options.ranks) * (1 if options.quick else options.rounds)
                with Progress(steps) as bar:
                    found = measure(host, options, folder, bar)
                lines = show(host, found, options)
                path = options.results / f"collectives-{host.label}.table"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("\n".join(lines) + "\n")
                print(f"\n{SETTING}={path}")
    except hosts.RunFailed as failure:
        sys.exit(str(failure))


if __name__ == "__main__":
    main()
