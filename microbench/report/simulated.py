#!/usr/bin/env python3
"""Draws the simulated figures, and writes README.md: a table beside the paper's numbers.

usage: simulated.py RESULTS
"""

import json
import sys
import textwrap
from pathlib import Path

from results import COLOURS, plt, size_text

COLOURS = {**COLOURS, "flag_off": COLOURS["off"], "flag_on": COLOURS["on"], "reorder": "#2f855a"}
NAMES = {"blocking": "blocking", "nonblocking": "nonblocking", "reorder": "nonblocking, A_A_A_R",
         "flag_off": "flag off", "flag_on": "flag on"}
# Stated in the paper's text for figure 12: gain of the nonblocking series with A_A_A_R over
# blocking.
GAINS = {64: 39, 128: 20, 256: 16, 512: 2}
# A computing process must notify another one: taken from the runs with a progress thread.
SECOND_CORE = {"wait_at_fence", "late_unlock"}


def read(folder, name):
    """Rows of one part, empty if it was not run."""
    path = folder / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def commands(rows):
    """The commands that made these rows."""
    return [f"`{command}`" for command in dict.fromkeys(row["command"] for row in rows)]


def paper_of(row):
    """The paper's value, and whether its text states the number."""
    if row["paper"] is None:
        return None, ""
    (kind, value), = row["paper"].items()
    return value, "" if kind == "stated" else " *"


def markdown(head, rows):
    """Lines of a table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows] + [""]


def chosen_patterns(rows):
    """Each value once; with and without a progress thread if that makes a difference."""
    chosen = [row for row in rows if not row["progress_thread"] or row["case"] in SECOND_CORE]
    return sorted(chosen, key=lambda row: row["figure"])


def patterns(folder, rows):
    """Figures 2 to 11."""
    table = []
    cases = dict.fromkeys(row["case"] for row in rows)
    for case in cases:
        mine = [row for row in rows if row["case"] == case]
        for row in mine:
            value, mark = paper_of(row)
            if value is None or row["bytes"] not in (1 << 20, 4):
                continue
            series = NAMES[row["series"]] + (", progress thread" if row["progress_thread"] else "")
            table.append((row["figure"] or "reference", case, series, row["metric"],
                          size_text(row["bytes"]),
                          f"{value:.0f}{mark}", f"{row['value']:.1f}",
                          f"{100 * row['difference']:+.1f} %"))
        if mine[0]["figure"]:
            draw_pattern(folder, case,
                         [row for row in mine if row["progress_thread"] == (case in SECOND_CORE)])
    head = ("figure", "pattern", "series", "value", "put", "paper, µs", "ours, µs", "difference")
    return ["## Inefficiency patterns and reorder flags (figures 2 to 11)", "",
            "`*`: the paper describes the value in words (1000 µs of delay or work, transfers of "
            "340 µs). Without `*`: it states the number. "
            "In Late Unlock and Wait at Fence a computing process must notify a peer, which needs "
            "its CPU or a progress thread.",
            "", *markdown(head, table), "Made by " + ", ".join(commands(rows)) + ".", ""]


def draw_pattern(folder, case, rows):
    """Bars: a group per metric and size, a colour per series, a mark for the paper's value."""
    sizes = len({row["bytes"] for row in rows}) > 1
    groups = {}
    for row in rows:
        name = row["metric"].replace("_", "\n", 1) + (f"\n{size_text(row['bytes'])}" if sizes
                                                      else "")
        groups.setdefault(name, []).append(row)
    series = list(dict.fromkeys(row["series"] for row in rows))
    figure, axes = plt.subplots(figsize=(max(4.5, 0.8 * len(groups) + 1.5), 4))
    width = 0.8 / len(series)
    for at, group in enumerate(groups.values()):
        for row in group:
            x = at + (series.index(row["series"]) - (len(series) - 1) / 2) * width
            axes.bar(x, row["value"], width * 0.92, color=COLOURS[row["series"]])
            axes.annotate(f"{row['value']:.0f}", (x, row["value"]), textcoords="offset points",
                          xytext=(0, 3), ha="center", fontsize=6 if sizes else 8)
            value, _ = paper_of(row)
            if value is not None:
                axes.hlines(value, x - width / 2, x + width / 2, colors="black", linewidth=1.6,
                            zorder=4)
    axes.set_xticks(range(len(groups)))
    axes.set_xticklabels(list(groups), fontsize=6 if sizes else 9)
    axes.set_ylabel("µs")
    handles = [plt.Rectangle((0, 0), 1, 1, color=COLOURS[name])
               for name in series] + [plt.Line2D([], [], color="black")]
    axes.legend(handles, [NAMES[name] for name in series] + ["paper"], fontsize=8, frameon=False,
                loc="upper center",
                bbox_to_anchor=(0.5, 1.12), ncol=3)
    save_svg(figure, folder, f"fig{rows[0]['figure']:02d}-{case}")


def save_svg(figure, folder, name):
    """Saves SVG and PNG; equal results give an equal SVG."""
    figure.tight_layout()
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "figures" / f"{name}.svg", metadata={"Date": None})
    figure.savefig(folder / "figures" / f"{name}.png", dpi=100)
    plt.close(figure)


def lines_over_ranks(folder, name, label, series_rows, value):
    """One curve per series over the number of ranks."""
    figure, axes = plt.subplots(figsize=(5.5, 4))
    for series, rows in series_rows.items():
        rows = sorted(rows, key=lambda row: row["ranks"])
        axes.plot([row["ranks"] for row in rows], [value(row) for row in rows], "o-",
                  color=COLOURS[series], label=NAMES[series])
    ticks = sorted({row["ranks"] for rows in series_rows.values() for row in rows})
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks)
    axes.set_xticklabels(ticks, fontsize=8)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("ranks")
    axes.set_ylabel(label)
    axes.legend(frameon=False)
    save_svg(figure, folder, name)


def by_series(rows):
    """Rows by series."""
    found = {}
    for row in rows:
        found.setdefault(row["series"], []).append(row)
    return found


def transactions(folder, rows):
    """Figure 12."""
    series = by_series(rows)
    lines_over_ranks(folder, "fig12-transactions", "million transactions per second", series,
                     lambda row: row["per_second"] / 1e6)
    table = []
    for ranks in sorted({row["ranks"] for row in rows}):
        at = {row["series"]: row for row in rows if row["ranks"] == ranks}
        if not {"blocking", "nonblocking", "reorder"} <= set(at):
            continue
        base = at["blocking"]["per_second"]
        gain = at["reorder"]["per_second"] / base - 1
        table.append((ranks, *(f"{at[name]['per_second'] / 1e6:.3f}"
                               for name in ("blocking", "nonblocking", "reorder")),
                      f"{GAINS[ranks]:+d} %" if ranks in GAINS else "", f"{100 * gain:+.1f} %",
                      f"{at['reorder']['engine_bytes_peak_max'] / 1024:.0f} KB",
                      f"{100 * at['reorder']['atomics_busy_max']:.0f} %"))
    head = ("ranks", "blocking, million/s", "nonblocking", "with A_A_A_R", "gain, paper",
            "gain, ours", "engine memory per rank, most",
            "busiest NIC's atomic unit")
    return ["## Massive unstructured transactions (figure 12)", "", *markdown(head, table),
            "Made by " + ", ".join(commands(rows)) + ".", ""]


def lu(folder, rows):
    """Figure 13, the same with look-ahead, and on machines that differ from the profile."""
    text = ["## LU decomposition (figure 13)", ""]
    for size in sorted({row["size"] for row in rows}):
        for ahead, changed in sorted({(row["ahead"], tuple(row["set"])) for row in rows
                                      if row["size"] == size}):
            mine = [row for row in rows
                    if (row["size"], row["ahead"], tuple(row["set"])) == (size, ahead, changed)]
            like_paper = not ahead and not changed
            name = f"fig13-lu-{size}" + ("-ahead" if ahead else "")
            name += "".join(f"-{change}" for change in changed)
            lines_over_ranks(folder, f"{name}-time", "seconds", by_series(mine),
                             lambda row: row["seconds"])
            lines_over_ranks(folder, f"{name}-calls", "% of the time in calls", by_series(mine),
                             lambda row: 100 * row["in_calls"])
            table = []
            for ranks in sorted({row["ranks"] for row in mine}):
                at = {row["series"]: row for row in mine if row["ranks"] == ranks}
                if {"blocking", "nonblocking"} <= set(at):
                    blocking, nonblocking = at["blocking"], at["nonblocking"]
                    table.append((ranks, f"{blocking['seconds']:.2f}",
                                  f"{nonblocking['seconds']:.2f}",
                                  "1.5" if ranks in (64, 128) and like_paper else "",
                                  f"{blocking['seconds'] / nonblocking['seconds']:.2f}",
                                  f"{100 * blocking['in_calls']:.0f} %",
                                  f"{100 * nonblocking['in_calls']:.0f} %",
                                  f"{nonblocking['engine_bytes_peak_max'] / 1024:.0f} KB"))
            head = ("ranks", "blocking, s", "nonblocking, s", "ratio, paper", "ratio, ours",
                    "in calls, blocking", "in calls, nonblocking",
                    "engine memory per rank, most")
            title = f"### {size} x {size}" + (", the next row first" if ahead else "")
            title += "".join(f", `{change}`" for change in changed)
            text += [title, "", *markdown(head, table)]
            if "byte=0" in changed:
                text += ["With a wire that takes no time per byte. At more ranks the table above "
                         "is slower because of the broadcast of the rows: each row leaves its "
                         "owner's adapter once per peer, in both series.", ""]
    return [*text, "Made by " + ", ".join(commands(rows)) + ".", ""]


def curve(folder, name, x_label, y_label, points):
    """One curve over a logarithmic axis."""
    figure, axes = plt.subplots(figsize=(5.5, 4))
    axes.plot([x for x, _ in points], [y for _, y in points], "o-", color=COLOURS["nonblocking"])
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    save_svg(figure, folder, name)


def engine(folder, pending, transacted):
    """The curves of the engine's cost."""
    text = ["## What the engine costs", ""]
    if pending:
        curve(folder, "cost-pending", "pending epochs", "ns of CPU per epoch, network included",
              [(row["epochs"], row["ns_per_epoch"]) for row in pending])
        text += markdown(("pending epochs", "ns of CPU per epoch, network included",
                          "engine bytes per epoch"),
                         [(row["epochs"], f"{row['ns_per_epoch']:.0f}",
                           f"{row['engine_bytes_per_epoch']:.0f}") for row in pending])
        text += ["Made by " + ", ".join(commands(pending)) + ".", ""]
    rows = sorted((row for row in transacted if row["series"] == "reorder"),
                  key=lambda row: row["ranks"])
    if rows:
        epochs = [(row["ranks"], row["cpu_seconds"] * 1e9 / (row["ranks"] * row["count"]))
                  for row in rows]
        curve(folder, "cost-ranks", "ranks", "ns of CPU per lock epoch, network included", epochs)
        curve(folder, "events", "ranks", "million events per second and core",
              [(row["ranks"], row["events_per_second"] / 1e6) for row in rows])
        curve(folder, "memory", "ranks", "KB of engine memory per rank, most",
              [(row["ranks"], row["engine_bytes_peak_max"] / 1024) for row in rows])
        text += markdown(("ranks", "million events per second and core", "ns of CPU per lock epoch",
                          "engine bytes per rank: mean, most, at the end"),
                         [(row["ranks"], f"{row['events_per_second'] / 1e6:.2f}", f"{ns:.0f}",
                           f"{row['engine_bytes_peak_mean']:.0f}, {row['engine_bytes_peak_max']}, "
                           f"{row['engine_bytes_end_mean']:.0f}")
                          for row, (_, ns) in zip(rows, epochs)])
    return text


def wrapped(line):
    """A paragraph in lines of at most 100 columns; tables and headings as they are."""
    if not line or line[0] in "|#!":
        return line
    return textwrap.fill(line, 100, break_long_words=False, break_on_hyphens=False)


def main():
    """Reads the results."""
    folder = Path(sys.argv[1])
    parts = {name: read(folder, name) for name in ("patterns", "lu", "transactions", "pending")}
    some = next(rows[0] for rows in parts.values() if rows)
    text = ["# Results in virtual time", "",
            "[Real programs on real ranks](programs.md), plain and preloaded, have a page of their "
            "own.", "",
            f"The production engine on a simulated network, profile `{some['profile']}` "
            f"(`src/sim/profile.rs`, every parameter with its reason). The network is "
            "calibrated on one number of the paper, 340 µs for an epoch with a put of 1 MB; "
            "everything else follows from it. The same command gives the same results. "
            "`make figures` makes this page, `make figures-full` the large sizes too.", ""]
    if parts["patterns"]:
        text += patterns(folder, chosen_patterns(parts["patterns"]))
    if parts["transactions"]:
        text += transactions(folder, parts["transactions"])
    if parts["lu"]:
        text += lu(folder, parts["lu"])
    text += engine(folder, parts["pending"], parts["transactions"])
    page = "\n".join(map(wrapped, text)).rstrip() + "\n"
    (folder / "README.md").write_text(page, encoding="utf-8")
    print(f"table: {folder / 'README.md'}, figures: {folder / 'figures'}")


if __name__ == "__main__":
    main()
