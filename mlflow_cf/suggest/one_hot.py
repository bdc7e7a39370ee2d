"""Sets of 0/1 columns that stand for one category: in every row exactly one of them is 1, or at most one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.suggest.chance import few, within_chance
from mlflow_cf.suggest.columns import Sample

FIRST_ROWS: Final = 10_000  # on which all pairs of columns are compared first
SEPARATORS: Final = "_=.:- "  # between the name of a category and that of a level

Bools = NDArray[np.bool_]


def one_hot_sets(sample: Sample) -> list[tuple[int, ...]]:
    """Return sets of columns as positions, ascending: first those that add up to 1, then those of one name beginning.

    A set that adds up to 1 is begun with a column, and takes in turn, for the first row without a 1, the column that
    has one there and none where the set has; among several the one whose name begins most alike.
    """
    places = [place for place, column in enumerate(sample.columns) if column.binary]
    if len(places) < 2:
        return []
    names = [sample.columns[place].name for place in places]
    bits = np.stack([sample.columns[place].values == 1 for place in places])
    first = bits[:, :: max(bits.shape[1] // FIRST_ROWS, 1)].astype(np.float32)
    apart = first @ first.T == 0
    taken: set[int] = set()
    found: list[list[int]] = []
    for start in range(len(places)):
        chosen = [] if start in taken else _cover(bits, start, apart[start] & _free(len(places), taken), names)
        if chosen and _beyond_chance(bits[chosen], len(chosen) * math.log(len(places)), len(places)):
            taken.update(chosen)
            found.append(chosen)
    found += [
        alike
        for alike in _named_alike(names, taken)
        if not _overlapping(bits[alike]) and _beyond_chance(bits[alike], 0.0, len(places), or_none=True)
    ]
    return [tuple(sorted(places[each] for each in chosen)) for chosen in found]


def _free(columns: int, taken: set[int]) -> Bools:
    free: Bools = np.ones(columns, dtype=np.bool_)
    free[list(taken)] = False
    return free


def _cover(bits: Bools, start: int, fits: Bools, names: Sequence[str]) -> list[int]:
    """Return columns (positions in `bits`) that share all rows among them; none where they cannot.

    Args:
        bits: (columns, rows) where they are 1.
        start: the first of them.
        fits: (columns,) those that may be taken.
        names: of the columns.
    """
    chosen, covered = [start], bits[start].copy()
    fits[fits] = ~(bits[fits] & covered).any(axis=1)
    while not covered.all():
        row = int(np.argmin(covered))
        those = np.flatnonzero(fits & bits[:, row])
        if not len(those):
            return []
        best = max(those.tolist(), key=lambda each: (_shared(names[start], names[each]), -each))
        chosen.append(best)
        covered |= bits[best]
        fits[fits] = ~(bits[fits] & bits[best]).any(axis=1)
    return chosen


def _shared(first: str, second: str) -> int:
    """Return how many characters two names begin with alike."""
    length = min(len(first), len(second))
    return next((at for at in range(length) if first[at] != second[at]), length)


def _named_alike(names: Sequence[str], taken: set[int]) -> Iterator[list[int]]:
    """Yield columns that are not taken and whose names are alike up to the last separator."""
    families: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        end = max(name.rfind(mark) for mark in SEPARATORS)
        if end > 0 and place not in taken:
            families.setdefault(name[: end + 1], []).append(place)
    yield from (places for places in families.values() if len(places) > 1)


def _overlapping(bits: Bools) -> bool:
    """Whether two of the columns are 1 in one row."""
    return bool((bits.sum(axis=0) > 1).any())


def _beyond_chance(bits: Bools, log_choices: float, considered: int, *, or_none: bool = False) -> bool:
    """Whether independent columns would, in some row, not have exactly one 1 (or none, where that is a choice).

    Args:
        bits: (k, rows) of the set.
        log_choices: log of the number of sets of its size that could have been found.
        considered: columns; half of the sets that are tested are named alike, at most.
        or_none: whether rows without a 1 belong to it.
    """
    shares, rows = bits.mean(axis=1), bits.shape[1]
    if shares.min() <= 0 or shares.max() >= 1:
        return False
    fitting = float(np.prod(1 - shares) * ((shares / (1 - shares)).sum() + or_none))
    log_probability = rows * math.log(min(fitting, 1.0)) + log_choices
    return few(0, rows, (1 - fitting) * rows) and not within_chance(log_probability, 2 * considered)
