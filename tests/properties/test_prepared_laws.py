"""What pipelines and estimators are asked in less time is what they make of tables themselves, to the last bit."""

import warnings
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from laws import dear
from lightgbm import LGBMClassifier
from scipy import sparse
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, make_column_selector, make_column_transformer
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestRegressor,
    VotingClassifier,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    KBinsDiscretizer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    SplineTransformer,
    StandardScaler,
    TargetEncoder,
)
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
from xgboost import XGBClassifier, XGBRegressor

import mlflow_cf
from mlflow_cf.errors import InputError
from mlflow_cf.features import CodedTable, Feature, FeatureSpace
from mlflow_cf.model import CodedCalls, OpenModel
from mlflow_cf.model.flavors import open_native
from mlflow_cf.model.judge import Judge
from mlflow_cf_flavors.sklearn import first_step as module
from mlflow_cf_flavors.sklearn.arrays import Numbers
from mlflow_cf_flavors.sklearn.calls import Named, Prepared, whole
from mlflow_cf_flavors.sklearn.coded import of_codes
from mlflow_cf_flavors.sklearn.first_step import FirstStep, first_step
from mlflow_cf_flavors.sklearn.flavor import open as open_sklearn

LEVELS = ["town", "post", "flag"]
NUMBERS = ["age", "wage"]


def table(seed: int, count: int, *, dtype: str = "str", missing: bool = False, unknown: bool = False) -> pd.DataFrame:
    """Return rows with text, whole numbers that are codes, flags and numbers."""
    rng = np.random.default_rng(seed)
    towns = np.array(["Ulm", "Bern", "Graz", "Linz", *(["elsewhere"] if unknown else [])])
    rows = pd.DataFrame(
        {
            "town": pd.Series(rng.choice(towns, count)).astype(dtype),
            "post": rng.choice([3, 7, 11, *([40] if unknown else [])], count),
            "flag": rng.random(count) < 0.1,
            "age": rng.normal(40, 9, count),
            "wage": rng.integers(0, 3, count),
        }
    )
    if missing:
        gone = rng.random((2, count)) < 0.1
        rows["town"] = rows["town"].mask(gone[0], None if dtype == "object" and seed % 2 else np.nan)
        rows.loc[gone[1], "age"] = np.nan
    return rows


@st.composite
def encoders(draw: st.DrawFn) -> Any:
    frequency = draw(st.sampled_from([None, 0.3]))
    one_hot = OneHotEncoder(
        handle_unknown=draw(st.sampled_from(["ignore", "error", "infrequent_if_exist"])),
        drop=draw(st.sampled_from([None, "first", "if_binary"])),
        min_frequency=frequency,
        sparse_output=draw(st.booleans()),
        dtype=draw(st.sampled_from([np.float64, np.float32, np.int64])),
    )
    ordinal = OrdinalEncoder(
        handle_unknown="use_encoded_value",
        unknown_value=draw(st.sampled_from([-1, np.nan])),
        encoded_missing_value=draw(st.sampled_from([-2, np.nan])),
        min_frequency=frequency,
    )
    filled = SimpleImputer(strategy="most_frequent")
    found = draw(st.sampled_from([one_hot, ordinal, TargetEncoder(random_state=0)]))
    return make_pipeline(filled, found) if draw(st.booleans()) else found


NUMERIC = [
    StandardScaler(),
    MinMaxScaler(),
    "passthrough",
    "drop",
    make_pipeline(SimpleImputer(add_indicator=True), StandardScaler()),
]


def outcome_of(transform: Any, rows: pd.DataFrame) -> Any:
    """Return what a transform makes of rows, or the kind of its error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return transform(rows)
        except ValueError as error:
            return type(error)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, type) or isinstance(other, type):
        return one is other
    if sparse.issparse(one):
        return type(one) is type(other) and all(
            same(getattr(one, name), getattr(other, name)) for name in ("data", "indices", "indptr")
        )
    alike = (one.dtype, one.shape, one.flags.c_contiguous) == (other.dtype, other.shape, other.flags.c_contiguous)
    return alike and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


TABLES = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["str", "object", "category"]),
        "missing": st.booleans(),
    }
)
many = st.sampled_from([1, module.MANY])  # rows of which values are written one by one


@dear(6)
@given(
    encoder=encoders(),
    levels=st.sampled_from([LEVELS, LEVELS[:1]]),
    numbers=st.sampled_from(NUMERIC),
    tables=TABLES,
    threshold=st.sampled_from([0.0, 0.3, 1.0]),
    data=st.data(),
)
def test_the_same_table(
    encoder: Any, levels: list[str], numbers: Any, tables: dict[str, Any], threshold: float, data: st.DataObject
) -> None:
    seed = data.draw(st.integers(0, 100))
    fitted_on = table(seed, 120, **tables)
    step = ColumnTransformer(
        [("numbers", numbers, NUMBERS[:1]), ("levels", encoder, levels), ("rest", "passthrough", NUMBERS[1:])],
        sparse_threshold=threshold,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            step.fit(fitted_on, np.arange(120) % data.draw(st.integers(2, 3)))
        except ValueError:  # an imputer and an encoder do not take every mixture of columns
            reject()
    count, unknown = data.draw(st.integers(1, 3 * module.FEW)), data.draw(st.booleans())
    rows = table(seed + 1, count, unknown=unknown, **tables)
    found = first_step(step, fitted_on)
    assert isinstance(found, FirstStep)
    with patch.object(module, "MANY", data.draw(many)):
        assert same(outcome_of(found, rows), outcome_of(step.transform, rows))


OF_NUMBERS = [
    Binarizer(threshold=1.0),
    FunctionTransformer(np.cbrt),
    FunctionTransformer(np.exp, validate=True),
    KBinsDiscretizer(3, encode="ordinal"),
    KBinsDiscretizer(3),
    MaxAbsScaler(),
    MinMaxScaler(clip=True),
    PolynomialFeatures(2),
    PowerTransformer(),
    QuantileTransformer(n_quantiles=20),
    RobustScaler(),
    SimpleImputer(strategy="median", add_indicator=True),
    SplineTransformer(n_knots=3),
    StandardScaler(),
    make_pipeline(SimpleImputer(), PowerTransformer()),
    make_pipeline(SimpleImputer(), PolynomialFeatures(2), MinMaxScaler()),
]


def numbers(seed: int, count: int, dtypes: list[str], *, missing: bool) -> pd.DataFrame:
    """Return a table of numbers, of these types; those with fractions may be missing."""
    rng = np.random.default_rng(seed)
    columns = {}
    for number, dtype in enumerate(dtypes):
        values = pd.Series(rng.normal(3, 2, count)).astype(dtype)
        columns[f"x{number}"] = values.mask(rng.random(count) < 0.1) if missing and dtype[0] in "fF" else values
    return pd.DataFrame(columns)


def two_tables(dtypes: list[str], *, seed: int, missing: bool, count: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return a table to fit on, and `count` rows to ask about."""
    return numbers(seed, 120, dtypes, missing=missing), numbers(seed + 1, count, dtypes, missing=missing)


DTYPES = st.lists(st.sampled_from(["float64", "int64", "float32", "int8", "bool", "Float64"]), min_size=2, max_size=5)


@dear(3)
@pytest.mark.filterwarnings("ignore::UserWarning")  # columns with few values, of some of these steps
@given(
    step=st.sampled_from(OF_NUMBERS),
    dtypes=DTYPES,
    seed=st.integers(0, 100),
    missing=st.booleans(),
    count=st.integers(1, 50),
    alone=st.booleans(),
)
def test_numbers_are_taken_as_arrays(step: Any, dtypes: list[str], *, alone: bool, **drawn: Any) -> None:
    fitted_on, rows = two_tables(dtypes, **drawn)
    given_step = clone(step) if alone else make_column_transformer((clone(step), list(fitted_on.columns[1:])))
    try:
        given_step.fit(fitted_on)
    except (ValueError, TypeError):  # missing numbers, which not all of them take
        reject()
    found = first_step(given_step, fitted_on)
    if isinstance(given_step.transform(fitted_on), pd.DataFrame):  # a function that is given a table makes a table
        assert found == given_step.transform
        return
    assert same(outcome_of(found, rows), outcome_of(given_step.transform, rows))


def fitted(model: Any, rows: pd.DataFrame) -> Any:
    """Return a model that was fitted on the rows whose numbers add up to more than the median."""
    return model.fit(rows, (rows.sum(axis=1) > rows.sum(axis=1).median()).to_numpy(dtype=int))


ESTIMATORS = [
    DecisionTreeClassifier(max_depth=3),
    KNeighborsClassifier(),
    GradientBoostingClassifier(n_estimators=3),
    HistGradientBoostingClassifier(max_iter=3),
    LogisticRegression(max_iter=500),
    LinearRegression(),
    RandomForestRegressor(3),
    VotingClassifier(
        [("one", LogisticRegression(max_iter=500)), ("other", DecisionTreeClassifier(max_depth=2))], voting="soft"
    ),
    XGBClassifier(n_estimators=3),
    XGBRegressor(n_estimators=3),
    LGBMClassifier(n_estimators=3, verbose=-1),
    make_pipeline(StandardScaler(), LogisticRegression()),
]


@dear(3)
@given(
    estimator=st.sampled_from(ESTIMATORS),
    dtypes=DTYPES,
    seed=st.integers(0, 100),
    missing=st.booleans(),
    count=st.integers(1, 50),
)
def test_estimators_answer_arrays_as_tables(estimator: Any, dtypes: list[str], **drawn: Any) -> None:
    fitted_on, rows = two_tables(dtypes, **drawn)
    try:
        model = fitted(clone(estimator), fitted_on)
    except (ValueError, TypeError):  # as above
        reject()
    opened = open_sklearn(model, rows=fitted_on)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        decided = opened.decide(rows)
        scores = None if opened.score is None else opened.score(rows)
        both = None if opened.both is None else opened.both(rows)
    np.testing.assert_array_equal(decided, model.predict(rows))
    if scores is not None:
        np.testing.assert_array_equal(scores, model.predict_proba(rows))
    if both is not None:
        np.testing.assert_array_equal(both[0], model.predict(rows))
        np.testing.assert_array_equal(both[1], scores)


def test_an_estimator_that_reads_names_is_asked_with_them() -> None:
    rows = numbers(0, 60, ["float64", "float64"], missing=False)

    class Reading(LogisticRegression):
        def predict_proba(self, table: Any) -> Any:
            return super().predict_proba(table[["x0", "x1"]])

    Reading.__module__ = "sklearn.linear_model"  # nothing but the comparison tells
    model = Reading().fit(rows, rows["x0"] > 3)
    opened = open_sklearn(model, rows=rows)
    assert opened.score is not None
    np.testing.assert_array_equal(opened.score(rows), model.predict_proba(rows))


def prepared(**changes: Any) -> tuple[ColumnTransformer, Any]:
    chosen = make_column_selector(dtype_include=["str", "object"])
    step = make_column_transformer(
        (OneHotEncoder(**{"handle_unknown": "ignore", **changes}), chosen), (StandardScaler(), NUMBERS)
    )
    step.fit(table(0, 400))
    return step, first_step(step, table(0, 400))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return how many rows one-hot encoders are asked about, call by call."""
    asked: list[int] = []
    transform = OneHotEncoder.transform

    def counted(self: OneHotEncoder, rows: Any) -> Any:
        asked.append(len(rows))
        return transform(self, rows)

    monkeypatch.setattr(OneHotEncoder, "transform", counted)
    return asked


def test_an_encoder_is_asked_about_rows_with_other_values_alone(asked: list[int]) -> None:
    _, found = prepared()
    assert isinstance(found, FirstStep)
    asked.clear()
    found(table(1, 5000))
    assert asked == []
    rows = table(1, 5000, unknown=True)
    found(rows)
    assert asked == [int((rows["town"] == "elsewhere").sum())]


def test_warnings_about_unknown_levels_are_given_all_the_same() -> None:
    _, found = prepared(drop="first")
    assert isinstance(found, FirstStep)
    with pytest.warns(UserWarning, match="unknown categories"):
        found(table(1, 50, unknown=True))


class Shouting(OneHotEncoder):
    """Does more than it says: what an encoder of the user's own makes of a table may depend on all of it."""

    def transform(self, rows: Any) -> Any:
        return super().transform(rows) * len(rows)


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([("levels", Shouting(), ["town"])], id="an encoder of the user's own"),
        pytest.param([("numbers", Normalizer(), NUMBERS)], id="a step that is not known to do the same of an array"),
        pytest.param([("numbers", StandardScaler(copy=False), NUMBERS)], id="a step that may write into its table"),
        pytest.param([("levels", FunctionTransformer(lambda rows: rows == "Ulm"), ["town"])], id="a function"),
    ],
)
def test_other_transformers_are_asked_about_all_rows(parts: Any) -> None:
    rows = table(0, 50)
    step = ColumnTransformer(parts).fit(rows)
    assert first_step(step, rows) == step.transform


def test_tables_with_names_of_their_own_are_left_alone() -> None:
    rows = table(0, 50)
    one_hot = OneHotEncoder(sparse_output=False)
    step = ColumnTransformer([("levels", one_hot, ["town"])]).set_output(transform="pandas").fit(rows)
    assert first_step(step, rows) == step.transform


def test_an_encoder_of_very_many_categories_is_asked_about_all_rows(
    asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_CELLS", 10)
    step, found = prepared()
    asked.clear()
    assert same(found(table(1, 50)), step.transform(table(1, 50)))
    assert asked == [50, 50]


@pytest.mark.parametrize(
    "last", [LogisticRegression(), SVC(), LinearRegression()], ids=lambda last: type(last).__name__
)
def test_pipelines_answer_as_they_do_themselves(last: Any) -> None:
    rows, asked = table(0, 300), table(1, 300, unknown=True)
    labels = (rows["age"] > 40).to_numpy().astype(int)
    model = make_pipeline(prepared()[0], last).fit(rows, labels)
    opened = open_native(model, rows=rows)
    np.testing.assert_array_equal(opened.decide(asked), model.predict(asked))
    if opened.score is not None and opened.both is not None:
        ask = model.predict_proba if hasattr(model, "predict_proba") else model.decision_function
        scores = opened.score(asked)
        np.testing.assert_array_equal(scores[:, 1], ask(asked)[:, 1] if ask(asked).ndim == 2 else ask(asked))
        both = opened.both(asked)
        np.testing.assert_array_equal(both[0], model.predict(asked))
        np.testing.assert_array_equal(both[1], scores)


def test_answers_are_those_of_the_pipeline() -> None:
    rows = table(0, 300)
    model = make_pipeline(prepared()[0], LogisticRegression()).fit(rows, (rows["age"] > 40).astype(int))
    found = mlflow_cf.wrap(model, rows, target=1).explain(table(2, 40, unknown=True))
    for one in found:
        for answer in one.counterfactuals:
            assert model.predict(pd.DataFrame([answer.row])[rows.columns].astype(rows.dtypes))[0] == 1


def coded(rows: pd.DataFrame, known: FeatureSpace) -> CodedTable:
    """Return the rows that have codes, with the levels that the background lacks."""
    space, codes, misfits = known.encode_covered(rows)
    return CodedTable(space, np.delete(codes, list(misfits), axis=0))


@dear(6)
@given(
    encoder=encoders(),
    numbers=st.sampled_from(NUMERIC),
    tables=TABLES,
    background=st.sampled_from([8, 120]),
    data=st.data(),
)
def test_codes_become_the_same_table(
    encoder: Any, numbers: Any, tables: dict[str, Any], background: int, data: st.DataObject
) -> None:
    seed, levels = data.draw(st.integers(0, 100)), data.draw(st.sampled_from([LEVELS, LEVELS[:1]]))
    fitted_on = table(seed, 120, **tables)
    step = ColumnTransformer(
        [("numbers", numbers, NUMBERS[:1]), ("levels", encoder, levels), ("rest", "passthrough", NUMBERS[1:])],
        sparse_threshold=data.draw(st.sampled_from([0.0, 1.0])),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            step.fit(fitted_on, np.arange(120) % data.draw(st.integers(2, 3)))
        except ValueError:  # an imputer and an encoder do not take every mixture of columns
            reject()
    kinds = data.draw(st.sampled_from([{"post": {"kind": "category"}}, {}]))
    known = FeatureSpace.infer(fitted_on.head(background), kinds)
    known = known.with_model_levels({"town": ["Bern", "Graz", "Linz", "Ulm"]} if data.draw(st.booleans()) else {})
    prepared = Prepared(Named(tuple(fitted_on.columns)), (first_step(step, fitted_on), whole))
    found = of_codes(prepared, known, fitted_on.head(background))
    given_rows = table(seed + 1, data.draw(st.integers(1, 60)), unknown=data.draw(st.booleans()), **tables)
    rows = coded(given_rows, known)
    if found is not None and rows.of(known):
        with patch.object(module, "MANY", data.draw(many)):
            assert same(outcome_of(found, rows), outcome_of(step.transform, rows.table))


UNCHECKED = [
    StandardScaler(),
    StandardScaler(with_mean=False),
    StandardScaler(with_std=False),
    SimpleImputer(),
    SimpleImputer(strategy="most_frequent"),
    SimpleImputer(strategy="constant", fill_value=-1),
    SimpleImputer(missing_values=3),
    make_pipeline(SimpleImputer(strategy="median"), StandardScaler()),
]


@dear(3)
@given(
    step=st.sampled_from(UNCHECKED),
    dtypes=st.lists(st.sampled_from(["float64", "int64", "float32", "int8"]), min_size=2, max_size=5),
    seed=st.integers(0, 100),
    missing=st.booleans(),
    count=st.integers(1, 50),
)
def test_numbers_become_the_same_without_a_check(step: Any, dtypes: list[str], **drawn: Any) -> None:
    fitted_on, rows = two_tables(dtypes, **drawn)
    try:
        known, fitted_step = FeatureSpace.infer(fitted_on), clone(step).fit(fitted_on)
    except (ValueError, InputError):  # missing numbers that are no value to fill, or a column that does not vary
        reject()
    select = Named(tuple(fitted_on.columns))
    found = of_codes(Prepared(select, (first_step(fitted_step, fitted_on), whole)), known, fitted_on)
    assert found is not None
    some = coded(rows, known)
    assert some.plain
    one, other = outcome_of(found, some), outcome_of(fitted_step.transform, some.table)
    assert same(one, other if isinstance(other, type) else np.asarray(other, order="F" if one.flags.fnc else "C"))


@dear(6)
@given(
    estimator=st.sampled_from(ESTIMATORS),
    dtypes=DTYPES,
    seed=st.integers(0, 100),
    missing=st.booleans(),
    count=st.integers(1, 50),
    piped=st.booleans(),
)
def test_judges_say_the_same_of_codes(estimator: Any, dtypes: list[str], *, piped: bool, **drawn: Any) -> None:
    fitted_on, rows = two_tables(dtypes, **drawn)
    try:
        known = FeatureSpace.infer(fitted_on)
        model = clone(estimator)
        model = fitted(make_pipeline(StandardScaler(), model) if piped else model, fitted_on)
    except (ValueError, TypeError, InputError):  # as above
        reject()
    opened = open_sklearn(model, rows=fitted_on)
    judge, _ = Judge.learn(opened, coded(fitted_on, known))
    by_table = replace(judge, coded=None)
    for some in (coded(fitted_on, known), coded(rows, known)):
        one, other = judge.verdict(some), by_table.verdict(some)
        np.testing.assert_array_equal(one.codes, other.codes)
        np.testing.assert_array_equal(one.values, other.values)
        np.testing.assert_array_equal(one.scores, other.scores)
        np.testing.assert_array_equal(judge.outcome(some).codes, by_table.outcome(some).codes)
    plain = piped and set(dtypes) <= {"float64", "int64", "float32", "int8"}
    if plain or isinstance(opened.decide.select, Numbers):
        assert judge.coded is not None  # else this says nothing


@given(
    dtypes=st.lists(st.sampled_from(["float64", "int64", "float32", "int8", "bool", "str"]), min_size=1, max_size=5),
    seed=st.integers(0, 100),
    data=st.data(),
)
def test_codes_that_lose_nothing_are_known_before(dtypes: list[str], seed: int, data: st.DataObject) -> None:
    rng = np.random.default_rng(seed)
    columns = {f"x{at}": pd.Series(rng.integers(0, 9, 30)).astype(dtype) for at, dtype in enumerate(dtypes)}
    try:
        known = FeatureSpace.infer(pd.DataFrame(columns))
    except InputError:  # none varies
        reject()
    numbers = st.sampled_from([0.0, -0.0, 1.0, 0.5, 0.1, -3.0, 127.0, 128.0, 2.0**53, 1e200, np.nan])
    codes = np.array([[data.draw(_codes(feature, numbers)) for feature in known.features] for _ in range(3)])
    rows = CodedTable(known, codes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numbers that no whole number of the type can be
        assert rows.plain == bool(known.decode_exactly(codes)[1].all())


@given(tables=TABLES, unknown=st.booleans(), seed=st.integers(0, 100), dtypes=DTYPES, missing=st.booleans())
def test_codes_of_rows_lose_nothing(
    tables: dict[str, Any], seed: int, dtypes: list[str], *, unknown: bool, missing: bool
) -> None:
    pairs = [
        (table(seed, 60, **tables), table(seed + 1, 60, unknown=unknown, **tables)),
        two_tables(dtypes, seed=seed, missing=missing, count=60),
    ]
    for fitted_on, given_rows in pairs:
        try:
            known = FeatureSpace.infer(fitted_on)
        except InputError:  # a column that does not vary
            reject()
        rows = coded(given_rows.astype("float64") if fitted_on is pairs[1][0] and seed % 2 else given_rows, known)
        assert replace(rows, was_table=True).plain == rows.plain


def _codes(feature: Feature, numbers: st.SearchStrategy[float]) -> st.SearchStrategy[float]:
    """Return codes of a feature; numbers that it cannot be among them."""
    if feature.numeric:
        return numbers
    return st.sampled_from([*map(float, range(len(feature.code_of))), np.nan])


def test_encoders_are_not_asked_about_coded_rows(asked: list[int]) -> None:
    step, first = prepared()
    known = FeatureSpace.infer(table(0, 400))
    found = of_codes(Prepared(Named(tuple(table(0, 1).columns)), (first,)), known, table(0, 400))
    rows = coded(table(1, 5000, unknown=True), known)
    assert found is not None
    asked.clear()
    made = found(rows)
    assert asked == []
    assert same(made, step.transform(rows.table))


def test_warnings_about_unknown_levels_are_given_of_coded_rows() -> None:
    _, first = prepared(drop="first")
    known = FeatureSpace.infer(table(0, 400))
    found = of_codes(Prepared(Named(tuple(table(0, 1).columns)), (first,)), known, table(0, 400))
    assert found is not None
    with pytest.warns(UserWarning, match="unknown categories"):
        found(coded(table(1, 50, unknown=True), known))


def test_what_differs_from_the_model_is_not_asked() -> None:
    rows = numbers(0, 60, ["float64", "float64"], missing=False)
    model = LogisticRegression().fit(rows, rows["x0"] > 3)
    opened = open_sklearn(model, rows=rows)
    known = FeatureSpace.infer(rows)

    def turned(space: FeatureSpace, some: pd.DataFrame) -> CodedCalls:
        calls = opened.by_codes(space, some)
        return calls._replace(score=lambda asked: opened.score(asked.table)[:, ::-1])

    assert Judge.learn(opened, coded(rows, known))[0].coded is not None
    assert Judge.learn(replace(opened, by_codes=turned), coded(rows, known))[0].coded is None


@given(
    classes=st.lists(st.one_of(st.integers(-3, 3), st.just(2**40)), min_size=1, max_size=4, unique=True),
    told=st.lists(st.integers(-4, 4), max_size=6),
    dtype=st.sampled_from(["int8", "int64", "uint8", "float64", "bool"]),
)
def test_labels_have_the_position_of_their_class(classes: list[int], told: list[int], dtype: str) -> None:
    model = OpenModel("test", tuple(classes), lambda rows: rows)
    labels = np.array(told).astype(dtype)
    assert model.codes_of(labels).tolist() == [
        classes.index(each) if each in classes else -1 for each in labels.tolist()
    ]
    assert model.codes_of(labels.tolist()).tolist() == model.codes_of(labels).tolist()
