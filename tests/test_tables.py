"""What users pass for a table and what they get back: arrays, one row, numbered columns, the rows' own index."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import joblib
import mlflow
import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMClassifier
from mlflow.models import ModelSignature, infer_signature
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from xgboost import XGBClassifier

import mlflow_cf
from mlflow_cf import Explanation, Explanations, InputError

RNG = np.random.default_rng(1)
INCOMES = RNG.integers(10, 60, 60).astype(float)
TYPED = pd.DataFrame(
    {
        "income": INCOMES.astype("float32"),
        "rooms": pd.array(RNG.integers(1, 5, 60), dtype="Int64"),
        "home": pd.Categorical(RNG.choice(["rent", "own"], 60), categories=["rent", "own", "none"]),
        "member": RNG.random(60) < 0.5,
        "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(RNG.integers(0, 900, 60), unit="D"),
    },
    index=pd.Index([f"loan {n}" for n in range(60)], name="loan"),
)
NUMBERS = pd.DataFrame({0: INCOMES, 1: RNG.integers(0, 9, 60).astype(float)})
LABELS = (INCOMES > 35).astype(int)
REFUSED = TYPED[INCOMES <= 35]


def typed_model() -> Any:
    columns = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["home"]), ("passthrough", ["income", "rooms", "member"])
    )
    return make_pipeline(columns, RandomForestClassifier(5, random_state=0)).fit(TYPED, LABELS)


@pytest.fixture(scope="module")
def model() -> Any:
    return typed_model()


@pytest.fixture(scope="module")
def explained(model: Any) -> mlflow_cf.ExplainedModel:
    return mlflow_cf.wrap(model, TYPED)


class TestIndex:
    def test_predictions_join_their_rows(self, explained: mlflow_cf.ExplainedModel) -> None:
        rows = TYPED.sample(frac=1, random_state=0).head(9)
        joined = rows.join(explained.predict(rows))
        assert joined["prediction"].tolist() == explained.model.decide(rows).tolist()

    def test_explanations_have_it_too(self, explained: mlflow_cf.ExplainedModel) -> None:
        answers = explained.explain(REFUSED.head(4))
        pd.testing.assert_index_equal(answers.index, REFUSED.index[:4])
        pd.testing.assert_index_equal(answers[1:3].index, REFUSED.index[1:3])

    def test_a_served_model_keeps_it_in_memory(self, tmp_path: Path) -> None:
        frame = TYPED.drop(columns=["since", "rooms"]).astype({"home": str, "income": float})
        columns = make_column_transformer((OneHotEncoder(), ["home"]), ("passthrough", ["income", "member"]))
        fitted = make_pipeline(columns, LogisticRegression()).fit(frame, LABELS)
        mlflow_cf.save_model(fitted, tmp_path / "m", frame)
        served = mlflow.pyfunc.load_model(str(tmp_path / "m"))
        pd.testing.assert_index_equal(served.predict(frame.tail(5)).index, frame.index[-5:])


class TestSequence:
    def test_is_a_sequence(self, explained: mlflow_cf.ExplainedModel) -> None:
        answers = explained.explain(REFUSED.head(5))
        assert isinstance(answers, Explanations)
        assert len(answers) == len(list(answers)) == 5
        assert isinstance(answers[-1], Explanation)
        assert answers[-1] is list(answers)[-1]
        assert answers[:2] == answers[0:2]
        assert answers[:2] != answers[1:3]
        assert [*answers[1:2], *answers[:1]] == [answers[1], answers[0]]

    def test_is_shown_in_a_few_lines(self, explained: mlflow_cf.ExplainedModel) -> None:
        answers = explained.explain(TYPED)
        shown = repr(answers)
        assert shown.startswith("Explanations of 60 rows: ")
        assert len(shown) < 500
        assert len(shown.splitlines()) == 5
        assert repr(answers[:0]) == "Explanations of no rows"
        assert repr(answers[:1]).startswith("Explanations of 1 row: ")
        assert len(answers._repr_html_()) < 3000

    def test_html_is_escaped(self) -> None:
        bad = Explanation("not_found", "<script>", 0, None)
        space = mlflow_cf.wrap(typed_model(), TYPED).space
        shown = Explanations((bad,), pd.Index(["<b>"]), space)._repr_html_()
        assert "<script>" not in shown
        assert "<b>" not in shown

    def test_as_a_reply(self, explained: mlflow_cf.ExplainedModel) -> None:
        rows = REFUSED.head(2)
        reply = explained.explain(rows).to_dict()
        assert reply == {"predictions": explained.predict(rows).to_dict("records")}
        json.dumps(reply, allow_nan=False)


class TestToFrame:
    def test_types_are_those_of_the_background(self, explained: mlflow_cf.ExplainedModel, model: Any) -> None:
        answers = explained.explain(REFUSED.head(6), count=2)
        frame = answers.to_frame()
        features = list(TYPED.columns)
        assert frame[features].dtypes.tolist() == TYPED.dtypes.tolist()
        assert model.predict(frame[features]).tolist() == frame["prediction"].tolist()
        assert frame.index.name == "loan"
        assert frame.index.tolist() == [loan for loan, a in zip(answers.index, answers, strict=True) for _ in
                                        a.counterfactuals]  # fmt: skip
        assert frame["counterfactual"].tolist() == [n for a in answers for n in range(1, len(a.counterfactuals) + 1)]
        one = answers[0].to_frame()
        assert one[features].dtypes.tolist() == TYPED.dtypes.tolist()
        pd.testing.assert_frame_equal(one.reset_index(drop=True), answers[:1].to_frame().reset_index(drop=True))

    def test_without_counterfactuals_it_has_the_same_columns(self, explained: mlflow_cf.ExplainedModel) -> None:
        none = explained.explain(TYPED[INCOMES > 50].head(2))
        assert {answer.status for answer in none} == {"already"}
        frame = none.to_frame()
        assert frame.empty
        assert frame[list(TYPED.columns)].dtypes.tolist() == TYPED.dtypes.tolist()
        assert frame.columns.tolist() == explained.explain(REFUSED.head(1)).to_frame().columns.tolist()

    def test_a_level_that_the_background_lacks_is_kept(self, explained: mlflow_cf.ExplainedModel) -> None:
        row = REFUSED.head(1).assign(home=pd.Categorical(["boat"]))
        frame = explained.explain(row).to_frame()
        assert frame["home"].tolist() == ["boat"]
        assert frame["home"].cat.categories.tolist() == ["rent", "own", "none", "boat"]

    def test_missing_values_come_back_as_they_were(self) -> None:
        frame = TYPED.assign(rooms=TYPED["rooms"].mask(np.arange(60) % 3 == 0))
        explained = mlflow_cf.wrap(lambda rows: (rows["income"] / 70).to_numpy(), frame, output="score")
        table = explained.explain(frame[INCOMES <= 35].head(6), constraints={"immutable": ["rooms"]}).to_frame()
        assert table["rooms"].dtype == "Int64"
        assert table["rooms"].isna().any()

    def test_names_of_features_stay_theirs(self) -> None:
        frame = pd.DataFrame({"distance": INCOMES, "prediction": INCOMES[::-1]})
        explained = mlflow_cf.wrap(LogisticRegression().fit(frame, LABELS), frame)
        table = explained.explain(frame[INCOMES < 30].head(1)).to_frame()
        assert table.columns.tolist() == [
            "distance", "prediction", "counterfactual", "prediction_", "probability", "distance_", "n_changed",
            "proof",
        ]  # fmt: skip
        assert table["distance"].iloc[0] >= 10
        assert table["distance_"].iloc[0] <= 1


class TestRows:
    def test_an_array_has_the_models_columns(self) -> None:
        frame = NUMBERS.rename(columns={0: "income", 1: "other"})
        explained = mlflow_cf.wrap(LogisticRegression().fit(frame, LABELS), frame)
        expected = explained.explain(frame.head(5)).to_dict()
        assert explained.explain(frame.head(5).to_numpy()).to_dict() == expected
        assert explained.predict(frame.to_numpy()).equals(explained.predict(frame))

    def test_one_row(self, explained: mlflow_cf.ExplainedModel) -> None:
        expected = explained.explain(REFUSED.head(1))
        assert explained.explain(REFUSED.iloc[0]).to_dict() == expected.to_dict()
        assert explained.explain(REFUSED.iloc[0].to_dict()).to_dict() == expected.to_dict()
        assert explained.predict(REFUSED.iloc[0]).index.tolist() == [REFUSED.index[0]]

    @pytest.mark.parametrize(
        ("rows", "message"),
        [
            (np.zeros((3, 2)), "rows: an array of shape (3, 2) does not have one column for each feature; pass one of"),
            (np.zeros(5), "rows: an array of shape (5,) does not"),
            ([1, 2], "rows: a list is not a table; pass a pandas DataFrame, an array"),
            ({"income": [1, 2]}, "rows.income: a list is no single value; a dict is one row"),
            ({"income": 1}, "rows.rooms: column is missing"),
            (pd.Series([1, 2]), "rows.income: column is missing"),
        ],
    )  # fmt: skip
    def test_others_are_refused(self, explained: mlflow_cf.ExplainedModel, rows: Any, message: str) -> None:
        with pytest.raises(InputError) as error:
            explained.explain(rows)
        assert message in str(error.value)


def fitted(kind: str, data: Any) -> Any:
    models = {
        "linear": LogisticRegression(),
        "forest": RandomForestClassifier(5, random_state=0),
        "xgboost": XGBClassifier(n_estimators=4),
        "lightgbm": LGBMClassifier(n_estimators=4, verbose=-1, min_child_samples=2),
    }
    return models[kind].fit(data, LABELS)


KINDS = ("linear", "forest", "xgboost", "lightgbm")


class TestNumberedColumns:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("train", ["array", "table"])
    def test_models_fitted_on_them(self, kind: str, train: str, tmp_path: Path) -> None:
        model = fitted(kind, NUMBERS.to_numpy() if train == "array" else NUMBERS)
        answers = {}
        for data in (NUMBERS, NUMBERS.to_numpy()):
            explained = mlflow_cf.wrap(model, data)
            found = explained.explain(data[INCOMES < 30][:3])
            assert {answer.status for answer in found} == {"found"}
            assert explained.describe()["opened"]
            table = found.to_frame()
            assert table["prediction"].tolist() == [1, 1, 1]
            assert table.columns[:2].tolist() == list(explained.model.columns or [0, 1])
            answers[type(data)] = [list(answer.counterfactuals[0].row.values()) for answer in found]
        assert len(set(map(str, answers.values()))) == 1
        mlflow_cf.save_model(model, tmp_path / "m", NUMBERS)
        again = mlflow_cf.load_model(tmp_path / "m").explain(NUMBERS[INCOMES < 30][:3])
        assert [list(answer.counterfactuals[0].row.values()) for answer in again] == answers[pd.DataFrame]

    @pytest.mark.parametrize("kind", KINDS)
    def test_an_array_for_a_model_that_has_names(self, kind: str) -> None:
        named = NUMBERS.rename(columns={0: "income", 1: "other"})
        explained = mlflow_cf.wrap(fitted(kind, named), named.to_numpy())
        assert explained.space.names == ("income", "other")
        assert explained.explain(named[INCOMES < 30].head(1))[0].status == "found"

    def test_a_function_gets_them_as_they_were_given(self, tmp_path: Path) -> None:
        def score(rows: pd.DataFrame) -> Any:
            return (rows[0] / 70).to_numpy()

        explained = mlflow_cf.wrap(score, NUMBERS, output="score", constraints={"immutable": ["1"]})
        (found,) = explained.explain(NUMBERS[INCOMES < 30].head(1))
        assert set(found.counterfactuals[0].row) == {"0", "1"}
        assert found.to_frame().columns.tolist()[:2] == [0, 1]
        mlflow_cf.save_model(score, tmp_path / "m", NUMBERS, output="score", allow_functions=True, validate="here")
        served = mlflow.pyfunc.load_model(str(tmp_path / "m"))
        reply = served.predict(NUMBERS[INCOMES < 30].head(1).rename(columns=str))
        assert reply["status"].tolist() == ["found"]

    def test_a_pyfunc_with_a_signature_of_numbers(self, tmp_path: Path) -> None:
        class Labels(mlflow.pyfunc.PythonModel):
            def predict(self, context: Any, model_input: pd.DataFrame, params: Any = None) -> Any:
                del context, params
                return (model_input[0] > 35).astype(int).to_numpy()

        signature = ModelSignature(inputs=infer_signature(NUMBERS).inputs)
        path = str(tmp_path / "pyfunc")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # MLflow's, about types and examples
            mlflow.pyfunc.save_model(path, python_model=Labels(), signature=signature, pip_requirements=[])
        (found,) = mlflow_cf.wrap(path, NUMBERS).explain(NUMBERS[INCOMES < 30].head(1))
        assert found.status == "found"

    def test_names_that_are_the_same_inside_are_refused(self) -> None:
        frame = NUMBERS.assign(**{"0": 1.0})
        with pytest.raises(InputError, match=r"data.0: two columns have this name; rename one of them"):
            mlflow_cf.wrap(fitted("linear", NUMBERS), frame)
        explained = mlflow_cf.wrap(fitted("linear", NUMBERS), NUMBERS)
        with pytest.raises(InputError, match=r"rows.0: two columns have this name; send one of them"):
            explained.explain(frame)

    def test_other_names_are_refused(self) -> None:
        with pytest.raises(InputError, match="column names must be strings or integers"):
            mlflow_cf.wrap(fitted("linear", NUMBERS), NUMBERS.rename(columns={0: 0.5}))

    @pytest.mark.parametrize("data", [np.zeros((4, 3)), np.zeros(4)])
    def test_an_array_of_another_width_is_refused(self, data: Any) -> None:
        named = NUMBERS.rename(columns={0: "income", 1: "other"})
        with pytest.raises(InputError, match=r"data: an array of shape .* does not have one column for each feature"):
            mlflow_cf.wrap(fitted("linear", named), data)


class TestHalfSurrogates:
    HALF = "\ud83d"

    def rows(self) -> pd.DataFrame:
        frame = pd.DataFrame({"income": INCOMES, "home": pd.Series(["rent", "own"] * 30, dtype=object)})
        frame.loc[0, "home"] = self.HALF
        return frame

    @pytest.mark.parametrize("dtype", ["object", "str", "category"])
    def test_a_row_with_one_is_invalid_and_the_others_are_answered(self, dtype: str) -> None:
        rows = self.rows()
        background = rows[1:].astype({"home": dtype})
        model = make_pipeline(
            make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["home"]), remainder="passthrough"),
            LogisticRegression(max_iter=1000),
        ).fit(background, LABELS[1:])
        reply = mlflow_cf.wrap(model, background).predict(rows.head(3))
        assert reply["status"].iloc[0] == "invalid"
        assert reply["reason"].iloc[0].startswith(r"home: '\ud83d' is no category")
        assert "invalid" not in reply["status"].tolist()[1:]
        json.dumps(reply.to_dict("records"), allow_nan=False).encode()

    def test_a_background_with_one_is_refused(self) -> None:
        with pytest.raises(InputError, match=r"data.home: level .* half of a surrogate pair"):
            mlflow_cf.wrap(lambda rows: rows["income"] / 70, self.rows(), output="score")
        named = NUMBERS.set_axis(pd.Index(["income", self.HALF], dtype=object), axis=1)
        with pytest.raises(InputError, match="half of a surrogate pair is no text"):
            mlflow_cf.wrap(lambda rows: rows["income"] / 70, named, output="score")

    def test_an_error_can_be_sent(self, explained: mlflow_cf.ExplainedModel) -> None:
        with pytest.raises(InputError) as error:
            explained.predict(REFUSED.head(1), {"counterfactual": {"constraints": {"immutable": [self.HALF]}}})
        error.value.message.encode()
        str(error.value).encode()


def test_an_explained_model_of_arrays_can_be_dumped(tmp_path: Path) -> None:
    explained = mlflow_cf.wrap(fitted("linear", NUMBERS), NUMBERS)
    again = joblib.load(joblib.dump(explained, tmp_path / "m")[0])
    assert again.explain(NUMBERS.head(3)).to_dict() == explained.explain(NUMBERS.head(3)).to_dict()
