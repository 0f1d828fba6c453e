#!/usr/bin/env python3
"""Runs parts of the tests by make, one after the other, and ends with a summary: each part's time,
what was skipped, and what the selection leaves out. Stops at the first part that fails.

  all.py          what `make test` runs
  all.py --check  representative C programs over the installed library, on each host
  all.py --full   what `make test-all` runs: two hours
"""
import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


@dataclass
class Part:
    """A make target: its arguments in `make test`, those in `make test-all` if they differ, and
    what the former leave out."""

    target: str
    some: tuple = ()
    full: "tuple | None" = None
    left_out: str = ""
    only_full: bool = False

    def arguments(self, full):
        """Arguments of make."""
        chosen = self.full if full and self.full is not None else self.some
        return [self.target, *chosen]


GUESTS = ("^(unmodified 2|locks 2|lost 2 .*(flush|notify_test) tag|outage 2 .*port"
          "|executor 2 .*arg=20)")
PARTS = (
    Part("test-lint"),
    Part("test-rust"),
    Part("test-loom"),
    Part("fuzz", (), ("SECONDS=600",), "more than a minute of fuzzing"),
    Part("test-small"),
    Part("test-netns", ("SOME=1",), (), "some programs between namespaces"),
    Part("test-verbs", ("LOSS=0", f"ONLY={GUESTS}"), ("FULL=1",),
         "most programs over RDMA, and those with packet loss"),
    Part("test-conformance", (), ("FULL=1",),
         "MPICH's long tests; mpi4py with 1 and 4 ranks, and over messages"),
    Part("test-c"),
    Part("test-random", ("SEEDS=100", "SECONDS=3"), ("SEEDS=1000", "SECONDS=60", "RANKS=2,3,4"),
         "most random programs on real ranks"),
    Part("test-hosts", only_full=True, left_out="MPICH 5 and Open MPI 5"),
    Part("swarm", ("SEEDS=1000000",), only_full=True,
         left_out="990,000 of 1,000,000 random programs"),
    Part("mutants", only_full=True, left_out="mutants of the engine"),
)
CHECK = (Part("test-c", ("TAG=sanitize",)),)
# Neither of both runs them.
ELSEWHERE = ("Open MPI over RDMA (make test-verbs VERBS_HOST=openmpi)",
             "Rust tests for AArch64 (make test-aarch64)", "valgrind (make test-valgrind)")


def run(part, full):
    """Runs a part and shows its output. Returns whether it passed, and its lines on skips."""
    command = [os.environ.get("MAKE", "make"), "--no-print-directory", *part.arguments(full)]
    skipped = []
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace") as process:
        for line in process.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            if line.startswith(("SKIP ", "SKIPPED ")):
                skipped.append(line.rstrip())
    return process.returncode == 0, skipped


def main():
    """Runs the parts."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--check", action="store_true")
    group.add_argument("--full", action="store_true")
    options = parser.parse_args()
    parts = CHECK if options.check else [part for part in PARTS
                                         if options.full or not part.only_full]
    lines, skips = [], []
    for part in parts:
        began = time.monotonic()
        passed, skipped = run(part, options.full)
        skips += skipped
        lines.append(f"{'passed' if passed else 'FAILED'}  {time.monotonic() - began:6.0f} s  "
                     f"make {' '.join(part.arguments(options.full))}")
        if not passed:
            break
    print("", *lines, sep="\n")
    if skips:
        print("", *dict.fromkeys(skips), sep="\n")
    if not options.check:
        left_out = [] if options.full else [f"{part.left_out} (make test-all)"
                                            for part in PARTS if part.left_out]
        print("\nleft out:", *(f"  {what}" for what in (*left_out, *ELSEWHERE)), sep="\n")
    print(f"\n{len(skips)} skipped, {sum(line.startswith('passed') for line in lines)} of "
          f"{len(parts)} parts passed")
    if len(lines) < len(parts) or lines[-1].startswith("FAILED"):
        sys.exit(1)


if __name__ == "__main__":
    main()
