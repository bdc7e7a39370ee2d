"""``mlflow.models.evaluate`` with our evaluator, and with MLflow's own, on explained models."""

import tomllib
from types import SimpleNamespace

import mlflow
import numpy as np
import pandas as pd
import pytest
import small_loans
from conftest import CHECKOUT
from mlflow.models import MetricThreshold
from mlflow.models.evaluation import evaluator_registry
from mlflow.models.evaluation.validation import ModelValidationFailedException
from sklearn.tree import DecisionTreeRegressor

import mlflow_cf
from mlflow_cf import InputError
from mlflow_cf.evaluation.evaluator import CounterfactualEvaluator

OURS = {"model_type": "counterfactual", "evaluators": "counterfactual"}
pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory):
    """Make the checkout's entry point known, whatever version of it was installed."""
    group = "mlflow.model_evaluator"
    points = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["entry-points"][group]
    folder = tmp_path_factory.mktemp("installed") / "checkout-0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: checkout\nVersion: 0\n")
    (folder / "entry_points.txt").write_text("\n".join([f"[{group}]", *(f"{k} = {v}" for k, v in points.items())]))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder.parent)
        evaluator_registry._model_evaluation_registry.register_entrypoints()
        yield


@pytest.fixture(scope="module")
def loans():
    table = small_loans.table()
    info = mlflow_cf.log_model(
        small_loans.fitted(table),
        "loans",
        table,
        target="good",
        registered_model_name="plugged-loans",
        pip_requirements=["scikit-learn"],
    )
    return SimpleNamespace(rows=table.assign(approved=small_loans.labels(table)), info=info)


def test_mlflow_finds_it_and_it_evaluates_nothing_else():
    assert "counterfactual" in mlflow.models.list_evaluators()
    for kind in ("classifier", "regressor", "question-answering", None):
        assert not CounterfactualEvaluator.can_evaluate(model_type=kind, evaluator_config=None)


@pytest.mark.parametrize("uri", ["models:/{id}", "models:/plugged-loans/1"])
def test_metrics_are_logged_to_run_and_model(loans, uri):
    config = {"groups": "job", "count": 2, "metrics": ["cf/coverage/job.*"]}
    found = mlflow.models.evaluate(
        uri.format(id=loans.info.model_id), loans.rows, targets="approved", evaluator_config=config, **OURS
    )
    run = mlflow.get_run(found.run_id)
    assert found.metrics["cf/validity"] == 1
    assert found.metrics["cf/accuracy"] > 0.9
    assert run.data.metrics == pytest.approx(found.metrics)
    logged = [one for one in mlflow.get_logged_model(loans.info.model_id).metrics if one.run_id == found.run_id]
    assert {one.key for one in logged} == set(found.metrics)
    assert len(logged) == len(found.metrics)
    assert "cf/coverage/job.cook" in found.metrics
    assert "cf/mixed/job.cook" not in found.metrics


def test_artifacts_can_be_saved_and_loaded(loans, tmp_path):
    found = mlflow.models.evaluate(loans.info.model_uri, loans.rows.drop(columns="approved"), **OURS)
    assert set(found.artifacts) == {"counterfactual_rows_geco", "counterfactual_metrics", "counterfactual_report"}
    found.save(tmp_path / "saved")
    again = mlflow.models.EvaluationResult.load(tmp_path / "saved")
    assert again.metrics == pytest.approx(found.metrics)
    assert len(again.artifacts["counterfactual_rows_geco"].content) == len(loans.rows)


def test_thresholds_gate(loans):
    found = mlflow.models.evaluate(loans.info.model_uri, loans.rows.drop(columns="approved"), **OURS)
    enough = {"cf/coverage": MetricThreshold(threshold=0.5, greater_is_better=True)}
    mlflow.validate_evaluation_results(validation_thresholds=enough, candidate_result=found)
    too_much = {"cf/mixed": MetricThreshold(threshold=1e-9, greater_is_better=False)}
    with pytest.raises(ModelValidationFailedException, match="cf/mixed"):
        mlflow.validate_evaluation_results(validation_thresholds=too_much, candidate_result=found)


def test_several_explainers_compete(loans):
    config = {"explainers": ["geco", "nearest_row"]}
    found = mlflow.models.evaluate(
        loans.info.model_uri, loans.rows.drop(columns="approved"), evaluator_config=config, **OURS
    )
    assert {"cf/geco/coverage", "cf/nearest_row/coverage"} <= set(found.metrics)
    assert "counterfactual_rows_nearest_row" in found.artifacts


def test_what_does_not_fit_is_one_clear_message(loans):
    rows = loans.rows.drop(columns="approved")
    with pytest.raises(InputError, match=r"evaluator_config.groops: not an option; did you mean 'groups'"):
        mlflow.models.evaluate(loans.info.model_uri, rows, evaluator_config={"groops": "job"}, **OURS)
    inner = mlflow.sklearn.log_model(small_loans.fitted(small_loans.table()), name="plain", pip_requirements=[])
    with pytest.raises(InputError, match="model: this pyfunc is no explained model"):
        mlflow.models.evaluate(inner.model_uri, rows, **OURS)


def test_mlflows_evaluator_of_classifiers_takes_the_model_itself(loans):
    found = mlflow.models.evaluate(
        loans.info.model_uri,
        loans.rows,
        targets="approved",
        model_type="classifier",
        predictions="prediction",
        evaluator_config={"pos_label": "good"},
    )
    right = small_loans.fitted(small_loans.table()).predict(small_loans.table()) == loans.rows["approved"]
    assert found.metrics["accuracy_score"] == pytest.approx(right.mean())
    assert "accuracy_score" in {one.key for one in mlflow.get_logged_model(loans.info.model_id).metrics}


def test_metrics_of_their_own_see_the_predictions_of_classifiers(loans):
    def share(predictions, targets):
        return float((predictions == "good").mean())

    found = mlflow.models.evaluate(
        loans.info.model_uri,
        loans.rows,
        targets="approved",
        model_type="classifier",
        predictions="prediction",
        evaluators=["default", "counterfactual"],
        extra_metrics=[mlflow.models.make_metric(eval_fn=share, greater_is_better=True, name="share")],
    )
    good = small_loans.fitted(small_loans.table()).predict(small_loans.table()) == "good"
    assert found.metrics["share"] == pytest.approx(good.mean())
    assert not any(name.startswith("cf/") for name in found.metrics)


def test_mlflows_evaluator_of_regressors_takes_the_model_itself():
    rows = pd.DataFrame({"x": np.arange(60) % 10 / 2, "y": np.arange(60) % 7 / 2})
    values = rows["x"] * 2 + rows["y"]
    model = DecisionTreeRegressor(max_depth=3, random_state=0).fit(rows, values)
    info = mlflow_cf.log_model(model, "numbers", rows, target={"low": 9}, pip_requirements=["scikit-learn"])
    found = mlflow.models.evaluate(
        info.model_uri, rows.assign(value=values), targets="value", model_type="regressor", predictions="prediction"
    )
    errors = np.abs(model.predict(rows) - values)
    assert found.metrics["mean_absolute_error"] == pytest.approx(errors.mean())
