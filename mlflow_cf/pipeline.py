"""Search, verify, polish, select: nothing leaves that the logged model and every constraint have not accepted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.explainers import Explainer
from mlflow_cf.features import Floats
from mlflow_cf.judge import Judge, Outcome
from mlflow_cf.problem import BoundTarget, Budget, Problem, contradiction, impossible
from mlflow_cf.result import Status

SPARE = 8  # candidates verified beyond twice the wanted number: a call to the judge costs the same


@dataclass(frozen=True, eq=False)
class Answer:
    """Verified counterfactuals of one row, nearest first among distinct changed sets.

    Attributes:
        status, reason: as in an explanation.
        rows: (k, d) codes.
        distance: (k,).
        outcome: what the judge said about them.
        diagnostics: statistics of the search.
    """

    status: Status
    reason: str
    rows: Floats
    distance: Floats
    outcome: Outcome
    diagnostics: dict[str, Any]


@dataclass(frozen=True, eq=False)
class _Court:
    """The judge with one row's problem and budget before it."""

    problem: Problem
    judge: Judge
    target: BoundTarget
    budget: Budget

    def accept(self, Z: Floats) -> tuple[NDArray[np.intp], Outcome]:
        """Return the positions of the rows that hold as decoded, whole rows, and what the judge said about them."""
        problem = self.problem
        frame = problem.space.decode(Z)
        decoded = problem.space.encode(frame)
        exact = ((decoded == Z) | (np.isnan(decoded) & np.isnan(Z))).all(axis=1)
        lawful = np.flatnonzero(exact & problem.check(decoded))
        lawful = lawful[: self.budget.take(len(lawful))]
        if not len(lawful):
            return lawful, Outcome(np.empty(0, dtype=np.intp), None)
        outcome = self.judge.verdict(frame.iloc[lawful].reset_index(drop=True))
        favourable = np.flatnonzero(self.target.rate(outcome).favourable)
        return lawful[favourable], outcome.take(favourable)

    def distance(self, Z: Floats) -> Floats:
        return self.problem.metric.distance(self.problem.columns, Z, self.problem.x0)


def explain_row(
    problem: Problem, explainer: Explainer, judge: Judge, target: BoundTarget, budget: Budget, rng: np.random.Generator
) -> Answer:
    """Answer one row whose target does not hold yet.

    Args:
        problem: the row with its constraints.
        explainer: searches.
        judge: proves.
        target: what the judge must say.
        budget: this row's; its reserve is for the proof.
        rng: the only source of randomness.
    """
    reason = impossible(problem)
    if reason:
        return _none("infeasible", reason, {})
    candidates = explainer.search(problem, budget, rng)
    budget.release()
    diagnostics = {**candidates.diagnostics, "cut": budget.cut}
    court = _Court(problem, judge, target, budget)
    found = _prove(court, candidates.rows, polish=explainer.polish)
    if found is not None:
        rows, distance, outcome = found
        return Answer("found", "", rows, distance, outcome, diagnostics)
    if budget.cut:
        limit = "time limit" if budget.cut == "clock" else "evaluation limit"
        return _none("budget", f"stopped by the {limit} after {budget.used:,} evaluations", diagnostics)
    reason = contradiction(problem)
    if reason:
        return _none("infeasible", reason, diagnostics)
    return _none("not_found", f"no counterfactual among {budget.used:,} rows tried", diagnostics)


def _none(status: Status, reason: str, diagnostics: dict[str, Any]) -> Answer:
    nothing = Outcome(np.empty(0, dtype=np.intp), None)
    return Answer(status, reason, np.empty((0, 0)), np.empty(0), nothing, diagnostics)


def _prove(court: _Court, rows: Floats, *, polish: bool) -> tuple[Floats, Floats, Outcome] | None:
    """Verify and polish candidates, nearest first, until enough distinct changed sets are proved."""
    count = court.problem.count
    queue = _distinct_first(court.problem, rows)
    proved: list[tuple[Floats, Outcome]] = []
    while len(queue):
        batch, queue = queue[: 2 * count + SPARE], queue[2 * count + SPARE :]
        kept, outcome = court.accept(batch)
        batch = batch[kept]
        if polish and len(batch):
            batch, outcome = _polish(court, batch, outcome)
        proved.append((batch, outcome))
        sets = court.problem.changed(np.concatenate([part for part, _ in proved]))
        if len(np.unique(sets, axis=0)) >= count or court.budget.spent:
            break
    proved = [part for part in proved if len(part[0])]
    if not proved:
        return None
    Z = np.concatenate([part for part, _ in proved])
    outcome = _joined([part for _, part in proved])
    chosen = _select(court, Z)[:count]
    return Z[chosen], court.distance(Z[chosen]), outcome.take(chosen)


def _distinct_first(problem: Problem, rows: Floats) -> Floats:
    """Order candidates so that the first of every changed set comes before all repetitions."""
    if not len(rows):
        return rows
    _, first = np.unique(problem.changed(rows), axis=0, return_index=True)
    first.sort()
    return np.concatenate([rows[first], np.delete(rows, first, axis=0)])


def _select(court: _Court, Z: Floats) -> NDArray[np.intp]:
    """Return positions of distinct rows: the nearest of every changed set first, then the others by distance."""
    changed = court.problem.changed(Z)
    keys = (*np.where(np.isnan(Z), np.inf, Z).T[::-1], changed.sum(axis=1), court.distance(Z))
    order = np.lexsort(keys)
    leaders: list[int] = []
    others: list[int] = []
    sets: set[bytes] = set()
    rows: set[bytes] = set()
    for position in order.tolist():
        row, key = Z[position].tobytes(), changed[position].tobytes()
        if row in rows:
            continue
        rows.add(row)
        (others if key in sets else leaders).append(position)
        sets.add(key)
    return np.array(leaders + others, dtype=np.intp)


def _polish(court: _Court, Z: Floats, outcome: Outcome) -> tuple[Floats, Outcome]:
    """Undo whole groups while the judge still accepts, so that every answer is 1-minimal."""
    Z = Z.copy()
    active = np.arange(len(Z))
    source = np.arange(len(Z))  # where in `outcome` each row's verdict stands
    while len(active) and not court.budget.spent:
        owner, variants = _undone(court.problem, Z[active])
        if not len(variants):
            break
        kept, verdict = court.accept(variants)
        better = []
        for position in np.unique(owner[kept]):
            options = np.flatnonzero(owner[kept] == position)
            nearest = options[np.argmin(court.distance(variants[kept[options]]))]
            row = active[position]
            Z[row] = variants[kept[nearest]]
            source[row] = len(outcome.codes) + nearest
            better.append(row)
        outcome = _joined([outcome, verdict])
        active = np.array(better, dtype=np.intp)
    return Z, outcome.take(source)


def _undone(problem: Problem, Z: Floats) -> tuple[NDArray[np.intp], Floats]:
    """Return every row with one changed group put back (and something still changed), and whose it is."""
    changed = problem.changed(Z)
    allowed = np.array([group.own_allowed for group in problem.groups])
    owner, number = np.nonzero(changed & allowed & (changed.sum(axis=1) > 1)[:, None])
    variants = Z[owner]
    for position, columns in enumerate(problem.columns):
        rows = np.flatnonzero(number == position)
        variants[rows[:, None], columns] = problem.x0[list(columns)]
    return owner, variants


def _joined(outcomes: list[Outcome]) -> Outcome:
    scores = [outcome.scores for outcome in outcomes if outcome.scores is not None]
    return Outcome(
        np.concatenate([outcome.codes for outcome in outcomes]),
        np.concatenate(scores) if scores else None,
        np.concatenate([outcome.values for outcome in outcomes]),
    )
