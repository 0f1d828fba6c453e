#!/usr/bin/env python3
"""Shows that a plain host hangs in its own MPI_Finalize between network namespaces now and then:
what --host-may-hang of tests/c/run.py forgives. The program has no windows, and nothing of this
library is linked or loaded.

  host_hangs.py [--host NAME] [--runs N] [--ranks N]

Exits with an error if no run has hung.
"""
import argparse
import os
import re
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BINARY = os.path.join(ROOT, "target", "host_hangs")
# A run takes a second.
PATIENCE = 15


def hangs(ranks):
    """Runs the program once, on the nodes that surround this process. Returns whether all ranks
    called MPI_Finalize and the job did not end."""
    line = [os.path.join(HERE, "mpiexec"), "-n", str(ranks), BINARY]
    with subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, start_new_session=True) as job:
        try:
            output, _ = job.communicate(timeout=PATIENCE)
            hung = False
        except subprocess.TimeoutExpired:
            hung = True
            os.killpg(job.pid, signal.SIGKILL)
            subprocess.run(["pkill", "-KILL", "-f", BINARY], check=False)
            output, _ = job.communicate()
    finalizing = len(set(re.findall(r"rank (\d+) finalizes", output)))
    if finalizing < ranks or (not hung and job.returncode):
        sys.exit(f"the program fails in another way: {output}")
    return hung


def main():
    """Runs on nodes of its own; there, repeats the program."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", default="mpich")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--ranks", type=int, default=4)
    options = parser.parse_args()
    if "MPIX_NODES" not in os.environ:
        compiler = [f"mpicc.{options.host}", "-O1", os.path.join(HERE, "host_hangs.c")]
        subprocess.run([*compiler, "-o", BINARY], check=True)
        env = dict(os.environ, MPIX_MPIEXEC=f"mpiexec.{options.host}")
        line = [sys.executable, os.path.join(HERE, "nodes.py"), sys.executable, *sys.argv]
        sys.exit(subprocess.run(line, env=env, check=False).returncode)
    hung = 0
    for run in range(options.runs):
        if hangs(options.ranks):
            hung += 1
            print(f"run {run + 1}: all ranks are in MPI_Finalize, and the job does not end",
                  flush=True)
    print(f"{options.host} without this library: {hung} of {options.runs} runs hung")
    sys.exit(0 if hung else 1)


if __name__ == "__main__":
    main()
