#!/usr/bin/env python3
"""Runs the ten patterns of "Nonblocking Epochs in MPI One-Sided Communication", section VIII.A.

For every host: the plain host, and the library in blocking and nonblocking form, or with a reorder
flag off and on. Prints measurements beside the predictions of the paper's equations, writes JSON
lines and draws figures. Exits with an error for wrong bytes or a failed run, never for timing.
"""

import argparse
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from driver import figures, hosts  # noqa: E402
from driver.progress import Progress  # noqa: E402
from driver.results import write_rows  # noqa: E402
from driver.table import bytes_text, table  # noqa: E402

QUICK = {"iterations": 5, "delay_us": 500, "max_bytes": 4096}


def parse():
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    hosts.add_options(parser)
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--delay-us", type=float, default=1000.0, help="delay of the late process")
    parser.add_argument("--pattern", action="append", help="only this pattern (may be repeated)")
    parser.add_argument("--quick", action="store_true", help="small sizes, to check that all works")
    parser.add_argument("--results", type=Path, default=hosts.RESULTS, help="output folder")
    parser.add_argument("--no-figures", action="store_true")
    return hosts.chosen(parser)


def arguments_of(options):
    """Arguments of the programs."""
    values = {"iterations": options.iterations, "delay_us": options.delay_us}
    if options.quick:
        values = QUICK
    return [word for name, value in values.items()
            for word in (f"--{name.replace('_', '-')}", str(value))]


def plan(host, options, arguments):
    """Runs of one host, as (program, pattern, ranks, lines of results); plain and library
    alternate."""
    programs = ["patterns-plain"] + (["patterns"] if host.prefix else [])
    runs = []
    for turn, program in enumerate(programs):
        listed = subprocess.run([host.folder / program, "--list", *arguments], capture_output=True,
                                text=True, check=True).stdout
        for line in listed.splitlines():
            name, ranks, lines = line.split()
            if not options.pattern or name in options.pattern:
                runs.append((turn, program, name, int(ranks), int(lines)))
    names = list(dict.fromkeys(run[2] for run in sorted(runs, key=lambda run: -run[0])))
    runs.sort(key=lambda run: (names.index(run[2]), run[0]))
    return [run[1:] for run in runs]


def measure(chosen, options):
    """Runs everything on all hosts. Returns results per label, and failures."""
    arguments = arguments_of(options)
    plans = {host.label: plan(host, options, arguments) for host in chosen}
    results, failures = {host.label: [] for host in chosen}, []
    with Progress(sum(run[3] for runs in plans.values() for run in runs)) as bar:
        for host in chosen:
            for program, name, ranks, _ in plans[host.label]:
                bar.show(f"{host.label} {name}")
                command = host.command(ranks, program, "--json", "--pattern", name, *arguments)
                try:
                    for result in hosts.results_of(command):
                        result["host"] = host.label
                        results[host.label].append(result)
                        bar.step(f"{host.label} {name} {result['series']}")
                except hosts.RunFailed as failure:
                    failures.append(str(failure))
    return results, failures


def show(label, results):
    """The table of one host, and how many figures agree with the prediction."""
    left = ("case", "series", "metric", "verdict")
    rows = []
    for r in results:
        verdict = "agrees" if r["agrees"] else f"differs (+-{r['tolerance_us']:.0f})"
        if not r["verified"]:
            verdict += ", WRONG BYTES"
        rows.append((r["case"], bytes_text(r["size"]), r["series"], r["metric"],
                     f"{r['median_us']:.1f}",
                     f"{r['iqr_us']:.1f}", f"{r['predicted_us']:.1f}", f"{r['delay_us']:.0f}",
                     verdict))
    head = ("case", "bytes", "series", "metric", "median us", "IQR", "predicted", "delay",
            "verdict")
    print(f"\n{label}: medians, and what equations 1 to 3 predict from the transfers measured in "
          f"the same run")
    print("\n".join(table(head, rows, left)))
    for title, mine in (("library", True), ("plain host", False)):
        counted = [r for r in results if (r["series"] != "host") == mine]
        if counted:
            agreeing = sum(r["agrees"] for r in counted)
            right = "every byte right" if all(r["verified"] for r in counted) else "WRONG BYTES"
            print(f"{label}, {title}: {agreeing} of {len(counted)} agree with the prediction; "
                  f"{right}.")


def main():
    """Builds, measures, prints, writes, draws."""
    options, chosen = parse()
    hosts.build(chosen)
    results, failures = measure(chosen, options)
    for label, rows in results.items():
        show(label, rows)
        write_rows(options.results, "patterns", label, rows)
    if not options.no_figures:
        figures.draw("patterns.py", options.results, *results)
    for failure in failures:
        print(f"\nFAILED: {failure}", file=sys.stderr)
    wrong = any(not row["verified"] for rows in results.values() for row in rows)
    sys.exit(1 if failures or wrong else 0)


if __name__ == "__main__":
    main()
