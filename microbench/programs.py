#!/usr/bin/env python3
"""What preloading gains and costs: programs that others wrote, plain (A) and preloaded (B).

Two ranks each, with fixed parameters, in the order A B, B A, ..., so that drifts of the machine
cancel. Each run must contain the program's own proof that its result is right, and all runs of a
program must give the same answer. A side that fails once is not run again. A ratio is the median
over pairs of runs. What is not installed is skipped aloud. Also runs OpenCoarrays' test programs
once each way, and counts those that pass.

Exits with an error if a preloaded program fails or gives a wrong answer, never for timing. A plain
program that fails is a line of the table.
"""

import argparse
import os
import re
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from driver import hosts, programs  # noqa: E402
from driver.progress import Progress  # noqa: E402
from driver.results import write_rows  # noqa: E402
from driver.table import table  # noqa: E402

SIDES = ("plain", "preloaded")
# What a coarray program says that passed.
PASSED = re.compile(r"test passed", re.IGNORECASE)


def parse():
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    hosts.add_options(parser)
    parser.add_argument("--rounds", type=int, default=7, help="pairs of runs per program")
    parser.add_argument("--only", default="", help="regular expression on names of programs")
    parser.add_argument("--no-suite", action="store_true", help="without OpenCoarrays' tests")
    parser.add_argument("--limit", type=float, default=15, help="seconds per run")
    parser.add_argument("--quick", action="store_true", help="one round, without the suite")
    parser.add_argument("--results", type=Path, default=hosts.RESULTS, help="output folder")
    return hosts.chosen(parser)


def run(host, program, side, limit):
    """Runs a program once. Returns its answer and its figures in seconds."""
    environment = {**programs.ONE_THREAD, **(host.preload() if side == "preloaded" else {})}
    command = host.command(2, program.binary, *program.arguments, environment=environment)
    with tempfile.TemporaryDirectory() as folder:
        for name, text in program.inputs.items():
            (Path(folder) / name).write_text(text)
        begin = time.monotonic()
        text = "".join(hosts.lines_of(command, limit, folder))
        wall = time.monotonic() - begin
        if program.output:
            text = (Path(folder) / program.output).read_text()
    answer = program.check(text)
    figures = {name: read(text) for name, read in program.figures.items()}
    return answer, {**figures, programs.WALL: wall}


def how(failure):
    """A word for a failure, or None."""
    if failure is None:
        return None
    if isinstance(failure, programs.WrongAnswer):
        return "wrong answer"
    return "hangs" if "did not end within" in str(failure) else "crashes"


def measure(host, program, options, bar):
    """Runs a program in all rounds. Returns its rows, and why a side failed."""
    pairs, answers, failures = [], set(), {}
    for turn in range(options.rounds):
        both = {}
        for side in SIDES if turn % 2 == 0 else SIDES[::-1]:
            bar.show(f"{host.label}, {program.name}, {side}")
            if side in failures:
                continue
            try:
                answer, both[side] = run(host, program, side, options.limit)
                answers.add(answer)
            except hosts.RunFailed as failure:
                failures[side] = failure
            bar.step(program.name)
        pairs.append(both)
    if len(answers) > 1 and "preloaded" not in failures:
        failures["preloaded"] = programs.WrongAnswer(f"answers differ: {sorted(answers)}")
    rows = []
    for figure in [*program.figures, programs.WALL]:
        row = {"host": host.label, "program": program.name, "rma": program.uses_rma,
               "figure": figure, "runs": len(pairs)}
        for side in SIDES:
            seen = [both[side][figure] for both in pairs if side in both]
            row[side + "_s"] = statistics.median(seen) if seen else None
            row[side + "_failed"] = how(failures.get(side))
        ratios = [both["preloaded"][figure] / both["plain"][figure] for both in pairs
                  if len(both) == 2]
        row["ratio"] = statistics.median(ratios) if ratios else None
        row["ratios"] = [min(ratios), max(ratios)] if ratios else None
        rows.append(row)
    return rows, failures


def suite(host, limit, bar):
    """Runs each of OpenCoarrays' test programs plain and preloaded. Returns names by outcome."""
    outcome = {}
    for path in sorted(programs.coarray_folder(host).iterdir()):
        passed = {}
        for side in SIDES:
            bar.show(f"{host.label}, OpenCoarrays {path.name}, {side}")
            environment = host.preload() if side == "preloaded" else {}
            command = host.command(2, path, environment=environment)
            with tempfile.TemporaryDirectory() as folder:
                try:
                    text = "".join(hosts.lines_of(command, limit, folder))
                    passed[side] = bool(PASSED.search(text))
                except hosts.RunFailed:
                    passed[side] = False
        outcome.setdefault((passed["plain"], passed["preloaded"]), []).append(path.name)
    return outcome


def installed(host, options):
    """Programs of a host that are there; says which are not, and what they need."""
    found = list(programs.of(host))
    if any(re.search(options.only, program.name) for program in found
           if program.name.startswith("PETSc")):
        why = programs.build_petsc(host)
        if why:
            print(f"{host.label}: building PETSc failed:\n{why}", file=sys.stderr)
    for program in found:
        if not re.search(options.only, program.name):
            continue
        if program.binary.exists():
            yield program
        else:
            print(f"SKIPPED {program.name} on {host.label}: needs {program.needs}",
                  file=sys.stderr)


def span(seconds):
    """A time with a unit, or a dash."""
    if seconds is None:
        return "-"
    for unit, size in (("s", 1), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def report(label, rows):
    """Prints the table of one host."""
    lines = []
    for row in rows:
        cells = [row[side + "_failed"] or span(row[side + "_s"]) for side in SIDES]
        ratio, ends = row["ratio"], row["ratios"]
        lines.append((row["program"], "yes" if row["rma"] else "no", row["figure"], *cells,
                      f"{ratio:.3f}" if ratio else "-",
                      f"{ends[0]:.2f} to {ends[1]:.2f}" if ends else "-"))
    head = ("program", "RMA", "figure", "plain", "preloaded", "ratio", "ratios")
    print(f"\n{label}: medians; the ratio is the median over pairs of runs")
    print("\n".join(table(head, lines, left=("program", "RMA", "figure"))))


def report_suite(label, outcome):
    """Prints what OpenCoarrays' tests did on one host."""
    count = {side: sum(len(names) for passed, names in outcome.items() if passed[at])
             for at, side in enumerate(SIDES)}
    total = sum(map(len, outcome.values()))
    print(f"\n{label}: of OpenCoarrays' {total} test programs, on two images, {count['plain']} "
          f"pass plain and {count['preloaded']} preloaded")
    for passed, what in (((False, True), "only preloaded"), ((True, False), "only plain")):
        print(f"  pass {what}: {', '.join(outcome.get(passed, [])) or 'none'}")


def main():
    """Measures, prints, writes."""
    options, chosen = parse()
    chosen = [host for host in chosen if host.prefix]
    options.rounds = 1 if options.quick else options.rounds
    os.environ.pop("LD_PRELOAD", None)
    for host in chosen:
        host.permit()
    found = {host.label: list(installed(host, options)) for host in chosen}
    print(f"load of the machine at the start: {os.getloadavg()[0]:.1f}")
    wrong = []
    with Progress(sum(map(len, found.values())) * options.rounds * 2) as bar:
        for host in chosen:
            rows = []
            for program in found[host.label]:
                more, failures = measure(host, program, options, bar)
                rows += more
                for side, said in failures.items():
                    print(f"{host.label}, {program.name}, {side}: {str(said)[:800]}",
                          file=sys.stderr)
                    wrong += [program.name] if side == "preloaded" else []
            report(host.label, rows)
            write_rows(options.results, "programs", host.label, rows)
            if programs.coarray_folder(host).exists() and not (options.quick or options.no_suite):
                outcome = suite(host, options.limit, bar)
                report_suite(host.label, outcome)
                wrong += outcome.get((True, False), [])
    print(f"load of the machine at the end: {os.getloadavg()[0]:.1f}")
    if wrong:
        sys.exit(f"preloaded programs that failed or gave another answer: {wrong}")


if __name__ == "__main__":
    main()
