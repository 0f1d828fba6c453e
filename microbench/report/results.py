"""Reading results and saving figures."""

import json

import matplotlib

matplotlib.use("Agg")  # no display needed
import matplotlib.pyplot as plt  # noqa: E402

COLOURS = {
    "host": "#9a9a9a",
    "blocking": "#d9822b",
    "nonblocking": "#2b6cb0",
    "off": "#d9822b",
    "on": "#2b6cb0",
}
HOST_NAMES = {"mpich": "MPICH", "openmpi": "Open MPI"}

plt.rcParams.update({
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#e4e4e4",
    "axes.axisbelow": True,
    "svg.hashsalt": "mpix-rma",  # equal results give an equal file
})


def read(folder, benchmark, label):
    """Results of one benchmark on one host."""
    path = folder / f"{benchmark}-{label}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def host_name(label):
    """A label as written in text."""
    return HOST_NAMES.get(label, label)


def size_text(count):
    """4 B, 16 KB, 1 MB."""
    for unit, size in (("MB", 1 << 20), ("KB", 1 << 10)):
        if count >= size:
            return f"{count // size} {unit}"
    return f"{count} B"


def save(figure, folder, name):
    """Writes SVG and PNG."""
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
    figure.savefig(folder / f"{name}.png", dpi=130)
    plt.close(figure)
