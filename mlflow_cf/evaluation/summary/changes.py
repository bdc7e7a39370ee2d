"""Common changes: one or two features go to a level, or up or down to a number, the same for every row."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, Final, NamedTuple

import numpy as np

from mlflow_cf.constraints.expressions import differing
from mlflow_cf.constraints.rules import Bools
from mlflow_cf.features import Feature, FeatureSpace, Floats
from mlflow_cf.words.sentences import spoken

BOUNDS: Final = ("equal", "at_least", "at_most")  # by `Move.direction`
MOST_VALUES: Final = 12  # of one feature in one direction: more are rounded to as many of them


class Move(NamedTuple):
    """Where one feature goes.

    Attributes:
        column: the feature.
        direction: 1: up to `code` from below; -1: down to it from above; 0: to it from any other level.
        code: the value, one that answers have.
    """

    column: int
    direction: int
    code: float

    def moved(self, own: Floats, unknown_from: float) -> Bools:
        """Return (m,) which of the values (m,) change; missing ones, and those without a rank, have no direction."""
        if not self.direction:
            differs: Bools = own != self.code
            return differs
        changed: Bools = (own < unknown_from) & ((self.code - own) * self.direction > 0)
        return changed

    def text(self, feature: Feature) -> str:
        """Return ``utilisation to 30 or less``."""
        words = {"ordinal": ("higher", "lower"), "date": ("later", "earlier")}.get(feature.kind, ("more", "less"))
        beyond = f" or {words[self.direction < 0]}" if self.direction else ""  # values that are left as they are
        return f"{feature.name.replace('_', ' ')} to {spoken(feature.value(self.code))}{beyond}"


CommonChange = tuple[Move, ...]  # one or two, by column


def applied(change: CommonChange, space: FeatureSpace, X: Floats) -> Floats:
    """Return rows X (m, d) with the values beyond every move set to it."""
    Z = X.copy()
    for move in change:
        Z[move.moved(X[:, move.column], space.features[move.column].unknown_from), move.column] = move.code
    return Z


def common_changes(space: FeatureSpace, X: Floats, Z: Floats, most: int) -> list[CommonChange]:
    """Return the common changes of one or two features that most answers Z (k, d) for rows X (k, d) are cases of.

    A number that was missing has no direction, and takes part in none. Where answers have more than 12 values of a
    number in one direction, each counts as the next one of 12 that goes as far.
    """
    answers = zip(X, Z, differing(Z, X), strict=True)
    moves = [_moves(space, x, z, np.flatnonzero(changed).tolist()) for x, z, changed in answers]
    kept = _kept(moves)
    found: Counter[CommonChange] = Counter()
    for several in moves:
        rounded = [move._replace(code=_rounded(move, kept[move.column, move.direction])) for move in several]
        found.update((move,) for move in rounded)
        found.update(combinations(rounded, 2))
    return sorted(found, key=lambda change: (-found[change], len(change), change))[:most]


def _moves(space: FeatureSpace, x: Floats, z: Floats, columns: Sequence[int]) -> list[Move]:
    """Return the moves from a row (d,) to its answer (d,), by column."""
    moves = []
    for column in columns:
        feature, old, new = space.features[column], float(x[column]), float(z[column])
        ranked = feature.has_order and old < feature.unknown_from
        if new < feature.unknown_from and (ranked or not feature.numeric):
            moves.append(Move(column, (1 if new > old else -1) if ranked else 0, new))
    return moves


def _kept(moves: Sequence[Sequence[Move]]) -> dict[tuple[int, int], Floats]:
    """Return for every column and direction the values that count, ascending; the farthest one is among them."""
    codes: dict[tuple[int, int], list[float]] = defaultdict(list)
    for several in moves:
        for move in several:
            codes[move.column, move.direction].append(move.code)
    kept, shares = {}, np.linspace(0, 1, MOST_VALUES)
    for (column, direction), known in codes.items():
        values = np.unique(known)
        if direction and len(values) > MOST_VALUES:
            values = np.unique(np.quantile(known, shares, method="higher" if direction > 0 else "lower"))
        kept[column, direction] = values
    return kept


def _rounded(move: Move, kept: Floats) -> float:
    """Return the nearest of the values that goes at least as far."""
    place = kept.searchsorted(move.code, side="right") - 1 if move.direction < 0 else kept.searchsorted(move.code)
    return float(kept[place])


def text_of(change: CommonChange, space: FeatureSpace) -> str:
    """Return ``utilisation to 30 or less and member to yes``."""
    return " and ".join(move.text(space.features[move.column]) for move in change)


def plain(change: CommonChange, space: FeatureSpace) -> tuple[Mapping[str, Any], ...]:
    """Return each move as ``{"feature": .., "at_most": 30}``, or ``at_least``, or ``equal``."""
    moved = [(space.features[move.column], move) for move in change]
    return tuple({"feature": f.name, BOUNDS[move.direction]: f.value(move.code)} for f, move in moved)
