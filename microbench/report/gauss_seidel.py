"""The Gauss-Seidel method by tasks, in virtual time, beside what the TAMPI paper says."""

from statistics import mean

from applications import by, made_by
from page import markdown, save_svg, stale
from results import plt

import simulate  # page.py has put its folder on the path

# What the schedules explain, and what the model leaves out.
DIFFERENCES = [
    "**What the schedules explain.** In `pure` and `forkjoin` a rank computes an iteration when "
    "the rank above has finished it and the rank below has finished the one before, so every other "
    "rank waits. In `forkjoin` the wave front of one iteration keeps few cores busy besides. In "
    "`sentinel` a rank sends its last row when it has received the rows of its neighbours. With "
    "two nodes an iteration takes a row of 64 blocks. Ranks with two neighbours take turns, and it "
    "takes two rows, however many cores there are. In `interop` and `notified` an iteration "
    "follows the one before it two blocks behind, so a rank with one row of 64 blocks (64 nodes) "
    "keeps 32 cores busy.", "",
    "**What differs.** `nbuffer` scales here at least as well as `interop`, because a rank always "
    "has a block to compute. TAMPI measured an efficiency of 0.1 on 64 nodes. Its cause must be "
    "something that the model leaves out: memory and adapters shared by 48 "
    "processes, the cost of MPI calls in the host of that time, or noise (jitter, below, costs "
    "`nbuffer` more than `interop`). TAGASPI measured a version like `nbuffer` on the same machine "
    "with another MPI: slightly the fastest on few nodes, and 1.15 times as slow as `notified` on "
    "256, which is nearer to this model. `pure` falls less far than in TAMPI too. TAMPI's figure "
    "has the version of `interop` whose tasks pause in blocking calls; here they complete with the "
    "request, as in its figure 12.", ""]

VERSIONS = ("pure", "nbuffer", "forkjoin", "sentinel", "interop", "notified")
COLOURS = {"pure": "#9a9a9a", "nbuffer": "#6b4c9a", "forkjoin": "#c53030", "sentinel": "#d9822b",
           "interop": "#2f855a", "notified": "#2b6cb0"}
PLAIN = {"set": [], "rows": 65536, "columns": 65536, "block": 1024, "iterations": 1000,
         "element_ns": 4.0, "task_ns": 1000.0, "jitter": 0.0}
PAPER = ["ranks_per_node=48"]


def some(of, **values):
    """The rows with the parameters of the protocol, except these; None: any value."""
    wanted = {**PLAIN, **values}
    return [row for row in of
            if all(value is None or row[name] == value for name, value in wanted.items())]


def times(rows):
    """Seconds by version and nodes."""
    return {key: mean(row["seconds"] for row in mine)
            for key, mine in by(rows, "version", "nodes").items()}


def versions_of(found):
    """The versions that were run, in the order of the page."""
    return [name for name in VERSIONS if any(version == name for version, _ in found)]


def speedup_table(rows):
    """Speedup over `pure` on one node, and efficiency."""
    found = times(rows)
    names = versions_of(found)
    cores = {row["nodes"]: row["cores"] for row in rows}
    table = []
    for nodes in sorted(cores):
        cells = []
        for name in names:
            if (name, nodes) not in found:
                cells.append("")
                continue
            speedup = found["pure", 1] / found[name, nodes]
            efficiency = found[name, 1] / found[name, nodes] / nodes
            cells.append(f"{speedup:.2f} ({100 * efficiency:.0f} %)")
        table.append((nodes, cores[nodes], *cells))
    return markdown(("nodes", "cores", *(f"`{name}`" for name in names)), table)


def draw(folder, rows):
    """Speedup and efficiency over nodes, as figure 9 of the paper has them."""
    found = times(rows)
    figure, (above, below) = plt.subplots(1, 2, figsize=(10, 4.2))
    for name in versions_of(found):
        nodes = sorted(at for version, at in found if version == name)
        style = "s--" if name == "notified" else "o-"
        look = {"color": COLOURS[name], "label": name, "markersize": 4}
        above.plot(nodes, [found["pure", 1] / found[name, at] for at in nodes], style, **look)
        below.plot(nodes, [found[name, 1] / found[name, at] / at for at in nodes], style, **look)
    for axes, label in ((above, "speedup over pure on one node"),
                        (below, "efficiency over one node")):
        axes.set_xscale("log", base=2)
        axes.set_xticks(sorted({at for _, at in found}))
        axes.set_xticklabels(sorted({at for _, at in found}))
        axes.set_xlabel("nodes with 64 cores")
        axes.set_ylabel(label)
    above.set_yscale("log", base=2)
    above.set_yticks([2 ** power for power in range(0, 8)])
    above.set_yticklabels([2 ** power for power in range(0, 8)])
    below.set_ylim(0, 1.05)
    lines, names = below.get_legend_handles_labels()
    above.legend(lines, names, frameon=False, fontsize=8, ncol=3, loc="upper center",
                 bbox_to_anchor=(0.5, 1.14))
    save_svg(figure, folder, "tasks-gauss-seidel")


def claims(plain, paper):
    """What the text of the paper says of its figure 9, and what the simulator gives."""
    ours, theirs = times(plain), times(paper)

    def speedups(name, nodes, found=theirs):
        return ", ".join(f"{found['pure', 1] / found[name, at]:.2f}" for at in nodes)

    def efficiencies(name, nodes, found=theirs):
        return ", ".join(f"{found[name, 1] / found[name, at] / at:.2f}" for at in nodes)

    busy = {row["version"]: row["busy"] * 48 for row in paper if row["nodes"] == 4}
    need = {(name, at) for name in VERSIONS if name != "nbuffer" for at in (1, 2, 4, 16, 32, 64)}
    buffered = [at for name, at in ours if name == "nbuffer"]
    if not need <= set(theirs) or not {1, 4, 16} <= set(buffered):
        return []
    most = max(buffered)
    table = [
        ("On one node all hybrid versions are faster than `pure`, `forkjoin` the least.",
         "speedup on one node: `forkjoin` " + speedups("forkjoin", (1,)) + ", `interop` "
         + speedups("interop", (1,)), "yes"),
        ("`forkjoin` stops scaling at two nodes.",
         "speedup on 1, 2, 4 nodes: " + speedups("forkjoin", (1, 2, 4)), "yes"),
        ("`sentinel` stops scaling at four nodes.",
         "speedup on 1, 2, 4 nodes: " + speedups("sentinel", (1, 2, 4)), "yes"),
        ("In traces of four nodes, 8 of 48 cores of a node compute in `forkjoin` and `sentinel`.",
         f"mean: `forkjoin` {busy['forkjoin']:.1f}, `sentinel` {busy['sentinel']:.1f}", "nearly"),
        ("`interop` keeps its efficiency up to 16 nodes; it falls quickly then, and with 64 nodes "
         "the speedup flattens.",
         "efficiency on 16, 32, 64 nodes: " + efficiencies("interop", (16, 32, 64))
         + "; speedup on 32, 64: " + speedups("interop", (32, 64)), "yes"),
        ("The efficiency of `pure` falls steadily, to 0.1 on 64 nodes.",
         "efficiency on 4, 16, 64 nodes: " + efficiencies("pure", (4, 16, 64)), "in part"),
        ("That of `nbuffer` too. It is faster than all versions above, and slower than `interop`.",
         f"64 cores per node, efficiency on 4, 16, {most} nodes: "
         + efficiencies("nbuffer", (4, 16, most), ours) + f"; speedup on {most} nodes "
         + speedups("nbuffer", (most,), ours) + ", `interop` " + speedups("interop", (most,), ours),
         "**no**"),
    ]
    return markdown(("TAMPI, with 48 cores per node", "simulated, with 48 cores per node",
                     "the same shape"), table)


def blocks_table(rows):
    """Each version with the block that suits it best."""
    best = {}
    for row in some(rows, block=None):
        at = (row["version"], row["nodes"])
        if at not in best or row["seconds"] < best[at]["seconds"]:
            best[at] = row
    sizes = {name: {row["block"] for row in some(rows, block=None) if row["version"] == name}
             for name in VERSIONS}
    names = [name for name in VERSIONS if len(sizes[name]) > 1 and (name, 1) in best]
    made = {(row["version"], row["nodes"], row["block"]) for row in some(rows, block=None)}
    # Of a version and number of nodes, only with all sizes.
    full = {(name, at) for name, at in best
            if all((name, at, size) in made for size in sizes[name])}
    nodes = sorted({at for name, at in full if name in names})
    if not nodes or ("pure", 1) not in best:
        return []
    base = best["pure", 1]["seconds"]
    table = [(at, *(f"{base / best[name, at]['seconds']:.2f} ({best[name, at]['block']})"
                    if (name, at) in full else "" for name in names)) for at in nodes]
    return ["The block is the programmer's choice. Speedup with the one that suits each version "
            "best, with its columns in parentheses:", "",
            *markdown(("nodes", *(f"`{name}`" for name in names)), table),
            "Smaller blocks shorten the wave fronts. In this model they cost the start of more "
            "tasks, and more messages, but no speed of the updates themselves. TAMPI calls 1,024 "
            "the smallest block that reaches the peak, and TAGASPI finds 512 best for its hybrid "
            "versions.", ""]


def jitter_table(rows):
    """What random times of the blocks cost."""
    still = times(some(rows, iterations=100))
    moving = times(some(rows, iterations=100, jitter=0.5, seed=None))
    nodes = sorted({at for _, at in still} & {at for _, at in moving})
    if not nodes:
        return []
    table = []
    for name in versions_of(moving):
        cells = []
        for at in nodes:
            if (name, at) in still and (name, at) in moving:
                cells += [f"{still[name, at]:.2f}",
                          f"{round(100 * (moving[name, at] / still[name, at] - 1)):+d} %"]
            else:
                cells += ["", ""]
        table.append((f"`{name}`", *cells))
    heads = [text for at in nodes for text in (f"{at} nodes, s", "with jitter")]
    return ["With a random factor between 0.5 and 1.5 for each block (100 iterations, mean of the "
            "seeds):", "", *markdown(("version", *heads), table),
            "Ranks that drift cost most where a core waits for the neighbours of its rank (`pure`, "
            "`nbuffer`, `forkjoin`), and least where it can take another task.", ""]


def small_table(rows):
    """Messages and notified puts with small blocks."""
    found = by(some(rows, rows=16384, columns=16384, block=None), "block", "version")
    table = []
    for block in sorted({block for block, _ in found}, reverse=True):
        if {(block, "interop"), (block, "notified")} <= set(found):
            by_messages, by_puts = (found[block, name][0] for name in ("interop", "notified"))
            change = by_puts["seconds"] / by_messages["seconds"] - 1
            table.append((block, f"{block * block * 4e-3:.0f}", f"{by_messages['seconds']:.3f}",
                          f"{by_puts['seconds']:.3f}", f"{100 * change:+.1f} %",
                          f"{100 * by_messages['busy']:.0f} %, {100 * by_puts['busy']:.0f} %"))
    if not table:
        return []
    return ["### Messages or notified puts", "",
            "With small blocks the calls weigh more (16 nodes, a matrix of 16,384 x 16,384, 1,000 "
            "iterations):", "",
            *markdown(("block", "update of a block, µs", "`interop`, s", "`notified`, s",
                       "`notified` takes", "cores that compute"), table),
            "In this model both cost the same, because a message is eager and short, and a call "
            "costs what a put costs. TAGASPI, which is ahead of TAMPI with small blocks, explains "
            "that by threads that contend for the lock inside the MPI library. Here one core at a "
            "time is in either library, and waits without a cost of its own.", ""]


def changed_table(rows):
    """Speedup on 16 nodes with changed parameters, each over `pure` with the same change."""
    table, names = [], [name for name in VERSIONS if name != "nbuffer"]
    for change, text in (({}, "as the protocol says"), ({"element_ns": 2.0}, "an element in 2 ns"),
                         ({"element_ns": 8.0}, "an element in 8 ns"),
                         ({"task_ns": 500.0}, "a task starts in 0.5 µs"),
                         ({"task_ns": 2000.0}, "a task starts in 2 µs")):
        found = times(some(rows, **change))
        if all((name, 16) in found for name in names) and ("pure", 1) in found:
            table.append((text, *(f"{found['pure', 1] / found[name, 16]:.2f}" for name in names)))
    if len(table) < 2:
        return []
    return ["With the assumed times halved and doubled, speedup on 16 nodes over `pure` on one:",
            "", *markdown(("change", *(f"`{name}`" for name in names)), table)]


def many_table(rows):
    """One rank per node, up to 4,096."""
    found = by([row for row in rows if row["set"] == ["ranks_per_node=16"]], "nodes", "version")
    names = [name for name in VERSIONS if any(version == name for _, version in found)]
    table = []
    for nodes in sorted({nodes for nodes, _ in found}):
        of = {name: found[nodes, name][0] for name in names if (nodes, name) in found}
        table.append((nodes, *(f"{of[name]['seconds']:.2f}" if name in of else ""
                               for name in names)))
    if not table:
        return []
    return ["### Up to 4,096 ranks with many cores", "",
            "A rank per node, 16 cores, one row of blocks, 25 iterations; seconds:", "",
            *markdown(("ranks", *(f"`{name}`" for name in names)), table),
            "The matrix grows with the ranks, and the first iteration passes through all of them "
            "before the last one starts. That takes one block per rank in `interop` and "
            "`notified`, and a whole row of 64 blocks per rank in the two others.", ""]


def missing(rows):
    """A sentence on the runs of the protocol that have not been made."""
    made = {row["command"] for row in rows}
    left = [command for command in (" ".join(["mpix-sim", *run]) for run in simulate.tasks(False))
            if command not in made]
    if not left:
        return []
    return [f"Runs of the protocol that have not been made yet: "
            f"{', '.join(f'`{command}`' for command in left)}.", ""]


def tasks(folder, rows):
    """The section of the page."""
    plain, paper = some(rows), some(rows, set=PAPER)
    if not plain or ("pure", 1) not in times(plain):
        return []
    draw(folder, plain)
    text = ["## Tasks: Gauss-Seidel", "",
            "The versions of the TAMPI paper (Sala et al. 2019, section 7.1) and one with notified "
            "puts, on nodes with 64 cores (profile `ndr-2024`): 65,536 x 65,536 elements, 1,000 "
            "iterations, blocks of 1,024. `pure` and `nbuffer` have a rank per core, 64 to 4,096; "
            "the others have a rank per node. Speedup over `pure` on one node, and efficiency over "
            "the same version on one node:", "", *speedup_table(plain),
            "![speedup and efficiency over nodes](figures/tasks-gauss-seidel.svg)", ""]
    table = claims(plain, paper)
    if table:
        text += ["### Beside the TAMPI paper", "",
                 "The paper's figure 9 has no numbers in its text, so this compares shapes. Nodes "
                 "have 48 cores here, as in the paper.", "", *table, *DIFFERENCES,
                 "Speedup and efficiency of all versions that were run with 48 cores:", "",
                 *speedup_table(paper)]
    text += ["### Other parameters", "", *blocks_table(rows), *jitter_table(rows),
             *changed_table(rows), *small_table(rows), *many_table(rows)]
    return [*text, *stale("tasks", rows), *missing(rows), made_by(rows), ""]
