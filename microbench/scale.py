#!/usr/bin/env python3
"""One-sided communication among 1 to 16 ranks: every plain host, and the same program preloaded.

The programs alternate for several rounds, so that noise affects all alike. A time is that of one
round of all ranks, from the first one's begin to the last one's end: the median of the batches, and
of the rounds. "longest" is the longest of up to 10,000 rounds that are timed singly, on any rank.
With more ranks than processors, both depend on the scheduler, and a host whose waits do not yield
takes milliseconds; only ratios say something. A plain host that does not end in time has no figure.
MPICH's launcher starts each rank in a session of its own. If the kernel schedules sessions as
groups (kernel.sched_autogroup_enabled), its ranks take turns more slowly than Open MPI's.
The verdict at the end lists the figures that are behind the better plain host. Exits with an error
for wrong results or a failed run of the library, never for timing.
"""

import argparse
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from driver import applications, hosts  # noqa: E402
from driver.progress import Progress  # noqa: E402
from driver.results import write_rows  # noqa: E402
from driver.table import figure_text, table  # noqa: E402
from driver.verdict import verdict  # noqa: E402

RUNNERS = ("plain", "ours")


def parse():
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    hosts.add_options(parser)
    parser.add_argument("--ranks", default="1,2,4,8,16", metavar="COUNTS",
                        help="comma-separated (default: 1,2,4,8,16)")
    parser.add_argument("--rounds", type=int, default=2, help="rounds of all programs")
    parser.add_argument("--limit", type=float, default=60, metavar="SECONDS",
                        help="a program that takes longer is ended (default: 60)")
    parser.add_argument("--only", metavar="PREFIX", help="only figures whose name starts with this")
    parser.add_argument("--quick", action="store_true", help="small sizes, to check that all works")
    parser.add_argument("--results", type=Path, default=hosts.RESULTS, help="output folder")
    return hosts.chosen(parser)


def arguments_of(options, ranks):
    """Words of the program's command."""
    if options.quick:
        words = ["-b", 2, "-t", 500, "-s", 5000, "-l", 100]
    elif ranks <= applications.cores():
        words = ["-b", 9, "-t", 20e3, "-s", 400e3]
    else:  # long enough for the scheduler to be fair
        words = ["-b", 5, "-t", 60e3, "-s", 400e3]
    return [*words, *(["-o", options.only] if options.only else [])]


def measure(chosen, options, counts, bar):
    """Lines by (ranks, host label, runner, name, window), failures, and notes on what did not
    end."""
    found, failures, notes = {}, [], []
    for ranks in counts:
        for _ in range(options.rounds):
            for host, runner in ((host, runner) for host in chosen for runner in RUNNERS
                                 if runner == "plain" or host.prefix):
                bar.show(f"{host.label} {runner}, {ranks} ranks")
                environment = host.preload() if runner == "ours" else None
                command = host.command(ranks, "scale-plain", *arguments_of(options, ranks),
                                       environment=environment)
                try:
                    for line in hosts.results_of(command, options.limit):
                        key = (ranks, host.label, runner, line["name"], line["window"])
                        found.setdefault(key, []).append(line)
                        if not line["verified"]:
                            (failures if runner == "ours" else notes).append(
                                f"{host.label} {runner}, {ranks} ranks: wrong result in "
                                f"{line['name']} on a window by {line['window']}")
                except hosts.RunFailed as failure:
                    (failures if runner == "ours" else notes).append(str(failure).strip())
                bar.step(host.label)
    return found, failures, notes


def merged(label, labels, found):
    """Result lines of one host, in the program's order."""
    def median(ranks, host, runner, name, window, key="median_us"):
        lines = found.get((ranks, host, runner, name, window))
        return statistics.median(line[key] for line in lines) if lines else None

    rows = []
    for ranks, host, runner, name, window in found:
        if (host, runner) != (label, "ours"):
            continue
        at = (name, window)
        plain = {other: median(ranks, other, "plain", *at) for other in labels}
        ended = {other: value for other, value in plain.items() if value is not None}
        best = min(ended, key=ended.get, default=None)
        ours = median(ranks, label, "ours", *at)
        rows.append({
            "name": f"{name} of {ranks}", "window": window, "ranks": ranks, "host": label,
            "plain_us": plain[label], "best_plain": best, "best_plain_us": ended.get(best),
            "ours_us": ours, "ratio": ours / ended[best] if best else None,
            "best_plain_longest_us": best and median(ranks, best, "plain", *at, "longest_us"),
            "ours_longest_us": median(ranks, label, "ours", *at, "longest_us")})
    return rows


def show(label, rows):
    """The table of one host."""
    head = ("name", "window", "plain", "best plain", "host", "ours", "ours/best", "longest best",
            "longest ours")
    lines = [(r["name"], r["window"], figure_text(r["plain_us"]), figure_text(r["best_plain_us"]),
              r["best_plain"] or "-", figure_text(r["ours_us"]),
              "-" if r["ratio"] is None else f"{r['ratio']:.2f}{'' if r['ratio'] <= 1 else ' *'}",
              figure_text(r["best_plain_longest_us"]), figure_text(r["ours_longest_us"]))
             for r in rows]
    print(f"\n{label}: us for one round of all ranks; ours/best compares with the better of the "
          "plain hosts (* = slower)")
    print("\n".join(table(head, lines, left=("name", "window", "host"))))


def groups_sessions():
    """Whether the kernel schedules the processes of each session as a group."""
    try:
        return Path("/proc/sys/kernel/sched_autogroup_enabled").read_text().strip() == "1"
    except OSError:
        return False


def main():
    """Builds, measures, prints, writes."""
    options, chosen = parse()
    counts = [1, 2, 4] if options.quick else applications.counts(options.ranks)
    options.rounds = 1 if options.quick else options.rounds
    hosts.build(chosen)
    runs = len(counts) * options.rounds * sum(2 if host.prefix else 1 for host in chosen)
    with Progress(runs) as bar:
        found, failures, notes = measure(chosen, options, counts, bar)
    verdicts = []
    for host in (host for host in chosen if host.prefix):
        rows = merged(host.label, [other.label for other in chosen], found)
        show(host.label, rows)
        verdicts.append(verdict(host.label, rows))
        write_rows(options.results, "scale", host.label, rows)
    print("\n" + "\n".join(verdicts))
    if groups_sessions() and max(counts) > applications.cores():
        print("\nkernel.sched_autogroup_enabled is 1: with more ranks than processors, do not "
              "compare one host with the other")
    for note in notes:
        print(f"\nnot counted: {note}", file=sys.stderr)
    for failure in failures:
        print(f"\nFAILED: {failure}", file=sys.stderr)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
