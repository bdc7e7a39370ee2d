"""Linear models and networks: the first layer becomes a table over levels and numbers, the others stay dense.

Their bounds on boxes are sums of column-wise extremes for a linear model, and propagated bounds for a network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.structures.capabilities import ROUNDED, HiddenLayer
from mlflow_cf.structures.kernels.dense import (
    MOST,
    First,
    Last,
    add_swept,
    first_bounds,
    first_sums,
    lines_above,
    sums_without,
    sweep_rectified,
    value_sums,
)
from mlflow_cf.structures.layers.boxes import LayerBoxes, LinearBoxes
from mlflow_cf.structures.layers.columns import (
    Column,
    CurveColumn,
    IntervalColumn,
    LevelColumn,
    NotOpenedError,
    NumberColumn,
    value_of_missing,
)
from mlflow_cf.structures.parts import Activation, Choice, Dense, Number
from mlflow_cf.structures.structure import Encoded, Flags, Link
from mlflow_cf.structures.trees.cells import Lookup, last_values
from mlflow_cf.words.statements import say

_CELLS = 1 << 16  # floats that go through the later layers at a time: 512 kB, about what stays in the cache
_ULP = 2.0**-52


def _logistic(sums: Floats) -> Floats:
    sums *= 0.5
    np.tanh(sums, out=sums)  # several times as fast as expit
    sums *= 0.5
    sums += 0.5
    return sums


# layers with "identity" between them are folded into one
ACTIVATIONS: dict[Activation, Callable[[Floats], Floats]] = {
    "relu": lambda sums: np.maximum(sums, 0.0, out=sums),
    "logistic": _logistic,
    "tanh": lambda sums: np.tanh(sums, out=sums),
}


@dataclass(frozen=True, eq=False)
class Layers:
    """A linear model (one layer) or a network of dense layers.

    The encoded value (..., width) of a feature has one entry per source: the code of a level, a transformed number, or
    the number of the interval that it falls into.

    Attributes:
        sources: per feature, what computes each of its entries from codes (n,).
        first: the first layer over the entries of all features.
        weights, biases: of the later layers, (inputs, outputs) and (outputs,).
        activation: between layers; link: turns raw scores, the last layer, into scores.
    """

    sources: tuple[tuple[Source, ...], ...]
    first: First
    weights: tuple[Floats, ...]
    biases: tuple[Floats, ...]
    activation: Activation
    link: Link

    @classmethod
    def compile(
        cls,
        columns: Sequence[Column],
        space: FeatureSpace,
        weights: Sequence[Floats],
        biases: Sequence[Floats],
        activation: Activation,
        link: Link,
    ) -> Layers:
        """Compile layers whose first one takes `columns` in order."""
        if activation == "identity":
            weights, biases = _folded(weights, biases)
        alike: list[dict[object, list[tuple[Column, Floats]]]] = [{} for _ in range(len(space))]
        for column, row in zip(columns, weights[0], strict=True):
            alike[column.feature].setdefault(_key_of(column), []).append((column, row))
        parts = [[_merged(group) for group in groups.values()] for groups in alike]
        sources = tuple(tuple(source for source, _, _ in entries) for entries in parts)
        tables = [table for entries in parts for _, table, _ in entries]
        first = First(
            table=np.concatenate([np.empty((0, weights[0].shape[1])), *tables]),
            start=np.cumsum([0, *map(len, tables)])[:-1],
            levels=np.array([levels for entries in parts for _, _, levels in entries], dtype=np.int64),
            stop=np.cumsum([*map(len, sources)]),
            bias=biases[0].astype(np.float64),
        )
        # copies: they are ours to keep, and kernels are compiled once more for arrays that cannot be written
        later = tuple(np.array(layer, dtype=np.float64, order="C") for layer in weights[1:])
        return cls(sources, first, later, tuple(np.array(b, dtype=np.float64) for b in biases[1:]), activation, link)

    @property
    def linear(self) -> bool:
        """Whether scores are linear in the entries: there is no hidden layer."""
        return not self.weights

    @property
    def kind(self) -> str:
        """Linear, or the widths of the layers."""
        if not self.weights:
            return "linear"
        return "network " + "-".join(str(width) for width in (len(self.first.bias), *map(len, self.biases)))

    @property
    def outputs(self) -> int:
        """Number of raw scores."""
        return len(self.biases[-1] if self.biases else self.first.bias)

    def encode(self, column: int, codes: Floats) -> Encoded:
        """Return the encoded values (n, width) of raw codes (n,) of one feature."""
        entries = np.empty((len(codes), len(self.sources[column])))
        for place, source in enumerate(self.sources[column]):
            entries[:, place] = source.encode(codes)
        return entries

    def ends(self, column: int) -> Floats | None:
        """Return the ends, ascending, of the intervals of a raw number; None if it also enters as a number."""
        sources = self.sources[column]
        if any(isinstance(source, NumberColumn | CurveColumn) for source in sources):
            return None
        intervals = (source for source in sources if isinstance(source, IntervalColumn))
        cuts = [last_values(source.number, source.cuts, narrow=False) for source in intervals]
        return np.unique(np.concatenate([*cuts, [np.inf]]))

    def breaks(self, column: int) -> Floats | None:
        """Return the ends of intervals of a raw number; None if it enters in two ways or curved, or some are missing.

        Between breaks, what it adds to the first layer moves in one direction, and is extreme at an end.
        """
        numbers = [source for source in self.sources[column] if isinstance(source, NumberColumn)]
        if len(numbers) > 1 or any(number.gap is not None for number in numbers):
            return None
        if any(isinstance(source, CurveColumn) for source in self.sources[column]):
            return None
        intervals = [source for source in self.sources[column] if isinstance(source, IntervalColumn)]
        if any(source.number.gap is not None for source in intervals):
            return None
        cuts = [last_values(source.number, source.cuts, narrow=False) for source in intervals]
        return np.unique(np.concatenate([*cuts, [np.inf]]))

    def ordered(self, column: int) -> bool:
        """Return False: numbers are not only compared."""
        del column
        return False

    def parts(self) -> tuple[Dense]:
        """Return what every feature adds to the first layer, and the layers.

        Raises:
            NotOpenedError: no formula describes how some number is encoded.
        """
        places = zip(self.first.start.tolist(), self.first.levels.tolist(), strict=True)
        rows = iter([self.first.table[start : start + levels + 2] for start, levels in places])
        entries = tuple(tuple(_entry(source, next(rows)) for source in sources) for sources in self.sources)
        return (Dense(entries, self.first.bias, self.weights, self.biases, self.activation, self.link),)

    def sums(self, entries: Sequence[Encoded]) -> Floats:
        """Return the raw scores (m, k) of rows with entries (m, width) per column."""
        return self._last(first_sums(self._side_by_side(entries), self.first))

    def sums_alone(self, entries: Sequence[Encoded]) -> Floats:
        """Return the raw scores (m, k) of rows, each multiplied by itself: products are rounded by their shape."""
        sums = first_sums(self._side_by_side(entries), self.first)
        for weights, bias in zip(self.weights, self.biases, strict=True):
            sums = np.matmul(ACTIVATIONS[self.activation](sums)[:, None], weights)[:, 0] + bias
        return sums

    def restrict(self, row: Sequence[Encoded], changed: Sequence[int]) -> Layers:
        """Return the layers over the columns `changed` alone; what the others add becomes part of the first bias."""
        fixed = [column for column in range(len(row)) if column not in changed]
        entries = np.concatenate([np.empty(0), *(row[column] for column in fixed)])
        bias = first_sums(entries[None], self._part(fixed, self.first.bias))[0]
        sources = tuple(self.sources[column] for column in changed)
        return replace(self, sources=sources, first=self._part(changed, bias))

    def sweep(
        self, rows: Sequence[Encoded], values: Sequence[Encoded | None], wanted: Flags | None = None
    ) -> list[Floats | None]:
        """Return, per column, the raw scores (p, t, k) of rows (p, width) with it set to `values` (t, width).

        See `Structure.sweep`.
        """
        entries, width = self._side_by_side(rows), len(self.first.bias)
        if self.activation == "relu" and len(self.weights) == 1:
            return sweep_rectified(entries, values, wanted, self.first, Last(self.weights[0], self.biases[0]))
        many = max(1, MOST // (len(rows) * width))
        if not self.weights:
            return self._sweep_line(entries, values, many)
        totals = [None if v is None else np.empty((len(entries), len(v), self.outputs)) for v in values]
        for start in range(0, len(entries), many):
            others = sums_without(entries[start : start + many], self.first)
            for column, (allowed, found) in enumerate(zip(values, totals, strict=True)):
                if allowed is not None and found is not None:
                    part = found[start : start + many]
                    mine = (
                        np.arange(len(part)) if wanted is None else np.flatnonzero(wanted[start : start + many, column])
                    )
                    part[mine] = self._sweep_column(
                        others[column][mine], np.ascontiguousarray(allowed), self._alone[column]
                    )
        return totals

    def bounds(self, allowed: Sequence[Encoded]) -> tuple[Floats, Floats]:
        """Return lower and upper bounds (k,) on the raw scores over all combinations of allowed values.

        They are exact for a linear model. Layers propagate intervals, and linear bounds too if they are rectified
        (CROWN); the latter can widen a little for fewer values, so a search keeps the narrower ones. All are widened
        by a bound on rounding errors.

        Args:
            allowed: per column the entries (t, width) of the values it may take, at least one.
        """
        return self.bounds_of(np.concatenate([part.ravel() for part in allowed]), np.array([*map(len, allowed)]))

    def bounds_of(self, entries: Floats, counts: NDArray[np.intp]) -> tuple[Floats, Floats]:
        """Return `bounds`, given the entries of all columns, concatenated, and the number of values (d,) of each."""
        low, high, size = first_bounds(entries, counts, self.first)
        slack = (len(self.first.start) + 4) * _ULP * size
        low, high = low - slack, high + slack
        hidden = []
        for weights, magnitudes, bias in zip(self.weights, self._magnitudes, self.biases, strict=True):
            hidden.append(np.array([low, high, size]))
            ends = ACTIVATIONS[self.activation](np.array([low, high]))
            size = np.abs(ends).max(axis=0) @ magnitudes + np.abs(bias)
            centre = (ends[0] + ends[1]) @ weights / 2 + bias
            reach = (ends[1] - ends[0]) @ magnitudes / 2 + (len(weights) + 8) * _ULP * size
            low, high = centre - reach, centre + reach
        if hidden and self.activation == "relu":
            lower, upper = self._bounds_by_lines(entries, counts, hidden)
            low, high = np.maximum(low, lower), np.minimum(high, upper)
        return low, high

    def hidden(self, values: Sequence[Encoded], weights: Floats) -> HiddenLayer | None:
        """Return the one layer of rectified units, or the raw scores of a linear model; see `SupportsHidden`."""
        if len(self.weights) > 1 or (self.weights and self.activation != "relu"):
            return None
        added, most = value_sums(values, self.first)
        if not np.isfinite(added).all():
            return None
        outer, shift = (self.weights[0] @ weights, float(self.biases[0] @ weights)) if self.weights else (weights, 0.0)
        size = np.abs(self.first.bias) + np.maximum.reduceat(most, np.cumsum([0, *map(len, values[:-1])])).sum(axis=0)
        slack = ROUNDED * (float(np.abs(outer) @ size) + abs(shift))
        return HiddenLayer(self.first.bias, added, outer, shift, slack, rectified=bool(self.weights))

    def effects(self, column: int, values: Encoded) -> Floats:
        """Return what values (t, width) of one column add to the first layer."""
        return value_sums([values], self._alone[column])[0]

    def slope(self, column: int) -> Floats | None:
        """Return what one unit of a raw number adds to the first layer; None where that is no constant."""
        alone, total = self._alone[column], np.zeros(len(self.first.bias))
        for place, source in enumerate(self.sources[column]):
            line = source.affine if isinstance(source, NumberColumn) else None
            if line is None or np.isfinite([line.low, line.high]).any():
                return None
            total += line.slope * alone.table[alone.start[place]]
        return total

    def boxes(self, values: Sequence[Encoded]) -> LinearBoxes | LayerBoxes:
        """Return the bounds of boxes in the grid of `values` (t, width) per column."""
        sizes = [len(entries) for entries in values]
        starts = np.cumsum([0, *sizes])[:-1]
        if not self.weights:
            added, most = value_sums(values, self.first)
            if np.isfinite(added).all():
                size = np.abs(self.first.bias) + np.maximum.reduceat(most, starts, axis=0).sum(axis=0)
                return LinearBoxes(self.first.bias, added, starts, (len(self.first.start) + 16) * _ULP * size)
        choices = np.arange(sum(sizes)).repeat([part.shape[1] for part in values for _ in part])
        return LayerBoxes(self.bounds_of, np.concatenate([part.ravel() for part in values]), choices, starts)

    def _bounds_by_lines(
        self, entries: Floats, counts: NDArray[np.intp], hidden: Sequence[Floats]
    ) -> tuple[Floats, Floats]:
        """Return bounds (k,) from linear functions above the raw scores and above the negated ones (CROWN).

        Args:
            entries, counts: the allowed ones, as `first_bounds` takes them.
            hidden: per hidden layer (3, width): lower bound, upper bound and sum of absolute terms before activation.
        """
        slopes = np.ascontiguousarray(np.concatenate([self.weights[-1].T, -self.weights[-1].T]))
        shift = np.concatenate([self.biases[-1], -self.biases[-1]])
        size = np.abs(shift)
        for layer in range(len(hidden) - 1, -1, -1):
            slopes, risen, terms = lines_above(slopes, *hidden[layer])
            shift += risen
            size += terms
            if layer:
                shift += slopes @ self.biases[layer - 1]
                slopes = slopes @ self.weights[layer - 1].T
        first = self.first
        line = first._replace(table=first.table @ slopes.T, bias=shift + slopes @ first.bias)
        most = first_bounds(entries, counts, line)[1]
        most += 4 * (len(first.start) + sum(map(len, self.weights)) + 8) * _ULP * size
        outputs = len(self.biases[-1])
        return -most[outputs:], most[:outputs]

    @cached_property
    def _alone(self) -> list[First]:
        """The first layer over one column each, without bias."""
        nothing = np.zeros(len(self.first.bias))
        return [self._part([column], nothing) for column in range(len(self.sources))]

    @cached_property
    def _magnitudes(self) -> list[Floats]:
        return [np.abs(weights) for weights in self.weights]

    def _side_by_side(self, entries: Sequence[Encoded]) -> Floats:
        """Return the entries of all columns as one array (m, entries) in C order."""
        whole = np.empty((len(entries[0]), len(self.first.start)))
        np.concatenate(entries, axis=1, out=whole)
        return whole

    def _part(self, columns: Sequence[int], bias: Floats) -> First:
        """Return the first layer over some columns alone, with another bias."""
        stops = self.first.stop[list(columns)]
        sizes = [len(self.sources[column]) for column in columns]
        places = [place for stop, size in zip(stops.tolist(), sizes, strict=True) for place in range(stop - size, stop)]
        chosen = np.array(places, dtype=np.int64)
        stop = np.cumsum(sizes, dtype=np.int64)
        return First(self.first.table, self.first.start[chosen], self.first.levels[chosen], stop, bias)

    def _last(self, sums: Floats) -> Floats:
        """Return the last layer (m, k) for the first one (m, width) before activation, which is overwritten."""
        for weights, bias in zip(self.weights, self.biases, strict=True):
            sums = times(ACTIVATIONS[self.activation](sums), weights) + bias
        return sums

    def _sweep_line(self, rows: Floats, values: Sequence[Encoded | None], many: int) -> list[Floats | None]:
        """Sweep a linear model, `many` rows (p, entries) at a time."""
        swept = [np.empty((0, len(s))) if v is None else v for v, s in zip(values, self.sources, strict=True)]
        counts, (added, _) = np.array([*map(len, swept)]), value_sums(swept, self.first)
        parts = []
        for start in range(0, max(len(rows), 1), many):
            others = sums_without(rows[start : start + many], self.first)
            sums, size = np.empty((others.shape[1] * len(added), self.outputs)), others.shape[1]
            add_swept(others, added, counts, sums)
            each = zip(np.split(sums, np.cumsum(counts)[:-1] * size), counts.tolist(), strict=True)
            parts.append([one.reshape(size, count, self.outputs) for one, count in each])
        together = parts[0] if len(parts) == 1 else [np.concatenate(some) for some in zip(*parts, strict=True)]
        return [None if v is None else found for v, found in zip(values, together, strict=True)]

    def _sweep_column(self, others: Floats, entries: Encoded, first: First) -> Floats:
        """Return raw scores (m, t, k), given the first layer without a column (m, width) and the column's values."""
        totals = np.empty((len(others), len(entries), self.outputs))
        many = max(1, _CELLS // others.shape[1])
        for start in range(0, len(entries), many):
            added = first_sums(entries[start : start + many], first)
            step = max(1, many // len(added))
            for row in range(0, len(others), step):
                sums = others[row : row + step, None] + added
                last = self._last(sums.reshape(-1, others.shape[1]))
                totals[row : row + step, start : start + many] = last.reshape(*sums.shape[:2], -1)
        return totals


@dataclass(frozen=True)
class LevelCodes:
    """Levels, whose codes are their entries."""

    count: int

    def encode(self, codes: Floats) -> Floats:
        """Return the entries (n,) of raw codes (n,)."""
        return codes


# an interval column numbers its intervals
Source = NumberColumn | IntervalColumn | CurveColumn | LevelCodes


def _key_of(column: Column) -> object:
    """Return a key that is equal for encoded columns of one feature that are functions of the same entry."""
    if isinstance(column, IntervalColumn):
        return id(column.number), id(column.cuts)
    return "levels" if isinstance(column, LevelColumn) else id(column)


def _merged(group: Sequence[tuple[Column, Floats]]) -> tuple[Source, Floats, int]:
    """Return the source of the entry of encoded columns with one key, its rows of the table and `First.levels`."""
    rows = np.array([row for _, row in group], dtype=np.float64)
    one = group[0][0]
    if isinstance(one, NumberColumn | CurveColumn):
        return one, rows.sum(axis=0, keepdims=True), -1
    tables = [column.table for column, _ in group if isinstance(column, LevelColumn | IntervalColumn)]
    levels = len(tables[0]) - 2
    source: Source = LevelCodes(levels)
    if isinstance(one, IntervalColumn):  # encoded as the numbers of its intervals, which are then like levels
        source = replace(one, table=np.append(np.arange(len(one.cuts) + 1.0), np.nan))
    return source, np.column_stack(tables) @ rows, levels


def _entry(source: Source, rows: Floats) -> Number | Choice:
    """Return the term of an entry with these rows of the table; a number has one row."""
    if isinstance(source, LevelCodes):
        return Choice(Lookup.of(np.append(np.arange(float(source.count)), np.inf)), rows)
    if isinstance(source, IntervalColumn) and source.number.gap is None:
        cuts, filled = last_values(source.number, source.cuts, narrow=False), value_of_missing(source)
        return Choice(Lookup.of(np.append(cuts, np.inf), None if np.isnan(filled) else int(filled)), rows)
    affine = source.affine if isinstance(source, NumberColumn) else None
    if affine is None:
        raise NotOpenedError(say("no_formula"))
    return Number(affine, value_of_missing(source), rows[0])


def _folded(weights: Sequence[Floats], biases: Sequence[Floats]) -> tuple[Sequence[Floats], Sequence[Floats]]:
    """Return the product of layers without activation as one layer, weights and bias."""
    whole, bias = weights[0], biases[0]
    for later, more in zip(weights[1:], biases[1:], strict=True):
        whole, bias = whole @ later, bias @ later + more
    return [whole], [bias]


# OpenBLAS starts threads beyond so many multiplications (its SMP_THRESHOLD_MIN * GEMM_MULTITHREAD_THRESHOLD).
ALONE: Final = 2**18
FEWEST: Final = 16  # rows of a batch; smaller batches cost more than they save


def times(left: Floats, right: Floats) -> Floats:
    """Return left (m, k) times right (k, n), in batches of rows that are too small for threads.

    Beside other work, threads that wait for each other take up to fifty times as long as the product itself, and their
    number is a setting of the whole process. Larger right matrices, of more than 2^14 numbers, are multiplied at once.
    """
    many = ALONE // right.size
    if len(left) <= many or many < FEWEST:
        whole: Floats = left @ right
        return whole
    found = np.empty((len(left), right.shape[1]))
    for start in range(0, len(left), many):
        np.matmul(left[start : start + many], right, out=found[start : start + many])
    return found
