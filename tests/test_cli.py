import json
import shutil

import mlflow
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from sklearn.tree import DecisionTreeClassifier

import mlflow_cf
from mlflow_cf.cli import main


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"income": rng.integers(10, 90, 200) * 500, "age": rng.integers(18, 70, 200)})
    model = DecisionTreeClassifier(max_depth=2, random_state=0).fit(data, (data.income > 25_000).to_numpy())
    folder = tmp_path_factory.mktemp("cli")
    mlflow_cf.save_model(model, folder / "explained", data, target=True, constraints={"immutable": ["age"]})
    data.nsmallest(2, "income").to_csv(folder / "rows.csv", index=False)
    return folder


def run(*words):
    return CliRunner().invoke(main, [str(word) for word in words])


def test_explain_prints_a_sentence_per_counterfactual(saved):
    result = run("explain", "-m", saved / "explained", "-i", saved / "rows.csv")
    assert result.exit_code == 0
    assert "row 0: prediction False, found" in result.output
    assert "income rises from" in result.output


def test_explain_says_what_is_proved(saved):
    result = run("explain", "-m", saved / "explained", "-i", saved / "rows.csv", "-q", '{"certify": true}')
    assert "the prediction becomes yes (proved: nothing is nearer)" in result.output


def test_explain_prints_the_records_of_a_reply(saved):
    result = run("explain", "-m", saved / "explained", "-i", saved / "rows.csv", "--json", "-q", '{"explain": "none"}')
    assert [record["status"] for record in json.loads(result.output)] == ["skipped", "skipped"]


def test_evaluate_prints_and_logs_the_figures(saved, tmp_path):
    rows = pd.read_csv(saved / "rows.csv").assign(group=["a", "b"], rich=[False, False])
    rows.to_parquet(tmp_path / "rows.parquet")
    words = ("-m", saved / "explained", "-r", tmp_path / "rows.parquet", "-g", "group", "--labels", "rich")
    result = run("evaluate", *words, "--json")
    assert result.exit_code == 0, result.output
    metrics = json.loads(result.output[result.output.index("{") :])
    assert metrics["cf/coverage/group.a"] == 1
    assert metrics["cf/accuracy"] == 1
    assert mlflow.last_active_run().data.metrics == metrics
    result = run("evaluate", *words, "-e", "geco", "-e", "nearest_row")
    assert "winner geco" in result.output
    assert run("evaluate", *words, "-e", "gecko").output.strip().endswith("did you mean 'geco'?")


def test_describe_names_model_and_policy(saved):
    text = run("describe", "-m", saved / "explained").output
    assert text.startswith("model        sklearn, labels false, true")
    assert "constraints  immutable: age\n" in text


def test_describe_prints_the_facts(saved):
    facts = json.loads(run("describe", "-m", saved / "explained", "--json").output)
    assert facts == mlflow_cf.load_model(saved / "explained").describe()
    assert facts["policy"]["constraints"] == {"immutable": ["age"]}


def test_schema_lists_the_options_of_a_request():
    assert "max_evaluations" in json.loads(run("schema").output)["properties"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-q", '{"cuont": 1}'), "cuont: not a known key; did you mean 'count'?"),
        (("-q", "{"), "not JSON"),
        (("-q", "[]"), "not a JSON object"),
        (("-i", "rows.xls"), "there is no file"),
    ],
)
def test_mistakes_are_one_clear_message(saved, words, message):
    result = run("explain", "-m", saved / "explained", "-i", saved / "rows.csv", *words)
    assert result.exit_code != 0
    assert message in result.output
    assert "Traceback" not in result.output


def test_a_missing_model_is_one_clear_message(tmp_path):
    result = run("describe", "-m", tmp_path / "nothing")
    assert result.exit_code == 1
    assert "nothing" in result.output


def test_verify_checks_without_opening_the_model(saved, monkeypatch):
    monkeypatch.setattr("mlflow_cf.artifact.load.open_folder", lambda *_, **__: pytest.fail("opened"))
    result = run("verify", "-m", saved / "explained")
    assert result.exit_code == 0
    assert result.output.startswith("files     ")
    assert "bytes, 200 background rows\nwritten   by mlflow-cf " in result.output
    assert result.output.endswith("\nOK\n")


def test_verify_tells_what_is_wrong(saved, tmp_path):
    folder = shutil.copytree(saved / "explained", tmp_path / "copy")
    (folder / "requirements.txt").write_text("evil\n")
    result = run("verify", "-m", folder)
    assert result.exit_code == 1
    assert result.output.startswith(
        "Error: requirements.txt: has other bytes than the manifest says; log the explained"
    )
    assert run("verify", "-m", tmp_path).exit_code == 1
