#!/usr/bin/env python3
"""Halo exchange of a stencil in three dimensions: messages with derived datatypes, the host's
neighbour collective, and the library's persistent one, with cells in a window and elsewhere.

Exits with an error for wrong cells or a failed run, never for timing.
"""

import argparse
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from driver import hosts  # noqa: E402
from driver.results import write_rows  # noqa: E402
from driver.table import table  # noqa: E402

WAYS = ("messages", "restarted", "neighbour", "halo")


def parse():
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    hosts.add_options(parser)
    parser.add_argument("--ranks", default="1,2,4", help="numbers of ranks")
    parser.add_argument("--cells", default="16,32,64", help="cells of a rank in each direction")
    parser.add_argument("--rounds", type=int, default=3, help="runs of the program")
    parser.add_argument("--quick", action="store_true", help="small sizes, to check that all works")
    parser.add_argument("--results", type=Path, default=hosts.RESULTS, help="output folder")
    return hosts.chosen(parser)


def measure(host, options):
    """Medians over the runs of each setting: rows of the results."""
    times = {}
    ranks = [int(number) for number in options.ranks.split(",")]
    cells = ["6"] if options.quick else options.cells.split(",")
    for _ in range(1 if options.quick else options.rounds):
        for number in ranks:
            for memory in ("window", "private"):
                for grid in ([], ["--fixed"]) if options.quick else ([],):
                    for size in cells:
                        few = ["--batches", 2] if options.quick or number > 2 else []
                        arguments = ["--cells", size, "--memory", memory, *grid, *few]
                        command = host.command(number, "halo", *arguments)
                        for line in hosts.results_of(command, timeout_s=300):
                            key = tuple(line[k] for k in ("ranks", "memory", "cells", "periodic"))
                            times.setdefault((*key, line["way"]), []).append(line)
    return [
        {**lines[0], "exchange_us": statistics.median(line["exchange_us"] for line in lines),
         "step_us": statistics.median(line["step_us"] for line in lines)}
        for lines in times.values()
    ]


def show(label, rows):
    """Prints the table of one host."""
    found = {}
    for row in rows:
        key = (row["ranks"], row["memory"], row["cells"], row["periodic"])
        found.setdefault(key, {})[row["way"]] = row["exchange_us"]
    print(f"\n{label}: us of an exchange, and halo/messages")
    lines = [
        (str(ranks), memory, str(cells), "yes" if periodic else "no",
         *(f"{by[way]:.2f}" for way in WAYS), f"{by['halo'] / by['messages']:.2f}")
        for (ranks, memory, cells, periodic), by in sorted(found.items())
    ]
    print("\n".join(table(("ranks", "memory", "cells", "periodic", *WAYS, "ratio"), lines)))


def main():
    """Builds, measures, prints, writes."""
    options, chosen = parse()
    chosen = [host for host in chosen if host.prefix]
    try:
        for host in chosen:
            host.build()
        measured = {host.label: measure(host, options) for host in chosen}
    except hosts.RunFailed as failure:
        sys.exit(str(failure))
    for label, rows in measured.items():
        show(label, rows)
        write_rows(options.results, "halo", label, rows)


if __name__ == "__main__":
    main()
