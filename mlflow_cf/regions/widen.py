"""A counterfactual widened to a box in which every admissible row is one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from mlflow_cf.constraints.expressions import differing
from mlflow_cf.constraints.rules import Bools
from mlflow_cf.features import Floats
from mlflow_cf.goal import Scorer
from mlflow_cf.problem import Budget, Problem
from mlflow_cf.regions.axes import FINE, Axis, axes_of
from mlflow_cf.regions.growth import End, Growth, ends_of
from mlflow_cf.regions.lawful import BoxRules, is_checked
from mlflow_cf.regions.proving import Prover

ROUNDS: Final = 4  # in which pieces are parted: 32 * 16**3 of them would be shorter than `FINE`


@dataclass(frozen=True, eq=False)
class Side:
    """What one feature may be in a region, as codes.

    Attributes:
        column: of the feature.
        low, high: the least and the largest number; NaN for levels.
        levels: the codes of levels; empty for numbers.
        lowest, highest: whether nothing below `low`, or above `high`, is admissible.
        maximal: whether each value next to it certainly leads to a row that is no counterfactual, or is not admissible.
    """

    column: int
    low: float
    high: float
    levels: tuple[float, ...]
    lowest: bool
    highest: bool
    maximal: bool

    @property
    def single(self) -> bool:
        """Whether it has one value alone."""
        return len(self.levels) == 1 or self.low == self.high


def widen(problem: Problem, row: Floats, columns: Sequence[int], tolerance: float, budget: Budget) -> list[Side]:
    """Return the region around a counterfactual of an opened model.

    Every row in it that has admissible values is predicted as wanted, though scores may be off by the tolerance, and
    meets all rules. It grows side by side, so that no feature takes the room of the others.

    Args:
        problem: the row to explain, as it was bound, with the opened model.
        row: (d,) a verified counterfactual of it.
        columns: the features that may differ from it.
        tolerance: by how much scores may be off, in units of max(1, |score|).
        budget: ends the growth; what is proved until then is the region.
    """
    scorer = problem.scorer
    if scorer is None:
        raise ValueError("a region takes an opened model")
    axes = _checkable(problem, axes_of(problem, scorer, row, columns))
    if not axes:
        return [_kept(problem, row, column) for column in columns]
    growth = _started(problem, scorer, row, tuple(axes), tolerance, budget)
    growth.run()
    for _ in range(ROUNDS):
        finer = _refined(problem, growth)
        if finer is None:
            break
        growth = finer
        growth.run()
    return _sides(problem, growth, row, columns)


def _checkable(problem: Problem, axes: list[Axis]) -> list[Axis]:
    """Return the axes but those of intervals of numbers on which a rule over several groups cannot be checked."""
    continuous = frozenset(axis.column for axis in axes if axis.points == 2)
    if not continuous or not problem.linked:
        return axes
    held = [rule.columns("x_cf") & continuous for rule in problem.linking if not is_checked(rule, continuous)]
    fixed = frozenset[int]().union(*held)
    return [axis for axis in axes if axis.column not in fixed]


def _started(
    problem: Problem, scorer: Scorer, row: Floats, axes: tuple[Axis, ...], tolerance: float, budget: Budget
) -> Growth:
    """Return the growth of the pieces that the counterfactual lies in."""
    encoded = [some[0] for some in problem.encoded_row]
    for column in np.flatnonzero(differing(row[None], problem.x0)[0]).tolist():
        encoded[column] = scorer.structure.encode(column, row[[column]])[0]
    prover = Prover(axes, row, encoded, problem.x0, scorer, tolerance, budget)
    box = np.zeros(prover.start[-1], dtype=np.bool_)
    box[prover.start[:-1] + np.array([axis.at for axis in axes])] = True
    return Growth(prover, BoxRules(problem, row, axes, prover.start), box, ends_of(axes, prover.start))


def _refined(problem: Problem, growth: Growth) -> Growth | None:
    """Return the growth with finer pieces where it ended inside of intervals; None where no piece is worth parting."""
    prover, parted = growth.prover, dict[int, set[int]]()
    for end in growth.ends:
        piece = _beyond(growth, end)
        if piece is not None and not prover.budget.spent:
            parted.setdefault(end.axis, set()).add(piece)
    if not parted:
        return None
    axes, flags = list(growth.axes), []
    for number, axis in enumerate(growth.axes):
        mine = growth.box[prover.start[number] : prover.start[number + 1]]
        if number in parted:
            feature = problem.space.features[axis.column]
            axes[number], whose = axis.finer(parted[number], feature, prover.scorer)
            mine = mine[whose]
        flags.append(mine)
    finer = replace(prover, axes=tuple(axes))
    box: Bools = np.concatenate(flags)
    parts = ((end, _beyond(growth, end) is not None) for end in growth.ends)
    ends = [End(end.axis, end.toward, end.level, 1) if again else end for end, again in parts]
    for end in ends:
        if not end.toward:
            end.level += int(finer.start[end.axis] - prover.start[end.axis])
    rules = replace(growth.rules, axes=finer.axes, start=finer.start)
    return Growth(finer, rules, box, ends, growth.bounded)


def _beyond(growth: Growth, end: End) -> int | None:
    """Return the piece next to an end that may be parted, counted on its axis; None: it is short, or there is none."""
    axis = growth.axes[end.axis]
    if axis.points == 1 or not end.toward:
        return None
    start, stop = growth.prover.start[end.axis : end.axis + 2].tolist()
    here = np.flatnonzero(growth.box[start:stop])
    piece = int(here[-1]) + 1 if end.toward > 0 else int(here[0]) - 1
    if not 0 <= piece < stop - start or axis.last[piece] - axis.first[piece] <= FINE * axis.span:
        return None
    return piece


def _sides(problem: Problem, growth: Growth, row: Floats, columns: Sequence[int]) -> list[Side]:
    """Return what has grown, with a side for each of the columns; those without an axis keep their value."""
    found, axis_of = [], {axis.column: number for number, axis in enumerate(growth.axes)}
    for column in columns:
        if column not in axis_of:
            found.append(_kept(problem, row, column))
            continue
        number = axis_of[column]
        axis, start = growth.axes[number], int(growth.prover.start[number])
        here = np.flatnonzero(growth.box[start : start + len(axis.first)])
        mine = [end for end in growth.ends if end.axis == number]
        settled = all(_beyond(growth, end) is None and end.state == "ended" for end in mine)
        if axis.numeric:
            low, high = float(axis.first[here[0]]), float(axis.last[here[-1]])
            lowest, highest = here[0] == 0, here[-1] == len(axis.first) - 1
            found.append(Side(column, low, high, (), bool(lowest), bool(highest), settled))
        else:
            levels = tuple(axis.first[here].tolist())
            found.append(Side(column, np.nan, np.nan, levels, lowest=False, highest=False, maximal=settled))
    return found


def _kept(problem: Problem, row: Floats, column: int) -> Side:
    """Return the side of a feature that keeps its value."""
    value = float(row[column])
    if problem.space.features[column].numeric:
        return Side(column, value, value, (), lowest=False, highest=False, maximal=False)
    return Side(column, np.nan, np.nan, (value,), lowest=False, highest=False, maximal=False)
