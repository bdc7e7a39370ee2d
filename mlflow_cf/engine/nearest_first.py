"""Candidates that some of many models may accept: all models are asked about them, the nearest ones first.

Of models that must all accept a candidate, the one that has refused most is asked before the others about what is left.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.engine import thresholds
from mlflow_cf.features import Floats
from mlflow_cf.goal import Scorer
from mlflow_cf.goal.unanimous import Unanimous
from mlflow_cf.problem import Budget, Codes, Problem
from mlflow_cf.rounding import loose


class Accepted(NamedTuple):
    """Candidates that all models may accept, the nearest first.

    Attributes:
        at: (n,) which ones; sure: (n,) whether each certainly meets the targets, and all rules.
        limit: no farther ones were asked about.
    """

    at: Codes
    sure: Bools
    limit: float


class NearestFirst:
    """Questions to all models about candidates of one row; what one refused tells whom to ask first later."""

    def __init__(self, problem: Problem, scorer: Scorer, tolerance: float) -> None:
        """Set up questions to the models of a scorer, whose scores may be off by `tolerance`."""
        self.problem, self.scorer, self.tolerance = problem, scorer, tolerance
        self.many = Unanimous.of(scorer, tolerance)
        self._alone: list[int] = []  # the models that are asked before others, one by one, the last that refused first

    def ask(self, codes: Codes, far: Floats, limit: float, budget: Budget) -> Accepted | None:
        """Return those of candidates (m, G), so far away (m,), that may be answers; None: the budget does not last.

        None is farther than `limit`, or than one that certainly is an answer.
        """
        order, some, found = np.argsort(far, kind="stable"), thresholds.ASKED_FIRST, Accepted(_NONE, _NO, limit)
        while len(order) and far[order[0]] <= found.limit:
            left, order = order[:some], order[some:]
            some *= thresholds.MORE_ASKED
            for model in self._alone:
                left = self._not_refused_by(model, codes, left)
            more = self._ask_all(codes, far, left, found.limit, budget)
            if more is None:
                return None
            at, sure = np.append(found.at, more.at), np.append(found.sure, more.sure)
            found = Accepted(at, sure, more.limit)
        return found

    def _ask_all(self, codes: Codes, far: Floats, left: Codes, limit: float, budget: Budget) -> Accepted | None:
        """Do the same for those that are `left` (n,), nearest first."""
        parts, sure = [_NONE], [_NO]
        while len(left) and far[left[0]] <= limit:
            first, left = left[: thresholds.ASKED_AT_ONCE], left[thresholds.ASKED_AT_ONCE :]
            if budget.take(len(first)) < len(first):
                return None
            known = len(self._alone)
            may, certain = self._decided(codes[first])
            accepted = first[may]
            certain = certain[may] & self.problem.lawful(codes[accepted])
            parts.append(accepted)
            sure.append(certain)
            limit = min([limit, *(loose(each) for each in far[accepted[certain]][:1].tolist())])
            if len(self._alone) > known:
                left = self._not_refused_by(self._alone[0], codes, left)
        return Accepted(np.concatenate(parts), np.concatenate(sure), limit)

    def _decided(self, codes: Codes) -> tuple[Bools, Bools]:
        """Return (m,) which candidates may meet the targets, and which certainly do.

        The model that refuses most of them is asked before the others from now on.
        """
        sums = self.scorer.structure.sums(self.problem.encoded(codes))
        if self.many is None:
            return self.scorer.decisions(sums, self.tolerance)
        may = self.many.may(sums)
        refusing = int(may.sum(axis=0).argmin())
        if refusing not in self._alone and not may[:, refusing].all():
            self._alone.insert(0, refusing)
        return np.asarray(may.all(axis=1)), self.many.sure(sums)

    def _not_refused_by(self, model: int, codes: Codes, some: Codes) -> Codes:
        """Return those of `some` candidates (n,) that one model may accept."""
        if self.many is None or not len(some):
            return some
        refused: Bools = self.many.refused(model, self.problem.encoded(codes[some]))
        return some[~refused]


_NONE, _NO = np.empty(0, dtype=np.intp), np.empty(0, dtype=np.bool_)
