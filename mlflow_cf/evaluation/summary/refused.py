"""The rows that miss the target, and what the logged model and the constraints say of changes of them."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import pandas as pd

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.evaluation.summary.changes import CommonChange, applied
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.goal import BoundTarget, Requirements
from mlflow_cf.goal.requirements import rate_all
from mlflow_cf.goal.targets import spread_of
from mlflow_cf.model.judge import Judge, Outcome
from mlflow_cf.model.remote import UnavailableError
from mlflow_cf.problem import BoundPolicy, Codes
from mlflow_cf.proof.given import verdicts_on

TOGETHER: Final = 2**15  # rows that the model is asked about at once
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class RefusedRows:
    """The rows that miss the target.

    Attributes:
        explained, space: the model, and its features with codes for all levels of the rows.
        places: (n,) where these rows stand among all.
        X: (n, d) their codes; own: (n,) their own labels, by position among the model's classes.
        groups: (n,) their groups; empty: they have none.
    """

    explained: ExplainedModel
    space: FeatureSpace
    places: Codes
    X: Floats
    own: Codes
    groups: tuple[str, ...]

    @classmethod
    def of(cls, explained: ExplainedModel, table: pd.DataFrame, groups: pd.Series | None) -> RefusedRows:
        """Ask which rows of a table miss the target; rows that cannot be read, or asked about, are left out."""
        space, codes, faults = explained.space.encode_covered(table)
        good = np.array([row for row in range(len(table)) if row not in faults], dtype=np.intp)
        every = cls(explained, space, good, codes[good], np.full(len(good), -1), ())
        missed = np.zeros(len(good), dtype=np.bool_)
        try:
            for at, outcome in every._outcomes(explained.judge, every.X):
                every.own[at] = outcome.codes
                for label, some in every._by_label(outcome.codes):
                    missed[at[some]] = ~every._target(label).met(outcome.take(some))
        except UnavailableError as error:
            _logger.warning("rows are left out of the summary: %s", error)
        names = () if groups is None else tuple(groups.iloc[good[missed]].map(str))
        return cls(explained, space, good[missed], every.X[missed], every.own[missed], names)

    def __len__(self) -> int:
        return len(self.X)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """How many rows are in each group."""
        return dict(sorted(Counter(self.groups).items()))

    @cached_property
    def requirements(self) -> Requirements:
        """What the policy requires of all answers."""
        return self.explained.context.required

    @cached_property
    def bound_policy(self) -> BoundPolicy:
        """The policy, with rules that can compare all levels of the rows."""
        return self.explained.bound_policy.covering(self.space)

    @cached_property
    def unread(self) -> Bools:
        """(n,) which rows have a level that a structure may read otherwise than its model."""
        return np.asarray(self.requirements.unread_levels(self.space, self.X).any(axis=1))

    def labels(self) -> Iterator[tuple[int, Codes]]:
        """Yield the labels that the target depends on, -1 for none, with the rows that have each."""
        return self._by_label(self.own)

    def _by_label(self, own: Codes) -> Iterator[tuple[int, Codes]]:
        if not self.explained.policy.target.differs:
            yield -1, np.arange(len(own))
            return
        for label in np.unique(own).tolist():
            yield label, np.flatnonzero(own == label)

    def turned(self, Z: Floats, at: Codes) -> Bools:
        """Return (m,) which of changed rows Z (m, d) of the rows `at` (m,) the model and all requirements accept."""
        found = np.zeros(len(Z), dtype=np.bool_)
        for some, outcome in self._outcomes(self.requirements.judges, Z):
            for label, mine in self._by_label(self.own[at[some]]):
                targets = self.requirements.targets(self._target(label))
                found[some[mine]] = rate_all(targets, outcome.take(mine)).favourable
        return found

    def distance(self, change: CommonChange, at: Codes) -> Floats:
        """Return how far a change takes the rows `at` (m,)."""
        columns = tuple(domain.columns for domain in self.bound_policy.domains)
        X = self.X[at]
        return self.bound_policy.bound_distance.distance(columns, applied(change, self.space, X), X)

    def verified(self, change: CommonChange, at: Codes) -> Bools:
        """Return whether a change of the rows `at` (m,) is a counterfactual, as everybody is told who asks."""
        found = [np.zeros(0, dtype=np.bool_)]
        for some in np.split(at, range(TOGETHER, len(at), TOGETHER)):
            X = self.X[some]
            rows, changed = self.space.decode(X), self.space.decode(applied(change, self.space, X))
            if len(some):
                target = self.explained.policy.target
                found.append(verdicts_on(self.requirements, self.explained.bound_policy, target, rows, changed).ok)
        return np.concatenate(found)

    def _target(self, label: int) -> BoundTarget:
        target, model = self.explained.policy.target, self.explained.model
        return BoundTarget(target, model, label, spread_of(self.explained.outcome) if target.interval else 1.0)

    def _outcomes(self, judge: Judge, Z: Floats) -> Iterator[tuple[Codes, Outcome]]:
        """Yield what a judge says of rows (m, d), and which of them; those that make it fail are left out.

        Raises:
            UnavailableError: a model that another server answers for cannot be asked.
        """
        waiting = [np.arange(start, min(start + TOGETHER, len(Z))) for start in range(0, len(Z), TOGETHER)]
        while waiting:
            at = waiting.pop()
            try:
                outcome = judge.verdict(self.space.decode(Z[at]))
            except UnavailableError:  # to ask again for each part would not help
                raise
            except Exception:  # noqa: BLE001  any model, any error: what can be predicted must still be counted
                waiting.extend(np.array_split(at, 2) if len(at) > 1 else [])
                continue
            yield at, outcome
