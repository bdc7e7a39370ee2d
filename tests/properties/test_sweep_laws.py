"""Random forests against a plain walk: score, restrict, sweep and bounds say what single rows would."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlflow_cf.features import Feature, FeatureSpace
from mlflow_cf.structures import (
    Forest,
    IntervalColumn,
    LevelColumn,
    MonotoneStep,
    NumberColumn,
    Subsets,
    TreeEnsemble,
    score_encoded,
)

CLOSE = {np.float32: 1e-5, np.float64: 1e-12}
CATEGORIES = 5
MANY = 70  # levels: more than one word of bits


class Drawn:
    """A random forest over random columns, compiled; and the same forest walked node by node."""

    def __init__(self, rng, levels, shape, rule, dtype):
        trees, depth, outputs, vectors = shape
        self.rng, self.levels, self.rule, self.dtype, self.depth = rng, levels, rule, dtype, depth
        self.columns, self.encodings = [], []
        for feature, count in enumerate(levels):
            for _ in range(rng.integers(1, 3)):
                column, encoding = self.level_column(feature, count) if count else self.number_column(feature)
                self.columns.append(column)
                self.encodings.append(encoding)
        self.lines, roots = [], []
        for _ in range(trees):
            roots.append(len(self.lines))
            self.grow(depth)
        width = outputs if vectors else 1
        self.value = (rng.normal(0, 1, (len(self.lines), width)) * 10.0 ** rng.integers(-2, 3)).astype(dtype)
        self.above = float(rng.choice([-1.0, np.nextafter(np.float32(0), np.float32(-1))]))
        self.sets = rng.random((4, CATEGORIES + 1)) < 0.5
        self.outputs = np.full(trees, -1) if vectors else np.arange(trees) % outputs
        self.base = rng.normal(0, 1, outputs)
        column, threshold, missing, left, right, subset = (np.array(part) for part in zip(*self.lines, strict=True))
        self.forest = Forest(
            np.array(roots, dtype=np.int32), self.outputs.astype(np.int32), column.astype(np.int32), threshold,
            missing, left.astype(np.int32), right.astype(np.int32), self.value, rule, self.base, "identity",
            Subsets(subset.astype(np.int32), self.sets, self.above) if (subset >= 0).any() else None,
        )  # fmt: skip
        names = [f"level {n}" for n in range(MANY)]
        features = [
            Feature(f"f{i}", "category" if n else "real", "str" if n else "float64", tuple(names[:n]))
            for i, n in enumerate(levels)
        ]
        self.trees = TreeEnsemble.compile(self.forest, self.columns, FeatureSpace(tuple(features)))
        self.scale = np.abs(self.value).max() * trees + np.abs(self.base).max()

    def number_column(self, feature):
        """Return a number: as it is, scaled, filled, with a gap, or cut into intervals; and what it does to one."""
        rng = self.rng
        mean, scale, fill = rng.normal(0, 1), rng.choice([0.1, 1.0, 3.0]), rng.normal(0, 2)
        kind = rng.integers(5)
        if kind == 0:
            return NumberColumn(feature), lambda code: code
        if kind == 1:
            steps = (MonotoneStep(lambda codes: codes - mean), MonotoneStep(lambda codes: codes / scale))
            return NumberColumn(feature, steps), lambda code: (code - mean) / scale
        if kind == 2:
            filled = (MonotoneStep(lambda codes: np.where(np.isnan(codes), fill, codes)),)
            return NumberColumn(feature, filled), lambda code: fill if math.isnan(code) else code
        if kind == 3:
            gap = (-0.5, 0.25)
            return NumberColumn(feature, gap=gap), lambda code: math.nan if gap[0] <= code <= gap[1] else code
        cuts, table = np.array([-1.0, 0.0, 1.5]), rng.normal(0, 2, 5)
        return IntervalColumn(
            NumberColumn(feature), cuts, table
        ), lambda code: table[-1] if math.isnan(code) else table[sum(code > cut for cut in cuts)]

    def level_column(self, feature, count):
        table = self.rng.permutation(count + 2).astype(float)
        if self.rng.random() < 0.5:
            table = (self.rng.random(count + 2) < 0.3).astype(float)
        table[self.rng.random(count + 2) < 0.1] = np.nan
        return LevelColumn(feature, table), lambda code: table[-1] if math.isnan(code) else table[min(int(code), count)]

    def grow(self, depth):
        """Add a subtree of at most so many tests; return its first node."""
        node, rng = len(self.lines), self.rng
        if not depth or rng.random() < 0.15:
            self.lines.append((-1, 0.0, False, node, node, -1))
            return node
        self.lines.append(None)
        column = int(rng.integers(len(self.columns)))
        count = self.levels[self.columns[column].feature]
        threshold = float(rng.integers(0, count + 2)) - 0.5 * rng.integers(0, 2) if count else self.number()
        subset = int(rng.integers(4)) if rng.random() < 0.2 else -1
        left, right = self.grow(depth - 1), self.grow(depth - 1)
        self.lines[node] = (column, threshold, bool(rng.random() < 0.5), left, right, subset)
        return node

    def number(self):
        """Return a threshold or a code: often one of few numbers, of which some need more than 24 bits."""
        few = (-1.0, -0.5, 0.0, 0.25, 0.1, 0.3, 1.0, 1.5, 16_777_217.0)
        return float(self.rng.choice(few)) if self.rng.random() < 0.6 else float(self.rng.normal(0, 2))

    def code(self, feature):
        """Return a code: a number at or next to a threshold, a known or unseen level, or a missing value."""
        if self.rng.random() < 0.15:
            return math.nan
        if count := self.levels[feature]:
            return float(self.rng.integers(0, count + 3))
        number = self.number()
        near = (number, np.nextafter(number, np.inf), np.nextafter(number, -np.inf), float(np.float32(number)), 1e300)
        return float(near[self.rng.choice(5, p=(0.4, 0.2, 0.2, 0.15, 0.05))])

    def rows(self, count):
        return np.array([[self.code(feature) for feature in range(len(self.levels))] for _ in range(count)])

    def encoded(self, rows):
        return [self.trees.encode(feature, column) for feature, column in enumerate(rows.T)]

    def leaf(self, tree, row):
        """Walk one row down one tree, as the forest says it in words."""
        node = int(self.forest.roots[tree])
        while self.lines[node][0] >= 0:
            column, threshold, missing_left, left, right, subset = self.lines[node]
            value = float(self.encodings[column](row[self.columns[column].feature]))
            if self.rule != "<= float64":
                with np.errstate(over="ignore"):
                    value = float(np.float32(value))
            if math.isnan(value):
                goes = missing_left
            elif subset >= 0:
                known = self.above < value < CATEGORIES
                goes = self.sets[subset, math.trunc(value) if known else CATEGORIES]
            elif self.rule == "< float32":
                goes = value < np.float32(threshold)
            else:
                goes = value <= threshold
            node = left if goes else right
        return node

    def sums(self, rows):
        """Return the sums (m, k) of rows (m, d), added up tree by tree in the forest's precision."""
        totals = np.tile(self.base.astype(self.dtype), (len(rows), 1))
        for tree, output in enumerate(self.outputs.tolist()):
            into = slice(None) if output < 0 else slice(output, output + 1)
            totals[:, into] += self.value[[self.leaf(tree, row) for row in rows]]
        return totals

    def close(self, found, expected):
        np.testing.assert_allclose(found, expected, rtol=0, atol=CLOSE[self.dtype] * self.scale)


@st.composite
def drawn(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    levels = draw(st.lists(st.sampled_from([0, 0, 1, 3, MANY]), min_size=1, max_size=5))
    shape = draw(st.tuples(st.integers(1, 6), st.integers(0, 6), st.integers(1, 3), st.booleans()))
    rule = draw(st.sampled_from(["<= float32", "<= float64", "< float32"]))
    return Drawn(rng, levels, shape, rule, draw(st.sampled_from([np.float32, np.float64])))


def with_column(encoded, row, column, allowed):
    """Return one row of `encoded` over and over, with one column replaced by each of those allowed."""
    single = [np.repeat(part[row : row + 1], len(allowed), axis=0) for part in encoded]
    single[column] = allowed
    return single


def all_cells(world):
    return [np.arange(lookup.size, dtype=np.int32) for lookup in world.trees.lookups]


@given(drawn(), st.integers(1, 20))
def test_sums_are_those_of_a_plain_walk(world, count):
    rows = world.rows(count)
    expected = world.sums(rows)
    assert world.trees.sums(world.encoded(rows)).tolist() == expected.astype(float).tolist()


@given(drawn(), st.data())
def test_a_restricted_forest_is_the_whole_one_bit_for_bit(world, data):
    columns = range(len(world.levels))
    changed = data.draw(st.permutations(columns))[: data.draw(st.integers(1, len(columns)))]
    row, new = world.encoded(world.rows(1)), world.encoded(world.rows(9))
    part = world.trees.restrict([encoded[0] for encoded in row], changed)
    whole = [new[i] if i in changed else np.repeat(row[i], 9) for i in columns]
    assert part.sums([new[i] for i in changed]).tolist() == world.trees.sums(whole).tolist()
    mine, all_of_it = score_encoded(part, [new[i] for i in changed]), score_encoded(world.trees, whole)
    assert mine.tolist() == all_of_it.tolist()
    again = data.draw(st.permutations(range(len(changed))))[: data.draw(st.integers(1, len(changed)))]
    smaller = part.restrict([row[i][0] for i in changed], again)
    left = [changed[n] for n in again]
    whole = [new[i] if i in left else np.repeat(row[i], 9) for i in columns]
    assert smaller.sums([new[i] for i in left]).tolist() == world.trees.sums(whole).tolist()
    assert len(smaller.trees.nodes.tests) <= len(part.trees.nodes.tests) <= len(world.trees.trees.nodes.tests)


@given(drawn(), st.data())
def test_a_restricted_forest_sweeps_and_is_bounded_like_the_whole_one(world, data):
    columns = range(len(world.levels))
    changed = data.draw(st.permutations(columns))[: data.draw(st.integers(1, len(columns)))]
    row, new = world.encoded(world.rows(1)), world.encoded(world.rows(3))
    part = world.trees.restrict([encoded[0] for encoded in row], changed)
    whole = [new[i] if i in changed else np.repeat(row[i], 3) for i in columns]
    cells = all_cells(world)
    found = part.sweep([new[i] for i in changed], [cells[i] for i in changed])
    for column, sums in zip(changed, found, strict=True):
        expected = world.trees.sweep(whole, cells)[column]
        np.testing.assert_allclose(sums, expected, rtol=0, atol=1e-12 * world.scale)
    bounds = part.bounds([new[i] for i in changed])
    expected = world.trees.bounds([new[i] if i in changed else row[i] for i in columns])
    np.testing.assert_array_equal(bounds, expected)


@given(drawn(), st.integers(1, 4))
def test_a_sweep_is_every_single_change(world, count):
    encoded, cells = world.encoded(world.rows(count)), all_cells(world)
    for column, sums in enumerate(world.trees.sweep(encoded, cells)):
        for row in range(count):
            world.close(sums[row], world.trees.sums(with_column(encoded, row, column, cells[column])))


@given(drawn(), st.integers(1, 4), st.data())
def test_a_sweep_answers_what_is_wanted(world, count, data):
    encoded, width = world.encoded(world.rows(count)), len(world.levels)
    sizes = data.draw(st.lists(st.integers(0, 5), min_size=width, max_size=width))
    values = [world.encoded(world.rows(n))[i] if n else None for i, n in enumerate(sizes)]
    swept = world.trees.sweep(encoded, values)
    wanted = world.rng.random((count, width)) < 0.5
    for column, (sums, asked) in enumerate(zip(swept, world.trees.sweep(encoded, values, wanted), strict=True)):
        if values[column] is None:
            assert sums is None
            assert asked is None
            continue
        for row in range(count):
            expected = world.trees.sums(with_column(encoded, row, column, values[column]))
            world.close(sums[row], expected)
            if wanted[row, column]:
                world.close(asked[row], expected)


@given(drawn(), st.data())
def test_bounds_hold_for_every_allowed_row(world, data):
    width = len(world.levels)
    sizes = data.draw(st.lists(st.integers(1, 3), min_size=width, max_size=width))
    allowed = np.array(list(product(*(world.rows(n)[:, i] for i, n in enumerate(sizes)))))
    encoded = world.encoded(allowed)
    low, high = world.trees.bounds([np.unique(part) for part in encoded])
    sums = world.trees.sums(encoded)
    assert (low <= sums.min(axis=0)).all()
    assert (sums.max(axis=0) <= high).all()
    leaves = [[world.leaf(tree, row) for row in allowed] for tree in range(len(world.forest.roots))]
    least, most = world.base.copy(), world.base.copy()
    for reached, output in zip(leaves, world.outputs.tolist(), strict=True):
        into = slice(None) if output < 0 else slice(output, output + 1)
        least[into] += world.value[reached].min(axis=0)
        most[into] += world.value[reached].max(axis=0)
    world.close(low, least)
    world.close(high, most)


@given(drawn())
def test_bounds_of_one_row_are_its_sums(world):
    encoded = world.encoded(world.rows(1))
    low, high = world.trees.bounds(encoded)
    (sums,) = world.trees.sums(encoded)
    assert (low <= sums).all()
    assert (sums <= high).all()
    world.close(high, low)


def test_bounds_hold_where_large_leaves_cancel_out():
    """Sums of float32 are rounded at the size of what they pass, not at that of what is left of them."""
    values = np.array([1e6, 0.1, -1e6, 0.2], dtype=np.float32)[:, None]
    ends, flags = np.full(4, -1, dtype=np.int32), np.zeros(4, dtype=bool)
    forest = Forest(
        np.arange(4, dtype=np.int32), np.zeros(4, dtype=np.int32), ends, np.zeros(4), flags, ends, ends, values,
        "<= float32", np.zeros(1), "identity",
    )  # fmt: skip
    space = FeatureSpace((Feature("f0", "real", "float64"),))
    trees = TreeEnsemble.compile(forest, [NumberColumn(0)], space)
    encoded = [trees.encode(0, np.zeros(1))]
    low, high = trees.bounds(encoded)
    assert low[0] <= trees.sums(encoded)[0, 0] <= high[0]
    assert high[0] - low[0] < 10


@pytest.mark.parametrize("outputs", [1, 3])
def test_trees_of_one_leaf(outputs):
    for seed in range(5):
        world = Drawn(np.random.default_rng(seed), [0, 3], (4, 0, outputs, outputs > 1), "<= float64", np.float64)
        encoded = world.encoded(world.rows(3))
        sums = world.trees.sums(encoded)
        assert (sums == sums[0]).all()
        for column, found in enumerate(world.trees.sweep(encoded, all_cells(world))):
            world.close(found, np.broadcast_to(sums[0], (3, world.trees.lookups[column].size, outputs)))
        assert len(world.trees.restrict([part[0] for part in encoded], [1]).trees.nodes.tests) == 4
