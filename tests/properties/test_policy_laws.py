"""What goes into an artifact comes out of it: policies and explainers through JSON and YAML."""

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from worlds import constraint_dicts

from mlflow_cf.constraints import Constraints
from mlflow_cf.errors import InputError
from mlflow_cf.explainers import EXPLAINERS, GeCo
from mlflow_cf.explainers.registry import explainer_of, explainer_to_dict
from mlflow_cf.policy import Distance, Limits, Policy, Target

shares = st.integers(0, 10).flatmap(
    lambda first: st.integers(0, 10 - first).map(lambda second: (first / 10, second / 10, (10 - first - second) / 10))
)
targets = st.one_of(
    st.builds(Target, label=st.sampled_from([0, 1, True, "good", 0.5])),
    st.builds(Target, label=st.just(1), min_probability=st.sampled_from([0, 0.5, 1])),
    st.just(Target.other()),
    st.builds(Target, low=st.sampled_from([None, -1.5, 0]), high=st.sampled_from([2, 3.5])),
)
policies = st.builds(
    Policy,
    target=targets,
    constraints=constraint_dicts.map(Constraints.read),
    distance=st.builds(
        lambda parts, scale: Distance(*parts, weights={"age": 2.0}, scale=scale),
        shares,
        st.sampled_from(["mad", "percentile"]),
    ),
    values=st.sampled_from(["observed", "grid", "continuous"]),
    limits=st.builds(Limits, count=st.integers(1, 90), max_evaluations=st.integers(1, 10**9)),
    seed=st.integers(0, 2**62),
)


@given(policies)
def test_policies(policy: Policy) -> None:
    plain = policy.to_dict()
    assert Policy.from_dict(json.loads(json.dumps(plain, allow_nan=False))) == policy
    assert Policy.from_dict(yaml.safe_load(yaml.safe_dump(plain))) == policy
    assert type(Policy.from_dict(plain).target.label) is type(policy.target.label)


@given(constraint_dicts)
def test_constraints(constraints: dict[str, Any]) -> None:
    read = Constraints.read(constraints)
    assert Constraints.read(json.loads(json.dumps(read.to_dict()))) == read


@pytest.mark.parametrize("name", sorted(EXPLAINERS))
def test_explainers_with_default_options(name: str) -> None:
    explainer = explainer_of(name)
    again = explainer_of(json.loads(json.dumps(explainer_to_dict(explainer))))
    assert again == explainer
    assert type(again) is EXPLAINERS[name]


@given(st.builds(GeCo, q=st.integers(6, 500), m_init=st.integers(1, 50), m_mut=st.integers(1, 9)))
def test_explainers_with_other_options(explainer: GeCo) -> None:
    assert explainer_of(json.loads(json.dumps(explainer_to_dict(explainer)))) == explainer


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"name": "gecko", "options": {}}, "explainer: no explainer is called 'gecko'; did you mean 'geco'?"),
        ({"name": "geco", "options": {"m_int": 3}}, "explainer.options.m_int: not an option; did you mean 'm_init'?"),
        ({"name": "geco", "options": {"q": 2}}, "explainer.options.q: 2 survivors are too few"),
    ],
    ids=str,
)
def test_unknown_explainers_and_options(data: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        explainer_of(data)
    assert message in str(error.value)
