"""Columns whose value another column determines: functional dependencies."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from mlflow_cf.suggest.chance import few, log_tail, within_chance
from mlflow_cf.suggest.columns import Codes, Column, Counts, Sample
from mlflow_cf.suggest.result import Suggestion, SuggestionKind

LEAST_REPEATED: Final = 5.0  # rows per value, on average, of a column that determines others: fewer are nearly keys
MOST_DETERMINED: Final = 200  # values of a column that is determined
COMPARED: Final = 1_000  # pairs of rows of equal value that all pairs of columns are compared on first
FIRST_LOOK: Final = 0.03  # share of these pairs that may differ
MOST_PAIRS: Final = 3_000  # that are counted on all rows: some 2 ms each at 100,000 rows
MOST_CELLS: Final = 5_000_000  # of a table of counts


@dataclass(frozen=True)
class Dependency:
    """How far one column determines another.

    Attributes:
        by, of: positions of the columns.
        support, exceptions: rows with the value that is most frequent beside theirs, and other rows.
    """

    by: int
    of: int
    support: int
    exceptions: int


def dependencies(sample: Sample, one_hot: Sequence[Sequence[int]], notes: list[str]) -> list[Dependency]:
    """Return which columns determine which, with few exceptions or none.

    Args:
        sample: the rows.
        one_hot: positions of columns that add up to 1: among themselves nothing is looked for.
        notes: gets a sentence where not all pairs could be counted.
    """
    columns = sample.columns
    kin = {place: number for number, places in enumerate(one_hot) for place in places}
    pairs = [pair for pair in _candidates(columns) if kin.get(pair[0], -1) != kin.get(pair[1], -2)]
    if len(pairs) > MOST_PAIRS:
        notes.append(f"{len(pairs) - MOST_PAIRS:,} pairs of columns that may determine each other were not counted")
    considered = max(len(columns) * (len(columns) - 1), 1)
    found = (measured(columns[by], columns[of], by, of) for by, of in pairs[:MOST_PAIRS])
    return [each for each in found if _holds(each, columns, considered)]


def _candidates(columns: Sequence[Column]) -> list[tuple[int, int]]:
    """Return pairs (by, of) that seldom differ among pairs of rows, those that would differ most by chance first."""
    targets = [place for place, column in enumerate(columns) if column.distinct <= MOST_DETERMINED]
    if not targets:
        return []
    codes = np.stack([columns[place].codes for place in targets]).astype(np.int16)
    counts = np.array([columns[place].distinct for place in targets])
    differ = np.array([1 - float(((columns[p].counts / columns[p].counts.sum()) ** 2).sum()) for p in targets])
    ranked: list[tuple[float, int, int]] = []
    for by, column in enumerate(columns):
        if len(column.codes) < LEAST_REPEATED * column.distinct:
            continue
        first, second = _equal_rows(column.codes)
        seen = (codes[:, first] != codes[:, second]).mean(axis=1)
        fit = (seen <= FIRST_LOOK) & (seen <= 0.5 * differ) & (counts <= column.distinct)
        ranked += [(-differ[at], by, targets[at]) for at in np.flatnonzero(fit) if targets[at] != by]
    return [(by, of) for _, by, of in sorted(ranked)]


def _equal_rows(codes: Codes) -> tuple[Counts, Counts]:
    """Return pairs of rows (m,), (m,) with the same code, spread over all codes."""
    order = np.argsort(codes, kind="stable")
    same = np.flatnonzero(codes[order[:-1]] == codes[order[1:]])
    same = same[:: max(len(same) // COMPARED, 1)]
    return order[same], order[same + 1]


def measured(by: Column, of: Column, place: int, other: int) -> Dependency:
    """Return how far a column determines another; each value of the one stands for the most frequent of the other."""
    width = of.distinct
    joint = by.codes.astype(np.int64) * width + of.codes
    if by.distinct * width <= MOST_CELLS:
        most = np.bincount(joint, minlength=by.distinct * width).reshape(-1, width).max(axis=1)
    else:
        cells, counts = np.unique(joint, return_counts=True)
        most = np.zeros(by.distinct, dtype=np.int64)
        np.maximum.at(most, cells // width, counts)
    support = int(most.sum())
    return Dependency(place, other, support, len(joint) - support)


def _holds(each: Dependency, columns: Sequence[Column], considered: int) -> bool:
    """Whether chance does not explain a dependency.

    Independent rows of one value agree with any fixed value of the other column with at most the share of its most
    frequent one. Without exceptions each row must agree with the first of its value; with exceptions, the bound holds
    for each choice of values, and all choices are counted.
    """
    by, of = columns[each.by], columns[each.of]
    rows = each.support + each.exceptions
    if not few(each.exceptions, rows, (1 - of.top) * rows):
        return False
    if not each.exceptions:
        log_probability = log_tail(0, rows - by.distinct, 1 - of.top)
    else:
        log_probability = by.distinct * math.log(of.distinct) + log_tail(each.exceptions, rows, 1 - of.top)
    return not within_chance(log_probability, considered)


def grouped(sample: Sample, found: Sequence[Dependency], one_hot: Sequence[Sequence[int]]) -> Iterator[Suggestion]:
    """Yield groups: one-hot sets and trees of dependencies, joined where they share columns; then what has exceptions.

    A column has one group. It belongs to the column with the fewest values that determines it.
    """
    columns = sample.columns
    strict = {(each.by, each.of) for each in found if not each.exceptions}
    parent = _parents(columns, strict)
    sets = {place: frozenset(places) for places in one_hot for place in places}
    groups: dict[int, set[int]] = {}
    for place in range(len(columns)):
        if place in parent or place in sets:
            root = _root(parent, sets, place)
            groups.setdefault(root, {root}).update({place}, sets.get(place, ()))
    for root, places in sorted(groups.items()):
        yield _group(sample, root, sorted(places), sets)
    for each in found:
        if each.exceptions and not _mirrored(each, found) and not _same(groups, each):
            yield _loose(sample, each)


def _parents(columns: Sequence[Column], strict: set[tuple[int, int]]) -> dict[int, int]:
    """Return column -> the column with the fewest values that determines it; of equals, the first is the parent."""
    parent: dict[int, int] = {}
    for by, of in sorted(strict):
        mutual = (of, by) in strict
        if mutual and by > of:
            continue
        if of not in parent or columns[by].distinct < columns[parent[of]].distinct:
            parent[of] = by
    return parent


def _root(parent: dict[int, int], sets: dict[int, frozenset[int]], place: int) -> int:
    """Return the column that a group is begun by: of a one-hot set its first, unless one column determines the set."""
    seen: set[int] = set()
    while place not in seen:
        seen.add(place)
        members = sets.get(place, frozenset([place]))
        above = {parent.get(member) for member in members}
        up = above.pop()
        if up is None or above or up in members:
            return min(members)
        place = up
    return min(seen)


def _mirrored(each: Dependency, found: Sequence[Dependency]) -> bool:
    """Whether the same pair is found the other way round with fewer exceptions, or as many and first."""
    return any(
        (other.by, other.of) == (each.of, each.by) and (other.exceptions, other.by) < (each.exceptions, each.by)
        for other in found
    )


def _same(groups: dict[int, set[int]], each: Dependency) -> bool:
    return any({each.by, each.of} <= places for places in groups.values())


def _group(sample: Sample, root: int, places: list[int], sets: dict[int, frozenset[int]]) -> Suggestion:
    names = tuple(sample.columns[place].name for place in places)
    only_hot = sets.get(root) == frozenset(places)
    told = ", ".join(name for name in names if name != sample.columns[root].name)
    if only_hot:
        sums = sum(sample.columns[place].values for place in places)
        often = "exactly" if np.min(sums) == 1 else "at most"
        reason = f"{often} one of these 0/1 columns is 1 in every row"
    elif root in sets:
        reason = "some of these are the 0/1 columns of one category, and determine the others"
    else:
        reason = f"each value of {sample.columns[root].name} has one value of {told}"
    kind: SuggestionKind = "one_hot" if only_hot else "dependency"
    return Suggestion(kind, names, {"groups": [list(names)]}, sample.rows, 0, reason, active=True)


def _loose(sample: Sample, each: Dependency) -> Suggestion:
    names = tuple(sample.columns[place].name for place in (each.by, each.of))
    reason = f"nearly each value of {names[0]} has one value of {names[1]}"
    constraint = {"groups": [list(names)]}
    return Suggestion("dependency", names, constraint, each.support, each.exceptions, reason, active=False)
