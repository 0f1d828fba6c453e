#!/usr/bin/env python3
"""Calls on a process of the same node, in a window that spans two nodes and in a window of that
node. `make mates` runs it on two network namespaces with two processes each.

The plain host is left out: its figure would show how seldom the idle target calls MPI. Each run
alternates between the two windows. Exits with an error for wrong results or a failed run, never for
timing.
"""

import argparse
import os
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from driver import hosts  # noqa: E402
from driver.results import write_rows  # noqa: E402
from driver.table import table  # noqa: E402


def parse():
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    hosts.add_options(parser)
    parser.add_argument("--rounds", type=int, default=5, help="runs of the program")
    parser.add_argument("--results", type=Path, default=hosts.RESULTS, help="output folder")
    return hosts.chosen(parser)


def run(host):
    """Lines of one run, up to the check of memory. It does not wait for the host's own
    MPI_Finalize, in which MPICH 4.0.2 sometimes hangs over TCP."""
    command = host.command(4, "mates-plain", environment=host.preload())
    for line in hosts.results_of(command):
        if line["name"] != "memory":
            yield line
        elif line["verified"]:
            return
        else:
            break
    raise hosts.RunFailed(f"{host.label}: wrong data")


def measure(host, rounds):
    """Rows of one host: medians over the rounds, for each figure."""
    found = {}
    for _ in range(rounds):
        for line in run(host):
            found.setdefault(line["name"], []).append(line)
    rows = []
    for name, lines in found.items():
        row = {"host": host.label, "name": name}
        for key in ("one_node_us", "all_nodes_us"):
            row[key] = statistics.median(line[key] for line in lines)
        row["ratio"] = statistics.median(
            line["all_nodes_us"] / line["one_node_us"] for line in lines
        )
        rows.append(row)
    return rows


def main():
    """Builds, measures, prints, writes."""
    options, chosen = parse()
    os.environ.pop("LD_PRELOAD", None)
    for host in chosen:
        try:
            host.build()
            rows = measure(host, options.rounds)
        except hosts.RunFailed as failure:
            sys.exit(str(failure))
        print(f"\n{host.label}: us with a window of one node, and of two")
        lines = [
            (
                row["name"],
                f"{row['one_node_us']:.4f}",
                f"{row['all_nodes_us']:.4f}",
                f"{row['ratio']:.2f}",
            )
            for row in rows
        ]
        head = ("name", "one node", "two nodes", "ratio")
        print("\n".join(table(head, lines, left=("name",))))
        write_rows(options.results, "mates", host.label, rows)


if __name__ == "__main__":
    main()
