"""Candidates of three changes, and of four, that several models must all accept.

Some of the models list what they may accept, those that lack most of the row, and the others are asked about these
alone, the nearest ones first. Most sets of three features are refused by one of the former alone, which takes a tenth
of the time. Four changes are three beside every value of a further feature, the one with the fewest values that are
near enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.engine import thresholds
from mlflow_cf.engine.nearest_first import NearestFirst
from mlflow_cf.features import Floats
from mlflow_cf.goal.scorer import DecisionScore
from mlflow_cf.goal.unanimous import Unanimous
from mlflow_cf.problem import Budget, Codes, Problem
from mlflow_cf.problem.actions import ActionTable
from mlflow_cf.structures import Structure
from mlflow_cf.structures.capabilities import SupportsTriples, boxes_of
from mlflow_cf.structures.kernels.triple_grid import AskedTriples, FoundTriples, GridChanges, TriplesBeside


@dataclass(frozen=True, eq=False)
class NearTriples:
    """Three changes that are near enough.

    Attributes:
        problem: of the row.
        actions: the changes, and the row's own values; changes: what they cost, column after column.
        asked: which columns may change together, and how far candidates are at most; the rest is filled in later.
    """

    problem: Problem
    actions: ActionTable
    changes: GridChanges
    asked: AskedTriples

    def within(self, limit: float, beyond: float = -1.0) -> NearTriples:
        """Return those that are farther than `beyond`, and no farther than `limit`."""
        return replace(self, asked=self.asked._replace(limit=limit, beyond=beyond))

    def of_features(self, features: NDArray[np.intp]) -> NearTriples:
        """Return those of some features (s, 3)."""
        return replace(self, asked=self.asked._replace(features=features))

    def of_one(self, structure: Structure, lead: DecisionScore, known: Floats) -> FoundTriples | None:
        """Return what may meet the target of a model, the only one; None: it does not tell, or there are too many.

        Args:
            structure: the model; lead: what decides.
            known: as far as answers are at most, ascending.
        """
        boxes = boxes_of(structure, self.actions.encoded)
        weights = np.ascontiguousarray(lead.weights)
        asked = self.asked._replace(weights=weights, may=float(lead.may), sure=float(lead.sure))
        return boxes.triples(self.changes, asked, known) if isinstance(boxes, SupportsTriples) else None

    def beside(self, further: Further) -> NearTriples:
        """Return those beside a further change: the row has it already, and it has cost something."""
        actions, changes = self.actions, self.changes
        column = self._columns[actions.group[further.action]]
        own, peak = changes.own.copy(), changes.peak
        own[column] = int(np.flatnonzero(actions.columns == further.action)[0])
        if self.asked.c:
            peak = np.maximum(peak, actions.peak[further.action])
        asked = self.asked._replace(features=self._columns[further.groups])
        return replace(self, changes=GridChanges(own, changes.cost, peak), asked=asked)

    def codes(self, found: FoundTriples) -> Codes:
        """Return the candidates (m, G) that were found."""
        return self.actions.candidates(self.actions.columns[found.at])

    @staticmethod
    def work(found: FoundTriples | None, models: int = 1) -> int:
        """Return what it takes from a budget to find them, of so many models."""
        return 1 if found is None else 1 + int(found.counts[1]) // (models * thresholds.TRIPLES_PER_ROW)

    @property
    def _columns(self) -> Codes:
        """(G,) the column of every group."""
        return np.argsort(self.problem.owner)


class Further(NamedTuple):
    """A further change beside three others.

    Attributes:
        least: how far candidates are that have it, at least; action: which one.
        groups: (s, 3) which groups may change beside it.
    """

    least: float
    action: int
    groups: NDArray[np.intp]


class Leading(NamedTuple):
    """The models that list candidates, their structure on the grid, and what decides about each."""

    models: tuple[int, ...]
    boxes: SupportsTriples
    lead: DecisionScore

    def asked(self, asked: AskedTriples) -> AskedTriples:
        """Return what these models are asked.

        Others decide, too: no candidate stands for others, and none is left out because it is farther than another.
        """
        many, lead = len(self.models), self.lead
        return asked._replace(weights=np.tile(lead.weights, many), may=float(lead.may), joins=False, models=many)


class TriplesOfMany:
    """Lists of what several models may accept, by those of them that refuse most."""

    def __init__(self, near: NearTriples, asking: NearestFirst, many: Unanimous, budget: Budget) -> None:
        """Set up lists of what is near enough; `asking` asks all the models, `many`, about candidates."""
        self.near, self.asking, self.many, self.budget = near, asking, many, budget
        self.problem = near.problem
        self._known: dict[tuple[int, ...], Leading] = {}

    @classmethod
    def of(cls, near: NearTriples, asking: NearestFirst, budget: Budget) -> TriplesOfMany | None:
        """Return lists for all the models that are asked; None: not all of them must accept."""
        return None if asking.many is None else cls(near, asking, asking.many, budget)

    def three(self) -> Codes | None:
        """Return the candidates (m, G) of three changes that may be answers.

        None is farther than the first that certainly is one. None: there are too many, the structure does not tell, or
        the budget does not last.
        """
        asked = self.near.asked
        every = np.zeros(len(asked.features), dtype=np.intp)
        beside = TriplesBeside(self.near.changes.own[None], every, np.full(len(every), asked.limit))
        left = self._unrefused(asked.features, beside)
        if left is None or not left.any():
            return None if left is None else self.problem.own[None][:0]
        near = self.near.of_features(asked.features[left])
        found = self._accepted(near, None, float(asked.limit))
        return None if found is None else found[0][self.problem.lawful(found[0])]

    def four(self, sets: Bools, least: Floats) -> Codes | None:
        """Return the same of four changes, of some sets (s, G) of four groups.

        `least`: (G,) what a change of every group costs at least.
        """
        limit, further = float(self.near.asked.limit), sorted(self._further(sets, least), key=lambda one: one.least)
        if len(further) > thresholds.MOST_FURTHER:
            return None
        left = self._left(further)
        if left is None:
            return None
        parts = [self.problem.own[None][:0]]
        for one in left:
            if one.least > limit:
                break
            found = self._accepted(self.near.beside(one), one, limit)
            if found is None:
                return None
            parts.append(found[0])
            limit = found[1]
        codes = np.concatenate(parts)
        return np.asarray(codes[self.problem.lawful(codes)])

    def _accepted(self, near: NearTriples, beside: Further | None, limit: float) -> tuple[Codes, float] | None:
        """Return the candidates (m, G) that all models may accept, and how far others need be looked for.

        They change three groups `beside` a further one, and are no farther than `limit` together.
        """
        actions, beyond, parts = near.actions, float(near.asked.beyond), [self.problem.own[None][:0]]
        cost = 0.0 if beside is None else float(actions.cost[beside.action])
        for _ in range(thresholds.MOST_LISTS):
            listed = self._listed(near.within(limit - cost, beyond))
            if listed is None:
                return None
            codes, models, complete = listed
            if beside is not None:
                codes[:, actions.group[beside.action]] = actions.code[beside.action]
            accepted = self.asking.ask(codes, self.problem.distance(codes), limit, self.budget, models)
            if accepted is None:
                return None
            parts.append(codes[accepted.at])
            limit, beyond = accepted.limit, complete
            if limit - cost <= beyond:
                return np.concatenate(parts), limit
        return None

    def _left(self, further: Sequence[Further]) -> list[Further] | None:
        """Return the further changes with the groups that no leading model refuses beside each; None: not told."""
        near, actions = self.near, self.near.actions
        besides = [near.beside(one) for one in further]
        if not besides:
            return []
        features = np.concatenate([each.asked.features for each in besides])
        owner = np.repeat(np.arange(len(further)), [len(one.groups) for one in further])
        cost = actions.cost[[one.action for one in further]]
        values = np.stack([each.changes.own for each in besides])
        left = self._unrefused(features, TriplesBeside(values, owner, near.asked.limit - cost[owner]))
        if left is None:
            return None
        parts = [one._replace(groups=one.groups[left[owner == at]]) for at, one in enumerate(further)]
        return [one for one in parts if len(one.groups)]

    def _unrefused(self, features: Codes, beside: TriplesBeside) -> Bools | None:
        """Return (s,) which three features no model certainly refuses; None: it is not told."""
        leading, parts = self._leading(), [np.zeros(0, dtype=np.bool_)]
        for start in range(0, len(features), thresholds.SETS_AT_ONCE):
            some = slice(start, start + thresholds.SETS_AT_ONCE)
            which, limit = beside.which[some], beside.limit[some]
            work = 1 + len(which) // thresholds.SETS_PER_ROW
            if leading is None or self.budget.take(work) < work:
                return None
            asked = leading.asked(self.near.asked._replace(features=features[some]))
            refused = leading.boxes.refused(self.near.changes, asked, beside._replace(which=which, limit=limit))
            if refused is None:
                return None
            parts.append(~refused)
        return np.concatenate(parts)

    def _listed(self, near: NearTriples) -> tuple[Codes, tuple[int, ...], float] | None:
        """Return what some models may accept (m, G), these models, and how far away all such candidates are known."""
        leading = self._leading()
        if leading is None:
            return None
        many = len(leading.models)
        found = leading.boxes.triples(
            near.changes, leading.asked(near.asked)._replace(most=self._most(many)), np.array([np.inf])
        )
        work = near.work(found, many)
        if self.budget.take(work) < work or found is None:
            return None
        return near.codes(found), leading.models, float(found.complete[0])

    def _leading(self) -> Leading | None:
        """Return the models that list candidates: those that refused others, and that lack most of the row."""
        refusing = self.asking.refusing
        order = [*refusing, *(model for model in self.asking.hardest if model not in refusing)]
        models = self.many.first_of(order, thresholds.LISTING)
        if models not in self._known:
            some = self.many.some(models)
            boxes = boxes_of(some.structure, some.encoded(self.near.actions.encoded))
            if not isinstance(boxes, SupportsTriples):
                return None
            self._known[models] = Leading(models, boxes, some.lead)
        return self._known[models]

    def _most(self, models: int) -> int:
        """Return how many cells of so many models are looked at, at most, in the time that is left."""
        most, seconds = models * self.near.asked.most, self.budget.seconds_left
        return most if seconds is None else int(min(most, max(seconds, 0.0) * thresholds.CELLS_PER_SECOND))

    def _further(self, sets: Bools, least: Floats) -> Iterator[Further]:
        """Return the changes of one group of every set, the one with the fewest changes that are near enough."""
        actions, limit, chosen = self.near.actions, float(self.near.asked.limit), dict[int, list[tuple[float, Codes]]]()
        changes = np.ones(len(actions.code), dtype=np.bool_)
        changes[actions.own] = False
        for groups in map(np.flatnonzero, sets):
            rest = least[groups].sum() - least[groups]
            counts = [
                np.count_nonzero(changes & (actions.group == group) & (actions.cost + others <= limit))
                for group, others in zip(groups, rest, strict=True)
            ]
            at = int(np.argmin(counts))
            chosen.setdefault(int(groups[at]), []).append((float(rest[at]), np.delete(groups, at)))
        for group, others in chosen.items():
            for action in np.flatnonzero(changes & (actions.group == group)).tolist():
                cost = float(actions.cost[action])
                near = [(total + cost, three) for total, three in others if total + cost <= limit]
                if near:
                    yield Further(min(far for far, _ in near), action, np.array([three for _, three in near]))
