#!/usr/bin/env python3
"""The paper's figures 2 to 13 in virtual time, by the simulator mpix-sim: results as JSON lines, a
table beside the paper's numbers, and figures. `--full` continues to 2,048 ranks (LU) and 16,384
(transactions), which may take an hour.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from driver import figures  # noqa: E402


def runs(options):
    """Name of the results, and the simulator's arguments, for each part."""
    few = options.quick
    full = options.full
    lu = ["lu", "--depth", "2"]  # one row is applied while the next one arrives
    transactions = ["transactions", "--seed", "1", "--window", str(options.window)]
    yield "patterns", [["pattern"], ["--progress-thread", "pattern"]]
    if few:
        yield "lu", [[*lu, "--size", "256", "--ranks", "16,32"]]
        yield "transactions", [[*transactions, "--count", "20", "--warm-up", "5",
                                "--ranks", "16,32"]]
        yield "pending", [["pending", "--epochs", "1,100,1000"]]
        return
    small = "64,128,256,512,1024,2048" if full else "64,128,256,512"
    large = "64,128,256,512,1024,2048" if full else "64,128,256"
    yield "lu", [[*lu, "--size", "8192", "--ranks", small],
                 [*lu, "--size", "16384", "--ranks", large],
                 [*lu, "--ahead", "--size", "8192", "--ranks", "64,128,256"],
                 [*lu, "--set", "byte=0", "--size", "8192", "--ranks", "64,128,256"]]
    yield "transactions", [[*transactions, "--count", "400", "--warm-up", "40",
                            "--ranks", "64,128,256,512"],
                           [*transactions, "--count", "100", "--warm-up", "10",
                            "--ranks", "1024,4096,16384" if full else "1024,4096"]]
    yield "pending", [["pending", "--epochs", "1,10,100,1000,10000,100000"
                       + (",1000000" if full else "")]]


def run(options, name, commands):
    """Runs commands one after the other; their lines go to one file."""
    path = options.results / f"{name}.jsonl"
    with path.open("w", encoding="utf-8") as results:
        for arguments in commands:
            command = [str(options.program), "--profile", options.profile, *arguments]
            print(" ".join(command), file=sys.stderr, flush=True)
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
                for line in program.stdout:
                    row = json.loads(line)
                    row["command"] = " ".join(["mpix-sim", "--profile", options.profile,
                                               *arguments])
                    results.write(json.dumps(row) + "\n")
                    results.flush()
            if program.returncode != 0:
                sys.exit(f"{' '.join(command)}: exit status {program.returncode}")


def main():
    """Runs everything and draws it."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=Path("target/quick/mpix-sim"))
    parser.add_argument("--results", type=Path, default=Path("docs/results"))
    parser.add_argument("--profile", default="qdr-2014")
    parser.add_argument("--window", type=int, default=8,
                        help="pending epochs of a rank in transactions (default: 8)")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to check that all works")
    parser.add_argument("--only", help="only this part: patterns, lu, transactions, pending")
    parser.add_argument("--no-figures", action="store_true")
    options = parser.parse_args()
    options.results.mkdir(parents=True, exist_ok=True)
    for name, commands in runs(options):
        if options.only in (None, name):
            run(options, name, commands)
    if not options.no_figures and not figures.draw("simulated.py", options.results):
        sys.exit(1)


if __name__ == "__main__":
    main()
