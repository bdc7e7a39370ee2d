"""Plans in words: numbered lines, costs, and their place in a reply."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import mlflow_cf
from mlflow_cf import FACE, Step
from mlflow_cf.cli import main
from mlflow_cf.words.sentences import Speaker, cost

OLD = {"age": 30, "education_num": 9, "hours_per_week": 40, "job": "clerk", "bonus": None}


def steps(*told: tuple[str, float, float, Mapping[str, Any], float | None]) -> tuple[Step, ...]:
    """Return steps, each told by what it changes since the one before."""
    row: dict[str, Any] = dict(OLD)
    made = []
    for number, (action, effort, discount, changes, probability) in enumerate(told, start=1):
        row = {**row, **changes}
        made.append(Step(number, action, effort, discount, row, probability))
    return tuple(made)


def test_steps_are_numbered_lines_with_what_they_cost() -> None:
    plan = steps(
        ("add education", 4.0, 1.0, {"education_num": 13, "age": 38}, 0.31),
        ("change working hours", 0.5, 0.7, {"hours_per_week": 45}, 0.55),
    )
    assert Speaker().plan(plan, OLD) == (
        "1. add education: age rises from 30 to 38 and education num rises from 9 to 13 (effort 4, probability 0.31)\n"
        "2. change working hours: hours per week rises from 40 to 45 (effort 0.5 x 0.7 = 0.35, probability 0.55)\n"
        "in all 4.35"
    )


def test_one_step_needs_no_sum_and_an_unknown_probability_no_word() -> None:
    plan = steps(("move", 0.0, 1.0, {"job": "chef", "bonus": 3}, None))
    assert (
        Speaker().plan(plan, OLD)
        == "1. move: job changes from clerk to chef and bonus changes from missing to 3 (effort 0)"
    )


def test_no_steps_are_no_text() -> None:
    assert Speaker().plan((), OLD) == ""


def test_a_step_that_changes_nothing_says_so() -> None:
    assert Speaker().plan(steps(("wait", 1.0, 0.0, {}, None)), OLD) == "1. wait: nothing changes (effort 1 x 0 = 0)"


@pytest.mark.parametrize(
    ("probability", "shown"),
    [(0.0, "0.00"), (1e-5, "below 0.01"), (0.005, "0.01"), (0.3149, "0.31"), (0.9951, "above 0.99"), (1.0, "1.00")],
)
def test_probabilities(probability: float, shown: str) -> None:
    assert Speaker().plan(steps(("wait", 0.0, 1.0, {}, probability)), OLD).endswith(f", probability {shown})")


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        (0.0, "0"),
        (4.0, "4"),
        (0.35, "0.35"),
        (1 / 3, "0.333"),
        (0.1 + 0.2, "0.3"),
        (0.031251, "0.0313"),
        (1234.567, "1,234.57"),
        (1e12, "1,000,000,000,000"),
        (2.5e20, "2.5e+20"),
        (5e-324, "4.94e-324"),
        (0.9999, "1"),
        (100.0, "100"),
    ],
)
def test_costs(amount: float, shown: str) -> None:
    assert cost(amount) == shown


@given(st.floats(0, 1e300))
def test_costs_are_near_what_they_are(amount: float) -> None:
    assert float(cost(amount).replace(",", "")) == pytest.approx(amount, rel=0.0051, abs=1e-320)


words = st.text(max_size=12)
told = st.tuples(
    words, st.floats(0, 1e6), st.floats(0, 1), st.fixed_dictionaries({"job": words}), st.none() | st.floats(0, 1)
)


@given(st.lists(told, max_size=5))
def test_every_step_is_one_line_whatever_names_and_levels_hold(made: list[Any]) -> None:
    plan = steps(*made)
    lines = Speaker().plan(plan, OLD).splitlines()
    assert len(lines) == len(plan) + (len(plan) > 1)
    for number, line in enumerate(lines[: len(plan)], start=1):
        assert line.startswith(f"{number}. ")
        assert "(effort " in line


POLICY = {
    "actions": [
        {"name": "earn more", "feature": "income", "low": 0, "high": 80, "effort": "abs(x_cf.income - x.income) / 10"},
        {"name": "pay back", "feature": "debt", "low": -50, "high": 0, "effort": "abs(x_cf.debt - x.debt) / 5"},
    ],
    "relationships": [{"from": "income", "to": "debt", "cases": [["x.income >= 50", 0.5]]}],
}
RNG = np.random.default_rng(0)
TABLE = pd.DataFrame({"income": RNG.integers(10, 90, 200), "debt": RNG.integers(0, 50, 200)})
ROW = pd.DataFrame({"income": [20], "debt": [45]})


def accepts(X: pd.DataFrame) -> np.ndarray[Any, Any]:
    return ((X["income"] > 50) & (X["debt"] < 20)).to_numpy().astype(int)


def wrapped(**options: Any) -> mlflow_cf.ExplainedModel:
    return mlflow_cf.wrap(accepts, TABLE, target=1, output="label", **options)


def test_the_text_of_an_answer_has_the_plan_below_its_sentence() -> None:
    (answer,) = wrapped(constraints=POLICY).explain(ROW, seed=0)
    (found,) = answer.counterfactuals
    sentence, *lines = found.text.split("\n")
    assert sentence.endswith(": the prediction becomes 1")
    assert "\n".join(lines) == Speaker().plan(found.plan, {"income": 20, "debt": 45})
    assert re.match(r"1\. earn more: income rises from 20 to \d+ \(effort [\d.]+\)", lines[0])
    assert re.match(r"2\. pay back: debt falls from 45 to \d+ \(effort [\d.]+ x 0\.5 = [\d.]+\)", lines[1])
    assert lines[2].startswith("in all ")
    assert answer.to_dict()["counterfactuals"][0]["text"] == found.text
    assert f"\n    {lines[0]}\n" in str(answer)


def test_the_text_tells_the_probability_after_each_step() -> None:
    def chance(X: pd.DataFrame) -> np.ndarray[Any, Any]:
        good = (X["income"] / 200 + (50 - X["debt"]) / 100).to_numpy(np.float64)
        return np.column_stack([1 - good, good])

    explained = mlflow_cf.wrap(chance, TABLE, target=1, output="score", constraints=POLICY)
    (found,) = explained.explain(ROW, seed=0)[0].counterfactuals
    assert found.plan
    for step, line in zip(found.plan, found.text.split("\n")[1:], strict=False):
        good = step.row["income"] / 200 + (50 - step.row["debt"]) / 100
        assert line.endswith(f", probability {good:.2f})")


def test_without_a_plan_the_sentence_stands_alone() -> None:
    (answer,) = wrapped().explain(ROW, seed=0)
    assert "\n" not in answer.counterfactuals[0].text


def test_plans_of_an_explainer_are_told_too() -> None:
    (answer,) = wrapped(explainer=FACE()).explain(ROW, seed=0)
    found = answer.counterfactuals[0]
    assert found.text.split("\n")[1].startswith("1. become as a similar row: ")
    assert len(found.text.split("\n")) == 1 + len(found.plan) + (len(found.plan) > 1)


def test_the_command_line_indents_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlflow_cf.cli.explaining.load_model", lambda _: wrapped(constraints=POLICY))
    ROW.to_csv(tmp_path / "rows.csv", index=False)
    done = CliRunner().invoke(main, ["explain", "-m", "any", "-i", str(tmp_path / "rows.csv"), "--text"])
    assert done.exit_code == 0, done.output
    told = [line.rstrip() for line in done.output.splitlines()]
    at, column = next((at, line.index("1. ")) for at, line in enumerate(told) if "  1. " in line)
    assert re.search(r"\w.* the prediction becomes 1$", told[at - 1])
    assert told[at + 1][column:].startswith("2. ")
    assert told[at + 2][column:].startswith("in all ")
