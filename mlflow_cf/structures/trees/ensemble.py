"""Decision trees, forests and boosting over cells: the intervals and levels that a model distinguishes.

Also joint effects of two changes on their raw scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.structures.growing import Places
from mlflow_cf.structures.kernels.blocks import add_rectangles, find_classes
from mlflow_cf.structures.kernels.gains import BoxQuery, gains_of
from mlflow_cf.structures.kernels.pairs import (
    FeaturePairs,
    PairWorkspace,
    Rectangles,
    TriedCells,
    find_rectangles,
)
from mlflow_cf.structures.kernels.parting import Limits, cuts_of, part_boxes, room_for_parts
from mlflow_cf.structures.kernels.restrict import bounds_boxes, restrict_trees
from mlflow_cf.structures.kernels.sweeps import BoxRows, ProductWorkspace, add_up, note_leaves, sweep_trees
from mlflow_cf.structures.kernels.trees import (
    FEATURE,
    LEFT,
    Features,
    Nodes,
    Trees,
    add_trees,
    bits_of,
    find_comparands,
    room_for,
    walk_of,
)
from mlflow_cf.structures.kernels.triple_grid import AskedTriples, FoundTriples, GridChanges
from mlflow_cf.structures.layers.columns import Column
from mlflow_cf.structures.model_leaves import ModelLeaves
from mlflow_cf.structures.pair_tables import Numbers, PairTables
from mlflow_cf.structures.parts import Leaves
from mlflow_cf.structures.structure import Encoded, Flags, Link
from mlflow_cf.structures.trees.cells import Lookup, Tests
from mlflow_cf.structures.trees.contributions import TreeContributions
from mlflow_cf.structures.trees.costs import TreeCosts
from mlflow_cf.structures.trees.forest import Forest, Ints
from mlflow_cf.structures.trees.growth import TreeGrowth
from mlflow_cf.structures.trees.leaves import leaves_of
from mlflow_cf.structures.trees.model_leaves import model_leaves
from mlflow_cf.structures.trees.triples import find_triples


@dataclass(frozen=True, eq=False)
class TreeEnsemble:
    """A forest compiled to cells.

    Attributes:
        lookups: one per feature: how its codes become cells.
        trees: the arrays of the kernels; link: turns raw scores into scores.
        steady: see `SupportsSteady`; False if the library adds trees in varying order.
    """

    lookups: tuple[Lookup, ...]
    trees: Trees
    link: Link
    steady: bool

    @classmethod
    def compile(cls, forest: Forest, columns: Sequence[Column], space: FeatureSpace) -> TreeEnsemble:
        """Compile `forest`, whose nodes test `columns`, for the features of `space`.

        Raises:
            NotOpenedError: a test that cannot be expressed over cells of raw features.
        """
        tests = Tests.compile(forest, columns, space)
        nodes = _joined(forest, tests)
        tabled = np.zeros(len(space), dtype=np.bool_)
        tabled[tests.feature[tests.test >= 0]] = True
        start = np.cumsum([0, *(lookup.size for lookup in tests.lookups)])
        features = Features(start, ~tabled, bits_of(tests.goes_left))
        base = np.array(forest.base, dtype=np.float64)
        trees = Trees(nodes, features, walk_of(nodes, features), base, deepest_of(nodes))
        return cls(tests.lookups, trees, forest.link, forest.steady)

    @property
    def kind(self) -> str:
        """Number of trees and leaves."""
        return f"{len(self.trees.nodes.roots)} trees, {int((self.trees.nodes.tests[:, FEATURE] < 0).sum())} leaves"

    @property
    def outputs(self) -> int:
        """Number of raw scores."""
        return len(self.trees.base)

    def encode(self, column: int, codes: Floats) -> Encoded:
        """Return the cells (n,) of raw codes (n,) of one feature."""
        return self.lookups[column].cells(codes)

    def ends(self, column: int) -> Floats:
        """Return the last raw number of every cell of a column."""
        return self.lookups[column].cuts

    def breaks(self, column: int) -> Floats:
        """Return the last raw number of every cell of a column, within which no tree tells numbers apart."""
        return self.lookups[column].cuts

    def ordered(self, column: int) -> bool:
        """Return whether all tests of a feature compare with thresholds."""
        return bool(self.trees.features.ordered[column])

    def parts(self) -> tuple[Leaves]:
        """Return the leaves of all trees, and the cells that each accepts."""
        return self._parts

    @cached_property
    def _parts(self) -> tuple[Leaves]:
        """Cached: every program of every row needs it, and small programs are solved faster than it is found."""
        return (leaves_of(self.trees, self.lookups, self.link),)

    def sums(self, encoded: Sequence[Encoded]) -> Floats:
        """Return the raw scores (m, k) of rows with cells (m,) per feature.

        Leaves are added in the library's own order and precision, so that float32 sums agree to the last bit.
        """
        totals = np.tile(self.trees.base.astype(self.trees.nodes.value.dtype), (len(encoded[0]), 1))
        add_trees(np.column_stack(encoded), self.trees, totals)
        return totals.astype(np.float64)

    def product(self, encoded: Sequence[Encoded], dimension: NDArray[np.intp], weights: Floats | None = None) -> Floats:
        """Return the raw scores (m, k) of all rows of a grid, or these times `weights`; see `SupportsProduct`."""
        return product_of(encoded, dimension, self.trees, weights).T

    def restrict(self, row: Sequence[Encoded], changed: Sequence[int]) -> TreeEnsemble:
        """Return the trees over the columns `changed` alone, the others fixed to the cells of `row`."""
        start = self.trees.features.start
        flags = np.zeros(start[-1], dtype=np.bool_)
        flags[start[:-1] + np.asarray(row)] = True
        for column in changed:
            flags[start[column] : start[column + 1]] = True
        trees = restrict_trees(flags, np.asarray(changed, dtype=np.intp), self.trees)
        return replace(self, lookups=tuple(self.lookups[column] for column in changed), trees=trees)

    def only(self, outputs: NDArray[np.intp]) -> TreeEnsemble:
        """Return the trees of some raw scores, in this order; see `SupportsOutputs`."""
        if len(outputs) > 1:
            return self._only(outputs)
        output = int(outputs[0])
        return self._alone.get(output) or self._alone.setdefault(output, self._only(outputs))

    @cached_property
    def _alone(self) -> dict[int, TreeEnsemble]:
        """The trees of each raw score that was asked for: together they are as large as all."""
        return {}

    def _only(self, outputs: NDArray[np.intp]) -> TreeEnsemble:
        nodes, base = self.trees.nodes, self.trees.base[outputs]
        if (nodes.outputs < 0).any():  # a value for each in every leaf
            value = np.ascontiguousarray(nodes.value[:, outputs])
            return replace(self, trees=self.trees._replace(nodes=nodes._replace(value=value), base=base))
        place = np.full(self.outputs, -1, dtype=np.int32)
        place[outputs] = np.arange(len(outputs))
        kept = place[nodes.outputs] >= 0
        some = nodes._replace(roots=nodes.roots[kept], outputs=place[nodes.outputs[kept]])
        everything = np.ones(self.trees.features.start[-1], dtype=np.bool_)
        trees = self.trees._replace(nodes=some, base=base)
        return replace(self, trees=restrict_trees(everything, np.arange(len(self.lookups)), trees))

    def model_leaves(self, weights: Floats) -> ModelLeaves | None:
        """Return the leaves of all models as bits; see `SupportsModelLeaves`."""
        return model_leaves(self.trees, weights)

    def sweep(
        self, rows: Sequence[Encoded], values: Sequence[Encoded | None], wanted: Flags | None = None
    ) -> list[Floats | None]:
        """Return, per column, the raw scores (m, t, k) of m rows with this column alone set to each of its `values`."""
        if len(values) == 2 and (values[0] is None) != (values[1] is None):
            return self._grid(rows, values)
        cells = np.column_stack(rows)
        if wanted is None:
            wanted = np.tile([encoded is not None for encoded in values], (len(cells), 1))
        wanted = np.ascontiguousarray(wanted)  # Fortran order would compile the kernel a second time
        sums = sweep_trees(cells, wanted, self.trees)
        starts = self.trees.features.start.tolist()
        parts = (sums[:, start:stop] for start, stop in pairwise(starts))  # take from a slice: twice as fast
        return [None if encoded is None else part.take(encoded, 1) for part, encoded in zip(parts, values, strict=True)]

    def _grid(self, rows: Sequence[Encoded], values: Sequence[Encoded | None]) -> list[Floats | None]:
        """Sweep one of two columns as a grid of both, which walks every tree once."""
        both = (rows[n] if encoded is None else encoded for n, encoded in enumerate(values))
        (first, one), (second, two) = (np.unique(encoded, return_inverse=True) for encoded in both)
        sums = product_of([first, second], np.arange(2), self.trees).T.reshape(len(first), len(second), -1)
        sums = sums[one[:, None], two]
        return [sums.swapaxes(0, 1), None] if values[1] is None else [None, sums]

    def bounds(self, allowed: Sequence[Encoded]) -> tuple[Floats, Floats]:
        """Return bounds (k,), (k,) on the raw scores of all rows with allowed cells (t,) per column, t >= 1."""
        low, high = self.boxes(allowed).bounds(np.ones((1, sum(map(len, allowed))), dtype=np.bool_))
        return low[0], high[0]

    def boxes(self, values: Sequence[Encoded]) -> TreeBoxes:
        """Return the bounds of boxes in the grid of cells `values` (t,) per column."""
        start = self.trees.features.start
        cells = np.concatenate([start[column] + encoded for column, encoded in enumerate(values)])
        flags = np.zeros(start[-1], dtype=np.bool_)
        flags[cells] = True
        return TreeBoxes(restrict_trees(flags, np.arange(len(values)), self.trees), cells, self.lookups, list(values))

    def pairs(self, row: Sequence[Encoded]) -> TreePairs:
        """Return the pairs of changes of a `row` (1,)."""
        return TreePairs.of(self.trees, row)

    def against(self, references: Sequence[Encoded], player: NDArray[np.intp]) -> TreeContributions:
        """Return what players contribute against reference rows; see `SupportsContributions`."""
        return TreeContributions.of(self.trees, references, player)


@dataclass(frozen=True, eq=False)
class TreeBoxes:
    """Bounds of trees on boxes of one grid.

    Attributes:
        trees: the trees, pruned to the grid.
        cells: (n,) cell of every value of the grid, numbered over all features; lookups: of the features.
        values: the cells (t,) of the grid, per column.
    """

    trees: Trees
    cells: Ints
    lookups: tuple[Lookup, ...]
    values: list[Encoded]

    def bounds(self, masks: Flags) -> tuple[Floats, Floats]:
        """Return bounds (m, k), (m, k) on the raw scores of all rows of the boxes `masks` (m, n)."""
        trees, masks = self.trees, np.ascontiguousarray(masks)  # Fortran order would compile the kernel a second time
        low, high, sizes = bounds_boxes(masks, self.cells, trees)
        # the model may add in another order, or in float32: errors scale with the sum of absolute terms
        slack = np.finfo(trees.nodes.value.dtype).eps * (len(trees.nodes.roots) + 1) * sizes
        return low - slack, high + slack

    def gains(self, mask: Flags, own: NDArray[np.intp], weights: Floats) -> Floats:
        """Return (n,) lower bounds on the gain of resetting a column from each value; see `SupportsGains`."""
        flags = np.zeros(self.trees.features.start[-1], dtype=np.bool_)
        flags[self.cells[mask]] = True
        back = np.where(own >= 0, self.cells[own] - self.trees.features.start[:-1], -1)
        gains, number = gains_of(BoxQuery(flags, back, weights), self.trees)
        found = np.full(len(mask), -np.inf)
        found[mask] = gains[number[self.cells[mask]]]
        return np.asarray(found - 2 * self._rounding(weights))

    def costs(self, costs: Floats, weights: Floats, least: float) -> TreeCosts:
        """Return what rows cost at least that reach a score; see `SupportsCosts`."""
        leaves = leaves_of(self.trees, self.lookups, "identity")
        return TreeCosts(self.trees, leaves, self.cells, costs, weights, least - self._rounding(weights))

    def settle(self, mask: Flags, weights: Floats, may: float, sure: float, most: int) -> tuple[int, int] | None:
        """Return what branch and bound finds out about a box; see `SupportsSettling`."""
        flags = np.zeros(self.trees.features.start[-1], dtype=np.bool_)
        flags[self.cells[mask]] = True
        trees = restrict_trees(flags, np.arange(len(self.lookups)), self.trees)
        cuts = cuts_of(trees, flags, weights)
        if cuts is None:
            return None
        off, base = self._rounding(weights), float(trees.base @ weights)
        found = np.empty(2, dtype=np.int64)
        room = room_for_parts(cuts, trees.deepest)
        part_boxes(cuts, Limits(sure + off - base, may - off - base, most), room, found)
        return int(found[0]), int(found[1])

    def triples(self, changes: GridChanges, asked: AskedTriples, known: Floats) -> FoundTriples | None:
        """Return candidates of three changes; see `SupportsTriples`."""
        return find_triples(self.trees, self.cells, changes, asked, known)

    def leaves(self) -> tuple[Leaves, list[Encoded]]:
        """Return the leaves that rows of the grid reach, and the cells of its values; see `SupportsLeaves`."""
        return leaves_of(self.trees, self.lookups, "identity"), self.values

    def growing(self, at: Places, weights: Floats, may: float, sure: float, shares: Floats) -> TreeGrowth | None:
        """Return a box that grows; see `SupportsGrowing`."""
        counts = np.bincount(self.cells, minlength=self.trees.features.start[-1])
        cuts = cuts_of(self.trees, counts, weights)
        return None if cuts is None else TreeGrowth(self.trees, cuts, (weights, may, sure), at, shares)

    def _rounding(self, weights: Floats) -> float:
        """Return by how much weighted raw scores may be off where leaves are added in another order."""
        nodes = self.trees.nodes
        return float(np.finfo(nodes.value.dtype).eps * (len(nodes.roots) + 1) * (self.sizes @ np.abs(weights)))

    @cached_property
    def sizes(self) -> Floats:
        """(k,) sums over trees of the largest absolute leaf."""
        everything = np.ones((1, len(self.cells)), dtype=np.bool_)
        sizes: Floats = bounds_boxes(everything, self.cells, self.trees)[2, 0]
        return sizes


def _joined(forest: Forest, tests: Tests) -> Nodes:
    """Return the nodes of a forest, roots first and siblings adjacent."""
    inner = np.flatnonzero(tests.feature >= 0)
    place = np.empty(len(tests.feature), dtype=np.int32)
    place[forest.roots] = np.arange(len(forest.roots))
    place[forest.left[inner]] = len(forest.roots) + 2 * np.arange(len(inner))
    place[forest.right[inner]] = len(forest.roots) + 2 * np.arange(len(inner)) + 1
    left = place.copy()
    left[inner] = place[forest.left[inner]]
    table = np.empty((len(place), 5), dtype=np.int32)
    table[place] = np.column_stack([tests.feature, tests.cut, tests.test, forest.missing_left, left])
    value = np.empty_like(forest.value, order="C")
    value[place] = forest.value
    return Nodes(place[forest.roots], np.array(forest.outputs, dtype=np.int32), table, value)


def deepest_of(nodes: Nodes) -> int:
    """Return the number of tests on the longest path."""
    depth, level = 0, nodes.roots
    while len(level := level[nodes.tests[level, FEATURE] >= 0]):
        level = np.concatenate([nodes.tests[level, LEFT], nodes.tests[level, LEFT] + 1])
        depth += 1
    return depth


def product_of(cells: Sequence[Encoded], dimension: Numbers, trees: Trees, weights: Floats | None = None) -> Floats:
    """Return the raw scores (j, rows) of all rows of a grid in C order.

    Args:
        cells: per feature, its cell (t,) at every position of its dimension; ascending cells are faster.
        dimension: (d,) of every feature, 0 to n - 1.
        trees: the ensemble.
        weights: (k, j) return the raw scores times these.
    """
    sizes = np.ones(dimension.max(initial=-1) + 1, dtype=np.int64)
    sizes[dimension] = [len(some) for some in cells]
    weights = np.eye(len(trees.base)) if weights is None else np.ascontiguousarray(weights)
    sums = np.zeros((weights.shape[1], int(sizes.prod())))
    flags = np.zeros(trees.features.start[-1], dtype=np.bool_)
    for start, some in zip(trees.features.start.tolist(), cells, strict=False):
        flags[start + some] = True
    box = _box(cells, dimension, sizes, trees.features)
    room = ProductWorkspace(
        *room_for(len(cells) + trees.deepest + 1, trees.features),
        flags=flags,
        below=np.empty(len(flags) + 1, dtype=np.int64),
        way=np.empty((trees.deepest + 1, 2), dtype=np.int64),
        narrowed=np.zeros(len(box.size), dtype=np.int64),
        ends=np.empty(int(sizes.max()) + 1, dtype=np.int64),
        places=np.empty(sums.shape[1], dtype=np.uint64),
        worth=np.empty(len(sums)),
    )
    note_leaves(box, trees, weights, room, sums)
    add_up(sums, box.size, box.stride)
    sums += (trees.base @ weights)[:, None]
    return sums


def _box(cells: Sequence[Encoded], dimension: Numbers, sizes: Numbers, features: Features) -> BoxRows:
    """Return the grid with dimensions of these `sizes`; all dimensions of size 1 are merged into the last one."""
    free = np.flatnonzero(sizes > 1)
    place = np.full(len(sizes), len(free))
    place[free] = np.arange(len(free))
    whose, size = place[dimension], np.append(sizes[free], 1)
    table, before = np.zeros((len(cells), int(sizes.max())), dtype=np.int64), []
    counted = features.ordered & (np.bincount(whose, minlength=len(size)) == 1)[whose]
    for feature, some in enumerate(cells):
        table[feature, : len(some)] = some
        counted[feature] &= bool((some[1:] >= some[:-1]).all())
        count = features.start[feature + 1] - features.start[feature]
        before.append(np.searchsorted(some, np.arange(count + 1)) if counted[feature] else np.zeros(count + 1))
    order = np.argsort(whose, kind="stable")
    by_dimension = np.zeros(len(size), dtype=np.bool_)
    by_dimension[whose[counted]] = True
    return BoxRows(
        dimension=whose,
        size=size,
        stride=np.append(np.cumprod(size[::-1])[::-1][1:], 1),
        first=np.searchsorted(whose[order], np.arange(len(size) + 1)),
        features=order,
        cells=table,
        before=np.concatenate(before).astype(np.int64),
        counted=by_dimension,
    )


EXPECTED = 64  # rectangles of a tree to allocate at first; enough for most


@dataclass(frozen=True, eq=False)
class TreePairs:
    """The pairs of changes of one row.

    Attributes:
        trees: the ensemble.
        X: (columns,) the row's comparands, see `Walk`.
    """

    trees: Trees
    X: NDArray[np.int32]

    @classmethod
    def of(cls, trees: Trees, row: Sequence[Encoded]) -> TreePairs:
        """Return the pairs of changes of a `row` of cells (1,) per feature."""
        X = np.empty(trees.walk.start[-1], np.int32)
        find_comparands(np.concatenate(row).astype(np.int32)[None], trees.walk, X)
        return cls(trees, X)

    def tables(self, values: Sequence[Encoded], first: Numbers, second: Numbers, most: int) -> PairTables | None:
        """Return the joint effects of changes to cells `values` (t,) per feature; see `Pairs.tables`."""
        tried, order = self._tried(values)
        features = len(values)
        number, some = np.full((features, features), -1), np.zeros(features, dtype=np.bool_)
        number[first, second] = np.arange(len(first))
        some[first] = some[second] = True
        rectangles = self._rectangles(FeaturePairs(tried, max(map(len, values), default=0), number, some))
        empty = PairTables.empty(first, second, tried.start).tables
        ends = np.zeros(len(empty.classes) + len(empty.counts), dtype=np.int32)
        find_classes(rectangles, tried, order, ends, empty)
        outputs = len(self.trees.base)
        if empty.place[-1] * outputs > most:
            return None
        tables = empty._replace(added=np.zeros((empty.place[-1], outputs)))
        add_rectangles(rectangles, self.trees.nodes.value, ends, tables)
        return PairTables(tables)

    def _tried(self, values: Sequence[Encoded]) -> tuple[TriedCells, Numbers]:
        """Return the tried cells, ascending by feature, and (t,) the position of each among the values."""
        start = np.cumsum([0, *map(len, values)])
        sizes = np.diff(self.trees.features.start)
        offset = np.append(0, (sizes + 1).cumsum())
        cells = np.concatenate([np.empty(0, np.int32), *values]).astype(np.int32)
        key = cells + offset[:-1].repeat(np.diff(start))
        order = np.argsort(key, kind="stable")  # fast: values mostly ascend
        counts = np.bincount(key, minlength=offset[-1])
        before = counts.cumsum() - counts - start[:-1].repeat(sizes + 1)
        return TriedCells(cells[order], start, before, offset[:-1]), order

    def _rectangles(self, asked: FeaturePairs) -> Rectangles:
        """Return where leaves contribute to pairs of features."""
        levels, features = self.trees.deepest + 1, len(asked.some)
        room = PairWorkspace(
            way=np.empty((levels, 5), dtype=np.int64),
            trail=np.empty((levels, 7), dtype=np.int64),
            passing=np.empty((features, 3), dtype=np.int64),
            slots=np.empty((levels, 3), dtype=np.int64),
            ends=np.empty((levels, asked.most + 3), dtype=np.int64),
        )
        count = EXPECTED * len(self.trees.nodes.roots)
        while True:
            found = Rectangles(np.empty((count, 5), dtype=np.int32), np.empty((count, 2), dtype=np.int32))
            count = find_rectangles(self.X, self.trees, asked, room, found)
            if count <= len(found.leaf):
                return Rectangles(found.spans[:count], found.leaf[:count])
