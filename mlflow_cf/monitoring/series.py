"""What is followed over time: ratios of sums over answers, such as the share that changes a feature, in sparse columns.

Every figure is a sum over answers by another one: a share, or a mean. Both sums are kept by unit, which is a request,
or a stretch of time: answers of one unit depend on each other, and intervals and tests take units as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.evaluation.measure.aggregates import NOT_COUNTED
from mlflow_cf.evaluation.measure.lines import members_of
from mlflow_cf.features import Floats
from mlflow_cf.monitoring.lines import PROOFS, STATUSES, Ints, Lines, Named

MOST_FEATURES: Final = 300  # that are followed; the most advised ones
CELLS: Final = 10  # of the distribution of a number
Kind = Literal["share", "mean", "logarithm"]
Part = Literal["answers", "features", "outcomes", "adoption", "cells"]


@dataclass(frozen=True)
class Series:
    """One figure that is followed.

    Attributes:
        measure: what it is: ``coverage``, ``distance``, ``status.busy``, ``advised``, ...
        feature, group: of which; "" for all.
        kind: a share, a mean, or the mean of logarithms, which is told as a geometric mean.
        part: what it is told with.
        below: the number of the column that it is divided by.
    """

    measure: str
    feature: str
    group: str
    kind: Kind
    part: Part
    below: int


@dataclass(frozen=True, eq=False)
class Followed:
    """All series, and what they are made of.

    Attributes:
        series: (k,) of them.
        above: (u, k) by unit, the sums that are divided.
        below: (u, b) by unit, the sums that they are divided by.
        window: (u,) the number of each unit's window.
        left_out: how many features are not followed, because so many others are advised more often.
    """

    series: tuple[Series, ...]
    above: sparse.csr_matrix
    below: sparse.csr_matrix
    window: Ints
    left_out: int


@dataclass
class _Columns:
    """Columns while they are made: each by the lines that have a value other than 0."""

    lines: int
    series: list[Series]
    above: list[tuple[Ints, Floats]]
    below: list[tuple[Ints, Floats]]

    def divide_by(self, values: Floats) -> int:
        self.below.append(_sparse(values))
        return len(self.below) - 1

    def add(self, series: Series, values: tuple[Ints, Floats]) -> None:
        self.series.append(series)
        self.above.append(values)


def followed(lines: Lines, unit: Ints, place: Ints) -> Followed:
    """Return what is followed of some lines (m,), by their units (m,) and windows (m,)."""
    columns = _Columns(len(lines), [], [], [])
    members = members_of(lines.groups, len(lines))
    for group, member in members.items():
        _answers(columns, lines, group, member)
    left_out = _advice(columns, lines)
    for group, member in members.items():
        _outcomes(columns, lines, group, member)
    _adoption(columns, lines)
    _cells(columns, lines)
    count = int(unit.max(initial=-1)) + 1
    window = np.zeros(count, dtype=np.intp)
    window[unit] = place
    above, below = (_by_unit(one, unit, count) for one in (columns.above, columns.below))
    return Followed(tuple(columns.series), above, below, window, left_out)


def _answers(columns: _Columns, lines: Lines, group: str, member: Bools) -> None:
    """Follow statuses, distance, number of changes, proofs and time; of a group, what people have to bear."""
    asked = lines.rows * (member & ~np.isin(lines.status, NOT_COUNTED))
    found = lines.status == "found"
    part: Part = "answers"
    at = columns.divide_by(asked)
    columns.add(Series("coverage", "", group, "share", part, at), _sparse(asked * found))
    for name in ("distance", "n_changed"):
        values = getattr(lines, name)
        known = member & ~np.isnan(values)
        at = columns.divide_by(known.astype(np.float64))
        columns.add(Series(name, "", group, "mean", part, at), _sparse(np.where(known, values, 0.0)))
    if group:
        return
    at = columns.divide_by(lines.rows)
    for status in STATUSES:
        if (own := lines.status == status).any():
            columns.add(Series(f"status.{status}", "", "", "share", part, at), _sparse(lines.rows * own))
    at = columns.divide_by(np.isin(lines.proof, PROOFS).astype(np.float64))
    for proof in PROOFS:
        columns.add(Series(f"proof.{proof}", "", "", "share", part, at), _sparse(1.0 * (lines.proof == proof)))
    timed = lines.seconds > 0
    at = columns.divide_by(timed.astype(np.float64))
    logarithms = np.log(np.where(timed, lines.seconds, 1.0))
    columns.add(Series("seconds", "", "", "logarithm", part, at), _sparse(logarithms))


def _advice(columns: _Columns, lines: Lines) -> int:
    """Follow the share of nearest answers that change each feature; return how many features are left out."""
    changed = lines.changed
    told = changed.known & (lines.status == "found")
    at = columns.divide_by(told.astype(np.float64))
    own = told[changed.lines]
    counts = np.bincount(changed.features[own], minlength=len(changed.names))
    kept = np.sort(np.argsort(-counts, kind="stable")[:MOST_FEATURES])
    for code in kept[counts[kept] > 0].tolist():
        where = np.unique(changed.lines[own & (changed.features == code)])
        series = Series("advised", changed.names[code], "", "share", "features", at)
        columns.add(series, (where, np.ones(len(where))))
    return max(int((counts > 0).sum()) - MOST_FEATURES, 0)


def _outcomes(columns: _Columns, lines: Lines, group: str, member: Bools) -> None:
    """Follow whether people acted, and of those who did, on what, and whether they were decided as wanted."""
    told = member & ~np.isnan(lines.acted)
    if not told.any():
        return
    acted = told & (lines.acted == 1)
    decided = acted & ~np.isnan(lines.wanted)
    part: Part = "outcomes"
    at = columns.divide_by(told.astype(np.float64))
    columns.add(Series("acted", "", group, "share", part, at), _sparse(1.0 * acted))
    at = columns.divide_by(decided.astype(np.float64))
    columns.add(Series("validity", "", group, "share", part, at), _sparse(1.0 * (decided & (lines.wanted == 1))))
    for name, values in (("complete", lines.complete), ("first_answer", lines.answer)):
        known = acted & ~np.isnan(values)
        at = columns.divide_by(known.astype(np.float64))
        columns.add(Series(name, "", group, "share", part, at), _sparse(1.0 * (known & (values == 1))))


def _adoption(columns: _Columns, lines: Lines) -> None:
    """Follow, of those who were advised to change a feature and told what became of it, who did so."""
    told = lines.adopted.known & lines.changed.known & ~np.isnan(lines.acted)
    if not told.any():
        return
    for name in [one.feature for one in columns.series if one.measure == "advised"]:
        advised = _naming(lines.changed, name) & told
        if not advised.any():
            continue
        at = columns.divide_by(advised.astype(np.float64))
        done = 1.0 * (advised & _naming(lines.adopted, name))
        columns.add(Series("adopted", name, "", "share", "adoption", at), _sparse(done))


def _naming(named: Named, name: str) -> Bools:
    found: Bools = np.zeros(len(named.known), dtype=np.bool_)
    if name in named.names:
        found[named.lines[named.features == named.names.index(name)]] = True
    return found


def _cells(columns: _Columns, lines: Lines) -> None:
    """Follow the share of each of ten cells of a number; all windows have a say in where they begin."""
    for name in ("distance", "n_changed", "seconds"):
        values = getattr(lines, name)
        known = ~np.isnan(values)
        edges = np.unique(np.quantile(values[known], np.arange(1, CELLS) / CELLS)) if known.any() else np.zeros(0)
        cell = np.searchsorted(edges, values, side="left")
        at = columns.divide_by(known.astype(np.float64))
        for number in range(len(edges) + 1):
            columns.add(Series(name, "", "", "share", "cells", at), _sparse(1.0 * (known & (cell == number))))


def _sparse(values: NDArray[Any]) -> tuple[Ints, Floats]:
    where = np.flatnonzero(values)
    return where, values[where].astype(np.float64)


def _by_unit(columns: list[tuple[Ints, Floats]], unit: Ints, count: int) -> sparse.csr_matrix:
    """Return columns summed by unit (count, k)."""
    sizes = [len(where) for where, _ in columns]
    rows = unit[np.concatenate([where for where, _ in columns])]
    values = np.concatenate([one for _, one in columns])
    return sparse.csr_matrix((values, (rows, np.repeat(np.arange(len(columns)), sizes))), shape=(count, len(columns)))
