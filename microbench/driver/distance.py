"""Comparing only runs with processors equally far.

A virtual machine's processors may be near each other at one time and far at another, which changes everything between two
processes. So each figure comes with the time of a cache line between them, measured beside it."""


def classes(lines):
    """Bounds of the times of a cache line that are one distance: the next begins where there is a gap."""
    found = []
    for line in sorted(set(lines)):
        if found and line < 1.5 * found[-1][0]:
            found[-1][1] = line
        else:
            found.append([line, line])
    return found


def equally_far(samples, bounds):
    """Of (value, time of a cache line) by runner: values by runner at one distance, that of which the rarest runner has
    most. Runners without any at that distance are left out."""
    best, most = {}, -1
    for low, high in bounds:
        values = {runner: [value for value, line in seen if low <= line <= high] for runner, seen in samples.items()}
        fewest = min((len(mine) for mine in values.values()), default=0)
        if fewest > most:
            best, most = values, fewest
    return {runner: values for runner, values in best.items() if values}
