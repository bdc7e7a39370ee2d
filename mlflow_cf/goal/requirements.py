"""What every candidate must meet: the target of the model, and further requirements, each with a judge of its own.

What could be opened is searched, bounded and proved together. What could not takes part in the rating of candidates and
in verification, through its judge; then nothing is proved.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Final, NamedTuple

import numpy as np

from mlflow_cf.constraints import Origin
from mlflow_cf.constraints.rules import Bools
from mlflow_cf.errors import InputError
from mlflow_cf.features import CodedTable, FeatureSpace, Floats, columns_with
from mlflow_cf.goal.scorer import Scorer, joined
from mlflow_cf.goal.targets import BoundTarget, Rating, Votes, spread_of
from mlflow_cf.model.judge import Judge, OpenModel, Outcome
from mlflow_cf.model.parity import Opened, open_structure
from mlflow_cf.policy.survival import Survival
from mlflow_cf.policy.target import Target
from mlflow_cf.structures.structure import Structure
from mlflow_cf.words.reasons import Uncertified
from mlflow_cf.words.statements import say

MARGIN = Origin("policy", "margin")
MOST_KEPT: Final = 64  # targets that stay bound: requests may name any


@dataclass(frozen=True, eq=False)
class Requirement:
    """What answers must meet besides the target of the model.

    Attributes:
        origin: the constraint that it comes from.
        judge: predicts decoded rows.
        outcome: its predictions of the background.
        opened: the structure inside it, or why there is none.
        target: what it must predict; None: the target of the model.
        votes: None where the judge is one model; else how many of those that it stands for must predict it.
        promise: what these votes promise of an answer, if they are those of retrained models.
    """

    origin: Origin
    judge: Judge
    outcome: Outcome
    opened: Opened
    target: Target | None = None
    votes: Votes | None = None
    promise: Survival | None = None

    @classmethod
    def learn(
        cls, origin: Origin, model: OpenModel, space: FeatureSpace, background: Floats, target: Target | None = None
    ) -> Requirement:
        """Learn how a model decides on coded background rows (n, d), and open it if that is possible."""
        judge, outcome = Judge.learn(model, CodedTable(space, background))
        return cls(origin, judge, outcome, open_structure(judge, space, background, outcome), target)

    def check(self, target: Target) -> None:
        """Refuse a target of the model that this judge cannot decide about.

        Raises:
            InputError: a label it does not know, or a probability it does not give.
        """
        wanted = self.target or target
        try:
            wanted.check(self.judge.model)
            if self.promise is not None:
                wanted.check_margin(float(self.promise.margin), self.judge.model)
        except InputError as error:
            fact = f"cannot meet the target ({error.path}: {error.fact})"
            raise InputError(self.origin.path, fact, "leave it out, or name a target that all of them know") from error

    def bound(self, target: BoundTarget) -> BoundTarget:
        """Return what this judge must predict, given the model's bound `target` of the row to explain."""
        wanted, own, model = self.target or target.target, -1, self.judge.model
        if self.promise is not None:
            wanted = wanted.with_margin(float(self.promise.margin))
        if wanted.differs and target.own >= 0:
            label = target.model.classes[target.own]
            own = model.classes.index(label) if label in model.classes else -1
        spread = target.spread if self.votes is not None else self._spread
        return BoundTarget(wanted, model, own, spread if wanted.interval else 1.0, self.votes)

    @cached_property
    def _spread(self) -> float:
        return spread_of(self.outcome)


class Wanted(NamedTuple):
    """The targets of all judges for a row, and the scorers of candidates by structures alone.

    Attributes:
        targets: one for every judge.
        scorer: None unless all could be opened; partial: for those that could be, if the model is one of them and
            another one could not; else None.
    """

    targets: tuple[BoundTarget, ...]
    scorer: Scorer | None
    partial: Scorer | None


@dataclass(frozen=True, eq=False)
class Requirements:
    """All that candidates must meet.

    Attributes:
        space: the features.
        judge, outcome, opened: the model itself: its decision, what it says about the background, what is inside.
        further: the other requirements.
        margin: by how much the probability of the wanted label must exceed the target's.
        unopened: why nothing is searched by structures, although there may be some.
    """

    space: FeatureSpace
    judge: Judge
    outcome: Outcome
    opened: Opened
    further: tuple[Requirement, ...] = ()
    margin: float = 0.0
    unopened: Uncertified | None = None

    @cached_property
    def structure(self) -> Structure | None:
        """The structures of all, as one; None if one of them is missing."""
        found = self._structures
        known = self.unopened is None and len(found) == len(self.further) + 1
        return joined(found, len(self.space)) if known else None

    @property
    def _structures(self) -> list[Structure]:
        every = (self.opened, *(one.opened for one in self.further))
        return [opened.structure for opened in every if opened.structure is not None]

    def reads(self, feature: str, level: object) -> bool:
        """Whether all structures read a level as their models do that the background lacks."""
        return all(opened.reads(feature, level) for opened in (self.opened, *(one.opened for one in self.further)))

    def unread_levels(self, space: FeatureSpace, X: Floats) -> Bools:
        """Return (m, d) which levels of rows X (m, d), coded by `space`, a model may read otherwise than its structure.

        Structures know the levels of the background, and read all others as unknown, while the model may know them.
        """
        unread: Bools = space.unknown_from <= X
        for column in columns_with(unread):
            feature, some = space.features[column], np.flatnonzero(unread[:, column])
            codes, of_code = np.unique(X[some, column], return_inverse=True)
            read = [self.reads(feature.name, feature.value(code)) for code in codes.tolist()]
            unread[some, column] = ~np.array(read)[of_code]
        return unread

    @cached_property
    def obstacle(self) -> Uncertified:
        """Why there is no structure, where there is none."""
        if self.unopened is not None:
            return self.unopened
        if self.opened.structure is None:
            return Uncertified("unopened", self.opened.note)
        closed = [one for one in self.further if one.opened.structure is None]
        note = say("note_of", path=closed[0].origin.path, note=closed[0].opened.note) if closed else ""
        return Uncertified("requirement", note)

    @cached_property
    def steady(self) -> bool:
        """Whether further models that could not be opened predict a row the same whatever rows stand beside it."""
        closed = [one.judge.model for one in self.further if one.opened.structure is None]
        return all(model.steady for model in closed)

    @cached_property
    def rounding(self) -> float:
        """How far scores of structures may be from those of their models about a row alone, near a decision."""
        known = [(self.judge, self.opened), *((one.judge, one.opened) for one in self.further)]
        return max(opened.rounding(judge.model.tolerance) for judge, opened in known)

    @cached_property
    def judges(self) -> Judge:
        """The model's judge, which asks those of all further requirements too."""
        return replace(self.judge, further=tuple(one.judge for one in self.further))

    @cached_property
    def background(self) -> Outcome:
        """The predictions of all judges for the background."""
        return replace(self.outcome, further=tuple(one.outcome for one in self.further))

    @cached_property
    def bound(self) -> Callable[[Target, int], BoundTarget]:
        """Returns the target of the model for rows of which it predicts the class at a position; for all requests."""
        return lru_cache(MOST_KEPT)(self._bound)

    def _bound(self, target: Target, own: int) -> BoundTarget:
        return BoundTarget(target, self.judge.model, own, spread_of(self.outcome) if target.interval else 1.0)

    @cached_property
    def wanted(self) -> Callable[[Target, int], Wanted]:
        """Returns the targets of all judges for such rows, with scorers of candidates that structures can read."""
        return lru_cache(MOST_KEPT)(self._wanted)

    def _wanted(self, target: Target, own: int) -> Wanted:
        targets = self.targets(self.bound(target, own))
        return Wanted(targets, self.scorer(targets), self._partial(targets))

    def targets(self, target: BoundTarget) -> tuple[BoundTarget, ...]:
        """Return what is wanted of the model, with the margin, and of every further judge, for a row's own target."""
        wanted = replace(target, target=target.target.with_margin(self.margin)) if self.margin else target
        return (wanted, *(one.bound(target) for one in self.further))

    def scorer(self, targets: Sequence[BoundTarget]) -> Scorer | None:
        """Return what rates candidates by structures alone, if all could be opened."""
        together = self.structure
        return None if together is None else Scorer.bound(self._structures, together, targets)

    def _partial(self, targets: Sequence[BoundTarget]) -> Scorer | None:
        """Return what rates candidates by the model's structure and others that there are, where one is missing."""
        if self.unopened is not None or self.opened.structure is None or self.structure is not None:
            return None
        every = (self.opened, *(one.opened for one in self.further))
        pairs = zip(every, targets, strict=True)
        found = [(opened.structure, target) for opened, target in pairs if opened.structure is not None]
        return Scorer.of(found, len(self.space))

    def without(self, left_out: Collection[Origin]) -> Requirements:
        """Return the requirements but some of them."""
        kept = tuple(one for one in self.further if one.origin not in left_out)
        if len(kept) == len(self.further) and MARGIN not in left_out:
            return self  # with all that it remembers
        return replace(self, further=kept, margin=0.0 if MARGIN in left_out else self.margin)

    def rate(self, targets: Sequence[BoundTarget], space: FeatureSpace, Z: Floats, *, opened: bool) -> Rating:
        """Rate coded rows Z (m, d) where not all is opened: by the structures there are, if `opened`, else by judges.

        `space` covers the rows, and `targets` are bound to the row that they are candidates for.
        """
        table, ratings = CodedTable(space, Z), []
        every = [(self.judge, self.opened), *((one.judge, one.opened) for one in self.further)]
        for target, (judge, inside) in zip(targets, every, strict=True):
            if opened and self.unopened is None and inside.structure is not None:
                ratings.append(Scorer.of([(inside.structure, target)], len(space)).rate(Z))
            else:
                ratings.append(target.rate(judge.outcome(table)))
        return Rating.of_all(ratings)


def meets_all(targets: Sequence[BoundTarget], outcome: Outcome) -> Bools:
    """Return (m,) which rows all judges accept: the model, and those of further requirements."""
    met = targets[0].met(outcome)
    for target, said in zip(targets[1:], outcome.further, strict=True):
        met = met & target.met(said)
    return met


def rate_all(targets: Sequence[BoundTarget], outcome: Outcome) -> Rating:
    """Rate m rows by the predictions of the model and all further judges."""
    return Rating.of_all([target.rate(said) for target, said in zip(targets, (outcome, *outcome.further), strict=True)])
