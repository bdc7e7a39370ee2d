"""Models that must all accept a candidate, one by one: what one of them refuses, the others need not be asked about."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.features import Floats
from mlflow_cf.goal.decision import DecisionScore
from mlflow_cf.goal.scorer import Scorer
from mlflow_cf.goal.targets import SumTarget
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
        return self.target.leads(sums, self.lead.weights)


def all_needed(scorer: Scorer, tolerance: float) -> tuple[Alike, ...] | None:
    """Return the models of a scorer, structure after structure, all of which must accept a candidate.

    None: some may refuse, or a model does not decide by one number. Scores may be off by `tolerance`, in units of
    max(1, |score|).
    """
    found: list[Alike] = []
    for target in scorer.targets:
        lead, votes = DecisionScore.of([target.alone], tolerance), target.votes
        if lead is None or (votes is not None and votes.needed < votes.of):
            return None
        found.append(Alike(target, lead, 1 if votes is None else votes.of))
    return tuple(found)


class Alone(NamedTuple):
    """One of the models of a structure, without the others.

    Attributes:
        structure: its raw scores.
        lead: the number that decides about it, over its own raw scores.
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
    _alone: dict[int, Alone] = field(default_factory=dict)

    @classmethod
    def of(cls, scorer: Scorer, tolerance: float) -> Unanimous | None:
        """Return the models of a scorer, whose scores may be off by `tolerance` in units of max(1, |score|).

        None: there is one model alone, some may refuse, a model does not decide by one number, or is not scored alone.
        """
        joined, alike = scorer.structure, all_needed(scorer, tolerance)
        if not isinstance(joined, Joined) or alike is None:
            return None
        parts = zip(joined.structures, alike, strict=True)
        apart = all(one.models == 1 or isinstance(part, SupportsOutputs) for part, one in parts)
        return cls(joined, alike) if apart else None

    def may(self, sums: Floats) -> Bools:
        """Return (m, models) which of them may accept candidates with raw scores (m, k)."""
        return np.concatenate([one.leads(sums) >= one.lead.may for one in self.alike], axis=1)

    def sure(self, sums: Floats) -> Bools:
        """Return (m,) which candidates with raw scores (m, k) all of them certainly accept."""
        sure: Bools = np.logical_and.reduce([(one.leads(sums) >= one.lead.sure).all(axis=1) for one in self.alike])
        return sure

    def refused(self, model: int, encoded: Sequence[Encoded]) -> Bools:
        """Return (m,) which of m candidates one of the models certainly refuses."""
        one = self._alone.get(model) or self._alone.setdefault(model, self._opened(model))
        refused: Bools = one.structure.sums(one.encoded(encoded)) @ one.lead.weights < one.lead.may
        return refused

    def _opened(self, model: int) -> Alone:
        """Return one of the models."""
        part, number = 0, model
        while number >= self.alike[part].models:
            number, part = number - self.alike[part].models, part + 1
        structure, alike = self.joined.structures[part], self.alike[part]
        if alike.models > 1 and isinstance(structure, SupportsOutputs):
            structure = structure.only(number * alike.target.width + np.arange(alike.target.width))
        return Alone(structure, alike.lead, partial(self.joined.of_part, part))
