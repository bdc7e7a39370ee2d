"""Domains: the values that each feature group may be proposed, built once from the background."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.compile import Pause, group_columns, no_pause
from mlflow_cf.constraints.model import Constraints
from mlflow_cf.errors import InputError
from mlflow_cf.features import Feature, FeatureSpace, Floats, JointCounts

Values = Literal["observed", "grid", "continuous"]
MAX_GRID = 100_000


@dataclass(frozen=True, eq=False)
class Domain:
    """The admissible actions of one group.

    Attributes:
        columns: the group's columns, ascending.
        actions: (t, len(columns)) distinct combinations in ascending order; none of them all missing. A constant has
            none.
        weights: (t,) how often each occurs in the background; 1 for grid values that never do.
        interval: (low, high) of a single continuous feature, where any number in between is admissible too.
        withheld: whether combinations that the background has are left out, because too few rows share them.
    """

    columns: tuple[int, ...]
    actions: Floats
    weights: Floats
    interval: tuple[float, float] | None = None
    withheld: bool = False

    def contains(self, values: Floats) -> NDArray[np.bool_]:
        """Return (m,) whether actions (m, len(columns)) may be proposed."""
        found, _ = self.keys(values)
        if self.interval is not None:
            found |= (values[:, 0] >= self.interval[0]) & (values[:, 0] <= self.interval[1])
        return found

    def shared(self, k: int) -> Domain:
        """Return the domain of a group without the actions that `k` or fewer background rows share."""
        kept = self.weights > k
        if len(self.columns) == 1 or kept.all():
            return self
        return replace(self, actions=self.actions[kept], weights=self.weights[kept], withheld=True)

    def keys(self, values: Floats) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
        """Return (m,) whether each action is in the domain, and (m,) its key: a number that no other action has."""
        if not len(self.actions):
            return np.zeros(len(values), dtype=np.bool_), np.zeros(len(values), dtype=np.intp)
        if len(self.columns) == 1:
            (distinct, _), sought = self._parts[0], _sortable(values[:, 0])
            position = np.minimum(np.searchsorted(distinct, sought), len(distinct) - 1)
            return distinct[position] == sought, position
        known = np.ones(len(values), dtype=np.bool_)
        keys = np.zeros(len(values), dtype=np.intp)
        for part, (distinct, prefixes) in enumerate(self._parts):
            sought = _sortable(values[:, part])
            position = np.minimum(np.searchsorted(distinct, sought), len(distinct) - 1)
            numbers = keys * len(distinct) + position
            keys = np.minimum(np.searchsorted(prefixes, numbers), len(prefixes) - 1)
            known &= (distinct[position] == sought) & (prefixes[keys] == numbers)
        return known, keys

    @cached_property
    def _parts(self) -> list[tuple[Floats, NDArray[np.intp]]]:
        """Return for every column its distinct values, and the keys of the prefixes up to it that occur.

        Prefixes are numbered anew after each column, so that keys of many columns do not overflow.
        """
        parts = []
        keys = np.zeros(len(self.actions), dtype=np.intp)
        for part in range(len(self.columns)):
            values = _sortable(self.actions[:, part])
            distinct = np.unique(values)
            prefixes, keys = np.unique(keys * len(distinct) + np.searchsorted(distinct, values), return_inverse=True)
            parts.append((distinct, prefixes))
        return parts


def build_domains(
    space: FeatureSpace,
    combinations: Combinations,
    constraints: Constraints,
    values: Values,
    known: Collection[Domain] = (),
    pause: Pause = no_pause,
) -> tuple[Domain, ...]:
    """Return one domain per group of columns: that of `known` where it has one, else a new one.

    Args:
        space: the features; a single feature's domain comes from its active domain.
        combinations: of the background; those of larger groups come from here.
        constraints: whose groups count, and whose ranges replace the background's for continuous numbers.
        values: which values a single number may take: observed ones, its grid, or any in its range.
        known: domains that there are.
        pause: called before each part of the work on a larger group; whatever it raises ends it.
    """
    domains = {domain.columns: domain for domain in known}
    groups = group_columns(constraints, space)
    for columns in groups:
        if columns not in domains and len(columns) > 1:
            domains[columns] = combinations.domain(columns, pause)
        elif columns not in domains:
            domains[columns] = _single(space, columns[0], constraints, values)
    return tuple(domains[columns] for columns in groups)


def parted(
    domains: tuple[Domain, ...],
    parts: Collection[int],
    space: FeatureSpace,
    constraints: Constraints,
    values: Values,
) -> tuple[Domain, ...]:
    """Return the domains with the groups of the columns `parts` dissolved into single features.

    Their domains are those of `build_domains`; on a grid, a number without a step is proposed observed values.
    """
    found = []
    for domain in domains:
        if len(domain.columns) == 1 or not set(domain.columns) & set(parts):
            found.append(domain)
            continue
        for column in domain.columns:
            stepless = values == "grid" and space.features[column].step is None
            found.append(_single(space, column, constraints, "observed" if stepless else values))
    return tuple(sorted(found, key=lambda domain: domain.columns))


def _single(space: FeatureSpace, column: int, constraints: Constraints, values: Values) -> Domain:
    """Return the domain of a single feature; a range of its own may lie beyond the background."""
    feature = space.features[column]
    steps = (feature.high - feature.low) / feature.step if feature.numeric and feature.step else 0.0
    if feature.name in constraints.immutable and steps > MAX_GRID:
        values = "observed"  # none of them is ever proposed
    domain = Domain((column,), feature.values[:, None], feature.counts)
    if values == "observed" or not feature.has_order or feature.constant:
        return domain
    if feature.step is None and values == "continuous":
        interval = (feature.low, feature.high)
        ends = zip(constraints.ranges.get(feature.name, (None, None)), interval, strict=True)
        low, high = (known if named is None else feature.code(named) for named, known in ends)
        if low is not None and high is not None and low <= high:
            interval = (low, high)
        return replace(domain, interval=interval)
    grid = _grid(feature)
    seen = np.searchsorted(feature.values, grid).clip(max=len(feature.values) - 1)
    weights = np.where(feature.values[seen] == grid, feature.counts[seen], 1.0)
    return Domain((column,), grid[:, None], weights)


@dataclass(eq=False)
class Combinations:
    """The combinations of values that background rows (n, d) have in several columns.

    The ranks of each column are computed once. They take half of the memory of the background at most, and leave one
    sort of n numbers per group.

    Attributes:
        background: the coded rows.
        known: combinations that were counted in more rows than these.
    """

    background: Floats
    known: tuple[JointCounts, ...] = ()
    _columns: dict[int, tuple[int, NDArray[np.int32]]] = field(default_factory=dict)

    def domain(self, columns: tuple[int, ...], pause: Pause = no_pause) -> Domain:
        """Return the domain of a group of ascending `columns`; `pause` is called between steps of the work."""
        for counted in self.known:
            if counted.columns == columns:
                return Domain(columns, counted.values, counted.counts)
        keys, size = np.zeros(len(self.background), dtype=np.int64), 1  # keys of rows ascend as their combinations do
        for column in columns:
            pause()
            if column not in self._columns:
                self._columns[column] = _ranked(self.background[:, column])
            distinct, ranks = self._columns[column]
            if size > np.iinfo(np.int64).max // (distinct + 1):
                size, ranked = _ranked(keys)
                keys = ranked.astype(np.int64)
            keys, size = keys * distinct + ranks, size * distinct
        pause()
        _, first, counts = np.unique(keys, return_index=True, return_counts=True)
        return Domain(columns, self.background[first][:, columns], counts.astype(np.float64))

    def __reduce__(self) -> tuple[type[Combinations], tuple[Floats, tuple[JointCounts, ...]]]:
        """Pickle the rows, and what was counted: ranks are computed from them."""
        return Combinations, (self.background, self.known)


def _ranked(values: NDArray[Any]) -> tuple[int, NDArray[np.int32]]:
    """Return the number of distinct values, and the rank (n,) of each among them; missing ones come last."""
    distinct, ranks = np.unique(_sortable(values), return_inverse=True)
    return len(distinct), ranks.astype(np.int32)


def _grid(feature: Feature) -> Floats:
    path = f"features.{feature.name}.step"
    if feature.step is None:
        raise InputError(path, "values='grid' needs a step", f"declare features={{{feature.name!r}: {{'step': ...}}}}")
    fine = float(np.finfo(feature.stored).eps) if feature.stored.kind == "f" else 0.0
    # how far a value may be off its place for rounding, in steps
    slack = min(1e-6 + fine * max(abs(feature.low), abs(feature.high)) / feature.step, 0.25)
    count = int((feature.high - feature.low) / feature.step + slack) + 1
    if count > MAX_GRID:
        fact = f"its grid has {count:,} values, more than {MAX_GRID:,}, all of which are kept and looked at"
        raise InputError(path, fact, "use a larger step, make it immutable, or use none and values='continuous'")
    grid = feature.low + np.arange(count, dtype=np.float64) * feature.step
    above = np.searchsorted(feature.values, grid).clip(max=len(feature.values) - 1)
    lower, upper = feature.values[(above - 1).clip(min=0)], feature.values[above]
    nearest = np.where(grid - lower < upper - grid, lower, upper)
    # 0.1 * 3 shall be the 0.3 of the background, and a float32 column shall hold it
    plain = grid if feature.step < 1e-9 else grid.round(12)
    grid = np.where(np.abs(nearest - grid) <= slack * feature.step, nearest, plain)
    return np.unique(grid.astype(feature.stored).astype(np.float64) if feature.stored.kind == "f" else grid)


def _sortable(values: NDArray[Any]) -> NDArray[Any]:
    """Replace NaN, which never equals itself, by +inf, which no feature can hold."""
    return np.where(np.isnan(values), np.inf, values)
