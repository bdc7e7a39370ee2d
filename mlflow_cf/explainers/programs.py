"""Answers of CE-OCL's programs: several one after the other, or the name of what leaves none.

After each answer other changes are asked for first, then other values of the same changes. Where nothing is feasible,
families of constraints are added one after the other to name the one that leaves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.features import Floats
from mlflow_cf.milp.cuts import Cut, OtherChanges, OtherValues
from mlflow_cf.milp.minimise import Minimum, lower_bound, minimise
from mlflow_cf.milp.model import SLACK, Model
from mlflow_cf.problem import Budget, Group, Problem
from mlflow_cf.problem.binding import same
from mlflow_cf.problem.group import GroupActions

TRIES: Final = 4  # with a margin ten times as large each
SURE: Final = 2e-6  # of scores: an answer nearer to the end of its target may be refused by the model itself
LEAST_MARGIN: Final = 1e-7
LOOSE: Final = 4e-5  # of scores: what misses a target by more is refused by every model that was opened

Blocking = Literal["validity", "sparsity", "rules", "further"]


@dataclass(frozen=True, eq=False)
class ProgramAnswers:
    """The answers of one search by programs.

    Attributes:
        found: the answers in the order in which they were found, and last what ended the search.
    """

    found: tuple[Minimum, ...]

    @property
    def rows(self) -> list[Floats]:
        """The rows (d,) of the answers."""
        return [one.row for one in self.found if one.row is not None]

    @property
    def costs(self) -> list[float]:
        """The costs of the answers."""
        return [one.cost for one in self.found if one.row is not None]


def diverse(model: Model, known: Floats, budget: Budget, seed: int) -> ProgramAnswers:
    """Return as many answers as the problem wants, unless there are fewer or the budget ends.

    Args:
        model: the row, what is minimised, and which constraints hold.
        known: (m, d) rows that meet all of the model: incumbents, by which programs become smaller.
        budget: what it may cost; seed: of the solver.

    Raises:
        NotLinearError: linear constraints cannot express the model.
    """
    found: list[Minimum] = []
    changes: list[Cut] = []
    values: list[Cut] = []
    repeating = model.problem.variety.near
    while len(found) < model.problem.count:
        cuts = values if repeating else changes
        incumbent = Minimum("infeasible") if repeating and found else _incumbent(model, known, changes)
        best = _better(_clearly_valid_minimum(replace(model, cutoff=incumbent.cost), cuts, budget, seed), incumbent)
        if best.row is None and best.status == "infeasible" and found and not repeating:
            repeating = True
            continue
        found.append(best)
        if best.row is None:
            break
        groups = tuple(np.flatnonzero(model.problem.changed(best.row[None])[0]).tolist())
        changes.append(OtherChanges(groups))
        values += _other_values(model.problem, best.row, groups)
    return ProgramAnswers(tuple(found))


def _other_values(problem: Problem, row: Floats, groups: tuple[int, ...]) -> list[Cut]:
    """Return cuts that exclude answers about the same as `row` (d,), which changes `groups`.

    Where the nearest answers are wanted, they also exclude that answer with a change on top.
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
    """Return a lower bound of the distance of all rows that a model allows; None if none is known.

    `rows` (m, d) are valid ones that the model allows. The target is loosened by the score tolerance of structures.
    """
    low = lower_bound(replace(model, margin=-LOOSE, cutoff=_incumbent(model, rows, ()).cost), budget, seed)
    return None if low.status in ("infeasible", "failed") else max(low.bound - SLACK, 0.0)


def _clearly_valid_minimum(model: Model, cuts: Sequence[Cut], budget: Budget, seed: int) -> Minimum:
    """Return the best row that meets the targets by more than rounding, with a larger margin if it must be."""
    found = minimise(model, cuts, budget, seed)
    for _ in range(TRIES - 1):
        if found.row is None or _surely_valid(model.problem, found.row[None])[0]:
            break
        model = replace(model, margin=10 * max(model.margin, LEAST_MARGIN), cutoff=np.inf)
        found = minimise(model, cuts, budget, seed)
    return found


def _surely_valid(problem: Problem, rows: Floats) -> Bools:
    """Return (m,) whether rows (m, d) meet the targets so clearly that no rounding matters."""
    scorer = problem.scorer
    if scorer is None or not len(rows):
        return np.zeros(len(rows), dtype=np.bool_)
    favourable, margin = scorer.margins(scorer.encoded(range(rows.shape[1]), rows))
    surely: Bools = favourable & (margin >= SURE)
    return surely


def _incumbent(model: Model, known: Floats, changes: Sequence[Cut]) -> Minimum:
    """Return the cheapest known row that surely meets the targets and is not cut off; "infeasible" if there is none."""
    problem = model.problem
    changed = problem.changed(known) if len(known) else np.empty((0, len(problem.groups)), dtype=np.bool_)
    kept = np.ones(len(known), dtype=np.bool_)
    for cut in changes:
        if isinstance(cut, OtherChanges):
            kept &= ~changed[:, list(cut.groups)].all(axis=1)
    surely = known[kept][_surely_valid(problem, known[kept])]
    costs = model.aim.costs(problem, surely)
    return Minimum("limit", surely[at := costs.argmin()], float(costs[at])) if len(costs) else Minimum("infeasible")


def _better(found: Minimum, incumbent: Minimum) -> Minimum:
    """Return the cheaper one of a row that was found and the incumbent, whose cost was the cutoff.

    Where nothing that costs less is feasible, the incumbent is the optimum.
    """
    if incumbent.row is None or found.cost <= incumbent.cost:
        return found
    status = "optimal" if found.status == "infeasible" else found.status
    return replace(incumbent, status=status, bound=min(found.bound, incumbent.cost))


def first_infeasible(model: Model, budget: Budget, seed: int) -> Blocking | None:
    """Return the first family, in the order of the paper, with which nothing is feasible; None if some row may be.

    Validity and coherence come first, then the limit on changes, then what rules leave of each feature and of
    several, then further families.

    Raises:
        NotLinearError: linear constraints cannot express the model.
    """
    bare = replace(model, problem=_bare(model.problem), limited=False, ruled=False, families=())
    steps: Sequence[tuple[Blocking, Model]] = (
        ("validity", bare),
        ("sparsity", replace(bare, limited=True)),
        ("rules", replace(model, families=())),
        ("further", model),
    )
    for name, step in steps:
        if lower_bound(step, budget, seed).status == "infeasible":
            return name
    return None


def _bare(problem: Problem) -> Problem:
    """Return the problem without the rules of single groups: they may take any action of their domains."""
    return replace(problem, groups=tuple(_free(problem, group) for group in problem.groups))


def _free(problem: Problem, group: Group) -> Group:
    own = problem.x0[list(group.columns)]
    actions = group.domain.actions
    admissible = ~(np.isnan(actions) & ~np.isnan(own)).any(axis=1) & ~same(actions, own).all(axis=1)
    actions = np.concatenate([own[None], actions[admissible]])
    cost, peak = problem.bound_distance.parts(group.columns, actions, own)
    free = group.taking(GroupActions(actions, np.ones(len(actions)), 0, cost, peak))
    return replace(free, ground=tuple, own_allowed=True)
