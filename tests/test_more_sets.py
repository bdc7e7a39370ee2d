"""Several counterfactuals of a model that is not opened: as many changed sets as exact search of the same model has."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from sklearn.base import ClassifierMixin
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

import mlflow_cf
from mlflow_cf import MDPSO, ExplainedModel, Explanation

COUNT = 5
COLUMNS = [f"f{at}" for at in range(8)]
MODELS: dict[str, Callable[[], ClassifierMixin]] = {
    "forest": lambda: RandomForestClassifier(20, max_depth=6, n_jobs=1, random_state=0),
    "logistic": LogisticRegression,
}
UNLIMITED = {"time_limit_s": 60.0, "max_evaluations": 200_000}


def table() -> tuple[pd.DataFrame, np.ndarray]:
    """Return numbers of hundreds of values each (n, d), and labels that three of four rows lack."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.integers(0, 500, size=(1_000, len(COLUMNS))), columns=COLUMNS)
    points = X.to_numpy() @ np.array([3.0, 2.0, 2.0, 1.5, 1.0, 1.0, -1.0, 0.5])
    return X, (points > np.quantile(points, 0.75)).astype(int)


@pytest.fixture(params=list(MODELS))
def pair(request: pytest.FixtureRequest) -> tuple[ExplainedModel, ExplainedModel, pd.DataFrame]:
    """A model opened, the same one as a plain function, and rows that it rejects."""
    X, y = table()
    model = MODELS[request.param]().fit(X, y)
    opened = mlflow_cf.wrap(model, X, target=1, seed=0)
    plain = mlflow_cf.wrap(lambda rows: model.predict_proba(rows)[:, 1], X, target=1, output="score", seed=0)
    return opened, plain, X[model.predict_proba(X)[:, 1] < 0.5].head(6)


def sets(found: Explanation) -> set[tuple[str, ...]]:
    """Return the changed sets of the answers."""
    return {tuple(change.feature for change in answer.changes) for answer in found.counterfactuals}


def total(found: Explanation) -> float:
    """Return the sum of the distances."""
    return sum(answer.distance for answer in found.counterfactuals)


def test_as_many_changed_sets_as_exist(pair: tuple[ExplainedModel, ExplainedModel, pd.DataFrame]) -> None:
    opened, plain, rows = pair
    best = opened.explain(rows, count=COUNT, certify=True, **UNLIMITED)
    found = plain.explain(rows, count=COUNT, **UNLIMITED)
    assert [len(sets(one)) for one in found] == [len(sets(one)) for one in best] == [COUNT] * len(rows)
    assert sum(map(total, found)) <= 1.1 * sum(map(total, best))


def test_needless_changes_are_in_no_answer(pair: tuple[ExplainedModel, ExplainedModel, pd.DataFrame]) -> None:
    _, plain, rows = pair
    for at, found in enumerate(plain.explain(rows, count=COUNT, **UNLIMITED)):
        answers = pd.DataFrame([answer.row for answer in found.counterfactuals])
        checked = plain.verify(rows.iloc[[at] * len(answers)], answers)
        assert [one.needless for one in checked] == [()] * len(answers)


def test_a_swarm_goes_on_where_polishing_makes_answers_equal(
    pair: tuple[ExplainedModel, ExplainedModel, pd.DataFrame],
) -> None:
    swarm = MDPSO(box="absolute", epsilon=1, iterations=3, particles=10, spares=False)
    for explained in pair[:2]:
        found = explained.explain(pair[2], count=COUNT, explainer=swarm, **UNLIMITED)
        assert [len(one.counterfactuals) for one in found] == [COUNT] * len(found)
