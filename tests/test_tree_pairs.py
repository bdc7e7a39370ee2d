"""Pairs of changes: what two of them do beyond each alone, against rows that are scored whole."""

from typing import Any

import numpy as np
import pytest
from forest_worlds import random_trees
from hypothesis import given
from hypothesis import strategies as st
from worlds import background, space_of, table, wide_rows

from mlflow_cf.structures import Structure
from mlflow_cf.structures import pair_tables as pairs_of_changes
from mlflow_cf.structures.capabilities import SupportsPairs
from mlflow_cf.structures.joined import Joined
from mlflow_cf.structures.kernels.blocks import Blocks, ListedPairs, SingleEffects, Threshold
from mlflow_cf.structures.pair_tables import PairTables, no_threshold
from mlflow_cf.structures.trees import ensemble as tree_pairs

PAIRS = [(one, two) for one in range(6) for two in range(one + 1, 6)]


class World:
    """A structure, the encoded values of a row, and those of some values per column, in any order, none missing."""

    def __init__(self, structure: Structure, codes: Any, values: list[Any]) -> None:
        self.structure, self.d = structure, len(codes)
        self.row = [structure.encode(column, codes[[column]]) for column in range(self.d)]
        self.values = [structure.encode(column, some) for column, some in enumerate(values)]

    def sums(self, changes: dict[int, int]) -> Any:
        """Return the sums of the row with the column's value of this number in some columns."""
        encoded = [
            self.values[column][[changes[column]]] if column in changes else self.row[column]
            for column in range(self.d)
        ]
        return self.structure.sums(encoded)[0]


@st.composite
def worlds(draw: Any, parts: int = 1) -> World:
    seed, outputs = draw(st.integers(0, 2**16)), draw(st.sampled_from([1, 3]))
    frame = background(seed)
    space = space_of(frame)
    wide = draw(st.booleans())
    trees = [random_trees(seed + part, space, outputs, trees=6, depth=5, wide=wide) for part in range(parts)]
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
    assert isinstance(world.structure, SupportsPairs)
    pairs = world.structure.pairs(world.row)
    chosen = np.array([pair for pair in PAIRS if pair[1] < world.d]).T
    start = np.cumsum([0, *map(len, world.values)])
    places = [(column, place) for column, some in enumerate(world.values) for place in range(len(some))]
    base, rng = world.sums({}), np.random.default_rng(seed)
    sums = np.array([world.sums({column: place}) for column, place in places]).reshape(-1, len(base))
    cost, peak = rng.random((2, len(places)))
    alone = SingleEffects(sums, base, cost, peak, c, limit)
    known: dict[tuple[int, int], Any] = {}
    for one, two in chosen.T:
        for a, b in np.ndindex(len(world.values[one]), len(world.values[two])):
            both = (int(start[one] + a), int(start[two] + b))
            if cost[list(both)].sum() + c * peak[list(both)].max() <= limit:
                known[both] = world.sums({one: a, two: b})
    tables, whole = pairs.tables(world.values, *chosen, 10**6), no_threshold(len(base))
    assert tables is not None
    cells = tables.tables.added.size
    assert not cells or pairs.tables(world.values, *chosen, cells - 1) is None
    blocks = tables.blocks(alone, whole)
    found = listed(tables.near(alone, whole, blocks.at))
    assert found.keys() == known.keys()
    for both, total in found.items():
        np.testing.assert_allclose(total, known[both], rtol=0, atol=1e-5)
    check_blocks(tables, alone, blocks, found)
    check_leading(tables, alone, found, rng)


def listed(near: ListedPairs) -> dict[tuple[int, ...], Any]:
    """Return the sums of every pair of values; no pair comes twice."""
    found = {tuple(both): total for both, total in zip(near.at.tolist(), near.sums, strict=True)}
    assert len(found) == len(near.at)
    return found


def check_blocks(tables: PairTables, alone: SingleEffects, blocks: Blocks, known: dict[tuple[int, ...], Any]) -> None:
    """Compare the bounds of every block with all that it holds; together they hold everything once."""
    total = 0
    for at, far, size, low, high in zip(*blocks, strict=True):
        held = listed(tables.near(alone, no_threshold(len(alone.base)), at[None]))
        assert len(held) <= size
        total += len(held)
        for both, sums in held.items():
            cost, peak = alone.cost[list(both)].sum(), alone.peak[list(both)].max()
            assert far <= cost + alone.c * peak + 1e-12
            np.testing.assert_allclose(sums, known[both], rtol=0, atol=1e-12)
            assert (low - 1e-9 <= sums).all()
            assert (sums <= high + 1e-9).all()
    assert total == len(known)


def check_leading(
    tables: PairTables, alone: SingleEffects, known: dict[tuple[int, ...], Any], rng: np.random.Generator
) -> None:
    """Compare what leads with all that count."""
    weights = rng.choice([-1.0, 0.5, 1.0], len(alone.base))
    leads = {both: float(weights @ sums) for both, sums in known.items()}
    may = float(rng.choice(list(leads.values()))) if leads else 0.0
    leading = Threshold(weights, may - 1e-4)
    blocks = tables.blocks(alone, leading)
    found = listed(tables.near(alone, leading, blocks.at))
    expected = {both for both, lead in leads.items() if lead >= leading.least}
    near = {both for both, lead in leads.items() if abs(lead - leading.least) < 1e-9}  # rounding decides
    assert expected ^ found.keys() <= near
    for both, sums in found.items():
        np.testing.assert_allclose(sums, known[both], rtol=0, atol=1e-12)


def test_pairs_are_listed_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs_of_changes, "FIRST_ROOM", 1)
    monkeypatch.setattr(tree_pairs, "EXPECTED", 0)
    frame = background(2)
    space = space_of(frame)
    values = [np.asarray(feature.values) for feature in space.features]
    world = World(random_trees(2, space, 1, trees=6, depth=5), space.encode(frame)[0], values)
    check(world, 2, 0.0, 3.0)


told = st.integers(0, 2**16), st.sampled_from([0.0, 0.5]), st.sampled_from([0.3, 0.8, 3.0])


@given(worlds(), *told)
def test_pairs_add_to_single_changes_what_whole_rows_say(world: World, seed: int, c: float, limit: float) -> None:
    check(world, seed, c, limit)


@given(worlds(parts=2), *told)
def test_pairs_of_several_structures_stand_side_by_side(world: World, seed: int, c: float, limit: float) -> None:
    check(world, seed, c, limit)
