"""What decides targets: weighted sums of the raw scores, one of them or several that must all be large enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from mlflow_cf.features import Floats
from mlflow_cf.goal.targets import SumTarget

MOST_TOLERANCE = 1e-2  # larger ones are more than rounding
SLACK = 1e-9  # relative: the step is rounded itself
SHARE = 1.001  # upper bound of a class's share, rounding included


@dataclass(frozen=True, eq=False)
class DecisionScore:
    """A weighted sum of raw scores that decides the targets: they are met where it is large enough.

    Attributes:
        weights: (k,) of the raw scores.
        may, sure: from which values on the targets may be met, and certainly are, within the tolerance.
    """

    weights: Floats
    may: float
    sure: float

    @property
    def step(self) -> float:
        """By how much it has to grow from `may` to `sure`."""
        return (self.sure - self.may) * (1 + SLACK)

    @classmethod
    def of(cls, targets: Sequence[SumTarget], tolerance: float) -> DecisionScore | None:
        """Return the decision score of some targets, None if they depend on more than one number.

        Args:
            targets: all of which must be met.
            tolerance: by how much scores may be off, in units of max(1, |score|).
        """
        if len(targets) != 1 or targets[0].votes is not None or tolerance > MOST_TOLERANCE:
            return None
        (target,) = targets
        if target.kind == "interval":
            return _of_interval(target, tolerance)
        return _of_label(target, tolerance)

    @classmethod
    def each(cls, target: SumTarget, tolerance: float) -> tuple[DecisionScore, ...]:
        """Return scores all of which must be large enough for one model to meet a target; none: no such are known.

        If all are as large as `sure` says, the target is certainly met; if there are several, also with less perhaps.
        """
        alone = cls.of([target], tolerance)
        if alone is not None:
            return (alone,)
        if target.votes is not None or tolerance > MOST_TOLERANCE:
            return ()
        if target.kind == "interval":
            ends = (replace(target, low=-np.inf), replace(target, high=np.inf))
            found = [_of_interval(end, tolerance) for end in ends]
            return tuple(one for one in found if one is not None)
        if target.kind != "label" or target.column < 0 or target.margins:
            return ()
        return _of_class(target, tolerance * SHARE) if target.link in ("softmax", "identity") else ()


class ModelDecisions(NamedTuple):
    """What all models must say, target after target; where that takes several numbers, each stands for a model.

    Attributes:
        weights: per target, (f, width) the numbers, as sums over the raw scores of one of its models.
        models: (targets,) how many numbers each has, those of a model one after the other; spare: (targets,) how many
            of them need not be large enough.
        may, sure: (models,) from which on the target may be met, and certainly is.
        told: whether `sure` is what it takes, or as much as it takes at most.
    """

    weights: list[Floats]
    models: NDArray[np.intp]
    spare: NDArray[np.intp]
    may: Floats
    sure: Floats
    told: bool

    @classmethod
    def of(cls, targets: Sequence[SumTarget], tolerance: float) -> ModelDecisions | None:
        """Return what models must say; None: that is no sums, or some may refuse of which each must say several things.

        Scores may be off by `tolerance`, in units of max(1, |score|).
        """
        weights, models, spare, ends = list[Floats](), list[int](), list[int](), list[Floats]()
        for target in targets:
            each, votes = DecisionScore.each(target.alone, tolerance), target.votes
            count, refusing = (1, 0) if votes is None else (votes.of, votes.of - votes.needed)
            if not each or (refusing and len(each) > 1):
                return None
            weights.append(np.array([one.weights for one in each]))
            models.append(count * len(each))
            spare.append(refusing)
            ends.append(np.tile([[one.may, one.sure] for one in each], (count, 1)))
        may, sure = np.concatenate(ends).T
        told = all(len(some) == 1 for some in weights)
        return cls(weights, np.array(models), np.array(spare), may, sure, told)


def _of_class(target: SumTarget, off: float) -> tuple[DecisionScore, ...]:
    """Return what a class must lead each other one by, and what its share must be, if shares may be `off` by so much.

    With a share p of at least q, the e^-d of the leads d of its raw score add up to 1 / p - 1 <= 1 / q - 1. So no lead
    is smaller than logit(q); and their mean is at least logit(q) + log(number of leads), because e^-d is convex.
    """
    one = np.eye(target.classes)[target.column]
    leads = [one - other for number, other in enumerate(np.eye(target.classes)) if number != target.column]
    if target.link == "identity":
        share = [DecisionScore(one, target.least - 2 * off, target.least + off)] if target.least > 0 else []
        return (*(DecisionScore(lead, -off, off) for lead in leads), *share)
    if target.classes * off >= 1.0:
        return ()
    # the largest of k shares is 1 / k or more, so that a lead shows in them at least k times smaller
    sure = -float(np.log1p(-target.classes * off))
    if target.least <= 2 * off:
        return tuple(DecisionScore(lead, -sure, sure) for lead in leads)
    odds = float(logit(target.least - 2 * off))  # off by so much behind another class that is off itself
    mean = odds + float(np.log(len(leads)))
    enough = max(sure, float(logit(min(target.least + off, 1.0)) + np.log(len(leads))))  # for each, if all are alike
    found = [DecisionScore(lead, max(-sure, odds), enough) for lead in leads]
    return (*found, DecisionScore(np.mean(leads, axis=0), mean, mean))


def _of_label(target: SumTarget, tolerance: float) -> DecisionScore | None:
    """Return the decision score of a wanted label of two classes, with its least probability."""
    columns, least = target.columns, max(target.least, 0.5)
    if target.classes != 2 or len(columns) != 1 or target.margins or target.column < 0:
        return None
    toward, off = 1.0 if columns[0] == 1 else -1.0, tolerance * SHARE
    if target.link == "share":
        off /= 1.0 if target.least > 0 else 2.0  # a lead grows twice as fast as a share
        end = least - (toward < 0)
        return DecisionScore(np.array([toward]), end - off, end + off)
    if target.link == "identity":  # shares, of which none exceeds 1 but by rounding
        return None if target.least > 0 else DecisionScore(toward * np.array([-1.0, 1.0]), -off, off)
    if target.stop - target.start == 2 and target.link == "sigmoid":
        return None
    weights = [1.0] if target.stop - target.start == 1 else [-1.0, 1.0]
    may, sure = logit(least - off), logit(min(least + off, 1.0))
    return DecisionScore(toward * np.array(weights), float(may), float(sure))


def _of_interval(target: SumTarget, tolerance: float) -> DecisionScore | None:
    """Return the decision score of an interval that is open on one side."""
    if np.isfinite(target.low) == np.isfinite(target.high):
        return None
    end, toward = (target.low, 1.0) if np.isfinite(target.low) else (target.high, -1.0)
    off = 2 * tolerance * max(1.0, abs(end))  # values near the end are little larger
    return DecisionScore(np.array([toward]), toward * end - off, toward * end + off)
