"""The mixed-integer model of one row to explain: its variables, and one family of constraints after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np

from mlflow_cf.constraints.rules import Rule
from mlflow_cf.features import Floats
from mlflow_cf.milp.cuts import Cut
from mlflow_cf.milp.embed import embed
from mlflow_cf.milp.objective import (
    CountedOn,
    Objective,
    add_distance,
    add_limits,
    add_paper_objective,
    add_price,
    costs_of,
    prices_of,
    require_change,
)
from mlflow_cf.milp.program import NotLinearError, Program
from mlflow_cf.milp.rules import add_rules
from mlflow_cf.milp.solve import FEASIBILITY
from mlflow_cf.milp.validity import ClassTarget, add_validity
from mlflow_cf.milp.variables import STRICT, ChangedRange, Variables, domains_of
from mlflow_cf.problem import Problem

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

    def costs(self, problem: Problem, rows: Floats) -> Floats:
        """Return the costs (m,) of rows (m, d)."""
        costs: Floats = costs_of(problem, self.objective, rows)
        return costs + prices_of(problem, self.mu, self.counted_on, rows) if self.mu else costs


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
    """Return a model as a program; None if some group has no value left.

    Args:
        model: what is asked.
        wanted: the class that meets each of its targets.
        cuts: what is excluded on top.
        near: see `domains_of`.

    Raises:
        NotLinearError: linear constraints cannot express the structure, the target or the distance.
    """
    problem, exact = model.problem, model.margin < 0
    scorer = problem.scorer
    domains = domains_of(problem, model.cutoff if model.aim.objective == "distance" else np.inf, near)
    if scorer is None:
        raise NotLinearError("a model that could not be opened")
    if domains is None:
        return None
    program = Program()
    variables = Variables.add(program, problem, domains, strict=0.0 if exact else STRICT)
    _add_aim(program, variables, model)
    require_change(program, variables)
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
    pairs = zip(problem.groups, domains, strict=True)
    whole = near is None and not any(
        isinstance(domain, ChangedRange) and group.interval is None for group, domain in pairs
    )
    return Built(program, variables, left_out, whole)


def _add_aim(program: Program, variables: Variables, model: Model) -> None:
    aim = model.aim
    if aim.objective == "distance":
        add_distance(program, variables)
    else:
        add_paper_objective(program, variables, aim.objective)
    if aim.mu:
        add_price(program, variables, aim.mu, aim.counted_on)
    if np.isfinite(model.cutoff):
        unit = max(aim.mu, 1.0)
        program.require([program.objective.times(1.0 / unit)], -np.inf, model.cutoff / unit + FEASIBILITY)
