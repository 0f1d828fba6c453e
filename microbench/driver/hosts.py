"""MPI hosts: building for them and launching on them."""

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, replace
from pathlib import Path

MICROBENCH = Path(__file__).resolve().parent.parent
RESULTS = MICROBENCH.parent / "target" / "results"
BUILDS = MICROBENCH.parent / "target" / "microbench"


class RunFailed(Exception):
    """A program or build failed. The message names it and has its output."""


@dataclass
class Host:
    """One MPI library: its label, tools, and where the library for it is installed (None:
    nowhere)."""

    label: str
    mpicc: str
    mpiexec: list
    prefix: "Path | None"

    @property
    def folder(self):
        """Folder of its programs."""
        return BUILDS / self.label

    def is_open_mpi(self):
        """Whether its launcher is Open MPI's, which needs options for root and for
        oversubscription."""
        try:
            said = subprocess.run(self.mpiexec + ["--version"], capture_output=True, text=True,
                                  check=False)
        except OSError as error:
            raise RunFailed(f"the launcher of {self.label} does not start: {error}") from error
        return "Open MPI" in said.stdout or "OpenRTE" in said.stdout

    def build(self):
        """Builds the programs, with and without the library."""
        script = [MICROBENCH / "build.sh", self.label, self.prefix or "-", self.folder]
        done = subprocess.run(
            [str(word) for word in script], env={**os.environ, "MPICC": self.mpicc},
            capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RunFailed(f"building for {self.label} failed:\n{done.stdout}{done.stderr}")
        self.permit()

    def permit(self):
        """Lets the launcher run as root, and more ranks than it sees cores."""
        if self.is_open_mpi() and "--oversubscribe" not in self.mpiexec:
            self.mpiexec = self.mpiexec + ["--oversubscribe"]
            if os.geteuid() == 0:
                self.mpiexec = self.mpiexec + ["--allow-run-as-root"]

    def unbound(self):
        """The host with ranks on all processors: Open MPI's launcher binds each of two ranks, and
        so all its threads, to one."""
        if self.is_open_mpi():
            return replace(self, mpiexec=[*self.mpiexec, "--bind-to", "none"])
        return self

    def command(self, ranks, program, *arguments, environment=None):
        """The command line that launches a program of this host, with these environment
        variables."""
        words = [f"{name}={value}" for name, value in (environment or {}).items()]
        setting = ["env", *words] if words else []
        return [*self.mpiexec, "-n", str(ranks), *setting, str(self.folder / program),
                *map(str, arguments)]

    def preload(self):
        """The environment variable that preloads the library."""
        return {"LD_PRELOAD": self.prefix / "lib" / "libmpix_rma.so"}


def add_options(parser):
    """Adds options for hosts; use `chosen` to parse them."""
    parser.add_argument("--hosts", default="mpich,openmpi", metavar="LABELS",
                        help="comma-separated (default: mpich,openmpi); each LABEL has options "
                             "--prefix-LABEL DIR (where the library is installed; without it, only "
                             "the plain host runs), --mpicc-LABEL (default mpicc.LABEL) and "
                             "--mpiexec-LABEL (default mpiexec.LABEL)")


def chosen(parser, arguments=None):
    """Parses the command line. Returns the options and the hosts."""
    known, _ = parser.parse_known_args(arguments)
    labels = [label for label in known.hosts.split(",") if label]
    for label in labels:
        for option in ("prefix", "mpicc", "mpiexec"):
            parser.add_argument(f"--{option}-{label}", help=argparse.SUPPRESS)
    options = vars(parser.parse_args(arguments))
    hosts = []
    for label in labels:
        prefix = options[f"prefix_{label.replace('-', '_')}"]
        mpicc = options[f"mpicc_{label.replace('-', '_')}"] or f"mpicc.{label}"
        mpiexec = options[f"mpiexec_{label.replace('-', '_')}"] or f"mpiexec.{label}"
        installed = Path(prefix).resolve() if prefix else None
        hosts.append(Host(label, mpicc, shlex.split(mpiexec), installed))
    return argparse.Namespace(**options), hosts


def build(chosen):
    """Builds the programs of all hosts; ends the driver if that fails."""
    try:
        for host in chosen:
            host.build()
    except RunFailed as failure:
        sys.exit(str(failure))


def results_of(command, timeout_s=300):
    """Runs a command and yields the JSON objects of its output lines as they come. Otherwise as
    `lines_of`."""
    for line in lines_of(command, timeout_s):
        if line.startswith("{"):
            yield json.loads(line)


def lines_of(command, timeout_s=300, folder=None):
    """Runs a command, in `folder` if given, and yields its output lines as they come.

    Raises RunFailed at the end, with all lines that are not JSON, if it failed. The command never
    outlives the caller."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               errors="replace", stdin=subprocess.DEVNULL, start_new_session=True,
                               cwd=folder)
    overdue = threading.Event()

    def end():
        overdue.set()
        os.killpg(process.pid, signal.SIGKILL)

    clock = threading.Timer(timeout_s, end)
    clock.start()
    other = []
    try:
        for line in process.stdout:
            if line.strip() and not line.startswith("{"):
                other.append(line)
            yield line
        status = process.wait()
    finally:
        clock.cancel()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if overdue.is_set() or status != 0:
        overran = f"did not end within {timeout_s} s"
        how = overran if overdue.is_set() else f"ended with status {status}"
        raise RunFailed(f"{shlex.join(command)} {how}\n{''.join(other)}")
