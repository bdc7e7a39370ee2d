"""Search by what could be opened, and ask what could not last: of what meets all else, the nearest first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import numpy as np

from mlflow_cf.features import Floats
from mlflow_cf.problem import Budget, Problem

SETS: Final = 12  # changed sets that are looked for where the nearest candidates are refused
SHARE: Final = 4  # of the budget, so much less is spent on what could be opened, each time
AT_FIRST: Final = 2  # candidates that are asked about together; then twice as many
MOST_ASKED: Final = 64  # for so many answers in all, or an eighth for each
Rows = Callable[[Problem, Budget], Floats]


def sifted(problem: Problem, budget: Budget, search: Rows) -> Floats:
    """Return rows (m, d) that meet everything, nearest first; perhaps fewer than are wanted.

    Args:
        problem: of which something could not be opened.
        budget: of all; what is asked about a candidate counts once more.
        search: returns rows for a problem that is opened.
    """
    if problem.partial is None:
        return problem.background[:0]
    known = replace(problem, scorer=problem.partial, rate=problem.partial.rate, partial=None)
    kept = problem.background[:0]
    for count in (problem.count, max(SETS, 2 * problem.count)):
        part = budget.part(budget.left // SHARE)
        rows = search(replace(known, count=count), part)
        budget.take(part.used)
        kept = _accepted(problem, rows[problem.check(rows)], budget)
        if len(kept) >= problem.count:
            break
    return kept


def _accepted(problem: Problem, rows: Floats, budget: Budget) -> Floats:
    """Return those of rows (m, d) that everything accepts, the best of every changed set before the others."""
    distance = problem.bound_distance.distance(problem.columns, rows, problem.x0)
    rows = rows[np.argsort(distance, kind="stable")]
    changed = problem.changed(rows)
    first = np.zeros(len(rows), dtype=np.bool_)
    if len(rows):
        first[np.unique(changed, axis=0, return_index=True)[1]] = True
    if problem.count > 1:
        rows = rows[np.argsort(~first, kind="stable")]
    kept, asked, size = [problem.background[:0]], 0, max(AT_FIRST, problem.count)
    most = max(MOST_ASKED, MOST_ASKED // 8 * problem.count)
    while asked < min(len(rows), most) and sum(map(len, kept)) < problem.count and not budget.spent:
        part = rows[asked : asked + min(size, most - asked, budget.take(min(size, len(rows) - asked)))]
        if not len(part):
            break
        kept.append(part[problem.rate(part).favourable])
        asked, size = asked + len(part), 2 * size
    return np.concatenate(kept)
