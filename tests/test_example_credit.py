"""The credit example: what its generator promises, its options, and the demo from training to the real server."""

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import mlflow
import numpy as np
import pandas as pd
import pytest
import yaml
from checker import Checker
from mlflow import MlflowClient

import mlflow_cf

pytestmark = [
    # MLflow compares column names with a range when it saves a table as input example,
    pytest.mark.filterwarnings("ignore:Operation with range is deprecated"),
    # and selects columns of type object in log_table.
    pytest.mark.filterwarnings("ignore:For backward compatibility, 'str' dtypes are included"),
]

CREDIT = Path(__file__).resolve().parent.parent / "example_projects" / "credit"
NAME = "credit_example"  # registered in the store that all tests share
KINDS = {"integer": "i", "real": "f", "nominal": "O", "ordinal": "O", "boolean": "b"}


@pytest.fixture(scope="module")
def credit():
    """The example's modules; they are scripts that import each other, so they leave again afterwards."""
    names = (
        "applications",
        "tables",
        "pipelines",
        "store",
        "progress",
        "train",
        "server",
        "serve_and_ask",
        "demo",
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(CREDIT)
        modules = {name: __import__(name) for name in names}
        yield SimpleNamespace(**modules)
        for name in names:
            sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def applications(credit):
    return credit.applications.applications()


@pytest.fixture(scope="module")
def documented(credit):
    """Column -> (kind, made from), read from the table in the generator's docstring."""
    lines = credit.applications.__doc__.splitlines()
    borders = [number for number, line in enumerate(lines) if line.startswith("===")]
    starts = [match.start() for match in re.finditer("=+", lines[borders[0]])]
    rows = [[line[a:b].strip() for a, b in zip(starts, [*starts[1:], None], strict=True)] for line in lines]
    return {row[0]: (row[1], row[3]) for row in rows[borders[1] + 1 : borders[2]] if row[0]}


def run(script, *options):
    command = [sys.executable, str(CREDIT / script), *map(str, options)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_same_seed_same_applications(credit, applications):
    pd.testing.assert_frame_equal(credit.applications.applications(), applications)
    assert not credit.applications.applications(seed=1).equals(applications)


def test_columns_and_kinds_are_the_documented_ones(applications, documented):
    assert len(applications) == 10_000
    assert list(applications.columns) == list(documented)
    for name, (kind, _) in documented.items():
        if kind in KINDS:
            assert np.asarray(applications[name]).dtype.kind == KINDS[kind], name
        assert getattr(applications[name].dtype, "ordered", False) == (kind == "ordinal"), name


def test_causes_are_the_documented_ones(credit, documented):
    for child, parents in credit.applications.CAUSES.items():
        made_from = documented[child][1].split(":")[0]
        assert made_from == ", ".join(parents), child


def test_values_look_as_on_a_form(applications):
    assert set(applications.columns[applications.isna().any()]) == {"savings"}
    assert 0.05 < applications["savings"].isna().mean() < 0.07
    for name, step in {"income": 500, "savings": 100, "loan_amount": 500, "duration": 6, "instalment": 5}.items():
        assert (applications[name].dropna() % step == 0).all(), name
    assert applications["age"].between(19, 75).all()
    assert (applications["years_employed"] <= applications["age"] - 15).all()
    assert 0.30 < 1 - applications["approved"].mean() < 0.45


@pytest.mark.parametrize(
    ("cause", "effect", "low", "high"),
    [
        ("age", "education", -0.3, -0.05),
        ("age", "years_employed", 0.8, 1.0),
        ("education", "income", 0.3, 0.7),
        ("income", "savings", 0.2, 0.6),
        ("age", "savings", 0.2, 0.6),
        ("existing_credits", "utilisation", 0.3, 0.6),
        ("savings", "utilisation", -0.4, -0.1),
        ("utilisation", "late_payments", 0.25, 0.6),
        ("income", "loan_amount", 0.2, 0.6),
        ("loan_amount", "duration", 0.7, 0.95),
        ("loan_amount", "instalment", 0.5, 0.9),
        ("income", "approved", 0.2, 0.6),
        ("late_payments", "approved", -0.6, -0.2),
    ],
)
def test_causes_show_in_correlations(applications, cause, effect, low, high):
    numbers = applications.assign(education=applications["education"].cat.codes)
    assert low < numbers[cause].corr(numbers[effect]) < high


def test_instalment_follows_from_amount_and_duration(credit, applications):
    due = credit.applications.instalment(applications["loan_amount"], applications["duration"])
    np.testing.assert_array_equal(applications["instalment"], due)


def test_constraints_speak_of_the_applications(applications):
    constraints = yaml.safe_load((CREDIT / "constraints.yaml").read_text())
    named = [*constraints["immutable"], *constraints["increasing"], *constraints["decreasing"]]
    named += [*constraints["ranges"], *constraints["relative"], *constraints["forbidden"], *constraints["groups"][0]]
    assert set(named) <= set(applications.columns)
    for name, pairs in constraints["forbidden"].items():
        assert {level for pair in pairs for level in pair} <= set(applications[name]), name
    for name, (low, high) in constraints["ranges"].items():
        assert applications[name].between(low, high).all(), name


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--data", "nowhere.csv"], "--data: cannot read nowhere.csv"),
        (["--target", "aproved"], "--target: no column 'aproved'"),
        (["--drop", "age,iq"], "--drop: no column 'iq'"),
        (["--favourable", "2"], "--favourable: 'approved' needs two labels, one of them '2'; it has"),
        (["--target", "age"], "--favourable: 'age' needs two labels"),
        (["--target", "savings"], "--target: column 'savings' has missing values"),
    ],
)
def test_options_that_do_not_fit_say_so(credit, options, message):
    with pytest.raises(SystemExit, match=re.escape(message)):
        credit.train.main(["--rows", "200", *options])


@pytest.fixture(scope="module")
def trained(credit):
    """The run of a small training."""
    credit.train.main(["--rows", "1500", "--rows-to-explain", "8", "--model", "tree", "--registered-name", NAME])
    version = MlflowClient().get_model_version_by_alias(NAME, "champion")
    return mlflow.get_run(version.run_id)


def test_train_logs_scores_and_metrics(trained):
    metrics = trained.data.metrics
    assert {"accuracy", "auc", "cf/validity", "cf/coverage", "cf/l0", "cf/gower", "cf/seconds_p50"} <= metrics.keys()
    assert metrics["cf/validity"] == 1.0
    assert metrics["cf/coverage"] > 0.5
    assert 0 < metrics["cf/gower"] < metrics["cf/l0"] < 0.5
    assert trained.data.params["target_column"] == "approved"


def test_train_logs_a_table_of_explained_rows(trained):
    table = mlflow.load_table("counterfactual/rows.json", run_ids=[trained.info.run_id])
    assert len(table) == 8
    assert (table["prediction"] == 0).all()
    found = table[table["status"] == "found"]
    assert (found["changed"].str.len() > 2).all()
    assert (found["text"].str.contains("the prediction becomes")).all()


def test_train_registers_a_model_that_explains(trained):
    model = mlflow.pyfunc.load_model(f"models:/{NAME}@champion")
    rows = model.input_example
    assert len(rows) == 3
    answers = model.predict(rows, params={"counterfactual": {"count": 1}})
    assert (answers["prediction"] == 0).all()
    assert {"found"} <= set(answers["status"])


def older_for_work_and_schooling(x, x_cf):
    levels = ("compulsory", "secondary", "vocational", "bachelor", "master")
    more_work = x_cf["years_employed"] > x["years_employed"]
    more_schooling = levels.index(x_cf["education"]) > levels.index(x["education"])
    return x_cf["age"] > x["age"] or not (more_work or more_schooling)


def four_years_for_a_degree(x, x_cf):
    return x_cf["education_num"] <= x["education_num"] or x_cf["age"] >= x["age"] + 4


@pytest.mark.parametrize(
    ("data", "drop", "rule", "model"),
    [
        ("", "", older_for_work_and_schooling, "logistic"),
        ("german", "", None, "forest"),
        ("adult", "fnlwgt,education", four_years_for_a_degree, "tree"),
    ],
    ids=["applications", "german", "adult"],
)
def test_an_independent_checker_finds_no_fault(credit, data_file, data, drop, rule, model):
    file = data_file(f"constraints/{data}.yaml") if data else CREDIT / "constraints.yaml"
    constraints = yaml.safe_load(file.read_text())
    frame, source = credit.tables.read_table(str(data_file(f"{data}.csv")) if data else "", 4000, 0)
    table = credit.tables.learn_from(frame, source, "", "1", drop)
    pipeline = credit.pipelines.build_pipeline(model, table.rows, 0).fit(table.rows, table.labels)
    explained = mlflow_cf.wrap(pipeline, table.rows, table.labels, target=1, constraints=constraints)
    refused = table.rows[pipeline.predict(table.rows) == 0].head(12)
    order = {"education": credit.applications.EDUCATION} if not data else {}
    checker = Checker(pipeline.predict, table.rows, [constraints], 1, orders=order, rules=[rule] if rule else [])
    found = explained.explain(refused, count=2)
    assert sum(explanation.status == "found" for explanation in found) >= 9
    for query, explanation in zip(refused.to_dict("records"), found, strict=True):
        for counterfactual in explanation.counterfactuals:
            assert checker.faults(query, dict(counterfactual.row)) == []


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The demo's store, and what it printed."""
    store = tmp_path_factory.mktemp("demo")
    return store, run("demo.py", "--store", store, "--rows-to-explain", "10")


def test_demo_from_training_to_the_real_server(demo):
    store, done = demo
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("decision: ") == 4
    assert done.stdout.count(" would be ") >= 4
    assert " cannot change\n" in done.stdout
    assert f"mlflow ui --backend-store-uri sqlite:///{store / 'mlflow.db'}" in done.stdout
    shown = done.stdout + done.stderr
    assert not re.search("warning|error|traceback|failed", shown, re.IGNORECASE), shown
    assert "pip_requirements" not in shown  # its own server needs no other environment


def test_other_data_trains_into_the_same_store(demo, data_file):
    options = ["--data", data_file("german.csv"), "--constraints", data_file("constraints/german.yaml")]
    done = run("train.py", "--store", demo[0], "--rows-to-explain", "2", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not re.search("warning|error|traceback|failed", done.stdout + done.stderr, re.IGNORECASE)


def test_demo_fails_with_a_message(credit, tmp_path, monkeypatch, capfd):
    """What its scripts say of wrong options is tested above; here one of them ends as they do."""
    (tmp_path / "train.py").write_text("raise SystemExit('--data: cannot read missing.csv')")
    monkeypatch.setattr(credit.demo, "HERE", tmp_path)
    monkeypatch.setattr(sys, "argv", ["demo.py", "--store", str(tmp_path), "--data", "missing.csv"])
    assert credit.demo.main() == 1
    shown = capfd.readouterr().err
    assert "cannot read" in shown
    assert "The demo failed in train.py" in shown


def test_asking_before_training_says_what_to_do(credit):
    with pytest.raises(SystemExit, match=re.escape("run train.py first")):
        credit.serve_and_ask.main(["--registered-name", "nobody"])
