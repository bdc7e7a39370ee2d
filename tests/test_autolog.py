"""An explained model beside every model that is logged in a run, whoever logs it; training never notices."""

import dataclasses
import inspect
import logging
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import lightgbm
import mlflow
import numpy as np
import pandas as pd
import pytest
import xgboost
from mlflow import MlflowClient
from mlflow.models import Model
from sklearn.cluster import KMeans
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import mlflow_cf
from mlflow_cf.artifact.publish.account import account_of
from mlflow_cf.autologging.beside import MOST_ROWS, _sample
from mlflow_cf.autologging.fitted_rows import FittedRows, labels_of, rows_of_running_fit
from mlflow_cf.autologging.hook import Hook
from mlflow_cf.options import WrapOptions

RNG = np.random.default_rng(5)
ROWS = 120
X = pd.DataFrame({"age": RNG.integers(18, 80, ROWS), "income": RNG.normal(40, 10, ROWS), "debt": RNG.random(ROWS)})
X["age"] = X["age"].astype(float)  # as all flavors log it
y = pd.Series((X["income"] + 20 * (X["age"] > 40) > 50).astype(int), name="paid")
BEFORE = vars(Model)["log"]
CLASSES = {
    "sklearn": lambda: make_pipeline(StandardScaler(), LogisticRegression()),
    "xgboost": lambda: xgboost.XGBClassifier(n_estimators=5, max_depth=2, n_jobs=1),
    "lightgbm": lambda: lightgbm.LGBMClassifier(n_estimators=5, num_leaves=4, n_jobs=1, verbose=-1),
}


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch, undrawn: None) -> Iterator[None]:
    """Leave MLflow as it was; what a model requires is not inferred, which takes a process of its own."""
    monkeypatch.setattr("mlflow.models.infer_pip_requirements", lambda *_, fallback=None, **__: fallback or [])
    monkeypatch.setenv("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    yield
    mlflow_cf.autolog(disable=True)
    for flavor in ("sklearn", "xgboost", "lightgbm"):
        getattr(mlflow, flavor).autolog(disable=True)
    assert vars(Model)["log"] is BEFORE


def logged(run: mlflow.ActiveRun | str) -> dict[str, Any]:
    """Return the models of a run by name."""
    run_id = run if isinstance(run, str) else run.info.run_id
    outputs = MlflowClient().get_run(run_id).outputs.model_outputs
    models = [mlflow.get_logged_model(one.model_id) for one in outputs]
    assert len({model.name for model in models}) == len(models)
    return {model.name: model for model in models}


def metrics(run: mlflow.ActiveRun) -> dict[str, float]:
    return {key: value for key, value in MlflowClient().get_run(run.info.run_id).data.metrics.items() if "cf/" in key}


def finished(run: mlflow.ActiveRun) -> bool:
    return MlflowClient().get_run(run.info.run_id).info.status == "FINISHED"


def log_explicitly(flavor: str, model: object, name: str = "model") -> Any:
    return getattr(mlflow, flavor).log_model(model, name=name)


def fitted() -> Any:
    return CLASSES["sklearn"]().fit(X, y)


def check_explained(run: mlflow.ActiveRun, name: str = "model") -> mlflow_cf.ExplainedModel:
    """Check what stands beside a model of a run, and return it loaded."""
    models = logged(run)
    assert {name, f"{name}_explained"} <= set(models)
    explained = models[f"{name}_explained"]
    assert explained.status == "READY"
    assert explained.tags["cf.inner_model_id"] == models[name].model_id
    assert metrics(run)["cf/coverage"] > 0
    assert "cf/coverage" in {metric.key for metric in explained.metrics}
    files = {file.path for file in MlflowClient().list_artifacts(run.info.run_id, f"counterfactual/{name}")}
    assert f"counterfactual/{name}/metrics.csv" in files
    assert finished(run)
    return mlflow_cf.load_model(explained.model_uri)


@pytest.mark.parametrize("flavor", CLASSES)
def test_automatic(flavor: str) -> None:
    getattr(mlflow, flavor).autolog()
    mlflow_cf.autolog(target=1, constraints={"increasing": ["age"]}, evaluate_rows=8)
    with mlflow.start_run() as run:
        CLASSES[flavor]().fit(X, y)
    explained = check_explained(run)
    pd.testing.assert_frame_equal(explained.background, X)
    np.testing.assert_array_equal(explained.labels, y)
    assert metrics(run)["cf/rows"] == 8


@pytest.mark.parametrize("flavor", CLASSES)
def test_explicit(flavor: str) -> None:
    model = CLASSES[flavor]().fit(X, y)
    mlflow_cf.autolog(X, y, target=1, evaluate_rows=8)
    with mlflow.start_run() as run:
        log_explicitly(flavor, model)
        assert mlflow.last_logged_model().name == "model"
    pd.testing.assert_frame_equal(check_explained(run).background, X)


def test_mlflows_own_autolog_for_all_flavors_and_a_run_that_it_makes() -> None:
    mlflow.autolog(log_datasets=False)
    try:
        mlflow_cf.autolog(target=1, evaluate_rows=4)
        CLASSES["sklearn"]().fit(X=X, y=y)
        check_explained(mlflow.last_active_run())
    finally:
        mlflow.autolog(disable=True)


@pytest.mark.parametrize("flavor", CLASSES)
def test_arrays(flavor: str) -> None:
    getattr(mlflow, flavor).autolog()
    mlflow_cf.autolog(target=1, evaluate_rows=4)
    with mlflow.start_run() as run:
        CLASSES[flavor]().fit(X.to_numpy(), y.to_numpy())
    np.testing.assert_allclose(check_explained(run).background.to_numpy(), X.to_numpy())


def test_a_regression() -> None:
    mlflow.sklearn.autolog()
    mlflow_cf.autolog(target=mlflow_cf.Target(low=45.0), constraints={"immutable": ["age"]}, evaluate_rows=4)
    with mlflow.start_run() as run:
        LinearRegression().fit(X[["age", "debt"]].assign(rooms=X["income"] // 10), X["income"])
    assert check_explained(run).policy.target.low == 45.0


def test_training_with_a_booster_of_xgboost_keeps_missing_values() -> None:
    table = X.mask(RNG.random(X.shape) < 0.1)
    mlflow.xgboost.autolog()
    mlflow_cf.autolog(target=1, evaluate_rows=4)
    with mlflow.start_run() as run:
        data = xgboost.DMatrix(table, y)
        xgboost.train({"objective": "binary:logistic", "max_depth": 2, "nthread": 1}, data, 4)
    explained = check_explained(run)
    pd.testing.assert_frame_equal(explained.background.astype(float), table.astype("float32").astype(float))


def test_training_with_a_booster_of_lightgbm_needs_a_data_set_that_keeps_its_rows(
    caplog: pytest.LogCaptureFixture,
) -> None:
    params = {"objective": "binary", "num_leaves": 4, "num_threads": 1, "verbose": -1}
    mlflow.lightgbm.autolog()
    mlflow_cf.autolog(target=1, evaluate_rows=4)
    for kept in (True, False):
        caplog.clear()
        with mlflow.start_run() as run:
            lightgbm.train(params, lightgbm.Dataset(X, y, free_raw_data=not kept), 4)
        assert finished(run)
        assert ("model_explained" in logged(run)) is kept
        assert ("data: the rows that this model was fitted on are not known" in caplog.text) is not kept


def test_a_search_has_an_explained_model_for_itself_and_for_its_best_estimator() -> None:
    mlflow.sklearn.autolog(max_tuning_runs=0)
    mlflow_cf.autolog(target=1, evaluate_rows=4)
    with mlflow.start_run() as run:
        GridSearchCV(CLASSES["sklearn"](), {"logisticregression__C": [0.1, 1.0]}, cv=2).fit(X, y)
    check_explained(run)
    check_explained(run, "best_estimator")


def test_without_data_an_explicit_call_is_told_what_to_pass(caplog: pytest.LogCaptureFixture) -> None:
    mlflow_cf.autolog(target=1)
    with mlflow.start_run() as run:
        log_explicitly("sklearn", fitted(), "credit")
    assert set(logged(run)) == {"credit"}
    assert finished(run)
    (message,) = [record.getMessage() for record in caplog.records if record.name.startswith("mlflow_cf")]
    assert message.startswith("no explained model beside 'credit': data: the rows that this model was fitted on are")
    assert "mlflow_cf.autolog(data=X_train)" in message


def test_enable_disable_enable() -> None:
    mlflow.sklearn.autolog()
    for round_ in range(2):
        mlflow_cf.autolog(target=1, evaluate_rows=0)
        mlflow_cf.autolog(target=1, evaluate_rows=0)
        assert vars(Model)["log"] is not BEFORE
        with mlflow.start_run() as run:
            fitted()
        assert set(logged(run)) == {"model", "model_explained"}, round_
        mlflow_cf.autolog(disable=True)
        mlflow_cf.autolog(disable=True)
        assert vars(Model)["log"] is BEFORE
        with mlflow.start_run() as run:
            fitted()
        assert set(logged(run)) == {"model"}, round_


def test_it_does_not_matter_whose_autolog_comes_and_goes_first() -> None:
    mlflow_cf.autolog(target=1, evaluate_rows=0)
    mlflow.sklearn.autolog()
    mlflow.sklearn.autolog(disable=True)
    with mlflow.start_run() as run:
        fitted()
    assert not MlflowClient().get_run(run.info.run_id).outputs.model_outputs
    mlflow.sklearn.autolog()
    with mlflow.start_run() as run:
        fitted()
    assert set(logged(run)) == {"model", "model_explained"}


def test_nested_runs() -> None:
    mlflow_cf.autolog(X, y, target=1, evaluate_rows=4)
    model = fitted()
    with mlflow.start_run() as outer:
        with mlflow.start_run(nested=True) as inner:
            log_explicitly("sklearn", model)
        log_explicitly("sklearn", model, "other")
    check_explained(inner)
    check_explained(outer, "other")
    assert set(logged(outer)) == {"other", "other_explained"}


def test_threads() -> None:
    """Each thread's model is explained in its own run; MLflow's own autolog minds one thread at a time."""
    mlflow_cf.autolog(X, y, target=1, evaluate_rows=4)
    runs: dict[int, mlflow.ActiveRun] = {}

    def work(number: int) -> None:
        with mlflow.start_run() as run:
            log_explicitly("sklearn", CLASSES["sklearn"]().fit(X.iloc[number:], y.iloc[number:]))
            assert mlflow.last_logged_model().name == "model"
        runs[number] = run

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(runs) == {0, 1, 2}
    for run in runs.values():
        check_explained(run)


def test_several_models_in_one_run() -> None:
    model = fitted()
    with mlflow.start_run() as run:
        for name, explainer in {"first": "geco", "second": "nearest_row"}.items():
            mlflow_cf.autolog(X, target=1, explainer=explainer, evaluate_rows=4)
            log_explicitly("sklearn", model, name)
    models = logged(run)
    assert models["second_explained"].params["cf.explainer"] == "nearest_row"
    assert MlflowClient().get_run(run.info.run_id).data.params["cf.explainer"] == "geco"
    check_explained(run, "first")
    check_explained(run, "second")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"constraints": {"immutable": ["sex"]}}, "constraints.immutable"),
        ({"target": "yes"}, "target"),
        ({"target": 1, "features": {"age": {"kind": "text"}}}, "features.age"),
        ({"target": 1, "data": X[["age"]]}, "data: lacks the columns ['income', 'debt']"),
    ],
    ids=["constraints", "target", "features", "data"],
)
def test_what_does_not_fit_is_a_warning(options: dict[str, Any], told: str, caplog: pytest.LogCaptureFixture) -> None:
    mlflow_cf.autolog(**{"data": X, "target": 1, **options})
    with mlflow.start_run() as run:
        info = log_explicitly("sklearn", fitted())
    assert info.model_id
    assert finished(run)
    assert set(logged(run)) == {"model"}
    assert f"no explained model beside 'model': {told}" in caplog.text
    caplog.clear()
    mlflow_cf.autolog(**{"data": X, "target": 1, "silent": True, **options})
    with mlflow.start_run():
        log_explicitly("sklearn", fitted())
    assert "no explained model" not in caplog.text


def test_silence_is_for_explained_models_beside_others_alone(caplog: pytest.LogCaptureFixture) -> None:
    findings = ["constraints.increasing: 'age' may fall; add it there, or to immutable"]
    for silent in (True, False):
        caplog.clear()
        mlflow_cf.autolog(X, target=1, constraints={}, evaluate_rows=0, silent=silent)
        with mlflow.start_run() as run:
            log_explicitly("sklearn", fitted())
        assert set(logged(run)) == {"model", "model_explained"}
        told = [record.getMessage() for record in caplog.records if record.name == "mlflow_cf.wrapping"]
        assert told == ([] if silent else findings)
        caplog.clear()
        mlflow_cf.wrap(fitted(), X, target=1, constraints={})
        assert [record.getMessage() for record in caplog.records] == findings


@pytest.mark.parametrize(
    "fault", [RuntimeError("no"), MemoryError(), RecursionError()], ids=lambda fault: type(fault).__name__
)
@pytest.mark.parametrize("place", ["beside.carry_out", "beside.log_beside", "beside.rows_of_running_fit"])
def test_a_fault_of_ours_leaves_training_untouched(
    place: str, fault: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise fault

    monkeypatch.setattr(f"mlflow_cf.autologging.{place}", broken)
    mlflow.sklearn.autolog()
    mlflow_cf.autolog(target=1, evaluate_rows=4)
    with mlflow.start_run() as run:
        model = fitted()
    assert model.predict(X).shape == (ROWS,)
    assert finished(run)
    assert "training_score" in MlflowClient().get_run(run.info.run_id).data.metrics
    lacking = "no metrics" if place == "beside.carry_out" else "no explained model"
    assert f"{lacking} beside 'model': {type(fault).__name__}" in caplog.text
    caplog.clear()


def test_a_failing_explainer_leaves_training_untouched(monkeypatch: pytest.MonkeyPatch) -> None:
    def search(*_: Any) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(mlflow_cf.GeCo, "search", search)
    mlflow.sklearn.autolog()
    mlflow_cf.autolog(target=1, evaluate_rows=4)
    with mlflow.start_run() as run:
        assert fitted().predict(X).shape == (ROWS,)
    assert finished(run)
    assert "training_score" in MlflowClient().get_run(run.info.run_id).data.metrics


class Talks(mlflow.pyfunc.PythonModel):
    """A model that gives no label or number per row."""

    def predict(self, context, model_input, params=None):  # noqa: ARG002  MLflow's own signature
        return [{"words": "some"} for _ in range(len(model_input))]


def test_models_that_cannot_be_explained(caplog: pytest.LogCaptureFixture) -> None:
    mlflow_cf.autolog(X, target=1)
    with mlflow.start_run() as run:
        mlflow.pyfunc.log_model(name="talks", python_model=Talks(), pip_requirements=[])
        log_explicitly("sklearn", StandardScaler().fit(X), "scaler")
        log_explicitly("sklearn", KMeans(2, n_init=1).fit(X), "groups")
    assert finished(run)
    assert {"talks", "scaler", "groups"} <= set(logged(run))
    for name in ("talks", "scaler"):
        assert f"no explained model beside '{name}': " in caplog.text
        assert f"{name}_explained" not in logged(run)


def test_explanations_are_not_explained(caplog: pytest.LogCaptureFixture) -> None:
    mlflow_cf.autolog(X, target=1)
    with mlflow.start_run() as run:
        mlflow_cf.log_model(fitted(), "loans", X, target=1)
    assert set(logged(run)) == {"loans"}
    assert "no explained model" not in caplog.text


def test_a_model_in_no_run_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    mlflow_cf.autolog(X, target=1)
    info = log_explicitly("sklearn", fitted())
    assert info.run_id is None
    assert mlflow.last_logged_model().model_id == info.model_id
    assert "no explained model" not in caplog.text


def test_metrics_alone() -> None:
    mlflow_cf.autolog(X, target=1, evaluate_rows=4, log_models=False)
    with mlflow.start_run() as run:
        log_explicitly("sklearn", fitted())
    assert set(logged(run)) == {"model"}
    assert metrics(run)["cf/rows"] == 4


def test_registered_versions_are_described() -> None:
    mlflow_cf.autolog(
        X, target=1, evaluate_rows=0, registered_model_name="explained-loans", constraints={"max_changes": 2}
    )
    with mlflow.start_run() as run:
        log_explicitly("sklearn", fitted())
    version = MlflowClient().get_model_version("explained-loans", "1")
    assert version.source == f"models:/{logged(run)['model_explained'].model_id}"
    assert "explainer    geco" in version.description
    assert "max_changes" in version.description
    params = MlflowClient().get_run(run.info.run_id).data.params
    assert params["cf.background_rows"] == str(ROWS)
    assert params["cf.target"] == '{"label": 1}'
    assert len(params["cf.constraints"]) == 16


def test_private_rows_are_not_shown() -> None:
    """Where the artifact keeps no rows, none is explained in the run either."""
    mlflow_cf.autolog(X, target=1, evaluate_rows=4, privacy={"sample": "summary"})
    with mlflow.start_run() as run:
        log_explicitly("sklearn", fitted())
    assert set(logged(run)) == {"model", "model_explained"}
    table = mlflow.artifacts.load_dict(f"runs:/{run.info.run_id}/counterfactual/model/rows.json")
    assert len(table["data"]) == 4


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"evaluate_rows": -1}, "evaluate_rows: -1 is no number of rows"),
        ({"evaluate_rows": True}, "evaluate_rows: True"),
        ({"time_limit_s": 0}, "time_limit_s: 0 is no time"),
        ({"explainer": "gecko"}, "explainer"),
        ({"constraints": {"imutable": []}}, "constraints.imutable"),
        ({"data": [[1]]}, "data: a list is not a table"),
        ({"data": X, "labels": y[:3]}, "labels: (3,) labels for 120 rows"),
        ({"labels": y}, "labels: there are no rows"),
        ({"distance": (1, 2, 3)}, "distance"),
    ],
    ids=str,
)
def test_bad_options_are_refused_at_once(options: dict[str, Any], told: str) -> None:
    with pytest.raises(mlflow_cf.InputError) as refused:
        mlflow_cf.autolog(**options)
    assert str(refused.value).startswith(told)
    assert vars(Model)["log"] is BEFORE


def test_a_method_that_somebody_else_has_wrapped_in_the_meantime() -> None:
    calls: list[str] = []

    class Logs:
        @classmethod
        def log(cls, name: str) -> str:
            """Say what it says."""
            return f"{cls.__name__} {name}"

    class Others(Logs):
        pass

    before = vars(Logs)["log"]
    hook = Hook(Logs, "log", lambda result, _: calls.append(result))
    hook.put()
    hook.put()
    assert (Others.log("a"), Logs.log.__doc__) == ("Others a", "Say what it says.")
    ours = vars(Logs)["log"]
    Logs.log = classmethod(lambda cls, *args: ours.__get__(None, cls)(*args).upper())
    assert Logs.log("b") == "LOGS B"
    hook.take_away()
    assert not hook.in_place
    assert Logs.log("c") == "LOGS C"
    hook.put()
    assert Logs.log("d") == "LOGS D"
    Logs.log = ours
    hook.take_away()
    assert vars(Logs)["log"] is before
    assert calls == ["Others a", "Logs b", "Logs d"]


def test_it_takes_the_options_of_wrap() -> None:
    taken = inspect.signature(mlflow_cf.autolog).parameters
    known = inspect.signature(mlflow_cf.wrap).parameters
    for option in dataclasses.fields(WrapOptions):
        if option.name == "survival":  # to fit dozens of models beside every one is no work for a bystander
            assert option.name not in taken
            continue
        assert taken[option.name].default == known[option.name].default


def test_rows_are_known_in_a_watched_call_alone() -> None:
    assert rows_of_running_fit() is None


@pytest.mark.parametrize("array", [False, True], ids=["table", "array"])
def test_many_rows_are_sampled(array: bool) -> None:  # noqa: FBT001  pytest hands it in by name
    numbers = np.arange(MOST_ROWS + 500)
    data = numbers[:, None] if array else pd.DataFrame({"a": numbers})
    found = _sample(FittedRows(data, numbers), seed=1)
    np.testing.assert_array_equal(np.asarray(found.data)[:, 0], found.labels)
    assert len(found.data) == MOST_ROWS == len(set(found.labels.tolist()))
    few = FittedRows(X)
    assert _sample(few, seed=1) is few


def test_labels_are_one_value_per_row() -> None:
    assert labels_of(None, 3) is None
    assert labels_of([[1, 2], [3, 4]], 2) is None
    np.testing.assert_array_equal(labels_of(pd.DataFrame({"y": [1, 2]}), 2), [1, 2])


def test_long_descriptions_are_cut_and_stay_one_block() -> None:
    wide = pd.DataFrame({f"``` feature {number}": RNG.random(20) for number in range(200)})
    explained = mlflow_cf.wrap(
        lambda rows: (rows.iloc[:, 0] > 0.5).astype(int), wide, target=1, output="label", constraints={}
    )
    told = account_of(explained)
    assert len(told.description) < 5_000
    assert told.description.count("```") == 2
    assert told.params["cf.constraints"] == "none"


def test_what_cannot_be_described_is_logged_all_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise OSError("connection lost")

    monkeypatch.setattr(MlflowClient, "update_model_version", refused)
    with caplog.at_level(logging.WARNING), mlflow.start_run() as run:
        info = mlflow_cf.log_model(fitted(), "loans", X, target=1, registered_model_name="undescribed")
    assert info.registered_model_version == 1
    assert set(logged(run)) == {"loans"}
    assert "could not be described (OSError)" in caplog.text


def test_frames_are_those_of_mlflow() -> None:
    """A function of somebody else's with such arguments is no training call."""

    def fit(*args: Any, **kwargs: Any) -> FittedRows | None:
        return rows_of_running_fit()

    assert fit(SimpleNamespace(fit=None), X, y=y) is None


@pytest.mark.parametrize(
    "options",
    [
        {"explainer": {"name": "ceocl", "options": {"manifold": "hull", "clusters": 2}}},
        {"explainer": "ufce"},
        {"explainer": "mdpso"},
        {"plausible": "isolation_forest"},
        {"constraints": {"causal": [{"child": "debt", "parents": ["age"], "model": "tree"}]}},
        {"constraints": {"causal": [{"child": "debt", "parents": ["age"], "model": "mlp"}]}},
    ],
    ids=["ceocl", "ufce", "mdpso", "isolation forest", "tree", "network"],
)
def test_what_explainers_learn_is_not_logged_as_a_training_of_the_users(options: dict[str, Any]) -> None:
    mlflow.sklearn.autolog()
    model = CLASSES["lightgbm"]().fit(X, y)
    experiment = mlflow.set_experiment("".join(filter(str.isalnum, str(options)))).experiment_id
    with mlflow.start_run() as run:
        explained = mlflow_cf.wrap(model, X, y, target=1, **options)
        explained.explain(X.head(3), count=3)
    assert not MlflowClient().get_run(run.info.run_id).data.params
    assert len(mlflow.search_runs([experiment])) == 1
    with mlflow.start_run() as run:
        fitted()  # MLflow's autolog goes on
    assert set(logged(run)) == {"model"}
