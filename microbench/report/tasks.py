#!/usr/bin/env python3
"""Draws the programs with tasks: time of each version over block size, as ratio to tasks with
two-sided messages.

usage: tasks.py RESULTS LABEL..."""

import math
import sys
from pathlib import Path

from matplotlib.ticker import LogLocator

from results import host_name, plt, read, save

# Order of the legend.
VERSIONS = {
    "pure": ("blocking messages, no tasks", "#9a9a9a", "-"),
    "nbuffer": ("messages per block, no tasks", "#4d5b66", "-"),
    "forkjoin": ("fork-join", "#b8b8b8", "--"),
    "sentinel": ("tasks, sentinel", "#4d5b66", ":"),
    "blocking": ("tasks that pause", "#8a5a9e", "-"),
    "two_sided": ("two-sided, MPIX_Task_iwait", "#d9822b", "-"),
    "two_sided_cont": ("two-sided, MPIX_Continue", "#d9822b", "--"),
    "notified": ("notified, MPIX_Task_iwait", "#2b6cb0", "-"),
    "notified_cont": ("notified, MPIX_Continue", "#2b6cb0", "--"),
}
COLUMNS = 3


def draw(axes, program, title, rows):
    """One panel: a line per version."""
    for version, (label, colour, style) in VERSIONS.items():
        points = sorted((row["block"], row["ratio"]) for row in rows if row["version"] == version)
        if points:
            axes.plot(*zip(*points), style, color=colour, label=label, marker="o", markersize=3)
    blocks = sorted({row["block"] for row in rows})
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xticks(blocks)
    axes.set_xticklabels(blocks)
    axes.minorticks_off()
    axes.yaxis.set_major_locator(LogLocator(base=2, subs=(1, 1.5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("block size, elements")
    axes.set_ylabel("time / time of two-sided tasks")
    axes.set_title(f"{program}\n{title}", fontsize=9)


def main():
    """Reads the results and draws them."""
    folder, labels = Path(sys.argv[1]), sys.argv[2:]
    for label in labels:
        results = read(folder, "tasks", label)
        panels = list(dict.fromkeys((row["program"], row["title"]) for row in results))
        lines = math.ceil(len(panels) / COLUMNS)
        figure, axes = plt.subplots(lines, COLUMNS, figsize=(4.4 * COLUMNS, 3.8 * lines + 0.8),
                                    squeeze=False)
        for ax in axes.flat[len(panels):]:
            ax.set_visible(False)
        handles = {}
        for ax, panel in zip(axes.flat, panels):
            draw(ax, *panel, [r for r in results if (r["program"], r["title"]) == panel])
            handles |= dict(zip(*reversed(ax.get_legend_handles_labels())))
        figure.suptitle(f"Tasks that communicate, {host_name(label)}, two cores", fontsize=12)
        figure.legend(handles.values(), handles.keys(), loc="lower center", ncol=5, frameon=False,
                      fontsize=8)
        figure.tight_layout(rect=(0, 0.1 / lines, 1, 1))
        save(figure, folder / "figures", f"tasks-{label}")
    print(f"figures: {folder / 'figures'}")


if __name__ == "__main__":
    main()
