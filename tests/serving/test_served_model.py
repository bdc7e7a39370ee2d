"""The served model without a server: through MLflow's own functions, and what happens when something breaks."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import mlflow
import numpy as np
import pandas as pd
import pytest
import small_loans
from mlflow.exceptions import MlflowException
from served import near
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import mlflow_cf
from mlflow_cf.artifact.served import ServedModel, _load_pyfunc, patience_s
from mlflow_cf.model.judge import OpenModel
from mlflow_cf.options import WrapOptions
from mlflow_cf.request.admission import Admission
from mlflow_cf.request.portfolio import FEW
from mlflow_cf.request.warmth import ENOUGH_SCORED
from mlflow_cf.testing.watched import Clock
from mlflow_cf.wrapping import assemble

TABLE = small_loans.table()
MODEL = small_loans.fitted(TABLE)
ASKED = small_loans.rejected(TABLE, 3)
ALLOWED = ("geco", "nearest_row", "random_search")
OPTIONS = {"target": "good", "constraints": small_loans.CONSTRAINTS, "privacy": {"explainers": ALLOWED}}
EXPLAINED = mlflow_cf.wrap(MODEL, TABLE, **OPTIONS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return the folder of a saved explained model."""
    path = tmp_path_factory.mktemp("served") / "m"
    mlflow_cf.save_model(MODEL, path, TABLE, **OPTIONS)
    return str(path)


@pytest.fixture(scope="module")
def loaded(folder):
    """Return the same model as MLflow loads it."""
    return mlflow.pyfunc.load_model(folder)


def test_a_request_sets_options_of_an_explainer(loaded):
    def ask(**options):
        asked = {"name": "random_search", "options": options}
        return loaded.predict(ASKED, params={"counterfactual": {"explainer": asked}})

    few, many = ask(copies=5), ask(copies=500)
    assert set(few["explainer"]) == {"random_search"}
    assert few["evaluations"].sum() < many["evaluations"].sum()
    with pytest.raises(
        MlflowException, match=r"explainer\.options\.copies: input should be less than or equal to 10000"
    ):
        ask(copies=10**9)


def test_options_reach_the_explainer(loaded):
    reply = loaded.predict(
        ASKED, params={"counterfactual": {"count": 2, "constraints": {"immutable": ["income"]}, "seed": 5}}
    )
    found = [cf for row in reply["counterfactuals"] for cf in row]
    assert found
    assert all(change["feature"] not in ("income", "age") for cf in found for change in cf["changes"])
    assert set(reply["seed"]) == {5}
    pd.testing.assert_frame_equal(loaded.predict(ASKED), EXPLAINED.predict(ASKED))


def test_columns_that_may_be_missing_may_be_left_out(loaded):
    reply = loaded.predict(TABLE.drop(columns="debts"))
    assert list(reply["prediction"]) == MODEL.predict(TABLE.assign(debts=np.nan)).tolist()


def test_mlflow_models_predict(folder, tmp_path):
    body = {"dataframe_split": ASKED.to_dict(orient="split", index=False)}
    body["params"] = {"counterfactual": {"explain": "all"}}
    (tmp_path / "body.json").write_text(json.dumps(body))
    mlflow.models.predict(
        folder,
        input_path=str(tmp_path / "body.json"),
        output_path=str(tmp_path / "reply.json"),
        env_manager="local",
    )
    reply = json.loads((tmp_path / "reply.json").read_text(), parse_constant=pytest.fail)
    assert reply["predictions"] == near(EXPLAINED.predict(ASKED).to_dict("records"))


def through_json(folder, rows, tmp_path, **options):
    """Return the records that MLflow writes for `rows` sent as JSON."""
    body = {"dataframe_records": rows, "params": {"counterfactual": options}}
    (tmp_path / "body.json").write_text(json.dumps(body))
    paths = {"input_path": str(tmp_path / "body.json"), "output_path": str(tmp_path / "reply.json")}
    mlflow.models.predict(str(folder), **paths, env_manager="local")
    return json.loads((tmp_path / "reply.json").read_text(), parse_constant=pytest.fail)["predictions"]


def test_every_kind_of_column_travels_as_json(tmp_path):
    table = TABLE.assign(
        since=pd.to_datetime("2020-01-01") + pd.to_timedelta(TABLE["age"], unit="D"),
        region=pd.Categorical(np.where(TABLE["age"] > 40, "north", "south")),
        insured=pd.array([None, True, False, True] * (len(TABLE) // 4), dtype="boolean"),
        visits=pd.array([None, 3, 2, 7] * (len(TABLE) // 4), dtype="Int64"),
    )

    def label(rows):
        assert dict(rows.dtypes) == dict(table.dtypes)
        return (rows["income"] + rows["visits"].fillna(0).astype(float) > 42).astype(int).to_numpy()

    options = {
        "output": "label",
        "allow_functions": True,
        "validate": "here",
        "constraints": {"immutable": ["since", "region"]},
    }
    mlflow_cf.save_model(label, tmp_path / "m", table, **options)
    rows = [
        {"age": 30, "income": 38.5, "job": "cook", "owner": True, "debts": None, "since": "2020-02-03"},
        {"age": 30, "income": 38.5, "job": "cook", "owner": True, "debts": 1, "since": "2020-02-03T10:30:00"},
    ]
    rows = [{**row, "region": "south", "insured": None, "visits": 2} for row in rows]
    for row, answer in zip(rows, through_json(tmp_path / "m", rows, tmp_path, count=2), strict=True):
        assert (answer["prediction"], answer["status"]) == (0, "found"), answer["reason"]
        for found in answer["counterfactuals"]:
            kept = {name: value for name, value in row.items() if name not in {c["feature"] for c in found["changes"]}}
            assert found["row"].items() >= kept.items()


def test_a_regressor(tmp_path):
    numbers = TABLE[["age", "income"]]
    model = DecisionTreeRegressor(max_depth=4).fit(numbers, numbers["income"] * 2)
    mlflow_cf.save_model(model, tmp_path / "m", numbers, target={"low": 90.0})
    (answer,) = through_json(tmp_path / "m", numbers[numbers["income"] < 30].head(1).to_dict("records"), tmp_path)
    assert isinstance(answer["prediction"], float)
    assert (answer["status"], answer["probability"]) == ("found", None)
    assert answer["counterfactuals"][0]["prediction"] >= 90


def test_three_classes(tmp_path):
    numbers = TABLE[["age", "income"]]
    grade = np.select([numbers["income"] < 35, numbers["income"] < 45], ["low", "middle"], "high")
    model = DecisionTreeClassifier().fit(numbers, grade)
    mlflow_cf.save_model(model, tmp_path / "m", numbers, target="middle", seal=())
    row = numbers[numbers["income"] < 30].head(1).to_dict("records")
    for target in ("middle", "high"):
        (answer,) = through_json(tmp_path / "m", row, tmp_path, target=target)
        assert (answer["prediction"], answer["counterfactuals"][0]["prediction"]) == ("low", target)


def test_many_threads_get_the_same_answers(loaded):
    expected = loaded.predict(ASKED)
    roomy = ServedModel(replace(loaded.get_raw_model(), admission=Admission(4)))
    with ThreadPoolExecutor(4) as pool:
        for reply in pool.map(roomy.predict, [ASKED] * 8):
            pd.testing.assert_frame_equal(reply, expected)


def test_get_raw_model_is_the_explained_model(loaded):
    assert isinstance(loaded.get_raw_model(), mlflow_cf.ExplainedModel)


def test_loading_tries_an_answer_and_what_few_rows_need(folder, monkeypatch):
    asked = []
    answer = mlflow_cf.explained.answer
    monkeypatch.setattr(mlflow_cf.explained, "answer", lambda *request: asked.append(answer(*request)) or asked[-1])
    _load_pyfunc(folder)
    tried, *hard = (found[0] for found in asked if len(found) == 1)
    assert {(one.prediction, one.status) for one in (tried, *hard)} == {("bad", "found")}
    assert all(len(tried.counterfactuals) < len(one.counterfactuals) for one in hard)
    assert len(hard) >= 2  # with certificates and without
    assert {len(found) for found in asked if len(found) > 1} == {FEW + 1}


@pytest.mark.parametrize("breaks", ["always", "while searching", "never"])
def test_warming_up_stands_any_model(breaks):
    """One that fails, and one that is pleased with every row."""
    ready = threading.Event()

    def decide(rows):
        if ready.is_set() and (breaks == "always" or (breaks == "while searching" and len(rows) > 1)):
            raise ValueError
        return np.ones(len(rows), dtype=int) if breaks == "never" else (rows["income"] > 40).to_numpy().astype(int)

    explained = assemble(OpenModel("test", (0, 1), decide), TABLE, None, WrapOptions())
    ready.set()
    explained.warm_up()


def test_warming_up_asks_a_slow_model_little():
    seen = []

    def decide(rows):
        seen.append(len(rows))
        return (rows["income"] > 60).to_numpy().astype(int)

    explained = assemble(OpenModel("test", (0, 1), decide), TABLE, None, WrapOptions())
    seen.clear()
    explained.warm_up()
    assert 1 < sum(seen) <= ENOUGH_SCORED + 1


@pytest.mark.parametrize(("limit", "patience"), [(1, 0.5), (2, 1.5), (60, 54.0), (600, 540.0)])
def test_a_reply_leaves_before_mlflow_gives_up(monkeypatch: pytest.MonkeyPatch, limit: int, patience: float) -> None:
    monkeypatch.setenv("MLFLOW_SCORING_SERVER_REQUEST_TIMEOUT", str(limit))
    assert patience_s() == pytest.approx(patience)


@pytest.mark.parametrize("asked", [{}, {"time_limit_s": 4.0, "certify": True}, {"count": 5}], ids=str)
def test_a_black_box_is_answered_in_time(clock: Clock, asked: dict[str, object]) -> None:
    """MLflow's own limit is shorter than the policy's, and every call of the model takes a while."""

    def decide(rows: pd.DataFrame) -> np.ndarray:
        clock.now += 0.1
        return (rows["income"] + rows["age"] > 1e9).to_numpy().astype(int)

    explained = assemble(OpenModel("test", (0, 1), decide), TABLE, None, WrapOptions())
    explained.warm_up()
    started = clock.now
    reply = ServedModel(explained, within_s=1.5).predict(TABLE.head(1), {"counterfactual": asked})
    assert clock.now - started < 1.5 + 0.1 + 0.1
    assert reply["prediction"].tolist() == [0]
    assert "time limit" in reply["reason"][0]


def test_mlflows_model_config_changes_nothing(folder):
    expected = EXPLAINED.predict(ASKED)
    pd.testing.assert_frame_equal(_load_pyfunc(folder, {"seed": 9}).predict(ASKED), expected)


@dataclass
class Broken:
    """An explained model that breaks in the middle of a request."""

    space = EXPLAINED.space
    policy = EXPLAINED.policy
    error: Exception

    def request(self, _rows, _params, *, within_s=None):
        assert within_s is None
        raise self.error


@pytest.mark.parametrize(
    "error",
    [
        ValueError(f"income {small_loans.CANARY}"),
        MlflowException(f"schema of data {small_loans.CANARY}"),
        RecursionError(),
        MemoryError(),
    ],
)
def test_foreign_errors_leave_without_their_message(error, caplog):
    with pytest.raises(MlflowException) as caught:
        ServedModel(Broken(error)).predict(ASKED)
    message = caught.value.serialize_as_json()
    assert type(error).__name__ in message
    assert str(small_loans.CANARY) not in message + caplog.text
    assert caught.value.get_http_status_code() == 500
    assert caught.value.__cause__ is None
    assert "stack_trace" not in message


@pytest.mark.parametrize("rows", [ASKED.head(0), ASKED[["age"]], [[1, 2]], None, ASKED.to_numpy()[:, :2]])
def test_our_errors_leave_as_they_are(rows):
    with pytest.raises(mlflow_cf.InputError, match="rows") as caught:
        ServedModel(EXPLAINED).predict(rows)
    assert caught.value.get_http_status_code() == 400
