"""Comparing only runs under equal conditions.

Virtual processors move, which changes all communication times between two processes. And they share
cores with other machines, which nobody here sees: while one of those works, a processor takes up to
twice as long for everything. So each figure comes with what was measured beside it, as
microbench/common/lines.h says.
"""

import math
from itertools import product
from typing import NamedTuple


class Conditions(NamedTuple):
    """Times in microseconds."""

    line: float  # of a cache line between the ranks
    copy: float  # of a copy within a cache, by the rank that measures
    peer_copy: float  # by the other rank


# Times closer than these factors are equal.
STEPS = Conditions(1.5, 1.25, 1.25)


def of(result):
    """Conditions of a figure, from its line of results. Equal for programs that measure none."""
    return Conditions(*(result.get(f"{name}_us", 1.0) for name in Conditions._fields))


def bounds(times, step):
    """Bounds between classes of times."""
    found = []
    for time in sorted(set(times)):
        if found and time < step * found[-1][0]:
            found[-1][1] = time
        else:
            found.append([time, time])
    return found


def classes(seen):
    """Classes of conditions, as bounds of each of their times: of all times, and of distances
    alone, for runs on a machine whose speed never stays the same."""
    each = [bounds(times, step) for times, step in zip(zip(*seen), STEPS)]
    anything = [(0, math.inf)]
    return [list(product(*each)), list(product(each[0], anything, anything))]


def steadiness(seen):
    """How much the speed of the processors has varied, as text, or an empty one.

    >>> steadiness([Conditions(0.1, 0.04, 0.04), Conditions(0.1, 0.04, 0.07)])
    'the processors were up to 1.8 times slower in some runs: others shared their cores'
    >>> steadiness([Conditions(0.1, 0.04, 0.04), Conditions(0.1, 0.04, 0.041)])
    ''
    """
    times = [time for found in seen for time in (found.copy, found.peer_copy)]
    varied = max(times, default=1) / min(times, default=1)
    if varied < STEPS.copy:
        return ""
    return (f"the processors were up to {varied:.1f} times slower in some runs: others shared "
            "their cores")


def within(found, limits):
    """Whether conditions are of a class."""
    return all(low <= time <= high for time, (low, high) in zip(found, limits))


def equal(samples, known):
    """From (value, conditions) by runner: values by runner under conditions of one class, the one
    with most samples of the runner that has fewest. Leaves out runners without samples there. Also
    whether the processors were equally fast, not only equally far apart.

    >>> fast, slow = Conditions(0.1, 0.04, 0.04), Conditions(0.1, 0.04, 0.08)
    >>> far = Conditions(0.5, 0.04, 0.04)
    >>> near_enough = Conditions(0.11, 0.042, 0.041)
    >>> known = classes([fast, slow, far, near_enough])
    >>> samples = {"a": [(1, fast), (2, slow), (3, near_enough)], "b": [(4, fast), (9, slow)]}
    >>> equal(samples, known)
    ({'a': [1, 3], 'b': [4]}, True)
    >>> equal({"a": [(1, fast)], "b": [(9, slow)]}, known)
    ({'a': [1], 'b': [9]}, False)
    >>> equal({"a": [(1, fast)], "b": [(9, far)]}, known)
    ({'a': [1]}, True)
    """
    best, most, equally_fast = {}, -1, True
    for number, level in enumerate(known):
        for limits in level:
            values = {runner: [value for value, found in seen if within(found, limits)]
                      for runner, seen in samples.items()}
            fewest = min((len(mine) for mine in values.values()), default=0)
            if fewest > most:
                best, most, equally_fast = values, fewest, number == 0
        if most > 0:
            break
    return {runner: values for runner, values in best.items() if values}, equally_fast
