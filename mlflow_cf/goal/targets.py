"""Targets over the raw scores of a model, and ratings of rows: whether they meet it, and how near they come.

(GeCo section 2, exact search section 5.) Raw scores (`sums`) are the numbers that a structure adds up before its link
makes scores of them: log odds, shares, a value. A candidate has to meet all targets: that of the model and those of
further requirements. This is plain numpy, because compiling it would cost a third of the time of a first explanation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.features import Floats
from mlflow_cf.model.judge import Label, OpenModel, Outcome
from mlflow_cf.policy.target import Target
from mlflow_cf.structures.structure import Link, linked, shares

FEW_COLUMNS, MANY_ROWS = 8, 256  # numpy takes 50 ns to find the least value of a short row; column by column, 12


@dataclass(frozen=True, eq=False)
class Rating:
    """Ratings of m rows.

    Attributes:
        favourable: (m,) whether the row meets the target.
        grade: (m,) in [0, 1], growing towards the target.
    """

    favourable: NDArray[np.bool_]
    grade: Floats

    @classmethod
    def of_all(cls, ratings: Sequence[Rating]) -> Rating:
        """Return one rating by several targets, all of which must be met; the least grade counts."""
        if len(ratings) == 1:
            return ratings[0]
        favourable = np.logical_and.reduce([rating.favourable for rating in ratings])
        return cls(favourable, np.minimum.reduce([rating.grade for rating in ratings]))


class Votes(NamedTuple):
    """How many of several models must meet a target.

    Attributes:
        needed: so many at least; of: all that there are.
    """

    needed: int
    of: int

    def reached(self, values: Floats) -> Floats:
        """Return, of the values (m, of) of all models, the largest one (m,) that as many as are needed reach.

        That is the value with the rank `needed` from above; what is no number is the smallest.
        """
        if self.needed == self.of:  # mostly, and several times as fast
            return _least(values)
        found: Floats = -np.partition(-values, self.needed - 1, axis=1)[:, self.needed - 1]
        return found


@dataclass(frozen=True)
class BoundTarget:
    """A target with what it depends on beside a prediction.

    Attributes:
        target: the wanted outcome.
        model: whose outcomes are rated.
        own: position among the classes of the label predicted for the row to explain, -1 without; `Target.other()` is
            any other label.
        spread: largest minus smallest prediction on the background: the unit of the distance to an interval.
        votes: None where one model decides; else how many of several must meet the target. Their scores stand side by
            side in `Outcome.scores`, also those of regressions.
    """

    target: Target
    model: OpenModel
    own: int = -1
    spread: float = 1.0
    votes: Votes | None = None

    @np.errstate(invalid="ignore", over="ignore", divide="ignore")
    def rate(self, outcome: Outcome) -> Rating:
        """Rate m rows by their outcome."""
        if self.votes is not None:
            favourable, grade, _ = _rate_votes(self._scores(outcome), self._of_scores)
            return Rating(favourable, grade)
        if self._interval:
            return Rating(*rate_values(outcome.values.astype(np.float64), self._of_scores))
        if outcome.scores is not None:
            return Rating(*rate_labels(outcome.codes, outcome.scores.astype(np.float64), self._of_scores))
        decided = self._decided(outcome.codes)
        return Rating(decided, decided.astype(np.float64))

    def met(self, outcome: Outcome) -> NDArray[np.bool_]:
        """Return (m,) which rows meet the target by their outcome, as `rate` says."""
        graded = self._interval or self.votes or (outcome.scores is not None and self.target.min_probability)
        return self.rate(outcome).favourable if graded else self._decided(outcome.codes)

    def _decided(self, codes: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Return (m,) which labels (m,), as positions among the classes, are wanted; -1, none of them, never is."""
        wanted: NDArray[np.bool_] = codes != self.own if self.target.differs else codes == self._column
        return wanted & (codes >= 0)

    @np.errstate(invalid="ignore", over="ignore", divide="ignore")
    def agreeing(self, outcome: Outcome) -> NDArray[np.intp]:
        """Return (m,) how many of the models that vote meet the target."""
        return np.asarray(_votes(self._scores(outcome), self._of_scores)[0].sum(axis=1))

    @staticmethod
    def _scores(outcome: Outcome) -> Floats:
        """Return the scores (m, k) of all models that vote; of no rows, none were given."""
        return np.empty((0, 0)) if outcome.scores is None else outcome.scores.astype(np.float64)

    def probability(self, outcome: Outcome) -> list[float | None]:
        """Return the probability of the wanted label (of the likeliest other one) per row; None without."""
        if outcome.scores is None or self.model.score_kind != "probability":
            return [None] * len(outcome.codes)
        wanted = wanted_shares(outcome.scores.astype(np.float64), self._of_scores)
        likely = wanted.astype(object)
        likely[np.isnan(wanted)] = None
        return list(likely)

    def prediction(self, outcome: Outcome, row: int) -> Label:
        """Return the prediction of one row as a plain Python value."""
        if self.model.regression:
            return float(outcome.values[row])
        label: Label = self.model.classes[outcome.codes[row]]
        return label

    def predictions(self, outcome: Outcome) -> list[Label]:
        """Return the predictions of all rows (m,) likewise."""
        if self.model.regression:
            return list(outcome.values.astype(np.float64).tolist())
        return [self.model.classes[code] for code in outcome.codes.tolist()]

    def of_sums(self, link: Link, start: int, sums: int) -> SumTarget:
        """Return this target over the `sums` raw scores of a structure, which start at column `start` of all."""
        known = self._of_sums.get((link, start, sums))
        return known or self._of_sums.setdefault((link, start, sums), self._for_sums(link, start, sums))

    @cached_property
    def _of_sums(self) -> dict[tuple[Link, int, int], SumTarget]:
        """Kept results of `of_sums`."""
        return {}

    def _for_sums(self, link: Link, start: int, sums: int) -> SumTarget:
        target = self.target
        each = sums if self.votes is None else sums // self.votes.of
        return SumTarget(
            link=link,
            start=start,
            stop=start + sums,
            classes=2 if link in ("sigmoid", "share") and each == 1 else each,
            kind="interval" if self._interval else "other" if target.differs else "label",
            column=self.own if self._interval or target.differs else self._column,
            least=target.min_probability or 0.0,
            low=-np.inf if target.low is None else float(target.low),
            high=np.inf if target.high is None else float(target.high),
            spread=self.spread,
            margins=self.model.score_kind == "margin",
            votes=self.votes,
        )

    @cached_property
    def _of_scores(self) -> SumTarget:
        """The target for the model's own scores."""
        models = 1 if self.votes is None else self.votes.of
        return self.of_sums("identity", 0, max(len(self.model.classes), 1) * models)

    @cached_property
    def _column(self) -> int:
        return self.target.column(self.model)

    @cached_property
    def _interval(self) -> bool:
        return self.target.interval


def spread_of(outcome: Outcome) -> float:
    """Return largest minus smallest prediction of a regression; 1 if they are all alike."""
    spread = float(np.ptp(outcome.values)) if len(outcome.values) else 0.0
    return spread if np.isfinite(spread) and spread > 0 else 1.0


NEAR = 1e-2  # raw scores farther from a decision than this cannot be on its other side by rounding, without `least`
MOST_TOLERANCE = 2e-4  # of scores, up to which `NEAR` is enough
Kind = Literal["label", "other", "interval"]


def _least(values: Floats) -> Floats:
    """Return the smallest value (m,) of every row (m, n)."""
    if values.shape[1] > FEW_COLUMNS or len(values) < MANY_ROWS:
        return np.asarray(values.min(axis=1))
    least = values[:, 0].copy()
    for column in values.T[1:]:
        np.minimum(least, column, out=least)
    return least


@dataclass(frozen=True)
class SumTarget:
    """A target over some of the raw scores of candidates.

    Attributes:
        link: how raw scores become scores; start, stop: which of the raw scores (columns) are this target's.
        classes: number of scores.
        kind: what is wanted; column: the wanted class, or with ``other`` the row's own one.
        least: least probability of the predicted label, 0 without.
        low, high: the wanted interval; spread: the unit of the distance to it.
        margins: whether the model's scores are margins (as of an SVM), which a sigmoid or softmax makes shares of.
        votes: None where one model decides; else how many of several must meet the target, whose raw scores stand side
            by side in these columns.
    """

    link: Link
    start: int
    stop: int
    classes: int
    kind: Kind
    column: int
    least: float
    low: float
    high: float
    spread: float
    margins: bool
    votes: Votes | None = None

    def of(self, sums: Floats) -> Floats:
        """Return this target's columns of raw scores (m, k)."""
        return sums[:, self.start : self.stop]

    @cached_property
    def columns(self) -> list[int]:
        """The classes that meet the target."""
        return [self.column] if self.kind == "label" else [c for c in range(self.classes) if c != self.column]

    @property
    def width(self) -> int:
        """Number of raw scores of one model."""
        return self.stop - self.start if self.votes is None else (self.stop - self.start) // self.votes.of

    @cached_property
    def alone(self) -> SumTarget:
        """The target of each of the models that vote, over its own raw scores."""
        return replace(self, start=0, stop=self.width, votes=None)

    def each(self, sums: Floats) -> Floats:
        """Return the raw scores (m * models, width) of all models that vote, of raw scores (m, models * width)."""
        return sums.reshape(-1, self.width)

    @np.errstate(invalid="ignore", over="ignore")  # sums that nobody asked for may be anything
    def leads(self, sums: Floats, weights: Floats) -> Floats:
        """Return what each model decides by (m, models): its raw scores among all (m, k), times `weights` (width,)."""
        own, width = self.of(sums), self.width
        if width == 1:  # a product of matrices takes several times as long
            return np.asarray(own * weights)
        found: Floats = self.each(own) @ weights
        return found.reshape(len(own), own.shape[1] // width)


Targets = Sequence[SumTarget]


def rate_values(values: Floats, target: SumTarget) -> tuple[Bools, Floats]:
    """Return whether values (m,) of a regression meet a target, and their grades in [0, 1]."""
    favourable = (target.low <= values) & (values <= target.high)
    gap = np.maximum(np.maximum(target.low - values, values - target.high), 0.0) / target.spread
    grade = np.where(favourable, 1.0, np.fmax((1.0 - gap) / 2.0, 0.0))
    return favourable, grade


def rate_labels(labels: NDArray[np.intp], scores: Floats, target: SumTarget) -> tuple[Bools, Floats]:
    """Rate decided labels (m,), by position among the classes, with their scores (m, classes).

    Returns:
        Whether the target is met, and the grade in [0, 1].
    """
    scores = _as_shares(scores, target)
    # a label outside of the model's classes (-1) never meets a target
    favourable = (labels >= 0) & ((labels == target.column) == (target.kind == "label"))
    if target.least > 0:
        # the probability of the label the model decided for, which need not be the likeliest one
        favourable &= scores[np.arange(len(labels)), labels] >= target.least
    wanted = _share(scores, target, own=target.kind == "label")
    if scores.shape[1] == 2:
        return favourable, wanted
    return favourable, (1.0 + wanted - _share(scores, target, own=target.kind != "label")) / 2.0


@np.errstate(invalid="ignore", over="ignore", divide="ignore")
def wanted_shares(scores: Floats, target: SumTarget) -> Floats:
    """Return the score (m,) of the wanted label, or of the likeliest other one, of scores (m, classes)."""
    return _share(_as_shares(scores, target), target, own=target.kind == "label")


def _as_shares(scores: Floats, target: SumTarget) -> Floats:
    """Return scores (m, classes) as shares, where they are margins."""
    if target.margins and scores.shape[1] == 2:  # of one margin m there are two columns: -m and m
        likelier = expit((scores[:, 1] - scores[:, 0]) / 2.0)
        return np.stack([1.0 - likelier, likelier], axis=1)
    return shares(scores) if target.margins else scores


def _share(scores: Floats, target: SumTarget, *, own: bool) -> Floats:
    """Return the share (m,) of the target's own column, or of the likeliest other one."""
    if not own:
        return _best_other(scores, target.column)
    return scores[:, target.column] if target.column >= 0 else np.zeros(len(scores))


def _best_other(scores: Floats, column: int) -> Floats:
    """Return the largest of scores (m, k) but one; 0 where there is no other."""
    count = scores.shape[1]
    if count == 2 and column >= 0:
        return scores[:, 1 - column]
    others = np.delete(scores, column, axis=1) if column >= 0 else scores
    found: Floats = others.max(axis=1) if others.shape[1] else np.zeros(len(scores))
    return found


@np.errstate(invalid="ignore", over="ignore", divide="ignore")
def rate_sums(sums: Floats, targets: Targets) -> tuple[Bools, Floats, Floats]:
    """Rate m candidates by their raw scores (m, k).

    Returns:
        Three arrays (m,): whether all targets are met, the least grade in [0, 1], and the margin >= 0: how far the
        scores are from where the first value would change, in units of max(1, |score|).
    """
    favourable, grade, margin = _rate(targets[0].of(sums), targets[0])
    if len(targets) == 1:
        return favourable, grade, margin
    near, far = np.where(favourable, margin, np.inf), np.where(favourable, -np.inf, margin)
    for target in targets[1:]:
        met, other, margin = _rate(target.of(sums), target)
        near, far = np.minimum(near, np.where(met, margin, np.inf)), np.maximum(far, np.where(met, -np.inf, margin))
        favourable, grade = favourable & met, np.minimum(grade, other)
    return favourable, grade, np.where(favourable, near, far)


def _rate(sums: Floats, target: SumTarget) -> tuple[Bools, Floats, Floats]:
    """Rate the raw scores (m, k) of one target; see `rate_sums`."""
    if target.votes is not None:
        return _rate_votes(sums, target)
    if target.kind == "interval":
        value = sums[:, 0]
        favourable, grade = rate_values(value, target)
        gap = np.minimum(np.abs(value - target.low), np.abs(value - target.high))
        return favourable, grade, gap / np.maximum(1.0, np.abs(value))
    scores = linked(sums, target.link)
    label, top, second = _ranked(scores)
    margin = (top - second) / np.maximum(1.0, np.abs(top))
    favourable, grade = rate_labels(label, scores, target)
    if target.least > 0:  # a row that misses both the label and its probability needs both
        short = target.least - top
        behind = np.where((label == target.column) == (target.kind == "label"), 0.0, margin)
        margin = np.where(favourable, np.minimum(margin, -short), np.maximum(behind, short))
    return favourable, grade, margin


def _votes(sums: Floats, target: SumTarget) -> tuple[Bools, Floats, Floats]:
    """Return what `rate_sums` does, per model that votes: three arrays (m, models), of raw scores (m, k)."""
    models = 0 if target.votes is None else target.votes.of
    favourable, grade, margin = _rate(target.each(sums), target.alone)
    return favourable.reshape(-1, models), grade.reshape(-1, models), margin.reshape(-1, models)


def _rate_votes(sums: Floats, target: SumTarget) -> tuple[Bools, Floats, Floats]:
    """Rate the raw scores (m, k) of models that vote; see `rate_sums`.

    The model decides whose signed margin has the rank of the votes needed: the margin of all is its own.
    """
    votes = target.votes or Votes(1, 1)
    met, grade, margin = _votes(sums, target)
    signed = np.where(met, margin, -margin)
    return met.sum(axis=1) >= votes.needed, votes.reached(grade), np.abs(votes.reached(signed))


def _ranked(scores: Floats) -> tuple[NDArray[np.intp], Floats, Floats]:
    """Return the column of the largest of scores (m, k), and the two largest scores, (m,) each."""
    if scores.shape[1] == 2:  # as all others, and several times as fast
        one, other = scores[:, 0], scores[:, 1]
        return (other > one).astype(np.intp), np.maximum(one, other), np.minimum(one, other)
    label = scores.argmax(axis=1)
    top = scores[np.arange(len(scores)), label]
    if scores.shape[1] == 1:
        return label, top, np.full(len(scores), -np.inf)
    return label, top, np.partition(scores, -2, axis=1)[:, -2]


@np.errstate(invalid="ignore", over="ignore", divide="ignore")
def lacking(sums: Floats, targets: Targets) -> Floats:
    """Return the shortfall (m,) of candidates with raw scores (m, k): how much is missing to meet all targets.

    It is the negative of a margin, in units of raw scores, for an interval in units of its spread: the total over all
    missed targets. If all are met it is negative: minus the margin of the target that is nearest to be missed. NaN if
    unknown. It also tells candidates apart whose grades are all next to 0. It guides searches; whether a target is met
    is decided by `rate_sums` alone.
    """
    if len(targets) == 1:
        return _lacks(targets[0].of(sums), targets[0])
    parts = [_lacks(target.of(sums), target) for target in targets]
    worst, total = reduce(np.maximum, parts), reduce(np.add, [np.maximum(part, 0.0) for part in parts])
    return np.where(worst > 0, total, worst)


def shortfalls(sums: Floats, targets: Targets) -> Floats:
    """Return the shortfall (m,) of raw scores (m, k), see `lacking`: 0 if all targets are met, inf if unknown."""
    found = np.maximum(lacking(sums, targets), 0.0)
    found[np.isnan(found)] = np.inf
    return found


def rounding(sums: Floats, targets: Targets, tolerance: float) -> float:
    """Return the size of `lacking` up to which rounding within `tolerance` might still change the decision.

    Raw scores (m, k) with a larger one need no exact check. It is `NEAR`; infinity where there is a least probability,
    the tolerance is large, or unbounded values are scores themselves, whose rounding grows with them. It is infinite
    also for one class against the rest, because the sigmoids of large raw scores are equal.
    """
    if tolerance > MOST_TOLERANCE:
        return np.inf
    unit = np.inf  # the least of those of unbounded values
    for target in targets:
        if target.least > 0 or (target.link == "sigmoid" and target.width > 1):
            return np.inf
        unit = min(unit, target.spread, 1.0) if target.link == "identity" else unit
    if np.isinf(unit):
        return NEAR
    high, low = np.fmax.reduce(sums, axis=None, initial=1.0), np.fmin.reduce(sums, axis=None, initial=-1.0)
    return NEAR if tolerance * float(max(high, -low)) <= NEAR * unit else np.inf


def _lacks(sums: Floats, target: SumTarget) -> Floats:
    """Return what must be added to the raw scores (m, k) of one target to meet it; negative where it is met."""
    if target.votes is not None:
        return _lacking_votes(sums, target, target.votes)
    if target.kind == "interval":
        found: Floats = np.maximum(target.low - sums[:, 0], sums[:, 0] - target.high) / target.spread
        return found
    if target.kind == "label":
        return _behind(sums, target.column, target)
    behind = [_behind(sums, column, target) for column in target.columns]
    return reduce(np.minimum, behind) if behind else np.full(len(sums), np.inf)


def _lacking_votes(sums: Floats, target: SumTarget, votes: Votes) -> Floats:
    """Return what the models lack (m,) that need least, as many as are needed: see `lacking`, also for its sign.

    Next to the threshold it is what the last of them lacks: what many lack together says nothing about rounding.
    """
    parts = _lacks(target.each(sums), target.alone).reshape(-1, votes.of)
    if votes.needed < votes.of:
        parts = np.sort(parts, axis=1)[:, : votes.needed]
    worst: Floats = parts.max(axis=1)
    return np.where(worst > NEAR, np.maximum(parts, 0.0).sum(axis=1), worst)


def _behind(sums: Floats, column: int, target: SumTarget) -> Floats:
    """Return how much must be added to the raw score of a class so that it is largest and has the least probability."""
    odds = np.log(target.least) - np.log1p(-min(target.least, 1.0 - 1e-9)) if target.least > 0 else -np.inf
    if target.link == "share":
        own = sums[:, 0] if column == 1 else 1.0 - sums[:, 0]
        return np.asarray(np.maximum(1.0 - own, target.least) - own)
    if target.link == "sigmoid" and sums.shape[1] == 1:
        found: Floats = max(odds, 0.0) + (-sums[:, 0] if column == 1 else sums[:, 0])
        return found
    own, others = sums[:, column], [sums[:, other] for other in range(sums.shape[1]) if other != column]
    rival = reduce(np.maximum, others) if others else np.full(len(sums), -np.inf)
    if target.least > 0 and target.link == "identity":
        rival = np.maximum(rival, target.least)
    elif target.least > 0:  # of one against the rest, as if the shares were those of a softmax
        rest = sum(np.exp(other - rival) for other in others)
        rival = np.maximum(rival, rival + np.log(rest) + odds)
    lacks: Floats = rival - own
    return lacks
