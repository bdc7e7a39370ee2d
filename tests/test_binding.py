"""Groups bound to a row: the same tuples whichever way they are bound, and those that the rules leave."""

import numpy as np
import pandas as pd
import pytest

from mlflow_cf.constraints import Constraints
from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.policy import Distance
from mlflow_cf.problem import BoundPolicy, Group, binding
from mlflow_cf.problem.binding import same

FRAME = pd.DataFrame(
    {
        "age": [20, 30, 40, 50, 60, 30],
        "income": [1.5, 2.5, np.nan, 4.5, 0.5, 2.5],
        "home": ["rent", "own", None, "rent", "other", "own"],
        "rank": ["low", "high", "mid", "low", "mid", "high"],
        "debt": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0],
    }
)
SPACE = FeatureSpace.infer(FRAME, {"rank": {"kind": "ordinal", "levels": ["low", "mid", "high"]}})
CONSTRAINTS = {
    "immutable": ["home"],
    "increasing": ["age", "rank"],
    "ranges": {"income": [1, 4]},
    "relative": {"age": {"up": 20}},
    "rules": ["IF x.rank = 'low' THEN x_cf.debt < 4"],
}


def bound(
    row: int, constraints: dict[str, object], distance: Distance
) -> tuple[BoundPolicy, Floats, tuple[Group, ...]]:
    x0 = SPACE.encode(FRAME)[row]
    bound_policy = BoundPolicy.build(SPACE, SPACE.encode(FRAME), Constraints.read(constraints), distance, "observed")
    problem = bound_policy.bind(x0, space=SPACE, count=1, rate=lambda _: None, rate_background=lambda: None)
    return bound_policy, x0, problem.groups


@pytest.mark.parametrize("scale", ["mad", "percentile"])
@pytest.mark.parametrize("short", [500, 3, 0])
@pytest.mark.parametrize("grouped", [[], [["income", "debt"]], [["age", "rank", "home"]]], ids=str)
@pytest.mark.parametrize("row", range(len(FRAME)))
def test_what_the_rules_leave(
    row: int, grouped: list[list[str]], short: int, scale: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against the definition, tuple by tuple."""
    monkeypatch.setattr(binding, "SHORT", short)
    distance = Distance(0.2, 0.3, 0.5, scale=scale, weights={"age": 2})
    bound_policy, x0, groups = bound(row, {**CONSTRAINTS, "groups": grouped}, distance)
    for group in groups:
        columns = list(group.columns)
        allowed = [tuple(x0[columns])]
        for values in group.domain.actions:
            candidate = x0.copy()
            candidate[columns] = values
            proposed = not same(values, x0[columns]).all() and not (np.isnan(values) & ~np.isnan(x0[columns])).any()
            if proposed and all(rule.holds(candidate[None], x0)[0] for rule in group.rules):
                allowed.append(tuple(values))
        expected = np.array(sorted(allowed, key=lambda values: [np.inf if np.isnan(v) else v for v in values]))
        np.testing.assert_array_equal(group.actions, expected)
        np.testing.assert_array_equal(group.actions[group.own], x0[columns])
        assert group.own_allowed == all(rule.holds(x0[None], x0)[0] for rule in group.rules)
        part, top = bound_policy.bound_distance.parts(group.columns, group.actions, x0[columns])
        np.testing.assert_array_equal(group.cost, part)
        np.testing.assert_array_equal(group.peak, top)
        assert (group.cost[group.own], group.peak[group.own], group.weights[group.own]) == (0, 0, 0)
        others = np.delete(group.weights, group.own)
        proposals = np.delete(expected, group.own, axis=0)
        places = [int(np.flatnonzero(same(group.domain.actions, values).all(axis=1))[0]) for values in proposals]
        np.testing.assert_array_equal(others, group.domain.weights[places])
        np.testing.assert_array_equal(np.delete(group.ids, group.own), places)
        known = np.flatnonzero(same(group.domain.actions, x0[columns]).all(axis=1)).tolist()
        assert [group.ids[group.own]] == (known or [-1])


def test_a_level_that_the_background_never_had_comes_last() -> None:
    row = FRAME.head(1).assign(rank="top", home="boat")
    space = SPACE.covering(row)
    (x0,) = space.encode(row)
    bound_policy = BoundPolicy.build(SPACE, SPACE.encode(FRAME), Constraints(), Distance(), "observed")
    problem = bound_policy.bind(x0, space=space, count=1, rate=lambda _: None, rate_background=lambda: None)
    for name in ("rank", "home"):
        group = problem.groups[space.index[name]]
        assert group.actions[:, 0].tolist() == [0, 1, 2, 3]
        assert group.own == 3
        assert (group.cost[:3] > 0).all()
