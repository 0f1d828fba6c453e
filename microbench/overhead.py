#!/usr/bin/env python3
"""Cost of preloading for a program that does not use RMA: messages, collectives, and windows that
are left to the host.

One program runs plain (A) and preloaded (B) in the order A B B A, repeatedly, so that drifts of the
machine cancel. Three settings of B: only preloaded; beside an idle window of the library (its
progress hook is on); and with MPIX_RMA=off. Exits with an error for wrong results or a failed run,
never for timing.
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

# Smaller differences count as none.
SHARE, SPAN_US = 1.03, 0.005
SETTINGS = {"preloaded": ({}, []), "idle window": ({}, ["-w"]), "off": ({"MPIX_RMA": "off"}, [])}


def parse():
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    hosts.add_options(parser)
    parser.add_argument("--turns", type=int, default=8, help="rounds of A B B A")
    parser.add_argument("--batches", type=int, default=41, help="timed batches per figure and run")
    parser.add_argument("--quick", action="store_true", help="small sizes, to check that all works")
    parser.add_argument("--results", type=Path, default=hosts.RESULTS, help="output folder")
    return hosts.chosen(parser)


def run(host, options, environment, arguments):
    """Medians of one run by name, and which are collectives."""
    sizes = ["-b", 3, "-t", 50] if options.quick else ["-b", options.batches]
    command = host.command(2, "overhead-plain", *sizes, *arguments, environment=environment)
    found = {}
    for line in hosts.results_of(command):
        if not line["verified"]:
            raise hosts.RunFailed(f"{host.label}: wrong result in {line['name']}")
        found[line["name"]] = (line["median_us"], line["collective"])
    return found


def measure(host, options, bar):
    """Rows of one host: per setting and figure, the medians of A and B and the median of their
    ratios."""
    rows = []
    for setting, (environment, arguments) in SETTINGS.items():
        pairs = {}
        for _ in range(1 if options.quick else options.turns):
            for order in ("ab", "ba"):
                both = {}
                for which in order:
                    bar.show(f"{host.label}, {setting}")
                    both[which] = run(host, options, {**host.preload(), **environment}
                                      if which == "b" else {}, arguments)
                    bar.step(host.label)
                for name, (plain, collective) in both["a"].items():
                    pairs.setdefault((name, collective), []).append((plain, both["b"][name][0]))
        for (name, collective), seen in pairs.items():
            plain, ours = (statistics.median(column) for column in zip(*seen))
            ratio = statistics.median(b / a for a, b in seen)
            rows.append({"name": name, "host": host.label, "setting": setting,
                         "collective": collective, "plain_us": plain,
                         "preloaded_us": ours, "ratio": ratio, "within": ratio <= SHARE
                         or plain * (ratio - 1) <= SPAN_US})
    return rows


def main():
    """Builds, measures, prints, writes."""
    options, chosen = parse()
    chosen = [host for host in chosen if host.prefix]
    os.environ.pop("LD_PRELOAD", None)
    try:
        for host in chosen:
            host.build()
        turns = 1 if options.quick else options.turns
        with Progress(len(chosen) * len(SETTINGS) * turns * 4) as bar:
            measured = {host.label: measure(host, options, bar) for host in chosen}
    except hosts.RunFailed as failure:
        sys.exit(str(failure))
    for label, rows in measured.items():
        lines = [(r["setting"], r["name"], f"{r['plain_us']:.4f}", f"{r['preloaded_us']:.4f}",
                  f"{r['ratio']:.3f}{'' if r['within'] else ' *'}") for r in rows]
        print(f"\n{label}: medians in us; the ratio is the median over pairs of runs (* = more "
              f"than 3 % and 5 ns)")
        print("\n".join(table(("setting", "name", "plain", "preloaded", "ratio"), lines,
                              left=("setting", "name"))))
        write_rows(options.results, "overhead", label, rows)


if __name__ == "__main__":
    main()
