"""Versions compared: what is measured, what is logged where, and what happens to versions that cannot be asked."""

import json
from types import SimpleNamespace

import mlflow
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.models import MetricThreshold
from mlflow.models.evaluation.validation import ModelValidationFailedException
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier
from small_loans import fitted, labels, table

import mlflow_cf
from mlflow_cf.cli import main
from mlflow_cf.evaluation.compare.comparison import read_thresholds
from mlflow_cf.evaluation.measure import evaluate as evaluating
from mlflow_cf.evaluation.measure.measured import measured_table
from mlflow_cf.evaluation.names import percent

pytestmark = [
    pytest.mark.usefixtures("undrawn"),
    # MLflow compares column names with a range when it saves a table as input example.
    pytest.mark.filterwarnings("ignore:Operation with range is deprecated"),
]
NUMBERS = ["age", "income"]
NAME = "compared_loans"


@pytest.fixture(scope="module")
def data():
    return table().assign(debts=lambda rows: rows["debts"].fillna(0))


@pytest.fixture(scope="module")
def versions(data):
    """Two explained models: one of all rows, one of those with an income from 30 on."""
    rich = data[data["income"] >= 30].reset_index(drop=True)
    return {
        "old": mlflow_cf.wrap(fitted(data), data, target="good"),
        "new": mlflow_cf.wrap(fitted(rich), data, target="good", explainer="exact"),
    }


@pytest.fixture(scope="module")
def compared(versions, data):
    return mlflow_cf.compare(versions, data.set_index(data.index + 7), groups={"job": None, "age": [40, 77]})


def on_numbers(data, want=1, depth=2, columns=NUMBERS):
    """A tree that looks at some columns alone, in labels where 1 (or `want`) is good."""
    wanted = np.where(labels(data) == "good", want, 0 if want == 1 else "no")
    return DecisionTreeClassifier(max_depth=depth, random_state=0).fit(data[columns], wanted)


def runs_of(comparison):
    client = MlflowClient()
    parent = client.get_run(comparison.run_id)
    children = client.search_runs(
        [parent.info.experiment_id], f"tags.`mlflow.parentRunId` = '{comparison.run_id}'", order_by=["start_time"]
    )
    return parent, {run.info.run_name: run for run in children}


def artifacts(run, folder):
    return {file.path.removeprefix(f"{folder}/") for file in MlflowClient().list_artifacts(run.info.run_id, folder)}


def test_every_version_explains_every_row(compared, data):
    assert compared.versions == ("old", "new")
    assert list(compared.to_frame().index) == [("old", "geco"), ("new", "exact")]
    assert compared.table.groupby("version")["row"].apply(list).map(lambda rows: rows == list(data.index)).all()
    assert {"found", "already"} <= set(compared.table["status"])


def test_metrics_are_means_of_the_table(compared):
    for version, metrics in compared.metrics.items():
        lines = compared.table[compared.table["version"] == version]
        for name in ("coverage", "mixed", "n_changed", "plausibility"):
            assert metrics[f"cf/{name}"] == pytest.approx(lines[name].mean())


def test_survival_is_what_the_other_model_says(compared, versions):
    for issued in versions:
        found = compared.table[(compared.table["version"] == issued) & compared.table["counterfactual"].notna()]
        answers = pd.DataFrame([json.loads(text) for text in found["counterfactual"]])
        for judge, model in versions.items():
            kept = [one.prediction == "good" for one in model.explain(answers, explain="none")]
            assert compared.survival_matrix().loc[issued, judge] == pytest.approx(np.mean(kept))
    assert compared.survival_matrix().loc["old", "old"] == 1
    assert compared.metrics["new"]["cf/survival"] == compared.survival_matrix().loc["old", "new"]
    assert "cf/survival" not in compared.metrics["old"]


def test_the_burden_is_told_by_group_and_tiny_ones_have_no_interval(compared, data):
    burden = compared.burden.query("version == 'new' and measure == 'distance'").set_index("group")
    assert {"", "job.cook", "age.40 to 77"} <= set(burden.index)
    assert burden.loc["", "rows"] == burden.loc[["job.clerk", "job.cook", "job.nurse"], "rows"].sum()
    tiny = burden[burden["rows"] < 5]
    assert len(tiny)
    assert tiny[["low", "high"]].isna().all(axis=None)
    assert tiny["mean"].notna().sum() == (tiny["rows"] > 0).sum()
    assert burden.loc["", ["low", "high", "change"]].notna().all()


def test_differences_are_paired(compared):
    line = compared.differences.set_index("metric").loc["mixed"]
    assert (line["base_version"], line["base_explainer"]) == ("old", "geco")
    assert (line["version"], line["explainer"]) == ("new", "exact")
    old, new = (compared.table[compared.table["version"] == name].set_index("row")["mixed"] for name in ("old", "new"))
    assert line["difference"] == pytest.approx((new - old).mean())
    assert line["low"] <= line["difference"] <= line["high"]


def test_the_run_has_a_child_per_version_tables_and_figures(compared):
    parent, children = runs_of(compared)
    assert parent.info.status == "FINISHED"
    assert set(children) == {"old", "new"}
    assert children["new"].data.metrics["cf/survival"] == compared.metrics["new"]["cf/survival"]
    assert compared.metrics["new"]["cf/coverage/job.cook"] == 1
    assert 0 <= compared.metrics["new"]["cf/survival/job.cook"] <= 1
    for name, child in children.items():
        assert len(child.data.metrics) <= 15
        assert child.data.metrics.items() <= compared.metrics[name].items()
    tables = {f"{name}.json" for name in ("aggregates", "survival", "burden", "advice", "differences", "notes")}
    assert artifacts(parent, "compare") == {"report.html"} | tables | {
        f"{name}.png" for name in ("survival", "burden", "advice", "metrics")
    }
    assert {"geco.parquet", "rows.json", "metrics.json"} <= artifacts(children["old"], "rows")
    assert [one.dataset.name for one in children["old"].inputs.dataset_inputs] == ["rows"]


def test_runs_tell_what_was_compared_and_found(compared):
    parent, children = runs_of(compared)
    told = {"versions": "old, new", "rows": "80", "groups": "job, age", "explainers": "geco", "seed": "0"}
    assert parent.data.params.items() >= {f"cf.compare.{name}": value for name, value in told.items()}.items()
    assert children["new"].data.params["cf.evaluate.explainers"] == "exact"
    survival = percent(compared.metrics["new"]["cf/survival"])
    assert parent.data.tags["mlflow.note.content"].startswith(
        f"**{survival} of the answers of old still hold under new"
    )
    assert children["new"].data.tags["mlflow.note.content"].startswith("**Exact answers ")


def test_it_shows_itself(compared):
    assert "Comparison of old, new" in repr(compared)
    assert "survival" in repr(compared)
    shown = compared._repr_html_()
    assert "<table" in shown
    assert "job.cook" in shown
    assert compared.to_frame().loc[("old", "geco"), "coverage"] == compared.metrics["old"]["cf/coverage"]


def test_a_threshold_names_the_metric_that_falls_short(compared):
    compared.validate({"cf/coverage": MetricThreshold(threshold=0.5, greater_is_better=True)})
    survival = compared.metrics["new"]["cf/survival"]
    gate = {"cf/survival": MetricThreshold(threshold=survival + 0.01, greater_is_better=True)}
    with pytest.raises(ModelValidationFailedException, match=r"new: .*cf/survival"):
        compared.validate(gate)
    with pytest.raises(ModelValidationFailedException, match=r"old: .*cf/survival was missing"):
        compared.validate(gate, version="old")


def test_a_change_is_one_since_the_version_before(compared):
    old, new = compared.metrics["old"]["cf/mixed"], compared.metrics["new"]["cf/mixed"]
    change = MetricThreshold(min_absolute_change=abs(new - old) / 2, greater_is_better=new > old)
    compared.validate({"cf/mixed": change})
    with pytest.raises(ModelValidationFailedException, match="minimum absolute change"):
        compared.validate({"cf/mixed": MetricThreshold(min_absolute_change=1.0, greater_is_better=True)})
    with pytest.raises(ModelValidationFailedException, match="missing from the evaluation result of the baseline"):
        compared.validate({"cf/mixed": change}, version="old")


def test_only_what_was_compared_can_be_gated(compared):
    with pytest.raises(mlflow_cf.InputError, match=r"versions.newer: was not compared; did you mean 'new'"):
        compared.validate({}, version="newer")


def test_explainers_of_one_version_are_compared_with_the_first(versions, data):
    found = mlflow_cf.compare(versions["old"], data, explainers=["geco", "nearest_row", mlflow_cf.GeCo(q=20)])
    assert [explainer for _, explainer in found.to_frame().index] == ["geco", "nearest_row", "geco_2"]
    assert set(found.differences["base_explainer"]) == {"geco"}
    assert set(found.differences["explainer"]) == {"nearest_row", "geco_2"}
    _, children = runs_of(found)
    logged = children["model 1"].data.metrics
    assert logged["cf/geco/mixed"] < logged["cf/nearest_row/mixed"]


def test_plain_models_are_wrapped_like_the_first_explained_one(data):
    first = mlflow_cf.wrap(on_numbers(data), data[NUMBERS], target=1, constraints={"immutable": ["age"]})
    found = mlflow_cf.compare({"plain": on_numbers(data, depth=3), "explained": first}, data)
    assert found.versions == ("plain", "explained")
    assert not found.failed
    plain = found.advice.query("version == 'plain'").set_index("feature")["share"]
    assert plain["age"] == 0
    assert plain["income"] == 1


def test_plain_models_alone_have_no_background(data):
    with pytest.raises(mlflow_cf.InputError, match="none beside it has a background"):
        mlflow_cf.compare([on_numbers(data)], data)


def test_a_plain_model_of_fewer_columns_is_compared_on_these(data):
    first = mlflow_cf.wrap(on_numbers(data), data[NUMBERS], target=1)
    found = mlflow_cf.compare({"first": first, "income": on_numbers(data, columns=["income"])}, data)
    assert not found.failed
    assert any("not all versions have the features 'age'" in note for note in found.notes)
    assert found.survival_matrix().notna().all(axis=None)


def test_a_version_that_needs_another_column_is_refused_with_it(data):
    first = mlflow_cf.wrap(on_numbers(data), data[NUMBERS], target=1)
    wider = mlflow_cf.wrap(on_numbers(data, columns=[*NUMBERS, "debts"]), data[[*NUMBERS, "debts"]], target=1)
    found = mlflow_cf.compare({"first": first, "wider": wider}, data[NUMBERS])
    assert found.versions == ("first",)
    assert "'debts' is missing" in found.failed["wider"]
    with pytest.raises(mlflow_cf.InputError, match=r"wider.*was not compared.*'debts'"):
        found.validate({"cf/coverage": MetricThreshold(threshold=0.1, greater_is_better=True)})


def test_a_target_that_a_version_does_not_know_is_told(data):
    numbers = mlflow_cf.wrap(on_numbers(data), data[NUMBERS], target=1)
    words = mlflow_cf.wrap(on_numbers(data, "yes"), data[NUMBERS], target="yes")
    found = mlflow_cf.compare({"numbers": numbers, "words": words}, data)
    assert any("want different outcomes" in note for note in found.notes)
    assert any("words cannot judge the answers of numbers: target.label" in note for note in found.notes)
    assert np.isnan(found.survival_matrix().loc["numbers", "words"])
    assert found.survival_matrix().loc["words", "words"] == 1


def test_nothing_to_explain_is_told(versions, data):
    good = data[[one.status == "already" for one in versions["old"].explain(data)]]
    found = mlflow_cf.compare({"old": versions["old"]}, good, groups="job")
    assert any(note.startswith("old: no row misses the target") for note in found.notes)
    assert "cf/coverage" not in found.metrics["old"]
    assert runs_of(found)[0].info.status == "FINISHED"


def test_an_interruption_leaves_what_was_measured(versions, data, monkeypatch):
    def interrupted(explained, rows, options):
        if explained is versions["new"]:
            yield measured_table(explained, rows.iloc[:20], options)
            raise KeyboardInterrupt
        yield measured_table(explained, rows, options)

    monkeypatch.setattr(evaluating, "measure_rows", interrupted)
    with pytest.raises(KeyboardInterrupt, match="20 by exact"):
        mlflow_cf.compare(versions, data)
    [parent, *_] = mlflow.search_runs(filter_string="run_name = 'compare old to new'", output_format="list")
    children = runs_of(SimpleNamespace(run_id=parent.info.run_id))[1]
    assert parent.info.status == "FAILED"
    assert {name: run.info.status for name, run in children.items()} == {"old": "FINISHED", "new": "FAILED"}
    assert all("cf/coverage" in run.data.metrics for run in children.values())
    assert {"survival.json", "burden.json"} <= artifacts(parent, "compare")


def test_a_version_that_breaks_is_reported(versions, data, monkeypatch):
    def broken(explained, rows, options):
        if explained is versions["old"]:
            raise RuntimeError("out of order")
        yield measured_table(explained, rows, options)

    monkeypatch.setattr(evaluating, "measure_rows", broken)
    found = mlflow_cf.compare(versions, data)
    assert found.versions == ("new",)
    assert found.failed == {"old": "RuntimeError: out of order"}
    with pytest.raises(mlflow_cf.InputError, match=r"none could be evaluated \(old: RuntimeError"):
        mlflow_cf.compare({"old": versions["old"]}, data)


def test_an_explainer_that_refuses_is_reported(versions, data):
    wide = mlflow_cf.wrap(fitted(data), data, target="good", privacy={"sample": "summary"})
    found = mlflow_cf.compare({"old": versions["old"], "private": wide}, data, explainers=["geco", "nearest_row"])
    assert found.versions == ("old", "private")
    assert list(found.failed) == ["private nearest_row"]
    assert ("private", "nearest_row") not in found.to_frame().index


def test_everything_happens_in_the_active_run(versions, data):
    with mlflow.start_run() as run:
        mlflow.set_tag("mlflow.note.content", "mine")
        found = mlflow_cf.compare({"old": versions["old"]}, data.head(30))
    assert found.run_id == run.info.run_id
    assert mlflow.get_run(found.run_id).data.tags["mlflow.note.content"] == "mine"
    assert set(runs_of(found)[1]) == {"old"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"groups": "jb"}, "groups.jb: not a column of rows; did you mean 'job'"),
        ({"explainers": "geco"}, "explainers: 'geco' is not a list of explainers"),
        ({"versions": [1]}, "are those of one registered model"),
    ],
)
def test_mistakes_are_told_before_anything_is_measured(versions, data, options, message):
    with pytest.raises(mlflow_cf.InputError, match=message):
        mlflow_cf.compare(versions, data, **options)


@pytest.fixture(scope="module")
def registered(data):
    """Three registered versions: explained, plain, and explained again; then one that was never uploaded."""
    client = MlflowClient()
    for depth in (2, 3):
        info = mlflow_cf.log_model(
            on_numbers(data, depth=depth), "loans", data[NUMBERS], target=1, registered_model_name=NAME
        )
        if depth == 2:
            plain = LogisticRegression().fit(data[NUMBERS], (labels(data) == "good").astype(int))
            logged = mlflow.sklearn.log_model(plain, name="plain", pip_requirements=[], skops_trusted_types=[])
            mlflow.register_model(logged.model_uri, NAME)
    client.set_registered_model_alias(NAME, "champion", "1")
    return info


def test_versions_are_found_by_name(registered, data):
    found = mlflow_cf.compare(NAME, data)
    assert found.versions == (f"{NAME}/1", f"{NAME}/2", f"{NAME}/3")
    assert found.newest == f"{NAME}/3"
    assert not found.failed


def test_versions_are_named_by_number_or_alias(registered, data):
    found = mlflow_cf.compare(NAME, data, versions=["champion", 3])
    assert found.versions == (f"{NAME}/1", f"{NAME}/3")
    _, children = runs_of(found)
    tags = children[f"{NAME}/3"].data.tags
    assert (tags["cf.registered_model"], tags["cf.registered_version"]) == (NAME, "3")
    assert tags["cf.model_id"] == registered.model_id
    with pytest.raises(mlflow_cf.InputError, match=r"versions.challenger: .* has no such version or alias"):
        mlflow_cf.compare(NAME, data, versions=["challenger"])


def test_metrics_go_to_the_right_logged_model(registered, data):
    found = mlflow_cf.compare([f"models:/{NAME}@champion", registered.model_uri], data, groups="job")
    child = mlflow.get_run(runs_of(found)[1][registered.model_id].info.run_id)
    model = mlflow.get_logged_model(registered.model_id)
    ours = {one.key: one for one in model.metrics if one.run_id == child.info.run_id}
    assert ours["cf/survival"].value == found.metrics[registered.model_id]["cf/survival"]
    assert ours["cf/coverage"].dataset_name == "rows"
    assert [one.model_id for one in child.inputs.model_inputs] == [registered.model_id]


def test_a_version_that_cannot_be_loaded_is_reported(registered, data, tmp_path):
    (tmp_path / "gone").mkdir()
    client = MlflowClient()
    name = "broken_loans"
    client.create_registered_model(name)
    client.create_model_version(name, registered.model_uri)
    client.create_model_version(name, (tmp_path / "gone").as_uri())
    found = mlflow_cf.compare(name, data)
    assert found.versions == (f"{name}/1",)
    assert "cannot be loaded" in found.failed[f"{name}/2"]
    assert found.newest == f"{name}/2"
    assert "left out: broken_loans/2" in repr(found)
    with pytest.raises(mlflow_cf.InputError, match="was not compared: cannot be loaded"):
        found.validate({})


def test_failed_logged_models_are_ignored(registered, data):
    with pytest.raises(MlflowException), mlflow.start_run():
        mlflow.pyfunc.log_model(name="broken", python_model=object())
    failed = mlflow.search_logged_models(filter_string="name = 'broken'", output_format="list")
    assert failed[0].status.name == "FAILED"
    found = mlflow_cf.compare([registered.model_uri, f"models:/{failed[0].model_id}"], data)
    assert found.versions == (registered.model_id,)
    assert any("marked as FAILED" in note for note in found.notes)
    assert not found.failed


def test_a_name_that_nobody_registered(registered, data):
    with pytest.raises(mlflow_cf.InputError, match=f"no version is registered as '{NAME}s'; did you mean '{NAME}'"):
        mlflow_cf.compare(f"{NAME}s", data)


@pytest.fixture(scope="module")
def rows_file(data, tmp_path_factory):
    file = tmp_path_factory.mktemp("compare") / "rows.csv"
    data.to_csv(file, index=False)
    return str(file)


def test_the_command_passes_and_fails(registered, rows_file):
    words = ["compare", NAME, "--text", "--rows", rows_file, "--versions", "1,3", "--group", "job"]
    passed = CliRunner().invoke(main, [*words, "--threshold", "cf/coverage>=0.5", "-t", "cf/n_changed <= 2"])
    assert passed.exit_code == 0, passed.output
    assert f"{NAME}/3 passes" in passed.output
    assert "issued" in passed.output
    failed = CliRunner().invoke(main, [*words, "--threshold", "cf/n_changed<=0.5", "-t", "cf/coverage>=0.1"])
    assert failed.exit_code == 1
    assert "Metric cf/n_changed value threshold check failed" in failed.output
    assert "Metric cf/coverage" not in failed.output


def test_thresholds_are_read():
    found = read_thresholds(["cf/coverage/sex: F >= 0.9", "cf/mixed<=1e-1"])
    assert found["cf/coverage/sex: F"].greater_is_better
    assert (found["cf/mixed"].threshold, found["cf/mixed"].greater_is_better) == (0.1, False)
    for wrong in ("cf/coverage", "cf/coverage>0.9", "cf/coverage>=much", ">=1", "cf/coverage>=1.2.3"):
        with pytest.raises(mlflow_cf.InputError, match="no metric, >= or <=, and number"):
            read_thresholds([wrong])
    with pytest.raises(mlflow_cf.InputError, match="has two"):
        read_thresholds(["cf/mixed<=1", "cf/mixed>=0"])


def test_many_rows_are_compared_block_by_block(compared, versions, data, monkeypatch):
    monkeypatch.setattr("mlflow_cf.evaluation.compare.versions_compared.BOOTSTRAPPED", 10)
    monkeypatch.setattr("mlflow_cf.evaluation.compare.versions_compared.FIRST", 10)
    monkeypatch.setattr("mlflow_cf.evaluation.compare.streamed.summed_lines.__defaults__", (16,))
    found = mlflow_cf.compare(versions, data.set_index(data.index + 7), groups={"job": None, "age": [40, 77]})
    values = {
        "survival": ["answers", "survival", "probability_lost"],
        "burden": ["rows", "mean", "change"],
        "advice": ["answers", "share", "change"],
        "differences": ["rows", "before", "after", "difference"],
    }
    for name, columns in values.items():
        one, other = getattr(found, name), getattr(compared, name)
        assert list(one.columns) == list(other.columns)
        key = [column for column in one.columns if one[column].dtype == "str" and column != "verdict"]
        both = one.merge(other, on=key, suffixes=("", "_here"))
        both = both[both["metric"] != "seconds"] if "metric" in key else both
        assert len(one) == len(other)
        for column in columns:
            np.testing.assert_allclose(both[column], both[f"{column}_here"], rtol=1e-12, atol=1e-12)
    for version, metrics in compared.metrics.items():
        timeless = {name for name in metrics if "seconds" not in name}
        assert {name: found.metrics[version][name] for name in timeless} == pytest.approx(
            {name: metrics[name] for name in timeless}, rel=1e-12, abs=1e-12
        )
    assert found.columns == compared.columns
    assert found.table.shape == compared.table.shape
    assert found.report
