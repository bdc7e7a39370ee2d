"""Backgrounds of more rows than an artifact holds: counts of all rows, against those of a table of all."""

import mlflow
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import small_loans
from hypothesis import given
from hypothesis import strategies as st

import mlflow_cf
from mlflow_cf import Background
from mlflow_cf.backgrounds import background as module
from mlflow_cf.errors import InputError
from mlflow_cf.features import FeatureSpace


def written(folder, rows, parts=3, **options):
    """Write rows as a folder of parquet files."""
    folder.mkdir(exist_ok=True)
    for number, part in enumerate(np.array_split(np.arange(len(rows)), parts)):
        rows.iloc[part].to_parquet(folder / f"part-{number}.parquet", index=False, **options)
    return folder


def same_space(found: FeatureSpace, expected: FeatureSpace) -> None:
    for one, other in zip(found.features, expected.features, strict=True):
        facts, others = one.to_dict(), other.to_dict()
        assert facts.pop("mad") == pytest.approx(others.pop("mad"), rel=1e-12)
        assert facts == others


def mixed(rows, seed):
    """Return a table with a column of every kind."""
    rng = np.random.default_rng(seed)
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 90, rows), unit="D")
    holes = rng.random(rows) < 0.3
    return pd.DataFrame(
        {
            "whole": rng.integers(0, 9, rows) * 500,
            "small": rng.integers(-4, 4, rows).astype(np.int8),
            "holes": np.where(holes, np.nan, rng.integers(0, 7, rows) * 2.0),
            "real": rng.normal(size=rows).round(1),
            "single": rng.normal(size=rows).round(1).astype(np.float32),
            "flag": rng.random(rows) < 0.5,
            "flag, holes": pd.Series(np.where(holes, None, rng.random(rows) < 0.5), dtype=object),
            "name": rng.choice(["a", "b", "c"], rows),
            "name, holes": pd.Series(np.where(holes, None, rng.choice(["x", "y"], rows)), dtype=object),
            "day": days,
            "there": days.tz_localize("Europe/Vienna"),
            "still": 7,
            "nothing": np.nan,
        }
    )


@given(st.integers(2, 300), st.integers(0, 1_000), st.integers(1, 4), st.integers(1, 80))
def test_a_background_of_few_values_is_that_of_all_rows(tmp_path_factory, rows, seed, parts, group):
    data = mixed(rows, seed)
    folder = written(tmp_path_factory.mktemp("data"), data, parts, row_group_size=group)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "LEAST_ROWS", 1 + seed % 50)
        patch.setattr(module, "BLOCK_BYTES", 1)
        found = Background.from_parquet(folder, sample=400, seed=seed)
    whole = pd.concat([pd.read_parquet(file) for file in sorted(folder.iterdir())], ignore_index=True)
    pd.testing.assert_frame_equal(found.rows, whole)
    assert found.total == rows
    same_space(found.space(list(data.columns)), FeatureSpace.infer(whole))


@given(st.integers(50, 400), st.integers(0, 1_000), st.integers(5, 40))
def test_the_draw_does_not_depend_on_blocks(tmp_path_factory, rows, seed, sample):
    data = mixed(rows, seed).assign(place=np.arange(rows))
    drawn = []
    for parts, least in ((1, 10_000), (3, 7)):
        folder = written(tmp_path_factory.mktemp("data"), data, parts)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "LEAST_ROWS", least)
            patch.setattr(module, "BLOCK_BYTES", 1)
            drawn.append(Background.from_parquet(folder, sample=sample, seed=seed).rows)
    pd.testing.assert_frame_equal(*drawn)
    places = drawn[0]["place"].tolist()
    assert len(places) == len(set(places)) == sample
    assert places == sorted(places)
    expected = np.sort(np.argsort(np.random.default_rng(seed).random(rows), kind="stable")[:sample])
    assert places == expected.tolist()


@given(st.integers(100, 600), st.integers(0, 1_000), st.integers(5, 40))
def test_columns_of_many_values_are_counted_by_those_of_the_sample(tmp_path_factory, rows, seed, sample):
    rng = np.random.default_rng(seed)
    data = pd.DataFrame(
        {
            "real": rng.normal(size=rows),
            "whole": rng.integers(0, 10**6, rows) * 5,
            "mostly whole": np.where(np.arange(rows) == rng.integers(rows), 0.5, rng.integers(0, 10**6, rows)),
            "moment": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 10**9, rows), unit="s"),
            "few": rng.integers(0, 3, rows),
            "name": [f"n{number}" for number in rng.integers(0, 10**6, rows)],
        }
    )
    folder = written(tmp_path_factory.mktemp("data"), data)
    found = Background.from_parquet(folder, sample=sample, seed=seed)
    space = found.space(list(data.columns))
    plain = FeatureSpace.infer(data)
    codes, drawn = plain.encode(data), space.encode(found.rows)
    for column, (feature, exact) in enumerate(zip(space.features, plain.features, strict=True)):
        assert (feature.kind, feature.dtype, feature.step) == (
            exact.kind, exact.dtype, None if exact.kind == "date" else exact.step
        )  # fmt: skip
        assert set(drawn[:, column]) <= set(feature.values)
        if feature.name == "few":
            assert feature.counts.tolist() == exact.counts.tolist()
        elif feature.name == "name":
            assert feature.counts.tolist() == [float((data["name"] == level).sum()) for level in feature.levels]
        else:
            assert (feature.low, feature.high) == (exact.low, exact.high)
            edges = np.append(feature.values, np.inf)
            assert feature.counts.tolist() == np.histogram(codes[:, column], edges)[0].tolist()
            widest = np.diff(feature.values).max()
            assert abs(feature.mad - exact.mad) <= 2 * widest


@given(st.integers(20, 200), st.integers(0, 1_000))
def test_groups_are_counted_in_all_rows(tmp_path_factory, rows, seed):
    data = mixed(rows, seed)
    names = ["name, holes", "whole", "flag"]
    folder = written(tmp_path_factory.mktemp("data"), data)
    found = Background.from_parquet(folder, groups=[names], sample=8, seed=seed)
    plain = FeatureSpace.infer(pd.concat([pd.read_parquet(file) for file in sorted(folder.iterdir())]))
    (joint,) = found.space(list(data.columns)).joint
    assert [plain.names[column] for column in joint.columns] == ["whole", "flag", "name, holes"]
    codes = plain.encode(data)[:, list(joint.columns)]
    distinct, counts = np.unique(np.where(np.isnan(codes), np.inf, codes), axis=0, return_counts=True)
    assert np.where(np.isnan(joint.values), np.inf, joint.values).tolist() == distinct.tolist()
    assert joint.counts.tolist() == counts.tolist()


def big(rows=3_000):
    """Return many loans, of which a model has seen all."""
    rng = np.random.default_rng(1)
    data = pd.DataFrame(
        {
            "age": rng.integers(18, 80, rows),
            "income": rng.normal(40, 10, rows),
            "job": rng.choice(["clerk", "cook", "nurse"], rows, p=[0.5, 0.499, 0.001]),
            "owner": rng.choice([True, False], rows),
            "debts": np.where(rng.random(rows) < 0.1, np.nan, rng.integers(0, 6, rows)),
        }
    )
    return data.assign(approved=small_loans.labels(data))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return written(tmp_path_factory.mktemp("big"), big())


OPTIONS = {"target": "good", "constraints": {**small_loans.CONSTRAINTS, "groups": [["job", "owner"]]}}


def test_a_model_is_saved_with_the_counts_of_all_rows(folder, tmp_path):
    data = big()
    found = Background.from_parquet(folder, labels="approved", groups=[["job", "owner"]], sample=100)
    assert repr(found) == "Background(3,000 rows, 5 columns, 100 rows drawn)"
    model = small_loans.fitted(data.drop(columns="approved"))
    mlflow_cf.save_model(model, tmp_path / "model", found, pip_requirements=["scikit-learn"], **OPTIONS)
    loaded = mlflow_cf.load_model(tmp_path / "model")
    assert len(loaded.background) == 100
    assert loaded.labels.tolist() == found.labels.tolist()
    job = loaded.space["job"]
    assert dict(zip(job.levels, job.counts.tolist(), strict=True)) == data["job"].value_counts().sort_index().to_dict()
    assert loaded.space["income"].high == data["income"].max()
    (domain,) = (domain for domain in loaded.bound_policy.domains if len(domain.columns) > 1)
    assert domain.weights.sum() == 3_000
    rows = data.drop(columns="approved").head(40)
    answers = loaded.explain(rows)
    assert {answer.status for answer in answers} == {"found", "already"}
    wrapped = mlflow_cf.wrap(model, found, **OPTIONS)
    assert wrapped.explain(rows).to_dict() == answers.to_dict()
    assert mlflow.pyfunc.load_model(str(tmp_path / "model")).predict(rows)["status"].tolist() == [
        answer.status for answer in answers
    ]


def test_a_sample_of_all_rows_gives_the_same_answers_as_the_table(folder):
    data = big()
    model = small_loans.fitted(data.drop(columns="approved"))
    counted = mlflow_cf.wrap(model, Background.from_parquet(folder, labels="approved", sample=3_000), **OPTIONS)
    plain = mlflow_cf.wrap(model, data.drop(columns="approved"), data["approved"], **OPTIONS)
    assert counted.labels.tolist() == plain.labels.tolist()
    rows = data.drop(columns="approved").head(40)
    assert [one.to_dict() for one in counted.explain(rows)] == [one.to_dict() for one in plain.explain(rows)]


@pytest.mark.parametrize("explainer", ["nearest_row", "geco", "random_search", "ufce"])
def test_every_row_of_the_sample_may_be_proposed(folder, explainer):
    found = Background.from_parquet(folder, labels="approved", sample=200)
    explained = mlflow_cf.wrap(
        small_loans.fitted(big().drop(columns="approved")), found, target="good", explainer=explainer
    )
    background = explained.bound_policy.background
    for column, domain in enumerate(explained.bound_policy.domains):
        known = background[:, column]
        assert domain.contains(known[~np.isnan(known)][:, None]).all()
    assert "found" in {one.status for one in explained.explain(big().drop(columns="approved").head(20))}


def test_privacy_keeps_rows_out(folder, tmp_path):
    found = Background.from_parquet(folder, labels="approved", groups=[["job", "owner"]], sample=100)
    model = small_loans.fitted(big().drop(columns="approved"))
    options = {"target": "good", "privacy": {"sample": "summary"}, "pip_requirements": ["scikit-learn"]}
    mlflow_cf.save_model(model, tmp_path / "model", found, **options)
    space = mlflow_cf.load_model(tmp_path / "model").space
    assert (space["job"].counts.sum(), space.joint) == (3_000, ())


def test_declared_facts_win(folder):
    found = Background.from_parquet(folder, sample=50, columns=["age", "job"])
    declared = {"age": {"low": 0, "step": 5, "label": "years"}, "job": {"levels": ["cook", "nurse", "clerk", "king"]}}
    age, job = found.space(["age", "job"], declared).features
    assert (age.low, age.step, age.label) == (0.0, 5, "years")
    assert job.levels == ("cook", "nurse", "clerk", "king")
    assert job.counts.sum() == 3_000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": "aproved"}, r"part-0.parquet.aproved: column is missing; did you mean 'approved'\?"),
        ({"columns": ["agee"]}, r"part-0.parquet.agee: column is missing; did you mean 'age'\?"),
        ({"groups": [["age", "jobb"]]}, r"groups\[0\].jobb: not a feature; did you mean 'job'\?"),
        ({"sample": 0}, "sample: 0 is no number of rows"),
        ({"columns": []}, "data: 3,000 rows and 0 columns"),
    ],
)
def test_mistakes_are_told(folder, options, message):
    with pytest.raises(InputError, match=message):
        Background.from_parquet(folder, **options)


def test_files_that_do_not_go_together_are_told(tmp_path):
    rows = pd.DataFrame({"a": [1, 2, 3], "b": [0.5, 1.5, 2.5]})
    rows.to_parquet(tmp_path / "0.parquet")
    rows.drop(columns="b").to_parquet(tmp_path / "1.parquet")
    with pytest.raises(InputError, match=r"1.parquet.b: column is missing"):
        Background.from_parquet(tmp_path)
    rows.astype({"a": str}).to_parquet(tmp_path / "1.parquet")
    with pytest.raises(InputError, match=r"1.parquet.a: is string here, and int64 in a file before"):
        Background.from_parquet(tmp_path)
    rows.astype({"a": float, "b": np.float32}).to_parquet(tmp_path / "1.parquet")
    assert Background.from_parquet(tmp_path).rows.dtypes.astype(str).tolist() == ["float64", "float64"]
    rows.assign(b=[1.0, np.inf, 2.0]).to_parquet(tmp_path / "1.parquet")
    with pytest.raises(InputError, match=r"data\.b: row 4 is infinite; clean the column"):
        Background.from_parquet(tmp_path)
    with pytest.raises(InputError, match="is neither a parquet file nor a folder of some"):
        Background.from_parquet(tmp_path / "none")


def test_decimals_days_and_encoded_columns_are_read(tmp_path):
    table = pa.table(
        {
            "price": pa.array([1, 2, 3], pa.decimal128(10, 2)),
            "day": pa.array([1, 2, 3], pa.int32()).cast(pa.date32()),
            "name": pa.array(["a", "b", None]).dictionary_encode(),
        }
    )
    pq.write_table(table, tmp_path / "rows.parquet")
    found = Background.from_parquet(tmp_path / "rows.parquet").space(["price", "day", "name"])
    assert [(feature.kind, feature.missing) for feature in found.features] == [
        ("integer", False), ("date", False), ("category", True)
    ]  # fmt: skip


def test_a_forged_count_of_groups_is_refused():
    plain = FeatureSpace.infer(pd.DataFrame({"a": [1, 2], "b": [1, 2]})).to_dict()
    good = {"columns": [0, 1], "values": [[1.0, None], [2.0, 2.0]], "counts": [3.0, 4.0]}
    assert FeatureSpace.from_dict({**plain, "joint": [good]}).to_dict()["joint"] == [good]
    for bad in ({"columns": [1, 0]}, {"columns": [0, 2]}, {"counts": [3.0]}, {"values": [], "counts": []}):
        with pytest.raises(ValueError, match="counts of other columns"):
            FeatureSpace.from_dict({**plain, "joint": [{**good, **bad}]})


@pytest.mark.system
def test_autolog_takes_a_background(folder):
    found = Background.from_parquet(folder, labels="approved", sample=100)
    mlflow_cf.autolog(data=found, target="good", evaluate_rows=0)
    try:
        with mlflow.start_run():
            model = small_loans.fitted(big().drop(columns="approved"))
            info = mlflow.sklearn.log_model(model, name="loans", serialization_format="skops")
        (logged,) = mlflow.search_logged_models(
            filter_string="name = 'loans_explained'", output_format="list", order_by=[{"field_name": "creation_time"}]
        )
    finally:
        mlflow_cf.autolog(disable=True)
    assert logged.source_run_id == info.run_id
    explained = mlflow_cf.load_model(logged.model_uri)
    assert (len(explained.background), explained.space["job"].counts.sum()) == (100, 3_000)
