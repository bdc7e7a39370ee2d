"""Candidates of three changes that several models must all accept, which are listed by one of them at a time.

All three changes of one model of trees are scored in half a millisecond; of thirty together they are not. So the model
that lacks most of the row lists those that it may accept, and the others are asked about these alone: the nearest ones
first, and next of all models the one that has refused most. What every model may accept is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mlflow_cf.engine import thresholds
from mlflow_cf.engine.nearest_first import NearestFirst
from mlflow_cf.features import Floats
from mlflow_cf.goal.scorer import DecisionScore
from mlflow_cf.goal.unanimous import Together, Unanimous
from mlflow_cf.problem import Codes, Problem
from mlflow_cf.problem.actions import ActionTable
from mlflow_cf.structures import Structure
from mlflow_cf.structures.capabilities import SupportsTriples, boxes_of
from mlflow_cf.structures.kernels.triple_grid import AskedTriples, FoundTriples, GridChanges
from mlflow_cf.structures.structure import Encoded


@dataclass(frozen=True, eq=False)
class NearTriples:
    """Three changes that are near enough.

    Attributes:
        problem: of the row.
        actions: the changes, and the row's own values; changes: what they cost.
        asked: which groups may change together, and how far candidates are at most; the rest is filled in later.
    """

    problem: Problem
    actions: ActionTable
    changes: GridChanges
    asked: AskedTriples

    def within(self, limit: float, beyond: float = -1.0) -> NearTriples:
        """Return those that are farther than `beyond`, and no farther than `limit`."""
        return replace(self, asked=self.asked._replace(limit=limit, beyond=beyond))

    def of_one(self, structure: Structure, lead: DecisionScore, known: Floats) -> FoundTriples | None:
        """Return what may meet the target of a model, the only one; None: it does not tell, or there are too many.

        Args:
            structure: the model; lead: what decides.
            known: as far as answers are at most, ascending.
        """
        weights = np.ascontiguousarray(lead.weights)
        asked = self.asked._replace(weights=weights, may=float(lead.may), sure=float(lead.sure))
        return self._listed(structure, self.actions.encoded, asked, known)

    def of_some(self, many: Unanimous, some: Together) -> FoundTriples | None:
        """Return what some of many models may accept; None as there.

        The others decide, too: so that none stands for others, and none is left out because another one is nearer.
        """
        models = len(some.models)
        weights = np.tile(some.lead.weights, models)
        most = models * self.asked.most
        asked = self.asked._replace(weights=weights, may=float(some.lead.may), joins=False, models=models, most=most)
        return self._listed(
            some.structure, many.encoded(some.models[0], self.actions.encoded), asked, np.array([np.inf])
        )

    def _listed(
        self, structure: Structure, encoded: Sequence[Encoded], asked: AskedTriples, known: Floats
    ) -> FoundTriples | None:
        boxes = boxes_of(structure, encoded)
        return boxes.triples(self.changes, asked, known) if isinstance(boxes, SupportsTriples) else None

    def codes(self, found: FoundTriples) -> Codes:
        """Return the candidates (m, G) that were found."""
        return self.actions.candidates(self.actions.columns[found.at])

    @staticmethod
    def work(found: FoundTriples | None, models: int = 1) -> int:
        """Return what it takes from a budget to find them, of so many models."""
        return 1 if found is None else 1 + int(found.counts[1]) // (models * thresholds.TRIPLES_PER_ROW)


def triples_of_many(near: NearTriples, asking: NearestFirst) -> Codes | None:
    """Return the candidates (m, G) that may be answers, none farther than the first that certainly is one.

    None: there are too many, the structure does not tell, or the budget does not last.

    Args:
        near: what is near enough.
        asking: asks all models about candidates.
    """
    problem, limit, beyond, many = near.problem, float(near.asked.limit), float(near.asked.beyond), asking.many
    if many is None:
        return None
    hardest = many.hardest(asking.scorer.structure.sums(problem.encoded_row))
    parts = [problem.own[None][:0]]
    for _ in range(thresholds.MOST_LISTS):
        some = many.together(
            [*asking.order, *(model for model in hardest if model not in asking.order)], thresholds.LISTING
        )
        here = near.within(limit, beyond)
        found = here.of_some(many, some)
        work = here.work(found, len(some.models))
        if asking.budget.take(work) < work or found is None:
            return None
        codes = here.codes(found)
        accepted = asking.ask(codes, found.far, limit, some.models)
        if accepted is None:
            return None
        parts.append(codes[accepted.at])
        limit, beyond = accepted.limit, float(found.complete[0])
        if limit <= beyond:
            codes = np.concatenate(parts)
            return np.asarray(codes[problem.held(codes) & problem.check(problem.rows(codes))])
    return None
