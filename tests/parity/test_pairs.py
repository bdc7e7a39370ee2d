"""All pairs of changes: a restriction to two columns, swept along one of them, says what single rows would."""

from itertools import combinations

import numpy as np
import pytest
import xgboost
from agreement import applications, goals, named, wrapped
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from mlflow_cf.structures.kernels.restrict import bound_trees
from mlflow_cf.structures.kernels.sweeps import sweep_rows
from mlflow_cf.structures.kernels.trees import walk_trees

FEW = {"n_estimators": 12, "max_depth": 6}
FORESTS = [
    HistGradientBoostingClassifier(max_iter=12),
    RandomForestClassifier(**FEW, random_state=0),
    xgboost.XGBClassifier(**FEW, n_jobs=1),
]


@pytest.fixture(params=["two", "three"])
def goal(request):
    return request.param


@pytest.fixture(params=FORESTS, ids=named)
def structure(request, goal):
    """Trees over numbers with gaps, and over levels encoded as numbers."""
    model = clone(request.param)
    data = applications()
    wanted = goals(data)[goal].astype("category").cat.codes
    levels = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    table = make_column_transformer((levels, ["housing", "job"]), remainder="passthrough")
    explained = wrapped(make_pipeline(table, model).fit(data, wanted), data, wanted)
    assert explained.opened.structure is not None, named(model)
    return explained.opened.structure


def paired(row, first, second, cells):
    """Return the rows (m * t,) of encoded values with two columns changed to every pair of cells."""
    left, right = cells[first], cells[second]
    rows = [np.repeat(token, len(left) * len(right)) for token in row]
    rows[first], rows[second] = np.repeat(left, len(right)), np.tile(right, len(left))
    return rows


def test_all_pairs_of_cells(structure):
    rng = np.random.default_rng(0)
    cells = [rng.permutation(lookup.size).astype(np.int32) for lookup in structure.lookups]
    close = 1e-5 if structure.trees.nodes.value.dtype == np.float32 else 1e-12
    for row in np.column_stack([rng.choice(known, 2) for known in cells]):
        for first, second in combinations(range(len(cells)), 2):
            part = structure.restrict(row, [first, second])
            m, t = len(cells[first]), len(cells[second])
            expected = structure.sums(paired(row, first, second, cells)).reshape(m, t, -1)
            right = part.sweep([cells[first], np.repeat(row[second], m)], [None, cells[second]])
            left = part.sweep([np.repeat(row[first], t), cells[second]], [cells[first], None])
            assert right[0] is left[1] is None
            np.testing.assert_allclose(right[1], expected, rtol=close, atol=close)
            np.testing.assert_allclose(left[0], expected.swapaxes(0, 1), rtol=close, atol=close)


def test_some_pairs_in_any_order_and_more_than_once(structure):
    """Cells that are not asked for count for nothing, wherever they are."""
    rng = np.random.default_rng(1)
    row = np.array([rng.integers(lookup.size) for lookup in structure.lookups], dtype=np.int32)
    for first, second in combinations(range(len(row)), 2):
        rows = rng.integers(0, structure.lookups[first].size, 7).astype(np.int32)
        values = rng.integers(0, structure.lookups[second].size, 3).astype(np.int32)
        part = structure.restrict(row, [first, second])
        found = part.sweep([rows, np.repeat(row[second], 7)], [None, values])[1]
        cells = list(row)
        cells[first], cells[second] = rows, values
        expected = structure.sums(paired(row, first, second, cells)).reshape(7, 3, -1)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_no_kernel_is_compiled_once_more_in_a_search(structure):
    """Neither for a structure that was restricted, nor for flags whose columns stand together in memory."""
    cells = [np.arange(lookup.size, dtype=np.int32) for lookup in structure.lookups]
    encoded = [known[[0, -1]] for known in cells]
    boxes = structure.boxes(cells)
    flags, masks = np.ones((2, len(cells)), dtype=bool), np.ones((2, sum(map(len, cells))), dtype=bool)
    expected = structure.sweep(encoded, cells, flags), boxes.bounds(masks), structure.sums(encoded)
    compiled = [len(kernel.signatures) for kernel in (sweep_rows, bound_trees, walk_trees)]
    found = structure.sweep(encoded, cells, np.asfortranarray(flags)), boxes.bounds(np.asfortranarray(masks))
    for one, other in zip((*found[0], *found[1]), (*expected[0], *expected[1]), strict=True):
        np.testing.assert_array_equal(one, other)
    some = structure.restrict([part[0] for part in encoded], [3, 0, 1])
    some.sweep([encoded[3], encoded[0], encoded[1]], [cells[3], None, cells[1]])
    some.bounds([cells[3], cells[0], encoded[1]])
    assert some.sums([part[:1] for part in (encoded[3], encoded[0], encoded[1])]).tolist() == expected[2][:1].tolist()
    assert [len(kernel.signatures) for kernel in (sweep_rows, bound_trees, walk_trees)] == compiled
