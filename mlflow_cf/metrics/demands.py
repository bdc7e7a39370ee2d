"""What counterfactuals ask of a person: changes they are ready to make (UFCE), and the effort of plans (CSCF, SCF)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.errors import InputError, did_you_mean
from mlflow_cf.features import FeatureSpace, Floats, Level
from mlflow_cf.metrics.changes import DEFAULTS, Options, changed, mean


@dataclass(frozen=True)
class Wishes:
    """The features a user is ready to change, each with its limits for this row.

    Attributes:
        limits: number -> (low, high), both included; feature with levels -> the levels accepted; None: no limit.
    """

    limits: Mapping[str, tuple[float, float] | frozenset[Level] | None]

    def listed(self, space: FeatureSpace) -> Bools:
        """Return (d,) flags of the features named.

        Raises:
            InputError: a name that is not a feature.
        """
        for name in self.limits:
            if name not in space.index:
                raise InputError(f"wishes.{name}", "not a feature", did_you_mean(name, space.names, "features"))
        return np.array([name in self.limits for name in space.names])

    def inside(self, space: FeatureSpace, Z: Floats) -> Bools:
        """Return (k, d) flags of the values of rows Z (k, d) that keep the limits; what is not named keeps them.

        Raises:
            InputError: a name or a level that the features do not have, or limits of the wrong kind.
        """
        self.listed(space)
        inside = np.ones(Z.shape, dtype=np.bool_)
        for name, limit in self.limits.items():
            if limit is not None:
                column = space.index[name]
                inside[:, column] = _keeps(space, name, limit, Z[:, column])
        return inside


def actionability(
    space: FeatureSpace, x: Floats, Z: Floats, wishes: Wishes, options: Options = DEFAULTS
) -> float | None:
    """Mean share (or count, option) of the changed features that the user named and that keep their limits.

    Unit: share (or features). Better: up. Source: UFCE. A row that changes nothing counts 0; None without answers.
    """
    differ = changed(space, x, Z, options)
    wanted = (differ & wishes.listed(space) & wishes.inside(space, Z)).sum(axis=1)
    return mean(wanted.astype(np.float64) if options.actionability == "count" else _share(wanted, differ))


def actionable(space: FeatureSpace, x: Floats, Z: Floats, wishes: Wishes, options: Options = DEFAULTS) -> Bools:
    """Return (k,) whether at least 30 % (option) of a row's changes are wished, and no named feature leaves its limits.

    A feature that does not change leaves nothing, wherever it is.
    """
    differ, inside, listed = changed(space, x, Z, options), wishes.inside(space, Z), wishes.listed(space)
    share = _share((differ & listed & inside).sum(axis=1), differ)
    found: Bools = (share >= options.actionable_from) & ~(differ & listed & ~inside).any(axis=1) & differ.any(axis=1)
    return found


def feasibility(distance: Floats, valid: Bools, plausible: Bools, actionable: Bools) -> float:
    """1 if the nearest answer is valid, plausible and actionable, else 0; also 0 without answers.

    All arguments are (k,), `distance` that of the problem; the first of several nearest counts.

    Unit: share of queries, once averaged. Better: up. Source: UFCE.
    """
    if not len(distance):
        return 0.0
    nearest = int(np.argmin(distance))
    return float(valid[nearest] and plausible[nearest] and actionable[nearest])


def _share(wanted: NDArray[np.intp], differ: Bools) -> Floats:
    share: Floats = wanted / np.maximum(differ.sum(axis=1), 1)
    return share


def _keeps(space: FeatureSpace, name: str, limit: tuple[float, float] | frozenset[Level], codes: Floats) -> Bools:
    feature, path = space[name], f"wishes.{name}"
    if isinstance(limit, tuple):
        if not feature.numeric:
            raise InputError(path, f"limits {limit} for a feature with levels", "give the levels accepted as a set")
        kept: Bools = (codes >= limit[0]) & (codes <= limit[1])
        return kept
    if feature.numeric:
        raise InputError(path, "levels for a number", "give (low, high)")
    for level in limit:
        if level not in feature.code_of:
            raise InputError(path, f"{level!r} is not a level", did_you_mean(level, feature.known, "levels"))
    return np.isin(codes, [feature.code_of[level] for level in limit])


@dataclass(frozen=True)
class Steps:
    """The steps of one plan, in order.

    Attributes:
        efforts: b_i >= 0 of each step, finite.
        discounts: g_i in [0, 1] of each step, evaluated before it; empty if nothing is discounted.
    """

    efforts: tuple[float, ...]
    discounts: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not all(np.isfinite(effort) and effort >= 0 for effort in self.efforts):
            raise InputError("efforts", f"{self.efforts} holds a negative or infinite effort", "")
        if self.discounts and len(self.discounts) != len(self.efforts):
            raise InputError("discounts", f"{len(self.discounts)} for {len(self.efforts)} steps", "give one per step")
        if not all(0 <= discount <= 1 for discount in self.discounts):
            raise InputError("discounts", f"{self.discounts} leaves [0, 1]", "")


def sequence_cost(steps: Steps) -> float:
    """sum_i b_i: the effort of all steps without discount.

    Unit: the effort's. Better: down. Source: SCF, CSCF.
    """
    return float(sum(steps.efforts))


def discounted_cost(steps: Steps) -> float:
    """sum_i b_i * g_i: what earlier steps make easier costs less.

    Unit: the effort's. Better: down. Source: CSCF.
    """
    discounts = steps.discounts or (1.0,) * len(steps.efforts)
    return float(sum(effort * discount for effort, discount in zip(steps.efforts, discounts, strict=True)))


def sequence_length(steps: Steps) -> float:
    """Number of steps.

    Unit: steps. Better: down. Source: CSCF.
    """
    return float(len(steps.efforts))


def relative_difference(a: float, b: float) -> float:
    """(b - a) / max(a, b) of two costs >= 0: positive where `a` is the cheaper; 0 if both are 0.

    Unit: share, in [-1, 1]. Source: CSCF.
    """
    larger = max(a, b)
    return (b - a) / larger if larger > 0 else 0.0
