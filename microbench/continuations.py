#!/usr/bin/env python3
"""What a continuation costs: an epoch that is waited for, or followed by a continuation; 1 to
100,000 pending epochs, completed by continuations, by MPI_Waitall, and by a list that is polled
with MPI_Testsome; and an epoch while as many stay pending.

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

WAYS = ("continuations", "waitall", "testsome")


def parse():
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    hosts.add_options(parser)
    parser.add_argument("--most", type=int, default=100000, help="most pending epochs")
    parser.add_argument("--rounds", type=int, default=3, help="runs of the program")
    parser.add_argument("--quick", action="store_true", help="small sizes, to check that all works")
    parser.add_argument("--results", type=Path, default=hosts.RESULTS, help="output folder")
    return hosts.chosen(parser)


def run(host, options):
    """Output lines of one run."""
    sizes = ["-b", 3, "-e", 50, "-t", 300, "-n", 100] if options.quick else ["-n", options.most]
    for line in hosts.results_of(host.command(2, "continuations", *sizes), timeout_s=600):
        if not line["verified"]:
            raise hosts.RunFailed(f"{host.label}: wrong data in {line}")
        yield line


def measure(host, options, bar):
    """Medians over the runs: us of the two kinds of epoch, us per pending epoch by (way, number),
    and us of an epoch while as many are pending."""
    epochs, pending, behind = [], {}, {}
    for _ in range(1 if options.quick else options.rounds):
        bar.show(host.label)
        for line in run(host, options):
            if line["bench"] == "epoch":
                epochs.append(line)
            elif line["bench"] == "behind":
                behind.setdefault((line["way"], line["pending"]), []).append(line["epoch_us"])
            else:
                pending.setdefault((line["way"], line["pending"]), []).append(line)
        bar.step(host.label)
    waits, continues = (
        statistics.median(line[key] for line in epochs) for key in ("wait_us", "continue_us")
    )
    rows = [{"host": host.label, "bench": "epoch", "wait_us": waits, "continue_us": continues}]
    for (way, number), lines in pending.items():
        registering, completing = (
            statistics.median(line[key] for line in lines)
            for key in ("register_us", "complete_us")
        )
        rows.append({
            "host": host.label, "bench": "pending", "way": way, "pending": number,
            "register_us": registering, "complete_us": completing,
        })
    for (way, number), times in behind.items():
        rows.append({
            "host": host.label, "bench": "behind", "way": way, "pending": number,
            "epoch_us": statistics.median(times),
        })
    return rows


def show(label, rows):
    """Prints the tables of one host."""
    epoch = rows[0]
    added = 1000 * (epoch["continue_us"] - epoch["wait_us"])
    print(f"\n{label}: an epoch of two ranks takes {epoch['wait_us']:.3f} us with MPI_Wait and "
          f"{epoch['continue_us']:.3f} us with a continuation: {added:+.0f} ns")
    found = {(r["way"], r["pending"]): r for r in rows if r["bench"] == "pending"}
    behind = {(r["way"], r["pending"]): r["epoch_us"] for r in rows if r["bench"] == "behind"}
    numbers = sorted({number for _, number in found})
    lines = [
        (f"{number:,}", f"{found['continuations', number]['register_us']:.3f}",
         *(f"{found[way, number]['complete_us']:.3f}" for way in WAYS))
        for number in numbers
    ]
    print("us per pending epoch: to register its continuation, and from the release on")
    print("\n".join(table(("pending", "register", *WAYS), lines)))
    ways = [way for way in WAYS if (way, numbers[0]) in behind]
    lines = [
        (f"{number:,}", *(f"{behind[way, number]:.3f}" for way in ways)) for number in numbers
    ]
    print("us of an epoch while others stay pending, with continuations or in the polled list")
    print("\n".join(table(("pending", *ways), lines)))


def main():
    """Builds, measures, prints, writes."""
    options, chosen = parse()
    chosen = [host for host in chosen if host.prefix]
    os.environ.pop("LD_PRELOAD", None)
    try:
        for host in chosen:
            host.build()
        with Progress(len(chosen) * (1 if options.quick else options.rounds)) as bar:
            measured = {host.label: measure(host, options, bar) for host in chosen}
    except hosts.RunFailed as failure:
        sys.exit(str(failure))
    for label, rows in measured.items():
        show(label, rows)
        write_rows(options.results, "continuations", label, rows)


if __name__ == "__main__":
    main()
