"""What the parts of the simulated results' page share."""

import sys
import textwrap
from pathlib import Path

from results import plt

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from simulate import sources  # noqa: E402

NAMES = {"blocking": "blocking", "nonblocking": "nonblocking", "reorder": "nonblocking, A_A_A_R",
         "flag_off": "flag off", "flag_on": "flag on"}


def commands(rows):
    """The commands that made these rows."""
    return [f"`{command}`" for command in dict.fromkeys(row["command"] for row in rows)]


def stale(part, rows):
    """A sentence on the rows of a part that other sources have made."""
    now = sources(part)
    old = [row for row in rows if row.get("sources") != now]
    if not old:
        return []
    ranks = sorted({row["ranks"] for row in old if "ranks" in row})
    which = f" ({', '.join(map(str, ranks))} ranks)" if ranks else ""
    return [f"{len(old)} of these {len(rows)} rows{which} were made by other sources than the "
            "present ones.", ""]


def markdown(head, rows):
    """Lines of a table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows] + [""]


def save_svg(figure, folder, name):
    """Saves SVG and PNG; equal results give an equal SVG."""
    figure.tight_layout()
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "figures" / f"{name}.svg", metadata={"Date": None})
    figure.savefig(folder / "figures" / f"{name}.png", dpi=100)
    plt.close(figure)


def wrapped(line):
    """A paragraph in lines of at most 100 columns; tables and headings as they are."""
    if not line or line[0] in "|#!":
        return line
    return textwrap.fill(line, 100, break_long_words=False, break_on_hyphens=False)
