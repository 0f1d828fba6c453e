#!/usr/bin/env python3
"""Persistent collectives of the library beside the ordinary calls of plain hosts, which measure
what a program gains that sets its collectives up once.

The programs alternate, and only runs under equal conditions are compared. Figures named NAME_window
have what is sent in an allocated window. The verdict at the end lists the figures that are behind
the better plain host's ordinary call. Exits with an error for wrong results or a failed run, never
for timing.
"""

import argparse
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from driver import conditions, hosts  # noqa: E402
from driver.progress import Progress  # noqa: E402
from driver.results import write_rows  # noqa: E402
from driver.table import bytes_text, figure_text, table  # noqa: E402
from driver.verdict import verdict  # noqa: E402


def parse():
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    hosts.add_options(parser)
    parser.add_argument("--rounds", type=int, default=7, help="rounds of all programs")
    parser.add_argument("--ranks", type=int, default=2,
                        help="default: 2; with more than cores, times depend on the scheduler")
    parser.add_argument("--turns", type=int, default=7, help="turns of each figure in a round")
    parser.add_argument("--only", default="", help="only collectives whose name contains this")
    parser.add_argument("--quick", action="store_true", help="small sizes, to check that all works")
    parser.add_argument("--results", type=Path, default=hosts.RESULTS, help="output folder")
    return hosts.chosen(parser)


def measure(chosen, options):
    """Samples (us, conditions) by (collective, memory, bytes), then by runner (host label, "plain"
    or "ours"), and the time of the copies that each figure implies, by (collective, bytes)."""
    rounds = 1 if options.quick else options.rounds
    arguments = ["--turns", 1, "--most", 4096] if options.quick else ["--turns", options.turns]
    arguments += ["--only", options.only] if options.only else []
    turns = [((host.label, "plain"), host, "collectives-plain", []) for host in chosen]
    turns += [((host.label, "ours"), host, "collectives", more)
              for host in chosen if host.prefix for more in ([], ["--window"])]
    samples, copies = {}, {}
    with Progress(rounds * len(turns)) as bar:
        for _ in range(rounds):
            for runner, host, program, more in turns:
                bar.show(" ".join(runner))
                for r in hosts.results_of(host.command(options.ranks, program, *arguments, *more)):
                    key = (r["bench"], "window" if r["window"] else "private", r["bytes"])
                    samples.setdefault(key, {}).setdefault(runner, []).append(
                        (r["us"], conditions.of(r)))
                    copies.setdefault((r["bench"], r["bytes"]), []).append(r["copies_us"])
                bar.step(" ".join(runner))
    return samples, {key: min(times) for key, times in copies.items()}


def rows_of(label, samples, copies):
    """One row per figure: the better plain host, and the library on this host."""
    known = conditions.classes(found for mine in samples.values() for seen in mine.values()
                               for _, found in seen)
    rows = []
    for (bench, memory, size), mine in samples.items():
        # To plain hosts, windows are memory like any other.
        plain = {runner: seen for runner, seen in samples[(bench, "private", size)].items()
                 if runner[1] == "plain"}
        ours = {runner: seen for runner, seen in mine.items() if runner == (label, "ours")}
        if not ours:
            continue
        equal, fast = conditions.equal({**plain, **ours}, known)
        medians = {runner: statistics.median(values) for runner, values in equal.items()}
        took = medians.pop((label, "ours"), None)
        best = min(medians.values(), default=None)
        ratio = took / best if took is not None and best is not None else None
        rows.append({"name": f"{bench} {bytes_text(size)}", "window": memory, "bench": bench,
                     "host": label, "bytes": size, "plain_us": best, "ours_us": took,
                     "copies_us": copies[(bench, size)], "ratio": ratio,
                     "equally_fast": fast, "not_comparable": ratio is None})
    return rows


def show(label, rows):
    """The table of one host."""
    print(f"\n{label}: us of a collective; `best plain` is the ordinary call of the better plain "
          "host, `copies` what the memory copies take")
    lines = [(r["bench"], r["window"], bytes_text(r["bytes"]), figure_text(r["plain_us"]),
              figure_text(r["ours_us"]), figure_text(r["copies_us"]),
              "-" if r["ratio"] is None else f"{r['ratio']:.2f}") for r in rows]
    head = ("collective", "memory", "bytes", "best plain", "persistent", "copies", "ratio")
    print("\n".join(table(head, lines, left=("collective", "memory"))))


def main():
    """Builds, measures, prints, writes."""
    options, chosen = parse()
    hosts.build(chosen)
    try:
        samples, copies = measure(chosen, options)
    except hosts.RunFailed as failure:
        sys.exit(str(failure))
    verdicts = []
    for host in (host for host in chosen if host.prefix):
        rows = rows_of(host.label, samples, copies)
        show(host.label, rows)
        verdicts.append(verdict(host.label, rows))
        write_rows(options.results, "collectives", host.label, rows)
    print("\n" + "\n".join(verdicts))


if __name__ == "__main__":
    main()
