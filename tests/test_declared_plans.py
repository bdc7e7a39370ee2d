"""Actions and relationships in the policy: checked when wrapping, kept in the artifact, and plans in answers."""

from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
import yaml
from sklearn.tree import DecisionTreeClassifier

import mlflow_cf
from mlflow_cf.errors import InputError

POLICY = """
immutable: [town]
actions:
  - {name: earn more, feature: income, low: 0, high: 80, effort: abs(x_cf.income - x.income) / 10}
  - {name: pay back, feature: debt, low: -50, high: 0, effort: abs(x_cf.debt - x.debt) / 5, before: ["x.income >= 20"]}
relationships:
  - {from: income, to: debt, cases: [["x.income >= 50", 0.5]], otherwise: 1.0}
"""
ROW = pd.DataFrame({"income": [20], "debt": [45], "town": ["a"]})


def background() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {"income": rng.integers(10, 90, 300), "debt": rng.integers(0, 50, 300), "town": ["a", "b", "c"] * 100}
    )


def accepts(X: pd.DataFrame) -> np.ndarray[Any, Any]:
    return ((X["income"] > 50) & (X["debt"] < 20)).to_numpy().astype(int)


class Judge(mlflow.pyfunc.PythonModel):  # type: ignore[misc]
    """Says yes to those who earn much and owe little."""

    def predict(self, model_input: pd.DataFrame) -> np.ndarray[Any, Any]:
        """Return 0 or 1 per row."""
        return accepts(model_input)


def wrapped(policy: Any = POLICY, **options: Any) -> mlflow_cf.ExplainedModel:
    if isinstance(policy, str):
        policy = mlflow_cf.Constraints.read(written(policy))
    return mlflow_cf.wrap(accepts, background(), target=1, output="label", constraints=policy, **options)


def written(text: str) -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load(text)
    return read


def test_every_answer_carries_the_cheapest_order() -> None:
    (answer,) = wrapped().explain(ROW, seed=0)
    plan = answer.counterfactuals[0].plan
    assert [step.action for step in plan] == ["earn more", "pay back"]
    assert [step.discount for step in plan] == [1.0, 0.5]
    assert plan[0].effort == (plan[0].row["income"] - 20) / 10
    assert plan[-1].row == answer.counterfactuals[0].row
    steps = answer.to_dict()["counterfactuals"][0]["plan"]
    assert [[change["feature"] for change in step["changes"]] for step in steps] == [["income"], ["debt"]]
    assert [step["changes"][0]["from"] for step in steps] == [written_as(ROW, "income"), written_as(ROW, "debt")]
    assert [change.new for step in plan for change in step.changes] == [plan[0].row["income"], plan[1].row["debt"]]


def written_as(row: pd.DataFrame, feature: str) -> str:
    return str(row[feature].iloc[0])


def test_a_row_with_a_level_that_the_background_never_had() -> None:
    (answer,) = wrapped().explain(ROW.assign(town="elsewhere"), seed=0)
    assert [step.action for step in answer.counterfactuals[0].plan] == ["earn more", "pay back"]
    assert answer.counterfactuals[0].plan[0].row["town"] == "elsewhere"


def test_a_row_without_a_plan_is_told_that_its_actions_may_not_lead_there() -> None:
    policy, rows = written(POLICY.replace("high: 80", "high: 20")) | {"immutable": []}, background()[["income", "debt"]]
    model = DecisionTreeClassifier(random_state=0).fit(rows, accepts(rows))
    explained = mlflow_cf.wrap(model, rows, target=1, constraints=policy)
    with pytest.warns(UserWarning, match="use 'continuous'"):
        (answer,) = explained.explain(ROW[["income", "debt"]], explainer="cscf", seed=0)
    assert answer.status == "not_found"
    assert answer.reason.endswith("some rows would be accepted, and the declared actions may not lead to them")


def test_without_actions_there_are_no_plans() -> None:
    (answer,) = wrapped({"immutable": ["town"]}).explain(ROW, seed=0)
    assert answer.counterfactuals[0].plan == ()


def test_relationships_alone_make_plans_of_derived_actions() -> None:
    relationships = written(POLICY)["relationships"]
    (answer,) = wrapped({"immutable": ["town"], "relationships": relationships}).explain(ROW, seed=0)
    assert [step.action for step in answer.counterfactuals[0].plan] == ["change income", "change debt"]


def test_no_order_that_meets_the_conditions_is_no_plan() -> None:
    policy = written(POLICY)
    policy["actions"][0]["before"] = ["x.debt < 10"]
    policy["actions"][1]["before"] = ["x.income > 50"]
    (answer,) = wrapped(policy).explain(ROW, seed=0)
    assert answer.status == "found"
    assert answer.counterfactuals[0].plan == ()


def test_the_policy_says_it_again() -> None:
    told = wrapped().policy.constraints.to_dict()
    assert told == mlflow_cf.Constraints.read(told).to_dict()
    assert told["relationships"][0]["from"] == "income"
    text = str(mlflow_cf.Constraints.read(written(POLICY)).to_dict()["actions"][1])
    assert "x.income >= 20" in text


def test_a_logged_model_keeps_them(tmp_path: Path) -> None:
    mlflow.pyfunc.save_model(tmp_path / "inner", python_model=Judge(), input_example=background()[:3])
    mlflow_cf.save_model(
        str(tmp_path / "inner"), tmp_path / "model", background(), target=1, output="label",
        constraints=written(POLICY), explainer="geco", validate="here",
    )  # fmt: skip
    loaded = mlflow_cf.load_model(tmp_path / "model")
    (answer,) = loaded.explain(ROW, seed=0)
    assert [step.action for step in answer.counterfactuals[0].plan] == ["earn more", "pay back"]
    served = mlflow.pyfunc.load_model(str(tmp_path / "model")).predict(ROW, params={"counterfactual": {"seed": 0}})
    (record,) = served["counterfactuals"]
    assert [step["action"] for step in record[0]["plan"]] == ["earn more", "pay back"]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("actions", [{"name": "x", "feature": "incom"}], "constraints.actions[0].feature: 'incom' is not a feature"),
        ("actions", [{"name": "x"}], "constraints.actions[0].feature: "),
        ("actions", [{"name": "x", "feature": "town", "low": 1, "high": 2}], "constraints.actions[0].kind: town is"),
        ("relationships", [{"from": "income", "to": "town"}], "a relationship has either a factor or cases"),
        ("relationships", [{"from": "income", "to": "dept", "factor": "1"}], "did you mean 'debt'?"),
    ],
)
def test_what_does_not_fit_is_refused_when_wrapping(key: str, value: Any, message: str) -> None:
    with pytest.raises(InputError) as error:
        wrapped({key: value})
    assert message in str(error.value)


@pytest.mark.parametrize("key", ["relationships"])
def test_requests_cannot_declare_them(key: str) -> None:
    with pytest.raises(InputError, match=rf"constraints\.{key}: can be declared when a model is wrapped or logged"):
        wrapped().explain(ROW, constraints={key: written(POLICY)[key]})


def test_the_description_names_them() -> None:
    text = mlflow_cf.words.description.description(wrapped().describe())
    assert "earn more (income)" in text
    assert "cheaper by: income -> debt" in text
