"""Figures 12 and 13: transactions and LU decomposition in virtual time.

Each series has free choices (pending epochs; depth of the ring, the next row first). Tables compare
the series at their best; figures and further tables show the range.
"""

from statistics import mean

from results import COLOURS, plt
from page import NAMES, commands, markdown, save_svg, stale

COLOURS = {**COLOURS, "reorder": "#2f855a"}
# Stated in the paper's text for figure 12: gain of the nonblocking series with A_A_A_R over
# blocking, and the blocking rate in million/s that follows from the gain in transactions.
GAINS = {64: 39, 128: 20, 256: 16, 512: 2}
IMPLIED = {64: 0.47, 128: 1.03, 256: 2.12, 512: 2.36}
# Ratio that the paper's text states for LU.
RATIOS = {64: "1.5", 128: "1.5"}


def by(rows, *fields):
    """Rows by the values of some fields, in ascending order of these."""
    def value(cell):
        return tuple(cell) if isinstance(cell, list) else cell

    found = {}
    for row in rows:
        found.setdefault(tuple(value(row[field]) for field in fields), []).append(row)
    return dict(sorted(found.items()))


def mean_of(rows, field):
    """Mean over seeds."""
    return mean(row[field] for row in rows)


def made_by(rows):
    """The first commands; there are many."""
    return (f"Made by {', '.join(commands(rows)[:3])} and so on, as [PROTOCOL.md](PROTOCOL.md) "
            "says.")


# ---- transactions ----


def gains(rows, blocking):
    """Gain in the rate over blocking, for each seed."""
    base = {row["seed"]: row["per_second"] for row in blocking}
    return [row["per_second"] / base[row["seed"]] - 1 for row in rows if row["seed"] in base]


def best_transactions(rows):
    """Per number of ranks: the blocking rows, and of the other series those with the number of
    pending epochs that has the highest mean rate."""
    best = {}
    for (ranks,), some in by(rows, "ranks").items():
        of = {series: list(by(mine, "window").values())
              for (series,), mine in by(some, "series").items()}
        if set(of) >= {"blocking", "nonblocking", "reorder"}:
            best[ranks] = {name: max(choices, key=lambda mine: mean_of(mine, "per_second"))
                           for name, choices in of.items()}
    return best


def best_table(best):
    """Each series at its best."""
    table = []
    for ranks, of in best.items():
        rates = [f"{mean_of(of[name], 'per_second') / 1e6:.2f}" for name in of]
        at = dict(zip(of, rates))
        gain = gains(of["reorder"], of["blocking"])
        spread = "" if len(gain) == 1 else f" ({100 * min(gain):+.1f} to {100 * max(gain):+.1f} %)"
        table.append((ranks, IMPLIED.get(ranks, ""), at["blocking"],
                      f"{at['nonblocking']} ({of['nonblocking'][0]['window']})",
                      f"{at['reorder']} ({of['reorder'][0]['window']})",
                      f"{GAINS[ranks]:+d} %" if ranks in GAINS else "",
                      f"{100 * mean(gain):+.1f} %{spread}",
                      f"{100 * max(row['atomics_busy_max'] for row in of['reorder']):.0f} %"))
    return markdown(("ranks", "paper, blocking", "blocking", "nonblocking (pending)",
                     "with A_A_A_R (pending)", "gain, paper", "gain, ours (seeds)",
                     "busiest adapter's atomic unit"), table)


def range_table(rows):
    """Gain of both nonblocking series over blocking, by pending epochs."""
    windows = sorted({row["window"] for row in rows if row["series"] != "blocking"})
    table = []
    for (ranks,), some in by(rows, "ranks").items():
        of = by(some, "series", "window")
        blocking = next((mine for (name, _), mine in of.items() if name == "blocking"), None)
        for name in ("nonblocking", "reorder"):
            cells = [f"{100 * mean(gains(of[name, window], blocking)):+.0f}"
                     if blocking and (name, window) in of else "" for window in windows]
            if sum(map(bool, cells)) > 1:
                table.append((ranks, NAMES[name], *cells))
    return windows, markdown(("ranks", "gain over blocking, %, with pending epochs:",
                              *map(str, windows)), table)


def draw_range(folder, rows, windows):
    """Gain over the number of pending epochs; the band is that of the seeds."""
    figure, axes = plt.subplots(figsize=(6, 4))
    for (ranks,), some in by(rows, "ranks").items():
        of = by(some, "series", "window")
        blocking = next((mine for (name, _), mine in of.items() if name == "blocking"), [])
        points = [(window, [100 * gain for gain in gains(of["reorder", window], blocking)])
                  for window in windows if ("reorder", window) in of]
        points = [(window, gain) for window, gain in points if gain]
        if len(points) > 1:
            line, = axes.plot([window for window, _ in points],
                              [mean(gain) for _, gain in points], "o-", label=f"{ranks} ranks")
            axes.fill_between([window for window, _ in points],
                              [min(gain) for _, gain in points],
                              [max(gain) for _, gain in points],
                              color=line.get_color(), alpha=0.2)
    axes.set_xscale("log", base=2)
    axes.set_xticks(windows)
    axes.set_xticklabels(windows)
    axes.set_xlabel("pending epochs of a rank")
    axes.set_ylabel("gain of A_A_A_R over blocking, %")
    axes.legend(frameon=False, fontsize=8)
    save_svg(figure, folder, "fig12-pending-epochs")


def draw_best(folder, best):
    """The rates at their best."""
    figure, axes = plt.subplots(figsize=(6, 4))
    for name in ("blocking", "nonblocking", "reorder"):
        points = [(ranks, mean_of(of[name], "per_second") / 1e6) for ranks, of in best.items()]
        axes.plot(*zip(*points), "o-", color=COLOURS[name], label=NAMES[name])
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=10)
    axes.set_xticks(list(best))
    axes.set_xticklabels(best, fontsize=8)
    axes.set_xlabel("ranks")
    axes.set_ylabel("million transactions per second")
    axes.legend(frameon=False)
    save_svg(figure, folder, "fig12-transactions")


def change_text(row):
    """What of the machine differs from the profile."""
    return ", ".join(row["set"])


def draw_changes(folder, name, rows, label, value):
    """Small multiples: one for each change of the machine, and one for the profile itself."""
    groups = by(rows, "set")
    across = 4
    down = -(-len(groups) // across)
    figure, grid = plt.subplots(down, across, figsize=(10, 2.2 * down), sharex=True, sharey=True,
                                squeeze=False)
    for axes in grid.flat[len(groups):]:
        axes.axis("off")
    for axes, ((_,), some) in zip(grid.flat, groups.items()):
        points = [(ranks, value(mine)) for (ranks,), mine in by(some, "ranks").items()]
        axes.plot(*zip(*points), "o-", color=COLOURS["nonblocking"], markersize=3)
        axes.set_title(change_text(some[0]) or "the profile", fontsize=8)
        axes.set_xscale("log", base=2)
        axes.set_xticks([ranks for ranks, _ in points])
        axes.set_xticklabels([ranks for ranks, _ in points], fontsize=7)
        axes.tick_params(labelsize=7)
    figure.supylabel(label, fontsize=9)
    save_svg(figure, folder, name)


def transactions_gain(rows):
    """Gain of A_A_A_R over blocking, in percent."""
    of = by(rows, "series")
    return 100 * mean(gains(of["reorder",], of["blocking",]))


def changes_table(rows, heading, value, text):
    """A value for each change of the machine, by ranks."""
    ranks = sorted({row["ranks"] for row in rows})
    table = []
    for some in by(rows, "set").values():
        at = by(some, "ranks")
        table.append((f"`{change_text(some[0])}`" if some[0]["set"] else "the profile",
                      *(text(value(at[number,])) if (number,) in at else "" for number in ranks)))
    return markdown((heading, *map(str, ranks)), table)


def transactions(folder, rows):
    """Figure 12."""
    plain = [row for row in rows if not row["set"]]
    best = best_transactions(plain)
    if not best:
        return []
    draw_best(folder, best)
    windows, ranges = range_table(plain)
    draw_range(folder, plain, windows)
    text = ["## Massive unstructured transactions (figure 12)", "",
            "Million transactions per second, each series with the number of pending epochs (in "
            "parentheses) that suits it best, mean over the seeds. The paper's blocking rates "
            "follow from the gains that its text states.", "", *best_table(best),
            "Two things differ from the paper. **Our rates are five to nine times as high.** Here "
            "locks are atomics of the adapter, 0.4 µs each, and no CPU of a target takes part. The "
            "paper's prototype serves locks and epochs in the progress engine of MVAPICH, by the "
            "target's CPU. **Our gain does not fall with the number of ranks**; the paper's does, "
            "from 39 to 2 %. It explains the last step by a flow-control problem of its prototype, "
            "and the others not. An adapter with twice the gap between messages shows such a fall, "
            "from 18 to 10 % (below). A [model of the prototype]"
            "(#locks-served-by-the-cpus-of-the-targets) comes near the paper's rates up to 256 "
            "ranks.", "",
            "No run waited for credits. [Runs with fewer credits](#flow-control-and-memory-under-"
            "pressure) are below.", "",
            "The gain depends on how many epochs may be pending:", "",
            "![gain over pending epochs](figures/fig12-pending-epochs.svg)", "", *ranges]
    varied = {(row["seed"], row["ranks"]) for row in rows if row["set"]}
    if varied:
        same = [row for row in rows if (row["seed"], row["ranks"]) in varied
                and (row["set"] or row["series"] == "blocking" or row["window"] == 64)]
        text += ["With parameters of the machine halved and doubled (64 pending epochs, one seed), "
                 "the gain of A_A_A_R over blocking, in percent, by ranks:", "",
                 *changes_table(same, "machine", transactions_gain, "{:+.0f}".format)]
        draw_changes(folder, "fig12-machine", same, "gain over blocking, %", transactions_gain)
    return [*text, *stale("transactions", rows), made_by(rows), ""]


# ---- LU decomposition ----


def compute_bound(machine, size, ranks):
    """Seconds that a rank computes."""
    total = 0
    for row in range(size - 1):
        left = size - 1 - row
        rows = left / ranks
        cached = rows * left * 8 <= machine["cache"]
        total += rows * (1 + 2 * left) / machine["flops_cached" if cached else "flops_streaming"]
    return total


def adapter_bound(machine, size, ranks):
    """Seconds that an adapter sends: each row leaves it once for each rank of another node."""
    nodes = max(1, ranks // machine["ranks_per_node"])
    others = ranks - min(ranks, machine["ranks_per_node"])
    return size * (size + 1) / 2 * 8 * others * machine["byte"] * 1e-12 / nodes


def choice_text(row):
    """Depth, and whether the next row comes first."""
    return f"{row['depth']}{', next first' if row['ahead'] else ''}"


def best_lu(rows):
    """Per number of ranks and series: the fastest row."""
    return {ranks: {series: min(mine, key=lambda row: row["seconds"])
                    for (series,), mine in by(some, "series").items()}
            for (ranks,), some in by(rows, "ranks").items()}


def lu_table(machine, size, best):
    """Both series at their best, with the bounds."""
    table = []
    for ranks, of in best.items():
        blocking, nonblocking = of["blocking"], of["nonblocking"]
        table.append((ranks,
                      f"{blocking['seconds']:.2f} ({choice_text(blocking)})",
                      f"{nonblocking['seconds']:.2f} ({choice_text(nonblocking)})",
                      RATIOS.get(ranks, ""),
                      f"{blocking['seconds'] / nonblocking['seconds']:.2f}",
                      f"{100 * blocking['in_calls']:.0f} %, {100 * nonblocking['in_calls']:.0f} %",
                      f"{compute_bound(machine, size, ranks):.2f}",
                      f"{adapter_bound(machine, size, ranks):.2f}"))
    return markdown(("ranks", "blocking, s (depth)", "nonblocking, s (depth)", "ratio, paper",
                     "ratio, ours", "in calls", "bound: computing, s", "bound: adapters, s"), table)


def lu_ranges(rows):
    """Seconds by depth, for each series, with and without the next row first."""
    depths = sorted({row["depth"] for row in rows})
    table = []
    for (ranks, ahead, series), some in by(rows, "ranks", "ahead", "series").items():
        at = {row["depth"]: row["seconds"] for row in some}
        if len(at) > 1:
            table.append((ranks, "yes" if ahead else "no", NAMES[series],
                          *(f"{at[depth]:.2f}" if depth in at else "" for depth in depths)))
    return markdown(("ranks", "next row first", "seconds with a ring of rows:",
                     *map(str, depths)), table)


def draw_lu(folder, machine, size, rows, best):
    """Time of both series at their best, the range of their choices, and the bounds."""
    figure, axes = plt.subplots(figsize=(6, 4))
    for series in ("blocking", "nonblocking"):
        ranks = list(best)
        axes.plot(ranks, [best[number][series]["seconds"] for number in ranks], "o-",
                  color=COLOURS[series], label=f"{NAMES[series]}, best")
        of = by([row for row in rows if row["series"] == series], "ranks")
        times = [[row["seconds"] for row in of[number,]] for number in ranks]
        axes.fill_between(ranks, list(map(min, times)), list(map(max, times)),
                          color=COLOURS[series], alpha=0.2)
    for label, bound, style in (("computing", compute_bound, "--"),
                                ("adapters", adapter_bound, ":")):
        axes.plot(list(best), [bound(machine, size, number) for number in best], style,
                  color="black", linewidth=1, label=f"bound: {label}")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=10)
    axes.set_xticks(list(best))
    axes.set_xticklabels(best)
    axes.set_xlabel("ranks")
    axes.set_ylabel("seconds")
    axes.legend(frameon=False, fontsize=8)
    save_svg(figure, folder, f"fig13-lu-{size}")


def lu_ratio(rows):
    """How many times as long blocking takes."""
    of = by(rows, "series")
    return of["blocking",][0]["seconds"] / of["nonblocking",][0]["seconds"]


def lu_sharing(same):
    """Why both series are slower with more ranks, shown by nodes with fewer of them."""
    table = []
    for change in ((), ("ranks_per_node=2",), ("ranks_per_node=1",)):
        of = by([row for row in same if tuple(row["set"]) == change], "series", "ranks")
        most = max((ranks for _, ranks in of), default=None)
        if most is not None and ("blocking", most) in of and ("nonblocking", most) in of:
            table.append((change[0].split("=")[1] if change else 8, most,
                          *(f"{of[name, most][0]['seconds']:.2f}"
                            for name in ("blocking", "nonblocking"))))
    if len(table) < 2:
        return []
    return ["With more ranks, both series take many times as long as either bound. The ranks of a "
            "node share an adapter, which sends what is posted to it in order, and they own "
            "consecutive rows. So each row waits there behind the transfers of the rows before it "
            "to all ranks, also its copy for the rank that owns the next row and could go on with "
            "it. The nodes take turns instead of sending at the same time. With fewer ranks per "
            "node:", "",
            *markdown(("ranks per node", "ranks", "blocking, s", "nonblocking, s"), table)]


def lu(folder, machine, rows):
    """Figure 13."""
    text = ["## LU decomposition (figure 13)", "",
            "Each series with the depth of the ring that suits it best, and with the next row "
            "first where that is faster. Bounds: what a rank computes, and what the adapter of a "
            "node sends, since each row leaves it once for each rank of another node.", ""]
    plain = [row for row in rows if not row["set"]]
    for (size,), some in by(plain, "size").items():
        best = {ranks: of for ranks, of in best_lu(some).items() if len(of) == 2}
        if not best:
            continue
        draw_lu(folder, machine, size, some, best)
        text += [f"### {size} x {size}", "", *lu_table(machine, size, best),
                 f"![time over ranks](figures/fig13-lu-{size}.svg)", "", *lu_ranges(some)]
    varied = [row for row in rows if row["set"]]
    if varied:
        size, depth = varied[0]["size"], varied[0]["depth"]
        ranks = {row["ranks"] for row in varied}
        same = varied + [row for row in plain if (row["size"], row["depth"]) == (size, depth)
                         and row["ranks"] in ranks and not row["ahead"]]
        text += [f"### Other machines, {size} x {size}", "",
                 f"Time of the blocking series divided by that of the nonblocking one, with a ring "
                 f"of {depth} rows and each row in its turn, by ranks:", "",
                 *changes_table(same, "machine", lu_ratio, "{:.2f}".format), *lu_sharing(same)]
        draw_changes(folder, "fig13-machine", same, "blocking / nonblocking", lu_ratio)
    return [*text, *stale("lu", rows), made_by(rows), ""]
