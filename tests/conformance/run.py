#!/usr/bin/env python3
"""Runs MPICH's one-sided tests, built by `build`: preloaded, and with every closing call
nonblocking.

  run.py --host NAME [--host NAME ...] [--way preload|nonblocking|plain ...]
         [--transport shm|host_mpi|verbs ...] [--full] [--only REGEX] ...

An entry of a test list is a program, a number of ranks and options. It passes if it exits with 0
and prints "No Errors" (or as its `resultTest` says). An entry may fail only if `known-HOST.tsv`
lists it, with the reason. The last lines are a table of counts per host, way and transport, and "N
passed, N failed".

Without --full, the entries in `slow` (one regular expression per line, on `folder/test options`)
are left out, and the second way and transport run only the entries in `sample`.
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
FOLDERS = ["rma", "errors/rma", "threads/rma", "f77/rma", "f90/rma", "f08/rma", "cxx/rma"]
IN_C = FOLDERS[:3]  # folders that nonblocking.h applies to


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


def entries(folder, built, source):
    for place in (f"{built}/{folder}/testlist", f"{source}/{folder}/testlist"):
        if os.path.exists(place):
            for line in open(place):
                line = line.split("#")[0].strip()
                if line and not line.startswith("@"):
                    yield Entry(folder, line)
            return


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", action="append", required=True)
    parser.add_argument("--built", default=os.path.join(ROOT, "target", "conformance"),
                        help="output folder of `build`")
    parser.add_argument("--prefix", action="append", default=[], metavar="NAME=DIR",
                        help="where the library is installed (default target/prefix-NAME)")
    parser.add_argument("--way", action="append",
                        choices=["preload", "nonblocking", "pattern", "plain"])
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
    prefix = dict(item.split("=", 1) for item in options.prefix)
    slow, sample, repeats = (patterns(name) for name in ("slow", "sample", "repeats"))
    table, failed, begin = collections.OrderedDict(), [], time.monotonic()
    results = open(options.results, "w") if options.results else None
    if results:
        print("host\tway\ttransport\tfolder\ttest\tranks\toptions\tresult\tseconds\twords",
              file=results)
    for host in options.host:
        allowed = known(host)
        at = os.path.abspath(prefix.get(host, os.path.join(ROOT, "target", f"prefix-{host}")))
        for way in options.way or ["preload", "nonblocking", "pattern"]:
            for transport in [""] if way == "plain" else options.transport or ["shm", "host_mpi"]:
                first_combination = way == "plain" or (way == "preload" and transport == "shm")
                count = table.setdefault((host, way, transport), collections.Counter())
                env = dict(item.split("=", 1) for item in options.env)
                if way in ("preload", "pattern"):
                    env["LD_PRELOAD"] = os.path.join(at, "lib", "libmpix_rma.so")
                if way == "pattern":
                    env["LD_PRELOAD"] = f"{pattern_shim(host, options.built)} {env['LD_PRELOAD']}"
                if transport and transport != "shm":
                    env["MPIX_RMA_TRANSPORT"] = transport
                for folder in IN_C if way == "nonblocking" else FOLDERS:
                    built = os.path.join(options.built, host)
                    for entry in entries(folder, built, os.path.join(options.built, "suite", "test",
                                                                     "mpi")):
                        title = entry.title()
                        if options.only and not re.search(options.only, title):
                            continue
                        if way == "pattern" and not repeats.match(title):
                            continue
                        if not options.full and (slow.match(title)
                                                 or not (first_combination or way == "pattern"
                                                         or sample.match(title))):
                            count["left out"] += 1
                            continue
                        plain, ours = allowed.get(entry.key(), ("PASS", "PASS"))
                        program = os.path.join(built, folder
                                               + ("-nonblocking" if way == "nonblocking" else ""),
                                               entry.test)
                        if not os.path.exists(program):
                            result, seconds, words = "NOBUILD", 0.0, "it does not build"
                        else:
                            result, seconds, words = run(host, entry, program, env,
                                                         max(options.limit, entry.limit))
                        if results:
                            print(host, way, transport, *entry.key(), result, f"{seconds:.2f}",
                                  words, sep="\t", file=results, flush=True)
                        if result == "PASS":
                            count["passed"] += 1
                            count["of these, not on the plain host"] += plain != "PASS"
                        elif (plain if way == "plain" else ours) in (result, "MAY FAIL"):
                            count["known"] += 1
                        else:
                            count["failed"] += 1
                            failed.append(f"{host} {way} {transport} {title}, {entry.ranks} "
                                          f"ranks: {result} {words}")
                            print(f"FAIL {failed[-1]}", flush=True)
                print(f"{host:8} {way:12} {transport:9} "
                      + ", ".join(f"{n} {what}" for what, n in count.items() if n)
                      + f"; {time.monotonic() - begin:.0f} s", flush=True)
    passed = sum(count["passed"] for count in table.values())
    if failed:
        print("failed:\n  " + "\n  ".join(failed))
    print(f"{passed} passed, {len(failed)} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
