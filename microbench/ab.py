#!/usr/bin/env python3
"""Compares this revision of the library with another one. The programs of latency.py, notify.py and
overhead.py run with both, alternating (A B B A), so that drifts of the machine affect both alike.
If callgrind is installed, it also counts the instructions of single calls.

The programs are those of this revision; only the library differs. Figures are compared between runs
under equal conditions. A figure is marked if this revision is worse by more than 5 % and 5 ns.
Exits with an error for wrong results or a failed run, never for timing.
"""

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from driver import conditions, hosts, instructions  # noqa: E402
from driver.progress import Progress  # noqa: E402
from driver.results import write_rows  # noqa: E402
from driver.table import table  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
SHARE, SPAN_US = 1.05, 0.005


def parse():
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    hosts.add_options(parser)
    parser.add_argument("--base", required=True, help="the other revision, as a git revision")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of A B B A")
    parser.add_argument(
        "--programs", default="latency,notify,overhead", help="which benchmarks, comma-separated"
    )
    parser.add_argument(
        "--only", metavar="PREFIX", help="only latency figures whose name starts with this"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, to check that all works")
    parser.add_argument("--results", type=Path, default=hosts.RESULTS, help="output folder")
    return hosts.chosen(parser)


def run(command, **more):
    """Runs a command; raises RunFailed with its output on failure."""
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False, **more
    )
    if done.returncode != 0:
        raise hosts.RunFailed(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


def base_prefix(base, host):
    """Builds the other revision for a host, once; returns its installation folder."""
    revision = run(["git", "-C", ROOT, "rev-parse", "--short=12", f"{base}^{{commit}}"])
    folder = ROOT / "target" / "ab" / revision
    prefix = folder / f"prefix-{host.label}"
    if not (prefix / "lib" / "libmpix_rma.so").exists():
        if not (folder / "tree").exists():
            folder.mkdir(parents=True, exist_ok=True)
            run(["git", "-C", ROOT, "worktree", "prune"])
            run(["git", "-C", ROOT, "worktree", "add", "--detach", folder / "tree", revision])
        print(f"building {revision} for {host.label}", file=sys.stderr)
        run(
            [
                "make",
                "install",
                f"MPICC={host.mpicc}",
                f"LABEL={host.label}",
                f"PREFIX={prefix}",
                "DESTDIR=",
            ],
            cwd=folder / "tree",
        )
    return prefix


def programs_of(options):
    """Name, program and arguments to run with each library."""
    small = options.quick
    few = ["--batches", 3, "--batch-us", 50] if small else []
    known = {
        "latency": [("latency", ["--laps", 1, *few])],
        "notify": [("notify", ["-b", 3, "-t", 50, "-m", 4096] if small else [])],
        "overhead": [
            ("overhead-plain", ["-b", 3, "-t", 50] if small else []),
            ("overhead-plain", ["-w"] + (["-b", 3, "-t", 50] if small else [])),
        ],
    }
    if options.only:
        known["latency"][0][1].extend(["--only", options.only])
    wanted = options.programs.split(",")
    unknown = [name for name in wanted if name not in known]
    if unknown:
        sys.exit(f"no such program: {', '.join(unknown)}")
    return [(name, *turn) for name in wanted for turn in known[name]]


def figure_of(name, arguments, line):
    """Key, value, whether larger is better, and conditions, from one line of results. None for
    limits of the machine."""
    value = line.get("median_us")
    rate = value is None
    if rate:
        value = line.get("median_mps")
    if value is None or line.get("name") == "bare":
        return None
    which = (
        line.get("window")
        or line.get("bench")
        or ("idle window" if "-w" in arguments else "no window")
    )
    return (name, line["name"], which, line.get("bytes", "")), value, rate, conditions.of(line)


def measure(host, prefixes, options, bar):
    """Samples (value, conditions) by figure and "base" or "now"; and which figures are rates."""
    samples, rates = {}, {}
    for _ in range(1 if options.quick else options.rounds):
        for name, program, arguments in programs_of(options):
            for which in ("base", "now", "now", "base"):
                bar.show(f"{host.label} {name} {which}")
                library = prefixes[which] / "lib"
                linked = {"LD_LIBRARY_PATH": library}
                preloaded = {"LD_PRELOAD": library / "libmpix_rma.so"}
                environment = preloaded if program.endswith("-plain") else linked
                command = host.command(2, program, *arguments, environment=environment)
                for line in hosts.results_of(command):
                    if not line.get("verified", True):
                        raise hosts.RunFailed(
                            f"{host.label}, {which}: wrong result in {line['name']}"
                        )
                    found = figure_of(name, arguments, line)
                    if found:
                        key, value, rate, measured_under = found
                        samples.setdefault(key, {"base": [], "now": []})[which].append(
                            (value, measured_under)
                        )
                        rates[key] = rate
                bar.step(host.label)
    return samples, rates


def counts_of(host, prefixes):
    """Instructions of each counted call with either library."""
    libraries = {which: prefix / "lib" / "libmpix_rma.so" for which, prefix in prefixes.items()}
    return [
        {
            "host": host.label,
            "program": "instructions",
            "name": case,
            "unit": "instructions",
            **{
                which: instructions.of_call(host, library, case)
                for which, library in libraries.items()
            },
        }
        for case in instructions.CASES
    ]


def rows_of(host, samples, rates):
    """One row for each figure that both have under equal conditions."""
    known = conditions.classes(
        found for mine in samples.values() for seen in mine.values() for _, found in seen
    )
    rows = []
    for key, seen in samples.items():
        equal, _ = conditions.equal(seen, known)
        values = {which: statistics.median(found) for which, found in equal.items()}
        if len(values) < 2:
            continue
        base, now = values["base"], values["now"]
        ratio = base / now if rates[key] else now / base
        span = 0 if rates[key] else now - base
        rows.append(
            {
                "host": host.label,
                "program": key[0],
                "name": key[1],
                "which": key[2],
                "bytes": key[3],
                "unit": "mps" if rates[key] else "us",
                "base": base,
                "now": now,
                "ratio": ratio,
                "worse": ratio > SHARE and (rates[key] or span > SPAN_US),
            }
        )
    return rows


def main():
    """Builds, measures, prints, writes."""
    options, chosen = parse()
    chosen = [host for host in chosen if host.prefix]
    os.environ.pop("LD_PRELOAD", None)
    rounds = 1 if options.quick else options.rounds
    try:
        prefixes = {
            host.label: {"base": base_prefix(options.base, host), "now": host.prefix}
            for host in chosen
        }
        for host in chosen:
            host.build()
        with Progress(len(chosen) * rounds * 4 * len(programs_of(options))) as bar:
            measured = [
                (host, *measure(host, prefixes[host.label], options, bar)) for host in chosen
            ]
        counts = {
            host.label: counts_of(host, prefixes[host.label]) if instructions.available() else []
            for host in chosen
        }
    except hosts.RunFailed as failure:
        sys.exit(str(failure))
    for host, samples, rates in measured:
        rows = rows_of(host, samples, rates)
        lines = [
            (
                r["program"],
                r["name"],
                r["which"],
                r["bytes"],
                r["unit"],
                f"{r['base']:.4f}",
                f"{r['now']:.4f}",
                f"{r['ratio']:.3f}{' *' if r['worse'] else ''}",
            )
            for r in rows
        ]
        print(
            f"\n{host.label}: {options.base} and this revision; a ratio below 1 is better "
            "(* = worse by 5 % and 5 ns)"
        )
        head = ("program", "name", "which", "bytes", "unit", "base", "now", "ratio")
        print("\n".join(table(head, lines, left=("program", "name", "which", "unit"))))
        mean = statistics.geometric_mean(r["ratio"] for r in rows) if rows else 1
        print(
            f"{host.label}: {len(rows)} figures, geometric mean {mean:.3f}, "
            f"{sum(r['worse'] for r in rows)} worse"
        )
        for r in counts[host.label]:
            print(
                f"{host.label}: {r['name']}: {r['base']:.1f} instructions, "
                f"now {r['now']:.1f}{' *' if r['now'] > r['base'] else ''}"
            )
        write_rows(options.results, "ab", host.label, rows + counts[host.label])


if __name__ == "__main__":
    main()
