"""The nearest favourable row of the background: looked up, checked like any other answer, never altered."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from checker import Checker, Ruler

from mlflow_cf.explained import ExplainedModel
from mlflow_cf.model.judge import OpenModel
from mlflow_cf.options import WrapOptions
from mlflow_cf.wrapping import assemble

RNG = np.random.default_rng(5)
FRAME = pd.DataFrame(
    {
        "age": RNG.integers(20, 60, 60),
        "income": RNG.normal(40, 15, 60).round(0),
        "job": RNG.choice(["a", "b", "c"], 60),
        "member": RNG.random(60) < 0.5,
    }
)
POOR = pd.DataFrame({"age": [33, 50], "income": [12.0, 20.0], "job": ["a", "c"], "member": [False, True]})
OBSERVED = [dict(zip(FRAME, line, strict=True)) for line in FRAME.itertuples(index=False, name=None)]


def decide(rows: pd.DataFrame) -> np.ndarray:
    return (rows["income"] > 45).to_numpy().astype(int)


def wrapped(model: Any = decide, frame: pd.DataFrame = FRAME, **options: Any) -> ExplainedModel:
    return assemble(OpenModel("test", (0, 1), model), frame, None, WrapOptions(explainer="nearest_row", **options))


@pytest.mark.parametrize("distance", [(0.5, 0.5, 0), (0, 1, 0), (0.1, 0.2, 0.7)], ids=str)
@pytest.mark.parametrize(
    "constraints",
    [
        {},
        {"immutable": ["job"]},
        {"increasing": ["age"], "max_changes": 3},
        {"ranges": {"income": [None, 60]}, "forbidden": {"job": [["a", "b"]]}},
        {"groups": [["age", "job"]], "relative": {"age": {"up": 5, "down": 5}}},
    ],
    ids=str,
)
def test_is_the_nearest_of_all(constraints: dict[str, Any], distance: Any) -> None:
    found = wrapped(constraints=constraints, distance=distance).explain(POOR, count=4)
    checker, ruler = Checker(decide, FRAME, [constraints], 1), Ruler(FRAME, *distance)
    for number, query in POOR.iterrows():
        valid = {tuple(row.items()) for row in OBSERVED if not checker.faults(query, row)}
        nearest = sorted(ruler.distance(query, dict(row)) for row in valid)
        answers = found[number].counterfactuals
        assert bool(answers) == bool(valid)
        assert found[number].status == ("found" if valid else "not_found")
        if answers:
            assert answers[0].distance == pytest.approx(nearest[0], abs=1e-12)
            assert len(answers) == min(4, len(valid))
        assert all(tuple(answer.row.items()) in valid for answer in answers)


def test_costs_only_the_proof() -> None:
    asked: list[int] = []

    def count(rows: pd.DataFrame) -> np.ndarray:
        asked.append(len(rows))
        return decide(rows)

    loan = wrapped(count)
    asked.clear()
    found = loan.explain(POOR.iloc[[0]])[0]
    assert found.status == "found"
    assert found.evaluations == sum(asked) - 1 <= 11


def test_needless_changes_stay() -> None:
    """It is a row somebody had, whole; nothing of it is undone."""
    answer = wrapped().explain(POOR)[0].counterfactuals[0]
    assert answer.row in OBSERVED
    assert answer.n_changed > 1


def test_the_background_may_lie() -> None:
    """A model that has changed its mind since it was wrapped: the judge has the last word."""
    changed = [False]
    loan = wrapped(lambda rows: np.zeros(len(rows), dtype=int) if changed[0] else decide(rows))
    changed[0] = True
    assert [found.status for found in loan.explain(POOR)] == ["not_found"] * 2


def test_no_favourable_row() -> None:
    loan = wrapped(lambda rows: (rows["income"] > 10**6).to_numpy().astype(int))
    assert [found.status for found in loan.explain(POOR)] == ["not_found"] * 2


def test_missing_values_of_the_background_are_not_proposed() -> None:
    frame = FRAME.assign(age=FRAME["age"].astype("float64").where(FRAME.index % 3 > 0))
    loan = wrapped(frame=frame)
    for found in loan.explain(POOR.assign(age=[33.0, 50.0]), count=10):
        assert found.counterfactuals
        assert all(answer.row["age"] is not None for answer in found.counterfactuals)
    hole = POOR.assign(age=np.nan)
    kept = loan.explain(hole, constraints={"immutable": ["age"]})[0].counterfactuals
    assert kept
    assert kept[0].row["age"] is None


def test_equal_rows_are_answered_once() -> None:
    twice = pd.concat([FRAME, FRAME], ignore_index=True)
    rows = [tuple(answer.row.values()) for answer in wrapped(frame=twice).explain(POOR, count=10)[0].counterfactuals]
    assert len(rows) == len(set(rows)) == 10
