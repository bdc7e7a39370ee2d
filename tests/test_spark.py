"""Rows of Spark data frames, explained by real workers of a local Spark."""

import os
import subprocess
import sys
from decimal import Decimal
from importlib import import_module

import mlflow
import numpy as np
import pandas as pd
import pytest
import small_loans

import mlflow_cf
from mlflow_cf.errors import ArtifactError, InputError

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException

from mlflow_cf.spark import background, explain

OF_FUNCTIONS = {
    "target": 1,
    "output": "label",
    "allow_functions": True,
    "limits": small_loans.PATIENT,
    "pip_requirements": [],
}
ALL = {"count": 2, "region": True, "levers": 1, "responsiveness": True, "reasons": True, "why_not": "full"}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Return the folder of a saved model."""
    data = small_loans.table()
    folder = tmp_path_factory.mktemp("spark") / "model"
    options = {"target": "good", "constraints": small_loans.CONSTRAINTS, "pip_requirements": ["scikit-learn"]}
    mlflow_cf.save_model(small_loans.fitted(data), folder, data, limits=small_loans.PATIENT, **options)
    return folder


@pytest.fixture(scope="module")
def explained(saved):
    return mlflow_cf.load_model(saved)


@pytest.fixture(scope="module")
def rows():
    """Return 50 rows with a key."""
    rows = small_loans.table().head(50)
    return rows.assign(id=[f"p{number:02}" for number in range(50)])


@pytest.fixture(scope="module")
def frame(spark, rows):
    """Return the same in Spark, in three partitions."""
    return in_spark(spark, rows, SCHEMA).repartition(3)


def in_spark(spark, rows, schema):
    """Return rows in Spark, without pandas' own way there: pyspark does not yet know all of pandas 3."""
    plain_rows = rows.astype(object).where(rows.notna(), None).itertuples(index=False, name=None)
    moment = pd.Timestamp
    values = [[one.to_pydatetime() if isinstance(one, moment) else one for one in row] for row in plain_rows]
    return spark.createDataFrame(values, schema)


SCHEMA = "age bigint, income double, job string, owner boolean, debts double, id string"


def plain(value):
    """Return what Spark collects as the values of a reply; keys of nested objects are in another order there."""
    if hasattr(value, "asDict"):
        value = value.asDict()
    if isinstance(value, dict):
        return {key: plain(one) for key, one in sorted(value.items())}
    return [plain(one) for one in value] if isinstance(value, list) else value


def answers(frame, *keys):
    """Return the replies by key."""
    collected = (plain(row) for row in frame.collect())
    return {tuple(row.pop(key) for key in keys): row for row in collected}


def expected(explained, rows, params):
    records = explained.request(rows, params).to_records().to_dict("records")
    return {(key,): plain(record) for key, record in zip(rows["id"], records, strict=True)}


@pytest.mark.parametrize("options", [{}, ALL, {"target": {"label": "good", "ladder": [0.5, 0.7]}}, {"explain": "all"}])
def test_answers_are_those_of_the_model_in_this_process(saved, explained, frame, rows, options):
    params = {"counterfactual": options}
    assert answers(explain(frame, saved, params, key="id"), "id") == expected(explained, rows, params)


def test_columns_are_typed_whatever_they_hold(saved, frame):
    asked, none = (explain(frame, saved, {"counterfactual": one}, key="id") for one in (ALL, {"explain": "none"}))
    assert asked.schema == none.schema
    kinds = {field.name: field.dataType.simpleString() for field in asked.schema}
    assert list(kinds)[:5] == ["id", "prediction", "probability", "status", "reason"]
    assert kinds["prediction"] == "string"
    assert "row:struct<age:bigint,debts:double,income:double,job:string,owner:boolean>" in kinds["counterfactuals"]
    assert none.filter("size(counterfactuals) > 0").count() == 0


def test_all_columns_are_kept_without_a_key(saved, frame, rows):
    found = explain(frame.withColumn("twice", frame.age * 2), saved)
    assert found.columns[: len(rows.columns) + 2] == [*rows.columns, "twice", "prediction"]
    kept = {row.id: row.twice for row in found.select("id", "twice").collect()}
    assert kept == dict(zip(rows["id"], rows["age"] * 2, strict=True))
    assert explain(frame, saved, key=["job", "id"]).columns[:3] == ["job", "id", "prediction"]


def test_null_keys_are_kept_and_nothing_is_lost(saved, spark, rows):
    frame = in_spark(spark, rows.assign(id=[None, None, *rows["id"][2:]]), SCHEMA)
    found = explain(frame, saved, {"counterfactual": {"explain": "none"}}, key="id").select("id").collect()
    assert sorted(str(row.id) for row in found) == ["None", "None", *rows["id"][2:]]


def test_rows_that_cannot_be_read_are_invalid(saved, spark, explained, rows):
    frame = in_spark(spark, rows.assign(income=rows["income"].where(rows.index >= 20, np.inf)), SCHEMA).coalesce(1)
    found = answers(explain(frame, saved, key="id"), "id")
    assert len(found) == 50
    assert {found[key,]["status"] for key in rows["id"][:20]} == {"invalid"}
    assert found["p03",]["reason"].startswith("income: inf is no finite number")
    for key, good in expected(explained, rows[20:], {}).items():
        # a linear model's last digit depends on how many rows it is asked about together
        assert found[key].pop("probability") == pytest.approx(good.pop("probability"), rel=1e-12)
        assert found[key] == good


def test_no_rows_and_empty_partitions(saved, frame):
    assert explain(frame.filter("age > 1000"), saved, key="id").collect() == []
    assert explain(frame.limit(2).repartition(7), saved, key="id").count() == 2


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (lambda df: df.drop("income"), {}, "df.income: column is missing"),
        (lambda df: df.withColumnRenamed("age", "agee"), {}, "df.age: column is missing; did you mean 'agee'?"),
        (lambda df: df.select("*", df.age), {}, "df.age: two columns have this name"),
        (lambda df: df, {"key": "idd"}, "key.idd: not a column of df; did you mean 'id'?"),
        (
            lambda df: df.withColumnRenamed("id", "status"),
            {"key": "status"},
            "key.status: a reply has a column of this name",
        ),
        (lambda df: df, {"params": {"counterfactual": {"cuont": 1}}}, "cuont: not a known key; did you mean 'count'?"),
    ],
)
def test_mistakes_are_told_by_the_driver_at_once(saved, frame, change, options, message):
    with pytest.raises(InputError, match=message.replace("?", r"\?")):
        explain(change(frame), saved, **{"key": "id", **options})


def test_debts_may_be_left_out(saved, frame, explained, rows):
    found = answers(explain(frame.drop("debts"), saved, key="id"), "id")
    assert found == expected(explained, rows.assign(debts=np.nan), {})


def test_no_model_or_another_one_is_told_at_once(frame, tmp_path, saved):
    with pytest.raises(InputError, match="'models:/nobody/1' cannot be fetched"):
        explain(frame, "models:/nobody/1", key="id")
    with pytest.raises(ArtifactError, match="names no explained model"):
        explain(frame, saved / "model", key="id")


def test_workers_that_cannot_open_the_model_are_told_at_once(frame, tmp_path):
    """The model is one of a module that the driver has, and workers have not."""
    data = small_loans.table()
    (tmp_path / "of_the_driver.py").write_text(
        "def score(rows):\n    return (rows['income'] > 40).astype(int).to_numpy()\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        of_the_driver = import_module("of_the_driver")

        mlflow_cf.save_model(of_the_driver.score, tmp_path / "model", data, validate="here", **OF_FUNCTIONS)
        with pytest.raises(
            InputError, match=r"(?s)workers: cannot open the model .*of_the_driver|model: .*of_the_driver"
        ):
            explain(frame, tmp_path / "model", key="id")
    sys.modules.pop("of_the_driver")


DIES = """
import os
from pathlib import Path

MARK = Path({mark!r})


def score(rows):
    if "pyspark.worker" in __import__("sys").modules and (rows["income"] == {canary}).any() and not MARK.exists():
        MARK.touch()
        os._exit(9)
    return (rows["income"] > 40).astype(int).to_numpy()
"""


def test_a_worker_that_dies_is_replaced_with_the_same_answers(spark, tmp_path):
    data = small_loans.table()
    mark = tmp_path / "died"
    (tmp_path / "mortal.py").write_text(DIES.format(mark=str(mark), canary=small_loans.CANARY))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        mortal = import_module("mortal")

        model = tmp_path / "model"
        mlflow_cf.save_model(mortal.score, model, data.iloc[:-1], code_paths=[tmp_path / "mortal.py"], **OF_FUNCTIONS)
        rows = data.assign(id=[f"p{number:02}" for number in range(len(data))])
        frame = in_spark(spark, rows, SCHEMA)
        found = answers(explain(frame, model, key="id"), "id")
        assert mark.exists()
        assert found == expected(mlflow_cf.load_model(model), rows, {})
    sys.modules.pop("mortal")


def test_dates_decimals_and_labels_of_spark(spark, tmp_path):
    """Moments have the session's zone in Spark, and none in the model; numbers of SQL are decimals."""
    rng = np.random.default_rng(0)
    data = pd.DataFrame(
        {
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, 60), unit="D"),
            "there": (pd.Timestamp("2020-07-01") + pd.to_timedelta(rng.integers(0, 900, 60), unit="h")).tz_localize(
                "UTC"
            ),
            "ratio": rng.integers(0, 100, 60) / 4,
            "stars": pd.Categorical(rng.integers(1, 5, 60), [1, 2, 3, 4], ordered=True),
        }
    )
    model = tmp_path / "model"
    mlflow_cf.save_model(later, model, data, validate="here", **OF_FUNCTIONS)
    rows = data.head(20).assign(id=[f"p{number:02}" for number in range(20)])
    raw = rows.assign(
        since=rows["since"].dt.tz_localize("Europe/Vienna"),
        ratio=[Decimal(str(one)) for one in rows["ratio"]],
        stars=rows["stars"].astype(int),
    )
    kinds = "since timestamp, there timestamp, ratio decimal(10,2), stars int, id string"
    found = answers(explain(in_spark(spark, raw, kinds), model, key="id"), "id")
    assert found == expected(mlflow_cf.load_model(model), rows, {})
    assert {one["status"] for one in found.values()} >= {"found", "already"}


def later(rows):
    return ((pd.to_datetime(rows["since"]).dt.year > 2020) & (rows["ratio"] > 12)).astype(int).to_numpy()


@pytest.mark.parametrize("options", [{}, ALL, {"target": {"label": "good", "ladder": [0.5, 0.7]}}])
def test_the_artifact_works_in_a_udf_of_mlflow(saved, explained, spark, rows, options):
    params = {"counterfactual": options}
    found = spark_udf(spark, saved, rows, params)
    for row, record in zip(found, explained.request(rows, params).to_records().to_dict("records"), strict=True):
        for one in record["counterfactuals"]:  # MLflow has no null for a list or an object
            one["region"] = one["region"] or []
            one["solver"] = dict.fromkeys(("objective", "value", "bound", "proof"))
            one["survival"] = dict.fromkeys(("holds", "at_least", "confidence", "agreeing", "models"))
        assert plain(row) == plain(record)


def spark_udf(spark, saved, rows, params):
    names = rows.columns[:5]
    frame = in_spark(spark, rows, SCHEMA).coalesce(1)
    udf = mlflow.pyfunc.spark_udf(spark, str(saved), env_manager="local", params=params)
    return [row.answer for row in frame.withColumn("answer", udf(*names)).select("answer").collect()]


def test_what_solvers_and_plans_say_gets_through_a_udf(spark, tmp_path):
    data = small_loans.table()
    folder = tmp_path / "model"
    options = {"target": "good", "explainer": "ceocl", "pip_requirements": ["scikit-learn"]}
    mlflow_cf.save_model(small_loans.fitted(data), folder, data, limits=small_loans.PATIENT, **options)
    found = spark_udf(spark, folder, data.head(10).assign(id="p"), {"counterfactual": {}})
    proofs = {one.solver.proof for row in found for one in row.counterfactuals}
    expected = mlflow_cf.load_model(folder).predict(data.head(10))["counterfactuals"]
    assert proofs == {(one["solver"] or {}).get("proof") for several in expected for one in several}


def test_a_row_that_cannot_be_predicted_is_told_in_a_udf(saved, spark, rows):
    bad = rows.assign(income=rows["income"].where(rows.index != 3, np.inf))
    with pytest.raises(PySparkException, match="has no null for a row that cannot be predicted"):
        spark_udf(spark, saved, bad, {})


def counted_frame(rows):
    rng = np.random.default_rng(0)
    holes = rng.random(rows) < 0.3
    return pd.DataFrame(
        {
            "whole": rng.integers(0, 9, rows) * 500,
            "holes": np.where(holes, np.nan, rng.integers(0, 7, rows) * 2.0),
            "real": rng.normal(size=rows),
            "many": rng.integers(0, 10**6, rows) * 5,
            "flag": rng.random(rows) < 0.5,
            "name": pd.Series(np.where(holes, None, rng.choice(["x", "y"], rows)), dtype=object),
            "good": rng.choice(["yes", "no"], rows),
        }
    )


COUNTED = "whole bigint, holes double, real double, many bigint, flag boolean, name string, good string"


@pytest.mark.parametrize("sample", [40, 500])
def test_a_background_of_a_data_frame_is_that_of_files(spark, tmp_path, sample):
    data = counted_frame(200)
    groups = [["flag", "name"]]
    found = background(
        in_spark(spark, data, COUNTED).repartition(3), labels="good", groups=groups, sample=sample, seed=1
    )
    data.to_parquet(tmp_path / "rows.parquet")
    other = mlflow_cf.Background.from_parquet(tmp_path / "rows.parquet", labels="good", groups=groups, sample=sample)
    names = list(found.rows.columns)
    assert found.rows.dtypes.to_dict() == other.rows.dtypes.to_dict()
    assert (found.total, len(found), len(found.labels)) == (200, min(sample, 200), min(sample, 200))
    space, expected = found.space(names), other.space(names)
    for one, same in zip(space.features, expected.features, strict=True):
        facts, others = one.to_dict(), same.to_dict()
        if sample < 200 and one.name in ("real", "many"):  # by the values of another sample
            codes = np.sort(data[one.name].to_numpy(dtype=float))
            assert one.counts.tolist() == np.histogram(codes, np.append(one.values, np.inf))[0].tolist()
            for key in ("values", "counts", "mad"):
                facts.pop(key), others.pop(key)
        assert facts == pytest.approx(others) if isinstance(facts, float) else facts == others
    assert [joint.to_dict() for joint in space.joint] == [joint.to_dict() for joint in expected.joint]
    pairs = set(map(tuple, data.astype(object).where(data.notna(), "-").itertuples(index=False)))
    drawn = found.rows.assign(good=found.labels)
    assert set(map(tuple, drawn.astype(object).where(drawn.notna(), "-").itertuples(index=False))) <= pairs


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": "goood"}, "df.goood: column is missing; did you mean 'good'"),
        ({"columns": ["flagg"]}, "df.flagg: column is missing; did you mean 'flag'"),
        ({"groups": [["naem"]]}, "df.naem: column is missing; did you mean 'name'"),
    ],
)
def test_columns_that_a_background_lacks_are_told(spark, options, message):
    with pytest.raises(InputError, match=message):
        background(in_spark(spark, counted_frame(5), COUNTED), **options)


def test_nothing_imports_spark_unasked():
    """MLflow itself imports pyspark where it is installed."""
    code = "import sys, mlflow_cf, mlflow_cf.cli; sys.exit('mlflow_cf.spark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, env=os.environ).returncode == 0
