#!/usr/bin/env python3
"""LU decomposition with rows broadcast one-sidedly, section VIII.B of "Nonblocking Epochs in MPI
One-Sided Communication": the plain host; blocking, nonblocking, and reordered nonblocking epochs.

Exits with an error for a wrong decomposition, for results that are not bitwise equal, or for a
failed run, never for timing.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from driver import applications, hosts  # noqa: E402

LU = applications.Application(
    name="lu", metric="seconds", unit="ms", more_is_better=False,
    case_keys=("ranks", "m", "depth", "ahead"), agreeing=("m", "seed"),
    extra=("mpi_share", "residual"))


def parse():
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    applications.add_options(parser, rounds=11)
    parser.add_argument("--size", type=int, default=1000, help="rows of the matrix (default: 1000)")
    parser.add_argument("--crowded-size", type=int, default=101,
                        help="the same if ranks outnumber cores (default: 101)")
    parser.add_argument("--depth", type=int, default=8,
                        help="capacity of a rank's window in rows (default: 8)")
    parser.add_argument("--ahead", default="0,1", help="look-ahead: 0, 1 or both (default: 0,1)")
    return hosts.chosen(parser)


def main():
    """Selects the cases."""
    options, chosen = parse()
    cases = []
    for ranks in applications.counts(options.ranks):
        crowded = ranks > applications.cores()
        size = 64 if options.quick else options.crowded_size if crowded else options.size
        for ahead in options.ahead.split(","):
            # Only programs with the library have the reordered series.
            arguments = ["--size", size, "--depth", options.depth, "--ahead", ahead, "--reorder"]
            cases.append((ranks, arguments, 1 if options.quick else 3 if crowded
                          else options.rounds))
    applications.main(LU, chosen, cases, options, lambda seconds: f"{1e3 * seconds:.2f}")


if __name__ == "__main__":
    main()
