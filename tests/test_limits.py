"""Both limits on changes at once: a request that joins more features than a policy lets change is answered."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier

import mlflow_cf
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.request.explaining import RowClock

NAMES = ["age", "education", "hours", "occupation", "workclass", "gain"]
RNG = np.random.default_rng(3)
PEOPLE = pd.DataFrame({name: RNG.integers(0, 6, 200) for name in NAMES})
RICH = (PEOPLE.sum(axis=1) > 17).astype(int)
FOREST = RandomForestClassifier(10, max_depth=5, random_state=0).fit(PEOPLE, RICH)
POOR = PEOPLE[FOREST.predict(PEOPLE) == 0][:6]
JOINED = {"groups": [NAMES[:5]]}


@pytest.fixture(scope="module")
def explained() -> ExplainedModel:
    return mlflow_cf.wrap(
        FOREST, PEOPLE, constraints={"max_changes": 4}, limits={"time_limit_s": 60}, privacy={"sample": "shown"}
    )


@pytest.mark.parametrize("explainer", ["geco", "exact", "nearest_row", "random_search"])
def test_joined_features_count_one_by_one_for_the_policy(explained: ExplainedModel, explainer: str) -> None:
    asked: dict[str, Any] = {"counterfactual": {"constraints": JOINED, "explainer": explainer, "count": 3}}
    records = explained.predict(POOR, asked).to_dict("records")
    assert [record["prediction"] for record in records] == [0] * len(POOR)
    assert {record["status"] for record in records} <= {"found", "infeasible", "not_found"}
    changes = [answer["n_changed"] for record in records for answer in record["counterfactuals"]]
    assert changes
    assert max(changes) <= 4


def test_a_limit_that_leaves_nothing_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """No row of the background differs from this one in fewer than five of its first five features."""
    far = pd.DataFrame([[9, 9, 9, 9, 9, 0]], columns=NAMES)
    explained = mlflow_cf.wrap(FOREST, PEOPLE, target=1 - int(FOREST.predict(far)[0]), constraints={"max_changes": 4})
    constraints = {**JOINED, "immutable": ["gain"]}
    (found,) = explained.explain(far, constraints=constraints)
    assert found.status == "infeasible"
    assert "policy.constraints.max_changes" in found.reason
    assert "disagree" not in caplog.text
    (record,) = explained.predict(far, {"counterfactual": {"constraints": constraints}}).to_dict("records")
    assert "policy.constraints.max_changes" in record["reason"]
    assert "allow " not in record["reason"]  # the policy is not the caller's to relax


def test_groups_that_must_change_together_are_too_many() -> None:
    explained = mlflow_cf.wrap(FOREST, PEOPLE, constraints={"max_changes": 2, "levels": {n: [5] for n in NAMES[:3]}})
    (found,) = explained.explain(pd.DataFrame([[0] * 6], columns=NAMES), constraints={"groups": [NAMES[1:3]]})
    assert found.status == "infeasible"
    assert "3 groups must change, more than policy.constraints.max_changes allows" in found.reason


def test_rows_searched_once_more_share_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.perf_counter", lambda: 100.0)
    clock = RowClock(110.0)
    clock.share(2, 6)
    for _ in range(2):
        clock.row_end(0)
    clock.again(1)
    assert clock.row_end(0) == pytest.approx(100.0 + 8.0 / 5)  # beside four that are still to come
    assert clock.row_end(0) == pytest.approx(100.0 + 8.0 / 5)  # one more than was announced
