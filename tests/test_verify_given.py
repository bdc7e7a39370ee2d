"""Given counterfactuals verified: every constraint by name, what breaks it, distance, needless changes."""

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.tree import DecisionTreeClassifier

import mlflow_cf
from mlflow_cf.errors import InputError
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.model.judge import OpenModel
from mlflow_cf.options import WrapOptions
from mlflow_cf.policy import Target
from mlflow_cf.proof.given import verdicts_on
from mlflow_cf.words.changes import Change
from mlflow_cf.wrapping import assemble

DATA = pd.DataFrame(
    {
        "age": [20, 25, 30, 35, 40, 45],
        "income": [10.0, 20.0, 30.0, 40.0, 50.0, 60.0],
        "job": ["a", "b", "c", "a", "b", "c"],
        "rooms": [1, 2, 3, 1, 2, 3],
        "member": [True, False, True, False, True, False],
    }
)
ROW = {"age": 25, "income": 20.0, "job": "b", "rooms": 2, "member": False}


def good(rows: pd.DataFrame) -> np.ndarray:
    if (rows["income"] > 1000).any():
        raise ValueError("too rich")
    score = 1 / (1 + np.exp(-(rows["income"].to_numpy() - 45) / 5))
    return np.column_stack([1 - score, score])


def wrapped(constraints: dict[str, Any] | None = None, target: Any = 1, **options: Any) -> ExplainedModel:
    model = OpenModel("test", (0, 1), lambda rows: good(rows).argmax(axis=1), good, score_kind="probability")
    return assemble(model, DATA, None, WrapOptions(target=target, constraints=constraints, **options))


def verified(constraints: dict[str, Any] | None, **moves: Any) -> Any:
    (found,) = wrapped(constraints).verify(pd.DataFrame([ROW]), pd.DataFrame([{**ROW, **moves}]))
    return found


@pytest.mark.parametrize(
    ("constraints", "moves", "path", "features"),
    [
        ({"immutable": ["job"]}, {"job": "a"}, "constraints.immutable.job", ["job"]),
        ({"increasing": ["age"]}, {"age": 20}, "constraints.increasing.age", ["age"]),
        ({"decreasing": ["age"]}, {"age": 30}, "constraints.decreasing.age", ["age"]),
        ({"ranges": {"age": [20, 30]}}, {"age": 35}, "constraints.ranges.age", ["age"]),
        ({"ranges": {"age": [30, None]}}, {}, "constraints.ranges.age", ["age"]),
        ({"relative": {"age": {"up": 5}}}, {"age": 35}, "constraints.relative.age", ["age"]),
        ({"levels": {"job": ["b", "c"]}}, {"job": "a"}, "constraints.levels.job", ["job"]),
        ({"forbidden": {"job": [["a", "b"], ["b", "a"]]}}, {"job": "a"}, "constraints.forbidden.job[1]", ["job"]),
        ({"groups": [["age", "rooms"]]}, {"age": 30}, "constraints.groups[0]", ["age", "rooms"]),
        ({"max_changes": 1}, {"age": 30}, "constraints.max_changes", ["age", "income"]),
        ({"rules": ["x_cf.rooms > 0", "x_cf.age <= x.rooms"]}, {}, "constraints.rules[1]", ["age", "rooms"]),
    ],
    ids=str,
)
def test_a_broken_constraint_is_named_with_the_values_that_break_it(
    constraints: dict[str, Any], moves: dict[str, Any], path: str, features: list[str]
) -> None:
    found = verified(constraints, income=50.0, **moves)
    assert found.broken == (path,)
    (check,) = (check for check in found.constraints if not check.holds)
    new = {**ROW, "income": 50.0, **moves}
    assert check.values == tuple(Change(name, ROW[name], new[name]) for name in features)
    assert found.valid
    assert not found.ok
    assert verified(None, income=50.0, **moves).ok


def test_what_is_told_of_a_good_one() -> None:
    found = verified({"immutable": ["job"], "max_changes": 2}, income=50.0, age=30)
    assert found.ok
    assert (found.prediction, found.n_changed, found.broken, found.fault) == (1, 2, (), "")
    assert found.probability == pytest.approx(good(pd.DataFrame([{"income": 50.0}]))[0, 1])
    assert [check.path for check in found.constraints] == ["constraints.immutable.job", "constraints.max_changes"]
    assert found.distance == pytest.approx(0.5 * 2 / 5 + 0.5 * (30 / 50 + 5 / 25) / 5)
    assert found.needless == (("age",),)


def test_the_target_may_be_missed() -> None:
    found = verified(None, income=30.0)
    assert (found.prediction, found.valid, found.ok, found.needless) == (0, False, False, ())


def test_values_are_looked_at_feature_by_feature() -> None:
    found = verified(None, income=51.5, age=30, job="z")
    assert found.inadmissible == ("income", "job")
    assert found.admissible == {"age": True, "income": False, "job": False, "rooms": True, "member": True}
    assert not found.ok


def test_the_same_row_changes_nothing() -> None:
    rich = {**ROW, "income": 60.0}
    (found,) = wrapped().verify(pd.DataFrame([rich]), pd.DataFrame([rich]))
    assert (found.valid, found.n_changed, found.ok) == (True, 0, False)


def test_groups_are_put_back_as_a_whole() -> None:
    found = verified({"groups": [["age", "rooms"]]}, income=50.0, age=45, rooms=3)
    assert found.needless == (("age", "rooms"),)
    (found,) = wrapped().verify(pd.DataFrame([ROW]), pd.DataFrame([{**ROW, "income": 50.0}]), minimality=False)
    assert found.needless is None


def test_a_request_adds_its_own() -> None:
    pairs = pd.DataFrame([ROW]), pd.DataFrame([{**ROW, "income": 50.0}])
    explained = wrapped({"max_changes": 2})
    (found,) = explained.verify(*pairs, constraints={"immutable": ["income"], "max_changes": 1})
    assert [check.path for check in found.constraints] == [
        "constraints.immutable.income",
        "policy.constraints.max_changes",
        "constraints.max_changes",
    ]
    assert found.broken == ("constraints.immutable.income",)
    (found,) = explained.verify(*pairs, target={"label": 1, "min_probability": 0.9})
    assert (found.prediction, found.valid) == (1, False)
    (found,) = explained.verify(*pairs, target={"other": True})
    assert found.ok
    with pytest.raises(InputError, match=r"constraints\.max_changes: 3 is more"):
        explained.verify(*pairs, constraints={"max_changes": 3})


def test_rows_that_nothing_can_be_said_about_are_reported() -> None:
    others = [{**ROW, "income": 50.0}, {**ROW, "age": "old"}, {**ROW, "income": 2000.0}]
    found = wrapped().verify(pd.DataFrame([ROW]), pd.DataFrame(others))
    assert [one.ok for one in found] == [True, False, False]
    assert found[1].fault.startswith("counterfactual: age: 'old' is no finite")
    assert found[2].fault == "counterfactual: the model cannot predict it (ValueError)"
    rows = pd.DataFrame([ROW, {**ROW, "rooms": 0.5}, ROW])
    assert wrapped().verify(rows, pd.DataFrame(others))[1].fault.startswith("row: rooms: ")


def test_pairs_must_go_together() -> None:
    two, three = pd.DataFrame([ROW] * 2), pd.DataFrame([ROW] * 3)
    with pytest.raises(InputError, match="counterfactuals: 3 for 2 rows; give one for every row"):
        wrapped().verify(two, three)
    with pytest.raises(InputError, match=r"counterfactuals\.job: column is missing"):
        wrapped().verify(two, two.drop(columns="job"))
    with pytest.raises(InputError, match=r"rows: a list is not a table"):
        wrapped().verify([ROW], two)  # type: ignore[arg-type]
    assert len(wrapped().verify(ROW, two)) == 2
    assert len(wrapped().verify(three.iloc[:1], three)) == 3
    assert wrapped().verify(three.iloc[:1], three.iloc[:0]) == ()


def test_records_and_tables() -> None:
    others = pd.DataFrame([{**ROW, "income": 50.0, "age": 30}, {**ROW, "age": "old"}])
    found = wrapped({"immutable": ["age"]}).verify(pd.DataFrame([ROW]), others)
    record = json.loads(json.dumps(found[0].to_dict(), allow_nan=False))
    assert record["ok"] is False
    assert record["constraints"] == [
        {
            "path": "constraints.immutable.age",
            "holds": False,
            "values": [{"feature": "age", "from": "25", "to": "30"}],
        }
    ]
    assert record["needless"] == [["age"]]
    frame = found.to_frame()
    assert frame["broken"].tolist() == [["constraints.immutable.age"], []]
    assert frame["prediction"].tolist() == [1, None]
    assert frame["fault"].str.len().gt(0).tolist() == [False, True]
    assert found[:0] == ()


def test_arrays_single_rows_and_numbered_columns_are_understood() -> None:
    frame = pd.DataFrame(np.arange(24.0).reshape(8, 3) % 7)
    model = DecisionTreeClassifier(max_depth=2, random_state=0).fit(frame, frame[0] > 3)
    explained = mlflow_cf.wrap(model, frame, target=True)
    rows = frame[~model.predict(frame)]
    given = explained.explain(rows).to_frame()[list(frame.columns)]
    expected = explained.verify(rows, given)
    assert all(one.ok for one in expected)
    again = explained.verify(rows.to_numpy(), given.to_numpy())
    assert [one.to_dict() for one in again] == [one.to_dict() for one in expected]
    (single,) = explained.verify(rows.iloc[0], given.iloc[0])
    assert single.to_dict() == expected[0].to_dict()
    with pytest.raises(InputError, match=r"counterfactuals: a str is not a table"):
        explained.verify(rows, "none")


PEOPLE = st.fixed_dictionaries(
    {
        "age": st.sampled_from([20, 25, 33, 45]),
        "income": st.sampled_from([10.0, 40.0, 50.0, 60.0, 2000.0]),
        "job": st.sampled_from([*"abz", None]),
        "rooms": st.sampled_from([1, 2, 3]),
        "member": st.booleans(),
    }
)
STRICT = {"ranges": {"age": [20, 40]}, "groups": [["rooms", "member"]], "max_changes": 3, "levels": {"job": ["a", "b"]}}
MODELS = [wrapped(), wrapped(STRICT), wrapped(STRICT, Target.other()), wrapped(margin=0.1)]


@given(st.sampled_from(MODELS), st.lists(st.tuples(PEOPLE, PEOPLE), min_size=1, max_size=6))
def test_verdicts_on_many_are_what_verification_says_of_each(model: ExplainedModel, pairs: list[Any]) -> None:
    rows, others = (pd.DataFrame(list(some)).astype({"job": object}) for some in zip(*pairs, strict=True))
    said = model.verify(rows, others, minimality=False)
    found = verdicts_on(model.context.required, model.bound_policy, model.policy.target, rows, others)
    assert found.ok.tolist() == [one.ok for one in said]
    assert found.valid.tolist() == [one.valid for one in said]
    assert found.lawful.tolist() == [not (one.fault or one.broken or one.inadmissible) for one in said]
    assert found.required.tolist() == [not (one.fault or one.unmet) for one in said]
    assert found.changed.tolist() == [one.n_changed > 0 for one in said]
