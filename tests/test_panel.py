"""Evaluations and comparisons from sums of blocks are those of the whole table, however its rows are parted."""

from dataclasses import replace
from functools import reduce

import numpy as np
import pandas as pd
import pytest
import small_loans
from hypothesis import given, settings
from hypothesis import strategies as st

import mlflow_cf
from mlflow_cf.evaluation.compare.side_by_side import Bootstrap, MeasuredExplainer, SideBySide, means
from mlflow_cf.evaluation.compare.summed import Change, SummedVersions, compared_sums, means_of
from mlflow_cf.evaluation.measure import lines
from mlflow_cf.evaluation.measure.aggregates import aggregates
from mlflow_cf.evaluation.measure.evaluate import task_of
from mlflow_cf.evaluation.measure.measured import Measuring, inliers_of, measure_block
from mlflow_cf.evaluation.measure.moments import Moments, Tally, Together
from mlflow_cf.evaluation.measure.panel import Block, Panel, named
from mlflow_cf.evaluation.measure.result import contestants, ranking
from mlflow_cf.evaluation.source import Source

GROUPS = ["job", "age"]


@pytest.fixture(scope="module")
def rows():
    table = small_loans.table().head(60)
    return table.assign(income=table["income"].where(table.index != 3, np.inf))  # a row that cannot be read


@pytest.fixture(scope="module")
def labels(rows):
    return np.where(rows["income"] > 40, "good", "bad")


@pytest.fixture(scope="module")
def panel(rows):
    data = small_loans.table()
    few = data[data["age"] > 30].reset_index(drop=True)
    models = {
        "old": mlflow_cf.wrap(small_loans.fitted(data), data, target="good", constraints=small_loans.CONSTRAINTS),
        "new": mlflow_cf.wrap(small_loans.fitted(few), few, target="good"),
    }
    chosen = contestants(["geco", "nearest_row"])
    grouped = lines.groups_of(rows, GROUPS)
    groups = [(str(column), label) for column in grouped for label in sorted(set(grouped[column]))]
    measuring = {name: Measuring(lof=inliers_of(one)) for name, one in models.items()}
    return Panel(models, dict.fromkeys(models, chosen), measuring, [*groups, ("job", "nobody")], labelled=True)


def tally_of(panel, rows, labels, ends):
    """The sums of blocks between these ends."""
    tallies = []
    grouped = lines.groups_of(rows, GROUPS)
    for start, end in zip([0, *ends], [*ends, len(rows)], strict=True):
        if start == end:
            continue
        part = rows.iloc[start:end].reset_index(drop=True)
        block = Block(lambda _, part=part: part, grouped.iloc[start:end].reset_index(drop=True), labels[start:end])
        members, measured = panel.members(block.groups), panel.measure(block, {})
        assert measured.failures == {}
        sums = dict(panel.sums(measured, members)) | dict(compared_sums(panel, block, measured, members))
        tallies.append(Tally.from_bytes(Tally(sums, {}).to_bytes()))
    return reduce(Tally.merged, tallies)


@pytest.fixture(scope="module")
def whole(panel, rows, labels, tmp_path_factory):
    """The lines of everybody, as one process writes them: explainer's key -> path."""
    folder = tmp_path_factory.mktemp("lines")
    paths = {}
    for model, explained in panel.models.items():
        task = task_of(Source(explained), rows, Measuring(), labels=labels, explainers=["geco", "nearest_row"],
                       groups=GROUPS)  # fmt: skip
        for explainer in task.explainers:
            paths[model, explainer] = folder / f"{model}_{explainer}.parquet"
            how = replace(task.measuring, explainer=explainer)
            measured = [measure_block(explained, rows, how)]
            lines.write(paths[model, explainer], measured, task.beside, explained)
    return paths


def timeless(table):
    return table[~table["metric"].str.startswith("seconds")].reset_index(drop=True)


@settings(deadline=None, max_examples=5)
@given(st.lists(st.integers(0, 60), max_size=4).map(sorted))
def test_figures_and_tables_do_not_depend_on_how_rows_are_parted(panel, rows, labels, whole, ends):
    tally = tally_of(panel, rows, labels, ends)
    for model in panel.models:
        found = panel.whole(tally, model)
        paths = {explainer: whole[model, explainer] for explainer in ("geco", "nearest_row")}
        table = pd.concat([aggregates(path, name) for name, path in paths.items()], ignore_index=True)
        key = ["explainer", "group", "metric"]
        one, other = (timeless(each).sort_values(key, ignore_index=True) for each in (found.figures, table))
        pd.testing.assert_frame_equal(one, other, rtol=1e-12, atol=1e-12)
        assert (found.rows, found.ranking, found.failures) == (60, ranking(paths), {})
    _check_tables(panel, rows, whole, SummedVersions(panel, tally))


def _check_tables(panel, rows, whole, summed):
    measured, before = [], {}
    for model in panel.models:
        now = {}
        for explainer in ("geco", "nearest_row"):
            table = pd.read_parquet(whole[model, explainer])
            now[explainer] = MeasuredExplainer(model, explainer, table, before.get(explainer))
        measured += now.values()
        before = now
    grouped = lines.groups_of(rows, GROUPS).reset_index(drop=True)
    sheets = SideBySide(panel.models, measured, rows.reset_index(drop=True), grouped, Bootstrap())
    pairs = {
        "burden": (summed.burden(), sheets.burden(), ["mean", "change"]),
        "advice": (summed.advice(), sheets.advice(), ["share", "change"]),
        "differences": (summed.differences(), sheets.differences(), ["before", "after", "difference"]),
        "survival": (summed.survival(), sheets.survival()[0], ["survival", "probability_lost"]),
    }
    for name, (one, other, values) in pairs.items():
        assert list(one.columns) == list(other.columns), name
        key = [column for column in one.columns if one[column].dtype.kind != "f" and column != "verdict"]
        tables = [table.sort_values(key, ignore_index=True) for table in (one, other)]
        if name == "differences":
            tables = [timeless(table) for table in tables]
        pd.testing.assert_frame_equal(tables[0][[*key, *values]], tables[1][[*key, *values]], rtol=1e-12, atol=1e-12)
        known = [table[[column for column in table if column.endswith(("low", "high"))]].isna() for table in tables]
        pd.testing.assert_frame_equal(known[0], known[1])


def test_intervals_are_near_to_those_of_the_bootstrap():
    rng = np.random.default_rng(0)
    old = np.where(rng.random(2_000) < 0.2, np.nan, rng.gamma(2.0, size=2_000))
    new = np.where(rng.random(2_000) < 0.2, np.nan, np.where(np.isnan(old), 1.0, old) + 0.3 * rng.normal(size=2_000))
    frames = [pd.DataFrame({"x": values}) for values in (old, new)]
    expected = means(frames[1], None, Bootstrap(), frames[0])
    every = [np.ones(2_000, np.bool_)]
    a, b = (Moments.of(frame.to_numpy(), every) for frame in frames)
    change = Change(a, Together.of(frames[0].to_numpy(), frames[1].to_numpy(), every))
    found = means_of([(0, "")], ["x"], b, change)
    for low, high in (("low", "high"), ("change_low", "change_high")):
        width = expected[high][0] - expected[low][0]
        assert found[low][0] == pytest.approx(expected[low][0], abs=0.1 * width)
        assert found[high][0] == pytest.approx(expected[high][0], abs=0.1 * width)


def test_an_explainer_that_fails_is_named_and_the_others_stand(panel, rows, labels, monkeypatch):
    real = mlflow_cf.evaluation.measure.panel.measure_block

    def fails(explained, table, how):
        if how.explainer == "nearest_row" and (table["income"] > 80).any():
            raise ValueError("no rows")
        return real(explained, table, how)

    monkeypatch.setattr("mlflow_cf.evaluation.measure.panel.measure_block", fails)
    block = Block(lambda _: rows, lines.groups_of(rows, GROUPS), labels)
    measured = panel.measure(block, {})
    assert set(measured.failures) == {("old", "nearest_row"), ("new", "nearest_row")}
    failures = {named("failure", *key): why for key, why in measured.failures.items()}
    tally = Tally(dict(panel.sums(measured, panel.members(block.groups))), failures)
    found = panel.whole(tally, "old")
    assert found.failures == {"nearest_row": "ValueError: no rows"}
    assert found.ranking == ("geco",)
    everybody = {named("failure", *key): "ValueError: no" for key in panel.keys}
    with pytest.raises(mlflow_cf.InputError, match="none could do it"):
        panel.whole(Tally(tally.sums, everybody), "old")
