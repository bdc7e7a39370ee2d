"""What must be true of every answer, asked of the model itself and of the independent checker.

Also what becomes of the candidates that an explainer hands over: their order, and their plans.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from operator import le
from typing import Any, ClassVar, Final

import numpy as np
import pandas as pd
import pytest

from mlflow_cf.explainers import Candidates, Search
from mlflow_cf.explainers.explainer import keeps_order, returns_rows
from mlflow_cf.problem import Budget, Problem
from mlflow_cf.problem.binding import same
from mlflow_cf.testing.checker import Row, plain_rows
from mlflow_cf.testing.trial import COUNT, EVALUATIONS, Trial
from mlflow_cf.words.result import Explanation
from mlflow_cf.words.statements import phrases_in


def check_agreement(trial: Trial) -> None:
    """Every counterfactual meets the target when the model is asked again, without the package."""
    found = list(trial.found())
    for (position, _, answer), reply in zip(found, trial.ask([answer.row for *_, answer in found]), strict=True):
        assert trial.met(position, reply), (answer, reply)
        assert _same_prediction(trial, answer.prediction, reply.prediction), (answer, reply)


def check_constraints(trial: Trial) -> None:
    """Every counterfactual is feasible for a checker that shares no code with the package."""
    for _, query, answer in trial.found():
        assert trial.checker.faults(query, answer.row) == []


def check_account(trial: Trial) -> None:
    """Changes, their number, the distance and the text are those of the row."""
    for _, query, answer in trial.found():
        changes = {change.feature: (change.old, change.new) for change in answer.changes}
        assert changes == {name: (query[name], new) for name, new in answer.row.items() if query[name] != new}
        assert answer.n_changed == len(changes)
        assert answer.distance == pytest.approx(trial.ruler.distance(query, answer.row), abs=1e-9)
        assert all(name in answer.text for name in changes)


def check_order(trial: Trial) -> None:
    """No two rows are equal; the best of every set of changed groups come first; there are not too many.

    The best are the nearest, unless the explainer keeps its own order.
    """
    for query, answer in zip(trial.queries, trial.answers, strict=True):
        rows = [found.row for found in answer.counterfactuals]
        assert len(rows) <= COUNT
        assert len({tuple(row.items()) for row in rows}) == len(rows)
        sets = [tuple(trial.checker.changed_groups(query, row)) for row in rows]
        others = len(set(sets))
        assert len(set(sets[:others])) == others
        if keeps_order(trial.explainer):
            continue
        distances = [found.distance for found in answer.counterfactuals]
        assert distances == sorted(distances[:others]) + sorted(distances[others:])


def check_needless(trial: Trial) -> None:
    """No changed group of an answer can be put back, unless the budget ended before that was sure.

    What would break the explainer's own promise must stay.
    """
    for position, query, answer in trial.found():
        if trial.answers[position].evaluations >= EVALUATIONS:
            continue
        groups = trial.checker.changed_groups(query, answer.row)
        undone = ({**answer.row, **{name: query[name] for name in group}} for group in groups)
        simpler = [row for row in undone if trial.checker.accepts(query, row)]
        assert _as_promised(trial, position, _meeting(trial, position, simpler)) == [], answer.row


def check_statuses(trial: Trial) -> None:
    """The status says what happened, and every row without a counterfactual says why."""
    for position, (answer, reply) in enumerate(zip(trial.answers, trial.replies, strict=True)):
        assert _same_prediction(trial, answer.prediction, reply.prediction)
        if trial.met(position, reply):
            assert (answer.status, answer.reason, answer.evaluations) == ("already", "", 0)
            assert answer.counterfactuals == ()
            continue
        assert answer.status in ("found", "not_found", "infeasible", "budget")
        assert bool(answer.counterfactuals) == (answer.status == "found")
        if answer.status == "found":
            assert not answer.reason or {"not_certified", "fewer"} & set(phrases_in(answer.reason))
        else:
            assert answer.reason
        if answer.status == "infeasible":  # a background row that is a counterfactual disproves it
            query = trial.queries[position]
            feasible = [row for row in plain_rows(trial.background) if trial.checker.accepts(query, row)]
            assert _meeting(trial, position, feasible) == []


def _as_promised(trial: Trial, position: int, rows: list[Row]) -> list[Row]:
    """Return the rows that keep what the explainer promises of its answers to the row at this position."""
    for place, _, problem, candidates in searches_of(trial) if rows else ():
        if place == position and candidates.promise is not None:
            coded = problem.space.encode(pd.DataFrame(rows).astype(trial.rows.dtypes))
            return [row for row, kept in zip(rows, candidates.promise(coded), strict=True) if kept]
    return rows


def _meeting(trial: Trial, position: int, rows: Sequence[Row]) -> list[Row]:
    return [row for row, reply in zip(rows, trial.ask(rows), strict=True) if trial.met(position, reply)]


def _same_prediction(trial: Trial, replied: Any, asked: Any) -> bool:
    """Whether two predictions are one; values may differ in the last bits of the library's own type."""
    return bool(replied == asked) if trial.model.labels else replied == pytest.approx(asked, rel=1e-6, abs=1e-6)


STEP: Final = {"step", "action", "changes", "effort", "discount", "probability", "row"}
ENOUGH: Final = 6  # candidates, to tell chance from habit


@dataclass(frozen=True)
class Noting:
    """An explainer that searches as another does, and notes what it hands over."""

    searching: Search
    polish: bool
    keeps_order: bool
    noted: list[tuple[Problem, Candidates]] = field(default_factory=list)

    name: ClassVar[str] = "noting"

    def search(self, problem: Problem, budget: Budget, rng: np.random.Generator) -> Candidates:
        """Search as the other does."""
        found = self.searching(problem, budget, rng)
        self.noted.append((problem, found))
        return found


def check_own_order(trial: Trial) -> None:
    """Where an explainer keeps its order, the answers are its first acceptable candidates, changed sets all different.

    Only if there are too few sets do others follow, in its order too. Of plans of actions those come before all others
    that none beats in cost, steps and changed features, and the cheapest of every number of steps. Polished answers
    are other rows than those handed over, and a search that the budget ended may have proved others; neither is
    compared.
    """
    for position, answer, problem, candidates in searches_of(trial):
        cut = answer.evaluations >= EVALUATIONS
        if not keeps_order(trial.explainer) or trial.explainer.polish or cut:
            continue
        rows = [problem.space.values(row) for row in candidates.rows[candidates.order]]
        leading = _leading(candidates, rows, trial.queries[position])
        assert [found.row for found in answer.counterfactuals] == _first_acceptable(trial, position, rows, leading)


def _leading(candidates: Candidates, rows: Sequence[Row], query: Row) -> list[Row]:
    """Return which of rows in their explainer's order come first whatever they change."""
    if candidates.plans is None or candidates.action_model is None or candidates.costs is None or candidates.as_listed:
        return []
    facts = [
        (cost, len(candidates.plans[number]), sum(row[name] != query[name] for name in row))
        for number, cost, row in zip(candidates.order, candidates.costs[candidates.order], rows, strict=True)
    ]
    lengths = [steps for _, steps, _ in facts]
    shorter = [at for at, steps in enumerate(lengths) if all(steps < before for before in lengths[:at])]
    front = [
        at
        for at, fact in enumerate(facts)
        if not any(other != fact and all(map(le, other, fact)) for other in facts) and fact not in facts[:at]
    ]
    cheapest = [lengths.index(steps) for steps in lengths]
    return [rows[at] for at in dict.fromkeys([*shorter, *front, *sorted(cheapest)])]


def _first_acceptable(trial: Trial, position: int, rows: Sequence[Row], leading: Sequence[Row]) -> list[Row]:
    """Return what the independent checker and the model itself leave of rows, distinct changed sets first."""
    query = trial.queries[position]
    rows = [*leading, *(row for row in rows if row not in leading)]
    lawful = [row for row in rows if trial.checker.accepts(query, row)]
    met = _meeting(trial, position, lawful)
    sets: dict[Hashable, Row] = {}
    for row in met:
        sets.setdefault(tuple(trial.checker.changed_groups(query, row)), row)
    leaders = [row for row in met if row in leading or row in sets.values()]
    others: list[Row] = []
    for row in met:
        if row not in leaders and row not in others:
            others.append(row)
    return [*leaders, *others][:COUNT]


def check_plans(trial: Trial) -> None:
    """Plans reach the reply whole: step by step, in each feature's own type, ending at their counterfactual."""
    for _, answer, problem, candidates in searches_of(trial):
        handed = candidates.plans or ()
        plans = [[problem.space.values(step.row) for step in plan] for plan in handed]
        for found in answer.counterfactuals:
            assert bool(found.plan) == bool(handed)
            record = json.loads(json.dumps(found.to_dict(), allow_nan=False))
            if handed:
                assert [step.step for step in found.plan] == list(range(1, len(found.plan) + 1))
                assert [dict(step.row) for step in found.plan] in plans
                assert record["plan"][-1]["row"] == record["row"]
                assert all(set(step) == STEP for step in record["plan"])


def check_rows_told(trial: Trial) -> None:
    """An explainer that hands over rows of the background says so: their owner decides who may see them.

    One or the other may be met by chance, and is then changed by polishing; that most are is no chance.
    """
    if returns_rows(trial.explainer):
        return
    met = [
        same(problem.background, row).all(axis=1).any()
        for _, _, problem, candidates in searches_of(trial)
        for row in candidates.rows
    ]
    if len(met) >= ENOUGH:
        assert sum(met) <= len(met) / 2, "candidates are background rows: declare returns_rows = True"


def searches_of(trial: Trial) -> list[tuple[int, Explanation, Problem, Candidates]]:
    """Return (position, answer, problem, candidates) of every row that is searched for; each is asked alone."""
    searching = trial.explained.searches.of(trial.explainer, None)
    assert searching is not None
    kept = []
    for position, expected in enumerate(trial.answers):
        noting = Noting(searching, trial.explainer.polish, keeps_order(trial.explainer))
        (answer,) = trial.explain(trial.rows.iloc[[position]], explainer=noting)
        assert [found.row for found in answer.counterfactuals] == [found.row for found in expected.counterfactuals]
        kept += [(position, answer, *noted) for noted in noting.noted[-1:]]
    return kept
