"""Which processors the ranks run on: a pair that is near and a pair that is far, where the machine
has both."""

import os

from driver import hosts

# Processors compared with one another; more would take long, and show no other distances.
MOST = 16
# Times of a cache line closer than this are one distance.
APART = 1.5


def distances(host):
    """(time of a cache line, pair of processors) of all pairs, nearest first."""
    mine = sorted(os.sched_getaffinity(0))
    some = mine if len(mine) <= MOST else [mine[k * len(mine) // MOST] for k in range(MOST)]
    # Neighbours often share more than others do.
    some = sorted({*some, *mine[:2]})
    if len(some) < 2:
        return []
    command = host.command(2, "latency-plain", "--distances", ",".join(map(str, some)))
    return sorted((line["line_us"], tuple(line["cpus"])) for line in hosts.results_of(command))


def near_and_far(host):
    """Distances to measure at, as (name, pair of processors, time of a cache line). The name is
    empty if there is only one."""
    found = distances(host)
    if not found:
        return [("", None, None)]
    (near, first), (far, last) = found[0], found[-1]
    if far < APART * near:
        return [("", first, near)]
    return [("near", first, near), ("far", last, far)]
