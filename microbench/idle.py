#!/usr/bin/env python3
"""Cost of idle windows for a program that waits: a barrier, a ping-pong, and put + flush on a busy
window, beside 0 to 10,000 idle windows of each kind, each of which was used once. The same program
runs plain and preloaded.

Each run measures a baseline without idle windows before and after; the ratio is to that baseline.
Exits with an error for wrong results or a failed run, never for timing.
"""

import argparse
import os
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from driver import hosts  # noqa: E402
from driver.progress import Progress  # noqa: E402
from driver.results import write_rows  # noqa: E402
from driver.table import table  # noqa: E402

KINDS = ("allocate", "allocate_shared", "create", "create_dynamic")


def parse():
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    hosts.add_options(parser)
    parser.add_argument(
        "--idle", default="100,1000,10000", help="numbers of idle windows, comma-separated"
    )
    parser.add_argument("--ranks", type=int, default=2, help="ranks of each run, an even number")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each program")
    parser.add_argument(
        "--plain",
        action="store_true",
        help="also the plain host, which may take minutes to create 10,000 windows",
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, to check that all works")
    parser.add_argument("--results", type=Path, default=hosts.RESULTS, help="output folder")
    return hosts.chosen(parser)


def run(host, preloaded, options, kind, idle):
    """Output lines of one run."""
    sizes = ["-b", 3, "-t", 50] if options.quick else []
    environment = host.preload() if preloaded else None
    command = host.command(
        options.ranks, "idle-plain", *sizes, "-k", kind, "-n", idle, environment=environment
    )
    for line in hosts.results_of(command):
        if not line["verified"]:
            raise hosts.RunFailed(
                f"{host.label}: wrong data with {idle} idle windows of kind {kind}"
            )
        yield line


def measure(host, options, counts, bar):
    """Rows of one host: medians over the rounds, by runner, kind, number of idle windows, and
    figure."""
    runners = (["plain"] if options.plain else []) + ["ours"]
    found = {}
    for _ in range(1 if options.quick else options.rounds):
        for kind in KINDS:
            for idle in counts:
                for runner in runners:
                    bar.show(f"{host.label}, {runner}, {idle} {kind}")
                    for line in run(host, runner == "ours", options, kind, idle):
                        if "most" in line:
                            print(
                                f"{host.label}, {runner}: the host makes no more than "
                                f"{line['most']} windows of kind {kind}",
                                file=sys.stderr,
                            )
                            continue
                        found.setdefault((runner, kind, line["idle"], line["name"]), []).append(
                            line
                        )
                    bar.step(host.label)
    rows = []
    for (runner, kind, idle, name), lines in found.items():
        none, beside = (
            statistics.median(line[key] for line in lines) for key in ("none_us", "beside_us")
        )
        rows.append(
            {
                "host": host.label,
                "runner": runner,
                "kind": kind,
                "idle": idle,
                "name": name,
                "none_us": none,
                "beside_us": beside,
                "make_us": statistics.median(line["make_us"] for line in lines),
                "free_us": statistics.median(line["free_us"] for line in lines),
                "ratio": statistics.median(line["beside_us"] / line["none_us"] for line in lines),
            }
        )
    return rows


def main():
    """Builds, measures, prints, writes."""
    options, chosen = parse()
    chosen = [host for host in chosen if host.prefix]
    counts = [10] if options.quick else [int(count) for count in options.idle.split(",")]
    os.environ.pop("LD_PRELOAD", None)
    try:
        for host in chosen:
            host.build()
        runs = len(chosen) * len(KINDS) * len(counts) * (2 if options.plain else 1)
        with Progress(runs * (1 if options.quick else options.rounds)) as bar:
            measured = {host.label: measure(host, options, counts, bar) for host in chosen}
    except hosts.RunFailed as failure:
        sys.exit(str(failure))
    for label, rows in measured.items():
        lines = [
            (
                r["runner"],
                r["kind"],
                r["idle"],
                r["name"],
                f"{r['none_us']:.3f}",
                f"{r['beside_us']:.3f}",
                f"{r['ratio']:.2f}",
                f"{r['make_us']:.0f}",
                f"{r['free_us']:.0f}",
            )
            for r in rows
        ]
        print(
            f"\n{label}: us without and beside idle windows, and us to make and use, and to check "
            "and free, one of them"
        )
        print(
            "\n".join(
                table(
                    ("runner", "kind", "idle", "name", "none", "beside", "ratio", "make", "free"),
                    lines,
                    left=("runner", "kind", "name"),
                )
            )
        )
        write_rows(options.results, "idle", label, rows)


if __name__ == "__main__":
    main()
