#!/usr/bin/env python3
"""How long it takes until a target has data and knows it: notified puts beside what plain hosts offer, and the machine's limit.

Half a round trip of a ping-pong between two ranks, each message checked by its receiver. The programs run in turns.
Ends with an error for wrong data or a failed run, never for timing."""

import argparse
import json
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from driver import hosts  # noqa: E402
from driver.progress import Progress  # noqa: E402
from driver.table import bytes_text, table  # noqa: E402

PLAIN = ("send_recv", "put_flush_send", "put_flush_flag")
OURS = ("put_notify_threshold", "put_notify_ithreshold")


def parse():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    hosts.add_options(parser)
    parser.add_argument("--rounds", type=int, default=5, help="turns of all programs")
    parser.add_argument("--quick", action="store_true", help="a small size, to see that all works")
    parser.add_argument("--results", type=Path, default=hosts.RESULTS, help="folder of the results")
    return hosts.chosen(parser)


def measure(chosen, options):
    """Medians in microseconds by (runner, way, bytes); a runner is (host label, "plain" or "ours")."""
    rounds = 1 if options.quick else options.rounds
    arguments = ["-b", 3, "-t", 50, "-m", 4096] if options.quick else []
    turns = [((host.label, "plain"), host, "notify-plain") for host in chosen]
    turns += [((host.label, "ours"), host, "notify") for host in chosen if host.prefix]
    samples = {}
    with Progress(rounds * len(turns)) as bar:
        for _ in range(rounds):
            for runner, host, program in turns:
                bar.show(" ".join(runner))
                for r in hosts.results_of(host.command(2, program, *arguments)):
                    if not r["verified"]:
                        raise hosts.RunFailed(f"{' '.join(runner)}: wrong data in {r['name']}, {r['bytes']} bytes")
                    samples.setdefault((runner, r["name"], r["bytes"]), []).append(r["median_us"])
                bar.step(" ".join(runner))
    return {key: statistics.median(values) for key, values in samples.items()}


def rows_of(label, medians):
    """One row for each number of bytes: what the better plain host takes each way, and we on this host."""
    labels = {runner[0] for runner, _, _ in medians}
    rows = []
    for size in sorted({size for runner, _, size in medians if runner == (label, "ours")}):
        plain = {way: min(medians[((host, "plain"), way, size)] for host in labels) for way in PLAIN}
        ours = {way: medians[((label, "ours"), way, size)] for way in OURS}
        bare = medians.get(((label, "ours"), "bare", size))
        rows.append({"host": label, "bytes": size, "bare_us": bare, **{f"{way}_us": t for way, t in {**plain, **ours}.items()},
                     "to_bare": bare and ours[OURS[0]] / bare, "to_best_plain": ours[OURS[0]] / min(plain.values())})
    return rows


def main():
    """Builds, measures, prints, writes."""
    options, chosen = parse()
    try:
        for host in chosen:
            host.build()
        medians = measure(chosen, options)
    except hosts.RunFailed as failure:
        sys.exit(str(failure))
    options.results.mkdir(parents=True, exist_ok=True)
    for host in (host for host in chosen if host.prefix):
        rows = rows_of(host.label, medians)
        head = ("bytes", "bare", *(f"best {way}" for way in PLAIN), *OURS, "to bare", "to best plain")
        lines = [(bytes_text(r["bytes"]), *(f"{r[f'{way}_us']:.3f}" if r[f"{way}_us"] else "-" for way in ("bare", *PLAIN, *OURS)),
                  f"{r['to_bare']:.2f}" if r["to_bare"] else "-", f"{r['to_best_plain']:.2f}") for r in rows]
        print(f"\n{host.label}: half a round trip in us; `best` is the better plain host; ratios are those of {OURS[0]}")
        print("\n".join(table(head, lines)))
        path = options.results / f"notify-{host.label}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        print(f"{host.label}: {path}")


if __name__ == "__main__":
    main()
