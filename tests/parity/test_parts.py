"""A structure is made of what it says: its parts alone, in plain numpy, give the sums that it gives."""

import lightgbm
import numpy as np
import pytest
import xgboost
from agreement import applications, goals, named, wrapped
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    KBinsDiscretizer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    RobustScaler,
    StandardScaler,
)
from sklearn.tree import DecisionTreeClassifier
from test_categories import offers, value

from mlflow_cf.features import Feature, FeatureSpace
from mlflow_cf.structures import (
    Choice,
    ClippedLine,
    Dense,
    Forest,
    Layers,
    Leaves,
    MonotoneStep,
    NotOpenedError,
    NumberColumn,
    TreeEnsemble,
)
from mlflow_cf.structures.capabilities import is_steady
from mlflow_cf.structures.joined import Joined

ACTIVATIONS = {
    "identity": lambda sums: sums,
    "relu": lambda sums: np.maximum(sums, 0.0),
    "logistic": expit,
    "tanh": np.tanh,
}
BOOSTED = {"n_estimators": 8, "n_jobs": 1}
WORDS = make_pipeline(
    SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore", sparse_output=False)
)
BINS = {"n_bins": 4, "quantile_method": "averaged_inverted_cdf"}


def sums_of_leaves(parts, Z):
    """Return the sums of rows of codes: every tree has one leaf that takes all of a row's cells."""
    takes = np.ones((len(parts.tree), len(Z)), dtype=bool)
    for lookup, limits, codes in zip(parts.lookups, parts.limits, Z.T, strict=True):
        cells, own = lookup.cells(codes), lookup.size - 1
        inside = (limits.low[:, None] <= cells) & (cells <= limits.high[:, None]) & (cells != own)
        inside |= limits.missing[:, None] & (cells == own)
        if limits.taken is not None:
            assert (limits.taken[:, cells] <= inside).all()
            inside = limits.taken[:, cells]
        takes[limits.leaf] &= inside
    for tree in np.unique(parts.tree):
        assert (takes[parts.tree == tree].sum(axis=0) == 1).all()
    assert (np.diff(parts.tree) >= 0).all()
    return parts.base + takes.T.astype(float) @ parts.value


def sums_of_layers(parts, Z):
    """Return the sums of rows of codes: what every feature adds, then layer after layer."""
    sums = np.tile(parts.bias, (len(Z), 1))
    for entries, codes in zip(parts.entries, Z.T, strict=True):
        for entry in entries:
            if isinstance(entry, Choice):
                sums += entry.table[entry.lookup.cells(codes)]
                continue
            line = entry.affine
            values = np.clip(line.slope * codes + line.offset, line.low, line.high)
            sums += np.where(np.isnan(codes), entry.missing, values)[:, None] * entry.weights
    for weights, bias in zip(parts.weights, parts.biases, strict=True):
        sums = ACTIVATIONS[parts.activation](sums) @ weights + bias
    return sums


def rescored(structure, Z, close=1e-9):
    """Compare the sums that the parts of a structure give with its own; return its parts."""
    (parts,) = structure.parts()
    sums = structure.sums([structure.encode(column, codes) for column, codes in enumerate(Z.T)])
    found = (sums_of_leaves if isinstance(parts, Leaves) else sums_of_layers)(parts, Z)
    np.testing.assert_allclose(found, sums, rtol=close, atol=close * max(1, np.nanmax(np.abs(sums))))
    return parts


def opened(model, data, wanted):
    explained = wrapped(model.fit(data, wanted), data, wanted)
    assert explained.opened.structure is not None, explained.opened.note
    return explained.opened.structure, explained.space


def odd_codes(space, rows, seed=0):
    """Return random codes: of the background, between and beyond them, unseen levels, missing values."""
    rng = np.random.default_rng(seed)
    columns = []
    for feature in space.features:
        codes = rng.choice(feature.values, rows)
        other = rng.random(rows) < 0.4
        span = feature.high - feature.low
        strange = rng.uniform(feature.low - span, feature.high + span, rows)
        codes[other] = float(len(feature.levels)) if feature.levels else strange[other]
        if feature.missing:
            codes[rng.random(rows) < 0.2] = np.nan
        columns.append(codes)
    return np.column_stack(columns)


TREES = [
    (DecisionTreeClassifier(random_state=0), "three"),
    (RandomForestClassifier(8, random_state=0), "two"),
    (RandomForestRegressor(8, random_state=0), "value"),
    (GradientBoostingClassifier(n_estimators=8, random_state=0), "three"),
    (HistGradientBoostingClassifier(max_iter=8), "two"),
    (xgboost.XGBClassifier(**BOOSTED), "three"),
    (lightgbm.LGBMRegressor(verbose=-1, **BOOSTED), "value"),
]


@pytest.mark.parametrize(("model", "goal"), TREES, ids=lambda part: part if isinstance(part, str) else named(part))
def test_trees_behind_transformers(model, goal):
    data = applications()
    wanted = goals(data)[goal]
    if goal != "value":
        wanted = wanted.astype("category").cat.codes
    table = make_column_transformer(
        (WORDS, ["housing", "job"]),
        (SimpleImputer(), ["income"]),
        (StandardScaler(), ["debt"]),
        (KBinsDiscretizer(**BINS, encode="onehot-dense"), ["age"]),
        remainder="passthrough",
        sparse_threshold=0,
    )
    structure, space = opened(make_pipeline(table, model), data, wanted)
    assert is_steady(structure)
    parts = rescored(structure, odd_codes(space, 500), 1e-5 if "XGB" in named(model) else 1e-9)
    income = parts.lookups[space.index["income"]]
    assert income.missing < income.size - 1
    assert not parts.limits[space.index["income"]].missing.any()


CATEGORICAL = [
    HistGradientBoostingRegressor(categorical_features="from_dtype", max_iter=8),
    xgboost.XGBClassifier(enable_categorical=True, max_cat_to_onehot=1, **BOOSTED),
    lightgbm.LGBMClassifier(min_data_per_group=5, cat_smooth=1, verbose=-1, **BOOSTED),
    lightgbm.LGBMClassifier(zero_as_missing=True, verbose=-1, **BOOSTED),
]


@pytest.mark.parametrize("model", CATEGORICAL, ids=lambda model: str(model)[:60])
def test_trees_with_categories_and_missing_values(model):
    data = offers()
    wanted = value(data) if "Regressor" in named(model) else (value(data) > 1.5).astype(int)
    structure, space = opened(model, data, wanted)
    parts = rescored(structure, odd_codes(space, 500), 1e-5)
    assert parts.limits[space.index["letter"]].taken is not None


def test_restricted_trees_have_fewer_leaves():
    data = applications()
    columns = ["income", "age", "debt"]
    model = HistGradientBoostingClassifier(max_iter=8)
    structure, space = opened(model, data[columns], goals(data)["two"])
    Z = odd_codes(space, 300)
    row = [structure.encode(column, Z[:1, column])[0] for column in range(3)]
    part = structure.restrict(row, [2, 0])
    whole = np.column_stack([Z[:, 0], np.full(300, Z[0, 1]), Z[:, 2]])
    assert len(rescored(part, Z[:, [2, 0]]).tree) < len(rescored(structure, whole).tree)


def test_restricted_trees_hold_no_leftovers_of_memory(monkeypatch):
    data = applications()[["age", "debt"]]
    structure, space = opened(RandomForestClassifier(4, random_state=0), data, goals(applications())["two"])
    row = [structure.encode(column, odd_codes(space, 1)[:, column])[0] for column in range(2)]
    monkeypatch.setattr(np, "empty_like", lambda like: np.full_like(like, np.nan if like.dtype == float else 7))
    part = structure.restrict(row, [1, 0])
    assert len(part.trees.nodes.value) > 4  # some are no leaves
    assert np.isfinite(part.trees.nodes.value).all()  # whole arrays are weighted, and overflows would be told


def test_a_forest_that_threads_add_up_is_not_steady():
    data = applications()[["age", "debt"]]
    model = RandomForestClassifier(4, random_state=0, n_jobs=2)
    assert not opened(model, data, goals(applications())["two"])[0].steady


def test_structures_that_are_joined_keep_their_parts():
    data = applications()[["age", "debt"]]
    wanted = goals(applications())
    forest, space = opened(RandomForestClassifier(4, random_state=0), data, wanted["three"])
    linear, _ = opened(make_pipeline(MinMaxScaler(), LinearRegression()), data, wanted["value"])
    joined, Z = Joined.of([forest, linear], 2), odd_codes(space, 50)
    leaves, dense = joined.parts()
    found = np.column_stack([sums_of_leaves(leaves, Z), sums_of_layers(dense, Z)])
    encoded = [joined.encode(column, codes) for column, codes in enumerate(Z.T)]
    np.testing.assert_allclose(found, joined.sums(encoded), rtol=1e-9)
    assert not joined.steady
    assert not joined.ordered(0)
    assert Joined.of([forest, forest], 2).steady
    assert Joined.of([forest, forest], 2).ordered(0)
    squared = Layers.compile(
        [NumberColumn(0, (MonotoneStep(np.square),))], space, [np.ones((1, 1))], [np.zeros(1)], "identity", "identity"
    )
    with pytest.raises(NotOpenedError, match="no formula"):
        Joined.of([forest, squared], 2).parts()


def numbers(rows=400, seed=0):
    """Return numbers, whole ones, float32 and missing ones, with levels."""
    rng = np.random.default_rng(seed)
    return applications(rows, seed).assign(
        rate=rng.normal(size=rows).astype("float32"), width=rng.normal(3, 2, rows), grade=rng.integers(0, 4, rows) * 1.0
    )


LAYERS = {
    "linear": (LinearRegression(), "value"),
    "logistic": (LogisticRegression(), "two"),
    "several": (LogisticRegression(), "three"),
    "relu": (MLPClassifier((9, 5), max_iter=40, random_state=0), "three"),
    "tanh": (MLPRegressor(hidden_layer_sizes=(9,), activation="tanh", max_iter=40, random_state=0), "value"),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("model", "goal"), LAYERS.values(), ids=LAYERS)
def test_layers_behind_transformers(model, goal):
    data = numbers()
    table = make_column_transformer(
        (make_pipeline(SimpleImputer(add_indicator=True), StandardScaler()), ["income"]),
        (make_pipeline(MinMaxScaler((-1, 2), clip=True), RobustScaler()), ["debt", "rate"]),
        (make_pipeline(StandardScaler(with_mean=False), MinMaxScaler(clip=True), MaxAbsScaler()), ["width"]),
        (MinMaxScaler(), ["age"]),
        (RobustScaler(with_centering=False), ["rate"]),
        (KBinsDiscretizer(**BINS, encode="onehot-dense"), ["width"]),
        (make_pipeline(SimpleImputer(), KBinsDiscretizer(**BINS, encode="ordinal")), ["income"]),
        (WORDS, ["housing", "member"]),
        (OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1), ["job"]),
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), ["grade"]),
    )
    structure, space = opened(make_pipeline(table, model), data, goals(data)[goal])
    assert not is_steady(structure)
    parts = rescored(structure, odd_codes(space, 500), 1e-6)  # one block is calculated in float32
    part = structure.restrict([structure.encode(n, np.array([f.low]))[0] for n, f in enumerate(space.features)], [3, 0])
    rescored(part, odd_codes(space, 500)[:, [3, 0]], 1e-6)
    assert [len(entries) for entries in parts.entries] == [3, 1, 1, 1, 1, 1, 2, 2, 1]


def test_a_number_without_a_formula_has_no_parts():
    space = FeatureSpace((Feature("x", "real", "float64"),))
    shape = ([np.ones((1, 1))], [np.zeros(1)], "identity", "identity")
    squared = Layers.compile([NumberColumn(0, (MonotoneStep(np.square),))], space, *shape)
    with pytest.raises(NotOpenedError, match="no formula"):
        squared.parts()
    assert isinstance(*Layers.compile([NumberColumn(0)], space, *shape).parts(), Dense)
    with pytest.raises(NotOpenedError, match="no formula"):
        Layers.compile([NumberColumn(0, gap=(0.0, 1.0))], space, *shape).parts()


LINES = st.builds(
    lambda slope, offset, ends: ClippedLine(slope, offset, *sorted(ends)),
    st.floats(-4, 4),
    st.floats(-9, 9),
    st.just((-np.inf, np.inf)) | st.tuples(st.floats(-9, 9), st.floats(-9, 9)),
)


@given(st.lists(LINES, min_size=1, max_size=4), st.floats(-50, 50))
def test_formulas_one_after_the_other_are_one(lines, x):
    whole, expected = ClippedLine(), x
    for line in lines:
        whole, expected = whole.then(line), np.clip(line.slope * expected + line.offset, line.low, line.high)
    assert np.clip(whole.slope * x + whole.offset, whole.low, whole.high) == pytest.approx(expected, abs=1e-9)


def test_leaves_no_row_reaches_are_left_out():
    # x <= 1 goes left; of the others x <= 0 would go left, but none of them is
    def ints(*values):
        return np.array(values, dtype=np.int32)

    forest = Forest(
        roots=ints(0),
        outputs=ints(0),
        column=ints(0, -1, 0, -1, -1),
        threshold=np.array([1.0, 0, 0, 0, 0]),
        missing_left=np.zeros(5, dtype=bool),
        left=ints(1, 1, 3, 3, 4),
        right=ints(2, 1, 4, 3, 4),
        value=np.arange(5.0)[:, None],
        rule="<= float64",
        base=np.zeros(1),
        link="identity",
    )
    trees = TreeEnsemble.compile(forest, [NumberColumn(0)], FeatureSpace((Feature("x", "real", "float64"),)))
    parts = rescored(trees, np.array([[-1.0], [0.0], [0.5], [1.0], [2.0], [np.nan]]))
    assert parts.value.ravel().tolist() == [1.0, 4.0]
    (limits,) = parts.limits
    assert (limits.low.tolist(), limits.high.tolist(), limits.missing.tolist()) == ([0, 2], [1, 2], [False, True])
