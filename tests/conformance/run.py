#!/usr/bin/env python3
"""Runs MPICH's tests of one-sided communication and collectives, built by `build`: preloaded, and
the one-sided ones with every closing call nonblocking.

  run.py --host NAME [--host NAME ...] [--way preload|nonblocking|plain ...]
         [--transport shm|host_mpi|verbs ...] [--full] [--only REGEX] ...

An entry of a test list is a program, a number of ranks and options. It passes if it exits with 0
and prints "No Errors" (or as its `resultTest` says). An entry may fail only if `known-HOST.tsv`
lists it, with the reason. The last lines are a table of counts per host, way and transport, and "N
passed, N failed".

Without --full, the entries in `slow` (one regular expression per line, on `folder/test options`)
are left out, and the second way and transport, and the collectives, run only the entries in
`sample`.
"""
import argparse
import collections
import os
import re
import signal
import subprocess
import sys
import time

import launch

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
ONE_SIDED = ["rma", "errors/rma", "threads/rma", "f77/rma", "f90/rma", "f08/rma", "cxx/rma"]
IN_C = ONE_SIDED[:3]  # folders that nonblocking.h applies to
COLLECTIVES = ["coll", "errors/coll", "threads/coll", "f77/coll", "f08/coll"]
WAYS = ["preload", "nonblocking", "pattern", "plain"]


class Entry:
    """One line of a test list."""

    def __init__(self, folder, line):
        words = line.split()
        self.folder, self.test = folder, words[0]
        self.ranks = int(words[1]) if len(words) > 1 and words[1].isdigit() else 2
        self.options = words[2:]
        self.env, self.args, self.judge, self.limit = {}, [], "", 0.0
        for word in self.options:
            key, _, value = word.partition("=")
            if key == "env":
                name, _, text = value.partition("=")
                self.env[name] = text
            elif key == "arg":
                self.args.append(value)
            elif key == "resultTest":
                self.judge = value
            elif key == "timeLimit":
                self.limit = float(value)

    def key(self):
        return self.folder, self.test, str(self.ranks), " ".join(self.options)

    def title(self):
        return " ".join([f"{self.folder}/{self.test}"] + self.options)


def patterns(name):
    """One regular expression of all lines of a file in this folder."""
    lines = [line.split("#")[0].strip() for line in open(os.path.join(HERE, name))]
    return re.compile("|".join(f"(?:{line})$" for line in lines if line) or "(?!)")


def known(host):
    """Entries of known-HOST.tsv: (folder, test, ranks, options) to the results on the plain host
    and with the library."""
    found = {}
    for line in open(os.path.join(HERE, f"known-{host}.tsv")).read().splitlines()[1:]:
        folder, test, ranks, options, plain, ours = line.split("\t")[:6]
        found[folder, test, ranks, options] = (plain, ours)
    return found


def run(host, entry, program, env, limit):
    """PASS, FAIL or TIMEOUT; seconds; and the beginning of the output if it did not pass."""
    begin = time.monotonic()
    env = {**env, **entry.env, "MPITEST_RETURN_WITH_CODE": "yes"}
    output, code = launch.run(launch.command(host, entry.ranks, env) + [program] + entry.args,
                              os.path.dirname(program), limit)
    seconds = time.monotonic() - begin
    if code is None:
        result = "TIMEOUT"
    elif entry.judge in ("TestStatus", "TestErrFatal"):
        result = "PASS" if (code == 0) == (entry.judge == "TestStatus") else "FAIL"
    else:
        result = "PASS" if code == 0 and re.search(r"^\s*No [Ee]rrors", output, re.M) else "FAIL"
    words = "" if result == "PASS" else " | ".join(line.strip() for line in output.splitlines()
                                                   if line.strip())[:400].replace("\t", " ")
    return result, seconds, words


def pattern_shim(host, built):
    """Compiles `pattern.c`, which sets the info key. Returns the path of the library."""
    shim = os.path.join(built, host, "pattern.so")
    subprocess.run([f"mpicc.{host}", "-O1", "-fPIC", "-shared", "-o", shim,
                    os.path.join(HERE, "pattern.c")], check=True)
    return shim


def entries(folder, built):
    """The entries of a folder's test list, which is made when the folder is configured or comes
    with the sources."""
    for place in (folder, f"../suite/test/mpi/{folder}"):
        path = os.path.join(built, place, "testlist")
        if os.path.exists(path):
            for line in open(path):
                line = line.split("#")[0].strip()
                if line and not line.startswith("@"):
                    yield Entry(folder, line)
            return


class Combination:
    """A way and a transport: what runs, and its environment."""

    def __init__(self, host, way, transport, options):
        self.host, self.way, self.transport = host, way, transport
        self.built = os.path.join(options.built, host)
        self.first = way == "plain" or (way == "preload" and transport == "shm")
        self.env = dict(item.split("=", 1) for item in options.env)
        prefix = dict(item.split("=", 1) for item in options.prefix)
        at = os.path.abspath(prefix.get(host, os.path.join(ROOT, "target", f"prefix-{host}")))
        library = os.path.join(at, "lib", "libmpix_rma.so")
        if way == "preload":
            self.env["LD_PRELOAD"] = library
        elif way == "pattern":
            self.env["LD_PRELOAD"] = f"{pattern_shim(host, options.built)} {library}"
        if transport and transport != "shm":
            self.env["MPIX_RMA_TRANSPORT"] = transport

    def name(self):
        return f"{self.host:8} {self.way:12} {self.transport:9}"

    def folders(self):
        """Collectives run once: neither nonblocking closing calls nor transports concern them."""
        if self.way == "nonblocking":
            return IN_C
        return ONE_SIDED + (COLLECTIVES if self.first else [])

    def left_out(self, entry, lists):
        """Whether the entry runs only with --full."""
        title = entry.title()
        if lists["slow"].match(title):
            return True
        in_all = self.first or self.way == "pattern"
        return (entry.folder in COLLECTIVES or not in_all) and not lists["sample"].match(title)

    def entries(self, only, lists):
        for folder in self.folders():
            for entry in entries(folder, self.built):
                if only and not re.search(only, entry.title()):
                    continue
                if self.way != "pattern" or lists["repeats"].match(entry.title()):
                    yield entry

    def run(self, entry, limit):
        """The result, seconds and words of an entry."""
        suffix = "-nonblocking" if self.way == "nonblocking" else ""
        program = os.path.join(self.built, entry.folder + suffix, entry.test)
        if not os.path.exists(program):
            return "NOBUILD", 0.0, "it does not build"
        return run(self.host, entry, program, self.env, max(limit, entry.limit))


def combinations(options):
    for host in options.host:
        for way in options.way or WAYS[:3]:
            for transport in [""] if way == "plain" else options.transport or ["shm", "host_mpi"]:
                yield Combination(host, way, transport, options)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", action="append", required=True)
    parser.add_argument("--built", default=os.path.join(ROOT, "target", "conformance"),
                        help="output folder of `build`")
    parser.add_argument("--prefix", action="append", default=[], metavar="NAME=DIR",
                        help="where the library is installed (default target/prefix-NAME)")
    parser.add_argument("--way", action="append", choices=WAYS)
    parser.add_argument("--transport", action="append", choices=["shm", "host_mpi", "verbs"])
    parser.add_argument("--full", action="store_true", help="all entries in all ways")
    parser.add_argument("--only", help="regular expression on `folder/test options`")
    parser.add_argument("--limit", type=float, default=180,
                        help="seconds per entry, unless its timeLimit is longer (default 180, as "
                             "in MPICH)")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--results", help="file for a table of all results (TSV)")
    options = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, launch.leave)
    lists = {name: patterns(name) for name in ("slow", "sample", "repeats")}
    counts, failed, begin = [], [], time.monotonic()
    results = open(options.results, "w") if options.results else None
    if results:
        print("host\tway\ttransport\tfolder\ttest\tranks\toptions\tresult\tseconds\twords",
              file=results)
    for combination in combinations(options):
        allowed, count = known(combination.host), collections.Counter()
        counts.append(count)
        for entry in combination.entries(options.only, lists):
            if not options.full and combination.left_out(entry, lists):
                count["left out"] += 1
                continue
            plain, ours = allowed.get(entry.key(), ("PASS", "PASS"))
            result, seconds, words = combination.run(entry, options.limit)
            if results:
                print(combination.host, combination.way, combination.transport, *entry.key(),
                      result, f"{seconds:.2f}", words, sep="\t", file=results, flush=True)
            if result == "PASS":
                count["passed"] += 1
                count["of these, not on the plain host"] += plain != "PASS"
            elif (plain if combination.way == "plain" else ours) in (result, "MAY FAIL"):
                count["known"] += 1
            else:
                count["failed"] += 1
                failed.append(f"{' '.join(combination.name().split())} {entry.title()}, "
                              f"{entry.ranks} ranks: {result} {words}")
                print(f"FAIL {failed[-1]}", flush=True)
        print(f"{combination.name()} " + ", ".join(f"{n} {what}" for what, n in count.items() if n)
              + f"; {time.monotonic() - begin:.0f} s", flush=True)
    passed = sum(count["passed"] for count in counts)
    if failed:
        print("failed:\n  " + "\n  ".join(failed))
    print(f"{passed} passed, {len(failed)} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
