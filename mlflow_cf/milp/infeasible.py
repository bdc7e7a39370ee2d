"""Which family of constraints leaves nothing: they are added one after the other until no row is feasible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from mlflow_cf.milp.minimise import lower_bound
from mlflow_cf.milp.model import Model
from mlflow_cf.problem import Budget, Group, Problem
from mlflow_cf.problem.binding import same
from mlflow_cf.problem.group import Tuples

Blocking = Literal["validity", "sparsity", "rules", "further"]


def first_infeasible(model: Model, budget: Budget, seed: int) -> Blocking | None:
    """Return the first family, in the order of the paper, with which nothing is feasible; None if some row may be.

    Validity and coherence come first, then the limit on changes, then what rules leave of each feature and of
    several, then further families.

    Raises:
        NotLinearError: rows cannot express the model.
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
    """Return the problem without the rules of single groups: they may take any tuple of their domains."""
    return replace(problem, groups=tuple(_free(problem, group) for group in problem.groups))


def _free(problem: Problem, group: Group) -> Group:
    own = problem.x0[list(group.columns)]
    tuples = group.domain.tuples
    admissible = ~(np.isnan(tuples) & ~np.isnan(own)).any(axis=1) & ~same(tuples, own).all(axis=1)
    tuples = np.concatenate([own[None], tuples[admissible]])
    cost, peak = problem.bound_distance.parts(group.columns, tuples, own)
    free = group.taking(Tuples(tuples, np.ones(len(tuples)), 0, cost, peak))
    return replace(free, ground=tuple, own_allowed=True)
