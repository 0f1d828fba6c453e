#!/usr/bin/env python3
"""Draws the patterns, one figure for each of the paper's figures 2 to 11.

usage: patterns.py RESULTS LABEL..."""

import sys
from pathlib import Path

from results import COLOURS, host_name, plt, read, save, size_text

TITLES = {
    "late_post": "Late Post",
    "late_complete": "Late Complete",
    "early_fence": "Early Fence",
    "wait_at_fence": "Wait at Fence",
    "late_unlock": "Late Unlock",
    "aaar_gats": "A_A_A_R with start/complete",
    "aaar_lock": "A_A_A_R with locks",
    "aaer": "A_A_E_R",
    "eaer": "E_A_E_R",
    "eaar": "E_A_A_R",
}
SERIES_NAMES = {"host": "plain host", "blocking": "blocking", "nonblocking": "nonblocking",
                "off": "flag off", "on": "flag on"}


def groups_of(rows):
    """Groups of bars along the x axis: metrics, sizes, or both."""
    sizes = {row["size"] for row in rows}
    metrics = {row["metric"] for row in rows}

    def name(row):
        words = []
        if len(metrics) > 1 or len(sizes) == 1:
            words.append(row["metric"].replace("_", "\n", 1))
        if len(sizes) > 1:
            words.append(size_text(row["size"]))
        return "\n".join(words)

    groups = {}
    order = list(dict.fromkeys(row["metric"] for row in rows))
    for row in sorted(rows, key=lambda row: (order.index(row["metric"]), row["size"])):
        groups.setdefault(name(row), {})[row["series"]] = row
    return groups


def draw_host(axes, label, rows, several_sizes):
    """Bars of one host: a colour per series, quartiles as error bars, a mark for the prediction."""
    groups = groups_of(rows)
    series = [name for name in COLOURS if any(name in group for group in groups.values())]
    width = 0.8 / len(series)
    # Rare disturbances may stretch a quartile; they do not set the scale.
    ceiling = 1.2 * max(max(row["median_us"], row["predicted_us"]) for row in rows)
    for at, group in enumerate(groups.values()):
        for k, name in enumerate(series):
            row = group.get(name)
            if row is None:
                continue
            x = at + (k - (len(series) - 1) / 2) * width
            quartiles = [[row["median_us"] - row["q1_us"]], [row["q3_us"] - row["median_us"]]]
            axes.bar(x, row["median_us"], width * 0.92, color=COLOURS[name], yerr=quartiles,
                     error_kw={"ecolor": "#333333", "elinewidth": 1, "capsize": 2})
            axes.hlines(row["predicted_us"], x - width / 2, x + width / 2, colors="black",
                        linewidth=1.6,
                        zorder=4)
            # If there are many bars, only those too low to read are labelled.
            if not several_sizes or row["median_us"] < 0.1 * ceiling:
                top = min(max(row["q3_us"], row["predicted_us"]), ceiling)
                axes.annotate(f"{row['median_us']:.0f}", (x, top), textcoords="offset points",
                              xytext=(0, 3), ha="center", fontsize=7 if several_sizes else 8)
    axes.set_xticks(range(len(groups)))
    axes.set_xticklabels(list(groups), fontsize=8 if several_sizes else 9)
    axes.set_title(host_name(label), fontsize=11)
    return series, ceiling


def draw_case(folder, case, rows_by_label):
    """One figure, a panel per host."""
    figure_number = next(iter(rows_by_label.values()))[0]["figure"]
    several_sizes = len({row["size"] for rows in rows_by_label.values() for row in rows}) > 2
    panels = len(rows_by_label)
    rows, columns = (panels, 1) if several_sizes else (1, panels)
    bars = max(len({(row["series"], row["metric"], row["size"]) for row in rows})
               for rows in rows_by_label.values())
    size = (9.5, 2.7 * panels + 1.3) if several_sizes else (max(4.8, 0.55 * bars) * panels, 4.4)
    figure, axes = plt.subplots(rows, columns, figsize=size, sharey=True, squeeze=False)
    series, top = [], 0.0
    for ax, (label, results) in zip(axes.flat, rows_by_label.items()):
        drawn, ceiling = draw_host(ax, label, results, several_sizes)
        top = max(top, ceiling)
        series += [name for name in drawn if name not in series]
    axes.flat[0].set_ylim(0, 1.08 * top)
    for ax in axes[:, 0]:
        ax.set_ylabel("µs (median, quartiles)")
    handles = [plt.Rectangle((0, 0), 1, 1, color=COLOURS[name]) for name in series]
    names = [SERIES_NAMES[name] for name in series]
    handles.append(plt.Line2D([], [], color="black", linewidth=1.6))
    names.append("predicted")
    first = next(iter(rows_by_label.values()))[0]
    figure.suptitle(f"{TITLES.get(case, case)}: {first['delay_us']:.0f} µs of delay (paper's "
                    f"figure {figure_number})",
                    fontsize=12)
    figure.legend(handles, names, loc="lower center", ncol=len(names), frameon=False)
    inches = figure.get_size_inches()[1]
    figure.tight_layout(rect=(0, 0.35 / inches, 1, 1))
    save(figure, folder, f"patterns-fig{figure_number:02d}-{case}")


def main():
    """Reads the results and draws them."""
    folder, labels = Path(sys.argv[1]), sys.argv[2:]
    results = {label: read(folder, "patterns", label) for label in labels}
    cases = dict.fromkeys(row["case"] for rows in results.values() for row in rows)
    for case in cases:
        by_label = {label: [row for row in rows if row["case"] == case]
                    for label, rows in results.items()}
        draw_case(folder / "figures", case, {label: rows for label, rows in by_label.items()
                                             if rows})
    print(f"figures: {folder / 'figures'}")


if __name__ == "__main__":
    main()
