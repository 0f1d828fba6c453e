#!/usr/bin/env python3
"""Runs the one-sided tests of mpi4py 4.1.2 with the library preloaded. Python loads MPI by dlopen.

  mpi4py.py --host NAME [--host NAME ...] [--ranks N ...] [--transport shm|host_mpi ...]

Pip builds mpi4py for each host from its source distribution, in a virtual environment below
target/conformance/mpi4py. The numbers of tests run and skipped are checked too: on some hosts
mpi4py skips all of them and reports OK.
"""
import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import launch

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
VERSION = "4.1.2"
# Module: number of tests, and of tests that may be skipped.
MODULES = {"test_rma": (36, 0), "test_rma_nb": (14, 0), "test_win": (100, 0)}


def prepare(folder, hosts):
    """Creates the virtual environments; returns the folder of the tests."""
    source = os.path.join(folder, f"mpi4py-{VERSION}")
    os.makedirs(folder, exist_ok=True)
    for host in hosts:
        python = os.path.join(folder, host, "bin", "python")
        pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        if not os.path.exists(os.path.join(folder, host, "installed")):
            subprocess.run([sys.executable, "-m", "venv", os.path.join(folder, host)], check=True)
            if not os.path.isdir(source):
                subprocess.run(pip + ["download", "--no-binary", "mpi4py",
                                      "--no-deps", f"mpi4py=={VERSION}"], cwd=folder, check=True)
                shutil.unpack_archive(source + ".tar.gz", folder)
            # Optimizing mpi4py's long C file takes minutes for no benefit.
            env = dict(os.environ, MPICC=shutil.which(f"mpicc.{host}"), CFLAGS="-O0 -g0")
            subprocess.run(pip + ["install", source + ".tar.gz"], env=env, check=True)
            open(os.path.join(folder, host, "installed"), "w").close()
    return os.path.join(source, "test")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", action="append", required=True)
    parser.add_argument("--ranks", action="append", type=int)
    parser.add_argument("--prefix", action="append", default=[], metavar="NAME=DIR")
    parser.add_argument("--transport", action="append", choices=["shm", "host_mpi"])
    parser.add_argument("--plain", action="store_true", help="without the library")
    parser.add_argument("--limit", type=float, default=240, help="seconds per module")
    parser.add_argument("--only", help="regular expression on modules")
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, launch.leave)
    prefix = dict(item.split("=", 1) for item in options.prefix)
    folder = os.path.join(ROOT, "target", "conformance", "mpi4py")
    tests = prepare(folder, options.host)
    passed, failed = 0, 0
    for host in options.host:
        at = os.path.abspath(prefix.get(host, os.path.join(ROOT, "target", f"prefix-{host}")))
        for transport in options.transport or ["shm"]:
            env = {} if options.plain else {"LD_PRELOAD": os.path.join(at, "lib", "libmpix_rma.so")}
            if transport != "shm":
                env["MPIX_RMA_TRANSPORT"] = transport
            for ranks in options.ranks or [1, 2]:
                for module, (all_tests, skipped_most) in MODULES.items():
                    if options.only and not re.search(options.only, module):
                        continue
                    begin = time.monotonic()
                    python = os.path.join(folder, host, "bin", "python")
                    line = launch.command(host, ranks, env)
                    line += [python, "main.py", "--no-threads", "-i", module + r"\.py$"]
                    output, code = launch.run(line, tests, options.limit)
                    if code is None:
                        output += f"\nstill running after {options.limit:.0f} s"
                    # Processes share the output: one may print in the middle of another's line.
                    ran = [int(n) for n in re.findall(r"Ran (\d+) tests? in", output)]
                    skipped = [int(n) for n in re.findall(r"(?:OK|FAILED) \(.*?skipped=(\d+)",
                                                          output)]
                    ok = len(re.findall(r"OK", output))
                    good = (code == 0 and ran == [all_tests] * ranks and ok == ranks
                            and max(skipped, default=0) <= skipped_most)
                    passed, failed = passed + good, failed + (not good)
                    print(f"{'ok  ' if good else 'FAIL'} {host:8} {transport:8} mpi4py "
                          f"{module:12} {ranks} ranks: {sorted(set(ran))} tests, "
                          f"{max(skipped, default=0)} skipped, {time.monotonic() - begin:.0f} s",
                          flush=True)
                    if not good:
                        print("".join(f"     | {text}\n" for text in output.splitlines()[-60:]),
                              end="", flush=True)
    print(f"mpi4py: {passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
