"""Models whose answer is no sum, but never falls when some raw scores inside it rise, and never rises with others.

Means of probabilities, a linear model over the answers of others, a weighted median, a function of a prediction:
bounds on the raw scores inside bound the answer, so that whatever is proved of sums is proved of these too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from mlflow_cf.features import Floats
from mlflow_cf.structures.capabilities import Boxes, SupportsProduct, boxes_of, breaks_of, ends_of, is_ordered
from mlflow_cf.structures.joined import Joined
from mlflow_cf.structures.structure import Encoded, Flags, Link, Structure, linked

ROUNDED: Final = 1e-13  # relative to the sizes of all terms: no sum of some hundred terms is rounded by more
HALF: Final = 1e-9  # how near to one half a share of weights is, if rounding may decide whether it is reached


class Combination(Protocol):
    """How the raw scores of models become those of a model that combines them."""

    @property
    def outputs(self) -> int:
        """Number k of raw scores that are made."""
        ...

    def of(self, sums: Floats) -> Floats:
        """Return the raw scores (m, k) made of those inside (m, n)."""
        ...

    def between(self, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        """Return bounds (m, k), (m, k) on what raw scores between `low` and `high` (m, n) make, rounding included."""
        ...


@dataclass(frozen=True, eq=False)
class WeightedScores:
    """Scores of several models, times weights, added up: a mean of probabilities, or a linear model over scores.

    Attributes:
        links: of every model, how its raw scores become scores.
        counts: of every model, the number of its raw scores.
        weights: (n, k) of all scores; a model with one raw score for two classes has one, that of the second class.
        bias: (k,) added to the sum.
    """

    links: tuple[Link, ...]
    counts: tuple[int, ...]
    weights: Floats
    bias: Floats

    @property
    def outputs(self) -> int:
        """Number k of sums."""
        return len(self.bias)

    def of(self, sums: Floats) -> Floats:
        """Return the weighted sums (m, k) of the scores that raw scores (m, n) lead to."""
        parts = zip(self._parts(sums), self.links, strict=True)
        return np.concatenate([_scores(part, link) for part, link in parts], axis=1) @ self.weights + self.bias

    def between(self, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        """Return bounds (m, k), (m, k) on the weighted sums, each score at its worst for itself."""
        parts = zip(self._parts(low), self._parts(high), self.links, strict=True)
        ends = [_score_bounds(least, most, link) for least, most, link in parts]
        least, most = (np.concatenate([pair[side] for pair in ends], axis=1) for side in (0, 1))
        up, down = np.maximum(self.weights, 0.0), np.minimum(self.weights, 0.0)
        size = np.maximum(np.abs(least), np.abs(most)) @ np.abs(self.weights) + np.abs(self.bias)
        slack = ROUNDED * size
        return least @ up + most @ down + self.bias - slack, most @ up + least @ down + self.bias + slack

    def _parts(self, sums: Floats) -> list[Floats]:
        return np.split(sums, np.cumsum(self.counts)[:-1], axis=1)


@dataclass(frozen=True, eq=False)
class WeightedMedian:
    """The weighted median of n raw scores, as AdaBoost's regressor takes it.

    Source: Drucker, Improving regressors using boosting techniques (1997), step 8; scikit-learn takes the first of
    the ascending predictions whose weights, with those before it, reach half of all.

    Attributes:
        weights: (n,) >= 0.
    """

    weights: Floats

    @property
    def outputs(self) -> int:
        """One."""
        return 1

    def of(self, sums: Floats) -> Floats:
        """Return the medians (m, 1) of raw scores (m, n)."""
        return self._reached(sums, 0.5)

    def between(self, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        """Return the medians (m, 1) of the lower bounds and of the upper ones: it never falls when a score rises."""
        return self._reached(low, 0.5 - HALF), self._reached(high, 0.5 + HALF)

    def _reached(self, sums: Floats, share: float) -> Floats:
        order = np.argsort(sums, axis=1)
        totals = np.cumsum(self.weights[order], axis=1, dtype=np.float64)
        place = (totals >= share * totals[:, -1:]).argmax(axis=1)
        return np.take_along_axis(sums, order[np.arange(len(sums)), place][:, None], axis=1)


@dataclass(frozen=True, eq=False)
class Increasing:
    """A function of one raw score that never falls, such as the inverse of a transformed target.

    Attributes:
        name: what it is called; function: numbers (m, 1) -> (m, 1).
    """

    name: str
    function: Callable[[Floats], Floats]

    @property
    def outputs(self) -> int:
        """One."""
        return 1

    def of(self, sums: Floats) -> Floats:
        """Return the function's values (m, 1)."""
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(self.function(sums), dtype=np.float64)

    def between(self, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        """Return the values at both ends; infinite where the function has none."""
        least, most = self.of(low), self.of(high)
        least, most = np.where(np.isnan(least), -np.inf, least), np.where(np.isnan(most), np.inf, most)
        return least - ROUNDED * np.abs(least), most + ROUNDED * np.abs(most)


@dataclass(frozen=True, eq=False)
class Combined:
    """A model that combines the raw scores of others, which are opened.

    Attributes:
        kind: what it is, with its size, for `describe()`.
        inside: the structures of the others as one, whose raw scores are side by side.
        how: what makes raw scores of those inside; link: what makes scores of these.
    """

    kind: str
    inside: Structure
    how: Combination
    link: Link

    @classmethod
    def of(
        cls, name: str, structures: Sequence[Structure], columns: int, how: Combination, link: Link = "identity"
    ) -> Combined:
        """Return `structures` over so many columns, combined by a model called `name`.

        Args:
            name: for `describe()`.
            structures: of the models inside.
            columns: of the raw features.
            how: combines their raw scores, side by side; link: turns the result into scores.
        """
        inside = structures[0] if len(structures) == 1 else Joined.of(structures, columns)
        kind = f"{name} of {inside.kind}"
        return CombinedProduct(kind, inside, how, link) if _multiplies(inside) else Combined(kind, inside, how, link)

    @property
    def outputs(self) -> int:
        """Number of raw scores."""
        return self.how.outputs

    def encode(self, column: int, codes: Floats) -> Encoded:
        """Return the encoded values (n, ...) of raw codes (n,) of one column."""
        return self.inside.encode(column, codes)

    def ends(self, column: int) -> Floats | None:
        """Return the ends of intervals on which all models inside are constant; None if one of them is not."""
        return ends_of(self.inside, column)

    def ordered(self, column: int) -> bool:
        """Return whether all models inside only compare the numbers of a column."""
        return is_ordered(self.inside, column)

    def breaks(self, column: int) -> Floats | None:
        """Return the breaks of the models inside: what bounds them bounds their combination."""
        return breaks_of(self.inside, column)

    def sums(self, rows: Sequence[Encoded]) -> Floats:
        """Return the raw scores (m, k) of rows, one encoded array (m, ...) per column."""
        return self.how.of(self.inside.sums(rows))

    def restrict(self, row: Sequence[Encoded], changed: Sequence[int]) -> Combined:
        """Return the model over the columns `changed` alone."""
        return replace(self, inside=self.inside.restrict(row, changed))

    def sweep(
        self, rows: Sequence[Encoded], values: Sequence[Encoded | None], wanted: Flags | None = None
    ) -> list[Floats | None]:
        """Return, per column, the raw scores (p, t, k) of p rows with this column alone set to each of its `values`."""
        found = []
        for column, sums in enumerate(self.inside.sweep(rows, values, wanted)):
            if sums is not None and wanted is not None:  # what is not wanted may be anything, and no number
                sums[~wanted[:, column]] = 0.0
            found.append(sums)
        return [
            None if sums is None else self.how.of(sums.reshape(-1, sums.shape[2])).reshape(*sums.shape[:2], -1)
            for sums in found
        ]

    def bounds(self, allowed: Sequence[Encoded]) -> tuple[Floats, Floats]:
        """Return lower and upper bounds (k,) on the raw scores of all rows with allowed values."""
        low, high = self.inside.bounds(allowed)
        least, most = self.how.between(low[None], high[None])
        return least[0], most[0]

    def boxes(self, values: Sequence[Encoded]) -> CombinedBoxes:
        """Return the bounds of boxes in the grid of `values` (t, ...) per column."""
        return CombinedBoxes(boxes_of(self.inside, values), self.how)


@dataclass(frozen=True, eq=False)
class CombinedProduct(Combined):
    """A combination of models that all score product grids."""

    def product(self, values: Sequence[Encoded], dimension: NDArray[np.intp], weights: Floats | None = None) -> Floats:
        """Return the raw scores (m, k) of all rows of a grid, or these times `weights`; see `SupportsProduct`."""
        if not isinstance(self.inside, SupportsProduct):
            raise TypeError(f"{self.inside.kind} scores no product grids")
        found = self.how.of(self.inside.product(values, dimension))
        return found if weights is None else found @ weights


@dataclass(frozen=True, eq=False)
class CombinedBoxes:
    """The bounds of a combination on boxes of one grid."""

    inside: Boxes
    how: Combination

    def bounds(self, masks: Flags) -> tuple[Floats, Floats]:
        """Return bounds (m, k), (m, k) on the raw scores of all rows of the boxes `masks` (m, n)."""
        low, high = self.inside.bounds(masks)
        empty = ~(low <= high).all(axis=1)  # of a box without rows, whose bounds are infinite
        least, most = np.empty((2, len(low), self.how.outputs))
        least[empty], most[empty] = np.inf, -np.inf
        least[~empty], most[~empty] = self.how.between(low[~empty], high[~empty])
        return least, most


def _multiplies(inside: Structure) -> bool:
    return isinstance(inside, SupportsProduct)


def _scores(sums: Floats, link: Link) -> Floats:
    """Return the scores of raw scores (m, n); of a single one for two classes, that of the second class alone."""
    if sums.shape[1] == 1:
        return expit(sums) if link == "sigmoid" else sums
    return linked(sums, link)


def _score_bounds(low: Floats, high: Floats, link: Link) -> tuple[Floats, Floats]:
    """Return bounds (m, n) of the scores of raw scores between bounds (m, n)."""
    if link in ("identity", "share") or low.shape[1] == 1:
        return _scores(low, link), _scores(high, link)
    return _leads(low, high, link), _leads(high, low, link)


def _leads(own: Floats, others: Floats, link: Link) -> Floats:
    """Return the share (m, n) of each class with its raw score in `own`, where all others have those in `others`."""
    if link == "softmax":
        with np.errstate(over="ignore"):
            rivals = np.exp(others[:, None, :] - own[:, :, None])
        rivals[:, np.arange(own.shape[1]), np.arange(own.shape[1])] = 0.0
        return np.asarray(1.0 / (1.0 + rivals.sum(axis=2)))
    mine, rest = expit(own), expit(others)
    total = mine + rest.sum(axis=1, keepdims=True) - rest
    return np.asarray(np.where(total > 0, mine / np.where(total > 0, total, 1.0), 1.0))
