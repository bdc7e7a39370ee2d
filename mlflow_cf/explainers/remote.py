"""Searches of a model that another server answers for: every call costs, so each row may take so many and no more."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from mlflow_cf.explainers.explainer import Candidates, Search
from mlflow_cf.explainers.guide import Guide, SpentError
from mlflow_cf.features import Floats
from mlflow_cf.goal import Rating, Scorer
from mlflow_cf.model.remote import Remote, Session, UnavailableError
from mlflow_cf.problem import Budget, Problem
from mlflow_cf.structures.structure import Structure

CALLS_KEPT: Final = 8  # back for verification: candidates, what undoes their changes, and each answer alone
ROWS_KEPT: Final = 200
MOST_HANDED: Final = 32  # candidates, and of those that change the same no more than so many
MOST_ALIKE: Final = 4


@dataclass(eq=False)
class Asked:
    """The rows that a search asks the model about, within its calls; belongs to one row to explain.

    Attributes:
        problem: rates rows by the model; budget: of the row.
        session: counts calls; calls, rows: its counters beyond which nothing more is asked.
        known: the batches of rows (m, d) so far, with what the model said of each.
    """

    problem: Problem
    budget: Budget
    session: Session
    calls: int
    rows: int
    known: list[tuple[Floats, Rating]] = field(default_factory=list)

    @classmethod
    def of(cls, problem: Problem, budget: Budget, remote: Remote, session: Session) -> Asked:
        """Set up for a row, with some calls kept back for verification."""
        calls = remote.calls_per_row - min(CALLS_KEPT, remote.calls_per_row // 2)
        rows = remote.rows_per_row - min(ROWS_KEPT, remote.rows_per_row // 2)
        return cls(problem, budget, session, session.calls + calls, session.rows + rows)

    def rate(self, Z: Floats) -> Rating:
        """Rate rows (m, d) by the model.

        Raises:
            SpentError: calls, rows or the time of the row are used up.
            UnavailableError: the model cannot be asked.
        """
        if self.session.calls >= self.calls or self.session.rows + len(Z) > self.rows:
            self.budget.cut = self.budget.cut or "evaluations"
            raise SpentError
        try:
            rating = self.problem.rate(Z)
        except UnavailableError as error:
            if not error.late:
                raise
            self.budget.cut = "clock"
            raise SpentError from error
        self.known.append((Z, rating))
        return rating

    def favourable(self) -> Floats:
        """Return the rows (m, d) that meet everything, nearest first, those that change something new before others."""
        problem = self.problem
        parts = [Z[rating.favourable] for Z, rating in self.known]
        rows = np.concatenate([problem.background[:0], *parts])
        rows = rows[problem.check(rows)] if len(rows) else rows
        rows = rows[np.argsort(problem.bound_distance.distance(problem.columns, rows, problem.x0), kind="stable")]
        seen: dict[bytes, int] = {}
        kept = []
        for at, flags in enumerate(problem.changed(rows)):
            times = seen[flags.tobytes()] = seen.get(flags.tobytes(), 0) + 1
            if times <= MOST_ALIKE:
                kept.append(at)
        return rows[kept[: max(MOST_HANDED, 2 * problem.count)]]


def sparing(search_with: Search, remote: Remote, session: Session, surrogate: Structure | None) -> Search:
    """Return a search that asks the model no more often than it may for one row.

    Where a `surrogate` imitates the model, it proposes candidates first; `search_with` comes where these fail, or where
    there is none, with the calls that are left. What was found before they ran out counts.
    """

    def search(problem: Problem, budget: Budget, rng: np.random.Generator) -> Candidates:
        asked = Asked.of(problem, budget, remote, session)
        first, rows = session.calls, session.rows
        if surrogate is not None and problem.target is not None:
            scorer = Scorer.of([(surrogate, problem.target)], len(problem.space))
            Guide(problem, scorer, asked.rate, budget, rng).run()
        found = asked.favourable()
        guided = len(found) > 0
        if not guided and not budget.cut:
            try:
                handed = search_with(replace(problem, rate=asked.rate), budget, rng)
            except SpentError:
                found = asked.favourable()
            else:
                return handed
        spent = {"guided": guided, "search_calls": session.calls - first, "search_rows": session.rows - rows}
        return Candidates(found, spent)

    return search
