"""Responsiveness: the share of the lawful changes of some features that turn the decision.

Ustun et al., "Feature responsiveness scores: model-agnostic explanations for recourse" (ICLR 2025), section 3. All
changes are counted where a sweep of the opened model scores them at once, or where they are few. Of others a share is
drawn with replacement, and comes with an interval (Wilson 1927).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

import numpy as np
from scipy.special import ndtri

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.engine.thresholds import LISTED_PER_ROW, SCORE_TOLERANCES, SWEPT
from mlflow_cf.features import Floats
from mlflow_cf.goal import Scorer
from mlflow_cf.levers.grid import Grid
from mlflow_cf.levers.sets import Groups
from mlflow_cf.levers.singles import AT_ONCE, SweptChanges, lawful_alone
from mlflow_cf.model.judge import Asked, Outcome
from mlflow_cf.problem import Codes, Problem
from mlflow_cf.problem.actions import ActionTable
from mlflow_cf.proof.verify import RowTask

MOST_COUNTED: Final = 2**14  # combinations of several groups that are counted; a few milliseconds (boosting, 100 trees)
DRAWN: Final = 400  # changes that are drawn where they are too many, or the model itself has to score each
CONFIDENCE: Final = 0.95


@dataclass(frozen=True)
class Response:
    """How the decision responds to the lawful changes of a set of groups.

    Attributes:
        groups: the set.
        share: of the lawful changes, those that turn the decision; 0 where none is lawful.
        weighted_share: the same, every value as often as the background has it; None: not asked for, not known for
            several groups, or the background has none of the values.
        changes: how many were scored.
        interval: of the share, where these were drawn; None: all were counted.
    """

    groups: Groups
    share: float
    weighted_share: float | None
    changes: int
    interval: tuple[float, float] | None = None


Responding = Generator[Asked, Outcome, list[Response] | None]


def responses(
    task: RowTask, sets: Sequence[Groups], tolerance: float, rng: np.random.Generator, *, weighted: bool
) -> Responding:
    """Return how the decision responds to each set of groups; None where the budget does not last.

    Args:
        task: the row.
        sets: of groups.
        tolerance: how far the structure's scores may be from the model's; what is nearer to the target's threshold is
            decided by the judge.
        rng: draws changes where they are too many to be counted.
        weighted: whether shares by the frequencies of the background are wanted, too.
    """
    if task.budget.take(len(sets)) < len(sets):
        return None
    scored = _scored(task, sets, SCORE_TOLERANCES * tolerance, rng)
    if scored is None:
        return None
    turned = [one.sure.copy() for one in scored]
    doubtful = [np.flatnonzero(one.may & ~one.sure) for one in scored]
    asked = sum(map(len, doubtful))
    if asked:
        if task.budget.take(asked) < asked:
            return None
        rows = task.problem.rows(np.concatenate([one.codes(some) for one, some in zip(scored, doubtful, strict=True)]))
        accepted, start = task.accepts(rows, (yield rows)), 0
        for here, some in zip(turned, doubtful, strict=True):
            here[some], start = accepted[start : start + len(some)], start + len(some)
    return [one.response(here, weighted=weighted) for one, here in zip(scored, turned, strict=True)]


class _Changes(NamedTuple):
    """The lawful changes of one set of groups, or some that were drawn of them.

    Attributes:
        groups: the set.
        codes: positions (m,) among them -> candidates (m, G).
        weights: (n,) how often the background has the value of each; None: not known.
        may, sure: (n,) whether each may turn the decision, and certainly does.
        drawn: whether there are more of them.
    """

    groups: Groups
    codes: Callable[[Codes], Codes]
    weights: Floats | None
    may: Bools
    sure: Bools
    drawn: bool

    def response(self, turned: Bools, *, weighted: bool) -> Response:
        """Return the share of those that `turned` (n,) the decision."""
        count = len(turned)
        share = int(turned.sum()) / count if count else 0.0
        by_weight = None
        if weighted and self.weights is not None and self.weights.sum() > 0 and not self.drawn:
            by_weight = float(self.weights[turned].sum() / self.weights.sum())
        interval = wilson(int(turned.sum()), count) if self.drawn and count else (0.0, 1.0) if self.drawn else None
        return Response(self.groups, share, by_weight, count, interval)


def _scored(task: RowTask, sets: Sequence[Groups], tolerance: float, rng: np.random.Generator) -> list[_Changes] | None:
    """Return the changes of every set with what is known of them; None where the budget does not last."""
    problem, several = task.problem, {}
    for groups in dict.fromkeys(groups for groups in sets if len(groups) > 1):
        grid = Grid(problem, groups, [problem.groups[group].admissible for group in groups])
        drawn = grid.size > (DRAWN if problem.scorer is None else MOST_COUNTED)
        count = DRAWN if drawn else grid.size
        work = count if problem.scorer is None else 1 + count // LISTED_PER_ROW
        if task.budget.take(work) < work:
            return None
        if drawn or problem.scorer is None:
            every = np.arange(0 if drawn else grid.size)
            codes = _drawn(grid, rng) if drawn else grid.codes(every)[grid.lawful(grid.codes(every))]
            several[groups] = _rated(problem, groups, codes, tolerance, drawn=drawn)
        else:
            several[groups] = _of_grid(grid, groups, problem.scorer, tolerance)
    alone = {groups for groups in sets if len(groups) == 1}
    singles = _singles(task, sorted(group for (group,) in alone), tolerance, rng) if alone else {}
    return None if singles is None else [several.get(groups) or singles[groups] for groups in sets]


def _singles(
    task: RowTask, groups: Sequence[int], tolerance: float, rng: np.random.Generator
) -> dict[Groups, _Changes] | None:
    """Return the changes of single groups: all of them by a sweep, or some by asking the model itself."""
    problem, actions = task.problem, task.problem.actions
    swept = None if problem.scorer is None else SweptChanges(problem, problem.scorer, actions)
    lawful = lawful_alone(problem, actions) if swept is None else swept.lawful
    may, sure = (lawful, lawful) if swept is None else swept.decisions(tolerance)
    found: dict[Groups, _Changes] = {}
    for group in groups:
        ids = np.arange(actions.start[group], actions.start[group + 1])
        ids = ids[lawful[ids]]
        weights, drawn = problem.groups[group].weights[ids - actions.start[group]], False
        if swept is None:
            drawn = len(ids) > DRAWN
            ids = rng.choice(ids, DRAWN) if drawn else ids
            if task.budget.take(len(ids)) < len(ids):
                return None
            found[(group,)] = _rated(problem, (group,), actions.candidates(ids[:, None]), tolerance, drawn=drawn)
            found[(group,)] = found[(group,)]._replace(weights=None if drawn else weights)
        else:
            codes = partial(_of_actions, actions, ids)
            found[(group,)] = _Changes((group,), codes, weights, may[ids], sure[ids], drawn)
    return found


def _of_actions(actions: ActionTable, ids: Codes, places: Codes) -> Codes:
    return actions.candidates(ids[places][:, None])


def _rated(problem: Problem, groups: Groups, codes: Codes, tolerance: float, *, drawn: bool) -> _Changes:
    """Return changes (n, G) with what the opened model, or else the model itself, says of them."""
    may, sure = np.zeros((2, len(codes)), dtype=np.bool_)
    scorer = problem.scorer
    size = max(AT_ONCE // len(problem.groups), 1)
    for start in range(0, len(codes), size):
        some = slice(start, start + size)
        if scorer is None:
            may[some] = sure[some] = problem.rate(problem.rows(codes[some])).favourable
        else:
            sums = scorer.structure.sums(problem.encoded(codes[some]))
            may[some], sure[some] = scorer.decisions(sums, tolerance + SWEPT)
    return _Changes(groups, lambda places: codes[places], None, may, sure, drawn)


def _of_grid(grid: Grid, groups: Groups, scorer: Scorer, tolerance: float) -> _Changes:
    """Return all lawful changes of several groups with what the opened model says of them."""
    places = np.arange(grid.size)
    places = places[grid.lawful(grid.codes(places))] if len(places) else places
    may, sure = np.zeros((2, len(places)), dtype=np.bool_)
    if len(places):
        may, sure = scorer.decisions(grid.sums(scorer)[places], tolerance + SWEPT)
    return _Changes(groups, lambda some: grid.codes(places[some]), None, may, sure, drawn=False)


def _drawn(grid: Grid, rng: np.random.Generator) -> Codes:
    """Return some lawful candidates (n, G), drawn with replacement; none where next to none is lawful."""
    kept, tried = grid.problem.own[None][:0], 0
    while len(kept) < DRAWN and tried < MOST_COUNTED:
        codes = grid.codes(rng.integers(0, grid.size, DRAWN))
        kept, tried = np.concatenate([kept, codes[grid.lawful(codes)]]), tried + DRAWN
    return np.asarray(kept[:DRAWN])


def wilson(turned: int, drawn: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the interval of a share of which so many `drawn` with replacement have `turned` (Wilson 1927)."""
    z = float(ndtri((1 + confidence) / 2))
    share, size = turned / drawn, 1 + z**2 / drawn
    middle = (share + z**2 / (2 * drawn)) / size
    half = z * np.sqrt(share * (1 - share) / drawn + z**2 / (4 * drawn**2)) / size
    return max(float(middle - half), 0.0), min(float(middle + half), 1.0)
