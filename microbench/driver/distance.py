"""Comparing only runs with equal processor distance.

Virtual processors move, which changes all communication times between two processes. So each figure
comes with the time of a cache line, measured beside it.
"""


def classes(lines):
    """Bounds between distances, as times of a cache line."""
    found = []
    for line in sorted(set(lines)):
        if found and line < 1.5 * found[-1][0]:
            found[-1][1] = line
        else:
            found.append([line, line])
    return found


def equally_far(samples, bounds):
    """From (value, time of a cache line) by runner: values by runner at one distance, the one with
    most samples of the runner that has fewest. Leaves out runners without samples there."""
    best, most = {}, -1
    for low, high in bounds:
        values = {runner: [value for value, line in seen if low <= line <= high]
                  for runner, seen in samples.items()}
        fewest = min((len(mine) for mine in values.values()), default=0)
        if fewest > most:
            best, most = values, fewest
    return {runner: values for runner, values in best.items() if values}
