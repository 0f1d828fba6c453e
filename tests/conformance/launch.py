"""Starting and ending MPI jobs of the test suites on each host."""

import os
import signal
import subprocess
import sys

RUNNING = []


def command(host, ranks, env):
    """The mpiexec command line for `ranks` processes with these variables, without the program."""
    openmpi = "openmpi" in host
    line = [f"mpiexec.{host}"]
    if openmpi:
        line += ["--oversubscribe"] + (["--allow-run-as-root"] if os.geteuid() == 0 else [])
    for key, value in env.items():
        line += ["-x", f"{key}={value}"] if openmpi else ["-genv", key, value]
    return line + ["-n", str(ranks)]


def end(process):
    """Ends a job by its launcher, then by its process group. Returns its output."""
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
    """Output and exit status; the status is None if the job exceeded `limit` seconds."""
    process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, cwd=folder,
                               start_new_session=True)
    RUNNING.append(process)
    try:
        output, code = process.communicate(timeout=limit)[0], process.returncode
    except subprocess.TimeoutExpired:
        output, code = end(process), None
    RUNNING.remove(process)
    return output.decode(errors="replace"), code


def leave(number, _frame):
    """Signal handler: ends the running job."""
    for process in RUNNING:
        end(process)
    sys.exit(128 + number)
