#!/usr/bin/env python3
"""Draws the simulated figures, and writes README.md: a table beside the paper's numbers.

usage: simulated.py RESULTS
"""

import json
import sys
from pathlib import Path

import applications
import flow
import gauss_seidel
import over_nodes
import supersteps
from page import NAMES, commands, markdown, save_svg, stale, wrapped
from results import COLOURS, plt, size_text

COLOURS = {**COLOURS, "flag_off": COLOURS["off"], "flag_on": COLOURS["on"]}
# A computing process must notify another one: taken from the runs with a progress thread.
SECOND_CORE = {"wait_at_fence", "late_unlock"}


def read(folder, name):
    """Rows of one part, empty if it was not run."""
    path = folder / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def paper_of(row):
    """The paper's value, and whether its text states the number."""
    if row["paper"] is None:
        return None, ""
    (kind, value), = row["paper"].items()
    return value, "" if kind == "stated" else " *"


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
                          "" if row["difference"] is None else f"{100 * row['difference']:+.1f} %"))
        if mine[0]["figure"]:
            draw_pattern(folder, case,
                         [row for row in mine if row["progress_thread"] == (case in SECOND_CORE)])
    head = ("figure", "pattern", "series", "value", "put", "paper, µs", "ours, µs", "difference")
    return ["## Inefficiency patterns and reorder flags (figures 2 to 11)", "",
            "`*`: the paper describes the value in words (1000 µs of delay or work, transfers of "
            "340 µs). Without `*`: it states the number. "
            "In Late Unlock and Wait at Fence a computing process must notify a peer, which needs "
            "its CPU or a progress thread.", "",
            "The difference is relative to the part of the paper's value that is not the delay or "
            "work of 1000 µs, which the programs put in themselves; values that are little else "
            "have none.", "", *markdown(head, table), *stale("patterns", rows),
            "Made by " + ", ".join(commands(rows)) + ".", ""]


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
    rows = sorted((row for row in transacted if row["series"] == "reorder" and not row["set"]
                   and (row["window"], row["seed"]) == (64, 1)), key=lambda row: row["ranks"])
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


def main():
    """Reads the results."""
    folder = Path(sys.argv[1])
    parts = {name: read(folder, name) for name in ("patterns", "lu", "transactions", "pending",
                                                   "bulk", "pressure", "served", "tasks",
                                                   "bsp", "collectives")}
    machine = json.loads((folder / "machine.json").read_text(encoding="utf-8"))
    some = next(rows[0] for rows in parts.values() if rows)
    text = ["# Results in virtual time", "",
            "[Real programs on real ranks](programs.md), plain and preloaded, have a page of their "
            "own.", "",
            f"The production engine on a simulated network, profile `{some['profile']}` "
            f"(`src/sim/profile.rs`, every parameter with its reason). The network is "
            "calibrated on one number of the paper, 340 µs for an epoch with a put of 1 MB. "
            "[PROTOCOL.md](PROTOCOL.md) lists all parameters and what is run. The same command "
            "gives the same results. `make figures` makes this page, `make figures-full` the "
            "large sizes too, and `make test` recomputes the small ones.", ""]
    if parts["patterns"]:
        text += patterns(folder, chosen_patterns(parts["patterns"]))
    if parts["transactions"]:
        text += applications.transactions(folder, parts["transactions"])
    if parts["served"]:
        text += flow.served(parts["served"])
    if parts["lu"]:
        text += applications.lu(folder, machine, parts["lu"])
    if parts["bulk"]:
        text += flow.bulk(parts["bulk"], parts["lu"])
    if parts["pressure"]:
        text += flow.pressure(parts["pressure"], machine["credits_nic"])
    if parts["tasks"]:
        text += gauss_seidel.tasks(folder, parts["tasks"])
    if parts["bsp"]:
        text += supersteps.supersteps(folder, parts["bsp"])
    if parts["collectives"]:
        text += over_nodes.collectives(folder, parts["collectives"])
    text += engine(folder, parts["pending"], parts["transactions"])
    page = "\n".join(map(wrapped, text)).rstrip() + "\n"
    (folder / "README.md").write_text(page, encoding="utf-8")
    print(f"table: {folder / 'README.md'}, figures: {folder / 'figures'}")


if __name__ == "__main__":
    main()
