"""The mixed-integer model of one row to explain: its variables, and one family of constraints after the other.

The objective is the problem's distance or one of the CE-OCL paper, with a price or a limit on changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

import numpy as np

from mlflow_cf.constraints.expressions import differing
from mlflow_cf.constraints.rules import Bools, Rule
from mlflow_cf.features import Floats
from mlflow_cf.milp.cuts import Cut
from mlflow_cf.milp.embed import embed
from mlflow_cf.milp.program import Affine, NotLinearError, Program, Square, difference, total
from mlflow_cf.milp.rules import add_rules
from mlflow_cf.milp.solve import FEASIBILITY
from mlflow_cf.milp.validity import ClassTarget, add_validity
from mlflow_cf.milp.variables import STRICT, ChangedRange, Chosen, Real, Variables, domains_of
from mlflow_cf.problem import Problem
from mlflow_cf.words.statements import say

Objective = Literal["distance", "l1", "l1_mad", "l2"]
CountedOn = Literal["features", "columns"]


def add_distance(program: Program, variables: Variables) -> None:
    """Minimise the problem's distance.

    Raises:
        NotLinearError: a real number whose changes are shares of the background.
    """
    problem, distance = variables.problem, variables.problem.bound_distance
    peaks: list[Affine] = []
    for group, variable in zip(problem.groups, variables.groups, strict=True):
        if isinstance(variable, Chosen):
            codes = variable.codes
            program.costs.append(Affine.chosen(variable.selectors, group.cost[codes]))
            peaks.append(Affine.chosen(variable.selectors, group.peak[codes]))
            continue
        if distance.percentiles is not None:
            raise NotLinearError(say("percentiles"))
        scale, weight = float(distance.scale[variable.column]), float(distance.weights[variable.column])
        filled = np.isnan(variable.own) or not scale
        change = variable.switch if filled else variable.size.times(variable.step / scale)
        share = weight / float(distance.weights.sum())
        program.costs.append(total([variable.switch.times(distance.a * share), change.times(distance.b * share)]))
        peaks.append(change.times(weight / float(distance.weights.max())))
    if distance.c:
        largest = program.add_column(0.0, max(peak.high for peak in peaks), cost=distance.c)
        above = [difference(largest, peak) for peak in peaks if not peak.fixed or peak.constant]
        program.require(above, 0.0, np.inf)


TANGENTS: Final = 40  # of the square of a real number's change, more of them near 0


def add_paper_objective(program: Program, variables: Variables, objective: Objective) -> None:
    """Minimise l1, MAD-scaled l1 or squared l2 over scaled numbers and one-hot levels, as the paper does.

    Squares of real numbers are bounded from below by tangents; a missing value that is filled in costs 1.
    """
    for variable in variables.groups:
        if isinstance(variable, Chosen):
            costs = np.zeros(len(variable.codes))
            for place, column in enumerate(variable.columns):
                costs += _costs(variables.problem, column, variable.actions[:, place], objective)
            program.costs.append(Affine.chosen(variable.selectors, costs))
        elif np.isnan(variable.own) or not (unit := _unit(variables.problem, variable.column, objective)):
            program.costs.append(variable.switch)
        elif objective == "l2":
            _add_square(program, variable, variable.step / unit)
        else:
            program.costs.append(variable.size.times(variable.step / unit))


def _unit(problem: Problem, column: int, objective: Objective) -> float:
    feature = problem.space.features[column]
    return feature.mad if objective == "l1_mad" else feature.high - feature.low


def _costs(problem: Problem, column: int, codes: Floats, objective: Objective) -> Floats:
    """Return what a change of a feature from the row's own code to each of `codes` (t,) costs."""
    feature, own = problem.space.features[column], float(problem.x0[column])
    differs: Bools = (codes != own) & ~(np.isnan(codes) & np.isnan(own))
    if not feature.numeric:
        return np.where(differs, 2.0, 0.0)  # two one-hot columns
    unit = _unit(problem, column, objective)
    if np.isnan(own) or not unit:
        return differs.astype(np.float64)
    size: Floats = np.nan_to_num(np.abs(codes - own) / unit)
    return size**2 if objective == "l2" else size


def _add_square(program: Program, variable: Real, factor: float) -> None:
    """Add the square of ``factor * size`` to the costs, bounded from below by tangents."""
    size = variable.size.times(factor)
    square = program.add_column(0.0, size.high**2, cost=1.0)
    program.squares.append(Square(int(square.columns[0]), variable.up, variable.down, factor))
    points = size.high * np.linspace(0.0, 1.0, TANGENTS) ** 2
    lines = [difference(square, size.times(2.0 * point)) for point in points.tolist()]
    program.require(lines, -(points**2), np.inf)


def add_limits(program: Program, variables: Variables) -> None:
    """Let no more groups change than the problem's limits allow, each by its own way of counting."""
    problem = variables.problem
    if problem.most_changes < len(problem.groups):
        program.require([variables.changes(range(len(problem.groups)))], -np.inf, float(problem.most_changes))
    for limit in problem.limits:
        if limit.groups == problem.columns:
            continue
        counts = problem.counts_of(limit)
        parts = [
            Affine.chosen(variable.selectors, count[variable.codes].astype(np.float64))
            if isinstance(variable, Chosen)
            else variable.switch
            for variable, count in zip(variables.groups, counts, strict=True)
        ]
        program.require([total(parts)], -np.inf, float(limit.most))


MARGIN: Final = 1e-4  # of scores, so that an answer is still valid after rounding
SLACK: Final = 10 * FEASIBILITY  # of a cutoff or a bound: the solver scales rows, and lets them be missed a little


class Family(Protocol):
    """Constraints of an explainer's own, such as a region that answers must lie in."""

    @property
    def exact(self) -> bool:
        """Whether it excludes no valid row and adds no cost, so that optima are proofs."""
        ...

    def add(self, program: Program, variables: Variables) -> None:
        """Add its constraints."""
        ...


@dataclass(frozen=True, eq=False)
class Aim:
    """The objective: what is minimised.

    Attributes:
        objective: the problem's distance, or one of the paper's.
        mu: what each change costs on top; counted_on: whether a changed category counts once or twice.
    """

    objective: Objective = "distance"
    mu: float = 0.0
    counted_on: CountedOn = "features"

    @property
    def nearest(self) -> bool:
        """Whether it is the problem's distance alone."""
        return self.objective == "distance" and not self.mu

    @property
    def text(self) -> str:
        """What is minimised, in words."""
        return f"{self.objective} + {self.mu:g} * {self.counted_on}" if self.mu else self.objective

    def prices(self, problem: Problem) -> Floats:
        """Return what a change of each feature costs (d,); on one-hot columns a changed category counts twice."""
        twice = [self.counted_on == "columns" and not feature.numeric for feature in problem.space.features]
        return np.where(twice, 2.0 * self.mu, self.mu)

    def price(self, problem: Problem, rows: Floats) -> Floats:
        """Return the price (m,) of the changes of rows (m, d)."""
        return differing(rows, problem.x0).astype(np.float64) @ self.prices(problem)

    def costs(self, problem: Problem, rows: Floats) -> Floats:
        """Return the costs (m,) of rows (m, d)."""
        if self.objective == "distance":
            costs = problem.bound_distance.distance(problem.columns, rows, problem.x0)
        else:
            parts = [_costs(problem, column, rows[:, column], self.objective) for column in range(rows.shape[1])]
            costs = np.sum(parts, axis=0)
        return costs + self.price(problem, rows) if self.mu else costs


@dataclass(frozen=True, eq=False)
class Model:
    """A question to the solver: the row, what is minimised, and which constraints hold.

    Attributes:
        problem: the row and its constraints.
        aim: what is minimised.
        margin: by how much the targets are met; below 0 the tolerance within which they may be missed.
        cutoff: the cost of the incumbent; dearer rows are excluded.
        families: further constraints.
        limited, ruled: whether limits on changes, and rules over several groups, are part of the model.
    """

    problem: Problem
    aim: Aim = field(default_factory=Aim)
    margin: float = MARGIN
    cutoff: float = np.inf
    families: Sequence[Family] = ()
    limited: bool = True
    ruled: bool = True


@dataclass(frozen=True, eq=False)
class Built:
    """A model as a program.

    Attributes:
        program, variables: what is solved.
        left_out: the rules that linear constraints do not express.
        whole: whether exactly the admissible values can be chosen.
    """

    program: Program
    variables: Variables
    left_out: tuple[Rule, ...]
    whole: bool


def build(model: Model, wanted: Sequence[ClassTarget], cuts: Sequence[Cut], near: Floats | None = None) -> Built | None:
    """Return a model as a program, with one way of meeting its targets; None if some group has no value left.

    What `cuts` say is excluded on top; for `near` see `domains_of`.

    Raises:
        NotLinearError: linear constraints cannot express the structure, the target or the distance.
    """
    problem, exact = model.problem, model.margin < 0
    scorer = problem.scorer
    domains = domains_of(problem, model.cutoff if model.aim.objective == "distance" else np.inf, near)
    if scorer is None:
        raise NotLinearError(say("closed_model"))
    if domains is None:
        return None
    program = Program()
    variables = Variables.add(program, problem, domains, strict=0.0 if exact else STRICT)
    _add_aim(program, variables, model)
    every = range(len(problem.groups))
    program.require([variables.changes(every)], 1.0, np.inf)  # a row is no counterfactual of itself
    left_out: tuple[Rule, ...] = ()
    if model.limited:
        add_limits(program, variables)
    if model.ruled:
        left_out = add_rules(program, variables)
    add_validity(program, embed(program, variables, scorer.structure), wanted, model.margin)
    for family in model.families:
        family.add(program, variables)
    for cut in cuts:
        cut.add(program, variables)
    real = [group for group, domain in zip(problem.groups, domains, strict=True) if isinstance(domain, ChangedRange)]
    whole = near is None and all(group.interval is not None for group in real)
    return Built(program, variables, left_out, whole)


def _add_aim(program: Program, variables: Variables, model: Model) -> None:
    aim = model.aim
    if aim.objective == "distance":
        add_distance(program, variables)
    else:
        add_paper_objective(program, variables, aim.objective)
    if aim.mu:
        prices = aim.prices(variables.problem).tolist()
        program.costs += [variables.changed(column).times(price) for column, price in enumerate(prices)]
    if np.isfinite(model.cutoff):
        unit = max(aim.mu, 1.0)
        program.require([program.objective.times(1.0 / unit)], -np.inf, model.cutoff / unit + FEASIBILITY)
