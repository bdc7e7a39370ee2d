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
from mlflow_cf.structures.capabilities import Refusals, SupportsOutputs, SupportsRefusals
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
    """Return the models of a scorer, structure after structure, whose scores may be off by `tolerance`.

    None: some may refuse, or a model does not decide by one number. Tolerances are in units of max(1, |score|).
    """
    found: list[Alike] = []
    for target in scorer.targets:
        lead, votes = DecisionScore.of([target.alone], tolerance), target.votes
        if lead is None or (votes is not None and votes.needed < votes.of):
            return None
        found.append(Alike(target, lead, 1 if votes is None else votes.of))
    return tuple(found)


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


class Together(NamedTuple):
    """Models of one structure that are asked about candidates of a row in one go.

    Attributes:
        models: which ones.
        refusals: asks them; encoded: returns its encoded values, of those of all models.
    """

    models: range
    refusals: Refusals
    encoded: Callable[[Sequence[Encoded]], list[Encoded]]

    def refused(self, encoded: Sequence[Encoded], most: int) -> Bools:
        """Return which of the first (n,) of m candidates one of them refuses: all m, or until so many are not."""
        return self.refusals.refused(self.encoded(encoded), most)

    @property
    def refusing(self) -> list[int]:
        """Those that have refused candidates, the last one first."""
        return [self.models[model] for model in self.refusals.refusing]


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

        None: there is one model alone, some may refuse, a model does not decide by one number, or is not scored alone.
        """
        joined, alike = scorer.structure, all_needed(scorer, tolerance)
        if not isinstance(joined, Joined) or alike is None:
            return None
        parts = zip(joined.structures, alike, strict=True)
        apart = all(one.models == 1 or isinstance(part, SupportsOutputs) for part, one in parts)
        return cls(joined, alike) if apart else None

    def hardest_first(self, sums: Floats) -> list[int]:
        """Return all models, those first that lack most of a candidate with raw scores (1, k)."""
        lacks = [lacking(one.target.each(one.target.of(sums)), [one.target.alone]) for one in self.alike]
        order: list[int] = np.argsort(-np.nan_to_num(np.concatenate(lacks), nan=-np.inf), kind="stable").tolist()
        return order

    def first_of(self, models: Sequence[int], most: int) -> tuple[int, ...]:
        """Return the first of some models in the structure of most models, so many at most, ascending."""
        largest = max(range(len(self.alike)), key=lambda part: self.alike[part].models)
        return tuple(sorted([model for model in models if self._place(model)[0] == largest][:most]))

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

    def together(self, row: Sequence[Encoded]) -> list[Together]:
        """Return the models of every structure that asks many about candidates of a row (1, ...) in one go."""
        found, first = list[Together](), 0
        for part, (structure, one) in enumerate(zip(self.joined.structures, self.alike, strict=True)):
            encoded = partial(self.joined.of_part, part)
            if one.models > 1 and isinstance(structure, SupportsRefusals):
                refusals = structure.refusals(encoded(row), one.lead.weights, float(one.lead.may))
                found += [] if refusals is None else [Together(range(first, first + one.models), refusals, encoded)]
            first += one.models
        return found

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
