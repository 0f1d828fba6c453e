#!/usr/bin/env python3
"""Programs with tasks that communicate, after two papers (tasks/tasks.h names them): versions with
messages and with notified puts, over a range of block sizes.

Two ranks of one processor each, and one rank with two threads for the same work. Every run compares
its answer with that of one process. Versions alternate; times are medians. Exits with an error for
wrong data or a failed run, never for timing.
"""

import argparse
import statistics
import sys
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from driver import figures, hosts  # noqa: E402
from driver.progress import Progress  # noqa: E402
from driver.results import write_rows  # noqa: E402
from driver.table import table  # noqa: E402

# Ratios are to the first one.
TASKS = ("two_sided", "notified", "two_sided_cont", "notified_cont")
ALONE = ("two_sided", "pure", "forkjoin")
NOTE = """\
Two cores show what a message or a notification costs a task, and what waits in place cost. They do
not show threads that contend inside MPI, which the papers name as the main reason for differences,
nor a network. On a loaded machine run it with a real-time priority, as microbench/README.md says
for the patterns: ranks that spin lose more to other load than ranks whose threads sleep."""


@dataclass
class Case:
    """Runs to compare: a program with these options, versions and block sizes."""

    program: str
    title: str
    sizes: list
    quick: list
    blocks: tuple
    versions: tuple
    ranks: int = 2
    workers: int = 1
    samples: dict = field(default_factory=dict)  # us of all runs by (version, block)

    def options(self, block, runs, quick):
        """Command line of the program behind its name and version."""
        words = self.quick if quick else self.sizes
        return [*words, "-b", block, "-w", self.workers, "-r", runs]


def cases():
    """All comparisons."""
    seidel = ["-m", 64, "-n", 1024, "-i", 100]
    small = ["-m", 64, "-n", 128, "-i", 3]
    every = (*TASKS, "pure", "nbuffer", "forkjoin", "sentinel", "blocking")
    some = (*TASKS, "pure", "blocking")
    return [
        Case("gauss-seidel", "two ranks", seidel, small, (8, 16, 32), every),
        # The delay is less than an iteration, so that it can be hidden.
        Case("gauss-seidel", "two ranks, one of which is 100 us late in each iteration",
             ["-m", 128, "-n", 1024, "-i", 100, "-d", 100], [*small, "-d", 100], (16, 32), every),
        Case("gauss-seidel", "one rank with two threads", seidel, small, (8, 16, 32), ALONE,
             ranks=1, workers=2),
        Case("streaming", "two ranks", ["-n", 16384, "-i", 40], ["-n", 2048, "-i", 3],
             (32, 128, 512, 2048), some),
        Case("ifsker", "two ranks", ["-m", 8, "-n", 4096, "-i", 40],
             ["-m", 4, "-n", 1024, "-i", 3], (32, 128, 512), some),
        Case("amr", "two ranks", ["-m", 128, "-n", 128, "-i", 100],
             ["-m", 64, "-n", 64, "-i", 25], (4, 8, 16, 32), some),
    ]


def parse():
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    hosts.add_options(parser)
    parser.add_argument("--rounds", type=int, default=3, help="rounds of all versions")
    parser.add_argument("--runs", type=int, default=5, help="runs of a version in a round")
    parser.add_argument("--only", default="", metavar="PROGRAMS", help="comma-separated")
    parser.add_argument("--quick", action="store_true", help="small sizes, to check that all works")
    parser.add_argument("--results", type=Path, default=hosts.RESULTS, help="output folder")
    parser.add_argument("--no-figures", action="store_true")
    return hosts.chosen(parser)


def chosen_cases(options):
    """The comparisons that the command line selects."""
    only = set(filter(None, options.only.split(",")))
    known = {case.program for case in cases()}
    if only - known:
        sys.exit(f"unknown programs: {', '.join(sorted(only - known))}; known: "
                 f"{', '.join(sorted(known))}")
    return [case for case in cases() if not only or case.program in only]


def run(host, case, version, block, options):
    """Adds the times of one launch to the samples. A host may lack the thread level."""
    command = host.unbound().command(case.ranks, "tasks", case.program, version,
                                     *case.options(block, options.runs, options.quick))
    for line in hosts.results_of(command):
        if line.get("unsupported"):
            return
        if not line["verified"]:
            raise hosts.RunFailed(f"{host.label}: {line['wrong']} wrong values in {line}")
        case.samples.setdefault((version, block), []).append(line["us"])


def measure(host, options, bar):
    """The comparisons of one host, with samples."""
    compared = chosen_cases(options)
    for _ in range(options.rounds):
        for case in compared:
            for block in case.blocks:
                for version in case.versions:
                    run(host, case, version, block, options)
                bar.step(f"{host.label} {case.program}")
    return compared


def rows_of(label, case):
    """One row per version and block."""
    medians = {key: statistics.median(values) for key, values in case.samples.items()}
    return [{"program": case.program, "title": case.title, "host": label, "ranks": case.ranks,
             "workers": case.workers, "version": version, "block": block, "us": us,
             "ratio": us / medians[case.versions[0], block]}
            for (version, block), us in medians.items()]


def show(label, case, rows):
    """The table of one comparison."""
    found = {(row["version"], row["block"]): row for row in rows}
    first, *others = [version for version in case.versions
                      if any(row["version"] == version for row in rows)]
    conts = {"two_sided_cont", "notified_cont"} <= set(others)
    head = ("block", f"{first}, ms", *others, *(["notified/two_sided, cont"] if conts else []))
    cells = []
    for block in case.blocks:
        ratios = {version: found[version, block]["ratio"] for version in others}
        last = [ratios["notified_cont"] / ratios["two_sided_cont"]] if conts else []
        cells.append((block, f"{found[first, block]['us'] / 1000:.2f}",
                      *(f"{ratio:.2f}" for ratio in [*ratios.values(), *last])))
    print(f"\n{label}, {case.program}, {case.title}")
    print(f"time, and ratios to {first}; below 1 is faster")
    print("\n".join(table(head, cells)))


def main():
    """Builds, measures, prints, writes, draws."""
    options, chosen = parse()
    if options.quick:
        options.rounds = options.runs = 1
    served = [host for host in chosen if host.prefix]
    try:
        for host in served:
            host.build()
        steps = sum(len(case.blocks) for case in chosen_cases(options)) * options.rounds
        with Progress(steps * len(served)) as bar:
            measured = {host.label: measure(host, options, bar) for host in served}
    except hosts.RunFailed as failure:
        sys.exit(str(failure))
    for label, compared in measured.items():
        written = []
        for case in compared:
            rows = rows_of(label, case)
            show(label, case, rows)
            written += rows
        write_rows(options.results, "tasks", label, written)
    print(f"\n{NOTE}")
    if served and not options.no_figures:
        figures.draw("tasks.py", options.results, *measured)


if __name__ == "__main__":
    main()
