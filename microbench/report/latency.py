#!/usr/bin/env python3
"""Draws latencies: every plain host, the library on each, and the machine's limits.

usage: latency.py RESULTS LABEL...
"""

import re
import sys
from pathlib import Path

from results import host_name, plt, read, save

PLAIN = ["#b8b8b8", "#6f6f6f", "#93a3b1", "#4d5b66"]
OURS = ["#2b6cb0", "#d9822b", "#2f855a", "#805ad5"]
WINDOWS = {"allocate": "MPI_Win_allocate", "create": "MPI_Win_create"}


def microseconds(row, whose):
    """A time; for a rate, the time per operation."""
    if f"{whose}_mps" in row:
        rate = row[f"{whose}_mps"]
        return 1.0 / rate if rate else None
    return row.get(f"{whose}_us")


def spread(axes, places, values, **how):
    """Points of the rows that have a value."""
    pairs = [(value, place) for place, value in zip(places, values) if value]
    if pairs:
        axes.scatter(*zip(*pairs), **how)


def draw_window(axes, window, results):
    """One panel: a row per figure, a point per program."""
    # At the nearer distance; figures with operations in flight are too many to draw.
    rows = {label: {row["name"]: row for row in rows
                    if row["window"] == window and row.get("distance") != "far"
                    and not re.search(r"_\d+x\d+$", row["name"])}
            for label, rows in results.items()}
    names = list(next(iter(rows.values())))
    places = range(len(names))
    best = [min((microseconds(r[name], "limit") for r in rows.values()
                 if microseconds(r[name], "limit")),
                default=None) for name in names]
    spread(axes, places, best, marker="|", s=160, color="black", linewidths=1.6,
           label="machine's limit", zorder=2)
    for k, (label, mine) in enumerate(rows.items()):
        spread(axes, places, [microseconds(mine[name], "plain") for name in names], marker="s",
               s=38,
               color=PLAIN[k % len(PLAIN)], label=f"plain {host_name(label)}", zorder=3)
    for k, (label, mine) in enumerate(rows.items()):
        # Often equal on all hosts: offset, so that points do not hide each other.
        lower = [place + 0.26 * (k - (len(rows) - 1) / 2) for place in places]
        spread(axes, lower, [microseconds(mine[name], "ours") for name in names], marker="o", s=30,
               color=OURS[k % len(OURS)], label=f"mpix-rma on {host_name(label)}", zorder=4)
    axes.set_yticks(list(places))
    axes.set_yticklabels([name.replace("put_rate_8", "put_rate_8 (one put)") for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xscale("log")
    axes.set_xlabel("µs (median)")
    axes.set_title(WINDOWS[window], fontsize=11)
    axes.grid(True, axis="both")


def main():
    """Reads the results and draws them."""
    folder, labels = Path(sys.argv[1]), sys.argv[2:]
    results = {label: read(folder, "latency", label) for label in labels}
    present = [w for w in WINDOWS if any(row["window"] == w for rows in results.values()
                                         for row in rows)]
    figure, axes = plt.subplots(1, len(present), figsize=(6.2 * len(present) + 1.5, 7), sharey=True,
                                squeeze=False)
    for ax, window in zip(axes.flat, present):
        draw_window(ax, window, results)
    handles, names = axes.flat[0].get_legend_handles_labels()
    figure.suptitle("One-sided communication between two ranks of one node", fontsize=12)
    figure.legend(handles, names, loc="lower center", ncol=len(names), frameon=False)
    figure.tight_layout(rect=(0, 0.05, 1, 1))
    save(figure, folder / "figures", "latency")
    print(f"figures: {folder / 'figures'}")


if __name__ == "__main__":
    main()
