#!/usr/bin/env python3
"""Draws notified access: ping-pong, rate, ring and tree, by number of bytes.

usage: notify.py RESULTS LABEL..."""

import sys
from pathlib import Path

from results import host_name, plt, read, save, size_text

# Order of the legend. For ways of plain hosts, the better host.
WAYS = {
    "bare": ("data line + flag line", "black", ":"),
    "send_recv": ("send/recv, best plain host", "#9a9a9a", "-"),
    "put_flush_send": ("put + flush + send, best plain host", "#4d5b66", "--"),
    "put_flush_flag": ("put + flush + flag, best plain host", "#b8b8b8", "-."),
    "put_notify_threshold": ("MPIX_Put_notify", "#2b6cb0", "-"),
    "put_notify_ithreshold": ("MPIX_Put_notify, by a request", "#d9822b", "-"),
    "put_notify_together": ("MPIX_Put_notify, one wait for 64", "#7fb0e0", "-"),
    "put_tagged": ("MPIX_Put_tagged", "#3a8f5c", "-"),
}
BENCHES = {
    "ping_pong": ("us", "half a round trip, µs"),
    "rate": ("mps", "messages, millions a second"),
    "stencil": ("us", "ring: time of a chunk, µs"),
    "reduction": ("us", "tree: time of a sum, µs"),
}


def draw(axes, bench, rows):
    """One panel: a line per way."""
    unit, words = BENCHES[bench]
    for way, (label, colour, style) in WAYS.items():
        points = [(row["bytes"], row[f"{way}_{unit}"]) for row in rows if row.get(f"{way}_{unit}")]
        if points:
            axes.plot(*zip(*points), style, color=colour, label=label, marker="o", markersize=3)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    sizes = sorted({row["bytes"] for row in rows})
    axes.set_xticks(sizes)
    axes.set_xticklabels([size_text(size) for size in sizes], rotation=60, fontsize=8)
    axes.minorticks_off()
    axes.set_ylabel(words)


def main():
    """Reads the results and draws them."""
    folder, labels = Path(sys.argv[1]), sys.argv[2:]
    for label in labels:
        results = read(folder, "notify", label)
        figure, axes = plt.subplots(1, len(BENCHES), figsize=(4.4 * len(BENCHES), 4.6))
        for ax, bench in zip(axes.flat, BENCHES):
            draw(ax, bench, [row for row in results if row["bench"] == bench])
        handles, names = axes.flat[0].get_legend_handles_labels()
        figure.suptitle(f"Notified access on {host_name(label)}, one node", fontsize=12)
        figure.legend(handles, names, loc="lower center", ncol=3, frameon=False)
        figure.tight_layout(rect=(0, 0.1, 1, 1))
        save(figure, folder / "figures", f"notify-{label}")
    print(f"figures: {folder / 'figures'}")


if __name__ == "__main__":
    main()
