#!/usr/bin/env python3
"""Time until a target has data and knows it: notified puts, the alternatives on plain hosts, and
the machine's limit.

Half a round trip of a ping-pong between two ranks; messages per second; a ring of ranks that
forward chunks and announce free slots; a tree that sums. The receiver checks every answer. The
programs alternate, and only runs under equal conditions are compared. Exits with an error for wrong
data or a failed run, never for timing.
"""

import argparse
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from driver import conditions, figures, hosts  # noqa: E402
from driver.progress import Progress  # noqa: E402
from driver.results import write_rows  # noqa: E402
from driver.table import bytes_text, table  # noqa: E402

PLAIN = ("send_recv", "put_flush_send", "put_flush_flag")
OURS = ("put_notify_threshold", "put_notify_ithreshold", "put_notify_together", "put_tagged")
# A measurement: its unit, and the title of its table.
BENCHES = {
    "ping_pong": ("us", "half a round trip in us"),
    "rate": ("mps", "millions of messages a second; put_flush_send and put_notify_together tell "
                    "of 64 at a time, the others of each"),
    "stencil": ("us", "a chunk's time in a ring of ranks, in us"),
    "reduction": ("us", "a sum over a tree of ranks, in us"),
}


def parse():
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    hosts.add_options(parser)
    parser.add_argument("--rounds", type=int, default=5, help="rounds of all programs")
    parser.add_argument("--ranks", type=int, default=2,
                        help="of ring and tree (default: 2); with more than cores, only the check "
                             "of data is meaningful")
    parser.add_argument("--quick", action="store_true", help="small sizes, to check that all works")
    parser.add_argument("--results", type=Path, default=hosts.RESULTS, help="output folder")
    parser.add_argument("--no-figures", action="store_true")
    return hosts.chosen(parser)


def measure(chosen, options):
    """Samples (value, time of a cache line) by (bench, way, bytes), then by runner (host label,
    "plain" or "ours")."""
    rounds = 1 if options.quick else options.rounds
    arguments = ["-b", 3, "-t", 50, "-m", 4096] if options.quick else []
    turns = [((host.label, "plain"), host, "notify-plain") for host in chosen]
    turns += [((host.label, "ours"), host, "notify") for host in chosen if host.prefix]
    turns = [(*turn, ranks, more) for turn in turns
             for ranks, more in ((2, []), (options.ranks, ["-p"]))]
    samples = {}
    with Progress(rounds * len(turns)) as bar:
        for _ in range(rounds):
            for runner, host, program, ranks, more in turns:
                bar.show(" ".join(runner))
                for r in hosts.results_of(host.command(ranks, program, *arguments, *more)):
                    if not r["verified"]:
                        raise hosts.RunFailed(f"{' '.join(runner)}: wrong data in {r['bench']} by "
                                              f"{r['name']}, {r['bytes']} bytes")
                    value = r[f"median_{BENCHES[r['bench']][0]}"]
                    key = (r["bench"], r["name"], r["bytes"])
                    samples.setdefault(key, {}).setdefault(runner, []).append(
                        (value, conditions.of(r)))
                bar.step(" ".join(runner))
    return samples


def rows_of(label, samples, bench):
    """One row per number of bytes: the better plain host each way, and the library on this host."""
    unit, _ = BENCHES[bench]
    better = max if unit == "mps" else min
    known = conditions.classes(found for mine in samples.values() for seen in mine.values()
                               for _, found in seen)
    rows = []
    for size in sorted({size for name, _, size in samples if name == bench}):
        # Ratios are meaningful only under equal conditions, so all ways of one size use the same.
        seen = {(way, runner): values for (name, way, of), mine in samples.items()
                if (name, of) == (bench, size)
                for runner, values in mine.items() if runner[1] == "plain"
                or runner == (label, "ours")}
        equal, _ = conditions.equal(seen, known)
        medians = {key: statistics.median(values) for key, values in equal.items()}
        plain = {way: better((value for (of, runner), value in medians.items() if of == way
                              and runner[1] == "plain"), default=None)
                 for way in PLAIN}
        ours = {way: medians.get((way, (label, "ours"))) for way in ("bare", *OURS)}
        lines = [found.line for values in seen.values() for _, found in values]
        best, mine = better((v for v in plain.values() if v is not None),
                            default=None), ours[OURS[0]]
        # Below 1 is better than the best host, for times and for rates.
        ratio = None
        if best is not None and mine is not None:
            ratio = best / mine if unit == "mps" else mine / best
        to_bare = mine / ours["bare"] if mine is not None and ours["bare"] else None
        rows.append({"bench": bench, "host": label, "bytes": size,
                     "line_us": statistics.median(lines),
                     **{f"{way}_{unit}": value for way, value in {**plain, **ours}.items()},
                     "to_bare": to_bare, "to_best_plain": ratio})
    return rows


def show(label, bench, rows):
    """The table of one benchmark on one host."""
    unit, words = BENCHES[bench]
    ways = [way for way in ("bare", *PLAIN, *OURS) if any(r[f"{way}_{unit}"] is not None
                                                          for r in rows)]
    ratios = ["to_best_plain"] + (["to_bare"] if bench == "ping_pong" else [])

    def text(value, digits=3):
        return "-" if value is None else f"{value:.{digits}f}"

    head = ("bytes", *(f"best {way}" if way in PLAIN else way for way in ways), *ratios)
    cells = [(bytes_text(r["bytes"]), *(text(r[f"{way}_{unit}"]) for way in ways),
              *(text(r[name], 2) for name in ratios))
             for r in rows]
    print(f"\n{label}, {bench}: {words}; `best` is the better plain host; ratios are those of "
          f"{OURS[0]}, below 1 is better")
    print("\n".join(table(head, cells)))


def main():
    """Builds, measures, prints, writes, draws."""
    options, chosen = parse()
    try:
        for host in chosen:
            host.build()
        samples = measure(chosen, options)
    except hosts.RunFailed as failure:
        sys.exit(str(failure))
    served = [host for host in chosen if host.prefix]
    for host in served:
        rows = [row for bench in BENCHES for row in rows_of(host.label, samples, bench)]
        for bench in BENCHES:
            show(host.label, bench, [row for row in rows if row["bench"] == bench])
        write_rows(options.results, "notify", host.label, rows)
    if served and not options.no_figures:
        figures.draw("notify.py", options.results, *[host.label for host in served])


if __name__ == "__main__":
    main()
