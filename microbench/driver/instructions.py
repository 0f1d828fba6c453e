"""Instructions of one call, counted by callgrind: repeatable under any load."""

import re
import shutil
import subprocess

from driver import hosts

CASES = (
    "put",
    "put_flush",
    "fetch_and_op_flush",
    "lock_shared_put_unlock",
    "lock_exclusive_put_unlock",
)
ROUNDS = 1000


def available():
    """Whether they can be counted here."""
    return shutil.which("valgrind") is not None


def total(host, library, case, rounds):
    """Instructions of that many calls, in the origin only."""
    program = [str(host.folder / "instructions-plain"), case, str(rounds)]
    preload = ["env", f"LD_PRELOAD={library}"]
    counter = [
        "valgrind",
        "--tool=callgrind",
        "--callgrind-out-file=/dev/null",
        "--toggle-collect=measured",
    ]
    command = [
        *host.mpiexec,
        "-n",
        "1",
        *preload,
        *counter,
        *program,
        ":",
        "-n",
        "1",
        *preload,
        *program,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    found = re.search(r"Collected : (\d+)", done.stderr + done.stdout)
    if done.returncode != 0 or not found:
        raise hosts.RunFailed(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return int(found.group(1))


def of_call(host, library, case):
    """Instructions of one call: the slope over the number of calls."""
    return (total(host, library, case, 2 * ROUNDS) - total(host, library, case, ROUNDS)) / ROUNDS
