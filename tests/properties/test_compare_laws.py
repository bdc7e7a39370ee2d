"""What versions are compared by, against slow references that go through the rows one by one."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlflow_cf
from mlflow_cf.evaluation.compare.side_by_side import (
    FEWEST,
    MEASURES,
    Bootstrap,
    Issued,
    advice,
    burden,
    differences,
    judged,
    means,
    survival,
)
from mlflow_cf.evaluation.measure.lines import groups_of

DRAWS = 40
METRICS = ("coverage", "mixed", "n_changed", "diversity")
FEATURES = ("age", "income", "job")

cells = st.one_of(st.just(math.nan), st.floats(-10, 10, allow_subnormal=False).map(lambda value: round(value, 3)))
bootstraps = st.builds(Bootstrap, seed=st.integers(0, 5), draws=st.just(DRAWS), level=st.sampled_from([0.5, 0.9]))


@st.composite
def tables(draw, count=1):
    """Some tables of metrics of the same rows, and the groups of the rows."""
    rows = draw(st.integers(1, 14))
    columns = st.lists(st.lists(cells, min_size=rows, max_size=rows), min_size=len(METRICS), max_size=len(METRICS))
    found = [pd.DataFrame(dict(zip(METRICS, draw(columns), strict=True))) for _ in range(count)]
    groups = draw(st.none() | st.lists(st.sampled_from(["f", "m"]), min_size=rows, max_size=rows))
    return found, None if groups is None else pd.DataFrame({"sex": groups})


def mean_of(values):
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan


def known(values):
    return sum(not math.isnan(value) for value in values)


def drawn(values, bootstrap):
    """The mean of each draw, from how often it has every row."""
    every = np.vstack(list(bootstrap.counts(len(values)))).astype(int)
    return [mean_of([value for value, times in zip(values, once, strict=True) for _ in range(times)]) for once in every]


def interval_of(drawn_means, level, sure):
    found = sorted(value for value in drawn_means if not math.isnan(value))
    if sure < FEWEST or not found:
        return math.nan, math.nan
    ends = []
    for share in ((1 - level) / 2, (1 + level) / 2):
        place = share * (len(found) - 1)
        low = math.floor(place)
        high = min(low + 1, len(found) - 1)
        ends.append(found[low] + (place - low) * (found[high] - found[low]))
    return tuple(ends)


def members(groups, rows):
    everyone = {"": list(range(rows))}
    found = [] if groups is None else list(groups["sex"])
    return everyone | {f"sex.{name}": [row for row in range(rows) if found[row] == name] for name in sorted(set(found))}


def same(found, expected):
    assert found == pytest.approx(expected, nan_ok=True, rel=1e-9, abs=1e-9)


@given(st.integers(1, 30), bootstraps)
def test_draws_are_as_many_rows_as_there_are(rows, bootstrap):
    every = np.vstack(list(bootstrap.counts(rows)))
    assert every.shape == (DRAWS, rows)
    assert (every.sum(axis=1) == rows).all()
    again = np.vstack(list(bootstrap.counts(rows)))
    np.testing.assert_array_equal(again, every)


def test_every_row_is_drawn_equally_often():
    every = np.vstack(list(Bootstrap(draws=20_000).counts(7)))
    assert every.mean(axis=0) == pytest.approx(1, abs=0.03)
    assert every.var(axis=0) == pytest.approx(6 / 7, abs=0.05)  # binomial: 7 draws of chance 1/7


def test_intervals_hold_the_mean_as_often_as_they_say():
    rng = np.random.default_rng(0)
    held = 0
    for trial in range(300):
        values = pd.DataFrame({"coverage": rng.normal(2, 1, 60)})
        line = means(values, None, Bootstrap(seed=trial, draws=400)).iloc[0]
        held += line["low"] <= 2 <= line["high"]
    assert 0.89 <= held / 300 <= 0.99


@given(tables(), bootstraps)
def test_means_equal_the_slow_reference(given_tables, bootstrap):
    [values], groups = given_tables
    found = means(values, groups, bootstrap).set_index(["group", "measure"])
    expected = members(groups, len(values))
    assert set(found.index.get_level_values("group")) == set(expected)
    for name, rows in expected.items():
        for metric in METRICS:
            own = [values[metric][row] for row in rows]
            line = found.loc[(name, metric)]
            assert line["rows"] == known(own)
            same(line["mean"], mean_of(own))
            same((line["low"], line["high"]), interval_of(drawn(own, bootstrap), bootstrap.level, known(own)))


@given(tables(count=2), bootstraps)
def test_changes_equal_the_slow_reference(given_tables, bootstrap):
    [before, after], groups = given_tables
    found = means(after, groups, bootstrap, before).set_index(["group", "measure"])
    for name, rows in members(groups, len(after)).items():
        for metric in METRICS:
            old, new = ([table[metric][row] for row in rows] for table in (before, after))
            line = found.loc[(name, metric)]
            same(line["change"], mean_of(new) - mean_of(old))
            pairs = zip(drawn(old, bootstrap), drawn(new, bootstrap), strict=True)
            ends = interval_of([b - a for a, b in pairs], bootstrap.level, min(known(old), known(new)))
            same((line["change_low"], line["change_high"]), ends)


@given(tables(count=2), bootstraps)
def test_paired_differences_equal_the_slow_reference(given_tables, bootstrap):
    [before, after], _ = given_tables
    found = differences(before, after, bootstrap).set_index("metric")
    better = {"coverage": 1, "mixed": -1, "n_changed": -1, "diversity": 0}
    for metric in METRICS:
        pairs = [(old, new) for old, new in zip(before[metric], after[metric], strict=True)]
        both = [(old, new) for old, new in pairs if not math.isnan(old) and not math.isnan(new)]
        line = found.loc[metric]
        assert line["rows"] == len(both)
        same(line["before"], mean_of([old for old, _ in both]))
        same(line["after"], mean_of([new for _, new in both]))
        gaps = [new - old for old, new in pairs]
        same(line["difference"], mean_of(gaps))
        low, high = interval_of(drawn(gaps, bootstrap), bootstrap.level, len(both))
        same((line["low"], line["high"]), (low, high))
        sign = 1 if low > 0 else -1 if high < 0 else 0
        assert line["verdict"] == {1: "better", -1: "worse", 0: ""}[sign * better[metric]]


@st.composite
def measured_tables(draw):
    rows = draw(st.integers(1, 10))

    def table():
        changed = [draw(st.none() | st.lists(st.sampled_from(FEATURES), unique=True)) for _ in range(rows)]
        answered = [names is not None for names in changed]
        figures = {
            metric: [draw(st.floats(0, 5)) if found or metric == "coverage" else math.nan for found in answered]
            for metric in set(MEASURES.values()) - {"sequence_cost"}
        }
        plans = draw(st.booleans())
        figures["sequence_cost"] = [draw(st.floats(0, 5)) if plans and found else math.nan for found in answered]
        facts = {"counterfactual": ["{}" if found else None for found in answered]}
        return pd.DataFrame({**figures, **facts, "changed": [names or [] for names in changed]})

    groups = draw(st.none() | st.lists(st.sampled_from(["f", "m"]), min_size=rows, max_size=rows))
    return table(), draw(st.none() | st.builds(table)), None if groups is None else pd.DataFrame({"sex": groups})


@given(measured_tables(), bootstraps)
def test_burden_equals_the_slow_reference(given_tables, bootstrap):
    table, before, groups = given_tables
    found = burden(table, before, groups, bootstrap).set_index(["group", "measure"])
    asked = [name for name in MEASURES if name != "effort" or known(table["sequence_cost"])]
    for name, rows in members(groups, len(table)).items():
        assert list(found.loc[name].index) == asked
        for measure in asked:
            own = [table[MEASURES[measure]][row] for row in rows]
            line = found.loc[(name, measure)]
            same(line["mean"], mean_of(own))
            same((line["low"], line["high"]), interval_of(drawn(own, bootstrap), bootstrap.level, known(own)))
            old = mean_of([] if before is None else [before[MEASURES[measure]][row] for row in rows])
            same(line["change"], mean_of(own) - old)


@given(measured_tables(), bootstraps)
def test_advice_equals_the_slow_reference(given_tables, bootstrap):
    table, before, _ = given_tables
    found = advice(table, before, FEATURES, bootstrap).set_index("feature")

    def leaning(measured, feature):
        pairs = zip(measured["counterfactual"], measured["changed"], strict=True)
        return [math.nan if pd.isna(text) else float(feature in names) for text, names in pairs]

    for feature in FEATURES:
        own = leaning(table, feature)
        line = found.loc[feature]
        assert line["answers"] == known(own)
        same(line["share"], mean_of(own))
        same((line["low"], line["high"]), interval_of(drawn(own, bootstrap), bootstrap.level, known(own)))
        same(line["change"], mean_of(own) - mean_of([] if before is None else leaning(before, feature)))


def scorer(weights, bias):
    """A model with two or three labels whose scores are linear in age and income."""

    def score(rows):
        margin = rows[["age", "income"]].to_numpy(np.float64) @ np.asarray(weights) + bias
        return np.column_stack([1 / (1 + np.exp(margin)), 1 / (1 + np.exp(-margin))])

    return score


ROWS = pd.DataFrame(
    {
        "age": np.tile([20.0, 30.0, 40.0, 50.0, 60.0], 6),
        "income": np.repeat([10.0, 20.0, 30.0, 40.0, 50.0, 60.0], 5),
        "sex": np.tile(["f", "m"], 15),
    }
)
weights = st.tuples(st.floats(-0.1, 0.1), st.floats(-0.1, 0.1), st.floats(-3, 3))


@given(weights, weights, st.sampled_from([1, {"other": True}]), bootstraps)
def test_survival_equals_the_slow_reference(issuing, judging, target, bootstrap):
    scores = [scorer(found[:2], found[2]) for found in (issuing, judging)]
    issuer, judge = (mlflow_cf.wrap(score, ROWS[["age", "income"]], target=target, output="score") for score in scores)
    answers = issuer.explain(ROWS[["age", "income"]])
    nearest = [one.counterfactuals[0] if one.counterfactuals else None for one in answers]
    measured = pd.DataFrame(
        {
            "counterfactual": [None if one is None else json.dumps(dict(one.row)) for one in nearest],
            "prediction": [one.prediction for one in answers],
            "target_probability": [math.nan if one is None else one.probability for one in nearest],
        }
    )
    groups = groups_of(ROWS, "sex")
    verdict = judged(Issued.of(issuer, measured, ROWS), judge, len(ROWS))
    found = survival(verdict, groups, bootstrap).set_index("group")
    kept, lost = [], []
    for row, one in zip(answers, nearest, strict=True):
        if one is None:
            kept.append(math.nan)
            lost.append(math.nan)
            continue
        wanted = 1 if target == 1 else 1 - row.prediction
        after = scores[1](pd.DataFrame([dict(one.row)]))[0]
        kept.append(float(after.argmax() == wanted))
        lost.append(scores[0](pd.DataFrame([dict(one.row)]))[0][wanted] - after[wanted])
    for name, rows in members(groups, len(ROWS)).items():
        line = found.loc[name]
        own = [kept[row] for row in rows]
        assert line["answers"] == known(own)
        same(line["survival"], mean_of(own))
        same(line["probability_lost"], mean_of([lost[row] for row in rows]))
        same((line["low"], line["high"]), interval_of(drawn(own, bootstrap), bootstrap.level, known(own)))
