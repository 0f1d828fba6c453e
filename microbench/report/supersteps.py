"""Bulk-synchronous programs in virtual time: the five kinds of synchronization."""

from applications import by, made_by
from page import markdown, save_svg, stale
from results import plt

SERIES = {"barrier": ("barrier fences", "#9a9a9a", "o-"),
          "pattern": ("pattern fences", "#2b6cb0", "o-"),
          "pscw": ("post, start, complete, wait", "#6b4c9a", "s--"),
          "notified": ("counted notifications", "#2f855a", "o-"),
          "two-sided": ("messages", "#d9822b", "o-")}
FENCES = ("barrier", "pattern", "pscw")
PLAIN = {"profile": "ndr-2024", "set": [], "jitter": 0.1, "seed": 1}
# Microseconds of a superstep.
COMPUTE = {"jacobi": 16.4, "gauss-seidel": 65.5, "n-body": 20.5, "matmul": 32.8}


def some(rows, **values):
    """The rows with the parameters of the protocol, except these; None: any value."""
    wanted = {**PLAIN, **values}
    return [row for row in rows
            if all(value is None or row[name] == value for name, value in wanted.items())
            and ("compute_us" in values or row["compute_us"] == COMPUTE[row["program"]])]


def grouped(rows, *fields):
    """Rows by series, by the values of some fields."""
    return {key: {row["series"]: row for row in of} for key, of in by(rows, *fields).items()}


def number(count):
    """1,024"""
    return f"{count:,}"


def main_table(rows):
    """Time and synchronization of each program."""
    table = []
    for program in COMPUTE:
        mine = [row for row in rows if row["program"] == program]
        for (ranks,), of in grouped(mine, "ranks").items():
            table.append((f"`{program}`", number(ranks),
                          *(f"{of[name]['iteration_us']:.1f} ({of[name]['sync_us']:.1f})"
                            if name in of else "" for name in SERIES)))
    return markdown(("program", "ranks", *(f"`{name}`" for name in SERIES)), table)


def draw(folder, rows):
    """Synchronization over ranks, a panel for each program."""
    figure, axes = plt.subplots(1, len(COMPUTE), figsize=(13, 3.8))
    for ax, program in zip(axes, COMPUTE):
        mine = [row for row in rows if row["program"] == program]
        for name, (label, colour, style) in SERIES.items():
            points = sorted((row["ranks"], row["sync_us"]) for row in mine
                            if row["series"] == name)
            ax.plot(*zip(*points), style, color=colour, label=label, markersize=4)
        ranks = sorted({row["ranks"] for row in mine})
        ax.set_xscale("log", base=2)
        ax.set_xticks(ranks)
        ax.set_xticklabels([number(count) for count in ranks], fontsize=8)
        ax.minorticks_off()
        ax.set_ylim(bottom=0)
        ax.set_xlabel("ranks")
        ax.set_title(f"{program}, {COMPUTE[program]:g} µs per superstep", fontsize=9)
    axes[0].set_ylabel("µs of synchronization in an iteration")
    axes[0].legend(frameon=False, fontsize=8)
    save_svg(figure, folder, "bsp")


def fence_cells(of):
    """Cells that compare the fences with one another."""
    barrier, pattern, by_hand = (of[name] for name in FENCES)
    change = 100 * (pattern["iteration_us"] / by_hand["iteration_us"] - 1)
    return (*(f"{row['sync_us']:.2f}" for row in (barrier, pattern, by_hand)),
            f"{pattern['sync_us'] / barrier['sync_us']:.2f}", f"{change:+.1f} %")


FENCE_HEAD = (*(f"`{name}`, µs" for name in FENCES), "`pattern` over `barrier`",
              "iteration, `pattern` over `pscw`")


def fence_table(groups, head, cells):
    """Rows of fences, with cells in front that say which ones."""
    table = [(*cells(key), *fence_cells(of)) for key, of in groups.items()
             if set(FENCES) <= set(of)]
    return markdown((*head, *FENCE_HEAD), table)


def claims(rows):
    """Whether pattern fences are as fast as epochs by hand, and far below the barrier."""
    groups = grouped(some(rows, program="jacobi", seed=None), "ranks", "seed")
    groups = {key: of for key, of in groups.items() if key[0] in (1024, 16384)}
    text = ["Synchronization of `jacobi` with each seed of the noise:", "",
            *fence_table(groups, ("ranks", "seed"), lambda key: (number(key[0]), key[1]))]
    if not all(set(FENCES) <= set(of) for of in groups.values()):
        return text
    slower = [key for key, of in groups.items()
              if of["pattern"]["iteration_us"] > of["pscw"]["iteration_us"]]
    most = max(of["pattern"]["sync_us"] / of["barrier"]["sync_us"]
               for (ranks, _), of in groups.items() if ranks == 16384)
    verdict = ("In none of these runs an iteration with pattern fences takes longer than one with "
               "epochs by hand." if not slower else
               f"**In {len(slower)} of these {len(groups)} runs an iteration with pattern fences "
               "takes longer than one with epochs by hand.**")
    return [*text, f"{verdict} On 16,384 ranks synchronization by pattern fences takes at most "
            f"{most:.2f} times that of barriers; the aim is a third.", ""]


def block_tables(rows):
    """Other blocks, no noise, other machines."""
    blocks = grouped([row for row in some(rows, program="jacobi", compute_us=None)
                      if row["ranks"] in (1024, 16384)], "ranks", "compute_us")
    still = grouped(some(rows, jitter=0.0), "program", "ranks")
    machines = grouped([row for row in some(rows, program="jacobi", set=None, profile=None)
                        if row["set"] or row["profile"] != PLAIN["profile"]],
                       "profile", "set", "ranks")
    return [
        "The block is the programmer's choice:", "",
        *fence_table(blocks, ("ranks", "µs of a superstep"),
                     lambda key: (number(key[0]), f"{key[1]:g}")),
        "With large blocks most of synchronization is noise: a rank waits for the slowest of its "
        "neighbours, who wait for theirs, and no fence can avoid that. A barrier waits for the "
        "slowest of all. So the ratio of the two rises with the block, and on 16,384 ranks it "
        "passes a third at about 65 µs. Without noise:", "",
        *fence_table(still, ("program", "ranks"), lambda key: (f"`{key[0]}`", number(key[1]))),
        "`jacobi` on other machines:", "",
        *fence_table(machines, ("machine", "ranks"),
                     lambda key: (f"`{key[1][0] if key[1] else key[0]}`", number(key[2])))]


def notified_table(rows):
    """What counted notifications and messages take when parameters vary."""
    groups = grouped([row for row in some(rows, program="jacobi", set=None, ranks=1024)],
                     "set")
    wide = [(f"`{key[0][0]}`" if key[0] else "the profile",
             *(f"{of[name]['sync_us']:.2f}" for name in ("pattern", "notified", "two-sided")))
            for key, of in groups.items() if "notified" in of]
    large = grouped([row for row in some(rows, compute_us=None, ranks=1024)
                     if abs(row["compute_us"] - 4 * COMPUTE[row["program"]]) < 1], "program")
    coarse = [(f"`{key[0]}`", f"{of['barrier']['compute_us']:g}",
               *(f"{of[name]['sync_us']:.1f}" for name in SERIES))
              for key, of in large.items() if set(SERIES) <= set(of)]
    return ["**Notifications and messages.** Notified puts raise their counters by atomics of the "
            "adapter, 50 ns each. In `jacobi` a node with 64 ranks raises some 250 in an iteration "
            "of 16 µs, so its atomic unit is busy most of the time, and ranks of its own node "
            "notify one another through it too. Eager messages need no permission of the receiver, "
            "which has room for all of them in this model; in the rings a rank does not wait for "
            "the next one at all. Synchronization of `jacobi` on 1,024 ranks, µs:", "",
            *markdown(("machine", "`pattern`", "`notified`", "`two-sided`"), wide),
            "Four times the computation, 1,024 ranks; synchronization in µs:", "",
            *markdown(("program", "µs of a superstep", *(f"`{name}`" for name in SERIES)), coarse)]


def supersteps(folder, rows):
    """The section of the page."""
    plain = some(rows)
    if not plain:
        return []
    draw(folder, plain)
    return ["## Bulk-synchronous programs", "",
            "The programs of TALPF (2023), chapter 7, each with five kinds of synchronization, on "
            "nodes with 64 ranks (profile `ndr-2024`). Computations vary by 10 %. Time of an "
            "iteration, and in parentheses what synchronization and transfers add to the mean "
            "computation, in µs:", "", *main_table(plain),
            "![synchronization over ranks](figures/bsp.svg)", "",
            "A barrier takes more rounds the more ranks there are, and waits for the slowest of "
            "all. All other series wait for neighbours, and take nearly as long on 16,384 ranks as "
            "on 1,024. TALPF measured the same shape on up to 32 ranks: its default mode, with a "
            "barrier, scales less far than its cached mode. Pattern fences send about as many "
            "signals as epochs by hand, in one call instead of four. In the rings they need no "
            "code for the race that TALPF closes by acknowledgements.", "",
            *claims(rows), *block_tables(rows), *notified_table(rows),
            *stale("bsp", rows), made_by(rows), ""]
