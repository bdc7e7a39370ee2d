"""Certificates of several answers, on a line of values that one can follow by hand."""

import numpy as np
import pandas as pd
import pytest
from sklearn.tree import DecisionTreeClassifier

import mlflow_cf

DATA = pd.DataFrame({"age": np.arange(11) * 10, "income": np.arange(11) * 10, "rooms": np.arange(11) % 3})
ROW = pd.DataFrame({"age": [10], "income": [10], "rooms": [0]})


def tree():
    """Return a tree that accepts an age from 40 on, or an income from 80 on."""
    grid = pd.DataFrame([(a, i, r) for a in DATA["age"] for i in DATA["income"] for r in range(3)], columns=[*DATA])
    return DecisionTreeClassifier().fit(grid, ((grid["age"] >= 40) | (grid["income"] >= 80)).astype(int))


def answers(explained, **options):
    (answer,) = explained.explain(ROW, certify=True, **options)
    return [({change.feature: change.new for change in found.changes}, found.proof) for found in answer.counterfactuals]


@pytest.mark.parametrize("explainer", ["geco", "exact", "nearest_row", "random_search"])
def test_changed_sets_come_first_then_further_values_of_them(explainer):
    explained = mlflow_cf.wrap(tree(), DATA, target=1, explainer=explainer)
    assert answers(explained, count=5) == [
        ({"age": 40}, "optimal"),
        ({"income": 80}, "optimal"),
        ({"age": 50}, "optimal"),
        ({"age": 60}, "optimal"),
        ({"age": 70}, "optimal"),
    ]


def test_where_there_are_no_more_there_are_fewer():
    explained = mlflow_cf.wrap(tree(), DATA, target=1, constraints={"immutable": ["age"]}, explainer="exact")
    assert answers(explained, count=9) == [({"income": value}, "optimal") for value in (80, 90, 100)]


def test_largest_changes_choose_the_nearest_of_a_cell():
    """Where nothing else grows with a change, the values of a cell are told apart by the largest change alone."""
    model = DecisionTreeClassifier(random_state=0).fit(
        DATA[["age"]].join(0 * DATA.drop(columns="age"))[list(DATA)], (DATA["age"] <= 60).astype(int)
    )
    explained = mlflow_cf.wrap(
        model, DATA, target=1, constraints={"immutable": ["income", "rooms"]}, distance=(0.5, 0, 0.5)
    )
    (answer,) = explained.explain(ROW.assign(age=100), explainer="exact")
    assert answer.counterfactuals[0].row["age"] == 60
