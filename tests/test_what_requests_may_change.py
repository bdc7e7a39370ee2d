"""The table in docs of what requests may change, key by key: what is answered, and what is refused with which words."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression

import mlflow_cf
from mlflow_cf.constraints import Constraints
from mlflow_cf.errors import InputError
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.policy import Query

REQUESTS = Path(__file__).parent.parent / "docs" / "requests.md"
RNG = np.random.default_rng(1)
DATA = pd.DataFrame({name: RNG.normal(size=300).round(2) for name in ("age", "income", "debt")})
DATA["job"] = RNG.choice(["a", "b", "c"], 300)
NUMBERS = DATA[["age", "income", "debt"]]
GOOD = (DATA["income"] > DATA["debt"]).astype(int)
POLICY: dict[str, Any] = {
    "constraints": {
        "immutable": ["age"],
        "ranges": {"income": [-9, 9]},
        "relative": {"income": {"up": 5}},
        "levels": {"debt": DATA["debt"].unique().tolist()},
        "max_changes": 2,
        "actions": [{"name": "earn", "feature": "income", "low": 0, "high": 9, "effort": "1"}],
    },
    "limits": {"count": 3, "time_limit_s": 5, "max_evaluations": 50_000},
}

# key of a query -> what is answered, and what is refused with the beginning of which message
MAY: dict[str, tuple[list[Any], list[tuple[Any, str]]]] = {
    "explain": (["unfavourable", "all", "none"], [("some", "explain: ")]),
    "count": ([1, 3], [(4, "count: 4 is more than the policy's 3; ask for less"), (0, "count: ")]),
    "target": (
        [1, {"label": 1}, {"label": 1, "min_probability": 0.8}, {"label": 1, "ladder": [0.7, 0.8]}],
        [
            (0, "target: sealed by the policy, which wants 1; leave it out"),
            ({"label": 0, "min_probability": 0.99}, "target: sealed by the policy"),
            ({"other": True}, "target: sealed by the policy"),
            ({"label": 1, "min_probability": 0.6}, "target.min_probability: 0.6 is less than the policy's 0.7"),
            ({"label": 1, "ladder": [0.6, 0.8]}, "target.ladder[0]: 0.6 is less than the policy's 0.7"),
            ({"label": 1, "ladder": [0.8, 0.75]}, "target.ladder[1]: 0.75 does not exceed 0.8 before it"),
            ({"low": 1}, "target: the model predicts labels, not numbers"),
            ("great", "target.label: the model does not know 'great'"),
        ],
    ),
    "constraints": (
        [{"immutable": ["age", "debt"]}, {}],
        [({"immutable": []}, "constraints.immutable: would free 'age'")],
    ),
    "explainer": (
        ["geco", {"name": "geco", "options": {"q": 50}}],
        [("gecko", "explainer: 'gecko' does not answer requests to this model")],
    ),
    "seed": ([0, 7], [(-1, "seed: ")]),
    "time_limit_s": ([1, 5], [(5.5, "time_limit_s: 5.5 is more than the policy's 5")]),
    "max_evaluations": ([100], [(50_001, "max_evaluations: 50001 is more than the policy's 50000")]),
    "certify": ([True, False], [("yes", "certify: ")]),
    "robust_to": (
        [["v1"], True, []],
        [
            (["v2"], "robust_to: 'v2' is no model in this artifact"),
            (["models:/credit/1"], "robust_to: 'models:/credit/1' is no model in this artifact; known ones: 'v1'"),
        ],
    ),
    "plausible": (
        [True, False, {"quantile": 0.1}],
        [
            ({"quantile": 0.01}, "plausible.quantile: 0.01 is less than the policy's 0.05; ask for more"),
            ({"method": "lof"}, "plausible.method: "),
        ],
    ),
    "survival": (
        [True, False, {"confidence": 0.7}],
        [
            ({"holds": 0.4}, "survival.holds: 0.4 is less than the policy's 0.5; ask for more"),
            ({"models": "folds"}, "survival.models: "),
        ],
    ),
    "region": ([False, True, "all"], [("some", "region: "), (1, "region: ")]),
    "levers": (
        [1, [["income"], ["income", "debt"]]],
        [
            ([["age"]], "levers[0]: 'age' is immutable under the policy; leave it out"),
            ([["debts"]], "levers[0]: 'debts' is not a feature; did you mean 'debt'?"),
            (0, "levers: "),
        ],
    ),
    "responsiveness": ([True, False], [("yes", "responsiveness: ")]),
    "language": (["en", "de"], [("fr", "language: ")]),
    "record": ([True, False], [("yes", "record: ")]),
    "reasons": (
        [True, False, {"reference": "favourable_median", "most": 2}],
        [
            ("yes", "reasons: "),
            ({"reference": "rejected"}, "reasons.reference: input should be 'approved' or 'favourable_median'"),
            ({"most": 0}, "reasons.most: "),
            ({"protected": ["age"]}, "reasons.protected: not a known key"),
        ],
    ),
    "why_not": ([False, "quick", "full"], [("slow", "why_not: ")]),
    "margin": ([0.1, 0.2], [(0.05, "margin: 0.05 is less than the policy's 0.1; ask for more"), (0.5, "margin: ")]),
    "diversity": (["sets", "near"], [("far", "diversity: ")]),
    "min_difference": (
        [0.1, 1],
        [(0.04, "min_difference: 0.04 is less than the policy's 0.05"), (2, "min_difference")],
    ),
}
# key of constraints -> the same
MAY_ADD: dict[str, tuple[list[Any], list[tuple[Any, str]]]] = {
    "immutable": ([["age", "debt"], ["debt"]], [([], "would free 'age', which the policy limits")]),
    "increasing": ([["income"]], [(["age"], "age: immutable under the policy")]),
    "decreasing": ([["debt"]], [(["age"], "age: immutable under the policy")]),
    "ranges": ([{"income": [0, 9]}, {"debt": [None, 9]}], [({"income": [-10, 9]}, "income: [-10, 9] is wider")]),
    "relative": ([{"income": {"up": 4, "down": 1}}], [({"income": {"up": 6}}, "income.up: 6 is more than")]),
    "levels": ([{"debt": [float(DATA["debt"][0])]}], [({"debt": [77.5]}, "debt: 77.5 is not among the policy's")]),
    "forbidden": ([{"debt": [[0, 1]]}], [({"age": [[0, 1]]}, "age: immutable under the policy")]),
    "groups": ([[["income", "debt"]]], [([["income", "income"]], "already in groups[0]")]),
    "max_changes": ([1, 2], [(3, "3 is more than the policy's 2")]),
    "causal": (
        [[{"child": "debt", "parents": ["income"], "coefficients": {"income": 0.5}}]],
        [([{"child": "debt", "parents": ["income"], "model": "tree"}], "causal[0].model: is learned when a model is")],
    ),
    "actions": (
        [[{"name": "earn", "feature": "income"}], [{"name": "earn", "feature": "income", "low": 1, "effort": "9"}]],
        [
            ([], "constraints.actions: names no action; leave it out to keep all"),
            ([{"name": "steal", "feature": "income"}], "actions[0].name: 'steal' is no action of the policy"),
            ([{"name": "earn", "feature": "income", "high": 99}], "actions[0].high: 99 is above the policy's 9; stay"),
        ],
    ),
    "relationships": ([], [([{"from": "debt", "to": "income", "factor": "0.5"}], "when a model is wrapped or logged")]),
    "rules": ([["x_cf.debt <= x.debt"]], [(["x_cf.debts <= 1"], "'debts' is not a feature; did you mean 'debt'?")]),
}


@pytest.fixture(scope="module")
def explained() -> ExplainedModel:
    model, other = LogisticRegression().fit(NUMBERS, GOOD), LogisticRegression(C=0.1).fit(NUMBERS[:99], GOOD[:99])
    return mlflow_cf.wrap(
        model,
        NUMBERS,
        GOOD,
        target={"label": 1, "min_probability": 0.7},
        robust_to=[{"model": other, "name": "v1", "required": False}],
        plausible="isolation_forest",
        survival={"holds": 0.5, "confidence": 0.7, "compared": 1},
        margin=0.1,
        **POLICY,
    )


@pytest.fixture(scope="module")
def poor(explained: ExplainedModel) -> pd.DataFrame:
    return NUMBERS[GOOD == 0].head(2)


def cases(table: dict[str, tuple[list[Any], list[Any]]], column: int) -> list[Any]:
    return [pytest.param(key, case, id=f"{key}-{case}"[:60]) for key, found in table.items() for case in found[column]]


def test_every_key_is_in_the_tables() -> None:
    text = REQUESTS.read_text(encoding="utf-8")
    table = text[text.index("## What a request may change") : text.index("## A reply")]
    told = [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")]
    assert sorted(told) == sorted(MAY) == sorted(Query.model_fields)
    assert set(MAY_ADD) == set(Constraints.model_fields)


@pytest.mark.parametrize(("key", "value"), cases(MAY, 0))
def test_what_a_request_may(explained: ExplainedModel, poor: pd.DataFrame, key: str, value: Any) -> None:
    assert len(explained.predict(poor, {"counterfactual": {key: value}})) == len(poor)


@pytest.mark.parametrize(("key", "case"), cases(MAY, 1))
@pytest.mark.parametrize("explain", ["none", "all"])
def test_what_it_may_not(explained: ExplainedModel, poor: pd.DataFrame, key: str, case: Any, explain: str) -> None:
    value, message = case
    if key == "constraints" and explain == "none":
        return  # these are only read where something is to be explained
    with pytest.raises(InputError) as error:
        explained.predict(poor, {"counterfactual": {"explain": explain, key: value}})
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(("key", "value"), cases(MAY_ADD, 0))
def test_constraints_that_a_request_may_add(
    explained: ExplainedModel, poor: pd.DataFrame, key: str, value: Any
) -> None:
    assert len(explained.predict(poor, {"counterfactual": {"constraints": {key: value}}})) == len(poor)


@pytest.mark.parametrize(("key", "case"), cases(MAY_ADD, 1))
def test_constraints_that_it_may_not(explained: ExplainedModel, poor: pd.DataFrame, key: str, case: Any) -> None:
    value, message = case
    with pytest.raises(InputError) as error:
        explained.predict(poor, {"counterfactual": {"constraints": {key: value}}})
    assert str(error.value).startswith(f"constraints.{key}")
    assert message in str(error.value)


class TestTheSealedTarget:
    def test_a_higher_probability_holds(self, explained: ExplainedModel, poor: pd.DataFrame) -> None:
        reply = explained.predict(poor, {"counterfactual": {"target": {"label": 1, "min_probability": 0.8}}})
        found = [answer["probability"] for answers in reply["counterfactuals"] for answer in answers]
        assert found
        assert min(found) >= 0.8

    def test_an_interval_only_becomes_narrower(self) -> None:
        model = LinearRegression().fit(NUMBERS, NUMBERS["income"] * 2)
        explained = mlflow_cf.wrap(model, NUMBERS, target={"low": 1, "high": 4})
        low = NUMBERS[model.predict(NUMBERS) < 1].head(1)
        (reply,) = explained.predict(low, {"counterfactual": {"target": {"low": 2}}}).to_dict("records")
        assert 2 <= reply["counterfactuals"][0]["prediction"] <= 4
        for wider in ({"low": 0.5}, {"high": 5}):
            with pytest.raises(InputError, match=r"outside the policy's \[1, 4\]"):
                explained.predict(low, {"counterfactual": {"target": wider}})

    def test_any_other_label_stays_any_other(self, poor: pd.DataFrame) -> None:
        model = LogisticRegression().fit(NUMBERS, GOOD)
        explained = mlflow_cf.wrap(model, NUMBERS, target=mlflow_cf.Target.other())
        assert (
            len(explained.predict(poor, {"counterfactual": {"target": {"other": True, "min_probability": 0.6}}})) == 2
        )
        with pytest.raises(InputError, match="target: sealed by the policy, which wants any label but the row's own"):
            explained.predict(poor, {"counterfactual": {"target": 1}})

    @pytest.mark.parametrize("target", [0, {"other": True}])
    def test_the_owner_opens_it_when_logging_and_is_free_in_python(self, target: Any) -> None:
        model = LogisticRegression().fit(NUMBERS, GOOD)
        opened, sealed = (mlflow_cf.wrap(model, NUMBERS, target=1, seal=seal) for seal in ((), ("target",)))
        rich = NUMBERS[model.predict(NUMBERS) == 1].head(1)
        (reply,) = opened.predict(rich, {"counterfactual": {"target": target}}).to_dict("records")
        assert (reply["status"], reply["counterfactuals"][0]["prediction"]) == ("found", 0)
        assert sealed.explain(rich, target=target)[0].counterfactuals[0].prediction == 0
