"""The nearest row by a mixed-integer program, and a lower bound: built, solved, and cut where a rule was left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import Final, Literal

import numpy as np

from mlflow_cf.causal.equation import followed
from mlflow_cf.constraints.expressions import Computed
from mlflow_cf.features import Floats
from mlflow_cf.milp.cuts import Cut, OtherValues
from mlflow_cf.milp.model import Built, Model, build
from mlflow_cf.milp.solve import MOST_NODES, Effort, Solved, solve, solve_squares
from mlflow_cf.milp.validity import ClassTarget, ways
from mlflow_cf.problem import Budget

MOST_REPAIRS: Final = 20  # cuts of answers that break a rule which rows cannot express

Status = Literal["optimal", "infeasible", "limit", "failed", "broken"]


@dataclass(frozen=True, eq=False)
class Minimum:
    """The outcome of a minimisation: the best row found and a lower bound of the cost.

    Attributes:
        status: whether the optimum was found; nothing is feasible; a limit ended the search; the solver failed; or
            every answer broke a rule that is not linear, or was repaired.
        row: (d,) the best row found; None: none was.
        cost: its cost under the model's aim; inf without a row.
        bound: no row that the model allows costs less.
    """

    status: Status
    row: Floats | None = None
    cost: float = np.inf
    bound: float = -np.inf


def minimise(model: Model, cuts: Sequence[Cut], budget: Budget, seed: int) -> Minimum:
    """Return the row of least cost, over all ways of meeting the targets.

    Raises:
        NotLinearError: linear constraints cannot express the model.
    """
    best = Minimum("infeasible", bound=np.inf)
    for wanted in ways(model.problem):
        best = _cheaper(best, _minimum_by_cuts(model, wanted, cuts, (budget, seed)))
        if np.isfinite(best.cost) and model.aim.nearest:
            model = replace(model, cutoff=min(model.cutoff, best.cost))
    return best


def lower_bound(model: Model, budget: Budget, seed: int) -> Minimum:
    """Return a lower bound of the cost of all valid rows; the program may lack rules, so that it excludes none of them.

    Raises:
        NotLinearError: linear constraints cannot express the model.
    """
    best = Minimum("infeasible", bound=np.inf)
    for wanted in ways(model.problem):
        solved = Solved("limit") if budget.spent else _solved(build(model, wanted, ()), budget, seed)
        best = _cheaper(best, Minimum(solved.status, bound=solved.bound))
    return best


def _cheaper(best: Minimum, found: Minimum) -> Minimum:
    """Return the cheaper row of two ways, with what is proved of both: an optimum, or nothing, only if of both."""
    status = found.status if best.status in ("infeasible", "optimal") else best.status
    if status == "infeasible":
        status = best.status
    nearer = found if found.cost < best.cost else best
    return replace(nearer, status=status, bound=min(best.bound, found.bound))


Run = tuple[Budget, int]


def _minimum_by_cuts(model: Model, wanted: Sequence[ClassTarget], cuts: Sequence[Cut], run: Run) -> Minimum:
    """Return the best row for one way of meeting the targets; rows that break a rule are cut off."""
    bound = -np.inf
    for repairs in count():
        if run[0].spent:  # large models take long to be written as a program
            return Minimum("limit", bound=bound)
        built = build(model, wanted, cuts)
        solved = _solved(built, *run)
        # causal equations are approximated, or left out
        approximate = built is not None and any(isinstance(rule.then.left, Computed) for rule in built.left_out)
        # cuts may exclude more than the broken row, and approximations more or less than there is
        bound = bound if repairs or approximate else max(bound, solved.bound)
        if built is None or solved.values is None:
            status: Status = "broken" if (repairs or approximate) and solved.status == "infeasible" else solved.status
            return Minimum(status, bound=bound)
        row, cost = _row(model, (wanted, cuts), run, (built, solved.values))
        lawful = row is not None and bool(model.problem.check(row[None])[0])
        if row is not None and not lawful and (moved := _followed(model, row)) is not None:
            lawful, row, cost = True, moved, float(model.aim.costs(model.problem, moved[None])[0])
        if lawful:
            return Minimum("broken" if approximate else solved.status, row, cost, bound)
        if repairs == MOST_REPAIRS or row is None or not built.left_out:
            return Minimum("broken", bound=bound)
        cuts = [*cuts, OtherValues(row, _to_change(built, row))]
    raise AssertionError("the loop ends by itself")


def _followed(model: Model, row: Floats) -> Floats | None:
    """Return a row with the children of causal equations set exactly; None if that breaks a rule.

    None where there are further families, too: a hull may end before the exact value.
    """
    rules = [joint.rule for joint in model.problem.joint_rules if isinstance(joint.rule.then.left, Computed)]
    if not rules or model.families:
        return None
    moved = as_stored(model, followed(rules, row, model.problem.x0))
    return moved if model.problem.check(moved[None])[0] else None


def _to_change(built: Built, row: Floats) -> tuple[int, ...]:
    """Return the groups of the first rule that a row breaks."""
    rules, problem = built.left_out, built.variables.problem
    broken = [rule for rule in rules if not rule.holds(row[None], problem.x0)[0]]
    columns = chain.from_iterable(rule.columns("x_cf") for rule in broken[:1] or rules)
    return tuple(sorted({int(problem.owner[column]) for column in columns}))


def _row(
    model: Model, how: tuple[Sequence[ClassTarget], Sequence[Cut]], run: Run, found: tuple[Built, Floats]
) -> tuple[Floats | None, float]:
    """Return the row of a solution, with admissible values, and its cost."""
    built, values = found
    row, cost = built.variables.row(values), built.program.exact_cost(values)
    if built.whole:
        return as_stored(model, row), cost
    near = build(model, *how, near=row)
    solved = _solved(near, *run)
    if near is None or solved.values is None:
        return None, np.inf
    return as_stored(model, near.variables.row(solved.values)), near.program.exact_cost(solved.values)


def as_stored(model: Model, row: Floats) -> Floats:
    """Return a row (d,) rounded to the types of its columns."""
    space = model.problem.space
    coded: Floats = space.encode(space.decode(row[None]))[0]
    return coded


def _solved(built: Built | None, budget: Budget, seed: int) -> Solved:
    """Solve within what is left of a budget; a node counts as an evaluation. None: no value is left for some group."""
    if built is None:
        return Solved("infeasible", bound=np.inf)
    if budget.spent:
        return Solved("limit")
    left = min(budget.left, MOST_NODES)
    solved = solve(built.program, Effort(budget.seconds_left, left, seed))
    late = solved.status == "limit" and not budget.late
    budget.take(left + 1 if late else min(solved.nodes, left))
    if not built.program.squares or solved.values is None:
        return solved
    return replace(solved, values=solve_squares(built.program, solved.values, Effort(budget.seconds_left, seed=seed)))
