#!/usr/bin/env python3
"""Threads that communicate at once under MPI_THREAD_MULTIPLE: every plain host and the library.

Each figure is the rate of all threads together, in millions of operations per second: the median of
the batches, and of the rounds. "scaling" is that rate over the rate of one thread and the number of
processors that the threads can use: 1 is ideal. The library's target sleeps; a plain host's target
sleeps or waits in MPI, and the better of both counts. Exits with an error for wrong results or a
failed run, never for timing.
"""

import argparse
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from driver import applications, hosts  # noqa: E402
from driver.progress import Progress  # noqa: E402
from driver.results import write_rows  # noqa: E402
from driver.table import table  # noqa: E402

# Program, arguments, whose figures they are.
WAYS = (("threads-plain", [], "plain"), ("threads-plain", ["--awake"], "plain awake"),
        ("threads", [], "ours"))


def parse():
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    hosts.add_options(parser)
    parser.add_argument("--threads", default="1,2,4", metavar="COUNTS",
                        help="comma-separated (default: 1,2,4)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of all programs")
    parser.add_argument("--quick", action="store_true", help="small sizes, to check that all works")
    parser.add_argument("--results", type=Path, default=hosts.RESULTS, help="output folder")
    return hosts.chosen(parser)


def measure(chosen, options, counts):
    """Rates by (host label, way, threads, name, windows), and failures."""
    found, failures = {}, []
    sizes = ["-b", 2, "-t", 200] if options.quick else []
    turns = [(host, count, way) for count in counts for host in chosen for way in WAYS
             if host.prefix or way[2] != "ours"]
    rounds = 1 if options.quick else options.rounds
    with Progress(rounds * len(turns)) as bar:
        for _ in range(rounds):
            for host, count, (program, arguments, whose) in turns:
                bar.show(f"{host.label} {whose}, {count} threads")
                command = host.command(2, program, "-n", count, *arguments, *sizes)
                try:
                    for line in hosts.results_of(command):
                        key = (host.label, whose, count, line["name"], line["windows"])
                        found.setdefault(key, []).append(line["median_mps"])
                        if not line["verified"]:
                            failures.append(f"{host.label} {whose}, {count} threads: wrong result "
                                            f"in {line['name']}")
                except hosts.RunFailed as failure:
                    failures.append(str(failure))
                bar.step(host.label)
    return {key: statistics.median(values) for key, values in found.items()}, failures


def merged(label, found):
    """Result lines of one host."""
    def plain_of(*at):
        return max((found[label, whose, *at] for whose in ("plain", "plain awake")
                    if (label, whose, *at) in found), default=None)

    rows = []
    for host, whose, count, name, windows in found:
        if (host, whose) != (label, "ours"):
            continue
        cores = min(count, applications.cores())
        ours, plain = found[label, "ours", count, name, windows], plain_of(count, name, windows)
        alone, plain_alone = found.get((label, "ours", 1, name, "one")), plain_of(1, name, "one")
        rows.append({"name": name, "windows": windows, "threads": count, "host": label,
                     "ours_mps": ours, "ours_scaling": alone and ours / alone / cores,
                     "plain_mps": plain,
                     "plain_scaling": plain and plain_alone and plain / plain_alone / cores})
    return sorted(rows, key=lambda row: (row["name"], row["windows"] != "one", row["threads"]))


def show(label, rows):
    """The table of one host."""
    def text(value, digits):
        return "-" if value is None else f"{value:.{digits}f}"

    head = ("name", "windows", "threads", "plain", "scaling", "ours", "scaling")
    lines = [(r["name"], r["windows"], r["threads"], text(r["plain_mps"], 2),
              text(r["plain_scaling"], 2), text(r["ours_mps"], 2), text(r["ours_scaling"], 2))
             for r in rows]
    print(f"\n{label}: millions of operations per second of all threads, and scaling per processor")
    print("\n".join(table(head, lines, left=("name", "windows"))))


def main():
    """Builds, measures, prints, writes."""
    options, chosen = parse()
    hosts.build(chosen)
    unbound = [host.unbound() for host in chosen]
    found, failures = measure(unbound, options, applications.counts(options.threads))
    for host in (host for host in chosen if host.prefix):
        rows = merged(host.label, found)
        show(host.label, rows)
        write_rows(options.results, "threads", host.label, rows)
    for failure in failures:
        print(f"\nFAILED: {failure}", file=sys.stderr)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
