"""Tables prepared by value are those that a ColumnTransformer makes itself, to the last bit and stored alike."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from laws import dear
from scipy import sparse
from sklearn.compose import ColumnTransformer, make_column_selector, make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    StandardScaler,
    TargetEncoder,
)
from sklearn.svm import SVC

import mlflow_cf
from mlflow_cf.model.flavors import open_native
from mlflow_cf_flavors.sklearn import by_value as module
from mlflow_cf_flavors.sklearn.by_value import ByValue, by_value

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
    found = by_value(step, fitted_on)
    assert isinstance(found, ByValue)
    assert same(outcome_of(found, rows), outcome_of(step.transform, rows))


def prepared(**changes: Any) -> tuple[ColumnTransformer, Any]:
    chosen = make_column_selector(dtype_include=["str", "object"])
    step = make_column_transformer(
        (OneHotEncoder(**{"handle_unknown": "ignore", **changes}), chosen), (StandardScaler(), NUMBERS)
    )
    step.fit(table(0, 400))
    return step, by_value(step, table(0, 400))


def test_an_encoder_is_asked_about_rows_with_other_values_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    _, found = prepared()
    assert isinstance(found, ByValue)
    asked: list[int] = []
    transform = OneHotEncoder.transform

    def counted(self: OneHotEncoder, rows: Any) -> Any:
        asked.append(len(rows))
        return transform(self, rows)

    monkeypatch.setattr(OneHotEncoder, "transform", counted)
    found(table(1, 5000))
    assert asked == []
    rows = table(1, 5000, unknown=True)
    found(rows)
    assert asked == [int((rows["town"] == "elsewhere").sum())]


def test_warnings_about_unknown_levels_are_given_all_the_same() -> None:
    _, found = prepared(drop="first")
    assert isinstance(found, ByValue)
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
        pytest.param([("numbers", StandardScaler(), NUMBERS)], id="no encoder"),
        pytest.param([("levels", FunctionTransformer(lambda rows: rows == "Ulm"), ["town"])], id="a function"),
    ],
)
def test_other_transformers_are_asked_about_all_rows(parts: Any) -> None:
    rows = table(0, 50)
    step = ColumnTransformer(parts).fit(rows)
    assert by_value(step, rows) == step.transform


def test_tables_with_names_of_their_own_are_left_alone() -> None:
    rows = table(0, 50)
    one_hot = OneHotEncoder(sparse_output=False)
    step = ColumnTransformer([("levels", one_hot, ["town"])]).set_output(transform="pandas").fit(rows)
    assert by_value(step, rows) == step.transform


def test_an_encoder_of_very_many_categories_is_asked_about_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_CELLS", 10)
    step, found = prepared()
    assert found == step.transform


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
