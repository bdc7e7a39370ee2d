"""Pairs of changes: what two of them do beyond each alone, against rows that are scored whole."""

from typing import Any

import numpy as np
import pytest
from forest_worlds import random_trees
from hypothesis import given
from hypothesis import strategies as st
from worlds import background, space_of, table, wide_rows

from mlflow_cf.structures import Structure, tree_pairs
from mlflow_cf.structures.joined import Joined
from mlflow_cf.structures.kernels.pairs import Alone, Leading
from mlflow_cf.structures.structure import PairTables

PAIRS = [(one, two) for one in range(6) for two in range(one + 1, 6)]


class World:
    """A structure, the tokens of a row, and those of some values per column, in any order, none missing."""

    def __init__(self, structure: Structure, codes: Any, values: list[Any]) -> None:
        self.structure, self.d = structure, len(codes)
        self.row = [structure.encode(column, codes[[column]]) for column in range(self.d)]
        self.values = [structure.encode(column, some) for column, some in enumerate(values)]

    def sums(self, changes: dict[int, int]) -> Any:
        """Return the sums of the row with the column's value of this number in some columns."""
        tokens = [
            self.values[column][[changes[column]]] if column in changes else self.row[column]
            for column in range(self.d)
        ]
        return self.structure.sums(tokens)[0]


@st.composite
def worlds(draw: Any, parts: int = 1) -> World:
    seed, outputs = draw(st.integers(0, 2**16)), draw(st.sampled_from([1, 3]))
    frame = background(seed)
    space = space_of(frame)
    trees = [random_trees(seed + part, space, outputs, trees=6, depth=5) for part in range(parts)]
    query = table([draw(wide_rows)], frame)
    codes = space.covering(query).encode(query)[0]
    rng = np.random.default_rng(seed)
    values = [
        rng.permutation(np.unique(rng.choice(feature.values, 5))) if rng.random() < 0.8 else np.empty(0)
        for feature in space.features
    ]
    structure: Structure = trees[0] if parts == 1 else Joined.of(trees, len(space))
    return World(structure, codes, values)


def check(world: World, seed: int, c: float, limit: float) -> None:
    """Compare what is said of the pairs that count with rows that are scored whole."""
    pairs = world.structure.pairs(world.row, world.values)
    assert pairs is not None
    chosen = np.array([pair for pair in PAIRS if pair[1] < world.d]).T
    start = np.cumsum([0, *map(len, world.values)])
    places = [(column, place) for column, some in enumerate(world.values) for place in range(len(some))]
    base, rng = world.sums({}), np.random.default_rng(seed)
    sums = np.array([world.sums({column: place}) for column, place in places]).reshape(-1, len(base))
    cost, peak = rng.random((2, len(places)))
    alone = Alone(sums, base, cost, peak, c, limit)
    tables = pairs.tables(*chosen)
    low, high = tables.extremes(alone)
    for pair, (one, two) in enumerate(chosen.T):
        known = {}
        for a, b in np.ndindex(len(world.values[one]), len(world.values[two])):
            both = (int(start[one] + a), int(start[two] + b))
            if cost[list(both)].sum() + c * peak[list(both)].max() <= limit:
                known[both] = world.sums({one: a, two: b})
        at, found = tables.near(alone, np.array([pair]))
        assert sorted(map(tuple, at.tolist())) == sorted(known)
        whole = np.array([known[both] for both in map(tuple, at.tolist())]).reshape(-1, len(base))
        np.testing.assert_allclose(found, whole, rtol=0, atol=1e-5)
        np.testing.assert_allclose(low[pair], whole.min(axis=0, initial=np.inf), rtol=0, atol=1e-5)
        np.testing.assert_allclose(high[pair], whole.max(axis=0, initial=-np.inf), rtol=0, atol=1e-5)
    check_leading(tables, pairs.tables(*chosen), alone, chosen.shape[1], rng)


def check_leading(tables: PairTables, again: PairTables, alone: Alone, pairs: int, rng: np.random.Generator) -> None:
    """Compare what leads with what counts, of the same tables made twice."""
    at, sums = tables.near(alone, np.arange(pairs))
    toward = float(rng.choice([-1.0, 1.0]))
    may = float(toward * rng.choice(sums[:, 0]) if len(sums) else 0.0) - 1e-4
    found = again.leading(alone, Leading(toward, may))
    if len(alone.base) > 1:
        assert found is None
        return
    assert found is not None
    leads = toward * sums[:, 0] >= may
    near = np.abs(toward * sums[:, 0] - may) < 1e-5  # rounding decides
    expected = {tuple(pair): total for pair, total in zip(at[leads].tolist(), sums[leads, 0].tolist(), strict=True)}
    got = {tuple(pair): total for pair, total in zip(found[0].tolist(), found[1][:, 0].tolist(), strict=True)}
    assert expected.keys() ^ got.keys() <= set(map(tuple, at[near].tolist()))
    for pair in expected.keys() & got.keys():
        assert got[pair] == pytest.approx(expected[pair], abs=1e-9)


told = st.integers(0, 2**16), st.sampled_from([0.0, 0.5]), st.sampled_from([0.3, 0.8, 3.0])


@given(worlds(), *told)
def test_pairs_add_to_single_changes_what_whole_rows_say(world: World, seed: int, c: float, limit: float) -> None:
    check(world, seed, c, limit)


@given(worlds(parts=2), *told)
def test_pairs_of_several_structures_stand_side_by_side(world: World, seed: int, c: float, limit: float) -> None:
    check(world, seed, c, limit)


def test_trees_with_too_many_levels_say_nothing_of_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_pairs, "MOST_FLAGS", 3)
    frame = background(1)
    trees = random_trees(1, space_of(frame), 1, trees=6, depth=5)
    codes = space_of(frame).encode(frame)
    world = World(trees, codes[0], [column[:2] for column in codes.T])
    assert trees.pairs(world.row, world.values) is None
