"""Several answers one after the other: other changes first, then other values of the same changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from mlflow_cf.features import Floats
from mlflow_cf.milp.cuts import Cut, OtherChanges, OtherValues
from mlflow_cf.milp.minimise import Minimum, lower_bound, minimise
from mlflow_cf.milp.model import Model
from mlflow_cf.problem import Budget, Problem

TRIES: Final = 4  # with a margin ten times as large each
SURE: Final = 2e-6  # of scores: an answer nearer to the end of its target may be refused by the model itself
LEAST_MARGIN: Final = 1e-7
LOOSE: Final = 4e-5  # of scores: what misses a target by more is refused by every model that was opened
SLACK: Final = 1e-6  # of a bound: the solver lets rows be missed a little


@dataclass(frozen=True, eq=False)
class Answers:
    """What was found.

    Attributes:
        found: the answers in the order in which they were found, and last what ended the search.
    """

    found: tuple[Minimum, ...]

    @property
    def rows(self) -> list[Floats]:
        """The answers."""
        return [one.row for one in self.found if one.row is not None]

    @property
    def costs(self) -> list[float]:
        """What they cost."""
        return [one.cost for one in self.found if one.row is not None]


def diverse(model: Model, known: Floats, budget: Budget, seed: int) -> Answers:
    """Return as many answers as the problem wants, unless there are fewer or the budget ends.

    Args:
        model: what is asked.
        known: (m, d) rows that meet everything that is asked, by which programs become smaller.
        budget: what it may cost; seed: of the solver.

    Raises:
        NotLinearError: rows cannot express the model.
    """
    found: list[Minimum] = []
    changes: list[Cut] = []
    values: list[Cut] = []
    repeating = model.problem.variety.near
    while len(found) < model.problem.count:
        cuts = values if repeating else changes
        cutoff = np.inf if repeating and found else _cutoff(model, known, changes)
        best = _sure(replace(model, cutoff=cutoff), cuts, budget, seed)
        if best.row is None and best.status == "infeasible" and found and not repeating:
            repeating = True
            continue
        found.append(best)
        if best.row is None:
            break
        groups = tuple(np.flatnonzero(model.problem.changed(best.row[None])[0]).tolist())
        changes.append(OtherChanges(groups))
        values += _others(model.problem, best.row, groups)
    return Answers(tuple(found))


def _others(problem: Problem, row: Floats, groups: tuple[int, ...]) -> list[Cut]:
    """Return what leaves out answers that are about the same as one that changes some groups.

    Of the nearest ones, none is that answer with a change on top.
    """
    variety = problem.variety
    if not variety.near:
        return [OtherValues(row, groups, variety.min_difference)]
    everywhere = tuple(range(len(problem.groups)))
    return [
        OtherValues(row, everywhere, variety.min_difference),
        OtherValues(row, groups, variety.min_difference, groups),
    ]


def nearest_possible(model: Model, rows: Floats, budget: Budget, seed: int) -> float | None:
    """Return a distance that no row which a model leaves is nearer than; None if none is known.

    `rows` (m, d) are valid ones that the model leaves; the target is loosened by as much as a structure may be off.
    """
    low = lower_bound(replace(model, margin=-LOOSE, cutoff=_cutoff(model, rows, ())), budget, seed)
    return None if low.status in ("infeasible", "failed") else max(low.bound - SLACK, 0.0)


def _sure(model: Model, cuts: Sequence[Cut], budget: Budget, seed: int) -> Minimum:
    """Return the best row that meets the targets by more than rounding, with a larger margin if it must be."""
    found = minimise(model, cuts, budget, seed)
    for _ in range(TRIES - 1):
        if found.row is None or _surely_valid(model.problem, found.row):
            break
        model = replace(model, margin=10 * max(model.margin, LEAST_MARGIN), cutoff=np.inf)
        found = minimise(model, cuts, budget, seed)
    return found


def _surely_valid(problem: Problem, row: Floats) -> bool:
    """Whether a row (d,) meets the targets so clearly that no rounding matters."""
    rater = problem.rater
    if rater is None:
        return False
    favourable, margin = rater.margins(rater.tokens(range(len(row)), row[None]))
    return bool(favourable[0]) and bool(margin[0] >= SURE)


def _cutoff(model: Model, known: Floats, changes: Sequence[Cut]) -> float:
    """Return what the cheapest known row costs that is not cut off."""
    problem = model.problem
    if not len(known):
        return np.inf
    changed = problem.changed(known)
    kept = np.ones(len(known), dtype=np.bool_)
    for cut in changes:
        if isinstance(cut, OtherChanges):
            kept &= ~changed[:, list(cut.groups)].all(axis=1)
    surely = [bool(keep) and _surely_valid(problem, row) for keep, row in zip(kept, known, strict=True)]
    return float(model.aim.costs(problem, known[surely]).min(initial=np.inf))
