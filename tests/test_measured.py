"""Rows measured part by part: every line is what its row alone gets, checked against plain loops over plain values."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import ORDERED, background, constraint_dicts, explained, lottery, row_dicts, table, wide_rows

import mlflow_cf
from mlflow_cf import InputError, Interrupted
from mlflow_cf.evaluation.measure import measured
from mlflow_cf.evaluation.measure.measured import Measuring, measure_rows, measured_table
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.metrics import METRICS, Wishes
from mlflow_cf.request.answer import INTERRUPTED
from mlflow_cf.words.explanations import Explanations

TIMES = ["seconds"]
PLAIN = Measuring(lof=False)


def wide_table(rows, like):
    return table(rows, like).set_axis(pd.Index(range(100, 100 + len(rows)), name="id"), axis=0)


@given(st.integers(0, 200), st.lists(wide_rows, min_size=2, max_size=6), constraint_dicts, st.integers(1, 3), st.data())
def test_a_line_depends_on_its_row_alone(seed, rows, constraints, count, data):
    frame = background(seed)
    model = explained(lottery(seed), frame, constraints)
    asked, options = wide_table(rows, frame), Measuring(count=count)
    whole = measured_table(model, asked, options)
    assert whole.index.equals(asked.index)
    order = data.draw(st.permutations(range(len(asked))))
    parts = list(
        measure_rows(model, asked.iloc[list(order)], Measuring(count=count, part=data.draw(st.integers(1, 4))))
    )
    again = pd.concat(parts).loc[asked.index]
    pd.testing.assert_frame_equal(again.drop(columns=TIMES), whole.drop(columns=TIMES))


@given(st.integers(0, 200), st.lists(wide_rows, min_size=1, max_size=6), constraint_dicts)
def test_what_a_line_says_is_what_plain_loops_find(seed, rows, constraints):
    frame = background(seed)
    model = explained(lottery(seed), frame, constraints)
    asked = wide_table(rows, frame)
    known = {name: frame[name].dropna() for name in ORDERED if name != "grade"}
    for line, row in zip(measured_table(model, asked, Measuring()).to_dict("records"), row_dicts(asked), strict=True):
        if line["counterfactual"] is None:
            assert line["answers"] == 0
            assert line["changed"] == []
            assert np.isnan(line["n_changed"])
            assert line["coverage"] == 0 or (np.isnan(line["coverage"]) and line["status"] == "already")
            continue
        found = json.loads(line["counterfactual"])
        changed = [name for name in row if row[name] != found[name]]
        assert line["changed"] == changed
        assert line["n_changed"] == len(changed)
        assert line["sparsity_changed"] == len(changed) / len(row)
        assert (line["validity"], line["constraint_satisfaction"], line["coverage"]) == (1, 1, 1)
        moved = [name for name in known if row[name] is not None and found[name] is not None]
        units = sum(abs(found[name] - row[name]) for name in moved)
        filled = sum(row[name] is None and found[name] is not None for name in known)
        grades = {
            name: ("low", "mid", "high", "top", "odd", None).index(name) for name in (row["grade"], found["grade"])
        }
        ranks = abs(grades[found["grade"]] - grades[row["grade"]]) if max(grades.values()) < 4 else len(grades) - 1
        assert line["cont_proximity"] == pytest.approx(-(units + filled + ranks))


def test_options_reach_the_explainer():
    frame = background(3)
    model = explained(lottery(3), frame)
    asked = frame.head(6)
    one = measured_table(model, asked, Measuring(explainer="nearest_row", count=2, lof=False))
    expected = model.explain(asked, explainer="nearest_row", count=2)
    assert list(one["answers"]) == [len(explanation.counterfactuals) for explanation in expected]
    assert one["plausibility"].isna().all()
    wished = measured_table(model, asked, Measuring(wishes=Wishes({"age": None, "income": (0.0, 9.0)})))
    found = wished[wished["answers"] > 0]
    assert found["actionability"].between(0, 1).all()
    assert found["feasibility"].isin([0, 1]).all()


def test_a_model_without_rows_of_its_background_has_no_plausibility():
    frame = background(3)
    model = explained(lottery(3), frame, privacy={"sample": "summary"})
    assert measured_table(model, frame, Measuring())["plausibility"].isna().all()


def test_a_wrong_answer_shows():
    """What the explainer says is not believed: an answer that breaks the policy is measured as such."""
    frame = background(1)
    free = explained(lottery(1), frame)
    strict = explained(lottery(1), frame, {"immutable": list(frame.columns[:5])})
    explanations = free.explain(frame)
    lines = measured._measured(strict, frame, explanations, PLAIN)
    found = lines[lines["answers"] > 0]
    beyond = found["changed"].map(lambda names: names != ["rooms"])
    assert beyond.any()
    assert (found["constraint_satisfaction"] == np.where(beyond, 0, 1)).all()
    other = explained(lottery(1, share=0.1), frame)  # says yes to fewer rows
    lines = measured._measured(other, frame, explanations, PLAIN)
    assert set(lines["validity"].dropna()) == {0, 1}, "some of them"


def test_other_columns_are_ignored_and_no_rows_are_refused():
    frame = background(5)
    model = explained(lottery(5), frame)
    more = frame.assign(approved=1, group="a")
    pd.testing.assert_frame_equal(
        measured_table(model, more, Measuring()).drop(columns=TIMES),
        measured_table(model, frame, Measuring()).drop(columns=TIMES),
    )
    with pytest.raises(InputError, match="rows: there are none"):
        measured_table(model, frame.head(0), Measuring())


def test_an_interruption_yields_what_was_explained(monkeypatch):
    frame = background(2)
    model = explained(lottery(2), frame)
    explain, calls = ExplainedModel.explain, []

    def interrupted(self, X, **options):
        calls.append(len(X))
        done = explain(self, X, **options)
        if len(calls) < 2:
            return done
        stopped = mlflow_cf.Explanation("budget", INTERRUPTED.reason, 0, None)
        raise Interrupted(Explanations((*done.items[:3], stopped), done.index, done.space), 3, 4)

    monkeypatch.setattr(ExplainedModel, "explain", interrupted)
    stream = measure_rows(model, frame, Measuring(part=4))
    parts = [next(stream), next(stream)]
    with pytest.raises(Interrupted):
        next(stream)
    assert [len(part) for part in parts] == [4, 3]


def test_a_clock_holds_for_the_whole_table(monkeypatch):
    frame = background(4)
    model = explained(lottery(4), frame)
    granted = []
    explain = ExplainedModel.explain

    def noted(self, X, **options):
        granted.append(options["time_limit_s"] / len(X))
        return explain(self, X, **options)

    monkeypatch.setattr(ExplainedModel, "explain", noted)
    measured_table(model, frame, Measuring(time_limit_s=600.0, part=5))
    assert granted == pytest.approx([600 / 14, 600 / 9, 600 / 4], rel=0.2)  # what is left, for the rows that are left


def test_every_metric_has_its_column():
    frame = background(6)
    lines = measured_table(explained(lottery(6), frame), frame, Measuring(count=3))
    assert set(METRICS) <= set(lines.columns)
    assert not lines.columns.duplicated().any()
    several = lines["answers"] > 1
    assert lines.loc[several, "sparsity_diversity"].notna().all()
    assert lines.loc[~several, "sparsity_diversity"].isna().all()
