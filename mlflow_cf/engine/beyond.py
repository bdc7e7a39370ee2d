"""A target that nothing reaches, known by one look at the bounds of everything that may be proposed."""

from __future__ import annotations

from mlflow_cf.engine.nodes import whole_box
from mlflow_cf.problem import Problem
from mlflow_cf.problem.points import with_points
from mlflow_cf.search.action_table import ActionTable, telling
from mlflow_cf.structures.capabilities import boxes_of


def beyond_reach(problem: Problem, doubt: float) -> bool:
    """Whether the model's bounds prove that no candidate meets the target; False: they do not tell.

    Scores may be off by `doubt`, in units of max(1, |score|).
    """
    problem, exact = with_points(problem)
    if problem.scorer is None or not exact:
        return False
    choices = ActionTable.of_ids(problem, problem.kept(telling))
    if (choices.start[:-1] == choices.start[1:]).any():
        return True  # a group has no tuple left
    low, high = boxes_of(problem.scorer.structure, choices.tokens).bounds(whole_box(choices)[:, choices.columns])
    return bool(problem.scorer.upper_bound(low, high, doubt)[0] < 0)
