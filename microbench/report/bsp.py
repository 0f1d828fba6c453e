#!/usr/bin/env python3
"""Draws the bulk-synchronous programs: time of each kind of synchronization over the size, as ratio
to fences that are barriers.

usage: bsp.py RESULTS LABEL..."""

import sys
from pathlib import Path

from results import host_name, plt, read, save

MODES = {
    "barrier": ("barrier fences", "#9a9a9a"),
    "pattern": ("pattern fences", "#2b6cb0"),
    "notified": ("counted notifications", "#2f855a"),
    "two_sided": ("two-sided messages", "#d9822b"),
}


def draw(axes, program, rows):
    """One panel: a group of bars per size."""
    sizes = [row["size"] for row in rows if row["mode"] == "barrier"]
    width = 0.8 / len(MODES)
    for at, (mode, (label, colour)) in enumerate(MODES.items()):
        ratios = {row["size"]: row["ratio"] for row in rows if row["mode"] == mode}
        places = [place + (at - (len(MODES) - 1) / 2) * width for place in range(len(sizes))]
        axes.bar(places, [ratios[size] for size in sizes], width * 0.92, color=colour, label=label)
    axes.set_xticks(range(len(sizes)))
    axes.set_xticklabels(sizes)
    axes.set_xlabel("particles" if program == "n-body" else "rows and columns")
    axes.set_title(program, fontsize=10)


def main():
    """Reads the results and draws them."""
    folder, labels = Path(sys.argv[1]), sys.argv[2:]
    for label in labels:
        rows = read(folder, "bsp", label)
        ranks = min(row["ranks"] for row in rows)
        results = [row for row in rows if row["ranks"] == ranks]
        programs = list(dict.fromkeys(row["program"] for row in results))
        figure, axes = plt.subplots(1, len(programs), figsize=(3.4 * len(programs), 3.8),
                                    squeeze=False, sharey=True)
        for ax, program in zip(axes[0], programs):
            draw(ax, program, [row for row in results if row["program"] == program])
        axes[0][0].set_ylabel("time / time with barrier fences")
        figure.suptitle(f"Bulk-synchronous programs, {host_name(label)}, "
                        f"{ranks} ranks", fontsize=12)
        handles, names = axes[0][0].get_legend_handles_labels()
        figure.legend(handles, names, loc="lower center", ncol=len(MODES), frameon=False,
                      fontsize=8)
        figure.tight_layout(rect=(0, 0.06, 1, 1))
        save(figure, folder / "figures", f"bsp-{label}")
    print(f"figures: {folder / 'figures'}")


if __name__ == "__main__":
    main()
