"""Flow control in virtual time: LU decomposition with a bulk window, transactions that run out of
credits, memory by peers, and locks that are served by CPUs."""

from applications import (IMPLIED, best_lu, best_table, best_transactions, by, choice_text,
                          made_by, range_table)
from page import NAMES, markdown, stale


def bulk_table(rows, plain):
    """Each series at its best, without and with a bulk window, for one matrix; by how many percent
    the nonblocking series is slower with a window and a progress thread; and the numbers of ranks
    for which both series are slower with these than without a window."""
    choices = {"none": [row for row in plain if not row["set"]],
               "64 KiB": [row for row in rows if not row["progress_thread"]],
               "64 KiB, progress thread": [row for row in rows if row["progress_thread"]]}
    best = {name: best_lu(some) for name, some in choices.items()}
    table = []
    for (ranks,) in by(rows, "ranks"):
        for name, of in best.items():
            if len(of.get(ranks, {})) == 2:
                blocking, nonblocking = of[ranks]["blocking"], of[ranks]["nonblocking"]
                table.append((ranks, name,
                              f"{blocking['seconds']:.2f} ({choice_text(blocking)})",
                              f"{nonblocking['seconds']:.2f} ({choice_text(nonblocking)})",
                              f"{blocking['seconds'] / nonblocking['seconds']:.2f}"))
    windowed = best["64 KiB, progress thread"]
    longer = [100 * (of["nonblocking"]["seconds"] / of["blocking"]["seconds"] - 1)
              for of in windowed.values()]
    worse = [ranks for ranks, of in windowed.items() if ranks in best["none"]
             and all(of[series]["seconds"] > row["seconds"]
                     for series, row in best["none"][ranks].items())]
    return markdown(("ranks", "bulk window", "blocking, s (depth)", "nonblocking, s (depth)",
                     "ratio"), table), longer, worse


def bulk(rows, plain):
    """LU with a bulk window, beside the rows without one."""
    (window,) = rows[0]["set"]
    text = ["### With a bulk window", "",
            f"With `{window}`, each rank leaves at most 64 KiB of bulk operations at its adapter "
            "until they are acknowledged, and posts the others later: those of the oldest epoch "
            "first, and in it those to the next ranks. So an operation waits behind at most one "
            "window of each other rank of its node, and the rank that owns the next row gets its "
            "copy soon. (In the order in which the targets grant access, it got it late where "
            "computing is short: the last to grant one row is the last to get it, so the last to "
            "grant the row after the next. With 8192 x 8192 and 1024 ranks, both series took 47 s, "
            "since the nodes took turns.) Posting later needs a CPU: a rank that waits in a call, "
            "or a progress thread. Without either, "
            "operations stop while the rank computes, and the nonblocking series, which computes "
            "more while its rows are on their way, loses more by that.", ""]
    longer = []
    for (size,), some in by(rows, "size").items():
        table, more, worse = bulk_table(some, [row for row in plain if row["size"] == size])
        text += [f"{size} x {size}:", "", *table]
        if worse:
            text += [f"With {' and '.join(map(str, sorted(worse)))} ranks, the window makes both "
                     "series slower. Why has not been found out.", ""]
        longer += more
    return [*text, "With a window and a progress thread, the time of the nonblocking series "
            f"differs from that of the blocking series by {min(longer):+.1f} to "
            f"{max(longer):+.1f} %.", "", *stale("bulk", rows), made_by(rows), ""]


def credits_of(row):
    """Credits of an adapter, as text; the profile has more than these runs need."""
    return row["set"][0].split("=")[1] if row["set"] else "profile"


def pressure(rows, credits):
    """Transactions without credits, and memory by peers. `credits` are those of the profile."""
    hot = [row for row in rows if row.get("hot")]
    table = [(row["ranks"], NAMES[row["series"]], credits_of(row),
              f"{row['per_second'] / 1e6:.2f}", f"{row['refusals'] / row['messages']:.2f}",
              row["in_flight_max"], f"{row['engine_bytes_peak_mean'] / 1024:.0f}",
              f"{row['engine_bytes_peak_max'] / 1024:.0f}")
             for (_, series), some in by(hot, "ranks", "series").items() if series == "reorder"
             for row in sorted(some, key=lambda row: (not row["set"], len(credits_of(row)),
                                                      row["set"]))]
    text = ["## Flow control and memory under pressure", "",
            f"Half of all transactions go to {hot[0]['hot']} hot ranks, up to "
            f"{hot[0]['window']} epochs of a rank are pending, and an adapter, shared by eight "
            f"ranks, has few credits (the profile: {credits:.0f}). A refused operation stays with "
            "the engine, which posts it again when a credit returns. Refusals cost neither rate "
            "nor memory here. The hot targets probably limit the rate, and a record of an "
            "operation exists whether it was refused or is in flight.", "",
            *markdown(("ranks", "series", "credits", "million transactions/s",
                       "refusals per message", "most in flight", "engine KB per rank: mean",
                       "most"), table)]
    table = [(row["ranks"], row["count"], f"{row['peers_mean']:.0f}",
              f"{row['engine_bytes_peak_mean'] / 1024:.1f}",
              f"{row['engine_bytes_end_mean'] / 1024:.1f}",
              f"{row['engine_bytes_end_mean'] / row['peers_mean']:.0f}")
             for row in sorted((row for row in rows if not row.get("hot")),
                               key=lambda row: (row["ranks"], row["count"]))]
    return [*text, "Longer and longer runs, 64 pending epochs. The engine's memory at the end "
            "grows with the number of peers that a rank has touched, which the number of ranks "
            "bounds, and levels off there. The rest of the peak belongs to pending epochs.", "",
            *markdown(("ranks", "transactions per rank", "peers touched, mean",
                       "engine KB per rank: peak", "at the end", "bytes per peer at the end"),
                      table),
            *stale("pressure", rows), made_by(rows), ""]


def served(rows):
    """Transactions with locks served by CPUs, beside the paper's rates."""
    best = best_transactions(rows)
    rates = {ranks: of["blocking"][0]["per_second"] / 1e6 for ranks, of in best.items()}
    off = [f"{100 * (rates[ranks] / IMPLIED[ranks] - 1):+.0f} % at {ranks}" for ranks in IMPLIED
           if ranks in rates]
    return ["### Locks served by the CPUs of the targets", "",
            f"The same machine with `{','.join(rows[0]['set'])}`: a model of the paper's "
            "prototype, in which the progress engine of each target serves lock requests and "
            "accumulates. Its service time is calibrated on one number, the blocking rate at 64 "
            "ranks; the others follow.", "", *best_table(best),
            f"Blocking rates differ from the paper's by {', '.join(off)} ranks. So locks "
            "that CPUs serve can explain the paper's rates up to 256 ranks, though with any fixed "
            "time per transaction the rates would grow with the number of ranks. At 512 ranks "
            "the paper names a flow-control problem of its prototype, which this model does not "
            "have. The model does not explain why the paper's gain falls with the number of ranks.",
            "",
            *range_table(rows)[1], *stale("served", rows), made_by(rows), ""]
