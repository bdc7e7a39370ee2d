"""Ratings of candidates by opened models (structures), for searches; answers are judged by the logged model alone.

For branch and bound: the largest margin that raw scores between two bounds can have, and whether all of them meet the
targets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.features import Floats
from mlflow_cf.goal.decision import DecisionScore, ModelDecisions
from mlflow_cf.goal.targets import (
    BoundTarget,
    Rating,
    SumTarget,
    Targets,
    Votes,
    lacking,
    rate_sums,
    rounding,
    shortfalls,
)
from mlflow_cf.structures.capabilities import SupportsOutputs, SupportsProduct, is_steady
from mlflow_cf.structures.joined import Joined
from mlflow_cf.structures.structure import Encoded, Structure


@dataclass(frozen=True, eq=False)
class Scorer:
    """One structure or several joined, and the targets that their raw scores must meet.

    Attributes:
        own: the opened model, checked to agree with the judge.
        structure: the same, or the structures of several requirements joined: raw scores side by side.
        targets: one for every structure, over its raw scores.
    """

    own: Structure
    structure: Structure
    targets: tuple[SumTarget, ...]

    @classmethod
    def of(cls, requirements: Sequence[tuple[Structure, BoundTarget]], columns: int) -> Scorer:
        """Return the scorer of candidates over so many columns that meet each target by the structure beside it."""
        structures = [structure for structure, _ in requirements]
        return cls.bound(structures, joined(structures, columns), [target for _, target in requirements])

    @classmethod
    def bound(cls, structures: Sequence[Structure], together: Structure, targets: Sequence[BoundTarget]) -> Scorer:
        """Return the scorer of structures that are joined already, each with the target beside it."""
        of_sums, start = [], 0
        for structure, target in zip(structures, targets, strict=True):
            of_sums.append(target.of_sums(structure.link, start, structure.outputs))
            start += structure.outputs
        return cls(structures[0], together, tuple(of_sums))

    @cached_property
    def steady(self) -> bool:
        """Whether the raw scores of a candidate are the same in every batch."""
        return is_steady(self.structure)

    @cached_property
    def products(self) -> SupportsProduct | None:
        """The structure, if it scores product grids."""
        return self.structure if isinstance(self.structure, SupportsProduct) else None

    def hardest(self, sums: Floats, most: int) -> Hardest | None:
        """Return a scorer of fewer of the models that vote, those that lack most of rows with raw scores (m, k).

        Every candidate that meets the targets meets its targets, too, so that its upper bounds hold, and they take
        less time. It takes the same encoded values. None where there are not many more such models than `most`.
        """
        if not isinstance(self.structure, Joined):
            return None
        parts, targets, columns, start = list[Structure](), list[SumTarget](), list[NDArray[np.intp]](), 0
        for part, target in zip(self.structure.structures, self.targets, strict=True):
            outputs, votes = _hardest(part, target, sums, most)
            found = part.only(outputs) if isinstance(part, SupportsOutputs) and len(outputs) < part.outputs else part
            parts.append(found)
            columns.append(target.start + outputs)
            targets.append(replace(target, start=start, stop=start + found.outputs, votes=votes))
            start += found.outputs
        if start == self.structure.outputs:
            return None
        few = Scorer(parts[0], replace(self.structure, structures=tuple(parts)), tuple(targets))
        return Hardest(few, np.concatenate(columns))

    def encoded(self, columns: Sequence[int], actions: Floats) -> list[Encoded]:
        """Return the structure's encoded values of actions (t, len(columns)), one array per column."""
        return [self.structure.encode(column, actions[:, part]) for part, column in enumerate(columns)]

    def rate_sums(self, sums: Floats) -> Rating:
        """Rate m candidates by their sums (m, k)."""
        favourable, grade, _ = rate_sums(sums, self.targets)
        return Rating(favourable, grade)

    def margins(self, encoded: Sequence[Encoded]) -> tuple[Bools, Floats]:
        """Return whether m candidates meet the targets, and how far their scores are from where that would change."""
        favourable, _, margin = rate_sums(self.structure.sums(encoded), self.targets)
        return favourable, margin

    def decisions(self, sums: Floats, tolerance: float) -> tuple[Bools, Bools]:
        """Return (m,) which candidates with raw scores (m, k) may meet the targets, and which certainly do.

        Scores may be off by `tolerance`, in units of max(1, |score|). Scores are only computed near a decision, and not
        at all where one number per model decides each target.
        """
        leads = self._leads.get(tolerance)
        if leads is None:
            found = [DecisionScore.of([target.alone], tolerance) for target in self.targets]
            leads = self._leads.setdefault(tolerance, found)
        each = zip(self.targets, leads, strict=True)
        decided = [_decided(sums, target, lead) for target, lead in each if lead is not None]
        if len(decided) == len(self.targets):
            may, sure = np.logical_and.reduce(decided)
            return may, sure
        near, lacks = rounding(sums, self.targets, tolerance), lacking(sums, self.targets)
        may = lacks < 0
        sure = may.copy()
        close = np.flatnonzero(~(np.abs(lacks) > near))
        if not len(close):
            return may, sure
        favourable, _, margin = rate_sums(sums[close], self.targets)
        may[close] = favourable | (margin < tolerance)
        sure[close] = favourable & (margin >= tolerance)
        return may, sure

    def may_meet(self, low: Floats, high: Floats, tolerance: float) -> Bools:
        """Return (m,) whether some raw scores between bounds (m, k) may meet the targets; see `decisions`."""
        return may_meet(low, high, self.targets, tolerance)

    def measures(self, encoded: Sequence[Encoded]) -> tuple[Bools, Floats, Floats]:
        """Return what `margins` does, and the shortfalls (m,) of the raw scores; see `shortfalls`."""
        sums = self.structure.sums(encoded)
        favourable, _, margin = rate_sums(sums, self.targets)
        return favourable, margin, shortfalls(sums, self.targets)

    def lacks(self, sums: Floats) -> Floats:
        """Return the signed shortfall (m,) of raw scores (m, k); see `lacking`."""
        return lacking(sums, self.targets)

    def upper_bound(self, low: Floats, high: Floats, tolerance: float) -> Floats:
        """Return an upper bound (m,) of the margin of raw scores between bounds (m, k); < 0: none meets the targets.

        Raw scores may be off by `tolerance`, in units of max(1, |raw score|).
        """
        return upper_bound(low, high, self.targets, tolerance)

    def lower_bound(self, low: Floats, high: Floats, tolerance: float) -> Floats:
        """Return a lower bound (m,) of the margin of raw scores between bounds (m, k); > 0: all meet the targets.

        Raw scores may be off by `tolerance`, in units of max(1, |raw score|).
        """
        return lower_bound(low, high, self.targets, tolerance)

    def certainly_met(self, low: Floats, high: Floats, tolerance: float) -> Bools:
        """Return (m,) whether all raw scores between bounds (m, k) meet the targets, even if off by `tolerance`."""
        return certainly_met(low, high, self.targets, tolerance)

    def decision_score(self, tolerance: float) -> DecisionScore | None:
        """Return the number that decides the targets, None if it is not a single one; see `DecisionScore`."""
        return DecisionScore.of(self.targets, tolerance)

    def model_decisions(self, tolerance: float) -> ModelDecisions | None:
        """Return what all models must say if scores may be off by `tolerance`; None where that is no sums."""
        if tolerance not in self._models:
            self._models[tolerance] = ModelDecisions.of(self.targets, tolerance)
        return self._models[tolerance]

    @cached_property
    def _leads(self) -> dict[float, list[DecisionScore | None]]:
        """What decides each target, by tolerance: there are a few of these."""
        return {}

    @cached_property
    def _models(self) -> dict[float, ModelDecisions | None]:
        """What all models must say, likewise."""
        return {}

    def numbers(self, tolerance: float) -> int:
        """Return how many numbers per candidate are needed to rate it: 1, or all its raw scores."""
        return self.structure.outputs if self.decision_score(tolerance) is None else 1

    def rate_encoded(self, encoded: Sequence[Encoded]) -> Rating:
        """Rate m candidates given by one array of encoded values per feature."""
        return self.rate_sums(self.structure.sums(encoded))

    def rate(self, Z: Floats) -> Rating:
        """Rate coded rows (m, d)."""
        return self.rate_encoded(self.encoded(range(Z.shape[1]), Z))


def _decided(sums: Floats, target: SumTarget, score: DecisionScore) -> tuple[Bools, Bools]:
    """Return (m,) which of raw scores (m, k) may meet one target, and which certainly do, by what decides it."""
    lead = _reached(target.leads(sums, score.weights), target)
    return lead >= score.may, lead >= score.sure


def _reached(leads: Floats, target: SumTarget) -> Floats:
    """Return the largest of what models decide by (m, models) that as many as are needed reach (m,)."""
    return leads[:, 0] if target.votes is None else target.votes.reached(leads)


class Hardest(NamedTuple):
    """The scorer of some models, and which of the raw scores of all these have."""

    scorer: Scorer
    columns: NDArray[np.intp]


def _hardest(part: Structure, target: SumTarget, sums: Floats, most: int) -> tuple[NDArray[np.intp], Votes | None]:
    """Return the raw scores of models of a structure that lack most of candidates with raw scores (m, k), and votes.

    First what lacks most of each candidate, then what lacks most but for that, and so on.

    Of the others, all that may refuse an answer may do so, so that of these models as many fewer must accept it.
    """
    votes = target.votes
    few = 0 if votes is None else most + votes.of - votes.needed
    if votes is None or 2 * few > votes.of or not isinstance(part, SupportsOutputs):
        return np.arange(part.outputs), votes
    lacks = lacking(target.each(target.of(sums)), [target.alone]).reshape(-1, votes.of)
    turns = np.argsort(np.argsort(-lacks, axis=1, kind="stable"), axis=1).min(axis=0)
    models = np.sort(np.argsort(turns, kind="stable")[:few])
    outputs = models[:, None] * target.width + np.arange(target.width)
    return outputs.ravel(), Votes(most, few)


Bound = Callable[[Floats, Floats, SumTarget, float], Floats]


def joined(structures: Sequence[Structure], columns: int) -> Structure:
    """Return structures over so many columns as one."""
    return structures[0] if len(structures) == 1 else Joined.of(structures, columns)


@np.errstate(invalid="ignore", over="ignore", divide="ignore")
def upper_bound(low: Floats, high: Floats, targets: Targets, tolerance: float) -> Floats:
    """Return an upper bound (m,) of the margin of raw scores between `low` and `high` (m, k); < 0: none can meet all.

    The margin of a label is what its score leads the others by (as probability where that is compared and negative),
    and what its probability exceeds the least one by; of a value, its distance from the nearer end of the interval. Raw
    scores may be off by `tolerance`, in units of max(1, |raw score|), which widens the bound.
    """
    found = np.full(len(low), np.inf)
    for target in targets:
        found = np.minimum(found, _of_votes(_most_margin, target.of(low), target.of(high), target, tolerance))
    return found


def may_meet(low: Floats, high: Floats, targets: Targets, tolerance: float) -> Bools:
    """Return (m,) whether some raw scores between `low` and `high` (m, k) may meet all targets; see `decisions`."""
    each = [(target, DecisionScore.of([target.alone], tolerance)) for target in targets]
    reached = [_may_reach(low, high, target, lead) for target, lead in each if lead is not None]
    if len(reached) < len(targets):
        return ~(upper_bound(low, high, targets, tolerance) < 0)  # not where it is no number
    return np.asarray(np.logical_and.reduce(reached))


def _may_reach(low: Floats, high: Floats, target: SumTarget, score: DecisionScore) -> Bools:
    """Return (m,) whether some raw scores between bounds (m, k) may meet one target, by what decides it."""
    each = zip(score.weights.tolist(), target.each(target.of(low)).T, target.each(target.of(high)).T, strict=True)
    with np.errstate(invalid="ignore"):
        most = sum(weight * (above if weight > 0 else below) for weight, below, above in each)
    leads = np.where(np.isnan(most), np.inf, most)  # what is no number may be large
    leads = leads.reshape(len(low), 1 if target.votes is None else target.votes.of)
    return np.asarray(_reached(leads, target) >= score.may)


def _of_votes(bound: Bound, low: Floats, high: Floats, target: SumTarget, tolerance: float) -> Floats:
    """Return a `bound` (m,) of one target; where models vote, the bound that as many as are needed reach.

    That bounds the margin of the model which decides: at least so many have an upper bound no smaller than its margin,
    and at least so many a margin no smaller than that rank of the lower bounds.
    """
    if target.votes is None:
        return bound(low, high, target, tolerance)
    found = bound(target.each(low), target.each(high), target.alone, tolerance)
    return target.votes.reached(found.reshape(-1, target.votes.of))


def _rounding(low: Floats, high: Floats, tolerance: float) -> Floats:
    """Return by how much margins of raw scores between bounds (m, k) may be off."""
    largest = np.maximum(np.abs(low).max(axis=1, initial=1.0), np.abs(high).max(axis=1, initial=1.0))
    return np.asarray(tolerance * largest)


def _most_margin(low: Floats, high: Floats, target: SumTarget, tolerance: float) -> Floats:
    """Return an upper bound (m,) of the margin of one target; see `upper_bound`."""
    if target.kind == "interval":
        far = np.minimum(high[:, 0] - target.low, target.high - low[:, 0])
    else:
        bounds = [_label_bound(low, high, column, target) for column in target.columns]
        far = np.maximum.reduce(bounds, initial=-np.inf)
    return np.asarray(far + _rounding(low, high, tolerance))


def _least_margin(low: Floats, high: Floats, target: SumTarget, tolerance: float) -> Floats:
    """Return a lower bound (m,) of the margin of one target; see `lower_bound`."""
    return _left_over(low, high, target) - _rounding(low, high, tolerance)


def certainly_met(low: Floats, high: Floats, targets: Targets, tolerance: float) -> Bools:
    """Return (m,) whether all raw scores between `low` and `high` (m, k) meet all targets, even if off by `tolerance`.

    Then no other label can lead, and no probability can be below the least.
    """
    return lower_bound(low, high, targets, tolerance) > 0


@np.errstate(invalid="ignore", over="ignore", divide="ignore")
def lower_bound(low: Floats, high: Floats, targets: Targets, tolerance: float) -> Floats:
    """Return a lower bound (m,) of the margin of raw scores between `low` and `high` (m, k); > 0: all meet the targets.

    Raw scores may be off by `tolerance`, in units of max(1, |raw score|), which lowers the bound.
    """
    found = np.full(len(low), np.inf)
    for target in targets:
        found = np.minimum(found, _of_votes(_least_margin, target.of(low), target.of(high), target, tolerance))
    return found


def _left_over(low: Floats, high: Floats, target: SumTarget) -> Floats:
    """Return a lower bound (m,) of the margin of raw scores between bounds (m, k); < 0: some may miss the target."""
    if target.kind == "interval":
        return np.minimum(low[:, 0] - target.low, target.high - high[:, 0])
    if target.column < 0 or (target.least > 0 and target.kind == "other"):
        return np.full(len(low), -np.inf)
    others = [column for column in range(target.classes) if column not in target.columns]
    plain = replace(target, least=0.0)
    found: Floats = -np.maximum.reduce([_label_bound(low, high, other, plain) for other in others], initial=-np.inf)
    if target.least > 0:
        found = np.minimum(found, _likely(low, high, target.column, target) - target.least)
    return found


def _likely(own: Floats, others: Floats, column: int, target: SumTarget) -> Floats:
    """Return the probability (m,) of a class with raw score `own`, where the other classes have those in `others`."""
    if target.link == "share":
        return own[:, 0] if column == 1 else np.asarray(1.0 - others[:, 0])
    if target.link == "sigmoid" and own.shape[1] == 1:  # one raw score is for one class and against the other
        share: Floats = expit(own[:, 0]) if column == 1 else 1.0 - expit(others[:, 0])
        return share
    mine, rivals = own[:, column], np.delete(others, column, axis=1)
    if target.link == "softmax":
        found: Floats = 1.0 / (1.0 + np.exp(rivals - mine[:, None]).sum(axis=1))
        return found
    if target.link == "identity":
        return mine
    mine, rivals = expit(mine), expit(rivals)
    total = mine + rivals.sum(axis=1)
    return np.where(total > 0, mine / np.where(total > 0, total, 1.0), 1.0)


def _label_bound(low: Floats, high: Floats, column: int, target: SumTarget) -> Floats:
    """Return an upper bound of what one class leads all others by, and its probability exceeds the least one by."""
    if target.classes == 2 and low.shape[1] == 1:
        best = _likely(high, low, column, target)
        return np.minimum(2.0 * best - 1.0, best - target.least) if target.least > 0 else 2.0 * best - 1.0
    own, rivals = high[:, column], np.delete(low, column, axis=1)
    if target.link == "sigmoid":
        own, rivals = expit(own), expit(rivals)
    lead: Floats = own - rivals.max(axis=1, initial=-np.inf)
    if target.link != "identity":  # at least so far behind in probability, for the likeliest has 1 / classes
        behind = np.expm1(np.minimum(lead, 0.0)) if target.link == "softmax" else lead
        lead = np.where(lead < 0, behind / low.shape[1], lead)
    return lead if target.least <= 0 else np.minimum(lead, _likely(high, low, column, target) - target.least)
