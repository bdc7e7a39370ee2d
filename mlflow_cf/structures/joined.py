"""Several structures as one, so that one search meets the targets of a model and of further requirements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import Floats
from mlflow_cf.structures.agreement import Agreement, AllLeaves
from mlflow_cf.structures.capabilities import (
    Boxes,
    Pairs,
    SupportsConfined,
    SupportsModelLeaves,
    SupportsPairs,
    SupportsProduct,
    boxes_of,
    breaks_of,
    ends_of,
    is_ordered,
    is_steady,
    parts_of,
)
from mlflow_cf.structures.kernels.triple_grid import GridChanges
from mlflow_cf.structures.layers.boxes import LinearBoxes
from mlflow_cf.structures.model_leaves import ModelLeaves
from mlflow_cf.structures.pair_tables import PairTables, side_by_side
from mlflow_cf.structures.parts import Part
from mlflow_cf.structures.structure import Encoded, Flags, Link, Structure

Widths = tuple[tuple[int | None, ...], ...]


class JoinedLeaves(NamedTuple):
    """The leaves of the models of each structure, and of all together."""

    parts: tuple[ModelLeaves, ...]
    all: AllLeaves

    def kinds(self, cells: Encoded, sizes: Sequence[int]) -> NDArray[np.int32]:
        """Return the kinds (models, n) of the `cells` (structures, n) of values, so many of each feature."""
        return np.concatenate([part.kinds(some, sizes) for part, some in zip(self.parts, cells, strict=True)])


@dataclass(frozen=True, eq=False)
class Joined:
    """Structures over the same features, whose raw scores are concatenated.

    The encoded values (n, width) of a column are those of all structures, concatenated.

    Attributes:
        structures: the structures.
        widths: per structure and column, the width of its encoded values (n, width): 0 for a column it does not use;
            None for encoded values (n,).
    """

    structures: tuple[Structure, ...]
    widths: Widths

    @classmethod
    def of(cls, structures: Sequence[Structure], columns: int) -> Joined:
        """Return structures over so many columns as one."""
        none = np.empty(0)
        shapes = [[part.encode(column, none).shape[1:] for column in range(columns)] for part in structures]
        widths = tuple(tuple(shape[0] if shape else None for shape in some) for some in shapes)
        combining = tuple(part for part in structures if isinstance(part, Combining))
        if len(combining) == len(structures):
            return JoinedCombining(combining, widths)
        return Joined(tuple(structures), widths)

    @property
    def kind(self) -> str:
        """The kinds of all structures."""
        return " and ".join(part.kind for part in self.structures)

    @property
    def link(self) -> Link:
        """Identity: the link of each structure is applied by the target of its raw scores."""
        return "identity"

    @property
    def outputs(self) -> int:
        """Number of raw scores of all structures."""
        return sum(part.outputs for part in self.structures)

    @property
    def steady(self) -> bool:
        """Whether all structures are steady."""
        return all(is_steady(part) for part in self.structures)

    def encode(self, column: int, codes: Floats) -> Encoded:
        """Return the encoded values (n, width) of raw codes (n,) of one column."""
        encoded: Encoded = np.column_stack([part.encode(column, codes) for part in self.structures])
        return encoded

    @property
    def has_leaves(self) -> bool:
        """Whether all structures have models of trees that list together what they accept."""
        return all(isinstance(part, SupportsModelLeaves) for part in self.structures)

    def ends(self, column: int) -> Floats | None:
        """Return the ends of all structures; None if one of them is not known to be piecewise constant."""
        ends = [ends_of(part, column) for part in self.structures]
        known = [some for some in ends if some is not None]
        return np.unique(np.concatenate(known)) if len(known) == len(ends) else None

    def breaks(self, column: int) -> Floats | None:
        """Return the breaks of all structures; None if those of one are not known."""
        breaks = [breaks_of(part, column) for part in self.structures]
        known = [some for some in breaks if some is not None]
        return np.unique(np.concatenate(known)) if len(known) == len(breaks) else None

    def ordered(self, column: int) -> bool:
        """Return whether all structures only compare the numbers of a column."""
        return all(is_ordered(part, column) for part in self.structures)

    def parts(self) -> tuple[Part, ...]:
        """Return the parts of all structures.

        Raises:
            NotOpenedError: one of them has none.
        """
        return tuple(chain.from_iterable(map(parts_of, self.structures)))

    def sums(self, rows: Sequence[Encoded]) -> Floats:
        """Return the raw scores (m, k) of all structures."""
        return np.concatenate([part.sums(self.of_part(at, rows)) for at, part in enumerate(self.structures)], axis=1)

    def restrict(self, row: Sequence[Encoded], changed: Sequence[int]) -> Joined:
        """Return the structures of the `changed` columns alone."""
        parts = tuple(part.restrict(self.of_part(at, row), changed) for at, part in enumerate(self.structures))
        widths = tuple(tuple(widths[column] for column in changed) for widths in self.widths)
        return replace(self, structures=parts, widths=widths)

    def sweep(
        self, rows: Sequence[Encoded], values: Sequence[Encoded | None], wanted: Flags | None = None
    ) -> list[Floats | None]:
        """Return, per column, the raw scores (p, t, k) of p rows with this column alone set to each of its `values`."""
        found = []
        for at, part in enumerate(self.structures):
            mine = [None if some is None else self._of_column(at, column, some) for column, some in enumerate(values)]
            found.append(part.sweep(self.of_part(at, rows), mine, wanted))
        swept = ([sums for sums in column if sums is not None] for column in zip(*found, strict=True))
        return [np.concatenate(column, axis=2) if column else None for column in swept]

    def agreement(self, values: Sequence[Encoded], changes: GridChanges, weights: Sequence[Floats]) -> Agreement | None:
        """Return all models about the candidates of a row; None: some are no trees, or take too much memory.

        Args:
            values: per column, the values (t, ...) of a grid; changes: what they cost, and which are the row's own.
            weights: per structure, (f, width) those of the raw scores of each of its models in the f numbers that it
                decides by, each of which then stands for a model.
        """
        known = self.leaves(weights)
        if known is None:
            return None
        cells, sizes = np.concatenate(values).T, [*map(len, values)]  # of trees each value has one number, its cell
        return Agreement(known.all, known.kinds(cells, sizes), np.append(0, np.cumsum(sizes)), changes)

    def leaves(self, weights: Sequence[Floats]) -> JoinedLeaves | None:
        """Return the leaves of all models, each of which decides by some numbers; None as in `agreement`."""
        key = tuple(some.tobytes() for some in weights)
        if key not in self._leaves:
            found = [
                part.model_leaves(some)
                for part, some in zip(self.structures, weights, strict=True)
                if isinstance(part, SupportsModelLeaves)
            ]
            known = tuple(leaves for leaves in found if leaves is not None)
            every = len(known) == len(self.structures)
            self._leaves[key] = JoinedLeaves(known, AllLeaves.of(known)) if every else None
        return self._leaves[key]

    @cached_property
    def _leaves(self) -> dict[tuple[bytes, ...], JoinedLeaves | None]:
        """The leaves of all models, by the weights of their raw scores: those of one label, mostly."""
        return {}

    def bounds(self, allowed: Sequence[Encoded]) -> tuple[Floats, Floats]:
        """Return lower and upper bounds (k,) on the raw scores of all structures."""
        pairs = [part.bounds(self.of_part(at, allowed)) for at, part in enumerate(self.structures)]
        return np.concatenate([low for low, _ in pairs]), np.concatenate([high for _, high in pairs])

    def boxes(self, values: Sequence[Encoded]) -> JoinedBoxes | LinearBoxes:
        """Return the bounds of boxes in the grid of `values` (t, ...) per column."""
        found = tuple(boxes_of(part, self.of_part(at, values)) for at, part in enumerate(self.structures))
        linear = [part for part in found if isinstance(part, LinearBoxes)]
        if len(linear) == len(found):
            return LinearBoxes.beside(linear)
        confining = tuple(part for part in found if isinstance(part, ConfiningBoxes))
        return JoinedConfiningBoxes(confining) if len(confining) == len(found) else JoinedBoxes(found)

    def of_part(self, at: int, encoded: Sequence[Encoded]) -> list[Encoded]:
        """Return the encoded values of one structure, per column."""
        return [self._of_column(at, column, some) for column, some in enumerate(encoded)]

    def _of_column(self, at: int, column: int, encoded: Encoded) -> Encoded:
        """Return one structure's encoded values of a column (..., width), or (...)."""
        before, width = [widths[column] for widths in self.widths[:at]], self.widths[at][column]
        start = sum(1 if known is None else known for known in before)
        if width is not None:
            return encoded[..., start : start + width].astype(np.float64)
        cells: Encoded = encoded[..., start].astype(np.int32)
        return cells


@runtime_checkable
class Combining(Structure, SupportsPairs, SupportsProduct, Protocol):
    """A structure that tabulates pairs of changes and scores product grids."""


@dataclass(frozen=True, eq=False)
class JoinedCombining(Joined):
    """Structures that all tabulate pairs of changes and score product grids."""

    structures: tuple[Combining, ...]

    def pairs(self, row: Sequence[Encoded]) -> JoinedPairs:
        """Return the pairs of changes of a `row` (1, ...)."""
        return JoinedPairs(tuple(part.pairs(self.of_part(at, row)) for at, part in enumerate(self.structures)), self)

    def product(self, values: Sequence[Encoded], dimension: NDArray[np.intp], weights: Floats | None = None) -> Floats:
        """Return the raw scores (m, k) of all rows of a grid, or these times `weights`; see `SupportsProduct`."""
        found = [part.product(self.of_part(at, values), dimension) for at, part in enumerate(self.structures)]
        every = np.concatenate(found, axis=1)
        return every if weights is None else every @ weights


@dataclass(frozen=True, eq=False)
class JoinedPairs:
    """The pairs of changes of several structures.

    Attributes:
        parts: of each structure.
        whole: the structures, which know whose encoded values are whose.
    """

    parts: tuple[Pairs, ...]
    whole: Joined

    def tables(
        self, values: Sequence[Encoded], first: NDArray[np.intp], second: NDArray[np.intp], most: int
    ) -> PairTables | None:
        """Return the joint effects of changing two columns to any of their `values` (t, ...); see `Pairs.tables`."""
        found = [part.tables(self.whole.of_part(at, values), first, second, most) for at, part in enumerate(self.parts)]
        known = [each.tables for each in found if each is not None]
        if len(known) < len(found):
            return None
        together = side_by_side(known, most)
        return None if together is None else PairTables(together)


@dataclass(frozen=True, eq=False)
class JoinedBoxes:
    """The bounds of several structures on boxes of one grid."""

    parts: tuple[Boxes, ...]

    def bounds(self, masks: Flags) -> tuple[Floats, Floats]:
        """Return bounds (m, k), (m, k) on the raw scores of all rows of the boxes `masks` (m, n)."""
        return _concatenated([part.bounds(masks) for part in self.parts])


@runtime_checkable
class ConfiningBoxes(Boxes, SupportsConfined, Protocol):
    """Boxes that bound many parts of one box faster together."""


@dataclass(frozen=True, eq=False)
class JoinedConfiningBoxes(JoinedBoxes):
    """The bounds of several structures that all bound many parts of one box faster together."""

    parts: tuple[ConfiningBoxes, ...]

    def confined(self, mask: Flags, near: Flags, groups: Sequence[Sequence[int]]) -> tuple[Floats, Floats]:
        """Return bounds (g, k), (g, k) of a box with one group's columns confined; see `SupportsConfined`."""
        return _concatenated([part.confined(mask, near, groups) for part in self.parts])


def _concatenated(bounds: Sequence[tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
    """Return bounds (m, k) of several structures side by side."""
    return np.concatenate([low for low, _ in bounds], axis=1), np.concatenate([high for _, high in bounds], axis=1)
