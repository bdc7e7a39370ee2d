"""What a structure may offer beyond the four questions of `Structure`; callers test for it with `isinstance`.

A structure without a capability works without it: the functions below state what holds then.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import Parameter, isfunction, signature
from typing import Final, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import Floats
from mlflow_cf.structures.kernels.dense import First
from mlflow_cf.structures.kernels.triple_grid import AskedTriples, FoundTriples, GridChanges
from mlflow_cf.structures.layers.columns import NotOpenedError
from mlflow_cf.structures.model_leaves import ModelLeaves
from mlflow_cf.structures.pair_tables import PairTables
from mlflow_cf.structures.parts import Leaves, Part
from mlflow_cf.structures.shapley import SupportsContributions
from mlflow_cf.structures.structure import Encoded, Flags, Structure
from mlflow_cf.words.statements import say


@runtime_checkable
class SupportsSteady(Protocol):
    """It knows how the model behind it rounds; `is_steady` is False without."""

    @property
    def steady(self) -> bool:
        """Whether the model's raw scores of a row are bitwise the same in every batch.

        Trees are, unless several threads add them up; matrix products are rounded by the shape of the batch.
        """
        ...


@runtime_checkable
class SupportsAlone(Protocol):
    """It scores rows each as if it were alone; without, `Structure.sums` is asked for each of them."""

    def sums_alone(self, entries: Sequence[Encoded]) -> Floats:
        """Return the raw scores (m, k) of rows, bitwise as `sums` gives them of one row at a time."""
        ...


@runtime_checkable
class SupportsEnds(Protocol):
    """It knows which raw numbers of a column the model tells apart; without, it may tell all numbers apart."""

    def ends(self, column: int) -> Floats | None:
        """Return the last raw number of every interval of a column on which the model is constant, ascending.

        None: the model is not piecewise constant in this column.
        """
        ...

    def ordered(self, column: int) -> bool:
        """Return whether the model only compares the numbers of a column with thresholds, and so accepts any number."""
        ...


@runtime_checkable
class SupportsBreaks(Protocol):
    """Its bounds on boxes also hold between some numbers; without, they hold for the values of their grid alone."""

    def breaks(self, column: int) -> Floats | None:
        """Return raw numbers (n,), ascending, each the last before the model's answer may jump; None: not known.

        Bounds of a box with two numbers of a column also hold for all between them, if no break parts these two.
        """
        ...


@runtime_checkable
class SupportsPairs(Protocol):
    """It tabulates what two changes of a row do together; without, candidates of two changes are scored as rows."""

    def pairs(self, row: Sequence[Encoded]) -> Pairs:
        """Return the pairs of changes of a `row` (1, ...), one encoded array per column."""
        ...


@runtime_checkable
class SupportsProduct(Protocol):
    """It scores the rows of a product grid faster together than one by one."""

    def product(self, values: Sequence[Encoded], dimension: NDArray[np.intp], weights: Floats | None = None) -> Floats:
        """Return the raw scores (m, k) of all rows of a grid in C order; rounding may differ from that of `sums`.

        Args:
            values: per column, its encoded value (t, ...) at every position of its dimension; ascending is fastest.
            dimension: (d,) the dimension of the grid that each column belongs to, 0 to n - 1.
            weights: (k, j) return the raw scores times these instead, (m, j).
        """
        ...


@runtime_checkable
class SupportsOutputs(Protocol):
    """It can leave out raw scores, and takes less time for the others."""

    def only(self, outputs: NDArray[np.intp]) -> Structure:
        """Return the structure of some of its raw scores, in this order; it takes the same encoded values."""
        ...


@runtime_checkable
class SupportsModelLeaves(Protocol):
    """Its models are trees whose leaves are bits; without, what all of several models accept is searched for."""

    def model_leaves(self, weights: Floats) -> ModelLeaves | None:
        """Return the leaves; None where they are not those of each model alone, or take too much memory.

        Args:
            weights: (f, width) of the raw scores of each model in the f numbers that it decides by, which stand for
                models of their own.
        """
        ...


@runtime_checkable
class SupportsParts(Protocol):
    """It can be written as rows of a mixed-integer program; without, programs refuse it and say so."""

    def parts(self) -> tuple[Part, ...]:
        """Return what it is made of, in plain arrays; the raw scores of the parts are concatenated.

        Raises:
            NotOpenedError: no formula describes some part of it.
        """
        ...


@runtime_checkable
class SupportsBoxes(Protocol):
    """It prepares the bounds of many boxes of one grid; without, `Structure.bounds` is asked for each of them."""

    def boxes(self, values: Sequence[Encoded]) -> Boxes:
        """Return the bounds of boxes in the grid of `values` (t, ...) per column."""
        ...


class Pairs(Protocol):
    """What two changes of a row do to its raw scores beyond the sum of their single effects."""

    def tables(
        self, values: Sequence[Encoded], first: NDArray[np.intp], second: NDArray[np.intp], most: int
    ) -> PairTables | None:
        """Return the joint effects of changing two columns, `first` (p,) < `second` (p,), to any of their `values`.

        None if the tables would have more than `most` numbers.

        Args:
            values: per column the encoded values (t, ...), none of them missing.
            first, second: the pairs of columns.
            most: limit on the size of the tables.
        """
        ...


class Boxes(Protocol):
    """Bounds on boxes of one grid of encoded values; the values of all columns are concatenated to (n,)."""

    def bounds(self, masks: Flags) -> tuple[Floats, Floats]:
        """Return lower and upper bounds (m, k), (m, k) on the raw scores of all rows of the boxes `masks` (m, n).

        A box in which a column has no value has no rows; its bounds mean nothing.
        """
        ...


@runtime_checkable
class SupportsConfined(Protocol):
    """`Boxes` that bound many parts of one box faster than `Boxes.bounds` does."""

    def confined(self, mask: Flags, near: Flags, groups: Sequence[Sequence[int]]) -> tuple[Floats, Floats]:
        """Return bounds (g, k), (g, k) of the box `mask` (n,) with one group's columns confined to values `near` (n,).

        Args:
            mask: the box.
            near: the values that confined columns keep.
            groups: (g,) the columns of each group.
        """
        ...


@runtime_checkable
class SupportsGains(Protocol):
    """`Boxes` that know how a single value changes a weighted raw score, whatever the other columns have."""

    def gains(self, mask: Flags, own: NDArray[np.intp], weights: Floats) -> Floats:
        """Return (n,) lower bounds on the gain of resetting a column from each value to its `own` one.

        Args:
            mask: (n,) the box whose rows the bounds hold for, rounding included; inf where the reset never lowers
                the output of any term.
            own: (d,) position of each column's own value; -1: the column is not asked for, its gains mean nothing.
            weights: (k,) of the raw scores.
        """
        ...


COST_ROUNDING: Final = 1e-9  # of bounds on costs, which are sums of a few thousand products


@dataclass(frozen=True, eq=False)
class CostBound:
    """What rows of a box cost at least that reach a score.

    Attributes:
        low: the bound; inf: no row of the box reaches the score.
        multipliers: with which the bound was found, to start from for a part of the box.
        column, cost: a part of the box in which this column costs at most that, and the rest, have larger bounds.
        kept: (n,) the values of the box that such rows may have within the limit, some of every column; None: all.
    """

    low: float
    multipliers: NDArray[np.float32]
    column: int
    cost: float
    kept: Flags | None = None


class CostBounds(Protocol):
    """Bounds on what rows of boxes of one grid cost at least whose weighted raw score is large enough."""

    @property
    def quick(self) -> bool:
        """Whether they take no longer than bounds on scores; others are not made before a search has proved long."""
        ...

    def of(self, mask: Flags, near: CostBound | None, limit: float) -> CostBound:
        """Return the bound of the box `mask` (n,), in which every column has a value.

        Args:
            mask: the box.
            near: the bound of a box that contains it.
            limit: a bound that is larger is as good as any.
        """
        ...


@runtime_checkable
class SupportsCosts(Protocol):
    """`Boxes` that know what values cost which reach a score; without, only scores of boxes are bounded."""

    def costs(self, costs: Floats, weights: Floats, least: float) -> CostBounds:
        """Return the bounds of rows that cost the sum of `costs` (n,) and whose raw scores, weighted, reach `least`.

        Args:
            costs: of every value, >= 0.
            weights: (k,) of the raw scores.
            least: what the weighted sum must reach, rounding not included.
        """
        ...


@runtime_checkable
class SupportsLeaves(Protocol):
    """`Boxes` of trees alone."""

    def leaves(self) -> tuple[Leaves, list[Encoded]]:
        """Return the leaves that rows of the grid reach, and the cells (t,) of its values, per column."""
        ...


@runtime_checkable
class SupportsTriples(Protocol):
    """`Boxes` that list what all changes of three columns do; without, three changes are searched for."""

    def triples(self, changes: GridChanges, asked: AskedTriples, known: Floats) -> FoundTriples | None:
        """Return candidates of three changes that may be answers, each by its values among (n,).

        None: there are too many, or it cannot tell.

        Args:
            changes: what the values of the grid cost.
            asked: what is looked for.
            known: (count,) how far the nearest candidates of other changed sets are, ascending; inf: not known.
        """
        ...


ROUNDED: Final = 1e-11  # of the sizes of a score's terms: no sum of some thousand terms is rounded by more


@dataclass(frozen=True, eq=False)
class HiddenLayer:
    """A weighted raw score of a network with one layer of rectified units, or of a linear model.

    Attributes:
        bias: (width,) of the units; added: (n, width) what each value of a grid adds to them, column after column.
        weights: (width,) of the rectified units in the score; shift: what is added to it.
        slack: a bound on rounding errors of the score.
        rectified: whether the units are rectified; those of a linear model, its raw scores, are not.
    """

    bias: Floats
    added: Floats
    weights: Floats
    shift: float
    slack: float
    rectified: bool = True


@runtime_checkable
class SupportsHidden(Protocol):
    """It may have one layer of rectified units; without, what changes cost that reach a score is bounded in boxes."""

    @property
    def first(self) -> First:
        """The first layer as a table over the encoded values of all columns, side by side."""
        ...

    def encode(self, column: int, codes: Floats) -> Encoded:
        """Return encoded values; see `Structure.encode`."""
        ...

    @property
    def linear(self) -> bool:
        """Whether it has no layer, so that its raw scores are sums."""
        ...

    def hidden(self, values: Sequence[Encoded], weights: Floats) -> HiddenLayer | None:
        """Return the layer for the grid of `values` (t, ...) per column; None: it has more than one, or others.

        Args:
            values: per column, encoded values.
            weights: (k,) of the raw scores.
        """
        ...

    def effects(self, column: int, values: Encoded) -> Floats:
        """Return what values (t, ...) of one column add to the units, (t, width)."""
        ...

    def slope(self, column: int) -> Floats | None:
        """Return what one unit of a column's raw number adds to the units (width,); None where that is no constant."""
        ...


_TOLD = (SupportsEnds, SupportsBreaks, SupportsParts, SupportsBoxes, SupportsContributions)
CAPABILITIES = (SupportsSteady, SupportsAlone, SupportsPairs, SupportsProduct, *_TOLD)


def is_steady(structure: Structure) -> bool:
    """Return whether a model's raw scores of a row are bitwise the same in every batch; False if it is not known."""
    return isinstance(structure, SupportsSteady) and structure.steady


def sums_alone(structure: Structure, encoded: Sequence[Encoded]) -> Floats:
    """Return the raw scores (m, k) of rows (m, ...) per column, bitwise as those of each row alone."""
    if is_steady(structure):
        return structure.sums(encoded)
    if isinstance(structure, SupportsAlone):
        return structure.sums_alone(encoded)
    return np.concatenate([structure.sums([part[at : at + 1] for part in encoded]) for at in range(len(encoded[0]))])


def ends_of(structure: Structure, column: int) -> Floats | None:
    """Return what `SupportsEnds.ends` does; None if it is not known."""
    return structure.ends(column) if isinstance(structure, SupportsEnds) else None


def breaks_of(structure: Structure, column: int) -> Floats | None:
    """Return what `SupportsBreaks.breaks` does; None if it is not known."""
    return structure.breaks(column) if isinstance(structure, SupportsBreaks) else None


def is_ordered(structure: Structure, column: int) -> bool:
    """Return what `SupportsEnds.ordered` does; False if it is not known."""
    return isinstance(structure, SupportsEnds) and structure.ordered(column)


def parts_of(structure: Structure) -> tuple[Part, ...]:
    """Return what a structure is made of.

    Raises:
        NotOpenedError: it does not say, or no formula describes some part of it.
    """
    if not isinstance(structure, SupportsParts):
        raise NotOpenedError(say("no_parts", kind=structure.kind))
    return structure.parts()


def boxes_of(structure: Structure, values: Sequence[Encoded]) -> Boxes:
    """Return the bounds of boxes in the grid of `values` (t, ...) per column."""
    return structure.boxes(values) if isinstance(structure, SupportsBoxes) else RepeatedBounds(structure, tuple(values))


@dataclass(frozen=True, eq=False)
class RepeatedBounds:
    """Boxes of a structure without `boxes`, bounded one after the other.

    Attributes:
        structure: what bounds them.
        values: per column the encoded values (t, ...) of the grid.
    """

    structure: Structure
    values: tuple[Encoded, ...]

    def bounds(self, masks: Flags) -> tuple[Floats, Floats]:
        """Return bounds (m, k), (m, k) on the raw scores of all rows of the boxes `masks` (m, n)."""
        low, high = np.empty((2, len(masks), self.structure.outputs))
        low[:], high[:] = np.inf, -np.inf  # of a box without rows
        starts = np.cumsum([0, *map(len, self.values)])[1:-1]
        for box, mask in enumerate(masks):
            flags = np.split(mask, starts)
            if all(some.any() for some in flags):
                allowed = [some[kept] for some, kept in zip(self.values, flags, strict=True)]
                low[box], high[box] = self.structure.bounds(allowed)
        return low, high


def lacking(structure: object) -> list[str]:
    """Return what `Structure` asks for and an object lacks: ``sweep``, or ``the parameter 'wanted' of sweep``.

    Parameters are also those of the capabilities that it has.
    """
    found = [name for name in _members(Structure) if not _has(structure, name)]
    for protocol in (Structure, *CAPABILITIES):
        for name, member in _members(protocol).items():
            if isfunction(member) and _has(structure, name):
                wanted = list(signature(member).parameters)[1:]
                taken = _positional(getattr(structure, name))
                found += [f"the parameter {each!r} of {name}" for each in wanted[taken:]]
    return found


def _members(protocol: type) -> dict[str, object]:
    return {name: member for name, member in vars(protocol).items() if not name.startswith("_")}


def _has(structure: object, name: str) -> bool:
    return hasattr(type(structure), name) or hasattr(structure, name)


def _positional(method: Callable[..., object]) -> int:
    """Return how many arguments a method takes without their names."""
    parameters = signature(method).parameters.values()
    if any(parameter.kind is Parameter.VAR_POSITIONAL for parameter in parameters):
        return sys.maxsize
    return sum(
        parameter.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD) for parameter in parameters
    )
