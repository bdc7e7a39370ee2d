"""A request tightens the policy or is refused: every way to loosen, every way to tighten, and that it takes effect."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

import mlflow_cf
from mlflow_cf.constraints import Constraints, no_pause
from mlflow_cf.errors import InputError, InputErrors
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.features import FeatureSpace
from mlflow_cf.model.judge import OpenModel
from mlflow_cf.options import WrapOptions
from mlflow_cf.policy import Distance
from mlflow_cf.problem import BoundPolicy
from mlflow_cf.request.request import MOST_KEPT, Tightened
from mlflow_cf.wrapping import assemble

DEGREES = ["none", "bachelor", "master", "doctor"]
PEOPLE = pd.DataFrame(
    {
        "age": [20, 25, 30, 35, 40, 45],
        "income": [10.0, 20.0, 30.0, 40.0, 50.0, 60.0],
        "degree": ["none", "bachelor", "master", "doctor", "bachelor", "master"],
        "job": ["a", "b", "c", "a", "b", "c"],
    }
)
POLICY: dict[str, Any] = {
    "immutable": ["job"],
    "increasing": ["age", "degree"],
    "decreasing": ["income"],
    "ranges": {"age": [20, 40], "degree": ["bachelor", None]},
    "relative": {"income": {"down": 30, "down_percent": 80}},
    "levels": {"degree": ["bachelor", "master"]},
    "forbidden": {"degree": [["bachelor", "doctor"]]},
    "max_changes": 2,
}
ROW = {"age": 25, "income": 50.0, "degree": "bachelor", "job": "b"}


def bound_policy(constraints: dict[str, Any]) -> BoundPolicy:
    space = FeatureSpace.infer(PEOPLE, {"degree": {"kind": "ordinal", "levels": DEGREES}})
    return BoundPolicy.build(space, space.encode(PEOPLE), Constraints.read(constraints), Distance(), "observed")


def tightened(request: dict[str, Any], policy: dict[str, Any] | None = None) -> BoundPolicy:
    return bound_policy(POLICY if policy is None else policy).tightened(Constraints.read(request))


def accepted(prepared: BoundPolicy, **moves: Any) -> bool:
    codes = prepared.space.encode(pd.DataFrame([ROW, {**ROW, **moves}]))
    return bool(prepared.accepts(codes[1:], codes[0])[0])


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"immutable": []}, "constraints.immutable: would free 'job', which the policy limits; name more features"),
        ({"increasing": ["age"]}, "constraints.increasing: would free 'degree'"),
        ({"increasing": []}, "constraints.increasing: would free 'age'"),
        ({"decreasing": []}, "constraints.decreasing: would free 'income'"),
        ({"ranges": {"age": [19, 40]}}, "constraints.ranges.age: [19, 40] is wider than the policy's [20, 40]"),
        ({"ranges": {"age": [None, 41]}}, "constraints.ranges.age: [None, 41] is wider"),
        ({"ranges": {"degree": ["none", None]}}, "constraints.ranges.degree: [none, None] is wider"),
        ({"relative": {"income": {"down": 31}}}, "constraints.relative.income.down: 31 is more than the policy's 30"),
        ({"relative": {"income": {"down_percent": 81}}}, "constraints.relative.income.down_percent: 81 is more"),
        ({"levels": {"degree": ["doctor"]}}, "constraints.levels.degree: 'doctor' is not among the policy's levels"),
        ({"levels": {"degree": ["bachelor", "doctor"]}}, "constraints.levels.degree: 'doctor' is not among"),
        ({"max_changes": 3}, "constraints.max_changes: 3 is more than the policy's 2; ask for fewer"),
        ({"increasing": ["job", "age", "degree"]}, "constraints.increasing.job: a category has no order"),
        ({"levels": {"job": ["a"]}}, "constraints.levels.job: immutable under the policy; leave it out"),
        ({"forbidden": {"job": [["a", "b"]]}}, "constraints.forbidden.job: immutable under the policy"),
    ],
    ids=str,
)
def test_loosening_is_refused(request_: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        tightened(request_)
    assert message in str(error.value)


DATES = pd.DataFrame({"start": pd.to_datetime(["2024-01-01", "2024-03-01", "2024-06-01"]), "age": [20, 30, 40]})


@pytest.mark.parametrize("wider", [["2023-12-31", "2024-04-01"], ["2024-02-01", "2024-04-02"], [None, "2024-05-01"]])
def test_a_range_of_dates_is_not_widened(wider: list[Any]) -> None:
    space = FeatureSpace.infer(DATES)
    policy = Constraints.read({"ranges": {"start": ["2024-02-01", "2024-04-01"]}})
    prepared = BoundPolicy.build(space, space.encode(DATES), policy, Distance(), "observed")
    with pytest.raises(InputError, match=r"constraints\.ranges\.start: .* is wider than the policy's"):
        prepared.tightened(Constraints.read({"ranges": {"start": wider}}))
    prepared.tightened(Constraints.read({"ranges": {"start": ["2024-02-01T00:00", None]}}))


@pytest.mark.parametrize("key", ["increasing", "decreasing", "ranges", "relative"])
def test_directions_for_what_is_fixed_are_refused(key: str) -> None:
    moves: dict[str, Any] = {"ranges": {"age": [0, 99]}, "relative": {"age": {"up": 5}}}
    with pytest.raises(InputError, match=rf"constraints\.{key}\.age: immutable under the policy"):
        tightened({key: moves.get(key, ["age"])}, {"immutable": ["age"]})


def test_all_that_loosens_at_once() -> None:
    with pytest.raises(InputErrors) as error:
        tightened({"immutable": [], "ranges": {"age": [0, 99]}, "max_changes": 9, "levels": {"degree": ["none"]}})
    assert [found.path.split(".")[1] for found in error.value.errors] == [
        "immutable",
        "max_changes",
        "ranges",
        "levels",
    ]


@pytest.mark.parametrize(
    ("request_", "moves"),
    [
        ({"immutable": ["job", "age"]}, {"age": 30}),
        ({"immutable": ["age"]}, {"age": 30}),
        ({"decreasing": ["income", "age"]}, {"age": 30}),
        ({"ranges": {"age": [20, 29]}}, {"age": 30}),
        ({"ranges": {"age": [None, 29]}}, {"age": 30}),
        ({"ranges": {"income": [None, 45]}}, {"age": 30}),
        ({"ranges": {"degree": ["bachelor", "bachelor"]}}, {"degree": "master"}),
        ({"relative": {"income": {"down": 10}}}, {"income": 30.0}),
        ({"relative": {"income": {"down_percent": 10}}}, {"income": 30.0}),
        ({"relative": {"age": {"up": 4}}}, {"age": 30}),
        ({"levels": {"degree": ["bachelor"]}}, {"degree": "master"}),
        ({"levels": {"age": [25, 35]}}, {"age": 30}),
        ({"forbidden": {"degree": [["bachelor", "master"]]}}, {"degree": "master"}),
        ({"max_changes": 1}, {"age": 30, "degree": "master"}),
        ({"groups": [["age", "income"]]}, {"age": 30, "income": 40.0}),
    ],
    ids=str,
)
def test_tightening_takes_effect(request_: dict[str, Any], moves: dict[str, Any]) -> None:
    assert accepted(bound_policy(POLICY), **moves)
    assert not accepted(tightened(request_), **moves)


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"immutable": ["job"]},
        {"increasing": ["degree", "age"]},
        {"ranges": {"age": [20, 40]}},
        {"ranges": {"age": [None, None]}},
        {"relative": {"income": {"down": 30}}},
        {"levels": {"degree": ["master", "bachelor"]}},
        {"max_changes": 2},
        {"max_changes": None},
        POLICY,
    ],
    ids=str,
)
def test_asking_for_the_policy_again_changes_nothing(request_: dict[str, Any]) -> None:
    before, after = bound_policy(POLICY), tightened(request_)
    rng = np.random.default_rng(0)
    rows = before.space.encode(PEOPLE.apply(lambda column: column.sample(200, replace=True, random_state=rng).values))
    x0 = before.space.encode(pd.DataFrame([ROW]))[0]
    assert before.accepts(rows, x0).tolist() == after.accepts(rows, x0).tolist()
    assert before.accepts(rows, x0).any()


def test_the_policy_still_holds_under_a_request() -> None:
    prepared = tightened({"ranges": {"income": [0, 100]}})
    assert not accepted(prepared, job="a")
    assert not accepted(prepared, age=45)
    assert not accepted(prepared, income=60.0)


def test_groups_of_a_request_do_not_widen_max_changes() -> None:
    moves = {"age": 30, "income": 30.0, "degree": "master"}  # a combination the background has
    assert not accepted(bound_policy(POLICY), **moves)
    prepared = tightened({"groups": [["age", "income", "degree"]]})
    assert not accepted(prepared, **moves)
    (limit,) = prepared.limits
    assert (limit.most, limit.groups) == (2, ((0,), (1,), (2,), (3,)))


def test_groups_may_not_split_the_policys() -> None:
    policy = {"groups": [["age", "income", "degree"]]}
    with pytest.raises(InputError, match="groups may not overlap"):
        tightened({"groups": [["age", "income"]]}, policy)
    same = tightened(policy, policy)
    assert [domain.columns for domain in same.domains] == [(0, 1, 2), (3,)]


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"ranges": {"agee": [1, 2]}}, r"constraints\.ranges\.agee: not a feature; did you mean 'age'\?"),
        ({"levels": {"degree": ["mastre"]}}, r"constraints\.levels\.degree: 'mastre' is not a level"),
    ],
)
def test_a_request_that_does_not_fit_is_refused(request_: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        tightened(request_)


@pytest.fixture(scope="module")
def loan() -> ExplainedModel:
    def score(rows: pd.DataFrame) -> np.ndarray:
        good = 1 / (1 + np.exp(-(rows["income"].to_numpy() - 45) / 5))
        return np.column_stack([1 - good, good])

    model = OpenModel(
        "test", (0, 1), lambda rows: (score(rows)[:, 1] > 0.5).astype(int), score, score_kind="probability"
    )
    options = WrapOptions(
        target={"label": 1, "min_probability": 0.6},
        constraints={"immutable": ["job"], "max_changes": 2},
        features={"degree": {"kind": "ordinal", "levels": DEGREES}},
        limits={"count": 3, "time_limit_s": 5, "max_evaluations": 2000},
        seal=(),
    )
    return assemble(model, PEOPLE, None, options)


class TestServed:
    """The same through `predict`, beside the other options a policy limits."""

    @pytest.mark.parametrize(
        ("asked", "message"),
        [
            ({"constraints": {"immutable": []}}, "constraints.immutable: would free 'job'"),
            ({"constraints": {"max_changes": 3}}, "constraints.max_changes: 3 is more"),
            ({"target": {"label": 1, "min_probability": 0.5}}, "target.min_probability: 0.5 is less than the policy's"),
            ({"count": 4}, "count: 4 is more than the policy's 3; ask for less"),
            ({"time_limit_s": 5.5}, "time_limit_s: 5.5 is more than the policy's 5"),
            ({"max_evaluations": 2001}, "max_evaluations: 2001 is more than the policy's 2000"),
        ],
        ids=str,
    )
    def test_loosening_is_an_error(self, loan: ExplainedModel, asked: dict[str, Any], message: str) -> None:
        with pytest.raises(InputError) as error:
            loan.predict(pd.DataFrame([ROW]), {"counterfactual": asked})
        assert message in str(error.value)
        assert error.value.error_code == "INVALID_PARAMETER_VALUE"

    def test_limits_all_at_once(self, loan: ExplainedModel) -> None:
        with pytest.raises(InputErrors) as error:
            loan.predict(pd.DataFrame([ROW]), {"counterfactual": {"count": 9, "time_limit_s": 60}})
        assert [found.path for found in error.value.errors] == ["count", "time_limit_s"]

    def test_tightening_is_answered(self, loan: ExplainedModel) -> None:
        poor = pd.DataFrame([{**ROW, "income": 20.0}])
        free = loan.predict(poor)["counterfactuals"].iloc[0]
        bound = loan.predict(poor, {"counterfactual": {"constraints": {"ranges": {"income": [None, 50]}}}})
        assert free[0]["row"]["income"] == 50.0
        assert bound["status"].iloc[0] == "found"
        sure = loan.predict(poor, {"counterfactual": {"target": {"label": 1, "min_probability": 0.9}}})
        assert sure["counterfactuals"].iloc[0][0]["row"]["income"] == 60.0
        none = loan.predict(poor, {"counterfactual": {"constraints": {"immutable": ["job", "income"]}}})
        assert none["status"].iloc[0] == "not_found"

    def test_the_floor_of_the_policy_stays_for_another_label(self, loan: ExplainedModel) -> None:
        rich = pd.DataFrame([{**ROW, "income": 60.0}])
        reply = loan.predict(rich, {"counterfactual": {"target": 0}})
        assert reply["status"].iloc[0] == "found"
        assert reply["counterfactuals"].iloc[0][0]["probability"] >= 0.6

    def test_the_local_interface_checks_constraints_too(self, loan: ExplainedModel) -> None:
        with pytest.raises(InputError, match=r"constraints\.immutable: would free 'job'"):
            loan.explain(pd.DataFrame([ROW]), constraints=mlflow_cf.Constraints(immutable=()))


class TestKept:
    """The same constraints are compiled once; others never get what was compiled for them."""

    KEPT, POLICY = Tightened(), bound_policy({"groups": [["age", "income"]], "increasing": ["age"]})

    def of(self, request: dict[str, Any], kept: Tightened | None = None) -> BoundPolicy:
        return (kept or self.KEPT).of(self.POLICY, Constraints.read(request), no_pause)

    def test_the_same_ones_are_compiled_once(self) -> None:
        request = {"ranges": {"income": [10, 30]}, "immutable": ["job"]}
        assert self.of(request) is self.of(dict(request))

    @pytest.mark.parametrize("other", [{"ranges": {"income": [10, 31]}}, {"ranges": {"income": [None, 30]}}, {}])
    def test_others_are_others(self, other: dict[str, Any]) -> None:
        assert self.of({"ranges": {"income": [10, 30]}}) is not self.of(other)

    def test_the_last_few_stay(self) -> None:
        kept = Tightened()
        first = self.of({"max_changes": 1}, kept)
        for high in range(MOST_KEPT - 1):
            self.of({"ranges": {"income": [0, high]}}, kept)
        assert self.of({"max_changes": 1}, kept) is first
        for high in range(MOST_KEPT):
            self.of({"ranges": {"income": [1, 1 + high]}}, kept)
        assert self.of({"max_changes": 1}, kept) is not first

    def test_functions_that_look_alike_are_told_apart(self) -> None:
        class Effort:
            def __init__(self, effort: float) -> None:
                self.effort = effort

            def __call__(self, *_: Any) -> float:
                return self.effort

            def __repr__(self) -> str:
                return "Effort()"

        actions = [{"name": "earn", "feature": "income", "low": 0, "high": 10}]
        kept, policy = Tightened(), bound_policy({"actions": actions})
        asked = [Constraints.read({"actions": [{**actions[0], "effort": Effort(effort)}]}) for effort in (1.0, 5.0)]
        assert repr(asked[0]) == repr(asked[1])
        one, other = (kept.of(policy, each, no_pause) for each in asked)
        assert one is not other

    def test_what_leaves_out_rules_is_made_once_and_what_parts_a_group_each_time(self) -> None:
        rule, group = self.POLICY.rules[0].origin, self.POLICY.joined[0].origin
        assert self.POLICY.without(frozenset([rule])) is self.POLICY.without(frozenset([rule]))
        parted, again = self.POLICY.without(frozenset([group])), self.POLICY.without(frozenset([group]))
        assert parted is not again
        assert len(parted.domains) == len(self.POLICY.domains) + 1
