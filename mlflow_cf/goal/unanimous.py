"""Models that must all accept a candidate, one by one: what one of them refuses, the others need not be asked about."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.features import Floats
from mlflow_cf.goal.scorer import DecisionScore, Scorer
from mlflow_cf.goal.targets import SumTarget, lacking
from mlflow_cf.structures.capabilities import SupportsOutputs
from mlflow_cf.structures.joined import Joined
from mlflow_cf.structures.structure import Encoded, Structure


class Alike(NamedTuple):
    """Models of one structure, whose raw scores stand side by side.

    Attributes:
        target: what each must say, over the raw scores of all.
        lead: the number that decides whether one of them accepts a candidate, over its own raw scores.
        models: how many they are.
    """

    target: SumTarget
    lead: DecisionScore
    models: int

    def leads(self, sums: Floats) -> Floats:
        """Return the numbers (m, models) that decide about candidates with raw scores (m, k)."""
        found: Floats = self.target.each(self.target.of(sums)) @ self.lead.weights
        return found.reshape(len(sums), self.models)


class Some(NamedTuple):
    """Some models of one structure, without the others.

    Attributes:
        structure: the raw scores of these models, one after the other.
        lead: the number that decides about each, over its own raw scores.
        encoded: returns the structure's encoded values, of those of all models.
    """

    structure: Structure
    lead: DecisionScore
    encoded: Callable[[Sequence[Encoded]], list[Encoded]]


@dataclass(frozen=True, eq=False)
class Unanimous:
    """The models of joined structures, all of which must accept a candidate.

    Attributes:
        joined: their structures; alike: the models of each.
    """

    joined: Joined
    alike: tuple[Alike, ...]
    _some: dict[tuple[int, ...], Some] = field(default_factory=dict)

    @classmethod
    def of(cls, scorer: Scorer, tolerance: float) -> Unanimous | None:
        """Return the models of a scorer, whose scores may be off by `tolerance` in units of max(1, |score|).

        None: there is one model alone, some may refuse, or a model does not decide by one number.
        """
        joined = scorer.structure
        if not isinstance(joined, Joined):
            return None
        alike: list[Alike] = []
        for structure, target in zip(joined.structures, scorer.targets, strict=True):
            lead = DecisionScore.of([target.alone], tolerance)
            many = 1 if target.votes is None else target.votes.of
            all_needed = target.votes is None or target.votes.needed == many
            if lead is None or not all_needed or not (many == 1 or isinstance(structure, SupportsOutputs)):
                return None
            alike.append(Alike(target, lead, many))
        return cls(joined, tuple(alike))

    def hardest_first(self, sums: Floats) -> list[int]:
        """Return all models, those first that lack most of a candidate with raw scores (1, k)."""
        lacks = [lacking(one.target.each(one.target.of(sums)), [one.target.alone]) for one in self.alike]
        order: list[int] = np.argsort(-np.nan_to_num(np.concatenate(lacks), nan=-np.inf), kind="stable").tolist()
        return order

    def first_of(self, models: Sequence[int], most: int) -> tuple[int, ...]:
        """Return the first of some models and the next ones in the same structure, so many at most, ascending."""
        part = self._place(models[0])[0]
        return tuple(sorted([model for model in models if self._place(model)[0] == part][:most]))

    def some(self, models: tuple[int, ...]) -> Some:
        """Return some models of one structure, ascending."""
        known = self._some.get(models)
        return known or self._some.setdefault(models, self._opened(models))

    def may(self, sums: Floats) -> Bools:
        """Return (m, models) which of them may accept candidates with raw scores (m, k)."""
        return np.concatenate([one.leads(sums) >= one.lead.may for one in self.alike], axis=1)

    def sure(self, sums: Floats) -> Bools:
        """Return (m,) which candidates with raw scores (m, k) all of them certainly accept."""
        sure: Bools = np.logical_and.reduce([(one.leads(sums) >= one.lead.sure).all(axis=1) for one in self.alike])
        return sure

    def refused(self, model: int, encoded: Sequence[Encoded]) -> Bools:
        """Return (m,) which of m candidates one of the models certainly refuses."""
        one = self.some((model,))
        refused: Bools = one.structure.sums(one.encoded(encoded)) @ one.lead.weights < one.lead.may
        return refused

    def _place(self, model: int) -> tuple[int, int]:
        """Return which structure a model is in, and which one of its models it is."""
        part = 0
        while model >= self.alike[part].models:
            model, part = model - self.alike[part].models, part + 1
        return part, model

    def _opened(self, models: tuple[int, ...]) -> Some:
        part, first = self._place(models[0])
        structure, alike = self.joined.structures[part], self.alike[part]
        if len(models) < alike.models and isinstance(structure, SupportsOutputs):
            at = np.array(models) - models[0] + first
            structure = structure.only((at[:, None] * alike.target.width + np.arange(alike.target.width)).ravel())
        return Some(structure, alike.lead, partial(self.joined.of_part, part))
