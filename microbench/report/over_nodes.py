"""Collectives over many nodes in virtual time: schedules that know the nodes, flat ones, bounds."""

from applications import by, made_by
from page import markdown, save_svg, stale
from results import plt, size_text

PLAIN = {"profile": "ndr-2024", "set": ["ranks_per_node=48"], "forced": None, "block_ns": 2.0,
         "skew_us": 0.0, "seed": 1}
STYLES = {"flat": ("flat", "#9a9a9a", "o-"), "node": ("with nodes", "#2b6cb0", "o-")}


def some(rows, **values):
    """The rows with the parameters of the protocol, except these; None: any value."""
    wanted = {**PLAIN, **values}
    return [row for row in rows if all(row[name] == value for name, value in wanted.items()
                                       if value is not Ellipsis)]


def case_of(row):
    """A collective with its size."""
    if row["cells"]:
        return f"{row['collective']}, {row['cells']}^3 cells"
    if row["partners"]:
        dense = "" if row["partners"] == 256 else f", {row['partners']:,} blocks"
        return f"{row['collective']}, {size_text(row['bytes'])}{dense}"
    return row["collective"] + (f", {size_text(row['bytes'])}" if row["bytes"] else "")


def cases(rows):
    """Rows of each case, by ranks and schedule."""
    found = {}
    for row in rows:
        found.setdefault(case_of(row), {}).setdefault(row["ranks"], {})[row["schedule"]] = row
    return found


def micro(time):
    """Three digits, as far as there are so many."""
    return f"{time:,.0f}" if time >= 100 else f"{time:.3g}"


def main_table(of):
    """Both schedules of each case beside the model and the bound."""
    table = []
    for case, sizes in of.items():
        for ranks, both in sorted(sizes.items()):
            if set(STYLES) <= set(both):
                node, flat = both["node"], both["flat"]
                table.append((case, f"{ranks:,}", f"{micro(flat['time_us'])} ({flat['algorithm']})",
                              f"{micro(node['time_us'])} ({node['algorithm']})",
                              f"{flat['time_us'] / node['time_us']:.2f}",
                              micro(node["model_us"]), micro(node["bound_us"]),
                              f"{node['time_us'] / node['bound_us']:.2f}",
                              f"{flat['messages']:,}", f"{node['messages']:,}"))
    return markdown(("collective", "ranks", "flat, µs", "with nodes, µs", "flat / with nodes",
                     "model, µs", "bound, µs", "with nodes / bound", "puts between nodes: flat",
                     "with nodes"), table)


def draw(folder, of):
    """Time over ranks, a panel for each case."""
    shown = {case: sizes for case, sizes in of.items() if len(sizes) > 1}
    columns = (len(shown) + 1) // 2
    figure, axes = plt.subplots(2, columns, figsize=(3.3 * columns, 6.4), squeeze=False)
    for ax, (case, sizes) in zip(axes.flat, shown.items()):
        ranks = sorted(sizes)
        for name, (label, colour, style) in STYLES.items():
            ax.plot(ranks, [sizes[at][name]["time_us"] for at in ranks], style, color=colour,
                    label=label, markersize=4)
        ax.plot(ranks, [sizes[at]["node"]["bound_us"] for at in ranks], "--", color="black",
                label="bound", linewidth=1)
        ax.set_xscale("log", base=2)
        ax.set_yscale("log")
        ax.set_xticks(ranks)
        ax.set_xticklabels([f"{at:,}" for at in ranks], fontsize=7)
        ax.minorticks_off()
        ax.set_title(case, fontsize=9)
        ax.set_xlabel("ranks")
    for ax in axes.flat[len(shown):]:
        ax.set_visible(False)
    axes[0][0].set_ylabel("µs")
    axes[0][0].legend(frameon=False, fontsize=8)
    save_svg(figure, folder, "collectives")


def varied(rows):
    """What other parameters change."""
    table = []
    for (setting, block, skew), mine in by(rows, "set", "block_ns", "skew_us").items():
        what = [change for change in setting if change not in PLAIN["set"]]
        what += [f"block {block:g} ns"] if block != PLAIN["block_ns"] else []
        what += [f"entry within {skew:g} µs"] if skew else []
        for case, sizes in cases(mine).items():
            for ranks, both in sorted(sizes.items()):
                if set(STYLES) <= set(both):
                    node, flat = both["node"]["time_us"], both["flat"]["time_us"]
                    table.append((case, f"{ranks:,}", ", ".join(f"`{one}`" for one in what) or
                                  "the protocol's", micro(flat), micro(node),
                                  f"{flat / node:.2f}"))
    wanted = {cell[0] for cell in table if cell[2] != "the protocol's"}
    sizes = {cell[:2] for cell in table if cell[2] != "the protocol's"}
    table = sorted((cell for cell in table if cell[0] in wanted and cell[:2] in sizes),
                   key=lambda cell: (cell[0], int(cell[1].replace(",", "")),
                                     cell[2] != "the protocol's"))
    return markdown(("collective", "ranks", "parameters", "flat, µs", "with nodes, µs",
                     "flat / with nodes"), table)


def algorithms(rows):
    """Each algorithm of an allreduce beside the model's choice."""
    forced = some(rows, forced=..., schedule="node", collective="allreduce")
    table = []
    for (ranks, size), mine in by(forced, "ranks", "bytes").items():
        chosen = [row for row in mine if row["forced"] is None]
        if len(mine) > 1 and chosen:
            cells = [f"{row['algorithm']}: {micro(row['time_us'])} ({micro(row['model_us'])})"
                     for row in mine if row["forced"]]
            table.append((f"{ranks:,}", size_text(size),
                          f"{chosen[0]['algorithm']}: {micro(chosen[0]['time_us'])} "
                          f"({micro(chosen[0]['model_us'])})", "; ".join(cells)))
    return markdown(("ranks", "bytes", "chosen, µs (model)", "others"), table)


def free_notifications(rows):
    """What remains of the gain if notifications take no time in the adapter."""
    free = [row for row in rows if "atomic_gap=0" in row["set"]]
    gains = [f"{both['flat']['time_us'] / both['node']['time_us']:.1f} ({case}, {ranks:,} ranks)"
             for case, sizes in cases(free).items() for ranks, both in sizes.items()
             if set(STYLES) <= set(both)]
    return ["Most of the gain for short blocks is notifications: the adapter of a node raises one "
            "counter after the other, 50 ns each, and flat schedules raise one per block. If "
            "they took no time in the adapter, the schedule with nodes would still be faster, by "
            "factors of "
            + ", ".join(gains) + ".", ""] if gains else []


def collectives(folder, rows):
    """The section of the page."""
    plain = some(rows)
    if not plain:
        return []
    of = cases(plain)
    draw(folder, of)
    ratios = {case: [both["flat"]["time_us"] / both["node"]["time_us"]
                     for both in sizes.values() if set(STYLES) <= set(both)]
              for case, sizes in of.items()}
    slower = [case for case, all_of in ratios.items() if all_of and min(all_of) < 1]
    verdict = ("In each of these runs the schedule that knows the nodes is faster."
               if not slower else
               "**Somewhere the flat schedule is faster:** " + "; ".join(slower) + ".")
    missing = [case for case, sizes in of.items() if len(sizes) > 1 and 16384 not in sizes]
    left_out = [f"**Not run yet on 16,384 ranks:** {'; '.join(missing)}.", ""] if missing else []
    return ["## Collectives over many nodes", "",
            "Schedules with nodes: loads and stores within a node, and one notified put per pair "
            "of nodes, which all processes of the target node see (INTERTWinE D3.3, 5.3.2 and "
            "5.3.3). Beside them flat ones, which take each process for a node, on the same nodes "
            "of 48 ranks (profile `ndr-2024`), what the LogGP model says of the schedule with "
            "nodes, and its lower bound for any algorithm. In parentheses: the algorithm, for an "
            "allreduce that which the model chooses.", "", *main_table(of),
            "![time over ranks](figures/collectives.svg)", "", verdict, "",
            *left_out, *free_notifications(rows),
            "The long allreduce is bound by the memory bus of the node, which reads 48 "
            "contributions and writes 48 results of 1 MiB; the network adds little.", "",
            "Other algorithms of an allreduce with nodes:", "", *algorithms(rows),
            "Other parameters:", "", *varied([row for row in rows if row["forced"] is None]),
            *stale("collectives", rows), made_by(rows), ""]
