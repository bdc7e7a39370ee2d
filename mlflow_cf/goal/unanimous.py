"""Models that must all accept a candidate, one by one: what one of them refuses, the others need not be asked about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

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


class Together(NamedTuple):
    """Some models of one structure, and what decides about each of them.

    Attributes:
        models: which ones, in the order of their raw scores; structure: they alone.
        lead: the number that decides, over the raw scores of one of them.
    """

    models: tuple[int, ...]
    structure: Structure
    lead: DecisionScore


@dataclass(frozen=True, eq=False)
class Unanimous:
    """The models of joined structures, all of which must accept a candidate.

    Attributes:
        joined: their structures; alike: the models of each.
    """

    joined: Joined
    alike: tuple[Alike, ...]
    _alone: dict[int, Structure] = field(default_factory=dict)

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
            free = target.votes is not None and target.votes.needed < many
            if lead is None or free or not (many == 1 or isinstance(structure, SupportsOutputs)):
                return None
            alike.append(Alike(target, lead, many))
        return cls(joined, tuple(alike))

    def hardest(self, sums: Floats) -> list[int]:
        """Return all models, those first that lack most of a candidate with raw scores (1, k)."""
        lacks = [lacking(one.target.each(one.target.of(sums)), [one.target.alone]) for one in self.alike]
        order: list[int] = np.argsort(-np.nan_to_num(np.concatenate(lacks), nan=-np.inf), kind="stable").tolist()
        return order

    def together(self, models: Sequence[int], most: int) -> Together:
        """Return the first of some models, and of the others the first ones in the same structure, so many at most."""
        part = self._place(models[0])[0]
        first = models[0] - self._place(models[0])[1]
        some = [model for model in models if self._place(model)[0] == part][:most]
        structure, width = self.joined.structures[part], self.alike[part].target.width
        outputs = (np.array(some) - first)[:, None] * width + np.arange(width)
        if len(some) < self.alike[part].models and isinstance(structure, SupportsOutputs):
            structure = structure.only(outputs.ravel())
        else:
            some = sorted(some)
        return Together(tuple(some), structure, self.alike[part].lead)

    def may(self, sums: Floats) -> Bools:
        """Return (m, models) which of them may accept candidates with raw scores (m, k)."""
        return np.concatenate([one.leads(sums) >= one.lead.may for one in self.alike], axis=1)

    def sure(self, sums: Floats) -> Bools:
        """Return (m,) which candidates with raw scores (m, k) all of them certainly accept."""
        sure: Bools = np.logical_and.reduce([(one.leads(sums) >= one.lead.sure).all(axis=1) for one in self.alike])
        return sure

    def lead(self, model: int) -> DecisionScore:
        """Return the number that decides whether one of the models accepts a candidate."""
        return self.alike[self._place(model)[0]].lead

    def structure(self, model: int) -> Structure:
        """Return one of the models."""
        known = self._alone.get(model)
        return known or self._alone.setdefault(model, self._opened(*self._place(model)))

    def encoded(self, model: int, encoded: Sequence[Encoded]) -> list[Encoded]:
        """Return one model's encoded values, of those of all."""
        return self.joined.of_part(self._place(model)[0], encoded)

    def refused(self, model: int, encoded: Sequence[Encoded]) -> Bools:
        """Return (m,) which of m candidates one of the models certainly refuses."""
        lead, sums = self.lead(model), self.structure(model).sums(self.encoded(model, encoded))
        refused: Bools = sums @ lead.weights < lead.may
        return refused

    def _place(self, model: int) -> tuple[int, int]:
        """Return which structure a model is in, and which one of its models it is."""
        part = 0
        while model >= self.alike[part].models:
            model, part = model - self.alike[part].models, part + 1
        return part, model

    def _opened(self, part: int, at: int) -> Structure:
        structure, width = self.joined.structures[part], self.alike[part].target.width
        outputs: NDArray[np.intp] = at * width + np.arange(width)
        if self.alike[part].models > 1 and isinstance(structure, SupportsOutputs):
            return structure.only(outputs)
        return structure
