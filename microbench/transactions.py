#!/usr/bin/env python3
"""Massive unstructured atomic transactions, sections IV.B and VIII.B of "Nonblocking Epochs in MPI
One-Sided Communication": the plain host; blocking and nonblocking epochs; nonblocking ones with
A_A_A_R.

Exits with an error for wrong sums, for results that differ between series, or for a failed run,
never for timing.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from driver import applications, hosts  # noqa: E402

TRANSACTIONS = applications.Application(
    name="transactions", metric="rate", unit="1000/s", more_is_better=True,
    case_keys=("ranks", "count", "window", "flops"), agreeing=("ranks", "count", "cells", "seed",
                                                               "audits"))


def parse():
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    applications.add_options(parser, rounds=11)
    parser.add_argument("--count", type=int, default=20000,
                        help="transactions per rank (default: 20000)")
    parser.add_argument("--crowded-count", type=int, default=200,
                        help="the same if ranks outnumber cores (default: 200)")
    parser.add_argument("--cells", type=int, default=1000, help="accounts per rank (default: 1000)")
    parser.add_argument("--windows", default="64,0",
                        help="pending transactions, 0: unbounded; comma-separated (default: 64,0)")
    parser.add_argument("--flops", type=int, default=0,
                        help="operations between transactions (default: 0)")
    return hosts.chosen(parser)


def main():
    """Selects the cases."""
    options, chosen = parse()
    cases = []
    for ranks in applications.counts(options.ranks):
        crowded = ranks > applications.cores()
        count = 100 if options.quick else options.crowded_count if crowded else options.count
        for window in options.windows.split(","):
            arguments = ["--count", count, "--window", window, "--flops", options.flops]
            # With --quick, few accounts, so that audits meet updates.
            few = ["--cells", 3, "--audits"]
            arguments += few if options.quick or crowded else ["--cells", options.cells]
            cases.append((ranks, arguments, 1 if options.quick else 3 if crowded
                          else options.rounds))
    applications.main(TRANSACTIONS, chosen, cases, options, lambda rate: f"{1e-3 * rate:.1f}")


if __name__ == "__main__":
    main()
