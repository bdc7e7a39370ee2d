"""Products: the sums of all rows of a box at once are those of its rows one by one, but for rounding."""

from typing import Any

import numpy as np
import small_loans
from forest_worlds import random_trees
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from worlds import background, space_of
from xgboost import XGBClassifier

import mlflow_cf
from mlflow_cf.engine.thresholds import SWEPT
from mlflow_cf.structures import Structure
from mlflow_cf.structures.capabilities import SupportsProduct
from mlflow_cf.structures.joined import Joined


def rows_of(encoded: list[Any], dimension: NDArray[np.intp]) -> list[Any]:
    """Return the encoded values of all rows of a box, column by column; its last dimension changes fastest."""
    sizes = np.ones(dimension.max() + 1, dtype=int)
    sizes[dimension] = list(map(len, encoded))
    at = np.indices(sizes).reshape(len(sizes), -1)
    return [some[at[place]] for some, place in zip(encoded, dimension.tolist(), strict=True)]


@st.composite
def boxes(draw: Any, values: list[Any]) -> tuple[list[Any], NDArray[np.intp]]:
    """Return values of every column (t,) and its dimension, of which several columns may share one."""
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    count = draw(st.integers(1, len(values)))
    dimension = rng.permutation([*range(count), *rng.integers(0, count, len(values) - count)])
    sizes = rng.choice([1, 1, 2, 3, 7], count)
    return [rng.choice(some, sizes[place]) for some, place in zip(values, dimension.tolist(), strict=True)], dimension


@given(seed=st.integers(0, 2**16), outputs=st.sampled_from([1, 3]), parts=st.sampled_from([1, 2]), data=st.data())
def test_products_are_their_rows(seed: int, outputs: int, parts: int, data: st.DataObject) -> None:
    space = space_of(background(seed))
    trees = [random_trees(seed + part, space, outputs, trees=6, depth=5) for part in range(parts)]
    structure: Structure = trees[0] if parts == 1 else Joined.of(trees, len(space))
    values, dimension = data.draw(boxes([np.append(feature.values, np.nan) for feature in space.features]))
    encoded = [structure.encode(column, some) for column, some in enumerate(values)]
    assert isinstance(structure, SupportsProduct)
    found = structure.product(encoded, dimension)
    expected = structure.sums(rows_of(encoded, dimension))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
    weights = np.random.default_rng(seed).normal(size=(structure.outputs, 2))
    weighted = structure.product(encoded, dimension, weights)
    np.testing.assert_allclose(weighted, expected @ weights, rtol=0, atol=1e-5)


def boosted() -> mlflow_cf.ExplainedModel:
    frame = small_loans.table()
    numbers = frame[["age", "income", "debts"]]
    good = small_loans.labels(frame) == "good"
    model = XGBClassifier(n_estimators=30, max_depth=4, random_state=0).fit(numbers, good)
    return mlflow_cf.wrap(model, numbers, target=1)


BOOSTED = boosted()


@given(data=st.data())
def test_sums_of_models_in_single_precision_are_as_near_as_those_of_sweeps(data: st.DataObject) -> None:
    structure, space = BOOSTED.opened.structure, BOOSTED.space
    assert structure is not None
    values, dimension = data.draw(boxes([feature.values for feature in space.features]))
    encoded = [structure.encode(column, some) for column, some in enumerate(values)]
    assert isinstance(structure, SupportsProduct)
    found = structure.product(encoded, dimension)
    np.testing.assert_allclose(found, structure.sums(rows_of(encoded, dimension)), rtol=0, atol=SWEPT)


def test_layers_gain_nothing_and_so_nobody_does_beside_them() -> None:
    frame = small_loans.table().fillna({"debts": 0})
    linear = mlflow_cf.wrap(small_loans.fitted(frame), frame, target="good")
    structure, space = linear.opened.structure, linear.space
    assert structure is not None
    assert not isinstance(structure, SupportsProduct)
    both = Joined.of([random_trees(0, space, 1, trees=2, depth=2), structure], len(space))
    assert not isinstance(both, SupportsProduct)
