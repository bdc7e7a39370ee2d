"""Evaluations and comparisons of Spark data frames: the figures of the same rows in one process, by real workers."""

import json

import mlflow
import numpy as np
import pandas as pd
import pytest
import small_loans

import mlflow_cf
from mlflow_cf.errors import InputError

pytest.importorskip("pyspark")

from mlflow_cf.evaluation.measure.lines import groupers_of, groups_of
from mlflow_cf.spark import measuring
from mlflow_cf.spark.grouping import Grouping, joined, plain_column

pytestmark = pytest.mark.usefixtures("undrawn")

SCHEMA = (
    "age bigint, income double, job string, owner boolean, debts double, day timestamp_ntz, when date, frac double, "
    "few int, good string"
)
GROUPS = ["job", "age", "day", "when", "frac", "owner", "debts", "few"]
TABLES = {
    "survival": ["answers", "survival", "probability_lost"],
    "burden": ["rows", "mean", "change"],
    "advice": ["answers", "share", "change"],
    "differences": ["rows", "before", "after", "difference"],
}


def save(folder, data, **options):
    options |= {"target": "good", "limits": small_loans.PATIENT, "pip_requirements": ["scikit-learn"]}
    mlflow_cf.save_model(small_loans.fitted(data), folder, data, **options)
    return folder


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The folders of two models."""
    data, folder = small_loans.table(), tmp_path_factory.mktemp("models")
    few = data[data["age"] > 30].reset_index(drop=True)
    return {
        "old": save(folder / "old", data, constraints=small_loans.CONSTRAINTS),
        "new": save(folder / "new", few),
    }


@pytest.fixture(scope="module")
def rows():
    """Return 70 rows, one of which cannot be read."""
    table = small_loans.table().head(70)
    number = np.arange(70)
    return table.assign(
        income=table["income"].where(number != 3, np.inf),
        day=pd.date_range("2020-01-01", periods=70, freq="13h"),
        when=pd.Timestamp("2021-05-01") + pd.to_timedelta(number % 7, unit="D"),
        frac=np.where(number % 11 == 5, np.nan, np.linspace(-2, 9.99, 70)),
        few=number % 4,
        good=np.where(table["income"] > 40, "good", "bad"),
    )


def in_spark(spark, rows):
    plain = rows.astype(object).where(rows.notna(), None).itertuples(index=False, name=None)
    moment = pd.Timestamp
    values = [[one.to_pydatetime() if isinstance(one, moment) else one for one in row] for row in plain]
    return spark.createDataFrame(values, SCHEMA)


@pytest.fixture(scope="module")
def frame(spark, rows):
    return in_spark(spark, rows).repartition(3)


def same(found, expected):
    """Check that metrics are equal, but for times."""
    assert set(found) == set(expected)
    for name, value in expected.items():
        if "seconds" not in name:
            assert found[name] == pytest.approx(value, rel=1e-12, abs=1e-12), name


@pytest.mark.parametrize("options", [{}, {"explainers": ["geco", "nearest_row"], "count": 2, "risk": True}])
def test_figures_are_those_of_the_rows_in_this_process(saved, frame, rows, options):
    asked = {"groups": GROUPS, "labels": "good", **options}
    found, expected = (mlflow_cf.evaluate(saved["old"], each, **asked) for each in (frame, rows))
    plain = {name: value for name, value in expected.metrics.items() if "/risk/" not in name}
    same({name: value for name, value in found.metrics.items() if "/risk/" not in name}, plain)
    assert found.metrics["cf/seconds_p50"] == pytest.approx(expected.metrics["cf/seconds_p50"], rel=50)
    assert found.total == 70
    assert found.ranking[0] == "geco"
    assert found.notes[0].startswith("figures are those of all rows; lines, distances in pictures, and the report show")
    assert set(found.logged) == set(expected.logged)
    run = mlflow.get_run(found.run_id)
    assert run.data.params["cf.evaluate.rows"] == "70"
    assert run.data.metrics["cf/coverage"] == expected.metrics["cf/coverage"]
    assert len(found.table) == 70 * len(found.ranking)
    assert found.report


def test_a_sample_is_shown_and_drawn_by_the_seed_however_rows_are_parted(saved, frame, monkeypatch):
    monkeypatch.setattr(measuring.Rows.sample, "__defaults__", (20,))
    samples = [mlflow_cf.evaluate(saved["old"], one, seed=seed) for one, seed in
               ((frame, 1), (frame.repartition(5), 1), (frame, 2))]  # fmt: skip
    tables = [one.rows.sort_values(list(one.rows.columns), ignore_index=True) for one in samples]
    assert len(tables[0]) == 20
    pd.testing.assert_frame_equal(tables[0], tables[1])
    assert not tables[0].equals(tables[2])
    assert {one.metrics["cf/rows"] for one in samples} == {70.0}
    assert len(samples[0].table) == 20
    assert "show 20 of the 70 rows" in samples[0].notes[0]
    assert "Evaluation of 70 rows" in repr(samples[0])


def test_nothing_but_invalid_rows_in_a_block_ends_nothing(saved, spark, rows):
    bad = rows.assign(income=rows["income"].where(rows.index >= 20, np.inf))
    found = mlflow_cf.evaluate(saved["old"], in_spark(spark, bad).coalesce(1))
    assert found.metrics["cf/status/invalid"] == 20
    assert found.metrics["cf/rows"] == 70
    whole = mlflow_cf.evaluate(saved["old"], bad)
    same(found.metrics, whole.metrics)


@pytest.mark.parametrize("options", [{}, {"explainers": ["geco", "nearest_row"]}])
def test_versions_are_compared_as_in_this_process(saved, frame, rows, options):
    asked = {"groups": ["job", "age"], "labels": "good", **options}
    found, expected = (mlflow_cf.compare(saved, each, **asked) for each in (frame, rows))
    assert found.versions == ("old", "new")
    for version in found.versions:
        same(found.metrics[version], expected.metrics[version])
    for name, values in TABLES.items():
        one, other = getattr(found, name), getattr(expected, name)
        assert list(one.columns) == list(other.columns)
        key = [column for column in one.columns if one[column].dtype == "str" and column != "verdict"]
        joined_tables = one.merge(other, on=key, suffixes=("", "_here"))
        assert len(joined_tables) == len(one) == len(other)
        if "metric" in key:
            joined_tables = joined_tables[joined_tables["metric"] != "seconds"]
        for value in values:
            pd.testing.assert_series_equal(
                joined_tables[value], joined_tables[f"{value}_here"], rtol=1e-12, atol=1e-12, check_names=False
            )
    assert found.survival_matrix().round(12).equals(expected.survival_matrix().round(12))
    assert (found.failed, found.report) == ({}, "compare/report.html")
    assert len(found.table) == len(expected.table)


def test_models_in_memory_are_left_out_of_comparisons(saved, frame):
    found = mlflow_cf.compare({"old": saved["old"], "here": mlflow_cf.load_model(saved["new"])}, frame)
    assert found.versions == ("old",)
    assert "sent explained models that were logged or saved" in found.failed["here"]


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (lambda df: df.drop("income"), {}, "df.income: column is missing"),
        (lambda df: df.filter("age > 1000"), {}, "rows: there are none"),
        (lambda df: df, {"labels": "goood"}, "labels: 'goood' is no column of rows; did you mean 'good'?"),
        (lambda df: df, {"labels": [1, 2]}, "labels: a list beside a data frame of Spark; name its column"),
        (lambda df: df, {"groups": ["jobb"]}, "groups.jobb: 'jobb' is no column of rows; did you mean 'job'?"),
        (lambda df: df, {"groups": {"job": [3]}}, "groups.job: bins need numbers"),
        (lambda df: df, {"explainers": ["gecco"]}, "did you mean 'geco'"),
        (lambda df: df, {"metrics": "cf/gower"}, "metrics: 'cf/gower' is not a list of names"),
        (lambda df: df, {"count": 1_000}, "count"),
    ],
)
def test_mistakes_are_told_before_anything_is_measured(saved, frame, change, options, message):
    with pytest.raises(InputError) as error:
        mlflow_cf.evaluate(saved["old"], change(frame), **options)
    assert message in error.value.message


def test_a_model_in_memory_cannot_be_sent(saved, frame):
    with pytest.raises(InputError, match="workers cannot be sent a model that is in memory alone; log it"):
        mlflow_cf.evaluate(mlflow_cf.load_model(saved["old"]), frame)


def test_many_texts_are_no_groups(saved, spark, rows):
    many = in_spark(spark, rows.assign(job=[f"job {number}" for number in range(70)]))
    with pytest.raises(InputError, match=r"groups.job: 70 different values"):
        mlflow_cf.evaluate(saved["old"], many, groups="job")


def test_groups_are_those_of_pandas(spark):
    """Integers, fractions, few values, days, infinite and missing ones; also where quartiles lie between two values."""
    rng = np.random.default_rng(0)
    for count in (12, 13, 14, 15, 41):
        table = pd.DataFrame({
            "whole": rng.integers(-20, 900, count),
            "skew": np.where(rng.random(count) < 0.8, 0, rng.integers(0, 40, count)),
            "real": rng.lognormal(size=count).round(4),
            "odd": np.where(np.arange(count) == 2, np.inf, np.where(np.arange(count) == 4, np.nan, rng.random(count))),
            "day": pd.Timestamp("2020-02-20") + pd.to_timedelta(rng.integers(0, 90, count), unit="D"),
        })  # fmt: skip
        plain = table.astype(object).where(table.notna(), None).itertuples(index=False, name=None)
        values = [[one.to_pydatetime() if isinstance(one, pd.Timestamp) else one for one in row] for row in plain]
        df = spark.createDataFrame(values, "whole int, skew bigint, real double, odd double, day timestamp_ntz")
        names = list(table.columns)
        found = Grouping.of(df, names)
        assert found.groupers == groupers_of(table, names)
        labels = groups_of(table, names)
        told = {(name, label) for name in names for label in labels[name]}
        assert told <= set(found.groups)
        batch = joined(df.coalesce(1).toArrow())
        for name in names:
            own = found.groupers[name].labels(plain_column(batch, name))
            assert own.where(labels[name] != "missing", "missing").tolist() == labels[name].tolist()


def test_pages_of_a_run_say_what_is_of_a_sample(saved, frame, monkeypatch):
    monkeypatch.setattr(measuring.Rows.sample, "__defaults__", (20,))
    found = mlflow_cf.evaluate(saved["old"], frame, groups=["job"])
    page = mlflow.artifacts.load_text(f"runs:/{found.run_id}/{found.report}")
    assert "20 of the 70 rows, drawn by the seed" in page
    table = json.loads(mlflow.artifacts.load_text(f"runs:/{found.run_id}/counterfactual/metrics.json"))
    at = table["columns"].index("metric")
    value = table["columns"].index("value")
    assert next(line[value] for line in table["data"] if line[at] == "rows") == 70
