"""Programs that others wrote: how to run them, check their answers, and read their times."""

import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from driver import hosts

INPUTS = hosts.MICROBENCH / "programs"
SOURCES = hosts.MICROBENCH.parent / "target" / "programs" / "src"
DEBIAN = Path("/usr/lib/x86_64-linux-gnu")
# One thread per rank: the ranks fill the processors.
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
HPCC_EXAMPLE = Path("/usr/share/doc/hpcc/examples/_hpccinf.txt")
WALL = "whole run"


class WrongAnswer(hosts.RunFailed):
    """The program ended, but does not say that its result is right."""


@dataclass
class Program:
    """One program of one host, with fixed parameters."""

    name: str
    uses_rma: bool
    binary: Path
    # The package or step without which it is skipped.
    needs: str
    arguments: list = field(default_factory=list)
    # Files for its working directory: name and text.
    inputs: dict = field(default_factory=dict)
    # A file that it writes its results to; None: standard output.
    output: "str | None" = None
    # What the output must contain, as regular expressions.
    proofs: list = field(default_factory=list)
    # What must be equal in all runs, plain and preloaded: a regular expression, the whole match.
    answer: "str | None" = None
    # Name of a figure, and what reads its seconds from the output. `WALL` is always there.
    figures: dict = field(default_factory=dict)

    def check(self, text):
        """The answer in an output. Raises WrongAnswer if a proof is missing."""
        for proof in self.proofs:
            if not re.search(proof, text):
                raise WrongAnswer(f"{self.name}: the output lacks {proof!r}")
        if self.answer is None:
            return ""
        found = re.findall(self.answer, text)
        if not found:
            raise WrongAnswer(f"{self.name}: the output has no answer {self.answer!r}")
        return " / ".join(found)


def last_number(pattern, scale=1.0):
    """Reads the number of a pattern's last match."""
    return lambda text: float(re.findall(pattern, text)[-1]) * scale


def petsc(host):
    """A Poisson equation on 300 x 300 points, by CG and Jacobi: a halo exchange and three
    reductions per iteration. The kind of the halo exchange is an option."""
    ways = {"messages": None, "fence, created": ("create", "fence"),
            "PSCW, created": ("create", "active"), "lock, created": ("create", "lock")}
    # PETSc has the other windows on MPICH only. Not "lock" with "dynamic": PETSc 3.18 then reads
    # its peers' values without waiting for them.
    if not host.is_open_mpi():
        ways |= {"fence, allocated": ("allocate", "fence"),
                 "PSCW, allocated": ("allocate", "active"),
                 "lock, allocated": ("allocate", "lock"), "fence, dynamic": ("dynamic", "fence"),
                 "PSCW, dynamic": ("dynamic", "active")}
    scatters = [last_number(rf"VecScatter{part} +\d+ +[\d.]+ +(\S+)") for part in ("Begin", "End")]
    for way, chosen in ways.items():
        arguments = ["-m", 300, "-n", 300, "-ksp_type", "cg", "-pc_type", "jacobi",
                     "-ksp_rtol", "1e-8", "-log_view"]
        if chosen:
            arguments += ["-sf_type", "window", "-sf_window_flavor", chosen[0],
                          "-sf_window_sync", chosen[1]]
        yield Program(
            f"PETSc ex2: {way}", chosen is not None,
            SOURCES / "petsc-3.18.5" / host.label / "ex2", "PETSc, which petsc.sh builds",
            arguments, proofs=[r"Norm of error [\d.]+e-0[5-9] iterations 5"],
            answer=r"Norm of error .*",
            figures={"solve": last_number(r"KSPSolve +\d+ +[\d.]+ +(\S+)"),
                     "halo exchange": lambda text: sum(read(text) for read in scatters)})


def scalapack(host):
    """LU decompositions: broadcasts, reductions and messages, no RMA."""
    flops = 2 / 3 * 400**3 + 3 / 2 * 400**2

    def seconds(text):
        rates = re.findall(r"WALL .* (\S+) PASSED", text)
        return sum(flops / (float(rate) * 1e6) for rate in rates)
    yield Program(
        "ScaLAPACK xdlu", False, DEBIAN / "scalapack" / f"{host.label}-tests" / "xdlu",
        "scalapack-mpi-test", inputs={"LU.dat": (INPUTS / "LU.dat").read_text()},
        proofs=[r"50 tests completed and passed residual checks",
                r" 0 tests completed and failed"], figures={"factor and solve": seconds})


def hpcc(host):
    """HPC Challenge, which Debian builds for Open MPI."""
    if not host.is_open_mpi():
        return
    example = HPCC_EXAMPLE.read_text().splitlines() if HPCC_EXAMPLE.exists() else [""] * 40
    # 1 x 2 processes, and the order of the matrix: lines 6, 11 and 12 of HPL's input.
    example[5], example[10], example[11] = "2000 Ns", "1 Ps", "2 Qs"
    keys = {"HPL": "HPL_time", "PTRANS": "PTRANS_time", "RandomAccess": "MPIRandomAccess_time"}
    figures = {name: last_number(rf"\n{key}=(\S+)") for name, key in keys.items()}
    figures["ping-pong, half a round trip"] = last_number(r"MaxPingPongLatency_usec=(\S+)", 1e-6)
    figures["random ring, per message"] = last_number(
        r"RandomlyOrderedRingLatency_usec=(\S+)", 1e-6)
    yield Program(
        "HPC Challenge", False, Path(shutil.which("hpcc") or "/usr/bin/hpcc"), "hpcc",
        inputs={"hpccinf.txt": "\n".join(example) + "\n"}, output="hpccoutf.txt",
        proofs=[r"\nSuccess=1\n", r"MPIRandomAccess_Errors=0\n", r"PTRANS_residual=0\n",
                r"1 tests completed and passed residual checks"], figures=figures)


def lammps(host):
    """A molecular dynamics program, which Debian builds for Open MPI."""
    if not host.is_open_mpi():
        return
    yield Program(
        "LAMMPS melt", False, Path(shutil.which("lmp") or "/usr/bin/lmp"), "lammps",
        ["-in", "melt.lammps", "-log", "none"],
        inputs={"melt.lammps": (INPUTS / "melt.lammps").read_text()},
        proofs=[r"Loop time of"], answer=r"\n +200 .*",
        figures={"200 steps": last_number(r"Loop time of (\S+)"),
                 "communication": last_number(r"Comm +\| \S+ +\| (\S+)")})


def coarrays(host):
    """The folder of OpenCoarrays' test programs, and two that move arrays for some time."""
    for name in ("get_array", "send_array"):
        yield Program(f"OpenCoarrays {name}", True, coarray_folder(host) / name,
                      f"libcoarrays-{host.label}-dev", proofs=[r"Test passed"])


def coarray_folder(host):
    """Where Debian has OpenCoarrays' test programs."""
    return DEBIAN / "open-coarrays" / host.label / "bin" / "OpenCoarrays-2.10.1-tests"


def of(host):
    """All programs for a host."""
    for make in (petsc, coarrays, scalapack, lammps, hpcc):
        yield from make(host)


def build_petsc(host):
    """Builds PETSc, minutes at the first time. Returns why not, or None."""
    done = subprocess.run([INPUTS / "petsc.sh", host.mpicc, SOURCES], capture_output=True,
                          text=True, check=False)
    lines = (done.stdout + done.stderr).strip().splitlines()
    return None if done.returncode == 0 else "\n".join(lines[-5:])
