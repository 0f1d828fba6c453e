#!/usr/bin/env python3
"""`make test-verbs`: prepares guests with soft-RoCE, and tests verbs and the library in them.

  stage.py --host NAME [--guests 1,2,3] [--loss SHARE] [--transport NAME] [--only REGEX]
           [--full] [--times N] [--compare]

Runs: one guest (verbs alone, then C tests with the transport forced); two and three guests (C tests
across them, ranks placed alternately); two guests while frames are dropped (`loss`); two guests,
one of which is killed (`killed`). Programs are compiled outside, since guests are slow. A run takes
the entries of tests/rxe/testlist with its tag, and with --full also those with the tag TAG-full.
One guest then also runs the sample of tests/conformance, if that was built. --times repeats
everything until something fails. --compare only compares latencies with perftest's and with those
of the same requests without the library. A run that exceeds its time limit has failed; if a guest
does not boot, the run is repeated once.
"""
import argparse
import os
import re
import shlex
import subprocess
import sys
import time

import guests
import prepare

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BUILD = os.path.join(ROOT, "target", "rxe", "build")
SUITE = os.path.join(ROOT, "target", "conformance")


class Run:
    """Guests, and what runs in the first one."""

    def __init__(self, name, count, tag, seconds, loss=0.0, probe=True):
        self.name, self.count, self.tag = name, count, tag
        self.seconds, self.loss, self.probe = seconds, loss, probe
        # Ranks that share a virtual processor wait for time slices of milliseconds; real ones
        # switch faster.
        self.cpus = ["--cpus", "4"] if count == 1 else []

    def has_entries(self, options):
        """Whether --only selects an entry of this run."""
        said = subprocess.run([sys.executable, f"{ROOT}/tests/c/run.py",
                               "--names", "--list", f"{HERE}/testlist", "--tag", self.tags(options),
                               "--host", options.host[0], "--only", options.only],
                               capture_output=True, text=True, check=True)
        return bool(said.stdout.strip())

    def tags(self, options):
        return f"{self.tag},{self.tag}-full" if options.full else self.tag

    def script(self, options):
        """Shell script for the first guest: verbs alone, then the C tests."""
        lines = ["set -e"]
        if not self.probe:
            pass
        elif self.count == 1:
            lines += [f"{BUILD}/probe"]
        else:
            # In the background: the launcher's shell would wait for it.
            lines += [f"{HERE}/rsh guest1 {BUILD}/probe listen & {BUILD}/probe connect fabric1",
                      "wait"]
            if self.loss:
                # Without retransmissions, nothing was tested.
                lines += ["retries=$(cat "
                          "/sys/class/infiniband/rxe0/ports/1/hw_counters/completer_retry_err)",
                          "echo \"retries: $retries\"", "[ \"$retries\" -gt 0 ]"]
        for host in options.host:
            words = ["tests/c/run.py", "--built", "--list", f"{HERE}/testlist",
                     "--tag", self.tags(options), "--host", host,
                     "--mpiexec", f"{host}={HERE}/mpiexec", "--build", f"{BUILD}/c",
                     "--programs", f"{BUILD}/programs",
                     "--slowdown", str(options.slowdown), "--autopsy", f"{HERE}/autopsy",
                     # MPICH's own MPI_Finalize over TCP sometimes hangs, as in tests/netns.
                     "--host-may-hang", "10", "--env", f"MPIX_TEST_FAULT={HERE}/fault"]
            if options.transport and self.count == 1:
                words += ["--env", f"MPIX_RMA_TRANSPORT={options.transport}"]
            if options.only:
                words += ["--only", options.only]
            lines += [f"MPIX_MPIEXEC=mpiexec.{host} {sys.executable} {shlex.join(words)}"]
            whole = options.full and not options.only and self.count == 1
            if whole and os.path.exists(f"{SUITE}/{host}/rma"):
                # The launcher forks here, so these settings suffice.
                lines += ["export UCX_TLS=tcp,self,sm UCX_NET_DEVICES=eth1 "
                          "HWLOC_COMPONENTS=synthetic,stop HWLOC_SYNTHETIC=pu:$(nproc)",
                          f"{sys.executable} tests/conformance/run.py --host {host} --way preload "
                          f"--transport verbs --limit 200"]
        return "\n".join(lines)

    def once(self, options):
        words = [sys.executable, f"{HERE}/guests.py", "-n", str(self.count),
                 "--first", "--seconds", str(self.seconds * options.slowdown),
                 "--loss", str(self.loss), *self.cpus,
                 "--out", f"{ROOT}/target/rxe/{re.sub('[^a-z0-9]+', '-', self.name)}", "sh",
                 "-c", self.script(options)]
        return subprocess.run(words, cwd=ROOT).returncode

    def run(self, options):
        """Returns what is wrong, or None if it passed."""
        print(f"== {self.name}", flush=True)
        status = self.once(options)
        if status == guests.NEVER_UP:
            print("a guest did not boot; retrying", flush=True)
            status = self.once(options)
        return {0: None, guests.TIME_LIMIT: "time limit",
                guests.NEVER_UP: "a guest did not boot, twice"}.get(status, f"exit status {status}")


def build(options):
    """Compiles what runs in guests. Returns False on failure."""
    os.makedirs(BUILD, exist_ok=True)
    for program in ["bare"] if options.compare else ["probe"]:
        line = ["cc", "-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror",
                f"{HERE}/{program}.c", f"{HERE}/end.c", "-o", f"{BUILD}/{program}", "-libverbs",
                "-lpthread"]
        if subprocess.run(line).returncode:
            return False
    for host in options.host if options.full else []:
        prefix = f"{ROOT}/target/prefix-{host}"
        made = subprocess.run([f"{ROOT}/microbench/build.sh", host, prefix,
                               f"{BUILD}/programs/{host}"], capture_output=True, text=True)
        if made.returncode:
            print(made.stderr)
            return False
    if options.compare:
        env = dict(os.environ,
                   PKG_CONFIG_PATH=f"{ROOT}/target/prefix-{options.host[0]}/lib/pkgconfig")
        ask = lambda what: shlex.split(subprocess.check_output(["pkg-config", what, "mpix-rma"],
                                                               env=env, text=True))
        line = [f"mpicc.{options.host[0]}", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror",
                *ask("--cflags"), f"{HERE}/latency.c", "-o",
                f"{BUILD}/latency", *ask("--libs")]
        return not subprocess.run(line).returncode
    hosts = [word for host in options.host for word in ("--host", host)]
    words = [sys.executable, f"{ROOT}/tests/c/run.py", "--build-only", "--list", f"{HERE}/testlist",
             "--build", f"{BUILD}/c"]
    random = [sys.executable, f"{ROOT}/tests/random/run.py", "--write-only", "--ranks", "2,3",
              "--seeds", "300" if options.full else "40", "--build", f"{BUILD}/programs"]
    return not any(subprocess.run(each + hosts).returncode for each in (words, random))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", action="append", required=True)
    parser.add_argument("--guests", default="1,2",
                        help="runs by number of guests (2 includes loss and killed), or loss, "
                             "killed")
    parser.add_argument("--loss", type=float, default=0.01,
                        help="share of frames dropped in the run with losses; 0: no such run")
    parser.add_argument("--transport", help="transport to force in one guest")
    parser.add_argument("--only", help="as in tests/c/run.py")
    parser.add_argument("--full", action="store_true", help="include long tests")
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--slowdown", type=float,
                        default=float(os.environ.get("MPIX_TEST_SLOWDOWN", "1")),
                        help="factor of time limits")
    options = parser.parse_args()
    try:
        print(f"guests: kernel {prepare.prepare(prepare.FOLDER)}", flush=True)
    except (prepare.Cannot, OSError) as reason:
        print(f"SKIPPED test-verbs: {reason}")
        return 0
    if not build(options):
        return 1
    if options.compare:
        words = [sys.executable, f"{HERE}/guests.py", "--spin", "--seconds", "900",
                 f"{HERE}/perftest.py", "--ours", f"{BUILD}/latency", "--bare", f"{BUILD}/bare"]
        return subprocess.run(words, cwd=ROOT).returncode
    names = {1: "one guest", 2: "two guests", 3: "three guests"}
    words = options.guests.split(",")
    counts = [int(word) for word in words if word not in ("loss", "killed")]
    limit = 7200 if options.full else 1200
    runs = [Run(names[count], count, "one" if count == 1 else "across", limit) for count in counts]
    if options.loss and (2 in counts or "loss" in words):
        runs.append(Run(f"two guests, {100 * options.loss:g} % lost", 2, "loss", limit,
                        options.loss))
    if 2 in counts or "killed" in words:
        # A killed guest cannot be used again.
        runs.append(Run("two guests, one killed", 2, "killed", 600, probe=False))
    if options.only:
        runs = [run for run in runs if run.has_entries(options)]
    results = []
    for run in runs * options.times:
        begin = time.monotonic()
        wrong = run.run(options)
        results.append((run.name, wrong, time.monotonic() - begin))
        if wrong and options.times > 1:
            break
    for name, wrong, seconds in results:
        print(f"{'FAIL' if wrong else 'ok  '} {name}: {seconds:.0f} "
              f"s{'  ' + wrong if wrong else ''}")
    return 1 if any(wrong for _, wrong, _ in results) else 0


if __name__ == "__main__":
    sys.exit(main())
