#!/usr/bin/env python3
"""The one-sided tests of mpi4py 4.1.2, which loads MPI into a process that was not linked with it, with our library preloaded.

  mpi4py.py --host NAME [--host NAME ...] [--ranks N ...] [--transport shm|host_mpi ...]

mpi4py is built for each host from its source distribution, by pip, in an environment of its own below target/conformance/mpi4py. How many
tests run and how many are skipped is part of the result: on some hosts mpi4py skips all of them and says OK.
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
# Module, and its tests: all there are, and the most that may be skipped.
MODULES = {"test_rma": (36, 0), "test_rma_nb": (14, 0), "test_win": (100, 0)}


def prepare(folder, hosts):
    """The environments, and the folder of the tests."""
    source = os.path.join(folder, f"mpi4py-{VERSION}")
    os.makedirs(folder, exist_ok=True)
    for host in hosts:
        python = os.path.join(folder, host, "bin", "python")
        pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        if not os.path.exists(os.path.join(folder, host, "installed")):
            subprocess.run([sys.executable, "-m", "venv", os.path.join(folder, host)], check=True)
            if not os.path.isdir(source):
                subprocess.run(pip + ["download", "--no-binary", "mpi4py", "--no-deps", f"mpi4py=={VERSION}"], cwd=folder, check=True)
                shutil.unpack_archive(source + ".tar.gz", folder)
            # The C file of mpi4py is long: optimising it takes minutes and makes nothing better here.
            env = dict(os.environ, MPICC=shutil.which(f"mpicc.{host}"), CFLAGS="-O0 -g0")
            subprocess.run(pip + ["install", source + ".tar.gz"], env=env, check=True)
            open(os.path.join(folder, host, "installed"), "w").close()
    return os.path.join(source, "test")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", action="append", required=True)
    parser.add_argument("--ranks", action="append", type=int)
    parser.add_argument("--prefix", action="append", default=[], metavar="NAME=DIR")
    parser.add_argument("--transport", action="append", choices=["shm", "host_mpi"])
    parser.add_argument("--plain", action="store_true", help="without our library")
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
                    line = launch.command(host, ranks, env) + [os.path.join(folder, host, "bin", "python"), "main.py", "--no-threads", "-i", module + r"\.py$"]
                    output, code = launch.run(line, tests, options.limit)
                    if code is None:
                        output += f"\nstill running after {options.limit:.0f} s"
                    # Processes share the output: what one prints may stand in the middle of another's line.
                    ran = [int(n) for n in re.findall(r"Ran (\d+) tests? in", output)]
                    skipped = [int(n) for n in re.findall(r"(?:OK|FAILED) \(.*?skipped=(\d+)", output)]
                    ok = len(re.findall(r"OK", output))
                    good = code == 0 and ran == [all_tests] * ranks and ok == ranks and max(skipped, default=0) <= skipped_most
                    passed, failed = passed + good, failed + (not good)
                    print(f"{'ok  ' if good else 'FAIL'} {host:8} {transport:8} mpi4py {module:12} {ranks} ranks: {sorted(set(ran))} tests, "
                          f"{max(skipped, default=0)} skipped, {time.monotonic() - begin:.0f} s", flush=True)
                    if not good:
                        print("".join(f"     | {text}\n" for text in output.splitlines()[-60:]), end="", flush=True)
    print(f"mpi4py: {passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
