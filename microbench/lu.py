#!/usr/bin/env python3
"""LU decomposition with rows broadcast one-sidedly, section VIII.B of "Nonblocking Epochs in MPI One-Sided
Communication": the plain host, blocking and nonblocking epochs, nonblocking ones in any order.

Ends with an error for a wrong decomposition, for results that are not the same bit by bit, or for a failed run, never
for timing."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from driver import applications, hosts  # noqa: E402

LU = applications.Application(
    name="lu", metric="seconds", unit="ms", more_is_better=False,
    case_keys=("ranks", "m", "depth", "ahead"), agreeing=("m", "seed"), extra=("mpi_share", "residual"))


def parse():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    applications.add_options(parser, rounds=11)
    parser.add_argument("--size", type=int, default=1000, help="rows of the matrix (default: 1000)")
    parser.add_argument("--crowded-size", type=int, default=101,
                        help="the same where ranks outnumber cores (default: 101)")
    parser.add_argument("--depth", type=int, default=8, help="rows that a rank has room for (default: 8)")
    parser.add_argument("--ahead", default="0,1", help="look-ahead: 0, 1 or both (default: 0,1)")
    return hosts.chosen(parser)


def main():
    """Chooses the cases."""
    options, chosen = parse()
    cases = []
    for ranks in applications.counts(options.ranks):
        crowded = ranks > applications.cores()
        size = 64 if options.quick else options.crowded_size if crowded else options.size
        for ahead in options.ahead.split(","):
            # The library's programs alone know the series with reordered epochs; plain ones have nothing to reorder.
            arguments = ["--size", size, "--depth", options.depth, "--ahead", ahead, "--reorder"]
            cases.append((ranks, arguments, 1 if options.quick else 3 if crowded else options.rounds))
    applications.main(LU, chosen, cases, options, lambda seconds: f"{1e3 * seconds:.2f}")


if __name__ == "__main__":
    main()
