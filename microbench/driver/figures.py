"""Runs the plotter with a Python that has matplotlib."""

import subprocess
import sys

from driver.hosts import MICROBENCH


def _has_matplotlib(interpreter):
    try:
        return subprocess.run([interpreter, "-c", "import matplotlib"], capture_output=True,
                              check=False).returncode == 0
    except OSError:
        return False


def draw(script, *arguments):
    """Draws; returns whether figures were made. Without matplotlib, prints what to install."""
    for interpreter in (sys.executable, "/usr/bin/python3"):
        if _has_matplotlib(interpreter):
            command = [interpreter, str(MICROBENCH / "report" / script), *map(str, arguments)]
            return subprocess.run(command, check=False).returncode == 0
    print("No figures: matplotlib is missing (Debian: python3-matplotlib).", file=sys.stderr)
    return False
