#!/usr/bin/env python3
"""Latencies of one-sided communication: every plain host and the library on each, in one report.

The programs alternate for several rounds, so that noise affects all alike. The ranks run on a near
and on a far pair of processors, where the machine has both. Virtual processors move, and share
cores with others: each figure comes with the distance and the speed of the ranks' processors, and
only runs under equal conditions are compared.

Figures are medians. "longest" is the longest of 10,000 rounds, the median of all runs. Figures
named NxBYTES have N operations in flight. The verdict at the end lists the figures that are behind
the better plain host. Exits with an error for wrong results or a failed run, never for timing.
"""

import argparse
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from driver import conditions, figures, hosts, processors  # noqa: E402
from driver.progress import Progress  # noqa: E402
from driver.results import write_rows  # noqa: E402
from driver.table import figure_text, table  # noqa: E402
from driver.verdict import verdict  # noqa: E402


THREADED = "put_rate_8_of_2_threads"
IN_FLIGHT = 64


def parse():
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    hosts.add_options(parser)
    parser.add_argument("--rounds", type=int, default=5, help="rounds of all programs")
    parser.add_argument("--batches", type=int, default=31,
                        help="timed batches per figure and round")
    parser.add_argument("--only", metavar="PREFIX", help="only figures whose name starts with this")
    parser.add_argument("--quick", action="store_true", help="small sizes, to check that all works")
    parser.add_argument("--results", type=Path, default=hosts.RESULTS, help="output folder")
    parser.add_argument("--no-figures", action="store_true")
    parser.add_argument("--apart", action="store_true",
                        help="ranks on two nodes: each host's windows and the library's over "
                             "messages; results are latency-netns")
    return hosts.chosen(parser)


def turns_of(chosen, options, cpus):
    """(host, "plain" or "ours", words of the command) of each program of a round."""
    arguments = ["--batches", 3, "--batch-us", 50, "--laps", 100] if options.quick else [
        "--batches", options.batches]
    if options.apart and not options.quick:
        arguments += ["--batch-us", 3000]
    if options.only:
        arguments += ["--only", options.only]
    pinned = arguments + (["--cpus", ",".join(map(str, cpus))] if cpus else [])
    programs = [(host, "plain", "latency-plain") for host in chosen]
    programs += [(host, "ours", "latency") for host in chosen if host.prefix]
    turns = [(host, whose, [program, *pinned]) for host, whose, program in programs]
    # With fewer batches: a single round takes up to a second.
    few = ["--in-flight", 4 if options.quick else IN_FLIGHT, "--batches", 1 if options.quick else 7]
    if not options.apart:
        turns += [(host, whose, [program, *pinned, *few]) for host, whose, program in programs]
    # Threads need the processors of both ranks.
    if not options.apart and (not options.only or THREADED.startswith(options.only)):
        turns += [(host.unbound(), whose, [program, *arguments, "--threads", 2])
                  for host, whose, program in programs]
    return turns


def measure(chosen, options):
    """Samples by distance, then by (host label, "plain" or "ours"), then by (name, window): value,
    whether it is a rate, conditions, longest. Also limits and failures."""
    places = [("", None, None)]
    if not options.apart:
        places = processors.near_and_far(chosen[0])
    samples, limits, failures = {}, {}, []
    turns = {name: turns_of(chosen, options, cpus) for name, cpus, _ in places}
    for name, cpus, line in places:
        if cpus:
            print(f"{name or 'one distance'}: processors {cpus[0]} and {cpus[1]}, "
                  f"{line:.3f} us for a cache line")
    rounds = 1 if options.quick else options.rounds
    with Progress(rounds * sum(map(len, turns.values()))) as bar:
        for _ in range(rounds):
            for name, host, whose, words in ((name, *turn) for name in turns
                                             for turn in turns[name]):
                bar.show(f"{host.label} {whose} {name}")
                try:
                    for r in hosts.results_of(host.command(2, *words)):
                        collect(r, (host.label, whose), samples.setdefault(name, {}),
                                limits.setdefault(name, {}), failures)
                except hosts.RunFailed as failure:
                    failures.append(str(failure))
                bar.step(f"{host.label} {whose}")
    return samples, limits, failures


def collect(r, runner, samples, limits, failures):
    """Files one line of a program. Limits are the machine's: the minimum of all runs."""
    key = (r["name"], r["window"])
    rate = "limit_mps" in r
    limit = r["limit_mps" if rate else "limit_us"]
    if limit is not None:
        limits[key] = (max if rate else min)(limit, limits.get(key, limit))
    value = r.get("median_mps" if rate else "median_us")
    if value is not None:
        found = (value, rate, conditions.of(r), r["longest_us"])
        samples.setdefault(runner, {}).setdefault(key, []).append(found)
        if not r["verified"]:
            failures.append(f"{runner[0]} {runner[1]}: wrong result in {key[0]} on a window by "
                            f"{key[1]}")


def comparable(samples, key, known):
    """Medians of one figure by runner, all under equal conditions, and whether that includes the
    speed of the processors."""
    seen = {runner: [(value, found) for value, _, found, _ in mine[key]]
            for runner, mine in samples.items() if key in mine}
    equal, equally_fast = conditions.equal(seen, known)
    return {runner: statistics.median(values) for runner, values in equal.items()}, equally_fast


def conditions_of(samples):
    """The conditions of all samples at all distances."""
    return [found for runners in samples.values() for mine in runners.values()
            for seen in mine.values() for _, _, found, _ in seen]


def longest(samples, runner, key):
    """The median over all runs of the longest round, or None."""
    found = [longest for *_, longest in samples.get(runner, {}).get(key, ()) if longest]
    return statistics.median(found) if found else None


def merged(label, samples, limits, where, apart=False):
    """Result lines of one host at the distance `where`, in the program's order, without figures
    that no other program has under equal conditions."""
    known = conditions.classes(found for mine in samples.values() for seen in mine.values()
                               for _, _, found, _ in seen)
    labels = {runner[0] for runner in samples}
    rows = [{"name": name, "window": window, "host": label, "distance": where,
             "plain_us": None, "ours_us": None, "limit_us": limit}
            for (name, window), limit in limits.items() if window == "none"]
    for key, seen in samples.get((label, "plain"), {}).items():
        rate = seen[0][1]
        unit = "mps" if rate else "us"
        values, equally_fast = comparable(samples, key, known)
        plain = {other: values.get((other, "plain")) for other in labels}
        best = (max if rate else min)((v for v in plain.values() if v is not None), default=None)
        if apart or key[0].startswith("win_"):
            best = plain[label]  # the library creates each window on top of one of the host's
        elif any(plain[other] is None and key in samples.get((other, "plain"), {})
                 for other in labels):
            best = None  # the host without a run under these conditions may be the better one
        ours = values.get((label, "ours"))
        # Below 1 is better than the best host, for times and for rates.
        ratio = None if ours is None or best is None else best / ours if rate else ours / best
        rows.append({"name": key[0], "window": key[1], "host": label, "distance": where,
                     f"plain_{unit}": plain[label],
                     f"ours_{unit}": ours, f"limit_{unit}": limits.get(key),
                     f"best_plain_{unit}": best, "ratio": ratio,
                     "not_comparable": ours is not None and ratio is None,
                     "equally_fast": equally_fast,
                     "plain_longest_us": longest(samples, (label, "plain"), key),
                     "ours_longest_us": longest(samples, (label, "ours"), key)})
    return rows


def without(words, at):
    """A row of the table without one column."""
    return (*words[:at], *words[at + 1:])


def show(label, rows):
    """The table of one host."""
    def pick(r, name):
        return r.get(f"{name}_us", r.get(f"{name}_mps"))

    head = ("name", "window", "distance", "unit", "plain", "best plain", "ours", "limit",
            "ours/best", "longest plain", "longest ours")
    lines = []
    for r in rows:
        unit = "M/s" if "plain_mps" in r else "us"
        ratio = r.get("ratio")
        lines.append((r["name"], r["window"], r["distance"], unit, figure_text(pick(r, "plain")),
                      figure_text(pick(r, "best_plain")), figure_text(pick(r, "ours")),
                      figure_text(pick(r, "limit")),
                      "-" if ratio is None else f"{ratio:.2f}{'' if ratio <= 1.0 else ' *'}",
                      figure_text(r.get("plain_longest_us")),
                      figure_text(r.get("ours_longest_us"))))
    if not any(r["distance"] for r in rows):
        head, lines = without(head, 2), [without(line, 2) for line in lines]
    print(f"\n{label}: two ranks; ours/best compares with the better of the plain hosts, "
          "for win_* and ranks on two nodes with the own host (* = slower)")
    print("\n".join(table(head, lines, left=("name", "window", "distance", "unit"))))


def main():
    """Builds, measures, prints, writes, draws."""
    options, chosen = parse()
    hosts.build(chosen)
    samples, limits, failures = measure(chosen, options)
    verdicts = []
    for host in chosen:
        rows = [row for where, found in samples.items()
                for row in merged(host.label, found, limits[where], where, options.apart)]
        show(host.label, rows)
        if host.prefix:
            verdicts.append(verdict(host.label, rows))
        write_rows(options.results, f"latency{'-netns' if options.apart else ''}", host.label, rows)
    if not options.no_figures and not options.apart:
        figures.draw("latency.py", options.results, *[host.label for host in chosen])
    print("\n" + "\n".join(verdicts))
    steady = conditions.steadiness(conditions_of(samples))
    if steady:
        print(steady)
    for failure in failures:
        print(f"\nFAILED: {failure}", file=sys.stderr)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
