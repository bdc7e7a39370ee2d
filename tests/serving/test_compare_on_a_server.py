"""Two registered versions compared and gated on a real tracking server, by the command that a pipeline would use."""

import os
import subprocess
import sys
from types import SimpleNamespace

import mlflow
import numpy as np
import pytest
from mlflow import MlflowClient
from sklearn.tree import DecisionTreeClassifier
from small_loans import labels, table
from tracking import tracking

import mlflow_cf

pytestmark = [
    # MLflow compares column names with a range when it saves a table as input example.
    pytest.mark.filterwarnings("ignore:Operation with range is deprecated"),
]
NAME = "loans"
NUMBERS = ["age", "income"]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server with two versions, and a file of rows."""
    folder = tmp_path_factory.mktemp("tracking")
    before = mlflow.get_tracking_uri()
    data = table()
    data.to_csv(folder / "rows.csv", index=False)
    good = (labels(data) == "good").astype(int)
    with tracking(folder) as url:
        mlflow.set_tracking_uri(url)
        mlflow.set_experiment("Default")  # other tests have experiments that this server does not know
        try:
            infos = [
                mlflow_cf.log_model(
                    DecisionTreeClassifier(max_depth=depth, random_state=0).fit(data[NUMBERS], good),
                    "explained",
                    data[NUMBERS],
                    target=1,
                    registered_model_name=NAME,
                )
                for depth in (1, 4)
            ]
            yield SimpleNamespace(url=url, rows=folder / "rows.csv", models=[info.model_id for info in infos])
        finally:
            mlflow.set_tracking_uri(before)


def compare(server, *options):
    environment = {**os.environ, "MLFLOW_TRACKING_URI": server.url}
    command = [
        sys.executable,
        "-c",
        "from mlflow_cf.cli import main; main()",
        "compare",
        NAME,
        "--text",
        "--rows",
        str(server.rows),
        "--group",
        "job",
        *options,
    ]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)


def test_a_gate_passes_and_fails_and_metrics_are_on_the_right_models(server):
    passed = compare(server, "--threshold", "cf/coverage>=0.5")
    assert passed.returncode == 0, passed.stderr
    assert f"{NAME}/2 passes" in passed.stdout
    failed = compare(server, "--threshold", "cf/survival>=1.01", "--threshold", "cf/coverage>=0.5")
    assert failed.returncode == 1
    assert "Metric cf/survival value threshold check failed" in failed.stderr
    assert "Metric cf/coverage" not in failed.stderr

    run_id = passed.stdout.split("\nrun ")[1].split()[0]
    client = MlflowClient()
    children = client.search_runs(
        [client.get_run(run_id).info.experiment_id], f"tags.`mlflow.parentRunId` = '{run_id}'"
    )
    by_version = {run.data.tags["cf.version"]: client.get_run(run.info.run_id) for run in children}
    assert set(by_version) == {f"{NAME}/1", f"{NAME}/2"}
    for number, model_id in enumerate(server.models, start=1):
        run = by_version[f"{NAME}/{number}"]
        assert run.data.tags["cf.model_id"] == model_id
        assert [one.model_id for one in run.inputs.model_inputs] == [model_id]

    found = mlflow.search_logged_models(filter_string="metrics.`cf/coverage` > 0", output_format="list")
    assert {model.model_id for model in found} == set(server.models)
    survivors = mlflow.search_logged_models(filter_string="metrics.`cf/survival` >= 0", output_format="list")
    assert [model.model_id for model in survivors] == server.models[1:]
    own = {one.key: one.value for one in survivors[0].metrics if one.run_id == by_version[f"{NAME}/2"].info.run_id}
    assert own["cf/survival"] == by_version[f"{NAME}/2"].data.metrics["cf/survival"]

    survival = mlflow.artifacts.load_dict(f"runs:/{run_id}/compare/survival.json")
    lines = [dict(zip(survival["columns"], values, strict=True)) for values in survival["data"]]
    whole = {(line["issued"], line["judged"]): line["survival"] for line in lines if line["group"] == ""}
    assert whole[f"{NAME}/1", f"{NAME}/1"] == 1
    assert whole[f"{NAME}/1", f"{NAME}/2"] == pytest.approx(own["cf/survival"])
    assert not np.isnan(list(whole.values())).any()
