"""What users make themselves: errors of objects name path and fix as those of the dicts in their place do."""

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import mlflow_cf
from mlflow_cf.errors import InputError
from mlflow_cf.policy import Policy, Query

TABLE = pd.DataFrame({"age": range(20, 60), "income": [number * 7 % 40 for number in range(40)]})
MODEL = LogisticRegression().fit(TABLE, (TABLE["income"] > 20).astype(int))
WRONG: dict[str, tuple[Callable[[], object], dict[str, Any], str]] = {
    "target": (
        lambda: mlflow_cf.Target(label=1, min_probability=70),
        {"target": {"label": 1, "min_probability": 70}},
        "target.min_probability: input should be less than or equal to 1, got 70",
    ),
    "other": (
        lambda: mlflow_cf.Target.other(min_probability=-1),
        {"target": {"other": True, "min_probability": -1}},
        "target.min_probability: input should be greater than or equal to 0, got -1",
    ),
    "distance": (
        lambda: mlflow_cf.Distance(1, 1, 0),
        {"distance": {"l0": 1, "l1": 1, "linf": 0}},
        "distance: l0 + l1 + linf must be 1, got {'l0': 1, 'l1': 1, 'linf': 0}",
    ),
    "weight": (
        lambda: mlflow_cf.Distance(-1, 2),
        {"distance": {"l0": -1, "l1": 2}},
        "distance.l0: input should be greater than or equal to 0, got -1",
    ),
    "key": (
        lambda: mlflow_cf.Limits(time=3),  # type: ignore[call-arg]
        {"limits": {"time": 3}},
        f"limits.time: not a known key; keys: {', '.join(map(repr, mlflow_cf.Limits.model_fields))}",
    ),
    "most": (
        lambda: mlflow_cf.Limits(count=91),
        {"limits": {"count": 91}},
        "limits.count: at most 90: GeCo chooses answers among the 100 candidates that it keeps, got 91",
    ),
    "privacy": (
        lambda: mlflow_cf.Privacy(sample="secret"),  # type: ignore[arg-type]
        {"privacy": {"sample": "secret"}},
        "privacy.sample: input should be 'private', 'summary' or 'shown', got 'secret'",
    ),
    "constraints": (
        lambda: mlflow_cf.Constraints(immutable="age"),  # type: ignore[arg-type]
        {"constraints": {"immutable": "age"}},
        "constraints.immutable: must be a list, got 'age'; write [\"age\"]",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_object_says_what_its_dict_says(name: str) -> None:
    made, options, message = WRONG[name]
    with pytest.raises(InputError) as of_object:
        made()
    with pytest.raises(InputError) as of_dict:
        mlflow_cf.wrap(MODEL, TABLE, **options)
    assert of_object.value.message == of_dict.value.message == message


def test_objects_by_themselves_are_called_by_their_name() -> None:
    with pytest.raises(InputError, match=r"action\.feature: field required"):
        mlflow_cf.Action(name="earn")  # type: ignore[call-arg]
    with pytest.raises(InputError, match=r"relationship\.from: field required") as error:
        mlflow_cf.Relationship(x=1)  # type: ignore[call-arg]
    assert "keys: 'from', 'to'" in error.value.message


def test_what_stands_inside_of_others_is_named_by_its_place() -> None:
    with pytest.raises(InputError, match=r"^policy\.limits\.count: at most 90"):
        Policy.from_dict({"target": {"label": 1}, "limits": {"count": 100}})
    with pytest.raises(InputError, match=r"^target\.min_probability: input should be"):
        Query.read({"target": {"label": 1, "min_probability": 3}})


@pytest.mark.parametrize(("key", "value"), [("values", "all"), ("seed", -1), ("certify", "yes"), ("margin", 3)])
def test_arguments_are_called_as_they_are_written(key: str, value: object) -> None:
    with pytest.raises(InputError, match=f"^{key}: "):
        mlflow_cf.wrap(MODEL, TABLE, **{key: value})


def test_weights_are_given_with_or_without_their_names() -> None:
    weights = mlflow_cf.Distance(0.6, 0.4, weights={"age": 2})
    assert weights == mlflow_cf.Distance(l0=0.6, l1=0.4, linf=0.0, weights={"age": 2})
    for wrong in (
        lambda: mlflow_cf.Distance(0.6, l0=0.4),
        lambda: mlflow_cf.Distance(1, 0, 0, 0),
        lambda: mlflow_cf.Limits(3),
    ):
        with pytest.raises(TypeError):
            wrong()


def test_python_is_held_to_the_policys_count() -> None:
    explained = mlflow_cf.wrap(MODEL, TABLE, limits={"count": 3})
    assert explained.explain(TABLE.head(2), count=3)
    with pytest.raises(InputError) as error:
        explained.explain(TABLE.head(2), count=4)
    assert error.value.message == (
        "count: 4 is more than the policy's 3; ask for less, or set limits={'count': 4} when wrapping"
    )


def test_a_grid_that_is_too_fine_says_why() -> None:
    table = TABLE.assign(income=TABLE["income"] / 3.0)
    with pytest.raises(InputError, match=r"features.income.step: its grid has .* all of which are kept and looked at"):
        mlflow_cf.wrap(MODEL, table, features={"income": {"step": 1e-7}}, values="continuous")
