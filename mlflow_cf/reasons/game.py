"""Shapley values of a row against reference rows: exact where a model adds up or players are few, else sampled.

The players are feature groups. The value of a set of players is the mean score of rows in which these players have the
values of the row to explain and the others those of a reference row (interventional Shapley values; Strumbelj and
Kononenko, Knowledge and Information Systems 41, 2014).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import factorial
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import Floats
from mlflow_cf.structures.capabilities import SupportsHidden
from mlflow_cf.structures.shapley import Attribution, Contributions, SupportsContributions
from mlflow_cf.structures.structure import Encoded, Structure

MOST_ENUMERATED: Final = 4_096  # rows of all sets of players with all references; as many as a sample would score
MOST_SAMPLED: Final = 8_192  # rows of a sample; a network of 100 units scores them in some 10 ms
AT_ONCE: Final = 2_048  # rows scored between two looks at the clock
LEAST_PASSES: Final = 2  # of a sample: one has no standard error

ScoreRows = Callable[[Floats], Floats]
Numbers = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class LinearContributions:
    """What sets a linear model apart for a row from what it says of reference rows.

    Attributes:
        structure: the model; bias: (k,) its raw scores of nothing.
        mean: (d, k) what every column adds to the raw scores, on average over the references.
        player: (d,) of every column.
    """

    structure: SupportsHidden
    bias: Floats
    mean: Floats
    player: Numbers

    def of_row(self, row: Sequence[Encoded], weights: Floats) -> Attribution:
        """Return the players' Shapley values of a row (1, ...) per column; see `Contributions.of_row`."""
        layer = self.structure.hidden(row, weights)
        added = np.full_like(self.mean, np.nan) if layer is None else layer.added
        found = np.bincount(self.player, (added - self.mean) @ weights).astype(np.float64)
        score, reference = ((self.bias + part.sum(axis=0)) @ weights for part in (added, self.mean))
        return Attribution(found, float(score), float(reference))


def contributions_of(structure: Structure, references: Floats, player: Numbers) -> Contributions | None:
    """Return the exact contributions of players (d,) against coded reference rows (m, d); None: not of this model."""
    encoded = encode_all(structure, references)
    if isinstance(structure, SupportsContributions):
        return structure.against(encoded, player)
    if not isinstance(structure, SupportsHidden):
        return None
    layer = structure.hidden(encoded, np.ones(structure.outputs))
    if layer is None or layer.rectified:
        return None
    mean = layer.added.reshape(len(player), len(references), -1).mean(axis=1)
    return LinearContributions(structure, layer.bias, mean, player)


def encode_all(structure: Structure, rows: Floats) -> list[Encoded]:
    """Return the encoded values of coded rows (m, d), per column."""
    return [structure.encode(column, rows[:, column]) for column in range(rows.shape[1])]


class Sampled(NamedTuple):
    """Contributions that were computed from scores of rows.

    Attributes:
        attribution: the contributions; references: (m, d) the rows that they compare with.
        errors: (players,) standard errors of the contributions; None: they are exact.
        evaluations: rows that were scored.
    """

    attribution: Attribution
    references: Floats
    errors: Floats | None
    evaluations: int


@dataclass(frozen=True, eq=False)
class Game:
    """A row and reference rows between which scores are compared.

    Attributes:
        row: (d,) codes; references: (m, d) codes.
        player: (d,) of every column.
        score: scores coded rows (n, d) -> (n,).
    """

    row: Floats
    references: Floats
    player: Numbers
    score: ScoreRows

    def solved(self, most: int, rng: np.random.Generator, late: Callable[[], bool]) -> Sampled | None:
        """Return the contributions by at most so many rows scored; None: they are too few, or it is `late`.

        All sets of players are scored where that takes no more than a sample. Else the references are used equally
        often, each with a random order of the players and its reverse (antithetic pairs), so that contributions add up
        exactly; they vary with the orders alone, which their standard errors tell.
        """
        same = (self.references == self.row) | (np.isnan(self.references) & np.isnan(self.row))
        playing = np.unique(self.player[~same.all(axis=0)])
        rows = len(self.references)
        if len(playing) <= 12 and rows << len(playing) <= min(MOST_ENUMERATED, most):
            return None if late() else self.enumerated(playing)
        most = min(most, MOST_SAMPLED)
        pair = 2 * len(playing)  # the row and its reference are scored once for each order, but belong to both
        affordable = most // (LEAST_PASSES * (pair + 2))
        if not affordable:
            return None
        kept = self.references
        if affordable < rows:
            kept = kept[np.sort(rng.permutation(rows)[:affordable])]
        passes = most // (len(kept) * (pair + 2))
        return replace(self, references=kept).sampled(playing, passes, rng, late)

    def enumerated(self, playing: Numbers) -> Sampled:
        """Return the exact contributions of the players whose values differ, by scores of all sets of them."""
        count, rows = len(playing), len(self.references)
        sets = (np.arange(1 << count)[:, None] >> np.arange(count)) & 1 == 1
        values = self.score(self._mixed(sets.repeat(rows, 0), np.tile(np.arange(rows), len(sets)), playing))
        values = values.reshape(len(sets), rows).mean(axis=1)
        sizes, found = sets.sum(axis=1), np.zeros(int(self.player.max()) + 1)
        weights = np.array([factorial(s) * factorial(count - s - 1) / factorial(count) for s in range(count)])
        for place, player in enumerate(playing.tolist()):
            without = np.flatnonzero(~sets[:, place])
            gains = values[without + (1 << place)] - values[without]
            found[player] = weights[sizes[without]] @ gains
        attribution = Attribution(found, float(values[-1]), float(values[0]))
        return Sampled(attribution, self.references, None, len(sets) * rows)

    def sampled(
        self, playing: Numbers, passes: int, rng: np.random.Generator, late: Callable[[], bool]
    ) -> Sampled | None:
        """Return contributions by passes over the references, as many as there is time for."""
        rows, count, steps = len(self.references), len(playing), np.arange(len(playing) + 1)
        found: list[Floats] = []
        ends, evaluations = np.zeros(2), 0
        together = max(1, AT_ONCE // (rows * 2 * (count + 1)))
        while len(found) < passes and not late():
            some = min(together, passes - len(found))
            orders = rng.permuted(np.tile(np.arange(count), (some * rows, 1)), axis=1)
            orders = np.stack([orders, orders[:, ::-1]], axis=1).reshape(-1, count)
            rank = orders.argsort(axis=1)
            sets = rank[:, None, :] < steps[:, None]  # (orders, steps, players): those that have joined
            which = np.tile(np.arange(rows).repeat(2), some).repeat(count + 1)
            scores = self.score(self._mixed(sets.reshape(-1, count), which, playing)).reshape(-1, count + 1)
            evaluations += scores.size
            ends = np.array([scores[0, -1], scores[: 2 * rows, 0].mean()])
            gains = np.take_along_axis(np.diff(scores, axis=1), rank, axis=1)
            found += list(gains.reshape(some, 2 * rows, count).mean(axis=1))
        if len(found) < LEAST_PASSES:
            return None
        told = np.array(found)
        contributions, errors = np.zeros((2, int(self.player.max()) + 1))
        contributions[playing] = told.mean(axis=0)
        errors[playing] = told.std(axis=0, ddof=1) / np.sqrt(len(told))
        return Sampled(Attribution(contributions, *ends.tolist()), self.references, errors, evaluations)

    def _mixed(self, sets: NDArray[np.bool_], which: Numbers, playing: Numbers) -> Floats:
        """Return rows (n, d): the references `which` (n,), where the players in `sets` (n, p) have the row's values."""
        joined = np.zeros((len(sets), int(self.player.max()) + 1), dtype=np.bool_)
        joined[:, playing] = sets
        return np.where(joined[:, self.player], self.row, self.references[which])
