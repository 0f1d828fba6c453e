"""Runs an application in all series and compares them: shared by lu.py and transactions.py.

An application is a program, and NAME-plain built without the library, that print one JSON line per
run. In every round the programs alternate, and the series within a program, so that noise affects
all alike; ratios are taken within a round.
"""

import json
import os
import statistics
import sys
from dataclasses import dataclass

from driver import hosts
from driver.progress import Progress
from driver.results import write_rows
from driver.table import table


@dataclass
class Application:
    """Its name, the measured key of its lines, and the keys that identify a case."""

    name: str
    metric: str
    unit: str
    more_is_better: bool
    case_keys: tuple
    agreeing: tuple  # cases that agree in these keys must have the same checksum
    extra: tuple = ()  # further figures, reported as medians


def add_options(parser, rounds):
    """Options of all applications."""
    hosts.add_options(parser)
    parser.add_argument("--ranks", default="2,4", metavar="COUNTS",
                        help="comma-separated (default: 2,4); with more ranks than cores, only "
                             "results are meaningful")
    parser.add_argument("--rounds", type=int, default=rounds,
                        help=f"turns of all programs (default: {rounds})")
    parser.add_argument("--quick", action="store_true", help="small sizes, to check that all works")
    parser.add_argument("--results", type=hosts.Path, default=hosts.RESULTS, help="output folder")


def counts(text):
    """Parses 2,4 as numbers."""
    try:
        numbers = [int(word) for word in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        sys.exit(f"--ranks wants numbers like 2,4, not \"{text}\"")
    return numbers


def cores():
    """Number of cores this process may use."""
    return len(os.sched_getaffinity(0))


def _turns(chosen):
    return [(host, program) for host in chosen
            for program in (["-plain", ""] if host.prefix else ["-plain"])]


def run(application, chosen, cases, rounds):
    """Runs all cases (ranks, arguments, maximum of rounds). Returns lines by host label, and
    failures."""
    turns = _turns(chosen)
    lines, failures = {host.label: [] for host in chosen}, []
    total = sum(min(rounds, most) * len(turns) for _, _, most in cases)
    with Progress(total) as bar:
        for ranks, arguments, most in cases:
            for number in range(min(rounds, most)):
                for host, suffix in turns:
                    bar.show(f"{host.label} {application.name} on {ranks}")
                    try:
                        command = host.command(ranks, application.name + suffix,
                                               "--json", *arguments)
                        for line in hosts.results_of(command):
                            lines[host.label].append({**line, "host": host.label, "round": number})
                    except hosts.RunFailed as failure:
                        failures.append(str(failure))
                    bar.step(f"{host.label} {application.name} on {ranks}")
    return lines, failures


def differing(application, lines):
    """Messages for wrong results, and for runs whose checksums differ although they must not."""
    messages, seen = [], {}
    for line in (line for mine in lines.values() for line in mine):
        what = f"{line['host']} {line['series']} on {line['ranks']} ranks"
        if not line["verified"]:
            messages.append(f"wrong result: {what}: {json.dumps(line)}")
        key = tuple(line[k] for k in application.agreeing)
        first = seen.setdefault(key, (line["checksum"], what))
        if first[0] != line["checksum"]:
            messages.append(f"{what} and {first[1]} end with different numbers")
    return messages


def _ratio(application, mine, other):
    """Median of ratios over the rounds that have both; above 1, mine is better."""
    pairs = [(mine[k], other[k]) for k in mine if k in other and mine[k] > 0 and other[k] > 0]
    if not pairs:
        return None
    return statistics.median(a / b if application.more_is_better else b / a for a, b in pairs)


def merged(application, lines):
    """One row for each case and series of a host."""
    cases = {}
    for line in lines:
        case = tuple(line[k] for k in application.case_keys)
        cases.setdefault(case, {}).setdefault(line["series"], []).append(line)
    rows = []
    for case, series in cases.items():
        by_round = {name: {line["round"]: line[application.metric] for line in mine}
                    for name, mine in series.items()}
        for name, mine in series.items():
            values = sorted(by_round[name].values())
            quartiles = statistics.quantiles(values, n=4,
                                             method="inclusive") if len(values) > 1 else values * 3
            row = {"name": application.name, "host": mine[0]["host"], "series": name,
                   **dict(zip(application.case_keys, case)), "metric": application.metric,
                   "median": statistics.median(values), "iqr": quartiles[2] - quartiles[0],
                   "rounds": len(values)}
            for key in application.extra:
                known = [line[key] for line in mine if line[key] is not None]
                row[key] = statistics.median(known) if known else None
            for other in ("host", "blocking"):
                known = other in by_round and other != name
                row[f"over_{other}"] = _ratio(application, by_round[name],
                                              by_round[other]) if known else None
            row["verified"] = all(line["verified"] for line in mine)
            rows.append(row)
    return rows


def show(application, label, rows, figure_text):
    """The table of one host."""
    def times(value):
        return "-" if value is None else f"{value:.2f}"

    head = (*application.case_keys, "series", f"median {application.unit}", "IQR",
            *application.extra, "over host",
            "over blocking", "rounds", "verdict")
    cells = []
    for r in rows:
        cells.append((*(r[k] for k in application.case_keys), r["series"], figure_text(r["median"]),
                      figure_text(r["iqr"]),
                      *("-" if r[k] is None else f"{r[k]:.3g}" for k in application.extra),
                      times(r["over_host"]), times(r["over_blocking"]), r["rounds"],
                      "right" if r["verified"] else "WRONG"))
    print(f"\n{label}: medians; over: how many times as fast, above 1 is better. {cores()} cores.")
    print("\n".join(table(head, cells, left=("series", "verdict"))))


def main(application, chosen, cases, options, figure_text):
    """Builds, runs, prints, writes. Ends the program."""
    try:
        for host in chosen:
            host.build()
    except hosts.RunFailed as failure:
        sys.exit(str(failure))
    lines, failures = run(application, chosen, cases, options.rounds)
    for label, mine in lines.items():
        rows = merged(application, mine)
        show(application, label, rows, figure_text)
        write_rows(options.results, application.name, label, rows)
    failures += differing(application, lines)
    for failure in failures:
        print(f"\nFAILED: {failure}", file=sys.stderr)
    sys.exit(1 if failures else 0)
