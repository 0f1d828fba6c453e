"""MPI jobs of the suites: how each host starts them, and how they end."""

import os
import signal
import subprocess
import sys

RUNNING = []


def command(host, ranks, env):
    """The words that start `ranks` processes with some variables; the program follows."""
    openmpi = "openmpi" in host
    line = [f"mpiexec.{host}"]
    if openmpi:
        line += ["--oversubscribe"] + (["--allow-run-as-root"] if os.geteuid() == 0 else [])
    for key, value in env.items():
        line += ["-x", f"{key}={value}"] if openmpi else ["-genv", key, value]
    return line + ["-n", str(ranks)]


def end(process):
    """Ends a job: the launcher ends its ranks; if it does not, the whole group goes. What it had printed."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            pass
        try:
            return process.communicate(timeout=10)[0]
        except subprocess.TimeoutExpired:
            continue
    return b""


def run(line, folder, limit):
    """Output and exit status, which is None of a job that was ended after `limit` seconds."""
    process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=folder,
                               start_new_session=True)
    RUNNING.append(process)
    try:
        output, code = process.communicate(timeout=limit)[0], process.returncode
    except subprocess.TimeoutExpired:
        output, code = end(process), None
    RUNNING.remove(process)
    return output.decode(errors="replace"), code


def leave(number, _frame):
    """For a signal: no job is left behind."""
    for process in RUNNING:
        end(process)
    sys.exit(128 + number)
