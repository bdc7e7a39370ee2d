"""What of a policy is probably not meant is said when wrapping and by describe, with its path, and stops nothing."""

import logging
from typing import Any

import numpy as np
import pandas as pd
import pytest

import mlflow_cf
from mlflow_cf.problem import BoundPolicy
from mlflow_cf.why_not.lint import SAMPLE, lint
from mlflow_cf.words.description import description

RNG = np.random.default_rng(3)
FRAME = pd.DataFrame(
    {
        "age": RNG.integers(20, 70, 200),
        "sex": RNG.choice(["f", "m"], 200),
        "income": RNG.integers(1_000, 90_000, 200),
        "rooms": RNG.integers(1, 6, 200),
    }
)
SOUND: dict[str, Any] = {"immutable": ["sex"], "increasing": ["age"]}


def found(constraints: dict[str, Any], **options: Any) -> list[str]:
    made = mlflow_cf.wrap(
        lambda rows: (rows["income"] > 50_000).astype(int),
        FRAME,
        target=1,
        output="label",
        constraints={**SOUND, **constraints},
        **options,
    )
    return list(made.describe()["warnings"])


def test_a_sound_policy_has_none() -> None:
    assert found({"ranges": {"rooms": [1, 4]}, "max_changes": 2}) == []


@pytest.mark.parametrize(
    ("constraints", "told"),
    [
        ({"ranges": {"income": [1, 90]}}, "constraints.ranges.income: no background row lies within it, nor any value"),
        (
            {"immutable": ["sex", "rooms"], "ranges": {"rooms": [5, 9]}},
            "constraints.ranges.rooms: excludes 8",
        ),
        ({"increasing": ["age"], "decreasing": ["age"]}, "constraints.increasing.age: decreasing as well"),
        ({"immutable": []}, "constraints.immutable: 'sex' may change, and sounds like a trait"),
        ({"increasing": []}, "constraints.increasing: 'age' may fall"),
        (
            {"rules": ["x_cf.rooms > x_cf.age", "x_cf.rooms < x_cf.age"]},
            (
                "constraints: at least 1 of 40 background rows can have no counterfactual, whatever the model says: "
                "constraints.rules"
            ),
        ),
        ({"rules": ["x_cf.rooms > 9"]}, "constraints: at least 40 of 40 background rows can have no counterfactual"),
    ],
    ids=str,
)
def test_each_finding_names_its_path(constraints: dict[str, Any], told: str) -> None:
    assert any(finding.startswith(told) for finding in found(constraints)), found(constraints)


def test_steps_too_small_to_be_advice() -> None:
    (finding,) = found({}, values="grid", features={"income": {"step": 1}})
    assert finding.startswith("features: one step of income is less than 0.1 % of its range")
    assert found({}, values="grid", features={"income": {"low": 0, "high": 90_000, "step": 500}}) == []


def test_findings_are_logged_once_when_wrapping(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="mlflow_cf"):
        (finding,) = found({"immutable": []})
    assert [record.getMessage() for record in caplog.records] == [finding]


def test_the_command_prints_them() -> None:
    made = mlflow_cf.wrap(
        lambda rows: (rows["income"] > 50_000).astype(int), FRAME, target=1, output="label", constraints={}
    )
    assert "warnings     constraints.increasing: 'age' may fall" in description(made.describe())


def test_few_rows_are_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long and wide a table is, the work is that of a sample."""
    wide = pd.DataFrame(RNG.integers(0, 50, (3_000, 60)), columns=[f"c{n}" for n in range(60)])
    made = mlflow_cf.wrap(lambda rows: (rows["c0"] > 25).astype(int), wide, target=1, output="label")
    bound: list[int] = []
    bind = BoundPolicy.bind
    monkeypatch.setattr(BoundPolicy, "bind", lambda *args, **kwargs: (bound.append(1), bind(*args, **kwargs))[1])
    assert lint(made.policy, made.bound_policy) == []
    assert len(bound) == SAMPLE


def test_a_constant_has_no_value_that_may_be_proposed() -> None:
    """Its range may exclude it: every row keeps its own value, so that is a finding and no error."""
    frame = FRAME.assign(rooms=3)
    made = mlflow_cf.wrap(
        lambda rows: (rows["income"] > 50_000).astype(int),
        frame,
        target=1,
        output="label",
        constraints={**SOUND, "ranges": {"rooms": [5, 9]}},
    )
    first, second = made.describe()["warnings"]
    assert first.startswith("constraints.ranges.rooms: no background row lies within it, nor any value")
    assert second.startswith("constraints: at least 40 of 40 background rows can have no counterfactual")
