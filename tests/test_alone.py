"""The numbers of an answer are those of the row alone, whatever rows stand beside it."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.tree import DecisionTreeClassifier

import mlflow_cf
from mlflow_cf import Target
from mlflow_cf.testing.watched import Clock

RNG = np.random.default_rng(3)
FRAME = pd.DataFrame(RNG.normal(size=(300, 7)), columns=list("abcdefg"))
VALUE = FRAME.to_numpy() @ RNG.normal(size=7)
LABEL = (VALUE > 1).astype(int)

CLASSIFIERS = [
    LogisticRegression(),
    MLPClassifier((20,), max_iter=60, random_state=0),
    KNeighborsClassifier(5),
    DecisionTreeClassifier(max_depth=5, random_state=0),
]


def answered(model: Any, rows: pd.DataFrame, **options: Any) -> list[list[tuple[Any, ...]]]:
    """Return what is said of every answer of every row."""
    explained = mlflow_cf.wrap(model, FRAME, limits={"max_evaluations": 3000}, **options)
    found = explained.explain(rows, count=2)
    return [[(a.row, a.prediction, a.probability, a.distance) for a in one.counterfactuals] for one in found]


@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
@pytest.mark.parametrize("model", CLASSIFIERS, ids=lambda m: type(m).__name__)
def test_answers_do_not_depend_on_the_rows_beside(model: Any) -> None:
    model.fit(FRAME, LABEL)
    rows = FRAME[model.predict(FRAME) == 0].head(9)
    together = answered(model, rows, target=1)
    assert sum(map(len, together)) >= 9
    for position in range(len(rows)):
        assert answered(model, rows.iloc[[position]], target=1) == together[position : position + 1]


def test_values_of_a_regression_neither() -> None:
    model = LinearRegression().fit(FRAME, VALUE)
    rows = FRAME[model.predict(FRAME) < 0].head(9)
    together = answered(model, rows, target=Target(low=1.0))
    assert sum(map(len, together)) >= 9
    for position in range(len(rows)):
        assert answered(model, rows.iloc[[position]], target=Target(low=1.0)) == together[position : position + 1]


class Batched:
    """A model whose second row and all after it get other last bits, and so may change their label."""

    classes = (0, 1)

    def __call__(self, rows: pd.DataFrame) -> np.ndarray:
        likelier = 0.5 + (rows["a"].to_numpy() >= 1) * 1e-16 + (rows["a"].to_numpy() >= 2) * 0.25
        return (
            np.where(np.arange(len(rows)) > 0, likelier, np.where(likelier < 0.7, 0.5, likelier))
            + ((np.arange(len(rows)) > 0) & (rows["a"].to_numpy() == 1)) * 1e-9
        )


def test_an_answer_that_is_refused_alone_gives_way_to_the_next() -> None:
    rows = pd.DataFrame({"a": [0.0, 1.0, 2.0, 0.0], "b": [0.0, 0.0, 0.0, 1.0]})
    explained = mlflow_cf.wrap(Batched(), rows, target=1, output="score")
    (found,) = explained.explain(rows.head(1))
    (answer,) = found.counterfactuals
    assert answer.row["a"] == 2.0
    assert Batched()(pd.DataFrame([answer.row]))[0] > 0.5


def test_labels_that_come_with_scores_are_believed_only_where_they_are_the_models() -> None:
    model = DecisionTreeClassifier(max_depth=5, random_state=0).fit(FRAME, LABEL)
    model.predict = lambda rows: 1 - DecisionTreeClassifier.predict(model, rows)  # this one alone decides otherwise
    explained = mlflow_cf.wrap(model, FRAME, target=1)
    assert explained.judge.model.both is None
    assert [found.prediction for found in explained.explain(FRAME.head(5), explain="none")] == model.predict(
        FRAME.head(5)
    ).tolist()


@pytest.mark.parametrize("name", ["nearest_row", "geco"])
def test_asking_row_by_row_ends_with_the_clock(clock: Clock, name: str) -> None:
    """Each answer costs a call then; those that are not reached stay as they were judged together."""

    def decide(rows: pd.DataFrame) -> np.ndarray:
        clock.now += 0.1
        return (rows.to_numpy() @ np.ones(7) > 1).astype(int)

    explained = mlflow_cf.wrap(decide, FRAME, target=1, output="label", explainer=name)
    rows = FRAME[FRAME.sum(axis=1) < 1].head(8)
    started = clock.now
    found = explained.explain(rows, count=3, time_limit_s=2.0)
    assert clock.now - started < 2.0 + 0.25
    assert sum(len(one.counterfactuals) for one in found)
