"""Explained models from outside: what is refused when wrapping and asking, which rows are answered and how."""

import json
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

import mlflow_cf
from mlflow_cf.errors import InputError, InputErrors
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.explainers import GeCo, NearestRow
from mlflow_cf.model.judge import OpenModel
from mlflow_cf.options import WrapOptions
from mlflow_cf.testing.watched import Clock
from mlflow_cf.wrapping import assemble

FRAME = pd.DataFrame(
    {
        "income": [10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0],
        "age": [20, 30, 40, 50, 25, 35, 45, 55],
        "home": ["rent", "own", "rent", "free", "own", "rent", "own", "free"],
        "member": [True, False, True, False, True, False, True, False],
    }
)
POOR = FRAME.iloc[[0, 1, 2]]


def good(rows: pd.DataFrame) -> np.ndarray:
    return np.asarray(rows["income"].to_numpy(dtype=float) / 100 + rows["member"].to_numpy() * 0.05)


def decide(rows: pd.DataFrame) -> np.ndarray:
    return (good(rows) > 0.5).astype(int)


def score(rows: pd.DataFrame) -> np.ndarray:
    return np.column_stack([1 - good(rows), good(rows)]).astype(np.float64)


MODEL = OpenModel("test", (0, 1), decide, score, score_kind="probability")


def wrapped(model: OpenModel = MODEL, **options: Any) -> ExplainedModel:
    return assemble(model, FRAME, None, WrapOptions(**options))


@pytest.fixture(scope="module")
def loan() -> ExplainedModel:
    return wrapped()


def pipeline() -> Any:
    encode = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["home"]), remainder=StandardScaler(), verbose_feature_names_out=False
    )
    return make_pipeline(encode, LogisticRegression()).fit(FRAME, decide(FRAME))


class TestWrapping:
    def test_native_model(self) -> None:
        model = pipeline()
        loan = mlflow_cf.wrap(model, FRAME)
        reply = loan.predict(FRAME)
        assert reply["prediction"].tolist() == model.predict(FRAME).tolist()
        assert reply["probability"].tolist() == pytest.approx(model.predict_proba(FRAME)[:, 1].tolist())
        for record in reply["counterfactuals"]:
            for found in record:
                assert model.predict(pd.DataFrame([found["row"]])) == [1]

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            (FRAME.iloc[:0], "data: 0 rows and 4 columns; give at least two rows"),
            (pd.concat([FRAME, FRAME[["age"]]], axis=1), "data.age: two columns have this name; rename one of them"),
            (FRAME.drop(columns="home"), "home"),
            (FRAME.assign(income=[np.inf, *FRAME["income"][1:]]), "data.income: row 0 is infinite"),
            (FRAME.to_numpy()[:, :3], "data: an array of shape (8, 3) does not have one column for each feature"),
            (FRAME.to_dict(), "data: a dict is not a table"),
        ],
        ids=["no rows", "twice", "no home", "inf", "array", "dict"],
    )
    def test_bad_backgrounds(self, data: Any, message: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what scikit-learn has to say about it
            with pytest.raises(InputError) as error:
                mlflow_cf.wrap(pipeline(), data)
        assert message in str(error.value)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"target": "good"}, "target.label: the model does not know 'good'; labels: 0, 1"),
            ({"target": {"label": 1, "min_probability": 2}}, "target.min_probability: "),
            (
                {"constraints": {"ranges": {"agee": [1, 2]}}},
                "constraints.ranges.agee: not a feature; did you mean 'age'?",
            ),
            ({"constraints": "nowhere.yaml"}, "constraints: no file at 'nowhere.yaml'"),
            ({"explainer": "gecko"}, "explainer: no explainer is called 'gecko'; did you mean 'geco'?"),
            ({"explainer": GeCo}, "explainer: <class"),
            ({"explainer": 3}, "explainer: 3 is not an explainer; pass a name, or an object such as GeCo()"),
            ({"distance": (1, 1, 1)}, "distance: "),
            ({"distance": {"weights": {"agee": 2}}}, "distance.weights.agee: not a feature"),
            ({"features": {"agee": {}}}, "features.agee: not a column of data; did you mean 'age'?"),
            ({"values": "all"}, "values: input should be 'observed', 'grid' or 'continuous'"),
            ({"values": "grid", "features": {"income": {"kind": "real"}}}, "features.income.step: values='grid' needs"),
            ({"seed": -1}, "seed: input should be greater than or equal to 0"),
            ({"seed": 1.5}, "seed: input should be a valid integer"),
            ({"limits": {"count": 0}}, "limits.count: input should be greater than or equal to 1"),
            ({"limits": {"counts": 5}}, "limits.counts: not a known key; did you mean 'count'?"),
            ({"limits": {"time_limit_s": 0}}, "limits.time_limit_s: "),
            ({"limits": 5}, "limits: 5 is neither a dict nor an object of Limits; write {'count': ...}"),
            (
                {"privacy": "summary"},
                "privacy: 'summary' is neither a dict nor an object of Privacy; write {'sample': ",
            ),
            ({"plausible": True}, "plausible: True is no plausibility; write 'isolation_forest' or 'lof'"),
            ({"seal": None}, "seal: must be a list, got None"),
            ({"seal": True}, "seal: must be a list, got True"),
            ({"protected": None}, "protected: must be a list, got None"),
            ({"features": 5}, "features: 5 does not name columns; write {'income': {'low': 0}}"),
            ({"features": {"age": None}}, "features.age: None is no dict of facts; write {'low': 0}, for example"),
            ({"constraints": ["age"]}, "constraints: ['age'] names no constraints; pass a dict, the path"),
            ({"constraints": 5}, "constraints: 5 names no constraints; pass a dict, the path"),
        ],
        ids=str,
    )
    def test_bad_options(self, options: dict[str, Any], message: str) -> None:
        with pytest.raises(InputError) as error:
            wrapped(**options)
        assert message in str(error.value)

    @pytest.mark.parametrize("size", [7, 9])
    def test_labels_must_fit(self, size: int) -> None:
        with pytest.raises(InputError, match=rf"labels: \({size},\) labels for 8 rows; pass one label per row"):
            assemble(MODEL, FRAME, np.zeros(size), WrapOptions())

    @pytest.mark.parametrize(
        ("options", "path"),
        [
            ({"q": 5}, "explainer.q"),
            ({"m_init": 0}, "explainer.m_init"),
            ({"m_mut": 2.5}, "explainer.m_mut"),
            ({"q": "100"}, "explainer.q"),
            ({"max_generations": 0}, "explainer.max_generations"),
        ],
        ids=str,
    )
    def test_bad_explainer_options(self, options: dict[str, Any], path: str) -> None:
        with pytest.raises(InputError) as error:
            GeCo(**options)
        assert error.value.path == path

    def test_what_is_wrapped_is_copied(self) -> None:
        data = FRAME.copy()
        loan = assemble(MODEL, data, None, WrapOptions())
        before = loan.predict(POOR)
        data["income"] = 0.0
        pd.testing.assert_frame_equal(loan.predict(POOR), before)
        pd.testing.assert_frame_equal(loan.background, FRAME)

    def test_describe_is_plain(self, loan: ExplainedModel) -> None:
        facts = json.loads(json.dumps(loan.describe()))
        assert facts["background_rows"] == 8
        assert facts["classes"] == [0, 1]
        assert facts["features"]["income"]["kind"] == "integer"
        assert facts["explainer"]["name"] == "geco"


class TestOptionsOfARequest:
    @pytest.mark.parametrize(
        ("asked", "message"),
        [
            ({"count": 0}, "count: input should be greater than or equal to 1, got 0"),
            ({"count": -3}, "count: input should be greater than or equal to 1, got -3"),
            ({"count": 1000}, "count: 1000 is more than the policy's 10; ask for less"),
            ({"count": 2.5}, "count: "),
            ({"count": "3"}, "count: input should be a valid integer, got '3'"),
            ({"count": True}, "count: input should be a valid integer, got True"),
            ({"cuont": 3}, "cuont: not a known key; did you mean 'count'?"),
            ({"explain": "sometimes"}, "explain: input should be 'unfavourable', 'all' or 'none', got 'sometimes'"),
            ({"target": "good"}, "target.label: the model does not know 'good'"),
            ({"target": 7}, "target.label: the model does not know 7"),
            ({"target": [1]}, "target"),
            ({"target": {"label": 1, "probability": 0.7}}, "target.probability: not a known key; did you mean"),
            (
                {"explainer": "gecko"},
                "explainer: 'gecko' does not answer requests to this model; ask for 'geco' or 'exact'",
            ),
            ({"explainer": 5}, "explainer: input should be a valid string"),
            ({"seed": -1}, "seed: input should be greater than or equal to 0"),
            ({"seed": 2**63}, "seed: input should be less than"),
            ({"seed": 0.5}, "seed: input should be a valid integer"),
            ({"time_limit_s": 0}, "time_limit_s: input should be greater than 0"),
            ({"time_limit_s": float("inf")}, "time_limit_s: "),
            ({"time_limit_s": 10**400}, "time_limit_s: "),
            ({"time_limit_s": float("nan")}, "time_limit_s: "),
            ({"time_limit_s": "1"}, "time_limit_s: "),
            ({"max_evaluations": 0}, "max_evaluations: input should be greater than or equal to 1"),
            ({"max_evaluations": 10**9}, "max_evaluations: 1000000000 is more than the policy's 1000000"),
            ({"constraints": []}, "constraints: "),
            (
                {"constraints": {"immutabel": ["age"]}},
                "constraints.immutabel: not a known key; did you mean 'immutable'?",
            ),
            (
                {"constraints": {"ranges": {"agee": [0, 9]}}},
                "constraints.ranges.agee: not a feature; did you mean 'age'?",
            ),
            ({"constraints": {"ranges": {"age": [0, "9"]}}}, "constraints.ranges.age: '9' is not a number"),
            ({"constraints": {"ranges": {"age": {"low": 0}}}}, "constraints.ranges.age: "),
            (
                {"constraints": {"max_changes": 0}},
                "constraints.max_changes: input should be greater than or equal to 1",
            ),
        ],
        ids=str,
    )
    def test_errors_name_path_and_fix(self, loan: ExplainedModel, asked: dict[str, Any], message: str) -> None:
        with pytest.raises(InputError) as error:
            loan.predict(POOR, {"counterfactual": asked})
        assert str(error.value).startswith(message)
        assert error.value.error_code == "INVALID_PARAMETER_VALUE"
        assert error.value.get_http_status_code() == 400

    @pytest.mark.parametrize("asked", ["all", 3, [1]])
    def test_not_an_object(self, loan: ExplainedModel, asked: Any) -> None:
        with pytest.raises(InputError, match=r"counterfactual: a .* is not an object"):
            loan.predict(POOR, {"counterfactual": asked})

    @pytest.mark.parametrize(
        ("params", "message"),
        [
            ([1], r"params: a list is not an object; pass \{"),
            ({"counterfactuals": {}}, r"params.counterfactuals: not a known key; did you mean 'counterfactual'\?"),
            ({"count": 2}, r'params.count: not a known key; write it inside: \{"counterfactual": \{...\}\}'),
            ({"counterfactual": {}, "x": 1}, "params.x: not a known key; keys: 'counterfactual'"),
        ],
    )
    def test_params_of_other_names_are_refused(self, loan: ExplainedModel, params: Any, message: str) -> None:
        with pytest.raises(InputError, match=message):
            loan.predict(POOR, params)

    def test_several_errors_at_once(self, loan: ExplainedModel) -> None:
        asked = {"count": 0, "seed": "x", "constraints": {"max_changes": -1, "immutabel": []}}
        with pytest.raises(InputErrors) as error:
            loan.predict(POOR, {"counterfactual": asked})
        assert sorted(found.path for found in error.value.errors) == [
            "constraints.immutabel",
            "constraints.max_changes",
            "count",
            "seed",
        ]

    @pytest.mark.parametrize("params", [None, {}, {"counterfactual": None}, {"counterfactual": {}}], ids=str)
    def test_nothing_asked_is_the_policys_default(self, loan: ExplainedModel, params: Any) -> None:
        reply = loan.predict(FRAME, params)
        assert reply["status"].tolist() == ["found"] * 4 + ["already"] * 4
        assert all(len(found) <= 1 for found in reply["counterfactuals"])

    def test_null_options_count_as_left_out(self, loan: ExplainedModel) -> None:
        keys = ("explain", "count", "constraints", "target", "explainer", "seed", "time_limit_s", "max_evaluations")
        reply = loan.predict(POOR, {"counterfactual": dict.fromkeys(keys)})
        pd.testing.assert_frame_equal(reply, loan.predict(POOR))
        inside = {
            "immutable": None,
            "ranges": {"age": [None, None]},
            "relative": {"age": {"up": None}},
            "max_changes": None,
        }
        reply = loan.predict(POOR, {"counterfactual": {"constraints": inside}})
        pd.testing.assert_frame_equal(reply, loan.predict(POOR))

    @pytest.mark.parametrize("rows", [FRAME.iloc[:0], FRAME.to_dict("list"), None], ids=["empty", "dict", "none"])
    def test_no_rows(self, loan: ExplainedModel, rows: Any) -> None:
        with pytest.raises(InputError, match="rows"):
            loan.predict(rows)

    def test_missing_column(self, loan: ExplainedModel) -> None:
        with pytest.raises(InputError, match=r"rows\.home: column is missing; did you mean 'hme'\?"):
            loan.predict(POOR.rename(columns={"home": "hme"}))

    def test_more_columns_and_another_order(self, loan: ExplainedModel) -> None:
        shuffled = POOR[["member", "home", "age", "income"]].assign(name="x")
        pd.testing.assert_frame_equal(loan.predict(shuffled), loan.predict(POOR))

    def test_options_reach_the_search(self) -> None:
        loan = wrapped(privacy={"explainers": ["nearest_row"]})
        asked = {"count": 3, "explainer": "nearest_row", "seed": 5, "constraints": {"immutable": ["home"]}}
        reply = loan.predict(POOR, {"counterfactual": asked})
        assert set(reply["explainer"]) == {"nearest_row"}
        assert set(reply["seed"]) == {5}
        for record, home in zip(reply["counterfactuals"], POOR["home"], strict=True):
            assert record
            assert {found["row"]["home"] for found in record} == {home}

    def test_another_target(self) -> None:
        reply = wrapped(seal=()).predict(FRAME, {"counterfactual": {"target": 0}})
        assert reply["status"].tolist() == ["already"] * 4 + ["found"] * 4
        assert {found["prediction"] for record in reply["counterfactuals"] for found in record} == {0}

    def test_explain_none(self, loan: ExplainedModel) -> None:
        reply = loan.predict(FRAME, {"counterfactual": {"explain": "none"}})
        assert set(reply["status"]) == {"skipped"}
        assert reply["prediction"].tolist() == decide(FRAME).tolist()
        assert not any(reply["counterfactuals"])

    @pytest.mark.parametrize("source", [NearestRow(), "nearest_row"])
    def test_explainer_as_object_or_name(self, loan: ExplainedModel, source: Any) -> None:
        assert loan.explain(POOR, explainer=source)[0].explainer == "nearest_row"


class TestBadRows:
    """One bad row is `invalid`; the others are answered, and a prediction is never lost."""

    def test_values_without_a_code(self, loan: ExplainedModel) -> None:
        rows = FRAME.astype(object).iloc[:6].copy()
        rows.loc[1, "age"] = 30.5
        rows.loc[2, "age"] = "old"
        rows.loc[3, "income"] = np.inf
        rows.loc[4, "age"] = None
        reply = loan.predict(rows)
        assert reply["status"].tolist() == ["found", "invalid", "invalid", "invalid", "invalid", "already"]
        assert reply["reason"][1] == "age: 30.5 is no finite whole number of type int64"
        assert reply["reason"].map(bool).tolist() == [False, True, True, True, True, False]
        good_rows = loan.predict(FRAME.iloc[[0, 5]])
        pd.testing.assert_frame_equal(reply.iloc[[0, 5]], good_rows)

    def test_a_model_that_raises_on_one_row(self) -> None:
        def fussy(rows: pd.DataFrame) -> np.ndarray:
            if (rows["income"] == 30).any():
                raise ZeroDivisionError("private details of a row")
            return decide(rows)

        background = FRAME[FRAME["income"] != 30]
        loan = assemble(OpenModel("test", (0, 1), fussy), background, None, WrapOptions())
        reply = loan.predict(FRAME)
        assert reply["status"].tolist() == ["found", "found", "invalid", "found", *["already"] * 4]
        assert reply["reason"][2] == "the model cannot predict this row (ZeroDivisionError)"
        assert reply["prediction"].tolist() == [0, 0, None, 0, 1, 1, 1, 1]
        json.dumps(reply.to_dict("records"), allow_nan=False)

    def test_a_model_that_raises_while_searching(self, caplog: pytest.LogCaptureFixture) -> None:
        healthy = threading.Event()

        def moody(rows: pd.DataFrame) -> np.ndarray:
            if not healthy.is_set() and not rows["income"].isin([10, 20, 30]).all():
                raise MemoryError("private details")
            return decide(rows)

        healthy.set()
        loan = assemble(OpenModel("test", (0, 1), moody), FRAME, None, WrapOptions())
        healthy.clear()
        reply = loan.predict(POOR)
        assert reply["prediction"].tolist() == [0, 0, 0]
        assert reply["status"].tolist() == ["invalid"] * 3
        assert set(reply["reason"]) == {"the explanation failed (MemoryError)"}
        assert "private details" not in caplog.text

    def test_a_model_that_can_predict_none_of_them(self) -> None:
        broken = threading.Event()

        def model(rows: pd.DataFrame) -> np.ndarray:
            if broken.is_set():
                raise RuntimeError("private details")
            return decide(rows)

        loan = assemble(OpenModel("test", (0, 1), model), FRAME, None, WrapOptions())
        broken.set()
        with pytest.raises(InputError, match="rows: the model can predict none of them") as error:
            loan.predict(POOR)
        assert "private details" not in str(error.value)

    def test_unseen_levels_and_numbers_beyond_the_background(self, loan: ExplainedModel) -> None:
        rows = POOR.assign(home=["castle", "boat", "own"], age=[200, -5, 40])
        found = loan.explain(rows)
        assert [f.status for f in found] == ["found"] * 3
        assert [f.counterfactuals[0].row["home"] for f in found] == ["castle", "boat", "own"]
        assert [f.counterfactuals[0].row["age"] for f in found] == [200, -5, 40]

    def test_missing_values_the_model_takes(self) -> None:
        data = FRAME.assign(age=FRAME["age"].astype("float64").mask(FRAME["age"] > 50))
        loan = assemble(MODEL, data, None, WrapOptions())
        rows = data.iloc[[0, 1]].assign(age=np.nan, home=None)
        for found in loan.explain(rows, constraints={"immutable": ["age", "home"]}):
            assert found.status == "found"
            assert found.counterfactuals[0].row["age"] is None
            assert found.counterfactuals[0].row["home"] is None

    def test_a_model_that_answers_not_a_number(self) -> None:
        def odd(rows: pd.DataFrame) -> np.ndarray:
            return np.where(rows[["income"]] == 20, np.nan, score(rows))

        loan = assemble(OpenModel("test", (0, 1), decide, odd, score_kind="probability"), FRAME, None, WrapOptions())
        reply = loan.predict(FRAME)
        assert reply["probability"][1] is None
        assert reply["status"].tolist() == ["found"] * 4 + ["already"] * 4
        json.dumps(reply.to_dict("records"), allow_nan=False)
        values = OpenModel("test", (), lambda rows: np.where(rows["income"] == 20, np.nan, rows["income"]))
        reply = assemble(values, FRAME, None, WrapOptions(target={"low": 55})).predict(FRAME)
        assert reply["prediction"][1] is None
        assert reply["status"].tolist() == ["found"] * 5 + ["already"] * 3
        json.dumps(reply.to_dict("records"), allow_nan=False)

    def test_missing_values_the_model_does_not_take(self) -> None:
        loan = mlflow_cf.wrap(pipeline(), FRAME)
        reply = loan.predict(POOR.assign(income=[10.0, np.nan, 30.0]))
        assert reply["status"].tolist() == ["found", "invalid", "found"]
        assert reply["prediction"][1] is None


class TestSameAnswer:
    def test_same_seed(self, loan: ExplainedModel) -> None:
        for seed in (0, 3):
            first, second = (loan.explain(FRAME, count=3, seed=seed) for _ in range(2))
            assert [f.to_dict() for f in first] == [f.to_dict() for f in second]

    def test_position_and_neighbours_do_not_matter(self, loan: ExplainedModel) -> None:
        odd = POOR.assign(home=["castle", "own", "boat"])
        together = [found.to_dict() for found in loan.explain(pd.concat([odd, FRAME, odd.iloc[::-1]]), count=2)]
        alone = [loan.explain(odd.iloc[[row]], count=2)[0].to_dict() for row in range(3)]
        assert together[:3] == alone
        assert together[-3:] == alone[::-1]

    def test_index_of_the_table_does_not_matter(self, loan: ExplainedModel) -> None:
        renamed = POOR.set_index(pd.Index(["x", "x", "y"]))
        pd.testing.assert_frame_equal(loan.predict(renamed).reset_index(drop=True), loan.predict(POOR))

    def test_prediction_of_each_row_is_its_own(self, loan: ExplainedModel) -> None:
        mixed = FRAME.iloc[[7, 0, 6, 1]]
        assert loan.predict(mixed)["prediction"].tolist() == [1, 0, 1, 0]

    def test_threads(self) -> None:
        loan = mlflow_cf.wrap(pipeline(), FRAME, constraints={"increasing": ["age"]})
        expected = loan.predict(FRAME).to_dict("records")
        fresh = mlflow_cf.wrap(pipeline(), FRAME, constraints={"increasing": ["age"]})  # nothing cached yet
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: [found.to_dict() for found in fresh.explain(FRAME)], range(16)))
        assert all(answer == expected for answer in answers)

    def test_nothing_passed_in_is_changed(self, loan: ExplainedModel) -> None:
        rows = pd.concat([POOR, POOR.assign(home="castle")]).set_index(pd.Index([5, 5, 1, 0, 2, 9]))
        asked = {"count": 2, "constraints": {"ranges": {"age": [0, 90]}, "immutable": ["home"]}, "target": {"label": 1}}
        params = {"counterfactual": asked}
        rows_before, params_before = rows.copy(deep=True), json.dumps(params)
        background_before = loan.background.copy(deep=True)
        loan.predict(rows, params)
        pd.testing.assert_frame_equal(rows, rows_before)
        pd.testing.assert_frame_equal(loan.background, background_before)
        assert json.dumps(params) == params_before

    def test_global_randomness_is_left_alone(self, loan: ExplainedModel) -> None:
        np.random.seed(7)  # noqa: NPY002  the point is the global state
        before = np.random.get_state()[1].tolist()  # noqa: NPY002
        loan.explain(POOR)
        assert np.random.get_state()[1].tolist() == before  # noqa: NPY002

    def test_policy_seed(self) -> None:
        assert wrapped(seed=7).explain(POOR)[0].seed == 7
        assert wrapped(seed=7).explain(POOR, seed=8)[0].seed == 8


class Counting:
    """A labels-only model that counts the rows it is shown; each takes `row_s` of the clock."""

    def __init__(self, clock: Clock | None = None, row_s: float = 0.0) -> None:
        self.rows, self.clock, self.row_s = 0, clock or Clock(), row_s
        self.began = 0.0  # the last call

    def __call__(self, rows: pd.DataFrame) -> np.ndarray:
        self.rows += len(rows)
        self.began = self.clock.now
        self.clock.now += self.row_s * len(rows)
        return decide(rows)


class TestBudget:
    @pytest.mark.parametrize("most", [1, 2, 5, 20, 100, 1000])
    @pytest.mark.parametrize("explainer", ["geco", "nearest_row"])
    def test_evaluations_are_the_rows_the_model_saw(self, most: int, explainer: str) -> None:
        count = Counting()
        loan = assemble(OpenModel("test", (0, 1), count), FRAME, None, WrapOptions())
        count.rows = 0
        found = loan.explain(POOR.iloc[[0]], max_evaluations=most, explainer=explainer)[0]
        assert found.evaluations == count.rows - 1  # its own prediction is not part of the search
        assert found.evaluations <= most

    def test_scores_and_decisions_are_one_evaluation(self) -> None:
        count = Counting()

        def scores(rows: pd.DataFrame) -> np.ndarray:
            count(rows)
            return score(rows)

        loan = assemble(OpenModel("test", (0, 1), decide, scores, score_kind="probability"), FRAME, None, WrapOptions())
        count.rows = 0
        found = loan.explain(POOR.iloc[[0]])[0]
        assert found.evaluations == count.rows - 1

    def test_cut_by_evaluations(self) -> None:
        never = OpenModel("test", (0, 1), lambda rows: np.zeros(len(rows), dtype=int))
        loan = assemble(never, FRAME, None, WrapOptions())
        found = loan.explain(POOR.iloc[[0]], max_evaluations=5)[0]
        assert found.status == "budget"
        assert found.reason == "stopped by the evaluation limit after 4 evaluations"  # one is kept for a proof

    def test_enough_evaluations_and_nothing_there(self) -> None:
        never = OpenModel("test", (0, 1), lambda rows: np.zeros(len(rows), dtype=int))
        found = assemble(never, FRAME, None, WrapOptions()).explain(POOR.iloc[[0]])[0]
        assert found.status == "not_found"
        assert found.reason.startswith("no counterfactual among ")

    def test_what_a_cut_search_found_is_still_proved_and_minimal(self) -> None:
        loan = wrapped(explainer=GeCo(m_init=3))
        for most in range(40, 200, 8):  # smaller budgets leave no room for a proof of minimality
            for found in loan.explain(POOR, max_evaluations=most, count=2):
                for cf in found.counterfactuals:
                    assert cf.prediction == 1
                    for change in cf.changes:
                        back = pd.DataFrame([{**cf.row, change.feature: change.old}])
                        assert cf.n_changed == 1 or decide(back)[0] == 0

    def test_time_limit(self, clock: Clock) -> None:
        slow = Counting(clock, row_s=0.0002)
        loan = assemble(OpenModel("test", (0, 1), slow), FRAME, None, WrapOptions(explainer=GeCo(min_generations=100)))
        started = clock.now
        found = loan.explain(POOR, time_limit_s=0.3, max_evaluations=10**6)
        assert slow.began < started + 0.3
        assert [f.prediction for f in found] == [0, 0, 0]
        assert {f.status for f in found} <= {"found", "budget"}

    def test_a_slow_model_is_not_handed_a_whole_generation(self, clock: Clock) -> None:
        rng = np.random.default_rng(0)
        wide = pd.DataFrame(rng.integers(0, 100, size=(200, 12)), columns=list("abcdefghijkl"))
        count = Counting(clock, row_s=0.001)

        def never(rows: pd.DataFrame) -> np.ndarray:
            count(rows.assign(income=0.0, member=False))
            return np.zeros(len(rows), dtype=int)

        loan = assemble(OpenModel("test", (0, 1), never), wide, None, WrapOptions())
        started = clock.now
        found = loan.explain(wide.iloc[[0]], time_limit_s=0.5)[0]
        assert clock.now < started + 0.6
        assert found.status == "budget"
        assert found.reason.startswith("stopped by the time limit after ")

    def test_a_clock_that_has_run_out_leaves_predictions(self, clock: Clock) -> None:
        slow = OpenModel("test", (0, 1), Counting(clock, row_s=0.001))
        loan = assemble(slow, FRAME, None, WrapOptions())
        found = loan.explain(FRAME, time_limit_s=1e-9)
        assert [f.prediction for f in found] == decide(FRAME).tolist()
        assert [f.status for f in found] == ["budget"] * 4 + ["already"] * 4
        assert found[0].reason.startswith("stopped by the time limit after 0 evaluations")

    def test_what_was_found_before_the_clock_ran_out_is_answered(self, clock: Clock) -> None:
        """A search that never ends by itself: its best so far is proved in the time kept for that."""
        slow = Counting(clock, row_s=0.0002)
        endless = GeCo(min_generations=10**6, max_generations=10**6)
        loan = assemble(OpenModel("test", (0, 1), slow), FRAME, None, WrapOptions(explainer=endless))
        started = clock.now
        cut = loan.explain(POOR.iloc[[0]], time_limit_s=0.5, max_evaluations=10**9)[0]
        assert slow.began < started + 0.5
        assert cut.status == "found"


Predict = Callable[[pd.DataFrame], np.ndarray]


def test_several_tree_models_keep_their_predictions() -> None:
    rng = np.random.default_rng(0)
    data = pd.DataFrame(
        {"a": rng.integers(0, 9, 200), "b": rng.normal(size=200).astype("float32"), "c": rng.random(200)}
    )
    tree = DecisionTreeClassifier(random_state=0, max_depth=4).fit(data, data["a"] + 3 * data["b"] > 5)
    wrapped_tree = mlflow_cf.wrap(tree, data)
    answers = wrapped_tree.explain(data)
    assert [answer.prediction for answer in answers] == tree.predict(data).tolist()
    assert {answer.status for answer in answers} == {"found", "already"}
    rows = pd.DataFrame([found.row for answer in answers for found in answer.counterfactuals]).astype(data.dtypes)
    assert tree.predict(rows).all()
