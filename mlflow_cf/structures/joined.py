"""Several structures side by side: what must hold for one model and for others is asked of all of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import Floats
from mlflow_cf.structures.links import Flags, Link, Tokens
from mlflow_cf.structures.pairs import PairTables, side_by_side
from mlflow_cf.structures.parts import Part
from mlflow_cf.structures.structure import Boxes, Pairs, Structure


@dataclass(frozen=True, eq=False)
class Joined:
    """Structures over the same features; the sums of each follow those of the one before it.

    The tokens (n, width) of a column are those of all structures side by side.

    Attributes:
        structures: the structures.
        widths: per structure, how wide its tokens of every column are, 0 of one it does not look at; None for tokens
            (n,).
    """

    structures: tuple[Structure, ...]
    widths: tuple[tuple[int | None, ...], ...]

    @classmethod
    def of(cls, structures: Sequence[Structure], columns: int) -> Joined:
        """Return structures over so many columns as one."""
        nothing = np.empty(0)
        shapes = [[part.encode(column, nothing).shape[1:] for column in range(columns)] for part in structures]
        return cls(tuple(structures), tuple(tuple(shape[0] if shape else None for shape in some) for some in shapes))

    @property
    def kind(self) -> str:
        """What it is made of."""
        return " and ".join(part.kind for part in self.structures)

    @property
    def link(self) -> Link:
        """None of its own: every part's link belongs to the target that rates its sums."""
        return "identity"

    @property
    def outputs(self) -> int:
        """How many sums all structures have."""
        return sum(part.outputs for part in self.structures)

    @property
    def steady(self) -> bool:
        """Whether all models are."""
        return all(part.steady for part in self.structures)

    def encode(self, column: int, codes: Floats) -> Tokens:
        """Return the tokens (n, width) of raw codes (n,) of one column."""
        tokens: Tokens = np.column_stack([part.encode(column, codes) for part in self.structures])
        return tokens

    def ends(self, column: int) -> Floats | None:
        """Return the ends of all structures; None if one of them tells all numbers apart."""
        ends = [part.ends(column) for part in self.structures]
        known = [some for some in ends if some is not None]
        return np.unique(np.concatenate(known)) if len(known) == len(ends) else None

    def ordered(self, column: int) -> bool:
        """Return whether all structures only compare the numbers of a column."""
        return all(part.ordered(column) for part in self.structures)

    def parts(self) -> tuple[Part, ...] | None:
        """Return the parts of all structures."""
        found = [part.parts() for part in self.structures]
        known = [some for some in found if some is not None]
        return tuple(chain.from_iterable(known)) if len(known) == len(found) else None

    def sums(self, tokens: Sequence[Tokens]) -> Floats:
        """Return the sums (m, k) of all structures."""
        return np.concatenate([part.sums(self.of_part(at, tokens)) for at, part in enumerate(self.structures)], axis=1)

    def score(self, tokens: Sequence[Tokens]) -> Floats:
        """Return the scores of all structures side by side."""
        return np.concatenate([part.score(self.of_part(at, tokens)) for at, part in enumerate(self.structures)], axis=1)

    def restrict(self, row: Sequence[Tokens], changed: Sequence[int]) -> Joined:
        """Return the structures of the `changed` columns alone."""
        parts = tuple(part.restrict(self.of_part(at, row), changed) for at, part in enumerate(self.structures))
        return Joined(parts, tuple(tuple(widths[column] for column in changed) for widths in self.widths))

    def sweep(
        self, rows: Sequence[Tokens], values: Sequence[Tokens | None], wanted: Flags | None = None
    ) -> list[Floats | None]:
        """Return, per column, the sums (p, t, k) of rows with this one column's token replaced by each of `values`."""
        found = []
        for at, part in enumerate(self.structures):
            mine = [None if some is None else self._tokens(at, column, some) for column, some in enumerate(values)]
            found.append(part.sweep(self.of_part(at, rows), mine, wanted))
        swept = ([sums for sums in column if sums is not None] for column in zip(*found, strict=True))
        return [np.concatenate(column, axis=2) if column else None for column in swept]

    def pairs(self, row: Sequence[Tokens]) -> JoinedPairs | None:
        """Return what two changes of a `row` together do to the sums of all structures, if all of them tell."""
        found = [part.pairs(self.of_part(at, row)) for at, part in enumerate(self.structures)]
        known = tuple(pairs for pairs in found if pairs is not None)
        return JoinedPairs(known, self) if len(known) == len(found) else None

    def product(
        self, tokens: Sequence[Tokens], dimension: NDArray[np.intp], weights: Floats | None = None
    ) -> Floats | None:
        """Return the sums of all rows that take one choice of every dimension, if all structures gain by it."""
        found: list[Floats] = []
        for at, part in enumerate(self.structures):
            sums = part.product(self.of_part(at, tokens), dimension)
            if sums is None:
                return None
            found.append(sums)
        every = np.concatenate(found, axis=1)
        return every if weights is None else every @ weights

    def bounds(self, allowed: Sequence[Tokens]) -> tuple[Floats, Floats]:
        """Return lower and upper bounds (k,) on the sums of all structures."""
        pairs = [part.bounds(self.of_part(at, allowed)) for at, part in enumerate(self.structures)]
        return np.concatenate([low for low, _ in pairs]), np.concatenate([high for _, high in pairs])

    def boxes(self, values: Sequence[Tokens]) -> JoinedBoxes:
        """Return what bounds parts of the box of rows whose tokens are among `values` of their columns."""
        return JoinedBoxes(tuple(part.boxes(self.of_part(at, values)) for at, part in enumerate(self.structures)))

    def of_part(self, at: int, tokens: Sequence[Tokens]) -> list[Tokens]:
        """Return one part's tokens of every column."""
        return [self._tokens(at, column, some) for column, some in enumerate(tokens)]

    def _tokens(self, at: int, column: int, tokens: Tokens) -> Tokens:
        """Return one part's tokens out of those of a column, for any number of rows or for a single one."""
        before, width = [widths[column] for widths in self.widths[:at]], self.widths[at][column]
        start = sum(1 if known is None else known for known in before)
        if width is not None:
            return tokens[..., start : start + width].astype(np.float64)
        cells: Tokens = tokens[..., start].astype(np.int32)
        return cells


@dataclass(frozen=True, eq=False)
class JoinedPairs:
    """What two changes do to the sums of several structures, whose tokens the whole tells apart."""

    parts: tuple[Pairs, ...]
    whole: Joined

    def tables(
        self, values: Sequence[Tokens], first: NDArray[np.intp], second: NDArray[np.intp], most: int
    ) -> PairTables | None:
        """Return what changes to `values` (t, ...) of every column do, for pairs of columns (p,), (p,)."""
        found = [part.tables(self.whole.of_part(at, values), first, second, most) for at, part in enumerate(self.parts)]
        known = [each.tables for each in found if each is not None]
        if len(known) < len(found):
            return None
        together = side_by_side(known, most)
        return None if together is None else PairTables(together)


@dataclass(frozen=True, eq=False)
class JoinedBoxes:
    """Bounds of parts of one box by several structures."""

    parts: tuple[Boxes, ...]

    def bounds(self, masks: Flags) -> tuple[Floats, Floats]:
        """Return bounds (m, k), (m, k) on the sums of all rows whose choices are allowed by each of `masks`."""
        pairs = [part.bounds(masks) for part in self.parts]
        return np.concatenate([low for low, _ in pairs], axis=1), np.concatenate([high for _, high in pairs], axis=1)

    def confined(self, mask: Flags, near: Flags, groups: Sequence[Sequence[int]]) -> tuple[Floats, Floats] | None:
        """Return what all structures say of a box with the columns of one of `groups` confined, if each saves by it."""
        pairs = [part.confined(mask, near, groups) for part in self.parts]
        known = [pair for pair in pairs if pair is not None]
        if len(known) < len(pairs):
            return None
        return np.concatenate([low for low, _ in known], axis=1), np.concatenate([high for _, high in known], axis=1)

    def gains(self, mask: Flags, own: NDArray[np.intp], weights: Floats) -> None:
        """Return None: what gains for one structure may lose for another."""
        del mask, own, weights
